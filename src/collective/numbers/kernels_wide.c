/* SPDX-License-Identifier: Apache-2.0 */
/* For x86 with AVX2 and F16C (from 2013 on); memory could not keep up with AVX-512. See kernels.h. */
#include "base/half.h"
#include "collective/numbers/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define KERNEL __attribute__((target("avx2,f16c")))
#define KERNELS hy_kernels_avx2

KERNEL static void widen_f16(float *out, const void *from, size_t count)
{
    const char *in = from;
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + 2 * i))));
    for (; i < count; i++)
        out[i] = hy_f16_widen(in + 2 * i);
}

KERNEL static void narrow_f16(void *to, const float *in, size_t count)
{
    char *out = to;
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(out + 2 * i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    for (; i < count; i++)
        hy_f16_narrow(out + 2 * i, in[i]);
}

#include "collective/numbers/kernels_body.h"

#if defined(__clang__) /* has no word for it, and no processor is known to have AVX2 only */
#define HAS_F16C 1
#else
#define HAS_F16C __builtin_cpu_supports("f16c")
#endif

/* Looks at bits that were collected when the program started: cheap enough for every call. */
const struct hy_kernels *hy_kernels_wide(void)
{
    return __builtin_cpu_supports("avx2") && HAS_F16C ? &hy_kernels_avx2 : NULL;
}

#else

const struct hy_kernels *hy_kernels_wide(void)
{
    return NULL;
}

#endif
