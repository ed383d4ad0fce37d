/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error messages for users.
 *
 * Functions return 0 or more on success and -Exxx on failure. Where a user will see
 * the failure, the last argument is a `struct hy_err`: the code that detects the
 * failure writes a sentence (what failed, on what, what to do), and each caller adds
 * what it was doing.
 */
#ifndef HY_BASE_ERR_H
#define HY_BASE_ERR_H

#include <stdarg.h>

#define HY_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

struct hy_err {
    int code;           /* -Exxx; 0: no error */
    const char *option; /* "memory": the text continues its name, "takes a size, …"; NULL: the text is a sentence */
    char text[600];     /* one line of UTF-8, NUL-terminated; truncated if necessary */
};

/* Writes the sentence and returns `code` (negative). `err` may be NULL. */
int hy_err_set(struct hy_err *err, int code, const char *fmt, ...) HY_PRINTF(3, 4);

/* Like hy_err_set, and ends the sentence with ": " and strerror(-code). */
int hy_err_sys(struct hy_err *err, int code, const char *fmt, ...) HY_PRINTF(3, 4);

/* The value of an option is invalid: writes what follows its name, and returns -EINVAL. The command line prints
 * "--memory takes …", Python "memory= takes …". `option` must stay valid as long as `err`. */
int hy_err_option(struct hy_err *err, const char *option, const char *fmt, ...) HY_PRINTF(3, 4);

/* "out of memory"; returns -ENOMEM. `err` may be NULL. */
int hy_err_oom(struct hy_err *err);

/* Puts "what was being done: " in front of the sentence; returns err->code. */
int hy_err_wrap(struct hy_err *err, const char *fmt, ...) HY_PRINTF(2, 3);

#endif
