/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front door: what is known by number, and who is next.
 *
 * Next is the oldest task that fits. But before anything younger passes the
 * oldest task that could run and does not fit, that one gets the reservation.
 */
#include "schedule/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

#define SITES_AT_FIRST 64u

struct hy_schedule *hy_schedule_new(const struct hy_policy *policy)
{
    struct hy_schedule *s = hy_calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->policy = *policy;
    s->topology = s->grown = 1; /* 0 in a class: never looked at */
    hy_list_init(&s->gone);
    hy_list_init(&s->shapes);
    hy_list_init(&s->classes);
    hy_list_init(&s->waiting);
    hy_list_init(&s->parked);
    return s;
}

void hy_schedule_parallel(struct hy_schedule *s, uint32_t parallel)
{
    s->policy.parallel = parallel;
    s->topology++;
    s->grown++;
}

static void task_free(struct hy_task *t)
{
    if (!t->seq && t->class->members > 1)
        free(t->spots);
    free(t);
}

void hy_schedule_free(struct hy_schedule *s)
{
    void *item;

    if (!s)
        return;
    hy_reserve_drop(s);
    for (size_t i = 0; (item = hy_map_next(&s->task_by_id, &i));)
        task_free(item);
    hy_list_each(it, &s->classes)
        hy_class_free(hy_container(it, struct hy_class, link));
    hy_list_each(it, &s->gone)
        hy_site_free(hy_container(it, struct hy_site, link));
    for (size_t i = 0; (item = hy_map_next(&s->site_by_id, &i));)
        hy_site_free(item);
    hy_map_done(&s->task_by_id);
    hy_map_done(&s->site_by_id);
    hy_bits_done(&s->vacant);
    free(s->sites);
    free(s->seats);
    free(s);
}

/* ---- agents ------------------------------------------------------------ */

static int grow_sites(struct hy_schedule *s)
{
    uint32_t from = s->site_cap, to = from ? from * 2 : SITES_AT_FIRST;
    struct hy_site **sites;

    if (to > HY_BITS_MAX || hy_shapes_grow(s, to) < 0 || hy_bits_grow(&s->vacant, to) < 0)
        return -ENOMEM;
    sites = hy_reallocarray(s->sites, to, sizeof *sites);
    if (!sites)
        return -ENOMEM;
    s->sites = sites;
    s->site_cap = to;
    for (uint32_t at = from; at < to; at++) {
        s->sites[at] = NULL;
        hy_bits_set(&s->vacant, at);
    }
    return 0;
}

int hy_schedule_agent_add(struct hy_schedule *s, uint64_t agent, const struct hy_capacity *has)
{
    struct hy_site *site;

    if (has->slots == 0 || has->gpus > HY_AGENT_GPUS_MAX)
        return -EINVAL;
    if (hy_map_get(&s->site_by_id, agent))
        return -EEXIST;
    if (hy_bits_next(&s->vacant, 0) == HY_BITS_NONE && grow_sites(s) < 0)
        return -ENOMEM;
    site = hy_site_new(agent, has);
    if (!site || hy_map_put(&s->site_by_id, agent, site) < 0) {
        hy_site_free(site);
        return -ENOMEM;
    }
    site->at = hy_bits_next(&s->vacant, 0);
    hy_bits_clear(&s->vacant, site->at);
    s->sites[site->at] = site;
    s->stats.agents++;
    s->stats.slots += has->slots;
    s->topology++;
    hy_shapes_turn(s, site);
    hy_reserve_offer(s, site);
    return 0;
}

static void set_open(struct hy_schedule *s, struct hy_site *site, bool open)
{
    if (!open && hy_reserve_uses(s, site))
        hy_reserve_drop(s);
    site->open = open;
    s->topology++;
    hy_shapes_turn(s, site);
    hy_reserve_offer(s, site);
}

int hy_schedule_agent_open(struct hy_schedule *s, uint64_t agent, int open)
{
    struct hy_site *site = hy_map_get(&s->site_by_id, agent);

    if (!site)
        return -ENOENT;
    if (site->open != !!open)
        set_open(s, site, open);
    return 0;
}

