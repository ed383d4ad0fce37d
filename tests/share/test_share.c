/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of local projects, without other users: tests/e2e/test_share.py has those. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/private.h"
#include "fs/fs.h"
#include "share/names.h"
#include "share/records.h"
#include "share/share.h"

#define BOB "4002"
#define CAROL "4003"

static char top[] = "/tmp/hy_test_share.XXXXXX";
static struct hy_err err;
static struct hy_share_project project;

static const char *at(const char *name)
{
    return hy_path_in(top, name);
}

static void put(const char *name, const char *text)
{
    assert_int_equal(hy_file_write(at(name), text, strlen(text), 0640), 0);
}

/* A project "churn" with a data set, and one "fraud". */
static int make_projects(void **state)
{
    static char path[64], private_path[80];

    (void)state;
    err = (struct hy_err){0};
    umask(022);
    strcpy(top + strlen(top) - 6, "XXXXXX");
    if (!mkdtemp(top))
        return -1;
    hy_mkdirs(at("churn/Resources/train/sub"), 0750);
    hy_mkdirs(at("churn/Logs"), 0750);
    hy_mkdirs(at("fraud"), 0755);
    put("churn/Resources/train/a.csv", "1");
    chmod(at("churn"), 0700);
    snprintf(path, sizeof path, "%s/churn", top);
    snprintf(private_path, sizeof private_path, "%s/.hopyard", path);
    project = (struct hy_share_project){.url = path, .path = private_path};
    project.dir = hy_private_make_dir(private_path, HY_OWNER_SELF, &err);
    return project.dir < 0;
}

static int remove_projects(void **state)
{
    (void)state;
    close(project.dir);
    return hy_remove_tree(top);
}

static void assert_error(int rc, int code, const char *words)
{
    if (rc != code || !strstr(err.text, words))
        fail_msg("%d (%s) instead of %d with '%s'", rc, err.text, code, words);
    err = (struct hy_err){0};
}

static int add(const char *path, const char *user, bool is_writable)
{
    hy_cleanup_share_report struct hy_share_report r = {0};

    return hy_share_add(&project, path, user, is_writable, &r, &err);
}

static int revoke_share(const char *path, const char *user)
{
    hy_cleanup_share_report struct hy_share_report r = {0};

    return hy_share_remove(&project, path, user, &r, &err);
}

/* The rights of a user's own entry, or -ENOENT. */
static int rights(const char *name, bool is_default, const char *user)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};

    assert_int_equal(hy_fs_acl_get(at(name), &acl, &err), 0);
    return hy_fs_acl_user(&acl, is_default, user);
}

static void set_rights(const char *name, bool is_default, const char *user, int perm)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};

    assert_int_equal(hy_fs_acl_get(at(name), &acl, &err), 0);
    assert_int_equal(hy_fs_acl_set_user(&acl, is_default, user, perm), 1);
    assert_int_equal(hy_fs_acl_set(at(name), &acl, &err), 0);
}

/* All lists of the project as text. */
static int describe(void *arg, struct hy_fs_acl_node *node, struct hy_err *unused)
{
    (void)unused;
    if (strstr(node->path, ".hopyard"))
        return 0;
    hy_buf_printf(arg, "%s:", node->path);
    for (size_t i = 0; i < node->acl.count; i++)
        hy_buf_printf(arg, " %d%d%s%u", node->acl.list[i].is_default, node->acl.list[i].kind,
                      node->acl.list[i].name ? node->acl.list[i].name : "", node->acl.list[i].perm);
    hy_buf_append_str(arg, "\n");
    return 0;
}

static char *all_rights(void)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1 << 16);
    assert_int_equal(hy_fs_acl_walk(project.url, describe, &b, &err), 0);
    return strdup(hy_buf_cstr(&b));
}

#define SHARE_TEST(name) HY_TEST_WITH(name, make_projects, remove_projects)

/* ---- the owner's side ------------------------------------------------------------------------ */

SHARE_TEST(test_a_share_covers_files_directories_and_what_is_created_later)
{
    assert_int_equal(add("Resources/train", BOB, false), 0);
    assert_int_equal(rights("churn", false, BOB), X_OK);
    assert_int_equal(rights("churn/Resources", false, BOB), X_OK);
    assert_int_equal(rights("churn/Resources", true, BOB), -ENOENT);
    assert_int_equal(rights("churn/Resources/train", false, BOB), R_OK | X_OK);
    assert_int_equal(rights("churn/Resources/train/sub", true, BOB), R_OK | X_OK);
    assert_int_equal(rights("churn/Resources/train/a.csv", false, BOB), R_OK);
    put("churn/Resources/train/sub/new", "2");
    assert_int_equal(rights("churn/Resources/train/sub/new", false, BOB), R_OK);
    assert_int_equal(rights("churn/Logs", false, BOB), -ENOENT);
}

