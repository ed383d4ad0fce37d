/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: encoding, row schemas, corrupt input, casts, and gathering several into one. */
#include "support.h"

#include <errno.h>
#include <math.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "feed/cast.h"
#include "feed/feed.h"

/* ---- batches ---- */

/* Rows (float64, float32[2], str, ragged int32). */
struct sample {
    double first[3];
    float second[3][2];
    int64_t text_ends[4], row_ends[4];
    int32_t items[5];
    struct hy_batch_column columns[4];
    struct hy_batch batch;
};

static void make_sample(struct sample *s)
{
    *s = (struct sample){.first = {1, 2, 3},
                         .second = {{1, 2}, {3, 4}, {5, 6}},
                         .text_ends = {0, 1, 1, 3},
                         .row_ends = {0, 2, 2, 5},
                         .items = {7, 8, 9, 10, 11}};
    s->columns[0] =
        (struct hy_batch_column){.dtype = HY_DTYPE_FLOAT64, .values = s->first, .values_n = sizeof s->first};
    s->columns[1] = (struct hy_batch_column){
        .dtype = HY_DTYPE_FLOAT32, .dims = 1, .shape = {2}, .values = s->second, .values_n = sizeof s->second};
    s->columns[2] =
        (struct hy_batch_column){.dtype = HY_DTYPE_STR, .values = "abc", .values_n = 3, .value_ends = s->text_ends};
    s->columns[3] = (struct hy_batch_column){.dtype = HY_DTYPE_INT32,
                                             .is_ragged = true,
                                             .items = 5,
                                             .values = s->items,
                                             .values_n = sizeof s->items,
                                             .row_ends = s->row_ends};
    s->batch = (struct hy_batch){.rows = 3, .count = 4, .schema = "(fasa)", .schema_n = 6, .columns = s->columns};
}

static void check_sample(const struct hy_batch *b)
{
    uint64_t from, to;

    assert_int_equal(b->rows, 3);
    assert_int_equal(b->count, 4);
    assert_memory_equal(b->schema, "(fasa)", 6);
    assert_memory_equal(b->columns[0].values, ((double[]){1, 2, 3}), 24);
    assert_int_equal(b->columns[1].dims, 1);
    assert_int_equal(b->columns[1].shape[0], 2);
    assert_true(hy_ends_at(b->columns[2].value_ends, 2, b->columns[2].values_n, &from, &to));
    assert_memory_equal((const char *)b->columns[2].values + from, "bc", to - from);
    assert_true(hy_ends_at(b->columns[3].row_ends, 2, b->columns[3].items, &from, &to));
    assert_int_equal(from, 2);
    assert_int_equal(to, 5);
    assert_int_equal(((const int32_t *)b->columns[3].values)[4], 11);
}

HY_TEST(test_batch_survives_write_and_parse)
{
    struct hy_batch b = {0};
    struct sample s;
    uint8_t *room;
    size_t n;

    make_sample(&s);
    assert_int_equal(hy_batch_size(&s.batch, &n), 0);
    for (size_t shift = 0; shift < 64; shift += 8) {
        room = aligned_alloc(64, (n + shift + 63) / 64 * 64);
        assert_non_null(room);
        assert_true(hy_batch_write(&s.batch, room + shift) <= n);
        assert_int_equal(hy_batch_parse(room + shift, n, &b), 0);
        check_sample(&b);
        for (int i = 0; i < 4; i++)
            assert_int_equal((uintptr_t)b.columns[i].values % 64, 0);
        free(room);
    }
    hy_batch_done(&b);
}

HY_TEST(test_inconsistent_columns_are_not_written)
{
    struct sample s;
    size_t n;

    make_sample(&s);
    s.columns[1].shape[0] = 3;
    assert_int_equal(hy_batch_size(&s.batch, &n), -EINVAL);
    s.columns[1].shape[0] = UINT64_MAX;
    assert_int_equal(hy_batch_size(&s.batch, &n), -EINVAL);
    make_sample(&s);
    s.columns[3].items = UINT64_MAX / 2;
    assert_int_equal(hy_batch_size(&s.batch, &n), -EINVAL);
}

