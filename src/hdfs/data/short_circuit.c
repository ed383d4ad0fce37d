/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A DataNode has two files for a replica:
 *
 *     blk_1    the data
 *     blk_1_1001.meta    u16 version, u8 type of the sums, u32 bytes of a chunk, sums
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
#include "hdfs/data/block_reader.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "hdfs/data/datanode.h"
#include "hdfs/data/packet.h"
#include "hdfs/sock.h"

#define VERSION 1              /* of both files */
#define META_HEAD 7u
#define PIECE (256u << 10)     /* bytes that are read and checked at once, while they are in a cache */
#define SMALL (64u << 10)      /* the same, where somebody wants less */
#define REFUSED_MS (10 * 60000) /* as Java's client has it */
#define REFUSED_MAX 16
#define PATH_SIZE 128

struct hy_hdfs_local_replica {
    int data, meta;
    uint64_t length; /* of the data */
    struct hy_hdfs_checksums guard;
    size_t most, few; /* PIECE and SMALL, in whole chunks */
    uint8_t *sums;    /* of `most` bytes */
    uint8_t *piece; /* chunks of which somebody wants a part; NULL: none yet */
    size_t piece_n;
    uint64_t piece_at;
};

/* ---- where it is offered ----------------------------------------------------------- */

/* Sockets at which nothing was to be had; the oldest goes first. */
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

/* The socket, with the DataNode's port in its name. False: there is none. */
static bool find_socket(const struct hy_hdfs_block_request *want, char path[PATH_SIZE])
{
    const struct hy_hdfs_conf *conf = want->cluster->conf;
    const char *text = hy_hdfs_conf_get(conf, "dfs.domain.socket.path");
    const char *port = text ? strstr(text, "_PORT") : NULL;
    int n;

    if (!want->may_be_local || !text || !hy_hdfs_conf_bool(conf, "dfs.client.read.shortcircuit", false))
        return false;
    if (port)
        n = snprintf(path, PATH_SIZE, "%.*s%u%s", (int)(port - text), text, want->node->xferport, port + strlen("_PORT"));
    else
        n = snprintf(path, PATH_SIZE, "%s", text);
    return n > 0 && n < PATH_SIZE && !is_refused(path) && hy_hdfs_sock_is_local_address(want->node->ipaddr);
}

/* ---- the files ---------------------------------------------------------------------- */

