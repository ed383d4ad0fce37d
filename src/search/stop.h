/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Early stopping: which trials continue, which pause, and which end early.
 *
 * Reports in, decisions out: no clock, no I/O, no threads, no random numbers. A stopper receives what trials report (a
 * value and its step: epochs, batches …) and decides about the trial that has just reported. Paused trials are promoted
 * or stopped later.
 *
 *     hy_stopper_add(s, 7);
 *     hy_stopper_report(s, 7, step, value);               CONTINUE, STOP or PAUSE
 *     hy_stopper_end(s, 7);
 *     while (hy_stopper_next(s, has_room, &trial, &decision))
 *         …                                               start a paused trial again, or prune it
 *
 * The same calls in the same order give the same decisions. A run is resumed by repeating them, with
 * hy_stopper_restore in the place of hy_stopper_next.
 *
 * A stopper is not thread-safe; one loop owns it.
 */
#ifndef HY_SEARCH_STOP_H
#define HY_SEARCH_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * NONE       only trials that diverge (a report that is NaN or infinite); all other kinds stop these, too.
 * MEDIAN     the best value of the trial is worse than the median of other trials at the same step. Each of these
 *            counts with the mean of its values up to this step, as in Vizier (stop_median.c says why).
 * PATIENCE   no improvement by `min_delta` for `patience` steps. The best value of the trial remains its value.
 * HALVING    successive halving: trials pause at a rung until all trials of the round have arrived there, or have
 *            ended. The best 1/reduction continue, the others are stopped. Rounds overlap: the first trial after a full
 *            round begins the next one.
 * ASHA       asynchronous halving (Li et al., 2020): a trial continues if it is among the best 1/reduction of those
 *            that have arrived at the rung. Otherwise it is stopped, or with `may_pause` pauses until it is.
 * HYPERBAND  rounds of brackets, each with successive halving: from many trials with an early first rung to a few that
 *            run all steps. New trials fill the brackets one after another, and all brackets run at the same time.
 *
 * Rungs are at min_step * reduction^i, as long as a trial that continues has at least that factor left up to max_step.
 * 1/reduction of n trials is rounded down, but at least one continues: as soon as no more trials can arrive at the
 * rung, and for ASHA without `may_pause` always. Of equal values, the trial with the lower number is better.
 */
enum hy_stop_kind { HY_STOP_NONE, HY_STOP_MEDIAN, HY_STOP_PATIENCE, HY_STOP_HALVING, HY_STOP_ASHA, HY_STOP_HYPERBAND };

enum hy_decision {
    HY_DECISION_CONTINUE,
    HY_DECISION_STOP,  /* the trial is pruned */
    HY_DECISION_PAUSE, /* the trial gives up its slot until it is promoted or stopped */
};

struct hy_stop_settings {
    enum hy_stop_kind kind;
    bool maximize;
    /* MEDIAN, PATIENCE: no trial stops before it. HALVING, ASHA, HYPERBAND: the first rung; 0: 1. */
    int64_t min_step;
    /* Trials end here by themselves; from here on, none is stopped or paused. 0: unknown. HYPERBAND
     * needs it, and HALVING unless it has `trials`. */
    int64_t max_step;
    uint32_t reduction;  /* HALVING, ASHA, HYPERBAND: from 2; 0: 3 */
    uint32_t trials;     /* HALVING: of a round; 0: reduction to the power of the number of rungs */
    uint32_t min_trials; /* MEDIAN: others that must have reported at a step, up to HY_STOP_WINDOW; 0: 5 */
    int64_t patience;    /* PATIENCE: steps, from 1 */
    double min_delta;    /* PATIENCE: a smaller improvement does not count */
    bool may_pause;      /* ASHA */
};

#define HY_STOP_WINDOW 256          /* MEDIAN: trials at a step that are compared, the latest ones */
#define HY_STOP_BRACKET_MAX 1000000 /* trials; min_step, max_step and reduction that lead to more are refused */

struct hy_stopper; /* opaque */

/* -EINVAL with the option that is wrong (stop-min, stop-max, reduction, patience, min-delta), or -ENOMEM. */
int hy_stopper_new(const struct hy_stop_settings *settings, struct hy_stopper **ret, struct hy_err *err);
void hy_stopper_free(struct hy_stopper *s); /* NULL is fine */

/* How many trials a round of HALVING or HYPERBAND has. 0 for other kinds, and for invalid settings. */
uint64_t hy_stop_round_trials(const struct hy_stop_settings *settings);

/*
 * A trial starts. Trials are numbered from 1 and added in ascending order; one that runs again after a failure or a
 * pause is not added again. 0, -EEXIST (this number, or a higher one, was added before) or -ENOMEM.
 */
int hy_stopper_add(struct hy_stopper *s, uint64_t trial);

/*
 * A trial has reported. An enum hy_decision; -ENOENT: it was not added, or has ended; -ENOMEM: report again.
 *
 * Only steps beyond all that the trial has reported before count. So a retry that begins anew changes no decision until
 * it is further than the first attempt. A trial may leave out steps: a report counts for all rungs up to its step that
 * the trial has not reached yet, lowest first.
 *
 * After STOP, and after PAUSE until hy_stopper_next returns the trial, further reports get the same decision and
 * are ignored; only a paused trial that diverges is stopped.
 */
int hy_stopper_report(struct hy_stopper *s, uint64_t trial, int64_t step, double value);

/* The trial has ended for good: done, failed or pruned. No rung waits for it any more, and its memory is freed. */
void hy_stopper_end(struct hy_stopper *s, uint64_t trial);

/*
 * No trials will be added until a paused one has continued or ended: the search is over, or it waits for results. Rungs
 * do not wait for more. Adding a trial revokes it; with HALVING and HYPERBAND, that trial begins a new bracket.
 *
 * When no trial is running then, hy_stopper_next with room returns a paused trial if there is one.
 */
void hy_stopper_close(struct hy_stopper *s);

/*
 * Decides about a paused trial: 1 and STOP (it will not be promoted), or if there is room for another trial, 1 and
 * CONTINUE (start it again); 0: neither now. STOP comes first. Call it after each of the functions above.
 */
int hy_stopper_next(struct hy_stopper *s, bool has_room, uint64_t *ret_trial, enum hy_decision *ret_decision);

/* Whether a paused trial may continue as soon as there is room: before a new trial is added. */
bool hy_stopper_can_promote(const struct hy_stopper *s);

/*
 * Instead of hy_stopper_next, in a stopper that is made anew for a run: this decision was made about a paused trial.
 * 0; -ENOENT: it was not added, or has ended; -EINVAL: it is not paused.
 */
int hy_stopper_restore(struct hy_stopper *s, uint64_t trial, enum hy_decision decision);

/* For display: the rungs, of all rounds together. */
struct hy_rung {
    uint32_t bracket; /* from 0, the one with the earliest rung */
    int64_t step;
    uint64_t arrived, paused, promoted; /* trials; `paused` are there now, the rest was stopped or has ended */
};

/* If max_step is unknown, only rungs that a trial has reached. */
size_t hy_stopper_rung_count(const struct hy_stopper *s);
struct hy_rung hy_stopper_rung(const struct hy_stopper *s, size_t i);

#endif
