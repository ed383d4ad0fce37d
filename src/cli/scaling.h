/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `train --scaling`: how the speed of a training grows with its ranks.
 *
 * Each rank reports how many examples it does in a second; a training's speed
 * is their sum. (Where only some say theirs, the others are taken to be as
 * fast.) One that is N times as fast with N ranks has 100 %.
 */
#ifndef HY_CLI_SCALING_H
#define HY_CLI_SCALING_H

#include "view/view.h"
#include "cli/options.h"
#include "cli/watch.h"

struct hy_speed {
    uint32_t ranks;
    int64_t run;
    double value;   /* of all ranks together */
    uint32_t heard; /* how many of them have said theirs */
};

/* How many ranks to try: 1, 2, 4, … and `most` at last. Returns how many there are. */
#define HY_SCALING_STEPS 33
size_t hy_scaling_steps(uint32_t most, uint32_t ret[HY_SCALING_STEPS]);

/* What a rank's reports come to: their median, the first aside, which has the
 * start in it. NaN where there are none. Sorts them. */
double hy_scaling_median(double *values, size_t count);

/* A line of the plot; `one` is the speed of one rank, and `most` ranks have the longest bar. */
void hy_scaling_head(struct hy_out *out, const char *metric);
void hy_scaling_line(struct hy_out *out, const struct hy_speed *speed, const struct hy_speed *one,
                     uint32_t most);
/* The same for programs. */
void hy_scaling_json(struct hy_out *out, const struct hy_speed *speed, const struct hy_speed *one,
                     const char *metric);

/* Runs one training after the other, and plots them. Returns the exit status. */
int hy_scaling(const struct hy_args *args, const char *project, Hy__RunSpec *spec, enum hy_output form);

#endif
