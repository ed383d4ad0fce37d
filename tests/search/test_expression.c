/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions over a space: what they mean, where dimensions are inactive, and which are refused. */
#include "search_bench.h"

#include <errno.h>

#include "base/mem.h"
#include "search/expression.h"
#include "search/scale.h"

/* opt, lr, layers, batch, flag, learning-rate, mode: the values of `point` are in this order. */
static struct hy_space example(void)
{
    return SPACE("opt=sgd,adam, rmsprop", "lr=0.0..1.0", "layers=1..9", "batch=32,64,1e2",
                 "flag=[true, false, null, \"1\", 1]", "learning-rate=0.0..1.0", "mode=adam,sgd,32");
}

enum { OPT, LR, LAYERS, BATCH, FLAG, RATE, MODE, DIMS };

/* sgd, 0.5, 3, 64, true, 0.25, adam */
static const struct hy_value point[DIMS] = {{0}, {0.5}, {3}, {1}, {0}, {0.25}, {0}};

static enum hy_truth truth_at(const char *text, const struct hy_value *values)
{
    struct hy_space space = example();
    struct hy_expression *e = NULL;
    struct hy_err err = {0};
    enum hy_truth truth;

    if (hy_expression_new(&space, text, &e, &err) < 0)
        fail_msg("'%s': %s", text, err.text);
    assert_string_equal(hy_expression_text(e), text);
    truth = hy_expression_test(e, &space, values);
    hy_expression_free(e);
    hy_space_done(&space);
    return truth;
}

static void assert_all(const char *const *texts, enum hy_truth want)
{
    for (; *texts; texts++)
        if (truth_at(*texts, point) != want)
            fail_msg("'%s' is not %d", *texts, (int)want);
}

#define ALL(...) ((const char *const[]){__VA_ARGS__, NULL})

HY_TEST(test_numbers_are_compared_as_numbers)
{
    assert_all(ALL("lr == 0.5", "lr != 0.25", "lr < 0.6", "lr <= 0.5", "lr > .4", "lr >= 5e-1", "0.6 > lr",
                   "layers == 3", "layers == 3.0", "lr < layers", "lr != layers", "-lr == -.5", "- -lr == +0.5"),
               HY_TRUE);
    assert_all(ALL("lr == 0.25", "lr != 0.5", "lr < 0.5", "lr > 0.5", "layers <= 2.9", "layers >= 4"), HY_FALSE);
}

HY_TEST(test_arithmetic_has_the_usual_precedence)
{
    assert_all(ALL("layers + 2 * lr == 4", "(layers + 2) * lr == 2.5", "layers - 1 - 1 == 1", "layers / 2 / 3 == 0.5",
                   "8 - layers * 2 == 2", "-layers * 2 == -6", "layers * -2 == -6", "batch * layers == 192",
                   "layers % 2 == 1", "-layers % 2 == 1", "layers % -2 == -1", "7.5 % layers == 1.5",
                   "9007199254740991 % layers == 1", "layers + 0.1 > 3 and layers - 0.1 < 3"),
               HY_TRUE);
}

HY_TEST(test_and_or_not_have_pythons_precedence)
{
    assert_all(ALL("layers == 3 or layers == 4 and lr == 9", "not layers == 4 and lr == 0.5",
                   "not (layers == 3 and lr == 9)", "not not layers == 3", "(layers == 3)", "((layers)) == (3)",
                   "layers == 3 and not lr == 1"),
               HY_TRUE);
    assert_all(ALL("(layers == 3 or layers == 4) and lr == 9", "not layers == 3 or lr == 9", "not layers == 3"),
               HY_FALSE);
}

HY_TEST(test_categories_are_compared_by_their_texts)
{
    assert_all(ALL("opt == sgd", "opt == 'sgd'", "opt == \"sgd\"", "sgd == opt", "opt != adam", "opt != rmsprop",
                   "opt in (sgd, adam)", "opt not in (adam, rmsprop)", "opt  not  in ( adam , 'rmsprop')",
                   "opt in(sgd)", "not opt in (adam)", "flag == true", "flag != null", "mode != opt"),
               HY_TRUE);
    assert_all(ALL("opt == adam", "opt != sgd", "opt in (adam, rmsprop)", "flag == 1", "mode == opt"), HY_FALSE);
}

HY_TEST(test_choices_that_look_like_numbers_are_numbers_too)
{
    struct hy_value last[DIMS], string[DIMS];

    assert_all(ALL("batch == 64", "batch == 64.0", "batch == '64'", "batch > 32", "batch in (32, 64)",
                   "batch * lr == 32", "batch == layers * 21 + 1", "batch + batch == 128"),
               HY_TRUE);
    memcpy(last, point, sizeof last);
    last[BATCH].number = 2;
    assert_int_equal(truth_at("batch == 100", last), HY_TRUE);
    assert_int_equal(truth_at("batch == '1e2'", last), HY_TRUE);
    memcpy(string, point, sizeof string);
    for (int i = 3; i <= 4; i++) { /* "1" and 1 */
        string[FLAG].number = i;
        assert_int_equal(truth_at("flag == 1", string), HY_TRUE);
        assert_int_equal(truth_at("flag == '1'", string), HY_TRUE);
    }
    string[MODE].number = 2;
    string[BATCH].number = 0;
    assert_int_equal(truth_at("mode == batch", string), HY_TRUE);
}

