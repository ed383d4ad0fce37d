/* SPDX-License-Identifier: Apache-2.0 */
/* One trial: its attempts and reported values. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "view/view.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/server.h"

/* ---- the trial ------------------------------------------------------------------------------- */

static int take_trial(void *arg, const struct hy_trial_row *row)
{
    struct hy_found_trial *f = arg;
    Hy__TrialView view;

    hy_trial_view(row, &view);
    f->is_over = hy_trial_is_over(row->state);
    f->dir = hy_strdup(row->dir);
    f->json = hy_json_trial(&view, f->metric);
    return f->dir && f->json ? 0 : -ENOMEM;
}

void hy_found_trial_done(struct hy_found_trial *f)
{
    json_decref(f->json);
    free(f->dir);
}

int hy_api_find_trial(struct hy_exchange *x, struct hy_store *s, const struct hy_run_info *r,
                      struct hy_found_trial *ret)
{
    struct hy_err err = {0};
    uint64_t number;
    int rc;

    if (hy_parse_u64(x->segments[1], &number) < 0 || number == 0 || number > INT64_MAX) {
        hy_reply_error(x, 404, "'%s' is not the number of a trial", x->segments[1]);
        return -ENOENT;
    }
    *ret = (struct hy_found_trial){.metric = r->row.metric};
    rc = hy_store_trial_each(s, r->row.id, (int64_t)number, HY_TRIALS_BY_NUMBER, 0, 0, take_trial, ret, &err);
    if (rc < 0) {
        hy_found_trial_done(ret);
        if (!err.code)
            hy_err_oom(&err);
        hy_reply_failure(x, &err);
        return rc;
    }
    ret->number = (int64_t)number;
    return 0;
}

/* ---- GET /runs/RUN/trials/TRIAL ---------------------------------------------------------------- */

static json_t *gpu_list(uint64_t mask)
{
    json_t *list = json_array();

    for (int i = 0; i < 64 && list; i++)
        if (mask >> i & 1 && hy_json_append(list, json_integer(i)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static int add_attempt(void *arg, const struct hy_attempt_row *a)
{
    json_t *o = json_object();
    int rc = 0;

    rc |= hy_json_set(o, "attempt", json_integer(a->number));
    rc |= hy_json_set(o, "state", hy_json_text(hy_attempt_state_name(a->state)));
    rc |= hy_json_set(o, "agent", hy_json_text(a->agent));
    rc |= hy_json_set(o, "host", hy_json_text(a->host));
    rc |= hy_json_set(o, "exit_code", json_integer(a->exit_code));
    rc |= hy_json_set(o, "message", hy_json_text(a->message));
    rc |= hy_json_set(o, "detail", hy_json_text(a->detail));
    rc |= hy_json_set(o, "started", json_integer(a->started));
    rc |= hy_json_set(o, "ended", json_integer(a->ended));
    rc |= hy_json_set(o, "cpu_ms", json_integer(a->cpu_ms));
    rc |= hy_json_set(o, "peak_memory", json_integer(a->peak_memory));
    rc |= hy_json_set(o, "queued", json_integer(a->queued));
    rc |= hy_json_set(o, "held", hy_json_text(a->held));
    rc |= hy_json_set(o, "begun", json_integer(a->begun));
    rc |= hy_json_set(o, "gpus", gpu_list(a->gpus));
    rc |= hy_json_set(o, "usage", json_null());
    if (rc < 0) {
        json_decref(o);
        return -ENOMEM;
    }
    return hy_json_append(arg, o);
}

static int add_usage(void *arg, const struct hy_usage_row *u)
{
    json_t *attempt;
    size_t i;

    json_array_foreach((json_t *)arg, i, attempt)
    {
        if (json_integer_value(json_object_get(attempt, "attempt")) == u->attempt)
            return hy_json_set(attempt, "usage", hy_api_usage_json(u));
    }
    return 0;
}

/* {"accuracy": {"step": […], "value": […], "time": […]}, …}, of all attempts in order */
static int add_metric(void *arg, const struct hy_metric_row *m)
{
    json_t *all = arg, *one = json_object_get(all, m->name);

    if (!one) {
        one = json_pack("{s:[],s:[],s:[],s:[]}", "attempt", "step", "value", "time");
        if (!one || json_object_set_new(all, m->name, one) < 0)
            return -ENOMEM;
    }
    if (hy_json_append(json_object_get(one, "attempt"), json_integer(m->attempt)) < 0 ||
        hy_json_append(json_object_get(one, "step"), m->step >= 0 ? json_integer(m->step) : json_null()) < 0 ||
        hy_json_append(json_object_get(one, "value"), hy_json_number(m->value)) < 0 ||
        hy_json_append(json_object_get(one, "time"), json_integer(m->time)) < 0)
        return -ENOMEM;
    return 0;
}

static int add_details(struct hy_store *s, const struct hy_run_info *r, struct hy_found_trial *f, struct hy_err *err)
{
    json_t *attempts = json_array(), *metrics = json_object();
    int rc = json_object_set_new(f->json, "attempts", attempts) | json_object_set_new(f->json, "metrics", metrics) |
             json_object_set_new(f->json, "output", hy_api_output_sizes(r, f));

    rc = rc < 0 ? hy_err_oom(err) : hy_store_attempt_each(s, r->row.id, f->number, add_attempt, attempts, err);
    if (rc == 0)
        rc = hy_store_usage_each(s, r->row.id, f->number, add_usage, attempts, err);
    if (rc == 0)
        rc = hy_store_metric_each(s, r->row.id, f->number, add_metric, metrics, err);
    return rc < 0 && !err->code ? hy_err_oom(err) : rc;
}

void hy_api_trial(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    struct hy_err err = {0};
    struct hy_found_trial f;

    if (hy_api_find_run(x, &u, &r) < 0 || hy_api_find_trial(x, u.store, &r, &f) < 0)
        return;
    if (add_details(u.store, &r, &f, &err) < 0)
        hy_reply_failure(x, &err);
    else
        hy_reply_json(x, json_incref(f.json));
    hy_found_trial_done(&f);
}
