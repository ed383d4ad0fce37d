/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that grows, read piece by piece. It is opened anew each time: nothing
 * but where we are is kept, and it need not exist yet. Looking again now and
 * then works on every file system.
 */
#ifndef HY_CLIENT_LOG_TAIL_H
#define HY_CLIENT_LOG_TAIL_H

#include <stdint.h>
#include <sys/types.h>

#define HY_TAIL_PIECE 65536

struct hy_tail {  /* a zeroed one is at the beginning */
    off_t offset; /* add what was dealt with */
    ino_t inode;  /* private: which file it was */
};

/* The next bytes from `offset` on: at most HY_TAIL_PIECE, fewer only at the end
 * of the file. 0 when there is no file. A file that was begun anew, another one
 * of that name or a shorter one, is read from its start. -Exxx. */
ssize_t hy_tail_read(struct hy_tail *t, const char *path, unsigned char *room);
/* Goes to the end of a file that was last written before that time (wall ms). 0 or -Exxx. */
int hy_tail_skip_before(struct hy_tail *t, const char *path, int64_t wall_ms);
/* Goes to the beginning of one of the last lines, at most `bytes` before the end. 0 or -Exxx. */
int hy_tail_near_end(struct hy_tail *t, const char *path, off_t bytes);

#endif
