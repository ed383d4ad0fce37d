/* SPDX-License-Identifier: Apache-2.0 */
/* Floods of connections use a bounded amount of memory and log. */
#include <sys/wait.h>

#include "wire_echo_server.h"

#define FLOOD 100
#define REFUSED 20000

/* ---- the agents' port ------------------------------------------------------------------------- */

static size_t count_links(const struct hy_net *net)
{
    size_t n = 0;

    hy_list_each(it, (struct hy_list *)&net->links)
        n++;
    return n;
}

HY_TEST_WITH(test_a_turn_accepts_a_bounded_number_of_connections, NULL, log_restore)
{
    struct world w;
    int fds[FLOOD];
    size_t before;

    log_begin();
    assert_int_equal(world_init(&w, LONG_MS), 0);
    for (int i = 0; i < FLOOD; i++)
        fds[i] = connect_raw(&w);
    do {
        before = count_links(w.driver.net);
        uv_run(&w.loop, UV_RUN_NOWAIT);
        assert_in_range(count_links(w.driver.net) - before, 0, HY_ACCEPTS_MAX);
    } while (count_links(w.driver.net) < FLOOD);
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    log_end();
    world_done(&w);
}

/* Connections that are closed at once, or that do not use TLS: neither the log nor the memory grows with them. */
HY_TEST_WITH(test_refused_connections_do_not_fill_the_log_or_the_memory, NULL, log_restore)
{
    struct world w;
    size_t most = 0;
    int lines;

    log_begin();
    assert_int_equal(world_init(&w, LONG_MS), 0);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, w.driver.ups == 1 && w.agents[0].ups == 1);
    for (int i = 0; i < REFUSED; i++) {
        int fd = connect_raw(&w);

        if (i % 2)
            (void)!write(fd, "x", 1);
        close(fd);
        if (i % HY_ACCEPTS_MAX == 0) {
            uv_run(&w.loop, UV_RUN_NOWAIT);
            most = w.driver.net->handles > most ? w.driver.net->handles : most;
        }
    }
    world_until(&w, w.driver.net->pending_count == 0);
    assert_in_range(most, 1, HY_PENDING_LINKS_MAX + HY_ACCEPTS_MAX + 3); /* the timer, the listener, the agent's link */
    lines = log_count("");
    assert_in_range(lines, 1, 2 * HY_LOG_BURST); /* one more every 10 s, if this takes that long */
    hy_log_flush();
    assert_in_range(log_count("more lines like this were left out"), 1, HY_LOG_BURST);
    assert_int_equal(side_send(&w.agents[0], w.agents[0].peer), 0);
    world_until(&w, w.driver.got == 1);
    log_end();
    world_done(&w);
}

static const struct hy_link *link_with_tls(struct hy_net *net)
{
    hy_list_each(it, &net->pending_links) {
        const struct hy_link *l = hy_container(it, struct hy_link, pending);

        if (l->tls)
            return l;
    }
    return NULL;
}

static void connect_idle(struct world *w, int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        fds[i] = connect_raw(w);
        world_step(w);
    }
}

/* The ClientHello is sent byte by byte, and uses no TLS state before it is complete; then idle connections are evicted
 * first. */
HY_TEST_WITH(test_idle_connections_do_not_evict_a_client_with_the_key, NULL, log_restore)
{
    hy_cleanup_buf struct hy_buf out;
    uint8_t key[HY_KEY_SIZE], in[4096];
    static int idle[HY_PENDING_LINKS_MAX + 10];
    int fd;
    struct hy_tls_context *c;
    struct hy_tls *t;
    struct world w;

    need_descriptors(2 * HY_COUNT(idle) + 100);
    c = hy_tls_context_new();
    log_begin();
    hy_buf_init(&out, SIZE_MAX);
    assert_int_equal(world_init(&w, LONG_MS), 0);
    assert_int_equal(hy_key_derive(w.key, "agent-1", key), 0);
    t = hy_tls_new_client(c, "agent-1", key);
    assert_int_equal(hy_tls_handshake(t, &out), 0);
    fd = connect_raw(&w);
    for (size_t i = 0; i < out.len; i++) {
        assert_null(link_with_tls(w.driver.net));
        assert_int_equal(write(fd, hy_buf_bytes(&out) + i, 1), 1);
        world_step(&w);
    }
    world_until(&w, link_with_tls(w.driver.net));
    connect_idle(&w, idle, HY_PENDING_LINKS_MAX + 10);
    world_until(&w, log_count("too many connections that have not sent a Hello") > 10);
    assert_int_equal(w.driver.net->pending_count, HY_PENDING_LINKS_MAX);
    assert_non_null(link_with_tls(w.driver.net));
    assert_true(read(fd, in, sizeof in) > 0); /* the driver's part of the handshake */
    for (int i = 0; i < HY_PENDING_LINKS_MAX + 10; i++)
        close(idle[i]);
    close(fd);
    log_end();
    hy_tls_free(t);
    hy_tls_context_free(c);
    world_done(&w);
}

