/* SPDX-License-Identifier: Apache-2.0 */
/* Arrow record batches by the C data interface. python/test_feed.py has those of pyarrow. */
#include "support.h"

#include <errno.h>

#include "base/buf.h"
#include "base/mem.h"
#include "feed/feed.h"

#define COLUMNS 6

/* Five rows: int32, bools, strings, ragged floats, pairs, byte strings with 64-bit offsets. */
static const int32_t numbers[5] = {10, 11, 12, 13, 14};
static const uint8_t bools[1] = {0x16}; /* 0 1 1 0 1 */
static const int32_t text_ends[6] = {0, 1, 1, 3, 6, 6};
static const int32_t row_ends[6] = {1, 1, 3, 4, 4, 6};
static const float items[7] = {9, 1, 2, 3, 4, 5, 9};
static const int16_t pairs[12] = {99, 99, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
static const int64_t large_ends[6] = {0, 2, 2, 2, 3, 4};

struct sample {
    const void *buffers[COLUMNS + 1][3], *inner_buffers[2][2];
    struct ArrowArray columns[COLUMNS], inner[2], all, *list[COLUMNS], *inner_list[2];
    struct ArrowSchema schemas[COLUMNS], inner_schemas[2], schema, *schema_list[COLUMNS], *inner_schema_list[2];
};

static void make_sample(struct sample *s)
{
    static const char *const formats[COLUMNS] = {"i", "b", "u", "+l", "+w:2", "Z"};
    static const char *const names[COLUMNS] = {"n", "z", "t", "l", "p", "b"};

    *s = (struct sample){
        .buffers = {{NULL, numbers},
                    {NULL, bools},
                    {NULL, text_ends, "abcdef"},
                    {NULL, row_ends},
                    {NULL},
                    {NULL, large_ends, "wxyz"}},
        .inner_buffers = {{NULL, items}, {NULL, pairs}},
    };
    for (int i = 0; i < 2; i++) {
        s->inner[i] = (struct ArrowArray){
            .length = i ? 10 : 7, .offset = i ? 2 : 0, .n_buffers = 2, .buffers = s->inner_buffers[i]};
        s->inner_list[i] = &s->inner[i];
        s->inner_schemas[i] = (struct ArrowSchema){.format = i ? "s" : "f", .name = "item"};
        s->inner_schema_list[i] = &s->inner_schemas[i];
    }
    for (int i = 0; i < COLUMNS; i++) {
        const bool has_child = i == 3 || i == 4;

        s->columns[i] = (struct ArrowArray){.length = 5,
                                            .n_buffers = 3,
                                            .buffers = s->buffers[i],
                                            .n_children = has_child,
                                            .children = has_child ? &s->inner_list[i - 3] : NULL};
        s->list[i] = &s->columns[i];
        s->schemas[i] = (struct ArrowSchema){.format = formats[i],
                                             .name = names[i],
                                             .n_children = has_child,
                                             .children = has_child ? &s->inner_schema_list[i - 3] : NULL};
        s->schema_list[i] = &s->schemas[i];
    }
    s->all = (struct ArrowArray){
        .length = 5, .n_buffers = 1, .buffers = s->buffers[COLUMNS], .n_children = COLUMNS, .children = s->list};
    s->schema = (struct ArrowSchema){.format = "+s", .name = "", .n_children = COLUMNS, .children = s->schema_list};
}

/* Rows 1 to 3 of the sample. */
static void check_middle(const struct hy_batch *b)
{
    const struct hy_batch_column *c = b->columns;

    assert_int_equal(b->rows, 3);
    assert_int_equal(b->count, COLUMNS);
    assert_int_equal(c[0].dtype, HY_DTYPE_INT32);
    assert_int_equal(c[0].values_n, 12);
    assert_memory_equal(c[0].values, ((int32_t[]){11, 12, 13}), 12);
    assert_int_equal(c[1].dtype, HY_DTYPE_BOOL);
    assert_int_equal(c[1].values_n, 3);
    assert_memory_equal(c[1].values, ((uint8_t[]){1, 1, 0}), 3);
    assert_int_equal(c[2].dtype, HY_DTYPE_STR);
    assert_int_equal(c[2].values_n, 5);
    assert_memory_equal(c[2].values, "bcdef", 5);
    assert_memory_equal(c[2].value_ends, ((int64_t[]){0, 0, 2, 5}), 32);
    assert_int_equal(c[3].dtype, HY_DTYPE_FLOAT32);
    assert_true(c[3].is_ragged);
    assert_int_equal(c[3].items, 3);
    assert_memory_equal(c[3].values, ((float[]){1, 2, 3}), 12);
    assert_memory_equal(c[3].row_ends, ((int64_t[]){0, 2, 3, 3}), 32);
    assert_int_equal(c[4].dtype, HY_DTYPE_INT16);
    assert_int_equal(c[4].dims, 1);
    assert_int_equal(c[4].shape[0], 2);
    assert_memory_equal(c[4].values, ((int16_t[]){3, 4, 5, 6, 7, 8}), 12);
    assert_int_equal(c[5].dtype, HY_DTYPE_BYTES);
    assert_memory_equal(c[5].values, "y", 1);
    assert_memory_equal(c[5].value_ends, ((int64_t[]){0, 0, 0, 1}), 32);
}

HY_TEST(test_offsets_of_batches_and_columns_are_applied)
{
    struct hy_arrow_batch a = {0};
    struct sample s;
    size_t n;

    make_sample(&s);
    assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, 1, 3, &a), 0);
    check_middle(&a.batch);
    assert_int_equal(hy_batch_size(&a.batch, &n), 0);
    hy_arrow_batch_done(&a);
    s.all.offset = 1; /* a slice of the batch */
    s.all.length = 4;
    assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, 0, 3, &a), 0);
    check_middle(&a.batch);
    hy_arrow_batch_done(&a);
    s.all.offset = 0;
    for (int i = 0; i < COLUMNS; i++) { /* a slice of each column */
        s.columns[i].offset = 1;
        s.columns[i].length = 4;
    }
    assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, 0, 3, &a), 0);
    check_middle(&a.batch);
    hy_arrow_batch_done(&a);
    assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, 4, 0, &a), 0); /* no rows */
    assert_int_equal(a.batch.rows, 0);
    hy_arrow_batch_done(&a);
}

