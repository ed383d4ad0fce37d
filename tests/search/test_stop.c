/* SPDX-License-Identifier: Apache-2.0 */
/* Early stopping without rungs: divergence, the median rule, patience; and what all rules have in common. */
#include "stop_bench.h"

static const enum hy_stop_kind all_kinds[] = {HY_STOP_NONE,    HY_STOP_MEDIAN, HY_STOP_PATIENCE,
                                              HY_STOP_HALVING, HY_STOP_ASHA,   HY_STOP_HYPERBAND};

/* Valid for each kind. */
static struct hy_stop_settings settings_of(enum hy_stop_kind kind)
{
    return (struct hy_stop_settings){.kind = kind, .max_step = 27, .patience = 100};
}

/* ---- settings --------------------------------------------------------------- */

static void assert_refused(struct hy_stop_settings settings, const char *sentence)
{
    struct hy_stopper *s = NULL;
    struct hy_err err = {0};

    assert_int_equal(hy_stopper_new(&settings, &s, &err), -EINVAL);
    assert_null(s);
    assert_string_equal(hy_sentence_of(&err), sentence);
    assert_int_equal(hy_stop_round_trials(&settings), 0);
}

#define REFUSED(sentence, ...) assert_refused((struct hy_stop_settings){__VA_ARGS__}, sentence)

HY_TEST(test_invalid_settings_are_refused_with_their_option)
{
    REFUSED("invalid kind of early stopping 9", .kind = (enum hy_stop_kind)9);
    REFUSED("--stop-min takes a number of steps, not -1", .kind = HY_STOP_MEDIAN, .min_step = -1);
    REFUSED("--stop-max takes a number of steps, not -3", .kind = HY_STOP_MEDIAN, .max_step = -3);
    REFUSED("--stop-max is 5, but must be greater than --stop-min 5", .kind = HY_STOP_MEDIAN, .min_step = 5,
            .max_step = 5);
    REFUSED("min_trials is 257, but the median is that of 256 trials at most", .kind = HY_STOP_MEDIAN,
            .min_trials = 257);
    REFUSED("--patience takes a number of steps from 1, not 0", .kind = HY_STOP_PATIENCE);
    REFUSED("--min-delta takes a finite number from 0, not -0.5", .kind = HY_STOP_PATIENCE, .patience = 1,
            .min_delta = -0.5);
    REFUSED("--min-delta takes a finite number from 0, not nan", .kind = HY_STOP_PATIENCE, .patience = 1,
            .min_delta = NAN);
    REFUSED("--reduction takes a number from 2, not 1", .kind = HY_STOP_ASHA, .reduction = 1);
    REFUSED("--stop-max is required for Hyperband: the number of steps of a whole trial", .kind = HY_STOP_HYPERBAND);
    REFUSED("--stop-max is required for successive halving: the number of steps of a whole trial",
            .kind = HY_STOP_HALVING);
    REFUSED("--stop-max is 11, but must be at least --stop-min 3 times --reduction 4", .kind = HY_STOP_ASHA,
            .min_step = 3, .max_step = 11, .reduction = 4);
    REFUSED("--stop-min 1 is too small for --stop-max 9223372036854775807 and --reduction 2: with 62 rungs, more than "
            "1000000 trials start together",
            .kind = HY_STOP_HALVING, .max_step = INT64_MAX, .reduction = 2);
    REFUSED("--stop-min 1 is too small for --stop-max 4000000000 and --reduction 2000000000: with 1 rungs, more than "
            "1000000 trials start together",
            .kind = HY_STOP_HYPERBAND, .max_step = 4000000000, .reduction = 2000000000);
}

HY_TEST(test_settings_of_other_kinds_are_ignored)
{
    hy_stopper_free(STOPPER(.kind = HY_STOP_NONE, .reduction = 1, .patience = -1, .min_delta = NAN));
    hy_stopper_free(STOPPER(.kind = HY_STOP_ASHA, .patience = -1, .min_delta = NAN, .trials = 1));
    hy_stopper_free(STOPPER(.kind = HY_STOP_MEDIAN, .reduction = 1));
}

