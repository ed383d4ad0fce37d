/* SPDX-License-Identifier: Apache-2.0 */
/* Importance: compared with functions whose shares of the variance are known, and errors. */
#include "search_bench.h"

#include <errno.h>

#include "base/mem.h"
#include "base/rng.h"

#define NEAR 0.05
#define PI 3.14159265358979323846

typedef double function(const double *x);

/* Trials at random points of the unit cube. */
static struct hy_trial_columns sample(function *f, size_t dims, size_t trials, uint64_t seed)
{
    struct hy_trial_columns c;
    struct hy_rng rng;
    char name[24];

    hy_trial_columns_init(&c);
    hy_rng_seed(&rng, seed, 0);
    for (size_t i = 0; i < trials; i++) {
        double x[16];
        int rc;

        for (size_t j = 0; j < dims; j++)
            x[j] = hy_rng_double(&rng);
        rc = hy_trial_columns_add(&c, f(x));
        assert_true(rc >= 0);
        for (size_t j = 0; rc == 1 && j < dims; j++) {
            snprintf(name, sizeof name, "x%zu", j);
            assert_int_equal(hy_trial_columns_set_number(&c, name, x[j]), 0);
        }
    }
    assert_int_equal(hy_trial_columns_finish(&c), 0);
    return c;
}

static struct hy_importance importance_of(const struct hy_trial_columns *c)
{
    struct hy_importance m;

    assert_int_equal(hy_importance_init(&m, c), 0);
    return m;
}

static double share(const struct hy_importance *m, size_t param)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->params[i].param == param)
            return m->params[i].share;
    fail_msg("hyperparameter %zu has no share", param);
    return NAN;
}

static double pair_share(const struct hy_importance *m, size_t a, size_t b)
{
    for (size_t i = 0; i < m->pair_count; i++)
        if ((m->pairs[i].first == a && m->pairs[i].second == b) || (m->pairs[i].first == b && m->pairs[i].second == a))
            return m->pairs[i].share;
    return 0;
}

static void check_near(double got, double want, const char *what)
{
    if (!(fabs(got - want) <= NEAR))
        fail_msg("%s: %g instead of %g", what, got, want);
}

/* Compares all shares: `want` has those of single hyperparameters, and the only pair with one is `a` and `b`. */
static void check_shares(function *f, size_t dims, size_t trials, const double *want, size_t a, size_t b, double pair)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct hy_trial_columns c = sample(f, dims, trials, seed);
        struct hy_importance m = importance_of(&c);
        char what[100];

        assert_int_equal(m.count, dims);
        assert_string_equal(m.why, "");
        for (size_t i = 0; i < dims; i++) {
            snprintf(what, sizeof what, "seed %d, x%zu", (int)seed, i);
            check_near(share(&m, i), want[i], what);
            assert_true(i == 0 || m.params[i].share <= m.params[i - 1].share);
        }
        for (size_t i = 0; i < dims; i++)
            for (size_t j = i + 1; j < dims; j++) {
                snprintf(what, sizeof what, "seed %d, x%zu and x%zu", (int)seed, i, j);
                check_near(pair_share(&m, i, j), i == a && j == b ? pair : 0, what);
            }
        hy_importance_done(&m);
        hy_trial_columns_done(&c);
    }
}

/* ---- known shares ------------------------------------------------------------------------------- */

static double additive(const double *x)
{
    return 3 * x[0] + 2 * x[1] + x[2]; /* x[3] has no effect */
}

HY_TEST(test_shares_of_a_sum_are_those_of_its_terms)
{
    check_shares(additive, 4, 1000, (double[]){9 / 14.0, 4 / 14.0, 1 / 14.0, 0}, 0, 0, 0);
}

static double ishigami(const double *x)
{
    double a = PI * (2 * x[0] - 1), b = PI * (2 * x[1] - 1), c = PI * (2 * x[2] - 1);

    return sin(a) + 7 * sin(b) * sin(b) + 0.1 * c * c * c * c * sin(a);
}

HY_TEST(test_shares_of_the_ishigami_function_are_near_the_exact_ones)
{
    check_shares(ishigami, 4, 2000, (double[]){0.3139, 0.4424, 0, 0}, 0, 2, 0.2437);
}

static double product(const double *x)
{
    return (x[0] - 0.5) * (x[1] - 0.5);
}

HY_TEST(test_a_pure_interaction_is_attributed_to_the_pair_alone)
{
    check_shares(product, 4, 1000, (double[]){0, 0, 0, 0}, 0, 1, 1);
}

static double mixed(const double *x)
{
    return x[0] - 0.5 + 6 * (x[1] - 0.5) * (x[2] - 0.5); /* variances 1/12 and 1/4 */
}

