/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule: which task runs on which agent.
 *
 * Pure bookkeeping: no clock, no I/O, no threads. The driver reports agents and
 * tasks that ended; the schedule returns the next placement. So a test can
 * simulate ten thousand agents with the same code.
 *
 * First come, first served, with backfill. The oldest task that does not fit
 * gets a reservation, and a younger task may start before it only if that does
 * not delay it. So small tasks fill the gaps and never starve a large one.
 *
 * Tasks with equal needs form a class. The cost of a placement grows with the
 * number of classes and the logarithm of the agents, not with the queue.
 *
 * A schedule is not thread-safe; one driver loop owns it.
 */
#ifndef HY_SCHEDULE_H
#define HY_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HY_GPU_WHOLE 1000u    /* GPU shares are counted in thousandths */
#define HY_AGENT_GPUS_MAX 64u
#define HY_ROLES_MAX 4u
#define HY_MEMBERS_MAX 65536u /* of one task, over all its roles */

struct hy_capacity {
    uint32_t slots;
    uint32_t gpus;   /* devices 0 .. gpus-1, at most HY_AGENT_GPUS_MAX */
    uint64_t memory; /* bytes; UINT64_MAX: unlimited */
};

/* What each member of one role of a task needs. */
struct hy_role_need {
    uint32_t count;     /* members; a trial is one role with one member */
    uint32_t gpu_share; /* thousandths: below 1000 a share of one device, else
                           whole devices (a multiple of 1000); 0 for roles that
                           never get a GPU */
    uint64_t memory;    /* bytes; 0: no requirement */
    bool alone;         /* nothing else runs on its agent: it takes all slots */
};

/* A gang: either all members of all roles are placed, or none. */
struct hy_need {
    uint32_t role_count; /* 1 .. HY_ROLES_MAX */
    struct hy_role_need roles[HY_ROLES_MAX];
};

/* Where one member runs, and which devices it holds there. */
struct hy_assignment {
    uint64_t agent;
    uint64_t gpu_mask;  /* devices held: one bit each */
    uint32_t gpu_share; /* of each: 1000, or the share */
    uint32_t role, member;
};

struct hy_placement {
    uint64_t task;
    size_t count;
    const struct hy_assignment *assignments; /* by role, then member; valid until the next call */
};

struct hy_policy {
    uint32_t parallel; /* members running at once over all agents; 0: no limit */
};

struct hy_schedule; /* opaque */

/* Takes a copy of `policy`. Returns NULL only when out of memory. */
struct hy_schedule *hy_schedule_new(const struct hy_policy *policy);
void hy_schedule_free(struct hy_schedule *s); /* NULL is fine */
/* Changes policy.parallel; only before the first agent is added. */
void hy_schedule_parallel(struct hy_schedule *s, uint32_t parallel);

/* Agent and task IDs are the caller's; each is unique among its kind.
 * -EEXIST, -EINVAL (no slots, too many GPUs), -ENOMEM. */
int hy_schedule_agent_add(struct hy_schedule *s, uint64_t agent_id, const struct hy_capacity *has);
/*
 * Removes an agent and the assignments to it. Tasks with a member there remain
 * until the caller calls hy_schedule_done for each of them (a gang that lost a
 * member ends as a whole). -ENOENT.
 */
int hy_schedule_agent_remove(struct hy_schedule *s, uint64_t agent_id);
/*
 * Changes the number of slots. Members beyond it keep running until their tasks are done.
 * Not for agents with tasks that run alone. -ENOENT, -EINVAL (no slots).
 */
int hy_schedule_agent_resize(struct hy_schedule *s, uint64_t agent_id, uint32_t slots);
/* A closed agent (0) gets no new members until it is opened (1). -ENOENT. */
int hy_schedule_agent_open(struct hy_schedule *s, uint64_t agent_id, int open);

/* Queues a task behind all others. -EEXIST, -EINVAL, -ENOMEM. */
int hy_schedule_submit(struct hy_schedule *s, uint64_t task, const struct hy_need *need);
/* Ends a task: removes it from the queue, or releases its resources. -ENOENT. */
int hy_schedule_done(struct hy_schedule *s, uint64_t task);

/*
 * Places the oldest task that may run now.
 * Returns 1 and fills *ret_placement (the resources are allocated), 0 when nothing
 * fits now, or -ENOMEM.
 */
int hy_schedule_next(struct hy_schedule *s, struct hy_placement *ret_placement);

/* Would a task with this need, submitted now, start at once? Exact for one role of
 * one member, unless an older task waits that has no reservation yet. 1, 0 or -ENOMEM. */
int hy_schedule_fits(struct hy_schedule *s, const struct hy_need *need);

/*
 * Could the present agents, closed ones included, meet this need if they were
 * idle? 1 or 0. Visits every agent: call it once per kind of task, not once per
 * task. An impossible task may be submitted all the same; it delays no other.
 * 1 is exact, and for one role so is 0. With several roles 0 means that first
 * fit fails for every order of the roles.
 */
int hy_schedule_possible(struct hy_schedule *s, const struct hy_need *need);

struct hy_schedule_stats {
    uint64_t agents, waiting, running; /* running: tasks */
    uint64_t slots, slots_used;
};
void hy_schedule_stats(const struct hy_schedule *s, struct hy_schedule_stats *ret);

#endif
