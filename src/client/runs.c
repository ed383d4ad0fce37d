/* SPDX-License-Identifier: Apache-2.0 */
#include "client/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "driver/driver.h"
#include "wire/wire.h"

static const char *project_named(const char *given)
{
    const char *directory = given ? given : getenv("HOPYARD_PROJECT");

    return directory && *directory ? directory : ".";
}

char *hy_project_make(const char *given, struct hy_err *err)
{
    const char *directory = project_named(given);
    bool is_missing = !strstr(directory, "://") && access(directory, F_OK) < 0 && errno == ENOENT;
    int rc = is_missing ? hy_mkdirs(directory, 0777) : 0;

    if (rc < 0 && rc != -ENOTDIR) {
        hy_err_sys(err, rc, "cannot create the project directory '%s'", directory);
        return NULL;
    }
    return hy_project_path(given, err);
}

char *hy_project_path(const char *given, struct hy_err *err)
{
    const char *directory = project_named(given);
    struct stat st;
    char *path;

    if (strstr(directory, "://"))
        return hy_store_local_dir(directory, err);
    path = realpath(directory, NULL);
    if (!path) {
        hy_err_sys(err, -errno, "cannot use the project directory '%s'", directory);
        err->code = -EINVAL;
        return NULL;
    }
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
        hy_err_set(err, -EINVAL, "the project '%s' is not a directory; choose another project", directory);
        free(path);
        return NULL;
    }
    return path;
}

void hy_store_close_at(struct hy_store **s)
{
    hy_store_close(*s);
}

static void own(const char **text, int *rc)
{
    if (!*text || *rc < 0)
        *text = NULL;
    else if (!(*text = hy_strdup(*text)))
        *rc = -ENOMEM;
}

static int copy_run(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts)
{
    struct hy_run_info *r = arg;
    int rc = 0;

    r->row = *row;
    r->counts = *counts;
    own(&r->row.name, &rc);
    own(&r->row.app_id, &rc);
    own(&r->row.logdir, &rc);
    own(&r->row.command, &rc);
    own(&r->row.metric, &rc);
    own(&r->row.versions, &rc);
    own(&r->row.git, &rc);
    own(&r->row.message, &rc);
    own(&r->row.kind, &rc);
    own(&r->row.engine, &rc);
    own(&r->row.tags, &rc);
    own(&r->row.note, &rc);
    if (row->spec)
        r->spec = hy__run_spec__unpack(&hy_proto_memory, row->spec_len, row->spec);
    r->row.spec = NULL;
    return rc;
}

void hy_run_info_done(struct hy_run_info *r)
{
    const char *texts[] = {r->row.name, r->row.app_id,  r->row.logdir, r->row.command, r->row.metric, r->row.versions,
                           r->row.git,  r->row.message, r->row.kind,   r->row.engine,  r->row.tags,   r->row.note};

    for (size_t i = 0; i < HY_COUNT(texts); i++)
        free((void *)texts[i]);
    free(r->shown);
    if (r->spec)
        hy__run_spec__free_unpacked(r->spec, &hy_proto_memory);
    *r = (struct hy_run_info){0};
}

int hy_run_info_find(struct hy_store *s, const char *text, struct hy_run_info *ret, struct hy_err *err)
{
    int64_t id;
    bool alive;
    int rc = hy_store_run_find(s, text, &id, err);

    *ret = (struct hy_run_info){0};
    if (rc < 0)
        return rc;
    alive = hy_store_run_alive(s, id) > 0; /* before its state, which a driver that has exited has committed */
    rc = hy_store_run_each(s, id, copy_run, ret, err);
    if (rc < 0) {
        hy_run_info_done(ret);
        return rc == -ENOMEM ? hy_err_oom(err) : rc;
    }
    ret->alive = alive;
    ret->shown = ret->row.logdir ? hy_store_display_path(s, ret->row.logdir) : NULL;
    return 0;
}

struct runs_walk {
    int64_t *dead; /* runs in state running whose driver was not running, before the rows were read */
    size_t dead_count;
    struct hy_store *store;
    hy_run_alive_fn *each;
    void *arg;
};

static int note_running(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts)
{
    struct runs_walk *w = arg;

    (void)counts;
    if (row->state != HY_RUN_RUNNING || hy_store_run_alive(w->store, row->id) > 0)
        return 0;
    if (hy_array_grow(w->dead, w->dead_count) < 0)
        return -ENOMEM;
    w->dead[w->dead_count++] = row->id;
    return 0;
}

static int give_run(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts)
{
    struct runs_walk *w = arg;
    bool alive = row->state == HY_RUN_RUNNING;

    for (size_t i = 0; i < w->dead_count && alive; i++)
        alive = w->dead[i] != row->id;
    return w->each(w->arg, row, counts, alive);
}

