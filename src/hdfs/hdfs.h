/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hdfs: HDFS and HopsFS without a JVM, as file systems of src/fs.
 *
 *     hdfs://namenode:8020/a     a NameNode (default port 8020)
 *     hdfs://nameservice/a       the NameNodes of a nameservice in hdfs-site.xml
 *     hdfs:///a                  the cluster of fs.defaultFS
 *
 * Settings are those of Hadoop's client: core-site.xml and hdfs-site.xml in
 * $HADOOP_CONF_DIR, the user of $HADOOP_USER_NAME, the tokens of
 * $HADOOP_TOKEN_FILE_LOCATION, a Kerberos ticket.
 *
 * Connections are shared by all threads of a process and opened on first use. A
 * forked process opens new ones.
 */
#ifndef HY_HDFS_H
#define HY_HDFS_H

/* Registers the schemes "hdfs" and "hopsfs" (fs.h). */
void hy_hdfs_add(void);

/* Closes all connections and frees all clusters; later calls start over. For programs that run many sessions one after
 * the other, such as fuzz targets: no file may be open, and no other thread may be in a call. */
void hy_hdfs_done(void);

#endif
