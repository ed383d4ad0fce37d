/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words between rank 0 and each other rank: through shared memory with those of
 * its own host (rank 0 is the first there, and pipes lead to the first), over
 * TCP with all others.
 */
#include <errno.h>

#include "collective/comm/comm_private.h"

#define PIECE (16u << 10)
#define FDS 4u /* that are polled; the mesh has one for all of its own */

static bool is_near(const struct hy_comm *c, unsigned rank)
{
    return c->host[rank] == c->host[c->rank];
}

static bool may_talk(const struct hy_comm *c, unsigned rank)
{
    return rank < c->size && rank != c->rank && (rank == 0 || c->rank == 0);
}

static ssize_t pipe_write(struct hy_comm *c, unsigned rank, const void *bytes, size_t n)
{
    if (is_near(c, rank))
        return (ssize_t)hy_shm_pipe_write(c->shm, c->local[rank], bytes, n);
    return hy_mesh_pipe_write(c->mesh, rank, bytes, n);
}

static ssize_t pipe_read(struct hy_comm *c, unsigned rank, void *bytes, size_t n)
{
    if (is_near(c, rank))
        return (ssize_t)hy_shm_pipe_read(c->shm, c->local[rank], bytes, n);
    return hy_mesh_pipe_read(c->mesh, rank, bytes, n);
}

/* Moves what is to go to that rank, as far as the pipe takes it. */
static int push(struct hy_comm *c, unsigned rank)
{
    struct hy_buf *out = &c->talks[rank].out;

    if (c->talks[rank].gone)
        hy_buf_clear(out);
    while (out->len) {
        ssize_t n = pipe_write(c, rank, hy_buf_bytes(out), out->len);

        if (n <= 0)
            return (int)n;
        hy_buf_consume(out, (size_t)n);
    }
    return 0;
}

/* Appends what has come from that rank. How many bytes, or -Exxx. */
static ssize_t pull(struct hy_comm *c, unsigned rank, struct hy_buf *into)
{
    ssize_t all = 0, n;

    if (c->talks[rank].gone)
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

int hy_comm_tell(struct hy_comm *c, unsigned rank, const void *bytes, size_t n)
{
    int rc;

    if (c->waiter.failed.code < 0)
        return c->waiter.failed.code;
    if (!may_talk(c, rank))
        return -EINVAL;
    rc = hy_buf_append(&c->talks[rank].out, bytes, n);
    return hy_comm_result(c, rc < 0 ? rc : push(c, rank));
}

int hy_comm_hear(struct hy_comm *c, unsigned rank, struct hy_buf *into)
{
    struct hy_buf *in;
    ssize_t n;
    int rc;

    if (c->waiter.failed.code < 0)
        return c->waiter.failed.code;
    if (!may_talk(c, rank))
        return -EINVAL;
    rc = push(c, rank);
    in = &c->talks[rank].in;
    if (rc == 0 && in->len) { /* came while we were about to sleep; its last word may be among it: that first */
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

/* Looks at one pipe once more: 1 if there is something to hear. Those over TCP too: an event that says so may
 * have been seen, and forgotten, in the midst of a collective. */
static int look(struct hy_comm *c, unsigned rank)
{
    int rc = push(c, rank);
    ssize_t n = rc < 0 ? rc : pull(c, rank, &c->talks[rank].in);

    return n < 0 ? (int)n : c->talks[rank].in.len > 0;
}

static int look_at_all(struct hy_comm *c)
{
    unsigned end = c->rank ? 1 : c->size;
    int some = 0, rc;

    for (unsigned r = !c->rank; r < end; r++) {
        rc = look(c, r);
        if (rc < 0)
            return rc;
        some |= rc;
    }
    return some;
}

static int doze(struct hy_comm *c, int fd, int timeout_ms)
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
        rc = c->talks[r].out.len ? push(c, r) : 0;
        some |= c->talks[r].out.len > 0;
    }
    return rc < 0 ? rc : some;
}

/* Those whose pipes are full read them when they are done with what they have been told before, without us. */
int hy_comm_flush(struct hy_comm *c)
{
    int rc = push_all(c);

    while (rc > 0) {
        if (c->shm)
            hy_shm_asleep(c->shm, true);
        rc = push_all(c);
        if (rc > 0 && doze(c, -1, -1) < 0)
            rc = c->waiter.failed.code;
        if (c->shm)
            hy_shm_asleep(c->shm, false);
    }
    return hy_comm_result(c, rc);
}

void hy_comm_let_go(struct hy_comm *c, unsigned rank)
{
    if (may_talk(c, rank))
        c->talks[rank].gone = true;
}

/* Whoever writes to us rings only if he sees us asleep: so we say so, look once more, and only then sleep. */
int hy_comm_lie_down(struct hy_comm *c)
{
    if (c->waiter.failed.code < 0)
        return c->waiter.failed.code;
    if (c->shm)
        hy_shm_asleep(c->shm, true);
    return hy_comm_result(c, look_at_all(c));
}

void hy_comm_get_up(struct hy_comm *c)
{
    if (c->shm)
        hy_shm_asleep(c->shm, false);
}

int hy_comm_sleep(struct hy_comm *c, int fd, int timeout_ms)
{
    int rc = hy_comm_lie_down(c);

    if (rc == 0)
        rc = doze(c, fd, timeout_ms);
    hy_comm_get_up(c);
    return hy_comm_result(c, rc < 0 ? rc : 0);
}

void hy_comm_nap_begin(const struct hy_comm *c, int fd, bool hears, struct hy_nap *nap)
{
    hy_waiter_fds(&c->waiter, nap->fds);
    nap->count = HY_WAITER_FDS;
    if (!hears)
        nap->fds[HY_WAITER_BELL].fd = -1;
    if (c->mesh && hears)
        nap->count += hy_mesh_pipe_fds(c->mesh, nap->fds + nap->count, HY_NAP_FDS - nap->count - 1);
    nap->fds[nap->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

int hy_comm_nap_end(struct hy_comm *c, const struct hy_nap *nap)
{
    return hy_comm_result(c, hy_waiter_after(&c->waiter, nap->fds));
}
