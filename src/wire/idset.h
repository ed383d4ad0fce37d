/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of stream numbers, kept as runs: numbers are mostly used in order, so
 * that a hundred thousand of them are one run.
 */
#ifndef HY_WIRE_IDSET_H
#define HY_WIRE_IDSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HY_IDSET_RUNS_MAX 1024 /* honest peers leave next to no gaps */

struct hy_id_run {
    uint32_t first, last;
};

struct hy_idset {
    struct hy_id_run *runs; /* private: ascending, not touching each other */
    size_t count, cap;      /* private */
};

/* A zeroed set is an empty set. */
void hy_idset_done(struct hy_idset *s);
bool hy_idset_has(const struct hy_idset *s, uint32_t id);
/* id > 0. 0, -ENOMEM, or -ENOSPC when there are too many runs. */
int hy_idset_add(struct hy_idset *s, uint32_t id);
/* Adds what is missing between the two lowest runs. */
void hy_idset_close_gap(struct hy_idset *s);

#endif
