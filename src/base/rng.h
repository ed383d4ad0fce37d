/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers that are the same on every machine for the same seed
 * (xoshiro256**, seeded by splitmix64). Not for keys: use OpenSSL.
 */
#ifndef HY_BASE_RNG_H
#define HY_BASE_RNG_H

#include <stdint.h>

struct hy_rng {
    uint64_t s[4]; /* private */
};

/* `stream` selects independent sequences of one seed (one per trial, for example). */
void hy_rng_seed(struct hy_rng *r, uint64_t seed, uint64_t stream);
uint64_t hy_rng_next(struct hy_rng *r);
double hy_rng_double(struct hy_rng *r);               /* [0, 1) */
uint64_t hy_rng_below(struct hy_rng *r, uint64_t n);  /* [0, n), unbiased; n > 0 */

#endif
