/* SPDX-License-Identifier: Apache-2.0 */
#include "view/out.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/file.h"
#include "base/text.h"

#define OUT_MAX (256u * 1024 * 1024)

static bool locale_is_utf8 = true;

static bool set(const char *variable)
{
    const char *value = getenv(variable);

    return value && *value;
}

void hy_style_init(void)
{
    bool chosen = set("LC_ALL") || set("LC_CTYPE") || set("LANG");

    setlocale(LC_CTYPE, "");
    locale_is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (locale_is_utf8)
        return;
    /* Parameters may be UTF-8 in any locale, and the C locale has no character widths.
     * Where no locale is set (containers), assume that the terminal is UTF-8. */
    setlocale(LC_CTYPE, "C.UTF-8");
    locale_is_utf8 = !chosen;
}

void hy_style_of(int fd, struct hy_style *ret)
{
    const char *term = getenv("TERM");
    struct winsize size = {0};

    *ret = (struct hy_style){.unicode = locale_is_utf8};
    ret->terminal = isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
    if (!ret->terminal)
        return;
    ret->color = !set("NO_COLOR");
    if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 || size.ws_row == 0)
        size = (struct winsize){.ws_col = 80, .ws_row = 24};
    ret->width = size.ws_col;
    ret->height = size.ws_row;
}

/* The character at `text` and its length; a byte that is not valid UTF-8 counts as one character. */
static wchar_t character(const char *text, size_t n, size_t *ret_len)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t len = hy_utf8_len(text, n);
    wchar_t c;

    *ret_len = len ? len : 1;
    if (len < 2)
        return s[0];
    c = s[0] & (0xff >> (len + 1));
    for (size_t i = 1; i < len; i++)
        c = (c << 6) | (s[i] & 0x3f);
    return c;
}

static int width_of(wchar_t c)
{
    int width = wcwidth(c);

    return width < 0 ? 1 : width;
}

size_t hy_fit(const char *text, size_t n, int columns, int *ret_columns)
{
    int taken = 0;
    size_t at = 0;

    while (at < n) {
        size_t len;
        int width = width_of(character(text + at, n - at, &len));

        if (width > columns - taken)
            break;
        taken += width;
        at += len;
    }
    if (ret_columns)
        *ret_columns = taken;
    return at;
}

int hy_columns(const char *text, size_t n)
{
    int columns;

    hy_fit(text, n, 1 << 30, &columns);
    return columns;
}

void hy_out_init(struct hy_out *o, const struct hy_style *style)
{
    *o = (struct hy_out){.style = *style};
    hy_buf_init(&o->buf, OUT_MAX);
}

void hy_out_done(struct hy_out *o)
{
    hy_buf_done(&o->buf);
}

void hy_out_bytes(struct hy_out *o, const void *bytes, size_t n)
{
    if (o->rc == 0)
        o->rc = hy_buf_append(&o->buf, bytes, n);
}

void hy_out_str(struct hy_out *o, const char *text)
{
    hy_out_bytes(o, text, strlen(text));
}

void hy_outf(struct hy_out *o, const char *fmt, ...)
{
    va_list args;
    uint8_t *at;
    int n;

    if (o->rc < 0)
        return;
    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    at = n < 0 || (size_t)n > o->buf.max - o->buf.len ? NULL : hy_buf_reserve(&o->buf, (size_t)n + 1);
    if (!at) {
        o->rc = -ENOMEM;
        return;
    }
    va_start(args, fmt);
    vsnprintf((char *)at, (size_t)n + 1, fmt, args);
    va_end(args);
    hy_buf_added(&o->buf, (size_t)n);
}

