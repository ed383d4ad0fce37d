/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port of apps: a second origin, so that scripts of TensorBoard and notebooks cannot act as the page (decision
 * 0027).
 *
 * The page requests a ticket (POST /api/v1/apps/ID/open), and the browser uses it: GET /enter?ticket=… starts a
 * session on this port, with its own cookie, and redirects to the app. Everything else here is passed on to apps.
 */
#ifndef HY_WEB_APPS_PORT_H
#define HY_WEB_APPS_PORT_H

#include "web/exchange.h"
#include "web/session.h"
#include "wire/wire.h"

struct hy_stream;

enum { HY_ORIGIN_SIZE = 600 };

struct hy_apps_port {
    struct hy_acceptor *acceptor;
    uint16_t port;
    char cookie[32]; /* its name */
    struct hy_sessions sessions;
    struct hy_tickets tickets;
};

/* Listens. 0 or -Exxx. */
int hy_apps_port_open(struct hy_web *web, struct hy_err *err);
void hy_apps_port_close(struct hy_web *web);

/* The origin of this port for a browser that has reached the page under this name. False: there is none. */
bool hy_apps_origin(const struct hy_web *web, const char *page_host, char ret[HY_ORIGIN_SIZE]);
/* A ticket that opens an app once, on this origin. 0 or -Exxx with a sentence. */
int hy_apps_ticket(struct hy_web *web, const char *page_host, uint64_t app, char ret_origin[HY_ORIGIN_SIZE],
                   char ret_ticket[HY_SECRET_SIZE], struct hy_err *err);

/* As hy_site_route, for a request on this port: sets the reply, or `x->app`, to which the request is passed on. */
void hy_apps_route(struct hy_exchange *x);
/* As hy_site_add_policy, for a reply that does not come from an app. */
int hy_apps_add_policy(const struct hy_exchange *x, struct hy_buf *out);
/* Passes the request on to `x->app`, as hy_proxy_start. */
int hy_apps_pass(struct hy_exchange *x, const struct hy_buf *rest, struct hy_stream *browser);

#endif