/* ---- all kinds -------------------------------------------------------------- */

HY_TEST(test_a_trial_that_diverges_stops_with_every_rule)
{
    static const double diverged[] = {NAN, INFINITY, -INFINITY};

    for (size_t k = 0; k < HY_COUNT(all_kinds); k++)
        for (size_t i = 0; i < HY_COUNT(diverged); i++) {
            struct hy_stopper *s = stopper_of(settings_of(all_kinds[k]));

            add_trials(s, 1, 2);
            assert_int_equal(hy_stopper_report(s, 1, 0, 1), GO);
            assert_int_equal(hy_stopper_report(s, 1, 0, diverged[i]), STOP); /* also at an old step */
            assert_int_equal(hy_stopper_report(s, 1, 1, 1), STOP);
            assert_int_equal(hy_stopper_report(s, 2, -1, diverged[i]), STOP);
            hy_stopper_end(s, 1);
            hy_stopper_end(s, 2);
            hy_stopper_free(s);
        }
}

HY_TEST(test_only_trials_that_run_can_report)
{
    for (size_t k = 0; k < HY_COUNT(all_kinds); k++) {
        struct hy_stopper *s = stopper_of(settings_of(all_kinds[k]));

        assert_int_equal(hy_stopper_report(s, 1, 0, 1), -ENOENT);
        hy_stopper_end(s, 1);
        add_trials(s, 1, 1);
        assert_int_equal(hy_stopper_add(s, 1), -EEXIST);
        assert_int_equal(hy_stopper_report(s, 1, 0, 1), GO);
        assert_int_equal(hy_stopper_restore(s, 1, GO), -EINVAL);
        assert_int_equal(hy_stopper_restore(s, 2, GO), -ENOENT);
        hy_stopper_end(s, 1);
        hy_stopper_end(s, 1);
        assert_int_equal(hy_stopper_report(s, 1, 1, 1), -ENOENT);
        assert_int_equal(hy_stopper_add(s, 1), -EEXIST);
        add_trials(s, 3, 3);
        assert_int_equal(hy_stopper_add(s, 2), -EEXIST);
        hy_stopper_free(s);
    }
}

HY_TEST(test_rules_without_rungs_pause_nothing)
{
    for (size_t k = 0; k < 3; k++) {
        struct hy_stopper *s = stopper_of(settings_of(all_kinds[k]));
        enum hy_decision decision;
        uint64_t trial;

        add_trials(s, 1, 1);
        hy_stopper_close(s);
        assert_int_equal(hy_stopper_next(s, true, &trial, &decision), 0);
        assert_false(hy_stopper_can_promote(s));
        assert_int_equal(hy_stopper_rung_count(s), 0);
        assert_int_equal(hy_stop_round_trials(&(struct hy_stop_settings){.kind = all_kinds[k]}), 0);
        hy_stopper_free(s);
    }
}

/* From max_step on, only divergence stops a trial. */
HY_TEST(test_a_trial_at_its_last_step_completes)
{
    for (size_t k = 0; k < HY_COUNT(all_kinds); k++) {
        struct hy_stop_settings settings = settings_of(all_kinds[k]);
        struct hy_stopper *s;

        settings.patience = 1;
        s = stopper_of(settings);
        add_trials(s, 1, 10);
        for (uint64_t i = 1; i <= 10; i++) {
            assert_int_equal(hy_stopper_report(s, i, 0, 1), GO);
            assert_int_equal(hy_stopper_report(s, i, 27, 100), GO);
            assert_int_equal(hy_stopper_report(s, i, 28, 100), GO);
            assert_int_equal(hy_stopper_report(s, i, 5, 100), GO);
        }
        assert_int_equal(hy_stopper_report(s, 1, 29, NAN), STOP);
        hy_stopper_free(s);
    }
}

