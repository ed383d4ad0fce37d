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

#define LOOKS 20 /* before who waits sleeps, as in a ring */

struct hy_feed_source {
    int socket;
    struct hy_ring *rows, *results; /* the second comes with a notice, if it was wanted */
    size_t need;
    bool is_over;  /* the hub has had enough */
    bool is_alone; /* it has said its last word */
    char end[HY_FEED_NAME_MAX];
};

/* ---- from birth to death ------------------------------------------------------------ */

void hy_feed_source_close(struct hy_feed_source *s)
{
    if (!s)
        return;
    hy_ring_close(s->rows);
    hy_ring_close(s->results);
    hy_close_at(&s->socket);
    free(s);
}

static bool has_had_enough(const char *end)
{
    const int fd = hy_feed_connect_abstract(end);

    if (fd >= 0)
        close(fd);
    return fd >= 0 || fd == -EAGAIN; /* so many have asked already that no more of them can be held */
}

/* Connects, or finds out why not. */
static int dial(struct hy_feed_source *s, const char *name, struct hy_err *err)
{
    int rc = hy_feed_terminated_name(name, s->end);

    if (rc < 0)
        return hy_err_sys(err, rc, "'%s' cannot be a hub's name", name);
    s->socket = hy_feed_connect_hub(name);
    if (s->socket >= 0)
        return 0;
    if (s->socket == -ECONNREFUSED && has_had_enough(s->end))
        return hy_err_set(err, -ESHUTDOWN, "the hub '%s' has had enough", name);
    if (s->socket == -EPERM)
        return hy_err_set(err, -EPERM, "the hub '%s' belongs to somebody else", name);
    return hy_err_sys(err, s->socket, "cannot reach the hub '%s'", name);
}

static int greet(struct hy_feed_source *s, const struct hy_feed_source_options *o, struct hy_err *err)
{
    struct hy_feed_hello hello = {.magic = HY_FEED_HELLO_MAGIC, .wants_results = o->wants_results, .results_size = o->size};
    hy_cleanup_close int memory = -1;
    int ends[2], rc;

    memcpy(hello.queue, o->queue, strlen(o->queue) + 1);
    rc = hy_feed_socketpair(ends);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot make a socket");
    rc = hy_ring_new(o->size, ends[0], &s->rows, &memory, err);
    if (rc == 0) {
        rc = hy_feed_send_packet(s->socket, &hello, sizeof hello, (const int[2]){memory, ends[1]});
        if (rc < 0)
            hy_err_sys(err, rc, "cannot greet the hub");
    }
    close(ends[1]);
    return rc;
}

int hy_feed_source_open(const char *name, const struct hy_feed_source_options *o, struct hy_feed_source **ret, struct hy_err *err)
{
    struct hy_feed_source *s;
    int rc;

    if (strlen(o->queue) >= HY_FEED_QUEUE_MAX || o->size > HY_RING_MAX)
        return hy_err_set(err, -EINVAL, "a queue's name has less than %u bytes, and a ring at most %u", HY_FEED_QUEUE_MAX,
                          HY_RING_MAX);
    s = hy_calloc(1, sizeof *s);
    if (!s)
        return hy_err_sys(err, -ENOMEM, "cannot open a source");
    s->socket = -1;
    rc = dial(s, name, err);
    if (rc == 0)
        rc = greet(s, o, err);
    if (rc < 0) {
        hy_feed_source_close(s);
        return rc;
    }
    *ret = s;
    return 0;
}

/* ---- what the hub says --------------------------------------------------------------- */

static int open_results(struct hy_feed_source *s, const int fds[2])
{
    if (s->results || fds[0] < 0 || !hy_feed_is_stream_socket(fds[1])) {
        if (fds[1] >= 0)
            close(fds[1]);
        return -EPROTO;
    }
    return hy_ring_open(fds[0], fds[1], &s->results, NULL);
}

static int heed(struct hy_feed_source *s, const struct hy_feed_notice *n, int fds[2])
{
    int rc = 0;

    if (n->magic == HY_FEED_NOTICE_MAGIC && n->kind == HY_FEED_NOTICE_RESULTS) {
        rc = open_results(s, fds);
        fds[1] = -1;
    } else if (n->magic == HY_FEED_NOTICE_MAGIC && n->kind == HY_FEED_NOTICE_TERMINATED) {
        s->is_over = true;
    } else {
        rc = -EPROTO;
    }
    hy_close_at(&fds[0]);
    hy_close_at(&fds[1]);
    return rc;
}

