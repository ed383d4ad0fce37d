/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request and its response, as connections, routes and handlers share it.
 *
 * The connection reads the request, hy_site_route selects a handler, the handler fills in the reply in a thread of
 * libuv's pool (it may read the store and files), and the connection sends it.
 */
#ifndef HY_WEB_EXCHANGE_H
#define HY_WEB_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "web/http.h"

struct hy_app;
struct hy_web;
struct hy_exchange;

/* A body that is sent while it is produced: a file, a log that grows, events. Its functions run in the pool. */
struct hy_reply_source {
    /* Appends to `out`. 1: more follows; 0: this is the end; -EAGAIN: nothing yet, call again in `wait_ms`; -Exxx: the
     * connection is cut, so that the client sees that bytes are missing. */
    int (*read)(struct hy_reply_source *s, struct hy_buf *out);
    void (*close)(struct hy_reply_source *s);
    int64_t size; /* of all it gives; -1: unknown, the end of the connection is the end of the body */
    unsigned wait_ms;
};

/* Sets the reply. */
typedef void hy_handler_fn(struct hy_exchange *x);

struct hy_route {
    enum hy_http_method method;
    const char *path; /* "/api/v1/runs/:/trials": a ':' is one segment that the route leaves open */
    hy_handler_fn *handle;
    size_t body_max;
    bool is_public; /* needs no session */
    bool is_quick; /* runs on the loop: it does not block, and may use the server's state */
};

struct hy_exchange {
    struct hy_web *web;
    struct hy_http_request request;
    struct hy_buf body; /* of the request */
    const struct hy_route *route;
    char *segments[3]; /* what the request has in place of each ':' */
    bool has_session;
    bool is_for_apps; /* it arrived on the port of apps ... */
    struct hy_app *app; /* ... and is passed on to this one */

    int status; /* of the reply, from here on; 0: not set */
    const char *type; /* of its body; NULL: it has none */
    struct hy_buf fields; /* more lines of its head */
    struct hy_buf reply; /* its body */
    struct hy_reply_source *source; /* what follows `reply`; NULL: nothing */
};

void hy_exchange_init(struct hy_exchange *x, struct hy_web *web);
void hy_exchange_done(struct hy_exchange *x);

void hy_reply_bytes(struct hy_exchange *x, int status, const char *type, const void *bytes, size_t n);
/* {"error": "a sentence"} */
void hy_reply_error(struct hy_exchange *x, int status, const char *fmt, ...) HY_PRINTF(3, 4);
/* The same for a failure: 404 for -ENOENT, 403 for -EACCES …, 500. */
void hy_reply_failure(struct hy_exchange *x, const struct hy_err *err);
void hy_reply_redirect(struct hy_exchange *x, const char *location);

#endif
