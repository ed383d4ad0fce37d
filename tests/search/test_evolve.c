/* SPDX-License-Identifier: Apache-2.0 */
/* Evolution: the textbook's, the same on every machine, and better than chance. */
#include "search_bench.h"

#include <errno.h>

#include "base/mem.h"
#include "base/rng.h"

#define DIMS_MAX 10

/* ---- evolution -------------------------------------------------------------- */

static struct hy_search *evolution(struct hy_space space, uint64_t seed, uint32_t population, uint32_t generations,
                                   bool asynchronous)
{
    struct hy_search_settings settings = settings_of(HY_SEARCH_EVOLVE, seed);

    settings.population = population;
    settings.generations = generations;
    settings.asynchronous = asynchronous;
    return search_take(&space, settings);
}

static double sphere(const struct hy_value *v, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (v[i].number - 1) * (v[i].number - 1);
    return sum;
}

HY_TEST(test_a_generation_waits_for_all_its_answers)
{
    struct hy_search *s = evolution(SPACE("x=0.0..1.0", "y=0.0..1.0"), 1, 5, 3, false);
    struct hy_value v[2];
    uint64_t number;

    assert_int_equal(hy_search_total(s), 15);
    for (uint64_t generation = 0; generation < 3; generation++) {
        for (uint64_t i = 1; i <= 5; i++)
            assert_int_equal(ask(s, v), generation * 5 + i);
        for (uint64_t i = 5; i >= 1; i--) {
            assert_int_equal(hy_search_ask(s, &number, v), generation < 2 ? 0 : -ENODATA);
            assert_int_equal(hy_search_tell(s, generation * 5 + i, (double)i), 0);
        }
    }
    assert_int_equal(hy_search_ask(s, &number, v), -ENODATA);
    hy_search_free(s);
}

/* Runs all trials, `parallel` at a time and answered by chance; returns the best. */
static double minimize(struct hy_search *s, size_t n, size_t parallel, uint64_t trials, uint64_t chance,
                       double (*f)(const struct hy_value *, size_t), double *ret_trace)
{
    struct {
        uint64_t number;
        double cost;
    } open[16];
    double best = INFINITY;
    size_t count = 0;
    uint64_t asked = 0;
    struct hy_rng rng;

    hy_rng_seed(&rng, chance, 0);
    while (asked < trials || count > 0) {
        struct hy_value v[DIMS_MAX];
        size_t i;

        while (count < parallel && asked < trials && hy_search_ask(s, &open[count].number, v) == 1) {
            open[count].cost = f(v, n);
            best = fmin(best, open[count].cost);
            if (ret_trace)
                ret_trace[asked] = v[0].number;
            asked++;
            count++;
        }
        assert_true(count > 0);
        i = (size_t)hy_rng_below(&rng, count);
        assert_int_equal(hy_search_tell(s, open[i].number, open[i].cost), 0);
        open[i] = open[--count];
    }
    return best;
}

HY_TEST(test_order_of_answers_changes_nothing_in_a_generation)
{
    double trace[2][60];

    for (int i = 0; i < 2; i++) {
        struct hy_search *s = evolution(SPACE("x=-5.0..5.0", "n=-5..5", "y=-5.0..5.0"), 9, 6, 10, false);

        minimize(s, 3, i ? 1 : 5, 60, (uint64_t)i, sphere, trace[i]);
        hy_search_free(s);
    }
    assert_memory_equal(trace[0], trace[1], sizeof trace[0]);
}

HY_TEST(test_asynchronous_evolution_repeats_for_the_same_order)
{
    double trace[3][60];

    for (int i = 0; i < 3; i++) {
        struct hy_search *s = evolution(SPACE("x=-5.0..5.0", "n=-5..5", "y=-5.0..5.0"), 9, 6, 10, true);

        minimize(s, 3, 4, 60, i < 2 ? 1 : 2, sphere, trace[i]);
        hy_search_free(s);
    }
    assert_memory_equal(trace[0], trace[1], sizeof trace[0]);
    assert_memory_not_equal(trace[0], trace[2], sizeof trace[0]);
}

HY_TEST(test_asynchronous_evolution_never_waits)
{
    struct hy_search *s = evolution(SPACE("x=0.0..1.0", "y=0.0..1.0"), 1, 5, 20, true);
    struct hy_value v[2];
    uint64_t number;

    for (uint64_t i = 1; i <= 100; i++) {
        assert_int_equal(ask(s, v), i);
        if (i % 10 == 0) /* the slots of some trials stay empty for long */
            assert_int_equal(hy_search_tell(s, i - 3, (double)i), 0);
    }
    assert_int_equal(hy_search_ask(s, &number, v), -ENODATA);
    for (uint64_t i = 100; i >= 1; i--)
        assert_int_equal(hy_search_tell(s, i, (double)i), (i % 10 == 7) ? -ENOENT : 0);
    hy_search_free(s);
}

