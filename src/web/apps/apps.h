/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Apps: TensorBoard and Jupyter behind the page. An app is a process that serves HTTP on a unix socket, which only this
 * user can reach; browsers reach it through the proxy (proxy.h), on a port of its own (decision 0027).
 *
 *   starting ─► ready ─► gone       when it is ended, was not used for a while, or the server ends
 *       └─────────┴────► failed     when it exits; the last line of its output says why
 *
 * It is started as `hopyard ARGS… --sock PATH --prefix /KIND/ID/`, in its own session, with a secret in
 * $HOPYARD_APP_TOKEN. It must then
 *   - listen on the unix socket PATH, whose directory is private, and serve everything below the path prefix,
 *   - be that process (exec, no double fork): it gets SIGTERM, after 5 s SIGKILL, and SIGKILL if the server dies,
 *   - print one sentence on standard error if it cannot start.
 * The proxy adds `Authorization: token SECRET` to each request; what a browser sends as Authorization is removed.
 *
 * All functions are for the loop's thread: routes that call them have `is_quick`.
 */
#ifndef HY_WEB_APPS_H
#define HY_WEB_APPS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"
#include "web/apps/proxy.h"

struct hy_web;
struct hy_app; /* opaque */

/* All apps of a server. */
struct hy_apps {
    struct hy_web *web;
    struct hy_list all;
    size_t count;
    uint64_t last_id;
    struct hy_proxies proxies;
    uv_timer_t timer;
    bool is_closing;
};

struct hy_app_spec {
    const char *kind;        /* "tensorboard", "jupyter": letters */
    const char *project;     /* an absolute directory: its pages list the app */
    const char *key;         /* "3,5": a kind has one app for each key of a project */
    const char *const *args; /* of `hopyard`; ends with NULL */
    const json_t *details;   /* for the page, e.g. the values of its form; copied; NULL: none */
    int64_t idle_ms;         /* it is ended after that time without a request or connection; 0: never */
};

void hy_apps_init(struct hy_apps *apps, struct hy_web *web);
/* Ends all apps; they have ended when the loop has nothing left to do. */
void hy_apps_close(struct hy_apps *apps);

/*
 * Starts an app, or finds the one with the same kind, project and key, unless that has failed. It is then starting or
 * ready. 0 or -Exxx: -EBUSY when there are too many.
 */
int hy_app_start(struct hy_web *web, const struct hy_app_spec *spec, struct hy_app **ret, struct hy_err *err);
/* NULL: the project does not have it (any more). */
struct hy_app *hy_app_find(struct hy_web *web, const char *project, uint64_t id);
/* {"id", "kind", "key", "state": "starting" | "ready" | "failed", "message", "details"}; NULL when out of memory. */
json_t *hy_app_json(const struct hy_app *app);
/* All of a project, the oldest first. */
json_t *hy_apps_json(struct hy_web *web, const char *project);
uint64_t hy_app_id(const struct hy_app *app);
/* Marks it as used: restarts its idle time. */
void hy_app_touch(struct hy_app *app);
/* Ends it and removes it from the list. */
void hy_app_end(struct hy_app *app);

/* ---- for the port of apps ---- */

/* The app at the path "/KIND/ID/…", of any project; NULL. */
struct hy_app *hy_app_at(struct hy_web *web, const char *path);
struct hy_app *hy_app_with_id(struct hy_web *web, uint64_t id);
/* "/KIND/ID/" */
const char *hy_app_prefix(const struct hy_app *app);
/* -EAGAIN while it is starting, -ECHILD with a sentence when it has failed. */
int hy_app_check(const struct hy_app *app, struct hy_err *err);
/* Passes a request on to it, as hy_proxy_start. */
int hy_app_proxy(struct hy_app *app, const char *scheme, const char *page, const struct hy_http_request *r,
                 const struct hy_buf *rest, struct hy_stream *browser);

#endif
