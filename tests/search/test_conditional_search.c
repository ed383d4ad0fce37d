/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of search in spaces with conditions and constraints. */
#include "search_bench.h"

#include <errno.h>

#include "base/buf.h"
#include "base/mem.h"
#include "search/internal.h"
#include "search/scale.h"

static struct hy_space chain(void)
{
    return SPACE("opt=sgd,adam", "momentum=0.5..0.99 if opt == sgd", "nesterov=[true, false] if momentum > 0.7",
                 "decay=log:1e-4..1e-1 if not opt == sgd", "twice=1..3 if nesterov == true or decay < 1");
}

static void constrain(struct hy_space *space, const char *text)
{
    struct hy_err err = {0};

    if (hy_space_add_constraint(space, text, &err) < 0)
        fail_msg("%s: %s", text, err.text);
}

static void assert_no_search(struct hy_space *space, enum hy_search_kind kind, const char *because)
{
    struct hy_search_settings settings = settings_of(kind, 0);
    struct hy_search *s = NULL;
    struct hy_err err = {0};

    assert_int_equal(hy_search_new(space, &settings, &s, &err), -EINVAL);
    if (!strstr(err.text, because))
        fail_msg("%s", err.text);
    assert_null(s);
}

HY_TEST(test_constraints_that_no_point_satisfies_are_rejected)
{
    struct hy_space one = SPACE("x=0.0..1.0", "n=1..3"), both = SPACE("x=0.0..1.0", "n=1..3");
    struct hy_space grid = GRID("x=1,2,3", "n=1..3");

    constrain(&one, "n > 1");
    constrain(&one, "x > 2");
    constrain(&both, "x < 0.5");
    constrain(&both, "x > 0.5");
    constrain(&grid, "x + n > 6");
    assert_no_search(&one, HY_SEARCH_RANDOM, "no point of 10,000 satisfies the constraint 'x > 2'");
    assert_no_search(&one, HY_SEARCH_EVOLVE, "no point of 10,000 satisfies the constraint 'x > 2'");
    assert_no_search(&both, HY_SEARCH_RANDOM, "no point of 10,000 satisfies all constraints");
    assert_no_search(&grid, HY_SEARCH_GRID, "no point of the grid satisfies the constraint 'x + n > 6'");
    assert_no_search(&grid, HY_SEARCH_PAIRED, "no row of the paired lists satisfies the constraint");
    hy_space_done(&one);
    hy_space_done(&both);
    hy_space_done(&grid);
}

/* ---- random ------------------------------------------------------------------------- */

/* 0.1 % of the points satisfy it. */
static struct hy_space narrow(void)
{
    struct hy_space s = SPACE("x=0.0..1.0", "opt=sgd,adam", "y=0.0..1.0 if opt == sgd");

    constrain(&s, "x < 0.002 and opt == sgd");
    return s;
}

HY_TEST(test_random_points_satisfy_the_constraints)
{
    struct hy_space space = narrow(), again = narrow();
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_RANDOM, 3));
    struct hy_search *other = search_take(&again, settings_of(HY_SEARCH_RANDOM, 3));
    double before = -1;

    for (int i = 0; i < 100; i++) {
        struct hy_value v[3], w[3];

        ask(s, v);
        ask(other, w);
        assert_memory_equal(v, w, sizeof v);
        assert_true(hy_space_allows(hy_search_space(s), v));
        assert_true(v[0].number < 0.002 && v[1].number == 0 && v[0].number != before);
        before = v[0].number;
    }
    hy_search_free(s);
    hy_search_free(other);
}

HY_TEST(test_a_condition_does_not_change_the_other_dimensions)
{
    struct hy_space plain = SPACE("opt=sgd,adam", "m=0.5..0.99", "lr=log:1e-5..1.0"),
                    conditional = SPACE("opt=sgd,adam", "m=0.5..0.99 if opt == sgd", "lr=log:1e-5..1.0");
    struct hy_search *a = search_take(&plain, settings_of(HY_SEARCH_RANDOM, 3));
    struct hy_search *b = search_take(&conditional, settings_of(HY_SEARCH_RANDOM, 3));
    int active = 0;

    for (int i = 0; i < 200; i++) {
        struct hy_value v[3], w[3];

        ask(a, v);
        ask(b, w);
        assert_true(v[0].number == w[0].number && v[2].number == w[2].number);
        assert_int_equal(isnan(w[1].number) != 0, w[0].number == 1);
        assert_true(isnan(w[1].number) || v[1].number == w[1].number);
        active += !isnan(w[1].number);
    }
    assert_in_range(active, 70, 130);
    hy_search_free(a);
    hy_search_free(b);
}