HY_TEST(test_evolution_is_the_same_on_every_machine)
{
    static const double want[4] = {0x1.ea6f08b29f94p-1, 0x1.86ada7d6f8926p-4, 1, 1};
    struct hy_search *s = evolution(SPACE("x=-5.12..5.12", "lr=log:1e-5..1e-1", "n=1..9", "c=a,b,c"), 42, 0, 0, false);
    struct hy_value v[4];

    for (int i = 0; i < 95; i++) {
        uint64_t number = ask(s, v);

        assert_int_equal(hy_search_tell(s, number, sphere(v, 4)), 0);
    }
    for (size_t j = 0; j < 4; j++)
        if (v[j].number != want[j])
            fail_msg("dimension %zu: %a", j, v[j].number);
    hy_search_free(s);
}

HY_TEST(test_first_generation_is_spread_over_each_dimension)
{
    struct hy_search *s = evolution(SPACE("x=0.0..1.0", "y=0.0..1.0", "c=a,b,c,d"), 4, 8, 1, false);
    unsigned seen[2] = {0};
    int choices[4] = {0};
    struct hy_value v[3];

    for (int i = 0; i < 8; i++) {
        ask(s, v);
        seen[0] |= 1u << (int)(v[0].number * 8);
        seen[1] |= 1u << (int)(v[1].number * 8);
        choices[(int)v[2].number]++;
    }
    assert_int_equal(seen[0], 0xff);
    assert_int_equal(seen[1], 0xff);
    for (int i = 0; i < 4; i++)
        assert_int_equal(choices[i], 2);
    hy_search_free(s);
}

/* Runs the first generation of a textbook strategy and returns its points; the best is the first. */
static struct hy_search *textbook(enum hy_de_strategy strategy, struct hy_value points[6][3])
{
    struct hy_space space = SPACE("x=0.0..1.0", "y=0.0..1.0", "z=0.0..1.0");
    struct hy_search_settings settings = settings_of(HY_SEARCH_EVOLVE, 11);
    struct hy_search *s;

    settings.population = 6;
    settings.strategy = strategy;
    settings.mutation = 0.25;
    settings.crossover = 1;
    s = search_take(&space, settings);
    for (int i = 0; i < 6; i++)
        ask(s, points[i]);
    for (uint64_t i = 1; i <= 6; i++)
        assert_int_equal(hy_search_tell(s, i, (double)i), 0);
    return s;
}

/* v = base + 0.25 (a - b), and where that is out of bounds half way from the target. */
static bool is_mutant(const struct hy_value *v, const struct hy_value *base, const struct hy_value *a,
                      const struct hy_value *b, const struct hy_value *target)
{
    for (int j = 0; j < 3; j++) {
        double want = base[j].number + 0.25 * (a[j].number - b[j].number);

        want = want < 0 ? target[j].number / 2 : want > 1 ? (target[j].number + 1) / 2 : want;
        if (fabs(v[j].number - want) > 1e-15)
            return false;
    }
    return true;
}

static bool has_parents(const struct hy_value *v, struct hy_value points[6][3], int base, int target)
{
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            if (a != b && a != target && b != target &&
                is_mutant(v, points[base], points[a], points[b], points[target]))
                return true;
    return false;
}

HY_TEST(test_best1bin_is_the_textbooks)
{
    struct hy_value points[6][3], v[3];
    struct hy_search *s = textbook(HY_DE_BEST1BIN, points);

    for (int i = 0; i < 6; i++) {
        ask(s, v);
        assert_true(has_parents(v, points, 0, i));
    }
    hy_search_free(s);
}

HY_TEST(test_rand1bin_is_the_textbooks)
{
    struct hy_value points[6][3], v[3];
    struct hy_search *s = textbook(HY_DE_RAND1BIN, points);
    int from_best = 0;

    for (int i = 0; i < 6; i++) {
        bool found = false;

        ask(s, v);
        for (int base = 0; base < 6; base++)
            found |= base != i && has_parents(v, points, base, i);
        assert_true(found);
        from_best += has_parents(v, points, 0, i);
    }
    assert_in_range(from_best, 0, 4);
    hy_search_free(s);
}

