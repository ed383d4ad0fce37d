/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a communicator. Collectives are in comm_move.c, comm_reduce.c and adasum.c, sets in set.c. */
#include "collective/comm/comm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "collective/comm/comm_private.h"

#define CHANNEL_MAX (64u << 20) /* bytes buffered for or from one rank */

/* ---- open and close ----------------------------------------------------------------- */

static int check_spec(const struct hy_comm_spec *spec, struct hy_err *err)
{
    if (!spec->size || spec->size > HY_RANKS_MAX || spec->rank >= spec->size)
        return hy_err_set(err, -EINVAL, "invalid rank %u of %u: a group has 1 to %u ranks", spec->rank, spec->size,
                          HY_RANKS_MAX);
    return 0;
}

static struct hy_comm *allocate(unsigned size)
{
    struct hy_comm *c = hy_calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->waiter.bell = -1;
    c->size = size;
    c->host = hy_calloc(size, sizeof *c->host);
    c->local = hy_calloc(size, sizeof *c->local);
    c->local_sizes = hy_calloc(size, sizeof *c->local_sizes);
    c->channels = hy_calloc(size, sizeof *c->channels);
    if (c->host && c->local && c->local_sizes && c->channels)
        return c;
    hy_comm_close(c);
    return NULL;
}

/* The numbers of hosts in the spec are arbitrary; here they are consecutive, in the order of their first ranks. */
static unsigned find_host(const struct hy_comm *c, const struct hy_comm_member *members, unsigned rank)
{
    for (unsigned earlier = 0; earlier < rank; earlier++)
        if (members[earlier].host == members[rank].host)
            return c->host[earlier];
    return c->host_count;
}

static void find_places(struct hy_comm *c, const struct hy_comm_member *members)
{
    for (unsigned r = 0; r < c->size; r++) {
        unsigned host = find_host(c, members, r);

        c->host_count += host == c->host_count;
        c->host[r] = host;
        c->local[r] = c->local_sizes[host]++;
        hy_buf_init(&c->channels[r].out, CHANNEL_MAX);
        hy_buf_init(&c->channels[r].in, CHANNEL_MAX);
    }
}

static int open_shm(struct hy_comm *c, const struct hy_comm_spec *spec, struct hy_err *err)
{
    const char *bells[HY_LOCAL_MAX_RANKS];
    unsigned count = hy_comm_local_size(c);

    if (count == 1)
        return 0;
    if (count > HY_LOCAL_MAX_RANKS)
        return hy_err_set(err, -EINVAL, "%u ranks on one host: at most %u can share memory; use more hosts", count,
                          HY_LOCAL_MAX_RANKS);
    for (unsigned r = 0; r < c->size; r++)
        if (c->host[r] == c->host[c->rank])
            bells[c->local[r]] = spec->members[r].bell;
    return hy_shm_open(spec->shm_fd, c->local[c->rank], count, bells, &c->waiter, &c->shm, err);
}

static int open_mesh(struct hy_comm *c, const struct hy_comm_spec *spec, struct hy_err *err)
{
    hy_cleanup_free struct hy_mesh_peer *peers = NULL;

    if (c->host_count == 1)
        return 0;
    peers = hy_calloc(c->size, sizeof *peers);
    if (!peers)
        return hy_err_set(err, -ENOMEM, "out of memory for a group of %u ranks", c->size);
    for (unsigned r = 0; r < c->size; r++)
        peers[r] = spec->members[r].tcp;
    return hy_mesh_open(spec->listen_fd, c->rank, c->size, peers, spec->key, &c->waiter, &c->mesh, err);
}

int hy_comm_open(const struct hy_comm_spec *spec, struct hy_comm **ret, struct hy_err *err)
{
    struct hy_comm *c;
    int rc = check_spec(spec, err);

    if (rc < 0)
        return rc;
    c = allocate(spec->size);
    if (!c)
        return hy_err_set(err, -ENOMEM, "out of memory for a group of %u ranks", spec->size);
    c->rank = spec->rank;
    c->waiter = spec->waiter;
    find_places(c, spec->members);
    rc = open_shm(c, spec, err);
    if (rc == 0)
        rc = open_mesh(c, spec, err);
    if (rc < 0) {
        c->waiter.bell = -1; /* remains the caller's */
        hy_comm_close(c);
        return rc;
    }
    if (!c->mesh && spec->listen_fd >= 0)
        close(spec->listen_fd); /* taken, and not needed */
    *ret = c;
    return 0;
}

void hy_comm_close(struct hy_comm *c)
{
    if (!c)
        return;
    hy_mesh_close(c->mesh);
    hy_shm_close(c->shm);
    hy_close_at(&c->waiter.bell);
    for (unsigned r = 0; c->channels && r < c->size; r++) {
        hy_buf_done(&c->channels[r].out);
        hy_buf_done(&c->channels[r].in);
    }
    free(c->channels);
    free(c->host);
    free(c->local);
    free(c->local_sizes);
    free(c);
}

/* ---- queries ------------------------------------------------------------- */

int hy_comm_awaited(const struct hy_comm *c)
{
    if (c->waiter.awaited_peer)
        return (int)c->waiter.awaited_peer - 1;
    for (unsigned r = 0; c->waiter.awaited_local && r < c->size; r++)
        if (c->host[r] == c->host[c->rank] && c->local[r] == c->waiter.awaited_local - 1)
            return (int)r;
    return -1;
}

const struct hy_err *hy_comm_error(const struct hy_comm *c)
{
    return &c->waiter.failed;
}

int hy_comm_result(struct hy_comm *c, int rc)
{
    if (rc < 0 && c->waiter.failed.code >= 0)
        hy_err_sys(&c->waiter.failed, rc, "rank %u cannot continue", c->rank);
    return rc;
}

unsigned hy_comm_rank(const struct hy_comm *c)
{
    return c->rank;
}

unsigned hy_comm_size(const struct hy_comm *c)
{
    return c->size;
}

unsigned hy_comm_local_rank(const struct hy_comm *c)
{
    return c->local[c->rank];
}

unsigned hy_comm_local_size(const struct hy_comm *c)
{
    return c->local_sizes[c->host[c->rank]];
}

/* How many of the hosts below `end` have a rank with the local rank of this one. */
static unsigned count_hosts(const struct hy_comm *c, unsigned end)
{
    unsigned count = 0;

    for (unsigned h = 0; h < end; h++)
        count += c->local_sizes[h] > c->local[c->rank];
    return count;
}

unsigned hy_comm_cross_rank(const struct hy_comm *c)
{
    return count_hosts(c, c->host[c->rank]);
}

unsigned hy_comm_cross_size(const struct hy_comm *c)
{
    return count_hosts(c, c->host_count);
}

bool hy_comm_is_homogeneous(const struct hy_comm *c)
{
    unsigned here = hy_comm_local_size(c);

    for (unsigned h = 0; h < c->host_count; h++)
        if (c->local_sizes[h] != here)
            return false;
    return true;
}
