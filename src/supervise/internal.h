/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of this part:
 *
 *     supervisor.c   the state shared by all trials of an agent
 *     process.c      the life cycle of a process, from its start to on_end
 *     start.c        preparing a start
 *     spawn.c        clone and exec
 *     fork_server.c  the other way to start one: a server forks it
 *     descendants.c  which process belongs to which trial; signals to all of them
 *     memory_watch.c memory limits without cgroups; what a trial uses now
 *     cgroup.c       memory limits with cgroups, v1 and v2; cgroup_find.c locates them
 *     procfs.c       reads /proc
 *     reaper.c       the parent process that cleans up after an agent or a driver
 *     leftovers.c    processes and cgroups that even a reaper has left
 *     cpu_affinity.c which cores a rank runs on
 *     helper.c       short-lived helper programs
 */
#ifndef HY_SUPERVISE_INTERNAL_H
#define HY_SUPERVISE_INTERNAL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>
#include <uv.h>

#include "supervise/supervise.h"
#include "base/list.h"
#include "base/map.h"

/* ---- procfs.c ---- */

struct hy_proc {
    pid_t pid, ppid, pgrp, sid;
    long threads;
    bool dead;               /* a zombie without a living thread */
    bool exiting;            /* has released its memory, and will be dead soon */
    uint64_t start;          /* clock ticks since boot: with the PID it is unique */
    struct hy_process *owner; /* descendants.c: the trial it belongs to, or NULL */
    bool orphan;              /* descendants.c: its trial is over */
};

struct hy_procs {
    struct hy_proc *list; /* ascending by pid */
    size_t n, cap;
};

/* 0 or -Exxx (-ENOENT, -ESRCH: there is no such process). */
int hy_proc_read(pid_t pid, struct hy_proc *ret);
/* Every visible process of this machine. 0 or -Exxx. */
int hy_procs_read(struct hy_procs *procs);
/* The descendants of this process only: the cost depends on their number only, not on that of other processes. One that
 * is forked or loses its parent in the meantime may be missing: for measurements, not for signals. 0 or -Exxx (-ENOENT:
 * the kernel does not list children). */
int hy_procs_read_tree(struct hy_procs *procs);
/* Adds those with these PIDs that are not in it yet. 0 or -Exxx. */
int hy_procs_add(struct hy_procs *procs, pid_t first, pid_t last);
void hy_procs_done(struct hy_procs *procs);
struct hy_proc *hy_procs_find(const struct hy_procs *procs, pid_t pid);

/* Calls `each` for the children of this process's first thread, where orphans
 * arrive; needs no memory. How many, or -Exxx. */
int hy_children_each(void (*each)(void *arg, pid_t pid), void *arg);
/* The PID of the newest process or thread of this PID namespace; -1: unknown. */
int64_t hy_newest_pid(void);
/* Bytes of anonymous and shared memory; `exact` counts a shared page once over
 * all processes that map it, and costs milliseconds. 0 when it does not exist any more. */
uint64_t hy_proc_memory(pid_t pid, bool exact);
/* Its anonymous memory alone, without swap. */
uint64_t hy_proc_anonymous(pid_t pid);
/* The same for a fork of a living process, without the pages that both share. */
uint64_t hy_proc_private(pid_t pid);
/* Its resident size. */
uint64_t hy_proc_resident(pid_t pid);
/* Its CPU time, with that of the children it has waited for. 0 when it does not exist any more. */
int64_t hy_proc_cpu_ms(pid_t pid);

/* ---- cgroup_find.c, cgroup.c ---- */

enum hy_cgroup_kind { HY_CGROUP_NONE, HY_CGROUP_V1, HY_CGROUP_V2 };

struct hy_cgroup_place {
    char mount[PATH_MAX];
    char own[PATH_MAX]; /* below the mount: "" or "/…" */
};

/* Our cgroup, from the contents of /proc/self/cgroup and /proc/self/mountinfo. 0 or -ENOENT. */
int hy_cgroup_locate(enum hy_cgroup_kind kind, const char *own_text, const char *mount_text,
                     struct hy_cgroup_place *ret);
/* Is `word` an element of the list? */
bool hy_list_contains(const char *list, const char *word, const char *separators);

/* The agent's cgroup: each trial with a limit gets one below it. */
struct hy_cgroup {
    enum hy_cgroup_kind kind;
    char path[PATH_MAX];
    uint64_t count; /* of trials so far: makes their names unique */
};

/* A trial's cgroup. */
struct hy_trial_cgroup {
    enum hy_cgroup_kind kind;
    char *path; /* NULL: it has none */
    int events; /* v1: an eventfd, v2: memory.events; changes when the limit was hit */
};

