/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the agent: its loop, and the attempts that run on it. */
#ifndef HY_AGENT_TRIAL_H
#define HY_AGENT_TRIAL_H

#include <stdbool.h>

#include "agent/metric.h"
#include "base/list.h"
#include "base/map.h"
#include "gpu/gpu.h"
#include "supervise/supervise.h"
#include "wire/wire.h"

/* Of a training: what its ranks here share in this generation. group.c */
struct shared {
    int fd; /* a memfd; -1: none */
    uint64_t generation;
};

/* A rank of it. */
struct member {
    struct hy_local_conn *conn; /* NULL: it has not joined, or has hung up */
    struct hy_local_conn *node; /* the same, of a node of a cluster: it may be in the group besides */
    uint64_t generation;        /* whose roster it has; 0: it waits for one */
    uint32_t port;              /* of its join: by them a roster is known to be */
    char bell[HY_RANK_ADDRESS_LIMIT]; /* the answer to it */
    bool joined, left;
};

/* A Python function, and the process that forks its trials: function.c. */
struct function {
    int fd;                 /* a memfd; -1: the run has none */
    uint32_t stream;
    uint64_t left;          /* bytes that have not arrived yet */
    struct hy_fork_server *server;
    bool ready;
    uint64_t ready_by;      /* by uv_now; 0: no limit */
    bool cold;              /* each trial starts a fresh interpreter */
    unsigned failures;      /* servers that died since a trial last ended */
    struct hy_list waiting; /* trials, until it is ready */
};

struct agent {
    uv_loop_t loop;
    struct hy_net *net;
    struct hy_peer *peer;
    struct hy_supervisor *supervisor;
    struct hy_local *reports; /* where `hopyard report` connects */
    struct hy_list deferred;  /* connections whose reports wait for the driver: report_socket.c */
    char *report_path;
    uv_prepare_t turn;
    uv_poll_t reaper, input, companion;
    int companion_fd;  /* a pidfd; -1: none */
    bool is_detached;  /* from the process that started it: it now ends with its companion */
    uv_signal_t term, interrupt;
    uv_timer_t tick;          /* sends printed metrics and samples */
    int64_t machine_due_ms;   /* when the machine's usage is measured next: usage.c */
    const char *name;
    char *given_name;         /* by its second or later run; NULL: this is its first */
    int hold_fd;              /* a lock of the run, until its last trial has ended; -1: none */
    char *client, *warm_key;  /* the client whose next run it may wait for: standby.c */
    struct hy_agent_standby *standby; /* NULL: not on standby */
    const char *python;       /* this machine's interpreter for functions; NULL: the driver's choice */
    bool own_environment;     /* trials inherit ours, not the user's */
    uint32_t slots;
    uint64_t open_files;      /* the soft limit that trials get */
    uint64_t memory;          /* for trials; 0: all of this machine's */
    const char *work;         /* a directory for their files, without a shared one; NULL: the user's cache */

    Hy__Control *welcomed;    /* the driver's Welcome, kept: env, cwd, metric … */
    char *root;               /* the run's directory: the driver's, or local scratch */
    bool shares_files;
    char **env;               /* Welcome.env with this host's variables; borrowed strings except ... */
    char *path;               /* ... PATH=, with our program's directory appended */
    size_t env_count;

    struct function function;
    struct shared shared;
    struct hy_cores *cores;    /* NULL: trials do not wait for any */
    struct hy_gpus *gpus;
    bool gpus_found, may_join; /* both: AgentInfo is sent */
    bool gpus_closing, gpus_closed;
    struct hy_map trials;     /* by trial_key */
    struct hy_map incoming;   /* stream -> struct incoming: files from the driver */
    uint32_t next_stream;
    bool ending;
    bool has_other_reason;         /* besides the driver's goodbye: it does not go on standby */
    int exit_status;
    char why[128];            /* the reason for ending */
};

/* One of a trial's two outputs. */
struct capture {
    uint32_t stream; /* 0: nothing printed yet */
    uint64_t bytes;
    bool paused;
    struct hy_metric_scan scan;
};

struct upload;   /* upload.c */
struct mirror;   /* hdfs_mirror.c */
struct incoming; /* input_files.c */
struct sampling; /* usage.c */

