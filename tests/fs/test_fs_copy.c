/* SPDX-License-Identifier: Apache-2.0 */
/* fs: copies within and between file systems, complete or missing. */
#include "fs_fixture.h"

#include "fds.h"
#include "fs/local.h"

/* ---- another file system, backed by local files: "other:/tmp/x" ------------------- */

static int other_stat(const char *url, struct hy_fs_info *ret, struct hy_err *e)
{
    return hy_fs_local.stat(url + 6, ret, e);
}

static int other_list(const char *url, hy_fs_visit *visit, void *arg, struct hy_err *e)
{
    return hy_fs_local.list(url + 6, visit, arg, e);
}

static int other_mkdirs(const char *url, unsigned mode, struct hy_err *e)
{
    return hy_fs_local.mkdirs(url + 6, mode, e);
}

static int other_remove(const char *url, bool recursive, struct hy_err *e)
{
    return hy_fs_local.remove(url + 6, recursive, e);
}

static int other_rename(const char *from, const char *to, bool replace, struct hy_err *e)
{
    return hy_fs_local.rename(from + 6, to + 6, replace, e);
}

static int other_open(const char *url, enum hy_fs_open_mode mode, struct hy_fs_file **ret, struct hy_err *e)
{
    return hy_fs_local.open(url + 6, mode, ret, e);
}

static const struct hy_fs_backend other = {
    .stat = other_stat,
    .list = other_list,
    .mkdirs = other_mkdirs,
    .remove = other_remove,
    .rename = other_rename,
    .open = other_open,
};

static const char *other_at(const char *name)
{
    static char url[300];

    snprintf(url, sizeof url, "other:%s", at(name));
    return url;
}

HY_TEST_WITH(test_copy_works_between_file_systems_and_rename_does_not, make_directory, remove_directory)
{
    struct hy_fs_copy how = {.recursive = true};

    hy_fs_add("other", &other);
    make("d/e");
    put("d/e/f", "deep");
    assert_error(hy_fs_rename(at("d"), other_at("n"), false, &err), -EXDEV, "copy instead");
    assert_int_equal(hy_fs_copy(at("d"), other_at("n"), &how, &err), 0);
    assert_content("n/e/f", "deep");
    assert_int_equal(hy_fs_copy(other_at("n"), at("back"), &how, &err), 0);
    assert_content("back/e/f", "deep");
    assert_names("", "back/ d/ n/ ");
}

/* ---- copies ------------------------------------------------------------------------ */

static int copy(const char *from, const char *to, bool replace)
{
    const struct hy_fs_copy how = {.replace = replace, .recursive = true};

    return hy_fs_copy(at(from), at(to), &how, &err);
}

HY_TEST_WITH(test_copy_into_a_directory_or_to_a_new_name, make_directory, remove_directory)
{
    put("f", "x");
    make("d");
    assert_int_equal(copy("f", "d", false), 0);
    assert_int_equal(copy("f", "d/g", false), 0);
    assert_names("d", "f g ");
    assert_content("d/g", "x");
}

HY_TEST_WITH(test_copy_replaces_only_with_replace, make_directory, remove_directory)
{
    put("a", "a");
    put("b", "b");
    make("d/a");
    assert_error(copy("a", "b", false), -EEXIST, "b already exists");
    assert_content("b", "b");
    assert_int_equal(copy("a", "b", true), 0);
    assert_content("b", "a");
    assert_error(copy("a", "d", true), -EISDIR, "d/a is a directory");
    assert_error(copy("d", "b", true), -ENOTDIR, "b is a file");
    assert_int_equal(copy("a", "a", true), 0); /* onto itself: the content stays */
    assert_content("a", "a");
    assert_names("", "a b d/ ");
}

HY_TEST_WITH(test_copy_needs_the_target_directory, make_directory, remove_directory)
{
    struct hy_fs_copy flat = {0};

    put("f", "x");
    make("d");
    assert_error(copy("f", "none/f", false), -ENOENT, "its directory does not exist");
    assert_error(copy("f", "none/", false), -ENOENT, "none/ does not exist");
    assert_error(copy("d", "none/d", false), -ENOENT, "its directory does not exist");
    assert_error(copy("f", "f/x", false), -ENOTDIR, "cannot read the attributes of");
    assert_error(copy("none", "x", false), -ENOENT, "none does not exist");
    assert_error(hy_fs_copy(at("d"), at("e"), &flat, &err), -EISDIR, "d is a directory");
    assert_names("", "d/ f ");
}

