/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "store/store.h"

/* ---- what the tests share -------------------------------------------------------- */

static char project[64];   /* a new folder for each test */
static char temporary[64]; /* and one for $TMPDIR, where a fault may leave something */
static struct hy_err err;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        err = (struct hy_err){0};                                                                            \
        int ok_rc_ = (call);                                                                                 \
        if (ok_rc_ < 0)                                                                                      \
            fail_msg("%s: %d: %s", #call, ok_rc_, err.text);                                                 \
    } while (0)
#define FAILS(call, want, words)                                                                             \
    do {                                                                                                     \
        err = (struct hy_err){0};                                                                            \
        assert_int_equal(call, want);                                                                        \
        assert_int_equal(err.code, want);                                                                    \
        if (!strstr(err.text, words))                                                                        \
            fail_msg("'%s' does not say '%s'", err.text, words);                                             \
    } while (0)

static int new_project(void **state)
{
    (void)state;
    hy_fault_arm(HY_SEAM_ALLOC, 0);
    hy_fault_arm(HY_SEAM_SYS, 0);
    strcpy(project, "/tmp/hy-store-XXXXXX");
    strcpy(temporary, "/tmp/hy-store-tmp-XXXXXX");
    if (!mkdtemp(project) || chmod(project, 0755) < 0 || !mkdtemp(temporary) || chmod(temporary, 0777) < 0)
        return -1;
    return setenv("TMPDIR", temporary, 1);
}

static int no_project(void **state)
{
    (void)state;
    unsetenv("HOPYARD_TEST_FS_TYPE");
    unsetenv("HOPYARD_TEST_STORE_WAIT_MS");
    unsetenv("XDG_STATE_HOME");
    hy_fault_arm(HY_SEAM_ALLOC, 0);
    hy_fault_arm(HY_SEAM_SYS, 0);
    unsetenv("TMPDIR");
    return hy_remove_tree(temporary) == 0 ? hy_remove_tree(project) : -1;
}

static char *in_project(const char *name)
{
    static char paths[4][200];
    static int turn;
    char *path = paths[turn++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", project, name);
    return path;
}

static struct hy_store *open_store(enum hy_store_mode mode)
{
    struct hy_store *s = NULL;

    OK(hy_store_open(project, mode, &s, &err));
    return s;
}

static int add_run(struct hy_store *s, const char *name, int64_t app_run, bool maximize, int64_t *ret)
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

static struct hy_store *store_with_run(bool maximize, int64_t *ret_run)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);

    OK(add_run(s, NULL, 1, maximize, ret_run));
    OK(hy_store_commit(s, &err));
    return s;
}

static int add_trial(struct hy_store *s, int64_t run, int64_t number)
{
    char dir[32];
    struct hy_trial_row t = {
        .number = number, .params = "{\"x\":1}", .dir = dir, .started = 5, .asked_seq = 2 * number};

    snprintf(dir, sizeof dir, "x=%lld", (long long)number);
    return hy_store_trial_add(s, run, &t, NULL, &err);
}

static int end_trial(struct hy_store *s, int64_t run, int64_t number, enum hy_trial_state state, double value)
{
    struct hy_trial_row t = {.number = number,
                             .state = state,
                             .has_value = true,
                             .value = value,
                             .ended = 9,
                             .told_seq = 2 * number + 1};

    return hy_store_trial_end(s, run, &t, &err);
}

/* One turn of a driver: a trial with its attempt, a value, and the end of both. */
static int whole_turn(struct hy_store *s, int64_t run, int64_t number)
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
    if (rc == 0)
        rc = hy_store_attempt_end(s, run, &a, &err);
    if (rc == 0)
        rc = end_trial(s, run, number, HY_TRIAL_DONE, 1.0 / (double)number);
    return rc == 0 ? hy_store_commit(s, &err) : rc;
}

static int take_counts(void *arg, const struct hy_run_row *run, const struct hy_run_counts *counts)
{
    (void)run;
    *(struct hy_run_counts *)arg = *counts;
    return 0;
}

static struct hy_run_counts counts_of(struct hy_store *s, int64_t run)
{
    struct hy_run_counts c = {0};

    OK(hy_store_run_each(s, run, take_counts, &c, &err));
    return c;
}

static int count_run(void *arg, const struct hy_run_row *run, const struct hy_run_counts *counts)
{
    (void)run;
    (void)counts;
    ++*(int *)arg;
    return 0;
}

static int count_trial(void *arg, const struct hy_trial_row *t)
{
    (void)t;
    ++*(int *)arg;
    return 0;
}

static int count_attempt(void *arg, const struct hy_attempt_row *a)
{
    (void)a;
    ++*(int *)arg;
    return 0;
}

static int count_metric(void *arg, const struct hy_metric_row *m)
{
    (void)m;
    ++*(int *)arg;
    return 0;
}

static int count_replay(void *arg, const struct hy_trial_row *t, int told)
{
    (void)t;
    (void)told;
    ++*(int *)arg;
    return 0;
}

static int count_trials(struct hy_store *s, int64_t run)
{
    int n = 0;

    OK(hy_store_trial_each(s, run, 0, HY_TRIALS_BY_NUMBER, 0, 0, count_trial, &n, &err));
    return n;
}

/* Runs `work` in a child and hands back its exit status. In a child, CHECK takes the place of assert. */
#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, err.text);                        \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

static pid_t start_child(int (*work)(void *arg), void *arg)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
        _exit(work(arg));
    }
    assert_true(pid > 0);
    return pid;
}

static int child_ends(pid_t pid)
{
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Root may write anywhere; what a reader may do is tried as somebody else. */
static int become_nobody(void)
{
    if (getuid() != 0)
        return 0;
    return setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0 ? 0 : -1;
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s", message);
    sqlite3_close(db);
}

static void put_file(const char *path, const void *bytes, size_t n)
{
    assert_int_equal(hy_file_write(path, bytes, n, 0644), 0);
}

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

/* ---- runs ------------------------------------------------------------------------ */

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

static int same_run(void *arg, const struct hy_run_row *r, const struct hy_run_counts *counts)
{
    assert_int_equal(r->id, *(int64_t *)arg);
    assert_string_equal(r->name, full_run.name);
    assert_string_equal(r->app_id, full_run.app_id);
    assert_int_equal(r->app_run, full_run.app_run);
    assert_string_equal(r->logdir, full_run.logdir);
    assert_string_equal(r->command, full_run.command);
    assert_string_equal(r->metric, full_run.metric);
    assert_true(r->maximize);
    assert_true(r->seed == full_run.seed);
    assert_string_equal(r->versions, full_run.versions);
    assert_string_equal(r->git, full_run.git);
    assert_int_equal(r->spec_len, full_run.spec_len);
    assert_memory_equal(r->spec, full_run.spec, full_run.spec_len);
    assert_int_equal(r->created, full_run.created);
    assert_int_equal(r->total, full_run.total);
    assert_int_equal(counts->best_trial, 0);
    if (r->state == HY_RUN_FAILED) {
        assert_string_equal(r->message, "why\n");
        assert_true(r->ended > 0);
    } else {
        assert_null(r->message);
        assert_int_equal(r->ended, 0);
    }
    return 0;
}

static void test_a_run_comes_back_as_it_was_put(void **state)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);
    int64_t id = 0;

    (void)state;
    OK(hy_store_run_add(s, &full_run, &id, &err));
    OK(hy_store_run_each(s, id, same_run, &id, &err));
    OK(hy_store_run_state(s, id, HY_RUN_FAILED, "why\n", &err));
    OK(hy_store_commit(s, &err));
    hy_store_close(s);
    s = open_store(HY_STORE_READ);
    OK(hy_store_run_each(s, 0, same_run, &id, &err));
    FAILS(hy_store_run_each(s, 77, same_run, &id, &err), -ENOENT, "no run 77");
    hy_store_close(s);
}

static void test_the_same_run_cannot_be_added_twice_and_the_turn_goes_on(void **state)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);
    int64_t a, b;

    (void)state;
    OK(add_run(s, NULL, 1, true, &a));
    FAILS(add_run(s, NULL, 1, true, &b), -EEXIST, "run 1 of 'local-1' is in the store already");
    OK(add_run(s, NULL, 2, true, &b));
    OK(hy_store_commit(s, &err));
    assert_int_equal(counts_of(s, b).running, 0);
    FAILS(hy_store_run_state(s, 9, HY_RUN_DONE, NULL, &err), -ENOENT, "no run 9");
    hy_store_close(s);
}

