/* SPDX-License-Identifier: Apache-2.0 */
/* The listening end of a local socket, on a loop. Each message is one frame. */
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/frame.h"
#include "wire/listener.h"
#include "wire/local.h"
#include "wire/faults.h"

#define BACKLOG 128
#define INPUT_SIZE (64u * 1024)

struct hy_local {
    uv_loop_t *loop;
    struct hy_listener listener;
    struct hy_local_events events;
    void *arg;
    char *path;
    dev_t dev; /* of the file, so that a socket that has replaced it is not removed */
    ino_t ino;
    struct hy_list conns;
    bool closed;
    size_t handles; /* open libuv handles */
    uint8_t *input;
};

struct hy_local_conn {
    uv_pipe_t pipe;
    struct hy_local *local;
    struct hy_buf in;
    size_t pending;
    bool open;    /* on_open was called */
    bool ending;  /* close when all is written */
    bool closing; /* uv_close was called */
    bool deferred; /* nothing is read or delivered before hy_local_resume */
    void *data;
    struct hy_list all;
};

struct write_request {
    uv_write_t request;
    size_t n;
    uint8_t bytes[];
};

/* ---- closing ---------------------------------------------------------------------------- */

static void local_free(struct hy_local *l)
{
    free(l->path);
    free(l->input);
    free(l);
}

static void handle_closed(struct hy_local *l)
{
    if (--l->handles == 0)
        local_free(l);
}

static void on_conn_closed(uv_handle_t *h)
{
    struct hy_local_conn *c = h->data;
    struct hy_local *l = c->local;

    if (c->open)
        l->events.on_close(l->arg, c);
    hy_list_remove(&c->all);
    hy_buf_done(&c->in);
    free(c);
    handle_closed(l);
}

static void conn_close(struct hy_local_conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    uv_close((uv_handle_t *)&c->pipe, on_conn_closed);
}

static void on_listener_closed(void *arg)
{
    handle_closed(arg);
}

void hy_local_close(struct hy_local *l)
{
    struct stat st;

    if (!l || l->closed)
        return;
    l->closed = true;
    if (stat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
        unlink(l->path);
    hy_list_each(it, &l->conns)
        conn_close(hy_container(it, struct hy_local_conn, all));
    hy_listener_close(&l->listener, on_listener_closed);
}

/* ---- messages ------------------------------------------------------------------------------ */

static void drop_conn(struct hy_local_conn *c, const char *why)
{
    if (!c->closing)
        hy_warn_limited("local connection dropped socket=%s why=\"%s\"", c->local->path, why);
    conn_close(c);
}

static void handle_frames(struct hy_local_conn *c)
{
    const char *why = "";
    struct hy_frame f;
    int64_t n;

    while (!c->closing && !c->ending && !c->deferred) {
        n = hy_frame_parse(hy_buf_bytes(&c->in), c->in.len, HY_LOCAL_MAX, &f, &why);
        if (n == 0)
            break;
        if (n > 0 && f.type != HY_FRAME_MESSAGE) {
            why = "unexpected frame type on a local socket";
            n = -EPROTO;
        }
        if (n < 0) {
            drop_conn(c, why);
            return;
        }
        c->local->events.on_message(c->local->arg, c, f.bytes, f.n);
        if (c->deferred)
            return;
        hy_buf_consume(&c->in, (size_t)n);
    }
    hy_buf_shrink(&c->in);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *b)
{
    struct hy_local_conn *c = h->data;

    (void)suggested;
    *b = uv_buf_init((char *)c->local->input, INPUT_SIZE);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct hy_local_conn *c = s->data;

    if (n < 0) {
        conn_close(c);
    } else if (n > 0 && !c->ending) {
        if (hy_buf_append(&c->in, b->base, (size_t)n) < 0)
            drop_conn(c, "out of memory");
        else
            handle_frames(c);
    }
}

void hy_local_defer(struct hy_local_conn *c)
{
    c->deferred = true;
    uv_read_stop((uv_stream_t *)&c->pipe);
}

void hy_local_resume(struct hy_local_conn *c)
{
    if (!c->deferred)
        return;
    c->deferred = false;
    handle_frames(c);
    if (!c->closing && !c->ending && !c->deferred &&
        HY_UV(uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read)) < 0)
        conn_close(c);
}

