/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and normal distributions: how they are written, and their values on the unit interval. */
#include "search_bench.h"

#include <errno.h>

#include "base/buf.h"
#include "base/mem.h"
#include "search/discrete.h"
#include "search/portable_math.h"
#include "search/scale.h"

static void assert_refused(const char *text, bool grid, const char *because)
{
    struct hy_space space = GRID("taken=1");
    struct hy_err err = {0};
    int rc = grid ? hy_space_add_grid(&space, text, &err) : hy_space_add(&space, text, &err);

    if (rc != -EINVAL || err.code != -EINVAL || !strstr(err.text, because))
        fail_msg("'%s' (grid: %d): %d, %s", text, grid, rc, err.text);
    assert_null(strchr(err.text, '\n'));
    assert_int_equal(space.count, 1); /* nothing half added */
    hy_space_done(&space);
}

/* ---- steps ----------------------------------------------------------------- */

/* Compares all values of the dimension, as texts. */
static void assert_steps(const char *line, enum hy_dim_kind kind, const char *want)
{
    hy_cleanup_buf struct hy_buf got;
    struct hy_space s = SPACE(line);
    const struct hy_dim *dim = &s.dims[0];
    uint64_t width = hy_discrete_width(dim);
    char text[32];

    hy_buf_init(&got, 1000);
    assert_int_equal(dim->kind, kind);
    for (uint64_t i = 0; i < width; i++) {
        struct hy_value v = hy_dim_at(dim, ((double)i + 0.5) / (double)width);

        hy_buf_printf(&got, "%s%s", i ? " " : "", hy_value_text(dim, v, text, sizeof text));
        assert_int_equal(hy_discrete_index(dim, v), i);
        assert_true(fabs(hy_dim_unit(dim, v) - ((double)i + 0.5) / (double)width) < 1e-15);
    }
    assert_string_equal(hy_buf_cstr(&got), want);
    assert_true(hy_dim_at(dim, 0).number == dim->low && hy_dim_at(dim, 1).number == dim->high);
    hy_space_done(&s);
}

HY_TEST(test_steps_have_the_values_of_decimal_numbers)
{
    assert_steps("x=0..0.5 step 0.1", HY_DIM_FLOAT, "0 0.1 0.2 0.3 0.4 0.5");
    assert_steps("x=-0.3..0.3 step 0.1", HY_DIM_FLOAT, "-0.3 -0.2 -0.1 0 0.1 0.2 0.3");
    assert_steps("x=1.1..1.25 step 0.05", HY_DIM_FLOAT, "1.1 1.15 1.2 1.25");
    assert_steps("x=0.0..1 step 0.30", HY_DIM_FLOAT, "0 0.3 0.6 0.9");
    assert_steps("x=1e-5..5e-5 step 1e-5", HY_DIM_FLOAT, "1e-05 2e-05 3e-05 4e-05 5e-05");
    assert_steps("x=5..1 step 2.0", HY_DIM_FLOAT, "1 3 5");
    assert_steps("x=0..0.30000000000000004 step 0.1", HY_DIM_FLOAT, "0 0.1 0.2 0.3");
    assert_steps("x=0..1 step 0.3333333333333333", HY_DIM_FLOAT, "0 0.3333333333333333 0.6666666666666666 1");
    assert_steps("n=16..64 step 16", HY_DIM_INT, "16 32 48 64");
    assert_steps("n=1..10 step 4", HY_DIM_INT, "1 5 9");
    assert_steps("n=-3..3 step 3", HY_DIM_INT, "-3 0 3");
}

HY_TEST(test_steps_that_are_no_decimal_numbers_are_close)
{
    struct hy_space s = SPACE("x=0.12345678901234567..1e5 step 0.12345678901234567");
    const struct hy_dim *dim = &s.dims[0];
    uint64_t width = hy_discrete_width(dim);

    assert_int_equal(width, 810000);
    for (uint64_t i = 0; i < width; i += 1001) {
        struct hy_value v = hy_discrete_at(dim, i);

        assert_true(fabs(v.number / dim->step - (double)(i + 1)) < 1e-9);
        assert_int_equal(hy_discrete_index(dim, v), i);
    }
    assert_true(hy_discrete_at(dim, width - 1).number == dim->high && dim->high <= 1e5);
    hy_space_done(&s);
}

HY_TEST(test_a_grid_visits_every_step)
{
    struct hy_space space = GRID("x=0..0.3 step 0.1", "n=2..6 step 2");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_GRID, 0));
    struct hy_value v[2];

    assert_int_equal(hy_search_total(s), 12);
    for (int i = 0; i < 12; i++) {
        ask(s, v);
        assert_true(v[0].number == i / 3 / 10.0 && v[1].number == 2 + i % 3 * 2);
    }
    hy_search_free(s);
}

