/* SPDX-License-Identifier: Apache-2.0 */
/* The store: runs, trials, attempts and metrics come back as they were put. */
#include "store_bench.h"

#include <errno.h>
#include <math.h>
#include <sqlite3.h>

#include "base/clock.h"
#include "base/mem.h"

/* ---- runs ------------------------------------------------------------------------ */

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

static int has_no_spec(void *arg, const struct hy_run_row *r, const struct hy_run_counts *counts)
{
    (void)counts;
    assert_string_equal(r->name, full_run.name);
    assert_null(r->spec);
    assert_int_equal(r->spec_len, 0);
    ++*(int *)arg;
    return 0;
}

HY_TEST_WITH(test_a_run_comes_back_as_it_was_put, new_project, no_project)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);
    int64_t id = 0;
    int listed = 0;

    OK(hy_store_run_add(s, &full_run, &id, &err));
    OK(hy_store_run_each(s, id, same_run, &id, &err));
    OK(hy_store_run_state(s, id, HY_RUN_FAILED, "why\n", &err));
    OK(hy_store_commit(s, &err));
    hy_store_close(s);
    s = open_store(HY_STORE_READ);
    OK(hy_store_run_each(s, id, same_run, &id, &err));
    OK(hy_store_run_each(s, 0, has_no_spec, &listed, &err)); /* it would be read for nothing */
    assert_int_equal(listed, 1);
    FAILS(hy_store_run_each(s, 77, same_run, &id, &err), -ENOENT, "no run 77");
    hy_store_close(s);
}

HY_TEST_WITH(test_a_duplicate_run_is_an_error_that_does_not_fail_the_turn, new_project, no_project)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);
    int64_t a, b;

    OK(add_run(s, NULL, 1, true, &a));
    FAILS(add_run(s, NULL, 1, true, &b), -EEXIST, "run 1 of 'local-1' is in the store already");
    OK(add_run(s, NULL, 2, true, &b));
    OK(hy_store_commit(s, &err));
    assert_int_equal(counts_of(s, b).running, 0);
    FAILS(hy_store_run_state(s, 9, HY_RUN_DONE, NULL, &err), -ENOENT, "no run 9");
    hy_store_close(s);
}

HY_TEST_WITH(test_runs_are_found_by_number_name_or_as_the_newest, new_project, no_project)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);
    int64_t id[6], found;

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

