/* SPDX-License-Identifier: Apache-2.0 */
/* fs: files by URL, those of this machine; copies that are whole or not there; patterns. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "fds.h"
#include "fs/fs.h"
#include "fs/glob_pattern.h"
#include "fs/local.h"

static char folder[] = "/tmp/hy_test_fs.XXXXXX";
static struct hy_err err;

static const char *at(const char *name)
{
    return hy_path_in(folder, name);
}

static int make_folder(void **state)
{
    (void)state;
    err = (struct hy_err){0};
    umask(022);
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return hy_remove_tree(folder);
}

static void put(const char *name, const char *text)
{
    assert_int_equal(hy_file_write(at(name), text, strlen(text), 0644), 0);
}

static void make(const char *name)
{
    assert_int_equal(hy_mkdirs(at(name), 0755), 0);
}

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(at(name), &st) == 0;
}

static unsigned mode_of(const char *name)
{
    struct stat st;

    assert_int_equal(stat(at(name), &st), 0);
    return st.st_mode & 07777;
}

static void assert_content(const char *name, const char *text)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1 << 20);
    assert_int_equal(hy_file_read(at(name), &b), 0);
    assert_string_equal(hy_buf_cstr(&b), text);
}

static int add_name(void *arg, struct hy_fs_info *entry, struct hy_err *unused)
{
    (void)unused;
    hy_buf_printf(arg, "%s%s ", entry->name, entry->is_dir ? "/" : "");
    return 0;
}

/* The names in a folder, hidden ones too, in their order: "a b/ ". */
static void assert_names(const char *name, const char *expected)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1 << 20);
    assert_int_equal(hy_fs_list(at(name), add_name, &b, &err), 0);
    assert_string_equal(hy_buf_cstr(&b), expected);
}

/* The call failed so, and its sentence has this in it. */
static void assert_error(int rc, int code, const char *words)
{
    if (rc != code || !strstr(err.text, words))
        fail_msg("%d (%s), not %d with '%s'", rc, err.text, code, words);
    err = (struct hy_err){0};
}

/* ---- URLs -------------------------------------------------------------------------- */

static void test_url_is_taken_apart_without_looking(void **state)
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

    (void)state;
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

static void test_file_urls_are_paths_of_this_machine(void **state)
{
    static const char *const forms[] = {"%s/f", "file:%s/f", "file://%s/f", "file://localhost%s/f", "%s//f"};
    char url[300];

    (void)state;
    put("f", "x");
    for (size_t i = 0; i < HY_COUNT(forms); i++) {
        hy_cleanup_fs_info struct hy_fs_info info = {0};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(url, sizeof url, forms[i], folder);
#pragma GCC diagnostic pop
        assert_int_equal(hy_fs_stat(url, &info, &err), 0);
        assert_string_equal(info.name, "f");
    }
    assert_error(hy_fs_access("file://elsewhere/f", F_OK, &err), -EINVAL, "another machine");
}

static void test_unknown_scheme_is_said_and_no_file_is_made(void **state)
{
    struct hy_fs_info info;
    struct hy_fs_copy how = {0};

    (void)state;
    put("f", "x");
    assert_error(hy_fs_stat("gopher://h/x", &info, &err), -EPROTONOSUPPORT, "gopher://");
    assert_error(hy_fs_copy(at("f"), "gopher://h/x", &how, &err), -EPROTONOSUPPORT, "gopher://");
    assert_error(hy_fs_rename(at("f"), "gopher://h/x", true, &err), -EPROTONOSUPPORT, "gopher://");
    assert_names("", "f ");
}

/* ---- another file system, whose files are ours: "other:/tmp/x" ---------------------- */

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

static int other_open(const char *url, enum hy_fs_open_mode how, struct hy_fs_file **ret, struct hy_err *e)
{
    return hy_fs_local.open(url + 6, how, ret, e);
}

