/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "search/internal.h"

static int tpe_init(struct hy_search *s, struct hy_err *err)
{
    (void)s;
    return hy_err_set(err, -ENOTSUP, "a tree-structured Parzen estimator is not available yet");
}

const struct hy_search_ops hy_tpe_ops = {.init = tpe_init, .done = hy_stateless_done};
