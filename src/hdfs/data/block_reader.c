/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A DataNode sends packets (packet.c) of whole chunks: the first may begin before
 * the requested range, the last may extend past it, and a packet without data ends
 * it. Then we report that the checksums were right, and the connection is idle.
 *
 * The data of a packet is received directly into the caller's buffer. Bytes beyond
 * it, from the same system call, go to `side`: usually exactly the header and
 * checksums of the next packet.
 */
#include "hdfs/data/block_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "hdfs/cluster.h"
#include "hdfs/data/datanode.h"
#include "hdfs/data/short_circuit.h"
#include "hdfs/data/packet.h"
#include "hdfs/rpc/rpc.h"

#define SIDE_SIZE 4096u

struct hy_hdfs_block_reader {
    struct hy_hdfs_local_replica *local; /* NULL: over the connection */
    struct hy_hdfs_datanode *dn;
    struct hy_hdfs_block_request want;
    uint64_t at;  /* the next byte for the caller */
    uint64_t end; /* of the packets so far */
    bool has_response, is_finished;
    struct hy_hdfs_checksums checksums;

    uint8_t side[SIDE_SIZE]; /* bytes received early */
    size_t side_at, side_n;
    size_t side_want; /* expected size of the next header and checksums */

    uint8_t *sums;
    size_t sums_cap;
    uint8_t *data; /* a packet that the caller reads in parts; [data_at, data_n) is left */
    size_t data_cap, data_at, data_n;
};

/* ---- receiving ------------------------------------------------------------------------- */

static size_t take_from_side(struct hy_hdfs_block_reader *r, void *into, size_t n)
{
    const size_t there = r->side_n - r->side_at;

    if (n > there)
        n = there;
    memcpy(into, r->side + r->side_at, n);
    r->side_at += n;
    if (r->side_at == r->side_n)
        r->side_at = r->side_n = 0;
    return n;
}

/* Receives exactly n bytes, and possibly more into the side buffer. */
static int pull(struct hy_hdfs_block_reader *r, void *into, size_t n)
{
    size_t got = take_from_side(r, into, n);

    while (got < n) {
        struct iovec parts[2] = {
            {.iov_base = (char *)into + got, .iov_len = n - got},
            {.iov_base = r->side, .iov_len = r->side_want},
        };
        ssize_t rc = hy_hdfs_sock_recvv(&r->dn->sock, parts, 2);

        if (rc < 0)
            return (int)rc;
        if ((size_t)rc > n - got) {
            r->side_at = 0;
            r->side_n = (size_t)rc - (n - got);
            return 0;
        }
        got += (size_t)rc;
    }
    return 0;
}

/* Fills the side buffer to at least n bytes. */
static int pull_to_side(struct hy_hdfs_block_reader *r, size_t n)
{
    if (r->side_at) {
        memmove(r->side, r->side + r->side_at, r->side_n - r->side_at);
        r->side_n -= r->side_at;
        r->side_at = 0;
    }
    while (r->side_n < n) {
        size_t target = n > r->side_want ? n : r->side_want;
        ssize_t rc = hy_hdfs_sock_recv(&r->dn->sock, r->side + r->side_n, target - r->side_n);

        if (rc < 0)
            return (int)rc;
        r->side_n += (size_t)rc;
    }
    return 0;
}

static int reserve(uint8_t **buffer, size_t *cap, size_t n)
{
    uint8_t *larger;

    if (*cap >= n)
        return 0;
    larger = hy_reallocarray(*buffer, n, 1);
    if (!larger)
        return -ENOMEM;
    *buffer = larger;
    *cap = n;
    return 0;
}

/* ---- request and response --------------------------------------------------------- */

static int send_request(struct hy_hdfs_block_reader *r)
{
    Hdfs__OpReadBlock op = HDFS__OP_READ_BLOCK__INIT;
    Hdfs__ClientOperationHeader header = HDFS__CLIENT_OPERATION_HEADER__INIT;
    Hdfs__BaseHeader base = HDFS__BASE_HEADER__INIT;

    base.block = (Hdfs__ExtendedBlock *)r->want.block;
    base.token = (Hdfs__Token *)r->want.token;
    header.baseheader = &base;
    header.clientname = (char *)r->want.cluster->client_name;
    op.header = &header;
    op.offset = r->want.from;
    op.len = r->want.to - r->want.from;
    return hy_hdfs_datanode_request(r->dn, HY_HDFS_OP_READ, &op.base);
}

int hy_hdfs_block_reader_open(struct hy_hdfs_block_reader **ret, const struct hy_hdfs_block_request *want,
                              struct hy_err *err)
{
    struct hy_hdfs_block_reader *r = hy_calloc(1, sizeof(*r));
    char name[300];
    int rc;

