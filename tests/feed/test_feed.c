/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds: hubs and sources in one process, in several, with either killed, and with hostile ones. */
#include "support.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "feed/batch.h"
#include "feed/batches.h"
#include "feed/gather.h"
#include "feed/hub.h"
#include "feed/intake.h"
#include "feed/socket.h"
#include "feed/source.h"

#define RING (256u << 10)
#define LIMIT_MS 20000
#define AGAIN (1ll << 40) /* the numbers of who is tried again */

static const char *fresh_name(void)
{
    static char name[64];
    static int count;

    snprintf(name, sizeof name, "hopyard/test/%d/%d", getpid(), ++count);
    return name;
}

/* ---- numbers through hubs ---- */

static int put_number(struct hy_source *s, int64_t number)
{
    struct hy_batch_column c = {.dtype = HY_DTYPE_INT64, .values = &number, .values_n = sizeof number};
    const struct hy_batch b = {.rows = 1, .count = 1, .shape = "i", .shape_n = 1, .columns = &c};
    int rc;

    while ((rc = hy_source_put(s, &b)) == 0) {
        rc = hy_source_wait(s, hy_source_need(s), -1);
        if (rc < 0)
            return rc;
    }
    return rc;
}

static struct hy_source *open_source(const char *name, const char *queue, bool wants_results)
{
    const struct hy_source_options o = {.queue = queue, .size = RING, .wants_results = wants_results};
    struct hy_source *s = NULL;
    struct hy_err err = {0};

    if (hy_source_open(name, &o, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static struct hy_hub *open_hub(const char *name)
{
    struct hy_hub *h = NULL;
    struct hy_err err = {0};

    if (hy_hub_open(name, &h, &err) < 0)
        fail_msg("%s", err.text);
    return h;
}

/* The next number; -1 at a partition's end, -2 at the hub's. */
static int64_t take_number(struct hy_hub *h, const char *queue, uint64_t *ret_feeder)
{
    struct hy_taken t;
    int64_t number;
    int rc;

    while ((rc = hy_hub_next(h, queue, &t)) == 0) {
        rc = hy_hub_wait(h, queue, -1, LIMIT_MS);
        if (rc == HY_HUB_OVER)
            return -2;
        assert_true(rc == HY_HUB_MESSAGE || rc == HY_HUB_WOKEN);
    }
    assert_int_equal(rc, 1);
    number = t.is_end ? -1 : *(const int64_t *)t.batch->columns[0].values;
    if (ret_feeder)
        *ret_feeder = t.feeder;
    hy_hub_release(h, t.feeder);
    return number;
}

static int status_of(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* A process that feeds numbers from `first` on, `count` of them, and ends with what the last put said. */
static pid_t start_feeder(const char *name, int64_t first, int64_t count)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        const struct hy_source_options o = {.queue = "input", .size = RING};
        struct hy_source *s = NULL;
        int rc = hy_source_open(name, &o, &s, NULL) == 0 ? 1 : -EPIPE;

        for (int64_t i = 0; i < count && rc == 1; i++)
            rc = put_number(s, first + i);
        if (rc == 1)
            rc = hy_source_put_end(s);
        if (rc == 1)
            rc = hy_source_wait_until_taken(s, -1);
        _exit(rc == 1 ? 0 : rc == -ESHUTDOWN ? 3 : rc == -EPIPE ? 4 : 5);
    }
    return pid;
}

static void test_queues_are_kept_apart_and_feeders_take_turns(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    struct hy_source *s[3] = {open_source(name, "input", false), open_source(name, "input", false),
                              open_source(name, "control", false)};

    (void)state;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 4; i++)
            assert_int_equal(put_number(s[k], 10 * k + i), 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(take_number(h, "input", NULL), i);
        assert_int_equal(take_number(h, "input", NULL), 10 + i);
    }
    assert_int_equal(hy_hub_wait(h, "input", -1, 10), HY_HUB_NOTHING);
    for (int i = 0; i < 4; i++)
        assert_int_equal(take_number(h, "control", NULL), 20 + i);
    for (int k = 0; k < 3; k++)
        hy_source_close(s[k]);
    hy_hub_close(h);
}

static void test_a_hub_is_over_when_all_that_came_is_taken(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    struct hy_source *gone = open_source(name, "input", false), *idle = open_source(name, "input", false);

    (void)state;
    assert_int_equal(put_number(gone, 1), 1);
    assert_int_equal(put_number(gone, 2), 1);
    hy_source_close(gone); /* before the hub has even looked */
    hy_hub_end(h);
    assert_int_equal(take_number(h, "input", NULL), 1);
    assert_int_equal(take_number(h, "input", NULL), 2);
    while (hy_hub_wait(h, "input", -1, 20) == HY_HUB_WOKEN)
        ; /* by the end that was said */
    assert_int_equal(hy_hub_wait(h, "input", -1, 20), HY_HUB_NOTHING); /* the other is in the middle of something */
    assert_int_equal(hy_source_put_end(idle), 1);
    assert_int_equal(take_number(h, "input", NULL), -1);
    assert_int_equal(take_number(h, "input", NULL), -2);
    hy_source_close(idle);
    hy_hub_close(h);
}

static void test_a_wait_ends_for_the_callers_own_descriptor(void **state)
{
    struct hy_hub *h = open_hub(fresh_name());
    int other = eventfd(0, EFD_CLOEXEC);

    (void)state;
    assert_int_equal(hy_hub_wait(h, "input", other, 20), HY_HUB_NOTHING);
    assert_int_equal(write(other, &(uint64_t){1}, 8), 8);
    assert_int_equal(hy_hub_wait(h, "input", other, -1), HY_HUB_OTHER);
    hy_hub_wake(h);
    assert_int_equal(hy_hub_wait(h, "input", -1, -1), HY_HUB_WOKEN);
    close(other);
    hy_hub_close(h);
}

static void test_one_name_has_one_hub(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name), *second = NULL;
    const struct hy_source_options o = {.queue = "input", .size = RING};
    struct hy_source *s = NULL;
    struct hy_err err = {0};

