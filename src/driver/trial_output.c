/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard output and files of trials, written to the run's directory.
 *
 * Each stream from an agent is one file, what a trial prints, or many files one
 * after the other: those that a trial has left on a host that does not share
 * files. At most one write per stream is in progress, in libuv's thread pool;
 * data that arrives meanwhile is buffered, and the agent gets credit only for
 * what is written. So a slow disk slows down the trial that prints, and nothing
 * else, in bounded memory. So does a full disk: what could not be written or
 * opened is retried every second (store_commit.c: stalls).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "driver/run.h"
#include "wire/wire.h"

#define FILES_A_TURN 64 /* that one output may create: each may need many directories */

struct output {
    struct driver *driver;
    struct agent *agent;   /* NULL: the attempt has ended */
    struct trial *trial;
    struct hy_list link;   /* in trial->outputs */
    uint32_t stream;
    int fd;                /* -1: data is dropped */
    uint64_t written;
    struct hy_buf gathered;
    struct hy_buf in_flight;
    bool writing;
    bool is_stalled;       /* counts in driver.stalls.count */
    bool is_unopened;      /* its file could not be created yet, for lack of space */
    uint32_t attempt;
    struct hy_list retry;  /* in driver.outputs.stalled or in driver.outputs.continued */
    uv_fs_t req;
    char *path;
    char *name;            /* of the current file, as the agent sent it */
    bool is_files;
    struct hy_list files;  /* announced, not begun */
    uint64_t left;         /* bytes of the current file to come */
    uint32_t file_count;   /* announced so far */
    uint64_t data_bytes;   /* of all announced files */
    size_t announced;      /* bytes of memory of `files` */
};

/* A file, or a piece of one, that was announced: its data follows that of the previous one. */
struct announced {
    struct hy_list link;
    uint64_t size, offset;
    mode_t mode;
    char path[]; /* relative to the trial's directory; not trusted */
};

/* ---- errors ---------------------------------------------------------------------------------- */

static void output_free(struct output *o)
{
    if (o->agent)
        hy_map_remove(&o->agent->outputs, o->stream);
    hy_list_remove(&o->link);
    hy_list_remove(&o->retry);
    if (o->is_stalled)
        hy_stall_end(o->driver);
    hy_list_each(it, &o->files)
        free(hy_container(it, struct announced, link));
    hy_buf_done(&o->gathered);
    hy_buf_done(&o->in_flight);
    hy_close_at(&o->fd);
    free(o->path);
    free(o->name);
    free(o);
}

void hy_outputs_write_failed(struct driver *d, const char *path, int rc)
{
    struct hy_err err = {0};
    char how[100];

    hy_err_sys(&err, rc, "cannot write '%s'%s", path,
               hy_resume_clause(hy_run_resume(d->spec), d->run, " (`", "` continues the run)", how, sizeof how));
    hy_run_fail(d, &err);
}

/* Retried later. */
static void stall(struct output *o, int rc)
{
    if (hy_list_empty(&o->retry))
        hy_list_push(&o->driver->outputs.stalled, &o->retry);
    if (!o->is_stalled)
        hy_stall_begin_file(o->driver, o->path, rc);
    o->is_stalled = true;
}

static void end_stall(struct output *o)
{
    if (o->is_stalled)
        hy_stall_end(o->driver);
    o->is_stalled = false;
}

static bool is_waiting(const struct output *o)
{
    return !hy_list_empty(&o->retry);
}

static void write_failed(struct output *o, int rc)
{
    hy_outputs_write_failed(o->driver, o->path, rc);
}

static void fail_out_of_memory(struct driver *d, uint64_t trial)
{
    struct hy_err err = {0};

    hy_err_set(&err, -ENOMEM, "out of memory for the output of trial %llu", (unsigned long long)trial);
    hy_run_fail(d, &err);
}

/* A trial that gives a file the name of a directory, creates a pipe there, or exceeds the maximum size of the file
 * system loses that file; the run continues. This applies to all errors that are neither temporary nor the driver's
 * own. */
bool hy_outputs_is_trial_error(int rc)
{
    return rc < 0 && rc != -ENOMEM && !hy_is_stall(rc);
}

