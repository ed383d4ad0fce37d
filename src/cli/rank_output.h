/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live output of the ranks of a training, read from the files
 * LOGDIR/rank=N/{stdout,stderr} several times a second; for a cluster from
 * LOGDIR/node=NAME/….
 */
#ifndef HY_CLI_RANK_OUTPUT_H
#define HY_CLI_RANK_OUTPUT_H

#include "view/view.h"
#include "cli/screen.h"
#include "client/client.h"
#include "wire/wire.h"

#define HY_RANK_OUTPUT_MS 100 /* between two reads */
#define HY_RANK_OUTPUT_CURRENT 400

struct hy_rank_output {
    struct hy_log_format text; /* set by the owner, before the first read */
    struct hy_screen *above; /* set by the owner: print above this screen if open; NULL: to stdout and stderr */
    uint32_t ranks; /* read-only: number of consecutive ranks shown; 0: none */
    uint32_t first; /* private: the first of them */
    bool are_nodes; /* private: nodes of a cluster */
    char (*names)[HY_NODE_NAME_MAX]; /* private */
    char *logdir;                    /* private */
    struct hy_tail (*tails)[2];         /* private */
    unsigned char *piece;               /* private */
    struct hy_out lines, errors;        /* private: text to write next */
    char current[2][HY_RANK_OUTPUT_CURRENT]; /* private: incomplete lines of rank 0 */
};

/* The output of all ranks, or only of rank 0 (of a cluster: the chief). 0 or -ENOMEM. */
int hy_rank_output_init(struct hy_rank_output *s, const char *logdir, const Hy__RunSpec *spec, bool all);
void hy_rank_output_done(struct hy_rank_output *s); /* may be all zero */

/* Skips existing output except for the last lines; or skips files that were last written before a time (wall clock,
 * ms), which belong to an earlier attempt. 0 or -ENOMEM. */
int hy_rank_output_near_end(struct hy_rank_output *s);
int hy_rank_output_since(struct hy_rank_output *s, int64_t wall_ms);

/* Appends the new output: standard output to `out`, standard error to `err` (which may be the same). `last`: nothing
 * follows, so incomplete lines are shown too. A file that cannot be read is skipped. 1 when there is more, 0, or
 * -Exxx. */
int hy_rank_output_read(struct hy_rank_output *s, bool last, struct hy_out *out, struct hy_out *err);

/* Reads and writes all new output. 1 when lines were written above the screen, 0, or -Exxx. */
int hy_rank_output_show(struct hy_rank_output *s, bool last);

/* The incomplete line of rank 0, for example a progress bar; "": none. */
const char *hy_rank_output_current(const struct hy_rank_output *s);

/* The last `lines` lines of a rank's standard error or, if that is empty, standard output, made printable; "" if both
 * are empty. Free it. NULL when out of memory. */
char *hy_last_lines(const char *logdir, const Hy__RunSpec *spec, uint64_t number, size_t lines);

#endif
