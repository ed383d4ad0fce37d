/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Successive halving, ASHA and Hyperband.
 *
 * All are brackets of trials that climb rungs, and differ in the plan (stop_plan.c) and in the quota: how many of a
 * rung may have been promoted.
 *
 *                         while trials may still arrive     after that (the rung is final)
 *     HALVING, HYPERBAND  none                              1/reduction of those that have arrived, at least one
 *     ASHA, may_pause     1/reduction                       the same
 *     ASHA                1/reduction, at least one         the same
 *
 * A waiting trial is promotable if its rank is below the quota, and stoppable if it is not and the rung is final. A
 * rung is final if its bracket is closed, no trial runs on the way to it or to an earlier rung, and no trial of an
 * earlier rung is promotable. So in a closed bracket where no trial runs, the lowest rung with waiting trials is final,
 * and each of them is promotable or stoppable: no trial waits forever.
 *
 * A promoted trial keeps its rank. With ASHA, better ones may arrive later and are promoted, too: for n trials in
 * random order, about sqrt(n) more than the quota. A trial that ends while it waits has no rank any more: the next best
 * one is promoted in its place.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/list.h"
#include "base/mem.h"
#include "search/ranking.h"
#include "search/stop_internal.h"
#include "search/stop_plan.h"

struct rung {
    struct hy_ranking arrived; /* those that wait are paused */
    uint64_t coming;           /* trials that run, and will arrive here next */
    uint64_t quota;            /* these three are updated after every change of the bracket */
    bool has_promotable, has_stoppable;
};

struct hy_bracket {
    struct hy_list live;                   /* in rungs.live */
    struct hy_list promotable, stoppable; /* in the lists of that name, if a rung has some */
    uint32_t plan;
    bool is_open; /* trials may be added */
    uint64_t added;
    uint64_t members;    /* trials that refer to it */
    uint32_t rung_count; /* 0: its trials run to the end */
    struct rung rungs[];
};

struct rungs {
    struct hy_stop_plan plan;
    struct hy_list live, promotable, stoppable;
    struct hy_bracket *filling; /* the one that takes new trials; NULL: the next trial begins one */
    uint32_t next_plan;
    struct hy_rung *totals; /* for display: of the first bracket, the second one … */
    size_t total_count;
};

/* ---- the plan -------------------------------------------------------------- */

static uint32_t rungs_from(const struct hy_stop_plan *p, uint32_t bracket)
{
    return p->rung_count - p->brackets[bracket].first_rung;
}

static int make_totals(struct rungs *r)
{
    const struct hy_stop_plan *p = &r->plan;
    size_t n = 0;

    for (uint32_t b = 0; b < p->bracket_count; b++)
        n += rungs_from(p, b);
    r->totals = hy_calloc(n, sizeof *r->totals);
    if (!r->totals)
        return -ENOMEM;
    for (uint32_t b = 0; b < p->bracket_count; b++)
        for (uint32_t i = p->brackets[b].first_rung; i < p->rung_count; i++)
            r->totals[r->total_count++] = (struct hy_rung){.bracket = b, .step = p->steps[i]};
    return 0;
}

static struct hy_rung *total_of(struct rungs *r, const struct hy_bracket *b, uint32_t rung)
{
    size_t at = rung;

    for (uint32_t i = 0; i < b->plan; i++)
        at += rungs_from(&r->plan, i);
    return &r->totals[at];
}

static int64_t step_of(const struct rungs *r, const struct hy_bracket *b, uint32_t rung)
{
    return r->plan.steps[r->plan.brackets[b->plan].first_rung + rung];
}

static int rungs_init(struct hy_stopper *s)
{
    struct rungs *r = s->state = hy_calloc(1, sizeof *r);

    if (!r)
        return -ENOMEM;
    hy_stop_plan_make(&r->plan, &s->settings);
    hy_list_init(&r->live);
    hy_list_init(&r->promotable);
    hy_list_init(&r->stoppable);
    return make_totals(r);
}

/* ---- brackets -------------------------------------------------------------- */

static struct hy_bracket *bracket_new(struct rungs *r)
{
    uint32_t count = rungs_from(&r->plan, r->next_plan);
    struct hy_bracket *b = hy_calloc(1, sizeof *b + count * sizeof b->rungs[0]);

    if (!b)
        return NULL;
    b->plan = r->next_plan;
    b->rung_count = count;
    hy_list_push(&r->live, &b->live);
    hy_list_init(&b->promotable);
    hy_list_init(&b->stoppable);
    r->next_plan = (r->next_plan + 1) % r->plan.bracket_count;
    return b;
}