/* ---- out of descriptors ----------------------------------------------------------------------------- */

HY_TEST_WITH(test_a_listener_without_descriptors_pauses_and_resumes, NULL, log_restore)
{
    struct rlimit old, none;
    struct world w;
    int fd;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(world_init(&w, LONG_MS), 0);
    uv_run(&w.loop, UV_RUN_NOWAIT);
    fd = connect_raw(&w);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    while (uv_is_active((uv_handle_t *)&w.driver.net->listener.poll))
        uv_run(&w.loop, UV_RUN_NOWAIT);
    assert_true(uv_is_active((uv_handle_t *)&w.driver.net->listener.pause));
    assert_int_equal(w.driver.net->pending_count, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    world_until(&w, w.driver.net->pending_count == 1);
    close(fd);
    log_begin();
    world_until(&w, w.driver.net->pending_count == 0);
    log_end();
    world_done(&w);
}

/* ---- local sockets ---------------------------------------------------------------------------------- */

HY_TEST_WITH(test_a_turn_accepts_a_bounded_number_of_local_connections, NULL, log_restore)
{
    struct echo_server r;
    int fds[FLOOD], before;

    assert_int_equal(echo_init(&r), 0);
    for (int i = 0; i < FLOOD; i++)
        assert_true((fds[i] = hy_local_connect(r.dir.file, NULL)) >= 0);
    do {
        before = r.opens;
        uv_run(&r.loop, UV_RUN_NOWAIT);
        assert_in_range(r.opens - before, 0, HY_ACCEPTS_MAX);
    } while (r.opens < FLOOD);
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    echo_done(&r);
}

static pid_t connect_as_another_user(const char *path, int count)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    if (setuid(65534) != 0)
        _exit(9);
    for (int i = 0; i < count; i++) {
        int fd = hy_local_connect(path, NULL);

        if (fd < 0)
            _exit(1);
        close(fd);
    }
    _exit(0);
}

/* The modes of the directory and the file were changed. */
HY_TEST_WITH(test_local_clients_of_other_users_do_not_fill_the_log_or_the_memory, NULL, log_restore)
{
    struct echo_server r;
    int status, turns = 0;
    pid_t pid;

    hy_need_root("to become another user");
    assert_int_equal(echo_init(&r), 0);
    assert_int_equal(chmod(r.dir.path, 0711), 0);
    assert_int_equal(chmod(r.dir.file, 0666), 0);
    log_begin();
    pid = connect_as_another_user(r.dir.file, 1000);
    while (waitpid(pid, &status, WNOHANG) == 0 && ++turns)
        uv_run(&r.loop, UV_RUN_NOWAIT);
    assert_int_equal(status, 0);
    while (uv_run(&r.loop, UV_RUN_NOWAIT) && ++turns % 200)
        continue;
    assert_in_range(log_count("the client belongs to another user"), 1, 2 * HY_LOG_BURST);
    assert_int_equal(r.opens, 0);
    log_end();
    assert_int_equal(echo_run_client(&r, client_sends_all_sizes), 0);
    assert_int_equal(r.opens, 1);
    while (r.closes < 1)
        uv_run(&r.loop, UV_RUN_ONCE);
    echo_done(&r);
}
