/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tf.Example: an accepted example that is encoded and parsed again gives the same
 * columns; a rejected one leaves no row. The first byte selects SequenceExample; the
 * rest is parsed twice into the same columns, and half of it a third time, so that
 * there are several rows.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "faults.h"
#include "record/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add(struct hy_columns *c, const uint8_t *bytes, size_t n, bool is_sequence)
{
    const uint64_t before = c->rows;
    int rc = is_sequence ? hy_sequence_example_parse(c, bytes, n, NULL) : hy_example_parse(c, bytes, n, NULL);

    if (c->rows != before + (rc == 0))
        abort();
}

static void compare_bytes(const struct hy_buf *a, const struct hy_buf *b)
{
    if (a->len != b->len || (a->len && memcmp(hy_buf_bytes(a), hy_buf_bytes(b), a->len) != 0))
        abort();
}

/* Without a step the kind is unknown. */
static void compare(const struct hy_column *a, const struct hy_column *b)
{
    if (a->rows != b->rows || (a->kind != b->kind && (b->kind || a->step_ends.len > sizeof(int64_t))))
        abort();
    compare_bytes(&a->values, &b->values);
    compare_bytes(&a->row_ends, &b->row_ends);
    compare_bytes(&a->step_ends, &b->step_ends);
    compare_bytes(&a->value_ends, &b->value_ends);
    compare_bytes(&a->there, &b->there);
}

/* A column without rows is not encoded. */
static bool is_anywhere(const struct hy_column *c)
{
    return c->there.len && memchr(hy_buf_bytes(&c->there), 1, c->there.len);
}

static void check_again(struct hy_columns *c, bool is_sequence)
{
    struct hy_columns again;
    struct hy_buf file;

    hy_columns_init(&again);
    hy_buf_init(&file, SIZE_MAX);
    for (uint64_t row = 0; row < c->rows; row++) {
        struct hy_record r;
        const char *why;
        size_t need;

        hy_buf_clear(&file);
        if (hy_example_append(&file, c, row, is_sequence) < 0) {
            if (!hy_is_short_of_memory)
                abort();
            continue;
        }
        if (hy_record_parse(hy_buf_bytes(&file), file.len, SIZE_MAX, &r, &need, &why) <= 0)
            abort();
        add(&again, r.bytes, r.n, is_sequence);
    }
    if (!hy_is_short_of_memory && (again.rows != c->rows || hy_columns_fill(&again) < 0))
        abort();
    for (size_t i = 0; i < c->count && !hy_is_short_of_memory; i++) {
        const struct hy_column *a = &c->list[i];
        const struct hy_column *b = hy_columns_find(&again, a->name, a->name_n, a->has_steps);

        if (a->kind && is_anywhere(a) && (is_sequence || !a->has_steps)) {
            if (!b)
                abort();
            compare(a, b);
        }
    }
    hy_buf_done(&file);
    hy_columns_done(&again);
}

static void run(const uint8_t *data, size_t size)
{
    struct hy_columns c;

    hy_columns_init(&c);
    for (int i = 0; i < 2; i++)
        add(&c, data + 1, size - 1, data[0] & 1);
    add(&c, data + 1 + (size - 1) / 2, size - 1 - (size - 1) / 2, data[0] & 1);
    if (hy_columns_fill(&c) == 0)
        check_again(&c, data[0] & 1);
    else if (!hy_is_short_of_memory)
        abort();
    hy_columns_clear(&c);
    if (c.rows != 0)
        abort();
    hy_columns_done(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size)
        hy_run_with_faults(data, size, run);
    return 0;
}
