/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory limits without cgroups: samples /proc, each trial when it is due. The
 * interval follows from its growth rate and from how much is left
 * (hy_growth_next_check_ms): it can exceed its limit by what it touches between
 * two checks. All checks together take a small part of one core.
 *
 * The cheap sum of resident memory counts a page once per process that maps it,
 * so it is never too low. Above the limit the exact sum decides, in which a page
 * counts once over all processes that share it. For a trial that was forked by a
 * fork server only private pages count then: pages that it shares with its own
 * children are missed, which only a cgroup would count.
 *
 * Trials in a cgroup are only measured here, for the peak without page cache, and
 * checked more often after an OOM event: the kernel sends it before it has chosen
 * a victim, and also for reasons other than our limit.
 */
#include "supervise/internal.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define STEADY_MS 50             /* the longest interval between two checks of a trial ... */
#define NEAR_LIMIT_MS 10             /* ... that does not grow but is near its limit ... */
#define FORKED_MS 5            /* ... that has new processes ... */
#define MIN_MS 2             /* ... and the shortest */
#define NEW_PROCESS_MS 100      /* a process counts as new for so long */
#define CHECKS_AHEAD 4          /* checks before it can reach its limit at its growth rate */
#define BURST_PER_CORE (2u << 20) /* bytes that a core may touch in 1 ms when a steady trial begins to grow */
#define RATE_HALVES_MS 100
#define FAST_MS 500            /* a trial that reaches its limit within this time grows fast */
#define STOPS_MAX 3            /* times in a row that a trial is stopped to be measured, ... */
#define STOPS_WINDOW_MS 1000      /* ... within this time of each other */
#define EXACT_AGAIN_MS 250     /* between two exact sums that only serve the peak */
#define NS_PER_MS 1000000
#define STEADY_COST 20           /* all checks take at most 1/20 of a core's time ... */
#define URGENT_COST 4           /* ... or 1/4 while a trial is about to reach its limit */
#define PEAK_ONLY_MS 1000
#define EXACT_USAGE_MS 10000   /* between two exact sums that only serve hy_process_usage */
#define OOM_MS 5
#define OOM_CHECKS 100

/* ---- check intervals ---- */

static void learn_rate(struct hy_memory_growth *g, double elapsed_ms, uint64_t used)
{
    double rate = used > g->used ? (double)(used - g->used) / elapsed_ms : 0;
    double kept = g->rate * (elapsed_ms < RATE_HALVES_MS ? 1 - elapsed_ms / (2 * RATE_HALVES_MS) : 0.5);

    g->rate = rate > kept ? rate : kept;
}

int64_t hy_growth_next_check_ms(struct hy_memory_growth *g, const struct hy_memory_sample *seen)
{
    uint64_t left = seen->limit > seen->used ? seen->limit - seen->used : 0;
    uint64_t burst = left / BURST_PER_CORE / (seen->cores ? seen->cores : 1);
    int64_t ms = burst > NEAR_LIMIT_MS ? (int64_t)(burst < STEADY_MS ? burst : STEADY_MS) : NEAR_LIMIT_MS;

    if (g->sampled_ns && seen->now_ns > g->sampled_ns) {
        learn_rate(g, (double)(seen->now_ns - g->sampled_ns) / NS_PER_MS, seen->used);
        if (seen->processes > g->processes)
            g->forked_ns = seen->now_ns;
    }
    g->sampled_ns = seen->now_ns;
    g->used = seen->used;
    g->processes = seen->processes;
    if (g->forked_ns && seen->now_ns - g->forked_ns < (int64_t)NEW_PROCESS_MS * NS_PER_MS)
        ms = FORKED_MS;
    if (g->rate > 0 && (double)left / g->rate / CHECKS_AHEAD < (double)ms)
        ms = (int64_t)((double)left / g->rate / CHECKS_AHEAD);
    return ms < MIN_MS ? MIN_MS : ms;
}

/* ---- trials ---- */

/* Between vfork and exec a child shares its parent's memory: it is not counted twice. */
static bool shares_its_parents(const struct hy_proc *proc)
{
    return syscall(SYS_kcmp, proc->pid, proc->ppid, KCMP_VM, 0, 0) == 0;
}

static uint64_t sum_memory(struct hy_process *p, bool exact, size_t *ret_count)
{
    const struct hy_procs *snapshot = &p->supervisor->snapshot;
    uint64_t sum = 0;

    *ret_count = 0;
    for (size_t i = 0; i < snapshot->n; i++) {
        const struct hy_proc *proc = &snapshot->list[i];

        if (proc->owner != p || proc->dead || (exact && shares_its_parents(proc)))
            continue;
        sum += exact && p->forked ? hy_proc_private(proc->pid) : hy_proc_memory(proc->pid, exact);
        ++*ret_count;
    }
    return sum;
}

