/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads files. The block locations are requested when the file is opened, and again
 * when none of the DataNodes listed then can provide a block.
 *
 * Sequential reads use one connection per block, over which the DataNode sends
 * ahead while the caller processes earlier data; the next block is requested before
 * the current one ends. Other reads request only their range. Any number of threads
 * may read at once: one of them has the stream.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "hdfs/data/read_ahead.h"
#include "hdfs/data/block_reader.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "hdfs/data/datanode.h"
#include "hdfs/sock.h"
#include "hdfs/stream.h"
#include "hdfs/data/striped_reader.h"

#define SKIP_MAX (256u << 10)  /* skipping this much is cheaper than a new request */
#define AHEAD (8u << 20)       /* this close to the end of a block the next one is requested */
#define SHORT_TIMEOUT_MS 10000 /* when there is another replica */
#define GIVE_UP_MS 60000       /* while no DataNode can provide a block */
#define AVOID_MAX 64

/* Block locations. Reference-counted: threads use it while another thread replaces it. */
struct map {
    int refs;
    Hdfs__GetBlockLocationsResponse *response;
    Hdfs__LocatedBlock *last; /* under construction, and not in the list; or NULL */
    struct hy_err unknown;    /* why the length of `last` is unknown; code 0: it is known */
};

/* A connection that receives a block. */
struct stream {
    struct hy_hdfs_read_ahead *reader; /* NULL: none */
    struct map *map;         /* it points into this map */
    uint64_t at, end;        /* in the file */
};

struct input {
    struct hy_fs_file base;
    struct hy_hdfs_cluster *cluster;
    char *path;
    uint64_t size;

    pthread_mutex_t lock; /* protects the fields below */
    struct map *map;
    struct stream stream, ahead; /* `ahead`: of the next block. Taken out while in use */
    uint64_t last_end;           /* where the last read ended */
    char *avoid[AVOID_MAX];      /* DataNodes that failed */
    size_t avoid_count;

    pthread_mutex_t striping;   /* protects the fields below */
    struct hy_hdfs_striped_reader *striped; /* of an erasure-coded file; or NULL */
    struct map *striped_map;    /* it points into this map */
};

/* ---- block locations ---------------------------------------------------------- */

static void map_unref(struct input *in, struct map *m)
{
    int refs;

    if (!m)
        return;
    pthread_mutex_lock(&in->lock);
    refs = --m->refs;
    pthread_mutex_unlock(&in->lock);
    if (refs)
        return;
    hy_hdfs_free_response(&m->response);
    free(m);
}

static struct map *map_ref(struct input *in)
{
    struct map *m;

    pthread_mutex_lock(&in->lock);
    m = in->map;
    m->refs++;
    pthread_mutex_unlock(&in->lock);
    return m;
}

/* The block that is being written, if it is not in the list; or NULL. */
static Hdfs__LocatedBlock *open_block(const Hdfs__LocatedBlocks *l)
{
    return l->underconstruction && !l->islastblockcomplete ? l->lastblock : NULL;
}

/* Sums of sizes from a NameNode must stay below 2^63. */
static bool is_past_end(uint64_t offset, uint64_t length)
{
    return offset > INT64_MAX || length > INT64_MAX - offset;
}

