/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reservation: it keeps small tasks from starving a large one.
 *
 * It belongs to the oldest task that does not fit. Each member has an
 * allocation. Where there is room it is secured at once (HY_ALLOC_USED);
 * elsewhere it is pending (HY_ALLOC_RESERVED), and what is released there stays
 * for it, since other tasks only get what is neither used nor reserved. What is
 * released on other agents is offered to the owner first, so that it starts as
 * soon as it fits anywhere.
 *
 * Why it does not wait forever: the allocations of a reservation fit together
 * on idle agents, and every step preserves that. No other task can use what is
 * reserved, so once the tasks that ran before have ended, each pending
 * allocation can be secured. A secured allocation is released only when its
 * agent is removed or closed, or when a new agent makes an older task possible.
 */
#include "schedule/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

static const struct hy_role_need *need_of(const struct hy_reservation *r, uint32_t i)
{
    const struct hy_task_class *c = r->owner->class;

    return &c->need.roles[hy_task_class_role_of(c, i)];
}

static bool is_pending_at(const struct hy_reservation *r, uint32_t i, const struct hy_sched_agent *agent)
{
    return r->pending[i] && r->allocations[i].agent == agent;
}

/* Swaps the busy device of member `i` for a free one of another member that is
 * pending on the same agent with whole devices. */
static bool swap_device(struct hy_reservation *r, uint32_t i, uint32_t busy)
{
    struct hy_allocation *mine = &r->allocations[i];

    for (uint32_t j = 0; j < r->owner->class->members; j++) {
        if (j == i || !is_pending_at(r, j, mine->agent) || need_of(r, j)->gpu_share < HY_GPU_WHOLE)
            continue;
        for (uint64_t rest = r->allocations[j].gpu_mask; rest; rest &= rest - 1) {
            uint32_t d = (uint32_t)__builtin_ctzll(rest);
            uint64_t both = UINT64_C(1) << d | UINT64_C(1) << busy;

            if (hy_sched_agent_device_left(mine->agent, d, HY_VIEW_FOR_OWNER) == HY_GPU_WHOLE) {
                r->allocations[j].gpu_mask ^= both;
                mine->gpu_mask ^= both;
                return true;
            }
        }
    }
    return false;
}

/* Replaces busy devices of a pending member by free ones, as far as possible. */
static void prefer_free_devices(struct hy_reservation *r, uint32_t i)
{
    struct hy_allocation *allocation = &r->allocations[i];
    uint32_t each = hy_need_share_per_device(need_of(r, i));

    for (uint64_t rest = allocation->gpu_mask; rest; rest &= rest - 1) {
        uint32_t d = (uint32_t)__builtin_ctzll(rest), better;

        if (hy_sched_agent_device_left(allocation->agent, d, HY_VIEW_FOR_OWNER) >= each)
            continue;
        better = hy_sched_agent_pick_device(allocation->agent, each, HY_VIEW_FREE, HY_PREFER_FULL,
                                            allocation->gpu_mask);
        if (better != HY_NO_DEVICE) {
            hy_sched_agent_move_share(allocation->agent, HY_ALLOC_RESERVED, each, d, better);
            allocation->gpu_mask ^= UINT64_C(1) << d | UINT64_C(1) << better;
        } else if (each < HY_GPU_WHOLE || !swap_device(r, i, d)) {
            break;
        }
    }
}

static void hold(struct hy_reservation *r, uint32_t i)
{
    hy_sched_agent_allocate(r->allocations[i].agent, HY_ALLOC_RESERVED, need_of(r, i), r->allocations[i].gpu_mask);
    r->pending[i] = true;
    r->missing[hy_task_class_role_of(r->owner->class, i)]++;
    r->missing_total++;
}

static void secure(struct hy_reservation *r, uint32_t i, struct hy_allocation where)
{
    hy_sched_agent_release(r->allocations[i].agent, HY_ALLOC_RESERVED, need_of(r, i), r->allocations[i].gpu_mask);
    hy_sched_agent_allocate(where.agent, HY_ALLOC_USED, need_of(r, i), where.gpu_mask);
    r->allocations[i] = where;
    r->pending[i] = false;
    r->missing[hy_task_class_role_of(r->owner->class, i)]--;
    r->missing_total--;
}

