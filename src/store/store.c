/* SPDX-License-Identifier: Apache-2.0 */
#include "store/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/private.h"

/* ---- the turn -------------------------------------------------------------- */

static int say(struct hy_store *s, enum hy_sql which, const char *sql, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, which, sql, err);

    return rc < 0 ? rc : hy_query_run(&q, err);
}

static void turn_over(struct hy_store *s)
{
    s->in_turn = false;
    hy_turn_unlock(s->lock_fd);
}

void hy_store_fail_turn(struct hy_store *s, const struct hy_err *why)
{
    s->failure = *why;
    if (!s->in_turn)
        return;
    s->in_turn = false; /* first: a failed ROLLBACK must not recurse */
    if (!sqlite3_get_autocommit(s->db))
        say(s, HY_SQL_ROLLBACK, "ROLLBACK", NULL);
    turn_over(s);
}

int hy_store_begin(struct hy_store *s, struct hy_err *err)
{
    struct hy_err why = {0};
    int rc;

    if (s->in_turn)
        return 0;
    if (s->mode == HY_STORE_READ)
        return hy_err_set(err, -EROFS, "the store '%s' is open for reading only", s->path);
    if (s->failure.code == 0) {
        rc = hy_turn_lock(s->lock_fd, s->wait_ms);
        if (rc == -EBUSY)
            hy_sqlite_error(NULL, SQLITE_BUSY, s->path, &why);
        else if (rc < 0)
            hy_err_sys(&why, rc, "cannot lock '%s/store.lock'", s->directory);
        if (rc == 0 && say(s, HY_SQL_BEGIN, "BEGIN IMMEDIATE", &why) < 0)
            hy_turn_unlock(s->lock_fd);
        s->in_turn = why.code == 0;
        s->failure = why;
    }
    if (s->failure.code != 0 && err)
        *err = s->failure;
    return s->failure.code;
}

int hy_store_commit(struct hy_store *s, struct hy_err *err)
{
    struct hy_err why = {0};
    int rc;

    if (s->failure.code == 0 && s->in_turn) {
        if (say(s, HY_SQL_COMMIT, "COMMIT", &why) == 0)
            turn_over(s);
        else if (s->failure.code == 0) /* SQLite has not rolled back itself */
            hy_store_fail_turn(s, &why);
    }
    rc = s->failure.code;
    if (rc < 0 && err)
        *err = s->failure;
    s->failure.code = 0;
    return rc;
}

/* ---- open and close ---------------------------------------------------------- */

/* SQLite's busy timeout sleeps up to 100 ms at a time; this one retries sooner. */
static int wait_a_little(void *arg, int tries)
{
    const struct timespec pause = {.tv_nsec = 500000};
    struct hy_store *s = arg;

    if (tries == 0)
        s->busy_since = hy_clock_ms();
    if (hy_clock_ms() - s->busy_since >= s->wait_ms)
        return 0;
    nanosleep(&pause, NULL);
    return 1;
}

int hy_sqlite_configure(sqlite3 *db, const char *path, struct hy_err *err)
{
    sqlite3_extended_result_codes(db, 1);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    /* trusted_schema, cell_size_check: the file may be from an untrusted source.
     * secure_delete (on in some builds) overwrites deleted data, which is of no use here. */
    return hy_sqlite_exec(db,
                          "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA secure_delete = OFF;"
                          "PRAGMA cache_size = -2000; PRAGMA mmap_size = 0;",
                          path, err);
}

/* The -wal and -shm files remain after the last writer: without them a reader
 * without write permission for the directory could not read. */
static int connect_to(struct hy_store *s, int flags, struct hy_err *err)
{
    int persist = 1, rc;
    const char *opened;
    char path[64];

    snprintf(path, sizeof path, "%s/store.db", s->at);
    rc = sqlite3_open_v2(path, &s->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK)
        return hy_sqlite_error(s->db, rc, s->path, err);
    opened = sqlite3_db_filename(s->db, "main");
    if (!opened || strcmp(opened, path) != 0)
        return hy_err_set(err, -ENOTSUP, "cannot open '%s': this SQLite resolves links itself; use another one",
                          s->path);
    sqlite3_busy_handler(s->db, wait_a_little, s);
    sqlite3_file_control(s->db, "main", SQLITE_FCNTL_PERSIST_WAL, &persist);
    if (s->mode == HY_STORE_READ)
        sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return hy_sqlite_configure(s->db, s->path, err);
}