static void test_runs_are_found_by_number_name_or_as_the_newest(void **state)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);
    int64_t id[6], found;

    (void)state;
    FAILS(hy_store_run_find(s, "x", &found, &err), -ENOENT, "no runs yet in '/tmp/hy-store-");
    OK(add_run(s, "a", 1, true, &id[1]));
    FAILS(hy_store_run_find(s, "x", &found, &err), -ENOENT, "no run 'x' here; the newest is 1 (a)");
    OK(add_run(s, "5", 2, true, &id[2]));
    OK(add_run(s, "a", 3, true, &id[3]));
    OK(add_run(s, "odd\nname", 4, true, &id[4]));
    OK(hy_store_run_find(s, "a", &found, &err));
    assert_int_equal(found, id[3]);
    OK(hy_store_run_find(s, "1", &found, &err));
    assert_int_equal(found, id[1]);
    OK(hy_store_run_find(s, "5", &found, &err)); /* no such number, but a name */
    assert_int_equal(found, id[2]);
    OK(hy_store_run_find(s, NULL, &found, &err));
    assert_int_equal(found, id[4]);
    OK(hy_store_run_find(s, "", &found, &err));
    assert_int_equal(found, id[4]);
    FAILS(hy_store_run_find(s, "99999999999999999999", &found, &err), -ENOENT,
          "the newest are 4 (odd\\nname), 3 (a), 2 (5)");
    FAILS(hy_store_run_find(s, "\x1b[2J", &found, &err), -ENOENT, "no run '\\x1b[2J' here");
    hy_store_close(s);
}

static void test_a_removed_run_leaves_nothing_and_its_number_is_not_used_again(void **state)
{
    int64_t one, two, three, left = -1;
    struct hy_store *s = store_with_run(true, &one);
    sqlite3 *db;
    sqlite3_stmt *q;

    (void)state;
    OK(add_run(s, NULL, 2, true, &two));
    OK(whole_turn(s, one, 1));
    OK(whole_turn(s, two, 1));
    OK(hy_store_run_remove(s, two, &err));
    FAILS(hy_store_run_remove(s, two, &err), -ENOENT, "no run 2");
    OK(add_run(s, NULL, 2, true, &three));
    assert_int_equal(three, 3);
    OK(hy_store_commit(s, &err));
    assert_int_equal(counts_of(s, one).done, 1);
    hy_store_close(s);
    assert_int_equal(sqlite3_open(in_project(".hopyard/store.db"), &db), SQLITE_OK);
    sqlite3_prepare_v2(
        db,
        "SELECT (SELECT count(*) FROM trials WHERE run = 2) + (SELECT count(*) FROM attempts WHERE run = 2)"
        " + (SELECT count(*) FROM metrics WHERE run = 2) + (SELECT count(*) FROM tallies WHERE run = 2)",
        -1, &q, NULL);
    if (sqlite3_step(q) == SQLITE_ROW)
        left = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    sqlite3_close(db);
    assert_int_equal(left, 0);
}

static void test_states_have_names(void **state)
{
    (void)state;
    assert_string_equal(hy_run_state_name(HY_RUN_STOPPED), "stopped");
    assert_string_equal(hy_trial_state_name(HY_TRIAL_STOPPED), "stopped");
    assert_string_equal(hy_attempt_state_name(HY_ATTEMPT_LOST), "lost");
    assert_string_equal(hy_run_state_name((enum hy_run_state)99), "unknown");
    assert_string_equal(hy_trial_state_name((enum hy_trial_state) - 1), "unknown");
}

/* ---- trials ---------------------------------------------------------------------- */

static int same_trial(void *arg, const struct hy_trial_row *t)
{
    const struct hy_trial_row *want = arg;

    assert_int_equal(t->number, want->number);
    assert_string_equal(t->params, want->params);
    assert_string_equal(t->dir, want->dir);
    assert_int_equal(t->state, want->state);
    assert_int_equal(t->has_value, want->has_value);
    if (want->has_value)
        assert_true(t->value == want->value || (isnan(t->value) && isnan(want->value)));
    if (want->message)
        assert_string_equal(t->message, want->message);
    else
        assert_null(t->message);
    assert_int_equal(t->attempts, want->attempts);
    assert_int_equal(t->started, want->started);
    assert_int_equal(t->ended, want->ended);
    assert_int_equal(t->asked_seq, want->asked_seq);
    assert_int_equal(t->told_seq, want->told_seq);
    return 0;
}

static void test_a_trial_comes_back_as_it_was_put_whatever_its_bytes_are(void **state)
{
    static const double values[] = {0.1, -0.0, 5e-324, 1.7976931348623157e308, INFINITY, -INFINITY, NAN, 3};
    struct hy_attempt_row a = {.trial = 1, .number = 2};
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    (void)state;
    for (size_t i = 0; i < HY_COUNT(values); i++) {
        char dir[20];
        struct hy_trial_row t = {.number = (int64_t)i + 1,
                                 .params = "{\"a\":\"\n\t\xc3\x28\xff\"}",
                                 .dir = dir,
                                 .started = 4,
                                 .asked_seq = 7,
                                 .state = HY_TRIAL_RUNNING};

        snprintf(dir, sizeof dir, "\xff\n'\"%zu", i);
        OK(hy_store_trial_add(s, run, &t, NULL, &err));
        OK(hy_store_trial_each(s, run, t.number, 0, 0, 0, same_trial, &t, &err));
        a.trial = t.number;
        OK(hy_store_attempt_add(s, run, &a, &err));
        t.state = HY_TRIAL_DONE;
        t.has_value = true;
        t.value = values[i];
        t.message = "\xf0\x28 bad\nbytes";
        t.attempts = 2;
        t.ended = INT64_MAX;
        t.told_seq = 8;
        OK(hy_store_trial_end(s, run, &t, &err));
        OK(hy_store_trial_each(s, run, t.number, 0, 0, 0, same_trial, &t, &err));
    }
    OK(hy_store_commit(s, &err));
    FAILS(hy_store_trial_each(s, run, 99, 0, 0, 0, same_trial, NULL, &err), -ENOENT, "has no trial 99");
    FAILS(add_trial(s, run, 1), -EEXIST, "has a trial 1 already");
    FAILS(end_trial(s, run, 99, HY_TRIAL_DONE, 1), -ENOENT, "has no trial 99");
    FAILS(end_trial(s, run, 1, (enum hy_trial_state)9, 1), -EINVAL, "refuses a value");
    hy_store_close(s);
}

static void test_a_taken_folder_name_gets_the_trials_number(void **state)
{
    static const char *const names[][2] = {
        {"x", "x"}, {"x", "x~2"}, {"x~4", "x~4"}, {"x", "x~4~4"}, {"y", "y"}};
    int64_t run, other;
    struct hy_store *s = store_with_run(true, &run);
    struct hy_trial_row t = {.number = 1, .dir = "x"};
    char *dir;

    (void)state;
    for (size_t i = 0; i < HY_COUNT(names); i++) {
        t.number = (int64_t)i + 1;
        t.dir = names[i][0];
        OK(hy_store_trial_add(s, run, &t, &dir, &err));
        assert_string_equal(dir, names[i][1]);
        free(dir);
    }
    OK(add_run(s, NULL, 2, true, &other)); /* another run's folders are elsewhere */
    t.dir = "x";
    OK(hy_store_trial_add(s, other, &t, &dir, &err));
    assert_string_equal(dir, "x");
    free(dir);
    hy_store_close(s);
}

static void check_best(struct hy_store *s, int64_t run, int64_t number, double value)
{
    struct hy_run_counts c = counts_of(s, run);

    assert_int_equal(c.best_trial, number);
    if (number)
        assert_true(c.best_value == value);
}

