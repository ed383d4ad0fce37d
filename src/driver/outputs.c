/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What trials print and leave, on its way to files.
 *
 * Each stream from an agent is a file: what a trial prints. Or it is many, one
 * after the other: what a trial left on a host that does not share our files.
 * At most one write per stream is under way, in libuv's thread pool; what comes
 * meanwhile is gathered, and the credit goes back to the agent only when it is
 * written. So a slow disk slows the trial that prints, and nobody else, in
 * bounded memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
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
#include "driver/run.h"

struct output {
    struct driver *driver;
    struct agent *agent;   /* NULL: nobody waits for it any more */
    struct trial *trial;
    struct hy_list link;   /* in trial->outputs */
    uint32_t stream;
    int fd;                /* -1: what comes is dropped */
    uint64_t written;
    struct hy_buf gathered;
    struct hy_buf under_way;
    bool writing;
    uv_fs_t req;
    char *path;
    bool of_files;
    struct hy_list files;  /* announced, not begun */
    uint64_t left;         /* of the file that is under way */
};

/* A file, or a piece of one, that was announced: its bytes follow those of the one before it. */
struct announced {
    struct hy_list link;
    uint64_t size, offset;
    mode_t mode;
    char path[]; /* below the trial's folder, if it is as it should be */
};

/* ---- files from trials --------------------------------------------------------------- */

static void output_free(struct output *o)
{
    if (o->agent)
        hy_map_remove(&o->agent->outputs, o->stream);
    hy_list_remove(&o->link);
    hy_list_each(it, &o->files)
        free(hy_container(it, struct announced, link));
    hy_buf_done(&o->gathered);
    hy_buf_done(&o->under_way);
    hy_close_at(&o->fd);
    free(o->path);
    free(o);
}

void hy_outputs_write_failed(struct driver *d, const char *path, int rc)
{
    struct hy_err err = {0};

    if (rc == -ENOSPC || rc == -EDQUOT)
        hy_err_set(&err, rc, "disk full: cannot write '%s'; free some space, then `hopyard resume %lld`", path, (long long)d->run);
    else
        hy_err_sys(&err, rc, "cannot write '%s' (`hopyard resume %lld` goes on from here)", path, (long long)d->run);
    hy_run_fail(d, &err);
}

static void write_failed(struct output *o, int rc)
{
    hy_outputs_write_failed(o->driver, o->path, rc);
}

static void no_memory(struct driver *d, uint64_t trial)
{
    struct hy_err err = {0};

    hy_err_set(&err, -ENOMEM, "out of memory for what trial %llu prints", (unsigned long long)trial);
    hy_run_fail(d, &err);
}

/* A trial that gave a file the name of a folder spoils that file, not the run. */
bool hy_outputs_is_trials_own(int rc)
{
    return rc == -EINVAL || rc == -ENOTDIR || rc == -EISDIR || rc == -ELOOP || rc == -ENAMETOOLONG || rc == -EPERM ||
           rc == -EACCES || rc == -ENXIO;
}

/* A checkpoint counts when all of it is here (hy_outputs_take_checkpoint); until
 * then it lies beside the one before it. */
#define CHECKPOINT "checkpoint"
#define COMING ".checkpoint"

static char *place_of(const char *path)
{
    size_t n = strlen(CHECKPOINT);

    return strncmp(path, CHECKPOINT "/", n + 1) == 0 ? hy_asprintf(COMING "%s", path + n) : hy_strdup(path);
}

static void begin_file(struct output *o, const struct announced *f)
{
    struct driver *d = o->driver;
    hy_cleanup_free char *dir = hy_path_join(d->logdir, o->trial->dir);
    hy_cleanup_free char *place = place_of(f->path);

    free(o->path);
    o->path = dir && place ? hy_path_join(dir, place) : NULL;
    o->left = f->size;
    if (!o->path)
        o->fd = -ENOMEM;
    else
        o->fd = f->offset ? hy_extend_below(dir, place, 0600, (off_t)f->offset) : hy_create_below(dir, place, 0600);
    if (o->fd >= 0 && fchmod(o->fd, f->mode & 0777) < 0)
        hy_warn("cannot give a file its mode path=%s error=%s", o->path, strerror(errno));
    if (o->fd == -ENOMEM)
        no_memory(d, o->trial->number);
    else if (hy_outputs_is_trials_own(o->fd))
        hy_run_note(d, "trial %llu: its file '%s' is not kept: %s", (unsigned long long)o->trial->number, f->path, strerror(-o->fd));
    else if (o->fd < 0)
        write_failed(o, o->fd);
}

