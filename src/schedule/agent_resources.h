/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent as the schedule sees it: what it has, and three books of what is
 * gone from it.
 *
 *     HY_USED   members that run, and those the reservation has secured
 *     HY_HELD   set aside for members that the reservation still waits for;
 *               together with HY_USED it may be more than there is
 *     HY_PLAN   scratch while a task is laid out; empty outside of plan.c
 *
 * A view is the set of books that count as gone.
 */
#ifndef HY_SCHEDULE_AGENT_RESOURCES_H
#define HY_SCHEDULE_AGENT_RESOURCES_H

#include <stdbool.h>

#include "base/list.h"
#include "schedule/schedule.h"

enum hy_book { HY_USED, HY_HELD, HY_PLAN, HY_BOOKS };

enum hy_view {
    HY_VIEW_FREE = 1 << HY_USED | 1 << HY_HELD | 1 << HY_PLAN, /* anybody's */
    HY_VIEW_UNUSED = 1 << HY_USED | 1 << HY_PLAN,              /* the reservation's owner may have it */
    HY_VIEW_IDLE = 1 << HY_PLAN                                /* if all that runs had ended */
};

/* Which devices a member would rather have, among those that would do. */
enum hy_prefer {
    HY_PREFER_FULL, /* the fullest, so that others stay whole */
    HY_PREFER_SOON  /* those with the least to wait for */
};

#define HY_NO_DEVICE UINT32_MAX

struct hy_load {
    uint64_t memory;
    uint32_t slots;
};

struct hy_device {
    uint16_t load[HY_BOOKS]; /* thousandths */
};

struct hy_site {
    uint64_t id;
    struct hy_capacity has;
    uint32_t at; /* its number in the indexes */
    bool open;
    bool gone; /* removed, but some members that sat here are not done yet */
    struct hy_load load[HY_BOOKS];
    struct hy_list link; /* among the gone */
    struct hy_device gpu[];
};

/* Where one member sits. */
struct hy_spot {
    struct hy_site *site;
    uint64_t gpu_mask;
};

/* How many devices a member gets, and how much of each. */
static inline uint32_t hy_need_devices(const struct hy_role_need *need)
{
    return need->gpu_share < HY_GPU_WHOLE ? need->gpu_share > 0 : need->gpu_share / HY_GPU_WHOLE;
}

static inline uint32_t hy_need_of_each(const struct hy_role_need *need)
{
    return need->gpu_share < HY_GPU_WHOLE ? need->gpu_share : HY_GPU_WHOLE;
}

/* How many slots a member takes there. */
static inline uint32_t hy_site_slots(const struct hy_site *site, const struct hy_role_need *need)
{
    return need->alone ? site->has.slots : 1;
}

/* NULL when out of memory. */
struct hy_site *hy_site_new(uint64_t id, const struct hy_capacity *has);
void hy_site_free(struct hy_site *site);

/* How many such members fit. */
uint32_t hy_site_room(const struct hy_site *site, const struct hy_role_need *need, enum hy_view view);
/* Whether one fits, and on which devices. */
bool hy_site_pick(const struct hy_site *site, const struct hy_role_need *need, enum hy_view view,
                  enum hy_prefer prefer, uint64_t *ret_mask);
/* Whether one fits on just these devices. */
bool hy_site_fits_on(const struct hy_site *site, const struct hy_role_need *need, enum hy_view view,
                     uint64_t mask);
/* How much the site would have to get back before one more than planned fits
 * there: a slot, the memory of a member, or a device counts 1. */
double hy_site_lack(const struct hy_site *site, const struct hy_role_need *need, uint64_t mask);

/* The best device outside of `taken` with `share` left in it; of equal ones the first. */
uint32_t hy_site_pick_device(const struct hy_site *site, uint32_t share, enum hy_view view,
                             enum hy_prefer prefer, uint64_t taken);
uint32_t hy_site_device_left(const struct hy_site *site, uint32_t device, enum hy_view view);

void hy_site_book(struct hy_site *site, enum hy_book book, const struct hy_role_need *need, uint64_t mask);
void hy_site_unbook(struct hy_site *site, enum hy_book book, const struct hy_role_need *need, uint64_t mask);
/* Books a share on another device instead. */
void hy_site_rebook(struct hy_site *site, enum hy_book book, uint32_t share, uint32_t from, uint32_t to);
void hy_site_clear(struct hy_site *site, enum hy_book book);

#endif
