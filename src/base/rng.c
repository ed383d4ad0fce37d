/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <assert.h>

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

void hy_rng_seed(struct hy_rng *r, uint64_t seed, uint64_t stream)
{
    uint64_t state = seed;

    state = splitmix(&state) ^ stream;
    for (int i = 0; i < 4; i++)
        r->s[i] = splitmix(&state);
}

uint64_t hy_rng_next(struct hy_rng *r)
{
    uint64_t *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

double hy_rng_double(struct hy_rng *r)
{
    return (double)(hy_rng_next(r) >> 11) * 0x1.0p-53;
}

uint64_t hy_rng_below(struct hy_rng *r, uint64_t n)
{
    uint64_t x, limit;

    assert(n > 0);
    limit = UINT64_MAX - (UINT64_MAX % n + 1) % n; /* the last full multiple of n */
    do
        x = hy_rng_next(r);
    while (x > limit);
    return x % n;
}