static int check_map(const struct input *in, const Hdfs__LocatedBlocks *l, struct hy_err *err)
{
    const Hdfs__LocatedBlock *last = open_block(l);
    uint64_t at = 0;

    for (size_t i = 0; i < l->n_blocks; i++) {
        if (l->blocks[i]->offset != at || is_past_end(at, l->blocks[i]->b->numbytes))
            return hy_err_set(err, -EPROTO, "the NameNode's list of the blocks of %s has a gap", in->path);
        at += l->blocks[i]->b->numbytes;
    }
    if (last && last->offset > at)
        return hy_err_set(err, -EPROTO, "the NameNode's list of the blocks of %s has a gap before the last block",
                          in->path);
    if (last && is_past_end(last->offset, last->b->numbytes))
        return hy_err_set(err, -EPROTO, "the NameNode sent an impossible size for the last block of %s", in->path);
    if (last && at < last->offset + last->b->numbytes)
        at = last->offset + last->b->numbytes;
    if (l->filelength > at)
        return hy_err_set(err, -EPROTO,
                          "the NameNode reports %s as %llu bytes, but lists blocks for only %llu;"
                          " it is faulty or hostile",
                          in->path, (unsigned long long)l->filelength, (unsigned long long)at);
    if (l->fileencryptioninfo)
        return hy_err_set(err, -ENOTSUP, "%s is in an encryption zone; hopyard cannot read such files", in->path);
    return 0;
}

/* The readable length of the block that is being written. Only its DataNodes have the current length. -ENOENT from one
 * means that it has no data yet; without any response the length is unknown. */
static int last_length(const struct input *in, const Hdfs__LocatedBlock *last, uint64_t *ret, struct hy_err *err)
{
    int rc = 0, not_recovered = 0;

    *ret = 0;
    for (size_t i = 0; i < last->n_locs; i++) {
        rc = hy_hdfs_datanode_visible_length(in->cluster, last->locs[i]->id, last->b, last->blocktoken, ret, err);
        if (rc == 0 && is_past_end(last->offset, *ret))
            return hy_err_set(err, -EPROTO, "a DataNode reported a block length of %llu bytes",
                              (unsigned long long)*ret);
        if (rc == 0 || rc == -EINTR)
            return rc;
        if (rc == -EAGAIN)
            not_recovered = rc;
        if (rc == -ENOENT)
            rc = 0;
        *ret = 0;
    }
    if (not_recovered)
        return hy_err_set(err, not_recovered,
                          "%s was being written when its DataNodes stopped; its last block can be read after:"
                          " hdfs debug recoverLease -path %s",
                          in->path, in->path);
    return rc < 0 ? hy_err_wrap(err, "%s is being written, and none of its DataNodes reports its length", in->path) : 0;
}

static void set_last_length(const struct input *in, struct map *m)
{
    struct hy_err why = {0};
    uint64_t length;

    m->last = open_block(m->response->locations);
    if (!m->last)
        return;
    if (last_length(in, m->last, &length, &why) < 0)
        m->unknown = why;
    else if (length > m->last->b->numbytes)
        m->last->b->numbytes = length;
}

static int request_map(const struct input *in, struct map **ret, struct hy_err *err)
{
    Hdfs__GetBlockLocationsRequest request = HDFS__GET_BLOCK_LOCATIONS_REQUEST__INIT;
    struct map *m = hy_calloc(1, sizeof(*m));
    int rc;

    if (!m)
        return hy_err_oom(err);
    m->refs = 1;
    request.src = in->path;
    request.length = INT64_MAX;
    rc = hy_hdfs_call(in->cluster, "getBlockLocations", &request.base, &hdfs__get_block_locations_response__descriptor,
                      &m->response, err);
    if (rc == 0 && !m->response->locations)
        rc = hy_err_set(err, -ENOENT, "%s does not exist", in->path);
    if (rc == 0)
        rc = check_map(in, m->response->locations, err);
    if (rc == 0)
        set_last_length(in, m);
    if (rc < 0) {
        hy_hdfs_free_response(&m->response);
        free(m);
        return rc;
    }
    *ret = m;
    return 0;
}

/* The block that contains a byte of the file; or NULL. */
static const Hdfs__LocatedBlock *block_at(const struct map *m, uint64_t offset)
{
    const Hdfs__LocatedBlocks *l = m->response->locations;
    size_t low = 0, high = l->n_blocks;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (l->blocks[middle]->offset + l->blocks[middle]->b->numbytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < l->n_blocks)
        return l->blocks[low];
    return m->last && offset >= m->last->offset && offset - m->last->offset < m->last->b->numbytes ? m->last : NULL;
}

