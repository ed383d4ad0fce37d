/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A project on HDFS: the run's directory is local, and its mirror (src/fs/fs.h)
 * is on HDFS. A thread of the pool copies changes every few seconds; when the
 * run has ended, it continues until all files are copied, and only then the
 * driver ends.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "driver/run.h"
#include "fs/fs.h"

#define SYNC_EVERY_MS 3000
#define GIVE_UP_MS (10 * 60 * 1000) /* after the end of the run */

struct hdfs_mirror {
    struct driver *driver;
    struct hy_fs_mirror *mirror;
    char *url; /* of the run's directory */
    uv_work_t work;
    struct hy_err err; /* of the current or last sync */
    int rc;
    bool is_busy, is_last, is_complete;
    int64_t sync_at, give_up_at;
    int noted_rc; /* the error that was noted last; 0: none */
};

static atomic_bool should_stop;

static int stop_waiting(void)
{
    return atomic_load(&should_stop);
}

/* The token is a secret of the run's agents. */
static bool is_private(const char *path)
{
    return strcmp(path, ".token") == 0;
}

static void sync_files(uv_work_t *work)
{
    struct hdfs_mirror *r = work->data;

    r->rc = hy_fs_mirror_sync(r->mirror, r->is_last, &r->err);
}

static void note_result(struct hdfs_mirror *r)
{
    if (r->rc == r->noted_rc)
        return;
    if (r->rc < 0)
        hy_run_note(r->driver, "%s; retrying; the missing files are in '%s'", r->err.text, r->driver->logdir);
    else
        hy_run_note(r->driver, "%s is up to date again", r->url);
    r->noted_rc = r->rc;
}

static void on_synced(uv_work_t *work, int status)
{
    struct hdfs_mirror *r = work->data;

    (void)status;
    r->is_busy = false;
    r->sync_at = hy_clock_ms() + SYNC_EVERY_MS;
    note_result(r);
    if (!r->is_last)
        return;
    r->is_complete = r->rc == 0;
    if (!r->is_complete && (r->rc == -ENAMETOOLONG || hy_clock_ms() > r->give_up_at)) {
        r->is_complete = true;
        hy_run_note(r->driver, "%s is incomplete; run `hopyard fs cp -r -f %s/. %s` to copy the missing files", r->url,
                    r->driver->logdir, r->url);
    }
}

static void start_sync(struct hdfs_mirror *r)
{
    r->err.code = 0;
    if (uv_queue_work(&r->driver->loop, &r->work, sync_files, on_synced) == 0)
        r->is_busy = true;
}

void hy_mirror_tick(struct driver *d, int64_t now)
{
    struct hdfs_mirror *r = d->mirror;

    if (r && !r->is_busy && !r->is_complete && now >= r->sync_at)
        start_sync(r);
}

bool hy_mirror_is_complete(struct driver *d)
{
    struct hdfs_mirror *r = d->mirror;

    if (!r || r->is_complete)
        return true;
    if (!r->give_up_at)
        r->give_up_at = hy_clock_ms() + GIVE_UP_MS;
    if (!r->is_busy && !r->is_last) { /* the first call: a sync in progress may miss the last files */
        r->is_last = true;
        start_sync(r);
    }
    return false;
}

const char *hy_mirror_logdir(const struct driver *d)
{
    return d->mirror ? d->mirror->url : d->logdir;
}

/* As in Hopsworks. */
static int make_directories(const char *url, struct hy_err *err)
{
    static const char *const names[] = {"Resources", "Logs", "Jupyter", "Models"};

    for (size_t i = 0; i < HY_COUNT(names); i++) {
        hy_cleanup_free char *directory = hy_fs_join(url, names[i]);
        int rc = directory ? hy_fs_mkdirs(directory, 0777, err) : hy_err_oom(err);

        if (rc < 0)
            return rc;
    }
    return 0;
}

int hy_mirror_open(struct driver *d, struct hy_err *err)
{
    const char *url = hy_store_url(d->store);
    struct hdfs_mirror *r;
    int rc;

    if (!url)
        return 0;
    rc = make_directories(url, err);
    if (rc < 0)
        return rc;
    r = hy_calloc(1, sizeof(*r));
    if (r) {
        r->driver = d;
        r->work.data = r;
        r->url = hy_store_display_path(d->store, d->logdir);
        r->mirror = r->url ? hy_fs_mirror_new(d->logdir, r->url, is_private) : NULL;
    }
    d->mirror = r;
    if (!r || !r->mirror)
        return hy_err_oom(err);
    hy_fs_on_wait(stop_waiting);
    return 0;
}

void hy_mirror_stop(struct driver *d)
{
    (void)d;
    atomic_store(&should_stop, true);
}

void hy_mirror_free(struct driver *d)
{
    struct hdfs_mirror *r = d->mirror;

    if (!r)
        return;
    hy_fs_mirror_free(r->mirror);
    free(r->url);
    free(r);
    d->mirror = NULL;
}
