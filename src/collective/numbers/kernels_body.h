/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops, for the compiler to make vectors of. Whoever includes this defines
 *
 *   KERNEL          what goes before each function, such as target("avx2")
 *   KERNELS         the table's name
 *   widen_f16(float *, const void *, size_t), narrow_f16(void *, const float *, size_t)
 */
#include <string.h>

#include "collective/numbers/kernels.h"

/* No iteration needs what another one has stored: `out` is an input, or apart from it, never shifted. */
#if defined(__clang__)
#define EACH_ALONE /* its way to say so is a warning where it makes no vectors */
#else
#define EACH_ALONE _Pragma("GCC ivdep")
#endif

/* The types as they may lie anywhere. */
#define ANYWHERE __attribute__((aligned(1)))
typedef uint8_t any_uint8_t ANYWHERE;
typedef int8_t any_int8_t ANYWHERE;
typedef uint16_t any_uint16_t ANYWHERE;
typedef int16_t any_int16_t ANYWHERE;
typedef uint32_t any_uint32_t ANYWHERE;
typedef int32_t any_int32_t ANYWHERE;
typedef uint64_t any_uint64_t ANYWHERE;
typedef int64_t any_int64_t ANYWHERE;
typedef float any_float ANYWHERE;
typedef double any_double ANYWHERE;

#define PAIR(name, T, expression)                                                                                      \
    KERNEL static void name(void *to, const void *left, const void *right, size_t count)                               \
    {                                                                                                                  \
        any_##T *out = to;                                                                                             \
        const any_##T *lefts = left, *rights = right;                                                                  \
                                                                                                                       \
        EACH_ALONE for (size_t i = 0; i < count; i++)                                                                  \
        {                                                                                                              \
            T a = lefts[i], b = rights[i];                                                                             \
                                                                                                                       \
            out[i] = (T)(expression);                                                                                  \
        }                                                                                                              \
    }

/* Integers wrap around; so sums and products of signed ones are those of unsigned ones. */
PAIR(add_8, uint8_t, a + b)
PAIR(add_16, uint16_t, a + b)
PAIR(add_32, uint32_t, a + b)
PAIR(add_64, uint64_t, a + b)
PAIR(multiply_8, uint8_t, (a * b))
PAIR(multiply_16, uint16_t, ((uint32_t)a * b))
PAIR(multiply_32, uint32_t, (a * b))
PAIR(multiply_64, uint64_t, (a * b))

PAIR(min_u8, uint8_t, a < b ? a : b)
PAIR(max_u8, uint8_t, a > b ? a : b)
PAIR(min_i8, int8_t, a < b ? a : b)
PAIR(max_i8, int8_t, a > b ? a : b)
PAIR(min_u16, uint16_t, a < b ? a : b)
PAIR(max_u16, uint16_t, a > b ? a : b)
PAIR(min_i16, int16_t, a < b ? a : b)
PAIR(max_i16, int16_t, a > b ? a : b)
PAIR(min_u32, uint32_t, a < b ? a : b)
PAIR(max_u32, uint32_t, a > b ? a : b)
PAIR(min_i32, int32_t, a < b ? a : b)
PAIR(max_i32, int32_t, a > b ? a : b)
PAIR(min_u64, uint64_t, a < b ? a : b)
PAIR(max_u64, uint64_t, a > b ? a : b)
PAIR(min_i64, int64_t, a < b ? a : b)
PAIR(max_i64, int64_t, a > b ? a : b)

/* A NaN wins, as in NumPy's minimum and maximum; `|`, not `||`, leaves no branch. */
PAIR(add_f32, float, a + b)
PAIR(multiply_f32, float, (a * b))
PAIR(min_f32, float, ((a < b) | (a != a)) ? a : b)
PAIR(max_f32, float, ((a > b) | (a != a)) ? a : b)
PAIR(add_f64, double, a + b)
PAIR(multiply_f64, double, (a * b))
PAIR(min_f64, double, ((a < b) | (a != a)) ? a : b)
PAIR(max_f64, double, ((a > b) | (a != a)) ? a : b)

PAIR(or_bool, uint8_t, (a | b) != 0)
PAIR(and_bool, uint8_t, (a != 0) & (b != 0))

/* By a factor of the same type: what Horovod does, so that results are the same to the last bit. */
#define SCALE(name, T)                                                                                                 \
    KERNEL static void name(void *to, const void *from, size_t count, double factor)                                   \
    {                                                                                                                  \
        any_##T *out = to;                                                                                             \
        const any_##T *in = from;                                                                                      \
        const T by = (T)factor;                                                                                        \
                                                                                                                       \
        EACH_ALONE for (size_t i = 0; i < count; i++) out[i] = in[i] * by;                                             \
    }

SCALE(scale_f32, float)
SCALE(scale_f64, double)

/* ---- bfloat16: the upper half of a float32 ------------------------------------------ */

KERNEL static void widen_bf16(float *out, const void *from, size_t count)
{
    const any_uint16_t *in = from;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)in[i] << 16;

        memcpy(&out[i], &bits, sizeof bits);
    }
}

KERNEL static void narrow_bf16(void *to, const float *in, size_t count)
{
    any_uint16_t *out = to;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits, rounded;

        memcpy(&bits, &in[i], sizeof bits);
        rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        /* Rounding could make an infinity of a NaN; it is cut, and kept quiet. */
        out[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded);
    }
}

/* ---- the table ----------------------------------------------------------------------- */

#define ROW(sum, min, max, product)                                                                                    \
    {[HY_SUM] = sum, [HY_AVERAGE] = sum, [HY_MIN] = min, [HY_MAX] = max, [HY_PRODUCT] = product}

const struct hy_kernels KERNELS = {
    .pair =
        {
            [HY_U8] = ROW(add_8, min_u8, max_u8, multiply_8),
            [HY_I8] = ROW(add_8, min_i8, max_i8, multiply_8),
            [HY_U16] = ROW(add_16, min_u16, max_u16, multiply_16),
            [HY_I16] = ROW(add_16, min_i16, max_i16, multiply_16),
            [HY_U32] = ROW(add_32, min_u32, max_u32, multiply_32),
            [HY_I32] = ROW(add_32, min_i32, max_i32, multiply_32),
            [HY_U64] = ROW(add_64, min_u64, max_u64, multiply_64),
            [HY_I64] = ROW(add_64, min_i64, max_i64, multiply_64),
            [HY_F32] = ROW(add_f32, min_f32, max_f32, multiply_f32),
            [HY_F64] = ROW(add_f64, min_f64, max_f64, multiply_f64),
            [HY_BOOL] = ROW(or_bool, and_bool, or_bool, and_bool),
        },
    .widen = {[HY_F16] = widen_f16, [HY_BF16] = widen_bf16},
    .narrow = {[HY_F16] = narrow_f16, [HY_BF16] = narrow_bf16},
    .scale_f32 = scale_f32,
    .scale_f64 = scale_f64,
};
