/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record: TFRecord, the way TensorFlow keeps a row of byte strings in a file,
 * and the checksum it uses.
 *
 * Pure functions over bytes: who opens, reads and writes files is another
 * matter. The format is drawn in record.c.
 */
#ifndef HY_RECORD_H
#define HY_RECORD_H

#include <stddef.h>
#include <stdint.h>

struct hy_buf;

/* CRC-32C (Castagnoli) of n more bytes; `crc` is that of the bytes before them, 0 to begin. */
uint32_t hy_crc32c(uint32_t crc, const void *bytes, size_t n);
/* Of `count` pieces of n bytes each, one behind the other: faster than one by one. */
void hy_crc32c_each(const void *bytes, size_t n, size_t count, uint32_t *crcs);
/* As TFRecord keeps it: a checksum of bytes that hold their own checksum says little. */
uint32_t hy_crc32c_mask(uint32_t crc);

/* Appends one record. 0, -ENOBUFS when the buffer's maximum would be passed, or
 * -ENOMEM; then `b` is unchanged. */
int hy_record_append(struct hy_buf *b, const void *bytes, size_t n);

/*
 * The same for who makes the bytes in place: begin gives the room for n bytes,
 * with the same answers as append; they are written there; end seals them. A
 * record that was begun and not ended leaves nothing behind.
 */
int hy_record_begin(struct hy_buf *b, size_t n, uint8_t **ret_bytes);
void hy_record_end(struct hy_buf *b, uint8_t *bytes, size_t n);

struct hy_record {
    const uint8_t *bytes; /* borrowed from what was parsed */
    size_t n;
};

/*
 * The first record of `bytes`. Returns how many bytes it takes, or 0 when there
 * are not enough yet: *ret_need then says how many there must be for the next
 * look to get further. Or -EBADMSG when a checksum is wrong, -EMSGSIZE when the
 * record is longer than `max`, with a few words in *ret_why.
 */
int64_t hy_record_parse(const uint8_t *bytes, size_t n, size_t max, struct hy_record *ret, size_t *ret_need,
                        const char **ret_why);

#endif
