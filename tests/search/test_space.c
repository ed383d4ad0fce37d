/* SPDX-License-Identifier: Apache-2.0 */
/* The space: what a range, a list and a value mean, as people write them. */
#include "search_bench.h"

#include <errno.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"

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

HY_TEST(test_ranges_take_their_kind_from_how_they_are_written)
{
    struct hy_space s = SPACE("lr=log:1e-5..1e-1", "layers=1..4", "units=log:16..1024", "x=-5.12..5.12", "y=1..4.0");
    const enum hy_dim_kind kinds[] = {HY_DIM_FLOAT, HY_DIM_INT, HY_DIM_INT, HY_DIM_FLOAT, HY_DIM_FLOAT};
    const bool logs[] = {true, false, true, false, false};

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

HY_TEST(test_bounds_come_in_either_order)
{
    struct hy_space s = SPACE("a=4..1", "b=log:1e-1..1e-5", "c=2.5..-2.5", "d=3..3");

    assert_true(s.dims[0].low == 1 && s.dims[0].high == 4);
    assert_true(s.dims[1].low == 1e-5 && s.dims[1].high == 1e-1);
    assert_true(s.dims[2].low == -2.5 && s.dims[2].high == 2.5);
    assert_true(s.dims[3].low == 3 && s.dims[3].high == 3);
    hy_space_done(&s);
}

HY_TEST(test_lists_keep_texts_as_written)
{
    struct hy_space s = SPACE("act=relu,tanh", "lr=1e-3, 0.10", "dir=../a,../b", "expr=a=b", "one=5");

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

/* Adds "v=" and the list, and compares every choice as JSON and as text. */
static void assert_choices(const char *list, const char *const *json, const char *const *texts)
{
    hy_cleanup_free char *line = hy_asprintf("v=%s", list);
    char room[8];

    for (int grid = 0; grid < 2; grid++) {
        struct hy_space s = space_of((const char *const[]){line, NULL}, grid);
        const struct hy_dim *dim = &s.dims[0];
        size_t n = 0;

        assert_int_equal(dim->kind, HY_DIM_CATEGORY);
        for (; json[n]; n++) {
            struct hy_value v = {(double)n};

            assert_in_range(n, 0, dim->choice_count - 1);
            assert_string_equal(hy_value_json(dim, v), json[n]);
            assert_string_equal(hy_value_text(dim, v, room, sizeof room), texts[n]);
        }
        assert_int_equal(dim->choice_count, n);
        hy_space_done(&s);
    }
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

HY_TEST(test_json_lists_keep_every_value_as_it_is)
{
    assert_choices("[[64,64],[128]]", WORDS("[64,64]", "[128]"), WORDS("[64,64]", "[128]"));
    assert_choices("[\"relu\", null, true, false]", WORDS("\"relu\"", "null", "true", "false"),
                   WORDS("relu", "null", "true", "false"));
    assert_choices("[1, \"1\", 1.0, 1e-3, -0.5E+3]", WORDS("1", "\"1\"", "1.0", "1e-3", "-0.5E+3"),
                   WORDS("1", "1", "1.0", "1e-3", "-0.5E+3"));
    assert_choices("[ { \"a b\" : [ 1 , { } , [ ] ] } ]", WORDS("{\"a b\":[1,{},[]]}"), WORDS("{\"a b\":[1,{},[]]}"));
    assert_choices("[\n\t\"\"\r\n]", WORDS("\"\""), WORDS(""));
    assert_choices("[9223372036854775807, -9223372036854775808]", WORDS("9223372036854775807", "-9223372036854775808"),
                   WORDS("9223372036854775807", "-9223372036854775808"));
    assert_choices("[1e-400]", WORDS("1e-400"), WORDS("1e-400"));
    assert_choices("[\"1..4\", \"log:1..4\", \"a,b\", \"]\"]", WORDS("\"1..4\"", "\"log:1..4\"", "\"a,b\"", "\"]\""),
                   WORDS("1..4", "log:1..4", "a,b", "]"));
}

HY_TEST(test_escapes_in_a_json_text_are_read_for_its_text_alone)
{
    assert_choices("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]", WORDS("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""),
                   WORDS("\"\\/\b\f\n\r\t"));
    assert_choices("[\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\"]", WORDS("\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\""),
                   WORDS("A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
    assert_choices("[\"\xc3\xa9\x7f\"]", WORDS("\"\xc3\xa9\x7f\""), WORDS("\xc3\xa9\x7f"));
}

HY_TEST(test_invalid_json_is_rejected_with_its_position)
{
    static const struct {
        const char *list, *because;
    } cases[] = {
        {"[]", "no values"},
        {"[ ]", "no values"},
        {"[relu, tanh]", "at byte 2, before 'relu, tanh]', a value is missing"},
        {"['relu']", "at byte 2, before ''relu']', a value is missing"},
        {"[1 2]", "at byte 4, before '2]', a ',' or ']' is missing"},
        {"[1,]", "at byte 4, before ']', a value is missing"},
        {"[,1]", "at byte 2, before ',1]', a value is missing"},
        {"[1],[2]", "at byte 4, before ',[2]', text follows the end of the list"},
        {"[[1]", "at its end a ',' or ']' is missing"},
        {"[01]", "at byte 3, before '1]', a ',' or ']'"},
        {"[.5]", "a value is missing"},
        {"[1.]", "at byte 3, before '.]', a ',' or ']'"},
        {"[+1]", "a value is missing"},
        {"[1e]", "before 'e]', a ',' or ']'"},
        {"[NaN]", "a value is missing"},
        {"[nul]", "a value is missing"},
        {"[truefalse]", "at byte 6, before 'false]', a ',' or ']'"},
        {"[9223372036854775808]", "too large"},
        {"[-1e999]", "too large"},
        {"[\"a]", "at byte 2, before '\"a]', a string is not terminated"},
        {"[\"\\x\"]", "invalid escape"},
        {"[\"\\u12\"]", "not a character"},
        {"[\"\\ud800\"]", "not a character"},
        {"[\"\\udc00\"]", "not a character"},
        {"[\"\\ud800\\u0041\"]", "not a character"},
        {"[\"\\u0000\"]", "NUL"},
        {"[\"a\tb\"]", "control character"},
        {"[\"\xff\"]", "not UTF-8"},
        {"[\"\xed\xa0\x80\"]", "not UTF-8"},
        {"[{\"a\" 1}]", "before '1}]', a ':' is missing"},
        {"[{a: 1}]", "before 'a: 1}]', a name in double quotes"},
        {"[{\"a\": 1,}]", "before '}]', a name in double quotes"},
        {"[{\"a\": 1]", "before ']', a ',' or '}' is missing"},
        {"[1 // one\n]", "before '// one?]'"},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        hy_cleanup_free char *text = hy_asprintf("x=%s", cases[i].list);

        assert_refused(text, false, cases[i].because);
        assert_refused(text, true, cases[i].because);
    }
}

HY_TEST(test_json_may_be_nested_but_not_without_end)
{
    char deep[2 * 300 + 3] = "x=";
    struct hy_space s = {0};
    struct hy_err err = {0};

    memset(deep + 2, '[', 200);
    memset(deep + 202, ']', 200);
    assert_int_equal(hy_space_add(&s, deep, &err), 0);
    assert_int_equal(strlen(hy_value_json(&s.dims[0], (struct hy_value){0})), 398);
    hy_space_done(&s);
    memset(deep + 2, '[', 300);
    memset(deep + 302, ']', 300);
    assert_refused(deep, false, "at byte 201");
}

HY_TEST(test_a_hundred_thousand_json_values_are_read)
{
    hy_cleanup_buf struct hy_buf b;
    struct hy_space s = {0};
    struct hy_err err = {0};

    hy_buf_init(&b, 16 << 20);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(hy_buf_printf(&b, "%s%d", i ? ", " : "x=[", i), 0);
    assert_int_equal(hy_buf_append_str(&b, "]"), 0);
    assert_int_equal(hy_space_add_grid(&s, hy_buf_cstr(&b), &err), 0);
    assert_int_equal(s.dims[0].choice_count, 100000);
    assert_string_equal(hy_value_json(&s.dims[0], (struct hy_value){99999}), "99999");
    hy_space_done(&s);
}

HY_TEST(test_only_what_was_written_as_json_has_json)
{
    struct hy_space s = SPACE("a=x,1", "b=1..4", "c=0.0..1.0", "d=[1]", "e=[1,2", "f=1,2]");

    for (size_t i = 0; i < s.count; i++)
        assert_int_equal(hy_value_json(&s.dims[i], (struct hy_value){0}) != NULL, i == 3);
    assert_string_equal(s.dims[4].choices[0], "[1");
    assert_string_equal(hy_value_json(&s.dims[3], (struct hy_value){1}), ""); /* there is none such */
    hy_space_done(&s);
}

HY_TEST(test_invalid_spaces_are_rejected_with_a_message)
{
    static const struct {
        const char *text, *because;
    } cases[] = {
        {"", "NAME=VALUE"},           {"lr", "has no values"},
        {"=1,2", "no name"},          {"lr=", "no values"},
        {"lr=1,,2", "empty"},         {"lr=1,", "empty"},
        {"taken=1,2", "given twice"}, {"a{b=1", "cannot be used"},
        {"a\nb=1", "cannot be used"}, {"a\xff=1", "cannot be used"},
    };
    static const struct {
        const char *text, *because;
    } ranges[] = {
        {"x=a..b", "not a finite number"},
        {"x=1..b", "not a finite number"},
        {"x=..", "missing"},
        {"x=1..", "missing"},
        {"x=..2", "missing"},
        {"x=nan..1", "not a finite number"},
        {"x=0..inf", "not a finite number"},
        {"x=1e999..2", "too large"},
        {"x=log:0..1", "above 0"},
        {"x=log:-1..1.5", "above 0"},
        {"x=log:3", "two bounds"},
        {"x=log:", "two bounds"},
        {"x=0..9007199254740993000", "2^53"},
        {"x=1\n..2", "not a finite number"},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        assert_refused(cases[i].text, false, cases[i].because);
        assert_refused(cases[i].text, true, cases[i].because);
    }
    for (size_t i = 0; i < HY_COUNT(ranges); i++)
        assert_refused(ranges[i].text, false, ranges[i].because);
}

HY_TEST(test_grids_refuse_ranges_that_are_not_of_integers)
{
    assert_refused("x=log:1..8 step 1", true, "a grid takes values");
    assert_refused("x=normal(0, 1)", true, "'x' is a distribution; a grid takes values");
    assert_refused("x=lognormal(0,1) in 1..2", true, "is a distribution");
    assert_refused("x=0.1..0.5", true, "a grid takes values");
    assert_refused("x=log:1..8", true, "a grid takes values");
    assert_refused("x=log:1e-5..1e-1", true, "a grid takes values");
}

HY_TEST(test_long_names_are_truncated_in_messages)
{
    char text[4000];
    struct hy_space space = {0};
    struct hy_err err = {0};

    memset(text, 'n', sizeof text);
    strcpy(text + sizeof text - 8, "=1..x");
    assert_int_equal(hy_space_add(&space, text, &err), -EINVAL);
    assert_non_null(strstr(err.text, "values with commas"));
    hy_space_done(&space);
}

HY_TEST(test_programs_dimensions_are_checked_like_written_ones)
{
    char name[] = "x";
    struct hy_dim good = {.name = name, .kind = HY_DIM_INT, .low = 4, .high = 1}, bad = good;
    struct hy_space space = {0};
    struct hy_err err = {0};

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

HY_TEST(test_value_texts_read_back_equal)
{
    struct hy_space s = SPACE("x=0.0..1.0", "n=-9007199254740992..9007199254740992");
    struct hy_rng rng;
    char text[32];
    double back;

    assert_string_equal(hy_value_text(&s.dims[0], (struct hy_value){0.001}, text, sizeof text), "0.001");
    assert_string_equal(hy_value_text(&s.dims[1], (struct hy_value){3}, text, sizeof text), "3");
    assert_string_equal(hy_value_text(&s.dims[1], (struct hy_value){-0x1p53}, text, sizeof text), "-9007199254740992");
    assert_string_equal(hy_value_text(&s.dims[1], (struct hy_value){1e15}, text, sizeof text), "1000000000000000");
    hy_rng_seed(&rng, 1, 1);
    for (int i = 0; i < 1000; i++) {
        double x = ldexp(hy_rng_double(&rng), (int)hy_rng_below(&rng, 2000) - 1000);

        assert_int_equal(hy_parse_double(hy_value_text(&s.dims[0], (struct hy_value){x}, text, sizeof text), &back), 0);
        assert_true(back == x);
    }
    hy_space_done(&s);
}

HY_TEST(test_a_long_choice_is_not_truncated_by_a_small_buffer)
{
    struct hy_space s = SPACE("path=/a/rather/long/path/to/some/data,b");
    char text[8];

    assert_string_equal(hy_value_text(&s.dims[0], (struct hy_value){0}, text, sizeof text),
                        "/a/rather/long/path/to/some/data");
    assert_string_equal(text, "/a/rath");
    assert_string_equal(hy_value_text(&s.dims[0], (struct hy_value){1}, text, sizeof text), "b");
    assert_string_equal(text, "b");
    assert_string_equal(hy_value_text(&s.dims[0], (struct hy_value){2}, text, sizeof text), "");
    hy_space_done(&s);
}

/* What was a list before there were steps still is. */
HY_TEST(test_lists_may_contain_the_words_of_other_forms)
{
    static const char *const lines[] = {"a=0..1 step 0.1,x",
                                        "b=normal(0,0.1),uniform(0,1)",
                                        "c=normal(0)",
                                        "d=normal(a, b)",
                                        "e=normal(0, 1)x",
                                        "f=abnormal(0, 1)",
                                        "g=x if y == 1",
                                        "h=x if taken",
                                        "i=x if taken == 1 else 2",
                                        "j=[1 if taken == 1]x",
                                        "k=x step 1",
                                        "l= in 1..2,3"};

    for (size_t i = 0; i < HY_COUNT(lines); i++) {
        struct hy_space s = SPACE("taken=1,2", lines[i]);
        const char *list = strchr(lines[i], '=') + 1, *last = strrchr(list, ',');

        assert_int_equal(s.dims[1].kind, HY_DIM_CATEGORY);
        assert_null(s.dims[1].condition);
        assert_string_equal(s.dims[1].choices[s.dims[1].choice_count - 1], last ? last + 1 : list);
        hy_space_done(&s);
    }
}
