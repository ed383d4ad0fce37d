/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks of a training print, while somebody watches: from the files
 * LOGDIR/rank=N/{stdout,stderr}, looked at a few times a second. Of a cluster
 * they are LOGDIR/node=NAME/….
 */
#ifndef HY_CLI_RANK_OUTPUT_H
#define HY_CLI_RANK_OUTPUT_H

#include "view/view.h"
#include "cli/screen.h"
#include "client/client.h"
#include "wire/wire.h"

#define HY_RANK_OUTPUT_MS 100 /* between two looks */
#define HY_RANK_OUTPUT_CURRENT 400

struct hy_rank_output {
    struct hy_log_format text; /* set by the owner, before the first look */
    struct hy_screen
        *above;     /* set by the owner: lines go there if it is open; NULL: to where they were printed */
    uint32_t ranks; /* read-only: so many are shown, one after the other; 0: none */
    uint32_t first; /* private: of them */
    bool are_nodes; /* private: of a cluster */
    char (*names)[HY_NODE_NAME_MAX]; /* private */
    char *logdir;                    /* private */
    struct hy_tail (*tails)[2];         /* private */
    unsigned char *piece;               /* private */
    struct hy_out lines, errors;        /* private: what is to be written next */
    char current[2][HY_RANK_OUTPUT_CURRENT]; /* private: lines of rank 0 that have no end yet */
};

/* All of them, or only that of the one that speaks for all. 0 or -ENOMEM. */
int hy_rank_output_init(struct hy_rank_output *s, const char *logdir, const Hy__RunSpec *spec, bool all);
void hy_rank_output_done(struct hy_rank_output *s); /* a zeroed one is fine */

/* Of what is there already, only the last lines; or only files that were written since then (wall
 * ms): others are of an attempt before. 0 or -ENOMEM. */
int hy_rank_output_near_end(struct hy_rank_output *s);
int hy_rank_output_since(struct hy_rank_output *s, int64_t wall_ms);

/* Appends what is new: of standard output to `out`, of standard error to `err`
 * (which may be the same). `last`: nothing follows, lines without an end are
 * shown too. A file that cannot be read is left out. 1 when there is more to be
 * had at once, 0, or -Exxx. */
int hy_rank_output_read(struct hy_rank_output *s, bool last, struct hy_out *out, struct hy_out *err);

/* Looks, and writes all that is new. 1 when that was something above the screen, 0, or -Exxx. */
int hy_rank_output_show(struct hy_rank_output *s, bool last);

/* The line that rank 0 is at, a progress bar perhaps; "": it has ended all it began. */
const char *hy_rank_output_current(const struct hy_rank_output *s);

/* The last `lines` lines of what a rank printed on standard error or, where it
 * is silent there, on standard output, made printable; "" when it was silent.
 * Free it. NULL when out of memory. */
char *hy_last_lines(const char *logdir, const Hy__RunSpec *spec, uint64_t number, size_t lines);

#endif
