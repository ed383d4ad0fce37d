/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <errno.h>
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "search/search.h"

#define DIMS_MAX 10

/* ---- helpers -------------------------------------------------------------- */

static struct hy_space space_of(const char *const *lines, bool grid)
{
    struct hy_space space = {0};
    struct hy_err err = {0};

    for (; *lines; lines++) {
        int rc = grid ? hy_space_add_grid(&space, *lines, &err) : hy_space_add(&space, *lines, &err);

        if (rc < 0)
            fail_msg("%s: %s", *lines, err.text);
    }
    return space;
}

#define SPACE(...) space_of((const char *const[]){__VA_ARGS__, NULL}, false)
#define GRID(...) space_of((const char *const[]){__VA_ARGS__, NULL}, true)

static struct hy_search_settings settings_of(enum hy_search_kind kind, uint64_t seed)
{
    return (struct hy_search_settings){.kind = kind, .seed = seed, .mutation = NAN, .crossover = NAN};
}

/* Takes the space. */
static struct hy_search *search_take(struct hy_space *space, struct hy_search_settings settings)
{
    struct hy_search *s = NULL;
    struct hy_err err = {0};

    if (hy_search_new(space, &settings, &s, &err) < 0)
        fail_msg("%s", err.text);
    hy_space_done(space);
    return s;
}

static struct hy_search *evolution(struct hy_space space, uint64_t seed, uint32_t population,
                                   uint32_t generations, bool asynchronous)
{
    struct hy_search_settings settings = settings_of(HY_SEARCH_EVOLVE, seed);

    settings.population = population;
    settings.generations = generations;
    settings.asynchronous = asynchronous;
    return search_take(&space, settings);
}

static uint64_t ask(struct hy_search *s, struct hy_value *values)
{
    uint64_t number = 0;

    assert_int_equal(hy_search_ask(s, &number, values), 1);
    return number;
}

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

static double sphere(const struct hy_value *v, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (v[i].number - 1) * (v[i].number - 1);
    return sum;
}

/* ---- the space ------------------------------------------------------------- */

static void test_ranges_take_their_kind_from_how_they_are_written(void **state)
{
    struct hy_space s =
        SPACE("lr=log:1e-5..1e-1", "layers=1..4", "units=log:16..1024", "x=-5.12..5.12", "y=1..4.0");
    const enum hy_dim_kind kinds[] = {HY_DIM_FLOAT, HY_DIM_INT, HY_DIM_INT, HY_DIM_FLOAT, HY_DIM_FLOAT};
    const bool logs[] = {true, false, true, false, false};

    (void)state;
    assert_int_equal(s.count, 5);
    for (size_t i = 0; i < s.count; i++) {
        assert_int_equal(s.dims[i].kind, kinds[i]);
        assert_int_equal(s.dims[i].log, logs[i]);
    }
    assert_string_equal(s.dims[0].name, "lr");
    assert_true(s.dims[0].low == 1e-5 && s.dims[0].high == 1e-1);
    assert_true(s.dims[3].low == -5.12 && s.dims[3].high == 5.12);
    hy_space_done(&s);
}

static void test_bounds_come_in_either_order(void **state)
{
    struct hy_space s = SPACE("a=4..1", "b=log:1e-1..1e-5", "c=2.5..-2.5", "d=3..3");

    (void)state;
    assert_true(s.dims[0].low == 1 && s.dims[0].high == 4);
    assert_true(s.dims[1].low == 1e-5 && s.dims[1].high == 1e-1);
    assert_true(s.dims[2].low == -2.5 && s.dims[2].high == 2.5);
    assert_true(s.dims[3].low == 3 && s.dims[3].high == 3);
    hy_space_done(&s);
}

static void test_lists_keep_texts_as_written(void **state)
{
    struct hy_space s = SPACE("act=relu,tanh", "lr=1e-3, 0.10", "dir=../a,../b", "expr=a=b", "one=5");

    (void)state;
    for (size_t i = 0; i < s.count; i++)
        assert_int_equal(s.dims[i].kind, HY_DIM_CATEGORY);
    assert_string_equal(s.dims[0].choices[1], "tanh");
    assert_string_equal(s.dims[1].choices[0], "1e-3");
    assert_string_equal(s.dims[1].choices[1], " 0.10");
    assert_string_equal(s.dims[2].choices[0], "../a");
    assert_string_equal(s.dims[3].choices[0], "a=b");
    assert_int_equal(s.dims[4].choice_count, 1);
    hy_space_done(&s);
}

