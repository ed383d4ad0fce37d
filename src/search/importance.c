/* SPDX-License-Identifier: Apache-2.0 */
#include "search/importance.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "search/regression_forest.h"

#define SEED 1
#define PAIRED_MAX 16    /* columns whose pairs are decomposed: those with the most gain in the forest */
#define POINTS_MIN 4096 /* at which the variance of higher order is estimated */
#define EDGE (HY_BINS + 1)

/* The part of the forest that depends on two columns, as differences: prefix sums in both directions give its values.
 * A leaf then costs four additions and not one for each of its cells. */
struct pair_effect {
    size_t first, second; /* columns */
    double cells[EDGE][EDGE];
};

struct decomposition {
    const struct hy_binned *data;
    struct hy_forest forest;
    double (*effects)[HY_BINS]; /* of each column alone, in each of its bins */
    double *variances;          /* of these */
    double mean, total;         /* of the forest: its mean and its variance */
    struct pair_effect *pairs;
    size_t pair_count;
};

/* The region of the current node of a walk through a tree. */
struct region {
    uint64_t *bins;      /* of each column */
    uint32_t *bounded;   /* the columns that have been split, each once */
    size_t bounded_count;
    double mass;         /* the share of the space */
};

struct walk {
    struct decomposition *d;
    const struct hy_tree *tree;
    struct region region;
    void (*leaf)(struct decomposition *d, const struct region *r, double value);
};

/* ---- regions of leaves ------------------------------------------------------------------------------ */

static void walk_node(struct walk *w, uint32_t index);

static void walk_side(struct walk *w, uint32_t column, uint64_t bins, uint32_t child)
{
    const struct hy_binned_column *c = &w->d->data->columns[column];
    uint64_t before = w->region.bins[column];
    double mass = w->region.mass;

    w->region.bins[column] = before & bins;
    w->region.mass *= hy_bins_mass(c, before & bins) / hy_bins_mass(c, before);
    walk_node(w, child);
    w->region.bins[column] = before;
    w->region.mass = mass;
}

static void walk_node(struct walk *w, uint32_t index)
{
    const struct hy_tree_node *node = &w->tree->nodes[index];
    struct region *r = &w->region;
    size_t count = r->bounded_count;

    if (!node->left) {
        w->leaf(w->d, r, node->value);
        return;
    }
    if (r->bins[node->column] == hy_bins_all(&w->d->data->columns[node->column]))
        r->bounded[r->bounded_count++] = node->column;
    walk_side(w, node->column, node->left_bins, node->left);
    walk_side(w, node->column, ~node->left_bins, node->right);
    r->bounded_count = count;
}

static int walk_forest(struct decomposition *d, void (*leaf)(struct decomposition *, const struct region *, double))
{
    hy_cleanup_free uint64_t *bins = hy_calloc(d->data->count, sizeof *bins);
    hy_cleanup_free uint32_t *bounded = hy_calloc(d->data->count, sizeof *bounded);

    if (!bins || !bounded)
        return -ENOMEM;
    for (size_t i = 0; i < d->data->count; i++)
        bins[i] = hy_bins_all(&d->data->columns[i]);
    for (size_t t = 0; t < HY_FOREST_TREES; t++) {
        struct walk w = {d, &d->forest.trees[t], {bins, bounded, 0, 1}, leaf};

        walk_node(&w, 0);
    }
    return 0;
}

/* ---- single hyperparameters ----------------------------------------------------------------------------- */

/* Leaves that do not bound a column add the same to all of its bins, which centering removes again. */
static void add_single(struct decomposition *d, const struct region *r, double value)
{
    double part = value * r->mass;

    d->mean += part;
    for (size_t i = 0; i < r->bounded_count; i++) {
        size_t column = r->bounded[i];
        uint64_t bins = r->bins[column];
        double height = part / hy_bins_mass(&d->data->columns[column], bins);

        for (; bins; bins &= bins - 1)
            d->effects[column][__builtin_ctzll(bins)] += height;
    }
}

static int find_singles(struct decomposition *d)
{
    if (walk_forest(d, add_single) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < d->data->count; i++) {
        const struct hy_binned_column *c = &d->data->columns[i];
        double mean = 0;

        for (size_t b = 0; b < c->bin_count; b++)
            mean += c->mass[b] * d->effects[i][b];
        for (size_t b = 0; b < c->bin_count; b++) {
            d->effects[i][b] -= mean;
            d->variances[i] += c->mass[b] * d->effects[i][b] * d->effects[i][b];
        }
    }
    return 0;
}

/* ---- the total variance ----------------------------------------------------------------------------------- */

static void shuffle(uint8_t *bins, size_t rows, struct hy_rng *rng)
{
    for (size_t i = rows; i > 1; i--) {
        size_t other = hy_rng_below(rng, i);
        uint8_t bin = bins[i - 1];

        bins[i - 1] = bins[other];
        bins[other] = bin;
    }
}