HY_TEST_WITH(test_a_removed_run_leaves_nothing_and_its_number_is_not_used_again, new_project, no_project)
{
    int64_t one, two, three, left = -1;
    struct hy_store *s = store_with_run(true, &one);
    sqlite3 *db;
    sqlite3_stmt *q;

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

HY_TEST_WITH(test_states_have_names, new_project, no_project)
{
    assert_string_equal(hy_run_state_name(HY_RUN_STOPPED), "stopped");
    assert_string_equal(hy_trial_state_name(HY_TRIAL_STOPPED), "stopped");
    assert_string_equal(hy_attempt_state_name(HY_ATTEMPT_LOST), "lost");
    assert_string_equal(hy_run_state_name((enum hy_run_state)99), "unknown");
    assert_string_equal(hy_trial_state_name((enum hy_trial_state) - 1), "unknown");
}

static int check_defaults(void *arg, const struct hy_run_row *run, const struct hy_run_counts *counts)
{
    (void)counts;
    assert_string_equal(run->app_id, "");
    assert_true(run->created >= *(const int64_t *)arg);
    return 0;
}

HY_TEST_WITH(test_a_run_without_application_or_time_gets_an_empty_one_and_now, new_project, no_project)
{
    int64_t now = hy_clock_wall_ms();
    struct hy_store *s = open_store(HY_STORE_WRITE);
    struct hy_run_row row = full_run;
    int64_t run, found;

    row.app_id = NULL;
    row.created = 0;
    OK(hy_store_run_add(s, &row, &run, &err));
    OK(hy_store_commit(s, &err));
    OK(hy_store_run_find(s, "1", &found, &err));
    assert_int_equal(found, run);
    OK(hy_store_run_each(s, run, check_defaults, &now, &err));
    FAILS(hy_store_run_find(s, "0", &found, &err), -ENOENT, "'0'");
    FAILS(hy_store_run_find(s, "9223372036854775808", &found, &err), -ENOENT, "9223372036854775808");
    hy_store_close(s);
}

/* ---- labels ---------------------------------------------------------------------- */

static int count_labels(void *arg, const struct hy_label_row *row)
{
    if (row->trial == 1) {
        assert_string_equal(row->tags, "[\"odd\"]");
        assert_null(row->note);
    }
    ++*(int *)arg;
    return 0;
}

static int has_label(void *arg, const struct hy_run_row *r, const struct hy_run_counts *counts)
{
    (void)arg;
    (void)counts;
    assert_string_equal(r->name, "other");
    assert_string_equal(r->tags, "[\"a\"]");
    assert_string_equal(r->note, "second");
    return 0;
}

HY_TEST_WITH(test_labels_are_replaced_and_removed_with_their_run, new_project, no_project)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);
    struct hy_trial_row trial = {.number = 1, .params = "{}", .dir = "x"};
    int64_t id = 0;
    int count = 0;
    char *dir = NULL;

    OK(hy_store_run_add(s, &full_run, &id, &err));
    OK(hy_store_trial_add(s, id, &trial, &dir, &err));
    free(dir);
    OK(hy_store_label_set(s, id, &(struct hy_label_row){.tags = "[]", .note = "second"}, &err));
    OK(hy_store_label_set(s, id, &(struct hy_label_row){.tags = "[\"a\"]"}, &err)); /* the note stays */
    OK(hy_store_label_set(s, id, &(struct hy_label_row){.trial = 1, .tags = "[\"odd\"]", .note = "x"}, &err));
    OK(hy_store_label_set(s, id, &(struct hy_label_row){.trial = 1, .note = ""}, &err)); /* it is removed */
    assert_int_equal(hy_store_label_set(s, id, &(struct hy_label_row){.trial = 2}, &err), -ENOENT);
    assert_int_equal(hy_store_label_set(s, id + 1, &(struct hy_label_row){.trial = 0}, &err), -ENOENT);
    assert_int_equal(hy_store_run_rename(s, id + 1, "x", &err), -ENOENT);
    OK(hy_store_run_rename(s, id, "other", &err));
    OK(hy_store_commit(s, &err));
    OK(hy_store_run_each(s, id, has_label, NULL, &err));
    OK(hy_store_label_each(s, id, count_labels, &count, &err));
    assert_int_equal(count, 2);
    OK(hy_store_run_remove(s, id, &err));
    OK(hy_store_label_each(s, id, count_labels, &count, &err));
    assert_int_equal(count, 2);
    OK(hy_store_commit(s, &err));
    hy_store_close(s);
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
    assert_int_equal(t->ended_seq, want->ended_seq);
    return 0;
}

