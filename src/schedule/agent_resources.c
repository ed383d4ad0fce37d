/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/agent_resources.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

struct hy_site *hy_site_new(uint64_t id, const struct hy_capacity *has)
{
    struct hy_site *site = hy_calloc(1, sizeof *site + has->gpus * sizeof site->gpu[0]);

    if (!site)
        return NULL;
    site->id = id;
    site->has = *has;
    site->open = true;
    hy_list_init(&site->link);
    return site;
}

void hy_site_free(struct hy_site *site)
{
    if (site)
        hy_list_remove(&site->link);
    free(site);
}

static bool counts_memory(const struct hy_site *site)
{
    return site->has.memory != UINT64_MAX;
}

static bool in_view(enum hy_view view, int book)
{
    return (unsigned)view >> book & 1;
}

/* Used and held together may be more than there is: nothing is left then. */
static uint32_t slots_left(const struct hy_site *site, enum hy_view view)
{
    uint32_t left = site->has.slots;

    for (int b = 0; b < HY_BOOKS; b++)
        if (in_view(view, b))
            left = left > site->load[b].slots ? left - site->load[b].slots : 0;
    return left;
}

static bool has_slots(const struct hy_site *site, const struct hy_role_need *need, enum hy_view view)
{
    return slots_left(site, view) >= hy_site_slots(site, need);
}

static uint64_t memory_left(const struct hy_site *site, enum hy_view view)
{
    uint64_t left = site->has.memory;

    for (int b = 0; b < HY_BOOKS; b++)
        if (in_view(view, b))
            left = left > site->load[b].memory ? left - site->load[b].memory : 0;
    return left;
}

uint32_t hy_site_device_left(const struct hy_site *site, uint32_t device, enum hy_view view)
{
    uint32_t left = HY_GPU_WHOLE, gone = 0;

    for (int b = 0; b < HY_BOOKS; b++)
        if (in_view(view, b))
            gone += site->gpu[device].load[b];
    return left > gone ? left - gone : 0;
}

static uint32_t gpu_room(const struct hy_site *site, const struct hy_role_need *need, enum hy_view view)
{
    uint32_t room = 0, each = hy_need_of_each(need);

    for (uint32_t d = 0; d < site->has.gpus; d++)
        room += hy_site_device_left(site, d, view) / each;
    return room / hy_need_devices(need);
}

uint32_t hy_site_room(const struct hy_site *site, const struct hy_role_need *need, enum hy_view view)
{
    uint32_t room = slots_left(site, view) / hy_site_slots(site, need);

    if (room && need->gpu_share) {
        uint32_t gpus = gpu_room(site, need, view);
        room = gpus < room ? gpus : room;
    }
    if (room && need->memory && counts_memory(site)) {
        uint64_t parts = memory_left(site, view) / need->memory;
        room = parts < room ? (uint32_t)parts : room;
    }
    return room;
}

uint32_t hy_site_pick_device(const struct hy_site *site, uint32_t share, enum hy_view view,
                             enum hy_prefer prefer, uint64_t taken)
{
    uint32_t best = HY_NO_DEVICE, best_cost = UINT32_MAX;

    for (uint32_t d = 0; d < site->has.gpus; d++) {
        uint32_t left = hy_site_device_left(site, d, view), cost = left;

        if (left < share || taken >> d & 1)
            continue;
        if (prefer == HY_PREFER_SOON)
            cost = HY_GPU_WHOLE - hy_site_device_left(site, d, HY_VIEW_UNUSED);
        if (cost < best_cost) {
            best_cost = cost;
            best = d;
        }
    }
    return best;
}

bool hy_site_pick(const struct hy_site *site, const struct hy_role_need *need, enum hy_view view,
                  enum hy_prefer prefer, uint64_t *ret_mask)
{
    uint64_t mask = 0;

    if (!has_slots(site, need, view) || memory_left(site, view) < need->memory)
        return false;
    for (uint32_t i = 0; i < hy_need_devices(need); i++) {
        uint32_t d = hy_site_pick_device(site, hy_need_of_each(need), view, prefer, mask);

        if (d == HY_NO_DEVICE)
            return false;
        mask |= UINT64_C(1) << d;
    }
    *ret_mask = mask;
    return true;
}

bool hy_site_fits_on(const struct hy_site *site, const struct hy_role_need *need, enum hy_view view,
                     uint64_t mask)
{
    if (!has_slots(site, need, view) || memory_left(site, view) < need->memory)
        return false;
    for (; mask; mask &= mask - 1)
        if (hy_site_device_left(site, (uint32_t)__builtin_ctzll(mask), view) < hy_need_of_each(need))
            return false;
    return true;
}

static double above(double n)
{
    return n > 0 ? n : 0;
}

double hy_site_lack(const struct hy_site *site, const struct hy_role_need *need, uint64_t mask)
{
    const struct hy_load *used = &site->load[HY_USED], *plan = &site->load[HY_PLAN];
    double lack = above((double)used->slots + plan->slots + hy_site_slots(site, need) - site->has.slots);

    if (need->memory && counts_memory(site)) {
        double memory = (double)used->memory + (double)plan->memory + (double)need->memory;
        lack += above(memory - (double)site->has.memory) / (double)need->memory;
    }
    for (; mask; mask &= mask - 1) {
        const uint16_t *load = site->gpu[__builtin_ctzll(mask)].load;
        double share = (double)load[HY_USED] + load[HY_PLAN] + hy_need_of_each(need);
        lack += above(share - HY_GPU_WHOLE) / HY_GPU_WHOLE;
    }
    return lack;
}

void hy_site_book(struct hy_site *site, enum hy_book book, const struct hy_role_need *need, uint64_t mask)
{
    site->load[book].slots += hy_site_slots(site, need);
    if (counts_memory(site))
        site->load[book].memory += need->memory;
    for (; mask; mask &= mask - 1) {
        struct hy_device *gpu = &site->gpu[__builtin_ctzll(mask)];

        gpu->load[book] = (uint16_t)(gpu->load[book] + hy_need_of_each(need));
        assert(gpu->load[book] <= HY_GPU_WHOLE);
    }
    assert(site->load[book].slots <= site->has.slots && site->load[book].memory <= site->has.memory);
}

void hy_site_unbook(struct hy_site *site, enum hy_book book, const struct hy_role_need *need, uint64_t mask)
{
    assert(site->load[book].slots >= hy_site_slots(site, need));
    site->load[book].slots -= hy_site_slots(site, need);
    if (counts_memory(site)) {
        assert(site->load[book].memory >= need->memory);
        site->load[book].memory -= need->memory;
    }
    for (; mask; mask &= mask - 1) {
        struct hy_device *gpu = &site->gpu[__builtin_ctzll(mask)];

        assert(gpu->load[book] >= hy_need_of_each(need));
        gpu->load[book] = (uint16_t)(gpu->load[book] - hy_need_of_each(need));
    }
}

void hy_site_rebook(struct hy_site *site, enum hy_book book, uint32_t share, uint32_t from, uint32_t to)
{
    assert(site->gpu[from].load[book] >= share);
    site->gpu[from].load[book] = (uint16_t)(site->gpu[from].load[book] - share);
    site->gpu[to].load[book] = (uint16_t)(site->gpu[to].load[book] + share);
    assert(site->gpu[to].load[book] <= HY_GPU_WHOLE);
}

void hy_site_clear(struct hy_site *site, enum hy_book book)
{
    site->load[book] = (struct hy_load){0};
    for (uint32_t d = 0; d < site->has.gpus; d++)
        site->gpu[d].load[book] = 0;
}
