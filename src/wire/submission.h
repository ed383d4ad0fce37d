/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a run by one message to the program, `hopyard driver --submit`. */
#ifndef HY_WIRE_SUBMISSION_H
#define HY_WIRE_SUBMISSION_H

#include "base/err.h"
#include "hopyard.pb-c.h"

/*
 * Runs `program` in `directory` (NULL: the current one) and in a session of its own, sends it the submission, and waits
 * for its answer, which says whether the run was started; free it with hy__submitted__free_unpacked and no allocator.
 * 0, or -Exxx with a message when there is no answer.
 */
int hy_submit(const char *program, const char *directory, const Hy__Submission *submission, Hy__Submitted **ret,
              struct hy_err *err);

#endif
