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
struct hy_fork_server; /* opaque: a process that forks trials */

struct hy_process_spec {
    const char *tag;        /* names it in its environment and cgroup: "run.trial.attempt" */
    char *const *argv;      /* argv[0] is looked up in the PATH of env */
    char *const *env;       /* NULL-terminated, whole */
    const char *cwd;
    uint64_t memory;        /* bytes; 0: no limit */
    int64_t timeout_ms;     /* 0: none */
    uint64_t open_files;    /* soft limit of open files; 0: ours */
    const int *inherit;     /* fds that it inherits under the same numbers; NULL: none */
    size_t inherit_count;
    const cpu_set_t *cores; /* its CPU affinity; NULL: ours */
    struct hy_fork_server *fork_server; /* forks it, and argv is not used; NULL: it is exec'd */
};

enum hy_process_outcome {
    HY_PROCESS_EXITED,      /* code: the exit status */
    HY_PROCESS_SIGNALED,    /* code: the signal */
    HY_PROCESS_OVER_MEMORY,
    HY_PROCESS_OVER_CONTAINER_MEMORY, /* it used most when its container was nearly full; no message: see `container` */
    HY_PROCESS_TIMED_OUT,
    HY_PROCESS_KILLED, /* hy_process_kill */
    HY_PROCESS_NOT_STARTED, /* by `fork_server`; code: -ENOTSUP (start it without one), -EAGAIN
                               (the server or the process has died), -ETIMEDOUT (the server
                               hangs), -ENOMEM (retry later) or another; with a message */
};

struct hy_process_end {
    enum hy_process_outcome outcome;
    int code;
    /* Bytes: the largest amount measured, at least the resident memory of its
     * largest process, which is never less than this program's. */
    uint64_t peak_memory;
    struct {
        uint64_t limit, used; /* bytes, of all processes in the container ... */
        uint64_t used_by_it; /* ... and of this one with its descendants */
    } container;
    int64_t cpu_ms; /* of it and the descendants it waited for */
    const char *message; /* "killed: used 4.1 GB of the 4.0 GB it may use; raise --memory", or "" */
};

struct hy_process_events {
    /* Output on fd 1 or 2, at most 64 KiB at once, any bytes. */
    void (*on_output)(void *arg, struct hy_process *p, int fd, const uint8_t *bytes, size_t n);
    /* It and all its descendants are gone, and both pipes are read to the end,
     * paused ones included. `p` is freed after this. */
    void (*on_end)(void *arg, struct hy_process *p, const struct hy_process_end *end);
    /* Its main process has died; on_end may follow seconds later. `end` has the
     * outcome, code and message. NULL: no callback. */
    void (*on_death)(void *arg, struct hy_process *p, const struct hy_process_end *end);
};

/*
 * Becomes a subreaper and detects cgroups; `name` must be unique on this
 * machine (it names the agent's cgroup). Does not need root.
 * Orphans are killed and reaped; other children of this program are ignored as
 * long as they stay in its session.
 */
int hy_supervisor_new(uv_loop_t *loop, const char *name, struct hy_supervisor **ret, struct hy_err *err);
/* All processes must have ended. Removes the cgroup; the loop must turn once more to free the rest. */
void hy_supervisor_free(struct hy_supervisor *s);
/*
 * This process runs in a container in which all processes below `root` may use `limit` bytes together: the sum of their
 * resident sizes, as YARN counts. Near the limit the largest process is killed, before the whole container is.
 */
void hy_supervisor_set_container(struct hy_supervisor *s, pid_t root, uint64_t limit);
/* "cgroup v2", "cgroup v1" or "watch": for the log. */
const char *hy_supervisor_limit_method(const struct hy_supervisor *s);

/*
 * Starts it. -ENOENT and the like with a sentence ("cannot start './train':
 * not found in /home/me") when the program cannot be run. The errno of exec is
 * returned through a pipe or shared memory, so no trial is half started.
 */
int hy_process_start(struct hy_supervisor *s, const struct hy_process_spec *spec,
                     const struct hy_process_events *events, void *arg, struct hy_process **ret, struct hy_err *err);
/* SIGTERM to it and its descendants, after grace_ms SIGKILL. May be called again. */
void hy_process_kill(struct hy_process *p, int64_t grace_ms);
/* What it and its descendants use now. 0, or -ESRCH: it is not running yet, or not any more. */
struct hy_process_usage {
    uint64_t memory; /* bytes, as its limit counts them */
    int64_t cpu_ms; /* so far, of those that are alive and those that they have waited for */
};
int hy_process_usage(struct hy_process *p, struct hy_process_usage *ret);
/* Stops reading the pipe of fd 1 or 2 (the trial then blocks in write), or continues. */
void hy_process_pause(struct hy_process *p, int fd, int paused);

/*
 * A server that has imported the modules of a Python trial and forks trials on
 * demand (fork_server.c has the protocol, docs/decisions/0007 the reasons).
 * `server` is the command: its tag has HY_FORK_SERVER_TAG bytes, so that a child
 * can overwrite it with its own. on_ready is called once: from then on processes
 * may be started with it. on_over is the last call, and it is freed after that;
 * `refused` means that another server would refuse as well.
 */
