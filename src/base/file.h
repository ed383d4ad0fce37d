/* SPDX-License-Identifier: Apache-2.0 */
/* Small files and folders of this machine, whole and at once. */
#ifndef HY_BASE_FILE_H
#define HY_BASE_FILE_H

#include <stddef.h>
#include <sys/types.h>

struct hy_buf;
struct hy_err;

/* Appends the file's bytes to `b` (its maximum holds). 0 or -Exxx. */
int hy_file_read(const char *path, struct hy_buf *b);
/* The same from an open file or pipe, up to its end. */
int hy_read_all(int fd, struct hy_buf *b);
/* Writes to a temporary file beside it, then renames: all or nothing. */
int hy_file_write(const char *path, const void *bytes, size_t n, mode_t mode);
/* Writes all n bytes, over EINTR and short writes. 0 or -Exxx. */
int hy_write_all(int fd, const void *bytes, size_t n);
/* mkdir -p. 0 or -Exxx; -ENOTDIR when something else is in the way. */
int hy_mkdirs(const char *path, mode_t mode);
/* rm -r, never through a symbolic link. A missing path is fine. */
int hy_remove_tree(const char *path);
/*
 * Makes the file `path` below the folder `dir`, and the folders on its way; what
 * was there under its name is removed first. For paths that another process has
 * named: they stay below `dir`, and no symbolic link there is followed. Returns
 * a close-on-exec fd to write to; -EINVAL for "", "/x", "a/../b" or "./a".
 */
int hy_create_below(const char *dir, const char *path, mode_t mode);
/* The same for a file that may be there and goes on at `offset`: what was behind that is cut off. */
int hy_extend_below(const char *dir, const char *path, mode_t mode, off_t offset);
/* Joins with one '/'; NULL when out of memory. */
char *hy_path_join(const char *folder, const char *name);

/*
 * The folder for this user's sockets: $XDG_RUNTIME_DIR/hopyard, or
 * /tmp/hopyard-UID, made 0700 and refused when it belongs to somebody else.
 */
char *hy_runtime_dir(struct hy_err *err);

#endif
