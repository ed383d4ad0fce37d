/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ran where and what waited: attempts of a run as columns. Times are milliseconds since `origin`, the beginning of
 * the run.
 *
 *     {"origin": 1790000000000, "from": 0, "to": 9000, "is_complete": true, "agents": ["local"], "trial": [1, 2],
 *      "attempt": [1, 1], "agent": [0, 0], "queued": [0, 0], "started": [3, 3], "begun": [3, 120], "ended": [900,
 * null], "state": "dr", "gpus": [[], [0]], "held": [null, "core 1 is leased by another run"]}
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "view/view.h"
#include "web/api/api.h"
#include "web/api/util.h"

#define LIMIT_DEFAULT 5000
#define LIMIT_MAX 20000
#define AGENTS_MAX 10000
#define COLUMN_MAX (4u << 20)
#define HELD_MAX 300 /* bytes of a reason */

/* ---- columns ----------------------------------------------------------------------------------- */

enum column { TRIAL, ATTEMPT, AGENT, QUEUED, STARTED, BEGUN, ENDED, GPUS, HELD, COLUMNS };

static const char *const names[COLUMNS] = {"trial", "attempt", "agent", "queued", "started",
                                           "begun", "ended",   "gpus",  "held"};

struct timeline {
    int64_t origin;
    struct hy_buf cells[COLUMNS], states;
    char **agents; /* "a on host", in the order of their first attempt */
    size_t agent_count, rows;
};

static void timeline_init(struct timeline *t, int64_t origin)
{
    *t = (struct timeline){.origin = origin};
    for (size_t i = 0; i < COLUMNS; i++)
        hy_buf_init(&t->cells[i], COLUMN_MAX);
    hy_buf_init(&t->states, COLUMN_MAX);
}

static void timeline_done(struct timeline *t)
{
    for (size_t i = 0; i < COLUMNS; i++)
        hy_buf_done(&t->cells[i]);
    hy_buf_done(&t->states);
    for (size_t i = 0; i < t->agent_count; i++)
        free(t->agents[i]);
    free(t->agents);
}

/* The agent's place in the list. Most attempts are of one of the last agents. */
static int find_agent(struct timeline *t, const struct hy_attempt_row *a, size_t *ret)
{
    const char *agent = a->agent ? a->agent : "", *host = a->host ? a->host : "";
    hy_cleanup_free char *name = *host && strcmp(agent, host) != 0 ? hy_asprintf("%s on %s", agent, host)
                                                                   : hy_strdup(agent);

    if (!name)
        return -ENOMEM;
    for (size_t i = t->agent_count; i-- > 0;)
        if (strcmp(t->agents[i], name) == 0) {
            *ret = i;
            return 0;
        }
    if (t->agent_count == AGENTS_MAX || hy_array_grow(t->agents, t->agent_count) < 0)
        return t->agent_count == AGENTS_MAX ? -E2BIG : -ENOMEM;
    *ret = t->agent_count;
    t->agents[t->agent_count++] = hy_take(name);
    return 0;
}

static int add_number(struct timeline *t, enum column c, int64_t value)
{
    return hy_buf_printf(&t->cells[c], "%s%lld", t->rows ? "," : "", (long long)value);
}

/* `when` 0: null. */
static int add_time(struct timeline *t, enum column c, int64_t when)
{
    return when ? add_number(t, c, when - t->origin) : hy_buf_append_str(&t->cells[c], t->rows ? ",null" : "null");
}

static int add_gpus(struct timeline *t, uint64_t mask)
{
    struct hy_buf *out = &t->cells[GPUS];
    int rc = hy_buf_append_str(out, t->rows ? ",[" : "[");

    for (unsigned i = 0, n = 0; mask && i < 64 && rc == 0; i++)
        if (mask >> i & 1)
            rc = hy_buf_printf(out, "%s%u", n++ ? "," : "", i);
    return rc == 0 ? hy_buf_append_str(out, "]") : rc;
}

static int add_held(struct timeline *t, const char *held)
{
    hy_cleanup_free char *text = held ? hy_strndup(held, HELD_MAX) : NULL;
    json_t *value = hy_json_text(text);
    int rc = t->rows ? hy_buf_append_str(&t->cells[HELD], ",") : 0;

    if (rc == 0)
        rc = value && (text || !held) ? hy_json_append_compact(&t->cells[HELD], value) : -ENOMEM;
    json_decref(value);
    return rc;
}

/* When its process began to run; 0 while it is held. */
static int64_t begun_of(const struct hy_attempt_row *a)
{
    return a->begun ? a->begun : a->held ? 0 : a->started;
}