/* Of the largest process: a lower bound for all of them, since such pages are not shared outside of the trial. */
static uint64_t largest_anonymous(const struct hy_process *p)
{
    const struct hy_procs *snapshot = &p->supervisor->snapshot;
    uint64_t most = 0;

    for (size_t i = 0; i < snapshot->n && !p->forked; i++)
        if (snapshot->list[i].owner == p && !snapshot->list[i].dead) {
            uint64_t own = hy_proc_anonymous(snapshot->list[i].pid);

            most = own > most ? own : most;
        }
    return most;
}

/* It has new processes, has grown much since the last check, or will soon be well over its limit. */
static bool is_growing_fast(const struct hy_process *p, uint64_t used, size_t count)
{
    const struct hy_memory_growth *g = &p->growth;
    uint64_t much = p->memory / 8;

    return count > g->processes || used > g->used + much ||
           (double)used + g->rate * FAST_MS > (double)(p->memory + much);
}

static bool may_stop(const struct hy_process *p)
{
    return p->stops < STOPS_MAX || hy_clock_ms() - p->stopped_at > STOPS_WINDOW_MS;
}

static uint64_t measure_exactly(struct hy_process *p, uint64_t cheap, bool stopped, size_t *ret_count)
{
    uint64_t used = sum_memory(p, true, ret_count);
    int64_t now = hy_clock_ms();

    if (stopped) {
        p->stops = now - p->stopped_at > STOPS_WINDOW_MS ? 1 : p->stops + 1;
        p->stopped_at = now;
    }
    p->exact_at = now;
    p->exact = used;
    p->cheap = cheap;
    return used;
}

/* The exact sum of many processes takes long, while they continue to grow: they are stopped for it. Not often, since
 * some system calls of a stopped process fail with EINTR. */
static uint64_t measure_stopped(struct hy_process *p, uint64_t cheap, size_t *ret_count)
{
    uint64_t used;

    hy_descendants_signal_known(p, SIGSTOP);
    used = measure_exactly(p, cheap, true, ret_count);
    if (used <= p->memory)
        hy_descendants_signal_known(p, SIGCONT);
    return used;
}

/* An upper bound: the last exact sum plus the growth of the cheap sum since. */
static uint64_t estimate(const struct hy_process *p, uint64_t cheap)
{
    return !p->exact_at ? cheap : p->exact + (cheap > p->cheap ? cheap - p->cheap : 0);
}

/* The cheap sum is exact for a single process. For several the exact one is measured when it decides, or now and then
 * for the peak. */
static uint64_t measure(struct hy_process *p, size_t *ret_count)
{
    uint64_t cheap = sum_memory(p, false, ret_count), certain = cheap > p->memory ? largest_anonymous(p) : 0;
    bool single = *ret_count <= 1 && !p->forked;
    uint64_t used = single ? cheap : estimate(p, cheap);
    bool growing_fast = is_growing_fast(p, used, *ret_count);

    if (certain > p->memory)
        used = certain;
    else if (cheap > p->memory && growing_fast && may_stop(p))
        used = measure_stopped(p, cheap, ret_count);
    else if (cheap > p->memory ||
             (!single && !growing_fast && cheap > p->used && hy_clock_ms() - p->exact_at >= EXACT_AGAIN_MS))
        used = measure_exactly(p, cheap, false, ret_count);
    else if (!single)
        return used;
    p->used = used > p->used ? used : p->used;
    return used;
}

static int64_t check_cgroup(struct hy_process *p)
{
    uint64_t used = hy_trial_cgroup_usage(&p->cgroup);

    p->used = used > p->used ? used : p->used;
    if (hy_trial_cgroup_oom(&p->cgroup))
        hy_process_over_memory(p, 0);
    return p->oom_checks && p->oom_checks-- ? OOM_MS : PEAK_ONLY_MS;
}

/* Returns the delay until the next check. */
static int64_t check_trial(struct hy_process *p)
{
    struct hy_memory_sample seen = {.limit = p->memory, .cores = p->supervisor->cores};

    if (p->cgroup.path)
        return check_cgroup(p);
    if (hy_descendants_find_recent(p->supervisor) < 0)
        return NEAR_LIMIT_MS;
    seen.used = measure(p, &seen.processes);
    seen.now_ns = hy_clock_ns();
    if (seen.used > p->memory)
        hy_process_over_memory(p, seen.used);
    return hy_growth_next_check_ms(&p->growth, &seen);
}

/* ---- the container ---- */

static bool is_inside(const struct hy_procs *all, const struct hy_proc *proc, pid_t root)
{
    for (size_t up = 0; proc && up < all->n; up++) {
        if (proc->pid == root)
            return true;
        proc = hy_procs_find(all, proc->ppid);
    }
    return false;
}

static uint64_t measure_container(struct hy_supervisor *s, size_t *ret_count)
{
    uint64_t sum = 0;

    *ret_count = 0;
    for (size_t i = 0; i < s->snapshot.n; i++)
        if (!s->snapshot.list[i].dead && is_inside(&s->snapshot, &s->snapshot.list[i], s->container_root)) {
            sum += hy_proc_resident(s->snapshot.list[i].pid);
            ++*ret_count;
        }
    return sum;
}

