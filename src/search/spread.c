/* SPDX-License-Identifier: Apache-2.0 */
#include "search/spread.h"

#include <math.h>

#include "base/rng.h"

#define BITS 32 /* of a Sobol point before scrambling */
#define DEGREE_MAX 9
/* One seed for all purposes: these keep them apart. */
#define SOBOL_STREAM 0x736f626f6c000000ULL
#define LATIN_STREAM 0x6c6174696e000000ULL

/* A primitive polynomial over GF(2) with all of its coefficients, and as many odd numbers as its degree. */
struct direction {
    uint16_t polynomial;
    uint16_t initial[DEGREE_MAX];
};

/*
 * S. Joe and F. Y. Kuo, "Constructing Sobol sequences with better two-dimensional
 * projections", SIAM J. Sci. Comput. 30 (2008): their table new-joe-kuo-6, from its
 * second dimension on. The first one has no polynomial: its numbers are all 1.
 */
static const struct direction directions[HY_SOBOL_DIMS - 1] = {
    {3, {1}},
    {7, {1, 3}},
    {11, {1, 3, 1}},
    {13, {1, 1, 1}},
    {19, {1, 1, 3, 3}},
    {25, {1, 3, 5, 13}},
    {37, {1, 1, 5, 5, 17}},
    {41, {1, 1, 5, 5, 5}},
    {47, {1, 1, 7, 11, 19}},
    {55, {1, 1, 5, 1, 1}},
    {59, {1, 1, 1, 3, 11}},
    {61, {1, 3, 5, 5, 31}},
    {67, {1, 3, 3, 9, 7, 49}},
    {91, {1, 1, 1, 15, 21, 21}},
    {97, {1, 3, 1, 13, 27, 49}},
    {103, {1, 1, 1, 15, 7, 5}},
    {109, {1, 3, 1, 15, 13, 25}},
    {115, {1, 1, 5, 5, 19, 61}},
    {131, {1, 3, 7, 11, 23, 15, 103}},
    {137, {1, 3, 7, 13, 13, 15, 69}},
    {143, {1, 1, 3, 13, 7, 35, 63}},
    {145, {1, 3, 5, 9, 1, 25, 53}},
    {157, {1, 3, 1, 13, 9, 35, 107}},
    {167, {1, 3, 1, 5, 27, 61, 31}},
    {171, {1, 1, 5, 11, 19, 41, 61}},
    {185, {1, 3, 5, 3, 3, 13, 69}},
    {191, {1, 1, 7, 13, 1, 19, 1}},
    {193, {1, 3, 7, 5, 13, 19, 59}},
    {203, {1, 1, 3, 9, 25, 29, 41}},
    {211, {1, 3, 5, 13, 23, 1, 55}},
    {213, {1, 3, 7, 3, 13, 59, 17}},
    {229, {1, 3, 1, 3, 5, 53, 69}},
    {239, {1, 1, 5, 5, 23, 33, 13}},
    {241, {1, 1, 7, 7, 1, 61, 123}},
    {247, {1, 1, 7, 9, 13, 61, 49}},
    {253, {1, 3, 3, 5, 3, 55, 33}},
    {285, {1, 3, 1, 15, 31, 13, 49, 245}},
    {299, {1, 3, 5, 15, 31, 59, 63, 97}},
    {301, {1, 3, 1, 11, 11, 11, 77, 249}},
    {333, {1, 3, 1, 11, 27, 43, 71, 9}},
    {351, {1, 1, 7, 15, 21, 11, 81, 45}},
    {355, {1, 3, 7, 3, 25, 31, 65, 79}},
    {357, {1, 3, 1, 1, 19, 11, 3, 205}},
    {361, {1, 1, 5, 9, 19, 21, 29, 157}},
    {369, {1, 3, 7, 11, 1, 33, 89, 185}},
    {391, {1, 3, 3, 3, 15, 9, 79, 71}},
    {397, {1, 3, 7, 11, 15, 39, 119, 27}},
    {425, {1, 1, 3, 1, 11, 31, 97, 225}},
    {451, {1, 1, 1, 3, 23, 43, 57, 177}},
    {463, {1, 3, 7, 7, 17, 17, 37, 71}},
    {487, {1, 3, 1, 5, 27, 63, 123, 213}},
    {501, {1, 1, 3, 5, 11, 43, 53, 133}},
    {529, {1, 3, 5, 5, 29, 17, 47, 173, 479}},
    {539, {1, 3, 3, 11, 3, 1, 109, 9, 69}},
    {545, {1, 1, 1, 5, 17, 39, 23, 5, 343}},
    {557, {1, 3, 1, 5, 25, 15, 31, 103, 499}},
    {563, {1, 1, 1, 11, 11, 17, 63, 105, 183}},
    {601, {1, 1, 5, 11, 9, 29, 97, 231, 363}},
    {607, {1, 1, 5, 15, 19, 45, 41, 7, 383}},
    {617, {1, 3, 7, 7, 31, 19, 83, 137, 221}},
    {623, {1, 1, 1, 3, 23, 15, 111, 223, 83}},
    {631, {1, 1, 5, 13, 31, 15, 55, 25, 161}},
    {637, {1, 1, 3, 13, 25, 47, 39, 87, 257}},
};

