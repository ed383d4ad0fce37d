/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: a store file with one run in it, and its import.
 *
 * Rows are read from one connection and written through the other. ATTACH would be
 * shorter, but does not work within a turn or on a read-only connection, and would
 * trust the other file's schema.
 */
#include "store/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/private.h"

#define NUMBER_MAX (INT64_C(1) << 40) /* a file with larger numbers would leave none for other runs */

#define RUN_HEAD                                                                                                       \
    "name, app_id, app_run, logdir, command, metric, maximize, seed, versions, git, state, message,"                   \
    " created, ended, total"

/* The first column is the run, which gets another number in the target. */
static const struct {
    const char *read, *write;
} tables[] = {
    {"SELECT run, number, params, dir, state, value, message, attempts, started, ended, asked_seq, told_seq, "
     "ended_seq, score"
     " FROM trials WHERE run = ?",
     "INSERT INTO trials(run, number, params, dir, state, value, message, attempts, started, ended, "
     "asked_seq,"
     " told_seq, ended_seq, score) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
    {"SELECT run, trial, number, agent, host, state, exit_code, message, started, ended, cpu_ms, peak_memory,"
     " detail, charge, queued, held, begun, gpus FROM attempts WHERE run = ?",
     "INSERT INTO attempts(run, trial, number, agent, host, state, exit_code, message, started, ended, "
     "cpu_ms,"
     " peak_memory, detail, charge, queued, held, begun, gpus) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
    {"SELECT run, trial, attempt, points FROM usage WHERE run = ?",
     "INSERT INTO usage(run, trial, attempt, points) VALUES (?,?,?,?)"},
    {"SELECT run, trial, seq, attempt, step, name, value, time, run_seq FROM metrics WHERE run = ?",
     "INSERT INTO metrics(run, trial, seq, attempt, step, name, value, time, run_seq) VALUES (?,?,?,?,?,?,?,?,?)"},
    {"SELECT run, seq, trial, decision, time FROM decisions WHERE run = ?",
     "INSERT INTO decisions(run, seq, trial, decision, time) VALUES (?,?,?,?,?)"},
    {"SELECT run, seq, time, text FROM notes WHERE run = ?",
     "INSERT INTO notes(run, seq, time, text) VALUES (?,?,?,?)"},
    {"SELECT run, trial, tags, note FROM labels WHERE run = ?",
     "INSERT INTO labels(run, trial, tags, note) VALUES (?,?,?,?)"},
};

/* Computed from the rows, since a snapshot's own counts are not trusted. */
static const char *const derived[] = {
    "INSERT INTO tallies SELECT ?1, count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 2),"
    " count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4), count(*) FILTER (WHERE state = 5),"
    " count(*) FILTER (WHERE state = 6) FROM trials WHERE run = ?1",
    "UPDATE trials SET score = CASE WHEN state = 2 AND typeof(value) = 'real' THEN"
    " CASE (SELECT maximize FROM runs WHERE id = ?1) WHEN 0 THEN value ELSE -value END END WHERE run = ?1",
};

/* One end of a transfer, and the name of its file in messages. */
struct end {
    sqlite3 *db;
    const char *path;
    bool is_own;      /* a store that this program has written */
    const void *spec; /* replaces the run's; NULL: it is copied */
    size_t spec_len;
};

static int prepare(const struct end *e, const char *sql, int64_t first, sqlite3_stmt **ret, struct hy_err *err)
{
    int rc = sqlite3_prepare_v2(e->db, sql, -1, ret, NULL);

    if (rc == SQLITE_OK)
        rc = first ? sqlite3_bind_int64(*ret, 1, first) : SQLITE_OK;
    return rc == SQLITE_OK ? 0 : hy_sqlite_error(e->db, rc, e->path, err);
}

static int put_row(const struct end *to, sqlite3_stmt *in, sqlite3_stmt *out, int64_t run, struct hy_err *err)
{
    int rc = run ? sqlite3_bind_int64(out, 1, run) : sqlite3_bind_null(out, 1);

    for (int i = 1; i < sqlite3_column_count(in) && rc == SQLITE_OK; i++)
        rc = sqlite3_bind_value(out, i + 1, sqlite3_column_value(in, i));
    if (rc == SQLITE_OK) {
        sqlite3_step(out);
        rc = sqlite3_reset(out);
    }
    return rc == SQLITE_OK ? 0 : hy_sqlite_error(to->db, rc, to->path, err);
}

static int copy_rows(const struct end *from, int64_t run, const char *read, const struct end *to, int64_t new_run,
                     const char *write, struct hy_err *err)
{
    sqlite3_stmt *in = NULL, *out = NULL;
    int step = SQLITE_DONE;
    int rc = prepare(from, read, run, &in, err);

    if (rc == 0 && sqlite3_bind_parameter_count(in) > 1 &&
        sqlite3_bind_blob64(in, 2, from->spec, from->spec_len, SQLITE_STATIC) != SQLITE_OK)
        rc = hy_err_oom(err);
    if (rc == 0)
        rc = prepare(to, write, 0, &out, err);
    while (rc == 0 && (step = sqlite3_step(in)) == SQLITE_ROW)
        rc = put_row(to, in, out, new_run, err);
    if (rc == 0 && step != SQLITE_DONE)
        rc = hy_sqlite_error(from->db, step, from->path, err);
    sqlite3_finalize(in);
    sqlite3_finalize(out);
    return rc;
}

static int derive(const struct end *to, int64_t run, size_t count, struct hy_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++) {
        sqlite3_stmt *stmt = NULL;

        rc = prepare(to, derived[i], run, &stmt, err);
        if (rc == 0 && sqlite3_step(stmt) != SQLITE_DONE)
            rc = hy_sqlite_error(to->db, sqlite3_extended_errcode(to->db), to->path, err);
        sqlite3_finalize(stmt);
    }
    return rc;
}

/* `number` is the run's number in the target, 0 for the next free one. */
static int copy_run(const struct end *from, int64_t run, const struct end *to, int64_t number, struct hy_err *err)
{
    /* Left out here and not later: overwritten data can still be read in a file. */
    const char *read = from->spec ? "SELECT id, " RUN_HEAD ", ?2, ranks, kind, engine FROM runs WHERE id = ?1"
                                  : "SELECT id, " RUN_HEAD ", spec, ranks, kind, engine FROM runs WHERE id = ?1";
    int rc = copy_rows(from, run, read, to, number,
                       "INSERT INTO runs(id, " RUN_HEAD ", spec, ranks, kind, engine)"
                       " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                       err);

    if (rc < 0)
        return rc;
    number = sqlite3_last_insert_rowid(to->db);
    for (size_t i = 0; i < HY_COUNT(tables) && rc == 0; i++)
        rc = copy_rows(from, run, tables[i].read, to, number, tables[i].write, err);
    /* The scores of our own store are correct, and recomputing them takes as long as the rest. */
    return rc < 0 ? rc : derive(to, number, from->is_own ? 1 : HY_COUNT(derived), err);
}

/* ---- export -------------------------------------------------------------------- */

static int is_there(struct hy_store *s, int64_t run, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_RUN_BY_ID, "SELECT id FROM runs WHERE id = ?", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    rc = hy_query_step(&q, err);
    if (rc == 0)
        return hy_err_set(err, -ENOENT, "there is no run %lld; `hopyard ls` lists runs", (long long)run);
    return rc < 0 ? rc : 0;
}

static int write_rows(const struct end *from, int64_t run, const struct end *to, struct hy_err *err)
{
    int rc = hy_sqlite_configure(to->db, to->path, err);

    if (rc == 0) /* it gets its name when it is complete, so it needs no journal on disk */
        rc = hy_sqlite_exec(to->db, "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;", to->path, err);
    if (rc == 0)
        rc = hy_schema_migrate(to->db, to->path, err);
    if (rc == 0)
        rc = hy_sqlite_exec(to->db, "BEGIN", to->path, err);
    if (rc == 0)
        rc = copy_run(from, run, to, run, err);
    return rc < 0 ? rc : hy_sqlite_exec(to->db, "COMMIT", to->path, err);
}

/* `at` is opened, `path` is for messages. */
static int fill(struct hy_store *s, int64_t run, const char *at, const char *path, const void *spec, size_t spec_len,
                struct hy_err *err)
{
    struct end from = {s->db, s->path, true, spec, spec_len}, to = {NULL, path, true, NULL, 0};
    bool alone = sqlite3_get_autocommit(s->db); /* no turn is open: read in one transaction */
    int rc = is_there(s, run, err);

    if (rc < 0)
        return rc;
    if (alone)
        rc = hy_sqlite_exec(s->db, "BEGIN", s->path, err);
    if (rc < 0)
        return rc;
    rc = sqlite3_open_v2(at, &to.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    rc = rc == SQLITE_OK ? write_rows(&from, run, &to, err) : hy_sqlite_error(to.db, rc, path, err);
    sqlite3_close_v2(to.db);
    if (alone && hy_sqlite_exec(s->db, "COMMIT", s->path, rc < 0 ? NULL : err) < 0 && rc == 0)
        rc = -EIO;
    return rc;
}

/* Built beside the store, since SQLite must not work on a network file system, where
 * `path` may be; then copied as a plain file. */
int hy_store_snapshot(struct hy_store *s, int64_t run, const char *path, const void *spec, size_t spec_len,
                      struct hy_err *err)
{
    char name[64], at[128];
    int rc;

    snprintf(name, sizeof name, "snapshot-%lld-%d.db", (long long)run, (int)getpid());
    snprintf(at, sizeof at, "%s/%s", s->at, name);
    unlinkat(s->dir, name, 0);
    rc = fill(s, run, at, path, spec, spec_len, err);
    if (rc == 0) {
        rc = hy_copy_file(at, path);
        if (rc < 0)
            hy_err_sys(err, rc, "cannot write the snapshot '%s'", path);
    }
    unlinkat(s->dir, name, 0);
    return rc;
}

/* ---- backups beside the store ---------------------------------------------------- */

/* SQLite may work here directly; it gets its name once it is synced. Under the lock, so that the snapshot that is
 * written last has also read the store last. */
int hy_store_backup_run(struct hy_store *s, int64_t run, struct hy_err *err)
{
    hy_cleanup_free char *runs = hy_path_join(s->directory, "runs");
    hy_cleanup_free char *draft = hy_asprintf("%s/runs/%lld.db.tmp", s->directory, (long long)run);
    hy_cleanup_close int lock = -1, dir = -1, fd = -1;
    char name[40], temporary[48], at[100];
    int rc;

    if (!runs || !draft)
        return hy_err_oom(err);
    lock = hy_backup_lock(s, run, err);
    if (lock < 0)
        return lock;
    snprintf(name, sizeof name, "%lld.db", (long long)run);
    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    dir = hy_private_make_dir_at(s->dir, runs, err);
    if (dir < 0)
        return dir;
    unlinkat(dir, temporary, 0); /* left by a process that was killed */
    snprintf(at, sizeof at, "/proc/self/fd/%d/%s", dir, temporary);
    rc = fill(s, run, at, draft, NULL, 0, err);
    if (rc == 0)
        rc = fd = hy_private_open(dir, draft, O_RDONLY, err);
    if (rc >= 0 && (HY_SYS(fsync(fd)) < 0 || HY_SYS(renameat(dir, temporary, dir, name)) < 0))
        rc = hy_err_sys(err, -errno, "cannot write the snapshot '%s/%s'", runs, name);
    if (rc < 0)
        unlinkat(dir, temporary, 0);
    return rc < 0 ? rc : 0;
}

int hy_store_remove_backup(struct hy_store *s, int64_t run, struct hy_err *err)
{
    hy_cleanup_close int lock = hy_backup_lock(s, run, err);
    hy_cleanup_close int dir = HY_SYS(openat(s->dir, "runs", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    char names[2][48];

    if (lock < 0)
        return lock;
    if (dir < 0)
        return errno == ENOENT ? 0 : hy_err_sys(err, -errno, "cannot use the directory '%s/runs'", s->directory);
    snprintf(names[0], sizeof names[0], "%lld.db", (long long)run);
    snprintf(names[1], sizeof names[1], "%lld.db.tmp", (long long)run);
    for (int i = 0; i < 2; i++)
        if (HY_SYS(unlinkat(dir, names[i], 0)) < 0 && errno != ENOENT)
            return hy_err_sys(err, -errno, "cannot remove '%s/runs/%s'", s->directory, names[i]);
    return 0;
}

static int is_lost(struct hy_store *s, const char *name, struct hy_err *err)
{
    struct hy_err why = {0};
    long long run = 0;
    int end = 0, rc;

    if (sscanf(name, "%lld.db%n", &run, &end) != 1 || !end || name[end] || run <= 0)
        return 0;
    rc = is_there(s, run, &why);
    if (rc < 0 && rc != -ENOENT && err)
        *err = why;
    return rc == -ENOENT ? 1 : rc;
}

int hy_store_count_unlisted_backups(struct hy_store *s, int64_t *ret, struct hy_err *err)
{
    hy_cleanup_close int fd = HY_SYS(openat(s->dir, "runs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int64_t count = 0;
    int rc = 0;

    if (!dir && errno != ENOENT)
        return hy_err_sys(err, -errno, "cannot read the directory '%s/runs'", s->directory);
    if (dir)
        fd = -1; /* closedir closes it */
    while (rc >= 0 && dir && (entry = readdir(dir))) {
        rc = is_lost(s, entry->d_name, err);
        count += rc > 0;
    }
    if (dir)
        closedir(dir);
    if (rc >= 0)
        *ret = count;
    return rc < 0 ? rc : 0;
}

/* ---- import -------------------------------------------------------------------- */

/* Views, triggers and virtual tables would execute code of the file's author. */
static int check(const struct end *from, struct hy_err *err)
{
    int64_t good = 0;
    int rc = hy_sqlite_scalar(from->db,
                              "SELECT count(*) FILTER (WHERE type = 'table' AND name IN "
                              "('runs','trials','attempts','usage','metrics','notes',"
                              "'labels','decisions')"
                              " AND sql NOT LIKE 'create virtual%') = 8"
                              " AND count(*) FILTER (WHERE type IN ('view','trigger')) = 0 FROM sqlite_schema",
                              &good, from->path, err);

    if (rc == 0 && good)
        rc = hy_sqlite_scalar(from->db, "SELECT integrity_check = 'ok' FROM pragma_integrity_check(1)", &good,
                              from->path, err);
    return rc == 0 && !good ? -EBADMSG : rc;
}

static int known(struct hy_store *s, sqlite3_stmt *run, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_ONCE, "SELECT 1 FROM runs WHERE app_id = ? AND app_run = ?", err);

    if (rc < 0)
        return rc;
    sqlite3_bind_value(q.stmt, 1, sqlite3_column_value(run, 1));
    sqlite3_bind_value(q.stmt, 2, sqlite3_column_value(run, 2));
    return hy_query_step(&q, err);
}

/* Its logs are in this project, and its number is free. */
static int keeps_number(struct hy_store *s, sqlite3_stmt *run, struct hy_err *err)
{
    const char *logdir = (const char *)sqlite3_column_text(run, 3);
    int64_t number = sqlite3_column_int64(run, 0);
    size_t n = strlen(s->project);
    struct hy_err why = {0};
    int rc;

    if (number <= 0 || number > NUMBER_MAX || !logdir || strncmp(logdir, s->project, n) != 0 ||
        strncmp(logdir + n, "/Logs/TensorFlow/", 17) != 0)
        return 0;
    rc = is_there(s, number, &why);
    if (rc < 0 && rc != -ENOENT && err)
        *err = why;
    return rc == -ENOENT ? 1 : rc;
}

static int import_one(struct hy_store *s, const struct end *from, sqlite3_stmt *run, hy_spec_share_fn *share,
                      struct hy_err *err)
{
    struct end to = {s->db, s->path, true, NULL, 0}, source = *from;
    hy_cleanup_free void *shared = NULL;
    int64_t number = sqlite3_column_int64(run, 0);
    int rc = keeps_number(s, run, err);

    if (rc >= 0 && share) {
        const void *spec = sqlite3_column_blob(run, 4);

        if (share(spec, (size_t)sqlite3_column_bytes(run, 4), &shared, &source.spec_len) < 0)
            return hy_err_oom(err);
        source.spec = shared;
    }
    return rc < 0 ? rc : copy_run(&source, number, &to, rc > 0 ? number : 0, err);
}

static int import_all(struct hy_store *s, const struct end *from, hy_spec_share_fn *share, int64_t *ret_count,
                      struct hy_err *err)
{
    sqlite3_stmt *runs = NULL;
    int step = SQLITE_DONE;
    int rc = prepare(from, "SELECT id, app_id, app_run, logdir, spec FROM runs ORDER BY id", 0, &runs, err);

    while (rc == 0 && (step = sqlite3_step(runs)) == SQLITE_ROW) {
        rc = known(s, runs, err);
        if (rc == 0) {
            rc = import_one(s, from, runs, share, err);
            *ret_count += rc == 0;
        }
        rc = rc > 0 ? 0 : rc;
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = hy_sqlite_error(from->db, step, from->path, err);
    sqlite3_finalize(runs);
    return rc;
}

/* Whose files are trusted besides our own: root works in the stores of other users. */
static uid_t owner_of(const struct hy_store *s)
{
    struct stat st;

    return fstat(s->dir, &st) == 0 ? st.st_uid : geteuid();
}

int hy_store_import(struct hy_store *s, const char *path, hy_spec_share_fn *share, struct hy_imported *ret,
                    struct hy_err *err)
{
    struct hy_source source = {.at = path, .path = path, .owner = owner_of(s)};
    struct end from = {NULL, path, false, NULL, 0};
    struct hy_err why = {0};
    int64_t count = 0;
    int rc = hy_store_commit(s, &why);

    if (rc == 0)
        rc = hy_private_copy_of_file(&source, &from.db, &why);
    if (rc == 0)
        rc = check(&from, &why);
    if (rc == 0)
        rc = hy_store_begin(s, &why);
    if (rc == 0)
        rc = import_all(s, &from, source.is_foreign ? share : NULL, &count, &why);
    /* A constraint is violated: the file is invalid, not our store. */
    if (rc == -EBADMSG || rc == -ENODATA || rc == -EEXIST || rc == -EINVAL)
        rc = hy_err_set(&why, -EBADMSG, "'%s' is damaged or was not written by hopyard; nothing was imported", path);
    sqlite3_close_v2(from.db);
    if (rc < 0)
        hy_store_fail_turn(s, &why);
    if (hy_store_commit(s, &why) < 0 && rc == 0)
        rc = why.code;
    if (rc < 0 && err)
        *err = why;
    if (rc == 0)
        *ret = (struct hy_imported){.count = count, .is_shared = source.is_foreign && count};
    return rc;
}