/* The largest trial, or NULL, and its resident size. */
static struct hy_process *find_largest(struct hy_supervisor *s, uint64_t *ret_most)
{
    struct hy_process *most = NULL;

    *ret_most = 0;
    hy_list_each(it, &s->processes) {
        struct hy_process *p = hy_container(it, struct hy_process, link);
        uint64_t own = 0;

        for (size_t i = 0; i < s->snapshot.n; i++)
            if (s->snapshot.list[i].owner == p && !s->snapshot.list[i].dead)
                own += hy_proc_resident(s->snapshot.list[i].pid);
        if (own > *ret_most && !p->serves) {
            *ret_most = own;
            most = p;
        }
    }
    return most;
}

static int64_t check_container(struct hy_supervisor *s)
{
    struct hy_memory_sample seen = {.limit = s->container_limit - s->container_limit / 20, .cores = s->cores};
    struct hy_process *p;
    uint64_t most = 0;

    if (hy_descendants_find_recent(s) < 0)
        return NEAR_LIMIT_MS;
    seen.used = measure_container(s, &seen.processes);
    seen.now_ns = hy_clock_ns();
    p = seen.used > seen.limit ? find_largest(s, &most) : NULL;
    if (p && p->stage == HY_STAGE_RUNNING) {
        p->end.container.limit = s->container_limit;
        p->end.container.used = seen.used;
        hy_process_over_memory(p, most);
    }
    return hy_growth_next_check_ms(&s->container_growth, &seen);
}

/* ---- all of them ---- */

static bool is_watched(const struct hy_process *p)
{
    return p->memory && p->stage > HY_STAGE_STARTING && p->stage < HY_STAGE_KILLING;
}

/* The time of the next check, or -1 when there is none to watch. */
static int64_t check_due(struct hy_supervisor *s, int64_t now)
{
    int64_t next = -1;

    hy_list_each(it, &s->processes) {
        struct hy_process *p = hy_container(it, struct hy_process, link);

        if (is_watched(p) && p->check_at <= now)
            p->check_at = now + check_trial(p);
        if (is_watched(p) && (next < 0 || p->check_at < next))
            next = p->check_at;
    }
    if (s->container_limit && s->count) {
        if (s->container_check_at <= now)
            s->container_check_at = now + check_container(s);
        next = next < 0 || s->container_check_at < next ? s->container_check_at : next;
    }
    return next;
}

/* ---- what a trial uses now ---- */

/* Without a limit nothing else measures it. */
static uint64_t memory_now(struct hy_process *p)
{
    size_t count;
    uint64_t cheap;

    if (p->cgroup.path)
        return hy_trial_cgroup_usage(&p->cgroup);
    if (is_watched(p) && p->growth.sampled_ns)
        return p->growth.used;
    cheap = sum_memory(p, false, &count);
    if (count <= 1 && !p->forked)
        return cheap;
    if (p->exact_at && hy_clock_ms() - p->exact_at < EXACT_USAGE_MS)
        return estimate(p, cheap);
    return measure_exactly(p, cheap, false, &count);
}

int hy_process_usage(struct hy_process *p, struct hy_process_usage *ret)
{
    const struct hy_procs *snapshot = &p->supervisor->snapshot;

    if (p->stage <= HY_STAGE_STARTING || p->stage >= HY_STAGE_KILLING ||
        hy_descendants_find_to_measure(p->supervisor) < 0)
        return -ESRCH;
    *ret = (struct hy_process_usage){.memory = memory_now(p)};
    for (size_t i = 0; i < snapshot->n; i++)
        if (snapshot->list[i].owner == p)
            ret->cpu_ms += hy_proc_cpu_ms(snapshot->list[i].pid);
    return 0;
}

/* ---- the timer ---- */

/* CPU time of this thread: on a busy machine most of a check's wall time is waiting. */
static int64_t cpu_ns(void)
{
    struct timespec t;

    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0 ? (int64_t)t.tv_sec * 1000 * NS_PER_MS + t.tv_nsec : 0;
}

void hy_watch_tick(uv_timer_t *timer)
{
    struct hy_supervisor *s = timer->data;
    int64_t began = cpu_ns(), now = hy_clock_ms(), next = check_due(s, now), wait, rest;

    if (next < 0)
        return;
    wait = next > now ? next - now : MIN_MS;
    rest = (cpu_ns() - began) * (wait < NEAR_LIMIT_MS ? URGENT_COST : STEADY_COST) / NS_PER_MS;
    uv_timer_start(timer, hy_watch_tick, (uint64_t)(wait > rest ? wait : rest), 0);
}

void hy_watch_suspect_oom(struct hy_process *p)
{
    p->oom_checks = OOM_CHECKS;
    p->check_at = 0;
    uv_timer_start(&p->supervisor->watch_timer, hy_watch_tick, OOM_MS, 0);
}

void hy_watch_start(struct hy_supervisor *s)
{
    uv_timer_start(&s->watch_timer, hy_watch_tick, FORKED_MS, 0); /* the next check of the others may be far off */
}
