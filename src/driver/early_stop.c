/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Early stopping: what the stopper (search/stop.h) decides about trials, and what follows.
 *
 *   report ─► STOP  ─► the attempt ends ─► pruned
 *          └► PAUSE ─► the attempt ends ─► paused ─► promoted: queued, in a new attempt
 *                                                └─► pruned
 *
 * A decision is recorded before the agent receives it, like every other change. The trial gets it with the answer to
 * its next report, and has a grace time to save and end; then its agent kills it. However it ends, it is pruned or
 * paused. Only a trial that exits with success before it has received the decision is done: it has its result.
 *
 * Asks, reports of the metric, decisions and ends have places in one order (trials.seq). So resume repeats them in a
 * new stopper, and the decisions about paused trials, which depend on free slots, are repeated as they were made.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "driver/run.h"

#define GRACE_MS 30000 /* the default of --stop-grace */

/* What is known of a trial that has not ended, besides the stopper's own state. */
struct early_trial {
    int64_t attempt, step; /* of its last report */
    bool is_promoted;      /* while the attempt that is to pause still runs, or since then */
    bool has_value;
    double value;
    enum hy_decision decision; /* the newest one */
};

static struct early_trial *find(const struct driver *d, uint64_t number)
{
    return hy_map_get(&d->early_stop.trials, number);
}

/* ---- opening ---------------------------------------------------------------------------------- */

int hy_early_stop_open(struct driver *d, struct hy_err *err)
{
    struct hy_stop_settings settings;

    if (!d->spec->stop)
        return 0;
    if (hy_is_training(d))
        return hy_err_set(err, -EINVAL, "early stopping is for single trials, not for the ranks of a training");
    settings = hy_run_stop_settings(d->spec);
    return hy_stopper_new(&settings, &d->early_stop.stopper, err);
}

void hy_early_stop_free(struct driver *d)
{
    struct early_trial *e;

    for (size_t i = 0; (e = hy_map_next(&d->early_stop.trials, &i));)
        free(e);
    hy_map_done(&d->early_stop.trials);
    hy_stopper_free(hy_take(d->early_stop.stopper));
}

static int add(struct driver *d, uint64_t number)
{
    hy_cleanup_free struct early_trial *e = hy_calloc(1, sizeof *e);
    int rc = e ? hy_map_put(&d->early_stop.trials, number, e) : -ENOMEM;

    if (rc < 0)
        return rc;
    hy_take(e);
    return hy_stopper_add(d->early_stop.stopper, number);
}

int hy_early_stop_add(struct driver *d, const struct trial *t)
{
    int rc = d->early_stop.stopper ? add(d, t->number) : 0;

    if (rc < 0)
        hy_run_out_of_memory(d);
    return rc;
}

/* ---- decisions -------------------------------------------------------------------------------- */

static int record(struct driver *d, uint64_t number, enum hy_decision decision)
{
    static const char *const names[] = {"continue", "stop", "pause"};
    struct hy_decision_row row = {
        .seq = ++d->trials.seq, .trial = (int64_t)number, .decision = (int)decision, .time = hy_clock_wall_ms()};

    hy_info("early stopping trial=%llu decision=%s", (unsigned long long)number, names[decision]);
    return hy_run_check_recorded(d, hy_changes_decision_add(&d->commit.recorded, &row));
}

static void send_decision(struct driver *d, struct trial *t)
{
    Hy__Decision decision = HY__DECISION__INIT;
    Hy__Control m = HY__CONTROL__INIT;
    int rc;

    decision.trial = t->number;
    decision.attempt = t->attempt;
    decision.kind = (Hy__Decision__Kind)t->decision;
    decision.grace_ms = d->spec->stop->grace_ms ? d->spec->stop->grace_ms : GRACE_MS;
    m.body_case = HY__CONTROL__BODY_DECISION;
    m.decision = &decision;
    rc = hy_agents_send(t->agent, &m);
    if (rc == -ENOBUFS)
        hy_agent_set_violation(t->agent, "it does not read its messages");
    else if (rc < 0)
        hy_run_out_of_memory(d);
}

/* About an attempt that runs. */
static void decide(struct driver *d, struct trial *t, enum hy_decision decision)
{
    struct early_trial *e = find(d, t->number);

    if (record(d, t->number, decision) < 0)
        return;
    e->decision = t->decision = decision;
    e->is_promoted = false;
    if (!t->killed)
        send_decision(d, t);
}

