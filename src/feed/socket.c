/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"

#define TERMINATED_SUFFIX "/over"

int hy_feed_terminated_name(const char *hub, char *name)
{
    if (strlen(hub) + sizeof TERMINATED_SUFFIX > HY_FEED_NAME_MAX)
        return -ENAMETOOLONG;
    stpcpy(stpcpy(name, hub), TERMINATED_SUFFIX);
    return 0;
}

/* An abstract name follows a NUL and is not NUL-terminated. */
static int address_of(const char *name, struct sockaddr_un *a, socklen_t *ret_n)
{
    const size_t n = strlen(name);

    if (n == 0 || n >= sizeof a->sun_path || n >= HY_FEED_NAME_MAX)
        return -ENAMETOOLONG;
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(a->sun_path + 1, name, n);
    *ret_n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    return 0;
}

bool hy_feed_is_trusted_peer(int socket)
{
    struct ucred peer;
    socklen_t n = sizeof peer;

    if (HY_SYS(getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &n)) < 0)
        return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

/* A socket and its address. */
static int new_socket(const char *name, struct sockaddr_un *a, socklen_t *ret_n)
{
    const int rc = address_of(name, a, ret_n);
    const int fd = rc < 0 ? rc : HY_SYS(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    return rc < 0 ? rc : fd < 0 ? -errno : fd;
}

int hy_feed_bind(const char *name)
{
    struct sockaddr_un a;
    socklen_t n;
    hy_cleanup_close int fd = new_socket(name, &a, &n);

    if (fd < 0)
        return fd;
    return HY_SYS(bind(fd, (const struct sockaddr *)&a, n)) < 0 ? -errno : hy_take_fd(fd);
}

int hy_feed_listen(int fd)
{
    return HY_SYS(listen(fd, HY_FEED_BACKLOG)) < 0 ? -errno : 0;
}

int hy_feed_connect_abstract(const char *name)
{
    struct sockaddr_un a;
    socklen_t n;
    hy_cleanup_close int fd = new_socket(name, &a, &n);

    if (fd < 0)
        return fd;
    if (HY_SYS(connect(fd, (const struct sockaddr *)&a, n)) < 0)
        return -errno;
    return hy_feed_is_trusted_peer(fd) ? hy_take_fd(fd) : -EPERM;
}

int hy_feed_accept(int listener)
{
    hy_cleanup_close int fd = HY_SYS(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

    if (fd < 0)
        return -errno;
    return hy_feed_is_trusted_peer(fd) ? hy_take_fd(fd) : -EPERM;
}

int hy_feed_socketpair(int ends[2])
{
    return HY_SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) < 0 ? -errno : 0;
}

bool hy_feed_is_stream_socket(int fd)
{
    int domain = 0, type = 0;
    socklen_t n = sizeof domain;

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM;
}

/* ---- packets ----------------------------------------------------------------------- */

union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(2 * sizeof(int))];
};

int hy_feed_send_packet(int socket, const void *packet, size_t n, const int *fds)
{
    union control control = {0};
    struct iovec io = {.iov_base = (void *)(uintptr_t)packet, .iov_len = n};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};

    if (fds) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control.room;
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(2 * sizeof(int));
        memcpy(CMSG_DATA(&control.head), fds, 2 * sizeof(int));
    }
    return HY_SYS(sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 ? -errno : 0;
}

/* The control buffer has room for two; the kernel closes any others. */
static void take_fds(const struct msghdr *m, int fds[2])
{
    const struct cmsghdr *c = CMSG_FIRSTHDR(m);

    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
        return;
    if (c->cmsg_len == CMSG_LEN(2 * sizeof(int)))
        memcpy(fds, CMSG_DATA(c), 2 * sizeof(int));
    else if (c->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fds, CMSG_DATA(c), sizeof(int));
}

int hy_feed_recv_packet(int socket, void *packet, size_t n, int fds[2])
{
    union control control = {0};
    struct iovec io = {.iov_base = packet, .iov_len = n};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
    const ssize_t got = HY_SYS(recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));

    fds[0] = fds[1] = -1;
    if (got < 0)
        return errno == ECONNRESET ? 0 : -errno;
    take_fds(&m, fds);
    if (got == 0 && fds[0] < 0)
        return 0;
    if ((size_t)got == n && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && (fds[0] < 0) == (fds[1] < 0))
        return 1;
    hy_close_at(&fds[0]);
    hy_close_at(&fds[1]);
    fds[0] = fds[1] = -1;
    return -EPROTO;
}