/* Takes all notices that are there. */
static int hear(struct hy_feed_source *s)
{
    int rc = 0;

    while (rc == 0 && !s->is_alone) {
        struct hy_feed_notice n;
        int fds[2];

        rc = hy_feed_recv_packet(s->socket, &n, sizeof n, fds);
        if (rc > 0)
            rc = heed(s, &n, fds);
        else if (rc == 0)
            s->is_alone = true;
    }
    return rc == -EAGAIN || rc == -EINTR ? 0 : rc;
}

/* The ring has no reader any more: because it had enough, or because it died. */
static int why_gone(struct hy_feed_source *s)
{
    (void)hear(s); /* what it was not able to say is told by the name */
    if (!s->is_over)
        s->is_over = has_had_enough(s->end);
    return s->is_over ? -ESHUTDOWN : -EPIPE;
}

/* ---- waiting ------------------------------------------------------------------------- */

static bool has_results(struct hy_feed_source *s)
{
    struct hy_ring_message m;

    return s->results && hy_ring_next(s->results, &m) != 0; /* nonsense is found by who takes it */
}

static int look(struct hy_feed_source *s, size_t need)
{
    return (need && hy_ring_reserve(s->rows, need) ? HY_FEED_SOURCE_SPACE : 0) | (has_results(s) ? HY_FEED_SOURCE_RESULTS : 0);
}

/* Says to both sides that we sleep; false when there is something after all. */
static bool may_sleep(struct hy_feed_source *s, size_t need)
{
    return (!need || hy_ring_arm_writer(s->rows, need)) && (!s->results || hy_ring_arm_reader(s->results));
}

/* Sleeps until something happens. 1, 0 when it took too long, or why there is nothing to wait for. */
static int sleep_once(struct hy_feed_source *s, int timeout_ms)
{
    struct pollfd p[3] = {{.fd = hy_ring_socket(s->rows), .events = POLLIN},
                          {.fd = s->is_alone ? -1 : s->socket, .events = POLLIN},
                          {.fd = s->results ? hy_ring_socket(s->results) : -1, .events = POLLIN}};
    int rc = poll(p, 3, timeout_ms), gone = 0;

    if (rc <= 0)
        return rc == 0 ? 0 : errno == EINTR ? 1 : -errno;
    if (p[2].revents)
        gone = hy_ring_drain_wakeups(s->results);
    if (p[1].revents && (rc = hear(s)) < 0)
        return rc;
    if (p[0].revents && hy_ring_drain_wakeups(s->rows) < 0)
        gone = -EPIPE;
    return gone ? why_gone(s) : s->is_over ? -ESHUTDOWN : 1;
}

int hy_feed_source_wait(struct hy_feed_source *s, size_t need, int timeout_ms)
{
    const int64_t end = hy_clock_ms() + timeout_ms;
    int rc;

    if (need > hy_ring_message_max(s->rows))
        return -EMSGSIZE;
    for (int i = 0; i < LOOKS; i++, sched_yield())
        if ((rc = look(s, need)) != 0)
            return rc;
    for (;;) {
        const int64_t left = end - hy_clock_ms();

        rc = may_sleep(s, need) ? sleep_once(s, timeout_ms < 0 ? -1 : left > 0 ? (int)left : 0) : 1;
        if (look(s, need) & HY_FEED_SOURCE_RESULTS)
            return HY_FEED_SOURCE_RESULTS; /* they were sent before whatever is wrong now */
        if (rc <= 0)
            return rc;
        if ((rc = look(s, need)) != 0)
            return rc;
    }
}

int hy_feed_source_wait_until_taken(struct hy_feed_source *s, int timeout_ms)
{
    int rc = hy_ring_wait_until_empty(s->rows, timeout_ms);

    return rc == -EPIPE ? why_gone(s) : rc;
}

/* ---- rows and results ------------------------------------------------------------------ */

/* Before anything is put: who is told at once that nobody wants it does not fill the ring first. */
static int check(struct hy_feed_source *s)
{
    int rc = hear(s);

    return rc < 0 ? rc : s->is_over ? -ESHUTDOWN : s->is_alone ? why_gone(s) : 0;
}

size_t hy_feed_source_batch_max(const struct hy_feed_source *s)
{
    return hy_ring_message_max(s->rows);
}

size_t hy_feed_source_needed(const struct hy_feed_source *s)
{
    return s->need;
}

int hy_feed_source_put(struct hy_feed_source *s, const struct hy_batch *b)
{
    void *room;
    int rc = check(s);

    if (rc == 0)
        rc = hy_batch_size(b, &s->need);
    if (rc < 0)
        return rc;
    if (s->need > hy_ring_message_max(s->rows))
        return -EMSGSIZE;
    room = hy_ring_reserve(s->rows, s->need);
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
    int rc = check(s);

    if (rc < 0)
        return rc;
    s->need = 8;
    if (!hy_ring_reserve(s->rows, s->need))
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