static void best_in_direction(bool maximize)
{
    double sign = maximize ? 1 : -1;
    int64_t run;
    struct hy_store *s = store_with_run(maximize, &run);
    struct hy_run_counts c;

    for (int64_t i = 1; i <= 8; i++)
        OK(add_trial(s, run, i));
    check_best(s, run, 0, 0);
    OK(end_trial(s, run, 1, HY_TRIAL_FAILED, sign * 100));
    OK(end_trial(s, run, 2, HY_TRIAL_DONE, NAN));
    OK(end_trial(s, run, 3, HY_TRIAL_STOPPED, sign * 50));
    check_best(s, run, 0, 0);
    OK(end_trial(s, run, 4, HY_TRIAL_DONE, -sign * INFINITY));
    check_best(s, run, 4, -sign * INFINITY);
    OK(end_trial(s, run, 6, HY_TRIAL_DONE, sign * 2));
    OK(end_trial(s, run, 5, HY_TRIAL_DONE, sign * 2)); /* of equals the first */
    check_best(s, run, 5, sign * 2);
    OK(end_trial(s, run, 7, HY_TRIAL_DONE, sign * 3));
    check_best(s, run, 7, sign * 3);
    OK(end_trial(s, run, 7, HY_TRIAL_RUNNING, 0)); /* a resumed one takes its value back */
    OK(hy_store_commit(s, &err));
    hy_store_close(s);
    s = open_store(HY_STORE_READ);
    check_best(s, run, 5, sign * 2);
    c = counts_of(s, run);
    assert_int_equal(c.running, 2);
    assert_int_equal(c.done, 4);
    assert_int_equal(c.failed, 1);
    assert_int_equal(c.stopped, 1);
    hy_store_close(s);
}

static void test_the_best_is_the_greatest_of_a_run_that_maximizes(void **state)
{
    (void)state;
    best_in_direction(true);
}

static void test_the_best_is_the_least_of_a_run_that_minimizes(void **state)
{
    (void)state;
    best_in_direction(false);
}

struct numbers {
    int64_t got[16];
    int n;
};

static int take_number(void *arg, const struct hy_trial_row *t)
{
    struct numbers *all = arg;

    all->got[all->n++] = t->number;
    return 0;
}

static void check_order(struct hy_store *s, int64_t run, enum hy_trial_order order, int64_t offset,
                        int64_t limit, const char *want)
{
    struct numbers all = {0};
    char text[64] = "";

    OK(hy_store_trial_each(s, run, 0, order, offset, limit, take_number, &all, &err));
    for (int i = 0; i < all.n; i++)
        text[i] = (char)('0' + all.got[i]);
    assert_string_equal(text, want);
}

static void test_trials_are_listed_in_order_and_in_pages(void **state)
{
    static const double values[] = {0, 5, NAN, 7, 6, 5};
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    (void)state;
    for (int64_t i = 1; i <= 6; i++)
        OK(add_trial(s, run, i));
    for (int64_t i = 1; i <= 5; i++)
        OK(end_trial(s, run, i, i == 4 ? HY_TRIAL_FAILED : HY_TRIAL_DONE, values[i]));
    /* done with a value: 5 -> 5, 3 -> 7, 1 -> 5; without: 2 (NaN), 4 (failed), 6 (running) */
    check_order(s, run, HY_TRIALS_BY_NUMBER, 0, 0, "123456");
    check_order(s, run, HY_TRIALS_BY_NUMBER, 2, 3, "345");
    check_order(s, run, HY_TRIALS_BY_NUMBER, 9, 3, "");
    check_order(s, run, HY_TRIALS_BY_VALUE, 0, 0, "315246");
    for (int64_t offset = 0; offset < 7; offset++)
        for (int64_t limit = 1; limit < 7; limit++) {
            static const char all[] = "315246";
            char want[8] = "";

            if (offset < 6)
                strncat(want, all + offset, (size_t)limit);
            check_order(s, run, HY_TRIALS_BY_VALUE, offset, limit, want);
        }
    hy_store_close(s);
}

static int take_replay(void *arg, const struct hy_trial_row *t, int told)
{
    char *text = arg;

    sprintf(text + strlen(text), "%s%lld ", told ? "t" : "a", (long long)t->number);
    return t->number == 9;
}

static void test_replay_gives_asks_and_tells_in_their_order(void **state)
{
    static const struct {
        int64_t asked, told;
    } seqs[] = {{1, 6}, {2, 4}, {3, 0}, {5, 7}};
    char text[100] = "";
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    (void)state;
    for (size_t i = 0; i < HY_COUNT(seqs); i++) {
        struct hy_trial_row t = {.number = (int64_t)i + 1,
                                 .asked_seq = seqs[i].asked,
                                 .told_seq = seqs[i].told,
                                 .state = HY_TRIAL_DONE};

        OK(hy_store_trial_add(s, run, &t, NULL, &err));
        if (seqs[i].told)
            OK(hy_store_trial_end(s, run, &t, &err));
    }
    OK(hy_store_replay(s, run, take_replay, text, &err));
    assert_string_equal(text, "a1 a2 a3 t2 a4 t1 t4 ");
    OK(hy_store_trial_add(s, run, &(struct hy_trial_row){.number = 9, .asked_seq = 8}, NULL, &err));
    assert_int_equal(hy_store_replay(s, run, take_replay, text, &err), 1); /* the callback's answer ends it */
    hy_store_close(s);
}

/* ---- attempts and metrics -------------------------------------------------------- */

static int same_attempt(void *arg, const struct hy_attempt_row *a)
{
    const struct hy_attempt_row *want = arg;

    assert_int_equal(a->trial, want->trial);
    assert_int_equal(a->number, want->number);
    assert_string_equal(a->agent, want->agent);
    assert_string_equal(a->host, want->host);
    assert_int_equal(a->state, want->state);
    assert_int_equal(a->exit_code, want->exit_code);
    assert_string_equal(a->message, want->message);
    assert_int_equal(a->started, want->started);
    assert_int_equal(a->ended, want->ended);
    assert_int_equal(a->cpu_ms, want->cpu_ms);
    assert_int_equal(a->peak_memory, want->peak_memory);
    return 0;
}

static void test_attempts_are_kept_with_their_ends(void **state)
{
    struct hy_attempt_row a = {.trial = 1,
                               .number = 1,
                               .agent = "a",
                               .host = "h\n",
                               .state = HY_ATTEMPT_RUNNING,
                               .started = 3,
                               .message = "m"};
    int64_t run;
    int n = 0;
    struct hy_store *s = store_with_run(true, &run);

    (void)state;
    FAILS(hy_store_attempt_add(s, run, &a, &err), -ENOENT, "has no trial 1");
    OK(add_trial(s, run, 1));
    OK(add_trial(s, run, 2));
    OK(hy_store_attempt_add(s, run, &a, &err));
    FAILS(hy_store_attempt_add(s, run, &a, &err), -EEXIST, "has an attempt 1 already");
    OK(hy_store_attempt_each(s, run, 1, same_attempt, &a, &err));
    a.state = HY_ATTEMPT_LOST;
    a.exit_code = -9;
    a.message = "killed";
    a.ended = 8;
    a.cpu_ms = 12;
    a.peak_memory = INT64_C(5) << 32;
    OK(hy_store_attempt_end(s, run, &a, &err));
    OK(hy_store_attempt_each(s, run, 1, same_attempt, &a, &err));
    a.number = 2;
    FAILS(hy_store_attempt_end(s, run, &a, &err), -ENOENT, "has no attempt 2");
    a.trial = 2;
    a.number = 1;
    OK(hy_store_attempt_add(s, run, &a, &err));
    OK(hy_store_attempt_each(s, run, 0, count_attempt, &n, &err));
    assert_int_equal(n, 2);
    hy_store_close(s);
}

static int same_metric(void *arg, const struct hy_metric_row *m)
{
    const struct hy_metric_row *want = (*(const struct hy_metric_row **)arg)++;

    assert_int_equal(m->trial, want->trial);
    assert_int_equal(m->attempt, want->attempt);
    assert_int_equal(m->step, want->step);
    assert_string_equal(m->name, want->name);
    assert_true(m->value == want->value || (isnan(m->value) && isnan(want->value)));
    assert_int_equal(m->time, want->time);
    return 0;
}

