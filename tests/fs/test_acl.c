/* SPDX-License-Identifier: Apache-2.0 */
/* Access control lists: no change affects other users, and local files are changed by descriptor. */
#include "fs_fixture.h"

#include <sys/xattr.h>

#include "base/string_list.h"
#include "base/text.h"
#include "fs/posix_acl.h"

/* ---- changes of a list ------------------------------------------------------------------- */

/* Rights of the owner, a user, the group, others, and the mask (-1: none). */
static struct hy_fs_acl list_of(int user, int carol, int group, int other, int mask)
{
    struct hy_fs_acl acl = {0};

    assert_int_equal(hy_fs_acl_add(&acl, HY_FS_ACL_USER, false, NULL, (unsigned)user), 0);
    if (carol >= 0)
        assert_int_equal(hy_fs_acl_add(&acl, HY_FS_ACL_USER, false, "7", (unsigned)carol), 0);
    assert_int_equal(hy_fs_acl_add(&acl, HY_FS_ACL_GROUP, false, NULL, (unsigned)group), 0);
    if (mask >= 0)
        assert_int_equal(hy_fs_acl_add(&acl, HY_FS_ACL_MASK, false, NULL, (unsigned)mask), 0);
    assert_int_equal(hy_fs_acl_add(&acl, HY_FS_ACL_OTHER, false, NULL, (unsigned)other), 0);
    acl.group = strdup("50");
    return acl;
}

static unsigned rights_of_group(const struct hy_fs_acl *acl)
{
    hy_cleanup_string_list struct hy_string_list groups = {0};

    hy_string_list_add(&groups, "50");
    return hy_fs_acl_others(acl, &groups);
}

static unsigned rights_of_others(const struct hy_fs_acl *acl)
{
    const struct hy_string_list none = {0};

    return hy_fs_acl_others(acl, &none);
}

HY_TEST(test_an_entry_of_one_user_does_not_change_the_rights_of_others)
{
    for (int carol = -1; carol < 8; carol++)
        for (int group = 0; group < 8; group++)
            for (int mask = carol < 0 ? -1 : 0; mask < (carol < 0 ? 0 : 8); mask++)
                for (int perm = 0; perm < 8; perm++) {
                    hy_cleanup_fs_acl struct hy_fs_acl acl = list_of(7, carol, group, 5, mask);
                    const int carols = hy_fs_acl_user(&acl, false, "7");
                    const unsigned groups = rights_of_group(&acl);

                    assert_int_equal(hy_fs_acl_set_user(&acl, false, "9", perm), 1);
                    assert_int_equal(hy_fs_acl_user(&acl, false, "9"), perm);
                    assert_int_equal(hy_fs_acl_user(&acl, false, "7"), carols);
                    assert_int_equal(rights_of_group(&acl), groups);
                    assert_int_equal(rights_of_others(&acl), 5);
                    assert_int_equal(hy_fs_acl_set_user(&acl, false, "9", perm), 0);
                    assert_int_equal(hy_fs_acl_set_user(&acl, false, "9", -1), 1);
                    assert_int_equal(hy_fs_acl_user(&acl, false, "9"), -ENOENT);
                    assert_int_equal(hy_fs_acl_user(&acl, false, "7"), carols);
                    assert_int_equal(rights_of_group(&acl), groups);
                    assert_int_equal(acl.count, carol < 0 ? 3 : 5);
                }
}

HY_TEST(test_the_mask_that_chmod_has_narrowed_stays_narrow_after_a_removal)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = list_of(6, 4, 6, 0, 0); /* chmod 600: the group has rw-, masked */

    assert_int_equal(hy_fs_acl_set_user(&acl, false, "7", -1), 1);
    assert_int_equal(rights_of_group(&acl), 0);
    assert_int_equal(acl.count, 3);
}

HY_TEST(test_default_entries_start_as_the_mode)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = list_of(7, 7, 7, 1, 5);

    assert_false(hy_fs_acl_has_default(&acl));
    assert_int_equal(hy_fs_acl_set_user(&acl, true, "9", 4), 1);
    assert_int_equal(hy_fs_acl_user(&acl, true, "9"), 4);
    assert_int_equal(hy_fs_acl_user(&acl, true, "7"), -ENOENT);
    for (size_t i = 0; i < acl.count; i++)
        if (acl.list[i].is_default && acl.list[i].kind == HY_FS_ACL_GROUP)
            assert_int_equal(acl.list[i].perm, 5);
    hy_fs_acl_drop_default(&acl);
    assert_int_equal(acl.count, 5);
}

HY_TEST(test_a_member_of_a_group_has_the_rights_of_the_group)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = list_of(7, 7, 6, 1, 5);

    assert_int_equal(rights_of_group(&acl), 4);
    assert_int_equal(rights_of_others(&acl), 1);
}

