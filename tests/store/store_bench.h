/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A project folder for each test, stores and runs in it, and children that use
 * them: for the suites of this directory.
 */
#ifndef HY_TESTS_STORE_BENCH_H
#define HY_TESTS_STORE_BENCH_H

#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "store/store.h"

static char project[64];   /* a new folder for each test */
static char temporary[64]; /* and one for $TMPDIR, where a fault may leave something */
static struct hy_err err;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        err = (struct hy_err){0};                                                                                      \
        int ok_rc_ = (call);                                                                                           \
        if (ok_rc_ < 0)                                                                                                \
            fail_msg("%s: %d: %s", #call, ok_rc_, err.text);                                                           \
    } while (0)
#define FAILS(call, want, words)                                                                                       \
    do {                                                                                                               \
        err = (struct hy_err){0};                                                                                      \
        assert_int_equal(call, want);                                                                                  \
        assert_int_equal(err.code, want);                                                                              \
        if (!strstr(err.text, words))                                                                                  \
            fail_msg("'%s' does not say '%s'", err.text, words);                                                       \
    } while (0)

static inline int new_project_in(const char *where)
{
    hy_fault_arm(HY_SEAM_ALLOC, 0);
    hy_fault_arm(HY_SEAM_SYS, 0);
    snprintf(project, sizeof project, "%s/hy-store-XXXXXX", where);
    snprintf(temporary, sizeof temporary, "%s/hy-store-tmp-XXXXXX", where);
    if (!mkdtemp(project) || chmod(project, 0755) < 0 || !mkdtemp(temporary) || chmod(temporary, 0777) < 0)
        return -1;
    return setenv("TMPDIR", temporary, 1);
}

static inline int new_project(void **state)
{
    (void)state;
    return new_project_in("/tmp");
}

/* For thousands of commits, which on a disk would take minutes. */
static inline int new_project_in_memory(void **state)
{
    (void)state;
    return new_project_in("/dev/shm");
}

static inline int no_project(void **state)
{
    (void)state;
    unsetenv("HOPYARD_TEST_FS_TYPE");
    unsetenv("HOPYARD_TEST_STORE_WAIT_MS");
    setenv("XDG_STATE_HOME", HY_NO_STATE_HOME, 1);
    hy_fault_arm(HY_SEAM_ALLOC, 0);
    hy_fault_arm(HY_SEAM_SYS, 0);
    unsetenv("TMPDIR");
    return hy_remove_tree(temporary) == 0 ? hy_remove_tree(project) : -1;
}

static inline char *in_project(const char *name)
{
    return hy_path_in(project, name);
}

static inline struct hy_store *open_store(enum hy_store_mode mode)
{
    struct hy_store *s = NULL;

    OK(hy_store_open(project, mode, &s, &err));
    return s;
}

static inline int add_run(struct hy_store *s, const char *name, int64_t app_run, bool maximize, int64_t *ret)
{
    struct hy_run_row r = {.name = name,
                           .app_id = "local-1",
                           .app_run = app_run,
                           .metric = "acc",
                           .maximize = maximize,
                           .state = HY_RUN_RUNNING,
                           .total = -1,
                           .created = 1};

    return hy_store_run_add(s, &r, ret, &err);
}

static inline struct hy_store *store_with_run(bool maximize, int64_t *ret_run)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);

    OK(add_run(s, NULL, 1, maximize, ret_run));
    OK(hy_store_commit(s, &err));
    return s;
}

static inline int add_trial(struct hy_store *s, int64_t run, int64_t number)
{
    char dir[32];
    struct hy_trial_row t = {
        .number = number, .params = "{\"x\":1}", .dir = dir, .started = 5, .asked_seq = 2 * number};

    snprintf(dir, sizeof dir, "x=%lld", (long long)number);
    return hy_store_trial_add(s, run, &t, NULL, &err);
}

static inline int end_trial(struct hy_store *s, int64_t run, int64_t number, enum hy_trial_state state, double value)
{
    struct hy_trial_row t = {.number = number,
                             .state = state,
                             .has_value = true,
                             .value = value,
                             .ended = 9,
                             .told_seq = 2 * number + 1,
                             .ended_seq = state == HY_TRIAL_RUNNING ? 0 : 2 * number + 1};

    return hy_store_trial_end(s, run, &t, &err);
}

/* One turn of a driver: a trial with its attempt, a value, and the end of both. */
static inline int whole_turn(struct hy_store *s, int64_t run, int64_t number)
{
    struct hy_attempt_row a = {
        .trial = number, .number = 1, .agent = "local", .host = "h", .state = HY_ATTEMPT_RUNNING};
    struct hy_metric_row m = {.trial = number, .attempt = 1, .step = 3, .name = "acc", .value = 0.5};
    int rc = add_trial(s, run, number);

    if (rc == 0)
        rc = hy_store_attempt_add(s, run, &a, &err);
    if (rc == 0)
        rc = hy_store_metric_add(s, run, &m, &err);
    a.state = HY_ATTEMPT_DONE;
    a.detail = "more";
    if (rc == 0)
        rc = hy_store_attempt_end(s, run, &a, &err);
    if (rc == 0)
        rc = end_trial(s, run, number, HY_TRIAL_DONE, 1.0 / (double)number);
    return rc == 0 ? hy_store_commit(s, &err) : rc;
}

static inline int take_counts(void *arg, const struct hy_run_row *run, const struct hy_run_counts *counts)
{
    (void)run;
    *(struct hy_run_counts *)arg = *counts;
    return 0;
}

static inline struct hy_run_counts counts_of(struct hy_store *s, int64_t run)
{
    struct hy_run_counts c = {0};

    OK(hy_store_run_each(s, run, take_counts, &c, &err));
    return c;
}

