/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done to numbers: one table of kernels by type and operation, each in
 * a plain form and, where the processor has it, a wide one (chosen once, at run
 * time; both give the same bits, but for what is in a NaN).
 * min and max are NumPy's minimum and maximum: a NaN wins.
 *
 * Sources are combined in the order given, so whoever combines the same
 * contributions in the same order gets the same bits. float16 and bfloat16 are
 * summed in float32 and rounded once. All are pure; any pointer alignment will do.
 */
#ifndef HY_COLLECTIVE_REDUCE_H
#define HY_COLLECTIVE_REDUCE_H

#include "collective/numbers/types.h"

/* out = sources[0] op sources[1] op ... (count elements each). `out` may be one of the sources;
 * otherwise nothing overlaps. HY_AVERAGE is HY_SUM here (whoever ends a reduction scales it);
 * HY_ADASUM is not a matter of elements: see adasum.h. source_count >= 1. */
void hy_reduce(void *out, const void *const *sources, size_t source_count, size_t count, enum hy_type type,
               enum hy_reduce op);

/* out = in * factor, rounded to the type (integers: computed in double, cut towards zero; 64-bit ones in long
 * double; a factor that is 1.0 / n divides them by n, so that averages are exact; instead of what does not
 * fit the nearest that does). in == out is fine; factor 1 is a copy. bool: a copy. */
void hy_scale(void *out, const void *in, size_t count, enum hy_type type, double factor);

/* float16 and bfloat16 to float32, and back (to nearest, ties to even). */
void hy_widen(float *out, const void *in, size_t count, enum hy_type type);
void hy_narrow(void *out, const float *in, size_t count, enum hy_type type);

#endif
