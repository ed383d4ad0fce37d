/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trial writes on an agent that does not see the driver's folder, on its
 * way there: one stream, the bytes of one piece of a file behind those of
 * another.
 *
 * While the trial runs these are pieces of TensorBoard's event files, so that
 * curves grow as on one machine. When it is over all the rest goes, before it
 * counts as ended. Where the project is on HDFS all but the checkpoint goes
 * there straight (mirror.c), and this way only if that fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
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

#define CHUNK (64u * 1024)
#define LOOK_MS 2000     /* for new events ... */
#define LOOK_SHARE 50    /* ... and for a fiftieth of the time at most, where there are very many files */
#define EVENT_FILES 1000 /* those beyond go at the end */

struct piece {
    char *path;        /* absolute */
    uint64_t from, to; /* to 0: all that there is then */
};

/* An event file, and how much of it has gone or is about to. */
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
    bool is_mirrored; /* all but the checkpoint is on HDFS, or the mirror is at it */
    bool last;       /* the trial is over, and this is all */
    int fd;          /* of the piece under way */
    uint64_t left;
    uint32_t stream;
    uint64_t sent;
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
    free(u);
}

/* ---- which ------------------------------------------------------------------------ */

static int add_piece(struct upload *u, const char *path, uint64_t from, uint64_t to)
{
    struct piece *more = hy_reallocarray(u->pieces, u->count + 1, sizeof *more);

    if (!more)
        return -ENOMEM;
    u->pieces = more;
    more[u->count] = (struct piece){.path = hy_strdup(path), .from = from, .to = to};
    if (!more[u->count].path)
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
    struct events *more = hy_reallocarray(u->events, u->event_count + 1, sizeof *more);

    if (!more)
        return NULL;
    u->events = more;
    more[u->event_count] = (struct events){.path = hy_strdup(path)};
    return more[u->event_count].path ? &more[u->event_count++] : NULL;
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
    if (walking->upload->is_mirrored && !hy_agent_mirror_leaves(path + strlen(walking->dir) + 1))
        return 0;
    return e && sent == size ? 0 : add_piece(walking->upload, path, sent, 0);
}

static int walk(struct trial *t, __nftw_func_t take)
{
    int rc;

    walking = t;
    rc = nftw(t->dir, take, 32, FTW_PHYS);
    walking = NULL;
    return rc;
}

/* ---- on their way ------------------------------------------------------------------ */

/* What it printed goes by that name: a file of the trial's own must not. */
static bool is_taken(const struct trial *t, const char *name)
{
    return (strcmp(name, "stdout") == 0 && t->captures[0].stream) || (strcmp(name, "stderr") == 0 && t->captures[1].stream);
}

static void announce(struct trial *t, const char *name, const struct stat *st, uint64_t from)
{
    Hy__Output output = HY__OUTPUT__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    output.trial = t->number;
    output.attempt = t->attempt;
    output.stream = t->upload->stream;
    output.path = (char *)name;
    output.mode = st->st_mode & (S_IFMT | 0777);
    output.size = t->upload->left;
    output.offset = from;
    m.body_case = HY__CONTROL__BODY_OUTPUT;
    m.output = &output;
    hy_agent_send(t->agent, &m);
}

/* A file that the trial has hidden from us is its own affair. But a checkpoint
 * with a hole in it is worse than none, and on a disk that cannot be read
 * nothing should run: then the attempt counts as lost. */
static void cannot_send(struct trial *t, const char *name, int error)
{
    hy_warn("cannot send a file back trial=%llu path=%s error=%s", (unsigned long long)t->number, name, strerror(error));
    if (strncmp(name, "checkpoint/", 11) == 0 || (error != EACCES && error != ENOENT && error != ENODATA))
        hy_agent_end(t->agent, 1, "a trial's file cannot be read");
}

static void open_next(struct trial *t)
{
    struct upload *u = t->upload;
    const struct piece *p = &u->pieces[u->next++];
    const char *name = p->path + strlen(t->dir) + 1;
    uint64_t to;
    struct stat st;

    if (is_taken(t, name)) {
        hy_warn("a file is not sent back: what the trial printed has its name path=%s", p->path);
        return;
    }
    u->fd = HY_SYS(open(p->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (u->fd < 0 || HY_SYS(fstat(u->fd, &st)) < 0 || HY_SYS(lseek(u->fd, (off_t)p->from, SEEK_SET)) < 0) {
        cannot_send(t, name, errno);
        hy_close_at(&u->fd);
        u->fd = -1;
        return;
    }
    if (!u->stream)
        u->stream = t->agent->next_stream++;
    to = p->to ? p->to : (uint64_t)st.st_size;
    u->left = to > p->from ? to - p->from : 0;
    announce(t, name, &st, p->from);
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
        n = HY_SYS(read(u->fd, chunk, want));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) { /* it has shrunk: zeros keep the others in their place */
            cannot_send(t, u->pieces[u->next - 1].path + strlen(t->dir) + 1, n < 0 ? errno : ENODATA);
            memset(chunk, 0, want);
            n = (ssize_t)want;
        }
        if (hy_peer_write(t->agent->peer, u->stream, chunk, (size_t)n) < 0)
            hy_agent_end(t->agent, 1, "out of memory");
        if (hy_agent_is_broken(t->agent))
            return 0;
        u->left -= (uint64_t)n;
        u->sent += (uint64_t)n;
    }
    return 1;
}

static bool is_under_way(const struct upload *u)
{
    return u->fd >= 0 || u->next < u->count;
}

static void send_more(struct trial *t)
{
    struct upload *u = t->upload;

    while (!hy_agent_is_broken(t->agent) && is_under_way(u)) {
        if (u->fd < 0)
            open_next(t);
        if (u->fd < 0)
            continue;
        if (send_some(t) == 0) {
            if (!hy_agent_is_broken(t->agent))
                return; /* hy_agent_upload_room goes on */
            break;
        }
        hy_close_at(&u->fd);
        u->fd = -1;
    }
    if (!u->last)
        return;
    t->ended.sent_files = 1;
    if (u->stream && hy_agent_trial_add_output(t, u->stream, u->sent) < 0)
        hy_agent_end(t->agent, 1, "out of memory");
    hy_agent_trial_finish(t);
}

/* ---- when ------------------------------------------------------------------------ */

static void begin_mirror(struct trial *t)
{
    t->upload->mirror = hy_agent_mirror_start(t);
    t->upload->is_mirrored = t->upload->mirror;
}

void hy_agent_upload_tick(struct trial *t)
{
    int64_t now = hy_clock_ms(), took;
    struct upload *u;

    if (t->agent->shares_files || !t->process || !t->agent->peer || !(u = upload_of(t)) || u->last || now < u->look_at ||
        is_under_way(u))
        return;
    if (u->is_mirrored) {
        if (!u->mirror)
            begin_mirror(t);
        return;
    }
    forget_pieces(u);
    if (walk(t, take_events) == -ENOMEM)
        hy_agent_end(t->agent, 1, "out of memory");
    took = hy_clock_ms() - now;
    u->look_at = now + (took * LOOK_SHARE > LOOK_MS ? took * LOOK_SHARE : LOOK_MS);
    send_more(t);
}

static void send_the_rest(struct trial *t)
{
    t->upload->last = true;
    if (walk(t, take_the_rest) != 0)
        hy_agent_end(t->agent, 1, "a trial's files cannot be listed");
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
        hy_agent_mirror_end(u->mirror);
    else
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
