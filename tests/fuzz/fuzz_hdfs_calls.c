/* SPDX-License-Identifier: Apache-2.0 */
/* Responses of a NameNode, including authentication: each call ends, and a failure has a message. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "fs/fs.h"
#include "scripted.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static int visit(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    (void)err;
    check(entry->name && *entry->name && !strchr(entry->name, '/') && entry->owner && entry->group);
    return ++*(int *)arg == 100;
}

static int stat_it(const char *url, struct hy_err *err)
{
    struct hy_fs_info info = {0};
    int rc = hy_fs_stat(url, &info, err);

    if (rc == 0)
        check(info.name && info.owner && info.group && (info.mode & ~07777u) == 0);
    hy_fs_info_done(&info);
    return rc;
}

static int get_acl(const char *url, struct hy_err *err)
{
    struct hy_fs_acl acl = {0};
    int rc = hy_fs_acl_get(url, &acl, err);

    if (rc == 0)
        check(acl.count >= 3 && acl.count <= HY_FS_ACL_MAX && acl.group);
    hy_fs_acl_done(&acl);
    return rc;
}

static int set_acl(const char *url, struct hy_err *err)
{
    struct hy_fs_acl_entry entry = {.kind = HY_FS_ACL_USER, .perm = 7, .name = (char[]){"u"}};
    const struct hy_fs_acl acl = {.list = &entry, .count = 1};

    return hy_fs_acl_set(url, &acl, err);
}

static int act(int action, const char *url, struct hy_err *err)
{
    struct hy_fs_usage usage;
    struct hy_fs_space room;
    int count = 0;

    switch (action % 14) {
    case 0:
        return stat_it(url, err);
    case 1:
        return hy_fs_list(url, visit, &count, err);
    case 2:
        return hy_fs_mkdirs(url, 0755, err);
    case 3:
        return hy_fs_remove(url, true, err);
    case 4:
        return hy_fs_remove(url, false, err);
    case 5:
        return hy_fs_rename(url, "hdfs://nn:8020/other", true, err);
    case 6:
        return hy_fs_chmod(url, 0600, err);
    case 7:
        return hy_fs_chown(url, "o", NULL, err);
    case 8:
        return hy_fs_access(url, R_OK, err);
    case 9:
        return hy_fs_usage(url, &usage, err);
    case 10:
        return hy_fs_space(url, &room, err);
    case 12:
        return get_acl(url, err);
    case 13:
        return set_acl(url, err);
    default:
        return hy_fs_list("hdfs:///a/../b//c", visit, &count, err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int action;

    if (!hy_script_begin(data, size))
        return 0;
    while ((action = hy_script_action()) >= 0) {
        struct hy_err err = {0};

        if (act(action, hy_script_url(), &err) < 0)
            check(err.code < 0 && err.text[0]);
    }
    hy_script_end();
    return 0;
}
