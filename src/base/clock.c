/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t hy_clock_wall_ms(void)
{
    return read_clock(CLOCK_REALTIME);
}

int64_t hy_clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t hy_clock_ms(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

void hy_clock_iso8601(int64_t wall_ms, char *text, size_t size)
{
    int ms = (int)(((wall_ms % 1000) + 1000) % 1000); /* before 1970 too */
    time_t seconds = (time_t)(wall_ms / 1000 - (wall_ms % 1000 < 0));
    char date[32];
    struct tm tm;

    if (!gmtime_r(&seconds, &tm) || strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm) == 0)
        snprintf(text, size, "?");
    else
        snprintf(text, size, "%s.%03dZ", date, ms);
}
