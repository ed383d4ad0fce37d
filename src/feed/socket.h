/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a feeder and a hub meet: packets at a name that is no file (an abstract
 * unix socket), and descriptors with them. Private to src/feed.
 *
 *     hello     from the feeder, with two descriptors: the ring's memory, and the hub's end of its socket
 *     notice    from the hub: results' ring, with the same two; or that it has had enough
 *
 * Both have a fixed size, and are taken whole or not at all.
 */
#ifndef HY_FEED_SOCKET_H
#define HY_FEED_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "feed/feed.h"

#define HY_FEED_BACKLOG 4096u /* connections that may wait to be accepted; the kernel may allow fewer */
#define HY_FEED_HELLO_MAGIC 0x316c6c6568706f68ull  /* "hophell1" */
#define HY_FEED_NOTICE_MAGIC 0x3165746f6e706f68ull /* "hopnote1" */

struct hy_feed_hello {
    uint64_t magic;
    uint32_t wants_results; /* 0 or 1 */
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

_Static_assert(sizeof(struct hy_feed_hello) == 128 && sizeof(struct hy_feed_notice) == 16, "as the other side has them");

/* A socket that has the name, so that nobody else can, or -Exxx; -EADDRINUSE when somebody does. Who connects to it is
 * refused until it listens. */
int hy_feed_bind(const char *name);
int hy_feed_listen(int fd);
/* One that is connected, to a process of ours; -ECONNREFUSED when nobody is there, -EPERM when it is another user's. */
int hy_feed_connect_abstract(const char *name);
/* Whether the other end is a process of this user, or of root. */
bool hy_feed_is_trusted_peer(int socket);
/* The next feeder, -EAGAIN when there is none; -EPERM when it was somebody else's, and is gone. */
int hy_feed_accept(int listener);
/* What is put behind a hub's name when it has had enough, in `name` of HY_FEED_NAME_MAX bytes. -ENAMETOOLONG. */
int hy_feed_terminated_name(const char *hub, char *name);

/* A ring's socket: [0] for who makes it, [1] for the other. 0 or -Exxx. */
int hy_feed_socketpair(int ends[2]);
/* Is it such an end? */
bool hy_feed_is_stream_socket(int fd);

/* One packet, with `fds` (2 or none). 0 or -Exxx; it never waits. */
int hy_feed_send_packet(int socket, const void *packet, size_t n, const int *fds);
/*
 * Takes one packet of exactly n bytes, and the two descriptors that come with it, if they do (else -1 each), which are
 * the caller's to close. 1; 0 at the other's end; -EAGAIN when there is none; -EPROTO when it is another.
 */
int hy_feed_recv_packet(int socket, void *packet, size_t n, int fds[2]);

#endif
