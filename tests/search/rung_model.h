/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Successive halving, ASHA and Hyperband as they are described, for test_rung_histories.c: everything is counted anew
 * for each question.
 */
#ifndef HY_TESTS_RUNG_MODEL_H
#define HY_TESTS_RUNG_MODEL_H

#include "stop_bench.h"

#define MODEL_TRIALS 60
#define MODEL_RUNGS 12

enum model_state { RUNNING, PAUSED, OUT };

struct model_trial {
    enum model_state state;
    int bracket;
    int rung; /* where it pauses, or the next one */
    int64_t last;
};

struct model_arrival {
    uint64_t trial;
    double cost;
    bool waits, is_withdrawn;
};

struct model_rung {
    struct model_arrival arrivals[MODEL_TRIALS];
    size_t arrived, promoted;
};

struct model_bracket {
    uint64_t size; /* 0: unlimited */
    uint64_t added;
    int first_rung, rung_count;
    bool is_open;
    struct model_rung rungs[MODEL_RUNGS];
};

struct model {
    struct hy_stop_settings settings; /* complete */
    int64_t steps[MODEL_RUNGS];
    int rung_count;
    struct model_trial trials[MODEL_TRIALS + 1]; /* by number */
    uint64_t added;
    struct model_bracket brackets[MODEL_TRIALS + 1];
    int bracket_count, filling; /* -1: none */
};

/* For hy_stop_round_trials: complete settings of HALVING need `trials`. */
static inline void model_init(struct model *m, struct hy_stop_settings settings)
{
    int64_t step = settings.min_step;

    m->settings = settings;
    m->filling = -1;
    for (int64_t next; m->rung_count < MODEL_RUNGS; step = next) {
        next = step * settings.reduction;
        if (settings.max_step && next > settings.max_step)
            break;
        m->steps[m->rung_count++] = step;
    }
}

static inline bool model_waits_for_all(const struct model *m)
{
    return m->settings.kind != HY_STOP_ASHA;
}

/* ---- questions */

static inline size_t model_rank(const struct model_rung *r, const struct model_arrival *a)
{
    size_t rank = 0;

    for (const struct model_arrival *b = r->arrivals; b < r->arrivals + r->arrived; b++)
        rank += !b->is_withdrawn && (b->cost < a->cost || (b->cost == a->cost && b->trial < a->trial));
    return rank;
}

static inline bool model_is_among_best(const struct model *m, const struct model_rung *r, const struct model_arrival *a,
                                       bool is_final)
{
    size_t quota = r->arrived / m->settings.reduction;

    if (quota == 0 && (is_final || !m->settings.may_pause))
        quota = 1;
    return model_rank(r, a) < quota;
}

/* Whether a trial of a final rung still has to continue. */
static inline bool model_has_promotable(const struct model *m, const struct model_rung *r)
{
    for (size_t i = 0; i < r->arrived; i++)
        if (r->arrivals[i].waits && model_is_among_best(m, r, &r->arrivals[i], true))
            return true;
    return false;
}

/* No trial can arrive any more. */
static inline bool model_is_final(const struct model *m, int bracket, int rung)
{
    const struct model_bracket *b = &m->brackets[bracket];

    if (b->is_open)
        return false;
    for (uint64_t i = 1; i <= m->added; i++)
        if (m->trials[i].state == RUNNING && m->trials[i].bracket == bracket && m->trials[i].rung <= rung)
            return false;
    for (int i = 0; i < rung; i++)
        if (model_has_promotable(m, &b->rungs[i]))
            return false;
    return true;
}

/* GO: a waiting trial may continue; STOP: it never will; PAUSE: neither is known. */
static inline enum hy_decision model_decide(const struct model *m, int bracket, int rung, const struct model_arrival *a)
{
    bool is_final = model_is_final(m, bracket, rung);

    if (!is_final && model_waits_for_all(m))
        return PAUSE;
    if (model_is_among_best(m, &m->brackets[bracket].rungs[rung], a, is_final))
        return GO;
    return is_final ? STOP : PAUSE;
}