/* The mean square of the forest's residual after its mean and single effects, over all rows of `points`. */
static double mean_rest(const struct decomposition *d, const struct hy_binned *points)
{
    double sum = 0;

    for (size_t row = 0; row < points->rows; row++) {
        double rest = hy_forest_predict(&d->forest, points, row) - d->mean;

        for (size_t i = 0; i < points->count; i++)
            rest -= d->effects[i][points->columns[i].bins[row]];
        sum += rest * rest;
    }
    return sum / (double)points->rows;
}

/*
 * Single effects and the rest are orthogonal, so their variances add up. That of the single effects is exact; that of
 * the rest is measured at random points: the trials, with the values of each hyperparameter shuffled.
 */
static int find_total(struct decomposition *d)
{
    size_t rows = d->data->rows, rounds = (POINTS_MIN + rows - 1) / rows;
    hy_cleanup_free struct hy_binned_column *columns = hy_calloc(d->data->count, sizeof *columns);
    hy_cleanup_free uint8_t *bins = hy_calloc(d->data->count, rows);
    struct hy_binned points = {.columns = columns, .count = d->data->count, .rows = rows};
    struct hy_rng rng;
    double rest = 0;

    if (!columns || !bins)
        return -ENOMEM;
    hy_rng_seed(&rng, SEED, HY_FOREST_TREES); /* the trees use the streams before it */
    for (size_t i = 0; i < points.count; i++) {
        columns[i].bins = bins + i * rows;
        memcpy(columns[i].bins, d->data->columns[i].bins, rows);
        d->total += d->variances[i];
    }
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < points.count; i++)
            shuffle(columns[i].bins, rows, &rng);
        rest += mean_rest(d, &points);
    }
    d->total += rest / (double)rounds;
    return 0;
}

/* ---- pairs ---------------------------------------------------------------------------------------------------- */

/* The next run of neighbors in a set of bins, removed from it: from *ret up to the result, exclusive. */
static unsigned take_run(uint64_t *bins, unsigned *ret)
{
    unsigned from = (unsigned)__builtin_ctzll(*bins);
    uint64_t above = *bins >> from;
    unsigned length = above == UINT64_MAX ? HY_BINS : (unsigned)__builtin_ctzll(~above);

    *ret = from;
    *bins &= length + from >= HY_BINS ? 0 : UINT64_MAX << (from + length);
    return from + length;
}

static void add_rectangles(struct pair_effect *p, uint64_t rows, uint64_t columns, double height)
{
    while (rows) {
        unsigned top, bottom = take_run(&rows, &top);

        for (uint64_t rest = columns; rest;) {
            unsigned left, right = take_run(&rest, &left);

            p->cells[top][left] += height;
            p->cells[top][right] -= height;
            p->cells[bottom][left] -= height;
            p->cells[bottom][right] += height;
        }
    }
}

/* Leaves that bound one or none of the two are removed by centering. */
static void add_pairs(struct decomposition *d, const struct region *r, double value)
{
    const struct hy_binned_column *columns = d->data->columns;

    for (size_t i = 0; i < d->pair_count; i++) {
        struct pair_effect *p = &d->pairs[i];
        uint64_t rows = r->bins[p->first], cols = r->bins[p->second];

        if (rows != hy_bins_all(&columns[p->first]) && cols != hy_bins_all(&columns[p->second]))
            add_rectangles(p, rows, cols,
                           value * r->mass /
                               (hy_bins_mass(&columns[p->first], rows) * hy_bins_mass(&columns[p->second], cols)));
    }
}

static void sum_cells(struct pair_effect *p)
{
    for (size_t i = 0; i < EDGE; i++)
        for (size_t j = 1; j < EDGE; j++)
            p->cells[i][j] += p->cells[i][j - 1];
    for (size_t i = 1; i < EDGE; i++)
        for (size_t j = 0; j < EDGE; j++)
            p->cells[i][j] += p->cells[i - 1][j];
}

/* The variance of the cells without the means of rows and columns. */
static double pair_variance(struct pair_effect *p, const struct hy_binned_column *a, const struct hy_binned_column *b)
{
    double variance = 0, mean = 0, column_means[HY_BINS] = {0}, row_means[HY_BINS] = {0};

    sum_cells(p);
    for (size_t i = 0; i < a->bin_count; i++)
        for (size_t j = 0; j < b->bin_count; j++) {
            row_means[i] += b->mass[j] * p->cells[i][j];
            column_means[j] += a->mass[i] * p->cells[i][j];
            mean += a->mass[i] * b->mass[j] * p->cells[i][j];
        }
    for (size_t i = 0; i < a->bin_count; i++)
        for (size_t j = 0; j < b->bin_count; j++) {
            double rest = p->cells[i][j] - row_means[i] - column_means[j] + mean;

            variance += a->mass[i] * b->mass[j] * rest * rest;
        }
    return variance;
}

