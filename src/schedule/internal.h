/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the schedule share.
 *
 *     bits.c      a set of numbers that finds its next member fast
 *     site.c      the books of one agent
 *     shape.c     for one kind of member: the sites where it fits, kept up to date
 *     class.c     tasks with equal needs, and their queue
 *     plan.c      lays out all members of a task, or none
 *     reserve.c   what is set aside for the oldest task that does not fit
 *     schedule.c  the front door: order, and what is known by number
 */
#ifndef HY_SCHEDULE_INTERNAL_H
#define HY_SCHEDULE_INTERNAL_H

#include "base/list.h"
#include "base/map.h"
#include "schedule/bitmap.h"
#include "schedule/schedule.h"
#include "schedule/agent_resources.h"

/* Sites without GPUs come first for a member that needs none. */
enum hy_tier { HY_TIER_PLAIN, HY_TIER_GPU, HY_TIERS };

struct hy_shape {
    struct hy_role_need need; /* of one member; `count` is 0 */
    uint32_t refs;
    uint64_t room;                 /* such members that fit now, over all sites */
    uint64_t room_idle;            /* ... if all open sites were idle */
    uint32_t *fits;                /* ... that fit now, by site->at */
    struct hy_bits free[HY_TIERS]; /* sites where one fits now */
    struct hy_bits able;           /* sites where one would fit if they were idle */
    struct hy_list link;
};

struct hy_class {
    struct hy_need need;
    uint32_t members;
    uint32_t first[HY_ROLES_MAX];         /* the role's first member among all */
    uint8_t order[HY_ROLES_MAX];          /* roles as they are laid out: the most demanding first */
    struct hy_shape *shape[HY_ROLES_MAX]; /* by role */
    struct hy_list queue;                 /* tasks that wait, oldest first */
    uint64_t tasks;                       /* that wait or run */
    uint64_t misfit_at;                   /* was laid out in vain when s->grown was this */
    uint64_t possible_at;                 /* `possible` holds for this s->topology */
    bool possible;
    struct hy_list link;  /* in s->classes */
    struct hy_list state; /* in s->waiting, in s->parked, or in neither */
};

struct hy_task {
    uint64_t id;
    uint64_t seq; /* its place in the order of arrival; 0 once it runs */
    struct hy_class *class;
    union {
        struct hy_list queued; /* in class->queue, while it waits */
        struct hy_spot one;    /* while it runs: where its only member sits ... */
        struct hy_spot *spots; /* ... or all of its members */
    };
};

struct hy_reservation {
    struct hy_task *owner; /* NULL: there is none */
    struct hy_spot *spots;
    bool *awaited; /* by member: held there, not yet secured */
    uint32_t missing[HY_ROLES_MAX];
    uint32_t missing_total;
};

struct hy_schedule {
    struct hy_policy policy;
    struct hy_map site_by_id;
    struct hy_site **sites; /* by site->at; NULL where none is */
    uint32_t site_cap;
    struct hy_bits vacant; /* the NULLs */
    struct hy_list gone;
    struct hy_list shapes;
    struct hy_list classes, waiting, parked;
    uint32_t parked_count;
    struct hy_map task_by_id;
    struct hy_reservation reserved;
    uint64_t last_seq;
    uint64_t topology; /* counts the changes in which sites there are and are open */
    uint64_t grown;    /* counts the times that some member began to fit better somewhere */
    uint64_t running_members;
    struct hy_schedule_stats stats;
    struct hy_seat *seats; /* of the last placement */
    uint32_t seat_cap;
};

/* ---- shape.c ---- */

/* Whether members of the two need the same; their counts may differ. */
bool hy_shapes_equal(const struct hy_role_need *a, const struct hy_role_need *b);
/* The shape of a role's members, with one reference more; NULL when out of memory. */
struct hy_shape *hy_shape_ref(struct hy_schedule *s, const struct hy_role_need *need);
void hy_shape_unref(struct hy_shape *shape); /* NULL is fine */
/* Makes room for sites numbered below `count`. 0 or -ENOMEM. */
int hy_shapes_grow(struct hy_schedule *s, uint32_t count);
/* After a change in a site's books: O(shapes). */
void hy_shapes_touch(struct hy_schedule *s, struct hy_site *site);
/* After a site came, went, opened or closed. */
void hy_shapes_turn(struct hy_schedule *s, struct hy_site *site);

/* ---- class.c ---- */

/* 0 or -EINVAL. */
int hy_need_check(const struct hy_need *need);
uint32_t hy_need_members(const struct hy_need *need);
/* Finds or makes the class of a checked need; NULL when out of memory. */
struct hy_class *hy_class_get(struct hy_schedule *s, const struct hy_need *need);
void hy_class_free(struct hy_class *c);
void hy_class_enter(struct hy_schedule *s, struct hy_class *c, struct hy_task *t); /* at the queue's end */
void hy_class_unqueue(struct hy_task *t);                                          /* it stays the class's */
void hy_class_leave(struct hy_schedule *s, struct hy_task *t);                     /* after unqueue */
struct hy_task *hy_class_head(const struct hy_class *c); /* the oldest that waits; there is one */
/* The role of the class's i-th member. */
uint32_t hy_class_role_of(const struct hy_class *c, uint32_t member);
/* Whether the open sites could hold one if they were idle. */
bool hy_class_possible(struct hy_schedule *s, struct hy_class *c);
/* Whether one may fit now. Exact for one role, and what must hold for more. */
bool hy_class_may_fit(const struct hy_schedule *s, const struct hy_class *c);

/* ---- plan.c ---- */

/* Each fills spots[members] and answers true, or answers false; the books are
 * as before either way. */

/* All members where they fit now, besides what is held. */
bool hy_plan_now(struct hy_schedule *s, const struct hy_class *c, struct hy_spot *spots);
/* Those that fit now there, the others where least is missing. May miss a way
 * for more than one role; the next function then knows one. */
bool hy_plan_soon(struct hy_schedule *s, const struct hy_class *c, struct hy_spot *spots);
/* As if nothing ran. `spots` may be NULL. */
bool hy_plan_idle(struct hy_schedule *s, const struct hy_need *need, bool closed_too, struct hy_spot *spots);
/* The roles, the most demanding first. */
void hy_plan_order(const struct hy_need *need, uint8_t order[HY_ROLES_MAX]);

/* ---- reserve.c ---- */

/* Sets aside for `t`, which is possible, in place of whoever had the
 * reservation. 0, or -ENOMEM and nothing changed. */
int hy_reserve(struct hy_schedule *s, struct hy_task *t);
void hy_reserve_drop(struct hy_schedule *s); /* none is fine */
/* Lets the owner have first what came free at `site`. */
void hy_reserve_offer(struct hy_schedule *s, struct hy_site *site);
bool hy_reserve_uses(const struct hy_schedule *s, const struct hy_site *site);
bool hy_reserve_complete(const struct hy_schedule *s);
/* Gives the owner's spots away (booked as used) and ends the reservation. */
struct hy_spot *hy_reserve_take(struct hy_schedule *s);

#endif
