/* SPDX-License-Identifier: Apache-2.0 */
/* Failed trials of a run, from the store into the live view. */
#ifndef HY_CLI_FAILURES_H
#define HY_CLI_FAILURES_H

#include "client/client.h"
#include "view/view.h"

/* The first failed trials of the store, for the summary. Failing is fine: then they are missing. */
void hy_live_view_failures(struct hy_live_view *b, struct hy_store *s, int64_t run);
/* The rank of a training that failed first, and its last words. Failing is fine, too. */
void hy_live_view_find_first_failure(struct hy_live_view *b, struct hy_store *s, const struct hy_run_info *info);

#endif