/* crossover 0: one gene alone comes from the mutant, the others are the parent's. */
HY_TEST(test_textbook_children_replace_only_their_parent)
{
    struct hy_space space = SPACE("x=0.0..1.0", "y=0.0..1.0", "z=0.0..1.0");
    struct hy_search_settings settings = settings_of(HY_SEARCH_EVOLVE, 11);
    struct hy_value points[6][3], v[3];
    struct hy_search *s;

    settings.population = 6;
    settings.strategy = HY_DE_BEST1BIN;
    settings.crossover = 0;
    s = search_take(&space, settings);
    for (int generation = 0; generation < 4; generation++)
        for (int i = 0; i < 6; i++) {
            uint64_t number = ask(s, generation ? v : points[i]);
            int same = 0;

            for (int j = 0; generation && j < 3; j++)
                same += v[j].number == points[i][j].number;
            assert_int_equal(same, generation ? 2 : 0);
            /* children are better than trial 6, but worse than their parents: all are given up */
            assert_int_equal(hy_search_tell(s, number, generation ? 5.5 : (double)(number == 6 ? 5 : number)), 0);
        }
    hy_search_free(s);
}

HY_TEST(test_failed_trials_count_as_the_worst)
{
    static const double failures[] = {NAN, INFINITY, -INFINITY};

    for (size_t f = 0; f < HY_COUNT(failures); f++)
        for (int maximize = 0; maximize < 2; maximize++) {
            struct hy_space space = SPACE("x=0.0..1.0");
            struct hy_search_settings settings = settings_of(HY_SEARCH_EVOLVE, 2);
            struct hy_search *s;
            struct hy_value v;

            settings.maximize = maximize;
            settings.population = 8;
            s = search_take(&space, settings);
            for (int i = 0; i < 240; i++) {
                uint64_t number = ask(s, &v);
                double cost = fabs(v.number - 0.3);

                if (v.number > 0.5) /* would be the best if it were a value */
                    hy_search_tell(s, number, failures[f]);
                else
                    hy_search_tell(s, number, maximize ? -cost : cost);
            }
            assert_true(fabs(v.number - 0.3) < 0.05);
            hy_search_free(s);
        }
}

HY_TEST(test_a_search_continues_when_all_trials_fail)
{
    struct hy_search *s = evolution(SPACE("x=0.0..1.0", "c=a,b"), 2, 0, 30, false);
    struct hy_value v[2];
    uint64_t number, count = 0;

    while (hy_search_ask(s, &number, v) == 1) {
        assert_int_equal(hy_search_tell(s, number, NAN), 0);
        count++;
    }
    assert_int_equal(count, hy_search_total(s));
    hy_search_free(s);
}

HY_TEST(test_invalid_settings_are_rejected_with_a_message)
{
    struct hy_search_settings bad[6];
    static const char *const because[] = {"population of 3", "mutation is 0",    "mutation is 2.5",
                                          "crossover is -1", "invalid strategy", "invalid kind"};
    struct hy_space space = SPACE("x=0.0..1.0"), nothing = {0};
    struct hy_search *s = NULL;
    struct hy_err err = {0};

    for (size_t i = 0; i < HY_COUNT(bad); i++)
        bad[i] = settings_of(HY_SEARCH_EVOLVE, 0);
    bad[0].population = 3;
    bad[1].mutation = 0;
    bad[2].mutation = 2.5;
    bad[3].crossover = -1;
    bad[4].strategy = (enum hy_de_strategy)9;
    bad[5].kind = (enum hy_search_kind)9;
    for (size_t i = 0; i < HY_COUNT(bad); i++) {
        assert_int_equal(hy_search_new(&space, &bad[i], &s, &err), -EINVAL);
        assert_non_null(strstr(err.text, because[i]));
    }
    bad[0].population = 0;
    assert_int_equal(hy_search_new(&nothing, &bad[0], &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "nothing to vary"));
    assert_null(s);
    hy_space_done(&space);
}

HY_TEST(test_populations_too_big_for_memory_are_refused)
{
    struct hy_space space = SPACE("x=0.0..1.0");
    struct hy_search_settings settings = settings_of(HY_SEARCH_EVOLVE, 0);
    struct hy_search *s = NULL;
    struct hy_err err = {0};

    settings.population = 1000;
    for (long n = 1; n <= 20; n++) {
        int rc;

        hy_fault_arm(HY_SEAM_ALLOC, n);
        rc = hy_search_new(&space, &settings, &s, &err);
        hy_fault_arm(HY_SEAM_ALLOC, 0);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ENOMEM);
        assert_non_null(strstr(err.text, "out of memory"));
    }
    assert_non_null(s);
    hy_search_free(s);
    hy_space_done(&space);
}

