/* SPDX-License-Identifier: Apache-2.0 */
#include "view/plot.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "view/plot_canvas.h"

#define BARS_MAX 10
#define PAIR_BARS 3
#define PAIR_SHARE_MIN 0.01
#define NAME_COLUMNS 30
#define LOG_SPAN 100
/* The worst tenth of the values is left out if the others would otherwise occupy less than a quarter of the plot. */
#define CUT_SHARE 0.9
#define CUT_RATIO 4

bool hy_dim_is_log(const struct hy_dim *dim)
{
    double low = INFINITY, high = 0, value;

    if (dim->kind != HY_DIM_CATEGORY)
        return dim->log;
    for (size_t i = 0; i < dim->choice_count; i++) {
        if (hy_parse_double(dim->choices[i], &value) < 0 || !isfinite(value) || value <= 0)
            return false;
        low = fmin(low, value);
        high = fmax(high, value);
    }
    return high / low >= LOG_SPAN;
}

/* ---- the range of a metric -------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* An axis that contains one value is widened. */
static void set_range(struct hy_plot_axis *a, double low, double high)
{
    double around = low == high ? fmax(fabs(low) / 10, 1e-12) : 0;

    a->low = fmax(low - around, -DBL_MAX);
    a->high = fmin(high + around, DBL_MAX);
}

/* The range of all values, or only of the better ones if the others are far away. *ret_beyond: the number of the
 * others. */
static int metric_range(struct hy_plot_axis *a, const struct hy_plot_metric *metric, const double *values, size_t count,
                        size_t *ret_beyond)
{
    hy_cleanup_free double *sorted = hy_calloc(count, sizeof *sorted);
    size_t n = 0, last;

    if (!sorted)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i]))
            sorted[n++] = metric->maximize ? -values[i] : values[i];
    if (n == 0)
        return -ENODATA;
    qsort(sorted, n, sizeof *sorted, compare_doubles);
    last = (size_t)((double)(n - 1) * CUT_SHARE);
    if (sorted[last] == sorted[0] || sorted[n - 1] / CUT_RATIO - sorted[0] / CUT_RATIO <= sorted[last] - sorted[0])
        last = n - 1;
    *ret_beyond = n - 1 - last;
    set_range(a, metric->maximize ? -sorted[last] : sorted[0], metric->maximize ? -sorted[0] : sorted[last]);
    return 0;
}

static void put_title(struct hy_out *out, const char *metric, const char *about, const char *name, const char *end)
{
    hy_out_str(out, "\n");
    hy_out_tint_on(out, HY_BOLD);
    hy_out_value(out, metric);
    hy_out_str(out, about);
    hy_out_value(out, name);
    hy_out_tint_off(out, HY_BOLD);
    hy_out_str(out, end);
}

static void end_title(struct hy_out *out, size_t beyond, size_t count)
{
    if (beyond)
        hy_outf(out, "; %zu of %zu worse values are not shown", beyond, count);
    hy_out_str(out, "\n");
}

/* ---- history ------------------------------------------------------------------------------------------- */

static size_t count_values(const double *values, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        n += isfinite(values[i]);
    return n;
}

static void draw_best(struct hy_canvas *c, const struct hy_plot_metric *metric, const double *values, size_t count)
{
    double best = NAN, since = 0;

    for (size_t i = 0; i < count; i++) {
        double at = (double)i + 1;

        if (!isfinite(values[i]) || (metric->maximize ? values[i] <= best : values[i] >= best))
            continue;
        if (!isnan(best))
            hy_canvas_step(c, HY_CANVAS_FRONT, since, at, best, values[i]);
        best = values[i];
        since = at;
    }
    hy_canvas_step(c, HY_CANVAS_FRONT, since, c->x.high, best, best);
}

int hy_plot_history(struct hy_out *out, const struct hy_plot_metric *metric, const double *values, size_t count)
{
    struct hy_plot_axis x = {.title = "trial", .low = 1, .high = count > 1 ? (double)count : 2}, y = {0};
    struct hy_canvas c;
    size_t beyond = 0;
    int rc = metric_range(&y, metric, values, count, &beyond);

    if (rc < 0)
        return rc == -ENODATA ? 0 : rc;
    hy_canvas_init(&c, out, &x, &y);
    c.tints[HY_CANVAS_BACK] = HY_DIM;
    c.tints[HY_CANVAS_FRONT] = HY_GREEN;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i]))
            hy_canvas_point(&c, HY_CANVAS_BACK, (double)i + 1, values[i]);
    draw_best(&c, metric, values, count);
    put_title(out, metric->name, " by trial", NULL, ", and the best so far");
    end_title(out, beyond, count_values(values, count));
    hy_canvas_render(&c, out);
    return out->rc;
}

/* ---- importance ------------------------------------------------------------------------------------------ */

/* Eighths of a block where they exist. */
static void put_bar(struct hy_out *out, double share, int columns)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int parts = (int)(fmin(fmax(share, 0), 1) * columns * 8 + 0.5);

    if (!out->style.unicode) {
        hy_out_repeat(out, "#", (parts + 4) / 8);
        return;
    }
    hy_out_repeat(out, "█", parts / 8);
    hy_out_str(out, eighths[parts % 8]);
}

struct bar {
    char *name;
    double share;
    enum hy_tint tint;
};

