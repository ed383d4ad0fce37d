/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: what processes say to each other, and how nothing of it is lost.
 *
 * Four layers, each usable and tested without the ones below it:
 *
 *   messages   proto/hopyard.proto, packed by protobuf-c
 *   mux        byte streams that survive a broken connection: every stream has
 *              offsets, is acknowledged, and sends no more than its credit;
 *              stream 0 carries the control messages and goes first
 *   frame      length, version, type, stream; a pure parser
 *   tls        TLS 1.3 with a pre-shared key that both ends prove
 *
 * `hy_net` puts them on a libuv loop: an agent dials, a driver listens. A peer
 * is the other end of a session; connections under it come and go.
 *
 * Nothing is sent before hy_net_flush, which the owner of the loop calls at the
 * end of each turn. An owner that commits a turn while the loop goes on seals
 * what the turn has queued and releases it after the commit. (Persist, then act.)
 *
 * hy_net_new and hy_local_listen set SIGPIPE to be ignored, as libuv asks for.
 * Ignored signals outlive an exec: whoever starts programs resets it.
 */
#ifndef HY_WIRE_H
#define HY_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "hopyard.pb-c.h" /* generated from proto/hopyard.proto */
#include "wire/agent_client.h"
#include "wire/limits.h"
#include "wire/local.h"
#include "wire/node.h"
#include "wire/proto_memory.h"
#include "wire/roles.h"

struct uv_loop_s; /* libuv's uv_loop_t. Not included: training processes use the rest of this header without libuv. */

#define HY_PROTOCOL 1
#define HY_KEY_SIZE 32
#define HY_SESSION_SIZE 16
#define HY_STREAM_CONTROL 0u
#define HY_STREAM_WINDOW (256u * 1024) /* bytes of a data stream that may be under way */

/* ---- keys -------------------------------------------------------------- */

/* A fresh key from OpenSSL. 0 or -EIO. */
int hy_key_random(uint8_t key[HY_KEY_SIZE]);
/* HKDF-SHA256: one key per agent from the run's key and the agent's identity. */
int hy_key_derive(const uint8_t key[HY_KEY_SIZE], const char *identity, uint8_t ret[HY_KEY_SIZE]);
/* A key as one line of hex in a file of mode 0600 (others are refused with a sentence). */
/* Reading "-" takes the line from standard input. It is written to the directory `dir`, of which `path` tells. */
int hy_key_write(int dir, const char *path, const uint8_t key[HY_KEY_SIZE], struct hy_err *err);
int hy_key_read(const char *path, uint8_t ret[HY_KEY_SIZE], struct hy_err *err);

/* ---- peers over TLS ------------------------------------------------------ */

struct hy_net;  /* opaque: all links of one process, on one loop */
struct hy_peer; /* opaque: the other end of a session */

/* Called from the loop. Callbacks may send and close, but not free the net. */
struct hy_net_events {
    /* A new session is up. The peer's identity is proven. */
    void (*on_up)(void *arg, struct hy_peer *p);
    /* A control message, in order, exactly once. Borrowed. */
    void (*on_message)(void *arg, struct hy_peer *p, const Hy__Control *m);
    /* Bytes of a data stream, in order, exactly once. Return the credit by
     * hy_peer_consumed when they are dealt with. */
    void (*on_data)(void *arg, struct hy_peer *p, uint32_t stream, const uint8_t *bytes, size_t n);
    /* A data stream that was full has room again. */
    void (*on_room)(void *arg, struct hy_peer *p, uint32_t stream);
    /* The peer is given up: silent for too long, its session is not known at
     * the other end, it was dialled and has not proven the key, or it has
     * dialled and broken the protocol (hy_peer_has_violated). `p` is freed after this call. Not called for peers that
     * hy_peer_close ended. */
    void (*on_gone)(void *arg, struct hy_peer *p, const char *why);
};

struct hy_net_settings {
    int64_t silence_ms; /* a peer silent for longer is gone */
    int64_t ping_ms;    /* how often a quiet link is tried */
};

/* NULL only when out of memory. */
struct hy_net *hy_net_new(struct uv_loop_s *loop, const struct hy_net_settings *settings,
                          const struct hy_net_events *events, void *arg);
/* Closes all links without ceremony. The loop must run once more for the handles. */
void hy_net_free(struct hy_net *net);

/*
 * Which key does this identity have? Fills key and returns 0, or -ENOENT: then
 * the handshake fails. Called for every connection, before anything is proven.
 */
typedef int (*hy_net_key_fn)(void *arg, const char *identity, uint8_t key[HY_KEY_SIZE]);

/* Listens ("127.0.0.1", 0 takes any port; "" or "0.0.0.0" all addresses). */
int hy_net_listen(struct hy_net *net, const char *address, uint16_t port, hy_net_key_fn key_of, void *arg,
                  uint16_t *ret_port, struct hy_err *err);
/* A peer that is dialled, and dialled again (0.1 s to 2 s apart) until it is silent for too long. */
int hy_net_dial(struct hy_net *net, const char *host, uint16_t port, const char *identity,
                const uint8_t key[HY_KEY_SIZE], struct hy_peer **ret, struct hy_err *err);

/* Puts on the wire what the turn has queued. Cheap when there is nothing. */
void hy_net_flush(struct hy_net *net);

