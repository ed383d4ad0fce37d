/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A feeder is in the list from the moment it is accepted: first it has only its
 * connection, and with its hello it has a ring. It leaves when its ring's other
 * end is gone and nothing is left in it.
 *
 * When the hub has had enough, nobody may be in one of its functions any more to
 * answer those who come. So it stops to listen, and listens at another name
 * instead, where nobody needs to answer: to be able to connect there says it all.
 * It has that name from the start: names of others' sockets can be seen by all,
 * and taken by anybody.
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

#define LOOKS 20 /* before who waits sleeps, as in a ring */
#define OWN (2 + HY_FEED_LISTENERS) /* descriptors to poll that are no feeder's: these come first */
#define TURNS 64 /* messages, after which it looks who has come and gone: a hub that never sleeps would not see it */

struct feeder {
    struct hy_list all;
    uint64_t number;
    int socket;
    struct hy_ring *rows, *results; /* NULL: it has not said hello yet; it wants none */
    char queue[HY_FEED_QUEUE_MAX];
    bool is_gone;         /* and what it sent may not be */
    bool is_in_partition; /* from the first to the next end: more is to come */
    bool is_in_hand;      /* its message is being used */
    struct hy_batch batch;
};

struct hy_feed_hub {
    struct hy_feed_listener listener;
    int end, wakes;           /* a socket, and an eventfd */
    struct hy_list feeders;   /* whose turn it is comes first */
    size_t count;
    uint64_t numbers, dropped, turns;
    struct pollfd *polled;
    size_t polled_room;
    bool is_terminated;
    bool is_ending; /* is_ended was seen */
    atomic_bool is_ended;
    char name[HY_FEED_NAME_MAX];
};

/* ---- from birth to death ------------------------------------------------------------ */

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
    hy_close_at(&h->end);
    hy_close_at(&h->wakes);
    free(h->polled);
    free(h);
}

static int begin(struct hy_feed_hub *h, const char *name)
{
    int rc = hy_feed_terminated_name(name, h->name);

    if (rc < 0)
        return rc;
    h->wakes = HY_SYS(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (h->wakes < 0)
        return -errno;
    h->end = hy_feed_bind(h->name);
    return h->end < 0 ? h->end : hy_feed_listener_open(&h->listener, name);
}

int hy_feed_hub_open(const char *name, struct hy_feed_hub **ret, struct hy_err *err)
{
    struct hy_feed_hub *h = hy_calloc(1, sizeof *h);
    int rc = -ENOMEM;

    if (h) {
        h->listener = (struct hy_feed_listener){.queues = {{.fd = -1}, {.fd = -1}}};
        h->end = h->wakes = -1;
        hy_list_init(&h->feeders);
        rc = begin(h, name);
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
    (void)!write(h->wakes, &(uint64_t){1}, sizeof(uint64_t)); /* it fails only where it is awake already */
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

/* ---- who comes ----------------------------------------------------------------------- */

static int add_feeder(struct hy_feed_hub *h, int socket)
{
    struct feeder *f = hy_calloc(1, sizeof *f);

    if (!f) {
        close(socket);
        return -ENOMEM;
    }
    f->socket = socket;
    f->number = ++h->numbers;
    f->is_in_partition = true;
    hy_list_push(&h->feeders, &f->all);
    h->count++;
    return 0;
}

/* Some of those that have connected; the others are left where they wait. */
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

static int give_results(struct feeder *f, size_t size)
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
    return rc == -EPIPE || rc == -ECONNRESET ? 0 : rc; /* it is gone already: what it has sent counts */
}

static int heed(struct feeder *f, const struct hy_feed_hello *hello, int fds[2])
{
    int rc;

    if (hello->magic != HY_FEED_HELLO_MAGIC || hello->wants_results > 1 || hello->results_size > HY_RING_MAX ||
        strnlen(hello->queue, sizeof hello->queue) == sizeof hello->queue || fds[0] < 0 || !hy_feed_is_stream_socket(fds[1]))
        return -EPROTO;
    rc = hy_ring_open(fds[0], hy_take_fd(fds[1]), &f->rows, NULL);
    if (rc < 0)
        return rc;
    memcpy(f->queue, hello->queue, sizeof f->queue);
    return hello->wants_results ? give_results(f, hello->results_size) : 0;
}

/* Takes the hello, if it is there; who says something else, or leaves without one, is dropped. */
static void greet(struct hy_feed_hub *h, struct feeder *f)
{
    struct hy_feed_hello hello;
    int fds[2], rc = hy_feed_recv_packet(f->socket, &hello, sizeof hello, fds);

    if (rc == -EAGAIN || rc == -EINTR)
        return;
    if (rc > 0) {
        rc = heed(f, &hello, fds);
        hy_close_at(&fds[0]);
        hy_close_at(&fds[1]);
    } else if (rc == 0) {
        rc = -EPROTO;
    }
    if (rc < 0)
        drop(h, f);
}

static int welcome_all(struct hy_feed_hub *h)
{
    int rc = accept_some(h);

    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);

        if (!f->rows)
            greet(h, f);
    }
    return rc;
}

