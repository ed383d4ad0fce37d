/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     client ─ packets ─► first ─► second ─► third
 *            ◄─── acks ──       ◄─         ◄─
 *
 * An acknowledgement (PipelineAck) has a packet's number and a status for each
 * DataNode, the first one first. The packet that ends a block is sent after all
 * others are acknowledged.
 *
 * Recovery, as in Hadoop's client: the failed DataNode is removed; the NameNode
 * gives the block a new generation stamp (updateBlockForPipeline), which marks the
 * replica of the lost DataNode as outdated; the others are set up with the new
 * stamp, truncated to their common length, and reported to the NameNode
 * (updatePipeline). Then the unacknowledged packets are sent again. With a
 * replication of three or more, a new DataNode gets a copy and joins when half are
 * lost, or when readers may depend on the data.
 */
#include "hdfs/data/pipeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "hdfs/data/datanode.h"
#include "hdfs/rpc/rpc.h"

#define WINDOW (5u << 20) /* unacknowledged bytes, as in Hadoop's client */
#define WINDOW_MIN 4u     /* packets */
#define SPARE_MAX 8
#define ACKS_SIZE 4096u
#define RECOVERIES_MAX 5 /* without an acknowledged packet in between */
#define LOST_MAX 16
#define FIRST_NODE_MS 65000
#define EACH_NODE_MS 5000

struct hy_hdfs_pipeline {
    struct hy_hdfs_pipeline_file file;
    Hdfs__LocatedBlock *block; /* its locations are the pipeline */
    struct hy_hdfs_datanode *dn; /* the first one */
    struct hy_list sent;       /* not acknowledged yet, oldest first */
    size_t sent_count;
    struct hy_list spare;
    size_t spare_count;
    uint64_t bytes_sent;  /* in the block */
    uint64_t bytes_acked; /* == block->b->numbytes */
    int64_t last_number;
    bool is_closing; /* the last packet was sent */
    int recoveries;
    int bad; /* the DataNode that an acknowledgement reported as failed; -1: none */
    bool needs_replacement; /* appended to, or flushed */
    Hdfs__DatanodeInfo *lost[LOST_MAX];
    size_t lost_count;
    uint8_t acks[ACKS_SIZE];
    size_t acks_at, acks_n;
};

struct hy_hdfs_out_packet *hy_hdfs_out_packet_new(const struct hy_hdfs_checksums *s, size_t data_max)
{
    const size_t sums = hy_hdfs_checksums_size(s, data_max);
    struct hy_hdfs_out_packet *o = hy_malloc(sizeof(*o) + sums + data_max);

    if (o) {
        memset(o, 0, sizeof(*o));
        hy_list_init(&o->link);
        o->data = o->sums + sums;
    }
    return o;
}

const Hdfs__ExtendedBlock *hy_hdfs_pipeline_block(const struct hy_hdfs_pipeline *p)
{
    return p->block->b;
}

struct hy_hdfs_out_packet *hy_hdfs_pipeline_recycle(struct hy_hdfs_pipeline *p)
{
    struct hy_list *l = p->spare.next;

    if (hy_list_empty(&p->spare))
        return NULL;
    hy_list_remove(l);
    p->spare_count--;
    return hy_container(l, struct hy_hdfs_out_packet, link);
}

static void recycle(struct hy_hdfs_pipeline *p, struct hy_hdfs_out_packet *o)
{
    if (p->spare_count == SPARE_MAX) {
        free(o);
        return;
    }
    hy_list_push(&p->spare, &o->link);
    p->spare_count++;
}

/* ---- DataNodes ----------------------------------------------------------------- */

