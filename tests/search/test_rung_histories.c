/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random histories of trials in rungs: every decision is that of the model (rung_model.h), a stopper that maximizes
 * decides the same, no trial waits forever, and a run that is resumed continues with the same decisions.
 */
#include "rung_model.h"

#define HISTORIES 25
#define EVENTS 250
#define CALLS 20000

enum call_kind { ADD, REPORT, END, CLOSE, NEXT };

struct call {
    enum call_kind kind;
    uint64_t trial;
    int64_t step;
    double value;
    enum hy_decision decision; /* of a REPORT or a NEXT */
};

struct history {
    struct model *model;
    struct hy_stopper *s, *mirror; /* the latter maximizes */
    struct hy_rng rng;
    int64_t at[MODEL_TRIALS + 1]; /* the step of each trial */
    size_t running, slots;
    struct call calls[CALLS];
    size_t call_count;
};

static void note(struct history *h, struct call call)
{
    assert_in_range(h->call_count, 0, CALLS - 1);
    h->calls[h->call_count++] = call;
}

/* ---- each call, on both stoppers and the model -------------------------------------- */

static void do_add(struct history *h)
{
    uint64_t trial = h->model->added + 1;

    assert_int_equal(hy_stopper_add(h->s, trial), 0);
    assert_int_equal(hy_stopper_add(h->mirror, trial), 0);
    note(h, (struct call){.kind = ADD, .trial = trial});
    model_add(h->model, trial);
    h->at[trial] = -1;
    h->running++;
}

static enum hy_decision do_report(struct history *h, uint64_t trial, int64_t step, double value)
{
    bool was_running = h->model->trials[trial].state == RUNNING;
    enum hy_decision want = model_report(h->model, trial, step, value);

    assert_int_equal(hy_stopper_report(h->s, trial, step, value), want);
    assert_int_equal(hy_stopper_report(h->mirror, trial, step, -value), want);
    note(h, (struct call){REPORT, trial, step, value, want});
    h->running -= was_running && want != GO;
    return want;
}

static void do_end(struct history *h, uint64_t trial)
{
    hy_stopper_end(h->s, trial);
    hy_stopper_end(h->mirror, trial);
    note(h, (struct call){.kind = END, .trial = trial});
    h->running -= h->model->trials[trial].state == RUNNING;
    model_end(h->model, trial);
}

static void do_close(struct history *h)
{
    hy_stopper_close(h->s);
    hy_stopper_close(h->mirror);
    note(h, (struct call){.kind = CLOSE});
    model_close(h->model);
}

static size_t count_waiting(const struct model *m, enum hy_decision decision)
{
    size_t n = 0;

    for (int b = 0; b < m->bracket_count; b++)
        for (int r = 0; r < m->brackets[b].rung_count; r++) {
            const struct model_rung *rung = &m->brackets[b].rungs[r];

            for (size_t i = 0; i < rung->arrived; i++)
                n += rung->arrivals[i].waits && model_decide(m, b, r, &rung->arrivals[i]) == decision;
        }
    return n;
}

/* The best one of the highest rung of its bracket. */
static void assert_first_to_promote(struct model *m, uint64_t trial)
{
    const struct model_trial *t = &m->trials[trial];
    const struct model_bracket *b = &m->brackets[t->bracket];
    size_t rank = model_rank(&b->rungs[t->rung], model_waiting(m, trial));

    for (int r = t->rung; r < b->rung_count; r++)
        for (size_t i = 0; i < b->rungs[r].arrived; i++) {
            const struct model_arrival *a = &b->rungs[r].arrivals[i];

            if (a->waits && model_decide(m, t->bracket, r, a) == GO)
                assert_true(r == t->rung && model_rank(&b->rungs[r], a) >= rank);
        }
}

/* Whether it is allowed; which of several brackets comes first is not checked. */
static void apply_next(struct history *h, uint64_t trial, enum hy_decision decision)
{
    struct model *m = h->model;
    const struct model_trial *t = &m->trials[trial];

    assert_int_equal(model_decide(m, t->bracket, t->rung, model_waiting(m, trial)), decision);
    if (decision == STOP) {
        model_stop(m, trial);
        return;
    }
    assert_first_to_promote(m, trial);
    model_promote(m, trial);
    h->running++;
}

