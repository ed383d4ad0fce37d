/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trial's metric: the last `name=value` it prints, or the JSON it writes to
 * $HOPYARD_RESULT. Pure parsers over bytes.
 */
#ifndef HY_AGENT_METRIC_H
#define HY_AGENT_METRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define HY_METRIC_LINE_MAX 4096 /* of a longer line only the beginning is parsed */

/* Watches a trial's output for one metric. */
struct hy_metric_scan {
    bool found;     /* read-only */
    double value;   /* read-only: the last one */
    int64_t step;   /* read-only: `step=N` in the same line, or -1 */
    uint64_t seen;  /* read-only: how many so far */
    const char *name;               /* private */
    char line[HY_METRIC_LINE_MAX];  /* private */
    size_t len;                     /* private */
};

/* `name` is borrowed; "" or NULL finds nothing. */
void hy_metric_scan_init(struct hy_metric_scan *m, const char *name);
/*
 * The next piece of output. `accuracy=0.91` is found anywhere in a line as a separate
 * word: at the beginning, or after white space, ',' ';' '[' '(' or '{'; and the number
 * ends with the line, white space, or one of
 * ',' ';' ']' ')' '}'. nan and inf are numbers.
 */
void hy_metric_scan_feed(struct hy_metric_scan *m, const uint8_t *bytes, size_t n);
/* The end of the output: a last line without a newline counts. */
void hy_metric_scan_end(struct hy_metric_scan *m);

/* `name=value` as `hopyard report` takes it: *ret_name_len bytes of name. -EINVAL. */
int hy_metric_parse(const char *text, size_t *ret_name_len, double *ret_value);

/* Called for each number in a result. */
typedef int (*hy_result_cb)(void *arg, const char *name, double value);
/*
 * {"accuracy": 0.91, "loss": 0.3, "note": "text is skipped"}: the numbers (and
 * booleans) of a JSON object, or one bare number, which is then called `metric`.
 * NaN and Infinity, which Python's json writes, are numbers here. 0, or
 * -EINVAL with a sentence.
 */
int hy_result_parse(const uint8_t *bytes, size_t n, const char *metric, hy_result_cb cb, void *arg, struct hy_err *err);

#endif
