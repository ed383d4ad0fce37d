/* SPDX-License-Identifier: Apache-2.0 */
#include "web/server.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "web/api/run_list.h"
#include "web/certificate.h"

#define POOL_THREADS "16"

/* ---- projects ------------------------------------------------------------------------------ */

static int add_project(struct hy_projects *all, const char *path)
{
    hy_cleanup_free struct hy_project *p = hy_calloc(1, sizeof *p);
    hy_cleanup_free struct hy_run_list *runs = hy_calloc(1, sizeof *runs);
    hy_cleanup_free char *copy = hy_strdup(path);

    if (!p || !runs || !copy || hy_run_list_init(runs) < 0)
        return -ENOMEM;
    p->path = hy_take(copy);
    p->runs = hy_take(runs);
    hy_project_id(path, p->id);
    hy_list_push(&all->all, &hy_take(p)->link);
    return 0;
}

static struct hy_project *find_project(struct hy_projects *all, const char *id)
{
    hy_list_each(it, &all->all) {
        struct hy_project *p = hy_container(it, struct hy_project, link);

        if (!id || strcmp(p->id, id) == 0)
            return p;
    }
    return NULL;
}

static int add_unknown(void *arg, const char *id, const char *path)
{
    struct hy_projects *all = arg;
    int rc;

    uv_mutex_lock(&all->mutex);
    rc = find_project(all, id) ? 0 : add_project(all, path);
    uv_mutex_unlock(&all->mutex);
    return rc;
}

/* Not locked meanwhile: one project on a file system that hangs must not stop the requests for others. */
int hy_web_projects_update(struct hy_web *web, struct hy_err *err)
{
    return hy_project_each(add_unknown, &web->projects, err);
}

const struct hy_project *hy_web_known_project(struct hy_web *web, const char *id)
{
    const struct hy_project *p;

    uv_mutex_lock(&web->projects.mutex);
    p = find_project(&web->projects, id);
    uv_mutex_unlock(&web->projects.mutex);
    return p;
}

static int init_projects(struct hy_web *web)
{
    int rc = uv_mutex_init(&web->projects.mutex);

    hy_list_init(&web->projects.all);
    return rc < 0 ? rc : add_project(&web->projects, web->settings->project);
}

static void free_projects(struct hy_projects *all)
{
    while (!hy_list_empty(&all->all)) {
        struct hy_project *p = hy_container(all->all.next, struct hy_project, link);

        hy_list_remove(&p->link);
        hy_run_list_done(p->runs);
        free(p->runs);
        free(p->path);
        free(p);
    }
    uv_mutex_destroy(&all->mutex);
}

/* ---- stores ---------------------------------------------------------------------------------- */

/* NULL: of any project. */
static struct hy_store *take_unused(struct hy_stores *all, const struct hy_project *p)
{
    struct hy_store *s = NULL;

    uv_mutex_lock(&all->mutex);
    for (size_t i = all->count; i-- > 0 && !s;) {
        if (p && all->unused[i].project != p)
            continue;
        s = all->unused[i].store;
        all->unused[i] = all->unused[--all->count];
    }
    uv_mutex_unlock(&all->mutex);
    return s;
}

int hy_web_store(struct hy_web *web, const struct hy_project *p, struct hy_store **ret, struct hy_err *err)
{
    struct hy_store *s;

    while ((s = take_unused(&web->stores, p))) {
        if (hy_store_check_files(s, NULL) == 0) {
            *ret = s;
            return 0;
        }
        hy_store_close(s); /* its files were replaced */
    }
    return hy_store_open(p->path, HY_STORE_READ, ret, err);
}

void hy_web_store_back(struct hy_web *web, const struct hy_project *p, struct hy_store *s)
{
    struct hy_stores *all = &web->stores;

    uv_mutex_lock(&all->mutex);
    if (all->count < HY_STORES_MAX) {
        all->unused[all->count].project = p;
        all->unused[all->count++].store = hy_take(s);
    }
    uv_mutex_unlock(&all->mutex);
    hy_store_close(s);
}

