/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory limits where there are no cgroups: looks every quarter of a second,
 * oftener when somebody is near the limit. The cheap sum of resident memory
 * counts a page once per process that has it, so it is never too low; when it
 * passes the limit the exact figure is asked for, in which a page counts once
 * over all who share it. Of a trial that was forked from a warm process only the
 * pages that nobody else has count then: so what it shares with children of its
 * own is missed, and only a cgroup would count that right.
 *
 * Trials in a cgroup are only measured here, for the peak of what is their own
 * (the cgroup's own peak has the page cache in it), and looked at more closely
 * when the kernel says that it is out of memory: it says so before it has
 * chosen whom to kill, and not only when our limit was the reason.
 */
#include "agent/supervise.h"

#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

#define CALM_MS 250
#define NEAR_MS 40
#define PEAK_ONLY_MS 1000
#define OOM_MS 5
#define OOM_LOOKS 100

/* Between vfork and exec, a child is in its parent's memory: not once more. */
static bool shares_its_parents(const struct hy_proc *proc)
{
    return syscall(SYS_kcmp, proc->pid, proc->ppid, KCMP_VM, 0, 0) == 0;
}

static uint64_t sum_memory(struct hy_process *p, bool exact, size_t *ret_count)
{
    const struct hy_procs *census = &p->supervisor->census;
    uint64_t sum = 0;

    *ret_count = 0;
    for (size_t i = 0; i < census->n; i++) {
        const struct hy_proc *proc = &census->list[i];

        if (proc->owner != p || proc->dead || (exact && shares_its_parents(proc)))
            continue;
        sum += exact && p->forked ? hy_proc_private(proc->pid) : hy_proc_memory(proc->pid, exact);
        ++*ret_count;
    }
    return sum;
}

/* The cheap sum is never too low: the exact one is only asked for when it would tell something new. */
static uint64_t measure(struct hy_process *p)
{
    size_t count;
    uint64_t used = sum_memory(p, false, &count);

    if (used > p->memory || (used > p->used && (count > 1 || p->forked)))
        used = sum_memory(p, true, &count);
    return used;
}

static int64_t look_at_cgroup(struct hy_process *p)
{
    uint64_t used = hy_trial_cgroup_usage(&p->cgroup);

    p->used = used > p->used ? used : p->used;
    if (hy_trial_cgroup_oom(&p->cgroup))
        hy_process_over_memory(p, 0);
    return p->oom_looks && p->oom_looks-- ? OOM_MS : PEAK_ONLY_MS;
}

/* Returns when to look again. */
static int64_t look_at(struct hy_process *p)
{
    uint64_t used;

    if (p->cgroup.path)
        return look_at_cgroup(p);
    if (hy_family_census(p->supervisor) < 0)
        return NEAR_MS;
    used = measure(p);
    p->used = used > p->used ? used : p->used;
    if (used > p->memory)
        hy_process_over_memory(p, used);
    return used > p->memory - p->memory / 4 ? NEAR_MS : CALM_MS;
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

/* All in it together; the trial with most, or NULL, and how much that has. */
static struct hy_process *measure_container(struct hy_supervisor *s, uint64_t *ret_sum, uint64_t *ret_most)
{
    struct hy_process *most = NULL;

    *ret_sum = *ret_most = 0;
    for (size_t i = 0; i < s->census.n; i++)
        if (!s->census.list[i].dead && is_inside(&s->census, &s->census.list[i], s->container_root))
            *ret_sum += hy_proc_resident(s->census.list[i].pid);
    hy_list_each(it, &s->processes) {
        struct hy_process *p = hy_container(it, struct hy_process, link);
        uint64_t own = 0;

        for (size_t i = 0; i < s->census.n; i++)
            if (s->census.list[i].owner == p && !s->census.list[i].dead)
                own += hy_proc_resident(s->census.list[i].pid);
        if (own > *ret_most && !p->serves) {
            *ret_most = own;
            most = p;
        }
    }
    return most;
}

static int64_t look_at_container(struct hy_supervisor *s)
{
    uint64_t sum, most, near = s->container_limit - s->container_limit / 20;
    struct hy_process *p;

    if (hy_family_census(s) < 0)
        return NEAR_MS;
    p = measure_container(s, &sum, &most);
    if (sum > near && p && p->stage == HY_STAGE_RUNNING) {
        p->container_used = sum;
        hy_process_over_memory(p, most);
    }
    return sum > near - near / 4 ? NEAR_MS : CALM_MS;
}

void hy_watch_tick(uv_timer_t *timer)
{
    struct hy_supervisor *s = timer->data;
    int64_t began = hy_clock_ms(), next = -1, cost;

    hy_list_each(it, &s->processes) {
        struct hy_process *p = hy_container(it, struct hy_process, link);
        int64_t ms;

        if (!p->memory || p->stage == HY_STAGE_STARTING || p->stage == HY_STAGE_GONE)
            continue;
        ms = look_at(p);
        if (next < 0 || ms < next)
            next = ms;
    }
    if (s->container_limit && s->count) {
        int64_t ms = look_at_container(s);

        next = next < 0 || ms < next ? ms : next;
    }
    cost = hy_clock_ms() - began;
    if (next >= 0)
        uv_timer_start(timer, hy_watch_tick, (uint64_t)(next > cost * 10 ? next : cost * 10), 0);
}

void hy_watch_suspect(struct hy_process *p)
{
    p->oom_looks = OOM_LOOKS;
    uv_timer_start(&p->supervisor->watch_timer, hy_watch_tick, OOM_MS, 0);
}

void hy_watch_start(struct hy_supervisor *s)
{
    if (!uv_is_active((uv_handle_t *)&s->watch_timer))
        uv_timer_start(&s->watch_timer, hy_watch_tick, NEAR_MS, 0);
}
