/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/metric.h"
#include "faults.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(void *arg, const char *name, double value)
{
    size_t *count = arg;

    (void)value;
    *count += strlen(name) + 1;
    return 0;
}

static void parse(const uint8_t *data, size_t size, const char *metric)
{
    struct hy_err err = {0};
    size_t count = 0;
    int rc = hy_result_parse(data, size, metric, take, &count, &err);

    /* It succeeds, or fails with a message. */
    if (rc < 0 && (err.code != rc || !err.text[0]))
        abort();
}

/* For a run with a metric, and for one without. */
static void run(const uint8_t *data, size_t size)
{
    parse(data, size, "metric");
    parse(data, size, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_run_with_faults(data, size, run);
    return 0;
}
