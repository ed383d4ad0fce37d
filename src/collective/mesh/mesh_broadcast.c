/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broadcast, allgather and barrier between hosts.
 *
 * A small broadcast uses a binomial tree. For a large one, every peer but the root receives a slice and forwards each
 * segment to the others as soon as it has it: the root sends every byte once.
 */
#include "collective/mesh/mesh_private.h"

#include <assert.h>
#include <errno.h>

#include "base/mem.h"
#include "collective/shm/shm.h"

#define LANES (HY_MESH_STREAMS / 2)
#define FORWARDED LANES /* the first stream of forwarded segments */

/* ---- broadcast ------------------------------------------------------------------------ */

/* `me`: the index relative to the root, modulo count. */
static int broadcast_tree(struct hy_mesh *m, const unsigned *peers, unsigned count, void *bytes, size_t n,
                          unsigned root, unsigned me)
{
    struct hy_transfer to[32];
    unsigned bit = 1;
    size_t sends = 0;

    while (bit < count && !(me & bit))
        bit *= 2;
    if (me) {
        struct hy_transfer from = {.peer = peers[((me ^ bit) + root) % count], .bytes = bytes, .n = n};
        int rc = hy_mesh_exchange(m, NULL, 0, &from, 1);

        if (rc < 0)
            return rc;
    }
    while (bit /= 2)
        if ((me | bit) < count)
            to[sends++] = (struct hy_transfer){.peer = peers[((me | bit) + root) % count], .bytes = bytes, .n = n};
    return hy_mesh_exchange(m, to, sends, NULL, 0);
}

struct sliced {
    struct hy_work work;
    struct hy_flow from_root[LANES];
    unsigned lanes;
    size_t segments, here; /* of the slice of this rank */
    struct hy_flow (*forwarded)[2][LANES]; /* by peer: to it, from it */
};

static bool step_sliced(struct hy_work *work)
{
    struct sliced *s = hy_container(work, struct sliced, work);
    size_t before = s->here;

    while (s->here < s->segments && hy_flow_has(s->from_root, s->lanes, s->here))
        s->here++;
    return s->here > before;
}

static void post_sliced(struct hy_mesh *m, struct sliced *s, const unsigned *peers, unsigned count, uint8_t *bytes,
                        size_t n, unsigned root, unsigned me)
{
    size_t segment = hy_mesh_segment(n / (count - 1), count), own_begin = 0, own = 0, begin;

    s->lanes = hy_flow_lanes(n / (count - 1), LANES);
    if (me)
        own = hy_slice(n, count - 1, me - 1, &own_begin);
    s->segments = (own + segment - 1) / segment;
    if (me)
        hy_flow_post(m, peers[root], false, s->from_root, 0, s->lanes, bytes + own_begin, own, segment);
    for (unsigned i = 1; i < count; i++) {
        unsigned peer = peers[(i + root) % count];
        size_t length = hy_slice(n, count - 1, i - 1, &begin);

        if (i == me)
            continue;
        if (!me) {
            hy_flow_post(m, peer, true, s->forwarded[i][0], 0, s->lanes, bytes + begin, length, segment);
            continue;
        }
        hy_flow_post(m, peer, true, s->forwarded[i][0], FORWARDED, s->lanes, bytes + own_begin, own, segment);
        hy_flow_post(m, peer, false, s->forwarded[i][1], FORWARDED, s->lanes, bytes + begin, length, segment);
        for (unsigned lane = 0; lane < s->lanes; lane++)
            s->forwarded[i][0][lane].allowed = &s->here;
    }
}

static int broadcast_sliced(struct hy_mesh *m, const unsigned *peers, unsigned count, void *bytes, size_t n,
                            unsigned root, unsigned me)
{
    struct sliced s = {.work.step = step_sliced};
    hy_cleanup_free void *forwarded = hy_calloc(count, sizeof *s.forwarded);

    if (!forwarded)
        return hy_err_set(&m->waiter->failed, -ENOMEM, "out of memory for a broadcast among %u ranks", count);
    s.forwarded = forwarded;
    post_sliced(m, &s, peers, count, bytes, n, root, me);
    return hy_mesh_drive(m, &s.work);
}

int hy_mesh_broadcast(struct hy_mesh *m, const unsigned *peers, unsigned count, void *bytes, size_t n, unsigned root)
{
    unsigned me = 0;

    if (m->waiter->failed.code < 0)
        return m->waiter->failed.code;
    if (count < 2 || n == 0)
        return 0;
    while (peers[(me + root) % count] != m->rank) {
        me++;
        assert(me < count);
    }
    return n <= HY_MESH_TREE_MAX ? broadcast_tree(m, peers, count, bytes, n, root, me)
                                 : broadcast_sliced(m, peers, count, bytes, n, root, me);
}

/* ---- allgather and barrier ------------------------------------------------------------ */

int hy_mesh_allgather(struct hy_mesh *m, const unsigned *peers, unsigned count, void *out, const size_t *sizes,
                      const size_t *offsets)
{
    hy_cleanup_free struct hy_transfer *transfers = hy_calloc(2 * (size_t)count, sizeof *transfers);
    unsigned me = 0;

    if (!transfers)
        return hy_err_set(&m->waiter->failed, -ENOMEM, "out of memory for an allgather among %u ranks", count);
    while (me < count && peers[me] != m->rank)
        me++;
    assert(me < count);
    for (unsigned i = 1; i < count; i++) { /* each starts with its neighbor, which spreads the load */
        unsigned next = (me + i) % count;

        transfers[i] = (struct hy_transfer){.peer = peers[next], .bytes = (uint8_t *)out + offsets[me], .n = sizes[me]};
        transfers[count + i] =
            (struct hy_transfer){.peer = peers[next], .bytes = (uint8_t *)out + offsets[next], .n = sizes[next]};
    }
    return hy_mesh_exchange(m, transfers + 1, count - 1, transfers + count + 1, count - 1);
}

int hy_mesh_barrier(struct hy_mesh *m, const unsigned *peers, unsigned count)
{
    uint8_t nothing = 0;

    return hy_mesh_allreduce(m, peers, count, &nothing, 1, HY_U8, HY_MAX);
}