SHARE_TEST(test_a_revoked_share_leaves_no_trace)
{
    hy_cleanup_free char *before = all_rights(), *after = NULL;

    assert_int_equal(add("Resources/train", BOB, true), 0);
    assert_int_equal(revoke_share("Resources/train", BOB), 0);
    after = all_rights();
    assert_string_equal(after, before);
    assert_error(revoke_share("Resources/train", BOB), -ENOENT, "is not shared with '4002'");
}

SHARE_TEST(test_rights_that_existed_before_stay)
{
    hy_cleanup_free char *before = NULL, *after = NULL;

    set_rights("churn/Resources/train/a.csv", false, BOB, R_OK);
    set_rights("churn/Resources", false, BOB, R_OK | X_OK);
    set_rights("churn/Resources/train", true, CAROL, R_OK);
    set_rights("churn/Resources/train/sub", true, BOB, X_OK);
    before = all_rights();
    assert_int_equal(add("Resources/train", BOB, true), 0);
    assert_int_equal(rights("churn/Resources/train/a.csv", false, BOB), R_OK | W_OK);
    assert_int_equal(rights("churn/Resources", false, BOB), R_OK | X_OK);
    assert_int_equal(rights("churn/Resources/train", true, CAROL), R_OK);
    assert_int_equal(revoke_share("Resources/train", BOB), 0);
    after = all_rights();
    assert_string_equal(after, before);
}

SHARE_TEST(test_rights_that_another_share_needs_stay)
{
    hy_cleanup_free char *before = all_rights(), *after = NULL;

    hy_mkdirs(at("churn/Resources/test"), 0750);
    assert_int_equal(add("Resources/train", BOB, false), 0);
    assert_int_equal(add("Resources/test", BOB, false), 0);
    assert_int_equal(add("Resources/train", CAROL, true), 0);
    assert_int_equal(revoke_share("Resources/train", BOB), 0);
    assert_int_equal(rights("churn/Resources", false, BOB), X_OK);
    assert_int_equal(rights("churn/Resources/train", false, BOB), -ENOENT);
    assert_int_equal(rights("churn/Resources/train", false, CAROL), R_OK | W_OK | X_OK);
    assert_int_equal(rights("churn/Resources/train/sub", true, CAROL), R_OK | W_OK | X_OK);
    assert_int_equal(revoke_share("Resources/test", BOB), 0);
    assert_int_equal(rights("churn/Resources", false, BOB), -ENOENT);
    assert_int_equal(revoke_share("Resources/train", CAROL), 0);
    assert_int_equal(rmdir(at("churn/Resources/test")), 0);
    after = all_rights();
    assert_string_equal(after, before);
}

SHARE_TEST(test_a_second_add_changes_the_right_to_write)
{
    hy_cleanup_shares struct hy_shares list = {0};

    assert_int_equal(add("Resources/train", BOB, true), 0);
    assert_int_equal(rights("churn/Resources/train/a.csv", false, BOB), R_OK | W_OK);
    assert_int_equal(add("Resources/train", BOB, false), 0);
    assert_int_equal(rights("churn/Resources/train/a.csv", false, BOB), R_OK);
    assert_int_equal(hy_share_list(&project, &list, &err), 0);
    assert_int_equal(list.count, 1);
    assert_false(list.list[0].is_writable);
    assert_int_equal(list.list[0].state, HY_SHARE_GRANTED);
}

SHARE_TEST(test_the_owner_keeps_access_to_new_files_of_a_writable_share)
{
    hy_cleanup_free char *owner = hy_asprintf("%u", (unsigned)geteuid());

    assert_int_equal(add("Resources/train", BOB, false), 0);
    assert_int_equal(rights("churn/Resources/train", true, owner), -ENOENT);
    assert_int_equal(add("Resources/train", BOB, true), 0);
    assert_int_equal(rights("churn/Resources/train", true, owner), R_OK | W_OK | X_OK);
    assert_int_equal(revoke_share("Resources/train", BOB), 0);
    assert_int_equal(rights("churn/Resources/train", true, owner), -ENOENT);
}