int hy_schedule_agent_resize(struct hy_schedule *s, uint64_t agent, uint32_t slots)
{
    struct hy_site *site = hy_map_get(&s->site_by_id, agent);

    if (!site)
        return -ENOENT;
    if (slots == 0)
        return -EINVAL;
    if (hy_reserve_uses(s, site))
        hy_reserve_drop(s);
    s->stats.slots = s->stats.slots - site->has.slots + slots;
    site->has.slots = slots;
    set_open(s, site, site->open);
    return 0;
}

int hy_schedule_agent_remove(struct hy_schedule *s, uint64_t agent)
{
    struct hy_site *site = hy_map_get(&s->site_by_id, agent);

    if (!site)
        return -ENOENT;
    set_open(s, site, false);
    hy_map_remove(&s->site_by_id, agent);
    s->sites[site->at] = NULL;
    hy_bits_set(&s->vacant, site->at);
    s->stats.agents--;
    s->stats.slots -= site->has.slots;
    s->stats.slots_used -= site->load[HY_USED].slots;
    site->gone = true;
    hy_list_push(&s->gone, &site->link);
    if (!site->load[HY_USED].slots)
        hy_site_free(site);
    return 0;
}

/* ---- tasks ------------------------------------------------------------- */

int hy_schedule_submit(struct hy_schedule *s, uint64_t task, const struct hy_need *need)
{
    struct hy_class *class;
    struct hy_task *t;

    if (hy_need_check(need) < 0)
        return -EINVAL;
    if (hy_map_get(&s->task_by_id, task))
        return -EEXIST;
    class = hy_class_get(s, need);
    t = hy_malloc(sizeof *t);
    if (!class || !t || hy_map_put(&s->task_by_id, task, t) < 0) {
        free(t);
        return -ENOMEM;
    }
    t->id = task;
    t->seq = ++s->last_seq;
    hy_class_enter(s, class, t);
    s->stats.waiting++;
    return 0;
}

static void give_back(struct hy_schedule *s, struct hy_site *site, const struct hy_role_need *need,
                      uint64_t mask)
{
    hy_site_unbook(site, HY_USED, need, mask);
    if (!site->gone)
        s->stats.slots_used -= hy_site_slots(site, need);
    else if (!site->load[HY_USED].slots)
        hy_site_free(site);
}

