/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client reads of a run from the store: trials that have ended, notes,
 * failures. The driver's updates only say up to where there is something to
 * read, so that its cost does not grow with the run. Each read is short, and
 * nothing is written while one is under way: an open read keeps the store's
 * -wal file from being reused.
 */
#ifndef HY_CLI_HISTORY_H
#define HY_CLI_HISTORY_H

#include "cli/board.h"
#include "cli/runs.h"

/* How far a client has read. Zeroed: nothing yet. */
struct hy_history {
    int64_t trials; /* private: ended_seq of the last trial */
    int64_t notes;  /* private: seq of the last note */
};

/*
 * Puts into `u` (made with hy_proto_memory) the trials and notes that are new
 * and that its positions cover: of the trials the next part if `all`, else the
 * newest ones. What an update of an older driver brings, which has no positions,
 * stays in it. 1: there are more trials, 0: those were all, or -Exxx with a
 * sentence; what was read before the failure is in `u`.
 */
int hy_history_read(struct hy_history *h, struct hy_store *s, Hy__Update *u, bool all, struct hy_err *err);

/* Frees the trials and notes in it. */
void hy_history_drop(Hy__Update *u);

/* The first failed trials of the store, for the summary. Failing is fine: then they are missing. */
void hy_board_failures(struct hy_board *b, struct hy_store *s, int64_t run);
/* The rank of a training that failed first, and its last words. Failing is fine, too. */
void hy_board_find_culprit(struct hy_board *b, struct hy_store *s, const struct hy_runinfo *info);

#endif