/* A hash of two numbers, by the generator that all searches use. */
static uint64_t hash(uint64_t a, uint64_t b)
{
    struct hy_rng rng;

    hy_rng_seed(&rng, a, b);
    return hy_rng_next(&rng);
}

/* ---- Sobol ----------------------------------------------------------------- */

/* The direction numbers as binary fractions: the lowest bit of v[k] has the value 2^-(k + 1). */
static void make_directions(size_t dim, uint32_t v[BITS])
{
    const struct direction *d = dim > 0 ? &directions[dim - 1] : NULL;
    unsigned degree = d ? 31 - (unsigned)__builtin_clz(d->polynomial) : BITS;

    for (unsigned k = 0; k < BITS; k++) {
        if (k < degree) {
            v[k] = (uint32_t)(d ? d->initial[k] : 1) << (BITS - 1 - k);
            continue;
        }
        v[k] = v[k - degree] ^ (v[k - degree] >> degree);
        for (unsigned j = 1; j < degree; j++)
            if (d->polynomial >> (degree - j) & 1)
                v[k] ^= v[k - j];
    }
}

static uint32_t sobol_bits(size_t dim, uint32_t i)
{
    uint32_t v[BITS], bits = 0;

    make_directions(dim, v);
    for (unsigned k = 0; k < BITS; k++)
        if (i >> k & 1)
            bits ^= v[k];
    return bits;
}

/* The `count` highest bits, below a 1 that tells how many they are. */
static uint64_t prefix(uint32_t bits, unsigned count)
{
    return ((uint64_t)1 << BITS | bits) >> (BITS - count);
}

/*
 * Owen's nested scrambling: whether a bit is flipped depends on all higher bits. It maps
 * aligned blocks of 2^k numbers to such blocks, which is why Sobol points stay even.
 */
static uint32_t scramble(uint64_t key, uint32_t bits)
{
    uint32_t flips = 0;

    for (unsigned k = 0; k < BITS; k++)
        flips |= (uint32_t)(hash(key, prefix(bits, k)) & 1) << (BITS - 1 - k);
    return bits ^ flips;
}

/* In (0, 1). The 20 bits that follow those of the sequence are random in Owen's scrambling; the half excludes 0 and 1.
 */
static double scrambled_unit(uint64_t key, uint32_t bits)
{
    double below = ((double)(hash(key, prefix(bits, BITS)) >> 44) + 0.5) * 0x1p-20;

    return ((double)scramble(key, bits) + below) * 0x1p-32;
}

void hy_sobol_point(uint64_t seed, uint64_t i, size_t dims, double *ret)
{
    uint64_t key = hash(seed ^ SOBOL_STREAM, i >> BITS);
    uint32_t index = (uint32_t)i;

    for (size_t dim = 0; dim < dims; dim++) {
        uint64_t dim_key = hash(key, dim);

        if (dim > 0 && dim % HY_SOBOL_DIMS == 0)
            index = scramble(~dim_key, (uint32_t)i);
        ret[dim] = scrambled_unit(dim_key, sobol_bits(dim % HY_SOBOL_DIMS, index));
    }
}

/* ---- Latin hypercube ------------------------------------------------------- */

static unsigned bit_width(uint32_t n)
{
    return 32 - (unsigned)__builtin_clz(n);
}

/*
 * Where the permutation of [0, n) that `key` names puts x: the swap-or-not shuffle (Hoang,
 * Morris and Rogaway, 2012). Every round pairs the numbers by a random sum, and
 * swaps each pair or not.
 */
static uint64_t permute(uint64_t key, uint64_t n, uint64_t x)
{
    unsigned rounds = 32 + 4 * bit_width((uint32_t)n);

    for (unsigned r = 0; r < rounds; r++) {
        uint64_t round_key = hash(key, r), sum = round_key % n;
        uint64_t partner = sum >= x ? sum - x : sum + (n - x);

        if (hash(round_key, x > partner ? x : partner) & 1)
            x = partner;
    }
    return x;
}

void hy_latin_point(uint64_t seed, uint32_t n, uint64_t i, size_t dims, double *ret)
{
    uint64_t key = hash(seed ^ LATIN_STREAM, i / n);
    unsigned bits = 52 - bit_width(n); /* of the place within a part: the sum below is exact */

    for (size_t dim = 0; dim < dims; dim++) {
        uint64_t dim_key = hash(key, dim);
        double within = ldexp((double)(hash(~dim_key, i) >> (64 - bits)) + 0.5, -(int)bits);

        ret[dim] = ((double)permute(dim_key, n, i % n) + within) / n;
    }
}
