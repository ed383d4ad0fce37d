/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints sent to agents that do not share files: the checkpoint of an
 * attempt is available to the next one, on whatever machine it runs.
 *
 * The files share one stream, and large holes in them are not sent. A
 * checkpoint that cannot be read, or is larger than --max-transfer, fails its
 * trial. That happens at a tick, since ranks that start together must all have
 * been started before one of them fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "driver/run.h"
#include "wire/wire.h"

#define CHECKPOINT "checkpoint"
#define HOLE_MIN (1u << 20)         /* shorter holes are sent */
#define NAMES_MAX (8u * 1024 * 1024) /* bytes of all paths: they must fit into one message */
#define PIECES_MAX 200000u          /* files, and data between holes */

struct to_send {
    char *path;
    uint64_t size, offset;
};

struct transfer {
    struct trial *trial;
    uint32_t stream;
    struct to_send *files;
    size_t count, next;
    int fd; /* of the current file */
    uint64_t at, left;
    uint64_t bytes; /* of all files */
    size_t names;
    bool is_started;   /* the agent has received its Start */
    struct hy_err err; /* why it cannot be sent */
};

static void transfer_free(struct agent *a, struct transfer *s)
{
    if (hy_map_get(&a->sending, s->stream) == s)
        hy_map_remove(&a->sending, s->stream);
    for (size_t i = 0; i < s->count; i++)
        free(s->files[i].path);
    hy_close_at(&s->fd);
    free(s->files);
    free(s);
}

/* ---- listing the files ----------------------------------------------------------------------- */

static struct {
    struct transfer *transfer;
    Hy__Start *start;
    size_t prefix;
    uint64_t limit;
} walk; /* nftw has no argument for its callback */

static int add_piece(const char *path, mode_t mode, uint64_t offset, uint64_t size)
{
    struct transfer *s = walk.transfer;
    Hy__Start *start = walk.start;
    Hy__FileSent *f;

    if (hy_array_grow(start->files, start->n_files) < 0 || hy_array_grow(s->files, s->count) < 0)
        return -ENOMEM;
    f = hy_malloc(sizeof *f);
    if (!f)
        return -ENOMEM;
    hy__file_sent__init(f);
    start->files[start->n_files++] = f;
    f->path = hy_strdup(path + walk.prefix);
    f->mode = mode & 0777;
    f->size = size;
    f->offset = offset;
    f->stream = s->stream;
    s->files[s->count++] = (struct to_send){.path = hy_strdup(path), .size = size, .offset = offset};
    s->bytes += size;
    s->names += strlen(path);
    return f->path && s->files[s->count - 1].path ? 0 : -ENOMEM;
}

/* 0, or 1: a limit is exceeded, and the walk ends. */
static int check_limits(struct transfer *s, uint64_t limit)
{
    char text[40];

    if (s->bytes > limit)
        hy_err_set(&s->err, -EFBIG,
                   "its checkpoint is larger than the %s that may be copied (max-transfer); raise the limit, "
                   "or keep checkpoints on storage that all machines share",
                   hy_format_size(limit, text, sizeof text));
    else if (s->count > PIECES_MAX || s->names > NAMES_MAX)
        hy_err_set(&s->err, -E2BIG,
                   "its checkpoint has too many files to be sent to another machine; "
                   "pack them into fewer, or keep checkpoints on storage that all machines share");
    return s->err.code ? 1 : 0;
}

