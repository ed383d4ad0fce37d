/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: an input that parses is the same after it is encoded and parsed again;
 * all ranges of its ends lie within the message; and a schema that parses is written
 * as a text that parses. Its columns are gathered completely or not at all, without a
 * signature and with one.
 *
 * The last four bytes of the input derive the signature (struct choice); the rest is the batch.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "faults.h"
#include "feed/cast.h"
#include "feed/feed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t sum_of(const struct hy_batch_column *c, uint32_t rows)
{
    uint64_t values = 0, from, to;
    uint8_t sum = 0;

    for (size_t i = 0; i < c->values_n; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)c->values)[i]);
    if (c->dtype != HY_DTYPE_PICKLE && hy_batch_column_values(c, rows, &values) < 0)
        abort();
    for (uint64_t i = 0; c->value_ends && i < values; i++)
        if (hy_ends_at(c->value_ends, i, c->values_n, &from, &to) && to > from)
            sum = (uint8_t)(sum + ((const uint8_t *)c->values)[to - 1]);
    for (uint32_t i = 0; c->row_ends && i < rows; i++)
        if (hy_ends_at(c->row_ends, i, c->items, &from, &to))
            sum = (uint8_t)(sum + (to - from));
    return sum;
}

static void encode_again(const struct hy_batch *b)
{
    struct hy_batch again = {0};
    uint8_t *room;
    size_t n;

    if (hy_batch_size(b, &n) < 0)
        abort(); /* a parsed batch is never too large */
    room = malloc(n);
    if (!room)
        return; /* many columns may share the same bytes */
    if (hy_batch_write(b, room) > n)
        abort();
    if (hy_batch_parse(room, n, &again) < 0) {
        if (!hy_is_short_of_memory)
            abort();
        hy_batch_done(&again);
        free(room);
        return;
    }
    if (again.rows != b->rows || again.count != b->count)
        abort();
    for (uint32_t i = 0; i < b->count; i++)
        if (sum_of(&b->columns[i], b->rows) != sum_of(&again.columns[i], b->rows))
            abort();
    hy_batch_done(&again);
    free(room);
}

static void check_shape(const struct hy_batch *b)
{
    struct hy_feed_schema s = {0}, again = {0};
    struct hy_buf text;

    hy_buf_init(&text, 1 << 20);
    if (hy_feed_schema_parse(b->schema, b->schema_n, &s) == 0) {
        (void)hy_feed_schema_check(&s, b);
        if (hy_feed_schema_write(&s, &text) < 0 ||
                    hy_feed_schema_parse((const char *)hy_buf_bytes(&text), text.len, &again) < 0
                ? !hy_is_short_of_memory
                : again.count != s.count || again.columns != s.columns)
            abort();
    }
    hy_feed_schema_done(&s);
    hy_feed_schema_done(&again);
    hy_buf_done(&text);
}

/* ---- gathering ---- */

struct choice {
    uint8_t dtype;  /* 0: that of the column */
    uint8_t ragged; /* bit i: column i is ragged in the signature if it is not in the batch, and the reverse */
    uint8_t shape;  /* bits: any number of dimensions, any length, one dimension more, another length */
    uint8_t flags;  /* bits: see struct hy_gather_sink; extra columns are allowed; rows are gathered in parts */
};

enum { ANY_DIMS = 1, ANY_LENGTH = 2, MORE_DIMS = 4, OTHER_LENGTH = 8 };
enum { BY_GROW = 1, BY_TAKE = 2, BY_TEXTS = 4, ALLOW_EXTRA = 8, IN_PARTS = 16, FLAT = 32, NO_SIGNATURE = 64 };

struct memory {
    void *columns[16];
};

static void *grow(void *context, uint32_t column, size_t n)
{
    struct memory *m = context;
    void *larger = hy_fault_hit(HY_SEAM_ALLOC) ? NULL : realloc(m->columns[column], n);

    if (larger)
        m->columns[column] = larger;
    return larger;
}

static void *take_memory(size_t n)
{
    return hy_fault_hit(HY_SEAM_ALLOC) ? NULL : aligned_alloc(64, (n + 63) / 64 * 64);
}

/* A string is a copy on the heap, so that a leak is detected. */
static void put_text(void *to, const char *text, size_t n)
{
    char *copy = malloc(n + 1);

    if (!copy)
        abort();
    if (n)
        memcpy(copy, text, n);
    memcpy(to, &copy, sizeof copy);
}

static void drop_text(void *text)
{
    char *copy;

    memcpy(&copy, text, sizeof copy);
    free(copy);
}