/* Removes one from the lists of the block; the caller frees it. */
static Hdfs__DatanodeInfo *remove_node(Hdfs__LocatedBlock *b, size_t i)
{
    Hdfs__DatanodeInfo *node = b->locs[i];

    memmove(b->locs + i, b->locs + i + 1, (--b->n_locs - i) * sizeof(*b->locs));
    if (i < b->n_storageids) {
        free(b->storageids[i]);
        memmove(b->storageids + i, b->storageids + i + 1, (--b->n_storageids - i) * sizeof(*b->storageids));
    }
    if (i < b->n_storagetypes)
        memmove(b->storagetypes + i, b->storagetypes + i + 1, (--b->n_storagetypes - i) * sizeof(*b->storagetypes));
    return node;
}

/* `name`: "ip:port", as in a DataNode's report of a failed one. */
static int find_node(const Hdfs__LocatedBlock *b, const char *name)
{
    char address[300];

    for (size_t i = 0; i < b->n_locs; i++)
        if (strcmp(hy_hdfs_datanode_name(b->locs[i]->id, address, sizeof(address)), name) == 0)
            return (int)i;
    return -1;
}

static int send_request(struct hy_hdfs_pipeline *p, Hdfs__OpWriteBlock__Stage stage, uint64_t new_stamp)
{
    Hdfs__LocatedBlock *b = p->block;
    Hdfs__OpWriteBlock op = HDFS__OP_WRITE_BLOCK__INIT;
    Hdfs__ClientOperationHeader header = HDFS__CLIENT_OPERATION_HEADER__INIT;
    Hdfs__BaseHeader base = HDFS__BASE_HEADER__INIT;
    Hdfs__ExtendedBlock whole = *b->b;
    Hdfs__Checksum sum = HDFS__CHECKSUM__INIT;

    whole.has_numbytes = 1;
    whole.numbytes = p->file.block_size; /* the space to reserve */
    base.block = &whole;
    base.token = b->blocktoken;
    header.baseheader = &base;
    header.clientname = (char *)p->file.cluster->client_name;
    sum.type = (Hdfs__ChecksumType)p->file.checksums.type;
    sum.bytesperchecksum = p->file.checksums.chunk;
    op.header = &header;
    op.targets = b->locs + 1;
    op.n_targets = b->n_locs - 1;
    op.stage = stage;
    op.pipelinesize = (uint32_t)b->n_locs;
    op.minbytesrcvd = p->bytes_acked;
    op.maxbytesrcvd = p->bytes_sent;
    op.latestgenerationstamp = new_stamp;
    op.requestedchecksum = &sum;
    if (b->n_storagetypes == b->n_locs) {
        op.has_storagetype = 1;
        op.storagetype = b->storagetypes[0];
        op.targetstoragetypes = b->storagetypes + 1;
        op.n_targetstoragetypes = b->n_locs - 1;
    }
    if (b->n_storageids == b->n_locs) {
        op.storageid = b->storageids[0];
        op.targetstorageids = b->storageids + 1;
        op.n_targetstorageids = b->n_locs - 1;
    }
    return hy_hdfs_datanode_request(p->dn, HY_HDFS_OP_WRITE, &op.base);
}

/* Connects the pipeline. On failure *ret_bad is the number of the failed DataNode. */
static int set_up(struct hy_hdfs_pipeline *p, Hdfs__OpWriteBlock__Stage stage, uint64_t new_stamp, int *ret_bad,
                  struct hy_err *err)
{
    Hdfs__LocatedBlock *b = p->block;
    hy_cleanup_hdfs_response Hdfs__BlockOpResponse *response = NULL;
    int rc;

    *ret_bad = 0;
    if (b->n_locs == 0)
        return hy_err_set(err, -ENODATA, "the NameNode listed no DataNode for a block of %s", p->file.path);
    rc = hy_hdfs_datanode_open(&p->dn, p->file.cluster, b->locs[0]->id, b->blocktoken, true,
                               FIRST_NODE_MS + EACH_NODE_MS * (int)b->n_locs, err);
    if (rc < 0)
        return rc;
    rc = send_request(p, stage, new_stamp);
    if (rc < 0)
        hy_err_sys(err, rc, "cannot send a write request to a DataNode");
    else
        rc = hy_hdfs_datanode_response(p->dn, &response, err);
    if (rc < 0 && response && response->firstbadlink)
        *ret_bad = find_node(b, response->firstbadlink);
    if (rc < 0)
        hy_hdfs_datanode_close(hy_take(p->dn));
    p->acks_at = p->acks_n = 0;
    return rc;
}

