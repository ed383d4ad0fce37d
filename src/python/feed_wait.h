/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines of Source and Hub, and the slices in which they wait so that signal handlers run. */
#ifndef HY_PYTHON_FEED_WAIT_H
#define HY_PYTHON_FEED_WAIT_H

#include <stdint.h>

#include "base/clock.h"

#define HY_PY_WAIT_SLICE_MS 100
#define HY_PY_TIMEOUT_MAX_S 1e9

/* The deadline in that many seconds; never for a negative number. */
static inline int64_t hy_py_deadline(double seconds)
{
    return seconds >= 0 && seconds < HY_PY_TIMEOUT_MAX_S ? hy_clock_ms() + (int64_t)(seconds * 1000) : INT64_MAX;
}

/* Until the deadline, but a slice at most. */
static inline int hy_py_wait_ms(int64_t deadline)
{
    const int64_t remaining = deadline - hy_clock_ms();

    return remaining <= 0 ? 0 : remaining < HY_PY_WAIT_SLICE_MS ? (int)remaining : HY_PY_WAIT_SLICE_MS;
}

#endif
