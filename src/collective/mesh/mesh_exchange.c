/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Concurrent transfers through streams.
 *
 * There are no frames: both ends know the length of every message and the streams of its segments, because both make
 * the same calls in the same order. Data that arrives early waits in the kernel.
 */
#include "collective/mesh/mesh_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/fault.h"
#include "base/mem.h"

#define PARTS_MAX 64   /* of one system call */
#define ROUNDS_AWAY 4u /* rounds with progress between two polls for events */
#define TAKES_MAX 4u   /* consecutive receives from one stream, for fairness */

/* ---- flows -------------------------------------------------------------------------- */

static bool flow_ended(const struct hy_flow *f)
{
    return f->index >= f->n / f->segment + (f->n % f->segment != 0);
}

static size_t segment_size(const struct hy_flow *f)
{
    size_t begin = f->index * f->segment;

    return f->n - begin < f->segment ? f->n - begin : f->segment;
}

/* Contiguous bytes that may be transferred now. */
static size_t flow_run(const struct hy_flow *f, uint8_t **ret_bytes)
{
    if (flow_ended(f) || (f->allowed && f->index >= *f->allowed))
        return 0;
    *ret_bytes = f->bytes + (f->ring ? f->index % f->ring : f->index) * f->segment + f->offset;
    return segment_size(f) - f->offset;
}

static void flow_advance(struct hy_flow *f, size_t n)
{
    f->offset += n;
    if (f->offset == segment_size(f)) {
        f->index += f->lanes;
        f->offset = 0;
    }
}

bool hy_flow_has(const struct hy_flow *flows, unsigned lanes, size_t segment)
{
    return flows[segment % lanes].index > segment;
}

unsigned hy_flow_lanes(size_t n, unsigned lanes)
{
    return n < HY_MESH_STRIPE_MIN ? 1 : lanes;
}

static void post(struct hy_mesh *m, struct hy_mesh_stream *s, bool send, struct hy_flow *f)
{
    struct hy_flow **end = send ? &s->sending : &s->receiving;

    if (flow_ended(f))
        return;
    while (*end)
        end = &(*end)->next;
    *end = f;
    if (hy_list_empty(&s->active))
        hy_list_push(&m->active, &s->active);
    hy_mesh_connect(m, s->peer, s->channel);
}

void hy_flow_post(struct hy_mesh *m, unsigned peer, bool send, struct hy_flow *flows, unsigned first_stream,
                  unsigned lanes, void *bytes, size_t n, size_t segment)
{
    assert(first_stream + lanes <= HY_MESH_STREAMS);
    for (unsigned i = 0; i < lanes; i++) {
        flows[i] = (struct hy_flow){.bytes = bytes, .n = n, .segment = segment, .index = i, .lanes = lanes};
        post(m, hy_mesh_stream_of(m, peer, HY_CHANNEL_DATA + first_stream + i), send, &flows[i]);
    }
}

/* ---- moving ------------------------------------------------------------------------- */

/* Collects the parts of the flows that may be transferred in one call. */
static int gather(const struct hy_flow *first, struct iovec parts[PARTS_MAX], size_t *ret_total)
{
    int count = 0;

    *ret_total = 0;
    for (const struct hy_flow *f = first; f; f = f->next) {
        struct hy_flow at = *f;
        uint8_t *bytes;
        size_t n;

        while (count < PARTS_MAX && *ret_total < HY_MESH_MOVE_MAX && (n = flow_run(&at, &bytes)) > 0) {
            parts[count++] = (struct iovec){.iov_base = bytes, .iov_len = n};
            *ret_total += n;
            flow_advance(&at, n);
        }
        if (!flow_ended(&at))
            break;
    }
    return count;
}

static void moved(struct hy_flow **first, size_t n)
{
    while (n) {
        struct hy_flow *f = *first;
        uint8_t *bytes;
        size_t run = flow_run(f, &bytes), part = n < run ? n : run;

        flow_advance(f, part);
        n -= part;
        if (flow_ended(f))
            *first = f->next;
    }
}

static void on_failure(struct hy_mesh *m, struct hy_mesh_stream *s, bool *ready, ssize_t n)
{
    if (n < 0 && errno == EINTR)
        return;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        *ready = false;
    else
        hy_mesh_peer_failed(m, s->peer, n < 0 ? -errno : -ECONNRESET);
}

/* One system call, in one direction; returns whether bytes were transferred. */
static bool move(struct hy_mesh *m, struct hy_mesh_stream *s, bool send)
{
    struct hy_flow **first = send ? &s->sending : &s->receiving;
    bool *ready = send ? &s->can_write : &s->can_read;
    struct iovec parts[PARTS_MAX];
    struct msghdr message = {.msg_iov = parts};
    size_t total;
    ssize_t n;

    if (!*first || !*ready)
        return false;
    message.msg_iovlen = (size_t)gather(*first, parts, &total);
    if (total == 0)
        return false;
    n = send ? HY_SYS(sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT))
             : HY_SYS(recvmsg(s->fd, &message, MSG_DONTWAIT));
    if (n <= 0) {
        on_failure(m, s, ready, n);
        return false;
    }
    moved(first, (size_t)n);
    return true;
}

