/* SPDX-License-Identifier: Apache-2.0 */
/* base: files that are whole or not there, folders, and paths that lead nowhere else. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

static char folder[] = "/tmp/hy_test_base.XXXXXX";

static const char *in_folder(const char *name)
{
    return hy_path_in(folder, name);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return hy_remove_tree(folder);
}

static int is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* The file's content, in a buffer of the caller's. */
static const char *content(const char *path, struct hy_buf *b)
{
    hy_buf_clear(b);
    assert_int_equal(hy_file_read(path, b), 0);
    return hy_buf_cstr(b);
}

static void test_file_comes_back_as_it_was_written(void **state)
{
    hy_cleanup_buf struct hy_buf b;
    char bytes[10000];
    struct stat st;

    (void)state;
    hy_buf_init(&b, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7);
    assert_int_equal(hy_file_write(in_folder("f"), bytes, sizeof bytes, 0600), 0);
    assert_int_equal(hy_file_read(in_folder("f"), &b), 0);
    assert_int_equal(b.len, sizeof bytes);
    assert_memory_equal(hy_buf_bytes(&b), bytes, sizeof bytes);
    assert_int_equal(stat(in_folder("f"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_file_read_holds_the_buffers_maximum(void **state)
{
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, 9);
    assert_int_equal(hy_file_write(in_folder("f"), "0123456789", 10, 0600), 0);
    assert_int_equal(hy_file_read(in_folder("f"), &b), -ENOBUFS);
    assert_int_equal(hy_file_read("/dev/zero", &b), -ENOBUFS);
}

static void test_file_read_says_why_it_cannot(void **state)
{
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, 100);
    assert_int_equal(hy_file_read(in_folder("missing"), &b), -ENOENT);
    assert_int_equal(hy_file_read(folder, &b), -EISDIR);
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_int_equal(hy_file_read(in_folder("fifo"), &b), 0); /* and does not wait for a writer */
    assert_int_equal(b.len, 0);
}

static void test_file_write_does_not_follow_what_lies_in_its_way(void **state)
{
    hy_cleanup_buf struct hy_buf b;
    char temporary[200];
    struct stat st;

    (void)state;
    hy_buf_init(&b, 100);
    assert_int_equal(hy_file_write(in_folder("victim"), "safe", 4, 0644), 0);
    snprintf(temporary, sizeof temporary, "%s.%d.tmp", in_folder("key"), (int)getpid());
    assert_int_equal(symlink(in_folder("victim"), temporary), 0);
    assert_int_equal(hy_file_write(in_folder("key"), "secret", 6, 0600), 0);
    assert_string_equal(content(in_folder("victim"), &b), "safe");
    assert_string_equal(content(in_folder("key"), &b), "secret");

    assert_int_equal(hy_file_write(temporary, "old", 3, 0666), 0); /* of a process that had our number */
    assert_int_equal(hy_file_write(in_folder("key"), "second", 6, 0600), 0);
    assert_int_equal(stat(in_folder("key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static int replace_a_file(void *arg)
{
    hy_cleanup_buf struct hy_buf b;
    char temporary[200];
    const char *now;
    int rc;

    (void)arg;
    hy_buf_init(&b, 100);
    assert_int_equal(unlink(in_folder("f")), 0);
    assert_int_equal(link(in_folder("before"), in_folder("f")), 0);
    rc = hy_file_write(in_folder("f"), "after", 5, 0600);
    hy_fault_arm(HY_SEAM_SYS, 0);
    hy_fault_arm(HY_SEAM_ALLOC, 0);
    now = content(in_folder("f"), &b);
    assert_string_equal(now, rc == 0 ? "after" : "before");
    snprintf(temporary, sizeof temporary, "%s.%d.tmp", in_folder("f"), (int)getpid());
    assert_false(is_there(temporary));
    return rc;
}

/* The scenario disarms the seam, so this loop is its own: it ends when a run comes through. */
static void test_file_write_is_all_or_nothing_whatever_fails(void **state)
{
    (void)state;
    assert_int_equal(hy_file_write(in_folder("before"), "before", 6, 0600), 0);
    assert_int_equal(hy_file_write(in_folder("f"), "before", 6, 0600), 0);
    for (enum hy_seam seam = HY_SEAM_ALLOC; seam <= HY_SEAM_SYS; seam++) {
        int failed = 0;

        for (long n = 1, rc = -1; rc != 0; n++) {
            hy_fault_arm(seam, n);
            rc = replace_a_file(NULL);
            failed += rc != 0;
        }
        assert_int_equal(failed, seam == HY_SEAM_ALLOC ? 1 : 4); /* open, write, fsync, rename */
    }
}

static void test_write_all_goes_on_after_short_writes(void **state)
{
    hy_cleanup_free char *sent = hy_calloc(1, 1 << 20);
    size_t got = 0;
    int fds[2], status;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        _exit(hy_write_all(fds[1], sent, 1 << 20) == 0 ? 0 : 1);
    }
    close(fds[1]);
    for (ssize_t n; (n = read(fds[0], sent, 1000)) > 0;)
        got += (size_t)n;
    close(fds[0]);
    assert_int_equal(got, 1 << 20);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_write_all_says_that_the_disk_is_full(void **state)
{
    hy_cleanup_close int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(hy_write_all(fd, "x", 1), -ENOSPC);
}

static void test_mkdirs_makes_all_that_is_missing_and_nothing_twice(void **state)
{
    (void)state;
    assert_int_equal(hy_mkdirs(in_folder("a/b//c/"), 0700), 0);
    assert_true(is_there(in_folder("a/b/c")));
    assert_int_equal(hy_mkdirs(in_folder("a/b/c"), 0700), 0);
    assert_int_equal(hy_mkdirs("/", 0700), 0);
    assert_int_equal(hy_mkdirs(".", 0700), 0);
}

static void test_mkdirs_says_what_is_in_the_way(void **state)
{
    (void)state;
    assert_int_equal(hy_file_write(in_folder("f"), "", 0, 0600), 0);
    assert_int_equal(hy_mkdirs(in_folder("f"), 0700), -ENOTDIR);
    assert_int_equal(hy_mkdirs(in_folder("f/g"), 0700), -ENOTDIR);
    assert_int_equal(hy_mkdirs(in_folder("f/g/h"), 0700), -ENOTDIR);
    assert_int_equal(hy_mkdirs("", 0700), -ENOENT);
}

static void test_remove_tree_never_goes_through_a_link(void **state)
{
    (void)state;
    assert_int_equal(hy_mkdirs(in_folder("outside/deep"), 0700), 0);
    assert_int_equal(hy_mkdirs(in_folder("tree/a/b"), 0700), 0);
    assert_int_equal(hy_file_write(in_folder("tree/a/f"), "x", 1, 0400), 0);
    assert_int_equal(symlink(in_folder("outside"), in_folder("tree/a/link")), 0);
    assert_int_equal(symlink("nowhere", in_folder("tree/dangling")), 0);
    assert_int_equal(hy_remove_tree(in_folder("tree")), 0);
    assert_false(is_there(in_folder("tree")));
    assert_true(is_there(in_folder("outside/deep")));
    assert_int_equal(symlink(in_folder("outside"), in_folder("top")), 0);
    assert_int_equal(hy_remove_tree(in_folder("top")), 0); /* the link itself */
    assert_true(is_there(in_folder("outside/deep")));
}

static void test_remove_tree_of_nothing_is_fine(void **state)
{
    (void)state;
    assert_int_equal(hy_remove_tree(in_folder("missing")), 0);
    assert_int_equal(hy_file_write(in_folder("f"), "", 0, 0600), 0);
    assert_int_equal(hy_remove_tree(in_folder("f/g")), -ENOTDIR);
}

static int make_and_remove(void *arg)
{
    int rc;

    (void)arg;
    rc = hy_mkdirs(in_folder("t/u/v"), 0700);
    if (rc == 0)
        rc = hy_file_write(in_folder("t/u/f"), "x", 1, 0600);
    if (rc == 0)
        rc = hy_remove_tree(in_folder("t"));
    if (rc == 0)
        assert_false(is_there(in_folder("t")));
    return rc;
}

static void test_folders_come_through_or_fail_cleanly_at_every_fault(void **state)
{
    (void)state;
    hy_each_fault(HY_SEAM_ALLOC, make_and_remove, NULL);
    hy_each_fault(HY_SEAM_SYS, make_and_remove, NULL);
    assert_int_equal(make_and_remove(NULL), 0);
}

static void test_path_join_puts_one_slash(void **state)
{
    hy_cleanup_free char *a = hy_path_join("a", "b"), *b = hy_path_join("/", "b"),
                         *c = hy_path_join("a/", "b");

    (void)state;
    assert_string_equal(a, "a/b");
    assert_string_equal(b, "/b");
    assert_string_equal(c, "a/b");
}

static void test_runtime_dir_is_the_users_alone(void **state)
{
    hy_cleanup_free char *path = NULL, *refused = NULL;
    struct hy_err err = {0};
    struct stat st;

    (void)state;
    setenv("XDG_RUNTIME_DIR", folder, 1);
    path = hy_runtime_dir(&err);
    assert_string_equal(path, in_folder("hopyard"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);

    assert_int_equal(chmod(path, 0755), 0);
    refused = hy_runtime_dir(&err);
    assert_null(refused);
    assert_int_equal(err.code, -EPERM);
    assert_non_null(strstr(err.text, path));
    unsetenv("XDG_RUNTIME_DIR");
}

static void test_runtime_dir_is_not_a_link_somebody_laid(void **state)
{
    hy_cleanup_free char *refused = NULL;
    struct hy_err err = {0};

    (void)state;
    assert_int_equal(mkdir(in_folder("elsewhere"), 0700), 0);
    assert_int_equal(symlink("elsewhere", in_folder("hopyard")), 0);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    refused = hy_runtime_dir(&err);
    unsetenv("XDG_RUNTIME_DIR");
    assert_null(refused);
    assert_int_equal(err.code, -EPERM);
}

static int find_the_runtime_dir(void *arg)
{
    struct hy_err err = {0};
    hy_cleanup_free char *path = hy_runtime_dir(&err);

    (void)arg;
    assert_true(path ? err.code == 0 : err.code < 0 && err.text[0]);
    return path ? 0 : err.code;
}

static void test_runtime_dir_has_a_sentence_for_every_fault(void **state)
{
    (void)state;
    setenv("XDG_RUNTIME_DIR", in_folder("not/there"), 1);
    hy_each_fault(HY_SEAM_ALLOC, find_the_runtime_dir, NULL);
    hy_each_fault(HY_SEAM_SYS, find_the_runtime_dir, NULL);
    unsetenv("XDG_RUNTIME_DIR");
}

static int create_below(const char *path)
{
    int fd = hy_create_below(folder, path, 0600);

    if (fd >= 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

static void test_a_path_below_never_leads_out(void **state)
{
    static const char *const inside[] = {"a", "b/c", "..a", "a..", ".a/b", "d/...", "a b/\n"};
    static const char *const outside[] = {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "./a", "a/./b"};

    (void)state;
    for (size_t i = 0; i < HY_COUNT(inside); i++) {
        assert_int_equal(create_below(inside[i]), 0);
        assert_true(is_there(in_folder(inside[i])));
    }
    for (size_t i = 0; i < HY_COUNT(outside); i++)
        assert_int_not_equal(create_below(outside[i]), 0);
}

static void test_a_path_below_follows_no_link(void **state)
{
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, 100);
    assert_int_equal(hy_file_write(in_folder("victim"), "safe", 4, 0600), 0);
    assert_int_equal(symlink("/tmp", in_folder("out")), 0);
    assert_int_equal(symlink("victim", in_folder("link")), 0);
    assert_int_not_equal(create_below("out/hy_test_below"), 0);
    assert_int_equal(create_below("link"), 0); /* the link itself is replaced */
    assert_string_equal(content(in_folder("victim"), &b), "safe");
    assert_true(is_there(in_folder("victim")));
}

static int extend_below(const char *path, off_t offset, const char *text)
{
    hy_cleanup_close int fd = hy_extend_below(folder, path, 0600, offset);

    return fd < 0 ? fd : hy_write_all(fd, text, strlen(text));
}

static void test_a_file_below_goes_on_where_it_is_told_to(void **state)
{
    hy_cleanup_buf struct hy_buf b;

    (void)state;
    hy_buf_init(&b, 100);
    assert_int_equal(hy_file_write(in_folder("a"), "0123456789", 10, 0600), 0);
    assert_int_equal(symlink("a", in_folder("link")), 0);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(extend_below("a", 4, "x"), 0);
    assert_string_equal(content(in_folder("a"), &b), "0123x");
    assert_int_equal(extend_below("a", 5, "yz"), 0);
    assert_string_equal(content(in_folder("a"), &b), "0123xyz");
    assert_int_not_equal(extend_below("link", 1, "evil"), 0);
    assert_int_not_equal(extend_below("pipe", 1, "evil"), 0);
    assert_int_not_equal(extend_below("../a", 1, "evil"), 0);
    assert_int_equal(extend_below("new/one", 0, "new"), 0);
    assert_string_equal(content(in_folder("new/one"), &b), "new");
    assert_string_equal(content(in_folder("a"), &b), "0123xyz");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_file_comes_back_as_it_was_written),
        IN_FOLDER(test_file_read_holds_the_buffers_maximum),
        IN_FOLDER(test_file_read_says_why_it_cannot),
        IN_FOLDER(test_file_write_does_not_follow_what_lies_in_its_way),
        IN_FOLDER(test_file_write_is_all_or_nothing_whatever_fails),
        cmocka_unit_test(test_write_all_goes_on_after_short_writes),
        cmocka_unit_test(test_write_all_says_that_the_disk_is_full),
        IN_FOLDER(test_mkdirs_makes_all_that_is_missing_and_nothing_twice),
        IN_FOLDER(test_mkdirs_says_what_is_in_the_way),
        IN_FOLDER(test_remove_tree_never_goes_through_a_link),
        IN_FOLDER(test_remove_tree_of_nothing_is_fine),
        IN_FOLDER(test_a_file_below_goes_on_where_it_is_told_to),
        IN_FOLDER(test_folders_come_through_or_fail_cleanly_at_every_fault),
        cmocka_unit_test(test_path_join_puts_one_slash),
        IN_FOLDER(test_runtime_dir_is_the_users_alone),
        IN_FOLDER(test_runtime_dir_is_not_a_link_somebody_laid),
        IN_FOLDER(test_runtime_dir_has_a_sentence_for_every_fault),
        IN_FOLDER(test_a_path_below_never_leads_out),
        IN_FOLDER(test_a_path_below_follows_no_link),
    };

    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
