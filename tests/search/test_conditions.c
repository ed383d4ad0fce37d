/* SPDX-License-Identifier: Apache-2.0 */
/* Dimensions that are active only sometimes, and constraints: in the space, and in every kind of search. */
#include "search_bench.h"

#include <errno.h>

#include "base/mem.h"
#include "base/rng.h"
#include "search/scale.h"

static void assert_refused(struct hy_space *space, const char *text, const char *because)
{
    for (int grid = 0; grid < 2; grid++) {
        size_t count = space->count;
        struct hy_err err = {0};
        int rc = grid ? hy_space_add_grid(space, text, &err) : hy_space_add(space, text, &err);

        if (rc != -EINVAL || err.code != -EINVAL || !strstr(err.text, because))
            fail_msg("'%s' (grid: %d): %d, %s", text, grid, rc, err.text);
        assert_null(strchr(err.text, '\n'));
        assert_int_equal(space->count, count);
    }
}

/* ---- the syntax ---------------------------------------------------------------- */

HY_TEST(test_a_condition_follows_values_of_every_form)
{
    static const struct {
        const char *values, *blanks, *condition, *last; /* `last`: the lower bound or the last choice */
        size_t choices;
    } cases[] = {
        {"0.5..0.99", "", "opt == sgd", "0.5", 0},
        {"1..4", "", "opt in (sgd, adam)", "1", 0},
        {"0..1 step 0.5", "", "opt == sgd", "0", 0},
        {"log:1e-5..1e-1", "  ", "opt == sgd", "1e-05", 0},
        {"normal(0, 1) in 0..1", "", "opt == sgd", "0", 0},
        {"a,b", "", "opt == sgd", "b", 2},
        {"a,b", " ", "opt in (sgd, adam) and n > 1", "b", 2},
        {"a if b,c", "", "opt == 'sgd'", "c", 2},
        {"a if opt == sgd", "", "opt == adam", "a if opt == sgd", 1},
        {"[1, \"b\"]", "", "opt == sgd", "b", 2},
        {"[\"] if opt == sgd\", \"b \\\" if\"]", " ", "opt == sgd", "b \" if", 2},
        {"[[1],[2]]", "", "opt == \"sgd\"", "[2]", 2},
        {"1", "", " opt == ' if ' or opt == sgd", "1", 1},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        hy_cleanup_free char *line = hy_asprintf("x=%s%s if %s", cases[i].values, cases[i].blanks, cases[i].condition);
        struct hy_space s = SPACE("opt=[\"sgd\", \"adam\", \" if \"]", "n=1..3", line);
        const struct hy_dim *dim = &s.dims[2];
        struct hy_value last = {dim->kind == HY_DIM_CATEGORY ? (double)dim->choice_count - 1 : dim->low};
        char text[40];

        assert_non_null(dim->condition);
        assert_string_equal(dim->condition, cases[i].condition);
        assert_int_equal(dim->choice_count, cases[i].choices);
        assert_string_equal(hy_value_text(dim, last, text, sizeof text), cases[i].last);
        hy_space_done(&s);
    }
}

HY_TEST(test_grids_have_conditions_too)
{
    struct hy_space s = GRID("opt=sgd,adam", "m=0.5,0.9 if opt == sgd", "n=1..4 if m > 0.6",
                             "x=0..1 step 0.5 if opt == adam", "j=[1] if opt == adam");

    for (size_t i = 1; i < s.count; i++)
        assert_non_null(s.dims[i].condition);
    assert_int_equal(s.dims[1].choice_count, 2);
    assert_string_equal(s.dims[1].choices[1], "0.9");
    hy_space_done(&s);
}

