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

#define HY_BOARD_RECENT 128 /* ended trials that are kept for the table */
#define HY_BOARD_FAILURES 5 /* failed ones that the summary tells of */
#define HY_BOARD_NOTES 5    /* the newest */

struct hy_board {
    Hy__Update *now;                            /* read-only; NULL before the first update */
    Hy__TrialView *recent[HY_BOARD_RECENT];     /* private: the newest first */
    size_t recent_count;                        /* private */
    Hy__TrialView *failures[HY_BOARD_FAILURES]; /* private: the first ones seen */
    size_t failure_count;                       /* private */
    char *last_lines;                           /* private: of the rank that failed first */
    char *notes[HY_BOARD_NOTES];                /* private: the newest last */
    size_t note_count;                          /* private */
    const char *above;                          /* set by the owner: a line above the table; NULL, "": none */
    int64_t at_ms;                              /* private: when `now` came, monotonic */
    struct hy_trials_memory memory;             /* private */
};

void hy_board_done(struct hy_board *b); /* a zeroed board is an empty one */
/* Takes the update (made with hy_proto_memory). 0, or -ENOMEM: it is taken all the same. */
int hy_board_take(struct hy_board *b, Hy__Update *update, int64_t now_ms);
/* Makes sure that a failed trial is told of in the summary. Takes the trial. */
void hy_board_take_failure(struct hy_board *b, Hy__TrialView *trial);
/* Of a training: the rank that failed first, and the last lines it printed (NULL: not
 * known). Takes both. */
void hy_board_take_culprit(struct hy_board *b, Hy__TrialView *trial, char *last_lines);
/* The newest of the trials that have ended. Takes the trial. */
void hy_board_take_ended(struct hy_board *b, Hy__TrialView *trial);
/* A note that the driver did not send. Takes the text. */
void hy_board_take_note(struct hy_board *b, char *text);

/* 12 of 100: how many trials have ended. */
uint64_t hy_update_ended(const Hy__Update *u);

/*
 * The live table for the style's width and height: lines, none wider than the
 * terminal and at most height - 1 of them.
 * `footer` (NULL: none) is a last line that stands out.
 */
int hy_board_table(struct hy_board *b, struct hy_out *out, int64_t now_ms, unsigned spin, const char *footer);
/* The culprit of a training and its last lines; nothing where there is none. */
int hy_board_culprit(const struct hy_board *b, const Hy__Update *u, struct hy_out *out);
/* What stays when the run has ended. */
int hy_board_summary(const struct hy_board *b, struct hy_out *out);
/*
 * Everything for a notebook: one HTML fragment in one line, with a newline at
 * its end and none in it. It needs no script and nothing from elsewhere, and
 * takes its colours from the page. `out` must have been made with hy_html_style.
 */
int hy_board_html(struct hy_board *b, struct hy_out *out, int64_t now_ms);
extern const struct hy_style hy_html_style;

#endif