/* (2^40, 0) has no values, but libraries cannot make an array of it. */
HY_TEST(test_impossible_shapes_are_refused)
{
    static const uint64_t shapes[][2] = {{1ull << 40, 0}, {0, 1ull << 40}, {0, (1ull << 31) + 1}, {1ull << 31, 0}};
    struct hy_batch b = {0};
    struct sample s;
    uint8_t *room;
    size_t n;

    make_sample(&s);
    s.columns[1].dims = 2;
    s.columns[1].shape[1] = 0;
    s.columns[1].values_n = 0;
    assert_int_equal(hy_batch_size(&s.batch, &n), 0);
    room = aligned_alloc(64, (n + 63) / 64 * 64);
    assert_non_null(room);
    assert_true(hy_batch_write(&s.batch, room) <= n);
    assert_int_equal(hy_batch_parse(room, n, &b), 0);
    for (size_t i = 0; i < HY_COUNT(shapes); i++) {
        size_t ignored;

        memcpy(room + 64 + 128 + 8, shapes[i], sizeof shapes[i]); /* of the second column, in the message */
        assert_int_equal(hy_batch_parse(room, n, &b), -EBADMSG);
        memcpy(s.columns[1].shape, shapes[i], sizeof shapes[i]);
        assert_int_equal(hy_batch_size(&s.batch, &ignored), -EINVAL);
    }
    free(room);
    hy_batch_done(&b);
}

/* ASan checks the bounds. */
HY_TEST(test_corrupt_batch_is_refused_or_stays_within_bounds)
{
    struct hy_batch b = {0};
    struct sample s;
    struct hy_rng rng;
    size_t n;

    hy_rng_seed(&rng, 5, 0);
    make_sample(&s);
    assert_int_equal(hy_batch_size(&s.batch, &n), 0);
    for (int i = 0; i < 20000; i++) {
        size_t used, cut;
        uint8_t *room = malloc(n), *exact;

        assert_non_null(room);
        used = hy_batch_write(&s.batch, room);
        for (uint64_t k = hy_rng_next(&rng) % 4; k-- > 0;)
            room[hy_rng_next(&rng) % (64 + 4 * 128)] = (uint8_t)hy_rng_next(&rng);
        cut = i % 3 ? used : hy_rng_next(&rng) % used;
        exact = malloc(cut + 1);
        assert_non_null(exact);
        memcpy(exact, room, cut);
        if (hy_batch_parse(exact, cut, &b) == 0)
            for (uint32_t c = 0; c < b.count; c++) {
                const uint8_t *values = b.columns[c].values;
                volatile uint8_t last = b.columns[c].values_n ? values[b.columns[c].values_n - 1] : 0;

                (void)last; /* read, for ASan */
            }
        free(exact);
        free(room);
    }
    hy_batch_done(&b);
}

HY_TEST(test_schema_survives_parse_and_write)
{
    static const char *const good[] = {"f", "*", "(lfi)", "{1:xf3:a b(sy)}", "<1:xa>", "[a[lbli]()]", "{0:f}"};
    static const char *const bad[] = {"",      "l",   "lx",  "(",     "(f",
                                      "f)",    "(*)", "{f}", "{1:x}", "{9:xf}",
                                      "{1xf}", "ff",  "z",   "{:f}",  "((((((((((((((((((f))))))))))))))))))"};
    struct hy_feed_schema s = {0};
    struct hy_buf b;

    hy_buf_init(&b, 1000);
    for (size_t i = 0; i < HY_COUNT(good); i++) {
        hy_buf_clear(&b);
        assert_int_equal(hy_feed_schema_parse(good[i], strlen(good[i]), &s), 0);
        assert_int_equal(hy_feed_schema_write(&s, &b), 0);
        assert_string_equal(hy_buf_cstr(&b), good[i]);
    }
    for (size_t i = 0; i < HY_COUNT(bad); i++)
        assert_int_equal(hy_feed_schema_parse(bad[i], strlen(bad[i]), &s), -EBADMSG);
    hy_feed_schema_done(&s);
    hy_buf_done(&b);
}

HY_TEST(test_schema_matches_column_types)
{
    static const char *const bad[] = {"(fas)", "(fasaa)", "(iasa)", "(faya)", "(fslfa)", "(aaaa)", "*"};
    struct hy_feed_schema s = {0};
    struct sample sample;

    make_sample(&sample);
    assert_int_equal(hy_feed_schema_parse("(fasa)", 6, &s), 0);
    assert_int_equal(hy_feed_schema_check(&s, &sample.batch), 0);
    for (size_t i = 0; i < HY_COUNT(bad); i++) {
        assert_int_equal(hy_feed_schema_parse(bad[i], strlen(bad[i]), &s), 0);
        assert_int_equal(hy_feed_schema_check(&s, &sample.batch), -EBADMSG);
    }
    hy_feed_schema_done(&s);
}

