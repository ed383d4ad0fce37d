/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of browsers: reads requests one after the other, and sends the replies.
 *
 * Whatever a client does, it uses one connection and a bounded amount of memory: a head has to arrive within 10 s, as
 * has the handshake of TLS, and of a body 64 KB, or its end, within 30 s each; a client that reads nothing of a reply
 * for 30 s is disconnected, and a connection without a request is the first to be closed when there are too many.
 */
#ifndef HY_WEB_CONNECTION_H
#define HY_WEB_CONNECTION_H

#include <stdbool.h>
#include <uv.h>

#include "base/list.h"

struct hy_web;

enum { HY_CONNECTIONS_MAX = 512 };

struct hy_connections {
    struct hy_list all;  /* the least recently active first */
    size_t count;
    uint64_t body_bytes; /* of large bodies that are read or handled */
};

/* A connection to the page's port, or to that of apps. Takes the descriptor, and returns 0; or -Exxx. */
int hy_connection_new(struct hy_web *web, int fd, bool is_for_apps);
/* Disconnects all; they are gone when the loop has nothing left to do. */
void hy_connections_close(struct hy_connections *all);
/* Cuts events and output that are followed by browsers whose session is over. */
void hy_connections_end_streams(struct hy_web *web);

#endif
