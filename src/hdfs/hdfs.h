/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hdfs: HDFS and HopsFS without a JVM, as file systems of src/fs.
 *
 *     hdfs://namenode:8020/a     a NameNode (8020 when no port is said)
 *     hdfs://nameservice/a       all NameNodes that hdfs-site.xml has for it
 *     hdfs:///a                  the cluster of fs.defaultFS
 *
 * Settings are those of Hadoop's own client: core-site.xml and hdfs-site.xml in
 * $HADOOP_CONF_DIR, the user of $HADOOP_USER_NAME, the tokens of
 * $HADOOP_TOKEN_FILE_LOCATION, a Kerberos ticket.
 *
 * Connections are shared by all threads of a process and made when the first
 * call needs them. A process that was forked makes its own.
 */
#ifndef HY_HDFS_H
#define HY_HDFS_H

/* Adds "hdfs" and "hopsfs" to src/fs. */
void hy_hdfs_add(void);

/* Closes all connections and frees all clusters; later calls start anew. For programs that play many sessions one after
 * the other, as fuzz targets do: no file may be open, and no other thread may be in a call. */
void hy_hdfs_done(void);

#endif