static inline struct model_arrival *model_waiting(struct model *m, uint64_t trial)
{
    const struct model_trial *t = &m->trials[trial];
    struct model_rung *r = &m->brackets[t->bracket].rungs[t->rung];

    for (size_t i = 0; t->state == PAUSED && i < r->arrived; i++)
        if (r->arrivals[i].trial == trial)
            return &r->arrivals[i];
    fail_msg("trial %d is not paused", (int)trial);
    return NULL;
}

/* ---- changes */

static inline void model_promote(struct model *m, uint64_t trial)
{
    struct model_trial *t = &m->trials[trial];

    model_waiting(m, trial)->waits = false;
    m->brackets[t->bracket].rungs[t->rung].promoted++;
    t->state = RUNNING;
    t->rung++;
}

static inline void model_stop(struct model *m, uint64_t trial)
{
    model_waiting(m, trial)->waits = false;
    m->trials[trial].state = OUT;
}

/* It has ended, or diverged. */
static inline void model_end(struct model *m, uint64_t trial)
{
    struct model_trial *t = &m->trials[trial];

    if (t->state == PAUSED) {
        struct model_arrival *a = model_waiting(m, trial);

        a->waits = false;
        a->is_withdrawn = true;
    }
    t->state = OUT;
}

static inline enum hy_decision model_arrive(struct model *m, uint64_t trial, double cost)
{
    struct model_trial *t = &m->trials[trial];
    struct model_bracket *b = &m->brackets[t->bracket];
    struct model_rung *r = &b->rungs[t->rung];
    struct model_arrival *a = &r->arrivals[r->arrived++];
    enum hy_decision decision;

    *a = (struct model_arrival){.trial = trial, .cost = cost, .waits = true};
    t->state = PAUSED;
    decision = model_decide(m, t->bracket, t->rung, a);
    if (decision == PAUSE && !model_waits_for_all(m) && !m->settings.may_pause)
        decision = STOP;
    if (decision == GO)
        model_promote(m, trial);
    else if (decision == STOP)
        model_stop(m, trial);
    else
        t->last = m->steps[b->first_rung + t->rung];
    return decision;
}

static inline enum hy_decision model_report(struct model *m, uint64_t trial, int64_t step, double cost)
{
    struct model_trial *t = &m->trials[trial];
    const struct model_bracket *b = &m->brackets[t->bracket];
    enum hy_decision decision = GO;

    if (isnan(cost))
        model_end(m, trial);
    if (t->state != RUNNING)
        return t->state == PAUSED ? PAUSE : STOP;
    if (step <= t->last)
        return GO;
    t->last = step;
    if (m->settings.max_step && step >= m->settings.max_step) {
        t->rung = MODEL_RUNGS;
        t->last = INT64_MAX;
    }
    while (decision == GO && t->rung < b->rung_count && step >= m->steps[b->first_rung + t->rung])
        decision = model_arrive(m, trial, cost);
    return decision;
}

static inline void model_begin_bracket(struct model *m)
{
    struct model_bracket *b = &m->brackets[m->bracket_count];
    uint64_t power = 1;

    b->size = m->settings.kind == HY_STOP_HALVING ? m->settings.trials : 0;
    if (m->settings.kind == HY_STOP_HYPERBAND) {
        b->first_rung = m->bracket_count % (m->rung_count + 1);
        for (int i = b->first_rung; i < m->rung_count; i++)
            power *= m->settings.reduction;
        while (b->size * (uint64_t)(m->rung_count - b->first_rung + 1) < power * (uint64_t)(m->rung_count + 1))
            b->size++; /* rounded up */
    }
    b->rung_count = m->rung_count - b->first_rung;
    m->filling = m->bracket_count++;
}

static inline void model_add(struct model *m, uint64_t trial)
{
    struct model_bracket *b;

    if (m->filling < 0)
        model_begin_bracket(m);
    b = &m->brackets[m->filling];
    b->is_open = ++b->added != b->size;
    m->trials[trial] = (struct model_trial){.bracket = m->filling, .last = -1};
    m->added = trial;
    if (!b->is_open)
        m->filling = -1;
}

static inline void model_close(struct model *m)
{
    if (m->filling < 0)
        return;
    m->brackets[m->filling].is_open = false;
    if (model_waits_for_all(m))
        m->filling = -1;
}

#endif
