/* SPDX-License-Identifier: Apache-2.0 */
/* How an operation runs through its steps, and how a member waits for others. */
#include "collective/shm/shm_set.h"

#include <sched.h>
#include <time.h>

#include "base/clock.h"

#define YIELDS_PER_CLOCK 16 /* yields between two reads of the clock */

/* Hints a spin loop to the processor, which leaves more of the core to its sibling thread. */
static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- waiting ------------------------------------------------------------------------ */

static bool spin(const struct hy_shm_set *set, unsigned member, enum hy_counter word, uint64_t value)
{
    const struct hy_waiter *w = set->shm->waiter;
    unsigned spins = w->spins ? w->spins : set->shm->patience.spins;

    for (unsigned i = 0; i < spins; i++) {
        cpu_relax();
        if (hy_set_reached(set, member, word, value))
            return true;
    }
    return false;
}

/* Others may keep the processor for long: it ends by the clock, too, so that a failed group is detected in time. */
static bool yield(const struct hy_shm_set *set, unsigned member, enum hy_counter word, uint64_t value)
{
    const struct hy_waiter *w = set->shm->waiter;
    unsigned yields = w->yields ? w->yields : set->shm->patience.yields;
    int64_t end = hy_clock_ms() + HY_CHECK_MS / 2;

    for (unsigned i = 0; i < yields; i++) {
        sched_yield();
        if (hy_set_reached(set, member, word, value))
            return true;
        if (i % YIELDS_PER_CLOCK == 0 && hy_clock_ms() > end)
            break;
    }
    return false;
}

static int sleep_until(struct hy_shm_set *set, unsigned member, enum hy_counter word, uint64_t value)
{
    int rc = 0;

    set->shm->waiter->awaited_local = set->members[member] + 1;
    while (rc == 0) {
        hy_shm_set_sleeping(set->shm, true);
        if (hy_set_reached(set, member, word, value))
            break;
        rc = hy_waiter_sleep(set->shm->waiter, NULL, 0, -1);
        hy_shm_set_sleeping(set->shm, false);
    }
    hy_shm_set_sleeping(set->shm, false);
    set->shm->waiter->awaited_local = 0;
    return rc;
}

int hy_set_wait(struct hy_shm_set *set, unsigned member, enum hy_counter word, uint64_t value)
{
    if (hy_set_reached(set, member, word, value))
        return 0;
    if (spin(set, member, word, value) || yield(set, member, word, value))
        return 0;
    return sleep_until(set, member, word, value);
}

/* ---- steps -------------------------------------------------------------------------- */

static int wait_all(struct hy_shm_set *set, enum hy_counter word, uint64_t value)
{
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < set->count; i++)
        if (i != set->index)
            rc = hy_set_wait(set, i, word, value);
    return rc;
}

static void publish(struct hy_shm_set *set, enum hy_counter word, uint64_t value)
{
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

/* The slot of a step may be written when all members are done with the step that used it one round ago. */
static int await_room(struct hy_shm_set *set, uint64_t step)
{
    uint64_t needed = step + 1 > set->ring ? step + 1 - set->ring : 0;
    int rc;

    if (needed <= set->room)
        return 0;
    rc = wait_all(set, HY_DONE, needed);
    if (rc == 0)
        set->room = least_done(set);
    return rc;
}

static int64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void post_paced(struct hy_shm_set *set, struct hy_job *job, size_t step)
{
    bool probe = step == 0 && hy_pace_is_due(set, job);
    int64_t begin = probe ? clock_ns() : 0;

    job->stream_slots = set->pace.far && !probe;
    job->kind->post(job, step);
    if (job->stream_slots)
        hy_copy_fence();
    if (probe)
        hy_pace_record(set, job, clock_ns() - begin);
}

static int post_step(struct hy_shm_set *set, struct hy_job *job, size_t step)
{
    int rc;

    if (job->one_posts && job->poster != set->index)
        return 0;
    rc = await_room(set, job->first + step);
    if (rc < 0)
        return rc;
    post_paced(set, job, step);
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
    if (job->stream_slots)
        hy_copy_fence();
    publish(set, HY_JOINED, job->first + step + 1);
    return 0;
}

/* The last step of a job is published as done by the start of the next job, which saves a store. */
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

/* Publishes that all earlier steps are done. A member that posts next need not wake others for that: its post will. */
static void begin(struct hy_shm_set *set, const struct hy_job *job)
{
    bool posts = !job->one_posts || job->poster == set->index;

    if (posts && job->steps && job->first + 1 <= set->room + set->ring)
        atomic_store_explicit(&set->region->members[set->index].at[HY_DONE], job->first, memory_order_release);
    else
        publish(set, HY_DONE, job->first);
}

int hy_set_run(struct hy_shm_set *set, struct hy_job *job)
{
    /* Both lags must fit into the ring, or all members would wait for each other. */
    size_t join_lag = hy_smaller(job->ahead, (set->ring - 1) / 2), take_lag = join_lag * (job->kind->join ? 2 : 1);
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
    return rc;
}
