/* SPDX-License-Identifier: Apache-2.0 */
/* What every search that learns promises: TPE and CMA-ES. */
#include "search_bench.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"

#define DIMS 6
#define TRIALS 120
#define OPEN_MAX_TRIALS 4

static const enum hy_search_kind kinds[] = {HY_SEARCH_TPE, HY_SEARCH_CMA};

/* Each kind of dimension; `momentum` is inactive in half of the space. */
static struct hy_space mixed(void)
{
    return SPACE("x=-5.0..5.0", "lr=log:1e-5..1e-1", "layers=1..4", "units=16..256 step 16", "optimizer=sgd,adam",
                 "momentum=0.5..0.99 if optimizer == sgd");
}

static struct hy_search *search_of(enum hy_search_kind kind, uint64_t seed)
{
    struct hy_space space = mixed();
    struct hy_search_settings settings = settings_of(kind, seed);

    settings.samples = TRIALS;
    settings.asynchronous = true;
    return search_take(&space, settings);
}

static double cost_of(const struct hy_value *v)
{
    double x = v[0].number - 1.5, layers = v[2].number - 3;

    return x * x + layers * layers + (v[4].number == 0 ? v[5].number : 1);
}

struct history {
    struct hy_value values[TRIALS][DIMS];
    uint64_t told[TRIALS]; /* numbers of trials, in the order of tells */
    size_t asked, told_count;
};

/* Up to OPEN_MAX_TRIALS trials are open; which of them is told next is drawn. Every ninth has failed. */
static void continue_to(struct hy_search *s, struct history *h, size_t trials, struct hy_rng *rng)
{
    uint64_t open[OPEN_MAX_TRIALS];
    size_t n = 0;

    for (size_t i = 0; i < h->asked; i++) { /* those that are open already */
        bool is_told = false;

        for (size_t k = 0; k < h->told_count; k++)
            is_told |= h->told[k] == i + 1;
        if (!is_told)
            open[n++] = i + 1;
    }
    while (h->told_count < trials) {
        if (n < OPEN_MAX_TRIALS && h->asked < trials) {
            open[n] = ask(s, h->values[h->asked]);
            assert_int_equal(open[n++], ++h->asked);
        } else {
            size_t i = (size_t)hy_rng_below(rng, n);
            uint64_t number = open[i];

            open[i] = open[--n];
            h->told[h->told_count++] = number;
            assert_int_equal(hy_search_tell(s, number, number % 9 ? cost_of(h->values[number - 1]) : NAN), 0);
        }
    }
}

static bool is_same(struct hy_value a, struct hy_value b)
{
    return a.number == b.number || (isnan(a.number) && isnan(b.number));
}

HY_TEST(test_values_have_their_types_and_bounds)
{
    for (size_t k = 0; k < HY_COUNT(kinds); k++) {
        struct hy_search *s = search_of(kinds[k], 1);
        struct history h = {0};
        struct hy_rng rng;
        struct hy_value none[DIMS];
        uint64_t number;

        hy_rng_seed(&rng, 1, 1);
        continue_to(s, &h, TRIALS, &rng);
        for (size_t i = 0; i < TRIALS; i++) {
            const struct hy_value *v = h.values[i];

            assert_true(v[0].number >= -5 && v[0].number <= 5);
            assert_true(v[1].number >= 1e-5 && v[1].number <= 1e-1);
            assert_true(v[2].number >= 1 && v[2].number <= 4 && v[2].number == floor(v[2].number));
            assert_true(v[3].number >= 16 && v[3].number <= 256 && fmod(v[3].number, 16) == 0);
            assert_true(v[4].number == 0 || v[4].number == 1);
            assert_true(v[4].number == 0 ? v[5].number >= 0.5 && v[5].number <= 0.99 : isnan(v[5].number));
        }
        assert_int_equal(hy_search_ask(s, &number, none), -ENODATA);
        hy_search_free(s);
    }
}

HY_TEST(test_the_same_seed_gives_the_same_trials)
{
    for (size_t k = 0; k < HY_COUNT(kinds); k++) {
        struct history h[3] = {0};
        size_t different = 0;

        for (size_t i = 0; i < 3; i++) {
            struct hy_search *s = search_of(kinds[k], i < 2 ? 7 : 8);
            struct hy_rng rng;

            hy_rng_seed(&rng, 2, 1);
            continue_to(s, &h[i], 60, &rng);
            hy_search_free(s);
        }
        for (size_t i = 0; i < 60 * DIMS; i++) {
            assert_true(is_same(h[0].values[i / DIMS][i % DIMS], h[1].values[i / DIMS][i % DIMS]));
            different += !is_same(h[0].values[i / DIMS][i % DIMS], h[2].values[i / DIMS][i % DIMS]);
        }
        assert_true(different > 100);
    }
}

