/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event files for TensorBoard, in addition to those that the trial's code
 * writes: hyperparameters, reported values and the status of the trial.
 *
 * A trial has one such file in its directory, that of its latest attempt; the
 * file of the previous attempt is removed, since TensorBoard combines all files
 * of a directory. Handlers only append to a buffer. After the turn's commit it
 * is written by libuv's thread pool, one job at a time per trial, so that a
 * slow disk delays nothing but the end of the run.
 *
 * TensorBoard uses the first end of a session that it reads. So the end is
 * written when the trial has ended for good: not before another attempt, and
 * not when the run is stopped, since `resume` may continue it. Until then the
 * trial's status is "unknown".
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "driver/run.h"
#include "event/event.h"

#define PENDING_MAX (1024u * 1024) /* buffered while the disk is slow */
#define TAGS_MAX 10000u             /* names of values; far more than TensorBoard can show */
#define PREFIX "events.out.tfevents."

/* Used by the worker thread; the loop does not touch it during a job. */
struct file {
    uint64_t trial;
    char *root, *dir;   /* the run's directory, and the trial's within it */
    char *path;         /* the full path */
    int fd;             /* -1: data is dropped */
    struct hy_buf bytes;
    bool is_new, is_last;   /* this job creates the file, or closes it */
    bool is_retry;      /* an earlier attempt may have left a file */
    int rc;
};

struct events {
    struct driver *driver;
    struct trial *trial;    /* NULL: it has ended; freed when everything is written */
    struct hy_list due;     /* in driver.events.due: there is data for the worker */
    struct hy_map tags;     /* hash of a name -> struct tag */
    struct hy_buf pending;
    char *next_path;        /* the file of a new attempt, for what is pending */
    bool is_retry;          /* not the first attempt */
    bool is_complete;       /* nothing more is added to the file */
    bool overflowed;
    bool is_writing;
    bool is_stalled;        /* the job failed for lack of space and is retried */
    struct hy_list retry;   /* in driver.events.stalled until then */
    uv_work_t job;
    struct file file;
};

struct tag {
    int64_t next; /* step, for a value without one */
    double last;
};

/* ---- the worker thread ----------------------------------------------------------------------- */

/* Whether it is events.out.tfevents.SECONDS.HOST.hopyard.TRIAL.ATTEMPT of this trial. */
static bool is_ours(const char *name, uint64_t trial)
{
    const char *tail = name;
    char want[40];
    int n = snprintf(want, sizeof want, ".hopyard.%llu.", (unsigned long long)trial);

    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return false;
    for (const char *at = name; (at = strstr(at, want)); at++)
        tail = at + n;
    return isdigit((unsigned char)*tail) && !tail[strspn(tail, "0123456789")];
}

