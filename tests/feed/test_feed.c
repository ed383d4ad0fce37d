/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds: hubs and sources in one process and in several, with either killed, and with invalid peers. */
#include "feed_bench.h"

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
#include "feed/feed.h"
#include "feed/socket.h"

#define RETRY_BASE (1ll << 40) /* the first number of a retried partition */

/* ---- numbers through hubs ---- */

HY_TEST(test_queues_are_separate_and_feeders_alternate)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    struct hy_feed_source *s[3] = {open_source(name, "input", false), open_source(name, "input", false),
                                   open_source(name, "control", false)};

    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 4; i++)
            assert_int_equal(put_number(s[k], 10 * k + i), 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(take_number(h, "input", NULL), i);
        assert_int_equal(take_number(h, "input", NULL), 10 + i);
    }
    assert_int_equal(hy_feed_hub_wait(h, "input", -1, 10), HY_FEED_HUB_TIMEOUT);
    for (int i = 0; i < 4; i++)
        assert_int_equal(take_number(h, "control", NULL), 20 + i);
    for (int k = 0; k < 3; k++)
        hy_feed_source_close(s[k]);
    hy_feed_hub_close(h);
}

HY_TEST(test_ended_hub_is_over_after_all_batches_are_taken)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    struct hy_feed_source *gone = open_source(name, "input", false), *idle = open_source(name, "input", false);

    assert_int_equal(put_number(gone, 1), 1);
    assert_int_equal(put_number(gone, 2), 1);
    hy_feed_source_close(gone); /* before the hub accepts it */
    hy_feed_hub_end(h);
    assert_int_equal(take_number(h, "input", NULL), 1);
    assert_int_equal(take_number(h, "input", NULL), 2);
    while (hy_feed_hub_wait(h, "input", -1, 20) == HY_FEED_HUB_WOKEN)
        ; /* by hy_feed_hub_end */
    /* The other one is within a partition. */
    assert_int_equal(hy_feed_hub_wait(h, "input", -1, 20), HY_FEED_HUB_TIMEOUT);
    assert_int_equal(hy_feed_source_put_end(idle), 1);
    assert_int_equal(take_number(h, "input", NULL), -1);
    assert_int_equal(take_number(h, "input", NULL), -2);
    hy_feed_source_close(idle);
    hy_feed_hub_close(h);
}

HY_TEST(test_wait_returns_for_the_callers_descriptor_and_for_wake)
{
    struct hy_feed_hub *h = open_hub(fresh_name());
    int other = eventfd(0, EFD_CLOEXEC);

    assert_int_equal(hy_feed_hub_wait(h, "input", other, 20), HY_FEED_HUB_TIMEOUT);
    assert_int_equal(write(other, &(uint64_t){1}, 8), 8);
    assert_int_equal(hy_feed_hub_wait(h, "input", other, -1), HY_FEED_HUB_OTHER);
    hy_feed_hub_wake(h);
    assert_int_equal(hy_feed_hub_wait(h, "input", -1, -1), HY_FEED_HUB_WOKEN);
    close(other);
    hy_feed_hub_close(h);
}

HY_TEST(test_a_name_has_one_hub)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name), *second = NULL;
    const struct hy_feed_source_options o = {.queue = "input", .size = RING};
    struct hy_feed_source *s = NULL;
    struct hy_err err = {0};

    assert_int_equal(hy_feed_hub_open(name, &second, &err), -EADDRINUSE);
    hy_feed_hub_close(h);
    assert_int_equal(hy_feed_source_open(name, &o, &s, &err), -ECONNREFUSED);
}

HY_TEST(test_busy_hub_removes_disconnected_feeders)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    int first = -1, last;

    for (int i = 0; i < 500; i++) {
        struct hy_feed_source *s = open_source(name, "input", true);

        assert_int_equal(put_number(s, i), 1);
        hy_feed_source_close(s);
        assert_int_equal(take_number(h, "input", NULL), i);
        last = dup(0); /* the lowest free one */
        first = i == 0 ? last : first;
        assert_true(last < first + 400);
        close(last);
    }
    hy_feed_hub_close(h);
}

/* ---- threads ---- */

struct thread {
    const char *name;
    int64_t first, count;
    struct hy_feed_hub *hub;
    int rc;
};

