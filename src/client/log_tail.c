/* SPDX-License-Identifier: Apache-2.0 */
#include "client/log_tail.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"

static ssize_t read_piece(int fd, off_t offset, unsigned char *room)
{
    size_t n = 0;

    while (n < HY_TAIL_PIECE) {
        ssize_t got = HY_SYS(pread(fd, room + n, HY_TAIL_PIECE - n, offset + (off_t)n));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

/* The file, or -Exxx. */
static int open_file(struct hy_tail *t, const char *path)
{
    int fd = HY_SYS(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat st;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) == 0) {
        if ((t->inode && st.st_ino != t->inode) || st.st_size < t->offset)
            t->offset = 0;
        t->inode = st.st_ino;
    }
    return fd;
}

ssize_t hy_tail_read(struct hy_tail *t, const char *path, unsigned char *room)
{
    hy_cleanup_close int fd = open_file(t, path);

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd; /* nothing was printed yet */
    return read_piece(fd, t->offset, room);
}

int hy_tail_skip_before(struct hy_tail *t, const char *path, int64_t wall_ms)
{
    hy_cleanup_close int fd = open_file(t, path);
    struct stat st;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000 < wall_ms)
        t->offset = st.st_size;
    return 0;
}

int hy_tail_near_end(struct hy_tail *t, const char *path, off_t bytes)
{
    unsigned char room[HY_TAIL_PIECE], *newline;
    hy_cleanup_close int fd = open_file(t, path);
    off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n;

    if (fd < 0 || end < 0)
        return fd == -ENOENT ? 0 : fd < 0 ? fd : -errno;
    if (end <= bytes)
        return 0;
    n = read_piece(fd, end - bytes, room);
    if (n < 0)
        return (int)n;
    newline = memchr(room, '\n', (size_t)n);
    t->offset = end - bytes + (newline ? newline + 1 - room : 0);
    return 0;
}
