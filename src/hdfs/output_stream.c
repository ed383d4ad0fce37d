/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes files: bytes are split into packets of whole chunks, packets into blocks.
 *
 * A flush sends a packet whose last chunk may be partial. The next packet begins
 * with that chunk again, because a checksum covers a whole chunk. So does the first
 * packet of an append, with the last chunk of the file.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "hdfs/lease_renewer.h"
#include "hdfs/data/pipeline.h"
#include "hdfs/sock.h"
#include "hdfs/stream.h"

#define PACKET_DATA (512u << 10) /* Hadoop's client uses 64 KiB; the cost per packet is high */
#define IDLE_MS 10000
#define BLOCK_TRIES 8
#define EXCLUDED_MAX 32
#define COMPLETE_MS 120000 /* until the DataNodes report the last block */
#define SHOULD_REPLICATE 0x80 /* also in a directory with an erasure coding policy */

struct output {
    struct hy_fs_file base;
    struct hy_hdfs_lease lease;
    struct hy_hdfs_pipeline_file file;
    char *path;
    struct hy_err failure;

    pthread_mutex_t lock; /* protects the fields below, also used by the lease renewer */
    struct hy_hdfs_pipeline *pipeline; /* NULL between blocks */
    int64_t used_ms;
    uint64_t size;        /* of the file, with everything written */
    uint64_t block_start; /* in the file */
    struct hy_hdfs_out_packet *filling;
    Hdfs__ExtendedBlock *last; /* the previous block; or NULL */
    Hdfs__DatanodeInfo *excluded[EXCLUDED_MAX]; /* failed to set up a pipeline */
    size_t excluded_count;
    bool is_flushed; /* nothing was written since the last flush */
};

/* ---- calls to the NameNode ----------------------------------------------------------- */

static Hdfs__ExtendedBlock *copy_block(const Hdfs__ExtendedBlock *b)
{
    const size_t n = hdfs__extended_block__get_packed_size(b);
    hy_cleanup_free uint8_t *bytes = hy_malloc(n + 1);

    return bytes ? hdfs__extended_block__unpack(NULL, hdfs__extended_block__pack(b, bytes), bytes) : NULL;
}

static int add_block(struct output *out, Hdfs__LocatedBlock **ret, struct hy_err *err)
{
    Hdfs__AddBlockRequest request = HDFS__ADD_BLOCK_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__AddBlockResponse *response = NULL;
    int rc;

    request.src = out->path;
    request.clientname = (char *)out->file.cluster->client_name;
    request.previous = out->last;
    request.excludenodes = out->excluded;
    request.n_excludenodes = out->excluded_count;
    request.has_fileid = 1;
    request.fileid = out->file.id;
    rc = hy_hdfs_call(out->file.cluster, "addBlock", &request.base, &hdfs__add_block_response__descriptor, &response,
                      err);
    if (rc == 0)
        *ret = hy_take(response->block);
    if (rc == 0)
        (*ret)->b->numbytes = 0;
    return rc;
}

static int abandon_block(struct output *out, Hdfs__ExtendedBlock *b, struct hy_err *err)
{
    Hdfs__AbandonBlockRequest request = HDFS__ABANDON_BLOCK_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__Nothing *response = NULL;

    request.b = b;
    request.src = out->path;
    request.holder = (char *)out->file.cluster->client_name;
    request.has_fileid = 1;
    request.fileid = out->file.id;
    return hy_hdfs_call(out->file.cluster, "abandonBlock", &request.base, &hdfs__nothing__descriptor, &response, err);
}

static void clear_excluded(struct output *out)
{
    for (size_t i = 0; i < out->excluded_count; i++)
        hdfs__datanode_info__free_unpacked(out->excluded[i], NULL);
    out->excluded_count = 0;
}

/* Takes `bad`. */
static void exclude(struct output *out, Hdfs__DatanodeInfo *bad)
{
    if (out->excluded_count < EXCLUDED_MAX)
        out->excluded[out->excluded_count++] = bad;
    else
        hdfs__datanode_info__free_unpacked(bad, NULL);
}

