/* SPDX-License-Identifier: Apache-2.0 */
#include "hdfs/sock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "fs/fs.h"
#include "hdfs/security/security_layer.h"

#define SLICE_MS 500       /* of a system call; then interrupts and the timeout are checked */
#define SMALL_BUFFER (112 << 10) /* for SO_RCVBUF, which the kernel doubles; below 96 KiB it gets slower */
#define LARGE_BUFFER (1 << 20)

static int set_slice(int fd)
{
    const struct timeval slice = {.tv_usec = SLICE_MS * 1000};

    return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof(slice)) < 0 ||
                   setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof(slice)) < 0
               ? -errno
               : 0;
}

static int set_up(int fd)
{
    const int on = 1;

    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) < 0)
        return -errno;
    return set_slice(fd);
}

/* 0 to retry a call that was not completed, or -Exxx. */
static int check_timeout(int64_t since, int timeout_ms)
{
    if (hy_fs_is_interrupted())
        return -EINTR;
    return hy_clock_ms() - since > timeout_ms ? -ETIMEDOUT : 0;
}

/* SO_SNDTIMEO also ends connect, which then continues in the background until poll reports it. */
static int finish_connect(int fd, int connect_ms)
{
    const int64_t since = hy_clock_ms();
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    socklen_t n = sizeof(int);
    int rc, error;

    while ((rc = poll(&p, 1, SLICE_MS)) <= 0) {
        if (rc < 0 && errno != EINTR)
            return -errno;
        rc = check_timeout(since, connect_ms);
        if (rc < 0)
            return rc;
    }
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0 ? -errno : -error;
}

/* A local address is also the source address of a connection to it. Connecting a UDP socket sends nothing. */
static bool is_local_addrinfo(const struct addrinfo *a)
{
    hy_cleanup_close int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t n = sizeof(here);

    if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) < 0 || getsockname(fd, (struct sockaddr *)&here, &n) < 0)
        return false;
    memcpy(&there, a->ai_addr, a->ai_addrlen);
    ((struct sockaddr_in *)&here)->sin_port = 0; /* at the same offset for IPv6 */
    ((struct sockaddr_in *)&there)->sin_port = 0;
    return memcmp(&here, &there, sizeof(here)) == 0;
}

static int set_receive_buffer(int fd, int bytes)
{
    return setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

static int connect_to(const struct addrinfo *a, int connect_ms, bool *ret_is_small)
{
    hy_cleanup_close int fd = HY_SYS(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int rc;

    if (fd < 0)
        return -errno;
    rc = set_up(fd);
    if (rc < 0)
        return rc;
    /* Before connect: shrinking it later would drop data in flight. */
    *ret_is_small = is_local_addrinfo(a) && set_receive_buffer(fd, SMALL_BUFFER) == 0;
    if (HY_SYS(connect(fd, a->ai_addr, a->ai_addrlen)) < 0) {
        if (errno != EINPROGRESS && errno != EINTR)
            return -errno;
        rc = finish_connect(fd, connect_ms);
        if (rc < 0)
            return rc;
    }
    return hy_take_fd(fd);
}

bool hy_hdfs_sock_is_local_address(const char *address)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    bool is_local;

    if (getaddrinfo(address, "9", &hints, &found) != 0) /* any port */
        return false;
    is_local = is_local_addrinfo(found);
    freeaddrinfo(found);
    return is_local;
}

int hy_hdfs_sock_connect(struct hy_hdfs_sock *s, const char *host, unsigned port, int connect_ms, int timeout_ms,
                         struct hy_err *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char service[8];
    int rc;

    *s = (struct hy_hdfs_sock){.fd = -1, .timeout_ms = timeout_ms};
    snprintf(service, sizeof(service), "%u", port & 0xffff);
    rc = getaddrinfo(host, service, &hints, &found);
    if (rc != 0)
        return hy_err_set(err, -EHOSTUNREACH, "cannot resolve %s: %s", host, gai_strerror(rc));
    rc = -EHOSTUNREACH;
    for (const struct addrinfo *a = found; a && rc < 0 && rc != -EINTR; a = a->ai_next)
        rc = connect_to(a, connect_ms, &s->has_small_buffer);
    freeaddrinfo(found);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot connect to %s:%u", host, port);
    s->fd = rc;
    return 0;
}

void hy_hdfs_sock_widen(struct hy_hdfs_sock *s)
{
    if (s->has_small_buffer)
        s->has_small_buffer = set_receive_buffer(s->fd, LARGE_BUFFER) != 0; /* a failure only costs speed */
}

int hy_hdfs_sock_connect_local(struct hy_hdfs_sock *s, const char *path, int timeout_ms)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    hy_cleanup_close int fd = -1;
    int rc;

    *s = (struct hy_hdfs_sock){.fd = -1, .timeout_ms = timeout_ms};
    if (strlen(path) >= sizeof(a.sun_path))
        return -ENAMETOOLONG;
    memcpy(a.sun_path, path, strlen(path) + 1);
    fd = HY_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return -errno;
    rc = set_slice(fd);
    if (rc == 0 && HY_SYS(connect(fd, (const struct sockaddr *)&a, sizeof(a))) < 0)
        rc = -errno;
    if (rc == 0)
        s->fd = hy_take_fd(fd);
    return rc;
}

