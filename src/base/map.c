/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

static size_t home_of(const struct hy_map *m, uint64_t key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    key ^= key >> 33;
    return (size_t)key & (m->cap - 1);
}

static struct hy_map_slot *find(const struct hy_map *m, uint64_t key)
{
    size_t i = home_of(m, key);

    while (m->slots[i].value && m->slots[i].key != key)
        i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

static int grow(struct hy_map *m)
{
    struct hy_map bigger = {.cap = m->cap ? m->cap * 2 : 16, .count = m->count};

    bigger.slots = hy_calloc(bigger.cap, sizeof *bigger.slots);
    if (!bigger.slots)
        return -ENOMEM;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].value)
            *find(&bigger, m->slots[i].key) = m->slots[i];
    free(m->slots);
    *m = bigger;
    return 0;
}

void hy_map_done(struct hy_map *m)
{
    free(m->slots);
    *m = (struct hy_map){0};
}

void *hy_map_get(const struct hy_map *m, uint64_t key)
{
    return m->cap ? find(m, key)->value : NULL;
}

int hy_map_put(struct hy_map *m, uint64_t key, void *value)
{
    struct hy_map_slot *slot;

    assert(value);
    if (m->count + 1 > m->cap / 2 && grow(m) < 0)
        return -ENOMEM;
    slot = find(m, key);
    if (!slot->value)
        m->count++;
    *slot = (struct hy_map_slot){key, value};
    return 0;
}

void *hy_map_remove(struct hy_map *m, uint64_t key)
{
    struct hy_map_slot *hole;
    void *value;
    size_t i, at;

    if (!m->cap)
        return NULL;
    hole = find(m, key);
    value = hole->value;
    if (!value)
        return NULL;
    m->count--;
    /* Moves each follower back whose home slot is not between the hole and itself. */
    at = (size_t)(hole - m->slots);
    for (i = (at + 1) & (m->cap - 1); m->slots[i].value; i = (i + 1) & (m->cap - 1)) {
        size_t home = home_of(m, m->slots[i].key);
        if (((i - home) & (m->cap - 1)) >= ((i - at) & (m->cap - 1))) {
            m->slots[at] = m->slots[i];
            at = i;
        }
    }
    m->slots[at].value = NULL;
    return value;
}

void *hy_map_next(const struct hy_map *m, size_t *cursor)
{
    while (*cursor < m->cap) {
        void *value = m->slots[(*cursor)++].value;
        if (value)
            return value;
    }
    return NULL;
}