    if (!r)
        return hy_err_set(err, -ENOMEM, "out of memory for reading a block");
    r->want = *want;
    r->at = r->end = want->from;
    if (hy_hdfs_local_replica_open(&r->local, want) == 0) {
        *ret = r;
        return 0;
    }
    rc = hy_hdfs_datanode_open(&r->dn, want->cluster, want->node, want->token, false, want->timeout_ms, err);
    if (rc == 0) {
        rc = send_request(r);
        if (rc < 0 && r->dn->is_reused) { /* the DataNode may have closed the cached connection */
            hy_hdfs_datanode_close(hy_take(r->dn));
            rc = hy_hdfs_datanode_open(&r->dn, want->cluster, want->node, want->token, true, want->timeout_ms, err);
            if (rc == 0)
                rc = send_request(r);
        }
        if (rc < 0 && r->dn)
            hy_err_sys(err, rc, "cannot send a request to the DataNode %s",
                       hy_hdfs_datanode_name(want->node, name, sizeof(name)));
    }
    if (rc < 0)
        hy_hdfs_block_reader_close(r);
    else
        *ret = r;
    return rc;
}

static int bad_response(const struct hy_hdfs_block_reader *r, const char *what, struct hy_err *err)
{
    char name[300];

    return hy_err_set(err, -EPROTO, "the DataNode %s sent %s", hy_hdfs_datanode_name(r->want.node, name, sizeof(name)),
                      what);
}

static int receive_response(struct hy_hdfs_block_reader *r, struct hy_err *err)
{
    hy_cleanup_hdfs_response Hdfs__BlockOpResponse *response = NULL;
    int rc = hy_hdfs_datanode_response(r->dn, &response, err);

    if (rc < 0 && r->dn->is_reused && (rc == -ECONNRESET || rc == -EPIPE)) {
        hy_hdfs_datanode_close(hy_take(r->dn));
        rc = hy_hdfs_datanode_open(&r->dn, r->want.cluster, r->want.node, r->want.token, true, r->want.timeout_ms, err);
        if (rc == 0)
            rc = send_request(r);
        if (rc == 0)
            rc = hy_hdfs_datanode_response(r->dn, &response, err);
    }
    if (rc < 0)
        return rc;
    if (!response->readopchecksuminfo)
        return bad_response(r, "a response without checksums", err);
    r->checksums.type = (int)response->readopchecksuminfo->checksum->type;
    r->checksums.chunk = response->readopchecksuminfo->checksum->bytesperchecksum;
    r->end = response->readopchecksuminfo->chunkoffset;
    if (!hy_hdfs_checksums_are_supported(&r->checksums) || r->end > r->want.from)
        return bad_response(r, "a response with unsupported checksums", err);
    r->has_response = true;
    return 0;
}

/* ---- packets ----------------------------------------------------------------------- */

static int receive_header(struct hy_hdfs_block_reader *r, struct hy_hdfs_packet *p, struct hy_err *err)
{
    size_t need = 6;
    int rc;

    for (;;) {
        rc = pull_to_side(r, need);
        if (rc < 0)
            return rc;
        rc = hy_hdfs_packet_parse(r->side, r->side_n, p);
        if (rc != 0)
            break;
        need = need == 6 ? 6 + ((size_t)r->side[4] << 8 | r->side[5]) : HY_HDFS_PACKET_HEADER_MAX;
    }
    if (rc < 0)
        return bad_response(r, "an invalid packet header", err);
    r->side_at = (size_t)rc;
    r->side_want = (size_t)rc + p->sums < SIDE_SIZE ? (size_t)rc + p->sums : SIDE_SIZE;
    if (p->offset != r->end || p->sums != hy_hdfs_checksums_size(&r->checksums, p->data) || (p->is_last && p->data))
        return bad_response(r, "a packet out of order", err);
    return 0;
}

/* Reports success: the DataNode marks the replica as verified. */
static void send_read_status(struct hy_hdfs_block_reader *r)
{
    Hdfs__ClientReadStatus status = HDFS__CLIENT_READ_STATUS__INIT;
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 64);
    status.status = HDFS__STATUS__CHECKSUM_OK;
    r->is_finished = true;
    if (r->side_n == r->side_at && hy_hdfs_delimited_append(&b, &status.base) == 0 &&
        hy_hdfs_sock_send_all(&r->dn->sock, &(struct iovec){.iov_base = (void *)hy_buf_bytes(&b), .iov_len = b.len},
                              1) == 0)
        hy_hdfs_datanode_release(hy_take(r->dn));
}

static int damaged(const struct hy_hdfs_block_reader *r, uint64_t at, struct hy_err *err)
{
    char name[300];

    return hy_err_set(err, -EBADMSG, "the replica of block %llu on the DataNode %s is damaged at byte %llu",
                      (unsigned long long)r->want.block->blockid,
                      hy_hdfs_datanode_name(r->want.node, name, sizeof(name)), (unsigned long long)at);
}

static int check(const struct hy_hdfs_block_reader *r, const struct hy_hdfs_packet *p, const uint8_t *data,
                 struct hy_err *err)
{
    const size_t bad = hy_hdfs_checksums_check(&r->checksums, data, p->data, r->sums);