static uint64_t size_of(const struct map *m)
{
    const uint64_t size = m->response->locations->filelength;
    const uint64_t end = m->last ? m->last->offset + m->last->b->numbytes : 0;

    return end > size ? end : size;
}

static int refresh(struct input *in, struct hy_err *err)
{
    struct map *m = NULL, *old;
    int rc = request_map(in, &m, err);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&in->lock);
    old = in->map;
    in->map = m;
    for (size_t i = 0; i < in->avoid_count; i++)
        free(in->avoid[i]);
    in->avoid_count = 0;
    pthread_mutex_unlock(&in->lock);
    map_unref(in, old);
    return 0;
}

/* ---- choice of a DataNode ------------------------------------------------------- */

static void avoid(struct input *in, const Hdfs__DatanodeID *node)
{
    pthread_mutex_lock(&in->lock);
    if (in->avoid_count < AVOID_MAX && (in->avoid[in->avoid_count] = hy_strdup(node->datanodeuuid)))
        in->avoid_count++;
    pthread_mutex_unlock(&in->lock);
}

/* The first that has not failed; NULL when all have. *ret_others: there are more. */
static const Hdfs__DatanodeID *choose(struct input *in, const Hdfs__LocatedBlock *b, bool *ret_others)
{
    const Hdfs__DatanodeID *found = NULL;

    *ret_others = false;
    pthread_mutex_lock(&in->lock);
    for (size_t i = 0; i < b->n_locs; i++) {
        bool is_avoided = false;

        for (size_t k = 0; k < in->avoid_count && !is_avoided; k++)
            is_avoided = strcmp(in->avoid[k], b->locs[i]->id->datanodeuuid) == 0;
        if (!is_avoided && found)
            *ret_others = true;
        else if (!is_avoided)
            found = b->locs[i]->id;
    }
    pthread_mutex_unlock(&in->lock);
    return found;
}

/* The NameNode then replaces the corrupt replica. Errors are ignored: the read does not depend on it. */
static void report_bad(struct input *in, const Hdfs__LocatedBlock *b, const Hdfs__DatanodeID *node)
{
    Hdfs__ReportBadBlocksRequest request = HDFS__REPORT_BAD_BLOCKS_REQUEST__INIT;
    Hdfs__LocatedBlock bad = *b, *list = &bad;
    hy_cleanup_hdfs_response Hdfs__Nothing *response = NULL;
    struct hy_err err;

    for (size_t i = 0; i < b->n_locs; i++) {
        if (b->locs[i]->id != node)
            continue;
        bad.locs = &b->locs[i];
        bad.n_locs = 1;
        bad.storageids = i < b->n_storageids ? &b->storageids[i] : NULL;
        bad.n_storageids = i < b->n_storageids;
        bad.storagetypes = i < b->n_storagetypes ? &b->storagetypes[i] : NULL;
        bad.n_storagetypes = i < b->n_storagetypes;
    }
    if (bad.n_locs != 1)
        return;
    request.blocks = &list;
    request.n_blocks = 1;
    (void)hy_hdfs_call(in->cluster, "reportBadBlocks", &request.base, &hdfs__nothing__descriptor, &response, &err);
}

static int read_timeout_ms(const struct input *in, bool has_others)
{
    const uint64_t ms = hy_hdfs_conf_number(in->cluster->conf, "dfs.client.socket-timeout", 60000);

    if (has_others && ms > SHORT_TIMEOUT_MS)
        return SHORT_TIMEOUT_MS;
    return ms > 0 && ms < INT32_MAX ? (int)ms : 60000;
}

/* ---- reading ----------------------------------------------------------------------- */

/* A range of a block, and the DataNode to read it from. */
struct range {
    const Hdfs__LocatedBlock *block;
    const Hdfs__DatanodeID *node;
    struct map *map;
    uint64_t from, to; /* in the block */
};

