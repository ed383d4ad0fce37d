/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: the protocols between hopyard's processes. Nothing is lost or repeated
 * when a connection breaks.
 *
 * Four layers, each usable and tested without the ones below it:
 *
 *   messages   proto/hopyard.proto, packed by protobuf-c
 *   mux        byte streams that survive a broken connection, with offsets,
 *              acknowledgements and credit; stream 0 carries the control
 *              messages and has priority
 *   frame      length, version, type, stream; a pure parser
 *   tls        TLS 1.3 with a pre-shared key that both ends prove
 *
 * `hy_net` runs them on a libuv loop: an agent dials, a driver listens. A peer
 * is the other end of a session, which continues when its connection is replaced.
 *
 * Nothing is sent before hy_net_flush, which the owner of the loop calls at the
 * end of each turn. An owner that commits a turn while the loop runs on seals
 * the data that the turn has queued and releases it after the commit. (Persist,
 * then act.)
 *
 * hy_net_new and hy_local_listen ignore SIGPIPE, as libuv requires. Ignored
 * signals are inherited through exec: a process that starts programs resets it.
 *
 * This header includes the other public headers of src/wire:
 *
 *   limits.h         limits and leases of the protocol
 *   local.h          clients of local sockets, blocking
 *   agent_client.h   a trial's connection to its agent
 *   node.h           a cluster node's connection to its agent
 *   roles.h          which trial of a cluster is which node
 *   proto_memory.h   protobuf-c's allocator, with fault injection
 *   submission.h     starting a run by a message to the program
 *   standby.h        handing an agent over to the next run
 *   usage.h          memory, CPU and GPU use of an attempt over time
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
#include "wire/submission.h"
#include "wire/usage.h"

struct uv_loop_s; /* libuv's uv_loop_t. Not included: training processes use the rest of this header without libuv. */

#define HY_PROTOCOL 1
#define HY_KEY_SIZE 32
#define HY_SESSION_SIZE 16
#define HY_STREAM_CONTROL 0u
#define HY_STREAM_WINDOW (256u * 1024) /* bytes of a data stream in flight */

/* ---- keys -------------------------------------------------------------- */

/* A new random key. 0 or -EIO. */
int hy_key_random(uint8_t key[HY_KEY_SIZE]);
/* HKDF-SHA256: one key per agent from the run's key and the agent's identity. */
int hy_key_derive(const uint8_t key[HY_KEY_SIZE], const char *identity, uint8_t ret[HY_KEY_SIZE]);
/* A key file is one line of hexadecimal digits with mode 0600; hy_key_read refuses any wider mode. "-" is standard
 * input. hy_key_write creates the file in the directory `dir`, which must be that of `path`. */
int hy_key_write(int dir, const char *path, const uint8_t key[HY_KEY_SIZE], struct hy_err *err);
int hy_key_read(const char *path, uint8_t ret[HY_KEY_SIZE], struct hy_err *err);

/* ---- listening on TCP ------------------------------------------------------ */

/* A listening socket (close-on-exec, non-blocking); port 0 takes a free one. "::" accepts IPv4, too. An fd or -Exxx. */
int hy_tcp_listen(const char *address, uint16_t port, uint16_t *ret_port, struct hy_err *err);

/* Accepts connections on a loop, a bounded number in each turn. `accept` takes the descriptor (close-on-exec,
 * non-blocking) and returns 0; or returns -Exxx, and is called again with it after a pause. */
struct hy_acceptor;
int hy_acceptor_new(struct uv_loop_s *loop, int fd, int (*accept)(void *arg, int fd), void *arg,
                    struct hy_acceptor **ret); /* takes `fd` on success */
void hy_acceptor_close(struct hy_acceptor *a); /* frees it when libuv has closed its handles; NULL is fine */

/* ---- peers over TLS ------------------------------------------------------ */

struct hy_net; /* opaque: all links of a loop */
struct hy_peer; /* opaque: the other end of a session */

