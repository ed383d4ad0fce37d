/* SPDX-License-Identifier: Apache-2.0 */
/* What a dataset expects of rows, and whether a batch matches it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "feed/cast.h"
#include "feed/signature.h"

void hy_signature_done(struct hy_signature *sig)
{
    free(sig->text);
    free(sig->columns);
    free(sig->seen);
    free(sig->indexes);
    hy_feed_schema_done(&sig->schema);
    *sig = (struct hy_signature){0};
}

int hy_signature_init(struct hy_signature *sig, const char *text, bool allows_extra,
                      const struct hy_signature_column *columns, uint32_t count)
{
    int rc = -ENOMEM;

    *sig = (struct hy_signature){.allows_extra = allows_extra, .count = count};
    sig->text = hy_strdup(text);
    sig->columns = hy_calloc(count, sizeof *sig->columns);
    sig->indexes = hy_calloc(count, sizeof *sig->indexes);
    if (sig->text && sig->columns && sig->indexes) {
        memcpy(sig->columns, columns, count * sizeof *columns);
        rc = hy_feed_schema_parse(sig->text, strlen(sig->text), &sig->schema);
    }
    if (rc == 0 && sig->schema.columns != count)
        rc = -EBADMSG;
    if (rc < 0)
        hy_signature_done(sig);
    return rc == -EBADMSG ? -EINVAL : rc;
}

static bool has_children(const struct hy_feed_schema_node *n)
{
    return n->kind == '(' || n->kind == '[' || n->kind == '{' || n->kind == '<';
}

static bool has_names(const struct hy_feed_schema_node *n)
{
    return n->kind == '{' || n->kind == '<';
}

/* The index after a node and its descendants. */
static size_t after_subtree(const struct hy_feed_schema *s, size_t at)
{
    for (uint32_t left = 1; left; left--, at++)
        left += s->nodes[at].count;
    return at;
}

/* The child of that name; 0: there is none. */
static size_t child_of_name(const struct hy_feed_schema *s, size_t self, const struct hy_feed_schema_node *name)
{
    size_t at = self + 1;

    for (uint32_t i = 0; i < s->nodes[self].count; i++, at = after_subtree(s, at))
        if (s->nodes[at].key_n == name->key_n && memcmp(s->nodes[at].key, name->key, name->key_n) == 0)
            return at;
    return 0;
}

/* Finds the columns of the expected node *at in a node of the row: by name where it has names, else by position. */
static bool find_columns(struct hy_signature *sig, size_t *at, const struct hy_feed_schema *row, size_t self)
{
    const struct hy_feed_schema_node *expected = &sig->schema.nodes[(*at)++], *n = &row->nodes[self];
    size_t child = self + 1;

    if (!has_children(expected)) {
        sig->indexes[expected->column] = n->column;
        return !has_children(n);
    }
    if (!has_children(n) || (sig->allows_extra ? n->count < expected->count
                                               : n->count != expected->count || has_names(n) != has_names(expected)))
        return false;
    for (uint32_t i = 0; i < expected->count; i++) {
        const size_t here = has_names(expected) ? child_of_name(row, self, &sig->schema.nodes[*at]) : child;

        if (!here || !find_columns(sig, at, row, here))
            return false;
        child = after_subtree(row, child);
    }
    return true;
}

/* Sets sig->indexes for batches of this schema. */
static int find_indexes(struct hy_signature *sig, const struct hy_batch_cursor *r, struct hy_err *err)
{
    const struct hy_batch *b = r->batch;
    size_t at = 0;
    char *seen;

    if (sig->seen && sig->seen_n == b->schema_n && memcmp(sig->seen, b->schema, b->schema_n) == 0)
        return 0;
    if (hy_batch_cursor_is_pickled(r))
        return hy_err_set(err, -EINVAL, "received pickled rows, which have no columns; " HY_GATHER_ADVICE);
    if (!find_columns(sig, &at, &r->schema, 0))
        return hy_err_set(err, -EINVAL, "received rows of the form %.*s, but expected %s; " HY_GATHER_ADVICE,
                          b->schema_n < 200 ? (int)b->schema_n : 200, b->schema, sig->text);
    seen = hy_reallocarray(sig->seen, b->schema_n + 1, 1);
    if (!seen)
        return hy_err_oom(err);
    memcpy(seen, b->schema, b->schema_n);
    sig->seen = seen;
    sig->seen_n = b->schema_n;
    return 0;
}

