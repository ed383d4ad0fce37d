/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <stdint.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/core_lease.h"
#include "base/fault.h"

/* Several agents in one process: each has its own open file, and locks that exclude the others'. */
static uv_loop_t loop;
static char folder[64], path[80];

struct asked {
    struct hy_core_lease *lease;
    int readies;
    char why[1024];
};

static void on_held(void *arg, const char *why)
{
    struct asked *a = arg;

    assert_string_equal(a->why, ""); /* once */
    snprintf(a->why, sizeof a->why, "%s", why);
}

static void on_ready(void *arg)
{
    ((struct asked *)arg)->readies++;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hy-cores-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/cores", folder);
    return uv_loop_init(&loop);
}

static int tear_down(void **state)
{
    (void)state;
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    unlink(path);
    return rmdir(folder);
}

static struct hy_cores *agent(const char *name, uint32_t count, uint32_t per_core, uint32_t gang)
{
    struct hy_cores_spec spec = {.path = path, .count = count, .per_core = per_core, .gang = gang, .holder = name};
    struct hy_cores *c = hy_cores_new(&loop, &spec);

    assert_non_null(c);
    return c;
}

/* Whether it is there at once. */
static bool asks(struct hy_cores *c, struct asked *a)
{
    static const struct hy_core_events events = {on_held, on_ready};
    int rc;

    *a = (struct asked){0};
    rc = hy_core_lease_new(c, &events, a, &a->lease);
    assert_true(rc == 0 || rc == 1);
    return rc == 1;
}

static void stop_loop(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
    uv_stop(&loop);
}

/* Lets the timers of those who wait go. */
static void pass(uint64_t ms)
{
    static uv_timer_t timer;

    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, stop_loop, ms, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_run(&loop, UV_RUN_NOWAIT);
}

static void awaits(struct asked *a)
{
    for (int i = 0; i < 400 && !a->readies; i++)
        pass(25);
    assert_int_equal(a->readies, 1);
}

HY_TEST_WITH(test_two_runs_have_no_more_than_the_cores_there_are, set_up, tear_down)
{
    struct hy_cores *a = agent("run 1 in '/a'", 2, 1, 0), *b = agent("run 2 in '/b'", 2, 1, 0);
    struct asked first, second, third;

    assert_true(asks(a, &first));
    assert_true(asks(a, &second));
    assert_false(asks(b, &third));
    for (int i = 0; i < 400 && !third.why[0]; i++)
        pass(25);
    assert_string_equal(
        third.why,
        "2 of this machine's 2 cores are in use, by run 1 in '/a'; with 'oversubscribe' a run does not wait");
    assert_int_equal(third.readies, 0);
    hy_core_lease_free(first.lease);
    awaits(&third);
    hy_core_lease_free(second.lease);
    hy_core_lease_free(third.lease);
    hy_cores_free(a);
    hy_cores_free(b);
}

HY_TEST_WITH(test_runs_take_turns, set_up, tear_down)
{
    struct hy_cores *a = agent("a", 1, 1, 0), *b = agent("b", 1, 1, 0);
    struct asked of_a, of_b;

    assert_true(asks(a, &of_a));
    assert_false(asks(b, &of_b));
    for (int i = 0; i < 5; i++) {
        hy_core_lease_free(of_a.lease);
        assert_false(asks(a, &of_a)); /* b was first */
        awaits(&of_b);
        hy_core_lease_free(of_b.lease);
        assert_false(asks(b, &of_b));
        awaits(&of_a);
    }
    hy_core_lease_free(of_b.lease); /* who waits no more leaves the queue */
    hy_core_lease_free(of_a.lease);
    assert_true(asks(a, &of_a));
    hy_core_lease_free(of_a.lease);
    hy_cores_free(a);
    hy_cores_free(b);
}

HY_TEST_WITH(test_a_gang_has_all_its_cores_or_none, set_up, tear_down)
{
    struct hy_cores *a = agent("a", 3, 1, 0), *gang = agent("gang", 3, 1, 2), *c = agent("c", 3, 1, 0);
    struct asked one, two, rank0, rank1, other;

    assert_true(asks(a, &one));
    assert_true(asks(a, &two));
    assert_false(asks(gang, &rank0));
    assert_false(asks(gang, &rank1));
    assert_false(asks(c, &other)); /* though a core is free: the gang was first */
    pass(100);
    assert_int_equal(other.readies, 0);
    hy_core_lease_free(one.lease);
    awaits(&rank0);
    awaits(&rank1);
    pass(100);
    assert_int_equal(other.readies, 0);
    hy_core_lease_free(rank1.lease); /* the cores are both of rank 0 now */
    pass(100);
    assert_int_equal(other.readies, 0);
    hy_core_lease_free(rank0.lease);
    awaits(&other);
    hy_core_lease_free(other.lease);
    hy_core_lease_free(two.lease);
    hy_cores_free(a);
    hy_cores_free(gang);
    hy_cores_free(c);
}

HY_TEST_WITH(test_a_gang_needs_no_more_than_the_machine_has, set_up, tear_down)
{
    struct hy_cores *gang = agent("gang", 2, 4, 8);
    struct asked ranks[8];

    for (int i = 0; i < 8; i++)
        assert_true(asks(gang, &ranks[i]));
    for (int i = 0; i < 8; i++)
        hy_core_lease_free(ranks[i].lease);
    hy_cores_free(gang);
}

HY_TEST_WITH(test_more_trials_than_cores_share_them, set_up, tear_down)
{
    struct hy_cores *a = agent("a", 2, 3, 0), *b = agent("b", 2, 1, 0);
    struct asked of_a[6], of_b;

    for (int i = 0; i < 3; i++)
        assert_true(asks(a, &of_a[i])); /* on one core */
    assert_true(asks(b, &of_b));
    assert_false(asks(a, &of_a[3]));
    hy_core_lease_free(of_b.lease);
    awaits(&of_a[3]);
    for (int i = 4; i < 6; i++)
        assert_true(asks(a, &of_a[i]));
    for (int i = 0; i < 6; i++)
        hy_core_lease_free(of_a[i].lease);
    hy_cores_free(a);
    hy_cores_free(b);
}

HY_TEST_WITH(test_what_a_dead_agent_held_is_free, set_up, tear_down)
{
    struct hy_cores *b;
    struct asked a;
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        b = agent("dead", 1, 1, 0);
        _exit(asks(b, &a) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    b = agent("b", 1, 1, 0);
    assert_true(asks(b, &a));
    hy_core_lease_free(a.lease);
    hy_cores_free(b);
}

HY_TEST_WITH(test_a_link_or_a_full_table_is_no_file, set_up, tear_down)
{
    struct hy_cores_spec spec = {.path = path, .count = 1, .per_core = 1, .holder = "x"};

    assert_int_equal(symlink("/dev/null", path), 0);
    assert_null(hy_cores_new(&loop, &spec));
    assert_int_equal(errno, ELOOP);
    assert_int_equal(unlink(path), 0);
    hy_fault_arm(HY_SEAM_ALLOC, 1);
    assert_null(hy_cores_new(&loop, &spec));
    hy_fault_arm(HY_SEAM_ALLOC, 0);
    hy_fault_arm(HY_SEAM_SYS, 1);
    assert_null(hy_cores_new(&loop, &spec));
    hy_fault_arm(HY_SEAM_SYS, 0);
}