/* Members at one site are neighbours: its indexes are brought up to date once. */
static void end_running(struct hy_schedule *s, struct hy_task *t)
{
    const struct hy_class *c = t->class;
    const struct hy_spot *spots = c->members == 1 ? &t->one : t->spots;

    for (uint32_t i = 0; i < c->members; i++) {
        struct hy_site *site = spots[i].site;
        bool last = i + 1 == c->members || spots[i + 1].site != site, gone = site->gone;

        give_back(s, site, &c->need.roles[hy_class_role_of(c, i)], spots[i].gpu_mask);
        if (last && !gone) {
            hy_shapes_touch(s, site);
            hy_reserve_offer(s, site);
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
            hy_reserve_drop(s);
        hy_class_unqueue(t);
        s->stats.waiting--;
    } else {
        end_running(s, t);
    }
    hy_class_leave(s, t);
    task_free(t);
    return 0;
}

/* ---- who is next ------------------------------------------------------- */

struct survey {
    struct hy_task *oldest; /* that the open sites could hold at all */
    struct hy_task *ready;  /* the oldest that fits: besides what is held, or all of it secured */
};

static bool is_older(const struct hy_task *a, const struct hy_task *b)
{
    return !b || a->seq < b->seq;
}

static struct survey look_around(struct hy_schedule *s)
{
    struct survey found = {0};

    hy_list_each(it, &s->waiting) {
        struct hy_class *c = hy_container(it, struct hy_class, state);
        struct hy_task *head = hy_class_head(c);

        bool owns = head == s->reserved.owner;

        if (is_older(head, found.oldest) && (owns || hy_class_possible(s, c)))
            found.oldest = head;
        if (is_older(head, found.ready) && (owns ? hy_reserve_complete(s) : hy_class_may_fit(s, c)))
            found.ready = head;
    }
    return found;
}

static int grow_seats(struct hy_schedule *s, uint32_t count)
{
    struct hy_seat *seats;

    if (count <= s->seat_cap)
        return 0;
    seats = hy_reallocarray(s->seats, count, sizeof *seats);
    if (!seats)
        return -ENOMEM;
    s->seats = seats;
    s->seat_cap = count;
    return 0;
}

static void describe(struct hy_schedule *s, const struct hy_task *t, const struct hy_spot *spots,
                     struct hy_place *ret_place)
{
    const struct hy_class *c = t->class;

    for (uint32_t i = 0; i < c->members; i++) {
        uint32_t role = hy_class_role_of(c, i);

        s->seats[i] = (struct hy_seat){.agent = spots[i].site->id,
                                       .gpu_mask = spots[i].gpu_mask,
                                       .gpu_share = hy_need_of_each(&c->need.roles[role]),
                                       .role = role,
                                       .member = i - c->first[role]};
    }
    *ret_place = (struct hy_place){.task = t->id, .seat_count = c->members, .seats = s->seats};
}

/* Takes `spots` of a gang, copies that of a single member; they are booked. */
static void start(struct hy_schedule *s, struct hy_task *t, struct hy_spot *spots, struct hy_place *ret_place)
{
    uint32_t members = t->class->members;

    describe(s, t, spots, ret_place);
    hy_class_unqueue(t);
    t->seq = 0;
    if (members == 1)
        t->one = spots[0];
    else
        t->spots = spots;
    s->stats.waiting--;
    s->stats.running++;
    for (uint32_t i = 0; i < members; i++)
        s->stats.slots_used += hy_site_slots(spots[i].site, &t->class->need.roles[hy_class_role_of(t->class, i)]);
    s->running_members += members;
}

static int start_owner(struct hy_schedule *s, struct hy_place *ret_place)
{
    struct hy_task *owner = s->reserved.owner;
    struct hy_spot *spots;

    if (grow_seats(s, owner->class->members) < 0)
        return -ENOMEM;
    spots = hy_reserve_take(s);
    start(s, owner, spots, ret_place);
    if (owner->class->members == 1)
        free(spots);
    return 1;
}

/* 1, 0 when its roles do not fit together after all, or -ENOMEM. */
static int try_start(struct hy_schedule *s, struct hy_task *t, struct hy_place *ret_place)
{
    struct hy_class *c = t->class;
    hy_cleanup_free struct hy_spot *many = NULL;
    struct hy_spot one, *spots = &one;

    if (c->members > 1)
        spots = many = hy_reallocarray(NULL, c->members, sizeof *many);
    if (!spots || grow_seats(s, c->members) < 0)
        return -ENOMEM;
    if (!hy_plan_now(s, c, spots)) {
        c->misfit_at = s->grown;
        return 0;
    }
    for (uint32_t i = 0; i < c->members; i++) {
        hy_site_book(spots[i].site, HY_USED, &c->need.roles[hy_class_role_of(c, i)], spots[i].gpu_mask);
        if (i + 1 == c->members || spots[i + 1].site != spots[i].site)
            hy_shapes_touch(s, spots[i].site);
    }
    start(s, t, spots, ret_place);
    many = NULL;
    return 1;
}

/* Whether a younger task has or is about to get what the oldest waits for. The
 * owner may be younger: agents that came can make an older task possible. */
static bool is_passed(const struct hy_schedule *s, const struct survey *found)
{
    const struct hy_task *by = found->ready ? found->ready : s->reserved.owner;

    return found->oldest && found->oldest != s->reserved.owner && by && found->oldest->seq < by->seq;
}

int hy_schedule_next(struct hy_schedule *s, struct hy_place *ret_place)
{
    int rc = 0;

    while (rc == 0) {
        struct survey found = look_around(s);

        if (is_passed(s, &found))
            rc = hy_reserve(s, found.oldest);
        else if (!found.ready)
            return 0;
        else if (found.ready == s->reserved.owner)
            rc = start_owner(s, ret_place);
        else
            rc = try_start(s, found.ready, ret_place);
    }
    return rc;
}

int hy_schedule_fits(struct hy_schedule *s, const struct hy_need *need)
{
    struct hy_class *class;

    if (hy_need_check(need) < 0)
        return 0;
    class = hy_class_get(s, need);
    return class ? hy_class_may_fit(s, class) : -ENOMEM;
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