static void test_metrics_are_kept_in_the_order_they_came(void **state)
{
    static const struct hy_metric_row rows[] = {
        {1, 1, 5, "loss\nnext=\"line\"", NAN, 4},
        {1, 1, 2, "loss", INFINITY, 4},
        {1, 2, -1, "\xff", -1e-300, 3},
        {2, 1, 0, "loss", 0, 1},
    };
    const struct hy_metric_row *next = rows;
    int64_t run;
    int n = 0;
    struct hy_store *s = store_with_run(true, &run);

    (void)state;
    OK(hy_store_metric_add(s, run, &rows[3], &err));
    for (int i = 0; i < 3; i++)
        OK(hy_store_metric_add(s, run, &rows[i], &err));
    OK(hy_store_metric_each(s, run, 1, same_metric, &next, &err));
    assert_ptr_equal(next, rows + 3);
    next = rows;
    OK(hy_store_metric_each(s, run, 0, same_metric, &next, &err));
    assert_ptr_equal(next, rows + 4);
    OK(hy_store_metric_each(s, run, 3, count_metric, &n, &err));
    assert_int_equal(n, 0);
    hy_store_close(s);
}

/* ---- the turn -------------------------------------------------------------------- */

static void test_nothing_is_seen_before_it_is_committed(void **state)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run), *reader = open_store(HY_STORE_READ);

    (void)state;
    OK(add_trial(s, run, 1));
    assert_int_equal(count_trials(s, run), 1);
    assert_int_equal(count_trials(reader, run), 0); /* nor does the reader wait */
    OK(hy_store_commit(s, &err));
    assert_int_equal(count_trials(reader, run), 1);
    OK(hy_store_commit(s, &err)); /* an empty turn is fine */
    OK(add_trial(s, run, 2));
    hy_store_close(s);
    assert_int_equal(count_trials(reader, run), 1);
    FAILS(add_trial(reader, run, 3), -EROFS, "open for reading only");
    FAILS(hy_store_run_state(reader, run, HY_RUN_DONE, NULL, &err), -EROFS, "open for reading only");
    hy_store_close(reader);
}

static void test_a_commit_returns_when_the_disk_has_it(void **state)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    (void)state;
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

static int look_inside(void *arg, const struct hy_trial_row *t)
{
    struct hy_store *s = ((void **)arg)[0];
    int64_t run = *(int64_t *)((void **)arg)[1];

    assert_int_equal(count_trials(s, run), 3); /* the same walk within itself */
    return end_trial(s, run, t->number, HY_TRIAL_DONE, 1);
}

static void test_a_callback_may_use_the_store(void **state)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    (void)state;
    for (int64_t i = 1; i <= 3; i++)
        OK(add_trial(s, run, i));
    OK(hy_store_commit(s, &err));
    OK(hy_store_trial_each(s, run, 0, HY_TRIALS_BY_NUMBER, 0, 0, look_inside, (void *[]){s, &run}, &err));
    OK(hy_store_commit(s, &err));
    assert_int_equal(counts_of(s, run).done, 3);
    hy_store_close(s);
}

static void test_a_change_that_fails_takes_its_whole_turn_with_it(void **state)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    (void)state;
    OK(add_trial(s, run, 1));
    FAILS(add_trial(s, 99, 1), -ENOENT, "no run 99"); /* its run was removed under it */
    FAILS(add_trial(s, run, 2), -ENOENT, "no run 99");
    FAILS(hy_store_commit(s, &err), -ENOENT, "no run 99");
    assert_int_equal(count_trials(s, run), 0);
    OK(whole_turn(s, run, 1));
    assert_int_equal(counts_of(s, run).done, 1);
    hy_store_close(s);
}

/* ---- writers --------------------------------------------------------------------- */

static int write_a_run(void *arg)
{
    struct hy_store *s = NULL;
    int64_t run;

    CHECK(hy_store_open(project, HY_STORE_WRITE, &s, &err) == 0);
    CHECK(add_run(s, NULL, (int64_t)(intptr_t)arg, true, &run) == 0);
    for (int64_t i = 1; i <= 150; i++)
        CHECK(whole_turn(s, run, i) == 0);
    hy_store_close(s);
    return 0;
}

static void test_writers_of_several_runs_never_find_the_store_locked(void **state)
{
    pid_t writers[3];
    struct hy_store *s;

    (void)state;
    for (intptr_t i = 0; i < 3; i++) /* the first of them makes the store, the others wait for it */
        writers[i] = start_child(write_a_run, (void *)(i + 1));
    for (int i = 0; i < 3; i++)
        assert_int_equal(child_ends(writers[i]), 0);
    s = open_store(HY_STORE_READ);
    for (int64_t run = 1; run <= 3; run++) {
        assert_int_equal(counts_of(s, run).done, 150);
        assert_int_equal(count_trials(s, run), 150);
    }
    hy_store_close(s);
}

static void test_a_store_in_use_is_waited_for_then_refused(void **state)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run), *second, *third = NULL;

    (void)state;
    setenv("HOPYARD_TEST_STORE_WAIT_MS", "30", 1);
    second = open_store(HY_STORE_WRITE);
    OK(add_trial(s, run, 1));
    FAILS(add_trial(second, run, 2), -EBUSY, "is in use");
    FAILS(hy_store_commit(second, &err), -EBUSY, "is in use");
    FAILS(hy_store_open(project, HY_STORE_WRITE, &third, &err), -EBUSY, "is in use");
    OK(hy_store_commit(s, &err));
    OK(add_trial(second, run, 2));
    OK(hy_store_commit(second, &err));
    assert_int_equal(count_trials(s, run), 2);
    hy_store_close(second);
    hy_store_close(s);
}

static int commit_and_tell(void *arg)
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
static int64_t kill_writer_after(int turns, long more_ns)
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

static void test_what_was_committed_survives_a_kill_at_any_moment(void **state)
{
    int64_t run, last = 0;
    struct hy_rng rng;

    (void)state;
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

static void test_every_descriptor_closes_on_exec(void **state)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run), *reader = open_store(HY_STORE_READ);
    int lock = hy_store_run_lock(s, run, &err), seen = 0;
    char path[64], where[200];

    (void)state;
    assert_int_equal(count_trials(reader, run), 0);
    for (int fd = 3; fd < 256; fd++) {
        ssize_t n;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        n = readlink(path, where, sizeof where - 1);
        if (n <= 0 || strncmp(where, project, strlen(project)) != 0)
            continue;
        seen++;
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    }
    assert_true(seen >= 5); /* two stores, two locks, -wal, -shm */
    close(lock);
    hy_store_close(reader);
    hy_store_close(s);
}

/* ---- readers --------------------------------------------------------------------- */

static void test_a_reader_says_when_there_is_nothing_yet(void **state)
{
    struct hy_store *s = NULL;

    (void)state;
    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -ENOENT, "no runs yet in '/tmp/hy-store-");
    assert_non_null(strstr(err.text, "': start one with `hopyard run`"));
    assert_int_equal(access(in_project(".hopyard"), F_OK), -1); /* and makes nothing */
    assert_int_equal(mkdir(in_project(".hopyard"), 0755), 0);
    put_file(in_project(".hopyard/store.db"), "", 0);
    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -ENOENT, "no runs yet");
    FAILS(hy_store_open(in_project("missing"), HY_STORE_READ, &s, &err), -ENOENT, "cannot use '");
    FAILS(hy_store_open(in_project("missing"), HY_STORE_WRITE, &s, &err), -ENOENT, "cannot use '");
    put_file(in_project("file"), "", 0);
    FAILS(hy_store_open(in_project("file"), HY_STORE_WRITE, &s, &err), -ENOTDIR, "is not a folder");
}

static int read_as_nobody(void *arg)
{
    struct hy_store *s = NULL;
    int n = 0, runs = 0;

    CHECK(become_nobody() == 0);
    CHECK(hy_store_open(project, HY_STORE_READ, &s, &err) == 0);
    CHECK(hy_store_run_each(s, 0, count_run, &runs, &err) == 0);
    CHECK(hy_store_trial_each(s, 1, 0, HY_TRIALS_BY_VALUE, 0, 0, count_trial, &n, &err) == 0);
    CHECK(runs == 1);
    CHECK(n == *(int *)arg);
    hy_store_close(s);
    return 0;
}

