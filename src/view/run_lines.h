/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run told line by line, for pipes (plain.c) and for programs (json.c): it
 * begins, each trial ends, notes, it ends. Pure: updates in, lines out.
 */
#ifndef HY_VIEW_RUN_LINES_H
#define HY_VIEW_RUN_LINES_H

#include "view/out.h"
#include "hopyard.pb-c.h"

#define HY_RUN_LINES_ADDRESS 256

struct hy_run_lines {
    bool json;                           /* set by the owner */
    uint64_t seed;                       /* set by the owner */
    uint64_t skip;                       /* set by the owner who connects again: these were told before */
    bool begun;                          /* private */
    uint64_t ended;                      /* private: trials told of so far */
    char tensorboard[HY_RUN_LINES_ADDRESS]; /* private: the address told last */
};

/* Appends the first line, unless it was told. 0 or -Exxx. */
int hy_run_lines_begin(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
/* Appends the lines for what is new in `u`. 0 or -Exxx. */
int hy_run_lines_update(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
/* Leaving a run that goes on; `tensorboard` is the address of one that shows it, or "". */
int hy_run_lines_detached(const struct hy_run_lines *s, int64_t run, const char *tensorboard, struct hy_out *out);
/* Something that is not from the driver. */
int hy_run_lines_note(const struct hy_run_lines *s, int64_t run, const char *text, struct hy_out *out);

/* How many of the next `count` trials were told before. */
size_t hy_run_lines_skip(struct hy_run_lines *s, size_t count);
/* Is the update's TensorBoard one that was not told of? From now on it was. */
bool hy_run_lines_new_tensorboard(struct hy_run_lines *s, const Hy__Update *u);
/* The two ways of telling. */
void hy_run_lines_text_begin(const struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
void hy_run_lines_json_begin(const struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
void hy_run_lines_text_update(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
void hy_run_lines_json_update(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out);
void hy_run_lines_text_note(const char *text, struct hy_out *out);
void hy_run_lines_json_note(int64_t run, const char *text, struct hy_out *out);

#endif
