/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static const char *const names[] = {"debug", "info", "warn", "error"};
static const char *program = "hopyard";
static enum hy_log_level least = HY_LOG_INFO;

void hy_log_init(const char *name)
{
    const char *want = getenv("HOPYARD_LOG");

    program = name;
    for (int i = 0; want && i <= HY_LOG_ERROR; i++)
        if (strcmp(want, names[i]) == 0)
            least = (enum hy_log_level)i;
}

void hy_log(enum hy_log_level level, const char *fmt, ...)
{
    char line[1024], when[40];
    va_list args;
    int n, m;

    if (level < least)
        return;
    hy_clock_iso8601(hy_clock_wall_ms(), when, sizeof when);
    n = snprintf(line, sizeof line, "%s %.64s %s: ", when, program, names[level]);
    va_start(args, fmt);
    m = vsnprintf(line + n, sizeof line - (size_t)n, fmt, args);
    va_end(args);
    n = m < 0 ? n : n + m;
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    for (int i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[n] = '\n';
    /* One write, so that lines of several processes do not mix; where standard
     * error is gone there is nobody to tell. */
    if (write(STDERR_FILENO, line, (size_t)n + 1) < 0)
        return;
}
