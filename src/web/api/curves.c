/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reported values of several trials, for one chart.
 *
 *     {"names": ["loss", "acc"], "name": "loss",
 *      "curves": [{"trial": 3, "step": [0, 10], "value": [2.1, 1.8], "time": [1700000000123, 1700000004567]}]}
 *
 * The trials are those of ?trials=1,2,3, or the best ?best=10. Curves are thinned to about ?points=300.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/string_list.h"
#include "base/text.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/api/json_cells.h"

#define TRIALS_MAX 100
#define BEST_DEFAULT 10
#define POINTS_MAX 2000
#define POINTS_DEFAULT 300

struct trials {
    int64_t numbers[TRIALS_MAX];
    size_t count;
};

/* ---- selection ---------------------------------------------------------------------------------- */

static int parse_trials(struct hy_exchange *x, char *list, struct trials *ret)
{
    char *word;

    while ((word = strsep(&list, ","))) {
        uint64_t number;

        if (hy_parse_u64(word, &number) < 0 || number > INT64_MAX || ret->count == TRIALS_MAX) {
            hy_reply_error(x, 400, "'trials' takes at most %d trial numbers (1,2,3); check '%s'", TRIALS_MAX, word);
            return -EINVAL;
        }
        ret->numbers[ret->count++] = (int64_t)number;
    }
    return 0;
}

static int take_number(void *arg, const struct hy_trial_row *t)
{
    struct trials *all = arg;

    all->numbers[all->count++] = t->number;
    return 0;
}

/* The trials that the query selects; otherwise -Exxx, and the reply is set. */
static int find_trials(struct hy_exchange *x, struct hy_store *s, int64_t run, struct trials *ret)
{
    hy_cleanup_free char *list = hy_http_parameter(x->request.query, "trials");
    uint64_t best = BEST_DEFAULT;
    struct hy_err err = {0};
    int rc;

    if (list)
        return parse_trials(x, list, ret);
    if (hy_api_number(x, "best", TRIALS_MAX, &best) < 0)
        return -EINVAL;
    if (best == 0)
        return 0;
    rc = hy_store_trial_each(s, run, 0, HY_TRIALS_BY_VALUE, 0, (int64_t)best, take_number, ret, &err);
    if (rc < 0)
        hy_reply_failure(x, &err);
    return rc;
}

static int take_name(void *arg, const char *name)
{
    return hy_string_list_has(arg, name) ? 0 : hy_string_list_add(arg, name);
}

/* The requested name, otherwise the run's metric, otherwise the first. */
static const char *chosen_name(const char *requested, const char *metric, const struct hy_string_list *names)
{
    if (requested)
        return requested;
    if (metric && hy_string_list_has(names, metric))
        return metric;
    return names->count ? names->items[0] : NULL;
}

/* ---- the reply ------------------------------------------------------------------------------------ */

struct curve {
    struct hy_cells step, value, time;
};

static void curve_init(struct curve *c)
{
    hy_cells_init(&c->step);
    hy_cells_init(&c->value);
    hy_cells_init(&c->time);
}

static void curve_done(struct curve *c)
{
    hy_cells_done(&c->step);
    hy_cells_done(&c->value);
    hy_cells_done(&c->time);
}

static int add_point(void *arg, const struct hy_metric_row *m)
{
    struct curve *c = arg;

    if (m->step >= 0)
        hy_cells_integer(&c->step, m->step);
    else
        hy_cells_null(&c->step);
    hy_cells_number(&c->value, m->value);
    hy_cells_integer(&c->time, m->time);
    return 0;
}

/* Nothing for a trial that has reported no such value. */
static int append_curve(struct hy_store *s, int64_t run, int64_t trial, const char *name, uint64_t points,
                        struct hy_out *out, size_t *count, struct hy_err *err)
{
    struct curve c;
    int rc;

    curve_init(&c);
    rc = hy_store_metric_thinned(s, run, trial, name, (int64_t)points, add_point, &c, err);
    if (rc == 0 && c.value.count) {
        hy_outf(out, "%s{\"trial\":%lld,", (*count)++ ? "," : "", (long long)trial);
        hy_cells_append(&c.step, "step", out);
        hy_out_str(out, ",");
        hy_cells_append(&c.value, "value", out);
        hy_out_str(out, ",");
        hy_cells_append(&c.time, "time", out);
        hy_out_str(out, "}");
    }
    curve_done(&c);
    return rc;
}

static void append_names(const struct hy_string_list *names, const char *name, struct hy_out *out)
{
    struct hy_cells cells;

    hy_cells_init(&cells);
    for (size_t i = 0; i < names->count; i++)
        hy_cells_text(&cells, names->items[i]);
    hy_out_str(out, "{");
    hy_cells_append(&cells, "names", out);
    hy_out_str(out, ",\"name\":");
    hy_json_out_text(out, name);
    hy_cells_done(&cells);
}

void hy_api_curves(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    hy_cleanup_free char *requested = hy_http_parameter(x->request.query, "name");
    hy_cleanup_string_list struct hy_string_list names = {0};
    hy_cleanup_out struct hy_out out = {0};
    uint64_t points = POINTS_DEFAULT;
    struct trials t = {0};
    struct hy_err err = {0};
    const char *name;
    size_t count = 0;
    int rc = 0;

    if (hy_api_number(x, "points", POINTS_MAX, &points) < 0 || hy_api_find_run(x, &u, &r) < 0 ||
        find_trials(x, u.store, r.row.id, &t) < 0)
        return;
    hy_out_init(&out, &(struct hy_style){0});
    for (size_t i = 0; i < t.count && rc == 0; i++)
        rc = hy_store_metric_names(u.store, r.row.id, t.numbers[i], take_name, &names, &err);
    name = chosen_name(requested, r.row.metric, &names);
    append_names(&names, name, &out);
    hy_out_str(&out, ",\"curves\":[");
    for (size_t i = 0; name && i < t.count && rc == 0; i++)
        rc = append_curve(u.store, r.row.id, t.numbers[i], name, points, &out, &count, &err);
    hy_out_str(&out, "]}");
    hy_reply_out(x, &out, rc, &err);
}
