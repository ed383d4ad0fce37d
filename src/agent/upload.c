/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads the files of a trial from an agent without access to the driver's directory:
 * one stream of pieces of files, one after the other.
 *
 * While the trial runs these are pieces of TensorBoard's event files, so that curves
 * grow as on one machine. When it has ended the rest follows, before it counts as
 * ended. If the project is on HDFS all but the checkpoint goes there directly
 * (hdfs_mirror.c), and over this link only if that fails.
 *
 * Holes are not sent: only the data of a file is, in pieces. A trial that has left more
 * than the limit (--max-transfer, wire/limits.h) fails, and none of its files is sent.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/trial.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "wire/wire.h"

#define CHUNK (64u * 1024)
#define LOOK_MS 2000     /* for new events ... */
#define LOOK_SHARE 50    /* ... and at most 1/50 of the time, if there are very many files */
#define EVENT_FILES 1000 /* the others are sent at the end */
#define HOLE_MIN (64u * 1024) /* shorter holes are sent: a piece costs a message */
#define ANNOUNCED_MAX (HY_ANNOUNCED_LIMIT / 4)
#define CONTROL_MAX (2u << 20) /* bytes of messages that the driver has not received yet */

struct piece {
    char *path;        /* absolute */
    uint64_t from, to; /* to 0: up to the end of the file */
};

/* An event file, and how much of it is sent or scheduled. */
struct events {
    char *path;
    uint64_t sent;
};

struct upload {
    struct piece *pieces;
    size_t count, next;
    struct events *events;
    size_t event_count;
    int64_t look_at; /* for more of them */
    struct mirror *mirror;
    bool is_mirrored; /* all but the checkpoint is on HDFS, or the mirror copies it */
    bool last;       /* the trial has ended: this is the last upload */
    int fd;          /* of the current file */
    struct stat stat;
    bool is_new;     /* not announced yet */
    uint64_t at, to; /* in it */
    uint64_t left;   /* of its piece that was announced */
    uint32_t stream;
    uint64_t sent;
    uint64_t data;      /* bytes that were announced, and ... */
    uint32_t files;     /* ... how many files */
    size_t announced;   /* bytes of messages since the driver last caught up */
    char *failure;      /* why the trial fails: nothing more is sent; NULL: it does not */
};

/* The size of all files of a trial. */
struct left_behind {
    uint64_t bytes;
    uint64_t files;
    bool is_exact;     /* search for holes: allocated blocks may exceed the data */
    bool counts_holes; /* holes are sent: HDFS has none */
};

static struct upload *upload_of(struct trial *t)
{
    if (t->upload)
        return t->upload;
    t->upload = hy_calloc(1, sizeof *t->upload);
    if (t->upload)
        *t->upload = (struct upload){.fd = -1, .is_mirrored = *t->agent->welcomed->welcome->url};
    else
        hy_agent_end(t->agent, 1, "out of memory");
    return t->upload;
}

static void forget_pieces(struct upload *u)
{
    for (size_t i = 0; i < u->count; i++)
        free(u->pieces[i].path);
    u->count = u->next = 0;
}

void hy_agent_upload_free(struct upload *u)
{
    if (!u)
        return;
    hy_agent_mirror_free(u->mirror);
    forget_pieces(u);
    for (size_t i = 0; i < u->event_count; i++)
        free(u->events[i].path);
    hy_close_at(&u->fd);
    free(u->pieces);
    free(u->events);
    free(u->failure);
    free(u);
}

static uint64_t limit_of(const struct trial *t)
{
    return hy_limits_transfer(t->agent->welcomed->welcome->max_transfer);
}

/* Keeps the first reason. Announced bytes are still sent, so that the driver knows when it has them all. */
__attribute__((format(printf, 2, 3))) static void fail_upload(struct trial *t, const char *fmt, ...)
{
    struct upload *u = t->upload;
    struct hy_err err = {0};
    va_list args;

    if (u->failure)
        return;
    va_start(args, fmt);
    vsnprintf(err.text, sizeof err.text, fmt, args);
    va_end(args);
    hy_warn("a trial's files are not sent trial=%llu why=\"%s\"", (unsigned long long)t->number, err.text);
    u->failure = hy_strdup(err.text);
    if (!u->failure)
        hy_agent_end(t->agent, 1, "out of memory");
    u->next = u->count;
}