HY_TEST(test_an_interaction_is_found_next_to_a_strong_single_effect)
{
    check_shares(mixed, 4, 2000, (double[]){0.25, 0, 0, 0}, 1, 2, 0.75);
}

HY_TEST(test_shares_do_not_depend_on_scale_or_direction)
{
    struct hy_trial_columns linear = sample(additive, 3, 500, 5), logarithmic = sample(additive, 3, 500, 5);
    struct hy_importance a, b;

    for (size_t i = 0; i < 500; i++) {
        logarithmic.params[0].values[i] = pow(10, -6 * (1 - logarithmic.params[0].values[i]));
        logarithmic.metric[i] = -1e300 * logarithmic.metric[i];
    }
    a = importance_of(&linear);
    b = importance_of(&logarithmic);
    for (size_t i = 0; i < 3; i++)
        assert_true(fabs(share(&a, i) - share(&b, i)) < 0.01);
    hy_importance_done(&a);
    hy_importance_done(&b);
    hy_trial_columns_done(&linear);
    hy_trial_columns_done(&logarithmic);
}

HY_TEST(test_one_diverged_trial_does_not_hide_the_others)
{
    struct hy_trial_columns c = sample(additive, 3, 500, 6);
    struct hy_importance m;

    c.metric[17] = 1e30;
    m = importance_of(&c);
    assert_int_equal(m.params[0].param, 0);
    assert_true(share(&m, 0) > 0.4 && share(&m, 1) > 0.15);
    hy_importance_done(&m);
    hy_trial_columns_done(&c);
}

/* ---- kinds of hyperparameters ------------------------------------------------------------------------- */

/* A category of five, in an order that is not that of their effects; a boolean; an integer. */
static struct hy_trial_columns sample_kinds(size_t trials)
{
    static const char *const names[] = {"elu", "gelu", "[64,64]", "relu", "tanh"};
    static const double effects[] = {0, 3, 0, 3, 0};
    struct hy_trial_columns c;
    struct hy_rng rng;

    hy_trial_columns_init(&c);
    hy_rng_seed(&rng, 3, 0);
    for (size_t i = 0; i < trials; i++) {
        size_t choice = hy_rng_below(&rng, 5), flag = hy_rng_below(&rng, 2), layers = hy_rng_below(&rng, 4);

        assert_int_equal(hy_trial_columns_add(&c, effects[choice] + (double)flag + 0.5 * (double)layers), 1);
        assert_int_equal(hy_trial_columns_set_text(&c, "act", names[choice]), 0);
        assert_int_equal(hy_trial_columns_set_text(&c, "bias", flag ? "true" : "false"), 0);
        assert_int_equal(hy_trial_columns_set_number(&c, "layers", (double)layers), 0);
    }
    assert_int_equal(hy_trial_columns_finish(&c), 0);
    return c;
}

HY_TEST(test_categories_booleans_and_integers_have_their_shares)
{
    double act = 9 * 0.24, bias = 0.25, layers = 0.25 * 1.25, all = act + bias + layers;
    struct hy_trial_columns c = sample_kinds(800);
    struct hy_importance m = importance_of(&c);

    assert_int_equal(c.params[0].choice_count, 5);
    assert_string_equal(c.params[0].choices[0], "[64,64]");
    check_near(share(&m, 0), act / all, "act");
    check_near(share(&m, 1), bias / all, "bias");
    check_near(share(&m, 2), layers / all, "layers");
    hy_importance_done(&m);
    hy_trial_columns_done(&c);
}

HY_TEST(test_missing_values_are_a_branch_of_their_own)
{
    struct hy_trial_columns c;
    struct hy_importance m;
    struct hy_rng rng;

    hy_trial_columns_init(&c);
    hy_rng_seed(&rng, 4, 0);
    for (size_t i = 0; i < 600; i++) {
        double momentum = hy_rng_double(&rng);
        bool has_it = hy_rng_below(&rng, 2);

        /* without momentum the value is in the middle of what the others have: not that of a low or a high one */
        assert_int_equal(hy_trial_columns_add(&c, has_it ? (momentum < 0.5 ? 0 : 1) : 5), 1);
        assert_int_equal(hy_trial_columns_set_number(&c, "noise", hy_rng_double(&rng)), 0);
        if (has_it)
            assert_int_equal(hy_trial_columns_set_number(&c, "momentum", momentum), 0);
    }
    assert_int_equal(hy_trial_columns_finish(&c), 0);
    m = importance_of(&c);
    check_near(share(&m, 1), 1, "momentum");
    check_near(share(&m, 0), 0, "noise");
    hy_importance_done(&m);
    hy_trial_columns_done(&c);
}

