/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of small numbers that finds its next member in a few steps: a bitmap
 * with bitmaps above it. A bit of one level says whether a word of the level
 * below has any, so ten thousand numbers take three levels.
 */
#ifndef HY_SCHEDULE_BITMAP_H
#define HY_SCHEDULE_BITMAP_H

#include <stdbool.h>
#include <stdint.h>

#define HY_BITS_NONE UINT32_MAX
#define HY_BITS_LEVELS 5 /* 64^5: 2^30 numbers */
#define HY_BITS_MAX (1u << 30)

struct hy_bits {
    uint64_t *level[HY_BITS_LEVELS]; /* private: level[0] is the set itself, in one block with the rest */
    uint32_t words[HY_BITS_LEVELS];  /* private */
    uint32_t levels;                 /* private */
};

/* A zeroed set is an empty set with no numbers in it yet. */
void hy_bits_done(struct hy_bits *b);
/* Makes room for the numbers below `count`. 0, or -ENOMEM and nothing changed. */
int hy_bits_grow(struct hy_bits *b, uint32_t count);

/* `i` is below the count it was grown to. */
bool hy_bits_has(const struct hy_bits *b, uint32_t i);
void hy_bits_set(struct hy_bits *b, uint32_t i);
void hy_bits_clear(struct hy_bits *b, uint32_t i);

/* The first member at `from` or after it, or HY_BITS_NONE. */
uint32_t hy_bits_next(const struct hy_bits *b, uint32_t from);
/* The last member at `from` or before it, or HY_BITS_NONE. */
uint32_t hy_bits_prev(const struct hy_bits *b, uint32_t from);

#endif
