/* SPDX-License-Identifier: Apache-2.0 */
/* How attempts waited and what they used: kept, replaced, copied and removed with their run. */
#include "store_bench.h"

#include <errno.h>
#include <sqlite3.h>

/* ---- attempts ------------------------------------------------------------------------ */

static int add_attempt(struct hy_store *s, int64_t run, int64_t trial, int64_t queued, int64_t started, int64_t ended)
{
    struct hy_attempt_row a = {.trial = trial,
                               .number = 1,
                               .agent = "a",
                               .host = "h",
                               .queued = queued,
                               .started = started,
                               .ended = ended,
                               .state = ended ? HY_ATTEMPT_DONE : HY_ATTEMPT_RUNNING,
                               .gpus = trial};
    int rc = add_trial(s, run, trial);

    return rc == 0 ? hy_store_attempt_add(s, run, &a, &err) : rc;
}

static int take_attempt(void *arg, const struct hy_attempt_row *a)
{
    struct hy_attempt_row *to = arg;

    *to = *a;
    to->held = a->held ? "held" : NULL;
    assert_true(!a->held || strcmp(a->held, "GPU-1 is leased by run 7") == 0);
    return 0;
}

HY_TEST_WITH(test_an_attempt_keeps_how_it_waited_and_its_gpus, new_project, no_project)
{
    struct hy_attempt_row a = {.trial = 1, .number = 1, .held = "GPU-1 is leased by run 7"}, got;
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    OK(add_attempt(s, run, 1, 100, 110, 0));
    OK(hy_store_attempt_held(s, run, &a, &err));
    OK(hy_store_attempt_each(s, run, 1, take_attempt, &got, &err));
    assert_int_equal(got.queued, 100);
    assert_non_null(got.held);
    assert_int_equal(got.begun, 0);
    assert_int_equal(got.gpus, 1);
    a.begun = 150;
    OK(hy_store_attempt_held(s, run, &a, &err));
    a.state = HY_ATTEMPT_DONE;
    a.ended = 200;
    a.gpus = UINT64_C(1) << 63; /* the agent took another one */
    OK(hy_store_attempt_end(s, run, &a, &err));
    OK(hy_store_attempt_each(s, run, 1, take_attempt, &got, &err));
    assert_int_equal(got.begun, 150);
    assert_non_null(got.held);
    assert_int_equal(got.queued, 100);
    assert_true(got.gpus == UINT64_C(1) << 63);
    OK(hy_store_commit(s, &err));
    hy_store_close(s);
}

struct listed {
    int64_t trials[8];
    size_t count;
};

static int list_attempt(void *arg, const struct hy_attempt_row *a)
{
    struct listed *l = arg;

    assert_in_range(l->count, 0, 7);
    l->trials[l->count++] = a->trial;
    return 0;
}

