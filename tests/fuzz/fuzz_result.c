/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/metric.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(void *arg, const char *name, double value)
{
    size_t *count = arg;

    (void)value;
    *count += strlen(name) + 1;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_err err = {0};
    size_t count = 0;
    int rc = hy_result_parse(data, size, "metric", take, &count, &err);

    /* Either all is well, or a sentence says what is not. */
    if (rc < 0 && (err.code != rc || !err.text[0]))
        abort();
    return 0;
}