static void on_written(uv_write_t *request, int status)
{
    struct write_request *w = (struct write_request *)request;
    struct hy_local_conn *c = request->data;

    c->pending -= w->n;
    free(w);
    if (status < 0 || (c->ending && c->pending == 0))
        conn_close(c);
}

static int write_later(struct hy_local_conn *c, const struct hy_buf *frame, size_t from)
{
    size_t n = frame->len - from;
    struct write_request *w = hy_malloc(sizeof *w + n);
    uv_buf_t b;
    int rc;

    if (!w)
        return -ENOMEM;
    memcpy(w->bytes, hy_buf_bytes(frame) + from, n);
    w->n = n;
    w->request.data = c;
    b = uv_buf_init((char *)w->bytes, (unsigned)n);
    rc = HY_UV(uv_write(&w->request, (uv_stream_t *)&c->pipe, &b, 1, on_written));
    if (rc < 0) {
        free(w);
        return rc;
    }
    c->pending += n;
    return 0;
}

int hy_local_send(struct hy_local_conn *c, const uint8_t *bytes, size_t n)
{
    struct hy_frame f = {.type = HY_FRAME_MESSAGE, .bytes = bytes, .n = n};
    hy_cleanup_buf struct hy_buf frame;
    uv_buf_t b;
    int rc, done = 0;

    hy_buf_init(&frame, HY_FRAME_HEADER + HY_LOCAL_MAX);
    if (n > HY_LOCAL_MAX)
        return -EMSGSIZE;
    if (c->closing || c->ending)
        return -EPIPE;
    rc = hy_frame_append(&frame, &f);
    if (rc < 0)
        return rc;
    if (c->pending == 0) {
        b = uv_buf_init((char *)hy_buf_bytes(&frame), (unsigned)frame.len);
        done = HY_UV(uv_try_write((uv_stream_t *)&c->pipe, &b, 1));
        done = done == UV_EAGAIN ? 0 : done;
    }
    if (done >= 0 && (size_t)done < frame.len)
        rc = write_later(c, &frame, (size_t)done);
    else if (done < 0)
        rc = done;
    if (rc < 0) /* part of the frame may have been sent: nothing can follow it */
        conn_close(c);
    return rc;
}

size_t hy_local_pending(const struct hy_local_conn *c)
{
    return c->pending;
}

void hy_local_end(struct hy_local_conn *c)
{
    c->ending = true;
    if (c->pending == 0)
        conn_close(c);
}

void hy_local_set_data(struct hy_local_conn *c, void *data)
{
    c->data = data;
}

void *hy_local_data(const struct hy_local_conn *c)
{
    return c->data;
}

pid_t hy_local_pid(const struct hy_local_conn *c)
{
    struct ucred cred = {0};
    socklen_t n = sizeof cred;
    uv_os_fd_t fd;

    if (uv_fileno((const uv_handle_t *)&c->pipe, &fd) < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
        return 0;
    return cred.pid;
}

/* ---- accepting ----------------------------------------------------------------------------------- */

/* The modes of the directory and the file already exclude other users; this also holds if they were changed. */
static bool is_same_user(int fd)
{
    struct ucred cred;
    socklen_t size = sizeof cred;

    if (HY_SYS(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size)) < 0)
        return false;
    return cred.uid == geteuid() || cred.uid == 0;
}

static int conn_new(struct hy_local *l, struct hy_local_conn **ret)
{
    struct hy_local_conn *c = hy_calloc(1, sizeof *c);
    int rc = c ? HY_UV(uv_pipe_init(l->loop, &c->pipe, 0)) : -ENOMEM;

    if (rc < 0) {
        free(c);
        return rc;
    }
    c->pipe.data = c;
    c->local = l;
    hy_buf_init(&c->in, HY_FRAME_HEADER + HY_LOCAL_MAX + INPUT_SIZE);
    hy_list_push(&l->conns, &c->all);
    l->handles++;
    *ret = c;
    return 0;
}

static void conn_start(struct hy_local_conn *c)
{
    struct hy_local *l = c->local;

    c->open = true;
    l->events.on_open(l->arg, c);
    if (!c->closing && HY_UV(uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read)) < 0)
        conn_close(c);
}