static void test_bad_spaces_are_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *text, *because;
    } cases[] = {
        {"", "NAME=VALUE"},           {"lr", "names no values"},
        {"=1,2", "no name"},          {"lr=", "no values"},
        {"lr=1,,2", "empty"},         {"lr=1,", "empty"},
        {"taken=1,2", "given twice"}, {"a{b=1", "cannot be used"},
        {"a\nb=1", "cannot be used"}, {"a\xff=1", "cannot be used"},
    };
    static const struct {
        const char *text, *because;
    } ranges[] = {
        {"x=a..b", "no finite number"},
        {"x=1..b", "no finite number"},
        {"x=..", "missing"},
        {"x=1..", "missing"},
        {"x=..2", "missing"},
        {"x=nan..1", "no finite number"},
        {"x=0..inf", "no finite number"},
        {"x=1e999..2", "too large"},
        {"x=log:0..1", "above 0"},
        {"x=log:-1..1.5", "above 0"},
        {"x=log:3", "two bounds"},
        {"x=log:", "two bounds"},
        {"x=0..9007199254740993000", "2^53"},
        {"x=1\n..2", "no finite number"},
    };

    (void)state;
    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        assert_refused(cases[i].text, false, cases[i].because);
        assert_refused(cases[i].text, true, cases[i].because);
    }
    for (size_t i = 0; i < HY_COUNT(ranges); i++)
        assert_refused(ranges[i].text, false, ranges[i].because);
}

static void test_grids_refuse_ranges_that_are_not_of_integers(void **state)
{
    (void)state;
    assert_refused("x=0.1..0.5", true, "a grid takes values");
    assert_refused("x=log:1..8", true, "a grid takes values");
    assert_refused("x=log:1e-5..1e-1", true, "a grid takes values");
}

static void test_long_names_leave_the_sentence_readable(void **state)
{
    char text[4000];
    struct hy_space space = {0};
    struct hy_err err = {0};

    (void)state;
    memset(text, 'n', sizeof text);
    strcpy(text + sizeof text - 8, "=1..x");
    assert_int_equal(hy_space_add(&space, text, &err), -EINVAL);
    assert_non_null(strstr(err.text, "values with commas"));
    hy_space_done(&space);
}

static void test_programs_dimensions_are_checked_like_written_ones(void **state)
{
    char name[] = "x";
    struct hy_dim good = {.name = name, .kind = HY_DIM_INT, .low = 4, .high = 1}, bad = good;
    struct hy_space space = {0};
    struct hy_err err = {0};

    (void)state;
    bad.low = 1.5;
    assert_int_equal(hy_space_add_dim(&space, &bad, &err), -EINVAL);
    bad = (struct hy_dim){.name = name, .kind = HY_DIM_FLOAT, .low = NAN};
    assert_int_equal(hy_space_add_dim(&space, &bad, &err), -EINVAL);
    bad = (struct hy_dim){.name = name, .kind = HY_DIM_CATEGORY};
    assert_int_equal(hy_space_add_dim(&space, &bad, &err), -EINVAL);
    bad = (struct hy_dim){.name = name, .kind = (enum hy_dim_kind)7};
    assert_int_equal(hy_space_add_dim(&space, &bad, &err), -EINVAL);
    assert_int_equal(hy_space_add_dim(&space, &good, &err), 0);
    assert_true(space.dims[0].low == 1 && space.dims[0].high == 4);
    hy_space_done(&space);
}

static void test_value_texts_read_back_equal(void **state)
{
    struct hy_space s = SPACE("x=0.0..1.0", "n=-9007199254740992..9007199254740992");
    struct hy_rng rng;
    char text[32];
    double back;

    (void)state;
    assert_string_equal(hy_value_text(&s.dims[0], (struct hy_value){0.001}, text, sizeof text), "0.001");
    assert_string_equal(hy_value_text(&s.dims[1], (struct hy_value){3}, text, sizeof text), "3");
    assert_string_equal(hy_value_text(&s.dims[1], (struct hy_value){-0x1p53}, text, sizeof text),
                        "-9007199254740992");
    assert_string_equal(hy_value_text(&s.dims[1], (struct hy_value){1e15}, text, sizeof text),
                        "1000000000000000");
    hy_rng_seed(&rng, 1, 1);
    for (int i = 0; i < 1000; i++) {
        double x = ldexp(hy_rng_double(&rng), (int)hy_rng_below(&rng, 2000) - 1000);

        assert_int_equal(
            hy_parse_double(hy_value_text(&s.dims[0], (struct hy_value){x}, text, sizeof text), &back), 0);
        assert_true(back == x);
    }
    hy_space_done(&s);
}

