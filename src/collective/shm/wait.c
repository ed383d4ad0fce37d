/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/shm/wait.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"

#define NAME_BYTES 16   /* random */
#define STACK_FDS 64      /* polled without an allocation */
#define RINGS_MAX 64    /* drained at a time: any process of this machine may ring, as fast as they are drained */

/* ---- bells -------------------------------------------------------------------------- */

/* An abstract name begins with a NUL, and its length is explicit. Returns the length. */
static socklen_t bell_address(const char *name, struct sockaddr_un *address)
{
    size_t length = strnlen(name, HY_BELL_MAX - 1);

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int random_name(char name[HY_BELL_MAX])
{
    unsigned char bytes[NAME_BYTES];
    char *end = name + snprintf(name, HY_BELL_MAX, "hopyard-bell-");

    if (HY_SYS(getrandom(bytes, sizeof bytes, 0)) != sizeof bytes)
        return errno ? -errno : -EIO;
    for (size_t i = 0; i < sizeof bytes; i++)
        end += sprintf(end, "%02x", bytes[i]);
    return 0;
}

int hy_bell_open(char name[HY_BELL_MAX], struct hy_err *err)
{
    hy_cleanup_close int fd = -1;
    struct sockaddr_un address;
    int rc = random_name(name);

    if (rc < 0)
        return hy_err_sys(err, rc, "cannot get random bytes for the wakeup socket of this rank");
    fd = HY_SYS(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0 || HY_SYS(bind(fd, (struct sockaddr *)&address, bell_address(name, &address))) < 0)
        return hy_err_sys(err, -errno, "cannot create the wakeup socket of this rank");
    return hy_take_fd(fd);
}

void hy_bell_ring(int from, const char *name)
{
    struct sockaddr_un address;
    socklen_t length = bell_address(name, &address);
    ssize_t sent;

    /* A full queue is ringing already, a missing bell needs no ring, and after any other error the rank checks again
     * in 100 ms. */
    do
        sent = sendto(from, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address, length);
    while (sent < 0 && errno == EINTR);
}

static void drain_bell(int bell)
{
    char byte;

    for (int i = 0; i < RINGS_MAX && (recv(bell, &byte, sizeof byte, MSG_DONTWAIT) >= 0 || errno == EINTR); i++)
        ;
}

/* ---- sleep -------------------------------------------------------------------------- */

static int check_group(struct hy_waiter *w)
{
    int rc;

    w->checked_ms = hy_clock_ms();
    if (!w->check)
        return 0;
    rc = w->check(w->arg, &w->failed);
    if (rc < 0 && w->failed.code >= 0) /* without a message */
        hy_err_sys(&w->failed, rc, "the group has failed");
    return rc < 0 ? w->failed.code : 0;
}

void hy_waiter_fds(const struct hy_waiter *w, struct pollfd fds[HY_WAITER_FDS])
{
    fds[HY_WAITER_BELL] = (struct pollfd){.fd = w->bell, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = w->watch_fd, .events = POLLIN};
}

int hy_waiter_polled(struct hy_waiter *w, const struct pollfd fds[HY_WAITER_FDS])
{
    if (w->failed.code < 0)
        return w->failed.code;
    if (fds[HY_WAITER_BELL].revents)
        drain_bell(w->bell);
    if (fds[1].revents || hy_clock_ms() - w->checked_ms >= HY_CHECK_MS)
        return check_group(w);
    return 0;
}

static int poll_all(struct hy_waiter *w, struct pollfd *fds, nfds_t count, int timeout_ms)
{
    if (HY_SYS(poll(fds, count, timeout_ms)) < 0 && errno != EINTR)
        return hy_err_sys(&w->failed, -errno, "cannot wait for the other ranks");
    return hy_waiter_polled(w, fds);
}

int hy_waiter_sleep(struct hy_waiter *w, struct pollfd *more, nfds_t more_count, int timeout_ms)
{
    struct pollfd few[STACK_FDS], *fds = few;
    hy_cleanup_free struct pollfd *many = NULL;
    int rc;

    if (w->failed.code < 0)
        return w->failed.code;
    if (more_count > STACK_FDS - HY_WAITER_FDS) {
        fds = many = hy_calloc(more_count + HY_WAITER_FDS, sizeof *many);
        if (!many)
            return hy_err_set(&w->failed, -ENOMEM, "out of memory while waiting for %zu connections",
                              (size_t)more_count);
    }
    hy_waiter_fds(w, fds);
    for (nfds_t i = 0; i < more_count; i++)
        fds[HY_WAITER_FDS + i] = (struct pollfd){.fd = more[i].fd, .events = more[i].events};
    rc = poll_all(w, fds, more_count + HY_WAITER_FDS,
                  timeout_ms < 0 || timeout_ms > HY_CHECK_MS ? HY_CHECK_MS : timeout_ms);
    for (nfds_t i = 0; i < more_count; i++)
        more[i].revents = fds[HY_WAITER_FDS + i].revents;
    return rc;
}
