/* SPDX-License-Identifier: Apache-2.0 */
/* Series of samples: their size, and what is never lost. */
#include "support.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "wire/limits.h"
#include "wire/usage.h"

/* An attempt whose memory grows to a peak at `peak_at` (of `n` points) and falls again. */
static void fill_series(struct hy_usage *u, int64_t n, int64_t peak_at)
{
    hy_usage_init(u);
    for (int64_t i = 0; i < n; i++) {
        struct hy_usage_point p = {.time_ms = 1000 * (i + 1), .cpu_ms = 900 * (i + 1)};

        p.memory = i == peak_at ? 5000000 : 100000 + i % 7;
        hy_usage_add(u, &p);
        assert_in_range(u->count, 1, HY_USAGE_POINTS);
    }
}

static bool has_memory(const struct hy_usage *u, int64_t memory)
{
    for (size_t i = 0; i < u->count; i++)
        if (u->points[i].memory == memory)
            return true;
    return false;
}

HY_TEST(test_a_series_never_has_more_than_200_points_and_keeps_first_last_and_peak)
{
    static const int64_t lengths[] = {1, 2, 3, 199, 200, 201, 202, 301, 1000, 12345};
    struct hy_usage u;

    for (size_t i = 0; i < HY_COUNT(lengths); i++)
        for (int64_t peak = 0; peak < lengths[i]; peak += 1 + lengths[i] / 23) {
            int64_t n = lengths[i];

            fill_series(&u, n, peak);
            assert_int_equal(u.points[0].time_ms, 1000);
            assert_int_equal(u.points[u.count - 1].time_ms, 1000 * n);
            assert_int_equal(u.points[u.count - 1].cpu_ms, 900 * n);
            assert_true(has_memory(&u, 5000000));
            for (size_t k = 1; k < u.count; k++)
                assert_true(u.points[k].time_ms > u.points[k - 1].time_ms);
        }
}

HY_TEST(test_the_interval_doubles_when_a_series_is_full)
{
    struct hy_usage u;

    fill_series(&u, HY_USAGE_POINTS, 0);
    assert_int_equal(u.interval_ms, HY_USAGE_INTERVAL_MS);
    assert_int_equal(u.count, HY_USAGE_POINTS);
    fill_series(&u, HY_USAGE_POINTS + 1, 0);
    assert_int_equal(u.interval_ms, 2 * HY_USAGE_INTERVAL_MS);
    assert_in_range(u.count, HY_USAGE_POINTS / 2, HY_USAGE_POINTS / 2 + 2);
}

HY_TEST(test_a_point_that_is_not_later_replaces_the_last_and_cpu_time_never_falls)
{
    struct hy_usage u;

    hy_usage_init(&u);
    hy_usage_add(&u, &(struct hy_usage_point){.time_ms = 1000, .memory = 5, .cpu_ms = 70});
    hy_usage_add(&u, &(struct hy_usage_point){.time_ms = 900, .memory = 6, .cpu_ms = 60});
    assert_int_equal(u.count, 1);
    assert_int_equal(u.points[0].time_ms, 1000);
    assert_int_equal(u.points[0].memory, 6);
    assert_int_equal(u.points[0].cpu_ms, 70);
}

HY_TEST(test_a_packed_series_is_small_and_reads_as_it_was)
{
    struct hy_usage u, again;
    hy_cleanup_buf struct hy_buf bytes;

    hy_buf_init(&bytes, HY_USAGE_PACKED_MAX);
    fill_series(&u, HY_USAGE_POINTS, 77);
    assert_int_equal(hy_usage_pack(&u, &bytes), 0);
    assert_in_range(bytes.len, 1, 10 * HY_USAGE_POINTS);
    assert_int_equal(hy_usage_unpack(hy_buf_bytes(&bytes), bytes.len, &again), 0);
    assert_int_equal(again.count, u.count);
    assert_memory_equal(again.points, u.points, u.count * sizeof *u.points);
    assert_false(again.has_gpus);

    u.points[3].gpu_memory = 1 << 20;
    u.points[4].gpu_use = 370;
    u.has_gpus = true;
    hy_buf_clear(&bytes);
    assert_int_equal(hy_usage_pack(&u, &bytes), 0);
    assert_int_equal(hy_usage_unpack(hy_buf_bytes(&bytes), bytes.len, &again), 0);
    assert_memory_equal(again.points, u.points, u.count * sizeof *u.points);
    assert_true(again.has_gpus);
}

