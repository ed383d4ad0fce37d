/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops behind reduce.h, one table of them for each kind of processor.
 * kernels_body.h is written once and compiled twice: by kernels_plain.c for any
 * processor, by kernels_wide.c for one with AVX2 and F16C. Both give the same
 * bits, but for the payload of a NaN.
 *
 * In a loop `out` may be one of the inputs, or lie apart from them; nothing is
 * aligned. Only files of this part, and its tests, look in here.
 */
#ifndef HY_COLLECTIVE_KERNELS_H
#define HY_COLLECTIVE_KERNELS_H

#include "collective/numbers/reduce.h"

typedef void (*hy_pair)(void *out, const void *a, const void *b, size_t count);

struct hy_kernels {
    /* out = a op b. Of float16 and bfloat16 there is none: they are done in float32, by the next two. */
    hy_pair pair[HY_TYPES][HY_PRODUCT + 1];
    /* To float32, exactly, and back, to nearest, ties to even. NULL: the type needs none. */
    void (*widen[HY_TYPES])(float *out, const void *in, size_t count);
    void (*narrow[HY_TYPES])(void *out, const float *in, size_t count);
    void (*scale_f32)(void *out, const void *in, size_t count, double factor);
    void (*scale_f64)(void *out, const void *in, size_t count, double factor);
};

extern const struct hy_kernels hy_kernels_plain;
extern const struct hy_kernels hy_kernels_avx2; /* x86 only; ask first: */
const struct hy_kernels *hy_kernels_wide(void); /* NULL: this processor has not got what they need */

/* hy_reduce and hy_scale with these loops. */
void hy_reduce_by(const struct hy_kernels *k, void *out, const void *const *sources, size_t source_count, size_t count,
                  enum hy_type type, enum hy_reduce op);
void hy_scale_by(const struct hy_kernels *k, void *out, const void *in, size_t count, enum hy_type type, double factor);

#endif
