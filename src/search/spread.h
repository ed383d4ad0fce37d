/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Points that cover the unit cube more evenly than random ones, for the first trials of
 * a search; private to this part.
 *
 * A point is a pure function of the seed and its number (from 0): nothing is stored,
 * and points can be made in any order. Every coordinate is strictly between 0 and 1, so
 * it has a normal quantile. One seed for two purposes gives the same points twice: add
 * a constant to one of them.
 */
#ifndef HY_SEARCH_SPREAD_H
#define HY_SEARCH_SPREAD_H

#include <stddef.h>
#include <stdint.h>

/* Dimensions with direction numbers of their own. */
#define HY_SOBOL_DIMS 64

/*
 * A Sobol sequence with Owen's scrambling. Any prefix of it is spread evenly, best those
 * whose length is a power of 2; so it suits a number of trials that is not known.
 *
 * Dimensions beyond HY_SOBOL_DIMS: every further block of as many is the same sequence in
 * another order and with another scrambling. Within a block points are spread as evenly
 * as in the first one; two dimensions of different blocks are combined at random, as in a
 * Latin hypercube. After 2^32 points, a sequence with another scrambling follows.
 */
void hy_sobol_point(uint64_t seed, uint64_t i, size_t dims, double *ret);

/*
 * A Latin hypercube of n > 0 points: one in every n-th part of every dimension, combined
 * at random. From i = n on, other hypercubes of n points follow.
 */
void hy_latin_point(uint64_t seed, uint32_t n, uint64_t i, size_t dims, double *ret);

#endif
