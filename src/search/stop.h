/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Early stopping: which trials go on, which wait, and which end early.
 *
 * Reports in, decisions out: no clock, no I/O, no threads, no random numbers. A
 * stopper receives what trials report (a value and its step: epochs, batches …) and
 * decides about the trial that has just reported. Paused trials are promoted later,
 * one by one, when there is room for them.
 *
 * The same calls in the same order give the same decisions. So a run is resumed by
 * repeating the reports that the store has.
 */
#ifndef HY_SEARCH_STOP_H
#define HY_SEARCH_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum hy_stop_kind {
    HY_STOP_NONE,      /* only trials that diverge (a report that is NaN or infinite) */
    HY_STOP_MEDIAN,    /* worse than the median of the others at the same step */
    HY_STOP_PATIENCE,  /* no improvement for `patience` steps */
    HY_STOP_HALVING,   /* successive halving: a rung waits for all of its trials; the best 1/reduction continue */
    HY_STOP_ASHA,      /* asynchronous halving: a trial never waits for others; it is pruned, or promoted at once */
    HY_STOP_HYPERBAND, /* halving in brackets, which trade the number of trials for their minimal length */
};

enum hy_decision {
    HY_DECISION_CONTINUE,
    HY_DECISION_STOP,  /* the trial is pruned */
    HY_DECISION_PAUSE, /* the trial gives up its slot until it is promoted, or pruned */
};

struct hy_stop_settings {
    enum hy_stop_kind kind;
    bool maximize;
    int64_t min_step;   /* MEDIAN, PATIENCE: no trial ends before it. HALVING, ASHA, HYPERBAND: the first rung; 0: 1 */
    int64_t max_step;   /* the step at which trials end by themselves; HYPERBAND requires it; 0: unknown */
    uint32_t reduction; /* HALVING, ASHA, HYPERBAND: from 2; 0: the default, 3 */
    uint32_t trials;    /* HALVING: trials of the first rung of a round; 0: reduction to the power of the rungs */
    uint32_t min_trials; /* MEDIAN: trials that must have reported at this step; 0: 5 */
    int64_t patience;   /* PATIENCE: steps */
    double min_delta;   /* PATIENCE: a smaller improvement is none */
    bool may_pause;     /* ASHA: trials that are not among the best pause and may be promoted later, as in the paper;
                         * otherwise they are pruned at once */
};

struct hy_stopper; /* opaque */

/* -EINVAL with a sentence that names the setting, or -ENOMEM. */
int hy_stopper_new(const struct hy_stop_settings *settings, struct hy_stopper **ret, struct hy_err *err);
void hy_stopper_free(struct hy_stopper *s); /* NULL is fine */

/*
 * A trial starts. Numbers ascend; a trial that runs again after a failure or a pause is not added again.
 * 0 or -ENOMEM.
 */
int hy_stopper_add(struct hy_stopper *s, uint64_t trial);
/*
 * A trial has reported. An enum hy_decision, or -ENOMEM. Steps that it has reported before (a retry begins anew)
 * do not change any decision, and steps may be left out: a report counts for all rungs up to its step that the trial
 * has not reached yet, lowest first. After STOP and PAUSE, further reports of the trial get the same decision again,
 * until hy_stopper_next gives it.
 */
int hy_stopper_report(struct hy_stopper *s, uint64_t trial, int64_t step, double value);
/* The trial has ended for good: done, failed, or pruned. A rung does not wait for it any more. */
void hy_stopper_end(struct hy_stopper *s, uint64_t trial);
/* No further trials will be added: rungs do not wait for more. */
void hy_stopper_close(struct hy_stopper *s);
/*
 * The next change for a paused trial: 1 and CONTINUE (start it again) or STOP (it will never be promoted); 0: none
 * now. Call it after each of the functions above until it returns 0, and CONTINUE only as there is room.
 */
int hy_stopper_next(struct hy_stopper *s, uint64_t *ret_trial, enum hy_decision *ret_decision);
/* The same without taking it: whether a paused trial may continue. */
bool hy_stopper_can_promote(const struct hy_stopper *s);

/* For display: the rungs. */
struct hy_rung {
    uint32_t bracket; /* from 0 */
    int64_t step;
    uint32_t arrived, promoted; /* trials */
};
size_t hy_stopper_rung_count(const struct hy_stopper *s);
struct hy_rung hy_stopper_rung(const struct hy_stopper *s, size_t i);

#endif
