/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planning a task: every member gets an allocation, or none does.
 *
 * First fit, role by role, the most demanding role first. For one role that is
 * exact: equal members fill an agent the same way in any order. For several
 * roles the exact answer is bin packing; first fit in every order of the roles
 * (at most 24) finds one in all but rare cases. The same search decides whether
 * a task is possible, so a possible task is placed once the agents are idle, at
 * the latest.
 *
 * First fit also packs small tasks together, which leaves whole agents free.
 */
#include "schedule/internal.h"

#include <string.h>

/* A pending member goes where the shortfall is least among this many agents at
 * a time, since comparing ten thousand would be expensive. */
#define CANDIDATES_MAX 64u

static void plan_one(struct hy_sched_agent *agent, const struct hy_role_need *need, uint64_t mask,
                     struct hy_allocation *allocation)
{
    hy_sched_agent_allocate(agent, HY_ALLOC_PLANNED, need, mask);
    if (allocation)
        *allocation = (struct hy_allocation){agent, mask};
}

/* Plans as many as fit now, at most `count`. Returns how many. */
static uint32_t place_now(struct hy_schedule *s, const struct hy_fit_index *fit, uint32_t count,
                          struct hy_allocation *allocations)
{
    uint32_t placed = 0;

    for (int tier = 0; tier < HY_TIERS; tier++) {
        const struct hy_bitmap *free = &fit->free[tier];

        for (uint32_t at = 0; placed < count && (at = hy_bitmap_next(free, at)) != HY_BITMAP_NONE; at++) {
            uint64_t mask;

            while (placed < count &&
                   hy_sched_agent_pick_devices(s->agents[at], &fit->need, HY_VIEW_FREE, HY_PREFER_FULL, &mask))
                plan_one(s->agents[at], &fit->need, mask, &allocations[placed++]);
        }
    }
    return placed;
}

struct candidate {
    struct hy_allocation allocation;
    double shortfall;
};

static bool consider(struct candidate *c, struct hy_sched_agent *agent, const struct hy_role_need *need)
{
    c->allocation.agent = agent;
    if (!hy_sched_agent_pick_devices(agent, need, HY_VIEW_IDLE, HY_PREFER_SOON, &c->allocation.gpu_mask))
        return false;
    c->shortfall = hy_sched_agent_shortfall(agent, need, c->allocation.gpu_mask);
    return true;
}

/* Plans up to `count` members, each where the shortfall is least. */
static uint32_t place_least_short(struct candidate *found, uint32_t n, const struct hy_role_need *need, uint32_t count,
                                  struct hy_allocation *allocations)
{
    uint32_t placed = 0;

    while (n > 0 && placed < count) {
        struct candidate *best = found;

        for (struct candidate *c = found + 1; c < found + n; c++)
            if (c->shortfall < best->shortfall)
                best = c;
        plan_one(best->allocation.agent, need, best->allocation.gpu_mask, &allocations[placed++]);
        if (!consider(best, best->allocation.agent, need))
            *best = found[--n];
    }
    return placed;
}

/* Agents where members fit when idle. Starts at the far end: first fit
 * fills that last, so there is less to wait for. */
static uint32_t place_soonest(struct hy_schedule *s, const struct hy_fit_index *fit, uint32_t count,
                              struct hy_allocation *allocations)
{
    struct candidate found[CANDIDATES_MAX];
    uint32_t placed = 0, at = hy_bitmap_prev(&fit->able, HY_BITMAP_NONE);

    while (placed < count && at != HY_BITMAP_NONE) {
        uint32_t n = 0;

        for (; n < CANDIDATES_MAX && at != HY_BITMAP_NONE;
             at = at ? hy_bitmap_prev(&fit->able, at - 1) : HY_BITMAP_NONE)
            n += consider(&found[n], s->agents[at], &fit->need);
        placed += place_least_short(found, n, &fit->need, count - placed, allocations + placed);
    }
    return placed;
}

static uint32_t place_idle(struct hy_schedule *s, const struct hy_role_need *need, bool closed_too,
                           struct hy_allocation *allocations)
{
    uint32_t placed = 0;

    for (int tier = need->gpu_share ? HY_TIER_GPU : HY_TIER_PLAIN; tier < HY_TIERS; tier++) {
        for (uint32_t at = 0; placed < need->count && at < s->agent_cap; at++) {
            struct hy_sched_agent *agent = s->agents[at];
            uint64_t mask;

            if (!agent || (tier == HY_TIER_GPU) != (agent->has.gpus > 0) || (!agent->open && !closed_too))
                continue;
            while (placed < need->count &&
                   hy_sched_agent_pick_devices(agent, need, HY_VIEW_IDLE, HY_PREFER_FULL, &mask)) {
                plan_one(agent, need, mask, allocations ? allocations + placed : NULL);
                placed++;
            }
        }
    }
    return placed;
}

