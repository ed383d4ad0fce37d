/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For members with equal needs: the agents where one fits.
 *
 * A change of an agent updates every index. In return a bitmap finds the first
 * agent where a member fits, and one comparison decides whether a gang of one
 * role fits.
 */
#include "schedule/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static enum hy_tier tier_of(const struct hy_sched_agent *agent)
{
    return agent->has.gpus ? HY_TIER_GPU : HY_TIER_PLAIN;
}

static void refresh_fits(struct hy_schedule *s, struct hy_fit_index *fit, const struct hy_sched_agent *agent)
{
    uint32_t was = fit->fits[agent->index], now = 0;

    if (agent->open)
        now = hy_sched_agent_room(agent, &fit->need, HY_VIEW_FREE);
    if (now == was)
        return;
    fit->fits[agent->index] = now;
    fit->room += now;
    fit->room -= was;
    if (now > was)
        s->fit_version++;
    if (!was)
        hy_bitmap_set(&fit->free[tier_of(agent)], agent->index);
    else if (!now)
        hy_bitmap_clear(&fit->free[tier_of(agent)], agent->index);
}

static void refresh_able(struct hy_fit_index *fit, const struct hy_sched_agent *agent)
{
    uint32_t idle = hy_sched_agent_room(agent, &fit->need, HY_VIEW_IDLE);
    bool was = hy_bitmap_has(&fit->able, agent->index), now = agent->open && idle;

    if (now && !was) {
        hy_bitmap_set(&fit->able, agent->index);
        fit->room_idle += idle;
    } else if (!now && was) {
        hy_bitmap_clear(&fit->able, agent->index);
        fit->room_idle -= idle;
    }
}

void hy_fit_indexes_update_load(struct hy_schedule *s, struct hy_sched_agent *agent)
{
    hy_list_each(it, &s->fit_indexes)
        refresh_fits(s, hy_container(it, struct hy_fit_index, link), agent);
}

void hy_fit_indexes_update_agent(struct hy_schedule *s, struct hy_sched_agent *agent)
{
    hy_list_each(it, &s->fit_indexes) {
        struct hy_fit_index *fit = hy_container(it, struct hy_fit_index, link);

        refresh_able(fit, agent);
        refresh_fits(s, fit, agent);
    }
}

static int grow(struct hy_fit_index *fit, uint32_t from, uint32_t to)
{
    uint32_t *fits = hy_reallocarray(fit->fits, to, sizeof *fits);

    if (!fits)
        return -ENOMEM;
    memset(fits + from, 0, (to - from) * sizeof *fits);
    fit->fits = fits;
    for (int tier = 0; tier < HY_TIERS; tier++)
        if (hy_bitmap_grow(&fit->free[tier], to) < 0)
            return -ENOMEM;
    return hy_bitmap_grow(&fit->able, to);
}

/* Indexes that have grown before another fails may stay so. */
int hy_fit_indexes_grow(struct hy_schedule *s, uint32_t count)
{
    hy_list_each(it, &s->fit_indexes)
        if (grow(hy_container(it, struct hy_fit_index, link), s->agent_cap, count) < 0)
            return -ENOMEM;
    return 0;
}

static void fit_index_free(struct hy_fit_index *fit)
{
    hy_list_remove(&fit->link);
    for (int tier = 0; tier < HY_TIERS; tier++)
        hy_bitmap_done(&fit->free[tier]);
    hy_bitmap_done(&fit->able);
    free(fit->fits);
    free(fit);
}

static struct hy_fit_index *fit_index_new(struct hy_schedule *s, const struct hy_role_need *need)
{
    struct hy_fit_index *fit = hy_calloc(1, sizeof *fit);

    if (!fit)
        return NULL;
    hy_list_init(&fit->link);
    fit->need = (struct hy_role_need){.gpu_share = need->gpu_share, .memory = need->memory, .alone = need->alone};
    if (s->agent_cap && grow(fit, 0, s->agent_cap) < 0) {
        fit_index_free(fit);
        return NULL;
    }
    for (uint32_t i = 0; i < s->agent_cap; i++)
        if (s->agents[i]) {
            refresh_able(fit, s->agents[i]);
            refresh_fits(s, fit, s->agents[i]);
        }
    hy_list_push(&s->fit_indexes, &fit->link);
    return fit;
}

bool hy_role_needs_equal(const struct hy_role_need *a, const struct hy_role_need *b)
{
    return a->gpu_share == b->gpu_share && a->memory == b->memory && a->alone == b->alone;
}

struct hy_fit_index *hy_fit_index_ref(struct hy_schedule *s, const struct hy_role_need *need)
{
    struct hy_fit_index *fit = NULL;

    hy_list_each(it, &s->fit_indexes) {
        struct hy_fit_index *known = hy_container(it, struct hy_fit_index, link);

        if (hy_role_needs_equal(&known->need, need))
            fit = known;
    }
    if (!fit)
        fit = fit_index_new(s, need);
    if (fit)
        fit->refs++;
    return fit;
}

void hy_fit_index_unref(struct hy_fit_index *fit)
{
    if (fit && --fit->refs == 0)
        fit_index_free(fit);
}