static int make_durable(struct hy_store *s, struct hy_err *err)
{
    int64_t wal = 0;
    int rc;

    rc = hy_sqlite_exec(s->db,
                        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 4194304;",
                        s->path, err);
    if (rc == 0)
        rc = hy_sqlite_scalar(s->db, "SELECT journal_mode = 'wal' FROM pragma_journal_mode", &wal, s->path, err);
    if (rc == 0 && !wal)
        rc = hy_err_set(err, -ENOTSUP,
                        "the file system of '%s' cannot hold the store (no shared memory); set "
                        "HOPYARD_PROJECT to a directory on a local disk",
                        s->path);
    return rc;
}

/* A driver of an older hopyard would continue to write to tables that have since
 * changed their meaning. */
static int nobody_drives(struct hy_store *s, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_ONCE, "SELECT id FROM runs WHERE state = 1", err);

    while (rc == 0 && (rc = hy_query_step(&q, err)) > 0) {
        int64_t run = hy_column_i64(&q, 0);

        rc = 0;
        if (hy_run_lock_held(s, run))
            rc = hy_err_set(err, -EBUSY,
                            "the store '%s' is in use by an older hopyard (run %lld): wait for that run or "
                            "stop it, then try again",
                            s->path, (long long)run);
    }
    return rc;
}

/* A new store after a lost one: run numbers are not reused. */
static int go_on_counting(struct hy_store *s, struct hy_err *err)
{
    struct hy_recovery left;
    char advice[400], sql[100];

    hy_recovery_find(s->directory, s->project, &left);
    if (!left.highest && !left.logs && !left.shared)
        return 0;
    snprintf(sql, sizeof sql, "INSERT INTO sqlite_sequence(name, seq) VALUES ('runs', %lld)", (long long)left.highest);
    hy_recovery_advice(&left, s->directory, s->project, advice, sizeof advice);
    s->lost = hy_asprintf("the store of this project was empty or missing, and a new one is used: %s", advice);
    return s->lost ? hy_sqlite_exec(s->db, sql, s->path, err) : hy_err_oom(err);
}

static int open_locked(struct hy_store *s, struct hy_err *err)
{
    int version = 0;
    int rc = connect_to(s, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);

    if (rc == 0)
        rc = hy_schema_version(s->db, s->path, &version, err);
    if (rc == 0 && sqlite3_db_readonly(s->db, "main") == 1)
        rc = hy_sqlite_error(s->db, SQLITE_READONLY, s->path, err);
    if (rc == 0 && version != 0 && version < hy_schema_latest())
        rc = nobody_drives(s, err);
    if (rc == 0)
        rc = make_durable(s, err);
    if (rc == 0)
        rc = hy_schema_migrate(s->db, s->path, err);
    return rc < 0 || version ? rc : go_on_counting(s, err);
}

static int identify(int dir, const char *name, struct hy_file_id *ret)
{
    struct stat st;

    if (HY_SYS(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)) < 0)
        return -errno;
    *ret = (struct hy_file_id){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
    return 0;
}

static bool is_same(struct hy_file_id a, struct hy_file_id b)
{
    return a.device == b.device && a.inode == b.inode;
}

/* An empty -wal file is equivalent to none: readers create one. */
static bool is_unchanged(struct hy_file_id a, struct hy_file_id b)
{
    if (a.size == 0 && b.size == 0)
        return true;
    return is_same(a, b) && a.size == b.size && a.changed.tv_sec == b.changed.tv_sec &&
           a.changed.tv_nsec == b.changed.tv_nsec;
}

/* Of the open files, if the directory was not replaced. */
static int identify_files(const struct hy_store *s, struct hy_file_id *ret_db, struct hy_file_id *ret_wal)
{
    struct hy_file_id opened = {0}, named = {0};
    int rc = identify(s->dir, "", &opened);

    if (rc == 0)
        rc = identify(AT_FDCWD, s->directory, &named);
    if (rc == 0 && !is_same(opened, named))
        rc = -ENOENT;
    if (rc == 0)
        rc = identify(s->dir, "store.db", ret_db);
    return rc == 0 ? identify(s->dir, "store.db-wal", ret_wal) : rc;
}

