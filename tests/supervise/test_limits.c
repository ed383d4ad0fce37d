/* SPDX-License-Identifier: Apache-2.0 */
/* What memory a trial may use. Most of these run with cgroups, where there are some, and with the watch. */
#include "process_bench.h"

#include <limits.h>
#include <pthread.h>

#include "supervise/supervise.h"

BOTH(test_over_the_limit_only_that_trial_is_killed)
{
    struct bench *b = *state;
    struct trial big, neighbour;

    START(b, &neighbour, 512 * MB, HELPER("stay"));
    run_to_text(&neighbour, "pid ", 1);
    START(b, &big, 128 * MB, HELPER("memory-in-child", "400"));
    run_to_end(&big);
    assert_int_equal(big.end.outcome, HY_PROCESS_OVER_MEMORY);
    assert_memory_equal(big.message, "killed: used ", 13);
    assert_non_null(strstr(big.message, " of the 128.0 MB it may use; raise the memory limit"));
    assert_true(big.end.peak_memory >= 128 * MB);
    assert_int_equal(still_there(&big), 0);
    assert_false(neighbour.ended);
    assert_int_equal(still_there(&neighbour), 1);
    hy_process_kill(neighbour.p, 0);
    run_to_end(&neighbour);
    assert_int_equal(neighbour.end.outcome, HY_PROCESS_KILLED);
}

BOTH(test_in_a_full_container_the_largest_trial_is_killed)
{
    struct bench *b = *state;
    struct trial small, big;

    START(b, &small, 0, HELPER("stay"));
    run_to_text(&small, "pid ", 1);
    hy_supervisor_set_container(b->s, getpid(), hy_proc_resident(getpid()) + 300 * MB);
    START(b, &big, 0, HELPER("memory-in-child", "400"));
    run_to_end(&big);
    assert_int_equal(big.end.outcome, HY_PROCESS_OVER_CONTAINER_MEMORY);
    assert_true(big.end.container.used > 0 && big.end.container.used_by_it > 100 * MB);
    assert_true(big.end.container.limit >= 300 * MB);
    assert_int_equal(still_there(&big), 0);
    assert_false(small.ended);
    hy_process_kill(small.p, 0);
    run_to_end(&small);
    hy_supervisor_set_container(b->s, 0, 0);
}

BOTH(test_processes_outside_the_container_do_not_count)
{
    struct bench *b = *state;
    struct trial t, root;

    START(b, &root, 0, HELPER("stay"));
    run_to_text(&root, "pid ", 1);
    hy_supervisor_set_container(b->s, root.p->pid, 100 * MB);
    START(b, &t, 0, HELPER("memory", "300"));
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    hy_process_kill(root.p, 0);
    run_to_end(&root);
    hy_supervisor_set_container(b->s, 0, 0);
}

BOTH(test_a_storm_of_processes_is_killed_as_one)
{
    struct bench *b = *state;
    struct trial t;

    START(b, &t, 128 * MB, HELPER("memory-storm", "20"));
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_OVER_MEMORY);
    assert_non_null(strstr(t.message, " of the 128.0 MB it may use; raise the memory limit"));
    assert_true(t.end.peak_memory >= 128 * MB);
    assert_int_equal(still_there(&t), 0);
}

/* ---- when the watch looks again: 2 cores, and times in ms ---- */

static int64_t look(struct hy_memory_growth *g, int64_t ms, uint64_t used, size_t processes, uint64_t limit)
{
    struct hy_memory_sample seen = {
        .now_ns = ms * 1000000, .used = used, .limit = limit, .processes = processes, .cores = 2};

    return hy_growth_next_check_ms(g, &seen);
}

HY_TEST(test_check_interval_of_a_steady_trial_depends_on_what_is_left)
{
    struct hy_memory_growth g = {0}, small = {0}, full = {0};

    for (int64_t ms = 1000; ms < 2000; ms += 50) {
        assert_int_equal(look(&g, ms, 100 * MB, 3, 16384 * MB), 50);
        assert_int_equal(look(&small, ms, 8 * MB, 1, 128 * MB), 30); /* both cores touch 4 MB a ms */
        assert_int_equal(look(&full, ms, 127 * MB, 1, 128 * MB), 10);
    }
}

HY_TEST(test_a_growing_trial_is_checked_well_before_its_limit)
{
    struct hy_memory_growth g = {0};
    uint64_t used = 0;
    int64_t ms = 1000, looks = 0, wait = look(&g, ms, 0, 1, 1024 * MB);

    for (; used <= 1024 * MB; looks++) { /* 2 MB a ms */
        assert_in_range(wait, 2, 50);
        ms += wait;
        used += 2 * MB * (uint64_t)wait;
        wait = look(&g, ms, used, 1, 1024 * MB);
    }
    assert_true(used <= 1028 * MB); /* it is seen within the shortest wait */
    assert_true(looks < 40);
    for (int i = 0; i < 20; i++, ms += 50) /* it has ended and the next one is calm */
        wait = look(&g, ms, 100 * MB, 1, 1024 * MB);
    assert_int_equal(wait, 50);
}

