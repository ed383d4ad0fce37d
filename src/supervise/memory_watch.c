/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory limits where there are no cgroups: samples /proc, each trial when it is
 * due. How soon that is follows from how fast it has grown and how much it has
 * left (hy_growth_next_check_ms): what it can exceed its limit by is what it touches
 * between two looks. The looks together take a small part of one core.
 *
 * The cheap sum of resident memory counts a page once per process that has it,
 * so it is never too low; when it passes the limit the exact figure is asked
 * for, in which a page counts once over all who share it. Of a trial that was
 * forked from a fork server only the pages that nobody else has count then: so
 * what it shares with children of its own is missed, and only a cgroup would
 * count that right.
 *
 * Trials in a cgroup are only measured here, for the peak of what is their own
 * (the cgroup's own peak has the page cache in it), and looked at more closely
 * when the kernel says that it is out of memory: it says so before it has
 * chosen whom to kill, and not only when our limit was the reason.
 */
#include "supervise/internal.h"

#include <linux/kcmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define STEADY_MS 50             /* the longest time between two looks at a trial ... */
#define NEAR_LIMIT_MS 10             /* ... that does not grow, though it has little left ... */
#define FORKED_MS 5            /* ... that has new processes ... */
#define MIN_MS 2             /* ... and the shortest */
#define NEW_PROCESS_MS 100      /* processes are new for so long */
#define CHECKS_AHEAD 4          /* before it can reach its limit at the rate it grows */
#define BURST_PER_CORE (2u << 20) /* bytes that a core may touch in a ms, when a trial that was calm begins to grow */
#define RATE_HALVES_MS 100
#define FAST_MS 500            /* a trial that reaches its limit before then rushes there */
#define STOPS_MAX 3            /* times in a row that it is stopped to be measured, ... */
#define STOPS_WINDOW_MS 1000      /* ... less than so long apart */
#define EXACT_AGAIN_MS 250     /* between two exact sums that are only for the peak */
#define NS_PER_MS 1000000
#define STEADY_COST 20           /* all looks take at most one part in so many of a core's time ... */
#define URGENT_COST 4           /* ... or in so many, while a trial is about to reach its limit */
#define PEAK_ONLY_MS 1000
#define OOM_MS 5
#define OOM_CHECKS 100

/* ---- when to look again ---- */

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

/* Of the process with most: what all of them have is not less, since they share such pages with nobody else. */
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

/* It has new processes, grew by much since the last look, or will be well over its limit in a moment. */
static bool is_growing_fast(const struct hy_process *p, uint64_t used, size_t count)
{
    const struct hy_memory_growth *g = &p->growth;
    uint64_t much = p->memory / 8;

    return count > g->processes || used > g->used + much || (double)used + g->rate * FAST_MS > (double)(p->memory + much);
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

/* The exact sum of many processes takes long, with all of them at work even longer, and they would go on to grow: they
 * are stopped for it. Not often, since some calls of a process that was stopped fail with EINTR. */
static uint64_t measure_stopped(struct hy_process *p, uint64_t cheap, size_t *ret_count)
{
    uint64_t used;

    hy_descendants_signal_known(p, SIGSTOP);
    used = measure_exactly(p, cheap, true, ret_count);
    if (used <= p->memory)
        hy_descendants_signal_known(p, SIGCONT);
    return used;
}

/* What it may have by now: as much as when it was measured exactly, and what has come since. */
static uint64_t estimate(const struct hy_process *p, uint64_t cheap)
{
    return !p->exact_at ? cheap : p->exact + (cheap > p->cheap ? cheap - p->cheap : 0);
}

/* The cheap sum is right for a single process. Of several the exact one is asked for when it decides, or once in a while
 * for the peak, if there is time for it. */
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
    else if (cheap > p->memory || (!single && !growing_fast && cheap > p->used && hy_clock_ms() - p->exact_at >= EXACT_AGAIN_MS))
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

/* Returns when to look again. */
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

/* All in it together. */
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

/* The trial with most, or NULL, and how much that has. */
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

/* The time of the next look, or -1 when there is no process to look at. */
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

/* What this thread has had of a core: on a machine that is busy it waits for most of the time that a look takes. */
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
    uv_timer_start(&s->watch_timer, hy_watch_tick, FORKED_MS, 0); /* a look at the others may be far off */
}
