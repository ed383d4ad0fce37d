/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: a store file with one run in it, and the way back.
 *
 * Rows are read from one connection and written through the other. ATTACH would
 * be shorter, but it is not to be had in the middle of a turn, nor from a
 * read-only connection, and would trust the other file's schema.
 */
#include "store/store_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define RUN_COLUMNS                                                                                          \
    "name, app_id, app_run, logdir, command, metric, maximize, seed, versions, git, state, message,"         \
    " created, ended, total, spec, ranks"

/* The first column is the run, which gets another number on the way. */
static const struct {
    const char *read, *write;
} tables[] = {
    {"SELECT run, number, params, dir, state, value, message, attempts, started, ended, asked_seq, told_seq, "
     "score"
     " FROM trials WHERE run = ?",
     "INSERT INTO trials(run, number, params, dir, state, value, message, attempts, started, ended, "
     "asked_seq,"
     " told_seq, score) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"},
    {"SELECT run, trial, number, agent, host, state, exit_code, message, started, ended, cpu_ms, peak_memory,"
     " detail FROM attempts WHERE run = ?",
     "INSERT INTO attempts(run, trial, number, agent, host, state, exit_code, message, started, ended, "
     "cpu_ms,"
     " peak_memory, detail) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"},
    {"SELECT run, trial, seq, attempt, step, name, value, time FROM metrics WHERE run = ?",
     "INSERT INTO metrics(run, trial, seq, attempt, step, name, value, time) VALUES (?,?,?,?,?,?,?,?)"},
    {"SELECT run, seq, time, text FROM notes WHERE run = ?", "INSERT INTO notes(run, seq, time, text) VALUES (?,?,?,?)"},
};

/* Made from the rows, so that a snapshot that lies about them does no harm. */
static const char *const derived[] = {
    "INSERT INTO tallies SELECT ?1, count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 2),"
    " count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4) FROM trials WHERE run = ?1",
    "UPDATE trials SET score = CASE WHEN state = 2 AND typeof(value) = 'real' THEN"
    " CASE (SELECT maximize FROM runs WHERE id = ?1) WHEN 0 THEN value ELSE -value END END WHERE run = ?1",
};

/* One end of a transfer, and how its file is called in a sentence. */
struct end {
    sqlite3 *db;
    const char *path;
};

static int prepare(const struct end *e, const char *sql, int64_t first, sqlite3_stmt **ret,
                   struct hy_err *err)
{
    int rc = sqlite3_prepare_v2(e->db, sql, -1, ret, NULL);

    if (rc == SQLITE_OK)
        rc = first ? sqlite3_bind_int64(*ret, 1, first) : SQLITE_OK;
    return rc == SQLITE_OK ? 0 : hy_store_sentence(e->db, rc, e->path, err);
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
    return rc == SQLITE_OK ? 0 : hy_store_sentence(to->db, rc, to->path, err);
}

static int copy_rows(const struct end *from, int64_t run, const char *read, const struct end *to,
                     int64_t new_run, const char *write, struct hy_err *err)
{
    sqlite3_stmt *in = NULL, *out = NULL;
    int step = SQLITE_DONE;
    int rc = prepare(from, read, run, &in, err);

    if (rc == 0)
        rc = prepare(to, write, 0, &out, err);
    while (rc == 0 && (step = sqlite3_step(in)) == SQLITE_ROW)
        rc = put_row(to, in, out, new_run, err);
    if (rc == 0 && step != SQLITE_DONE)
        rc = hy_store_sentence(from->db, step, from->path, err);
    sqlite3_finalize(in);
    sqlite3_finalize(out);
    return rc;
}

static int derive(const struct end *to, int64_t run, struct hy_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < HY_COUNT(derived) && rc == 0; i++) {
        sqlite3_stmt *stmt = NULL;

        rc = prepare(to, derived[i], run, &stmt, err);
        if (rc == 0 && sqlite3_step(stmt) != SQLITE_DONE)
            rc = hy_store_sentence(to->db, sqlite3_extended_errcode(to->db), to->path, err);
        sqlite3_finalize(stmt);
    }
    return rc;
}

