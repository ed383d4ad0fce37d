/* SPDX-License-Identifier: Apache-2.0 */
/* The server: its loop, connections and sessions. Only the loop's thread uses it, except for `settings`, `stores` and
 * `projects`. */
#ifndef HY_WEB_SERVER_H
#define HY_WEB_SERVER_H

#include <openssl/types.h>
#include <uv.h>

#include "base/list.h"
#include "store/store.h"
#include "web/apps/apps.h"
#include "web/apps/apps_port.h"
#include "web/connection.h"
#include "web/session.h"
#include "web/web.h"
#include "wire/wire.h"

enum { HY_STORES_MAX = 8, HY_BASE_MAX = 512 };

/* Connections to stores that no handler uses at the moment. */
struct hy_stores {
    uv_mutex_t mutex;
    struct {
        const struct hy_project *project;
        struct hy_store *store;
    } unused[HY_STORES_MAX];
    size_t count;
};

/* A project that the server shows: its own, or another one of the same user. */
struct hy_project {
    struct hy_list link;
    char id[HY_PROJECT_ID_SIZE];
    char *path;
    struct hy_run_list *runs;
};

struct hy_projects {
    uv_mutex_t mutex;
    struct hy_list all; /* the server's project first; none is removed before the end */
};

struct hy_web {
    const struct hy_web_settings *settings;
    uv_loop_t *loop;
    struct hy_acceptor *acceptor;
    uv_signal_t signals[3];
    bool had_terminal; /* closing it ends the server */
    uint16_t port;
    SSL_CTX *tls; /* for new connections; NULL: plain HTTP */
    struct hy_connections connections;
    struct hy_sessions sessions;
    struct hy_apps_port apps_port;
    struct hy_apps apps;
    char base[HY_BASE_MAX];   /* the path of the page: "/", "/user/ada/hopyard/" */
    char origin[HY_BASE_MAX]; /* scheme, host and port by which a proxy is reached: "https://hub.example"; "": none */
    bool is_https; /* as browsers see it */
    char cookie[32]; /* its name: cookies do not depend on the port, so that two servers need two names */
    struct hy_stores stores;
    struct hy_projects projects;
};

/* Prints the address with the current token. */
void hy_web_announce(struct hy_web *web);

/* The following are for handlers, in any thread. */

/* The project with that ID, if it is known already; NULL: the server's project. Valid until the server ends. */
const struct hy_project *hy_web_known_project(struct hy_web *web, const char *id);
/* Reads the list of the user's projects again. Not on the loop: it waits for their file systems. */
int hy_web_projects_update(struct hy_web *web, struct hy_err *err);
/* A connection to the project's store, to read; -ENOENT when it has none yet. Give it back, or close it after a
 * failure. */
int hy_web_store(struct hy_web *web, const struct hy_project *p, struct hy_store **ret, struct hy_err *err);
void hy_web_store_back(struct hy_web *web, const struct hy_project *p, struct hy_store *s);

#endif
