/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A feeder is in the list from the moment it is accepted, at first with only its
 * connection; its hello brings the ring. It is removed when the peer of its ring is
 * gone and the ring is empty.
 *
 * After termination no thread may be calling into the hub any more to answer new
 * feeders. So the hub stops listening at its name and listens at a second one
 * instead, where a successful connect is the answer. It binds both from the start:
 * abstract names are visible to every user, and anybody could take a free one.
 */
#include "feed/feed.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/list.h"
#include "base/mem.h"
#include "feed/listener.h"
#include "feed/socket.h"

#define SPINS 20 /* checks before a wait sleeps, as in a ring */
#define FIXED_FDS (2 + HY_FEED_LISTENERS) /* polled descriptors before those of feeders */
#define ACCEPT_INTERVAL 64 /* in messages: a hub that never sleeps must still accept and notice disconnects */

struct feeder {
    struct hy_list all;
    uint64_t number;
    int socket;
    struct hy_ring *rows, *results; /* NULL: no hello yet; no results requested */
    char queue[HY_FEED_QUEUE_MAX];
    bool is_gone;         /* disconnected; its ring may not be empty */
    bool is_in_partition; /* more batches are expected */
    bool is_held;         /* the caller uses its message */
    struct hy_batch batch;
};

struct hy_feed_hub {
    struct hy_feed_listener listener;
    int terminated_socket;  /* bound to terminated_name */
    int wake_fd;            /* an eventfd */
    struct hy_list feeders; /* the next in turn first */
    size_t count;
    uint64_t last_number, dropped, next_calls;
    struct pollfd *polled;
    size_t polled_room;
    bool is_terminated;
    bool is_ending; /* is_ended has been observed */
    atomic_bool is_ended;
    char terminated_name[HY_FEED_NAME_MAX];
};

/* ---- life cycle --------------------------------------------------------------------- */

static void remove_feeder(struct hy_feed_hub *h, struct feeder *f)
{
    hy_list_remove(&f->all);
    h->count--;
    hy_ring_close(f->rows);
    hy_ring_close(f->results);
    hy_close_at(&f->socket);
    hy_batch_done(&f->batch);
    free(f);
}

static void drop(struct hy_feed_hub *h, struct feeder *f)
{
    h->dropped++;
    remove_feeder(h, f);
}

void hy_feed_hub_close(struct hy_feed_hub *h)
{
    if (!h)
        return;
    hy_list_each(it, &h->feeders)
        remove_feeder(h, hy_container(it, struct feeder, all));
    hy_feed_listener_close(&h->listener);
    hy_close_at(&h->terminated_socket);
    hy_close_at(&h->wake_fd);
    free(h->polled);
    free(h);
}

