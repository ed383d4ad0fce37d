/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce in its two ways, and the scatters.
 *
 * Always in the order of members, never of arrival: that is why the result is
 * the same on all of them and in every run.
 *
 * An allreduce reads and writes a list of spans, so that the tensors of a group
 * need not be copied into one buffer first. Steps are cut by the sum of their
 * elements: members whose elements are spread over other spans make the same ones.
 */
#include "collective/numbers/reduce.h"
#include "collective/shm/shm_set.h"

/* A span, and the number of elements before it. */
struct cursor {
    size_t span, before;
};

struct reduction {
    struct hy_job job; /* first */
    const struct hy_span *spans; /* allreduce */
    struct cursor posted, joined, taken;
    const uint8_t *in;           /* scatter */
    uint8_t *out;
    size_t count, size, each;    /* elements, bytes of one, elements in a step (scatter: of one part) */
    enum hy_type type;
    enum hy_reduce op;
    double pre, post;
    bool stream_out;
    const size_t *counts;        /* scatter: elements of each member's part */
};

/* ---- pieces ------------------------------------------------------------------------- */

/* Elements of step `step` where `whole` are taken `each` at a time. */
static size_t piece(size_t whole, size_t each, size_t step)
{
    return step < hy_steps_for(whole, each) ? hy_smaller(each, whole - step * each) : 0;
}

/* A block, for as long as it takes to use it. */
static const uint8_t *scaled(const struct reduction *r, const uint8_t *from, size_t count)
{
    hy_scale(r->job.set->scaled, from, count, r->type, r->pre);
    return r->job.set->scaled;
}

/* Into our slot, scaled. `next`: see hy_copy_fetching. */
static void put(const struct reduction *r, uint8_t *to, const uint8_t *from, size_t count, const uint8_t *next)
{
    size_t block = HY_BLOCK / r->size;

    if (r->pre == 1) {
        hy_copy_fetching(to, from, count * r->size, r->job.stream_slots, next);
        return;
    }
    for (size_t begin = 0; begin < count; begin += block) {
        size_t n = hy_smaller(block, count - begin), offset = begin * r->size;

        hy_copy(to + offset, scaled(r, from + offset, n), n * r->size, r->job.stream_slots);
    }
}

/* The elements from `at` on that are contiguous, up to `count`. A cursor only moves forward. */
static struct hy_span contiguous(const struct reduction *r, struct cursor *c, size_t at, size_t count)
{
    const struct hy_span *span;
    size_t offset;

    while (at - c->before >= r->spans[c->span].count)
        c->before += r->spans[c->span++].count;
    span = &r->spans[c->span];
    offset = at - c->before;
    return (struct hy_span){(const uint8_t *)span->in + offset * r->size, (uint8_t *)span->out + offset * r->size,
                            hy_smaller(count, span->count - offset)};
}

/* Elements at, at + 1 ... into our slot. `next`: see hy_copy_fetching; NULL: nothing to fetch. */
static void put_elements(struct reduction *r, uint8_t *to, size_t at, size_t count, const uint8_t *next)
{
    struct hy_span s;

    for (size_t done = 0; done < count; done += s.count) {
        s = contiguous(r, &r->posted, at + done, count - done);
        put(r, to + done * r->size, s.in, s.count, next ? next + done * r->size : s.in);
    }
}

/* What is to be reduced. */
struct lot {
    const uint8_t **sources; /* by member */
    const uint8_t *own;      /* our share, as it is with the caller: our slot may be far away by now */
    size_t count;
    uint8_t *kept, *out;     /* where others will read the result, NULL: they will not; where the caller wants it */
    const uint8_t *next;     /* what is read after this: see hy_copy_fetching */
    bool stream;             /* `out` past the caches */
};

/* Block by block, so that what is passed from one pass to the next does not leave the nearest cache. */
static void combine(const struct reduction *r, const struct lot *lot)
{
    const struct hy_shm_set *set = r->job.set;
    size_t block = HY_BLOCK / r->size;
    const void *at[HY_LOCAL_MAX_RANKS];

    for (size_t begin = 0; begin < lot->count; begin += block) {
        size_t n = hy_smaller(block, lot->count - begin), offset = begin * r->size;
        uint8_t *out = lot->out + offset, *to = lot->stream || lot->kept ? set->scratch : out;

        for (unsigned i = 0; i < set->count; i++)
            at[i] = lot->sources[i] + offset;
        at[set->index] = r->pre == 1 ? lot->own + offset : scaled(r, lot->own + offset, n);
        hy_reduce(to, at, set->count, n, r->type, r->op);
        if (r->post != 1)
            hy_scale(to, to, n, r->type, r->post);
        if (lot->kept)
            hy_copy(lot->kept + offset, to, n * r->size, r->job.stream_slots);
        if (to != out)
            hy_copy_fetching(out, to, n * r->size, lot->stream, lot->next + offset);
    }
}

/*
 * Reduces elements at, at + 1 ..., which begin at `offset` in all slots. `kept`: see struct lot.
 * `distance`: how many elements later what is read next begins.
 */
