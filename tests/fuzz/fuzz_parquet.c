/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata of Parquet files: every column has a path, and a refusal has a reason. */
#include <stdlib.h>
#include <string.h>

#include "faults.h"
#include "record/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(const uint8_t *data, size_t size)
{
    struct hy_parquet f;
    const char *why = NULL;
    int rc = hy_parquet_parse(data, size, &f, &why);

    if (rc < 0) {
        if (!why)
            abort();
        return;
    }
    if (f.rows < 0 || f.column_count > size)
        abort();
    for (size_t i = 0; i < f.column_count; i++)
        if (!f.columns[i].path)
            abort();
    hy_parquet_done(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 8)
        (void)hy_parquet_footer(data + size - 8);
    hy_run_with_faults(data, size, run);
    return 0;
}