/* Reads as one who may not write there, with all files, and with each of them missing. */
static void test_a_store_is_for_its_owners_eyes_only(void **state)
{
    int64_t run;
    struct stat st;

    (void)state;
    hy_store_close(store_with_run(true, &run));
    assert_int_equal(stat(in_project(".hopyard"), &st), 0);
    assert_int_equal(st.st_mode & 077, 0); /* it holds the user's environment */
}

/* Whoever wants others to read it says so. */
static void share(void)
{
    assert_int_equal(chmod(in_project(".hopyard"), 0755), 0);
}

static void test_a_reader_needs_no_right_to_write(void **state)
{
    int64_t run;
    int trials = 3;
    struct hy_store *s = store_with_run(true, &run);

    (void)state;
    share();
    for (int64_t i = 1; i <= 3; i++)
        OK(whole_turn(s, run, i));
    if (getuid() != 0)
        assert_int_equal(chmod(in_project(".hopyard"), 0555), 0);
    assert_int_equal(child_ends(start_child(read_as_nobody, &trials)), 0); /* beside a writer */
    hy_store_close(s);
    assert_int_equal(child_ends(start_child(read_as_nobody, &trials)), 0); /* after it */
    chmod(in_project(".hopyard"), 0755);
    unlink(in_project(".hopyard/store.db-shm"));
    unlink(in_project(".hopyard/store.db-wal"));
    if (getuid() != 0)
        assert_int_equal(chmod(in_project(".hopyard"), 0555), 0);
    assert_int_equal(child_ends(start_child(read_as_nobody, &trials)), 0);
    chmod(in_project(".hopyard"), 0755);
    s = open_store(HY_STORE_READ); /* as one who may write, too */
    assert_int_equal(count_trials(s, run), 3);
    hy_store_close(s);
}

static void test_a_reader_without_rights_reads_what_a_killed_writer_left(void **state)
{
    int64_t run;
    struct hy_store *s;
    int trials;

    (void)state;
    hy_store_close(store_with_run(true, &run));
    share();
    trials = (int)kill_writer_after(5, 0);
    unlink(in_project(".hopyard/store.db-shm")); /* what was committed is in the -wal alone */
    s = open_store(HY_STORE_READ);
    trials = (int)counts_of(s, run).done;
    hy_store_close(s);
    assert_true(trials >= 5);
    unlink(in_project(".hopyard/store.db-shm"));
    if (getuid() != 0)
        assert_int_equal(chmod(in_project(".hopyard"), 0555), 0);
    assert_int_equal(child_ends(start_child(read_as_nobody, &trials)), 0);
    chmod(in_project(".hopyard"), 0755);
}

static int write_as_nobody(void *arg)
{
    struct hy_store *s = NULL;
    int rc;

    (void)arg;
    CHECK(become_nobody() == 0);
    rc = hy_store_open(project, HY_STORE_WRITE, &s, &err);
    CHECK(rc == -EACCES);
    CHECK(strstr(err.text, project) && strstr(err.text, "writ"));
    return 0;
}

static void test_a_folder_that_is_not_writable_is_said_so(void **state)
{
    int64_t run;

    (void)state;
    assert_int_equal(chmod(project, 0555), 0);
    assert_int_equal(child_ends(start_child(write_as_nobody, NULL)), 0); /* no .hopyard yet */
    assert_int_equal(chmod(project, 0755), 0);
    hy_store_close(store_with_run(true, &run));
    assert_int_equal(chmod(in_project(".hopyard"), 0555), 0);
    assert_int_equal(chmod(in_project(".hopyard/store.lock"), 0444), 0);
    assert_int_equal(child_ends(start_child(write_as_nobody, NULL)), 0);
    assert_int_equal(chmod(in_project(".hopyard/store.lock"), 0666), 0);
    assert_int_equal(chmod(in_project(".hopyard/store.db"), 0444), 0);
    assert_int_equal(child_ends(start_child(write_as_nobody, NULL)), 0);
    assert_int_equal(chmod(in_project(".hopyard"), 0755), 0);
}

/* ---- formats --------------------------------------------------------------------- */

/* What format 1 was, for ever: not taken from the code that is tested. */
static const char format_1[] =
    "PRAGMA application_id = 0x686f7079; PRAGMA user_version = 1; PRAGMA journal_mode = WAL;"
    "CREATE TABLE runs(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, app_id TEXT NOT NULL, app_run "
    "INTEGER NOT NULL,"
    " logdir TEXT, command TEXT, metric TEXT, maximize INTEGER NOT NULL, seed INTEGER NOT NULL, versions "
    "TEXT, git TEXT,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4), message TEXT, created INTEGER NOT NULL,"
    " ended INTEGER NOT NULL, total INTEGER NOT NULL, spec BLOB) STRICT;"
    "CREATE UNIQUE INDEX runs_app ON runs(app_id, app_run);"
    "CREATE TABLE tallies(run INTEGER PRIMARY KEY, running INTEGER NOT NULL, done INTEGER NOT NULL,"
    " failed INTEGER NOT NULL, stopped INTEGER NOT NULL) STRICT;"
    "CREATE TABLE trials(run INTEGER NOT NULL, number INTEGER NOT NULL, params TEXT, dir TEXT,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4), value ANY, message TEXT, attempts INTEGER NOT "
    "NULL,"
    " started INTEGER NOT NULL, ended INTEGER NOT NULL, asked_seq INTEGER NOT NULL, told_seq INTEGER NOT "
    "NULL,"
    " PRIMARY KEY (run, number)) STRICT, WITHOUT ROWID;"
    "CREATE UNIQUE INDEX trials_dir ON trials(run, dir);"
    "CREATE TABLE attempts(run INTEGER NOT NULL, trial INTEGER NOT NULL, number INTEGER NOT NULL, agent "
    "TEXT, host TEXT,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5), exit_code INTEGER NOT NULL, message TEXT,"
    " started INTEGER NOT NULL, ended INTEGER NOT NULL, cpu_ms INTEGER NOT NULL, peak_memory INTEGER NOT "
    "NULL,"
    " PRIMARY KEY (run, trial, number)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE metrics(run INTEGER NOT NULL, trial INTEGER NOT NULL, seq INTEGER NOT NULL, attempt "
    "INTEGER NOT NULL,"
    " step INTEGER NOT NULL, name TEXT NOT NULL, value ANY, time INTEGER NOT NULL,"
    " PRIMARY KEY (run, trial, seq)) STRICT, WITHOUT ROWID;"
    "INSERT INTO runs VALUES (1,'old','app',1,NULL,NULL,'acc',1,7,NULL,NULL,1,NULL,1,0,-1,x'00ff');"
    "INSERT INTO tallies VALUES (1,1,2,1,0);"
    "INSERT INTO trials VALUES (1,1,'{}','a',2,0.5,NULL,1,1,2,1,2),(1,2,'{}','b',2,0.75,NULL,1,1,2,3,4),"
    " (1,3,'{}','c',3,0.9,'x',1,1,2,5,6),(1,4,'{}','d',1,NULL,NULL,1,1,0,7,0);";

static void make_format_1(const char *path)
{
    run_sql(path, format_1);
}

static int64_t pragma_of(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *q;
    int64_t value = -1;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) == SQLITE_OK && sqlite3_step(q) == SQLITE_ROW)
        value = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    sqlite3_close(db);
    return value;
}

static void check_format_1_contents(struct hy_store *s)
{
    struct hy_run_counts c = counts_of(s, 1);

    assert_int_equal(c.running, 1);
    assert_int_equal(c.done, 2);
    assert_int_equal(c.failed, 1);
    assert_int_equal(c.best_trial, 2);
    assert_true(c.best_value == 0.75);
    check_order(s, 1, HY_TRIALS_BY_VALUE, 0, 0, "2134");
}

static void test_an_older_store_is_migrated_by_a_writer_and_read_as_it_is_by_a_reader(void **state)
{
    char *path = in_project(".hopyard/store.db");
    struct hy_store *s;

    (void)state;
    assert_int_equal(mkdir(in_project(".hopyard"), 0755), 0);
    make_format_1(path);
    s = open_store(HY_STORE_READ);
    check_format_1_contents(s);
    hy_store_close(s);
    assert_int_equal(pragma_of(path, "PRAGMA user_version"), 1);
    s = open_store(HY_STORE_WRITE);
    check_format_1_contents(s);
    OK(end_trial(s, 1, 4, HY_TRIAL_DONE, 2));
    OK(hy_store_commit(s, &err));
    assert_int_equal(counts_of(s, 1).best_trial, 4);
    hy_store_close(s);
    assert_int_equal(pragma_of(path, "PRAGMA user_version"), 2);
}

