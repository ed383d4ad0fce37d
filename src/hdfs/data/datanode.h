/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to DataNodes, over which one operation after another goes: the
 * data transfer protocol, version 28. One whose operation has come to its end
 * may serve the next; a few are kept for that.
 */
#ifndef HY_HDFS_DATA_DATANODE_H
#define HY_HDFS_DATA_DATANODE_H

#include <stdbool.h>
#include <stdint.h>

#include "hdfs.pb-c.h"
#include "hdfs/sock.h"

struct hy_err;
struct hy_hdfs_cluster;

enum hy_hdfs_datanode_op { HY_HDFS_OP_WRITE = 80, HY_HDFS_OP_READ = 81, HY_HDFS_OP_TRANSFER = 86, HY_HDFS_OP_FILES = 87 };

struct hy_hdfs_datanode {
    struct hy_hdfs_sock sock;
    struct hy_hdfs_cluster *cluster;
    Hdfs__DatanodeID *id; /* a copy: who it is */
    int is_used;          /* has served before: it may have been closed since */
    bool may_insist;      /* the block has a token by which we could have signed on, and did not */
};

/* "host:port", where it is reached. */
const char *hy_hdfs_datanode_name(const Hdfs__DatanodeID *id, char *out, size_t size);

/* Connects, or takes a kept one unless `is_new`. `token` is that of the block that will be asked for. */
int hy_hdfs_datanode_open(struct hy_hdfs_datanode **ret, struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id, const Hdfs__Token *token,
               bool is_new, int patience_ms, struct hy_err *err);
/* The same over its unix socket, for what only that can do: nobody signs on there, since it sees who we are. */
int hy_hdfs_datanode_open_local(struct hy_hdfs_datanode **ret, struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id, const char *path,
                     int patience_ms);
void hy_hdfs_datanode_close(struct hy_hdfs_datanode *d);
/* Its operation is over, nothing is on its way. */
void hy_hdfs_datanode_release(struct hy_hdfs_datanode *d);

int hy_hdfs_datanode_request(struct hy_hdfs_datanode *d, enum hy_hdfs_datanode_op op, const ProtobufCMessage *request);
/* A delimited message of at most 1 MiB. 0 or -Exxx. */
int hy_hdfs_datanode_receive(struct hy_hdfs_datanode *d, const ProtobufCMessageDescriptor *type, void *ret_message);
/* The answer to a request: 0, or -Exxx with a sentence: -EKEYEXPIRED for a token that is not good any more. */
int hy_hdfs_datanode_response(struct hy_hdfs_datanode *d, Hdfs__BlockOpResponse **ret, struct hy_err *err);

/* How much of a block that is being written can be read there. */
int hy_hdfs_datanode_visible_length(struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id, const Hdfs__ExtendedBlock *block,
                         const Hdfs__Token *token, uint64_t *ret, struct hy_err *err);

/* See hy_hdfs_clusters_forked. */
void hy_hdfs_datanode_forked(void);
/* See hy_hdfs_done. */
void hy_hdfs_datanode_done(void);

#endif