static void expect_column(struct hy_signature_column *w, const struct hy_batch_column *c, const struct choice *choice,
                          uint32_t i)
{
    const bool is_text = hy_dtype_size(c->dtype) == 0;

    *w = (struct hy_signature_column){.name = "column",
                                      .dtype = is_text ? HY_DTYPE_BYTES : c->dtype,
                                      .is_ragged = c->is_ragged != (choice->ragged >> i % 8 & 1),
                                      .dims = (int)c->dims};
    if (choice->dtype)
        w->dtype = (enum hy_dtype)(1 + (choice->dtype + i) % HY_DTYPE_STR);
    for (unsigned k = 0; k < c->dims; k++)
        w->shape[k] = choice->shape & ANY_LENGTH ? -1 : (int64_t)c->shape[k] + (choice->shape & OTHER_LENGTH ? 1 : 0);
    if (c->is_ragged && !w->is_ragged &&
        c->dims < HY_BATCH_DIMS) { /* a ragged row as one with a fixed number of items */
        memmove(w->shape + 1, w->shape, sizeof w->shape - sizeof w->shape[0]);
        w->shape[0] = choice->shape & ANY_LENGTH ? -1 : 1;
        w->dims++;
    } else if (!c->is_ragged && w->is_ragged && c->dims) {
        memmove(w->shape, w->shape + 1, sizeof w->shape - sizeof w->shape[0]);
        w->dims--;
    }
    if (choice->shape & MORE_DIMS)
        w->dims = (w->dims + 1) % HY_BATCH_DIMS;
    if (choice->shape & ANY_DIMS)
        w->dims = -1;
}

static int expect_columns(struct hy_signature *w, const struct hy_batch *b, const struct choice *choice)
{
    struct hy_signature_column columns[16] = {0}; /* FLAT expects one where the batch may have none */
    char *text = malloc(b->schema_n + 1);
    int rc;

    if (!text)
        abort();
    memcpy(text, b->schema, b->schema_n);
    text[b->schema_n] = '\0';
    for (uint32_t i = 0; i < b->count; i++)
        expect_column(&columns[i], &b->columns[i], choice, i);
    rc = choice->flags & FLAT ? hy_signature_init(w, "(a)", choice->flags & ALLOW_EXTRA, columns, 1)
                              : hy_signature_init(w, text, choice->flags & ALLOW_EXTRA, columns, b->count);
    free(text);
    return rc;
}

static struct hy_gather_sink sink_of(const struct choice *choice, struct memory *m)
{
    struct hy_gather_sink sink = {0};

    if (choice->flags & BY_GROW) {
        sink.grow = grow;
        sink.context = m;
    } else if (choice->flags & BY_TAKE) {
        sink.take = take_memory;
        sink.drop = free;
    }
    if (choice->flags & BY_TEXTS) {
        sink.text_size = sizeof(char *);
        sink.put_text = put_text;
        sink.drop_text = drop_text;
    }
    return sink;
}

/* The gathered columns have all rows, or the batch is refused. */
static void gather(const struct hy_batch *b, const struct choice *choice)
{
    struct memory memory = {0};
    struct hy_gathered g = {.sink = sink_of(choice, &memory)};
    struct hy_signature w = {0};
    struct hy_batch_cursor r = {0};
    const bool has_signature = !(choice->flags & NO_SIGNATURE);
    struct hy_err err = {0};
    uint64_t items;
    int64_t count = 1;

    if (hy_batch_cursor_begin(&r, b) < 0)
        return;
    for (uint32_t i = 0; i < b->count; i++)
        if (b->columns[i].is_ragged && hy_batch_column_is_uniform(&b->columns[i], b->rows, &items) &&
            items > b->columns[i].items)
            abort();
    if (has_signature && (expect_columns(&w, b, choice) < 0 || hy_gather_begin(&g, &w) < 0))
        count = -1;
    while (count > 0 && (has_signature || !hy_batch_cursor_is_pickled(&r)) && !hy_batch_cursor_is_done(&r)) {
        count = hy_gather(&g, &r, has_signature ? &w : NULL, choice->flags & IN_PARTS ? b->rows / 2 + 1 : b->rows,
                          &err);
        if ((count == 0 && b->rows) || (count > 0 && g.rows != r.next))
            abort();
    }
    hy_gathered_done(&g);
    for (size_t i = 0; i < sizeof memory.columns / sizeof memory.columns[0]; i++)
        free(memory.columns[i]);
    hy_signature_done(&w);
    hy_batch_cursor_end(&r);
}

static void run(const uint8_t *data, size_t size)
{
    struct hy_batch b = {0};
    struct choice choice;

    size -= sizeof choice;
    memcpy(&choice, data + size, sizeof choice);
    if (hy_batch_parse(data, size, &b) == 0) {
        check_shape(&b);
        for (uint32_t i = 0; i < b.count; i++)
            if (hy_dtype_by_name(hy_dtype_name(b.columns[i].dtype)) != b.columns[i].dtype)
                abort();
        if (b.count <= 16) {
            encode_again(&b);
            gather(&b, &choice);
            choice.flags |= NO_SIGNATURE;
            gather(&b, &choice);
        }
    }
    hy_batch_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= sizeof(struct choice))
        hy_run_with_faults(data, size, run);
    return 0;
}
