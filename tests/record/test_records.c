/* SPDX-License-Identifier: Apache-2.0 */
/* Files of records: plain, compressed, in several members; larger than the read buffer. */
#include "support.h"

#include <errno.h>
#include <unistd.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "record/record.h"

#define BIG (3u << 20)

static char directory[] = "/tmp/hopyard-records-XXXXXX";
static char plain[64], zipped[64];

/* Three records: small, of BIG bytes, empty. */
static void make_records(struct hy_buf *b)
{
    uint8_t *big = malloc(BIG);

    assert_non_null(big);
    for (size_t i = 0; i < BIG; i++)
        big[i] = (uint8_t)(i * i >> 7);
    hy_buf_init(b, SIZE_MAX);
    assert_int_equal(hy_record_append(b, "hop", 3), 0);
    assert_int_equal(hy_record_append(b, big, BIG), 0);
    assert_int_equal(hy_record_append(b, NULL, 0), 0);
    free(big);
}

static void write_bytes(const char *path, const void *bytes, size_t n, const char *mode)
{
    FILE *f = fopen(path, mode);

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    hy_cleanup_buf struct hy_buf b;
    gzFile zip;

    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(plain, sizeof plain, "%s/plain", directory);
    snprintf(zipped, sizeof zipped, "%s/zipped", directory);
    make_records(&b);
    write_bytes(plain, hy_buf_bytes(&b), b.len, "w");
    for (int i = 0; i < 2; i++) { /* "a": appends a second member, split in the middle of a record */
        const size_t from = i ? 1000 : 0, n = i ? b.len - 1000 : 1000;

        zip = gzopen(zipped, i ? "a" : "w");
        assert_non_null(zip);
        assert_int_equal(gzwrite(zip, hy_buf_bytes(&b) + from, (unsigned)n), (int)n);
        assert_int_equal(gzclose(zip), Z_OK);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return hy_remove_tree(directory);
}

static void assert_three(const char *path)
{
    static const size_t sizes[] = {3, BIG, 0}, places[] = {0, 19, 19 + BIG + 16};
    struct hy_records *r = NULL;
    struct hy_record record;
    struct hy_err err = {0};

    assert_int_equal(hy_records_open(path, &r, &err), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hy_records_next(r, &record, &err), 1);
        assert_int_equal(record.n, sizes[i]);
        assert_int_equal(hy_records_at(r), places[i]);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(hy_records_next(r, &record, &err), 0);
    hy_records_close(r);
}

HY_TEST(test_plain_and_compressed_files_have_the_same_records)
{
    assert_three(plain);
    assert_three(zipped);
}

static void assert_fails(const char *path, const char *words)
{
    struct hy_records *r = NULL;
    struct hy_record record;
    struct hy_err err = {0};
    int rc;

    assert_int_equal(hy_records_open(path, &r, &err), 0);
    while ((rc = hy_records_next(r, &record, &err)) > 0)
        continue;
    assert_int_equal(rc, -EBADMSG);
    assert_non_null(strstr(err.text, words));
    hy_records_close(r);
}

static int read_all(void *path)
{
    struct hy_records *r = NULL;
    struct hy_record record;
    struct hy_err err = {0};
    int rc = hy_records_open(path, &r, &err);

    while (rc == 0 && (rc = hy_records_next(r, &record, &err)) > 0)
        rc = 0;
    hy_records_close(r);
    return rc;
}

HY_TEST(test_memory_and_disk_faults_anywhere)
{
    hy_each_fault(HY_SEAM_ALLOC, read_all, plain);
    hy_each_fault(HY_SEAM_SYS, read_all, plain);
    hy_each_fault(HY_SEAM_ALLOC, read_all, zipped);
    hy_each_fault(HY_SEAM_SYS, read_all, zipped);
}

/* Last: it damages the files. */
HY_TEST(test_the_position_of_a_truncation_is_reported)
{
    char path[80];

    snprintf(path, sizeof path, "%s/cut", directory);
    assert_int_equal(link(plain, path), 0);
    assert_int_equal(unlink(plain), 0);
    assert_int_equal(truncate(path, BIG), 0);
    assert_fails(path, "is truncated in the record at byte 19");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(truncate(zipped, 4000), 0);
    assert_fails(zipped, "its compressed data is truncated");
}

int main(int argc, char **argv)
{
    return hy_run_tests(argc > 1 ? argv[1] : NULL, set_up, tear_down);
}
