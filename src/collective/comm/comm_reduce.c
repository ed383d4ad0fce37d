/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions on both levels: within the hosts, so that each member of a lane holds its slice of the host's result;
 * within the lanes, between hosts; and within the hosts again. Large buffers go through all three phases in chunks, so
 * that the output of a phase is still in the cache when the next one reads it.
 */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "collective/comm/comm_private.h"
#include "collective/numbers/reduce.h"

#define LANE_CHUNK (4u << 20) /* bytes per lane and chunk */

static char *at(void *base, size_t elements, enum hy_type type)
{
    return (char *)base + elements * hy_type_size(type);
}

static const char *at_const(const void *base, size_t elements, enum hy_type type)
{
    return (const char *)base + elements * hy_type_size(type);
}

static double average(const struct hy_set *s, enum hy_reduce op, double post)
{
    return op == HY_AVERAGE ? post / s->count : post;
}

/* The first and the last phase; the only member of a host just scales. */
static int reduce_here(struct hy_set *s, const void *in, void *out, size_t count, enum hy_type type, enum hy_reduce op,
                       double pre)
{
    if (s->shm)
        return hy_shm_reduce_slices(s->shm, in, out, count, type, op, pre, s->lanes);
    hy_scale(out, in, count, type, pre);
    return 0;
}

static int share_here(struct hy_set *s, void *out, size_t count, enum hy_type type, double post)
{
    if (s->shm)
        return hy_shm_share_slices(s->shm, out, count, type, post, s->lanes);
    hy_scale(out, out, count, type, post);
    return 0;
}

/* The ranks of this lane, for mesh.h. */
static const unsigned *lane_peers(struct hy_set *s)
{
    for (unsigned h = 0; h < s->host_count; h++)
        s->peers[h] = s->members[s->lane[h]];
    return s->peers;
}

/* ---- allreduce ------------------------------------------------------------------------ */

static int reduce_lane(struct hy_set *s, void *out, size_t count, enum hy_type type, enum hy_reduce op)
{
    size_t begin, n;

    if (!hy_set_is_in_lane(s))
        return 0;
    n = hy_slice(count, s->lanes, s->place, &begin);
    return n ? hy_mesh_allreduce(s->comm->mesh, lane_peers(s), s->host_count, at(out, begin, type), n, type, op) : 0;
}

static int allreduce_chunk(struct hy_set *s, const void *in, void *out, size_t count, enum hy_type type,
                           enum hy_reduce op, double pre, double post)
{
    int rc = reduce_here(s, in, out, count, type, op, pre);

    if (rc == 0)
        rc = reduce_lane(s, out, count, type, op);
    return rc < 0 ? rc : share_here(s, out, count, type, post);
}

/* Where no host has two members there is a single level, and the mesh divides the data itself. */
static size_t chunk_elements(const struct hy_set *s, size_t count, enum hy_type type)
{
    size_t chunk = (size_t)s->lanes * (LANE_CHUNK / hy_type_size(type));

    return s->host_count == s->count || count < chunk ? count : chunk;
}

static int allreduce_levels(struct hy_set *s, const void *in, void *out, size_t count, enum hy_type type,
                            enum hy_reduce op, double pre, double post)
{
    size_t chunk = chunk_elements(s, count, type), n;
    int rc = 0;

    for (size_t done = 0; rc == 0 && done < count; done += n) {
        n = count - done < chunk ? count - done : chunk;
        rc = allreduce_chunk(s, at_const(in, done, type), at(out, done, type), n, type, op, pre, post);
    }
    return rc;
}

int hy_set_allreduce(struct hy_set *s, const void *in, void *out, size_t count, enum hy_type type, enum hy_reduce op,
                     double pre, double post)
{
    int rc = s->comm->waiter.failed.code;

    post = average(s, op, post);
    if (rc < 0 || !count)
        return rc;
    if (op == HY_ADASUM) {
        hy_scale(out, in, count, type, 1);
        return hy_set_adasum(s, out, &count, 1, type, pre, post);
    }
    if (s->count == 1) {
        hy_scale(out, in, count, type, pre);
        hy_scale(out, out, count, type, post);
    } else if (s->host_count == 1) {
        rc = hy_shm_allreduce(s->shm, in, out, count, type, op, pre, post);
    } else {
        rc = allreduce_levels(s, in, out, count, type, op, pre, post);
    }
    return hy_comm_result(s->comm, rc);
}

bool hy_set_is_on_one_host(const struct hy_set *s)
{
    return s->host_count == 1;
}

int hy_set_allreduce_spans(struct hy_set *s, const struct hy_span *spans, size_t span_count, enum hy_type type,
                           enum hy_reduce op, double pre, double post)
{
    int rc = s->comm->waiter.failed.code;

    if (s->count > 1 && rc == 0)
        return hy_comm_result(s->comm,
                              hy_shm_allreduce_spans(s->shm, spans, span_count, type, op, pre, average(s, op, post)));
    for (size_t i = 0; rc == 0 && i < span_count; i++)
        rc = hy_set_allreduce(s, spans[i].in, spans[i].out, spans[i].count, type, op, pre, post);
    return rc;
}

/* ---- reducescatter -------------------------------------------------------------------- */

/*
 * The block of a host is the concatenation of the results of its members. Each block is reduced within the hosts; then
 * each lane has a slice of every block and scatters them among its members; then every host shares its own block.
 */
