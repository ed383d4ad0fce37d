/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>

#include "agent/metric.h"

/* ---- name=value in what a trial prints ---- */

static struct hy_metric_scan scan(const char *name, const char *text)
{
    struct hy_metric_scan m;

    hy_metric_scan_init(&m, name);
    hy_metric_scan_feed(&m, (const uint8_t *)text, strlen(text));
    hy_metric_scan_end(&m);
    return m;
}

static void assert_found(const char *text, double value)
{
    struct hy_metric_scan m = scan("accuracy", text);

    if (!m.found || m.value != value)
        fail_msg("'%s': found %d, value %g", text, m.found, m.value);
}

static void assert_not_found(const char *text)
{
    struct hy_metric_scan m = scan("accuracy", text);

    if (m.found)
        fail_msg("'%s': found %g", text, m.value);
}

HY_TEST(test_a_metric_is_found_as_a_separate_word)
{
    assert_found("accuracy=0.91\n", 0.91);
    assert_found("accuracy=0.91", 0.91);
    assert_found("epoch 3: loss=0.2, accuracy=0.91, f1=3\n", 0.91);
    assert_found("\taccuracy=-1e-3;", -1e-3);
    assert_found("[accuracy=5]", 5);
    assert_found("(accuracy=+.5)", 0.5);
    assert_found("{accuracy=7}", 7);
    assert_found("train_accuracy=1 accuracy=2\n", 2);
    assert_found("accuracy=oops accuracy=2\n", 2);
    assert_found("accuracy=2 accuracy=oops\n", 2);
    assert_found("accuracy=0x10\r\n", 16);
}

HY_TEST(test_what_only_looks_like_a_metric_is_not_found)
{
    assert_not_found("");
    assert_not_found("accuracy\n=1\n");
    assert_not_found("accuracy=\n");
    assert_not_found("accuracy= 1\n");
    assert_not_found("accuracy =1\n");
    assert_not_found("val_accuracy=1\n");
    assert_not_found("-accuracy=1\n");
    assert_not_found("accuracy=1%\n");
    assert_not_found("accuracy=1.2.3\n");
    assert_not_found("accuracy=1e999\n");
    assert_not_found("Accuracy=1\n");
    assert_not_found("accuracy");
}

HY_TEST(test_the_last_value_counts)
{
    struct hy_metric_scan m = scan("loss", "loss=3\nloss=2 step=1\nnothing\nloss=1 loss=0.5 step=9\nbye\n");

    assert_true(m.found);
    assert_true(m.value == 0.5);
    assert_int_equal(m.step, 9);
    assert_int_equal(m.seen, 4);
    m = scan("loss", "loss=2 step=1\nloss=1\n");
    assert_int_equal(m.step, -1);
    m = scan("loss", "step=-2 step=x step=99999999999999999999 loss=1\n");
    assert_int_equal(m.step, -1);
    m = scan("step", "step=4\n");
    assert_true(m.value == 4);
    assert_int_equal(m.step, 4);
}

HY_TEST(test_nan_and_infinity_are_numbers)
{
    assert_true(isnan(scan("loss", "loss=nan\n").value));
    assert_true(scan("loss", "loss=nan\n").found);
    assert_true(isinf(scan("loss", "loss=-inf\n").value));
    assert_found("accuracy=Infinity\n", (double)INFINITY);
}

HY_TEST(test_a_progress_bar_counts_line_by_line)
{
    struct hy_metric_scan m = scan("loss", "1/9 loss=3\r2/9 loss=2 step=2\r3/9 loss=1 step=3");

    assert_int_equal(m.seen, 3);
    assert_int_equal(m.step, 3);
    assert_true(m.value == 1);
}

