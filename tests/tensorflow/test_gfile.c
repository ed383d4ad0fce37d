/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorflow: the table of the file systems, called as TensorFlow calls it, on
 * local files. It tests what Python cannot: codes that tf.io.gfile hides, orders
 * of calls that it does not use, out of memory. e2e/test_gfile.py uses real
 * versions of TensorFlow and a real HDFS.
 */
#include "support.h"

#include <errno.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "tensorflow/files.h"

TF_InitPluginFn TF_InitPlugin;

struct TF_Status {
    TF_Code code;
    char text[700];
};

static char dir[] = "/tmp/hy_test_gfile.XXXXXX";
static TF_FilesystemPluginInfo info;
static const TF_FilesystemOps *fs;
static const TF_RandomAccessFileOps *reads;
static const TF_WritableFileOps *writes;
static const TF_Filesystem none;

static void set_status(TF_Status *status, TF_Code code, const char *text)
{
    status->code = code;
    snprintf(status->text, sizeof(status->text), "%s", text);
}

static const char *at(const char *name)
{
    return hy_path_in(dir, name);
}

static void free_plugin(void)
{
    for (size_t i = 0; i < info.num_schemes; i++) {
        info.plugin_memory_free(info.ops[i].scheme);
        info.plugin_memory_free(info.ops[i].filesystem_ops);
        info.plugin_memory_free(info.ops[i].random_access_file_ops);
        info.plugin_memory_free(info.ops[i].writable_file_ops);
    }
    info.plugin_memory_free(info.ops);
    info = (TF_FilesystemPluginInfo){0};
}

static int setup(void **state)
{
    (void)state;
    hy_tf.SetStatus = set_status;
    TF_InitPlugin(&info);
    fs = info.ops[0].filesystem_ops;
    reads = info.ops[0].random_access_file_ops;
    writes = info.ops[0].writable_file_ops;
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    free_plugin();
    return hy_remove_tree(dir);
}

/* The code of the call, which must set it. */
#define CODE(call)                                                                                                     \
    ({                                                                                                                 \
        TF_Status status_ = {.code = TF_INTERNAL}, *status = &status_;                                                 \
        call;                                                                                                          \
        if (status_.code != TF_OK)                                                                                     \
            assert_string_not_equal(status_.text, "");                                                                 \
        status_.code;                                                                                                  \
    })

static void put(const char *name, const char *text)
{
    assert_int_equal(hy_file_write(at(name), text, strlen(text), 0644), 0);
}

HY_TEST_WITH(test_both_schemes_are_registered_with_complete_tables, setup, teardown)
{
    assert_int_equal(info.num_schemes, 2);
    assert_string_equal(info.ops[0].scheme, "hdfs");
    assert_string_equal(info.ops[1].scheme, "hopsfs");
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(info.ops[i].filesystem_ops_size, sizeof(TF_FilesystemOps));
        assert_int_equal(info.ops[i].random_access_file_ops_size, sizeof(TF_RandomAccessFileOps));
        assert_int_equal(info.ops[i].writable_file_ops_size, sizeof(TF_WritableFileOps));
    }
}

HY_TEST_WITH(test_names_keep_scheme_and_host, setup, teardown)
{
    char *name = fs->translate_name(&none, "hdfs://host:8020/a/b");

    assert_string_equal(name, "hdfs://host:8020/a/b");
    info.plugin_memory_free(name);
}

HY_TEST_WITH(test_create_dir_needs_a_new_name_and_an_existing_parent, setup, teardown)
{
    assert_int_equal(CODE(fs->create_dir(&none, at("a/b"), status)), TF_NOT_FOUND);
    assert_int_equal(CODE(fs->create_dir(&none, at("a"), status)), TF_OK);
    assert_int_equal(CODE(fs->create_dir(&none, at("a"), status)), TF_ALREADY_EXISTS);
    assert_int_equal(CODE(fs->recursively_create_dir(&none, at("a/b/c"), status)), TF_OK);
    assert_int_equal(CODE(fs->recursively_create_dir(&none, at("a/b/c"), status)), TF_OK);
}

HY_TEST_WITH(test_undeleted_files_and_directories_are_counted, setup, teardown)
{
    uint64_t files = 7, dirs = 7;

    assert_int_equal(CODE(fs->delete_recursively(&none, at("a"), &files, &dirs, status)), TF_NOT_FOUND);
    assert_int_equal(files, 0);
    assert_int_equal(dirs, 1);
    assert_int_equal(CODE(fs->recursively_create_dir(&none, at("a/b"), status)), TF_OK);
    assert_int_equal(CODE(fs->delete_dir(&none, at("a"), status)), TF_FAILED_PRECONDITION);
    assert_int_equal(CODE(fs->delete_recursively(&none, at("a"), &files, &dirs, status)), TF_OK);
    assert_int_equal(files + dirs, 0);
    put("f", "x");
    assert_int_equal(CODE(fs->delete_dir(&none, at("f"), status)), TF_FAILED_PRECONDITION);
    assert_int_equal(CODE(fs->delete_file(&none, at("f"), status)), TF_OK);
}