static void *feed_numbers(void *arg)
{
    struct thread *t = arg;
    struct hy_feed_source *s = open_source(t->name, "input", false);

    t->rc = 1;
    for (int64_t i = 0; i < t->count && t->rc == 1; i++)
        t->rc = put_number(s, t->first + i);
    if (t->rc == 1)
        t->rc = hy_feed_source_put_end(s);
    hy_feed_source_close(s);
    return NULL;
}

static void *end_hub(void *arg)
{
    hy_feed_hub_end(((struct thread *)arg)->hub);
    return NULL;
}

HY_TEST(test_many_feeders_lose_and_duplicate_nothing)
{
    enum { FEEDERS = 8, EACH = 20000 };
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    int64_t next[FEEDERS] = {0}, number, ends = 0;
    struct thread feeders[FEEDERS];
    pthread_t threads[FEEDERS];

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
    hy_feed_hub_close(h);
}

HY_TEST(test_another_thread_may_end_the_hub)
{
    struct thread t = {.hub = open_hub(fresh_name())};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, end_hub, &t), 0);
    assert_int_equal(take_number(t.hub, "input", NULL), -2);
    assert_int_equal(pthread_join(thread, NULL), 0);
    hy_feed_hub_close(t.hub);
}

/* ---- termination ---- */

HY_TEST(test_terminate_reaches_connected_and_later_feeders)
{
    const char *name = fresh_name();
    const struct hy_feed_source_options o = {.queue = "input", .size = RING};
    struct hy_feed_hub *h = open_hub(name);
    struct hy_feed_source *s = NULL, *early = open_source(name, "input", false);
    struct hy_err err = {0};
    pid_t pid = start_feeder(name, 0, INT64_MAX);

    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(take_number(h, "input", NULL), i);
    assert_int_equal(hy_feed_hub_terminate(h, &err), 0);
    assert_int_equal(hy_feed_hub_terminate(h, &err), 0);
    assert_int_equal(status_of(pid), 3); /* its ring was full, or soon would be */
    assert_int_equal(put_number(early, 1), -ESHUTDOWN);
    assert_int_equal(hy_feed_source_wait_until_taken(early, -1), 1);
    for (int i = 0; i < 10; i++)
        assert_int_equal(hy_feed_source_open(name, &o, &s, &err), -ESHUTDOWN);
    assert_int_equal(take_number(h, "input", NULL), -2);
    hy_feed_source_close(early);
    hy_feed_hub_close(h);
    assert_int_equal(hy_feed_source_open(name, &o, &s, &err), -ECONNREFUSED);
}

HY_TEST(test_termination_is_reported_after_the_hub_has_closed)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    struct hy_feed_source *plain = open_source(name, "input", false), *with_results = open_source(name, "input", true);
    struct hy_err err = {0};

    assert_int_equal(hy_feed_hub_wait(h, "input", -1, 0), HY_FEED_HUB_TIMEOUT);
    assert_int_equal(hy_feed_hub_terminate(h, &err), 0);
    hy_feed_hub_close(h);
    assert_int_equal(put_number(plain, 1), -ESHUTDOWN);
    assert_int_equal(hy_feed_source_wait(with_results, 0, -1), -ESHUTDOWN);
    hy_feed_source_close(plain);
    hy_feed_source_close(with_results);
}

/* ---- killed processes ---- */

HY_TEST(test_killed_feeder_leaves_its_complete_batches)
{
    struct hy_rng rng;

    hy_rng_seed(&rng, 3, 0);
    for (int round = 0; round < 30; round++) {
        const char *name = fresh_name();
        struct hy_feed_hub *h = open_hub(name);
        pid_t pid = start_feeder(name, 0, INT64_MAX);
        int64_t dies_at = (int64_t)(hy_rng_next(&rng) % 3000), at = 0, retried = RETRY_BASE, number;

        if (dies_at == 0)
            kill(pid, SIGKILL);
        while (at < dies_at) {
            assert_int_equal(take_number(h, "input", NULL), at);
            at++;
            if (at == dies_at)
                assert_int_equal(kill(pid, SIGKILL), 0);
        }
        assert_int_equal(status_of(pid), 128 + SIGKILL);
        pid = start_feeder(name, RETRY_BASE, 100);
        while ((number = take_number(h, "input", NULL)) != -1)
            assert_int_equal(number, number < RETRY_BASE ? at++ : retried++);
        assert_int_equal(retried, RETRY_BASE + 100);
        assert_int_equal(status_of(pid), 0);
        hy_feed_hub_end(h);
        while ((number = take_number(h, "input", NULL)) >= 0)
            assert_int_equal(number, at++);
        assert_int_equal(number, -2);
        hy_feed_hub_close(h);
    }
}