/* The columns with the most gain; returns how many. */
static size_t select_columns(const struct decomposition *d, size_t ret[PAIRED_MAX])
{
    size_t n = 0;

    for (size_t i = 0; i < d->data->count; i++) {
        size_t at = n;

        for (; at && d->forest.gains[ret[at - 1]] < d->forest.gains[i]; at--)
            if (at < PAIRED_MAX)
                ret[at] = ret[at - 1];
        if (at < PAIRED_MAX)
            ret[at] = i;
        n += n < PAIRED_MAX;
    }
    return n;
}

static int find_pairs(struct decomposition *d)
{
    size_t columns[PAIRED_MAX], n = select_columns(d, columns);

    d->pairs = hy_calloc(n * (n - 1) / 2 + 1, sizeof *d->pairs);
    if (!d->pairs)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) {
            d->pairs[d->pair_count].first = columns[i];
            d->pairs[d->pair_count++].second = columns[j];
        }
    return d->pair_count ? walk_forest(d, add_pairs) : 0;
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

static int compare_shares(const void *a, const void *b)
{
    const struct hy_param_share *x = a, *y = b;

    if (x->share != y->share)
        return x->share > y->share ? -1 : 1;
    return (x->param > y->param) - (x->param < y->param);
}

static int set_shares(struct hy_importance *m, const struct decomposition *d, size_t count)
{
    m->params = hy_calloc(count, sizeof *m->params);
    if (!m->params)
        return -ENOMEM;
    m->count = count;
    for (size_t i = 0; i < count; i++)
        m->params[i].param = i;
    for (size_t i = 0; i < d->data->count; i++)
        m->params[d->data->columns[i].param].share = d->variances[i] / d->total;
    qsort(m->params, count, sizeof *m->params, compare_shares);
    return 0;
}

static size_t rank_of(const struct hy_importance *m, size_t param)
{
    size_t rank = 0;

    while (m->params[rank].param != param)
        rank++;
    return rank;
}

/* Keeps the list of pairs sorted, and drops the smallest ones. */
static void add_pair(struct hy_importance *m, size_t a, size_t b, double share)
{
    size_t at = m->pair_count;
    bool in_order = rank_of(m, a) < rank_of(m, b);

    for (; at && m->pairs[at - 1].share < share; at--)
        if (at < HY_IMPORTANCE_PAIRS)
            m->pairs[at] = m->pairs[at - 1];
    if (at < HY_IMPORTANCE_PAIRS)
        m->pairs[at] = (struct hy_pair_share){in_order ? a : b, in_order ? b : a, share};
    m->pair_count += m->pair_count < HY_IMPORTANCE_PAIRS;
}

static void set_pairs(struct hy_importance *m, struct decomposition *d)
{
    for (size_t i = 0; i < d->pair_count; i++) {
        struct pair_effect *p = &d->pairs[i];
        const struct hy_binned_column *a = &d->data->columns[p->first], *b = &d->data->columns[p->second];

        add_pair(m, a->param, b->param, pair_variance(p, a, b) / d->total);
    }
}

static int decompose(struct hy_importance *m, struct decomposition *d, size_t count)
{
    d->effects = hy_calloc(d->data->count, sizeof *d->effects);
    d->variances = hy_calloc(d->data->count, sizeof *d->variances);
    if (!d->effects || !d->variances || hy_forest_grow(&d->forest, d->data, SEED) < 0 || find_singles(d) < 0 ||
        find_total(d) < 0 || find_pairs(d) < 0 || set_shares(m, d, count) < 0)
        return -ENOMEM;
    set_pairs(m, d);
    return 0;
}

static bool is_constant(const struct hy_binned *data)
{
    for (size_t i = 0; i < data->rows; i++)
        if (data->targets[i] != data->targets[0])
            return false;
    return true;
}

static void explain(struct hy_importance *m, const struct hy_trial_columns *trials, const struct hy_binned *data)
{
    if (trials->count == 0 && trials->rows > 0)
        snprintf(m->why, sizeof m->why, "the trials have no hyperparameters");
    else if (trials->rows < HY_IMPORTANCE_TRIALS_MIN)
        snprintf(m->why, sizeof m->why, "at least %d finished trials with a finite value are needed; there %s %zu",
                 HY_IMPORTANCE_TRIALS_MIN, trials->rows == 1 ? "is" : "are", trials->rows);
    else if (data->count == 0)
        snprintf(m->why, sizeof m->why, "no hyperparameter has different values in the trials");
    else if (is_constant(data))
        snprintf(m->why, sizeof m->why, "all trials have the same value");
}

int hy_importance_init(struct hy_importance *m, const struct hy_trial_columns *trials)
{
    hy_cleanup_binned struct hy_binned data = {0};
    struct decomposition d = {.data = &data};
    int rc = 0;

    *m = (struct hy_importance){0};
    if (trials->rows && trials->count && hy_binned_init(&data, trials) < 0)
        return -ENOMEM;
    explain(m, trials, &data);
    if (!m->why[0])
        rc = decompose(m, &d, trials->count);
    hy_forest_done(&d.forest);
    free(d.effects);
    free(d.variances);
    free(d.pairs);
    return rc;
}

void hy_importance_done(struct hy_importance *m)
{
    free(m->params);
    *m = (struct hy_importance){0};
}