    (void)state;
    assert_int_equal(hy_hub_open(name, &second, &err), -EADDRINUSE);
    hy_hub_close(h);
    assert_int_equal(hy_source_open(name, &o, &s, &err), -ECONNREFUSED);
}

/* A hub that always has something to do lets go of those who are gone, too. */
static void test_those_who_are_gone_are_let_go_by_a_busy_hub(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    int first = -1, last;

    (void)state;
    for (int i = 0; i < 500; i++) {
        struct hy_source *s = open_source(name, "input", true);

        assert_int_equal(put_number(s, i), 1);
        hy_source_close(s);
        assert_int_equal(take_number(h, "input", NULL), i);
        last = dup(0); /* the lowest that is free */
        first = i == 0 ? last : first;
        assert_true(last < first + 400);
        close(last);
    }
    hy_hub_close(h);
}

/* ---- threads ---- */

struct thread {
    const char *name;
    int64_t first, count;
    struct hy_hub *hub;
    int rc;
};

static void *feed_numbers(void *arg)
{
    struct thread *t = arg;
    struct hy_source *s = open_source(t->name, "input", false);

    t->rc = 1;
    for (int64_t i = 0; i < t->count && t->rc == 1; i++)
        t->rc = put_number(s, t->first + i);
    if (t->rc == 1)
        t->rc = hy_source_put_end(s);
    hy_source_close(s);
    return NULL;
}

static void *end_it(void *arg)
{
    hy_hub_end(((struct thread *)arg)->hub);
    return NULL;
}

static void test_many_feeders_lose_and_double_nothing(void **state)
{
    enum { FEEDERS = 8, EACH = 20000 };
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    int64_t next[FEEDERS] = {0}, number, ends = 0;
    struct thread feeders[FEEDERS];
    pthread_t threads[FEEDERS];

    (void)state;
    for (int i = 0; i < FEEDERS; i++) {
        feeders[i] = (struct thread){.name = name, .first = (int64_t)i * EACH, .count = EACH};
        assert_int_equal(pthread_create(&threads[i], NULL, feed_numbers, &feeders[i]), 0);
    }
    while (ends < FEEDERS) {
        number = take_number(h, "input", NULL);
        if (number == -1) {
            ends++;
        } else {
            assert_int_equal(number % EACH, next[number / EACH]);
            next[number / EACH]++;
        }
    }
    for (int i = 0; i < FEEDERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(feeders[i].rc, 1);
        assert_int_equal(next[i], EACH);
    }
    hy_hub_close(h);
}