HY_TEST(test_no_point_is_tried_twice_in_a_generation)
{
    struct hy_search *s = evolution(SPACE("a=1..4", "b=1..4", "c=x,y,z"), 6, 10, 10, false);
    int generation[48] = {0}; /* the generation in which a point was last asked for */

    for (int g = 1; g <= 10; g++)
        for (int i = 0; i < 10; i++) {
            struct hy_value v[3];
            uint64_t number = ask(s, v);
            int point = ((int)v[0].number - 1) * 12 + ((int)v[1].number - 1) * 3 + (int)v[2].number;

            assert_true(generation[point] < g);
            generation[point] = g;
            assert_int_equal(hy_search_tell(s, number, sphere(v, 3)), 0);
        }
    hy_search_free(s);
}

HY_TEST(test_used_up_spaces_repeat_instead_of_hanging)
{
    struct hy_search *s = evolution(SPACE("a=1..2", "c=x"), 6, 10, 10, false);
    struct hy_value v[2];
    uint64_t number, count = 0;

    while (hy_search_ask(s, &number, v) == 1) {
        hy_search_tell(s, number, v[0].number);
        count++;
    }
    assert_int_equal(count, 100);
    hy_search_free(s);
}

/* ---- quality (the figures are bench/search.py's) ----------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static struct hy_space ten_floats(void)
{
    return SPACE("a=-5.12..5.12", "b=-5.12..5.12", "c=-5.12..5.12", "d=-5.12..5.12", "e=-5.12..5.12", "f=-5.12..5.12",
                 "g=-5.12..5.12", "h=-5.12..5.12", "i=-5.12..5.12", "j=-5.12..5.12");
}

static double median_of_5(struct hy_search *(*make)(uint64_t seed), size_t dims, size_t parallel, uint64_t trials,
                          double (*f)(const struct hy_value *, size_t))
{
    double best[5];

    for (uint64_t seed = 0; seed < 5; seed++) {
        struct hy_search *s = make(seed);

        best[seed] = minimize(s, dims, parallel, trials, seed, f, NULL);
        hy_search_free(s);
    }
    qsort(best, 5, sizeof best[0], by_size);
    return best[2];
}

static struct hy_search *random_on_ten(uint64_t seed)
{
    struct hy_space space = ten_floats();

    return search_take(&space, settings_of(HY_SEARCH_RANDOM, seed));
}

static struct hy_search *evolution_on_ten(uint64_t seed)
{
    return evolution(ten_floats(), seed, 0, 0, false);
}

static struct hy_search *asynchronous_on_ten(uint64_t seed)
{
    return evolution(ten_floats(), seed, 0, 0, true);
}

HY_TEST(test_evolution_beats_random_by_far)
{
    double by_chance = median_of_5(random_on_ten, 10, 4, 500, sphere);

    assert_true(by_chance > 10);
    assert_true(median_of_5(evolution_on_ten, 10, 4, 500, sphere) < 0.2);
    assert_true(median_of_5(asynchronous_on_ten, 10, 4, 500, sphere) < 0.2);
}

/* A network's settings: the optimum is lr 1e-3, 3 layers, 128 units, the second activation. */
static double mixed(const struct hy_value *v, size_t n)
{
    (void)n;
    return fabs(log10(v[0].number) + 3) + fabs(v[1].number - 3) / 3 + fabs(log2(v[2].number) - 7) / 3 +
           (v[3].number == 1 ? 0 : 1 + v[3].number / 10);
}

static struct hy_search *evolution_on_mixed(uint64_t seed)
{
    return evolution(SPACE("lr=log:1e-6..1.0", "layers=1..8", "units=log:8..1024", "act=a,b,c,d"), seed, 0, 0, false);
}

static struct hy_search *random_on_mixed(uint64_t seed)
{
    struct hy_space space = SPACE("lr=log:1e-6..1.0", "layers=1..8", "units=log:8..1024", "act=a,b,c,d");

    return search_take(&space, settings_of(HY_SEARCH_RANDOM, seed));
}

HY_TEST(test_evolution_handles_mixed_dimensions)
{
    assert_true(median_of_5(random_on_mixed, 4, 1, 200, mixed) > 0.25);
    assert_true(median_of_5(evolution_on_mixed, 4, 1, 200, mixed) < 0.1);
}