static void over_transfer(struct trial *t, uint64_t bytes)
{
    char left[40], limit[40];

    fail_upload(t,
                "it left %s of files on a machine without access to the project directory, and at most %s are copied; "
                "raise the limit (max-transfer), or write large files to storage that all machines share",
                hy_format_size(bytes, left, sizeof left), hy_format_size(limit_of(t), limit, sizeof limit));
}

static void over_files(struct trial *t)
{
    fail_upload(t,
                "it left more than %u files on a machine without access to the project directory; pack them into "
                "fewer, or write them to storage that all machines share",
                HY_FILES_LIMIT);
}

/* ---- which ------------------------------------------------------------------------ */

static int add_piece(struct upload *u, const char *path, uint64_t from, uint64_t to)
{
    if (hy_array_grow(u->pieces, u->count) < 0)
        return -ENOMEM;
    u->pieces[u->count] = (struct piece){.path = hy_strdup(path), .from = from, .to = to};
    if (!u->pieces[u->count].path)
        return -ENOMEM;
    u->count++;
    return 0;
}

/* Only files of events have one: a trial may have a million others. */
static bool has_name_of_events(const char *path)
{
    return strstr(strrchr(path, '/'), "tfevents");
}

static struct events *find_events(const struct upload *u, const char *path)
{
    for (size_t i = 0; has_name_of_events(path) && i < u->event_count; i++)
        if (strcmp(u->events[i].path, path) == 0)
            return &u->events[i];
    return NULL;
}

static struct events *add_events(struct upload *u, const char *path)
{
    if (hy_array_grow(u->events, u->event_count) < 0)
        return NULL;
    u->events[u->event_count] = (struct events){.path = hy_strdup(path)};
    return u->events[u->event_count].path ? &u->events[u->event_count++] : NULL;
}

static struct trial *walking; /* nftw has no argument for its callback */

/* A checkpoint goes as a whole. */
static bool is_checkpoint(const char *path)
{
    return strncmp(path + strlen(walking->dir) + 1, "checkpoint/", 11) == 0;
}

static int take_events(const char *path, const struct stat *st, int type, struct FTW *where)
{
    struct upload *u = walking->upload;
    struct events *e = find_events(u, path);
    uint64_t size = (uint64_t)st->st_size;

    (void)where;
    if (type != FTW_F || !S_ISREG(st->st_mode) || !has_name_of_events(path) || is_checkpoint(path) ||
        size == (e ? e->sent : 0) || (!e && u->event_count == EVENT_FILES))
        return 0;
    e = e ? e : add_events(u, path);
    if (!e || add_piece(u, path, size > e->sent ? e->sent : 0, size) < 0) /* a smaller one was made anew */
        return -ENOMEM;
    e->sent = size;
    return 0;
}

static int take_the_rest(const char *path, const struct stat *st, int type, struct FTW *where)
{
    const struct events *e = find_events(walking->upload, path);
    uint64_t size = (uint64_t)st->st_size, sent = e && e->sent <= size ? e->sent : 0;

    (void)where;
    if (type != FTW_F || !S_ISREG(st->st_mode)) /* nor what a symbolic link leads to */
        return 0;
    if (walking->upload->is_mirrored && !hy_agent_mirror_skips(path + strlen(walking->dir) + 1))
        return 0;
    return e && sent == size ? 0 : add_piece(walking->upload, path, sent, 0);
}

/* 0, -Exxx, or what `take` has answered. */
static int walk(struct trial *t, __nftw_func_t take)
{
    int rc;

    walking = t;
    rc = nftw(t->dir, take, 32, FTW_PHYS);
    walking = NULL;
    return rc == -1 ? -errno : rc;
}

/* ---- how much ---------------------------------------------------------------------- */

static struct left_behind counted;

