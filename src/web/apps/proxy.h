/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proxy: passes one request of a browser on to an app, and the reply back; after the handshake of a WebSocket,
 * bytes in both directions.
 *
 * Each request has its own connection to the app, and ends the browser's: bytes that follow a request can never be
 * mistaken for another one. In each direction one part of 64 KB is in flight; the next one is read when it has been
 * sent, so a slow side slows the other one down and costs no memory. Nothing here blocks.
 */
#ifndef HY_WEB_PROXY_H
#define HY_WEB_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/list.h"
#include "web/http.h"

struct hy_stream;

enum { HY_PROXIES_MAX = 256 };

/* All that a server passes on at the moment. */
struct hy_proxies {
    struct hy_list all;
    size_t count;
};

struct hy_proxy_target {
    const void *owner;  /* of the connection: the app */
    const char *socket; /* of the app */
    const char *token;  /* that the app expects */
    const char *scheme; /* by which browsers reach the apps: "http", "https" */
    const char *page;   /* the origin of the page that shows them */
};

/*
 * Passes the request on. `rest` is what has arrived after its head, `browser` its connection, which is not read and is
 * taken on success. 0 or -Exxx; -EBUSY when there are too many.
 */
int hy_proxy_start(uv_loop_t *loop, struct hy_proxies *all, const struct hy_proxy_target *target,
                   const struct hy_http_request *r, const struct hy_buf *rest, struct hy_stream *browser);
bool hy_proxies_has(const struct hy_proxies *all, const void *owner);
/* Aborts the connections of this owner; NULL: all. They are closed when the loop has nothing left to do. */
void hy_proxies_close(struct hy_proxies *all, const void *owner);

#endif
