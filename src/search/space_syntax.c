/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax of a dimension:
 *
 *     NAME=VALUES [if CONDITION]
 *
 * where VALUES are
 *
 *     VALUE,VALUE,…                                   a list
 *     [JSON,JSON,…]                                   a list of any JSON values
 *     [log:]LOW..HIGH [step STEP]                     a range; integers make an integer dimension
 *     [log]normal(MEAN, DEVIATION) [in LOW..HIGH [step STEP]]
 */
#include "search/search.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "search/expression.h"
#include "search/json_choices.h"
#include "search/shown.h"
#include "search/space.h"

#define IF " if "
#define IN " in "
#define STEP " step "

/* ---- ranges ------------------------------------------------------------- */

static bool is_integer(const char *text)
{
    if (*text == '-' || *text == '+')
        text++;
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static bool is_number(const char *text)
{
    double ignored;

    return hy_parse_double(text, &ignored) != -EINVAL;
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

/* Cuts " step STEP" off the text and parses it. *ret_is_integer: whether it is one, or there is none. */
static int take_step(struct hy_dim *dim, char *text, bool *ret_is_integer, struct hy_err *err)
{
    char *at = strstr(text, STEP);

    *ret_is_integer = true;
    if (!at)
        return 0;
    *at = '\0';
    at += strlen(STEP);
    at += strspn(at, " ");
    *ret_is_integer = is_integer(at);
    if (hy_parse_double(at, &dim->step) < 0 || !isfinite(dim->step) || dim->step == 0)
        return hy_err_set(err, -EINVAL, "the step '%s' of '%s' must be a number above 0", hy_show(at).text,
                          hy_show(dim->name).text);
    return 0;
}

/* `range` is LOW..HIGH, maybe with a step, and is modified. `may_be_open`: a bound that is missing stays. */
static int parse_range(struct hy_dim *dim, char *range, bool may_be_open, struct hy_err *err)
{
    char *dots = strstr(range, ".."), *high;
    bool is_step_integer;
    int rc;

    if (!dots)
        return hy_err_set(err, -EINVAL, "'%s' needs two bounds, as in 1e-5..1e-1, not '%s'", hy_show(dim->name).text,
                          hy_show(range).text);
    high = dots + 2;
    *dots = '\0';
    rc = take_step(dim, high, &is_step_integer, err);
    if (rc == 0 && (*range || !may_be_open))
        rc = parse_bound(dim->name, range, &dim->low, err);
    if (rc == 0 && (*high || !may_be_open))
        rc = parse_bound(dim->name, high, &dim->high, err);
    dim->kind = is_integer(range) && is_integer(high) && is_step_integer ? HY_DIM_INT : HY_DIM_FLOAT;
    return rc;
}

static int add_range(struct hy_space *s, struct hy_dim *dim, char *range, struct hy_err *err)
{
    int rc;

    if (!strstr(range, ".."))
        return hy_err_set(err, -EINVAL, "'%s' needs two bounds after log:, as in %s=log:1e-5..1e-1",
                          hy_show(dim->name).text, hy_show(dim->name).text);
    rc = parse_range(dim, range, false, err);
    return rc < 0 ? rc : hy_space_add_dim(s, dim, err);
}

/* LOW..HIGH, where both are numbers; maybe with log: or a step. The text is as before afterwards. */
static bool is_range(char *text)
{
    char *dots = strstr(text, ".."), *step = dots ? strstr(dots, STEP) : NULL;
    bool are_numbers;

    if (!dots)
        return false;
    *dots = '\0';
    if (step)
        *step = '\0';
    are_numbers = is_number(strncmp(text, "log:", 4) == 0 ? text + 4 : text) && is_number(dots + 2);
    *dots = '.';
    if (step)
        *step = ' ';
    return are_numbers;
}

static bool is_integer_range(const char *text)
{
    const char *dots = strstr(text, "..");

    if (text[0] == '-' || text[0] == '+')
        text++;
    return dots > text && strspn(text, "0123456789") == (size_t)(dots - text) && is_integer(dots + 2);
}

/* ---- distributions ------------------------------------------------------ */

/* Parses a number and the sign after it, with blanks around both; NULL if there is another text. */
static const char *take_number(const char *text, char sign, double *ret)
{
    char *end;

    *ret = strtod(text, &end);
    if (end == text)
        return NULL;
    end += strspn(end, " ");
    return *end == sign ? end + 1 : NULL;
}

/*
 * normal(MEAN, DEVIATION), at the end of the text or before a blank. Fills the dimension
 * and *ret_rest; without bounds. Any other text is a list: "normal(0,0.1),uniform(0,1)".
 */
static bool take_distribution(struct hy_dim *dim, const char *text, const char **ret_rest)
{
    bool log = strncmp(text, "lognormal(", 10) == 0;
    double mean, deviation;

    if (!log && strncmp(text, "normal(", 7) != 0)
        return false;
    text = take_number(strchr(text, '(') + 1, ',', &mean);
    text = text ? take_number(text, ')', &deviation) : NULL;
    if (!text || (*text != '\0' && *text != ' '))
        return false;
    dim->kind = HY_DIM_FLOAT;
    dim->log = log;
    dim->normal = true;
    dim->mean = mean;
    dim->deviation = deviation;
    dim->low = log ? 0 : -INFINITY;
    dim->high = INFINITY;
    *ret_rest = text;
    return true;
}

/* `rest` is what follows the distribution, and is modified. */
static int add_distribution(struct hy_space *s, struct hy_dim *dim, char *rest, struct hy_err *err)
{
    struct hy_dim bounded = *dim;
    int rc;

    if (*rest == '\0')
        return hy_space_add_dim(s, dim, err);
    if (strncmp(rest, IN, strlen(IN)) != 0)
        return hy_err_set(err, -EINVAL,
                          "'%s' is unexpected after the distribution of '%s'; only bounds can follow: "
                          "in LOW..HIGH",
                          hy_show(rest + 1).text, hy_show(dim->name).text);
    rest += strlen(IN);
    rc = parse_range(&bounded, rest + strspn(rest, " "), true, err);
    if (bounded.step == 0) /* integer bounds of a distribution do not make integers of its values */
        bounded.kind = HY_DIM_FLOAT;
    return rc < 0 ? rc : hy_space_add_dim(s, &bounded, err);
}

/* ---- lists -------------------------------------------------------------- */

/* `list` is VALUE,VALUE,… and is modified. */
static int add_list(struct hy_space *s, struct hy_dim *dim, char *list, struct hy_err *err)
{
    hy_cleanup_free char **choices = NULL;
    size_t count = 1;

    if (*list == '\0')
        return hy_err_set(err, -EINVAL, "'%s' has no values; give at least one: %s=VALUE,VALUE",
                          hy_show(dim->name).text, hy_show(dim->name).text);
    for (const char *p = list; (p = strchr(p, ',')); p++)
        count++;
    choices = hy_calloc(count, sizeof *choices);
    if (!choices)
        return hy_space_no_memory(err);
    for (size_t i = 0; i < count; i++) {
        choices[i] = strsep(&list, ",");
        if (choices[i][0] == '\0')
            return hy_err_set(err, -EINVAL, "a value of '%s' is empty; check for an extra comma",
                              hy_show(dim->name).text);
    }
    dim->kind = HY_DIM_CATEGORY;
    dim->choices = choices;
    dim->choice_count = count;
    return hy_space_add_dim(s, dim, err);
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

static int add_json(struct hy_space *s, struct hy_dim *dim, const char *list, struct hy_err *err)
{
    struct hy_choices c = {0};
    int rc = hy_choices_parse(&c, list);

    dim->kind = HY_DIM_CATEGORY;
    dim->choices = c.texts;
    dim->json = c.json;
    dim->choice_count = c.count;
    if (rc == 0)
        rc = hy_space_add_dim(s, dim, err);
    else
        rc = rc == -EINVAL ? bad_json(dim->name, list, &c, err) : hy_space_no_memory(err);
    hy_choices_done(&c);
    return rc;
}

/* ---- conditions --------------------------------------------------------- */

/* The end of the JSON array that the text begins with, by its brackets and strings; NULL if it has none. */
static char *json_end(char *text)
{
    size_t depth = 0;

    for (; *text; text++) {
        depth += *text == '[';
        if (*text == ']' && --depth == 0)
            return text + 1;
        if (*text != '"')
            continue;
        for (text++; *text && *text != '"'; text++)
            text += *text == '\\' && text[1];
        if (!*text)
            return NULL;
    }
    return NULL;
}

/* The " if " that follows values which are no list; NULL: there is none. The text is as before afterwards. */
static char *find_certain_if(char *values)
{
    struct hy_dim ignored;
    const char *rest;
    char *at = values[0] == '[' ? json_end(values) : strstr(values, IF);
    bool is_certain;

    if (!at)
        return NULL;
    if (values[0] == '[') {
        at += strspn(at, " ") > 0 ? strspn(at, " ") - 1 : 0;
        return strncmp(at, IF, strlen(IF)) == 0 ? at : NULL;
    }
    *at = '\0';
    is_certain = is_range(values) || take_distribution(&ignored, values, &rest);
    *at = ' ';
    return is_certain ? at : NULL;
}

/*
 * The " if " in a list before an expression over the dimensions of the space. 1: *ret is
 * it; 2: the expression is wrong, but meant as one; 0: there is none; -ENOMEM.
 */
static int find_if_in_list(const struct hy_space *s, const char *list, const char **ret)
{
    size_t n = strlen(list);

    list += n > HY_EXPRESSION_MAX ? n - HY_EXPRESSION_MAX : 0;
    for (const char *at = list; (at = strstr(at, IF)); at++) {
        struct hy_expression *e = NULL;
        int rc = hy_expression_new(s, at + strlen(IF), &e, NULL);

        hy_expression_free(e);
        if (rc == -EINVAL || rc == -ENOENT)
            continue;
        *ret = at;
        return rc == -EDOM ? 2 : rc == 0 ? 1 : rc;
    }
    return 0;
}

/* Cuts " if CONDITION" off the values, and the blanks before it. */
static int take_condition(const struct hy_space *s, char *values, char **ret, struct hy_err *err)
{
    const char *in_list = NULL;
    char *at = find_certain_if(values);
    int rc = at || is_json(values) ? 0 : find_if_in_list(s, values, &in_list);

    if (rc < 0)
        return hy_space_no_memory(err);
    if (rc > 0) /* hy_space_add_dim reports a wrong one */
        at = values + (in_list - values);
    if (!at)
        return 0;
    *ret = at + strlen(IF);
    while (at > values && at[-1] == ' ')
        at--;
    *at = '\0';
    return 0;
}

/* The end of a list as it was written, as far as it can contain a condition. */
static int write_end(const struct hy_dim *dim, struct hy_buf *b)
{
    size_t from = dim->choice_count, n = 0;
    int rc = 0;

    while (from > 0 && n <= HY_EXPRESSION_MAX)
        n += strlen(dim->choices[--from]) + 1;
    for (size_t i = from; i < dim->choice_count && rc == 0; i++) {
        rc = i > from ? hy_buf_append_str(b, ",") : 0;
        if (rc == 0)
            rc = hy_buf_append_str(b, dim->choices[i]);
    }
    return rc;
}

/* 1: a list has become one with a condition by the dimension that was added last. */
static int has_late_condition(const struct hy_space *s, const struct hy_dim *dim)
{
    hy_cleanup_buf struct hy_buf b;
    const char *at;

    hy_buf_init(&b, SIZE_MAX / 2);
    if (dim->kind != HY_DIM_CATEGORY || dim->json || dim->condition)
        return 0;
    if (write_end(dim, &b) < 0 || !hy_buf_cstr(&b))
        return -ENOMEM;
    return find_if_in_list(s, hy_buf_cstr(&b), &at);
}

static int check_earlier_lists(struct hy_space *s, struct hy_err *err)
{
    for (size_t i = 0; i + 1 < s->count; i++) {
        int rc = has_late_condition(s, &s->dims[i]);

        if (rc < 0)
            return hy_space_no_memory(err);
        if (rc == 1)
            return hy_err_set(err, -EINVAL, "the condition of '%s' needs '%s', which must be declared before it",
                              hy_show(s->dims[i].name).text, hy_show(s->dims[s->count - 1].name).text);
    }
    return 0;
}

/* ---- dimensions --------------------------------------------------------- */

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
        return hy_space_no_memory(err);
    name[equals - text] = '\0';
    *ret_name = name;
    *ret_rest = name + (equals - text) + 1;
    return 0;
}

static int add_values(struct hy_space *s, struct hy_dim *dim, char *values, struct hy_err *err)
{
    const char *rest;

    if (is_json(values))
        return add_json(s, dim, values, err);
    if (take_distribution(dim, values, &rest))
        return add_distribution(s, dim, values + (rest - values), err);
    dim->log = strncmp(values, "log:", 4) == 0;
    if (dim->log || (strstr(values, "..") && !strchr(values, ',')))
        return add_range(s, dim, values + (dim->log ? 4 : 0), err);
    return add_list(s, dim, values, err);
}

static int add_grid_values(struct hy_space *s, struct hy_dim *dim, char *values, struct hy_err *err)
{
    struct hy_shown name = hy_show(dim->name);
    struct hy_dim ignored;
    const char *rest;

    if (is_json(values))
        return add_json(s, dim, values, err);
    if (is_integer_range(values))
        return add_range(s, dim, values, err);
    if (take_distribution(&ignored, values, &rest))
        return hy_err_set(err, -EINVAL, "'%s' is a distribution; a grid takes values (%s=0.1,0.01)", name.text,
                          name.text);
    if (!is_range(values))
        return add_list(s, dim, values, err);
    if (strstr(values, STEP) && strncmp(values, "log:", 4) != 0)
        return add_range(s, dim, values, err);
    return hy_err_set(err, -EINVAL,
                      "'%s' is a range; a grid takes values (%s=0.1,0.01), a range of integers (%s=1..4) or a range "
                      "with a step (%s=0..0.5 step 0.1)",
                      name.text, name.text, name.text, name.text);
}

/* `add` adds what is before the condition. */
static int add_text(struct hy_space *s, const char *text,
                    int (*add)(struct hy_space *, struct hy_dim *, char *, struct hy_err *), struct hy_err *err)
{
    hy_cleanup_free char *name = NULL;
    struct hy_dim dim = {0};
    char *values = NULL;
    int rc = split(text, &name, &values, err);

    dim.name = name;
    if (rc == 0)
        rc = take_condition(s, values, &dim.condition, err);
    if (rc == 0)
        rc = add(s, &dim, values, err);
    if (rc < 0)
        return rc;
    rc = check_earlier_lists(s, err);
    if (rc < 0)
        hy_space_remove_last(s);
    return rc;
}

int hy_space_add(struct hy_space *s, const char *text, struct hy_err *err)
{
    return add_text(s, text, add_values, err);
}

int hy_space_add_grid(struct hy_space *s, const char *text, struct hy_err *err)
{
    return add_text(s, text, add_grid_values, err);
}
