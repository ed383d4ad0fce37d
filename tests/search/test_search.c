/* SPDX-License-Identifier: Apache-2.0 */
/* Searches by grid and by chance: every trial follows from the seed and its number; and faults, for all. */
#include "search_bench.h"

#include <errno.h>

#include "base/mem.h"

/* ---- grid ------------------------------------------------------------------ */

HY_TEST(test_grid_varies_the_first_name_slowest)
{
    static const char *const want[] = {"0.001 3 a", "0.001 3 b", "0.001 4 a", "0.001 4 b",
                                       "5e-4 3 a",  "5e-4 3 b",  "5e-4 4 a",  "5e-4 4 b"};
    struct hy_space space = GRID("lr=0.001,5e-4", "layers=4..3", "act=a,b");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_GRID, 0));
    struct hy_value v[3];
    char got[100], text[3][32];
    uint64_t number;

    assert_int_equal(hy_search_total(s), 8);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(ask(s, v), i + 1);
        for (size_t j = 0; j < 3; j++)
            hy_value_text(&hy_search_space(s)->dims[j], v[j], text[j], sizeof text[j]);
        snprintf(got, sizeof got, "%s %s %s", text[0], text[1], text[2]);
        assert_string_equal(got, want[i]);
    }
    assert_int_equal(hy_search_ask(s, &number, v), -ENODATA);
    hy_search_free(s);
}

HY_TEST(test_big_grids_cost_no_memory_per_trial)
{
    struct hy_space space = GRID("a=1..1000", "b=1..1000", "c=x,y");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_GRID, 0));
    struct hy_value v[3] = {{0}};

    assert_int_equal(hy_search_total(s), 2000000);
    hy_fault_arm(HY_SEAM_ALLOC, 0);
    for (uint64_t i = 1; i <= 2000000; i++) {
        assert_int_equal(ask(s, v), i);
        assert_int_equal(hy_search_tell(s, i, 0), 0);
    }
    assert_true(v[0].number == 1000 && v[1].number == 1000 && v[2].number == 1);
    assert_true(hy_fault_passed(HY_SEAM_ALLOC) <= 1); /* the table of open trials */
    hy_search_free(s);
}

HY_TEST(test_grids_too_big_to_count_are_refused)
{
    struct hy_space space = GRID("a=0..4294967295", "b=0..4294967295"), real = SPACE("x=0.0..1.0");
    struct hy_search_settings settings = settings_of(HY_SEARCH_GRID, 0);
    struct hy_search *s = NULL;
    struct hy_err err = {0};

    assert_int_equal(hy_search_new(&space, &settings, &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "too many trials"));
    assert_int_equal(hy_search_new(&real, &settings, &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'x'"));
    assert_null(s);
    hy_space_done(&space);
    hy_space_done(&real);
}

HY_TEST(test_grid_over_integers_is_exact_at_the_limit)
{
    struct hy_space space = GRID("n=-9007199254740992..9007199254740992");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_GRID, 0));
    struct hy_value v;

    assert_int_equal(hy_search_total(s), (1ULL << 54) + 1);
    ask(s, &v);
    ask(s, &v);
    assert_true(v.number == -9007199254740991.0);
    hy_search_free(s);
}

HY_TEST(test_grid_over_nothing_is_one_trial)
{
    struct hy_space space = {0};
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_GRID, 0));
    uint64_t number;

    assert_int_equal(hy_search_total(s), 1);
    assert_int_equal(ask(s, NULL), 1);
    assert_int_equal(hy_search_ask(s, &number, NULL), -ENODATA);
    hy_search_free(s);
}

/* ---- paired lists ---------------------------------------------------------- */

HY_TEST(test_paired_lists_go_side_by_side)
{
    static const char *const want[] = {"0.1 2 relu", "0.01 3 null", "1e-3 4 [64,64]"};
    struct hy_space space = GRID("lr=0.1,0.01,1e-3", "layers=4..2", "act=[\"relu\", null, [64, 64]]");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_PAIRED, 0));
    struct hy_value v[3];
    char got[100], text[3][32];
    uint64_t number;

    assert_int_equal(hy_search_total(s), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ask(s, v), i + 1);
        for (size_t j = 0; j < 3; j++)
            hy_value_text(&hy_search_space(s)->dims[j], v[j], text[j], sizeof text[j]);
        snprintf(got, sizeof got, "%s %s %s", text[0], text[1], text[2]);
        assert_string_equal(got, want[i]);
    }
    assert_int_equal(hy_search_ask(s, &number, v), -ENODATA);
    hy_search_free(s);
}

static void assert_unpaired(struct hy_space *space, const char *because)
{
    struct hy_search_settings settings = settings_of(HY_SEARCH_PAIRED, 0);
    struct hy_search *s = NULL;
    struct hy_err err = {0};

    assert_int_equal(hy_search_new(space, &settings, &s, &err), -EINVAL);
    if (!strstr(err.text, because))
        fail_msg("%s", err.text);
    assert_null(s);
    hy_space_done(space);
}

