/* SPDX-License-Identifier: Apache-2.0 */
#include "store/internal.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- error messages ------------------------------------------------------- */

static int last_errno(sqlite3_file *file)
{
    int why = 0;

    if (file && file->pMethods)
        file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &why);
    return why;
}

/* The errno behind an SQLITE_IOERR. SQLite keeps it in the connection only for some
 * failures; for the others it is in the store's file handle or that of the -wal. */
static int errno_of(sqlite3 *db)
{
    sqlite3_file *file = NULL, *wal = NULL;
    int why = db ? sqlite3_system_errno(db) : 0;

    if (!db || why)
        return why;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal);
    why = last_errno(wal);
    return why ? why : last_errno(file);
}

static int io_sentence(sqlite3 *db, int rc, const char *path, struct hy_err *err)
{
    int why = errno_of(db);

    if ((rc & 0xff) == SQLITE_FULL || why == ENOSPC || why == EDQUOT || why == EFBIG)
        return hy_err_set(err, -ENOSPC, "disk full: cannot write '%s'; free some space", path);
    if (rc == SQLITE_IOERR_NOMEM)
        return hy_err_oom(err);
    if (why == EROFS)
        return hy_err_set(err, -EROFS, "the file system of '%s' is read-only; check the disk, and mount it for writing",
                          path);
    if (why == EACCES || why == EPERM)
        return hy_err_set(err, -EACCES,
                          "no permission to read or write '%s': change its permissions, or set "
                          "HOPYARD_PROJECT to your own directory",
                          path);
    return hy_err_set(err, -EIO, "cannot read or write '%s': %s (%s); check the disk", path,
                      why ? strerror(why) : "no reason given", sqlite3_errstr(rc));
}

int hy_sqlite_error(sqlite3 *db, int rc, const char *path, struct hy_err *err)
{
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        return hy_err_oom(err);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return hy_err_set(err, -EBUSY,
                          "the store '%s' is in use: another process has been writing to it for too long; "
                          "try again later",
                          path);
    case SQLITE_NOTADB:
        return hy_recovery_damaged_error(path, "it is not a hopyard store", err);
    case SQLITE_ERROR: /* our statements are valid: only a wrong schema makes one fail */
    case SQLITE_CORRUPT:
        return hy_recovery_damaged_error(path, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc), err);
    case SQLITE_READONLY:
        if (errno_of(db) == EROFS)
            return io_sentence(db, rc, path, err);
        /* fall through */
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return hy_err_set(err, -EACCES, "the store '%s' is read-only: make it and its directory writable", path);
    case SQLITE_CONSTRAINT:
        if (rc == SQLITE_CONSTRAINT_UNIQUE || rc == SQLITE_CONSTRAINT_PRIMARYKEY || rc == SQLITE_CONSTRAINT_ROWID)
            return hy_err_set(err, -EEXIST, "the store '%s' has that entry already", path);
        return hy_err_set(err, -EINVAL, "the store '%s' refuses a value: %s", path, db ? sqlite3_errmsg(db) : "");
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        return io_sentence(db, rc, path, err);
    default:
        return hy_err_set(err, -EIO, "the store '%s' failed: %s", path, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
    }
}

int hy_sqlite_exec(sqlite3 *db, const char *sql, const char *path, struct hy_err *err)
{
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? 0 : hy_sqlite_error(db, rc, path, err);
}

int hy_sqlite_scalar(sqlite3 *db, const char *sql, int64_t *ret, const char *path, struct hy_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    int code = 0;

    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        *ret = sqlite3_column_int64(stmt, 0);
    else
        code = hy_sqlite_error(db, rc == SQLITE_DONE ? SQLITE_CORRUPT : rc, path, err);
    sqlite3_finalize(stmt);
    return code;
}

/* ---- one use of a statement ------------------------------------------------- */

/* A write that failed for lack of memory or disk fails the turn: half a turn must
 * never be committed. Duplicate keys do not fail it. */
static int failed(struct hy_query *q, int rc, struct hy_err *err)
{
    struct hy_err why = {0};
    int code = hy_sqlite_error(q->s->db, rc, q->s->path, &why);

    if (err)
        *err = why;
    if (q->s->in_turn && (rc & 0xff) != SQLITE_CONSTRAINT &&
        (!q->stmt || !sqlite3_stmt_readonly(q->stmt) || sqlite3_get_autocommit(q->s->db)))
        hy_store_fail_turn(q->s, &why);
    return code;
}