/* A point that is known takes the place of a random one; it is never one that violates a constraint. */
HY_TEST(test_a_hard_constraint_gives_the_known_point)
{
    struct hy_space space = SPACE("x=0.0..1.0", "n=1..3");
    struct hy_search *s;
    struct hy_value v[2];
    uint64_t number;

    constrain(&space, "x > 0.5");
    s = search_take(&space, settings_of(HY_SEARCH_RANDOM, 0));
    ask(s, v);
    hy_space_add_constraint(&s->space, "x > 2", NULL); /* that no random point satisfies */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hy_search_ask(s, &number, v), 1);
        assert_true(v[0].number == hy_dim_at(&s->space.dims[0], s->allowed[0]).number && v[0].number > 0.5);
    }
    hy_search_free(s);
}

HY_TEST(test_a_random_search_is_restored_with_inactive_values)
{
    struct hy_space space = chain(), again = chain();
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_RANDOM, 9));
    struct hy_search *resumed = search_take(&again, settings_of(HY_SEARCH_RANDOM, 9));
    struct hy_value v[5], w[5];

    for (int i = 0; i < 50; i++) {
        ask(s, v);
        assert_int_equal(hy_search_restore(resumed, v), 0);
    }
    ask(s, v);
    ask(resumed, w);
    assert_memory_equal(v, w, sizeof v);
    v[1].number = isnan(v[1].number) ? 0.7 : NAN;
    assert_int_equal(hy_search_restore(resumed, v), -EUCLEAN);
    hy_search_free(s);
    hy_search_free(resumed);
}

/* ---- grid and paired lists ------------------------------------------------------------ */

/* All points as "a b;c d": "-" is an inactive dimension. */
static void assert_points(struct hy_space *space, enum hy_search_kind kind, const char *want)
{
    struct hy_search *s = search_take(space, settings_of(kind, 0));
    hy_cleanup_buf struct hy_buf got;
    struct hy_value v[8];
    uint64_t number = 0, count = 0;
    char text[40];

    hy_buf_init(&got, 10000);
    while (hy_search_ask(s, &number, v) == 1) {
        assert_int_equal(number, ++count);
        for (size_t i = 0; i < hy_search_space(s)->count; i++) {
            const char *value = hy_value_text(&hy_search_space(s)->dims[i], v[i], text, sizeof text);

            hy_buf_printf(&got, "%s%s", i ? " " : count > 1 ? ";" : "", *value ? value : "-");
        }
        assert_int_equal(hy_search_tell(s, number, 0), 0);
    }
    assert_string_equal(hy_buf_cstr(&got), want);
    assert_int_equal(hy_search_total(s), count);
    hy_search_free(s);
}

HY_TEST(test_a_grid_has_each_point_once)
{
    struct hy_space space = GRID("opt=sgd,adam", "m=0.5,0.9 if opt == sgd", "n=1..2", "k=1..3 step 2 if m > 0.6");

    assert_points(&space, HY_SEARCH_GRID,
                  "sgd 0.5 1 -;sgd 0.5 2 -;sgd 0.9 1 1;sgd 0.9 1 3;sgd 0.9 2 1;sgd 0.9 2 3;"
                  "adam - 1 -;adam - 2 -");
}

HY_TEST(test_a_grid_leaves_out_what_violates_a_constraint)
{
    struct hy_space space = GRID("a=1..4", "b=1,2,3,4"), last = GRID("a=1..3", "b=1..3");

    constrain(&space, "a * b <= 4");
    constrain(&space, "a != 1");
    assert_points(&space, HY_SEARCH_GRID, "2 1;2 2;3 1;4 1");
    constrain(&last, "a + b >= 6");
    assert_points(&last, HY_SEARCH_GRID, "3 3");
}

