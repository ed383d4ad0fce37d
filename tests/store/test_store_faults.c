/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation and each system call of the store fails once, in SQLite too. */
#include "store_bench.h"

#include <errno.h>
#include <limits.h>

#include "base/mem.h"

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

HY_TEST_WITH(test_opening_survives_every_fault, new_project_in_memory, no_project)
{
    hy_each_fault(HY_SEAM_ALLOC, make_use_and_read, NULL);
    hy_some_faults(HY_SEAM_ALLOC, 9, make_use_and_read, NULL);
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

HY_TEST_WITH(test_reading_survives_every_fault, new_project_in_memory, no_project)
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

HY_TEST_WITH(test_a_turn_is_atomic_when_memory_runs_out, new_project_in_memory, no_project)
{
    turns_with_faults(HY_SEAM_ALLOC, true);
}

HY_TEST_WITH(test_a_turn_is_atomic_when_the_disk_fails, new_project_in_memory, no_project)
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

HY_TEST_WITH(test_locks_and_snapshots_survive_every_fault, new_project_in_memory, no_project)
{
    struct scene scene[2] = {{.s = open_store(HY_STORE_WRITE)}, {.s = other_store()}};

    OK(add_run(scene[0].s, "n", 1, true, &scene[0].run));
    OK(whole_turn(scene[0].s, 1, 1));
    hy_each_fault(HY_SEAM_ALLOC, lock_and_ask, scene);
    hy_each_fault(HY_SEAM_SYS, lock_and_ask, scene);
    hy_some_faults(HY_SEAM_ALLOC, 9, snapshot_and_import, scene);
    hy_each_fault(HY_SEAM_SYS, snapshot_and_import, scene);
    hy_store_close(scene[0].s);
    hy_store_close(scene[1].s);
}

/* ---- one call at a time ------------------------------------------------------------ */

struct caller {
    struct hy_store *s;
    int64_t run;
    int64_t last; /* the last number that was given to a new trial or run */
    bool is_left; /* the run that was imported, since its removal failed */
    int (*call)(struct caller *c);
};

static int call_run_add(struct caller *c)
{
    struct hy_run_row row = full_run;

    row.app_run = ++c->last;
    return hy_store_run_add(c->s, &row, &(int64_t){0}, &err);
}

static int call_run_state(struct caller *c)
{
    return hy_store_run_state(c->s, c->run, HY_RUN_STOPPED, "by hand", &err);
}

static int call_run_remove(struct caller *c)
{
    int64_t run;
    int rc = add_run(c->s, NULL, ++c->last, true, &run);

    return rc == 0 ? hy_store_run_remove(c->s, run, &err) : rc;
}

/* All have the same directory, so that each but the first gets a number behind it. */
static int call_trial_add(struct caller *c)
{
    struct hy_trial_row t = {.number = ++c->last, .params = "{}", .dir = "same", .asked_seq = c->last};
    hy_cleanup_free char *dir = NULL;

    return hy_store_trial_add(c->s, c->run, &t, &dir, &err);
}

static int call_trial_end(struct caller *c)
{
    c->last++;
    return end_trial(c->s, c->run, 1, c->last % 2 ? HY_TRIAL_DONE : HY_TRIAL_RUNNING, (double)c->last);
}

static int call_attempt_add(struct caller *c)
{
    struct hy_attempt_row a = {.trial = 1, .number = ++c->last, .agent = "a", .host = "h", .state = HY_ATTEMPT_RUNNING};

    return hy_store_attempt_add(c->s, c->run, &a, &err);
}

static int call_attempt_end(struct caller *c)
{
    struct hy_attempt_row a = {.trial = 1,
                               .number = 1,
                               .state = HY_ATTEMPT_FAILED,
                               .message = "why",
                               .detail = "a traceback",
                               .charge = HY_CHARGE_FAILURE};

    return hy_store_attempt_end(c->s, c->run, &a, &err);
}

static int call_clear_charges(struct caller *c)
{
    return hy_store_attempts_clear_charges(c->s, c->run, 1, &err);
}

static int call_metric_add(struct caller *c)
{
    struct hy_metric_row m = {.trial = 1, .attempt = 1, .step = -1, .name = "loss", .value = 0.5};

    return hy_store_metric_add(c->s, c->run, &m, &err);
}

static int call_note_add(struct caller *c)
{
    return hy_store_note_add(c->s, c->run, &(struct hy_note_row){.time = 1, .text = "a note"}, &err);
}

static int count_note(void *arg, const struct hy_note_row *note)
{
    (void)note;
    ++*(int *)arg;
    return 0;
}

static int call_note_each(struct caller *c)
{
    return hy_store_note_each(c->s, c->run, 0, count_note, &(int){0}, &err);
}

static int call_note_newest(struct caller *c)
{
    return hy_store_note_newest(c->s, c->run, &(int64_t){0}, &err);
}

static int call_run_find(struct caller *c)
{
    return hy_store_run_find(c->s, "n", &(int64_t){0}, &err);
}

/* The sentence lists the names that there are. */
static int call_run_find_other(struct caller *c)
{
    int rc = hy_store_run_find(c->s, "another", &(int64_t){0}, &err);

    return rc == -ENOENT ? 0 : rc;
}

static int call_run_each(struct caller *c)
{
    return hy_store_run_each(c->s, c->run, count_run, &(int){0}, &err);
}

static int call_trial_each(struct caller *c)
{
    return hy_store_trial_each(c->s, c->run, 1, HY_TRIALS_BY_NUMBER, 0, 0, count_trial, &(int){0}, &err);
}

static int call_trials_by_value(struct caller *c)
{
    return hy_store_trial_each(c->s, c->run, 0, HY_TRIALS_BY_VALUE, 0, 2, count_trial, &(int){0}, &err);
}

static int call_replay(struct caller *c)
{
    return hy_store_replay(c->s, c->run, count_replay, &(int){0}, &err);
}

static int call_ended_newest(struct caller *c)
{
    return hy_store_ended_newest(c->s, c->run, INT64_MAX, 1, &(int64_t){0}, &err);
}

static int call_ended_each(struct caller *c)
{
    return hy_store_ended_each(c->s, c->run, 0, INT64_MAX, 10, count_trial, &(int){0}, &err);
}

static int call_trial_page(struct caller *c)
{
    struct hy_trial_page page = {.key = HY_TRIAL_PARAM, .param = "x", .limit = 2};

    return hy_store_trial_page(c->s, c->run, &page, count_trial, &(int){0}, &(int64_t){0}, &err);
}

static int call_changed_each(struct caller *c)
{
    return hy_store_changed_each(c->s, c->run, 0, count_trial, &(int){0}, &err);
}

static int call_metric_thinned(struct caller *c)
{
    return hy_store_metric_thinned(c->s, c->run, 1, "acc", 1, count_metric, &(int){0}, &err);
}

static int count_name(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return 0;
}

static int call_metric_names(struct caller *c)
{
    return hy_store_metric_names(c->s, c->run, 1, count_name, &(int){0}, &err);
}

static int call_attempt_each(struct caller *c)
{
    return hy_store_attempt_each(c->s, c->run, 1, count_attempt, &(int){0}, &err);
}

static int call_metric_each(struct caller *c)
{
    return hy_store_metric_each(c->s, c->run, 1, count_metric, &(int){0}, &err);
}

static int call_backup(struct caller *c)
{
    return hy_store_backup_run(c->s, c->run, &err);
}

static int call_count_backups(struct caller *c)
{
    return hy_store_count_unlisted_backups(c->s, &(int64_t){0}, &err);
}

static int call_remove_backup(struct caller *c)
{
    return hy_store_remove_backup(c->s, c->run, &err);
}

static int call_run_rename(struct caller *c)
{
    return hy_store_run_rename(c->s, c->run, "n", &err);
}

static int call_label_set(struct caller *c)
{
    return hy_store_label_set(c->s, c->run, &(struct hy_label_row){.trial = 1, .tags = "[\"a\"]", .note = "a note"},
                              &err);
}

static int count_label(void *arg, const struct hy_label_row *label)
{
    (void)label;
    ++*(int *)arg;
    return 0;
}

static int call_label_each(struct caller *c)
{
    return hy_store_label_each(c->s, c->run, count_label, &(int){0}, &err);
}

static int call_usage_set(struct caller *c)
{
    struct hy_usage_row u = {.trial = 1, .attempt = 1, .points = "points", .points_len = 6};

    return hy_store_usage_set(c->s, c->run, &u, &err);
}

static int count_usage(void *arg, const struct hy_usage_row *u)
{
    (void)u;
    ++*(int *)arg;
    return 0;
}

static int call_usage_each(struct caller *c)
{
    int rc = hy_store_usage_each(c->s, c->run, 0, count_usage, &(int){0}, &err);

    return rc < 0 ? rc : hy_store_usage_each(c->s, c->run, 1, count_usage, &(int){0}, &err);
}

static int count_attempt_usage(void *arg, const struct hy_attempt_row *a, const struct hy_usage_row *u)
{
    (void)a;
    (void)u;
    ++*(int *)arg;
    return 0;
}

static int call_usage_between(struct caller *c)
{
    return hy_store_attempt_usage_between(c->s, c->run, 0, INT64_MAX, count_attempt_usage, &(int){0}, &err);
}

static int call_version(struct caller *c)
{
    return hy_store_version(c->s, &(int64_t){0}, &err);
}

/* A new name each time, since a project that is listed already is not written again. */
static int call_project_register(struct caller *c)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%lld", project, (long long)++c->last);
    return hy_project_register(path, &err);
}

