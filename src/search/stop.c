/* SPDX-License-Identifier: Apache-2.0 */
#include "search/stop.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "search/stop_internal.h"
#include "search/stop_plan.h"

static int none_init(struct hy_stopper *s)
{
    (void)s;
    return 0;
}

static void none_done(struct hy_stopper *s)
{
    (void)s;
}

static int none_report(struct hy_stopper *s, struct hy_stop_trial *t, int64_t step, double cost)
{
    (void)s;
    (void)t;
    (void)step;
    (void)cost;
    return HY_DECISION_CONTINUE;
}

static const struct hy_stop_ops none_ops = {.init = none_init, .done = none_done, .report = none_report};

static const struct hy_stop_ops *const kinds[] = {
    [HY_STOP_NONE] = &none_ops,       [HY_STOP_MEDIAN] = &hy_median_ops, [HY_STOP_PATIENCE] = &hy_patience_ops,
    [HY_STOP_HALVING] = &hy_rung_ops, [HY_STOP_ASHA] = &hy_rung_ops,     [HY_STOP_HYPERBAND] = &hy_rung_ops,
};

int hy_stopper_new(const struct hy_stop_settings *settings, struct hy_stopper **ret, struct hy_err *err)
{
    struct hy_stop_settings complete = *settings;
    struct hy_stopper *s;
    int rc = hy_stop_settings_complete(&complete, err);

    if (rc < 0)
        return rc;
    s = hy_calloc(1, sizeof *s);
    if (!s)
        return hy_err_oom(err);
    s->ops = kinds[complete.kind];
    s->settings = complete;
    rc = s->ops->init(s);
    if (rc < 0) {
        hy_stopper_free(s);
        return hy_err_oom(err);
    }
    *ret = s;
    return 0;
}

void hy_stopper_free(struct hy_stopper *s)
{
    void *trial;

    if (!s)
        return;
    for (size_t i = 0; (trial = hy_map_next(&s->trials, &i));)
        free(trial);
    hy_map_done(&s->trials);
    s->ops->done(s);
    free(s);
}

/* ---- trials ---------------------------------------------------------------- */

static int add(struct hy_stopper *s, struct hy_stop_trial *t)
{
    int rc = hy_map_put(&s->trials, t->number, t);

    if (rc < 0 || !s->ops->add)
        return rc;
    rc = s->ops->add(s, t);
    if (rc < 0)
        hy_map_remove(&s->trials, t->number);
    return rc;
}

int hy_stopper_add(struct hy_stopper *s, uint64_t trial)
{
    hy_cleanup_free struct hy_stop_trial *t = NULL;
    int rc;

    if (trial <= s->last_trial)
        return -EEXIST;
    t = hy_calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->number = trial;
    t->last_step = -1;
    t->best = INFINITY;
    rc = add(s, t);
    if (rc < 0)
        return rc;
    s->last_trial = hy_take(t)->number;
    return 0;
}

static void leave(struct hy_stopper *s, struct hy_stop_trial *t)
{
    if (s->ops->leave)
        s->ops->leave(s, t);
}

void hy_stopper_end(struct hy_stopper *s, uint64_t trial)
{
    struct hy_stop_trial *t = hy_map_remove(&s->trials, trial);

    if (!t)
        return;
    leave(s, t);
    free(t);
}

/* ---- reports --------------------------------------------------------------- */

static int stop_diverged(struct hy_stopper *s, struct hy_stop_trial *t)
{
    leave(s, t);
    t->decision = HY_DECISION_STOP;
    return HY_DECISION_STOP;
}

/* It arrives at no rung any more: its value at the last step would be compared with those of others at earlier steps.
 */
static int finish(struct hy_stopper *s, struct hy_stop_trial *t)
{
    leave(s, t);
    t->is_done = true;
    return HY_DECISION_CONTINUE;
}

static int report_new_step(struct hy_stopper *s, struct hy_stop_trial *t, int64_t step, double value)
{
    int64_t before = t->last_step;
    int rc;

    t->last_step = step;
    rc = s->ops->report(s, t, step, s->settings.maximize ? -value : value);
    if (rc < 0)
        t->last_step = before;
    else
        t->decision = (enum hy_decision)rc;
    return rc;
}

int hy_stopper_report(struct hy_stopper *s, uint64_t trial, int64_t step, double value)
{
    struct hy_stop_trial *t = hy_map_get(&s->trials, trial);

    if (!t)
        return -ENOENT;
    if (t->decision != HY_DECISION_STOP && !isfinite(value))
        return stop_diverged(s, t);
    if (t->decision != HY_DECISION_CONTINUE || t->is_done || step <= t->last_step)
        return t->decision;
    if (s->settings.max_step && step >= s->settings.max_step)
        return finish(s, t);
    return report_new_step(s, t, step, value);
}

/* ---- paused trials ---------------------------------------------------------- */

void hy_stopper_close(struct hy_stopper *s)
{
    if (s->ops->close)
        s->ops->close(s);
}

static void decide(struct hy_stopper *s, struct hy_stop_trial *t, enum hy_decision decision)
{
    s->ops->decide(s, t, decision);
    t->decision = decision;
}

int hy_stopper_next(struct hy_stopper *s, bool has_room, uint64_t *ret_trial, enum hy_decision *ret_decision)
{
    uint64_t stoppable, trial;

    if (!s->ops->decide)
        return 0;
    stoppable = s->ops->stoppable(s);
    trial = stoppable || !has_room ? stoppable : s->ops->promotable(s);
    if (!trial)
        return 0;
    *ret_trial = trial;
    *ret_decision = stoppable ? HY_DECISION_STOP : HY_DECISION_CONTINUE;
    decide(s, hy_map_get(&s->trials, trial), *ret_decision);
    return 1;
}

bool hy_stopper_can_promote(const struct hy_stopper *s)
{
    return s->ops->promotable && s->ops->promotable(s);
}

int hy_stopper_restore(struct hy_stopper *s, uint64_t trial, enum hy_decision decision)
{
    struct hy_stop_trial *t = hy_map_get(&s->trials, trial);

    if (!t)
        return -ENOENT;
    if (t->decision != HY_DECISION_PAUSE || decision == HY_DECISION_PAUSE)
        return -EINVAL;
    decide(s, t, decision);
    return 0;
}

/* ---- display ---------------------------------------------------------------- */

size_t hy_stopper_rung_count(const struct hy_stopper *s)
{
    return s->ops->rung_count ? s->ops->rung_count(s) : 0;
}

struct hy_rung hy_stopper_rung(const struct hy_stopper *s, size_t i)
{
    return s->ops->rung(s, i);
}
