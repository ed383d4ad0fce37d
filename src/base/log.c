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

static void write_line(enum hy_log_level level, const char *fmt, va_list args)
{
    char line[1024], when[40];
    int n, m;

    hy_clock_iso8601(hy_clock_wall_ms(), when, sizeof when);
    n = snprintf(line, sizeof line, "%s %.64s %s: ", when, program, names[level]);
    m = vsnprintf(line + n, sizeof line - (size_t)n, fmt, args);
    n = m < 0 ? n : n + m;
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    for (int i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[n] = '\n';
    /* One write, so that lines of several processes do not mix. An error is ignored:
     * it could not be reported. */
    if (write(STDERR_FILENO, line, (size_t)n + 1) < 0)
        return;
}

void hy_log(enum hy_log_level level, const char *fmt, ...)
{
    va_list args;

    if (level < least)
        return;
    va_start(args, fmt);
    write_line(level, fmt, args);
    va_end(args);
}

/* ---- limits ---------------------------------------------------------------------------- */

static struct hy_log_limit *limits; /* that were used */

static unsigned burst_of(const struct hy_log_limit *l)
{
    return l->burst ? l->burst : HY_LOG_BURST;
}

static int64_t every_of(const struct hy_log_limit *l)
{
    return l->every_ms ? l->every_ms : HY_LOG_EVERY_MS;
}

static void enlist(struct hy_log_limit *l, int64_t now)
{
    l->in_use = true;
    l->left = burst_of(l);
    l->refilled_ms = now;
    l->next = limits;
    limits = l;
}

static void refill(struct hy_log_limit *l, int64_t now)
{
    int64_t more = (now - l->refilled_ms) / every_of(l);

    if (more <= 0)
        return;
    l->left = more >= (int64_t)(burst_of(l) - l->left) ? burst_of(l) : l->left + (unsigned)more;
    l->refilled_ms += more * every_of(l);
}

static void report_left_out(struct hy_log_limit *l, int64_t now)
{
    uint64_t count = l->left_out;

    if (count == 0)
        return;
    l->left_out = 0;
    hy_log(l->level, "%llu more lines like this were left out within %lld s: %s", (unsigned long long)count,
           (long long)(now - l->left_out_since_ms + 999) / 1000, l->example);
}

void hy_log_rate_limited(struct hy_log_limit *l, enum hy_log_level level, const char *fmt, ...)
{
    int64_t now = hy_clock_ms();
    va_list args;

    if (level < least)
        return;
    if (!l->in_use)
        enlist(l, now);
    refill(l, now);
    va_start(args, fmt);
    if (l->left > 0) {
        report_left_out(l, now);
        l->left--;
        write_line(level, fmt, args);
    } else if (l->left_out++ == 0) {
        l->level = level;
        l->left_out_since_ms = now;
        vsnprintf(l->example, sizeof l->example, fmt, args);
    }
    va_end(args);
}

void hy_log_tick(void)
{
    int64_t now = hy_clock_ms();

    for (struct hy_log_limit *l = limits; l; l = l->next)
        if (l->left_out && now - l->left_out_since_ms >= HY_LOG_EVERY_MS)
            report_left_out(l, now);
}

void hy_log_flush(void)
{
    int64_t now = hy_clock_ms();

    for (struct hy_log_limit *l = limits; l; l = l->next)
        report_left_out(l, now);
}

void hy_log_reset(void)
{
    for (struct hy_log_limit *l = limits; l; l = l->next) {
        l->left = burst_of(l);
        l->left_out = 0;
    }
}