static void test_another_thread_may_end_it(void **state)
{
    struct thread t = {.hub = open_hub(fresh_name())};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, end_it, &t), 0);
    assert_int_equal(take_number(t.hub, "input", NULL), -2);
    assert_int_equal(pthread_join(thread, NULL), 0);
    hy_hub_close(t.hub);
}

/* ---- enough ---- */

static void test_terminate_tells_those_who_wait_and_those_who_come(void **state)
{
    const char *name = fresh_name();
    const struct hy_source_options o = {.queue = "input", .size = RING};
    struct hy_hub *h = open_hub(name);
    struct hy_source *s = NULL, *early = open_source(name, "input", false);
    struct hy_err err = {0};
    pid_t pid = start_feeder(name, 0, INT64_MAX);

    (void)state;
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(take_number(h, "input", NULL), i);
    assert_int_equal(hy_hub_terminate(h, &err), 0);
    assert_int_equal(hy_hub_terminate(h, &err), 0);
    assert_int_equal(status_of(pid), 3); /* it had no room by then, or soon after */
    assert_int_equal(put_number(early, 1), -ESHUTDOWN);
    assert_int_equal(hy_source_wait_until_taken(early, -1), 1);
    for (int i = 0; i < 10; i++)
        assert_int_equal(hy_source_open(name, &o, &s, &err), -ESHUTDOWN);
    assert_int_equal(take_number(h, "input", NULL), -2);
    hy_source_close(early);
    hy_hub_close(h);
    assert_int_equal(hy_source_open(name, &o, &s, &err), -ECONNREFUSED);
}

static void test_who_was_told_knows_it_when_the_hub_is_gone(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    struct hy_source *told = open_source(name, "input", false), *cut = open_source(name, "input", true);
    struct hy_err err = {0};

    (void)state;
    assert_int_equal(hy_hub_wait(h, "input", -1, 0), HY_HUB_NOTHING);
    assert_int_equal(hy_hub_terminate(h, &err), 0);
    hy_hub_close(h);
    assert_int_equal(put_number(told, 1), -ESHUTDOWN);
    assert_int_equal(hy_source_wait(cut, 0, -1), -ESHUTDOWN);
    hy_source_close(told);
    hy_source_close(cut);
}

/* ---- death ---- */

static void test_of_a_feeder_that_is_killed_all_whole_batches_come(void **state)
{
    struct hy_rng rng;

    (void)state;
    hy_rng_seed(&rng, 3, 0);
    for (int round = 0; round < 30; round++) {
        const char *name = fresh_name();
        struct hy_hub *h = open_hub(name);
        pid_t pid = start_feeder(name, 0, INT64_MAX);
        int64_t dies_at = (int64_t)(hy_rng_next(&rng) % 3000), at = 0, again = AGAIN, number;

        if (dies_at == 0)
            kill(pid, SIGKILL);
        while (at < dies_at) {
            assert_int_equal(take_number(h, "input", NULL), at);
            at++;
            if (at == dies_at)
                assert_int_equal(kill(pid, SIGKILL), 0);
        }
        assert_int_equal(status_of(pid), 128 + SIGKILL);
        pid = start_feeder(name, AGAIN, 100);
        while ((number = take_number(h, "input", NULL)) != -1)
            assert_int_equal(number, number < AGAIN ? at++ : again++);
        assert_int_equal(again, AGAIN + 100);
        assert_int_equal(status_of(pid), 0);
        hy_hub_end(h);
        while ((number = take_number(h, "input", NULL)) >= 0)
            assert_int_equal(number, at++);
        assert_int_equal(number, -2);
        hy_hub_close(h);
    }
}

