/* SPDX-License-Identifier: Apache-2.0 */
/*
 * private: directories and files that only one user may access.
 *
 * Their contents are trusted: a command that `resume` runs, a URL that files are sent
 * to, a socket that a driver listens on. So a directory is used only if no other user
 * could have put something there, and this is the only place that decides it:
 *
 *     a symbolic link               rejected
 *     owned by another user         rejected; see enum hy_owner for root
 *     others can write to it        rejected, until its owner has run chmod
 *     others can read it            its mode is reduced to its owner's bits, with a note
 *
 * The same applies to the files in it, which must also have a link count of 1 (a hard
 * link may be another user's file).
 *
 * A rejection is -EPERM with a sentence.
 */
#ifndef HY_BASE_PRIVATE_H
#define HY_BASE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>

struct hy_buf;
struct hy_err;

enum hy_owner {
    HY_OWNER_SELF,         /* the user of this process */
    HY_OWNER_ANY_FOR_ROOT, /* the same, but root may use any user's directory */
};

/* Opens the directory `path` with O_PATH: to be used with openat and fstat only. Returns a close-on-exec
 * descriptor, or -Exxx with a sentence; -ENOENT when it does not exist. */
int hy_private_dir(const char *path, enum hy_owner owner, struct hy_err *err);
/* The same; makes it (0700) when it is missing, with its parents. */
int hy_private_make_dir(const char *path, enum hy_owner owner, struct hy_err *err);
/* The same for a directory in the checked directory `above`; only the last part of `path` is used. What root makes is
 * given to the owner of `above`. */
int hy_private_make_dir_at(int above, const char *path, struct hy_err *err);
/* Checks all entries of the directory `dir`, which hy_private_dir has opened as `path`. */
int hy_private_scan(int dir, const char *path, struct hy_err *err);

/*
 * Opens the file `path` in its directory `dir` (only the last part is used, the rest is for messages), and checks it.
 * With O_CREAT in `flags` it is made with mode 0600. Returns a close-on-exec descriptor, or -Exxx with a sentence;
 * -ENOENT when it does not exist.
 */
int hy_private_open(int dir, const char *path, int flags, struct hy_err *err);
/* Like hy_file_write and hy_file_read, for a file of such a directory. */
int hy_private_write(int dir, const char *path, const void *bytes, size_t n, struct hy_err *err);
int hy_private_read(int dir, const char *path, struct hy_buf *b, struct hy_err *err);
/* Checks an open file, and reduces its mode. */
int hy_private_check(int fd, const char *path, struct hy_err *err);

/* Only opens, without checks. Returns a descriptor, or -1 with errno. `ret_made`: the file is new. */
int hy_private_open_at(int dir, const char *name, int flags, bool *ret_made);
/* Gives a file that root has just made in another user's directory to that user. 0 or -Exxx. */
int hy_private_give(int fd, const char *path);

/* Sets the receiver of notes; the default is the log (hy_warn). */
void hy_private_notes_to(void (*send)(const char *text));

#endif
