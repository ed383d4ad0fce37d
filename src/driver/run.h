/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's internal header.
 *
 * One turn of the loop: read input, decide, commit, send. Handlers change the
 * structs below, record the changes for the store and queue messages. A thread
 * commits what was recorded, and only then the messages are sent. So no process
 * acts on a state that the store does not have.
 *
 *   driver.c               the process: start, turn, tick, end
 *   store_commit.c         commits of turns; stalls (a full disk, a locked store)
 *   trials.c               asking the search, placing, ending and retrying trials
 *   early_stop.c           trials that are stopped early, paused and promoted
 *   attempt_start.c        the command and environment of an attempt
 *   training.c             runs whose trials are ranks: start together, abort, restart
 *   rank_group.c           the group that ranks form: joins, rosters, losses
 *   cluster_nodes.c        the nodes of a cluster: addresses, feeding, dismissal
 *   agents.c               the table of agents, their capacity and their loss
 *   agent_process.c        starting and restarting agents
 *   agent_messages.c       messages from agents
 *   agent_listen.c         the socket on which agents connect
 *   agent_supplier.c       agents that a client starts (Spark executors)
 *   address_bans.c         addresses whose agents have violated the protocol
 *   host_discovery.c       hosts that a script lists (--host-discovery-script)
 *   resources.c            slots, memory and GPUs that trials need
 *   trial_output.c         standard output and files of trials
 *   checkpoint_transfer.c  checkpoints sent to the agent of a retry
 *   tensorboard_events.c   event files for TensorBoard
 *   params_text.c          parameters in commands, directory names and JSON
 *   search_settings.c      the search that a spec describes
 *   clients.c              the local socket: watching, stopping
 *   status.c               the state of agents and of the queue, for clients
 *   resume.c               restoring a run from the store
 *   snapshot.c             snapshots of a run that has ended
 *   hdfs_mirror.c          the copy of the run's directory on HDFS
 */
#ifndef HY_DRIVER_RUN_H
#define HY_DRIVER_RUN_H

#include <stdbool.h>
#include <uv.h>

#include "base/list.h"
#include "base/map.h"
#include "base/string_list.h"
#include "driver/driver.h"
#include "engine/engine.h"
#include "schedule/schedule.h"
#include "search/search.h"
#include "store/store.h"
#include "wire/wire.h"

struct client; /* clients.c */

#define TICK_MS 100
#define STOP_MS 30000         /* for all trials to end when the run is stopped */
#define LOSSES_BEFORE_ALONE 2 /* after so many deaths of its agent a trial runs alone on an agent ... */
#define LOSSES_MAX 5          /* ... and after so many it has failed */
#define SETBACKS_MAX 5        /* attempts lost to shortages and GPU faults; then the trial has failed */

enum phase { PHASE_RUNNING, PHASE_STOPPING, PHASE_ENDING, PHASE_LEAVING };

struct agent {
    uint64_t id;
    char *identity, *name, *host_spec; /* host_spec: for ssh; NULL: local, or joined by itself */
    char *host;                        /* as the agent reports it */
    uint32_t slots, gpus;
    uint64_t memory;
    Hy__Control *usage;                /* its last AgentUsage; NULL: none yet */
    uint32_t scratch;                  /* for loops over all agents */
    bool is_managed;                   /* an engine or a supplier starts and restarts it */
    bool is_backlogged;                /* it has not read what was sent: no trials until the next tick */
    bool process_runs, in_schedule, shares_files;
    bool has_info;                     /* its AgentInfo has arrived on this connection */
    bool has_joined;                   /* at least once in this run */
    bool released;                     /* it has nothing left to do and was sent a Bye */
    char process_end[256];             /* why its process has certainly ended; "": it may be alive */
    bool process_died;                 /* by a signal */
    char bye_reason[160];              /* from its own Bye; "": none */
    unsigned notes;                    /* received from it */
    int restarts;                      /* in a row, without the agent having joined */
    int drops;                         /* disconnections for a violation of the protocol */
    char violation[200];               /* a message that no agent may send; "": none */
    int64_t restart_at;                /* 0: not waiting */
    uint32_t discovered_slots;         /* by the script of host_discovery.c; 0: not one of its hosts */
    int64_t cooldown_until;            /* no rank is placed there, because one has failed; 0: none */
    uint32_t cooldowns;                /* so far */
    int64_t join_by;                   /* its process is stopped if it has not joined by then; 0: no limit */
    struct hy_peer *peer;              /* NULL: not connected */
    struct hy_list trials;
    struct hy_map outputs;             /* stream -> struct output */
    struct hy_map sending;             /* stream -> struct transfer */
    uint32_t next_stream;
    uint32_t function_stream;          /* on which the run's function is sent */
    size_t function_sent;              /* bytes */
};

