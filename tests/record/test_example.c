/* SPDX-License-Identifier: Apache-2.0 */
/* tf.Example to columns and back; the hexadecimal data was written by TensorFlow. */
#include "support.h"

#include <errno.h>

#include "base/buf.h"
#include "base/err.h"
#include "record/record.h"

/* {"f": floats 1.5, -2}, {"i": int64s 3, -1, 300}, {"b": bytes "hop", ""}; then f: none, i: 7 */
static const char example[] =
    "0a3b0a0e0a016212090a070a03686f700a000a110a0166120c120a0a080000c03f000000c00a160a016912111a0f0a0d03ff"
    "ffffffffffffffff01ac02";
static const char second[] = "0a0c0a0a0a016912051a030a0107";
/* context {"n": int64 2}, lists {"s": [[1, 2], [], [3]] of int64, "w": [["a"], ["b", "c"]] of bytes} */
static const char sequence[] =
    "0a0c0a0a0a016e12051a030a010212320a180a017312130a061a040a0201020a021a000a051a030a01030a160a017712110a"
    "050a030a01610a080a060a01620a0163";

static size_t from_hex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;

    for (size_t i = 0; i < n; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1]};

        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return n;
}

static int add(struct hy_columns *c, const char *hex, struct hy_err *err)
{
    uint8_t bytes[512];
    size_t n = from_hex(hex, bytes);

    return hex == sequence ? hy_sequence_example_parse(c, bytes, n, err) : hy_example_parse(c, bytes, n, err);
}

static const struct hy_column *column(struct hy_columns *c, const char *name, enum hy_column_kind kind)
{
    const struct hy_column *found = hy_columns_find(c, name, strlen(name), false);

    found = found ? found : hy_columns_find(c, name, strlen(name), true);
    assert_non_null(found);
    assert_int_equal(found->kind, kind);
    return found;
}

#define assert_ends(ends, ...)                                                                                         \
    do {                                                                                                               \
        const int64_t wanted[] = {__VA_ARGS__};                                                                        \
        assert_int_equal((ends)->len, sizeof wanted);                                                                  \
        assert_memory_equal(hy_buf_bytes(ends), wanted, sizeof wanted);                                                \
    } while (0)

#define assert_values(c, type, ...)                                                                                    \
    do {                                                                                                               \
        const type wanted[] = {__VA_ARGS__};                                                                           \
        assert_int_equal((c)->values.len, sizeof wanted);                                                              \
        assert_memory_equal(hy_buf_bytes(&(c)->values), wanted, sizeof wanted);                                        \
    } while (0)

#define assert_there(c, ...)                                                                                           \
    do {                                                                                                               \
        const uint8_t wanted[] = {__VA_ARGS__};                                                                        \
        assert_int_equal((c)->there.len, sizeof wanted);                                                               \
        assert_memory_equal(hy_buf_bytes(&(c)->there), wanted, sizeof wanted);                                         \
    } while (0)

/* ---- to columns ---- */

HY_TEST(test_rows_become_columns)
{
    struct hy_columns c;
    const struct hy_column *f, *i, *b;

    hy_columns_init(&c);
    assert_int_equal(add(&c, example, NULL), 0);
    assert_int_equal(add(&c, second, NULL), 0);
    assert_int_equal(add(&c, example, NULL), 0);
    assert_int_equal(hy_columns_fill(&c), 0);
    assert_int_equal(c.rows, 3);
    assert_int_equal(c.count, 3);
    f = column(&c, "f", HY_KIND_FLOAT);
    i = column(&c, "i", HY_KIND_INT64);
    b = column(&c, "b", HY_KIND_BYTES);
    assert_values(f, float, 1.5f, -2.0f, 1.5f, -2.0f);
    assert_ends(&f->row_ends, 0, 2, 2, 4);
    assert_values(i, int64_t, 3, -1, 300, 7, 3, -1, 300);
    assert_ends(&i->row_ends, 0, 3, 4, 7);
    assert_values(b, char, 'h', 'o', 'p', 'h', 'o', 'p');
    assert_ends(&b->value_ends, 0, 3, 3, 6, 6);
    assert_ends(&b->row_ends, 0, 2, 2, 4);
    assert_there(b, 1, 0, 1);
    assert_there(i, 1, 1, 1);
    hy_columns_clear(&c);
    assert_int_equal(add(&c, second, NULL), 0);
    assert_int_equal(hy_columns_fill(&c), 0);
    assert_values(i, int64_t, 7);
    assert_ends(&b->row_ends, 0, 0);
    assert_there(b, 0);
    hy_columns_done(&c);
}

