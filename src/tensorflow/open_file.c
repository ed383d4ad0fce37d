/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"
#include "fs/fs.h"
#include "tensorflow/files.h"

/* ---- read -------------------------------------------------------------------------- */

struct reader {
    char *url;
    pthread_rwlock_t lock; /* shared by reads; exclusive while `file` is replaced by a longer one */
    struct hy_fs_file *file;
    atomic_bool has_ended; /* a read has returned the end of the file */
};

void hy_files_open_to_read(const TF_Filesystem *fs, const char *url, TF_RandomAccessFile *file, TF_Status *status)
{
    struct hy_err err = {0};
    hy_cleanup_free struct reader *r = hy_calloc(1, sizeof(*r));
    hy_cleanup_free char *copy = hy_strdup(url);
    int rc;

    (void)fs;
    rc = r && copy ? hy_fs_open(url, HY_FS_READ, &r->file, &err) : hy_err_oom(&err);
    if (!hy_files_set_status(status, rc, &err))
        return;
    pthread_rwlock_init(&r->lock, NULL);
    r->url = hy_take(copy);
    file->plugin_file = hy_take(r);
}

static void read_cleanup(TF_RandomAccessFile *file)
{
    struct reader *r = file->plugin_file;

    (void)hy_fs_close(r->file, NULL); /* cannot lose data: opened for reading */
    pthread_rwlock_destroy(&r->lock);
    free(r->url);
    free(r);
}

static int64_t read_at(struct reader *r, uint64_t offset, size_t n, char *buffer, struct hy_err *err)
{
    pthread_rwlock_rdlock(&r->lock);
    const int64_t got = hy_fs_pread(r->file, buffer, n, offset, err);
    pthread_rwlock_unlock(&r->lock);
    return got;
}

/* Replaces the open file if it has grown. A deleted file has not. */
static int reopen_if_grown(struct reader *r, struct hy_err *err)
{
    struct hy_fs_file *other;
    const int rc = hy_fs_open(r->url, HY_FS_READ, &other, err);

    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    pthread_rwlock_wrlock(&r->lock);
    if (hy_fs_size(other) > hy_fs_size(r->file)) {
        struct hy_fs_file *shorter = r->file;

        r->file = other;
        other = shorter;
    }
    pthread_rwlock_unlock(&r->lock);
    (void)hy_fs_close(other, NULL);
    return 0;
}

/*
 * An open HDFS file keeps the length that it had when it was opened, but TensorBoard keeps event files open and reads
 * past their end as they grow. So the second read that reaches the end reopens the file; reading a file once does not
 * pay for that.
 */
static int64_t read_to_end(struct reader *r, uint64_t offset, size_t n, char *buffer, struct hy_err *err)
{
    const int64_t got = read_at(r, offset, n, buffer, err);

    if (got < 0 || (size_t)got == n || !atomic_exchange(&r->has_ended, true))
        return got;
    const int rc = reopen_if_grown(r, err);
    return rc < 0 ? rc : read_at(r, offset, n, buffer, err);
}

static int64_t read_read(const TF_RandomAccessFile *file, uint64_t offset, size_t n, char *buffer, TF_Status *status)
{
    struct hy_err err = {0};
    const int64_t got = read_to_end(file->plugin_file, offset, n, buffer, &err);

    if (!hy_files_set_status(status, got, &err))
        return -1;
    if ((size_t)got < n)
        hy_tf.SetStatus(status, TF_OUT_OF_RANGE, "end of file");
    return got;
}

const TF_RandomAccessFileOps hy_files_read_ops = {.cleanup = read_cleanup, .read = read_read};

/* ---- write ------------------------------------------------------------------------- */

struct writer {
    struct hy_fs_file *file; /* NULL: closed */
};

static void open_writer(const char *url, enum hy_fs_open_mode mode, TF_WritableFile *file, TF_Status *status)
{
    struct hy_err err = {0};
    hy_cleanup_free struct writer *w = hy_calloc(1, sizeof(*w));
    const int rc = w ? hy_fs_open(url, mode, &w->file, &err) : hy_err_oom(&err);

    if (hy_files_set_status(status, rc, &err))
        file->plugin_file = hy_take(w);
}

void hy_files_open_to_write(const TF_Filesystem *fs, const char *url, TF_WritableFile *file, TF_Status *status)
{
    (void)fs;
    open_writer(url, HY_FS_WRITE, file, status);
}

void hy_files_open_to_append(const TF_Filesystem *fs, const char *url, TF_WritableFile *file, TF_Status *status)
{
    (void)fs;
    open_writer(url, HY_FS_APPEND, file, status);
}

/* The open file, or NULL with an error in `status`. */
static struct hy_fs_file *open_file(const TF_WritableFile *file, TF_Status *status)
{
    const struct writer *w = file->plugin_file;

    if (!w->file)
        hy_tf.SetStatus(status, TF_FAILED_PRECONDITION, "the file is already closed");
    return w->file;
}

static void write_append(const TF_WritableFile *file, const char *buffer, size_t n, TF_Status *status)
{
    struct hy_err err = {0};
    struct hy_fs_file *f = open_file(file, status);

    if (f)
        hy_files_set_status(status, hy_fs_write(f, buffer, n, &err), &err);
}

static int64_t write_tell(const TF_WritableFile *file, TF_Status *status)
{
    const struct hy_fs_file *f = open_file(file, status);

    return f && hy_files_set_status(status, 0, NULL) ? (int64_t)hy_fs_size(f) : -1;
}

static void flush(const TF_WritableFile *file, bool to_disk, TF_Status *status)
{
    struct hy_err err = {0};
    struct hy_fs_file *f = open_file(file, status);

    if (f)
        hy_files_set_status(status, hy_fs_flush(f, to_disk, &err), &err);
}

static void write_flush(const TF_WritableFile *file, TF_Status *status)
{
    flush(file, false, status);
}

static void write_sync(const TF_WritableFile *file, TF_Status *status)
{
    flush(file, true, status);
}

static void write_close(const TF_WritableFile *file, TF_Status *status)
{
    struct hy_err err = {0};
    struct writer *w = file->plugin_file;

    if (open_file(file, status))
        hy_files_set_status(status, hy_fs_close(hy_take(w->file), &err), &err);
}

/* Closes the file if it is open, as for local files; only `close` can report an error. */
static void write_cleanup(TF_WritableFile *file)
{
    struct writer *w = file->plugin_file;

    (void)hy_fs_close(w->file, NULL);
    free(w);
}

const TF_WritableFileOps hy_files_write_ops = {
    .cleanup = write_cleanup,
    .append = write_append,
    .tell = write_tell,
    .flush = write_flush,
    .sync = write_sync,
    .close = write_close,
};
