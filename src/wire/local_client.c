/* SPDX-License-Identifier: Apache-2.0 */
/* The client end of a local socket: blocking, without a loop. */
#include "wire/local.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "wire/frame.h"

#define CHUNK (64u * 1024)

int hy_local_address(const char *path, struct sockaddr_un *ret, struct hy_err *err)
{
    size_t n = strlen(path);

    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n == 0 || n >= sizeof ret->sun_path)
        return hy_err_set(err, -ENAMETOOLONG,
                          "the socket path '%s' has %zu bytes (the limit is %zu); "
                          "use a shorter directory, for example with XDG_RUNTIME_DIR",
                          path, n, sizeof ret->sun_path - 1);
    memcpy(ret->sun_path, path, n + 1);
    return 0;
}

/* Messages may be results or commands to stop: only processes of this user may receive or answer them. */
static int check_listener(int fd, const char *path, struct hy_err *err)
{
    struct ucred cred;
    socklen_t n = sizeof cred;

    if (HY_SYS(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n)) < 0)
        return hy_err_sys(err, -errno, "cannot find the owner of the socket '%s'", path);
    if (cred.uid == geteuid() || cred.uid == 0)
        return 0;
    return hy_err_set(err, -EPERM,
                      "another user (user ID %u) listens on '%s'; remove the socket, or set XDG_RUNTIME_DIR to another "
                      "directory",
                      (unsigned)cred.uid, path);
}

int hy_local_connect(const char *path, struct hy_err *err)
{
    return hy_local_connect_within(path, 0, err);
}

int hy_local_connect_within(const char *path, int timeout_ms, struct hy_err *err)
{
    const struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    hy_cleanup_close int fd = -1;
    struct sockaddr_un where;
    int rc = hy_local_address(path, &where, err);

    if (rc < 0)
        return rc;
    fd = HY_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return hy_err_sys(err, -errno, "cannot create a socket");
    if (timeout_ms && HY_SYS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit)) < 0)
        return hy_err_sys(err, -errno, "cannot limit the time of a connection");
    while (HY_SYS(connect(fd, (struct sockaddr *)&where, sizeof where)) < 0)
        if (errno != EINTR)
            return hy_err_sys(err, -errno, "cannot connect to '%s'", path);
    rc = check_listener(fd, path, err);
    return rc < 0 ? rc : hy_take_fd(fd);
}

/* Without SIGPIPE: returns -EPIPE if the other end has closed. */
static int send_all(int fd, const uint8_t *bytes, size_t n)
{
    while (n) {
        ssize_t k = HY_SYS(send(fd, bytes, n, MSG_NOSIGNAL));

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -errno;
        bytes += k;
        n -= (size_t)k;
    }
    return 0;
}

int hy_local_put(int fd, const uint8_t *bytes, size_t n)
{
    struct hy_frame f = {.type = HY_FRAME_MESSAGE, .bytes = bytes, .n = n};
    hy_cleanup_buf struct hy_buf frame;
    int rc;

    hy_buf_init(&frame, HY_FRAME_HEADER + HY_LOCAL_MAX);
    if (n > HY_LOCAL_MAX)
        return -EMSGSIZE;
    rc = hy_frame_append(&frame, &f);
    return rc < 0 ? rc : send_all(fd, hy_buf_bytes(&frame), frame.len);
}

/* Extracts a message from `rest`: 1, 0 when more is needed, or -Exxx. */
static int take_message(struct hy_buf *rest, struct hy_buf *message)
{
    const char *why;
    struct hy_frame f;
    int64_t used = hy_frame_parse(hy_buf_bytes(rest), rest->len, HY_LOCAL_MAX, &f, &why);
    int rc;

    if (used <= 0)
        return (int)used;
    if (f.type != HY_FRAME_MESSAGE)
        return -EPROTO;
    rc = f.n ? hy_buf_append(message, f.bytes, f.n) : 0;
    if (rc < 0)
        return rc;
    hy_buf_consume(rest, (size_t)used);
    return 1;
}

/* 1 when data was read, 0 at the end of the stream, or -Exxx. */
static int read_more(int fd, struct hy_buf *rest, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int ready = HY_SYS(poll(&p, 1, timeout_ms));
    uint8_t *at;
    ssize_t n;

    if (ready <= 0)
        return ready < 0 ? -errno : -EAGAIN;
    at = hy_buf_reserve(rest, CHUNK);
    if (!at)
        return -ENOMEM;
    n = HY_SYS(recv(fd, at, CHUNK, 0));
    if (n < 0)
        return errno == ECONNRESET ? 0 : -errno;
    hy_buf_added(rest, (size_t)n);
    return n > 0;
}

int hy_local_get(int fd, struct hy_buf *rest, struct hy_buf *message, int timeout_ms)
{
    int64_t until = hy_clock_ms() + timeout_ms;
    int rc;

    hy_buf_clear(message);
    while ((rc = take_message(rest, message)) == 0) {
        int64_t left = timeout_ms < 0 ? -1 : until - hy_clock_ms();

        rc = read_more(fd, rest, timeout_ms < 0 ? -1 : left > 0 ? (int)left : 0);
        if (rc == 0)
            return rest->len ? -ECONNRESET : 0; /* in the middle of a message */
        if (rc < 0)
            return rc;
    }
    return rc;
}