/* Called from the loop. Callbacks may send and close peers, but not free the net. */
struct hy_net_events {
    /* A new session is up, and the peer's identity is proven. */
    void (*on_up)(void *arg, struct hy_peer *p);
    /* A control message, in order, exactly once. Borrowed. */
    void (*on_message)(void *arg, struct hy_peer *p, const Hy__Control *m);
    /* Bytes of a data stream, in order, exactly once. Call hy_peer_consumed
     * when they are processed, to return the credit. */
    void (*on_data)(void *arg, struct hy_peer *p, uint32_t stream, const uint8_t *bytes, size_t n);
    /* A data stream that was full has room again. */
    void (*on_room)(void *arg, struct hy_peer *p, uint32_t stream);
    /* The peer is given up: it was silent for too long, it does not have this
     * session, it did not prove the key when dialed, or it has violated the
     * protocol (hy_peer_violated_protocol). `p` is freed after this call. Not called
     * after hy_peer_close. */
    void (*on_gone)(void *arg, struct hy_peer *p, const char *why);
};

struct hy_net_settings {
    int64_t silence_ms; /* a peer silent for longer is gone */
    int64_t ping_ms; /* how often an idle link is pinged */
};

/* NULL only when out of memory. */
struct hy_net *hy_net_new(struct uv_loop_s *loop, const struct hy_net_settings *settings,
                          const struct hy_net_events *events, void *arg);
/* Closes all links without sending queued data. The loop must run once more to close the handles. */
void hy_net_free(struct hy_net *net);

/*
 * Fills in the key of this identity and returns 0, or -ENOENT: then the handshake
 * fails. Called for every connection, while the identity is only a claim.
 */
typedef int (*hy_net_key_fn)(void *arg, const char *identity, uint8_t key[HY_KEY_SIZE]);

/* Port 0 selects a free port; the address "" or "0.0.0.0" listens on all addresses. */
int hy_net_listen(struct hy_net *net, const char *address, uint16_t port, hy_net_key_fn key_of, void *arg,
                  uint16_t *ret_port, struct hy_err *err);
/* Dials a peer, and redials it with a backoff of 0.1 s to 2 s until it is silent for too long. */
int hy_net_dial(struct hy_net *net, const char *host, uint16_t port, const char *identity,
                const uint8_t key[HY_KEY_SIZE], struct hy_peer **ret, struct hy_err *err);

/* Sends what the turn has queued. Cheap when there is nothing. */
void hy_net_flush(struct hy_net *net);

/* The same in three steps. hy_net_seal ends the turn: data queued later belongs
 * to the next one. hy_net_release allows the sealed turn to be sent. hy_net_drain
 * sends released data, acknowledgements and pongs: call it at the end of each
 * iteration of the loop. */
void hy_net_seal(struct hy_net *net);
void hy_net_release(struct hy_net *net);
void hy_net_drain(struct hy_net *net);
/* Drops all data that was queued and not released, since its turn will not be committed. */
void hy_net_discard(struct hy_net *net);

/* While paused, nothing is read from peers, which stop when their windows are
 * full. Pings are still sent, and no peer counts as silent. */
void hy_net_pause(struct hy_net *net, bool on);

/* The number of closed peers with unsent data: a process that is about to exit
 * runs its loop until it is 0. */
size_t hy_net_lingering(const struct hy_net *net);

const char *hy_peer_identity(const struct hy_peer *p);
const char *hy_peer_address(const struct hy_peer *p); /* "127.0.0.1:4711", for the log */
void hy_peer_set_data(struct hy_peer *p, void *data); /* for the owner */
void *hy_peer_data(const struct hy_peer *p);
int64_t hy_peer_silent_ms(const struct hy_peer *p); /* since the last frame from it */
int hy_peer_is_linked(const struct hy_peer *p); /* a connection is up, as far as is known */
int hy_peer_violated_protocol(const struct hy_peer *p); /* it was given up for a protocol error */

