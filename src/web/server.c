/* SPDX-License-Identifier: Apache-2.0 */
#include "web/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"

/* ---- the store ------------------------------------------------------------------------------ */

static struct hy_store *take_unused(struct hy_stores *all)
{
    struct hy_store *s = NULL;

    uv_mutex_lock(&all->mutex);
    if (all->count)
        s = all->unused[--all->count];
    uv_mutex_unlock(&all->mutex);
    return s;
}

int hy_web_store(struct hy_web *web, struct hy_store **ret, struct hy_err *err)
{
    struct hy_store *s;

    while ((s = take_unused(&web->stores))) {
        if (hy_store_check_files(s, NULL) == 0) {
            *ret = s;
            return 0;
        }
        hy_store_close(s); /* its files were replaced */
    }
    return hy_store_open(web->settings->project, HY_STORE_READ, ret, err);
}

void hy_web_store_back(struct hy_web *web, struct hy_store *s)
{
    struct hy_stores *all = &web->stores;

    uv_mutex_lock(&all->mutex);
    if (all->count < HY_STORES_MAX)
        all->unused[all->count++] = hy_take(s);
    uv_mutex_unlock(&all->mutex);
    hy_store_close(s);
}

static void close_stores(struct hy_stores *all)
{
    struct hy_store *s;

    while ((s = take_unused(all)))
        hy_store_close(s);
    uv_mutex_destroy(&all->mutex);
}

/* ---- start and end ---------------------------------------------------------------------------- */

void hy_web_announce(struct hy_web *web)
{
    const char *address = web->settings->address;
    bool is_any = strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0;
    char host[300], url[500];

    hy_format_host_port(is_any ? "localhost" : address, web->port, host, sizeof host);
    snprintf(url, sizeof url, "http://%s/login?token=%s", host, web->sessions.token);
    web->settings->announce(web->settings->arg, url);
}

static int on_accept(void *arg, int fd)
{
    return hy_connection_new(arg, fd);
}

static void stop(struct hy_web *web)
{
    hy_acceptor_close(hy_take(web->acceptor));
    for (size_t i = 0; i < HY_COUNT(web->signals); i++)
        if (web->signals[i].data && !uv_is_closing((uv_handle_t *)&web->signals[i]))
            uv_close((uv_handle_t *)&web->signals[i], NULL);
    hy_connections_close(&web->connections);
}

static void on_signal(uv_signal_t *s, int number)
{
    (void)number;
    stop(s->data);
}

static int watch_signals(struct hy_web *web)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    int rc = 0;

    for (size_t i = 0; i < HY_COUNT(numbers) && rc == 0; i++) {
        rc = uv_signal_init(web->loop, &web->signals[i]);
        if (rc == 0) {
            web->signals[i].data = web;
            rc = uv_signal_start(&web->signals[i], on_signal, numbers[i]);
        }
    }
    return rc;
}

static int start(struct hy_web *web, struct hy_err *err)
{
    hy_cleanup_close int fd = -1;
    int rc = hy_sessions_init(&web->sessions);

    if (rc == 0)
        rc = watch_signals(web);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot start the server");
    fd = hy_tcp_listen(web->settings->address, web->settings->port, &web->port, err);
    if (fd < 0)
        return fd;
    snprintf(web->cookie, sizeof web->cookie, "hopyard-%u", web->port);
    rc = hy_acceptor_new(web->loop, fd, on_accept, web, &web->acceptor);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot accept connections");
    hy_take_fd(fd);
    hy_web_announce(web);
    return 0;
}

int hy_web_serve(const struct hy_web_settings *settings, struct hy_err *err)
{
    uv_loop_t loop;
    struct hy_web web = {.settings = settings, .loop = &loop};
    int rc = uv_loop_init(&loop);

    if (rc < 0)
        return hy_err_sys(err, rc, "cannot start the server");
    signal(SIGPIPE, SIG_IGN); /* libuv requires it */
    hy_list_init(&web.connections.all);
    rc = uv_mutex_init(&web.stores.mutex);
    if (rc < 0) {
        uv_loop_close(&loop);
        return hy_err_sys(err, rc, "cannot start the server");
    }
    rc = start(&web, err);
    if (rc < 0)
        stop(&web);
    uv_run(&loop, UV_RUN_DEFAULT);
    close_stores(&web.stores);
    uv_loop_close(&loop);
    return rc;
}
