/* SPDX-License-Identifier: Apache-2.0 */
#include "search/regression_forest.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

#define STAGE_TREES (HY_FOREST_TREES / 2)
#define FEW_ROWS 500 /* up to this number of rows, leaves may have one row */
#define LEAF_ROWS 3  /* with more rows: smaller leaves cost time and gain nothing */
#define DEPTH_MAX 64
#define COLUMNS_TRIED 16 /* at a node, at random if there are more */

/* The rows of a node in one column, by bin. Only bins in `used` have counts and sums. */
struct histogram {
    uint64_t used;
    uint32_t counts[HY_BINS];
    double sums[HY_BINS];
};

struct split {
    double score; /* the higher, the lower the remaining sum of squares */
    size_t column;
    uint64_t left_bins;
};

/* Memory for a stage of the forest, and what its trees are fitted to. */
struct growth {
    const struct hy_binned *data;
    struct hy_forest *forest;
    struct hy_tree *tree; /* the current one */
    struct hy_rng rng;
    size_t leaf_rows;
    double *targets;   /* of each row */
    uint32_t *rows;    /* of the bootstrap sample, ordered by node */
    uint32_t *columns; /* all of them, in random order if only some are tried */
    bool *is_drawn;    /* whether a row is in the bootstrap sample */
    double *sums;      /* of each row: predictions of the trees whose sample does not contain it (out of bag) ... */
    uint32_t *votes;   /* ... and the number of these trees */
};

/* ---- the best split of a node ---------------------------------------------------------------------- */

static void count_bins(struct histogram *h, const struct growth *g, const uint8_t *bins, size_t from, size_t to)
{
    h->used = 0;
    for (size_t i = from; i < to; i++) {
        uint8_t bin = bins[g->rows[i]];

        if (!(h->used >> bin & 1)) {
            h->used |= UINT64_C(1) << bin;
            h->counts[bin] = 0;
            h->sums[bin] = 0;
        }
        h->counts[bin]++;
        h->sums[bin] += g->targets[g->rows[i]];
    }
}

/* The used bins in the order in which they are divided: categories by their mean (Breiman et al., 1984: one of these
 * divisions is the best of all). */
static size_t order_bins(const struct histogram *h, bool by_mean, uint8_t order[HY_BINS])
{
    size_t n = 0;

    for (uint64_t used = h->used; used; used &= used - 1) {
        uint8_t bin = (uint8_t)__builtin_ctzll(used);
        size_t at = n++;

        for (; by_mean && at && h->sums[order[at - 1]] / h->counts[order[at - 1]] > h->sums[bin] / h->counts[bin]; at--)
            order[at] = order[at - 1];
        order[at] = bin;
    }
    return n;
}

/* All bins up to the middle between two that are used. Missing values are not a low number: they are split off alone.
 */
static uint64_t bins_up_to(const struct hy_binned_column *c, uint8_t low, uint8_t high)
{
    unsigned last = c->has_missing && low == 0 ? 0 : (low + high) / 2;

    return UINT64_MAX >> (HY_BINS - 1 - last);
}

static void try_column(const struct growth *g, size_t column, size_t from, size_t to, double total, struct split *best)
{
    const struct hy_binned_column *c = &g->data->columns[column];
    struct histogram h;
    uint8_t order[HY_BINS];
    size_t n, left = 0, rows = to - from;
    uint64_t left_bins = 0;
    double sum = 0;

    count_bins(&h, g, c->bins, from, to);
    n = order_bins(&h, c->is_category, order);
    for (size_t i = 0; i + 1 < n; i++) {
        double score;

        left += h.counts[order[i]];
        sum += h.sums[order[i]];
        left_bins |= UINT64_C(1) << order[i];
        if (left < g->leaf_rows || rows - left < g->leaf_rows)
            continue;
        score = sum * sum / (double)left + (total - sum) * (total - sum) / (double)(rows - left);
        if (score <= best->score)
            continue;
        *best = (struct split){score, column, bins_up_to(c, order[i], order[i + 1])};
        if (c->is_category) /* choices that occur in no row here go to the side with more rows */
            best->left_bins = 2 * left > rows ? left_bins | ~h.used : left_bins;
    }
}