static void combine_elements(struct reduction *r, struct cursor *c, size_t step, size_t offset, size_t at, size_t count,
                             uint8_t *kept, size_t distance)
{
    const uint8_t *sources[HY_LOCAL_MAX_RANKS];
    struct hy_span s;

    for (size_t done = 0; done < count; done += s.count) {
        struct lot lot = {.sources = sources};

        s = contiguous(r, c, at + done, count - done);
        lot.own = lot.next = s.in;
        lot.out = s.out;
        lot.count = s.count;
        lot.kept = kept ? kept + done * r->size : NULL;
        lot.stream = r->stream_out && s.in != s.out; /* what was just read is in the caches anyway */
        if (at + done - c->before + distance < r->spans[c->span].count)
            lot.next += distance * r->size;
        for (unsigned i = 0; i < r->job.set->count; i++)
            sources[i] = hy_job_slot(&r->job, i, step) + (offset + done) * r->size;
        combine(r, &lot);
    }
}

/* ---- direct ------------------------------------------------------------------------- */

/*
 * A post brings what will be reduced after it into the caches, if it is there
 * already; a reduction what will be posted after it. Seen to be worth a quarter
 * of the time of large ones, whose every byte comes from memory.
 */
static const uint8_t *next_source(const struct hy_job *job, size_t step)
{
    unsigned other = (job->set->index + 1) % job->set->count;
    size_t next = step - job->ahead;

    if (step >= job->ahead && hy_set_reached(job->set, other, HY_POSTED, job->first + next + 1))
        return hy_job_slot(job, other, next);
    return NULL;
}

static void direct_post(struct hy_job *job, size_t step)
{
    struct reduction *r = (struct reduction *)job;

    put_elements(r, hy_job_slot(job, job->set->index, step), step * r->each, piece(r->count, r->each, step),
                 next_source(job, step));
}

static void direct_take(struct hy_job *job, size_t step)
{
    struct reduction *r = (struct reduction *)job;

    combine_elements(r, &r->taken, step, 0, step * r->each, piece(r->count, r->each, step), NULL,
                     (job->ahead + 1) * r->each);
}

static const struct hy_job_kind direct = {.post = direct_post, .take = direct_take};

/* ---- in slices ---------------------------------------------------------------------- */

/*
 * A step's elements are cut into a slice for each member. A slot holds the
 * member's share of all slices but its own; there it puts the result.
 */
static void slices_post(struct hy_job *job, size_t step)
{
    struct reduction *r = (struct reduction *)job;
    uint8_t *slot = hy_job_slot(job, job->set->index, step);
    size_t n = piece(r->count, r->each, step), begin, own = hy_slice(n, job->set->count, job->set->index, &begin);
    size_t end = begin + own;

    put_elements(r, slot, step * r->each, begin, NULL);
    put_elements(r, slot + end * r->size, step * r->each + end, n - end, NULL);
}

static void slices_join(struct hy_job *job, size_t step)
{
    struct reduction *r = (struct reduction *)job;
    size_t n = piece(r->count, r->each, step), begin, own = hy_slice(n, job->set->count, job->set->index, &begin);

    combine_elements(r, &r->joined, step, begin, step * r->each + begin, own,
                     hy_job_slot(job, job->set->index, step) + begin * r->size, 0);
}

static void take_slice(struct reduction *r, const uint8_t *from, size_t at, size_t count)
{
    struct hy_span s;

    for (size_t done = 0; done < count; done += s.count) {
        s = contiguous(r, &r->taken, at + done, count - done);
        hy_copy(s.out, from + done * r->size, s.count * r->size, r->stream_out && s.in != s.out);
    }
}

static void slices_take(struct hy_job *job, size_t step)
{
    struct reduction *r = (struct reduction *)job;
    size_t n = piece(r->count, r->each, step), begin;

    for (unsigned i = 0; i < job->set->count; i++) {
        size_t length = hy_slice(n, job->set->count, i, &begin);

        if (i != job->set->index)
            take_slice(r, hy_job_slot(job, i, step) + begin * r->size, step * r->each + begin, length);
    }
}

static const struct hy_job_kind slices = {.post = slices_post, .join = slices_join, .take = slices_take};

/* ---- allreduce ---------------------------------------------------------------------- */

/* A set of one: nothing to wait for. */
static int reduce_alone(const void *in, void *out, size_t count, enum hy_type type, double pre, double post)
{
    if (count) {
        hy_scale(out, in, count, type, pre);
        hy_scale(out, out, count, type, post);
    }
    return 0;
}

static size_t elements_in(const struct hy_span *spans, size_t span_count)
{
    size_t sum = 0;

    for (size_t i = 0; i < span_count; i++)
        sum += spans[i].count;
    return sum;
}

