/* SPDX-License-Identifier: Apache-2.0 */
/* Executes an order on the tensors of this rank. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "collective/group/group.h"

#define HUGE_PAGE (2u << 20) /* with small pages, page faults cost more than the operation */

/* An order for a request of this rank or, after a join, of other ranks only. */
struct order {
    struct hy_group *g;
    struct work *w;            /* NULL: this rank has joined */
    const Hy__Ask *ask;        /* NULL: described by the work */
    const struct group_set *set;
    uint32_t kind, type, op, root;
    double prescale, postscale;
    size_t tensor_count;
    const int64_t *table;
    struct hy_err *err;
};

static size_t elements_from(const int64_t *dims, size_t count, size_t first)
{
    size_t n = 1;

    for (size_t d = first; d < count; d++)
        n *= (size_t)dims[d];
    return n;
}

static size_t elements_of(const struct order *o, size_t tensor, size_t first_dim)
{
    const struct hy_tensor *t = o->w ? &o->w->tensors[tensor] : NULL;

    if (t)
        return elements_from(t->dims, t->dim_count, first_dim);
    return elements_from(o->ask->tensors[tensor]->dims, o->ask->tensors[tensor]->n_dims, first_dim);
}

/* Orders are validated: rank 0 must not be able to make this rank write out of bounds. */
static int invalid_order(const struct order *o)
{
    return hy_err_set(o->err, -EPROTO, "rank 0 ordered an invalid shape");
}

static int check_order(const struct order *o)
{
    size_t bytes, sum = 0;

    for (size_t i = 0; !o->w && i < o->tensor_count; i++) {
        bytes = hy_type_size(o->type);
        for (size_t d = 0; d < o->ask->tensors[i]->n_dims; d++)
            if (o->ask->tensors[i]->dims[d] < 0 ||
                __builtin_mul_overflow(bytes, (size_t)o->ask->tensors[i]->dims[d], &bytes) || bytes > SIZE_MAX >> 8)
                return invalid_order(o);
        sum += bytes;
        if (sum > SIZE_MAX >> 8)
            return invalid_order(o);
    }
    return 0;
}

/* *at += rows * row, with overflow checks. */
static int add_rows(const struct order *o, int64_t rows, size_t row, size_t *ret_bytes, size_t *at)
{
    if (rows < 0 || __builtin_mul_overflow((size_t)rows, row, ret_bytes) ||
        __builtin_add_overflow(*at, *ret_bytes, at) || *at > SIZE_MAX >> 1)
        return invalid_order(o);
    return 0;
}

/* ---- allreduce ------------------------------------------------------------------- */

static void *stage(struct hy_group *g, size_t size)
{
    if (size > g->stage_size) {
        free(g->stage);
        g->stage_size = 0;
        g->stage = aligned_alloc(HUGE_PAGE, (size + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1));
        if (!g->stage)
            return NULL;
        g->stage_size = size;
        if (size >= HUGE_PAGE)
            (void)madvise(g->stage, size, MADV_HUGEPAGE); /* optional: not all kernels have them */
    }
    return g->stage;
}

static int reduce_staged(const struct order *o, void *buf, size_t elements, const size_t *counts)
{
    struct hy_set *set = o->set->set;

    if (o->op == HY_ADASUM)
        return hy_set_adasum(set, buf, counts, o->tensor_count, o->type, o->prescale, o->postscale);
    return hy_set_allreduce(set, buf, buf, elements, o->type, o->op, o->prescale, o->postscale);
}

/* Several tensors, or the zeros of a joined rank: contiguous in one buffer. */
static int allreduce_together(const struct order *o, const size_t *counts, size_t elements)
{
    size_t width = hy_type_size(o->type), at = 0;
    char *buf = stage(o->g, elements * width + 1);
    int rc;

    if (!buf) /* the other ranks execute it anyway, so the group fails, not only this request */
        return hy_err_oom(o->err);
    if (!o->w)
        memset(buf, 0, elements * width);
    for (size_t i = 0; o->w && i < o->tensor_count; at += counts[i++] * width)
        if (counts[i])
            memcpy(buf + at, o->w->tensors[i].in, counts[i] * width);
    rc = reduce_staged(o, buf, elements, counts);
    at = 0;
    for (size_t i = 0; rc == 0 && o->w && i < o->tensor_count; at += counts[i++] * width)
        if (counts[i])
            memcpy(o->w->tensors[i].out, buf + at, counts[i] * width);
    return rc;
}

