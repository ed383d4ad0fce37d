/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run told line by line, for pipes (plain.c) and for programs (json.c): it
 * begins, each trial ends, notes, it ends. Pure: updates in, lines out.
 */
#ifndef HY_CLI_TELLER_H
#define HY_CLI_TELLER_H

#include "cli/out.h"
#include "hopyard.pb-c.h"

#define HY_TELLER_ADDRESS 256

struct hy_teller {
    bool json;                           /* set by the owner */
    uint64_t seed;                       /* set by the owner */
    uint64_t skip;                       /* set by the owner who connects again: these were told before */
    bool begun;                          /* private */
    uint64_t ended;                      /* private: trials told of so far */
    char tensorboard[HY_TELLER_ADDRESS]; /* private: the address told last */
};

/* Appends the first line, unless it was told. 0 or -Exxx. */
int hy_teller_begin(struct hy_teller *s, const Hy__Update *u, struct hy_out *out);
/* Appends the lines for what is new in `u`. 0 or -Exxx. */
int hy_teller_update(struct hy_teller *s, const Hy__Update *u, struct hy_out *out);
/* Leaving a run that goes on; `tensorboard` is the address of one that shows it, or "". */
int hy_teller_detached(const struct hy_teller *s, int64_t run, const char *tensorboard, struct hy_out *out);
/* Something that is not from the driver. */
int hy_teller_note(const struct hy_teller *s, int64_t run, const char *text, struct hy_out *out);

/* How many of the next `count` trials were told before. */
size_t hy_teller_skip(struct hy_teller *s, size_t count);
/* Is the update's TensorBoard one that was not told of? From now on it was. */
bool hy_teller_new_tensorboard(struct hy_teller *s, const Hy__Update *u);
/* The two ways of telling. */
void hy_stateless_begin(const struct hy_teller *s, const Hy__Update *u, struct hy_out *out);
void hy_json_begin(const struct hy_teller *s, const Hy__Update *u, struct hy_out *out);
void hy_stateless_update(struct hy_teller *s, const Hy__Update *u, struct hy_out *out);
void hy_json_update(struct hy_teller *s, const Hy__Update *u, struct hy_out *out);
void hy_stateless_note(const char *text, struct hy_out *out);
void hy_json_note(int64_t run, const char *text, struct hy_out *out);

#endif
