/* SPDX-License-Identifier: Apache-2.0 */
/* Which loops of kernels.h are run over what, in blocks that stay in the nearest cache. */
#include "collective/numbers/reduce.h"

#include <math.h>
#include <string.h>

#include "collective/numbers/kernels.h"

#define BLOCK_BYTES 4096u
#define BLOCK_FLOATS (BLOCK_BYTES / sizeof(float))

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static const void *at(const void *base, size_t offset)
{
    return (const char *)base + offset;
}

static const struct hy_kernels *kernels(void)
{
    const struct hy_kernels *wide = hy_kernels_wide();

    return wide ? wide : &hy_kernels_plain;
}

/* ---- reductions ------------------------------------------------------------------- */

/* Three and more: what is between is kept aside, since `out` may be a source that is still to come. */
static void reduce_block(hy_pair pair, char *out, const void *const *sources, size_t source_count, size_t offset,
                         size_t count)
{
    _Alignas(64) char sum[BLOCK_BYTES];
    size_t i = 2;

    pair(sum, at(sources[0], offset), at(sources[1], offset), count);
    for (; i + 1 < source_count; i++)
        pair(sum, sum, at(sources[i], offset), count);
    pair(out + offset, sum, at(sources[i], offset), count);
}

static void reduce_many(hy_pair pair, char *out, const void *const *sources, size_t source_count, size_t bytes,
                        size_t element)
{
    for (size_t done = 0; done < bytes; done += BLOCK_BYTES)
        reduce_block(pair, out, sources, source_count, done, smaller(BLOCK_BYTES, bytes - done) / element);
}

/* float16 and bfloat16: in float32, rounded once at the end. */
static void reduce_halves(const struct hy_kernels *k, char *out, const void *const *sources, size_t source_count,
                          size_t count, enum hy_type type, enum hy_reduce op)
{
    _Alignas(64) float sum[BLOCK_FLOATS], next[BLOCK_FLOATS];

    for (size_t done = 0, n; done < count; done += n) {
        n = smaller(BLOCK_FLOATS, count - done);
        k->widen[type](sum, at(sources[0], 2 * done), n);
        for (size_t i = 1; i < source_count; i++) {
            k->widen[type](next, at(sources[i], 2 * done), n);
            k->pair[HY_F32][op](sum, sum, next, n);
        }
        k->narrow[type](out + 2 * done, sum, n);
    }
}

void hy_reduce_by(const struct hy_kernels *k, void *out, const void *const *sources, size_t source_count, size_t count,
                  enum hy_type type, enum hy_reduce op)
{
    size_t element = hy_type_size(type);

    if (!count)
        return;
    if (source_count == 1) {
        if (out != sources[0])
            memcpy(out, sources[0], count * element);
    } else if (k->widen[type]) {
        reduce_halves(k, out, sources, source_count, count, type, op);
    } else if (source_count == 2) {
        k->pair[type][op](out, sources[0], sources[1], count);
    } else {
        reduce_many(k->pair[type][op], out, sources, source_count, count * element, element);
    }
}

void hy_reduce(void *out, const void *const *sources, size_t source_count, size_t count, enum hy_type type,
               enum hy_reduce op)
{
    hy_reduce_by(kernels(), out, sources, source_count, count, type, op);
}

/* ---- scaling ------------------------------------------------------------------------ */

static void scale_halves(const struct hy_kernels *k, char *out, const char *in, size_t count, enum hy_type type,
                         double factor)
{
    _Alignas(64) float block[BLOCK_FLOATS];

    for (size_t done = 0, n; done < count; done += n) {
        n = smaller(BLOCK_FLOATS, count - done);
        k->widen[type](block, in + 2 * done, n);
        k->scale_f32(block, block, n, factor);
        k->narrow[type](out + 2 * done, block, n);
    }
}

/*
 * n if `factor` is 1/n, else 0. Then integers are divided by n: 49 * (1.0 / 49) is a little less than 1, and
 * an average of ones must not be cut to 0.
 */
static int64_t divisor(double factor)
{
    double n = factor > 0x1p-31 && factor <= 1 ? nearbyint(1 / factor) : 0;

    return n > 0 && 1 / n == factor ? (int64_t)n : 0;
}

/* Integers; `R` holds every T exactly, `W` is 64 bits wide. What would be past T's end is its end. */
#define SCALE_INTEGER(T, R, W, low, high)                                                                              \
    static void scale_##T(char *out, const char *in, size_t count, double factor)                                      \
    {                                                                                                                  \
        W n = (W)divisor(factor);                                                                                      \
                                                                                                                       \
        for (size_t i = 0; i < count; i++) {                                                                           \
            T x;                                                                                                       \
            R scaled;                                                                                                  \
                                                                                                                       \
            memcpy(&x, in + i * sizeof x, sizeof x);                                                                   \
            scaled = (R)x * (R)factor;                                                                                 \
            x = n ? (T)((W)x / n) : scaled > (R)(low) ? scaled < (R)(high) ? (T)scaled : (high) : (low);               \
            memcpy(out + i * sizeof x, &x, sizeof x);                                                                  \
        }                                                                                                              \
    }

SCALE_INTEGER(uint8_t, double, uint64_t, 0, UINT8_MAX)
SCALE_INTEGER(int8_t, double, int64_t, INT8_MIN, INT8_MAX)
SCALE_INTEGER(uint16_t, double, uint64_t, 0, UINT16_MAX)
SCALE_INTEGER(int16_t, double, int64_t, INT16_MIN, INT16_MAX)
SCALE_INTEGER(uint32_t, double, uint64_t, 0, UINT32_MAX)
SCALE_INTEGER(int32_t, double, int64_t, INT32_MIN, INT32_MAX)
SCALE_INTEGER(uint64_t, long double, uint64_t, 0, UINT64_MAX)
SCALE_INTEGER(int64_t, long double, int64_t, INT64_MIN, INT64_MAX)

static void (*const scale_integers[HY_TYPES])(char *out, const char *in, size_t count, double factor) = {
    [HY_U8] = scale_uint8_t,   [HY_I8] = scale_int8_t,   [HY_U16] = scale_uint16_t, [HY_I16] = scale_int16_t,
    [HY_U32] = scale_uint32_t, [HY_I32] = scale_int32_t, [HY_U64] = scale_uint64_t, [HY_I64] = scale_int64_t,
};

void hy_scale_by(const struct hy_kernels *k, void *out, const void *in, size_t count, enum hy_type type, double factor)
{
    if (!count)
        return;
    if (factor == 1 || type == HY_BOOL) {
        if (out != in)
            memcpy(out, in, count * hy_type_size(type));
    } else if (type == HY_F32) {
        k->scale_f32(out, in, count, factor);
    } else if (type == HY_F64) {
        k->scale_f64(out, in, count, factor);
    } else if (k->widen[type]) {
        scale_halves(k, out, in, count, type, factor);
    } else {
        scale_integers[type](out, in, count, factor);
    }
}

void hy_scale(void *out, const void *in, size_t count, enum hy_type type, double factor)
{
    hy_scale_by(kernels(), out, in, count, type, factor);
}

void hy_widen(float *out, const void *in, size_t count, enum hy_type type)
{
    kernels()->widen[type](out, in, count);
}

void hy_narrow(void *out, const float *in, size_t count, enum hy_type type)
{
    kernels()->narrow[type](out, in, count);
}