SHARE_TEST(test_what_must_not_be_shared_is_refused)
{
    hy_cleanup_free char *before = all_rights(), *after = NULL;

    assert_error(add("", BOB, false), -EPERM, "cannot be shared as a whole: it contains '.hopyard'");
    assert_error(add(".hopyard", BOB, false), -EPERM, "hopyard's own data");
    assert_error(add("Resources/../.hopyard", BOB, false), -EINVAL, "without '.', '..'");
    assert_error(add("Resources//train", BOB, false), -EINVAL, "without '.', '..'");
    assert_error(add("/etc", BOB, false), -EINVAL, "without '.', '..'");
    assert_error(add("Logs", BOB, false), -EPERM, "hopyard writes its own data there");
    assert_error(add("Resources/train/a.csv", BOB, false), -ENOTDIR, "is a file; share the directory");
    assert_error(add("Resources/none", BOB, false), -ENOENT, "does not exist");
    assert_error(add("Resources/train", "no such user", false), -EINVAL, "unknown user");
    hy_mkdirs(at("churn/Resources/train/sub/.hopyard"), 0700);
    assert_error(add("Resources/train", BOB, false), -EPERM, "'Resources/train/sub/.hopyard'");
    assert_int_equal(rmdir(at("churn/Resources/train/sub/.hopyard")), 0);
    put("churn/Resources/train/.hopyard-12.upload", "");
    put("churn/Resources/train/sub/run.db", "");
    assert_error(add("Resources", BOB, false), -EPERM, "hopyard's own data");
    assert_int_equal(unlink(at("churn/Resources/train/sub/run.db")), 0);
    assert_int_equal(add("Resources", BOB, false), 0); /* an upload in progress does not prevent it */
    assert_int_equal(revoke_share("Resources", BOB), 0);
    assert_int_equal(unlink(at("churn/Resources/train/.hopyard-12.upload")), 0);
    after = all_rights();
    assert_string_equal(after, before);
}

SHARE_TEST(test_data_sets_in_each_other_are_not_shared_with_the_same_user)
{
    assert_int_equal(add("Resources/train", BOB, false), 0);
    assert_error(add("Resources/train/sub", BOB, true), -EEXIST, "'Resources/train' is already shared");
    assert_error(add("Resources", BOB, true), -EEXIST, "'Resources/train' is already shared");
    assert_int_equal(add("Resources", CAROL, true), 0);
}

SHARE_TEST(test_a_data_set_that_is_a_link_is_not_shared)
{
    assert_int_equal(symlink("/etc", at("churn/Resources/etc")), 0);
    assert_error(add("Resources/etc", BOB, false), -ELOOP, "symbolic link");
}

SHARE_TEST(test_a_share_of_a_removed_data_set_can_be_revoked)
{
    assert_int_equal(add("Resources/train", BOB, false), 0);
    assert_int_equal(hy_remove_tree(at("churn/Resources/train")), 0);
    assert_int_equal(revoke_share("Resources/train", BOB), 0);
    assert_int_equal(rights("churn", false, BOB), -ENOENT);
}

/* Sets the recorded state of a share, as a killed process leaves it. */
static void set_state(enum hy_share_state state)
{
    hy_cleanup_shares struct hy_shares list = {0};

    assert_int_equal(hy_share_records_load(&project, &list, &err), 0);
    list.list[0].state = state;
    assert_int_equal(hy_share_records_save(&project, &list, &err), 0);
}

SHARE_TEST(test_interrupted_changes_are_completed)
{
    hy_cleanup_free char *before = all_rights(), *after = NULL;

    assert_int_equal(add("Resources/train", BOB, false), 0);
    set_rights("churn/Resources/train/a.csv", false, BOB, -1);
    set_rights("churn/Resources", false, BOB, -1);
    set_state(HY_SHARE_GRANTING);
    assert_int_equal(hy_share_repair(&project, &err), 1);
    assert_int_equal(rights("churn/Resources/train/a.csv", false, BOB), R_OK);
    assert_int_equal(rights("churn/Resources", false, BOB), X_OK);
    assert_int_equal(hy_share_repair(&project, &err), 0);
    set_state(HY_SHARE_REVOKING);
    assert_int_equal(hy_share_repair(&project, &err), 1);
    after = all_rights();
    assert_string_equal(after, before);
}

