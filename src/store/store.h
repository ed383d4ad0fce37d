/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: the memory of a project.
 *
 * One SQLite file (WAL, synchronous=FULL) with runs, trials, attempts, metrics
 * and notes. A driver writes its own run; what it does in one turn of its loop
 * is one transaction: the first change opens it, hy_store_commit ends it, and
 * nothing is told to anybody before that. Readers open the file read-only and
 * never wait for a writer.
 *
 * The file lies in PROJECT/.hopyard/store.db. Where the project folder is on a
 * network file system (SQLite's locks do not hold there) it lies below
 * $XDG_STATE_HOME/hopyard/, and each finished run leaves a snapshot `run.db`
 * with its logs, without environment and function. A snapshot of all of it is
 * kept beside the store, runs/RUN.db. hy_store_import reads both.
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
    HY_STORE_READ,  /* -ENOENT with a sentence when there is none yet; -ENODATA when there was one */
    HY_STORE_WRITE, /* made when missing, migrated when older */
};

/* `project` is a folder. The folder of its store is checked first (base/private.h). A store written by a newer hopyard is refused with a
 * sentence; a locked one is waited for (10 s), then refused with a sentence. */
int hy_store_open(const char *project, enum hy_store_mode mode, struct hy_store **ret, struct hy_err *err);
void hy_store_close(struct hy_store *s); /* NULL is fine; an open transaction is rolled back */

/* The folder that holds store.db, run locks and driver logs. */
const char *hy_store_folder(const struct hy_store *s);
/* The same by its descriptor (O_PATH), whatever has its name by now. */
int hy_store_dir(const struct hy_store *s);
/* The project, by its real path. */
const char *hy_store_project(const struct hy_store *s);
/* A sentence when the store was made anew, though there had been one; or NULL. */
const char *hy_store_lost(const struct hy_store *s);
/* Opens a file in it, as hy_private_open does. */
int hy_store_file(struct hy_store *s, const char *name, int flags, struct hy_err *err);
/* 1 when others do not find the store in the project, because that is on a network file system. */
int hy_store_is_remote(const struct hy_store *s);

/*
 * A project may be a URL (hdfs://…): a folder of this machine stands for it,
 * whose files the driver brings there. This makes that folder, or finds it; free
 * it. NULL with a sentence.
 */
char *hy_store_stand_in(const char *url, struct hy_err *err);
/* *ret gets the URL that such a folder stands for, or NULL; free it. */
int hy_store_stands_for(const char *project, char **ret, struct hy_err *err);
/* The URL that the project stands for; or NULL. */
const char *hy_store_url(const struct hy_store *s);
/* A path in the project as people know it: below that URL. Free it; NULL when out of memory. */
char *hy_store_shown(const struct hy_store *s, const char *path);

/*
 * Ends the turn's transaction, if there is one. On failure (-ENOSPC, -EIO …)
 * everything since the last commit is rolled back and the sentence says why.
 * A change that failed for such a reason has rolled the turn back already: all
 * that follows in it, and its commit, answer the same. -EEXIST, -EINVAL and
 * -ENOENT (but for a trial of a run that is gone) leave the turn as it was.
 */
int hy_store_commit(struct hy_store *s, struct hy_err *err);
/* 0 while the open files are those that others find by their names; -ESTALE when
 * somebody has deleted or replaced one of them: then commits reach nobody. */
int hy_store_check_files(const struct hy_store *s, struct hy_err *err);

/* ---- runs --------------------------------------------------------------- */

enum hy_run_state { HY_RUN_RUNNING = 1, HY_RUN_DONE, HY_RUN_STOPPED, HY_RUN_FAILED };
enum hy_trial_state { HY_TRIAL_RUNNING = 1, HY_TRIAL_DONE, HY_TRIAL_FAILED, HY_TRIAL_STOPPED };
enum hy_attempt_state {
    HY_ATTEMPT_RUNNING = 1,
    HY_ATTEMPT_DONE,
    HY_ATTEMPT_FAILED,
    HY_ATTEMPT_LOST,
    HY_ATTEMPT_STOPPED
};

/* What an attempt counts as against its trial, also after resume. Kept in the store: numbers stay. */
enum hy_charge {
    HY_CHARGE_NONE,      /* it ended well, or not by its own fault */
    HY_CHARGE_FAILURE,   /* one of its retries */
    HY_CHARGE_LOSS,      /* its agent died while it ran there, and the machine lived on */
    HY_CHARGE_SHORTAGE,  /* its machine had no process, file or memory to start it */
    HY_CHARGE_GPU_FAULT, /* a fault on the GPU that it shared */
    HY_CHARGES
};

const char *hy_run_state_name(enum hy_run_state s); /* "running", "done" … */
const char *hy_trial_state_name(enum hy_trial_state s);
const char *hy_attempt_state_name(enum hy_attempt_state s);