/* Starts a new block. DataNodes that failed for an earlier block are tried again when no other is left. */
static int next_block(struct output *out, struct hy_err *err)
{
    size_t failed_earlier = out->excluded_count;
    int rc = 0;

    for (int i = 0; i < BLOCK_TRIES; i++) {
        struct hy_err ignored;
        Hdfs__LocatedBlock *block = NULL;
        Hdfs__DatanodeInfo *bad;
        hy_cleanup_hdfs_response Hdfs__ExtendedBlock *failed = NULL;

        rc = add_block(out, &block, err);
        if (rc == -ENOSPC && failed_earlier) {
            clear_excluded(out);
            failed_earlier = 0;
            continue;
        }
        if (rc < 0)
            return rc;
        failed = copy_block(block->b);
        rc = hy_hdfs_pipeline_open(&out->pipeline, &out->file, block, false, &bad, err);
        if (bad)
            exclude(out, bad);
        if (rc == 0 || rc == -EINTR || rc == -ENOMEM || !failed)
            return rc;
        if (abandon_block(out, failed, &ignored) < 0)
            return rc; /* report the first error */
    }
    return rc;
}

/* Makes the block and its length visible to readers. */
static int publish_length(struct output *out, struct hy_err *err)
{
    Hdfs__FsyncRequest request = HDFS__FSYNC_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__Nothing *response = NULL;

    request.src = out->path;
    request.client = (char *)out->file.cluster->client_name;
    request.has_lastblocklength = request.has_fileid = 1;
    request.lastblocklength = out->pipeline ? (int64_t)hy_hdfs_pipeline_block(out->pipeline)->numbytes : -1;
    request.fileid = out->file.id;
    return hy_hdfs_call(out->file.cluster, "fsync", &request.base, &hdfs__nothing__descriptor, &response, err);
}

static int complete(struct output *out, struct hy_err *err)
{
    const int64_t end = hy_clock_ms() + COMPLETE_MS;
    Hdfs__CompleteRequest request = HDFS__COMPLETE_REQUEST__INIT;
    int wait = 10;

    request.src = out->path;
    request.clientname = (char *)out->file.cluster->client_name;
    request.last = out->last;
    request.has_fileid = 1;
    request.fileid = out->file.id;
    for (;;) {
        hy_cleanup_hdfs_response Hdfs__Result *response = NULL;
        int rc = hy_hdfs_call(out->file.cluster, "complete", &request.base, &hdfs__result__descriptor, &response, err);

        if (rc < 0 || response->result)
            return rc;
        if (hy_clock_ms() > end)
            return hy_err_set(err, -ETIMEDOUT,
                              "its last block was written, but no DataNode has reported it to the"
                              " NameNode within %d s",
                              COMPLETE_MS / 1000);
        if (hy_hdfs_sock_sleep(wait) < 0)
            return hy_err_set(err, -EINTR, "interrupted");
        wait = 2 * wait > 1000 ? 1000 : 2 * wait;
    }
}

/* ---- packets and blocks ------------------------------------------------------------ */

static uint64_t in_block(const struct output *out)
{
    return out->size - out->block_start;
}

/* Starts the packet for the next byte. */
static int begin_packet(struct output *out, struct hy_err *err)
{
    struct hy_hdfs_out_packet *o = out->pipeline ? hy_hdfs_pipeline_recycle(out->pipeline) : NULL;

    if (!o)
        o = hy_hdfs_out_packet_new(&out->file.checksums, out->file.packet);
    if (!o)
        return hy_err_set(err, -ENOMEM, "out of memory for a packet");
    o->head = (struct hy_hdfs_packet){.offset = in_block(out)};
    out->filling = o;
    return 0;
}

/* Sends the packet, and begins the next one with its last chunk when that is partial. */
static int send_packet(struct output *out, bool is_sync, struct hy_err *err)
{
    struct hy_hdfs_out_packet *o = hy_take(out->filling);
    const size_t rest = o->head.data % out->file.checksums.chunk;
    int rc = 0;

    if (rest && in_block(out) < out->file.block_size) {
        const size_t whole = o->head.data - rest;

        rc = begin_packet(out, err);
        if (rc == 0) {
            out->filling->head.offset = o->head.offset + whole;
            out->filling->head.data = (uint32_t)rest;
            memcpy(out->filling->data, o->data + whole, rest);
        }
    }
    o->head.is_sync = is_sync;
    o->head.sums = (uint32_t)hy_hdfs_checksums_size(&out->file.checksums, o->head.data);
    hy_hdfs_checksums_compute(&out->file.checksums, o->data, o->head.data, o->sums);
    if (rc < 0) {
        free(o);
        return rc;
    }
    return hy_hdfs_pipeline_send(out->pipeline, o, err);
}

static int end_block(struct output *out, struct hy_err *err)
{
    int rc = hy_hdfs_pipeline_finish(out->pipeline, err);

    if (rc < 0)
        return rc;
    hy_hdfs_free_response(&out->last);
    out->last = copy_block(hy_hdfs_pipeline_block(out->pipeline));
    hy_hdfs_pipeline_free(hy_take(out->pipeline));
    free(hy_take(out->filling));
    out->block_start = out->size;
    return out->last ? 0 : hy_err_oom(err);
}