/* On to the next file that has bytes to come; empty ones are made on the way. */
static void next_file(struct output *o)
{
    while (o->left == 0) {
        struct announced *f;

        hy_close_at(&o->fd);
        o->fd = -1;
        if (hy_list_empty(&o->files))
            return;
        f = hy_container(o->files.next, struct announced, link);
        hy_list_remove(&f->link);
        begin_file(o, f);
        free(f);
    }
}

/* n bytes of under_way are where they belong. */
static void took(struct output *o, size_t n)
{
    o->written += n;
    hy_buf_consume(&o->under_way, n);
    if (o->agent->peer)
        hy_peer_consumed(o->agent->peer, o->stream, n);
    if (!o->of_files)
        return;
    o->left -= n < o->left ? n : o->left;
    next_file(o);
}

static void on_written(uv_fs_t *req);

/* Starts a write of the next bytes, if none is under way. */
static void write_more(struct output *o)
{
    while (!o->writing && (o->under_way.len || o->gathered.len)) {
        size_t n;
        uv_buf_t buf;
        int rc;

        if (o->under_way.len == 0) { /* the two change places */
            struct hy_buf empty = o->under_way;

            o->under_way = o->gathered;
            o->gathered = empty;
            hy_buf_clear(&o->gathered);
        }
        n = o->under_way.len;
        if (o->of_files && o->left && n > o->left)
            n = (size_t)o->left;
        if (o->fd < 0) {
            took(o, n);
            continue;
        }
        buf = uv_buf_init((char *)hy_buf_bytes(&o->under_way), (unsigned)n);
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

static void settle_if_done(struct output *o)
{
    if (!o->writing && o->under_way.len == 0 && o->gathered.len == 0 && o->trial->ended)
        hy_trials_settle(o->driver, o->trial);
}

static void on_written(uv_fs_t *req)
{
    struct output *o = req->data;
    ssize_t n = req->result;

    uv_fs_req_cleanup(req);
    o->writing = false;
    if (!o->agent) { /* forgotten meanwhile */
        output_free(o);
        return;
    }
    if (n < 0) {
        write_failed(o, (int)n);
        return;
    }
    took(o, (size_t)n);
    write_more(o);
    settle_if_done(o);
}

/* What an earlier attempt printed is kept as stdout.1, stdout.2 … */
static void keep_earlier(const char *path, uint32_t attempt)
{
    hy_cleanup_free char *aside = hy_asprintf("%s.%u", path, attempt - 1);

    if (aside && attempt > 1 && rename(path, aside) < 0 && errno != ENOENT)
        hy_warn("cannot keep an earlier output path=%s error=%s", path, strerror(errno));
}

static void open_printed(struct output *o, const Hy__Output *m)
{
    char *slash = strrchr(o->path, '/');
    int rc;

    *slash = '\0';
    rc = hy_mkdirs(o->path, 0777);
    *slash = '/';
    if (rc == 0) {
        keep_earlier(o->path, m->attempt);
        o->fd = HY_SYS(open(o->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
        rc = o->fd < 0 ? -errno : 0;
    }
    if (hy_outputs_is_trials_own(rc))
        hy_run_note(o->driver, "trial %llu: what it prints is not kept: '%s': %s", (unsigned long long)o->trial->number, o->path,
                    strerror(-rc));
    else if (rc < 0)
        write_failed(o, rc);
}

static struct output *output_new(struct driver *d, struct agent *a, struct trial *t, const Hy__Output *m)
{
    struct output *o = hy_calloc(1, sizeof *o);

    if (!o)
        return NULL;
    o->driver = d;
    o->trial = t;
    o->stream = m->stream;
    o->of_files = m->mode != 0;
    o->fd = -1;
    hy_list_init(&o->files);
    hy_list_init(&o->link);
    hy_buf_init(&o->gathered, 2 * HY_STREAM_WINDOW);
    hy_buf_init(&o->under_way, 2 * HY_STREAM_WINDOW);
    o->path = hy_asprintf("%s/%s/%s", d->logdir, t->dir, m->path);
    if (!o->path || hy_map_put(&a->outputs, m->stream, o) < 0) {
        output_free(o);
        return NULL;
    }
    o->agent = a;
    hy_list_push(&t->outputs, &o->link);
    return o;
}

static void announce(struct output *o, const Hy__Output *m)
{
    size_t n = strlen(m->path) + 1;
    hy_cleanup_free char *dir = hy_path_join(o->driver->logdir, o->trial->dir);
    struct announced *f = dir ? hy_malloc(sizeof *f + n) : NULL;
    int rc = f ? hy_mkdirs(dir, 0777) : 0;

    if (!f) {
        no_memory(o->driver, o->trial->number);
        return;
    }
    if (rc < 0)
        write_failed(o, rc);
    f->size = m->size;
    f->offset = m->offset;
    f->mode = m->mode;
    memcpy(f->path, m->path, n);
    hy_list_push(&o->files, &f->link);
    next_file(o);
}

/* An attempt has one of each: two that it prints, and one for all its files. */
static bool has_output(const struct trial *t, const char *path, bool of_files)
{
    hy_list_each(it, &t->outputs) {
        const struct output *o = hy_container(it, struct output, link);
        const char *name = strrchr(o->path, '/');

        if (o->of_files ? of_files : !of_files && strcmp(name + 1, path) == 0)
            return true;
    }
    return false;
}

void hy_outputs_open(struct driver *d, struct agent *a, const Hy__Output *m)
{
    bool printed = strcmp(m->path, "stdout") == 0 || strcmp(m->path, "stderr") == 0;
    struct trial *t = hy_map_get(&d->trials, m->trial);
    struct output *o = hy_map_get(&a->outputs, m->stream);

    if (!t || t->agent != a || t->attempt != m->attempt || (!m->mode && !printed) || strlen(m->path) >= PATH_MAX || m->offset > INT64_MAX ||
        (o && !(o->of_files && o->trial == t)) || (!o && has_output(t, m->path, m->mode != 0))) {
        hy_info("fenced an output agent=%s trial=%llu attempt=%u", a->name, (unsigned long long)m->trial, m->attempt);
        return;
    }
    if (!o)
        o = output_new(d, a, t, m);
    if (!o)
        no_memory(d, m->trial);
    else if (o->of_files)
        announce(o, m);
    else
        open_printed(o, m);
}

void hy_outputs_data(struct driver *d, struct agent *a, uint32_t stream, const uint8_t *bytes, size_t n)
{
    struct output *o = hy_map_get(&a->outputs, stream);

    if (!o) { /* of an attempt that does not count any more */
        hy_peer_forget(a->peer, stream);
        return;
    }
    if (hy_buf_append(&o->gathered, bytes, n) < 0) {
        no_memory(d, o->trial->number);
        return;
    }
    write_more(o);
    settle_if_done(o);
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

/* What an attempt that is lost had begun to send. */
static void drop_coming(struct driver *d, const struct trial *t)
{
    hy_cleanup_free char *path = hy_asprintf("%s/%s/" COMING, d->logdir, t->dir);
    int rc = path ? hy_remove_tree(path) : -ENOMEM;

    if (rc < 0)
        hy_warn("cannot remove half a checkpoint trial=%llu error=%s", (unsigned long long)t->number, strerror(-rc));
}

void hy_outputs_take_checkpoint(struct driver *d, struct trial *t)
{
    hy_cleanup_free char *dir = hy_path_join(d->logdir, t->dir);
    hy_cleanup_free char *coming = dir ? hy_path_join(dir, COMING) : NULL;
    hy_cleanup_free char *checkpoint = dir ? hy_path_join(dir, CHECKPOINT) : NULL;
    int rc;

    if (!coming || !checkpoint) {
        no_memory(d, t->number);
        return;
    }
    /* Where there is one already both change places, at a stroke. */
    if (renameat2(AT_FDCWD, coming, AT_FDCWD, checkpoint, RENAME_EXCHANGE) == 0) {
        rc = hy_remove_tree(coming);
    } else {
        rc = hy_remove_tree(checkpoint);
        if (rc == 0 && rename(coming, checkpoint) < 0 && errno != ENOENT)
            rc = -errno;
    }
    if (rc < 0)
        hy_warn("cannot take a checkpoint trial=%llu error=%s", (unsigned long long)t->number, strerror(-rc));
}

static void forget(struct output *o)
{
    if (o->agent->peer)
        hy_peer_forget(o->agent->peer, o->stream);
    hy_map_remove(&o->agent->outputs, o->stream);
    hy_list_remove(&o->link);
    o->agent = NULL;
    if (!o->writing)
        output_free(o);
}

void hy_outputs_forget(struct driver *d, struct trial *t)
{
    hy_list_each(it, &t->outputs)
        forget(hy_container(it, struct output, link));
    if (t->agent && !t->agent->shares_files)
        drop_coming(d, t);
}

/* ---- checkpoints to agents -------------------------------------------------------------- */

struct to_send {
    char *path;
    uint64_t size;
};

/* A checkpoint on its way to an agent that shares no files. */
struct sending {
    uint32_t stream;
    struct to_send *files;
    size_t count, next;
    int fd; /* of the file under way */
    uint64_t left;
};

static struct {
    struct sending *sending;
    Hy__Start *start;
    size_t prefix;
} walk; /* nftw has no argument for its callback */

static int add_file(const char *path, const struct stat *st, int type, struct FTW *where)
{
    Hy__Start *start = walk.start;
    struct sending *s = walk.sending;
    Hy__FileSent **names, *f;
    struct to_send *files;

    (void)where;
    if (type != FTW_F || !S_ISREG(st->st_mode))
        return 0;
    names = hy_reallocarray(start->files, start->n_files + 1, sizeof *names);
    start->files = names ? names : start->files;
    files = hy_reallocarray(s->files, s->count + 1, sizeof *files);
    s->files = files ? files : s->files;
    f = names && files ? hy_malloc(sizeof *f) : NULL;
    if (!f)
        return -ENOMEM;
    hy__file_sent__init(f);
    start->files[start->n_files++] = f;
    f->path = hy_strdup(path + walk.prefix);
    f->mode = st->st_mode & 0777;
    f->size = (uint64_t)st->st_size;
    f->stream = s->stream;
    s->files[s->count++] = (struct to_send){.path = hy_strdup(path), .size = f->size};
    return f->path && s->files[s->count - 1].path ? 0 : -ENOMEM;
}

static void sending_free(struct agent *a, struct sending *s)
{
    if (hy_map_get(&a->sending, s->stream) == s)
        hy_map_remove(&a->sending, s->stream);
    for (size_t i = 0; i < s->count; i++)
        free(s->files[i].path);
    hy_close_at(&s->fd);
    free(s->files);
    free(s);
}

int hy_outputs_send_checkpoint(struct driver *d, struct agent *a, struct trial *t, Hy__Start *start)
{
    hy_cleanup_free char *dir = hy_path_join(d->logdir, t->dir);
    hy_cleanup_free char *folder = dir ? hy_path_join(dir, CHECKPOINT) : NULL;
    struct sending *s;
    int rc = 0;

    if (!folder)
        return -ENOMEM;
    drop_coming(d, t); /* of a driver that died */
    if (access(folder, F_OK) < 0)
        return 0;
    s = hy_calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->stream = a->next_stream++;
    s->fd = -1;
    walk.sending = s;
    walk.start = start;
    walk.prefix = strlen(dir) + 1;
    if (nftw(folder, add_file, 32, FTW_PHYS) != 0 || hy_map_put(&a->sending, s->stream, s) < 0)
        rc = -ENOMEM;
    if (rc < 0)
        sending_free(a, s);
    else
        hy_outputs_room(d, a, s->stream);
    return rc;
}

void hy_outputs_sent(Hy__Start *start)
{
    for (size_t i = 0; i < start->n_files; i++) {
        if (start->files[i]->path != protobuf_c_empty_string)
            free(start->files[i]->path);
        free(start->files[i]);
    }
    free(start->files);
}

/* The next bytes: how many; 0 when there are none left, or -Exxx. */
static ssize_t read_some(struct sending *s, uint8_t *to, size_t room)
{
    ssize_t n;

    while (s->left == 0) {
        hy_close_at(&s->fd);
        s->fd = -1;
        if (s->next == s->count)
            return 0;
        s->left = s->files[s->next].size;
        s->fd = HY_SYS(open(s->files[s->next++].path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
        if (s->fd < 0)
            return -errno;
    }
    n = HY_SYS(read(s->fd, to, s->left < room ? (size_t)s->left : room));
    if (n <= 0)
        return n < 0 ? -errno : -ENODATA; /* it has become shorter meanwhile */
    s->left -= (uint64_t)n;
    return n;
}

void hy_outputs_room(struct driver *d, struct agent *a, uint32_t stream)
{
    static uint8_t chunk[64 * 1024]; /* one loop, used within this call only */
    struct sending *s = hy_map_get(&a->sending, stream);
    struct hy_err err = {0};

    while (s && hy_peer_room(a->peer, stream) >= sizeof chunk) {
        ssize_t n = read_some(s, chunk, sizeof chunk);

        if (n == 0) {
            sending_free(a, s);
            return;
        }
        if (n < 0)
            hy_err_sys(&err, (int)n, "cannot read the checkpoint's file '%s' (`hopyard resume %lld` goes on from here)",
                       s->files[s->next - 1].path, (long long)d->run);
        else if (hy_peer_write(a->peer, stream, chunk, (size_t)n) < 0)
            hy_err_set(&err, -ENOMEM, "out of memory for a checkpoint");
        if (err.code) {
            hy_run_fail(d, &err);
            return;
        }
    }
}

void hy_outputs_agent_gone(struct driver *d, struct agent *a)
{
    struct sending *s;
    struct output *o;
    size_t i;

    (void)d;
    while ((i = 0, s = hy_map_next(&a->sending, &i)))
        sending_free(a, s);
    while ((i = 0, o = hy_map_next(&a->outputs, &i)))
        forget(o);
}
