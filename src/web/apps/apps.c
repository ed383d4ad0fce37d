/* SPDX-License-Identifier: Apache-2.0 */
#include "web/apps/apps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/string_list.h"
#include "base/text.h"
#include "web/apps/app_process.h"
#include "web/server.h"
#include "web/session.h"

#define APPS_MAX 16
#define PROBE_MS 100    /* between checks whether a starting app listens */
#define CHECK_MS 5000   /* between checks whether an app is unused */
#define START_MS 120000 /* for an app to listen */
#define TOKEN_VARIABLE "HOPYARD_APP_TOKEN"

enum app_state { STARTING, READY, FAILED };

struct hy_app {
    struct hy_list link;
    struct hy_apps *apps;
    uint64_t id;
    char *kind, *project, *key, *socket, *prefix;
    json_t *details;
    char token[HY_SECRET_SIZE];
    enum app_state state;
    char *message; /* why it has failed */
    int64_t idle_ms, started_ms, used_ms;
    struct hy_app_process *process; /* NULL: it has ended */
    bool is_forgotten; /* not in the list any more; freed with its process */
};

static void check_all(uv_timer_t *t);

/* ---- the end ---------------------------------------------------------------------------------- */

static void free_app(struct hy_app *a)
{
    if (a->socket && unlink(a->socket) < 0 && errno != ENOENT)
        hy_debug("cannot remove a socket path=%s why=%s", a->socket, strerror(errno));
    free(a->kind);
    free(a->project);
    free(a->key);
    free(a->socket);
    free(a->prefix);
    free(a->message);
    json_decref(a->details);
    free(a);
}

static void forget(struct hy_app *a)
{
    if (a->is_forgotten)
        return;
    a->is_forgotten = true;
    hy_list_remove(&a->link);
    a->apps->count--;
}

void hy_app_end(struct hy_app *a)
{
    forget(a);
    hy_proxies_close(&a->apps->proxies, a);
    if (a->process)
        hy_app_process_stop(a->process);
    else
        free_app(a);
}

static void on_process_end(void *arg, const char *why)
{
    struct hy_app *a = arg;

    a->process = NULL;
    if (a->is_forgotten) {
        free_app(a);
        return;
    }
    if (!a->message)
        a->message = hy_strdup(why); /* NULL when out of memory: no reason is shown */
    a->state = FAILED;
    a->used_ms = hy_clock_ms();
}

void hy_apps_close(struct hy_apps *apps)
{
    if (apps->is_closing || !apps->web)
        return;
    apps->is_closing = true;
    while (!hy_list_empty(&apps->all))
        hy_app_end(hy_container(apps->all.next, struct hy_app, link));
    hy_proxies_close(&apps->proxies, NULL);
    uv_close((uv_handle_t *)&apps->timer, NULL);
}

/* ---- time --------------------------------------------------------------------------------------- */

static bool listens(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    hy_cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || strlen(path) >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path, path, strlen(path));
    return connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
}

static void fail(struct hy_app *a, const char *why)
{
    a->message = hy_strdup(why);
    a->state = FAILED;
    if (a->process)
        hy_app_process_stop(a->process);
}

static void check(struct hy_app *a, int64_t now)
{
    if (hy_proxies_has(&a->apps->proxies, a))
        a->used_ms = now;
    if (a->state == STARTING && listens(a->socket)) {
        a->state = READY;
        a->used_ms = now;
    } else if (a->state == STARTING && now - a->started_ms > START_MS) {
        fail(a, "it did not start within two minutes");
    } else if (a->state != STARTING && a->idle_ms && now - a->used_ms > a->idle_ms) {
        hy_app_end(a);
    }
}

/* Checks often while an app is starting, rarely while one is running, otherwise not at all. */
static void set_timer(struct hy_apps *apps)
{
    bool is_starting = false;

    hy_list_each(it, &apps->all)
        is_starting |= hy_container(it, struct hy_app, link)->state == STARTING;
    if (hy_list_empty(&apps->all))
        uv_timer_stop(&apps->timer);
    else
        uv_timer_start(&apps->timer, check_all, is_starting ? PROBE_MS : CHECK_MS, 0); /* cannot fail */
}

static void check_all(uv_timer_t *t)
{
    struct hy_apps *apps = t->data;
    int64_t now = hy_clock_ms();

    hy_list_each(it, &apps->all)
        check(hy_container(it, struct hy_app, link), now);
    set_timer(apps);
}

