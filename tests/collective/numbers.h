/* SPDX-License-Identifier: Apache-2.0 */
/* Reference arithmetic for all types, one element at a time: the suites of src/collective compare with it. */
#ifndef HY_TESTS_NUMBERS_H
#define HY_TESTS_NUMBERS_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "collective/numbers/types.h"

typedef __int128 whole; /* holds every 64-bit integer, signed or not */

struct number {
    whole whole;
    double real;
};

static inline bool is_real(enum hy_type type)
{
    return type == HY_F16 || type == HY_BF16 || type == HY_F32 || type == HY_F64;
}

/* ---- float16 and bfloat16 by definition: significand and exponent ---- */

static inline double real_of_half(uint16_t bits, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1), fraction = bits & ((1 << fraction_bits) - 1);
    double size = exponent ? ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)
                           : ldexp(fraction, 1 - bias - fraction_bits);

    if (exponent == (1 << exponent_bits) - 1)
        size = fraction ? NAN : INFINITY;
    return bits & 0x8000 ? -size : size;
}

static inline uint16_t half_of_real(double real, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1, exponent = 1 - bias;
    uint16_t sign = signbit(real) ? 0x8000 : 0, infinity = (uint16_t)(((1 << exponent_bits) - 1) << fraction_bits);
    double size = fabs(real);
    uint64_t bits;

    if (isnan(real))
        return sign | infinity | 1;
    if (isinf(real))
        return sign | infinity;
    if (size > 0 && ilogb(size) > exponent)
        exponent = ilogb(size);
    /* In units of that exponent, to nearest even; a carry into the leading bit increments the exponent. */
    bits = ((uint64_t)(exponent + bias - 1) << fraction_bits) +
           (uint64_t)nearbyint(ldexp(size, fraction_bits - exponent));
    return sign | (bits < infinity ? (uint16_t)bits : infinity);
}

/* ---- any type ---- */

#define GET(T, field)                                                                                                  \
    ({                                                                                                                 \
        T value_;                                                                                                      \
        memcpy(&value_, p, sizeof value_);                                                                             \
        (struct number){.field = value_};                                                                              \
    })

static inline struct number number_get(enum hy_type type, const void *base, size_t i)
{
    const char *p = (const char *)base + i * hy_type_size(type);

    switch (type) {
    case HY_U8:
        return GET(uint8_t, whole);
    case HY_I8:
        return GET(int8_t, whole);
    case HY_U16:
        return GET(uint16_t, whole);
    case HY_I16:
        return GET(int16_t, whole);
    case HY_U32:
        return GET(uint32_t, whole);
    case HY_I32:
        return GET(int32_t, whole);
    case HY_U64:
        return GET(uint64_t, whole);
    case HY_I64:
        return GET(int64_t, whole);
    case HY_F16:
        return (struct number){.real = real_of_half((uint16_t)GET(uint16_t, whole).whole, 5)};
    case HY_BF16:
        return (struct number){.real = real_of_half((uint16_t)GET(uint16_t, whole).whole, 8)};
    case HY_F32:
        return GET(float, real);
    case HY_F64:
        return GET(double, real);
    default:
        return (struct number){.whole = *p != 0};
    }
}

static inline void number_put(enum hy_type type, void *base, size_t i, struct number n)
{
    size_t size = hy_type_size(type);
    char *p = (char *)base + i * size;

    if (type == HY_F16 || type == HY_BF16)
        memcpy(p, &(uint16_t){half_of_real(n.real, type == HY_F16 ? 5 : 8)}, size);
    else if (type == HY_F32)
        memcpy(p, &(float){(float)n.real}, size);
    else if (type == HY_F64)
        memcpy(p, &n.real, size);
    else
        memcpy(p, &n.whole, size); /* little-endian: the lower bytes are the number, wrapped around */
}

/* A small integer: sums of a few are exact in every type, in any order. */
static inline void number_put_small(enum hy_type type, void *base, size_t i, int small)
{
    if (type == HY_BOOL)
        small = small & 1;
    number_put(type, base, i, (struct number){.whole = small, .real = small});
}

static inline whole whole_op(enum hy_type type, enum hy_reduce op, whole a, whole b)
{
    if (type == HY_BOOL)
        return op == HY_MIN || op == HY_PRODUCT ? a && b : a || b;
    switch (op) {
    case HY_MIN:
        return a < b ? a : b;
    case HY_MAX:
        return a > b ? a : b;
    case HY_PRODUCT:
        return (whole)((unsigned __int128)a * (unsigned __int128)b);
    default:
        return a + b;
    }
}

/* The sum or product of two float32 in double, rounded to float32, equals the result in float32. */
static inline double real_op(enum hy_type type, enum hy_reduce op, double a, double b)
{
    double result;

    switch (op) {
    case HY_MIN:
        result = isnan(a) || a < b ? a : b;
        break;
    case HY_MAX:
        result = isnan(a) || a > b ? a : b;
        break;
    case HY_PRODUCT:
        result = a * b;
        break;
    default:
        result = a + b;
        break;
    }
    return type == HY_F64 ? result : (float)result;
}

static inline void number_reduce(void *out, const void *const *sources, size_t source_count, size_t count,
                                 enum hy_type type, enum hy_reduce op)
{
    for (size_t i = 0; i < count; i++) {
        struct number sum = number_get(type, sources[0], i);

        for (size_t s = 1; s < source_count; s++) {
            struct number next = number_get(type, sources[s], i);

            sum.whole = whole_op(type, op, sum.whole, next.whole);
            if (type != HY_BOOL && !is_real(type)) { /* wrapped around in its own type */
                uint64_t wrapped = 0;

                number_put(type, &wrapped, 0, sum);
                sum = number_get(type, &wrapped, 0);
            }
            sum.real = real_op(type, op, sum.real, next.real);
        }
        number_put(type, out, i, sum);
    }
}

/* Bitwise comparison, except that all NaNs are equal. */
static inline bool numbers_same(enum hy_type type, const void *a, const void *b, size_t count)
{
    size_t size = hy_type_size(type);

    if (!memcmp(a, b, count * size))
        return true;
    for (size_t i = 0; i < count; i++)
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) &&
            !(is_real(type) && isnan(number_get(type, a, i).real) && isnan(number_get(type, b, i).real)))
            return false;
    return true;
}

/* Random bits (bool: 0 and 1); for floats also infinities, NaNs, zeros and subnormals. */
static inline void numbers_random(struct hy_rng *rng, enum hy_type type, void *base, size_t count)
{
    static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1.0, -1.0, 65504.0, 0x1p-24, 0x1p-149};
    size_t size = hy_type_size(type);

    for (size_t i = 0; i < count; i++) {
        uint64_t bits = hy_rng_next(rng);

        memcpy((char *)base + i * size, &bits, size);
        if (type == HY_BOOL)
            number_put_small(type, base, i, (int)(bits & 1));
        else if (is_real(type) && bits >> 60 == 0)
            number_put(type, base, i, (struct number){.real = special[(bits >> 32) % 10]});
    }
}

#endif
