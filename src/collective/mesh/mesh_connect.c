/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a connection to a stream.
 *
 * The dialer tries the addresses of a rank in order. It does not wait for one to fail: it starts the next attempt after
 * a quarter of a second, and the first that completes the handshake wins. The life channel connects first; the others
 * use its address. An established connection without a handshake is not a failure: the other rank may be busy or
 * stopped.
 *
 * The acceptor gives an unauthenticated connection five seconds, and keeps a limited number of them.
 */
#include "collective/mesh/mesh_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "collective/mesh/handshake.h"

#define INCOMING_MAX 128u      /* unauthenticated connections */
#define INCOMING_MS 5000       /* for the handshake */
#define INCOMING_CROWDED_MS 500 /* the same while others wait to be accepted */
#define NEXT_ADDRESS_MS 250    /* before the next address is tried as well */
#define QUIET_ADDRESS_MS 1000  /* the same when the previous one is connected, but has not answered the handshake */
#define RETRY_MS 100           /* before a retry after a disconnect during the handshake */
#define ROUNDS_MAX 20u
#define SHORT_PAUSE_MS 100     /* before it accepts again, when descriptors or memory are short */
#define SHORT_MS 10000         /* for which that may last */

struct connection {
    struct hy_watch watch;
    struct hy_list place;    /* in incoming, outgoing, or closed */
    struct hy_mesh_stream *stream; /* that is dialed; NULL: incoming */
    int fd;                  /* -1: closed */
    bool connected;
    size_t address;
    int64_t deadline, since;
    struct hy_handshake handshake;
};

struct hy_mesh_dial {
    struct hy_list place; /* in mesh->dials */
    struct hy_mesh_stream *stream;
    unsigned attempts;         /* in progress */
    unsigned rounds;           /* over all addresses */
    size_t next, end;          /* addresses not tried yet in this round */
    int64_t next_at;           /* when the next one is tried, regardless of the others */
    bool disconnected;              /* a peer disconnected in this round: retry */
    bool denied;               /* a peer has a different key */
    int code;                  /* of the last failure */
    size_t failed;             /* its address */
};

static void on_connection(struct hy_mesh *m, struct hy_watch *watch, uint32_t events);
static void try_next(struct hy_mesh *m, struct hy_mesh_dial *d);

/* ---- connections -------------------------------------------------------------------- */

int hy_mesh_socket_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 1},
        {IPPROTO_TCP, TCP_KEEPINTVL, 1},
        {IPPROTO_TCP, TCP_KEEPCNT, HY_MESH_TIMEOUT_MS / 1000 - 1},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, HY_MESH_TIMEOUT_MS},
    };

    for (size_t i = 0; i < HY_COUNT(options); i++)
        if (HY_SYS(setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int))) < 0)
            return -errno;
    return 0;
}

static int fresh_nonce(uint8_t nonce[HY_HANDSHAKE_NONCE])
{
    if (HY_SYS(getrandom(nonce, HY_HANDSHAKE_NONCE, 0)) != HY_HANDSHAKE_NONCE)
        return errno ? -errno : -EIO;
    return 0;
}

/* Takes `fd` in any case. NULL on failure, with the error in *ret_code. */
static struct connection *connection_new(struct hy_mesh *m, int fd, int *ret_code)
{
    struct connection *c = hy_calloc(1, sizeof *c);

    if (!c) {
        close(fd);
        *ret_code = -ENOMEM;
        return NULL;
    }
    c->watch.ready = on_connection;
    c->fd = fd;
    c->since = hy_clock_ms();
    hy_list_init(&c->place);
    *ret_code = hy_mesh_watch(m, fd, &c->watch);
    if (*ret_code == 0)
        return c;
    close(fd);
    free(c);
    return NULL;
}

