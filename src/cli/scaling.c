/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/scaling.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "view/view.h"
#include "cli/run_spec.h"
#include "cli/start.h"

#define BAR 40
#define SPEED "examples_per_second" /* reported by the callbacks of hvd */

size_t hy_scaling_steps(uint32_t most, uint32_t ret[HY_SCALING_STEPS])
{
    size_t n = 0;

    for (uint64_t ranks = 1; ranks < most; ranks *= 2)
        ret[n++] = (uint32_t)ranks;
    ret[n++] = most;
    return n;
}

/* ---- reported speeds ------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double hy_scaling_median(double *values, size_t count)
{
    if (count > 1) {
        values++;
        count--;
    }
    if (count == 0)
        return NAN;
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

struct measurement {
    const char *metric;
    struct hy_speed *speed;
    double *values; /* of the current attempt */
    size_t count;
    int64_t trial, attempt;
};

/* All values of a rank are complete. */
static void add_rank(struct measurement *h)
{
    double median = hy_scaling_median(h->values, h->count);

    h->count = 0;
    if (isnan(median))
        return;
    h->speed->value += median;
    h->speed->reported++;
}

static int on_metric(void *arg, const struct hy_metric_row *m)
{
    struct measurement *h = arg;

    if (m->trial != h->trial)
        add_rank(h);
    if (m->trial != h->trial || m->attempt != h->attempt)
        h->count = 0; /* ignore the values of failed attempts */
    h->trial = m->trial;
    h->attempt = m->attempt;
    if (strcmp(m->name, h->metric) != 0 || !isfinite(m->value))
        return 0;
    if (hy_array_grow(h->values, h->count) < 0)
        return -ENOMEM;
    h->values[h->count++] = m->value;
    return 0;
}

/* A rank that reported nothing may have printed its speed; for a training the value of rank 0 counts. */
static int on_trial(void *arg, const struct hy_trial_row *row)
{
    struct hy_speed *speed = arg;

    if (!row->has_value || !isfinite(row->value))
        return 0;
    speed->value += row->value;
    speed->reported++;
    return 0;
}

static int measure(const char *project, const char *metric, bool is_printed, struct hy_speed *speed, struct hy_err *err)
{
    hy_cleanup_store struct hy_store *s = NULL;
    struct measurement h = {.metric = metric, .speed = speed};
    int rc = hy_store_open(project, HY_STORE_READ, &s, err);

    if (rc == 0)
        rc = hy_store_metric_each(s, speed->run, 0, on_metric, &h, err);
    if (rc >= 0)
        add_rank(&h);
    free(h.values);
    if (rc >= 0 && speed->reported == 0 && is_printed)
        rc = hy_store_trial_each(s, speed->run, 0, HY_TRIALS_BY_NUMBER, 0, 0, on_trial, speed, err);
    if (rc < 0)
        return rc;
    if (!speed->reported)
        return hy_err_set(
            err, -ENODATA,
            "the ranks of run %lld have not reported '%s'; use the callbacks of hvd or hopyard.report(%s=…), "
            "or name the metric that they report: --metric NAME",
            (long long)speed->run, metric, metric);
    speed->value = speed->value / speed->reported * speed->ranks;
    return 0;
}

/* ---- output -------------------------------------------------------------------------------- */

static double efficiency(const struct hy_speed *speed, const struct hy_speed *one)
{
    return one->value > 0 ? speed->value / one->value * one->ranks / speed->ranks : NAN;
}

void hy_scaling_head(struct hy_out *out, const char *metric)
{
    hy_out_tint_on(out, HY_DIM);
    hy_out_str(out, "ranks  efficiency  ");
    hy_out_value(out, metric);
    hy_out_str(out, " of all ranks\n");
    hy_out_tint_off(out, HY_DIM);
}

/* "████████░░░░ 1,234": the measured and the ideal speed. */
static void bar(struct hy_out *out, double value, double ideal, double longest)
{
    int full = (int)lround(BAR * value / longest), all = (int)lround(BAR * ideal / longest);

    full = full < 0 ? 0 : full > 2 * BAR ? 2 * BAR : full;
    hy_out_tint_on(out, HY_GREEN);
    hy_out_repeat(out, out->style.unicode ? "█" : "#", full);
    hy_out_tint_off(out, HY_GREEN);
    hy_out_tint_on(out, HY_DIM);
    hy_out_repeat(out, out->style.unicode ? "░" : ".", all > full ? all - full : 0);
    hy_out_tint_off(out, HY_DIM);
}

static void figure(struct hy_out *out, double value)
{
    char text[32];

    hy_out_tint_on(out, HY_BOLD);
    if (value >= 100 && value < 1e15)
        hy_out_str(out, hy_format_count((uint64_t)llround(value), text, sizeof text));
    else
        hy_outf(out, "%.3g", value);
    hy_out_tint_off(out, HY_BOLD);
}

