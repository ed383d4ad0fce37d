/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives without reduction, on both levels: barrier, broadcast, allgather, alltoall, pairwise exchange. */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "collective/comm/comm_private.h"

#define CHUNK (1u << 20) /* of a broadcast: shared within the host while the next chunk is transferred */

static int failure(const struct hy_set *s)
{
    return s->comm->waiter.failed.code;
}

static void copy(void *to, const void *from, size_t n)
{
    if (n && to != from)
        memcpy(to, from, n);
}

/* ---- barrier --------------------------------------------------------------------------- */

/* The first member of each host, for mesh.h; ascending, since hosts are in the order of their first members. */
static const unsigned *first_peers(struct hy_set *s)
{
    for (unsigned h = 0; h < s->host_count; h++)
        s->peers[h] = s->members[hy_set_at(s, h, 0)];
    return s->peers;
}

int hy_set_barrier(struct hy_set *s)
{
    int rc = failure(s);

    if (rc == 0 && s->shm)
        rc = hy_shm_barrier(s->shm);
    if (rc == 0 && s->host_count > 1) {
        if (s->place == 0)
            rc = hy_mesh_barrier(s->comm->mesh, first_peers(s), s->host_count);
        if (rc == 0 && s->shm)
            rc = hy_shm_barrier(s->shm);
    }
    return hy_comm_result(s->comm, rc);
}

/* ---- broadcast ------------------------------------------------------------------------- */

/* The member of a host that communicates with other hosts: the root on its host, otherwise the first. */
static unsigned leader(const struct hy_set *s, unsigned host, unsigned root)
{
    return s->host_of[root] == host ? root : hy_set_at(s, host, 0);
}

/* The ranks of the leaders, ascending; returns the index of the root among them. */
static unsigned find_leaders(struct hy_set *s, unsigned root)
{
    unsigned found = 0, at = 0;

    for (unsigned i = 0; i < s->count; i++) {
        if (leader(s, s->host_of[i], root) != i)
            continue;
        if (i == root)
            at = found;
        s->peers[found++] = s->members[i];
    }
    return at;
}

static int broadcast_chunk(struct hy_set *s, void *bytes, size_t n, unsigned leader_here, unsigned root_at)
{
    int rc = 0;

    if (s->index == leader_here && s->host_count > 1)
        rc = hy_mesh_broadcast(s->comm->mesh, s->peers, s->host_count, bytes, n, root_at);
    if (rc == 0 && s->shm)
        rc = hy_shm_broadcast(s->shm, bytes, n, s->place_of[leader_here]);
    return rc;
}

int hy_set_broadcast(struct hy_set *s, void *bytes, size_t n, unsigned root)
{
    unsigned root_at = find_leaders(s, root), leader_here = leader(s, s->here, root);
    /* A single level divides it by itself. */
    size_t most = s->host_count == 1 || s->host_count == s->count ? n : CHUNK;
    int rc = failure(s);

    for (size_t done = 0, chunk; rc == 0 && done < n; done += chunk) {
        chunk = n - done < most ? n - done : most;
        rc = broadcast_chunk(s, (char *)bytes + done, chunk, leader_here, root_at);
    }
    return hy_comm_result(s->comm, rc);
}

/* ---- allgather ------------------------------------------------------------------------- */

/*
 * First within the hosts. Then the lanes of a host send its members' pieces to each other host: lane j those of members
 * j, j + lanes, ... Then each host shares the received pieces.
 */
struct gather {
    struct hy_set *set;
    char *out;
    const size_t *sizes, *offsets; /* by index */
};

static int gather_here(struct gather *g, const void *in)
{
    struct hy_set *s = g->set;
    size_t sizes[HY_LOCAL_MAX_RANKS], offsets[HY_LOCAL_MAX_RANKS];

    if (!s->shm) {
        copy(g->out + g->offsets[s->index], in, g->sizes[s->index]);
        return 0;
    }
    for (unsigned p = 0; p < s->count_of[s->here]; p++) {
        sizes[p] = g->sizes[hy_set_at(s, s->here, p)];
        offsets[p] = g->offsets[hy_set_at(s, s->here, p)];
    }
    return hy_shm_allgather(s->shm, in, g->out, sizes, offsets);
}

/* Appends to `list` the pieces of `host` that this lane transfers from or to `peer`. Returns the new length. */
static size_t list_pieces(struct gather *g, struct hy_transfer *list, size_t length, unsigned host, unsigned peer)
{
    for (unsigned p = g->set->place; p < g->set->count_of[host]; p += g->set->lanes) {
        unsigned i = hy_set_at(g->set, host, p);

        if (g->sizes[i])
            list[length++] = (struct hy_transfer){.peer = peer, .bytes = g->out + g->offsets[i], .n = g->sizes[i]};
    }
    return length;
}