static void test_no_feeder_waits_for_a_hub_that_was_killed(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        const char *name = fresh_name();
        int ready[2];
        pid_t hub, feeders[3];
        char byte;

        assert_int_equal(pipe(ready), 0);
        hub = fork();
        assert_true(hub >= 0);
        if (hub == 0) {
            struct hy_hub *h = open_hub(name);

            if (write(ready[1], "", 1) != 1)
                _exit(9);
            for (int i = 0; i < 97 * round; i++)
                (void)take_number(h, "input", NULL);
            raise(SIGKILL);
        }
        assert_int_equal(read(ready[0], &byte, 1), 1);
        for (int i = 0; i < 3; i++)
            feeders[i] = start_feeder(name, 0, INT64_MAX);
        for (int i = 0; i < 3; i++)
            assert_int_equal(status_of(feeders[i]), 4);
        assert_int_equal(status_of(hub), 128 + SIGKILL);
        close(ready[0]);
        close(ready[1]);
    }
}

/* ---- results ---- */

/* Each waits for the other's room, with rings that are full: neither may wait for ever. */
static void test_results_come_one_to_one_and_in_order(void **state)
{
    enum { COUNT = 20000 };
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    pid_t pid = fork();
    int64_t number;

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        struct hy_source *s = open_source(name, "input", true);
        struct hy_batch b = {0};
        int64_t sent = 0, got = 0;

        while (got < COUNT) {
            struct hy_batch_column c = {.dtype = HY_DTYPE_INT64, .values = &sent, .values_n = sizeof sent};
            const struct hy_batch row = {.rows = 1, .count = 1, .shape = "i", .shape_n = 1, .columns = &c};
            struct hy_message m;
            int rc = 0;

            if (sent < COUNT && hy_source_put(s, &row) == 1)
                sent++;
            else
                rc = hy_source_wait(s, sent < COUNT ? hy_source_need(s) : 0, -1);
            if (rc < 0)
                _exit(1);
            if (sent % 100 && !(rc & HY_SOURCE_RESULTS))
                continue; /* let them pile up */
            while (hy_source_next(s, &m) > 0) {
                if (hy_batch_parse(m.bytes, m.n, &b) < 0 || *(const int64_t *)b.columns[0].values != 2 * got++)
                    _exit(2);
                hy_source_release(s);
            }
        }
        _exit(0);
    }
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t result = 2 * i;
        struct hy_batch_column c = {.dtype = HY_DTYPE_INT64, .values = &result, .values_n = sizeof result};
        const struct hy_batch row = {.rows = 1, .count = 1, .shape = "i", .shape_n = 1, .columns = &c};
        uint64_t feeder;
        size_t need;

        number = take_number(h, "input", &feeder);
        assert_int_equal(number, i);
        while (hy_hub_put(h, feeder, &row, &need) == 0)
            assert_int_equal(hy_hub_wait_for_room(h, feeder, need, LIMIT_MS), 1);
    }
    assert_int_equal(status_of(pid), 0);
    hy_hub_close(h);
}

/* ---- hostile ---- */

static int connect_to(const char *name)
{
    int fd = hy_feed_connect(name);

    assert_true(fd >= 0);
    return fd;
}

static void test_a_hostile_hello_is_dropped(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    struct hy_hello hello = {.magic = HY_HELLO_MAGIC, .queue = "input"};
    int file = memfd_create("no ring", MFD_CLOEXEC), ends[2], fds[6];
    struct hy_source *good = open_source(name, "input", false);

    (void)state;
    assert_true(file >= 0);
    assert_int_equal(hy_feed_pair(ends), 0);
    for (int i = 0; i < 6; i++)
        fds[i] = connect_to(name);
    close(fds[0]);                                                              /* says nothing, and leaves */
    assert_int_equal(hy_feed_send(fds[1], "x", 1, NULL), 0);                    /* is no hello */
    assert_int_equal(hy_feed_send(fds[2], &hello, sizeof hello, NULL), 0);      /* has no ring */
    assert_int_equal(hy_feed_send(fds[3], &hello, sizeof hello, (int[2]){file, ends[1]}), 0); /* no ring's memory */
    assert_int_equal(hy_feed_send(fds[4], &hello, sizeof hello, (int[2]){file, file}), 0);    /* no socket */
    memset(hello.queue, 'x', sizeof hello.queue);
    assert_int_equal(hy_feed_send(fds[5], &hello, sizeof hello, (int[2]){file, ends[1]}), 0);
    assert_int_equal(put_number(good, 5), 1);
    assert_int_equal(take_number(h, "input", NULL), 5);
    assert_int_equal(hy_hub_dropped(h), 6);
    for (int i = 1; i < 6; i++)
        close(fds[i]);
    close(ends[0]);
    close(ends[1]);
    close(file);
    hy_source_close(good);
    hy_hub_close(h);
}

