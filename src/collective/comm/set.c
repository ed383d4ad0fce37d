/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of ranks, and their distribution over hosts (see comm_private.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "collective/comm/comm_private.h"

static int check_members(const struct hy_comm *c, const unsigned *members, unsigned count, struct hy_err *err)
{
    bool with_us = false;

    if (!count)
        return hy_err_set(err, -EINVAL, "a process set has no members");
    for (unsigned i = 0; i < count; i++) {
        if (members[i] >= c->size)
            return hy_err_set(err, -EINVAL, "a process set has rank %u, but there are only %u ranks", members[i],
                              c->size);
        if (i && members[i] <= members[i - 1])
            return hy_err_set(err, -EINVAL, "a process set's ranks are not in order: %u, %u", members[i - 1],
                              members[i]);
        with_us |= members[i] == c->rank;
    }
    return with_us ? 0 : hy_err_set(err, -EINVAL, "rank %u is not a member of the process set that it opens", c->rank);
}

static struct hy_set *allocate(struct hy_comm *c, unsigned count)
{
    struct hy_set *s = hy_calloc(1, sizeof *s);
    unsigned *room = hy_calloc(8ul * count, sizeof *room);

    if (!s || !room) {
        free(s);
        free(room);
        return NULL;
    }
    s->comm = c;
    s->count = count;
    s->members = room; /* the first of eight arrays, and the one to free */
    s->host_of = room + count;
    s->place_of = room + 2ul * count;
    s->by_host = room + 3ul * count;
    s->first_of = room + 4ul * count;
    s->count_of = room + 5ul * count;
    s->lane = room + 6ul * count;
    s->peers = room + 7ul * count;
    return s;
}

/* The number of the host of member i in the set: that of an earlier member, or a new one. */
static unsigned find_host(const struct hy_set *s, unsigned i)
{
    const unsigned *host = s->comm->host;

    for (unsigned earlier = 0; earlier < i; earlier++)
        if (host[s->members[earlier]] == host[s->members[i]])
            return s->host_of[earlier];
    return s->host_count;
}

static void find_places(struct hy_set *s)
{
    for (unsigned i = 0; i < s->count; i++) {
        unsigned h = find_host(s, i);

        s->host_count += h == s->host_count;
        s->host_of[i] = h;
        s->place_of[i] = s->count_of[h]++;
        if (s->members[i] == s->comm->rank)
            s->index = i;
    }
    s->here = s->host_of[s->index];
    s->place = s->place_of[s->index];
}

static void order_by_host(struct hy_set *s)
{
    s->lanes = s->count_of[0];
    for (unsigned h = 0; h < s->host_count; h++) {
        s->first_of[h] = h ? s->first_of[h - 1] + s->count_of[h - 1] : 0;
        if (s->count_of[h] < s->lanes)
            s->lanes = s->count_of[h];
    }
    for (unsigned i = 0; i < s->count; i++)
        s->by_host[s->first_of[s->host_of[i]] + s->place_of[i]] = i;
}

static void find_lane(struct hy_set *s)
{
    unsigned found = 0;

    for (unsigned i = 0; hy_set_is_in_lane(s) && i < s->count; i++)
        if (s->place_of[i] == s->place)
            s->lane[found++] = i;
}

static int open_shm(struct hy_set *s, unsigned slot)
{
    unsigned locals[HY_LOCAL_MAX_RANKS], count = s->count_of[s->here];

    if (count == 1)
        return 0;
    for (unsigned p = 0; p < count; p++)
        locals[p] = s->comm->local[s->members[hy_set_at(s, s->here, p)]];
    return hy_shm_set_open(s->comm->shm, slot, locals, count, &s->shm);
}

int hy_set_open(struct hy_comm *c, unsigned slot, const unsigned *members, unsigned count, struct hy_set **ret,
                struct hy_err *err)
{
    struct hy_set *s;
    int rc = check_members(c, members, count, err);

    if (rc < 0)
        return rc;
    s = allocate(c, count);
    if (!s)
        return hy_err_set(err, -ENOMEM, "out of memory for a process set of %u ranks", count);
    memcpy(s->members, members, count * sizeof *members);
    find_places(s);
    order_by_host(s);
    find_lane(s);
    rc = open_shm(s, slot);
    if (rc < 0) {
        hy_set_close(s);
        return hy_err_sys(err, rc, "cannot share memory among the %u ranks of process set %u", count, slot);
    }
    *ret = s;
    return 0;
}

void hy_set_close(struct hy_set *s)
{
    if (!s)
        return;
    hy_shm_set_close(s->shm);
    free(s->members);
    free(s);
}

unsigned hy_set_size(const struct hy_set *s)
{
    return s->count;
}

unsigned hy_set_index(const struct hy_set *s)
{
    return s->index;
}
