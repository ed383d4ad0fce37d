/* SPDX-License-Identifier: Apache-2.0 */
/* base: errors, buffers, maps, lists, random numbers, text, files, log, seams. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"

/* --- errors ------------------------------------------------------------- */

static void test_err_set_writes_the_sentence_and_returns_the_code(void **state)
{
    struct hy_err err = {0};

    (void)state;
    assert_int_equal(hy_err_set(&err, -EINVAL, "no list for '%s'; give values", "lr"), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_string_equal(err.text, "no list for 'lr'; give values");
}

static void test_err_without_anybody_to_read_it_still_gives_the_code(void **state)
{
    (void)state;
    assert_int_equal(hy_err_set(NULL, -EINVAL, "unread"), -EINVAL);
    assert_int_equal(hy_err_sys(NULL, -ENOENT, "unread"), -ENOENT);
    assert_true(hy_err_wrap(NULL, "unread") < 0);
}

static void test_err_sys_ends_with_the_reason(void **state)
{
    struct hy_err err;

    (void)state;
    assert_int_equal(hy_err_sys(&err, -ENOENT, "cannot read '%s'", "x.json"), -ENOENT);
    assert_string_equal(err.text, "cannot read 'x.json': No such file or directory");
}

static void test_err_sys_keeps_the_reason_behind_a_very_long_path(void **state)
{
    static const char reason[] = ": No such file or directory";
    struct hy_err err;
    char path[4096];

    (void)state;
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    hy_err_sys(&err, -ENOENT, "cannot read '%s'", path);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_string_equal(err.text + strlen(err.text) - strlen(reason), reason);
}

static void test_err_wrap_puts_what_was_being_done_in_front(void **state)
{
    struct hy_err err;

    (void)state;
    hy_err_set(&err, -ENOEXEC, "cannot start './train'");
    assert_int_equal(hy_err_wrap(&err, "agent %d", 3), -ENOEXEC);
    assert_int_equal(hy_err_wrap(&err, "run %d", 12), -ENOEXEC);
    assert_string_equal(err.text, "run 12: agent 3: cannot start './train'");
}

static void test_err_wrapped_a_thousand_times_stays_within_its_room(void **state)
{
    struct hy_err err;

    (void)state;
    hy_err_set(&err, -EIO, "it broke");
    for (int i = 0; i < 1000; i++)
        hy_err_wrap(&err, "level %d", i);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_int_equal(strncmp(err.text, "level 999: level 998: ", 22), 0);
}

static void test_err_is_one_line_of_utf8_whatever_it_names(void **state)
{
    struct hy_err err;
    char wide[1200] = "";

    (void)state;
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

/* --- memory ------------------------------------------------------------- */

static void test_mem_refuses_sizes_that_do_not_fit(void **state)
{
    (void)state;
    assert_null(hy_reallocarray(NULL, SIZE_MAX / 2, 4));
    assert_null(hy_calloc(SIZE_MAX / 2 + 1, 2));
}

static void test_mem_of_no_bytes_is_still_a_pointer(void **state)
{
    hy_cleanup_free void *a = hy_malloc(0), *b = hy_calloc(0, 8), *c = hy_reallocarray(NULL, 0, 8);

    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
}

static void test_mem_strndup_stops_at_the_end_of_the_string(void **state)
{
    hy_cleanup_free char *cut = hy_strndup("abcdef", 3), *whole = hy_strndup("abc", 100);

    (void)state;
    assert_string_equal(cut, "abc");
    assert_string_equal(whole, "abc");
}

static void test_mem_taking_leaves_nothing_behind(void **state)
{
    char *p = hy_strdup("x"), *q;
    int fd = 7;

    (void)state;
    q = hy_take(p);
    assert_null(p);
    assert_string_equal(q, "x");
    free(q);
    assert_int_equal(hy_take_fd(fd), 7);
    assert_int_equal(fd, -1);
}

static int fd_after_its_scope(void)
{
    hy_cleanup_close int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    return fd;
}

static void test_mem_a_file_descriptor_is_closed_with_its_scope(void **state)
{
    int fd = fd_after_its_scope();

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(errno, EBADF);
}

/* --- buffers ------------------------------------------------------------ */

static void test_buf_gives_bytes_back_in_order(void **state)
{
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, 100);
    assert_int_equal(hy_buf_append(&b, "ab\0c", 4), 0);
    assert_int_equal(hy_buf_append_str(&b, "de"), 0);
    assert_int_equal(hy_buf_printf(&b, "%d", 42), 0);
    assert_int_equal(b.len, 8);
    assert_memory_equal(hy_buf_bytes(&b), "ab\0cde42", 8);
    hy_buf_consume(&b, 3);
    assert_memory_equal(hy_buf_bytes(&b), "cde42", 5);
}

static void test_buf_takes_nothing_at_all_too(void **state)
{
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, 10);
    assert_null(hy_buf_bytes(&b));
    assert_int_equal(hy_buf_append(&b, NULL, 0), 0);
    assert_int_equal(hy_buf_append_str(&b, ""), 0);
    assert_int_equal(hy_buf_printf(&b, "%s", ""), 0);
    hy_buf_consume(&b, 0);
    assert_int_equal(b.len, 0);
    assert_string_equal(hy_buf_cstr(&b), "");
}