void hy_apps_init(struct hy_apps *apps, struct hy_web *web)
{
    *apps = (struct hy_apps){.web = web};
    hy_list_init(&apps->all);
    hy_list_init(&apps->proxies.all);
    uv_timer_init(web->loop, &apps->timer); /* cannot fail */
    apps->timer.data = apps;
}

/* ---- start ---------------------------------------------------------------------------------------- */

static struct hy_app *find_same(struct hy_apps *apps, const struct hy_app_spec *spec)
{
    hy_list_each(it, &apps->all) {
        struct hy_app *a = hy_container(it, struct hy_app, link);

        if (strcmp(a->kind, spec->kind) == 0 && strcmp(a->project, spec->project) == 0 &&
            strcmp(a->key, spec->key) == 0)
            return a;
    }
    return NULL;
}

/* Ends a failed app, or else the one that has been unused for longest, if it may be ended. */
static bool make_room(struct hy_apps *apps)
{
    struct hy_app *oldest = NULL;

    hy_list_each(it, &apps->all) {
        struct hy_app *a = hy_container(it, struct hy_app, link);

        if (a->state == FAILED || (a->state == READY && a->idle_ms && !hy_proxies_has(&apps->proxies, a)))
            if (!oldest || (a->state == FAILED && oldest->state != FAILED) || a->used_ms < oldest->used_ms)
                oldest = a;
    }
    if (oldest)
        hy_app_end(oldest);
    return oldest;
}