/* Copies as much as fits into the packet, and sends it and ends the block when they are full. */
static int write_some(struct output *out, const uint8_t *bytes, size_t n, size_t *ret, struct hy_err *err)
{
    const uint64_t left = out->file.block_size - in_block(out);
    struct hy_hdfs_out_packet *o;
    int rc = out->pipeline ? 0 : next_block(out, err);

    if (rc == 0 && !out->filling)
        rc = begin_packet(out, err);
    if (rc < 0)
        return rc;
    o = out->filling;
    if (n > out->file.packet - o->head.data)
        n = out->file.packet - o->head.data;
    if (n > left)
        n = (size_t)left;
    memcpy(o->data + o->head.data, bytes, n);
    o->head.data += (uint32_t)n;
    out->size += n;
    *ret = n;
    if (o->head.data == out->file.packet || n == left)
        rc = send_packet(out, false, err);
    return rc == 0 && n == left ? end_block(out, err) : rc;
}

/* Permanent: the file keeps what was flushed. */
static int fail(struct output *out, int rc, struct hy_err *err, const struct hy_err *why)
{
    out->failure = *why;
    out->failure.code = rc;
    hy_err_wrap(&out->failure, "cannot write %s%s", out->file.cluster->name, out->path);
    if (err)
        *err = out->failure;
    return rc;
}

static int report_failure(const struct output *out, struct hy_err *err)
{
    if (err)
        *err = out->failure;
    return out->failure.code;
}

static int output_write(struct hy_fs_file *f, const void *bytes, size_t n, struct hy_err *err)
{
    struct output *out = (struct output *)f;
    struct hy_err why = {0};
    size_t done = 0;
    int rc = 0;

    if (out->failure.code)
        return report_failure(out, err);
    pthread_mutex_lock(&out->lock);
    while (rc == 0 && done < n) {
        size_t some = 0;

        rc = write_some(out, (const uint8_t *)bytes + done, n - done, &some, &why);
        done += some;
    }
    out->used_ms = hy_clock_ms();
    out->is_flushed = out->is_flushed && n == 0;
    pthread_mutex_unlock(&out->lock);
    return rc < 0 ? fail(out, rc, err, &why) : 0;
}

static int flush(struct output *out, bool to_disk, struct hy_err *err)
{
    int rc = 0;

    if (out->is_flushed && !to_disk)
        return 0;
    if (out->pipeline && !out->filling && to_disk)
        rc = begin_packet(out, err); /* without data, only to sync */
    if (rc == 0 && out->pipeline && out->filling && (out->filling->head.data || to_disk))
        rc = send_packet(out, to_disk, err);
    if (rc == 0 && out->pipeline)
        rc = hy_hdfs_pipeline_wait_acks(out->pipeline, err);
    if (rc == 0 && out->pipeline)
        hy_hdfs_pipeline_require_replacement(out->pipeline);
    if (rc == 0)
        rc = publish_length(out, err);
    out->is_flushed = rc == 0;
    return rc;
}

static int output_flush(struct hy_fs_file *f, bool to_disk, struct hy_err *err)
{
    struct output *out = (struct output *)f;
    struct hy_err why = {0};
    int rc;

    if (out->failure.code)
        return report_failure(out, err);
    pthread_mutex_lock(&out->lock);
    rc = flush(out, to_disk, &why);
    out->used_ms = hy_clock_ms();
    pthread_mutex_unlock(&out->lock);
    return rc < 0 ? fail(out, rc, err, &why) : 0;
}

static uint64_t output_size(const struct hy_fs_file *f)
{
    return ((const struct output *)f)->size;
}

/* DataNodes give up after a minute without data. A thread that holds the lock is writing. */
static void heartbeat(struct hy_hdfs_lease *l)
{
    struct output *out = hy_container(l, struct output, lease);

    if (pthread_mutex_trylock(&out->lock) != 0)
        return;
    if (out->pipeline && !out->failure.code && hy_clock_ms() - out->used_ms > IDLE_MS) {
        hy_hdfs_pipeline_heartbeat(out->pipeline);
        out->used_ms = hy_clock_ms();
    }
    pthread_mutex_unlock(&out->lock);
}

/* ---- close -------------------------------------------------------------------------- */

