/* SPDX-License-Identifier: Apache-2.0 */
/* What is wanted of rows, and whether those that come have it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "feed/cast.h"
#include "feed/signature.h"

void hy_signature_done(struct hy_signature *w)
{
    free(w->text);
    free(w->columns);
    free(w->seen);
    free(w->places);
    hy_feed_schema_done(&w->schema);
    *w = (struct hy_signature){0};
}

int hy_signature_init(struct hy_signature *w, const char *text, bool allows_extra, const struct hy_signature_column *columns,
                   uint32_t count)
{
    int rc = -ENOMEM;

    *w = (struct hy_signature){.allows_extra = allows_extra, .count = count};
    w->text = hy_strdup(text);
    w->columns = hy_calloc(count, sizeof *w->columns);
    w->places = hy_calloc(count, sizeof *w->places);
    if (w->text && w->columns && w->places) {
        memcpy(w->columns, columns, count * sizeof *columns);
        rc = hy_feed_schema_parse(w->text, strlen(w->text), &w->schema);
    }
    if (rc == 0 && w->schema.columns != count)
        rc = -EBADMSG;
    if (rc < 0)
        hy_signature_done(w);
    return rc == -EBADMSG ? -EINVAL : rc;
}

static bool has_parts(const struct hy_feed_schema_node *n)
{
    return n->kind == '(' || n->kind == '[' || n->kind == '{' || n->kind == '<';
}

static bool has_names(const struct hy_feed_schema_node *n)
{
    return n->kind == '{' || n->kind == '<';
}

/* Behind a node and all that is below it. */
static size_t behind(const struct hy_feed_schema *s, size_t at)
{
    for (uint32_t left = 1; left; left--, at++)
        left += s->nodes[at].count;
    return at;
}

/* The part of a node of that name; 0: there is none. */
static size_t part_of_name(const struct hy_feed_schema *s, size_t self, const struct hy_feed_schema_node *name)
{
    size_t at = self + 1;

    for (uint32_t i = 0; i < s->nodes[self].count; i++, at = behind(s, at))
        if (s->nodes[at].key_n == name->key_n && memcmp(s->nodes[at].key, name->key, name->key_n) == 0)
            return at;
    return 0;
}

/* Finds the columns of what is wanted at *at in the row's node. Names are found by name, others by their place. */
static bool find_columns(struct hy_signature *w, size_t *at, const struct hy_feed_schema *row, size_t self)
{
    const struct hy_feed_schema_node *wanted = &w->schema.nodes[(*at)++], *n = &row->nodes[self];
    size_t part = self + 1;

    if (!has_parts(wanted)) {
        w->places[wanted->column] = n->column;
        return !has_parts(n);
    }
    if (!has_parts(n) || (w->allows_extra ? n->count < wanted->count
                                           : n->count != wanted->count || has_names(n) != has_names(wanted)))
        return false;
    for (uint32_t i = 0; i < wanted->count; i++) {
        const size_t here = has_names(wanted) ? part_of_name(row, self, &w->schema.nodes[*at]) : part;

        if (!here || !find_columns(w, at, row, here))
            return false;
        part = behind(row, part);
    }
    return true;
}

/* w->places says where the wanted columns are in a batch of this shape. */
static int find_places(struct hy_signature *w, const struct hy_batch_cursor *r, struct hy_err *err)
{
    const struct hy_batch *b = r->batch;
    size_t at = 0;
    char *seen;

    if (w->seen && w->seen_n == b->schema_n && memcmp(w->seen, b->schema, b->schema_n) == 0)
        return 0;
    if (hy_batch_cursor_is_pickled(r))
        return hy_err_set(err, -EINVAL, "rows came that have no columns, and were pickled; " HY_GATHER_ADVICE);
    if (!find_columns(w, &at, &r->schema, 0))
        return hy_err_set(err, -EINVAL, "rows came as %.*s, and %s is wanted; " HY_GATHER_ADVICE,
                          b->schema_n < 200 ? (int)b->schema_n : 200, b->schema, w->text);
    seen = hy_reallocarray(w->seen, b->schema_n + 1, 1);
    if (!seen)
        return hy_err_oom(err);
    memcpy(seen, b->schema, b->schema_n);
    w->seen = seen;
    w->seen_n = b->schema_n;
    return 0;
}

