/* SPDX-License-Identifier: Apache-2.0 */
/* fs: URLs, local files, open files, atomic files. */
#include "fs_fixture.h"

#include <fcntl.h>

/* ---- URLs -------------------------------------------------------------------------- */

HY_TEST(test_url_parts_are_parsed_without_file_access)
{
    static const struct {
        const char *url, *parent, *name;
        size_t root;
        bool local;
    } cases[] = {
        {"/a/b", "/a", "b", 1, true},
        {"/a/b//", "/a", "b", 1, true},
        {"/a", "/", "a", 1, true},
        {"/", "/", "", 1, true},
        {"a", ".", "a", 0, true},
        {"a/b", "a", "b", 0, true},
        {"a:b/c", "a:b", "c", 0, true},
        {"file:/a/b", "file:/a", "b", 6, true},
        {"file:///a", "file:///", "a", 8, true},
        {"hdfs://nn:8020/a/b", "hdfs://nn:8020/a", "b", 15, false},
        {"hdfs://nn:8020/a", "hdfs://nn:8020/", "a", 15, false},
        {"hdfs://[::1]:8020/a", "hdfs://[::1]:8020/", "a", 18, false},
        {"hdfs://nn", "hdfs://nn", "", 9, false},
        {"hdfs:///a", "hdfs:///", "a", 8, false},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        hy_cleanup_free char *parent = hy_url_parent(cases[i].url);
        size_t length, begin = hy_url_name(cases[i].url, &length);

        assert_string_equal(parent, cases[i].parent);
        assert_int_equal(length, strlen(cases[i].name));
        assert_memory_equal(cases[i].url + begin, cases[i].name, length);
        assert_int_equal(hy_url_root(cases[i].url), cases[i].root);
        assert_int_equal(hy_url_is_local(cases[i].url), cases[i].local);
    }
}

HY_TEST_WITH(test_file_urls_are_local_paths, make_directory, remove_directory)
{
    static const char *const forms[] = {"%s/f", "file:%s/f", "file://%s/f", "file://localhost%s/f", "%s//f"};
    char url[300];

    put("f", "x");
    for (size_t i = 0; i < HY_COUNT(forms); i++) {
        hy_cleanup_fs_info struct hy_fs_info info = {0};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(url, sizeof url, forms[i], directory);
#pragma GCC diagnostic pop
        assert_int_equal(hy_fs_stat(url, &info, &err), 0);
        assert_string_equal(info.name, "f");
    }
    assert_error(hy_fs_access("file://elsewhere/f", F_OK, &err), -EINVAL, "another machine");
}

HY_TEST_WITH(test_unknown_scheme_is_an_error_and_creates_no_file, make_directory, remove_directory)
{
    struct hy_fs_info info;
    struct hy_fs_copy how = {0};

    put("f", "x");
    assert_error(hy_fs_stat("gopher://h/x", &info, &err), -EPROTONOSUPPORT, "gopher://");
    assert_error(hy_fs_copy(at("f"), "gopher://h/x", &how, &err), -EPROTONOSUPPORT, "gopher://");
    assert_error(hy_fs_rename(at("f"), "gopher://h/x", true, &err), -EPROTONOSUPPORT, "gopher://");
    assert_names("", "f ");
}

/* ---- local files ------------------------------------------------------------------- */

HY_TEST_WITH(test_stat_distinguishes_files_directories_and_links, make_directory, remove_directory)
{
    hy_cleanup_fs_info struct hy_fs_info file = {0}, dir = {0}, link = {0}, broken = {0};

    put("f", "12345");
    make("d");
    assert_int_equal(symlink("d", at("to_d")), 0);
    assert_int_equal(symlink("nowhere", at("broken")), 0);
    assert_int_equal(hy_fs_stat(at("f"), &file, &err), 0);
    assert_true(file.size == 5 && !file.is_dir && !file.is_link && file.mode == 0644 && file.replication == 1);
    assert_true(file.modified_ms > 1500000000000 && *file.owner && *file.group);
    assert_int_equal(hy_fs_stat(at("d/"), &dir, &err), 0);
    assert_true(dir.is_dir && dir.size == 0 && dir.replication == 0);
    assert_string_equal(dir.name, "d");
    assert_int_equal(hy_fs_stat(at("to_d"), &link, &err), 0);
    assert_true(link.is_dir && link.is_link);
    assert_int_equal(hy_fs_stat(at("broken"), &broken, &err), 0);
    assert_true(broken.is_link && !broken.is_dir);
    assert_error(hy_fs_stat(at("none"), &file, &err), -ENOENT, "none does not exist");
    assert_error(hy_fs_stat(at("f/x"), &file, &err), -ENOTDIR, "cannot read the attributes of");
}

