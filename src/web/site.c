/* SPDX-License-Identifier: Apache-2.0 */
#include "web/site.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/text.h"
#include "web/api/api.h"
#include "web/apps/apps_port.h"
#include "web/apps/proxy.h"
#include "web/assets.h"
#include "web/certificate.h"
#include "web/server.h"
#include "web/files/upload.h"

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
    hy_reply_redirect(x, web->base);
    if (hy_http_add(&x->fields, "Set-Cookie", "%s=%s; Path=%s; HttpOnly; SameSite=Lax%s", web->cookie, id, web->base,
                    web->is_https ? "; Secure" : "") < 0)
        x->status = 500;
    hy_web_announce(web);
}

static bool end_session(void *sessions, const char *id)
{
    hy_session_end(sessions, id);
    return false; /* continue: another cookie of that name may be the valid one */
}

static void handle_logout(struct hy_exchange *x)
{
    (void)hy_http_any_cookie(&x->request, x->web->cookie, end_session, &x->web->sessions);
    hy_connections_end_streams(x->web);
    /* Apps do not know whose session a browser has: other browsers enter again through the page. */
    hy_sessions_end_all(&x->web->apps_port.sessions);
    x->web->apps_port.tickets = (struct hy_tickets){0};
    hy_proxies_close(&x->web->apps.proxies, NULL);
    hy_reply_bytes(x, 204, NULL, "", 0);
}

/* ---- routes ------------------------------------------------------------------------------------ */

#define GET(path_, function) {.method = HY_HTTP_GET, .path = path_, .handle = function}
#define PATCH(path_, function, max) {.method = HY_HTTP_PATCH, .path = path_, .handle = function, .body_max = max}
#define POST(path_, function, max) {.method = HY_HTTP_POST, .path = path_, .handle = function, .body_max = max}

