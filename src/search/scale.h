/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps the unit interval, where points are drawn and varied, to the values of a
 * dimension; private to this part.
 *
 * Only operations that IEEE 754 defines to the last bit are used, so the same
 * seed gives the same values on every machine. libm's exp and log are not among
 * them: their last bit depends on the C library and on the processor.
 */
#ifndef HY_SEARCH_SCALE_H
#define HY_SEARCH_SCALE_H

#include <stddef.h>

#include "search/search.h"

/* Integers are doubles in a point; beyond this they are not exact. */
#define HY_INT_LIMIT 0x1p53

/* The value at `unit`, which is in [0, 1]. */
struct hy_value hy_dim_at(const struct hy_dim *dim, double unit);
/* Which of n equal parts of [0, 1] `unit` is in. */
size_t hy_unit_part(double unit, size_t n);

#endif
