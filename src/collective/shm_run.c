/* SPDX-License-Identifier: Apache-2.0 */
/* How an operation goes through its steps, and how a member waits for others. */
#include "collective/shm_set.h"

#include <sched.h>

#include "base/clock.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#define HY_STREAM 1
static inline void pause_a_moment(void)
{
    _mm_pause();
}
#else
#define HY_STREAM 0
static inline void pause_a_moment(void)
{
}
#endif

#define YIELDS_PER_LOOK 16 /* at the clock */

/* ---- waiting ------------------------------------------------------------------------ */

static bool reached(const struct hy_shm_set *set, unsigned member, enum hy_word word, uint64_t value)
{
    return atomic_load(&set->region->members[member].at[word]) >= value;
}

static bool spin(const struct hy_shm_set *set, unsigned member, enum hy_word word, uint64_t value)
{
    const struct hy_waiter *w = set->shm->waiter;
    unsigned spins = w->spins ? w->spins : set->shm->patience.spins;

    for (unsigned i = 0; i < spins; i++) {
        pause_a_moment();
        if (reached(set, member, word, value))
            return true;
    }
    return false;
}

/* Others may keep the processor for long: it ends by the clock, too, for the end of the world must be noticed. */
static bool yield(const struct hy_shm_set *set, unsigned member, enum hy_word word, uint64_t value)
{
    const struct hy_waiter *w = set->shm->waiter;
    unsigned yields = w->yields ? w->yields : set->shm->patience.yields;
    int64_t end = hy_clock_ms() + HY_CHECK_MS / 2;

    for (unsigned i = 0; i < yields; i++) {
        sched_yield();
        if (reached(set, member, word, value))
            return true;
        if (i % YIELDS_PER_LOOK == 0 && hy_clock_ms() > end)
            break;
    }
    return false;
}

static int sleep_until(struct hy_shm_set *set, unsigned member, enum hy_word word, uint64_t value)
{
    int rc = 0;

    while (rc == 0) {
        hy_shm_asleep(set->shm, true);
        if (reached(set, member, word, value))
            break;
        rc = hy_waiter_sleep(set->shm->waiter, NULL, 0, -1);
        hy_shm_asleep(set->shm, false);
    }
    hy_shm_asleep(set->shm, false);
    return rc;
}

int hy_set_wait(struct hy_shm_set *set, unsigned member, enum hy_word word, uint64_t value)
{
    if (reached(set, member, word, value))
        return 0;
    if (set->shm->waiter->failed.code < 0)
        return set->shm->waiter->failed.code;
    if (spin(set, member, word, value) || yield(set, member, word, value))
        return 0;
    return sleep_until(set, member, word, value);
}

/* ---- steps -------------------------------------------------------------------------- */

static int wait_all(struct hy_shm_set *set, enum hy_word word, uint64_t value)
{
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < set->count; i++)
        if (i != set->index)
            rc = hy_set_wait(set, i, word, value);
    return rc;
}

/* Stores that went past the caches are in no order with others until told to. */
static void order_streams(void)
{
#if HY_STREAM
    _mm_sfence();
#endif
}

static void publish(struct hy_shm_set *set, enum hy_word word, uint64_t value)
{
    order_streams();
    atomic_store(&set->region->members[set->index].at[word], value);
    hy_set_wake(set);
}

static uint64_t least_done(const struct hy_shm_set *set)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < set->count; i++) {
        uint64_t done = i == set->index ? UINT64_MAX : atomic_load(&set->region->members[i].at[HY_DONE]);

        least = done < least ? done : least;
    }
    return least;
}

/* The slot of a step may be written when everybody has done with what was in it one round ago. */
static int await_room(struct hy_shm_set *set, uint64_t step)
{
    uint64_t needed = step + 1 > HY_RING ? step + 1 - HY_RING : 0;
    int rc;

    if (needed <= set->room)
        return 0;
    rc = wait_all(set, HY_DONE, needed);
    if (rc == 0)
        set->room = least_done(set);
    return rc;
}