/* Returns whether there was one. */
static bool do_next(struct history *h)
{
    bool has_room = h->running < h->slots;
    size_t stoppable = count_waiting(h->model, STOP), promotable = count_waiting(h->model, GO);
    enum hy_decision decision, mirrored;
    uint64_t trial, same;
    int rc = hy_stopper_can_promote(h->s);

    assert_int_equal(rc, promotable > 0);
    rc = hy_stopper_next(h->s, has_room, &trial, &decision);
    assert_int_equal(hy_stopper_next(h->mirror, has_room, &same, &mirrored), rc);
    assert_int_equal(rc, stoppable > 0 || (has_room && promotable > 0));
    if (rc == 0)
        return false;
    assert_int_equal(same, trial);
    assert_int_equal(mirrored, decision);
    assert_int_equal(decision, stoppable > 0 ? STOP : GO);
    note(h, (struct call){.kind = NEXT, .trial = trial, .decision = decision});
    apply_next(h, trial, decision);
    return true;
}

/* ---- events --------------------------------------------------------------------- */

/* 0: none */
static uint64_t pick(struct history *h, enum model_state state)
{
    uint64_t added = h->model->added, from = added ? hy_rng_below(&h->rng, added) : 0;

    for (uint64_t i = 0; i < added; i++)
        if (h->model->trials[(from + i) % added + 1].state == state)
            return (from + i) % added + 1;
    return 0;
}

/* Steps are repeated, out of order, left out, and begin anew; many values are equal. */
static void random_report(struct history *h, uint64_t trial)
{
    uint64_t event = hy_rng_below(&h->rng, 100);
    double value = (double)hy_rng_below(&h->rng, 12);
    int64_t end = h->model->settings.max_step ? h->model->settings.max_step : 40;

    if (event < 3)
        h->at[trial] = -1;
    else if (event < 10)
        h->at[trial] -= (int64_t)hy_rng_below(&h->rng, 3);
    else if (event >= 20)
        h->at[trial] += event < 80 ? 1 : (int64_t)hy_rng_below(&h->rng, 30);
    value = hy_rng_below(&h->rng, 50) ? value : NAN;
    if (do_report(h, trial, h->at[trial], value) == GO && h->at[trial] >= end)
        do_end(h, trial);
}

static void random_event(struct history *h, uint64_t total)
{
    uint64_t event = hy_rng_below(&h->rng, 100), running = pick(h, RUNNING), paused = pick(h, PAUSED);

    if (event >= 97)
        do_close(h); /* a search that waits for results */
    else if (event < 80 && h->running < h->slots && h->model->added < total && !hy_stopper_can_promote(h->s))
        do_add(h);
    else if (event < 2 && paused)
        do_end(h, paused);
    else if (event < 4 && paused)
        do_report(h, paused, 1000, event == 2 ? NAN : 0);
    else if (event < 6 && running)
        do_end(h, running);
    else if (running)
        random_report(h, running);
}

/* ---- histories -------------------------------------------------------------------- */

static void replay_call(struct hy_stopper *s, const struct call *c, bool restores)
{
    enum hy_decision decision;
    uint64_t trial;

    if (c->kind == ADD) {
        assert_int_equal(hy_stopper_add(s, c->trial), 0);
    } else if (c->kind == REPORT) {
        assert_int_equal(hy_stopper_report(s, c->trial, c->step, c->value), c->decision);
    } else if (c->kind == END) {
        hy_stopper_end(s, c->trial);
    } else if (c->kind == CLOSE) {
        hy_stopper_close(s);
    } else if (restores) {
        assert_int_equal(hy_stopper_restore(s, c->trial, c->decision), 0);
    } else {
        assert_int_equal(hy_stopper_next(s, c->decision == GO, &trial, &decision), 1);
        assert_int_equal(trial, c->trial);
        assert_int_equal(decision, c->decision);
    }
}

/* The decisions that were made before `resumed` are restored, those from there on made again. */
static void assert_resumes(const struct history *h, size_t resumed)
{
    struct hy_stopper *s = stopper_of(h->model->settings);

    for (size_t i = 0; i < h->call_count; i++)
        replay_call(s, &h->calls[i], i < resumed);
    for (size_t i = 0; i < hy_stopper_rung_count(h->s); i++) {
        struct hy_rung a = hy_stopper_rung(h->s, i), b = hy_stopper_rung(s, i);

        assert_true(a.arrived == b.arrived && a.paused == b.paused && a.promoted == b.promoted);
    }
    hy_stopper_free(s);
}

