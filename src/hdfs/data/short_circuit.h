/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replica that lies on this machine, read from its files: its DataNode opens them
 * for us and sends the descriptors over a unix socket, where the cluster offers that
 * (dfs.client.read.shortcircuit and dfs.domain.socket.path). What is open can be read
 * to its end, whatever becomes of the DataNode.
 */
#ifndef HY_HDFS_DATA_SHORT_CIRCUIT_H
#define HY_HDFS_DATA_SHORT_CIRCUIT_H

#include <stddef.h>
#include <stdint.h>

struct hy_hdfs_block_request;
struct hy_hdfs_local_replica;

/* -ENOTSUP when there is no such way to this replica, or it has been refused of late: then by TCP. Other errors are
 * the same, but for -EKEYEXPIRED, a token that is not good any more, and -EINTR. */
int hy_hdfs_local_replica_open(struct hy_hdfs_local_replica **ret, const struct hy_hdfs_block_request *want);
void hy_hdfs_local_replica_close(struct hy_hdfs_local_replica *r); /* NULL is fine */

/* Bytes from *at on, n or up to `to`; *at is behind those that came, all of which fit their sums. 0; -EBADMSG when the
 * chunk there does not fit its own; -ESTALE when somebody has written to the replica since it was opened; -Exxx. */
int hy_hdfs_local_replica_read(struct hy_hdfs_local_replica *r, uint64_t *at, uint64_t to, void *into, size_t n);

/* Where the chunk begins that has this byte. */
uint64_t hy_hdfs_local_replica_chunk_start(const struct hy_hdfs_local_replica *r, uint64_t at);

/* See hy_hdfs_clusters_forked. */
void hy_hdfs_local_replica_forked(void);
/* See hy_hdfs_done. */
void hy_hdfs_local_replica_done(void);

#endif
