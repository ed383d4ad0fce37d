/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A DataNode stores a replica in two files:
 *
 *     blk_1              data
 *     blk_1_1001.meta    u16 version, u8 checksum type, u32 bytes per chunk, checksums
 */
#include "hdfs/data/short_circuit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/text.h"
#include "hdfs/data/block_reader.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "hdfs/data/datanode.h"
#include "hdfs/data/packet.h"
#include "hdfs/sock.h"

#define VERSION 1              /* of both files */
#define META_HEAD 7u
#define LARGE_READ (256u << 10) /* bytes read and verified at once; fits into a CPU cache */
#define SMALL_READ (64u << 10)  /* the same for smaller requests */
#define REFUSED_MS (10 * 60000) /* as in Hadoop's client */
#define REFUSED_MAX 16
#define PATH_SIZE 128

struct hy_hdfs_local_replica {
    int data, meta;
    uint64_t length; /* of the data */
    struct hy_hdfs_checksums checksums;
    size_t large, small; /* LARGE_READ and SMALL_READ, in whole chunks */
    uint8_t *sums;    /* of `large` bytes */
    uint8_t *partial; /* chunks that are read in parts; NULL: none yet */
    size_t partial_n;
    uint64_t partial_at;
};

/* ---- availability ----------------------------------------------------------- */

/* Sockets that refused recently; the oldest entry is replaced first. */
static struct {
    pthread_mutex_t lock;
    struct {
        char path[PATH_SIZE];
        int64_t until;
    } all[REFUSED_MAX];
} refused = {.lock = PTHREAD_MUTEX_INITIALIZER};

void hy_hdfs_local_replica_forked(void)
{
    pthread_mutex_init(&refused.lock, NULL);
}

void hy_hdfs_local_replica_done(void)
{
    pthread_mutex_lock(&refused.lock);
    memset(refused.all, 0, sizeof(refused.all));
    pthread_mutex_unlock(&refused.lock);
}

static bool is_refused(const char *path)
{
    bool found = false;

    pthread_mutex_lock(&refused.lock);
    for (size_t i = 0; i < REFUSED_MAX; i++)
        found = found || (refused.all[i].until > hy_clock_ms() && strcmp(refused.all[i].path, path) == 0);
    pthread_mutex_unlock(&refused.lock);
    return found;
}

static void refuse(const char *path)
{
    size_t oldest = 0;

    pthread_mutex_lock(&refused.lock);
    for (size_t i = 1; i < REFUSED_MAX; i++)
        if (refused.all[i].until < refused.all[oldest].until)
            oldest = i;
    snprintf(refused.all[oldest].path, PATH_SIZE, "%s", path);
    refused.all[oldest].until = hy_clock_ms() + REFUSED_MS;
    pthread_mutex_unlock(&refused.lock);
}

/* The path of the socket, which may contain the DataNode's port. False: not available. */
static bool find_socket(const struct hy_hdfs_block_request *want, char path[PATH_SIZE])
{
    const struct hy_hdfs_conf *conf = want->cluster->conf;
    const char *text = hy_hdfs_conf_get(conf, "dfs.domain.socket.path");
    const char *port = text ? strstr(text, "_PORT") : NULL;
    int n;

    if (!want->may_be_local || !text || !hy_hdfs_conf_bool(conf, "dfs.client.read.shortcircuit", false))
        return false;
    if (port)
        n = snprintf(path, PATH_SIZE, "%.*s%u%s", (int)(port - text), text, want->node->xferport,
                     port + strlen("_PORT"));
    else
        n = snprintf(path, PATH_SIZE, "%s", text);
    return n > 0 && n < PATH_SIZE && !is_refused(path) && hy_hdfs_sock_is_local_address(want->node->ipaddr);
}

/* ---- the files ---------------------------------------------------------------------- */

static int request_files(struct hy_hdfs_datanode *dn, const struct hy_hdfs_block_request *want, int fds[2])
{
    hy_cleanup_hdfs_response Hdfs__BlockOpResponse *response = NULL;
    Hdfs__OpRequestShortCircuitAccess op = HDFS__OP_REQUEST_SHORT_CIRCUIT_ACCESS__INIT;
    Hdfs__BaseHeader header = HDFS__BASE_HEADER__INIT;
    struct hy_err why = {0}; /* the read by TCP reports it again */
    int rc;

    header.block = (Hdfs__ExtendedBlock *)want->block;
    header.token = (Hdfs__Token *)want->token;
    op.header = &header;
    op.maxversion = VERSION;
    rc = hy_hdfs_datanode_request(dn, HY_HDFS_OP_FILES, &op.base);
    if (rc == 0)
        rc = hy_hdfs_datanode_response(dn, &response, &why);
    return rc == 0 ? hy_hdfs_sock_recv_fds(&dn->sock, fds, 2) : rc;
}

static int read_at(int fd, void *into, size_t n, uint64_t at)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = HY_SYS(pread(fd, (char *)into + done, n - done, (off_t)(at + done)));

        if (got == 0 || (got < 0 && errno != EINTR))
            return got == 0 ? -ENODATA : -errno;
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* n rounded down to whole chunks, at least one. */
static size_t in_chunks(const struct hy_hdfs_local_replica *r, size_t n)
{
    return n > r->checksums.chunk ? n - n % r->checksums.chunk : r->checksums.chunk;
}