/* ---- messages ------------------------------------------------------------------------ */

static bool is_of(const struct feeder *f, const char *queue)
{
    return f->rows && strcmp(f->queue, queue) == 0;
}

/* Does it have a message? Who is gone and has none leaves; who makes no sense is dropped. */
static bool has_message(struct hy_feed_hub *h, struct feeder *f, struct hy_ring_message *ret)
{
    int rc;

    if (f->is_in_hand)
        return false;
    rc = hy_ring_next(f->rows, ret);
    if (rc < 0)
        drop(h, f);
    else if (rc == 0 && f->is_gone)
        remove_feeder(h, f);
    return rc > 0;
}

/* Its batch, or its partition's end. 0, -EBADMSG, -ENOMEM. */
static int understand(struct feeder *f, const struct hy_ring_message *m, struct hy_feed_hub_message *ret)
{
    *ret = (struct hy_feed_hub_message){.feeder = f->number, .wants_results = f->results, .is_end = m->kind == HY_FEED_END};
    f->is_in_partition = !ret->is_end;
    if (ret->is_end)
        return m->n == 0 ? 0 : -EBADMSG;
    ret->batch = &f->batch;
    return m->kind == HY_FEED_BATCH ? hy_batch_parse(m->bytes, m->n, &f->batch) : -EBADMSG;
}

static void see_who_is_gone(struct hy_feed_hub *h)
{
    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);

        if (f->rows && !f->is_gone && hy_ring_drain_wakeups(f->rows) < 0)
            f->is_gone = true;
    }
}

/* Of those who have been welcomed. */
static int next_of(struct hy_feed_hub *h, const char *queue, struct hy_feed_hub_message *ret)
{
    int rc;

    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);
        struct hy_ring_message m;

        if (!is_of(f, queue) || !has_message(h, f, &m))
            continue;
        rc = understand(f, &m, ret);
        if (rc == -ENOMEM)
            return rc;
        if (rc < 0) {
            drop(h, f);
            continue;
        }
        f->is_in_hand = true;
        hy_list_remove(&f->all); /* the others' turn */
        hy_list_push(&h->feeders, &f->all);
        return 1;
    }
    return 0;
}

int hy_feed_hub_next(struct hy_feed_hub *h, const char *queue, struct hy_feed_hub_message *ret)
{
    const bool is_time = h->turns++ % TURNS == 0;
    int rc = is_time ? welcome_all(h) : 0;

    if (is_time)
        see_who_is_gone(h);
    if (rc == 0)
        rc = next_of(h, queue, ret);
    if (rc == 0 && !is_time && (rc = welcome_all(h)) == 0)
        rc = next_of(h, queue, ret);
    return rc;
}

