/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records: an accepted record that is appended again gives the same bytes. A fuzzer
 * does not guess checksums, so the first byte selects which ones are corrected before
 * the rest is parsed: bit 0 those of lengths, bit 1 those of data.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "faults.h"
#include "record/record.h"

#define MAX 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void seal(uint8_t *at, const uint8_t *bytes, size_t n)
{
    uint32_t check = hy_crc32c_mask(hy_crc32c(0, bytes, n));

    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(check >> 8 * i);
}

static void seal_next(uint8_t *bytes, size_t n, int which)
{
    uint64_t length = 0;

    if (n < 12)
        return;
    if (which & 1)
        seal(bytes + 8, bytes, 8);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    if ((which & 2) && length <= MAX && n >= length + 16)
        seal(bytes + 12 + length, bytes + 12, (size_t)length);
}

static void check_again(const struct hy_record *r, const uint8_t *bytes, size_t n)
{
    struct hy_buf again;

    hy_buf_init(&again, SIZE_MAX);
    if (hy_record_append(&again, r->bytes, r->n) < 0 ? !hy_is_short_of_memory
                                                     : again.len != n || memcmp(hy_buf_bytes(&again), bytes, n) != 0)
        abort();
    hy_buf_done(&again);
}

static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = size > 1 ? malloc(size - 1) : NULL, *at = copy;

    if (!copy)
        return;
    memcpy(copy, data + 1, --size);
    while (size) {
        const char *why = NULL;
        struct hy_record r;
        size_t need = 0;
        int64_t n;

        seal_next(at, size, data[0]);
        n = hy_record_parse(at, size, MAX, &r, &need, &why);
        if ((n < 0 && !why) || (n == 0 && need <= size))
            abort();
        if (n <= 0)
            break;
        check_again(&r, at, (size_t)n);
        at += n;
        size -= (size_t)n;
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_run_with_faults(data, size, run);
    return 0;
}