SHARE_TEST(test_an_interrupted_share_of_a_removed_data_set_does_not_block_others)
{
    assert_int_equal(add("Resources/train", BOB, false), 0);
    set_state(HY_SHARE_GRANTING);
    assert_int_equal(hy_remove_tree(at("churn/Resources/train")), 0);
    hy_mkdirs(at("churn/Resources/test"), 0750);
    assert_int_equal(add("Resources/test", CAROL, false), 0);
    assert_int_equal(rights("churn", false, BOB), -ENOENT);
}

SHARE_TEST(test_a_project_made_in_a_shared_data_set_stays_closed)
{
    hy_cleanup_free char *before = NULL, *after = NULL;

    assert_int_equal(add("Resources/train", BOB, false), 0);
    hy_mkdirs(at("churn/Resources/train/sub/.hopyard"), 0700);
    put("churn/Resources/train/sub/.hopyard/store.db", "secret");
    chmod(at("churn/Resources/train/sub/.hopyard/store.db"), 0600);
    before = all_rights();
    assert_error(add("Resources/train", BOB, true), -EPERM, "contains hopyard's own data");
    after = all_rights();
    assert_string_equal(after, before);
    set_state(HY_SHARE_GRANTING);
    assert_int_equal(hy_share_repair(&project, &err), 1);
    assert_true(rights("churn/Resources/train/sub/.hopyard", false, BOB) <= 0);
    assert_true(rights("churn/Resources/train/sub/.hopyard/store.db", false, BOB) <= 0);
}

SHARE_TEST(test_a_share_that_was_writable_leaves_nothing)
{
    hy_cleanup_free char *before = all_rights(), *after = NULL;

    assert_int_equal(add("Resources/train", BOB, true), 0);
    assert_int_equal(add("Resources/train", BOB, false), 0);
    assert_int_equal(rights("churn/Resources/train/a.csv", false, BOB), R_OK);
    assert_int_equal(revoke_share("Resources/train", BOB), 0);
    after = all_rights();
    assert_string_equal(after, before);
}

SHARE_TEST(test_a_moved_data_set_is_reported_and_does_not_block_others)
{
    hy_cleanup_share_report struct hy_share_report r = {0};
    hy_cleanup_free char *text = NULL;

    assert_int_equal(add("Resources/train", BOB, false), 0);
    hy_mkdirs(at("churn/Resources/test"), 0750);
    assert_int_equal(rename(at("churn/Resources/train"), at("churn/Resources/moved")), 0);
    assert_int_equal(symlink("moved", at("churn/Resources/train")), 0);
    set_state(HY_SHARE_GRANTING);
    assert_int_equal(add("Resources/test", CAROL, false), 0);
    assert_error(hy_share_remove(&project, "Resources/train", BOB, &r, &err), -ENOENT, "not shared");
    assert_int_equal(revoke_share("Resources/test", CAROL), 0);
    unlink(at("churn/Resources/train"));
    assert_int_equal(rename(at("churn/Resources/moved"), at("churn/Resources/train")), 0);

    assert_int_equal(add("Resources/train", BOB, false), 0);
    assert_int_equal(rename(at("churn/Resources/train"), at("churn/Resources/moved")), 0);
    assert_int_equal(hy_share_remove(&project, "Resources/train", BOB, &r, &err), 0);
    assert_true(r.is_missing);
    text = hy_share_missing_text(&project, "Resources/train", BOB);
    assert_non_null(strstr(text, "setfacl -R -x u:" BOB " -x d:u:" BOB));
}

static int add_and_revoke(void *arg)
{
    int rc = add("Resources/train", BOB, true);

    (void)arg;
    if (rc == 0)
        rc = revoke_share("Resources/train", BOB);
    return rc;
}

/* After any failure a repair leaves all or nothing. */
#define STEP 5 /* each takes several syncs of a file */

static void each_fault_is_repaired(enum hy_seam seam)
{
    hy_cleanup_free char *before = all_rights();

    for (long n = 1, passed = n; passed >= n; n += STEP) {
        hy_cleanup_free char *after = NULL;
        int rc;

        hy_fault_arm(seam, n);
        rc = add_and_revoke(NULL);
        passed = hy_fault_passed(seam);
        hy_fault_arm(seam, 0);
        if (rc < 0 && err.text[0] == '\0')
            fail_msg("an error %d without a message", rc);
        err = (struct hy_err){0};
        if (hy_share_repair(&project, &err) < 0)
            fail_msg("fault %ld: %s", n, err.text);
        if (rc < 0) {
            hy_cleanup_share_report struct hy_share_report r = {0};

            (void)hy_share_remove(&project, "Resources/train", BOB, &r, NULL); /* it may have been granted */
        }
        after = all_rights();
        assert_string_equal(after, before);
    }
}

