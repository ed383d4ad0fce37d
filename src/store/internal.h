/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of this part:
 *
 *     query.c         one statement: prepare, bind, step, and error messages
 *     changes.c       changes recorded in memory, and applied later
 *     trial_page.c    a page of a run's trials in any order
 *     store.c         open, close, and the turn (the transaction between two commits)
 *     schema.c        the tables and their migrations
 *     location.c      the directory of the store, and whether it may be used
 *     lock.c          the write lock, and which runs have a driver
 *     sqlite_init.c   SQLite's settings and fault seams
 *     sqlite_open.c   checks of the files that SQLite opens
 *     projects.c      the list of this user's projects
 *     private_copy.c  copies for readers that cannot read in place, and for imports
 *     recovery.c      what can be recovered when the store is lost
 *     snapshot.c      exports one run of a store, and imports it
 */
#ifndef HY_STORE_INTERNAL_H
#define HY_STORE_INTERNAL_H

#include <sqlite3.h>
#include <sys/stat.h>

#include "store/store.h"

#define HY_STORE_WAIT_MS 10000 /* how long a locked store is waited for */

/* Statements that are prepared once and cached; the SQL is where it is used. */
enum hy_sql {
    HY_SQL_BEGIN,
    HY_SQL_COMMIT,
    HY_SQL_ROLLBACK,
    HY_SQL_TALLY,
    HY_SQL_RUN_ADD,
    HY_SQL_RUN_STATE,
    HY_SQL_RUN_BY_ID,
    HY_SQL_RUN_BY_NAME,
    HY_SQL_RUN_NEWEST,
    HY_SQL_RUN_ONE,
    HY_SQL_RUN_ALL,
    HY_SQL_TRIAL_ADD,
    HY_SQL_TRIAL_WAS,
    HY_SQL_TRIAL_END,
    HY_SQL_TRIAL_ONE,
    HY_SQL_TRIAL_BY_NUMBER,
    HY_SQL_TRIAL_BY_VALUE,
    HY_SQL_TRIAL_COUNT_VALUES,
    HY_SQL_TRIAL_NO_VALUE,
    HY_SQL_TRIAL_CHANGED,
    HY_SQL_TRIAL_ENDED,
    HY_SQL_TRIAL_ENDED_NEWEST,
    HY_SQL_REPLAY,
    HY_SQL_ATTEMPT_ADD,
    HY_SQL_ATTEMPT_COUNT,
    HY_SQL_ATTEMPT_END,
    HY_SQL_ATTEMPTS_CLEAR_CHARGES,
    HY_SQL_ATTEMPT_HELD,
    HY_SQL_ATTEMPT_ONE,
    HY_SQL_ATTEMPT_ALL,
    HY_SQL_ATTEMPT_BETWEEN,
    HY_SQL_USAGE_SET,
    HY_SQL_USAGE_ONE,
    HY_SQL_USAGE_ALL,
    HY_SQL_USAGE_BETWEEN,
    HY_SQL_METRIC_ADD,
    HY_SQL_METRIC_ONE,
    HY_SQL_METRIC_ALL,
    HY_SQL_METRIC_THINNED,
    HY_SQL_METRIC_NAMES,
    HY_SQL_DECISION_ADD,
    HY_SQL_STOP_REPLAY,
    HY_SQL_NOTE_ADD,
    HY_SQL_NOTE_ALL,
    HY_SQL_NOTE_NEWEST,
    HY_SQL_LABEL_ALL,
    HY_SQL_COUNT,
    HY_SQL_ONCE = HY_SQL_COUNT, /* prepared for one use */
};

struct hy_file_id {
    dev_t device;
    ino_t inode;
    off_t size; /* these two when it was examined */
    struct timespec changed;
};

