/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of this part:
 *
 *     bitmap.c           a hierarchical bitmap: a set of numbers with a fast "next member"
 *     agent_resources.c  capacity and allocations of one agent
 *     fit_index.c        for members with equal needs: the agents where one fits, kept up to date
 *     task_class.c       tasks with equal needs, and their queue
 *     plan.c             finds agents for all members of a task, or for none
 *     reservation.c      resources held for the oldest task that does not fit
 *     schedule.c         the public functions: agents and tasks by ID, and which task is next
 */
#ifndef HY_SCHEDULE_INTERNAL_H
#define HY_SCHEDULE_INTERNAL_H

#include "base/list.h"
#include "base/map.h"
#include "schedule/bitmap.h"
#include "schedule/schedule.h"
#include "schedule/agent_resources.h"

/* A member that needs no GPU goes to an agent without GPUs first. */
enum hy_tier { HY_TIER_PLAIN, HY_TIER_GPU, HY_TIERS };

struct hy_fit_index {
    struct hy_role_need need; /* of one member; `count` is 0 */
    uint32_t refs;
    uint64_t room;                   /* how many fit now, over all agents */
    uint64_t room_idle;              /* how many fit if all open agents are idle */
    uint32_t *fits;                  /* how many fit now, by agent->index */
    struct hy_bitmap free[HY_TIERS]; /* agents where one fits now */
    struct hy_bitmap able;           /* agents where one fits if they are idle */
    struct hy_list link;
};

struct hy_task_class {
    struct hy_need need;
    uint32_t members;
    uint32_t first[HY_ROLES_MAX];         /* the role's first member among all */
    uint8_t order[HY_ROLES_MAX];          /* roles in the order of planning: the most demanding first */
    struct hy_fit_index *fit[HY_ROLES_MAX]; /* by role */
    struct hy_list queue;                 /* tasks that wait, oldest first */
    uint64_t tasks;                       /* that wait or run */
    uint64_t unfit_version;               /* planning failed when s->fit_version was this */
    uint64_t possible_version;            /* `possible` is valid for this s->agents_version */
    bool possible;
    struct hy_list link;  /* in s->classes */
    struct hy_list state; /* in s->waiting, in s->unused, or in neither */
};

struct hy_task {
    uint64_t id;
    uint64_t seq; /* position in the order of submission; 0 once it runs */
    struct hy_task_class *class;
    union {
        struct hy_list queued; /* in class->queue, while it waits */
        struct hy_allocation one;          /* while it runs: of its only member ... */
        struct hy_allocation *allocations; /* ... or of all its members */
    };
};

struct hy_reservation {
    struct hy_task *owner; /* NULL: there is no reservation */
    struct hy_allocation *allocations;
    bool *pending; /* by member: held, not yet secured */
    uint32_t missing[HY_ROLES_MAX];
    uint32_t missing_total;
};

struct hy_schedule {
    struct hy_policy policy;
    struct hy_map agent_by_id;
    struct hy_sched_agent **agents; /* by agent->index; NULL where none is */
    uint32_t agent_cap;
    struct hy_bitmap vacant; /* the NULLs */
    struct hy_list gone;
    struct hy_list fit_indexes;
    struct hy_list classes, waiting, unused;
    uint32_t unused_count;
    struct hy_map task_by_id;
    struct hy_reservation reserved;
    uint64_t last_seq;
    uint64_t agents_version; /* grows when an agent is added, removed, opened or closed */
    uint64_t fit_version;    /* grows when more members of some kind fit on an agent */
    uint64_t running_members;
    struct hy_schedule_stats stats;
    struct hy_assignment *assignments; /* of the last placement */
    uint32_t assignment_cap;
};

/* ---- fit_index.c ---- */

/* Compares what one member needs; the counts may differ. */
bool hy_role_needs_equal(const struct hy_role_need *a, const struct hy_role_need *b);
/* The index for a role's members, with one more reference; NULL when out of memory. */
struct hy_fit_index *hy_fit_index_ref(struct hy_schedule *s, const struct hy_role_need *need);
void hy_fit_index_unref(struct hy_fit_index *fit); /* NULL is fine */
/* Makes room for agents with an index below `count`. 0 or -ENOMEM. */
int hy_fit_indexes_grow(struct hy_schedule *s, uint32_t count);
/* After a change of an agent's allocations: O(indexes). */
void hy_fit_indexes_update_load(struct hy_schedule *s, struct hy_sched_agent *agent);
/* After an agent was added, removed, opened, closed or resized. */
void hy_fit_indexes_update_agent(struct hy_schedule *s, struct hy_sched_agent *agent);

/* ---- task_class.c ---- */

/* 0 or -EINVAL. */
int hy_need_check(const struct hy_need *need);
uint32_t hy_need_members(const struct hy_need *need);
/* Finds or makes the class of a checked need; NULL when out of memory. */
struct hy_task_class *hy_task_class_find_or_make(struct hy_schedule *s, const struct hy_need *need);
void hy_task_class_free(struct hy_task_class *c);
void hy_task_class_enqueue(struct hy_schedule *s, struct hy_task_class *c, struct hy_task *t); /* at the queue's end */
void hy_task_class_dequeue(struct hy_task *t); /* it still belongs to the class */
void hy_task_class_remove(struct hy_schedule *s, struct hy_task *t); /* after hy_task_class_dequeue */
struct hy_task *hy_task_class_head(const struct hy_task_class *c); /* the oldest that waits; the queue is not empty */
/* The role of the class's i-th member. */
uint32_t hy_task_class_role_of(const struct hy_task_class *c, uint32_t member);
/* Whether one fits on the open agents once they are idle. */
bool hy_task_class_possible(struct hy_schedule *s, struct hy_task_class *c);
/* Whether one may fit now. Exact for one role; necessary, not sufficient, for several. */
bool hy_task_class_may_fit(const struct hy_schedule *s, const struct hy_task_class *c);

/* ---- plan.c ---- */

/* Each fills allocations[members] and returns true, or returns false. No agent's
 * allocations change either way. */

/* All members where they fit now, without what is reserved. */
bool hy_plan_now(struct hy_schedule *s, const struct hy_task_class *c, struct hy_allocation *allocations);
/* Members that fit now go there, the others where the shortfall is least. May find
 * nothing for several roles although hy_plan_idle does. */
bool hy_plan_soon(struct hy_schedule *s, const struct hy_task_class *c, struct hy_allocation *allocations);
/* As if nothing were running. `allocations` may be NULL. */
bool hy_plan_idle(struct hy_schedule *s, const struct hy_need *need, bool closed_too,
                  struct hy_allocation *allocations);
/* Sorts the roles, the most demanding first. */
void hy_plan_order(const struct hy_need *need, uint8_t order[HY_ROLES_MAX]);

/* ---- reservation.c ---- */

/* Makes the reservation for `t`, which is possible; a task that had it loses it.
 * 0, or -ENOMEM and nothing changed. */
int hy_reservation_make(struct hy_schedule *s, struct hy_task *t);
void hy_reservation_cancel(struct hy_schedule *s); /* without one it does nothing */
/* Gives the owner the first choice of what was released on `agent`. */
void hy_reservation_offer(struct hy_schedule *s, struct hy_sched_agent *agent);
bool hy_reservation_uses(const struct hy_schedule *s, const struct hy_sched_agent *agent);
bool hy_reservation_complete(const struct hy_schedule *s);
/* Ends the reservation and returns the owner's allocations, which are HY_ALLOC_USED. */
struct hy_allocation *hy_reservation_take(struct hy_schedule *s);

#endif
