/* SPDX-License-Identifier: Apache-2.0 */
/* Hubs under a flood of connections. */
#include "feed_bench.h"

#include <glob.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/file.h"
#include "fds.h"
#include "feed/listener.h"

#define FLOOD 100
#define FLOODED_ROWS 2000

/* Fills the backlog of the hub's abstract name with closed connections, which stay there until accepted. */
static void fill_backlog(const char *name)
{
    int fd, count = 0;

    while ((fd = hy_feed_connect_abstract(name)) >= 0) {
        close(fd);
        assert_in_range(++count, 1, HY_FEED_BACKLOG + 1);
    }
    assert_int_equal(fd, -EAGAIN);
}

HY_TEST(test_a_turn_accepts_a_bounded_number_of_feeders)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    int fds[FLOOD], before, first, turns = 0;

    for (int i = 0; i < FLOOD; i++)
        fds[i] = connect_to(name);
    first = before = count_fds();
    while (count_fds() < first + FLOOD) {
        before = count_fds();
        assert_int_equal(hy_feed_hub_next(h, "input", &(struct hy_feed_hub_message){0}), 0);
        assert_in_range(count_fds() - before, 0, HY_FEED_ACCEPTS_MAX);
        assert_in_range(++turns, 1, FLOOD);
    }
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    hy_feed_hub_close(h);
}

HY_TEST(test_feeders_bypass_a_backlog_filled_by_others)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    struct hy_feed_source *s;

    fill_backlog(name);
    s = open_source(name, "input", false);
    assert_int_equal(put_number(s, 7), 1);
    assert_int_equal(take_number(h, "input", NULL), 7);
    hy_feed_source_close(s);
    hy_feed_hub_close(h);
}

/* The end takes effect only after all earlier connections have been accepted. */
HY_TEST(test_feeder_connected_before_the_end_is_read_behind_a_backlog)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    int socket;
    struct hy_ring *r;

    for (int i = 0; i < 1000; i++)
        close(connect_to(name));
    r = open_ring(name, &socket); /* by the abstract name */
    hy_feed_hub_end(h);
    assert_non_null(hy_ring_reserve(r, 8));
    hy_ring_send(r, HY_FEED_END, 0);
    assert_int_equal(take_number(h, "input", NULL), -1);
    assert_int_equal(take_number(h, "input", NULL), -2);
    hy_ring_close(r);
    close(socket);
    hy_feed_hub_close(h);
}

static pid_t start_other_user(const char *name)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    if (setuid(65534) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        _exit(9);
    for (;;) {
        int fd = hy_feed_connect_abstract(name);

        if (fd >= 0)
            close(fd);
        else if (fd != -EAGAIN && fd != -ECONNREFUSED)
            _exit(1);
    }
}

HY_TEST(test_rows_and_end_arrive_while_other_users_connect)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h;
    pid_t others[2], feeder;

    hy_need_root("to become another user");
    h = open_hub(name);
    for (int i = 0; i < 2; i++)
        others[i] = start_other_user(name);
    while (hy_feed_hub_dropped(h) == 0)
        assert_int_equal(hy_feed_hub_wait(h, "input", -1, 1), HY_FEED_HUB_TIMEOUT);
    feeder = start_feeder(name, 0, FLOODED_ROWS);
    for (int64_t i = 0; i < FLOODED_ROWS; i++)
        assert_int_equal(take_number(h, "input", NULL), i);
    assert_int_equal(take_number(h, "input", NULL), -1);
    assert_int_equal(status_of(feeder), 0);
    hy_feed_hub_end(h);
    assert_int_equal(take_number(h, "input", NULL), -2);
    assert_int_equal(hy_feed_hub_terminate(h, NULL), 0);
    for (int i = 0; i < 2; i++) {
        kill(others[i], SIGKILL);
        assert_int_equal(status_of(others[i]), 128 + SIGKILL);
    }
    hy_feed_hub_close(h);
}

HY_TEST(test_hub_without_descriptors_serves_connected_feeders)
{
    const char *name = fresh_name();
    struct hy_feed_hub *h = open_hub(name);
    struct hy_feed_source *first = open_source(name, "input", false), *late;
    struct rlimit old, none;

    assert_int_equal(put_number(first, 1), 1);
    assert_int_equal(take_number(h, "input", NULL), 1);
    late = open_source(name, "input", false);
    assert_int_equal(put_number(late, 3), 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(hy_feed_hub_next(h, "input", &(struct hy_feed_hub_message){0}), 0);
    assert_int_equal(put_number(first, 2), 1);
    assert_int_equal(take_number(h, "input", NULL), 2);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(take_number(h, "input", NULL), 3);
    hy_feed_source_close(first);
    hy_feed_source_close(late);
    hy_feed_hub_close(h);
}

HY_TEST(test_socket_file_of_a_killed_hub_is_replaced)
{
    const char *name = fresh_name();
    int ready[2];
    struct hy_feed_source *s;
    struct hy_feed_hub *h;
    char byte;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (hy_feed_hub_open(name, &h, NULL) < 0 || write(ready[1], "", 1) != 1)
            _exit(9);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(pid, SIGKILL);
    status_of(pid);
    assert_int_equal(hy_feed_connect_hub(name), -ECONNREFUSED);
    h = open_hub(name);
    fill_backlog(name); /* so that only its file can be used */
    s = open_source(name, "input", false);
    assert_int_equal(put_number(s, 1), 1);
    assert_int_equal(take_number(h, "input", NULL), 1);
    hy_feed_source_close(s);
    hy_feed_hub_close(h);
    close(ready[0]);
    close(ready[1]);
}

/* The only socket file in the directory. */
static void find_socket_file(const char *directory, char *path, size_t size)
{
    char pattern[300];
    glob_t found;

    snprintf(pattern, sizeof pattern, "%s/hopyard/feed-*.sock", directory);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(path, size, "%s", found.gl_pathv[0]);
    globfree(&found);
}

/* Listens at the path until it is killed, as the user 65534. */
static void listen_as_another_user(const char *path, int ready)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || setuid(65534) != 0 || listen(fd, 5) < 0 ||
        write(ready, "", 1) != 1)
        _exit(9);
    pause();
}

HY_TEST(test_source_refuses_the_socket_file_of_another_user)
{
    const char *name = fresh_name();
    char directory[] = "/tmp/hy_test_feed.XXXXXX", path[300], byte;
    hy_cleanup_free char *before = getenv("XDG_RUNTIME_DIR") ? hy_strdup(getenv("XDG_RUNTIME_DIR")) : NULL;
    int ready[2], rc;
    pid_t pid;

    hy_need_root("to become another user");
    assert_non_null(mkdtemp(directory));
    setenv("XDG_RUNTIME_DIR", directory, 1);
    struct hy_feed_hub *h = open_hub(name);
    find_socket_file(directory, path, sizeof path);
    hy_feed_hub_close(h);
    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        listen_as_another_user(path, ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    rc = hy_feed_connect_hub(name);
    kill(pid, SIGKILL);
    status_of(pid);
    assert_int_equal(before ? setenv("XDG_RUNTIME_DIR", before, 1) : unsetenv("XDG_RUNTIME_DIR"), 0);
    assert_int_equal(hy_remove_tree(directory), 0);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(rc, -ECONNREFUSED); /* there is no hub at the abstract name either */
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
