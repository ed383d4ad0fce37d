/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's inside: its loop, and the attempts that run on it. */
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
    uint64_t left;          /* that has not arrived yet */
    struct hy_fork_server *server;
    bool ready;
    uint64_t ready_by;      /* by uv_now; 0: it may take its time */
    bool cold;              /* each trial starts a fresh interpreter */
    unsigned failures;      /* servers that died, and no trial has ended since */
    struct hy_list waiting; /* trials, until it is ready */
};

struct agent {
    uv_loop_t loop;
    struct hy_net *net;
    struct hy_peer *peer;
    struct hy_supervisor *supervisor;
    struct hy_local *reports; /* where `hopyard report` connects */
    struct hy_list deferred;  /* connections whose reports wait until the driver has caught up: report_socket.c */
    char *report_path;
    uv_prepare_t turn;
    uv_poll_t reaper, input, companion;
    int companion_fd; /* -1: it has none */
    bool has_left;    /* who started it, for its companion */
    uv_signal_t term, interrupt;
    uv_timer_t tick;          /* printed metrics on their way to the table */
    const char *name;
    char *given_name;         /* by the run that it was handed to; NULL: it has joined one run only */
    int hold_fd;              /* a lock of the run, until its last trial has ended; -1: none */
    char *client, *warm_key;  /* whose next run it may wait for, when this one is over: standby.c */
    struct hy_standing *standing; /* while it waits for it */
    const char *python;       /* this machine's, which functions are run by; NULL: as the driver says */
    bool own_environment;     /* trials have ours, not the user's */
    uint32_t slots;
    uint64_t open_files;      /* the soft limit that trials get */
    uint64_t memory;          /* that there is for them; 0: all of this machine's */
    const char *work;         /* a folder for what they write, if the driver's is not seen; NULL: the user's cache */

    Hy__Control *welcomed;    /* the driver's Welcome, kept: env, cwd, metric … */
    char *root;               /* the run's folder: the driver's, or our own scratch */
    bool shares_files;
    char **env;               /* Welcome.env with this host's own words; borrowed strings but for ... */
    char *path;               /* ... PATH=, with our own folder at its end */
    size_t env_count;

    struct function function;
    struct shared shared;
    struct hy_cores *cores;    /* NULL: trials do not wait for any */
    struct hy_gpus *gpus;
    bool gpus_found, may_join; /* both: the driver hears who we are */
    bool gpus_leaving, gpus_left;
    struct hy_map trials;     /* by trial_key */
    struct hy_map incoming;   /* stream -> struct incoming: files that are sent to us */
    uint32_t next_stream;
    bool ending;
    bool is_unwanted;         /* there is more than one reason to end: it does not wait for another run */
    int exit_status;
    char why[128];            /* it ends */
};

/* One of a trial's two outputs. */
struct capture {
    uint32_t stream; /* 0: nothing printed yet */
    uint64_t bytes;
    bool paused;
    struct hy_metric_scan scan;
};

struct upload;   /* upload.c */
struct mirror;   /* mirror.c */
struct incoming; /* files.c */

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
    struct incoming *incoming; /* files have not all come yet */
    struct upload *upload;
    struct hy_list waiting;    /* for the function's server */
    struct hy_gpu_lease *lease;
    struct hy_core_lease *core;
    bool has_gpus, has_core;   /* the lease is there; until then it waits for it ... */
    bool is_held;              /* ... and the driver knows */
    unsigned forks;            /* that did not come to anything */
    struct member member;
    char *said, *detail;       /* what it told us of its failure */
    char *remark;              /* and of what its function returned */
    Hy__Ended ended;     /* while files are uploaded */
    char *message;
    struct hy_list outputs; /* struct output_end */
    size_t output_count;
    Hy__Metric **metrics;
    size_t metric_count;
    char *metric_error;
};

static inline uint64_t hy_agent_trial_key(uint64_t number, uint32_t attempt)
{
    return number << 16 | (attempt & 0xffff);
}

