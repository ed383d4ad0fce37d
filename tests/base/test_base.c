/* SPDX-License-Identifier: Apache-2.0 */
/* base: memory, buffers, maps, lists, random numbers, and the seams where faults are let in. */
#include "captured_log.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/string_list.h"
#include "base/text.h"

/* --- memory ------------------------------------------------------------- */

HY_TEST(test_mem_refuses_sizes_that_do_not_fit)
{
    assert_null(hy_reallocarray(NULL, SIZE_MAX / 2, 4));
    assert_null(hy_calloc(SIZE_MAX / 2 + 1, 2));
}

HY_TEST(test_mem_of_no_bytes_is_still_a_pointer)
{
    hy_cleanup_free void *a = hy_malloc(0), *b = hy_calloc(0, 8), *c = hy_reallocarray(NULL, 0, 8);

    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
}

HY_TEST(test_mem_strndup_stops_at_the_end_of_the_string)
{
    hy_cleanup_free char *cut = hy_strndup("abcdef", 3), *whole = hy_strndup("abc", 100);

    assert_string_equal(cut, "abc");
    assert_string_equal(whole, "abc");
}

HY_TEST(test_mem_taking_leaves_nothing_behind)
{
    char *p = hy_strdup("x"), *q;
    int fd = 7;

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

HY_TEST(test_mem_a_file_descriptor_is_closed_with_its_scope)
{
    int fd = fd_after_its_scope();

    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(errno, EBADF);
}

/* --- buffers ------------------------------------------------------------ */

HY_TEST(test_buf_gives_bytes_back_in_order)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 100);
    assert_int_equal(hy_buf_append(&b, "ab\0c", 4), 0);
    assert_int_equal(hy_buf_append_str(&b, "de"), 0);
    assert_int_equal(hy_buf_printf(&b, "%d", 42), 0);
    assert_int_equal(b.len, 8);
    assert_memory_equal(hy_buf_bytes(&b), "ab\0cde42", 8);
    hy_buf_consume(&b, 3);
    assert_memory_equal(hy_buf_bytes(&b), "cde42", 5);
}

HY_TEST(test_buf_takes_nothing_at_all_too)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 10);
    assert_null(hy_buf_bytes(&b));
    assert_int_equal(hy_buf_append(&b, NULL, 0), 0);
    assert_int_equal(hy_buf_append_str(&b, ""), 0);
    assert_int_equal(hy_buf_printf(&b, "%s", ""), 0);
    hy_buf_consume(&b, 0);
    assert_int_equal(b.len, 0);
    assert_string_equal(hy_buf_cstr(&b), "");
}

HY_TEST(test_buf_holds_its_maximum_and_is_unchanged_when_it_refuses)
{
    hy_cleanup_buf struct hy_buf b;

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

HY_TEST(test_buf_of_no_maximum_refuses_what_memory_cannot_hold)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, SIZE_MAX);
    assert_int_equal(hy_buf_append_str(&b, "abc"), 0);
    assert_null(hy_buf_reserve(&b, SIZE_MAX - 4));
    assert_null(hy_buf_reserve(&b, SIZE_MAX - 3));
    assert_string_equal(hy_buf_cstr(&b), "abc");
}

HY_TEST(test_buf_reserved_room_becomes_bytes_when_added)
{
    hy_cleanup_buf struct hy_buf b;
    uint8_t *at;

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
HY_TEST(test_buf_is_a_queue_of_bytes_over_any_history)
{
    enum { MAX = 5000 };
    hy_cleanup_buf struct hy_buf b;
    uint8_t model[MAX], piece[700];
    size_t len = 0;
    struct hy_rng rng;

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

HY_TEST(test_buf_that_flows_does_not_grow)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1 << 20);
    for (int i = 0; i < 100000; i++) {
        assert_int_equal(hy_buf_append(&b, "0123456789", 10), 0);
        if (i >= 10)
            hy_buf_consume(&b, 10);
    }
    assert_true(b.cap <= 512);
}

