/* SPDX-License-Identifier: Apache-2.0 */
#include "search/stop_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

/* ---- the plan -------------------------------------------------------------- */

/*
 * A rung is worth it if at least a factor of `reduction` is left: stopping trials just before their end would save
 * little. So Hyperband's brackets are those of the paper, and a rung at max_step does not exist.
 */
static void make_rungs(struct hy_stop_plan *p, const struct hy_stop_settings *settings)
{
    int64_t end = settings->max_step ? settings->max_step : INT64_MAX;
    bool is_bounded = settings->max_step != 0;
    int64_t step = settings->min_step;

    while (p->rung_count < HY_RUNGS_MAX && (!is_bounded || step <= end / settings->reduction)) {
        p->steps[p->rung_count++] = step;
        if (step > end / settings->reduction)
            return;
        step *= settings->reduction;
    }
}

/* Saturates. */
static uint64_t power(uint64_t base, uint32_t exponent)
{
    uint64_t result = 1;

    while (exponent--)
        if (__builtin_mul_overflow(result, base, &result))
            return UINT64_MAX;
    return result;
}

/* Li et al., 2018, algorithm 1: bracket s has ceil((K + 1) / (s + 1) * reduction^s) trials, for s = K … 0. */
static void make_brackets(struct hy_stop_plan *p, const struct hy_stop_settings *settings)
{
    for (uint32_t i = 0; i <= p->rung_count; i++) {
        uint32_t s = p->rung_count - i;
        uint64_t trials = power(settings->reduction, s);

        if (trials <= HY_STOP_BRACKET_MAX)
            trials = (trials * (p->rung_count + 1) + s) / (s + 1);
        p->brackets[i] = (struct hy_bracket_plan){.first_rung = i, .trials = trials};
    }
    p->bracket_count = p->rung_count + 1;
}

void hy_stop_plan_make(struct hy_stop_plan *ret, const struct hy_stop_settings *settings)
{
    *ret = (struct hy_stop_plan){.bracket_count = 1};
    make_rungs(ret, settings);
    if (settings->kind == HY_STOP_HYPERBAND)
        make_brackets(ret, settings);
    else if (settings->kind == HY_STOP_HALVING)
        ret->brackets[0].trials = settings->trials ? settings->trials : power(settings->reduction, ret->rung_count);
}

uint64_t hy_stop_round_trials(const struct hy_stop_settings *settings)
{
    struct hy_stop_settings complete = *settings;
    struct hy_stop_plan plan;
    uint64_t trials = 0;

    if (settings->kind != HY_STOP_HALVING && settings->kind != HY_STOP_HYPERBAND)
        return 0;
    if (hy_stop_settings_complete(&complete, NULL) < 0)
        return 0;
    hy_stop_plan_make(&plan, &complete);
    for (uint32_t i = 0; i < plan.bracket_count; i++)
        trials += plan.brackets[i].trials;
    return trials;
}

/* ---- checks ---------------------------------------------------------------- */

static bool has_rungs(const struct hy_stop_settings *settings)
{
    return settings->kind >= HY_STOP_HALVING;
}

static int check_steps(const struct hy_stop_settings *s, struct hy_err *err)
{
    if (s->min_step < 0)
        return hy_err_option(err, "stop-min", "takes a number of steps, not %" PRId64, s->min_step);
    if (s->max_step < 0)
        return hy_err_option(err, "stop-max", "takes a number of steps, not %" PRId64, s->max_step);
    if (s->max_step && s->max_step <= s->min_step)
        return hy_err_option(err, "stop-max", "is %" PRId64 ", but must be greater than --stop-min %" PRId64,
                             s->max_step, s->min_step);
    return 0;
}

static int check_patience(const struct hy_stop_settings *s, struct hy_err *err)
{
    if (s->patience < 1)
        return hy_err_option(err, "patience", "takes a number of steps from 1, not %" PRId64, s->patience);
    if (!(s->min_delta >= 0) || !isfinite(s->min_delta))
        return hy_err_option(err, "min-delta", "takes a finite number from 0, not %g", s->min_delta);
    return 0;
}

static int check_brackets(const struct hy_stop_settings *s, struct hy_err *err)
{
    bool is_given = s->kind == HY_STOP_HALVING && s->trials;
    struct hy_stop_plan plan;

    hy_stop_plan_make(&plan, s);
    if (!is_given && plan.brackets[0].trials > HY_STOP_BRACKET_MAX)
        return hy_err_option(err, "stop-min",
                             "%" PRId64 " is too small for --stop-max %" PRId64 " and --reduction %u: with %u rungs, "
                             "more than %d trials start together",
                             s->min_step, s->max_step, s->reduction, plan.rung_count, HY_STOP_BRACKET_MAX);
    return 0;
}

static int check_rungs(const struct hy_stop_settings *s, struct hy_err *err)
{
    bool needs_max = s->kind == HY_STOP_HYPERBAND || (s->kind == HY_STOP_HALVING && !s->trials);

    if (s->reduction < 2)
        return hy_err_option(err, "reduction", "takes a number from 2, not %u", s->reduction);
    if (!s->max_step && needs_max)
        return hy_err_option(err, "stop-max", "is required for %s: the number of steps of a whole trial",
                             s->kind == HY_STOP_HYPERBAND ? "Hyperband" : "successive halving");
    if (s->max_step && s->max_step / s->reduction < s->min_step)
        return hy_err_option(err, "stop-max",
                             "is %" PRId64 ", but must be at least --stop-min %" PRId64 " times --reduction %u",
                             s->max_step, s->min_step, s->reduction);
    return check_brackets(s, err);
}

int hy_stop_settings_complete(struct hy_stop_settings *settings, struct hy_err *err)
{
    int rc = check_steps(settings, err);

    if ((unsigned)settings->kind > HY_STOP_HYPERBAND)
        return hy_err_set(err, -EINVAL, "invalid kind of early stopping %d", (int)settings->kind);
    if (rc < 0)
        return rc;
    settings->min_trials = settings->min_trials ? settings->min_trials : 5;
    if (settings->min_trials > HY_STOP_WINDOW)
        return hy_err_set(err, -EINVAL, "min_trials is %u, but the median is that of %d trials at most",
                          settings->min_trials, HY_STOP_WINDOW);
    if (settings->kind == HY_STOP_PATIENCE)
        return check_patience(settings, err);
    if (!has_rungs(settings))
        return 0;
    settings->min_step = settings->min_step ? settings->min_step : 1;
    settings->reduction = settings->reduction ? settings->reduction : 3;
    return check_rungs(settings, err);
}