/* ---- patience --------------------------------------------------------------- */

HY_TEST(test_patience_ends_after_steps_without_improvement)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_PATIENCE, .patience = 3);

    add_trials(s, 1, 1);
    assert_int_equal(hy_stopper_report(s, 1, 10, 5), GO);
    assert_int_equal(hy_stopper_report(s, 1, 12, 5), GO); /* equal is not better */
    assert_int_equal(hy_stopper_report(s, 1, 13, 4), GO); /* in time */
    assert_int_equal(hy_stopper_report(s, 1, 15, 6), GO);
    assert_int_equal(hy_stopper_report(s, 1, 16, 4), STOP);
    assert_int_equal(hy_stopper_report(s, 1, 17, 0), STOP);
    hy_stopper_free(s);
}

HY_TEST(test_patience_counts_steps_and_not_reports)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_PATIENCE, .patience = 100);

    add_trials(s, 1, 2);
    assert_int_equal(hy_stopper_report(s, 1, 0, 5), GO);
    assert_int_equal(hy_stopper_report(s, 1, 100, 6), STOP);
    for (int64_t step = 0; step < 100; step++)
        assert_int_equal(hy_stopper_report(s, 2, step, 6), GO);
    assert_int_equal(hy_stopper_report(s, 2, 100, 6), STOP);
    hy_stopper_free(s);
}

HY_TEST(test_small_improvements_count_when_they_add_up)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_PATIENCE, .patience = 3, .min_delta = 1);

    add_trials(s, 1, 2);
    assert_int_equal(hy_stopper_report(s, 1, 0, 8), GO);
    assert_int_equal(hy_stopper_report(s, 1, 1, 7.5), GO);
    assert_int_equal(hy_stopper_report(s, 1, 2, 7), GO); /* exactly min_delta, so it counts */
    assert_int_equal(hy_stopper_report(s, 1, 3, 6.75), GO);
    assert_int_equal(hy_stopper_report(s, 1, 4, 6.5), GO);
    assert_int_equal(hy_stopper_report(s, 1, 5, 6.25), STOP);
    hy_stopper_free(s);
}

HY_TEST(test_no_trial_ends_before_the_minimum)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_PATIENCE, .patience = 1, .min_step = 10);
    struct hy_stopper *m = STOPPER(.kind = HY_STOP_MEDIAN, .min_trials = 1, .min_step = 10);

    add_trials(s, 1, 1);
    add_trials(m, 1, 2);
    for (int64_t step = 0; step < 10; step++) {
        assert_int_equal(hy_stopper_report(s, 1, step, 1), GO);
        assert_int_equal(hy_stopper_report(m, 1, step, 1), GO);
        assert_int_equal(hy_stopper_report(m, 2, step, 2), GO);
    }
    assert_int_equal(hy_stopper_report(m, 1, 10, 1), GO);
    assert_int_equal(hy_stopper_report(s, 1, 10, 1), STOP);
    assert_int_equal(hy_stopper_report(m, 2, 10, 2), STOP);
    hy_stopper_free(s);
    hy_stopper_free(m);
}

/* ---- the median rule --------------------------------------------------------- */

HY_TEST(test_median_stops_the_worse_half)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_MEDIAN);
    static const int want[8] = {GO, GO, GO, GO, GO, STOP, GO, STOP};
    static const double values[8] = {5, 1, 4, 2, 3, 3.25, 3, 3.125};

    add_trials(s, 1, 8);
    for (uint64_t i = 0; i < 8; i++) /* the median of 5 is 3; of 6 is 3.125; of 7 is 3 */
        assert_int_equal(hy_stopper_report(s, i + 1, 1, values[i]), want[i]);
    hy_stopper_free(s);
}

