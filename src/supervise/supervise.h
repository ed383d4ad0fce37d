/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervise: the processes of one machine. Starts them, watches and limits
 * them, and ends them with everything that they have started.
 *
 * A trial gets its own session and process group, is watched by a pidfd, and
 * ends with all its descendants: this process is their subreaper, so a double
 * fork does not escape. Memory is limited by a cgroup (v2, or the v1 memory
 * controller) where the machine permits it, otherwise by sampling /proc; what
 * counts is the trial's own anonymous and shared memory.
 */
#ifndef HY_SUPERVISE_H
#define HY_SUPERVISE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"

struct hy_supervisor; /* opaque: one per agent */
struct hy_process;    /* opaque */
struct hy_fork_server;       /* opaque: a process that forks trials */

struct hy_process_spec {
    const char *tag;        /* names it in its environment and cgroup: "run.trial.attempt" */
    char *const *argv;      /* argv[0] is looked up in the PATH of env */
    char *const *env;       /* NULL-terminated, whole */
    const char *cwd;
    uint64_t memory;        /* bytes; 0: no limit */
    int64_t timeout_ms;     /* 0: none */
    uint64_t open_files;    /* its soft limit of open files; 0: ours */
    const int *inherit;     /* fds that it keeps, by these numbers when it is exec'd; NULL: none */
    size_t inherit_count;
    const cpu_set_t *cores; /* it keeps to these; NULL: to none */
    struct hy_fork_server *warm;   /* this one forks it, and argv is not used; NULL: it is exec'd */
};

enum hy_process_outcome {
    HY_PROCESS_EXITED,      /* code: the exit status */
    HY_PROCESS_SIGNALED,    /* code: the signal */
    HY_PROCESS_OVER_MEMORY,
    HY_PROCESS_OVER_CONTAINER_MEMORY, /* it used most when its container was nearly full; no message: see `container` */
    HY_PROCESS_TIMED_OUT,
    HY_PROCESS_KILLED,      /* hy_process_kill */
    HY_PROCESS_NOT_STARTED, /* by `warm`; code: -ENOTSUP (start it without), -EAGAIN (the server
                               or the process is gone), -ETIMEDOUT (the server hangs),
                               -ENOMEM (no room now) or another; message says why */
};

struct hy_process_end {
    enum hy_process_outcome outcome;
    int code;
    /* Bytes: the most of its own that was measured, at least the resident memory
     * of its biggest process, which never reads lower than this program's own. */
    uint64_t peak_memory;
    struct {
        uint64_t limit, used; /* bytes, of all processes in the container ... */
        uint64_t used_by_it;  /* ... and of this one with its descendants */
    } container;
    int64_t cpu_ms;         /* of it and the descendants it waited for */
    const char *message;    /* "killed: used 4.1 GB of the 4.0 GB it may use; raise --memory", or "" */
};

struct hy_process_events {
    /* Output on fd 1 or 2, at most 64 KiB at once, any bytes. */
    void (*on_output)(void *arg, struct hy_process *p, int fd, const uint8_t *bytes, size_t n);
    /* It and all its descendants are gone, and both pipes are read to the end
     * (what a paused pipe still held was delivered). `p` is freed after this. */
    void (*on_end)(void *arg, struct hy_process *p, const struct hy_process_end *end);
    /* Its main process has died, however; on_end may follow a second later, or
     * more. `end` has the outcome, code and message. NULL: no callback. */
    void (*on_death)(void *arg, struct hy_process *p, const struct hy_process_end *end);
};

/*
 * Becomes a subreaper and finds out about cgroups; `name` must be unique on
 * this machine (it names the agent's cgroup). Raises nothing, needs no root.
 * Orphans are reaped and ended here; children that this program starts by
 * itself are left alone as long as they stay in its session.
 */
int hy_supervisor_new(uv_loop_t *loop, const char *name, struct hy_supervisor **ret, struct hy_err *err);
/* All processes must have ended. Removes the cgroup; the loop must turn once more to free the rest. */
void hy_supervisor_free(struct hy_supervisor *s);
/*
 * This process runs in a container in which all processes below `root` may use `limit` bytes together, counted as YARN
 * does: the sum of their resident sizes. Close to the limit the trial with the most is killed: otherwise YARN would kill
 * the whole container.
 */
void hy_supervisor_set_container(struct hy_supervisor *s, pid_t root, uint64_t limit);
/* "cgroup v2", "cgroup v1" or "watch": for the log. */
const char *hy_supervisor_limit_method(const struct hy_supervisor *s);

/*
 * Starts it. -ENOENT and the like with a sentence ("cannot start './train':
 * not found in /home/me") when the program cannot be run: exec's own errno
 * comes back through a pipe or shared memory, so there is no half-started trial.
 */
int hy_process_start(struct hy_supervisor *s, const struct hy_process_spec *spec,
                     const struct hy_process_events *events, void *arg,
                     struct hy_process **ret, struct hy_err *err);
/* SIGTERM to all of it, after grace_ms SIGKILL. May be called again. */
void hy_process_kill(struct hy_process *p, int64_t grace_ms);
/* Stops reading the pipe of fd 1 or 2 (the trial then blocks in write), or continues. */
void hy_process_pause(struct hy_process *p, int fd, int paused);
int64_t hy_process_pid(const struct hy_process *p);

/*
 * A server that has imported what a Python trial needs, and forks it on demand
 * (fork_server.c has the protocol, docs/decisions/0007 the reasons). `server` is what
 * to run: its tag has HY_FORK_SERVER_TAG bytes, so that a child can write its own over
 * it. on_ready comes once: from then on processes may be started with it.
 * on_over ends it, and it is freed after that; `refused` means that another one
 * would refuse as well.
 */
