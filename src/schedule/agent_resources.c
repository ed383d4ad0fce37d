/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/agent_resources.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

struct hy_sched_agent *hy_sched_agent_new(uint64_t id, const struct hy_capacity *has)
{
    struct hy_sched_agent *agent = hy_calloc(1, sizeof *agent + has->gpus * sizeof agent->gpu[0]);

    if (!agent)
        return NULL;
    agent->id = id;
    agent->has = *has;
    agent->open = true;
    hy_list_init(&agent->link);
    return agent;
}

void hy_sched_agent_free(struct hy_sched_agent *agent)
{
    if (agent)
        hy_list_remove(&agent->link);
    free(agent);
}

static bool counts_memory(const struct hy_sched_agent *agent)
{
    return agent->has.memory != UINT64_MAX;
}

static bool counts_in(enum hy_view view, int kind)
{
    return (unsigned)view >> kind & 1;
}

/* Used and held together may be more than there is: nothing is left then. */
static uint32_t slots_left(const struct hy_sched_agent *agent, enum hy_view view)
{
    uint32_t left = agent->has.slots;

    for (int b = 0; b < HY_ALLOC_KINDS; b++)
        if (counts_in(view, b))
            left = left > agent->load[b].slots ? left - agent->load[b].slots : 0;
    return left;
}

static bool has_slots(const struct hy_sched_agent *agent, const struct hy_role_need *need, enum hy_view view)
{
    return slots_left(agent, view) >= hy_sched_agent_slots_for(agent, need);
}

static uint64_t memory_left(const struct hy_sched_agent *agent, enum hy_view view)
{
    uint64_t left = agent->has.memory;

    for (int b = 0; b < HY_ALLOC_KINDS; b++)
        if (counts_in(view, b))
            left = left > agent->load[b].memory ? left - agent->load[b].memory : 0;
    return left;
}

uint32_t hy_sched_agent_device_left(const struct hy_sched_agent *agent, uint32_t device, enum hy_view view)
{
    uint32_t left = HY_GPU_WHOLE, gone = 0;

    for (int b = 0; b < HY_ALLOC_KINDS; b++)
        if (counts_in(view, b))
            gone += agent->gpu[device].load[b];
    return left > gone ? left - gone : 0;
}

static uint32_t gpu_room(const struct hy_sched_agent *agent, const struct hy_role_need *need, enum hy_view view)
{
    uint32_t room = 0, each = hy_need_share_per_device(need);

    for (uint32_t d = 0; d < agent->has.gpus; d++)
        room += hy_sched_agent_device_left(agent, d, view) / each;
    return room / hy_need_devices(need);
}

uint32_t hy_sched_agent_room(const struct hy_sched_agent *agent, const struct hy_role_need *need, enum hy_view view)
{
    uint32_t room = slots_left(agent, view) / hy_sched_agent_slots_for(agent, need);

    if (room && need->gpu_share) {
        uint32_t gpus = gpu_room(agent, need, view);
        room = gpus < room ? gpus : room;
    }
    if (room && need->memory && counts_memory(agent)) {
        uint64_t parts = memory_left(agent, view) / need->memory;
        room = parts < room ? (uint32_t)parts : room;
    }
    return room;
}

uint32_t hy_sched_agent_pick_device(const struct hy_sched_agent *agent, uint32_t share, enum hy_view view,
                                    enum hy_prefer prefer, uint64_t taken)
{
    uint32_t best = HY_NO_DEVICE, best_cost = UINT32_MAX;

    for (uint32_t d = 0; d < agent->has.gpus; d++) {
        uint32_t left = hy_sched_agent_device_left(agent, d, view), cost = left;

        if (left < share || taken >> d & 1)
            continue;
        if (prefer == HY_PREFER_SOON)
            cost = HY_GPU_WHOLE - hy_sched_agent_device_left(agent, d, HY_VIEW_FOR_OWNER);
        if (cost < best_cost) {
            best_cost = cost;
            best = d;
        }
    }
    return best;
}

bool hy_sched_agent_pick_devices(const struct hy_sched_agent *agent, const struct hy_role_need *need, enum hy_view view,
                                 enum hy_prefer prefer, uint64_t *ret_mask)
{
    uint64_t mask = 0;