/* Strings in the structs below are borrowed on the way in, and on the way out
 * valid until the callback returns. NULL where there is none. Times are wall ms. */
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
    const void *spec;     /* the packed RunSpec message, for resume; a list of runs leaves it out, */
    size_t spec_len;      /* since a function in it may have 48 MB */
    enum hy_run_state state;
    const char *message;    /* why it failed or stopped; NULL */
    int64_t created, ended; /* ended: 0 while it runs */
    int64_t total;          /* trials the search will ask for; -1: without end */
    int64_t ranks;          /* the trials are the ranks of one training; 0: they are not */
};

/* Counts kept by SQL, so that a list of runs needs no walk over trials. The best
 * is among the trials that are done, NaN left out; of equals the first. */
struct hy_run_counts {
    int64_t running, done, failed, stopped;
    int64_t best_trial; /* number; 0: none yet */
    double best_value;
};

/* -EEXIST when the store has that app_run of app_id already: take the next. */
int hy_store_run_add(struct hy_store *s, const struct hy_run_row *run, int64_t *ret_id, struct hy_err *err);
/* `ended` becomes now, or 0 for HY_RUN_RUNNING. */
int hy_store_run_state(struct hy_store *s, int64_t run, enum hy_run_state state, const char *message,
                       struct hy_err *err);
/* All its rows; files are the caller's. Its number is not given again. */
int hy_store_run_remove(struct hy_store *s, int64_t run, struct hy_err *err);
/* Finds by number ("12") or name (the newest of that name); NULL or "" the
 * newest of all. 0 or -ENOENT with a sentence that names what there is. */
int hy_store_run_find(struct hy_store *s, const char *text, int64_t *ret_id, struct hy_err *err);

typedef int (*hy_run_cb)(void *arg, const struct hy_run_row *run, const struct hy_run_counts *counts);
/* Calls back for one run (id) or, newest first, for all (id 0). A callback's
 * answer other than 0 ends the walk and is returned. -ENOENT for an unknown id. */
int hy_store_run_each(struct hy_store *s, int64_t id, hy_run_cb cb, void *arg, struct hy_err *err);

/* ---- trials ------------------------------------------------------------- */