static void test_an_older_store_whose_driver_lives_is_not_changed_under_it(void **state)
{
    struct hy_store *s, *writer = NULL;
    int lock;

    (void)state;
    assert_int_equal(mkdir(in_project(".hopyard"), 0755), 0);
    make_format_1(in_project(".hopyard/store.db"));
    s = open_store(HY_STORE_READ);
    lock = hy_store_run_lock(s, 1, &err);
    assert_true(lock >= 0);
    FAILS(hy_store_open(project, HY_STORE_WRITE, &writer, &err), -EBUSY,
          "in use by an older hopyard (run 1)");
    close(lock);
    hy_store_close(s);
    hy_store_close(open_store(HY_STORE_WRITE));
}

static void check_refused(int code, const char *words)
{
    struct hy_store *s = NULL;

    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), code, words);
    FAILS(hy_store_open(project, HY_STORE_WRITE, &s, &err), code, words);
}

static void test_a_newer_a_strange_and_a_broken_store_are_refused_and_left_alone(void **state)
{
    char *path = in_project(".hopyard/store.db");
    char noise[5000];
    int64_t run;

    (void)state;
    hy_store_close(store_with_run(true, &run));
    run_sql(path, "PRAGMA user_version = 9");
    check_refused(-EPROTO, "was written by a newer hopyard (format 9; this one knows 2): upgrade hopyard");
    run_sql(path, "PRAGMA user_version = 2; PRAGMA application_id = 5");
    check_refused(-EBADMSG, "is a database of another program");
    hy_remove_tree(in_project(".hopyard"));
    mkdir(in_project(".hopyard"), 0755);
    memset(noise, 'x', sizeof noise);
    put_file(path, noise, sizeof noise);
    check_refused(-EBADMSG, "is not a store of hopyard's");
    unlink(path);
    run_sql(path, "CREATE TABLE t(a)");
    check_refused(-EBADMSG, "is a database of another program");
    unlink(path);
    mkdir(path, 0755);
    check_refused(-EIO, "store.db");
}

/* Reads and writes all there is; only that it comes back matters. */
static void use_all(struct hy_store *s)
{
    int n = 0;

    hy_store_run_each(s, 0, count_run, &n, &err);
    hy_store_trial_each(s, 1, 0, HY_TRIALS_BY_NUMBER, 0, 0, count_trial, &n, &err);
    hy_store_trial_each(s, 1, 0, HY_TRIALS_BY_VALUE, 0, 0, count_trial, &n, &err);
    hy_store_replay(s, 1, count_replay, &n, &err);
    hy_store_attempt_each(s, 1, 0, count_attempt, &n, &err);
    hy_store_metric_each(s, 1, 0, count_metric, &n, &err);
    whole_turn(s, 1, 1000);
    hy_store_run_remove(s, 1, &err);
    hy_store_commit(s, &err);
}

static void test_a_damaged_store_gives_sentences_not_crashes(void **state)
{
    hy_cleanup_buf struct hy_buf whole;
    char *path = in_project(".hopyard/store.db");
    int64_t run, refused = 0;
    struct hy_store *s = store_with_run(true, &run);
    struct hy_rng rng;

    (void)state;
    for (int64_t i = 1; i <= 100; i++)
        OK(add_trial(s, run, i));
    OK(hy_store_commit(s, &err));
    hy_store_close(s);
    hy_buf_init(&whole, 1 << 20);
    assert_int_equal(hy_file_read(path, &whole), 0);
    hy_rng_seed(&rng, 2, 0);
    for (int i = 0; i < 120; i++) {
        hy_cleanup_free uint8_t *bytes = malloc(whole.len);
        size_t n = i % 3 ? whole.len : hy_rng_below(&rng, whole.len);

        memcpy(bytes, hy_buf_bytes(&whole), whole.len);
        for (int k = 0; k < 30 && n; k++)
            bytes[(k % 2 ? hy_rng_below(&rng, n) : hy_rng_below(&rng, n > 200 ? 200 : n))] ^=
                (uint8_t)hy_rng_next(&rng);
        unlink(in_project(".hopyard/store.db-wal"));
        unlink(in_project(".hopyard/store.db-shm"));
        put_file(path, bytes, n);
        for (int mode = HY_STORE_READ; mode <= HY_STORE_WRITE; mode++) {
            int rc = hy_store_open(project, (enum hy_store_mode)mode, &s, &err);

            refused += rc < 0;
            if (rc < 0)
                continue;
            use_all(s);
            hy_store_close(s);
        }
    }
    assert_true(refused > 50);
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

    CHECK(strstr(err.text, "disk full: cannot write '") &&
          strstr(err.text, "/store.db'; free some space, then `hopyard resume`"));
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

static void test_a_file_that_may_not_grow_is_a_full_disk(void **state)
{
    (void)state;
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

static void test_a_full_disk_ends_the_turn_with_a_sentence_and_room_mends_it(void **state)
{
    (void)state;
    if (getuid() != 0) {
        print_message("not root: the full disk was tried as a file size limit only\n");
        return;
    }
    assert_int_equal(child_ends(start_child(fill_disk, NULL)), 0);
    assert_int_equal(child_ends(start_child(open_on_full_disk, (void *)(uintptr_t) "size=4k")), 0);
    assert_int_equal(child_ends(start_child(open_on_full_disk, (void *)(uintptr_t) "size=20k")), 0);
    assert_int_equal(child_ends(start_child(open_on_full_disk, (void *)(uintptr_t) "size=60k")), 0);
    assert_int_equal(child_ends(start_child(open_on_full_disk, (void *)(uintptr_t) "nr_inodes=1")), 0);
}

static int read_on_read_only_mount(void *arg)
{
    CHECK(unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount(project, project, NULL, MS_BIND, NULL) == 0);
    CHECK(mount(NULL, project, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) == 0);
    return read_as_nobody(arg);
}

static void test_a_reader_reads_a_read_only_file_system(void **state)
{
    int64_t run;
    int trials = 1;
    struct hy_store *s = store_with_run(true, &run);

    (void)state;
    share();
    OK(whole_turn(s, run, 1));
    hy_store_close(s);
    if (getuid() != 0) {
        print_message("not root: read-only folders were tried, a read-only mount was not\n");
        return;
    }
    assert_int_equal(child_ends(start_child(read_on_read_only_mount, &trials)), 0);
    unlink(in_project(".hopyard/store.db-shm"));
    assert_int_equal(child_ends(start_child(read_on_read_only_mount, &trials)), 0);
    unlink(in_project(".hopyard/store.db-wal"));
    assert_int_equal(child_ends(start_child(read_on_read_only_mount, &trials)), 0);
}

/* ---- places ---------------------------------------------------------------------- */

static void test_a_store_on_a_local_disk_lies_in_the_project_and_out_of_git(void **state)
{
    hy_cleanup_buf struct hy_buf b;
    struct hy_store *s = open_store(HY_STORE_WRITE);

    (void)state;
    hy_buf_init(&b, 100);
    assert_string_equal(hy_store_folder(s), in_project(".hopyard"));
    assert_int_equal(hy_store_is_remote(s), 0);
    assert_int_equal(hy_file_read(in_project(".hopyard/.gitignore"), &b), 0);
    assert_string_equal(hy_buf_cstr(&b), "*\n");
    hy_store_close(s);
}

static void test_a_project_on_a_network_has_its_store_in_the_state_folder(void **state)
{
    static const char *const types[] = {"0x6969", "0xff534d42", "0x65735546", "0x01021997"};
    hy_cleanup_buf struct hy_buf b;
    char folder[200], pretend[200], named[300];
    struct hy_store *s = NULL;
    int64_t run;

    (void)state;
    hy_buf_init(&b, 1000);
    assert_int_equal(mkdir(in_project("p"), 0755), 0);
    setenv("XDG_STATE_HOME", in_project("state"), 1);
    for (size_t i = 0; i < HY_COUNT(types); i++) {
        snprintf(pretend, sizeof pretend, "%s:%s", types[i], in_project("p"));
        setenv("HOPYARD_TEST_FS_TYPE", pretend, 1);
        OK(hy_store_open(in_project("p"), HY_STORE_WRITE, &s, &err));
        assert_int_equal(hy_store_is_remote(s), 1);
        snprintf(folder, sizeof folder, "%s", hy_store_folder(s));
        assert_memory_equal(folder, in_project("state/hopyard/"), strlen(in_project("state/hopyard/")));
        assert_int_equal(access(in_project("p/.hopyard"), F_OK), -1);
        OK(add_run(s, NULL, (int64_t)i + 1, true, &run));
        OK(hy_store_commit(s, &err));
        hy_store_close(s);
        OK(hy_store_open(in_project("p/../p/"), HY_STORE_READ, &s, &err));
        assert_string_equal(hy_store_folder(s), folder);
        hy_store_close(s);
    }
    snprintf(named, sizeof named, "%s/project", folder);
    assert_int_equal(hy_file_read(named, &b), 0);
    assert_int_equal(b.len, strlen(in_project("p")) + 1);
    assert_memory_equal(hy_buf_bytes(&b), in_project("p"), b.len - 1);
    put_file(named, "/elsewhere\n", 11);
    FAILS(hy_store_open(in_project("p"), HY_STORE_WRITE, &s, &err), -EEXIST, "belongs to another project");
    setenv("HOPYARD_TEST_FS_TYPE", "0x6969", 1); /* everywhere */
    FAILS(hy_store_open(in_project("p"), HY_STORE_WRITE, &s, &err), -ENOTSUP,
          "set XDG_STATE_HOME to a folder on a local disk");
}

/* ---- one driver per run ---------------------------------------------------------- */

static int hold_lock(void *arg)
{
    int *fds = arg;
    struct hy_store *s = NULL;
    char c = 'x';

    CHECK(hy_store_open(project, HY_STORE_READ, &s, &err) == 0);
    CHECK(hy_store_run_lock(s, 1, &err) >= 0);
    CHECK(write(fds[1], &c, 1) == 1);
    for (;;)
        pause();
}

static void test_a_run_has_one_driver_and_its_death_frees_the_lock(void **state)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);
    char c, named[64];
    int fds[2], lock;
    pid_t pid;

    (void)state;
    assert_int_equal(hy_store_run_alive(s, run), 0);
    assert_int_equal(access(in_project(".hopyard/run-1.lock"), F_OK), -1); /* asking makes nothing */
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = start_child(hold_lock, fds);
    assert_int_equal(read(fds[0], &c, 1), 1);
    assert_int_equal(hy_store_run_alive(s, run), 1);
    snprintf(named, sizeof named, "run 1 has a driver already (process %d)", (int)pid);
    FAILS(hy_store_run_lock(s, run, &err), -EBUSY, named);
    kill(pid, SIGKILL);
    child_ends(pid);
    assert_int_equal(hy_store_run_alive(s, run), 0);
    lock = hy_store_run_lock(s, run, &err);
    assert_true(lock >= 0);
    assert_int_equal(hy_store_run_alive(s, run), 1); /* seen from the same process too */
    FAILS(hy_store_run_lock(s, run, &err), -EBUSY, "has a driver already");
    assert_int_equal(hy_store_run_alive(s, run), 1); /* and asking did not drop it */
    close(lock);
    assert_int_equal(hy_store_run_alive(s, run), 0);
    close(fds[0]);
    close(fds[1]);
    hy_store_close(s);
}