/* Without its holes. An empty piece creates a file that begins with a hole, or extends one that ends with a hole. */
static int add_sparse(const char *path, const struct stat *st)
{
    uint64_t at = 0, size = (uint64_t)st->st_size, start = 0, end = 0;
    hy_cleanup_close int fd = HY_SYS(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    int rc;

    if (fd < 0)
        return -errno;
    rc = hy_next_data(fd, 0, size, HOLE_MIN, &start, &end) && start == 0 ? 0 : add_piece(path, st->st_mode, 0, 0);
    while (rc == 0 && walk.transfer->count <= PIECES_MAX && hy_next_data(fd, at, size, HOLE_MIN, &start, &end)) {
        rc = add_piece(path, st->st_mode, start, end - start);
        at = end;
    }
    return rc == 0 && at < size ? add_piece(path, st->st_mode, size, 0) : rc;
}

static int add_file(const char *path, const struct stat *st, int type, struct FTW *where)
{
    int rc;

    (void)where;
    if (type == FTW_DNR)
        return -EACCES;
    if (type != FTW_F || !S_ISREG(st->st_mode))
        return 0;
    if ((uint64_t)st->st_blocks * 512 < (uint64_t)st->st_size)
        rc = add_sparse(path, st);
    else
        rc = add_piece(path, st->st_mode, 0, (uint64_t)st->st_size);
    return rc < 0 ? rc : check_limits(walk.transfer, walk.limit);
}

/* 0 or -ENOMEM; other errors are in s->err. */
static int list_files(struct transfer *s, Hy__Start *start, const char *dir, const char *checkpoint, uint64_t limit)
{
    int rc;

    walk.transfer = s;
    walk.start = start;
    walk.prefix = strlen(dir) + 1;
    walk.limit = limit;
    rc = nftw(checkpoint, add_file, 32, FTW_PHYS);
    if (rc == -1)
        rc = -errno;
    if (rc < 0 && rc != -ENOMEM)
        hy_err_sys(&s->err, rc, "cannot read its checkpoint '%.200s'", checkpoint);
    return rc == -ENOMEM ? rc : 0;
}

static struct transfer *transfer_new(struct agent *a, struct trial *t)
{
    struct transfer *s = hy_calloc(1, sizeof *s);

    if (!s)
        return NULL;
    *s = (struct transfer){.trial = t, .stream = a->next_stream++, .fd = -1};
    if (hy_map_put(&a->sending, s->stream, s) == 0)
        return s;
    free(s);
    return NULL;
}

int hy_checkpoint_send(struct driver *d, struct agent *a, struct trial *t, Hy__Start *start)
{
    hy_cleanup_free char *dir = hy_path_join(d->logdir, t->dir);
    hy_cleanup_free char *checkpoint = dir ? hy_path_join(dir, CHECKPOINT) : NULL;
    struct transfer *s;

    if (!checkpoint)
        return -ENOMEM;
    hy_outputs_remove_partial_checkpoint(d, t); /* of a driver that died */
    if (access(checkpoint, F_OK) < 0)
        return 0;
    s = transfer_new(a, t);
    if (!s)
        return -ENOMEM;
    if (list_files(s, start, dir, checkpoint, hy_limits_transfer(d->spec->max_transfer)) < 0) {
        transfer_free(a, s);
        return -ENOMEM;
    }
    if (s->err.code)
        return -ECANCELED;
    s->is_started = true;
    hy_checkpoint_continue(a, s->stream);
    return 0;
}

void hy_checkpoint_free_files(Hy__Start *start)
{
    for (size_t i = 0; i < start->n_files; i++) {
        if (start->files[i]->path != protobuf_c_empty_string)
            free(start->files[i]->path);
        free(start->files[i]);
    }
    free(start->files);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* The number of bytes read; 0 at the end, or -Exxx. */
static ssize_t read_chunk(struct transfer *s, uint8_t *to, size_t room)
{
    ssize_t n;

    while (s->left == 0) {
        const struct to_send *f = &s->files[s->next];

        hy_close_at(&s->fd);
        s->fd = -1;
        if (s->next == s->count)
            return 0;
        s->next++;
        s->left = f->size;
        s->at = f->offset;
        s->fd = HY_SYS(open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
        if (s->fd < 0)
            return -errno;
    }
    n = HY_SYS(pread(s->fd, to, s->left < room ? (size_t)s->left : room, (off_t)s->at));
    if (n <= 0)
        return n < 0 ? -errno : -ENODATA; /* it has become shorter meanwhile */
    s->left -= (uint64_t)n;
    s->at += (uint64_t)n;
    return n;
}

void hy_checkpoint_continue(struct agent *a, uint32_t stream)
{
    static uint8_t chunk[64 * 1024]; /* one loop, used within this call only */
    struct transfer *s = hy_map_get(&a->sending, stream);

    if (s && hy_peer_is_forgotten(a->peer, stream)) { /* the peer ignores this stream: sending would be useless */
        transfer_free(a, s);
        return;
    }
    while (s && !s->err.code && hy_peer_room(a->peer, stream) >= sizeof chunk) {
        ssize_t n = read_chunk(s, chunk, sizeof chunk);

        if (n == 0) {
            transfer_free(a, s);
            return;
        }
        if (n < 0)
            hy_err_sys(&s->err, (int)n, "cannot read '%.200s' of its checkpoint", s->files[s->next - 1].path);
        else if (hy_peer_write(a->peer, stream, chunk, (size_t)n) < 0)
            hy_err_set(&s->err, -ENOMEM, "out of memory while sending a checkpoint");
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* As if the agent had reported that the trial cannot be started. */
static void fail_trial(struct driver *d, struct agent *a, struct transfer *s)
{
    Hy__Ended ended = HY__ENDED__INIT;
    Hy__Control m = HY__CONTROL__INIT;
    struct trial *t = s->trial;
    struct hy_err err = s->err;

    if (s->is_started) {
        hy_trial_kill(d, t);
        t->killed = false;
    }
    transfer_free(a, s);
    ended.trial = t->number;
    ended.attempt = t->attempt;
    ended.outcome = HY__ENDED__OUTCOME__NOT_STARTED;
    ended.code = err.code;
    ended.message = err.text;
    m.body_case = HY__CONTROL__BODY_ENDED;
    m.ended = &ended;
    hy_trials_ended(d, a, &m);
}

static struct transfer *find_failed(struct agent *a)
{
    struct transfer *s;

    for (size_t i = 0; (s = hy_map_next(&a->sending, &i));)
        if (s->err.code)
            return s;
    return NULL;
}

void hy_checkpoints_tick(struct driver *d)
{
    struct transfer *s;
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        while (d->phase < PHASE_ENDING && (s = find_failed(a)))
            fail_trial(d, a, s);
}

void hy_checkpoint_cancel(struct trial *t)
{
    struct transfer *s;

    for (size_t i = 0; t->agent && (s = hy_map_next(&t->agent->sending, &i));)
        if (s->trial == t) {
            transfer_free(t->agent, s);
            return;
        }
}

void hy_checkpoints_agent_lost(struct agent *a)
{
    struct transfer *s;
    size_t i;

    while ((i = 0, s = hy_map_next(&a->sending, &i)))
        transfer_free(a, s);
}