    if (!has_slots(agent, need, view) || memory_left(agent, view) < need->memory)
        return false;
    for (uint32_t i = 0; i < hy_need_devices(need); i++) {
        uint32_t d = hy_sched_agent_pick_device(agent, hy_need_share_per_device(need), view, prefer, mask);

        if (d == HY_NO_DEVICE)
            return false;
        mask |= UINT64_C(1) << d;
    }
    *ret_mask = mask;
    return true;
}

bool hy_sched_agent_fits_on(const struct hy_sched_agent *agent, const struct hy_role_need *need, enum hy_view view,
                            uint64_t mask)
{
    if (!has_slots(agent, need, view) || memory_left(agent, view) < need->memory)
        return false;
    for (; mask; mask &= mask - 1)
        if (hy_sched_agent_device_left(agent, (uint32_t)__builtin_ctzll(mask), view) < hy_need_share_per_device(need))
            return false;
    return true;
}

static double above(double n)
{
    return n > 0 ? n : 0;
}

double hy_sched_agent_shortfall(const struct hy_sched_agent *agent, const struct hy_role_need *need, uint64_t mask)
{
    const struct hy_agent_load *used = &agent->load[HY_ALLOC_USED], *plan = &agent->load[HY_ALLOC_PLANNED];
    double shortfall =
        above((double)used->slots + plan->slots + hy_sched_agent_slots_for(agent, need) - agent->has.slots);

    if (need->memory && counts_memory(agent)) {
        double memory = (double)used->memory + (double)plan->memory + (double)need->memory;
        shortfall += above(memory - (double)agent->has.memory) / (double)need->memory;
    }
    for (; mask; mask &= mask - 1) {
        const uint16_t *load = agent->gpu[__builtin_ctzll(mask)].load;
        double share = (double)load[HY_ALLOC_USED] + load[HY_ALLOC_PLANNED] + hy_need_share_per_device(need);
        shortfall += above(share - HY_GPU_WHOLE) / HY_GPU_WHOLE;
    }
    return shortfall;
}

void hy_sched_agent_allocate(struct hy_sched_agent *agent, enum hy_alloc_kind kind, const struct hy_role_need *need,
                             uint64_t mask)
{
    agent->load[kind].slots += hy_sched_agent_slots_for(agent, need);
    if (counts_memory(agent))
        agent->load[kind].memory += need->memory;
    for (; mask; mask &= mask - 1) {
        struct hy_device_load *gpu = &agent->gpu[__builtin_ctzll(mask)];

        gpu->load[kind] = (uint16_t)(gpu->load[kind] + hy_need_share_per_device(need));
        assert(gpu->load[kind] <= HY_GPU_WHOLE);
    }
    assert(agent->load[kind].slots <= agent->has.slots && agent->load[kind].memory <= agent->has.memory);
}

void hy_sched_agent_release(struct hy_sched_agent *agent, enum hy_alloc_kind kind, const struct hy_role_need *need,
                            uint64_t mask)
{
    assert(agent->load[kind].slots >= hy_sched_agent_slots_for(agent, need));
    agent->load[kind].slots -= hy_sched_agent_slots_for(agent, need);
    if (counts_memory(agent)) {
        assert(agent->load[kind].memory >= need->memory);
        agent->load[kind].memory -= need->memory;
    }
    for (; mask; mask &= mask - 1) {
        struct hy_device_load *gpu = &agent->gpu[__builtin_ctzll(mask)];

        assert(gpu->load[kind] >= hy_need_share_per_device(need));
        gpu->load[kind] = (uint16_t)(gpu->load[kind] - hy_need_share_per_device(need));
    }
}

void hy_sched_agent_move_share(struct hy_sched_agent *agent, enum hy_alloc_kind kind, uint32_t share, uint32_t from,
                               uint32_t to)
{
    assert(agent->gpu[from].load[kind] >= share);
    agent->gpu[from].load[kind] = (uint16_t)(agent->gpu[from].load[kind] - share);
    agent->gpu[to].load[kind] = (uint16_t)(agent->gpu[to].load[kind] + share);
    assert(agent->gpu[to].load[kind] <= HY_GPU_WHOLE);
}

void hy_sched_agent_clear(struct hy_sched_agent *agent, enum hy_alloc_kind kind)
{
    agent->load[kind] = (struct hy_agent_load){0};
    for (uint32_t d = 0; d < agent->has.gpus; d++)
        agent->gpu[d].load[kind] = 0;
}
