/* SPDX-License-Identifier: Apache-2.0 */
/* What is found in a log stays within it, and makes sense. */
#include <stdint.h>
#include <stdlib.h>

#include "gpu/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_mps_faults f;

    hy_mps_log_scan((const char *)data, size, &f);
    if (f.any ? f.last >= size || f.struck > size : f.over || f.struck || f.last)
        abort();
    return 0;
}