#define HY_FORK_SERVER_TAG 64
struct hy_fork_server_events {
    void (*on_ready)(void *arg, struct hy_fork_server *w);
    void (*on_over)(void *arg, struct hy_fork_server *w, int refused, const char *why);
};
int hy_fork_server_start(struct hy_supervisor *s, const struct hy_process_spec *server, const struct hy_fork_server_events *events,
                  void *arg, struct hy_fork_server **ret, struct hy_err *err);
/* Asks it to exit; on_over follows. Trials that it has forked continue. */
void hy_fork_server_end(struct hy_fork_server *w);
/* How much memory of the server a child begins with. */
uint64_t hy_fork_server_resident(const struct hy_fork_server *w);
/* Whether it can fork. If it no longer can, on_over follows. */
bool hy_fork_server_is_open(const struct hy_fork_server *w);

/*
 * The reaper. Forks; the child returns 0 and goes on as the agent or driver,
 * while the parent stays behind, forwards signals, and when the child has died
 * in whatever way ends all its descendants (it is their subreaper too),
 * removes its cgroup (`name` as for hy_supervisor_new; NULL: a driver, whose
 * children are agents and are asked to end before they are made to) and the files
 * named by hy_reaper_file, and exits as the child did. The child learns by
 * hy_reaper_fd (readable: the reaper is gone). `hold`: a descriptor that both
 * keep open for the agent's run; -1: none.
 * Must be called before there are threads or a loop. -Exxx when fork fails.
 */
int hy_reaper_fork(const char *name, int hold);
int hy_reaper_fd(void);
/* A file (a socket) that the reaper unlinks when the child is gone. */
int hy_reaper_file(const char *path);
/* The agent has another run, with this log and this lock; -1, -1: it has none. */
int hy_reaper_hold(int log, int lock);
/* This agent, by its own reaper's process, outlives the driver. */
int hy_reaper_spare(pid_t pid);
/* This agent, which another driver has started, is the driver's now; -1: not any more. */
int hy_reaper_adopt(int pidfd);

/*
 * What a machine has left of agents that are gone together with their reaper: processes of this user whose environment
 * says HOPYARD_AGENT=pid:starttime of a process that is not there, and cgroups named so.
 */
/* `trial_dir` is "" for a process that belongs to no trial. */
typedef void (*hy_leftover_cb)(void *arg, pid_t pid, const char *trial_dir);
/* Calls back for each of the processes. 0 or -Exxx. */
int hy_supervisor_leftovers(hy_leftover_cb cb, void *arg);
/* Removes the cgroups that are empty, or all of them with their processes: how many of these it has ended. */
int hy_supervisor_sweep_cgroups(bool with_processes);

/* The cores of one of `ranks` that share this machine's: how many; 0: they cannot have the same number of them. */
size_t hy_cpu_share_for_rank(uint64_t rank, uint64_t ranks, cpu_set_t *ret);

/* ---- helpers ---- */

/*
 * A program that runs beside the loop: no pipes to attend to (what it reads and
 * prints is in memory), a time limit, one callback. It stays in this session, so
 * the supervisor leaves it alone; what it leaves behind as a daemon is marked by
 * HY_DAEMON_MARK.
 */
#define HY_HELPER_SAID_MAX 65536

struct hy_helper; /* opaque */

struct hy_helper_spec {
    const char *file;
    char *const *argv;
    char *const *env;    /* NULL: ours; its PATH is searched */
    const char *input;   /* what it finds on standard input; NULL: nothing ... */
    int input_fd;        /* ... or this; 0: not so */
    int64_t timeout_ms;  /* 0: none, until hy_helper_limit */
};

/* `status`: how it exited, or 128 + the signal, or -ETIMEDOUT. `said`: what it
 * wrote to standard output and error, at most HY_HELPER_SAID_MAX bytes. */
typedef void (*hy_helper_cb)(void *arg, int status, const char *said);

/* 0, or -Exxx with a sentence; then there is no callback. */
int hy_helper_start(uv_loop_t *loop, const struct hy_helper_spec *spec, hy_helper_cb done, void *arg,
                    struct hy_helper **ret, struct hy_err *err);
/* Sets its time limit, from now on. */
void hy_helper_limit(struct hy_helper *h, int64_t timeout_ms);
/* Ends it without a callback; the loop must turn to free it. NULL is fine. */
void hy_helper_cancel(struct hy_helper *h);

/* In the environment of a daemon that serves several agents (gpu/mps.c), with its folder: whose child it becomes does
 * not matter, they end it. */
#define HY_DAEMON_MARK "HOPYARD_MPS"

/* ---- processes by name ---- */

/* Whether there is such a process, and it is not a zombie. */
bool hy_proc_is_alive(pid_t pid);
/* The value of `name` in the environment it was started with. 1, 0 (not
 * there, or not to be read), or -ENOMEM. */
int hy_proc_env(pid_t pid, const char *name, char *value, size_t size);
/* Process numbers mean something within one of these only. */
unsigned long long hy_pid_namespace(void);

/* "pid:starttime" of a process, as HOPYARD_AGENT carries it: a name that no other process will have. */
#define HY_MARK_MAX 80
int hy_mark_format(pid_t pid, char mark[HY_MARK_MAX]);
/* 1: that process lives; 0: it does not; -EINVAL: no mark. */
int hy_mark_alive(const char *mark);

#endif
