/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/mesh/mesh_private.h"

#include <errno.h>

#include "base/fault.h"

/* The stream if it can be used now; NULL: not connected yet (*ret_code is 0) or failed. */
static struct hy_mesh_stream *pipe_stream(struct hy_mesh *m, unsigned peer, ssize_t *ret_code)
{
    struct hy_mesh_stream *s = hy_mesh_stream_of(m, peer, HY_CHANNEL_PIPE);

    *ret_code = m->waiter->failed.code;
    if (*ret_code < 0)
        return NULL;
    hy_mesh_connect(m, peer, HY_CHANNEL_PIPE);
    if (peer <= m->last_piped) /* once per pass over all ranks, not for each of them */
        hy_mesh_poll(m);
    m->last_piped = peer;
    if (m->broken.code < 0)
        *ret_code = hy_mesh_fail(m);
    return *ret_code == 0 && s->fd >= 0 ? s : NULL;
}

static ssize_t failure(struct hy_mesh *m, struct hy_mesh_stream *s, bool *ready, ssize_t n)
{
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        *ready = false;
        return 0;
    }
    hy_mesh_peer_failed(m, s->peer, n < 0 ? -errno : -ECONNRESET);
    return hy_mesh_fail(m);
}

ssize_t hy_mesh_pipe_write(struct hy_mesh *m, unsigned peer, const void *bytes, size_t n)
{
    ssize_t taken;
    struct hy_mesh_stream *s = pipe_stream(m, peer, &taken);

    if (!s || !s->can_write || n == 0)
        return taken;
    do
        taken = HY_SYS(send(s->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT));
    while (taken < 0 && errno == EINTR);
    return taken > 0 ? taken : failure(m, s, &s->can_write, taken);
}

ssize_t hy_mesh_pipe_read(struct hy_mesh *m, unsigned peer, void *bytes, size_t n)
{
    ssize_t taken;
    struct hy_mesh_stream *s = pipe_stream(m, peer, &taken);

    if (!s || !s->can_read || n == 0)
        return taken;
    do
        taken = HY_SYS(recv(s->fd, bytes, n, MSG_DONTWAIT));
    while (taken < 0 && errno == EINTR);
    return taken > 0 ? taken : failure(m, s, &s->can_read, taken);
}

size_t hy_mesh_pipe_fds(const struct hy_mesh *m, struct pollfd *fds, size_t room)
{
    if (room == 0)
        return 0;
    fds[0] = (struct pollfd){.fd = m->epoll_fd, .events = POLLIN}; /* covers all connections */
    return 1;
}
