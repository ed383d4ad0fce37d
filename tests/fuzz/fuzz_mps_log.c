/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets found in a log are within it, and consistent. */
#include <stdint.h>
#include <stdlib.h>

#include "gpu/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_mps_faults f;

    hy_mps_log_scan((const char *)data, size, &f);
    if (f.any ? f.last >= size || f.clients_hit > size : f.over || f.clients_hit || f.last)
        abort();
    return 0;
}