#define HY_FORK_SERVER_TAG 64
struct hy_fork_server_events {
    void (*on_ready)(void *arg, struct hy_fork_server *w);
    void (*on_over)(void *arg, struct hy_fork_server *w, int refused, const char *why);
};
int hy_fork_server_start(struct hy_supervisor *s, const struct hy_process_spec *server,
                         const struct hy_fork_server_events *events, void *arg, struct hy_fork_server **ret,
                         struct hy_err *err);
/* Asks it to exit; on_over follows. Trials that it has forked continue. */
void hy_fork_server_end(struct hy_fork_server *w);
/* Resident memory that a child inherits from the server. */
uint64_t hy_fork_server_resident(const struct hy_fork_server *w);
/* Whether it can fork. If it no longer can, on_over follows. */
bool hy_fork_server_is_open(const struct hy_fork_server *w);

/*
 * The reaper. Forks; the child returns 0 and continues as the agent or driver,
 * while the parent forwards signals. When the child has died, the parent kills
 * all its descendants (it is their subreaper too), removes its cgroup (`name` as
 * for hy_supervisor_new; NULL: a driver, whose agents get SIGTERM first) and the
 * files named by hy_reaper_file, and exits as the child did. In the child
 * hy_reaper_fd becomes readable when the reaper is gone. `hold`: a descriptor
 * that both keep open for the agent's run; -1: none.
 * Must be called before there are threads or a loop. -Exxx when fork fails.
 */
int hy_reaper_fork(const char *name, int hold);
int hy_reaper_fd(void);
/* A file (a socket) that the reaper unlinks when the child is gone, unless another file has replaced it since. */
int hy_reaper_file(const char *path);
/* The agent now works for another run, with this log and this lock; -1, -1: for none. */
int hy_reaper_hold(int log, int lock);
/* This agent, named by the PID of its reaper, outlives the driver. */
int hy_reaper_spare(pid_t pid);
/* This agent, which another driver has started, ends with this driver; -1: it no longer does. */
int hy_reaper_adopt(int pidfd);

/*
 * Leftovers of agents that died together with their reaper: processes of this user with HOPYARD_AGENT=pid:starttime of
 * a process that does not exist, and cgroups with such a name.
 */
/* `trial_dir` is "" for a process that does not belong to a trial. */
typedef void (*hy_leftover_cb)(void *arg, pid_t pid, const char *trial_dir);
/* Calls back for each of the processes. 0 or -Exxx. */
int hy_supervisor_leftovers(hy_leftover_cb cb, void *arg);
/* Removes those cgroups that are empty, or all of them with their processes. Returns how many processes it killed. */
int hy_supervisor_sweep_cgroups(bool with_processes);

/* The cores for one of `ranks` ranks that divide this machine's cores evenly. Returns how many; 0: not divisible. */
size_t hy_cpu_share_for_rank(uint64_t rank, uint64_t ranks, cpu_set_t *ret);

/* ---- helpers ---- */

/*
 * A short-lived program with a time limit and one callback. Its input and output
 * are memory files, so there are no pipes to serve. It stays in this session, so
 * the supervisor ignores it; a daemon that it starts is marked by HY_DAEMON_MARK.
 */
#define HY_HELPER_OUTPUT_MAX 65536

struct hy_helper; /* opaque */

struct hy_helper_spec {
    const char *file;
    char *const *argv;
    char *const *env; /* NULL: ours; its PATH is searched */
    const char *input; /* text for standard input; NULL: none ... */
    int input_fd; /* ... or a descriptor for it; 0: none */
    int64_t timeout_ms; /* 0: none, until hy_helper_limit */
};

/* `status`: its exit status, or 128 + the signal, or -ETIMEDOUT. `output`: what it
 * wrote to standard output and error, at most HY_HELPER_OUTPUT_MAX bytes. */
typedef void (*hy_helper_cb)(void *arg, int status, const char *output);

/* 0, or -Exxx with a sentence; then there is no callback. */
int hy_helper_start(uv_loop_t *loop, const struct hy_helper_spec *spec, hy_helper_cb done, void *arg,
                    struct hy_helper **ret, struct hy_err *err);
/* Sets its time limit, from now on. */
void hy_helper_limit(struct hy_helper *h, int64_t timeout_ms);
/* Ends it without a callback; the loop must turn to free it. NULL is fine. */
void hy_helper_cancel(struct hy_helper *h);

/* In the environment of a daemon that serves several agents (gpu/mps.c), with its directory: these agents end it,
 * whichever process inherits it. */
#define HY_DAEMON_MARK "HOPYARD_MPS"

/* ---- processes ---- */

/* Whether it exists and is not a zombie. */
bool hy_proc_is_alive(pid_t pid);
/* The value of `name` in the environment it was started with. 1, 0 (not set,
 * or not readable), or -ENOMEM. */
int hy_proc_env(pid_t pid, const char *name, char *value, size_t size);
/* PIDs are unique within one namespace only. */
unsigned long long hy_pid_namespace(void);

/* "pid:starttime", the value of HOPYARD_AGENT: it identifies a process even if its PID is reused. */
#define HY_MARK_MAX 80
int hy_mark_format(pid_t pid, char mark[HY_MARK_MAX]);
/* 1: that process lives; 0: it does not; -EINVAL: not a mark. */
int hy_mark_alive(const char *mark);

#endif
