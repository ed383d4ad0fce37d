/* SPDX-License-Identifier: Apache-2.0 */
/* Hadoop's settings, and the paths of URLs: what is read can be asked for, and a path stays one. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_err err = {0};
    struct hy_hdfs_conf *c = hy_hdfs_conf_load(NULL, &err);

    check(c != NULL);
    if (hy_hdfs_conf_parse(c, (const char *)data, size, "fuzz", &err) < 0)
        check(err.code < 0 && err.text[0]);
    (void)hy_hdfs_conf_get(c, "fs.defaultFS");
    check(hy_hdfs_conf_number(c, "a", 7) < UINT64_MAX);
    hy_hdfs_conf_free(c);
    if (size)
        check_path(data, size);
    return 0;
}