HY_TEST(test_paired_lists_of_unequal_lengths_are_refused)
{
    struct hy_space short_last = GRID("lr=0.1,0.01,0.001", "layers=1..3", "act=relu,tanh");
    struct hy_space long_last = GRID("layers=1..3", "x=[1,2,3,4]");
    struct hy_space real = SPACE("x=-1e308..1e308", "y=1..2"), scaled = SPACE("y=1,2", "x=log:1..2");

    assert_unpaired(&short_last, "'lr' has 3 values and 'act' has 2");
    assert_unpaired(&long_last, "'layers' has 3 values and 'x' has 4");
    assert_unpaired(&real, "'x' is a range of real numbers: a paired list needs");
    assert_unpaired(&scaled, "'x' is a log-scaled range");
}

HY_TEST(test_pairs_of_nothing_are_one_trial)
{
    struct hy_space space = {0};
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_PAIRED, 0));

    assert_int_equal(hy_search_total(s), 1);
    assert_int_equal(ask(s, NULL), 1);
    hy_search_free(s);
}

/* ---- random ---------------------------------------------------------------- */

HY_TEST(test_random_trials_depend_on_seed_and_number_alone)
{
    struct hy_search *s[3];
    struct hy_value v[3][2], other[2];

    for (int i = 0; i < 3; i++) {
        struct hy_space space = SPACE("x=0.0..1.0", "y=log:1e-5..1e-1");

        s[i] = search_take(&space, settings_of(HY_SEARCH_RANDOM, i < 2 ? 7 : 8));
    }
    assert_true(hy_search_total(s[0]) == UINT64_MAX);
    for (int i = 0; i < 100; i++) {
        uint64_t number = ask(s[0], v[0]);

        if (i % 3)
            hy_search_tell(s[0], number, i);
        ask(s[1], v[1]);
        ask(s[2], v[2]);
        assert_memory_equal(v[0], v[1], sizeof v[0]);
        assert_true(v[0][0].number != v[2][0].number);
        if (i > 0)
            assert_true(v[0][0].number != other[0].number);
        memcpy(other, v[0], sizeof other);
    }
    for (int i = 0; i < 3; i++)
        hy_search_free(s[i]);
}

/* Values that must not change: a run is resumed by asking again. */
HY_TEST(test_random_trials_are_the_same_on_every_machine)
{
    static const double want[2][4] = {
        {-0x1.2693e4621b772p+2, 0x1.38521681cc254p-11, 101, 2},
        {-0x1.b97f310e7507cp+0, 0x1.69b13a5d3ae84p-5, 65, 0},
    };
    struct hy_space space = SPACE("x=-5.12..5.12", "lr=log:1e-5..1e-1", "units=log:16..1024", "act=a,b,c");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_RANDOM, 42));
    struct hy_value v[4];

    for (size_t i = 0; i < HY_COUNT(want); i++) {
        ask(s, v);
        for (size_t j = 0; j < 4; j++)
            if (v[j].number != want[i][j])
                fail_msg("trial %zu, dimension %zu: %a", i + 1, j, v[j].number);
    }
    hy_search_free(s);
}

HY_TEST(test_random_stays_within_bounds_and_reaches_both_ends)
{
    struct hy_space space = SPACE("n=-2..2", "u=log:1..4", "c=a,b,c", "x=-1e308..1e308", "y=log:4.9e-324..1.7e308",
                                  "z=0.3..0.3");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_RANDOM, 3));
    const struct hy_space *dims = hy_search_space(s);
    int hits[3][5] = {{0}};
    struct hy_value v[6];

    for (int i = 0; i < 3000; i++) {
        ask(s, v);
        hits[0][(int)v[0].number + 2]++;
        hits[1][(int)v[1].number - 1]++;
        hits[2][(int)v[2].number]++;
        for (size_t j = 3; j < 6; j++)
            assert_true(v[j].number >= dims->dims[j].low && v[j].number <= dims->dims[j].high);
    }
    for (int i = 0; i < 5; i++)
        assert_in_range(hits[0][i], 500, 700);
    for (int i = 0; i < 3; i++)
        assert_in_range(hits[2][i], 900, 1100);
    /* log-scaled: 1 has log 3, 4 has log 9/7 of log 9 */
    assert_in_range(hits[1][0], 1400, 1600);
    assert_in_range(hits[1][3], 270, 420);
    hy_search_free(s);
}

