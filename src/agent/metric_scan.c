/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/metric.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define NUMBER_MAX 400 /* characters: enough for any double */

void hy_metric_scan_init(struct hy_metric_scan *m, const char *name)
{
    m->found = false;
    m->value = 0;
    m->step = -1;
    m->seen = 0;
    m->name = name && *name ? name : NULL;
    m->len = 0;
}

static bool is_before(char c)
{
    return isspace((unsigned char)c) || (c && strchr(",;[({", c));
}

static bool is_behind(char c)
{
    return isspace((unsigned char)c) || (c && strchr(",;])}", c));
}

/* The text between '=' and what ends a number, as a string. */
static bool take_number(const char *at, const char *end, char number[NUMBER_MAX])
{
    size_t n = 0;

    while (at + n < end && !is_behind(at[n])) {
        if (n + 1 == NUMBER_MAX || !at[n])
            return false;
        number[n] = at[n];
        n++;
    }
    number[n] = '\0';
    return n > 0;
}

/* Finds the next "name=number" at or behind *at, and moves *at behind the '='. */
static bool next_word(const char **at, const char *begin, const char *end, const char *name, char number[NUMBER_MAX])
{
    size_t n = strlen(name);

    while (*at < end) {
        const char *found = memmem(*at, (size_t)(end - *at), name, n);

        if (!found || end - found <= (ptrdiff_t)n)
            return false;
        *at = found + 1;
        if (found[n] != '=' || (found > begin && !is_before(found[-1])))
            continue;
        *at = found + n + 1;
        if (take_number(*at, end, number))
            return true;
    }
    return false;
}

static int64_t find_step(const char *begin, const char *end)
{
    char number[NUMBER_MAX];
    const char *at = begin;
    int64_t step = -1;

    while (next_word(&at, begin, end, "step", number)) {
        char *rest;
        long long value;

        errno = 0;
        value = strtoll(number, &rest, 10);
        if (!*rest && errno == 0 && value >= 0)
            step = value;
    }
    return step;
}

static void scan_line(struct hy_metric_scan *m, const char *line, size_t n)
{
    const char *end = line + (n < HY_METRIC_LINE_MAX ? n : HY_METRIC_LINE_MAX);
    char number[NUMBER_MAX];
    const char *at = line;
    bool any = false;
    double value;

    while (next_word(&at, line, end, m->name, number))
        if (hy_parse_double(number, &value) == 0) {
            m->value = value;
            m->found = any = true;
            m->seen++;
        }
    if (any)
        m->step = find_step(line, end);
}

static void keep_piece(struct hy_metric_scan *m, const char *bytes, size_t n)
{
    size_t room = sizeof m->line - m->len;

    if (n > room)
        n = room;
    memcpy(m->line + m->len, bytes, n);
    m->len += n;
}

/* A carriage return ends a line too: progress bars print nothing else. */
static const char *find_line_end(const char *at, size_t n)
{
    const char *newline = memchr(at, '\n', n);
    const char *back = memchr(at, '\r', newline ? (size_t)(newline - at) : n);

    return back ? back : newline;
}

void hy_metric_scan_feed(struct hy_metric_scan *m, const uint8_t *bytes, size_t n)
{
    const char *at = (const char *)bytes;

    while (m->name && n) {
        const char *stop = find_line_end(at, n);
        size_t len = stop ? (size_t)(stop - at) : n;

        if (!stop || m->len)
            keep_piece(m, at, len);
        if (!stop)
            return;
        if (m->len)
            scan_line(m, m->line, m->len);
        else
            scan_line(m, at, len); /* whole in this piece: no need to copy it */
        m->len = 0;
        at += len + 1;
        n -= len + 1;
    }
}

void hy_metric_scan_end(struct hy_metric_scan *m)
{
    if (m->name && m->len)
        scan_line(m, m->line, m->len);
    m->len = 0;
}

int hy_metric_parse(const char *text, size_t *ret_name_len, double *ret_value)
{
    const char *equals = strrchr(text, '=');
    double value;

    if (!equals || equals == text || hy_parse_double(equals + 1, &value) < 0)
        return -EINVAL;
    *ret_name_len = (size_t)(equals - text);
    *ret_value = value;
    return 0;
}
