/* SPDX-License-Identifier: Apache-2.0 */
/* Series of samples: one that is accepted is packed and read again as it was, and stays valid when points are added. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "faults.h"
#include "wire/usage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_again(const struct hy_usage *u)
{
    struct hy_usage again;
    struct hy_buf bytes;

    hy_buf_init(&bytes, HY_USAGE_PACKED_MAX);
    if (hy_usage_pack(u, &bytes) == 0 && hy_usage_unpack(hy_buf_bytes(&bytes), bytes.len, &again) == 0 &&
        (again.count != u->count || memcmp(again.points, u->points, u->count * sizeof *u->points) != 0))
        abort();
    hy_buf_done(&bytes);
}

static void run(const uint8_t *data, size_t size)
{
    struct hy_usage u;

    if (hy_usage_unpack(data, size, &u) < 0)
        return;
    read_again(&u);
    for (int i = 0; i < 300; i++) {
        struct hy_usage_point p = {.time_ms = (int64_t)1 << 52, .memory = i};

        p.time_ms += i;
        hy_usage_add(&u, &p);
        if (u.count == 0 || u.count > HY_USAGE_POINTS)
            abort();
    }
    read_again(&u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_run_with_faults(data, size, run);
    return 0;
}
