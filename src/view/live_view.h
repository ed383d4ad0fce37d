/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a run that is being watched: the driver's last update and
 * the trials that ended lately. And its pictures: the live table, the summary
 * that stays on the screen, and the same for a notebook. Pure: updates in,
 * text out.
 */
#ifndef HY_VIEW_LIVE_VIEW_H
#define HY_VIEW_LIVE_VIEW_H

#include "view/out.h"
#include "view/trial_table.h"
#include "hopyard.pb-c.h"

#define HY_LIVE_VIEW_RECENT 128 /* ended trials that are kept for the table */
#define HY_LIVE_VIEW_FAILURES 5 /* failed ones that the summary tells of */
#define HY_LIVE_VIEW_NOTES 5    /* the newest */

struct hy_live_view {
    Hy__Update *now;                            /* read-only; NULL before the first update */
    Hy__TrialView *recent[HY_LIVE_VIEW_RECENT];     /* private: the newest first */
    size_t recent_count;                        /* private */
    Hy__TrialView *failures[HY_LIVE_VIEW_FAILURES]; /* private: the first ones seen */
    size_t failure_count;                       /* private */
    char *last_lines;                           /* private: of the rank that failed first */
    char *notes[HY_LIVE_VIEW_NOTES];                /* private: the newest last */
    size_t note_count;                          /* private */
    const char *above;                          /* set by the owner: a line above the table; NULL, "": none */
    int64_t at_ms;                              /* private: when `now` came, monotonic */
    struct hy_trial_table_layout memory;             /* private */
};

void hy_live_view_done(struct hy_live_view *b); /* a zeroed board is an empty one */
/* Takes the update (made with hy_proto_memory). 0, or -ENOMEM: it is taken all the same. */
int hy_live_view_take(struct hy_live_view *b, Hy__Update *update, int64_t now_ms);
/* Makes sure that a failed trial is told of in the summary. Takes the trial. */
void hy_live_view_take_failure(struct hy_live_view *b, Hy__TrialView *trial);
/* Of a training: the rank that failed first, and the last lines it printed (NULL: not
 * known). Takes both. */
void hy_live_view_take_first_failure(struct hy_live_view *b, Hy__TrialView *trial, char *last_lines);
/* The newest of the trials that have ended. Takes the trial. */
void hy_live_view_take_ended(struct hy_live_view *b, Hy__TrialView *trial);
/* A note that the driver did not send. Takes the text. */
void hy_live_view_take_note(struct hy_live_view *b, char *text);

/* 12 of 100: how many trials have ended. */
uint64_t hy_update_ended(const Hy__Update *u);

/*
 * The live table for the style's width and height: lines, none wider than the
 * terminal and at most height - 1 of them.
 * `footer` (NULL: none) is a last line that stands out.
 */
int hy_live_view_text(struct hy_live_view *b, struct hy_out *out, int64_t now_ms, unsigned spin, const char *footer);
/* The culprit of a training and its last lines; nothing where there is none. */
int hy_live_view_first_failure(const struct hy_live_view *b, const Hy__Update *u, struct hy_out *out);
/* What stays when the run has ended. */
int hy_live_view_summary(const struct hy_live_view *b, struct hy_out *out);
/*
 * Everything for a notebook: one HTML fragment in one line, with a newline at
 * its end and none in it. It needs no script and nothing from elsewhere, and
 * takes its colors from the page. `out` must have been made with hy_html_style.
 */
int hy_live_view_html(struct hy_live_view *b, struct hy_out *out, int64_t now_ms);
extern const struct hy_style hy_html_style;

#endif
