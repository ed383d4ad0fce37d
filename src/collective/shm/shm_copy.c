/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies with ordinary or non-temporal stores.
 *
 * A slot is written by one core and read by others. To overwrite a line that is in another core's cache, a core has to
 * take ownership of it. That dominates the cost, in ns per line (AMD Zen 4):
 *
 *                                                      write   read
 *   shared cache, slots as large as it                     2      2
 *   shared cache, slots that stay in the reader's L2       7      2
 *   separate caches (two chiplets, sockets)               27      4
 *   non-temporal stores, anywhere                          1      4
 *
 * So rings are larger than an L2 cache, except where two members swap slots (shm_set.h), and where ordinary stores are
 * slow, slots are written with non-temporal stores. Which case applies cannot be queried, and changes when processes
 * migrate: each member measures it from time to time on its own slots. Readers are not affected.
 */
#include "collective/shm/shm_set.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define CACHE_LINE 64u
#define STREAM_MIN 2048u       /* bytes; below, the fence costs more than is gained */
#define PROBE_MIN 4096u        /* bytes; fewer cannot be measured */
#define PROBE_EVERY 256u       /* steps */
#define FAR_NS 10              /* per line; more means separate caches */

bool hy_pace_is_due(const struct hy_shm_set *set, const struct hy_job *job)
{
    /* In the first round the slots have no pages yet: it would measure page faults. */
    return job->step_bytes >= PROBE_MIN && job->first >= set->ring && job->first >= set->pace.next_probe;
}

void hy_pace_record(struct hy_shm_set *set, const struct hy_job *job, int64_t ns)
{
    bool slow = ns > (int64_t)(job->step_bytes / CACHE_LINE * FAR_NS);

    if (slow && !set->pace.far && !set->pace.suspect) {
        set->pace.suspect = true;
        set->pace.next_probe = job->first + 1;
        return;
    }
    set->pace.far = slow;
    set->pace.suspect = false;
    set->pace.next_probe = job->first + PROBE_EVERY;
}

#if defined(__x86_64__)

void hy_copy_fence(void)
{
    _mm_sfence();
}

/* In halves of a line: an eighth less time than in quarters (Intel Xeon, 2 MB of cache per core). */
__attribute__((target("avx2"))) static void stream_halves(uint8_t *to, const uint8_t *from, size_t lines,
                                                          const uint8_t *next)
{
    for (; lines; lines--, to += CACHE_LINE, from += CACHE_LINE, next += CACHE_LINE) {
        __m256i a = _mm256_loadu_si256((const __m256i *)from), b = _mm256_loadu_si256((const __m256i *)from + 1);

        _mm_prefetch((const char *)next, _MM_HINT_T0);
        _mm256_stream_si256((__m256i *)to, a);
        _mm256_stream_si256((__m256i *)to + 1, b);
    }
}

static void stream_quarters(uint8_t *to, const uint8_t *from, size_t lines, const uint8_t *next)
{
    for (; lines; lines--, to += CACHE_LINE, from += CACHE_LINE, next += CACHE_LINE) {
        __m128i a = _mm_loadu_si128((const __m128i *)from), b = _mm_loadu_si128((const __m128i *)from + 1);
        __m128i c = _mm_loadu_si128((const __m128i *)from + 2), d = _mm_loadu_si128((const __m128i *)from + 3);

        _mm_prefetch((const char *)next, _MM_HINT_T0);
        _mm_stream_si128((__m128i *)to, a);
        _mm_stream_si128((__m128i *)to + 1, b);
        _mm_stream_si128((__m128i *)to + 2, c);
        _mm_stream_si128((__m128i *)to + 3, d);
    }
}

static void stream_lines(uint8_t *to, const uint8_t *from, size_t lines, const uint8_t *next)
{
    if (__builtin_cpu_supports("avx2"))
        stream_halves(to, from, lines, next);
    else
        stream_quarters(to, from, lines, next);
}

#else

void hy_copy_fence(void)
{
}

static void stream_lines(uint8_t *to, const uint8_t *from, size_t lines, const uint8_t *next)
{
    (void)next;
    memcpy(to, from, lines * CACHE_LINE);
}

#endif

void hy_copy_fetching(void *to, const void *from, size_t n, bool stream, const void *next)
{
    size_t lead = -(uintptr_t)to % CACHE_LINE, lines;

    if (!stream || n < STREAM_MIN) {
        if (n)
            memcpy(to, from, n);
        return;
    }
    memcpy(to, from, lead);
    lines = (n - lead) / CACHE_LINE;
    stream_lines((uint8_t *)to + lead, (const uint8_t *)from + lead, lines, next);
    lead += lines * CACHE_LINE;
    memcpy((uint8_t *)to + lead, (const uint8_t *)from + lead, n - lead);
}

void hy_copy(void *to, const void *from, size_t n, bool stream)
{
    hy_copy_fetching(to, from, n, stream, from); /* the hardware prefetches it anyway */
}