static void secure_in_place(struct hy_reservation *r, uint32_t i)
{
    struct hy_allocation *allocation = &r->allocations[i];

    if (!hy_sched_agent_fits_on(allocation->agent, need_of(r, i), HY_VIEW_FOR_OWNER, 0))
        return;
    prefer_free_devices(r, i);
    if (hy_sched_agent_fits_on(allocation->agent, need_of(r, i), HY_VIEW_FOR_OWNER, allocation->gpu_mask))
        secure(r, i, *allocation);
}

/* Adjacent members mostly share an agent, which is then updated once. */
static void update_indexes(struct hy_schedule *s, const struct hy_allocation *allocations, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (i + 1 == count || allocations[i + 1].agent != allocations[i].agent)
            hy_fit_indexes_update_load(s, allocations[i].agent);
}

int hy_reservation_make(struct hy_schedule *s, struct hy_task *t)
{
    struct hy_reservation *r = &s->reserved;
    const struct hy_task_class *c = t->class;
    hy_cleanup_free struct hy_allocation *allocations = hy_reallocarray(NULL, c->members, sizeof *allocations);
    hy_cleanup_free bool *pending = hy_calloc(c->members, sizeof *pending);
    bool planned;

    if (!allocations || !pending)
        return -ENOMEM;
    hy_reservation_cancel(s);
    planned = hy_plan_soon(s, c, allocations) || hy_plan_idle(s, &c->need, false, allocations);
    assert(planned);
    *r = (struct hy_reservation){.owner = t, .allocations = hy_take(allocations), .pending = hy_take(pending)};
    for (uint32_t i = 0; i < c->members; i++)
        hold(r, i);
    for (uint32_t i = 0; i < c->members; i++)
        secure_in_place(r, i);
    update_indexes(s, r->allocations, c->members);
    return 0;
}

void hy_reservation_cancel(struct hy_schedule *s)
{
    struct hy_reservation *r = &s->reserved;

    if (!r->owner)
        return;
    for (uint32_t i = 0; i < r->owner->class->members; i++)
        hy_sched_agent_release(r->allocations[i].agent, r->pending[i] ? HY_ALLOC_RESERVED : HY_ALLOC_USED,
                               need_of(r, i), r->allocations[i].gpu_mask);
    update_indexes(s, r->allocations, r->owner->class->members);
    free(r->allocations);
    free(r->pending);
    *r = (struct hy_reservation){0};
}

/* Moves a pending member of `role` to `where`, which is free. */
static void move_pending(struct hy_schedule *s, uint32_t role, struct hy_allocation where)
{
    struct hy_reservation *r = &s->reserved;
    uint32_t i = r->owner->class->first[role];
    struct hy_sched_agent *from;

    while (!r->pending[i])
        i++;
    from = r->allocations[i].agent;
    secure(r, i, where);
    if (from != where.agent)
        hy_fit_indexes_update_load(s, from);
}

void hy_reservation_offer(struct hy_schedule *s, struct hy_sched_agent *agent)
{
    struct hy_reservation *r = &s->reserved;
    const struct hy_task_class *c = r->owner ? r->owner->class : NULL;

    if (!c || !r->missing_total || !agent->open)
        return;
    if (agent->load[HY_ALLOC_RESERVED].slots)
        for (uint32_t i = 0; i < c->members; i++)
            if (is_pending_at(r, i, agent))
                secure_in_place(r, i);
    for (uint32_t k = 0; k < c->need.role_count; k++) {
        uint32_t role = c->order[k];
        struct hy_allocation where = {.agent = agent};

        while (r->missing[role] &&
               hy_sched_agent_pick_devices(agent, &c->need.roles[role], HY_VIEW_FREE, HY_PREFER_FULL, &where.gpu_mask))
            move_pending(s, role, where);
    }
    hy_fit_indexes_update_load(s, agent);
}

bool hy_reservation_uses(const struct hy_schedule *s, const struct hy_sched_agent *agent)
{
    const struct hy_reservation *r = &s->reserved;

    for (uint32_t i = 0; r->owner && i < r->owner->class->members; i++)
        if (r->allocations[i].agent == agent)
            return true;
    return false;
}

bool hy_reservation_complete(const struct hy_schedule *s)
{
    const struct hy_reservation *r = &s->reserved;

    if (!r->owner || r->missing_total)
        return false;
    return !s->policy.parallel || s->running_members + r->owner->class->members <= s->policy.parallel;
}

struct hy_allocation *hy_reservation_take(struct hy_schedule *s)
{
    struct hy_allocation *allocations = hy_take(s->reserved.allocations);

    free(s->reserved.pending);
    s->reserved = (struct hy_reservation){0};
    return allocations;
}
