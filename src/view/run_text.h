/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Phrases about a watched run, shared by the terminal (live_view_text.c) and
 * the notebook (live_view_html.c), which only arrange them.
 */
#ifndef HY_VIEW_RUN_TEXT_H
#define HY_VIEW_RUN_TEXT_H

#include "view/live_view.h"

/* One line, cut at its width. */
struct hy_line {
    struct hy_out *out;
    int left; /* remaining columns */
};

#define HY_LINE_LONG (1 << 20) /* wider than any terminal */

/* A line of the style's width. */
struct hy_line hy_line_begin(struct hy_out *out);
void hy_line_word(struct hy_line *l, enum hy_tint tint, const char *text);
void hy_line_wordf(struct hy_line *l, enum hy_tint tint, const char *fmt, ...) HY_PRINTF(3, 4);

/* "run 3 digits  ● running  42s, about 4m05s left  1 agent, 2 slots" */
void hy_run_text_head(struct hy_line *l, const Hy__Update *u, int64_t later_ms);
/* "12/100  11 done  1 failed  2 running" */
void hy_run_text_counts(struct hy_line *l, const Hy__Update *u);
/* "done  run 3 digits  100 of 100 trials in 42s:  99 done  1 failed" */
void hy_run_text_verdict(struct hy_line *l, const Hy__Update *u);
/* "accuracy=0.93  trial 7  lr=0.001 dropout=0.45"; u->best must be set */
void hy_run_text_best(struct hy_line *l, const Hy__Update *u, bool brief);
/* "✗ trial 1  lr=0.01  exit status 1", or for a training "✗ rank 1 on a ended with exit status 1" */
void hy_run_text_failure(struct hy_line *l, const Hy__Update *u, const Hy__TrialView *t);

/* "trial" or "rank", and the number shown for it: ranks count from 0. */
const char *hy_trial_noun(uint32_t ranks);
uint64_t hy_trial_label(uint32_t ranks, uint64_t number);

/* Why the run ended in its state; NULL if there is nothing to add. */
const char *hy_end_reason(const Hy__Update *u);
/* The predicate for "'hopyard resume 3' …": "continues the run". */
const char *hy_resume_effect(const Hy__Update *u);
/* The age of the view's last update, to be added to the times of running trials. */
int64_t hy_live_view_age(const struct hy_live_view *b, int64_t now_ms);

/* The trials as a table: running, waiting, most recently ended; at most `most` of them. 0 or -Exxx. */
int hy_live_view_trials(struct hy_live_view *b, struct hy_out *out, size_t most, int64_t later_ms, unsigned spin);

#endif
