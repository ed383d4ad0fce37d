/* SPDX-License-Identifier: Apache-2.0 */
/* Captures what this process logs on standard error, so that a test can count the lines. */
#ifndef HY_TESTS_CAPTURED_LOG_H
#define HY_TESTS_CAPTURED_LOG_H

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "support.h"

static int log_real = -1, log_file = -1;

static inline void log_begin(void)
{
    hy_log_reset();
    log_real = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    log_file = memfd_create("log", MFD_CLOEXEC);
    assert_true(log_real >= 0 && log_file >= 0);
    assert_true(dup2(log_file, STDERR_FILENO) >= 0);
}

/* The number of lines logged since log_begin that contain `what`. */
static inline int log_count(const char *what)
{
    static char text[1 << 20];
    ssize_t n = pread(log_file, text, sizeof text - 1, 0);
    int count = 0;

    assert_true(n >= 0);
    text[n] = '\0';
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        count += strstr(line, what) != NULL;
    return count;
}

static inline void log_end(void)
{
    if (log_real < 0)
        return;
    dup2(log_real, STDERR_FILENO);
    close(log_real);
    close(log_file);
    log_real = log_file = -1;
}

/* A teardown: the messages of a failed test go to the real standard error. */
static inline int log_restore(void **state)
{
    (void)state;
    log_end();
    return 0;
}

#endif
