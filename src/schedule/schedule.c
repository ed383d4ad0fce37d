/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents and tasks by ID, and which task is next.
 *
 * Next is the oldest task that fits. But before a younger task starts ahead of
 * the oldest possible one that does not fit, the oldest gets the reservation.
 */
#include "schedule/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

#define FIRST_AGENT_CAP 64u

struct hy_schedule *hy_schedule_new(const struct hy_policy *policy)
{
    struct hy_schedule *s = hy_calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->policy = *policy;
    s->agents_version = s->fit_version = 1; /* 0 in a class: not evaluated yet */
    hy_list_init(&s->gone);
    hy_list_init(&s->fit_indexes);
    hy_list_init(&s->classes);
    hy_list_init(&s->waiting);
    hy_list_init(&s->unused);
    return s;
}

void hy_schedule_parallel(struct hy_schedule *s, uint32_t parallel)
{
    s->policy.parallel = parallel;
    s->agents_version++;
    s->fit_version++;
}

static void task_free(struct hy_task *t)
{
    if (!t->seq && t->class->members > 1)
        free(t->allocations);
    free(t);
}

void hy_schedule_free(struct hy_schedule *s)
{
    void *item;

    if (!s)
        return;
    hy_reservation_cancel(s);
    for (size_t i = 0; (item = hy_map_next(&s->task_by_id, &i));)
        task_free(item);
    hy_list_each(it, &s->classes)
        hy_task_class_free(hy_container(it, struct hy_task_class, link));
    hy_list_each(it, &s->gone)
        hy_sched_agent_free(hy_container(it, struct hy_sched_agent, link));
    for (size_t i = 0; (item = hy_map_next(&s->agent_by_id, &i));)
        hy_sched_agent_free(item);
    hy_map_done(&s->task_by_id);
    hy_map_done(&s->agent_by_id);
    hy_bitmap_done(&s->vacant);
    free(s->agents);
    free(s->assignments);
    free(s);
}

/* ---- agents ------------------------------------------------------------ */

static int grow_agents(struct hy_schedule *s)
{
    uint32_t from = s->agent_cap, to = from ? from * 2 : FIRST_AGENT_CAP;
    struct hy_sched_agent **agents;

    if (to > HY_BITMAP_MAX || hy_fit_indexes_grow(s, to) < 0 || hy_bitmap_grow(&s->vacant, to) < 0)
        return -ENOMEM;
    agents = hy_reallocarray(s->agents, to, sizeof *agents);
    if (!agents)
        return -ENOMEM;
    s->agents = agents;
    s->agent_cap = to;
    for (uint32_t at = from; at < to; at++) {
        s->agents[at] = NULL;
        hy_bitmap_set(&s->vacant, at);
    }
    return 0;
}

int hy_schedule_agent_add(struct hy_schedule *s, uint64_t agent_id, const struct hy_capacity *has)
{
    struct hy_sched_agent *agent;

    if (has->slots == 0 || has->gpus > HY_AGENT_GPUS_MAX)
        return -EINVAL;
    if (hy_map_get(&s->agent_by_id, agent_id))
        return -EEXIST;
    if (hy_bitmap_next(&s->vacant, 0) == HY_BITMAP_NONE && grow_agents(s) < 0)
        return -ENOMEM;
    agent = hy_sched_agent_new(agent_id, has);
    if (!agent || hy_map_put(&s->agent_by_id, agent_id, agent) < 0) {
        hy_sched_agent_free(agent);
        return -ENOMEM;
    }
    agent->index = hy_bitmap_next(&s->vacant, 0);
    hy_bitmap_clear(&s->vacant, agent->index);
    s->agents[agent->index] = agent;
    s->stats.agents++;
    s->stats.slots += has->slots;
    s->agents_version++;
    hy_fit_indexes_update_agent(s, agent);
    hy_reservation_offer(s, agent);
    return 0;
}

static void set_open(struct hy_schedule *s, struct hy_sched_agent *agent, bool open)
{
    if (!open && hy_reservation_uses(s, agent))
        hy_reservation_cancel(s);
    agent->open = open;
    s->agents_version++;
    hy_fit_indexes_update_agent(s, agent);
    hy_reservation_offer(s, agent);
}

int hy_schedule_agent_open(struct hy_schedule *s, uint64_t agent_id, int open)
{
    struct hy_sched_agent *agent = hy_map_get(&s->agent_by_id, agent_id);

    if (!agent)
        return -ENOENT;
    if (agent->open != !!open)
        set_open(s, agent, open);
    return 0;
}

int hy_schedule_agent_resize(struct hy_schedule *s, uint64_t agent_id, uint32_t slots)
{
    struct hy_sched_agent *agent = hy_map_get(&s->agent_by_id, agent_id);

    if (!agent)
        return -ENOENT;
    if (slots == 0)
        return -EINVAL;
    if (hy_reservation_uses(s, agent))
        hy_reservation_cancel(s);
    s->stats.slots = s->stats.slots - agent->has.slots + slots;
    agent->has.slots = slots;
    set_open(s, agent, agent->open);
    return 0;
}

