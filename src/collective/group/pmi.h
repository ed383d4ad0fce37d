/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributes one line of text from rank 0 to all ranks of a launcher's job, through PMIx (Open MPI, Slurm, PRRTE) or
 * PMI-2 (Slurm, MPICH). Their libraries are loaded only when ranks are on several machines.
 */
#ifndef HY_COLLECTIVE_PMI_H
#define HY_COLLECTIVE_PMI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Whether the launcher offers one of them to this process. */
bool hy_pmi_is_offered(void);

/*
 * Rank 0 passes `text` (at most HY_PMI_TEXT bytes with its NUL), the others receive it in `text`. Returns when all
 * ranks have called it; may be called once in a process. -EINTR when `give_up` (NULL: never), called ten times a
 * second, returns true; then a thread keeps waiting until the launcher ends the process. -ENOTSUP: the library cannot
 * be loaded. Errors have a message.
 */
#define HY_PMI_TEXT 1024
int hy_pmi_share(unsigned rank, char text[HY_PMI_TEXT], bool (*give_up)(void *arg), void *arg, struct hy_err *err);

#endif
