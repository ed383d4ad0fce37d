/* SPDX-License-Identifier: Apache-2.0 */
/* A part of test_feed.c, whose helpers it uses: others who connect to a hub as often as they can. */
#ifndef HY_TESTS_FEED_FLOODS_H
#define HY_TESTS_FEED_FLOODS_H

#include <glob.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/file.h"
#include "fds.h"
#include "feed/listener.h"

#define FLOOD 100
#define FLOODED_ROWS 2000

/* Fills the queue of the hub's abstract name with connections that are closed again: they wait until accepted. */
static void fill_the_queue(const char *name)
{
    int fd, count = 0;

    while ((fd = hy_feed_connect(name)) >= 0) {
        close(fd);
        assert_in_range(++count, 1, HY_FEED_WAITING + 1);
    }
    assert_int_equal(fd, -EAGAIN);
}

static void test_a_turn_accepts_a_bounded_number_of_feeders(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    int fds[FLOOD], before, first, turns = 0;

    (void)state;
    for (int i = 0; i < FLOOD; i++)
        fds[i] = connect_to(name);
    first = before = count_fds();
    while (count_fds() < first + FLOOD) {
        before = count_fds();
        assert_int_equal(hy_hub_next(h, "input", &(struct hy_taken){0}), 0);
        assert_in_range(count_fds() - before, 0, HY_FEED_ACCEPTS_MAX);
        assert_in_range(++turns, 1, FLOOD);
    }
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    hy_hub_close(h);
}

static void test_feeders_do_not_wait_in_the_queue_of_strangers(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    struct hy_source *s;

    (void)state;
    fill_the_queue(name);
    s = open_source(name, "input", false);
    assert_int_equal(put_number(s, 7), 1);
    assert_int_equal(take_number(h, "input", NULL), 7);
    hy_source_close(s);
    hy_hub_close(h);
}

/* Nor is the end missed, whoever else is in the queue: it comes when those have been accepted who came before it. */
static void test_who_came_before_the_end_is_heard_behind_a_full_queue(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    int socket;
    struct hy_ring *r;

    (void)state;
    for (int i = 0; i < 1000; i++)
        close(connect_to(name));
    r = open_ring(name, &socket); /* by the abstract name */
    hy_hub_end(h);
    assert_non_null(hy_ring_reserve(r, 8));
    hy_ring_send(r, HY_FEED_END, 0);
    assert_int_equal(take_number(h, "input", NULL), -1);
    assert_int_equal(take_number(h, "input", NULL), -2);
    hy_ring_close(r);
    close(socket);
    hy_hub_close(h);
}

static pid_t start_stranger(const char *name)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    if (setuid(65534) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        _exit(9);
    for (;;) {
        int fd = hy_feed_connect(name);

        if (fd >= 0)
            close(fd);
        else if (fd != -EAGAIN && fd != -ECONNREFUSED)
            _exit(1);
    }
}

static void test_rows_and_the_end_come_through_while_strangers_connect(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h;
    pid_t strangers[2], feeder;

    (void)state;
    hy_need_root("to become another user");
    h = open_hub(name);
    for (int i = 0; i < 2; i++)
        strangers[i] = start_stranger(name);
    while (hy_hub_dropped(h) == 0)
        assert_int_equal(hy_hub_wait(h, "input", -1, 1), HY_HUB_NOTHING);
    feeder = start_feeder(name, 0, FLOODED_ROWS);
    for (int64_t i = 0; i < FLOODED_ROWS; i++)
        assert_int_equal(take_number(h, "input", NULL), i);
    assert_int_equal(take_number(h, "input", NULL), -1);
    assert_int_equal(status_of(feeder), 0);
    hy_hub_end(h);
    assert_int_equal(take_number(h, "input", NULL), -2);
    assert_int_equal(hy_hub_terminate(h, NULL), 0);
    for (int i = 0; i < 2; i++) {
        kill(strangers[i], SIGKILL);
        assert_int_equal(status_of(strangers[i]), 128 + SIGKILL);
    }
    hy_hub_close(h);
}

static void test_without_descriptors_a_hub_goes_on_with_those_who_are_there(void **state)
{
    const char *name = fresh_name();
    struct hy_hub *h = open_hub(name);
    struct hy_source *first = open_source(name, "input", false), *late;
    struct rlimit old, none;

    (void)state;
    assert_int_equal(put_number(first, 1), 1);
    assert_int_equal(take_number(h, "input", NULL), 1);
    late = open_source(name, "input", false);
    assert_int_equal(put_number(late, 3), 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(hy_hub_next(h, "input", &(struct hy_taken){0}), 0);
    assert_int_equal(put_number(first, 2), 1);
    assert_int_equal(take_number(h, "input", NULL), 2);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(take_number(h, "input", NULL), 3);
    hy_source_close(first);
    hy_source_close(late);
    hy_hub_close(h);
}

static void test_a_killed_hubs_file_is_replaced(void **state)
{
    const char *name = fresh_name();
    int ready[2];
    struct hy_source *s;
    struct hy_hub *h;
    char byte;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (hy_hub_open(name, &h, NULL) < 0 || write(ready[1], "", 1) != 1)
            _exit(9);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(pid, SIGKILL);
    status_of(pid);
    assert_int_equal(hy_feed_dial(name), -ECONNREFUSED);
    h = open_hub(name);
    fill_the_queue(name); /* so that its file is what is left */
    s = open_source(name, "input", false);
    assert_int_equal(put_number(s, 1), 1);
    assert_int_equal(take_number(h, "input", NULL), 1);
    hy_source_close(s);
    hy_hub_close(h);
    close(ready[0]);
    close(ready[1]);
}

/* Where hubs have their file, and nothing else is. */
static void find_file(const char *folder, char *path, size_t size)
{
    char pattern[300];
    glob_t found;

    snprintf(pattern, sizeof pattern, "%s/hopyard/feed-*.sock", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(path, size, "%s", found.gl_pathv[0]);
    globfree(&found);
}

/* Listens at the path until it is killed, as the user 65534. */
static void listen_as_another(const char *path, int ready)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || setuid(65534) != 0 || listen(fd, 5) < 0 || write(ready, "", 1) != 1)
        _exit(9);
    pause();
}

static void test_a_source_refuses_another_users_file(void **state)
{
    const char *name = fresh_name();
    char folder[] = "/tmp/hy_test_feed.XXXXXX", path[300], byte;
    hy_cleanup_free char *before = getenv("XDG_RUNTIME_DIR") ? hy_strdup(getenv("XDG_RUNTIME_DIR")) : NULL;
    int ready[2], rc;
    pid_t pid;

    (void)state;
    hy_need_root("to become another user");
    assert_non_null(mkdtemp(folder));
    setenv("XDG_RUNTIME_DIR", folder, 1);
    struct hy_hub *h = open_hub(name);
    find_file(folder, path, sizeof path);
    hy_hub_close(h);
    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        listen_as_another(path, ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    rc = hy_feed_dial(name);
    kill(pid, SIGKILL);
    status_of(pid);
    assert_int_equal(before ? setenv("XDG_RUNTIME_DIR", before, 1) : unsetenv("XDG_RUNTIME_DIR"), 0);
    assert_int_equal(hy_remove_tree(folder), 0);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(rc, -ECONNREFUSED); /* and nobody has the abstract name */
}

#endif
