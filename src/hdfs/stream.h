/* SPDX-License-Identifier: Apache-2.0 */
/* Open files, for reading (input_stream.c) and writing (output_stream.c). */
#ifndef HY_HDFS_STREAM_H
#define HY_HDFS_STREAM_H

#include "fs/fs.h"

struct hy_hdfs_cluster;

int hy_hdfs_input_open(struct hy_hdfs_cluster *c, const char *path, struct hy_fs_file **ret, struct hy_err *err);
int hy_hdfs_output_open(struct hy_hdfs_cluster *c, const char *path, enum hy_fs_open_mode mode, struct hy_fs_file **ret,
                        struct hy_err *err);

/* Applies fs.permissions.umask-mode. */
unsigned hy_hdfs_masked(const struct hy_hdfs_cluster *c, unsigned mode);

#endif
