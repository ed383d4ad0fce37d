/* SPDX-License-Identifier: Apache-2.0 */
/* Unauthenticated connections, wrong keys, unusual addresses, ranks that leave, faults. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include "collective/mesh/handshake.h"
#include "fds.h"
#include "mesh_checks.h"

/* ---- keys ----------------------------------------------------------------------------- */

static int body_one_allreduce(struct rank *r)
{
    return check_allreduce(r, r->world->peers, r->world->size, 100000, HY_F32, HY_SUM);
}

static int body_many_allreduces(struct rank *r)
{
    int rc = 0;

    for (int i = 0; i < 20 && rc == 0; i++)
        rc = body_one_allreduce(r);
    return rc;
}

HY_TEST(test_a_different_key_is_reported_to_the_dialer)
{
    struct world w;
    int before = count_fds();

    world_init(&w, 2, body_one_allreduce, NULL);
    w.keys[1][0] ^= 1;
    w.watched = true;
    run_threads(&w);
    assert_int_equal(w.ranks[1].rc, -EACCES);
    assert_non_null(strstr(w.ranks[1].waiter.failed.text, "rank 0 at 127.0.0.1"));
    assert_non_null(strstr(w.ranks[1].waiter.failed.text, "key"));
    assert_int_equal(w.ranks[0].rc, -EOWNERDEAD); /* no effect there, until the driver has reported it */
    assert_int_equal(count_fds(), before);
}

/* ---- unauthenticated connections ------------------------------------------------------------------------ */

#define STRANGERS 200u /* more than a rank accepts at a time */

static int dial_port(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* One sends nothing, one garbage, one an incomplete handshake, one a handshake with a wrong proof. */
static void misbehave(int fd, unsigned kind)
{
    static const char garbage[] = "GET / HTTP/1.0\r\n\r\n";
    static const uint8_t nonce[HY_HANDSHAKE_NONCE], key[HY_HANDSHAKE_KEY], proof[HY_PROOF_SIZE];
    struct hy_handshake h;

    hy_handshake_dial(&h, key, 2, 4, 0, 0, nonce);
    if (kind == 1)
        assert_int_equal(send(fd, garbage, sizeof garbage, MSG_NOSIGNAL), sizeof garbage);
    if (kind == 2)
        assert_int_equal(send(fd, h.out, 30, MSG_NOSIGNAL), 30);
    if (kind == 3) {
        assert_int_equal(send(fd, h.out, h.out_size, MSG_NOSIGNAL), (ssize_t)h.out_size);
        assert_int_equal(send(fd, proof, sizeof proof, MSG_NOSIGNAL), sizeof proof);
    }
}

HY_TEST(test_unauthenticated_connections_do_no_harm)
{
    static int strangers[2][STRANGERS];
    int before = count_fds();
    struct world w;

    world_init(&w, 4, body_one_allreduce, NULL);
    for (unsigned door = 0; door < 2; door++) /* before any rank connects: they are first in the queue */
        for (unsigned i = 0; i < STRANGERS; i++) {
            strangers[door][i] = dial_port(w.ports[door]);
            misbehave(strangers[door][i], i % 4);
        }
    run_threads(&w);
    for (unsigned i = 0; i < w.size; i++)
        if (w.ranks[i].rc)
            fail_msg("rank %u: %s", i, w.ranks[i].waiter.failed.text);
    for (unsigned door = 0; door < 2; door++)
        for (unsigned i = 0; i < STRANGERS; i++)
            close(strangers[door][i]);
    assert_int_equal(count_fds(), before);
}

/* Rank 0 of a mesh to which no rank has connected yet. */
HY_TEST(test_an_iteration_accepts_a_bounded_number_of_connections)
{
    enum { FLOOD = 100 };
    struct hy_waiter waiter = {.bell = -1, .watch_fd = -1};
    int fds[FLOOD], before = count_fds();
    unsigned accepted = 0, turns = 0;
    struct hy_err err = {0};
    struct hy_mesh *m;
    struct world w;

    world_init(&w, 1, body_one_allreduce, NULL);
    assert_int_equal(hy_mesh_open(w.listeners[0], 0, 1, w.roster, w.keys[0], &waiter, &m, &err), 0);
    for (int i = 0; i < FLOOD; i++)
        fds[i] = dial_port(w.ports[0]);
    while (m->incoming_count < FLOOD) {
        assert_int_equal(hy_mesh_wait(m), 0);
        assert_in_range(m->incoming_count - accepted, 0, HY_MESH_ACCEPTS_MAX);
        assert_true(!m->may_accept || m->timer_at <= hy_clock_ms()); /* no event follows for the others */
        accepted = m->incoming_count;
        assert_in_range(++turns, 1, FLOOD);
    }
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    while (m->incoming_count > 0)
        assert_int_equal(hy_mesh_wait(m), 0);
    hy_mesh_close(m);
    assert_int_equal(count_fds(), before);
}

static void *connect_in_a_loop(void *arg)
{
    struct world *w = arg;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(w->ports[0])};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    while (!atomic_load(&w->strangers_end)) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        (void)!connect(fd, (struct sockaddr *)&address, sizeof address); /* refused when the rank has closed */
        close(fd);
    }
    return NULL;
}

