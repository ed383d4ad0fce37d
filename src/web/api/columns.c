/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trials of a run as columns, for tables and charts: a fifth of the size of one object per trial, and fast to draw.
 *
 *     {"since": 0, "seq": 7, "number": [1, 2], "state": "dr", "value": [0.5, null], "start": [0.1, 0.2],
 *      "seconds": [3.2, null], "params": {"lr": [0.1, 0.2]}, "messages": {"4": "exit status 1"}}
 *
 * With ?since=SEQ, the `seq` of an earlier reply, only the trials that have changed since then: those that have ended,
 * and those that are running.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "view/view.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/api/json_cells.h"
#include "web/api/json_members.h"

#define COLUMNS_MAX 1000 /* hyperparameters of one run */

struct param {
    char *name; /* as JSON */
    size_t name_len;
    struct hy_cells cells;
};

struct columns {
    int64_t created; /* of the run */
    int64_t seq;     /* the highest ended_seq */
    struct hy_cells number, value, start, seconds;
    struct hy_out states; /* one letter per trial */
    struct hy_out messages;
    struct param *params;
    size_t param_count, next_param;
    size_t rows;
};

static void columns_init(struct columns *c, const struct hy_run_row *run)
{
    *c = (struct columns){.created = run->created};
    hy_cells_init(&c->number);
    hy_cells_init(&c->value);
    hy_cells_init(&c->start);
    hy_cells_init(&c->seconds);
    hy_out_init(&c->states, &(struct hy_style){0});
    hy_out_init(&c->messages, &(struct hy_style){0});
}

static void columns_done(struct columns *c)
{
    for (size_t i = 0; i < c->param_count; i++) {
        free(c->params[i].name);
        hy_cells_done(&c->params[i].cells);
    }
    free(c->params);
    hy_cells_done(&c->number);
    hy_cells_done(&c->value);
    hy_cells_done(&c->start);
    hy_cells_done(&c->seconds);
    hy_out_done(&c->states);
    hy_out_done(&c->messages);
}

/* ---- rows ------------------------------------------------------------------------------------- */

static int new_param(struct columns *all, struct hy_json_piece name)
{
    struct param *p;

    if (all->param_count == COLUMNS_MAX)
        return -E2BIG;
    if (hy_array_grow(all->params, all->param_count) < 0)
        return -ENOMEM;
    p = &all->params[all->param_count];
    p->name = hy_strndup(name.text, name.len);
    if (!p->name)
        return -ENOMEM;
    p->name_len = name.len;
    hy_cells_init(&p->cells);
    return (int)all->param_count++;
}

/* The hyperparameters of a run's trials have the same order, mostly: the search begins at the one after the last. */
static int find_param(struct columns *all, struct hy_json_piece name)
{
    for (size_t i = 0; i < all->param_count; i++) {
        size_t at = (all->next_param + i) % all->param_count;
        struct param *p = &all->params[at];

        if (p->name_len == name.len && memcmp(p->name, name.text, name.len) == 0)
            return (int)at;
    }
    return new_param(all, name);
}

/* Trials before this one do not have it. */
static void fill(struct param *p, size_t rows)
{
    while (p->cells.count < rows)
        hy_cells_null(&p->cells);
}

static int add_param(void *arg, struct hy_json_piece name, struct hy_json_piece value)
{
    struct columns *all = arg;
    int at = find_param(all, name);
    struct param *p;

    if (at < 0)
        return at;
    all->next_param = (size_t)at + 1;
    p = &all->params[at];
    fill(p, all->rows);
    if (p->cells.count == all->rows) /* of a duplicate name, the first value counts */
        hy_cells_json(&p->cells, value.text, value.len);
    return 0;
}

static void add_message(struct columns *all, const struct hy_trial_row *t)
{
    if (!t->message || !*t->message)
        return;
    hy_outf(&all->messages, "%s\"%lld\":", all->messages.buf.len ? "," : "", (long long)t->number);
    hy_json_out_text(&all->messages, t->message);
}

static int add_trial(void *arg, const struct hy_trial_row *t)
{
    struct columns *all = arg;
    int rc = hy_json_members(t->params, add_param, all);

    all->rows++;
    if (t->ended_seq > all->seq)
        all->seq = t->ended_seq;
    hy_cells_integer(&all->number, t->number);
    hy_out_bytes(&all->states, t->state == HY_TRIAL_PAUSED ? "w" : hy_trial_state_name(t->state), 1);
    hy_cells_seconds(&all->start, t->started - all->created);
    if (t->has_value)
        hy_cells_number(&all->value, t->value);
    else
        hy_cells_null(&all->value);
    if (t->ended)
        hy_cells_seconds(&all->seconds, t->ended - t->started);
    else
        hy_cells_null(&all->seconds);
    add_message(all, t);
    return rc == -EINVAL ? 0 : rc; /* an imported run: untrusted data */
}

/* ---- the reply ---------------------------------------------------------------------------------- */

static void append_all(struct hy_out *out, struct columns *all, int64_t since)
{
    hy_outf(out, "{\"since\":%lld,\"seq\":%lld,", (long long)since, (long long)all->seq);
    hy_cells_append(&all->number, "number", out);
    hy_out_str(out, ",\"state\":\"");
    hy_out_bytes(out, hy_buf_bytes(&all->states.buf), all->states.buf.len);
    hy_out_str(out, "\",");
    hy_cells_append(&all->value, "value", out);
    hy_out_str(out, ",");
    hy_cells_append(&all->start, "start", out);
    hy_out_str(out, ",");
    hy_cells_append(&all->seconds, "seconds", out);
    hy_out_str(out, ",\"params\":{");
    for (size_t i = 0; i < all->param_count; i++) {
        fill(&all->params[i], all->rows);
        hy_out_str(out, i ? "," : "");
        hy_cells_append_as(&all->params[i].cells, all->params[i].name, out);
    }
    hy_out_str(out, "},\"messages\":{");
    hy_out_bytes(out, hy_buf_bytes(&all->messages.buf), all->messages.buf.len);
    hy_out_str(out, "}}");
    if (out->rc == 0)
        out->rc = all->states.rc < 0 ? all->states.rc : all->messages.rc;
}

/* The trials that changed after `since`; all of them if `since` cannot be a seq of this run. */
static int read_trials(struct hy_store *s, int64_t run, uint64_t *since, struct columns *ret, struct hy_err *err)
{
    int64_t newest = 0;
    int rc = *since ? hy_store_ended_newest(s, run, INT64_MAX, 0, &newest, err) : 0;

    if (rc < 0)
        return rc;
    if (*since && *since <= (uint64_t)newest) {
        ret->seq = (int64_t)*since;
        return hy_store_changed_each(s, run, (int64_t)*since, add_trial, ret, err);
    }
    *since = 0;
    return hy_store_trial_each(s, run, 0, HY_TRIALS_BY_NUMBER, 0, 0, add_trial, ret, err);
}

void hy_api_columns(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    hy_cleanup_out struct hy_out out = {0};
    struct hy_err err = {0};
    struct columns all;
    uint64_t since = 0;
    int rc;

    if (hy_api_number(x, "since", INT64_MAX, &since) < 0 || hy_api_find_run(x, &u, &r) < 0)
        return;
    columns_init(&all, &r.row);
    hy_out_init(&out, &(struct hy_style){0});
    rc = read_trials(u.store, r.row.id, &since, &all, &err);
    if (rc == 0)
        append_all(&out, &all, (int64_t)since);
    columns_done(&all);
    hy_reply_out(x, &out, rc, &err);
}
