/* SPDX-License-Identifier: Apache-2.0 */
/* Written by bench/allreduce.py --tune; included by choice.c alone. */

static const struct hy_choice choices[] = {
    /* members, bytes, way, segment, ahead, stream slots, stream out */
    {2, 2 << 10, HY_DIRECT, 32 << 10, 1, false, false},
    {2, 8 << 20, HY_DIRECT, 32 << 10, 1, true, false},
    {2, SIZE_MAX, HY_DIRECT, 64 << 10, 1, true, true},
    {UINT32_MAX, 16 << 10, HY_DIRECT, 16 << 10, 1, false, false},
    {UINT32_MAX, 8 << 20, HY_SLICES, 128 << 10, 1, true, false},
    {UINT32_MAX, SIZE_MAX, HY_SLICES, 128 << 10, 1, true, true},
};

static const struct hy_move_choice moves = {64 << 10, 1, true, 8 << 20};

static const struct hy_patience patience_alone = {2000, 200};
static const struct hy_patience patience_crowded = {0, 1000};
