/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of an allreduce between hosts, to be timed:
 *
 *     bench_collective_hosts RANK RANKS BYTES SECONDS
 *
 * Prints the port it listens on, reads "ADDRESS PORT" of every rank (a line each), and then allreduces BYTES of
 * float32 for so many seconds. Rank 0 prints how many times it did, in how many seconds.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "collective/mesh/mesh.h"

#define RANKS_MAX 64
#define WARM_UP 3

static void die(const char *what)
{
    fprintf(stderr, "bench_collective_hosts: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int listen_and_tell(void)
{
    struct hy_err err;
    char **addresses;
    size_t count;
    uint16_t port;
    int fd = hy_mesh_listen(&port, &addresses, &count, &err);

    if (fd < 0)
        die(err.text);
    for (size_t i = 0; i < count; i++)
        free(addresses[i]);
    free(addresses);
    printf("%u\n", port);
    fflush(stdout);
    return fd;
}

static void read_roster(struct hy_mesh_peer *peers, const char **names, unsigned ranks)
{
    static char text[RANKS_MAX][64];

    for (unsigned i = 0; i < ranks; i++) {
        if (scanf("%63s %" SCNu16, text[i], &peers[i].port) != 2)
            die("no roster");
        names[i] = text[i];
        peers[i].addresses = &names[i];
        peers[i].address_count = 1;
    }
}

struct rank {
    struct hy_mesh *mesh;
    unsigned rank, ranks, members[RANKS_MAX];
    const struct hy_waiter *waiter;
};

static void allreduce(const struct rank *r, float *numbers, size_t bytes)
{
    if (hy_mesh_allreduce(r->mesh, r->members, r->ranks, numbers, bytes / sizeof *numbers, HY_F32, HY_SUM) < 0)
        die(r->waiter->failed.text);
}

/* Rank 0 has the clock: the others learn by one byte whether there is another turn. */
static unsigned turns(const struct rank *r, float *numbers, size_t bytes, double seconds)
{
    double end = now() + seconds;
    unsigned count = 0;
    uint8_t more;

    do {
        allreduce(r, numbers, bytes);
        count++;
        more = now() < end;
        if (hy_mesh_broadcast(r->mesh, r->members, r->ranks, &more, 1, 0) < 0)
            die(r->waiter->failed.text);
    } while (more);
    return count;
}

/* In huge pages where there are any, as the tensors of src/tensorflow are. */
static float *make_numbers(size_t bytes)
{
    float *numbers = aligned_alloc(2u << 20, (bytes + (2u << 20) - 1) & ~(size_t)((2u << 20) - 1));

    if (!numbers)
        die("out of memory");
    (void)madvise(numbers, bytes, MADV_HUGEPAGE); /* without them it is only slower */
    memset(numbers, 0, bytes);
    return numbers;
}

static void measure(const struct rank *r, size_t bytes, double seconds)
{
    float *numbers = make_numbers(bytes);
    unsigned count;
    double begin;

    for (int i = 0; i < WARM_UP; i++)
        allreduce(r, numbers, bytes);
    begin = now();
    count = turns(r, numbers, bytes, seconds);
    if (r->rank == 0)
        printf("%u %.6f\n", count, now() - begin);
    free(numbers);
}

int main(int argc, char **argv)
{
    struct hy_mesh_peer peers[RANKS_MAX] = {0};
    const char *names[RANKS_MAX];
    struct hy_waiter waiter = {.bell = -1, .watch_fd = -1};
    struct rank r = {.waiter = &waiter};
    static const uint8_t key[HY_MESH_KEY_SIZE];
    struct hy_err err;
    int fd;

    if (argc != 5)
        die("usage: bench_collective_hosts RANK RANKS BYTES SECONDS");
    r.rank = (unsigned)atoi(argv[1]);
    r.ranks = (unsigned)atoi(argv[2]);
    if (r.ranks > RANKS_MAX || r.rank >= r.ranks)
        die("no such rank");
    for (unsigned i = 0; i < r.ranks; i++)
        r.members[i] = i;
    fd = listen_and_tell();
    read_roster(peers, names, r.ranks);
    if (hy_mesh_open(fd, r.rank, r.ranks, peers, key, &waiter, &r.mesh, &err) < 0)
        die(err.text);
    measure(&r, strtoul(argv[3], NULL, 10), atof(argv[4]));
    hy_mesh_close(r.mesh);
    return 0;
}
