/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heads of requests and responses between a browser and an app, as the proxy passes them on. Pure functions.
 *
 * To the app go no hop-by-hop fields, no cookies of hopyard (their names start with "hopyard-") and no
 * Authorization but ours. To the browser go no cookies with such names, nothing that opens the app to other origins,
 * and a policy that only the page may show it in a frame; the rest of the app's own policy stays.
 */
#ifndef HY_WEB_PROXY_HEAD_H
#define HY_WEB_PROXY_HEAD_H

#include "base/buf.h"
#include "web/http.h"

#define HY_COOKIE_PREFIX "hopyard-"

/* Whether the request asks for a WebSocket. */
bool hy_proxy_is_websocket(const struct hy_http_request *r);
/* The request for an app that expects `token`. 0 or -ENOMEM, -ENOBUFS. */
int hy_proxy_request_head(const struct hy_http_request *r, const char *scheme, const char *token, struct hy_buf *out);
/* The response for a browser that shows the page with the origin `page`. */
int hy_proxy_response_head(const struct hy_http_response *r, const char *page, struct hy_buf *out);

#endif