static int open_stream(struct input *in, const struct range *t, bool has_others, struct stream *ret, struct hy_err *err)
{
    struct hy_hdfs_block_reader *r;
    struct hy_hdfs_read_ahead *reader;
    int rc;

    const struct hy_hdfs_block_request want = {
        .cluster = in->cluster,
        .block = t->block->b,
        .token = t->block->blocktoken,
        .node = t->node,
        .from = t->from,
        .to = t->to,
        .timeout_ms = read_timeout_ms(in, has_others),
        .may_be_local = t->block != t->map->last,
    };

    rc = hy_hdfs_block_reader_open(&r, &want, err);
    if (rc < 0)
        return rc;
    reader = hy_hdfs_read_ahead_new(r);
    if (!reader)
        return hy_err_oom(err);
    *ret = (struct stream){
        .reader = reader,
        .map = t->map,
        .at = t->block->offset + t->from,
        .end = t->block->offset + t->to,
    };
    return 0;
}

static void drop(struct input *in, struct stream *s)
{
    hy_hdfs_read_ahead_close(s->reader);
    map_unref(in, s->map);
    *s = (struct stream){0};
}

/* Advances s->at, also on failure. */
static int64_t read_next(struct stream *s, void *into, size_t n, struct hy_err *err)
{
    const uint64_t before = hy_hdfs_read_ahead_offset(s->reader);
    const int64_t got = hy_hdfs_read_ahead_read(s->reader, into, n, err);

    s->at += hy_hdfs_read_ahead_offset(s->reader) - before;
    return got;
}

/* Takes the stream if it is at `offset` or shortly before. */
static bool take_stream(struct input *in, uint64_t offset, struct stream *ret)
{
    bool is_usable;

    pthread_mutex_lock(&in->lock);
    if (!in->stream.reader && in->ahead.reader && in->ahead.at == offset) {
        in->stream = in->ahead;
        in->ahead = (struct stream){0};
    }
    is_usable = in->stream.reader && in->stream.at <= offset && offset - in->stream.at <= SKIP_MAX &&
                offset < in->stream.end;
    if (is_usable) {
        *ret = in->stream;
        in->stream = (struct stream){0};
    }
    pthread_mutex_unlock(&in->lock);
    return is_usable;
}

/* Stores a stream for the next read; closes a finished or replaced one. */
static void put(struct input *in, struct stream *where, struct stream *s)
{
    struct stream old = *s;

    if (s->at < s->end) {
        pthread_mutex_lock(&in->lock);
        old = *where;
        *where = *s;
        pthread_mutex_unlock(&in->lock);
    }
    drop(in, &old);
}

/* Requests the next block. On failure it is requested again when it is read. */
static void prefetch(struct input *in, const struct stream *s)
{
    struct stream next = {0};
    struct range t = {0};
    struct hy_err err;
    bool has_others, is_done;

    if (s->end - s->at > AHEAD || s->end >= in->size)
        return;
    pthread_mutex_lock(&in->lock);
    is_done = in->ahead.reader && in->ahead.at == s->end;
    pthread_mutex_unlock(&in->lock);
    if (is_done)
        return;
    t.map = map_ref(in);
    t.block = block_at(t.map, s->end);
    t.node = t.block && t.block->offset == s->end ? choose(in, t.block, &has_others) : NULL;
    if (t.node)
        t.to = t.block->b->numbytes;
    if (!t.node || t.to == 0 || open_stream(in, &t, has_others, &next, &err) < 0)
        map_unref(in, t.map);
    else
        put(in, &in->ahead, &next);
}

/* Discards bytes up to `offset`. */
static int skip(struct stream *s, uint64_t offset, struct hy_err *err)
{
    uint8_t discarded[16384];

    while (s->at < offset) {
        const uint64_t n = offset - s->at;
        const int64_t got = read_next(s, discarded, n < sizeof(discarded) ? (size_t)n : sizeof(discarded), err);

        if (got <= 0)
            return got < 0 ? (int)got : -EIO;
    }
    return 0;
}

