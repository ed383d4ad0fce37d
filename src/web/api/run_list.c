/* SPDX-License-Identifier: Apache-2.0 */
/* GET /runs */
#include "web/api/run_list.h"

#include <errno.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "client/client.h"
#include "view/view.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/server.h"

#define LIVENESS_MS 250 /* how long a run counts as running without a look at its driver */
#define JSON_MAX (256u << 20)

int hy_run_list_init(struct hy_run_list *l)
{
    *l = (struct hy_run_list){0};
    hy_buf_init(&l->json, JSON_MAX);
    return uv_mutex_init(&l->mutex);
}

void hy_run_list_done(struct hy_run_list *l)
{
    hy_store_close(l->store);
    hy_buf_done(&l->json);
    uv_mutex_destroy(&l->mutex);
}

struct listing {
    struct hy_store *store;
    json_t *runs;
    bool is_any_running;
};

static int add_run(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts, bool alive)
{
    struct listing *l = arg;
    hy_cleanup_free char *shown = row->logdir ? hy_store_display_path(l->store, row->logdir) : NULL;

    l->is_any_running |= row->state == HY_RUN_RUNNING;
    return hy_json_append(l->runs, hy_json_run(row, counts, alive, shown, NULL));
}

static int make(struct hy_run_list *list, const struct hy_project *project, struct hy_err *err)
{
    struct listing l = {.store = list->store, .runs = json_array()};
    hy_cleanup_json json_t *reply = json_pack("{s:o,s:o}", "project", hy_json_text(project->path), "runs", l.runs);
    int rc = !reply ? hy_err_oom(err) : l.store ? hy_runs_each(l.store, add_run, &l, err) : 0;

    hy_buf_clear(&list->json);
    if (rc == 0 && hy_json_append_compact(&list->json, reply) < 0)
        rc = hy_err_oom(err);
    list->until_ms = rc < 0 ? 0 : l.is_any_running ? hy_clock_ms() + LIVENESS_MS : INT64_MAX;
    return rc;
}

/* A project without a store has no runs: -ENOENT. */
static int open_store(struct hy_run_list *l, struct hy_web *web, const struct hy_project *project, struct hy_err *err)
{
    if (l->store && hy_store_check_files(l->store, NULL) == 0)
        return 0;
    hy_store_close(hy_take(l->store)); /* its files were replaced */
    l->until_ms = 0;
    return hy_web_store(web, project, &l->store, err);
}

static int update(struct hy_run_list *l, struct hy_web *web, const struct hy_project *project, struct hy_err *err)
{
    int64_t version = 0;
    int rc = open_store(l, web, project, err);

    if (rc == -ENOENT)
        return make(l, project, err);
    if (rc == 0)
        rc = hy_store_version(l->store, &version, err);
    if (rc < 0 || (version == l->version && hy_clock_ms() < l->until_ms))
        return rc;
    l->version = version; /* of before: what is committed meanwhile is another version */
    return make(l, project, err);
}

void hy_api_runs(struct hy_exchange *x)
{
    const struct hy_project *project = NULL;
    struct hy_err err = {0};
    int rc = hy_api_project(x, &project, &err);

    if (rc < 0) {
        hy_reply_failure(x, &err);
        return;
    }
    uv_mutex_lock(&project->runs->mutex);
    rc = update(project->runs, x->web, project, &err);
    if (rc < 0)
        hy_reply_failure(x, &err);
    else
        hy_reply_bytes(x, 200, "application/json", hy_buf_bytes(&project->runs->json), project->runs->json.len);
    uv_mutex_unlock(&project->runs->mutex);
}
