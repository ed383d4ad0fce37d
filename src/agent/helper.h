/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that runs beside the loop: no pipes to attend to (what
 * it reads and says is in memory), a time limit, one callback.
 *
 * It stays in this session, so the supervisor leaves it alone; what it leaves
 * behind as a daemon is another matter (HY_DAEMON_MARK in procs.h).
 */
#ifndef HY_AGENT_HELPER_H
#define HY_AGENT_HELPER_H

#include <stdint.h>
#include <uv.h>

#include "base/err.h"

#define HY_HELPER_SAID_MAX 65536

struct hy_helper; /* opaque */

struct hy_helper_spec {
    const char *file;
    char *const *argv;
    char *const *env;    /* NULL: ours; its PATH is searched */
    const char *input;   /* what it finds on standard input; NULL: nothing ... */
    int input_fd;        /* ... or this; 0: not so */
    int64_t timeout_ms;  /* 0: none, until hy_helper_limit */
};

/* `status`: how it exited, or 128 + the signal, or -ETIMEDOUT. `said`: what it
 * wrote to standard output and error, at most HY_HELPER_SAID_MAX bytes. */
typedef void (*hy_helper_cb)(void *arg, int status, const char *said);

/* 0, or -Exxx with a sentence; then there is no callback. */
int hy_helper_start(uv_loop_t *loop, const struct hy_helper_spec *spec, hy_helper_cb done, void *arg,
                    struct hy_helper **ret, struct hy_err *err);
/* From now on it has so long. */
void hy_helper_limit(struct hy_helper *h, int64_t timeout_ms);
/* Ends it without a callback; the loop must turn to free it. NULL is fine. */
void hy_helper_cancel(struct hy_helper *h);

#endif