/* Pending events may still refer to it, so it is freed at the end of the iteration. */
static void close_connection(struct hy_mesh *m, struct connection *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    if (!c->stream)
        m->incoming_count--;
    else if (c->stream->dial)
        c->stream->dial->attempts--;
    hy_list_remove(&c->place);
    hy_list_push(&m->closed, &c->place);
}

void hy_mesh_free_closed(struct hy_mesh *m)
{
    hy_list_each(it, &m->closed) {
        struct connection *c = hy_container(it, struct connection, place);

        hy_list_remove(&c->place);
        explicit_bzero(c, sizeof *c);
        free(c);
    }
}

/* ---- dials -------------------------------------------------------------------------- */

static void dial_free(struct hy_mesh *m, struct hy_mesh_dial *d)
{
    hy_list_each(it, &m->outgoing) {
        struct connection *c = hy_container(it, struct connection, place);

        if (c->stream == d->stream)
            close_connection(m, c);
    }
    d->stream->dial = NULL;
    hy_list_remove(&d->place);
    free(d);
}

static void begin_round(struct hy_mesh *m, struct hy_mesh_dial *d)
{
    const struct hy_mesh_link *link = &m->links[d->stream->peer];
    bool life = d->stream->channel == HY_CHANNEL_LIFE;

    d->rounds++;
    d->disconnected = d->denied = false;
    d->next = life ? 0 : link->address;
    d->end = life ? link->address_count : link->address + 1;
    try_next(m, d);
}

static void dial(struct hy_mesh *m, struct hy_mesh_stream *s)
{
    struct hy_mesh_dial *d = hy_calloc(1, sizeof *d);

    if (!d) {
        hy_err_set(&m->broken, -ENOMEM, "out of memory for a connection to rank %u", s->peer);
        return;
    }
    d->stream = s;
    d->next_at = HY_NO_TIMER;
    s->dial = d;
    hy_list_init(&d->place);
    hy_list_push(&m->dials, &d->place);
    begin_round(m, d);
}

static void give_up(struct hy_mesh *m, struct hy_mesh_dial *d)
{
    unsigned peer = d->stream->peer;
    const struct hy_mesh_link *link = &m->links[peer];
    const char *address = link->address_count ? link->addresses[d->failed] : "no address";

    if (m->broken.code < 0)
        ;
    else if (d->denied)
        hy_err_set(&m->broken, -EACCES,
                   "the process that answers for rank %u at %s port %u does not have this training's key: it belongs "
                   "to another training, or is not hopyard",
                   peer, address, link->port);
    else
        hy_err_sys(&m->broken, d->code ? d->code : -EDESTADDRREQ, "cannot connect to rank %u at %s port %u", peer,
                   address, link->port);
    dial_free(m, d);
}

/* Every address was tried, and no attempt is in progress. */
static void end_round(struct hy_mesh *m, struct hy_mesh_dial *d)
{
    if (!d->disconnected || d->denied || d->rounds >= ROUNDS_MAX) {
        give_up(m, d);
        return;
    }
    d->next_at = hy_clock_ms() + RETRY_MS;
    hy_mesh_timer(m, d->next_at);
}

static void note_failure(struct hy_mesh_dial *d, size_t address, bool connected, int code)
{
    d->denied |= code == -EACCES;
    d->disconnected |= connected && code != -EACCES;
    d->failed = address;
    d->code = code;
}

int hy_mesh_parse_address(const char *text, uint16_t port, struct sockaddr_storage *ret, socklen_t *ret_size)
{
    struct sockaddr_in *v4 = (void *)ret;
    struct sockaddr_in6 *v6 = (void *)ret;

    memset(ret, 0, sizeof *ret);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        *ret_size = sizeof *v4;
        return 0;
    }
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) != 1)
        return -EINVAL;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    *ret_size = sizeof *v6;
    return 0;
}