/* `number` is the run's number there, 0 for the next free one. */
static int copy_run(const struct end *from, int64_t run, const struct end *to, int64_t number,
                    struct hy_err *err)
{
    int rc =
        copy_rows(from, run, "SELECT id, " RUN_COLUMNS " FROM runs WHERE id = ?", to, number,
                  "INSERT INTO runs(id, " RUN_COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", err);

    if (rc < 0)
        return rc;
    number = sqlite3_last_insert_rowid(to->db);
    for (size_t i = 0; i < HY_COUNT(tables) && rc == 0; i++)
        rc = copy_rows(from, run, tables[i].read, to, number, tables[i].write, err);
    return rc < 0 ? rc : derive(to, number, err);
}

/* ---- out ----------------------------------------------------------------------- */

static int is_there(struct hy_store *s, int64_t run, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_RUN_BY_ID, "SELECT id FROM runs WHERE id = ?", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    rc = hy_query_step(&q, err);
    if (rc == 0)
        return hy_err_set(err, -ENOENT, "there is no run %lld; `hopyard ls` lists those there are",
                          (long long)run);
    return rc < 0 ? rc : 0;
}

static int fill(struct hy_store *s, int64_t run, const char *path, struct hy_err *err)
{
    struct end from = {s->db, s->path}, to = {NULL, path};
    int rc =
        sqlite3_open_v2(path, &to.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);

    rc = rc == SQLITE_OK ? hy_store_settle(to.db, path, err) : hy_store_sentence(to.db, rc, path, err);
    if (rc == 0) /* it is whole when it gets its name, so it needs no journal on the disk */
        rc = hy_store_exec(to.db, "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;", path, err);
    if (rc == 0)
        rc = hy_schema_migrate(to.db, path, err);
    if (rc == 0)
        rc = hy_store_exec(to.db, "BEGIN", path, err);
    if (rc == 0)
        rc = copy_run(&from, run, &to, run, err);
    if (rc == 0)
        rc = hy_store_exec(to.db, "COMMIT", path, err);
    sqlite3_close_v2(to.db);
    return rc;
}

/* Built beside the store, since SQLite must not work on a network file system,
 * where `path` may well be; then copied as a plain file. */
int hy_store_snapshot(struct hy_store *s, int64_t run, const char *path, struct hy_err *err)
{
    hy_cleanup_free char *draft =
        hy_asprintf("%s/snapshot-%lld-%d.db", s->folder, (long long)run, (int)getpid());
    int rc;

    if (!draft)
        return hy_err_set(err, -ENOMEM, "out of memory");
    rc = is_there(s, run, err);
    if (rc < 0)
        return rc;
    unlink(draft);
    rc = fill(s, run, draft, err);
    if (rc == 0) {
        rc = hy_copy_file(draft, path);
        if (rc < 0)
            hy_err_sys(err, rc, "cannot write the snapshot '%s'", path);
    }
    unlink(draft);
    return rc;
}

/* ---- in ------------------------------------------------------------------------ */

/* Tables that are views, triggers or virtual would run what their maker wrote. */
static int check(const struct end *from, struct hy_err *err)
{
    int64_t good = 0;
    int rc = hy_store_scalar(
        from->db,
        "SELECT count(*) FILTER (WHERE type = 'table' AND name IN ('runs','trials','attempts','metrics','notes')"
        " AND sql NOT LIKE 'create virtual%') = 5"
        " AND count(*) FILTER (WHERE type IN ('view','trigger')) = 0 FROM sqlite_schema",
        &good, from->path, err);

    if (rc == 0 && good)
        rc = hy_store_scalar(from->db, "SELECT integrity_check = 'ok' FROM pragma_integrity_check(1)", &good,
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

static int import_all(struct hy_store *s, const struct end *from, int64_t *ret_count, struct hy_err *err)
{
    struct end to = {s->db, s->path};
    sqlite3_stmt *runs = NULL;
    int step = SQLITE_DONE;
    int rc = prepare(from, "SELECT id, app_id, app_run FROM runs ORDER BY id", 0, &runs, err);

    while (rc == 0 && (step = sqlite3_step(runs)) == SQLITE_ROW) {
        rc = known(s, runs, err);
        if (rc == 0) {
            rc = copy_run(from, sqlite3_column_int64(runs, 0), &to, 0, err);
            *ret_count += rc == 0;
        }
        rc = rc > 0 ? 0 : rc;
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = hy_store_sentence(from->db, step, from->path, err);
    sqlite3_finalize(runs);
    return rc;
}

int hy_store_import(struct hy_store *s, const char *path, int64_t *ret_count, struct hy_err *err)
{
    struct end from = {NULL, path};
    struct hy_err why = {0};
    int64_t count = 0;
    int rc = hy_store_commit(s, &why);

    if (rc == 0)
        rc = hy_copy_open_file(path, &from.db, &why);
    if (rc == 0)
        rc = check(&from, &why);
    if (rc == 0)
        rc = hy_store_begin(s, &why);
    if (rc == 0)
        rc = import_all(s, &from, &count, &why);
    /* What the file holds breaks a rule of the tables: that is the file's fault. */
    if (rc == -EBADMSG || rc == -ENODATA || rc == -EEXIST || rc == -EINVAL)
        rc = hy_err_set(&why, -EBADMSG, "'%s' is damaged or was not written by hopyard; nothing was imported",
                        path);
    sqlite3_close_v2(from.db);
    if (rc < 0)
        hy_store_doom(s, &why);
    if (hy_store_commit(s, &why) < 0 && rc == 0)
        rc = why.code;
    if (rc < 0 && err)
        *err = why;
    if (rc == 0 && ret_count)
        *ret_count = count;
    return rc;
}
