/* SPDX-License-Identifier: Apache-2.0 */
/* The search space: its dimensions, conditions and constraints, and values. */
#include "search/search.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "search/discrete.h"
#include "search/expression.h"
#include "search/portable_math.h"
#include "search/scale.h"
#include "search/shown.h"
#include "search/space.h"

/* A random number is less than this many standard deviations from the mean (hy_normal_quantile(2^-53) is -8.2). */
#define DEVIATIONS_MAX 9
#define LOG_MAX 700 /* exp of it is a double */
/* Steps that are smaller than this part of the numbers could be lost to rounding. */
#define STEP_MIN 1e-10

int hy_space_no_memory(struct hy_err *err)
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
    free(dim->condition);
    hy_expression_free(dim->active);
}

void hy_space_done(struct hy_space *s)
{
    for (size_t i = 0; i < s->count; i++)
        dim_done(&s->dims[i]);
    for (size_t i = 0; i < s->constraint_count; i++)
        hy_expression_free(s->constraints[i]);
    free(s->dims);
    free(s->constraints);
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

static int check_steps(const struct hy_dim *dim, struct hy_err *err)
{
    struct hy_shown name = hy_show(dim->name);

    if (!(dim->step > 0))
        return hy_err_set(err, -EINVAL, "the step of '%s' must be above 0", name.text);
    if (dim->log)
        return hy_err_set(err, -EINVAL, "'%s' has a log scale, which has no steps; leave out the step or the log scale",
                          name.text);
    if (!isfinite(dim->low) || !isfinite(dim->high))
        return hy_err_set(err, -EINVAL, "the steps of '%s' need two bounds, as in %s=normal(10, 3) in 1..20 step 1",
                          name.text, name.text);
    if (dim->step / 2 > fabs(dim->high / 2 - dim->low / 2))
        return hy_err_set(err, -EINVAL, "the step of '%s' is larger than its range", name.text);
    if (dim->kind == HY_DIM_INT && dim->step != floor(dim->step))
        return hy_err_set(err, -EINVAL, "the step of '%s' must be an integer, as its bounds are", name.text);
    if (dim->kind == HY_DIM_FLOAT && dim->step < STEP_MIN * fmax(fabs(dim->low), fabs(dim->high)))
        return hy_err_set(err, -EINVAL, "the step of '%s' is too small; leave it out", name.text);
    return 0;
}

static int check_normal(const struct hy_dim *dim, struct hy_err *err)
{
    double far = fabs(dim->mean) + DEVIATIONS_MAX * dim->deviation;
    struct hy_dim sorted = {.log = dim->log,
                            .low = fmin(dim->low, dim->high),
                            .high = fmax(dim->low, dim->high),
                            .step = dim->step,
                            .mean = dim->mean,
                            .deviation = dim->deviation};
    struct hy_shown name = hy_show(dim->name);

    if (!isfinite(dim->mean) || !isfinite(dim->deviation) || dim->deviation <= 0)
        return hy_err_set(err, -EINVAL,
                          "the distribution of '%s' needs a finite mean, and a standard deviation above 0", name.text);
    if (dim->log ? far > LOG_MAX : !isfinite(far))
        return hy_err_set(err, -EINVAL, "the values of '%s' would be too large%s", name.text,
                          dim->log ? ": mean and deviation are those of the natural logarithm" : "");
    if (isnan(dim->low) || isnan(dim->high) || (dim->log && (dim->low < 0 || dim->high < 0)))
        return hy_err_set(err, -EINVAL, "the bounds of '%s' must be %s", name.text,
                          dim->log ? "above 0, as its values are" : "numbers");
    if (dim->kind == HY_DIM_INT && !(dim->step > 0))
        return hy_err_set(err, -EINVAL, "'%s' needs a step to be a normally distributed integer", name.text);
    if ((dim->low != dim->high || !isfinite(dim->low)) && !(hy_normal_share(&sorted) > 0))
        return hy_err_set(err, -EINVAL, "the bounds of '%s' are too far from its mean", name.text);
    return 0;
}

static int check_bounds(const struct hy_dim *dim, struct hy_err *err)
{
    struct hy_shown name = hy_show(dim->name);

    if (!isfinite(dim->low) || !isfinite(dim->high))
        return hy_err_set(err, -EINVAL, "the bounds of '%s' must be finite numbers", name.text);
    if (dim->log && (dim->low <= 0 || dim->high <= 0))
        return hy_err_set(err, -EINVAL, "the bounds of '%s' must be above 0 for a log scale", name.text);
    return 0;
}

static int check_integers(const struct hy_dim *dim, struct hy_err *err)
{
    struct hy_shown name = hy_show(dim->name);

    if (dim->low != floor(dim->low) || dim->high != floor(dim->high))
        return hy_err_set(err, -EINVAL, "the bounds of '%s' must be integers", name.text);
    if (fabs(dim->low) > HY_INT_LIMIT || fabs(dim->high) > HY_INT_LIMIT)
        return hy_err_set(err, -EINVAL,
                          "the bounds of '%s' must be within -2^53 and 2^53; for larger ranges write "
                          "them with a decimal point",
                          name.text);
    return 0;
}

static int check_range(const struct hy_dim *dim, struct hy_err *err)
{
    int rc = dim->normal ? check_normal(dim, err) : check_bounds(dim, err);

    if (rc == 0 && dim->step != 0)
        rc = check_steps(dim, err);
    return rc == 0 && dim->kind == HY_DIM_INT ? check_integers(dim, err) : rc;
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

static void copy_range(struct hy_dim *to, const struct hy_dim *from)
{
    to->log = from->log;
    to->normal = from->normal;
    to->low = fmin(from->low, from->high);
    to->high = fmax(from->low, from->high);
    to->step = from->step;
    to->mean = from->mean;
    to->deviation = from->deviation;
    if (to->step > 0)
        to->high = hy_discrete_last(to);
}

static int copy_dim(struct hy_dim *to, const struct hy_dim *from)
{
    *to = (struct hy_dim){.kind = from->kind};
    to->name = hy_strdup(from->name);
    to->condition = from->condition ? hy_strdup(from->condition) : NULL;
    if (!to->name || (from->condition && !to->condition))
        return -ENOMEM;
    if (from->kind != HY_DIM_CATEGORY) {
        copy_range(to, from);
        return 0;
    }
    to->choice_count = from->choice_count;
    to->choices = copy_texts(from->choices, from->choice_count);
    to->json = from->json ? copy_texts(from->json, from->choice_count) : NULL;
    return to->choices && (to->json || !from->json) ? 0 : -ENOMEM;
}

/* -ENOENT and -EDOM tell why an expression is invalid; here it just is. */
static int expression_error(int rc, struct hy_err *err, const char *what)
{
    if (rc == -ENOMEM)
        return hy_space_no_memory(err);
    hy_err_wrap(err, "%s", what);
    if (err)
        err->code = -EINVAL;
    return -EINVAL;
}

static int parse_condition(const struct hy_space *s, struct hy_dim *dim, struct hy_err *err)
{
    int rc = dim->condition ? hy_expression_new(s, dim->condition, &dim->active, err) : 0;
    char what[HY_SHOWN_MAX + 40];

    if (rc == 0)
        return 0;
    snprintf(what, sizeof what, "the condition of '%s'", hy_show(dim->name).text);
    return expression_error(rc, err, what);
}

int hy_space_add_dim(struct hy_space *s, const struct hy_dim *dim, struct hy_err *err)
{
    struct hy_dim copy;
    int rc = check_dim(s, dim, err);

    if (rc < 0)
        return rc;
    rc = copy_dim(&copy, dim) < 0 || hy_array_grow(s->dims, s->count) < 0 ? hy_space_no_memory(err) : 0;
    if (rc == 0)
        rc = parse_condition(s, &copy, err);
    if (rc < 0)
        dim_done(&copy);
    else
        s->dims[s->count++] = copy;
    return rc;
}

void hy_space_remove_last(struct hy_space *s)
{
    dim_done(&s->dims[--s->count]);
}

/* ---- constraints -------------------------------------------------------- */

int hy_space_add_constraint(struct hy_space *s, const char *text, struct hy_err *err)
{
    int rc;

    if (hy_array_grow(s->constraints, s->constraint_count) < 0)
        return hy_space_no_memory(err);
    rc = hy_expression_new(s, text, &s->constraints[s->constraint_count], err);
    if (rc < 0)
        return expression_error(rc, err, "a constraint");
    s->constraint_count++;
    return 0;
}

bool hy_space_allows(const struct hy_space *s, const struct hy_value *values)
{
    for (size_t i = 0; i < s->constraint_count; i++)
        if (hy_expression_test(s->constraints[i], s, values) == HY_FALSE)
            return false;
    return true;
}

/* Expressions are parsed again: they are short, and what was valid for the same dimensions is valid again. */
int hy_space_copy(struct hy_space *to, const struct hy_space *from, struct hy_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < from->count && rc == 0; i++)
        rc = hy_space_add_dim(to, &from->dims[i], err);
    for (size_t i = 0; i < from->constraint_count && rc == 0; i++)
        rc = hy_space_add_constraint(to, hy_expression_text(from->constraints[i]), err);
    return rc;
}

/* ---- values ------------------------------------------------------------- */

static const char *choice_of(const struct hy_dim *dim, char *const *texts, struct hy_value v)
{
    return v.number >= 0 && v.number < (double)dim->choice_count ? texts[(size_t)v.number] : "";
}

const char *hy_value_text(const struct hy_dim *dim, struct hy_value v, char *out, size_t size)
{
    const char *choice;

    if (isnan(v.number)) {
        snprintf(out, size, "%s", "");
        return out;
    }
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
    return dim->json && !isnan(v.number) ? choice_of(dim, dim->json, v) : NULL;
}