struct hy_store {
    sqlite3 *db;
    char *project; /* its real path */
    char *directory;  /* the directory of store.db */
    int dir;       /* the directory, checked, O_PATH; -1 when it is missing */
    char at[40];   /* /proc/self/fd/DIR: the same directory for calls that take a path, even if it is replaced */
    char *path;    /* of store.db, for messages */
    char *url;     /* of a remote project; or NULL */
    char *lost;    /* an earlier store was lost: what to do; or NULL */
    int remote;
    enum hy_store_mode mode;
    int wait_ms;
    int64_t busy_since;
    int lock_fd;        /* store.lock; -1 for readers */
    bool in_turn;       /* a transaction is open */
    bool is_copy;       /* `db` is a private copy of these files */
    struct hy_file_id db_id, wal_id; /* of the files we have open */
    struct hy_err failure; /* code != 0: this turn failed and is rolled back already */
    sqlite3_stmt *kept[HY_SQL_COUNT];
};

/* ---- query.c ------------------------------------------------------------- */

/* One use of a statement. Texts bound to it are borrowed until it is done. */
struct hy_query {
    struct hy_store *s;
    sqlite3_stmt *stmt;
    bool kept;
    int bound;
    int rc;
};

/* Takes the cached statement, or prepares another one when that is in use by a caller. */
int hy_query_open(struct hy_query *q, struct hy_store *s, enum hy_sql which, const char *sql, struct hy_err *err);
/* Opens and begins the turn first: for statements that change something. */
int hy_query_change(struct hy_query *q, struct hy_store *s, enum hy_sql which, const char *sql, struct hy_err *err);
void hy_query_done(struct hy_query *q);
#define hy_cleanup_query __attribute__((cleanup(hy_query_done)))

/* Each binds the next parameter; an error is reported by the next step. */
void hy_query_i64(struct hy_query *q, int64_t value);
void hy_query_text(struct hy_query *q, const char *text); /* NULL is NULL */
void hy_query_blob(struct hy_query *q, const void *bytes, size_t n);
void hy_query_double(struct hy_query *q, bool there, double value); /* NaN is stored as the text 'NaN' */

/* 1: a row; 0: the end; -Exxx. */
int hy_query_step(struct hy_query *q, struct hy_err *err);
/* Steps to the end; 0 or -Exxx (-EEXIST: a key is taken; the turn goes on). */
int hy_query_run(struct hy_query *q, struct hy_err *err);

/* Attempts of run ?1 that waited or ran between ?2 and ?3. */
#define HY_ATTEMPTS_BETWEEN                                                                                            \
    "run = ?1 AND (CASE queued WHEN 0 THEN started ELSE queued END) <= ?3 AND (ended = 0 OR ended >= ?2)"

int64_t hy_column_i64(struct hy_query *q, int column);
const char *hy_column_text(struct hy_query *q, int column);
const void *hy_column_blob(struct hy_query *q, int column, size_t *ret_n);
double hy_column_double(struct hy_query *q, int column);
/* After reading a row's columns: -ENOMEM when one of them failed. */
int hy_query_read(struct hy_query *q, struct hy_err *err);

/* Turns an SQLite code into -Exxx and a sentence about `path`. `db` may be NULL. */
int hy_sqlite_error(sqlite3 *db, int rc, const char *path, struct hy_err *err);
/* sqlite3_exec with that sentence. */
int hy_sqlite_exec(sqlite3 *db, const char *sql, const char *path, struct hy_err *err);
/* The single integer that a statement returns. */
int hy_sqlite_scalar(sqlite3 *db, const char *sql, int64_t *ret, const char *path, struct hy_err *err);

/* ---- store.c ------------------------------------------------------------- */

int hy_store_begin(struct hy_store *s, struct hy_err *err);
/* Rolls the turn back; the rest of it returns `why` until it is committed. */
void hy_store_fail_turn(struct hy_store *s, const struct hy_err *why);
/* Settings of every connection. */
int hy_sqlite_configure(sqlite3 *db, const char *path, struct hy_err *err);

/* ---- schema.c ------------------------------------------------------------ */