/* An address from which agents may not join until then: address_bans.c. */
#define ADDRESS_BANS_MAX 64
struct address_ban {
    char address[64]; /* without the port */
    int64_t until_ms; /* monotonic */
    uint32_t times;
};

enum trial_phase {
    TRIAL_QUEUED,
    TRIAL_RUNNING,
    TRIAL_WAITING, /* before a retry */
    TRIAL_PAUSED,  /* it has no slot until it is promoted, or ends */
    TRIAL_ENDED,   /* a rank whose training continues */
};

/* The numbers of a rank among those that run, for its environment. */
struct rank_numbers {
    uint32_t rank, size, local_rank, local_size, cross_rank, cross_size;
};

/* A trial as a member of its group: rank_group.c. */
struct member {
    Hy__Control *node;           /* of a cluster: its address; NULL: not received yet */
    bool is_server;              /* it only serves other nodes */
    bool is_done;                /* it has finished, but its TensorFlow server may still be needed */
    bool dismissed;              /* it is not needed any more and was killed */
    Hy__Control *join;           /* its addresses; NULL: it has not joined */
    bool awaits_roster;
    bool has_left;               /* in an orderly way: the group does not depend on it */
    uint64_t missed_trial;       /* a rank that has left and that this one still needs; 0: none */
    bool displaced;              /* killed because its machine has no slot for it any more */
    uint64_t generation;         /* the last one it was in; 0: none */
    uint32_t rank;               /* in that generation */
    char *death;                 /* how it died, for messages; NULL: it has not */
    struct rank_numbers numbers;
    enum hy_trial_state end_state; /* TRIAL_ENDED: its state when the training ends */
    char *end_message;
};

enum gang {
    GANG_PENDING, /* all start together at start_at */
    GANG_QUEUED,
    GANG_STARTED,
};

/* A run whose trials are ranks: training.c. */
struct training {
    enum gang gang;
    uint32_t size;                /* of the gang */
    int64_t start_at;
    bool wait_noted;              /* that it waits for machines */
    uint32_t charged[HY_CHARGES]; /* attempts of all ranks together, by what they count as */
    bool has_finished_rank;       /* a rank has ended with success */
    char *abort_reason;           /* NULL: it is not aborted */
    uint64_t abort_cause;         /* the trial that caused it */
    enum hy_charge abort_charge;
    int64_t kill_at;              /* ranks that have not ended by then; 0: not set */
    int64_t too_few_since;        /* elastic: fewer ranks than --min-np; 0: enough */
};

/* The group that the ranks form: rank_group.c. */
struct rank_group {
    uint64_t generation;         /* the last complete one */
    bool is_broken, is_outdated; /* and its members have been notified */
    int64_t notes_from;          /* ranks' notes are counted from then */
    uint32_t notes;
};

/* The nodes of a cluster: cluster_nodes.c. */
struct cluster {
    bool has_joined;             /* all nodes, at least once */
    bool feed_ended;             /* nodes get no more rows */
    int64_t dismiss_at;          /* evaluators that have not ended by then are dismissed; 0: not set */
};

struct trial {
    uint64_t number;
    struct hy_value *values;
    char *params; /* JSON */
    char *dir;
    enum trial_phase phase;
    uint32_t attempt;
    uint32_t charged[HY_CHARGES]; /* attempts, by what they count as */
    char *waits_for;              /* at its agent; NULL: nothing */
    uint64_t gpu_mask;            /* the GPUs of its lease, once its agent has reported them */
    uint64_t memory;              /* bytes that it used when it was last sampled */
    struct agent *agent;
    struct hy_list on_agent, waiting;
    struct hy_list outputs;
    struct events *events;        /* NULL: none are written */
    int64_t started_ms, due_ms;   /* monotonic */
    int64_t started_wall;
    int64_t queued_wall;          /* when it was queued last */
    int64_t asked_wall;           /* when the trial was created; its elapsed time counts from here */
    bool has_value, reported, killed;
    bool had_failed;              /* for good, before the run was resumed */
    double value;
    int64_t step;
    enum hy_decision decision;    /* of early stopping, about this attempt */
    struct member member;         /* if it is a rank */
    Hy__Control *ended;           /* received; NULL: the attempt runs. Its output may still be on its way */
    char *lost_file;              /* why a file of this attempt could not be kept; NULL: none was lost */
};

/* The best trial so far, for clients. */
struct best {
    uint64_t number; /* 0: none yet */
    int64_t ended_seq;
    double value;
    char *params, *dir;
    int64_t elapsed_ms;
    uint32_t attempts;
};

/* The progress of a run, as clients see it. */
struct progress {
    uint64_t done, failed, stopped, pruned, paused;
    int64_t ended_seq, notes_until;
};