static int begin_connect(struct hy_mesh *m, struct hy_mesh_dial *d, size_t index)
{
    const struct hy_mesh_link *link = &m->links[d->stream->peer];
    struct sockaddr_storage address;
    uint8_t nonce[HY_HANDSHAKE_NONCE];
    struct connection *c;
    socklen_t size;
    int fd, rc = hy_mesh_parse_address(link->addresses[index], link->port, &address, &size);

    if (rc == 0)
        rc = fresh_nonce(nonce);
    if (rc < 0)
        return rc;
    fd = HY_SYS(socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return -errno;
    rc = hy_mesh_socket_options(fd);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    c = connection_new(m, fd, &rc);
    if (!c)
        return rc;
    c->stream = d->stream;
    c->address = index;
    c->deadline = c->since + HY_MESH_TIMEOUT_MS;
    hy_handshake_dial(&c->handshake, m->key, m->rank, m->size, d->stream->peer, d->stream->channel, nonce);
    d->attempts++;
    hy_list_push(&m->outgoing, &c->place);
    if (HY_SYS(connect(fd, (struct sockaddr *)&address, size)) < 0 && errno != EINPROGRESS) {
        rc = -errno;
        close_connection(m, c);
        return rc;
    }
    hy_mesh_timer(m, c->deadline);
    return 0;
}

/* Tries addresses until an attempt is in progress. */
static void try_next(struct hy_mesh *m, struct hy_mesh_dial *d)
{
    while (d->next < d->end) {
        size_t index = d->next++;
        int rc = begin_connect(m, d, index);

        if (rc == 0) {
            d->next_at = d->next < d->end ? hy_clock_ms() + NEXT_ADDRESS_MS : HY_NO_TIMER;
            hy_mesh_timer(m, d->next_at);
            return;
        }
        note_failure(d, index, false, rc);
    }
    d->next_at = HY_NO_TIMER;
    if (d->attempts == 0)
        end_round(m, d);
}

static void attempt_failed(struct hy_mesh *m, struct connection *c, int code)
{
    struct hy_mesh_dial *d = c->stream->dial;

    note_failure(d, c->address, c->connected, code);
    close_connection(m, c);
    try_next(m, d);
}

void hy_mesh_connect(struct hy_mesh *m, unsigned peer, unsigned channel)
{
    struct hy_mesh_stream *s = hy_mesh_stream_of(m, peer, channel), *life = hy_mesh_stream_of(m, peer, HY_CHANNEL_LIFE);

    if (s->requested)
        return;
    s->requested = true;
    if (m->rank < peer)
        return;
    if (channel != HY_CHANNEL_LIFE)
        hy_mesh_connect(m, peer, HY_CHANNEL_LIFE);
    if (channel == HY_CHANNEL_LIFE || life->fd >= 0)
        dial(m, s);
}

static void dial_other_channels(struct hy_mesh *m, unsigned peer)
{
    for (unsigned c = HY_CHANNEL_LIFE + 1; c < HY_CHANNELS; c++) {
        struct hy_mesh_stream *s = hy_mesh_stream_of(m, peer, c);

        if (s->requested && s->fd < 0 && !s->dial)
            dial(m, s);
    }
}

/* ---- the handshake ------------------------------------------------------------------ */

static void failed(struct hy_mesh *m, struct connection *c, int code)
{
    if (c->stream)
        attempt_failed(m, c, code);
    else
        close_connection(m, c);
}

static void dialed_stream(struct hy_mesh *m, struct connection *c)
{
    struct hy_mesh_stream *s = c->stream;
    int rc = hy_mesh_stream_open(m, s, c->fd);

    if (rc < 0) {
        attempt_failed(m, c, rc);
        return;
    }
    c->fd = -1;
    if (s->channel == HY_CHANNEL_LIFE)
        m->links[s->peer].address = c->address;
    dial_free(m, s->dial); /* frees `c` and the other attempts as well */
    if (s->channel == HY_CHANNEL_LIFE)
        dial_other_channels(m, s->peer);
}

static void accepted_stream(struct hy_mesh *m, struct connection *c)
{
    struct hy_mesh_stream *s = hy_mesh_stream_of(m, c->handshake.peer, c->handshake.channel);

    /* An existing stream is not replaced: a rank dials each of them once. */
    if (s->fd < 0 && hy_mesh_socket_options(c->fd) == 0 && hy_mesh_stream_open(m, s, c->fd) == 0)
        c->fd = -1;
    close_connection(m, c);
}

/* A new socket has room for these few bytes; one that has not is unusable. */
static int send_handshake(struct connection *c)
{
    size_t n = c->handshake.out_size;
    ssize_t sent = n ? send(c->fd, c->handshake.out, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

    c->handshake.out_size = 0;
    return sent == (ssize_t)n ? 0 : sent < 0 ? -errno : -EPIPE;
}

/* 1: authenticated; 0: not yet; -Exxx. */
static int read_handshake(struct connection *c)
{
    uint8_t bytes[HY_CHALLENGE_SIZE];
    int rc = 0;

    while (rc == 0) {
        ssize_t n = recv(c->fd, bytes, hy_handshake_needed(&c->handshake), MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (n <= 0)
            return n < 0 ? -errno : -ECONNRESET;
        rc = hy_handshake_take(&c->handshake, bytes, (size_t)n);
        if (rc >= 0 && send_handshake(c) < 0)
            return -EPIPE; /* the peer has disconnected meanwhile */
    }
    return rc;
}

/* If no process listens on an ephemeral port, TCP may connect a socket to itself (simultaneous open). */
static bool is_self_connection(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t size = sizeof here;

    if (getsockname(fd, (struct sockaddr *)&here, &size) < 0)
        return false;
    size = sizeof there;
    return getpeername(fd, (struct sockaddr *)&there, &size) == 0 && memcmp(&here, &there, sizeof here) == 0;
}

static int on_connected(struct hy_mesh *m, struct connection *c)
{
    struct hy_mesh_dial *d = c->stream->dial;
    socklen_t size = sizeof(int);
    int code = 0;

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0)
        return -errno;
    if (code)
        return -code;
    if (is_self_connection(c->fd))
        return -ECONNREFUSED;
    c->connected = true;
    if (d->next < d->end) {
        d->next_at = hy_clock_ms() + QUIET_ADDRESS_MS;
        hy_mesh_timer(m, d->next_at);
    }
    return send_handshake(c);
}

static void on_connection(struct hy_mesh *m, struct hy_watch *watch, uint32_t events)
{
    struct connection *c = hy_container(watch, struct connection, watch);
    int rc = 0;

    if (c->fd < 0)
        return;
    if (c->stream && !c->connected) {
        if (!(events & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
            return;
        rc = on_connected(m, c);
    }
    if (rc == 0)
        rc = read_handshake(c);
    if (rc < 0)
        failed(m, c, rc);
    else if (rc > 0 && c->stream)
        dialed_stream(m, c);
    else if (rc > 0)
        accepted_stream(m, c);
}

/* ---- accepting ----------------------------------------------------------------------- */

static struct connection *oldest_incoming(const struct hy_mesh *m)
{
    return hy_container(m->incoming.next, struct connection, place);
}

/* Whether there is room for one more; drops the oldest if its time is over. */
static bool make_room(struct hy_mesh *m)
{
    struct connection *oldest;

    if (m->incoming_count < INCOMING_MAX)
        return true;
    oldest = oldest_incoming(m);
    if (hy_clock_ms() < oldest->since + INCOMING_CROWDED_MS) {
        hy_mesh_timer(m, oldest->since + INCOMING_CROWDED_MS);
        return false;
    }
    close_connection(m, oldest);
    return true;
}

static void start_handshake(struct hy_mesh *m, int fd)
{
    uint8_t nonce[HY_HANDSHAKE_NONCE];
    struct connection *c;
    int rc;

    c = connection_new(m, fd, &rc);
    if (!c)
        return; /* a rank will dial again */
    m->incoming_count++;
    hy_list_push(&m->incoming, &c->place);
    if (fresh_nonce(nonce) < 0) {
        close_connection(m, c);
        return;
    }
    hy_handshake_accept(&c->handshake, m->key, m->rank, m->size, HY_CHANNELS, nonce);
    c->deadline = c->since + INCOMING_MS;
    hy_mesh_timer(m, c->deadline);
    on_connection(m, &c->watch, EPOLLIN);
}

static bool is_shortage(int code)
{
    return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
}

/* Existing streams continue meanwhile, and the oldest unauthenticated connection is dropped. */
static void pause_accepting(struct hy_mesh *m, int code)
{
    int64_t now = hy_clock_ms();

    if (!m->short_since)
        m->short_since = now;
    if (now - m->short_since > SHORT_MS && m->broken.code >= 0)
        hy_err_sys(&m->broken, code, "cannot accept another rank's connection; check `ulimit -n`");
    if (m->incoming_count)
        close_connection(m, oldest_incoming(m));
    m->accept_at = now + SHORT_PAUSE_MS;
}

/* A few at a time: a process that connects in a loop must not keep this rank from its work. */
static void accept_some(struct hy_mesh *m)
{
    for (unsigned i = 0; i < HY_MESH_ACCEPTS_MAX && m->may_accept && !m->accept_at && make_room(m); i++) {
        int fd = HY_SYS(accept4(m->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));

        if (fd >= 0) {
            m->short_since = 0;
            start_handshake(m, fd);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            m->may_accept = false;
        } else if (is_shortage(errno)) {
            pause_accepting(m, -errno);
        } /* else: the connection was aborted; the next */
    }
}

void hy_mesh_accept(struct hy_mesh *m)
{
    if (m->accept_at && hy_clock_ms() >= m->accept_at)
        m->accept_at = 0;
    if (!m->accept_at)
        accept_some(m);
    if (m->accept_at)
        hy_mesh_timer(m, m->accept_at);
    else if (m->may_accept && m->incoming_count < INCOMING_MAX) /* without room, make_room has set the timer */
        hy_mesh_timer(m, hy_clock_ms());
}

void hy_mesh_on_listener(struct hy_mesh *m, struct hy_watch *watch, uint32_t events)
{
    (void)watch;
    (void)events;
    m->may_accept = true; /* hy_mesh_poll accepts, once per iteration */
}

/* ---- timeouts --------------------------------------------------------------------------- */

static void expire(struct hy_mesh *m, struct hy_list *list, int64_t now)
{
    hy_list_each(it, list) {
        struct connection *c = hy_container(it, struct connection, place);

        if (c->stream && c->connected) /* connected: keepalive detects a dead machine */
            continue;
        if (c->deadline > now) {
            hy_mesh_timer(m, c->deadline);
            continue;
        }
        failed(m, c, -ETIMEDOUT);
        it_next = list->next; /* the failure may have changed the list */
    }
}

void hy_mesh_on_timer(struct hy_mesh *m)
{
    int64_t now = hy_clock_ms();

    m->timer_at = HY_NO_TIMER;
    expire(m, &m->incoming, now);
    expire(m, &m->outgoing, now);
    hy_list_each(it, &m->dials) {
        struct hy_mesh_dial *d = hy_container(it, struct hy_mesh_dial, place);

        if (d->next_at > now)
            hy_mesh_timer(m, d->next_at);
        else if (d->next < d->end)
            try_next(m, d);
        else
            begin_round(m, d);
    }
}

void hy_mesh_drop_all(struct hy_mesh *m)
{
    hy_list_each(it, &m->dials)
        dial_free(m, hy_container(it, struct hy_mesh_dial, place));
    hy_list_each(it, &m->incoming)
        close_connection(m, hy_container(it, struct connection, place));
    hy_mesh_free_closed(m);
}