static void bracket_free(struct hy_bracket *b)
{
    hy_list_remove(&b->live);
    hy_list_remove(&b->promotable);
    hy_list_remove(&b->stoppable);
    for (uint32_t i = 0; i < b->rung_count; i++)
        hy_ranking_done(&b->rungs[i].arrived);
    free(b);
}

static void rungs_done(struct hy_stopper *s)
{
    struct rungs *r = s->state;

    if (!r)
        return;
    hy_list_each(it, &r->live) {
        bracket_free(hy_container(it, struct hy_bracket, live));
    }
    free(r->totals);
    free(r);
}

static uint64_t quota_of(const struct hy_stop_settings *settings, const struct rung *rung, bool is_final)
{
    uint64_t quota = rung->arrived.count / settings->reduction;

    if (!is_final && settings->kind != HY_STOP_ASHA)
        return 0;
    return quota == 0 && (is_final || !settings->may_pause) ? 1 : quota;
}

static void link_if(bool condition, struct hy_list *list, struct hy_list *link)
{
    if (!condition)
        hy_list_remove(link);
    else if (hy_list_empty(link))
        hy_list_push(list, link);
}

/* After a change of its trials, or of is_open. */
static void bracket_update(struct hy_stopper *s, struct hy_bracket *b)
{
    struct rungs *r = s->state;
    bool is_final = !b->is_open, has_promotable = false, has_stoppable = false;
    struct hy_ranked e;
    uint32_t rank;

    for (uint32_t i = 0; i < b->rung_count; i++) {
        struct rung *rung = &b->rungs[i];

        is_final = is_final && rung->coming == 0;
        rung->quota = quota_of(&s->settings, rung, is_final);
        rung->has_promotable = hy_ranking_best_waiting(&rung->arrived, &e, &rank) && rank < rung->quota;
        rung->has_stoppable = is_final && hy_ranking_worst_waiting(&rung->arrived, &e, &rank) && rank >= rung->quota;
        is_final = is_final && !rung->has_promotable;
        has_promotable |= rung->has_promotable;
        has_stoppable |= rung->has_stoppable;
    }
    link_if(has_promotable, &r->promotable, &b->promotable);
    link_if(has_stoppable, &r->stoppable, &b->stoppable);
}

/* The same, and frees it if no trial can use it any more. */
static void bracket_settle(struct hy_stopper *s, struct hy_bracket *b)
{
    if (b->members == 0 && b != ((struct rungs *)s->state)->filling)
        bracket_free(b);
    else
        bracket_update(s, b);
}

static void detach(struct hy_stop_trial *t)
{
    t->rungs.bracket->members--;
    t->rungs.bracket = NULL;
}

/* ---- filling them ---------------------------------------------------------- */

/* A bracket without a limit takes trials again after a close; others do not, so that their rungs can end. */
static void stop_filling(struct hy_stopper *s)
{
    struct rungs *r = s->state;
    struct hy_bracket *b = r->filling;

    b->is_open = false;
    if (r->plan.brackets[b->plan].trials)
        r->filling = NULL;
    bracket_settle(s, b);
}

static void rungs_close(struct hy_stopper *s)
{
    if (((struct rungs *)s->state)->filling)
        stop_filling(s);
}

static int rungs_add(struct hy_stopper *s, struct hy_stop_trial *t)
{
    struct rungs *r = s->state;
    struct hy_bracket *b = r->filling ? r->filling : bracket_new(r);

    if (!b)
        return -ENOMEM;
    r->filling = b;
    b->is_open = true;
    b->added++;
    if (b->rung_count) {
        t->rungs.bracket = b;
        b->members++;
        b->rungs[0].coming++;
    }
    if (b->added == r->plan.brackets[b->plan].trials)
        stop_filling(s);
    else
        bracket_update(s, b);
    return 0;
}

/* ---- climbing -------------------------------------------------------------- */

/* It is in the ranking of its rung, and waits no more. */
static void promote(struct rungs *r, struct hy_stop_trial *t)
{
    struct hy_bracket *b = t->rungs.bracket;
    struct hy_rung *total = total_of(r, b, t->rungs.rung);

    total->paused--;
    total->promoted++;
    if (++t->rungs.rung == b->rung_count)
        detach(t);
    else
        b->rungs[t->rungs.rung].coming++;
}

static struct hy_ranked entry_of(const struct hy_stop_trial *t)
{
    return (struct hy_ranked){.cost = t->rungs.cost, .trial = t->number};
}

static void rungs_decide(struct hy_stopper *s, struct hy_stop_trial *t, enum hy_decision decision)
{
    struct rungs *r = s->state;
    struct hy_bracket *b = t->rungs.bracket;

    if (b == r->filling && r->plan.brackets[b->plan].trials)
        stop_filling(s); /* restored: only a close can have led to this decision */
    hy_ranking_settle(&b->rungs[t->rungs.rung].arrived, entry_of(t));
    if (decision == HY_DECISION_CONTINUE) {
        promote(r, t);
    } else {
        total_of(r, b, t->rungs.rung)->paused--;
        detach(t);
    }
    bracket_settle(s, b);
}