/* driver.c: the handles of the process, and how it was started. */
struct process {
    uv_prepare_t turn;
    uv_timer_t tick;
    uv_signal_t term;
    uv_poll_t reaper;
    uint64_t open_files;     /* the user's soft limit, for agents on this machine */
    const char *new_address; /* of a resumed run: the address of its new session; NULL: as in the spec */
    int64_t begun_ms;
};

/* driver.c: the files and locks of the run. */
struct run_files {
    int lock_fd; /* held as long as the run has a driver */
    int hold_fd; /* held by local agents as long as one of their trials is alive */
    char *app_id;
    int64_t app_run;
    char *token_file; /* agents that can read the token in it share files with the driver */
    uint8_t token[HY_KEY_SIZE];
};

/* driver.c: the end of the run. */
struct run_end {
    enum hy_run_state state;
    char *message;
    int64_t stop_by;  /* trials that have not ended by then are abandoned */
    int64_t leave_by; /* agents that have not left by then are abandoned */
    struct hy_helper *notifier; /* notify.c; NULL: it has ended, or was not started */
};

/* driver.c: the run's notes. */
struct notes {
    int64_t before; /* the sequence number of the last one in the store when this driver started */
    int64_t until;  /* of the last one now */
    struct hy_string_list texts; /* for the last update; without those that are too many */
    size_t bytes;
};

/* store_commit.c: turns on their way to the store. */
struct commit {
    struct progress sealed_progress; /* as of `sealed` */
    struct progress committed;       /* as of the last commit */
    struct hy_changes recorded;      /* by this turn */
    struct hy_changes sealed;        /* the turn that is being committed */
    uv_work_t job;
    bool is_busy;                    /* a thread uses the store and `sealed` */
    bool is_stalled;                 /* counts in stalls.count */
    bool is_broken;                  /* nothing can be committed any more */
    int64_t started_ms, retry_at;
    int rc;                          /* of the last commit */
    struct hy_err err;
};

/* store_commit.c: writes that cannot proceed for now, to the store or to files. */
struct stalls {
    uint32_t count;
    int64_t since;    /* 0: none */
    char why[700];
    bool has_no_room; /* for a trial's directory; counts in `count` */
    char *notice;     /* for clients; NULL: none */
};

/* trials.c, and resume.c before the first turn. */
struct trials {
    struct hy_map map;       /* by number; those that have not ended */
    struct hy_list waiting;  /* for a retry */
    struct hy_map dirs;      /* hashes of all directory names in use */
    uint64_t done, failed, stopped, pruned;
    uint64_t paused;         /* in `map` */
    uint64_t ended_here;     /* during this driver's lifetime, to estimate the time left */
    int64_t ended_seq;       /* of the trial that ended last (store.h) */
    int64_t seq;             /* asks and ends so far */
    struct best best;
    bool search_over;
    uint64_t without_metric; /* done without a value of the metric */
    /* Notes that are given once. */
    bool held_noted;         /* a trial waits at its agent */
    bool suspects_noted;     /* trials run alone after agents died under them */
    bool choice_noted;       /* which of the values that a function returned is the metric */
    bool no_metric_noted;    /* a function returned no metric */
};

/* early_stop.c */
struct early_stop {
    struct hy_stopper *stopper; /* NULL: no trial is stopped early */
    struct hy_map trials;       /* by number: struct early_trial */
    bool is_pruning;
};

/* agents.c: the agents, and how they connect. */
struct agents {
    struct hy_map map; /* by id */
    uint64_t last_id;
    struct hy_net *net;
    uint8_t key[HY_KEY_SIZE], join_key[HY_KEY_SIZE];
    uint16_t port;
    struct hy_engine *engine;
};

/* agent_supplier.c: a client that starts agents (a Spark session). */
struct supply {
    struct client *supplier; /* NULL: none is connected, or an engine starts the agents */
    int64_t missing_since;   /* no supplier and no agent since then; 0: not so */
    bool was_lost;           /* an earlier supplier has disconnected */
    bool may_grow;           /* the supplier may offer more agents soon */
    bool is_checked;         /* whether the present agents suffice, although more were requested (agents.c) */
    int64_t last_agent_ms;   /* when the last agent joined (agents.c) */
    bool wait_noted;
    uv_process_t session;    /* a supplier that the driver starts itself, if spec->master */
    char session_end[160];   /* how that process ended; "": it runs */
};

/* clients.c: processes connected to the local socket, and the process that owns the run. */
struct clients {
    struct hy_local *local;
    char *socket_path;
    struct hy_list list;
    size_t count;
    int64_t updated_ms; /* when the last update was sent */
    bool update_due;    /* at the end of this turn; set by each tick */
    uint8_t *update;    /* packed, and sent when its turn is committed; NULL: none */
    size_t update_size;
    uv_poll_t owner;    /* polls owner_fd */
    int owner_fd;       /* a pipe that is closed when the owner ends; -1: none */
};

