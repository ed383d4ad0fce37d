/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private copies. A reader needs one where it cannot read in place: the directory
 * is not writable and the -wal and -shm files are missing (a read-only file system,
 * a store copied without them), or the store has an older format. An import works
 * on one, since an unknown file may need recovery, migration and a check before it
 * is trusted.
 *
 * SQLite's `immutable` would need no copy, but then a writer that starts meanwhile
 * causes wrong results, and an existing -wal is not read.
 */
#include "store/internal.h"

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

static int copy_bytes(int from, int to)
{
    for (;;) {
        char chunk[16384];
        ssize_t n = HY_SYS(read(from, chunk, sizeof chunk));
        int rc;

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        rc = hy_write_all(to, chunk, (size_t)n);
        if (rc < 0)
            return rc;
    }
}

bool hy_file_is_own(const struct stat *st, uid_t owner)
{
    return S_ISREG(st->st_mode) && (st->st_uid == geteuid() || st->st_uid == owner) &&
           !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/* `ret_from`: of the file that was read, even if it has been replaced since. */
static int copy_file(const char *from, const char *to, struct stat *ret_from)
{
    hy_cleanup_free char *temporary = hy_asprintf("%s.%d.tmp", to, (int)getpid());
    hy_cleanup_close int in = -1;
    hy_cleanup_close int out = -1;
    int rc;

    if (!temporary)
        return -ENOMEM;
    in = HY_SYS(open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (in < 0 || HY_SYS(fstat(in, ret_from)) < 0)
        return -errno;
    unlink(temporary); /* other users may be able to write there: an existing file is not written to */
    out = HY_SYS(open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (out < 0)
        return -errno;
    rc = copy_bytes(in, out);
    if (rc == 0 && HY_SYS(fsync(out)) < 0)
        rc = -errno;
    if (rc == 0 && HY_SYS(rename(temporary, to)) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(temporary);
    return rc;
}

int hy_copy_file(const char *from, const char *to)
{
    struct stat st;

    return copy_file(from, to, &st);
}

/* Changes when the file is written to; all zero when it is missing. */
struct look {
    ino_t inode;
    off_t size;
    struct timespec changed;
};

static void look_at(const char *path, struct look *ret)
{
    struct stat st;

    memset(ret, 0, sizeof *ret);
    if (stat(path, &st) == 0) {
        ret->inode = st.st_ino;
        ret->size = st.st_size;
        ret->changed = st.st_mtim;
    }
}

static int copy_part(struct hy_source *from, const char *at, const char *to)
{
    struct stat st;
    int rc = copy_file(at, to, &st);

    if (rc == 0)
        from->is_foreign |= !hy_file_is_own(&st, from->owner);
    return rc;
}

/* -EAGAIN when one was written meanwhile: the two files may be inconsistent. */
static int copy_pair(struct hy_source *from, const char *wal, const char *to, const char *to_wal)
{
    struct look before[2], after[2];
    int rc;

    from->is_foreign = false;
    look_at(from->at, &before[0]);
    look_at(wal, &before[1]);
    rc = copy_part(from, from->at, to);
    if (rc == 0 && before[1].inode)
        rc = copy_part(from, wal, to_wal);
    look_at(from->at, &after[0]);
    look_at(wal, &after[1]);
    return memcmp(before, after, sizeof before) == 0 ? rc : -EAGAIN;
}

static int copy_store(struct hy_source *from, const char *directory, char **ret)
{
    hy_cleanup_free char *to = hy_path_join(directory, "copy.db");
    hy_cleanup_free char *to_wal = hy_path_join(directory, "copy.db-wal");
    hy_cleanup_free char *wal = hy_asprintf("%s-wal", from->at);
    int rc = -EAGAIN;

    if (!to || !to_wal || !wal)
        return -ENOMEM;
    for (int i = 0; i < 10 && rc == -EAGAIN; i++) {
        unlink(to_wal);
        rc = copy_pair(from, wal, to, to_wal);
    }
    if (rc == 0)
        *ret = hy_take(to);
    return rc;
}

static int settle_copy(sqlite3 *db, const char *path, struct hy_err *err)
{
    int version = 0;
    int rc = hy_sqlite_configure(db, path, err);

    /* EXCLUSIVE needs no -shm file; and the copy need not survive the process. */
    if (rc == 0)
        rc = hy_sqlite_exec(db, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF;", path, err);
    if (rc == 0)
        rc = hy_schema_version(db, path, &version, err);
    if (rc == 0 && version == 0)
        rc = hy_err_set(err, -ENODATA, "'%s' is empty", path);
    return rc < 0 ? rc : hy_schema_migrate(db, path, err);
}

static int open_copy(const char *copy, const char *path, sqlite3 **ret, struct hy_err *err)
{
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(copy, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

    rc = rc == SQLITE_OK ? settle_copy(db, path, err) : hy_sqlite_error(db, rc, path, err);
    if (rc < 0) {
        sqlite3_close_v2(db);
        return rc;
    }
    *ret = db;
    return 0;
}

int hy_private_copy_of_file(struct hy_source *from, sqlite3 **ret, struct hy_err *err)
{
    const char *base = getenv("TMPDIR");
    hy_cleanup_free char *directory = hy_asprintf("%s/hopyard-XXXXXX", base && *base == '/' ? base : "/tmp");
    hy_cleanup_free char *copy = NULL;
    int rc;

    if (!directory)
        return hy_err_oom(err);
    if (!mkdtemp(directory))
        return hy_err_sys(err, -errno, "cannot make a directory in '%s' for a copy of '%s'", base ? base : "/tmp",
                          from->path);
    rc = copy_store(from, directory, &copy);
    if (rc == -EAGAIN)
        hy_err_set(err, rc, "'%s' changes while it is copied; try again later", from->path);
    else if (rc < 0)
        hy_err_sys(err, rc, "cannot copy '%s' to read it", from->path);
    else
        rc = open_copy(copy, from->path, ret, err);
    hy_remove_tree(directory); /* SQLite has its files open by now */
    return rc;
}

int hy_private_copy_of_db(sqlite3 *from, const char *path, sqlite3 **ret, struct hy_err *err)
{
    sqlite3_backup *backup;
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

    if (rc == SQLITE_OK) {
        backup = sqlite3_backup_init(db, "main", from, "main");
        if (backup)
            sqlite3_backup_step(backup, -1);
        rc = backup ? sqlite3_backup_finish(backup) : sqlite3_errcode(db);
    }
    rc = rc == SQLITE_OK ? settle_copy(db, path, err) : hy_sqlite_error(db, rc, path, err);
    if (rc < 0) {
        sqlite3_close_v2(db);
        return rc;
    }
    *ret = db;
    return 0;
}
