/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/listener.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "wire/faults.h"

static void resume(struct hy_listener *l);

static bool is_closing(const struct hy_listener *l)
{
    return l->fd < 0;
}

/* ---- pauses ---------------------------------------------------------------------------- */

/* False when the owner returned an error: it is offered again later. */
static bool offer(struct hy_listener *l, int fd)
{
    if (l->on_accept(l->arg, fd) == 0)
        return true;
    l->held = fd;
    return false;
}

static void on_pause_over(uv_timer_t *t)
{
    resume(t->data);
}

static void pause_accepting(struct hy_listener *l)
{
    if (is_closing(l))
        return;
    uv_poll_stop(&l->poll);
    uv_timer_start(&l->pause, on_pause_over, l->pause_ms ? l->pause_ms : HY_ACCEPT_PAUSE_MS, 0);
}

/* ---- accepting --------------------------------------------------------------------------- */

/* 1 when a connection was accepted, 0 when none is waiting, -EAGAIN to try the next one, or another -Exxx. */
static int accept_one(struct hy_listener *l)
{
    int fd = HY_SYS(accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

    if (fd >= 0)
        return offer(l, fd) ? 1 : -ENOMEM;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return 0;
    return errno == EINTR || errno == ECONNABORTED ? -EAGAIN : -errno;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct hy_listener *l = poll->data;
    int rc = status < 0 ? status : 1;

    (void)events;
    for (int i = 0; i < HY_ACCEPTS_MAX && !is_closing(l) && (rc > 0 || rc == -EAGAIN); i++)
        rc = accept_one(l);
    if (rc < 0 && rc != -EAGAIN)
        pause_accepting(l);
}

static void resume(struct hy_listener *l)
{
    int fd = l->held;

    l->held = -1;
    if (fd >= 0 && !offer(l, fd))
        pause_accepting(l);
    else if (!is_closing(l) && HY_UV(uv_poll_start(&l->poll, UV_READABLE, on_readable)) < 0)
        pause_accepting(l);
}

/* ---- opening and closing ------------------------------------------------------------------- */

int hy_listener_open(struct hy_listener *l, uv_loop_t *loop, int fd, hy_listener_accept_fn on_accept, void *arg)
{
    int rc = HY_UV(uv_poll_init(loop, &l->poll, fd));

    if (rc < 0)
        return rc;
    uv_timer_init(loop, &l->pause); /* cannot fail */
    l->poll.data = l->pause.data = l;
    l->fd = fd;
    l->held = -1;
    l->handles = 2;
    l->on_accept = on_accept;
    l->arg = arg;
    resume(l);
    return 0;
}

static void on_handle_closed(uv_handle_t *h)
{
    struct hy_listener *l = h->data;

    if (--l->handles == 0)
        l->on_closed(l->arg);
}

void hy_listener_close(struct hy_listener *l, void (*on_closed)(void *arg))
{
    if (is_closing(l))
        return;
    l->on_closed = on_closed;
    uv_close((uv_handle_t *)&l->poll, on_handle_closed);
    uv_close((uv_handle_t *)&l->pause, on_handle_closed);
    hy_close_at(&l->held);
    hy_close_at(&l->fd);
    l->fd = l->held = -1;
}
