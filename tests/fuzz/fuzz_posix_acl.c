/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes with a list: what is accepted is written back as the same bytes, and can be changed. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "fs/fs.h"
#include "fs/posix_acl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static void change(struct hy_fs_acl *acl, bool is_default)
{
    const int other = hy_fs_acl_user(acl, is_default, "7");

    if (hy_fs_acl_set_user(acl, is_default, "9", 5) < 0)
        return;
    check(hy_fs_acl_user(acl, is_default, "9") == 5);
    check(hy_fs_acl_user(acl, is_default, "7") == other);
    check(hy_fs_acl_set_user(acl, is_default, "9", -1) == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_fs_acl acl = {0}, again = {0};
    const bool is_default = size > 0 && data[0] & 1;
    struct hy_buf b;

    hy_buf_init(&b, HY_POSIX_ACL_BYTES_MAX);
    if (size == 0 || size > HY_POSIX_ACL_BYTES_MAX)
        return 0;
    if (hy_posix_acl_parse(data + 1, size - 1, is_default, &acl) == 0) {
        check(hy_posix_acl_format(&acl, is_default, &b) == 0);
        if (acl.count)
            check(hy_posix_acl_parse(hy_buf_bytes(&b), b.len, is_default, &again) == 0 && again.count == acl.count);
        change(&acl, is_default);
    }
    hy_buf_done(&b);
    hy_fs_acl_done(&again);
    hy_fs_acl_done(&acl);
    return 0;
}