static int count_project(void *arg, const char *id, const char *path)
{
    (void)id;
    (void)path;
    ++*(int *)arg;
    return 0;
}

/* Those that were registered above do not exist, so they are removed from the list. */
static int call_project_each(struct caller *c)
{
    int rc = hy_project_register(project, &err);

    (void)c;
    return rc < 0 ? rc : hy_project_each(count_project, &(int){0}, &err);
}

static int call_check_files(struct caller *c)
{
    int rc = hy_store_check_files(c->s, &err);

    return rc == -ESTALE ? err.code : rc;
}

static int call_and_commit(struct caller *c)
{
    int rc;

    err = (struct hy_err){0};
    rc = c->call(c);
    if (rc < 0 && (!err.text[0] || err.code != rc))
        fail_msg("a failure without its sentence: %d, '%s'", rc, err.text);
    if (rc < 0)
        hy_store_commit(c->s, NULL); /* the end of the turn that failed */
    return rc < 0 ? rc : hy_store_commit(c->s, &err);
}

/* A connection prepares each statement at its first use and keeps it: with `is_fresh` that is what fails, at every
 * seventh allocation. */
static void call_with_faults(struct caller *c, enum hy_seam seam, bool is_fresh)
{
    long step = is_fresh ? 7 : 1;
    long passed = LONG_MAX;

    for (long n = 1; n <= HY_FAULT_POSITIONS && passed >= n - step; n += step) {
        if (is_fresh) {
            hy_store_close(c->s);
            c->s = open_store(HY_STORE_WRITE);
        }
        hy_fault_arm(seam, n);
        assert_true(call_and_commit(c) <= 0);
        passed = hy_fault_passed(seam);
        hy_fault_arm(seam, 0);
        assert_int_equal(call_and_commit(c), 0);
    }
}

