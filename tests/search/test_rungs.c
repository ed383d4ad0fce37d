/* SPDX-License-Identifier: Apache-2.0 */
/* Early stopping with rungs: successive halving, ASHA and Hyperband. */
#include "stop_bench.h"

#include <malloc.h>
#include <pthread.h>

/* ---- steps and sizes ----------------------------------------------------------- */

static void assert_rungs(struct hy_stop_settings settings, const int64_t *steps, size_t count)
{
    struct hy_stopper *s = stopper_of(settings);

    assert_int_equal(hy_stopper_rung_count(s), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(hy_stopper_rung(s, i).step, steps[i]);
    hy_stopper_free(s);
}

#define RUNGS(settings, ...)                                                                                           \
    assert_rungs((struct hy_stop_settings)settings, (const int64_t[]){__VA_ARGS__},                                    \
                 sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define WITH(...) {__VA_ARGS__}

HY_TEST(test_the_last_rung_leaves_a_whole_factor)
{
    RUNGS(WITH(.kind = HY_STOP_ASHA, .max_step = 81), 1, 3, 9, 27);
    RUNGS(WITH(.kind = HY_STOP_ASHA, .max_step = 80), 1, 3, 9);
    RUNGS(WITH(.kind = HY_STOP_ASHA, .max_step = 3), 1);
    RUNGS(WITH(.kind = HY_STOP_HALVING, .min_step = 5, .max_step = 100, .reduction = 4), 5, 20);
    RUNGS(WITH(.kind = HY_STOP_ASHA, .min_step = INT64_MAX / 2, .max_step = INT64_MAX, .reduction = 2), INT64_MAX / 2);
}

static uint64_t round_of(struct hy_stop_settings settings)
{
    hy_stopper_free(stopper_of(settings));
    return hy_stop_round_trials(&settings);
}

#define ROUND(...) round_of((struct hy_stop_settings){__VA_ARGS__})

HY_TEST(test_a_round_of_halving_leaves_one_trial)
{
    assert_int_equal(ROUND(.kind = HY_STOP_HALVING, .max_step = 81), 81);
    assert_int_equal(ROUND(.kind = HY_STOP_HALVING, .min_step = 5, .max_step = 100, .reduction = 4), 16);
    assert_int_equal(ROUND(.kind = HY_STOP_HALVING, .max_step = 81, .trials = 10), 10);
    assert_int_equal(ROUND(.kind = HY_STOP_HALVING, .trials = 2000000), 2000000);
    assert_int_equal(ROUND(.kind = HY_STOP_ASHA, .max_step = 81), 0);
}

/* R = 81, reduction 3: 81, 34, 15, 8 and 5 trials, as in algorithm 1 of the paper. */
HY_TEST(test_hyperband_has_the_brackets_of_the_paper)
{
    static const uint64_t sizes[5] = {81, 34, 15, 8, 5};
    static const int64_t first[5] = {1, 3, 9, 27, 81};
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_HYPERBAND, .max_step = 81);
    uint64_t trial = 0;
    size_t i = 0;

    assert_int_equal(ROUND(.kind = HY_STOP_HYPERBAND, .max_step = 81), 81 + 34 + 15 + 8 + 5);
    assert_int_equal(hy_stopper_rung_count(s), 4 + 3 + 2 + 1);
    for (uint32_t b = 0; b < 4; b++)
        for (int64_t step = first[b]; step < 81; step *= 3, i++) {
            assert_int_equal(hy_stopper_rung(s, i).bracket, b);
            assert_int_equal(hy_stopper_rung(s, i).step, step);
        }
    for (int round = 0; round < 3; round++)
        for (size_t b = 0; b < 5; b++)
            for (uint64_t n = 1; n <= sizes[b]; n++) { /* the last one of a bracket completes its rung */
                add_trials(s, trial + 1, trial + 1);
                trial++;
                assert_int_equal(hy_stopper_report(s, trial, first[b] - 1, 1), GO);
                assert_int_equal(hy_stopper_report(s, trial, first[b], 1), b == 4 ? GO : n < sizes[b] ? PAUSE : STOP);
            }
    hy_stopper_free(s);
}

/* ---- histories by hand ----------------------------------------------------------- */

static void assert_next(struct hy_stopper *s, uint64_t want, enum hy_decision want_decision)
{
    enum hy_decision decision;
    uint64_t trial;

    assert_int_equal(hy_stopper_next(s, true, &trial, &decision), 1);
    assert_int_equal(trial, want);
    assert_int_equal(decision, want_decision);
}

static void assert_no_next(struct hy_stopper *s)
{
    enum hy_decision decision;
    uint64_t trial;

    assert_int_equal(hy_stopper_next(s, true, &trial, &decision), 0);
    assert_false(hy_stopper_can_promote(s));
}

HY_TEST(test_halving_promotes_the_best_when_all_have_arrived)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_HALVING, .max_step = 9);

    add_trials(s, 1, 9);
    for (uint64_t i = 1; i <= 8; i++) {
        assert_int_equal(hy_stopper_report(s, i, 1, (double)(i % 4)), PAUSE); /* 4 and 8 are the best, then 1 and 5 */
        assert_no_next(s);
    }
    assert_int_equal(hy_stopper_report(s, 9, 1, 9), STOP);
    assert_true(hy_stopper_can_promote(s));
    for (uint64_t i = 0; i < 6; i++)
        assert_next(s, (const uint64_t[]){7, 3, 6, 2, 5, 4}[i], i < 5 ? STOP : GO);
    assert_next(s, 8, GO);
    assert_int_equal(hy_stopper_report(s, 4, 3, 1), PAUSE); /* 1 is promoted, but not started yet */
    assert_next(s, 1, GO);
    assert_no_next(s);
    assert_int_equal(hy_stopper_report(s, 8, 3, 1), PAUSE);
    assert_int_equal(hy_stopper_report(s, 1, 3, 0.5), GO);
    assert_next(s, 8, STOP);
    assert_next(s, 4, STOP);
    assert_int_equal(hy_stopper_report(s, 1, 8, 100), GO);
    assert_no_next(s);
    hy_stopper_free(s);
}