HY_TEST(test_the_longest_name_is_taken)
{
    assert_all(
        ALL("learning-rate == 0.25", "learning-rate < lr", "lr - learning-rate == 0.25", "lr-learning-rate==0.25"),
        HY_TRUE);
}

HY_TEST(test_inactive_dimensions_decide_nothing)
{
    struct hy_value v[DIMS];

    memcpy(v, point, sizeof v);
    v[LR].number = v[OPT].number = NAN;
    for (const char *const *text = ALL("lr < 1", "lr != 1", "lr == lr", "not lr < 1", "lr + 1 > 0", "opt == sgd",
                                       "opt != sgd", "opt not in (sgd, adam)", "opt == mode", "lr < 1 and layers == 3",
                                       "lr < 1 or layers == 4", "not (lr < 1 or opt == sgd)");
         *text; text++)
        if (truth_at(*text, v) != HY_UNDECIDED)
            fail_msg("'%s' is decided", *text);
    assert_int_equal(truth_at("lr < 1 and layers == 4", v), HY_FALSE);
    assert_int_equal(truth_at("layers == 3 or opt == sgd", v), HY_TRUE);
    assert_int_equal(truth_at("layers == 3 and batch == 64", v), HY_TRUE);
}

HY_TEST(test_an_undefined_result_is_false_and_not_undecided)
{
    assert_all(ALL("(layers - 3) / (layers - 3) == 1", "layers % 0 == 0", "layers % 0 < 1", "layers / 0 < 1"),
               HY_FALSE);
    assert_all(ALL("layers / 0 > 1e300", "(layers - 3) / (layers - 3) != 1"), HY_TRUE);
}

HY_TEST(test_values_of_another_space_decide_nothing)
{
    static const double others[] = {-1, 3, 1e300};

    for (size_t i = 0; i < HY_COUNT(others); i++) {
        struct hy_value v[DIMS];

        memcpy(v, point, sizeof v);
        v[OPT].number = others[i];
        assert_int_equal(truth_at("opt == sgd", v), HY_UNDECIDED);
    }
}

static void assert_refused(const char *text, int code, const char *because)
{
    struct hy_space space = example();
    struct hy_expression *e = NULL;
    struct hy_err err = {0};
    int rc = hy_expression_new(&space, text, &e, &err);

    if (rc != code || err.code != code || !strstr(err.text, because))
        fail_msg("'%s': %d, %s", text, rc, err.text);
    assert_null(e);
    assert_null(strchr(err.text, '\n'));
    hy_space_done(&space);
}

HY_TEST(test_what_is_not_a_comparison_is_refused_with_its_position)
{
    static const struct {
        const char *text, *because;
    } cases[] = {
        {"", "at its end a value is missing"},
        {"  ", "a value is missing"},
        {"lr", "at its end a comparison is missing"},
        {"lr + 1", "a comparison is missing"},
        {"sgd", "a comparison is missing"},
        {"lr ==", "at its end a value is missing"},
        {"lr = 1", "at byte 4, before '= 1', write '=='"},
        {"lr == 1 2", "at byte 9, before '2', an operator is missing"},
        {"lr < 1 else 2", "before 'else 2', an operator"},
        {"(lr == 1", "a ')' or an operator is missing"},
        {"lr == 1)", "before ')', an operator"},
        {"0 < lr < 1", "comparisons cannot be chained"},
        {"(lr < 1) + 1 > 2", "comparisons cannot be chained or computed with"},
        {"-(lr < 1) > 2", "comparisons cannot be chained or computed with"},
        {"(lr < 1) == (lr < 2)", "comparisons cannot be chained"},
        {"lr and lr < 1", "'and', 'or' and 'not' need comparisons"},
        {"lr < 1 or layers", "need comparisons"},
        {"not lr", "need comparisons"},
        {"not not lr", "need comparisons"},
        {"lr < not 1", "before 'not 1', a value"},
        {"opt in sgd", "a '(' is missing"},
        {"opt in ()", "before ')', a value"},
        {"opt in (sgd", "at its end a ',' or ')' is missing"},
        {"opt in (sgd adam)", "before 'adam)', a ',' or ')'"},
        {"opt in (lr < 1)", "before '< 1)', a ',' or ')'"},
        {"opt not sgd", "before 'not sgd', an operator"},
        {"opt == 'sgd", "before ''sgd', a text is not terminated"},
        {"lr < 1e999", "a number is invalid or too large"},
        {"lr < 1x", "a number is invalid"},
        {"lr < 1..2", "a number is invalid"},
        {"lr < .", "a value is missing"},
        {"lr & 1", "an operator is missing"},
        {"lr ** 2 > 1", "before '* 2 > 1', a value"},
        {"lr < 1\x01", "before '?'"},
        {"lr < 11111111111111111111111111111111111111111111111111111111111111111", "a number is too long"},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++)
        assert_refused(cases[i].text, -EINVAL, cases[i].because);
}

