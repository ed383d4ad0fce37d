/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trial printed, piece by piece, on its way to a person: in a terminal
 * odd bytes are escaped; where several trials are mixed, each line begins with
 * its trial's number. Pure: bytes in, bytes out, none kept in between.
 */
#ifndef HY_VIEW_LOG_FORMAT_H
#define HY_VIEW_LOG_FORMAT_H

#include <stdint.h>

#include "view/out.h"

enum hy_log_prefix {
    HY_LOG_BYTES,    /* as it comes */
    HY_LOG_NUMBERED, /* whole lines, with the trial's number before them: " 7 | " */
    HY_LOG_RANKED,   /* whole lines, of ranks: "[3] " */
    HY_LOG_LINES,    /* whole lines, with nothing before them */
};

struct hy_log_format {
    bool escape; /* for a terminal */
    enum hy_log_prefix prefix;
    int digits;       /* how wide the numbers are */
    const char *name; /* of whom it is, in the place of the number: "[worker-0] "; NULL: that has none */
    bool overwrite; /* of whole lines: what was drawn over by a carriage return is left out, as a terminal
                       would */
};

/*
 * Appends the text for `n` bytes of trial `trial` and returns how many of them
 * are dealt with; the rest (part of a line or of a character) is to be given
 * again with what follows. `last`: nothing follows, so everything is dealt
 * with. `full`: as much as ever will be given at once, so something is.
 */
size_t hy_log_format_append(const struct hy_log_format *l, struct hy_out *out, int64_t trial, bool is_stderr,
                         const uint8_t *bytes, size_t n, bool last, bool full);

#endif
