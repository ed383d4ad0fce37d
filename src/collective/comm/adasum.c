/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adasum: a sum of gradients that counts their common direction only once.
 *
 *   adasum(a, b) = (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b
 *
 * so orthogonal gradients are added and parallel ones averaged. More than two are combined by a fixed tree: neighbors
 * first, then pairs of neighbors, and so on. If the number of members exceeds a power of two by e, the first 2e members
 * are combined in pairs first, and each pair is one node of the tree.
 *
 * The nodes use recursive halving: at each level, partners exchange halves of the piece that they hold, and each
 * combines one half. Dot products are over whole tensors, in double: partial products are gathered from all and added
 * in the same order everywhere. At the end the pieces return the same way. So every number is computed in one place,
 * and all ranks get the same bits.
 *
 * float16 and bfloat16 are computed in float32.
 */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "collective/comm/comm_private.h"
#include "collective/numbers/reduce.h"

#define NO_NODE UINT32_MAX

struct products {
    double ab, aa, bb;
};

struct adasum {
    struct hy_set *set;
    const size_t *tensors; /* elements of each */
    size_t tensor_count, count;
    enum hy_type type; /* of `mine`: float32 or float64 */
    size_t element;
    char *mine, *theirs;            /* count elements each; in `mine` only the piece of this rank is valid */
    unsigned powers;                /* the tree has 2^powers nodes */
    unsigned folded;                /* the first 2 * folded members are pairs */
    unsigned *partners;             /* by index: scratch of a step */
    size_t *bytes;                  /* by index: scratch of a step */
    struct products *shares, *sums; /* of all members; of the subtree of this rank; tensor_count each */
};

/* ---- the tree ------------------------------------------------------------------------- */

/* The node of a member; the second member of a pair has none. */
static unsigned node_of(const struct adasum *x, unsigned index)
{
    if (index >= 2 * x->folded)
        return index - x->folded;
    return index % 2 ? NO_NODE : index / 2;
}

static unsigned member_of(const struct adasum *x, unsigned node)
{
    return node < x->folded ? 2 * node : node + x->folded;
}

struct piece {
    size_t begin, count;
};

/* The half of a piece for the first or the second of two partners. */
static struct piece half_of(struct piece p, bool second)
{
    size_t first = (p.count + 1) / 2;

    return second ? (struct piece){p.begin + first, p.count - first} : (struct piece){p.begin, first};
}

/* The piece that a node holds after that many levels. */
static struct piece piece_of(const struct adasum *x, unsigned node, unsigned levels)
{
    struct piece p = {0, x->count};

    for (unsigned l = 0; l < levels; l++)
        p = half_of(p, node >> l & 1);
    return p;
}

static char *at(const struct adasum *x, char *vector, struct piece p)
{
    return vector + p.begin * x->element;
}

/* ---- two vectors ---------------------------------------------------------------------- */

#define VECTORS(T)                                                                                                     \
    static struct products multiply_##T(const T *a, const T *b, size_t n) {                                            \
        struct products sum = {0, 0, 0};                                                                               \
                                                                                                                       \
        for (size_t i = 0; i < n; i++) {                                                                               \
            sum.ab += (double)a[i] * (double)b[i];                                                                     \
            sum.aa += (double)a[i] * (double)a[i];                                                                     \
            sum.bb += (double)b[i] * (double)b[i];                                                                     \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
                                                                                                                       \
    static void combine_##T(T *out, const T *a, const T *b, size_t n, double of_a, double of_b)                        \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            out[i] = (T)(of_a * (double)a[i] + of_b * (double)b[i]);                                                   \
    }

VECTORS(float)
VECTORS(double)

/* The coefficient of a vector; one that is nearly zero has no direction. */
static double share_of(double ab, double square)
{
    return square >= sqrt(DBL_MIN) ? 1 - ab / square / 2 : 1;
}

/* The part of a tensor, which starts at `begin`, that is in a piece. */
static struct piece overlap(struct piece p, size_t begin, size_t count)
{
    size_t from = begin > p.begin ? begin : p.begin;
    size_t to = begin + count < p.begin + p.count ? begin + count : p.begin + p.count;

    return (struct piece){from, to > from ? to - from : 0};
}

static struct products multiply(const struct adasum *x, char *a, char *b, struct piece p)
{
    return x->type == HY_F64 ? multiply_double((double *)at(x, a, p), (double *)at(x, b, p), p.count)
                             : multiply_float((float *)at(x, a, p), (float *)at(x, b, p), p.count);
}

static void combine(const struct adasum *x, char *a, char *b, struct piece p, const struct products *sum)
{
    double of_a = share_of(sum->ab, sum->aa), of_b = share_of(sum->ab, sum->bb);
    char *out = at(x, x->mine, p);

    if (x->type == HY_F64)
        combine_double((double *)out, (double *)at(x, a, p), (double *)at(x, b, p), p.count, of_a, of_b);
    else
        combine_float((float *)out, (float *)at(x, a, p), (float *)at(x, b, p), p.count, of_a, of_b);
}

static void multiply_tensors(const struct adasum *x, char *a, char *b, struct piece p, struct products *ret)
{
    for (size_t t = 0, begin = 0; t < x->tensor_count; begin += x->tensors[t++])
        ret[t] = multiply(x, a, b, overlap(p, begin, x->tensors[t]));
}

static void combine_tensors(const struct adasum *x, char *a, char *b, struct piece p, const struct products *sums)
{
    for (size_t t = 0, begin = 0; t < x->tensor_count; begin += x->tensors[t++])
        combine(x, a, b, overlap(p, begin, x->tensors[t]), &sums[t]);
}

/* ---- steps, which all members make together -------------------------------------------- */

/* Exchanges `part` of each node with its partner at that level. */
static int swap(struct adasum *x, unsigned level, struct piece (*part)(const struct adasum *, unsigned, unsigned),
                void *sent, void *received)
{
    for (unsigned i = 0; i < x->set->count; i++) {
        unsigned node = node_of(x, i);

        x->partners[i] = node == NO_NODE ? i : member_of(x, node ^ 1u << level);
        x->bytes[i] = node == NO_NODE ? 0 : part(x, node, level).count * x->element;
    }
    return hy_set_swap(x->set, x->partners, x->bytes, sent, received);
}

/* The half that a node sends at a level. */
static struct piece given_away(const struct adasum *x, unsigned node, unsigned level)
{
    return half_of(piece_of(x, node, level), !(node >> level & 1));
}

/* The half that it keeps and combines. */
static struct piece kept(const struct adasum *x, unsigned node, unsigned level)
{
    return piece_of(x, node, level + 1);
}

/* Adds the partial products of the members of this subtree. */
static int sum_products(struct adasum *x, unsigned level)
{
    size_t row = x->tensor_count * sizeof *x->shares;
    hy_cleanup_free size_t *sizes = hy_calloc(2ul * x->set->count, sizeof *sizes);
    unsigned node = node_of(x, x->set->index);
    int rc;

    if (!sizes)
        return -ENOMEM;
    for (unsigned i = 0; i < x->set->count; i++) {
        sizes[i] = row;
        sizes[x->set->count + i] = i * row;
    }
    rc = hy_set_allgather(x->set, x->sums, x->shares, sizes, sizes + x->set->count);
    memset(x->sums, 0, row);
    for (unsigned other = 0; node != NO_NODE && rc == 0 && other < 1u << x->powers; other++)
        if (other >> (level + 1) == node >> (level + 1))
            for (size_t t = 0; t < x->tensor_count; t++) {
                const struct products *share = &x->shares[member_of(x, other) * x->tensor_count + t];

                x->sums[t].ab += share->ab;
                x->sums[t].aa += share->aa;
                x->sums[t].bb += share->bb;
            }
    return rc;
}

/* The first of two partners holds `a`, the second `b`. */
static int combine_level(struct adasum *x, unsigned level)
{
    unsigned node = node_of(x, x->set->index);
    bool takes_part = node != NO_NODE, second = takes_part && node >> level & 1;
    struct piece half = takes_part ? kept(x, node, level) : (struct piece){0, 0};
    struct piece other = takes_part ? given_away(x, node, level) : (struct piece){0, 0};
    char *a = second ? x->theirs : x->mine, *b = second ? x->mine : x->theirs;
    int rc = swap(x, level, given_away, at(x, x->mine, other), at(x, x->theirs, half));

    if (rc < 0)
        return rc;
    multiply_tensors(x, a, b, half, x->sums);
    rc = sum_products(x, level);
    if (rc == 0 && takes_part)
        combine_tensors(x, a, b, half, x->sums);
    return rc;
}

static int return_level(struct adasum *x, unsigned level)
{
    unsigned node = node_of(x, x->set->index);
    struct piece half = {0, 0}, other = {0, 0};

    if (node != NO_NODE) {
        half = kept(x, node, level);
        other = given_away(x, node, level);
    }
    return swap(x, level, kept, at(x, x->mine, half), at(x, x->mine, other));
}

/* The whole vector within each pair: from the second to the first member, or back. */
static int swap_pairs(struct adasum *x, bool back, char *received)
{
    for (unsigned i = 0; i < x->set->count; i++) {
        x->partners[i] = i < 2 * x->folded ? i ^ 1u : i;
        x->bytes[i] = i < 2 * x->folded && i % 2 == !back ? x->count * x->element : 0;
    }
    return x->folded ? hy_set_swap(x->set, x->partners, x->bytes, x->mine, received) : 0;
}

static int fold(struct adasum *x)
{
    struct piece all = {0, x->count};
    int rc = swap_pairs(x, false, x->theirs);

    if (rc == 0 && x->set->index < 2 * x->folded && x->set->index % 2 == 0) {
        multiply_tensors(x, x->mine, x->theirs, all, x->sums);
        combine_tensors(x, x->mine, x->theirs, all, x->sums);
    }
    return rc;
}

static int walk(struct adasum *x)
{
    int rc = fold(x);

    for (unsigned level = 0; rc == 0 && level < x->powers; level++)
        rc = combine_level(x, level);
    for (unsigned level = x->powers; rc == 0 && level > 0; level--)
        rc = return_level(x, level - 1);
    return rc < 0 ? rc : swap_pairs(x, true, x->mine);
}

/* ---- interface ------------------------------------------------------------------------------ */

static int prepare(struct adasum *x, struct hy_set *s, const size_t *counts, size_t tensor_count, enum hy_type type)
{
    *x = (struct adasum){.set = s, .tensors = counts, .tensor_count = tensor_count};
    for (size_t t = 0; t < tensor_count; t++)
        x->count += counts[t];
    x->type = type == HY_F64 ? HY_F64 : HY_F32;
    x->element = hy_type_size(x->type);
    while (2u << x->powers <= s->count)
        x->powers++;
    x->folded = s->count - (1u << x->powers);
    x->mine = hy_calloc(x->count + 1, x->element);
    x->theirs = hy_calloc(x->count + 1, x->element);
    x->partners = hy_calloc(s->count, sizeof *x->partners);
    x->bytes = hy_calloc(s->count, sizeof *x->bytes);
    x->sums = hy_calloc(tensor_count + 1, sizeof *x->sums);
    x->shares = hy_calloc(s->count * tensor_count + 1, sizeof *x->shares);
    return x->mine && x->theirs && x->partners && x->bytes && x->sums && x->shares ? 0 : -ENOMEM;
}

static void release(struct adasum *x)
{
    free(x->mine);
    free(x->theirs);
    free(x->partners);
    free(x->bytes);
    free(x->sums);
    free(x->shares);
}

/* Conversion between the caller's type and that of `mine`. */
static void load_input(struct adasum *x, const void *buf, enum hy_type type, double pre)
{
    if (type == x->type)
        memcpy(x->mine, buf, x->count * x->element);
    else
        hy_widen((float *)x->mine, buf, x->count, type);
    hy_scale(x->mine, x->mine, x->count, x->type, pre);
}

static void store_output(struct adasum *x, void *buf, enum hy_type type, double post)
{
    hy_scale(x->mine, x->mine, x->count, x->type, post);
    if (type == x->type)
        memcpy(buf, x->mine, x->count * x->element);
    else
        hy_narrow(buf, (float *)x->mine, x->count, type);
}

int hy_set_adasum(struct hy_set *s, void *buf, const size_t *counts, size_t tensor_count, enum hy_type type, double pre,
                  double post)
{
    struct adasum x;
    int rc = s->comm->waiter.failed.code;

    if (rc < 0)
        return rc;
    if (type != HY_F16 && type != HY_BF16 && type != HY_F32 && type != HY_F64)
        return -EINVAL;
    rc = prepare(&x, s, counts, tensor_count, type);
    if (rc == 0 && x.count) {
        load_input(&x, buf, type, pre);
        rc = walk(&x);
    }
    if (rc == 0 && x.count)
        store_output(&x, buf, type, post);
    release(&x);
    return hy_comm_result(s->comm, rc);
}
