/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce and reducescatter between hosts.
 *
 * Small messages: recursive doubling, with the lower block always on the left, so that every rank computes the same
 * expression. Large messages: every peer owns a slice; contributions go directly to the owner, segment by segment. It
 * reduces a segment in the order of the peers as soon as it is complete, and sends the result at once. Contributions
 * and results use separate streams, so neither waits for the other.
 */
#include "collective/mesh/mesh_private.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "collective/numbers/reduce.h"
#include "collective/shm/shm.h"

#define LANES (HY_MESH_STREAMS / 2)
#define RESULTS LANES /* the first stream of results; contributions start at 0 */

static unsigned index_of(const struct hy_mesh *m, const unsigned *peers, unsigned count)
{
    unsigned i = 0;

    while (i < count && peers[i] != m->rank)
        i++;
    assert(i < count);
    return i;
}

/* ---- small: recursive doubling -------------------------------------------------------- */

struct whole {
    struct hy_mesh *m;
    uint8_t *buf, *other;
    size_t bytes, elements;
    enum hy_type type;
    enum hy_reduce op;
};

static int swap(struct whole *w, unsigned peer, bool send, bool receive)
{
    struct hy_transfer out = {.peer = peer, .bytes = w->buf, .n = w->bytes};
    struct hy_transfer in = {.peer = peer, .bytes = w->other, .n = w->bytes};

    return hy_mesh_exchange(w->m, &out, send, &in, receive);
}

/* buf = buf op other, or other op buf when `other` is from lower ranks. */
static void combine(struct whole *w, bool other_first)
{
    const void *sources[2] = {other_first ? w->other : w->buf, other_first ? w->buf : w->other};

    hy_reduce(w->buf, sources, 2, w->elements, w->type, w->op);
}

/* With `extra` peers beyond a power of two, odd ones of the first 2 * extra are represented by the peer before. */
static unsigned actor_peer(unsigned actor, unsigned extra)
{
    return actor < extra ? 2 * actor : actor + extra;
}

static int allreduce_whole(struct whole *w, const unsigned *peers, unsigned count, unsigned me)
{
    unsigned actors = 1, extra, actor;
    int rc = 0;

    while (2 * actors <= count)
        actors *= 2;
    extra = count - actors;
    actor = me < 2 * extra ? me / 2 : me - extra;
    if (me < 2 * extra && me % 2 == 1) {
        rc = swap(w, peers[me - 1], true, false);
        if (rc == 0)
            rc = swap(w, peers[me - 1], false, true);
        if (rc == 0)
            memcpy(w->buf, w->other, w->bytes);
        return rc;
    }
    if (me < 2 * extra) {
        rc = swap(w, peers[me + 1], false, true);
        if (rc < 0)
            return rc;
        combine(w, false);
    }
    for (unsigned distance = 1; distance < actors; distance *= 2) {
        unsigned partner = actor ^ distance;

        rc = swap(w, peers[actor_peer(partner, extra)], true, true);
        if (rc < 0)
            return rc;
        combine(w, partner < actor);
    }
    return me < 2 * extra ? swap(w, peers[me + 1], true, false) : 0;
}

/* ---- large: in slices ------------------------------------------------------------------------ */

struct peer_flows {
    struct hy_flow give[LANES], take[LANES];           /* contributions: to the slice of the peer, and from it */
    struct hy_flow results_out[LANES], results_in[LANES];
};

struct sliced {
    struct hy_work work;
    unsigned count, me;
    uint8_t *slice;          /* of this rank, in the buffer */
    size_t slice_bytes, segment;
    size_t type_size;
    enum hy_type type;
    enum hy_reduce op;
    unsigned lanes;
    size_t reduced;          /* segments of the slice that are reduced */
    size_t room;             /* contributions may arrive for segments below this */
    uint8_t *rings;          /* one for each other peer, contiguous */
    struct peer_flows *flows;
    const void **sources;
};

static uint8_t *ring_of(const struct sliced *s, unsigned peer)
{
    unsigned place = peer < s->me ? peer : peer - 1;

    return s->rings + place * HY_MESH_SEGMENTS_AHEAD * s->segment;
}

static bool segment_is_here(const struct sliced *s, size_t segment)
{
    for (unsigned i = 0; i < s->count; i++)
        if (i != s->me && !hy_flow_has(s->flows[i].take, s->lanes, segment))
            return false;
    return true;
}

static void reduce_segment(struct sliced *s, size_t segment)
{
    size_t begin = segment * s->segment;
    size_t n = s->slice_bytes - begin < s->segment ? s->slice_bytes - begin : s->segment;

    for (unsigned i = 0; i < s->count; i++)
        s->sources[i] = i == s->me ? s->slice + begin : ring_of(s, i) + segment % HY_MESH_SEGMENTS_AHEAD * s->segment;
    hy_reduce(s->slice + begin, s->sources, s->count, n / s->type_size, s->type, s->op);
}

static bool step_sliced(struct hy_work *work)
{
    struct sliced *s = hy_container(work, struct sliced, work);
    size_t before = s->reduced;

    while (s->reduced * s->segment < s->slice_bytes && segment_is_here(s, s->reduced))
        reduce_segment(s, s->reduced++);
    s->room = s->reduced + HY_MESH_SEGMENTS_AHEAD;
    return s->reduced > before;
}