/* ---- columns ------------------------------------------------------------------------------ */

/* "(2, any)", in Python's notation. */
static const char *shape_text(char *room, size_t n, const char *first, const int64_t *dims, unsigned count)
{
    size_t at = (size_t)snprintf(room, n, "(%s", first);

    for (unsigned i = 0; i < count && at < n; i++) {
        const char *before = i || *first ? ", " : "";

        at += (size_t)(dims[i] < 0 ? snprintf(room + at, n - at, "%sany", before)
                                   : snprintf(room + at, n - at, "%s%lld", before, (long long)dims[i]));
    }
    if (at < n)
        (void)snprintf(room + at, n - at, "%s)", count + (*first != 0) == 1 ? "," : "");
    return room;
}

static int shape_error(const struct hy_gathered_column *g, const struct hy_signature_column *spec,
                       const struct hy_batch_column *c, struct hy_err *err)
{
    char received[120], expected[120];
    int64_t dims[HY_BATCH_DIMS], current[HY_BATCH_DIMS];

    for (unsigned i = 0; i < HY_BATCH_DIMS; i++) {
        dims[i] = (int64_t)c->shape[i];
        current[i] = (int64_t)g->like.shape[i];
    }
    shape_text(received, sizeof received, c->is_ragged ? "ragged" : "", dims, c->dims);
    shape_text(expected, sizeof expected, spec->is_ragged ? "ragged" : "", spec->dims < 0 ? current : spec->shape,
               spec->dims < 0 ? g->like.dims : (unsigned)spec->dims);
    return hy_err_set(err, -EINVAL,
                      "column %s: received rows of shape %s, but expected %s; give a signature with that "
                      "shape, or " HY_GATHER_ADVICE,
                      spec->name, received, expected);
}

/* Where the signature allows any shape, the first rows determine it. */
static bool shape_fits(struct hy_gathered_column *g, const struct hy_signature_column *spec, const uint64_t *shape,
                       unsigned dims, bool is_first)
{
    if (spec->dims >= 0 && (unsigned)spec->dims != dims)
        return false;
    for (unsigned i = 0; spec->dims >= 0 && i < dims; i++)
        if (spec->shape[i] >= 0 && (uint64_t)spec->shape[i] != shape[i])
            return false;
    if (is_first) {
        g->like.dims = dims;
        memcpy(g->like.shape, shape, dims * sizeof *shape);
    }
    return g->like.dims == dims && memcmp(g->like.shape, shape, dims * sizeof *shape) == 0;
}

/* A column may be ragged in the batch and fixed in the signature, or the other way round. */
static int match_column(struct hy_gathered_column *g, const struct hy_signature_column *spec,
                        const struct hy_batch_column *c, uint32_t row, bool is_first, struct hy_err *err)
{
    uint64_t shape[HY_BATCH_DIMS + 1], from, to;
    bool is_fit;

    if (!hy_cast_is_safe(c->dtype, spec->dtype))
        return hy_err_set(err, -EINVAL,
                          "column %s: received %s, which cannot be cast to %s safely; give another "
                          "signature",
                          spec->name, hy_dtype_name(c->dtype), hy_dtype_name(spec->dtype));
    if (c->is_ragged && !hy_ends_at(c->row_ends, row, c->items, &from, &to))
        return -EBADMSG;
    shape[0] = c->is_ragged ? to - from : 0; /* of the first row; add_rows checks the others */
    memcpy(shape + 1, c->shape, sizeof c->shape);
    if (c->is_ragged == spec->is_ragged)
        is_fit = shape_fits(g, spec, shape + 1, c->dims, is_first);
    else if (spec->is_ragged)
        is_fit = c->dims > 0 && shape_fits(g, spec, shape + 2, c->dims - 1, is_first);
    else
        is_fit = c->dims < HY_BATCH_DIMS && shape_fits(g, spec, shape, c->dims + 1, is_first);
    return is_fit ? 0 : shape_error(g, spec, c, err);
}

int hy_signature_match(struct hy_signature *sig, const struct hy_batch_cursor *r, struct hy_gathered *g,
                       struct hy_err *err)
{
    int rc = find_indexes(sig, r, err);

    for (uint32_t i = 0; rc == 0 && i < g->count; i++)
        rc = match_column(&g->columns[i], &sig->columns[i], &r->batch->columns[sig->indexes[i]], r->next, g->rows == 0,
                          err);
    return rc;
}
