/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mirror: a folder somewhere else that follows one of this machine.
 *
 * Files that grow (TensorBoard's events, logs) are followed byte by byte, so
 * that others can read them while they are written; any other file is copied
 * when it has been left alone for a few seconds, and at the end. What is removed
 * here stays there. What is here is the truth: after any trouble over there the
 * next look makes it good.
 *
 * Calls block (fs.h); one thread at a time.
 */
#ifndef HY_FS_MIRROR_H
#define HY_FS_MIRROR_H

#include <stdbool.h>
#include <stdint.h>

struct hy_err;
struct hy_fs_mirror;

/* `is_skipped` says which files are not for others, by their path in the folder; NULL: none. NULL when out of memory. */
struct hy_fs_mirror *hy_fs_mirror_new(const char *folder, const char *url, bool (*is_skipped)(const char *path));
/* A look that finds more bytes than this in all files together stops there, with -EFBIG. */
void hy_fs_mirror_limit(struct hy_fs_mirror *m, uint64_t bytes);
/* Frees it; files that are still open over there are completed as they are. */
void hy_fs_mirror_free(struct hy_fs_mirror *m);

/*
 * Looks once. With `is_last` all that there is goes, and is complete. Returns 0,
 * or the first trouble; what had none is done. -ENAMETOOLONG, for folders that lie
 * too deep inside each other, is the same at the next look.
 */
int hy_fs_mirror_look(struct hy_fs_mirror *m, bool is_last, struct hy_err *err);

#endif