/* ---- snapshots ------------------------------------------------------------------- */

/* A second project beside the first, to import into. */
static struct hy_store *other_store(void)
{
    struct hy_store *s = NULL;

    mkdir(in_project("other"), 0755);
    OK(hy_store_open(in_project("other"), HY_STORE_WRITE, &s, &err));
    return s;
}

static void test_a_run_goes_through_a_snapshot_unchanged_and_only_once(void **state)
{
    struct hy_store *s = open_store(HY_STORE_WRITE), *reader, *other = other_store();
    int64_t run, filler, second, count = -1;
    int attempts = 0, metrics = 0;

    (void)state;
    OK(hy_store_run_add(s, &full_run, &run, &err));
    for (int64_t i = 1; i <= 20; i++)
        OK(whole_turn(s, run, i));
    OK(add_trial(s, run, 21));
    OK(hy_store_commit(s, &err));
    reader = open_store(HY_STORE_READ);
    OK(hy_store_snapshot(reader, run, in_project("run.db"), &err));
    hy_store_close(reader);
    FAILS(hy_store_snapshot(s, 77, in_project("x.db"), &err), -ENOENT, "no run 77");
    FAILS(hy_store_snapshot(s, run, in_project("no/x.db"), &err), -ENOENT, "cannot write the snapshot");
    OK(add_run(other, NULL, 1, true, &filler));
    OK(hy_store_import(other, in_project("run.db"), &count, &err));
    assert_int_equal(count, 1);
    OK(hy_store_import(other, in_project("run.db"), &count, &err));
    assert_int_equal(count, 0);
    OK(hy_store_run_find(other, NULL, &second, &err));
    assert_int_equal(second, 2); /* it has a number of its own there */
    assert_int_equal(counts_of(other, second).done, 20);
    assert_int_equal(counts_of(other, second).running, 1);
    assert_int_equal(counts_of(other, second).best_trial, 1);
    assert_int_equal(count_trials(other, second), 21);
    OK(hy_store_attempt_each(other, second, 0, count_attempt, &attempts, &err));
    OK(hy_store_metric_each(other, second, 0, count_metric, &metrics, &err));
    assert_int_equal(attempts, 20);
    assert_int_equal(metrics, 20);
    assert_int_equal(counts_of(other, filler).running, 0);
    hy_store_close(other);
    hy_store_close(s);
}

static void test_an_older_snapshot_is_imported_and_left_as_it_is(void **state)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);
    int64_t count = 0;

    (void)state;
    make_format_1(in_project("old.db"));
    OK(hy_store_import(s, in_project("old.db"), &count, &err));
    assert_int_equal(count, 1);
    check_format_1_contents(s);
    hy_store_close(s);
    assert_int_equal(pragma_of(in_project("old.db"), "PRAGMA user_version"), 1);
}

static void check_import_refused(struct hy_store *s, const char *path, int code, const char *words)
{
    int64_t count = 42;
    int runs = 0;

    FAILS(hy_store_import(s, path, &count, &err), code, words);
    assert_int_equal(count, 42);
    OK(hy_store_run_each(s, 0, count_run, &runs, &err));
    assert_int_equal(runs, 0);
}

/* Each spoils a good snapshot in its way; none may get a row into the store. */
static const char *const spoilers[] = {
    "DROP TABLE metrics",
    "ALTER TABLE trials RENAME TO t; CREATE VIEW trials AS SELECT * FROM t",
    "CREATE TRIGGER x AFTER INSERT ON runs BEGIN DELETE FROM trials; END",
    "ALTER TABLE runs RENAME TO r; CREATE TABLE runs AS SELECT * FROM r; UPDATE runs SET state = 'abc'",
    "ALTER TABLE runs RENAME TO r; CREATE TABLE runs AS SELECT * FROM r; UPDATE runs SET app_id = NULL",
    "ALTER TABLE trials RENAME TO r; CREATE TABLE trials AS SELECT * FROM r; UPDATE trials SET state = 17",
    "ALTER TABLE trials RENAME TO r; CREATE TABLE trials AS SELECT * FROM r; INSERT INTO trials SELECT * "
    "FROM r",
    "ALTER TABLE metrics RENAME COLUMN value TO other",
    "ALTER TABLE metrics RENAME TO m; CREATE VIRTUAL TABLE metrics USING fts5(run, trial, seq, attempt, "
    "step, name, value, time)",
};

