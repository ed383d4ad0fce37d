/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A map from 64-bit keys to pointers: open addressing, linear probing, and no
 * tombstones (removal moves the followers back). Does not own its values.
 */
#ifndef HY_BASE_MAP_H
#define HY_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct hy_map_slot {
    uint64_t key;
    void *value; /* NULL: the slot is free */
};

struct hy_map {
    struct hy_map_slot *slots; /* private */
    size_t cap;                /* private: 0 or a power of two */
    size_t count;              /* read-only */
};

/* All zero is an empty map. */
void hy_map_done(struct hy_map *m);
void *hy_map_get(const struct hy_map *m, uint64_t key); /* NULL when absent */
/* Sets or replaces; `value` is not NULL. 0 or -ENOMEM. */
int hy_map_put(struct hy_map *m, uint64_t key, void *value);
void *hy_map_remove(struct hy_map *m, uint64_t key); /* returns the value; NULL: absent */

/* Iterates in arbitrary order: for (size_t i = 0; (v = hy_map_next(m, &i));). The map must
 * not change meanwhile. */
void *hy_map_next(const struct hy_map *m, size_t *cursor);

#endif