/* ---- acknowledgements -------------------------------------------------------------- */

static void on_acked(struct hy_hdfs_pipeline *p, struct hy_hdfs_out_packet *o)
{
    const uint64_t end = o->head.offset + o->head.data;

    hy_list_remove(&o->link);
    p->sent_count--;
    p->recoveries = 0;
    if (end > p->bytes_acked)
        p->bytes_acked = p->block->b->numbytes = end;
    recycle(p, o);
}

static int find_failed(struct hy_hdfs_pipeline *p, const Hdfs__PipelineAck *ack, struct hy_err *err)
{
    char name[300];

    for (size_t i = 0; i < ack->n_reply && i < p->block->n_locs; i++) {
        if (ack->reply[i] == HDFS__STATUS__SUCCESS)
            continue;
        p->bad = (int)i;
        return hy_err_set(err, -EREMOTEIO, "the DataNode %s failed during a write (status %d)",
                          hy_hdfs_datanode_name(p->block->locs[i]->id, name, sizeof(name)), (int)ack->reply[i]);
    }
    return 0;
}

static int on_ack(struct hy_hdfs_pipeline *p, const Hdfs__PipelineAck *ack, struct hy_err *err)
{
    struct hy_hdfs_out_packet *o;
    int rc = find_failed(p, ack, err);

    if (rc < 0 || ack->seqno == -1) /* of a heartbeat */
        return rc;
    o = hy_list_empty(&p->sent) ? NULL : hy_container(p->sent.next, struct hy_hdfs_out_packet, link);
    if (!o || o->head.number != ack->seqno)
        return hy_err_set(err, -EPROTO, "a DataNode acknowledged packet %lld out of order", (long long)ack->seqno);
    on_acked(p, o);
    return 0;
}

/* The next received acknowledgement. 1, 0 when it is incomplete, or -Exxx. */
static int parse_ack(struct hy_hdfs_pipeline *p, struct hy_err *err)
{
    const uint8_t *bytes = p->acks + p->acks_at;
    const size_t n = p->acks_n - p->acks_at;
    hy_cleanup_hdfs_response Hdfs__PipelineAck *ack = NULL;
    uint32_t length;
    int head = hy_hdfs_delimited_length(bytes, n, &length), rc;

    if (head < 0 || (head > 0 && length > ACKS_SIZE - 8))
        return hy_err_set(err, -EPROTO, "a DataNode sent an invalid acknowledgement");
    if (head == 0 || n - (size_t)head < length)
        return 0;
    ack = hdfs__pipeline_ack__unpack(NULL, length, bytes + head);
    if (!ack)
        return hy_err_set(err, -EPROTO, "a DataNode sent an invalid acknowledgement");
    p->acks_at += (size_t)head + length;
    rc = on_ack(p, ack, err);
    return rc < 0 ? rc : 1;
}

/* Waits for data, and processes all complete acknowledgements. */
static int receive_acks(struct hy_hdfs_pipeline *p, struct hy_err *err)
{
    ssize_t got;
    int rc;

    memmove(p->acks, p->acks + p->acks_at, p->acks_n - p->acks_at);
    p->acks_n -= p->acks_at;
    p->acks_at = 0;
    got = hy_hdfs_sock_recv(&p->dn->sock, p->acks + p->acks_n, ACKS_SIZE - p->acks_n);
    if (got < 0)
        return hy_err_sys(err, (int)got, "no acknowledgement from a DataNode");
    p->acks_n += (size_t)got;
    while ((rc = parse_ack(p, err)) > 0)
        ;
    return rc;
}