HY_TEST_WITH(test_each_call_survives_every_fault_and_works_again, new_project_in_memory, no_project)
{
    static int (*const calls[])(struct caller *) = {
        call_run_add,       call_run_state,       call_run_remove,       call_trial_add,      call_trial_end,
        call_attempt_add,   call_attempt_end,     call_clear_charges,    call_metric_add,     call_note_add,
        call_note_each,     call_note_newest,     call_run_find,         call_run_find_other, call_run_each,
        call_trial_each,    call_trials_by_value, call_replay,           call_ended_newest,   call_ended_each,
        call_attempt_each,  call_metric_each,     call_backup,           call_count_backups,  call_remove_backup,
        call_check_files,   call_trial_page,      call_changed_each,     call_metric_thinned, call_metric_names,
        call_run_rename,    call_label_set,       call_label_each,       call_usage_set,      call_usage_each,
        call_usage_between, call_version,         call_project_register, call_project_each};
    struct caller c = {.s = open_store(HY_STORE_WRITE), .last = 100};

    setenv("XDG_STATE_HOME", in_project("state"), 1);
    OK(add_run(c.s, "n", 1, true, &c.run));
    OK(whole_turn(c.s, c.run, 1));
    for (size_t i = 0; i < HY_COUNT(calls); i++) {
        c.call = calls[i];
        call_with_faults(&c, HY_SEAM_ALLOC, true);
        call_with_faults(&c, HY_SEAM_ALLOC, false);
        call_with_faults(&c, HY_SEAM_SYS, false);
    }
    hy_store_close(c.s);
}

static int import_and_remove(void *arg)
{
    struct caller *c = arg;
    int64_t count = 0, found = 0;
    int rc = import_file(c->s, in_project("run.db"), &count, &err);

    if (rc < 0) {
        hy_store_commit(c->s, NULL);
        return rc;
    }
    if (count != !c->is_left)
        return 1;
    rc = hy_store_run_find(c->s, "n", &found, &err);
    if (rc == 0)
        rc = hy_store_run_remove(c->s, found, &err);
    rc = rc == 0 ? hy_store_commit(c->s, &err) : (hy_store_commit(c->s, NULL), rc);
    c->is_left = rc < 0;
    return rc;
}

