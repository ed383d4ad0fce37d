/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes into a directory cannot leave it: in a local directory no link below it
 * is followed, not even one that another process creates meanwhile. Each directory
 * on the way is opened relative to its parent, and files are named by the
 * descriptor of their directory, "/proc/self/fd/N/NAME". Other file systems use
 * plain URLs.
 */
#ifndef HY_FS_CONFINED_DIR_H
#define HY_FS_CONFINED_DIR_H

#include <stdbool.h>

struct hy_err;

struct hy_fs_confined_dir {
    const char *url; /* all fields are private */
    int top;         /* -1: not local */
    int directory;      /* the last one opened, or -1 */
    char *path;      /* of `directory`, relative to the top */
};

/* Borrows `url`. `is_ours`: the caller has just created it, so a link in its place is an attack. */
int hy_fs_confined_dir_open(struct hy_fs_confined_dir *d, const char *url, bool is_ours, struct hy_err *err);
void hy_fs_confined_dir_done(struct hy_fs_confined_dir *d);
#define hy_cleanup_confined_dir __attribute__((cleanup(hy_fs_confined_dir_done)))

/* A URL for the existing directory `path`, or for an entry of an existing directory; "" is the top. Valid until the
 * next call. -ENOTDIR when the path contains a link or a file. */
int hy_fs_confined_dir_path(struct hy_fs_confined_dir *d, const char *path, char **ret_url, struct hy_err *err);
int hy_fs_confined_dir_entry(struct hy_fs_confined_dir *d, const char *path, char **ret_url, struct hy_err *err);

/* Replaces the descriptor path in an error message by the path that the user knows. */
void hy_fs_confined_dir_explain(const struct hy_fs_confined_dir *d, struct hy_err *err);

#endif