static void put_bars(struct hy_out *out, const struct bar *bars, size_t count)
{
    int widest = 0, room;
    double most = 0;

    for (size_t i = 0; i < count; i++) {
        int width = hy_columns(bars[i].name, strlen(bars[i].name));

        widest = width > widest ? width : widest;
        most = fmax(most, bars[i].share);
    }
    room = hy_plot_width(&out->style) / 3;
    room = room < NAME_COLUMNS ? room : NAME_COLUMNS;
    widest = widest < room ? widest : room;
    room = hy_plot_width(&out->style) - widest - 11;
    for (size_t i = 0; i < count; i++) {
        hy_out_str(out, "  ");
        hy_out_repeat(out, " ", widest - hy_out_cut(out, bars[i].name, strlen(bars[i].name), widest));
        hy_outf(out, "  %5.3f ", bars[i].share);
        hy_out_tint_on(out, bars[i].tint);
        put_bar(out, most > 0 ? bars[i].share / most : 0, room < 1 ? 1 : room);
        hy_out_tint_off(out, bars[i].tint);
        hy_out_str(out, "\n");
    }
}

static int add_bars(struct bar *bars, const struct hy_importance *m, const struct hy_trial_columns *c, bool unicode)
{
    int n = 0;

    for (size_t i = 0; i < m->count && i < BARS_MAX; i++, n++) {
        bars[n] = (struct bar){hy_printable(c->params[m->params[i].param].name), m->params[i].share, HY_CYAN};
        if (!bars[n].name)
            return -ENOMEM;
    }
    for (size_t i = 0; i < m->pair_count && i < PAIR_BARS && m->pairs[i].share >= PAIR_SHARE_MIN; i++, n++) {
        hy_cleanup_free char *a = hy_printable(c->params[m->pairs[i].first].name);
        hy_cleanup_free char *b = hy_printable(c->params[m->pairs[i].second].name);

        bars[n] = (struct bar){a && b ? hy_asprintf("%s %s %s", a, unicode ? "×" : "x", b) : NULL, m->pairs[i].share,
                               HY_DIM};
        if (!bars[n].name)
            return -ENOMEM;
    }
    return n;
}

int hy_plot_importance(struct hy_out *out, const struct hy_importance *m, const struct hy_trial_columns *c)
{
    struct bar bars[BARS_MAX + PAIR_BARS] = {{0}};
    char used[40], all[40];
    int n = 0;

    put_title(out, "importance of hyperparameters", "", NULL, "");
    if (m->why[0]) {
        hy_outf(out, ": none, %s\n", m->why);
        return out->rc;
    }
    if (c->seen > c->rows)
        hy_outf(out, ", from a sample of %s of %s trials", hy_format_count(c->rows, used, sizeof used),
                hy_format_count(c->seen, all, sizeof all));
    hy_out_str(out, "\n");
    n = add_bars(bars, m, c, out->style.unicode);
    if (n >= 0)
        put_bars(out, bars, (size_t)n);
    if (n >= 0 && m->count > BARS_MAX)
        hy_outf(out, "  and %zu less important ones\n", m->count - BARS_MAX);
    for (size_t i = 0; i < HY_COUNT(bars); i++)
        free(bars[i].name);
    return n < 0 ? n : out->rc;
}

/* ---- scatter ------------------------------------------------------------------------------------------------ */

/* -ENODATA: no trial has it. */
static int param_axis(struct hy_plot_axis *a, const struct hy_param_column *p, size_t rows, bool is_log)
{
    double low = INFINITY, high = -INFINITY;

    for (size_t i = 0; i < rows; i++)
        if (!isnan(p->values[i])) {
            low = fmin(low, p->values[i]);
            high = fmax(high, p->values[i]);
        }
    if (low > high)
        return -ENODATA;
    *a = (struct hy_plot_axis){
        .title = p->name, .choices = (const char *const *)p->choices, .choice_count = p->choice_count};
    if (p->choices) {
        a->high = (double)p->choice_count;
        return 0;
    }
    set_range(a, low, high);
    a->is_log = is_log && a->low > 0;
    return 0;
}

int hy_plot_scatter(struct hy_out *out, const struct hy_plot_metric *metric, const struct hy_trial_columns *c,
                    size_t param, bool is_log)
{
    const struct hy_param_column *p = &c->params[param];
    struct hy_plot_axis x = {0}, y = {0};
    struct hy_canvas canvas;
    size_t beyond = 0;
    int rc = param_axis(&x, p, c->rows, is_log);

    if (rc == 0)
        rc = metric_range(&y, metric, c->metric, c->rows, &beyond);
    if (rc < 0)
        return rc == -ENODATA ? 0 : rc;
    hy_canvas_init(&canvas, out, &x, &y);
    canvas.tints[HY_CANVAS_BACK] = HY_CYAN;
    for (size_t i = 0; i < c->rows; i++)
        if (!isnan(p->values[i]))
            hy_canvas_point(&canvas, HY_CANVAS_BACK, p->values[i] + (p->choices ? 0.5 : 0), c->metric[i]);
    put_title(out, metric->name, " against ", p->name, x.is_log ? " (log)" : "");
    end_title(out, beyond, c->rows);
    hy_canvas_render(&canvas, out);
    return out->rc;
}