struct scatter {
    struct hy_set *set;
    const size_t *counts; /* by index: elements of the result of each member */
    enum hy_type type;
    enum hy_reduce op;
    size_t *slices; /* sizes of the slices of this lane, in its order */
    char *lane;     /* the slices, contiguous */
    char *block;    /* room for the largest block */
};

static size_t sum_of(const size_t *counts, size_t n)
{
    size_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

static size_t block_size(const struct scatter *x, unsigned host)
{
    size_t sum = 0;

    for (unsigned p = 0; p < x->set->count_of[host]; p++)
        sum += x->counts[hy_set_at(x->set, host, p)];
    return sum;
}

/* The index in `lane` of the slice of a host's block. */
static unsigned slice_of_host(const struct scatter *x, unsigned host)
{
    unsigned i = 0;

    while (x->set->host_of[x->set->lane[i]] != host)
        i++;
    return i;
}

static int allocate_scatter(struct scatter *x)
{
    size_t largest = 0, all = 0, begin;

    x->slices = hy_calloc(x->set->host_count, sizeof *x->slices);
    for (unsigned h = 0; h < x->set->host_count; h++) {
        size_t size = block_size(x, h);

        largest = size > largest ? size : largest;
    }
    for (unsigned i = 0; x->slices && hy_set_is_in_lane(x->set) && i < x->set->host_count; i++) {
        size_t size = block_size(x, x->set->host_of[x->set->lane[i]]);

        all += x->slices[i] = hy_slice(size, x->set->lanes, x->set->place, &begin);
    }
    x->block = hy_calloc(largest + 1, hy_type_size(x->type));
    x->lane = hy_calloc(all + 1, hy_type_size(x->type));
    return x->slices && x->block && x->lane ? 0 : -ENOMEM;
}

/* The block of a host in the input; copied if its members are not contiguous. */
static const void *input_of(const struct scatter *x, const void *in, unsigned host)
{
    size_t done = 0;

    if (hy_set_is_contiguous(x->set, host))
        return at_const(in, sum_of(x->counts, hy_set_at(x->set, host, 0)), x->type);
    for (unsigned p = 0; p < x->set->count_of[host]; p++) {
        unsigned i = hy_set_at(x->set, host, p);

        hy_scale(at(x->block, done, x->type), at_const(in, sum_of(x->counts, i), x->type), x->counts[i], x->type, 1);
        done += x->counts[i];
    }
    return x->block;
}

static int reduce_blocks(struct scatter *x, const void *in, double pre)
{
    for (unsigned h = 0; h < x->set->host_count; h++) {
        size_t count = block_size(x, h), begin;
        int rc = count ? reduce_here(x->set, input_of(x, in, h), x->block, count, x->type, x->op, pre) : 0;

        if (rc < 0)
            return rc;
        if (hy_set_is_in_lane(x->set)) {
            unsigned i = slice_of_host(x, h);
            size_t n = hy_slice(count, x->set->lanes, x->set->place, &begin);

            hy_scale(at(x->lane, sum_of(x->slices, i), x->type), at(x->block, begin, x->type), n, x->type, 1);
        }
    }
    return 0;
}

/* Afterwards the slice of this rank is at its offset in the block of its host. */
static int scatter_lane(struct scatter *x)
{
    struct hy_set *s = x->set;
    size_t begin, n;
    unsigned i;
    int rc;

    if (!hy_set_is_in_lane(s))
        return 0;
    i = slice_of_host(x, s->here);
    n = hy_slice(block_size(x, s->here), s->lanes, s->place, &begin);
    rc = hy_mesh_reducescatter(s->comm->mesh, lane_peers(s), s->host_count, x->lane, x->slices, x->type, x->op);
    if (rc == 0)
        hy_scale(at(x->block, begin, x->type), at(x->lane, sum_of(x->slices, i), x->type), n, x->type, 1);
    return rc;
}

static int scatter_levels(struct scatter *x, const void *in, void *out, double pre, double post)
{
    struct hy_set *s = x->set;
    size_t before = 0;
    int rc = reduce_blocks(x, in, pre);

    if (rc == 0)
        rc = scatter_lane(x);
    if (rc == 0 && block_size(x, s->here))
        rc = share_here(s, x->block, block_size(x, s->here), x->type, post);
    if (rc < 0)
        return rc;
    for (unsigned p = 0; p < s->place; p++)
        before += x->counts[hy_set_at(s, s->here, p)];
    hy_scale(out, at(x->block, before, x->type), x->counts[s->index], x->type, 1);
    return 0;
}

int hy_set_reducescatter(struct hy_set *s, const void *in, void *out, const size_t *counts, enum hy_type type,
                         enum hy_reduce op, double pre, double post)
{
    hy_cleanup_free size_t *slices = NULL;
    hy_cleanup_free char *lane = NULL, *block = NULL;
    struct scatter x = {.set = s, .counts = counts, .type = type, .op = op};
    int rc = s->comm->waiter.failed.code;

    post = average(s, op, post);
    if (rc < 0)
        return rc;
    if (s->count == 1)
        return hy_set_allreduce(s, in, out, counts[0], type, HY_SUM, pre, post);
    if (s->host_count == 1)
        return hy_comm_result(s->comm, hy_shm_reducescatter(s->shm, in, out, counts, type, op, pre, post));
    rc = allocate_scatter(&x);
    slices = x.slices;
    lane = x.lane;
    block = x.block;
    return hy_comm_result(s->comm, rc < 0 ? rc : scatter_levels(&x, in, out, pre, post));
}
