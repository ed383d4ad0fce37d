/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search space, and its syntax:
 *
 *     NAME=VALUE,VALUE,…         a list
 *     NAME=[JSON,JSON,…]         a list of any JSON values
 *     NAME=[log:]LOW..HIGH       a range; two integers make an integer dimension
 */
#include "search/search.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "search/json_choices.h"
#include "search/scale.h"
#include "search/shown.h"

static int no_memory(struct hy_err *err)
{
    return hy_err_set(err, -ENOMEM, "out of memory for the search space");
}

/* ---- dimensions --------------------------------------------------------- */

static void free_texts(char **texts, size_t count)
{
    for (size_t i = 0; texts && i < count; i++)
        free(texts[i]);
    free(texts);
}

static void dim_done(struct hy_dim *dim)
{
    free(dim->name);
    free_texts(dim->choices, dim->choice_count);
    free_texts(dim->json, dim->choice_count);
}

void hy_space_done(struct hy_space *s)
{
    for (size_t i = 0; i < s->count; i++)
        dim_done(&s->dims[i]);
    free(s->dims);
    *s = (struct hy_space){0};
}

/* A name goes into {name}, into NAME=VALUE and into file names. */
static int check_name(const struct hy_space *s, const char *name, struct hy_err *err)
{
    size_t n = strlen(name);

    if (n == 0)
        return hy_err_set(err, -EINVAL, "a dimension has no name; write it as NAME=VALUES");
    for (size_t i = 0, len; i < n; i += len) {
        len = hy_utf8_len(name + i, n - i);
        if (len == 0 || (len == 1 && (iscntrl((unsigned char)name[i]) || strchr("={}", name[i]))))
            return hy_err_set(err, -EINVAL,
                              "the name '%s' cannot be used: '=', braces, control characters and "
                              "bytes that are not UTF-8 are not allowed in names",
                              hy_show(name).text);
    }
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->dims[i].name, name) == 0)
            return hy_err_set(err, -EINVAL, "'%s' is given twice; give each name once", hy_show(name).text);
    return 0;
}

static int check_range(const struct hy_dim *dim, struct hy_err *err)
{
    struct hy_shown name = hy_show(dim->name);

    if (!isfinite(dim->low) || !isfinite(dim->high))
        return hy_err_set(err, -EINVAL, "the bounds of '%s' must be finite numbers", name.text);
    if (dim->log && (dim->low <= 0 || dim->high <= 0))
        return hy_err_set(err, -EINVAL, "the bounds of '%s' must be above 0 for a log scale", name.text);
    if (dim->kind != HY_DIM_INT)
        return 0;
    if (dim->low != floor(dim->low) || dim->high != floor(dim->high))
        return hy_err_set(err, -EINVAL, "the bounds of '%s' must be integers", name.text);
    if (fabs(dim->low) > HY_INT_LIMIT || fabs(dim->high) > HY_INT_LIMIT)
        return hy_err_set(err, -EINVAL,
                          "the bounds of '%s' must be within -2^53 and 2^53; for larger ranges write "
                          "them with a decimal point",
                          name.text);
    return 0;
}

static int check_dim(const struct hy_space *s, const struct hy_dim *dim, struct hy_err *err)
{
    int rc = check_name(s, dim->name, err);

    if (rc < 0)
        return rc;
    switch (dim->kind) {
    case HY_DIM_FLOAT:
    case HY_DIM_INT:
        return check_range(dim, err);
    case HY_DIM_CATEGORY:
        if (dim->choice_count == 0)
            return hy_err_set(err, -EINVAL, "'%s' has no values; give at least one", hy_show(dim->name).text);
        return 0;
    }
    return hy_err_set(err, -EINVAL, "'%s' has an invalid kind", hy_show(dim->name).text);
}

/* NULL when out of memory. */
static char **copy_texts(char *const *texts, size_t count)
{
    char **copy = hy_calloc(count, sizeof *copy);

    for (size_t i = 0; copy && i < count; i++) {
        copy[i] = hy_strdup(texts[i]);
        if (!copy[i]) {
            free_texts(copy, i);
            return NULL;
        }
    }
    return copy;
}