static int stop_at_b(void *arg, struct hy_fs_info *entry, struct hy_err *unused)
{
    (void)unused;
    ++*(int *)arg;
    return strcmp(entry->name, "b") == 0 ? 7 : 0;
}

HY_TEST_WITH(test_list_is_sorted_and_stops_when_a_visitor_stops_it, make_directory, remove_directory)
{
    int seen = 0;

    put("b", "");
    put("B", "");
    put("c", "");
    put(".hidden", "");
    make("a");
    assert_names("", ".hidden B a/ b c ");
    assert_int_equal(hy_fs_list(directory, stop_at_b, &seen, &err), 7);
    assert_int_equal(seen, 4);
    assert_error(hy_fs_list(at("b"), stop_at_b, &seen, &err), -ENOTDIR, "is a file, not a directory");
    assert_error(hy_fs_list(at("none"), stop_at_b, &seen, &err), -ENOENT, "does not exist");
}

HY_TEST_WITH(test_mkdirs_creates_parents_and_accepts_existing_directories, make_directory, remove_directory)
{
    assert_int_equal(hy_fs_mkdirs(at("a/b/c"), 0755, &err), 0);
    assert_int_equal(hy_fs_mkdirs(at("a/b/c/"), 0755, &err), 0);
    put("f", "");
    assert_error(hy_fs_mkdirs(at("f"), 0755, &err), -ENOTDIR, "cannot create the directory");
    assert_error(hy_fs_mkdirs(at("f/x"), 0755, &err), -ENOTDIR, "cannot create the directory");
}

HY_TEST_WITH(test_remove_needs_recursive_for_a_directory_that_is_not_empty, make_directory, remove_directory)
{
    make("d/e");
    put("d/e/f", "x");
    assert_error(hy_fs_remove(at("d"), false, &err), -ENOTEMPTY, "cannot remove");
    assert_content("d/e/f", "x");
    assert_int_equal(hy_fs_remove(at("d"), true, &err), 0);
    make("d");
    assert_int_equal(hy_fs_remove(at("d"), false, &err), 0);
    assert_error(hy_fs_remove(at("d"), true, &err), -ENOENT, "does not exist");
    assert_names("", "");
}

HY_TEST_WITH(test_remove_of_a_link_keeps_its_target, make_directory, remove_directory)
{
    make("d");
    put("d/f", "x");
    assert_int_equal(symlink("d", at("link")), 0);
    assert_int_equal(hy_fs_remove(at("link/"), true, &err), 0);
    assert_false(exists("link"));
    assert_content("d/f", "x");
}

HY_TEST_WITH(test_rename_replaces_only_with_replace, make_directory, remove_directory)
{
    put("a", "a");
    put("b", "b");
    assert_error(hy_fs_rename(at("a"), at("b"), false, &err), -EEXIST, "b already exists");
    assert_content("b", "b");
    assert_int_equal(hy_fs_rename(at("a"), at("b"), true, &err), 0);
    assert_content("b", "a");
    assert_int_equal(hy_fs_rename(at("b"), at("c"), false, &err), 0);
    assert_error(hy_fs_rename(at("none"), at("x"), false, &err), -ENOENT, "cannot rename");
    assert_names("", "c ");
}

HY_TEST_WITH(test_rename_replaces_empty_directories_only, make_directory, remove_directory)
{
    make("d");
    make("empty");
    make("full/x");
    assert_error(hy_fs_rename(at("d"), at("empty"), false, &err), -EEXIST, "already exists");
    assert_error(hy_fs_rename(at("d"), at("full"), true, &err), -ENOTEMPTY, "cannot rename");
    assert_int_equal(hy_fs_rename(at("d"), at("empty"), true, &err), 0);
    assert_names("", "empty/ full/ ");
}