/* Where each result has memory of its own: one that is reduced in place might be listed twice. */
static bool has_spans(const struct order *o)
{
    if (!o->w || o->op == HY_ADASUM || !hy_set_is_on_one_host(o->set->set))
        return false;
    for (size_t i = 0; i < o->tensor_count; i++)
        if (o->w->tensors[i].in == o->w->tensors[i].out && elements_of(o, i, 0))
            return false;
    return true;
}

/* Straight from the tensors and into them. */
static int allreduce_spans(const struct order *o)
{
    hy_cleanup_free struct hy_span *spans = hy_calloc(o->tensor_count + 1, sizeof *spans);

    if (!spans)
        return hy_err_oom(o->err);
    for (size_t i = 0; i < o->tensor_count; i++)
        spans[i] = (struct hy_span){o->w->tensors[i].in, o->w->tensors[i].out, elements_of(o, i, 0)};
    return hy_set_allreduce_spans(o->set->set, spans, o->tensor_count, o->type, o->op, o->prescale, o->postscale);
}

static int allreduce(const struct order *o)
{
    hy_cleanup_free size_t *counts = hy_calloc(o->tensor_count + 1, sizeof *counts);
    size_t elements = 0;

    if (!counts)
        return hy_err_oom(o->err);
    for (size_t i = 0; i < o->tensor_count; i++)
        elements += counts[i] = elements_of(o, i, 0);
    if (o->tensor_count > 1 && has_spans(o))
        return allreduce_spans(o);
    if (o->w && o->tensor_count == 1 && o->op != HY_ADASUM)
        return hy_set_allreduce(o->set->set, o->w->tensors[0].in, o->w->tensors[0].out, elements, o->type, o->op,
                                o->prescale, o->postscale);
    return allreduce_together(o, counts, elements);
}

/* ---- other operations -------------------------------------------------------------------- */

/* Memory for an output with that many rows and the other dimensions of the input. */
static int allocate(const struct order *o, size_t tensor, int64_t rows, void **ret)
{
    const struct hy_tensor *t = &o->w->tensors[tensor];
    int64_t dims[HY_DIMS_MAX];
    size_t bytes = hy_type_size(o->type) * elements_of(o, tensor, 1) * (size_t)rows; /* checked by add_rows */

    memcpy(dims, t->dims, sizeof dims);
    dims[0] = rows;
    *ret = o->w->request.allocate(o->w->request.arg, tensor, dims, t->dim_count, bytes);
    return *ret ? 0
                : hy_err_set(o->err, -ENOMEM, "'%s': no memory for a result of %zu bytes", o->w->request.name, bytes);
}

static int gather_tensor(const struct order *o, size_t tensor, size_t *sizes, size_t *offsets)
{
    size_t row = hy_type_size(o->type) * elements_of(o, tensor, 1), at = 0;
    int64_t rows = 0;
    void *out = NULL;
    int rc = 0;

    for (unsigned m = 0; m < o->set->count; m++) {
        int64_t n = o->table[(size_t)m * o->tensor_count + tensor];
        bool is_ours = m == hy_set_index(o->set->set);

        offsets[m] = at;
        if (add_rows(o, n, row, &sizes[m], &at) < 0 || __builtin_add_overflow(rows, n, &rows) ||
            (is_ours && n != (o->w ? o->w->tensors[tensor].dims[0] : 0)))
            return invalid_order(o);
    }
    if (o->w)
        rc = allocate(o, tensor, rows, &out);
    else
        out = stage(o->g, at + 1);
    if (rc < 0 || !out)
        return rc < 0 ? rc : hy_err_oom(o->err);
    return hy_set_allgather(o->set->set, o->w ? o->w->tensors[tensor].in : NULL, out, sizes, offsets);
}

static int allgather(const struct order *o)
{
    hy_cleanup_free size_t *sizes = hy_calloc(o->set->count, 2 * sizeof *sizes);
    int rc = sizes ? 0 : hy_err_oom(o->err);

    for (size_t i = 0; rc == 0 && i < o->tensor_count; i++)
        rc = gather_tensor(o, i, sizes, sizes + o->set->count);
    return rc;
}

