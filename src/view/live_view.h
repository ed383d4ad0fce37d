/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a watched run: the driver's last update and the trials that
 * ended most recently. It is rendered as a live table, as the summary that
 * remains on the screen, and as HTML for a notebook. Pure: updates in, text out.
 */
#ifndef HY_VIEW_LIVE_VIEW_H
#define HY_VIEW_LIVE_VIEW_H

#include "view/out.h"
#include "view/trial_table.h"
#include "hopyard.pb-c.h"

#define HY_LIVE_VIEW_RECENT 128 /* ended trials kept for the table */
#define HY_LIVE_VIEW_FAILURES 5 /* failed trials listed in the summary */
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
    const char *above;                          /* set by the owner: a line above the table; NULL or "": none */
    int64_t at_ms;                              /* private: when `now` arrived, monotonic */
    struct hy_trial_table_layout layout;             /* private */
};

void hy_live_view_done(struct hy_live_view *b); /* a zeroed view is empty */
/* Takes the update (allocated with hy_proto_memory), also on -ENOMEM. Returns 0 or -ENOMEM. */
int hy_live_view_take(struct hy_live_view *b, Hy__Update *update, int64_t now_ms);
/* Adds a failed trial to the summary. Takes the trial. */
void hy_live_view_take_failure(struct hy_live_view *b, Hy__TrialView *trial);
/* For a training: the rank that failed first and the last lines it printed (NULL: unknown). Takes both. */
void hy_live_view_take_first_failure(struct hy_live_view *b, Hy__TrialView *trial, char *last_lines);
/* Adds the trial that ended most recently. Takes the trial. */
void hy_live_view_take_ended(struct hy_live_view *b, Hy__TrialView *trial);
/* Adds a note of the client itself. Takes the text. */
void hy_live_view_take_note(struct hy_live_view *b, char *text);

/* The number of trials that have ended in any state. */
uint64_t hy_update_ended(const Hy__Update *u);

/*
 * The live table for the style's width and height: at most height - 1 lines,
 * none wider than the terminal. `footer` (NULL: none) is a highlighted last line.
 */
int hy_live_view_text(struct hy_live_view *b, struct hy_out *out, int64_t now_ms, unsigned spin, const char *footer);
/* The rank of a training that failed first and its last lines; nothing if none failed. */
int hy_live_view_first_failure(const struct hy_live_view *b, const Hy__Update *u, struct hy_out *out);
/* The text that remains on the screen after the run has ended. */
int hy_live_view_summary(const struct hy_live_view *b, struct hy_out *out);
/*
 * The view for a notebook: one HTML fragment on one line that ends in a
 * newline. It contains no scripts and no external references, and inherits the
 * colors of the page. `out` must have been initialized with hy_html_style.
 */
int hy_live_view_html(struct hy_live_view *b, struct hy_out *out, int64_t now_ms);
extern const struct hy_style hy_html_style;

#endif