/* Further data is dropped. A trial that has lost one of its files has failed; one that has lost what it printed has
 * not. */
static void abandon_file(struct output *o, int rc)
{
    struct trial *t = o->trial;

    hy_close_at(&o->fd);
    o->fd = -1;
    if (!o->is_files) {
        hy_run_note(o->driver, "trial %llu: cannot write its output '%s': %s", (unsigned long long)t->number, o->path,
                    strerror(-rc));
        return;
    }
    hy_run_note(o->driver, "trial %llu: cannot write its file '%s': %s", (unsigned long long)t->number, o->name,
                strerror(-rc));
    if (!t->lost_file)
        t->lost_file = hy_asprintf("its file '%.200s' could not be copied to the project: %s", o->name, strerror(-rc));
    if (!t->lost_file)
        fail_out_of_memory(o->driver, t->number);
}

static void on_write_error(struct output *o, int rc)
{
    if (hy_is_stall(rc)) {
        stall(o, rc);
        return;
    }
    end_stall(o);
    if (hy_outputs_is_trial_error(rc))
        abandon_file(o, rc);
    else
        write_failed(o, rc);
}

/* A checkpoint replaces the previous one when it is complete (hy_outputs_install_checkpoint); until then it is
 * stored next to it. */
#define CHECKPOINT "checkpoint"
#define STAGING ".checkpoint"
#define PREVIOUS ".checkpoint.old"

static char *staging_path(const char *path)
{
    size_t n = strlen(CHECKPOINT);

    return strncmp(path, CHECKPOINT "/", n + 1) == 0 ? hy_asprintf(STAGING "%s", path + n) : hy_strdup(path);
}

/* The fd of a new file, or of one that is continued. */
static int open_file(const struct output *o, const char *target, const struct announced *f)
{
    hy_cleanup_close int dir = hy_open_own_dir(o->driver->logdir, o->trial->dir, NULL);
    int fd;

    if (dir < 0)
        return dir;
    fd = f->offset ? hy_extend_below(dir, target, (off_t)f->offset) : hy_create_below(dir, target, 0600);
    return fd == -ENOENT && f->offset ? -ENXIO : fd; /* it was removed here */
}

static void begin_file(struct output *o, const struct announced *f)
{
    struct driver *d = o->driver;
    hy_cleanup_free char *target = staging_path(f->path);

    free(o->path);
    free(o->name);
    o->path = target ? hy_asprintf("%s/%s/%s", d->logdir, o->trial->dir, target) : NULL;
    o->name = hy_strdup(f->path);
    o->left = f->size;
    if (!o->path || !o->name) {
        fail_out_of_memory(d, o->trial->number);
        return;
    }
    o->fd = open_file(o, target, f);
    if (o->fd >= 0)
        end_stall(o);
    if (o->fd >= 0 && fchmod(o->fd, f->mode & 0777) < 0)
        hy_warn_limited("cannot set the mode of a file path=%s error=%s", o->path, strerror(errno));
    if (o->fd == -ENOMEM)
        fail_out_of_memory(d, o->trial->number);
    else if (o->fd < 0)
        on_write_error(o, o->fd);
}

static void on_more(uv_idle_t *idle)
{
    hy_outputs_continue(idle->data);
}

/* Other work of the loop comes first. */
static void continue_next_turn(struct output *o)
{
    int rc = uv_idle_start(&o->driver->outputs.idle, on_more);

    if (rc < 0)
        write_failed(o, rc);
    else
        hy_list_push(&o->driver->outputs.continued, &o->retry);
}

/* Continues with the next file that has data; empty ones are created on the way. */
static void next_file(struct output *o)
{
    int made = 0;

    while (o->left == 0 && !is_waiting(o)) {
        struct announced *f;

        hy_close_at(&o->fd);
        o->fd = -1;
        if (hy_list_empty(&o->files))
            return;
        if (made++ == FILES_A_TURN) {
            continue_next_turn(o);
            return;
        }
        f = hy_container(o->files.next, struct announced, link);
        begin_file(o, f);
        if (is_waiting(o)) { /* there is no room for it now */
            o->left = 0;
            return;
        }
        hy_list_remove(&f->link);
        o->announced -= sizeof *f + strlen(f->path) + 1;
        free(f);
    }
}