    return bad == p->data ? 0 : damaged(r, p->offset + bad, err);
}

/* Receives checksums and data of a packet, into `into` (large enough) or r->data. */
static int receive_body(struct hy_hdfs_block_reader *r, const struct hy_hdfs_packet *p, uint8_t *into,
                        struct hy_err *err)
{
    int rc = reserve(&r->sums, &r->sums_cap, p->sums + 1);

    if (rc == 0 && !into)
        rc = reserve(&r->data, &r->data_cap, p->data + 1);
    if (rc == 0)
        rc = pull(r, r->sums, p->sums);
    if (rc == 0)
        rc = pull(r, into ? into : r->data, p->data);
    if (rc == 0)
        rc = check(r, p, into ? into : r->data, err);
    r->end = p->offset + p->data;
    return rc;
}

/* The next packet. Returns the bytes stored in `into`; 0 when they are in r->data, or it was the last packet. */
static int64_t next_packet(struct hy_hdfs_block_reader *r, uint8_t *into, size_t n, struct hy_err *err)
{
    struct hy_hdfs_packet p;
    bool is_direct;
    int rc = receive_header(r, &p, err);

    if (rc < 0)
        return rc;
    if (p.is_last) {
        if (r->end < r->want.to)
            return bad_response(r, "less than requested", err);
        send_read_status(r);
        return 0;
    }
    if (p.offset >= r->want.to) /* the last packet extends to the end of a chunk; none starts after it */
        return bad_response(r, "more than requested", err);
    is_direct = p.offset == r->at && p.data <= n && p.offset + p.data <= r->want.to;
    rc = receive_body(r, &p, is_direct ? into : NULL, err);
    if (rc < 0)
        return rc;
    if (is_direct) {
        r->at += p.data;
        return p.data;
    }
    r->data_n = p.offset + p.data > r->want.to ? (size_t)(r->want.to - p.offset) : p.data;
    r->data_at = p.offset < r->at ? (size_t)(r->at - p.offset) : 0;
    if (r->data_at > r->data_n)
        r->data_at = r->data_n;
    return 0;
}

static size_t take_data(struct hy_hdfs_block_reader *r, uint8_t *into, size_t n)
{
    const size_t there = r->data_n - r->data_at;

    if (n > there)
        n = there;
    memcpy(into, r->data + r->data_at, n);
    r->data_at += n;
    r->at += n;
    return n;
}

static bool is_complete(const struct hy_hdfs_block_reader *r)
{
    return r->data_at == r->data_n && (r->is_finished || r->at == r->want.to);
}

static int64_t read_local(struct hy_hdfs_block_reader *r, void *into, size_t n, struct hy_err *err)
{
    const uint64_t before = r->at;
    char name[300];
    int rc = hy_hdfs_local_replica_read(r->local, &r->at, r->want.to, into, n);

    if (rc == -EBADMSG)
        return damaged(r, hy_hdfs_local_replica_chunk_start(r->local, r->at), err);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot read the local files of block %llu of the DataNode %s",
                          (unsigned long long)r->want.block->blockid,
                          hy_hdfs_datanode_name(r->want.node, name, sizeof(name)));
    return (int64_t)(r->at - before);
}

int64_t hy_hdfs_block_reader_read(struct hy_hdfs_block_reader *r, void *into, size_t n, struct hy_err *err)
{
    struct hy_err own = {0};
    char name[300];
    size_t done = 0;
    int64_t rc = 0;

    err = err ? err : &own;
    err->code = 0;
    if (r->local)
        return read_local(r, into, n, err);
    if (!r->has_response)
        rc = receive_response(r, err);
    while (rc >= 0 && done < n && !is_complete(r)) {
        if (r->data_at < r->data_n) {
            done += take_data(r, (uint8_t *)into + done, n - done);
            continue;
        }
        rc = next_packet(r, (uint8_t *)into + done, n - done, err);
        done += rc > 0 ? (size_t)rc : 0;
    }
    if (rc >= 0 && is_complete(r) && !r->is_finished) /* the final packet without data follows */
        rc = next_packet(r, NULL, 0, err);
    if (rc < 0 && err->code == 0)
        hy_err_sys(err, (int)rc, "no data from the DataNode %s",
                   hy_hdfs_datanode_name(r->want.node, name, sizeof(name)));
    return rc < 0 ? rc : (int64_t)done;
}

uint64_t hy_hdfs_block_reader_offset(const struct hy_hdfs_block_reader *r)
{
    return r->at;
}

void hy_hdfs_block_reader_widen(struct hy_hdfs_block_reader *r)
{
    if (r->dn)
        hy_hdfs_sock_widen(&r->dn->sock);
}

void hy_hdfs_block_reader_close(struct hy_hdfs_block_reader *r)
{
    if (!r)
        return;
    hy_hdfs_local_replica_close(r->local);
    hy_hdfs_datanode_close(r->dn);
    free(r->sums);
    free(r->data);
    free(r);
}