static void queue_promoted(struct driver *d, struct trial *t)
{
    struct hy_trial_row row = {.number = (int64_t)t->number, .state = HY_TRIAL_RUNNING, .attempts = t->attempt};

    d->trials.paused--;
    t->decision = HY_DECISION_CONTINUE;
    d->changed = true;
    if (hy_run_check_recorded(d, hy_changes_trial_end(&d->commit.recorded, &row)) < 0)
        return;
    if (t->due_ms > hy_clock_ms()) { /* its attempt was lost with the driver, and may not have ended yet */
        t->phase = TRIAL_WAITING;
        hy_list_push(&d->trials.waiting, &t->waiting);
    } else {
        hy_trial_queue(d, t);
    }
}

static void promote(struct driver *d, struct trial *t)
{
    struct early_trial *e = find(d, t->number);

    if (record(d, t->number, HY_DECISION_CONTINUE) < 0)
        return;
    e->decision = HY_DECISION_CONTINUE;
    e->is_promoted = true;
    if (t->phase == TRIAL_PAUSED)
        queue_promoted(d, t);
}

static const char *prune_reason(const struct driver *d, const struct trial *t, char *text, size_t size)
{
    if (!t->has_value || isfinite(t->value))
        return NULL;
    snprintf(text, size, "its %s is %s", d->spec->metric, isnan(t->value) ? "NaN" : "infinite");
    return text;
}

static void prune(struct driver *d, struct trial *t)
{
    char text[400];

    d->trials.paused -= t->phase == TRIAL_PAUSED;
    hy_trial_end(d, t, HY_TRIAL_PRUNED, prune_reason(d, t, text, sizeof text));
}

/* A paused trial will not be promoted. Its last attempt may still run. */
static void give_up(struct driver *d, struct trial *t)
{
    struct early_trial *e = find(d, t->number);

    if (record(d, t->number, HY_DECISION_STOP) < 0)
        return;
    e->decision = t->decision = HY_DECISION_STOP;
    if (t->phase == TRIAL_PAUSED)
        prune(d, t);
}

/* 1: a paused trial was promoted or pruned. */
static int apply_next(struct driver *d, bool has_room)
{
    enum hy_decision decision;
    struct trial *t;
    uint64_t number;

    if (d->phase != PHASE_RUNNING || hy_stopper_next(d->early_stop.stopper, has_room, &number, &decision) <= 0)
        return 0;
    t = hy_map_get(&d->trials.map, number);
    if (!t)
        return 0;
    if (decision == HY_DECISION_CONTINUE)
        promote(d, t);
    else
        give_up(d, t);
    return 1;
}

/* Ending a trial calls this again. */
static void prune_all(struct driver *d)
{
    if (d->early_stop.is_pruning)
        return;
    d->early_stop.is_pruning = true;
    while (apply_next(d, false))
        ;
    d->early_stop.is_pruning = false;
}

bool hy_early_stop_promote(struct driver *d)
{
    return d->early_stop.stopper && d->trials.paused && apply_next(d, true);
}

bool hy_early_stop_close(struct driver *d)
{
    if (!d->early_stop.stopper || !d->trials.paused)
        return false;
    hy_stopper_close(d->early_stop.stopper);
    return apply_next(d, true);
}

/* ---- reports and ends ------------------------------------------------------------------------- */

/* A new attempt counts anew, except a promoted one, which continues. */
static int64_t step_of(struct early_trial *e, int64_t attempt, int64_t step)
{
    if (attempt != e->attempt && !e->is_promoted)
        e->step = 0;
    e->attempt = attempt;
    e->step = step >= 0 ? step : e->step + 1;
    return e->step;
}

static int report(struct driver *d, struct early_trial *e, uint64_t number, double value)
{
    e->has_value = true;
    e->value = value;
    return hy_stopper_report(d->early_stop.stopper, number, e->step, value);
}

int64_t hy_early_stop_place(struct driver *d, const struct trial *t, const char *metric)
{
    return d->early_stop.stopper && !t->ended && strcmp(metric, d->spec->metric) == 0 ? ++d->trials.seq : 0;
}

void hy_early_stop_report(struct driver *d, struct trial *t, int64_t step, double value)
{
    struct early_trial *e = find(d, t->number);
    int decision;

    if (!e || d->phase != PHASE_RUNNING)
        return;
    step_of(e, t->attempt, step);
    decision = report(d, e, t->number, value);
    if (decision == -ENOMEM)
        hy_run_out_of_memory(d);
    else if (decision > HY_DECISION_CONTINUE && decision != (int)e->decision && e->decision != HY_DECISION_STOP)
        decide(d, t, (enum hy_decision)decision);
    prune_all(d);
}

bool hy_early_stop_is_promoted(const struct driver *d, const struct trial *t)
{
    const struct early_trial *e = find(d, t->number);

    return e && e->is_promoted;
}

