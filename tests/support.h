/* SPDX-License-Identifier: Apache-2.0 */
/* For all C suites: cmocka, registration of tests, a loop over the fault seams, paths. */
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

#include "base/err.h"
#include "base/fault.h"

/*
 * HY_TEST(test_name) { ... } defines a test and adds it to the suite, in the order of the file; the body may use
 * `state`. HY_TEST_WITH has a setup and a teardown; either may be NULL. Suites need no main: tests/suite.c has one that
 * takes a filter such as 'test_log_*'. A suite with a setup for all of its tests, or whose program has other roles,
 * ends its own main with hy_run_tests.
 */
#define HY_TEST(function) HY_TEST_WITH(function, NULL, NULL)
#define HY_TEST_WITH(function, setup, teardown)                                                                        \
    static void function(void **state);                                                                                \
    HY_REGISTER(function, function, #function, setup, teardown)                                                        \
    static void function(__attribute__((unused)) void **state)

/* Registers a function once more, with another name and fixture; `id` is unique. */
#define HY_REGISTER(id, function, name, setup, teardown)                                                               \
    __attribute__((constructor)) static void register_##id(void)                                                       \
    {                                                                                                                  \
        hy_register_test(&(const struct CMUnitTest){name, function, setup, teardown, NULL});                           \
    }

void hy_register_test(const struct CMUnitTest *test);
int hy_run_tests(const char *filter, CMFixtureFunction setup, CMFixtureFunction teardown);

#define HY_NO_STATE_HOME "/proc/none" /* a suite's projects stay out of the user's list of projects */
#define HY_FAULT_POSITIONS 200

/*
 * Runs `scenario` once without faults, and then with the n-th call through the seam failing, for n = step, 2 * step …
 * 200 * step. The scenario must succeed or fail cleanly (return 0 or -Exxx); ASan finds leaks. Stops early when a run
 * made fewer calls than the position that was armed.
 */
static inline void hy_some_faults(enum hy_seam seam, long step, int (*scenario)(void *arg), void *arg)
{
    hy_fault_arm(seam, 0);
    assert_int_equal(scenario(arg), 0);
    for (long n = step; n <= HY_FAULT_POSITIONS * step; n += step) {
        long passed;
        int rc;

        hy_fault_arm(seam, n);
        rc = scenario(arg);
        passed = hy_fault_passed(seam);
        hy_fault_arm(seam, 0);
        if (rc > 0)
            fail_msg("seam %d, position %ld: the scenario returned %d", (int)seam, n, rc);
        if (passed < n)
            break;
    }
    hy_fault_arm(seam, 0);
}

/* The first 200 positions. */
static inline void hy_each_fault(enum hy_seam seam, int (*scenario)(void *arg), void *arg)
{
    hy_some_faults(seam, 1, scenario, arg);
}

/* Skips the test; tests/run takes the printed line as the reason. Call it first: nothing is cleaned up. */
#define hy_skip(...)                                                                                                   \
    do {                                                                                                               \
        print_message("skipped: ");                                                                                    \
        print_message(__VA_ARGS__);                                                                                    \
        print_message("\n");                                                                                           \
        skip();                                                                                                        \
    } while (0)

/* Skips the test without root; `what` is what root is needed for, as "to mount a disk". */
static inline void hy_need_root(const char *what)
{
    if (geteuid() != 0)
        hy_skip("needs root: %s", what);
}

/* Call it when making a cgroup has failed: users other than root may have a delegated one. */
static inline void hy_skip_cgroups(void)
{
    hy_need_root("to make cgroups");
    hy_skip("no cgroup can be made on this machine");
}

/* The error as the command line prints it, in a static buffer. */
static inline const char *hy_sentence_of(const struct hy_err *err)
{
    static char text[sizeof err->text + 64];

    snprintf(text, sizeof text, "%s%s%s%s", err->option ? "--" : "", err->option ? err->option : "",
             err->option ? " " : "", err->text);
    return text;
}

/* A path in a static buffer that is reused by the fourth next call. */
static inline char *hy_path_in(const char *folder, const char *name)
{
    static char paths[4][200];
    static unsigned turn;
    char *path = paths[turn++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

#endif