static int post_step(struct hy_shm_set *set, struct hy_job *job, size_t step)
{
    int rc;

    if (job->one_posts && job->poster != set->index)
        return 0;
    rc = await_room(set, job->first + step);
    if (rc < 0)
        return rc;
    job->kind->post(job, step);
    publish(set, HY_POSTED, job->first + step + 1);
    return 0;
}

static int await_posted(struct hy_shm_set *set, struct hy_job *job, uint64_t value)
{
    if (!job->one_posts)
        return wait_all(set, HY_POSTED, value);
    return job->poster == set->index ? 0 : hy_set_wait(set, job->poster, HY_POSTED, value);
}

static int join_step(struct hy_shm_set *set, struct hy_job *job, size_t step)
{
    int rc = await_posted(set, job, job->first + step + 1);

    if (rc < 0)
        return rc;
    job->kind->join(job, step);
    publish(set, HY_JOINED, job->first + step + 1);
    return 0;
}

/* The last step of a job is said to be done by the next job's beginning: one word less to tell. */
static int take_step(struct hy_shm_set *set, struct hy_job *job, size_t step)
{
    uint64_t value = job->first + step + 1;
    int rc = job->kind->join ? wait_all(set, HY_JOINED, value) : await_posted(set, job, value);

    if (rc < 0)
        return rc;
    job->kind->take(job, step);
    if (step + 1 < job->steps)
        publish(set, HY_DONE, value);
    return 0;
}

/*
 * Says that all earlier steps are done. Who posts at once need not wake anybody
 * for that: the post will.
 */
static void begin(struct hy_shm_set *set, const struct hy_job *job)
{
    bool posts = !job->one_posts || job->poster == set->index;

    if (posts && job->steps && job->first + 1 <= set->room + HY_RING)
        atomic_store_explicit(&set->region->members[set->index].at[HY_DONE], job->first, memory_order_release);
    else
        publish(set, HY_DONE, job->first);
}

int hy_set_run(struct hy_shm_set *set, struct hy_job *job)
{
    size_t join_lag = job->ahead, take_lag = job->kind->join ? 2 * job->ahead : job->ahead;
    int rc = set->shm->waiter->failed.code;

    job->set = set;
    job->first = set->step;
    set->step += job->steps;
    begin(set, job);
    for (size_t i = 0; rc == 0 && i < job->steps + take_lag; i++) {
        if (i < job->steps)
            rc = post_step(set, job, i);
        if (rc == 0 && job->kind->join && i >= join_lag && i - join_lag < job->steps)
            rc = join_step(set, job, i - join_lag);
        if (rc == 0 && i >= take_lag)
            rc = take_step(set, job, i - take_lag);
    }
    order_streams();
    return rc;
}

/* ---- copies ------------------------------------------------------------------------- */

#if HY_STREAM

static void copy_lines(uint8_t *to, const uint8_t *from, size_t lines)
{
    for (; lines; lines--, to += 64, from += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)from), b = _mm_loadu_si128((const __m128i *)from + 1);
        __m128i c = _mm_loadu_si128((const __m128i *)from + 2), d = _mm_loadu_si128((const __m128i *)from + 3);

        _mm_stream_si128((__m128i *)to, a);
        _mm_stream_si128((__m128i *)to + 1, b);
        _mm_stream_si128((__m128i *)to + 2, c);
        _mm_stream_si128((__m128i *)to + 3, d);
    }
}

void hy_copy(void *to, const void *from, size_t n, bool stream)
{
    size_t lead = -(uintptr_t)to & 63, lines;

    if (!stream || n < lead + 64) {
        memcpy(to, from, n);
        return;
    }
    memcpy(to, from, lead);
    lines = (n - lead) / 64;
    copy_lines((uint8_t *)to + lead, (const uint8_t *)from + lead, lines);
    lead += lines * 64;
    memcpy((uint8_t *)to + lead, (const uint8_t *)from + lead, n - lead);
}

#else

void hy_copy(void *to, const void *from, size_t n, bool stream)
{
    (void)stream;
    memcpy(to, from, n);
}

#endif
