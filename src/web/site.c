/* SPDX-License-Identifier: Apache-2.0 */
#include "web/site.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/text.h"
#include "web/api.h"
#include "web/assets.h"
#include "web/server.h"

/* ---- logins ---------------------------------------------------------------------------------- */

static void refuse_method(struct hy_exchange *x)
{
    hy_reply_error(x, 405, "%s is not possible here", hy_http_method_name(x->request.method));
}

static void handle_login(struct hy_exchange *x)
{
    struct hy_web *web = x->web;
    hy_cleanup_free char *token = hy_http_parameter(x->request.query, "token");
    char id[HY_SECRET_SIZE];

    if (x->request.method != HY_HTTP_GET) { /* a program that only looks at addresses must not use the token */
        refuse_method(x);
        return;
    }
    if (!token || !hy_session_start(&web->sessions, token, id)) {
        hy_reply_error(x, 403,
                       "this address has been used already, or is of another start of `hopyard ui`; open the one "
                       "that it has printed last");
        return;
    }
    hy_reply_redirect(x, "/");
    if (hy_http_add(&x->fields, "Set-Cookie", "%s=%s; Path=/; HttpOnly; SameSite=Lax", web->cookie, id) < 0)
        x->status = 500;
    hy_web_announce(web);
}

static void handle_logout(struct hy_exchange *x)
{
    char id[HY_SECRET_SIZE];

    if (hy_http_cookie(&x->request, x->web->cookie, id, sizeof id))
        hy_session_end(&x->web->sessions, id);
    hy_reply_bytes(x, 204, NULL, "", 0);
}

/* ---- routes ------------------------------------------------------------------------------------ */

#define GET(path_, function) {.method = HY_HTTP_GET, .path = path_, .handle = function}
#define POST(path_, function, max) {.method = HY_HTTP_POST, .path = path_, .handle = function, .body_max = max}

static const struct hy_route routes[] = {
    {.method = HY_HTTP_GET, .path = "/login", .handle = handle_login, .is_public = true, .is_quick = true},
    {.method = HY_HTTP_POST, .path = "/logout", .handle = handle_logout, .is_quick = true},
    {.method = HY_HTTP_GET, .path = "/assets/:", .handle = hy_assets_file, .is_public = true, .is_quick = true},
    GET("/api/v1/runs", hy_api_runs),
    GET("/api/v1/runs/:", hy_api_run),
    GET("/api/v1/runs/:/trials", hy_api_trials),
    GET("/api/v1/runs/:/columns", hy_api_columns),
    GET("/api/v1/runs/:/trials/:", hy_api_trial),
    GET("/api/v1/runs/:/trials/:/output/:", hy_api_output),
    POST("/api/v1/runs/:/stop", hy_api_stop, 1000),
    GET("/api/v1/events", hy_api_events),
};
static const struct hy_route page = {.handle = hy_assets_page, .is_public = true, .is_quick = true};

/* Compares a path with that of a route; `ret` gets where its open segments start, and their lengths. */
static bool matches(const char *path, const char *route, const char *starts[3], size_t lengths[3])
{
    size_t n = 0;

    for (; *route; route++) {
        if (*route != ':') {
            if (*path++ != *route)
                return false;
            continue;
        }
        starts[n] = path;
        lengths[n] = strcspn(path, "/");
        if (lengths[n] == 0)
            return false;
        path += lengths[n++];
    }
    return *path == '\0';
}

static int take_segments(struct hy_exchange *x, const char *const starts[3], const size_t lengths[3])
{
    for (size_t i = 0; i < 3 && starts[i]; i++) {
        x->segments[i] = hy_strndup(starts[i], lengths[i]);
        if (!x->segments[i])
            return -ENOMEM;
    }
    return 0;
}

