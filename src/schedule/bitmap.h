/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hierarchical bitmap: a set of small numbers that finds its next member in a
 * few steps. A bit of one level is set if a word of the level below is not 0,
 * so ten thousand numbers take three levels.
 */
#ifndef HY_SCHEDULE_BITMAP_H
#define HY_SCHEDULE_BITMAP_H

#include <stdbool.h>
#include <stdint.h>

#define HY_BITMAP_NONE UINT32_MAX
#define HY_BITMAP_LEVELS 5 /* 64^5: 2^30 numbers */
#define HY_BITMAP_MAX (1u << 30)

struct hy_bitmap {
    uint64_t *level[HY_BITMAP_LEVELS]; /* private: level[0] is the set itself, in one block with the rest */
    uint32_t words[HY_BITMAP_LEVELS];  /* private */
    uint32_t levels;                 /* private */
};

/* All zero is an empty set with room for no number. */
void hy_bitmap_done(struct hy_bitmap *b);
/* Makes room for the numbers below `count`. 0, or -ENOMEM and nothing changed. */
int hy_bitmap_grow(struct hy_bitmap *b, uint32_t count);

/* `i` is below the count it was fit_version to. */
bool hy_bitmap_has(const struct hy_bitmap *b, uint32_t i);
void hy_bitmap_set(struct hy_bitmap *b, uint32_t i);
void hy_bitmap_clear(struct hy_bitmap *b, uint32_t i);

/* The first member at `from` or after it, or HY_BITMAP_NONE. */
uint32_t hy_bitmap_next(const struct hy_bitmap *b, uint32_t from);
/* The last member at `from` or before it, or HY_BITMAP_NONE. */
uint32_t hy_bitmap_prev(const struct hy_bitmap *b, uint32_t from);

#endif
