/* SPDX-License-Identifier: Apache-2.0 */
/* The store over trouble: full disks, kills at any moment, faults at every allocation and call. */
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

/* ---- faults ---------------------------------------------------------------------- */

static int make_use_and_read(void *arg)
{
    static int folders;
    struct hy_store *s = NULL;
    char folder[200];
    int64_t run;
    int n = 0, rc;

    (void)arg;
    snprintf(folder, sizeof folder, "%s/%d", project, folders++);
    if (mkdir(folder, 0755) < 0)
        return 1;
    rc = hy_store_open(folder, HY_STORE_WRITE, &s, &err);
    if (rc == 0)
        rc = add_run(s, "n", 1, true, &run);
    if (rc == 0)
        rc = whole_turn(s, run, 1);
    hy_store_close(s);
    s = NULL;
    if (rc == 0)
        rc = hy_store_open(folder, HY_STORE_READ, &s, &err);
    if (rc == 0)
        rc = hy_store_run_each(s, 0, count_run, &n, &err);
    hy_store_close(s);
    if (rc < 0 && (!err.text[0] || err.code != rc))
        return 1; /* a failure has its sentence */
    return rc == 0 && n != 1 ? 1 : rc;
}

HY_TEST_WITH(test_opening_survives_every_fault, new_project, no_project)
{
    hy_each_fault(HY_SEAM_ALLOC, make_use_and_read, NULL);
    hy_each_fault(HY_SEAM_SYS, make_use_and_read, NULL);
}

struct scene {
    struct hy_store *s;
    int64_t run;
};

static int read_all(void *arg)
{
    struct scene *scene = arg;
    struct hy_store *s = scene->s;
    int64_t found;
    int n = 0;
    int rc = hy_store_run_find(s, "n", &found, &err);

    if (rc == 0)
        rc = hy_store_run_find(s, "unknown", &found, &err) == -ENOENT ? 0 : err.code;
    if (rc == 0)
        rc = hy_store_run_each(s, 0, count_run, &n, &err);
    if (rc == 0)
        rc = hy_store_trial_each(s, scene->run, 0, HY_TRIALS_BY_NUMBER, 0, 0, count_trial, &n, &err);
    if (rc == 0)
        rc = hy_store_trial_each(s, scene->run, 0, HY_TRIALS_BY_VALUE, 0, 0, count_trial, &n, &err);
    if (rc == 0)
        rc = hy_store_replay(s, scene->run, count_replay, &n, &err);
    if (rc == 0)
        rc = hy_store_ended_newest(s, scene->run, INT64_MAX, 2, &found, &err);
    if (rc == 0)
        rc = hy_store_ended_each(s, scene->run, found, INT64_MAX, 10, count_trial, &n, &err);
    if (rc == 0)
        rc = hy_store_note_newest(s, scene->run, &found, &err);
    if (rc == 0)
        rc = hy_store_attempt_each(s, scene->run, 0, count_attempt, &n, &err);
    if (rc == 0)
        rc = hy_store_metric_each(s, scene->run, 0, count_metric, &n, &err);
    return rc == 0 && n != 1 + 5 + 5 + 10 + 2 + 5 + 5 ? 1 : rc;
}

static int read_with_new_connection(void *arg)
{
    struct scene *scene = arg;
    int rc = hy_store_open(project, HY_STORE_READ, &scene->s, &err);

    if (rc == 0)
        rc = read_all(arg);
    hy_store_close(hy_take(scene->s));
    return rc;
}

HY_TEST_WITH(test_reading_survives_every_fault, new_project, no_project)
{
    struct scene scene = {0};
    struct hy_store *s = open_store(HY_STORE_WRITE);

    OK(add_run(s, "n", 1, true, &scene.run));
    for (int64_t i = 1; i <= 5; i++)
        OK(whole_turn(s, scene.run, i));
    hy_each_fault(HY_SEAM_ALLOC, read_with_new_connection, &scene);
    hy_each_fault(HY_SEAM_SYS, read_with_new_connection, &scene);
    scene.s = open_store(HY_STORE_READ); /* statements are prepared while faults happen */
    hy_each_fault(HY_SEAM_ALLOC, read_all, &scene);
    hy_each_fault(HY_SEAM_SYS, read_all, &scene);
    hy_store_close(scene.s);
    hy_store_close(s);
}

