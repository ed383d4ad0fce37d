/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of stream numbers, stored as ranges: numbers are mostly used in order,
 * so that a hundred thousand of them are one range.
 */
#ifndef HY_WIRE_IDSET_H
#define HY_WIRE_IDSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HY_IDSET_RUNS_MAX 1024 /* valid peers leave hardly any gaps */

struct hy_id_run {
    uint32_t first, last;
};

struct hy_idset {
    struct hy_id_run *runs; /* private: ascending, not adjacent */
    size_t count, cap;      /* private */
};

/* A zeroed set is an empty set. */
void hy_idset_done(struct hy_idset *s);
bool hy_idset_has(const struct hy_idset *s, uint32_t id);
/* id > 0. 0, -ENOMEM, or -ENOSPC when there are too many ranges. */
int hy_idset_add(struct hy_idset *s, uint32_t id);
/* Adds the numbers between the two lowest ranges. */
void hy_idset_close_gap(struct hy_idset *s);

#endif
