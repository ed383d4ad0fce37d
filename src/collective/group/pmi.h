/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of text from rank 0 to all ranks of a launcher's job, carried by
 * the launcher: PMIx (Open MPI, Slurm, PRRTE) or PMI-2 (Slurm, MPICH). Their
 * libraries are loaded when ranks are on several machines, and only then.
 */
#ifndef HY_COLLECTIVE_PMI_H
#define HY_COLLECTIVE_PMI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Whether the launcher offers one of them to this process. */
bool hy_pmi_is_offered(void);

/*
 * Rank 0 gives `text` (at most HY_PMI_TEXT bytes with its NUL), the others get it in `text`. Returns when all ranks have
 * called it; once in a process. -EINTR when `give_up` (NULL: never) says so, asked ten times a second; then a thread
 * goes on waiting, which is the launcher's to end. -ENOTSUP: the library cannot be loaded; or -Exxx; with a sentence.
 */
#define HY_PMI_TEXT 1024
int hy_pmi_share(unsigned rank, char text[HY_PMI_TEXT], bool (*give_up)(void *arg), void *arg, struct hy_err *err);

#endif
