/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a hub accepts its feeders: two sockets, of which the first is a file in
 * the user's folder for sockets (mode 0700), so that other users can neither
 * connect to it nor fill its queue. The second has an abstract name, for
 * feeders that have another folder: root's, or those of another container.
 * Anybody on the machine may connect to that one, so few connections are
 * accepted in a turn, and those of other users are closed at once. Private to
 * src/feed.
 */
#ifndef HY_FEED_LISTENER_H
#define HY_FEED_LISTENER_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#define HY_FEED_ACCEPTS_MAX 16u /* of each socket, in a turn */
#define HY_FEED_LISTENERS 2

struct hy_feed_listen_socket {
    int fd;          /* -1: none */
    unsigned turn;   /* accepted in this turn */
    size_t accepted; /* since hy_feed_listener_mark */
    bool is_empty;   /* when it was last looked at */
};

struct hy_feed_listener {
    struct hy_feed_listen_socket queues[HY_FEED_LISTENERS];
    int64_t paused_until_ms, short_since_ms; /* 0: not for want of descriptors or memory */
    char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* "": no file */
};

/* 0 or -Exxx (-EADDRINUSE: another hub has the name). Without such a folder there is only the abstract name. */
int hy_feed_listener_open(struct hy_feed_listener *l, const char *name);
void hy_feed_listener_close(struct hy_feed_listener *l); /* also one that could not be opened, or is closed */

/* Connects to the hub of that name, by its file or by its abstract name. As hy_feed_connect_abstract. */
int hy_feed_connect_hub(const char *name);

void hy_feed_listener_begin_turn(struct hy_feed_listener *l);
/*
 * The next feeder; -EAGAIN when none is waiting, or this turn has accepted enough, or descriptors are short; -EPERM
 * when it was another user's and is closed; another -Exxx, also when descriptors were short for too long.
 */
int hy_feed_listener_next(struct hy_feed_listener *l);

/* From here on hy_feed_listener_is_drained counts. */
void hy_feed_listener_mark(struct hy_feed_listener *l);
/* Whether everybody has been accepted who was waiting at the mark, however many have come since. */
bool hy_feed_listener_is_drained(const struct hy_feed_listener *l);

/* What to poll, and for how long at most (-1: without end). */
void hy_feed_listener_poll(const struct hy_feed_listener *l, struct pollfd fds[HY_FEED_LISTENERS]);
int hy_feed_listener_timeout(const struct hy_feed_listener *l, int timeout_ms);

#endif
