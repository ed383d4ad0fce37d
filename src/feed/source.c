/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/feed.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "feed/listener.h"
#include "feed/socket.h"

#define SPINS 20 /* checks before a wait sleeps, as in a ring */

struct hy_feed_source {
    int socket;
    struct hy_ring *rows, *results; /* the second arrives with a notice, if requested */
    size_t needed;
    bool is_shut_down; /* the hub has terminated */
    bool is_closed;    /* the hub has closed the connection */
    char terminated_name[HY_FEED_NAME_MAX];
};

/* ---- life cycle --------------------------------------------------------------------- */

void hy_feed_source_close(struct hy_feed_source *s)
{
    if (!s)
        return;
    hy_ring_close(s->rows);
    hy_ring_close(s->results);
    hy_close_at(&s->socket);
    free(s);
}

static bool is_terminated(const char *terminated_name)
{
    const int fd = hy_feed_connect_abstract(terminated_name);

    if (fd >= 0)
        close(fd);
    return fd >= 0 || fd == -EAGAIN; /* its backlog is full of other feeders */
}

/* Connects, or finds the reason why it cannot. */
static int connect_to_hub(struct hy_feed_source *s, const char *name, struct hy_err *err)
{
    int rc = hy_feed_terminated_name(name, s->terminated_name);

    if (rc < 0)
        return hy_err_sys(err, rc, "'%s' is too long for the name of a hub", name);
    s->socket = hy_feed_connect_hub(name);
    if (s->socket >= 0)
        return 0;
    if (s->socket == -ECONNREFUSED && is_terminated(s->terminated_name))
        return hy_err_set(err, -ESHUTDOWN, "the hub '%s' has terminated", name);
    if (s->socket == -EPERM)
        return hy_err_set(err, -EPERM, "the hub '%s' belongs to another user", name);
    return hy_err_sys(err, s->socket, "cannot reach the hub '%s'", name);
}

static int send_hello(struct hy_feed_source *s, const struct hy_feed_source_options *o, struct hy_err *err)
{
    struct hy_feed_hello hello = {
        .magic = HY_FEED_HELLO_MAGIC, .needs_results = o->needs_results, .results_size = o->size};
    hy_cleanup_close int memory = -1;
    int ends[2], rc;

    memcpy(hello.queue, o->queue, strlen(o->queue) + 1);
    rc = hy_feed_socketpair(ends);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot create a socket pair");
    rc = hy_ring_new(o->size, ends[0], &s->rows, &memory, err);
    if (rc == 0) {
        rc = hy_feed_send_packet(s->socket, &hello, sizeof hello, (const int[2]){memory, ends[1]});
        if (rc < 0)
            hy_err_sys(err, rc, "cannot send a hello to the hub");
    }
    close(ends[1]);
    return rc;
}

int hy_feed_source_open(const char *name, const struct hy_feed_source_options *o, struct hy_feed_source **ret,
                        struct hy_err *err)
{
    struct hy_feed_source *s;
    int rc;

    if (strlen(o->queue) >= HY_FEED_QUEUE_MAX || o->size > HY_RING_MAX)
        return hy_err_set(err, -EINVAL,
                          "the name of a queue must be shorter than %u bytes, and a ring at most %u "
                          "bytes",
                          HY_FEED_QUEUE_MAX, HY_RING_MAX);
    s = hy_calloc(1, sizeof *s);
    if (!s)
        return hy_err_oom(err);
    s->socket = -1;
    rc = connect_to_hub(s, name, err);
    if (rc == 0)
        rc = send_hello(s, o, err);
    if (rc < 0) {
        hy_feed_source_close(s);
        return rc;
    }
    *ret = s;
    return 0;
}

/* ---- notices ------------------------------------------------------------------------- */

static int open_results(struct hy_feed_source *s, const int fds[2])
{
    if (s->results || fds[0] < 0 || !hy_feed_is_stream_socket(fds[1])) {
        if (fds[1] >= 0)
            close(fds[1]);
        return -EPROTO;
    }
    return hy_ring_open(fds[0], fds[1], &s->results, NULL);
}

static int handle_notice(struct hy_feed_source *s, const struct hy_feed_notice *n, int fds[2])
{
    int rc = 0;

    if (n->magic == HY_FEED_NOTICE_MAGIC && n->kind == HY_FEED_NOTICE_RESULTS) {
        rc = open_results(s, fds);
        fds[1] = -1;
    } else if (n->magic == HY_FEED_NOTICE_MAGIC && n->kind == HY_FEED_NOTICE_TERMINATED) {
        s->is_shut_down = true;
    } else {
        rc = -EPROTO;
    }
    hy_close_at(&fds[0]);
    hy_close_at(&fds[1]);
    return rc;
}

/* Receives all pending notices. */
static int receive_notices(struct hy_feed_source *s)
{
    int rc = 0;

    while (rc == 0 && !s->is_closed) {
        struct hy_feed_notice n;
        int fds[2];

        rc = hy_feed_recv_packet(s->socket, &n, sizeof n, fds);
        if (rc > 0)
            rc = handle_notice(s, &n, fds);
        else if (rc == 0)
            s->is_closed = true;
    }
    return rc == -EAGAIN || rc == -EINTR ? 0 : rc;
}