/* ---- casts ---- */

HY_TEST(test_safe_casts_convert_and_check_range)
{
    const double floats[] = {0.5, -2, 1e300, 65504};
    const int64_t ints[] = {0, -1, 127, 300};
    const uint8_t bools[] = {0, 1, 7};
    uint16_t halves[4];
    float narrow[4];
    int8_t small[4];
    uint8_t truth[3];
    double wide[4];

    assert_true(hy_cast_is_safe(HY_DTYPE_FLOAT64, HY_DTYPE_FLOAT16) && hy_cast_is_safe(HY_DTYPE_INT64, HY_DTYPE_UINT8));
    assert_true(hy_cast_is_safe(HY_DTYPE_BOOL, HY_DTYPE_FLOAT32) && hy_cast_is_safe(HY_DTYPE_STR, HY_DTYPE_BYTES));
    assert_false(hy_cast_is_safe(HY_DTYPE_FLOAT32, HY_DTYPE_INT64) || hy_cast_is_safe(HY_DTYPE_INT8, HY_DTYPE_BOOL));
    assert_false(hy_cast_is_safe(HY_DTYPE_STR, HY_DTYPE_INT8) || hy_cast_is_safe(HY_DTYPE_PICKLE, HY_DTYPE_FLOAT32));
    assert_int_equal(hy_cast(HY_DTYPE_FLOAT64, floats, 4, HY_DTYPE_FLOAT32, narrow), 0);
    assert_memory_equal(narrow, ((float[]){0.5f, -2, (float)1e300, 65504}), sizeof narrow);
    assert_int_equal(hy_cast(HY_DTYPE_FLOAT64, floats, 4, HY_DTYPE_FLOAT16, halves), 0);
    assert_int_equal(hy_cast(HY_DTYPE_FLOAT16, halves, 4, HY_DTYPE_FLOAT64, wide), 0);
    assert_memory_equal(wide, ((double[]){0.5, -2, INFINITY, 65504}), sizeof wide);
    assert_int_equal(hy_cast(HY_DTYPE_INT64, ints, 3, HY_DTYPE_INT8, small), 0);
    assert_memory_equal(small, ((int8_t[]){0, -1, 127}), 3);
    assert_int_equal(hy_cast(HY_DTYPE_INT64, ints, 4, HY_DTYPE_INT8, small), -ERANGE);
    assert_int_equal(hy_cast(HY_DTYPE_INT64, ints, 2, HY_DTYPE_UINT64, wide), -ERANGE);
    assert_int_equal(hy_cast(HY_DTYPE_BOOL, bools, 3, HY_DTYPE_BOOL, truth), 0);
    assert_memory_equal(truth, ((uint8_t[]){0, 1, 1}), 3);
}

/* ---- gathering ---- */

/* Strings as foreign objects: a pointer, in 16 bytes. */
static int texts_alive;

static void put_heap_text(void *to, const char *text, size_t n)
{
    char *copy = malloc(n + 1);

    memcpy(copy, text, n);
    copy[n] = '\0';
    memcpy(to, &copy, sizeof copy);
    texts_alive++;
}

static void drop_heap_text(void *text)
{
    char *copy;

    memcpy(&copy, text, sizeof copy);
    free(copy);
    texts_alive--;
}

static const struct hy_gather_sink heap_texts = {
    .text_size = 16, .put_text = put_heap_text, .drop_text = drop_heap_text};

/* The columns of the sample as float32, float32[any], strings and ragged int64. */
static int sample_signature(struct hy_signature *w)
{
    const struct hy_signature_column columns[] = {
        {.name = "0", .dtype = HY_DTYPE_FLOAT32},
        {.name = "1", .dtype = HY_DTYPE_FLOAT32, .dims = 1, .shape = {-1}},
        {.name = "2", .dtype = HY_DTYPE_BYTES},
        {.name = "3", .dtype = HY_DTYPE_INT64, .is_ragged = true},
    };

    return hy_signature_init(w, "(aaaa)", false, columns, 4);
}