HY_TEST(test_feeders_do_not_wait_for_a_killed_hub)
{
    for (int round = 0; round < 30; round++) {
        const char *name = fresh_name();
        int ready[2];
        pid_t hub, feeders[3];
        char byte;

        assert_int_equal(pipe(ready), 0);
        hub = fork();
        assert_true(hub >= 0);
        if (hub == 0) {
            struct hy_feed_hub *h = open_hub(name);

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

/* Both rings fill up; neither process may wait for the other forever. */
HY_TEST(test_results_are_one_to_one_and_in_order)
{
    enum { COUNT = 20000 };
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    pid_t pid = fork();
    int64_t number;

    assert_true(pid >= 0);
    if (pid == 0) {
        struct hy_feed_source *s = open_source(name, "input", true);
        struct hy_batch b = {0};
        int64_t sent = 0, got = 0;

        while (got < COUNT) {
            struct hy_batch_column c = {.dtype = HY_DTYPE_INT64, .values = &sent, .values_n = sizeof sent};
            const struct hy_batch row = {.rows = 1, .count = 1, .schema = "i", .schema_n = 1, .columns = &c};
            struct hy_ring_message m;
            int rc = 0;

            if (sent < COUNT && hy_feed_source_put(s, &row) == 1)
                sent++;
            else
                rc = hy_feed_source_wait(s, sent < COUNT ? hy_feed_source_needed(s) : 0, -1);
            if (rc < 0)
                _exit(1);
            if (sent % 100 && !(rc & HY_FEED_SOURCE_RESULTS))
                continue; /* let results accumulate */
            while (hy_feed_source_next(s, &m) > 0) {
                if (hy_batch_parse(m.bytes, m.n, &b) < 0 || *(const int64_t *)b.columns[0].values != 2 * got++)
                    _exit(2);
                hy_feed_source_release(s);
            }
        }
        _exit(0);
    }
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t result = 2 * i;
        struct hy_batch_column c = {.dtype = HY_DTYPE_INT64, .values = &result, .values_n = sizeof result};
        const struct hy_batch row = {.rows = 1, .count = 1, .schema = "i", .schema_n = 1, .columns = &c};
        uint64_t feeder;
        size_t need;

        number = take_number(h, "input", &feeder);
        assert_int_equal(number, i);
        while (hy_feed_hub_put(h, feeder, &row, &need) == 0)
            assert_int_equal(hy_feed_hub_wait_for_space(h, feeder, need, LIMIT_MS), 1);
    }
    assert_int_equal(status_of(pid), 0);
    hy_feed_hub_close(h);
}

/* ---- invalid peers ---- */

HY_TEST(test_feeder_with_an_invalid_hello_is_dropped)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    struct hy_feed_hello hello = {.magic = HY_FEED_HELLO_MAGIC, .queue = "input"};
    int file = memfd_create("not a ring", MFD_CLOEXEC), ends[2], fds[6];
    struct hy_feed_source *good = open_source(name, "input", false);

    assert_true(file >= 0);
    assert_int_equal(hy_feed_socketpair(ends), 0);
    for (int i = 0; i < 6; i++)
        fds[i] = connect_to(name);
    close(fds[0]); /* closes without a hello */
    assert_int_equal(hy_feed_send_packet(fds[1], "x", 1, NULL), 0);               /* not a hello */
    assert_int_equal(hy_feed_send_packet(fds[2], &hello, sizeof hello, NULL), 0); /* without a ring */
    /* Memory that is not a ring; a file instead of a socket; a queue name without NUL. */
    assert_int_equal(hy_feed_send_packet(fds[3], &hello, sizeof hello, (int[2]){file, ends[1]}), 0);
    assert_int_equal(hy_feed_send_packet(fds[4], &hello, sizeof hello, (int[2]){file, file}), 0);
    memset(hello.queue, 'x', sizeof hello.queue);
    assert_int_equal(hy_feed_send_packet(fds[5], &hello, sizeof hello, (int[2]){file, ends[1]}), 0);
    assert_int_equal(put_number(good, 5), 1);
    assert_int_equal(take_number(h, "input", NULL), 5);
    assert_int_equal(hy_feed_hub_dropped(h), 6);
    for (int i = 1; i < 6; i++)
        close(fds[i]);
    close(ends[0]);
    close(ends[1]);
    close(file);
    hy_feed_source_close(good);
    hy_feed_hub_close(h);
}

HY_TEST(test_only_the_feeder_of_an_invalid_message_is_dropped)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    struct hy_feed_source *good = open_source(name, "input", false);

    for (uint32_t kind = 0; kind < 4;
         kind++) { /* 1: an invalid batch; 2: an end that is not empty; 0, 3: unknown kinds */
        int socket;
        struct hy_ring *r = open_ring(name, &socket);
        void *room = hy_ring_reserve(r, 64);

        assert_non_null(room);
        memset(room, 7, 64);
        hy_ring_send(r, kind, 64);
        assert_int_equal(put_number(good, kind), 1);
        assert_int_equal(take_number(h, "input", NULL), kind);
        assert_int_equal(hy_feed_hub_next(h, "input", &(struct hy_feed_hub_message){0}), 0);
        assert_int_equal(hy_feed_hub_dropped(h), kind + 1);
        assert_int_equal(hy_ring_wait_for_space(r, 100 << 10, -1), 1);
        assert_int_equal(hy_ring_wait_until_empty(r, LIMIT_MS), -EPIPE);
        hy_ring_close(r);
        close(socket);
    }
    hy_feed_source_close(good);
    hy_feed_hub_close(h);
}

