/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder that is written into, path by path, without leaving it: on this
 * machine no link below it is followed, also none that somebody puts there
 * meanwhile. Each folder on the way is opened by its name in the one before, and
 * files are named by the descriptor of their folder, "/proc/self/fd/N/NAME".
 * Other file systems have plain URLs.
 */
#ifndef HY_FS_BENEATH_H
#define HY_FS_BENEATH_H

#include <stdbool.h>

struct hy_err;

struct hy_fs_confined_dir {
    const char *url; /* private, all of it */
    int top;         /* -1: not of this machine */
    int folder;      /* the one that was asked for last, or -1 */
    char *path;      /* of `folder`, below the top */
};

/* Keeps `url`. `is_ours`: it was just made, so a link in its place is somebody else's. */
int hy_fs_confined_dir_open(struct hy_fs_confined_dir *b, const char *url, bool is_ours, struct hy_err *err);
void hy_fs_confined_dir_done(struct hy_fs_confined_dir *b);
#define hy_cleanup_confined_dir __attribute__((cleanup(hy_fs_confined_dir_done)))

/* A URL for the folder `path`, which is there, or for an entry, whose folder is; "" is the top. Valid until the next
 * call. -ENOTDIR when a link or a file is on the way. */
int hy_fs_confined_dir_path(struct hy_fs_confined_dir *b, const char *path, char **ret_url, struct hy_err *err);
int hy_fs_confined_dir_entry(struct hy_fs_confined_dir *b, const char *path, char **ret_url, struct hy_err *err);

/* Puts the names that the user knows into the sentence of an error of such a URL. */
void hy_fs_confined_dir_explain(const struct hy_fs_confined_dir *b, struct hy_err *err);

#endif
