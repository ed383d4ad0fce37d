/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks on loopback: as threads (for every call) and as processes (to be killed and stopped). */
#ifndef HY_TESTS_MESH_WORLD_H
#define HY_TESTS_MESH_WORLD_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#include "base/clock.h"
#include "base/mem.h"
#include "collective/mesh/mesh_private.h"

#define WORLD_MAX 16

struct world;

struct rank {
    struct world *world;
    unsigned rank;
    struct hy_waiter waiter;
    struct hy_mesh *mesh;
    pthread_t thread;
    pid_t pid;
    int rc;
};

struct world {
    unsigned size;
    unsigned peers[WORLD_MAX]; /* 0, 1, 2 ... */
    int listeners[WORLD_MAX];
    const char *address;
    struct hy_mesh_peer roster[WORLD_MAX];
    uint8_t keys[WORLD_MAX][HY_MESH_KEY_SIZE]; /* the key of each rank */
    int (*body)(struct rank *r);
    void *arg;
    bool watched;    /* by a driver, which reports to the others that a rank has ended */
    atomic_int lost; /* that rank; -1: none */
    int loss_fd;        /* eventfd: readable from then on */
    struct rank ranks[WORLD_MAX];
    uint16_t ports[WORLD_MAX];
    atomic_bool strangers_end;
};

static inline int world_check(void *arg, struct hy_err *err)
{
    int lost = atomic_load(&((struct world *)arg)->lost);

    return lost < 0 ? 0 : hy_err_set(err, -EOWNERDEAD, "the driver says that rank %d has ended", lost);
}

static inline void world_init(struct world *w, unsigned size, int (*body)(struct rank *r), void *arg)
{
    *w = (struct world){.size = size, .address = "127.0.0.1", .body = body, .arg = arg, .lost = -1};
    for (unsigned i = 0; i < size; i++) {
        char **addresses;
        size_t count;
        struct hy_err err;

        w->peers[i] = i;
        memset(w->keys[i], 7, HY_MESH_KEY_SIZE);
        w->listeners[i] = hy_mesh_listen(&w->ports[i], &addresses, &count, &err);
        if (w->listeners[i] < 0)
            fail_msg("%s", err.text);
        for (size_t k = 0; k < count; k++)
            free(addresses[k]);
        free(addresses);
        w->roster[i] = (struct hy_mesh_peer){.addresses = &w->address, .address_count = 1, .port = w->ports[i]};
    }
}

/* Opens the mesh of one rank, calls the body, closes. */
static inline int rank_run(struct rank *r)
{
    struct world *w = r->world;
    struct hy_err err = {0};
    int rc;

    if (!r->waiter.check)
        r->waiter = (struct hy_waiter){
            .bell = -1, .watch_fd = w->watched ? w->loss_fd : -1, .check = w->watched ? world_check : NULL, .arg = w};
    rc = hy_mesh_open(w->listeners[r->rank], r->rank, w->size, w->roster, w->keys[r->rank], &r->waiter, &r->mesh, &err);
    if (rc < 0) {
        close(w->listeners[r->rank]);
        r->waiter.failed = err;
        return rc;
    }
    rc = w->body(r);
    hy_mesh_close(r->mesh);
    r->mesh = NULL;
    return rc;
}

static inline void *rank_thread(void *arg)
{
    struct rank *r = arg;
    int nobody = -1;

    r->rc = rank_run(r);
    if (r->rc < 0 && atomic_compare_exchange_strong(&r->world->lost, &nobody, (int)r->rank) &&
        eventfd_write(r->world->loss_fd, 1) < 0)
        r->rc = -EIO;
    return NULL;
}

static inline void start_thread(struct world *w, unsigned i)
{
    w->ranks[i].world = w;
    w->ranks[i].rank = i;
    if (pthread_create(&w->ranks[i].thread, NULL, rank_thread, &w->ranks[i]) != 0)
        fail_msg("no thread");
}

static inline void run_threads(struct world *w)
{
    w->loss_fd = eventfd(0, EFD_CLOEXEC);
    assert_true(w->loss_fd >= 0);
    for (unsigned i = 0; i < w->size; i++)
        start_thread(w, i);
    for (unsigned i = 0; i < w->size; i++)
        if (pthread_join(w->ranks[i].thread, NULL) != 0)
            fail_msg("a thread is lost");
    close(w->loss_fd);
}

/* Runs a body on that many ranks; all must succeed. */
static inline void all_ranks(unsigned size, int (*body)(struct rank *r), void *arg)
{
    struct world w;

    world_init(&w, size, body, arg);
    run_threads(&w);
    for (unsigned i = 0; i < size; i++)
        if (w.ranks[i].rc != 0)
            fail_msg("rank %u of %u: %d: %s", i, size, w.ranks[i].rc, w.ranks[i].waiter.failed.text);
}

#endif
