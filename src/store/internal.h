/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the store share. Private to this folder.
 *
 * query.c    one statement: prepare, bind, step, and the sentence when it fails
 * changes.c  changes recorded in memory, and applied later
 * store.c    open, close, and the turn (the transaction between two commits)
 * schema.c   the tables and how older ones become them
 * place.c    where the file lies, and whether that folder may be used
 * lock.c     who may write now, and which runs have a driver
 * guard.c    which files SQLite may open
 * copy.c     private copies: for readers that cannot read in place, for imports
 * lost.c     what is left when the store is lost
 * snapshot.c one run out of a store, and into another
 */
#ifndef HY_STORE_INTERNAL_H
#define HY_STORE_INTERNAL_H

#include <sqlite3.h>
#include <sys/stat.h>

#include "store/store.h"

#define HY_STORE_WAIT_MS 10000 /* how long a locked store is waited for */

/* Statements that are prepared once and kept; the text stands where it is used. */
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
    HY_SQL_TRIAL_ENDED,
    HY_SQL_TRIAL_ENDED_NEWEST,
    HY_SQL_REPLAY,
    HY_SQL_ATTEMPT_ADD,
    HY_SQL_ATTEMPT_COUNT,
    HY_SQL_ATTEMPT_END,
    HY_SQL_ATTEMPTS_FORGIVE,
    HY_SQL_ATTEMPT_ONE,
    HY_SQL_ATTEMPT_ALL,
    HY_SQL_METRIC_ADD,
    HY_SQL_METRIC_ONE,
    HY_SQL_METRIC_ALL,
    HY_SQL_NOTE_ADD,
    HY_SQL_NOTE_ALL,
    HY_SQL_NOTE_NEWEST,
    HY_SQL_COUNT,
    HY_SQL_ONCE = HY_SQL_COUNT, /* prepared for one use */
};

/* Which file a name stands for. */
struct hy_file_id {
    dev_t device;
    ino_t inode;
};