static int name_files(struct hy_app *a, struct hy_err *err)
{
    hy_cleanup_free char *dir = hy_runtime_dir(err);

    if (!dir)
        return err->code;
    a->socket = hy_asprintf("%s/app-%ld-%llu.sock", dir, (long)getpid(), (unsigned long long)a->id);
    a->prefix = hy_asprintf("/%s/%llu/", a->kind, (unsigned long long)a->id);
    if (!a->socket || !a->prefix)
        return hy_err_oom(err);
    if (strlen(a->socket) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return hy_err_set(err, -ENAMETOOLONG, "the path of the socket '%s' is too long; set a shorter $XDG_RUNTIME_DIR",
                          a->socket);
    return 0;
}

static int new_app(struct hy_apps *apps, const struct hy_app_spec *spec, struct hy_app **ret, struct hy_err *err)
{
    struct hy_app *a = hy_calloc(1, sizeof *a);
    int rc;

    if (!a)
        return hy_err_oom(err);
    a->apps = apps;
    a->id = ++apps->last_id;
    a->kind = hy_strdup(spec->kind);
    a->project = hy_strdup(spec->project);
    a->key = hy_strdup(spec->key);
    a->details = spec->details ? json_deep_copy(spec->details) : json_null();
    a->idle_ms = spec->idle_ms;
    a->started_ms = a->used_ms = hy_clock_ms();
    hy_list_init(&a->link);
    rc = a->kind && a->project && a->key && a->details ? name_files(a, err) : hy_err_oom(err);
    if (rc == 0 && hy_secret_new(a->token) < 0)
        rc = hy_err_set(err, -EIO, "cannot get random numbers");
    if (rc < 0)
        free_app(a);
    else
        *ret = a;
    return rc;
}

/* "hopyard", the arguments, and where it listens; ends with NULL. */
static int build_argv(const struct hy_app *a, const char *const *args, struct hy_string_list *argv)
{
    int rc = hy_string_list_add(argv, "hopyard");

    for (; *args && rc == 0; args++)
        rc = hy_string_list_add(argv, *args);
    if (rc == 0)
        rc = hy_string_list_take(argv, hy_asprintf("--sock=%s", a->socket));
    if (rc == 0)
        rc = hy_string_list_take(argv, hy_asprintf("--prefix=%s", a->prefix));
    return rc < 0 ? rc : hy_array_grow(argv->items, argv->count);
}

static int build_environment(const struct hy_app *a, struct hy_string_list *env)
{
    int rc = 0;

    for (char **e = environ; *e && rc == 0; e++)
        if (strncmp(*e, TOKEN_VARIABLE "=", sizeof TOKEN_VARIABLE) != 0)
            rc = hy_string_list_add(env, *e);
    if (rc == 0)
        rc = hy_string_list_take(env, hy_asprintf(TOKEN_VARIABLE "=%s", a->token));
    return rc < 0 ? rc : hy_array_grow(env->items, env->count);
}

static int start_process(struct hy_app *a, const char *const *args, struct hy_err *err)
{
    hy_cleanup_string_list struct hy_string_list argv = {0}, env = {0};

    if (build_argv(a, args, &argv) < 0 || build_environment(a, &env) < 0)
        return hy_err_oom(err);
    argv.items[argv.count] = env.items[env.count] = NULL;
    return hy_app_process_start(a->apps->web->loop, argv.items, env.items, on_process_end, a, &a->process, err);
}

int hy_app_start(struct hy_web *web, const struct hy_app_spec *spec, struct hy_app **ret, struct hy_err *err)
{
    struct hy_apps *apps = &web->apps;
    struct hy_app *a = find_same(apps, spec);
    int rc;

    if (a && a->state != FAILED) {
        *ret = a;
        return 0;
    }
    if (a)
        hy_app_end(a);
    if (apps->count >= APPS_MAX && !make_room(apps))
        return hy_err_set(err, -EBUSY, "%d apps are running; end one first", APPS_MAX);
    rc = new_app(apps, spec, &a, err);
    if (rc < 0)
        return rc;
    rc = start_process(a, spec->args, err);
    if (rc < 0) {
        free_app(a);
        return rc;
    }
    hy_list_push(&apps->all, &a->link);
    apps->count++;
    set_timer(apps);
    *ret = a;
    return 0;
}

/* ---- lookup ------------------------------------------------------------------------------------------- */

struct hy_app *hy_app_with_id(struct hy_web *web, uint64_t id)
{
    hy_list_each(it, &web->apps.all) {
        struct hy_app *a = hy_container(it, struct hy_app, link);

        if (a->id == id)
            return a;
    }
    return NULL;
}

struct hy_app *hy_app_find(struct hy_web *web, const char *project, uint64_t id)
{
    struct hy_app *a = hy_app_with_id(web, id);

    return a && strcmp(a->project, project) == 0 ? a : NULL;
}

struct hy_app *hy_app_at(struct hy_web *web, const char *path)
{
    hy_list_each(it, &web->apps.all) {
        struct hy_app *a = hy_container(it, struct hy_app, link);
        size_t n = strlen(a->prefix) - 1;

        if (strncmp(path, a->prefix, n) == 0 && (path[n] == '/' || path[n] == '\0'))
            return a;
    }
    return NULL;
}

json_t *hy_app_json(const struct hy_app *a)
{
    static const char *const names[] = {[STARTING] = "starting", [READY] = "ready", [FAILED] = "failed"};

    return json_pack("{s:I, s:s, s:s, s:s, s:s?, s:O}", "id", (json_int_t)a->id, "kind", a->kind, "key", a->key,
                     "state", names[a->state], "message", a->message, "details", a->details);
}

json_t *hy_apps_json(struct hy_web *web, const char *project)
{
    json_t *array = json_array();

    hy_list_each(it, &web->apps.all) {
        struct hy_app *a = hy_container(it, struct hy_app, link);

        if (strcmp(a->project, project) == 0 && json_array_append_new(array, hy_app_json(a)) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

uint64_t hy_app_id(const struct hy_app *a)
{
    return a->id;
}

const char *hy_app_prefix(const struct hy_app *a)
{
    return a->prefix;
}

void hy_app_touch(struct hy_app *a)
{
    a->used_ms = hy_clock_ms();
}

int hy_app_check(const struct hy_app *a, struct hy_err *err)
{
    if (a->state == STARTING)
        return hy_err_set(err, -EAGAIN, "it is still starting");
    if (a->state == FAILED)
        return hy_err_set(err, -ECHILD, "it has ended: %s", a->message ? a->message : "out of memory");
    return 0;
}

int hy_app_proxy(struct hy_app *a, const char *scheme, const char *page, const struct hy_http_request *r,
                 const struct hy_buf *rest, struct hy_stream *browser)
{
    const struct hy_proxy_target target = {
        .owner = a, .socket = a->socket, .token = a->token, .scheme = scheme, .page = page};

    a->used_ms = hy_clock_ms();
    return hy_proxy_start(a->apps->web->loop, &a->apps->proxies, &target, r, rest, browser);
}
