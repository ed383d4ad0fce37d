/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a hub accepts its feeders: two sockets. The first is a file in the user's
 * runtime directory (mode 0700), so that other users can neither connect to it nor
 * fill its backlog. The second has an abstract name, for feeders with another
 * runtime directory: those of root or in another container. Every user of the
 * machine can connect to that one, so each turn accepts a bounded number, and
 * connections of other users are closed at once. Private to src/feed.
 */
#ifndef HY_FEED_LISTENER_H
#define HY_FEED_LISTENER_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#define HY_FEED_ACCEPTS_MAX 16u /* of each socket in a turn */
#define HY_FEED_LISTENERS 2

struct hy_feed_listen_socket {
    int fd;          /* -1: none */
    unsigned turn;   /* accepted in this turn */
    size_t accepted; /* since hy_feed_listener_mark */
    bool is_empty;   /* its backlog, at the last accept */
};

struct hy_feed_listener {
    struct hy_feed_listen_socket sockets[HY_FEED_LISTENERS];
    int64_t paused_until_ms, exhausted_since_ms; /* out of descriptors or memory; 0: not */
    char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* "": no file */
};

/* 0 or -Exxx (-EADDRINUSE: another hub has the name). Without a runtime directory it has only the abstract name. */
int hy_feed_listener_open(struct hy_feed_listener *l, const char *name);
void hy_feed_listener_close(struct hy_feed_listener *l); /* also after a failed open, or twice */

/* Connects to the hub of that name, by its file or else its abstract name. As hy_feed_connect_abstract. */
int hy_feed_connect_hub(const char *name);

void hy_feed_listener_begin_turn(struct hy_feed_listener *l);
/*
 * The next connection; -EAGAIN when none is pending, this turn has reached its limit, or descriptors are exhausted;
 * -EPERM when it was another user's and has been closed; another -Exxx, also when they were exhausted for too long.
 */
int hy_feed_listener_next(struct hy_feed_listener *l);

/* Sets the mark of hy_feed_listener_is_drained. */
void hy_feed_listener_mark(struct hy_feed_listener *l);
/* Whether all connections that were pending at the mark have been accepted. */
bool hy_feed_listener_is_drained(const struct hy_feed_listener *l);

/* What to poll, and the longest timeout (-1: none). */
void hy_feed_listener_poll(const struct hy_feed_listener *l, struct pollfd fds[HY_FEED_LISTENERS]);
int hy_feed_listener_timeout(const struct hy_feed_listener *l, int timeout_ms);

#endif
