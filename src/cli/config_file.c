/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/config_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"

#define FILE_MAX (1u << 20)

/* A setting maps to the option PREFIX + its name, with '-' for '_'; "enabled" maps to the option PREFIX alone. */
static const struct section {
    const char *name, *prefix;
    bool only_tuning; /* its settings map only to options without effect */
} sections[] = {{"params", "", true},
                {"autotune", "autotune-", true},
                {"timeline", "timeline-", false},
                {"stall_check", "stall-check-", false},
                {"library_options", "", true},
                {"logging", "log-", true}};

/* Settings whose option has another name. */
static const struct {
    const char *setting, *option;
} others[] = {{"ccl-bgt-affinity", "thread-affinity"}, {"no-log-with-timestamp", "log-without-timestamp"}};

struct line {
    int indent;
    char *key, *value; /* NULL: none, or null */
};

/* ---- one line ------------------------------------------------------------------------- */

/* Removes a comment: a # at the start or after a space, outside of quotes. */
static void cut_comment(char *text)
{
    char quote = '\0';

    for (char *at = text; *at; at++) {
        if (quote)
            quote = *at == quote ? '\0' : quote;
        else if (*at == '"' || *at == '\'')
            quote = *at;
        else if (*at == '#' && (at == text || at[-1] == ' ' || at[-1] == '\t')) {
            *at = '\0';
            break;
        }
    }
}

static char *trim(char *text)
{
    size_t n;

    text += strspn(text, " \t\r");
    for (n = strlen(text); n && strchr(" \t\r", text[n - 1]); n--)
        ;
    text[n] = '\0';
    return text;
}

/* A plain or quoted scalar; NULL if empty or null. -EINVAL: other YAML. */
static int scalar(char *text, char **ret)
{
    size_t n = strlen(text);

    *ret = NULL;
    if (n == 0 || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0)
        return 0;
    if (*text == '"' || *text == '\'') {
        if (n < 2 || text[n - 1] != *text || memchr(text + 1, *text, n - 2) || memchr(text, '\\', n))
            return -EINVAL;
        text[n - 1] = '\0';
        *ret = text + 1;
        return 0;
    }
    if (strchr("[{&*!|>%@`", *text))
        return -EINVAL;
    *ret = text;
    return 0;
}

/* 1: a setting; 0: an empty line; -EINVAL. */
static int read_line(char *text, struct line *ret)
{
    size_t blanks = strspn(text, " ");
    char *colon;

    cut_comment(text);
    ret->indent = (int)blanks;
    text = trim(text);
    if (!*text || strcmp(text, "---") == 0)
        return 0;
    colon = strchr(text, ':');
    if (!colon || colon == text || (colon[1] && colon[1] != ' ' && colon[1] != '\t'))
        return -EINVAL;
    *colon = '\0';
    ret->key = trim(text);
    return scalar(trim(colon + 1), &ret->value) < 0 ? -EINVAL : 1;
}

/* ---- from settings to options ---------------------------------------------------------------- */

static const struct section *section_of(const char *name)
{
    for (size_t i = 0; i < HY_COUNT(sections); i++)
        if (strcmp(sections[i].name, name) == 0)
            return &sections[i];
    return NULL;
}

/* The booleans of YAML 1.1. */
static int truth(const char *text, bool *ret)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};

    for (size_t i = 0; i < HY_COUNT(yes); i++) {
        *ret = strcasecmp(text, yes[i]) == 0;
        if (*ret || strcasecmp(text, no[i]) == 0)
            return 0;
    }
    return -EINVAL;
}

static const struct hy_option *option_of(const struct hy_args *args, const struct section *s, const char *key,
                                         bool negated)
{
    bool enabled = strcmp(key, "enabled") == 0;
    char name[128];

    snprintf(name, sizeof name, "%s%s%s", negated ? "no-" : "", s->prefix, enabled ? "" : key);
    for (char *at = name; *at; at++)
        *at = *at == '_' ? '-' : *at;
    if (enabled && *s->prefix)
        name[strlen(name) - 1] = '\0'; /* the prefix's dash */
    for (size_t i = 0; i < HY_COUNT(others); i++)
        if (strcmp(name, others[i].setting) == 0)
            snprintf(name, sizeof name, "%s", others[i].option);
    return hy_option_find(args->command->options, name);
}

static bool is_given(const struct hy_args *args, const struct hy_option *option)
{
    const char *name = option->name;

    if (strncmp(name, "no-", 3) == 0 && hy_args_has(args, name + 3))
        return true;
    for (size_t i = 0; i < args->given_count; i++)
        if (strncmp(args->given[i].option->name, "no-", 3) == 0 && strcmp(args->given[i].option->name + 3, name) == 0)
            return true;
    return hy_args_has(args, name);
}

