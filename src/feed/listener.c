/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/listener.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "feed/socket.h"

#define PAUSE_MS 100    /* before the next accept when descriptors or memory are exhausted */
#define EXHAUSTED_MAX_MS 10000  /* then the shortage becomes an error */

enum { BY_FILE, BY_NAME };

/* ---- the file --------------------------------------------------------------------------- */

/* The same for a hub and its feeders when both have the same runtime directory. 0 or -Exxx. */
static int path_of(const char *name, const char *suffix, char *path, size_t size)
{
    hy_cleanup_free char *directory = hy_runtime_dir(NULL);
    int n;

    if (!directory)
        return -ENOENT;
    n = snprintf(path, size, "%s/feed-%016llx.%s", directory, (unsigned long long)hy_hash(name, strlen(name)), suffix);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static int new_socket(void)
{
    int fd = HY_SYS(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    return fd < 0 ? -errno : fd;
}

/*
 * The file gets its final name when the socket listens, so that one that refuses connections is a dead hub's. The
 * caller holds the abstract name already: an existing file belongs to a hub that was killed, and is replaced.
 */
static int listen_at_file(const char *name, char path[sizeof((struct sockaddr_un *)0)->sun_path])
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    hy_cleanup_close int fd = new_socket();
    char final[sizeof a.sun_path];
    int rc = fd < 0 ? fd : path_of(name, "new", a.sun_path, sizeof a.sun_path);

    if (rc == 0)
        rc = path_of(name, "sock", final, sizeof final);
    if (rc < 0)
        return rc;
    (void)unlink(a.sun_path); /* of a hub that was killed before the rename */
    if (HY_SYS(bind(fd, (const struct sockaddr *)&a, sizeof a)) < 0)
        return -errno;
    rc = HY_SYS(chmod(a.sun_path, 0600)) < 0 ? -errno : hy_feed_listen(fd);
    if (rc == 0 && HY_SYS(rename(a.sun_path, final)) < 0)
        rc = -errno;
    if (rc < 0) {
        (void)unlink(a.sun_path);
        return rc;
    }
    memcpy(path, final, sizeof final);
    return hy_take_fd(fd);
}

static int connect_file(const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    hy_cleanup_close int fd = new_socket();
    int rc = fd < 0 ? fd : path_of(name, "sock", a.sun_path, sizeof a.sun_path);

    if (rc == 0 && HY_SYS(connect(fd, (const struct sockaddr *)&a, sizeof a)) < 0)
        rc = -errno;
    if (rc == 0 && !hy_feed_is_trusted_peer(fd))
        rc = -EPERM;
    return rc < 0 ? rc : hy_take_fd(fd);
}

int hy_feed_connect_hub(const char *name)
{
    int fd = connect_file(name);

    return fd < 0 ? hy_feed_connect_abstract(name) : fd;
}

/* ---- opening and closing ------------------------------------------------------------------ */

int hy_feed_listener_open(struct hy_feed_listener *l, const char *name)
{
    int fd = hy_feed_bind(name), rc;

    *l = (struct hy_feed_listener){.sockets = {{.fd = -1}, {.fd = fd}}};
    if (fd < 0)
        return fd;
    rc = hy_feed_listen(fd);
    if (rc < 0)
        return rc;
    l->sockets[BY_FILE].fd = listen_at_file(name, l->path);
    return 0;
}

void hy_feed_listener_close(struct hy_feed_listener *l)
{
    if (*l->path)
        (void)unlink(l->path);
    *l->path = '\0';
    for (int i = 0; i < HY_FEED_LISTENERS; i++) {
        hy_close_at(&l->sockets[i].fd);
        l->sockets[i].fd = -1;
    }
}

/* ---- accepting ------------------------------------------------------------------------------ */

void hy_feed_listener_begin_turn(struct hy_feed_listener *l)
{
    for (int i = 0; i < HY_FEED_LISTENERS; i++)
        l->sockets[i].turn = 0;
    if (l->paused_until_ms && hy_clock_ms() >= l->paused_until_ms)
        l->paused_until_ms = 0;
}

static bool is_exhaustion(int code)
{
    return code == -EMFILE || code == -ENFILE || code == -ENOBUFS || code == -ENOMEM;
}

/* Connected feeders are not affected. */
static int pause_accepting(struct hy_feed_listener *l, int code)
{
    int64_t now = hy_clock_ms();

    if (!l->exhausted_since_ms)
        l->exhausted_since_ms = now;
    if (now - l->exhausted_since_ms > EXHAUSTED_MAX_MS)
        return code;
    l->paused_until_ms = now + PAUSE_MS;
    return -EAGAIN;
}

static int accept_next(struct hy_feed_listener *l, struct hy_feed_listen_socket *s)
{
    int fd = hy_feed_accept(s->fd);

    s->is_empty = fd == -EAGAIN;
    if (is_exhaustion(fd))
        return pause_accepting(l, fd);
    if (s->is_empty || fd == -EINTR)
        return -EAGAIN;
    l->exhausted_since_ms = 0;
    s->turn++;
    s->accepted++;
    return fd == -ECONNABORTED ? -EPERM : fd;
}

int hy_feed_listener_next(struct hy_feed_listener *l)
{
    for (int i = 0; i < HY_FEED_LISTENERS && !l->paused_until_ms; i++) {
        struct hy_feed_listen_socket *s = &l->sockets[i];
        int rc = s->fd < 0 || s->turn >= HY_FEED_ACCEPTS_MAX ? -EAGAIN : accept_next(l, s);

        if (rc != -EAGAIN)
            return rc;
    }
    return -EAGAIN;
}

void hy_feed_listener_mark(struct hy_feed_listener *l)
{
    for (int i = 0; i < HY_FEED_LISTENERS; i++) {
        l->sockets[i].accepted = 0;
        l->sockets[i].is_empty = false;
    }
}

/* Connections are accepted in order, and the kernel holds at most HY_FEED_BACKLOG + 1 of them. */
bool hy_feed_listener_is_drained(const struct hy_feed_listener *l)
{
    for (int i = 0; i < HY_FEED_LISTENERS; i++) {
        const struct hy_feed_listen_socket *s = &l->sockets[i];

        if (s->fd >= 0 && !s->is_empty && s->accepted <= HY_FEED_BACKLOG)
            return false;
    }
    return true;
}

/* ---- waiting ---------------------------------------------------------------------------------- */

void hy_feed_listener_poll(const struct hy_feed_listener *l, struct pollfd fds[HY_FEED_LISTENERS])
{
    for (int i = 0; i < HY_FEED_LISTENERS; i++)
        fds[i] = (struct pollfd){.fd = l->paused_until_ms ? -1 : l->sockets[i].fd, .events = POLLIN};
}

int hy_feed_listener_timeout(const struct hy_feed_listener *l, int timeout_ms)
{
    return l->paused_until_ms && (timeout_ms < 0 || timeout_ms > PAUSE_MS) ? PAUSE_MS : timeout_ms;
}