static void close_stores(struct hy_stores *all)
{
    struct hy_store *s;

    while ((s = take_unused(all, NULL)))
        hy_store_close(s);
    uv_mutex_destroy(&all->mutex);
}

/* ---- the base URL ------------------------------------------------------------------------------ */

/* Letters that need no escape in a path, a cookie's path or HTML. */
static bool is_plain(const char *text)
{
    return text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/:@[]")] == '\0';
}

/* Splits "https://hub.example/ada" into its origin, "" for a path alone, and its path, which gets a '/' at its end. */
static int split_base(const char *url, char *ret_origin, char *ret_path)
{
    const char *host = strstr(url, "://");
    const char *path = host ? strchr(host + 3, '/') : url;
    size_t n;

    if (!is_plain(url) || strlen(url) >= HY_BASE_MAX - 1 || strstr(url, "/..") || (path && strstr(path, "//")) ||
        (path && *path != '/'))
        return -EINVAL;
    if (host && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return -EINVAL;
    n = host ? (path ? (size_t)(path - url) : strlen(url)) : 0;
    if (host && url + n == host + 3)
        return -EINVAL;
    memcpy(ret_origin, url, n);
    ret_origin[n] = '\0';
    snprintf(ret_path, HY_BASE_MAX, "%s", path ? path : "/");
    n = strlen(ret_path);
    if (ret_path[n - 1] != '/')
        memcpy(ret_path + n, "/", 2);
    return 0;
}

int hy_web_check_base(const char *url, struct hy_err *err)
{
    char origin[HY_BASE_MAX], path[HY_BASE_MAX];

    if (split_base(url, origin, path) < 0)
        return hy_err_set(err, -EINVAL, "takes a path (/user/ada) or a URL (https://hub.example/ada), not '%s'", url);
    return 0;
}

/* ---- start and end ---------------------------------------------------------------------------- */

void hy_web_announce(struct hy_web *web)
{
    const char *address = web->settings->address;
    bool is_any = strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0;
    const char *shown = is_any ? "localhost" : address;
    char name[256], listens[300], host[300], url[2 * HY_BASE_MAX + 400];

    hy_format_host_port(shown, web->port, listens, sizeof listens);
    if (is_any && web->tls && hy_certificate_first_name(web->tls, name, sizeof name))
        shown = name;
    hy_format_host_port(shown, web->port, host, sizeof host);
    if (web->origin[0])
        snprintf(url, sizeof url, "%s%slogin?token=%s", web->origin, web->base, web->sessions.token);
    else
        snprintf(url, sizeof url, "%s://%s%slogin?token=%s", web->is_https ? "https" : "http", host, web->base,
                 web->sessions.token);
    web->settings->announce(web->settings->arg, url, listens);
}

static int on_accept(void *arg, int fd)
{
    return hy_connection_new(arg, fd, false);
}

static void stop(struct hy_web *web)
{
    hy_acceptor_close(hy_take(web->acceptor));
    for (size_t i = 0; i < HY_COUNT(web->signals); i++)
        if (web->signals[i].data && !uv_is_closing((uv_handle_t *)&web->signals[i]))
            uv_close((uv_handle_t *)&web->signals[i], NULL);
    hy_connections_close(&web->connections);
    hy_apps_port_close(web);
    hy_apps_close(&web->apps);
}

static void on_signal(uv_signal_t *s, int number)
{
    (void)number;
    stop(s->data);
}

static bool has_terminal(void)
{
    hy_cleanup_close int fd = HY_SYS(open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));

    return fd >= 0;
}

/* The certificate was renewed; or, as without TLS, the terminal was closed. */
static void on_hangup(uv_signal_t *s, int number)
{
    struct hy_web *web = s->data;
    struct hy_err err = {0};
    SSL_CTX *tls = NULL;

    (void)number;
    if (web->had_terminal && !has_terminal()) {
        stop(web);
        return;
    }
    if (hy_certificate_load(web->settings->tls_cert, web->settings->tls_key, &tls, &err) < 0) {
        hy_warn("the old certificate stays in use why=%s", err.text);
        return;
    }
    SSL_CTX_free(web->tls);
    web->tls = tls;
    hy_info("the certificate was loaded again file=%s", web->settings->tls_cert);
}

