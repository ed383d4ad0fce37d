/* SPDX-License-Identifier: Apache-2.0 */
/* A page of a run's trials in any order. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "view/view.h"
#include "web/api/api.h"
#include "web/api/util.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 10000

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

/* sort=[-]number|value|state|time|param:NAME; -EINVAL: the reply is set. `text` keeps the name. */
static int parse_sort(struct hy_exchange *x, const char *text, struct hy_trial_page *page)
{
    static const char *const keys[] = {
        [HY_TRIAL_NUMBER] = "number", [HY_TRIAL_VALUE] = "value", [HY_TRIAL_STATE] = "state", [HY_TRIAL_TIME] = "time"};
    const char *key = text;

    page->descending = *key == '-';
    key += page->descending;
    if (strncmp(key, "param:", 6) == 0) {
        page->key = HY_TRIAL_PARAM;
        page->param = key + 6;
        return 0;
    }
    for (size_t i = 0; i < HY_COUNT(keys); i++)
        if (strcmp(key, keys[i]) == 0) {
            page->key = (enum hy_trial_key)i;
            return 0;
        }
    hy_reply_error(x, 400, "'sort' must be number, value, state, time or param:NAME, with '-' for descending, not '%s'",
                   text);
    return -EINVAL;
}

static int parse_state(struct hy_exchange *x, struct hy_trial_page *page)
{
    hy_cleanup_free char *text = hy_http_parameter(x->request.query, "state");

    if (!text)
        return 0;
    for (enum hy_trial_state s = HY_TRIAL_RUNNING; s <= HY_TRIAL_STATE_LAST; s++)
        if (strcmp(text, hy_trial_state_name(s)) == 0) {
            page->state = s;
            return 0;
        }
    hy_reply_error(x, 400, "'state' must be running, done, failed, stopped, pruned or paused, not '%s'", text);
    return -EINVAL;
}

static int parse_page(struct hy_exchange *x, const char *sort, struct hy_trial_page *page)
{
    uint64_t offset = 0, limit = LIMIT_DEFAULT;

    if (hy_api_number(x, "offset", INT64_MAX, &offset) < 0 || hy_api_number(x, "limit", LIMIT_MAX, &limit) < 0 ||
        parse_state(x, page) < 0 || (sort && parse_sort(x, sort, page) < 0))
        return -EINVAL;
    page->offset = (int64_t)offset;
    page->limit = (int64_t)limit;
    return 0;
}

void hy_api_trials(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    hy_cleanup_free char *sort = hy_http_parameter(x->request.query, "sort");
    struct hy_trial_page page = {0};
    struct trials t = {0};
    struct hy_err err = {0};
    int64_t count = 0;
    int rc;

    if (parse_page(x, sort, &page) < 0 || hy_api_find_run(x, &u, &r) < 0)
        return;
    t = (struct trials){r.row.metric, json_array()};
    rc = t.array ? hy_store_trial_page(u.store, r.row.id, &page, add_trial, &t, &count, &err) : hy_err_oom(&err);
    if (rc < 0) {
        json_decref(t.array);
        hy_reply_failure(x, &err);
        return;
    }
    hy_reply_json(x, json_pack("{s:I,s:o}", "count", (json_int_t)count, "trials", t.array));
}
