/* SPDX-License-Identifier: Apache-2.0 */
/* Local files and directories. */
#ifndef HY_BASE_FILE_H
#define HY_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hy_buf;
struct hy_err;

/* Appends the file's bytes to `b`, up to its maximum. 0 or -Exxx. */
int hy_file_read(const char *path, struct hy_buf *b);
/* The same from an open file or pipe, up to its end. */
int hy_read_all(int fd, struct hy_buf *b);
/* Writes to a temporary file beside it, then renames: atomic. */
int hy_file_write(const char *path, const void *bytes, size_t n, mode_t mode);
/* Writes all n bytes, over EINTR and short writes. 0 or -Exxx. */
int hy_write_all(int fd, const void *bytes, size_t n);
/* mkdir -p. 0 or -Exxx; -ENOTDIR when a part of the path is not a directory. */
int hy_mkdirs(const char *path, mode_t mode);
/* rm -r. Does not follow symbolic links, even if one is swapped in meanwhile, nor enter mount points (-EXDEV). Depth is
 * unlimited. A missing path is fine. */
int hy_remove_tree(const char *path);
/* Removes the directory `fd`, which is `name` in the directory `above`. -ESTALE, and nothing is removed, when the name
 * refers to something else by now. */
int hy_remove_tree_at(int above, const char *name, int fd);
/*
 * Opens the directory `path` below the directory `dir` with O_PATH, and makes missing parts, writable by this user
 * only. Symbolic links are not followed from `dir` on, and no directory on the path may belong to another user; root
 * may use a `dir` of any user, with directories of that user. Returns a close-on-exec fd, or -Exxx with a sentence;
 * -EPERM: it belongs to another user.
 */
int hy_open_own_dir(const char *dir, const char *path, struct hy_err *err);
/*
 * Opens what exists as `path` below the open directory `dir`. For untrusted paths: they stay below `dir`, and symbolic
 * links are not followed (-ELOOP or -ENOTDIR). Returns a close-on-exec fd; -EINVAL for "", "/x", "a/../b" or "./a".
 */
int hy_open_below(int dir, const char *path, int flags);
/*
 * Creates the file `path` below the open directory `dir`, with its parent directories; an
 * existing file is removed first. For untrusted paths: they stay below `dir`, and
 * symbolic links are not followed. Returns a close-on-exec fd to write to; -EINVAL for
 * "", "/x", "a/../b" or "./a".
 */
int hy_create_below(int dir, const char *path, mode_t mode);
/* The same for an existing file, which is truncated or extended by a hole to `offset`. -ENOENT: it does not exist. */
int hy_extend_below(int dir, const char *path, off_t offset);
/*
 * The next data of a file between `from` and `to`, without holes of at least `least_hole` bytes. Returns 1 and its
 * start and end, or 0: no data follows. All is data if the file system does not report holes.
 */
int hy_next_data(int fd, uint64_t from, uint64_t to, uint64_t least_hole, uint64_t *ret_start, uint64_t *ret_end);
/* Joins with one '/'; NULL when out of memory. */
char *hy_path_join(const char *directory, const char *name);

/*
 * The directory for this user's sockets: $XDG_RUNTIME_DIR/hopyard, or
 * /tmp/hopyard-UID, made with mode 0700 and checked (base/private.h).
 */
char *hy_runtime_dir(struct hy_err *err);
/* Whether it is a socket of this user without a listener, as a killed process leaves it. */
bool hy_socket_is_dead(const char *path);
/* Removes such sockets in hy_runtime_dir whose names begin and end with these. 0 or -Exxx. */
int hy_runtime_sweep(const char *prefix, const char *suffix);

#endif