HY_TEST(test_a_list_has_a_maximum)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = list_of(7, 7, 6, 1, 5);
    char name[16];
    int rc = 0;

    for (unsigned i = 0; i < HY_FS_ACL_MAX && rc == 0; i++) {
        snprintf(name, sizeof name, "%u", 100 + i);
        rc = hy_fs_acl_add(&acl, HY_FS_ACL_USER, false, name, 4);
    }
    assert_int_equal(rc, -E2BIG);
    assert_int_equal(hy_fs_acl_set_user(&acl, false, "99", 4), -E2BIG);
}

/* ---- the format ----------------------------------------------------------------------------- */

#define E(tag, perm, id) tag, 0, perm, 0, id, 0, 0, 0
#define B(tag, perm) tag, 0, perm, 0, 0xff, 0xff, 0xff, 0xff

static int parse(const uint8_t *bytes, size_t n)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};

    return hy_posix_acl_parse(bytes, n, false, &acl);
}

#define PARSE(...) parse((const uint8_t[]){2, 0, 0, 0, __VA_ARGS__}, sizeof((const uint8_t[]){2, 0, 0, 0, __VA_ARGS__}))

HY_TEST(test_invalid_lists_are_refused)
{
    assert_int_equal(PARSE(B(1, 7), B(4, 5), B(0x20, 5)), 0);
    assert_int_equal(PARSE(B(1, 7), E(2, 5, 9), B(4, 5), B(0x10, 5), B(0x20, 5)), 0);
    assert_int_equal(PARSE(B(1, 7), B(4, 5)), -EPROTO);                            /* others are missing */
    assert_int_equal(PARSE(B(1, 7), E(2, 5, 9), B(4, 5), B(0x20, 5)), -EPROTO);    /* without a mask */
    assert_int_equal(PARSE(B(4, 5), B(1, 7), B(0x20, 5)), -EPROTO);                /* out of order */
    assert_int_equal(PARSE(B(1, 7), B(1, 7), B(4, 5), B(0x20, 5)), -EPROTO);       /* twice */
    assert_int_equal(PARSE(B(1, 8), B(4, 5), B(0x20, 5)), -EPROTO);                /* rights */
    assert_int_equal(PARSE(B(3, 7), B(4, 5), B(0x20, 5)), -EPROTO);                /* an unknown tag */
    assert_int_equal(PARSE(B(1, 7), B(2, 5), B(4, 5), B(0x10, 5), B(0x20, 5)), -EPROTO); /* a user without an id */
    assert_int_equal(PARSE(B(1, 7), B(4, 5), B(0x20, 5), 0), -EPROTO);             /* a byte too many */
    assert_int_equal(parse((const uint8_t[]){1, 0, 0, 0}, 4), -EPROTO);
    assert_int_equal(parse((const uint8_t[]){2, 0, 0}, 3), -EPROTO);
    assert_int_equal(parse((const uint8_t[]){2, 0, 0, 0}, 4), -EPROTO);
}

HY_TEST(test_a_name_that_is_not_a_number_is_refused)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = list_of(7, 7, 6, 1, 5);
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1000);
    assert_int_equal(hy_posix_acl_format(&acl, false, &b), 0);
    assert_int_equal(hy_fs_acl_add(&acl, HY_FS_ACL_USER, false, "bob", 4), 0);
    assert_int_equal(hy_posix_acl_format(&acl, false, &b), -EINVAL);
}

/* ---- local files ------------------------------------------------------------------------------ */

HY_TEST_WITH(test_local_lists_are_read_as_they_were_written, make_directory, remove_directory)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0}, again = {0};

    make("d");
    assert_int_equal(hy_fs_acl_get(at("d"), &acl, &err), 0);
    assert_int_equal(acl.count, 3);
    assert_int_equal(hy_fs_acl_set_user(&acl, false, "4002", 1), 1);
    assert_int_equal(hy_fs_acl_set_user(&acl, true, "4002", 5), 1);
    assert_int_equal(hy_fs_acl_set(at("d"), &acl, &err), 0);
    assert_int_equal(hy_fs_acl_get(at("d"), &again, &err), 0);
    assert_int_equal(hy_fs_acl_user(&again, false, "4002"), 1);
    assert_int_equal(hy_fs_acl_user(&again, true, "4002"), 5);
    assert_int_equal(again.count, acl.count);
    put("d/new", "x");
    hy_fs_acl_done(&again);
    assert_int_equal(hy_fs_acl_get(at("d/new"), &again, &err), 0);
    assert_int_equal(hy_fs_acl_user(&again, false, "4002"), 4); /* of 0644, the mode of the new file */
    hy_fs_acl_drop_default(&acl);
    assert_int_equal(hy_fs_acl_set(at("d"), &acl, &err), 0);
    assert_int_equal(getxattr(at("d"), "system.posix_acl_default", NULL, 0), -1);
}