HY_TEST_WITH(test_copy_of_a_directory_has_all_its_contents, make_directory, remove_directory)
{
    make("d/e/f");
    make("d/empty");
    put("d/a", "1");
    put("d/e/f/b", "2");
    assert_int_equal(copy("d", "new", false), 0);
    assert_names("new", "a e/ empty/ ");
    assert_content("new/e/f/b", "2");
    assert_error(copy("d/a", "new/a", false), -EEXIST, "already exists");
    make("old");
    assert_int_equal(copy("d", "old", false), 0);
    assert_content("old/d/a", "1");
    assert_error(copy("d", "old", false), -EEXIST, "old/d already exists");
    put("old/d/mine", "kept");
    put("old/d/a", "changed");
    assert_int_equal(copy("d", "old", true), 0); /* into the existing directory */
    assert_names("old/d", "a e/ empty/ mine ");
    assert_content("old/d/a", "1");
}

HY_TEST_WITH(test_copy_of_a_directory_into_itself_ends, make_directory, remove_directory)
{
    make("d");
    put("d/a", "1");
    assert_int_equal(copy("d", "d", false), 0);
    assert_names("d/d", "a ");
    assert_int_equal(copy("d", "d", true), 0);
    assert_names("d/d", "a d/ ");
}

HY_TEST_WITH(test_copy_follows_links_and_reports_loops, make_directory, remove_directory)
{
    make("d/e");
    make("far");
    put("far/f", "x");
    assert_int_equal(symlink("../far", at("d/far")), 0);
    assert_int_equal(symlink("../far/f", at("d/f")), 0);
    assert_int_equal(copy("d", "new", false), 0);
    assert_content("new/far/f", "x");
    assert_content("new/f", "x");
    assert_int_equal(symlink("..", at("d/e/loop")), 0);
    assert_error(copy("d", "other", false), -ELOOP, "loop of links");
    assert_false(exists("other"));
}

HY_TEST_WITH(test_copy_does_not_write_through_links_in_its_target, make_directory, remove_directory)
{
    make("d/sub");
    put("d/sub/f", "x");
    put("d/g", "x");
    make("old/d");
    make("elsewhere");
    put("victim", "kept");
    assert_int_equal(chmod(at("d/sub"), 0711) | chmod(at("elsewhere"), 0750), 0);
    assert_int_equal(symlink("../../elsewhere", at("old/d/sub")) | symlink("../../victim", at("old/d/g")), 0);
    assert_error(copy("d", "old", true), -ENOTDIR, "old/d/sub is a link or a file, not a directory");
    assert_names("elsewhere", "");
    assert_int_equal(mode_of("elsewhere"), 0750);
    assert_content("victim", "kept");
    assert_content("old/d/g", "x"); /* the link was replaced */
    make("links");
    assert_int_equal(symlink("links", at("named")), 0); /* a link that the user names as the target is followed */
    assert_int_equal(copy("d", "named", false), 0);
    assert_content("links/d/sub/f", "x");
}

/* Another process replaces a directory in the target by a link, between two files. */
static int swap_for_link(void *arg, uint64_t more)
{
    int *calls = arg;

    (void)more;
    if (++*calls == 4) {
        assert_int_equal(rename(at("old/d/sub"), at("moved")), 0);
        assert_int_equal(symlink("../../elsewhere", at("old/d/sub")), 0);
    }
    return 0;
}

HY_TEST_WITH(test_copy_does_not_write_through_links_created_meanwhile, make_directory, remove_directory)
{
    int calls = 0, rc;
    const struct hy_fs_copy how = {.replace = true, .recursive = true, .progress = swap_for_link, .arg = &calls};

    make("d/sub/below");
    put("d/sub/a", "x");
    put("d/sub/below/f", "x");
    put("d/sub/g", "x");
    make("old/d");
    make("elsewhere");
    rc = hy_fs_copy(at("d"), at("old"), &how, &err);
    assert_true(calls >= 4);
    assert_error(rc, -ENOTDIR, "old/d/sub is a link");
    assert_names("elsewhere", "");
}

HY_TEST_WITH(test_copy_errors_have_the_paths_of_the_user, make_directory, remove_directory)
{
    make("d/sub");
    put("d/sub/f", "x");
    make("old/d/sub/f");
    assert_error(copy("d", "old", true), -EISDIR, "/old/d/sub/f");
    assert_error(copy("d", "old", true), -EISDIR, "/old/d/sub/.f.");
}

