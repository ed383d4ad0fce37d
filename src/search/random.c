/* SPDX-License-Identifier: Apache-2.0 */
/* Random: trial i depends only on the seed and on i. */
#include <errno.h>

#include "search/internal.h"

static int random_init(struct hy_search *s, struct hy_err *err)
{
    if (s->space.count == 0)
        return hy_err_set(err, -EINVAL, "a random search has nothing to vary: give it at least one dimension");
    s->total = s->settings.samples ? s->settings.samples : UINT64_MAX;
    return 0;
}

static int random_ask(struct hy_search *s, uint64_t number, struct hy_value *values, void **ret_ticket)
{
    struct hy_rng rng;

    hy_rng_seed(&rng, s->settings.seed, number);
    hy_search_draw(s, &rng, NULL, values);
    *ret_ticket = &hy_stateless_ticket;
    return 1;
}

const struct hy_search_ops hy_random_ops = {
    .init = random_init,
    .done = hy_stateless_done,
    .ask = random_ask,
    .tell = hy_stateless_tell,
    .drop = hy_stateless_drop,
};
