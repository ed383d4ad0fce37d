/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums and records; the hexadecimal data was written by TensorFlow's TFRecordWriter. */
#include "support.h"

#include <errno.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "record/crc32c.h"
#include "record/record.h"

#define MAX (1u << 20)

/* "", "hop", and the bytes 0 to 63 */
static const char by_tensorflow[] = "000000000000000029039807d8ea82a2"
                                    "0300000000000000b099490e686f70abbb8bdd"
                                    "40000000000000002817f495"
                                    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
                                    "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
                                    "b2e15a10";

static size_t from_hex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;

    for (size_t i = 0; i < n; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1]};

        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return n;
}

/* ---- checksums ---- */

/* RFC 3720, B.4, and the check value of the CRC catalogues. */
HY_TEST(test_checksum_is_crc32c)
{
    uint8_t bytes[32] = {0};

    assert_int_equal(hy_crc32c(0, "", 0), 0);
    assert_int_equal(hy_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(hy_crc32c(0, bytes, sizeof bytes), 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(hy_crc32c(0, bytes, sizeof bytes), 0x62a8ab43u);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(hy_crc32c(0, bytes, sizeof bytes), 0x46dd794eu);
}

/* Bit by bit, from the definition. */
static uint32_t plainly(const uint8_t *bytes, size_t n)
{
    uint32_t crc = 0xffffffffu;

    while (n--) {
        crc ^= *bytes++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

HY_TEST(test_tables_and_instruction_agree_at_every_length_and_alignment)
{
    uint8_t bytes[128];
    struct hy_rng rng;

    hy_rng_seed(&rng, 7, 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)hy_rng_next(&rng);
    for (size_t at = 0; at < 9; at++)
        for (size_t n = 0; n <= sizeof bytes - at; n++) {
            uint32_t want = plainly(bytes + at, n);

            assert_int_equal(hy_crc32c_soft(0, bytes + at, n), want);
            assert_int_equal(hy_crc32c(0, bytes + at, n), want);
            if (hy_crc32c_has_hard())
                assert_int_equal(hy_crc32c_hard(0, bytes + at, n), want);
        }
}

HY_TEST(test_tables_and_instruction_agree_on_long_input)
{
    static uint8_t bytes[5000];
    struct hy_rng rng;

    hy_rng_seed(&rng, 8, 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)hy_rng_next(&rng);
    for (size_t n = 1000; n <= sizeof bytes - 8; n += 1 + n % 13) {
        uint32_t want = plainly(bytes + n % 8, n);

        assert_int_equal(hy_crc32c_soft(0, bytes + n % 8, n), want);
        assert_int_equal(hy_crc32c(0, bytes + n % 8, n), want);
        assert_int_equal(hy_crc32c(hy_crc32c(0, bytes + n % 8, n / 3), bytes + n % 8 + n / 3, n - n / 3), want);
    }
}

HY_TEST(test_a_checksum_can_be_continued)
{
    static const char text[] = "a hopyard is a field where hops are trained";
    uint32_t whole = hy_crc32c(0, text, sizeof text);

    for (size_t cut = 0; cut <= sizeof text; cut++) {
        assert_int_equal(hy_crc32c(hy_crc32c(0, text, cut), text + cut, sizeof text - cut), whole);
        assert_int_equal(hy_crc32c_soft(hy_crc32c_soft(0, text, cut), text + cut, sizeof text - cut), whole);
    }
}

/* Four at a time, and the rest; lengths of whole words, and others. */
HY_TEST(test_batched_checksums_equal_single_ones)
{
    static uint8_t bytes[13 * 512 + 3];
    static const size_t lengths[] = {0, 1, 7, 8, 24, 511, 512};
    struct hy_rng rng;

    hy_rng_seed(&rng, 9, 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)hy_rng_next(&rng);
    for (size_t k = 0; k < HY_COUNT(lengths); k++)
        for (size_t count = 0; count <= 13; count++) {
            uint32_t found[14] = {[13] = 7};

            hy_crc32c_each(bytes + 3, lengths[k], count, found);
            for (size_t i = 0; i < count; i++)
                assert_int_equal(found[i], plainly(bytes + 3 + i * lengths[k], lengths[k]));
            assert_int_equal(found[13], 7);
        }
}

/* ---- records ---- */

HY_TEST(test_records_equal_those_of_tensorflow)
{
    uint8_t want[256], numbers[64];
    size_t n = from_hex(by_tensorflow, want);
    hy_cleanup_buf struct hy_buf b;

    for (size_t i = 0; i < sizeof numbers; i++)
        numbers[i] = (uint8_t)i;
    hy_buf_init(&b, MAX);
    assert_int_equal(hy_record_append(&b, NULL, 0), 0);
    assert_int_equal(hy_record_append(&b, "hop", 3), 0);
    assert_int_equal(hy_record_append(&b, numbers, sizeof numbers), 0);
    assert_int_equal(b.len, n);
    assert_memory_equal(hy_buf_bytes(&b), want, n);
}

HY_TEST(test_records_of_tensorflow_are_parsed)
{
    uint8_t bytes[256];
    size_t n = from_hex(by_tensorflow, bytes), at = 0, need;
    struct hy_record r[3];
    const char *why;

    for (int i = 0; i < 3; i++) {
        int64_t took = hy_record_parse(bytes + at, n - at, MAX, &r[i], &need, &why);

        assert_true(took > 0);
        at += (size_t)took;
    }
    assert_int_equal(at, n);
    assert_int_equal(r[0].n, 0);
    assert_int_equal(r[1].n, 3);
    assert_memory_equal(r[1].bytes, "hop", 3);
    assert_int_equal(r[2].n, 64);
    assert_int_equal(r[2].bytes[63], 63);
}

HY_TEST(test_a_partial_record_reports_how_many_bytes_it_needs)
{
    hy_cleanup_buf struct hy_buf b;
    struct hy_record r = {0};
    const char *why = NULL;
    size_t need;

    hy_buf_init(&b, MAX);
    assert_int_equal(hy_record_append(&b, "hopyard", 7), 0);
    for (size_t n = 0; n < b.len; n++) {
        need = 0;
        assert_int_equal(hy_record_parse(hy_buf_bytes(&b), n, MAX, &r, &need, &why), 0);
        assert_int_equal(need, n < 12 ? 12 : b.len);
    }
    assert_null(r.bytes);
    assert_null(why);
    assert_int_equal(hy_record_parse(hy_buf_bytes(&b), b.len, MAX, &r, &need, &why), b.len);
}

HY_TEST(test_every_flipped_bit_is_detected)
{
    hy_cleanup_buf struct hy_buf b;
    uint8_t bytes[64];
    size_t n, need;

    hy_buf_init(&b, MAX);
    assert_int_equal(hy_record_append(&b, "hopyard", 7), 0);
    n = b.len;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        struct hy_record r = {0};
        const char *why = NULL;

        memcpy(bytes, hy_buf_bytes(&b), n);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(hy_record_parse(bytes, n, MAX, &r, &need, &why), -EBADMSG);
        assert_non_null(why);
        assert_null(r.bytes);
    }
}

HY_TEST(test_a_record_over_the_limit_is_rejected_at_once)
{
    /* Headers with valid checksums: of 5 bytes and of 2^64-1. */
    uint8_t five[12] = {5}, endless[12];
    struct hy_record r;
    const char *why = NULL;
    size_t need;

    memset(endless, 0xff, 8);
    for (int i = 0; i < 2; i++) {
        uint8_t *head = i ? endless : five;
        uint32_t check = hy_crc32c_mask(hy_crc32c(0, head, 8));

        for (int k = 0; k < 4; k++)
            head[8 + k] = (uint8_t)(check >> 8 * k);
    }
    assert_int_equal(hy_record_parse(five, sizeof five, 4, &r, &need, &why), -EMSGSIZE);
    assert_string_equal(why, "a record is too long");
    assert_int_equal(hy_record_parse(five, sizeof five, 5, &r, &need, &why), 0);
    assert_int_equal(need, 21);
    assert_int_equal(hy_record_parse(endless, sizeof endless, SIZE_MAX, &r, &need, &why), -EMSGSIZE);
}

HY_TEST(test_a_full_buffer_is_unchanged)
{
    hy_cleanup_buf struct hy_buf b;
    uint8_t *at;

    hy_buf_init(&b, 40);
    assert_int_equal(hy_record_append(&b, "hop", 3), 0);
    assert_int_equal(hy_record_append(&b, "hops", 6), -ENOBUFS);
    assert_int_equal(hy_record_begin(&b, SIZE_MAX - 8, &at), -ENOBUFS);
    assert_int_equal(b.len, 19);
    assert_int_equal(hy_record_append(&b, "hops!", 5), 0);
    assert_int_equal(b.len, 40);
}

static int append_some(void *arg)
{
    hy_cleanup_buf struct hy_buf b;
    int rc = 0;

    (void)arg;
    hy_buf_init(&b, MAX);
    for (size_t n = 1; n < 4000 && rc == 0; n *= 3) {
        static const uint8_t zeros[4000];
        size_t before = b.len;

        rc = hy_record_append(&b, zeros, n);
        assert_int_equal(b.len, rc < 0 ? before : before + n + 16);
    }
    return rc;
}

HY_TEST(test_append_survives_faults)
{
    hy_each_fault(HY_SEAM_ALLOC, append_some, NULL);
}