/* Also those of earlier drivers of this run. */
static int remove_earlier(const struct file *f, int dir)
{
    hy_cleanup_close int fd = HY_SYS(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int rc = stream ? 0 : -errno;

    if (stream)
        fd = -1; /* closedir closes it */

    while (rc == 0 && (entry = readdir(stream)))
        if (is_ours(entry->d_name, f->trial) && HY_SYS(unlinkat(dirfd(stream), entry->d_name, 0)) < 0)
            rc = -errno;
    if (stream)
        closedir(stream);
    return rc;
}

/* -EINVAL if the trial has created something else there. */
static int create(int dir, const char *path)
{
    hy_cleanup_close int fd = HY_SYS(
        openat(dir, strrchr(path, '/') + 1, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) ? hy_take_fd(fd) : -EINVAL;
}

static void close_file(struct file *f)
{
    hy_close_at(&f->fd);
    f->fd = -1;
}

static int begin(struct file *f)
{
    hy_cleanup_close int dir = hy_open_own_dir(f->root, f->dir, NULL);
    int rc = dir < 0 ? dir : 0;

    close_file(f);
    if (rc == 0 && f->is_retry)
        rc = remove_earlier(f, dir);
    if (rc == 0)
        rc = f->fd = create(dir, f->path);
    return rc < 0 ? rc : 0;
}

static int copy(int from, int to, off_t size)
{
    off_t at = 0;

    while (at < size) {
        ssize_t n = HY_SYS(sendfile(to, from, &at, (size_t)(size - at)));

        if (n <= 0)
            return n < 0 ? -errno : -EIO;
    }
    return 0;
}

/* Training code often starts by emptying its directory. The trial has ended now, so restoring the file does not
 * disturb it. */
static int restore_if_removed(const struct file *f)
{
    hy_cleanup_close int dir = -1, fd = -1;
    struct stat st;
    int rc;

    if (fstat(f->fd, &st) < 0)
        return -errno;
    if (st.st_nlink)
        return 0;
    rc = dir = hy_open_own_dir(f->root, f->dir, NULL);
    if (rc >= 0)
        rc = fd = create(dir, f->path);
    return rc < 0 ? rc : copy(f->fd, fd, st.st_size);
}

/* All bytes or none, so that it can be retried. */
static int append(struct file *f)
{
    off_t begin = lseek(f->fd, 0, SEEK_CUR);
    int rc = begin < 0 ? -errno : hy_write_all(f->fd, hy_buf_bytes(&f->bytes), f->bytes.len);

    if (rc == 0)
        hy_buf_clear(&f->bytes);
    else if (begin >= 0 && (ftruncate(f->fd, begin) < 0 || lseek(f->fd, begin, SEEK_SET) < 0))
        rc = -EINVAL; /* it is not a regular file any more */
    return rc;
}

static void write_job(uv_work_t *job)
{
    struct file *f = &hy_container(job, struct events, job)->file;

    f->rc = f->is_new ? begin(f) : 0;
    f->is_new &= f->rc < 0;
    if (f->rc == 0 && f->fd >= 0)
        f->rc = append(f);
    if (f->rc == 0 && f->fd >= 0 && f->is_last)
        f->rc = restore_if_removed(f);
    if (f->rc == 0 ? f->is_last : !hy_is_stall(f->rc))
        close_file(f);
}

/* ---- the loop's side ------------------------------------------------------------------------- */

static void out_of_memory(struct driver *d, uint64_t trial)
{
    struct hy_err err = {0};
    char how[80];

    hy_err_set(&err, -ENOMEM, "out of memory for the reports of trial %llu%s", (unsigned long long)trial,
               hy_resume_clause(hy_run_resume(d->spec), d->run, "; `", "` continues the run", how, sizeof how));
    hy_run_fail(d, &err);
}

static void free_tags(struct events *e)
{
    struct tag *tag;

    for (size_t i = 0; (tag = hy_map_next(&e->tags, &i));)
        free(tag);
    hy_map_done(&e->tags);
}

static void events_free(struct events *e)
{
    e->driver->events.count--;
    hy_list_remove(&e->due);
    hy_list_remove(&e->retry);
    if (e->is_stalled)
        hy_stall_end(e->driver);
    free_tags(e);
    hy_buf_done(&e->pending);
    hy_buf_done(&e->file.bytes);
    close_file(&e->file);
    free(e->next_path);
    free(e->file.root);
    free(e->file.dir);
    free(e->file.path);
    free(e);
}

static struct events *events_new(struct driver *d, struct trial *t)
{
    struct events *e = hy_calloc(1, sizeof *e);

    if (!e)
        return NULL;
    d->events.count++;
    e->driver = d;
    e->trial = t;
    e->file.trial = t->number;
    e->file.fd = -1;
    hy_list_init(&e->due);
    hy_list_init(&e->retry);
    hy_buf_init(&e->pending, PENDING_MAX);
    hy_buf_init(&e->file.bytes, PENDING_MAX);
    e->file.root = hy_strdup(d->logdir);
    e->file.dir = hy_strdup(t->dir);
    if (!e->file.root || !e->file.dir) {
        events_free(e);
        return NULL;
    }
    return e;
}

/* A trial that makes its directory unusable loses its own events; the run continues. */
static void write_failed(struct events *e)
{
    const struct file *f = &e->file;
    int rc = f->rc;

    if (rc == -ENOMEM)
        out_of_memory(e->driver, f->trial);
    else if (rc == -ENOENT || hy_outputs_is_trial_error(rc))
        hy_run_note(e->driver, "trial %llu: cannot write its events for TensorBoard: '%s': %s",
                    (unsigned long long)f->trial, f->path, strerror(-rc));
    else
        hy_outputs_write_failed(e->driver, f->path, rc);
}

static void on_job_done(uv_work_t *job, int status);

static void queue_job(struct events *e)
{
    int rc = uv_queue_work(&e->driver->loop, &e->job, write_job, on_job_done);

    e->is_writing = rc == 0;
    if (rc < 0)
        hy_outputs_write_failed(e->driver, e->file.path, rc);
}

static void start_job(struct events *e)
{
    struct file *f = &e->file;
    struct hy_buf empty = f->bytes;

    f->bytes = e->pending;
    e->pending = empty;
    f->is_new = e->next_path != NULL;
    if (f->is_new) {
        free(f->path);
        f->path = hy_take(e->next_path);
        f->is_retry = e->is_retry;
    }
    f->is_last = e->is_complete;
    e->is_complete = false;
    queue_job(e);
}

static void continue_writing(struct events *e)
{
    if (e->is_writing || e->is_stalled)
        return;
    if (e->next_path || e->pending.len || e->is_complete)
        start_job(e);
    else if (!e->trial)
        events_free(e);
}

/* A trial that has ended meanwhile was waiting for this: its events are complete before it counts as ended. */
static void end_stall(struct events *e)
{
    struct driver *d = e->driver;
    struct trial *t = e->trial;

    e->is_stalled = false;
    hy_stall_end(d);
    continue_writing(e);
    if (t && t->ended)
        hy_trial_process_end(d, t);
}

bool hy_events_are_stalled(const struct trial *t)
{
    return t->events && t->events->is_stalled;
}

static void on_job_done(uv_work_t *job, int status)
{
    struct events *e = hy_container(job, struct events, job);

    (void)status;
    e->is_writing = false;
    if (hy_is_stall(e->file.rc)) {
        if (!e->is_stalled)
            hy_stall_begin_file(e->driver, e->file.path, e->file.rc);
        e->is_stalled = true;
        hy_list_push(&e->driver->events.stalled, &e->retry);
        return;
    }
    hy_buf_clear(&e->file.bytes);
    if (e->file.rc < 0)
        write_failed(e);
    if (e->is_stalled)
        end_stall(e);
    else
        continue_writing(e);
}

void hy_events_retry(struct driver *d)
{
    hy_list_each(it, &d->events.stalled) {
        hy_list_remove(it);
        queue_job(hy_container(it, struct events, retry));
    }
}

/* Events that a later turn adds before the commit are written with it. If they are never committed, the trial's
 * next attempt starts another file, so nothing wrong remains. */
void hy_events_seal(struct driver *d)
{
    hy_list_each(it, &d->events.due) {
        hy_list_remove(it);
        hy_list_push(&d->events.sealed, it);
    }
}

void hy_events_flush(struct driver *d)
{
    hy_list_each(it, &d->events.sealed) {
        hy_list_remove(it);
        continue_writing(hy_container(it, struct events, due));
    }
}

static void make_due(struct events *e)
{
    if (hy_list_empty(&e->due))
        hy_list_push(&e->driver->events.due, &e->due);
}

static void discard_all(struct hy_list *list)
{
    hy_list_each(it, list) {
        struct events *e = hy_container(it, struct events, due);

        hy_list_remove(it);
        if (!e->trial)
            events_free(e);
    }
}

void hy_events_discard(struct driver *d)
{
    hy_list_each(it, &d->events.stalled)
        make_due(hy_container(it, struct events, retry));
    discard_all(&d->events.due);
    discard_all(&d->events.sealed);
}

bool hy_events_all_written(const struct driver *d)
{
    /* A user who stops the run does not wait for a disk that hangs. */
    return d->events.count == 0 || (d->phase == PHASE_STOPPING && hy_clock_ms() > d->end.stop_by);
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* Checks the result of an encoder. */
static void check_encoded(struct events *e, int rc)
{
    if (rc == -ENOMEM) {
        out_of_memory(e->driver, e->file.trial);
    } else if (rc == -EINVAL) {
        hy_run_note(e->driver, "trial %llu: TensorBoard cannot show these parameters: %s",
                    (unsigned long long)e->file.trial, e->trial->params);
    } else if (rc < 0 && !e->overflowed) {
        e->overflowed = true;
        hy_run_note(e->driver, "trial %llu reports faster than the disk can write: TensorBoard does not show all of it",
                    (unsigned long long)e->file.trial);
    }
    make_due(e);
}

static bool has_params(const struct trial *t)
{
    return strcmp(t->params, "{}") != 0;
}

/* The host's name comes from its agent and is not trusted. */
static char *path_of(const struct driver *d, const struct trial *t)
{
    const char *name = t->agent->host ? t->agent->host : "";
    char host[65] = "";

    for (size_t i = 0; name[i] && i < sizeof host - 1; i++)
        host[i] = isalnum((unsigned char)name[i]) || strchr(".-_", name[i]) ? name[i] : '_';
    return hy_asprintf("%s/%s/" PREFIX "%010lld.%s.hopyard.%llu.%u", d->logdir, t->dir,
                       (long long)(t->started_wall / 1000), *host ? host : "host", (unsigned long long)t->number,
                       t->attempt);
}

void hy_events_start(struct driver *d, struct trial *t)
{
    struct events *e = t->events;
    int rc;

    if (!has_params(t) && !*d->spec->metric)
        return; /* nothing to compare */
    if (!e)
        e = t->events = events_new(d, t);
    if (!e) {
        out_of_memory(d, t->number);
        return;
    }
    free_tags(e);
    hy_buf_clear(&e->pending);
    e->is_complete = e->overflowed = false;
    e->is_retry = t->attempt > 1 && !hy_early_stop_is_promoted(d, t); /* that one continues the curves */
    free(e->next_path);
    e->next_path = path_of(d, t);
    rc = e->next_path ? hy_event_version(&e->pending, t->started_wall) : -ENOMEM;
    if (rc == 0 && has_params(t))
        rc = hy_event_session_start(&e->pending, t->params, "", t->started_wall);
    check_encoded(e, rc);
}

static int tag_of(struct events *e, const char *name, struct tag **ret)
{
    uint64_t key = hy_hash(name, strlen(name));
    struct tag *tag = hy_map_get(&e->tags, key);

    *ret = tag;
    if (tag)
        return 0;
    if (e->tags.count == TAGS_MAX)
        return -ENOBUFS;
    tag = hy_calloc(1, sizeof *tag);
    if (!tag || hy_map_put(&e->tags, key, tag) < 0) {
        free(tag);
        return -ENOMEM;
    }
    *ret = tag;
    return 0;
}

void hy_events_scalar(struct trial *t, const char *name, int64_t step, double value)
{
    struct events *e = t->events;
    struct tag *tag;
    int rc;

    if (!e)
        return;
    rc = tag_of(e, name, &tag);
    if (rc == 0) {
        step = step < 0 ? tag->next : step;
        tag->next = step < INT64_MAX ? step + 1 : step;
        tag->last = value;
        rc = hy_event_scalar(&e->pending, name, step, value, hy_clock_wall_ms());
    }
    check_encoded(e, rc);
}

void hy_events_attempt_over(struct trial *t)
{
    if (!t->events)
        return;
    t->events->is_complete = true;
    make_due(t->events);
}

static bool is_same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* The result is written even if it was not reported, or was not the last reported value. */
static void write_result(const struct driver *d, struct trial *t)
{
    const char *metric = d->spec->metric;
    const struct tag *tag = hy_map_get(&t->events->tags, hy_hash(metric, strlen(metric)));

    if (*metric && t->has_value && !(tag && is_same(tag->last, t->value)))
        hy_events_scalar(t, metric, -1, t->value);
}

void hy_events_end(const struct driver *d, struct trial *t, enum hy_trial_state state)
{
    struct events *e = t->events;
    bool is_success = state == HY_TRIAL_DONE || state == HY_TRIAL_PRUNED;
    enum hy_event_status status = is_success ? HY_EVENT_SUCCESS : HY_EVENT_FAILURE;

    if (!e || state == HY_TRIAL_STOPPED)
        return;
    write_result(d, t);
    if (has_params(t))
        check_encoded(e, hy_event_session_end(&e->pending, status, hy_clock_wall_ms()));
}

void hy_events_detach(const struct driver *d, struct trial *t)
{
    struct events *e = t->events;

    if (!e)
        return;
    t->events = NULL;
    e->trial = NULL;
    if (!e->is_writing && ((!e->is_stalled && hy_list_empty(&e->due)) || d->phase == PHASE_LEAVING))
        events_free(e);
}