HY_TEST(test_invalid_conditions_are_rejected_with_a_message)
{
    struct hy_space s = SPACE("opt=sgd,adam", "lr=0.0..1.0");

    assert_refused(&s, "x=1..4 if opt",
                   "the condition of 'x': 'opt' is not a valid expression: at its end a comparison");
    assert_refused(&s, "x=1..4 if opt = sgd", "at byte 5, before '= sgd', write '=='");
    assert_refused(&s, "x=1..4 if op == sgd", "'op' is not a dimension that is declared before; did you mean 'opt'?");
    assert_refused(&s, "x=1..4 if later == sgd", "'later' is not a dimension that is declared before");
    assert_refused(&s, "x=1..4 if x == 1", "'x' is not a dimension that is declared before");
    assert_refused(&s, "x=1..4 if opt == sdg", "'sdg' is not a choice of 'opt' (choices: sgd, adam)");
    assert_refused(&s, "x=1..4 step 2 if lr == a", "'a' is not a dimension");
    assert_refused(&s, "x=[1] if opt", "a comparison is missing");
    assert_refused(&s, "x=a,b if opt == sdg", "'sdg' is not a choice of 'opt'");
    assert_refused(&s, "x=a,b if op == sgd", "did you mean 'opt'?");
    assert_refused(&s, "x= if opt == sgd", "'x' has no values");
    assert_refused(&s, "x=a, if opt == sgd", "a value of 'x' is empty");
    hy_space_done(&s);
    s = SPACE("opt=sgd,adam");
    {
        struct hy_err err = {0};

        assert_int_equal(hy_space_add(&s, "x=log:a..b if opt == sgd", &err), -EINVAL);
        assert_non_null(strstr(err.text, "'a' is not a finite number"));
        assert_int_equal(hy_space_add(&s, "x=normal(0,1) if opt", &err), -EINVAL);
        assert_non_null(strstr(err.text, "a comparison is missing"));
    }
    hy_space_done(&s);
}

HY_TEST(test_a_condition_before_its_dimension_is_rejected)
{
    struct hy_space s = SPACE("act=relu,tanh if opt in (sgd, adam)", "unit=x if y == 1");

    assert_int_equal(s.dims[0].choice_count, 3); /* until there is a dimension of that name it is a list */
    assert_refused(&s, "opt=sgd,adam", "the condition of 'act' needs 'opt', which must be declared before it");
    assert_refused(&s, "y=1..2", "the condition of 'unit' needs 'y'");
    hy_space_done(&s);
}

HY_TEST(test_text_about_other_names_stays_text)
{
    struct hy_space s = SPACE("y=1,2", "v=a,b if x == 1", "z=1,2", "xx=1,2", "learning=1,2",
                              "w=b if learned == 1 or yy < 2");

    assert_string_equal(s.dims[1].choices[1], "b if x == 1"); /* all short names are similar */
    assert_string_equal(s.dims[5].choices[0], "b if learned == 1 or yy < 2");
    hy_space_done(&s);
}

HY_TEST(test_programs_dimensions_have_conditions)
{
    char name[] = "x", condition[] = "opt == sgd", wrong[] = "opt == 1";
    struct hy_dim dim = {.name = name, .kind = HY_DIM_INT, .low = 1, .high = 4, .condition = condition};
    struct hy_space s = SPACE("opt=sgd,adam");
    struct hy_err err = {0};

    assert_int_equal(hy_space_add_dim(&s, &dim, &err), 0);
    assert_string_equal(s.dims[1].condition, "opt == sgd");
    assert_ptr_not_equal(s.dims[1].condition, condition);
    dim.condition = wrong;
    name[0] = 'y';
    assert_int_equal(hy_space_add_dim(&s, &dim, &err), -EINVAL);
    assert_non_null(strstr(err.text, "the condition of 'y': '1' is not a choice of 'opt'"));
    assert_int_equal(s.count, 2);
    hy_space_done(&s);
}

/* ---- values -------------------------------------------------------------------- */

static struct hy_space chain(void)
{
    return SPACE("opt=sgd,adam", "momentum=0.5..0.99 if opt == sgd", "nesterov=[true, false] if momentum > 0.7",
                 "decay=log:1e-4..1e-1 if not opt == sgd", "twice=1..3 if nesterov == true or decay < 1");
}

