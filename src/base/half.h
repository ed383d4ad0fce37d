/* SPDX-License-Identifier: Apache-2.0 */
/* float16 (IEEE 754 binary16), one at a time, bit for bit as F16C does it. */
#ifndef HY_BASE_HALF_H
#define HY_BASE_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline float hy_f32_of_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t hy_bits_of_f32(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Exact. A signaling NaN becomes a quiet one. */
static inline float hy_f16_widen(const void *from)
{
    uint16_t half;
    uint32_t sign, rest;

    memcpy(&half, from, sizeof half);
    sign = (uint32_t)(half & 0x8000) << 16;
    rest = half & 0x7fff;
    if (rest > 0x7c00)
        return hy_f32_of_bits(sign | 0x7fc00000 | rest << 13);
    if (rest == 0x7c00)
        return hy_f32_of_bits(sign | 0x7f800000);
    if (rest < 0x0400) /* zero or subnormal: a multiple of 2^-24 */
        return hy_f32_of_bits(hy_bits_of_f32((float)rest * 0x1p-24f) | sign);
    return hy_f32_of_bits(sign | ((rest << 13) + ((127 - 15) << 23)));
}

/* To nearest, ties to even; past 65504 to infinity. */
static inline void hy_f16_narrow(void *to, float f)
{
    uint32_t bits = hy_bits_of_f32(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff, half;

    if (rest > 0x7f800000)
        half = 0x7e00 | (rest >> 13 & 0x3ff); /* a NaN, made quiet */
    else if (rest >= 0x477ff000)              /* 65520, halfway to what would be 2^16 */
        half = 0x7c00;
    else if (rest < 0x38800000) /* below 2^-14: the sum's last bit is worth 2^-24, so the addition rounds */
        half = hy_bits_of_f32(hy_f32_of_bits(rest) + 0.5f) - 0x3f000000;
    else
        half = (rest - ((127 - 15) << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    half |= sign;
    memcpy(to, &(uint16_t){(uint16_t)half}, sizeof(uint16_t));
}

#endif
