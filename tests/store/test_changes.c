/* SPDX-License-Identifier: Apache-2.0 */
/* Changes that are recorded in memory and applied later; stores that are deleted or replaced under a writer. */
#include "store_bench.h"

#include <errno.h>

#include "base/mem.h"

/* ---- recording ------------------------------------------------------------------ */

/* One turn of a driver, recorded: trial `number` from its start to its end, and a note. */
static int record_turn(struct hy_changes *c, int64_t number)
{
    char dir[32], params[] = "{\"x\": 1}", agent[] = "local";
    struct hy_trial_row t = {.number = number, .params = params, .dir = dir, .started = 5, .asked_seq = 2 * number};
    struct hy_attempt_row a = {.trial = number, .number = 1, .agent = agent, .host = "h", .state = HY_ATTEMPT_RUNNING};
    struct hy_metric_row m = {.trial = number, .attempt = 1, .step = 3, .name = "acc", .value = 0.5};
    struct hy_note_row note = {.time = 77, .text = "a note"};
    int rc;

    snprintf(dir, sizeof dir, "x=%lld", (long long)number);
    rc = hy_changes_trial_add(c, &t);
    if (rc == 0)
        rc = hy_changes_attempt_add(c, &a);
    if (rc == 0)
        rc = hy_changes_metric_add(c, &m);
    a.state = HY_ATTEMPT_DONE;
    a.detail = "more";
    if (rc == 0)
        rc = hy_changes_attempt_end(c, &a);
    t.state = HY_TRIAL_DONE;
    t.has_value = true;
    t.value = 1.0 / (double)number;
    t.told_seq = t.ended_seq = 2 * number + 1;
    if (rc == 0)
        rc = hy_changes_trial_end(c, &t);
    if (rc == 0)
        rc = hy_changes_note_add(c, &note);
    /* What was recorded must not depend on these any more. */
    memset(dir, '?', sizeof dir - 1);
    memset(params, '?', sizeof params - 1);
    memset(agent, '?', sizeof agent - 1);
    return rc;
}

static int check_trial(void *arg, const struct hy_trial_row *t)
{
    char dir[32];

    snprintf(dir, sizeof dir, "x=%lld", (long long)t->number);
    assert_string_equal(t->dir, dir);
    assert_string_equal(t->params, "{\"x\": 1}");
    assert_int_equal(t->state, HY_TRIAL_DONE);
    assert_int_equal(t->attempts, 1);
    ++*(int *)arg;
    return 0;
}

static int check_note(void *arg, const struct hy_note_row *note)
{
    assert_int_equal(note->time, 77);
    assert_string_equal(note->text, "a note");
    ++*(int *)arg;
    return 0;
}

static void check_turns(struct hy_store *s, int64_t run, int want)
{
    int trials = 0, notes = 0;

    OK(hy_store_trial_each(s, run, 0, HY_TRIALS_BY_NUMBER, 0, 0, check_trial, &trials, &err));
    OK(hy_store_note_each(s, run, 0, check_note, &notes, &err));
    assert_int_equal(trials, want);
    assert_int_equal(notes, want);
    assert_int_equal(counts_of(s, run).done, want);
}

HY_TEST_WITH(test_recorded_changes_are_applied_in_their_order, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run), *reader;
    struct hy_changes c, sealed;

    hy_changes_init(&c);
    hy_changes_init(&sealed);
    for (int64_t i = 1; i <= 3; i++)
        assert_int_equal(record_turn(&c, i), 0);
    hy_changes_take(&sealed, &c);
    assert_true(sealed.bytes > 0 && c.bytes == 0);
    assert_int_equal(record_turn(&c, 4), 0); /* the next turn is another one */
    reader = open_store(HY_STORE_READ);
    assert_int_equal(count_trials(reader, run), 0); /* recording does not touch the store */
    OK(hy_store_apply(s, run, &sealed, &err));
    check_turns(reader, run, 3);
    OK(hy_store_apply(s, run, &c, &err));
    check_turns(reader, run, 4);
    OK(hy_changes_run_state(&c, HY_RUN_FAILED, NULL));
    hy_changes_clear(&c);
    OK(hy_changes_run_state(&c, HY_RUN_DONE, "well"));
    OK(hy_store_apply(s, run, &c, &err));
    hy_changes_clear(&c);
    hy_changes_clear(&sealed);
    hy_store_close(reader);
    hy_store_close(s);
}

