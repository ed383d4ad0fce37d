/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a batch matches a signature: signature.c, for gather.c. Private to src/feed. */
#ifndef HY_FEED_SIGNATURE_H
#define HY_FEED_SIGNATURE_H

#include "feed/feed.h"

#define HY_GATHER_ADVICE "take such rows by next_batch or columns"

/*
 * Finds the expected columns in the batch (sig->indexes), and sets the shapes in `g` that the signature leaves open. 0,
 * -EINVAL with a message, -EBADMSG for an invalid batch, -ENOMEM.
 */
int hy_signature_match(struct hy_signature *sig, const struct hy_batch_cursor *r, struct hy_gathered *g,
                       struct hy_err *err);

#endif