static int bind_sockets(struct hy_feed_hub *h, const char *name)
{
    int rc = hy_feed_terminated_name(name, h->terminated_name);

    if (rc < 0)
        return rc;
    h->wake_fd = HY_SYS(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (h->wake_fd < 0)
        return -errno;
    h->terminated_socket = hy_feed_bind(h->terminated_name);
    return h->terminated_socket < 0 ? h->terminated_socket : hy_feed_listener_open(&h->listener, name);
}

int hy_feed_hub_open(const char *name, struct hy_feed_hub **ret, struct hy_err *err)
{
    struct hy_feed_hub *h = hy_calloc(1, sizeof *h);
    int rc = -ENOMEM;

    if (h) {
        h->listener = (struct hy_feed_listener){.sockets = {{.fd = -1}, {.fd = -1}}};
        h->terminated_socket = h->wake_fd = -1;
        hy_list_init(&h->feeders);
        rc = bind_sockets(h, name);
    }
    if (rc < 0) {
        hy_feed_hub_close(h);
        return hy_err_sys(err, rc, "cannot listen at '%s'", name);
    }
    *ret = h;
    return 0;
}

void hy_feed_hub_wake(struct hy_feed_hub *h)
{
    (void)!write(h->wake_fd, &(uint64_t){1}, sizeof(uint64_t)); /* fails only when a wakeup is already pending */
}

void hy_feed_hub_end(struct hy_feed_hub *h)
{
    atomic_store(&h->is_ended, true);
    hy_feed_hub_wake(h);
}

uint64_t hy_feed_hub_dropped(const struct hy_feed_hub *h)
{
    return h->dropped;
}

/* ---- connections --------------------------------------------------------------------- */

static int add_feeder(struct hy_feed_hub *h, int socket)
{
    struct feeder *f = hy_calloc(1, sizeof *f);

    if (!f) {
        close(socket);
        return -ENOMEM;
    }
    f->socket = socket;
    f->number = ++h->last_number;
    f->is_in_partition = true;
    hy_list_push(&h->feeders, &f->all);
    h->count++;
    return 0;
}

/* A bounded number; the others stay in the backlog. */
static int accept_some(struct hy_feed_hub *h)
{
    hy_feed_listener_begin_turn(&h->listener);
    while (h->count < HY_FEED_HUB_FEEDERS_MAX) {
        int fd = hy_feed_listener_next(&h->listener);
        int rc = fd < 0 ? fd : add_feeder(h, fd);

        if (rc == -EAGAIN)
            return 0;
        if (rc == -EPERM)
            h->dropped++;
        else if (rc < 0)
            return rc;
    }
    return 0;
}

static int offer_results_ring(struct feeder *f, size_t size)
{
    const struct hy_feed_notice notice = {.magic = HY_FEED_NOTICE_MAGIC, .kind = HY_FEED_NOTICE_RESULTS};
    hy_cleanup_close int memory = -1;
    int ends[2], rc = hy_feed_socketpair(ends);

    if (rc < 0)
        return rc;
    rc = hy_ring_new(size, ends[0], &f->results, &memory, NULL);
    if (rc == 0)
        rc = hy_feed_send_packet(f->socket, &notice, sizeof notice, (const int[2]){memory, ends[1]});
    close(ends[1]);
    return rc == -EPIPE || rc == -ECONNRESET ? 0 : rc; /* disconnected already: its batches still count */
}

static int accept_hello(struct feeder *f, const struct hy_feed_hello *hello, int fds[2])
{
    int rc;

    if (hello->magic != HY_FEED_HELLO_MAGIC || hello->needs_results > 1 || hello->results_size > HY_RING_MAX ||
        strnlen(hello->queue, sizeof hello->queue) == sizeof hello->queue || fds[0] < 0 ||
        !hy_feed_is_stream_socket(fds[1]))
        return -EPROTO;
    rc = hy_ring_open(fds[0], hy_take_fd(fds[1]), &f->rows, NULL);
    if (rc < 0)
        return rc;
    memcpy(f->queue, hello->queue, sizeof f->queue);
    return hello->needs_results ? offer_results_ring(f, hello->results_size) : 0;
}

/* Receives the hello, if it has arrived. A feeder that sends anything else, or closes without one, is dropped. */
static void receive_hello(struct hy_feed_hub *h, struct feeder *f)
{
    struct hy_feed_hello hello;
    int fds[2], rc = hy_feed_recv_packet(f->socket, &hello, sizeof hello, fds);

    if (rc == -EAGAIN || rc == -EINTR)
        return;
    if (rc > 0) {
        rc = accept_hello(f, &hello, fds);
        hy_close_at(&fds[0]);
        hy_close_at(&fds[1]);
    } else if (rc == 0) {
        rc = -EPROTO;
    }
    if (rc < 0)
        drop(h, f);
}

static int accept_and_greet(struct hy_feed_hub *h)
{
    int rc = accept_some(h);

    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);

        if (!f->rows)
            receive_hello(h, f);
    }
    return rc;
}

/* ---- messages ------------------------------------------------------------------------ */

static bool feeds_queue(const struct feeder *f, const char *queue)
{
    return f->rows && strcmp(f->queue, queue) == 0;
}

/* Removes a feeder that is gone and has no message; drops one whose ring is corrupt. */
static bool has_message(struct hy_feed_hub *h, struct feeder *f, struct hy_ring_message *ret)
{
    int rc;

    if (f->is_held)
        return false;
    rc = hy_ring_next(f->rows, ret);
    if (rc < 0)
        drop(h, f);
    else if (rc == 0 && f->is_gone)
        remove_feeder(h, f);
    return rc > 0;
}

/* A batch, or the end of a partition. 0, -EBADMSG, -ENOMEM. */
static int parse_message(struct feeder *f, const struct hy_ring_message *m, struct hy_feed_hub_message *ret)
{
    *ret = (struct hy_feed_hub_message){
        .feeder = f->number, .needs_results = f->results, .is_end = m->kind == HY_FEED_END};
    f->is_in_partition = !ret->is_end;
    if (ret->is_end)
        return m->n == 0 ? 0 : -EBADMSG;
    ret->batch = &f->batch;
    return m->kind == HY_FEED_BATCH ? hy_batch_parse(m->bytes, m->n, &f->batch) : -EBADMSG;
}

static void check_disconnects(struct hy_feed_hub *h)
{
    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);

        if (f->rows && !f->is_gone && hy_ring_drain_wakeups(f->rows) < 0)
            f->is_gone = true;
    }
}

