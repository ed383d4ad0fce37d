/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of hy_net share. Who owns whom:
 *
 *     hy_net ──► hy_peer (a session: a mux, and times)
 *        │          │
 *        │          └── link, while there is a connection
 *        └────► hy_link (a connection: socket, TLS, half a frame)
 *
 * A link that was accepted has no peer until its Hello has said which session
 * it carries on. Links die at once (hy_link_cut) and are freed by their
 * handle's closing; peers are marked finished and freed when no callback is
 * under way (hy_net_leave), so that an event may end anything.
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

#define HY_GREETING_MS 10000  /* from the connection to the Hello */
#define HY_GREETINGS_MAX 512  /* accepted connections that have not said Hello */
#define HY_ACK_MS 40          /* how long an acknowledgement waits for company */
#define HY_REDIAL_MIN_MS 100
#define HY_REDIAL_MAX_MS 2000
#define HY_NEVER INT64_MAX

struct hy_net {
    uv_loop_t *loop;
    struct hy_net_settings settings;
    int64_t redial_ms; /* HY_REDIAL_MIN_MS; tests are in a hurry */
    struct hy_net_events events;
    void *arg;
    struct hy_tls_context *tls;
    struct hy_listener listener;
    bool is_listening;
    uv_timer_t timer;
    uv_idle_t resume;       /* active while a link is in `resting` */
    int64_t wake_at; /* what the timer is set to */
    struct hy_list peers;
    struct hy_list links;
    struct hy_list dirty;     /* peers with something to send */
    struct hy_list queued;    /* peers that this turn has queued something for */
    struct hy_list sealed;    /* peers with something of the sealed turn */
    bool paused;              /* see hy_net_pause */
    struct hy_list resting;   /* links that have had their share of this turn */
    struct hy_list greetings; /* accepted links without a peer, the oldest first */
    size_t greeting_count;
    size_t greeted; /* links that had TLS and came up or were cut, since memory was last given back */
    int depth;      /* callbacks under way */
    bool graves;    /* there are finished peers */
    bool freed;     /* hy_net_free was called */
    size_t handles; /* that libuv still holds */
    /* Room that one link after the other uses. */
    uint8_t *input, *plain;
    struct hy_buf frames, cipher;
};

enum hy_link_state { HY_LINK_CONNECTING, HY_LINK_SHAKING, HY_LINK_GREETING, HY_LINK_UP, HY_LINK_DEAD };

struct hy_link {
    uv_tcp_t tcp;
    uv_connect_t connect;
    struct hy_net *net;
    struct hy_peer *peer; /* NULL while nobody knows whose it is */
    struct hy_tls *tls; /* NULL: accepted, and its ClientHello is not here yet */
    struct hy_buf in;   /* the beginning of a frame; before that, of the ClientHello */
    enum hy_link_state state;
    bool dialled;
    bool clean; /* the other end has said that it closes */
    bool ping_due, pong_due;
    size_t writing; /* bytes that the kernel has not taken */
    int64_t started, up_at;
    struct hy_list all, greeting, resting;
    char address[64];
};

struct hy_dial; /* dial.c: where to, and what is under way */

struct hy_peer {
    struct hy_net *net;
    struct hy_mux *mux;
    struct hy_link *link;
    struct hy_dial *dial; /* NULL: the other end dials */
    char *identity, *address;
    uint8_t session[HY_SESSION_SIZE];
    bool was_up;
    bool closed;   /* by the owner: no more events */
    bool suspect;  /* silent for too long, but look at the socket once more */
    bool finished; /* to be freed */
    bool violated; /* it has broken the protocol, and was given up for that */
    int64_t heard, sent, pinged;
    int64_t ack_at, linger_at;
    struct hy_list all, dirty, queued, sealed; /* in the lists of the net, or in none */
    void *data;
};

/* net.c */
int64_t hy_net_now(const struct hy_net *net);
void hy_net_enter(struct hy_net *net);
void hy_net_leave(struct hy_net *net);
void hy_net_wake(struct hy_net *net, int64_t at);
void hy_net_handle_closed(struct hy_net *net);

/* link.c */
/* The next turn: links that rested are read again. */
void hy_links_resume(struct hy_net *net);
int hy_link_new(struct hy_net *net, struct hy_peer *dialler, struct hy_link **ret);
/* Reads from it, or stops to. */
void hy_link_pause(struct hy_link *l, bool on);
/* The socket is connected: TLS begins. */
void hy_link_start(struct hy_link *l);
/* Sends what may be sent, as far as the kernel takes it. */
void hy_link_drain(struct hy_link *l);
/* Sends the frames in net->frames. */
void hy_link_send(struct hy_link *l);
/* Says that nothing follows; then the link should be cut. */
void hy_link_farewell(struct hy_link *l);
/* One line in the log, unless `why` is NULL. */
void hy_link_cut(struct hy_link *l, const char *why);

/* peer.c */
int hy_peer_new(struct hy_net *net, const char *identity, const char *address, struct hy_peer **ret);
void hy_peer_free(struct hy_peer *p);
void hy_peer_frame(struct hy_peer *p, const struct hy_frame *f);
void hy_peer_lost(struct hy_peer *p, struct hy_link *l, const char *why);
void hy_peer_drain(struct hy_peer *p);
void hy_peer_release(struct hy_peer *p);
/* Does what is due; returns when it wants to be looked at again. */
int64_t hy_peer_tick(struct hy_peer *p, int64_t now);
void hy_peer_finish(struct hy_peer *p);
void hy_peer_gone(struct hy_peer *p, const char *why);
/* It has dialled, proven its key, and broken the protocol: its session ends. */
void hy_peer_violated(struct hy_peer *p, const char *why);

/* hello.c: the other end's first frame; NULL: ours is due. */
void hy_link_greet(struct hy_link *l, const struct hy_frame *f);

/* dial.c */
void hy_dial_free(struct hy_dial *d);
struct hy_tls *hy_dial_tls(const struct hy_peer *p);
void hy_dial_again(struct hy_peer *p, bool was_good, const char *why);
int64_t hy_dial_tick(struct hy_peer *p, int64_t now);
const char *hy_dial_why(const struct hy_peer *p);

#endif