HY_TEST(test_buf_shrinks_only_when_it_is_empty)
{
    hy_cleanup_buf struct hy_buf b;
    char big[4000] = {0};

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

HY_TEST(test_array_grows_by_powers_of_two_and_keeps_its_elements)
{
    int *numbers = NULL;

    for (int i = 0; i < 1000; i++) {
        assert_int_equal(hy_array_grow(numbers, (size_t)i), 0);
        numbers[i] = i;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(numbers[i], i);
    assert_int_equal(hy_array_grow(numbers, SIZE_MAX / 2 + 1), -ENOMEM);
    free(numbers);
}

HY_TEST(test_string_list_owns_taken_strings)
{
    hy_cleanup_string_list struct hy_string_list l = {0};

    assert_int_equal(hy_string_list_add(&l, "b"), 0);
    assert_int_equal(hy_string_list_take(&l, hy_asprintf("a%d", 1)), 0);
    assert_int_equal(hy_string_list_take(&l, NULL), -ENOMEM);
    assert_int_equal(l.count, 2);
    hy_string_list_sort(&l);
    assert_string_equal(l.items[0], "a1");
    assert_true(hy_string_list_has(&l, "b"));
    assert_false(hy_string_list_has(&l, "a"));
}

HY_TEST(test_map_without_entries_answers)
{
    struct hy_map m = {0};
    size_t cursor = 0;

    assert_null(hy_map_get(&m, 1));
    assert_null(hy_map_remove(&m, 1));
    assert_null(hy_map_next(&m, &cursor));
    hy_map_done(&m);
}

HY_TEST(test_map_takes_every_key_and_replaces)
{
    static const uint64_t keys[] = {0, 1, UINT64_MAX, 1ULL << 63, 1ULL << 32};
    struct hy_map m = {0};
    int a, b;

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
HY_TEST(test_map_remembers_what_was_put_over_any_history)
{
    enum { KEYS = 60 };
    struct hy_map m = {0};
    char values[KEYS];
    int there[KEYS] = {0};
    size_t count = 0;
    struct hy_rng rng;

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

HY_TEST(test_map_walk_meets_each_value_once)
{
    struct hy_map m = {0};
    int met[1000] = {0}, *v;

    for (uint64_t i = 0; i < HY_COUNT(met); i++)
        assert_int_equal(hy_map_put(&m, i * 0x100000001ULL, &met[i]), 0);
    for (size_t cursor = 0; (v = hy_map_next(&m, &cursor));)
        ++*v;
    for (size_t i = 0; i < HY_COUNT(met); i++)
        assert_int_equal(met[i], 1);
    hy_map_done(&m);
}

HY_TEST(test_hash_is_the_same_everywhere)
{
    assert_int_equal(hy_hash("", 0), 0xcbf29ce484222325ULL);
    assert_int_equal(hy_hash("a", 1), 0xaf63dc4c8601ec8cULL);
    assert_int_equal(hy_hash("foobar", 6), 0x85944171f73967e8ULL);
}

struct item {
    int number;
    struct hy_list link;
};

/* The numbers in the list as digits. */
static int digits_of(struct hy_list *list)
{
    int digits = 0;

    hy_list_each(it, list)
        digits = digits * 10 + hy_container(it, struct item, link)->number;
    return digits;
}

HY_TEST(test_list_keeps_the_order_of_both_ends)
{
    struct item items[4];
    struct hy_list list;

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

HY_TEST(test_list_entries_may_be_removed_twice_and_while_walking)
{
    struct item items[5];
    struct hy_list list;

    hy_list_init(&list);
    for (int i = 0; i < 5; i++) {
        items[i].number = i + 1;
        hy_list_push(&list, &items[i].link);
    }
    hy_list_remove(&items[2].link);
    hy_list_remove(&items[2].link);
    assert_int_equal(digits_of(&list), 1245);
    hy_list_each(it, &list)
        if (hy_container(it, struct item, link)->number % 2)
            hy_list_remove(it);
    assert_int_equal(digits_of(&list), 24);
    hy_list_each(it, &list)
        hy_list_remove(it);
    assert_true(hy_list_empty(&list));
}

/* --- random numbers ----------------------------------------------------- */

HY_TEST(test_rng_is_xoshiro256starstar)
{
    /* The published reference sequence from the state 1, 2, 3, 4. */
    static const uint64_t expected[] = {11520, 0, 1509978240, 1215971899390074240};
    struct hy_rng r = {{1, 2, 3, 4}};

    for (size_t i = 0; i < HY_COUNT(expected); i++)
        assert_int_equal(hy_rng_next(&r), expected[i]);
}

HY_TEST(test_rng_gives_the_same_numbers_on_every_machine)
{
    static const struct {
        uint64_t seed, stream, first[4];
    } golden[] = {
        {0, 0, {0xfb5405f7bd79c540, 0x780c98e26cea5883, 0x2a146e0980febc66, 0x4851477db8791fca}},
        {42, 7, {0x4150452ab869a892, 0x63980fc0383ce41b, 0x6276ee9c4552e56d, 0x96a8154c710ce93c}},
        {UINT64_MAX, UINT64_MAX, {0x5a24625849aef5fa, 0x177bf4162305fac, 0x97359f05bc75e24d, 0x390cadc886fddf32}},
    };
    struct hy_rng r;

    for (size_t i = 0; i < HY_COUNT(golden); i++) {
        hy_rng_seed(&r, golden[i].seed, golden[i].stream);
        for (int k = 0; k < 4; k++)
            assert_int_equal(hy_rng_next(&r), golden[i].first[k]);
    }
    hy_rng_seed(&r, 42, 7);
    assert_true(hy_rng_double(&r) == 0.2551310757920989);
    assert_true(hy_rng_double(&r) == 0.3890390247618032);
}

HY_TEST(test_rng_below_stays_below_and_is_even)
{
    enum { N = 7, DRAWS = 70000 };
    int seen[N] = {0};
    double chi2 = 0;
    struct hy_rng r;

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

HY_TEST(test_rng_doubles_lie_in_the_half_open_unit_interval)
{
    double sum = 0, least = 1, most = 0;
    struct hy_rng r;

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

HY_TEST(test_rng_streams_of_one_seed_differ)
{
    struct hy_rng a, b;
    int same = 0;

    hy_rng_seed(&a, 9, 1);
    hy_rng_seed(&b, 9, 2);
    for (int i = 0; i < 1000; i++)
        same += hy_rng_next(&a) == hy_rng_next(&b);
    assert_int_equal(same, 0);
}

/* --- fault seams -------------------------------------------------------- */

HY_TEST(test_fault_hits_the_armed_passage_once)
{
    hy_fault_arm(HY_SEAM_ALLOC, 3);
    for (long i = 1; i <= 5; i++) {
        hy_cleanup_free void *p = hy_malloc(1);

        assert_int_equal(p == NULL, i == 3);
        assert_int_equal(hy_fault_passed(HY_SEAM_ALLOC), i);
    }
    hy_fault_arm(HY_SEAM_ALLOC, 0);
}

HY_TEST(test_fault_seams_are_counted_apart)
{
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

HY_TEST(test_fault_is_armed_by_the_environment)
{
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
    hy_cleanup_free char *a = hy_strdup(arg), *b = hy_asprintf("%s-%d", (char *)arg, 1), *c = hy_path_join(arg, "x");
    hy_cleanup_free int *numbers = hy_reallocarray(NULL, 10, sizeof *numbers);

    return a && b && c && numbers ? 0 : -ENOMEM;
}

HY_TEST(test_containers_come_through_or_fail_cleanly_at_every_fault)
{
    char value[] = "value";

    hy_each_fault(HY_SEAM_ALLOC, fill_a_buffer, NULL);
    hy_each_fault(HY_SEAM_ALLOC, fill_a_map, value);
    hy_each_fault(HY_SEAM_ALLOC, copy_strings, value);
}

/* --- the log --------------------------------------------------------------- */

HY_TEST_WITH(test_log_limit_writes_a_burst_and_counts_the_rest, NULL, log_restore)
{
    static struct hy_log_limit limit;

    log_begin();
    for (int i = 0; i < 10000; i++)
        hy_log_rate_limited(&limit, HY_LOG_WARN, "refused number=%d", i);
    assert_int_equal(log_count(""), HY_LOG_BURST);
    hy_log_tick(); /* not due yet */
    assert_int_equal(log_count(""), HY_LOG_BURST);
    limit.refilled_ms -= HY_LOG_EVERY_MS; /* as if so much time had passed */
    hy_log_rate_limited(&limit, HY_LOG_WARN, "refused again");
    hy_log_rate_limited(&limit, HY_LOG_WARN, "refused again and again");
    assert_int_equal(log_count("warn: 9980 more lines like this were left out within"), 1);
    assert_int_equal(log_count("s: refused number=20"), 1);
    assert_int_equal(log_count("refused again"), 1);
    assert_int_equal(log_count(""), HY_LOG_BURST + 2);
    hy_log_flush();
    assert_int_equal(log_count("warn: 1 more lines like this"), 1);
    log_end();
}

HY_TEST_WITH(test_log_limit_reports_what_it_left_out_when_no_more_lines_come, NULL, log_restore)
{
    static struct hy_log_limit by_tick, by_flush;

    log_begin();
    for (unsigned i = 0; i < HY_LOG_BURST + 7; i++)
        hy_log_rate_limited(&by_tick, HY_LOG_WARN, "one kind");
    by_tick.left_out_since_ms -= HY_LOG_EVERY_MS;
    hy_log_tick();
    hy_log_tick();
    assert_int_equal(log_count("7 more lines like this were left out within 10 s: one kind"), 1);
    for (unsigned i = 0; i < HY_LOG_BURST + 3; i++)
        hy_log_rate_limited(&by_flush, HY_LOG_WARN, "another kind");
    hy_log_flush();
    hy_log_flush();
    assert_int_equal(log_count("3 more lines like this were left out within"), 1);
    assert_int_equal(log_count("more lines like this"), 2);
    log_end();
}

HY_TEST_WITH(test_log_limit_allows_a_full_burst_again_after_a_quiet_time, NULL, log_restore)
{
    static struct hy_log_limit limit = {.burst = 5, .every_ms = 1000};

    log_begin();
    for (int i = 0; i < 5; i++)
        hy_log_rate_limited(&limit, HY_LOG_WARN, "first");
    limit.refilled_ms -= 1000 * 1000;
    for (int i = 0; i < 100; i++)
        hy_log_rate_limited(&limit, HY_LOG_WARN, "second");
    assert_int_equal(log_count("first"), 5);
    assert_int_equal(log_count("second"), 5);
    hy_log_rate_limited(&limit, HY_LOG_DEBUG, "what nobody would see is not counted");
    hy_log_flush();
    assert_int_equal(log_count("95 more lines like this"), 1);
    log_end();
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--first-failure") == 0)
        return first_failure();
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