static int gather_lane(struct gather *g)
{
    struct hy_set *s = g->set;
    hy_cleanup_free struct hy_transfer *sends = NULL, *receives = NULL;
    size_t send_count = 0, receive_count = 0;

    if (!hy_set_is_in_lane(s))
        return 0;
    sends = hy_calloc((size_t)s->host_count * s->count_of[s->here], sizeof *sends);
    receives = hy_calloc(s->count, sizeof *receives);
    if (!sends || !receives)
        return -ENOMEM;
    for (unsigned l = 0; l < s->host_count; l++) {
        unsigned host = s->host_of[s->lane[l]], peer = s->members[s->lane[l]];

        if (host == s->here)
            continue;
        send_count = list_pieces(g, sends, send_count, s->here, peer);
        receive_count = list_pieces(g, receives, receive_count, host, peer);
    }
    return hy_mesh_exchange(s->comm->mesh, sends, send_count, receives, receive_count);
}

/* Shares one piece of each lane, of the members of `host` from place `from` on, with all members of this host. */
static int share_pieces(struct gather *g, unsigned host, unsigned from)
{
    struct hy_set *s = g->set;
    size_t sizes[HY_LOCAL_MAX_RANKS] = {0}, offsets[HY_LOCAL_MAX_RANKS] = {0}, all = 0;

    for (unsigned j = 0; j < s->lanes && from + j < s->count_of[host]; j++) {
        unsigned i = hy_set_at(s, host, from + j);

        sizes[j] = g->sizes[i];
        offsets[j] = g->offsets[i];
        all += sizes[j];
    }
    return all ? hy_shm_allgather(s->shm, g->out + offsets[s->place], g->out, sizes, offsets) : 0;
}

static int share_all(struct gather *g)
{
    struct hy_set *s = g->set;
    int rc = 0;

    for (unsigned h = 0; s->shm && h < s->host_count; h++)
        for (unsigned from = 0; h != s->here && rc == 0 && from < s->count_of[h]; from += s->lanes)
            rc = share_pieces(g, h, from);
    return rc;
}

int hy_set_allgather(struct hy_set *s, const void *in, void *out, const size_t *sizes, const size_t *offsets)
{
    struct gather g = {.set = s, .out = out, .sizes = sizes, .offsets = offsets};
    int rc = failure(s);

    if (rc == 0)
        rc = gather_here(&g, in);
    if (rc == 0 && s->host_count > 1)
        rc = gather_lane(&g);
    if (rc == 0 && s->host_count > 1)
        rc = share_all(&g);
    return hy_comm_result(s->comm, rc);
}

/* ---- alltoall -------------------------------------------------------------------------- */

/* Bytes between this rank and member i. */
static size_t bytes_to(const struct hy_set *s, const size_t *matrix, unsigned i)
{
    return matrix[(size_t)s->index * s->count + i];
}

static size_t bytes_from(const struct hy_set *s, const size_t *matrix, unsigned i)
{
    return matrix[(size_t)i * s->count + s->index];
}

/* Directly with the members of other hosts, all at the same time. */
static int exchange_remote(struct hy_set *s, const char *in, char *out, const size_t *matrix)
{
    hy_cleanup_free struct hy_transfer *sends = hy_calloc(s->count, sizeof *sends);
    hy_cleanup_free struct hy_transfer *receives = hy_calloc(s->count, sizeof *receives);
    size_t send_count = 0, receive_count = 0;

    if (!sends || !receives)
        return -ENOMEM;
    for (unsigned i = 0; i < s->count; i++) {
        size_t to = bytes_to(s, matrix, i), from = bytes_from(s, matrix, i);

        if (s->host_of[i] != s->here && to)
            sends[send_count++] = (struct hy_transfer){.peer = s->members[i], .bytes = (void *)in, .n = to};
        if (s->host_of[i] != s->here && from)
            receives[receive_count++] = (struct hy_transfer){.peer = s->members[i], .bytes = out, .n = from};
        in += to;
        out += from;
    }
    return hy_mesh_exchange(s->comm->mesh, sends, send_count, receives, receive_count);
}

/* shm.h needs the data of the members of this host contiguous; the input has data for other hosts in between. */
struct local_exchange {
    size_t *matrix; /* of the members of this host */
    char *sent, *received;
};