struct hy_store {
    sqlite3 *db;
    char *project; /* its real path */
    char *folder;  /* where store.db lies */
    int dir;       /* the folder, checked, by O_PATH; -1 when it is not there */
    char at[40];   /* /proc/self/fd/DIR: the folder for calls that take a path, whatever has its name by now */
    char *path;    /* of store.db, for sentences */
    char *url;     /* of a project that lies elsewhere; or NULL */
    char *lost;    /* it is new, and another one was lost: what to do; or NULL */
    int remote;
    enum hy_store_mode mode;
    int wait_ms;
    int64_t busy_since;
    int lock_fd;        /* store.lock: who may write; -1 for readers */
    bool in_turn;       /* BEGIN was said */
    struct hy_file_id db_id, wal_id; /* of the files we have open, to write */
    struct hy_err doom; /* code != 0: this turn failed and is rolled back already */
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

/* Takes the kept statement, or a fresh one when that is in use further up the stack. */
int hy_query_open(struct hy_query *q, struct hy_store *s, enum hy_sql which, const char *sql,
                  struct hy_err *err);
/* Opens and begins the turn first: for statements that change something. */
int hy_query_change(struct hy_query *q, struct hy_store *s, enum hy_sql which, const char *sql,
                    struct hy_err *err);
void hy_query_done(struct hy_query *q);
#define hy_cleanup_query __attribute__((cleanup(hy_query_done)))

/* Each binds the next parameter; what goes wrong is said by the next step. */
void hy_query_i64(struct hy_query *q, int64_t value);
void hy_query_text(struct hy_query *q, const char *text); /* NULL is NULL */
void hy_query_blob(struct hy_query *q, const void *bytes, size_t n);
void hy_query_double(struct hy_query *q, bool there, double value); /* NaN lives as the text 'NaN' */

/* 1: a row; 0: the end; -Exxx. */
int hy_query_step(struct hy_query *q, struct hy_err *err);
/* Steps to the end; 0 or -Exxx (-EEXIST: a key is taken; the turn goes on). */
int hy_query_run(struct hy_query *q, struct hy_err *err);

int64_t hy_column_i64(struct hy_query *q, int column);
const char *hy_column_text(struct hy_query *q, int column);
double hy_column_double(struct hy_query *q, int column);
/* After a row's columns were taken: -ENOMEM when one of them could not be had. */
int hy_query_read(struct hy_query *q, struct hy_err *err);

/* Turns an SQLite code into -Exxx and a sentence about `path`. `db` may be NULL. */
int hy_store_sentence(sqlite3 *db, int rc, const char *path, struct hy_err *err);
/* sqlite3_exec with that sentence. */
int hy_store_exec(sqlite3 *db, const char *sql, const char *path, struct hy_err *err);
/* The one integer a statement answers with. */
int hy_store_scalar(sqlite3 *db, const char *sql, int64_t *ret, const char *path, struct hy_err *err);

/* ---- store.c ------------------------------------------------------------- */

int hy_store_begin(struct hy_store *s, struct hy_err *err);
/* Rolls the turn back; what follows in it answers `why` until it is committed. */
void hy_store_doom(struct hy_store *s, const struct hy_err *why);
/* Settings of every connection, whatever it is for. */
int hy_store_settle(sqlite3 *db, const char *path, struct hy_err *err);

/* ---- schema.c ------------------------------------------------------------ */

/* Which format the file has; 0: an empty one. Refuses newer ones and strangers. */
int hy_schema_version(sqlite3 *db, const char *path, int *ret, struct hy_err *err);
int hy_schema_latest(void);
/* Brings the tables up to date, in one transaction. */
int hy_schema_migrate(sqlite3 *db, const char *path, struct hy_err *err);

/* ---- place.c ------------------------------------------------------------- */

struct hy_place {
    char *project, *folder;
    int dir; /* the folder, checked (base/private.h), by O_PATH; -1 when it is not there yet */
    char *url; /* see hy_store_stand_in; or NULL */
    int remote;
};
int hy_place_find(const char *project, struct hy_place *ret, struct hy_err *err);
/* Makes the folder, and leaves in it what tells people what it is. */
int hy_place_make(struct hy_place *p, struct hy_err *err);
void hy_place_done(struct hy_place *p);

/* ---- lock.c -------------------------------------------------------------- */

/* Waits, in turn with other writers, for the right to write. */
int hy_turn_lock(int fd, int wait_ms);
void hy_turn_unlock(int fd);
int hy_run_lock_held(struct hy_store *s, int64_t run);

/* ---- copy.c -------------------------------------------------------------- */

/* All or nothing, by way of a temporary file beside it. */
int hy_copy_file(const char *from, const char *to);
struct hy_source {
    const char *at, *path; /* to be opened, and for sentences */
    uid_t owner;           /* its files are believed, besides our own */
    bool is_foreign;       /* after the copy: another user has written it, or could have */
};
/* A store of one's own with what `from` (and its -wal) holds, migrated; nothing
 * is left on the disk. -ENODATA when there are no tables in it. */
int hy_copy_open_file(struct hy_source *from, sqlite3 **ret, struct hy_err *err);
/* Nobody but its owner, this user or `owner`, could write it. */
bool hy_file_is_own(const struct stat *st, uid_t owner);
/* The same from an open connection, in memory. */
int hy_copy_open_backup(sqlite3 *from, const char *path, sqlite3 **ret, struct hy_err *err);

/* ---- lost.c -------------------------------------------------------------- */

/* What is left of the runs of a store that is damaged, empty or missing. */
struct hy_left {
    int64_t kept;    /* snapshots in FOLDER/runs */
    int64_t highest; /* number of a run that has left anything in FOLDER */
    bool shared;     /* run.db files of our own lie with the logs */
    bool foreign;    /* and such that others have written, or could have */
    bool logs;       /* there are logs of runs */
};
/* `project` may be NULL. */
void hy_left_find(const char *folder, const char *project, struct hy_left *ret);
/* What to do about it, in words. */
void hy_left_advice(const struct hy_left *left, const char *folder, const char *project, char *ret, size_t size);
/* The sentence for the store file `path`, with what to do. */
int hy_left_damaged(const char *path, const char *why, struct hy_err *err);

/* ---- runs.c, trials.c ---------------------------------------------------- */

/* Counts a trial's change of state; 0 for the state it is not in. */
int hy_run_tally(struct hy_store *s, int64_t run, int was, int is, struct hy_err *err);

/* ---- guard.c ------------------------------------------------------------- */

/* Once per process, after SQLite has started: it opens no file that is not this user's alone. */
int hy_sqlite_guard(void);
/* The same check of the store's files before SQLite opens them, with a sentence. */
int hy_guard_check(struct hy_store *s, struct hy_err *err);

/* ---- faults.c ------------------------------------------------------------ */

/* Once per process, before SQLite starts: its settings and, in test builds, its fault seams. */
int hy_sqlite_prepare(struct hy_err *err);

#endif