static inline int count_run(void *arg, const struct hy_run_row *run, const struct hy_run_counts *counts)
{
    (void)run;
    (void)counts;
    ++*(int *)arg;
    return 0;
}

static inline int count_trial(void *arg, const struct hy_trial_row *t)
{
    (void)t;
    ++*(int *)arg;
    return 0;
}

static inline int count_attempt(void *arg, const struct hy_attempt_row *a)
{
    (void)a;
    ++*(int *)arg;
    return 0;
}

static inline int count_metric(void *arg, const struct hy_metric_row *m)
{
    (void)m;
    ++*(int *)arg;
    return 0;
}

static inline int count_replay(void *arg, const struct hy_trial_row *t, int told)
{
    (void)t;
    (void)told;
    ++*(int *)arg;
    return 0;
}

static inline int count_trials(struct hy_store *s, int64_t run)
{
    int n = 0;

    OK(hy_store_trial_each(s, run, 0, HY_TRIALS_BY_NUMBER, 0, 0, count_trial, &n, &err));
    return n;
}

/* Runs `work` in a child and hands back its exit status. In a child, CHECK takes the place of assert. */
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, err.text);                                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static inline pid_t start_child(int (*work)(void *arg), void *arg)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
        _exit(work(arg));
    }
    assert_true(pid > 0);
    return pid;
}

static inline int child_ends(pid_t pid)
{
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void put_file(const char *path, const void *bytes, size_t n)
{
    assert_int_equal(hy_file_write(path, bytes, n, 0644), 0);
}

/* Every field has something in it that could be lost. */
static const struct hy_run_row full_run = {.name = "mn\nist \xff\xfe é",
                                           .app_id = "local-20261115-043012",
                                           .app_run = 3,
                                           .logdir = "/p/Logs/TensorFlow/a/3",
                                           .command = "[\"./train\",\"--lr\",\"{lr}\"]",
                                           .metric = "accuracy",
                                           .maximize = true,
                                           .seed = INT64_MIN,
                                           .versions = "{\"hopyard\":\"0.1\"}",
                                           .git = "abc-dirty",
                                           .spec = "a\0b\xff",
                                           .spec_len = 4,
                                           .state = HY_RUN_RUNNING,
                                           .created = 1700000000123,
                                           .total = 100000};

struct numbers {
    int64_t got[16];
    int n;
};

static inline int take_number(void *arg, const struct hy_trial_row *t)
{
    struct numbers *all = arg;

    all->got[all->n++] = t->number;
    return 0;
}

static inline void check_order(struct hy_store *s, int64_t run, enum hy_trial_order order, int64_t offset,
                               int64_t limit, const char *want)
{
    struct numbers all = {0};
    char text[64] = "";

    OK(hy_store_trial_each(s, run, 0, order, offset, limit, take_number, &all, &err));
    for (int i = 0; i < all.n; i++)
        text[i] = (char)('0' + all.got[i]);
    assert_string_equal(text, want);
}

static inline void check_ended(struct hy_store *s, int64_t run, int64_t after, int64_t until, int64_t limit,
                               const char *want)
{
    struct numbers all = {0};
    char text[64] = "";

    OK(hy_store_ended_each(s, run, after, until, limit, take_number, &all, &err));
    for (int i = 0; i < all.n; i++)
        text[i] = (char)('0' + all.got[i]);
    assert_string_equal(text, want);
}

static inline int commit_and_tell(void *arg)
{
    int pipe_fd = *(int *)arg;
    struct hy_store *s = NULL;
    struct hy_run_counts c = {0};

    CHECK(hy_store_open(project, HY_STORE_WRITE, &s, &err) == 0);
    CHECK(hy_store_run_each(s, 1, take_counts, &c, &err) == 0);
    for (int64_t i = c.done + 1;; i++) {
        CHECK(whole_turn(s, 1, i) == 0);
        CHECK(write(pipe_fd, &i, sizeof i) == sizeof i);
    }
}

/* Lets a writer tell `turns` commits and then kills it a little later. Returns the last it told. */
static inline int64_t kill_writer_after(int turns, long more_ns)
{
    const struct timespec more = {.tv_nsec = more_ns};
    int64_t told = 0, last = 0;
    int fds[2], n = 0;
    pid_t pid;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = start_child(commit_and_tell, &fds[1]);
    close(fds[1]);
    while (n++ < turns && read(fds[0], &told, sizeof told) == sizeof told)
        last = told;
    nanosleep(&more, NULL); /* anywhere within a turn: whichever, the promise holds */
    kill(pid, SIGKILL);
    assert_int_equal(child_ends(pid), 128 + SIGKILL);
    while (read(fds[0], &told, sizeof told) == sizeof told)
        last = told;
    close(fds[0]);
    return last;
}

/* A second project beside the first, to import into. */
static inline struct hy_store *other_store(void)
{
    struct hy_store *s = NULL;

    mkdir(in_project("other"), 0755);
    OK(hy_store_open(in_project("other"), HY_STORE_WRITE, &s, &err));
    return s;
}

static inline int share_none(const void *spec, size_t n, void **ret, size_t *ret_n)
{
    (void)spec;
    (void)n;
    *ret = strdup("shared");
    *ret_n = 6;
    return *ret ? 0 : -ENOMEM;
}

static inline int import_file(struct hy_store *s, const char *path, int64_t *ret_count, struct hy_err *e)
{
    struct hy_imported got = {0};
    int rc = hy_store_import(s, path, share_none, &got, e);

    if (rc == 0)
        *ret_count = got.count;
    return rc;
}

#endif