HY_TEST(test_asha_prunes_at_once_without_pauses)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_ASHA, .reduction = 2);
    static const int want[8] = {GO, STOP, GO, STOP, STOP, GO, GO, STOP};
    static const double values[8] = {5, 6, 4, 5, 9, 4.5, 4.75, 5};

    add_trials(s, 1, 8);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(hy_stopper_report(s, i + 1, 1, values[i]), want[i]);
    hy_stopper_close(s);
    assert_no_next(s);
    hy_stopper_free(s);
}

HY_TEST(test_asha_promotes_when_the_rung_has_grown)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_ASHA, .reduction = 3, .may_pause = true);

    add_trials(s, 1, 9);
    assert_int_equal(hy_stopper_report(s, 1, 1, 1), PAUSE);
    assert_int_equal(hy_stopper_report(s, 2, 1, 2), PAUSE);
    assert_no_next(s);
    assert_int_equal(hy_stopper_report(s, 3, 1, 3), PAUSE);
    assert_next(s, 1, GO);
    assert_int_equal(hy_stopper_report(s, 1, 3, 1), PAUSE);
    assert_int_equal(hy_stopper_report(s, 4, 1, 0), GO); /* 1 is the second one of 4 now, but it stays promoted */
    assert_int_equal(hy_stopper_report(s, 5, 1, 5), PAUSE);
    assert_no_next(s);
    assert_int_equal(hy_stopper_report(s, 6, 1, 6), PAUSE); /* 2 of 6 */
    assert_no_next(s);
    hy_stopper_end(s, 2); /* the next best one gets its place */
    for (uint64_t i = 7; i <= 9; i++)
        assert_int_equal(hy_stopper_report(s, i, 1, 7), PAUSE);
    assert_next(s, 3, GO);
    assert_no_next(s);
    hy_stopper_free(s);
}

/* Two trials in a rung are less than `reduction`; one continues when no more can arrive. */
HY_TEST(test_one_trial_of_a_final_rung_continues)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_ASHA, .reduction = 4, .may_pause = true);

    add_trials(s, 1, 3);
    hy_stopper_close(s);
    assert_int_equal(hy_stopper_report(s, 1, 1, 1), PAUSE);
    assert_int_equal(hy_stopper_report(s, 2, 1, 2), PAUSE);
    assert_no_next(s);
    hy_stopper_end(s, 3);
    assert_next(s, 2, STOP);
    assert_next(s, 1, GO);
    assert_int_equal(hy_stopper_report(s, 1, 4, 1), GO); /* alone */
    assert_int_equal(hy_stopper_report(s, 1, 1000, 1), GO);
    hy_stopper_free(s);
}

