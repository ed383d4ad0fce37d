/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent as the schedule sees it: its capacity, and what is allocated of it.
 *
 *     HY_ALLOC_USED       to running members, and to those the reservation has secured
 *     HY_ALLOC_RESERVED   to members of the reservation that are still pending; with
 *                         HY_ALLOC_USED it may exceed the capacity
 *     HY_ALLOC_PLANNED    scratch while a task is planned; empty outside of plan.c
 *
 * A view is the set of kinds that count as taken.
 */
#ifndef HY_SCHEDULE_AGENT_RESOURCES_H
#define HY_SCHEDULE_AGENT_RESOURCES_H

#include <stdbool.h>

#include "base/list.h"
#include "schedule/schedule.h"

enum hy_alloc_kind { HY_ALLOC_USED, HY_ALLOC_RESERVED, HY_ALLOC_PLANNED, HY_ALLOC_KINDS };

enum hy_view {
    HY_VIEW_FREE = 1 << HY_ALLOC_USED | 1 << HY_ALLOC_RESERVED | 1 << HY_ALLOC_PLANNED, /* any task may have it */
    HY_VIEW_FOR_OWNER = 1 << HY_ALLOC_USED | 1 << HY_ALLOC_PLANNED, /* the reservation's owner may have it */
    HY_VIEW_IDLE = 1 << HY_ALLOC_PLANNED /* once every running task has ended */
};

/* Which of the suitable devices a member gets. */
enum hy_prefer {
    HY_PREFER_FULL, /* the fullest, so that others stay whole */
    HY_PREFER_SOON /* those with the least to wait for */
};

#define HY_NO_DEVICE UINT32_MAX

struct hy_agent_load {
    uint64_t memory;
    uint32_t slots;
};

struct hy_device_load {
    uint16_t load[HY_ALLOC_KINDS]; /* thousandths */
};

struct hy_sched_agent {
    uint64_t id;
    struct hy_capacity has;
    uint32_t index; /* in schedule->agents and in the fit indexes */
    bool open;
    bool gone; /* removed, but some of its members are not done yet */
    struct hy_agent_load load[HY_ALLOC_KINDS];
    struct hy_list link; /* among the gone */
    struct hy_device_load gpu[];
};

/* What one member has been given. */
struct hy_allocation {
    struct hy_sched_agent *agent;
    uint64_t gpu_mask;
};

/* How many devices a member gets, and how much of each. */
static inline uint32_t hy_need_devices(const struct hy_role_need *need)
{
    return need->gpu_share < HY_GPU_WHOLE ? need->gpu_share > 0 : need->gpu_share / HY_GPU_WHOLE;
}

static inline uint32_t hy_need_share_per_device(const struct hy_role_need *need)
{
    return need->gpu_share < HY_GPU_WHOLE ? need->gpu_share : HY_GPU_WHOLE;
}

/* How many slots a member takes on this agent. */
static inline uint32_t hy_sched_agent_slots_for(const struct hy_sched_agent *agent, const struct hy_role_need *need)
{
    return need->alone ? agent->has.slots : 1;
}

/* NULL when out of memory. */
struct hy_sched_agent *hy_sched_agent_new(uint64_t id, const struct hy_capacity *has);
void hy_sched_agent_free(struct hy_sched_agent *agent);

/* How many such members fit. */
uint32_t hy_sched_agent_room(const struct hy_sched_agent *agent, const struct hy_role_need *need, enum hy_view view);
/* Whether one fits, and on which devices. */
bool hy_sched_agent_pick_devices(const struct hy_sched_agent *agent, const struct hy_role_need *need, enum hy_view view,
                                 enum hy_prefer prefer, uint64_t *ret_mask);
/* Whether one fits on exactly these devices. */
bool hy_sched_agent_fits_on(const struct hy_sched_agent *agent, const struct hy_role_need *need, enum hy_view view,
                            uint64_t mask);
/* How much must be released on the agent before one more than planned fits:
 * a slot, the memory of a member, or a device counts 1. */
double hy_sched_agent_shortfall(const struct hy_sched_agent *agent, const struct hy_role_need *need, uint64_t mask);

/* The best device that is not in `taken` and has `share` left; the first of equal ones. */
uint32_t hy_sched_agent_pick_device(const struct hy_sched_agent *agent, uint32_t share, enum hy_view view,
                                    enum hy_prefer prefer, uint64_t taken);
uint32_t hy_sched_agent_device_left(const struct hy_sched_agent *agent, uint32_t device, enum hy_view view);

void hy_sched_agent_allocate(struct hy_sched_agent *agent, enum hy_alloc_kind kind, const struct hy_role_need *need,
                             uint64_t mask);
void hy_sched_agent_release(struct hy_sched_agent *agent, enum hy_alloc_kind kind, const struct hy_role_need *need,
                            uint64_t mask);
/* Moves a share from one device to another. */
void hy_sched_agent_move_share(struct hy_sched_agent *agent, enum hy_alloc_kind kind, uint32_t share, uint32_t from,
                               uint32_t to);
void hy_sched_agent_clear(struct hy_sched_agent *agent, enum hy_alloc_kind kind);

#endif
