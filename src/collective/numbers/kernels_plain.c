/* SPDX-License-Identifier: Apache-2.0 */
/* For any processor: float16 by hand. See kernels.h. */
#include "base/half.h"

#define KERNEL
#define KERNELS hy_kernels_plain

static void widen_f16(float *out, const void *from, size_t count)
{
    const char *in = from;

    for (size_t i = 0; i < count; i++)
        out[i] = hy_f16_widen(in + 2 * i);
}

static void narrow_f16(void *to, const float *in, size_t count)
{
    char *out = to;

    for (size_t i = 0; i < count; i++)
        hy_f16_narrow(out + 2 * i, in[i]);
}

#include "collective/numbers/kernels_body.h"
