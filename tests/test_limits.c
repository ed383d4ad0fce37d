/* SPDX-License-Identifier: Apache-2.0 */
/* What memory a trial may use. Most of these run with cgroups, where there are some, and with the watch. */
#include "process_bench.h"

#include <limits.h>

#include "agent/process.h"

static void test_over_the_limit_only_that_trial_is_killed(void **state)
{
    struct bench *b = *state;
    struct trial big, neighbour;

    START(b, &neighbour, 512 * MB, HELPER("stay"));
    run_to_text(&neighbour, "pid ", 1);
    START(b, &big, 128 * MB, HELPER("memory-in-child", "400"));
    run_to_end(&big);
    assert_int_equal(big.end.outcome, HY_PROCESS_OVER_MEMORY);
    assert_memory_equal(big.message, "killed: used ", 13);
    assert_non_null(strstr(big.message, " of the 128.0 MB it may use; raise --memory"));
    assert_true(big.end.peak_memory >= 128 * MB);
    assert_int_equal(still_there(&big), 0);
    assert_false(neighbour.ended);
    assert_int_equal(still_there(&neighbour), 1);
    hy_process_kill(neighbour.p, 0);
    run_to_end(&neighbour);
    assert_int_equal(neighbour.end.outcome, HY_PROCESS_KILLED);
}

static void test_in_a_full_container_the_largest_trial_is_ended(void **state)
{
    struct bench *b = *state;
    struct trial small, big;

    START(b, &small, 0, HELPER("stay"));
    run_to_text(&small, "pid ", 1);
    hy_supervisor_contain(b->s, getpid(), hy_proc_resident(getpid()) + 300 * MB);
    START(b, &big, 0, HELPER("memory-in-child", "400"));
    run_to_end(&big);
    assert_int_equal(big.end.outcome, HY_PROCESS_OVER_MEMORY);
    assert_memory_equal(big.message, "killed: its container may use ", 30);
    assert_non_null(strstr(big.message, "raise spark.executor.memoryOverhead"));
    assert_int_equal(still_there(&big), 0);
    assert_false(small.ended);
    hy_process_kill(small.p, 0);
    run_to_end(&small);
    hy_supervisor_contain(b->s, 0, 0);
}

static void test_what_runs_beside_a_container_does_not_count(void **state)
{
    struct bench *b = *state;
    struct trial t, root;

    START(b, &root, 0, HELPER("stay"));
    run_to_text(&root, "pid ", 1);
    hy_supervisor_contain(b->s, root.p->pid, 100 * MB);
    START(b, &t, 0, HELPER("memory", "300"));
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    hy_process_kill(root.p, 0);
    run_to_end(&root);
    hy_supervisor_contain(b->s, 0, 0);
}

static void test_shared_memory_counts(void **state)
{
    struct trial t;

    START(*state, &t, 128 * MB, HELPER("memory-shared", "400"));
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_OVER_MEMORY);
}

static void test_pages_shared_by_a_fork_count_once(void **state)
{
    struct bench *b = *state;
    struct trial t;

    START(b, &t, 400 * MB, HELPER("memory-forked", "200"));
    run_to_text(&t, "ready", 1);
    hy_watch_tick(&b->s->watch_timer); /* five processes with 200 MB each, and one limit of 400 */
    assert_int_equal(t.p->stage, HY_STAGE_RUNNING);
    assert_in_range(t.p->used, 200 * MB, 400 * MB);
    hy_process_kill(t.p, 0);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_KILLED);
}

static void test_a_child_before_exec_does_not_count_twice(void **state)
{
    struct bench *b = *state;
    size_t procs = 0;
    struct trial t;

    START(b, &t, 350 * MB, HELPER("vfork", "200"));
    run_to_text(&t, "ready", 1);
    while (procs < 2) { /* the child is there */
        b->s->census_at = -1;
        assert_int_equal(hy_family_census(b->s), 0);
        procs = 0;
        for (size_t i = 0; i < b->s->census.n; i++)
            procs += b->s->census.list[i].owner == t.p;
    }
    hy_watch_tick(&b->s->watch_timer);
    assert_int_equal(t.p->stage, HY_STAGE_RUNNING);
    assert_in_range(t.p->used, 200 * MB, 350 * MB);
    hy_process_kill(t.p, 0);
    run_to_end(&t);
}

static void test_files_read_and_written_are_not_a_trials_memory(void **state)
{
    char folder[] = "/tmp/hopyard-test-XXXXXX", command[256];
    struct trial t;

    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "cd %s && dd if=/dev/zero of=big bs=1M count=300 2>/dev/null && cat big >/dev/null; rm big",
             folder);
    START(*state, &t, 64 * MB, "sh", "-c", command);
    run_to_end(&t);
    rmdir(folder);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    assert_int_equal(t.end.code, 0);
}