int hy_schedule_agent_remove(struct hy_schedule *s, uint64_t agent_id)
{
    struct hy_sched_agent *agent = hy_map_get(&s->agent_by_id, agent_id);

    if (!agent)
        return -ENOENT;
    set_open(s, agent, false);
    hy_map_remove(&s->agent_by_id, agent_id);
    s->agents[agent->index] = NULL;
    hy_bitmap_set(&s->vacant, agent->index);
    s->stats.agents--;
    s->stats.slots -= agent->has.slots;
    s->stats.slots_used -= agent->load[HY_ALLOC_USED].slots;
    agent->gone = true;
    hy_list_push(&s->gone, &agent->link);
    if (!agent->load[HY_ALLOC_USED].slots)
        hy_sched_agent_free(agent);
    return 0;
}

/* ---- tasks ------------------------------------------------------------- */

int hy_schedule_submit(struct hy_schedule *s, uint64_t task, const struct hy_need *need)
{
    struct hy_task_class *class;
    struct hy_task *t;

    if (hy_need_check(need) < 0)
        return -EINVAL;
    if (hy_map_get(&s->task_by_id, task))
        return -EEXIST;
    class = hy_task_class_find_or_make(s, need);
    t = hy_malloc(sizeof *t);
    if (!class || !t || hy_map_put(&s->task_by_id, task, t) < 0) {
        free(t);
        return -ENOMEM;
    }
    t->id = task;
    t->seq = ++s->last_seq;
    hy_task_class_enqueue(s, class, t);
    s->stats.waiting++;
    return 0;
}

static void release(struct hy_schedule *s, struct hy_sched_agent *agent, const struct hy_role_need *need, uint64_t mask)
{
    hy_sched_agent_release(agent, HY_ALLOC_USED, need, mask);
    if (!agent->gone)
        s->stats.slots_used -= hy_sched_agent_slots_for(agent, need);
    else if (!agent->load[HY_ALLOC_USED].slots)
        hy_sched_agent_free(agent);
}

/* Members on one agent are adjacent, so each agent's indexes are updated once. */
static void release_all(struct hy_schedule *s, struct hy_task *t)
{
    const struct hy_task_class *c = t->class;
    const struct hy_allocation *allocations = c->members == 1 ? &t->one : t->allocations;

    for (uint32_t i = 0; i < c->members; i++) {
        struct hy_sched_agent *agent = allocations[i].agent;
        bool last = i + 1 == c->members || allocations[i + 1].agent != agent, gone = agent->gone;

        release(s, agent, &c->need.roles[hy_task_class_role_of(c, i)], allocations[i].gpu_mask);
        if (last && !gone) {
            hy_fit_indexes_update_load(s, agent);
            hy_reservation_offer(s, agent);
        }
    }
    s->running_members -= c->members;
    s->stats.running--;
}

int hy_schedule_done(struct hy_schedule *s, uint64_t task)
{
    struct hy_task *t = hy_map_remove(&s->task_by_id, task);

    if (!t)
        return -ENOENT;
    if (t->seq) {
        if (s->reserved.owner == t)
            hy_reservation_cancel(s);
        hy_task_class_dequeue(t);
        s->stats.waiting--;
    } else {
        release_all(s, t);
    }
    hy_task_class_remove(s, t);
    task_free(t);
    return 0;
}

/* ---- the next placement ------------------------------------------------ */

struct candidates {
    struct hy_task *oldest; /* that the open agents can hold when idle */
    struct hy_task *ready;  /* the oldest that fits beside the reservation, or whose reservation is complete */
};

static bool is_older(const struct hy_task *a, const struct hy_task *b)
{
    return !b || a->seq < b->seq;
}

static struct candidates find_candidates(struct hy_schedule *s)
{
    struct candidates found = {0};

    hy_list_each(it, &s->waiting) {
        struct hy_task_class *c = hy_container(it, struct hy_task_class, state);
        struct hy_task *head = hy_task_class_head(c);

        bool owns = head == s->reserved.owner;

        if (is_older(head, found.oldest) && (owns || hy_task_class_possible(s, c)))
            found.oldest = head;
        if (is_older(head, found.ready) && (owns ? hy_reservation_complete(s) : hy_task_class_may_fit(s, c)))
            found.ready = head;
    }
    return found;
}

static int grow_assignments(struct hy_schedule *s, uint32_t count)
{
    struct hy_assignment *assignments;

    if (count <= s->assignment_cap)
        return 0;
    assignments = hy_reallocarray(s->assignments, count, sizeof *assignments);
    if (!assignments)
        return -ENOMEM;
    s->assignments = assignments;
    s->assignment_cap = count;
    return 0;
}

