/* SPDX-License-Identifier: Apache-2.0 */
/* Hadoop's settings: core-site.xml and hdfs-site.xml in a directory. */
#ifndef HY_HDFS_CONF_H
#define HY_HDFS_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_err;
struct hy_hdfs_conf;

/* `dir` may be NULL, and files may be missing. NULL: err->code is -EINVAL for a file that is not XML, -ENOMEM … */
struct hy_hdfs_conf *hy_hdfs_conf_load(const char *dir, struct hy_err *err);
void hy_hdfs_conf_free(struct hy_hdfs_conf *c);
/* $HADOOP_CONF_DIR, $HADOOP_HOME/etc/hadoop, or NULL; the caller frees it. */
char *hy_hdfs_conf_dir(void);

/* Adds the settings of one file; later ones override, except <final> ones. For hy_hdfs_conf_load, and for fuzzing. */
int hy_hdfs_conf_parse(struct hy_hdfs_conf *c, const char *bytes, size_t n, const char *name, struct hy_err *err);

/* With ${…} expanded; NULL when the value is empty or not set. Valid as long as `c`. */
const char *hy_hdfs_conf_get(const struct hy_hdfs_conf *c, const char *key);
/* `fallback` when the value is not a number ("128m" is one). */
uint64_t hy_hdfs_conf_number(const struct hy_hdfs_conf *c, const char *key, uint64_t fallback);
bool hy_hdfs_conf_bool(const struct hy_hdfs_conf *c, const char *key, bool fallback);

#endif
