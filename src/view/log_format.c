/* SPDX-License-Identifier: Apache-2.0 */
#include "view/log_format.h"

#include <string.h>

#include "base/text.h"

/* The number of trailing bytes that may be the start of a \r\n or of a UTF-8 sequence. */
static size_t unfinished(const uint8_t *bytes, size_t n)
{
    if (n && bytes[n - 1] == '\r')
        return 1;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t c = bytes[n - back];
        size_t len = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

        if (len > back)
            return back;
        if (c < 0x80 || c >= 0xc0)
            break;
    }
    return 0;
}

/* Escapes text without line ends. Tabs are harmless and stay. */
static void escaped(struct hy_out *out, const uint8_t *bytes, size_t n)
{
    while (n && out->rc == 0) {
        const uint8_t *tab = memchr(bytes, '\t', n);
        size_t piece = tab ? (size_t)(tab - bytes) : n;

        out->rc = hy_append_printable(&out->buf, (const char *)bytes, piece);
        if (tab)
            hy_out_str(out, "\t");
        bytes += piece + (tab != NULL);
        n -= piece + (tab != NULL);
    }
}

/* The length of the line, which ends at \n, and in a terminal also at \r, with which progress bars overwrite
 * themselves. *ret_skip: the length of the line end. */
static size_t line_length(const struct hy_log_format *l, const uint8_t *bytes, size_t n, size_t *ret_skip)
{
    const uint8_t *newline = memchr(bytes, '\n', n);
    const uint8_t *back = l->escape && !l->overwrite ? memchr(bytes, '\r', newline ? (size_t)(newline - bytes) : n)
                                                     : NULL;

    if (back) {
        *ret_skip = back + 1 == newline ? 2 : 1;
        return (size_t)(back - bytes);
    }
    *ret_skip = newline ? 1 : 0;
    return newline ? (size_t)(newline - bytes) : n;
}

static void prefix(const struct hy_log_format *l, struct hy_out *out, int64_t trial, bool is_stderr)
{
    static const enum hy_tint tints[] = {HY_CYAN, HY_GREEN, HY_YELLOW};
    enum hy_tint tint = tints[trial % 3];

    if (l->prefix == HY_LOG_LINES)
        return;
    hy_out_tint_on(out, tint);
    if (l->prefix == HY_LOG_RANKED && l->name)
        hy_outf(out, "[%s] ", l->name);
    else if (l->prefix == HY_LOG_RANKED)
        hy_outf(out, "[%lld] ", (long long)trial);
    else
        hy_outf(out, "%*lld %s ", l->digits, (long long)trial, is_stderr ? "!" : "|");
    hy_out_tint_off(out, tint);
}

static void line(const struct hy_log_format *l, struct hy_out *out, const uint8_t *bytes, size_t n)
{
    if (l->escape)
        escaped(out, bytes, n);
    else
        hy_out_bytes(out, bytes, n);
}

/* The number of leading bytes of a line that a later \r overwrites. */
static size_t overwritten(const uint8_t *bytes, size_t n)
{
    const uint8_t *back;

    while (n && bytes[n - 1] == '\r')
        n--; /* nothing has overwritten this yet */
    back = n ? memrchr(bytes, '\r', n) : NULL;
    return back ? (size_t)(back + 1 - bytes) : 0;
}

/* Appends the part of a line that is not overwritten. */
static void rest_of_line(const struct hy_log_format *l, struct hy_out *out, const uint8_t *bytes, size_t n)
{
    size_t from = l->overwrite ? overwritten(bytes, n) : 0;

    while (l->overwrite && n > from && bytes[n - 1] == '\r')
        n--;
    line(l, out, bytes + from, n - from);
}

static size_t append_lines(const struct hy_log_format *l, struct hy_out *out, int64_t trial, bool is_stderr,
                           const uint8_t *bytes, size_t n, bool last, bool full)
{
    size_t done = 0;

    while (done < n) {
        size_t skip, len = line_length(l, bytes + done, n - done, &skip);

        if (skip == 0 && !last && !(full && done == 0))
            break; /* incomplete: wait for the line end, except that a line longer than the buffer is split */
        prefix(l, out, trial, is_stderr);
        rest_of_line(l, out, bytes + done, len);
        hy_out_str(out, "\n");
        done += len + skip;
    }
    return l->overwrite && !last ? done + overwritten(bytes + done, n - done) : done;
}

static void append_text(const struct hy_log_format *l, struct hy_out *out, const uint8_t *bytes, size_t n)
{
    while (n) {
        size_t skip, len = line_length(l, bytes, n, &skip);

        line(l, out, bytes, len);
        if (skip)
            hy_out_str(out, "\n");
        bytes += len + skip;
        n -= len + skip;
    }
}

size_t hy_log_format_append(const struct hy_log_format *l, struct hy_out *out, int64_t trial, bool is_stderr,
                            const uint8_t *bytes, size_t n, bool last, bool full)
{
    if (!last && (l->escape || l->prefix != HY_LOG_BYTES))
        n -= unfinished(bytes, n);
    if (l->prefix != HY_LOG_BYTES)
        return append_lines(l, out, trial, is_stderr, bytes, n, last, full);
    if (l->escape)
        append_text(l, out, bytes, n);
    else
        hy_out_bytes(out, bytes, n);
    return n;
}
