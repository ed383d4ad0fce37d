/* SPDX-License-Identifier: Apache-2.0 */
/* The footer of Parquet files; the hexadecimal metadata was written by Arrow. */
#include "support.h"

#include <errno.h>

#include "base/fault.h"
#include "base/mem.h"
#include "record/record.h"

/* id: int64, s: string, n: struct<x: double>; two rows */
static const char by_arrow[] =
    "1504195c35001806736368656d61150600150425021802696400150c250218017325004c1c000000350218016e150200150a"
    "2502180178001604191c193c26001c150419350006101918026964150016041674167426442608292c150415001502001500"
    "15101502003c29061926000400000026001c150c19350006101918017315001604165e165e26a201267c292c150415001502"
    "00150015101502003c160219061926020200000026001c150a19350006101928016e0178150016041674167426960226da01"
    "292c15041500150200150015101502003c2906193600000400000016c6021604260816c602002820706172717565742d6370"
    "702d6172726f772076657273696f6e2032362e302e31193c1c00001c00001c000000";

static uint8_t bytes[1000];

static size_t from_hex(const char *hex)
{
    const size_t n = strlen(hex) / 2;

    for (size_t i = 0; i < n; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1]};

        bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return n;
}

HY_TEST(test_columns_rows_and_groups_are_read)
{
    static const struct hy_parquet_column columns[] = {{(char *)"id", "int64", NULL, "optional"},
                                                       {(char *)"s", "byte array", "string", "optional"},
                                                       {(char *)"n.x", "double", NULL, "optional"}};
    const char *why = NULL;
    struct hy_parquet f;

    assert_int_equal(hy_parquet_parse(bytes, from_hex(by_arrow), &f, &why), 0);
    assert_int_equal(f.rows, 2);
    assert_int_equal(f.group_count, 1);
    assert_non_null(strstr(f.created_by, "parquet-cpp-arrow"));
    assert_int_equal(f.column_count, HY_COUNT(columns));
    for (size_t i = 0; i < HY_COUNT(columns); i++) {
        assert_string_equal(f.columns[i].path, columns[i].path);
        assert_string_equal(f.columns[i].type, columns[i].type);
        assert_string_equal(f.columns[i].repetition, columns[i].repetition);
        assert_int_equal(f.columns[i].meaning == NULL, columns[i].meaning == NULL);
    }
    assert_string_equal(f.columns[1].meaning, "string");
    hy_parquet_done(&f);
}

HY_TEST(test_metadata_that_is_cut_anywhere_is_refused)
{
    const size_t n = from_hex(by_arrow);

    for (size_t i = 0; i < n; i++) {
        const char *why = NULL;
        struct hy_parquet f;

        assert_int_equal(hy_parquet_parse(bytes, i, &f, &why), -EBADMSG);
        assert_non_null(why);
    }
}

static const struct {
    const char *hex, *why;
} refused[] = {
    {"00", "no schema"},
    {"1502", "ends too early"},
    {"16ffffffffffffffffffff01", "more than 64 bits"},
    {"187f61", "string that is longer"},
    {"19fcffffffff0f", "list that is longer"},
    {"1bff01888861", "map that is longer"},
    {"1f", "unknown type"},
    {"0500", "ends too early"},
    {"050500", "invalid field"},
    {"291500", "not a list of columns"},
    {"292c48017215020048016115fe7f0000", "invalid number of children"},
    {"293c480172150200480161004801620000", "do not form a tree"},
    {"291c4801721504000000", "do not form a tree"},
    {"291c48017200160100", "negative number of rows"},
};

