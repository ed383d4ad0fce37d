/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trials that have ended and the notes of a run, read from the store. The
 * driver's updates only carry the positions up to which there is something to
 * read, so that the driver's cost does not grow with the run. Reads are short,
 * and nothing is printed during one: an open read transaction keeps the store's
 * -wal file from being reused.
 */
#ifndef HY_CLIENT_HISTORY_H
#define HY_CLIENT_HISTORY_H

#include <stdint.h>

#include "base/err.h"
#include "hopyard.pb-c.h"
#include "store/store.h"

/* How far a client has read. All zero at first. */
struct hy_history {
    int64_t trials; /* private: ended_seq of the last trial */
    int64_t notes;  /* private: seq of the last note */
};

/*
 * Reads into `u` (allocated with hy_proto_memory) the new trials and notes that
 * its positions cover: the last `newest` trials, or with 0 all of them, in
 * batches. An update of an older driver has no positions and keeps its own trials.
 * Returns 1 when there are more trials, 0 when there are none, or -Exxx with a
 * message; what was read before the error is in `u`.
 */
int hy_history_read(struct hy_history *h, struct hy_store *s, Hy__Update *u, int64_t newest, struct hy_err *err);

/* Frees the trials and notes in it. */
void hy_history_drop(Hy__Update *u);

#endif