static void fill_placement(struct hy_schedule *s, const struct hy_task *t, const struct hy_allocation *allocations,
                           struct hy_placement *ret_placement)
{
    const struct hy_task_class *c = t->class;

    for (uint32_t i = 0; i < c->members; i++) {
        uint32_t role = hy_task_class_role_of(c, i);

        s->assignments[i] = (struct hy_assignment){.agent = allocations[i].agent->id,
                                                   .gpu_mask = allocations[i].gpu_mask,
                                                   .gpu_share = hy_need_share_per_device(&c->need.roles[role]),
                                                   .role = role,
                                                   .member = i - c->first[role]};
    }
    *ret_placement = (struct hy_placement){.task = t->id, .count = c->members, .assignments = s->assignments};
}

/* Owns `allocations` of a gang, copies that of a single member; they are HY_ALLOC_USED already. */
static void start(struct hy_schedule *s, struct hy_task *t, struct hy_allocation *allocations,
                  struct hy_placement *ret_placement)
{
    uint32_t members = t->class->members;

    fill_placement(s, t, allocations, ret_placement);
    hy_task_class_dequeue(t);
    t->seq = 0;
    if (members == 1)
        t->one = allocations[0];
    else
        t->allocations = allocations;
    s->stats.waiting--;
    s->stats.running++;
    for (uint32_t i = 0; i < members; i++)
        s->stats.slots_used += hy_sched_agent_slots_for(allocations[i].agent,
                                                        &t->class->need.roles[hy_task_class_role_of(t->class, i)]);
    s->running_members += members;
}

static int start_owner(struct hy_schedule *s, struct hy_placement *ret_placement)
{
    struct hy_task *owner = s->reserved.owner;
    struct hy_allocation *allocations;

    if (grow_assignments(s, owner->class->members) < 0)
        return -ENOMEM;
    allocations = hy_reservation_take(s);
    start(s, owner, allocations, ret_placement);
    if (owner->class->members == 1)
        free(allocations);
    return 1;
}

/* 1, 0 when its roles do not fit together, or -ENOMEM. */
static int try_start(struct hy_schedule *s, struct hy_task *t, struct hy_placement *ret_placement)
{
    struct hy_task_class *c = t->class;
    hy_cleanup_free struct hy_allocation *many = NULL;
    struct hy_allocation one, *allocations = &one;

    if (c->members > 1)
        allocations = many = hy_reallocarray(NULL, c->members, sizeof *many);
    if (!allocations || grow_assignments(s, c->members) < 0)
        return -ENOMEM;
    if (!hy_plan_now(s, c, allocations)) {
        c->unfit_version = s->fit_version;
        return 0;
    }
    for (uint32_t i = 0; i < c->members; i++) {
        hy_sched_agent_allocate(allocations[i].agent, HY_ALLOC_USED, &c->need.roles[hy_task_class_role_of(c, i)],
                                allocations[i].gpu_mask);
        if (i + 1 == c->members || allocations[i + 1].agent != allocations[i].agent)
            hy_fit_indexes_update_load(s, allocations[i].agent);
    }
    start(s, t, allocations, ret_placement);
    many = NULL;
    return 1;
}

/* Whether a younger task has or is about to get what the oldest waits for. The
 * owner may be younger, since a new agent can make an older task possible. */
static bool oldest_needs_reservation(const struct hy_schedule *s, const struct candidates *found)
{
    const struct hy_task *by = found->ready ? found->ready : s->reserved.owner;

    return found->oldest && found->oldest != s->reserved.owner && by && found->oldest->seq < by->seq;
}

int hy_schedule_next(struct hy_schedule *s, struct hy_placement *ret_placement)
{
    int rc = 0;

    while (rc == 0) {
        struct candidates found = find_candidates(s);

        if (oldest_needs_reservation(s, &found))
            rc = hy_reservation_make(s, found.oldest);
        else if (!found.ready)
            return 0;
        else if (found.ready == s->reserved.owner)
            rc = start_owner(s, ret_placement);
        else
            rc = try_start(s, found.ready, ret_placement);
    }
    return rc;
}

int hy_schedule_fits(struct hy_schedule *s, const struct hy_need *need)
{
    struct hy_task_class *class;

    if (hy_need_check(need) < 0)
        return 0;
    class = hy_task_class_find_or_make(s, need);
    return class ? hy_task_class_may_fit(s, class) : -ENOMEM;
}

int hy_schedule_possible(struct hy_schedule *s, const struct hy_need *need)
{
    if (hy_need_check(need) < 0)
        return 0;
    if (s->policy.parallel && hy_need_members(need) > s->policy.parallel)
        return 0;
    return hy_plan_idle(s, need, true, NULL);
}

void hy_schedule_stats(const struct hy_schedule *s, struct hy_schedule_stats *ret)
{
    *ret = s->stats;
}
