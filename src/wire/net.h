/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and functions that the files of hy_net share. Ownership:
 *
 *     hy_net ──► hy_peer (a session: a mux and its timers)
 *        │          │
 *        │          └── link, while there is a connection
 *        └────► hy_link (a connection: socket, TLS, a partial frame)
 *
 * An accepted link has no peer until its Hello names the session. hy_link_cut
 * ends a link at once; libuv's close callback frees it. Peers are marked
 * finished and freed when no callback is running (hy_net_leave), so that an
 * event handler may close any peer.
 */
#ifndef HY_WIRE_NET_H
#define HY_WIRE_NET_H

#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"
#include "base/list.h"
#include "wire/frame.h"
#include "wire/listener.h"
#include "wire/mux.h"
#include "wire/tls.h"
#include "wire/wire.h"

#define HY_HELLO_TIMEOUT_MS 10000  /* from the connection to the Hello */
#define HY_PENDING_LINKS_MAX 512  /* accepted connections that have not sent a Hello */
#define HY_ACK_MS 40          /* how long an acknowledgement may be delayed */
#define HY_REDIAL_MIN_MS 100
#define HY_REDIAL_MAX_MS 2000
#define HY_NEVER INT64_MAX

struct hy_net {
    uv_loop_t *loop;
    struct hy_net_settings settings;
    int64_t redial_ms; /* the first backoff: HY_REDIAL_MIN_MS; tests use a shorter one */
    struct hy_net_events events;
    void *arg;
    struct hy_tls_context *tls;
    struct hy_listener listener;
    bool is_listening;
    uv_timer_t timer;
    uv_idle_t resume; /* active while a link is in `throttled` */
    int64_t wake_at;  /* when the timer expires */
    struct hy_list peers;
    struct hy_list links;
    struct hy_list dirty;     /* peers with something to send */
    struct hy_list queued;    /* peers for which this turn has queued something */
    struct hy_list sealed;    /* peers with data of the sealed turn */
    bool paused;              /* see hy_net_pause */
    struct hy_list throttled; /* links that have used up their share of this turn */
    struct hy_list pending_links; /* accepted links without a peer, oldest first */
    size_t pending_count;
    size_t handshake_count; /* TLS handshakes that succeeded or failed since the last malloc_trim */
    int depth;              /* nested callbacks */
    bool has_finished;      /* there are finished peers */
    bool freed;             /* hy_net_free was called */
    size_t handles;         /* open libuv handles */
    /* Buffers that all links share. */
    uint8_t *input, *plain;
    struct hy_buf frames, cipher;
};

enum hy_link_state { HY_LINK_CONNECTING, HY_LINK_TLS, HY_LINK_HELLO, HY_LINK_UP, HY_LINK_DEAD };

struct hy_link {
    uv_tcp_t tcp;
    uv_connect_t connect;
    struct hy_net *net;
    struct hy_peer *peer; /* NULL: not known yet */
    struct hy_tls *tls;   /* NULL: accepted, and the ClientHello is incomplete */
    struct hy_buf in;     /* a partial frame; before TLS, a partial ClientHello */
    enum hy_link_state state;
    bool dialed;
    bool clean; /* the peer has sent close_notify */
    bool ping_due, pong_due;
    size_t writing; /* bytes passed to libuv that the kernel has not accepted */
    int64_t started, up_at;
    struct hy_list all, pending, throttled;
    char address[64];
};

struct hy_dial; /* dial.c: the address, and the state of the attempts */

struct hy_peer {
    struct hy_net *net;
    struct hy_mux *mux;
    struct hy_link *link;
    struct hy_dial *dial; /* NULL: the peer dials */
    char *identity, *address;
    uint8_t session[HY_SESSION_SIZE];
    bool was_up;
    bool closed;   /* by the owner: no more events */
    bool suspect;  /* silent for too long; the socket is read once more before it is given up */
    bool finished; /* to be freed */
    bool violated; /* given up because of a protocol error */
    int64_t last_received, last_sent, last_pinged;
    int64_t ack_at, linger_at;
    struct hy_list all, dirty, queued, sealed; /* in the lists of the net, or unlinked */
    void *data;
};

/* net.c */
int64_t hy_net_now(const struct hy_net *net);
void hy_net_enter(struct hy_net *net);
void hy_net_leave(struct hy_net *net);
void hy_net_wake(struct hy_net *net, int64_t at);
void hy_net_handle_closed(struct hy_net *net);

/* link.c */
/* Starts to read throttled links again. */
void hy_links_resume(struct hy_net *net);
int hy_link_new(struct hy_net *net, struct hy_peer *dialer, struct hy_link **ret);
/* Stops or restarts reading. */
void hy_link_pause(struct hy_link *l, bool on);
/* The socket is connected: starts TLS. */
void hy_link_start(struct hy_link *l);
/* Sends released data until the socket is full. */
void hy_link_drain(struct hy_link *l);
/* Sends the frames in net->frames. */
void hy_link_send(struct hy_link *l);
/* Sends close_notify after all released data; the caller then cuts the link. */
void hy_link_shutdown(struct hy_link *l);
/* Logs one line, unless `why` is NULL. */
void hy_link_cut(struct hy_link *l, const char *why);

/* peer.c */
int hy_peer_new(struct hy_net *net, const char *identity, const char *address, struct hy_peer **ret);
void hy_peer_free(struct hy_peer *p);
void hy_peer_receive(struct hy_peer *p, const struct hy_frame *f);
void hy_peer_link_lost(struct hy_peer *p, struct hy_link *l, const char *why);
void hy_peer_drain(struct hy_peer *p);
void hy_peer_release(struct hy_peer *p);
/* Handles expired timers; returns the time of the next one. */
int64_t hy_peer_tick(struct hy_peer *p, int64_t now);
void hy_peer_finish(struct hy_peer *p);
void hy_peer_give_up(struct hy_peer *p, const char *why);
/* Ends the session of a peer that has dialed, proven its key and violated the protocol. */
void hy_peer_protocol_error(struct hy_peer *p, const char *why);

/* hello.c: handles the peer's first frame; NULL: sends ours. */
void hy_link_hello(struct hy_link *l, const struct hy_frame *f);

/* dial.c */
void hy_dial_free(struct hy_dial *d);
struct hy_tls *hy_dial_tls(const struct hy_peer *p);
void hy_dial_retry(struct hy_peer *p, bool was_stable, const char *why);
int64_t hy_dial_tick(struct hy_peer *p, int64_t now);
const char *hy_dial_why(const struct hy_peer *p);

#endif