/* Names are visible to every user: one that is free could be taken, and the hub could not report its termination. */
HY_TEST(test_hub_binds_both_names_at_open)
{
    const struct hy_feed_source_options o = {.queue = "input", .size = RING};
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    struct hy_feed_source *s = NULL;
    char end[HY_FEED_NAME_MAX];

    assert_int_equal(hy_feed_terminated_name(name, end), 0);
    assert_int_equal(hy_feed_bind(name), -EADDRINUSE);
    assert_int_equal(hy_feed_bind(end), -EADDRINUSE);
    assert_int_equal(hy_feed_connect_abstract(end), -ECONNREFUSED);
    assert_int_equal(hy_feed_hub_terminate(h, NULL), 0);
    assert_int_equal(hy_feed_source_open(name, &o, &s, NULL), -ESHUTDOWN);
    hy_feed_hub_close(h);
    assert_int_equal(hy_feed_source_open(name, &o, &s, NULL), -ECONNREFUSED);
}

/* Another user trusts root's hub, but root's hub does not trust that user. */
HY_TEST(test_hub_accepts_only_its_user_and_root)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h;
    pid_t pid;

    hy_need_root("to become another user");
    h = open_hub(name);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct hy_feed_source_options o = {.queue = "input", .size = RING};
        struct hy_feed_source *s = NULL;
        int rc;

        if (setuid(65534) != 0)
            _exit(9);
        rc = hy_feed_source_open(name, &o, &s, NULL);
        if (rc == 0) /* it is accepted only by the source */
            rc = hy_feed_source_wait_until_taken(s, 0);
        _exit(rc == 1 ? 0 : 1);
    }
    assert_int_equal(status_of(pid), 0);
    assert_int_equal(hy_feed_hub_wait(h, "input", -1, 0), HY_FEED_HUB_TIMEOUT);
    assert_int_equal(hy_feed_hub_dropped(h), 1);
    hy_feed_hub_close(h);
}

HY_TEST(test_source_refuses_the_hub_of_another_user)
{
    const char *name = fresh_name();
    int ready[2], status;
    pid_t hub, pid;
    char byte;

    hy_need_root("to become another user");
    assert_int_equal(pipe(ready), 0);
    hub = fork();
    assert_true(hub >= 0);
    if (hub == 0) {
        struct hy_feed_hub *h = NULL;

        if (setuid(65534) != 0 || hy_feed_hub_open(name, &h, NULL) < 0 || write(ready[1], "", 1) != 1)
            _exit(9);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct hy_feed_source_options o = {.queue = "input", .size = RING};
        struct hy_feed_source *s = NULL;

        _exit(setuid(65533) == 0 && hy_feed_source_open(name, &o, &s, NULL) == -EPERM ? 0 : 1);
    }
    status = status_of(pid);
    kill(hub, SIGKILL);
    status_of(hub);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(status, 0);
}

/* ---- batch streams ---- */

struct reader {
    int64_t number;
    uint64_t rows;
    uint64_t sum;
};

