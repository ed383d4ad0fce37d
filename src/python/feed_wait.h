/* SPDX-License-Identifier: Apache-2.0 */
/* How long Source and Hub wait before they let handlers of signals run. */
#ifndef HY_PYTHON_FEED_WAIT_H
#define HY_PYTHON_FEED_WAIT_H

#include <stdint.h>

#include "base/clock.h"

#define HY_PY_WAIT_SLICE_MS 100
#define HY_PY_TIMEOUT_MAX_S 1e9

/* When so many seconds are over; never for less than none. */
static inline int64_t hy_py_deadline(double seconds)
{
    return seconds >= 0 && seconds < HY_PY_TIMEOUT_MAX_S ? hy_clock_ms() + (int64_t)(seconds * 1000) : INT64_MAX;
}

/* Until then, but a slice at most. */
static inline int hy_py_wait_ms(int64_t end)
{
    const int64_t left = end - hy_clock_ms();

    return left <= 0 ? 0 : left < HY_PY_WAIT_SLICE_MS ? (int)left : HY_PY_WAIT_SLICE_MS;
}

#endif
