/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void write_sentence(struct hy_err *err, const char *fmt, va_list args)
{
    if (vsnprintf(err->text, sizeof err->text, fmt, args) < 0)
        err->text[0] = '\0';
}

int hy_err_set(struct hy_err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list args;

        err->code = code;
        va_start(args, fmt);
        write_sentence(err, fmt, args);
        va_end(args);
    }
    return code;
}

int hy_err_sys(struct hy_err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list args;
        size_t n;

        err->code = code;
        va_start(args, fmt);
        write_sentence(err, fmt, args);
        va_end(args);
        n = strlen(err->text);
        snprintf(err->text + n, sizeof err->text - n, ": %s", strerror(-code));
    }
    return code;
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
    snprintf(err->text + n, sizeof err->text - n, ": %.*s", (int)sizeof inner.text, inner.text);
    return err->code;
}