/* Sends a ring by hand, to put anything into it. */
static struct hy_ring *open_ring(const char *name, int *ret_socket)
{
    struct hy_hello hello = {.magic = HY_HELLO_MAGIC, .queue = "input"};
    struct hy_err err = {0};
    struct hy_ring *r = NULL;
    int ends[2], memory;

    *ret_socket = connect_to(name);
    assert_int_equal(hy_feed_pair(ends), 0);
    assert_int_equal(hy_ring_new(RING, ends[0], &r, &memory, &err), 0);
    assert_int_equal(hy_feed_send(*ret_socket, &hello, sizeof hello, (int[2]){memory, ends[1]}), 0);
    close(ends[1]);
    close(memory);
    return r;
}

static void test_a_feeder_of_hostile_batches_is_dropped_and_others_are_not(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    struct hy_source *good = open_source(name, "input", false);

    (void)state;
    for (uint32_t kind = 0; kind < 4; kind++) { /* 1: a batch that is none; 2: an end that is too long */
        int socket;
        struct hy_ring *r = open_ring(name, &socket);
        void *room = hy_ring_reserve(r, 64);

        assert_non_null(room);
        memset(room, 7, 64);
        hy_ring_send(r, kind, 64);
        assert_int_equal(put_number(good, kind), 1);
        assert_int_equal(take_number(h, "input", NULL), kind);
        assert_int_equal(hy_hub_next(h, "input", &(struct hy_taken){0}), 0);
        assert_int_equal(hy_hub_dropped(h), kind + 1);
        assert_int_equal(hy_ring_wait_for_room(r, 100 << 10, -1), 1);
        assert_int_equal(hy_ring_wait_until_empty(r, LIMIT_MS), -EPIPE);
        hy_ring_close(r);
        close(socket);
    }
    hy_source_close(good);
    hy_hub_close(h);
}

/* Names can be seen by all: who takes that of the end could keep a hub from saying that it has had enough. */
static void test_both_names_are_the_hubs_from_the_start(void **state)
{
    const struct hy_source_options o = {.queue = "input", .size = RING};
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    struct hy_source *s = NULL;
    char end[HY_FEED_NAME_MAX];

    (void)state;
    assert_int_equal(hy_feed_name_of_end(name, end), 0);
    assert_int_equal(hy_feed_bind(name), -EADDRINUSE);
    assert_int_equal(hy_feed_bind(end), -EADDRINUSE);
    assert_int_equal(hy_feed_connect(end), -ECONNREFUSED);
    assert_int_equal(hy_hub_terminate(h, NULL), 0);
    assert_int_equal(hy_source_open(name, &o, &s, NULL), -ESHUTDOWN);
    hy_hub_close(h);
    assert_int_equal(hy_source_open(name, &o, &s, NULL), -ECONNREFUSED);
}

/* As another user than root: root's hub is fine, and so are his feeders; those of a third are not. */
static void test_only_the_same_user_and_root_are_let_in(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h;
    pid_t pid;

    (void)state;
    hy_need_root("to become another user");
    h = open_hub(name);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct hy_source_options o = {.queue = "input", .size = RING};
        struct hy_source *s = NULL;
        int rc;

        if (setuid(65534) != 0)
            _exit(9);
        rc = hy_source_open(name, &o, &s, NULL);
        if (rc == 0) /* root's hub is to be trusted, but it does not trust us */
            rc = hy_source_wait_until_taken(s, 0);
        _exit(rc == 1 ? 0 : 1);
    }
    assert_int_equal(status_of(pid), 0);
    assert_int_equal(hy_hub_wait(h, "input", -1, 0), HY_HUB_NOTHING);
    assert_int_equal(hy_hub_dropped(h), 1);
    hy_hub_close(h);
}

