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
 * with its logs, which hy_store_import reads.
 *
 * Not thread-safe; one loop owns a store.
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
    HY_STORE_READ,  /* -ENOENT with a sentence when there is none yet */
    HY_STORE_WRITE, /* made when missing, migrated when older */
};

/* `project` is a folder. A store written by a newer hopyard is refused with a
 * sentence; a locked one is waited for (10 s), then refused with a sentence. */
int hy_store_open(const char *project, enum hy_store_mode mode, struct hy_store **ret, struct hy_err *err);
void hy_store_close(struct hy_store *s); /* NULL is fine; an open transaction is rolled back */

/* The folder that holds store.db, run locks and driver logs. */
const char *hy_store_folder(const struct hy_store *s);
/* 1 when others do not find the store in the project, because that is on a network file system. */
int hy_store_is_remote(const struct hy_store *s);

/*
 * A project may be a URL (hdfs://…): a folder of this machine stands for it,
 * whose files the driver brings there. This makes that folder, or finds it; free
 * it. NULL with a sentence.
 */
char *hy_store_stand_in(const char *url, struct hy_err *err);
/* The URL that such a folder stands for, or NULL; free it. */
char *hy_store_stands_for(const char *project);
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
};

/* Adds a trial in state RUNNING. When `dir` is taken already in this run, "~N"
 * (the trial's number) is put behind it; *ret_dir gets the name used (free it). */
int hy_store_trial_add(struct hy_store *s, int64_t run, const struct hy_trial_row *trial, char **ret_dir,
                       struct hy_err *err);
/* Sets state, value, message, ended and told_seq; HY_TRIAL_RUNNING opens one that had ended again. */
int hy_store_trial_end(struct hy_store *s, int64_t run, const struct hy_trial_row *trial, struct hy_err *err);

typedef int (*hy_trial_cb)(void *arg, const struct hy_trial_row *trial);
enum hy_trial_order {
    HY_TRIALS_BY_NUMBER,
    HY_TRIALS_BY_VALUE, /* best first, by the run's direction; then, by number, those without a place */
};
/* number 0: all, from `offset`, at most `limit` (0: no limit). -ENOENT for an unknown number. */
int hy_store_trial_each(struct hy_store *s, int64_t run, int64_t number, enum hy_trial_order order,
                        int64_t offset, int64_t limit, hy_trial_cb cb, void *arg, struct hy_err *err);

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
    int64_t started, ended, cpu_ms, peak_memory;
};

int hy_store_attempt_add(struct hy_store *s, int64_t run, const struct hy_attempt_row *attempt,
                         struct hy_err *err);
int hy_store_attempt_end(struct hy_store *s, int64_t run, const struct hy_attempt_row *attempt,
                         struct hy_err *err);
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
    int64_t time;
    const char *text; /* a sentence for people: "agent b is gone; its trials run elsewhere" */
};
int hy_store_note_add(struct hy_store *s, int64_t run, const char *text, struct hy_err *err);
/* In the order they came. */
typedef int (*hy_note_cb)(void *arg, const struct hy_note_row *note);
int hy_store_note_each(struct hy_store *s, int64_t run, hy_note_cb cb, void *arg, struct hy_err *err);

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
/* Adds the runs of a snapshot as new runs; those that are there already (same
 * app_id and app_run) are left alone. *ret_count gets how many were added. It
 * is a turn of its own: what was open is committed before it, and it commits. */
int hy_store_import(struct hy_store *s, const char *path, int64_t *ret_count, struct hy_err *err);

#endif