HY_TEST(test_a_trial_with_accelerating_growth_exceeds_its_limit_by_little)
{
    struct hy_memory_growth g = {0};
    int64_t ms = 1000, wait = look(&g, ms, MB, 1, 1024 * MB);
    uint64_t used = MB, rate = MB / 2;

    while (used <= 1024 * MB) {
        ms += wait;
        used += rate * (uint64_t)wait;
        rate += rate / 4; /* as much again in three looks */
        wait = look(&g, ms, used, 1, 1024 * MB);
    }
    assert_true(used <= 1024 * MB + 2 * 2 * rate);
}

HY_TEST(test_new_processes_are_checked_soon)
{
    struct hy_memory_growth g = {0};

    assert_int_equal(look(&g, 1000, MB, 1, 16384 * MB), 50);
    assert_int_equal(look(&g, 1050, MB, 31, 16384 * MB), 5);
    assert_int_equal(look(&g, 1055, MB, 31, 16384 * MB), 5);
    assert_int_equal(look(&g, 1149, MB, 31, 16384 * MB), 5);
    assert_int_equal(look(&g, 1151, MB, 31, 16384 * MB), 50);
    assert_int_equal(look(&g, 1200, MB, 2, 16384 * MB), 50);
}

HY_TEST(test_over_the_limit_the_check_interval_is_minimal)
{
    struct hy_memory_growth g = {0};

    assert_int_equal(look(&g, 1000, 0, 1, 128 * MB), 32);
    assert_int_equal(look(&g, 1010, 200 * MB, 1, 128 * MB), 2);
    assert_int_equal(look(&g, 1010, 220 * MB, 1, 128 * MB), 2);
    assert_int_equal(look(&g, 1000, 220 * MB, 1, 0), 2);
}

static void *wait_for_byte(void *fd)
{
    char byte;

    return read(*(int *)fd, &byte, 1) == 1 ? fd : NULL;
}

HY_TEST(test_processes_that_came_since_are_added_and_threads_are_not)
{
    struct hy_procs procs = {0};
    int64_t before, after;
    pthread_t thread;
    int ends[2];
    pid_t child;

    assert_int_equal(hy_procs_read(&procs), 0);
    before = hy_newest_pid();
    assert_true(before > 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_byte, &ends[0]), 0);
    child = fork();
    if (child == 0)
        stay();
    after = hy_newest_pid();
    if (after >= child && before < child) { /* numbers have not begun anew */
        for (int twice = 0; twice < 2; twice++) {
            size_t n = 0;

            assert_int_equal(hy_procs_add(&procs, (pid_t)before + 1, (pid_t)after), 0);
            assert_non_null(hy_procs_find(&procs, child));
            for (size_t i = 0; i < procs.n; i++) {
                n += procs.list[i].pid == child || (procs.list[i].pid > before && procs.list[i].sid == getsid(0) &&
                                                    procs.list[i].ppid == getppid() && procs.list[i].pid != getpid());
                assert_true(i == 0 || procs.list[i].pid > procs.list[i - 1].pid);
            }
            assert_int_equal(n, 1); /* a thread would have our parent */
        }
    }
    hy_procs_done(&procs);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(ends[0]);
    close(ends[1]);
}

BOTH(test_shared_memory_counts)
{
    struct trial t;

    START(*state, &t, 128 * MB, HELPER("memory-shared", "400"));
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_OVER_MEMORY);
}

static bool is_stopped(pid_t pid)
{
    char path[40], state = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
    fclose(f);
    return state == 'T';
}

HY_TEST_WITH(test_pages_shared_by_a_fork_count_once, set_up_watch, tear_down)
{
    struct bench *b = *state;
    struct trial t;

    START(b, &t, 400 * MB, HELPER("memory-forked", "200"));
    run_to_text(&t, "ready", 1);
    t.p->check_at = 0;
    hy_watch_tick(&b->s->watch_timer); /* five processes with 200 MB each, and one limit of 400 */
    assert_int_equal(t.p->stage, HY_STAGE_RUNNING);
    assert_in_range(t.p->used, 200 * MB, 400 * MB);
    assert_in_range(t.p->stops, 1, 3); /* to be measured, and they go on */
    for (size_t i = 0; i < b->s->snapshot.n; i++)
        if (b->s->snapshot.list[i].owner == t.p)
            assert_false(is_stopped(b->s->snapshot.list[i].pid));
    hy_process_kill(t.p, 0);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_KILLED);
}

HY_TEST_WITH(test_a_child_before_exec_does_not_count_twice, set_up_watch, tear_down)
{
    struct bench *b = *state;
    size_t procs = 0;
    struct trial t;

    START(b, &t, 350 * MB, HELPER("vfork", "200"));
    run_to_text(&t, "ready", 1);
    while (procs < 2) { /* the child is there */
        b->s->snapshot_at = -1;
        assert_int_equal(hy_descendants_find(b->s), 0);
        procs = 0;
        for (size_t i = 0; i < b->s->snapshot.n; i++)
            procs += b->s->snapshot.list[i].owner == t.p;
    }
    t.p->check_at = 0;
    hy_watch_tick(&b->s->watch_timer);
    assert_int_equal(t.p->stage, HY_STAGE_RUNNING);
    assert_in_range(t.p->used, 200 * MB, 350 * MB);
    hy_process_kill(t.p, 0);
    run_to_end(&t);
}

