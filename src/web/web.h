/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web: the page of a project, as an HTTP server (`hopyard ui`).
 *
 * It reads the store and the project's files; a run needs no page, and the page needs no run. What changes something
 * goes to the run's driver, or through the store's own lock.
 *
 *   connection   browsers' connections on a libuv loop
 *   stream       their bytes, plain or with TLS; certificate: the server's
 *   http         requests and responses as bytes
 *   site         routes, logins, and what browsers are allowed to do
 *   api/         runs and trials as JSON, and changes to them; in threads of libuv's pool
 *   files/       the project's files, models and shares, confined to it; the same
 *   apps/        TensorBoard and Jupyter behind a proxy, on a port of their own
 */
#ifndef HY_WEB_WEB_H
#define HY_WEB_WEB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct hy_web_settings {
    const char *project;            /* an absolute directory */
    const char *address;            /* to listen on */
    uint16_t port;                  /* 0: a free one */
    const char *base_url; /* of a proxy: "/user/ada/hopyard", "https://hub.example/ada"; NULL: there is none */
    uint16_t apps_port;   /* for TensorBoard and Jupyter; 0: the one after `port`, or a free one */
    const char *apps_url; /* the origin under which a proxy shows that port: "https://apps.hub.example"; NULL */
    const char *tls_cert; /* PEM files; NULL: plain HTTP */
    const char *tls_key;
    const char *const *allow_hosts; /* more names under which browsers reach the server; ends with NULL */
    /* The address to open, with a token that logs in once, and the address that the server listens on. Called at the
     * start, and after each login. */
    void (*announce)(void *arg, const char *url, const char *listens);
    void *arg;
};

/* False: it was built without Node.js, and serves only the API. */
bool hy_web_has_page(void);
/* Checks a base URL: 0, or -EINVAL with what it must be. */
int hy_web_check_base(const char *url, struct hy_err *err);
/* Serves the page until SIGINT or SIGTERM; with TLS, SIGHUP reads the certificate and the key again. 0 or -Exxx. */
int hy_web_serve(const struct hy_web_settings *settings, struct hy_err *err);

#endif
