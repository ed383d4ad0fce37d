/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discrete dimensions, which grids and paired lists need: categories and ranges of
 * integers; private to this part.
 */
#ifndef HY_SEARCH_DISCRETE_H
#define HY_SEARCH_DISCRETE_H

#include "search/search.h"

/* 0, or -EINVAL with a sentence; `search` names the search for it ("a grid"). */
int hy_discrete_check(const struct hy_dim *dim, const char *search, struct hy_err *err);
/* How many there are, at most 2^54 + 1. */
uint64_t hy_discrete_width(const struct hy_dim *dim);
/* The n-th, from 0. */
struct hy_value hy_discrete_at(const struct hy_dim *dim, uint64_t n);

#endif
