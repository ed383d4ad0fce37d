/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection between a feeder and a hub: packets of fixed size, with
 * descriptors, over a unix seqpacket socket. Private to src/feed.
 *
 *     hello     from the feeder, with two descriptors: the ring's memory, and the hub's end of its socket
 *     notice    from the hub: the ring of results, with the same two; or that it has terminated
 */
#ifndef HY_FEED_SOCKET_H
#define HY_FEED_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "feed/feed.h"

#define HY_FEED_BACKLOG 4096u /* of listen(2); the kernel may allow less */
#define HY_FEED_HELLO_MAGIC 0x316c6c6568706f68ull  /* "hophell1" */
#define HY_FEED_NOTICE_MAGIC 0x3165746f6e706f68ull /* "hopnote1" */

struct hy_feed_hello {
    uint64_t magic;
    uint32_t needs_results; /* 0 or 1 */
    uint32_t zero;
    uint64_t results_size;
    char queue[HY_FEED_QUEUE_MAX]; /* NUL-terminated */
    uint64_t zeros[5];
};

enum hy_feed_notice_kind { HY_FEED_NOTICE_RESULTS = 1, HY_FEED_NOTICE_TERMINATED = 2 };

struct hy_feed_notice {
    uint64_t magic;
    uint32_t kind, zero;
};

_Static_assert(sizeof(struct hy_feed_hello) == 128 && sizeof(struct hy_feed_notice) == 16, "the format of the peer");

/* A socket bound to an abstract name, or -Exxx; -EADDRINUSE when the name is taken. Connections are refused until it
 * listens. */
int hy_feed_bind(const char *name);
int hy_feed_listen(int fd);
/* A socket connected to that name; -ECONNREFUSED when there is no listener, -EPERM when the listener is not trusted. */
int hy_feed_connect_abstract(const char *name);
/* Whether the peer is a process of this user or of root. */
bool hy_feed_is_trusted_peer(int socket);
/* The next connection; -EAGAIN when there is none; -EPERM when it was closed because its peer is not trusted. */
int hy_feed_accept(int listener);
/* The name at which a terminated hub listens, in `name` of HY_FEED_NAME_MAX bytes. 0 or -ENAMETOOLONG. */
int hy_feed_terminated_name(const char *hub, char *name);

/* The socket of a ring: [0] for the writer, [1] for the reader. 0 or -Exxx. */
int hy_feed_socketpair(int ends[2]);
/* Whether a received descriptor is an end of such a pair. */
bool hy_feed_is_stream_socket(int fd);

/* Sends one packet, with two descriptors unless `fds` is NULL. Never blocks. 0 or -Exxx. */
int hy_feed_send_packet(int socket, const void *packet, size_t n, const int *fds);
/*
 * Receives one packet of exactly n bytes and its two descriptors, which the caller closes (-1 each: it has none). 1; 0
 * at end of file; -EAGAIN when there is no packet; -EPROTO for any other packet.
 */
int hy_feed_recv_packet(int socket, void *packet, size_t n, int fds[2]);

#endif
