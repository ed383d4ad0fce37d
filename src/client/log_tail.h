/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a growing file in chunks. Each read opens the file again: only the
 * position is kept, and the file does not have to exist yet. Polling works on
 * every file system, unlike inotify.
 */
#ifndef HY_CLIENT_LOG_TAIL_H
#define HY_CLIENT_LOG_TAIL_H

#include <stdint.h>
#include <sys/types.h>

#define HY_TAIL_PIECE 65536

struct hy_tail {  /* all zero: at the start of the file */
    off_t offset; /* the caller adds the bytes it has consumed */
    ino_t inode;  /* private: detects that the file was replaced */
};

/* Reads from `offset` on: at most HY_TAIL_PIECE bytes, fewer only at the end of the file. 0 when there is no file,
 * or -Exxx. A file that was replaced or truncated is read from its start. */
ssize_t hy_tail_read(struct hy_tail *t, const char *path, unsigned char *room);
/* Skips to the end of a file that was last written before that time (wall clock, ms). 0 or -Exxx. */
int hy_tail_skip_before(struct hy_tail *t, const char *path, int64_t wall_ms);
/* Moves to the start of a line at most `bytes` before the end. 0 or -Exxx. */
int hy_tail_near_end(struct hy_tail *t, const char *path, off_t bytes);

#endif
