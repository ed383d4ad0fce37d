/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "feed/cast.h"
#include "feed/signature.h"

#define ALIGNMENT 64u
#define PREALLOCATE_MAX (64ull << 20) /* bytes of a column that are allocated before they are needed */

/* ---- memory ----------------------------------------------------------------------------- */

static void free_memory(const struct hy_gather_sink *sink, void *memory)
{
    if (sink->drop && memory)
        sink->drop(memory);
    else
        free(memory);
}

static void *grow_own_memory(const struct hy_gather_sink *sink, struct hy_gathered_column *c, size_t n)
{
    void *values = sink->take ? sink->take(n) : aligned_alloc(ALIGNMENT, (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);

    if (!values)
        return NULL;
    if (c->values_n)
        memcpy(values, c->values, c->values_n);
    free_memory(sink, c->values);
    return values;
}

/* Space for the next n bytes; `all` is the expected size of the complete column. */
static uint8_t *reserve(struct hy_gathered *g, uint32_t column, size_t n, uint64_t all)
{
    struct hy_gathered_column *c = &g->columns[column];
    size_t need, room;
    void *values;

    if (__builtin_add_overflow(c->values_n, n, &need) || need > SIZE_MAX / 4)
        return NULL;
    if (!c->values || need > c->room) {
        room = need < 2 * c->room ? 2 * c->room : need;
        room = room < all && all <= PREALLOCATE_MAX ? (size_t)all : room;
        room = room ? room : 1;
        if (g->sink.grow)
            room = need;
        values = g->sink.grow ? g->sink.grow(g->sink.context, column, room) : grow_own_memory(&g->sink, c, room);
        if (!values)
            return NULL;
        c->values = values;
        c->room = room;
    }
    return (uint8_t *)c->values + c->values_n;
}

static bool is_text(const struct hy_batch_column *c)
{
    return hy_dtype_size(c->dtype) == 0;
}

static void save_lengths(struct hy_gathered_column *c)
{
    c->kept = c->values_n;
    c->value_ends_kept = c->value_ends.len;
    c->row_ends_kept = c->row_ends.len;
}

/* Back to the saved lengths. */
static void roll_back(struct hy_gathered *g, struct hy_gathered_column *c)
{
    if (is_text(&c->like) && g->sink.text_size)
        for (size_t at = c->kept; at < c->values_n; at += g->sink.text_size)
            g->sink.drop_text((uint8_t *)c->values + at);
    c->values_n = c->kept;
    hy_buf_cut(&c->value_ends, c->value_ends_kept);
    hy_buf_cut(&c->row_ends, c->row_ends_kept);
}

void hy_gathered_done(struct hy_gathered *g)
{
    for (uint32_t i = 0; g->columns && i < g->count; i++) {
        struct hy_gathered_column *c = &g->columns[i];

        c->kept = 0;
        roll_back(g, c);
        hy_buf_done(&c->value_ends);
        hy_buf_done(&c->row_ends);
        if (!g->sink.grow)
            free_memory(&g->sink, c->values);
    }
    free(g->columns);
    free(g->schema);
    *g = (struct hy_gathered){.sink = g->sink};
}

/* Columns without values; the caller sets types and shapes. */
static int add_columns(struct hy_gathered *g, uint32_t count)
{
    g->columns = hy_calloc(count, sizeof *g->columns);
    if (!g->columns)
        return -ENOMEM;
    g->count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct hy_gathered_column *c = &g->columns[i];

        hy_buf_init(&c->value_ends, SIZE_MAX);
        hy_buf_init(&c->row_ends, SIZE_MAX);
    }
    for (uint32_t i = 0; i < count; i++)
        if (hy_buf_append(&g->columns[i].value_ends, &(int64_t){0}, sizeof(int64_t)) < 0 ||
            hy_buf_append(&g->columns[i].row_ends, &(int64_t){0}, sizeof(int64_t)) < 0)
            return -ENOMEM;
    return 0;
}

int hy_gather_begin(struct hy_gathered *g, const struct hy_signature *sig)
{
    int rc = add_columns(g, sig->count);

    for (uint32_t i = 0; rc == 0 && i < sig->count; i++) {
        const struct hy_signature_column *c = &sig->columns[i];
        struct hy_batch_column *like = &g->columns[i].like;

        *like = (struct hy_batch_column){
            .dtype = c->dtype, .is_ragged = c->is_ragged, .dims = c->dims < 0 ? 0 : (unsigned)c->dims};
        for (unsigned k = 0; k < like->dims; k++)
            like->shape[k] = c->shape[k] < 0 ? 0 : (uint64_t)c->shape[k];
    }
    if (rc < 0)
        hy_gathered_done(g);
    return rc;
}

