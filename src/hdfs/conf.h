/* SPDX-License-Identifier: Apache-2.0 */
/* Hadoop's settings: core-site.xml and hdfs-site.xml of a folder. */
#ifndef HY_HDFS_CONF_H
#define HY_HDFS_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_err;
struct hy_hdfs_conf;

/* `dir` NULL, and files that are not there, give none. NULL: -EINVAL for a file that is no XML, -ENOMEM … */
struct hy_hdfs_conf *hy_hdfs_conf_load(const char *dir, struct hy_err *err);
void hy_hdfs_conf_free(struct hy_hdfs_conf *c);
/* $HADOOP_CONF_DIR, $HADOOP_HOME/etc/hadoop, or NULL; the caller frees it. */
char *hy_hdfs_conf_dir(void);

/* Adds what one file says; later ones win, unless it was <final>. For hy_hdfs_conf_load, and for fuzzing. */
int hy_hdfs_conf_parse(struct hy_hdfs_conf *c, const char *bytes, size_t n, const char *name, struct hy_err *err);

/* With ${…} put in; "" and what is not set is NULL. Valid as long as `c`. */
const char *hy_hdfs_conf_get(const struct hy_hdfs_conf *c, const char *key);
/* What cannot be read as a number ("128m" can) is `otherwise`. */
uint64_t hy_hdfs_conf_number(const struct hy_hdfs_conf *c, const char *key, uint64_t otherwise);
bool hy_hdfs_conf_bool(const struct hy_hdfs_conf *c, const char *key, bool otherwise);

#endif