static struct feeder *find(struct hy_feed_hub *h, uint64_t number)
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
    struct feeder *f = find(h, feeder);

    if (!f || !f->is_in_hand)
        return;
    f->is_in_hand = false;
    hy_ring_release(f->rows);
}

void hy_feed_hub_accept_pickles(struct hy_feed_hub *h, uint64_t feeder, bool may_come)
{
    struct feeder *f = find(h, feeder);

    if (f)
        hy_ring_set_hint(f->rows, may_come);
}

void hy_feed_hub_drop(struct hy_feed_hub *h, uint64_t feeder)
{
    struct feeder *f = find(h, feeder);

    if (f)
        drop(h, f);
}

/* ---- waiting ------------------------------------------------------------------------- */

/* Whether the queue has a message, and whether more are to come. */
static void look(struct hy_feed_hub *h, const char *queue, bool *ret_has, bool *ret_more)
{
    *ret_has = *ret_more = false;
    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);
        struct hy_ring_message m;
        const bool is_open = f->is_in_partition && !f->is_gone;

        if (!f->rows || (is_of(f, queue) && is_open))
            *ret_more = true;
        if (is_of(f, queue) && has_message(h, f, &m))
            *ret_has = true;
    }
}

static int look_around(struct hy_feed_hub *h, const char *queue)
{
    const bool is_ended = atomic_load(&h->is_ended); /* first: who had come before that is found below */
    bool has, more;
    int rc;

    if (h->is_terminated)
        return HY_FEED_HUB_OVER;
    if (is_ended && !h->is_ending)
        hy_feed_listener_mark(&h->listener);
    h->is_ending = is_ended;
    rc = welcome_all(h);
    if (rc < 0)
        return rc;
    look(h, queue, &has, &more);
    if (has)
        return HY_FEED_HUB_MESSAGE;
    return is_ended && !more && hy_feed_listener_is_drained(&h->listener) ? HY_FEED_HUB_OVER : HY_FEED_HUB_TIMEOUT;
}

/* Room to poll all of them. */
static int make_room(struct hy_feed_hub *h)
{
    struct pollfd *polled;

    if (h->count + OWN <= h->polled_room)
        return 0;
    polled = hy_reallocarray(h->polled, 2 * h->count + OWN, sizeof *polled);
    if (!polled)
        return -ENOMEM;
    h->polled = polled;
    h->polled_room = 2 * h->count + OWN;
    return 0;
}

/* What to poll, each feeder in the list's order; false when one of them has something after all. */
static bool may_sleep(struct hy_feed_hub *h, const char *queue, int other)
{
    struct pollfd *p = h->polled + OWN;

    h->polled[0] = (struct pollfd){.fd = h->wakes, .events = POLLIN};
    h->polled[1] = (struct pollfd){.fd = other, .events = POLLIN};
    hy_feed_listener_poll(&h->listener, h->polled + 2);
    for (int i = 2; i < OWN && h->count >= HY_FEED_HUB_FEEDERS_MAX; i++)
        h->polled[i].fd = -1;
    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);

        *p++ = (struct pollfd){.fd = f->is_gone ? -1 : f->rows ? hy_ring_socket(f->rows) : f->socket, .events = POLLIN};
        if (is_of(f, queue) && !f->is_in_hand && !hy_ring_arm_reader(f->rows))
            return false;
    }
    return true;
}

/* After poll, in the same order. */
static void see_who_woke_us(struct hy_feed_hub *h)
{
    struct pollfd *p = h->polled + OWN;

    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);

        if (p->revents && f->rows && hy_ring_drain_wakeups(f->rows) < 0)
            f->is_gone = true;
        p++;
    }
}

static bool take_wakes(struct hy_feed_hub *h)
{
    uint64_t count;

    return h->polled[0].revents && read(h->wakes, &count, sizeof count) == sizeof count;
}

