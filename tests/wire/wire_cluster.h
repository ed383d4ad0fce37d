/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver and some agents on one loop in one process, over real sockets, for
 * the tests of links. Messages are Kill{trial = their number}, so that each
 * side can check that they arrive in order and once.
 */
#ifndef HY_TESTS_WIRE_CLUSTER_H
#define HY_TESTS_WIRE_CLUSTER_H

#include <arpa/inet.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "captured_log.h"
#include "support.h"
#include "wire/net.h"
#include "wire_mux.h"

#define AGENTS_MAX 64
#define LONG_MS 20000 /* a silence that does not happen in a test */
#define TEST_TIMEOUT_MS 60000 /* a test that hangs fails after this */

struct side {
    struct world *world;
    struct hy_net *net;
    struct hy_peer *peer; /* the newest */
    int ups, gones;
    uint64_t sent, got;
    uint64_t data_sent, data_want, data_got; /* on stream 1 */
    char why[200];
    int closes_on_message; /* calls hy_peer_close in on_message; its linger_ms + 1 */
    int echoes;            /* replies to each message */
};

struct world {
    uv_loop_t loop;
    uv_check_t check;
    uv_timer_t watchdog;
    int late;
    int flushes; /* at the end of each turn */
    uint8_t key[HY_KEY_SIZE];
    uint16_t port;
    struct side driver, agents[AGENTS_MAX];
    int agent_count;
    int keys_asked;
};

static inline int side_send(struct side *s, struct hy_peer *p)
{
    Hy__Control c = HY__CONTROL__INIT;
    Hy__Kill k = HY__KILL__INIT;
    int rc;

    k.trial = s->sent;
    c.body_case = HY__CONTROL__BODY_KILL;
    c.kill = &k;
    rc = hy_peer_send(p, &c);
    s->sent += rc == 0;
    return rc;
}

static inline void side_fill(struct side *s)
{
    uint8_t bytes[4096];

    while (s->peer && s->data_sent < s->data_want) {
        size_t n = hy_peer_room(s->peer, 1);

        n = n < sizeof bytes ? n : sizeof bytes;
        n = n < s->data_want - s->data_sent ? n : (size_t)(s->data_want - s->data_sent);
        if (n == 0)
            return;
        for (size_t i = 0; i < n; i++)
            bytes[i] = data_byte(1, s->data_sent + i);
        if (hy_peer_write(s->peer, 1, bytes, n) < 0)
            return;
        s->data_sent += n;
    }
}

static inline void side_up(void *arg, struct hy_peer *p)
{
    struct side *s = arg;

    s->ups++;
    s->peer = p;
    hy_peer_set_data(p, s);
}

static inline void side_message(void *arg, struct hy_peer *p, const Hy__Control *m)
{
    struct side *s = arg;

    assert_int_equal(m->body_case, HY__CONTROL__BODY_KILL);
    assert_int_equal(m->kill->trial, s->got);
    s->got++;
    if (s->echoes)
        assert_int_equal(side_send(s, p), 0);
    if (s->closes_on_message) {
        hy_peer_close(p, s->closes_on_message - 1);
        s->peer = NULL;
    }
}

static inline void side_data(void *arg, struct hy_peer *p, uint32_t stream, const uint8_t *bytes, size_t n)
{
    struct side *s = arg;

    assert_int_equal(stream, 1);
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != data_byte(1, s->data_got + i))
            fail_msg("byte %llu is wrong", (unsigned long long)(s->data_got + i));
    s->data_got += n;
    hy_peer_consumed(p, stream, n);
}

static inline void side_room(void *arg, struct hy_peer *p, uint32_t stream)
{
    (void)p;
    assert_int_equal(stream, 1);
    side_fill(arg);
}

static inline void side_gone(void *arg, struct hy_peer *p, const char *why)
{
    struct side *s = arg;

    s->gones++;
    if (s->peer == p)
        s->peer = NULL;
    snprintf(s->why, sizeof s->why, "%s", why);
}