HY_TEST(test_steps_are_a_separate_level)
{
    struct hy_columns c;
    const struct hy_column *s, *w;

    hy_columns_init(&c);
    assert_int_equal(add(&c, second, NULL), 0); /* without steps */
    assert_int_equal(add(&c, sequence, NULL), 0);
    assert_int_equal(hy_columns_fill(&c), 0);
    s = column(&c, "s", HY_KIND_INT64);
    w = column(&c, "w", HY_KIND_BYTES);
    assert_true(s->has_steps);
    assert_values(s, int64_t, 1, 2, 3);
    assert_ends(&s->step_ends, 0, 2, 2, 3);
    assert_ends(&s->row_ends, 0, 0, 3);
    assert_ends(&w->value_ends, 0, 1, 2, 3);
    assert_ends(&w->step_ends, 0, 1, 3);
    assert_ends(&w->row_ends, 0, 0, 2);
    assert_values(column(&c, "n", HY_KIND_INT64), int64_t, 2);
    hy_columns_done(&c);
}

HY_TEST(test_closed_columns_take_only_their_features)
{
    struct hy_columns c;

    hy_columns_init(&c);
    assert_non_null(hy_columns_add(&c, "i", 1, false, HY_KIND_INT64));
    assert_non_null(hy_columns_add(&c, "z", 1, false, HY_KIND_FLOAT));
    c.is_closed = true;
    assert_int_equal(add(&c, example, NULL), 0);
    assert_int_equal(hy_columns_fill(&c), 0);
    assert_int_equal(c.count, 2);
    assert_values(column(&c, "i", HY_KIND_INT64), int64_t, 3, -1, 300);
    assert_ends(&column(&c, "z", HY_KIND_FLOAT)->row_ends, 0, 0);
    hy_columns_done(&c);
}

/* A repeated map key: "a" twice, with different values. */
HY_TEST(test_the_last_entry_of_a_repeated_name_counts)
{
    static const char twice[] = "0a1a0a0b0a016112061a040a0201020a0b0a016112061a040a020304";
    struct hy_columns c;

    hy_columns_init(&c);
    for (int i = 0; i < 2; i++)
        assert_int_equal(add(&c, twice, NULL), 0);
    assert_values(column(&c, "a", HY_KIND_INT64), int64_t, 3, 4, 3, 4);
    assert_ends(&column(&c, "a", HY_KIND_INT64)->row_ends, 0, 2, 4);
    hy_columns_done(&c);
}

/* 'i' without values, of no kind, and missing. */
HY_TEST(test_a_feature_without_values_is_present_and_one_without_kind_is_missing)
{
    static const char *const rows[] = {"0a090a070a016912021a00", "0a070a050a01691200", ""};
    struct hy_columns c;

    hy_columns_init(&c);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(add(&c, rows[i], NULL), 0);
    assert_int_equal(hy_columns_fill(&c), 0);
    assert_ends(&column(&c, "i", HY_KIND_INT64)->row_ends, 0, 0, 0, 0);
    assert_there(column(&c, "i", HY_KIND_INT64), 1, 0, 0);
    hy_columns_done(&c);
}

/* Unpacked numbers, as from old writers, and an unknown field. */
HY_TEST(test_numbers_may_be_unpacked)
{
    static const char loose[] = "0a260a130a0166120e120c0d0000c03f0d000000c010010a0f0a0169120a1a08080308ffffffff0f";
    struct hy_columns c;

    hy_columns_init(&c);
    assert_int_equal(add(&c, loose, NULL), 0);
    assert_values(column(&c, "f", HY_KIND_FLOAT), float, 1.5f, -2.0f);
    assert_values(column(&c, "i", HY_KIND_INT64), int64_t, 3, 0xffffffff);
    hy_columns_done(&c);
}

/* ---- invalid examples ---- */

HY_TEST(test_a_feature_of_another_type_is_reported_by_name)
{
    struct hy_columns c;
    struct hy_err err = {0};

    hy_columns_init(&c);
    assert_non_null(hy_columns_add(&c, "i", 1, false, HY_KIND_FLOAT));
    assert_int_equal(add(&c, example, &err), -EINVAL);
    assert_string_equal(err.text, "the feature 'i' is int64 here, but float in earlier rows");
    assert_int_equal(c.rows, 0);
    hy_columns_done(&c);
}

HY_TEST(test_an_example_with_feature_lists_is_rejected)
{
    struct hy_columns c;
    struct hy_err err = {0};
    uint8_t bytes[512];

    hy_columns_init(&c);
    assert_int_equal(hy_example_parse(&c, bytes, from_hex(sequence, bytes), &err), -EBADMSG);
    assert_string_equal(err.text, "the record has feature lists: it is a tf.SequenceExample, not a tf.Example");
    assert_int_equal(c.rows, 0);
    hy_columns_done(&c);
}