static void test_a_hostile_snapshot_is_refused_with_a_sentence_and_changes_nothing(void **state)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run), *other = other_store();

    (void)state;
    OK(whole_turn(s, run, 1));
    for (size_t i = 0; i < HY_COUNT(spoilers); i++) {
        OK(hy_store_snapshot(s, run, in_project("bad.db"), &err));
        run_sql(in_project("bad.db"), spoilers[i]);
        check_import_refused(other, in_project("bad.db"), -EBADMSG, "bad.db");
    }
    OK(hy_store_snapshot(s, run, in_project("bad.db"), &err));
    run_sql(in_project("bad.db"), "PRAGMA user_version = 9");
    check_import_refused(other, in_project("bad.db"), -EPROTO, "was written by a newer hopyard");
    put_file(in_project("bad.db"), "", 0);
    check_import_refused(other, in_project("bad.db"), -EBADMSG, "was not written by hopyard");
    put_file(in_project("bad.db"), project, sizeof project);
    check_import_refused(other, in_project("bad.db"), -EBADMSG, "bad.db");
    check_import_refused(other, in_project("none.db"), -ENOENT, "none.db");
    check_import_refused(other, project, -EISDIR, project);
    OK(hy_store_import(other, in_project(".hopyard/store.db"), &run, &err)); /* a whole store will do */
    assert_int_equal(run, 1);
    hy_store_close(other);
    hy_store_close(s);
}

static void test_a_damaged_snapshot_never_crashes_an_import(void **state)
{
    hy_cleanup_buf struct hy_buf whole;
    int64_t run, count, refused = 0;
    struct hy_store *s = store_with_run(true, &run), *other = other_store();
    struct hy_rng rng;

    (void)state;
    for (int64_t i = 1; i <= 30; i++)
        OK(add_trial(s, run, i));
    OK(hy_store_snapshot(s, run, in_project("good.db"), &err));
    hy_buf_init(&whole, 1 << 20);
    assert_int_equal(hy_file_read(in_project("good.db"), &whole), 0);
    hy_rng_seed(&rng, 3, 0);
    for (int i = 0; i < 100; i++) {
        hy_cleanup_free uint8_t *bytes = malloc(whole.len);

        memcpy(bytes, hy_buf_bytes(&whole), whole.len);
        for (int k = 0; k < 40; k++)
            bytes[100 + hy_rng_below(&rng, whole.len - 100)] ^= (uint8_t)(1 + hy_rng_below(&rng, 255));
        put_file(in_project("bad.db"), bytes, i % 4 ? whole.len : hy_rng_below(&rng, whole.len));
        refused += hy_store_import(other, in_project("bad.db"), &count, &err) < 0;
    }
    assert_true(refused > 50);
    hy_store_close(other);
    hy_store_close(s);
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

static void test_opening_survives_every_fault(void **state)
{
    (void)state;
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
        rc = hy_store_attempt_each(s, scene->run, 0, count_attempt, &n, &err);
    if (rc == 0)
        rc = hy_store_metric_each(s, scene->run, 0, count_metric, &n, &err);
    return rc == 0 && n != 1 + 5 + 5 + 10 + 5 + 5 ? 1 : rc;
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

static void test_reading_survives_every_fault(void **state)
{
    struct scene scene = {0};
    struct hy_store *s = open_store(HY_STORE_WRITE);

    (void)state;
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

static void test_a_turn_is_whole_or_nothing_when_memory_runs_out(void **state)
{
    (void)state;
    turns_with_faults(HY_SEAM_ALLOC, true);
}

static void test_a_turn_is_whole_or_nothing_when_the_disk_fails(void **state)
{
    (void)state;
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
    int rc = hy_store_snapshot(scene->s, 1, in_project("run.db"), &err);

    if (rc == 0)
        rc = hy_store_import(scene[1].s, in_project("run.db"), &count, &err);
    if (rc == 0 && hy_store_run_find(scene[1].s, "n", &found, &err) == 0)
        rc = hy_store_run_remove(scene[1].s, found, &err);
    return rc == 0 ? hy_store_commit(scene[1].s, &err) : (hy_store_commit(scene[1].s, NULL), rc);
}

static void test_locks_and_snapshots_survive_every_fault(void **state)
{
    struct scene scene[2] = {{.s = open_store(HY_STORE_WRITE)}, {.s = other_store()}};

    (void)state;
    OK(add_run(scene[0].s, "n", 1, true, &scene[0].run));
    OK(whole_turn(scene[0].s, 1, 1));
    hy_each_fault(HY_SEAM_ALLOC, lock_and_ask, scene);
    hy_each_fault(HY_SEAM_SYS, lock_and_ask, scene);
    hy_each_fault(HY_SEAM_ALLOC, snapshot_and_import, scene);
    hy_each_fault(HY_SEAM_SYS, snapshot_and_import, scene);
    hy_store_close(scene[0].s);
    hy_store_close(scene[1].s);
}

#define PROMISE(test) cmocka_unit_test_setup_teardown(test, new_project, no_project)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROMISE(test_a_run_comes_back_as_it_was_put),
        PROMISE(test_the_same_run_cannot_be_added_twice_and_the_turn_goes_on),
        PROMISE(test_runs_are_found_by_number_name_or_as_the_newest),
        PROMISE(test_a_removed_run_leaves_nothing_and_its_number_is_not_used_again),
        PROMISE(test_states_have_names),
        PROMISE(test_a_trial_comes_back_as_it_was_put_whatever_its_bytes_are),
        PROMISE(test_a_taken_folder_name_gets_the_trials_number),
        PROMISE(test_the_best_is_the_greatest_of_a_run_that_maximizes),
        PROMISE(test_the_best_is_the_least_of_a_run_that_minimizes),
        PROMISE(test_trials_are_listed_in_order_and_in_pages),
        PROMISE(test_replay_gives_asks_and_tells_in_their_order),
        PROMISE(test_attempts_are_kept_with_their_ends),
        PROMISE(test_metrics_are_kept_in_the_order_they_came),
        PROMISE(test_nothing_is_seen_before_it_is_committed),
        PROMISE(test_a_commit_returns_when_the_disk_has_it),
        PROMISE(test_a_callback_may_use_the_store),
        PROMISE(test_a_change_that_fails_takes_its_whole_turn_with_it),
        PROMISE(test_writers_of_several_runs_never_find_the_store_locked),
        PROMISE(test_a_store_in_use_is_waited_for_then_refused),
        PROMISE(test_what_was_committed_survives_a_kill_at_any_moment),
        PROMISE(test_every_descriptor_closes_on_exec),
        PROMISE(test_a_reader_says_when_there_is_nothing_yet),
        PROMISE(test_a_store_is_for_its_owners_eyes_only),
        PROMISE(test_a_reader_needs_no_right_to_write),
        PROMISE(test_a_reader_without_rights_reads_what_a_killed_writer_left),
        PROMISE(test_a_folder_that_is_not_writable_is_said_so),
        PROMISE(test_an_older_store_is_migrated_by_a_writer_and_read_as_it_is_by_a_reader),
        PROMISE(test_an_older_store_whose_driver_lives_is_not_changed_under_it),
        PROMISE(test_a_newer_a_strange_and_a_broken_store_are_refused_and_left_alone),
        PROMISE(test_a_damaged_store_gives_sentences_not_crashes),
        PROMISE(test_a_file_that_may_not_grow_is_a_full_disk),
        PROMISE(test_a_full_disk_ends_the_turn_with_a_sentence_and_room_mends_it),
        PROMISE(test_a_reader_reads_a_read_only_file_system),
        PROMISE(test_a_store_on_a_local_disk_lies_in_the_project_and_out_of_git),
        PROMISE(test_a_project_on_a_network_has_its_store_in_the_state_folder),
        PROMISE(test_a_run_has_one_driver_and_its_death_frees_the_lock),
        PROMISE(test_a_run_goes_through_a_snapshot_unchanged_and_only_once),
        PROMISE(test_an_older_snapshot_is_imported_and_left_as_it_is),
        PROMISE(test_a_hostile_snapshot_is_refused_with_a_sentence_and_changes_nothing),
        PROMISE(test_a_damaged_snapshot_never_crashes_an_import),
        PROMISE(test_opening_survives_every_fault),
        PROMISE(test_reading_survives_every_fault),
        PROMISE(test_a_turn_is_whole_or_nothing_when_memory_runs_out),
        PROMISE(test_a_turn_is_whole_or_nothing_when_the_disk_fails),
        PROMISE(test_locks_and_snapshots_survive_every_fault),
    };

    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