static int gather_samples(void *arg)
{
    struct hy_gathered g = {.sink = heap_texts};
    struct hy_batch_cursor r = {0};
    struct hy_signature w = {0};
    struct hy_err err = {0};
    struct sample s;
    int rc = sample_signature(&w);

    (void)arg;
    make_sample(&s);
    if (rc == 0)
        rc = hy_gather_begin(&g, &w);
    for (int i = 0; rc == 0 && i < 3; i++) {
        rc = hy_batch_cursor_begin(&r, &s.batch);
        for (int64_t n = 1; rc == 0 && n > 0 && !hy_batch_cursor_is_done(&r);) {
            n = hy_gather(&g, &r, &w, 2, &err);
            rc = n < 0 ? (int)n : 0;
        }
        hy_batch_cursor_end(&r);
    }
    if (rc == 0) {
        const int64_t *ends = (const int64_t *)(const void *)hy_buf_bytes(&g.columns[3].row_ends);
        char *text;

        assert_int_equal(g.rows, 9);
        assert_memory_equal(g.columns[0].values, ((float[]){1, 2, 3, 1, 2, 3, 1, 2, 3}), 36);
        assert_int_equal(g.columns[1].values_n, 9 * 8);
        assert_memory_equal((float *)g.columns[1].values + 16, ((float[]){5, 6}), 8);
        memcpy(&text, (uint8_t *)g.columns[2].values + 8 * 16, sizeof text);
        assert_string_equal(text, "bc");
        assert_memory_equal(ends, ((int64_t[]){0, 2, 2, 5, 7, 7, 10, 12, 12, 15}), 80);
        assert_memory_equal((int64_t *)g.columns[3].values + 10, ((int64_t[]){7, 8, 9, 10, 11}), 40);
    }
    hy_batch_cursor_end(&r);
    hy_gathered_done(&g);
    hy_signature_done(&w);
    assert_int_equal(texts_alive, 0);
    return rc;
}

HY_TEST(test_batches_are_gathered_by_signature)
{
    assert_int_equal(gather_samples(NULL), 0);
    hy_each_fault(HY_SEAM_ALLOC, gather_samples, NULL);
}

/* An error in the last column leaves nothing in the first. */
HY_TEST(test_gathering_is_all_or_nothing)
{
    static const int64_t bad_ends[] = {0, 2, 9, 5}, few[] = {0, 2, 4, 5};
    struct hy_gathered g = {.sink = heap_texts};
    struct hy_batch_cursor r = {0};
    struct hy_signature w = {0};
    struct hy_err err = {0};
    struct sample s;

    make_sample(&s);
    assert_int_equal(sample_signature(&w), 0);
    assert_int_equal(hy_gather_begin(&g, &w), 0);
    assert_int_equal(hy_batch_cursor_begin(&r, &s.batch), 0);
    assert_int_equal(hy_gather(&g, &r, &w, 2, &err), 2);
    s.columns[3].row_ends = bad_ends;
    r.next = 0;
    assert_int_equal(hy_gather(&g, &r, &w, 3, &err), -EBADMSG);
    assert_int_equal(r.next, 0);
    assert_int_equal(g.rows, 2);
    assert_int_equal(g.columns[0].values_n, 8);
    assert_int_equal(g.columns[3].row_ends.len, 24);
    assert_int_equal(texts_alive, 2);
    s.columns[3].row_ends = s.row_ends;
    w.columns[3] = (struct hy_signature_column){.name = "3", .dtype = HY_DTYPE_INT64, .dims = 1, .shape = {2}};
    hy_gathered_done(&g);
    assert_int_equal(hy_gather_begin(&g, &w), 0);
    s.columns[3].row_ends = few;
    assert_int_equal(hy_gather(&g, &r, &w, 2, &err), 2); /* all rows have the expected two items */
    assert_memory_equal(g.columns[3].values, ((int64_t[]){7, 8, 9, 10}), 32);
    assert_int_equal(hy_gather(&g, &r, &w, 2, &err), -EINVAL);
    assert_non_null(strstr(err.text, "column 3: received rows of shape (ragged,), but expected (2,)"));
    s.batch.schema = "{1:xf1:ya1:zs1:ta}";
    s.batch.schema_n = strlen(s.batch.schema);
    hy_batch_cursor_end(&r);
    assert_int_equal(hy_batch_cursor_begin(&r, &s.batch), 0);
    assert_int_equal(hy_gather(&g, &r, &w, 2, &err), -EINVAL);
    assert_non_null(strstr(err.text, "but expected (aaaa)"));
    hy_batch_cursor_end(&r);
    hy_gathered_done(&g);
    hy_signature_done(&w);
    assert_int_equal(texts_alive, 0);
}
