/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resuming a run. All asks and tells of the search are repeated in the same
 * order, which restores its state. Trials that had not ended run again; so do
 * failed ones, unless the search has used their failure (those that learn do). Trials
 * with a decision to end early are pruned or paused, as they would have been. All
 * ranks of a training run again together.
 *
 * The charges of a trial's attempts (failures, agents that died) are kept, so
 * that no limit starts anew with each resume. Only a trial that had failed for
 * good, and is retried because the user resumes the run, starts without
 * charges.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "driver/params_text.h"
#include "driver/run.h"

struct replay {
    struct driver *driver;
    struct hy_value *values;
    bool some_had_failed;
    struct hy_err *err;
};

static bool runs_again(const struct driver *d, const struct hy_trial_row *row)
{
    if (hy_is_training(d)) /* all ranks, or none */
        return true;
    if (row->state == HY_TRIAL_FAILED) /* unless the search has learned from it */
        return d->spec->kind != HY__RUN_SPEC__KIND__EVOLVE && !hy_search_takes_values(d->search);
    return row->state != HY_TRIAL_DONE && row->state != HY_TRIAL_PRUNED;
}

/* Searches that learn take the stored values; others draw them again, in the same order. -EUCLEAN: they differ. */
static int restore_values(struct replay *r, const struct hy_trial_row *row)
{
    struct driver *d = r->driver;
    uint64_t number = 0;
    int rc;

    if (!hy_search_takes_values(d->search)) {
        rc = hy_search_ask(d->search, &number, r->values);
        return rc < 0 ? rc : rc == 1 && number == (uint64_t)row->number ? 0 : -EUCLEAN;
    }
    rc = row->params ? hy_params_parse(&d->space, row->params, r->values) : -EINVAL;
    return rc < 0 ? rc : hy_search_restore(d->search, r->values);
}

static int replay_ask(struct replay *r, const struct hy_trial_row *row)
{
    struct driver *d = r->driver;
    struct trial *t;
    int rc = restore_values(r, row);

    if (rc == -ENOMEM)
        return hy_err_oom(r->err);
    if (rc < 0)
        return hy_err_set(r->err, -EUCLEAN,
                          "run %lld cannot be resumed: its search gives other trials than the store "
                          "has; resume it with the version of hopyard that started it",
                          (long long)d->run);
    if (row->asked_seq > d->trials.seq)
        d->trials.seq = row->asked_seq;
    if (row->ended_seq > d->trials.seq) /* also of one that runs again: clients have seen that position */
        d->trials.seq = row->ended_seq;
    if (row->dir && hy_run_take_dir(d, row->dir) == -ENOMEM)
        return hy_err_oom(r->err);
    if (!runs_again(d, row))
        return 0;
    t = hy_trial_new(d, (uint64_t)row->number, r->values);
    if (t) {
        t->asked_wall = row->started;
        t->dir = hy_strdup(row->dir);
        t->had_failed = row->state == HY_TRIAL_FAILED;
        r->some_had_failed |= t->had_failed;
    }
    return t && t->dir ? 0 : hy_err_oom(r->err);
}

static int replay_tell(struct replay *r, const struct hy_trial_row *row)
{
    struct driver *d = r->driver;

    if (row->told_seq > d->trials.seq)
        d->trials.seq = row->told_seq;
    if (runs_again(d, row))
        return 0;
    if (row->ended_seq > d->trials.ended_seq)
        d->trials.ended_seq = row->ended_seq;
    hy_search_tell(d->search, (uint64_t)row->number, row->has_value ? row->value : NAN);
    if (row->has_value && row->state == HY_TRIAL_DONE && hy_run_update_best(d, row) < 0)
        return hy_err_oom(r->err);
    d->trials.without_metric += row->state == HY_TRIAL_DONE && *d->spec->metric && !row->has_value;
    *(row->state == HY_TRIAL_DONE     ? &d->trials.done
      : row->state == HY_TRIAL_PRUNED ? &d->trials.pruned
                                      : &d->trials.failed) += 1;
    return 0;
}

static int on_row(void *arg, const struct hy_trial_row *row, int is_tell)
{
    return is_tell ? replay_tell(arg, row) : replay_ask(arg, row);
}

/* ---- attempts that were interrupted with the driver ------------------------------------------ */

struct interrupted {
    struct driver *driver;
    struct hy_map rounds; /* of a training, by attempt: one bit per kind of charge */
    struct hy_attempt_row *rows;
    size_t count;
};

/* Ranks that start together have the same attempt number, and its end is charged once. */
static int charge_training(struct interrupted *l, const struct hy_attempt_row *row)
{
    uintptr_t bits = (uintptr_t)hy_map_get(&l->rounds, (uint64_t)row->number), bit = (uintptr_t)1 << row->charge;

    if (!row->charge || bits & bit)
        return 0;
    l->driver->training.charged[row->charge]++;
    return hy_map_put(&l->rounds, (uint64_t)row->number, (void *)(bits | bit));
}

static int charge(struct interrupted *l, struct trial *t, const struct hy_attempt_row *row)
{
    t->charged[row->charge] += row->charge != HY_CHARGE_NONE;
    return hy_is_training(l->driver) ? charge_training(l, row) : 0;
}

