/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the mesh share.
 *
 *     mesh_listen.c     where others find us
 *     mesh.c            a mesh, its links, its one wait, and the verdict when a link is gone
 *     mesh_connect.c    from a connection to a stream: dialling, accepting, the handshake
 *     mesh_exchange.c   bytes through streams, many at once
 *     mesh_reduce.c     allreduce and reducescatter;  mesh_broadcast.c  broadcast, allgather, barrier
 *     mesh_pipe.c       the byte pipes
 *
 * One thread, no blocking call: everything that moves is woken by one epoll set, edge-triggered. A stream
 * remembers that it may be read or written until the kernel says EAGAIN.
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
 * The connections of a link. On the first nothing is ever sent: it is idle, so that the kernel's keepalive asks
 * for the other machine all the time. (On a stream that is full because the other process is stopped it does
 * not, and TCP_USER_TIMEOUT would take the full window for a dead machine.)
 */
enum { HY_CHANNEL_LIFE, HY_CHANNEL_PIPE, HY_CHANNEL_DATA, HY_CHANNELS = HY_CHANNEL_DATA + HY_MESH_STREAMS };

#define HY_WHERE_MAX 80
#define HY_MESH_ACCEPTS_MAX 8u /* connections in a turn: there is other work */

/* What epoll knows: the first member of whatever waits for events. */
struct hy_watch {
    void (*ready)(struct hy_mesh *m, struct hy_watch *watch, uint32_t events);
};

/*
 * One direction of one stream, for as long as a call lasts: the segments lane, lane + lanes, lane + 2 lanes ... of a
 * message. Of flows on one stream the first is moved first.
 */
struct hy_flow {
    uint8_t *bytes;
    size_t n;
    size_t segment;        /* its length; the last one may be shorter */
    size_t index, offset;  /* where we are: which segment, and in it */
    const size_t *allowed; /* segments from here on may not be moved yet; NULL: all may */
    unsigned lanes;
    unsigned ring;         /* not 0: `bytes` has room for so many segments only, taken in turn */
    struct hy_flow *next;  /* behind this one on the stream */
};

struct hy_mesh_stream {
    struct hy_watch watch;
    struct hy_list active; /* in mesh->active while there are flows */
    struct hy_flow *sending, *receiving;
    unsigned peer, channel;
    int fd;                /* -1: none yet */
    bool can_read, can_write;
    bool requested;           /* dialled by us, or awaited */
    struct hy_mesh_dial *dial;  /* NULL: not being dialled */
};

struct hy_mesh_link {
    char **addresses; /* ours to free */
    size_t address_count;
    size_t address;   /* the one that answered */
    uint16_t port;
    uint64_t closed;  /* 0: never; otherwise the how-manieth link that was closed */
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
    struct hy_list dials;                       /* of streams that we dial */
    struct hy_list incoming, outgoing, closed;  /* connections in their handshake; those to be freed */
    unsigned incoming_count;
    bool may_accept;
    int64_t accept_at, short_since;             /* 0: descriptors and memory are not short */
    int64_t timer_at;                           /* when something has to be looked at without an event */
    uint64_t closings;
    unsigned last_piped;                        /* the rank whose pipe was last asked for */
    struct hy_err broken;                       /* what a callback found; the next wait is told */
    uint8_t *scratch;                           /* kept from call to call */
    size_t scratch_size;
    uint8_t key[HY_MESH_KEY_SIZE];
};

#define HY_NO_TIMER INT64_MAX

/* mesh.c */
int hy_mesh_watch(struct hy_mesh *m, int fd, struct hy_watch *watch); /* or another one for an fd that is watched */
void hy_mesh_timer(struct hy_mesh *m, int64_t at); /* not later than that */
/* Takes what the kernel has for us; how many events there were. Never sleeps. */
int hy_mesh_poll(struct hy_mesh *m);
/* Sleeps until something happens. 0 or -Exxx (then waiter->failed says why). */
int hy_mesh_wait(struct hy_mesh *m);
/* Notes what is wrong with a peer; the first word counts. */
void hy_mesh_peer_failed(struct hy_mesh *m, unsigned peer, int code);
/* Gives the driver a second to say who died first, then says what was noted. Returns waiter->failed.code. */
int hy_mesh_fail(struct hy_mesh *m);
uint8_t *hy_mesh_scratch(struct hy_mesh *m, size_t n); /* valid until the next call; NULL: out of memory, and noted */
/* Takes a connection that both ends trust. 0 or -Exxx (then it is still the caller's). */
int hy_mesh_stream_open(struct hy_mesh *m, struct hy_mesh_stream *s, int fd);
static inline struct hy_mesh_stream *hy_mesh_stream_of(struct hy_mesh *m, unsigned peer, unsigned channel)
{
    return &m->links[peer].streams[channel];
}

/* mesh_connect.c */
void hy_mesh_on_listener(struct hy_mesh *m, struct hy_watch *watch, uint32_t events);
void hy_mesh_connect(struct hy_mesh *m, unsigned peer, unsigned channel); /* dials, if it is for us to dial */
void hy_mesh_on_timer(struct hy_mesh *m);
void hy_mesh_accept(struct hy_mesh *m); /* some of those that wait to be accepted */
void hy_mesh_free_closed(struct hy_mesh *m);   /* frees the connections that are done with */
void hy_mesh_drop_all(struct hy_mesh *m); /* drops all connections and dials */

/* mesh_exchange.c */
struct hy_work {
    /* Called after bytes have come; whether it made more of them movable. NULL: there is nothing to do. */
    bool (*step)(struct hy_work *work);
};
/* How many lanes a message of n bytes has. */
unsigned hy_flow_lanes(size_t n, unsigned lanes);
/* Puts `lanes` flows for the message on the streams first_stream ...; the caller sets `allowed` and `ring`. */
void hy_flow_post(struct hy_mesh *m, unsigned peer, bool send, struct hy_flow *flows, unsigned first_stream,
                  unsigned lanes, void *bytes, size_t n, size_t segment);
bool hy_flow_has(const struct hy_flow *flows, unsigned lanes, size_t segment); /* segment has been moved */
/* Until all flows have come to their end. 0 or -Exxx; no flow is known any more then. */
int hy_mesh_drive(struct hy_mesh *m, struct hy_work *work);

#endif
