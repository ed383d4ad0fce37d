/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     <configuration>
 *       <property> <name>dfs.replication</name> <value>3</value> <final>true</final> </property>
 *     </configuration>
 *
 * A value may refer to others, ${dfs.nameservices}, and to the environment,
 * ${env.USER} or ${env.DIR:-/tmp}. XInclude, which is rarely used, is not supported.
 */
#include "hdfs/conf.h"

#include <ctype.h>
#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

#define FILE_MAX (16u << 20)
#define VALUE_MAX (1u << 20)
#define DEPTH_MAX 20 /* of nested references, as in Hadoop */

struct property {
    char *key, *value, *expanded; /* `expanded` is set after all files are read */
    bool is_final;
};

struct hy_hdfs_conf {
    struct property *all;
    size_t count;
};

struct reader {
    struct hy_hdfs_conf *conf;
    XML_Parser parser;
    struct hy_buf text, key, value;
    int rc;
    bool is_final, has_value;
};

static struct property *find(const struct hy_hdfs_conf *c, const char *key)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->all[i].key, key) == 0)
            return &c->all[i];
    return NULL;
}

static struct property *add(struct hy_hdfs_conf *c, const char *key)
{
    struct property *p;

    if (hy_array_grow(c->all, c->count) < 0)
        return NULL;
    p = &c->all[c->count];
    *p = (struct property){.key = hy_strdup(key)};
    if (!p->key)
        return NULL;
    c->count++;
    return p;
}

static int set(struct hy_hdfs_conf *c, const char *key, const char *value, bool is_final)
{
    struct property *p = find(c, key);
    char *copy;

    if (p && p->is_final)
        return 0;
    copy = hy_strdup(value);
    if (!copy || (!p && !(p = add(c, key)))) {
        free(copy);
        return -ENOMEM;
    }
    free(p->value);
    p->value = copy;
    p->is_final = is_final;
    return 0;
}

static void stop(struct reader *r, int rc)
{
    r->rc = rc;
    XML_StopParser(r->parser, XML_FALSE);
}

static void on_start(void *arg, const char *name, const char **attributes)
{
    struct reader *r = arg;

    (void)attributes;
    hy_buf_clear(&r->text);
    if (strcmp(name, "property") == 0) {
        hy_buf_clear(&r->key);
        hy_buf_clear(&r->value);
        r->is_final = r->has_value = false;
    }
}

static void on_text(void *arg, const char *text, int n)
{
    struct reader *r = arg;
    int rc = hy_buf_append(&r->text, text, (size_t)n);

    if (rc < 0)
        stop(r, rc);
}

/* Copies the text without surrounding blanks. */
static int copy_trimmed(struct hy_buf *into, const struct hy_buf *text)
{
    const char *bytes = (const char *)hy_buf_bytes(text);
    size_t from = 0, to = text->len;

    while (from < to && isspace((unsigned char)bytes[from]))
        from++;
    while (to > from && isspace((unsigned char)bytes[to - 1]))
        to--;
    hy_buf_clear(into);
    return to == from ? 0 : hy_buf_append(into, bytes + from, to - from);
}

static int end_of_property(struct reader *r)
{
    const char *key = hy_buf_cstr(&r->key), *value = hy_buf_cstr(&r->value);

    if (!key || !value)
        return -ENOMEM;
    return *key && r->has_value ? set(r->conf, key, value, r->is_final) : 0;
}

static void on_end(void *arg, const char *name)
{
    struct reader *r = arg;
    int rc = 0;

    if (strcmp(name, "name") == 0) {
        rc = copy_trimmed(&r->key, &r->text);
    } else if (strcmp(name, "value") == 0) {
        r->has_value = true;
        rc = copy_trimmed(&r->value, &r->text);
    } else if (strcmp(name, "final") == 0) {
        r->is_final = r->text.len == 4 && strncasecmp((const char *)hy_buf_bytes(&r->text), "true", 4) == 0;
    } else if (strcmp(name, "property") == 0) {
        rc = end_of_property(r);
    }
    hy_buf_clear(&r->text);
    if (rc < 0)
        stop(r, rc);
}

int hy_hdfs_conf_parse(struct hy_hdfs_conf *c, const char *bytes, size_t n, const char *name, struct hy_err *err)
{
    struct reader r = {.conf = c, .parser = XML_ParserCreate(NULL)};
    int rc = 0;

    if (!r.parser)
        return hy_err_set(err, -ENOMEM, "out of memory for %s", name);
    hy_buf_init(&r.text, VALUE_MAX);
    hy_buf_init(&r.key, VALUE_MAX);
    hy_buf_init(&r.value, VALUE_MAX);
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_start, on_end);
    XML_SetCharacterDataHandler(r.parser, on_text);
    if (n > FILE_MAX)
        rc = hy_err_set(err, -EFBIG, "%s has %zu bytes, which is too large for Hadoop settings", name, n);
    else if (XML_Parse(r.parser, bytes, (int)n, 1) != XML_STATUS_OK)
        rc = hy_err_set(err, r.rc ? r.rc : -EINVAL, "%s is not a valid Hadoop settings file: line %lu: %s", name,
                        XML_GetCurrentLineNumber(r.parser),
                        r.rc ? "a value is too long" : XML_ErrorString(XML_GetErrorCode(r.parser)));
    hy_buf_done(&r.text);
    hy_buf_done(&r.key);
    hy_buf_done(&r.value);
    XML_ParserFree(r.parser);
    return rc;
}

