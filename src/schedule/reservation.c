/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reservation: how a big task gets its turn among small ones.
 *
 * It belongs to the oldest task that does not fit. Each member has a spot.
 * Where there is room the spot is secured at once (booked as used); elsewhere
 * it is awaited (booked as held), and whatever comes free there stays for it,
 * since others only get what is neither used nor held. What comes free
 * elsewhere is offered to the owner first, so that it starts as soon as it
 * fits anywhere.
 *
 * Why it never waits forever: the spots of a reservation fit together on idle
 * sites, and every step keeps that true. Nobody else can book what is held, so
 * once the tasks that ran before have ended, each awaited spot can be secured;
 * and a secured spot is given up only when its site goes or closes, or when a
 * site that came makes an older task possible.
 */
#include "schedule/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

static const struct hy_role_need *need_of(const struct hy_reservation *r, uint32_t i)
{
    const struct hy_class *c = r->owner->class;

    return &c->need.roles[hy_class_role_of(c, i)];
}

static bool awaits_at(const struct hy_reservation *r, uint32_t i, const struct hy_site *site)
{
    return r->awaited[i] && r->spots[i].site == site;
}

/* A free device for member `i` from another member that waits at the same site
 * for whole devices, in exchange for one that is still in use. */
static bool exchange(struct hy_reservation *r, uint32_t i, uint32_t busy)
{
    struct hy_spot *mine = &r->spots[i];

    for (uint32_t j = 0; j < r->owner->class->members; j++) {
        if (j == i || !awaits_at(r, j, mine->site) || need_of(r, j)->gpu_share < HY_GPU_WHOLE)
            continue;
        for (uint64_t rest = r->spots[j].gpu_mask; rest; rest &= rest - 1) {
            uint32_t d = (uint32_t)__builtin_ctzll(rest);
            uint64_t both = UINT64_C(1) << d | UINT64_C(1) << busy;

            if (hy_site_device_left(mine->site, d, HY_VIEW_UNUSED) == HY_GPU_WHOLE) {
                r->spots[j].gpu_mask ^= both;
                mine->gpu_mask ^= both;
                return true;
            }
        }
    }
    return false;
}

/* Awaits free devices in place of busy ones, as far as there are any. */
static void improve(struct hy_reservation *r, uint32_t i)
{
    struct hy_spot *spot = &r->spots[i];
    uint32_t each = hy_need_of_each(need_of(r, i));

    for (uint64_t rest = spot->gpu_mask; rest; rest &= rest - 1) {
        uint32_t d = (uint32_t)__builtin_ctzll(rest), better;

        if (hy_site_device_left(spot->site, d, HY_VIEW_UNUSED) >= each)
            continue;
        better = hy_site_pick_device(spot->site, each, HY_VIEW_FREE, HY_PREFER_FULL, spot->gpu_mask);
        if (better != HY_NO_DEVICE) {
            hy_site_rebook(spot->site, HY_HELD, each, d, better);
            spot->gpu_mask ^= UINT64_C(1) << d | UINT64_C(1) << better;
        } else if (each < HY_GPU_WHOLE || !exchange(r, i, d)) {
            break;
        }
    }
}

static void await(struct hy_reservation *r, uint32_t i)
{
    hy_site_book(r->spots[i].site, HY_HELD, need_of(r, i), r->spots[i].gpu_mask);
    r->awaited[i] = true;
    r->missing[hy_class_role_of(r->owner->class, i)]++;
    r->missing_total++;
}

static void secure(struct hy_reservation *r, uint32_t i, struct hy_spot where)
{
    hy_site_unbook(r->spots[i].site, HY_HELD, need_of(r, i), r->spots[i].gpu_mask);
    hy_site_book(where.site, HY_USED, need_of(r, i), where.gpu_mask);
    r->spots[i] = where;
    r->awaited[i] = false;
    r->missing[hy_class_role_of(r->owner->class, i)]--;
    r->missing_total--;
}

