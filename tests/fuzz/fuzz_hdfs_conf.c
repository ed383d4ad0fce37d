/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hadoop's settings, and the paths of URLs: parsed settings can be looked up, and normalized paths are valid. The input
 * is core-site.xml and, after a NUL, hdfs-site.xml; hy_file_read is replaced by the linker.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "faults.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static const uint8_t *input;
static size_t input_n;

int __wrap_hy_file_read(const char *path, struct hy_buf *b);
int __wrap_hy_file_read(const char *path, struct hy_buf *b)
{
    const uint8_t *end = input_n ? memchr(input, 0, input_n) : NULL;
    const size_t first = end ? (size_t)(end - input) : input_n;

    if (strstr(path, "core-site.xml"))
        return hy_buf_append(b, input, first);
    return end ? hy_buf_append(b, end + 1, input_n - first - 1) : input_n % 7 ? -ENOENT : -EACCES;
}

static void check_path(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *path, *again;

    check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    path = hy_hdfs_path(text);
    check(path && *path == '/' && !strstr(path, "//") && !strstr(path, "/./") && !strstr(path, "/../"));
    again = hy_hdfs_path(path);
    check(again && strcmp(path, again) == 0);
    free(again);
    free(path);
    free(text);
}

static void run(const uint8_t *data, size_t size)
{
    struct hy_err err = {0};
    struct hy_hdfs_conf *c;

    input = data;
    input_n = size;
    c = hy_hdfs_conf_load("/folder", &err);
    if (c) {
        (void)hy_hdfs_conf_get(c, "fs.defaultFS");
        (void)hy_hdfs_conf_bool(c, "b", true);
        check(hy_hdfs_conf_number(c, "a", 7) < UINT64_MAX);
    } else {
        check(err.code < 0 && err.text[0]);
    }
    hy_hdfs_conf_free(c);
    if (size && !hy_is_short_of_memory)
        check_path(data, size);
}

static void check_folders(void)
{
    static const char *const folders[][2] = {{"/a", "/b"}, {"", "/b"}, {"", ""}};

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char *dir;

        check(setenv("HADOOP_CONF_DIR", folders[i][0], 1) == 0 && setenv("HADOOP_HOME", folders[i][1], 1) == 0);
        dir = hy_hdfs_conf_dir();
        check(i == 0 ? strcmp(dir, "/a") == 0 : i == 1 ? strcmp(dir, "/b/etc/hadoop") == 0 : !dir);
        free(dir);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool has_begun;

    if (!has_begun) {
        check_folders();
        check(setenv("HY_FUZZ", "value", 1) == 0);
    }
    has_begun = true;
    hy_run_with_faults(data, size, run);
    return 0;
}