HY_TEST(test_ranks_work_while_others_connect_in_a_loop)
{
    int before = count_fds();
    pthread_t stranger;
    struct world w;

    world_init(&w, 3, body_many_allreduces, NULL);
    assert_int_equal(pthread_create(&stranger, NULL, connect_in_a_loop, &w), 0);
    run_threads(&w);
    atomic_store(&w.strangers_end, true);
    assert_int_equal(pthread_join(stranger, NULL), 0);
    for (unsigned i = 0; i < w.size; i++)
        if (w.ranks[i].rc)
            fail_msg("rank %u: %s", i, w.ranks[i].waiter.failed.text);
    assert_int_equal(count_fds(), before);
}

HY_TEST(test_without_descriptors_a_rank_accepts_later)
{
    struct hy_waiter waiter = {.bell = -1, .watch_fd = -1};
    struct rlimit old, none;
    struct hy_err err = {0};
    struct hy_mesh *m;
    struct world w;
    int fd;

    world_init(&w, 1, body_one_allreduce, NULL);
    assert_int_equal(hy_mesh_open(w.listeners[0], 0, 1, w.roster, w.keys[0], &waiter, &m, &err), 0);
    fd = dial_port(w.ports[0]);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    while (!m->accept_at)
        hy_mesh_poll(m);
    assert_int_equal(m->broken.code, 0);
    assert_int_equal(m->incoming_count, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    while (m->incoming_count == 0)
        assert_int_equal(hy_mesh_wait(m), 0);
    close(fd);
    hy_mesh_close(m);
}

/* ---- addresses ------------------------------------------------------------------------ */

HY_TEST(test_ranks_connect_over_ipv6)
{
    struct world w;

    world_init(&w, 3, body_one_allreduce, NULL);
    w.address = "::1";
    run_threads(&w);
    for (unsigned i = 0; i < w.size; i++)
        assert_int_equal(w.ranks[i].rc, 0);
}

HY_TEST(test_the_address_that_answers_is_used)
{
    /* An unused address, an invalid one, one at which another process may listen; then the right one. */
    static const char *const addresses[] = {"192.0.2.1", "nowhere", "2001:db8::1", "127.0.0.1"};
    struct world w;

    world_init(&w, 3, body_one_allreduce, NULL);
    for (unsigned i = 0; i < w.size; i++) {
        w.roster[i].addresses = addresses;
        w.roster[i].address_count = HY_COUNT(addresses);
    }
    run_threads(&w);
    for (unsigned i = 0; i < w.size; i++)
        if (w.ranks[i].rc)
            fail_msg("rank %u: %s", i, w.ranks[i].waiter.failed.text);
}

static int listen_at(const char *text, uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(inet_pton(AF_INET, text, &address.sin_addr), 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* Another process accepts at the first address and sends nothing: the next address is tried anyway. */
HY_TEST(test_a_silent_listener_at_one_address_is_skipped)
{
    static const char *const addresses[] = {"127.0.0.9", "127.0.0.1"};
    struct world w;
    int silent;

    world_init(&w, 2, body_one_allreduce, NULL);
    close(w.listeners[0]);
    w.ports[0] = 0;
    w.listeners[0] = listen_at("127.0.0.1", &w.ports[0]);
    silent = listen_at("127.0.0.9", &w.ports[0]);
    w.roster[0] = (struct hy_mesh_peer){.addresses = addresses, .address_count = 2, .port = w.ports[0]};
    run_threads(&w);
    close(silent);
    assert_int_equal(w.ranks[0].rc, 0);
    assert_int_equal(w.ranks[1].rc, 0);
}

static void forget(char **addresses, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(addresses[i]);
    free(addresses);
}

HY_TEST(test_only_the_named_interfaces_are_used)
{
    char **addresses;
    struct hy_err err;
    uint16_t port;
    size_t count;
    int fd;

    setenv("HOPYARD_INTERFACES", "nonesuch,lo", 1);
    fd = hy_mesh_listen(&port, &addresses, &count, &err);
    assert_true(fd >= 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(port > 0 && count > 0);
    assert_string_equal(addresses[0], "127.0.0.1");
    close(fd);
    forget(addresses, count);
    setenv("HOPYARD_INTERFACES", "l", 1); /* only a prefix of a name */
    assert_int_equal(hy_mesh_listen(&port, &addresses, &count, &err), -EADDRNOTAVAIL);
    assert_non_null(strstr(err.text, "HOPYARD_INTERFACES=l"));
    unsetenv("HOPYARD_INTERFACES");
    fd = hy_mesh_listen(&port, &addresses, &count, &err);
    assert_true(fd >= 0);
    for (size_t i = 0, loopback = 0; i < count; i++) { /* last */
        bool is = strncmp(addresses[i], "127.", 4) == 0 || strcmp(addresses[i], "::1") == 0;

        assert_true(is || !loopback);
        loopback |= is;
    }
    close(fd);
    forget(addresses, count);
}

HY_TEST(test_invalid_ranks_are_refused)
{
    struct hy_waiter waiter = {.bell = -1, .watch_fd = -1};
    struct hy_mesh *m = NULL;
    struct hy_err err;
    uint8_t key[HY_MESH_KEY_SIZE] = {0};

    assert_int_equal(hy_mesh_open(-1, 0, 0, NULL, key, &waiter, &m, &err), -EINVAL);
    assert_int_equal(hy_mesh_open(-1, 3, 3, NULL, key, &waiter, &m, &err), -EINVAL);
    assert_int_equal(hy_mesh_open(-1, 0, HY_RANKS_MAX + 1, NULL, key, &waiter, &m, &err), -EINVAL);
    hy_mesh_close(NULL);
}

/* ---- ranks that leave ----------------------------------------------------------------- */

static int body_rank_1_leaves(struct rank *r)
{
    int rc = body_one_allreduce(r);

    if (rc < 0 || r->rank == 1)
        return rc;
    return body_one_allreduce(r);
}

HY_TEST(test_a_rank_that_leaves_is_named)
{
    char expected[80];
    struct world w;

    world_init(&w, 4, body_rank_1_leaves, NULL);
    run_threads(&w);
    snprintf(expected, sizeof expected, "rank 1 at 127.0.0.1:%u has closed the connection", w.ports[1]);
    for (unsigned i = 0; i < w.size; i++) {
        assert_int_equal(w.ranks[i].rc, i == 1 ? 0 : -ECONNRESET);
        if (i != 1 && !strstr(w.ranks[i].waiter.failed.text, expected))
            fail_msg("rank %u: %s", i, w.ranks[i].waiter.failed.text);
    }
}

static int body_rank_1_fails(struct rank *r)
{
    int rc = hy_mesh_barrier(r->mesh, r->world->peers, r->world->size);

    if (rc == 0 && r->rank == 1)
        return -EIO;
    return rc < 0 ? rc : body_one_allreduce(r);
}

HY_TEST(test_the_drivers_report_takes_precedence_over_a_closed_connection)
{
    struct world w;

    world_init(&w, 3, body_rank_1_fails, NULL);
    w.watched = true;
    run_threads(&w);
    for (unsigned i = 0; i < w.size; i++)
        assert_int_equal(w.ranks[i].rc, i == 1 ? -EIO : -EOWNERDEAD);
    assert_string_equal(w.ranks[0].waiter.failed.text, "the driver says that rank 1 has ended");
}

/* After an error all calls fail with the same message. */
static int body_after_the_end(struct rank *r)
{
    uint8_t byte = 0;
    struct hy_transfer t = {.peer = 1, .bytes = &byte, .n = 1};
    size_t one[2] = {1, 0}, offsets[2] = {0, 0};
    const unsigned *peers = r->world->peers;
    struct hy_mesh *m = r->mesh;
    int rc = hy_mesh_barrier(m, peers, 2);

    if (rc < 0 || r->rank == 1)
        return rc;
    rc = hy_mesh_exchange(m, NULL, 0, &t, 1);
    if (rc != -ECONNRESET || hy_mesh_exchange(m, &t, 1, NULL, 0) != rc || hy_mesh_barrier(m, peers, 2) != rc ||
        hy_mesh_broadcast(m, peers, 2, &byte, 1, 0) != rc || hy_mesh_pipe_read(m, 1, &byte, 1) != rc ||
        hy_mesh_pipe_write(m, 1, &byte, 1) != rc || hy_mesh_allgather(m, peers, 2, &byte, one, offsets) != rc ||
        hy_mesh_reducescatter(m, peers, 2, &byte, one, HY_U8, HY_SUM) != rc)
        return wrong(r, "a call after the end", 0, rc);
    return 0;
}

HY_TEST(test_after_an_error_every_call_returns_it)
{
    all_ranks(2, body_after_the_end, NULL);
}

/* A rank whose part is done may close while the others continue. */
static int body_early_leaver(struct rank *r)
{
    hy_cleanup_free uint8_t *bytes = calloc(1, 1000000);
    struct hy_transfer to = {.peer = 0, .bytes = bytes, .n = 1000000}, from = {.peer = 2, .bytes = bytes, .n = 1000000};
    unsigned two[] = {0, 1};
    int rc = 0;

    if (r->rank == 2)
        return hy_mesh_exchange(r->mesh, &to, 1, NULL, 0);
    for (int i = 0; i < 200 && rc == 0; i++)
        rc = hy_mesh_allreduce(r->mesh, two, 2, bytes, 1000, HY_F32, HY_SUM);
    return rc == 0 && r->rank == 0 ? hy_mesh_exchange(r->mesh, NULL, 0, &from, 1) : rc;
}

HY_TEST(test_a_rank_may_close_when_its_part_is_done)
{
    all_ranks(3, body_early_leaver, NULL);
}

static int body_unreachable_peer(struct rank *r)
{
    return hy_mesh_barrier(r->mesh, r->world->peers, r->world->size);
}

HY_TEST(test_a_rank_that_cannot_be_reached_is_named)
{
    struct world w;

    world_init(&w, 2, body_unreachable_peer, NULL);
    close(w.listeners[0]);
    w.loss_fd = -1;
    w.ranks[1] = (struct rank){.world = &w, .rank = 1};
    w.ranks[1].rc = rank_run(&w.ranks[1]);
    assert_int_equal(w.ranks[1].rc, -ECONNREFUSED);
    assert_non_null(strstr(w.ranks[1].waiter.failed.text, "cannot connect to rank 0 at 127.0.0.1"));
}

static int body_bad_exchange(struct rank *r)
{
    uint8_t byte = 0;
    struct hy_transfer nobody = {.peer = 7, .bytes = &byte, .n = 1}, own = {.peer = r->rank, .bytes = &byte, .n = 1};
    int rc = hy_mesh_exchange(r->mesh, r->rank ? &nobody : &own, 1, NULL, 0);

    return rc == -EINVAL ? 0 : -EBADMSG;
}

HY_TEST(test_an_invalid_exchange_is_refused)
{
    all_ranks(2, body_bad_exchange, NULL);
}

/* ---- faults ----------------------------------------------------------------------------- */

static int body_small_and_large(struct rank *r)
{
    int rc = hy_mesh_barrier(r->mesh, r->world->peers, r->world->size);

    if (rc == 0)
        rc = check_allreduce(r, r->world->peers, r->world->size, 20001, HY_F32, HY_SUM);
    if (rc == 0)
        rc = check_allgather(r, 100);
    return rc;
}

static int listen_scenario(void *arg)
{
    char **addresses;
    struct hy_err err;
    uint16_t port;
    size_t count;
    int fd = hy_mesh_listen(&port, &addresses, &count, &err);

    (void)arg;
    if (fd < 0)
        return err.code < 0 && err.text[0] ? fd : 1;
    close(fd);
    forget(addresses, count);
    return 0;
}

/* After any fault in one rank, both return, with a message. */
static int pair_scenario(void *arg)
{
    struct world *w = arg;
    int rc = 0;

    run_threads(w);
    for (unsigned i = 0; i < w->size; i++) {
        if (w->ranks[i].rc > 0 || w->ranks[i].rc == -EBADMSG ||
            (w->ranks[i].rc < 0 && !w->ranks[i].waiter.failed.text[0]))
            return 1;
        rc = w->ranks[i].rc < 0 ? w->ranks[i].rc : rc;
    }
    return rc;
}

static void each_pair_fault(enum hy_seam seam)
{
    int before = count_fds();

    for (long n = 1; n <= 60; n++) {
        struct world w;
        long passed;
        int rc;

        world_init(&w, 2, body_small_and_large, NULL);
        w.watched = true;
        hy_fault_arm(seam, n);
        rc = pair_scenario(&w);
        passed = hy_fault_passed(seam);
        hy_fault_arm(seam, 0);
        if (rc > 0)
            fail_msg("seam %d, position %ld: %s / %s", (int)seam, n, w.ranks[0].waiter.failed.text,
                     w.ranks[1].waiter.failed.text);
        if (passed < n)
            break;
    }
    assert_int_equal(count_fds(), before);
}

HY_TEST(test_every_fault_is_survived_or_reported)
{
    hy_each_fault(HY_SEAM_ALLOC, listen_scenario, NULL);
    hy_each_fault(HY_SEAM_SYS, listen_scenario, NULL);
    each_pair_fault(HY_SEAM_ALLOC);
    each_pair_fault(HY_SEAM_SYS);
}
