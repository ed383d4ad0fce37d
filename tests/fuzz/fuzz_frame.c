/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: an accepted frame that is encoded again gives the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    while (size) {
        const char *why = NULL;
        struct hy_buf again;
        struct hy_frame f;
        int64_t n = hy_frame_parse(data, size, HY_FRAME_MAX, &f, &why);

        if (n < 0 && !why)
            abort();
        if (n <= 0)
            break;
        hy_buf_init(&again, SIZE_MAX);
        if (hy_frame_append(&again, &f) < 0 || again.len != (size_t)n ||
            memcmp(hy_buf_bytes(&again), data, again.len) != 0)
            abort();
        hy_buf_done(&again);
        data += n;
        size -= (size_t)n;
    }
    return 0;
}
