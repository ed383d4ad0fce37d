/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors (fs/mirror.c), from one local directory to another. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "fs/fs.h"

struct bench {
    char root[32];
    char here[64], there[64];
};

static int set_up(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));

    strcpy(b->root, "/tmp/hopyard-test-XXXXXX");
    assert_non_null(mkdtemp(b->root));
    snprintf(b->here, sizeof(b->here), "%s/here", b->root);
    snprintf(b->there, sizeof(b->there), "%s/there", b->root);
    assert_int_equal(mkdir(b->here, 0755), 0);
    assert_int_equal(mkdir(b->there, 0755), 0);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;

    assert_int_equal(hy_remove_tree(b->root), 0);
    free(b);
    return 0;
}

static void append(const struct bench *b, const char *name, const char *text)
{
    int fd = open(hy_path_in(b->here, name), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(hy_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static bool is_there(const struct bench *b, const char *name)
{
    return access(hy_path_in(b->there, name), F_OK) == 0;
}

static void check_mirror(const struct bench *b, const char *name, const char *text)
{
    struct hy_buf bytes;

    hy_buf_init(&bytes, 1 << 20);
    assert_int_equal(hy_file_read(hy_path_in(b->there, name), &bytes), 0);
    assert_string_equal(hy_buf_cstr(&bytes), text);
    hy_buf_done(&bytes);
}

static void sync_pass(struct hy_fs_mirror *m, bool is_last)
{
    struct hy_err err = {0};

    if (hy_fs_mirror_sync(m, is_last, &err) < 0)
        fail_msg("%s", err.text);
}

HY_TEST_WITH(test_growing_files_are_appended_to, set_up, tear_down)
{
    const struct bench *b = *state;
    struct hy_fs_mirror *m = hy_fs_mirror_new(b->here, b->there, NULL);

    assert_int_equal(mkdir(hy_path_in(b->here, "a"), 0755), 0);
    append(b, "a/events.out.tfevents.1", "one ");
    append(b, "own.log", "line\n");
    sync_pass(m, false);
    check_mirror(b, "a/events.out.tfevents.1", "one ");
    append(b, "a/events.out.tfevents.1", "two");
    sync_pass(m, false);
    check_mirror(b, "a/events.out.tfevents.1", "one two");
    assert_int_equal(unlink(hy_path_in(b->here, "own.log")), 0);
    append(b, "own.log", "another\n"); /* another file of the same name */
    sync_pass(m, true);
    check_mirror(b, "own.log", "another\n");
    hy_fs_mirror_free(m);
}

/* Holes count, too: the mirror has none. */
HY_TEST_WITH(test_no_more_than_the_limit_is_copied, set_up, tear_down)
{
    const struct bench *b = *state;
    struct hy_fs_mirror *m = hy_fs_mirror_new(b->here, b->there, NULL);
    struct hy_err err = {0};
    int fd;

    hy_fs_mirror_limit(m, 1 << 20);
    append(b, "small", "small");
    sync_pass(m, true);
    check_mirror(b, "small", "small");
    fd = open(hy_path_in(b->here, "sparse"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
    assert_int_equal(hy_fs_mirror_sync(m, true, &err), -EFBIG);
    assert_non_null(strstr(err.text, "has more bytes than may be copied (1048576)"));
    assert_false(is_there(b, "sparse"));
    assert_int_equal(ftruncate(fd, 100), 0);
    sync_pass(m, true);
    assert_true(is_there(b, "sparse"));
    close(fd);
    hy_fs_mirror_free(m);
}

HY_TEST_WITH(test_other_files_are_copied_when_unchanged_and_at_the_end, set_up, tear_down)
{
    const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    const struct bench *b = *state;
    struct hy_fs_mirror *m = hy_fs_mirror_new(b->here, b->there, NULL);

    append(b, "model", "half");
    append(b, "old", "whole");
    assert_int_equal(utimensat(AT_FDCWD, hy_path_in(b->here, "old"), long_ago, 0), 0);
    sync_pass(m, false);
    assert_false(is_there(b, "model"));
    check_mirror(b, "old", "whole");
    append(b, "model", " and half");
    append(b, "old", " again");
    append(b, "empty", "");
    append(b, "empty.log", "");
    sync_pass(m, true);
    check_mirror(b, "model", "half and half");
    check_mirror(b, "old", "whole again");
    check_mirror(b, "empty", "");
    check_mirror(b, "empty.log", "");
    sync_pass(m, true); /* a second last pass is harmless */
    check_mirror(b, "model", "half and half");
    hy_fs_mirror_free(m);
}

static bool is_secret(const char *path)
{
    return strcmp(path, "sub/key") == 0;
}

HY_TEST_WITH(test_skipped_files_are_not_mirrored, set_up, tear_down)
{
    const struct bench *b = *state;
    struct hy_fs_mirror *m = hy_fs_mirror_new(b->here, b->there, is_secret);

    assert_int_equal(mkdir(hy_path_in(b->here, "sub"), 0755), 0);
    append(b, "sub/key", "secret");
    append(b, "key", "no secret");
    assert_int_equal(symlink("/etc/passwd", hy_path_in(b->here, "link")), 0);
    sync_pass(m, true);
    assert_true(is_there(b, "key") && is_there(b, "sub"));
    assert_false(is_there(b, "sub/key") || is_there(b, "link"));
    hy_fs_mirror_free(m);
}

HY_TEST_WITH(test_more_files_grow_than_stay_open, set_up, tear_down)
{
    const struct bench *b = *state;
    struct hy_fs_mirror *m = hy_fs_mirror_new(b->here, b->there, NULL);
    char name[32];

    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 50; i++) {
            snprintf(name, sizeof(name), "%d.log", i);
            append(b, name, "x");
        }
        sync_pass(m, turn == 2);
    }
    check_mirror(b, "0.log", "xxx");
    check_mirror(b, "49.log", "xxx");
    hy_fs_mirror_free(m);
}

/* The mirror is missing, or of another type. */
HY_TEST_WITH(test_an_error_is_reported_and_repaired_by_the_next_sync, set_up, tear_down)
{
    const struct bench *b = *state;
    struct hy_fs_mirror *m = hy_fs_mirror_new(b->here, b->there, NULL);
    struct hy_err err = {0};

    assert_int_equal(mkdir(hy_path_in(b->here, "sub"), 0755), 0);
    append(b, "sub/a.log", "one ");
    append(b, "b.log", "beside");
    assert_int_equal(hy_file_write(hy_path_in(b->there, "sub"), "in the way", 10, 0644), 0);
    assert_true(hy_fs_mirror_sync(m, false, &err) < 0);
    assert_non_null(strstr(err.text, "/there/sub"));
    check_mirror(b, "b.log", "beside"); /* other files are not affected */
    assert_int_equal(unlink(hy_path_in(b->there, "sub")), 0);
    append(b, "sub/a.log", "two");
    sync_pass(m, true);
    check_mirror(b, "sub/a.log", "one two");
    hy_fs_mirror_free(m);
}

static int mirror_all(void *arg)
{
    const struct bench *b = arg;
    struct hy_fs_mirror *m = hy_fs_mirror_new(b->here, b->there, NULL);
    struct hy_err err = {0};
    int rc = m ? hy_fs_mirror_sync(m, true, &err) : -ENOMEM;

    if (rc < 0 && m) { /* the next sync repairs any failure */
        hy_fault_arm(HY_SEAM_ALLOC, 0);
        hy_fault_arm(HY_SEAM_SYS, 0);
        if (hy_fs_mirror_sync(m, true, &err) < 0)
            fail_msg("the second sync: %s", err.text);
    }
    hy_fs_mirror_free(m);
    if (m) {
        check_mirror(b, "a.log", "grows");
        check_mirror(b, "sub/whole", "whole");
    }
    assert_int_equal(hy_remove_tree(b->there), 0);
    assert_int_equal(mkdir(b->there, 0755), 0);
    return rc;
}

HY_TEST_WITH(test_too_deep_directories_are_reported_and_skipped, set_up, tear_down)
{
    const struct bench *b = *state;
    struct hy_fs_mirror *m = hy_fs_mirror_new(b->here, b->there, NULL);
    char path[300] = "d", file[310];
    struct hy_err err = {0};

    for (int i = 1; i < 64; i++)
        strcat(path, "/d");
    append(b, "first", "x");
    assert_int_equal(hy_mkdirs(hy_path_in(b->here, path), 0755), 0);
    snprintf(file, sizeof(file), "%s/f", path);
    append(b, file, "x");
    assert_int_equal(hy_fs_mirror_sync(m, true, &err), 0);
    check_mirror(b, file, "x");
    strcat(path, "/d");
    assert_int_equal(mkdir(hy_path_in(b->here, path), 0755), 0);
    append(b, "zlast", "x");
    assert_int_equal(hy_fs_mirror_sync(m, true, &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "nested more than 64 levels deep"));
    assert_true(is_there(b, "first") && is_there(b, "zlast"));
    hy_fs_mirror_free(m);
}

HY_TEST_WITH(test_no_fault_loses_data, set_up, tear_down)
{
    struct bench *b = *state;

    assert_int_equal(mkdir(hy_path_in(b->here, "sub"), 0755), 0);
    append(b, "a.log", "grows");
    append(b, "sub/whole", "whole");
    hy_each_fault(HY_SEAM_ALLOC, mirror_all, b);
}