HY_TEST(test_choices_given_twice_stay_two_trials_of_a_grid)
{
    struct hy_space space = GRID("a=1,1,2", "b=x,y if a == 2");

    assert_points(&space, HY_SEARCH_GRID, "1 -;1 -;2 x;2 y");
}

HY_TEST(test_a_grid_of_conditions_may_have_more_combinations_than_points)
{
    struct hy_space space = GRID("model=a,b,c,d", "p=1..1000 if model == a", "q=1..1000 if model == b",
                                 "r=1..1000 if model == c", "s=1..1000 if model == d");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_GRID, 0)); /* of 4e12 combinations */

    assert_int_equal(hy_search_total(s), 4000);
    hy_search_free(s);
}

HY_TEST(test_grids_with_too_many_points_for_conditions_are_refused)
{
    struct hy_space space = GRID("a=1..1000", "b=1..1001"),
                    conditional = GRID("a=1..1000", "b=1..1001", "c=1,2 if a == 1"),
                    paired = GRID("a=1..1000001", "b=1..1000001 if a == 1");
    struct hy_search *s;

    assert_no_search(&conditional, HY_SEARCH_GRID, "there are more than 1,000,000 points, too many to check");
    assert_no_search(&paired, HY_SEARCH_PAIRED, "there are more than 1,000,000 points, too many to check");
    s = search_take(&space, settings_of(HY_SEARCH_GRID, 0));
    assert_int_equal(hy_search_total(s), 1001000);
    hy_search_free(s);
    hy_space_done(&conditional);
    hy_space_done(&paired);
}

HY_TEST(test_an_ask_of_a_grid_that_failed_is_repeated)
{
    struct hy_space space = GRID("opt=sgd,adam", "m=0.5,0.9 if opt == sgd");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_GRID, 0));
    struct hy_value v[2];
    uint64_t number;

    hy_fault_arm(HY_SEAM_ALLOC, 1); /* the table of open trials */
    assert_int_equal(hy_search_ask(s, &number, v), -ENOMEM);
    hy_fault_arm(HY_SEAM_ALLOC, 0);
    assert_int_equal(ask(s, v), 1);
    assert_true(v[0].number == 0 && v[1].number == 0);
    assert_int_equal(ask(s, v), 2);
    assert_true(v[0].number == 0 && v[1].number == 1);
    hy_search_free(s);
}

HY_TEST(test_paired_lists_leave_out_rows)
{
    struct hy_space space = GRID("opt=sgd,adam,adam,sgd,sgd", "m=0.5,0.6,0.7,0.5,0.9 if opt == sgd"),
                    constrained = GRID("a=1..4", "b=[4,3,2,1]");

    assert_points(&space, HY_SEARCH_PAIRED, "sgd 0.5;adam -;sgd 0.5;sgd 0.9");
    constrain(&constrained, "a < b or a == 4");
    assert_points(&constrained, HY_SEARCH_PAIRED, "1 4;2 3;4 1");
}

/* ---- evolution --------------------------------------------------------------------------- */

static struct hy_search *evolution(struct hy_space space, bool asynchronous)
{
    struct hy_search_settings settings = settings_of(HY_SEARCH_EVOLVE, 5);

    settings.population = 8;
    settings.asynchronous = asynchronous;
    return search_take(&space, settings);
}

HY_TEST(test_children_satisfy_the_constraints)
{
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        struct hy_space space = SPACE("batch=log:1..512", "seq=log:16..4096", "opt=sgd,adam",
                                      "m=0.5..0.99 if opt == sgd");
        struct hy_search *s;

        constrain(&space, "batch * seq <= 256");
        constrain(&space, "m > 0.9 or batch == 1");
        s = evolution(space, asynchronous);
        for (int i = 0; i < 200; i++) {
            struct hy_value v[4];
            uint64_t number = ask(s, v);

            assert_true(hy_space_allows(hy_search_space(s), v) && v[0].number * v[1].number <= 256);
            assert_int_equal(isnan(v[3].number) != 0, v[2].number == 1);
            assert_int_equal(hy_search_tell(s, number, -v[1].number), 0);
        }
        hy_search_free(s);
    }
}