static int on_attempt(void *arg, const struct hy_attempt_row *row)
{
    struct interrupted *l = arg;
    struct trial *t = hy_map_get(&l->driver->trials.map, (uint64_t)row->trial);

    if (t && t->attempt < row->number)
        t->attempt = (uint32_t)row->number;
    if (row->state != HY_ATTEMPT_RUNNING)
        return t ? charge(l, t, row) : 0;
    if (hy_array_grow(l->rows, l->count) < 0)
        return -ENOMEM;
    l->rows[l->count++] =
        (struct hy_attempt_row){.trial = row->trial, .number = row->number, .started = row->started, .gpus = row->gpus};
    return 0;
}

static int end_interrupted(struct driver *d, struct hy_err *err)
{
    struct interrupted l = {.driver = d};
    int rc = hy_store_attempt_each(d->store, d->run, 0, on_attempt, &l, err);

    for (size_t i = 0; i < l.count && rc == 0; i++) {
        struct trial *t = hy_map_get(&d->trials.map, (uint64_t)l.rows[i].trial);

        l.rows[i].state = HY_ATTEMPT_LOST;
        l.rows[i].message = "the driver was interrupted";
        l.rows[i].ended = hy_clock_wall_ms();
        rc = hy_store_attempt_end(d->store, d->run, &l.rows[i], err);
        /* On another host it may be alive until its lease expires and it has ended; local ones have ended (see
         * have_earlier_agents_ended). */
        if (t && (d->spec->n_hosts || *d->spec->listen || *d->spec->discovery))
            t->due_ms = hy_clock_ms() + HY_AGENT_SILENCE_MS;
    }
    hy_map_done(&l.rounds);
    free(l.rows);
    return rc;
}

/* A training fails as a whole. */
static int reset_charges(struct replay *r)
{
    struct driver *d = r->driver;
    bool all = hy_is_training(d) && r->some_had_failed;
    struct trial *t;
    int rc = 0;

    for (size_t i = 0; rc == 0 && (t = hy_map_next(&d->trials.map, &i));)
        if (all || t->had_failed)
            rc = hy_store_attempts_clear_charges(d->store, d->run, (int64_t)t->number, r->err);
    return rc;
}

/* Trials with a decision to end early, or to pause. */
static void settle_all(struct driver *d)
{
    struct trial *t;

    for (size_t i = 0; d->phase == PHASE_RUNNING && (t = hy_map_next(&d->trials.map, &i));)
        if (t->phase != TRIAL_PAUSED && hy_early_stop_settle(d, t))
            i = 0; /* trials may have been removed */
}

static int queue_all(struct driver *d, struct hy_err *err)
{
    struct trial *t;
    int rc = 0;

    settle_all(d);

    for (size_t i = 0; rc == 0 && (t = hy_map_next(&d->trials.map, &i));) {
        struct hy_trial_row row = {.number = (int64_t)t->number, .state = HY_TRIAL_RUNNING, .attempts = t->attempt};

        if (t->phase == TRIAL_PAUSED)
            continue;
        rc = hy_store_trial_end(d->store, d->run, &row, err);
        if (rc < 0)
            break;
        if (hy_is_training(d)) {
            t->phase = TRIAL_QUEUED;
            d->training.start_at = t->due_ms > d->training.start_at ? t->due_ms : d->training.start_at;
        } else if (t->due_ms) {
            t->phase = TRIAL_WAITING;
            hy_list_push(&d->trials.waiting, &t->waiting);
        } else {
            rc = hy_trial_queue(d, t);
        }
    }
    return rc;
}

int hy_run_restore(struct driver *d, struct hy_err *err)
{
    struct replay r = {.driver = d, .err = err};
    int rc;

    r.values = hy_calloc(d->space.count + 1, sizeof *r.values);
    if (!r.values)
        return hy_err_oom(err);
    rc = hy_store_replay(d->store, d->run, on_row, &r, err);
    free(r.values);
    if (rc == 0)
        rc = hy_early_stop_restore(d, err);
    if (rc == 0)
        rc = reset_charges(&r);
    if (rc == 0)
        rc = end_interrupted(d, err);
    return rc == 0 ? queue_all(d, err) : rc;
}

/* ---- how a run is resumed -------------------------------------------------------------- */

Hy__Resume hy_run_resume(const Hy__RunSpec *spec)
{
    if (!spec)
        return HY__RESUME__BY_PROGRAM;
    if (spec->fed || spec->shared)
        return HY__RESUME__NEVER;
    return *spec->engine && !*spec->master ? HY__RESUME__BY_SESSION : HY__RESUME__BY_PROGRAM;
}

const char *hy_resume_clause(Hy__Resume how, int64_t run, const char *before, const char *after, char *buf, size_t n)
{
    *buf = '\0';
    if (how == HY__RESUME__BY_SESSION)
        snprintf(buf, n, "%sexperiment.resume(%lld, spark=spark)%s", before, (long long)run, after);
    else if (how != HY__RESUME__NEVER)
        snprintf(buf, n, "%shopyard resume %lld%s", before, (long long)run, after);
    return buf;
}