HY_TEST(test_numbers_and_texts_of_one_hyperparameter_are_a_category)
{
    struct hy_trial_columns c;

    hy_trial_columns_init(&c);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(hy_trial_columns_add(&c, 1), 1);
        if (i % 2)
            assert_int_equal(hy_trial_columns_set_number(&c, "features", 0.5), 0);
        else
            assert_int_equal(hy_trial_columns_set_text(&c, "features", "sqrt"), 0);
    }
    assert_int_equal(hy_trial_columns_finish(&c), 0);
    assert_int_equal(c.params[0].choice_count, 2);
    assert_string_equal(c.params[0].choices[0], "0.5");
    assert_true(c.params[0].values[0] == 1 && c.params[0].values[1] == 0);
    hy_trial_columns_done(&c);
}

HY_TEST(test_categories_may_have_more_choices_than_bins)
{
    struct hy_trial_columns c;
    struct hy_importance m;
    char name[24];

    hy_trial_columns_init(&c);
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(hy_trial_columns_add(&c, i % 3 ? (double)(i % 7) : 10), 1);
        snprintf(name, sizeof name, "data-%zu", i % 3 ? i : 0);
        assert_int_equal(hy_trial_columns_set_text(&c, "data", name), 0);
        assert_int_equal(hy_trial_columns_set_number(&c, "x", (double)(i % 7)), 0);
    }
    assert_int_equal(hy_trial_columns_finish(&c), 0);
    m = importance_of(&c);
    assert_int_equal(m.params[0].param, 0);
    assert_true(m.params[0].share > 0.5);
    hy_importance_done(&m);
    hy_trial_columns_done(&c);
}

HY_TEST(test_a_small_grid_has_shares)
{
    struct hy_trial_columns c;
    struct hy_importance m;

    hy_trial_columns_init(&c);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(hy_trial_columns_add(&c, 4 * (i / 3) + i % 3), 1);
        assert_int_equal(hy_trial_columns_set_number(&c, "lr", i / 3), 0);
        assert_int_equal(hy_trial_columns_set_number(&c, "units", i % 3), 0);
    }
    assert_int_equal(hy_trial_columns_finish(&c), 0);
    m = importance_of(&c);
    assert_true(share(&m, 0) > 0.8 && share(&m, 1) > 0.01);
    hy_importance_done(&m);
    hy_trial_columns_done(&c);
}

/* ---- many trials, and too few --------------------------------------------------------------------------- */

HY_TEST(test_many_trials_are_sampled_and_the_same_ones_each_time)
{
    struct hy_trial_columns c = sample(additive, 3, 20000, 8), again = sample(additive, 3, 20000, 8);
    struct hy_importance m = importance_of(&c), same = importance_of(&again);

    assert_int_equal(c.rows, HY_TRIALS_KEPT);
    assert_int_equal(c.seen, 20000);
    for (size_t i = 0; i < 3; i++) {
        check_near(share(&m, i), (double[]){9 / 14.0, 4 / 14.0, 1 / 14.0}[i], "x");
        assert_true(m.params[i].param == same.params[i].param && m.params[i].share == same.params[i].share);
    }
    for (size_t i = 0; i < m.pair_count; i++)
        assert_true(m.pairs[i].share == same.pairs[i].share);
    hy_importance_done(&m);
    hy_importance_done(&same);
    hy_trial_columns_done(&c);
    hy_trial_columns_done(&again);
}

HY_TEST(test_a_sample_keeps_early_and_late_trials_alike)
{
    struct hy_trial_columns c;
    size_t late = 0;

    hy_trial_columns_init(&c);
    for (size_t i = 0; i < 20000; i++)
        assert_true(hy_trial_columns_add(&c, i < 10000 ? 0 : 1) >= 0);
    for (size_t i = 0; i < c.rows; i++)
        late += c.metric[i] > 0;
    assert_true(late > HY_TRIALS_KEPT * 0.45 && late < HY_TRIALS_KEPT * 0.55);
    hy_trial_columns_done(&c);
}

static double first_dimensions(const double *x)
{
    return 2 * x[0] + x[1];
}

static void check_why(struct hy_trial_columns *c, const char *want)
{
    struct hy_importance m = importance_of(c);

    assert_int_equal(m.count, 0);
    assert_int_equal(m.pair_count, 0);
    assert_string_equal(m.why, want);
    hy_importance_done(&m);
    hy_trial_columns_done(c);
}