static void assert_totals(const struct history *h)
{
    const struct model *m = h->model;

    for (size_t i = 0; i < hy_stopper_rung_count(h->s); i++) {
        struct hy_rung total = hy_stopper_rung(h->s, i);
        size_t arrived = 0, promoted = 0;

        for (int b = 0; b < m->bracket_count; b++)
            for (int r = 0; r < m->brackets[b].rung_count; r++)
                if (m->brackets[b].first_rung == (int)total.bracket &&
                    m->steps[m->brackets[b].first_rung + r] == total.step) {
                    arrived += m->brackets[b].rungs[r].arrived;
                    promoted += m->brackets[b].rungs[r].promoted;
                }
        assert_int_equal(total.arrived, arrived);
        assert_int_equal(total.promoted, promoted);
        assert_int_equal(total.paused, 0);
    }
}

/* Rungs that wait for all trials keep to the quota. ASHA exceeds it where better trials arrive later. */
static void assert_quotas(const struct model *m)
{
    for (int b = 0; model_waits_for_all(m) && b < m->bracket_count; b++)
        for (int r = 0; r < m->brackets[b].rung_count; r++) {
            size_t quota = m->brackets[b].rungs[r].arrived / m->settings.reduction;

            assert_in_range(m->brackets[b].rungs[r].promoted, 0, quota ? quota : 1);
        }
}

static struct history *history_new(struct hy_stop_settings settings, uint64_t seed)
{
    struct history *h = calloc(1, sizeof *h);

    h->model = calloc(1, sizeof *h->model);
    settings.min_step = settings.min_step ? settings.min_step : 1;
    settings.reduction = settings.reduction ? settings.reduction : 3;
    if (settings.kind == HY_STOP_HALVING && !settings.trials)
        settings.trials = (uint32_t)hy_stop_round_trials(&settings);
    model_init(h->model, settings);
    h->s = stopper_of(settings);
    settings.maximize = true;
    h->mirror = stopper_of(settings);
    hy_rng_seed(&h->rng, seed, 0);
    h->slots = 1 + (size_t)hy_rng_below(&h->rng, 12);
    return h;
}

static void history_free(struct history *h)
{
    hy_stopper_free(h->s);
    hy_stopper_free(h->mirror);
    free(h->model);
    free(h);
}

/* Runs all trials that were added to their end. While none runs, a paused one is decided about: none waits forever. */
static void finish(struct history *h)
{
    uint64_t trial;

    do_close(h);
    do {
        while (do_next(h))
            ;
        trial = pick(h, RUNNING);
        if (trial)
            random_report(h, trial);
    } while (trial);
    assert_int_equal(pick(h, PAUSED), 0);
}

static void run_history(struct hy_stop_settings settings, uint64_t seed)
{
    struct history *h = history_new(settings, seed);
    uint64_t total = 1 + hy_rng_below(&h->rng, MODEL_TRIALS);

    for (int n = 0; n < EVENTS; n++) {
        random_event(h, total);
        while (do_next(h))
            ;
    }
    finish(h);
    assert_totals(h);
    assert_quotas(h->model);
    assert_resumes(h, 0);
    assert_resumes(h, h->call_count / 2);
    assert_resumes(h, h->call_count);
    history_free(h);
}

HY_TEST(test_halving_decides_as_described)
{
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        run_history((struct hy_stop_settings){.kind = HY_STOP_HALVING, .max_step = 30}, seed);
        run_history((struct hy_stop_settings){.kind = HY_STOP_HALVING, .max_step = 30, .reduction = 2, .trials = 7},
                    seed);
        run_history((struct hy_stop_settings){.kind = HY_STOP_HALVING, .min_step = 2, .reduction = 4, .trials = 20},
                    seed);
    }
}

HY_TEST(test_asha_decides_as_described)
{
    struct hy_stop_settings settings = {.kind = HY_STOP_ASHA};

    for (uint64_t seed = 1; seed <= 2 * HISTORIES; seed++) {
        settings.may_pause = seed % 2;
        run_history((settings.max_step = 30, settings.reduction = 3, settings.min_step = 0, settings), seed);
        run_history((settings.max_step = 0, settings.reduction = 2, settings.min_step = 0, settings), seed);
        run_history((settings.max_step = 0, settings.reduction = 4, settings.min_step = 3, settings), seed);
    }
}

HY_TEST(test_hyperband_decides_as_described)
{
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        run_history((struct hy_stop_settings){.kind = HY_STOP_HYPERBAND, .max_step = 9}, seed);
        run_history((struct hy_stop_settings){.kind = HY_STOP_HYPERBAND, .max_step = 20, .reduction = 2}, seed);
    }
}