/* It may have reported its last step before it received the decision to pause: then nothing is left to report. */
void hy_early_stop_begin(struct driver *d, struct trial *t)
{
    const struct early_trial *e = find(d, t->number);

    t->decision = HY_DECISION_CONTINUE;
    if (!e || !e->is_promoted)
        return;
    t->has_value = e->has_value;
    t->value = e->value;
}

void hy_early_stop_end(struct driver *d, const struct trial *t)
{
    struct early_trial *e = find(d, t->number);

    if (!e)
        return;
    hy_map_remove(&d->early_stop.trials, t->number);
    free(e);
    hy_stopper_end(d->early_stop.stopper, t->number);
    prune_all(d);
}

bool hy_early_stop_has_ended(const struct trial *t, const Hy__Ended *e)
{
    bool is_success = e->outcome == HY__ENDED__OUTCOME__EXITED && e->code == 0;

    return t->decision != HY_DECISION_CONTINUE && !(is_success && e->decision == HY__DECISION__KIND__CONTINUE);
}

static void pause_trial(struct driver *d, struct trial *t)
{
    const struct early_trial *e = find(d, t->number);
    struct hy_trial_row row = {.number = (int64_t)t->number,
                               .state = HY_TRIAL_PAUSED,
                               .has_value = e->has_value,
                               .value = e->value,
                               .attempts = t->attempt};

    if (hy_run_check_recorded(d, hy_changes_trial_end(&d->commit.recorded, &row)) < 0)
        return;
    t->phase = TRIAL_PAUSED;
    d->trials.paused++;
    d->changed = true;
    if (d->phase != PHASE_RUNNING) /* resume continues */
        hy_trial_free(d, t);
    else if (e->is_promoted)
        queue_promoted(d, t);
}

void hy_early_stop_attempt_over(struct driver *d, struct trial *t)
{
    const struct early_trial *e = find(d, t->number);

    t->has_value = e->has_value;
    t->value = e->value;
    if (t->decision == HY_DECISION_STOP)
        prune(d, t);
    else
        pause_trial(d, t);
}

/* ---- resume ----------------------------------------------------------------------------------- */

static int restore_decision(struct driver *d, const struct hy_stop_event *event)
{
    struct early_trial *e = find(d, (uint64_t)event->trial);

    if (!e)
        return 0;
    e->is_promoted = event->decision == HY_DECISION_CONTINUE;
    e->decision = (enum hy_decision)event->decision;
    if (e->decision != HY_DECISION_PAUSE) /* also of a trial that had not paused: then it has no effect */
        hy_stopper_restore(d->early_stop.stopper, (uint64_t)event->trial, e->decision);
    return 0;
}

static int restore_report(struct driver *d, const struct hy_stop_event *event)
{
    struct early_trial *e = find(d, (uint64_t)event->trial);

    if (!e)
        return 0;
    step_of(e, event->attempt, event->step);
    return report(d, e, (uint64_t)event->trial, event->value) == -ENOMEM ? -ENOMEM : 0;
}

/* A trial that runs again has not ended for the stopper. */
static void restore_end(struct driver *d, uint64_t number)
{
    if (hy_map_get(&d->trials.map, number))
        return;
    free(hy_map_remove(&d->early_stop.trials, number));
    hy_stopper_end(d->early_stop.stopper, number);
}

static int on_event(void *arg, const struct hy_stop_event *event)
{
    struct driver *d = arg;

    if (event->seq > d->trials.seq)
        d->trials.seq = event->seq;
    switch (event->kind) {
    case HY_STOP_EVENT_ASK:
        return add(d, (uint64_t)event->trial) == -ENOMEM ? -ENOMEM : 0;
    case HY_STOP_EVENT_REPORT:
        return restore_report(d, event);
    case HY_STOP_EVENT_DECISION:
        return restore_decision(d, event);
    case HY_STOP_EVENT_END:
        restore_end(d, (uint64_t)event->trial);
        return 0;
    }
    return 0;
}

int hy_early_stop_restore(struct driver *d, struct hy_err *err)
{
    int rc = d->early_stop.stopper ? hy_store_stop_replay(d->store, d->run, on_event, d, err) : 0;

    return rc == -ENOMEM ? hy_err_oom(err) : rc;
}

bool hy_early_stop_settle(struct driver *d, struct trial *t)
{
    const struct early_trial *e = find(d, t->number);

    if (!e || e->decision == HY_DECISION_CONTINUE)
        return false;
    t->decision = e->decision;
    hy_early_stop_attempt_over(d, t);
    return true;
}