/* The value for ${name}; NULL when it is not set. */
static const char *lookup(const struct hy_hdfs_conf *c, char *name)
{
    const struct property *p;
    char *fallback;
    const char *value;

    if (strncmp(name, "env.", 4) != 0)
        return (p = find(c, name)) ? p->value : NULL;
    fallback = strstr(name, ":-");
    if (fallback) {
        *fallback = '\0';
        value = getenv(name + 4);
        return value && *value ? value : fallback + 2;
    }
    return getenv(name + 4);
}

/* Expands the first ${…} that is set. 1 when there was one, 0, or -Exxx. */
static int expand_once(const struct hy_hdfs_conf *c, char **value)
{
    for (char *at = *value; (at = strstr(at, "${")); at += 2) {
        char *end = strchr(at, '}');
        const char *found;

        if (!end)
            return 0;
        hy_cleanup_free char *name = hy_strndup(at + 2, (size_t)(end - at - 2));
        if (!name)
            return -ENOMEM;
        found = lookup(c, name);
        if (!found)
            continue;
        if (strlen(*value) + strlen(found) > VALUE_MAX)
            return -ENOBUFS;
        char *longer = hy_asprintf("%.*s%s%s", (int)(at - *value), *value, found, end + 1);
        if (!longer)
            return -ENOMEM;
        free(*value);
        *value = longer;
        return 1;
    }
    return 0;
}

static int expand(struct hy_hdfs_conf *c, struct property *p)
{
    int rc = 1;

    p->expanded = hy_strdup(p->value);
    if (!p->expanded)
        return -ENOMEM;
    for (int i = 0; rc > 0 && i < DEPTH_MAX; i++)
        rc = expand_once(c, &p->expanded);
    return rc < 0 ? rc : 0;
}

static int load_file(struct hy_hdfs_conf *c, const char *dir, const char *name, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(dir, name);
    hy_cleanup_buf struct hy_buf bytes;
    int rc;

    hy_buf_init(&bytes, FILE_MAX);
    if (!path)
        return hy_err_set(err, -ENOMEM, "out of memory for %s", name);
    rc = hy_file_read(path, &bytes);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot read Hadoop's settings %s", path);
    return hy_hdfs_conf_parse(c, (const char *)hy_buf_bytes(&bytes), bytes.len, path, err);
}

struct hy_hdfs_conf *hy_hdfs_conf_load(const char *dir, struct hy_err *err)
{
    struct hy_hdfs_conf *c = hy_calloc(1, sizeof(*c));
    int rc = c ? 0 : hy_err_set(err, -ENOMEM, "out of memory for Hadoop's settings");

    if (rc == 0 && dir)
        rc = load_file(c, dir, "core-site.xml", err);
    if (rc == 0 && dir)
        rc = load_file(c, dir, "hdfs-site.xml", err);
    for (size_t i = 0; rc == 0 && i < c->count; i++) {
        rc = expand(c, &c->all[i]);
        if (rc < 0)
            hy_err_sys(err, rc, "Hadoop's setting %s", c->all[i].key);
    }
    if (rc == 0)
        return c;
    hy_hdfs_conf_free(c);
    return NULL;
}

void hy_hdfs_conf_free(struct hy_hdfs_conf *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->count; i++) {
        free(c->all[i].key);
        free(c->all[i].value);
        free(c->all[i].expanded);
    }
    free(c->all);
    free(c);
}

char *hy_hdfs_conf_dir(void)
{
    const char *dir = getenv("HADOOP_CONF_DIR"), *home = getenv("HADOOP_HOME");

    if (dir && *dir)
        return hy_strdup(dir);
    return home && *home ? hy_path_join(home, "etc/hadoop") : NULL;
}

const char *hy_hdfs_conf_get(const struct hy_hdfs_conf *c, const char *key)
{
    const struct property *p = find(c, key);
    const char *value = p ? (p->expanded ? p->expanded : p->value) : NULL;

    return value && *value ? value : NULL;
}

uint64_t hy_hdfs_conf_number(const struct hy_hdfs_conf *c, const char *key, uint64_t fallback)
{
    const char *text = hy_hdfs_conf_get(c, key);
    uint64_t number;

    return text && hy_parse_size(text, &number) == 0 ? number : fallback;
}

bool hy_hdfs_conf_bool(const struct hy_hdfs_conf *c, const char *key, bool fallback)
{
    const char *text = hy_hdfs_conf_get(c, key);

    return text ? strcasecmp(text, "true") == 0 : fallback;
}