HY_TEST(test_invalid_steps_are_rejected_with_a_message)
{
    assert_refused("x=log:16..256 step 16", false, "'x' has a log scale, which has no steps; leave out");
    assert_refused("x=lognormal(0, 1) in 1..4 step 1", false, "has a log scale");
    assert_refused("x=normal(0, 1) step 1", false, "'step 1' is unexpected");
    assert_refused("x=normal(0, 1) in 0.. step 1", false, "the steps of 'x' need two bounds");
    assert_refused("x=0..1 step 2", false, "larger than its range");
    assert_refused("x=3..3 step 1", false, "larger than its range");
    assert_refused("x=0..1 step 0", false, "'0' of 'x' must be a number above 0");
    assert_refused("x=0..1 step -1", false, "must be above 0");
    assert_refused("x=0..1 step nan", false, "must be a number above 0");
    assert_refused("x=0..1 step ", false, "'' of 'x' must be a number");
    assert_refused("x=0..1 step 0.1 0.2", false, "'0.1 0.2' of 'x' must be a number");
    assert_refused("x=0..1 step 1e-11", false, "too small");
    assert_refused("x=1e16..1.0000000000000002e16 step 1.0", false, "too small");
    assert_refused("x=0..1 step 2", true, "larger than its range");
}

/* ---- normal distributions -------------------------------------------------- */

HY_TEST(test_distributions_take_their_kind_from_how_they_are_written)
{
    struct hy_space s = SPACE("a=normal(0, 1)", "b=normal(10,3)", "c=lognormal( -7 , 1.5 )", "d=normal(0, 1) in 2..-2",
                              "e=normal(10, 3) in 20..1 step 1", "f=normal(0.5, 0.1) in 0..1 step 0.05",
                              "g=normal(0, 1) in 0..", "h=lognormal(-7, 1) in ..1e-1");
    static const struct {
        enum hy_dim_kind kind;
        bool log;
        double mean, deviation, low, high, step;
    } want[] = {
        {HY_DIM_FLOAT, false, 0, 1, -INFINITY, INFINITY, 0},
        {HY_DIM_FLOAT, false, 10, 3, -INFINITY, INFINITY, 0},
        {HY_DIM_FLOAT, true, -7, 1.5, 0, INFINITY, 0},
        {HY_DIM_FLOAT, false, 0, 1, -2, 2, 0},
        {HY_DIM_INT, false, 10, 3, 1, 20, 1},
        {HY_DIM_FLOAT, false, 0.5, 0.1, 0, 1, 0.05},
        {HY_DIM_FLOAT, false, 0, 1, 0, INFINITY, 0},
        {HY_DIM_FLOAT, true, -7, 1, 0, 0.1, 0},
    };

    assert_int_equal(s.count, HY_COUNT(want));
    for (size_t i = 0; i < s.count; i++) {
        const struct hy_dim *dim = &s.dims[i];

        assert_true(dim->normal && dim->kind == want[i].kind && dim->log == want[i].log);
        assert_true(dim->mean == want[i].mean && dim->deviation == want[i].deviation);
        assert_true(dim->low == want[i].low && dim->high == want[i].high && dim->step == want[i].step);
    }
    hy_space_done(&s);
}

HY_TEST(test_the_unit_interval_is_the_probability_of_a_distribution)
{
    struct hy_space s = SPACE("a=normal(2, 3)", "b=lognormal(-7, 1)", "c=normal(0, 1) in -1..1");

    assert_true(fabs(hy_dim_at(&s.dims[0], 0.5).number - 2) < 1e-15);
    assert_true(fabs(hy_dim_at(&s.dims[0], 0.975).number - (2 + 3 * 1.9599639845400545)) < 1e-12);
    assert_true(fabs(hy_dim_at(&s.dims[0], 0.001).number - (2 - 3 * 3.0902323061678132)) < 1e-12);
    assert_true(fabs(hy_dim_at(&s.dims[1], 0.5).number / 9.118819655545162e-4 - 1) < 1e-14);
    assert_true(fabs(hy_ln(hy_dim_at(&s.dims[1], 0.975).number) + 7 - 1.9599639845400545) < 1e-12);
    assert_true(fabs(hy_dim_at(&s.dims[2], 0.5).number) < 1e-15);
    /* a quarter of the 0.6827 within one deviation: the quantile of 0.5 + 0.6827 / 4 */
    assert_true(fabs(hy_dim_at(&s.dims[2], 0.75).number - 0.44177054668658106) < 1e-12);
    hy_space_done(&s);
}