static void test_a_source_refuses_the_hub_of_another_user(void **state)
{
    const char *name = fresh_name();
    int ready[2], status;
    pid_t hub, pid;
    char byte;

    (void)state;
    hy_need_root("to become another user");
    assert_int_equal(pipe(ready), 0);
    hub = fork();
    assert_true(hub >= 0);
    if (hub == 0) {
        struct hy_hub *h = NULL;

        if (setuid(65534) != 0 || hy_hub_open(name, &h, NULL) < 0 || write(ready[1], "", 1) != 1)
            _exit(9);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct hy_source_options o = {.queue = "input", .size = RING};
        struct hy_source *s = NULL;

        _exit(setuid(65533) == 0 && hy_source_open(name, &o, &s, NULL) == -EPERM ? 0 : 1);
    }
    status = status_of(pid);
    kill(hub, SIGKILL);
    status_of(hub);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(status, 0);
}

/* ---- batches by number ---- */

struct reader {
    int64_t number;
    uint64_t rows;
    uint64_t sum;
};

static int take_batch(int64_t number, uint64_t *rows, uint64_t *sum)
{
    struct hy_gathered g = {0};
    struct hy_err err = {0};
    int rc = hy_batches_next(number, &(struct hy_gather_how){0}, &g, &err);

    for (uint64_t i = 0; rc == HY_BATCHES_ROWS && i < g.rows; i++)
        *sum += (uint64_t)((const int32_t *)g.columns[0].values)[i];
    *rows += rc == HY_BATCHES_ROWS ? g.rows : 0;
    hy_gathered_done(&g);
    return rc;
}

static void *read_batches(void *arg)
{
    struct reader *r = arg;
    int rc;

    do
        rc = take_batch(r->number, &r->rows, &r->sum);
    while (rc == HY_BATCHES_ROWS || rc == HY_BATCHES_NOTHING);
    assert_int_equal(rc, HY_BATCHES_END);
    return NULL;
}

static struct hy_intake *open_intake(const char *name)
{
    struct hy_intake *in;
    struct hy_hub *hub;

    assert_int_equal(hy_hub_open(name, &hub, NULL), 0);
    in = hy_intake_new(hub);
    assert_non_null(in);
    return in;
}

static struct hy_batches *batches_of(struct hy_intake *in, uint64_t rows)
{
    const struct hy_wanted_column column = {.name = "x", .dtype = HY_DTYPE_INT32};
    struct hy_batches *b = NULL;
    struct hy_wanted w;

    assert_int_equal(hy_wanted_init(&w, "a", false, &column, 1), 0);
    assert_int_equal(hy_batches_new(in, &(struct hy_batches_options){.queue = "input", .rows = rows}, &w, &b), 0);
    return b;
}

/* Two threads read, a third one comes in for something else again and again, and the last ends it. */
static void test_batches_are_taken_by_any_thread(void **state)
{
    const char *name = fresh_name();
    const struct hy_source_options o = {.queue = "input", .size = RING};
    struct reader readers[2] = {{0}, {0}};
    pthread_t threads[2];
    struct hy_intake *in;
    struct hy_batches *b;
    struct hy_source *s;

    (void)state;
    in = open_intake(name);
    b = batches_of(in, 7);
    for (int i = 0; i < 2; i++) {
        readers[i].number = hy_batches_number(b);
        assert_int_equal(pthread_create(&threads[i], NULL, read_batches, &readers[i]), 0);
    }
    assert_int_equal(hy_source_open(name, &o, &s, NULL), 0);
    for (int i = 1; i <= 1000; i++) {
        assert_int_equal(put_number(s, i), 1);
        if (i % 10 == 0) {
            assert_int_equal(hy_intake_enter(in, false, LIMIT_MS), 0);
            hy_intake_leave(in, false);
        }
    }
    hy_source_close(s);
    hy_intake_end(in);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(readers[0].rows + readers[1].rows, 1000);
    assert_int_equal(readers[0].sum + readers[1].sum, 500500);
    assert_true(hy_batches_is_over(b));
    assert_int_equal(take_batch(readers[0].number, &readers[0].rows, &readers[0].sum), HY_BATCHES_END);
    hy_batches_free(b);
    assert_int_equal(take_batch(readers[0].number, &readers[0].rows, &readers[0].sum), HY_BATCHES_END);
    hy_intake_unref(in);
}

