/* SPDX-License-Identifier: Apache-2.0 */
#include "search/trial_columns.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

#define SAMPLE_SEED 1

void hy_trial_columns_init(struct hy_trial_columns *c)
{
    *c = (struct hy_trial_columns){0};
    hy_rng_seed(&c->rng, SAMPLE_SEED, 0);
}

static void free_texts(char **texts, size_t n)
{
    for (size_t i = 0; texts && i < n; i++)
        free(texts[i]);
    free(texts);
}

void hy_trial_columns_done(struct hy_trial_columns *c)
{
    for (size_t i = 0; i < c->count; i++) {
        struct hy_param_column *p = &c->params[i];

        free_texts(p->texts, HY_TRIALS_KEPT);
        free_texts(p->choices, p->choice_count);
        free(p->values);
        free(p->name);
    }
    free(c->params);
    free(c->metric);
    *c = (struct hy_trial_columns){0};
}

/* ---- adding ------------------------------------------------------------------------------------ */

static void clear_row(struct hy_trial_columns *c)
{
    for (size_t i = 0; i < c->count; i++) {
        c->params[i].values[c->row] = NAN;
        if (c->params[i].texts)
            free(hy_take(c->params[i].texts[c->row]));
    }
}

int hy_trial_columns_add(struct hy_trial_columns *c, double value)
{
    uint64_t row;

    if (!isfinite(value))
        return 0;
    if (!c->metric && !(c->metric = hy_calloc(HY_TRIALS_KEPT, sizeof *c->metric)))
        return -ENOMEM;
    c->seen++;
    row = c->rows < HY_TRIALS_KEPT ? c->rows++ : hy_rng_below(&c->rng, c->seen); /* reservoir sampling */
    if (row >= HY_TRIALS_KEPT)
        return 0;
    c->row = (size_t)row;
    c->metric[row] = value;
    clear_row(c);
    return 1;
}

static int add_column(struct hy_trial_columns *c, const char *name, struct hy_param_column **ret)
{
    struct hy_param_column p = {0};

    if (c->count == HY_TRIAL_COLUMNS_MAX)
        return -E2BIG;
    if (hy_array_grow(c->params, c->count) < 0)
        return -ENOMEM;
    p.name = hy_strdup(name);
    p.values = hy_calloc(HY_TRIALS_KEPT, sizeof *p.values);
    if (!p.name || !p.values) {
        free(p.name);
        free(p.values);
        return -ENOMEM;
    }
    for (size_t i = 0; i < HY_TRIALS_KEPT; i++)
        p.values[i] = NAN;
    c->params[c->count] = p;
    *ret = &c->params[c->count++];
    return 0;
}

static int find_column(struct hy_trial_columns *c, const char *name, struct hy_param_column **ret)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->params[i].name, name) == 0) {
            *ret = &c->params[i];
            return 0;
        }
    return add_column(c, name, ret);
}

int hy_trial_columns_set_number(struct hy_trial_columns *c, const char *name, double value)
{
    struct hy_param_column *p;
    int rc = find_column(c, name, &p);

    if (rc == 0)
        p->values[c->row] = value;
    return rc;
}

int hy_trial_columns_set_text(struct hy_trial_columns *c, const char *name, const char *text)
{
    struct hy_param_column *p;
    char *copy;
    int rc = find_column(c, name, &p);

    if (rc < 0)
        return rc;
    if (!p->texts && !(p->texts = hy_calloc(HY_TRIALS_KEPT, sizeof *p->texts)))
        return -ENOMEM;
    copy = hy_strdup(text);
    if (!copy)
        return -ENOMEM;
    free(p->texts[c->row]);
    p->texts[c->row] = copy;
    return 0;
}

/* ---- categories ---------------------------------------------------------------------------------- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Converts the numbers of a column with texts to texts. */
static int numbers_to_texts(struct hy_param_column *p, size_t rows)
{
    char text[40];

    for (size_t i = 0; i < rows; i++) {
        if (p->texts[i] || isnan(p->values[i]))
            continue;
        p->texts[i] = hy_strdup(hy_format_double(p->values[i], text, sizeof text));
        if (!p->texts[i])
            return -ENOMEM;
    }
    return 0;
}

/* The texts of all rows, sorted, each once. */
static int collect_choices(struct hy_param_column *p, size_t rows)
{
    hy_cleanup_free char **sorted = hy_calloc(rows, sizeof *sorted);
    size_t n = 0;

    p->choices = hy_calloc(rows, sizeof *p->choices);
    if (!sorted || !p->choices)
        return -ENOMEM;
    for (size_t i = 0; i < rows; i++)
        if (p->texts[i])
            sorted[n++] = p->texts[i];
    qsort(sorted, n, sizeof *sorted, compare_texts);
    for (size_t i = 0; i < n; i++) {
        if (i && strcmp(sorted[i], sorted[i - 1]) == 0)
            continue;
        p->choices[p->choice_count] = hy_strdup(sorted[i]);
        if (!p->choices[p->choice_count])
            return -ENOMEM;
        p->choice_count++;
    }
    return 0;
}

static void set_indices(struct hy_param_column *p, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        char **found = p->texts[i]
                           ? bsearch(&p->texts[i], p->choices, p->choice_count, sizeof *p->choices, compare_texts)
                           : NULL;

        p->values[i] = found ? (double)(found - p->choices) : NAN;
    }
}

int hy_trial_columns_finish(struct hy_trial_columns *c)
{
    for (size_t i = 0; i < c->count; i++) {
        struct hy_param_column *p = &c->params[i];

        if (!p->texts)
            continue;
        if (numbers_to_texts(p, c->rows) < 0 || collect_choices(p, c->rows) < 0)
            return -ENOMEM;
        set_indices(p, c->rows);
        free_texts(hy_take(p->texts), HY_TRIALS_KEPT);
    }
    return 0;
}