static void release_plan(const struct hy_task_class *c, uint32_t r, const struct hy_allocation *allocations,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        hy_sched_agent_release(allocations[i].agent, HY_ALLOC_PLANNED, &c->fit[r]->need, allocations[i].gpu_mask);
}

/* Plans the roles of `c` in one order; c->order[permutation[0]] comes first. */
static bool plan_in_order(struct hy_schedule *s, const struct hy_task_class *c, const uint8_t *permutation,
                          bool may_wait, struct hy_allocation *allocations)
{
    uint32_t placed[HY_ROLES_MAX] = {0};
    bool all = true;

    for (uint32_t i = 0; all && i < c->need.role_count; i++) {
        uint32_t r = c->order[permutation[i]], count = c->need.roles[r].count;
        struct hy_allocation *of_role = allocations + c->first[r];

        placed[r] = place_now(s, c->fit[r], count, of_role);
        if (may_wait)
            placed[r] += place_soonest(s, c->fit[r], count - placed[r], of_role + placed[r]);
        all = placed[r] == count;
    }
    for (uint32_t r = 0; r < c->need.role_count; r++)
        release_plan(c, r, allocations + c->first[r], placed[r]);
    return all;
}

static bool plan_idle_in_order(struct hy_schedule *s, const struct hy_need *need, const uint8_t *order,
                               const uint8_t *permutation, bool closed_too, struct hy_allocation *allocations)
{
    bool all = true;

    for (uint32_t i = 0; all && i < need->role_count; i++) {
        const struct hy_role_need *role = &need->roles[order[permutation[i]]];
        struct hy_allocation *of_role = allocations;

        for (const struct hy_role_need *before = need->roles; allocations && before < role; before++)
            of_role += before->count;
        all = place_idle(s, role, closed_too, of_role) == role->count;
    }
    for (uint32_t at = 0; at < s->agent_cap; at++)
        if (s->agents[at] && s->agents[at]->load[HY_ALLOC_PLANNED].slots)
            hy_sched_agent_clear(s->agents[at], HY_ALLOC_PLANNED);
    return all;
}

static const uint8_t identity[HY_ROLES_MAX] = {0, 1, 2, 3};

static void swap(uint8_t *a, uint8_t *b)
{
    uint8_t kept = *a;

    *a = *b;
    *b = kept;
}

/* The next permutation in lexicographic order; false after the last. */
static bool next_permutation(uint8_t *permutation, uint32_t n)
{
    uint32_t i = n - 1, j = n - 1;

    while (i > 0 && permutation[i - 1] > permutation[i])
        i--;
    if (i == 0)
        return false;
    while (permutation[j] < permutation[i - 1])
        j--;
    swap(&permutation[i - 1], &permutation[j]);
    for (j = n - 1; i < j; i++, j--)
        swap(&permutation[i], &permutation[j]);
    return true;
}

bool hy_plan_now(struct hy_schedule *s, const struct hy_task_class *c, struct hy_allocation *allocations)
{
    uint8_t permutation[HY_ROLES_MAX];

    memcpy(permutation, identity, sizeof permutation);
    do {
        if (plan_in_order(s, c, permutation, false, allocations))
            return true;
    } while (next_permutation(permutation, c->need.role_count));
    return false;
}

bool hy_plan_soon(struct hy_schedule *s, const struct hy_task_class *c, struct hy_allocation *allocations)
{
    return plan_in_order(s, c, identity, true, allocations);
}

bool hy_plan_idle(struct hy_schedule *s, const struct hy_need *need, bool closed_too, struct hy_allocation *allocations)
{
    uint8_t order[HY_ROLES_MAX], permutation[HY_ROLES_MAX];

    hy_plan_order(need, order);
    memcpy(permutation, identity, sizeof permutation);
    do {
        if (plan_idle_in_order(s, need, order, permutation, closed_too, allocations))
            return true;
    } while (next_permutation(permutation, need->role_count));
    return false;
}

static bool is_more_demanding(const struct hy_role_need *a, const struct hy_role_need *b)
{
    if (a->alone != b->alone)
        return a->alone;
    return a->gpu_share != b->gpu_share ? a->gpu_share > b->gpu_share : a->memory > b->memory;
}

void hy_plan_order(const struct hy_need *need, uint8_t order[HY_ROLES_MAX])
{
    for (uint32_t r = 0; r < need->role_count; r++) {
        uint32_t i = r;

        for (; i > 0 && is_more_demanding(&need->roles[r], &need->roles[order[i - 1]]); i--)
            order[i] = order[i - 1];
        order[i] = (uint8_t)r;
    }
}