static void secure_in_place(struct hy_reservation *r, uint32_t i)
{
    struct hy_spot *spot = &r->spots[i];

    if (!hy_site_fits_on(spot->site, need_of(r, i), HY_VIEW_UNUSED, 0))
        return;
    improve(r, i);
    if (hy_site_fits_on(spot->site, need_of(r, i), HY_VIEW_UNUSED, spot->gpu_mask))
        secure(r, i, *spot);
}

/* Neighbours mostly share a site; once for all of them is enough. */
static void touch_all(struct hy_schedule *s, const struct hy_spot *spots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (i + 1 == count || spots[i + 1].site != spots[i].site)
            hy_shapes_touch(s, spots[i].site);
}

int hy_reserve(struct hy_schedule *s, struct hy_task *t)
{
    struct hy_reservation *r = &s->reserved;
    const struct hy_class *c = t->class;
    hy_cleanup_free struct hy_spot *spots = hy_reallocarray(NULL, c->members, sizeof *spots);
    hy_cleanup_free bool *awaited = hy_calloc(c->members, sizeof *awaited);
    bool planned;

    if (!spots || !awaited)
        return -ENOMEM;
    hy_reserve_drop(s);
    planned = hy_plan_soon(s, c, spots) || hy_plan_idle(s, &c->need, false, spots);
    assert(planned);
    *r = (struct hy_reservation){.owner = t, .spots = hy_take(spots), .awaited = hy_take(awaited)};
    for (uint32_t i = 0; i < c->members; i++)
        await(r, i);
    for (uint32_t i = 0; i < c->members; i++)
        secure_in_place(r, i);
    touch_all(s, r->spots, c->members);
    return 0;
}

void hy_reserve_drop(struct hy_schedule *s)
{
    struct hy_reservation *r = &s->reserved;

    if (!r->owner)
        return;
    for (uint32_t i = 0; i < r->owner->class->members; i++)
        hy_site_unbook(r->spots[i].site, r->awaited[i] ? HY_HELD : HY_USED, need_of(r, i),
                       r->spots[i].gpu_mask);
    touch_all(s, r->spots, r->owner->class->members);
    free(r->spots);
    free(r->awaited);
    *r = (struct hy_reservation){0};
}

/* Brings an awaited member of role `role` to `where`, which is free. */
static void move_one(struct hy_schedule *s, uint32_t role, struct hy_spot where)
{
    struct hy_reservation *r = &s->reserved;
    uint32_t i = r->owner->class->first[role];
    struct hy_site *from;

    while (!r->awaited[i])
        i++;
    from = r->spots[i].site;
    secure(r, i, where);
    if (from != where.site)
        hy_shapes_touch(s, from);
}

void hy_reserve_offer(struct hy_schedule *s, struct hy_site *site)
{
    struct hy_reservation *r = &s->reserved;
    const struct hy_class *c = r->owner ? r->owner->class : NULL;

    if (!c || !r->missing_total || !site->open)
        return;
    if (site->load[HY_HELD].slots)
        for (uint32_t i = 0; i < c->members; i++)
            if (awaits_at(r, i, site))
                secure_in_place(r, i);
    for (uint32_t k = 0; k < c->need.role_count; k++) {
        uint32_t role = c->order[k];
        struct hy_spot where = {.site = site};

        while (r->missing[role] &&
               hy_site_pick(site, &c->need.roles[role], HY_VIEW_FREE, HY_PREFER_FULL, &where.gpu_mask))
            move_one(s, role, where);
    }
    hy_shapes_touch(s, site);
}

bool hy_reserve_uses(const struct hy_schedule *s, const struct hy_site *site)
{
    const struct hy_reservation *r = &s->reserved;

    for (uint32_t i = 0; r->owner && i < r->owner->class->members; i++)
        if (r->spots[i].site == site)
            return true;
    return false;
}

bool hy_reserve_complete(const struct hy_schedule *s)
{
    const struct hy_reservation *r = &s->reserved;

    if (!r->owner || r->missing_total)
        return false;
    return !s->policy.parallel || s->running_members + r->owner->class->members <= s->policy.parallel;
}

struct hy_spot *hy_reserve_take(struct hy_schedule *s)
{
    struct hy_spot *spots = hy_take(s->reserved.spots);

    free(s->reserved.awaited);
    s->reserved = (struct hy_reservation){0};
    return spots;
}
