/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For each kind of member that tasks ask for, the sites where one fits.
 *
 * A site's change costs a step per shape; in return the first site that fits
 * is found in the levels of a bitmap, and whether a gang of one role fits is
 * one comparison.
 */
#include "schedule/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static enum hy_tier tier_of(const struct hy_site *site)
{
    return site->has.gpus ? HY_TIER_GPU : HY_TIER_PLAIN;
}

static void refresh_fits(struct hy_schedule *s, struct hy_shape *shape, const struct hy_site *site)
{
    uint32_t was = shape->fits[site->at], now = 0;

    if (site->open)
        now = hy_site_room(site, &shape->need, HY_VIEW_FREE);
    if (now == was)
        return;
    shape->fits[site->at] = now;
    shape->room += now;
    shape->room -= was;
    if (now > was)
        s->grown++;
    if (!was)
        hy_bits_set(&shape->free[tier_of(site)], site->at);
    else if (!now)
        hy_bits_clear(&shape->free[tier_of(site)], site->at);
}

static void refresh_able(struct hy_shape *shape, const struct hy_site *site)
{
    uint32_t idle = hy_site_room(site, &shape->need, HY_VIEW_IDLE);
    bool was = hy_bits_has(&shape->able, site->at), now = site->open && idle;

    if (now && !was) {
        hy_bits_set(&shape->able, site->at);
        shape->room_idle += idle;
    } else if (!now && was) {
        hy_bits_clear(&shape->able, site->at);
        shape->room_idle -= idle;
    }
}

void hy_shapes_touch(struct hy_schedule *s, struct hy_site *site)
{
    hy_list_each(it, &s->shapes)
        refresh_fits(s, hy_container(it, struct hy_shape, link), site);
}

void hy_shapes_turn(struct hy_schedule *s, struct hy_site *site)
{
    hy_list_each(it, &s->shapes) {
        struct hy_shape *shape = hy_container(it, struct hy_shape, link);

        refresh_able(shape, site);
        refresh_fits(s, shape, site);
    }
}

static int grow(struct hy_shape *shape, uint32_t from, uint32_t to)
{
    uint32_t *fits = hy_reallocarray(shape->fits, to, sizeof *fits);

    if (!fits)
        return -ENOMEM;
    memset(fits + from, 0, (to - from) * sizeof *fits);
    shape->fits = fits;
    for (int tier = 0; tier < HY_TIERS; tier++)
        if (hy_bits_grow(&shape->free[tier], to) < 0)
            return -ENOMEM;
    return hy_bits_grow(&shape->able, to);
}

/* What some shapes got before another failed does no harm. */
int hy_shapes_grow(struct hy_schedule *s, uint32_t count)
{
    hy_list_each(it, &s->shapes)
        if (grow(hy_container(it, struct hy_shape, link), s->site_cap, count) < 0)
            return -ENOMEM;
    return 0;
}

static void shape_free(struct hy_shape *shape)
{
    hy_list_remove(&shape->link);
    for (int tier = 0; tier < HY_TIERS; tier++)
        hy_bits_done(&shape->free[tier]);
    hy_bits_done(&shape->able);
    free(shape->fits);
    free(shape);
}

static struct hy_shape *shape_new(struct hy_schedule *s, const struct hy_role_need *need)
{
    struct hy_shape *shape = hy_calloc(1, sizeof *shape);

    if (!shape)
        return NULL;
    hy_list_init(&shape->link);
    shape->need = (struct hy_role_need){.gpu_share = need->gpu_share, .memory = need->memory, .alone = need->alone};
    if (s->site_cap && grow(shape, 0, s->site_cap) < 0) {
        shape_free(shape);
        return NULL;
    }
    for (uint32_t i = 0; i < s->site_cap; i++)
        if (s->sites[i]) {
            refresh_able(shape, s->sites[i]);
            refresh_fits(s, shape, s->sites[i]);
        }
    hy_list_push(&s->shapes, &shape->link);
    return shape;
}

bool hy_shapes_equal(const struct hy_role_need *a, const struct hy_role_need *b)
{
    return a->gpu_share == b->gpu_share && a->memory == b->memory && a->alone == b->alone;
}

struct hy_shape *hy_shape_ref(struct hy_schedule *s, const struct hy_role_need *need)
{
    struct hy_shape *shape = NULL;

    hy_list_each(it, &s->shapes) {
        struct hy_shape *known = hy_container(it, struct hy_shape, link);

        if (hy_shapes_equal(&known->need, need))
            shape = known;
    }
    if (!shape)
        shape = shape_new(s, need);
    if (shape)
        shape->refs++;
    return shape;
}

void hy_shape_unref(struct hy_shape *shape)
{
    if (shape && --shape->refs == 0)
        shape_free(shape);
}