/* trial_output.c: outputs that wait. */
struct outputs {
    struct hy_list stalled;   /* retried every second */
    struct hy_list continued; /* in the next turn, by `idle` */
    uv_idle_t idle;
};

/* tensorboard_events.c: event files that wait. */
struct event_queues {
    struct hy_list due;     /* this turn has added to them */
    struct hy_list sealed;  /* the turn that is being committed has added to them */
    struct hy_list stalled; /* retried every second */
    size_t count;           /* not completely written yet */
};

/*
 * A run. A sub-struct is changed by the file named at its definition, and by no
 * other where its fields do not say so; all files may read it.
 */
struct driver {
    /* driver.c sets these. */
    uv_loop_t loop;
    enum phase phase;
    int64_t run;
    Hy__RunSpec *spec;
    char **serve;               /* the function's command as a fork server; borrowed */
    char *logdir;
    int64_t created_wall;
    struct hy_store *store;     /* used by the commit's thread while commit.is_busy */
    struct process process;
    struct run_files files;
    struct run_end end;
    struct notes notes;

    /* How trials are chosen and placed: trials.c and training.c. */
    struct hy_space space;
    struct hy_search *search;
    struct hy_schedule *schedule;
    struct trials trials;
    struct early_stop early_stop;
    struct training training;   /* if spec->ranks */
    struct rank_group group;
    struct cluster cluster;     /* if spec->roles */

    struct agents agents;
    struct address_ban bans[ADDRESS_BANS_MAX]; /* address_bans.c */
    struct supply supply;
    struct discovery *discovery; /* host_discovery.c; NULL: no script */

    struct commit commit;
    struct stalls stalls;
    struct outputs outputs;
    struct event_queues events;
    struct hdfs_mirror *mirror; /* hdfs_mirror.c; NULL: the project is not on HDFS */
    struct snapshot *snapshot;  /* snapshot.c; NULL before it is begun */
    bool snapshot_begun;

    struct clients clients;
    bool changed;               /* anything that clients see; set by all files, reset by clients.c */
    bool gpus_noted;            /* resources.c: GPUs are not leased, and a note says so */
};

