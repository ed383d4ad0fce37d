/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes one block: to a DataNode, which passes all of it to the next one, and
 * so on. Packets are kept until all DataNodes have acknowledged them; when one
 * of these fails, the others go on, and get again what is not acknowledged.
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

/* A packet, with its bytes: first the sums, then the data. */
struct hy_hdfs_out_packet {
    struct hy_list link;
    struct hy_hdfs_packet head;
    uint8_t *data;   /* room for what was asked for */
    uint8_t sums[]; /* and in front of it, for the sums of that */
};

struct hy_hdfs_out_packet *hy_hdfs_out_packet_new(const struct hy_hdfs_checksums *s, size_t data_max);

/* What of a file a pipeline has to know. */
struct hy_hdfs_pipeline_file {
    struct hy_hdfs_cluster *cluster;
    const char *path;
    uint64_t id;
    uint64_t block_size;
    uint32_t replication;
    struct hy_hdfs_checksums guard;
    size_t packet; /* bytes of data in each: whole chunks */
};

/*
 * Sets it up for a new block, or to go on at the end of one (`is_append`). Takes
 * `block`. When it fails for a new one, *ret_bad is the DataNode at fault (the
 * caller's, to exclude it) or NULL, and the block is to be abandoned.
 */
int hy_hdfs_pipeline_open(struct hy_hdfs_pipeline **ret, const struct hy_hdfs_pipeline_file *file, Hdfs__LocatedBlock *block,
                     bool is_append, Hdfs__DatanodeInfo **ret_bad, struct hy_err *err);
void hy_hdfs_pipeline_free(struct hy_hdfs_pipeline *p);

/* Takes `o`. Waits while too many are on their way. */
int hy_hdfs_pipeline_send(struct hy_hdfs_pipeline *p, struct hy_hdfs_out_packet *o, struct hy_err *err);
/* Waits until all that was sent is acknowledged. */
int hy_hdfs_pipeline_wait_acks(struct hy_hdfs_pipeline *p, struct hy_err *err);
/* From now on readers may rely on what is acknowledged: a lost DataNode is replaced where that is possible. */
void hy_hdfs_pipeline_require_replacement(struct hy_hdfs_pipeline *p);
/* The block is complete. */
int hy_hdfs_pipeline_finish(struct hy_hdfs_pipeline *p, struct hy_err *err);
/* For a file that nobody writes to for a while: tells the DataNodes that we are alive, and takes what they
 * acknowledged. A failure is found by the next who writes. */
void hy_hdfs_pipeline_heartbeat(struct hy_hdfs_pipeline *p);

/* The block as the NameNode is to know it: with its length, as far as it is acknowledged. */
const Hdfs__ExtendedBlock *hy_hdfs_pipeline_block(const struct hy_hdfs_pipeline *p);
/* A packet that can be used again; or NULL. */
struct hy_hdfs_out_packet *hy_hdfs_pipeline_recycle(struct hy_hdfs_pipeline *p);

#endif