HY_TEST(test_median_compares_the_best_with_means)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_MEDIAN, .min_trials = 1);

    add_trials(s, 1, 3);
    assert_int_equal(hy_stopper_report(s, 1, 1, 8), GO);
    assert_int_equal(hy_stopper_report(s, 1, 2, 4), GO); /* its mean is 6 */
    assert_int_equal(hy_stopper_report(s, 2, 1, 5), GO);
    assert_int_equal(hy_stopper_report(s, 2, 2, 20), GO); /* its best is 5, its mean 12.5: the median becomes 9.25 */
    assert_int_equal(hy_stopper_report(s, 3, 2, 9.5), STOP);
    hy_stopper_free(s);
}

HY_TEST(test_equal_trials_are_not_worse_than_the_median)
{
    static const double values[] = {0.1, -0.1, 0, 5e-324, 1.7e308, -1.7e308};

    for (size_t v = 0; v < HY_COUNT(values); v++) {
        struct hy_stopper *s = STOPPER(.kind = HY_STOP_MEDIAN);

        add_trials(s, 1, 20);
        for (int64_t step = 0; step < 200; step++)
            for (uint64_t i = 1; i <= 20; i++)
                assert_int_equal(hy_stopper_report(s, i, step, values[v]), GO);
        hy_stopper_free(s);
    }
}

HY_TEST(test_huge_values_of_both_signs_are_compared)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_MEDIAN, .min_trials = 2);

    add_trials(s, 1, 4);
    for (int64_t step = 0; step < 50; step++) /* means near 0 */
        for (uint64_t i = 1; i <= 2; i++)
            assert_int_equal(hy_stopper_report(s, i, step, (step + (int64_t)i) % 2 ? 1.7e308 : -1.7e308), GO);
    for (int64_t step = 0; step < 50; step++) {
        assert_int_equal(hy_stopper_report(s, 3, step, -1.7e308), GO);
        assert_int_equal(hy_stopper_report(s, 4, step, 1.7e308), STOP);
    }
    hy_stopper_free(s);
}

HY_TEST(test_later_trials_are_compared_with_the_latest_ones)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_MEDIAN, .maximize = true);
    uint64_t n = 2 * HY_STOP_WINDOW;

    add_trials(s, 1, 3 * n);
    for (uint64_t i = 1; i <= n; i++)
        assert_int_equal(hy_stopper_report(s, i, 1, 1), GO);
    for (uint64_t i = n + 1; i <= 2 * n; i++)
        assert_int_equal(hy_stopper_report(s, i, 1, 2), GO);
    for (uint64_t i = 2 * n + 1; i <= 3 * n; i++) /* the median is above 1 until more than half of the window is 1 */
        assert_int_equal(hy_stopper_report(s, i, 1, 1), i <= 2 * n + HY_STOP_WINDOW / 2 + 1 ? STOP : GO);
    hy_stopper_free(s);
}

HY_TEST(test_steps_of_any_size_are_compared_with_near_ones)
{
    for (int bits = 0; bits < 63; bits++) {
        struct hy_stopper *s = STOPPER(.kind = HY_STOP_MEDIAN, .min_trials = 1);
        int64_t step = (int64_t)1 << bits;

        add_trials(s, 1, 4);
        assert_int_equal(hy_stopper_report(s, 1, step, 1), GO);
        assert_int_equal(hy_stopper_report(s, 2, step - 1, 2), GO);              /* not the same step */
        assert_int_equal(hy_stopper_report(s, 3, step + step / 32 + 1, 2), GO);  /* 3% later neither */
        assert_int_equal(hy_stopper_report(s, 4, step + step / 128, 2), STOP); /* 0.8% later is the same */
        hy_stopper_free(s);
    }
    for (int i = 0; i < 2; i++) {
        struct hy_stopper *s = STOPPER(.kind = HY_STOP_MEDIAN, .min_trials = 1);

        add_trials(s, 1, 2);
        assert_int_equal(hy_stopper_report(s, 1, i ? INT64_MAX : INT64_MIN, 1), GO);
        assert_int_equal(hy_stopper_report(s, 2, i ? INT64_MAX : INT64_MIN, 2), i ? STOP : GO);
        hy_stopper_free(s);
    }
}