static void test_buf_holds_its_maximum_and_is_unchanged_when_it_refuses(void **state)
{
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, 5);
    assert_int_equal(hy_buf_append(&b, "abcd", 4), 0);
    assert_int_equal(hy_buf_append(&b, "ef", 2), -ENOBUFS);
    assert_int_equal(hy_buf_append(&b, "ef", SIZE_MAX), -ENOBUFS);
    assert_int_equal(hy_buf_printf(&b, "%d", 12), -ENOBUFS);
    assert_null(hy_buf_reserve(&b, 2));
    assert_int_equal(hy_buf_printf(&b, "%d", 1), 0);
    assert_string_equal(hy_buf_cstr(&b), "abcd1"); /* the NUL is not one of the five */
    assert_int_equal(b.len, 5);
}

static void test_buf_of_no_maximum_refuses_what_memory_cannot_hold(void **state)
{
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, SIZE_MAX);
    assert_int_equal(hy_buf_append_str(&b, "abc"), 0);
    assert_null(hy_buf_reserve(&b, SIZE_MAX - 4));
    assert_null(hy_buf_reserve(&b, SIZE_MAX - 3));
    assert_string_equal(hy_buf_cstr(&b), "abc");
}

static void test_buf_reserved_room_becomes_bytes_when_added(void **state)
{
    hy_cleanup_buf struct hy_buf b;
    uint8_t *at;

    (void)state;
    hy_buf_init(&b, 1000);
    hy_buf_append_str(&b, "x");
    at = hy_buf_reserve(&b, 900);
    assert_non_null(at);
    memset(at, 'y', 900);
    hy_buf_added(&b, 2);
    assert_int_equal(b.len, 3);
    assert_string_equal(hy_buf_cstr(&b), "xyy");
}

/* Against a plain array: appends and consumptions of random sizes. */
static void test_buf_is_a_queue_of_bytes_over_any_history(void **state)
{
    enum { MAX = 5000 };
    hy_cleanup_buf struct hy_buf b;
    uint8_t model[MAX], piece[700];
    size_t len = 0;
    struct hy_rng rng;

    (void)state;
    hy_buf_init(&b, MAX);
    hy_rng_seed(&rng, 1, 0);
    for (int round = 0; round < 20000; round++) {
        size_t n = hy_rng_below(&rng, sizeof piece);

        if (hy_rng_below(&rng, 2)) {
            for (size_t i = 0; i < n; i++)
                piece[i] = (uint8_t)hy_rng_next(&rng);
            assert_int_equal(hy_buf_append(&b, piece, n), len + n > MAX ? -ENOBUFS : 0);
            if (len + n <= MAX) {
                memcpy(model + len, piece, n);
                len += n;
            }
        } else {
            n = n < len ? n : len;
            hy_buf_consume(&b, n);
            memmove(model, model + n, len - n);
            len -= n;
        }
        assert_int_equal(b.len, len);
        if (len)
            assert_memory_equal(hy_buf_bytes(&b), model, len);
    }
}

static void test_buf_that_flows_does_not_grow(void **state)
{
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, 1 << 20);
    for (int i = 0; i < 100000; i++) {
        assert_int_equal(hy_buf_append(&b, "0123456789", 10), 0);
        if (i >= 10)
            hy_buf_consume(&b, 10);
    }
    assert_true(b.cap <= 512);
}

static void test_buf_shrinks_only_when_it_is_empty(void **state)
{
    hy_cleanup_buf struct hy_buf b;
    char big[4000] = {0};

    (void)state;
    hy_buf_init(&b, 10000);
    hy_buf_append(&b, big, sizeof big);
    hy_buf_shrink(&b);
    assert_int_equal(b.len, sizeof big);
    hy_buf_clear(&b);
    hy_buf_shrink(&b);
    assert_int_equal(b.cap, 0);
    assert_int_equal(hy_buf_append_str(&b, "again"), 0);
    assert_string_equal(hy_buf_cstr(&b), "again");
}

/* --- maps and lists ----------------------------------------------------- */

static void test_map_without_entries_answers(void **state)
{
    struct hy_map m = {0};
    size_t cursor = 0;

    (void)state;
    assert_null(hy_map_get(&m, 1));
    assert_null(hy_map_remove(&m, 1));
    assert_null(hy_map_next(&m, &cursor));
    hy_map_done(&m);
}

static void test_map_takes_every_key_and_replaces(void **state)
{
    static const uint64_t keys[] = {0, 1, UINT64_MAX, 1ULL << 63, 1ULL << 32};
    struct hy_map m = {0};
    int a, b;

    (void)state;
    for (size_t i = 0; i < HY_COUNT(keys); i++) {
        assert_int_equal(hy_map_put(&m, keys[i], &a), 0);
        assert_int_equal(hy_map_put(&m, keys[i], &b), 0);
        assert_ptr_equal(hy_map_get(&m, keys[i]), &b);
    }
    assert_int_equal(m.count, HY_COUNT(keys));
    hy_map_done(&m);
    assert_int_equal(m.count, 0);
}

/* Against an array indexed by key: few keys, so that they collide and wrap. */
static void test_map_remembers_what_was_put_over_any_history(void **state)
{
    enum { KEYS = 60 };
    struct hy_map m = {0};
    char values[KEYS];
    int there[KEYS] = {0};
    size_t count = 0;
    struct hy_rng rng;

    (void)state;
    hy_rng_seed(&rng, 2, 0);
    for (int round = 0; round < 20000; round++) {
        size_t k = hy_rng_below(&rng, KEYS);

        if (hy_rng_below(&rng, 2)) {
            assert_int_equal(hy_map_put(&m, k, &values[k]), 0);
            count += !there[k];
            there[k] = 1;
        } else {
            assert_ptr_equal(hy_map_remove(&m, k), there[k] ? &values[k] : NULL);
            count -= (size_t)there[k];
            there[k] = 0;
        }
        assert_int_equal(m.count, count);
        for (size_t i = 0; i < KEYS; i++)
            assert_ptr_equal(hy_map_get(&m, i), there[i] ? &values[i] : NULL);
    }
    hy_map_done(&m);
}