static void test_the_peak_is_reported(void **state)
{
    struct trial t;

    START(*state, &t, 4096 * MB, HELPER("memory", "300"));
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    assert_in_range(t.end.peak_memory, 300 * MB, 600 * MB);
}

static void assert_place(enum hy_cgroup_kind kind, const char *own, const char *mounts, const char *expected)
{
    struct hy_cgroup_place place;
    char path[2 * PATH_MAX];
    int rc = hy_cgroup_locate(kind, own, mounts, &place);

    if (!expected) {
        assert_int_equal(rc, -ENOENT);
        return;
    }
    assert_int_equal(rc, 0);
    snprintf(path, sizeof path, "%s%s", place.mount, place.own);
    assert_string_equal(path, expected);
}

static void test_our_cgroup_is_found(void **state)
{
    static const char v1[] = "30 20 0:9 / /sys rw shared:7 - sysfs sysfs rw\n"
                             "31 30 0:28 / /cg/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
                             "32 30 0:29 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n"
                             "33 30 0:30 / /cg/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
    static const char inside[] = "32 30 0:29 /docker/ab /cg/memory ro master:3 - cgroup cgroup rw,memory\n";

    (void)state;
    assert_place(HY_CGROUP_V1, "5:cpu,cpuacct:/c\n4:memory:/user/a:b\n0::/x\n", v1, "/cg/memory/user/a:b");
    assert_place(HY_CGROUP_V2, "4:memory:/user\n0::/user.slice/s.scope\n", v1,
                 "/cg/unified/user.slice/s.scope");
    assert_place(HY_CGROUP_V2, "0::/\n", v1, "/cg/unified");
    assert_place(HY_CGROUP_V1, "4:memory:/docker/ab\n", inside, "/cg/memory");
    assert_place(HY_CGROUP_V1, "4:memory:/docker/ab/c\n", inside, "/cg/memory/c");
    assert_place(HY_CGROUP_V1, "4:memory:/docker/abc\n", inside, "/cg/memory");
    assert_place(HY_CGROUP_V2, "0::/../../b\n", v1, "/cg/unified");
    assert_place(HY_CGROUP_V2, "4:memory:/user\n", v1, NULL);
    assert_place(HY_CGROUP_V1, "4:memoryx:/user\n", v1, NULL);
    assert_place(HY_CGROUP_V2, "0::/", inside, NULL);
    assert_place(HY_CGROUP_V1, "garbage\n:\n::\n4:memory:relative\n", v1, NULL);
    assert_place(HY_CGROUP_V1, "4:memory:/", "- - -\n - cgroup\n", NULL);
}

static int count_trial_cgroups(const struct hy_supervisor *s)
{
    DIR *d = opendir(s->cgroup.path);
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)))
        n += e->d_type == DT_DIR && e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void test_cgroups_are_made_and_removed(void **state)
{
    struct bench *b = *state;
    char path[PATH_MAX];
    struct trial t;

    if (b->s->cgroup.kind == HY_CGROUP_NONE)
        skip();
    START(b, &t, 0, "true");
    assert_int_equal(count_trial_cgroups(b->s), 0); /* no limit, no cgroup */
    run_to_end(&t);
    START(b, &t, 64 * MB, "true");
    assert_int_equal(count_trial_cgroups(b->s), 1);
    run_to_end(&t);
    assert_int_equal(count_trial_cgroups(b->s), 0);
    snprintf(path, sizeof path, "%s", b->s->cgroup.path);
    close_bench(b);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(open_bench(b, NULL), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_over_the_limit_only_that_trial_is_killed),
        BOTH(test_in_a_full_container_the_largest_trial_is_ended),
        BOTH(test_what_runs_beside_a_container_does_not_count),
        BOTH(test_shared_memory_counts),
        {"test_pages_shared_by_a_fork_count_once", test_pages_shared_by_a_fork_count_once, set_up_watch,
         tear_down, NULL},
        {"test_a_child_before_exec_does_not_count_twice", test_a_child_before_exec_does_not_count_twice,
         set_up_watch, tear_down, NULL},
        cmocka_unit_test(test_our_cgroup_is_found),
        BOTH(test_files_read_and_written_are_not_a_trials_memory),
        BOTH(test_the_peak_is_reported),
        LIVE(test_cgroups_are_made_and_removed),
    };

    return run_suite(argc, argv, tests, HY_COUNT(tests));
}