/* Without a signature the first batch sets types and shapes. */
static int begin_like(struct hy_gathered *g, const struct hy_batch *b)
{
    int rc = add_columns(g, b->count);

    g->schema = rc == 0 ? hy_malloc(b->schema_n) : NULL;
    if (!g->schema)
        return -ENOMEM;
    memcpy(g->schema, b->schema, b->schema_n);
    g->schema_n = b->schema_n;
    for (uint32_t i = 0; i < b->count; i++)
        g->columns[i].like = b->columns[i];
    return 0;
}

static bool has_same_columns(const struct hy_gathered *g, const struct hy_batch *b)
{
    if (g->count != b->count || g->schema_n != b->schema_n || memcmp(g->schema, b->schema, b->schema_n) != 0)
        return false;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct hy_batch_column *x = &g->columns[i].like, *y = &b->columns[i];

        if (x->dtype != y->dtype || x->dims != y->dims || x->is_ragged != y->is_ragged ||
            memcmp(x->shape, y->shape, x->dims * sizeof x->shape[0]) != 0)
            return false;
    }
    return true;
}

/* ---- values ------------------------------------------------------------------------------ */

/* Appends `count` ends from `first` on, rebased to those that are already there, and returns the range they span. */
static int add_ends(struct hy_buf *to, const int64_t *ends, uint64_t first, uint64_t count, uint64_t max,
                    uint64_t *ret_from, uint64_t *ret_to)
{
    const int64_t last = ((const int64_t *)(const void *)hy_buf_bytes(to))[to->len / sizeof(int64_t) - 1];
    int64_t *room = (int64_t *)(void *)hy_buf_reserve(to, count * sizeof *room);
    uint64_t from, end, before = 0;

    if (!room)
        return -ENOMEM;
    *ret_from = *ret_to = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (!hy_ends_at(ends, first + i, max, &from, &end) || (i > 0 && from != before))
            return -EBADMSG;
        *ret_from = i ? *ret_from : from;
        *ret_to = before = end;
        room[i] = last + (int64_t)(end - *ret_from);
    }
    hy_buf_added(to, count * sizeof *room);
    return 0;
}

/* Ends of rows with a fixed number of items. */
static int add_uniform_ends(struct hy_buf *to, uint64_t rows, uint64_t items)
{
    int64_t last = ((const int64_t *)(const void *)hy_buf_bytes(to))[to->len / sizeof(int64_t) - 1];
    int64_t *room = (int64_t *)(void *)hy_buf_reserve(to, rows * sizeof *room);

    if (!room)
        return -ENOMEM;
    for (uint64_t i = 0; i < rows; i++)
        room[i] = last += (int64_t)items;
    hy_buf_added(to, rows * sizeof *room);
    return 0;
}

/* The range of ragged rows where the signature has a fixed number of items. -EDOM when a row has another number. */
static int uniform_span(const struct hy_batch_column *c, uint32_t row, uint64_t rows, uint64_t items,
                        uint64_t *ret_from, uint64_t *ret_to)
{
    uint64_t from, to, first = 0;

    for (uint64_t i = 0; i < rows; i++) {
        if (!hy_ends_at(c->row_ends, row + i, c->items, &from, &to))
            return -EBADMSG;
        if (to - from != items)
            return -EDOM;
        if (i > 0 && from != first + i * items)
            return -EBADMSG;
        first = i ? first : from;
    }
    *ret_from = first;
    *ret_to = first + rows * items;
    return 0;
}

/* The range of items of the rows; appends ends where the signature is ragged. *each: values per item. */
static int add_rows(struct hy_gathered_column *g, const struct hy_batch_column *c, uint32_t row, uint64_t rows,
                    uint64_t *ret_from, uint64_t *ret_to, uint64_t *each)
{
    const struct hy_batch_column *like = &g->like;
    int rc = hy_batch_column_item_values(c->is_ragged ? c : like, each);

    *ret_from = row;
    *ret_to = row + rows;
    if (rc < 0)
        return rc;
    if (c->is_ragged && like->is_ragged)
        return add_ends(&g->row_ends, c->row_ends, row, rows, c->items, ret_from, ret_to);
    if (c->is_ragged)
        return uniform_span(c, row, rows, like->shape[0], ret_from, ret_to);
    if (like->is_ragged) {
        *ret_from = row * c->shape[0];
        *ret_to = (row + rows) * c->shape[0];
        return add_uniform_ends(&g->row_ends, rows, c->shape[0]);
    }
    return 0;
}

static int add_texts(struct hy_gathered *g, uint32_t column, const struct hy_batch_column *c, uint64_t from,
                     uint64_t to, uint64_t all)
{
    struct hy_gathered_column *into = &g->columns[column];
    const size_t size = g->sink.text_size;
    uint8_t *room = reserve(g, column, (to - from) * size, all * size);

    if (!room)
        return -ENOMEM;
    for (uint64_t i = from; i < to; i++, into->values_n += size) {
        uint64_t begin_at, end_at;

        if (!hy_ends_at(c->value_ends, i, c->values_n, &begin_at, &end_at))
            return -EBADMSG;
        g->sink.put_text(room + (i - from) * size, (const char *)c->values + begin_at, end_at - begin_at);
    }
    return 0;
}

