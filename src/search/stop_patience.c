/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patience: a trial ends when it has not improved for a number of steps.
 *
 * An improvement is measured against the last one, not against the last report: many small ones count as soon as they
 * add up to min_delta.
 */
#include "search/stop_internal.h"

static int patience_init(struct hy_stopper *s)
{
    (void)s;
    return 0;
}

static void patience_done(struct hy_stopper *s)
{
    (void)s;
}

static int patience_report(struct hy_stopper *s, struct hy_stop_trial *t, int64_t step, double cost)
{
    const struct hy_stop_settings *settings = &s->settings;

    if (cost < t->best && t->best - cost >= settings->min_delta) {
        t->best = cost;
        t->patience.improved = step;
        return HY_DECISION_CONTINUE;
    }
    if (step < settings->min_step || step - t->patience.improved < settings->patience)
        return HY_DECISION_CONTINUE;
    return HY_DECISION_STOP;
}

const struct hy_stop_ops hy_patience_ops = {
    .init = patience_init,
    .done = patience_done,
    .report = patience_report,
};