static struct split find_split(struct growth *g, size_t from, size_t to, double total)
{
    double least = total * total / (double)(to - from);
    struct split best = {.score = least + 1e-12};
    size_t count = g->data->count, tried = count < COLUMNS_TRIED ? count : COLUMNS_TRIED;

    for (size_t i = 0; i < tried; i++) {
        size_t other = tried < count ? i + hy_rng_below(&g->rng, count - i) : i;
        uint32_t column = g->columns[other];

        g->columns[other] = g->columns[i];
        g->columns[i] = column;
        try_column(g, column, from, to, total, &best);
    }
    if (best.left_bins)
        g->forest->gains[best.column] += best.score - least;
    return best;
}

/* ---- trees ---------------------------------------------------------------------------------------------- */

/* Moves the rows that go left to the front; returns the first one that goes right. */
static size_t partition(struct growth *g, const struct split *s, size_t from, size_t to)
{
    const uint8_t *bins = g->data->columns[s->column].bins;

    while (from < to) {
        uint32_t row = g->rows[from];

        if (s->left_bins >> bins[row] & 1) {
            from++;
        } else {
            g->rows[from] = g->rows[--to];
            g->rows[to] = row;
        }
    }
    return from;
}

static int add_node(struct hy_tree *tree, double value, uint32_t *ret)
{
    if (hy_array_grow(tree->nodes, tree->count) < 0)
        return -ENOMEM;
    tree->nodes[tree->count] = (struct hy_tree_node){.value = value};
    *ret = (uint32_t)tree->count++;
    return 0;
}

/* Makes the node of the rows from `from` to `to`, and all below it. */
static int grow_node(struct growth *g, size_t from, size_t to, int depth, uint32_t *ret)
{
    uint32_t left, right;
    struct split s;
    double total = 0;
    size_t middle;

    for (size_t i = from; i < to; i++)
        total += g->targets[g->rows[i]];
    if (add_node(g->tree, total / (double)(to - from), ret) < 0)
        return -ENOMEM;
    if (depth == DEPTH_MAX || to - from < 2 * g->leaf_rows)
        return 0;
    s = find_split(g, from, to, total);
    if (!s.left_bins)
        return 0;
    middle = partition(g, &s, from, to);
    if (grow_node(g, from, middle, depth + 1, &left) < 0 || grow_node(g, middle, to, depth + 1, &right) < 0)
        return -ENOMEM;
    g->tree->nodes[*ret].left_bins = s.left_bins;
    g->tree->nodes[*ret].column = (uint32_t)s.column;
    g->tree->nodes[*ret].left = left;
    g->tree->nodes[*ret].right = right;
    return 0;
}

static double predict(const struct hy_tree *tree, const struct hy_binned *data, size_t row)
{
    const struct hy_tree_node *node = tree->nodes;

    while (node->left)
        node = &tree->nodes[node->left_bins >> data->columns[node->column].bins[row] & 1 ? node->left : node->right];
    return node->value;
}

static int grow_tree(struct growth *g, struct hy_tree *tree, uint64_t seed, uint64_t stream)
{
    size_t rows = g->data->rows;
    uint32_t root;

    hy_rng_seed(&g->rng, seed, stream);
    memset(g->is_drawn, 0, rows * sizeof *g->is_drawn);
    for (size_t i = 0; i < rows; i++) {
        g->rows[i] = (uint32_t)hy_rng_below(&g->rng, rows);
        g->is_drawn[g->rows[i]] = true;
    }
    g->tree = tree;
    if (grow_node(g, 0, rows, 0, &root) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < rows; i++)
        if (!g->is_drawn[i]) {
            g->sums[i] += predict(tree, g->data, i);
            g->votes[i]++;
        }
    return 0;
}