/* n bytes of in_flight are written. */
static void consume(struct output *o, size_t n)
{
    o->written += n;
    hy_buf_consume(&o->in_flight, n);
    if (o->agent->peer)
        hy_peer_consumed(o->agent->peer, o->stream, n);
    if (!o->is_files)
        return;
    o->left -= n < o->left ? n : o->left;
    next_file(o);
}

static void on_written(uv_fs_t *req);

/* Starts a write of the next bytes, if none is in progress. */
static void write_more(struct output *o)
{
    while (!o->writing && !is_waiting(o) && (o->in_flight.len || o->gathered.len)) {
        size_t n;
        uv_buf_t buf;
        int rc;

        if (o->in_flight.len == 0) { /* swaps the buffers */
            struct hy_buf empty = o->in_flight;

            o->in_flight = o->gathered;
            o->gathered = empty;
            hy_buf_clear(&o->gathered);
        }
        n = o->in_flight.len;
        if (o->is_files && o->left && n > o->left)
            n = (size_t)o->left;
        if (o->fd < 0) {
            consume(o, n);
            continue;
        }
        buf = uv_buf_init((char *)hy_buf_bytes(&o->in_flight), (unsigned)n);
        o->req.data = o;
        o->writing = true;
        rc = uv_fs_write(&o->driver->loop, &o->req, o->fd, &buf, 1, -1, on_written);
        if (rc < 0) {
            o->writing = false;
            write_failed(o, rc);
            return;
        }
    }
}

static void process_end_if_written(struct output *o)
{
    if (!o->writing && !is_waiting(o) && o->in_flight.len == 0 && o->gathered.len == 0 && o->trial->ended)
        hy_trial_process_end(o->driver, o->trial);
}

static void on_written(uv_fs_t *req)
{
    struct output *o = req->data;
    ssize_t n = req->result;

    uv_fs_req_cleanup(req);
    o->writing = false;
    if (!o->agent) { /* closed meanwhile */
        output_free(o);
        return;
    }
    if (n < 0)
        on_write_error(o, (int)n);
    if (n < 0 && o->fd >= 0) /* it is stalled, or the run has failed */
        return;
    if (n >= 0) {
        end_stall(o);
        consume(o, (size_t)n);
    }
    write_more(o);
    process_end_if_written(o);
}

/* The output of earlier attempts is kept as stdout.1, stdout.2 … */
static void keep_earlier(int dir, const char *name, const struct output *o)
{
    hy_cleanup_free char *previous = hy_asprintf("%s.%u", name, o->attempt - 1);

    if (previous && o->attempt > 1 && renameat(dir, name, dir, previous) < 0 && errno != ENOENT)
        hy_warn_limited("cannot keep an earlier output path=%s error=%s", o->path, strerror(errno));
}

static void open_printed(struct output *o)
{
    hy_cleanup_close int dir = hy_open_own_dir(o->driver->logdir, o->trial->dir, NULL);
    const char *name = strrchr(o->path, '/') + 1;
    int rc = dir < 0 ? dir : 0;

    if (rc == 0) {
        keep_earlier(dir, name, o);
        o->fd = hy_create_below(dir, name, 0666); /* a new file, whatever exists there */
        rc = o->fd < 0 ? o->fd : 0;
    }
    o->is_unopened = hy_is_stall(rc);
    if (rc < 0)
        on_write_error(o, rc);
    else
        end_stall(o);
}

static void continue_all(struct hy_list *waiting)
{
    struct hy_list due;

    hy_list_init(&due);
    hy_list_each(it, waiting) {
        hy_list_remove(it);
        hy_list_push(&due, it);
    }
    while (!hy_list_empty(&due)) {
        struct output *o = hy_container(due.next, struct output, retry);

        hy_list_remove(&o->retry);
        if (o->is_unopened)
            open_printed(o);
        else if (o->is_files && o->left == 0)
            next_file(o);
        write_more(o);
        process_end_if_written(o);
    }
}

void hy_outputs_retry(struct driver *d)
{
    continue_all(&d->outputs.stalled);
}

