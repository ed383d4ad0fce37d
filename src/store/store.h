/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: the database of a project.
 *
 * One SQLite file (WAL, synchronous=FULL) with runs, trials, attempts and what they
 * used, metrics and notes. A driver writes its run. The changes of one turn (an iteration of its
 * loop) are one transaction: the first change opens it, hy_store_commit ends it,
 * and no message leaves before that. Readers open the file read-only and never
 * wait for a writer.
 *
 * The file is PROJECT/.hopyard/store.db. For a project on a network file system
 * (SQLite's locks do not work there) it is below $XDG_STATE_HOME/hopyard/, and
 * each finished run leaves a snapshot `run.db` with its logs, without environment
 * and function. A complete snapshot of each run is kept beside the store, in
 * runs/RUN.db. hy_store_import reads both.
 *
 * Not thread-safe, but not bound to a thread either: one thread at a time.
 */
#ifndef HY_STORE_H
#define HY_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct hy_store; /* opaque */

enum hy_store_mode {
    HY_STORE_READ,  /* -ENOENT when there is no store yet; -ENODATA when there was one */
    HY_STORE_WRITE, /* made when missing, migrated when older */
};

/* `project` is a directory. The directory of its store is checked first (base/private.h). A store written by a newer
 * hopyard is an error; a locked one too, after 10 s. */
int hy_store_open(const char *project, enum hy_store_mode mode, struct hy_store **ret, struct hy_err *err);
void hy_store_close(struct hy_store *s); /* NULL is fine; an open transaction is rolled back */

/* The directory with store.db, run locks and driver logs. */
const char *hy_store_dir_path(const struct hy_store *s);
/* Its descriptor (O_PATH), which stays valid if the directory is renamed or replaced. */
int hy_store_dir_fd(const struct hy_store *s);
/* The real path of the project. */
const char *hy_store_project(const struct hy_store *s);
/* A sentence when an earlier store was lost and a new one was made; or NULL. */
const char *hy_store_lost_notice(const struct hy_store *s);
/* Opens a file in it, as hy_private_open does. */
int hy_store_file(struct hy_store *s, const char *name, int flags, struct hy_err *err);
/* 1 when the store is not in the project, since that is on a network file system. */
int hy_store_is_remote(const struct hy_store *s);

/*
 * A project may be a URL (hdfs://…). It then has a local directory, whose files
 * the driver uploads. This finds or makes that directory; free it. NULL with a
 * sentence.
 */
char *hy_store_local_dir(const char *url, struct hy_err *err);
/* *ret gets the URL of the project that such a local directory belongs to, or NULL; free it. */
int hy_store_url_of_local_dir(const char *project, char **ret, struct hy_err *err);
/* The URL of the project; NULL: it is local. */
const char *hy_store_url(const struct hy_store *s);
/* A path in the project as it is shown to users: below that URL. Free it; NULL when out of memory. */
char *hy_store_display_path(const struct hy_store *s, const char *path);

/*
 * Commits the turn's transaction, if there is one. On failure (-ENOSPC, -EIO …)
 * everything since the last commit is rolled back. A change that failed for such a
 * reason has rolled the turn back already: the rest of the turn and its commit
 * return the same error. -EEXIST, -EINVAL and -ENOENT (except for a trial of a
 * removed run) do not affect the turn.
 */
int hy_store_commit(struct hy_store *s, struct hy_err *err);
/* 0 while the paths still lead to the open files; -ESTALE when one of them was
 * deleted or replaced: then no other process sees our commits, nor we theirs.
 * The same when a reader has a copy (of an older format), and the files have changed. */
int hy_store_check_files(const struct hy_store *s, struct hy_err *err);
/* A number that changes whenever another connection has committed something. */
int hy_store_version(struct hy_store *s, int64_t *ret, struct hy_err *err);

/* ---- the user's projects -------------------------------------------------- */

enum { HY_PROJECT_ID_SIZE = 16 + 1 }; /* hexadecimal digits and a NUL */
void hy_project_id(const char *path, char ret[HY_PROJECT_ID_SIZE]);
/* Adds the directory to the list of this user's projects; a new store does this for its project. */
int hy_project_register(const char *path, struct hy_err *err);
/* Calls back for each listed directory that exists. A nonzero result of the callback ends the iteration. */
typedef int (*hy_project_cb)(void *arg, const char *id, const char *path);
int hy_project_each(hy_project_cb cb, void *arg, struct hy_err *err);

/* ---- runs --------------------------------------------------------------- */

enum hy_run_state { HY_RUN_RUNNING = 1, HY_RUN_DONE, HY_RUN_STOPPED, HY_RUN_FAILED };
enum hy_trial_state {
    HY_TRIAL_RUNNING = 1,
    HY_TRIAL_DONE,
    HY_TRIAL_FAILED,
    HY_TRIAL_STOPPED,
    HY_TRIAL_PRUNED, /* stopped early; its value is the last one that it reported */
    HY_TRIAL_PAUSED, /* waits for its promotion or its end, without a slot; it has not ended */
};
#define HY_TRIAL_STATE_LAST HY_TRIAL_PAUSED
static inline bool hy_trial_is_over(enum hy_trial_state s)
{
    return s != HY_TRIAL_RUNNING && s != HY_TRIAL_PAUSED;
}
enum hy_attempt_state {
    HY_ATTEMPT_RUNNING = 1,
    HY_ATTEMPT_DONE,
    HY_ATTEMPT_FAILED,
    HY_ATTEMPT_LOST,
    HY_ATTEMPT_STOPPED
};

/* What an attempt is charged to its trial as, also after resume. Stored: numbers must not change. */
enum hy_charge {
    HY_CHARGE_NONE,      /* it succeeded, or its failure was not the trial's fault */
    HY_CHARGE_FAILURE,   /* one of its retries */
    HY_CHARGE_LOSS,      /* its agent died while it ran, and the machine did not */
    HY_CHARGE_SHORTAGE,  /* the machine was short of processes, files or memory to start it */
    HY_CHARGE_GPU_FAULT, /* a fault on the GPU that it shared */
    HY_CHARGES
};

const char *hy_run_state_name(enum hy_run_state s); /* "running", "done" … */
const char *hy_trial_state_name(enum hy_trial_state s);
const char *hy_attempt_state_name(enum hy_attempt_state s);

/* Strings in the structs below are borrowed as input, and as output valid until
 * the callback returns. NULL: not set. Times are wall clock ms. */
struct hy_run_row {
    int64_t id;          /* given by hy_store_run_add */
    const char *name;    /* may be NULL */
    const char *app_id;  /* "local-20261115-043012" */
    int64_t app_run;     /* counts from 1 within app_id */
    const char *logdir;  /* absolute: PROJECT/Logs/TensorFlow/{app_id}/{app_run} */
    const char *command; /* JSON array of the argument texts */
    const char *metric;  /* NULL: none */
    bool maximize;
    int64_t seed;
    const char *versions; /* JSON object: hopyard, kernel, python … */
    const char *git;      /* commit, with "-dirty" where so; NULL */
    const void *spec;     /* the packed RunSpec message, for resume; not set in a list of runs, */
    size_t spec_len;      /* since a function in it may have 48 MB */
    enum hy_run_state state;
    const char *message;    /* why it failed or stopped; NULL */
    int64_t created, ended; /* ended: 0 while it runs */
    int64_t total;          /* trials of the search; -1: unlimited */
    int64_t ranks;          /* of a training, whose trials are its ranks; 0: not a training */
    const char *kind;       /* "grid", "random", "evolve", "paired", "training", "cluster"; NULL: an older run */
    const char *engine;     /* "local", "hosts", "spark", "yarn"; NULL: an older run */
    const char *tags, *note; /* its label's; not set by hy_store_run_add */
};

/* Counts that are updated with each change, so that listing runs does not scan
 * trials. The best is among the done trials with a value other than NaN; the first
 * of equal ones. */
struct hy_run_counts {
    int64_t running, done, failed, stopped, pruned, paused;
    int64_t best_trial; /* number; 0: none yet */
    double best_value;
};

/* -EEXIST when the store has that app_run of app_id already: take the next. */
int hy_store_run_add(struct hy_store *s, const struct hy_run_row *run, int64_t *ret_id, struct hy_err *err);
/* `ended` becomes now, or 0 for HY_RUN_RUNNING. */
int hy_store_run_state(struct hy_store *s, int64_t run, enum hy_run_state state, const char *message,
                       struct hy_err *err);
/* Removes all its rows; the caller removes files. Its number is not reused. */
int hy_store_run_remove(struct hy_store *s, int64_t run, struct hy_err *err);
/* Finds by number ("12") or name (the newest of that name); NULL or "" the
 * newest of all. 0 or -ENOENT with a sentence that names the newest runs. */
int hy_store_run_find(struct hy_store *s, const char *text, int64_t *ret_id, struct hy_err *err);

typedef int (*hy_run_cb)(void *arg, const struct hy_run_row *run, const struct hy_run_counts *counts);
/* Calls back for one run (id) or, newest first, for all (id 0). A nonzero result
 * of the callback ends the iteration and is returned. -ENOENT for an unknown id. */
int hy_store_run_each(struct hy_store *s, int64_t id, hy_run_cb cb, void *arg, struct hy_err *err);

/* ---- trials ------------------------------------------------------------- */

struct hy_trial_row {
    int64_t number;     /* from 1 within the run */
    const char *params; /* JSON object, in the space's order, numbers as numbers */
    const char *dir;    /* its directory, below the run's logdir */
    enum hy_trial_state state;
    bool has_value;
    double value;
    const char *message; /* why it failed */
    int64_t attempts;
    int64_t started, ended;
    int64_t asked_seq, told_seq; /* one counter over both: the order to replay; told_seq 0: not told */
    int64_t ended_seq;           /* of the same counter: the order of ends, told or not; 0: not ended */
};

/* Adds a trial in state RUNNING. When `dir` is taken already in this run, "~N"
 * (the trial's number) is put behind it; *ret_dir gets the name used (free it). */
int hy_store_trial_add(struct hy_store *s, int64_t run, const struct hy_trial_row *trial, char **ret_dir,
                       struct hy_err *err);
/* Sets state, value, message, ended, told_seq and ended_seq; HY_TRIAL_RUNNING (with neither) reopens a trial. */
int hy_store_trial_end(struct hy_store *s, int64_t run, const struct hy_trial_row *trial, struct hy_err *err);

typedef int (*hy_trial_cb)(void *arg, const struct hy_trial_row *trial);
enum hy_trial_order {
    HY_TRIALS_BY_NUMBER,
    HY_TRIALS_BY_VALUE, /* best first, by the run's direction; then those without a value, by number */
};
/* number 0: all, from `offset`, at most `limit` (0: no limit). -ENOENT for an unknown number. */
int hy_store_trial_each(struct hy_store *s, int64_t run, int64_t number, enum hy_trial_order order, int64_t offset,
                        int64_t limit, hy_trial_cb cb, void *arg, struct hy_err *err);

/* A page of a run's trials in any order. */
enum hy_trial_key {
    HY_TRIAL_NUMBER,
    HY_TRIAL_VALUE, /* the best first, by the run's direction */
    HY_TRIAL_STATE,
    HY_TRIAL_TIME, /* from its start to its end, or until now */
    HY_TRIAL_PARAM,
};
struct hy_trial_page {
    enum hy_trial_key key; /* trials without one are last; equal ones by number */
    const char *param;     /* PARAM: its name */
    bool descending;
    enum hy_trial_state state; /* only these; 0: all */
    int64_t offset, limit;
};
/* Sorts the whole run: 0.1 s for 100,000 trials. *ret_count: of all pages. */
int hy_store_trial_page(struct hy_store *s, int64_t run, const struct hy_trial_page *page, hy_trial_cb cb, void *arg,
                        int64_t *ret_count, struct hy_err *err);

/* In one snapshot: the trials that have ended with a seq above `after`, in that order, then those that are running,
 * then those that are paused. The cost depends on their number, as long as the running trials are among the newest. */
int hy_store_changed_each(struct hy_store *s, int64_t run, int64_t after, hy_trial_cb cb, void *arg,
                          struct hy_err *err);

/*
 * The trials whose ended_seq is above `after` and at most `until`, in that order,
 * and at most `limit`. The cost depends on how many these are, not on how many
 * have ended. The iteration is a read transaction, and the -wal file cannot be
 * reused while one is open: callbacks must not block, and long iterations are made
 * in parts.
 */
int hy_store_ended_each(struct hy_store *s, int64_t run, int64_t after, int64_t until, int64_t limit, hy_trial_cb cb,
                        void *arg, struct hy_err *err);
/* The `after` with which hy_store_ended_each gives the newest `count` of those up to `until`. */
int hy_store_ended_newest(struct hy_store *s, int64_t run, int64_t until, int64_t count, int64_t *ret_after,
                          struct hy_err *err);

/* The asks and tells of a run in their order: cb gets each trial at its ask
 * (told = 0) and, when told, again at its tell (told = 1). */
typedef int (*hy_replay_cb)(void *arg, const struct hy_trial_row *trial, int told);
int hy_store_replay(struct hy_store *s, int64_t run, hy_replay_cb cb, void *arg, struct hy_err *err);

/* ---- attempts ----------------------------------------------------------- */

struct hy_attempt_row {
    int64_t trial, number; /* number from 1 within the trial */
    const char *agent; /* "local", "a", … */
    const char *host;
    enum hy_attempt_state state;
    int64_t exit_code; /* or -signal */
    const char *message;
    const char *detail; /* at its end: the long description of its failure (a traceback); NULL */
    enum hy_charge charge;
    int64_t started, ended, cpu_ms, peak_memory;
    int64_t queued; /* when it began to wait for a slot; 0: unknown */
    const char *held; /* what it waited for on its agent before it began; NULL: nothing */
    int64_t begun; /* the end of that wait; 0 while it lasts, and without one */
    uint64_t gpus; /* of its agent, one bit each */
};

int hy_store_attempt_add(struct hy_store *s, int64_t run, const struct hy_attempt_row *attempt, struct hy_err *err);
/* Sets the fields that change at its end, `gpus` included, but not those of its wait. */
int hy_store_attempt_end(struct hy_store *s, int64_t run, const struct hy_attempt_row *attempt, struct hy_err *err);
/* Sets `held` and `begun`. */
int hy_store_attempt_held(struct hy_store *s, int64_t run, const struct hy_attempt_row *attempt, struct hy_err *err);
/* Clears the charges of its attempts, so that it has all its retries again. */
int hy_store_attempts_clear_charges(struct hy_store *s, int64_t run, int64_t trial, struct hy_err *err);
typedef int (*hy_attempt_cb)(void *arg, const struct hy_attempt_row *attempt);
/* trial 0: of all trials. */
int hy_store_attempt_each(struct hy_store *s, int64_t run, int64_t trial, hy_attempt_cb cb, void *arg,
                          struct hy_err *err);

/* Attempts that ran or waited between two times (wall clock ms), by trial and number; if there are more than `limit`,
 * those that took longest. */
int hy_store_attempt_between(struct hy_store *s, int64_t run, int64_t from, int64_t to, int64_t limit, hy_attempt_cb cb,
                             void *arg, struct hy_err *err);

/* ---- usage -------------------------------------------------------------- */

struct hy_usage_row {
    int64_t trial, attempt;
    const void *points; /* a packed Usage message (wire/usage.h), not empty; as output it is not checked */
    size_t points_len;
};
/* Replaces what the store has of that attempt. Does not check that the attempt exists. */
int hy_store_usage_set(struct hy_store *s, int64_t run, const struct hy_usage_row *usage, struct hy_err *err);
/* trial 0: of all trials. */
typedef int (*hy_usage_cb)(void *arg, const struct hy_usage_row *usage);
int hy_store_usage_each(struct hy_store *s, int64_t run, int64_t trial, hy_usage_cb cb, void *arg, struct hy_err *err);
/* All attempts that ran or waited between two times, by trial and number. Of the attempt's row only numbers and `held`
 * are set. `usage`: NULL when it was not sampled. */
typedef int (*hy_attempt_usage_cb)(void *arg, const struct hy_attempt_row *attempt, const struct hy_usage_row *usage);
int hy_store_attempt_usage_between(struct hy_store *s, int64_t run, int64_t from, int64_t to, hy_attempt_usage_cb cb,
                                   void *arg, struct hy_err *err);

/* ---- metrics ------------------------------------------------------------ */

struct hy_metric_row {
    int64_t trial, attempt, step; /* step -1: none given */
    const char *name;
    double value;
    int64_t time;
    int64_t run_seq; /* of the counter of asked_seq, for hy_store_stop_replay; 0: early stopping does not use it */
};
/* Does not check that the trial exists. */
int hy_store_metric_add(struct hy_store *s, int64_t run, const struct hy_metric_row *m, struct hy_err *err);
typedef int (*hy_metric_cb)(void *arg, const struct hy_metric_row *m);
/* Of one trial and name: at most about `points`, evenly spaced, with the first and the last. */
int hy_store_metric_thinned(struct hy_store *s, int64_t run, int64_t trial, const char *name, int64_t points,
                            hy_metric_cb cb, void *arg, struct hy_err *err);
/* The names that a trial has reported, in their order. */
typedef int (*hy_name_cb)(void *arg, const char *name);
int hy_store_metric_names(struct hy_store *s, int64_t run, int64_t trial, hy_name_cb cb, void *arg, struct hy_err *err);
/* In order of arrival; trial 0: of all trials. */
int hy_store_metric_each(struct hy_store *s, int64_t run, int64_t trial, hy_metric_cb cb, void *arg,
                         struct hy_err *err);

/* ---- early stopping ------------------------------------------------------ */

struct hy_decision_row {
    int64_t seq; /* of the counter of asked_seq */
    int64_t trial;
    int decision; /* enum hy_decision (search/stop.h); numbers must not change */
    int64_t time;
};
int hy_store_decision_add(struct hy_store *s, int64_t run, const struct hy_decision_row *row, struct hy_err *err);

/* What a stopper was given, in its order. */
enum hy_stop_event_kind {
    HY_STOP_EVENT_ASK,      /* the trial was created */
    HY_STOP_EVENT_REPORT,   /* of the run's metric */
    HY_STOP_EVENT_DECISION, /* `decision` */
    HY_STOP_EVENT_END,      /* the trial is in `state`, in which it has ended */
};
struct hy_stop_event {
    enum hy_stop_event_kind kind;
    int64_t seq, trial;
    int64_t attempt, step; /* REPORT; step -1: none given */
    double value;
    int decision;
    enum hy_trial_state state;
};
typedef int (*hy_stop_event_cb)(void *arg, const struct hy_stop_event *event);
/* A nonzero result of the callback ends the iteration and is returned. */
int hy_store_stop_replay(struct hy_store *s, int64_t run, hy_stop_event_cb cb, void *arg, struct hy_err *err);

/* ---- notes -------------------------------------------------------------- */

struct hy_note_row {
    int64_t seq; /* from 1 within the run */
    int64_t time;
    const char *text; /* a sentence for people: "agent b is gone; its trials run elsewhere" */
};
/* row->seq is ignored: the next one is used. */
int hy_store_note_add(struct hy_store *s, int64_t run, const struct hy_note_row *note, struct hy_err *err);
/* In order of arrival, those with a seq above `after`. */
typedef int (*hy_note_cb)(void *arg, const struct hy_note_row *note);
int hy_store_note_each(struct hy_store *s, int64_t run, int64_t after, hy_note_cb cb, void *arg, struct hy_err *err);
/* The newest one's seq; 0: there is none. */
int hy_store_note_newest(struct hy_store *s, int64_t run, int64_t *ret_seq, struct hy_err *err);

/* ---- labels --------------------------------------------------------------- */

/* A label that a user gives to a run or a trial. */
struct hy_label_row {
    int64_t trial; /* 0: the run itself */
    const char *tags; /* JSON array of strings; NULL: none */
    const char *note; /* NULL: none */
};
/* Changes the label: NULL stays as it is, "" removes. -ENOENT when there is no such run or trial. */
int hy_store_label_set(struct hy_store *s, int64_t run, const struct hy_label_row *label, struct hy_err *err);
/* By trial, the run's own first. */
typedef int (*hy_label_cb)(void *arg, const struct hy_label_row *label);
int hy_store_label_each(struct hy_store *s, int64_t run, hy_label_cb cb, void *arg, struct hy_err *err);
/* NULL or "": it has no name. */
int hy_store_run_rename(struct hy_store *s, int64_t run, const char *name, struct hy_err *err);

/* ---- changes recorded in memory ------------------------------------------ */

/*
 * The changes of one turn, for a loop that must not wait for the disk: it
 * records them, and a thread applies them with hy_store_apply while the loop
 * records the next turn. Rows and texts are copied. Each call returns 0 or
 * -ENOMEM; then nothing was recorded.
 */
struct hy_change;
struct hy_changes {
    struct hy_change *first, **end; /* private */
    size_t bytes; /* read-only: the memory they use; 0: empty */
};

void hy_changes_init(struct hy_changes *c);
void hy_changes_clear(struct hy_changes *c);
/* Moves all changes; those of `to` are dropped, `from` is empty. */
void hy_changes_take(struct hy_changes *to, struct hy_changes *from);

int hy_changes_run_state(struct hy_changes *c, enum hy_run_state state, const char *message);
int hy_changes_trial_add(struct hy_changes *c, const struct hy_trial_row *row); /* its directory is unique */
int hy_changes_trial_end(struct hy_changes *c, const struct hy_trial_row *row);
int hy_changes_attempt_add(struct hy_changes *c, const struct hy_attempt_row *row);
int hy_changes_attempt_end(struct hy_changes *c, const struct hy_attempt_row *row);
int hy_changes_attempt_held(struct hy_changes *c, const struct hy_attempt_row *row);
int hy_changes_usage_set(struct hy_changes *c, const struct hy_usage_row *row);
int hy_changes_metric_add(struct hy_changes *c, const struct hy_metric_row *row);
int hy_changes_decision_add(struct hy_changes *c, const struct hy_decision_row *row);
int hy_changes_note_add(struct hy_changes *c, const struct hy_note_row *row);

/*
 * Applies them to `run` in one transaction and commits it, then checks the
 * files. On failure none of them is in the store and the same changes can be
 * applied again; -ESTALE: they are committed, but to files that were replaced.
 */
int hy_store_apply(struct hy_store *s, int64_t run, const struct hy_changes *c, struct hy_err *err);

/* ---- one driver per run -------------------------------------------------- */

/*
 * Takes the lock that marks the run's driver as alive (an OFD lock on
 * DIR/run-ID.lock, released when the process ends). Returns the fd to keep, or
 * -EBUSY with a sentence that names the process that holds it.
 */
int hy_store_run_lock(struct hy_store *s, int64_t run, struct hy_err *err);
/* 1 when some process holds it, 0 when none does. */
int hy_store_run_alive(struct hy_store *s, int64_t run);
/* The PID of the holder; 0 when there is none, or it has not written its PID yet. */
pid_t hy_store_run_driver(struct hy_store *s, int64_t run);

/* ---- snapshots ------------------------------------------------------------ */

/*
 * Writes one run with all its rows into a new store file, atomically; `path` may be on a network file system.
 * `spec` replaces the run's spec, for readers that must not see it; NULL: it is kept.
 */
int hy_store_snapshot(struct hy_store *s, int64_t run, const char *path, const void *spec, size_t spec_len,
                      struct hy_err *err);
/* Writes a snapshot to runs/RUN.db in the store's directory, in case store.db is lost. Waits for
 * another process that writes it. */
int hy_store_backup_run(struct hy_store *s, int64_t run, struct hy_err *err);
/* Removes it, if it is there. */
int hy_store_remove_backup(struct hy_store *s, int64_t run, struct hy_err *err);
/* How many of these snapshots are of runs that are not in the store. */
int hy_store_count_unlisted_backups(struct hy_store *s, int64_t *ret, struct hy_err *err);
/* Adds the runs of a snapshot; those in the store already (same app_id and
 * app_run) are skipped. A run of this project keeps its number if that is free;
 * others get new ones. Commits an open turn first, and then its own changes. From
 * a file that another user has written, or could have, `share` filters each run's
 * spec. */
struct hy_imported {
    int64_t count; /* runs that were added */
    bool is_shared; /* `share` was used */
};
/* Makes a copy of the spec without anything that could be executed: 0 or -ENOMEM. */
typedef int hy_spec_share_fn(const void *spec, size_t n, void **ret, size_t *ret_n);
int hy_store_import(struct hy_store *s, const char *path, hy_spec_share_fn *share, struct hy_imported *ret,
                    struct hy_err *err);

#endif