HY_TEST(test_log_scale_gives_each_decade_its_share)
{
    struct hy_space space = SPACE("lr=log:1e-5..1e-1");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_RANDOM, 5));
    int decades[4] = {0};
    struct hy_value v;

    for (int i = 0; i < 4000; i++) {
        ask(s, &v);
        decades[v.number < 1e-4 ? 0 : v.number < 1e-3 ? 1 : v.number < 1e-2 ? 2 : 3]++;
    }
    for (int i = 0; i < 4; i++)
        assert_in_range(decades[i], 900, 1100);
    hy_search_free(s);
}

HY_TEST(test_random_ends_after_its_samples)
{
    struct hy_space space = SPACE("x=0.0..1.0"), nothing = {0};
    struct hy_search_settings settings = settings_of(HY_SEARCH_RANDOM, 0);
    struct hy_search *s = NULL;
    struct hy_value v;
    uint64_t number;

    assert_int_equal(hy_search_new(&nothing, &settings, &s, NULL), -EINVAL);
    settings.samples = 2;
    s = search_take(&space, settings);
    assert_int_equal(hy_search_total(s), 2);
    ask(s, &v);
    ask(s, &v);
    assert_int_equal(hy_search_ask(s, &number, &v), -ENODATA);
    hy_search_free(s);
}

/* ---- telling --------------------------------------------------------------- */

HY_TEST(test_only_open_trials_can_be_told)
{
    static const enum hy_search_kind kinds[] = {HY_SEARCH_GRID, HY_SEARCH_PAIRED, HY_SEARCH_RANDOM, HY_SEARCH_EVOLVE};

    for (size_t i = 0; i < HY_COUNT(kinds); i++) {
        struct hy_space space = GRID("x=1..9");
        struct hy_search *s = search_take(&space, settings_of(kinds[i], 0));
        struct hy_value v;

        assert_int_equal(hy_search_tell(s, 1, 0), -ENOENT);
        ask(s, &v);
        assert_int_equal(hy_search_tell(s, 0, 0), -ENOENT);
        assert_int_equal(hy_search_tell(s, 2, 0), -ENOENT);
        assert_int_equal(hy_search_tell(s, 1, 0), 0);
        assert_int_equal(hy_search_tell(s, 1, 0), -ENOENT);
        hy_search_free(s);
    }
}

/* ---- faults ------------------------------------------------------------------ */

static int add_all(struct hy_space *space)
{
    static const char *const lines[] = {"lr=log:1e-5..1e-1", "layers=1..4", "act=relu,tanh,gelu"};

    for (size_t i = 0; i < HY_COUNT(lines); i++) {
        struct hy_err err = {0};
        int rc = hy_space_add(space, lines[i], &err);

        if (rc < 0) {
            assert_int_equal(rc, -ENOMEM);
            assert_non_null(strstr(err.text, "out of memory"));
            return rc;
        }
    }
    return 0;
}

static int space_scenario(void *arg)
{
    struct hy_space space = {0};
    int rc = add_all(&space);

    (void)arg;
    if (rc == 0)
        rc = hy_space_add_grid(&space, "batch=1..4", NULL);
    if (rc == 0)
        rc = hy_space_add(&space, "mixed=[[64, 64], \"caf\\u00e9\", null, {\"a\": 1}]", NULL);
    hy_space_done(&space);
    return rc;
}

/* 40 trials, 20 open at a time; an ask that found no memory is asked again. */
static int search_scenario(void *arg)
{
    struct hy_space space = {0};
    struct hy_search *s = NULL;
    double sum = 0;
    int rc = add_all(&space);

    if (rc == 0)
        rc = hy_search_new(&space, arg, &s, NULL);
    for (uint64_t told = 0, number = 0; rc == 0 && told < 40;) {
        struct hy_value v[3];

        if (number < told + 20) {
            int asked = hy_search_ask(s, &number, v);

            assert_true(asked == 1 || asked == -ENOMEM);
            if (asked == 1)
                sum += v[0].number + v[1].number;
        } else {
            told++;
            assert_int_equal(hy_search_tell(s, told, (double)(told % 7)), 0);
        }
    }
    if (rc == 0 && ((struct hy_search_settings *)arg)->samples == 0) {
        static double whole[3]; /* by kind: what it comes to without a fault */
        double *want = &whole[((struct hy_search_settings *)arg)->kind];

        *want = *want == 0 ? sum : *want;
        assert_true(sum == *want);
    }
    hy_search_free(s);
    hy_space_done(&space);
    return rc;
}

HY_TEST(test_searches_survive_failing_allocations)
{
    struct hy_search_settings random = settings_of(HY_SEARCH_RANDOM, 1), evolve = settings_of(HY_SEARCH_EVOLVE, 1);

    evolve.asynchronous = true;
    hy_each_fault(HY_SEAM_ALLOC, space_scenario, NULL);
    hy_each_fault(HY_SEAM_ALLOC, search_scenario, &random);
    hy_each_fault(HY_SEAM_ALLOC, search_scenario, &evolve);
}