/* Of feeders whose hello has been received. */
static int next_of_queue(struct hy_feed_hub *h, const char *queue, struct hy_feed_hub_message *ret)
{
    int rc;

    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);
        struct hy_ring_message m;

        if (!feeds_queue(f, queue) || !has_message(h, f, &m))
            continue;
        rc = parse_message(f, &m, ret);
        if (rc == -ENOMEM)
            return rc;
        if (rc < 0) {
            drop(h, f);
            continue;
        }
        f->is_held = true;
        hy_list_remove(&f->all); /* round robin */
        hy_list_push(&h->feeders, &f->all);
        return 1;
    }
    return 0;
}

int hy_feed_hub_next(struct hy_feed_hub *h, const char *queue, struct hy_feed_hub_message *ret)
{
    const bool is_due = h->next_calls++ % ACCEPT_INTERVAL == 0;
    int rc = is_due ? accept_and_greet(h) : 0;

    if (is_due)
        check_disconnects(h);
    if (rc == 0)
        rc = next_of_queue(h, queue, ret);
    if (rc == 0 && !is_due && (rc = accept_and_greet(h)) == 0)
        rc = next_of_queue(h, queue, ret);
    return rc;
}

static struct feeder *find_feeder(struct hy_feed_hub *h, uint64_t number)
{
    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);

        if (f->number == number)
            return f;
    }
    return NULL;
}

void hy_feed_hub_release(struct hy_feed_hub *h, uint64_t feeder)
{
    struct feeder *f = find_feeder(h, feeder);

    if (!f || !f->is_held)
        return;
    f->is_held = false;
    hy_ring_release(f->rows);
}

void hy_feed_hub_accept_pickles(struct hy_feed_hub *h, uint64_t feeder, bool accept)
{
    struct feeder *f = find_feeder(h, feeder);

    if (f)
        hy_ring_set_hint(f->rows, accept);
}

void hy_feed_hub_drop(struct hy_feed_hub *h, uint64_t feeder)
{
    struct feeder *f = find_feeder(h, feeder);

    if (f)
        drop(h, f);
}

/* ---- waiting ------------------------------------------------------------------------- */

/* Whether the queue has a message, and whether feeders may send more. */
static void scan_queue(struct hy_feed_hub *h, const char *queue, bool *ret_has, bool *ret_more)
{
    *ret_has = *ret_more = false;
    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);
        struct hy_ring_message m;
        const bool is_open = f->is_in_partition && !f->is_gone;

        if (!f->rows || (feeds_queue(f, queue) && is_open))
            *ret_more = true;
        if (feeds_queue(f, queue) && has_message(h, f, &m))
            *ret_has = true;
    }
}

static int check_queue(struct hy_feed_hub *h, const char *queue)
{
    const bool is_ended = atomic_load(&h->is_ended); /* first: feeders that connected before are found below */
    bool has, more;
    int rc;

    if (h->is_terminated)
        return HY_FEED_HUB_OVER;
    if (is_ended && !h->is_ending)
        hy_feed_listener_mark(&h->listener);
    h->is_ending = is_ended;
    rc = accept_and_greet(h);
    if (rc < 0)
        return rc;
    scan_queue(h, queue, &has, &more);
    if (has)
        return HY_FEED_HUB_MESSAGE;
    return is_ended && !more && hy_feed_listener_is_drained(&h->listener) ? HY_FEED_HUB_OVER : HY_FEED_HUB_TIMEOUT;
}

/* An entry for each feeder. */
static int reserve_polled(struct hy_feed_hub *h)
{
    struct pollfd *polled;

    if (h->count + FIXED_FDS <= h->polled_room)
        return 0;
    polled = hy_reallocarray(h->polled, 2 * h->count + FIXED_FDS, sizeof *polled);
    if (!polled)
        return -ENOMEM;
    h->polled = polled;
    h->polled_room = 2 * h->count + FIXED_FDS;
    return 0;
}

/* Fills h->polled, feeders in list order, and arms their wakeups; false when a message has arrived meanwhile. */
static bool arm_wakeups(struct hy_feed_hub *h, const char *queue, int other)
{
    struct pollfd *p = h->polled + FIXED_FDS;

    h->polled[0] = (struct pollfd){.fd = h->wake_fd, .events = POLLIN};
    h->polled[1] = (struct pollfd){.fd = other, .events = POLLIN};
    hy_feed_listener_poll(&h->listener, h->polled + 2);
    for (int i = 2; i < FIXED_FDS && h->count >= HY_FEED_HUB_FEEDERS_MAX; i++)
        h->polled[i].fd = -1;
    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);

        *p++ = (struct pollfd){.fd = f->is_gone ? -1 : f->rows ? hy_ring_socket(f->rows) : f->socket, .events = POLLIN};
        if (feeds_queue(f, queue) && !f->is_held && !hy_ring_arm_reader(f->rows))
            return false;
    }
    return true;
}