static int on_accept(void *arg, int fd)
{
    struct hy_local *l = arg;
    struct hy_local_conn *c;
    int rc;

    if (!is_same_user(fd)) {
        hy_warn_limited("local connection refused socket=%s why=\"the client belongs to another user\"", l->path);
        close(fd);
        return 0;
    }
    rc = conn_new(l, &c);
    if (rc < 0)
        return rc;
    rc = HY_UV(uv_pipe_open(&c->pipe, fd));
    if (rc == 0)
        conn_start(c);
    else
        conn_close(c);
    return rc;
}

/* ---- listening ---------------------------------------------------------------------------------------- */

/* Connecting to the socket of a dead process fails with ECONNREFUSED. */
static int remove_stale(const char *path, const struct sockaddr_un *where, struct hy_err *err)
{
    hy_cleanup_close int fd = HY_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    struct stat st;

    if (fd < 0)
        return hy_err_sys(err, -errno, "cannot create a socket");
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : hy_err_sys(err, -errno, "cannot stat '%s'", path);
    if (!S_ISSOCK(st.st_mode))
        return hy_err_set(err, -EEXIST, "'%s' exists and is not a socket; remove it", path);
    if (connect(fd, (const struct sockaddr *)where, sizeof *where) == 0 || errno == EAGAIN)
        return hy_err_set(err, -EADDRINUSE, "another process listens on '%s'", path);
    if (HY_SYS(unlink(path)) < 0 && errno != ENOENT)
        return hy_err_sys(err, -errno, "cannot remove the old socket '%s'", path);
    return 0;
}

/* Sets the mode before anyone can connect, which is possible only after listen(). */
static int bind_socket(const struct sockaddr_un *where, struct stat *ret_st, struct hy_err *err)
{
    const char *path = where->sun_path;
    hy_cleanup_close int fd = HY_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    if (fd < 0)
        return hy_err_sys(err, -errno, "cannot create a socket");
    if (HY_SYS(bind(fd, (const struct sockaddr *)where, sizeof *where)) < 0)
        return hy_err_sys(err, -errno, "cannot create the socket '%s'", path);
    if (HY_SYS(chmod(path, 0600)) < 0 || HY_SYS(stat(path, ret_st)) < 0) {
        int rc = hy_err_sys(err, -errno, "cannot set the mode of the socket '%s'", path);

        unlink(path);
        return rc;
    }
    return hy_take_fd(fd);
}

static struct hy_local *local_new(uv_loop_t *loop, const char *path, const struct hy_local_events *events, void *arg)
{
    struct hy_local *l = hy_calloc(1, sizeof *l);

    if (!l)
        return NULL;
    l->loop = loop;
    l->events = *events;
    l->arg = arg;
    hy_list_init(&l->conns);
    l->path = hy_strdup(path);
    l->input = hy_malloc(INPUT_SIZE);
    if (!l->path || !l->input) {
        local_free(l);
        return NULL;
    }
    return l;
}

int hy_local_listen(uv_loop_t *loop, const char *path, const struct hy_local_events *events, void *arg,
                    struct hy_local **ret, struct hy_err *err)
{
    hy_cleanup_close int fd = -1;
    struct sockaddr_un where;
    struct hy_local *l;
    struct stat st;
    int rc = hy_local_address(path, &where, err);

    if (rc == 0)
        rc = remove_stale(path, &where, err);
    if (rc < 0)
        return rc;
    fd = bind_socket(&where, &st, err);
    if (fd < 0)
        return fd;
    l = local_new(loop, path, events, arg);
    if (!l) {
        unlink(path);
        return hy_err_oom(err);
    }
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    rc = HY_SYS(listen(fd, BACKLOG)) < 0 ? -errno : hy_listener_open(&l->listener, loop, fd, on_accept, l);
    if (rc < 0) {
        local_free(l);
        unlink(path);
        return hy_err_sys(err, rc, "cannot listen on '%s'", path);
    }
    hy_take_fd(fd);
    l->handles = 1;
    signal(SIGPIPE, SIG_IGN); /* libuv writes to sockets without MSG_NOSIGNAL */
    *ret = l;
    return 0;
}