HY_TEST_WITH(test_chmod_and_chown_by_name_or_number, make_directory, remove_directory)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};

    put("f", "");
    assert_int_equal(hy_fs_chmod(at("f"), 0750, &err), 0);
    assert_int_equal(mode_of("f"), 0750);
    assert_int_equal(hy_fs_stat(at("f"), &info, &err), 0);
    assert_int_equal(hy_fs_chown(at("f"), info.owner, info.group, &err), 0);
    assert_int_equal(hy_fs_chown(at("f"), NULL, NULL, &err), 0);
    assert_error(hy_fs_chown(at("f"), "no-such-user", NULL, &err), -EINVAL, "unknown user 'no-such-user'");
    assert_error(hy_fs_chown(at("f"), NULL, "no-such-group", &err), -EINVAL, "unknown group 'no-such-group'");
    assert_error(hy_fs_chown(at("none"), info.owner, NULL, &err), -ENOENT, "does not exist");
    assert_error(hy_fs_chmod(at("none"), 0700, &err), -ENOENT, "does not exist");
    if (geteuid() == 0) {
        assert_int_equal(hy_fs_chown(at("f"), "54321", "54322", &err), 0);
        hy_fs_info_done(&info);
        assert_int_equal(hy_fs_stat(at("f"), &info, &err), 0);
        assert_string_equal(info.owner, "54321"); /* an account without a name */
    }
}

HY_TEST_WITH(test_access_checks_permissions, make_directory, remove_directory)
{
    put("f", "");
    assert_int_equal(hy_fs_access(at("f"), R_OK | W_OK, &err), 0);
    assert_error(hy_fs_access(at("f"), X_OK, &err), -EACCES, "cannot access"); /* also denied for root */
    assert_error(hy_fs_access(at("none"), F_OK, &err), -ENOENT, "does not exist");
}

HY_TEST_WITH(test_usage_counts_the_tree_without_following_links, make_directory, remove_directory)
{
    struct hy_fs_usage u;
    struct hy_fs_space space;

    make("d/e");
    put("d/a", "123");
    put("d/e/b", "4567");
    assert_int_equal(symlink("..", at("d/e/loop")), 0);
    assert_int_equal(hy_fs_usage(at("d"), &u, &err), 0);
    assert_true(u.bytes == 7 && u.files == 3 && u.directories == 2 && u.stored > 0);
    assert_int_equal(hy_fs_usage(at("d/a"), &u, &err), 0);
    assert_true(u.bytes == 3 && u.files == 1 && u.directories == 0);
    assert_error(hy_fs_usage(at("none"), &u, &err), -ENOENT, "does not exist");
    assert_int_equal(hy_fs_space(directory, &space, &err), 0);
    assert_true(space.capacity >= space.used && space.capacity > space.free);
    assert_error(hy_fs_space(at("none"), &space, &err), -ENOENT, "does not exist");
}

/* ---- open files -------------------------------------------------------------------- */

static void write_to(const char *name, enum hy_fs_open_mode mode, const char *text)
{
    struct hy_fs_file *f = NULL;

    assert_int_equal(hy_fs_open(at(name), mode, &f, &err), 0);
    assert_int_equal(hy_fs_write(f, text, strlen(text), &err), 0);
    assert_int_equal(hy_fs_flush(f, true, &err), 0);
    assert_int_equal(hy_fs_close(f, &err), 0);
}

HY_TEST_WITH(test_files_are_written_appended_to_and_read_at_any_offset, make_directory, remove_directory)
{
    struct hy_fs_file *f = NULL;
    char buffer[8] = "";

    write_to("f", HY_FS_CREATE, "one");
    write_to("f", HY_FS_APPEND, "two");
    write_to("g", HY_FS_APPEND, "new");
    write_to("g", HY_FS_WRITE, "x");
    assert_content("f", "onetwo");
    assert_content("g", "x");
    assert_int_equal(hy_fs_open(at("f"), HY_FS_READ, &f, &err), 0);
    assert_int_equal(hy_fs_size(f), 6);
    assert_int_equal(hy_fs_pread(f, buffer, sizeof buffer, 2, &err), 4);
    assert_memory_equal(buffer, "etwo", 4);
    assert_int_equal(hy_fs_pread(f, buffer, sizeof buffer, 6, &err), 0);
    assert_int_equal(hy_fs_pread(f, buffer, sizeof buffer, UINT64_MAX, &err), -EINVAL);
    assert_int_equal(hy_fs_write(f, "x", 1, &err), -EBADF);
    assert_int_equal(hy_fs_close(f, &err), 0);
}