/* A row that cannot be parsed is discarded completely. */
HY_TEST(test_a_truncated_row_leaves_nothing)
{
    uint8_t bytes[512];
    size_t n = from_hex(example, bytes), refused = 0;
    struct hy_columns c;

    hy_columns_init(&c);
    assert_int_equal(add(&c, example, NULL), 0);
    for (size_t cut = 1; cut < n; cut++) {
        struct hy_err err = {0};
        uint8_t *copy = malloc(cut); /* exact size, so that ASan detects an overread */

        assert_non_null(copy);
        memcpy(copy, bytes, cut);
        refused += hy_example_parse(&c, copy, cut, &err) == -EBADMSG;
        assert_string_equal(err.text, "the record is not a tf.Example");
        free(copy);
    }
    assert_int_equal(refused, n - 1);
    assert_int_equal(add(&c, second, NULL), 0);
    assert_int_equal(hy_columns_fill(&c), 0);
    assert_values(column(&c, "i", HY_KIND_INT64), int64_t, 3, -1, 300, 7);
    assert_ends(&column(&c, "b", HY_KIND_BYTES)->value_ends, 0, 3, 3);
    hy_columns_done(&c);
}

/* ---- encoding ---- */

static void read_again(struct hy_columns *c, uint64_t row, bool is_sequence, struct hy_columns *again)
{
    hy_cleanup_buf struct hy_buf file;
    struct hy_record r;
    const char *why;
    size_t need;

    hy_buf_init(&file, SIZE_MAX);
    assert_int_equal(hy_example_append(&file, c, row, is_sequence), 0);
    assert_int_equal(hy_record_parse(hy_buf_bytes(&file), file.len, SIZE_MAX, &r, &need, &why), file.len);
    assert_int_equal(is_sequence ? hy_sequence_example_parse(again, r.bytes, r.n, NULL)
                                 : hy_example_parse(again, r.bytes, r.n, NULL),
                     0);
}

static void assert_same(const struct hy_buf *a, const struct hy_buf *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(hy_buf_bytes(a), hy_buf_bytes(b), a->len);
}

HY_TEST(test_encoded_rows_are_parsed_again)
{
    struct hy_columns c, again;

    hy_columns_init(&c);
    hy_columns_init(&again);
    assert_int_equal(add(&c, example, NULL), 0);
    assert_int_equal(add(&c, sequence, NULL), 0);
    assert_int_equal(add(&c, second, NULL), 0);
    assert_int_equal(hy_columns_fill(&c), 0);
    for (uint64_t row = 0; row < c.rows; row++)
        read_again(&c, row, true, &again);
    assert_int_equal(hy_columns_fill(&again), 0);
    assert_int_equal(again.count, c.count);
    for (size_t i = 0; i < c.count; i++) {
        const struct hy_column *a = &c.list[i], *b = column(&again, a->name, a->kind);

        assert_same(&a->values, &b->values);
        assert_same(&a->there, &b->there);
        assert_same(&a->value_ends, &b->value_ends);
        assert_same(&a->step_ends, &b->step_ends);
        assert_same(&a->row_ends, &b->row_ends);
    }
    hy_columns_done(&c);
    hy_columns_done(&again);
}

/* Varints of every length. */
HY_TEST(test_varints_of_every_length)
{
    struct hy_columns c, again;
    struct hy_column *numbers;
    int64_t *room;

    hy_columns_init(&c);
    hy_columns_init(&again);
    numbers = hy_columns_add(&c, "", 0, false, HY_KIND_INT64);
    assert_non_null(numbers);
    assert_int_equal(hy_column_begin(numbers, 0), 0);
    room = hy_column_reserve(numbers, 128);
    assert_non_null(room);
    for (int bit = 0; bit < 64; bit++) {
        room[2 * bit] = (int64_t)(1ull << bit);
        room[2 * bit + 1] = (int64_t)((1ull << bit) - 1);
    }
    hy_column_added(numbers, 128);
    assert_int_equal(hy_column_end(numbers), 0);
    hy_columns_end_row(&c);
    read_again(&c, 0, false, &again);
    assert_same(&numbers->values, &again.list[0].values);
    hy_columns_done(&c);
    hy_columns_done(&again);
}

static int write_all(void *arg)
{
    hy_cleanup_buf struct hy_buf file;
    struct hy_columns c;
    int rc;

    (void)arg;
    hy_columns_init(&c);
    hy_buf_init(&file, SIZE_MAX);
    rc = add(&c, example, NULL);
    if (rc == 0)
        rc = add(&c, sequence, NULL);
    if (rc == 0)
        rc = hy_columns_fill(&c);
    for (uint64_t row = 0; rc == 0 && row < 2; row++)
        rc = hy_example_append(&file, &c, row, true);
    hy_columns_done(&c);
    return rc;
}

HY_TEST(test_out_of_memory_anywhere)
{
    hy_each_fault(HY_SEAM_ALLOC, write_all, NULL);
}