/* The trial has reached the rung that is next for it. */
static int arrive(struct hy_stopper *s, struct hy_stop_trial *t, double cost)
{
    struct rungs *r = s->state;
    struct hy_bracket *b = t->rungs.bracket;
    uint32_t at = t->rungs.rung;
    struct rung *rung = &b->rungs[at];
    bool may_pause = s->settings.may_pause || s->settings.kind != HY_STOP_ASHA;

    if (hy_ranking_add(&rung->arrived, (struct hy_ranked){.cost = cost, .trial = t->number}) < 0)
        return -ENOMEM;
    t->rungs.cost = cost;
    rung->coming--;
    total_of(r, b, at)->arrived++;
    total_of(r, b, at)->paused++;
    bracket_update(s, b);
    if (hy_ranking_rank(&rung->arrived, entry_of(t)) < rung->quota) {
        rungs_decide(s, t, HY_DECISION_CONTINUE);
        return HY_DECISION_CONTINUE;
    }
    if (rung->has_stoppable || !may_pause) { /* final: all that wait and are not promotable are stopped */
        rungs_decide(s, t, HY_DECISION_STOP);
        return HY_DECISION_STOP;
    }
    t->last_step = step_of(r, b, at); /* what it reports while it is being paused is repeated later, and counts then */
    return HY_DECISION_PAUSE;
}

static int rungs_report(struct hy_stopper *s, struct hy_stop_trial *t, int64_t step, double cost)
{
    int decision = HY_DECISION_CONTINUE;

    while (decision == HY_DECISION_CONTINUE && t->rungs.bracket &&
           step >= step_of(s->state, t->rungs.bracket, t->rungs.rung))
        decision = arrive(s, t, cost);
    return decision;
}

static void rungs_leave(struct hy_stopper *s, struct hy_stop_trial *t)
{
    struct hy_bracket *b = t->rungs.bracket;
    struct rung *rung;

    if (!b)
        return;
    rung = &b->rungs[t->rungs.rung];
    if (t->decision == HY_DECISION_PAUSE) {
        hy_ranking_withdraw(&rung->arrived, entry_of(t));
        total_of(s->state, b, t->rungs.rung)->paused--;
    } else {
        rung->coming--;
    }
    detach(t);
    bracket_settle(s, b);
}

/* ---- paused trials ---------------------------------------------------------- */

/* The bracket that has waited longest, and there the lowest rung: what is stopped there frees higher ones. */
static uint64_t rungs_stoppable(const struct hy_stopper *s)
{
    const struct rungs *r = s->state;
    const struct hy_bracket *b = hy_container(r->stoppable.next, struct hy_bracket, stoppable);
    struct hy_ranked e = {0};
    uint32_t rank, i = 0;

    if (hy_list_empty(&r->stoppable))
        return 0;
    while (!b->rungs[i].has_stoppable)
        i++;
    hy_ranking_worst_waiting(&b->rungs[i].arrived, &e, &rank);
    return e.trial;
}

/* The bracket that has waited longest, and there the highest rung, as in the paper on ASHA. */
static uint64_t rungs_promotable(const struct hy_stopper *s)
{
    const struct rungs *r = s->state;
    const struct hy_bracket *b = hy_container(r->promotable.next, struct hy_bracket, promotable);
    struct hy_ranked e = {0};
    uint32_t rank, i;

    if (hy_list_empty(&r->promotable))
        return 0;
    for (i = b->rung_count - 1; !b->rungs[i].has_promotable;)
        i--;
    hy_ranking_best_waiting(&b->rungs[i].arrived, &e, &rank);
    return e.trial;
}

/* ---- display ---------------------------------------------------------------- */

static size_t rungs_count(const struct hy_stopper *s)
{
    const struct rungs *r = s->state;
    size_t n = r->total_count;

    while (!s->settings.max_step && n > 0 && r->totals[n - 1].arrived == 0)
        n--;
    return n;
}

static struct hy_rung rungs_rung(const struct hy_stopper *s, size_t i)
{
    const struct rungs *r = s->state;

    assert(i < r->total_count);
    return r->totals[i];
}

const struct hy_stop_ops hy_rung_ops = {
    .init = rungs_init,
    .done = rungs_done,
    .report = rungs_report,
    .add = rungs_add,
    .leave = rungs_leave,
    .close = rungs_close,
    .stoppable = rungs_stoppable,
    .promotable = rungs_promotable,
    .decide = rungs_decide,
    .rung_count = rungs_count,
    .rung = rungs_rung,
};
