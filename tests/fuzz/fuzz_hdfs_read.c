/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a file: block locations, and the data of DataNodes. No read returns more than requested, and a failure has a
 * message. An action is an offset and a length, in units of 5 bytes.
 */
#include <stdlib.h>

#include "base/err.h"
#include "fs/fs.h"
#include "scripted.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

/* Into a buffer of exactly that size, so that an overflow is detected. */
static void read_at(struct hy_fs_file *f, uint64_t at, size_t n)
{
    struct hy_err err = {0};
    char *room = malloc(n ? n : 1);
    int64_t got;

    check(room != NULL);
    got = hy_fs_pread(f, room, n, at, &err);
    check(got < 0 ? err.code < 0 && err.text[0] : (uint64_t)got <= n);
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_fs_file *f = NULL;
    struct hy_err err = {0};
    int at, n;

    if (!hy_script_begin(data, size))
        return 0;
    if (hy_fs_open(hy_script_url(), HY_FS_READ, &f, &err) < 0) {
        check(err.code < 0 && err.text[0]);
    } else {
        while ((at = hy_script_action()) >= 0 && (n = hy_script_action()) >= 0)
            read_at(f, 5 * (uint64_t)at, 5 * (size_t)n);
        check(hy_fs_close(f, &err) == 0);
    }
    hy_script_end();
    return 0;
}
