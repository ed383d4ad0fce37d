/* SPDX-License-Identifier: Apache-2.0 */
/* base: what people write and read: numbers, sizes, times, the sentences of errors, the lines of the log. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/guess.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"

/* --- errors ------------------------------------------------------------- */

HY_TEST(test_err_set_writes_the_sentence_and_returns_the_code)
{
    struct hy_err err = {0};

    assert_int_equal(hy_err_set(&err, -EINVAL, "no list for '%s'; give values", "lr"), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_string_equal(err.text, "no list for 'lr'; give values");
}

HY_TEST(test_err_may_be_null)
{
    assert_int_equal(hy_err_set(NULL, -EINVAL, "unread"), -EINVAL);
    assert_int_equal(hy_err_sys(NULL, -ENOENT, "unread"), -ENOENT);
    assert_true(hy_err_wrap(NULL, "unread") < 0);
}

HY_TEST(test_err_sys_ends_with_the_reason)
{
    struct hy_err err;

    assert_int_equal(hy_err_sys(&err, -ENOENT, "cannot read '%s'", "x.json"), -ENOENT);
    assert_string_equal(err.text, "cannot read 'x.json': No such file or directory");
}

HY_TEST(test_err_sys_keeps_the_reason_behind_a_very_long_path)
{
    static const char reason[] = ": No such file or directory";
    struct hy_err err;
    char path[4096];

    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    hy_err_sys(&err, -ENOENT, "cannot read '%s'", path);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_string_equal(err.text + strlen(err.text) - strlen(reason), reason);
}

HY_TEST(test_err_wrap_puts_what_was_being_done_in_front)
{
    struct hy_err err;

    hy_err_set(&err, -ENOEXEC, "cannot start './train'");
    assert_int_equal(hy_err_wrap(&err, "agent %d", 3), -ENOEXEC);
    assert_int_equal(hy_err_wrap(&err, "run %d", 12), -ENOEXEC);
    assert_string_equal(err.text, "run 12: agent 3: cannot start './train'");
}

HY_TEST(test_err_wrapped_a_thousand_times_stays_within_its_room)
{
    struct hy_err err;

    hy_err_set(&err, -EIO, "it broke");
    for (int i = 0; i < 1000; i++)
        hy_err_wrap(&err, "level %d", i);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_int_equal(strncmp(err.text, "level 999: level 998: ", 22), 0);
}

HY_TEST(test_err_is_one_line_of_utf8_whatever_it_names)
{
    struct hy_err err;
    char wide[1200] = "";

    hy_err_set(&err, -EINVAL, "unknown name '%s'", "a\nb\x7f\xff\x1b[31mü");
    assert_string_equal(err.text, "unknown name 'a?b???[31mü'");
    for (int i = 0; i < 400; i++)
        strcat(wide, "é");
    hy_err_set(&err, -EINVAL, "%s", wide); /* 599 bytes: the last é is cut in two */
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_string_equal(err.text + sizeof err.text - 4, "é?");
    hy_err_set(&err, -EINVAL, "fine");
    hy_err_wrap(&err, "x%s", wide);
    assert_string_equal(err.text + sizeof err.text - 3, "é");
}

/* --- text --------------------------------------------------------------- */

HY_TEST(test_text_double_is_the_whole_string)
{
    static const char *const bad[] = {"", " 1", "1 ", "1x", "abc", "1,5", "--1", "1e", "0.1.2"};
    double v = 0;

    for (size_t i = 0; i < HY_COUNT(bad); i++)
        assert_int_equal(hy_parse_double(bad[i], &v), -EINVAL);
    assert_int_equal(hy_parse_double("1e999", &v), -ERANGE);
    assert_int_equal(hy_parse_double("-2.5e-3", &v), 0);
    assert_true(v == -2.5e-3);
    assert_int_equal(hy_parse_double("1e-400", &v), 0); /* too small is nought, no mistake */
    assert_true(v == 0);
    assert_int_equal(hy_parse_double("nan", &v), 0);
    assert_true(isnan(v));
    assert_int_equal(hy_parse_double("-inf", &v), 0);
    assert_true(isinf(v) && v < 0);
}

HY_TEST(test_json_numbers_end_where_their_grammar_does)
{
    static const struct {
        const char *text;
        size_t len;
    } cases[] = {
        {"0", 1},  {"-0", 2},  {"007", 1}, {"12,", 2},  {"-0.5e3]", 6}, {"1e+05", 5}, {"1E-5x", 4},
        {"1.", 1}, {".5", 0},  {"1e", 1},  {"1e+", 1},  {"1.5.5", 3},   {"", 0},      {"-", 0},
        {"+1", 0}, {"inf", 0}, {"nan", 0}, {"0x10", 1}, {"1.e5", 1},    {"-a", 0},    {"10 ", 2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (hy_json_number_len(cases[i].text) != cases[i].len)
            fail_msg("'%s': %zu", cases[i].text, hy_json_number_len(cases[i].text));
}

HY_TEST(test_json_numbers_fit_where_readers_can_hold_them)
{
    assert_true(hy_json_number_fits("9223372036854775807", 19));
    assert_true(hy_json_number_fits("-9223372036854775808", 20));
    assert_false(hy_json_number_fits("9223372036854775808", 19));
    assert_true(hy_json_number_fits("9223372036854775808.0", 21));
    assert_true(hy_json_number_fits("1e308,1e999", 5)); /* looks no further than it is told */
    assert_false(hy_json_number_fits("-1e999", 6));
    assert_true(hy_json_number_fits("1e-999", 6));
}

HY_TEST(test_text_u64_has_digits_only)
{
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "0x10", "1.0", "one"};
    uint64_t v = 0;

    for (size_t i = 0; i < HY_COUNT(bad); i++)
        assert_int_equal(hy_parse_u64(bad[i], &v), -EINVAL);
    assert_int_equal(hy_parse_u64("18446744073709551616", &v), -ERANGE);
    assert_int_equal(hy_parse_u64("18446744073709551615", &v), 0);
    assert_true(v == UINT64_MAX);
    assert_int_equal(hy_parse_u64("007", &v), 0);
    assert_true(v == 7);
}

HY_TEST(test_text_sizes_are_powers_of_1024)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"4096", 4096},  {"512M", 512ULL << 20}, {"4G", 4ULL << 30}, {"4g", 4ULL << 30}, {"1.5GiB", 3ULL << 29},
        {"10KB", 10240}, {"1T", 1ULL << 40},     {"7B", 7},          {"0", 0},           {".5K", 512},
        {"1e3", 1000},
    };
    static const char *const bad[] = {"",     "G",    "-1",  "4X",  "4GG",   "4iB", "4 G",
                                      "0x10", "0X10", "nan", "inf", "4Gi B", "."};
    uint64_t v = 0;

    for (size_t i = 0; i < HY_COUNT(good); i++) {
        assert_int_equal(hy_parse_size(good[i].text, &v), 0);
        assert_true(v == good[i].bytes);
    }
    for (size_t i = 0; i < HY_COUNT(bad); i++)
        assert_int_equal(hy_parse_size(bad[i], &v), -EINVAL);
    assert_int_equal(hy_parse_size("99999999T", &v), -ERANGE);
}

