/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a file: responses of the NameNode, and acknowledgements of a pipeline. An error persists until the file is
 * closed. The first action is the open mode, the others write or flush.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "fs/fs.h"
#include "scripted.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static int act(struct hy_fs_file *f, int action, struct hy_err *err)
{
    char bytes[5 * 128];

    if (action & 1)
        return hy_fs_flush(f, action & 2, err);
    memset(bytes, action, sizeof(bytes));
    return hy_fs_write(f, bytes, 5 * ((size_t)action / 2), err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum hy_fs_open_mode hows[] = {HY_FS_WRITE, HY_FS_CREATE, HY_FS_APPEND};
    struct hy_fs_file *f = NULL;
    struct hy_err err = {0};
    int action, rc = 0, how;

    if (!hy_script_begin(data, size))
        return 0;
    how = hy_script_action();
    if (hy_fs_open(hy_script_url(), hows[(how < 0 ? 0 : how) % 3], &f, &err) < 0) {
        check(err.code < 0 && err.text[0]);
    } else {
        while (rc == 0 && (action = hy_script_action()) >= 0)
            rc = act(f, action, &err);
        check(rc <= 0);
        if (hy_fs_close(f, &err) < 0)
            check(err.code < 0 && err.text[0]);
        else
            check(rc == 0);
    }
    hy_script_end();
    return 0;
}