/* Who waits for rows is let go when the hub is closed, and finds nothing afterwards. */
/* ---- rows that were pickled ---- */

static int put_pickle(struct hy_source *s, const char *pickle)
{
    struct hy_batch_column c = {.dtype = HY_DTYPE_PICKLE, .values = pickle, .values_n = strlen(pickle)};
    const struct hy_batch b = {.count = 1, .shape = "*", .shape_n = 1, .columns = &c};

    return hy_source_put(s, &b);
}

struct told {
    char text[64];
    int answer;
};

static int note_again(void *context, const char *queue, const void *pickle, size_t n, uint32_t first)
{
    struct told *t = context;
    const size_t used = strlen(t->text);

    snprintf(t->text + used, sizeof t->text - used, "%s %.*s %u;", queue, (int)n, (const char *)pickle, first);
    return t->answer;
}

/* Who takes rows has them as they are; for who takes columns they come again, but for those that were taken. */
static void test_pickles_come_again_for_who_takes_columns(void **state)
{
    const char *name = fresh_name();
    const struct hy_source_options o = {.queue = "input", .size = RING};
    struct told told = {"", 0};
    uint64_t rows = 0, sum = 0;
    struct hy_intake *in;
    struct hy_queue *q;
    struct hy_batches *b;
    struct hy_source *s;

    (void)state;
    in = open_intake(name);
    in->again = note_again;
    in->again_context = &told;
    q = hy_intake_queue(in, "input");
    assert_int_equal(hy_source_open(name, &o, &s, NULL), 0);
    assert_false(hy_source_takes_pickles(s));
    assert_int_equal(put_pickle(s, "first"), 1);
    assert_int_equal(put_pickle(s, "second"), 1);
    assert_int_equal(hy_intake_enter(in, true, LIMIT_MS), 0);
    q->takes_pickles = true;
    assert_int_equal(hy_intake_message(in, q, false, -1, LIMIT_MS), HY_INTAKE_ROWS);
    assert_true(hy_source_takes_pickles(s));
    assert_int_equal(q->reading.rows, HY_READING_UNKNOWN);
    q->reading.rows = 5; /* as whoever has read it says */
    q->reading.next = 3;
    assert_int_equal(hy_intake_took(in, q, 3), 0);
    hy_intake_leave(in, true);
    assert_int_equal(put_number(s, 7), 1);
    b = batches_of(in, 1);
    assert_int_equal(take_batch(hy_batches_number(b), &rows, &sum), HY_BATCHES_ROWS);
    assert_int_equal(sum, 7);
    assert_string_equal(told.text, "input first 3;input second 0;");
    assert_false(hy_source_takes_pickles(s));
    told.answer = -EBADMSG; /* nobody can read it: its feeder is not heard any more */
    assert_int_equal(put_pickle(s, "third"), 1);
    assert_int_equal(take_batch(hy_batches_number(b), &rows, &sum), HY_BATCHES_NOTHING);
    assert_int_equal(hy_source_wait_until_taken(s, LIMIT_MS), -EPIPE);
    hy_source_close(s);
    hy_batches_free(b);
    hy_intake_close(in);
    hy_intake_unref(in);
}

