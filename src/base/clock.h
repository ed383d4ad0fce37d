/* SPDX-License-Identifier: Apache-2.0 */
/* Time: wall clock for users and the store, monotonic for everything else. */
#ifndef HY_BASE_CLOCK_H
#define HY_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t hy_clock_wall_ms(void); /* since 1970, UTC */
int64_t hy_clock_ms(void);      /* monotonic */
int64_t hy_clock_ns(void);      /* the same, for measurements */
/* "2026-11-15T04:30:12.345Z" */
void hy_clock_iso8601(int64_t wall_ms, char *text, size_t size);

#endif