struct hy_trial_row {
    int64_t number;     /* from 1 within the run */
    const char *params; /* JSON object, in the space's order, numbers as numbers */
    const char *dir;    /* the folder's name below the run's logdir */
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
/* Sets state, value, message, ended, told_seq and ended_seq; HY_TRIAL_RUNNING (with neither) opens one that had
 * ended again. */
int hy_store_trial_end(struct hy_store *s, int64_t run, const struct hy_trial_row *trial, struct hy_err *err);

typedef int (*hy_trial_cb)(void *arg, const struct hy_trial_row *trial);
enum hy_trial_order {
    HY_TRIALS_BY_NUMBER,
    HY_TRIALS_BY_VALUE, /* best first, by the run's direction; then, by number, those without a place */
};
/* number 0: all, from `offset`, at most `limit` (0: no limit). -ENOENT for an unknown number. */
int hy_store_trial_each(struct hy_store *s, int64_t run, int64_t number, enum hy_trial_order order,
                        int64_t offset, int64_t limit, hy_trial_cb cb, void *arg, struct hy_err *err);

/*
 * The trials whose ended_seq is above `after` and at most `until`, in that order,
 * and no more than `limit`. The cost depends on how many these are, not on how
 * many have ended. A walk is a read transaction, and the -wal file cannot be
 * reused while one is open: callbacks must not block, and long walks are made in
 * parts.
 */
int hy_store_ended_each(struct hy_store *s, int64_t run, int64_t after, int64_t until, int64_t limit, hy_trial_cb cb,
                        void *arg, struct hy_err *err);
/* The `after` with which that walk gives the newest `count` of those up to `until`. */
int hy_store_ended_newest(struct hy_store *s, int64_t run, int64_t until, int64_t count, int64_t *ret_after,
                          struct hy_err *err);

/* The asks and tells of a run in their order: cb gets each trial at its ask
 * (told = 0) and, when told, again at its tell (told = 1). */
typedef int (*hy_replay_cb)(void *arg, const struct hy_trial_row *trial, int told);
int hy_store_replay(struct hy_store *s, int64_t run, hy_replay_cb cb, void *arg, struct hy_err *err);

/* ---- attempts ----------------------------------------------------------- */

struct hy_attempt_row {
    int64_t trial, number; /* number from 1 within the trial */
    const char *agent;     /* "local", "a", … */
    const char *host;
    enum hy_attempt_state state;
    int64_t exit_code; /* or -signal */
    const char *message;
    const char *detail; /* at its end: what it said of its failure at length; NULL */
    enum hy_charge charge;
    int64_t started, ended, cpu_ms, peak_memory;
};

int hy_store_attempt_add(struct hy_store *s, int64_t run, const struct hy_attempt_row *attempt,
                         struct hy_err *err);
int hy_store_attempt_end(struct hy_store *s, int64_t run, const struct hy_attempt_row *attempt,
                         struct hy_err *err);
/* What its attempts were charged with counts no more: it starts anew. */
int hy_store_attempts_forgive(struct hy_store *s, int64_t run, int64_t trial, struct hy_err *err);
typedef int (*hy_attempt_cb)(void *arg, const struct hy_attempt_row *attempt);
/* trial 0: of all trials. */
int hy_store_attempt_each(struct hy_store *s, int64_t run, int64_t trial, hy_attempt_cb cb, void *arg,
                          struct hy_err *err);

/* ---- metrics ------------------------------------------------------------ */

struct hy_metric_row {
    int64_t trial, attempt, step; /* step -1: none given */
    const char *name;
    double value;
    int64_t time;
};
/* Does not ask whether there is such a trial. */
int hy_store_metric_add(struct hy_store *s, int64_t run, const struct hy_metric_row *m, struct hy_err *err);
/* In the order they came; trial 0: of all trials. */
typedef int (*hy_metric_cb)(void *arg, const struct hy_metric_row *m);
int hy_store_metric_each(struct hy_store *s, int64_t run, int64_t trial, hy_metric_cb cb, void *arg,
                         struct hy_err *err);

/* ---- notes -------------------------------------------------------------- */

struct hy_note_row {
    int64_t seq; /* from 1 within the run */
    int64_t time;
    const char *text; /* a sentence for people: "agent b is gone; its trials run elsewhere" */
};
/* `seq` is the next one, whatever the row says. */
int hy_store_note_add(struct hy_store *s, int64_t run, const struct hy_note_row *note, struct hy_err *err);
/* In the order they came, those with a seq above `after`. */
typedef int (*hy_note_cb)(void *arg, const struct hy_note_row *note);
int hy_store_note_each(struct hy_store *s, int64_t run, int64_t after, hy_note_cb cb, void *arg, struct hy_err *err);
/* The newest one's seq; 0: there is none. */
int hy_store_note_newest(struct hy_store *s, int64_t run, int64_t *ret_seq, struct hy_err *err);

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
    size_t bytes;                   /* read-only: the memory they take; 0: there are none */
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
int hy_changes_metric_add(struct hy_changes *c, const struct hy_metric_row *row);
int hy_changes_note_add(struct hy_changes *c, const struct hy_note_row *row);

/*
 * Applies them to `run` in one transaction and commits it, then checks the
 * files. On failure nothing of them is in the store and the same changes can be
 * applied again; -ESTALE: they are committed, but to files that nobody finds.
 */
int hy_store_apply(struct hy_store *s, int64_t run, const struct hy_changes *c, struct hy_err *err);

/* ---- one driver per run -------------------------------------------------- */

/*
 * Takes the lock that says "this run's driver lives" (an OFD lock on
 * FOLDER/run-ID.lock, gone with the process). Returns the fd to keep, or
 * -EBUSY with a sentence that names the process that holds it.
 */
int hy_store_run_lock(struct hy_store *s, int64_t run, struct hy_err *err);
/* 1 when some process holds it, 0 when none does. */
int hy_store_run_alive(struct hy_store *s, int64_t run);
/* The process that holds it; 0 when none does, or it has not said who it is yet. */
pid_t hy_store_run_driver(struct hy_store *s, int64_t run);

/* ---- snapshots ------------------------------------------------------------ */

/* Writes one run with all that belongs to it into a new store file, all or nothing; `path` may be on a
 * network. */
int hy_store_snapshot(struct hy_store *s, int64_t run, const char *path, struct hy_err *err);
/* The same for other people's eyes: `spec` takes the place of the run's own. */
int hy_store_snapshot_with(struct hy_store *s, int64_t run, const char *path, const void *spec, size_t spec_len,
                           struct hy_err *err);
/* A snapshot in the store's own folder, runs/RUN.db, in case that store.db is lost; one driver writes it at a
 * time. */
int hy_store_keep(struct hy_store *s, int64_t run, struct hy_err *err);
/* Removes it, if it is there. */
int hy_store_unkeep(struct hy_store *s, int64_t run, struct hy_err *err);
/* How many of them are of runs that are not in the store. */
int hy_store_count_lost(struct hy_store *s, int64_t *ret, struct hy_err *err);
/* Adds the runs of a snapshot; those that are there already (same app_id and
 * app_run) are left alone. A run of this project keeps its number, if that is
 * free; others are given new ones. It is a turn of its own: what was open is
 * committed before it, and it commits. From a file that another user has
 * written, or could have, each run's spec is taken as `share` leaves it. */
struct hy_imported {
    int64_t count;  /* runs that were added */
    bool is_shared; /* `share` was used */
};
/* A copy of the spec that makes nobody run anything: 0 or -ENOMEM. */
typedef int hy_share_fn(const void *spec, size_t n, void **ret, size_t *ret_n);
int hy_store_import(struct hy_store *s, const char *path, hy_share_fn *share, struct hy_imported *ret,
                    struct hy_err *err);

#endif