HY_TEST(test_there_is_a_reason_where_there_are_no_shares)
{
    struct hy_trial_columns c = sample(first_dimensions, 2, HY_IMPORTANCE_TRIALS_MIN - 1, 1);

    check_why(&c, "at least 8 finished trials with a finite value are needed; there are 7");
    hy_trial_columns_init(&c);
    check_why(&c, "at least 8 finished trials with a finite value are needed; there are 0");
    c = sample(first_dimensions, 0, 10, 1);
    check_why(&c, "the trials have no hyperparameters");
    c = sample(first_dimensions, 2, 10, 1);
    for (size_t i = 0; i < 10; i++)
        c.metric[i] = 3;
    check_why(&c, "all trials have the same value");
    c = sample(first_dimensions, 1, 10, 1);
    for (size_t i = 0; i < 10; i++)
        c.params[0].values[i] = 3;
    check_why(&c, "no hyperparameter has different values in the trials");
}

HY_TEST(test_trials_without_a_finite_value_do_not_count)
{
    struct hy_trial_columns c;

    hy_trial_columns_init(&c);
    assert_int_equal(hy_trial_columns_add(&c, NAN), 0);
    assert_int_equal(hy_trial_columns_add(&c, INFINITY), 0);
    assert_int_equal(hy_trial_columns_add(&c, 1), 1);
    assert_int_equal(c.rows, 1);
    assert_int_equal(c.seen, 1);
    hy_trial_columns_done(&c);
}

HY_TEST(test_a_hyperparameter_with_one_value_has_no_share)
{
    struct hy_trial_columns c = sample(first_dimensions, 3, 100, 2);
    struct hy_importance m;

    for (size_t i = 0; i < 100; i++)
        c.params[2].values[i] = 7;
    m = importance_of(&c);
    assert_int_equal(m.count, 3);
    assert_true(share(&m, 2) == 0);
    hy_importance_done(&m);
    hy_trial_columns_done(&c);
}

HY_TEST(test_too_many_hyperparameters_are_refused)
{
    struct hy_trial_columns c;
    char name[24];

    hy_trial_columns_init(&c);
    assert_int_equal(hy_trial_columns_add(&c, 1), 1);
    for (size_t i = 0; i < HY_TRIAL_COLUMNS_MAX; i++) {
        snprintf(name, sizeof name, "p%zu", i);
        assert_int_equal(hy_trial_columns_set_number(&c, name, 1), 0);
    }
    assert_int_equal(hy_trial_columns_set_number(&c, "one more", 1), -E2BIG);
    assert_int_equal(hy_trial_columns_set_text(&c, "p7", "other"), 0);
    hy_trial_columns_done(&c);
}

HY_TEST(test_pairs_are_of_the_most_useful_of_many_hyperparameters)
{
    struct hy_trial_columns c;
    struct hy_importance m;
    struct hy_rng rng;
    char name[24];

    hy_trial_columns_init(&c);
    hy_rng_seed(&rng, 9, 0);
    for (size_t i = 0; i < 600; i++) {
        double x[40];

        for (size_t j = 0; j < 40; j++)
            x[j] = hy_rng_double(&rng);
        assert_int_equal(hy_trial_columns_add(&c, (x[30] > 0.5) + 2 * ((x[30] > 0.5) == (x[35] > 0.5))), 1);
        for (size_t j = 0; j < 40; j++) {
            snprintf(name, sizeof name, "p%zu", j);
            assert_int_equal(hy_trial_columns_set_number(&c, name, x[j]), 0);
        }
    }
    assert_int_equal(hy_trial_columns_finish(&c), 0);
    m = importance_of(&c);
    assert_int_equal(m.count, 40);
    assert_int_equal(m.pair_count, HY_IMPORTANCE_PAIRS);
    assert_int_equal(m.pairs[0].first, 30);
    assert_int_equal(m.pairs[0].second, 35);
    assert_true(m.pairs[0].share > 0.4);
    hy_importance_done(&m);
    hy_trial_columns_done(&c);
}

/* ---- faults ------------------------------------------------------------------------------------------------ */

static int scenario(void *arg)
{
    hy_cleanup_trial_columns struct hy_trial_columns c;
    hy_cleanup_importance struct hy_importance m = {0};
    int rc = 0;

    (void)arg;
    hy_trial_columns_init(&c);
    for (int i = 0; i < 12 && rc >= 0; i++) {
        rc = hy_trial_columns_add(&c, i);
        if (rc >= 0)
            rc = hy_trial_columns_set_number(&c, "x", i);
        if (rc >= 0)
            rc = hy_trial_columns_set_text(&c, "act", i % 3 ? "relu" : "tanh");
    }
    if (rc >= 0)
        rc = hy_trial_columns_finish(&c);
    return rc < 0 ? rc : hy_importance_init(&m, &c);
}

HY_TEST(test_importance_survives_failed_allocations)
{
    hy_each_fault(HY_SEAM_ALLOC, scenario, NULL);
    hy_some_faults(HY_SEAM_ALLOC, 7, scenario, NULL);
}