HY_TEST_WITH(test_paths_below_a_file_do_not_exist, setup, teardown)
{
    TF_FileStatistics stats;

    put("f", "x");
    assert_int_equal(CODE(fs->path_exists(&none, at("f/g"), status)), TF_NOT_FOUND);
    assert_int_equal(CODE(fs->path_exists(&none, at("f"), status)), TF_OK);
    assert_int_equal(CODE(fs->stat(&none, at("f/g"), &stats, status)), TF_FAILED_PRECONDITION);
    assert_int_equal(CODE(fs->is_directory(&none, at("f"), status)), TF_FAILED_PRECONDITION);
    assert_int_equal(CODE(fs->is_directory(&none, dir, status)), TF_OK);
}

HY_TEST_WITH(test_reading_reports_the_end_of_the_file, setup, teardown)
{
    TF_RandomAccessFile file = {0};
    char bytes[16];

    put("f", "0123456789");
    assert_int_equal(CODE(fs->new_random_access_file(&none, at("f"), &file, status)), TF_OK);
    assert_int_equal(CODE(assert_int_equal(reads->read(&file, 2, 4, bytes, status), 4)), TF_OK);
    assert_memory_equal(bytes, "2345", 4);
    assert_int_equal(CODE(assert_int_equal(reads->read(&file, 0, 10, bytes, status), 10)), TF_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(CODE(assert_int_equal(reads->read(&file, 8, 16, bytes, status), 2)), TF_OUT_OF_RANGE);
        assert_int_equal(CODE(assert_int_equal(reads->read(&file, 10, 1, bytes, status), 0)), TF_OUT_OF_RANGE);
    }
    assert_int_equal(unlink(at("f")), 0);
    assert_int_equal(CODE(assert_int_equal(reads->read(&file, 10, 1, bytes, status), 0)), TF_OUT_OF_RANGE);
    reads->cleanup(&file);
}

HY_TEST_WITH(test_a_closed_file_cannot_be_written, setup, teardown)
{
    TF_WritableFile file = {0};

    assert_int_equal(CODE(fs->new_appendable_file(&none, at("f"), &file, status)), TF_OK);
    assert_int_equal(CODE(writes->append(&file, "abc", 3, status)), TF_OK);
    assert_int_equal(CODE(assert_int_equal(writes->tell(&file, status), 3)), TF_OK);
    assert_int_equal(CODE(writes->sync(&file, status)), TF_OK);
    assert_int_equal(CODE(writes->close(&file, status)), TF_OK);
    assert_int_equal(CODE(writes->append(&file, "d", 1, status)), TF_FAILED_PRECONDITION);
    assert_int_equal(CODE(assert_int_equal(writes->tell(&file, status), -1)), TF_FAILED_PRECONDITION);
    assert_int_equal(CODE(writes->flush(&file, status)), TF_FAILED_PRECONDITION);
    assert_int_equal(CODE(writes->close(&file, status)), TF_FAILED_PRECONDITION);
    writes->cleanup(&file);
}

HY_TEST_WITH(test_braces_in_a_pattern_match_themselves, setup, teardown)
{
    char **found;

    put("a", "");
    put("b", "");
    put("{a,b}", "");
    assert_int_equal(CODE(assert_int_equal(fs->get_matching_paths(&none, at("{a,b}"), &found, status), 1)), TF_OK);
    assert_string_equal(found[0], at("{a,b}"));
    info.plugin_memory_free(found[0]);
    info.plugin_memory_free(found);
}

/* ---- out of memory ----------------------------------------------------------------- */

static int list(TF_FilesystemListOp *op, const char *name)
{
    TF_Status status = {0};
    char **found = NULL;
    const int n = op(&none, at(name), &found, &status);

    if (n < 0) {
        assert_int_not_equal(status.code, TF_OK);
        return -ENOMEM;
    }
    for (int i = 0; i < n; i++)
        info.plugin_memory_free(found[i]);
    info.plugin_memory_free(found);
    return 0;
}

static int use_all_functions(void *arg)
{
    TF_Status status = {0};
    TF_RandomAccessFile in = {0};
    TF_WritableFile out = {0};
    bool is_well;

    (void)arg;
    is_well = list(fs->get_children, ".") == 0 && list(fs->get_matching_paths, "*") == 0;
    fs->new_random_access_file(&none, at("f0"), &in, &status);
    is_well = is_well && status.code == TF_OK;
    if (in.plugin_file)
        reads->cleanup(&in);
    fs->new_writable_file(&none, at("f0"), &out, &status);
    is_well = is_well && status.code == TF_OK;
    if (out.plugin_file)
        writes->cleanup(&out); /* without a close */
    fs->recursively_create_dir(&none, at("d"), &status);
    fs->delete_dir(&none, at("d"), &status);
    return is_well ? 0 : -ENOMEM;
}

HY_TEST_WITH(test_out_of_memory_is_an_error_without_leaks, setup, teardown)
{
    char name[8];

    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        put(name, "");
    }
    hy_each_fault(HY_SEAM_ALLOC, use_all_functions, NULL);
}