HY_TEST(test_a_rung_does_not_wait_for_failed_trials)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_HALVING, .max_step = 9);

    add_trials(s, 1, 9);
    for (uint64_t i = 1; i <= 5; i++)
        assert_int_equal(hy_stopper_report(s, i, 1, (double)i), PAUSE);
    hy_stopper_end(s, 6);
    assert_int_equal(hy_stopper_report(s, 7, 1, NAN), STOP);
    assert_int_equal(hy_stopper_report(s, 1, 1, NAN), STOP); /* a paused one diverges: 2 is the best now */
    assert_int_equal(hy_stopper_report(s, 8, 9, 0), GO);     /* completes without a rung */
    assert_no_next(s);
    hy_stopper_end(s, 9);
    for (uint64_t i = 5; i >= 3; i--)
        assert_next(s, i, STOP);
    assert_next(s, 2, GO);
    hy_stopper_end(s, 2);
    assert_no_next(s);
    hy_stopper_free(s);
}

HY_TEST(test_a_search_that_waits_closes_and_adds_again)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_HALVING, .max_step = 9, .reduction = 3);

    for (uint64_t first = 1; first < 100; first += 4) {
        add_trials(s, first, first + 3);
        for (uint64_t i = first; i <= first + 3; i++)
            assert_int_equal(hy_stopper_report(s, i, 1, (double)i), PAUSE);
        assert_no_next(s);
        hy_stopper_close(s);
        for (uint64_t i = first + 3; i > first; i--)
            assert_next(s, i, STOP);
        assert_next(s, first, GO);
        assert_int_equal(hy_stopper_report(s, first, 3, 0), GO);
        hy_stopper_end(s, first);
        assert_no_next(s);
    }
    hy_stopper_free(s);
}

HY_TEST(test_promotions_wait_for_room)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_HALVING, .max_step = 9, .reduction = 3, .trials = 3);
    enum hy_decision decision;
    uint64_t trial;

    add_trials(s, 1, 3);
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(hy_stopper_report(s, i, 1, (double)i), i < 3 ? PAUSE : STOP);
    assert_true(hy_stopper_can_promote(s));
    assert_int_equal(hy_stopper_next(s, false, &trial, &decision), 1);
    assert_int_equal(decision, STOP);
    assert_int_equal(hy_stopper_next(s, false, &trial, &decision), 0);
    assert_true(hy_stopper_can_promote(s));
    assert_int_equal(hy_stopper_report(s, 1, 2, 0), PAUSE); /* not until it is returned */
    assert_next(s, 1, GO);
    assert_int_equal(hy_stopper_report(s, 1, 2, 0), GO);
    hy_stopper_free(s);
}

HY_TEST(test_one_report_counts_for_all_rungs_below)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_ASHA, .reduction = 2);

    add_trials(s, 1, 3);
    assert_int_equal(hy_stopper_report(s, 1, 100, 5), GO);
    assert_int_equal(hy_stopper_rung_count(s), 7); /* 1 … 64 */
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(hy_stopper_rung(s, i).promoted, 1);
    assert_int_equal(hy_stopper_report(s, 2, 64, 6), STOP); /* at the first one */
    assert_int_equal(hy_stopper_rung(s, 0).arrived, 2);
    assert_int_equal(hy_stopper_rung(s, 1).arrived, 1);
    assert_int_equal(hy_stopper_report(s, 3, INT64_MAX, 4), GO);
    assert_int_equal(hy_stopper_rung_count(s), 63);
    hy_stopper_free(s);
}

HY_TEST(test_the_highest_rung_is_promoted_first)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_ASHA, .reduction = 2, .may_pause = true);

    add_trials(s, 1, 6);
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(hy_stopper_report(s, i, 1, (double)i), PAUSE);
    for (uint64_t i = 1; i <= 2; i++) {
        assert_next(s, i, GO);
        assert_int_equal(hy_stopper_report(s, i, 2, (double)i), PAUSE);
    }
    for (uint64_t i = 5; i <= 6; i++)
        assert_int_equal(hy_stopper_report(s, i, 1, (double)i), PAUSE);
    assert_next(s, 1, GO); /* to step 4 */
    assert_next(s, 3, GO); /* to step 2 */
    assert_no_next(s);
    hy_stopper_free(s);
}

/* The close is not stored with the run. */
HY_TEST(test_a_restored_decision_ends_its_round)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_HALVING, .max_step = 9);

    add_trials(s, 1, 3);
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(hy_stopper_report(s, i, 1, (double)i), PAUSE);
    assert_int_equal(hy_stopper_restore(s, 3, STOP), 0);
    assert_int_equal(hy_stopper_restore(s, 3, STOP), -EINVAL);
    assert_int_equal(hy_stopper_restore(s, 2, PAUSE), -EINVAL);
    assert_next(s, 2, STOP);
    add_trials(s, 4, 12); /* the next round */
    for (uint64_t i = 4; i <= 11; i++)
        assert_int_equal(hy_stopper_report(s, i, 1, 0), PAUSE);
    assert_next(s, 1, GO);
    assert_int_equal(hy_stopper_report(s, 12, 1, -1), GO);
    hy_stopper_free(s);
}

