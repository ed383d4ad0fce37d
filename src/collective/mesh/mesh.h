/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of different agents, over TCP.
 *
 * Links come to be when they are first needed: the higher rank dials, the lower
 * one accepts; several streams to a link for large messages. Both ends prove
 * that they know the group's key and who they are (HMAC-SHA-256 over fresh
 * nonces, in both directions) before a byte counts; the bytes themselves are
 * neither secret nor signed. A peer whose end is gone, or whose machine does
 * not answer (the kernel's keepalive; a stopped process still answers), is
 * named, after the waiter's `check` has had a second to know better: the
 * sentence is in waiter->failed, and no call succeeds from then on.
 *
 * As in shm.h: calls block, one thread, the same order everywhere; `peers` are
 * ranks in the group, ascending, we among them, and every one of them makes the
 * same call.
 */
#ifndef HY_COLLECTIVE_MESH_H
#define HY_COLLECTIVE_MESH_H

#include <sys/socket.h>

#include "collective/mesh/addresses.h"
#include "collective/numbers/types.h"
#include "collective/shm/wait.h"

#define HY_MESH_KEY_SIZE 32
#define HY_MESH_TIMEOUT_MS 5000 /* silence of a machine, not of a process */

struct hy_mesh;

struct hy_mesh_peer {
    const char *const *addresses; /* "10.0.0.2", "fd00::1": tried in turn */
    size_t address_count;
    uint16_t port;
};

/* A socket that listens, close-on-exec; its port, and the addresses of hy_host_addresses. */
int hy_mesh_listen(uint16_t *ret_port, char ***ret_addresses, size_t *ret_count, struct hy_err *err);

/* "10.0.0.2", "fd00::1"; -EINVAL for anything else. */
int hy_mesh_parse_address(const char *text, uint16_t port, struct sockaddr_storage *ret, socklen_t *ret_size);
/* No delay, and an error within HY_MESH_TIMEOUT_MS when the other machine does not answer any more. */
int hy_mesh_socket_options(int fd);

/* Takes `listen_fd` on success. `peers` by rank, copied (our own entry is not looked at). */
int hy_mesh_open(int listen_fd, unsigned rank, unsigned size, const struct hy_mesh_peer *peers,
                 const uint8_t key[HY_MESH_KEY_SIZE], struct hy_waiter *waiter, struct hy_mesh **ret, struct hy_err *err);
void hy_mesh_close(struct hy_mesh *m);

/* In place: buf = buf of peers[0] op buf of peers[1] ... Bit-identical everywhere. Not HY_ADASUM; HY_AVERAGE is HY_SUM. */
int hy_mesh_allreduce(struct hy_mesh *m, const unsigned *peers, unsigned count, void *buf, size_t elements,
                      enum hy_type type, enum hy_reduce op);
/* Half of it: peers[i] gets its slice of the reduction in `buf`, in its place; the rest stays as it was.
 * counts[i]: elements of that slice; they lie one behind the other. */
int hy_mesh_reducescatter(struct hy_mesh *m, const unsigned *peers, unsigned count, void *buf, const size_t *counts,
                          enum hy_type type, enum hy_reduce op);
/* `root`: index in `peers`. */
int hy_mesh_broadcast(struct hy_mesh *m, const unsigned *peers, unsigned count, void *bytes, size_t n, unsigned root);
int hy_mesh_allgather(struct hy_mesh *m, const unsigned *peers, unsigned count, void *out, const size_t *sizes,
                      const size_t *offsets); /* ours lies in its place already */
/* Any exchange at all: for each transfer, bytes to or from that rank; all at once. Transfers to one peer keep
 * their order. What alltoall between hosts and everything irregular is made of. */
struct hy_transfer {
    unsigned peer; /* rank */
    void *bytes;
    size_t n;
};
int hy_mesh_exchange(struct hy_mesh *m, const struct hy_transfer *sends, size_t send_count,
                     const struct hy_transfer *receives, size_t receive_count);
int hy_mesh_barrier(struct hy_mesh *m, const unsigned *peers, unsigned count);

/* Byte pipes between rank 0 and others, on a connection of their own, which the first of these calls begins to
 * make. Never block: how many bytes were taken or are there (none before the connection stands), or -Exxx when it
 * is gone. They also serve whoever dials us, so call them again and again. */
ssize_t hy_mesh_pipe_write(struct hy_mesh *m, unsigned peer, const void *bytes, size_t n);
ssize_t hy_mesh_pipe_read(struct hy_mesh *m, unsigned peer, void *bytes, size_t n);
/* What to poll for them (and for those who dial): fills up to `room`, returns how many. Look again at least
 * every 100 ms, as hy_waiter_sleep lets you. */
size_t hy_mesh_pipe_fds(const struct hy_mesh *m, struct pollfd *fds, size_t room);

#endif
