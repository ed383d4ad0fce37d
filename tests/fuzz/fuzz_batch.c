/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: whatever is taken for one, written again and read again, is the same;
 * every value that its ends tell of lies within; and a shape that is taken is
 * written as text that is taken, too. Columns are gathered from it whole, or not.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "feed/batch.h"
#include "feed/gather.h"
#include "feed/shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t sum_of(const struct hy_batch_column *c, uint32_t rows)
{
    uint64_t values = 0, from, to;
    uint8_t sum = 0;

    for (size_t i = 0; i < c->values_n; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)c->values)[i]);
    if (c->dtype != HY_DTYPE_PICKLE && hy_column_values(c, rows, &values) < 0)
        abort();
    for (uint64_t i = 0; c->value_ends && i < values; i++)
        if (hy_ends_at(c->value_ends, i, c->values_n, &from, &to) && to > from)
            sum = (uint8_t)(sum + ((const uint8_t *)c->values)[to - 1]);
    for (uint32_t i = 0; c->row_ends && i < rows; i++)
        if (hy_ends_at(c->row_ends, i, c->items, &from, &to))
            sum = (uint8_t)(sum + (to - from));
    return sum;
}

static void write_again(const struct hy_batch *b)
{
    struct hy_batch again = {0};
    uint8_t *room;
    size_t n;

    if (hy_batch_size(b, &n) < 0)
        abort(); /* what is within a message is not too large for one */
    room = malloc(n);
    if (!room)
        return; /* the same bytes, told of many times */
    if (hy_batch_write(b, room) > n || hy_batch_parse(room, n, &again) < 0 || again.rows != b->rows ||
        again.count != b->count)
        abort();
    for (uint32_t i = 0; i < b->count; i++)
        if (sum_of(&b->columns[i], b->rows) != sum_of(&again.columns[i], b->rows))
            abort();
    hy_batch_done(&again);
    free(room);
}

static void check_shape(const struct hy_batch *b)
{
    struct hy_shape s = {0}, again = {0};
    struct hy_buf text;

    hy_buf_init(&text, 1 << 20);
    if (hy_shape_parse(b->shape, b->shape_n, &s) == 0) {
        (void)hy_shape_check(&s, b);
        if (hy_shape_write(&s, &text) < 0 || hy_shape_parse((const char *)hy_buf_bytes(&text), text.len, &again) < 0 ||
            again.count != s.count || again.columns != s.columns)
            abort();
    }
    hy_shape_done(&s);
    hy_shape_done(&again);
    hy_buf_done(&text);
}

/* As readers do who want columns, in pieces: what is gathered has as many rows, or the batch is refused. */
static void gather(const struct hy_batch *b)
{
    struct hy_gathered g = {0};
    struct hy_reading r = {0};
    int64_t count = 1;

    if (hy_reading_begin(&r, b) < 0)
        return;
    while (count > 0 && !hy_reading_is_pickled(&r) && !hy_reading_is_over(&r)) {
        count = hy_gather(&g, &r, NULL, b->rows / 2 + 1, NULL);
        if (count == 0 || (count > 0 && g.rows != r.next))
            abort();
    }
    hy_gathered_done(&g);
    hy_reading_end(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_batch b = {0};

    if (hy_batch_parse(data, size, &b) == 0) {
        check_shape(&b);
        if (b.count <= 16) {
            write_again(&b);
            gather(&b);
        }
    }
    hy_batch_done(&b);
    return 0;
}