/* One attempt. */
struct trial {
    struct agent *agent;
    uint64_t number;
    uint32_t attempt;
    char tag[64];        /* "run.trial.attempt" */
    char *dir;           /* absolute */
    char *result;        /* dir/result.json */
    char *checkpoint;
    Hy__Control *start;  /* the driver's Start, kept until it runs */
    struct hy_process *process;
    struct capture captures[2];
    int latest;          /* which capture saw the metric last */
    bool value_is_new;   /* since the last tick */
    struct incoming *incoming; /* files that have not arrived yet */
    struct upload *upload;
    struct hy_list waiting;    /* for the function's server */
    struct hy_gpu_lease *lease;
    struct hy_core_lease *core;
    bool has_gpus, has_core;   /* the leases are granted; until then it waits ... */
    bool is_held;              /* ... and this was reported */
    unsigned forks;            /* that failed */
    struct member member;
    char *said, *detail;       /* its own report of its failure: one line, and a traceback */
    char *remark;              /* its report about the result of its function */
    Hy__Ended ended;     /* while files are uploaded */
    char *message;
    struct hy_list outputs; /* struct output_end */
    size_t output_count;
    Hy__Metric **metrics;
    size_t metric_count;
    char *metric_error;
    int64_t begun_ms;          /* when its process was started; 0: not yet */
    Hy__Decision__Kind decision; /* the newest one of the driver ... */
    int64_t end_by_ms;           /* ... and when it is killed, if it has not ended by itself; 0: not set */
    struct sampling *sampling; /* usage.c; NULL: not sampled yet */
};

static inline uint64_t hy_agent_trial_key(uint64_t number, uint32_t attempt)
{
    return number << 16 | (attempt & 0xffff);
}