HY_TEST_WITH(test_a_trial_comes_back_as_it_was_put_whatever_its_bytes_are, new_project, no_project)
{
    static const double values[] = {0.1, -0.0, 5e-324, 1.7976931348623157e308, INFINITY, -INFINITY, NAN, 3};
    struct hy_attempt_row a = {.trial = 1, .number = 2};
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

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
        t.told_seq = t.ended_seq = 8;
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

HY_TEST_WITH(test_a_duplicate_directory_name_gets_the_trials_number, new_project, no_project)
{
    static const char *const names[][2] = {{"x", "x"}, {"x", "x~2"}, {"x~4", "x~4"}, {"x", "x~4~4"}, {"y", "y"}};
    int64_t run, other;
    struct hy_store *s = store_with_run(true, &run);
    struct hy_trial_row t = {.number = 1, .dir = "x"};
    char *dir;

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

HY_TEST_WITH(test_the_best_is_the_greatest_of_a_run_that_maximizes, new_project, no_project)
{
    best_in_direction(true);
}

HY_TEST_WITH(test_the_best_is_the_least_of_a_run_that_minimizes, new_project, no_project)
{
    best_in_direction(false);
}

HY_TEST_WITH(test_trials_are_listed_in_order_and_in_pages, new_project, no_project)
{
    static const double values[] = {0, 5, NAN, 7, 6, 5};
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

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

static void check_page(struct hy_store *s, int64_t run, struct hy_trial_page page, const char *want)
{
    struct numbers all = {0};
    char text[64] = "";
    int64_t count = 0;

    page.limit = page.limit ? page.limit : 10;
    OK(hy_store_trial_page(s, run, &page, take_number, &all, &count, &err));
    for (int i = 0; i < all.n; i++)
        text[i] = (char)('0' + all.got[i]);
    assert_string_equal(text, want);
    assert_int_equal(count, page.state == HY_TRIAL_FAILED ? 1 : page.state == HY_TRIAL_RUNNING ? 2 : 7);
}

static struct hy_store *store_with_params(int64_t *ret_run)
{
    static const char *const params[] = {"{\"lr\":0.1,\"act\":\"relu\"}",
                                         "{\"lr\":1e-3,\"act\":\"Tanh\"}",
                                         "{\"lr\":20,\"act\":[1]}",
                                         "{\"lr\":null}",
                                         "not JSON",
                                         "{\"lr\":\"text\"}",
                                         "{\"lr\":0.1}"};
    struct hy_store *s = store_with_run(true, ret_run);

    for (int64_t i = 1; i <= 7; i++) {
        char dir[32];
        struct hy_trial_row t = {.number = i, .params = params[i - 1], .dir = dir, .started = 10 - i, .asked_seq = i};

        snprintf(dir, sizeof dir, "d%lld", (long long)i);
        OK(hy_store_trial_add(s, *ret_run, &t, NULL, &err));
    }
    for (int64_t i = 1; i <= 5; i++)
        OK(end_trial(s, *ret_run, i, i == 4 ? HY_TRIAL_FAILED : HY_TRIAL_DONE, (double)(i * i % 7)));
    OK(hy_store_commit(s, &err));
    return s;
}

HY_TEST_WITH(test_a_page_of_trials_has_any_order, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_params(&run);
    struct hy_trial_page lr = {.key = HY_TRIAL_PARAM, .param = "lr"};

    check_page(s, run, (struct hy_trial_page){.key = HY_TRIAL_NUMBER}, "1234567");
    check_page(s, run, (struct hy_trial_page){.key = HY_TRIAL_NUMBER, .descending = true, .offset = 1, .limit = 2},
               "65");
    check_page(s, run, (struct hy_trial_page){.offset = INT64_MAX, .limit = INT64_MAX}, "");
    check_page(s, run, (struct hy_trial_page){.key = HY_TRIAL_VALUE}, "2531467"); /* 4, 4, 2, 1, and those without */
    check_page(s, run, (struct hy_trial_page){.key = HY_TRIAL_VALUE, .descending = true}, "1325467");
    check_page(s, run, (struct hy_trial_page){.key = HY_TRIAL_STATE}, "6712354");
    check_page(s, run, (struct hy_trial_page){.key = HY_TRIAL_TIME, .limit = 5}, "12345"); /* the others run */
    check_page(s, run, lr, "2173645"); /* numbers, texts, none */
    lr.descending = true;
    check_page(s, run, lr, "3172645");
    lr.state = HY_TRIAL_RUNNING;
    check_page(s, run, lr, "76");
    check_page(s, run, (struct hy_trial_page){.state = HY_TRIAL_FAILED}, "4");
    lr = (struct hy_trial_page){.key = HY_TRIAL_PARAM, .param = "a\"b", .limit = 1};
    FAILS(hy_store_trial_page(s, run, &lr, take_number, NULL, &(int64_t){0}, &err), -EINVAL, "cannot sort by");
    hy_store_close(s);
}

static void check_changed(struct hy_store *s, int64_t run, int64_t after, const char *want)
{
    struct numbers all = {0};
    char text[64] = "";

    OK(hy_store_changed_each(s, run, after, take_number, &all, &err));
    for (int i = 0; i < all.n; i++)
        text[i] = (char)('0' + all.got[i]);
    assert_string_equal(text, want);
}

HY_TEST_WITH(test_changed_trials_are_those_ended_later_or_running, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_params(&run);

    check_changed(s, run, 0, "1234576");
    check_changed(s, run, 7, "4576"); /* trial 3 has ended at 7 */
    check_changed(s, run, 11, "76");
    OK(end_trial(s, run, 4, HY_TRIAL_RUNNING, 0)); /* it runs again */
    check_changed(s, run, 11, "764");
    OK(end_trial(s, run, 7, HY_TRIAL_STOPPED, 0));
    check_changed(s, run, 11, "764");
    check_changed(s, run, 15, "64");
    OK(end_trial(s, run, 6, HY_TRIAL_PAUSED, 0)); /* neither */
    check_changed(s, run, 15, "46");
    hy_store_close(s);
}

static int take_step(void *arg, const struct hy_metric_row *m)
{
    char *text = arg;

    snprintf(text + strlen(text), 8, "%lld ", (long long)m->step);
    return 0;
}

static int take_metric_name(void *arg, const char *name)
{
    strcat(strcat(arg, name), " ");
    return 0;
}

HY_TEST_WITH(test_thinned_metrics_keep_the_first_and_the_last, new_project, no_project)
{
    static const struct {
        int64_t points;
        const char *want;
    } cases[] = {{100, "0 1 2 3 4 5 6 7 8 9 10 "},
                 {11, "0 1 2 3 4 5 6 7 8 9 10 "},
                 {10, "0 2 4 6 8 10 "},
                 {4, "0 3 6 9 10 "},
                 {1, "0 10 "},
                 {0, "0 10 "}};
    int64_t run;
    struct hy_store *s = store_with_params(&run);
    char text[100] = "";

    for (int64_t i = 0; i <= 10; i++) {
        OK(hy_store_metric_add(s, run, &(struct hy_metric_row){1, 1, i, "loss", 1, 5, 0}, &err));
        OK(hy_store_metric_add(s, run, &(struct hy_metric_row){1, 1, i, "acc", 1, 5, 0}, &err));
        OK(hy_store_metric_add(s, run, &(struct hy_metric_row){2, 1, i, "other", 1, 5, 0}, &err));
    }
    OK(hy_store_metric_names(s, run, 1, take_metric_name, text, &err));
    assert_string_equal(text, "loss acc ");
    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        text[0] = '\0';
        OK(hy_store_metric_thinned(s, run, 1, "acc", cases[i].points, take_step, text, &err));
        assert_string_equal(text, cases[i].want);
    }
    text[0] = '\0';
    OK(hy_store_metric_thinned(s, run, 3, "acc", 5, take_step, text, &err));
    assert_string_equal(text, "");
    hy_store_close(s);
}

HY_TEST_WITH(test_a_reader_is_stale_only_when_its_files_are_replaced, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run), *reader;

    hy_store_close(s); /* the last one removes the -wal file, and the reader makes a new one */
    reader = open_store(HY_STORE_READ);
    OK(hy_store_check_files(reader, &err));
    s = open_store(HY_STORE_WRITE);
    OK(add_trial(s, run, 1));
    OK(hy_store_commit(s, &err));
    hy_store_close(s);
    OK(hy_store_check_files(reader, &err));
    assert_int_equal(counts_of(reader, run).running, 1);
    assert_int_equal(rename(in_project(".hopyard/store.db"), in_project(".hopyard/away.db")), 0);
    FAILS(hy_store_check_files(reader, &err), -ESTALE, "was deleted or replaced");
    hy_store_close(reader);
}

static int take_replay(void *arg, const struct hy_trial_row *t, int told)
{
    char *text = arg;

    sprintf(text + strlen(text), "%s%lld ", told ? "t" : "a", (long long)t->number);
    return t->number == 9;
}

HY_TEST_WITH(test_replay_gives_asks_and_tells_in_their_order, new_project, no_project)
{
    static const struct {
        int64_t asked, told;
    } seqs[] = {{1, 6}, {2, 4}, {3, 0}, {5, 7}};
    char text[100] = "";
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    for (size_t i = 0; i < HY_COUNT(seqs); i++) {
        struct hy_trial_row t = {
            .number = (int64_t)i + 1, .asked_seq = seqs[i].asked, .told_seq = seqs[i].told, .state = HY_TRIAL_DONE};

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

HY_TEST_WITH(test_trials_that_ended_are_read_from_a_position_in_the_order_of_their_ends, new_project, no_project)
{
    static const struct {
        enum hy_trial_state state;
        int64_t ended_seq;
    } ends[] = {{HY_TRIAL_DONE, 9}, {HY_TRIAL_FAILED, 7}, {HY_TRIAL_RUNNING, 0}, {HY_TRIAL_STOPPED, 12}};
    int64_t run, other, after = -1;
    struct hy_store *s = store_with_run(true, &run);

    OK(add_run(s, NULL, 2, true, &other));
    for (size_t i = 0; i < HY_COUNT(ends); i++) {
        struct hy_trial_row t = {.number = (int64_t)i + 1, .state = ends[i].state, .ended_seq = ends[i].ended_seq};

        OK(hy_store_trial_add(s, run, &t, NULL, &err));
        OK(hy_store_trial_end(s, run, &t, &err));
        OK(hy_store_trial_add(s, other, &t, NULL, &err));
        OK(hy_store_trial_end(s, other, &t, &err));
    }
    check_ended(s, run, 0, INT64_MAX, 10, "214");
    check_ended(s, run, 7, INT64_MAX, 10, "14");
    check_ended(s, run, 7, 9, 10, "1");
    check_ended(s, run, 0, INT64_MAX, 2, "21");
    check_ended(s, run, 12, INT64_MAX, 10, "");
    OK(hy_store_ended_newest(s, run, INT64_MAX, 2, &after, &err));
    check_ended(s, run, after, INT64_MAX, 10, "14");
    OK(hy_store_ended_newest(s, run, 9, 1, &after, &err));
    check_ended(s, run, after, 9, 10, "1");
    OK(hy_store_ended_newest(s, run, INT64_MAX, 3, &after, &err));
    assert_int_equal(after, 0);
    OK(hy_store_trial_end(s, run, &(struct hy_trial_row){.number = 2, .state = HY_TRIAL_RUNNING}, &err));
    check_ended(s, run, 0, INT64_MAX, 10, "14"); /* one that runs again has not ended */
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
    assert_string_equal(a->detail ? a->detail : "", want->detail ? want->detail : "");
    assert_int_equal(a->charge, want->charge);
    return 0;
}

HY_TEST_WITH(test_attempts_are_kept_with_their_ends, new_project, no_project)
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
    a.detail = "Traceback\n  line 3\n";
    a.charge = HY_CHARGE_LOSS;
    OK(hy_store_attempt_end(s, run, &a, &err));
    OK(hy_store_attempt_each(s, run, 1, same_attempt, &a, &err));
    OK(hy_store_attempts_clear_charges(s, run, 2, &err));
    OK(hy_store_attempt_each(s, run, 1, same_attempt, &a, &err));
    OK(hy_store_attempts_clear_charges(s, run, 1, &err));
    a.charge = HY_CHARGE_NONE;
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

struct events {
    char text[200];
};

static int take_event(void *arg, const struct hy_stop_event *e)
{
    struct events *all = arg;
    size_t n = strlen(all->text);
    const char *kinds = "arde";

    snprintf(all->text + n, sizeof all->text - n, "%c%lld", kinds[e->kind], (long long)e->trial);
    n = strlen(all->text);
    if (e->kind == HY_STOP_EVENT_REPORT)
        snprintf(all->text + n, sizeof all->text - n, "(%lld.%lld=%g) ", (long long)e->attempt, (long long)e->step,
                 e->value);
    else if (e->kind == HY_STOP_EVENT_DECISION)
        snprintf(all->text + n, sizeof all->text - n, "(%d) ", e->decision);
    else if (e->kind == HY_STOP_EVENT_END)
        snprintf(all->text + n, sizeof all->text - n, "(%s) ", hy_trial_state_name(e->state));
    else
        snprintf(all->text + n, sizeof all->text - n, " ");
    return e->seq == 9 ? 9 : 0;
}

HY_TEST_WITH(test_reports_and_decisions_are_replayed_in_the_order_in_which_they_were_made, new_project, no_project)
{
    struct hy_metric_row m = {.trial = 2, .attempt = 1, .step = 1, .name = "acc", .value = NAN, .run_seq = 5};
    struct events all = {0};
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);

    OK(add_trial(s, run, 1)); /* asked at 2 */
    OK(add_trial(s, run, 2)); /* asked at 4 */
    OK(add_trial(s, run, 3)); /* asked at 6 */
    OK(hy_store_metric_add(s, run, &m, &err));
    OK(hy_store_decision_add(s, run, &(struct hy_decision_row){.seq = 8, .trial = 2, .decision = 1}, &err));
    m = (struct hy_metric_row){.trial = 1, .attempt = 2, .step = -1, .name = "acc", .value = 0.5, .run_seq = 3};
    OK(hy_store_metric_add(s, run, &m, &err));
    m.run_seq = 0; /* of another metric */
    OK(hy_store_metric_add(s, run, &m, &err));
    OK(end_trial(s, run, 3, HY_TRIAL_PRUNED, NAN)); /* at 7 */
    OK(hy_store_stop_replay(s, run, take_event, &all, &err));
    assert_string_equal(all.text, "a1 r1(2.-1=0.5) a2 r2(1.1=nan) a3 e3(pruned) d2(1) ");
    m.run_seq = 9;
    OK(hy_store_metric_add(s, run, &m, &err));
    assert_int_equal(hy_store_stop_replay(s, run, take_event, &all, &err), 9); /* a nonzero result ends it */
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

HY_TEST_WITH(test_metrics_are_kept_in_the_order_they_came, new_project, no_project)
{
    static const struct hy_metric_row rows[] = {
        {1, 1, 5, "loss\nnext=\"line\"", NAN, 4, 0},
        {1, 1, 2, "loss", INFINITY, 4, 0},
        {1, 2, -1, "\xff", -1e-300, 3, 0},
        {2, 1, 0, "loss", 0, 1, 0},
    };
    const struct hy_metric_row *next = rows;
    int64_t run;
    int n = 0;
    struct hy_store *s = store_with_run(true, &run);

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
