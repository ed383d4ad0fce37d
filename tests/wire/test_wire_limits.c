/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of agents. e2e/test_hostile_agents.py tests how the driver enforces them. */
#include "support.h"

#include <string.h>

#include "base/mem.h"
#include "wire/limits.h"

static const char *exceeds(const Hy__Control *m)
{
    static char text[200];

    return hy_limits_exceeded(m, text, sizeof text);
}

static const char *output_exceeds(const char *path, uint64_t offset, uint64_t size, uint32_t stream)
{
    Hy__Output o = HY__OUTPUT__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    o.path = (char *)path;
    o.mode = 0100644;
    o.offset = offset;
    o.size = size;
    o.stream = stream;
    m.body_case = HY__CONTROL__BODY_OUTPUT;
    m.output = &o;
    return exceeds(&m);
}

HY_TEST(test_offsets_and_sizes_of_files_are_bounded)
{
    static const struct {
        uint64_t offset, size;
        bool fine;
    } cases[] = {
        {0, 0, true},
        {0, HY_FILE_SIZE_LIMIT, true},
        {HY_FILE_SIZE_LIMIT, 0, true},
        {1, HY_FILE_SIZE_LIMIT, false},
        {HY_FILE_SIZE_LIMIT, 1, false},
        {HY_FILE_SIZE_LIMIT + 1, 0, false},
        {INT64_MAX, 0, false},
        {UINT64_MAX, UINT64_MAX, false},
        {1, UINT64_MAX, false},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++)
        assert_int_equal(!output_exceeds("file", cases[i].offset, cases[i].size, 1), cases[i].fine);
    assert_non_null(output_exceeds("file", 0, 0, 0));
    assert_null(output_exceeds("file", 0, 0, HY_AGENT_STREAMS_END - 1));
    assert_non_null(output_exceeds("file", 0, 0, HY_AGENT_STREAMS_END));
}

HY_TEST(test_paths_of_files_are_bounded)
{
    static const char *const fine[] = {"a", "a/b", ".a", "a..", "..a/b", "a b/\n", "..."};
    static const char *const wrong[] = {"", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "../a", "a/../b", "a/.."};
    char text[HY_PATH_LIMIT + 2];

    for (size_t i = 0; i < HY_COUNT(fine); i++)
        assert_null(hy_limits_check_path(fine[i]));
    for (size_t i = 0; i < HY_COUNT(wrong); i++)
        assert_non_null(hy_limits_check_path(wrong[i]));
    for (size_t n = 254; n < 258; n++) { /* one part */
        memset(text, 'x', n);
        text[n] = '\0';
        assert_int_equal(!hy_limits_check_path(text), n <= HY_PATH_PART_LIMIT);
    }
    for (size_t parts = 63; parts < 67; parts++) {
        for (size_t i = 0; i < 2 * parts; i++)
            text[i] = i % 2 ? '/' : 'x';
        text[2 * parts - 1] = '\0';
        assert_int_equal(!hy_limits_check_path(text), parts <= HY_PATH_DEPTH_LIMIT);
    }
    for (size_t i = 0; i <= HY_PATH_LIMIT; i++)
        text[i] = i % 200 == 199 ? '/' : 'x';
    text[HY_PATH_LIMIT + 1] = '\0';
    assert_non_null(hy_limits_check_path(text));
    text[HY_PATH_LIMIT] = '\0';
    assert_null(hy_limits_check_path(text));
}

HY_TEST(test_names_and_counts_of_values_are_bounded)
{
    static Hy__Metric metric, *list[HY_VALUES_LIMIT + 1];
    char name[HY_NAME_LIMIT + 2];
    Hy__Report r = HY__REPORT__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    hy__metric__init(&metric);
    metric.name = name;
    memset(name, 'n', sizeof name);
    name[HY_NAME_LIMIT] = '\0';
    for (size_t i = 0; i < HY_COUNT(list); i++)
        list[i] = &metric;
    r.metrics = list;
    r.n_metrics = HY_VALUES_LIMIT;
    m.body_case = HY__CONTROL__BODY_REPORT;
    m.report = &r;
    assert_null(exceeds(&m));
    r.n_metrics++;
    assert_string_equal(exceeds(&m), "10001 values in one message (the limit is 10000)");
    r.n_metrics = 1;
    name[HY_NAME_LIMIT] = 'n';
    name[HY_NAME_LIMIT + 1] = '\0';
    assert_string_equal(exceeds(&m), "a metric's name of 256 bytes (the limit is 255)");
}