void hy_outputs_continue(struct driver *d)
{
    continue_all(&d->outputs.continued);
    if (hy_list_empty(&d->outputs.continued))
        uv_idle_stop(&d->outputs.idle);
}

static struct output *output_new(struct driver *d, struct agent *a, struct trial *t, const Hy__Output *m)
{
    struct output *o = hy_calloc(1, sizeof *o);

    if (!o)
        return NULL;
    o->driver = d;
    o->trial = t;
    o->stream = m->stream;
    o->attempt = m->attempt;
    o->is_files = m->mode != 0;
    o->fd = -1;
    hy_list_init(&o->files);
    hy_list_init(&o->link);
    hy_list_init(&o->retry);
    hy_buf_init(&o->gathered, 2 * HY_STREAM_WINDOW);
    hy_buf_init(&o->in_flight, 2 * HY_STREAM_WINDOW);
    o->path = hy_asprintf("%s/%s/%s", d->logdir, t->dir, m->path);
    if (!o->path || hy_map_put(&a->outputs, m->stream, o) < 0) {
        output_free(o);
        return NULL;
    }
    o->agent = a;
    hy_list_push(&t->outputs, &o->link);
    return o;
}

/* Agents enforce these limits themselves (agent/upload.c). */
static bool is_within_limits(struct output *o, const Hy__Output *m)
{
    uint64_t limit = hy_limits_transfer(o->driver->spec->max_transfer);
    char text[40];

    o->file_count += m->offset == 0;
    o->data_bytes = m->size > UINT64_MAX - o->data_bytes ? UINT64_MAX : o->data_bytes + m->size;
    o->announced += sizeof(struct announced) + strlen(m->path) + 1;
    if (o->file_count > HY_FILES_LIMIT)
        hy_agent_set_violation(o->agent, "more than %u files of one trial", HY_FILES_LIMIT);
    else if (o->data_bytes > limit)
        hy_agent_set_violation(o->agent, "files of one trial with more than the %s that may be copied",
                               hy_format_size(limit, text, sizeof text));
    else if (o->announced > HY_ANNOUNCED_LIMIT)
        hy_agent_set_violation(o->agent, "too many files that were announced and not sent");
    return !*o->agent->violation;
}

static void announce(struct output *o, const Hy__Output *m)
{
    size_t n = strlen(m->path) + 1;
    struct announced *f = hy_malloc(sizeof *f + n);

    if (!f) {
        fail_out_of_memory(o->driver, o->trial->number);
        return;
    }
    f->size = m->size;
    f->offset = m->offset;
    f->mode = m->mode;
    memcpy(f->path, m->path, n);
    hy_list_push(&o->files, &f->link);
    next_file(o);
}

/* An attempt has at most one of each: stdout, stderr, and one for all its files. */
static bool has_output(const struct trial *t, const char *path, bool is_files)
{
    hy_list_each(it, &t->outputs) {
        const struct output *o = hy_container(it, struct output, link);
        const char *name = strrchr(o->path, '/');

        if (o->is_files ? is_files : !is_files && strcmp(name + 1, path) == 0)
            return true;
    }
    return false;
}

void hy_outputs_open(struct driver *d, struct agent *a, const Hy__Output *m)
{
    bool printed = strcmp(m->path, "stdout") == 0 || strcmp(m->path, "stderr") == 0;
    struct trial *t = hy_map_get(&d->trials.map, m->trial);
    struct output *o = hy_map_get(&a->outputs, m->stream);

    if (!t || t->agent != a || t->attempt != m->attempt || (!m->mode && !printed) ||
        (o && !(o->is_files && m->mode && o->trial == t)) || (!o && has_output(t, m->path, m->mode != 0))) {
        hy_info_limited("ignored a stale output agent=%s trial=%llu attempt=%u", a->name, (unsigned long long)m->trial,
                        m->attempt);
        return;
    }
    if (!o)
        o = output_new(d, a, t, m);
    if (!o)
        fail_out_of_memory(d, m->trial);
    else if (!o->is_files)
        open_printed(o);
    else if (is_within_limits(o, m))
        announce(o, m);
}