HY_TEST_WITH(test_open_reports_why_it_fails, make_directory, remove_directory)
{
    struct hy_fs_file *f = NULL;

    put("f", "x");
    make("d");
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_error(hy_fs_open(at("none"), HY_FS_READ, &f, &err), -ENOENT, "none does not exist");
    assert_error(hy_fs_open(at("none/x"), HY_FS_WRITE, &f, &err), -ENOENT, "its directory does not exist");
    assert_error(hy_fs_open(at("f"), HY_FS_CREATE, &f, &err), -EEXIST, "already exists");
    assert_error(hy_fs_open(at("d"), HY_FS_READ, &f, &err), -EISDIR, "cannot read");
    assert_error(hy_fs_open(at("d"), HY_FS_WRITE, &f, &err), -EISDIR, "cannot write");
    assert_error(hy_fs_open(at("fifo"), HY_FS_READ, &f, &err), -EINVAL, "neither a file nor a directory");
    assert_error(hy_fs_open(at("fifo"), HY_FS_WRITE, &f, &err), -EINVAL, "neither a file nor a directory");
    assert_content("f", "x");
}

HY_TEST_WITH(test_close_repeats_the_error_of_a_failed_write, make_directory, remove_directory)
{
    struct hy_fs_file *f = NULL;

    assert_int_equal(hy_fs_open(at("f"), HY_FS_WRITE, &f, &err), 0);
    hy_fault_arm(HY_SEAM_SYS, 1);
    assert_error(hy_fs_write(f, "abc", 3, &err), -EIO, "cannot write");
    hy_fault_arm(HY_SEAM_SYS, 0);
    assert_error(hy_fs_write(f, "abc", 3, &err), -EIO, "cannot write");
    assert_error(hy_fs_flush(f, false, &err), -EIO, "cannot write");
    assert_error(hy_fs_close(f, &err), -EIO, "cannot write");
}

static bool is_ours(int fd)
{
    char link[64], path[300];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path);
    return n > 0 && strncmp(path, directory, strlen(directory)) == 0;
}

HY_TEST_WITH(test_open_files_are_close_on_exec, make_directory, remove_directory)
{
    struct hy_fs_file *f = NULL;

    assert_int_equal(hy_fs_open(at("f"), HY_FS_WRITE, &f, &err), 0);
    for (int fd = 3; fd < 256; fd++)
        if (is_ours(fd))
            assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(hy_fs_close(f, &err), 0);
}

/* ---- atomic files ------------------------------------------------------------------------ */

HY_TEST_WITH(test_an_atomic_file_appears_only_when_committed, make_directory, remove_directory)
{
    struct hy_fs_atomic_file f;

    put("f", "old");
    assert_int_equal(hy_fs_atomic_file_open(&f, at("f"), &err), 0);
    assert_int_equal(hy_fs_write(f.file, "new", 3, &err), 0);
    assert_true(strstr(f.url, "/.f.") && strstr(f.url, "._COPYING_"));
    assert_content("f", "old");
    assert_int_equal(hy_fs_atomic_file_commit(&f, true, &err), 0);
    assert_content("f", "new");
    assert_int_equal(hy_fs_atomic_file_open(&f, at("f"), &err), 0);
    assert_error(hy_fs_atomic_file_commit(&f, false, &err), -EEXIST, "f already exists");
    assert_int_equal(hy_fs_atomic_file_open(&f, at("f"), &err), 0);
    hy_fs_atomic_file_abort(&f);
    hy_fs_atomic_file_abort(&f);
    assert_content("f", "new");
    assert_names("", "f ");
}

HY_TEST(test_a_temporary_name_is_never_too_long)
{
    char name[256];

    memset(name, 'n', 255);
    name[255] = '\0';
    hy_cleanup_free char *temporary = hy_fs_temporary_name(name);
    assert_true(strlen(temporary) <= 255);
}