static void output_free(struct output *out)
{
    hy_hdfs_lease_renewer_remove(&out->lease);
    hy_hdfs_pipeline_free(out->pipeline);
    free(out->filling);
    hy_hdfs_free_response(&out->last);
    clear_excluded(out);
    pthread_mutex_destroy(&out->lock);
    free(out->path);
    free(out);
}

/* Sends the rest, ends the block, completes the file. */
static int finish(struct output *out, struct hy_err *err)
{
    int rc = 0;

    if (out->pipeline && out->filling && out->filling->head.data && !out->is_flushed)
        rc = send_packet(out, false, err);
    if (rc == 0 && out->pipeline)
        rc = end_block(out, err);
    return rc < 0 ? rc : complete(out, err);
}

static int output_close(struct hy_fs_file *f, struct hy_err *err)
{
    struct output *out = (struct output *)f;
    struct hy_err why = {0};
    int rc;

    if (out->failure.code) {
        rc = report_failure(out, err);
    } else {
        pthread_mutex_lock(&out->lock);
        rc = finish(out, &why);
        pthread_mutex_unlock(&out->lock);
        if (rc < 0)
            fail(out, rc, err, &why);
    }
    output_free(out);
    return rc;
}

static const struct hy_fs_file_ops output_ops = {
    .size = output_size,
    .write = output_write,
    .flush = output_flush,
    .close = output_close,
};

/* ---- opening ----------------------------------------------------------------------- */

static int checksum_type(const char *name, int otherwise)
{
    static const char *const names[] = {"NULL", "CRC32", "CRC32C"};

    for (int i = 0; name && i < (int)HY_COUNT(names); i++)
        if (strcasecmp(name, names[i]) == 0)
            return i;
    return otherwise;
}

/* From the settings, or the defaults of the cluster. */
static int read_settings(struct output *out, struct hy_err *err)
{
    const struct hy_hdfs_conf *conf = out->file.cluster->conf;
    const Hdfs__ServerDefaults *d;
    struct hy_hdfs_checksums *checksums = &out->file.checksums;
    int rc = hy_hdfs_defaults(out->file.cluster, &d, err);

    if (rc < 0)
        return rc;
    out->file.block_size = hy_hdfs_conf_number(conf, "dfs.blocksize", d->blocksize);
    out->file.replication = (uint32_t)hy_hdfs_conf_number(conf, "dfs.replication", d->replication);
    checksums->chunk = (uint32_t)hy_hdfs_conf_number(conf, "dfs.bytes-per-checksum", d->bytesperchecksum);
    checksums->type = checksum_type(hy_hdfs_conf_get(conf, "dfs.checksum.type"), (int)d->checksumtype);
    return 0;
}

/* Bytes of data in a packet: whole chunks. */
static size_t packet_data(const struct hy_hdfs_conf *conf, const struct hy_hdfs_checksums *checksums)
{
    const uint64_t configured = hy_hdfs_conf_number(conf, "dfs.client-write-packet-size", PACKET_DATA);
    const uint64_t most = HY_HDFS_PACKET_BODY_MAX / 2;
    const size_t data = (size_t)(configured < most ? configured : most);

    return checksums->chunk >= data ? checksums->chunk : data / checksums->chunk * checksums->chunk;
}

/* Adopts the attributes that the NameNode returned for the file. */
static int set_status(struct output *out, const Hdfs__FileStatus *s, struct hy_err *err)
{
    const struct hy_hdfs_checksums *checksums = &out->file.checksums;

    if (!s || !hy_hdfs_checksums_are_supported(checksums) || s->blocksize == 0 || s->blocksize % checksums->chunk)
        return hy_err_set(err, -EINVAL, "blocks of %llu bytes cannot be divided into chunks of %u bytes",
                          (unsigned long long)(s ? s->blocksize : 0), checksums->chunk);
    out->file.id = s->fileid;
    out->file.block_size = s->blocksize;
    out->file.replication = s->block_replication;
    out->file.packet = packet_data(out->file.cluster->conf, checksums);
    return 0;
}

static int create(struct output *out, enum hy_fs_open_mode mode, struct hy_err *err)
{
    Hdfs__CreateRequest request = HDFS__CREATE_REQUEST__INIT;
    Hdfs__Permission masked = HDFS__PERMISSION__INIT, unmasked = HDFS__PERMISSION__INIT;
    hy_cleanup_hdfs_response Hdfs__CreateResponse *response = NULL;
    int rc;

    masked.perm = hy_hdfs_masked(out->file.cluster, 0666);
    unmasked.perm = 0666;
    request.src = out->path;
    request.masked = &masked;
    request.unmasked = &unmasked;
    request.clientname = (char *)out->file.cluster->client_name;
    request.createflag = HDFS__CREATE_FLAG__CREATE | SHOULD_REPLICATE |
                         (mode == HY_FS_WRITE ? (uint32_t)HDFS__CREATE_FLAG__OVERWRITE : 0);
    request.createparent = 1;
    request.replication = out->file.replication;
    request.blocksize = out->file.block_size;
    rc = hy_hdfs_call(out->file.cluster, "create", &request.base, &hdfs__create_response__descriptor, &response, err);
    return rc < 0 ? rc : set_status(out, response->fs, err);
}