/* Finds a writable hierarchy and makes the agent's cgroup there; kind NONE when
 * there is none. `only` narrows the choice for tests. */
void hy_cgroup_init(struct hy_cgroup *c, const char *name, const char *only);
void hy_cgroup_done(struct hy_cgroup *c);
int hy_trial_cgroup_make(struct hy_cgroup *c, const char *tag, uint64_t memory, struct hy_trial_cgroup *ret,
                         struct hy_err *err);
/* cgroup.procs, open for writing, or -Exxx. */
int hy_trial_cgroup_enter_fd(const struct hy_trial_cgroup *t);
/* Consumes the event; whether the OOM killer has killed in it. */
bool hy_trial_cgroup_oom(const struct hy_trial_cgroup *t);
/* Anonymous and shared memory of its processes now, and its peak, which includes page cache. */
uint64_t hy_trial_cgroup_usage(const struct hy_trial_cgroup *t);
uint64_t hy_trial_cgroup_peak(const struct hy_trial_cgroup *t);
/* Sends the signal to all its processes; how many there were, or -Exxx. */
int hy_trial_cgroup_signal(const struct hy_trial_cgroup *t, int sig);
/* All its processes are gone. */
void hy_trial_cgroup_remove(struct hy_trial_cgroup *t);
/*
 * Kills and removes agents' cgroups: those of `name` and `pid`, or with name
 * NULL those whose agent is gone. Returns how many processes were killed.
 */
int hy_cgroup_clear(const char *name, pid_t pid);

/* ---- spawn.c ---- */

struct hy_spawn {
    char *const *argv;
    char *const *env;
    const char *cwd;
    int fds[3]; /* become 0, 1 and 2; all above 2 */
    int cgroup_fd; /* or -1 */
    uint64_t open_files; /* or 0 */
    const int *inherit;
    size_t inherit_count;
    const cpu_set_t *cores; /* or NULL */
};

/* 0, with *ret_pidfd -1 where the kernel has none, or -Exxx with a sentence. */
int hy_spawn(const struct hy_spawn *spawn, pid_t *ret_pid, int *ret_pidfd, struct hy_err *err);

/* ---- fork_server.c ---- */

/* Asks the server for a child with these outputs, which enters the cgroup
 * (-1: none) and then answers on *ret_control (see fork_server.c). 0 or -Exxx. */
int hy_fork_server_fork(struct hy_fork_server *w, const struct hy_process_spec *spec, char *const *env,
                        const int outputs[2], int cgroup_fd, int *ret_control, struct hy_err *err);
/*
 * The child's first message on its control socket: 1 with its PID, or -Exxx with a
 * sentence (-EINPROGRESS: not here yet).
 */
int hy_fork_server_answer(int control, pid_t *ret_pid, struct hy_err *err);

/* ---- memory_watch.c: growth from check to check ---- */

struct hy_memory_growth {
    int64_t sampled_ns, forked_ns; /* 0: not yet */
    uint64_t used;
    size_t processes;
    double rate; /* bytes a millisecond */
};

struct hy_memory_sample {
    int64_t now_ns;
    uint64_t used, limit;
    size_t processes;
    unsigned cores; /* that it may run on */
};

/* Adds a sample. Returns the delay in ms until the next check: while memory grows, well before it can reach the limit;
 * otherwise before it could if it began to grow on all cores, but at least 10 ms. */
int64_t hy_growth_next_check_ms(struct hy_memory_growth *g, const struct hy_memory_sample *seen);

/* ---- process.c ---- */

enum hy_stage {
    HY_STAGE_STARTING, /* a server forks it: its PID is not known yet */
    HY_STAGE_RUNNING,
    HY_STAGE_LINGERING, /* the main process has ended, others not yet */
    HY_STAGE_ENDING, /* SIGTERM was sent; SIGKILL at kill_at */
    HY_STAGE_KILLING, /* SIGKILL in rounds until no process is left */
    HY_STAGE_GONE, /* only the pipes are still to be read */
};

struct hy_output_pipe {
    uv_poll_t poll;
    struct hy_process *process;
    int fd; /* of the trial: 1 or 2 */
    int pipe; /* our end; -1 once read to the end */
    bool paused;
};