static const struct hy_fs_backend other = {
    .stat = other_stat, .list = other_list, .mkdirs = other_mkdirs, .remove = other_remove, .rename = other_rename,
    .open = other_open,
};

static const char *other_at(const char *name)
{
    static char url[300];

    snprintf(url, sizeof url, "other:%s", at(name));
    return url;
}

static void test_file_systems_are_copied_between_but_not_renamed(void **state)
{
    struct hy_fs_copy how = {.recursive = true};

    (void)state;
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

/* ---- local files ------------------------------------------------------------------- */

static void test_stat_tells_files_folders_and_links_apart(void **state)
{
    hy_cleanup_fs_info struct hy_fs_info file = {0}, dir = {0}, link = {0}, broken = {0};

    (void)state;
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

static void test_list_goes_by_name_and_stops_when_told(void **state)
{
    int seen = 0;

    (void)state;
    put("b", "");
    put("B", "");
    put("c", "");
    put(".hidden", "");
    make("a");
    assert_names("", ".hidden B a/ b c ");
    assert_int_equal(hy_fs_list(folder, stop_at_b, &seen, &err), 7);
    assert_int_equal(seen, 4);
    assert_error(hy_fs_list(at("b"), stop_at_b, &seen, &err), -ENOTDIR, "is a file, not a directory");
    assert_error(hy_fs_list(at("none"), stop_at_b, &seen, &err), -ENOENT, "does not exist");
}

static void test_mkdirs_makes_the_way_and_is_content_with_what_is_there(void **state)
{
    (void)state;
    assert_int_equal(hy_fs_mkdirs(at("a/b/c"), 0755, &err), 0);
    assert_int_equal(hy_fs_mkdirs(at("a/b/c/"), 0755, &err), 0);
    put("f", "");
    assert_error(hy_fs_mkdirs(at("f"), 0755, &err), -ENOTDIR, "cannot create the directory");
    assert_error(hy_fs_mkdirs(at("f/x"), 0755, &err), -ENOTDIR, "cannot create the directory");
}

static void test_remove_takes_a_full_folder_only_recursively(void **state)
{
    (void)state;
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

static void test_remove_of_a_link_leaves_what_it_leads_to(void **state)
{
    (void)state;
    make("d");
    put("d/f", "x");
    assert_int_equal(symlink("d", at("link")), 0);
    assert_int_equal(hy_fs_remove(at("link/"), true, &err), 0);
    assert_false(is_there("link"));
    assert_content("d/f", "x");
}

static void test_rename_replaces_only_when_it_may(void **state)
{
    (void)state;
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

static void test_rename_replaces_empty_folders_only(void **state)
{
    (void)state;
    make("d");
    make("empty");
    make("full/x");
    assert_error(hy_fs_rename(at("d"), at("empty"), false, &err), -EEXIST, "already exists");
    assert_error(hy_fs_rename(at("d"), at("full"), true, &err), -ENOTEMPTY, "cannot rename");
    assert_int_equal(hy_fs_rename(at("d"), at("empty"), true, &err), 0);
    assert_names("", "empty/ full/ ");
}

static void test_rights_and_owners_are_set_by_name_or_number(void **state)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};

    (void)state;
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
        assert_string_equal(info.owner, "54321"); /* who has no name here */
    }
}

static void test_access_asks_for_what_is_there(void **state)
{
    (void)state;
    put("f", "");
    assert_int_equal(hy_fs_access(at("f"), R_OK | W_OK, &err), 0);
    assert_error(hy_fs_access(at("f"), X_OK, &err), -EACCES, "cannot access"); /* root may not run it, either */
    assert_error(hy_fs_access(at("none"), F_OK, &err), -ENOENT, "does not exist");
}

static void test_usage_counts_all_below_and_follows_no_link(void **state)
{
    struct hy_fs_usage u;
    struct hy_fs_space room;

    (void)state;
    make("d/e");
    put("d/a", "123");
    put("d/e/b", "4567");
    assert_int_equal(symlink("..", at("d/e/loop")), 0);
    assert_int_equal(hy_fs_usage(at("d"), &u, &err), 0);
    assert_true(u.bytes == 7 && u.files == 3 && u.directories == 2 && u.stored > 0);
    assert_int_equal(hy_fs_usage(at("d/a"), &u, &err), 0);
    assert_true(u.bytes == 3 && u.files == 1 && u.directories == 0);
    assert_error(hy_fs_usage(at("none"), &u, &err), -ENOENT, "does not exist");
    assert_int_equal(hy_fs_space(folder, &room, &err), 0);
    assert_true(room.capacity >= room.used && room.capacity > room.free);
    assert_error(hy_fs_space(at("none"), &room, &err), -ENOENT, "does not exist");
}

/* ---- open files -------------------------------------------------------------------- */

static void write_to(const char *name, enum hy_fs_open_mode how, const char *text)
{
    struct hy_fs_file *f = NULL;

    assert_int_equal(hy_fs_open(at(name), how, &f, &err), 0);
    assert_int_equal(hy_fs_write(f, text, strlen(text), &err), 0);
    assert_int_equal(hy_fs_flush(f, true, &err), 0);
    assert_int_equal(hy_fs_close(f, &err), 0);
}

static void test_files_are_written_appended_to_and_read_anywhere(void **state)
{
    struct hy_fs_file *f = NULL;
    char room[8] = "";

    (void)state;
    write_to("f", HY_FS_CREATE, "one");
    write_to("f", HY_FS_APPEND, "two");
    write_to("g", HY_FS_APPEND, "new");
    write_to("g", HY_FS_WRITE, "x");
    assert_content("f", "onetwo");
    assert_content("g", "x");
    assert_int_equal(hy_fs_open(at("f"), HY_FS_READ, &f, &err), 0);
    assert_int_equal(hy_fs_size(f), 6);
    assert_int_equal(hy_fs_pread(f, room, sizeof room, 2, &err), 4);
    assert_memory_equal(room, "etwo", 4);
    assert_int_equal(hy_fs_pread(f, room, sizeof room, 6, &err), 0);
    assert_int_equal(hy_fs_pread(f, room, sizeof room, UINT64_MAX, &err), -EINVAL);
    assert_int_equal(hy_fs_write(f, "x", 1, &err), -EBADF);
    assert_int_equal(hy_fs_close(f, &err), 0);
}

static void test_open_says_why_it_cannot(void **state)
{
    struct hy_fs_file *f = NULL;

    (void)state;
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

static void test_a_write_that_failed_is_told_again_by_close(void **state)
{
    struct hy_fs_file *f = NULL;

    (void)state;
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
    return n > 0 && strncmp(path, folder, strlen(folder)) == 0;
}

static void test_open_files_are_not_handed_to_children(void **state)
{
    struct hy_fs_file *f = NULL;

    (void)state;
    assert_int_equal(hy_fs_open(at("f"), HY_FS_WRITE, &f, &err), 0);
    for (int fd = 3; fd < 256; fd++)
        if (is_ours(fd))
            assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(hy_fs_close(f, &err), 0);
}

/* ---- drafts ------------------------------------------------------------------------ */

static void test_a_draft_is_beside_its_place_until_it_is_kept(void **state)
{
    struct hy_fs_atomic_file d;

    (void)state;
    put("f", "old");
    assert_int_equal(hy_fs_atomic_file_open(&d, at("f"), &err), 0);
    assert_int_equal(hy_fs_write(d.file, "new", 3, &err), 0);
    assert_true(strstr(d.url, "/.f.") && strstr(d.url, "._COPYING_"));
    assert_content("f", "old");
    assert_int_equal(hy_fs_atomic_file_commit(&d, true, &err), 0);
    assert_content("f", "new");
    assert_int_equal(hy_fs_atomic_file_open(&d, at("f"), &err), 0);
    assert_error(hy_fs_atomic_file_commit(&d, false, &err), -EEXIST, "f already exists");
    assert_int_equal(hy_fs_atomic_file_open(&d, at("f"), &err), 0);
    hy_fs_atomic_file_abort(&d);
    hy_fs_atomic_file_abort(&d);
    assert_content("f", "new");
    assert_names("", "f ");
}

static void test_a_long_name_has_a_draft_too(void **state)
{
    char name[256];

    (void)state;
    memset(name, 'n', 255);
    name[255] = '\0';
    hy_cleanup_free char *draft = hy_fs_temporary_name(name);
    assert_true(strlen(draft) <= 255);
}

/* ---- copies ------------------------------------------------------------------------ */

static int copy(const char *from, const char *to, bool replace)
{
    const struct hy_fs_copy how = {.replace = replace, .recursive = true};

    return hy_fs_copy(at(from), at(to), &how, &err);
}

static void test_copy_goes_into_a_folder_or_to_a_new_name(void **state)
{
    (void)state;
    put("f", "x");
    make("d");
    assert_int_equal(copy("f", "d", false), 0);
    assert_int_equal(copy("f", "d/g", false), 0);
    assert_names("d", "f g ");
    assert_content("d/g", "x");
}

static void test_copy_replaces_only_when_it_may(void **state)
{
    (void)state;
    put("a", "a");
    put("b", "b");
    make("d/a");
    assert_error(copy("a", "b", false), -EEXIST, "b already exists");
    assert_content("b", "b");
    assert_int_equal(copy("a", "b", true), 0);
    assert_content("b", "a");
    assert_error(copy("a", "d", true), -EISDIR, "d/a is a directory");
    assert_error(copy("d", "b", true), -ENOTDIR, "b is a file");
    assert_int_equal(copy("a", "a", true), 0); /* onto itself: nothing is lost */
    assert_content("a", "a");
    assert_names("", "a b d/ ");
}

static void test_copy_needs_the_folder_it_goes_to(void **state)
{
    struct hy_fs_copy flat = {0};

    (void)state;
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

static void test_copy_of_a_folder_has_all_that_is_in_it(void **state)
{
    (void)state;
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
    assert_int_equal(copy("d", "old", true), 0); /* into what is there */
    assert_names("old/d", "a e/ empty/ mine ");
    assert_content("old/d/a", "1");
}

static void test_copy_of_a_folder_into_itself_ends(void **state)
{
    (void)state;
    make("d");
    put("d/a", "1");
    assert_int_equal(copy("d", "d", false), 0);
    assert_names("d/d", "a ");
    assert_int_equal(copy("d", "d", true), 0);
    assert_names("d/d", "a d/ ");
}

static void test_copy_follows_links_but_no_loop(void **state)
{
    (void)state;
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
    assert_false(is_there("other"));
}

static void test_copy_writes_through_no_link_in_its_target(void **state)
{
    (void)state;
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
    assert_int_equal(symlink("links", at("named")), 0); /* the user's own word for the target is followed */
    assert_int_equal(copy("d", "named", false), 0);
    assert_content("links/d/sub/f", "x");
}

/* Somebody who may write to the target swaps a folder in it for a link, between two files. */
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

static void test_copy_writes_through_no_link_that_comes_meanwhile(void **state)
{
    int calls = 0, rc;
    const struct hy_fs_copy how = {.replace = true, .recursive = true, .progress = swap_for_link, .arg = &calls};

    (void)state;
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

static void test_copy_names_files_as_the_user_does(void **state)
{
    (void)state;
    make("d/sub");
    put("d/sub/f", "x");
    make("old/d/sub/f");
    assert_error(copy("d", "old", true), -EISDIR, "/old/d/sub/f");
    assert_error(copy("d", "old", true), -EISDIR, "/old/d/sub/.f.");
}

static void test_copy_keeps_secrets_and_programs(void **state)
{
    (void)state;
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
    assert_int_equal(chmod(at("d"), 0700), 0); /* or only root could remove it */
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

static void test_copy_of_a_file_that_shrinks_is_no_copy(void **state)
{
    struct hy_fs_copy how = {.progress = shorten};

    (void)state;
    put_large("f", (3 << 20) + 5);
    how.arg = hy_path_in(folder, "f");
    assert_error(hy_fs_copy(at("f"), at("g"), &how, &err), -EIO, "became shorter");
    assert_names("", "f ");
}

static void test_copy_that_is_stopped_leaves_nothing(void **state)
{
    uint64_t left = 2 << 20;
    struct hy_fs_copy how = {.progress = stop, .arg = &left, .recursive = true};

    (void)state;
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

static void check_folder(int rc)
{
    if (rc == 0)
        assert_content("e/x/f", "new");
    else
        assert_false(is_there("e"));
    assert_int_equal(hy_remove_tree(at("e")), 0);
}

/* Makes the 1st, 2nd … passage of the seam fail: whatever happens, there is all of a copy or nothing. */
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

static void test_copy_is_whole_or_not_there_whatever_fails(void **state)
{
    (void)state;
    make_sources();
    copy_with_faults(HY_SEAM_SYS, "f", "g", check_file);
    copy_with_faults(HY_SEAM_SYS, "d", "e", check_folder);
}

static void test_copy_is_whole_or_not_there_without_memory(void **state)
{
    (void)state;
    make_sources();
    copy_with_faults(HY_SEAM_ALLOC, "f", "g", check_file);
    copy_with_faults(HY_SEAM_ALLOC, "d", "e", check_folder);
}

/* ---- patterns ---------------------------------------------------------------------- */

static void test_patterns_match_names(void **state)
{
    static const struct {
        const char *pattern, *yes, *no; /* names, with blanks between */
    } cases[] = {
        {"part-*", "part- part-0 part-01.csv", ".part- xpart-0"},
        {"*", "a .hidden {", ""},
        {"a?c", "abc a€c a?c", "ac abbc"},
        {"[abc]x", "ax bx cx", "dx x aax"},
        {"[a-c0-9]", "a b c 0 5 9", "d A -"},
        {"[^a-c]", "d € -", "a b c"},
        {"[!a]b", "bb", "ab b"},
        {"[]a]", "] a", "b"},
        {"[a-]", "a -", "b"},
        {"[\\]^]", "] ^", "\\"},
        {"[ä-ü]", "ä ö ü", "a z"},
        {"{a,b}", "a b", "c ab a,b"},
        {"x{,1,2{3,4}*}y", "xy x1y x23y x24zzy", "x2y x13y x"},
        {"{a*,*b}{c,d}", "ac axd bd xbc", "ab cd"},
        {"\\*\\{a\\}", "*{a}", "{a} xa"},
        {"a,b}", "a,b}", "a b"},
        {"a\\", "a\\", "a"},
        {"*a*b*", "ab xaxbx aab", "ba a b"},
        {"", "", "a"},
    };

    (void)state;
    for (size_t i = 0; i < HY_COUNT(cases); i++)
        for (int yes = 0; yes < 2; yes++) {
            char names[100], *rest = names, *name;
            hy_cleanup_glob struct hy_glob *g = NULL;

            assert_int_equal(hy_glob_new(cases[i].pattern, strlen(cases[i].pattern), &g), 0);
            snprintf(names, sizeof names, "%s", yes ? cases[i].yes : cases[i].no);
            while ((name = strtok_r(rest, " ", &rest)))
                if (hy_glob_matches(g, name, strlen(name)) != yes)
                    fail_msg("'%s' and '%s'", cases[i].pattern, name);
        }
}

static void test_a_hopeless_pattern_is_answered_at_once(void **state)
{
    char pattern[400] = "", name[200];
    hy_cleanup_glob struct hy_glob *g = NULL;

    (void)state;
    for (int i = 0; i < 40; i++)
        strcat(pattern, "{a*,*a}*");
    strcat(pattern, "b");
    memset(name, 'a', sizeof name);
    assert_int_equal(hy_glob_new(pattern, strlen(pattern), &g), 0);
    assert_false(hy_glob_matches(g, name, sizeof name));
}

static int add_url(void *arg, const char *url, const struct hy_fs_info *info, struct hy_err *unused)
{
    (void)unused;
    assert_non_null(info->name);
    hy_buf_printf(arg, "%s ", strncmp(url, folder, strlen(folder)) == 0 ? url + strlen(folder) + 1 : url);
    return 0;
}

static void assert_glob(const char *pattern, const char *expected)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1 << 20);
    assert_int_equal(hy_fs_glob(at(pattern), add_url, &b, &err), 0);
    assert_string_equal(hy_buf_cstr(&b), expected);
}

static void make_tree(void)
{
    make("2025/01");
    make("2026/01");
    make("2026/02");
    put("2025/01/a.csv", "");
    put("2026/01/a.csv", "");
    put("2026/01/b.txt", "");
    put("2026/02/.hidden", "");
    put("note", "");
    put("st*r", "");
}

static void test_glob_finds_matches_in_any_part_of_a_path(void **state)
{
    (void)state;
    make_tree();
    assert_glob("*/01/*.csv", "2025/01/a.csv 2026/01/a.csv ");
    assert_glob("202[56]/0?/*", "2025/01/a.csv 2026/01/a.csv 2026/01/b.txt 2026/02/.hidden ");
    assert_glob("2026/*/{a,b}.*", "2026/01/a.csv 2026/01/b.txt ");
    assert_glob("{2026/01,2025/*}/a.csv", "2025/01/a.csv 2026/01/a.csv ");
    assert_glob("{2026,2026/0*,*26}", "2026 2026/01 2026/02 "); /* each once */
    assert_glob("2026/01", "2026/01 ");
    assert_glob("*/", "2025 2026 ");
    assert_glob("n*/x", "");
    assert_glob("note/*", "");
    assert_glob("none*", "");
    assert_glob("none", "");
    assert_glob("none/*/x", "");
    assert_glob("st\\*r", "st*r ");
}

static void test_glob_of_relative_paths_and_urls_gives_the_like(void **state)
{
    hy_cleanup_free char *url = NULL, *before = get_current_dir_name();
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    make_tree();
    hy_buf_init(&b, 1 << 20);
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(hy_fs_glob("n*", add_url, &b, &err), 0);
    assert_int_equal(hy_fs_glob("./202?/02", add_url, &b, &err), 0);
    assert_int_equal(hy_fs_glob("", add_url, &b, &err), 0);
    assert_string_equal(hy_buf_cstr(&b), "note ./2026/02 ");
    assert_int_equal(chdir(before), 0);
    hy_buf_clear(&b);
    url = hy_asprintf("file://%s/no*", folder);
    assert_int_equal(hy_fs_glob(url, add_url, &b, &err), 0);
    assert_string_equal(hy_buf_cstr(&b) + strlen(url) - 1, "te ");
    hy_buf_clear(&b);
    assert_int_equal(hy_fs_glob("/tm{p,}/", add_url, &b, &err), 0);
    assert_string_equal(hy_buf_cstr(&b), "/tmp ");
}

static void test_glob_says_what_is_no_pattern(void **state)
{
    hy_cleanup_free char *long_one = hy_calloc(10001, 1);

    (void)state;
    memset(long_one, '*', 10000);
    assert_error(hy_fs_glob(at("[a"), add_url, NULL, &err), -EINVAL, "is not closed");
    assert_error(hy_fs_glob(at("{a,b"), add_url, NULL, &err), -EINVAL, "is not closed");
    assert_error(hy_fs_glob(at("[a/b]"), add_url, NULL, &err), -EINVAL, "is not closed");
    assert_error(hy_fs_glob(long_one, add_url, NULL, &err), -ENAMETOOLONG, "10000 characters");
    assert_error(hy_fs_glob("{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}{a/,b/}", add_url,
                            NULL, &err),
                 -E2BIG, "too many patterns");
}

static int glob_all(void *arg)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1 << 20);
    return hy_fs_glob(at("{2025/01,*}/*"), add_url, &b, arg);
}

static void test_glob_fails_cleanly(void **state)
{
    (void)state;
    make_tree();
    hy_each_fault(HY_SEAM_ALLOC, glob_all, &err);
    hy_each_fault(HY_SEAM_SYS, glob_all, &err);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_url_is_taken_apart_without_looking),
        IN_FOLDER(test_file_urls_are_paths_of_this_machine),
        IN_FOLDER(test_unknown_scheme_is_said_and_no_file_is_made),
        IN_FOLDER(test_file_systems_are_copied_between_but_not_renamed),
        IN_FOLDER(test_stat_tells_files_folders_and_links_apart),
        IN_FOLDER(test_list_goes_by_name_and_stops_when_told),
        IN_FOLDER(test_mkdirs_makes_the_way_and_is_content_with_what_is_there),
        IN_FOLDER(test_remove_takes_a_full_folder_only_recursively),
        IN_FOLDER(test_remove_of_a_link_leaves_what_it_leads_to),
        IN_FOLDER(test_rename_replaces_only_when_it_may),
        IN_FOLDER(test_rename_replaces_empty_folders_only),
        IN_FOLDER(test_rights_and_owners_are_set_by_name_or_number),
        IN_FOLDER(test_access_asks_for_what_is_there),
        IN_FOLDER(test_usage_counts_all_below_and_follows_no_link),
        IN_FOLDER(test_files_are_written_appended_to_and_read_anywhere),
        IN_FOLDER(test_open_says_why_it_cannot),
        IN_FOLDER(test_a_write_that_failed_is_told_again_by_close),
        IN_FOLDER(test_open_files_are_not_handed_to_children),
        IN_FOLDER(test_a_draft_is_beside_its_place_until_it_is_kept),
        cmocka_unit_test(test_a_long_name_has_a_draft_too),
        IN_FOLDER(test_copy_goes_into_a_folder_or_to_a_new_name),
        IN_FOLDER(test_copy_replaces_only_when_it_may),
        IN_FOLDER(test_copy_needs_the_folder_it_goes_to),
        IN_FOLDER(test_copy_of_a_folder_has_all_that_is_in_it),
        IN_FOLDER(test_copy_of_a_folder_into_itself_ends),
        IN_FOLDER(test_copy_follows_links_but_no_loop),
        IN_FOLDER(test_copy_writes_through_no_link_in_its_target),
        IN_FOLDER(test_copy_writes_through_no_link_that_comes_meanwhile),
        IN_FOLDER(test_copy_names_files_as_the_user_does),
        IN_FOLDER(test_copy_keeps_secrets_and_programs),
        IN_FOLDER(test_copy_of_a_file_that_shrinks_is_no_copy),
        IN_FOLDER(test_copy_that_is_stopped_leaves_nothing),
        IN_FOLDER(test_copy_is_whole_or_not_there_whatever_fails),
        IN_FOLDER(test_copy_is_whole_or_not_there_without_memory),
        cmocka_unit_test(test_patterns_match_names),
        cmocka_unit_test(test_a_hopeless_pattern_is_answered_at_once),
        IN_FOLDER(test_glob_finds_matches_in_any_part_of_a_path),
        IN_FOLDER(test_glob_of_relative_paths_and_urls_gives_the_like),
        IN_FOLDER(test_glob_says_what_is_no_pattern),
        IN_FOLDER(test_glob_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
