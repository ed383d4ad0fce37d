/* SPDX-License-Identifier: Apache-2.0 */
/* fs: walks, copies and patterns over endless trees, as from a faulty server. */
#include "support.h"

#include <errno.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "fs/fs.h"

static char directory[] = "/tmp/hy_test_walk.XXXXXX";
static struct hy_err err;

static const char *at(const char *name)
{
    return hy_path_in(directory, name);
}

static int make_directory(void **state)
{
    (void)state;
    err = (struct hy_err){0};
    strcpy(directory + strlen(directory) - 6, "XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return hy_remove_tree(directory);
}

static void put(const char *name)
{
    assert_int_equal(hy_file_write(at(name), "", 0, 0644), 0);
}

static void make(const char *name)
{
    assert_int_equal(hy_mkdirs(at(name), 0755), 0);
}

/* The call failed with this code, and its message contains `words`. */
static void assert_error(int rc, int code, const char *words)
{
    if (rc != code || !strstr(err.text, words))
        fail_msg("%d (%s) instead of %d with '%s'", rc, err.text, code, words);
    err = (struct hy_err){0};
}

static struct { /* the contents of each directory of endless:// */
    size_t files, directories;
    size_t name_length, owner_length;
    size_t listed; /* so far */
} endless;

/* Text followed by n x: names that begin with a number have short common prefixes. */
static char *padded(const char *text, size_t length)
{
    const size_t n = strlen(text), all = n < length ? length : n;
    char *longer = hy_reallocarray(NULL, all + 1, 1);

    assert_non_null(longer);
    memset(longer, 'x', all);
    memcpy(longer, text, n);
    longer[all] = '\0';
    return longer;
}

static int list_endless(const char *url, hy_fs_visit *visit, void *arg, struct hy_err *e)
{
    int rc = 0;

    (void)url;
    for (size_t i = 0; i < endless.directories + endless.files && rc == 0; i++) {
        hy_cleanup_free char *number = hy_asprintf("%06zu", i);
        struct hy_fs_info info = {.name = padded(number, endless.name_length),
                                  .owner = padded("a", endless.owner_length),
                                  .group = hy_strdup("b"),
                                  .is_dir = i < endless.directories};

        endless.listed++;
        rc = visit(arg, &info, e);
        hy_fs_info_done(&info);
    }
    return rc;
}

static int stat_endless(const char *url, struct hy_fs_info *ret, struct hy_err *e)
{
    (void)e;
    *ret =
        (struct hy_fs_info){.name = hy_strdup(url), .owner = hy_strdup("a"), .group = hy_strdup("b"), .is_dir = true};
    return 0;
}

static const struct hy_fs_backend endless_fs = {.list = list_endless, .stat = stat_endless};

static int count_visits(void *arg, const char *path, struct hy_fs_info *entry, struct hy_err *e)
{
    (void)path;
    (void)entry;
    (void)e;
    ++*(size_t *)arg;
    return 0;
}

static int walk_endless(size_t directories, size_t files, size_t name_length, size_t owner_length, size_t *ret_visits)
{
    const struct hy_fs_walk how = {.visit = count_visits, .arg = ret_visits};

    hy_fs_add("endless", &endless_fs);
    endless = (typeof(endless)){
        .directories = directories, .files = files, .name_length = name_length, .owner_length = owner_length};
    *ret_visits = 0;
    return hy_fs_walk("endless:///top", &how, &err);
}

HY_TEST(test_walk_limits_depth_and_memory)
{
    size_t visits;

    assert_error(walk_endless(1, 0, 1, 1, &visits), -ENAMETOOLONG, "nested more than 1000 levels deep below endless:");
    assert_int_equal(visits, 1000);
    assert_error(walk_endless(1, 0, 100, 1, &visits), -ENAMETOOLONG, "a path is longer than 32768 bytes below");
    assert_error(walk_endless(1, 10, 1, 1 << 20, &visits), -E2BIG, "too many entries");
    assert_true(visits < 40);
    assert_int_equal(walk_endless(0, 400, 1, 1 << 20, &visits), 0); /* files without directories are not held */
    assert_int_equal(visits, 400);
}

static int keep_out(void *arg, const char *path, struct hy_fs_info *entry, struct hy_err *e)
{
    hy_buf_printf(arg, "%s%s ", path, entry->is_dir ? "/" : "");
    if (strcmp(path, "b") == 0)
        entry->is_dir = false;
    (void)e;
    return 0;
}

HY_TEST_WITH(test_walk_is_sorted_and_enters_directories_at_once, make_directory, remove_directory)
{
    hy_cleanup_buf struct hy_buf b;
    const struct hy_fs_walk how = {.visit = keep_out, .arg = &b};

    hy_buf_init(&b, 1000);
    make("a/x");
    make("b/y");
    make("c");
    put("a/f");
    put("a/x/g");
    put("0");
    put("d");
    assert_int_equal(symlink("a", at("link")), 0);
    assert_int_equal(hy_fs_walk(at(""), &how, &err), 0);
    assert_string_equal(hy_buf_cstr(&b), "0 a/ a/f a/x/ a/x/g b/ c/ d link/ ");
}

HY_TEST_WITH(test_copies_and_patterns_limit_memory, make_directory, remove_directory)
{
    hy_fs_add("endless", &endless_fs);
    endless = (typeof(endless)){.files = 1000000, .name_length = 30000};
    assert_error(hy_fs_copy("endless:///top", at("x"), &(struct hy_fs_copy){.recursive = true}, &err), -E2BIG,
                 "has too many files to copy at once");
    assert_true(endless.listed < 1000000);
    assert_int_equal(access(at("x"), F_OK), -1);
    endless = (typeof(endless)){.files = 1000000, .owner_length = 1 << 20};
    assert_error(hy_fs_glob("endless:///*", NULL, NULL, &err), -E2BIG, "matches too many names");
    assert_true(endless.listed < 1000);
}

/* ---- local files ---------------------------------------------------------------- */

static int fail_below(void *arg, struct hy_err *e)
{
    ++*(int *)arg;
    assert_int_equal(e->code, -EACCES);
    return 0;
}

static int visit_any(void *arg, const char *path, struct hy_fs_info *entry, struct hy_err *e)
{
    (void)arg;
    (void)path;
    (void)entry;
    (void)e;
    return 0;
}

static int list_refused(const char *url, hy_fs_visit *visit, void *arg, struct hy_err *e)
{
    struct hy_fs_info info = {.name = hy_strdup("d"), .owner = hy_strdup("a"), .group = hy_strdup("b"), .is_dir = true};
    const int code = strstr(url, "lie") ? -EPROTO : -EACCES;
    const int rc = strstr(url, "/d") ? hy_err_set(e, code, "no") : visit(arg, &info, e);

    hy_fs_info_done(&info);
    return rc;
}

static const struct hy_fs_backend refusing_fs = {.list = list_refused};

HY_TEST(test_walk_continues_after_an_unreadable_directory_but_not_after_an_invalid_response)
{
    int failed = 0;
    const struct hy_fs_walk how = {.visit = visit_any, .failed = fail_below, .arg = &failed};
    const struct hy_fs_walk strict = {.visit = visit_any};

    hy_fs_add("refusing", &refusing_fs);
    assert_int_equal(hy_fs_walk("refusing:///top", &how, &err), 0);
    assert_int_equal(failed, 1);
    assert_error(hy_fs_walk("refusing:///top", &strict, &err), -EACCES, "no");
    assert_error(hy_fs_walk("refusing:///lie", &how, &err), -EPROTO, "no");
    assert_int_equal(failed, 1);
}

static int walk_here(void)
{
    hy_cleanup_buf struct hy_buf b;
    const struct hy_fs_walk how = {.visit = keep_out, .arg = &b};

    hy_buf_init(&b, 1000);
    return hy_fs_walk(directory, &how, &err);
}

HY_TEST_WITH(test_walk_fails_cleanly, make_directory, remove_directory)
{
    make("a/b/c");
    put("a/f");
    put("a/b/g");
    for (int seam = 0; seam < 2; seam++) {
        long n = 0, passed;

        do {
            int rc;

            hy_fault_arm(seam ? HY_SEAM_SYS : HY_SEAM_ALLOC, ++n);
            rc = walk_here();
            passed = hy_fault_passed(seam ? HY_SEAM_SYS : HY_SEAM_ALLOC);
            hy_fault_arm(seam ? HY_SEAM_SYS : HY_SEAM_ALLOC, 0);
            if (rc < 0)
                assert_true(err.code == rc && err.text[0]);
        } while (passed >= n && n < HY_FAULT_POSITIONS);
        assert_in_range(n, 4, HY_FAULT_POSITIONS - 1);
    }
}