/* ---- does a column fit? ---------------------------------------------------------------- */

/* "(2, any)", as Python has it. */
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

static int other_shape(const struct hy_gathered_column *g, const struct hy_signature_column *w,
                       const struct hy_batch_column *c, struct hy_err *err)
{
    char came[120], wanted[120];
    int64_t dims[HY_BATCH_DIMS], now[HY_BATCH_DIMS];

    for (unsigned i = 0; i < HY_BATCH_DIMS; i++) {
        dims[i] = (int64_t)c->shape[i];
        now[i] = (int64_t)g->like.shape[i];
    }
    shape_text(came, sizeof came, c->is_ragged ? "ragged" : "", dims, c->dims);
    shape_text(wanted, sizeof wanted, w->is_ragged ? "ragged" : "", w->dims < 0 ? now : w->shape,
               w->dims < 0 ? g->like.dims : (unsigned)w->dims);
    return hy_err_set(err, -EINVAL, "column %s: rows of the shape %s came, and %s is wanted; give a signature that has "
                      "it, or " HY_GATHER_ADVICE, w->name, came, wanted);
}

/* The shape of a row or item, as it is gathered: where anything goes, it is that of the batch's first rows. */
static bool shape_fits(struct hy_gathered_column *g, const struct hy_signature_column *w, const uint64_t *shape,
                       unsigned dims, bool is_first)
{
    if (w->dims >= 0 && (unsigned)w->dims != dims)
        return false;
    for (unsigned i = 0; w->dims >= 0 && i < dims; i++)
        if (w->shape[i] >= 0 && (uint64_t)w->shape[i] != shape[i])
            return false;
    if (is_first) {
        g->like.dims = dims;
        memcpy(g->like.shape, shape, dims * sizeof *shape);
    }
    return g->like.dims == dims && memcmp(g->like.shape, shape, dims * sizeof *shape) == 0;
}

/* Rows may be ragged in the batch, and be wanted as ones of so many items; or the other way round. */
static int fits(struct hy_gathered_column *g, const struct hy_signature_column *w, const struct hy_batch_column *c,
                uint32_t row, bool is_first, struct hy_err *err)
{
    uint64_t shape[HY_BATCH_DIMS + 1], from, to;
    bool is_fit;

    if (!hy_cast_is_safe(c->dtype, w->dtype))
        return hy_err_set(err, -EINVAL, "column %s: %s came, and %s is wanted, which it cannot be cast to safely; give "
                          "another signature", w->name, hy_dtype_name(c->dtype), hy_dtype_name(w->dtype));
    if (c->is_ragged && !hy_ends_at(c->row_ends, row, c->items, &from, &to))
        return -EBADMSG;
    shape[0] = c->is_ragged ? to - from : 0; /* of the first; add_rows looks at the others */
    memcpy(shape + 1, c->shape, sizeof c->shape);
    if (c->is_ragged == w->is_ragged)
        is_fit = shape_fits(g, w, shape + 1, c->dims, is_first);
    else if (w->is_ragged)
        is_fit = c->dims > 0 && shape_fits(g, w, shape + 2, c->dims - 1, is_first);
    else
        is_fit = c->dims < HY_BATCH_DIMS && shape_fits(g, w, shape, c->dims + 1, is_first);
    return is_fit ? 0 : other_shape(g, w, c, err);
}

int hy_signature_match(struct hy_signature *w, const struct hy_batch_cursor *r, struct hy_gathered *g, struct hy_err *err)
{
    int rc = find_places(w, r, err);

    for (uint32_t i = 0; rc == 0 && i < g->count; i++)
        rc = fits(&g->columns[i], &w->columns[i], &r->batch->columns[w->places[i]], r->next, g->rows == 0, err);
    return rc;
}