static int take_batch(int64_t number, uint64_t *rows, uint64_t *sum)
{
    struct hy_gathered g = {0};
    struct hy_err err = {0};
    int rc = hy_batch_stream_next(number, &(struct hy_gather_sink){0}, &g, &err);

    for (uint64_t i = 0; rc == HY_BATCH_STREAM_ROWS && i < g.rows; i++)
        *sum += (uint64_t)((const int32_t *)g.columns[0].values)[i];
    *rows += rc == HY_BATCH_STREAM_ROWS ? g.rows : 0;
    hy_gathered_done(&g);
    return rc;
}

static void *read_stream(void *arg)
{
    struct reader *r = arg;
    int rc;

    do
        rc = take_batch(r->number, &r->rows, &r->sum);
    while (rc == HY_BATCH_STREAM_ROWS || rc == HY_BATCH_STREAM_TIMEOUT);
    assert_int_equal(rc, HY_BATCH_STREAM_END);
    return NULL;
}

static struct hy_consumer *open_consumer(const char *name)
{
    struct hy_consumer *c;
    struct hy_feed_hub *hub;

    assert_int_equal(hy_feed_hub_open(name, &hub, NULL), 0);
    c = hy_consumer_new(hub);
    assert_non_null(c);
    return c;
}

static struct hy_batch_stream *open_stream(struct hy_consumer *c, uint64_t rows)
{
    const struct hy_signature_column column = {.name = "x", .dtype = HY_DTYPE_INT32};
    struct hy_batch_stream *b = NULL;
    struct hy_signature w;
    const struct hy_batch_stream_options o = {.queue = "input", .rows = rows};

    assert_int_equal(hy_signature_init(&w, "a", false, &column, 1), 0);
    assert_int_equal(hy_batch_stream_new(c, &o, &w, &b), 0);
    return b;
}

/* Two threads read while a third one repeatedly enters and finally ends the hub. */
HY_TEST(test_any_thread_may_read_a_batch_stream)
{
    const char *name = fresh_name();
    const struct hy_feed_source_options o = {.queue = "input", .size = RING};
    struct reader readers[2] = {{0}, {0}};
    pthread_t threads[2];
    struct hy_consumer *c;
    struct hy_batch_stream *b;
    struct hy_feed_source *s;

    c = open_consumer(name);
    b = open_stream(c, 7);
    for (int i = 0; i < 2; i++) {
        readers[i].number = hy_batch_stream_handle(b);
        assert_int_equal(pthread_create(&threads[i], NULL, read_stream, &readers[i]), 0);
    }
    assert_int_equal(hy_feed_source_open(name, &o, &s, NULL), 0);
    for (int i = 1; i <= 1000; i++) {
        assert_int_equal(put_number(s, i), 1);
        if (i % 10 == 0) {
            assert_int_equal(hy_consumer_enter(c, false, LIMIT_MS), 0);
            hy_consumer_leave(c, false);
        }
    }
    hy_feed_source_close(s);
    hy_consumer_end(c);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(readers[0].rows + readers[1].rows, 1000);
    assert_int_equal(readers[0].sum + readers[1].sum, 500500);
    assert_true(hy_batch_stream_is_over(b));
    assert_int_equal(take_batch(readers[0].number, &readers[0].rows, &readers[0].sum), HY_BATCH_STREAM_END);
    hy_batch_stream_free(b);
    assert_int_equal(take_batch(readers[0].number, &readers[0].rows, &readers[0].sum), HY_BATCH_STREAM_END);
    hy_consumer_unref(c);
}

/* ---- pickled rows ---- */

static int put_pickle(struct hy_feed_source *s, const char *pickle)
{
    struct hy_batch_column c = {.dtype = HY_DTYPE_PICKLE, .values = pickle, .values_n = strlen(pickle)};
    const struct hy_batch b = {.count = 1, .schema = "*", .schema_n = 1, .columns = &c};

    return hy_feed_source_put(s, &b);
}

struct requeues {
    char text[64];
    int answer;
};

static int record_requeue(void *context, const char *queue, const void *pickle, size_t n, uint32_t first)
{
    struct requeues *t = context;
    const size_t used = strlen(t->text);

    snprintf(t->text + used, sizeof t->text - used, "%s %.*s %u;", queue, (int)n, (const char *)pickle, first);
    return t->answer;
}

