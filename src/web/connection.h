/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of browsers: reads requests one after the other, and sends the replies.
 *
 * Whatever a client does, it uses one connection and a bounded amount of memory: a head has to arrive within 10 s, a
 * client that reads or writes nothing for 30 s in the middle of a message is disconnected, and a connection without a
 * request is the first to go when there are too many.
 */
#ifndef HY_WEB_CONNECTION_H
#define HY_WEB_CONNECTION_H

#include <uv.h>

#include "base/list.h"

struct hy_web;

enum { HY_CONNECTIONS_MAX = 512 };

struct hy_connections {
    struct hy_list all;  /* the least recently active first */
    size_t count;
};

/* Takes the descriptor, and returns 0; or -Exxx. */
int hy_connection_new(struct hy_web *web, int fd);
/* Disconnects all; they are gone when the loop has nothing left to do. */
void hy_connections_close(struct hy_connections *all);

#endif