/* After poll, in the same order as arm_wakeups. */
static void handle_wakeups(struct hy_feed_hub *h)
{
    struct pollfd *p = h->polled + FIXED_FDS;

    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);

        if (p->revents && f->rows && hy_ring_drain_wakeups(f->rows) < 0)
            f->is_gone = true;
        p++;
    }
}

static bool consume_wake(struct hy_feed_hub *h)
{
    uint64_t count;

    return h->polled[0].revents && read(h->wake_fd, &count, sizeof count) == sizeof count;
}

/* An event; TIMEOUT also when the caller has to check the queue again. */
static int poll_once(struct hy_feed_hub *h, const char *queue, int other, int timeout_ms)
{
    int rc = reserve_polled(h);

    if (rc < 0 || !arm_wakeups(h, queue, other))
        return rc;
    rc = poll(h->polled, FIXED_FDS + h->count, hy_feed_listener_timeout(&h->listener, timeout_ms));
    if (rc < 0)
        return errno == EINTR ? 0 : -errno;
    handle_wakeups(h);
    return consume_wake(h) ? HY_FEED_HUB_WOKEN : h->polled[1].revents ? HY_FEED_HUB_OTHER : HY_FEED_HUB_TIMEOUT;
}

/* Only for feeders that are connected: accept takes longer than a message to arrive. */
static bool spin_for_message(struct hy_feed_hub *h, const char *queue)
{
    bool has = false, more;

    for (int i = 0; i < SPINS && !has; i++) {
        sched_yield();
        scan_queue(h, queue, &has, &more);
    }
    return has;
}

int hy_feed_hub_wait(struct hy_feed_hub *h, const char *queue, int other, int timeout_ms)
{
    const int64_t deadline = hy_clock_ms() + timeout_ms;
    int64_t left = 1;
    int rc = check_queue(h, queue);

    if (rc != HY_FEED_HUB_TIMEOUT || spin_for_message(h, queue))
        return rc != HY_FEED_HUB_TIMEOUT ? rc : HY_FEED_HUB_MESSAGE;
    while (timeout_ms < 0 || left > 0) {
        left = timeout_ms < 0 ? -1 : deadline - hy_clock_ms();
        rc = poll_once(h, queue, other, left < 0 && timeout_ms >= 0 ? 0 : (int)left);
        if (rc != HY_FEED_HUB_TIMEOUT || (rc = check_queue(h, queue)) != HY_FEED_HUB_TIMEOUT)
            return rc;
    }
    return HY_FEED_HUB_TIMEOUT;
}

/* ---- results ------------------------------------------------------------------------- */

size_t hy_feed_hub_result_max(struct hy_feed_hub *h, uint64_t feeder)
{
    const struct feeder *f = find_feeder(h, feeder);

    return f && f->results ? hy_ring_message_max(f->results) : 0;
}

int hy_feed_hub_put(struct hy_feed_hub *h, uint64_t feeder, const struct hy_batch *results, size_t *ret_needed)
{
    struct feeder *f = find_feeder(h, feeder);
    void *room;
    int rc;

    if (!f || !f->results)
        return -EPIPE;
    rc = hy_batch_size(results, ret_needed);
    if (rc < 0)
        return rc;
    if (*ret_needed > hy_ring_message_max(f->results))
        return -EMSGSIZE;
    room = hy_ring_reserve(f->results, *ret_needed);
    if (!room)
        return 0;
    hy_ring_send(f->results, HY_FEED_BATCH, hy_batch_write(results, room));
    return 1;
}

int hy_feed_hub_wait_for_space(struct hy_feed_hub *h, uint64_t feeder, size_t needed, int timeout_ms)
{
    struct feeder *f = find_feeder(h, feeder);

    return f && f->results ? hy_ring_wait_for_space(f->results, needed, timeout_ms) : -EPIPE;
}

/* ---- termination --------------------------------------------------------------------- */

static void notify_terminated(struct hy_feed_hub *h)
{
    const struct hy_feed_notice notice = {.magic = HY_FEED_NOTICE_MAGIC, .kind = HY_FEED_NOTICE_TERMINATED};

    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);

        /* A feeder that misses it tries the second name. */
        (void)hy_feed_send_packet(f->socket, &notice, sizeof notice, NULL);
        remove_feeder(h, f);
    }
}

int hy_feed_hub_terminate(struct hy_feed_hub *h, struct hy_err *err)
{
    int rc;

    if (h->is_terminated)
        return 0;
    rc = hy_feed_listen(h->terminated_socket);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot listen at '%s'", h->terminated_name);
    h->is_terminated = true;
    hy_feed_listener_mark(&h->listener);
    do {
        rc = accept_some(h);
        notify_terminated(h);
    } while (rc == 0 && !h->listener.paused_until_ms && !hy_feed_listener_is_drained(&h->listener));
    hy_feed_listener_close(&h->listener);
    return 0;
}