static void post_contributions(struct hy_mesh *m, struct sliced *s, const unsigned *peers, unsigned i, uint8_t *slice,
                               size_t bytes)
{
    struct peer_flows *f = &s->flows[i];

    hy_flow_post(m, peers[i], true, f->give, 0, s->lanes, slice, bytes, s->segment);
    hy_flow_post(m, peers[i], false, f->take, 0, s->lanes, ring_of(s, i), s->slice_bytes, s->segment);
    for (unsigned lane = 0; lane < s->lanes; lane++) {
        f->take[lane].ring = HY_MESH_SEGMENTS_AHEAD;
        f->take[lane].allowed = &s->room;
    }
}

/* A result arrives only after the contribution of this rank was sent, so it can be received in its place. */
static void post_results(struct hy_mesh *m, struct sliced *s, const unsigned *peers, unsigned i, uint8_t *slice,
                         size_t bytes)
{
    struct peer_flows *f = &s->flows[i];

    hy_flow_post(m, peers[i], true, f->results_out, RESULTS, s->lanes, s->slice, s->slice_bytes, s->segment);
    hy_flow_post(m, peers[i], false, f->results_in, RESULTS, s->lanes, slice, bytes, s->segment);
    for (unsigned lane = 0; lane < s->lanes; lane++)
        f->results_out[lane].allowed = &s->reduced;
}

/* counts[i]: elements of the slice of peers[i]. */
static int reduce_sliced(struct hy_mesh *m, const unsigned *peers, unsigned count, uint8_t *buf, const size_t *counts,
                         enum hy_type type, enum hy_reduce op, bool share)
{
    hy_cleanup_free struct peer_flows *flows = hy_calloc(count, sizeof *flows);
    hy_cleanup_free const void **sources = hy_calloc(count, sizeof *sources);
    struct sliced s = {.work.step = step_sliced,
                       .count = count,
                       .me = index_of(m, peers, count),
                       .flows = flows,
                       .sources = sources,
                       .type = type,
                       .op = op,
                       .type_size = hy_type_size(type),
                       .room = HY_MESH_SEGMENTS_AHEAD};
    size_t most = 0, at = 0;

    for (unsigned i = 0; i < count; i++)
        most = counts[i] > most ? counts[i] : most;
    s.segment = hy_mesh_segment(most * s.type_size, count);
    s.lanes = hy_flow_lanes(most * s.type_size, LANES);
    s.rings = hy_mesh_scratch(m, (count - 1) * HY_MESH_SEGMENTS_AHEAD * s.segment);
    if (!flows || !sources || !s.rings)
        return hy_err_set(&m->waiter->failed, -ENOMEM, "out of memory for an allreduce among %u ranks", count);
    for (unsigned i = 0; i < s.me; i++)
        at += counts[i] * s.type_size;
    s.slice = buf + at;
    s.slice_bytes = counts[s.me] * s.type_size;
    at = 0;
    for (unsigned i = 0; i < count; at += counts[i++] * s.type_size)
        if (i != s.me) {
            post_contributions(m, &s, peers, i, buf + at, counts[i] * s.type_size);
            if (share)
                post_results(m, &s, peers, i, buf + at, counts[i] * s.type_size);
        }
    return hy_mesh_drive(m, &s.work);
}

/* ---- interface ------------------------------------------------------------------- */

int hy_mesh_reducescatter(struct hy_mesh *m, const unsigned *peers, unsigned count, void *buf, const size_t *counts,
                          enum hy_type type, enum hy_reduce op)
{
    if (m->waiter->failed.code < 0)
        return m->waiter->failed.code;
    return count < 2 ? 0 : reduce_sliced(m, peers, count, buf, counts, type, op, false);
}

int hy_mesh_allreduce(struct hy_mesh *m, const unsigned *peers, unsigned count, void *buf, size_t elements,
                      enum hy_type type, enum hy_reduce op)
{
    size_t bytes = elements * hy_type_size(type), begin;
    hy_cleanup_free size_t *counts = NULL;

    if (m->waiter->failed.code < 0)
        return m->waiter->failed.code;
    if (count < 2 || elements == 0)
        return 0;
    if (bytes <= HY_MESH_WHOLE_MAX) {
        struct whole w = {.m = m,
                          .buf = buf,
                          .other = hy_mesh_scratch(m, bytes),
                          .bytes = bytes,
                          .elements = elements,
                          .type = type,
                          .op = op};

        return w.other ? allreduce_whole(&w, peers, count, index_of(m, peers, count)) : -ENOMEM;
    }
    counts = hy_calloc(count, sizeof *counts);
    if (!counts)
        return hy_err_set(&m->waiter->failed, -ENOMEM, "out of memory for an allreduce among %u ranks", count);
    for (unsigned i = 0; i < count; i++)
        counts[i] = hy_slice(elements, count, i, &begin);
    return reduce_sliced(m, peers, count, buf, counts, type, op, true);
}