/* Reads from the stream. Returns the number of bytes, 0 when there is no stream at `offset` or it failed. */
static int64_t read_stream(struct input *in, uint8_t *into, size_t n, uint64_t offset)
{
    struct hy_err err;
    struct stream s;
    int64_t got;

    if (!take_stream(in, offset, &s))
        return 0;
    if (skip(&s, offset, &err) < 0) {
        drop(in, &s);
        return 0;
    }
    prefetch(in, &s);
    if (read_next(&s, into, n, &err) <
        0) { /* the bytes before the failure are good; the rest is read from another replica */
        got = (int64_t)(s.at - offset);
        drop(in, &s);
        return got;
    }
    got = (int64_t)(s.at - offset);
    put(in, &in->stream, &s);
    return got;
}

/* One attempt with one DataNode. Returns the number of bytes (0: no DataNode is left), or -Exxx. */
static int64_t try_read(struct input *in, uint8_t *into, size_t n, uint64_t offset, bool is_stream, struct hy_err *err)
{
    struct range t = {.map = map_ref(in)};
    struct stream s = {.map = t.map, .at = offset, .end = offset};
    bool has_others;
    int64_t rc;

    t.block = block_at(t.map, offset);
    t.node = t.block ? choose(in, t.block, &has_others) : NULL;
    if (!t.node) {
        if (!t.block || t.block->n_locs == 0)
            hy_err_set(err, -ENODATA,
                       "no DataNode has the block at byte %llu of %s; they are unreachable, or"
                       " the block is lost (hdfs fsck %s)",
                       (unsigned long long)offset, in->path, in->path);
        map_unref(in, t.map);
        return 0;
    }
    t.from = offset - t.block->offset;
    t.to = t.block->b->numbytes;
    if (!is_stream && t.to - t.from > n)
        t.to = t.from + n;
    rc = open_stream(in, &t, has_others, &s, err);
    if (rc == 0)
        rc = read_next(&s, into, n, err);
    if (rc < 0 && rc != -EINTR) {
        avoid(in, t.node);
        if (rc == -EBADMSG)
            report_bad(in, t.block, t.node);
        s.end = s.at;
    }
    if (s.at > offset && rc != -EINTR) /* bytes before the failure are good */
        rc = (int64_t)(s.at - offset);
    put(in, &in->stream, &s);
    return rc;
}

/* The same for an erasure-coded file. 0: too few units are readable. */
static int64_t try_striped(struct input *in, uint8_t *into, size_t n, uint64_t offset, struct hy_err *err)
{
    const Hdfs__LocatedBlock *group;
    struct map *m = map_ref(in), *old = NULL;
    int64_t got;

    pthread_mutex_lock(&in->striping);
    if (in->striped_map != m) {
        hy_hdfs_striped_reader_reset(in->striped);
        old = in->striped_map;
        in->striped_map = m;
    } else {
        old = m;
    }
    group = block_at(m, offset);
    got = group ? hy_hdfs_striped_reader_read(in->striped, group, into, n, offset - group->offset, err)
                : hy_err_set(err, -ENODATA, "the file was truncated");
    pthread_mutex_unlock(&in->striping);
    map_unref(in, old);
    return got == -EINTR || got == -ENOMEM || got > 0 ? got : 0;
}

/* Whether the NameNode has no good replica either; then waiting is useless. */
static bool is_corrupt(struct input *in, uint64_t offset)
{
    struct map *m = map_ref(in);
    const Hdfs__LocatedBlock *b = block_at(m, offset);
    const bool corrupt = b && b->corrupt;

    map_unref(in, m);
    return corrupt;
}

/* Tries all DataNodes, then requests the locations again and retries. */
static int64_t read_with_retries(struct input *in, uint8_t *into, size_t n, uint64_t offset, bool is_stream,
                                 struct hy_err *err)
{
    const int64_t end = hy_clock_ms() + GIVE_UP_MS;
    struct hy_err why = {0};
    int wait = 100, tries = 0;