struct hy_process {
    struct hy_supervisor *supervisor;
    struct hy_list link;
    struct hy_process_events events;
    void *arg;
    char *tag;
    pid_t pid;
    int pidfd;
    bool main_alive;
    bool serves; /* a fork server, not a trial */
    bool forked; /* by a fork server ... */
    uint64_t inherited; /* ... with so much resident memory */
    cpu_set_t cores; /* while STARTING: its CPU affinity; empty: ours */
    enum hy_stage stage;
    bool has_outcome; /* end.outcome was decided before its death */
    bool ended; /* on_end was called, or the start failed */
    struct hy_process_end end;
    char message[320];
    uint64_t memory;
    uint64_t used; /* the largest amount measured */

    unsigned oom_checks; /* memory_watch.c */
    int64_t check_at; /* when its memory is checked next, by hy_clock_ms */
    struct hy_memory_growth growth;
    int64_t exact_at; /* when it was last measured exactly; 0: never ... */
    uint64_t exact, cheap; /* ... and both sums at that time */
    int64_t stopped_at; /* when it was last stopped to be measured, and how often in a row */
    unsigned stops;
    int64_t timeout_ms;
    int64_t kill_at; /* by uv_now */
    unsigned rounds; /* of SIGKILL */
    struct hy_trial_cgroup cgroup;
    struct hy_output_pipe pipes[2];
    int control; /* while STARTING: to the child, which waits for the go-ahead; else -1 */
    uv_poll_t control_poll;
    uv_poll_t exit_poll, oom_poll;
    uv_timer_t timer;
    unsigned handles; /* of libuv, not closed yet */
};

struct hy_supervisor {
    uv_loop_t *loop;
    struct hy_list processes;
    struct hy_map by_pid; /* main processes that are not reaped yet */
    size_t count;
    pid_t self;
    char mark[HY_MARK_MAX];
    struct hy_cgroup cgroup;
    int null_fd;
    unsigned cores; /* that trials may run on */
    pid_t container_root; /* whose descendants share container_limit bytes; 0: no container */
    uint64_t container_limit;
    int64_t container_check_at;
    struct hy_memory_growth container_growth;
    uv_signal_t child_signal;
    uv_timer_t watch_timer, orphan_timer;
    unsigned handles;
    struct hy_procs snapshot; /* descendants.c */
    int64_t snapshot_at;
    bool snapshot_is_tree; /* has only descendants, perhaps not all */
    int64_t snapshot_pid; /* the newest PID at that time; -1: unknown */
    uint8_t bytes[65536]; /* the buffer of all reads */
};

/* After a failed start or at the end: closes everything; freed when libuv has closed its handles. */
void hy_process_release(struct hy_process *p);
int hy_process_open_poll(struct hy_process *p, uv_poll_t *poll, int fd);
/* It runs: from here on the loop handles it. */
void hy_process_begin(struct hy_process *p);
/* It is being forked: waits for its first message. 0 or -Exxx. */
int hy_process_await_fork(struct hy_process *p);
/* Its memory exceeds the limit: kills it at once. */
void hy_process_over_memory(struct hy_process *p, uint64_t used);
/* Its main process is dead and not reaped yet. */
void hy_process_main_ended(struct hy_process *p);
/* Something may have changed: checks whether it is over, and kills what it left behind. */
void hy_process_settle(struct hy_process *p);

/* ---- descendants.c ---- */

/* Lists processes and assigns them to trials; at most once per loop iteration. 0 or -Exxx. */
int hy_descendants_find(struct hy_supervisor *s);
/* The same, but may miss processes that ended or changed recently; never new ones. Cheap. */
int hy_descendants_find_recent(struct hy_supervisor *s);
/* The same for measurements: only descendants of this process are read, and a new one may be missing. */
int hy_descendants_find_to_measure(struct hy_supervisor *s);
/* Whether processes other than the main one are left. True when in doubt; cheap when false. */
bool hy_descendants_left(struct hy_process *p);
/* Signals its group and all descendants that are known, without listing processes again. Returns how many. */
int hy_descendants_signal_known(struct hy_process *p, int sig);
/* Signals it and all its descendants. Returns how many, or -Exxx. */
int hy_descendants_signal(struct hy_process *p, int sig);
/* Kills orphans whose trial is over: soon and repeatedly until there are none, or now. */
void hy_orphans_kill_soon(struct hy_supervisor *s);
bool hy_orphans_kill(struct hy_supervisor *s);
/* Reaps dead orphans. Returns a main process that is dead and not reaped yet, or NULL. */
struct hy_process *hy_orphans_reap(struct hy_supervisor *s);

/* ---- memory_watch.c ---- */

void hy_watch_start(struct hy_supervisor *s);
/* Its cgroup may be out of memory: checks soon and often for a while. */
void hy_watch_suspect_oom(struct hy_process *p);
void hy_watch_tick(uv_timer_t *timer);

#endif
