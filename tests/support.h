/* SPDX-License-Identifier: Apache-2.0 */
/* What the C suites share: cmocka, a loop over the fault seams, paths. */
#ifndef HY_TESTS_SUPPORT_H
#define HY_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fault.h"

/*
 * HY_TEST(test_name) { ... } defines a test and adds it to the suite, in the order of the file; the body may use
 * `state`. HY_TEST_WITH has a setup and a teardown, either may be NULL. Suites need no main (tests/suite.c has one, which
 * takes a filter such as 'test_log_*'); a suite with a setup for all of its tests, or whose program has other roles as
 * well, ends its own main with hy_run_tests.
 */
#define HY_TEST(function) HY_TEST_WITH(function, NULL, NULL)
#define HY_TEST_WITH(function, setup, teardown)                  \
    static void function(void **state);                          \
    HY_REGISTER(function, function, #function, setup, teardown)  \
    static void function(__attribute__((unused)) void **state)

/* Registers a function once more, with another name and fixture; `id` is unique. */
#define HY_REGISTER(id, function, name, setup, teardown)                                              \
    __attribute__((constructor)) static void register_##id(void)                                      \
    {                                                                                                 \
        hy_register_test(&(const struct CMUnitTest){name, function, setup, teardown, NULL});          \
    }

void hy_register_test(const struct CMUnitTest *test);
int hy_run_tests(const char *filter, CMFixtureFunction setup, CMFixtureFunction teardown);

#define HY_FAULT_POSITIONS 200

/*
 * Runs `scenario` with the 1st, 2nd … 200th passage of the seam failing, and
 * once with none. The scenario must either come through or fail cleanly (it
 * returns 0 or -Exxx); leaks are ASan's to find. Stops early once a run passes
 * fewer seams than the position armed: nothing was hit any more.
 */
static inline void hy_each_fault(enum hy_seam seam, int (*scenario)(void *arg), void *arg)
{
    hy_fault_arm(seam, 0);
    assert_int_equal(scenario(arg), 0);
    for (long n = 1; n <= HY_FAULT_POSITIONS; n++) {
        long passed;
        int rc;

        hy_fault_arm(seam, n);
        rc = scenario(arg);
        passed = hy_fault_passed(seam);
        hy_fault_arm(seam, 0);
        if (rc > 0)
            fail_msg("seam %d, position %ld: the scenario answered %d", (int)seam, n, rc);
        if (passed < n)
            break;
    }
    hy_fault_arm(seam, 0);
}

/* Skips the test; the line before it is what tests/run counts as the reason. Nothing is cleaned up: call it first. */
#define hy_skip(...)                  \
    do {                              \
        print_message("skipped: ");   \
        print_message(__VA_ARGS__);   \
        print_message("\n");          \
        skip();                       \
    } while (0)

/* What only root can do, as "to mount a disk". */
static inline void hy_need_root(const char *what)
{
    if (geteuid() != 0)
        hy_skip("needs root: %s", what);
}

/* Who is not root may have been given a cgroup to divide; so this comes after trying. */
static inline void hy_skip_cgroups(void)
{
    hy_need_root("to make cgroups");
    hy_skip("no cgroup can be made on this machine");
}

/* A path that lasts for three more calls, and is nobody's to free. */
static inline char *hy_path_in(const char *folder, const char *name)
{
    static char paths[4][200];
    static unsigned turn;
    char *path = paths[turn++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

#endif
