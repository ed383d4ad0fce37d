/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that is there whole or not at all: until it is kept it lies beside its
 * place as ".NAME.1f0a…._COPYING_". Readers know that ending from Hadoop's shell
 * and leave it alone; the number keeps two writers of one file apart.
 */
#ifndef HY_FS_DRAFT_H
#define HY_FS_DRAFT_H

#include <stdbool.h>

struct hy_err;
struct hy_fs_file;

struct hy_fs_draft {
    struct hy_fs_file *file; /* to be written to */
    char *url;               /* read-only: its name for now */
    char *target;            /* private */
};

/* A name for now, for a file or a folder; NULL when out of memory. */
char *hy_fs_draft_name(const char *target);

int hy_fs_draft_open(struct hy_fs_draft *d, const char *target, struct hy_err *err);
/* Closes it and puts it in its place. -EEXIST when something is there, unless `replace`. It is over in any case:
 * after an error nothing is left of it. */
int hy_fs_draft_keep(struct hy_fs_draft *d, bool replace, struct hy_err *err);
/* Nothing is left of it. Harmless when it is over. */
void hy_fs_draft_drop(struct hy_fs_draft *d);

#endif