static int broadcast(const struct order *o)
{
    unsigned root = 0;
    int rc = 0;

    while (root < o->set->count && o->set->members[root] != o->root)
        root++;
    if (root == o->set->count)
        return hy_err_set(o->err, -EINVAL,
                          "tensor '%s': rank %u, the root of the broadcast, is not a member of the process set",
                          o->w->request.name, o->root);
    for (size_t i = 0; rc == 0 && i < o->tensor_count; i++) {
        struct hy_tensor *t = &o->w->tensors[i];
        size_t bytes = elements_of(o, i, 0) * hy_type_size(o->type);

        if (hy_set_index(o->set->set) == root && t->out != t->in && bytes)
            memcpy(t->out, t->in, bytes);
        rc = hy_set_broadcast(o->set->set, t->out, bytes, root);
    }
    return rc;
}

/* The number of rows received from each member. */
static int give_received_splits(const struct order *o, unsigned me)
{
    unsigned count = o->set->count;
    const int64_t dims[] = {count};
    int32_t *out = o->w->request.allocate(o->w->request.arg, 1, dims, 1, count * sizeof *out);

    if (!out)
        return hy_err_oom(o->err);
    for (unsigned m = 0; m < count; m++)
        out[m] = (int32_t)o->table[m * count + me];
    return 0;
}

/* Bytes from each member to each; the row of this rank must match its splits. */
static int fill_matrix(const struct order *o, size_t row, size_t *matrix)
{
    unsigned count = o->set->count, me = hy_set_index(o->set->set);

    for (unsigned from = 0; from < count; from++) {
        size_t sum = 0;

        for (unsigned to = 0; to < count; to++)
            if (add_rows(o, o->table[from * count + to], row, &matrix[from * count + to], &sum) < 0 ||
                (from == me && o->table[from * count + to] != o->w->splits[to]))
                return invalid_order(o);
    }
    return 0;
}

static int alltoall(const struct order *o)
{
    unsigned count = o->set->count, me = hy_set_index(o->set->set);
    size_t row = hy_type_size(o->type) * elements_of(o, 0, 1);
    hy_cleanup_free size_t *matrix = hy_calloc((size_t)count * count, sizeof *matrix);
    int64_t rows = 0;
    void *out;
    int rc;

    if (!matrix)
        return hy_err_oom(o->err);
    rc = fill_matrix(o, row, matrix);
    for (unsigned m = 0; rc == 0 && m < count; m++)
        if (__builtin_add_overflow(rows, o->table[m * count + me], &rows))
            rc = invalid_order(o);
    if (rc == 0)
        rc = allocate(o, 0, rows, &out);
    if (rc == 0)
        rc = give_received_splits(o, me);
    return rc < 0 ? rc : hy_set_alltoall(o->set->set, o->w->tensors[0].in, out, matrix);
}

/* If the rows cannot be divided equally, the first members get one more. */
static int scatter_tensor(const struct order *o, size_t tensor, size_t *counts)
{
    unsigned members = o->set->count, me = hy_set_index(o->set->set);
    const struct hy_tensor *t = &o->w->tensors[tensor];
    int64_t each = t->dims[0] / members, extra = t->dims[0] % members;
    size_t row = elements_of(o, tensor, 1);
    void *out;
    int rc = allocate(o, tensor, each + (me < extra), &out);

    for (unsigned m = 0; m < members; m++)
        counts[m] = (size_t)(each + (m < extra)) * row;
    if (rc < 0)
        return rc;
    return hy_set_reducescatter(o->set->set, t->in, out, counts, o->type, o->op, o->prescale, o->postscale);
}

static int reducescatter(const struct order *o)
{
    hy_cleanup_free size_t *counts = hy_calloc(o->set->count, sizeof *counts);
    int rc = counts ? 0 : hy_err_oom(o->err);

    for (size_t i = 0; rc == 0 && i < o->tensor_count; i++)
        rc = scatter_tensor(o, i, counts);
    return rc;
}

/* ---- sets --------------------------------------------------------------------------- */

