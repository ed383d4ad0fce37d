/* SPDX-License-Identifier: Apache-2.0 */
/* The server: its loop, connections and sessions. Only the loop's thread uses it, except for `settings` and `stores`.
 */
#ifndef HY_WEB_SERVER_H
#define HY_WEB_SERVER_H

#include <uv.h>

#include "store/store.h"
#include "web/connection.h"
#include "web/session.h"
#include "web/web.h"
#include "wire/wire.h"

enum { HY_STORES_MAX = 8 };

/* Connections to the store that no handler uses at the moment. */
struct hy_stores {
    uv_mutex_t mutex;
    struct hy_store *unused[HY_STORES_MAX];
    size_t count;
};

struct hy_web {
    const struct hy_web_settings *settings;
    uv_loop_t *loop;
    struct hy_acceptor *acceptor;
    uv_signal_t signals[2];
    uint16_t port;
    struct hy_connections connections;
    struct hy_sessions sessions;
    char cookie[32]; /* its name: cookies do not depend on the port, so that two servers need two names */
    struct hy_stores stores;
};

/* Prints the address with the current token. */
void hy_web_announce(struct hy_web *web);

/* For handlers, in any thread: a connection to the project's store, to read; -ENOENT when it has none yet. Give it
 * back, or close it after a failure. */
int hy_web_store(struct hy_web *web, struct hy_store **ret, struct hy_err *err);
void hy_web_store_back(struct hy_web *web, struct hy_store *s);

#endif