static int watch_signals(struct hy_web *web)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    static const uv_signal_cb actions[] = {on_signal, on_signal, on_hangup};
    size_t count = HY_COUNT(numbers) - !web->settings->tls_cert;
    struct sigaction before;
    int rc = sigaction(SIGHUP, NULL, &before);

    web->had_terminal = rc == 0 && before.sa_handler != SIG_IGN && has_terminal(); /* nohup: it stays without one */
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = uv_signal_init(web->loop, &web->signals[i]);
        if (rc == 0) {
            web->signals[i].data = web;
            rc = uv_signal_start(&web->signals[i], actions[i], numbers[i]);
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
    if (split_base(web->settings->base_url ? web->settings->base_url : "/", web->origin, web->base) < 0)
        return hy_err_set(err, -EINVAL, "the base URL '%s' is invalid", web->settings->base_url);
    web->is_https = web->origin[0] ? strncmp(web->origin, "https:", 6) == 0 : web->settings->tls_cert != NULL;
    fd = hy_tcp_listen(web->settings->address, web->settings->port, &web->port, err);
    if (fd < 0)
        return fd;
    if (web->settings->tls_cert)
        rc = hy_certificate_load(web->settings->tls_cert, web->settings->tls_key, &web->tls, err);
    if (rc < 0)
        return rc;
    snprintf(web->cookie, sizeof web->cookie, "hopyard-%u", web->port);
    rc = hy_acceptor_new(web->loop, fd, on_accept, web, &web->acceptor);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot accept connections");
    hy_take_fd(fd);
    rc = hy_apps_port_open(web, err);
    if (rc < 0)
        return rc;
    hy_web_announce(web);
    return 0;
}

/* Large buffers (uploads, listings) go back to the system when they are freed, and the pool's threads share memory. */
static void limit_malloc(void)
{
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* otherwise it grows with the first large buffer that is freed */
    mallopt(M_ARENA_MAX, 2);
}

static void no_work(uv_work_t *w)
{
    (void)w;
}

/* More threads than libuv's four, since a handler may wait for a NameNode that is down. libuv reads the variable when
 * the first work is queued; the runs that the page starts must not inherit it. */
static int start_pool(uv_loop_t *loop)
{
    static uv_work_t first;
    bool was_set = getenv("UV_THREADPOOL_SIZE") != NULL;
    int rc;

    if (!was_set && setenv("UV_THREADPOOL_SIZE", POOL_THREADS, 1) < 0)
        return -errno;
    rc = uv_queue_work(loop, &first, no_work, NULL);
    if (!was_set)
        unsetenv("UV_THREADPOOL_SIZE");
    return rc;
}

int hy_web_serve(const struct hy_web_settings *settings, struct hy_err *err)
{
    uv_loop_t loop;
    struct hy_web web = {.settings = settings, .loop = &loop};
    int rc = uv_loop_init(&loop);

    if (rc == 0)
        rc = start_pool(&loop);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot start the server");
    signal(SIGPIPE, SIG_IGN); /* libuv requires it */
    limit_malloc();
    hy_list_init(&web.connections.all);
    hy_apps_init(&web.apps, &web);
    rc = uv_mutex_init(&web.stores.mutex);
    if (rc == 0 && (rc = init_projects(&web)) < 0)
        uv_mutex_destroy(&web.stores.mutex);
    if (rc < 0) {
        uv_loop_close(&loop);
        return hy_err_sys(err, rc, "cannot start the server");
    }
    rc = start(&web, err);
    if (rc < 0)
        stop(&web);
    uv_run(&loop, UV_RUN_DEFAULT);
    close_stores(&web.stores);
    free_projects(&web.projects);
    SSL_CTX_free(web.tls);
    uv_loop_close(&loop);
    return rc;
}
