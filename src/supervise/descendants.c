/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which process belongs to which trial.
 *
 * Descendants of a main process are its trial's. Those whose parent has died
 * become children of this process, their subreaper, and are identified by their
 * session, then by HOPYARD_TAG in the environment they were started with. One
 * without both (a daemon with an empty environment) belongs to the only running
 * trial, and is killed at the latest when no trial is left.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/internal.h"

#define TAG_MAX 4096
#define ORPHAN_MS 100
#define RECENT_MS 250    /* how long a process list may be reused ... */
#define BUSY_RECENT_MS 1000 /* ... and while new processes appear, which are added one by one */
#define NEW_MAX 256 /* PIDs to read one by one */

static struct hy_process *find_session(struct hy_supervisor *s, pid_t sid)
{
    hy_list_each(it, &s->processes) {
        struct hy_process *p = hy_container(it, struct hy_process, link);

        if (p->pid == sid)
            return p;
    }
    return NULL;
}

static struct hy_process *find_tag(struct hy_supervisor *s, const char *tag)
{
    hy_list_each(it, &s->processes) {
        struct hy_process *p = hy_container(it, struct hy_process, link);

        if (strcmp(p->tag, tag) == 0)
            return p;
    }
    return NULL;
}

/* A process that began in a trial's session cannot be in ours: one that is in
 * ours is a helper that this program has started. */
static bool is_helper(const struct hy_proc *proc)
{
    return proc->sid == getsid(0);
}

/* An exiting process has already released its environment: an empty one means
 * nothing then. */
static bool is_exiting(struct hy_proc *proc)
{
    struct hy_proc now;

    proc->exiting = hy_proc_read(proc->pid, &now) < 0 || now.exiting || now.dead;
    return proc->exiting;
}

/* The only trial, or NULL; *ret_several: there is more than one. */
static struct hy_process *sole_trial(struct hy_supervisor *s, bool *ret_several)
{
    struct hy_process *only = NULL;

    hy_list_each(it, &s->processes) {
        struct hy_process *p = hy_container(it, struct hy_process, link);

        if (p->serves)
            continue;
        *ret_several = only != NULL;
        if (only)
            return NULL;
        only = p;
    }
    return only;
}

static int claim_orphan(struct hy_supervisor *s, struct hy_proc *orphan)
{
    bool several = false;
    char agent[HY_MARK_MAX], tag[TAG_MAX];
    int rc = 0;

    orphan->owner = find_session(s, orphan->sid);
    if (orphan->owner)
        return 0;
    rc = hy_proc_env(orphan->pid, HY_DAEMON_MARK, tag, sizeof tag);
    if (rc != 0)
        return rc < 0 ? rc : 0; /* a daemon that serves other agents too */
    rc = hy_proc_env(orphan->pid, "HOPYARD_AGENT", agent, sizeof agent);
    if (rc > 0)
        rc = hy_proc_env(orphan->pid, "HOPYARD_TAG", tag, sizeof tag);
    if (rc < 0 || (rc == 0 && is_exiting(orphan)))
        return rc;
    if (rc > 0 && strcmp(agent, s->mark) == 0)
        orphan->owner = find_tag(s, tag);
    else
        orphan->owner = sole_trial(s, &several);
    if (several)
        return 0;
    orphan->orphan = !orphan->owner;
    return 0;
}

/* Children mostly come after their parents, since PIDs ascend: few passes. */
static void inherit(struct hy_procs *procs)
{
    bool changed = true;

    while (changed) {
        changed = false;
        for (size_t i = 0; i < procs->n; i++) {
            struct hy_proc *child = &procs->list[i];
            const struct hy_proc *parent;

            if (child->owner || child->orphan)
                continue;
            parent = hy_procs_find(procs, child->ppid);
            if (parent && (parent->owner || parent->orphan)) {
                child->owner = parent->owner;
                child->orphan = parent->orphan;
                changed = true;
            }
        }
    }
}

/* Finds the owners of all processes without one. */
static int find_owners(struct hy_supervisor *s)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s->snapshot.n; i++) {
        struct hy_proc *proc = &s->snapshot.list[i];

        if (!proc->owner)
            proc->owner = hy_map_get(&s->by_pid, (uint64_t)proc->pid);
        if (proc->owner || proc->orphan || proc->ppid != s->self || is_helper(proc))
            continue;
        if (proc->dead)
            waitpid(proc->pid, NULL, WNOHANG);
        else
            rc = claim_orphan(s, proc);
    }
    if (rc == 0)
        inherit(&s->snapshot);
    return rc;
}

int hy_descendants_find(struct hy_supervisor *s)
{
    int rc;

    if (s->snapshot_at == (int64_t)uv_now(s->loop) && !s->snapshot_is_tree)
        return 0;
    s->snapshot_at = -1;
    s->snapshot_is_tree = false;
    s->snapshot_pid = hy_newest_pid();
    rc = hy_procs_read(&s->snapshot);
    if (rc == 0)
        rc = find_owners(s);
    if (rc == 0)
        s->snapshot_at = (int64_t)uv_now(s->loop);
    return rc;
}

/* PIDs are assigned in ascending order, and wrap around. */
int hy_descendants_find_recent(struct hy_supervisor *s)
{
    int64_t newest = hy_newest_pid(), known = s->snapshot_pid, age = (int64_t)uv_now(s->loop) - s->snapshot_at;
    int rc;

    if (s->snapshot_at < 0 || s->snapshot_is_tree || age >= (newest == known ? RECENT_MS : BUSY_RECENT_MS) ||
        known < 0 || newest < known || newest - known > NEW_MAX)
        return hy_descendants_find(s);
    if (newest == known)
        return 0;
    s->snapshot_pid = newest;
    rc = hy_procs_add(&s->snapshot, (pid_t)(known + 1), (pid_t)newest);
    if (rc == 0)
        rc = find_owners(s);
    if (rc < 0)
        s->snapshot_at = -1;
    return rc;
}

