/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps the unit interval, where points are drawn and varied, to the values of a
 * dimension; private to this part. The uniform distribution on it is the user's prior:
 * a normal distribution is reached by its quantiles.
 *
 * Only operations that IEEE 754 defines to the last bit are used, so the same
 * seed gives the same values on every machine. libm's exp and log are not among
 * them: their last bit depends on the C library and on the processor.
 */
#ifndef HY_SEARCH_SCALE_H
#define HY_SEARCH_SCALE_H

#include <stddef.h>

#include "base/rng.h"
#include "search/search.h"

/* Integers are doubles in a point; beyond this they are not exact. */
#define HY_INT_LIMIT 0x1p53

/* The value at `unit`, which is in [0, 1]. */
struct hy_value hy_dim_at(const struct hy_dim *dim, double unit);
/*
 * The inverse: of a real number, where it is in [0, 1]; of an integer, a step or a choice, the
 * middle of its part of [0, 1]. NAN for NAN. A search that learns from these alone, and
 * not from the numbers that it has drawn, is in the same state after a resume: only the
 * values are stored.
 */
double hy_dim_unit(const struct hy_dim *dim, struct hy_value value);
/* The probability that a normal distribution without bounds is within those of the dimension. */
double hy_normal_share(const struct hy_dim *dim);
/* Which of n equal parts of [0, 1] `unit` is in. */
size_t hy_unit_part(double unit, size_t n);

/* Whether it has conditions or constraints. */
bool hy_space_has_rules(const struct hy_space *space);
/* Whether the i-th dimension has a value, given those of the dimensions before it. */
bool hy_space_is_active(const struct hy_space *space, size_t i, const struct hy_value *values);
/* For a whole point: inactive dimensions have the value NAN, and the unit NAN. */
void hy_space_values(const struct hy_space *space, const double *units, struct hy_value *ret);
void hy_space_units(const struct hy_space *space, const struct hy_value *values, double *ret);
/*
 * Draws points until one satisfies the constraints, up to a limit; false: none did, and
 * *ret has the last. Every point takes one number per dimension of `rng`, also for those that are
 * inactive.
 */
bool hy_space_draw(const struct hy_space *space, struct hy_rng *rng, size_t limit, double *ret_units,
                   struct hy_value *ret);

#endif
