/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What attempts used over time: the sum of a run, in intervals of equal length, and the points of one attempt.
 *
 * An attempt that was too short to be sampled counts with its mean CPU and its peak memory.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "wire/wire.h"

#define POINTS_DEFAULT 300
#define POINTS_MAX 2000

enum sum { RUNNING, WAITING, MEMORY, CPU, GPU_MEMORY, GPU_USE, SUMS };

static const char *const names[SUMS] = {"running", "waiting", "memory", "cpu", "gpu_memory", "gpu_use"};

/* ---- sums -------------------------------------------------------------------------------------- */

struct sums {
    double from, to, width; /* of an interval; ms */
    size_t count;
    double (*values)[SUMS]; /* the mean in each interval */
    int64_t now;
    struct hy_usage usage; /* of the current attempt */
};

/* Adds what was used between two times. */
static void add_span(struct sums *s, double from, double to, const double values[SUMS])
{
    size_t first;

    from = from > s->from ? from : s->from;
    to = to < s->to ? to : s->to;
    if (!(from < to))
        return;
    first = (size_t)((from - s->from) / s->width);
    for (size_t i = first; i < s->count; i++) {
        double begin = s->from + (double)i * s->width, end = begin + s->width;
        double part = ((to < end ? to : end) - (from > begin ? from : begin)) / s->width;

        if (part <= 0)
            break;
        for (size_t k = 0; k < SUMS; k++)
            s->values[i][k] += part * values[k];
    }
}

/* What is measured at a point was used since the one before it. */
static void add_points(struct sums *s, double begun, double ended)
{
    const struct hy_usage_point *before = &(const struct hy_usage_point){0};
    double values[SUMS] = {0};

    for (size_t i = 0; i < s->usage.count; i++) {
        const struct hy_usage_point *p = &s->usage.points[i];
        double from = begun + (double)before->time_ms, to = begun + (double)p->time_ms;

        values[MEMORY] = (double)p->memory * 1024;
        values[CPU] = to > from ? (double)(p->cpu_ms - before->cpu_ms) / (to - from) : 0;
        values[GPU_MEMORY] = (double)p->gpu_memory * 1024;
        values[GPU_USE] = (double)p->gpu_use / 1000;
        add_span(s, from, to < ended ? to : ended, values);
        before = p;
    }
    add_span(s, begun + (double)before->time_ms, ended, values); /* not measured yet */
}

static int add_attempt(void *arg, const struct hy_attempt_row *a, const struct hy_usage_row *u)
{
    static const double runs[SUMS] = {[RUNNING] = 1}, waits[SUMS] = {[WAITING] = 1};
    struct sums *s = arg;
    double ended = (double)(a->ended ? a->ended : s->now), begun = (double)(a->begun ? a->begun : a->started);
    double values[SUMS] = {[MEMORY] = (double)a->peak_memory};

    if (a->held && !a->begun)
        begun = ended; /* it has not begun */
    add_span(s, (double)(a->queued ? a->queued : a->started), begun, waits);
    add_span(s, begun, ended, runs);
    s->usage.count = 0;
    if (u && hy_usage_unpack(u->points, u->points_len, &s->usage) < 0)
        s->usage.count = 0; /* an imported run: untrusted data */
    if (s->usage.count) {
        add_points(s, begun, ended);
    } else if (a->ended && ended > begun) {
        values[CPU] = (double)a->cpu_ms / (ended - begun);
        add_span(s, begun, ended, values);
    }
    return 0;
}

/* Four decimals are more than a chart shows. */
static int append_column(struct hy_buf *out, const struct sums *s, enum sum which)
{
    bool is_bytes = which == MEMORY || which == GPU_MEMORY;
    int rc = hy_buf_printf(out, ",\"%s\":[", names[which]);

    for (size_t i = 0; i < s->count && rc == 0; i++)
        rc = hy_buf_printf(out, is_bytes ? "%s%.0f" : "%s%.4g", i ? "," : "", s->values[i][which]);
    return rc == 0 ? hy_buf_append_str(out, "]") : rc;
}

static int append_sums(struct hy_buf *out, const struct hy_window *w, const struct sums *s)
{
    int rc = hy_buf_printf(out, "{\"origin\":%lld,\"from\":%lld,\"to\":%lld,\"time\":[", (long long)w->origin,
                           (long long)(w->from - w->origin), (long long)(w->to - w->origin));

    for (size_t i = 0; i < s->count && rc == 0; i++) /* the middle of each interval */
        rc = hy_buf_printf(out, "%s%.0f", i ? "," : "", (double)(w->from - w->origin) + ((double)i + 0.5) * s->width);
    if (rc == 0)
        rc = hy_buf_append_str(out, "]");
    for (enum sum k = 0; k < SUMS && rc == 0; k++)
        rc = append_column(out, s, k);
    return rc == 0 ? hy_buf_append_str(out, "}") : rc;
}

void hy_api_usage(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    uint64_t points = POINTS_DEFAULT;
    hy_cleanup_free struct sums *s = hy_calloc(1, sizeof *s);
    struct hy_err err = {0};
    struct hy_window w;
    int rc;

    if (hy_api_number(x, "points", POINTS_MAX, &points) < 0 || hy_api_find_run(x, &u, &r) < 0 ||
        hy_api_window(x, &r, &w) < 0)
        return;
    points = points ? points : 1;
    if (s) {
        s->from = (double)w.from;
        s->to = (double)w.to;
        s->width = (s->to - s->from) / (double)points;
        s->now = r.alive ? hy_clock_wall_ms() : r.row.ended ? r.row.ended : w.to;
        s->count = (size_t)points;
        s->values = hy_calloc(s->count, sizeof *s->values);
    }
    rc = s && s->values ? hy_store_attempt_usage_between(u.store, r.row.id, w.from, w.to, add_attempt, s, &err)
                        : hy_err_oom(&err);
    hy_reply_bytes(x, 200, "application/json", "", 0);
    if (rc == 0 && append_sums(&x->reply, &w, s) < 0)
        rc = hy_err_oom(&err);
    if (rc < 0)
        hy_reply_failure(x, &err);
    if (s)
        free(s->values);
}

/* ---- one attempt ------------------------------------------------------------------------------- */

static int append_point(json_t *o, const char *name, int64_t value)
{
    return hy_json_append(json_object_get(o, name), json_integer(value));
}

json_t *hy_api_usage_json(const struct hy_usage_row *row)
{
    struct hy_usage u;
    json_t *o;
    int rc = 0;

    if (hy_usage_unpack(row->points, row->points_len, &u) < 0)
        return json_null();
    o = u.has_gpus ? json_pack("{s:[],s:[],s:[],s:[],s:[]}", "time_ms", "memory", "cpu_ms", "gpu_memory", "gpu_use")
                   : json_pack("{s:[],s:[],s:[],s:n,s:n}", "time_ms", "memory", "cpu_ms", "gpu_memory", "gpu_use");
    for (size_t i = 0; i < u.count && rc == 0 && o; i++) {
        rc |= append_point(o, "time_ms", u.points[i].time_ms);
        rc |= append_point(o, "memory", u.points[i].memory * 1024);
        rc |= append_point(o, "cpu_ms", u.points[i].cpu_ms);
        if (u.has_gpus) {
            rc |= append_point(o, "gpu_memory", u.points[i].gpu_memory * 1024);
            rc |= hy_json_append(json_object_get(o, "gpu_use"), json_real((double)u.points[i].gpu_use / 1000));
        }
    }
    if (rc < 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}
