/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snapshots of a run that has ended: a complete one next to the store, in
 * case store.db is lost; and, where others cannot read the store, one with the
 * logs, without the run's environment and function.
 *
 * They are written in the thread pool over a separate connection to the store,
 * so that the loop is not blocked, however many trials there were.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "driver/run.h"

struct snapshot {
    struct driver *driver;
    uv_work_t work;
    char *project;
    int64_t run;
    char *shared; /* the path of the snapshot with the logs; NULL: none */
    uint8_t *spec;
    size_t spec_len;
    struct hy_err err;
    bool is_over;
};

/* The part of the spec that others may read. */
static int pack_shared(const Hy__RunSpec *spec, uint8_t **ret, size_t *ret_len)
{
    Hy__RunSpec copy = *spec;
    uint8_t *packed;

    copy.n_env = 0;
    copy.env = NULL;
    copy.function = (ProtobufCBinaryData){0};
    copy.shared = true;
    packed = hy_malloc(hy__run_spec__get_packed_size(&copy));
    if (!packed)
        return -ENOMEM;
    *ret_len = hy__run_spec__pack(&copy, packed);
    *ret = packed;
    return 0;
}

int hy_run_share(const void *spec, size_t n, void **ret, size_t *ret_n)
{
    Hy__RunSpec empty = HY__RUN_SPEC__INIT;
    Hy__RunSpec *read = spec ? hy__run_spec__unpack(NULL, n, spec) : NULL;
    uint8_t *packed = NULL;
    int rc = pack_shared(read ? read : &empty, &packed, ret_n);

    if (read)
        hy__run_spec__free_unpacked(read, NULL);
    if (rc == 0)
        *ret = packed;
    return rc;
}

static void write_snapshots(uv_work_t *work)
{
    struct snapshot *p = work->data;
    struct hy_store *s = NULL;
    int rc = hy_store_open(p->project, HY_STORE_READ, &s, &p->err);

    if (rc == 0)
        rc = hy_store_backup_run(s, p->run, &p->err);
    if (rc == 0 && p->shared)
        hy_store_snapshot(s, p->run, p->shared, p->spec, p->spec_len, &p->err);
    hy_store_close(s);
}

static void on_written(uv_work_t *work, int status)
{
    struct snapshot *p = work->data;

    (void)status;
    p->is_over = true;
    if (p->err.code)
        hy_run_note(p->driver, "no snapshot of this run was written: %s", p->err.text);
}

static struct snapshot *snapshot_new(struct driver *d)
{
    struct snapshot *p = hy_calloc(1, sizeof *p);

    if (!p)
        return NULL;
    *p = (struct snapshot){.driver = d, .run = d->run, .work.data = p};
    p->project = hy_strdup(hy_store_project(d->store));
    if (p->project && !hy_store_is_remote(d->store))
        return p;
    p->shared = hy_path_join(d->logdir, "run.db");
    if (!p->project || !p->shared || pack_shared(d->spec, &p->spec, &p->spec_len) < 0) {
        d->snapshot = p;
        hy_snapshot_free(d);
        return NULL;
    }
    return p;
}

void hy_snapshot_begin(struct driver *d)
{
    if (d->snapshot_begun || d->commit.is_broken)
        return;
    d->snapshot_begun = true;
    d->snapshot = snapshot_new(d);
    if (!d->snapshot)
        hy_run_note(d, "no snapshot of this run was written: out of memory");
    else if (uv_queue_work(&d->loop, &d->snapshot->work, write_snapshots, on_written) < 0)
        d->snapshot->is_over = true;
}

bool hy_snapshot_is_over(const struct driver *d)
{
    return !d->snapshot || d->snapshot->is_over;
}

void hy_snapshot_free(struct driver *d)
{
    struct snapshot *p = d->snapshot;

    if (!p)
        return;
    free(p->project);
    free(p->shared);
    free(p->spec);
    free(p);
    d->snapshot = NULL;
}