HY_TEST_WITH(test_copy_keeps_restricted_and_executable_modes, make_directory, remove_directory)
{
    make("d");
    put("d/secret", "x");
    put("d/program", "x");
    put("d/open", "x");
    assert_int_equal(chmod(at("d/secret"), 0600) | chmod(at("d/program"), 0777) | chmod(at("d/open"), 0666), 0);
    assert_int_equal(chmod(at("d"), 0500), 0);
    assert_int_equal(copy("d", "new", false), 0);
    assert_int_equal(mode_of("new"), 0700);
    assert_int_equal(mode_of("new/secret"), 0600);
    assert_int_equal(mode_of("new/program"), 0755);
    assert_int_equal(mode_of("new/open"), 0644);
    assert_int_equal(chmod(at("d"), 0700), 0); /* otherwise only root could remove it */
}

static int shorten(void *arg, uint64_t more)
{
    (void)more;
    return truncate(arg, 1 << 20) < 0 ? -errno : 0;
}

static int stop(void *arg, uint64_t more)
{
    uint64_t *left = arg;

    if (more >= *left)
        return -EINTR;
    *left -= more;
    return 0;
}

static void put_large(const char *name, off_t size)
{
    put(name, "begin");
    assert_int_equal(truncate(at(name), size), 0);
}

HY_TEST_WITH(test_copy_of_a_shrinking_file_fails, make_directory, remove_directory)
{
    struct hy_fs_copy how = {.progress = shorten};

    put_large("f", (3 << 20) + 5);
    how.arg = hy_path_in(directory, "f");
    assert_error(hy_fs_copy(at("f"), at("g"), &how, &err), -EIO, "became shorter");
    assert_names("", "f ");
}

HY_TEST_WITH(test_a_stopped_copy_leaves_nothing_behind, make_directory, remove_directory)
{
    uint64_t left = 2 << 20;
    struct hy_fs_copy how = {.progress = stop, .arg = &left, .recursive = true};

    make("d");
    put_large("d/f", 3 << 20);
    assert_error(hy_fs_copy(at("d"), at("g"), &how, &err), -EINTR, "stopped");
    left = 2 << 20;
    assert_error(hy_fs_copy(at("d/f"), at("g"), &how, &err), -EINTR, "stopped");
    left = 4 << 20;
    assert_names("", "d/ ");
    assert_int_equal(hy_fs_copy(at("d/f"), at("g"), &how, &err), 0);
    assert_int_equal(left, 1 << 20);
}

static void make_sources(void)
{
    make("d/x");
    put("d/x/f", "new");
    put("f", "new");
    put("g", "old");
    assert_int_equal(chmod(at("d/x/f"), 0600) | chmod(at("f"), 0600), 0);
}

static void check_file(int rc)
{
    assert_content("g", rc < 0 ? "old" : "new");
    put("g", "old");
}

static void check_directory(int rc)
{
    if (rc == 0)
        assert_content("e/x/f", "new");
    else
        assert_false(exists("e"));
    assert_int_equal(hy_remove_tree(at("e")), 0);
}

/* Makes the 1st, 2nd … passage of the seam fail: the copy is always complete or missing. */
static void copy_with_faults(enum hy_seam seam, const char *from, const char *to, void (*check)(int rc))
{
    const int fds = count_fds();
    long n = 0, passed;

    do {
        int rc;

        hy_fault_arm(seam, ++n);
        rc = copy(from, to, strcmp(from, "f") == 0);
        passed = hy_fault_passed(seam);
        hy_fault_arm(seam, 0);
        if (rc < 0)
            assert_true(err.code == rc && err.text[0]);
        check(rc);
        assert_names("", "d/ f g ");
        assert_int_equal(count_fds(), fds);
    } while (passed >= n && n < HY_FAULT_POSITIONS);
    assert_in_range(n, 8, HY_FAULT_POSITIONS - 1);
}

HY_TEST_WITH(test_copy_is_complete_or_missing_after_any_system_error, make_directory, remove_directory)
{
    make_sources();
    copy_with_faults(HY_SEAM_SYS, "f", "g", check_file);
    copy_with_faults(HY_SEAM_SYS, "d", "e", check_directory);
}

HY_TEST_WITH(test_copy_is_complete_or_missing_when_out_of_memory, make_directory, remove_directory)
{
    make_sources();
    copy_with_faults(HY_SEAM_ALLOC, "f", "g", check_file);
    copy_with_faults(HY_SEAM_ALLOC, "d", "e", check_directory);
}
