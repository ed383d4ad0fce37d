/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Ensures one line of UTF-8: control characters, bytes that are not UTF-8 and a
 * character that was truncated become '?'. */
static void tidy(char *text)
{
    size_t n = strlen(text);

    for (size_t i = 0, len; i < n; i += len) {
        len = hy_utf8_len(text + i, n - i);
        if (len == 0 || (unsigned char)text[i] < ' ' || text[i] == 0x7f) {
            text[i] = '?';
            len = 1;
        }
    }
}

static void write_sentence(struct hy_err *err, const char *fmt, va_list args)
{
    if (vsnprintf(err->text, sizeof err->text, fmt, args) < 0)
        err->text[0] = '\0';
    tidy(err->text);
}

int hy_err_set(struct hy_err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list args;

        err->code = code;
        err->option = NULL;
        va_start(args, fmt);
        write_sentence(err, fmt, args);
        va_end(args);
    }
    return code;
}

int hy_err_option(struct hy_err *err, const char *option, const char *fmt, ...)
{
    if (err) {
        va_list args;

        err->code = -EINVAL;
        err->option = option;
        va_start(args, fmt);
        write_sentence(err, fmt, args);
        va_end(args);
    }
    return -EINVAL;
}

int hy_err_sys(struct hy_err *err, int code, const char *fmt, ...)
{
    if (err) {
        const char *reason = strerror(-code);
        va_list args;
        size_t n, room = sizeof err->text - strlen(reason) - sizeof ": ";

        err->code = code;
        err->option = NULL;
        va_start(args, fmt);
        write_sentence(err, fmt, args);
        va_end(args);
        n = strlen(err->text);
        if (n > room) /* a very long path: the reason matters more than its end */
            n = room;
        snprintf(err->text + n, sizeof err->text - n, ": %s", reason);
        tidy(err->text);
    }
    return code;
}

int hy_err_oom(struct hy_err *err)
{
    return hy_err_set(err, -ENOMEM, "out of memory");
}

int hy_err_wrap(struct hy_err *err, const char *fmt, ...)
{
    struct hy_err inner;
    va_list args;
    size_t n;

    if (!err)
        return -EIO;
    inner = *err;
    va_start(args, fmt);
    write_sentence(err, fmt, args);
    va_end(args);
    n = strlen(err->text);
    snprintf(err->text + n, sizeof err->text - n, ": %s%s%s%.*s", inner.option ? "--" : "",
             inner.option ? inner.option : "", inner.option ? " " : "", (int)sizeof inner.text, inner.text);
    err->option = NULL;
    tidy(err->text);
    return err->code;
}