HY_TEST(test_distributions_stay_within_bounds_and_are_finite)
{
    struct hy_space s = SPACE("a=normal(0, 1)", "b=lognormal(-7, 1)", "c=normal(0, 1) in -2..2",
                              "d=normal(0, 1) in 5..7", "e=normal(0, 1) in -7..-5", "f=normal(0, 1) in 3..",
                              "g=lognormal(0, 9) in 1..2", "h=normal(10, 3) in 1..20 step 1",
                              "i=normal(0, 1) in 0.5..0.5", "j=lognormal(0, 1) in 2..2", "k=normal(0, 1) in 20..21",
                              "l=normal(1e300, 1e290)", "m=lognormal(600, 10)");

    for (size_t i = 0; i < s.count; i++) {
        const struct hy_dim *dim = &s.dims[i];
        double before = -INFINITY;

        for (int part = 0; part <= 1000; part++) {
            struct hy_value v = hy_dim_at(dim, part / 1000.0), back;

            assert_true(isfinite(v.number) && v.number >= dim->low && v.number <= dim->high);
            assert_true(v.number >= before);
            before = v.number;
            back = hy_dim_at(dim, hy_dim_unit(dim, v));
            if (fabs(back.number - v.number) > 1e-9 * fabs(v.number) + 1e-12)
                fail_msg("%s at %d: %.17g, and back %.17g", dim->name, part, v.number, back.number);
        }
    }
    hy_space_done(&s);
}

HY_TEST(test_random_values_have_the_distributions_moments)
{
    struct hy_space space = SPACE("a=normal(2, 3)", "b=normal(10, 3) in 1..20 step 1", "c=normal(0, 1) in 0..");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_RANDOM, 5));
    double sum[3] = {0}, squares = 0;
    int tens = 0, n = 20000;

    for (int i = 0; i < n; i++) {
        struct hy_value v[3];

        ask(s, v);
        for (int j = 0; j < 3; j++)
            sum[j] += v[j].number / n;
        squares += (v[0].number - 2) * (v[0].number - 2) / n;
        assert_true(v[1].number == floor(v[1].number));
        tens += v[1].number == 10;
    }
    assert_true(fabs(sum[0] - 2) < 0.08 && fabs(squares - 9) < 0.4);
    assert_true(fabs(sum[1] - 10) < 0.08 && fabs(sum[2] - 0.7979) < 0.02);
    assert_in_range(tens, 2500, 2800); /* 0.1324 within half a step of the mean */
    hy_search_free(s);
}

HY_TEST(test_distributions_are_the_same_on_every_machine)
{
    static const double want[3] = {-0x1.a3d24df88907p+0, 0x1.9f07575b5024fp-11, 0x1.59c72a97a0c2ep+0};
    struct hy_space space = SPACE("x=normal(0, 1)", "lr=lognormal(-7, 1)", "y=normal(0, 1) in 1..3");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_RANDOM, 42));
    struct hy_value v[3];

    ask(s, v);
    for (size_t j = 0; j < 3; j++)
        if (v[j].number != want[j])
            fail_msg("dimension %zu: %a", j, v[j].number);
    hy_search_free(s);
}

HY_TEST(test_invalid_distributions_are_rejected_with_a_message)
{
    assert_refused("x=normal(0, 0)", false, "a standard deviation above 0");
    assert_refused("x=normal(0, -1)", false, "a standard deviation above 0");
    assert_refused("x=normal(nan, 1)", false, "a finite mean");
    assert_refused("x=normal(0, inf)", false, "a standard deviation above 0");
    assert_refused("x=normal(1e308, 1e308)", false, "would be too large");
    assert_refused("x=lognormal(1000, 1)", false, "those of the natural logarithm");
    assert_refused("x=normal(0, 1) 2", false, "'2' is unexpected after the distribution of 'x'");
    assert_refused("x=normal(0, 1) in", false, "'in' is unexpected");
    assert_refused("x=normal(0, 1) in 2", false, "'x' needs two bounds, as in 1e-5..1e-1, not '2'");
    assert_refused("x=normal(0, 1) in a..2", false, "'a' is not a finite number");
    assert_refused("x=normal(0, 1) in 1..inf", false, "'inf' is not a finite number");
    assert_refused("x=lognormal(0, 1) in -1..2", false, "must be above 0");
    assert_refused("x=normal(0, 1) in 100..101", false, "too far from its mean");
    assert_refused("x=normal(0, 1) in 1..20 step 0.5.", false, "must be a number");
}

HY_TEST(test_programs_distributions_are_checked_like_written_ones)
{
    char name[] = "x";
    struct hy_dim dim = {
        .name = name, .kind = HY_DIM_INT, .normal = true, .low = 20, .high = 1, .mean = 10, .deviation = 3};
    struct hy_space space = {0};
    struct hy_err err = {0};

    assert_int_equal(hy_space_add_dim(&space, &dim, &err), -EINVAL);
    assert_non_null(strstr(err.text, "needs a step"));
    dim.step = 0.5;
    assert_int_equal(hy_space_add_dim(&space, &dim, &err), -EINVAL);
    assert_non_null(strstr(err.text, "must be an integer"));
    dim.step = 1;
    dim.low = NAN;
    assert_int_equal(hy_space_add_dim(&space, &dim, &err), -EINVAL);
    dim.low = 20;
    assert_int_equal(hy_space_add_dim(&space, &dim, &err), 0);
    assert_true(space.dims[0].low == 1 && space.dims[0].high == 20);
    hy_space_done(&space);
}