/* Queues a control message. 0, -ENOMEM, or -ENOBUFS when 16 MiB are unacknowledged:
 * then the peer should be closed. */
int hy_peer_send(struct hy_peer *p, const Hy__Control *m);

/* A copy, for the caller to free (hy__control__free_unpacked). NULL when out of memory. */
Hy__Control *hy_control_copy(const Hy__Control *m);

/* Data streams: the sender chooses a number from 1 that is unused in this
 * session, and announces the content in a control message. A stream has one
 * direction. */
size_t hy_peer_room(const struct hy_peer *p, uint32_t stream);
/* Queues n bytes; n <= hy_peer_room. 0, -ENOMEM, or -ENOBUFS when they are more. */
int hy_peer_write(struct hy_peer *p, uint32_t stream, const uint8_t *bytes, size_t n);
/* The peer has forgotten the stream: data written to it is discarded. */
bool hy_peer_is_forgotten(const struct hy_peer *p, uint32_t stream);
/* Bytes that the peer has not acknowledged yet. */
size_t hy_peer_unacked(const struct hy_peer *p, uint32_t stream);
/* Receiver: n more bytes are processed; returns their credit to the sender. */
void hy_peer_consumed(struct hy_peer *p, uint32_t stream, size_t n);
/* Both ends: frees a finished stream. Late frames for it are dropped.
 * Receivers must forget every stream, unknown ones too: a peer with more than
 * 4096 open streams violates the protocol.
 * A sender may write to a stream that the receiver has forgotten: the data
 * counts as acknowledged and is discarded. */
void hy_peer_forget(struct hy_peer *p, uint32_t stream);

/* Ends the session: queued data is still sent for up to linger_ms. The peer
 * is freed; no callback follows. */
void hy_peer_close(struct hy_peer *p, int64_t linger_ms);

/* ---- processes of one user on one machine -------------------------------- */

/*
 * A unix socket (0600) with framed messages: clients of a driver, and
 * `hopyard report` to an agent. Without sessions: a client that reconnects
 * repeats its request.
 */
struct hy_local; /* opaque: a listening socket on a loop */
struct hy_local_conn; /* opaque: one connection */

struct hy_local_events {
    void (*on_open)(void *arg, struct hy_local_conn *c);
    /* One message's bytes, at most HY_LOCAL_MAX. Borrowed. */
    void (*on_message)(void *arg, struct hy_local_conn *c, const uint8_t *bytes, size_t n);
    /* The client has closed it or violated the protocol. Freed after this call. */
    void (*on_close)(void *arg, struct hy_local_conn *c);
};

/* Replaces a stale socket file; -EADDRINUSE when another process listens there. */
int hy_local_listen(struct uv_loop_s *loop, const char *path, const struct hy_local_events *events, void *arg,
                    struct hy_local **ret, struct hy_err *err);
void hy_local_close(struct hy_local *l); /* unlinks the file; on_close follows for each connection */
/* Sends or queues; hy_local_pending returns the bytes in the queue. 0 or -Exxx. */
int hy_local_send(struct hy_local_conn *c, const uint8_t *bytes, size_t n);
size_t hy_local_pending(const struct hy_local_conn *c);
/* From within on_message: this message cannot be handled now. hy_local_resume
 * delivers it again, and those after it. */
void hy_local_defer(struct hy_local_conn *c);
void hy_local_resume(struct hy_local_conn *c);
/* Closes the connection after sending the queue; on_close follows. */
void hy_local_end(struct hy_local_conn *c);
void hy_local_set_data(struct hy_local_conn *c, void *data);
void *hy_local_data(const struct hy_local_conn *c);
pid_t hy_local_pid(const struct hy_local_conn *c); /* of the client; 0: not known */

/* The client end, blocking and without a loop, is in wire/local.h. */

#include "wire/standby.h" /* agents that outlive a run; needs the sizes above */

#endif