/* ---- driver.c ---- */
/* Ends the run as failed; clients get the message. */
void hy_run_fail(struct driver *d, const struct hy_err *err);
/* Ends the run. The first end counts. */
void hy_run_finish(struct driver *d, enum hy_run_state state, const char *message);
void hy_run_stop(struct driver *d);
/* A note in the store and the log, for users. */
void hy_run_note(struct driver *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Whether `notes.texts` has all notes of the run. */
bool hy_run_has_all_notes(const struct driver *d);
/* What is not committed is lost: ends the run, and `resume` continues it if the store still exists. */
void hy_run_interrupt(struct driver *d, const char *why, bool can_resume);
void hy_run_out_of_memory(struct driver *d);
/* The number of trials; -1: unlimited. */
int64_t hy_run_total(const struct driver *d);

/* ---- store_commit.c ---- */
/* Checks the result of a call that records a change. 0, or the run has been interrupted. */
int hy_run_check_recorded(struct driver *d, int rc);
/* notify.c: the --notify command. */
void hy_notify_begin(struct driver *d);
bool hy_notify_is_over(const struct driver *d);

/* At the end of a turn: commits what was recorded, unless a commit is in progress. */
void hy_commit_turn(struct driver *d);
void hy_commit_tick(struct driver *d, int64_t now);
/* Everything recorded is in the store, or never will be. */
bool hy_commit_is_done(const struct driver *d);
/* An error that a user or another program can resolve: the write is retried. */
bool hy_is_stall(int rc);
/* Something cannot be written for now. Each call is matched by one of hy_stall_end. */
void hy_stall_begin(struct driver *d, const char *why);
void hy_stall_end(struct driver *d);
/* The directory of a trial cannot be created; ends by itself. */
void hy_stall_begin_no_room(struct driver *d, const char *why);
struct progress hy_run_progress(const struct driver *d);
/* The same for a file whose write returned `rc`. */
void hy_stall_begin_file(struct driver *d, const char *path, int rc);

/* ---- trials.c ---- */
void hy_trials_pump(struct driver *d);
void hy_trials_tick(struct driver *d, int64_t now);
void hy_trials_report(struct driver *d, struct agent *a, const Hy__Report *r);
void hy_trials_ended(struct driver *d, struct agent *a, const Hy__Control *m);
/* What an attempt has used so far. */
void hy_trials_usage(struct driver *d, struct agent *a, const Hy__UsageReport *r);
/* The trial waits at its agent for something. */
void hy_trials_held(struct driver *d, struct agent *a, const Hy__Held *held);
/* Processes the end of an attempt if all its output is written; otherwise it is called again. */
void hy_trial_process_end(struct driver *d, struct trial *t);
/*
 * Its agent is lost: the trial runs elsewhere. `died`: the agent died while its machine was alive, so the trial may
 * be the cause.
 */
void hy_trials_lost(struct driver *d, struct trial *t, bool died, const char *why);
void hy_trials_stop_all(struct driver *d);
struct trial *hy_trial_new(struct driver *d, uint64_t number, const struct hy_value *values);
void hy_trial_free(struct driver *d, struct trial *t);
int hy_trial_queue(struct driver *d, struct trial *t);
/* 1: a new trial is queued; 0: none for now. */
int hy_trial_ask(struct driver *d);
/* The trial if that attempt runs on that agent; NULL for a stale message. */
struct trial *hy_trial_find_running(struct driver *d, struct agent *a, uint64_t number, uint32_t attempt);
/* What is wrong with an attempt that ended, for messages; NULL: nothing. */
const char *hy_trial_find_fault(struct driver *d, const struct trial *t, const Hy__Ended *e, char *text, size_t size);
/* What a failed attempt counts as: its own failure, a shortage on its machine, or a GPU fault. */
enum hy_charge hy_trial_charge(const Hy__Ended *e);
int hy_trial_store_metrics(struct driver *d, struct trial *t, uint32_t attempt, int64_t step, size_t n,
                           Hy__Metric **metrics);
/* Counts the attempt as `charge`. */
int hy_trial_end_attempt(struct driver *d, struct trial *t, enum hy_attempt_state state, enum hy_charge charge,
                         const char *message);
/* Ends the trial for good (STOPPED: until the run is resumed) and frees it. */
void hy_trial_end(struct driver *d, struct trial *t, enum hy_trial_state state, const char *message);
/* Queues it again after a backoff that grows with `times`. */
void hy_trial_backoff(struct driver *d, struct trial *t, uint32_t times);
int64_t hy_backoff_ms(uint32_t times);
void hy_trial_kill(struct driver *d, struct trial *t);
/* Reserves a directory name. 0, -EEXIST or -ENOMEM. */
int hy_run_take_dir(struct driver *d, const char *dir);
/* With a trial that is done and has a value. 0 or -ENOMEM. */
int hy_run_update_best(struct driver *d, const struct hy_trial_row *row);

/* ---- early_stop.c: if spec->stop; without it, all functions do nothing ---- */
int hy_early_stop_open(struct driver *d, struct hy_err *err);
void hy_early_stop_free(struct driver *d);
/* A new trial. 0, or the run has failed. */
int hy_early_stop_add(struct driver *d, const struct trial *t);
/* An attempt begins. That of a promoted trial continues, so it has the value that was reported last. */
void hy_early_stop_begin(struct driver *d, struct trial *t);
/* Whether its attempt continues a paused one. */
bool hy_early_stop_is_promoted(const struct driver *d, const struct trial *t);
/* It has ended for good. */
void hy_early_stop_end(struct driver *d, const struct trial *t);
/* The place of a report in the order of asks and ends; 0: it is not used. */
int64_t hy_early_stop_place(struct driver *d, const struct trial *t, const char *metric);
/* The trial has reported a value of the run's metric; step -1: none given. */
void hy_early_stop_report(struct driver *d, struct trial *t, int64_t step, double value);
/* It has a decision to end early, and has not ended by itself. */
bool hy_early_stop_has_ended(const struct trial *t, const Hy__Ended *e);
/* The attempt of a trial with such a decision is over: prunes or pauses it. */
void hy_early_stop_attempt_over(struct driver *d, struct trial *t);
/* There is room: true if a paused trial is queued. */
bool hy_early_stop_promote(struct driver *d);
/* There is room, and the search has no trial: paused ones do not wait for more. True: a trial was queued or pruned. */
bool hy_early_stop_close(struct driver *d);
/* Repeats what the store has. Afterwards each trial of `map` has the decision about its last attempt. */
int hy_early_stop_restore(struct driver *d, struct hy_err *err);
/* True: the trial does not run again now, and was ended or paused. */
bool hy_early_stop_settle(struct driver *d, struct trial *t);

/* ---- attempt_start.c ---- */
/* Begins an attempt there, in memory and in the store. 0, or the run has failed. */
int hy_attempt_begin(struct driver *d, struct trial *t, const struct hy_assignment *place);
/* Sends it to its agent. */
void hy_attempt_send(struct driver *d, struct trial *t, const struct hy_assignment *place);

/* ---- training.c: runs whose spec has ranks ---- */
#define GANG_TASK UINT64_MAX /* the schedule's number for all ranks together */
#define ABORT_GRACE_MS 5000  /* for ranks to end by themselves when the training is aborted */

static inline bool hy_is_training(const struct driver *d)
{
    return d->spec->ranks > 0;
}
static inline bool hy_is_elastic(const struct driver *d)
{
    return d->spec->ranks_min > 0;
}
/* Its attempt runs and its agent is connected. */
bool hy_rank_is_alive(const struct trial *t);
/* All ranks that have not ended for good, by number; free it. NULL: the run has failed. */
struct trial **hy_training_ranks(struct driver *d, size_t *ret_count);
/* What the smallest allowed number of ranks needs. */
struct hy_need hy_training_need(const struct driver *d);
/* All agents are known: an elastic training may start with fewer ranks. */
void hy_training_shrink_to_fit(struct driver *d);
/* Too few machines for now, and more may join. */
void hy_training_wait_for_machines(struct driver *d, const struct hy_err *why);
/* Creates the ranks and queues them when it is time. */
void hy_training_pump(struct driver *d);
/* There is room for all ranks. */
void hy_training_start(struct driver *d, const struct hy_placement *gang);
/* Whether one more rank is started if there is room. */
bool hy_training_needs_ranks(const struct driver *d);
void hy_training_tick(struct driver *d, int64_t now);
/* The Ended message of a rank, before all its output has arrived. */
void hy_training_ended(struct driver *d, struct trial *t);
void hy_training_process_end(struct driver *d, struct trial *t);
/* The rank's agent is lost. */
void hy_training_lost(struct driver *d, struct trial *t, bool died, const char *why);
/*
 * Ends all ranks because of `cause`: they are notified, and killed after ABORT_GRACE_MS. Takes `why`; NULL: out of
 * memory.
 */
void hy_training_abort_take(struct driver *d, const struct trial *cause, enum hy_charge charge, char *why);
/* The rank left in an orderly way but was still needed: it has failed in spite of exit status 0. */
void hy_training_fail_rank(struct driver *d, struct trial *t);
/* Aborts the training if ranks wait for one that has ended. */
void hy_training_check_deadlock(struct driver *d);
/* All trials have ended: ends the run. */
void hy_training_finish(struct driver *d);

/* ---- cluster_nodes.c: trainings whose spec has roles ---- */
static inline bool hy_is_cluster(const struct driver *d)
{
    return hy_spec_is_cluster(d->spec);
}
/* Records the address of a node; when all have joined, each gets the list. */
void hy_nodes_join(struct driver *d, struct trial *t, const Hy__Control *m);
/* The node only serves others from now on. */
void hy_nodes_set_server(struct driver *d, struct trial *t);
void hy_nodes_set_done(struct driver *d, struct trial *t);
/* No more rows are fed: all nodes are notified, and later ones when they join. */
void hy_nodes_end_feed(struct driver *d);
/* The feeding process has disconnected without ending the feed. */
void hy_nodes_feeder_lost(struct driver *d);
/* Dismisses the servers when all workers are done. */
void hy_nodes_check_done(struct driver *d);
void hy_nodes_tick(struct driver *d, int64_t now);

/* ---- rank_group.c ---- */
/* Within the limits on their number and length. */
bool hy_are_valid_addresses(char *const *list, size_t n);
/* Through the agent of the rank's attempt. */
void hy_rank_send(struct driver *d, struct trial *t, Hy__GroupWord *word);
/* "rank 2 on b", "worker 0 on b". */
#define HY_RANK_NAME_MAX 320
char *hy_rank_name(const struct driver *d, const struct trial *t, char name[HY_RANK_NAME_MAX]);
void hy_ranks_on_message(struct driver *d, struct agent *a, const Hy__Control *m);
/* `how` follows the name of the rank: "was ended by signal 9". */
void hy_rank_died(struct driver *d, struct trial *t, enum hy_charge charge, const char *how);
/* An elastic training continues without it. `why`: "its machine has fewer slots now". */
void hy_rank_displace(struct driver *d, struct trial *t, const char *why);
/* Notifies all other ranks that have joined. */
void hy_ranks_notify_lost(struct driver *d, const struct trial *lost, const char *why);
/* Whether another rank is in the group or waits to join it. */
bool hy_ranks_has_others(const struct driver *d, const struct trial *t);
/* Sends rosters if all awaited ranks have joined. */
void hy_ranks_form_group(struct driver *d);
/* Before a new attempt, or when the trial is freed. */
void hy_rank_reset(struct trial *t);

/* ---- agents.c ---- */
int hy_agents_open(struct driver *d, struct hy_err *err);
/* The supplier can start so many agents; existing ones stay. */
void hy_agents_request(struct driver *d, uint32_t count);
/* No agent has joined for a while: can the present ones run the trials? */
void hy_agents_check_supply_suffices(struct driver *d);
void hy_agents_tick(struct driver *d, int64_t now);
/* To all, at the end of the run. */
void hy_agents_send_bye(struct driver *d);
/* It is ending its trials and will leave: no trial is placed there any more. */
void hy_agents_stop_placing(struct driver *d, struct agent *a);
/* No agent is connected and no process runs. */
bool hy_agents_have_left(struct driver *d);
void hy_agents_free(struct driver *d);
int hy_agents_send(struct agent *a, const Hy__Control *m);
void hy_agents_process_ended(struct driver *d, uint64_t id, enum hy_agent_end end, const char *why);
/* Whether an end that the agent announced counts against its trials: only they or the user can have caused it. */
bool hy_agents_bye_is_charged(const struct driver *d, const struct agent *a);

/* It has sent a message that no agent may send: it is disconnected after this message, or at the next tick. */
void hy_agent_set_violation(struct agent *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A host of the discovery script; `host`: NULL for this machine. 0 or -ENOMEM. */
int hy_agents_add_host(struct driver *d, const char *name, const char *host, uint32_t slots);
void hy_agents_resize(struct driver *d, struct agent *a, uint32_t slots);
/* The script does not list it any more: its ranks end, and it is not restarted. */
void hy_agents_remove_host(struct driver *d, struct agent *a);
/* No rank is placed there for a while, which grows each time. */
void hy_agents_start_cooldown(struct driver *d, struct agent *a);
/* More machines may join: by --listen or by discovery. */
bool hy_agents_may_still_join(const struct driver *d);

/* ---- host_discovery.c ---- */
struct hy_discovered_host {
    char name[256];
    uint32_t slots; /* from 1 */
};
struct hy_discovered {
    struct hy_discovered_host *rows;
    size_t count;
};
/* Parses lines of "HOST" (with `slots`; 0: it must be given) or "HOST:SLOTS". 0, -EINVAL with a message, -ENOMEM. */
int hy_discovered_parse(const char *text, uint32_t slots, struct hy_discovered *ret, struct hy_err *err);
void hy_discovered_done(struct hy_discovered *hosts);
int hy_discovery_open(struct driver *d, struct hy_err *err);
void hy_discovery_tick(struct driver *d, int64_t now);
/* Kills the script if it runs. The loop must run once more for its handles. */
void hy_discovery_stop(struct driver *d);
void hy_discovery_free(struct driver *d);

/* ---- address_bans.c ---- */
/* Agents that join by themselves from there are refused for a while, which grows each time. Returns the seconds. */
int hy_address_ban(struct driver *d, const char *address);
bool hy_address_is_banned(const struct driver *d, const char *address);

/* ---- agent_supplier.c ---- */
int hy_supply_start(struct driver *d, const struct hy_agent_order *order, struct hy_err *err);
void hy_supply_stop(struct driver *d, uint64_t id);
void hy_supply_offered(struct driver *d, struct client *c, const Hy__Supply *offer);
/* An agent of the supplier has ended, or (id 0) the supplier has failed. */
void hy_supply_agent_ended(struct driver *d, const Hy__AgentOver *over);
/* The supplier has disconnected. */
void hy_supply_lost(struct driver *d);
/* Starts a Spark session for the run, if spec->master. */
int hy_supply_open(struct driver *d, struct hy_err *err);
void hy_supply_tick(struct driver *d, int64_t now);

/* ---- resources.c ---- */
/* What the next attempt needs; NULL: the first attempt of any trial. */
struct hy_need hy_run_need(const struct driver *d, const struct trial *t);
/* The slots of this machine for the run. */
uint32_t hy_run_local_slots(const struct driver *d);
/* 0, or -ENOSPC and what the machines lack. */
int hy_run_shortage(const struct driver *d, struct hy_err *err);
/* Notes once that trials share GPUs without leases. */
void hy_run_note_gpus(struct driver *d, const struct agent *a);
/* Before a run on this machine alone is created: it has as many GPUs as a trial needs. */
int hy_run_check_gpus(const Hy__RunSpec *spec, struct hy_err *err);

/* ---- trial_output.c ---- */
void hy_outputs_open(struct driver *d, struct agent *a, const Hy__Output *o);
void hy_outputs_data(struct driver *d, struct agent *a, uint32_t stream, const uint8_t *bytes, size_t n);
/* Everything that the agent sent has arrived and is written. */
bool hy_outputs_complete(struct agent *a, const Hy__Ended *e);
/* The attempt has sent its files: its checkpoint replaces the previous one. */
void hy_outputs_install_checkpoint(struct driver *d, struct trial *t);
/* The attempt has ended or is lost. */
void hy_outputs_close(struct driver *d, struct trial *t);
void hy_outputs_agent_lost(struct agent *a);
/* Of an attempt that was lost before its checkpoint was complete. */
void hy_outputs_remove_partial_checkpoint(struct driver *d, const struct trial *t);
/* Every second: outputs that are stalled. */
void hy_outputs_retry(struct driver *d);
/* Outputs that have used up their share of the last turn. */
void hy_outputs_continue(struct driver *d);
/* A file in the run's directory cannot be written: fails the run. */
void hy_outputs_write_failed(struct driver *d, const char *path, int rc);
/* The trial itself has caused the error, and the run continues. */
bool hy_outputs_is_trial_error(int rc);

/* ---- checkpoint_transfer.c ---- */
/*
 * Sends the checkpoint of a trial to an agent that does not share files; fills start->files. 0, -ENOMEM, or
 * -ECANCELED: it cannot be sent, and the trial fails at the next tick.
 */
int hy_checkpoint_send(struct driver *d, struct agent *a, struct trial *t, Hy__Start *start);
/* Frees start->files. */
void hy_checkpoint_free_files(Hy__Start *start);
/* The stream has room. */
void hy_checkpoint_continue(struct agent *a, uint32_t stream);
/* Fails trials whose checkpoint cannot be read or sent. */
void hy_checkpoints_tick(struct driver *d);
/* The attempt has ended. */
void hy_checkpoint_cancel(struct trial *t);
void hy_checkpoints_agent_lost(struct agent *a);

/* ---- tensorboard_events.c ---- */
/* An attempt begins: a new file with its hyperparameters replaces that of the previous attempt. */
void hy_events_start(struct driver *d, struct trial *t);
/* A reported value; step < 0: the next one of that name. */
void hy_events_scalar(struct trial *t, const char *name, int64_t step, double value);
void hy_events_attempt_over(struct trial *t);
/* The trial has ended: writes its result and its status. */
void hy_events_end(const struct driver *d, struct trial *t, enum hy_trial_state state);
/* The trial is freed; its events stay until they are written. */
void hy_events_detach(const struct driver *d, struct trial *t);
/* At the end of a turn: what it has added ... */
void hy_events_seal(struct driver *d);
/* ... is written when the turn is committed. */
void hy_events_flush(struct driver *d);
/* Every second: event files that are stalled. */
void hy_events_retry(struct driver *d);
/* Then the trial has not ended yet. */
bool hy_events_are_stalled(const struct trial *t);
/* At the end of the driver: what was never committed is not written. */
void hy_events_discard(struct driver *d);
/* The event files of all trials that have ended are complete. */
bool hy_events_all_written(const struct driver *d);

/* ---- clients.c ---- */
int hy_clients_open(struct driver *d, struct hy_err *err);
/* Packs an update if one is due ... */
void hy_clients_prepare(struct driver *d);
/* ... and sends it when the turn is committed. */
void hy_clients_send(struct driver *d);
/* The run has ended: sends the last update to all. */
void hy_clients_end(struct driver *d);
/* Sends driver.stalls.notice to all. */
void hy_clients_notify(struct driver *d);
int hy_client_send(struct client *c, const Hy__ClientAnswer *answer);

/* ---- status.c ---- */
/* Packs an answer with the run's Status. Free it; NULL: out of memory. */
uint8_t *hy_status_pack(struct driver *d, size_t *ret_n);
/* Keeps an agent's AgentUsage. */
void hy_status_agent_usage(struct agent *a, const Hy__Control *m);

/* ---- resume.c ---- */
/* Repeats the search as the store has it, and queues what has not ended. */
int hy_run_restore(struct driver *d, struct hy_err *err);

/* ---- snapshot.c ---- */
/* Of a run whose end is committed; only the first call has an effect. */
void hy_snapshot_begin(struct driver *d);
bool hy_snapshot_is_over(const struct driver *d);
void hy_snapshot_free(struct driver *d);

/* ---- hdfs_mirror.c: a project on HDFS; without one, all functions do nothing ---- */
/* Blocks: for the start of a run. */
int hy_mirror_open(struct driver *d, struct hy_err *err);
void hy_mirror_tick(struct driver *d, int64_t now);
/* After the end of the run: all files are copied, or retrying is pointless. */
bool hy_mirror_is_complete(struct driver *d);
/* The run's directory, as users see it. */
const char *hy_mirror_logdir(const struct driver *d);
/* Work in the thread pool that waits for HDFS gives up, so that the loop can end. */
void hy_mirror_stop(struct driver *d);
void hy_mirror_free(struct driver *d);

#endif
