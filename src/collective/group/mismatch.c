/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collective/group/negotiate_private.h"

const char *hy_kind_name(uint32_t kind)
{
    static const char *const names[HY_KINDS] = {"allreduce", "allgather",       "broadcast",
                                                "alltoall",  "reducescatter",   "barrier",
                                                "join",      "add_process_set", "remove_process_set"};

    return kind < HY_KINDS ? names[kind] : "?";
}

/* Whether ranks may differ in the first dimension. */
static bool has_rank_specific_rows(uint32_t kind)
{
    return kind == HY_ALLGATHER || kind == HY_ALLTOALL;
}

/* The shape of tensor i: "[2, 3]". */
static void shape_text(const Hy__Ask *ask, size_t i, char *text, size_t size)
{
    const Hy__Shape *s = ask->tensors[i];
    size_t at = (size_t)snprintf(text, size, "[");

    for (size_t d = 0; d < s->n_dims && at < size; d++)
        at += (size_t)snprintf(text + at, size - at, "%s%" PRId64, d ? ", " : "", s->dims[d]);
    if (at < size)
        snprintf(text + at, size - at, "]");
}

static bool is_same_shape(const Hy__Shape *a, const Hy__Shape *b, size_t from)
{
    return a->n_dims == b->n_dims &&
           (a->n_dims <= from || memcmp(a->dims + from, b->dims + from, (a->n_dims - from) * sizeof *a->dims) == 0);
}

/* The first tensor whose shape differs, or -1. */
static ssize_t first_shape_mismatch(const Hy__Ask *a, const Hy__Ask *b)
{
    size_t from = has_rank_specific_rows(a->kind) ? 1 : 0;

    for (size_t i = 0; i < a->n_tensors; i++)
        if (!is_same_shape(a->tensors[i], b->tensors[i], from))
            return (ssize_t)i;
    return -1;
}

static bool is_same_array(const int64_t *a, size_t n, const int64_t *b, size_t m)
{
    return n == m && (n == 0 || memcmp(a, b, n * sizeof *a) == 0);
}

bool hy_negotiator_is_same(const Hy__Ask *a, const Hy__Ask *b)
{
    if (a->kind != b->kind || a->type != b->type || a->op != b->op || a->root != b->root || a->set != b->set ||
        a->prescale != b->prescale || a->postscale != b->postscale || a->n_tensors != b->n_tensors ||
        strcmp(a->name, b->name) != 0 || !is_same_array(a->splits, a->n_splits, b->splits, b->n_splits))
        return false;
    for (size_t i = 0; i < a->n_tensors; i++)
        if (!is_same_shape(a->tensors[i], b->tensors[i], 0))
            return false;
    return true;
}

bool hy_negotiator_is_mismatch(const struct pending_request *m, unsigned rank, const Hy__Ask *b, struct hy_err *ret)
{
    const Hy__Ask *a = m->ask;
    char one[160], other[160];
    ssize_t i;

    if (a->kind != b->kind)
        hy_err_set(ret, -EBADMSG, "tensor '%s': ranks disagree on the kind of request: rank %u has %s, rank %u has %s",
                   a->name, m->first, hy_kind_name(a->kind), rank, hy_kind_name(b->kind));
    else if (a->type != b->type)
        hy_err_set(ret, -EBADMSG, "tensor '%s': ranks disagree on its type: rank %u has %s, rank %u has %s", a->name,
                   m->first, hy_type_name(a->type), rank, hy_type_name(b->type));
    else if (a->n_tensors != b->n_tensors)
        hy_err_set(ret, -EBADMSG,
                   "group '%s': ranks disagree on the number of tensors: rank %u has %zu, rank %u has %zu", a->name,
                   m->first, a->n_tensors, rank, b->n_tensors);
    else if ((i = first_shape_mismatch(a, b)) >= 0) {
        shape_text(a, (size_t)i, one, sizeof one);
        shape_text(b, (size_t)i, other, sizeof other);
        hy_err_set(ret, -EBADMSG, "tensor '%s'%s: ranks disagree on its shape: rank %u has %s, rank %u has %s", a->name,
                   a->n_tensors > 1 ? " (one of its group)" : "", m->first, one, rank, other);
    } else if (a->op != b->op)
        hy_err_set(ret, -EBADMSG, "tensor '%s': ranks disagree on the operation: rank %u has %s, rank %u has %s",
                   a->name, m->first, hy_reduce_name(a->op), rank, hy_reduce_name(b->op));
    else if (a->root != b->root)
        hy_err_set(ret, -EBADMSG, "tensor '%s': ranks disagree on the root: rank %u has %u, rank %u has %u", a->name,
                   m->first, a->root, rank, b->root);
    else if (a->prescale != b->prescale || a->postscale != b->postscale)
        hy_err_set(ret, -EBADMSG,
                   "tensor '%s': ranks disagree on the scale: rank %u has %g before and %g after, "
                   "rank %u has %g and %g",
                   a->name, m->first, a->prescale, a->postscale, rank, b->prescale, b->postscale);
    else if (a->kind != HY_ALLTOALL && !is_same_array(a->splits, a->n_splits, b->splits, b->n_splits))
        hy_err_set(ret, -EBADMSG, "%s: ranks %u and %u specify different ranks", hy_kind_name(a->kind), m->first, rank);
    else
        return false;
    return true;
}