void hy_hdfs_sock_close(struct hy_hdfs_sock *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    hy_hdfs_security_layer_free(hy_take(s->layer));
}

/* After a call that returned -1: 0 to retry. */
static int check_retry(int64_t *since, int timeout_ms)
{
    if (errno != EAGAIN && errno != EINTR)
        return -errno;
    if (*since == 0)
        *since = hy_clock_ms() - (errno == EAGAIN ? SLICE_MS : 0);
    return check_timeout(*since, timeout_ms);
}

ssize_t hy_hdfs_sock_recvv_raw(struct hy_hdfs_sock *s, struct iovec *into, int count)
{
    int64_t since = 0;

    for (;;) {
        ssize_t got = HY_SYS(readv(s->fd, into, count));
        int rc;

        if (got > 0)
            return got;
        rc = got == 0 ? -ECONNRESET : check_retry(&since, s->timeout_ms);
        if (rc < 0)
            return rc;
    }
}

ssize_t hy_hdfs_sock_recvv(struct hy_hdfs_sock *s, struct iovec *into, int count)
{
    return s->layer ? hy_hdfs_security_layer_recvv(s->layer, s, into, count) : hy_hdfs_sock_recvv_raw(s, into, count);
}

ssize_t hy_hdfs_sock_recv(struct hy_hdfs_sock *s, void *into, size_t n)
{
    return hy_hdfs_sock_recvv(s, &(struct iovec){.iov_base = into, .iov_len = n}, 1);
}

int hy_hdfs_sock_recv_all(struct hy_hdfs_sock *s, void *into, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t rc = hy_hdfs_sock_recv(s, (char *)into + got, n - got);

        if (rc < 0)
            return (int)rc;
        got += (size_t)rc;
    }
    return 0;
}

/* The first `most` descriptors of the message; closes any others. */
static size_t take_fds(struct msghdr *m, int *fds, size_t most)
{
    size_t count = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        const size_t there = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS
                                 ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int)
                                 : 0;

        for (size_t i = 0; i < there; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            if (count < most)
                fds[count++] = fd;
            else
                close(fd);
        }
    }
    return count;
}

int hy_hdfs_sock_recv_fds(struct hy_hdfs_sock *s, int *fds, size_t count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
    int64_t since = 0;
    char byte;

    for (;;) {
        struct iovec part = {.iov_base = &byte, .iov_len = 1};
        struct msghdr m = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        const ssize_t got = HY_SYS(recvmsg(s->fd, &m, MSG_CMSG_CLOEXEC));
        size_t there = got > 0 ? take_fds(&m, fds, count) : 0;
        int rc;

        if (got > 0 && there == count)
            return 0;
        while (there > 0)
            close(fds[--there]);
        rc = got > 0 ? -EPROTO : got == 0 ? -ECONNRESET : check_retry(&since, s->timeout_ms);
        if (rc < 0)
            return rc;
    }
}

int hy_hdfs_sock_poll(const struct hy_hdfs_sock *s, int ms)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    int rc;

    if (s->layer && hy_hdfs_security_layer_has_pending(s->layer))
        return 1;
    rc = poll(&p, 1, ms);
    if (rc < 0)
        return errno == EINTR ? (hy_fs_is_interrupted() ? -EINTR : 0) : -errno;
    return rc;
}

static void advance(struct iovec **from, int *count, size_t done)
{
    while (*count && done >= (*from)->iov_len) {
        done -= (*from)->iov_len;
        (*from)++;
        (*count)--;
    }
    if (*count) {
        (*from)->iov_base = (char *)(*from)->iov_base + done;
        (*from)->iov_len -= done;
    }
}

int hy_hdfs_sock_send_raw(struct hy_hdfs_sock *s, struct iovec *from, int count)
{
    int64_t since = 0;

    while (count) {
        const struct msghdr m = {.msg_iov = from, .msg_iovlen = (size_t)count};
        ssize_t sent = HY_SYS(sendmsg(s->fd, &m, MSG_NOSIGNAL));

        if (sent < 0) {
            int rc = check_retry(&since, s->timeout_ms);

            if (rc < 0)
                return rc;
            continue;
        }
        since = 0;
        advance(&from, &count, (size_t)sent);
    }
    return 0;
}

int hy_hdfs_sock_send_all(struct hy_hdfs_sock *s, struct iovec *from, int count)
{
    return s->layer ? hy_hdfs_security_layer_send_all(s->layer, s, from, count) : hy_hdfs_sock_send_raw(s, from, count);
}

int hy_hdfs_sock_sleep(int ms)
{
    const int64_t end = hy_clock_ms() + ms;

    for (int64_t left; (left = end - hy_clock_ms()) > 0;) {
        if (hy_fs_is_interrupted())
            return -EINTR;
        if (left > SLICE_MS)
            left = SLICE_MS;
        nanosleep(&(struct timespec){.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000}, NULL);
    }
    return 0;
}