static int add_attempt(void *arg, const struct hy_attempt_row *a)
{
    struct timeline *t = arg;
    size_t agent = 0;
    int rc = find_agent(t, a, &agent);

    rc = rc < 0 ? rc : add_number(t, TRIAL, a->trial);
    rc = rc < 0 ? rc : add_number(t, ATTEMPT, a->number);
    rc = rc < 0 ? rc : add_number(t, AGENT, (int64_t)agent);
    rc = rc < 0 ? rc : add_time(t, QUEUED, a->queued ? a->queued : a->started);
    rc = rc < 0 ? rc : add_time(t, STARTED, a->started);
    rc = rc < 0 ? rc : add_time(t, BEGUN, begun_of(a));
    rc = rc < 0 ? rc : add_time(t, ENDED, a->ended);
    rc = rc < 0 ? rc : add_gpus(t, a->gpus);
    rc = rc < 0 ? rc : add_held(t, a->held);
    rc = rc < 0 ? rc : hy_buf_append(&t->states, hy_attempt_state_name(a->state), 1);
    t->rows++;
    return rc;
}

/* ---- the reply --------------------------------------------------------------------------------- */

static int append_agents(struct hy_buf *out, const struct timeline *t)
{
    int rc = hy_buf_append_str(out, ",\"agents\":[");

    for (size_t i = 0; i < t->agent_count && rc == 0; i++) {
        json_t *name = hy_json_text(t->agents[i]);

        rc = i ? hy_buf_append_str(out, ",") : 0;
        if (rc == 0)
            rc = name ? hy_json_append_compact(out, name) : -ENOMEM;
        json_decref(name);
    }
    return rc == 0 ? hy_buf_append_str(out, "]") : rc;
}

static int append_timeline(struct hy_buf *out, const struct hy_window *w, const struct timeline *t, bool is_complete)
{
    int rc = hy_buf_printf(out, "{\"origin\":%lld,\"from\":%lld,\"to\":%lld,\"is_complete\":%s", (long long)w->origin,
                           (long long)(w->from - w->origin), (long long)(w->to - w->origin),
                           is_complete ? "true" : "false");

    if (rc == 0)
        rc = append_agents(out, t);
    for (size_t i = 0; i < COLUMNS && rc == 0; i++) {
        rc = hy_buf_printf(out, ",\"%s\":[", names[i]);
        if (rc == 0 && t->cells[i].len)
            rc = hy_buf_append(out, hy_buf_bytes(&t->cells[i]), t->cells[i].len);
        if (rc == 0)
            rc = hy_buf_append_str(out, "]");
    }
    if (rc == 0)
        rc = hy_buf_append_str(out, ",\"state\":\"");
    if (rc == 0 && t->states.len)
        rc = hy_buf_append(out, hy_buf_bytes(&t->states), t->states.len);
    return rc == 0 ? hy_buf_append_str(out, "\"}") : rc;
}

/* From the first moment of the run to the last one, unless the query has `from` or `to`. */
int hy_api_window(struct hy_exchange *x, const struct hy_run_info *r, struct hy_window *ret)
{
    int64_t origin = r->row.created, end = r->row.ended && !r->alive ? r->row.ended : hy_clock_wall_ms();
    uint64_t from = 0, to = end > origin ? (uint64_t)(end - origin) : 1;

    if (hy_api_number(x, "from", HY_WINDOW_MAX, &from) < 0 || hy_api_number(x, "to", HY_WINDOW_MAX, &to) < 0)
        return -EINVAL;
    if (to <= from) {
        hy_reply_error(x, 400, "'from' must be before 'to'");
        return -EINVAL;
    }
    *ret = (struct hy_window){.origin = origin, .from = origin + (int64_t)from, .to = origin + (int64_t)to};
    return 0;
}

void hy_api_timeline(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    uint64_t limit = LIMIT_DEFAULT;
    struct hy_err err = {0};
    struct hy_window w;
    struct timeline t;
    int rc;

    if (hy_api_number(x, "limit", LIMIT_MAX, &limit) < 0 || hy_api_find_run(x, &u, &r) < 0 ||
        hy_api_window(x, &r, &w) < 0)
        return;
    timeline_init(&t, w.origin);
    rc = hy_store_attempt_between(u.store, r.row.id, w.from, w.to, (int64_t)limit, add_attempt, &t, &err);
    hy_reply_bytes(x, 200, "application/json", "", 0);
    if (rc == 0)
        rc = append_timeline(&x->reply, &w, &t, t.rows < limit);
    if (rc == -E2BIG || rc == -ENOBUFS)
        hy_reply_error(x, 413, "run %lld has too many agents for a timeline", (long long)r.row.id);
    else if (rc < 0 && !err.code)
        hy_reply_error(x, 503, "out of memory");
    else if (rc < 0)
        hy_reply_failure(x, &err);
    timeline_done(&t);
}
