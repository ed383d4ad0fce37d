/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary directory for each test of fs, with short names for its files. */
#ifndef HY_TESTS_FS_FIXTURE_H
#define HY_TESTS_FS_FIXTURE_H

#include "support.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "fs/fs.h"

static char directory[] = "/tmp/hy_test_fs.XXXXXX";
static struct hy_err err;

static inline const char *at(const char *name)
{
    return hy_path_in(directory, name);
}

static inline int make_directory(void **state)
{
    (void)state;
    err = (struct hy_err){0};
    umask(022);
    strcpy(directory + strlen(directory) - 6, "XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static inline int remove_directory(void **state)
{
    (void)state;
    return hy_remove_tree(directory);
}

static inline void put(const char *name, const char *text)
{
    assert_int_equal(hy_file_write(at(name), text, strlen(text), 0644), 0);
}

static inline void make(const char *name)
{
    assert_int_equal(hy_mkdirs(at(name), 0755), 0);
}

static inline bool exists(const char *name)
{
    struct stat st;

    return lstat(at(name), &st) == 0;
}

static inline unsigned mode_of(const char *name)
{
    struct stat st;

    assert_int_equal(stat(at(name), &st), 0);
    return st.st_mode & 07777;
}

static inline void assert_content(const char *name, const char *text)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1 << 20);
    assert_int_equal(hy_file_read(at(name), &b), 0);
    assert_string_equal(hy_buf_cstr(&b), text);
}

static inline int add_name(void *arg, struct hy_fs_info *entry, struct hy_err *unused)
{
    (void)unused;
    hy_buf_printf(arg, "%s%s ", entry->name, entry->is_dir ? "/" : "");
    return 0;
}

/* The sorted names in a directory, including hidden ones: "a b/ ". */
static inline void assert_names(const char *name, const char *expected)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1 << 20);
    assert_int_equal(hy_fs_list(at(name), add_name, &b, &err), 0);
    assert_string_equal(hy_buf_cstr(&b), expected);
}

/* The call failed with this code, and its message contains `words`. */
static inline void assert_error(int rc, int code, const char *words)
{
    if (rc != code || !strstr(err.text, words))
        fail_msg("%d (%s) instead of %d with '%s'", rc, err.text, code, words);
    err = (struct hy_err){0};
}

#endif
