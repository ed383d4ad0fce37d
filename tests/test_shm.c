/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include "collective/types.h"

static void test_to_be_written(void **state)
{
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_to_be_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