/* What a trial reports between the decision and its end is repeated after the pause. */
HY_TEST(test_steps_after_a_pause_count_again)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_ASHA, .reduction = 2, .may_pause = true);

    add_trials(s, 1, 2);
    assert_int_equal(hy_stopper_report(s, 1, 5, 5), PAUSE); /* at 1, though it has done 5 */
    assert_int_equal(hy_stopper_report(s, 1, 6, 5), PAUSE);
    assert_int_equal(hy_stopper_report(s, 2, 1, 6), PAUSE);
    assert_next(s, 1, GO);
    assert_int_equal(hy_stopper_report(s, 1, 1, 5), GO); /* from the beginning */
    assert_int_equal(hy_stopper_report(s, 1, 2, 5), PAUSE);
    hy_stopper_free(s);
}

HY_TEST(test_rungs_are_counted_for_display)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_HALVING, .max_step = 4, .reduction = 2);
    struct hy_rung rung;

    add_trials(s, 1, 8); /* two rounds */
    for (uint64_t i = 1; i <= 6; i++)
        hy_stopper_report(s, i, 1, (double)i);
    rung = hy_stopper_rung(s, 0);
    assert_int_equal(rung.arrived, 6);
    assert_int_equal(rung.paused, 5);
    assert_int_equal(rung.promoted, 0);
    assert_next(s, 3, STOP);
    assert_next(s, 1, GO);
    assert_next(s, 2, GO);
    rung = hy_stopper_rung(s, 0);
    assert_int_equal(rung.paused, 2);
    assert_int_equal(rung.promoted, 2);
    hy_stopper_end(s, 5);
    assert_int_equal(hy_stopper_rung(s, 0).paused, 1);
    assert_int_equal(hy_stopper_rung(s, 1).arrived, 0);
    hy_stopper_free(s);
}

/* ---- many trials -------------------------------------------------------------- */

size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated_bytes(void)
{
    return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes() : mallinfo2().uordblks;
}

static void *run_many(void *arg)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_ASHA, .max_step = 27, .may_pause = true);
    uint64_t n = 99999, promoted = 0, trial;
    enum hy_decision decision;
    bool descending = arg;

    add_trials(s, 1, n);
    for (uint64_t i = 1; i <= n; i++)
        promoted += hy_stopper_report(s, i, 1, descending ? -(double)i : (double)i) == GO;
    while (hy_stopper_next(s, true, &trial, &decision))
        promoted += decision == GO;
    assert_int_equal(promoted, descending ? n - 2 : n / 3); /* each is the best so far, from the third one on */
    hy_stopper_free(s);
    return NULL;
}

/* A report takes as many steps as the recursion is deep: a tree that is not balanced overflows the stack. */
HY_TEST(test_a_report_takes_few_steps_in_rungs_of_many_trials)
{
    pthread_attr_t attr;
    pthread_t thread;

    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, 128 << 10), 0);
    for (uintptr_t descending = 0; descending < 2; descending++) {
        assert_int_equal(pthread_create(&thread, &attr, run_many, (void *)descending), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    pthread_attr_destroy(&attr);
}

/* A round that is over leaves nothing behind. */
HY_TEST(test_memory_of_complete_rounds_is_freed)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_HYPERBAND, .max_step = 9);
    uint64_t round = 9 + 5 + 3, trial;
    size_t allocated[40];

    for (uint64_t n = 0; n < HY_COUNT(allocated); n++) {
        enum hy_decision decision;

        for (uint64_t i = n * round + 1; i <= (n + 1) * round; i++) {
            add_trials(s, i, i);
            if (hy_stopper_report(s, i, 3, (double)i) == STOP)
                hy_stopper_end(s, i);
        }
        while (hy_stopper_next(s, true, &trial, &decision))
            hy_stopper_end(s, trial);
        for (uint64_t i = n * round + 1; i <= (n + 1) * round; i++)
            hy_stopper_end(s, i);
        allocated[n] = allocated_bytes();
        assert_true(n == 0 || allocated[n] == allocated[0]);
    }
    hy_stopper_free(s);
}
