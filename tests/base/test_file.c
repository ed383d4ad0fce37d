/* SPDX-License-Identifier: Apache-2.0 */
/* base: files that are whole or not there, folders, and paths that lead nowhere else. */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

HY_TEST_WITH(test_file_comes_back_as_it_was_written, make_folder, remove_folder)
{
    hy_cleanup_buf struct hy_buf b;
    char bytes[10000];
    struct stat st;

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

HY_TEST_WITH(test_file_read_holds_the_buffers_maximum, make_folder, remove_folder)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 9);
    assert_int_equal(hy_file_write(in_folder("f"), "0123456789", 10, 0600), 0);
    assert_int_equal(hy_file_read(in_folder("f"), &b), -ENOBUFS);
    assert_int_equal(hy_file_read("/dev/zero", &b), -ENOBUFS);
}

HY_TEST_WITH(test_file_read_returns_the_errno, make_folder, remove_folder)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 100);
    assert_int_equal(hy_file_read(in_folder("missing"), &b), -ENOENT);
    assert_int_equal(hy_file_read(folder, &b), -EISDIR);
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_int_equal(hy_file_read(in_folder("fifo"), &b), 0); /* and does not wait for a writer */
    assert_int_equal(b.len, 0);
}

HY_TEST_WITH(test_file_write_does_not_follow_what_lies_in_its_way, make_folder, remove_folder)
{
    hy_cleanup_buf struct hy_buf b;
    char temporary[200];
    struct stat st;

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
HY_TEST_WITH(test_file_write_is_all_or_nothing_whatever_fails, make_folder, remove_folder)
{
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

HY_TEST(test_write_all_continues_after_short_writes)
{
    hy_cleanup_free char *sent = hy_calloc(1, 1 << 20);
    size_t got = 0;
    int fds[2], status;
    pid_t pid;

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

HY_TEST(test_write_all_reports_a_full_disk)
{
    hy_cleanup_close int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(hy_write_all(fd, "x", 1), -ENOSPC);
}

HY_TEST_WITH(test_mkdirs_makes_all_that_is_missing_and_nothing_twice, make_folder, remove_folder)
{
    assert_int_equal(hy_mkdirs(in_folder("a/b//c/"), 0700), 0);
    assert_true(is_there(in_folder("a/b/c")));
    assert_int_equal(hy_mkdirs(in_folder("a/b/c"), 0700), 0);
    assert_int_equal(hy_mkdirs("/", 0700), 0);
    assert_int_equal(hy_mkdirs(".", 0700), 0);
}

HY_TEST_WITH(test_mkdirs_reports_files_in_the_path, make_folder, remove_folder)
{
    assert_int_equal(hy_file_write(in_folder("f"), "", 0, 0600), 0);
    assert_int_equal(hy_mkdirs(in_folder("f"), 0700), -ENOTDIR);
    assert_int_equal(hy_mkdirs(in_folder("f/g"), 0700), -ENOTDIR);
    assert_int_equal(hy_mkdirs(in_folder("f/g/h"), 0700), -ENOTDIR);
    assert_int_equal(hy_mkdirs("", 0700), -ENOENT);
}

HY_TEST_WITH(test_remove_tree_never_follows_a_link, make_folder, remove_folder)
{
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

/* A tree whose folder 'a' has `count` files, beside another folder with files of the same names. */
static void make_files(const char *path, int count)
{
    assert_int_equal(hy_mkdirs(path, 0700), 0);
    for (int i = 0; i < count; i++) {
        char name[300];

        snprintf(name, sizeof name, "%s/f%d", path, i);
        close(open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
}

static int count_files(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int count = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        count += entry->d_name[0] == 'f';
    closedir(dir);
    return count;
}

/* hy_remove_tree is linked against these: at its n-th removal somebody moves names about. */
static char swapped[3][100]; /* the first goes to the third, and the second takes its place */
static int swap_at;

static void swap_when_due(void)
{
    if (swap_at == 0 || --swap_at > 0 || rename(swapped[0], swapped[2]) < 0) /* 'a' may be gone already */
        return;
    if (rename(swapped[1], swapped[0]) < 0)
        abort();
}

int unlinkat(int dir, const char *name, int flags)
{
    swap_when_due();
    return (int)syscall(SYS_unlinkat, dir, name, flags);
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

HY_TEST_WITH(test_remove_tree_is_not_led_out_by_a_link_that_is_swapped_in, make_folder, remove_folder)
{
    snprintf(swapped[0], sizeof swapped[0], "%s/tree/a", folder);
    snprintf(swapped[1], sizeof swapped[1], "%s/link", folder);
    snprintf(swapped[2], sizeof swapped[2], "%s/away", folder);
    make_files(in_folder("outside"), 10);
    for (int i = 1; i <= 32; i++) { /* before 'a' is opened, within it, and after it */
        make_files(in_folder("tree"), 10);
        make_files(swapped[0], 10);
        assert_int_equal(symlink(in_folder("outside"), swapped[1]), 0);
        swap_at = i;
        hy_remove_tree(in_folder("tree")); /* it may fail, when what it is about to remove is not there */
        swap_at = 0;
        assert_int_equal(count_files(in_folder("outside")), 10);
        assert_int_equal(hy_remove_tree(in_folder("tree")), 0);
        assert_int_equal(hy_remove_tree(swapped[1]), 0);
        assert_int_equal(hy_remove_tree(swapped[2]), 0);
    }
}

HY_TEST_WITH(test_remove_tree_at_removes_only_what_was_opened, make_folder, remove_folder)
{
    int above = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC), fd;

    make_files(in_folder("tree"), 3);
    make_files(in_folder("other"), 3);
    fd = open(in_folder("tree"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(rename(in_folder("tree"), in_folder("away")), 0);
    assert_int_equal(rename(in_folder("other"), in_folder("tree")), 0);
    assert_int_equal(hy_remove_tree_at(above, "tree", fd), -ESTALE);
    assert_int_equal(count_files(in_folder("tree")), 3);
    assert_int_equal(hy_remove_tree_at(above, "away", fd), 0);
    assert_false(is_there(in_folder("away")));
    close(fd);
    close(above);
}

/* In a child, for its limits. */
static int remove_deep(void)
{
    struct rlimit few = {.rlim_cur = 40, .rlim_max = 40}, small = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), next;

    for (int i = 0; i < 5000; i++, fd = next) {
        if (mkdirat(fd, i ? "d" : "tree", 0700) < 0 || (i % 500 == 1 && mkdirat(fd, "beside", 0700) < 0))
            return 1;
        next = openat(fd, i ? "d" : "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        if (next < 0)
            return 2;
    }
    close(fd);
    if (setrlimit(RLIMIT_NOFILE, &few) < 0 || setrlimit(RLIMIT_STACK, &small) < 0)
        return 3;
    return hy_remove_tree(in_folder("tree")) == 0 && !is_there(in_folder("tree")) ? 0 : 4;
}

HY_TEST_WITH(test_remove_tree_has_no_depth_limit, make_folder, remove_folder)
{
    pid_t pid = fork();
    int status;

    if (pid == 0)
        _exit(remove_deep());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int remove_with_mount(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", in_folder("tree/a"), "tmpfs", 0, NULL) < 0)
        return 1;
    make_files(in_folder("tree/a"), 3);
    return hy_remove_tree(in_folder("tree")) == -EXDEV && count_files(in_folder("tree/a")) == 3 ? 0 : 2;
}

HY_TEST_WITH(test_remove_tree_leaves_what_is_mounted_there, make_folder, remove_folder)
{
    pid_t pid;
    int status;

    hy_need_root("to mount a file system");
    assert_int_equal(hy_mkdirs(in_folder("tree/a"), 0700), 0);
    pid = fork();
    if (pid == 0)
        _exit(remove_with_mount());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

HY_TEST_WITH(test_remove_tree_of_nothing_is_fine, make_folder, remove_folder)
{
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

HY_TEST_WITH(test_directories_succeed_or_fail_cleanly_at_every_fault, make_folder, remove_folder)
{
    hy_each_fault(HY_SEAM_ALLOC, make_and_remove, NULL);
    hy_each_fault(HY_SEAM_SYS, make_and_remove, NULL);
    assert_int_equal(make_and_remove(NULL), 0);
}

HY_TEST(test_path_join_puts_one_slash)
{
    hy_cleanup_free char *a = hy_path_join("a", "b"), *b = hy_path_join("/", "b"), *c = hy_path_join("a/", "b");

    assert_string_equal(a, "a/b");
    assert_string_equal(b, "/b");
    assert_string_equal(c, "a/b");
}

HY_TEST_WITH(test_runtime_dir_is_the_users_alone, make_folder, remove_folder)
{
    hy_cleanup_free char *path = NULL, *again = NULL, *refused = NULL;
    struct hy_err err = {0};
    struct stat st;

    setenv("XDG_RUNTIME_DIR", folder, 1);
    path = hy_runtime_dir(&err);
    assert_string_equal(path, in_folder("hopyard"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);

    assert_int_equal(chmod(path, 0755), 0);
    again = hy_runtime_dir(&err);
    assert_string_equal(again, path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);

    assert_int_equal(chmod(path, 0722), 0);
    refused = hy_runtime_dir(&err);
    assert_null(refused);
    assert_int_equal(err.code, -EPERM);
    assert_non_null(strstr(err.text, path));
    unsetenv("XDG_RUNTIME_DIR");
}

HY_TEST_WITH(test_runtime_dir_is_not_a_link_somebody_laid, make_folder, remove_folder)
{
    hy_cleanup_free char *refused = NULL;
    struct hy_err err = {0};

    assert_int_equal(mkdir(in_folder("elsewhere"), 0700), 0);
    assert_int_equal(symlink("elsewhere", in_folder("hopyard")), 0);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    refused = hy_runtime_dir(&err);
    unsetenv("XDG_RUNTIME_DIR");
    assert_null(refused);
    assert_int_equal(err.code, -EPERM);
}

/* Not even by root: it would open its sockets in a folder of that user's. */
HY_TEST_WITH(test_runtime_dir_of_another_user_is_refused, make_folder, remove_folder)
{
    hy_cleanup_free char *refused = NULL;
    struct hy_err err = {0};

    hy_need_root("to give files away");
    assert_int_equal(mkdir(in_folder("hopyard"), 0700), 0);
    assert_int_equal(chown(in_folder("hopyard"), 65534, 65534), 0);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    refused = hy_runtime_dir(&err);
    unsetenv("XDG_RUNTIME_DIR");
    assert_null(refused);
    assert_int_equal(err.code, -EPERM);
    assert_non_null(strstr(err.text, "belongs to another user (user ID 65534)"));
}

static int find_the_runtime_dir(void *arg)
{
    struct hy_err err = {0};
    hy_cleanup_free char *path = hy_runtime_dir(&err);

    (void)arg;
    assert_true(path ? err.code == 0 : err.code < 0 && err.text[0]);
    return path ? 0 : err.code;
}

HY_TEST_WITH(test_runtime_dir_has_a_message_for_every_fault, make_folder, remove_folder)
{
    setenv("XDG_RUNTIME_DIR", in_folder("not/there"), 1);
    hy_each_fault(HY_SEAM_ALLOC, find_the_runtime_dir, NULL);
    hy_each_fault(HY_SEAM_SYS, find_the_runtime_dir, NULL);
    unsetenv("XDG_RUNTIME_DIR");
}

static int create_below(const char *path)
{
    hy_cleanup_close int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    hy_cleanup_close int fd = hy_create_below(dir, path, 0600);

    return fd < 0 ? fd : 0;
}

HY_TEST_WITH(test_a_path_below_never_leads_out, make_folder, remove_folder)
{
    static const char *const inside[] = {"a", "b/c", "..a", "a..", ".a/b", "d/...", "a b/\n"};
    static const char *const outside[] = {"",   "/",    "/a",   "a/",     "a//b", ".",
                                          "..", "../a", "a/..", "a/../b", "./a",  "a/./b"};

    for (size_t i = 0; i < HY_COUNT(inside); i++) {
        assert_int_equal(create_below(inside[i]), 0);
        assert_true(is_there(in_folder(inside[i])));
    }
    for (size_t i = 0; i < HY_COUNT(outside); i++)
        assert_int_not_equal(create_below(outside[i]), 0);
}

HY_TEST_WITH(test_a_path_below_follows_no_link, make_folder, remove_folder)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 100);
    assert_int_equal(hy_file_write(in_folder("victim"), "safe", 4, 0600), 0);
    assert_int_equal(symlink("/tmp", in_folder("out")), 0);
    assert_int_equal(symlink("victim", in_folder("link")), 0);
    assert_int_not_equal(create_below("out/hy_test_below"), 0);
    assert_int_equal(create_below("link"), 0); /* the link itself is replaced */
    assert_string_equal(content(in_folder("victim"), &b), "safe");
    assert_true(is_there(in_folder("victim")));
}

static int open_below(const char *path)
{
    hy_cleanup_close int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    hy_cleanup_close int fd = hy_open_below(dir, path, O_RDONLY);

    return fd < 0 ? fd : 0;
}

HY_TEST_WITH(test_open_below_opens_existing_files_and_no_links, make_folder, remove_folder)
{
    static const char *const outside[] = {"", "/", "/a", "a/", "a//f", ".", "..", "a/..", "a/../a/f", "./a"};

    assert_int_equal(mkdir(in_folder("a"), 0700), 0);
    assert_int_equal(hy_file_write(in_folder("a/f"), "x", 1, 0600), 0);
    assert_int_equal(symlink("a", in_folder("link")) | symlink("f", in_folder("a/link")), 0);
    assert_int_equal(open_below("a/f"), 0);
    assert_int_equal(open_below("a"), 0);
    assert_int_equal(open_below("a/g"), -ENOENT);
    assert_int_equal(open_below("a/f/g"), -ENOTDIR);
    assert_int_equal(open_below("a/link"), -ELOOP);
    assert_int_not_equal(open_below("link/f"), 0);
    for (size_t i = 0; i < HY_COUNT(outside); i++)
        assert_int_equal(open_below(outside[i]), -EINVAL);
}

static int extend_below(const char *path, off_t offset, const char *text)
{
    hy_cleanup_close int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    hy_cleanup_close int fd = hy_extend_below(dir, path, offset);

    return fd < 0 ? fd : hy_write_all(fd, text, strlen(text));
}

HY_TEST_WITH(test_extend_below_continues_at_the_offset, make_folder, remove_folder)
{
    hy_cleanup_buf struct hy_buf b;

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
    assert_int_equal(extend_below("new/one", 1, "new"), -ENOENT);
    assert_false(is_there(in_folder("new")));
    assert_string_equal(content(in_folder("a"), &b), "0123xyz");
}

static int own_folder(const char *dir, const char *path, struct hy_err *err)
{
    hy_cleanup_close int fd = hy_open_own_dir(in_folder(dir), path, err);

    return fd < 0 ? fd : 0;
}

static mode_t mode_of(const char *name)
{
    struct stat st;

    assert_int_equal(stat(in_folder(name), &st), 0);
    return st.st_mode & 0777;
}

HY_TEST_WITH(test_an_own_dir_is_at_most_readable_by_others, make_folder, remove_folder)
{
    mode_t before = umask(0);

    assert_int_equal(own_folder("run", "a/b", NULL), 0);
    umask(before);
    assert_int_equal(own_folder("run", "a/b", NULL), 0); /* it is there already */
    assert_int_equal(mode_of("run"), 0755);
    assert_int_equal(mode_of("run/a"), 0755);
    assert_int_equal(mode_of("run/a/b"), 0755);
}

HY_TEST_WITH(test_an_own_dir_is_neither_a_link_nor_a_file, make_folder, remove_folder)
{
    struct hy_err err = {0};

    assert_int_equal(mkdir(in_folder("run"), 0755), 0);
    assert_int_equal(mkdir(in_folder("elsewhere"), 0755), 0);
    assert_int_equal(symlink("../elsewhere", in_folder("run/link")), 0);
    assert_int_equal(symlink("run", in_folder("other")), 0);
    assert_int_equal(hy_file_write(in_folder("run/file"), "x", 1, 0600), 0);
    assert_int_equal(own_folder("run", "link", &err), -ENOTDIR);
    assert_non_null(strstr(err.text, "/run/link' is not used, since it or its parent is a symbolic link"));
    assert_int_equal(own_folder("run", "link/a", NULL), -ENOTDIR);
    assert_int_equal(own_folder("run", "file", NULL), -ENOTDIR);
    assert_int_equal(own_folder("other", "a", NULL), -ENOTDIR);
    assert_int_equal(own_folder("run", "../elsewhere", NULL), -EINVAL);
    assert_false(is_there(in_folder("elsewhere/a")));
}

/* As the user 65534. */
static void find_own_folders(void)
{
    struct hy_err err = {0};

    if (setuid(65534) != 0 || own_folder("run", "mine", NULL) != 0 || own_folder("run", "theirs", &err) != -EPERM ||
        !strstr(err.text, "belongs to another user (user ID 65533)"))
        _exit(1);
    _exit(own_folder("run", "theirs/a", NULL) == -EPERM && own_folder("their_run", "a", NULL) == -EPERM ? 0 : 2);
}

HY_TEST_WITH(test_an_own_dir_does_not_belong_to_another_user, make_folder, remove_folder)
{
    int status = -1;
    pid_t pid;

    hy_need_root("to become another user");
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(mkdir(in_folder("run"), 0777), 0);
    assert_int_equal(chown(in_folder("run"), 65534, 65534), 0);
    assert_int_equal(mkdir(in_folder("run/theirs"), 0777) | chmod(in_folder("run/theirs"), 0777), 0);
    assert_int_equal(chown(in_folder("run/theirs"), 65533, 65533), 0);
    assert_int_equal(mkdir(in_folder("their_run"), 0777) | chmod(in_folder("their_run"), 0777), 0);
    assert_int_equal(chown(in_folder("their_run"), 65533, 65533), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        find_own_folders();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(own_folder("run", "mine", NULL), 0); /* root, in a run of that user */
    assert_int_equal(own_folder("run", "theirs", NULL), -EPERM);
    assert_false(is_there(in_folder("their_run/a")));
}

static int make_own_folder(void *arg)
{
    (void)arg;
    return own_folder("run", "a/b", NULL);
}

HY_TEST_WITH(test_an_own_dir_fails_cleanly, make_folder, remove_folder)
{
    hy_each_fault(HY_SEAM_ALLOC, make_own_folder, NULL);
    hy_each_fault(HY_SEAM_SYS, make_own_folder, NULL);
}

#define BLOCK (1u << 20)

static int open_sparse(const char *name, const unsigned *blocks, size_t n, unsigned total)
{
    int fd = open(in_folder(name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pwrite(fd, "x", 1, (off_t)blocks[i] * BLOCK), 1);
    assert_int_equal(ftruncate(fd, (off_t)total * BLOCK), 0);
    return fd;
}

HY_TEST_WITH(test_only_the_data_of_a_sparse_file_is_found, make_folder, remove_folder)
{
    static const unsigned blocks[] = {2, 3, 7};
    hy_cleanup_close int fd = open_sparse("sparse", blocks, HY_COUNT(blocks), 16);
    uint64_t at = 0, start, end, bytes = 0;

    while (hy_next_data(fd, at, 16 * BLOCK, 65536, &start, &end)) {
        assert_true(start >= at && end > start && end <= 16 * BLOCK);
        bytes += end - start;
        at = end;
    }
    if (bytes == 16 * BLOCK)
        hy_skip("this file system stores holes as data");
    assert_true(bytes < BLOCK && at > 7 * BLOCK && at < 8 * BLOCK);
    assert_int_equal(hy_next_data(fd, 0, 16 * BLOCK, 4 * BLOCK, &start, &end), 1);
    assert_true(start == 0 && end > 7 * BLOCK && end < 8 * BLOCK); /* shorter holes count as data */
    assert_int_equal(hy_next_data(fd, 0, 2 * BLOCK, 1, &start, &end), 0);
    assert_int_equal(hy_next_data(fd, 5, 5, 1, &start, &end), 0);
}

static int find_data(void *arg)
{
    uint64_t start = 0, end = 0;

    assert_int_equal(hy_next_data(*(int *)arg, 0, 4 * BLOCK, 1, &start, &end), 1);
    assert_true(start < end && end <= 4 * BLOCK);
    return 0;
}

HY_TEST_WITH(test_without_knowledge_of_holes_all_is_data, make_folder, remove_folder)
{
    static const unsigned blocks[] = {1};
    hy_cleanup_close int fd = open_sparse("sparse", blocks, 1, 4);
    int ends[2];
    uint64_t start, end;

    hy_each_fault(HY_SEAM_SYS, find_data, &fd);
    assert_int_equal(pipe(ends), 0); /* cannot seek at all */
    assert_int_equal(hy_next_data(ends[0], 10, 100, 1, &start, &end), 1);
    assert_true(start == 10 && end == 100);
    close(ends[0]);
    close(ends[1]);
}