HY_TEST_WITH(test_links_are_not_followed, make_directory, remove_directory)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};

    make("real/d");
    assert_int_equal(symlink("real", at("link")), 0);
    assert_error(hy_fs_acl_get(at("link"), &acl, &err), -ELOOP, "symbolic link");
    assert_error(hy_fs_acl_get(at("link/d"), &acl, &err), -ELOOP, "symbolic link");
    assert_error(hy_fs_acl_get(at("missing"), &acl, &err), -ENOENT, "does not exist");
    assert_error(hy_fs_acl_get("/dev/null", &acl, &err), -EINVAL, "neither a file nor a directory");
}

HY_TEST(test_a_file_system_without_lists_is_named)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};

    err = (struct hy_err){0};
    assert_error(hy_fs_acl_get("/proc/sys/kernel", &acl, &err), -ENOTSUP, "has no access control lists");
}

static int give(void *arg, struct hy_fs_acl_node *node, struct hy_err *unused)
{
    (void)unused;
    hy_buf_printf(arg, "%s%s%s ", node->path, node->is_dir ? "/" : "", node->is_executable && !node->is_dir ? "*" : "");
    return hy_fs_acl_set_user(&node->acl, false, "4002", 4);
}

HY_TEST_WITH(test_a_walk_changes_files_and_not_what_links_point_to, make_directory, remove_directory)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};
    hy_cleanup_buf struct hy_buf seen;

    hy_buf_init(&seen, 1000);
    make("d/sub");
    put("d/sub/a", "x");
    put("outside", "x");
    assert_int_equal(symlink("../outside", at("d/link")), 0);
    assert_int_equal(mkfifo(at("d/fifo"), 0600), 0);
    assert_int_equal(hy_fs_acl_walk(at("d"), give, &seen, &err), 0);
    assert_string_equal(hy_buf_cstr(&seen), "/ sub/ sub/a ");
    assert_int_equal(hy_fs_acl_get(at("d/sub/a"), &acl, &err), 0);
    assert_int_equal(hy_fs_acl_user(&acl, false, "4002"), 4);
    hy_fs_acl_done(&acl);
    assert_int_equal(hy_fs_acl_get(at("outside"), &acl, &err), 0);
    assert_int_equal(acl.count, 3);
}

HY_TEST_WITH(test_a_walk_ends_below_too_many_directories, make_directory, remove_directory)
{
    hy_cleanup_buf struct hy_buf path, seen;

    hy_buf_init(&path, 4000);
    hy_buf_init(&seen, 1 << 20);
    hy_buf_append_str(&path, at("d"));
    for (int i = 0; i < 300; i++)
        hy_buf_append_str(&path, "/d");
    assert_int_equal(hy_mkdirs(hy_buf_cstr(&path), 0755), 0);
    assert_error(hy_fs_acl_walk(at("d"), give, &seen, &err), -ENAMETOOLONG, "nested more than 256");
}

static int walk_once(void *arg)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};
    hy_cleanup_buf struct hy_buf seen;
    struct hy_err why = {0};
    int rc;

    (void)arg;
    hy_buf_init(&seen, 1000);
    rc = hy_fs_acl_walk(at("d"), give, &seen, &why);
    if (rc == 0)
        rc = hy_fs_acl_get(at("d"), &acl, &why);
    if (rc == 0)
        rc = hy_fs_acl_set(at("d"), &acl, &why);
    return rc;
}

HY_TEST_WITH(test_failures_of_memory_and_calls_are_reported, make_directory, remove_directory)
{
    make("d/sub");
    put("d/a", "x");
    hy_each_fault(HY_SEAM_ALLOC, walk_once, NULL);
    hy_each_fault(HY_SEAM_SYS, walk_once, NULL);
}

HY_TEST(test_users_and_groups_are_numbers_in_local_lists)
{
    hy_cleanup_string_list struct hy_string_list groups = {0};
    hy_cleanup_free char *name = NULL, *number = NULL;

    err = (struct hy_err){0};
    assert_int_equal(hy_fs_acl_user_name("/", "root", &name, &err), 0);
    assert_string_equal(name, "0");
    assert_int_equal(hy_fs_acl_user_name("/", "4002", &number, &err), 0);
    assert_string_equal(number, "4002");
    assert_error(hy_fs_acl_user_name("/", "no such user", &name, &err), -EINVAL, "unknown user");
    assert_int_equal(hy_fs_acl_groups("/", "root", &groups, &err), 0);
    assert_true(hy_string_list_has(&groups, "0"));
    assert_int_equal(hy_fs_acl_groups("/", "4002", &groups, &err), 0);
}
