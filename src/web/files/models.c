/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models of a project: directories Models/NAME/VERSION, each with a file VERSION.json next to it, which
 * hopyard.compat's model.export writes. It may be missing or damaged: then only the files are shown.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/string_list.h"
#include "base/text.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/files/served_dir.h"

#define MODELS "Models"
#define MODELS_MAX 1000
#define VERSIONS_MAX 1000 /* of one model: the newest */
#define METADATA_MAX (256u << 10)

struct names {
    struct hy_string_list list;
    bool are_numbers;
};

static int take_directory(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    struct names *n = arg;
    uint64_t number;

    if (!entry->is_dir || entry->is_link || hy_served_dir_hides(entry->name) || *entry->name == '.' ||
        (n->are_numbers && (hy_parse_u64(entry->name, &number) < 0 || number > INT64_MAX)))
        return 0;
    return hy_string_list_add(&n->list, entry->name) < 0 ? hy_err_oom(err) : 0;
}

static int list_directories(struct hy_served_dir *p, const char *path, struct names *ret, struct hy_err *err)
{
    hy_cleanup_free char *url = NULL;
    int rc = hy_served_dir_existing(p, path, &url, err);

    return rc == 0 ? hy_fs_list(url, take_directory, ret, err) : rc;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = 0, y = 0;

    (void)hy_parse_u64(*(char *const *)a, &x); /* take_directory has checked it */
    (void)hy_parse_u64(*(char *const *)b, &y);
    return (x < y) - (x > y);
}

/* ---- the metadata of a version -------------------------------------------------------------------------- */

/* NULL: there is no such file, or it is not JSON. */
static json_t *read_metadata(struct hy_served_dir *p, const char *directory)
{
    hy_cleanup_free char *path = hy_asprintf("%s.json", directory), *url = NULL, *text = hy_malloc(METADATA_MAX);
    struct hy_fs_file *file = NULL;
    struct hy_err err = {0};
    int64_t n = -1;

    if (!path || !text || hy_served_dir_existing(p, path, &url, &err) < 0 ||
        hy_fs_open(url, HY_FS_READ, &file, &err) < 0)
        return NULL;
    if (hy_fs_size(file) <= METADATA_MAX)
        n = hy_fs_pread(file, text, METADATA_MAX, 0, &err);
    if (hy_fs_close(file, &err) < 0 || n < 0)
        return NULL;
    return hy_json_load(text, (size_t)n, 0, NULL);
}

static int set_metrics(json_t *o, const json_t *metadata)
{
    json_t *metrics = json_object(), *value;
    const char *name;
    int rc = metrics ? 0 : -ENOMEM;

    json_object_foreach(json_object_get(metadata, "metrics"), name, value)
    {
        if (rc == 0 && json_is_number(value))
            rc = json_object_set(metrics, name, value) < 0 ? -ENOMEM : 0;
    }
    return hy_json_set(o, "metrics", metrics) | rc;
}

/* The field if it has that type, otherwise null. */
static json_t *field(const json_t *metadata, const char *name, json_type type)
{
    json_t *value = json_object_get(metadata, name);

    return value && json_typeof(value) == type ? json_incref(value) : json_null();
}

static json_t *version_json(struct hy_served_dir *p, const char *model, const char *version, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_asprintf(MODELS "/%s/%s", model, version), *url = NULL;
    hy_cleanup_json json_t *metadata = path ? read_metadata(p, path) : NULL;
    struct hy_fs_usage usage = {0};
    json_t *o = json_object();
    int rc = path ? hy_served_dir_existing(p, path, &url, err) : -ENOMEM;

    if (rc == 0 && hy_fs_usage(url, &usage, err) < 0)
        usage = (struct hy_fs_usage){0}; /* a part of it cannot be read; the rest is shown */
    rc = hy_json_set(o, "version", json_integer(strtoll(version, NULL, 10)));
    rc |= hy_json_set(o, "path", path ? hy_json_text(path) : NULL);
    rc |= hy_json_set(o, "size", json_integer((json_int_t)usage.bytes));
    rc |= hy_json_set(o, "files", json_integer((json_int_t)usage.files));
    rc |= set_metrics(o, metadata);
    rc |= hy_json_set(o, "description", field(metadata, "description", JSON_STRING));
    rc |= hy_json_set(o, "user", field(metadata, "user", JSON_STRING));
    rc |= hy_json_set(o, "created", field(metadata, "created", JSON_INTEGER));
    rc |= hy_json_set(o, "run", field(metadata, "run", JSON_INTEGER));
    rc |= hy_json_set(o, "trial", field(metadata, "trial", JSON_INTEGER));
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}

/* ---- GET /models -------------------------------------------------------------------------------------- */

static int add_versions(struct hy_served_dir *p, const char *model, json_t *versions, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_asprintf(MODELS "/%s", model);
    struct names n = {.are_numbers = true};
    int rc = path ? list_directories(p, path, &n, err) : hy_err_oom(err);

    if (rc == 0 && n.list.count)
        qsort(n.list.items, n.list.count, sizeof *n.list.items, newest_first);
    for (size_t i = 0; rc == 0 && i < n.list.count && i < VERSIONS_MAX; i++)
        rc = hy_json_append(versions, version_json(p, model, n.list.items[i], err)) < 0 ? hy_err_oom(err) : 0;
    hy_string_list_done(&n.list);
    return rc;
}

static int add_model(struct hy_served_dir *p, const char *model, json_t *models, struct hy_err *err)
{
    json_t *versions = json_array();
    int rc = versions ? add_versions(p, model, versions, err) : hy_err_oom(err);

    if (rc < 0 || json_array_size(versions) == 0) {
        json_decref(versions);
        return rc;
    }
    return hy_json_append(models, json_pack("{s:o,s:o}", "name", hy_json_text(model), "versions", versions)) < 0
               ? hy_err_oom(err)
               : 0;
}

void hy_api_models(struct hy_exchange *x)
{
    hy_cleanup_served_dir struct hy_served_dir p = {0};
    struct hy_err err = {0};
    struct names n = {0};
    json_t *models;
    int rc;

    if (hy_served_dir_of_project(x, &p) < 0)
        return;
    models = json_array();
    rc = models ? list_directories(&p, MODELS, &n, &err) : hy_err_oom(&err);
    for (size_t i = 0; rc == 0 && i < n.list.count && i < MODELS_MAX; i++)
        rc = add_model(&p, n.list.items[i], models, &err);
    hy_string_list_done(&n.list);
    if (rc < 0 && rc != -ENOENT) { /* -ENOENT: there is no such directory yet */
        json_decref(models);
        hy_served_dir_failure(x, &p, &err);
    } else {
        hy_reply_json(x, json_pack("{s:o}", "models", models));
    }
}