HY_TEST(test_a_trial_counts_once_at_near_steps)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_MEDIAN, .min_trials = 2);

    add_trials(s, 1, 4);
    for (int64_t step = 1024; step < 1028; step++)
        assert_int_equal(hy_stopper_report(s, 1, step, 1), GO);
    assert_int_equal(hy_stopper_report(s, 2, 1024, 2), GO);
    assert_int_equal(hy_stopper_report(s, 2, 1025, 2), GO); /* not compared again */
    assert_int_equal(hy_stopper_report(s, 3, 1026, 2), STOP);
    assert_int_equal(hy_stopper_report(s, 4, 1027, 1), GO);
    hy_stopper_free(s);
}

/* ---- random histories, against the rules as they are written --------------------- */

#define TRIALS 40
#define STEPS 60

struct curve {
    double best, sum, reference;
    int64_t last, improved;
    int reports;
    bool is_stopped;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median_of(const double *values, size_t n)
{
    double sorted[TRIALS];

    memcpy(sorted, values, n * sizeof *values);
    qsort(sorted, n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* Steps below 128 have a cell each. */
static int median_by_hand(struct curve *c, int64_t step, double cost)
{
    static double means[STEPS][TRIALS];
    static size_t counts[STEPS];
    int decision = GO;

    if (!c) {
        memset(counts, 0, sizeof counts);
        return GO;
    }
    c->best = fmin(c->best, cost);
    c->sum += cost;
    c->reports++;
    if (step >= 3 && counts[step] >= 4 && c->best > median_of(means[step], counts[step]))
        decision = STOP;
    means[step][counts[step]++] = c->sum / c->reports;
    return decision;
}

static int patience_by_hand(struct curve *c, int64_t step, double cost)
{
    if (!c)
        return GO;
    if (c->reference - cost >= 2) {
        c->reference = cost;
        c->improved = step;
    } else if (step >= 3 && step - c->improved >= 6) {
        return STOP;
    }
    return GO;
}

static int expected(struct curve *c, int64_t step, double cost, int (*rule)(struct curve *, int64_t, double))
{
    if (c->is_stopped)
        return STOP;
    if (isnan(cost)) {
        c->is_stopped = true;
        return STOP;
    }
    if (step <= c->last)
        return GO;
    c->last = step;
    c->is_stopped = rule(c, step, cost) == STOP;
    return c->is_stopped ? STOP : GO;
}

static void run_history(struct hy_stop_settings settings, uint64_t seed, int (*rule)(struct curve *, int64_t, double))
{
    struct hy_stopper *s[2];
    struct curve curves[TRIALS];
    int64_t at[TRIALS] = {0};
    struct hy_rng rng;
    int stopped = 0;

    hy_rng_seed(&rng, seed, 0);
    rule(NULL, 0, 0);
    for (int m = 0; m < 2; m++) {
        settings.maximize = m;
        s[m] = stopper_of(settings);
        add_trials(s[m], 1, TRIALS);
    }
    for (size_t i = 0; i < TRIALS; i++) {
        curves[i] = (struct curve){.best = INFINITY, .reference = INFINITY, .last = -1};
        at[i] = (int64_t)hy_rng_below(&rng, 2);
    }
    for (int n = 0; n < TRIALS * STEPS; n++) {
        size_t i = (size_t)hy_rng_below(&rng, TRIALS);
        uint64_t event = hy_rng_below(&rng, 100);
        double cost = event == 0 ? NAN : (double)hy_rng_below(&rng, 8) + 20.0 / (double)(1 + at[i] + (int64_t)i);
        int want;

        if (event < 3)
            at[i] = 0; /* a retry */
        else if (event < 20)
            at[i] = hy_rng_below(&rng, 2) && at[i] > 0 ? at[i] - 1 : at[i]; /* out of order, twice */
        else
            at[i] += event < 90 ? 1 : 3;
        at[i] = at[i] < STEPS ? at[i] : STEPS - 1;
        want = expected(&curves[i], at[i], cost, rule);
        assert_int_equal(hy_stopper_report(s[0], i + 1, at[i], cost), want);
        assert_int_equal(hy_stopper_report(s[1], i + 1, at[i], -cost), want);
    }
    for (size_t i = 0; i < TRIALS; i++)
        stopped += curves[i].is_stopped;
    assert_in_range(stopped, 5, TRIALS);
    hy_stopper_free(s[0]);
    hy_stopper_free(s[1]);
}

HY_TEST(test_median_decides_as_described)
{
    for (uint64_t seed = 1; seed <= 50; seed++)
        run_history((struct hy_stop_settings){.kind = HY_STOP_MEDIAN, .min_trials = 4, .min_step = 3}, seed,
                    median_by_hand);
}

HY_TEST(test_patience_decides_as_described)
{
    for (uint64_t seed = 1; seed <= 50; seed++)
        run_history((struct hy_stop_settings){.kind = HY_STOP_PATIENCE, .patience = 6, .min_step = 3, .min_delta = 2},
                    seed, patience_by_hand);
}

/* ---- memory ----------------------------------------------------------------- */

/* Trials that have ended leave nothing behind but the last means at each of a few hundred steps. */
HY_TEST(test_memory_of_the_median_does_not_grow_with_the_trials)
{
    struct hy_stopper *s = STOPPER(.kind = HY_STOP_MEDIAN);
    long once, later;

    hy_fault_arm(HY_SEAM_ALLOC, 0);
    for (uint64_t i = 1; i <= 600; i++) {
        long before = hy_fault_passed(HY_SEAM_ALLOC);

        assert_int_equal(hy_stopper_add(s, i), 0);
        once = hy_fault_passed(HY_SEAM_ALLOC) - before;
        for (int64_t step = 0; step < 100000; step += 1 + step / 50)
            assert_int_equal(hy_stopper_report(s, i, step, 1), GO);
        hy_stopper_end(s, i);
        later = hy_fault_passed(HY_SEAM_ALLOC) - before;
        if (i > HY_STOP_WINDOW)
            assert_int_equal(later, once);
    }
    assert_int_equal(once, 1);
    hy_stopper_free(s);
}

/* ---- allocation failures ------------------------------------------------------- */

/* What found no memory is called again, and the decisions are those of a run without failures. */
static int stop_scenario(void *arg)
{
    struct hy_stopper *s = NULL;
    static int want[HY_COUNT(all_kinds)];
    const struct hy_stop_settings *settings = arg;
    int stopped = 0, rc = hy_stopper_new(settings, &s, NULL);

    if (rc < 0)
        return rc;
    for (uint64_t i = 1; i <= 20; i++) {
        while ((rc = hy_stopper_add(s, i)) == -ENOMEM)
            assert_int_equal(hy_stopper_report(s, i, 0, 1), -ENOENT);
        assert_int_equal(rc, 0);
        for (int64_t step = 0; step < 20; step++) {
            while ((rc = hy_stopper_report(s, i, step, (double)(i % 7) + 1.0 / (double)(step + 1))) == -ENOMEM)
                ;
            assert_in_range(rc, GO, PAUSE);
            stopped = stopped * 7 % 1000003 + rc;
        }
    }
    hy_stopper_free(s);
    want[settings->kind] = want[settings->kind] ? want[settings->kind] : stopped + 1;
    assert_int_equal(stopped + 1, want[settings->kind]);
    return 0;
}

HY_TEST(test_stoppers_survive_failing_allocations)
{
    for (size_t k = 0; k < HY_COUNT(all_kinds); k++) {
        struct hy_stop_settings settings = settings_of(all_kinds[k]);

        settings.patience = 5;
        hy_each_fault(HY_SEAM_ALLOC, stop_scenario, &settings);
    }
}
