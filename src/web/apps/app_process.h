/* SPDX-License-Identifier: Apache-2.0 */
/* The process of an app: its own session, no input, the end of its output kept. The kernel kills it with this one. */
#ifndef HY_WEB_APP_PROCESS_H
#define HY_WEB_APP_PROCESS_H

#include <uv.h>

#include "base/err.h"

struct hy_app_process; /* opaque */

/* It has ended; `why` is a sentence: the last line that it has printed, or its status. Frees the process. */
typedef void hy_app_process_end_fn(void *arg, const char *why);

/* Runs this program (hopyard) with `argv` and the environment `env`. 0 or -Exxx. */
int hy_app_process_start(uv_loop_t *loop, char *const *argv, char *const *env, hy_app_process_end_fn *on_end, void *arg,
                         struct hy_app_process **ret, struct hy_err *err);
/* SIGTERM, SIGKILL after 5 s; on_end follows. May be called again. */
void hy_app_process_stop(struct hy_app_process *p);

#endif