/* The format of the file; 0: empty. Newer formats and other databases are errors. */
int hy_schema_version(sqlite3 *db, const char *path, int *ret, struct hy_err *err);
int hy_schema_latest(void);
/* Brings the tables up to date, in one transaction. */
int hy_schema_migrate(sqlite3 *db, const char *path, struct hy_err *err);

/* ---- location.c ---------------------------------------------------------- */

struct hy_store_location {
    char *project, *directory;
    int dir;   /* the directory, checked (base/private.h), O_PATH; -1 when it does not exist yet */
    char *url; /* see hy_store_local_dir; or NULL */
    int remote;
};
int hy_store_location_find(const char *project, struct hy_store_location *ret, struct hy_err *err);
/* Makes the directory, with a README in it. */
int hy_store_location_make(struct hy_store_location *p, struct hy_err *err);
void hy_store_location_done(struct hy_store_location *p);
/* $XDG_STATE_HOME, or its default. Free it; NULL when out of memory. */
char *hy_store_state_home(void);

/* ---- lock.c -------------------------------------------------------------- */

/* Waits for the write lock; writers queue in order. */
int hy_turn_lock(int fd, int wait_ms);
void hy_turn_unlock(int fd);
/* Locks the run's file in runs/. Returns the descriptor that holds the lock, or -Exxx. */
int hy_backup_lock(struct hy_store *s, int64_t run, struct hy_err *err);
int hy_run_lock_held(struct hy_store *s, int64_t run);

/* ---- private_copy.c ------------------------------------------------------ */

/* All or nothing, by way of a temporary file beside it. */
int hy_copy_file(const char *from, const char *to);
struct hy_source {
    const char *at, *path; /* to open, and for messages */
    uid_t owner;           /* whose files are trusted besides our own */
    bool is_foreign;       /* after the copy: another user has written it, or could have */
};
/* A migrated private copy of `from` and its -wal; nothing is left on the disk.
 * -ENODATA when it has no tables. */
int hy_private_copy_of_file(struct hy_source *from, sqlite3 **ret, struct hy_err *err);
/* Only its owner can write it, which is this user or `owner`. */
bool hy_file_is_own(const struct stat *st, uid_t owner);
/* The same from an open connection, in memory. */
int hy_private_copy_of_db(sqlite3 *from, const char *path, sqlite3 **ret, struct hy_err *err);

/* ---- recovery.c ---------------------------------------------------------- */

/* What is left of the runs of a store that is damaged, empty or missing. */
struct hy_recovery {
    int64_t kept;    /* snapshots in DIR/runs */
    int64_t highest; /* number of a run that has left any file in DIR */
    bool shared;     /* run.db files of our own are with the logs */
    bool foreign;    /* also some that other users have written, or could have */
    bool logs;       /* logs of runs exist */
};
/* `project` may be NULL. */
void hy_recovery_find(const char *directory, const char *project, struct hy_recovery *ret);
/* What the user can do about it. */
void hy_recovery_advice(const struct hy_recovery *left, const char *directory, const char *project, char *ret,
                        size_t size);
/* The error for the damaged store file `path`. */
int hy_recovery_damaged_error(const char *path, const char *why, struct hy_err *err);

/* ---- runs.c, trials.c ---------------------------------------------------- */

/* Counts a trial's change of state; 0 for the state it is not in. */
int hy_run_count_change(struct hy_store *s, int64_t run, int was, int is, struct hy_err *err);

/* ---- sqlite_open.c ------------------------------------------------------- */

/* Once per process, after SQLite is initialized: it then refuses files that other users can access. */
int hy_sqlite_check_opens(void);
/* The same check of the store's files before SQLite opens them, for a better message. */
int hy_sqlite_check_files(struct hy_store *s, struct hy_err *err);

/* ---- sqlite_init.c ------------------------------------------------------- */

/* Once per process, before SQLite is initialized: its settings and, in test builds, its fault seams. */
int hy_sqlite_init(struct hy_err *err);

#endif
