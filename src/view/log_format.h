/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats the output of trials chunk by chunk: for a terminal unprintable bytes
 * are escaped; where the output of several trials is mixed, each line starts
 * with its trial's number. Pure and stateless: bytes in, bytes out.
 */
#ifndef HY_VIEW_LOG_FORMAT_H
#define HY_VIEW_LOG_FORMAT_H

#include <stdint.h>

#include "view/out.h"

enum hy_log_prefix {
    HY_LOG_BYTES,    /* unchanged, no lines */
    HY_LOG_NUMBERED, /* whole lines with the trial's number: " 7 | " */
    HY_LOG_RANKED,   /* whole lines with the rank: "[3] " */
    HY_LOG_LINES,    /* whole lines without a prefix */
};

struct hy_log_format {
    bool escape; /* for a terminal */
    enum hy_log_prefix prefix;
    int digits;       /* the width of the numbers */
    const char *name; /* the node's name, printed instead of the rank: "[worker-0] "; NULL: none */
    bool overwrite;   /* for whole lines: leave out what a carriage return overwrote, as a terminal would */
};

/*
 * Appends the text for `n` bytes of trial `trial` and returns how many of them
 * were consumed. The caller passes the rest (an incomplete line or character)
 * again, followed by more. `last`: nothing follows, so everything is consumed.
 * `full`: the caller's buffer is full, so at least one byte is consumed.
 */
size_t hy_log_format_append(const struct hy_log_format *l, struct hy_out *out, int64_t trial, bool is_stderr,
                            const uint8_t *bytes, size_t n, bool last, bool full);

#endif