static void remove_set(struct hy_group *g, int64_t number)
{
    struct group_set *set = &g->sets[number];

    pthread_mutex_lock(&g->lock);
    hy_set_close(set->set);
    free(set->members);
    *set = (struct group_set){0};
    pthread_mutex_unlock(&g->lock);
}

bool hy_group_add_set(struct hy_group *g, uint32_t number, const int64_t *members, size_t count, struct hy_err *err)
{
    unsigned *list = hy_calloc(count + 1, sizeof *list);
    struct hy_set *set = NULL;
    bool is_member = false;

    if (!list) {
        hy_err_oom(err);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        list[i] = (unsigned)members[i];
        is_member |= list[i] == g->rank;
    }
    if (is_member && hy_set_open(g->comm, number, list, (unsigned)count, &set, err) < 0) {
        free(list);
        return false;
    }
    pthread_mutex_lock(&g->lock);
    g->sets[number] = (struct group_set){.set = set, .members = list, .count = (unsigned)count};
    pthread_mutex_unlock(&g->lock);
    return true;
}

static int change_sets(const struct order *o, uint32_t answer)
{
    const struct work *w = o->w;

    if (o->kind == HY_SET_REMOVE) {
        remove_set(o->g, w->splits[0]);
        return hy_set_barrier(o->set->set); /* its memory can be reused when all ranks have closed it */
    }
    if (answer == 0 || answer >= HY_SETS_MAX)
        return hy_err_set(o->err, -EPROTO, "rank 0 assigned an invalid number to a process set");
    else if (!hy_group_add_set(o->g, answer, w->splits, w->split_count, o->err))
        return o->err->code == -ENOMEM ? -ENOMEM : -EPROTO; /* the other ranks have added it */
    return 0;
}

/* ---- dispatch ---------------------------------------------------------------------------- */

static int perform(const struct order *o, uint32_t answer)
{
    switch (o->kind) {
    case HY_ALLREDUCE:
        return allreduce(o);
    case HY_ALLGATHER:
        return allgather(o);
    case HY_BARRIER:
        return hy_set_barrier(o->set->set);
    default:
        break;
    }
    if (!o->w)
        return hy_err_set(o->err, -EPROTO, "rank 0 ordered an operation in which a joined rank cannot take part");
    switch (o->kind) {
    case HY_BROADCAST:
        return broadcast(o);
    case HY_ALLTOALL:
        return alltoall(o);
    case HY_REDUCESCATTER:
        return reducescatter(o);
    case HY_SET_ADD:
    case HY_SET_REMOVE:
        return change_sets(o, answer);
    default:
        return 0; /* the end of a join */
    }
}

static size_t table_size(const struct order *o)
{
    return o->kind == HY_ALLGATHER  ? o->tensor_count * o->set->count
           : o->kind == HY_ALLTOALL ? (size_t)o->set->count * o->set->count
                                    : 0;
}

int hy_group_perform(struct hy_group *g, struct work *w, const Hy__Ask *ask, const Hy__Run *run, int64_t *ret_result,
                     struct hy_err *err)
{
    struct order o = {.g = g, .w = w, .ask = ask, .table = run->table, .err = err};
    uint32_t set = w ? w->request.set : ask->set;
    int rc;

    if (w)
        o.kind = w->request.kind, o.type = w->request.type, o.op = w->request.op, o.root = w->request.root,
        o.prescale = w->request.prescale, o.postscale = w->request.postscale, o.tensor_count = w->request.tensor_count;
    else
        o.kind = ask->kind, o.type = ask->type, o.op = ask->op, o.root = ask->root, o.prescale = ask->prescale,
        o.postscale = ask->postscale, o.tensor_count = ask->n_tensors;
    if (set >= HY_SETS_MAX || !g->sets[set].set || o.type >= HY_TYPES || o.kind >= HY_KINDS || o.op >= HY_REDUCES)
        return hy_err_set(err, -EPROTO, "rank 0 sent an invalid order");
    o.set = &g->sets[set];
    rc = run->n_table == table_size(&o) ? check_order(&o) : hy_err_set(err, -EPROTO, "rank 0 sent an incomplete order");
    if (rc == 0)
        rc = perform(&o, run->answer);
    if (rc < 0 && !err->code)
        *err = *hy_comm_error(g->comm);
    *ret_result = run->answer;
    return rc;
}