void hy_outputs_data(struct driver *d, struct agent *a, uint32_t stream, const uint8_t *bytes, size_t n)
{
    struct output *o = hy_map_get(&a->outputs, stream);

    if (!o) { /* of an attempt that has ended */
        hy_peer_forget(a->peer, stream);
        return;
    }
    if (hy_buf_append(&o->gathered, bytes, n) < 0) {
        fail_out_of_memory(d, o->trial->number);
        return;
    }
    write_more(o);
    process_end_if_written(o);
}

bool hy_outputs_complete(struct agent *a, const Hy__Ended *e)
{
    for (size_t i = 0; i < e->n_outputs; i++) {
        struct output *o = hy_map_get(&a->outputs, e->outputs[i]->stream);

        if (o && (o->written < e->outputs[i]->bytes || o->left || !hy_list_empty(&o->files)))
            return false;
    }
    return true;
}

void hy_outputs_remove_partial_checkpoint(struct driver *d, const struct trial *t)
{
    hy_cleanup_free char *path = hy_asprintf("%s/%s/" STAGING, d->logdir, t->dir);
    int rc = path ? hy_remove_tree(path) : -ENOMEM;

    if (rc < 0)
        hy_warn_limited("cannot remove a partial checkpoint trial=%llu error=%s", (unsigned long long)t->number,
                        strerror(-rc));
}

/* The existing checkpoint stays until the new one replaces it. */
static int replace(const char *staging, const char *checkpoint, const char *previous)
{
    int rc;

    /* If one exists, both are exchanged atomically. */
    if (renameat2(AT_FDCWD, staging, AT_FDCWD, checkpoint, RENAME_EXCHANGE) == 0)
        return hy_remove_tree(staging);
    if (errno != ENOENT && errno != EINVAL && errno != ENOSYS)
        return -errno;
    if (access(staging, F_OK) < 0) /* the attempt has no checkpoint */
        return errno == ENOENT ? hy_remove_tree(checkpoint) : -errno;
    rc = hy_remove_tree(previous);
    if (rc == 0 && rename(checkpoint, previous) < 0 && errno != ENOENT)
        rc = -errno;
    if (rc < 0)
        return rc;
    if (rename(staging, checkpoint) < 0) {
        rc = -errno;
        if (rename(previous, checkpoint) < 0 && errno != ENOENT)
            hy_warn_limited("cannot restore the previous checkpoint path=%s error=%s", previous, strerror(errno));
        return rc;
    }
    return hy_remove_tree(previous);
}

void hy_outputs_install_checkpoint(struct driver *d, struct trial *t)
{
    hy_cleanup_free char *dir = hy_path_join(d->logdir, t->dir);
    hy_cleanup_free char *staging = dir ? hy_path_join(dir, STAGING) : NULL;
    hy_cleanup_free char *checkpoint = dir ? hy_path_join(dir, CHECKPOINT) : NULL;
    hy_cleanup_free char *previous = dir ? hy_path_join(dir, PREVIOUS) : NULL;
    int rc;

    if (!staging || !checkpoint || !previous) {
        fail_out_of_memory(d, t->number);
        return;
    }
    rc = replace(staging, checkpoint, previous);
    if (rc == 0)
        return;
    hy_warn_limited("cannot install a checkpoint trial=%llu error=%s", (unsigned long long)t->number, strerror(-rc));
    if (!t->lost_file && !(t->lost_file = hy_asprintf("cannot install its checkpoint: %s", strerror(-rc))))
        fail_out_of_memory(d, t->number);
}

static void close_output(struct output *o)
{
    if (o->agent->peer)
        hy_peer_forget(o->agent->peer, o->stream);
    hy_map_remove(&o->agent->outputs, o->stream);
    hy_list_remove(&o->link);
    o->agent = NULL;
    if (!o->writing)
        output_free(o);
}

void hy_outputs_close(struct driver *d, struct trial *t)
{
    hy_list_each(it, &t->outputs)
        close_output(hy_container(it, struct output, link));
    if (t->agent && !t->agent->shares_files)
        hy_outputs_remove_partial_checkpoint(d, t);
}

void hy_outputs_agent_lost(struct agent *a)
{
    struct output *o;
    size_t i;

    while ((i = 0, o = hy_map_next(&a->outputs, &i)))
        close_output(o);
}
