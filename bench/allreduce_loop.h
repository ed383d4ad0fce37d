/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop by which every side of bench/allreduce.py is timed: for each size a
 * barrier, some turns to warm up, a barrier, and so many turns by the clock.
 * Prints "BYTES SECONDS" for one turn, a line for each batch.
 */
#ifndef HY_BENCH_ALLREDUCE_LOOP_H
#define HY_BENCH_ALLREDUCE_LOOP_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES_PER_BATCH (192u << 20)
#define TURNS_MIN 4
#define TURNS_MAX 4000

struct side {
    int rank, ranks, batches;
    void (*allreduce)(void *arg, const float *in, float *out, size_t count);
    void (*barrier)(void *arg);
    void *arg;
};

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int turns_for(size_t bytes, int ranks)
{
    size_t turns = BYTES_PER_BATCH / bytes * 2 / (size_t)ranks;

    return turns < TURNS_MIN ? TURNS_MIN : turns > TURNS_MAX ? TURNS_MAX : (int)turns;
}

static float *buffer(size_t bytes)
{
    void *p;

    if (posix_memalign(&p, 4096, bytes)) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static void time_size(const struct side *s, size_t bytes)
{
    float *in = buffer(bytes), *out = buffer(bytes);
    size_t count = bytes / sizeof *in;
    int turns = turns_for(bytes, s->ranks);

    for (size_t i = 0; i < count; i++)
        in[i] = (float)(i % 5 + (size_t)s->rank);
    for (int i = 0; i < turns / 8 + 2; i++)
        s->allreduce(s->arg, in, out, count);
    for (int batch = 0; batch < s->batches; batch++) {
        double begin;

        s->barrier(s->arg);
        begin = seconds_now();
        for (int i = 0; i < turns; i++)
            s->allreduce(s->arg, in, out, count);
        s->barrier(s->arg);
        if (s->rank == 0)
            printf("%zu %.9f\n", bytes, (seconds_now() - begin) / turns);
    }
    if (count > 3 && out[3] != (float)(3 * s->ranks + s->ranks * (s->ranks - 1) / 2)) {
        fprintf(stderr, "wrong result of %zu bytes\n", bytes);
        exit(1);
    }
    free(in);
    free(out);
}

/* sizes: "1024,65536" */
static void time_sizes(const struct side *s, const char *sizes)
{
    for (const char *p = sizes; *p; p += strcspn(p, ","), p += *p == ',')
        time_size(s, strtoull(p, NULL, 10));
    fflush(stdout);
}

#endif
