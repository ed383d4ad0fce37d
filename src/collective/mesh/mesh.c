/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/mesh/mesh_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"

#define EVENTS_MAX 64
#define CAUSE_MS 1000 /* for the driver to report which rank died first */
#define ALONE_MS 100  /* without a driver: so that no peer sees this rank close before the one that failed first */

/* ---- event loop ----------------------------------------------------------------------- */

int hy_mesh_watch(struct hy_mesh *m, int fd, struct hy_watch *watch)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = watch};
    int rc = HY_SYS(epoll_ctl(m->epoll_fd, EPOLL_CTL_ADD, fd, &event));

    if (rc < 0 && errno == EEXIST)
        rc = epoll_ctl(m->epoll_fd, EPOLL_CTL_MOD, fd, &event);
    return rc < 0 ? -errno : 0;
}

void hy_mesh_timer(struct hy_mesh *m, int64_t at)
{
    if (at < m->timer_at)
        m->timer_at = at;
}

int hy_mesh_poll(struct hy_mesh *m)
{
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(m->epoll_fd, events, EVENTS_MAX, 0);

    for (int i = 0; i < n; i++) {
        struct hy_watch *watch = events[i].data.ptr;

        watch->ready(m, watch, events[i].events);
    }
    if (m->timer_at != HY_NO_TIMER && hy_clock_ms() >= m->timer_at)
        hy_mesh_on_timer(m);
    if (m->may_accept) /* after the timer, which it may set again */
        hy_mesh_accept(m);
    hy_mesh_free_closed(m);
    return n > 0 ? n : 0;
}

static int until_timer(const struct hy_mesh *m)
{
    int64_t left;

    if (m->timer_at == HY_NO_TIMER)
        return -1;
    left = m->timer_at - hy_clock_ms();
    return left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

int hy_mesh_wait(struct hy_mesh *m)
{
    struct pollfd epoll = {.fd = m->epoll_fd, .events = POLLIN};
    int rc;

    if (!hy_list_empty(&m->active))
        m->waiter->awaited_peer = hy_container(m->active.next, struct hy_mesh_stream, active)->peer + 1;
    rc = hy_waiter_sleep(m->waiter, &epoll, 1, until_timer(m));
    m->waiter->awaited_peer = 0;
    if (rc < 0)
        return rc;
    hy_mesh_poll(m);
    return m->broken.code < 0 ? hy_mesh_fail(m) : 0;
}

/* ---- failed peers -------------------------------------------------------------------------- */

static void note_closed(struct hy_mesh *m, struct hy_mesh_link *link)
{
    if (!link->closed)
        link->closed = ++m->closings;
}

/* The first link that was closed: most likely the others were closed because of it. */
static unsigned first_closed(const struct hy_mesh *m, unsigned peer)
{
    unsigned first = peer;

    for (unsigned i = 0; i < m->size; i++)
        if (m->links[i].closed && (!m->links[first].closed || m->links[i].closed < m->links[first].closed))
            first = i;
    return first;
}

static bool is_timeout(int code)
{
    return code == -ETIMEDOUT || code == -EHOSTUNREACH || code == -ENETUNREACH || code == -EHOSTDOWN;
}

void hy_mesh_peer_failed(struct hy_mesh *m, unsigned peer, int code)
{
    const struct hy_mesh_link *link = &m->links[peer];

    if (m->broken.code < 0)
        return;
    if (is_timeout(code)) {
        hy_err_set(&m->broken, -ETIMEDOUT,
                   "rank %u at %s has not responded for %d s: its machine or the network is down", peer, link->where,
                   HY_MESH_TIMEOUT_MS / 1000);
        return;
    }
    if (code != -ECONNRESET && code != -EPIPE) {
        hy_err_sys(&m->broken, code, "the connection to rank %u at %s has failed", peer, link->where);
        return;
    }
    note_closed(m, &m->links[peer]);
    peer = first_closed(m, peer);
    hy_err_set(&m->broken, -ECONNRESET, "rank %u at %s has closed the connection; see its log", peer,
               m->links[peer].where);
}

/* Errors for which the driver may have a better cause; others are local. */
static bool is_about_others(int code)
{
    return code == -ECONNRESET || code == -ECONNREFUSED || is_timeout(code);
}

int hy_mesh_fail(struct hy_mesh *m)
{
    struct hy_waiter *w = m->waiter;
    int64_t wait_ms = !is_about_others(m->broken.code) ? 0 : w->check ? CAUSE_MS : ALONE_MS;
    int64_t end = hy_clock_ms() + wait_ms;

    for (int64_t left = wait_ms; w->failed.code >= 0 && left > 0; left = end - hy_clock_ms())
        if (hy_waiter_sleep(w, NULL, 0, (int)left) < 0)
            break;
    if (w->failed.code >= 0)
        w->failed = m->broken;
    return w->failed.code;
}

/* ---- streams ------------------------------------------------------------------------ */

static void on_stream(struct hy_mesh *m, struct hy_watch *watch, uint32_t events)
{
    struct hy_mesh_stream *s = hy_container(watch, struct hy_mesh_stream, watch);
    int code = 0;
    socklen_t size = sizeof code;

    s->can_read |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0;
    s->can_write |= (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0;
    if (!(events & (EPOLLRDHUP | EPOLLERR | EPOLLHUP)))
        return;
    note_closed(m, &m->links[s->peer]);
    /* A peer may close a link for its own reasons; a machine that does not respond fails all ranks. */
    if (s->channel == HY_CHANNEL_LIFE && getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &code, &size) == 0 &&
        is_timeout(-code))
        hy_mesh_peer_failed(m, s->peer, -code);
}

/* "10.0.0.2:1234", "[fd00::1]:1234", with the port on which the peer listens, as in the roster. */
static void describe(struct hy_mesh_link *link, int fd)
{
    struct sockaddr_in6 address = {0};
    socklen_t size = sizeof address;
    char text[INET6_ADDRSTRLEN] = "?";

    if (getpeername(fd, (struct sockaddr *)&address, &size) < 0)
        return;
    if (address.sin6_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)&address)->sin_addr, text, sizeof text);
    else if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr))
        inet_ntop(AF_INET, address.sin6_addr.s6_addr + 12, text, sizeof text);
    else
        inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
    snprintf(link->where, sizeof link->where, strchr(text, ':') ? "[%s]:%u" : "%s:%u", text, link->port);
}

