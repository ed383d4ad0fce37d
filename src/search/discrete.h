/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discrete dimensions, which grids and paired lists need: categories, ranges of integers,
 * and ranges with steps; private to this part.
 */
#ifndef HY_SEARCH_DISCRETE_H
#define HY_SEARCH_DISCRETE_H

#include "search/search.h"

/* 0, or -EINVAL with a sentence; `search` names the search for it ("a grid"). */
int hy_discrete_check(const struct hy_dim *dim, const char *search, struct hy_err *err);
/* How many values there are, at most 2^54 + 1; 0: a range of real numbers. */
uint64_t hy_discrete_width(const struct hy_dim *dim);
/*
 * The n-th, from 0. The n-th step is the double that is nearest to the sum of decimal
 * numbers: low + n * step itself gives 0.30000000000000004 instead of 0.3.
 */
struct hy_value hy_discrete_at(const struct hy_dim *dim, uint64_t n);
/* The n of the nearest value; not of a range of real numbers. */
uint64_t hy_discrete_index(const struct hy_dim *dim, struct hy_value value);
/* The last value of a dimension with steps whose `high` is between two of them. */
double hy_discrete_last(const struct hy_dim *dim);

#endif