static int read_metadata(struct hy_hdfs_local_replica *r)
{
    uint8_t head[META_HEAD];
    struct stat st;
    int rc = read_at(r->meta, head, sizeof(head), 0);

    if (rc == 0 && HY_SYS(fstat(r->data, &st)) < 0)
        rc = -errno;
    if (rc < 0)
        return rc;
    r->checksums.type = head[2];
    r->checksums.chunk = (uint32_t)hy_get_be(head + 3, 4);
    r->length = (uint64_t)st.st_size;
    if (hy_get_be(head, 2) != VERSION || !hy_hdfs_checksums_are_supported(&r->checksums))
        return -ENOTSUP;
    r->large = in_chunks(r, LARGE_READ);
    r->small = in_chunks(r, SMALL_READ);
    r->sums = hy_malloc(hy_hdfs_checksums_size(&r->checksums, r->large));
    return r->sums ? 0 : -ENOMEM;
}

static int get_files(const struct hy_hdfs_block_request *want, const char *path, int fds[2])
{
    struct hy_hdfs_datanode *dn = NULL;
    int rc = hy_hdfs_datanode_open_local(&dn, want->cluster, want->node, path, want->timeout_ms);

    if (rc == 0)
        rc = request_files(dn, want, fds);
    hy_hdfs_datanode_close(dn);
    if (rc < 0 && rc != -EREMOTEIO && rc != -EKEYEXPIRED && rc != -EINTR && rc != -ENOMEM)
        refuse(path); /* the excluded errors are about this replica, or about us */
    return rc;
}

int hy_hdfs_local_replica_open(struct hy_hdfs_local_replica **ret, const struct hy_hdfs_block_request *want)
{
    char path[PATH_SIZE];
    struct hy_hdfs_local_replica *r;
    int fds[2], rc;

    if (!find_socket(want, path))
        return -ENOTSUP;
    r = hy_calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->data = r->meta = -1;
    rc = get_files(want, path, fds);
    if (rc == 0) {
        r->data = fds[0];
        r->meta = fds[1];
        rc = read_metadata(r);
    }
    if (rc < 0)
        hy_hdfs_local_replica_close(r);
    else
        *ret = r;
    return rc;
}

void hy_hdfs_local_replica_close(struct hy_hdfs_local_replica *r)
{
    if (!r)
        return;
    hy_close_at(&r->data);
    hy_close_at(&r->meta);
    free(r->sums);
    free(r->partial);
    free(r);
}

/* ---- reading ------------------------------------------------------------------------ */

/* Then the last chunk has a new checksum, and is not corrupt. */
static bool has_grown(const struct hy_hdfs_local_replica *r)
{
    struct stat st;

    return fstat(r->data, &st) == 0 && (uint64_t)st.st_size > r->length;
}

/* Reads n bytes: whole chunks, or up to the end. Returns the number of bytes before the first corrupt chunk. */
static int64_t read_chunks(struct hy_hdfs_local_replica *r, uint64_t at, uint8_t *into, size_t n)
{
    const uint64_t sums_at = META_HEAD + at / r->checksums.chunk * 4;
    size_t good;
    int rc = read_at(r->data, into, n, at);

    if (rc == 0)
        rc = read_at(r->meta, r->sums, hy_hdfs_checksums_size(&r->checksums, n), sums_at);
    if (rc < 0)
        return rc;
    good = hy_hdfs_checksums_check(&r->checksums, into, n, r->sums);
    return good ? (int64_t)good : has_grown(r) ? -ESTALE : -EBADMSG;
}

/* Directly into the caller's buffer. Returns the number of bytes, 0 when only a part of a chunk is requested. */
static int64_t read_whole(struct hy_hdfs_local_replica *r, uint64_t at, uint8_t *into, size_t n)
{
    if (n > r->large)
        n = r->large;
    if (at % r->checksums.chunk)
        return 0;
    if (at + n < r->length)
        n -= n % r->checksums.chunk;
    return n ? read_chunks(r, at, into, n) : 0;
}

/* Through r->partial. */
static int64_t read_part(struct hy_hdfs_local_replica *r, uint64_t at, uint8_t *into, size_t n)
{
    if (!r->partial && !(r->partial = hy_malloc(r->small)))
        return -ENOMEM;
    if (at < r->partial_at || at >= r->partial_at + r->partial_n) {
        const uint64_t begin = hy_hdfs_local_replica_chunk_start(r, at), rest = r->length - begin;
        const int64_t rc = read_chunks(r, begin, r->partial, rest < r->small ? (size_t)rest : r->small);

        r->partial_at = begin;
        r->partial_n = rc < 0 ? 0 : (size_t)rc;
        if (rc < 0)
            return rc;
    }
    if (n > r->partial_at + r->partial_n - at)
        n = (size_t)(r->partial_at + r->partial_n - at);
    memcpy(into, r->partial + (at - r->partial_at), n);
    return (int64_t)n;
}

int hy_hdfs_local_replica_read(struct hy_hdfs_local_replica *r, uint64_t *at, uint64_t to, void *into, size_t n)
{
    uint8_t *next = into;

    if (to > r->length)
        return -ENODATA; /* the replica is too short */
    if (n > to - *at)
        n = (size_t)(to - *at);
    while (n > 0) {
        int64_t rc = read_whole(r, *at, next, n);

        if (rc == 0)
            rc = read_part(r, *at, next, n);
        if (rc < 0)
            return (int)rc;
        *at += (uint64_t)rc;
        next += rc;
        n -= (size_t)rc;
    }
    return 0;
}

uint64_t hy_hdfs_local_replica_chunk_start(const struct hy_hdfs_local_replica *r, uint64_t at)
{
    return at - at % r->checksums.chunk;
}