/* Reads the last chunk when it is partial: it is sent again with the bytes that follow. */
static int read_last_chunk(struct output *out, uint64_t size, struct hy_err *err)
{
    const size_t rest = (size_t)((size - out->block_start) % out->file.checksums.chunk);
    struct hy_fs_file *f;
    int64_t got;
    int rc;

    if (rest == 0)
        return 0;
    rc = hy_hdfs_input_open(out->file.cluster, out->path, &f, err);
    if (rc < 0)
        return rc;
    got = hy_fs_pread(f, out->filling->data, rest, size - rest, err);
    (void)hy_fs_close(f, NULL); /* reading has nothing to lose */
    if (got < 0)
        return (int)got;
    if ((size_t)got != rest)
        return hy_err_set(err, -EIO, "cannot read its last bytes");
    out->filling->head.offset -= rest;
    out->filling->head.data = (uint32_t)rest;
    return 0;
}

/* Continues in the last block. */
static int resume_block(struct output *out, Hdfs__LocatedBlock *block, struct hy_err *err)
{
    Hdfs__DatanodeInfo *bad;
    int rc;

    out->block_start = block->offset;
    if (out->size > INT64_MAX || block->offset > out->size || in_block(out) != block->b->numbytes ||
        in_block(out) > out->file.block_size)
        rc = hy_err_set(err, -EPROTO,
                        "the NameNode sent a last block that does not fit the file's length: %llu bytes, and a"
                        " block of %llu at byte %llu",
                        (unsigned long long)out->size, (unsigned long long)block->b->numbytes,
                        (unsigned long long)block->offset);
    else
        rc = begin_packet(out, err);
    if (rc == 0)
        rc = read_last_chunk(out, out->size, err);
    if (rc < 0) {
        hdfs__located_block__free_unpacked(block, NULL);
        return rc;
    }
    return hy_hdfs_pipeline_open(&out->pipeline, &out->file, block, true, &bad, err);
}

static int append(struct output *out, struct hy_err *err)
{
    Hdfs__AppendRequest request = HDFS__APPEND_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__AppendResponse *response = NULL;
    int rc;

    request.src = out->path;
    request.clientname = (char *)out->file.cluster->client_name;
    request.has_flag = 1;
    request.flag = HDFS__CREATE_FLAG__APPEND;
    rc = hy_hdfs_call(out->file.cluster, "append", &request.base, &hdfs__append_response__descriptor, &response, err);
    if (rc == 0)
        rc = set_status(out, response->stat, err);
    if (rc < 0)
        return rc;
    out->size = out->block_start = response->stat->length;
    return response->block ? resume_block(out, hy_take(response->block), err) : 0;
}

static int open_as(struct output *out, enum hy_fs_open_mode mode, struct hy_err *err)
{
    int rc = read_settings(out, err);

    if (rc == 0 && mode == HY_FS_APPEND) {
        rc = append(out, err);
        if (rc != -ENOENT)
            return rc;
        rc = 0;
    }
    return rc < 0 ? rc : create(out, mode, err);
}

int hy_hdfs_output_open(struct hy_hdfs_cluster *c, const char *path, enum hy_fs_open_mode mode, struct hy_fs_file **ret,
                        struct hy_err *err)
{
    struct output *out = hy_calloc(1, sizeof(*out));
    struct hy_err why = {0};
    int rc;

    if (!out || !(out->path = hy_strdup(path))) {
        free(out);
        return hy_err_oom(err);
    }
    out->base.ops = &output_ops;
    out->file.cluster = out->lease.cluster = c;
    out->file.path = out->path;
    out->lease.heartbeat = heartbeat;
    out->used_ms = hy_clock_ms();
    pthread_mutex_init(&out->lock, NULL);
    rc = open_as(out, mode, &why);
    if (rc == 0)
        rc = hy_hdfs_lease_renewer_add(&out->lease, &why);
    if (rc < 0) {
        if (err)
            *err = why;
        output_free(out);
        return rc;
    }
    *ret = &out->base;
    return 0;
}
