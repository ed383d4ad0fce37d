/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between stop.c and a rule of early stopping; private to this part.
 *
 * stop.c finds the trial, stops those that diverge, and drops steps that do not ascend. A rule sees costs (less is
 * better, always finite) at ascending steps before max_step.
 */
#ifndef HY_SEARCH_STOP_INTERNAL_H
#define HY_SEARCH_STOP_INTERNAL_H

#include "base/map.h"
#include "search/stop.h"

struct hy_bracket;

struct hy_stop_trial {
    uint64_t number;
    int64_t last_step; /* -1: none */
    enum hy_decision decision;
    bool is_done; /* it has reached max_step */
    double best;  /* MEDIAN; PATIENCE: at the last improvement; INFINITY: none */
    union {
        struct {
            double mean;
            uint64_t reports;
            size_t next_cell; /* the first one that it has not reached */
        } median;
        struct {
            int64_t improved; /* the step */
        } patience;
        struct {
            struct hy_bracket *bracket; /* NULL: no rung is ahead, or it was stopped */
            uint32_t rung;              /* of the bracket: where it pauses, or the next one */
            double cost;                /* at the rung where it pauses */
        } rungs;
    };
};

struct hy_stop_ops {
    int (*init)(struct hy_stopper *s);  /* fills s->state; 0 or -ENOMEM */
    void (*done)(struct hy_stopper *s); /* also after an init that failed */
    /* A decision, or -ENOMEM: the same report may follow again. PAUSE may lower t->last_step. */
    int (*report)(struct hy_stopper *s, struct hy_stop_trial *t, int64_t step, double cost);

    /* The rest may be NULL in rules that never pause a trial. */
    int (*add)(struct hy_stopper *s, struct hy_stop_trial *t); /* 0 or -ENOMEM */
    /* It will not report any more. Rules are told once or more often, also after STOP. */
    void (*leave)(struct hy_stopper *s, struct hy_stop_trial *t);
    void (*close)(struct hy_stopper *s);
    /* The next paused trial to be stopped, or promoted; 0: none. */
    uint64_t (*stoppable)(const struct hy_stopper *s);
    uint64_t (*promotable)(const struct hy_stopper *s);
    void (*decide)(struct hy_stopper *s, struct hy_stop_trial *t, enum hy_decision decision); /* it is paused */
    size_t (*rung_count)(const struct hy_stopper *s);
    struct hy_rung (*rung)(const struct hy_stopper *s, size_t i);
};

struct hy_stopper {
    const struct hy_stop_ops *ops;
    struct hy_stop_settings settings; /* valid, with the defaults filled in */
    struct hy_map trials;             /* number -> struct hy_stop_trial, until they end */
    uint64_t last_trial;              /* the highest number that was added */
    void *state;                      /* private to the rule */
};

extern const struct hy_stop_ops hy_median_ops, hy_patience_ops, hy_rung_ops;

#endif