BOTH(test_files_read_and_written_are_not_a_trials_memory)
{
    char folder[] = "/tmp/hopyard-test-XXXXXX", command[256];
    struct trial t;

    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "cd %s && dd if=/dev/zero of=big bs=1M count=300 2>/dev/null && cat big >/dev/null; rm big", folder);
    START(*state, &t, 64 * MB, "sh", "-c", command);
    run_to_end(&t);
    rmdir(folder);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    assert_int_equal(t.end.code, 0);
}

BOTH(test_the_peak_is_reported)
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

HY_TEST(test_our_cgroup_is_found)
{
    static const char v1[] = "30 20 0:9 / /sys rw shared:7 - sysfs sysfs rw\n"
                             "31 30 0:28 / /cg/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
                             "32 30 0:29 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n"
                             "33 30 0:30 / /cg/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
    static const char inside[] = "32 30 0:29 /docker/ab /cg/memory ro master:3 - cgroup cgroup rw,memory\n";

    assert_place(HY_CGROUP_V1, "5:cpu,cpuacct:/c\n4:memory:/user/a:b\n0::/x\n", v1, "/cg/memory/user/a:b");
    assert_place(HY_CGROUP_V2, "4:memory:/user\n0::/user.slice/s.scope\n", v1, "/cg/unified/user.slice/s.scope");
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

/* Runs the loop until its memory is in this range. */
static void run_to_memory(struct trial *t, uint64_t least, uint64_t most)
{
    struct hy_process_usage now = {0};

    while (hy_process_usage(t->p, &now) < 0 || now.memory < least || now.memory > most) {
        assert_false(t->ended);
        uv_run(&t->bench->loop, UV_RUN_NOWAIT);
    }
}

BOTH(test_memory_in_use_counts_pages_of_several_processes_once)
{
    struct bench *b = *state;
    static const uint64_t limits[] = {0, 1024 * MB};

    for (size_t i = 0; i < 2; i++) {
        struct trial t;

        START(b, &t, limits[i], HELPER("memory-forked", "100"));
        run_to_text(&t, "ready", 1);
        run_to_memory(&t, 100 * MB, 150 * MB); /* five processes have these pages */
        hy_process_kill(t.p, 0);
        run_to_end(&t);
    }
}

static void expect_cpu_time(struct trial *t)
{
    struct hy_process_usage now = {0};

    while (hy_process_usage(t->p, &now) < 0 || now.cpu_ms < 50)
        uv_run(&t->bench->loop, UV_RUN_NOWAIT);
    hy_process_kill(t->p, 0);
    while (!t->ended && hy_process_usage(t->p, &now) == 0) /* it is freed after its end */
        uv_run(&t->bench->loop, UV_RUN_NOWAIT);
    run_to_end(t);
    assert_true(t->end.outcome == HY_PROCESS_KILLED);
}

HY_TEST_WITH(test_cpu_time_in_use_counts_descendants, set_up, tear_down)
{
    struct trial t;

    START(*state, &t, 0, "sh", "-c", "(while :; do :; done) & wait");
    expect_cpu_time(&t);
    START(*state, &t, 0, HELPER("child-of-thread"));
    expect_cpu_time(&t);
    START(*state, &t, 0, "sh", "-c", "sh -c '(while :; do :; done) &'; sleep 1000"); /* its parent has died */
    expect_cpu_time(&t);
}

/* It costs as much as the trial has processes, not as much as the machine has. */
HY_TEST_WITH(test_measuring_a_trial_reads_no_other_processes, set_up, tear_down)
{
    struct bench *b = *state;
    struct hy_process_usage now;
    struct trial t;

    START(b, &t, 0, HELPER("stay"));
    run_to_text(&t, "pid ", 1);
    b->s->snapshot_at = -1;
    assert_int_equal(hy_process_usage(t.p, &now), 0);
    assert_int_equal(b->s->snapshot.n, 1);
    assert_ptr_equal(b->s->snapshot.list[0].owner, t.p);
    assert_int_equal(hy_descendants_find_recent(b->s), 0); /* the list for limits and signals has all */
    assert_non_null(hy_procs_find(&b->s->snapshot, getppid()));
    hy_process_kill(t.p, 0);
    run_to_end(&t);
}

HY_TEST_WITH(test_cgroups_are_made_and_removed, set_up, tear_down)
{
    struct bench *b = *state;
    char path[PATH_MAX];
    struct trial t;

    if (b->s->cgroup.kind == HY_CGROUP_NONE)
        hy_skip_cgroups();
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
    return run_suite(argc, argv);
}
