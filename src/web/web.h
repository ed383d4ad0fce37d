/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web: the page of a project, as an HTTP server (`hopyard ui`).
 *
 * It reads the store and the project's files; a run needs no page, and the page needs no run. What changes something
 * goes to the run's driver, or through the store's own lock.
 *
 *   connection   browsers' connections on a libuv loop
 *   http         requests and responses as bytes
 *   site         routes, logins, and what browsers are allowed to do
 *   api_*        the JSON API, in threads of libuv's pool
 */
#ifndef HY_WEB_WEB_H
#define HY_WEB_WEB_H

#include <stdint.h>

#include "base/err.h"

struct hy_web_settings {
    const char *project;            /* an absolute directory */
    const char *address;            /* to listen on */
    uint16_t port;                  /* 0: a free one */
    const char *const *allow_hosts; /* more names under which browsers reach the server; ends with NULL */
    /* The address to open, with a token that logs in once. Called at the start, and after each login. */
    void (*announce)(void *arg, const char *url);
    void *arg;
};

/* Serves the page until SIGINT or SIGTERM. 0 or -Exxx. */
int hy_web_serve(const struct hy_web_settings *settings, struct hy_err *err);

#endif