HY_TEST(test_text_durations_are_seconds_unless_they_say)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        {"90", 90000}, {"90s", 90000},    {"15m", 900000},   {"15min", 900000}, {"1h", 3600000},
        {"0", 0},      {"1.5h", 5400000}, {"2d", 172800000}, {"250ms", 250},
    };
    static const char *const bad[] = {"", "h", "-1", "1 h", "1w", "1hh", "1H", "0x1", "nan"};
    int64_t v = 0;

    for (size_t i = 0; i < HY_COUNT(good); i++) {
        assert_int_equal(hy_parse_duration(good[i].text, &v), 0);
        assert_true(v == good[i].ms);
    }
    for (size_t i = 0; i < HY_COUNT(bad); i++)
        assert_int_equal(hy_parse_duration(bad[i], &v), -EINVAL);
    assert_int_equal(hy_parse_duration("1e300d", &v), -ERANGE);
}

HY_TEST(test_text_formats_counts_in_thousands)
{
    char out[32];

    assert_string_equal(hy_format_count(0, out, sizeof out), "0");
    assert_string_equal(hy_format_count(999, out, sizeof out), "999");
    assert_string_equal(hy_format_count(1000, out, sizeof out), "1,000");
    assert_string_equal(hy_format_count(100020, out, sizeof out), "100,020");
    assert_string_equal(hy_format_count(UINT64_MAX, out, sizeof out), "18,446,744,073,709,551,615");
}