int hy_mesh_stream_open(struct hy_mesh *m, struct hy_mesh_stream *s, int fd)
{
    struct hy_mesh_link *link = &m->links[s->peer];
    int none = 0, rc = 0;

    /* A stream that stays full because the process is stopped must not be mistaken for a dead machine. */
    if (s->channel != HY_CHANNEL_LIFE)
        rc = HY_SYS(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none));
    if (rc < 0)
        return -errno;
    s->watch.ready = on_stream;
    rc = hy_mesh_watch(m, fd, &s->watch);
    if (rc < 0)
        return rc;
    s->fd = fd;
    s->can_read = s->can_write = true;
    describe(link, fd);
    return 0;
}

/* ---- open and close ----------------------------------------------------------------- */

static int copy_addresses(struct hy_mesh_link *link, const struct hy_mesh_peer *peer)
{
    link->addresses = hy_calloc(peer->address_count ? peer->address_count : 1, sizeof *link->addresses);
    if (!link->addresses)
        return -ENOMEM;
    for (; link->address_count < peer->address_count; link->address_count++) {
        link->addresses[link->address_count] = hy_strdup(peer->addresses[link->address_count]);
        if (!link->addresses[link->address_count])
            return -ENOMEM;
    }
    return 0;
}

static int link_init(struct hy_mesh_link *link, unsigned rank, const struct hy_mesh_peer *peer)
{
    for (unsigned c = 0; c < HY_CHANNELS; c++) {
        link->streams[c] = (struct hy_mesh_stream){.peer = rank, .channel = c, .fd = -1};
        hy_list_init(&link->streams[c].active);
    }
    link->port = peer->port;
    snprintf(link->where, sizeof link->where, "%s:%u", peer->address_count ? peer->addresses[0] : "?", peer->port);
    return copy_addresses(link, peer);
}