static void test_map_walk_meets_each_value_once(void **state)
{
    struct hy_map m = {0};
    int met[1000] = {0}, *v;

    (void)state;
    for (uint64_t i = 0; i < HY_COUNT(met); i++)
        assert_int_equal(hy_map_put(&m, i * 0x100000001ULL, &met[i]), 0);
    for (size_t cursor = 0; (v = hy_map_next(&m, &cursor));)
        ++*v;
    for (size_t i = 0; i < HY_COUNT(met); i++)
        assert_int_equal(met[i], 1);
    hy_map_done(&m);
}

struct item {
    int number;
    struct hy_list link;
};

/* The numbers in the list as digits. */
static int digits_of(struct hy_list *list)
{
    int digits = 0;

    hy_list_each(it, list) digits = digits * 10 + hy_container(it, struct item, link)->number;
    return digits;
}

static void test_list_keeps_the_order_of_both_ends(void **state)
{
    struct item items[4];
    struct hy_list list;

    (void)state;
    hy_list_init(&list);
    assert_true(hy_list_empty(&list));
    for (int i = 0; i < 4; i++) {
        items[i].number = i + 1;
        if (i < 2)
            hy_list_push(&list, &items[i].link);
        else
            hy_list_push_front(&list, &items[i].link);
    }
    assert_false(hy_list_empty(&list));
    assert_int_equal(digits_of(&list), 4312);
}

static void test_list_entries_may_be_removed_twice_and_while_walking(void **state)
{
    struct item items[5];
    struct hy_list list;

    (void)state;
    hy_list_init(&list);
    for (int i = 0; i < 5; i++) {
        items[i].number = i + 1;
        hy_list_push(&list, &items[i].link);
    }
    hy_list_remove(&items[2].link);
    hy_list_remove(&items[2].link);
    assert_int_equal(digits_of(&list), 1245);
    hy_list_each(it, &list) if (hy_container(it, struct item, link)->number % 2) hy_list_remove(it);
    assert_int_equal(digits_of(&list), 24);
    hy_list_each(it, &list) hy_list_remove(it);
    assert_true(hy_list_empty(&list));
}

/* --- random numbers ----------------------------------------------------- */

static void test_rng_is_xoshiro256starstar(void **state)
{
    /* The published reference sequence from the state 1, 2, 3, 4. */
    static const uint64_t expected[] = {11520, 0, 1509978240, 1215971899390074240};
    struct hy_rng r = {{1, 2, 3, 4}};

    (void)state;
    for (size_t i = 0; i < HY_COUNT(expected); i++)
        assert_int_equal(hy_rng_next(&r), expected[i]);
}

static void test_rng_gives_the_same_numbers_on_every_machine(void **state)
{
    static const struct {
        uint64_t seed, stream, first[4];
    } golden[] = {
        {0, 0, {0xfb5405f7bd79c540, 0x780c98e26cea5883, 0x2a146e0980febc66, 0x4851477db8791fca}},
        {42, 7, {0x4150452ab869a892, 0x63980fc0383ce41b, 0x6276ee9c4552e56d, 0x96a8154c710ce93c}},
        {UINT64_MAX,
         UINT64_MAX,
         {0x5a24625849aef5fa, 0x177bf4162305fac, 0x97359f05bc75e24d, 0x390cadc886fddf32}},
    };
    struct hy_rng r;

    (void)state;
    for (size_t i = 0; i < HY_COUNT(golden); i++) {
        hy_rng_seed(&r, golden[i].seed, golden[i].stream);
        for (int k = 0; k < 4; k++)
            assert_int_equal(hy_rng_next(&r), golden[i].first[k]);
    }
    hy_rng_seed(&r, 42, 7);
    assert_true(hy_rng_double(&r) == 0.2551310757920989);
    assert_true(hy_rng_double(&r) == 0.3890390247618032);
}

static void test_rng_below_stays_below_and_is_even(void **state)
{
    enum { N = 7, DRAWS = 70000 };
    int seen[N] = {0};
    double chi2 = 0;
    struct hy_rng r;

    (void)state;
    hy_rng_seed(&r, 3, 0);
    for (int i = 0; i < DRAWS; i++)
        seen[hy_rng_below(&r, N)]++;
    for (int i = 0; i < N; i++)
        chi2 += pow(seen[i] - DRAWS / N, 2) / (DRAWS / N);
    assert_true(chi2 < 22.5); /* 6 degrees of freedom, 1 in 1,000; the seed is fixed */
    assert_int_equal(hy_rng_below(&r, 1), 0);
    for (int i = 0; i < 1000; i++) { /* the largest ranges, where most draws are thrown away */
        assert_true(hy_rng_below(&r, (1ULL << 63) + 1) <= 1ULL << 63);
        assert_true(hy_rng_below(&r, UINT64_MAX) < UINT64_MAX);
    }
}

static void test_rng_doubles_lie_in_the_half_open_unit_interval(void **state)
{
    double sum = 0, least = 1, most = 0;
    struct hy_rng r;

    (void)state;
    hy_rng_seed(&r, 4, 0);
    for (int i = 0; i < 100000; i++) {
        double x = hy_rng_double(&r);

        assert_true(x >= 0 && x < 1);
        sum += x;
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.005);
    assert_true(least < 0.001 && most > 0.999);
}