HY_TEST(test_text_formats_sizes_for_people)
{
    char out[32];

    assert_string_equal(hy_format_size(0, out, sizeof out), "0 B");
    assert_string_equal(hy_format_size(1023, out, sizeof out), "1023 B");
    assert_string_equal(hy_format_size(1024, out, sizeof out), "1.0 KB");
    assert_string_equal(hy_format_size((1 << 20) - 1, out, sizeof out), "1.0 MB"); /* never "1024.0 KB" */
    assert_string_equal(hy_format_size(4402341478, out, sizeof out), "4.1 GB");
    assert_string_equal(hy_format_size(UINT64_MAX, out, sizeof out), "16.0 EB");
}

HY_TEST(test_text_formats_durations_for_people)
{
    char out[32];

    assert_string_equal(hy_format_duration(-5, out, sizeof out), "0.0s");
    assert_string_equal(hy_format_duration(449, out, sizeof out), "0.4s");
    assert_string_equal(hy_format_duration(12345, out, sizeof out), "12s");
    assert_string_equal(hy_format_duration(59999, out, sizeof out), "59s");
    assert_string_equal(hy_format_duration(185000, out, sizeof out), "3m05s");
    assert_string_equal(hy_format_duration(7620000, out, sizeof out), "2h07m");
    assert_string_equal(hy_format_duration(273600000, out, sizeof out), "3d04h");
}

HY_TEST(test_text_formats_doubles_as_people_write_them)
{
    static const struct {
        double value;
        const char *text;
    } golden[] = {
        {0, "0"},
        {-0.0, "-0"},
        {10, "10"},
        {100, "100"},
        {64, "64"},
        {-1200, "-1200"},
        {0.1, "0.1"},
        {0.001, "0.001"},
        {1e-4, "0.0001"},
        {1e-5, "1e-05"},
        {2.5e-7, "2.5e-07"},
        {1e15, "1000000000000000"},
        {1e16, "1e+16"},
        {12345678901234568, "1.2345678901234568e+16"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1.0 / 3, "0.3333333333333333"},
        {1234.5, "1234.5"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {9007199254740993, "9007199254740992"},
        {INFINITY, "inf"},
        {-INFINITY, "-inf"},
        {NAN, "nan"},
        {-NAN, "nan"},
    };
    char out[32];

    for (size_t i = 0; i < HY_COUNT(golden); i++)
        assert_string_equal(hy_format_double(golden[i].value, out, sizeof out), golden[i].text);
}

HY_TEST(test_text_doubles_read_back_as_themselves)
{
    struct hy_rng r;
    char out[32];

    hy_rng_seed(&r, 5, 0);
    for (int i = 0; i < 20000; i++) {
        union {
            uint64_t bits;
            double value;
        } u = {.bits = hy_rng_next(&r)};
        double back = 0;

        if (i % 2) /* every exponent, and the range of everyday numbers */
            u.value = (hy_rng_double(&r) - 0.5) * pow(10, (double)hy_rng_below(&r, 20) - 6);
        if (!isfinite(u.value))
            continue;
        hy_format_double(u.value, out, sizeof out);
        assert_int_equal(hy_parse_double(out, &back), 0);
        assert_true(back == u.value);
    }
}

HY_TEST(test_text_of_a_double_has_no_more_digits_than_it_needs)
{
    struct hy_rng r;
    char decimal[40], out[32];

    hy_rng_seed(&r, 6, 0);
    for (int i = 0; i < 20000; i++) {
        int digits = 1 + i % 15;
        size_t counted = 0;

        snprintf(decimal, sizeof decimal, "%.*e", digits - 1, (hy_rng_double(&r) - 0.5) * pow(10, i % 600 - 300));
        hy_format_double(strtod(decimal, NULL), out, sizeof out);
        for (const char *c = out + strspn(out, "-0."); *c && *c != 'e'; c++)
            counted += *c != '.';
        if (strchr(out, '.') || strchr(out, 'e')) /* otherwise its zeros are no digits */
            assert_true(counted <= (size_t)digits);
    }
}

HY_TEST(test_utf8_len_rejects_invalid_sequences)
{
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
        {"a", 1},
        {"\xc3\xa9", 2},
        {"\xe2\x82\xac", 3},
        {"\xf0\x9f\x8c\xb1", 4},
        {"\x80", 0},
        {"\xc3", 0},
        {"\xc3z", 0},
        {"\xc0\xaf", 0}, /* overlong */
        {"\xe0\x80\xaf", 0},
        {"\xed\xa0\x80", 0} /* a surrogate */,
        {"\xf0\x80\x80\x80", 0},
        {"\xf4\x90\x80\x80", 0} /* past U+10FFFF */,
        {"\xf5\x80\x80\x80", 0},
        {"\xff", 0},
        {"\xe2\x82", 0},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++)
        assert_int_equal(hy_utf8_len(cases[i].bytes, strlen(cases[i].bytes)), cases[i].len);
    assert_int_equal(hy_utf8_len("", 0), 0);
    assert_int_equal(hy_utf8_len("\0", 1), 1);
}

