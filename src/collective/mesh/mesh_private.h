/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the mesh.
 *
 *     mesh_listen.c     the listening socket, the addresses of this machine
 *     mesh.c            a mesh, its links, its event loop, and the error when a link is lost
 *     mesh_connect.c    from a connection to a stream: dialing, accepting, the handshake
 *     mesh_exchange.c   concurrent transfers through streams
 *     mesh_reduce.c     allreduce and reducescatter
 *     mesh_broadcast.c  broadcast, allgather, barrier
 *     mesh_pipe.c       the byte pipes
 *
 * One thread, no blocking call: one epoll set, edge-triggered, drives everything. A stream remembers that it may be
 * read or written until the kernel returns EAGAIN.
 */
#ifndef HY_COLLECTIVE_MESH_PRIVATE_H
#define HY_COLLECTIVE_MESH_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "collective/mesh/mesh.h"
#include "collective/mesh/mesh_choice.h"

/*
 * The connections of a link. Nothing is ever sent on the first one: since it is idle, TCP keepalive probes the other
 * machine all the time. (On a stream that is full because the other process is stopped it does not, and
 * TCP_USER_TIMEOUT would mistake the full window for a dead machine.)
 */
enum { HY_CHANNEL_LIFE, HY_CHANNEL_PIPE, HY_CHANNEL_DATA, HY_CHANNELS = HY_CHANNEL_DATA + HY_MESH_STREAMS };

#define HY_WHERE_MAX 80
#define HY_MESH_ACCEPTS_MAX 8u /* connections accepted per iteration of the loop */

/* The data of an epoll event: the first member of everything that waits for events. */
struct hy_watch {
    void (*ready)(struct hy_mesh *m, struct hy_watch *watch, uint32_t events);
};

/*
 * A transfer in one direction of one stream, for the duration of a call: the segments lane, lane + lanes,
 * lane + 2 lanes ... of a message. Flows of one stream are processed in order.
 */
struct hy_flow {
    uint8_t *bytes;
    size_t n;
    size_t segment;        /* its length; the last segment may be shorter */
    size_t index, offset;  /* the position: segment, and offset in it */
    const size_t *allowed; /* segments from this one on must not be transferred yet; NULL: all may */
    unsigned lanes;
    unsigned ring;         /* not 0: `bytes` is a ring of that many segments */
    struct hy_flow *next;  /* the following flow of the stream */
};

struct hy_mesh_stream {
    struct hy_watch watch;
    struct hy_list active; /* in mesh->active while there are flows */
    struct hy_flow *sending, *receiving;
    unsigned peer, channel;
    int fd;                /* -1: none yet */
    bool can_read, can_write;
    bool requested;        /* being connected: this rank dials, or the peer will */
    struct hy_mesh_dial *dial;  /* NULL: not being dialed */
};

struct hy_mesh_link {
    char **addresses; /* owned */
    size_t address_count;
    size_t address;   /* the one that answered */
    uint16_t port;
    uint64_t closed;  /* 0: open; otherwise its ordinal among closed links */
    char where[HY_WHERE_MAX];
    struct hy_mesh_stream streams[HY_CHANNELS];
};

struct hy_mesh {
    struct hy_watch watch; /* the listener's */
    int listen_fd, epoll_fd;
    unsigned rank, size;
    struct hy_waiter *waiter;
    struct hy_mesh_link *links;                      /* by rank */
    struct hy_list active;                      /* streams with flows */
    struct hy_list dials;                       /* streams being dialed */
    struct hy_list incoming, outgoing, closed;  /* connections in their handshake; those to be freed */
    unsigned incoming_count;
    bool may_accept;
    int64_t accept_at, short_since;             /* 0: descriptors and memory are not short */
    int64_t timer_at;                           /* when to run hy_mesh_on_timer */
    uint64_t closings;
    unsigned last_piped;                        /* the rank whose pipe was used last */
    struct hy_err broken;                       /* an error of a callback; the next wait returns it */
    uint8_t *scratch;                           /* kept from call to call */
    size_t scratch_size;
    uint8_t key[HY_MESH_KEY_SIZE];
};

#define HY_NO_TIMER INT64_MAX

/* mesh.c */
int hy_mesh_watch(struct hy_mesh *m, int fd, struct hy_watch *watch); /* replaces the watch of an fd that has one */
void hy_mesh_timer(struct hy_mesh *m, int64_t at); /* at that time at the latest */
/* Processes pending events without sleeping; returns how many there were. */
int hy_mesh_poll(struct hy_mesh *m);
/* Sleeps until there is an event. 0 or -Exxx with waiter->failed set. */
int hy_mesh_wait(struct hy_mesh *m);
/* Records the failure of a peer; the first one counts. */
void hy_mesh_peer_failed(struct hy_mesh *m, unsigned peer, int code);
/* Fails the mesh: waits up to a second for the driver to report which rank died first, then uses the recorded failure.
 * Returns waiter->failed.code. */
int hy_mesh_fail(struct hy_mesh *m);
/* Valid until the next call; NULL: out of memory, with waiter->failed set. */
uint8_t *hy_mesh_scratch(struct hy_mesh *m, size_t n);
/* Takes an authenticated connection. 0 or -Exxx (then it remains the caller's). */
int hy_mesh_stream_open(struct hy_mesh *m, struct hy_mesh_stream *s, int fd);
static inline struct hy_mesh_stream *hy_mesh_stream_of(struct hy_mesh *m, unsigned peer, unsigned channel)
{
    return &m->links[peer].streams[channel];
}

/* mesh_connect.c */
void hy_mesh_on_listener(struct hy_mesh *m, struct hy_watch *watch, uint32_t events);
void hy_mesh_connect(struct hy_mesh *m, unsigned peer, unsigned channel); /* dials if this is the higher rank */
void hy_mesh_on_timer(struct hy_mesh *m);
void hy_mesh_accept(struct hy_mesh *m); /* some of the pending connections */
void hy_mesh_free_closed(struct hy_mesh *m);   /* frees closed connections */
void hy_mesh_drop_all(struct hy_mesh *m); /* drops all connections and dials */

/* mesh_exchange.c */
struct hy_work {
    /* Called after bytes were received; returns whether it allows more transfers. NULL: nothing to do. */
    bool (*step)(struct hy_work *work);
};
/* The number of lanes for a message of n bytes. */
unsigned hy_flow_lanes(size_t n, unsigned lanes);
/* Posts `lanes` flows for the message on the streams from first_stream on; the caller sets `allowed` and `ring`. */
void hy_flow_post(struct hy_mesh *m, unsigned peer, bool send, struct hy_flow *flows, unsigned first_stream,
                  unsigned lanes, void *bytes, size_t n, size_t segment);
bool hy_flow_has(const struct hy_flow *flows, unsigned lanes, size_t segment); /* the segment was transferred */
/* Runs until all flows are complete. 0 or -Exxx; no flow is posted afterwards. */
int hy_mesh_drive(struct hy_mesh *m, struct hy_work *work);

#endif