/* ---- the forest ------------------------------------------------------------------------------------------- */

/* The factor for the predictions of rows by trees that have not seen them, at which they are closest to the targets.
 * It is near 0 for a forest that was fitted to noise. */
static double best_factor(const struct growth *g)
{
    double product = 0, square = 0;

    for (size_t i = 0; i < g->data->rows; i++) {
        double guess = g->votes[i] ? g->sums[i] / g->votes[i] : 0;

        product += guess * g->targets[i];
        square += guess * guess;
    }
    return square > 0 ? fmin(fmax(product / square, 0), 3) : 0;
}

/* Makes the sum of the trees their mean, times the factor. */
static void scale_trees(struct hy_tree *trees, double factor)
{
    for (size_t t = 0; t < STAGE_TREES; t++)
        for (size_t i = 0; i < trees[t].count; i++)
            trees[t].nodes[i].value *= factor / STAGE_TREES;
}

static int grow_stage(struct growth *g, size_t first, uint64_t seed)
{
    struct hy_tree *trees = g->forest->trees + first;
    double factor;

    for (size_t i = 0; i < g->data->rows; i++) {
        g->sums[i] = 0;
        g->votes[i] = 0;
    }
    for (size_t t = 0; t < STAGE_TREES; t++)
        if (grow_tree(g, &trees[t], seed, first + t) < 0)
            return -ENOMEM;
    factor = first ? best_factor(g) : 1;
    scale_trees(trees, factor);
    for (size_t i = 0; i < g->data->rows; i++)
        g->targets[i] -= g->votes[i] ? factor * g->sums[i] / g->votes[i] : 0;
    return 0;
}

static int grow_stages(struct growth *g, uint64_t seed)
{
    if (!g->forest->gains || !g->targets || !g->rows || !g->columns || !g->is_drawn || !g->sums || !g->votes)
        return -ENOMEM;
    for (uint32_t i = 0; i < g->data->count; i++)
        g->columns[i] = i;
    for (size_t i = 0; i < g->data->rows; i++)
        g->targets[i] = g->data->targets[i];
    return grow_stage(g, 0, seed) < 0 ? -ENOMEM : grow_stage(g, STAGE_TREES, seed);
}

int hy_forest_grow(struct hy_forest *f, const struct hy_binned *data, uint64_t seed)
{
    struct growth g = {.data = data, .forest = f, .leaf_rows = data->rows <= FEW_ROWS ? 1 : LEAF_ROWS};
    int rc;

    *f = (struct hy_forest){.gains = hy_calloc(data->count, sizeof *f->gains)};
    g.targets = hy_calloc(data->rows, sizeof *g.targets);
    g.rows = hy_calloc(data->rows, sizeof *g.rows);
    g.columns = hy_calloc(data->count, sizeof *g.columns);
    g.is_drawn = hy_calloc(data->rows, sizeof *g.is_drawn);
    g.sums = hy_calloc(data->rows, sizeof *g.sums);
    g.votes = hy_calloc(data->rows, sizeof *g.votes);
    rc = grow_stages(&g, seed);
    free(g.targets);
    free(g.rows);
    free(g.columns);
    free(g.is_drawn);
    free(g.sums);
    free(g.votes);
    return rc;
}

void hy_forest_done(struct hy_forest *f)
{
    for (size_t t = 0; t < HY_FOREST_TREES; t++)
        free(f->trees[t].nodes);
    free(f->gains);
    *f = (struct hy_forest){0};
}

double hy_forest_predict(const struct hy_forest *f, const struct hy_binned *data, size_t row)
{
    double sum = 0;

    for (size_t t = 0; t < HY_FOREST_TREES; t++)
        sum += predict(&f->trees[t], data, row);
    return sum;
}
