/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run line by line, as text for pipes (run_lines_text.c) or as JSON for
 * programs (run_lines_json.c): the start, each trial that ends, notes, the end.
 * Pure: updates in, lines out.
 */
#ifndef HY_VIEW_RUN_LINES_H
#define HY_VIEW_RUN_LINES_H

#include "view/out.h"
#include "hopyard.pb-c.h"

#define HY_RUN_LINES_ADDRESS 256

struct hy_run_lines {
    bool json;                           /* set by the owner */
    uint64_t seed;                       /* set by the owner */
    uint64_t skip;                       /* set by the owner after a reconnect: so many trials were reported before */
    bool begun;                          /* private */
    uint64_t ended;                      /* private: trials reported so far */
    char tensorboard[HY_RUN_LINES_ADDRESS]; /* private: the last address reported */
};

/* Appends the first line, once. 0 or -Exxx. */
int hy_run_lines_begin(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
/* Appends the lines for what is new in `u`. 0 or -Exxx. */
int hy_run_lines_update(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
/* The line for a detached run; `tensorboard` is the address of its TensorBoard, or "". */
int hy_run_lines_detached(const struct hy_run_lines *s, int64_t run, const char *tensorboard, struct hy_out *out);
/* A note of the client itself. */
int hy_run_lines_note(const struct hy_run_lines *s, int64_t run, const char *text, struct hy_out *out);

/* The number of the next `count` trials that were reported before a reconnect. */
size_t hy_run_lines_skip(struct hy_run_lines *s, size_t count);
/* True if the update has a TensorBoard address that was not reported yet; marks it as reported. */
bool hy_run_lines_new_tensorboard(struct hy_run_lines *s, const Hy__Update *u);
/* The two formats. */
void hy_run_lines_text_begin(const struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
void hy_run_lines_json_begin(const struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
void hy_run_lines_text_update(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
void hy_run_lines_json_update(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
void hy_run_lines_text_note(const char *text, struct hy_out *out);
void hy_run_lines_json_note(int64_t run, const char *text, struct hy_out *out);

#endif
