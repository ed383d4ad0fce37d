/* SPDX-License-Identifier: Apache-2.0 */
/* TensorBoard and other apps: start, list, open, end. These run on the loop, which owns the apps. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/apps/apps.h"
#include "web/apps/apps_port.h"

#define RUNS_MAX 20
#define IDLE_MS (15 * 60 * 1000)

void hy_api_apps(struct hy_exchange *x)
{
    const struct hy_project *project;
    struct hy_err err = {0};

    if (hy_api_project(x, &project, &err) < 0)
        hy_reply_failure(x, &err);
    else
        hy_reply_json(x, json_pack("{s:o}", "apps", hy_apps_json(x->web, project->path)));
}

/* The app that the path names; NULL, and the reply is set. */
static struct hy_app *find_app(struct hy_exchange *x)
{
    const struct hy_project *project;
    struct hy_err err = {0};
    struct hy_app *app;
    uint64_t id;

    if (hy_api_project(x, &project, &err) < 0) {
        hy_reply_failure(x, &err);
        return NULL;
    }
    app = hy_parse_u64(x->segments[0], &id) == 0 ? hy_app_find(x->web, project->path, id) : NULL;
    if (!app)
        hy_reply_error(x, 404, "there is no app '%s'; it may have ended because it was not used", x->segments[0]);
    return app;
}

void hy_api_app(struct hy_exchange *x)
{
    struct hy_app *app = find_app(x);

    if (!app)
        return;
    hy_app_touch(app); /* a page that shows it polls it */
    hy_reply_json(x, hy_app_json(app));
}

void hy_api_app_open(struct hy_exchange *x)
{
    const char *host = hy_http_field(&x->request, "host");
    char origin[HY_ORIGIN_SIZE], ticket[HY_SECRET_SIZE];
    struct hy_app *app = find_app(x);
    struct hy_err err = {0};
    int rc;

    if (!app)
        return;
    rc = hy_app_check(app, &err);
    if (rc == 0)
        rc = hy_apps_ticket(x->web, host, hy_app_id(app), origin, ticket, &err);
    if (rc == -ECHILD)
        hy_reply_error(x, 502, "%s", err.text);
    else if (rc < 0)
        hy_reply_failure(x, &err);
    else
        hy_reply_json(x, json_pack("{s:o, s:o}", "enter", json_sprintf("%s/enter?ticket=%s", origin, ticket), "url",
                                   json_sprintf("%s%s", origin, hy_app_prefix(app))));
}

void hy_api_app_end(struct hy_exchange *x)
{
    struct hy_app *app = find_app(x);

    if (!app)
        return;
    hy_app_end(app);
    hy_reply_bytes(x, 204, NULL, "", 0);
}

/* ---- TensorBoard ------------------------------------------------------------------------------- */

/* Splits "3,5" into numbers of runs; `ret` ends with NULL. */
static int split_runs(char *text, const char *ret[RUNS_MAX + 1])
{
    char *at = text;

    for (size_t count = 0; count < RUNS_MAX; count++) {
        size_t n = strspn(at, "0123456789");

        if (n == 0 || n > 18 || (at[n] && at[n] != ','))
            return -EINVAL;
        ret[count] = at;
        ret[count + 1] = NULL;
        if (!at[n])
            return 0;
        at[n] = '\0';
        at += n + 1;
    }
    return -EINVAL;
}

static int64_t idle_ms(void)
{
#ifdef HY_FAULTS
    const char *text = getenv("HOPYARD_TEST_APP_IDLE_MS");
    uint64_t ms;

    if (text && hy_parse_u64(text, &ms) == 0)
        return (int64_t)ms;
#endif
    return IDLE_MS;
}

/* The process checks whether the runs exist: it reads the store, which must not be done on the loop. */
static int start_tensorboard(struct hy_web *web, const char *project, const char *runs, struct hy_app **ret,
                             struct hy_err *err)
{
    hy_cleanup_free char *split = hy_strdup(runs), *option = hy_asprintf("--project=%s", project);
    const char *args[RUNS_MAX + 3] = {"tensorboard", option};
    const struct hy_app_spec spec = {
        .kind = "tensorboard", .project = project, .key = runs, .args = args, .idle_ms = idle_ms()};

    if (!split || !option)
        return hy_err_oom(err);
    if (split_runs(split, args + 2) < 0)
        return hy_err_set(err, -EINVAL, "'runs' takes at most %d run numbers (3,5), not '%s'", RUNS_MAX, runs);
    return hy_app_start(web, &spec, ret, err);
}

void hy_api_tensorboard(struct hy_exchange *x)
{
    hy_cleanup_free char *runs = hy_http_parameter(x->request.query, "runs");
    const struct hy_project *project;
    struct hy_err err = {0};
    struct hy_app *app;
    int rc = hy_api_project(x, &project, &err);

    if (rc == 0)
        rc = start_tensorboard(x->web, project->path, runs ? runs : "", &app, &err);
    if (rc < 0)
        hy_reply_failure(x, &err);
    else
        hy_reply_json(x, hy_app_json(app));
}
