/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parzen estimator: a density on the unit cube, estimated from points by a mixture of
 * one kernel per point and of the uniform distribution, all with the same weight; private
 * to this part.
 *
 * A kernel is a product over the dimensions. Of a number it is a normal distribution
 * around the point, truncated to [0, 1], as wide as the distance to the neighbors in this
 * dimension; of an integer it is widened by the part of [0, 1] that the integer covers. Of a
 * choice it is the point's choice with most of the probability. Densities are relative to
 * the uniform distribution.
 */
#ifndef HY_SEARCH_PARZEN_H
#define HY_SEARCH_PARZEN_H

#include <stddef.h>

#include "base/rng.h"
#include "search/search.h"

struct hy_parzen_center; /* private */

struct hy_parzen {
    const struct hy_space *space;
    size_t capacity;                 /* kernels */
    size_t count;                    /* kernels of the last fit, without the uniform distribution */
    const size_t *dims;              /* of the last fit */
    size_t dim_count;
    double *center, *width, *factor; /* private: by dimension, then by kernel */
    double *same, *other;            /* private, CATEGORY: logarithms, by dimension */
    double *log_norm, *scratch;      /* private: by kernel */
    struct hy_parzen_center *sorted; /* private: of one dimension */
};

int hy_parzen_init(struct hy_parzen *p, const struct hy_space *space, size_t capacity); /* 0, -ENOMEM */
void hy_parzen_done(struct hy_parzen *p);                                              /* all zero is fine */

/*
 * Estimates the density of `count` points (at most the capacity) in some dimensions, where none
 * of them is NAN. Keeps the pointer to `dims`; other functions look at no other dimension.
 */
void hy_parzen_fit(struct hy_parzen *p, const size_t *dims, size_t dim_count, const double *const *points,
                   size_t count);
/* Draws a point from the density; integers and choices as hy_dim_unit gives them. */
void hy_parzen_draw(const struct hy_parzen *p, struct hy_rng *rng, double *ret);
/* The logarithm of the density. Integers and choices are as hy_dim_unit gives them. */
double hy_parzen_log_density(const struct hy_parzen *p, const double *point);

#endif
