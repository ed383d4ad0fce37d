/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that a launcher other than hopyard has started: mpirun, srun and others. Rank and size are in the environment.
 * Ranks of one machine find each other through a socket in the user's runtime directory (rank_server.h), ranks of
 * several machines through an address that the launcher distributes (pmi.h, endpoint.h).
 */
#ifndef HY_COLLECTIVE_LAUNCHER_H
#define HY_COLLECTIVE_LAUNCHER_H

#include <stdbool.h>

#include "base/err.h"

struct hy_launcher {
    const char *name;  /* "mpirun", "srun" */
    unsigned rank, size;
    unsigned local;    /* ranks on this machine; 0: unknown */
    unsigned hosts;    /* machines; 0: unknown */
    bool is_spread;    /* over several machines */
    char job[160];     /* the same for all ranks of one start, and unique */
};

/*
 * Whether a launcher has started this process as one of several ranks: 1 and *ret, or 0. -EINVAL with a message for
 * invalid variables, -ENOTSUP with the command to use for ranks on several machines whose launcher offers neither PMIx
 * nor PMI-2.
 */
int hy_launcher_find(struct hy_launcher *ret, struct hy_err *err);
/* That error: -ENOTSUP. `why` explains what the launcher lacks; NULL: it offers no interface. */
int hy_launcher_refuse(const struct hy_launcher *l, const char *why, struct hy_err *err);
/* The path of the rendezvous socket, in a directory that only this user can access. Free it; NULL with a message. */
char *hy_launcher_socket(const struct hy_launcher *l, struct hy_err *err);

#endif