/* ---- trial.c ---- */
/* Takes the message. */
void hy_agent_trial_start(struct agent *a, Hy__Control *start);
void hy_agent_trial_kill(struct trial *t, int64_t grace_ms);
void hy_agent_trial_room(struct agent *a, uint32_t stream);
void hy_agent_trial_tick(struct agent *a);
/* Nobody takes what trials print any more: it is read and thrown away, so that they can end. */
void hy_agent_trials_deaf(struct agent *a);
/* All files are here: runs it. */
void hy_agent_trial_run(struct trial *t);
/* It cannot run: says so and forgets it. */
void hy_agent_trial_fail(struct trial *t, const struct hy_err *err);
/* All files are sent: says Ended and forgets it. */
void hy_agent_trial_finish(struct trial *t);
void hy_agent_trial_free(struct trial *t);
int hy_agent_trial_add_output(struct trial *t, uint32_t stream, uint64_t bytes);
/* Sends a message; an agent that cannot is of no use and ends itself. */
void hy_agent_send(struct agent *a, const Hy__Control *m);
void hy_agent_end(struct agent *a, int status, const char *why);
/* Tells the user something. */
void hy_agent_note(struct agent *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* All that the Welcome brings is here: tells the driver who we are. */
void hy_agent_join(struct agent *a);
/* Who started us may go now, if we have somebody else to live with; and nobody reads what we print. */
void hy_agent_leave(struct agent *a);
/* It ends for a fault of its own: what it has to say of its trials may have
 * holes, so it says nothing, and they are lost. */
static inline bool hy_agent_is_broken(const struct agent *a)
{
    return a->ending && a->exit_status;
}

/* ---- report_socket.c ---- */
/* Opens the socket that trials speak on. */
int hy_agent_hear_open(struct agent *a, struct hy_err *err);
/* Takes reports that wait, if the driver has caught up. */
void hy_agent_hear_deferred(struct agent *a);

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

/* ---- function.c ---- */
/* 1: it follows, and hy_agent_join is called when it is here. 0: there is none. Or -Exxx. */
int hy_agent_function_expect(struct agent *a, struct hy_err *err);
/* True when the stream is the function's. */
bool hy_agent_function_data(struct agent *a, uint32_t stream, const uint8_t *bytes, size_t n);
/* "HOPYARD_FUNCTION=…" for a trial's environment; free it. */
char *hy_agent_function_word(const struct agent *a);
/* Are trials started by exec? */
bool hy_agent_function_is_cold(const struct agent *a);
/* Who forks this trial. NULL: it waits for one (hy_agent_trial_run comes again), or
 * it is cold from now on. */
struct hy_fork_server *hy_agent_function_server(struct trial *t);
/* It was to be forked and was not: tries another way, or fails it. */
void hy_agent_function_not_started(struct trial *t, const struct hy_err *why);
/* A trial of the function has run: who has forked it is fine. */
void hy_agent_function_has_run(struct agent *a);
/* Time passes: a server that never gets ready is given up. */
void hy_agent_function_tick(struct agent *a);
/* The server is not needed any more. */
void hy_agent_function_end(struct agent *a);
void hy_agent_function_done(struct agent *a);

/* The run is over, and the server stays for the next one. */
void hy_agent_function_forget(struct agent *a);

/* ---- standby.c: after a run, before the next one of the same client ---- */
/* The driver's goodbye: may it wait, and can it? */
void hy_agent_standby_invite(struct agent *a, const Hy__Bye *bye);
/* Is it to wait when all its trials have ended? */
bool hy_agent_standby_next(const struct agent *a);
/* Says goodbye and waits. False: it cannot, and ends. */
bool hy_agent_stand_by(struct agent *a);
/* It waits no longer; nothing happens if it does not. */
void hy_agent_standby_over(struct agent *a);

/* ---- trial_leases.c: GPUs and cores ---- */
/* 0: it has what it needs of them. 1: it waits, and hy_agent_trial_run comes again. Or -Exxx. */
int hy_agent_lend(struct trial *t, struct hy_err *err);
/* It is over: gives them back, and finds out with whom it fell. */
void hy_agent_lend_over(struct trial *t, bool failed);
/* Begins to look for GPUs. 0 or -ENOMEM. */
int hy_agent_lend_open(struct agent *a);
/* The driver has said whether trials lease cores. */
void hy_agent_lend_cores(struct agent *a, const Hy__Welcome *w);
void hy_agent_lend_tell(const struct agent *a, Hy__AgentInfo *info, char *uuids[]);
/* Nothing is left running for them. False: ask again in the next turn. */
bool hy_agent_lend_left(struct agent *a);

/* ---- files.c: for agents that do not see the driver's folder ---- */
/* A folder of our own for the run; free it. */
char *hy_agent_files_root(const struct agent *a, const char *host, struct hy_err *err);
/* 0: there are none. 1: they come, and the trial will be run or fail; it may
 * have been already. Or -Exxx. */
int hy_agent_files_expect(struct trial *t, struct hy_err *err);
/* The trial is freed while it waits. */
void hy_agent_files_forget(struct trial *t);
void hy_agent_files_data(struct agent *a, uint32_t stream, const uint8_t *bytes, size_t n);

/* ---- upload.c: and what goes back there ---- */
/* Time passes: sends what is new in the trial's event files, or goes on. True: that was all, and the trial is freed. */
bool hy_agent_upload_tick(struct trial *t);
/* It is over: sends what is left in its folder, then calls trial_finish. */
void hy_agent_upload_all(struct trial *t);
/* True when the stream is the trial's, which may be over then. */
bool hy_agent_upload_room(struct trial *t, uint32_t stream);
void hy_agent_upload_free(struct upload *u);
/* The mirror has ended. `is_whole`: only what it leaves is to be sent. */
void hy_agent_upload_mirrored(struct trial *t, bool is_whole);

/* ---- mirror.c: or straight to HDFS ---- */
/* Does the driver's link take this file of a trial all the same? By its path in the trial's folder. */
bool hy_agent_mirror_leaves(const char *path);
/* NULL: it cannot be done, and was said. */
struct mirror *hy_agent_mirror_start(struct trial *t);
/* The trial is over: hy_agent_upload_mirrored comes when all is there, or will not be. */
void hy_agent_mirror_end(struct mirror *m);
/* Ends it if it has not; NULL is fine. */
void hy_agent_mirror_free(struct mirror *m);
/* The helper's program: its exit status. `limit`: bytes that it copies at most. */
int hy_agent_mirror_main(const char *folder, const char *url, const char *limit);

#endif