static const struct hy_route routes[] = {
    {.method = HY_HTTP_GET, .path = "/login", .handle = handle_login, .is_public = true, .is_quick = true},
    {.method = HY_HTTP_POST, .path = "/logout", .handle = handle_logout, .is_quick = true},
    {.method = HY_HTTP_GET, .path = "/assets/:", .handle = hy_assets_file, .is_public = true, .is_quick = true},
    GET("/api/v1/projects", hy_api_projects),
    GET("/api/v1/scripts", hy_api_scripts),
    GET("/api/v1/runs", hy_api_runs),
    GET("/api/v1/runs/:", hy_api_run),
    GET("/api/v1/runs/:/trials", hy_api_trials),
    GET("/api/v1/runs/:/columns", hy_api_columns),
    GET("/api/v1/runs/:/importance", hy_api_importance),
    GET("/api/v1/runs/:/timeline", hy_api_timeline),
    GET("/api/v1/runs/:/usage", hy_api_usage),
    GET("/api/v1/cluster", hy_api_cluster),
    GET("/api/v1/runs/:/curves", hy_api_curves),
    GET("/api/v1/runs/:/trials/:", hy_api_trial),
    GET("/api/v1/runs/:/trials/:/output/:", hy_api_output),
    GET("/api/v1/runs/:/trials/:/output/:/search", hy_api_output_search),
    POST("/api/v1/runs", hy_api_start, 1 << 20),
    POST("/api/v1/runs/:/stop", hy_api_stop, 1000),
    POST("/api/v1/runs/:/resume", hy_api_resume, 1000),
    PATCH("/api/v1/runs/:", hy_api_run_change, 1 << 17),
    PATCH("/api/v1/runs/:/trials/:", hy_api_trial_change, 1 << 17),
    {.method = HY_HTTP_DELETE, .path = "/api/v1/runs/:", .handle = hy_api_run_remove},
    GET("/api/v1/shares", hy_api_shares),
    POST("/api/v1/shares", hy_api_share_add, 0),
    {.method = HY_HTTP_DELETE, .path = "/api/v1/shares", .handle = hy_api_share_remove},
    POST("/api/v1/shares/received", hy_api_share_accept, 0),
    {.method = HY_HTTP_DELETE, .path = "/api/v1/shares/received", .handle = hy_api_share_forget},
    {.method = HY_HTTP_GET, .path = "/api/v1/apps", .handle = hy_api_apps, .is_quick = true},
    {.method = HY_HTTP_POST, .path = "/api/v1/apps/tensorboard", .handle = hy_api_tensorboard, .is_quick = true},
    {.method = HY_HTTP_POST, .path = "/api/v1/apps/jupyter", .handle = hy_api_jupyter, .is_quick = true},
    {.method = HY_HTTP_GET, .path = "/api/v1/apps/:", .handle = hy_api_app, .is_quick = true},
    {.method = HY_HTTP_DELETE, .path = "/api/v1/apps/:", .handle = hy_api_app_end, .is_quick = true},
    {.method = HY_HTTP_POST, .path = "/api/v1/apps/:/open", .handle = hy_api_app_open, .is_quick = true},
    GET("/api/v1/events", hy_api_events),
    GET("/api/v1/files", hy_api_files),
    GET("/api/v1/files/content", hy_api_file_content),
    GET("/api/v1/files/preview", hy_api_file_preview),
    POST("/api/v1/files/folder", hy_api_file_folder, 0),
    POST("/api/v1/files/move", hy_api_file_move, 0),
    POST("/api/v1/files/delete", hy_api_file_delete, 0),
    POST("/api/v1/files/uploads", hy_api_upload_start, 0),
    {.method = HY_HTTP_PATCH,
     .path = "/api/v1/files/uploads",
     .handle = hy_api_upload_piece,
     .body_max = HY_UPLOAD_PIECE_MAX},
    {.method = HY_HTTP_DELETE, .path = "/api/v1/files/uploads", .handle = hy_api_upload_cancel},
    GET("/api/v1/runs/:/trials/:/files", hy_api_trial_files),
    GET("/api/v1/runs/:/trials/:/files/content", hy_api_trial_file_content),
    GET("/api/v1/runs/:/trials/:/files/preview", hy_api_trial_file_preview),
    GET("/api/v1/models", hy_api_models),
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

/* Browsers leave the usual port out. */
static int split_host(const struct hy_web *web, const char *field, char *ret_name, size_t size, uint16_t *ret_port)
{
    char full[300];

    if (hy_parse_host_port(field, ret_name, size, ret_port) == 0)
        return 0;
    snprintf(full, sizeof full, "%s:%d", field, web->tls ? 443 : 80);
    return hy_parse_host_port(full, ret_name, size, ret_port);
}

bool hy_site_is_local(const struct hy_web *web, const char *field, uint16_t port, char *ret_name, size_t size)
{
    uint16_t given;

    return split_host(web, field, ret_name, size, &given) == 0 && given == port &&
           (is_local_name(ret_name) || strcasecmp(ret_name, web->settings->address) == 0 ||
            (web->tls && hy_certificate_has_name(web->tls, ret_name)));
}

/* The name by which the browser has reached this server. A page of another site can let its own name lead here (DNS
 * rebinding), and would then be allowed to read replies: so only known names are answered. */
static bool is_known_host(const struct hy_web *web, const char *field)
{
    const struct hy_web_settings *s = web->settings;
    char local[256];

    if (hy_site_is_local(web, field, web->port, local, sizeof local))
        return true;
    if (web->origin[0] && strcasecmp(field, strstr(web->origin, "//") + 2) == 0)
        return true;
    for (const char *const *name = s->allow_hosts; name && *name; name++)
        if (strcasecmp(field, *name) == 0)
            return true;
    return false;
}

bool hy_site_is_origin(const struct hy_exchange *x, const char *host)
{
    const char *origin = hy_http_field(&x->request, "origin");

    if (!origin)
        return false;
    if (strncmp(origin, "https://", 8) == 0) /* ours, or of a proxy in front of this server */
        origin += 8;
    else if (strncmp(origin, "http://", 7) == 0 && !x->web->tls)
        origin += 7;
    else
        return false;
    return strcasecmp(origin, host) == 0;
}

bool hy_site_is_foreign(const struct hy_http_request *r)
{
    const char *site = hy_http_field(r, "sec-fetch-site"), *mode = hy_http_field(r, "sec-fetch-mode");

    return site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0 &&
           !(mode && strcmp(mode, "navigate") == 0);
}

/* A request that changes something comes from our own page. */
static bool is_same_origin(const struct hy_exchange *x, const char *host)
{
    const char *origin = hy_http_field(&x->request, "origin");

    return hy_site_is_origin(x, host) || (origin && x->web->origin[0] && strcasecmp(origin, x->web->origin) == 0);
}

static bool is_session(void *sessions, const char *id)
{
    return hy_session_exists(sessions, id);
}

bool hy_site_has_session(const struct hy_http_request *r, const char *cookie, const struct hy_sessions *sessions)
{
    return hy_http_any_cookie(r, cookie, is_session, (void *)(uintptr_t)sessions);
}

/* A proxy may keep the path below which it shows the server, or remove it. */
static void remove_base(struct hy_exchange *x)
{
    size_t n = strlen(x->web->base) - 1;
    const char *path = x->request.path;

    if (strncmp(path, x->web->base, n) == 0 && (path[n] == '/' || path[n] == '\0'))
        x->request.path = path[n] ? path + n : "/";
}

void hy_site_route(struct hy_exchange *x)
{
    const char *host = hy_http_field(&x->request, "host");
    bool is_reading = x->request.method == HY_HTTP_GET || x->request.method == HY_HTTP_HEAD;

    remove_base(x);
    x->has_session = hy_site_has_session(&x->request, x->web->cookie, &x->web->sessions);
    if (!is_known_host(x->web, host))
        hy_reply_error(x, 421, "this server is not known as '%s'; if it should be, start it with --allow-host '%s'",
                       host, host);
    else if (!is_reading && !is_same_origin(x, host))
        hy_reply_error(x, 403, "a request that changes something must come from the page itself");
    else if (hy_site_is_foreign(&x->request))
        hy_reply_error(x, 403, "requests of other pages are refused");
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
                                 "frame-ancestors 'none'; frame-src ";
    const char *host = hy_http_field(&x->request, "host");
    char apps[HY_ORIGIN_SIZE] = "'none'";
    int rc = hy_http_add(out, "X-Content-Type-Options", "nosniff");

    if (host)
        (void)hy_apps_origin(x->web, host, apps);
    if (rc == 0)
        rc = hy_http_add(out, "Referrer-Policy", "same-origin");
    if (rc == 0)
        rc = hy_http_add(out, "Cross-Origin-Resource-Policy", "same-origin");
    if (rc == 0)
        rc = hy_http_add(out, "Content-Security-Policy", "%s%s", policy, apps);
    if (rc == 0 && !(x->route && x->route->handle == hy_assets_file))
        rc = hy_http_add(out, "Cache-Control", "no-store");
    return rc;
}
