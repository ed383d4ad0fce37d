/* SPDX-License-Identifier: Apache-2.0 */
/* Runs and their trials as JSON. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "client/client.h"
#include "view/view.h"
#include "web/api.h"
#include "web/api_util.h"
#include "web/server.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 10000

/* ---- GET /runs -------------------------------------------------------------------------------------- */

struct list {
    struct hy_store *store;
    json_t *array;
};

static int add_run(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts, bool alive)
{
    struct list *l = arg;
    hy_cleanup_free char *shown = row->logdir ? hy_store_display_path(l->store, row->logdir) : NULL;

    return hy_json_append(l->array, hy_json_run(row, counts, alive, shown, NULL));
}

void hy_api_runs(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {.web = x->web};
    struct hy_err err = {0};
    struct list l = {.array = json_array()};
    int rc = l.array ? hy_web_store(x->web, &u.store, &err) : hy_err_oom(&err);

    l.store = u.store;
    if (rc == 0)
        rc = hy_runs_each(u.store, add_run, &l, &err);
    if (rc < 0 && rc != -ENOENT) { /* -ENOENT: this project has no runs yet */
        json_decref(l.array);
        hy_reply_failure(x, &err);
        return;
    }
    hy_reply_json(x, json_pack("{s:s,s:o}", "project", x->web->settings->project, "runs", l.array));
}

/* ---- GET /runs/RUN ------------------------------------------------------------------------------------- */

static int add_note(void *arg, const struct hy_note_row *note)
{
    return hy_json_append(arg, json_pack("{s:I,s:I,s:o}", "seq", (json_int_t)note->seq, "time", (json_int_t)note->time,
                                         "text", hy_json_text(note->text)));
}

void hy_api_run(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {.web = x->web};
    hy_cleanup_run_info struct hy_run_info r = {0};
    struct hy_err err = {0};
    json_t *o, *notes;
    int rc;

    if (hy_api_find_run(x, &u, &r) < 0)
        return;
    o = hy_json_run(&r.row, &r.counts, r.alive, r.shown, NULL);
    notes = json_array();
    rc = o && notes ? hy_store_note_each(u.store, r.row.id, 0, add_note, notes, &err) : hy_err_oom(&err);
    if (rc == 0 && json_object_set(o, "notes", notes) < 0)
        rc = hy_err_oom(&err);
    json_decref(notes);
    if (rc == 0) {
        hy_reply_json(x, o);
    } else {
        json_decref(o);
        hy_reply_failure(x, &err);
    }
}

/* ---- GET /runs/RUN/trials -------------------------------------------------------------------------------- */

struct trials {
    const char *metric;
    json_t *array;
};

static int add_trial(void *arg, const struct hy_trial_row *row)
{
    struct trials *t = arg;
    Hy__TrialView view;

    hy_trial_view(row, &view);
    return hy_json_append(t->array, hy_json_trial(&view, t->metric));
}

static int order(struct hy_exchange *x, enum hy_trial_order *ret)
{
    hy_cleanup_free char *text = hy_http_parameter(x->request.query, "sort");

    *ret = text && strcmp(text, "value") == 0 ? HY_TRIALS_BY_VALUE : HY_TRIALS_BY_NUMBER;
    if (!text || *ret == HY_TRIALS_BY_VALUE || strcmp(text, "number") == 0)
        return 0;
    hy_reply_error(x, 400, "'sort' is number or value, not '%s'", text);
    return -EINVAL;
}

void hy_api_trials(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {.web = x->web};
    hy_cleanup_run_info struct hy_run_info r = {0};
    uint64_t offset = 0, limit = LIMIT_DEFAULT;
    struct trials t = {0};
    enum hy_trial_order by;
    struct hy_err err = {0};
    int rc;

    if (hy_api_number(x, "offset", INT64_MAX, &offset) < 0 || hy_api_number(x, "limit", LIMIT_MAX, &limit) < 0 ||
        order(x, &by) < 0 || hy_api_find_run(x, &u, &r) < 0)
        return;
    t = (struct trials){r.row.metric, json_array()};
    rc = !t.array ? hy_err_oom(&err)
         : limit == 0
             ? 0
             : hy_store_trial_each(u.store, r.row.id, 0, by, (int64_t)offset, (int64_t)limit, add_trial, &t, &err);
    if (rc < 0) {
        json_decref(t.array);
        hy_reply_failure(x, &err);
        return;
    }
    hy_reply_json(x, json_pack("{s:I,s:o}", "count",
                               (json_int_t)(r.counts.running + r.counts.done + r.counts.failed + r.counts.stopped),
                               "trials", t.array));
}

/* ---- POST /runs/RUN/stop -------------------------------------------------------------------------------------- */

void hy_api_stop(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {.web = x->web};
    hy_cleanup_run_info struct hy_run_info r = {0};
    hy_cleanup_close int fd = -1;
    struct hy_err err = {0};
    int rc;

    if (hy_api_find_run(x, &u, &r) < 0)
        return;
    fd = rc = hy_client_connect(u.store, r.row.id, &err);
    if (rc >= 0 && (rc = hy_client_stop(fd, false)) < 0)
        hy_err_sys(&err, rc, "cannot stop run %lld", (long long)r.row.id);
    if (rc < 0)
        hy_reply_error(x, 409, "%s", err.text);
    else
        hy_reply_bytes(x, 204, NULL, "", 0);
}

/* ---- GET /events ------------------------------------------------------------------------------------------------ */

#define LOOK_MS 250
#define NO_VERSION (-2)
#define PING_LOOKS 60 /* looks without a change until a line keeps the connection alive */

/* Sends the store's version whenever it has changed; the page then asks for what it shows. */
struct events {
    struct hy_reply_source source;
    struct hy_store_use use;
    int64_t version;
    int looks;
};

static int read_events(struct hy_reply_source *s, struct hy_buf *out)
{
    struct events *e = hy_container(s, struct events, source);
    int64_t version = -1; /* there is no store yet */
    int rc = e->use.store ? hy_store_check_files(e->use.store, NULL) : -ESTALE;

    if (rc < 0) {
        hy_store_close(hy_take(e->use.store));
        rc = hy_web_store(e->use.web, &e->use.store, NULL);
        e->version = rc == 0 ? NO_VERSION : e->version; /* versions of two connections cannot be compared */
    }
    if (rc == 0)
        rc = hy_store_version(e->use.store, &version, NULL);
    if (rc < 0 && rc != -ENOENT && rc != -ENODATA)
        return rc;
    if (version != e->version || ++e->looks >= PING_LOOKS) {
        const char *kind = version != e->version ? "change" : "ping";

        e->version = version;
        e->looks = 0;
        return hy_buf_printf(out, "event: %s\ndata: %lld\n\n", kind, (long long)version) < 0 ? -ENOMEM : 1;
    }
    return -EAGAIN;
}

static void close_events(struct hy_reply_source *s)
{
    struct events *e = hy_container(s, struct events, source);

    hy_store_use_done(&e->use);
    free(e);
}

void hy_api_events(struct hy_exchange *x)
{
    struct events *e = hy_calloc(1, sizeof *e);

    if (!e) {
        hy_reply_error(x, 503, "out of memory");
        return;
    }
    e->source = (struct hy_reply_source){.read = read_events, .close = close_events, .size = -1, .wait_ms = LOOK_MS};
    e->use.web = x->web;
    e->version = NO_VERSION;
    x->source = &e->source;
    hy_reply_bytes(x, 200, "text/event-stream", "", 0);
}
