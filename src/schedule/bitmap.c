/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/bitmap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

void hy_bitmap_done(struct hy_bitmap *b)
{
    free(b->level[0]);
    *b = (struct hy_bitmap){0};
}

int hy_bitmap_grow(struct hy_bitmap *b, uint32_t count)
{
    struct hy_bitmap bigger = {0};
    size_t total = 0, n = count;

    assert(count > 0 && count <= HY_BITMAP_MAX);
    do {
        n = (n + 63) / 64;
        bigger.words[bigger.levels++] = (uint32_t)n;
        total += n;
    } while (n > 1);
    if (b->levels && bigger.words[0] <= b->words[0])
        return 0;
    bigger.level[0] = hy_calloc(total, sizeof *bigger.level[0]);
    if (!bigger.level[0])
        return -ENOMEM;
    for (uint32_t l = 1; l < bigger.levels; l++)
        bigger.level[l] = bigger.level[l - 1] + bigger.words[l - 1];

    for (uint32_t i = hy_bitmap_next(b, 0); i != HY_BITMAP_NONE; i = hy_bitmap_next(b, i + 1))
        hy_bitmap_set(&bigger, i);
    hy_bitmap_done(b);
    *b = bigger;
    return 0;
}

bool hy_bitmap_has(const struct hy_bitmap *b, uint32_t i)
{
    return b->level[0][i >> 6] >> (i & 63) & 1;
}

void hy_bitmap_set(struct hy_bitmap *b, uint32_t i)
{
    for (uint32_t l = 0; l < b->levels; l++, i >>= 6) {
        uint64_t *word = &b->level[l][i >> 6], before = *word;

        *word |= UINT64_C(1) << (i & 63);
        if (before)
            break;
    }
}

void hy_bitmap_clear(struct hy_bitmap *b, uint32_t i)
{
    for (uint32_t l = 0; l < b->levels; l++, i >>= 6) {
        uint64_t *word = &b->level[l][i >> 6];

        *word &= ~(UINT64_C(1) << (i & 63));
        if (*word)
            break;
    }
}

static uint32_t lowest(uint64_t word)
{
    return (uint32_t)__builtin_ctzll(word);
}

static uint32_t highest(uint64_t word)
{
    return 63 - (uint32_t)__builtin_clzll(word);
}

/* Both walks climb until a word has a bit on the right side of `at`, then go
 * down to the nearest member below it. */

uint32_t hy_bitmap_next(const struct hy_bitmap *b, uint32_t from)
{
    uint32_t l = 0, at = from;

    for (;; l++, at = (at >> 6) + 1) {
        uint64_t word;

        if (l == b->levels || at >> 6 >= b->words[l])
            return HY_BITMAP_NONE;
        word = b->level[l][at >> 6] >> (at & 63);
        if (word) {
            at += lowest(word);
            break;
        }
    }
    while (l-- > 0)
        at = at << 6 | lowest(b->level[l][at]);
    return at;
}

uint32_t hy_bitmap_prev(const struct hy_bitmap *b, uint32_t from)
{
    uint32_t l = 0, at = from;

    if (b->levels && at >> 6 >= b->words[0])
        at = b->words[0] * 64 - 1;
    for (;; l++, at = (at >> 6) - 1) {
        uint64_t word;

        if (l == b->levels)
            return HY_BITMAP_NONE;
        word = b->level[l][at >> 6] & (UINT64_MAX >> (63 - (at & 63)));
        if (word) {
            at = (at & ~63u) | highest(word);
            break;
        }
        if (at < 64)
            return HY_BITMAP_NONE;
    }
    while (l-- > 0)
        at = at << 6 | highest(b->level[l][at]);
    return at;
}