static void test_rng_streams_of_one_seed_differ(void **state)
{
    struct hy_rng a, b;
    int same = 0;

    (void)state;
    hy_rng_seed(&a, 9, 1);
    hy_rng_seed(&b, 9, 2);
    for (int i = 0; i < 1000; i++)
        same += hy_rng_next(&a) == hy_rng_next(&b);
    assert_int_equal(same, 0);
}

/* --- text --------------------------------------------------------------- */

static void test_text_double_is_the_whole_string(void **state)
{
    static const char *const bad[] = {"", " 1", "1 ", "1x", "abc", "1,5", "--1", "1e", "0.1.2"};
    double v = 0;

    (void)state;
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

static void test_text_u64_has_digits_only(void **state)
{
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "0x10", "1.0", "one"};
    uint64_t v = 0;

    (void)state;
    for (size_t i = 0; i < HY_COUNT(bad); i++)
        assert_int_equal(hy_parse_u64(bad[i], &v), -EINVAL);
    assert_int_equal(hy_parse_u64("18446744073709551616", &v), -ERANGE);
    assert_int_equal(hy_parse_u64("18446744073709551615", &v), 0);
    assert_true(v == UINT64_MAX);
    assert_int_equal(hy_parse_u64("007", &v), 0);
    assert_true(v == 7);
}

static void test_text_sizes_are_powers_of_1024(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"4096", 4096},
        {"512M", 512ULL << 20},
        {"4G", 4ULL << 30},
        {"4g", 4ULL << 30},
        {"1.5GiB", 3ULL << 29},
        {"10KB", 10240},
        {"1T", 1ULL << 40},
        {"7B", 7},
        {"0", 0},
        {".5K", 512},
        {"1e3", 1000},
    };
    static const char *const bad[] = {"",     "G",    "-1",  "4X",  "4GG",   "4iB", "4 G",
                                      "0x10", "0X10", "nan", "inf", "4Gi B", "."};
    uint64_t v = 0;

    (void)state;
    for (size_t i = 0; i < HY_COUNT(good); i++) {
        assert_int_equal(hy_parse_size(good[i].text, &v), 0);
        assert_true(v == good[i].bytes);
    }
    for (size_t i = 0; i < HY_COUNT(bad); i++)
        assert_int_equal(hy_parse_size(bad[i], &v), -EINVAL);
    assert_int_equal(hy_parse_size("99999999T", &v), -ERANGE);
}

static void test_text_durations_are_seconds_unless_they_say(void **state)
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

    (void)state;
    for (size_t i = 0; i < HY_COUNT(good); i++) {
        assert_int_equal(hy_parse_duration(good[i].text, &v), 0);
        assert_true(v == good[i].ms);
    }
    for (size_t i = 0; i < HY_COUNT(bad); i++)
        assert_int_equal(hy_parse_duration(bad[i], &v), -EINVAL);
    assert_int_equal(hy_parse_duration("1e300d", &v), -ERANGE);
}

static void test_text_formats_sizes_for_people(void **state)
{
    char out[32];

    (void)state;
    assert_string_equal(hy_format_size(0, out, sizeof out), "0 B");
    assert_string_equal(hy_format_size(1023, out, sizeof out), "1023 B");
    assert_string_equal(hy_format_size(1024, out, sizeof out), "1.0 KB");
    assert_string_equal(hy_format_size((1 << 20) - 1, out, sizeof out), "1.0 MB"); /* never "1024.0 KB" */
    assert_string_equal(hy_format_size(4402341478, out, sizeof out), "4.1 GB");
    assert_string_equal(hy_format_size(UINT64_MAX, out, sizeof out), "16.0 EB");
}

static void test_text_formats_durations_for_people(void **state)
{
    char out[32];

    (void)state;
    assert_string_equal(hy_format_duration(-5, out, sizeof out), "0.0s");
    assert_string_equal(hy_format_duration(449, out, sizeof out), "0.4s");
    assert_string_equal(hy_format_duration(12345, out, sizeof out), "12s");
    assert_string_equal(hy_format_duration(59999, out, sizeof out), "59s");
    assert_string_equal(hy_format_duration(185000, out, sizeof out), "3m05s");
    assert_string_equal(hy_format_duration(7620000, out, sizeof out), "2h07m");
    assert_string_equal(hy_format_duration(273600000, out, sizeof out), "3d04h");
}

static void test_text_formats_doubles_as_people_write_them(void **state)
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

    (void)state;
    for (size_t i = 0; i < HY_COUNT(golden); i++)
        assert_string_equal(hy_format_double(golden[i].value, out, sizeof out), golden[i].text);
}

static void test_text_doubles_read_back_as_themselves(void **state)
{
    struct hy_rng r;
    char out[32];

    (void)state;
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

static void test_text_knows_utf8_from_other_bytes(void **state)
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

    (void)state;
    for (size_t i = 0; i < HY_COUNT(cases); i++)
        assert_int_equal(hy_utf8_len(cases[i].bytes, strlen(cases[i].bytes)), cases[i].len);
    assert_int_equal(hy_utf8_len("", 0), 0);
    assert_int_equal(hy_utf8_len("\0", 1), 1);
}

static void test_text_for_a_terminal_has_no_control_characters(void **state)
{
    static const char text[] = "é\n\t\r\x1b[2J\0\x7f\xff\xc2\x9b€\xe2\x82";
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, 1000);
    assert_int_equal(hy_append_printable(&b, text, sizeof text - 1), 0);
    assert_string_equal(hy_buf_cstr(&b), "é\\n\\t\\r\\x1b[2J\\x00\\x7f\\xff\\xc2\\x9b€\\xe2\\x82");
    b.max = b.len + 1;
    assert_int_equal(hy_append_printable(&b, "\n", 1), -ENOBUFS);
}