HY_TEST(test_pieces_of_any_size_find_the_same)
{
    static const char text[] = "a\nloss=1 step=1\r\n loss=2,step=2\n\nxloss=3\n{loss=4}";
    struct hy_metric_scan whole = scan("loss", text), m;

    for (size_t piece = 1; piece < sizeof text; piece++) {
        hy_metric_scan_init(&m, "loss");
        for (size_t at = 0; at < strlen(text); at += piece) {
            size_t left = strlen(text) - at;

            hy_metric_scan_feed(&m, (const uint8_t *)text + at, left < piece ? left : piece);
        }
        hy_metric_scan_end(&m);
        assert_int_equal(m.seen, whole.seen);
        assert_int_equal(m.step, whole.step);
        assert_true(m.value == whole.value);
    }
    assert_int_equal(whole.seen, 3);
}

HY_TEST(test_only_the_beginning_of_a_long_line_is_parsed)
{
    static char text[HY_METRIC_LINE_MAX + 64];

    memset(text, ' ', sizeof text - 1);
    memcpy(text + HY_METRIC_LINE_MAX - 10, "accuracy=1", 10);
    assert_found(text, 1); /* ends with the part that is looked at */
    memset(text, ' ', sizeof text - 1);
    memcpy(text + HY_METRIC_LINE_MAX, "accuracy=1", 10);
    assert_not_found(text);
    strcpy(text + HY_METRIC_LINE_MAX + 40, "\naccuracy=2");
    assert_found(text, 2);
}

HY_TEST(test_no_name_finds_nothing)
{
    assert_false(scan("", "=1\n").found);
    assert_false(scan(NULL, "=1\n").found);
    assert_false(scan("a\nb", "a\nb=1\n").found);
}

HY_TEST(test_arbitrary_bytes_are_scanned)
{
    static const uint8_t bytes[] = "\0accuracy=1\n\xff\xfe \0 accuracy=2\0\n accuracy=3\n";
    struct hy_metric_scan m;

    hy_metric_scan_init(&m, "accuracy");
    hy_metric_scan_feed(&m, bytes, sizeof bytes - 1);
    assert_int_equal(m.seen, 1);
    assert_true(m.value == 3);
}

HY_TEST(test_a_report_is_a_name_and_a_number)
{
    size_t n;
    double v;

    assert_int_equal(hy_metric_parse("accuracy=0.91", &n, &v), 0);
    assert_int_equal(n, 8);
    assert_true(v == 0.91);
    assert_int_equal(hy_metric_parse("a=b\n=2", &n, &v), 0);
    assert_int_equal(n, 4);
    assert_int_equal(hy_metric_parse("x=nan", &n, &v), 0);
    assert_true(isnan(v));
    assert_int_equal(hy_metric_parse("accuracy", &n, &v), -EINVAL);
    assert_int_equal(hy_metric_parse("=1", &n, &v), -EINVAL);
    assert_int_equal(hy_metric_parse("a=", &n, &v), -EINVAL);
    assert_int_equal(hy_metric_parse("a= 1", &n, &v), -EINVAL);
    assert_int_equal(hy_metric_parse("a=1e999", &n, &v), -EINVAL);
    assert_int_equal(hy_metric_parse("", &n, &v), -EINVAL);
}

/* ---- the JSON of $HOPYARD_RESULT ---- */

struct numbers {
    int count, stop_after;
    char text[512]; /* "name=value;" for each */
};

static int take(void *arg, const char *name, double value)
{
    struct numbers *n = arg;
    size_t len = strlen(n->text);

    snprintf(n->text + len, sizeof n->text - len, "%s=%g;", name, value);
    return ++n->count == n->stop_after ? -ECANCELED : 0;
}

static int parse(const char *json, struct numbers *n, struct hy_err *err)
{
    *n = (struct numbers){0};
    *err = (struct hy_err){0};
    return hy_result_parse((const uint8_t *)json, strlen(json), "metric", take, n, err);
}

static void assert_numbers(const char *json, const char *expected)
{
    struct numbers n;
    struct hy_err err;

    if (parse(json, &n, &err) < 0)
        fail_msg("%s: %s", json, err.text);
    assert_string_equal(n.text, expected);
}

static void assert_refused(const char *json, const char *sentence)
{
    struct numbers n;
    struct hy_err err;

    assert_int_equal(parse(json, &n, &err), -EINVAL);
    if (!strstr(err.text, sentence))
        fail_msg("%s: '%s' is not in: %s", json, sentence, err.text);
}