/* An event, or NOTHING after something has happened or time is over. */
static int sleep_once(struct hy_feed_hub *h, const char *queue, int other, int timeout_ms)
{
    int rc = make_room(h);

    if (rc < 0 || !may_sleep(h, queue, other))
        return rc;
    rc = poll(h->polled, OWN + h->count, hy_feed_listener_timeout(&h->listener, timeout_ms));
    if (rc < 0)
        return errno == EINTR ? 0 : -errno;
    see_who_woke_us(h);
    return take_wakes(h) ? HY_FEED_HUB_WOKEN : h->polled[1].revents ? HY_FEED_HUB_OTHER : HY_FEED_HUB_TIMEOUT;
}

/* Only at those who are there: to ask for others takes the system longer than a message takes to come. */
static bool look_for_a_while(struct hy_feed_hub *h, const char *queue)
{
    bool has = false, more;

    for (int i = 0; i < LOOKS && !has; i++) {
        sched_yield();
        look(h, queue, &has, &more);
    }
    return has;
}

int hy_feed_hub_wait(struct hy_feed_hub *h, const char *queue, int other, int timeout_ms)
{
    const int64_t end = hy_clock_ms() + timeout_ms;
    int64_t left = 1;
    int rc = look_around(h, queue);

    if (rc != HY_FEED_HUB_TIMEOUT || look_for_a_while(h, queue))
        return rc != HY_FEED_HUB_TIMEOUT ? rc : HY_FEED_HUB_MESSAGE;
    while (timeout_ms < 0 || left > 0) {
        left = timeout_ms < 0 ? -1 : end - hy_clock_ms();
        rc = sleep_once(h, queue, other, left < 0 && timeout_ms >= 0 ? 0 : (int)left);
        if (rc != HY_FEED_HUB_TIMEOUT || (rc = look_around(h, queue)) != HY_FEED_HUB_TIMEOUT)
            return rc;
    }
    return HY_FEED_HUB_TIMEOUT;
}

/* ---- results ------------------------------------------------------------------------- */

size_t hy_feed_hub_result_max(struct hy_feed_hub *h, uint64_t feeder)
{
    const struct feeder *f = find(h, feeder);

    return f && f->results ? hy_ring_message_max(f->results) : 0;
}

int hy_feed_hub_put(struct hy_feed_hub *h, uint64_t feeder, const struct hy_batch *results, size_t *ret_needed)
{
    struct feeder *f = find(h, feeder);
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

int hy_feed_hub_wait_for_space(struct hy_feed_hub *h, uint64_t feeder, size_t need, int timeout_ms)
{
    struct feeder *f = find(h, feeder);

    return f && f->results ? hy_ring_wait_for_space(f->results, need, timeout_ms) : -EPIPE;
}

/* ---- enough -------------------------------------------------------------------------- */

static void tell_enough(struct hy_feed_hub *h)
{
    const struct hy_feed_notice notice = {.magic = HY_FEED_NOTICE_MAGIC, .kind = HY_FEED_NOTICE_TERMINATED};

    hy_list_each(it, &h->feeders) {
        struct feeder *f = hy_container(it, struct feeder, all);

        (void)hy_feed_send_packet(f->socket, &notice, sizeof notice, NULL); /* who cannot be told asks at the other name */
        remove_feeder(h, f);
    }
}

int hy_feed_hub_terminate(struct hy_feed_hub *h, struct hy_err *err)
{
    int rc;

    if (h->is_terminated)
        return 0;
    rc = hy_feed_listen(h->end);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot listen at '%s'", h->name);
    h->is_terminated = true;
    hy_feed_listener_mark(&h->listener);
    do {
        rc = accept_some(h);
        tell_enough(h);
    } while (rc == 0 && !h->listener.paused_until_ms && !hy_feed_listener_is_drained(&h->listener));
    hy_feed_listener_close(&h->listener);
    return 0;
}