/* ---- sending ----------------------------------------------------------------------- */

static int send_packet(struct hy_hdfs_pipeline *p, struct hy_hdfs_out_packet *o, struct hy_err *err)
{
    uint8_t head[HY_HDFS_PACKET_HEADER_MAX];
    struct iovec parts[] = {
        {.iov_base = head, .iov_len = hy_hdfs_packet_format(&o->head, head)},
        {.iov_base = o->sums, .iov_len = o->head.sums},
        {.iov_base = o->data, .iov_len = o->head.data},
    };
    int rc = hy_hdfs_sock_send_all(&p->dn->sock, parts, 3);

    if (o->head.offset + o->head.data > p->bytes_sent)
        p->bytes_sent = o->head.offset + o->head.data;
    return rc < 0 ? hy_err_sys(err, rc, "cannot send data to a DataNode") : 0;
}

static int send_again(struct hy_hdfs_pipeline *p, struct hy_err *err)
{
    hy_list_each(it, &p->sent) {
        int rc = send_packet(p, hy_container(it, struct hy_hdfs_out_packet, link), err);

        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- recovery ---------------------------------------------------------------------- */

static int new_stamp(struct hy_hdfs_pipeline *p, uint64_t *ret, struct hy_err *err)
{
    Hdfs__UpdateBlockForPipelineRequest request = HDFS__UPDATE_BLOCK_FOR_PIPELINE_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__AddBlockResponse *response = NULL;
    Hdfs__Token *token;
    int rc;

    request.block = p->block->b;
    request.clientname = (char *)p->file.cluster->client_name;
    rc = hy_hdfs_call(p->file.cluster, "updateBlockForPipeline", &request.base, &hdfs__add_block_response__descriptor,
                      &response, err);
    if (rc < 0)
        return rc;
    token = p->block->blocktoken; /* the new token is for the new stamp */
    p->block->blocktoken = response->block->blocktoken;
    response->block->blocktoken = token;
    *ret = response->block->b->generationstamp;
    return 0;
}

/* Reports the remaining DataNodes. */
static int update_namenode(struct hy_hdfs_pipeline *p, uint64_t stamp, struct hy_err *err)
{
    Hdfs__UpdatePipelineRequest request = HDFS__UPDATE_PIPELINE_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__Nothing *response = NULL;
    Hdfs__ExtendedBlock renewed = *p->block->b;
    hy_cleanup_free Hdfs__DatanodeID **ids = hy_calloc(p->block->n_locs, sizeof(*ids));
    int rc;

    if (!ids)
        return hy_err_oom(err);
    for (size_t i = 0; i < p->block->n_locs; i++)
        ids[i] = p->block->locs[i]->id;
    renewed.generationstamp = stamp;
    request.clientname = (char *)p->file.cluster->client_name;
    request.oldblock = p->block->b;
    request.newblock = &renewed;
    request.newnodes = ids;
    request.n_newnodes = p->block->n_locs;
    request.storageids = p->block->storageids;
    request.n_storageids = p->block->n_storageids;
    rc = hy_hdfs_call(p->file.cluster, "updatePipeline", &request.base, &hdfs__nothing__descriptor, &response, err);
    if (rc == 0)
        p->block->b->generationstamp = stamp;
    return rc;
}

static int remove_failed(struct hy_hdfs_pipeline *p, int bad, struct hy_err *err)
{
    Hdfs__DatanodeInfo *node;

    if (p->block->n_locs < 2)
        return hy_err_wrap(err, "all DataNodes of the block failed; the last error");
    node = remove_node(p->block, bad < 0 || (size_t)bad >= p->block->n_locs ? 0 : (size_t)bad);
    if (p->lost_count < LOST_MAX)
        p->lost[p->lost_count++] = node;
    else
        hdfs__datanode_info__free_unpacked(node, NULL);
    return 0;
}

/* ---- replacement of a lost DataNode ------------------------------------------------- */

/* Hadoop's policy DEFAULT. */
static bool should_replace(const struct hy_hdfs_pipeline *p)
{
    const char *policy = hy_hdfs_conf_get(p->file.cluster->conf,
                                          "dfs.client.block.write.replace-datanode-on-failure.policy");
    const size_t left = p->block->n_locs, replication = p->file.replication;

    if (policy && strcmp(policy, "NEVER") == 0)
        return false;
    return replication >= 3 && left < replication && (left <= replication / 2 || p->needs_replacement) &&
           p->bytes_acked > 0;
}

static bool has_node(const Hdfs__LocatedBlock *b, const Hdfs__DatanodeInfo *node)
{
    for (size_t i = 0; i < b->n_locs; i++)
        if (strcmp(b->locs[i]->id->datanodeuuid, node->id->datanodeuuid) == 0)
            return true;
    return false;
}

static int request_datanode(struct hy_hdfs_pipeline *p, Hdfs__AddBlockResponse **ret, struct hy_err *err)
{
    Hdfs__GetAdditionalDatanodeRequest request = HDFS__GET_ADDITIONAL_DATANODE_REQUEST__INIT;

    request.src = (char *)p->file.path;
    request.blk = p->block->b;
    request.existings = p->block->locs;
    request.n_existings = p->block->n_locs;
    request.excludes = p->lost;
    request.n_excludes = p->lost_count;
    request.numadditionalnodes = 1;
    request.clientname = (char *)p->file.cluster->client_name;
    request.existingstorageuuids = p->block->storageids;
    request.n_existingstorageuuids = p->block->n_storageids;
    request.has_fileid = 1;
    request.fileid = p->file.id;
    return hy_hdfs_call(p->file.cluster, "getAdditionalDatanode", &request.base, &hdfs__add_block_response__descriptor,
                        ret, err);
}

/* The first DataNode copies its replica to the new one, number `i` of `with`. */
static int copy_to_new(struct hy_hdfs_pipeline *p, const Hdfs__LocatedBlock *with, size_t i, struct hy_err *err)
{
    Hdfs__OpTransferBlock op = HDFS__OP_TRANSFER_BLOCK__INIT;
    Hdfs__ClientOperationHeader header = HDFS__CLIENT_OPERATION_HEADER__INIT;
    Hdfs__BaseHeader base = HDFS__BASE_HEADER__INIT;
    hy_cleanup_hdfs_response Hdfs__BlockOpResponse *response = NULL;
    struct hy_hdfs_datanode *dn = NULL;
    int rc;

    base.block = p->block->b;
    base.token = with->blocktoken;
    header.baseheader = &base;
    header.clientname = (char *)p->file.cluster->client_name;
    op.header = &header;
    op.targets = &with->locs[i];
    op.n_targets = 1;
    if (i < with->n_storagetypes) {
        op.targetstoragetypes = &with->storagetypes[i];
        op.n_targetstoragetypes = 1;
    }
    if (i < with->n_storageids) {
        op.targetstorageids = &with->storageids[i];
        op.n_targetstorageids = 1;
    }
    rc = hy_hdfs_datanode_open(&dn, p->file.cluster, p->block->locs[0]->id, with->blocktoken, true, FIRST_NODE_MS, err);
    if (rc == 0 && (rc = hy_hdfs_datanode_request(dn, HY_HDFS_OP_TRANSFER, &op.base)) < 0)
        hy_err_sys(err, rc, "cannot send a copy request to a DataNode");
    if (rc == 0)
        rc = hy_hdfs_datanode_response(dn, &response, err);
    hy_hdfs_datanode_close(dn);
    return rc;
}

/* Without a replacement the remaining DataNodes continue: the NameNode restores the replication later. */
static void replace_lost(struct hy_hdfs_pipeline *p)
{
    hy_cleanup_hdfs_response Hdfs__AddBlockResponse *response = NULL;
    struct hy_err err;
    Hdfs__LocatedBlock *with, old;

    if (!should_replace(p) || request_datanode(p, &response, &err) < 0)
        return;
    with = response->block;
    for (size_t i = 0; i < with->n_locs; i++) {
        if (has_node(p->block, with->locs[i]))
            continue;
        if (copy_to_new(p, with, i, &err) < 0)
            return;
        old = *p->block; /* swaps the lists */
        p->block->locs = with->locs;
        p->block->n_locs = with->n_locs;
        p->block->storageids = with->storageids;
        p->block->n_storageids = with->n_storageids;
        p->block->storagetypes = with->storagetypes;
        p->block->n_storagetypes = with->n_storagetypes;
        with->locs = old.locs;
        with->n_locs = old.n_locs;
        with->storageids = old.storageids;
        with->n_storageids = old.n_storageids;
        with->storagetypes = old.storagetypes;
        with->n_storagetypes = old.n_storagetypes;
        return;
    }
}

/* ---- recovery loop ------------------------------------------------------------------------ */

/* Sets up the remaining DataNodes, without those that fail, until it succeeds. */
static int renew(struct hy_hdfs_pipeline *p, Hdfs__OpWriteBlock__Stage stage, struct hy_err *err)
{
    for (;;) {
        uint64_t stamp;
        int bad, rc = new_stamp(p, &stamp, err);

        if (rc < 0)
            return rc;
        rc = set_up(p, stage, stamp, &bad, err);
        if (rc == 0)
            return update_namenode(p, stamp, err);
        if (rc == -EINTR || rc == -ENOMEM)
            return rc;
        rc = remove_failed(p, bad, err);
        if (rc < 0)
            return rc;
    }
}

/* After the failure in `err`. 0 when the pipeline continues. */
static int recover(struct hy_hdfs_pipeline *p, struct hy_err *err)
{
    const bool is_closing = p->is_closing;
    int rc;

    for (;;) {
        if (err->code == -EINTR || err->code == -ENOMEM || ++p->recoveries > RECOVERIES_MAX)
            return err->code;
        hy_hdfs_datanode_close(hy_take(p->dn));
        rc = remove_failed(p, p->bad, err);
        p->bad = -1;
        if (rc == 0 && !is_closing)
            replace_lost(p);
        if (rc == 0)
            rc = renew(p,
                       is_closing ? HDFS__OP_WRITE_BLOCK__STAGE__PIPELINE_CLOSE_RECOVERY
                                  : HDFS__OP_WRITE_BLOCK__STAGE__PIPELINE_SETUP_STREAMING_RECOVERY,
                       err);
        if (rc < 0)
            return rc;
        if (is_closing) { /* the recovery has finished the block */
            while (!hy_list_empty(&p->sent))
                on_acked(p, hy_container(p->sent.next, struct hy_hdfs_out_packet, link));
            return 0;
        }
        if (send_again(p, err) == 0)
            return 0;
    }
}

/* ---- public functions ------------------------------------------------------------------ */

static int wait_for_window(struct hy_hdfs_pipeline *p, size_t most, struct hy_err *err)
{
    while (p->sent_count > most) {
        int rc = receive_acks(p, err);

        if (rc < 0)
            rc = recover(p, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static size_t window(const struct hy_hdfs_pipeline *p)
{
    const size_t packets = WINDOW / p->file.packet;

    return packets > WINDOW_MIN ? packets : WINDOW_MIN;
}

int hy_hdfs_pipeline_send(struct hy_hdfs_pipeline *p, struct hy_hdfs_out_packet *o, struct hy_err *err)
{
    int rc = p->dn ? wait_for_window(p, window(p) - 1, err) : hy_err_set(err, -EIO, "an earlier write has failed");

    if (rc < 0) {
        free(o);
        return rc;
    }
    o->head.number = ++p->last_number;
    hy_list_push(&p->sent, &o->link);
    p->sent_count++;
    rc = send_packet(p, o, err);
    return rc < 0 ? recover(p, err) : 0;
}

void hy_hdfs_pipeline_require_replacement(struct hy_hdfs_pipeline *p)
{
    p->needs_replacement = true;
}

int hy_hdfs_pipeline_wait_acks(struct hy_hdfs_pipeline *p, struct hy_err *err)
{
    return wait_for_window(p, 0, err);
}

int hy_hdfs_pipeline_finish(struct hy_hdfs_pipeline *p, struct hy_err *err)
{
    struct hy_hdfs_out_packet *last;
    int rc = hy_hdfs_pipeline_wait_acks(p, err);

    if (rc < 0)
        return rc;
    last = hy_hdfs_out_packet_new(&p->file.checksums, 0);
    if (!last)
        return hy_err_oom(err);
    last->head.offset = p->bytes_acked;
    last->head.is_last = true;
    p->is_closing = true;
    rc = hy_hdfs_pipeline_send(p, last, err);
    return rc < 0 ? rc : hy_hdfs_pipeline_wait_acks(p, err);
}

void hy_hdfs_pipeline_heartbeat(struct hy_hdfs_pipeline *p)
{
    struct hy_hdfs_out_packet *o = hy_hdfs_out_packet_new(&p->file.checksums, 0);
    struct hy_err err;

    if (!o || !p->dn) {
        free(o);
        return;
    }
    o->head.number = -1;
    if (send_packet(p, o, &err) == 0 && hy_hdfs_sock_poll(&p->dn->sock, 0) > 0)
        (void)receive_acks(p, &err); /* the next write reports the failure */
    free(o);
}

int hy_hdfs_pipeline_open(struct hy_hdfs_pipeline **ret, const struct hy_hdfs_pipeline_file *file,
                          Hdfs__LocatedBlock *block, bool is_append, Hdfs__DatanodeInfo **ret_bad, struct hy_err *err)
{
    struct hy_hdfs_pipeline *p = hy_calloc(1, sizeof(*p));
    int rc, bad = -1;

    *ret_bad = NULL;
    if (!p) {
        hdfs__located_block__free_unpacked(block, NULL);
        return hy_err_oom(err);
    }
    p->file = *file;
    p->block = block;
    p->bad = -1;
    p->last_number = -1;
    p->needs_replacement = is_append;
    p->bytes_sent = p->bytes_acked = block->b->numbytes;
    block->b->has_numbytes = 1;
    hy_list_init(&p->sent);
    hy_list_init(&p->spare);
    if (is_append)
        rc = renew(p, HDFS__OP_WRITE_BLOCK__STAGE__PIPELINE_SETUP_APPEND, err);
    else
        rc = set_up(p, HDFS__OP_WRITE_BLOCK__STAGE__PIPELINE_SETUP_CREATE, 0, &bad, err);
    if (rc < 0) {
        if (bad >= 0 && (size_t)bad < block->n_locs)
            *ret_bad = remove_node(block, (size_t)bad);
        hy_hdfs_pipeline_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

static void free_all(struct hy_list *list)
{
    hy_list_each(it, list)
        free(hy_container(it, struct hy_hdfs_out_packet, link));
}

void hy_hdfs_pipeline_free(struct hy_hdfs_pipeline *p)
{
    if (!p)
        return;
    hy_hdfs_datanode_close(p->dn);
    free_all(&p->sent);
    free_all(&p->spare);
    for (size_t i = 0; i < p->lost_count; i++)
        hdfs__datanode_info__free_unpacked(p->lost[i], NULL);
    hdfs__located_block__free_unpacked(p->block, NULL);
    free(p);
}
