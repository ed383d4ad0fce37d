/* SPDX-License-Identifier: Apache-2.0 */
/* Authentication and encryption of a connection to a DataNode, before its first operation. */
#ifndef HY_HDFS_DATA_DATANODE_SASL_H
#define HY_HDFS_DATA_DATANODE_SASL_H

#include "hdfs.pb-c.h"

struct hy_hdfs_datanode;
struct hy_err;
struct hy_hdfs_cluster;

/* The data encryption key that the NameNode hands out. */
struct hy_hdfs_data_key;
struct hy_hdfs_data_key *hy_hdfs_data_key_new(void);
void hy_hdfs_data_key_free(struct hy_hdfs_data_key *k); /* NULL is fine */

/*
 * Secures a new connection as the cluster requires it; most require nothing.
 * 1 when we authenticated, 0 when that was not required, or -Exxx: -EKEYEXPIRED
 * when the token has expired, -EAGAIN when the data encryption key has: it is
 * dropped, and the next connection requests a new one.
 */
int hy_hdfs_datanode_secure(struct hy_hdfs_datanode *d, const Hdfs__Token *token, struct hy_err *err);

#endif
