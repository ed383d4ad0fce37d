/* SPDX-License-Identifier: Apache-2.0 */
/* Failed trials of a run, from the store into the live view. */
#ifndef HY_CLI_FAILURES_H
#define HY_CLI_FAILURES_H

#include "client/client.h"
#include "view/view.h"

/* Adds the first failed trials of the store to the summary. On an error they are missing. */
void hy_live_view_failures(struct hy_live_view *b, struct hy_store *s, int64_t run);
/* Adds the rank of a training that failed first, with the last lines of its output. On an error it is missing. */
void hy_live_view_find_first_failure(struct hy_live_view *b, struct hy_store *s, const struct hy_run_info *info);

#endif
