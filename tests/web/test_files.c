/* SPDX-License-Identifier: Apache-2.0 */
/* Paths sent by browsers, and the formats of files that are sent and shown. */
#include "support.h"

#include <errno.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/string_list.h"
#include "web/files/archive.h"
#include "web/files/csv.h"
#include "web/files/served_dir.h"

/* ---- paths ---- */

HY_TEST(test_paths_below_the_directory_are_accepted)
{
    static const char *const paths[] = {"",     "a",     "a/b",  "..a",   "a..",  "...",    "a b\n",
                                        "\xff", "run.d", ".hop", "store", "x.db", "\\..\\x"};

    for (size_t i = 0; i < HY_COUNT(paths); i++)
        assert_int_equal(hy_served_dir_check(paths[i], NULL), 0);
}

HY_TEST(test_paths_that_leave_the_directory_are_refused)
{
    static const char *const paths[] = {"/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "./a", "a/."};
    char *name = hy_malloc(257), *path = hy_malloc(5001);
    struct hy_err err = {0};

    for (size_t i = 0; i < HY_COUNT(paths); i++)
        assert_int_equal(hy_served_dir_check(paths[i], &err), -EINVAL);
    memset(name, 'x', 256);
    name[256] = '\0';
    assert_int_equal(hy_served_dir_check(name, &err), -EINVAL);
    assert_int_equal(hy_served_dir_check(name + 1, &err), 0);
    for (int i = 0; i < 2500; i++)
        memcpy(path + 2 * (size_t)i, "a/", 3);
    path[4999] = '\0';
    assert_int_equal(hy_served_dir_check(path, &err), -EINVAL);
    free(name);
    free(path);
}

HY_TEST(test_files_of_hopyard_are_refused_at_any_depth_and_in_any_case)
{
    static const char *const paths[] = {".hopyard",           ".HopYard",     "a/.hopyard",       "a/.hopyard/b",
                                        ".hopyard/run-1.key", "run.db",       "a/RUN.db",         "run.db-wal",
                                        "store.db",           "STORE.DB-shm", ".hopyard-1.upload"};
    struct hy_err err = {0};

    for (size_t i = 0; i < HY_COUNT(paths); i++)
        assert_int_equal(hy_served_dir_check(paths[i], &err), -EACCES);
}

/* ---- CSV ---- */

static void assert_row(const char *text, char separator, const char *expected, ssize_t length)
{
    hy_cleanup_string_list struct hy_string_list cells = {0};
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1000);
    assert_int_equal(hy_csv_row(text, strlen(text), separator, true, &cells), length);
    for (size_t i = 0; i < cells.count; i++)
        assert_int_equal(hy_buf_printf(&b, "[%s]", cells.items[i]), 0);
    assert_string_equal(hy_buf_cstr(&b), expected);
}

HY_TEST(test_a_row_of_csv_is_divided_into_cells)
{
    assert_row("a,b\nc", ',', "[a][b]", 4);
    assert_row("a,b\r\nc", ',', "[a][b]", 5);
    assert_row("a;\"b;\"\"c\"\"\n\";d\n", ';', "[a][b;\"c\"\n][d]", 15);
    assert_row(",,\n", ',', "[][][]", 3);
    assert_row("\nx", ',', "[]", 1);
    assert_row("\"open, \n", ',', "[open, \n]", 8);
    assert_row("\"a\"b\tc", '\t', "[ab][c]", 6);
}

HY_TEST(test_an_incomplete_row_needs_more_bytes)
{
    static const char *const texts[] = {"", "a,b", "a,\"b\n", "a\r", "\"a\""};
    hy_cleanup_string_list struct hy_string_list cells = {0};

    for (size_t i = 0; i < 3; i++)
        assert_int_equal(hy_csv_row(texts[i], strlen(texts[i]), ',', false, &cells), 0);
    assert_int_equal(cells.count, 0);
}

HY_TEST(test_the_separator_is_that_of_the_most_equal_rows)
{
    static const struct {
        const char *text;
        char separator;
    } all[] = {
        {"a,b\n1,2\n3,4\n", ','},
        {"a;b\n1,5;2\n3,5;4\n", ';'},
        {"a\tb c\n1\t2,3\n", '\t'},
        {"a|b\n1|2\n", '|'},
        {"one\ntwo\n", ','},
        {"", ','},
        {"\"a;b\",c\n\"d;e;f\",g\n", ','},
    };

    for (size_t i = 0; i < HY_COUNT(all); i++)
        assert_int_equal(hy_csv_separator(all[i].text, strlen(all[i].text)), all[i].separator);
}

/* ---- tar ---- */

static size_t octal(const uint8_t *at)
{
    return strtoul((const char *)at, NULL, 8);
}

HY_TEST(test_a_tar_header_has_a_checksum)
{
    const struct hy_tar_entry e = {.path = "d/f", .size = 1000, .modified_ms = 5000, .mode = 0100644};
    hy_cleanup_buf struct hy_buf b;
    const uint8_t *h;
    size_t sum = 8 * ' ';

    hy_buf_init(&b, 10000);
    assert_int_equal(hy_tar_append_header(&b, &e), 0);
    assert_int_equal(b.len, 512);
    h = hy_buf_bytes(&b);
    for (size_t i = 0; i < 512; i++)
        sum += i < 148 || i >= 156 ? h[i] : 0;
    assert_string_equal((const char *)h, "d/f");
    assert_int_equal(octal(h + 100), 0644);
    assert_int_equal(octal(h + 124), 1000);
    assert_int_equal(octal(h + 136), 5);
    assert_int_equal(octal(h + 148), sum);
    assert_int_equal(h[156], '0');
}

HY_TEST(test_long_paths_and_sizes_are_in_an_extended_header)
{
    const struct hy_tar_entry large = {.path = "f", .size = 1ull << 40};
    hy_cleanup_buf struct hy_buf b;
    const uint8_t *h;

    hy_buf_init(&b, 10000);
    assert_int_equal(hy_tar_append_header(&b, &large), 0);
    assert_int_equal(b.len, 3 * 512);
    h = hy_buf_bytes(&b);
    assert_int_equal(h[156], 'x');
    assert_string_equal((const char *)h + 512, "9 path=f\n22 size=1099511627776\n");
}