/* Its data. A file that cannot be opened is not sent either. */
static uint64_t data_of(const char *path, uint64_t size)
{
    hy_cleanup_close int fd = HY_SYS(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    uint64_t at = 0, start, end, sum = 0;

    while (fd >= 0 && hy_next_data(fd, at, size, HOLE_MIN, &start, &end)) {
        sum += end - start;
        at = end;
    }
    return sum;
}

static int count(const char *path, const struct stat *st, int type, struct FTW *where)
{
    uint64_t size = (uint64_t)st->st_size, allocated = (uint64_t)st->st_blocks * 512, bytes = size;

    (void)where;
    if (type != FTW_F || !S_ISREG(st->st_mode))
        return 0;
    counted.files++;
    if (!counted.counts_holes && counted.is_exact)
        bytes = data_of(path, size);
    else if (!counted.counts_holes && allocated < size)
        bytes = allocated;
    if (__builtin_add_overflow(counted.bytes, bytes, &counted.bytes))
        counted.bytes = UINT64_MAX;
    return counted.files > HY_FILES_LIMIT;
}

/* Before anything of it is sent: nothing is, if it is too much. Blocks that are allocated and not written count only in
 * the first of two looks; the second one takes its time. */
static void check_limits(struct trial *t)
{
    int rc = 0;

    for (int look = 0; look < 2; look++) {
        counted = (struct left_behind){.is_exact = look, .counts_holes = *t->agent->welcomed->welcome->url};
        rc = walk(t, count);
        if (rc != 0 || counted.bytes <= limit_of(t))
            break;
    }
    if (rc > 0)
        over_files(t);
    else if (rc == -ENOMEM)
        hy_agent_end(t->agent, 1, "out of memory");
    else if (rc < 0)
        fail_upload(t, "its files cannot be listed: %s", strerror(-rc));
    else if (counted.bytes > limit_of(t))
        over_transfer(t, counted.bytes);
}

/* ---- on their way ------------------------------------------------------------------ */

/* What it printed goes by that name: a file of the trial's own must not. */
static bool is_taken(const struct trial *t, const char *name)
{
    return (strcmp(name, "stdout") == 0 && t->captures[0].stream) ||
           (strcmp(name, "stderr") == 0 && t->captures[1].stream);
}

static const char *name_of(const struct trial *t)
{
    return t->upload->pieces[t->upload->next - 1].path + strlen(t->dir) + 1;
}

static void announce(struct trial *t, uint64_t offset, uint64_t size)
{
    struct upload *u = t->upload;
    Hy__Output output = HY__OUTPUT__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    u->files += offset == 0;
    u->data += size;
    u->announced += 64 + strlen(name_of(t));
    output.trial = t->number;
    output.attempt = t->attempt;
    output.stream = u->stream;
    output.path = (char *)name_of(t);
    output.mode = u->stat.st_mode & (S_IFMT | 0777);
    output.size = size;
    output.offset = offset;
    m.body_case = HY__CONTROL__BODY_OUTPUT;
    m.output = &output;
    hy_agent_send(t->agent, &m);
}

/* A file that the trial has hidden from us is its own affair. But a checkpoint
 * with a hole in it is worse than none, and on a disk that cannot be read
 * nothing should run: then the attempt counts as lost. */
static void cannot_send(struct trial *t, const char *name, int error)
{
    hy_warn_limited("cannot upload a file trial=%llu path=%s error=%s", (unsigned long long)t->number, name,
                    strerror(error));
    if (error == EIO || error == ENOMEM || error == EMFILE || error == ENFILE)
        hy_agent_end(t->agent, 1, "a trial's file cannot be read");
    else if (strncmp(name, "checkpoint/", 11) == 0 || (error != EACCES && error != ENOENT && error != ENODATA))
        fail_upload(t, "its file '%.200s' cannot be read: %s", name, strerror(error));
}

/* Its name and its length, as the driver takes them. */
static bool can_be_named(struct trial *t)
{
    const char *wrong = hy_limits_check_path(name_of(t));

    if (wrong)
        fail_upload(t, "its file '%.200s' cannot be copied to the project: its path %s", name_of(t), wrong);
    else if (t->upload->to > HY_FILE_SIZE_LIMIT)
        fail_upload(t, "its file '%.200s' cannot be copied to the project: it ends at byte %llu", name_of(t),
                    (unsigned long long)t->upload->to);
    return !t->upload->failure;
}

static void close_file(struct upload *u)
{
    hy_close_at(&u->fd);
    u->fd = -1;
}

static void open_next(struct trial *t)
{
    struct upload *u = t->upload;
    const struct piece *p = &u->pieces[u->next++];

    if (is_taken(t, name_of(t))) {
        hy_warn_limited("a file is not sent back: what the trial printed has its name path=%s", p->path);
        return;
    }
    u->fd = HY_SYS(open(p->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (u->fd < 0 || HY_SYS(fstat(u->fd, &u->stat)) < 0) {
        cannot_send(t, name_of(t), errno);
        close_file(u);
        return;
    }
    if (!u->stream)
        u->stream = t->agent->next_stream++;
    u->at = p->from;
    u->to = p->to ? p->to : (uint64_t)u->stat.st_size;
    u->left = 0;
    u->is_new = p->from == 0;
    if (!can_be_named(t))
        close_file(u);
}

/* Announces the next data of the current file. A file that begins with a hole is made first, and one that ends with a
 * hole gets its length by an empty piece there. False: no more data. */
static bool next_piece(struct trial *t)
{
    struct upload *u = t->upload;
    uint64_t start = u->to, end = u->to;

    if (u->failure || (u->at >= u->to && !u->is_new))
        return false;
    if (!hy_next_data(u->fd, u->at, u->to, HOLE_MIN, &start, &end))
        start = end = u->to;
    if (u->is_new && u->files == HY_FILES_LIMIT)
        over_files(t);
    else if (end - start > limit_of(t) - u->data)
        over_transfer(t, u->data + (end - start));
    if (u->failure)
        return false;
    if (u->is_new && start > 0)
        announce(t, 0, 0);
    u->is_new = false;
    announce(t, start, end - start);
    u->at = start;
    u->left = end - start;
    return true;
}

/* So that the driver need not hold more than it has said; the next tick looks again. */
static bool has_caught_up(struct trial *t)
{
    struct upload *u = t->upload;

    if (hy_peer_unacked(t->agent->peer, HY_STREAM_CONTROL) > CONTROL_MAX)
        return false;
    if (u->announced >= ANNOUNCED_MAX && hy_peer_room(t->agent->peer, u->stream) < HY_STREAM_WINDOW)
        return false;
    if (u->announced >= ANNOUNCED_MAX)
        u->announced = 0;
    return true;
}

/* Sends as much as there is room for; 1 when the piece is over, 0 when full. */
static int send_some(struct trial *t)
{
    static uint8_t chunk[CHUNK]; /* one loop, used within this call only */
    struct upload *u = t->upload;

    while (u->left) {
        size_t want = u->left < CHUNK ? (size_t)u->left : CHUNK;
        ssize_t n;

        if (hy_peer_room(t->agent->peer, u->stream) < CHUNK)
            return 0;
        n = HY_SYS(pread(u->fd, chunk, want, (off_t)u->at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) { /* it has shrunk: zeros keep the others in their place */
            cannot_send(t, name_of(t), n < 0 ? errno : ENODATA);
            memset(chunk, 0, want);
            n = (ssize_t)want;
        }
        if (hy_peer_write(t->agent->peer, u->stream, chunk, (size_t)n) < 0)
            hy_agent_end(t->agent, 1, "out of memory");
        if (hy_agent_is_broken(t->agent))
            return 0;
        u->left -= (uint64_t)n;
        u->at += (uint64_t)n;
        u->sent += (uint64_t)n;
    }
    return 1;
}

static bool is_under_way(const struct upload *u)
{
    return u->fd >= 0 || u->next < u->count;
}

/* A trial that succeeded fails for this reason. One that has failed keeps its own reason, and a note reports this. */
static void take_failure(struct trial *t)
{
    struct upload *u = t->upload;
    bool well = t->ended.outcome == HY__ENDED__OUTCOME__EXITED && t->ended.code == 0;

    if (!u->failure)
        return;
    if (well && !t->message)
        t->message = hy_take(u->failure);
    else
        hy_agent_note(t->agent, "trial %llu: %s", (unsigned long long)t->number, u->failure);
}

static void finish(struct trial *t)
{
    struct upload *u = t->upload;

    t->ended.sent_files = !u->failure;
    take_failure(t);
    if (u->stream && hy_agent_trial_add_output(t, u->stream, u->sent) < 0)
        hy_agent_end(t->agent, 1, "out of memory");
    hy_agent_trial_finish(t);
}

/* True: the trial is over, and gone. */
static bool send_more(struct trial *t)
{
    struct upload *u = t->upload;

    while (!hy_agent_is_broken(t->agent) && is_under_way(u)) {
        if (u->left == 0 && !has_caught_up(t))
            return false; /* hy_agent_upload_tick goes on */
        if (u->fd < 0)
            open_next(t);
        else if (u->left == 0 && !next_piece(t))
            close_file(u);
        else if (send_some(t) == 0 && !hy_agent_is_broken(t->agent))
            return false; /* hy_agent_upload_room goes on */
    }
    if (!u->last)
        return false;
    finish(t);
    return true;
}

/* ---- when ------------------------------------------------------------------------ */

static void begin_mirror(struct trial *t)
{
    t->upload->mirror = hy_agent_mirror_start(t);
    t->upload->is_mirrored = t->upload->mirror;
}

static void look_for_events(struct trial *t, int64_t now)
{
    struct upload *u = t->upload;
    int64_t took;
    int rc;

    forget_pieces(u);
    rc = walk(t, take_events);
    if (rc == -ENOMEM)
        hy_agent_end(t->agent, 1, "out of memory");
    took = hy_clock_ms() - now;
    u->look_at = now + (took * LOOK_SHARE > LOOK_MS ? took * LOOK_SHARE : LOOK_MS);
    send_more(t);
}

bool hy_agent_upload_tick(struct trial *t)
{
    int64_t now = hy_clock_ms();
    struct upload *u;

    if (t->agent->shares_files || !t->agent->peer)
        return false;
    if (t->upload && is_under_way(t->upload))
        return send_more(t);
    if (!t->process || !(u = upload_of(t)) || u->last || u->failure || now < u->look_at)
        return false;
    if (!u->is_mirrored)
        look_for_events(t, now);
    else if (!u->mirror)
        begin_mirror(t);
    return false;
}

static void send_the_rest(struct trial *t)
{
    struct upload *u = t->upload;
    int rc;

    u->last = true;
    if (!u->failure)
        check_limits(t);
    rc = u->failure ? 0 : walk(t, take_the_rest);
    if (rc == -ENOMEM)
        hy_agent_end(t->agent, 1, "out of memory");
    else if (rc != 0)
        fail_upload(t, "its files cannot be listed: %s", strerror(-rc));
    send_more(t);
}

void hy_agent_upload_all(struct trial *t)
{
    struct upload *u = upload_of(t);

    if (!u) {
        hy_agent_trial_free(t);
        return;
    }
    if (u->is_mirrored && !u->mirror)
        begin_mirror(t);
    if (u->is_mirrored)
        check_limits(t);
    if (u->is_mirrored && !u->failure) {
        hy_agent_mirror_end(u->mirror);
        return;
    }
    hy_agent_mirror_free(hy_take(u->mirror));
    send_the_rest(t);
}

void hy_agent_upload_mirrored(struct trial *t, bool is_whole)
{
    struct upload *u = t->upload;

    hy_agent_mirror_free(hy_take(u->mirror));
    u->is_mirrored = is_whole;
    if (!t->process)
        send_the_rest(t);
}

bool hy_agent_upload_room(struct trial *t, uint32_t stream)
{
    if (!t->upload || t->upload->stream != stream || t->upload->fd < 0)
        return false;
    send_more(t);
    return true;
}