/* --- time --------------------------------------------------------------- */

static void test_clock_writes_iso8601_in_utc(void **state)
{
    char text[40];

    (void)state;
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

static void test_clock_never_goes_back(void **state)
{
    int64_t last = hy_clock_ms();

    (void)state;
    for (int i = 0; i < 100000; i++) {
        int64_t now = hy_clock_ms();

        assert_true(now >= last);
        last = now;
    }
    assert_true(hy_clock_wall_ms() > 1700000000000);
}

/* --- files -------------------------------------------------------------- */

static char folder[] = "/tmp/hy_test_base.XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[4][200];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return hy_remove_tree(folder);
}

static int is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* The file's content, in a buffer of the caller's. */
static const char *content(const char *path, struct hy_buf *b)
{
    hy_buf_clear(b);
    assert_int_equal(hy_file_read(path, b), 0);
    return hy_buf_cstr(b);
}

static void test_file_comes_back_as_it_was_written(void **state)
{
    hy_cleanup_buf struct hy_buf b;
    char bytes[10000];
    struct stat st;

    (void)state;
    hy_buf_init(&b, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7);
    assert_int_equal(hy_file_write(in_folder("f"), bytes, sizeof bytes, 0600), 0);
    assert_int_equal(hy_file_read(in_folder("f"), &b), 0);
    assert_int_equal(b.len, sizeof bytes);
    assert_memory_equal(hy_buf_bytes(&b), bytes, sizeof bytes);
    assert_int_equal(stat(in_folder("f"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_file_read_holds_the_buffers_maximum(void **state)
{
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, 9);
    assert_int_equal(hy_file_write(in_folder("f"), "0123456789", 10, 0600), 0);
    assert_int_equal(hy_file_read(in_folder("f"), &b), -ENOBUFS);
    assert_int_equal(hy_file_read("/dev/zero", &b), -ENOBUFS);
}

static void test_file_read_says_why_it_cannot(void **state)
{
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, 100);
    assert_int_equal(hy_file_read(in_folder("missing"), &b), -ENOENT);
    assert_int_equal(hy_file_read(folder, &b), -EISDIR);
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_int_equal(hy_file_read(in_folder("fifo"), &b), 0); /* and does not wait for a writer */
    assert_int_equal(b.len, 0);
}

static void test_file_write_does_not_follow_what_lies_in_its_way(void **state)
{
    hy_cleanup_buf struct hy_buf b;
    char temporary[200];
    struct stat st;

    (void)state;
    hy_buf_init(&b, 100);
    assert_int_equal(hy_file_write(in_folder("victim"), "safe", 4, 0644), 0);
    snprintf(temporary, sizeof temporary, "%s.%d.tmp", in_folder("key"), (int)getpid());
    assert_int_equal(symlink(in_folder("victim"), temporary), 0);
    assert_int_equal(hy_file_write(in_folder("key"), "secret", 6, 0600), 0);
    assert_string_equal(content(in_folder("victim"), &b), "safe");
    assert_string_equal(content(in_folder("key"), &b), "secret");

    assert_int_equal(hy_file_write(temporary, "old", 3, 0666), 0); /* of a process that had our number */
    assert_int_equal(hy_file_write(in_folder("key"), "second", 6, 0600), 0);
    assert_int_equal(stat(in_folder("key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static int replace_a_file(void *arg)
{
    hy_cleanup_buf struct hy_buf b;
    char temporary[200];
    const char *now;
    int rc;

    (void)arg;
    hy_buf_init(&b, 100);
    assert_int_equal(unlink(in_folder("f")), 0);
    assert_int_equal(link(in_folder("before"), in_folder("f")), 0);
    rc = hy_file_write(in_folder("f"), "after", 5, 0600);
    hy_fault_arm(HY_SEAM_SYS, 0);
    hy_fault_arm(HY_SEAM_ALLOC, 0);
    now = content(in_folder("f"), &b);
    assert_string_equal(now, rc == 0 ? "after" : "before");
    snprintf(temporary, sizeof temporary, "%s.%d.tmp", in_folder("f"), (int)getpid());
    assert_false(is_there(temporary));
    return rc;
}

/* The scenario disarms the seam, so this loop is its own: it ends when a run comes through. */
static void test_file_write_is_all_or_nothing_whatever_fails(void **state)
{
    (void)state;
    assert_int_equal(hy_file_write(in_folder("before"), "before", 6, 0600), 0);
    assert_int_equal(hy_file_write(in_folder("f"), "before", 6, 0600), 0);
    for (enum hy_seam seam = HY_SEAM_ALLOC; seam <= HY_SEAM_SYS; seam++) {
        int failed = 0;

        for (long n = 1, rc = -1; rc != 0; n++) {
            hy_fault_arm(seam, n);
            rc = replace_a_file(NULL);
            failed += rc != 0;
        }
        assert_int_equal(failed, seam == HY_SEAM_ALLOC ? 1 : 4); /* open, write, fsync, rename */
    }
}

static void test_write_all_goes_on_after_short_writes(void **state)
{
    hy_cleanup_free char *sent = hy_calloc(1, 1 << 20);
    size_t got = 0;
    int fds[2], status;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        _exit(hy_write_all(fds[1], sent, 1 << 20) == 0 ? 0 : 1);
    }
    close(fds[1]);
    for (ssize_t n; (n = read(fds[0], sent, 1000)) > 0;)
        got += (size_t)n;
    close(fds[0]);
    assert_int_equal(got, 1 << 20);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_write_all_says_that_the_disk_is_full(void **state)
{
    hy_cleanup_close int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(hy_write_all(fd, "x", 1), -ENOSPC);
}

static void test_mkdirs_makes_all_that_is_missing_and_nothing_twice(void **state)
{
    (void)state;
    assert_int_equal(hy_mkdirs(in_folder("a/b//c/"), 0700), 0);
    assert_true(is_there(in_folder("a/b/c")));
    assert_int_equal(hy_mkdirs(in_folder("a/b/c"), 0700), 0);
    assert_int_equal(hy_mkdirs("/", 0700), 0);
    assert_int_equal(hy_mkdirs(".", 0700), 0);
}

static void test_mkdirs_says_what_is_in_the_way(void **state)
{
    (void)state;
    assert_int_equal(hy_file_write(in_folder("f"), "", 0, 0600), 0);
    assert_int_equal(hy_mkdirs(in_folder("f"), 0700), -ENOTDIR);
    assert_int_equal(hy_mkdirs(in_folder("f/g"), 0700), -ENOTDIR);
    assert_int_equal(hy_mkdirs(in_folder("f/g/h"), 0700), -ENOTDIR);
    assert_int_equal(hy_mkdirs("", 0700), -ENOENT);
}

static void test_remove_tree_never_goes_through_a_link(void **state)
{
    (void)state;
    assert_int_equal(hy_mkdirs(in_folder("outside/deep"), 0700), 0);
    assert_int_equal(hy_mkdirs(in_folder("tree/a/b"), 0700), 0);
    assert_int_equal(hy_file_write(in_folder("tree/a/f"), "x", 1, 0400), 0);
    assert_int_equal(symlink(in_folder("outside"), in_folder("tree/a/link")), 0);
    assert_int_equal(symlink("nowhere", in_folder("tree/dangling")), 0);
    assert_int_equal(hy_remove_tree(in_folder("tree")), 0);
    assert_false(is_there(in_folder("tree")));
    assert_true(is_there(in_folder("outside/deep")));
    assert_int_equal(symlink(in_folder("outside"), in_folder("top")), 0);
    assert_int_equal(hy_remove_tree(in_folder("top")), 0); /* the link itself */
    assert_true(is_there(in_folder("outside/deep")));
}

static void test_remove_tree_of_nothing_is_fine(void **state)
{
    (void)state;
    assert_int_equal(hy_remove_tree(in_folder("missing")), 0);
    assert_int_equal(hy_file_write(in_folder("f"), "", 0, 0600), 0);
    assert_int_equal(hy_remove_tree(in_folder("f/g")), -ENOTDIR);
}

static int make_and_remove(void *arg)
{
    int rc;

    (void)arg;
    rc = hy_mkdirs(in_folder("t/u/v"), 0700);
    if (rc == 0)
        rc = hy_file_write(in_folder("t/u/f"), "x", 1, 0600);
    if (rc == 0)
        rc = hy_remove_tree(in_folder("t"));
    if (rc == 0)
        assert_false(is_there(in_folder("t")));
    return rc;
}

static void test_folders_come_through_or_fail_cleanly_at_every_fault(void **state)
{
    (void)state;
    hy_each_fault(HY_SEAM_ALLOC, make_and_remove, NULL);
    hy_each_fault(HY_SEAM_SYS, make_and_remove, NULL);
    assert_int_equal(make_and_remove(NULL), 0);
}

static void test_path_join_puts_one_slash(void **state)
{
    hy_cleanup_free char *a = hy_path_join("a", "b"), *b = hy_path_join("/", "b"),
                         *c = hy_path_join("a/", "b");

    (void)state;
    assert_string_equal(a, "a/b");
    assert_string_equal(b, "/b");
    assert_string_equal(c, "a/b");
}

static void test_runtime_dir_is_the_users_alone(void **state)
{
    hy_cleanup_free char *path = NULL, *refused = NULL;
    struct hy_err err = {0};
    struct stat st;

    (void)state;
    setenv("XDG_RUNTIME_DIR", folder, 1);
    path = hy_runtime_dir(&err);
    assert_string_equal(path, in_folder("hopyard"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);

    assert_int_equal(chmod(path, 0755), 0);
    refused = hy_runtime_dir(&err);
    assert_null(refused);
    assert_int_equal(err.code, -EPERM);
    assert_non_null(strstr(err.text, path));
    unsetenv("XDG_RUNTIME_DIR");
}

static void test_runtime_dir_is_not_a_link_somebody_laid(void **state)
{
    hy_cleanup_free char *refused = NULL;
    struct hy_err err = {0};

    (void)state;
    assert_int_equal(mkdir(in_folder("elsewhere"), 0700), 0);
    assert_int_equal(symlink("elsewhere", in_folder("hopyard")), 0);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    refused = hy_runtime_dir(&err);
    unsetenv("XDG_RUNTIME_DIR");
    assert_null(refused);
    assert_int_equal(err.code, -EPERM);
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

static void test_log_leaves_out_what_is_below_its_level(void **state)
{
    hy_cleanup_buf struct hy_buf b;
    const char *text;

    (void)state;
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

static void test_log_values_cannot_forge_a_line(void **state)
{
    hy_cleanup_buf struct hy_buf b;
    const char *text;

    (void)state;
    hy_buf_init(&b, 1 << 16);
    hy_log_init("agent");
    text = logged(log_odd_values, &b);
    assert_non_null(strstr(text, "agent info: name=x?fake line?[31m?\n"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void test_log_cuts_a_long_line_and_ends_it(void **state)
{
    hy_cleanup_buf struct hy_buf b;
    const char *text;

    (void)state;
    hy_buf_init(&b, 1 << 16);
    hy_log_init("agent");
    text = logged(log_a_long_value, &b);
    assert_true(strlen(text) > 900 && strlen(text) < 1024);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

/* --- fault seams -------------------------------------------------------- */

static void test_fault_hits_the_armed_passage_once(void **state)
{
    (void)state;
    hy_fault_arm(HY_SEAM_ALLOC, 3);
    for (long i = 1; i <= 5; i++) {
        hy_cleanup_free void *p = hy_malloc(1);

        assert_int_equal(p == NULL, i == 3);
        assert_int_equal(hy_fault_passed(HY_SEAM_ALLOC), i);
    }
    hy_fault_arm(HY_SEAM_ALLOC, 0);
}

static void test_fault_seams_are_counted_apart(void **state)
{
    (void)state;
    hy_fault_arm(HY_SEAM_SYS, 1);
    hy_fault_arm(HY_SEAM_WIRE, 1);
    free(hy_malloc(1));
    errno = 0;
    assert_int_equal(HY_SYS(getppid()), -1);
    assert_int_equal(errno, EIO);
    assert_true(HY_SYS(getppid()) > 0);
    assert_int_equal(hy_fault_hit(HY_SEAM_WIRE), 1);
    assert_int_equal(hy_fault_hit(HY_SEAM_WIRE), 0);
    hy_fault_arm(HY_SEAM_SYS, 0);
    hy_fault_arm(HY_SEAM_WIRE, 0);
}

/* What a child of this program with HOPYARD_FAULT does: the passage that fails. */
static int first_failure(void)
{
    for (int i = 1; i <= 9; i++) {
        hy_cleanup_free void *p = hy_malloc(1);

        if (!p)
            return i;
    }
    return 0;
}

static int child_with_fault(const char *fault)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("HOPYARD_FAULT", fault, 1);
        execl("/proc/self/exe", "test_base", "--first-failure", (char *)NULL);
        _exit(99);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static void test_fault_is_armed_by_the_environment(void **state)
{
    (void)state;
    assert_int_equal(child_with_fault("alloc:4"), 4);
    assert_int_equal(child_with_fault("sys:4"), 0);
    assert_int_equal(child_with_fault("nonsense"), 0);
}

static int fill_a_buffer(void *arg)
{
    hy_cleanup_buf struct hy_buf b;
    int rc = 0;

    (void)arg;
    hy_buf_init(&b, 1 << 16);
    for (int i = 0; i < 1000 && rc == 0; i++) {
        size_t before = b.len;

        rc = i % 3 ? hy_buf_append_str(&b, "0123456789") : hy_buf_printf(&b, "%010d", i);
        if (rc == 0 && i % 5 == 0)
            hy_buf_consume(&b, 5);
        else
            assert_int_equal(b.len, rc == 0 ? before + 10 : before);
    }
    return rc ? rc : hy_buf_cstr(&b) ? 0 : -ENOMEM;
}

static int fill_a_map(void *arg)
{
    struct hy_map m = {0};
    int rc = 0;

    for (uint64_t i = 0; i < 500 && rc == 0; i++) {
        rc = hy_map_put(&m, i, arg);
        assert_int_equal(m.count, rc == 0 ? i + 1 : i);
        assert_ptr_equal(hy_map_get(&m, i), rc == 0 ? arg : NULL);
        if (i)
            assert_ptr_equal(hy_map_get(&m, i - 1), arg);
    }
    hy_map_done(&m);
    return rc;
}

static int copy_strings(void *arg)
{
    hy_cleanup_free char *a = hy_strdup(arg), *b = hy_asprintf("%s-%d", (char *)arg, 1),
                         *c = hy_path_join(arg, "x");
    hy_cleanup_free int *numbers = hy_reallocarray(NULL, 10, sizeof *numbers);

    return a && b && c && numbers ? 0 : -ENOMEM;
}

static void test_containers_come_through_or_fail_cleanly_at_every_fault(void **state)
{
    char value[] = "value";

    (void)state;
    hy_each_fault(HY_SEAM_ALLOC, fill_a_buffer, NULL);
    hy_each_fault(HY_SEAM_ALLOC, fill_a_map, value);
    hy_each_fault(HY_SEAM_ALLOC, copy_strings, value);
}

static int find_the_runtime_dir(void *arg)
{
    struct hy_err err = {0};
    hy_cleanup_free char *path = hy_runtime_dir(&err);

    (void)arg;
    assert_true(path ? err.code == 0 : err.code < 0 && err.text[0]);
    return path ? 0 : err.code;
}

static void test_runtime_dir_has_a_sentence_for_every_fault(void **state)
{
    (void)state;
    setenv("XDG_RUNTIME_DIR", in_folder("not/there"), 1);
    hy_each_fault(HY_SEAM_ALLOC, find_the_runtime_dir, NULL);
    hy_each_fault(HY_SEAM_SYS, find_the_runtime_dir, NULL);
    unsetenv("XDG_RUNTIME_DIR");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

static void test_hash_is_the_same_everywhere(void **state)
{
    (void)state;
    assert_int_equal(hy_hash("", 0), 0xcbf29ce484222325ULL);
    assert_int_equal(hy_hash("a", 1), 0xaf63dc4c8601ec8cULL);
    assert_int_equal(hy_hash("foobar", 6), 0x85944171f73967e8ULL);
}

static void test_a_path_below_never_leads_out(void **state)
{
    static const char *const inside[] = {"a", "a/b", "..a", "a..", ".a/b", "a/...", "a b/\n"};
    static const char *const outside[] = {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "./a", "a/./b"};

    (void)state;
    for (size_t i = 0; i < HY_COUNT(inside); i++)
        assert_true(hy_path_is_below(inside[i]));
    for (size_t i = 0; i < HY_COUNT(outside); i++)
        assert_false(hy_path_is_below(outside[i]));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err_set_writes_the_sentence_and_returns_the_code),
        cmocka_unit_test(test_err_without_anybody_to_read_it_still_gives_the_code),
        cmocka_unit_test(test_err_sys_ends_with_the_reason),
        cmocka_unit_test(test_err_sys_keeps_the_reason_behind_a_very_long_path),
        cmocka_unit_test(test_err_wrap_puts_what_was_being_done_in_front),
        cmocka_unit_test(test_err_wrapped_a_thousand_times_stays_within_its_room),
        cmocka_unit_test(test_err_is_one_line_of_utf8_whatever_it_names),
        cmocka_unit_test(test_mem_refuses_sizes_that_do_not_fit),
        cmocka_unit_test(test_mem_of_no_bytes_is_still_a_pointer),
        cmocka_unit_test(test_mem_strndup_stops_at_the_end_of_the_string),
        cmocka_unit_test(test_mem_taking_leaves_nothing_behind),
        cmocka_unit_test(test_mem_a_file_descriptor_is_closed_with_its_scope),
        cmocka_unit_test(test_buf_gives_bytes_back_in_order),
        cmocka_unit_test(test_buf_takes_nothing_at_all_too),
        cmocka_unit_test(test_buf_holds_its_maximum_and_is_unchanged_when_it_refuses),
        cmocka_unit_test(test_buf_of_no_maximum_refuses_what_memory_cannot_hold),
        cmocka_unit_test(test_buf_reserved_room_becomes_bytes_when_added),
        cmocka_unit_test(test_buf_is_a_queue_of_bytes_over_any_history),
        cmocka_unit_test(test_buf_that_flows_does_not_grow),
        cmocka_unit_test(test_buf_shrinks_only_when_it_is_empty),
        cmocka_unit_test(test_map_without_entries_answers),
        cmocka_unit_test(test_map_takes_every_key_and_replaces),
        cmocka_unit_test(test_map_remembers_what_was_put_over_any_history),
        cmocka_unit_test(test_map_walk_meets_each_value_once),
        cmocka_unit_test(test_list_keeps_the_order_of_both_ends),
        cmocka_unit_test(test_list_entries_may_be_removed_twice_and_while_walking),
        cmocka_unit_test(test_rng_is_xoshiro256starstar),
        cmocka_unit_test(test_rng_gives_the_same_numbers_on_every_machine),
        cmocka_unit_test(test_rng_below_stays_below_and_is_even),
        cmocka_unit_test(test_rng_doubles_lie_in_the_half_open_unit_interval),
        cmocka_unit_test(test_rng_streams_of_one_seed_differ),
        cmocka_unit_test(test_text_double_is_the_whole_string),
        cmocka_unit_test(test_text_u64_has_digits_only),
        cmocka_unit_test(test_text_sizes_are_powers_of_1024),
        cmocka_unit_test(test_text_durations_are_seconds_unless_they_say),
        cmocka_unit_test(test_text_formats_sizes_for_people),
        cmocka_unit_test(test_text_formats_durations_for_people),
        cmocka_unit_test(test_text_formats_doubles_as_people_write_them),
        cmocka_unit_test(test_text_doubles_read_back_as_themselves),
        cmocka_unit_test(test_text_knows_utf8_from_other_bytes),
        cmocka_unit_test(test_text_for_a_terminal_has_no_control_characters),
        cmocka_unit_test(test_clock_writes_iso8601_in_utc),
        cmocka_unit_test(test_clock_never_goes_back),
        IN_FOLDER(test_file_comes_back_as_it_was_written),
        IN_FOLDER(test_file_read_holds_the_buffers_maximum),
        IN_FOLDER(test_file_read_says_why_it_cannot),
        IN_FOLDER(test_file_write_does_not_follow_what_lies_in_its_way),
        IN_FOLDER(test_file_write_is_all_or_nothing_whatever_fails),
        cmocka_unit_test(test_write_all_goes_on_after_short_writes),
        cmocka_unit_test(test_write_all_says_that_the_disk_is_full),
        IN_FOLDER(test_mkdirs_makes_all_that_is_missing_and_nothing_twice),
        IN_FOLDER(test_mkdirs_says_what_is_in_the_way),
        IN_FOLDER(test_remove_tree_never_goes_through_a_link),
        IN_FOLDER(test_remove_tree_of_nothing_is_fine),
        IN_FOLDER(test_folders_come_through_or_fail_cleanly_at_every_fault),
        cmocka_unit_test(test_path_join_puts_one_slash),
        IN_FOLDER(test_runtime_dir_is_the_users_alone),
        IN_FOLDER(test_runtime_dir_is_not_a_link_somebody_laid),
        IN_FOLDER(test_runtime_dir_has_a_sentence_for_every_fault),
        cmocka_unit_test(test_log_leaves_out_what_is_below_its_level),
        cmocka_unit_test(test_log_values_cannot_forge_a_line),
        cmocka_unit_test(test_log_cuts_a_long_line_and_ends_it),
        cmocka_unit_test(test_fault_hits_the_armed_passage_once),
        cmocka_unit_test(test_fault_seams_are_counted_apart),
        cmocka_unit_test(test_fault_is_armed_by_the_environment),
        cmocka_unit_test(test_containers_come_through_or_fail_cleanly_at_every_fault),
        cmocka_unit_test(test_hash_is_the_same_everywhere),
        cmocka_unit_test(test_a_path_below_never_leads_out),
    };

    if (argc == 2 && strcmp(argv[1], "--first-failure") == 0)
        return first_failure();
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