void hy_scaling_line(struct hy_out *out, const struct hy_speed *speed, const struct hy_speed *one, uint32_t most)
{
    double share = efficiency(speed, one), each = one->value / one->ranks;

    hy_outf(out, "%5u  ", speed->ranks);
    if (isfinite(share)) {
        hy_outf(out, "%8.0f %%  ", 100 * share);
        bar(out, speed->value, each * speed->ranks, each * most);
        hy_out_str(out, " ");
    } else {
        hy_outf(out, "%10s  ", "");
    }
    figure(out, speed->value);
    if (speed->reported < speed->ranks)
        hy_outf(out, "  (as reported by %u of %u)", speed->reported, speed->ranks);
    hy_out_str(out, "\n");
}

void hy_scaling_json(struct hy_out *out, const struct hy_speed *speed, const struct hy_speed *one, const char *metric)
{
    json_t *o = json_object();
    int rc = hy_json_set(o, "event", json_string("speed"));

    rc |= hy_json_set(o, "run", json_integer(speed->run));
    rc |= hy_json_set(o, "ranks", json_integer(speed->ranks));
    rc |= hy_json_set(o, "reported", json_integer(speed->reported));
    rc |= hy_json_set(o, "metric", hy_json_text(metric));
    rc |= hy_json_set(o, "value", hy_json_number(speed->value));
    rc |= hy_json_set(o, "efficiency", hy_json_number(efficiency(speed, one)));
    if (rc < 0) {
        json_decref(o);
        o = NULL;
    }
    hy_json_line_take(out, o);
}

/* ---- the trainings ------------------------------------------------------------------------ */

struct scaling {
    const struct hy_args *args;
    const char *project, *metric;
    Hy__RunSpec *spec;
    bool json;
    struct hy_out out;
    struct hy_speed one; /* the first, the reference for the others */
    uint32_t most;
};

/* Runs one training. Returns its exit status. */
static int step(struct scaling *s, uint32_t ranks, struct hy_err *err)
{
    struct hy_speed speed = {.ranks = ranks};
    hy_cleanup_started struct hy_started started = {0};
    int status;

    if (hy_spec_set_ranks(s->spec, ranks, err) < 0 || hy_run_launch(s->args, s->spec, &started, err) < 0)
        return HY_EXIT_FAILED;
    speed.run = started.run;
    status =
        hy_watch(s->project, speed.run,
                 &(struct hy_watching){
                     .what = "train", .form = HY_OUTPUT_QUIET, .aside = -1, .started = true, .owner = started.owner});
    if (status != HY_EXIT_OK)
        return status;
    if (measure(s->project, s->metric, strcmp(s->metric, s->spec->metric) == 0, &speed, err) < 0)
        return HY_EXIT_FAILED;
    if (s->one.ranks == 0) {
        s->one = speed;
        if (!s->json)
            hy_scaling_head(&s->out, s->metric);
    }
    if (s->json)
        hy_scaling_json(&s->out, &speed, &s->one, s->metric);
    else
        hy_scaling_line(&s->out, &speed, &s->one, s->most);
    return hy_out_flush(&s->out, STDOUT_FILENO) < 0 ? HY_EXIT_FAILED : HY_EXIT_OK;
}

static int check(const struct hy_args *args, enum hy_output form, struct hy_err *err)
{
    if (form == HY_OUTPUT_HTML || hy_args_has(args, "detach") || hy_args_has(args, "tensorboard"))
        return hy_err_set(err, -EINVAL, "--scaling runs several trainings; remove --detach, --tensorboard and --html");
    return 0;
}

int hy_scaling(const struct hy_args *args, const char *project, Hy__RunSpec *spec, enum hy_output form)
{
    const char *metric = hy_args_get(args, "metric");
    struct scaling s = {.args = args,
                        .project = project,
                        .metric = metric ? metric : SPEED,
                        .spec = spec,
                        .json = form == HY_OUTPUT_JSON,
                        .most = spec->ranks};
    uint32_t steps[HY_SCALING_STEPS];
    size_t count = hy_scaling_steps(spec->ranks, steps);
    struct hy_err err = {0};
    struct hy_style style;
    int status = HY_EXIT_OK;

    if (check(args, form, &err) < 0)
        return hy_cmd_failed(args, &err);
    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&s.out, &style);
    for (size_t i = 0; i < count && status == HY_EXIT_OK; i++)
        status = step(&s, steps[i], &err);
    hy_out_done(&s.out);
    if (err.code)
        hy_print_error(args->command->name, &err);
    return status;
}
