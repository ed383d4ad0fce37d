/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `train --scaling`: measures the speed of a training with 1, 2, 4, … ranks.
 *
 * Each rank reports its examples per second; the speed of a training is their
 * sum. (Ranks that report nothing count with the mean of the others.) A training
 * that is N times as fast with N ranks has an efficiency of 100 %.
 */
#ifndef HY_CLI_SCALING_H
#define HY_CLI_SCALING_H

#include "view/view.h"
#include "cli/options.h"
#include "cli/watch.h"

struct hy_speed {
    uint32_t ranks;
    int64_t run;
    double value;   /* sum of all ranks */
    uint32_t reported; /* number of ranks that have reported */
};

/* The numbers of ranks to measure: 1, 2, 4, … and `most`. Returns how many numbers. */
#define HY_SCALING_STEPS 33
size_t hy_scaling_steps(uint32_t most, uint32_t ret[HY_SCALING_STEPS]);

/* The median of a rank's reports without the first, which includes the start-up. NaN if empty. Sorts the values. */
double hy_scaling_median(double *values, size_t count);

/* Head and lines of the plot; `one` is the speed of one rank, `most` ranks have the longest bar. */
void hy_scaling_head(struct hy_out *out, const char *metric);
void hy_scaling_line(struct hy_out *out, const struct hy_speed *speed, const struct hy_speed *one, uint32_t most);
/* The same as JSON. */
void hy_scaling_json(struct hy_out *out, const struct hy_speed *speed, const struct hy_speed *one, const char *metric);

/* Runs the trainings one after the other and plots their speeds. Returns the exit status. */
int hy_scaling(const struct hy_args *args, const char *project, Hy__RunSpec *spec, enum hy_output form);

#endif
