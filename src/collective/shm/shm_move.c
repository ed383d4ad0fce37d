/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives that move bytes without reducing them: broadcast, allgather, alltoall; and the barrier. */
#include "collective/numbers/reduce.h"
#include "collective/shm/shm_set.h"

struct movement {
    struct hy_job job; /* first */
    const uint8_t *in;
    uint8_t *out;
    size_t each;       /* bytes per step (alltoall: to one member) */
    const size_t *sizes, *offsets; /* allgather; broadcast: of its single piece */
    const size_t *matrix;          /* alltoall */
    bool stream_out;
};

static size_t piece(const struct movement *m, size_t whole, size_t step)
{
    return step < hy_steps_for(whole, m->each) ? hy_smaller(m->each, whole - step * m->each) : 0;
}

static int run(struct hy_shm_set *set, struct movement *m, size_t bytes)
{
    int rc;

    m->stream_out = bytes >= hy_move_choice()->stream_from;
    m->job.ahead = hy_move_choice()->ahead;
    m->job.steps = hy_steps_for(bytes, m->each);
    rc = hy_set_run(set, &m->job);
    if (m->stream_out)
        hy_copy_fence();
    return rc;
}

/* ---- barrier ------------------------------------------------------------------------ */

static void no_op(struct hy_job *job, size_t step)
{
    (void)job;
    (void)step;
}

static const struct hy_job_kind barrier = {.post = no_op, .take = no_op};

int hy_shm_barrier(struct hy_shm_set *set)
{
    struct hy_job job = {.kind = &barrier, .steps = 1};

    return hy_set_run(set, &job);
}

/* ---- broadcast ---------------------------------------------------------------------- */

static void broadcast_post(struct hy_job *job, size_t step)
{
    struct movement *m = (struct movement *)job;

    hy_copy(hy_job_slot(job, job->set->index, step), m->out + step * m->each, piece(m, m->sizes[0], step),
            job->stream_slots);
}

static void broadcast_take(struct hy_job *job, size_t step)
{
    struct movement *m = (struct movement *)job;

    if (job->poster != job->set->index)
        hy_copy(m->out + step * m->each, hy_job_slot(job, job->poster, step), piece(m, m->sizes[0], step),
                m->stream_out);
}

static const struct hy_job_kind broadcast = {.post = broadcast_post, .take = broadcast_take};

int hy_shm_broadcast(struct hy_shm_set *set, void *bytes, size_t n, unsigned root)
{
    struct movement m = {
        .job = {.kind = &broadcast, .one_posts = true, .poster = root},
        .out = bytes,
        .each = hy_smaller(hy_move_choice()->segment, set->slot_bytes),
        .sizes = &n,
    };

    m.job.step_bytes = hy_smaller(n, m.each);
    return run(set, &m, n);
}

/* ---- allgather ---------------------------------------------------------------------- */

static void gather_post(struct hy_job *job, size_t step)
{
    struct movement *m = (struct movement *)job;
    size_t n = piece(m, m->sizes[job->set->index], step);

    if (n)
        hy_copy(hy_job_slot(job, job->set->index, step), m->in + step * m->each, n, job->stream_slots);
}

static void gather_take(struct hy_job *job, size_t step)
{
    struct movement *m = (struct movement *)job;

    for (unsigned i = 0; i < job->set->count; i++) {
        size_t n = piece(m, m->sizes[i], step);

        if (n && i != job->set->index)
            hy_copy(m->out + m->offsets[i] + step * m->each, hy_job_slot(job, i, step), n, m->stream_out);
    }
}

static const struct hy_job_kind gather = {.post = gather_post, .take = gather_take};

static size_t largest(const size_t *sizes, size_t n)
{
    size_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = sizes[i] > most ? sizes[i] : most;
    return most;
}

int hy_shm_allgather(struct hy_shm_set *set, const void *in, void *out, const size_t *sizes, const size_t *offsets)
{
    struct movement m = {
        .job = {.kind = &gather},
        .in = in,
        .out = out,
        .each = hy_smaller(hy_move_choice()->segment, set->slot_bytes),
        .sizes = sizes,
        .offsets = offsets,
    };
    uint8_t *own = m.out + offsets[set->index];

    m.job.step_bytes = hy_smaller(sizes[set->index], m.each);
    if (sizes[set->index] && own != m.in)
        memcpy(own, in, sizes[set->index]);
    return run(set, &m, largest(sizes, set->count));
}

int hy_shm_share_slices(struct hy_shm_set *set, void *out, size_t count, enum hy_type type, double post, unsigned lanes)
{
    size_t sizes[HY_LOCAL_MAX_RANKS] = {0}, offsets[HY_LOCAL_MAX_RANKS] = {0}, size = hy_type_size(type), begin;
    uint8_t *own;

    for (unsigned i = 0; i < set->count && i < lanes; i++) {
        sizes[i] = hy_slice(count, lanes, i, &begin) * size;
        offsets[i] = begin * size;
    }
    own = (uint8_t *)out + offsets[set->index];
    if (post != 1 && sizes[set->index])
        hy_scale(own, own, sizes[set->index] / size, type, post);
    return hy_shm_allgather(set, own, out, sizes, offsets);
}

/* ---- alltoall ----------------------------------------------------------------------- */

static size_t entry(const struct movement *m, unsigned from, unsigned to)
{
    return m->matrix[(size_t)from * m->job.set->count + to];
}

/* A slot has room for `each` bytes for every member. */
static void alltoall_post(struct hy_job *job, size_t step)
{
    struct movement *m = (struct movement *)job;
    unsigned index = job->set->index;
    const uint8_t *in = m->in;

    for (unsigned i = 0; i < job->set->count; i++) {
        size_t n = piece(m, entry(m, index, i), step);

        if (n && i != index)
            hy_copy(hy_job_slot(job, index, step) + i * m->each, in + step * m->each, n, job->stream_slots);
        in += entry(m, index, i);
    }
}

static void alltoall_take(struct hy_job *job, size_t step)
{
    struct movement *m = (struct movement *)job;
    unsigned index = job->set->index;
    uint8_t *out = m->out;

    for (unsigned i = 0; i < job->set->count; i++) {
        size_t n = piece(m, entry(m, i, index), step);

        if (n && i != index)
            hy_copy(out + step * m->each, hy_job_slot(job, i, step) + index * m->each, n, m->stream_out);
        out += entry(m, i, index);
    }
}

static const struct hy_job_kind alltoall = {.post = alltoall_post, .take = alltoall_take};

static void copy_own(const struct movement *m, const struct hy_shm_set *set)
{
    size_t from = 0, to = 0, n = entry(m, set->index, set->index);

    for (unsigned i = 0; i < set->index; i++) {
        from += entry(m, set->index, i);
        to += entry(m, i, set->index);
    }
    if (n)
        memcpy(m->out + to, m->in + from, n);
}

int hy_shm_alltoall(struct hy_shm_set *set, const void *in, void *out, const size_t *matrix)
{
    struct movement m = {
        .job = {.kind = &alltoall, .set = set},
        .in = in,
        .out = out,
        .each = set->slot_bytes / set->count & ~63ul,
        .matrix = matrix,
    };

    copy_own(&m, set);
    return run(set, &m, largest(matrix, (size_t)set->count * set->count));
}
