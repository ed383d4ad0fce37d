/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to search: dimensions whose values can be counted, as grids and
 * paired lists need them: categories, and ranges of integers.
 */
#ifndef HY_SEARCH_DISCRETE_H
#define HY_SEARCH_DISCRETE_H

#include "search/search.h"

/* 0, or -EINVAL with a sentence; `who` needs it ("a grid"). */
int hy_counted_check(const struct hy_dim *dim, const char *who, struct hy_err *err);
/* How many there are, at most 2^54 + 1. */
uint64_t hy_counted_width(const struct hy_dim *dim);
/* The n-th, from 0. */
struct hy_value hy_counted_at(const struct hy_dim *dim, uint64_t n);

#endif
