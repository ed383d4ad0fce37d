/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the supervision of processes: what process.c, spawn.c, descendants.c,
 * memory_watch.c, cgroup.c, procs.c, reaper.c and sweep.c share.
 *
 *     supervisor.c   what all trials of an agent share
 *     process.c      a process's life cycle, from its start to on_end
 *     start.c        preparing a start
 *     spawn.c        clone and exec
 *     fork_server.c  the other way to start one: a process that forks trials
 *     descendants.c  which process belongs to which trial, and ending all of them
 *     memory_watch.c memory limits without cgroups
 *     cgroup.c       memory limits with cgroups, v1 and v2; cgroup_find.c: where they are
 *     procs.c        /proc
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

/* ---- procs.c ---- */

struct hy_proc {
    pid_t pid, ppid, pgrp, sid;
    bool dead;               /* a zombie without a living thread */
    bool leaving;            /* has no memory any more, and soon will be dead */
    uint64_t start;          /* clock ticks since boot: with the pid, a name that is never used again */
    struct hy_process *owner; /* descendants.c: the trial it belongs to, or NULL */
    bool orphan;              /* descendants.c: its trial is over */
};

struct hy_procs {
    struct hy_proc *list; /* ascending by pid */
    size_t n, cap;
};

/* 0 or -Exxx (-ENOENT, -ESRCH: there is no such process). */
int hy_proc_read(pid_t pid, struct hy_proc *ret);
/* Every process of this machine that we may see. 0 or -Exxx. */
int hy_procs_read(struct hy_procs *procs);
/* Adds those with these numbers that are not in it yet. 0 or -Exxx. */
int hy_procs_add(struct hy_procs *procs, pid_t first, pid_t last);
void hy_procs_done(struct hy_procs *procs);
struct hy_proc *hy_procs_find(const struct hy_procs *procs, pid_t pid);

/* Calls `each` for the children of this process's first thread, where orphans
 * arrive; needs no memory. How many, or -Exxx. */
int hy_children_each(void (*each)(void *arg, pid_t pid), void *arg);
/* The number of the newest process (or thread) of this PID namespace; -1: not known. */
int64_t hy_newest_pid(void);
/* Bytes of anonymous and shared memory; `exact` counts shared pages once over
 * all who map them and costs milliseconds. 0 when it is gone. */
uint64_t hy_proc_memory(pid_t pid, bool exact);
/* Its anonymous memory alone, without what is swapped out. */
uint64_t hy_proc_anonymous(pid_t pid);
/* The same for a fork of a process that lives on: what it shares with that one is not its own. */
uint64_t hy_proc_private(pid_t pid);
/* All that is resident. */
uint64_t hy_proc_resident(pid_t pid);

/* ---- cgroup_find.c, cgroup.c ---- */

enum hy_cgroup_kind { HY_CGROUP_NONE, HY_CGROUP_V1, HY_CGROUP_V2 };

struct hy_cgroup_place {
    char mount[PATH_MAX];
    char own[PATH_MAX]; /* below the mount: "" or "/…" */
};

/* Our place, from the texts of /proc/self/cgroup and /proc/self/mountinfo. 0 or -ENOENT. */
int hy_cgroup_locate(enum hy_cgroup_kind kind, const char *own_text, const char *mount_text,
                     struct hy_cgroup_place *ret);
/* Is `word` in the list, between the separators? */
bool hy_list_contains(const char *list, const char *word, const char *separators);

/* The agent's own cgroup, in which each trial with a limit gets one. */
struct hy_cgroup {
    enum hy_cgroup_kind kind;
    char path[PATH_MAX];
    uint64_t count; /* of trials so far: makes their names unique */
};

/* One trial's. */
struct hy_trial_cgroup {
    enum hy_cgroup_kind kind;
    char *path;      /* NULL: it has none */
    int events;      /* v1: an eventfd, v2: memory.events; changes when the limit was hit */
};