HY_TEST(test_unknown_names_are_refused_with_the_nearest)
{
    assert_refused("layrs == 3", -EDOM, "'layrs' is not a dimension that is declared before; did you mean 'layers'?");
    assert_refused("lr < 1 and nothing > 2", -EDOM, "'nothing' is not a dimension that is declared before");
    assert_refused("nothing == 3", -ENOENT, "'nothing' is not a dimension");
    assert_refused("nothing == something", -ENOENT, "'nothing' is not a dimension");
    assert_refused("1 == 1", -ENOENT, "depends on no dimension");
    assert_refused("'a' == 'b'", -ENOENT, "the text 'a' is used as a number");
    assert_refused("lr2 < 1", -EDOM, "'lr2'");
    assert_refused("lr.rate < 1", -ENOENT, "'lr.rate'");
}

HY_TEST(test_what_cannot_be_compared_is_refused)
{
    assert_refused("opt == sdg", -EDOM, "'sdg' is not a choice of 'opt' (choices: sgd, adam,  rmsprop)");
    assert_refused("opt in (sgd, 'foo bar')", -EDOM, "'foo bar' is not a choice of 'opt'");
    assert_refused("batch == 65", -EDOM, "'65' is not a choice of 'batch' (choices: 32, 64, 1e2)");
    assert_refused("batch != -32", -EDOM, "'-32' is not a choice");
    assert_refused("opt > 1", -EDOM, "'opt' is used as a number, but its choice 'sgd' is not one");
    assert_refused("opt * 2 == 4", -EDOM, "'opt' is used as a number");
    assert_refused("mode == layers", -EDOM, "'mode' is used as a number, but its choice 'adam'");
    assert_refused("lr == 'sgd'", -EDOM, "the text 'sgd' is used as a number");
    assert_refused("lr == sgd", -EDOM, "'sgd' is not a dimension");
    assert_refused("lr < 'sgd'", -EDOM, "the text 'sgd' is used as a number");
    assert_refused("opt == leaky-relu", -EDOM, "'leaky' is not a dimension");
}

HY_TEST(test_a_long_list_of_choices_is_truncated_in_a_message)
{
    hy_cleanup_free char *text = hy_calloc(20000, 1);
    struct hy_space space = {0};
    struct hy_expression *e = NULL;
    struct hy_err err = {0};
    size_t at = (size_t)sprintf(text, "c=");

    for (int i = 0; i < 1000; i++)
        at += (size_t)sprintf(text + at, "%schoice%d", i ? "," : "", i);
    assert_int_equal(hy_space_add(&space, text, &err), 0);
    assert_int_equal(hy_expression_new(&space, "c == choice1000", &e, &err), -EDOM);
    assert_non_null(strstr(err.text, "choice0, choice1,"));
    assert_non_null(strstr(err.text, ", ...)"));
    hy_space_done(&space);
}

/* `n` times `part`, around or before `middle`. */
static char *repeated(const char *part, size_t n, const char *middle, const char *after)
{
    char *text = hy_calloc(1, n * (strlen(part) + strlen(after)) + strlen(middle) + 1);

    for (size_t i = 0; i < n; i++)
        strcat(text, part);
    strcat(text, middle);
    for (size_t i = 0; i < n; i++)
        strcat(text, after);
    return text;
}

HY_TEST(test_expressions_may_be_long_and_deep_but_not_without_end)
{
    hy_cleanup_free char *deep = repeated("(", 32, "lr == 0.5", ")"), *too_deep = repeated("(", 33, "lr", ")");
    hy_cleanup_free char *many = repeated("lr+", 198, "lr > 99", ""), *too_many = repeated("lr+", 199, "lr > 99", "");
    hy_cleanup_free char *nots = repeated("not ", 400, "lr < 1", ""), *too_long = repeated(" ", 1995, "lr < 1", "");

    assert_int_equal(truth_at(deep, point), HY_TRUE);
    assert_int_equal(truth_at(many, point), HY_TRUE);
    assert_int_equal(truth_at(nots, point), HY_TRUE);
    assert_refused(too_deep, -EINVAL, "parentheses are nested too deeply");
    assert_refused(too_many, -EINVAL, "too many operands");
    assert_refused(too_long, -EINVAL, "longer than 2000 bytes");
}

static int expression_scenario(void *arg)
{
    struct hy_space *space = arg;
    struct hy_expression *e = NULL;
    struct hy_err err = {0};
    int rc = hy_expression_new(space, "opt in (sgd, adam) and lr < 1", &e, &err);

    if (rc < 0) {
        assert_int_equal(rc, -ENOMEM);
        assert_non_null(strstr(err.text, "out of memory"));
    }
    hy_expression_free(e);
    return rc;
}

HY_TEST(test_expressions_survive_failing_allocations)
{
    struct hy_space space = example();

    hy_each_fault(HY_SEAM_ALLOC, expression_scenario, &space);
    hy_space_done(&space);
}
