/* SPDX-License-Identifier: Apache-2.0 */
/* Values are aligned to their size in input and output. float16 is cast by way of float32, in pieces. */
#include "feed/cast.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

#define PIECE 256

static bool is_integer(enum hy_dtype dtype)
{
    return dtype >= HY_DTYPE_INT8 && dtype <= HY_DTYPE_UINT64;
}

static bool is_float(enum hy_dtype dtype)
{
    return dtype >= HY_DTYPE_FLOAT16 && dtype <= HY_DTYPE_FLOAT64;
}

bool hy_cast_is_safe(enum hy_dtype from, enum hy_dtype to)
{
    if (to == HY_DTYPE_BYTES || to == HY_DTYPE_STR)
        return from == HY_DTYPE_BYTES || from == HY_DTYPE_STR;
    if (is_float(to))
        return hy_dtype_size(from) > 0;
    return from == to || (is_integer(to) && (is_integer(from) || from == HY_DTYPE_BOOL));
}

/* ---- one loop for each pair of types ------------------------------------------------- */

#define LOOP(statement)                                                                                                \
    for (size_t i = 0; i < n; i++)                                                                                     \
        statement;                                                                                                     \
    break

#define FROM_INTEGERS(EACH)                                                                                            \
    case HY_DTYPE_INT8:                                                                                                \
        LOOP(EACH(int8_t));                                                                                            \
    case HY_DTYPE_INT16:                                                                                               \
        LOOP(EACH(int16_t));                                                                                           \
    case HY_DTYPE_INT32:                                                                                               \
        LOOP(EACH(int32_t));                                                                                           \
    case HY_DTYPE_INT64:                                                                                               \
        LOOP(EACH(int64_t));                                                                                           \
    case HY_DTYPE_UINT8:                                                                                               \
        LOOP(EACH(uint8_t));                                                                                           \
    case HY_DTYPE_UINT16:                                                                                              \
        LOOP(EACH(uint16_t));                                                                                          \
    case HY_DTYPE_UINT32:                                                                                              \
        LOOP(EACH(uint32_t));                                                                                          \
    case HY_DTYPE_UINT64:                                                                                              \
        LOOP(EACH(uint64_t))

#define FROM(type) ((const type *)values)[i]
#define TRUTH to[i] = FROM(uint8_t) != 0
#define CHECKED(type) overflow |= __builtin_add_overflow(FROM(type), (type)0, &to[i])
#define ROUNDED(type) to[i] = (__typeof__(to[0]))FROM(type)

#define TO_INTEGER(type)                                                                                               \
    static bool to_##type(enum hy_dtype from, const void *values, size_t n, type *to)                                  \
    {                                                                                                                  \
        bool overflow = false;                                                                                         \
                                                                                                                       \
        switch (from) {                                                                                                \
            FROM_INTEGERS(CHECKED);                                                                                    \
        default: /* a bool */                                                                                          \
            LOOP(TRUTH);                                                                                               \
        }                                                                                                              \
        return !overflow;                                                                                              \
    }

#define TO_FLOAT(type)                                                                                                 \
    static void to_##type(enum hy_dtype from, const void *values, size_t n, type *to)                                  \
    {                                                                                                                  \
        switch (from) {                                                                                                \
            FROM_INTEGERS(ROUNDED);                                                                                    \
        case HY_DTYPE_FLOAT32:                                                                                         \
            LOOP(ROUNDED(float));                                                                                      \
        case HY_DTYPE_FLOAT64:                                                                                         \
            LOOP(ROUNDED(double));                                                                                     \
        case HY_DTYPE_FLOAT16:                                                                                         \
            LOOP(to[i] = hy_f16_widen((const uint16_t *)values + i));                                                  \
        default: /* a bool */                                                                                          \
            LOOP(TRUTH);                                                                                               \
        }                                                                                                              \
    }

TO_INTEGER(int8_t)
TO_INTEGER(int16_t)
TO_INTEGER(int32_t)
TO_INTEGER(int64_t)
TO_INTEGER(uint8_t)
TO_INTEGER(uint16_t)
TO_INTEGER(uint32_t)
TO_INTEGER(uint64_t)
TO_FLOAT(float)
TO_FLOAT(double)

static void to_bool(const void *values, size_t n, uint8_t *to)
{
    for (size_t i = 0; i < n; i++)
        TRUTH;
}

static void to_half(enum hy_dtype from, const uint8_t *values, size_t n, uint16_t *to)
{
    float floats[PIECE];

    for (size_t at = 0; at < n; at += PIECE) {
        const size_t count = n - at < PIECE ? n - at : PIECE;

        to_float(from, values + at * hy_dtype_size(from), count, floats);
        for (size_t i = 0; i < count; i++)
            hy_f16_narrow(to + at + i, floats[i]);
    }
}

/* ---- dispatch ------------------------------------------------------------------------ */

static bool to_integer(enum hy_dtype from, const void *values, size_t n, enum hy_dtype to, void *ret)
{
    switch (to) {
    case HY_DTYPE_INT8:
        return to_int8_t(from, values, n, ret);
    case HY_DTYPE_INT16:
        return to_int16_t(from, values, n, ret);
    case HY_DTYPE_INT32:
        return to_int32_t(from, values, n, ret);
    case HY_DTYPE_INT64:
        return to_int64_t(from, values, n, ret);
    case HY_DTYPE_UINT8:
        return to_uint8_t(from, values, n, ret);
    case HY_DTYPE_UINT16:
        return to_uint16_t(from, values, n, ret);
    case HY_DTYPE_UINT32:
        return to_uint32_t(from, values, n, ret);
    default:
        return to_uint64_t(from, values, n, ret);
    }
}

int hy_cast(enum hy_dtype from, const void *values, size_t n, enum hy_dtype to, void *ret)
{
    if (to == HY_DTYPE_BOOL)
        to_bool(values, n, ret);
    else if (from == to && n > 0)
        memcpy(ret, values, n * hy_dtype_size(to));
    else if (to == HY_DTYPE_FLOAT16)
        to_half(from, values, n, ret);
    else if (to == HY_DTYPE_FLOAT32)
        to_float(from, values, n, ret);
    else if (to == HY_DTYPE_FLOAT64)
        to_double(from, values, n, ret);
    else
        return to_integer(from, values, n, to, ret) ? 0 : -ERANGE;
    return 0;
}
