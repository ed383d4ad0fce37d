/* SPDX-License-Identifier: Apache-2.0 */
#include "web/apps/apps_port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "web/apps/apps.h"
#include "web/apps/proxy_head.h"
#include "web/server.h"
#include "web/site.h"

/* ---- start and end ---------------------------------------------------------------------------- */

static int on_accept(void *arg, int fd)
{
    return hy_connection_new(arg, fd, true);
}

/* The configured port, the one after the page's, or any. */
static int listen_on(struct hy_web *web, uint16_t *ret_port, struct hy_err *err)
{
    const struct hy_web_settings *s = web->settings;
    uint16_t wanted = s->apps_port;
    struct hy_err taken = {0};
    int fd;

    if (!wanted && s->port && s->port < UINT16_MAX)
        wanted = s->port + 1;
    fd = hy_tcp_listen(s->address, wanted, ret_port, s->apps_port ? err : &taken);
    return fd == -EADDRINUSE && !s->apps_port ? hy_tcp_listen(s->address, 0, ret_port, err) : fd;
}

int hy_apps_port_open(struct hy_web *web, struct hy_err *err)
{
    struct hy_apps_port *a = &web->apps_port;
    hy_cleanup_close int fd = -1;
    int rc = hy_sessions_init(&a->sessions);

    if (rc < 0)
        return hy_err_sys(err, rc, "cannot start the server");
    fd = listen_on(web, &a->port, err);
    if (fd < 0)
        return fd;
    snprintf(a->cookie, sizeof a->cookie, HY_COOKIE_PREFIX "apps-%u", a->port);
    rc = hy_acceptor_new(web->loop, fd, on_accept, web, &a->acceptor);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot accept connections");
    hy_take_fd(fd);
    rc = hy_runtime_sweep("app-", ".sock"); /* of servers that were killed */
    if (rc < 0)
        hy_debug("cannot remove old sockets why=%s", strerror(-rc));
    return 0;
}

void hy_apps_port_close(struct hy_web *web)
{
    hy_acceptor_close(hy_take(web->apps_port.acceptor));
}

/* ---- origins ------------------------------------------------------------------------------------ */

/* The host and port of an origin. */
static const char *host_of(const char *origin)
{
    return strstr(origin, "//") + 2;
}

static bool is_proxied(const struct hy_web *web, const char *host)
{
    return web->settings->apps_url && strcasecmp(host, host_of(web->settings->apps_url)) == 0;
}

/* Whether a browser that has reached this port under this name uses HTTPS. */
static bool is_https(const struct hy_web *web, const char *host)
{
    return is_proxied(web, host) ? strncmp(web->settings->apps_url, "https:", 6) == 0 : web->tls != NULL;
}

/* The origin of another port of this server, for a browser that uses this host name. */
static bool origin_on_port(const struct hy_web *web, const char *host, uint16_t from, uint16_t port,
                           char ret[HY_ORIGIN_SIZE])
{
    char name[256], address[300];

    if (!hy_site_is_local(web, host, from, name, sizeof name))
        return false;
    snprintf(ret, HY_ORIGIN_SIZE, "%s://%s", web->tls ? "https" : "http",
             hy_format_host_port(name, port, address, sizeof address));
    return true;
}

bool hy_apps_origin(const struct hy_web *web, const char *page_host, char ret[HY_ORIGIN_SIZE])
{
    if (origin_on_port(web, page_host, web->port, web->apps_port.port, ret))
        return true;
    if (!web->settings->apps_url)
        return false;
    snprintf(ret, HY_ORIGIN_SIZE, "%s", web->settings->apps_url);
    return true;
}

/* The origin of the page, for a browser that has reached this port under this name. */
static void page_origin(const struct hy_web *web, const char *host, char ret[HY_ORIGIN_SIZE])
{
    if (!origin_on_port(web, host, web->apps_port.port, web->port, ret))
        snprintf(ret, HY_ORIGIN_SIZE, "%s", web->origin[0] ? web->origin : "'none'");
}

int hy_apps_ticket(struct hy_web *web, const char *page_host, uint64_t app, char ret_origin[HY_ORIGIN_SIZE],
                   char ret_ticket[HY_SECRET_SIZE], struct hy_err *err)
{
    if (!hy_apps_origin(web, page_host, ret_origin))
        return hy_err_set(err, -EACCES,
                          "apps need their own origin: let the proxy forward another host name to port %u of this "
                          "server, and set --apps-url to its URL",
                          web->apps_port.port);
    if (hy_ticket_issue(&web->apps_port.tickets, app, hy_clock_ms(), ret_ticket) < 0)
        return hy_err_set(err, -EIO, "cannot get random numbers");
    return 0;
}