static void add(struct hy_config *c, const struct hy_args *line, const struct hy_option *option, const char *value)
{
    if (!is_given(line, option))
        c->args.given[c->args.given_count++] = (struct hy_given){.option = option, .value = value};
}

static int setting(struct hy_config *c, const struct hy_args *line, const struct section *s, const struct line *l,
                   struct hy_err *err)
{
    const struct hy_option *option = option_of(line, s, l->key, false);
    bool is_on = true;

    if (!option || option->refused || (s->only_tuning && !option->nothing))
        return hy_err_set(err, -EINVAL, "unknown setting '%s' in section '%s'", l->key, s->name);
    if (!l->value)
        return 0;
    if (option->value) {
        add(c, line, option, l->value);
        return 0;
    }
    if (truth(l->value, &is_on) < 0)
        return hy_err_set(err, -EINVAL, "'%s' must be true or false, not '%s'", l->key, l->value);
    if (!is_on)
        option = option_of(line, s, l->key, true);
    if (option)
        add(c, line, option, NULL);
    return 0;
}

static int controller(struct hy_config *c, const struct hy_args *line, const char *name, struct hy_err *err)
{
    const struct hy_option *option = NULL;

    if (!name)
        return 0;
    if (strcasecmp(name, "gloo") == 0 || strcasecmp(name, "mpi") == 0)
        option = hy_option_find(line->command->options, strcasecmp(name, "mpi") == 0 ? "mpi" : "gloo");
    if (!option)
        return hy_err_set(err, -EINVAL, "the controller must be gloo or mpi, not '%s'", name);
    add(c, line, option, NULL);
    return 0;
}

static int take(struct hy_config *c, const struct hy_args *line, const struct section **s, const struct line *l,
                struct hy_err *err)
{
    if (l->indent > 0 && *s)
        return setting(c, line, *s, l, err);
    if (l->indent > 0)
        return hy_err_set(err, -EINVAL, "'%s' is not in a section", l->key);
    *s = section_of(l->key);
    if (!*s && strcmp(l->key, "controller") == 0)
        return controller(c, line, l->value, err);
    if (!*s)
        return hy_err_set(err, -EINVAL, "unknown section '%s'", l->key);
    return l->value ? hy_err_set(err, -EINVAL, "put the settings of '%s' on indented lines below it", l->key) : 0;
}

static int each_line(struct hy_config *c, const struct hy_args *line, const char *file, char *text, struct hy_err *err)
{
    const struct section *s = NULL;

    for (int number = 1; text; number++) {
        struct line l = {0};
        int rc = read_line(strsep(&text, "\n"), &l);

        if (rc < 0)
            hy_err_set(err, rc, "invalid line; write SECTION:, and below it indented lines NAME: VALUE");
        else if (rc > 0)
            rc = take(c, line, &s, &l, err);
        if (rc < 0)
            return hy_err_wrap(err, "%s, line %d", file, number);
    }
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------- */

static size_t count_lines(const char *text)
{
    size_t n = 1;

    while ((text = strchr(text, '\n'))) {
        text++;
        n++;
    }
    return n;
}

static int read_file(const struct hy_args *line, const char *file, struct hy_config *c, struct hy_err *err)
{
    int rc = hy_file_read(file, &c->text);
    char *text = rc < 0 ? NULL : (char *)hy_buf_cstr(&c->text);

    if (rc < 0 && rc != -ENOMEM) {
        hy_err_sys(err, rc, "--config-file: cannot read '%s'", file);
        return err->code = -EINVAL;
    }
    c->args.given = text ? hy_calloc(count_lines(text) + line->given_count, sizeof *c->args.given) : NULL;
    if (!c->args.given)
        return hy_err_oom(err);
    c->args.given_count = 0;
    return each_line(c, line, file, text, err);
}

int hy_config_read(const struct hy_args *args, struct hy_config *ret, struct hy_err *err)
{
    const char *file = hy_args_get(args, "config-file");
    struct hy_config c = {.args = *args};
    int rc = 0;

    hy_buf_init(&c.text, FILE_MAX);
    c.args.given = NULL;
    if (file) {
        rc = read_file(args, file, &c, err);
    } else {
        c.args.given = hy_calloc(args->given_count + 1, sizeof *c.args.given);
        c.args.given_count = 0;
        rc = c.args.given ? 0 : hy_err_oom(err);
    }
    if (rc < 0) {
        hy_config_done(&c);
        return rc;
    }
    for (size_t i = 0; i < args->given_count; i++)
        c.args.given[c.args.given_count++] = args->given[i];
    *ret = c;
    return 0;
}

void hy_config_done(struct hy_config *c)
{
    free(c->args.given);
    hy_buf_done(&c->text);
    *c = (struct hy_config){0};
}