static int ask(struct hy_hdfs_datanode *dn, const struct hy_hdfs_block_request *want, int fds[2])
{
    hy_cleanup_hdfs_response Hdfs__BlockOpResponse *answer = NULL;
    Hdfs__OpRequestShortCircuitAccess op = HDFS__OP_REQUEST_SHORT_CIRCUIT_ACCESS__INIT;
    Hdfs__BaseHeader header = HDFS__BASE_HEADER__INIT;
    struct hy_err why = {0}; /* whoever asks by TCP is told again */
    int rc;

    header.block = (Hdfs__ExtendedBlock *)want->block;
    header.token = (Hdfs__Token *)want->token;
    op.header = &header;
    op.maxversion = VERSION;
    rc = hy_hdfs_datanode_request(dn, HY_HDFS_OP_FILES, &op.base);
    if (rc == 0)
        rc = hy_hdfs_datanode_response(dn, &answer, &why);
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

/* About n bytes, and at least one chunk. */
static size_t in_chunks(const struct hy_hdfs_local_replica *r, size_t n)
{
    return n > r->guard.chunk ? n - n % r->guard.chunk : r->guard.chunk;
}

static int look_at(struct hy_hdfs_local_replica *r)
{
    uint8_t head[META_HEAD];
    struct stat st;
    int rc = read_at(r->meta, head, sizeof(head), 0);

    if (rc == 0 && HY_SYS(fstat(r->data, &st)) < 0)
        rc = -errno;
    if (rc < 0)
        return rc;
    r->guard.type = head[2];
    r->guard.chunk = (uint32_t)head[3] << 24 | (uint32_t)head[4] << 16 | (uint32_t)head[5] << 8 | head[6];
    r->length = (uint64_t)st.st_size;
    if ((head[0] << 8 | head[1]) != VERSION || !hy_hdfs_checksums_are_supported(&r->guard))
        return -ENOTSUP;
    r->most = in_chunks(r, PIECE);
    r->few = in_chunks(r, SMALL);
    r->sums = hy_malloc(hy_hdfs_checksums_size(&r->guard, r->most));
    return r->sums ? 0 : -ENOMEM;
}

static int get_files(const struct hy_hdfs_block_request *want, const char *path, int fds[2])
{
    struct hy_hdfs_datanode *dn = NULL;
    int rc = hy_hdfs_datanode_open_local(&dn, want->cluster, want->node, path, want->patience_ms);

    if (rc == 0)
        rc = ask(dn, want, fds);
    hy_hdfs_datanode_close(dn);
    if (rc < 0 && rc != -EREMOTEIO && rc != -EKEYEXPIRED && rc != -EINTR && rc != -ENOMEM)
        refuse(path); /* it is of no use; the others are of this replica, or ours */
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
        rc = look_at(r);
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
    free(r->piece);
    free(r);
}

/* ---- reading ------------------------------------------------------------------------ */

/* Then the last chunk has another sum than when it was opened, and nothing is wrong with it. */
static bool has_grown(const struct hy_hdfs_local_replica *r)
{
    struct stat st;

    return fstat(r->data, &st) == 0 && (uint64_t)st.st_size > r->length;
}

/* n bytes, which are whole chunks, or go to the end: how many are good, up to the first chunk that is not. */
static int64_t read_chunks(struct hy_hdfs_local_replica *r, uint64_t at, uint8_t *into, size_t n)
{
    const uint64_t sums_at = META_HEAD + at / r->guard.chunk * 4;
    size_t good;
    int rc = read_at(r->data, into, n, at);

    if (rc == 0)
        rc = read_at(r->meta, r->sums, hy_hdfs_checksums_size(&r->guard, n), sums_at);
    if (rc < 0)
        return rc;
    good = hy_hdfs_checksums_check(&r->guard, into, n, r->sums);
    return good ? (int64_t)good : has_grown(r) ? -ESTALE : -EBADMSG;
}

/* Straight to where they are wanted: how many, 0 where only a part of a chunk is. */
static int64_t read_whole(struct hy_hdfs_local_replica *r, uint64_t at, uint8_t *into, size_t n)
{
    if (n > r->most)
        n = r->most;
    if (at % r->guard.chunk)
        return 0;
    if (at + n < r->length)
        n -= n % r->guard.chunk;
    return n ? read_chunks(r, at, into, n) : 0;
}

/* By way of our own memory. */
static int64_t read_part(struct hy_hdfs_local_replica *r, uint64_t at, uint8_t *into, size_t n)
{
    if (!r->piece && !(r->piece = hy_malloc(r->few)))
        return -ENOMEM;
    if (at < r->piece_at || at >= r->piece_at + r->piece_n) {
        const uint64_t begin = hy_hdfs_local_replica_chunk_start(r, at), rest = r->length - begin;
        const int64_t rc = read_chunks(r, begin, r->piece, rest < r->few ? (size_t)rest : r->few);

        r->piece_at = begin;
        r->piece_n = rc < 0 ? 0 : (size_t)rc;
        if (rc < 0)
            return rc;
    }
    if (n > r->piece_at + r->piece_n - at)
        n = (size_t)(r->piece_at + r->piece_n - at);
    memcpy(into, r->piece + (at - r->piece_at), n);
    return (int64_t)n;
}

int hy_hdfs_local_replica_read(struct hy_hdfs_local_replica *r, uint64_t *at, uint64_t to, void *into, size_t n)
{
    uint8_t *next = into;

    if (to > r->length)
        return -ENODATA; /* of a replica that is shorter than it should be */
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
    return at - at % r->guard.chunk;
}