static void test_batches_end_when_their_hub_is_closed(void **state)
{
    struct reader r = {0};
    pthread_t thread;
    struct hy_intake *in;
    struct hy_batches *b;

    (void)state;
    in = open_intake(fresh_name());
    b = batches_of(in, 7);
    r.number = hy_batches_number(b);
    assert_int_equal(pthread_create(&thread, NULL, read_batches, &r), 0);
    hy_intake_ask(in);
    assert_int_equal(hy_intake_enter(in, false, LIMIT_MS), 0);
    hy_intake_close(in);
    hy_intake_leave(in, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(hy_intake_enter(in, true, 0), -ESHUTDOWN);
    hy_intake_end(in);
    hy_batches_free(b);
    hy_intake_unref(in);
}

/* ---- faults ---- */

static int feed_once(void *arg)
{
    const char *name = fresh_name();
    const struct hy_source_options o = {.queue = "input", .size = RING, .wants_results = true};
    struct hy_hub *h = NULL;
    struct hy_source *s = NULL;
    struct hy_taken t;
    int rc = hy_hub_open(name, &h, NULL);

    (void)arg;
    if (rc == 0)
        rc = hy_source_open(name, &o, &s, NULL);
    if (rc == 0)
        rc = put_number(s, 1);
    if (rc == 1)
        rc = hy_hub_wait(h, "input", -1, 0);
    if (rc >= 0)
        rc = hy_hub_next(h, "input", &t);
    if (rc == 1)
        hy_hub_release(h, t.feeder);
    if (rc >= 0)
        rc = hy_hub_terminate(h, NULL);
    hy_source_close(s);
    hy_hub_close(h);
    return rc;
}

static void test_what_fails_leaves_nothing(void **state)
{
    (void)state;
    hy_each_fault(HY_SEAM_ALLOC, feed_once, NULL);
    hy_each_fault(HY_SEAM_SYS, feed_once, NULL);
}

#include "feed_floods.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queues_are_kept_apart_and_feeders_take_turns),
        cmocka_unit_test(test_a_hub_is_over_when_all_that_came_is_taken),
        cmocka_unit_test(test_a_wait_ends_for_the_callers_own_descriptor),
        cmocka_unit_test(test_one_name_has_one_hub),
        cmocka_unit_test(test_those_who_are_gone_are_let_go_by_a_busy_hub),
        cmocka_unit_test(test_many_feeders_lose_and_double_nothing),
        cmocka_unit_test(test_another_thread_may_end_it),
        cmocka_unit_test(test_terminate_tells_those_who_wait_and_those_who_come),
        cmocka_unit_test(test_who_was_told_knows_it_when_the_hub_is_gone),
        cmocka_unit_test(test_of_a_feeder_that_is_killed_all_whole_batches_come),
        cmocka_unit_test(test_no_feeder_waits_for_a_hub_that_was_killed),
        cmocka_unit_test(test_results_come_one_to_one_and_in_order),
        cmocka_unit_test(test_a_hostile_hello_is_dropped),
        cmocka_unit_test(test_a_feeder_of_hostile_batches_is_dropped_and_others_are_not),
        cmocka_unit_test(test_both_names_are_the_hubs_from_the_start),
        cmocka_unit_test(test_only_the_same_user_and_root_are_let_in),
        cmocka_unit_test(test_a_source_refuses_the_hub_of_another_user),
        cmocka_unit_test(test_batches_are_taken_by_any_thread),
        cmocka_unit_test(test_pickles_come_again_for_who_takes_columns),
        cmocka_unit_test(test_batches_end_when_their_hub_is_closed),
        cmocka_unit_test(test_what_fails_leaves_nothing),
        cmocka_unit_test(test_a_turn_accepts_a_bounded_number_of_feeders),
        cmocka_unit_test(test_feeders_do_not_wait_in_the_queue_of_strangers),
        cmocka_unit_test(test_who_came_before_the_end_is_heard_behind_a_full_queue),
        cmocka_unit_test(test_rows_and_the_end_come_through_while_strangers_connect),
        cmocka_unit_test(test_without_descriptors_a_hub_goes_on_with_those_who_are_there),
        cmocka_unit_test(test_a_killed_hubs_file_is_replaced),
        cmocka_unit_test(test_a_source_refuses_another_users_file),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
