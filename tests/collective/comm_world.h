/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as threads of one process: those with the same host number share a memfd, the others connect over loopback TCP.
 * cmocka's assertions work in the main thread only, so a rank records a failure (`expect`), and the first failure ends
 * the world for all ranks.
 */
#ifndef HY_TESTS_COMM_WORLD_H
#define HY_TESTS_COMM_WORLD_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "collective/comm/comm.h"

#define WORLD_MAX 8u

struct world;

struct rank {
    struct world *world;
    unsigned rank, size;
    struct hy_comm *comm;
    struct hy_set *set; /* of all ranks */
    int listen_fd, bell;
    char bell_name[HY_BELL_MAX], wrong[400];
    struct hy_comm_member member;
    pthread_t thread;
};

struct world {
    unsigned size, hosts;
    const char *layout;
    int shm_fds[WORLD_MAX + 1];
    atomic_bool ended; /* as reported by a driver */
    atomic_uint count; /* for the scenario */
    void *shared;
    void (*scenario)(struct rank *r);
    struct rank ranks[WORLD_MAX];
};

typedef unsigned (*layout_fn)(unsigned rank, unsigned size);

#define expect(r, condition, ...)                                                                                      \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            note_wrong((r), __FILE__, __LINE__, __VA_ARGS__);                                                          \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

__attribute__((format(printf, 4, 5))) static void note_wrong(struct rank *r, const char *file, int line,
                                                             const char *fmt, ...)
{
    int n = snprintf(r->wrong, sizeof r->wrong, "%s:%d: %u ranks, %s, rank %u: ", file, line, r->size, r->world->layout,
                     r->rank);
    va_list args;

    va_start(args, fmt);
    if (n > 0 && (size_t)n < sizeof r->wrong)
        vsnprintf(r->wrong + n, sizeof r->wrong - (size_t)n, fmt, args);
    va_end(args);
    atomic_store(&r->world->ended, true);
}

static int check_world(void *arg, struct hy_err *err)
{
    struct world *w = arg;

    return atomic_load(&w->ended) ? hy_err_set(err, -ECONNABORTED, "the world has ended") : 0;
}

/* ---- one rank ---- */

static void open_comm(struct rank *r)
{
    struct world *w = r->world;
    struct hy_comm_member members[WORLD_MAX];
    struct hy_comm_spec spec = {
        .rank = r->rank,
        .size = r->size,
        .members = members,
        .shm_fd = w->shm_fds[r->member.host],
        .listen_fd = r->listen_fd,
        .key = "thirty-one bytes, and a NUL too",
        .waiter = {.bell = r->bell, .watch_fd = -1, .check = check_world, .arg = w},
    };
    unsigned all[WORLD_MAX];
    struct hy_err err = {0};

    for (unsigned i = 0; i < w->size; i++) {
        members[i] = w->ranks[i].member;
        all[i] = i;
    }
    expect(r, hy_comm_open(&spec, &r->comm, &err) == 0, "%s", err.text);
    expect(r, hy_set_open(r->comm, 0, all, r->size, &r->set, &err) == 0, "%s", err.text);
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;

    open_comm(r);
    if (!r->wrong[0])
        r->world->scenario(r);
    hy_set_close(r->set);
    hy_comm_close(r->comm);
    return NULL;
}

/* ---- all ranks ---- */

static void prepare_rank(struct world *w, unsigned i, layout_fn layout, char ***addresses)
{
    struct rank *r = &w->ranks[i];
    struct hy_err err = {0};
    size_t count;

    *r = (struct rank){.world = w, .rank = i, .size = w->size, .listen_fd = -1};
    r->bell = hy_bell_open(r->bell_name, &err);
    assert_true(r->bell >= 0);
    r->member = (struct hy_comm_member){.host = layout(i, w->size), .bell = r->bell_name};
    w->hosts = r->member.host >= w->hosts ? r->member.host + 1 : w->hosts;
    r->listen_fd = hy_mesh_listen(&r->member.tcp.port, addresses, &count, &err);
    if (r->listen_fd < 0)
        fail_msg("%s", err.text);
    for (size_t a = 0; a < count; a++)
        free((*addresses)[a]);
    free(*addresses);
}

static unsigned ranks_of(const struct world *w, unsigned host)
{
    unsigned count = 0;

    for (unsigned i = 0; i < w->size; i++)
        count += w->ranks[i].member.host == host;
    return count;
}

static void prepare_world(struct world *w, layout_fn layout)
{
    static const char *const loopback[] = {"127.0.0.1"};

    for (unsigned i = 0; i < w->size; i++) {
        char **addresses = NULL;

        prepare_rank(w, i, layout, &addresses);
        w->ranks[i].member.tcp.addresses = loopback;
        w->ranks[i].member.tcp.address_count = 1;
    }
    for (unsigned h = 0; h < w->hosts; h++) {
        w->shm_fds[h] = memfd_create("hopyard-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_true(w->shm_fds[h] >= 0);
        assert_int_equal(hy_shm_reserve(w->shm_fds[h], ranks_of(w, h), NULL), 0);
    }
}

/* Runs `scenario` on all ranks at the same time; fails with the first recorded failure. */
static void run_world(unsigned size, layout_fn layout, const char *name, void (*scenario)(struct rank *r), void *shared)
{
    struct world w = {.size = size, .layout = name, .scenario = scenario, .shared = shared};

    prepare_world(&w, layout);
    for (unsigned i = 0; i < size; i++)
        assert_int_equal(pthread_create(&w.ranks[i].thread, NULL, rank_main, &w.ranks[i]), 0);
    for (unsigned i = 0; i < size; i++)
        assert_int_equal(pthread_join(w.ranks[i].thread, NULL), 0);
    for (unsigned h = 0; h < w.hosts; h++)
        close(w.shm_fds[h]);
    for (unsigned i = 0; i < size; i++)
        if (w.ranks[i].wrong[0])
            print_error("%s\n", w.ranks[i].wrong);
    for (unsigned i = 0; i < size; i++)
        assert_string_equal(w.ranks[i].wrong, "");
}

/* ---- layouts ---- */

static unsigned one_host(unsigned rank, unsigned size)
{
    (void)rank;
    (void)size;
    return 0;
}

static unsigned two_even(unsigned rank, unsigned size)
{
    return rank >= (size + 1) / 2;
}

/* Most ranks on one host. */
static unsigned two_uneven(unsigned rank, unsigned size)
{
    return rank >= size - 1 - (size > 4);
}

/* Ranks of a host are not contiguous, as after replacements. */
static unsigned scattered(unsigned rank, unsigned size)
{
    static const unsigned hosts[] = {0, 1, 1, 0, 2, 0, 1, 2};

    (void)size;
    return hosts[rank];
}

static unsigned each_alone(unsigned rank, unsigned size)
{
    (void)size;
    return rank;
}

static const struct {
    const char *name;
    layout_fn fn;
} layouts[] = {
    {"one host", one_host},   {"two even hosts", two_even},          {"two uneven hosts", two_uneven},
    {"scattered", scattered}, {"one rank on each host", each_alone},
};
#define LAYOUTS (sizeof layouts / sizeof layouts[0])

#endif