/* A machine may have thousands of unrelated processes: they are not read every second just for a chart. */
int hy_descendants_find_to_measure(struct hy_supervisor *s)
{
    int64_t now = (int64_t)uv_now(s->loop), age = now - s->snapshot_at;
    int rc;

    if (s->snapshot_at >= 0 && age < (s->snapshot_is_tree ? 1 : RECENT_MS))
        return 0;
    s->snapshot_at = -1;
    rc = hy_procs_read_tree(&s->snapshot);
    if (rc == -ENOENT)
        return hy_descendants_find(s);
    s->snapshot_is_tree = true;
    if (rc == 0)
        rc = find_owners(s);
    if (rc == 0)
        s->snapshot_at = now;
    return rc;
}

struct tally {
    struct hy_supervisor *s;
    int unknown;
};

static void count_unknown(void *arg, pid_t pid)
{
    struct tally *t = arg;

    if (!hy_map_get(&t->s->by_pid, (uint64_t)pid))
        t->unknown++;
}

/* Once its main process is dead, the rest of a trial descends from our orphans:
 * without orphans nothing is left. */
bool hy_descendants_left(struct hy_process *p)
{
    struct hy_supervisor *s = p->supervisor;
    struct tally t = {.s = s};

    if (hy_trial_cgroup_signal(&p->cgroup, 0) > 0)
        return true;
    if (hy_children_each(count_unknown, &t) >= 0 && t.unknown == 0)
        return false;
    hy_orphans_kill_soon(s);
    if (hy_descendants_find(s) < 0)
        return true;
    for (size_t i = 0; i < s->snapshot.n; i++) {
        const struct hy_proc *proc = &s->snapshot.list[i];

        if (proc->exiting && !proc->owner && proc->ppid == s->self)
            return true; /* its trial is unknown; it will be gone soon */
        /* One that may not be signaled runs as another user: sudo. */
        if (proc->owner == p && !proc->dead && (kill(proc->pid, 0) == 0 || errno != EPERM))
            return true;
    }
    return false;
}

static int send_one(pid_t pid, int sig)
{
    int sent = kill(pid, sig) == 0;

    if (sent && sig == SIGTERM)
        kill(pid, SIGCONT); /* a stopped process would not handle it */
    return sent;
}

static int signal_others(struct hy_process *p, int sig)
{
    const struct hy_procs *snapshot = &p->supervisor->snapshot;
    int count = 0;

    for (size_t i = 0; i < snapshot->n; i++) {
        const struct hy_proc *proc = &snapshot->list[i];

        if (proc->owner == p && !proc->dead && proc->pgrp != p->pid)
            count += send_one(proc->pid, sig);
    }
    return count;
}

int hy_descendants_signal_known(struct hy_process *p, int sig)
{
    int count = p->main_alive ? send_one(-p->pid, sig) : 0;

    return count + signal_others(p, sig);
}

int hy_descendants_signal(struct hy_process *p, int sig)
{
    struct hy_supervisor *s = p->supervisor;
    bool group = p->main_alive;
    int count = 0, rc;

    rc = hy_descendants_find(s);
    for (size_t i = 0; rc == 0 && i < s->snapshot.n; i++)
        group |= s->snapshot.list[i].owner == p && s->snapshot.list[i].pgrp == p->pid;
    /* First the group: the kernel signals it atomically, so no fork is missed. */
    if (group)
        count += send_one(-p->pid, sig);
    if (sig == SIGKILL)
        hy_trial_cgroup_signal(&p->cgroup, sig);
    return rc < 0 ? rc : count + signal_others(p, sig);
}

bool hy_orphans_kill(struct hy_supervisor *s)
{
    bool any = false;

    if (hy_descendants_find(s) < 0)
        return true;
    for (size_t i = 0; i < s->snapshot.n; i++) {
        const struct hy_proc *proc = &s->snapshot.list[i];

        if (!proc->orphan || proc->dead)
            continue;
        any = true;
        kill(proc->pid, SIGKILL);
    }
    return any;
}

static void on_orphan_timer(uv_timer_t *timer)
{
    struct hy_supervisor *s = timer->data;

    s->snapshot_at = -1;
    if (hy_orphans_kill(s))
        hy_orphans_kill_soon(s);
}

void hy_orphans_kill_soon(struct hy_supervisor *s)
{
    uv_timer_start(&s->orphan_timer, on_orphan_timer, ORPHAN_MS, 0);
}

/* ---- reaping ---- */

static void reap_if_orphan(void *arg, pid_t pid)
{
    struct hy_supervisor *s = arg;
    struct hy_proc proc;

    if (!hy_map_get(&s->by_pid, (uint64_t)pid) && hy_proc_read(pid, &proc) == 0 && proc.dead && !is_helper(&proc))
        waitpid(pid, NULL, WNOHANG);
}

struct hy_process *hy_orphans_reap(struct hy_supervisor *s)
{
    for (;;) {
        siginfo_t info = {0};
        struct hy_process *p;
        struct hy_proc proc;

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            return NULL;
        p = hy_map_get(&s->by_pid, (uint64_t)info.si_pid);
        if (p)
            return p;
        if (hy_proc_read(info.si_pid, &proc) == 0 && is_helper(&proc)) {
            hy_children_each(reap_if_orphan, s); /* libuv reaps that one: continue with the others */
            return NULL;
        }
        waitpid(info.si_pid, NULL, WNOHANG);
    }
}