/* ---- requests ------------------------------------------------------------------------------------ */

static void enter(struct hy_exchange *x)
{
    struct hy_apps_port *port = &x->web->apps_port;
    hy_cleanup_free char *ticket = hy_http_parameter(x->request.query, "ticket");
    const char *host = hy_http_field(&x->request, "host");
    struct hy_app *app;
    char session[HY_SECRET_SIZE];
    uint64_t id = 0;

    if (!ticket || !hy_ticket_use(&port->tickets, ticket, hy_clock_ms(), &id)) {
        hy_reply_error(x, 403, "this address has been used already; open the app from hopyard's page");
        return;
    }
    app = hy_app_with_id(x->web, id);
    if (!app || hy_session_add(&port->sessions, session) < 0) {
        hy_reply_error(x, 404, "this app has ended; open it again from hopyard's page");
        return;
    }
    hy_reply_redirect(x, hy_app_prefix(app));
    /* Strict: the page is on the same site, and links from other sites must not act in an app. */
    if (hy_http_add(&x->fields, "Set-Cookie", "%s=%s; Path=/; HttpOnly; SameSite=Strict%s", port->cookie, session,
                    is_https(x->web, host) ? "; Secure" : "") < 0)
        x->status = 500;
}

static void find_app(struct hy_exchange *x)
{
    struct hy_app *app = hy_app_at(x->web, x->request.path);
    struct hy_err err = {0};
    int rc = app ? hy_app_check(app, &err) : 0;

    if (!app)
        hy_reply_error(x, 404, "there is no app here; if it has ended, open it again from hopyard's page");
    else if (rc < 0)
        hy_reply_error(x, rc == -EAGAIN ? 503 : 502, "%s", err.text);
    else
        x->app = app;
}

void hy_apps_route(struct hy_exchange *x)
{
    const struct hy_http_request *r = &x->request;
    const char *host = hy_http_field(r, "host");
    const struct hy_apps_port *port = &x->web->apps_port;
    bool is_reading = (r->method == HY_HTTP_GET || r->method == HY_HTTP_HEAD) && !r->upgrade;
    char name[256];

    if (!hy_site_is_local(x->web, host, port->port, name, sizeof name) && !is_proxied(x->web, host))
        hy_reply_error(x, 421, "'%s' is not a host name of the apps; behind a proxy, set --apps-url", host);
    else if ((!is_reading && !hy_site_is_origin(x, host)) || hy_site_is_foreign(r))
        hy_reply_error(x, 403, "this request must come from the app itself");
    else if (strcmp(r->path, "/enter") == 0 && r->method == HY_HTTP_GET)
        enter(x);
    else if (!hy_site_has_session(r, port->cookie, &port->sessions))
        hy_reply_error(x, 401, "open this app from hopyard's page");
    else
        find_app(x);
}

int hy_apps_add_policy(const struct hy_exchange *x, struct hy_buf *out)
{
    const char *host = hy_http_field(&x->request, "host");
    char page[HY_ORIGIN_SIZE] = "'none'";
    int rc = hy_http_add(out, "X-Content-Type-Options", "nosniff");

    if (host)
        page_origin(x->web, host, page);
    if (rc == 0)
        rc = hy_http_add(out, "Referrer-Policy", "no-referrer");
    if (rc == 0)
        rc = hy_http_add(out, "Cross-Origin-Resource-Policy", "same-origin");
    if (rc == 0)
        rc = hy_http_add(out, "Content-Security-Policy", "default-src 'none'; frame-ancestors %s", page);
    return rc == 0 ? hy_http_add(out, "Cache-Control", "no-store") : rc;
}

int hy_apps_pass(struct hy_exchange *x, const struct hy_buf *rest, struct hy_stream *browser)
{
    const char *host = hy_http_field(&x->request, "host");
    char page[HY_ORIGIN_SIZE];

    page_origin(x->web, host, page);
    return hy_app_proxy(x->app, is_https(x->web, host) ? "https" : "http", page, &x->request, rest, browser);
}
