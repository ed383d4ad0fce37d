/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Laying out a task: every member gets a spot, or none does.
 *
 * First fit, role by role, the most demanding role first. For one role that is
 * exact: members of one shape fill a site the same way in any order. For more
 * the exact answer is bin packing; first fit in every order of the roles (there
 * are 24 at most) finds a way but for odd cases. It is the same search that
 * says whether a task is possible at all, so a task that is called possible is
 * placed once the sites are idle, at the latest.
 *
 * First fit also keeps small tasks together, so that others find whole sites.
 */
#include "schedule/internal.h"

#include <string.h>

/* A member that has to wait is put where least is missing among this many
 * sites at a time; looking at all of ten thousand would be dear. */
#define LOOK 64u

static void lay(struct hy_site *site, const struct hy_role_need *need, uint64_t mask, struct hy_spot *spot)
{
    hy_site_book(site, HY_PLAN, need, mask);
    if (spot)
        *spot = (struct hy_spot){site, mask};
}

/* As many as fit now, at most `count`. Returns how many. */
static uint32_t lay_now(struct hy_schedule *s, const struct hy_shape *shape, uint32_t count,
                        struct hy_spot *spots)
{
    uint32_t laid = 0;

    for (int tier = 0; tier < HY_TIERS; tier++) {
        const struct hy_bits *free = &shape->free[tier];

        for (uint32_t at = 0; laid < count && (at = hy_bits_next(free, at)) != HY_BITS_NONE; at++) {
            uint64_t mask;

            while (laid < count &&
                   hy_site_pick(s->sites[at], &shape->need, HY_VIEW_FREE, HY_PREFER_FULL, &mask))
                lay(s->sites[at], &shape->need, mask, &spots[laid++]);
        }
    }
    return laid;
}

struct candidate {
    struct hy_spot spot;
    double lack;
};

static bool consider(struct candidate *c, struct hy_site *site, const struct hy_role_need *need)
{
    c->spot.site = site;
    if (!hy_site_pick(site, need, HY_VIEW_IDLE, HY_PREFER_SOON, &c->spot.gpu_mask))
        return false;
    c->lack = hy_site_lack(site, need, c->spot.gpu_mask);
    return true;
}

/* Puts up to `count` members, one after the other, where least is missing. */
static uint32_t lay_least(struct candidate *found, uint32_t n, const struct hy_role_need *need,
                          uint32_t count, struct hy_spot *spots)
{
    uint32_t laid = 0;

    while (n > 0 && laid < count) {
        struct candidate *best = found;

        for (struct candidate *c = found + 1; c < found + n; c++)
            if (c->lack < best->lack)
                best = c;
        lay(best->spot.site, need, best->spot.gpu_mask, &spots[laid++]);
        if (!consider(best, best->spot.site, need))
            *best = found[--n];
    }
    return laid;
}

/* Where members would fit if nothing ran. Starts at the far end: first fit
 * fills that last, so there is less to wait for. */
static uint32_t lay_soon(struct hy_schedule *s, const struct hy_shape *shape, uint32_t count,
                         struct hy_spot *spots)
{
    struct candidate found[LOOK];
    uint32_t laid = 0, at = hy_bits_prev(&shape->able, HY_BITS_NONE);

    while (laid < count && at != HY_BITS_NONE) {
        uint32_t n = 0;

        for (; n < LOOK && at != HY_BITS_NONE; at = at ? hy_bits_prev(&shape->able, at - 1) : HY_BITS_NONE)
            n += consider(&found[n], s->sites[at], &shape->need);
        laid += lay_least(found, n, &shape->need, count - laid, spots + laid);
    }
    return laid;
}

static uint32_t lay_idle(struct hy_schedule *s, const struct hy_role_need *need, bool closed_too,
                         struct hy_spot *spots)
{
    uint32_t laid = 0;

    for (int tier = need->gpu_share ? HY_TIER_GPU : HY_TIER_PLAIN; tier < HY_TIERS; tier++) {
        for (uint32_t at = 0; laid < need->count && at < s->site_cap; at++) {
            struct hy_site *site = s->sites[at];
            uint64_t mask;

            if (!site || (tier == HY_TIER_GPU) != (site->has.gpus > 0) || (!site->open && !closed_too))
                continue;
            while (laid < need->count && hy_site_pick(site, need, HY_VIEW_IDLE, HY_PREFER_FULL, &mask)) {
                lay(site, need, mask, spots ? spots + laid : NULL);
                laid++;
            }
        }
    }
    return laid;
}

