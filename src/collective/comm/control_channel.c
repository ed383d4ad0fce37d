/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control channel between rank 0 and each other rank: through shared memory with ranks of its host (rank 0 is the
 * first local rank, at which all pipes end), over TCP with all others.
 */
#include <errno.h>

#include "collective/comm/comm_private.h"

#define PIECE (16u << 10)
#define FDS 4u /* to poll; the mesh has a single one */

static bool is_local(const struct hy_comm *c, unsigned rank)
{
    return c->host[rank] == c->host[c->rank];
}

static bool has_channel(const struct hy_comm *c, unsigned rank)
{
    return rank < c->size && rank != c->rank && (rank == 0 || c->rank == 0);
}

static ssize_t pipe_write(struct hy_comm *c, unsigned rank, const void *bytes, size_t n)
{
    if (is_local(c, rank))
        return (ssize_t)hy_shm_pipe_write(c->shm, c->local[rank], bytes, n);
    return hy_mesh_pipe_write(c->mesh, rank, bytes, n);
}

static ssize_t pipe_read(struct hy_comm *c, unsigned rank, void *bytes, size_t n)
{
    if (is_local(c, rank))
        return (ssize_t)hy_shm_pipe_read(c->shm, c->local[rank], bytes, n);
    return hy_mesh_pipe_read(c->mesh, rank, bytes, n);
}

/* Sends buffered data to that rank, as far as the pipe has room. */
static int push(struct hy_comm *c, unsigned rank)
{
    struct hy_buf *out = &c->channels[rank].out;

    if (c->channels[rank].dropped)
        hy_buf_clear(out);
    while (out->len) {
        ssize_t n = pipe_write(c, rank, hy_buf_bytes(out), out->len);

        if (n <= 0)
            return (int)n;
        hy_buf_consume(out, (size_t)n);
    }
    return 0;
}

/* Appends the data received from that rank. Returns how many bytes, or -Exxx. */
static ssize_t pull(struct hy_comm *c, unsigned rank, struct hy_buf *into)
{
    ssize_t all = 0, n;

    if (c->channels[rank].dropped)
        return 0;
    do {
        uint8_t *room = hy_buf_reserve(into, PIECE);

        if (!room)
            return -ENOMEM;
        n = pipe_read(c, rank, room, PIECE);
        if (n < 0)
            return n;
        hy_buf_added(into, (size_t)n);
        all += n;
    } while (n == PIECE);
    return all;
}

int hy_comm_send(struct hy_comm *c, unsigned rank, const void *bytes, size_t n)
{
    int rc;

    if (c->waiter.failed.code < 0)
        return c->waiter.failed.code;
    if (!has_channel(c, rank))
        return -EINVAL;
    rc = hy_buf_append(&c->channels[rank].out, bytes, n);
    return hy_comm_result(c, rc < 0 ? rc : push(c, rank));
}

int hy_comm_receive(struct hy_comm *c, unsigned rank, struct hy_buf *into)
{
    struct hy_buf *in;
    ssize_t n;
    int rc;

    if (c->waiter.failed.code < 0)
        return c->waiter.failed.code;
    if (!has_channel(c, rank))
        return -EINVAL;
    rc = push(c, rank);
    in = &c->channels[rank].in;
    if (rc == 0 && in->len) { /* received before a sleep; it may contain the last message of a rank that has exited */
        rc = hy_buf_append(into, hy_buf_bytes(in), in->len);
        hy_buf_clear(in);
        return hy_comm_result(c, rc);
    }
    if (rc < 0)
        return hy_comm_result(c, rc);
    n = pull(c, rank, into);
    return hy_comm_result(c, n < 0 ? (int)n : 0);
}

/* ---- sleep ----------------------------------------------------------------------------- */

/* 1 if there is data to receive. This includes TCP, since a collective may have consumed the edge-triggered event. */
static int check_channel(struct hy_comm *c, unsigned rank)
{
    int rc = push(c, rank);
    ssize_t n = rc < 0 ? rc : pull(c, rank, &c->channels[rank].in);

    return n < 0 ? (int)n : c->channels[rank].in.len > 0;
}

static int check_all_channels(struct hy_comm *c)
{
    unsigned end = c->rank ? 1 : c->size;
    int some = 0, rc;

    for (unsigned r = !c->rank; r < end; r++) {
        rc = check_channel(c, r);
        if (rc < 0)
            return rc;
        some |= rc;
    }
    return some;
}

static int poll_peers(struct hy_comm *c, int fd, int timeout_ms)
{
    struct pollfd fds[FDS];
    size_t count = c->mesh ? hy_mesh_pipe_fds(c->mesh, fds, FDS - 1) : 0;

    if (fd >= 0)
        fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    return hy_waiter_sleep(&c->waiter, fds, count, timeout_ms);
}

/* 1: a pipe is full. */
static int push_all(struct hy_comm *c)
{
    unsigned end = c->rank ? 1 : c->size;
    int rc = 0, some = 0;

    for (unsigned r = !c->rank; rc == 0 && r < end; r++) {
        rc = c->channels[r].out.len ? push(c, r) : 0;
        some |= c->channels[r].out.len > 0;
    }
    return rc < 0 ? rc : some;
}

/* Ranks with full pipes read them after finishing their earlier orders, which do not involve this rank. */
int hy_comm_flush(struct hy_comm *c)
{
    int rc = push_all(c);

    while (rc > 0) {
        if (c->shm)
            hy_shm_set_sleeping(c->shm, true);
        rc = push_all(c);
        if (rc > 0 && poll_peers(c, -1, -1) < 0)
            rc = c->waiter.failed.code;
        if (c->shm)
            hy_shm_set_sleeping(c->shm, false);
    }
    return hy_comm_result(c, rc);
}

void hy_comm_drop_rank(struct hy_comm *c, unsigned rank)
{
    if (has_channel(c, rank))
        c->channels[rank].dropped = true;
}

/* A writer rings only if it sees the flag: so the flag is set, then the channels are checked once more. */
int hy_comm_arm_wakeup(struct hy_comm *c)
{
    if (c->waiter.failed.code < 0)
        return c->waiter.failed.code;
    if (c->shm)
        hy_shm_set_sleeping(c->shm, true);
    return hy_comm_result(c, check_all_channels(c));
}

void hy_comm_disarm_wakeup(struct hy_comm *c)
{
    if (c->shm)
        hy_shm_set_sleeping(c->shm, false);
}

int hy_comm_sleep(struct hy_comm *c, int fd, int timeout_ms)
{
    int rc = hy_comm_arm_wakeup(c);

    if (rc == 0)
        rc = poll_peers(c, fd, timeout_ms);
    hy_comm_disarm_wakeup(c);
    return hy_comm_result(c, rc < 0 ? rc : 0);
}

void hy_comm_poll_begin(const struct hy_comm *c, int fd, bool peers, struct hy_comm_poll *poll)
{
    hy_waiter_fds(&c->waiter, poll->fds);
    poll->count = HY_WAITER_FDS;
    if (!peers)
        poll->fds[HY_WAITER_BELL].fd = -1;
    if (c->mesh && peers)
        poll->count += hy_mesh_pipe_fds(c->mesh, poll->fds + poll->count, HY_COMM_POLL_FDS - poll->count - 1);
    poll->fds[poll->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

int hy_comm_poll_end(struct hy_comm *c, const struct hy_comm_poll *poll)
{
    return hy_comm_result(c, hy_waiter_polled(&c->waiter, poll->fds));
}