static int copy_dim(struct hy_dim *to, const struct hy_dim *from)
{
    *to = (struct hy_dim){.kind = from->kind};
    to->name = hy_strdup(from->name);
    if (!to->name)
        return -ENOMEM;
    if (from->kind != HY_DIM_CATEGORY) {
        to->log = from->log;
        to->low = fmin(from->low, from->high);
        to->high = fmax(from->low, from->high);
        return 0;
    }
    to->choice_count = from->choice_count;
    to->choices = copy_texts(from->choices, from->choice_count);
    to->json = from->json ? copy_texts(from->json, from->choice_count) : NULL;
    return to->choices && (to->json || !from->json) ? 0 : -ENOMEM;
}

int hy_space_add_dim(struct hy_space *s, const struct hy_dim *dim, struct hy_err *err)
{
    struct hy_dim copy;
    int rc = check_dim(s, dim, err);

    if (rc < 0)
        return rc;
    if (copy_dim(&copy, dim) < 0 || hy_array_grow(s->dims, s->count) < 0) {
        dim_done(&copy);
        return no_memory(err);
    }
    s->dims[s->count++] = copy;
    return 0;
}

/* ---- the syntax --------------------------------------------------------- */

static bool is_integer(const char *text)
{
    if (*text == '-' || *text == '+')
        text++;
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static int parse_bound(const char *name, const char *text, double *ret, struct hy_err *err)
{
    int rc = hy_parse_double(text, ret);

    if (*text == '\0')
        return hy_err_set(err, -EINVAL, "a bound of '%s' is missing; write %s=LOW..HIGH", hy_show(name).text,
                          hy_show(name).text);
    if (rc == -ERANGE)
        return hy_err_set(err, -EINVAL, "the bound '%s' of '%s' is too large", hy_show(text).text, hy_show(name).text);
    if (rc < 0 || !isfinite(*ret))
        return hy_err_set(err, -EINVAL, "'%s' is not a finite number; '%s' needs LOW..HIGH, or values with commas",
                          hy_show(text).text, hy_show(name).text);
    return 0;
}

/* `range` is LOW..HIGH and is modified. */
static int add_range(struct hy_space *s, char *name, char *range, bool log, struct hy_err *err)
{
    struct hy_dim dim = {.name = name, .log = log};
    char *dots = strstr(range, ".."), *high;
    int rc;

    if (!dots)
        return hy_err_set(err, -EINVAL, "'%s' needs two bounds after log:, as in %s=log:1e-5..1e-1", hy_show(name).text,
                          hy_show(name).text);
    high = dots + 2;
    *dots = '\0';
    rc = parse_bound(name, range, &dim.low, err);
    if (rc < 0)
        return rc;
    rc = parse_bound(name, high, &dim.high, err);
    if (rc < 0)
        return rc;
    dim.kind = is_integer(range) && is_integer(high) ? HY_DIM_INT : HY_DIM_FLOAT;
    return hy_space_add_dim(s, &dim, err);
}

/* `list` is VALUE,VALUE,… and is modified. */
static int add_list(struct hy_space *s, char *name, char *list, struct hy_err *err)
{
    struct hy_dim dim = {.name = name, .kind = HY_DIM_CATEGORY};
    hy_cleanup_free char **choices = NULL;
    size_t count = 1;

    if (*list == '\0')
        return hy_err_set(err, -EINVAL, "'%s' has no values; give at least one: %s=VALUE,VALUE", hy_show(name).text,
                          hy_show(name).text);
    for (const char *p = list; (p = strchr(p, ',')); p++)
        count++;
    choices = hy_calloc(count, sizeof *choices);
    if (!choices)
        return no_memory(err);
    for (size_t i = 0; i < count; i++) {
        choices[i] = strsep(&list, ",");
        if (choices[i][0] == '\0')
            return hy_err_set(err, -EINVAL, "a value of '%s' is empty; check for an extra comma", hy_show(name).text);
    }
    dim.choices = choices;
    dim.choice_count = count;
    return hy_space_add_dim(s, &dim, err);
}

static bool is_json(const char *text)
{
    return text[0] == '[' && text[strlen(text) - 1] == ']';
}

static int bad_json(const char *name, const char *list, const struct hy_choices *c, struct hy_err *err)
{
    size_t at = (size_t)(c->at - list) + 1;

    if (*c->at == '\0')
        return hy_err_set(err, -EINVAL, "'%s' is not a valid JSON list: at its end %s", hy_show(name).text, c->fault);
    return hy_err_set(err, -EINVAL, "'%s' is not a valid JSON list: at byte %zu, before '%s', %s", hy_show(name).text,
                      at, hy_show(c->at).text, c->fault);
}

static int add_json(struct hy_space *s, char *name, const char *list, struct hy_err *err)
{
    struct hy_dim dim = {.name = name, .kind = HY_DIM_CATEGORY};
    struct hy_choices c = {0};
    int rc = hy_choices_parse(&c, list);

    dim.choices = c.texts;
    dim.json = c.json;
    dim.choice_count = c.count;
    if (rc == 0)
        rc = hy_space_add_dim(s, &dim, err);
    else
        rc = rc == -EINVAL ? bad_json(name, list, &c, err) : no_memory(err);
    hy_choices_done(&c);
    return rc;
}

/* Splits a copy of the text into *ret_name and what follows the '='. */
static int split(const char *text, char **ret_name, char **ret_rest, struct hy_err *err)
{
    const char *equals = strchr(text, '=');
    char *name;

    if (!equals)
        return hy_err_set(err, -EINVAL, "'%s' has no values; write NAME=VALUE,VALUE or NAME=LOW..HIGH",
                          hy_show(text).text);
    name = hy_strdup(text);
    if (!name)
        return no_memory(err);
    name[equals - text] = '\0';
    *ret_name = name;
    *ret_rest = name + (equals - text) + 1;
    return 0;
}

int hy_space_add(struct hy_space *s, const char *text, struct hy_err *err)
{
    hy_cleanup_free char *name = NULL;
    char *rest = NULL;
    int rc = split(text, &name, &rest, err);

    if (rc < 0)
        return rc;
    if (is_json(rest))
        return add_json(s, name, rest, err);
    if (strncmp(rest, "log:", 4) == 0)
        return add_range(s, name, rest + 4, true, err);
    if (strstr(rest, "..") && !strchr(rest, ','))
        return add_range(s, name, rest, false, err);
    return add_list(s, name, rest, err);
}

static bool is_integer_range(const char *text)
{
    const char *dots = strstr(text, "..");

    if (text[0] == '-' || text[0] == '+')
        text++;
    return dots > text && strspn(text, "0123456789") == (size_t)(dots - text) && is_integer(dots + 2);
}

/* Two numbers with ".." between them are a range, not a text. */
static bool is_number_range(char *text)
{
    char *dots = strstr(text, "..");
    bool numbers;
    double ignored;

    if (!dots)
        return false;
    *dots = '\0';
    numbers = hy_parse_double(text, &ignored) != -EINVAL && hy_parse_double(dots + 2, &ignored) != -EINVAL;
    *dots = '.';
    return numbers;
}

int hy_space_add_grid(struct hy_space *s, const char *text, struct hy_err *err)
{
    hy_cleanup_free char *name = NULL;
    char *rest = NULL;
    int rc = split(text, &name, &rest, err);

    if (rc < 0)
        return rc;
    if (is_json(rest))
        return add_json(s, name, rest, err);
    if (is_integer_range(rest))
        return add_range(s, name, rest, false, err);
    if (is_number_range(strncmp(rest, "log:", 4) == 0 ? rest + 4 : rest))
        return hy_err_set(err, -EINVAL,
                          "'%s' is a range; a grid takes values (%s=0.1,0.01) or a range of integers (%s=1..4)",
                          hy_show(name).text, hy_show(name).text, hy_show(name).text);
    return add_list(s, name, rest, err);
}

/* ---- values ------------------------------------------------------------- */

static const char *choice_of(const struct hy_dim *dim, char *const *texts, struct hy_value v)
{
    return v.number >= 0 && v.number < (double)dim->choice_count ? texts[(size_t)v.number] : "";
}

const char *hy_value_text(const struct hy_dim *dim, struct hy_value v, char *out, size_t size)
{
    const char *choice;

    switch (dim->kind) {
    case HY_DIM_FLOAT:
        return hy_format_double(v.number, out, size);
    case HY_DIM_INT:
        snprintf(out, size, "%.0f", v.number);
        return out;
    case HY_DIM_CATEGORY:
        break;
    }
    choice = choice_of(dim, dim->choices, v);
    snprintf(out, size, "%s", choice);
    return choice;
}

const char *hy_value_json(const struct hy_dim *dim, struct hy_value v)
{
    return dim->json ? choice_of(dim, dim->json, v) : NULL;
}
