/* SPDX-License-Identifier: Apache-2.0 */
/* How a connection to a DataNode is secured, before the first operation goes over it (datanode_sasl.c). */
#ifndef HY_HDFS_DATA_DATANODE_SASL_H
#define HY_HDFS_DATA_DATANODE_SASL_H

#include "hdfs.pb-c.h"

struct hy_hdfs_datanode;
struct hy_err;
struct hy_hdfs_cluster;

/* The cluster's key for data on its way, as the NameNode gave it. */
struct hy_hdfs_data_key;
struct hy_hdfs_data_key *hy_hdfs_data_key_new(void);
void hy_hdfs_data_key_free(struct hy_hdfs_data_key *k); /* NULL is fine */

/*
 * Does what the cluster wants for a new connection: nothing, most of the time.
 * 1 when we signed on, 0 when that was not asked for, or -Exxx: -EKEYEXPIRED
 * when the token is not good any more, -EAGAIN when the cluster's key was not:
 * it is forgotten, and the next connection gets another.
 */
int hy_hdfs_datanode_secure(struct hy_hdfs_datanode *d, const Hdfs__Token *token, struct hy_err *err);

#endif
