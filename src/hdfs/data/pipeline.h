/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes one block to a chain of DataNodes, each of which forwards it to the next.
 * Packets are kept until all DataNodes have acknowledged them; when one fails, the
 * others continue and get the unacknowledged packets again.
 *
 * A pipeline is used by one thread at a time.
 */
#ifndef HY_HDFS_DATA_PIPELINE_H
#define HY_HDFS_DATA_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "hdfs.pb-c.h"
#include "hdfs/data/packet.h"

struct hy_err;
struct hy_hdfs_cluster;
struct hy_hdfs_pipeline;

/* A packet to send: checksums, then data. */
struct hy_hdfs_out_packet {
    struct hy_list link;
    struct hy_hdfs_packet head;
    uint8_t *data;  /* data_max bytes */
    uint8_t sums[]; /* in front of the data */
};

struct hy_hdfs_out_packet *hy_hdfs_out_packet_new(const struct hy_hdfs_checksums *s, size_t data_max);

/* The attributes of a file that a pipeline needs. */
struct hy_hdfs_pipeline_file {
    struct hy_hdfs_cluster *cluster;
    const char *path;
    uint64_t id;
    uint64_t block_size;
    uint32_t replication;
    struct hy_hdfs_checksums checksums;
    size_t packet; /* bytes of data per packet: whole chunks */
};

/*
 * Sets up the pipeline for a new block, or for an append to an existing one. Takes
 * `block`. When it fails for a new block, *ret_bad is the DataNode at fault (owned
 * by the caller, to exclude it) or NULL, and the caller abandons the block.
 */
int hy_hdfs_pipeline_open(struct hy_hdfs_pipeline **ret, const struct hy_hdfs_pipeline_file *file,
                          Hdfs__LocatedBlock *block, bool is_append, Hdfs__DatanodeInfo **ret_bad, struct hy_err *err);
void hy_hdfs_pipeline_free(struct hy_hdfs_pipeline *p);

/* Takes `o`. Waits while too many packets are unacknowledged. */
int hy_hdfs_pipeline_send(struct hy_hdfs_pipeline *p, struct hy_hdfs_out_packet *o, struct hy_err *err);
/* Waits until everything sent is acknowledged. */
int hy_hdfs_pipeline_wait_acks(struct hy_hdfs_pipeline *p, struct hy_err *err);
/* From now on readers may depend on the acknowledged data: replaces a lost DataNode if possible. */
void hy_hdfs_pipeline_require_replacement(struct hy_hdfs_pipeline *p);
/* Completes the block. */
int hy_hdfs_pipeline_finish(struct hy_hdfs_pipeline *p, struct hy_err *err);
/* For a file without recent writes: sends a heartbeat to the DataNodes and reads pending acknowledgements. The next
 * write reports a failure. */
void hy_hdfs_pipeline_heartbeat(struct hy_hdfs_pipeline *p);

/* The block, with its acknowledged length, for the NameNode. */
const Hdfs__ExtendedBlock *hy_hdfs_pipeline_block(const struct hy_hdfs_pipeline *p);
/* An acknowledged packet for reuse, or NULL. */
struct hy_hdfs_out_packet *hy_hdfs_pipeline_recycle(struct hy_hdfs_pipeline *p);

#endif
