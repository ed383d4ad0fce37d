/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives among ranks of different agents, over TCP.
 *
 * Links are created on first use: the higher rank dials, the lower one accepts. A link has several streams for large
 * messages. Both ends prove their rank and the group's key (HMAC-SHA-256 over fresh nonces, in both directions) before
 * any data is accepted; the data itself is neither encrypted nor signed. A peer that has closed its connection, or
 * whose machine does not respond (TCP keepalive; a stopped process still responds), fails the mesh. The error names
 * it, unless the waiter's `check` reports a better cause within a second: the message is in waiter->failed, and all
 * later calls fail.
 *
 * As in shm.h, calls block, come from one thread, and in the same order on all ranks. `peers` are ranks of the group,
 * ascending, including this one; all of them make the same call.
 */
#ifndef HY_COLLECTIVE_MESH_H
#define HY_COLLECTIVE_MESH_H

#include <sys/socket.h>

#include "collective/mesh/addresses.h"
#include "collective/numbers/types.h"
#include "collective/shm/wait.h"

#define HY_MESH_KEY_SIZE 32
#define HY_MESH_TIMEOUT_MS 5000 /* without a response from a machine; a process may be stopped for longer */

struct hy_mesh;

struct hy_mesh_peer {
    const char *const *addresses; /* "10.0.0.2", "fd00::1" */
    size_t address_count;
    uint16_t port;
};

/* A machine with containers has hundreds; the first ones of each kind are enough to be reached. */
#define HY_MESH_ADDRESSES_MAX 32
/* A listening socket, close-on-exec; its port, and the addresses of hy_host_addresses. */
int hy_mesh_listen(uint16_t *ret_port, char ***ret_addresses, size_t *ret_count, struct hy_err *err);

/* "10.0.0.2", "fd00::1"; -EINVAL for anything else. */
int hy_mesh_parse_address(const char *text, uint16_t port, struct sockaddr_storage *ret, socklen_t *ret_size);
/* No delay, and an error within HY_MESH_TIMEOUT_MS when the other machine stops responding. */
int hy_mesh_socket_options(int fd);

/* Takes `listen_fd` on success. `peers` by rank, copied; the entry of this rank is ignored. */
int hy_mesh_open(int listen_fd, unsigned rank, unsigned size, const struct hy_mesh_peer *peers,
                 const uint8_t key[HY_MESH_KEY_SIZE], struct hy_waiter *waiter, struct hy_mesh **ret,
                 struct hy_err *err);
void hy_mesh_close(struct hy_mesh *m);

/* In place: buf = buf of peers[0] op buf of peers[1] ... Bit-identical on all peers. Not HY_ADASUM; HY_AVERAGE is
 * HY_SUM. */
int hy_mesh_allreduce(struct hy_mesh *m, const unsigned *peers, unsigned count, void *buf, size_t elements,
                      enum hy_type type, enum hy_reduce op);
/* The first half of it: peers[i] gets slice i of the reduction, at its offset in `buf`; the rest of `buf` is unchanged.
 * counts[i]: elements of slice i; slices are contiguous. */
int hy_mesh_reducescatter(struct hy_mesh *m, const unsigned *peers, unsigned count, void *buf, const size_t *counts,
                          enum hy_type type, enum hy_reduce op);
/* `root`: index in `peers`. */
int hy_mesh_broadcast(struct hy_mesh *m, const unsigned *peers, unsigned count, void *bytes, size_t n, unsigned root);
int hy_mesh_allgather(struct hy_mesh *m, const unsigned *peers, unsigned count, void *out, const size_t *sizes,
                      const size_t *offsets); /* the share of this rank is already at its offset */
/* An arbitrary exchange: all transfers at the same time; transfers with one peer keep their order. Alltoall between
 * hosts, and all irregular communication, is made of this. */
struct hy_transfer {
    unsigned peer; /* rank */
    void *bytes;
    size_t n;
};
int hy_mesh_exchange(struct hy_mesh *m, const struct hy_transfer *sends, size_t send_count,
                     const struct hy_transfer *receives, size_t receive_count);
int hy_mesh_barrier(struct hy_mesh *m, const unsigned *peers, unsigned count);

/* Byte pipes between rank 0 and each other rank, on a separate connection, which the first call starts. Never block:
 * return how many bytes were written or read (0 until the connection is established), or -Exxx when it is lost. They
 * also accept connections, so call them repeatedly. */
ssize_t hy_mesh_pipe_write(struct hy_mesh *m, unsigned peer, const void *bytes, size_t n);
ssize_t hy_mesh_pipe_read(struct hy_mesh *m, unsigned peer, void *bytes, size_t n);
/* The descriptors to poll for them, and for incoming connections: writes up to `room`, returns how many. Call the pipes
 * at least every 100 ms, as hy_waiter_sleep does. */
size_t hy_mesh_pipe_fds(const struct hy_mesh *m, struct pollfd *fds, size_t room);

#endif