static void test_a_long_choice_is_whole_in_a_small_buffer(void **state)
{
    struct hy_space s = SPACE("path=/a/rather/long/path/to/some/data,b");
    char text[8];

    (void)state;
    assert_string_equal(hy_value_text(&s.dims[0], (struct hy_value){0}, text, sizeof text),
                        "/a/rather/long/path/to/some/data");
    assert_string_equal(text, "/a/rath");
    assert_string_equal(hy_value_text(&s.dims[0], (struct hy_value){1}, text, sizeof text), "b");
    assert_string_equal(text, "b");
    assert_string_equal(hy_value_text(&s.dims[0], (struct hy_value){2}, text, sizeof text), "");
    hy_space_done(&s);
}

/* ---- grid ------------------------------------------------------------------ */

static void test_grid_varies_the_first_name_slowest(void **state)
{
    static const char *const want[] = {"0.001 3 a", "0.001 3 b", "0.001 4 a", "0.001 4 b",
                                       "5e-4 3 a",  "5e-4 3 b",  "5e-4 4 a",  "5e-4 4 b"};
    struct hy_space space = GRID("lr=0.001,5e-4", "layers=4..3", "act=a,b");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_GRID, 0));
    struct hy_value v[3];
    char got[100], text[3][32];
    uint64_t number;

    (void)state;
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

static void test_big_grids_cost_no_memory_per_trial(void **state)
{
    struct hy_space space = GRID("a=1..1000", "b=1..1000", "c=x,y");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_GRID, 0));
    struct hy_value v[3] = {{0}};

    (void)state;
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

static void test_grids_too_big_to_count_are_refused(void **state)
{
    struct hy_space space = GRID("a=0..4294967295", "b=0..4294967295"), real = SPACE("x=0.0..1.0");
    struct hy_search_settings settings = settings_of(HY_SEARCH_GRID, 0);
    struct hy_search *s = NULL;
    struct hy_err err = {0};

    (void)state;
    assert_int_equal(hy_search_new(&space, &settings, &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "too many trials"));
    assert_int_equal(hy_search_new(&real, &settings, &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'x'"));
    assert_null(s);
    hy_space_done(&space);
    hy_space_done(&real);
}

static void test_grid_over_integers_is_exact_at_the_limit(void **state)
{
    struct hy_space space = GRID("n=-9007199254740992..9007199254740992");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_GRID, 0));
    struct hy_value v;

    (void)state;
    assert_int_equal(hy_search_total(s), (1ULL << 54) + 1);
    ask(s, &v);
    ask(s, &v);
    assert_true(v.number == -9007199254740991.0);
    hy_search_free(s);
}

static void test_grid_over_nothing_is_one_trial(void **state)
{
    struct hy_space space = {0};
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_GRID, 0));
    uint64_t number;

    (void)state;
    assert_int_equal(hy_search_total(s), 1);
    assert_int_equal(ask(s, NULL), 1);
    assert_int_equal(hy_search_ask(s, &number, NULL), -ENODATA);
    hy_search_free(s);
}

/* ---- random ---------------------------------------------------------------- */

static void test_random_trials_depend_on_seed_and_number_alone(void **state)
{
    struct hy_search *s[3];
    struct hy_value v[3][2], other[2];

    (void)state;
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
static void test_random_trials_are_the_same_on_every_machine(void **state)
{
    static const double want[2][4] = {
        {-0x1.2693e4621b772p+2, 0x1.38521681cc254p-11, 101, 2},
        {-0x1.b97f310e7507cp+0, 0x1.69b13a5d3ae84p-5, 65, 0},
    };
    struct hy_space space = SPACE("x=-5.12..5.12", "lr=log:1e-5..1e-1", "units=log:16..1024", "act=a,b,c");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_RANDOM, 42));
    struct hy_value v[4];

    (void)state;
    for (size_t i = 0; i < HY_COUNT(want); i++) {
        ask(s, v);
        for (size_t j = 0; j < 4; j++)
            if (v[j].number != want[i][j])
                fail_msg("trial %zu, dimension %zu: %a", i + 1, j, v[j].number);
    }
    hy_search_free(s);
}