/* Rows may be taken from a pickle; a caller that takes columns has the rest of it fed again. */
HY_TEST(test_pickles_are_requeued_when_columns_are_taken)
{
    const char *name = fresh_name();
    const struct hy_feed_source_options o = {.queue = "input", .size = RING};
    struct requeues requeues = {"", 0};
    uint64_t rows = 0, sum = 0;
    struct hy_consumer *c;
    struct hy_feed_queue *q;
    struct hy_batch_stream *b;
    struct hy_feed_source *s;

    c = open_consumer(name);
    c->requeue = record_requeue;
    c->requeue_context = &requeues;
    q = hy_consumer_queue(c, "input");
    assert_int_equal(hy_feed_source_open(name, &o, &s, NULL), 0);
    assert_false(hy_feed_source_may_pickle(s));
    assert_int_equal(put_pickle(s, "first"), 1);
    assert_int_equal(put_pickle(s, "second"), 1);
    assert_int_equal(hy_consumer_enter(c, true, LIMIT_MS), 0);
    q->accepts_pickles = true;
    assert_int_equal(hy_consumer_next(c, q, false, -1, LIMIT_MS), HY_CONSUMER_ROWS);
    assert_true(hy_feed_source_may_pickle(s));
    assert_int_equal(q->cursor.rows, HY_BATCH_ROWS_UNKNOWN);
    q->cursor.rows = 5; /* known once the pickle is loaded */
    q->cursor.next = 3;
    assert_int_equal(hy_consumer_advance(c, q, 3), 0);
    hy_consumer_leave(c, true);
    assert_int_equal(put_number(s, 7), 1);
    b = open_stream(c, 1);
    assert_int_equal(take_batch(hy_batch_stream_handle(b), &rows, &sum), HY_BATCH_STREAM_ROWS);
    assert_int_equal(sum, 7);
    assert_string_equal(requeues.text, "input first 3;input second 0;");
    assert_false(hy_feed_source_may_pickle(s));
    requeues.answer = -EBADMSG; /* an invalid pickle: its feeder is dropped */
    assert_int_equal(put_pickle(s, "third"), 1);
    assert_int_equal(take_batch(hy_batch_stream_handle(b), &rows, &sum), HY_BATCH_STREAM_TIMEOUT);
    assert_int_equal(hy_feed_source_wait_until_taken(s, LIMIT_MS), -EPIPE);
    hy_feed_source_close(s);
    hy_batch_stream_free(b);
    hy_consumer_close(c);
    hy_consumer_unref(c);
}

HY_TEST(test_batch_streams_end_when_their_hub_is_closed)
{
    struct reader r = {0};
    pthread_t thread;
    struct hy_consumer *c;
    struct hy_batch_stream *b;

    c = open_consumer(fresh_name());
    b = open_stream(c, 7);
    r.number = hy_batch_stream_handle(b);
    assert_int_equal(pthread_create(&thread, NULL, read_stream, &r), 0);
    hy_consumer_interrupt(c);
    assert_int_equal(hy_consumer_enter(c, false, LIMIT_MS), 0);
    hy_consumer_close(c);
    hy_consumer_leave(c, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(hy_consumer_enter(c, true, 0), -ESHUTDOWN);
    hy_consumer_end(c);
    hy_batch_stream_free(b);
    hy_consumer_unref(c);
}

/* ---- faults ---- */

static int feed_once(void *arg)
{
    const char *name = fresh_name();
    const struct hy_feed_source_options o = {.queue = "input", .size = RING, .needs_results = true};
    struct hy_feed_hub *h = NULL;
    struct hy_feed_source *s = NULL;
    struct hy_feed_hub_message t;
    int rc = hy_feed_hub_open(name, &h, NULL);

    (void)arg;
    if (rc == 0)
        rc = hy_feed_source_open(name, &o, &s, NULL);
    if (rc == 0)
        rc = put_number(s, 1);
    if (rc == 1)
        rc = hy_feed_hub_wait(h, "input", -1, 0);
    if (rc >= 0)
        rc = hy_feed_hub_next(h, "input", &t);
    if (rc == 1)
        hy_feed_hub_release(h, t.feeder);
    if (rc >= 0)
        rc = hy_feed_hub_terminate(h, NULL);
    hy_feed_source_close(s);
    hy_feed_hub_close(h);
    return rc;
}

HY_TEST(test_failures_leak_nothing)
{
    hy_each_fault(HY_SEAM_ALLOC, feed_once, NULL);
    hy_each_fault(HY_SEAM_SYS, feed_once, NULL);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