/* Locks are looked at before the rows are read: a driver commits the last state of its run before it exits. */
int hy_runs_each(struct hy_store *s, hy_run_alive_fn *each, void *arg, struct hy_err *err)
{
    struct runs_walk w = {.store = s, .each = each, .arg = arg};
    int rc = hy_store_run_each(s, 0, note_running, &w, err);

    if (rc == 0)
        rc = hy_store_run_each(s, 0, give_run, &w, err);
    else if (rc == -ENOMEM)
        hy_err_oom(err);
    free(w.dead);
    return rc;
}

const char *hy_run_state_text(const struct hy_run_row *row, bool alive)
{
    if (row->state == HY_RUN_RUNNING && !alive)
        return "interrupted";
    return row->state == HY_RUN_RUNNING && row->message && *row->message ? "waiting" : hy_run_state_name(row->state);
}

void hy_trial_view(const struct hy_trial_row *row, Hy__TrialView *view)
{
    int64_t until = row->ended ? row->ended : hy_clock_wall_ms();

    hy__trial_view__init(view);
    view->number = (uint64_t)row->number;
    view->params = (char *)(row->params ? row->params : "");
    view->state = (char *)hy_trial_state_name(row->state);
    view->has_value = row->has_value;
    view->value = row->value;
    view->elapsed_ms = until > row->started ? until - row->started : 0;
    view->message = (char *)(row->message ? row->message : "");
    view->dir = (char *)(row->dir ? row->dir : "");
    view->attempt = (uint32_t)row->attempts;
    view->step = -1;
}

Hy__TrialView *hy_trial_view_new(const struct hy_trial_row *row)
{
    hy_cleanup_free uint8_t *bytes = NULL;
    Hy__TrialView view, *copy = NULL;

    hy_trial_view(row, &view);
    bytes = hy_malloc(hy__trial_view__get_packed_size(&view));
    if (bytes)
        copy = hy__trial_view__unpack(&hy_proto_memory, hy__trial_view__pack(&view, bytes), bytes);
    return copy;
}

static int keep_best(void *arg, const struct hy_trial_row *row)
{
    Hy__TrialView **best = arg;

    *best = hy_trial_view_new(row);
    return *best ? 0 : -ENOMEM;
}

/* Sets a text of a new message; an empty value keeps protobuf-c's static empty string. */
static int text(char **field, const char *value)
{
    char *copy;

    if (!value || !*value)
        return 0;
    copy = hy_strdup(value);
    if (!copy)
        return -ENOMEM;
    *field = copy;
    return 0;
}

static int fill_update(struct hy_store *s, const struct hy_run_info *r, Hy__Update *u, struct hy_err *err)
{
    int64_t until = r->row.ended ? r->row.ended : hy_clock_wall_ms();
    int rc = 0;

    u->run = r->row.id;
    rc |= text(&u->name, r->row.name);
    rc |= text(&u->state, hy_run_state_text(&r->row, r->alive));
    rc |= text(&u->metric, r->row.metric);
    rc |= text(&u->message, r->row.message);
    rc |= text(&u->logdir, r->shown);
    if (rc < 0)
        return hy_err_oom(err);
    u->maximize = r->row.maximize;
    u->ranks = (uint32_t)r->row.ranks;
    u->resume = hy_run_resume(r->spec);
    u->total = r->row.total;
    u->done = (uint64_t)r->counts.done;
    u->failed = (uint64_t)r->counts.failed;
    u->stopped = (uint64_t)r->counts.stopped;
    u->pruned = (uint64_t)r->counts.pruned;
    u->paused = (uint64_t)r->counts.paused;
    u->running_count = (uint64_t)r->counts.running;
    u->elapsed_ms = until - r->row.created;
    u->left_ms = -1;
    u->last = true;
    u->ended_seq = u->notes_until = INT64_MAX; /* everything in the store */
    if (r->counts.best_trial && r->row.metric)
        return hy_store_trial_each(s, r->row.id, r->counts.best_trial, HY_TRIALS_BY_NUMBER, 0, 1, keep_best, &u->best,
                                   err);
    return 0;
}

int hy_run_info_update(struct hy_store *s, const struct hy_run_info *r, Hy__Update **ret, struct hy_err *err)
{
    Hy__Update *u = hy_malloc(sizeof *u);
    int rc;

    if (!u)
        return hy_err_oom(err);
    hy__update__init(u);
    rc = fill_update(s, r, u, err);
    if (rc < 0) {
        hy__update__free_unpacked(u, &hy_proto_memory);
        return rc;
    }
    *ret = u;
    return 0;
}

char *hy_driver_log(struct hy_store *s, int64_t run)
{
    return hy_asprintf("%s/run-%lld.log", hy_store_dir_path(s), (long long)run);
}