/* Invisible characters that reorder text (bidi controls) or end a line for some readers. */
static bool is_format(wchar_t c)
{
    return c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

static int append_html_character(struct hy_buf *b, const char *at, size_t len, wchar_t c)
{
    static const char special[] = "&<>\"'";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    const char *found = c && c < 0x80 ? strchr(special, (int)c) : NULL;

    if (found)
        return hy_buf_append_str(b, names[found - special]);
    return is_format(c) ? hy_buf_printf(b, "\\u%04x", (unsigned)c) : hy_buf_append(b, at, len);
}

/* Appends printable text, escaped for HTML where the style asks for it. */
static void put_text(struct hy_out *o, const char *text, size_t n)
{
    if (!o->style.html) {
        hy_out_bytes(o, text, n);
        return;
    }
    for (size_t at = 0, len; at < n && o->rc == 0; at += len) {
        wchar_t c = character(text + at, n - at, &len);

        o->rc = append_html_character(&o->buf, text + at, len, c);
    }
}

static void put_html_value(struct hy_out *o, const char *text)
{
    hy_cleanup_buf struct hy_buf printable;

    hy_buf_init(&printable, OUT_MAX);
    o->rc = hy_append_printable(&printable, text, strlen(text));
    if (o->rc == 0)
        put_text(o, (const char *)hy_buf_bytes(&printable), printable.len);
}

void hy_out_value(struct hy_out *o, const char *text)
{
    if (o->rc < 0 || !text)
        return;
    if (o->style.html)
        put_html_value(o, text);
    else
        o->rc = hy_append_printable(&o->buf, text, strlen(text));
}

/* A page may be light or dark: weight and opacity work on both. NULL: no span. */
static const char *const span_styles[] = {
    [HY_PLAIN] = NULL,        [HY_BOLD] = "font-weight:600",
    [HY_DIM] = "opacity:.65", [HY_RED] = "font-weight:600",
    [HY_GREEN] = NULL,        [HY_YELLOW] = NULL,
    [HY_CYAN] = NULL,         [HY_BEST] = "font-weight:600",
};

static bool has_span(const struct hy_out *o, enum hy_tint tint)
{
    return o->style.html && span_styles[tint];
}

void hy_out_tint_on(struct hy_out *o, enum hy_tint tint)
{
    static const char *const codes[] = {"",         "\033[1m",  "\033[2m",  "\033[31m",
                                        "\033[32m", "\033[33m", "\033[36m", "\033[32m"};

    if (o->style.color)
        hy_out_str(o, codes[tint]);
    if (has_span(o, tint))
        hy_outf(o, "<span style=\"%s\">", span_styles[tint]);
}

void hy_out_tint_off(struct hy_out *o, enum hy_tint tint)
{
    if (o->style.color && tint != HY_PLAIN)
        hy_out_str(o, "\033[0m");
    if (has_span(o, tint))
        hy_out_str(o, "</span>");
}

void hy_out_tint(struct hy_out *o, enum hy_tint tint, const char *text)
{
    hy_out_tint_on(o, tint);
    hy_out_value(o, text);
    hy_out_tint_off(o, tint);
}

int hy_out_cut(struct hy_out *o, const char *text, size_t n, int columns)
{
    const char *ellipsis = o->style.unicode ? "…" : "~";
    int taken;
    size_t bytes = hy_fit(text, n, columns, &taken);

    if (bytes == n) {
        put_text(o, text, n);
        return taken;
    }
    if (columns < 1)
        return 0;
    bytes = hy_fit(text, n, columns - 1, &taken);
    put_text(o, text, bytes);
    hy_out_str(o, ellipsis);
    return taken + 1;
}

void hy_out_repeat(struct hy_out *o, const char *text, int times)
{
    while (times-- > 0)
        hy_out_str(o, text);
}

int hy_out_flush(struct hy_out *o, int fd)
{
    int rc = o->rc;

    if (rc == 0 && o->buf.len)
        rc = hy_write_all(fd, hy_buf_bytes(&o->buf), o->buf.len);
    hy_buf_clear(&o->buf);
    o->rc = 0;
    return rc;
}

void hy_print_error(const char *what, const struct hy_err *err)
{
    hy_cleanup_out struct hy_out out = {0};
    struct hy_style style;

    hy_style_of(STDERR_FILENO, &style);
    hy_out_init(&out, &style);
    hy_out_tint_on(&out, HY_RED);
    hy_outf(&out, "hopyard%s%s:", what ? " " : "", what ? what : "");
    hy_out_tint_off(&out, HY_RED);
    hy_outf(&out, " %s%s%s", err->option ? "--" : "", err->option ? err->option : "", err->option ? " " : "");
    hy_out_value(&out, err->text[0] ? err->text : "out of memory");
    hy_out_str(&out, "\n");
    /* Without memory, print without colors; other errors cannot be reported anywhere. */
    if (hy_out_flush(&out, STDERR_FILENO) == -ENOMEM)
        dprintf(STDERR_FILENO, "hopyard%s%s: %s\n", what ? " " : "", what ? what : "",
                err->text[0] ? err->text : "out of memory");
}

void hy_print_note(const char *text)
{
    hy_cleanup_out struct hy_out out = {0};
    struct hy_style style;

    hy_style_of(STDERR_FILENO, &style);
    hy_out_init(&out, &style);
    hy_out_tint(&out, HY_YELLOW, "note: ");
    hy_out_value(&out, text);
    hy_out_str(&out, "\n");
    if (hy_out_flush(&out, STDERR_FILENO) == -ENOMEM)
        dprintf(STDERR_FILENO, "note: %s\n", text);
}