int hy_store_check_files(const struct hy_store *s, struct hy_err *err)
{
    struct hy_file_id db = {0}, wal = {0};
    int rc = identify_files(s, &db, &wal);

    if (rc < 0 && rc != -ENOENT && rc != -ENOTDIR)
        return 0; /* unknown: the next commit checks again */
    if (s->is_copy && is_unchanged(db, s->db_id) && is_unchanged(wal, s->wal_id))
        return 0;
    if (rc == 0 && !s->is_copy && is_same(db, s->db_id) && is_same(wal, s->wal_id))
        return 0;
    return hy_err_set(err, -ESTALE, "the store '%s' was deleted or replaced while it was in use", s->path);
}

int hy_store_version(struct hy_store *s, int64_t *ret, struct hy_err *err)
{
    return hy_sqlite_scalar(s->db, "PRAGMA data_version", ret, s->path, err);
}

static int open_for_writing(struct hy_store *s, struct hy_err *err)
{
    int rc = s->lock_fd = hy_store_file(s, "store.lock", O_RDWR | O_CREAT, err);

    if (rc == -EPERM || rc == -ENOMEM)
        return rc;
    if (rc < 0)
        return hy_err_sys(err, rc,
                          "cannot write to the directory '%s'; make it writable, or set HOPYARD_PROJECT to another",
                          s->directory);
    rc = hy_turn_lock(s->lock_fd, s->wait_ms);
    if (rc < 0)
        return rc == -EBUSY ? hy_sqlite_error(NULL, SQLITE_BUSY, s->path, err)
                            : hy_err_sys(err, rc, "cannot lock '%s/store.lock'", s->directory);
    rc = open_locked(s, err);
    if (rc == 0) {
        rc = identify_files(s, &s->db_id, &s->wal_id);
        if (rc < 0)
            hy_err_sys(err, rc, "cannot examine '%s'", s->path);
    }
    hy_turn_unlock(s->lock_fd);
    return rc;
}

/* No tables: there never was a run here, or the store is lost. */
static int nothing_yet(const struct hy_store *s, struct hy_err *err)
{
    struct hy_recovery left;
    char advice[400];

    hy_recovery_find(s->directory, s->project, &left);
    if (!left.highest && !left.logs && !left.shared)
        return hy_err_set(err, -ENOENT, "no runs yet in '%s': start one with `hopyard run`", s->project);
    hy_recovery_advice(&left, s->directory, s->project, advice, sizeof advice);
    return hy_err_set(err, -ENODATA, "the store '%s' is empty or missing, though there were runs: %s", s->path, advice);
}

/* An older format: read a migrated copy in memory. */
static int read_older(struct hy_store *s, struct hy_err *err)
{
    sqlite3 *copy = NULL;
    int rc = hy_private_copy_of_db(s->db, s->path, &copy, err);

    if (rc < 0)
        return rc;
    sqlite3_close_v2(s->db);
    s->db = copy;
    s->is_copy = true;
    return 0;
}

static int read_copy(struct hy_store *s, struct hy_err *err)
{
    char at[64];
    struct hy_source from = {.at = at, .path = s->path};
    int rc;

    snprintf(at, sizeof at, "%s/store.db", s->at);
    s->is_copy = true;
    rc = hy_private_copy_of_file(&from, &s->db, err);
    return rc == -ENODATA ? nothing_yet(s, err) : rc;
}

static int examine(struct hy_store *s, struct hy_err *err)
{
    int rc = identify_files(s, &s->db_id, &s->wal_id);

    return rc < 0 && rc != -ENOENT ? hy_err_sys(err, rc, "cannot examine '%s'", s->path) : 0;
}