SHARE_TEST(test_failures_leave_nothing_that_cannot_be_repaired)
{
    each_fault_is_repaired(HY_SEAM_ALLOC);
    each_fault_is_repaired(HY_SEAM_SYS);
}

SHARE_TEST(test_a_damaged_record_is_named)
{
    assert_int_equal(hy_private_write(project.dir, "shares.json", "{", 1, &err), 0);
    assert_error(add("Resources/train", BOB, false), -EINVAL, "shares.json, is damaged");
    assert_int_equal(rights("churn/Resources/train", false, BOB), -ENOENT);
}

/* ---- the receiver's side ------------------------------------------------------------------------ */

static int accept_as(const char *name, const char *target)
{
    hy_cleanup_share_entry struct hy_share_entry e = {0};

    return hy_share_accept(at("fraud"), name, target, &e, &err);
}

/* The result of a path in the project "fraud"; "" when it is not a share. */
static int resolve(const char *path, char *ret, size_t size)
{
    hy_cleanup_free char *real = NULL, *full = hy_asprintf("%s/fraud/%s", top, path);
    int rc = hy_share_resolve(full, &real, &err);

    snprintf(ret, size, "%s", real ? real : "");
    return rc;
}

SHARE_TEST(test_paths_through_an_entry_are_real_paths)
{
    char path[200], expected[200];

    assert_int_equal(accept_as("churn::train", at("churn/Resources/train")), 0);
    assert_int_equal(resolve("Shared/churn::train", path, sizeof path), 2);
    snprintf(expected, sizeof expected, "%s/churn/Resources/train", top);
    assert_string_equal(path, expected);
    assert_int_equal(resolve("Shared/churn::train//sub/./new", path, sizeof path), 1);
    strcat(expected, "/sub/new");
    assert_string_equal(path, expected);
    assert_int_equal(resolve("Shared/churn::other/x", path, sizeof path), 0);
    assert_int_equal(resolve("Shared/plain/x", path, sizeof path), 0);
    assert_int_equal(resolve("NotShared/churn::train", path, sizeof path), 0);
    assert_error(resolve("Shared/churn::train/../../.hopyard", path, sizeof path), -EINVAL, "'..' cannot be used");
    assert_error(resolve("Shared/churn::train/.hopyard/store.db", path, sizeof path), -EPERM, "never shared");
}

SHARE_TEST(test_links_in_and_to_a_share_are_not_followed)
{
    char path[200];

    assert_int_equal(accept_as("churn::train", at("churn/Resources/train")), 0);
    assert_int_equal(symlink("/etc", at("churn/Resources/train/etc")), 0);
    assert_error(resolve("Shared/churn::train/etc/passwd", path, sizeof path), -ELOOP, "is a symbolic link");
    assert_int_equal(rename(at("churn/Resources"), at("churn/elsewhere")), 0);
    assert_int_equal(symlink("elsewhere", at("churn/Resources")), 0);
    assert_error(resolve("Shared/churn::train/a.csv", path, sizeof path), -ELOOP, "is not followed");
}

SHARE_TEST(test_a_target_of_another_owner_is_refused)
{
    char path[200];

    hy_need_root("to give a directory to another user");
    assert_int_equal(accept_as("churn::train", at("churn/Resources/train")), 0);
    assert_int_equal(chown(at("churn/Resources/train"), 4002, 4002), 0);
    assert_error(resolve("Shared/churn::train/a.csv", path, sizeof path), -EPERM, "belongs to user 4002 now");
}

SHARE_TEST(test_names_and_targets_are_checked_when_accepted)
{
    assert_error(accept_as("train", at("churn/Resources/train")), -EINVAL, "PROJECT::DATASET");
    assert_error(accept_as("::train", at("churn/Resources/train")), -EINVAL, "PROJECT::DATASET");
    assert_error(accept_as("a::b::c", at("churn/Resources/train")), -EINVAL, "PROJECT::DATASET");
    assert_error(accept_as("../a::b", at("churn/Resources/train")), -EINVAL, "PROJECT::DATASET");
    assert_error(accept_as("a::b", "churn/Resources/train"), -EINVAL, "absolute path");
    assert_error(accept_as("a::b", at("churn/.hopyard")), -EPERM, "hopyard's own data");
    assert_error(accept_as("a::b", at("churn/Resources/../x")), -EINVAL, "without '.', '..'");
    assert_error(accept_as("a::b", at("churn/none")), -ENOENT, "does not exist");
    assert_error(accept_as("a::b", at("churn/Resources/train/a.csv")), -ENOTDIR, "is not a directory");
    assert_error(accept_as("a::b", at("fraud/x")), -EINVAL, "is in this project");
    assert_int_equal(accept_as("a::b", at("churn/Resources/train/")), 0);
    assert_int_equal(accept_as("a::b", at("churn/Resources/train")), 0);
    assert_error(accept_as("a::b", at("churn/Resources")), -EEXIST, "already has a share 'a::b'");
}

