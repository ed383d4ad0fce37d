/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that something else than hopyard has started: mpirun, srun and their
 * like. Rank and size are in the environment. The ranks of one machine find
 * each other by a socket in the user's runtime directory (rank_server.h), those
 * of several by what the launcher carries between them (pmi.h, endpoint.h).
 */
#ifndef HY_COLLECTIVE_LAUNCHER_H
#define HY_COLLECTIVE_LAUNCHER_H

#include <stdbool.h>

#include "base/err.h"

struct hy_launcher {
    const char *name;  /* "mpirun", "srun" */
    unsigned rank, size;
    unsigned local;    /* ranks on this machine; 0: the environment does not say */
    unsigned hosts;    /* machines; 0: the environment does not say */
    bool is_spread;    /* over several machines */
    char job[160];     /* the same for all ranks of one start, and for no others */
};

/*
 * Whether a launcher has started this process as one of several ranks: 1 and *ret, or 0. -EINVAL with a sentence for
 * variables that make no sense, -ENOTSUP with the command to use for ranks on several machines whose launcher offers
 * neither PMIx nor PMI-2.
 */
int hy_launcher_find(struct hy_launcher *ret, struct hy_err *err);
/* That refusal: -ENOTSUP. `why` the launcher does not serve is added; NULL: it offers nothing. */
int hy_launcher_refuse(const struct hy_launcher *l, const char *why, struct hy_err *err);
/* Where its ranks meet, in a directory that only this user can enter. Free it; NULL with a sentence. */
char *hy_launcher_socket(const struct hy_launcher *l, struct hy_err *err);

#endif
