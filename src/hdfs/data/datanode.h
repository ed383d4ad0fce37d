/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to DataNodes: the data transfer protocol, version 28. A connection
 * runs one operation after another; a few idle ones are cached for reuse.
 */
#ifndef HY_HDFS_DATA_DATANODE_H
#define HY_HDFS_DATA_DATANODE_H

#include <stdbool.h>
#include <stdint.h>

#include "hdfs.pb-c.h"
#include "hdfs/sock.h"

struct hy_err;
struct hy_hdfs_cluster;

enum hy_hdfs_datanode_op {
    HY_HDFS_OP_WRITE = 80,
    HY_HDFS_OP_READ = 81,
    HY_HDFS_OP_TRANSFER = 86,
    HY_HDFS_OP_FILES = 87
};

struct hy_hdfs_datanode {
    struct hy_hdfs_sock sock;
    struct hy_hdfs_cluster *cluster;
    Hdfs__DatanodeID *id; /* a copy */
    bool is_reused;       /* from the cache: the DataNode may have closed it */
    bool may_insist;      /* the block has a token that was not used to authenticate */
};

/* "host:port" */
const char *hy_hdfs_datanode_name(const Hdfs__DatanodeID *id, char *out, size_t size);

/* Connects, or takes a cached connection unless `is_new`. `token` is that of the block to be requested. */
int hy_hdfs_datanode_open(struct hy_hdfs_datanode **ret, struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id,
                          const Hdfs__Token *token, bool is_new, int timeout_ms, struct hy_err *err);
/* Connects to its unix socket, for short-circuit reads. There is no authentication: the DataNode sees our user id. */
int hy_hdfs_datanode_open_local(struct hy_hdfs_datanode **ret, struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id,
                                const char *path, int timeout_ms);
void hy_hdfs_datanode_close(struct hy_hdfs_datanode *d);
/* Returns an idle connection, without pending data, to the cache. */
void hy_hdfs_datanode_release(struct hy_hdfs_datanode *d);

int hy_hdfs_datanode_request(struct hy_hdfs_datanode *d, enum hy_hdfs_datanode_op op, const ProtobufCMessage *request);
/* A delimited message of at most 1 MiB. 0 or -Exxx. */
int hy_hdfs_datanode_receive(struct hy_hdfs_datanode *d, const ProtobufCMessageDescriptor *type, void *ret_message);
/* Receives the response to a request: 0, or -Exxx with a message: -EKEYEXPIRED for an expired token. */
int hy_hdfs_datanode_response(struct hy_hdfs_datanode *d, Hdfs__BlockOpResponse **ret, struct hy_err *err);

/* The readable length of a block that is being written. */
int hy_hdfs_datanode_visible_length(struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id,
                                    const Hdfs__ExtendedBlock *block, const Hdfs__Token *token, uint64_t *ret,
                                    struct hy_err *err);

/* See hy_hdfs_clusters_forked. */
void hy_hdfs_datanode_forked(void);
/* See hy_hdfs_done. */
void hy_hdfs_datanode_done(void);

#endif
