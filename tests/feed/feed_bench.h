/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that the suites of feed share. */
#ifndef HY_TESTS_FEED_BENCH_H
#define HY_TESTS_FEED_BENCH_H

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
#include "feed/feed.h"
#include "feed/socket.h"

#define RING (256u << 10)
#define LIMIT_MS 20000

static inline const char *fresh_name(void)
{
    static char name[64];
    static int count;

    snprintf(name, sizeof name, "hopyard/test/%d/%d", getpid(), ++count);
    return name;
}

static inline int put_number(struct hy_feed_source *s, int64_t number)
{
    struct hy_batch_column c = {.dtype = HY_DTYPE_INT64, .values = &number, .values_n = sizeof number};
    const struct hy_batch b = {.rows = 1, .count = 1, .schema = "i", .schema_n = 1, .columns = &c};
    int rc;

    while ((rc = hy_feed_source_put(s, &b)) == 0) {
        rc = hy_feed_source_wait(s, hy_feed_source_needed(s), -1);
        if (rc < 0)
            return rc;
    }
    return rc;
}

static inline struct hy_feed_source *open_source(const char *name, const char *queue, bool needs_results)
{
    const struct hy_feed_source_options o = {.queue = queue, .size = RING, .needs_results = needs_results};
    struct hy_feed_source *s = NULL;
    struct hy_err err = {0};

    if (hy_feed_source_open(name, &o, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static inline struct hy_feed_hub *open_hub(const char *name)
{
    struct hy_feed_hub *h = NULL;
    struct hy_err err = {0};

    if (hy_feed_hub_open(name, &h, &err) < 0)
        fail_msg("%s", err.text);
    return h;
}

/* The next number; -1 at the end of a partition, -2 at the end of the hub. */
static inline int64_t take_number(struct hy_feed_hub *h, const char *queue, uint64_t *ret_feeder)
{
    struct hy_feed_hub_message t;
    int64_t number;
    int rc;

    while ((rc = hy_feed_hub_next(h, queue, &t)) == 0) {
        rc = hy_feed_hub_wait(h, queue, -1, LIMIT_MS);
        if (rc == HY_FEED_HUB_OVER)
            return -2;
        assert_true(rc == HY_FEED_HUB_MESSAGE || rc == HY_FEED_HUB_WOKEN);
    }
    assert_int_equal(rc, 1);
    number = t.is_end ? -1 : *(const int64_t *)t.batch->columns[0].values;
    if (ret_feeder)
        *ret_feeder = t.feeder;
    hy_feed_hub_release(h, t.feeder);
    return number;
}

static inline int status_of(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* A process that feeds `count` numbers from `first` on. Exit status: 0, 3 after -ESHUTDOWN, 4 after -EPIPE. */
static inline pid_t start_feeder(const char *name, int64_t first, int64_t count)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        const struct hy_feed_source_options o = {.queue = "input", .size = RING};
        struct hy_feed_source *s = NULL;
        int rc = hy_feed_source_open(name, &o, &s, NULL) == 0 ? 1 : -EPIPE;

        for (int64_t i = 0; i < count && rc == 1; i++)
            rc = put_number(s, first + i);
        if (rc == 1)
            rc = hy_feed_source_put_end(s);
        if (rc == 1)
            rc = hy_feed_source_wait_until_taken(s, -1);
        _exit(rc == 1 ? 0 : rc == -ESHUTDOWN ? 3 : rc == -EPIPE ? 4 : 5);
    }
    return pid;
}

static inline int connect_to(const char *name)
{
    int fd = hy_feed_connect_abstract(name);

    assert_true(fd >= 0);
    return fd;
}

/* A ring without a source, for arbitrary messages. */
static inline struct hy_ring *open_ring(const char *name, int *ret_socket)
{
    struct hy_feed_hello hello = {.magic = HY_FEED_HELLO_MAGIC, .queue = "input"};
    struct hy_err err = {0};
    struct hy_ring *r = NULL;
    int ends[2], memory;

    *ret_socket = connect_to(name);
    assert_int_equal(hy_feed_socketpair(ends), 0);
    assert_int_equal(hy_ring_new(RING, ends[0], &r, &memory, &err), 0);
    assert_int_equal(hy_feed_send_packet(*ret_socket, &hello, sizeof hello, (int[2]){memory, ends[1]}), 0);
    close(ends[1]);
    close(memory);
    return r;
}

#endif
