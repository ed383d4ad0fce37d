/* SPDX-License-Identifier: Apache-2.0 */
/* What was committed stays, over kills at any moment and full disks. */
#include "store_bench.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/mem.h"
#include "base/rng.h"

/* ---- what was committed ---------------------------------------------------------- */

/* SQLite is linked against these: how often it had the disk confirm something. */
static int syncs;

int fsync(int fd)
{
    syncs++;
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    syncs++;
    return (int)syscall(SYS_fdatasync, fd);
}

HY_TEST_WITH(test_a_commit_returns_when_the_disk_has_it, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    for (int64_t i = 1; i <= 3; i++) {
        OK(add_trial(s, run, i));
        syncs = 0;
        OK(hy_store_commit(s, &err));
        assert_true(syncs >= 1);
        syncs = 0;
        OK(hy_store_commit(s, &err)); /* nothing to keep, nothing to wait for */
        assert_int_equal(syncs, 0);
    }
    hy_store_close(s);
}

HY_TEST_WITH(test_what_was_committed_survives_a_kill_at_any_moment, new_project, no_project)
{
    int64_t run, last = 0;
    struct hy_rng rng;

    hy_store_close(store_with_run(true, &run));
    hy_rng_seed(&rng, 1, 0);
    for (int i = 0; i < 40; i++) {
        int64_t told = kill_writer_after((int)hy_rng_below(&rng, 12), (long)hy_rng_below(&rng, 4000000));
        struct hy_store *s = open_store(HY_STORE_READ);
        int64_t done = counts_of(s, run).done;
        int attempts = 0, metrics = 0;

        last = told ? told : last;
        assert_in_range(done, last, last + 100); /* more: committed after what it told last */
        assert_int_equal(counts_of(s, run).running, 0);
        assert_int_equal(count_trials(s, run), done);
        OK(hy_store_attempt_each(s, run, 0, count_attempt, &attempts, &err));
        OK(hy_store_metric_each(s, run, 0, count_metric, &metrics, &err));
        assert_int_equal(attempts, done);
        assert_int_equal(metrics, done);
        last = done;
        hy_store_close(s);
    }
    assert_true(last > 40);
}

/* ---- a full disk ----------------------------------------------------------------- */

static int write_until_full(struct hy_store *s, int64_t *ret_committed)
{
    int64_t i = 1;
    int rc;

    while ((rc = whole_turn(s, 1, i)) == 0 && i < 100000)
        i++;
    *ret_committed = i - 1;
    return rc;
}

/* Everything committed before is there, and once there is room it goes on. */
static int check_after_full(struct hy_store *s, int64_t committed)
{
    struct hy_run_counts c;

    CHECK(strstr(err.text, "disk full: cannot write '") && strstr(err.text, "/store.db'; free some space"));
    hy_store_commit(s, NULL); /* the turn is lost; where it failed before its end, this says so too */
    CHECK(hy_store_run_each(s, 1, take_counts, &c, &err) == 0);
    CHECK(committed > 0 && c.done == committed && c.running == 0);
    return 0;
}

static int fill_by_limit(void *arg)
{
    struct rlimit limit = {.rlim_cur = 150000, .rlim_max = RLIM_INFINITY};
    struct hy_store *s = NULL;
    int64_t run, committed;

    (void)arg;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(hy_store_open(project, HY_STORE_WRITE, &s, &err) == 0);
    CHECK(add_run(s, NULL, 1, true, &run) == 0 && hy_store_commit(s, &err) == 0);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 150000;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(write_until_full(s, &committed) == -ENOSPC);
    CHECK(check_after_full(s, committed) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(whole_turn(s, 1, committed + 1) == 0);
    hy_store_close(s);
    return 0;
}

HY_TEST_WITH(test_a_file_that_may_not_grow_is_a_full_disk, new_project, no_project)
{
    assert_int_equal(child_ends(start_child(fill_by_limit, NULL)), 0);
}

static int fill_disk(void *arg)
{
    static const char junk[4096];
    struct hy_store *s = NULL;
    int64_t run, committed;
    char *ballast = in_project("ballast");
    int fd;

    (void)arg;
    CHECK(unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("none", project, "tmpfs", 0, "size=600k") == 0);
    CHECK(hy_store_open(project, HY_STORE_WRITE, &s, &err) == 0);
    CHECK(add_run(s, NULL, 1, true, &run) == 0 && hy_store_commit(s, &err) == 0);
    fd = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    for (int i = 0; i < 50; i++)
        CHECK(write(fd, junk, sizeof junk) == sizeof junk);
    close(fd);
    CHECK(write_until_full(s, &committed) == -ENOSPC);
    CHECK(check_after_full(s, committed) == 0);
    unlink(ballast);
    CHECK(whole_turn(s, 1, committed + 1) == 0);
    hy_store_close(s);
    CHECK(hy_store_open(project, HY_STORE_WRITE, &s, &err) == 0);
    CHECK(whole_turn(s, 1, committed + 2) == 0);
    hy_store_close(s);
    return 0;
}

/* Too full even to begin: the sentence is the same. */
static int open_on_full_disk(void *arg)
{
    struct hy_store *s = NULL;
    int rc;

    CHECK(unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("none", project, "tmpfs", 0, arg) == 0);
    rc = hy_store_open(project, HY_STORE_WRITE, &s, &err);
    CHECK(rc == -ENOSPC);
    CHECK(strstr(err.text, "disk full") || strstr(err.text, "No space left"));
    return 0;
}

HY_TEST_WITH(test_a_full_disk_fails_the_turn_and_free_space_fixes_it, new_project, no_project)
{
    hy_need_root("to mount a small disk");
    assert_int_equal(child_ends(start_child(fill_disk, NULL)), 0);
    assert_int_equal(child_ends(start_child(open_on_full_disk, (void *)(uintptr_t)"size=4k")), 0);
    assert_int_equal(child_ends(start_child(open_on_full_disk, (void *)(uintptr_t)"size=20k")), 0);
    assert_int_equal(child_ends(start_child(open_on_full_disk, (void *)(uintptr_t)"size=60k")), 0);
    assert_int_equal(child_ends(start_child(open_on_full_disk, (void *)(uintptr_t)"nr_inodes=1")), 0);
}