HY_TEST(test_text_for_a_terminal_has_no_control_characters)
{
    static const char text[] = "é\n\t\r\x1b[2J\0\x7f\xff\xc2\x9b€\xe2\x82";
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1000);
    assert_int_equal(hy_append_printable(&b, text, sizeof text - 1), 0);
    assert_string_equal(hy_buf_cstr(&b), "é\\n\\t\\r\\x1b[2J\\x00\\x7f\\xff\\xc2\\x9b€\\xe2\\x82");
    b.max = b.len + 1;
    assert_int_equal(hy_append_printable(&b, "\n", 1), -ENOBUFS);
}

/* --- time --------------------------------------------------------------- */

HY_TEST(test_clock_writes_iso8601_in_utc)
{
    char text[40];

    hy_clock_iso8601(0, text, sizeof text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    hy_clock_iso8601(1794717012345, text, sizeof text);
    assert_string_equal(text, "2026-11-15T04:30:12.345Z");
    hy_clock_iso8601(-1, text, sizeof text);
    assert_string_equal(text, "1969-12-31T23:59:59.999Z");
    hy_clock_iso8601(INT64_MAX, text, sizeof text); /* 292 million years: any answer but a fault */
    hy_clock_iso8601(INT64_MIN, text, sizeof text);
    assert_true(strlen(text) < sizeof text);
}

HY_TEST(test_monotonic_clock_never_decreases)
{
    int64_t last = hy_clock_ms();

    for (int i = 0; i < 100000; i++) {
        int64_t now = hy_clock_ms();

        assert_true(now >= last);
        last = now;
    }
    assert_true(hy_clock_wall_ms() > 1700000000000);
}

/* --- log ---------------------------------------------------------------- */

/* What `write_lines` leaves on standard error. */
static const char *logged(void (*write_lines)(void), struct hy_buf *b)
{
    int fds[2], saved = dup(STDERR_FILENO);
    ssize_t n;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    dup2(fds[1], STDERR_FILENO);
    close(fds[1]);
    write_lines();
    dup2(saved, STDERR_FILENO);
    close(saved);
    hy_buf_clear(b);
    while ((n = read(fds[0], hy_buf_reserve(b, 4096), 4096)) > 0)
        hy_buf_added(b, (size_t)n);
    close(fds[0]);
    return hy_buf_cstr(b);
}

static void log_at_each_level(void)
{
    hy_debug("one");
    hy_info("two a=%d", 2);
    hy_warn("three");
    hy_error("four");
}

static void log_odd_values(void)
{
    hy_info("name=%s", "x\nfake line\x1b[31m\x7f");
}

static void log_a_long_value(void)
{
    char value[5000];

    memset(value, 'v', sizeof value);
    hy_info("value=%.*s", (int)sizeof value, value);
}

HY_TEST(test_log_leaves_out_what_is_below_its_level)
{
    hy_cleanup_buf struct hy_buf b;
    const char *text;

    hy_buf_init(&b, 1 << 16);
    setenv("HOPYARD_LOG", "warn", 1);
    hy_log_init("agent");
    text = logged(log_at_each_level, &b);
    assert_null(strstr(text, "two"));
    assert_non_null(strstr(text, "Z agent warn: three\n"));
    assert_non_null(strstr(text, "Z agent error: four\n"));
    setenv("HOPYARD_LOG", "debug", 1);
    hy_log_init("driver");
    text = logged(log_at_each_level, &b);
    assert_non_null(strstr(text, "Z driver debug: one\n"));
    assert_non_null(strstr(text, "Z driver info: two a=2\n"));
    unsetenv("HOPYARD_LOG");
}

HY_TEST(test_log_values_cannot_forge_a_line)
{
    hy_cleanup_buf struct hy_buf b;
    const char *text;

    hy_buf_init(&b, 1 << 16);
    hy_log_init("agent");
    text = logged(log_odd_values, &b);
    assert_non_null(strstr(text, "agent info: name=x?fake line?[31m?\n"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

HY_TEST(test_log_cuts_a_long_line_and_ends_it)
{
    hy_cleanup_buf struct hy_buf b;
    const char *text;

    hy_buf_init(&b, 1 << 16);
    hy_log_init("agent");
    text = logged(log_a_long_value, &b);
    assert_true(strlen(text) > 900 && strlen(text) < 1024);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

HY_TEST(test_host_and_port_come_apart)
{
    static const struct {
        const char *text, *host;
        uint16_t port;
    } good[] = {{"node7:4711", "node7", 4711}, {"192.0.2.1:0", "192.0.2.1", 0}, {"[::1]:65535", "::1", 65535}};
    static const char *const bad[] = {"",       ":",       ":4711",       "[]:4711", "node7",
                                      "node7:", "node7:x", "node7:65536", "[::1]",   "longer-than-fits:1"};
    char host[12], text[32];
    uint16_t port;

    for (size_t i = 0; i < HY_COUNT(good); i++) {
        assert_int_equal(hy_parse_host_port(good[i].text, host, sizeof host, &port), 0);
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
        assert_string_equal(hy_format_host_port(host, port, text, sizeof text), good[i].text);
    }
    for (size_t i = 0; i < HY_COUNT(bad); i++)
        assert_int_equal(hy_parse_host_port(bad[i], host, sizeof host, &port), -EINVAL);
}

HY_TEST(test_numbers_have_the_highest_byte_first_or_last)
{
    uint8_t bytes[3];

    hy_put_be(bytes, 0x010203, 3);
    assert_int_equal(bytes[0], 1);
    assert_int_equal(hy_get_be(bytes, 3), 0x010203);
    assert_int_equal(hy_get_le(bytes, 3), 0x030201);
}

/* --- guesses --------------------------------------------------------------- */

HY_TEST(test_edit_distance_counts_edits_and_transpositions)
{
    char longer[100];

    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(hy_edit_distance("", ""), 0);
    assert_int_equal(hy_edit_distance("grid", "grid"), 0);
    assert_int_equal(hy_edit_distance("gird", "grid"), 1);
    assert_int_equal(hy_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(hy_edit_distance("", "abc"), 3);
    assert_int_equal(hy_edit_distance("ca", "abc"), 3); /* a transposed pair is not edited again */
    assert_int_equal(hy_edit_distance(longer, "grid"), 64);
}

HY_TEST(test_distant_names_are_not_suggested)
{
    struct hy_guess guess;

    hy_guess_init(&guess, "tensor");
    hy_guess_offer(&guess, "grid");
    hy_guess_offer(&guess, "seed");
    assert_null(guess.best);
    hy_guess_init(&guess, "sede");
    hy_guess_offer(&guess, "space");
    hy_guess_offer(&guess, "seed");
    assert_string_equal(guess.best, "seed");
}