/* Only values are stored: the restored search continues with the same trials. */
HY_TEST(test_a_restored_search_continues_as_if_uninterrupted)
{
    for (size_t k = 0; k < HY_COUNT(kinds); k++) {
        struct hy_search *s = search_of(kinds[k], 3), *restored = search_of(kinds[k], 3);
        struct history h = {0}, again;
        struct hy_rng rng, rng_again;
        size_t told = 0;

        assert_true(hy_search_takes_values(restored));
        hy_rng_seed(&rng, 3, 1);
        continue_to(s, &h, 50, &rng);
        for (size_t i = 0; i < h.asked; i++) {
            assert_int_equal(hy_search_restore(restored, h.values[i]), 0);
            while (told < h.told_count && h.told[told] <= i + 1) { /* not before it was asked for */
                uint64_t number = h.told[told++];

                assert_int_equal(hy_search_tell(restored, number, number % 9 ? cost_of(h.values[number - 1]) : NAN), 0);
            }
        }
        assert_int_equal(told, h.told_count);
        again = h;
        rng_again = rng;
        continue_to(s, &h, 80, &rng);
        continue_to(restored, &again, 80, &rng_again);
        for (size_t i = 0; i < 80 * DIMS; i++)
            if (!is_same(h.values[i / DIMS][i % DIMS], again.values[i / DIMS][i % DIMS]))
                fail_msg("%s: trial %zu differs", hy_search_kind_name(kinds[k]), i / DIMS + 1);
        hy_search_free(s);
        hy_search_free(restored);
    }
}

/* Random search needs ten times as many trials for this. */
HY_TEST(test_it_finds_the_minimum_of_a_bowl)
{
    for (size_t k = 0; k < HY_COUNT(kinds); k++) {
        struct hy_space space = SPACE("a=-5.0..5.0", "b=-5.0..5.0", "c=-5.0..5.0");
        struct hy_search_settings settings = settings_of(kinds[k], 5);
        struct hy_search *s;
        double best = INFINITY;

        settings.asynchronous = true;
        s = search_take(&space, settings);
        for (int i = 0; i < TRIALS; i++) {
            struct hy_value v[3];
            uint64_t number = ask(s, v);
            double cost = 0;

            for (int d = 0; d < 3; d++)
                cost += (v[d].number - d) * (v[d].number - d);
            best = fmin(best, cost);
            assert_int_equal(hy_search_tell(s, number, cost), 0);
        }
        if (best > 0.3)
            fail_msg("%s: %g", hy_search_kind_name(kinds[k]), best);
        hy_search_free(s);
    }
}

HY_TEST(test_constraints_hold_for_every_trial)
{
    for (size_t k = 0; k < HY_COUNT(kinds); k++) {
        struct hy_space space = SPACE("a=0.0..1.0", "b=0.0..1.0");
        struct hy_search_settings settings = settings_of(kinds[k], 6);
        struct hy_err err = {0};
        struct hy_search *s;

        assert_int_equal(hy_space_add_constraint(&space, "a + b <= 0.3", &err), 0);
        settings.asynchronous = true;
        s = search_take(&space, settings);
        for (int i = 0; i < 60; i++) {
            struct hy_value v[2];
            uint64_t number = ask(s, v);

            if (v[0].number + v[1].number > 0.3)
                fail_msg("%s: trial %d", hy_search_kind_name(kinds[k]), i + 1);
            assert_int_equal(hy_search_tell(s, number, -v[0].number - v[1].number), 0);
        }
        hy_search_free(s);
    }
}

HY_TEST(test_cma_still_tries_other_integers_when_it_has_converged)
{
    struct hy_space space = SPACE("n=1..9", "x=-5.0..5.0", "y=-5.0..5.0");
    struct hy_search_settings settings = settings_of(HY_SEARCH_CMA, 1);
    struct hy_search *s;
    int others = 0;

    settings.asynchronous = true;
    s = search_take(&space, settings);
    for (int i = 0; i < 400; i++) {
        struct hy_value v[3];
        uint64_t number = ask(s, v);
        double n = v[0].number - 5;

        others += i >= 200 && n != 0;
        assert_int_equal(hy_search_tell(s, number, n * n + v[1].number * v[1].number + v[2].number * v[2].number), 0);
    }
    assert_in_range(others, 2, 100);
    hy_search_free(s);
}

struct scene {
    enum hy_search_kind kind;
    const struct hy_space *space;
};

static int make_and_use(void *arg)
{
    const struct scene *scene = arg;
    struct hy_search_settings settings = settings_of(scene->kind, 4);
    struct hy_search *s = NULL;
    struct hy_err err = {0};
    int rc;

    settings.asynchronous = true;
    rc = hy_search_new(scene->space, &settings, &s, &err);
    for (int i = 0; i < 40 && rc >= 0; i++) {
        struct hy_value v[3];
        uint64_t number;

        rc = hy_search_ask(s, &number, v);
        if (rc == 1)
            rc = hy_search_tell(s, number, v[0].number);
    }
    hy_search_free(s);
    return rc < 0 ? rc : 0;
}

HY_TEST(test_learning_survives_failing_allocations)
{
    struct hy_space space = SPACE("x=-5.0..5.0", "act=relu,tanh", "n=1..9 if x > 0");
    struct hy_err err = {0};

    assert_int_equal(hy_space_add_constraint(&space, "x < 4.5", &err), 0);
    for (size_t k = 0; k < HY_COUNT(kinds); k++)
        hy_each_fault(HY_SEAM_ALLOC, make_and_use, &(struct scene){kinds[k], &space});
    hy_space_done(&space);
}