static void find_route(struct hy_exchange *x)
{
    enum hy_http_method method = x->request.method == HY_HTTP_HEAD ? HY_HTTP_GET : x->request.method;
    bool has_path = false;

    for (size_t i = 0; i < HY_COUNT(routes); i++) {
        const char *starts[3] = {NULL};
        size_t lengths[3];

        if (!matches(x->request.path, routes[i].path, starts, lengths))
            continue;
        has_path = true;
        if (routes[i].method != method)
            continue;
        if (take_segments(x, starts, lengths) < 0)
            hy_reply_error(x, 503, "out of memory");
        else
            x->route = &routes[i];
        return;
    }
    if (has_path)
        refuse_method(x);
    else if (strncmp(x->request.path, "/api/", 5) == 0 || method != HY_HTTP_GET)
        hy_reply_error(x, 404, "there is no '%s'", x->request.path);
    else
        x->route = &page; /* the page shows what its address says */
}

/* ---- permission to send requests ------------------------------------------------------------------------------ */

static bool is_local_name(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 || strcmp(host, "::1") == 0;
}

/* The name by which the browser has reached this server. A page of another site can let its own name lead here (DNS
 * rebinding), and would then be allowed to read replies: so only known names are answered. */
static bool is_known_host(const struct hy_web *web, const char *field)
{
    const struct hy_web_settings *s = web->settings;
    char host[256], own[300];
    uint16_t port = 80;

    hy_format_host_port(s->address, web->port, own, sizeof own);
    if (strcasecmp(field, own) == 0)
        return true;
    for (const char *const *name = s->allow_hosts; name && *name; name++)
        if (strcasecmp(field, *name) == 0)
            return true;
    return hy_parse_host_port(field, host, sizeof host, &port) == 0 && port == web->port && is_local_name(host);
}

/* A request that changes something comes from our own page. */
static bool is_same_origin(const struct hy_exchange *x, const char *host)
{
    const char *origin = hy_http_field(&x->request, "origin");

    if (!origin)
        return false;
    if (strncmp(origin, "http://", 7) == 0)
        origin += 7;
    else if (strncmp(origin, "https://", 8) == 0) /* of a proxy in front of this server */
        origin += 8;
    else
        return false;
    return strcasecmp(origin, host) == 0;
}

static bool has_session(const struct hy_exchange *x)
{
    char id[HY_SECRET_SIZE];

    return hy_http_cookie(&x->request, x->web->cookie, id, sizeof id) && hy_session_exists(&x->web->sessions, id);
}

void hy_site_route(struct hy_exchange *x)
{
    const char *host = hy_http_field(&x->request, "host");
    bool is_reading = x->request.method == HY_HTTP_GET || x->request.method == HY_HTTP_HEAD;

    x->has_session = has_session(x);
    if (!is_known_host(x->web, host))
        hy_reply_error(x, 421, "this server is not known as '%s'; if it should be, start it with --allow-host '%s'",
                       host, host);
    else if (!is_reading && !is_same_origin(x, host))
        hy_reply_error(x, 403, "a request that changes something must come from the page itself");
    else
        find_route(x);
    if (x->route && !x->route->is_public && !x->has_session) {
        x->route = NULL;
        hy_reply_error(x, 401, "log in with the address that `hopyard ui` has printed");
    }
}

/* ---- security policy --------------------------------------------------------------------------- */

int hy_site_add_policy(const struct hy_exchange *x, struct hy_buf *out)
{
    static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                                 "font-src 'self'; connect-src 'self'; base-uri 'self'; form-action 'self'; "
                                 "frame-ancestors 'none'";
    int rc = hy_http_add(out, "X-Content-Type-Options", "nosniff");

    if (rc == 0)
        rc = hy_http_add(out, "Referrer-Policy", "same-origin");
    if (rc == 0)
        rc = hy_http_add(out, "Cross-Origin-Resource-Policy", "same-origin");
    if (rc == 0)
        rc = hy_http_add(out, "Content-Security-Policy", "%s", policy);
    if (rc == 0 && !(x->route && x->route->handle == hy_assets_file))
        rc = hy_http_add(out, "Cache-Control", "no-store");
    return rc;
}
