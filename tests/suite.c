/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a suite's tests, which HY_TEST fills before main, and the main of suites without one. */
#include "support.h"

#define TESTS_MAX 400

static struct CMUnitTest tests[TESTS_MAX];
static size_t count;

void hy_register_test(const struct CMUnitTest *test)
{
    if (count == TESTS_MAX) {
        fprintf(stderr, "more than %d tests in one suite: raise TESTS_MAX in tests/suite.c\n", TESTS_MAX);
        abort();
    }
    tests[count++] = *test;
}

int hy_run_tests(const char *filter, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    setenv("XDG_STATE_HOME", HY_NO_STATE_HOME, 0);
    if (filter)
        cmocka_set_test_filter(filter);
    return _cmocka_run_group_tests("tests", tests, count, setup, teardown);
}

__attribute__((weak)) int main(int argc, char **argv)
{
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
