/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks with equal needs, in order of submission.
 *
 * If the oldest of them does not fit, none does: that is why a queue of any
 * length costs no more than its classes. A class outlives its last task for a
 * while, because making its fit_indexes anew looks at every agent.
 */
#include "schedule/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

#define UNUSED_CLASSES_MAX 32u

static bool role_is_valid(const struct hy_role_need *role)
{
    if (role->gpu_share >= HY_GPU_WHOLE && role->gpu_share % HY_GPU_WHOLE != 0)
        return false;
    return role->count > 0 && role->gpu_share <= HY_AGENT_GPUS_MAX * HY_GPU_WHOLE;
}

int hy_need_check(const struct hy_need *need)
{
    uint64_t members = 0;

    if (need->role_count < 1 || need->role_count > HY_ROLES_MAX)
        return -EINVAL;
    for (uint32_t r = 0; r < need->role_count; r++) {
        if (!role_is_valid(&need->roles[r]))
            return -EINVAL;
        members += need->roles[r].count;
    }
    return members <= HY_MEMBERS_MAX ? 0 : -EINVAL;
}

uint32_t hy_need_members(const struct hy_need *need)
{
    uint32_t members = 0;

    for (uint32_t r = 0; r < need->role_count; r++)
        members += need->roles[r].count;
    return members;
}

static bool needs_equal(const struct hy_need *a, const struct hy_need *b)
{
    if (a->role_count != b->role_count)
        return false;
    for (uint32_t r = 0; r < a->role_count; r++)
        if (a->roles[r].count != b->roles[r].count || !hy_role_needs_equal(&a->roles[r], &b->roles[r]))
            return false;
    return true;
}

void hy_task_class_free(struct hy_task_class *c)
{
    hy_list_remove(&c->link);
    hy_list_remove(&c->state);
    for (uint32_t r = 0; r < HY_ROLES_MAX; r++)
        hy_fit_index_unref(c->fit[r]);
    free(c);
}

/* Frees the class that has been unused longest once there are too many. */
static void keep_unused(struct hy_schedule *s, struct hy_task_class *c)
{
    hy_list_push(&s->unused, &c->state);
    if (++s->unused_count > UNUSED_CLASSES_MAX) {
        hy_task_class_free(hy_container(s->unused.next, struct hy_task_class, state));
        s->unused_count--;
    }
}

static struct hy_task_class *class_new(struct hy_schedule *s, const struct hy_need *need)
{
    struct hy_task_class *c = hy_calloc(1, sizeof *c);

    if (!c)
        return NULL;
    hy_list_init(&c->link);
    hy_list_init(&c->state);
    hy_list_init(&c->queue);
    c->need.role_count = need->role_count;
    for (uint32_t r = 0; r < need->role_count; r++) {
        c->need.roles[r] = need->roles[r];
        c->first[r] = c->members;
        c->members += need->roles[r].count;
        c->fit[r] = hy_fit_index_ref(s, &need->roles[r]);
        if (!c->fit[r]) {
            hy_task_class_free(c);
            return NULL;
        }
    }
    hy_plan_order(&c->need, c->order);
    hy_list_push(&s->classes, &c->link);
    keep_unused(s, c);
    return c;
}

struct hy_task_class *hy_task_class_find_or_make(struct hy_schedule *s, const struct hy_need *need)
{
    hy_list_each(it, &s->classes) {
        struct hy_task_class *c = hy_container(it, struct hy_task_class, link);

        if (needs_equal(&c->need, need))
            return c;
    }
    return class_new(s, need);
}

void hy_task_class_enqueue(struct hy_schedule *s, struct hy_task_class *c, struct hy_task *t)
{
    if (c->tasks++ == 0)
        s->unused_count--;
    if (hy_list_empty(&c->queue)) {
        hy_list_remove(&c->state);
        hy_list_push(&s->waiting, &c->state);
    }
    t->class = c;
    hy_list_push(&c->queue, &t->queued);
}

void hy_task_class_dequeue(struct hy_task *t)
{
    hy_list_remove(&t->queued);
    if (hy_list_empty(&t->class->queue))
        hy_list_remove(&t->class->state);
}

void hy_task_class_remove(struct hy_schedule *s, struct hy_task *t)
{
    if (--t->class->tasks == 0)
        keep_unused(s, t->class);
}

struct hy_task *hy_task_class_head(const struct hy_task_class *c)
{
    assert(!hy_list_empty(&c->queue));
    return hy_container(c->queue.next, struct hy_task, queued);
}

uint32_t hy_task_class_role_of(const struct hy_task_class *c, uint32_t member)
{
    uint32_t r = c->need.role_count - 1;

    while (member < c->first[r])
        r--;
    return r;
}

static bool could_ever_fit(struct hy_schedule *s, const struct hy_task_class *c)
{
    if (s->policy.parallel && c->members > s->policy.parallel)
        return false;
    for (uint32_t r = 0; r < c->need.role_count; r++)
        if (c->fit[r]->room_idle < c->need.roles[r].count)
            return false;
    return c->need.role_count == 1 || hy_plan_idle(s, &c->need, false, NULL);
}

bool hy_task_class_possible(struct hy_schedule *s, struct hy_task_class *c)
{
    if (c->possible_version != s->agents_version) {
        c->possible = could_ever_fit(s, c);
        c->possible_version = s->agents_version;
    }
    return c->possible;
}

/* The reservation's members count as running. */
static bool within_parallel(const struct hy_schedule *s, uint32_t members)
{
    uint64_t sum = s->running_members + members;

    if (s->reserved.owner)
        sum += s->reserved.owner->class->members;
    return !s->policy.parallel || sum <= s->policy.parallel;
}

bool hy_task_class_may_fit(const struct hy_schedule *s, const struct hy_task_class *c)
{
    if (c->unfit_version == s->fit_version || !within_parallel(s, c->members))
        return false;
    for (uint32_t r = 0; r < c->need.role_count; r++)
        if (c->fit[r]->room < c->need.roles[r].count)
            return false;
    return true;
}