/* Finds a place and makes the agent's cgroup there; kind NONE when the machine
 * does not let us. `only` narrows the choice for tests. */
void hy_cgroup_init(struct hy_cgroup *c, const char *name, const char *only);
void hy_cgroup_done(struct hy_cgroup *c);
int hy_trial_cgroup_make(struct hy_cgroup *c, const char *tag, uint64_t memory, struct hy_trial_cgroup *ret,
                         struct hy_err *err);
/* The fd by which a process enters, or -Exxx. */
int hy_trial_cgroup_enter_fd(const struct hy_trial_cgroup *t);
/* Takes the event; whether the kernel has killed for memory in there. */
bool hy_trial_cgroup_oom(const struct hy_trial_cgroup *t);
/* What its processes use of their own now, and the most it ever held, page cache included. */
uint64_t hy_trial_cgroup_usage(const struct hy_trial_cgroup *t);
uint64_t hy_trial_cgroup_peak(const struct hy_trial_cgroup *t);
/* Sends the signal to everybody in it; how many there were, or -Exxx. */
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
    int fds[3];       /* become 0, 1 and 2; all above 2 */
    int cgroup_fd;    /* or -1 */
    uint64_t open_files; /* or 0 */
    const int *inherit;
    size_t inherit_count;
    const cpu_set_t *cores; /* or NULL */
};

/* 0, with *ret_pidfd -1 where the kernel has none, or -Exxx with a sentence. */
int hy_spawn(const struct hy_spawn *spawn, pid_t *ret_pid, int *ret_pidfd, struct hy_err *err);

/* ---- fork_server.c ---- */

/* Asks the server for a child with these outputs, which enters the cgroup
 * (-1: none) and then speaks on *ret_control (see fork_server.c). 0 or -Exxx. */
int hy_fork_server_fork(struct hy_fork_server *w, const struct hy_process_spec *spec, char *const *env, const int outputs[2],
                 int cgroup_fd, int *ret_control, struct hy_err *err);
/*
 * What the child said on its control: 1 with its pid, or -Exxx with a sentence
 * (-EINPROGRESS: nothing yet).
 */
int hy_fork_server_answer(int control, pid_t *ret_pid, struct hy_err *err);

/* ---- memory_watch.c: how something grows, from look to look ---- */

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

/* Takes in what was seen. Returns in how many ms it should be looked at again: while it grows, well before it can
 * reach its limit; while it does not, before it could if it began to on all cores, though no sooner than 10 ms. */
int64_t hy_growth_next_check_ms(struct hy_memory_growth *g, const struct hy_memory_sample *seen);

/* ---- process.c ---- */

enum hy_stage {
    HY_STAGE_STARTING, /* a server forks it: there is no process that we know of */
    HY_STAGE_RUNNING,
    HY_STAGE_LINGERING, /* the main process has ended, others not yet */
    HY_STAGE_ENDING,  /* SIGTERM was sent; SIGKILL at kill_at */
    HY_STAGE_KILLING, /* SIGKILL in rounds until nobody is left */
    HY_STAGE_GONE,    /* only the pipes are still to be read */
};

struct hy_output_pipe {
    uv_poll_t poll;
    struct hy_process *process;
    int fd;      /* of the trial: 1 or 2 */
    int pipe;    /* our end; -1 once read to the end */
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
    bool serves;                /* no trial, but what forks trials */
    bool forked;                /* from such a one ... */
    uint64_t inherited;         /* ... with so much resident memory of its */
    cpu_set_t cores;            /* while STARTING: those it is to keep to; none: any */
    enum hy_stage stage;
    bool has_outcome;           /* end.outcome was decided before its death */
    bool ended;                 /* on_end was called, or the start failed */
    struct hy_process_end end;
    char message[320];
    uint64_t memory;
    uint64_t used;              /* the most that was measured */