static void link_done(struct hy_mesh_link *link)
{
    for (unsigned c = 0; c < HY_CHANNELS; c++)
        if (link->streams[c].fd >= 0)
            close(link->streams[c].fd);
    for (size_t i = 0; i < link->address_count; i++)
        free(link->addresses[i]);
    free(link->addresses);
}

static struct hy_mesh *mesh_new(unsigned rank, unsigned size, struct hy_waiter *waiter)
{
    struct hy_mesh *m = hy_calloc(1, sizeof *m);

    if (!m)
        return NULL;
    m->watch.ready = hy_mesh_on_listener;
    m->listen_fd = m->epoll_fd = -1;
    m->rank = rank;
    m->waiter = waiter;
    m->timer_at = HY_NO_TIMER;
    hy_list_init(&m->active);
    hy_list_init(&m->dials);
    hy_list_init(&m->incoming);
    hy_list_init(&m->outgoing);
    hy_list_init(&m->closed);
    m->links = hy_calloc(size, sizeof *m->links);
    if (!m->links) {
        free(m);
        return NULL;
    }
    return m;
}

static int make_links(struct hy_mesh *m, unsigned size, const struct hy_mesh_peer *peers)
{
    static const struct hy_mesh_peer nobody;
    int rc = 0;

    for (; m->size < size && rc == 0; m->size++)
        rc = link_init(&m->links[m->size], m->size, m->size == m->rank ? &nobody : &peers[m->size]);
    return rc;
}

static int watch_listener(struct hy_mesh *m, int listen_fd)
{
    m->epoll_fd = HY_SYS(epoll_create1(EPOLL_CLOEXEC));
    if (m->epoll_fd < 0 || HY_SYS(fcntl(listen_fd, F_SETFL, O_NONBLOCK)) < 0)
        return -errno;
    return hy_mesh_watch(m, listen_fd, &m->watch);
}

int hy_mesh_open(int listen_fd, unsigned rank, unsigned size, const struct hy_mesh_peer *peers,
                 const uint8_t key[HY_MESH_KEY_SIZE], struct hy_waiter *waiter, struct hy_mesh **ret,
                 struct hy_err *err)
{
    struct hy_mesh *m;
    int rc;

    if (size == 0 || size > HY_RANKS_MAX || rank >= size)
        return hy_err_set(err, -EINVAL, "invalid rank %u of %u: a group has 1 to %u ranks", rank, size, HY_RANKS_MAX);
    m = mesh_new(rank, size, waiter);
    rc = m ? make_links(m, size, peers) : -ENOMEM;
    if (rc == 0)
        rc = watch_listener(m, listen_fd);
    if (rc < 0) {
        hy_mesh_close(m);
        return hy_err_sys(err, rc, "cannot set up the connections to %u other ranks", size - 1);
    }
    memcpy(m->key, key, sizeof m->key);
    m->listen_fd = listen_fd;
    *ret = m;
    return 0;
}

void hy_mesh_close(struct hy_mesh *m)
{
    if (!m)
        return;
    hy_mesh_drop_all(m);
    for (unsigned i = 0; i < m->size; i++)
        link_done(&m->links[i]);
    if (m->listen_fd >= 0)
        close(m->listen_fd);
    if (m->epoll_fd >= 0)
        close(m->epoll_fd);
    explicit_bzero(m->key, sizeof m->key);
    free(m->links);
    free(m->scratch);
    free(m);
}

uint8_t *hy_mesh_scratch(struct hy_mesh *m, size_t n)
{
    if (n > m->scratch_size) {
        free(m->scratch);
        m->scratch = hy_malloc(n);
        m->scratch_size = m->scratch ? n : 0;
    }
    if (!m->scratch)
        hy_err_set(&m->waiter->failed, -ENOMEM, "out of memory for %zu bytes of other ranks", n);
    return m->scratch;
}