/* Of our own file (a copy in memory), and of one that others could write (a copy of the file). */
HY_TEST_WITH(test_an_import_survives_every_fault, new_project_in_memory, no_project)
{
    struct caller c = {.s = open_store(HY_STORE_WRITE)};

    OK(add_run(c.s, "n", 1, true, &c.run));
    OK(whole_turn(c.s, c.run, 1));
    OK(hy_store_snapshot(c.s, c.run, in_project("run.db"), NULL, 0, &err));
    hy_store_close(c.s);
    c.s = other_store();
    for (int i = 0; i < 2; i++) {
        hy_each_fault(HY_SEAM_SYS, import_and_remove, &c);
        hy_each_fault(HY_SEAM_ALLOC, import_and_remove, &c);
        hy_some_faults(HY_SEAM_ALLOC, 11, import_and_remove, &c); /* there are about 2,000 */
        assert_int_equal(chmod(in_project("run.db"), 0666), 0);
    }
    hy_store_close(c.s);
}

/* ---- where the store is -------------------------------------------------------------- */

static int open_and_close(void *arg)
{
    struct hy_store *s = NULL;
    int rc;

    err = (struct hy_err){0};
    rc = hy_store_open(arg, HY_STORE_WRITE, &s, &err);
    hy_store_close(s);
    return rc < 0 && (!err.text[0] || err.code != rc) ? 1 : rc;
}

HY_TEST_WITH(test_a_project_on_a_network_survives_every_fault, new_project_in_memory, no_project)
{
    char pretend[200];

    assert_int_equal(mkdir(in_project("p"), 0755), 0);
    setenv("XDG_STATE_HOME", in_project("state"), 1);
    for (int i = 0; i < 2; i++) { /* NFS; FUSE, whose kind is looked up in the list of mounts */
        snprintf(pretend, sizeof pretend, "%s:%s", i ? "0x65735546" : "0x6969", in_project("p"));
        setenv("HOPYARD_TEST_FS_TYPE", pretend, 1);
        hy_each_fault(HY_SEAM_ALLOC, open_and_close, in_project("p"));
        hy_each_fault(HY_SEAM_SYS, open_and_close, in_project("p"));
    }
}

/* A project that is a URL has a directory on this machine. */
static int use_url(void *arg)
{
    static int urls;
    hy_cleanup_free char *url = NULL, *shown = NULL, *directory = NULL;
    struct hy_store *s = NULL;
    char text[100];
    int rc = 0;

    (void)arg;
    snprintf(text, sizeof text, "hdfs://nn:8020/user/x/%d//", urls++);
    err = (struct hy_err){0};
    directory = hy_store_local_dir(text, &err);
    if (!directory)
        return err.text[0] ? err.code : 1;
    rc = hy_store_url_of_local_dir(directory, &url, &err);
    if (rc == 0 && (!url || strncmp(url, text, strlen(text) - 2) != 0 || strlen(url) != strlen(text) - 2))
        return 1;
    if (rc == 0)
        rc = hy_store_open(directory, HY_STORE_WRITE, &s, &err);
    if (rc == 0)
        shown = hy_store_display_path(s, hy_path_in(directory, "Logs/x"));
    if (rc == 0 && shown && !strstr(shown, "hdfs://nn:8020/user/x/"))
        rc = 1;
    hy_store_close(s);
    return rc == 0 && !shown ? -ENOMEM : rc;
}

HY_TEST_WITH(test_the_directory_of_a_url_survives_every_fault, new_project_in_memory, no_project)
{
    setenv("XDG_STATE_HOME", in_project("state"), 1);
    hy_each_fault(HY_SEAM_ALLOC, use_url, NULL);
    hy_some_faults(HY_SEAM_ALLOC, 9, use_url, NULL);
    hy_each_fault(HY_SEAM_SYS, use_url, NULL);
}

static int find_it_lost(void *arg)
{
    struct hy_store *s = NULL;
    int rc;

    (void)arg;
    err = (struct hy_err){0};
    rc = hy_store_open(project, HY_STORE_READ, &s, &err);
    hy_store_close(s);
    if (rc == 0 || !err.text[0])
        return 1; /* there is none to open, with or without a fault */
    return rc == -ENODATA ? 0 : rc;
}

HY_TEST_WITH(test_the_advice_for_a_lost_store_survives_every_fault, new_project_in_memory, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    OK(hy_store_backup_run(s, run, &err));
    hy_store_close(s);
    assert_int_equal(hy_mkdirs(in_project("Logs/TensorFlow/a/1"), 0755), 0);
    put_file(in_project("Logs/TensorFlow/a/1/.token"), "x", 1);
    put_file(in_project("Logs/TensorFlow/a/1/run.db"), "x", 1);
    assert_int_equal(unlink(in_project(".hopyard/store.db")), 0);
    hy_each_fault(HY_SEAM_ALLOC, find_it_lost, NULL);
    hy_each_fault(HY_SEAM_SYS, find_it_lost, NULL);
}