static int count_entries(void *arg, const struct hy_share_entry *e, const char *why)
{
    hy_buf_printf(arg, "%s=%s;", e->name, why ? "unusable" : strrchr(e->target, '/') + 1);
    return 0;
}

SHARE_TEST(test_entries_are_listed_and_forgotten)
{
    hy_cleanup_buf struct hy_buf seen;

    hy_buf_init(&seen, 1000);
    assert_int_equal(hy_share_entries(at("fraud"), count_entries, &seen, &err), 0);
    assert_int_equal(seen.len, 0);
    assert_int_equal(accept_as("churn::train", at("churn/Resources/train")), 0);
    put("fraud/Shared/x::y", "x");
    put("fraud/Shared/notes.txt", "mine");
    assert_int_equal(hy_share_entries(at("fraud"), count_entries, &seen, &err), 0);
    assert_string_equal(hy_buf_cstr(&seen), "churn::train=train;x::y=unusable;");
    assert_int_equal(hy_share_forget(at("fraud"), "churn::train", &err), 0);
    assert_error(hy_share_forget(at("fraud"), "churn::train", &err), -ENOENT, "has no share 'churn::train'");
    assert_error(hy_share_forget(at("fraud"), "../churn", &err), -EINVAL, "PROJECT::DATASET");
}

/* ---- text ----------------------------------------------------------------------------------------- */

static int parse(const char *text)
{
    hy_cleanup_share_entry struct hy_share_entry e = {0};

    return hy_share_entry_parse(text, strlen(text), &e, &err);
}

HY_TEST(test_entries_that_accept_has_not_written_are_refused)
{
    assert_int_equal(parse("hopyard share 1\n/a/b\n1\n"), 0);
    assert_int_equal(parse("hopyard share 1\nhdfs://nn:8020/a\nalice\n"), 0);
    assert_error(parse("/a/b"), -EINVAL, "not created by");
    assert_error(parse(""), -EINVAL, "not created by");
    assert_error(parse("hopyard share 1\n/a\n"), -EINVAL, "not created by");
    assert_error(parse("hopyard share 1\n/a\n\n"), -EINVAL, "not created by");
    assert_error(parse("hopyard share 1\n/a\n1"), -EINVAL, "not created by");
    assert_error(parse("hopyard share 1\n/a\n1\nmore\n"), -EINVAL, "not created by");
    assert_error(parse("hopyard share 2\n/a\n1\n"), -EINVAL, "newer version of hopyard");
    assert_error(parse("hopyard share 1\n/a/.hopyard\n1\n"), -EPERM, "own data");
    assert_error(parse("hopyard share 1\n/a/../b\n1\n"), -EINVAL, "'..'");
    assert_error(parse("hopyard share 1\na\n1\n"), -EINVAL, "absolute path");
    assert_error(parse("hopyard share 1\n/a\tb\n1\n"), -EINVAL, "absolute path");
    assert_error(parse("hopyard share 1\nfile:///a\n1\n"), -EINVAL, "absolute path");
}

HY_TEST(test_names_of_files_on_hdfs_have_no_colons)
{
    hy_cleanup_free char *local = hy_share_file_name("/p", "a::b"), *far = hy_share_file_name("hdfs://nn/p", "a::b");
    hy_cleanup_free char *back = hy_share_entry_name("hdfs://nn/p", "a%3A%3Ab"), *none = NULL;
    hy_cleanup_free char *name = hy_share_name("hdfs://nn/Projects/churn", "Resources/train");

    assert_string_equal(local, "a::b");
    assert_string_equal(far, "a%3A%3Ab");
    assert_string_equal(back, "a::b");
    assert_string_equal(name, "churn::train");
    none = hy_share_entry_name("hdfs://nn/p", "readme.txt");
    assert_null(none);
}
