/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions and scaling of buffers: a table of kernels by type and operation, each in a plain form and, if the
 * processor supports it, a wide one (selected at run time; both give the same bits, except for the payload of NaNs).
 * min and max propagate NaN, as in NumPy.
 *
 * Sources are combined in the given order, so the same contributions in the same order give the same bits. float16 and
 * bfloat16 are summed in float32 and rounded once. All functions are pure; pointers need not be aligned.
 */
#ifndef HY_COLLECTIVE_REDUCE_H
#define HY_COLLECTIVE_REDUCE_H

#include "collective/numbers/types.h"

/* out = sources[0] op sources[1] op ... (count elements each). `out` may be one of the sources; otherwise buffers must
 * not overlap. HY_AVERAGE is HY_SUM here (the end of a reduction scales); HY_ADASUM is not elementwise: see
 * comm/adasum.c. source_count >= 1. */
void hy_reduce(void *out, const void *const *sources, size_t source_count, size_t count, enum hy_type type,
               enum hy_reduce op);

/* out = in * factor, rounded to the type. Integers are computed in double (64-bit ones in long double), truncated and
 * saturated; a factor of 1.0 / n divides them by n, so that averages are exact. in == out is fine; factor 1 is a copy.
 * bool: a copy. */
void hy_scale(void *out, const void *in, size_t count, enum hy_type type, double factor);

/* float16 and bfloat16 to float32, and back (to nearest, ties to even). */
void hy_widen(float *out, const void *in, size_t count, enum hy_type type);
void hy_narrow(void *out, const float *in, size_t count, enum hy_type type);

#endif