/* The ring has lost its reader: the hub has terminated, or its process has died. */
static int disconnect_reason(struct hy_feed_source *s)
{
    (void)receive_notices(s); /* the second name answers where a notice was lost */
    if (!s->is_shut_down)
        s->is_shut_down = is_terminated(s->terminated_name);
    return s->is_shut_down ? -ESHUTDOWN : -EPIPE;
}

/* ---- waiting ------------------------------------------------------------------------- */

static bool has_results(struct hy_feed_source *s)
{
    struct hy_ring_message m;

    return s->results && hy_ring_next(s->results, &m) != 0; /* hy_feed_source_next reports a corrupt ring */
}

static int ready_events(struct hy_feed_source *s, size_t needed)
{
    return (needed && hy_ring_reserve(s->rows, needed) ? HY_FEED_SOURCE_SPACE : 0) |
           (has_results(s) ? HY_FEED_SOURCE_RESULTS : 0);
}

/* Arms the wakeups of both rings; false when an event has happened meanwhile. */
static bool arm_wakeups(struct hy_feed_source *s, size_t needed)
{
    return (!needed || hy_ring_arm_writer(s->rows, needed)) && (!s->results || hy_ring_arm_reader(s->results));
}

/* 1 after a wakeup, 0 on timeout, or the reason why waiting is pointless. */
static int poll_once(struct hy_feed_source *s, int timeout_ms)
{
    struct pollfd p[3] = {{.fd = hy_ring_socket(s->rows), .events = POLLIN},
                          {.fd = s->is_closed ? -1 : s->socket, .events = POLLIN},
                          {.fd = s->results ? hy_ring_socket(s->results) : -1, .events = POLLIN}};
    int rc = poll(p, 3, timeout_ms), disconnected = 0;

    if (rc <= 0)
        return rc == 0 ? 0 : errno == EINTR ? 1 : -errno;
    if (p[2].revents)
        disconnected = hy_ring_drain_wakeups(s->results);
    if (p[1].revents && (rc = receive_notices(s)) < 0)
        return rc;
    if (p[0].revents && hy_ring_drain_wakeups(s->rows) < 0)
        disconnected = -EPIPE;
    return disconnected ? disconnect_reason(s) : s->is_shut_down ? -ESHUTDOWN : 1;
}

int hy_feed_source_wait(struct hy_feed_source *s, size_t needed, int timeout_ms)
{
    const int64_t end = hy_clock_ms() + timeout_ms;
    int rc;

    if (needed > hy_ring_message_max(s->rows))
        return -EMSGSIZE;
    for (int i = 0; i < SPINS; i++, sched_yield())
        if ((rc = ready_events(s, needed)) != 0)
            return rc;
    for (;;) {
        const int64_t left = end - hy_clock_ms();

        rc = arm_wakeups(s, needed) ? poll_once(s, timeout_ms < 0 ? -1 : left > 0 ? (int)left : 0) : 1;
        if (ready_events(s, needed) & HY_FEED_SOURCE_RESULTS)
            return HY_FEED_SOURCE_RESULTS; /* they were sent before the error */
        if (rc <= 0)
            return rc;
        if ((rc = ready_events(s, needed)) != 0)
            return rc;
    }
}

int hy_feed_source_wait_until_taken(struct hy_feed_source *s, int timeout_ms)
{
    int rc = hy_ring_wait_until_empty(s->rows, timeout_ms);

    return rc == -EPIPE ? disconnect_reason(s) : rc;
}

/* ---- rows and results ------------------------------------------------------------------ */

/* Before each batch, so that a terminated hub is noticed before the ring is full. */
static int check_hub(struct hy_feed_source *s)
{
    int rc = receive_notices(s);

    return rc < 0 ? rc : s->is_shut_down ? -ESHUTDOWN : s->is_closed ? disconnect_reason(s) : 0;
}

size_t hy_feed_source_batch_max(const struct hy_feed_source *s)
{
    return hy_ring_message_max(s->rows);
}

size_t hy_feed_source_needed(const struct hy_feed_source *s)
{
    return s->needed;
}

int hy_feed_source_put(struct hy_feed_source *s, const struct hy_batch *b)
{
    void *room;
    int rc = check_hub(s);

    if (rc == 0)
        rc = hy_batch_size(b, &s->needed);
    if (rc < 0)
        return rc;
    if (s->needed > hy_ring_message_max(s->rows))
        return -EMSGSIZE;
    room = hy_ring_reserve(s->rows, s->needed);
    if (!room)
        return 0;
    hy_ring_send(s->rows, HY_FEED_BATCH, hy_batch_write(b, room));
    return 1;
}

bool hy_feed_source_may_pickle(const struct hy_feed_source *s)
{
    return hy_ring_hint(s->rows) == 1;
}

int hy_feed_source_put_end(struct hy_feed_source *s)
{
    int rc = check_hub(s);

    if (rc < 0)
        return rc;
    s->needed = 8;
    if (!hy_ring_reserve(s->rows, s->needed))
        return 0;
    hy_ring_send(s->rows, HY_FEED_END, 0);
    return 1;
}

int hy_feed_source_next(struct hy_feed_source *s, struct hy_ring_message *ret)
{
    return s->results ? hy_ring_next(s->results, ret) : 0;
}

void hy_feed_source_release(struct hy_feed_source *s)
{
    hy_ring_release(s->results);
}
