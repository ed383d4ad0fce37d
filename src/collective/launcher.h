/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that something else than hopyard has started: mpirun, srun and their
 * like. Rank and size are in the environment; the ranks of one machine find
 * each other by a socket in the user's runtime directory (rank_server.h).
 */
#ifndef HY_COLLECTIVE_LAUNCHER_H
#define HY_COLLECTIVE_LAUNCHER_H

#include <stdbool.h>

#include "base/err.h"

struct hy_launcher {
    const char *name;  /* "mpirun", "srun" */
    unsigned rank, size;
    unsigned local;    /* ranks on this machine; 0: the environment does not say */
    char job[160];     /* the same for all ranks of one start, and for no others */
};

/*
 * Whether a launcher has started this process as one of several ranks: 1 and *ret, or 0. -EINVAL with a sentence for
 * variables that make no sense, -ENOTSUP with the command to use for ranks on several machines.
 */
int hy_launcher_find(struct hy_launcher *ret, struct hy_err *err);
/* Where its ranks meet, in a directory that only this user can enter. Free it; NULL with a sentence. */
char *hy_launcher_socket(const struct hy_launcher *l, struct hy_err *err);

#endif