static int open_for_reading(struct hy_store *s, struct hy_err *err)
{
    int version = 0;
    struct stat st;
    int rc;

    if (s->dir < 0)
        return nothing_yet(s, err);
    if (HY_SYS(fstatat(s->dir, "store.db", &st, AT_SYMLINK_NOFOLLOW)) < 0)
        return errno == ENOENT ? nothing_yet(s, err) : hy_err_sys(err, -errno, "cannot read '%s'", s->path);
    rc = examine(s, err); /* before a copy is made: changes in the meantime make it stale */
    if (rc == 0)
        rc = connect_to(s, SQLITE_OPEN_READONLY, err);
    if (rc == 0)
        rc = hy_schema_version(s->db, s->path, &version, err);
    if (rc < 0 && s->db &&
        ((sqlite3_errcode(s->db) & 0xff) == SQLITE_CANTOPEN || (sqlite3_errcode(s->db) & 0xff) == SQLITE_READONLY)) {
        /* WAL needs files beside the store that do not exist and that we may not make. */
        sqlite3_close_v2(hy_take(s->db));
        return read_copy(s, err);
    }
    if (rc < 0)
        return rc;
    if (version == 0)
        return nothing_yet(s, err);
    if (version < hy_schema_latest())
        return read_older(s, err);
    return examine(s, err); /* the first read has created the -wal file, if there was none */
}

static int waiting_time(void)
{
#ifdef HY_FAULTS
    const char *ms = getenv("HOPYARD_TEST_STORE_WAIT_MS");

    if (ms)
        return atoi(ms);
#endif
    return HY_STORE_WAIT_MS;
}

int hy_store_open(const char *project, enum hy_store_mode mode, struct hy_store **ret, struct hy_err *err)
{
    struct hy_store_location place = {.dir = -1};
    struct hy_store *s;
    int rc;

    rc = hy_sqlite_init(err);
    if (rc == 0)
        rc = hy_store_location_find(project, &place, err);
    if (rc == 0 && mode == HY_STORE_WRITE)
        rc = hy_store_location_make(&place, err);
    s = rc == 0 ? hy_calloc(1, sizeof *s) : NULL;
    if (!s) {
        hy_store_location_done(&place);
        return rc < 0 ? rc : hy_err_oom(err);
    }
    *s = (struct hy_store){.mode = mode,
                           .lock_fd = -1,
                           .wait_ms = waiting_time(),
                           .project = place.project,
                           .directory = place.directory,
                           .dir = place.dir,
                           .url = place.url,
                           .remote = place.remote};
    snprintf(s->at, sizeof s->at, "/proc/self/fd/%d", s->dir);
    s->path = hy_path_join(s->directory, "store.db");
    rc = s->path ? 0 : hy_err_oom(err);
    if (rc == 0 && s->dir >= 0)
        rc = hy_sqlite_check_files(s, err);
    if (rc == 0)
        rc = mode == HY_STORE_WRITE ? open_for_writing(s, err) : open_for_reading(s, err);
    if (rc < 0) {
        hy_store_close(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void hy_store_close(struct hy_store *s)
{
    if (!s)
        return;
    for (int i = 0; i < HY_SQL_COUNT; i++)
        sqlite3_finalize(s->kept[i]);
    sqlite3_close_v2(s->db);
    hy_close_at(&s->lock_fd);
    hy_close_at(&s->dir);
    free(s->path);
    free(s->directory);
    free(s->project);
    free(s->url);
    free(s->lost);
    free(s);
}

const char *hy_store_dir_path(const struct hy_store *s)
{
    return s->directory;
}

int hy_store_file(struct hy_store *s, const char *name, int flags, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(s->directory, name);

    return path ? hy_private_open(s->dir, path, flags, err) : hy_err_oom(err);
}

int hy_store_dir_fd(const struct hy_store *s)
{
    return s->dir;
}

const char *hy_store_project(const struct hy_store *s)
{
    return s->project;
}

const char *hy_store_lost_notice(const struct hy_store *s)
{
    return s->lost;
}

int hy_store_is_remote(const struct hy_store *s)
{
    return s->remote || s->url;
}

const char *hy_store_url(const struct hy_store *s)
{
    return s->url;
}

char *hy_store_display_path(const struct hy_store *s, const char *path)
{
    const size_t n = strlen(s->project);

    if (!s->url || strncmp(path, s->project, n) != 0 || path[n] != '/')
        return hy_strdup(path);
    return hy_asprintf("%s%s", s->url, path + n);
}