HY_TEST(test_impossible_metadata_is_refused_with_a_reason)
{
    char deep[201] = {0};
    const char *why = NULL;
    struct hy_parquet f;

    for (size_t i = 0; i < HY_COUNT(refused); i++) {
        why = NULL;
        assert_int_equal(hy_parquet_parse(bytes, from_hex(refused[i].hex), &f, &why), -EBADMSG);
        if (!strstr(why, refused[i].why))
            fail_msg("%s: %s", refused[i].hex, why);
    }
    for (int i = 0; i < 100; i++)
        memcpy(deep + 2 * i, "1c", 2);
    assert_int_equal(hy_parquet_parse(bytes, from_hex(deep), &f, &why), -EBADMSG);
    assert_string_equal(why, "its metadata is nested too deeply");
}

HY_TEST(test_booleans_in_a_map_take_a_byte_each)
{
    const char *why = NULL;
    struct hy_parquet f;

    assert_int_equal(hy_parquet_parse(bytes,
                                      from_hex("291c480172001602"
                                               "6b0211"
                                               "01020102"
                                               "00"),
                                      &f, &why),
                     0);
    assert_int_equal(f.rows, 1);
    hy_parquet_done(&f);
    assert_int_equal(hy_parquet_parse(bytes,
                                      from_hex("291c480172001602"
                                               "6b0311"
                                               "01020102"
                                               "00"),
                                      &f, &why),
                     -EBADMSG);
    assert_string_equal(why, "it has a map that is longer than its metadata");
}

static void append_varint(struct hy_buf *b, uint32_t n)
{
    do {
        const uint8_t byte = (uint8_t)((n & 0x7f) | (n > 0x7f ? 0x80 : 0));

        hy_buf_append(b, &byte, 1);
        n >>= 7;
    } while (n);
}

/* A root with `count` columns without a name, in a group whose name has `length` bytes. */
static int parse_columns(uint32_t count, uint32_t length, const char **ret_why)
{
    struct hy_parquet f = {0};
    struct hy_buf b;
    int rc;

    hy_buf_init(&b, 64u << 20);
    hy_buf_append(&b, "\x29\xfc", 2);
    append_varint(&b, count + 2);
    hy_buf_append(&b, "\x48\x01r\x15\x02\x00\x48", 7); /* the root, which has one child */
    append_varint(&b, length);
    for (uint32_t i = 0; i < length; i++)
        hy_buf_append(&b, "g", 1);
    hy_buf_append(&b, "\x15", 1);
    append_varint(&b, 2 * count);
    for (uint32_t i = 0; i <= count; i++) /* the end of the group's element, and the columns */
        hy_buf_append(&b, "\x00", 1);
    hy_buf_append(&b, "\x16\x02\x00", 3);
    rc = hy_parquet_parse(hy_buf_bytes(&b), b.len, &f, ret_why);
    if (rc == 0)
        hy_parquet_done(&f);
    hy_buf_done(&b);
    return rc;
}

HY_TEST(test_a_small_file_does_not_become_many_long_columns)
{
    const char *why = NULL;

    assert_int_equal(parse_columns(1000, 1000, &why), 0);
    assert_int_equal(parse_columns(5000, 1000, &why), -EBADMSG);
    assert_string_equal(why, "it has too many columns, or too long names");
    assert_int_equal(parse_columns(20001, 1, &why), -EBADMSG);
    assert_string_equal(why, "it has too many columns, or too long names");
}

static int parse(void *arg)
{
    const char *why;
    struct hy_parquet f;
    int rc = hy_parquet_parse(bytes, from_hex(by_arrow), &f, &why);

    (void)arg;
    if (rc == 0)
        hy_parquet_done(&f);
    return rc;
}

HY_TEST(test_out_of_memory_leaves_nothing)
{
    hy_each_fault(HY_SEAM_ALLOC, parse, NULL);
}

HY_TEST(test_the_end_of_a_file_has_the_length_of_its_metadata)
{
    assert_int_equal(hy_parquet_footer((const uint8_t *)"\x05\x01\0\0PAR1"), 261);
    assert_int_equal(hy_parquet_footer((const uint8_t *)"\x05\x01\0\0PARE"), -EBADMSG);
}