/* There are six points: sgd with four values of n, and adam with two of k. */
HY_TEST(test_children_that_differ_only_where_they_are_inactive_are_equal)
{
    struct hy_search *s = evolution(SPACE("opt=sgd,adam", "n=1..4 if opt == sgd", "k=1..2 if opt == adam"), false);
    unsigned seen = 0;

    for (int i = 0; i < 6; i++) { /* all of them are open */
        struct hy_value v[3];
        unsigned point;

        ask(s, v);
        point = v[0].number == 0 ? (unsigned)v[1].number - 1 : 3 + (unsigned)v[2].number;
        assert_int_equal(seen >> point & 1, 0);
        seen |= 1u << point;
    }
    assert_int_equal(seen, 0x3f);
    hy_search_free(s);
}

static double cost_of(const struct hy_value *v)
{
    if (isnan(v[1].number))
        return 1 + v[2].number;
    return fabs(v[1].number - 0.8) + fabs(v[2].number - 0.3) / 2;
}

HY_TEST(test_evolution_finds_the_optimum_of_a_branch)
{
    struct hy_search *s = evolution(SPACE("opt=adam,sgd,none", "m=0.5..0.99 if opt == sgd", "lr=0.0..1.0"), true);
    double best = INFINITY;

    for (int i = 0; i < 300; i++) {
        struct hy_value v[3];
        uint64_t number = ask(s, v);
        double cost = cost_of(v);

        best = fmin(best, cost);
        assert_int_equal(hy_search_tell(s, number, cost), 0);
    }
    assert_true(best < 0.02);
    hy_search_free(s);
}

HY_TEST(test_evolution_with_conditions_repeats_for_the_same_seed)
{
    struct hy_search *s[2];

    for (int i = 0; i < 2; i++) {
        struct hy_space space = chain();

        constrain(&space, "momentum > 0.6");
        s[i] = evolution(space, true);
    }
    for (int i = 0; i < 100; i++) {
        struct hy_value v[2][5];

        for (int j = 0; j < 2; j++) {
            uint64_t number = ask(s[j], v[j]);

            assert_int_equal(hy_search_tell(s[j], number, isnan(v[j][1].number) ? NAN : v[j][1].number), 0);
        }
        assert_memory_equal(v[0], v[1], sizeof v[0]);
    }
    hy_search_free(s[0]);
    hy_search_free(s[1]);
}

/* ---- faults --------------------------------------------------------------------------------- */

static int all_scenario(void *arg)
{
    static const char *const lines[] = {"opt=sgd,adam", "m=0.5,0.9 if opt == sgd", "x=a if b,c if opt == sgd",
                                        "n=1..2"};
    struct hy_search_settings settings = settings_of(*(enum hy_search_kind *)arg, 1);
    struct hy_space space = {0};
    struct hy_search *s = NULL;
    struct hy_value v[4];
    uint64_t number;
    int rc = 0;

    for (size_t i = 0; i < HY_COUNT(lines) && rc == 0; i++)
        rc = hy_space_add_grid(&space, lines[i], NULL);
    if (rc == 0)
        rc = hy_space_add_constraint(&space, "n > 1 or opt == adam", NULL);
    if (rc == 0)
        rc = hy_search_new(&space, &settings, &s, NULL);
    for (int i = 0; i < 2 && rc == 0; i++) {
        int asked = hy_search_ask(s, &number, v);

        rc = asked == 1 || asked == -ENODATA ? 0 : asked; /* only one row of the paired lists is left */
        assert_true(asked != 1 || hy_space_allows(&space, v));
    }
    hy_search_free(s);
    hy_space_done(&space);
    return rc;
}

HY_TEST(test_conditional_searches_survive_failing_allocations)
{
    enum hy_search_kind kinds[] = {HY_SEARCH_GRID, HY_SEARCH_PAIRED, HY_SEARCH_RANDOM, HY_SEARCH_EVOLVE};

    for (size_t i = 0; i < HY_COUNT(kinds); i++)
        hy_each_fault(HY_SEAM_ALLOC, all_scenario, &kinds[i]);
}
