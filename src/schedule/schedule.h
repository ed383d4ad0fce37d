/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule: who may run where.
 *
 * Pure bookkeeping: no clock, no I/O, no threads. The driver tells it what
 * agents exist and what finished; it answers with the next placement. That is
 * why the same code can be simulated with ten thousand agents in a test.
 *
 * First come, first served. A task that fits nowhere now holds a place for
 * itself: agents are set aside for the oldest such task, and only what does
 * not delay it may pass, so small tasks fill holes and never starve a big one.
 *
 * Tasks with equal needs form a class; the cost of a placement grows with the
 * number of classes and the logarithm of the agents, never with the queue.
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

/* What one agent has to give. */
struct hy_capacity {
    uint32_t slots;
    uint32_t gpus;   /* devices 0 .. gpus-1, at most HY_AGENT_GPUS_MAX */
    uint64_t memory; /* bytes; UINT64_MAX: not counted */
};

/* What each member of one role of a task needs. */
struct hy_role_need {
    uint32_t count;     /* how many members; a plain trial is one role of one */
    uint32_t gpu_share; /* thousandths: below 1000 a share of one device, else
                           whole devices (a multiple of 1000); 0 for roles that
                           never get a GPU */
    uint64_t memory;    /* bytes, 0: none asked for */
    bool alone;         /* nothing else runs on its agent: it takes all slots there */
};

/* A gang: all members of all roles are placed at once or none is. */
struct hy_need {
    uint32_t role_count; /* 1 .. HY_ROLES_MAX */
    struct hy_role_need roles[HY_ROLES_MAX];
};

/* Where one member runs, and which devices it holds there. */
struct hy_seat {
    uint64_t agent;
    uint64_t gpu_mask;  /* devices held: one bit each */
    uint32_t gpu_share; /* of each: 1000, or the share */
    uint32_t role, member;
};

struct hy_place {
    uint64_t task;
    size_t seat_count;
    const struct hy_seat *seats; /* by role, then member; valid until the next call */
};

struct hy_policy {
    uint32_t parallel; /* members running at once over all agents; 0: no limit */
};

struct hy_schedule; /* opaque */

/* Takes a copy of `policy`. Returns NULL only when out of memory. */
struct hy_schedule *hy_schedule_new(const struct hy_policy *policy);
void hy_schedule_free(struct hy_schedule *s); /* NULL is fine */
/* Another limit, before there are agents. */
void hy_schedule_parallel(struct hy_schedule *s, uint32_t parallel);

/* `agent` and `task` are the caller's numbers, each unique among its kind.
 * -EEXIST, -EINVAL (no slots, too many GPUs, a share that is none), -ENOMEM. */
int hy_schedule_agent_add(struct hy_schedule *s, uint64_t agent, const struct hy_capacity *has);
/*
 * Forgets an agent; the seats it held are gone with it. Tasks that had a seat
 * there stay known until hy_schedule_done is called for them, which the caller
 * does for each (a gang that lost a member is ended as a whole). -ENOENT.
 */
int hy_schedule_agent_remove(struct hy_schedule *s, uint64_t agent);
/*
 * It has so many slots from now on. Seats beyond these stay taken until their tasks are done. Not for agents with tasks
 * that run alone. -ENOENT, -EINVAL (no slots).
 */
int hy_schedule_agent_resize(struct hy_schedule *s, uint64_t agent, uint32_t slots);
/* No new seats there from now on (0), or again (1). -ENOENT. */
int hy_schedule_agent_open(struct hy_schedule *s, uint64_t agent, int open);

/* Queues a task behind all others. -EEXIST, -EINVAL, -ENOMEM. */
int hy_schedule_submit(struct hy_schedule *s, uint64_t task, const struct hy_need *need);
/* Ends a task: takes it from the queue, or frees its seats. -ENOENT. */
int hy_schedule_done(struct hy_schedule *s, uint64_t task);

/*
 * Finds a place for the oldest task that may run now.
 * Returns 1 and fills *ret_place (the seats are taken), 0 when nothing fits
 * now, or -ENOMEM.
 */
int hy_schedule_next(struct hy_schedule *s, struct hy_place *ret_place);

/* Would a task with this need, queued now, start at once? Exact for one role of
 * one member, unless an older task waits for which nothing is set aside yet. 1, 0 or -ENOMEM. */
int hy_schedule_fits(struct hy_schedule *s, const struct hy_need *need);

/*
 * Could this need ever be met by the agents there are (closed ones too), if
 * they were idle? 1 or 0; 0 is the moment to tell the user in a sentence.
 * Looks at every agent: once per kind of task, not once per task. A task that
 * is not possible may wait all the same, and holds nobody up.
 * A 1 is a promise, and for one role so is a 0; with several roles a 0 means
 * that none of their orders fits, one after the other, each where it first can.
 */
int hy_schedule_possible(struct hy_schedule *s, const struct hy_need *need);

struct hy_schedule_stats {
    uint64_t agents, waiting, running; /* running: tasks */
    uint64_t slots, slots_used;
};
void hy_schedule_stats(const struct hy_schedule *s, struct hy_schedule_stats *ret);

#endif