    unsigned oom_checks;         /* memory_watch.c */
    int64_t check_at;            /* when its memory is looked at next, by hy_clock_ms */
    struct hy_memory_growth growth;
    int64_t exact_at;           /* when it was last measured exactly; 0: never ... */
    uint64_t exact, cheap;      /* ... and both sums of then */
    int64_t stopped_at;         /* when it was last stopped for that, and how often in a row */
    unsigned stops;
    int64_t timeout_ms;
    int64_t kill_at;            /* by uv_now */
    unsigned rounds;            /* of SIGKILL */
    struct hy_trial_cgroup cgroup;
    struct hy_output_pipe pipes[2];
    int control;                /* while STARTING: to the child that waits for our word; else -1 */
    uv_poll_t control_poll;
    uv_poll_t exit_poll, oom_poll;
    uv_timer_t timer;
    unsigned handles;           /* of libuv, not closed yet */
};

struct hy_supervisor {
    uv_loop_t *loop;
    struct hy_list processes;
    struct hy_map by_pid;       /* main processes that are not reaped yet */
    size_t count;
    pid_t self;
    char mark[HY_MARK_MAX];
    struct hy_cgroup cgroup;
    int null_fd;
    unsigned cores;             /* that trials may run on */
    pid_t container_root;       /* whose descendants share container_limit bytes; 0: no container */
    uint64_t container_limit;
    int64_t container_check_at;
    struct hy_memory_growth container_growth;
    uv_signal_t child_signal;
    uv_timer_t watch_timer, orphan_timer;
    unsigned handles;
    struct hy_procs snapshot;     /* descendants.c */
    int64_t snapshot_at;
    int64_t snapshot_pid;         /* the newest process number of then; -1: not known */
    uint8_t bytes[65536];       /* every read goes through here */
};

/* A start that failed, or an end: closes everything; freed when libuv is done with it. */
void hy_process_release(struct hy_process *p);
int hy_process_open_poll(struct hy_process *p, uv_poll_t *poll, int fd);
/* It runs: from here on the loop handles it. */
void hy_process_begin(struct hy_process *p);
/* It is being forked: waits for its first message. 0 or -Exxx. */
int hy_process_await_fork(struct hy_process *p);
/* Its memory was measured as `used` and is too much: ends it at once. */
void hy_process_over_memory(struct hy_process *p, uint64_t used);
/* Its main process is dead and not reaped yet. */
void hy_process_main_ended(struct hy_process *p);
/* Something may have changed: checks whether it is over, and kills what it left behind. */
void hy_process_settle(struct hy_process *p);

/* ---- descendants.c ---- */

/* Lists processes and assigns them to trials; at most as old as this turn of the loop. 0 or -Exxx. */
int hy_descendants_find(struct hy_supervisor *s);
/* The same, but what ended or changed a moment ago may be missed; new processes are not. Cheap. */
int hy_descendants_find_recent(struct hy_supervisor *s);
/* Whether processes other than the main one are left. Errs on the side of yes; cheap when the answer is no. */
bool hy_descendants_left(struct hy_process *p);
/* Signals its group and all descendants that are known, without listing processes again. Returns how many. */
int hy_descendants_signal_known(struct hy_process *p, int sig);
/* Signals all of it. Returns how many, or -Exxx. */
int hy_descendants_signal(struct hy_process *p, int sig);
/* Kills orphans whose trial is over: soon and repeatedly until there are none, or now. */
void hy_orphans_kill_soon(struct hy_supervisor *s);
bool hy_orphans_kill(struct hy_supervisor *s);
/* Reaps dead orphans. Returns a main process that is dead and not reaped yet, or NULL. */
struct hy_process *hy_orphans_reap(struct hy_supervisor *s);

/* ---- memory_watch.c ---- */

void hy_watch_start(struct hy_supervisor *s);
/* Its cgroup seems to be out of memory: looks soon and often for a while. */
void hy_watch_suspect_oom(struct hy_process *p);
void hy_watch_tick(uv_timer_t *timer);

#endif