/* The same in three steps. hy_net_seal ends the turn: what is queued later
 * belongs to the next one. hy_net_release lets the sealed turn go. hy_net_drain
 * sends what was released, with acknowledgements and answers to pings: call it
 * at the end of each iteration of the loop. */
void hy_net_seal(struct hy_net *net);
void hy_net_release(struct hy_net *net);
void hy_net_drain(struct hy_net *net);
/* Drops all that was queued and not released: its turn will never be committed. */
void hy_net_discard(struct hy_net *net);

/* Reads nothing more from peers while it is on: they wait when their windows
 * are full. Pings go out, and nobody counts as silent for as long. */
void hy_net_pause(struct hy_net *net, bool on);

/* Peers that were closed and still have something to send: a process that is
 * about to end runs its loop until there are none. */
size_t hy_net_lingering(const struct hy_net *net);

const char *hy_peer_identity(const struct hy_peer *p);
const char *hy_peer_address(const struct hy_peer *p); /* "127.0.0.1:4711", for the log */
void hy_peer_set_data(struct hy_peer *p, void *data);  /* the owner's */
void *hy_peer_data(const struct hy_peer *p);
int64_t hy_peer_silent_ms(const struct hy_peer *p);    /* since it was last heard */
int hy_peer_is_linked(const struct hy_peer *p);        /* a connection is up, as far as we know */
int hy_peer_has_violated(const struct hy_peer *p);     /* it has sent what the protocol does not allow */

/* Queues a control message. 0, -ENOMEM, or -ENOBUFS when the other end has not
 * taken 16 MiB of them: then the peer should be given up. */
int hy_peer_send(struct hy_peer *p, const Hy__Control *m);

/* A copy of a borrowed message, to keep (hy__control__free_unpacked). NULL when out of memory. */
Hy__Control *hy_control_copy(const Hy__Control *m);

/* Data streams: the sender picks a number from 1 on that nobody has used in
 * this session, and says in a control message what it carries. A stream goes
 * one way. */
size_t hy_peer_room(const struct hy_peer *p, uint32_t stream);
/* Queues n bytes; n <= hy_peer_room. 0, -ENOMEM, or -ENOBUFS when they are more. */
int hy_peer_write(struct hy_peer *p, uint32_t stream, const uint8_t *bytes, size_t n);
/* The other end has forgotten it: what is written goes nowhere. */
bool hy_peer_is_forgotten(const struct hy_peer *p, uint32_t stream);
/* Bytes that the other end has not acknowledged yet. */
size_t hy_peer_unacked(const struct hy_peer *p, uint32_t stream);
/* Receiver: n more bytes are dealt with; the sender may send as many again. */
void hy_peer_consumed(struct hy_peer *p, uint32_t stream, size_t n);
/* Both: this stream is over; frees its memory. Late frames for it are dropped.
 * Receivers must do so, with streams they do not know too: a peer that has
 * 4096 open is taken for a hostile one.
 * A sender whose receiver has forgotten the stream may go on writing: it all
 * counts as acknowledged and goes nowhere. */
void hy_peer_forget(struct hy_peer *p, uint32_t stream);

/* Ends the session: what is queued is still sent for up to linger_ms. The peer
 * is freed; no callback follows. */
void hy_peer_close(struct hy_peer *p, int64_t linger_ms);

/* ---- processes of one user on one machine -------------------------------- */

/*
 * A unix socket (0600) with framed messages: clients of a driver, and
 * `hopyard report` to an agent. No sessions: who comes again asks again.
 */
struct hy_local;      /* opaque: a listening socket on a loop */
struct hy_local_conn; /* opaque: one connection */

struct hy_local_events {
    void (*on_open)(void *arg, struct hy_local_conn *c);
    /* One message's bytes, at most HY_LOCAL_MAX. Borrowed. */
    void (*on_message)(void *arg, struct hy_local_conn *c, const uint8_t *bytes, size_t n);
    /* It has closed or broken the rules. Freed after this call. */
    void (*on_close)(void *arg, struct hy_local_conn *c);
};

/* Replaces a stale socket file; -EADDRINUSE when another process listens there. */
int hy_local_listen(struct uv_loop_s *loop, const char *path, const struct hy_local_events *events, void *arg,
                    struct hy_local **ret, struct hy_err *err);
void hy_local_close(struct hy_local *l); /* unlinks the file; on_close comes for each connection */
/* Queues and sends; how much is waiting is in hy_local_pending. 0 or -Exxx. */
int hy_local_send(struct hy_local_conn *c, const uint8_t *bytes, size_t n);
size_t hy_local_pending(const struct hy_local_conn *c);
/* From within on_message: this message cannot be taken now. It is given again,
 * and others after it, when hy_local_resume is called. */
void hy_local_defer(struct hy_local_conn *c);
void hy_local_resume(struct hy_local_conn *c);
/* Closes after what is queued has gone out; on_close follows. */
void hy_local_end(struct hy_local_conn *c);
void hy_local_set_data(struct hy_local_conn *c, void *data);
void *hy_local_data(const struct hy_local_conn *c);
pid_t hy_local_pid(const struct hy_local_conn *c); /* of the other end; 0: not known */

/* The other end, blocking and without a loop, is in wire/local.h. */

#include "wire/standby.h" /* agents that outlive a run; needs the sizes above */

#endif