int hy_query_open(struct hy_query *q, struct hy_store *s, enum hy_sql which, const char *sql, struct hy_err *err)
{
    sqlite3_stmt **slot = which == HY_SQL_ONCE ? NULL : &s->kept[which];
    int rc = SQLITE_OK;

    *q = (struct hy_query){.s = s, .kept = slot && (!*slot || !sqlite3_stmt_busy(*slot))};
    if (!q->kept) {
        rc = sqlite3_prepare_v2(s->db, sql, -1, &q->stmt, NULL);
    } else {
        if (!*slot)
            rc = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, slot, NULL);
        q->stmt = *slot;
    }
    return rc == SQLITE_OK ? 0 : failed(q, rc, err);
}

int hy_query_change(struct hy_query *q, struct hy_store *s, enum hy_sql which, const char *sql, struct hy_err *err)
{
    int rc;

    *q = (struct hy_query){.s = s};
    rc = hy_store_begin(s, err);
    return rc < 0 ? rc : hy_query_open(q, s, which, sql, err);
}

void hy_query_done(struct hy_query *q)
{
    if (!q->stmt)
        return;
    if (q->kept) {
        sqlite3_reset(q->stmt);
        sqlite3_clear_bindings(q->stmt);
    } else {
        sqlite3_finalize(q->stmt);
    }
    q->stmt = NULL;
}

static void bound(struct hy_query *q, int rc)
{
    if (rc != SQLITE_OK && q->rc == SQLITE_OK)
        q->rc = rc;
}

void hy_query_i64(struct hy_query *q, int64_t value)
{
    bound(q, sqlite3_bind_int64(q->stmt, ++q->bound, value));
}

void hy_query_text(struct hy_query *q, const char *text)
{
    bound(q, text ? sqlite3_bind_text64(q->stmt, ++q->bound, text, strlen(text), SQLITE_STATIC, SQLITE_UTF8)
                  : sqlite3_bind_null(q->stmt, ++q->bound));
}

void hy_query_blob(struct hy_query *q, const void *bytes, size_t n)
{
    bound(q, n ? sqlite3_bind_blob64(q->stmt, ++q->bound, bytes, n, SQLITE_STATIC)
               : sqlite3_bind_null(q->stmt, ++q->bound));
}

void hy_query_double(struct hy_query *q, bool there, double value)
{
    if (there && isnan(value)) /* SQLite would store NULL, which means "no value" */
        hy_query_text(q, "NaN");
    else
        bound(q, there ? sqlite3_bind_double(q->stmt, ++q->bound, value) : sqlite3_bind_null(q->stmt, ++q->bound));
}

int hy_query_step(struct hy_query *q, struct hy_err *err)
{
    int rc = q->rc == SQLITE_OK ? sqlite3_step(q->stmt) : q->rc;

    if (rc == SQLITE_ROW)
        return 1;
    return rc == SQLITE_DONE ? 0 : failed(q, rc, err);
}

int hy_query_run(struct hy_query *q, struct hy_err *err)
{
    int rc;

    do
        rc = hy_query_step(q, err);
    while (rc > 0);
    return rc;
}

int64_t hy_column_i64(struct hy_query *q, int column)
{
    return sqlite3_column_int64(q->stmt, column);
}

const char *hy_column_text(struct hy_query *q, int column)
{
    int type = sqlite3_column_type(q->stmt, column);
    const char *text = (const char *)sqlite3_column_text(q->stmt, column);

    if (!text && type != SQLITE_NULL)
        bound(q, SQLITE_NOMEM);
    return text;
}

const void *hy_column_blob(struct hy_query *q, int column, size_t *ret_n)
{
    int type = sqlite3_column_type(q->stmt, column);
    const void *bytes = sqlite3_column_blob(q->stmt, column);

    *ret_n = (size_t)sqlite3_column_bytes(q->stmt, column);
    if (!bytes && type != SQLITE_NULL && *ret_n)
        bound(q, SQLITE_NOMEM);
    return bytes;
}

int hy_query_read(struct hy_query *q, struct hy_err *err)
{
    return q->rc == SQLITE_OK ? 0 : failed(q, q->rc, err);
}

double hy_column_double(struct hy_query *q, int column)
{
    return sqlite3_column_type(q->stmt, column) == SQLITE_TEXT ? NAN : sqlite3_column_double(q->stmt, column);
}