static int allreduce_by(struct hy_shm_set *set, const struct hy_span *spans, size_t count, enum hy_type type,
                        enum hy_reduce op, double pre, double post, const struct hy_choice *choice)
{
    size_t size = hy_type_size(type), each = hy_smaller(choice->segment, set->slot_bytes) / size;
    struct reduction r = {
        .job = {.kind = choice->way == HY_DIRECT ? &direct : &slices,
                .steps = hy_steps_for(count, each),
                .ahead = choice->ahead,
                .step_bytes = hy_smaller(count, each) * size},
        .spans = spans,
        .count = count,
        .size = size,
        .each = each,
        .type = type,
        .op = op,
        .pre = pre,
        .post = post,
        .stream_out = choice->stream_out,
    };
    int rc = hy_set_run(set, &r.job);

    if (r.stream_out)
        hy_copy_fence();
    return rc;
}

int hy_shm_allreduce_by(struct hy_shm_set *set, const void *in, void *out, size_t count, enum hy_type type,
                        enum hy_reduce op, double pre, double post, const struct hy_choice *choice)
{
    return allreduce_by(set, &(struct hy_span){in, out, count}, count, type, op, pre, post, choice);
}

int hy_shm_allreduce_spans(struct hy_shm_set *set, const struct hy_span *spans, size_t span_count, enum hy_type type,
                           enum hy_reduce op, double pre, double post)
{
    size_t count = elements_in(spans, span_count), bytes = count * hy_type_size(type);
    struct hy_choice choice = *hy_choose(set->count, bytes);

    choice.stream_out &= bytes > set->stream_from;
    if (set->count > 1)
        return allreduce_by(set, spans, count, type, op, pre, post, &choice);
    for (size_t i = 0; i < span_count; i++)
        reduce_alone(spans[i].in, spans[i].out, spans[i].count, type, pre, post);
    return 0;
}

int hy_shm_allreduce(struct hy_shm_set *set, const void *in, void *out, size_t count, enum hy_type type,
                     enum hy_reduce op, double pre, double post)
{
    return hy_shm_allreduce_spans(set, &(struct hy_span){in, out, count}, 1, type, op, pre, post);
}

/* ---- scatter ------------------------------------------------------------------------ */

/* A slot has room for `each` elements for every member. */
static void scatter_post(struct hy_job *job, size_t step)
{
    struct reduction *r = (struct reduction *)job;
    uint8_t *slot = hy_job_slot(job, job->set->index, step);
    const uint8_t *in = r->in;

    for (unsigned i = 0; i < job->set->count; i++) {
        size_t n = piece(r->counts[i], r->each, step);

        if (n && i != job->set->index)
            put(r, slot + i * r->each * r->size, in + step * r->each * r->size, n, in);
        in += r->counts[i] * r->size;
    }
}

static void scatter_take(struct hy_job *job, size_t step)
{
    struct reduction *r = (struct reduction *)job;
    unsigned index = job->set->index;
    const uint8_t *sources[HY_LOCAL_MAX_RANKS];
    struct lot lot = {.sources = sources,
                      .own = r->in + step * r->each * r->size,
                      .count = piece(r->counts[index], r->each, step),
                      .out = r->out + step * r->each * r->size};

    for (unsigned i = 0; i < index; i++)
        lot.own += r->counts[i] * r->size;
    for (unsigned i = 0; i < job->set->count; i++)
        sources[i] = hy_job_slot(job, i, step) + index * r->each * r->size;
    lot.next = lot.own;
    combine(r, &lot);
}

static const struct hy_job_kind scatter = {.post = scatter_post, .take = scatter_take};

static size_t largest(const size_t *counts, unsigned n)
{
    size_t most = 0;

    for (unsigned i = 0; i < n; i++)
        most = counts[i] > most ? counts[i] : most;
    return most;
}

int hy_shm_reducescatter(struct hy_shm_set *set, const void *in, void *out, const size_t *counts, enum hy_type type,
                         enum hy_reduce op, double pre, double post)
{
    size_t size = hy_type_size(type), each = (set->slot_bytes / set->count & ~63ul) / size;
    struct reduction r = {
        .job = {.kind = &scatter,
                .steps = hy_steps_for(largest(counts, set->count), each),
                .ahead = 1,
                .step_bytes = 0}, /* unequal parts tell nothing about its pace */
        .in = in,
        .out = out,
        .size = size,
        .each = each,
        .type = type,
        .op = op,
        .pre = pre,
        .post = post,
        .counts = counts,
    };

    if (set->count == 1)
        return reduce_alone(in, out, counts[0], type, pre, post);
    return hy_set_run(set, &r.job);
}

int hy_shm_reduce_slices(struct hy_shm_set *set, const void *in, void *out, size_t count, enum hy_type type,
                         enum hy_reduce op, double pre, unsigned lanes)
{
    size_t counts[HY_LOCAL_MAX_RANKS] = {0}, begin, own = 0;

    for (unsigned i = 0; i < set->count && i < lanes; i++) {
        counts[i] = hy_slice(count, lanes, i, &begin);
        if (i == set->index)
            own = begin;
    }
    return hy_shm_reducescatter(set, in, (uint8_t *)out + own * hy_type_size(type), counts, type, op, pre, 1);
}
