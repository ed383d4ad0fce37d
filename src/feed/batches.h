/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of so many rows each, as somebody wants them who only has a number: an op
 * of TensorFlow's, which is written into graphs. Here the number becomes an intake.
 *
 * Nobody waits here for long. A batch that is not whole by then is gone on with at
 * the next call, whoever makes it: what an iterator has begun that was dropped, the
 * next one has. So a thread of TensorFlow's is never held for good.
 */
#ifndef HY_FEED_BATCHES_H
#define HY_FEED_BATCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "feed/gather.h"

struct hy_intake;
struct hy_batches; /* opaque */

struct hy_batches_options {
    const char *queue;
    uint64_t rows;      /* of a batch */
    bool stops;         /* a batch ends with its partition */
    bool drops;         /* the last one, when it is not whole */
};

/* Takes what is wanted, and leaves nothing of it behind. The number is never used twice. 0, -EINVAL, -ENOMEM. */
int hy_batches_new(struct hy_intake *in, const struct hy_batches_options *o, struct hy_wanted *wanted,
                   struct hy_batches **ret);
int64_t hy_batches_number(const struct hy_batches *b);
/* Was somebody told so? */
bool hy_batches_is_over(const struct hy_batches *b);
/* The number is none any more, and whoever has it is told that it is over. NULL is fine. */
void hy_batches_free(struct hy_batches *b);

enum hy_batches_event { HY_BATCHES_NOTHING, HY_BATCHES_ROWS, HY_BATCHES_END };

/*
 * The next one, from any thread, within about a tenth of a second. `how` is the caller's way to have values, the same
 * each time. An event; -EINVAL and why, when rows are not what is wanted, which are left where they are. Then what was
 * before them is given first, even if that is no whole batch. *ret is empty before; it has the columns, without values
 * where there is nothing, and none where the number means nothing (any more). Then hy_gathered_done.
 */
int hy_batches_next(int64_t number, const struct hy_gather_how *how, struct hy_gathered *ret, struct hy_err *err);

#endif