HY_TEST(test_the_numbers_of_an_object_are_taken)
{
    assert_numbers("{\"accuracy\": 0.91, \"loss\": 3, \"note\": \"x=1\"}\n", "accuracy=0.91;loss=3;");
    assert_numbers("{}", "");
    assert_numbers("{\"a\": true, \"b\": false, \"c\": null, \"d\": [1], \"e\": {\"f\": 1}}", "a=1;b=0;");
    assert_numbers("{\"big\": 123456789012345678901234567890}", "big=1.23457e+29;");
    assert_numbers("{\"a\\nb\": 1}", "a\nb=1;");
    assert_numbers("{\"\xc3\xa9\": 1}", "\xc3\xa9=1;");
}

HY_TEST(test_one_bare_number_is_the_metric)
{
    assert_numbers("0.91\n", "metric=0.91;");
    assert_numbers(" -3e2 ", "metric=-300;");
    assert_numbers("true", "metric=1;");
    assert_numbers("NaN", "metric=nan;");
}

HY_TEST(test_nan_and_infinity_of_python_are_parsed)
{
    assert_numbers("{\"a\": NaN, \"b\": Infinity, \"c\": -Infinity}", "a=nan;b=inf;c=-inf;");
    assert_numbers("{\"NaN\": 1, \"x\\\"NaN\": 2, \"t\": \"Infinity\"}", "NaN=1;x\"NaN=2;");
    assert_numbers("{\"d\": [NaN, null], \"e\":NaN}", "e=nan;");
    assert_refused("{\"a\": NaNa}", "not valid JSON");
    assert_refused("{\"a\": +Infinity}", "not valid JSON");
    assert_refused("{\"a\": nan}", "not valid JSON");
}

HY_TEST(test_an_invalid_result_has_a_message)
{
    static uint8_t big[(1u << 20) + 1];
    struct hy_err err = {0};
    struct numbers n = {0};

    assert_refused("", "empty");
    assert_refused(" \n", "empty");
    assert_refused("{\"a\": 1", "not valid JSON: line 1");
    assert_refused("{\"a\": 1}\n{\"a\": 2}", "not valid JSON: line 2");
    assert_refused("[1, 2]", "neither a JSON object nor a number");
    assert_refused("\"0.9\"", "neither a JSON object nor a number");
    assert_refused("null", "neither a JSON object nor a number");
    assert_refused("{\"a\": 1e999}", "not valid JSON");
    assert_refused("{\"\xff\": 1}", "not valid JSON");
    memset(big, ' ', sizeof big);
    assert_int_equal(hy_result_parse(big, sizeof big, "m", take, &n, &err), -EINVAL);
    assert_non_null(strstr(err.text, "1048577 bytes"));
    assert_int_equal(hy_result_parse((const uint8_t *)"1", 1, "", take, &n, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no metric to name it"));
    assert_int_equal(n.count, 0);
}

HY_TEST(test_nesting_is_bounded)
{
    static char deep[200000];

    memset(deep, '[', sizeof deep - 1);
    assert_refused(deep, "not valid JSON");
}

HY_TEST(test_the_receiver_can_stop)
{
    static const char json[] = "{\"a\": 1, \"b\": 2, \"c\": 3}";
    struct numbers n = {.stop_after = 2};
    struct hy_err err = {0};

    assert_int_equal(hy_result_parse((const uint8_t *)json, strlen(json), "m", take, &n, &err), -ECANCELED);
    assert_string_equal(n.text, "a=1;b=2;");
}

static int parse_one(void *arg)
{
    struct numbers n;
    struct hy_err err;
    int rc = parse(arg, &n, &err);

    return rc < 0 && !err.text[0] ? 1 : rc;
}

HY_TEST(test_faults_in_parsing)
{
    hy_each_fault(HY_SEAM_ALLOC, parse_one,
                  (void *)(uintptr_t)"{\"accuracy\": NaN, \"list\": [1, 2, {\"deep\": \"text\"}]}");
}
