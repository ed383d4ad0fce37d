/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HY_CLI_SUBMIT_H
#define HY_CLI_SUBMIT_H

#include "cli/options.h"

/* The submission as if it had been typed; `ret` borrows its texts and its spec. -EINVAL with a message, -ENOMEM. */
int hy_submission_args(Hy__Submission *s, struct hy_args *ret, struct hy_err *err);

#endif
