/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "search/internal.h"

static int gp_init(struct hy_search *s, struct hy_err *err)
{
    (void)s;
    return hy_err_set(err, -ENOTSUP, "a Gaussian process is not available yet");
}

const struct hy_search_ops hy_gp_ops = {.init = gp_init, .done = hy_stateless_done};
