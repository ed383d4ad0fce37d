/* SPDX-License-Identifier: Apache-2.0 */
/*
 * private: directories and files that one user alone may use.
 *
 * What lies in them is believed: a command that `resume` runs, a URL that files
 * are sent to, a socket that a driver listens on. So a directory is used only
 * if nobody else could have put something there, and this is the one place
 * that decides it:
 *
 *     a symbolic link               refused
 *     of another user               refused; see enum hy_owner for root
 *     others can write to it        refused, until its user has looked and runs chmod
 *     others can read it            narrowed to its owner's bits, with a note
 *
 * The same holds for the files in it, which must also have one name only (a
 * hard link would be somebody else's file).
 *
 * A refusal is -EPERM with a sentence.
 */
#ifndef HY_BASE_PRIVATE_H
#define HY_BASE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>

struct hy_buf;
struct hy_err;

enum hy_owner {
    HY_OWNER_SELF,         /* the user of this process */
    HY_OWNER_ANY_FOR_ROOT, /* the same, but root may use a directory of anybody's */
};

/* Opens the directory `path` with O_PATH: to be used with openat and fstat only. Returns a close-on-exec
 * descriptor, or -Exxx with a sentence; -ENOENT when there is none. */
int hy_private_dir(const char *path, enum hy_owner owner, struct hy_err *err);
/* The same; makes it (0700) when it is missing, with the directories above it. */
int hy_private_make_dir(const char *path, enum hy_owner owner, struct hy_err *err);
/* The same for a directory in the checked one `above`; its last part is what counts. What root makes is given
 * to the owner of `above`. */
int hy_private_make_dir_at(int above, const char *path, struct hy_err *err);
/* Checks all that lies in the directory `dir`, which hy_private_dir has opened as `path`. */
int hy_private_scan(int dir, const char *path, struct hy_err *err);

/*
 * Opens the file `path` in the directory `dir` that it lies in (its last part is what counts, the rest is
 * for the sentence), and checks it. With O_CREAT in `flags` it is made, 0600. Returns a close-on-exec
 * descriptor, or -Exxx with a sentence; -ENOENT when there is none.
 */
int hy_private_open(int dir, const char *path, int flags, struct hy_err *err);
/* Like hy_file_write and hy_file_read, for a file of such a directory. */
int hy_private_write(int dir, const char *path, const void *bytes, size_t n, struct hy_err *err);
int hy_private_read(int dir, const char *path, struct hy_buf *b, struct hy_err *err);
/* Checks a file that is open already, and narrows it. */
int hy_private_check(int fd, const char *path, struct hy_err *err);

/* The open alone, without checks. Returns a descriptor, or -1 with errno. `ret_made`: the file is a new one. */
int hy_private_open_at(int dir, const char *name, int flags, bool *ret_made);
/* Gives a file that root has just made in somebody's directory to that user. 0 or -Exxx. */
int hy_private_give(int fd, const char *path);

/* Where notes go; the log (hy_warn) unless a program says otherwise. */
void hy_private_notes_to(void (*say)(const char *text));

#endif