/* Received data is processed at once, while it is in the cache, which also makes room for more. Returns whether bytes
 * were transferred. */
static bool take(struct hy_mesh *m, struct hy_mesh_stream *s, struct hy_work *work)
{
    unsigned takes = 0;

    while (takes < TAKES_MAX && move(m, s, false)) {
        takes++;
        if (!work || !work->step || !work->step(work))
            break;
    }
    return takes > 0;
}

static bool move_all(struct hy_mesh *m, struct hy_work *work)
{
    bool any = false;

    hy_list_each(it, &m->active) {
        struct hy_mesh_stream *s = hy_container(it, struct hy_mesh_stream, active);

        if (s->fd < 0)
            continue;
        any |= move(m, s, true);
        any |= take(m, s, work);
        if (!s->sending && !s->receiving)
            hy_list_remove(&s->active);
    }
    return any;
}

static void forget_flows(struct hy_mesh *m)
{
    hy_list_each(it, &m->active) {
        struct hy_mesh_stream *s = hy_container(it, struct hy_mesh_stream, active);

        s->sending = s->receiving = NULL;
        hy_list_remove(&s->active);
    }
}

/* One iteration. 1: not complete, 0: complete, -Exxx. */
static int step(struct hy_mesh *m, struct hy_work *work, unsigned round)
{
    bool any = move_all(m, work);

    if (m->broken.code < 0)
        return hy_mesh_fail(m);
    if (hy_list_empty(&m->active))
        return 0;
    if (any && round % ROUNDS_AWAY == 0)
        hy_mesh_poll(m);
    if (!any) {
        int rc = hy_mesh_wait(m);

        return rc < 0 ? rc : 1;
    }
    return 1;
}

int hy_mesh_drive(struct hy_mesh *m, struct hy_work *work)
{
    int rc = m->waiter->failed.code;

    for (unsigned round = 1; rc >= 0; round++) {
        rc = step(m, work, round);
        if (rc == 0)
            return 0;
    }
    forget_flows(m);
    return rc;
}

/* ---- exchange ------------------------------------------------------------------- */

/* Messages to this rank itself: the first send matches the first receive, and so on. */
static int copy_own(struct hy_mesh *m, const struct hy_transfer *sends, size_t send_count,
                    const struct hy_transfer *receives, size_t receive_count)
{
    size_t to = 0;

    for (size_t from = 0; from < send_count; from++) {
        if (sends[from].peer != m->rank || sends[from].n == 0)
            continue;
        while (to < receive_count && (receives[to].peer != m->rank || receives[to].n == 0))
            to++;
        if (to == receive_count || receives[to].n != sends[from].n)
            return hy_err_set(&m->waiter->failed, -EINVAL, "rank %u sends a message to itself that it does not receive",
                              m->rank);
        if (sends[from].bytes != receives[to].bytes)
            memmove(receives[to].bytes, sends[from].bytes, sends[from].n);
        to++;
    }
    return 0;
}

static void post_all(struct hy_mesh *m, bool send, const struct hy_transfer *transfers, size_t count,
                     struct hy_flow *flows)
{
    for (size_t i = 0; i < count; i++) {
        const struct hy_transfer *t = &transfers[i];

        if (t->peer == m->rank || t->n == 0)
            continue;
        hy_flow_post(m, t->peer, send, flows + i * HY_MESH_STREAMS, 0, hy_flow_lanes(t->n, HY_MESH_STREAMS), t->bytes,
                     t->n, hy_mesh_segment(t->n, 1));
    }
}

static bool peers_exist(const struct hy_mesh *m, const struct hy_transfer *transfers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (transfers[i].peer >= m->size)
            return false;
    return true;
}

int hy_mesh_exchange(struct hy_mesh *m, const struct hy_transfer *sends, size_t send_count,
                     const struct hy_transfer *receives, size_t receive_count)
{
    struct hy_flow few[8 * HY_MESH_STREAMS], *flows = few;
    hy_cleanup_free struct hy_flow *many = NULL;
    int rc;

    if (m->waiter->failed.code < 0)
        return m->waiter->failed.code;
    if (!peers_exist(m, sends, send_count) || !peers_exist(m, receives, receive_count))
        return hy_err_set(&m->waiter->failed, -EINVAL, "an exchange with a rank that does not exist among %u ranks",
                          m->size);
    if (send_count + receive_count > 8) {
        flows = many = hy_calloc(send_count + receive_count, HY_MESH_STREAMS * sizeof *many);
        if (!many)
            return hy_err_set(&m->waiter->failed, -ENOMEM, "out of memory for an exchange of %zu messages",
                              send_count + receive_count);
    }
    rc = copy_own(m, sends, send_count, receives, receive_count);
    if (rc < 0)
        return rc;
    post_all(m, true, sends, send_count, flows);
    post_all(m, false, receives, receive_count, flows + send_count * HY_MESH_STREAMS);
    return hy_mesh_drive(m, NULL);
}