/* Whatever fails in a turn, it is in the store wholly or not at all, and the next one works. */
static void turns_with_faults(enum hy_seam seam, bool fresh)
{
    int64_t run, next = 1;
    struct hy_store *s = store_with_run(true, &run);
    long hits = 0;

    for (long n = 1; n <= HY_FAULT_POSITIONS; n++) {
        int trials, attempts = 0, metrics = 0, rc;
        long passed;

        if (fresh) { /* with its statements still to be prepared and its cache cold */
            hy_store_close(s);
            s = open_store(HY_STORE_WRITE);
        }
        hy_fault_arm(seam, n);
        rc = whole_turn(s, run, next);
        passed = hy_fault_passed(seam);
        hy_fault_arm(seam, 0);
        hits += passed >= n;
        if (rc < 0)
            hy_store_commit(s, NULL); /* the end of the turn that failed */
        next += rc == 0;
        trials = count_trials(s, run);
        OK(hy_store_attempt_each(s, run, 0, count_attempt, &attempts, &err));
        OK(hy_store_metric_each(s, run, 0, count_metric, &metrics, &err));
        assert_int_equal(trials, next - 1);
        assert_int_equal(attempts, trials);
        assert_int_equal(metrics, trials);
        assert_int_equal(counts_of(s, run).done, trials);
        assert_int_equal(counts_of(s, run).running, 0);
        OK(whole_turn(s, run, next++));
        if (passed < n)
            break;
    }
    assert_true(hits > 2);
    hy_store_close(s);
}

HY_TEST_WITH(test_a_turn_is_atomic_when_memory_runs_out, new_project, no_project)
{
    turns_with_faults(HY_SEAM_ALLOC, true);
}

HY_TEST_WITH(test_a_turn_is_atomic_when_the_disk_fails, new_project, no_project)
{
    turns_with_faults(HY_SEAM_SYS, false);
}

static int lock_and_ask(void *arg)
{
    struct scene *scene = arg;
    int fd = hy_store_run_lock(scene->s, scene->run, &err);
    int alive = hy_store_run_alive(scene->s, scene->run);

    if (fd < 0)
        return fd;
    close(fd);
    return alive ? 0 : 1; /* a fault must never make a living driver look dead */
}

static int snapshot_and_import(void *arg)
{
    struct scene *scene = arg;
    int64_t count = 0, found = 0;
    int rc = hy_store_snapshot(scene->s, 1, in_project("run.db"), NULL, 0, &err);

    if (rc == 0)
        rc = hy_store_backup_run(scene->s, 1, &err);
    if (rc == 0)
        rc = import_file(scene[1].s, in_project("run.db"), &count, &err);
    if (rc == 0 && hy_store_run_find(scene[1].s, "n", &found, &err) == 0)
        rc = hy_store_run_remove(scene[1].s, found, &err);
    return rc == 0 ? hy_store_commit(scene[1].s, &err) : (hy_store_commit(scene[1].s, NULL), rc);
}

HY_TEST_WITH(test_locks_and_snapshots_survive_every_fault, new_project, no_project)
{
    struct scene scene[2] = {{.s = open_store(HY_STORE_WRITE)}, {.s = other_store()}};

    OK(add_run(scene[0].s, "n", 1, true, &scene[0].run));
    OK(whole_turn(scene[0].s, 1, 1));
    hy_each_fault(HY_SEAM_ALLOC, lock_and_ask, scene);
    hy_each_fault(HY_SEAM_SYS, lock_and_ask, scene);
    hy_each_fault(HY_SEAM_ALLOC, snapshot_and_import, scene);
    hy_each_fault(HY_SEAM_SYS, snapshot_and_import, scene);
    hy_store_close(scene[0].s);
    hy_store_close(scene[1].s);
}
