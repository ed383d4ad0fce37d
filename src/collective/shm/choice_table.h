/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included by choice.c alone. bench/allreduce.py --tune writes the rows of `choices`; these were taken from
 * measurements by hand, as single runs of it scatter. The rest is by hand, too.
 */

static const struct hy_choice choices[] = {
    /* members, bytes, way, segment, ahead, results past the caches */
    {2, 12 << 20, HY_DIRECT, 64 << 10, 1, false},         {2, SIZE_MAX, HY_DIRECT, 64 << 10, 1, true},
    {UINT32_MAX, 8 << 10, HY_DIRECT, 64 << 10, 1, false}, {UINT32_MAX, 12 << 20, HY_SLICES, 64 << 10, 2, false},
    {UINT32_MAX, SIZE_MAX, HY_SLICES, 64 << 10, 2, true},
};

/* Slots of each member: a ring that no core's own cache holds, or one that leaves room in the common one. */
static const unsigned ring_long_up_to = 4, ring_long = 32, ring_short = 8;

/* Slots of each of two members that swap them, and from which size on of a core's own cache (decision 0009). */
static const unsigned ring_swapped = 4;
static const long ring_swapped_from = 5 << 18;

static const struct hy_move_choice moves = {64 << 10, 1, 12 << 20};

/* Each member has an input and a result; a third of the common cache is what other work on the machine leaves to us. */
static const unsigned stream_share = 6;

static const struct hy_patience patience_alone = {2000, 200};
static const struct hy_patience patience_crowded = {0, 1000};