/* Strings as bytes with offsets. */
static int add_bytes(struct hy_gathered *g, uint32_t column, const struct hy_batch_column *c, uint64_t from,
                     uint64_t to)
{
    struct hy_gathered_column *into = &g->columns[column];
    int rc = add_ends(&into->value_ends, c->value_ends, from, to - from, c->values_n, &from, &to);
    uint8_t *room = rc < 0 ? NULL : reserve(g, column, to - from, 0);

    if (!room)
        return rc < 0 ? rc : -ENOMEM;
    if (to > from)
        memcpy(room, (const uint8_t *)c->values + from, to - from);
    into->values_n += to - from;
    return 0;
}

static int add_numbers(struct hy_gathered *g, uint32_t column, const struct hy_batch_column *c, uint64_t from,
                       uint64_t to, uint64_t all)
{
    struct hy_gathered_column *into = &g->columns[column];
    const size_t size = hy_dtype_size(into->like.dtype);
    uint8_t *room = reserve(g, column, (to - from) * size, all * size);
    int rc = -ENOMEM;

    if (room)
        rc = hy_cast(c->dtype, (const uint8_t *)c->values + from * hy_dtype_size(c->dtype), to - from, into->like.dtype,
                     room);
    if (rc == 0)
        into->values_n += (to - from) * size;
    return rc;
}

/* `left` is the number of rows that the complete column still needs, these included. */
static int add_column(struct hy_gathered *g, uint32_t column, const struct hy_batch_column *c, uint32_t row,
                      uint64_t rows, uint64_t left)
{
    struct hy_gathered_column *into = &g->columns[column];
    uint64_t from, to, each, all = 0;
    int rc = add_rows(into, c, row, rows, &from, &to, &each);

    if (rc < 0)
        return rc;
    if (into->like.is_ragged || hy_batch_column_values(&into->like, left, &all) < 0 || all > PREALLOCATE_MAX)
        all = 0;
    from *= each;
    to *= each;
    if (!is_text(&into->like))
        return add_numbers(g, column, c, from, to, all);
    return g->sink.text_size ? add_texts(g, column, c, from, to, all) : add_bytes(g, column, c, from, to);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* The message for values that do not match the signature. */
static int describe_error(int rc, const struct hy_gathered_column *g, const struct hy_signature *sig, uint32_t column,
                          struct hy_err *err)
{
    const char *name = sig ? sig->columns[column].name : "";

    if (rc == -ERANGE)
        return hy_err_set(err, -EINVAL, "column %s: received a number that %s cannot hold; give another signature",
                          name, hy_dtype_name(g->like.dtype));
    if (rc == -EDOM)
        return hy_err_set(err, -EINVAL,
                          "column %s: rows differ in length, but %llu items are expected; give a "
                          "signature with a RaggedTensorSpec, or " HY_GATHER_ADVICE,
                          name, (unsigned long long)g->like.shape[0]);
    return rc;
}

/* All columns, or none of them. */
static int add_columns_of(struct hy_gathered *g, const struct hy_batch_cursor *r, const struct hy_signature *sig,
                          uint64_t rows, uint64_t left, struct hy_err *err)
{
    int rc = 0;

    for (uint32_t i = 0; i < g->count; i++)
        save_lengths(&g->columns[i]);
    for (uint32_t i = 0; rc == 0 && i < g->count; i++) {
        rc = add_column(g, i, &r->batch->columns[sig ? sig->indexes[i] : i], r->next, rows, left);
        if (rc < 0)
            rc = describe_error(rc, &g->columns[i], sig, i, err);
    }
    for (uint32_t i = 0; rc < 0 && i < g->count; i++)
        roll_back(g, &g->columns[i]);
    return rc;
}

int64_t hy_gather(struct hy_gathered *g, struct hy_batch_cursor *r, struct hy_signature *sig, uint64_t max,
                  struct hy_err *err)
{
    const uint64_t rest = r->rows - r->next, count = max < rest ? max : rest;
    int rc;

    if (sig) {
        rc = hy_signature_match(sig, r, g, err);
    } else {
        rc = g->columns ? 0 : begin_like(g, r->batch);
        if (rc == 0 && !has_same_columns(g, r->batch))
            return 0;
    }
    if (rc == 0)
        rc = add_columns_of(g, r, sig, count, max, err);
    if (rc < 0)
        return rc;
    r->next += (uint32_t)count;
    g->rows += count;
    return (int64_t)count;
}