static const char *report_exceeds(const Hy__Usage *usage)
{
    static char text[200];
    Hy__UsageReport r = HY__USAGE_REPORT__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    r.usage = (Hy__Usage *)usage;
    m.body_case = HY__CONTROL__BODY_USAGE;
    m.usage = &r;
    return hy_limits_exceeded(&m, text, sizeof text);
}

HY_TEST(test_invalid_series_are_refused)
{
    int64_t up[HY_USAGE_POINTS + 1], back[] = {5, -1}, negative[] = {-1, 2}, large[] = {INT64_MAX, INT64_MAX};
    Hy__Usage u = HY__USAGE__INIT;

    for (size_t i = 0; i < HY_COUNT(up); i++)
        up[i] = 1;
    assert_non_null(report_exceeds(NULL));
    u.time_ms = u.memory = u.cpu_ms = up;
    u.n_time_ms = u.n_memory = u.n_cpu_ms = 2;
    assert_null(report_exceeds(&u));
    u.n_memory = 1;
    assert_non_null(report_exceeds(&u)); /* lists of different lengths */
    u.n_memory = 2;
    u.gpu_memory = up;
    u.n_gpu_memory = 2;
    assert_non_null(report_exceeds(&u)); /* only one of the GPU's lists */
    u.n_gpu_memory = 0;
    u.time_ms = back;
    assert_non_null(report_exceeds(&u));
    u.time_ms = up;
    u.cpu_ms = back;
    assert_non_null(report_exceeds(&u));
    u.cpu_ms = up;
    u.memory = negative;
    assert_non_null(report_exceeds(&u));
    u.memory = large; /* the sum does not fit into 64 bits */
    assert_non_null(report_exceeds(&u));
    u.memory = up;
    u.n_time_ms = u.n_memory = u.n_cpu_ms = HY_USAGE_POINTS;
    assert_null(report_exceeds(&u));
    u.n_time_ms = u.n_memory = u.n_cpu_ms = HY_USAGE_POINTS + 1;
    assert_non_null(report_exceeds(&u));
}

HY_TEST(test_bytes_that_are_not_a_series_are_refused)
{
    static const uint8_t junk[] = {0x0a, 0xff, 0x01};
    hy_cleanup_free uint8_t *long_one = hy_calloc(HY_USAGE_PACKED_MAX + 1, 1);
    struct hy_usage u;

    assert_non_null(long_one);
    assert_int_equal(hy_usage_unpack(junk, sizeof junk, &u), -EBADMSG);
    assert_int_equal(hy_usage_unpack(long_one, HY_USAGE_PACKED_MAX + 1, &u), -EBADMSG);
    assert_int_equal(hy_usage_unpack(junk, 0, &u), 0);
    assert_int_equal(u.count, 0);
}

HY_TEST(test_the_use_of_a_machine_is_bounded)
{
    Hy__AgentUsage usage = HY__AGENT_USAGE__INIT;
    Hy__AgentUsage__Gpu gpu = HY__AGENT_USAGE__GPU__INIT, *gpus[HY_GPU_LIST_LIMIT + 1];
    Hy__Control m = HY__CONTROL__INIT;
    char name[HY_NAME_LIMIT + 2], text[200];

    for (size_t i = 0; i < HY_COUNT(gpus); i++)
        gpus[i] = &gpu;
    usage.gpus = gpus;
    usage.n_gpus = HY_GPU_LIST_LIMIT;
    m.body_case = HY__CONTROL__BODY_AGENT_USAGE;
    m.agent_usage = &usage;
    assert_null(hy_limits_exceeded(&m, text, sizeof text));
    usage.n_gpus = HY_GPU_LIST_LIMIT + 1;
    assert_non_null(hy_limits_exceeded(&m, text, sizeof text));
    usage.n_gpus = 1;
    memset(name, 'x', sizeof name);
    name[HY_NAME_LIMIT + 1] = '\0';
    gpu.name = name;
    assert_non_null(hy_limits_exceeded(&m, text, sizeof text));
}