HY_TEST_WITH(test_changes_that_cannot_be_applied_leave_nothing_and_are_applied_again, new_project, no_project)
{
    int64_t run;
    struct hy_store *s, *other;
    struct hy_changes c;

    setenv("HOPYARD_TEST_STORE_WAIT_MS", "20", 1);
    s = store_with_run(true, &run);
    other = open_store(HY_STORE_WRITE);
    hy_changes_init(&c);
    assert_int_equal(record_turn(&c, 1), 0);
    assert_int_equal(record_turn(&c, 2), 0);
    OK(hy_store_note_add(other, run, &(struct hy_note_row){.time = 77, .text = "a note"}, &err)); /* it has the lock */
    for (int i = 0; i < 3; i++)
        FAILS(hy_store_apply(s, run, &c, &err), -EBUSY, "is in use");
    hy_store_close(other); /* rolls its turn back */
    OK(hy_store_apply(s, run, &c, &err));
    check_turns(s, run, 2);
    FAILS(hy_store_apply(s, run, &c, &err), -EEXIST, "has a trial 1 already"); /* not twice by mistake */
    check_turns(s, run, 2);
    hy_changes_clear(&c);
    hy_store_close(s);
}

static int apply_with_fault(const struct hy_changes *c, enum hy_seam seam, long position)
{
    int64_t run;
    struct hy_store *s;
    int rc;

    new_project(NULL); /* it disarms the seams */
    s = store_with_run(true, &run);
    hy_fault_arm(seam, position);
    rc = hy_store_apply(s, run, c, &err);
    hy_fault_arm(seam, 0);
    if (rc < 0 && rc != -ESTALE) { /* then it was committed, and the look at the files failed */
        assert_int_equal(count_trials(s, run), 0);
        OK(hy_store_apply(s, run, c, &err));
    }
    check_turns(s, run, 2);
    hy_store_close(s);
    no_project(NULL);
    return rc;
}

static void each_fault_of(enum hy_seam seam)
{
    struct hy_changes c;
    int failures = 0;

    hy_changes_init(&c);
    assert_int_equal(record_turn(&c, 1), 0);
    assert_int_equal(record_turn(&c, 2), 0);
    for (long n = 1; n <= 60; n++)
        failures += apply_with_fault(&c, seam, n) < 0;
    assert_true(failures > 3);
    hy_changes_clear(&c);
    new_project(NULL); /* for the teardown */
}

HY_TEST_WITH(test_whatever_fails_while_changes_are_applied_they_can_be_applied_again, new_project, no_project)
{
    no_project(NULL);
    each_fault_of(HY_SEAM_SYS);
    no_project(NULL);
    each_fault_of(HY_SEAM_ALLOC);
}

static int record_some(void *arg)
{
    struct hy_changes c;
    int rc;

    (void)arg;
    hy_changes_init(&c);
    rc = record_turn(&c, 1);
    hy_changes_clear(&c);
    return rc;
}

HY_TEST_WITH(test_recording_fails_only_for_want_of_memory, new_project, no_project)
{
    hy_each_fault(HY_SEAM_ALLOC, record_some, NULL);
}

/* ---- stores that somebody removes --------------------------------------------------- */

static void move_away(const char *name)
{
    char to[200];

    snprintf(to, sizeof to, "%s.moved", in_project(name));
    assert_int_equal(rename(in_project(name), to), 0);
}

static void move_back(const char *name)
{
    char from[200];

    snprintf(from, sizeof from, "%s.moved", in_project(name));
    assert_int_equal(rename(from, in_project(name)), 0);
}

HY_TEST_WITH(test_a_store_that_was_deleted_or_replaced_is_noticed_by_the_next_commit, new_project, no_project)
{
    static const char *const names[] = {".hopyard/store.db", ".hopyard/store.db-wal", ".hopyard"};
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);
    struct hy_changes c;
    int64_t number = 0;

    hy_changes_init(&c);
    for (size_t i = 0; i < HY_COUNT(names); i++) {
        move_away(names[i]);
        assert_int_equal(record_turn(&c, ++number), 0);
        FAILS(hy_store_apply(s, run, &c, &err), -ESTALE, "was deleted or replaced");
        hy_changes_clear(&c);
        if (i < 2) { /* another file in its place does not help */
            put_file(in_project(names[i]), "", 0);
            FAILS(hy_store_check_files(s, &err), -ESTALE, "was deleted or replaced");
        }
        move_back(names[i]);
        OK(hy_store_check_files(s, &err));
    }
    check_turns(s, run, 3);
    hy_store_close(s);
}