static void unlay(const struct hy_class *c, uint32_t r, const struct hy_spot *spots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        hy_site_unbook(spots[i].site, HY_PLAN, &c->shape[r]->need, spots[i].gpu_mask);
}

/* The roles of `c` in one order; turn[0] says which of c->order comes first. */
static bool plan_in_turn(struct hy_schedule *s, const struct hy_class *c, const uint8_t *turn, bool may_wait,
                         struct hy_spot *spots)
{
    uint32_t laid[HY_ROLES_MAX] = {0};
    bool all = true;

    for (uint32_t i = 0; all && i < c->need.role_count; i++) {
        uint32_t r = c->order[turn[i]], count = c->need.roles[r].count;
        struct hy_spot *of_role = spots + c->first[r];

        laid[r] = lay_now(s, c->shape[r], count, of_role);
        if (may_wait)
            laid[r] += lay_soon(s, c->shape[r], count - laid[r], of_role + laid[r]);
        all = laid[r] == count;
    }
    for (uint32_t r = 0; r < c->need.role_count; r++)
        unlay(c, r, spots + c->first[r], laid[r]);
    return all;
}

static bool plan_idle_in_turn(struct hy_schedule *s, const struct hy_need *need, const uint8_t *order,
                              const uint8_t *turn, bool closed_too, struct hy_spot *spots)
{
    bool all = true;

    for (uint32_t i = 0; all && i < need->role_count; i++) {
        const struct hy_role_need *role = &need->roles[order[turn[i]]];
        struct hy_spot *of_role = spots;

        for (const struct hy_role_need *before = need->roles; spots && before < role; before++)
            of_role += before->count;
        all = lay_idle(s, role, closed_too, of_role) == role->count;
    }
    for (uint32_t at = 0; at < s->site_cap; at++)
        if (s->sites[at] && s->sites[at]->load[HY_PLAN].slots)
            hy_site_clear(s->sites[at], HY_PLAN);
    return all;
}

static const uint8_t first_turn[HY_ROLES_MAX] = {0, 1, 2, 3};

static void swap(uint8_t *a, uint8_t *b)
{
    uint8_t kept = *a;

    *a = *b;
    *b = kept;
}

/* The next of all orders, as a dictionary has them; false after the last. */
static bool next_turn(uint8_t *turn, uint32_t n)
{
    uint32_t i = n - 1, j = n - 1;

    while (i > 0 && turn[i - 1] > turn[i])
        i--;
    if (i == 0)
        return false;
    while (turn[j] < turn[i - 1])
        j--;
    swap(&turn[i - 1], &turn[j]);
    for (j = n - 1; i < j; i++, j--)
        swap(&turn[i], &turn[j]);
    return true;
}

bool hy_plan_now(struct hy_schedule *s, const struct hy_class *c, struct hy_spot *spots)
{
    uint8_t turn[HY_ROLES_MAX];

    memcpy(turn, first_turn, sizeof turn);
    do {
        if (plan_in_turn(s, c, turn, false, spots))
            return true;
    } while (next_turn(turn, c->need.role_count));
    return false;
}

bool hy_plan_soon(struct hy_schedule *s, const struct hy_class *c, struct hy_spot *spots)
{
    return plan_in_turn(s, c, first_turn, true, spots);
}

bool hy_plan_idle(struct hy_schedule *s, const struct hy_need *need, bool closed_too, struct hy_spot *spots)
{
    uint8_t order[HY_ROLES_MAX], turn[HY_ROLES_MAX];

    hy_plan_order(need, order);
    memcpy(turn, first_turn, sizeof turn);
    do {
        if (plan_idle_in_turn(s, need, order, turn, closed_too, spots))
            return true;
    } while (next_turn(turn, need->role_count));
    return false;
}

static bool asks_more(const struct hy_role_need *a, const struct hy_role_need *b)
{
    if (a->alone != b->alone)
        return a->alone;
    return a->gpu_share != b->gpu_share ? a->gpu_share > b->gpu_share : a->memory > b->memory;
}

void hy_plan_order(const struct hy_need *need, uint8_t order[HY_ROLES_MAX])
{
    for (uint32_t r = 0; r < need->role_count; r++) {
        uint32_t i = r;

        for (; i > 0 && asks_more(&need->roles[r], &need->roles[order[i - 1]]); i--)
            order[i] = order[i - 1];
        order[i] = (uint8_t)r;
    }
}