HY_TEST(test_unsupported_columns_are_reported)
{
    static const uint8_t valid[1] = {0x1d}; /* the second is null */
    static const char *const others[] = {"n", "tdD", "w:4", "+m", "vu", "d:5,2", "+l", ""};
    struct hy_arrow_batch a = {0};
    struct sample s;

    for (int i = 0; i < COLUMNS; i++)
        for (int count = -1; count < 2; count += 2) { /* -1: the number of nulls is unknown */
            make_sample(&s);
            s.buffers[i][0] = valid;
            s.columns[i].null_count = count;
            assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, 0, 5, &a), -ENOTSUP);
            hy_arrow_batch_done(&a);
            assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, 2, 3, &a), 0);
            hy_arrow_batch_done(&a);
        }
    for (size_t i = 0; i < HY_COUNT(others); i++) {
        make_sample(&s);
        s.schemas[0].format = others[i];
        assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, 0, 5, &a), -ENOTSUP);
        hy_arrow_batch_done(&a);
    }
    make_sample(&s);
    s.schemas[0].dictionary = &s.schemas[2];
    assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, 0, 5, &a), -ENOTSUP);
    hy_arrow_batch_done(&a);
    make_sample(&s);
    s.inner_schemas[0].format = "u"; /* lists of strings */
    assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, 0, 5, &a), -ENOTSUP);
    hy_arrow_batch_done(&a);
}

HY_TEST(test_invalid_arrays_are_refused)
{
    static const int32_t falling[6] = {0, 2, 1, 3, 3, 3}, negative[6] = {-4, 0, 0, 0, 0, 0};
    struct hy_arrow_batch a = {0};
    struct sample s;

    for (int i = 0; i < 8; i++) {
        make_sample(&s);
        if (i == 0)
            s.columns[3].buffers[1] = falling;
        else if (i == 1)
            s.columns[3].buffers[1] = negative;
        else if (i == 2)
            s.inner[0].length = 5; /* fewer than the offsets require */
        else if (i == 3)
            s.inner[1].length = 9;
        else if (i == 4)
            s.columns[2].length = 4;
        else if (i == 5)
            s.schema.format = "i";
        else if (i == 6)
            s.schemas[4].format = "+w:x";
        else
            s.schemas[4].format = "+w:9223372036854775807";
        assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, 0, 5, &a), -EINVAL);
        hy_arrow_batch_done(&a);
    }
    make_sample(&s);
    assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, 3, 3, &a), -EINVAL);
    assert_int_equal(hy_arrow_batch_view(&s.schema, &s.all, -1, 3, &a), -EINVAL);
    hy_arrow_batch_done(&a);
}

HY_TEST(test_schema_is_a_tuple_of_columns)
{
    struct sample s;
    struct hy_buf b;

    make_sample(&s);
    hy_buf_init(&b, 1000);
    assert_int_equal(hy_arrow_schema(&s.schema, &b), 0);
    assert_string_equal(hy_buf_cstr(&b), "(aasaay)");
    hy_buf_done(&b);
}

static int view_sample(void *arg)
{
    struct hy_arrow_batch a = {0};
    struct sample s;
    struct hy_buf b;
    int rc;

    (void)arg;
    make_sample(&s);
    hy_buf_init(&b, 1000);
    rc = hy_arrow_batch_view(&s.schema, &s.all, 0, 5, &a);
    if (rc == 0)
        rc = hy_arrow_schema(&s.schema, &b);
    hy_arrow_batch_done(&a);
    hy_buf_done(&b);
    return rc;
}

HY_TEST(test_out_of_memory_leaks_nothing)
{
    hy_each_fault(HY_SEAM_ALLOC, view_sample, NULL);
}