    for (;;) {
        int64_t got = in->striped ? try_striped(in, into, n, offset, &why)
                                  : try_read(in, into, n, offset, is_stream, &why);
        int rc;

        if (got > 0 || got == -ENOMEM || got == -EINTR) {
            if (got < 0 && err)
                *err = why;
            return got;
        }
        if (got < 0 && ++tries < AVOID_MAX)
            continue; /* the next DataNode */
        if (hy_clock_ms() > end || (why.code == -EBADMSG && is_corrupt(in, offset))) {
            if (err)
                *err = why;
            return why.code < 0 ? why.code : -EIO;
        }
        if (hy_hdfs_sock_sleep(wait) < 0)
            return hy_err_set(err, -EINTR, "interrupted");
        wait = 2 * wait > 2000 ? 2000 : 2 * wait;
        rc = refresh(in, err);
        if (rc < 0)
            return rc;
        tries = 0;
    }
}

static int64_t input_pread(struct hy_fs_file *f, void *into, size_t n, uint64_t offset, struct hy_err *err)
{
    struct input *in = (struct input *)f;
    size_t done = 0;
    bool is_next;

    if (offset >= in->size)
        return 0;
    if (n > in->size - offset)
        n = (size_t)(in->size - offset);
    pthread_mutex_lock(&in->lock);
    is_next = offset == in->last_end;
    in->last_end = offset + n;
    pthread_mutex_unlock(&in->lock);
    while (done < n) {
        int64_t got = in->striped ? 0 : read_stream(in, (uint8_t *)into + done, n - done, offset + done);

        if (got == 0)
            got = read_with_retries(in, (uint8_t *)into + done, n - done, offset + done, is_next, err);
        if (got < 0)
            return hy_err_wrap(err, "cannot read %s%s", in->cluster->name, in->path), got;
        done += (size_t)got;
    }
    return (int64_t)n;
}

/* ---- open and close -------------------------------------------------------------------------- */

static uint64_t input_size(const struct hy_fs_file *f)
{
    return ((const struct input *)f)->size;
}

static int input_close(struct hy_fs_file *f, struct hy_err *err)
{
    struct input *in = (struct input *)f;

    (void)err;
    drop(in, &in->stream);
    drop(in, &in->ahead);
    hy_hdfs_striped_reader_free(in->striped);
    map_unref(in, in->striped_map);
    map_unref(in, in->map);
    for (size_t i = 0; i < in->avoid_count; i++)
        free(in->avoid[i]);
    pthread_mutex_destroy(&in->lock);
    pthread_mutex_destroy(&in->striping);
    free(in->path);
    free(in);
    return 0;
}

static const struct hy_fs_file_ops input_ops = {.size = input_size, .pread = input_pread, .close = input_close};

int hy_hdfs_input_open(struct hy_hdfs_cluster *c, const char *path, struct hy_fs_file **ret, struct hy_err *err)
{
    struct input *in = hy_calloc(1, sizeof(*in));
    int rc;

    if (!in || !(in->path = hy_strdup(path))) {
        free(in);
        return hy_err_oom(err);
    }
    in->base.ops = &input_ops;
    in->cluster = c;
    pthread_mutex_init(&in->lock, NULL);
    pthread_mutex_init(&in->striping, NULL);
    rc = request_map(in, &in->map, err);
    if (rc == 0 && in->map->unknown.code) {
        rc = in->map->unknown.code;
        if (err)
            *err = in->map->unknown;
    }
    if (rc == 0 && in->map->response->locations->ecpolicy) {
        in->striped = hy_hdfs_striped_reader_new(c, in->map->response->locations->ecpolicy, read_timeout_ms(in, true),
                                                 err);
        rc = in->striped ? 0 : -ENOTSUP;
    }
    if (rc < 0) {
        input_close(&in->base, NULL);
        return rc;
    }
    in->size = size_of(in->map);
    *ret = &in->base;
    return 0;
}
