/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machine-wide locks across users, without a file, a daemon or a privilege.
 *
 * A name in the abstract namespace of unix sockets is bound by one socket at a
 * time, of any user, and is free when the last process that has the socket is
 * gone, however it ended. A device has a hundred names and one more:
 *
 *     \0hopyard-gpu/UUID/0 … 99     a hundredth of it each: a share binds some
 *     \0hopyard-gpu/UUID/whole      all of it: binding a hundred would be a waste of files
 *
 * The names alone keep shares apart. A share and a whole device:
 *
 *     share   (1) bind its hundredths   (2) look whether `whole` is bound
 *     whole   (1) bind `whole`          (2) look whether any hundredth is bound
 *
 * and whichever sees the other releases its names. Both cannot succeed. Suppose the share saw no
 * `whole`: then its look came before the other's bind (the kernel does one thing
 * at a time to a name), and its own bind before that; so the other's look, which
 * follows its bind, finds the hundredths bound. Both may fail, when each sees the
 * other, and so may two shares that have each taken what the other one lacks:
 * they try again, at different times (gpu.c).
 *
 * Looking is connect() on a datagram socket: it succeeds when the name is
 * bound, sends nothing, and its owner does not notice.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "gpu/internal.h"
#include "base/fault.h"
#include "base/mem.h"

#define WHOLE (-1)

struct name {
    struct sockaddr_un address;
    socklen_t length;
};

static int make_name(struct name *name, const char *uuid, int part)
{
    char *path = name->address.sun_path;
    size_t room = sizeof name->address.sun_path - 1;
    int n;

    name->address.sun_family = AF_UNIX;
    path[0] = '\0';
    n = part == WHOLE ? snprintf(path + 1, room, "hopyard-gpu/%s/whole", uuid)
                      : snprintf(path + 1, room, "hopyard-gpu/%s/%d", uuid, part);
    if (n < 0 || (size_t)n >= room)
        return -ENAMETOOLONG;
    name->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return 0;
}

static int open_socket(void)
{
    int fd = HY_SYS(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));

    return fd < 0 ? -errno : fd;
}

/* 0, -EADDRINUSE, -Exxx. */
static int bind_part(int fd, const char *uuid, int part)
{
    struct name name;
    int rc = make_name(&name, uuid, part);

    if (rc == 0 && HY_SYS(bind(fd, (struct sockaddr *)&name.address, name.length)) < 0)
        rc = -errno;
    return rc;
}

/* 1: it is bound; 0: it is not; or -Exxx. */
static int is_bound(int fd, const char *uuid, int part)
{
    struct name name;
    int rc = make_name(&name, uuid, part);

    if (rc < 0)
        return rc;
    if (HY_SYS(connect(fd, (struct sockaddr *)&name.address, name.length)) == 0)
        return 1;
    if (errno == ECONNREFUSED)
        return 0;
    /* It is bound, and refuses the connection. */
    return errno == EPERM || errno == EACCES || errno == EPROTOTYPE ? 1 : -errno;
}

unsigned hy_gpu_quanta(uint32_t share)
{
    const uint32_t each = HY_GPU_SHARES / HY_GPU_QUANTA;

    return share >= HY_GPU_SHARES ? 0 : (share + each - 1) / each;
}

static void drop_down_to(struct hy_gpu_lock *lock, size_t count)
{
    while (lock->count > count)
        close(lock->fds[--lock->count]);
}

void hy_gpu_lock_drop(struct hy_gpu_lock *lock)
{
    drop_down_to(lock, 0);
}

/* Binds hundredths until the lock has `want` sockets. Agents that start at
 * different places are less likely to get half each of what only one could have. */
static int bind_some(struct hy_gpu_lock *lock, const char *uuid, size_t want)
{
    unsigned first = (unsigned)getpid() * 37u;
    hy_cleanup_close int fd = -1;

    for (unsigned i = 0; i < HY_GPU_QUANTA && lock->count < want; i++) {
        int rc;

        if (fd < 0)
            fd = open_socket();
        rc = fd < 0 ? fd : bind_part(fd, uuid, (int)((first + i) % HY_GPU_QUANTA));
        if (rc == 0)
            lock->fds[lock->count++] = hy_take_fd(fd);
        else if (rc != -EADDRINUSE)
            return rc;
    }
    return lock->count < want ? -EBUSY : 0;
}

static int bind_whole(struct hy_gpu_lock *lock, const char *uuid)
{
    hy_cleanup_close int fd = open_socket();
    int rc = fd < 0 ? fd : bind_part(fd, uuid, WHOLE);

    if (rc < 0)
        return rc == -EADDRINUSE ? -EBUSY : rc;
    lock->fds[lock->count++] = hy_take_fd(fd);
    return 0;
}

/* Whether any name from `first` to `last` is bound. It is checked by a socket
 * that is not bound itself: a bound one with a peer could not be checked by others. */
static int look(const char *uuid, int first, int last)
{
    hy_cleanup_close int fd = open_socket();
    int rc = fd < 0 ? fd : 0;

    for (int part = first; part <= last && rc == 0; part++)
        rc = is_bound(fd, uuid, part);
    return rc > 0 ? -EBUSY : rc;
}

int hy_gpu_lock_add(struct hy_gpu_lock *lock, const char *uuid, uint32_t share)
{
    unsigned want = hy_gpu_quanta(share);
    size_t before = lock->count;
    int rc;

    if (before + (want ? want : 1) > HY_COUNT(lock->fds))
        return -EINVAL;
    rc = want ? bind_some(lock, uuid, before + want) : bind_whole(lock, uuid);
    if (rc == 0)
        rc = want ? look(uuid, WHOLE, WHOLE) : look(uuid, 0, HY_GPU_QUANTA - 1);
    if (rc < 0)
        drop_down_to(lock, before);
    return rc;
}
