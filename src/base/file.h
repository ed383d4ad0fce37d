/* SPDX-License-Identifier: Apache-2.0 */
/* Small files and folders of this machine, whole and at once. */
#ifndef HY_BASE_FILE_H
#define HY_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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
/* rm -r, never through a symbolic link, also one that is swapped in meanwhile, nor into what is mounted below
 * (-EXDEV); as deep as it may be. A missing path is fine. */
int hy_remove_tree(const char *path);
/* Removes the directory `fd`, which is `name` in the directory `above`. -ESTALE, and nothing is removed, when
 * something else has that name by now. */
int hy_remove_tree_at(int above, const char *name, int fd);
/*
 * Opens the folder `path` below the folder `dir` with O_PATH, and makes what is missing, writable by this user alone. No
 * symbolic link is followed from `dir` on, and neither it nor a folder below it may belong to another user; root may use a
 * `dir` of any user, with folders of that user. Returns a close-on-exec fd, or -Exxx with a sentence; -EPERM: it belongs
 * to another user.
 */
int hy_own_folder(const char *dir, const char *path, struct hy_err *err);
/*
 * Makes the file `path` below the open folder `dir`, and the folders on its way; what
 * was there under its name is removed first. For paths that another process has
 * named: they stay below `dir`, and no symbolic link there is followed. Returns
 * a close-on-exec fd to write to; -EINVAL for "", "/x", "a/../b" or "./a".
 */
int hy_create_below(int dir, const char *path, mode_t mode);
/* The same for a file that is there and goes on at `offset`: what was behind that is cut off, and one that ends before it
 * gets a hole. -ENOENT: it is not there. */
int hy_extend_below(int dir, const char *path, off_t offset);
/*
 * The next data of a file between `from` and `to`, without the holes that have at least `least_hole` bytes. Returns 1 and
 * where it begins and ends, or 0: only a hole follows, or nothing. Where the file system does not tell, all is data.
 */
int hy_next_data(int fd, uint64_t from, uint64_t to, uint64_t least_hole, uint64_t *ret_start, uint64_t *ret_end);
/* Joins with one '/'; NULL when out of memory. */
char *hy_path_join(const char *folder, const char *name);

/*
 * The folder for this user's sockets: $XDG_RUNTIME_DIR/hopyard, or
 * /tmp/hopyard-UID, made 0700 and checked (base/private.h).
 */
char *hy_runtime_dir(struct hy_err *err);
/* Whether it is a socket of this user's on which nobody listens: what a killed process leaves. */
bool hy_socket_is_dead(const char *path);
/* Removes those in hy_runtime_dir whose names begin and end with these. 0 or -Exxx. */
int hy_runtime_sweep(const char *prefix, const char *suffix);

#endif