static const struct hy_net_events side_events = {side_up, side_message, side_data, side_room, side_gone};

static inline void world_flush(struct world *w)
{
    if (w->driver.net)
        hy_net_flush(w->driver.net);
    for (int i = 0; i < w->agent_count; i++)
        if (w->agents[i].net)
            hy_net_flush(w->agents[i].net);
}

static inline void world_check(uv_check_t *c)
{
    struct world *w = c->data;

    if (w->flushes)
        world_flush(w);
}

static inline void world_late(uv_timer_t *t)
{
    ((struct world *)t->data)->late = 1;
}

/* One key per identity; "stranger" is unknown. */
static inline int world_key_of(void *arg, const char *identity, uint8_t key[HY_KEY_SIZE])
{
    struct world *w = arg;

    w->keys_asked++;
    if (strcmp(identity, "stranger") == 0)
        return -ENOENT;
    return hy_key_derive(w->key, identity, key);
}

static inline int side_open(struct side *s, struct world *w, int64_t silence_ms)
{
    struct hy_net_settings settings = {.silence_ms = silence_ms, .ping_ms = silence_ms / 6};

    s->world = w;
    s->net = hy_net_new(&w->loop, &settings, &side_events, s);
    if (!s->net)
        return -ENOMEM;
    s->net->redial_ms = 1;
    return 0;
}

static inline int world_init(struct world *w, int64_t silence_ms)
{
    int rc;

    memset(w, 0, sizeof *w);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    uv_check_init(&w->loop, &w->check);
    uv_timer_init(&w->loop, &w->watchdog);
    w->check.data = w->watchdog.data = w;
    w->flushes = 1;
    uv_check_start(&w->check, world_check);
    uv_timer_start(&w->watchdog, world_late, TEST_TIMEOUT_MS, 0);
    memset(w->key, 7, sizeof w->key);
    rc = side_open(&w->driver, w, silence_ms);
    if (rc == 0)
        rc = hy_net_listen(w->driver.net, "127.0.0.1", 0, world_key_of, w, &w->port, NULL);
    return rc;
}

static inline int world_dial(struct world *w, const char *identity, int64_t silence_ms)
{
    struct side *s = &w->agents[w->agent_count++];
    uint8_t key[HY_KEY_SIZE];
    int rc = side_open(s, w, silence_ms);

    assert_int_equal(hy_key_derive(w->key, identity, key), 0);
    return rc < 0 ? rc : hy_net_dial(s->net, "127.0.0.1", w->port, identity, key, &s->peer, NULL);
}

static inline void side_close(struct side *s)
{
    hy_net_free(s->net);
    s->net = NULL;
    s->peer = NULL;
}

static inline void world_done(struct world *w)
{
    side_close(&w->driver);
    for (int i = 0; i < w->agent_count; i++)
        side_close(&w->agents[i]);
    uv_close((uv_handle_t *)&w->check, NULL);
    uv_close((uv_handle_t *)&w->watchdog, NULL);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
}

static inline void world_turn(struct world *w)
{
    if (w->flushes)
        world_flush(w);
    if (w->late)
        fail_msg("timeout");
    uv_run(&w->loop, UV_RUN_ONCE);
}

/* Runs the loop until the condition holds. */
#define world_until(w, condition)                                                                                      \
    while (!(condition))                                                                                               \
    world_turn(w)

static inline int connect_raw(const struct world *w)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(w->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static inline void world_step(struct world *w)
{
    if (w->late)
        fail_msg("timeout");
    world_flush(w);
    uv_run(&w->loop, UV_RUN_NOWAIT);
    usleep(100);
}

/* Both ends of a connection are in this process, and the default limit is often 1024. The new limit stays. */
static inline void need_descriptors(rlim_t count)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < count)
        hy_skip("needs %llu open files (ulimit -Hn)", (unsigned long long)count);
    if (limit.rlim_cur < count)
        limit.rlim_cur = count;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

#endif