static void test_random_stays_within_bounds_and_reaches_both_ends(void **state)
{
    struct hy_space space =
        SPACE("n=-2..2", "u=log:1..4", "c=a,b,c", "x=-1e308..1e308", "y=log:4.9e-324..1.7e308", "z=0.3..0.3");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_RANDOM, 3));
    const struct hy_space *dims = hy_search_space(s);
    int hits[3][5] = {{0}};
    struct hy_value v[6];

    (void)state;
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

static void test_log_scale_gives_each_decade_its_share(void **state)
{
    struct hy_space space = SPACE("lr=log:1e-5..1e-1");
    struct hy_search *s = search_take(&space, settings_of(HY_SEARCH_RANDOM, 5));
    int decades[4] = {0};
    struct hy_value v;

    (void)state;
    for (int i = 0; i < 4000; i++) {
        ask(s, &v);
        decades[v.number < 1e-4 ? 0 : v.number < 1e-3 ? 1 : v.number < 1e-2 ? 2 : 3]++;
    }
    for (int i = 0; i < 4; i++)
        assert_in_range(decades[i], 900, 1100);
    hy_search_free(s);
}

static void test_random_ends_after_its_samples(void **state)
{
    struct hy_space space = SPACE("x=0.0..1.0"), nothing = {0};
    struct hy_search_settings settings = settings_of(HY_SEARCH_RANDOM, 0);
    struct hy_search *s = NULL;
    struct hy_value v;
    uint64_t number;

    (void)state;
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

static void test_only_open_trials_can_be_told(void **state)
{
    static const enum hy_search_kind kinds[] = {HY_SEARCH_GRID, HY_SEARCH_RANDOM, HY_SEARCH_EVOLVE};

    (void)state;
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

/* ---- evolution -------------------------------------------------------------- */

static void test_a_generation_waits_for_all_its_answers(void **state)
{
    struct hy_search *s = evolution(SPACE("x=0.0..1.0", "y=0.0..1.0"), 1, 5, 3, false);
    struct hy_value v[2];
    uint64_t number;

    (void)state;
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

static void test_order_of_answers_changes_nothing_in_a_generation(void **state)
{
    double trace[2][60];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct hy_search *s = evolution(SPACE("x=-5.0..5.0", "n=-5..5", "y=-5.0..5.0"), 9, 6, 10, false);

        minimize(s, 3, i ? 1 : 5, 60, (uint64_t)i, sphere, trace[i]);
        hy_search_free(s);
    }
    assert_memory_equal(trace[0], trace[1], sizeof trace[0]);
}

static void test_asynchronous_evolution_repeats_for_the_same_order(void **state)
{
    double trace[3][60];

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct hy_search *s = evolution(SPACE("x=-5.0..5.0", "n=-5..5", "y=-5.0..5.0"), 9, 6, 10, true);

        minimize(s, 3, 4, 60, i < 2 ? 1 : 2, sphere, trace[i]);
        hy_search_free(s);
    }
    assert_memory_equal(trace[0], trace[1], sizeof trace[0]);
    assert_memory_not_equal(trace[0], trace[2], sizeof trace[0]);
}

static void test_asynchronous_evolution_waits_for_nobody(void **state)
{
    struct hy_search *s = evolution(SPACE("x=0.0..1.0", "y=0.0..1.0"), 1, 5, 20, true);
    struct hy_value v[2];
    uint64_t number;

    (void)state;
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

static void test_evolution_is_the_same_on_every_machine(void **state)
{
    static const double want[4] = {0x1.ea6f08b29f94p-1, 0x1.86ada7d6f8926p-4, 1, 1};
    struct hy_search *s =
        evolution(SPACE("x=-5.12..5.12", "lr=log:1e-5..1e-1", "n=1..9", "c=a,b,c"), 42, 0, 0, false);
    struct hy_value v[4];

    (void)state;
    for (int i = 0; i < 95; i++) {
        uint64_t number = ask(s, v);

        assert_int_equal(hy_search_tell(s, number, sphere(v, 4)), 0);
    }
    for (size_t j = 0; j < 4; j++)
        if (v[j].number != want[j])
            fail_msg("dimension %zu: %a", j, v[j].number);
    hy_search_free(s);
}

static void test_first_generation_is_spread_over_each_dimension(void **state)
{
    struct hy_search *s = evolution(SPACE("x=0.0..1.0", "y=0.0..1.0", "c=a,b,c,d"), 4, 8, 1, false);
    unsigned seen[2] = {0};
    int choices[4] = {0};
    struct hy_value v[3];

    (void)state;
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

static void test_best1bin_is_the_textbooks(void **state)
{
    struct hy_value points[6][3], v[3];
    struct hy_search *s = textbook(HY_DE_BEST1BIN, points);

    (void)state;
    for (int i = 0; i < 6; i++) {
        ask(s, v);
        assert_true(has_parents(v, points, 0, i));
    }
    hy_search_free(s);
}

static void test_rand1bin_is_the_textbooks(void **state)
{
    struct hy_value points[6][3], v[3];
    struct hy_search *s = textbook(HY_DE_RAND1BIN, points);
    int from_best = 0;

    (void)state;
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
static void test_textbook_children_replace_only_their_parent(void **state)
{
    struct hy_space space = SPACE("x=0.0..1.0", "y=0.0..1.0", "z=0.0..1.0");
    struct hy_search_settings settings = settings_of(HY_SEARCH_EVOLVE, 11);
    struct hy_value points[6][3], v[3];
    struct hy_search *s;

    (void)state;
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
            assert_int_equal(hy_search_tell(s, number, generation ? 5.5 : (double)(number == 6 ? 5 : number)),
                             0);
        }
    hy_search_free(s);
}

static void test_failed_trials_count_as_the_worst(void **state)
{
    static const double failures[] = {NAN, INFINITY, -INFINITY};

    (void)state;
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

static void test_a_search_where_everything_fails_goes_on(void **state)
{
    struct hy_search *s = evolution(SPACE("x=0.0..1.0", "c=a,b"), 2, 0, 30, false);
    struct hy_value v[2];
    uint64_t number, count = 0;

    (void)state;
    while (hy_search_ask(s, &number, v) == 1) {
        assert_int_equal(hy_search_tell(s, number, NAN), 0);
        count++;
    }
    assert_int_equal(count, hy_search_total(s));
    hy_search_free(s);
}

static void test_bad_settings_are_refused_with_a_sentence(void **state)
{
    struct hy_search_settings bad[6];
    static const char *const because[] = {"population of 3", "mutation is 0",    "mutation is 2.5",
                                          "crossover is -1", "no strategy with", "no kind"};
    struct hy_space space = SPACE("x=0.0..1.0"), nothing = {0};
    struct hy_search *s = NULL;
    struct hy_err err = {0};

    (void)state;
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

static void test_no_point_is_tried_twice_in_a_generation(void **state)
{
    struct hy_search *s = evolution(SPACE("a=1..4", "b=1..4", "c=x,y,z"), 6, 10, 10, false);
    int generation[48] = {0}; /* the generation in which a point was last asked for */

    (void)state;
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

static void test_used_up_spaces_repeat_instead_of_hanging(void **state)
{
    struct hy_search *s = evolution(SPACE("a=1..2", "c=x"), 6, 10, 10, false);
    struct hy_value v[2];
    uint64_t number, count = 0;

    (void)state;
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
    return SPACE("a=-5.12..5.12", "b=-5.12..5.12", "c=-5.12..5.12", "d=-5.12..5.12", "e=-5.12..5.12",
                 "f=-5.12..5.12", "g=-5.12..5.12", "h=-5.12..5.12", "i=-5.12..5.12", "j=-5.12..5.12");
}

static double median_of_5(struct hy_search *(*make)(uint64_t seed), size_t dims, size_t parallel,
                          uint64_t trials, double (*f)(const struct hy_value *, size_t))
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

static void test_evolution_beats_random_by_far(void **state)
{
    double by_chance = median_of_5(random_on_ten, 10, 4, 500, sphere);

    (void)state;
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
    return evolution(SPACE("lr=log:1e-6..1.0", "layers=1..8", "units=log:8..1024", "act=a,b,c,d"), seed, 0, 0,
                     false);
}

static struct hy_search *random_on_mixed(uint64_t seed)
{
    struct hy_space space = SPACE("lr=log:1e-6..1.0", "layers=1..8", "units=log:8..1024", "act=a,b,c,d");

    return search_take(&space, settings_of(HY_SEARCH_RANDOM, seed));
}

static void test_evolution_handles_mixed_dimensions(void **state)
{
    (void)state;
    assert_true(median_of_5(random_on_mixed, 4, 1, 200, mixed) > 0.25);
    assert_true(median_of_5(evolution_on_mixed, 4, 1, 200, mixed) < 0.1);
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

static void test_searches_survive_failing_allocations(void **state)
{
    struct hy_search_settings random = settings_of(HY_SEARCH_RANDOM, 1),
                              evolve = settings_of(HY_SEARCH_EVOLVE, 1);

    (void)state;
    evolve.asynchronous = true;
    hy_each_fault(HY_SEAM_ALLOC, space_scenario, NULL);
    hy_each_fault(HY_SEAM_ALLOC, search_scenario, &random);
    hy_each_fault(HY_SEAM_ALLOC, search_scenario, &evolve);
}

static void test_populations_too_big_for_memory_are_refused(void **state)
{
    struct hy_space space = SPACE("x=0.0..1.0");
    struct hy_search_settings settings = settings_of(HY_SEARCH_EVOLVE, 0);
    struct hy_search *s = NULL;
    struct hy_err err = {0};

    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_take_their_kind_from_how_they_are_written),
        cmocka_unit_test(test_bounds_come_in_either_order),
        cmocka_unit_test(test_lists_keep_texts_as_written),
        cmocka_unit_test(test_bad_spaces_are_refused_with_a_sentence),
        cmocka_unit_test(test_grids_refuse_ranges_that_are_not_of_integers),
        cmocka_unit_test(test_long_names_leave_the_sentence_readable),
        cmocka_unit_test(test_programs_dimensions_are_checked_like_written_ones),
        cmocka_unit_test(test_value_texts_read_back_equal),
        cmocka_unit_test(test_a_long_choice_is_whole_in_a_small_buffer),
        cmocka_unit_test(test_grid_varies_the_first_name_slowest),
        cmocka_unit_test(test_big_grids_cost_no_memory_per_trial),
        cmocka_unit_test(test_grids_too_big_to_count_are_refused),
        cmocka_unit_test(test_grid_over_integers_is_exact_at_the_limit),
        cmocka_unit_test(test_grid_over_nothing_is_one_trial),
        cmocka_unit_test(test_random_trials_depend_on_seed_and_number_alone),
        cmocka_unit_test(test_random_trials_are_the_same_on_every_machine),
        cmocka_unit_test(test_random_stays_within_bounds_and_reaches_both_ends),
        cmocka_unit_test(test_log_scale_gives_each_decade_its_share),
        cmocka_unit_test(test_random_ends_after_its_samples),
        cmocka_unit_test(test_only_open_trials_can_be_told),
        cmocka_unit_test(test_a_generation_waits_for_all_its_answers),
        cmocka_unit_test(test_order_of_answers_changes_nothing_in_a_generation),
        cmocka_unit_test(test_asynchronous_evolution_repeats_for_the_same_order),
        cmocka_unit_test(test_asynchronous_evolution_waits_for_nobody),
        cmocka_unit_test(test_evolution_is_the_same_on_every_machine),
        cmocka_unit_test(test_first_generation_is_spread_over_each_dimension),
        cmocka_unit_test(test_best1bin_is_the_textbooks),
        cmocka_unit_test(test_rand1bin_is_the_textbooks),
        cmocka_unit_test(test_textbook_children_replace_only_their_parent),
        cmocka_unit_test(test_failed_trials_count_as_the_worst),
        cmocka_unit_test(test_a_search_where_everything_fails_goes_on),
        cmocka_unit_test(test_bad_settings_are_refused_with_a_sentence),
        cmocka_unit_test(test_no_point_is_tried_twice_in_a_generation),
        cmocka_unit_test(test_used_up_spaces_repeat_instead_of_hanging),
        cmocka_unit_test(test_evolution_beats_random_by_far),
        cmocka_unit_test(test_evolution_handles_mixed_dimensions),
        cmocka_unit_test(test_searches_survive_failing_allocations),
        cmocka_unit_test(test_populations_too_big_for_memory_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
