/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast messages go through a ring, from one process to another, beside what
 * memcpy does: bench_ring BYTES MESSAGES prints both, in bytes a second.
 * Each message is copied in and copied out, as rows are.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "feed/feed.h"

#define RING (16u << 20)

static void give_up(const char *what)
{
    fprintf(stderr, "bench_ring: %s\n", what);
    exit(1);
}

/* Among many buffers, so that neither side is always in the cache. */
static double copy_speed(size_t n, uint64_t count)
{
    const size_t room = RING / n ? RING / n : 1;
    char *from = malloc(room * n), *to = malloc(room * n);
    int64_t begun;
    double speed;

    if (!from || !to)
        give_up("out of memory");
    memset(from, 1, room * n);
    memset(to, 2, room * n);
    begun = hy_clock_ns();
    for (uint64_t i = 0; i < count; i++) {
        memcpy(to + i % room * n, from + i % room * n, n);
        __asm__ volatile("" : : "r"(to) : "memory");
    }
    speed = (double)n * (double)count * 1e9 / (double)(hy_clock_ns() - begun);
    free(from);
    free(to);
    return speed;
}

static int take_all(int memory, int socket, size_t n, uint64_t count)
{
    char *to = malloc(n);
    struct hy_ring *r = NULL;
    struct hy_err err = {0};

    if (!to || hy_ring_open(memory, socket, &r, &err) < 0)
        return 1;
    for (uint64_t i = 0; i < count; i++) {
        struct hy_ring_message m;

        if (hy_ring_wait_for_message(r, -1) != 1 || hy_ring_next(r, &m) != 1 || m.n != n)
            return 1;
        memcpy(to, m.bytes, n);
        hy_ring_release(r);
        if (to[0] != (char)i)
            return 1;
    }
    hy_ring_close(r);
    free(to);
    return 0;
}

static void put_all(struct hy_ring *r, char *from, size_t n, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        void *room;

        if (hy_ring_wait_for_space(r, n, -1) != 1 || !(room = hy_ring_reserve(r, n)))
            give_up("the reader is gone");
        from[0] = (char)i;
        memcpy(room, from, n);
        hy_ring_send(r, 0, n);
    }
    if (hy_ring_wait_until_empty(r, -1) != 1)
        give_up("the reader is gone");
}

static double ring_speed(size_t n, uint64_t count)
{
    char *from = calloc(1, n);
    struct hy_ring *r = NULL;
    struct hy_err err = {0};
    int sockets[2], memory = -1, status = 0;
    int64_t begun;
    double speed;
    pid_t child;

    if (!from || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0 ||
        hy_ring_new(RING, sockets[0], &r, &memory, &err) < 0)
        give_up("cannot make a ring");
    child = fork();
    if (child < 0)
        give_up("cannot fork");
    if (child == 0)
        _exit(take_all(memory, sockets[1], n, count));
    begun = hy_clock_ns();
    put_all(r, from, n, count);
    speed = (double)n * (double)count * 1e9 / (double)(hy_clock_ns() - begun);
    hy_ring_close(r);
    if (waitpid(child, &status, 0) != child || status != 0)
        give_up("the reader found what was not sent");
    free(from);
    return speed;
}

int main(int argc, char **argv)
{
    size_t n = argc > 2 ? strtoul(argv[1], NULL, 10) : 0;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;

    if (!n || n > RING / 4 || !count)
        give_up("usage: bench_ring BYTES MESSAGES");
    printf("%.0f %.0f\n", ring_speed(n, count), copy_speed(n, count));
    return 0;
}
