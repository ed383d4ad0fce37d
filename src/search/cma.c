/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "search/internal.h"

static int cma_init(struct hy_search *s, struct hy_err *err)
{
    (void)s;
    return hy_err_set(err, -ENOTSUP, "CMA-ES is not available yet");
}

const struct hy_search_ops hy_cma_ops = {.init = cma_init, .done = hy_stateless_done};