/* ---- trial.c ---- */
/* Takes the message. */
void hy_agent_trial_start(struct agent *a, Hy__Control *start);
void hy_agent_trial_kill(struct trial *t, int64_t grace_ms);
/* It is to end by itself: it gets the decision with the answer to its next report. */
void hy_agent_trial_decide(struct trial *t, const Hy__Decision *decision);
void hy_agent_trial_room(struct agent *a, uint32_t stream);
void hy_agent_trial_tick(struct agent *a);
/* The driver is gone: reads and discards the output of trials, so that they can end. */
void hy_agent_trials_discard_output(struct agent *a);
/* All files have arrived: runs it. */
void hy_agent_trial_run(struct trial *t);
/* It cannot run: sends Ended and frees it. */
void hy_agent_trial_fail(struct trial *t, const struct hy_err *err);
/* All files are sent: sends Ended and frees it. */
void hy_agent_trial_finish(struct trial *t);
void hy_agent_trial_free(struct trial *t);
int hy_agent_trial_add_output(struct trial *t, uint32_t stream, uint64_t bytes);
/* Sends a message; on failure the agent ends. */
void hy_agent_send(struct agent *a, const Hy__Control *m);
void hy_agent_end(struct agent *a, int status, const char *why);
/* Sends a note to the user. */
void hy_agent_note(struct agent *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Everything that follows the Welcome has arrived: sends AgentInfo. */
void hy_agent_join(struct agent *a);
/* With a companion: the process that started us may end now, and we print nothing more. */
void hy_agent_detach(struct agent *a);
/* It ends because of an internal error: results may be incomplete, so none are
 * sent, and its trials are lost. */
static inline bool hy_agent_is_broken(const struct agent *a)
{
    return a->ending && a->exit_status;
}

/* ---- usage.c ---- */
void hy_agent_usage_tick(struct agent *a);
/* Its process has ended: sends the last points. */
void hy_agent_usage_end(struct trial *t, const struct hy_process_end *end);

/* ---- report_socket.c ---- */

int hy_agent_report_socket_open(struct agent *a, struct hy_err *err);
/* Handles deferred reports, if the driver has caught up. */
void hy_agent_report_socket_resume(struct agent *a);

/* ---- group.c: the ranks of a training ---- */
/* A rank's word, on its way to the driver. Why it is refused; "": it is not. */
const char *hy_agent_group_receive(struct trial *t, struct hy_local_conn *c, Hy__GroupWord *word);
/* The driver's word for a rank. */
void hy_agent_group_deliver(struct agent *a, const Hy__GroupWord *word);
/* Its main process has died: the others are to know at once. */
void hy_agent_group_died(struct trial *t, const struct hy_process_end *end);
void hy_agent_group_disconnected(struct hy_local_conn *c);
/* The attempt is over. */
void hy_agent_group_forget(struct trial *t);
void hy_agent_group_done(struct agent *a);

/* ---- python_function.c ---- */
/* 1: it follows, and hy_agent_join is called on arrival. 0: the run has none. Or -Exxx. */
int hy_agent_function_expect(struct agent *a, struct hy_err *err);
/* True when the stream is the function's. */
bool hy_agent_function_data(struct agent *a, uint32_t stream, const uint8_t *bytes, size_t n);
/* "HOPYARD_FUNCTION=…" for a trial's environment; free it. */
char *hy_agent_function_env(const struct agent *a);
/* Whether trials are started by exec. */
bool hy_agent_function_is_cold(const struct agent *a);
/* The server that forks this trial. NULL: it waits for one (hy_agent_trial_run is
 * called again), or it is cold from now on. */
struct hy_fork_server *hy_agent_function_server(struct trial *t);
/* Forking it failed: tries another way, or fails the trial. */
void hy_agent_function_not_started(struct trial *t, const struct hy_err *why);
/* A trial of the function has run, so its server works. */
void hy_agent_function_trial_ran(struct agent *a);
/* Gives up a server that does not become ready in time. */
void hy_agent_function_tick(struct agent *a);
/* The server is no longer needed. */
void hy_agent_function_end(struct agent *a);
void hy_agent_function_done(struct agent *a);

/* The run is over, and the server stays for the next one. */
void hy_agent_function_forget(struct agent *a);

/* ---- standby.c: after a run, before the next one of the same client ---- */
/* The driver's Bye may offer standby; accepts it if possible. */
void hy_agent_standby_offer(struct agent *a, const Hy__Bye *bye);
/* Whether it goes on standby when all its trials have ended. */
bool hy_agent_standby_is_next(const struct agent *a);
/* Sends Bye and goes on standby. False: it cannot. */
bool hy_agent_standby_enter(struct agent *a);
/* Ends standby, if it is on standby. */
void hy_agent_standby_cancel(struct agent *a);

/* ---- trial_leases.c: GPUs and cores ---- */
/* 0: it has its leases. 1: it waits, and hy_agent_trial_run is called again. Or -Exxx. */
int hy_agent_acquire_leases(struct trial *t, struct hy_err *err);
/* It has ended: releases them, and checks whether a GPU fault ended it. */
void hy_agent_release_leases(struct trial *t, bool failed);
/* Starts to list GPUs. 0 or -ENOMEM. */
int hy_agent_gpus_open(struct agent *a);
/* If the Welcome asks for it, trials lease cores. */
void hy_agent_cores_open(struct agent *a, const Hy__Welcome *w);
void hy_agent_gpus_describe(const struct agent *a, Hy__AgentInfo *info, char *uuids[]);
/* Ends MPS daemons. False: call it again in the next turn. */
bool hy_agent_gpus_close(struct agent *a);

/* ---- input_files.c: for agents without access to the driver's directory ---- */
/* A scratch directory for the run; free it. */
char *hy_agent_files_root(const struct agent *a, const char *host, struct hy_err *err);
/* 0: there are none. 1: they follow, and the trial is run or fails then; it may have
 * done so already. Or -Exxx. */
int hy_agent_files_expect(struct trial *t, struct hy_err *err);
/* The trial is freed while it waits. */
void hy_agent_files_cancel(struct trial *t);
void hy_agent_files_data(struct agent *a, uint32_t stream, const uint8_t *bytes, size_t n);

/* ---- upload.c: files from there to the driver ---- */
/* Sends what is new in the trial's event files, or continues. True: all is sent, and the trial is freed. */
bool hy_agent_upload_tick(struct trial *t);
/* It has ended: sends the rest of its directory, then calls hy_agent_trial_finish. */
void hy_agent_upload_all(struct trial *t);
/* True when the stream is the trial's, which may be freed by then. */
bool hy_agent_upload_room(struct trial *t, uint32_t stream);
void hy_agent_upload_free(struct upload *u);
/* The mirror has ended. `is_whole`: only the files that it skips remain to be sent. */
void hy_agent_upload_mirrored(struct trial *t, bool is_whole);

/* ---- hdfs_mirror.c: files directly to HDFS ---- */
/* Whether this file of a trial goes over the driver's link anyway. By its path in the trial's directory. */
bool hy_agent_mirror_skips(const char *path);
/* NULL: it cannot be started, which was logged. */
struct mirror *hy_agent_mirror_start(struct trial *t);
/* The trial has ended: hy_agent_upload_mirrored is called when all is copied, or cannot be. */
void hy_agent_mirror_end(struct mirror *m);
/* Ends it if it still runs; NULL is fine. */
void hy_agent_mirror_free(struct mirror *m);
/* The main function of the helper: returns its exit status. `limit`: bytes to copy at most. */
int hy_agent_mirror_main(const char *directory, const char *url, const char *limit);

#endif