static void check_between(struct hy_store *s, int64_t run, int64_t from, int64_t to, int64_t limit, const char *want)
{
    struct listed l = {0};
    char got[64] = "";

    OK(hy_store_attempt_between(s, run, from, to, limit, list_attempt, &l, &err));
    for (size_t i = 0; i < l.count; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%lld ", (long long)l.trials[i]);
    assert_string_equal(got, want);
}

HY_TEST_WITH(test_a_window_has_the_attempts_that_waited_or_ran_in_it, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    OK(add_attempt(s, run, 1, 100, 200, 300));
    OK(add_attempt(s, run, 2, 100, 250, 900));
    OK(add_attempt(s, run, 3, 400, 450, 500));
    OK(add_attempt(s, run, 4, 0, 600, 0)); /* runs; of an earlier version */
    check_between(s, run, 0, 2000, 100, "1 2 3 4 ");
    check_between(s, run, 0, 150, 100, "1 2 ");
    check_between(s, run, 301, 399, 100, "2 ");
    check_between(s, run, 301, 400, 100, "2 3 ");
    check_between(s, run, 1000, 2000, 100, "4 ");
    check_between(s, run, 0, 2000, 2, "2 4 "); /* the longest */
    check_between(s, run, 0, 2000, 0, "");
    check_between(s, run + 1, 0, 2000, 100, "");
    OK(hy_store_commit(s, &err));
    hy_store_close(s);
}

/* Reverts step 8 -> 9. */
static void make_format_8(void)
{
    static const char sql[] = "DROP TABLE decisions; DROP INDEX trials_paused; ALTER TABLE metrics DROP COLUMN run_seq;"
                              "ALTER TABLE tallies DROP COLUMN pruned; ALTER TABLE tallies DROP COLUMN paused;"
                              "DROP TABLE usage; ALTER TABLE attempts DROP COLUMN queued;"
                              "ALTER TABLE attempts DROP COLUMN held; ALTER TABLE attempts DROP COLUMN begun;"
                              "ALTER TABLE attempts DROP COLUMN gpus; PRAGMA user_version = 8;";
    char *message = NULL;
    sqlite3 *db;

    assert_int_equal(sqlite3_open(in_project(".hopyard/store.db"), &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s", message);
    sqlite3_close(db);
}

HY_TEST_WITH(test_attempts_of_an_older_store_have_unknown_waits, new_project, no_project)
{
    enum hy_store_mode modes[] = {HY_STORE_READ, HY_STORE_WRITE}; /* a private copy is migrated, then the store */
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    OK(add_attempt(s, run, 1, 100, 110, 200));
    OK(hy_store_commit(s, &err));
    hy_store_close(s);
    make_format_8();
    for (size_t i = 0; i < 2; i++) {
        struct hy_attempt_row got = {.queued = 77, .held = "x", .begun = 77, .gpus = 77};
        struct listed l = {0};

        s = open_store(modes[i]);
        OK(hy_store_attempt_each(s, run, 1, take_attempt, &got, &err));
        assert_int_equal(got.started, 110);
        assert_int_equal(got.queued, 0);
        assert_null(got.held);
        assert_int_equal(got.begun, 0);
        assert_true(got.gpus == 0);
        OK(hy_store_attempt_between(s, run, 120, 130, 10, list_attempt, &l, &err));
        assert_int_equal(l.count, 1);
        hy_store_close(s);
    }
}

/* ---- usage ---------------------------------------------------------------------------- */

static int set_usage(struct hy_store *s, int64_t run, int64_t trial, int64_t attempt, const char *points)
{
    struct hy_usage_row u = {.trial = trial, .attempt = attempt, .points = points, .points_len = strlen(points)};

    return hy_store_usage_set(s, run, &u, &err);
}

static int list_usage(void *arg, const struct hy_usage_row *u)
{
    char *text = arg;

    snprintf(text + strlen(text), 200 - strlen(text), "%lld.%lld %.*s; ", (long long)u->trial, (long long)u->attempt,
             (int)u->points_len, u->points_len ? (const char *)u->points : "");
    return 0;
}

static void check_usage(struct hy_store *s, int64_t run, int64_t trial, const char *want)
{
    char text[200] = "";

    OK(hy_store_usage_each(s, run, trial, list_usage, text, &err));
    assert_string_equal(text, want);
}

HY_TEST_WITH(test_usage_of_an_attempt_is_replaced_by_newer_usage, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    OK(set_usage(s, run, 2, 1, "early"));
    OK(set_usage(s, run, 1, 2, "second"));
    OK(set_usage(s, run, 1, 1, "first"));
    OK(set_usage(s, run, 2, 1, "late"));
    check_usage(s, run, 0, "1.1 first; 1.2 second; 2.1 late; ");
    check_usage(s, run, 2, "2.1 late; ");
    check_usage(s, run, 9, "");
    OK(hy_store_run_remove(s, run, &err));
    check_usage(s, run, 0, "");
    OK(hy_store_commit(s, &err));
    hy_store_close(s);
}

HY_TEST_WITH(test_recorded_usage_and_waits_are_applied, new_project, no_project)
{
    char points[] = "some\0bytes", held[] = "GPU-1 is leased by run 7";
    struct hy_usage_row u = {.trial = 1, .attempt = 1, .points = points, .points_len = sizeof points - 1};
    struct hy_attempt_row a = {.trial = 1, .number = 1, .held = held, .begun = 5}, got;
    struct hy_changes c;
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    OK(add_attempt(s, run, 1, 1, 2, 0));
    OK(hy_store_commit(s, &err));
    hy_changes_init(&c);
    assert_int_equal(hy_changes_usage_set(&c, &u), 0);
    assert_int_equal(hy_changes_attempt_held(&c, &a), 0);
    memset(points, '?', sizeof points - 1); /* both were copied */
    memset(held, '?', sizeof held - 1);
    OK(hy_store_apply(s, run, &c, &err));
    hy_changes_clear(&c);
    check_usage(s, run, 1, "1.1 some; "); /* as a text it ends there */
    OK(hy_store_attempt_each(s, run, 1, take_attempt, &got, &err));
    assert_non_null(got.held);
    assert_int_equal(got.begun, 5);
    hy_store_close(s);
}

HY_TEST_WITH(test_a_snapshot_has_usage_and_waits, new_project, no_project)
{
    struct hy_attempt_row a = {.trial = 1, .number = 1, .held = "GPU-1 is leased by run 7", .begun = 5}, got;
    int64_t run, count = 0;
    struct hy_store *s = store_with_run(true, &run);

    OK(add_attempt(s, run, 1, 1, 2, 9));
    OK(hy_store_attempt_held(s, run, &a, &err));
    OK(set_usage(s, run, 1, 1, "points"));
    OK(hy_store_commit(s, &err));
    OK(hy_store_snapshot(s, run, in_project("run.db"), NULL, 0, &err));
    OK(hy_store_run_remove(s, run, &err));
    OK(hy_store_commit(s, &err));
    OK(import_file(s, in_project("run.db"), &count, &err));
    assert_int_equal(count, 1);
    OK(hy_store_run_find(s, NULL, &run, &err));
    check_usage(s, run, 0, "1.1 points; ");
    OK(hy_store_attempt_each(s, run, 1, take_attempt, &got, &err));
    assert_non_null(got.held);
    assert_int_equal(got.begun, 5);
    assert_int_equal(got.queued, 1);
    assert_int_equal(got.gpus, 1);
    hy_store_close(s);
}