HY_TEST(test_an_inactive_dimension_has_no_value)
{
    static const double units[2][5] = {{0.2, 0.1, 0.2, 0.3, 0.4}, {0.7, 0.9, 0.2, 0.3, 0.4}};
    struct hy_space s = chain();
    struct hy_value v[5];
    double back[5];
    char text[40] = "old";

    hy_space_values(&s, units[0], v); /* sgd with a small momentum */
    assert_true(v[0].number == 0 && fabs(v[1].number - 0.549) < 1e-12);
    for (int i = 2; i < 5; i++)
        assert_true(isnan(v[i].number));
    assert_string_equal(hy_value_text(&s.dims[3], v[3], text, sizeof text), "");
    assert_string_equal(hy_value_text(&s.dims[2], v[2], text, sizeof text), "");
    assert_string_equal(hy_value_text(&s.dims[4], v[4], text, sizeof text), "");
    assert_null(hy_value_json(&s.dims[2], v[2]));
    hy_space_units(&s, v, back);
    assert_true(!isnan(back[0]) && !isnan(back[1]) && isnan(back[2]) && isnan(back[3]) && isnan(back[4]));

    hy_space_values(&s, units[1], v); /* adam: what depends on the momentum is inactive, but `or` needs only one */
    assert_true(v[0].number == 1 && isnan(v[1].number) && isnan(v[2].number));
    assert_true(v[3].number > 0 && v[4].number == 2);
    hy_space_done(&s);
}

HY_TEST(test_spaces_are_copied_with_conditions_and_constraints)
{
    struct hy_space s = chain(), copy = {0};
    struct hy_err err = {0};
    struct hy_rng rng;

    assert_int_equal(hy_space_add_constraint(&s, "momentum < 0.9", &err), 0);
    assert_int_equal(hy_space_copy(&copy, &s, &err), 0);
    hy_rng_seed(&rng, 1, 1);
    for (int i = 0; i < 1000; i++) {
        struct hy_value a[5], b[5];
        double units[5];

        for (int j = 0; j < 5; j++)
            units[j] = hy_rng_double(&rng);
        hy_space_values(&s, units, a);
        hy_space_values(&copy, units, b);
        assert_memory_equal(a, b, sizeof a);
        assert_int_equal(hy_space_allows(&s, a), hy_space_allows(&copy, a));
    }
    hy_space_done(&s);
    hy_space_done(&copy);
}

/* ---- constraints ------------------------------------------------------------------ */

HY_TEST(test_a_constraint_that_an_inactive_dimension_leaves_undecided_allows_the_point)
{
    struct hy_space s = SPACE("opt=sgd,adam", "momentum=0.5..0.99 if opt == sgd", "lr=0.0..1.0");
    struct hy_value sgd[3] = {{0}, {0.9}, {0.5}}, adam[3] = {{1}, {NAN}, {0.5}};
    struct hy_err err = {0};

    assert_true(hy_space_allows(&s, sgd));
    assert_int_equal(hy_space_add_constraint(&s, "momentum + lr < 1", &err), 0);
    assert_false(hy_space_allows(&s, sgd));
    assert_true(hy_space_allows(&s, adam));
    sgd[2].number = 0.05;
    assert_true(hy_space_allows(&s, sgd));
    assert_int_equal(hy_space_add_constraint(&s, "lr != 0.5", &err), 0);
    assert_true(hy_space_allows(&s, sgd));
    assert_false(hy_space_allows(&s, adam));
    hy_space_done(&s);
}

HY_TEST(test_invalid_constraints_are_rejected_with_a_message)
{
    struct hy_space s = SPACE("batch=1..512");
    struct hy_err err = {0};

    assert_int_equal(hy_space_add_constraint(&s, "batch * seq <= 65536", &err), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_string_equal(err.text,
                        "a constraint: 'seq' is not a dimension that is declared before (text that is not one "
                        "word needs quotes)");
    assert_int_equal(hy_space_add_constraint(&s, "batch", &err), -EINVAL);
    assert_int_equal(s.constraint_count, 0);
    hy_space_done(&s);
}