static int allocate_local(struct local_exchange *n, const struct hy_set *s, const size_t *matrix)
{
    unsigned count = s->count_of[s->here];
    size_t sent = 0, received = 0;

    n->matrix = hy_calloc((size_t)count * count, sizeof *n->matrix);
    for (unsigned p = 0; n->matrix && p < count; p++) {
        unsigned i = hy_set_at(s, s->here, p);

        sent += bytes_to(s, matrix, i);
        received += bytes_from(s, matrix, i);
        for (unsigned to = 0; to < count; to++)
            n->matrix[p * count + to] = matrix[(size_t)i * s->count + hy_set_at(s, s->here, to)];
    }
    n->sent = hy_malloc(sent + 1);
    n->received = hy_malloc(received + 1);
    return n->matrix && n->sent && n->received ? 0 : -ENOMEM;
}

static void pack(const struct hy_set *s, const size_t *matrix, const char *in, char *sent)
{
    for (unsigned i = 0; i < s->count; in += bytes_to(s, matrix, i++))
        if (s->host_of[i] == s->here) {
            copy(sent, in, bytes_to(s, matrix, i));
            sent += bytes_to(s, matrix, i);
        }
}

static void unpack(const struct hy_set *s, const size_t *matrix, const char *received, char *out)
{
    for (unsigned i = 0; i < s->count; out += bytes_from(s, matrix, i++))
        if (s->host_of[i] == s->here) {
            copy(out, received, bytes_from(s, matrix, i));
            received += bytes_from(s, matrix, i);
        }
}

static int exchange_local(struct hy_set *s, const char *in, char *out, const size_t *matrix)
{
    hy_cleanup_free size_t *here = NULL;
    hy_cleanup_free char *sent = NULL, *received = NULL;
    struct local_exchange n;
    int rc = allocate_local(&n, s, matrix);

    here = n.matrix;
    sent = n.sent;
    received = n.received;
    if (rc < 0)
        return rc;
    pack(s, matrix, in, sent);
    rc = hy_shm_alltoall(s->shm, sent, received, here);
    if (rc == 0)
        unpack(s, matrix, received, out);
    return rc;
}

/* For the only member of a host. */
static void copy_own(const struct hy_set *s, const char *in, char *out, const size_t *matrix)
{
    for (unsigned i = 0; i < s->index; i++) {
        in += bytes_to(s, matrix, i);
        out += bytes_from(s, matrix, i);
    }
    copy(out, in, bytes_to(s, matrix, s->index));
}

int hy_set_alltoall(struct hy_set *s, const void *in, void *out, const size_t *matrix)
{
    int rc = failure(s);

    if (rc == 0 && s->host_count > 1)
        rc = exchange_remote(s, in, out, matrix);
    if (rc < 0)
        return hy_comm_result(s->comm, rc);
    if (s->shm && s->host_count == 1)
        rc = hy_shm_alltoall(s->shm, in, out, matrix);
    else if (s->shm)
        rc = exchange_local(s, in, out, matrix);
    else
        copy_own(s, in, out, matrix);
    return hy_comm_result(s->comm, rc);
}

/* ---- pairwise exchange ----------------------------------------------------------------------------- */

static int swap_remote(struct hy_set *s, unsigned partner, const void *sent, size_t sent_bytes, void *received,
                       size_t received_bytes)
{
    unsigned peer = s->members[partner];
    const struct hy_transfer send = {.peer = peer, .bytes = (void *)sent, .n = sent_bytes};
    const struct hy_transfer receive = {.peer = peer, .bytes = received, .n = received_bytes};

    return hy_mesh_exchange(s->comm->mesh, &send, sent_bytes > 0, &receive, received_bytes > 0);
}

/* Pairs within this host: an alltoall with a sparse matrix. */
static int swap_local(struct hy_set *s, const unsigned *partners, const size_t *bytes, const void *sent, void *received)
{
    unsigned count = s->count_of[s->here], pairs = 0;
    hy_cleanup_free size_t *matrix = hy_calloc((size_t)count * count, sizeof *matrix);

    if (!matrix)
        return -ENOMEM;
    for (unsigned p = 0; p < count; p++) {
        unsigned i = hy_set_at(s, s->here, p), partner = partners[i];

        if (partner == i || s->host_of[partner] != s->here)
            continue;
        matrix[p * count + s->place_of[partner]] = bytes[i];
        pairs++;
    }
    return pairs ? hy_shm_alltoall(s->shm, sent, received, matrix) : 0;
}

int hy_set_swap(struct hy_set *s, const unsigned *partners, const size_t *bytes, const void *sent, void *received)
{
    unsigned partner = partners[s->index];
    int rc = 0;

    if (s->host_of[partner] != s->here)
        rc = swap_remote(s, partner, sent, bytes[s->index], received, bytes[partner]);
    if (rc == 0 && s->shm)
        rc = swap_local(s, partners, bytes, sent, received);
    return rc;
}
