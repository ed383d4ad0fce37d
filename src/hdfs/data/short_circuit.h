/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short-circuit reads of a replica on this machine: its DataNode opens the files and
 * sends the descriptors over a unix socket, if the cluster is configured for that
 * (dfs.client.read.shortcircuit and dfs.domain.socket.path). Open files stay readable
 * when the DataNode ends.
 */
#ifndef HY_HDFS_DATA_SHORT_CIRCUIT_H
#define HY_HDFS_DATA_SHORT_CIRCUIT_H

#include <stddef.h>
#include <stdint.h>

struct hy_hdfs_block_request;
struct hy_hdfs_local_replica;

/* -ENOTSUP when short-circuit reads are not available for this replica, or were refused recently: read it by TCP then,
 * as after any other error except -EKEYEXPIRED (an expired token) and -EINTR. */
int hy_hdfs_local_replica_open(struct hy_hdfs_local_replica **ret, const struct hy_hdfs_block_request *want);
void hy_hdfs_local_replica_close(struct hy_hdfs_local_replica *r); /* NULL is fine */

/* Reads n bytes, or up to `to`, at *at, and advances *at by the verified bytes. 0; -EBADMSG when the checksum of the
 * chunk at *at is wrong; -ESTALE when the replica was written to since it was opened; -Exxx. */
int hy_hdfs_local_replica_read(struct hy_hdfs_local_replica *r, uint64_t *at, uint64_t to, void *into, size_t n);

/* Offset of the chunk that contains this byte. */
uint64_t hy_hdfs_local_replica_chunk_start(const struct hy_hdfs_local_replica *r, uint64_t at);

/* See hy_hdfs_clusters_forked. */
void hy_hdfs_local_replica_forked(void);
/* See hy_hdfs_done. */
void hy_hdfs_local_replica_done(void);

#endif
