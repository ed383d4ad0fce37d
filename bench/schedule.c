/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a placement costs, in a simulated cluster; prints JSON for schedule.py.
 *
 *     bench_schedule [TRIALS [AGENTS]]
 *
 * Three questions: how long does it take to see 1,000,000 trials through on
 * 10,000 agents; does a placement cost more when the queue is longer; and how
 * does it grow with the agents. Time is simulated by a heap of the moments at
 * which tasks end. Everything follows from fixed seeds.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "schedule/schedule.h"

#define GIB (UINT64_C(1) << 30)

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* For single calls: it costs 25 ns where the other asks the kernel. */
static int64_t wall_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void *must(void *p)
{
    if (!p) {
        fprintf(stderr, "bench_schedule: out of memory\n");
        exit(1);
    }
    return p;
}

static void check(bool fine, const char *what)
{
    if (!fine) {
        fprintf(stderr, "bench_schedule: %s\n", what);
        exit(1);
    }
}

/* ---- the moments at which tasks end ------------------------------------ */

struct end {
    uint64_t at, task;
};

struct heap {
    struct end *ends; /* from 1: the children of i are 2i and 2i + 1 */
    size_t count, cap;
};

static void heap_push(struct heap *h, struct end e)
{
    size_t i;

    if (h->count + 2 > h->cap) {
        h->cap = h->cap ? h->cap * 2 : 1024;
        h->ends = must(hy_reallocarray(h->ends, h->cap, sizeof *h->ends));
    }
    for (i = ++h->count; i > 1 && h->ends[i / 2].at > e.at; i /= 2)
        h->ends[i] = h->ends[i / 2];
    h->ends[i] = e;
}

static struct end heap_pop(struct heap *h)
{
    struct end first = h->ends[1], last = h->ends[h->count--];
    size_t i = 1, child;

    while ((child = 2 * i) <= h->count) {
        if (child < h->count && h->ends[child + 1].at < h->ends[child].at)
            child++;
        if (last.at <= h->ends[child].at)
            break;
        h->ends[i] = h->ends[child];
        i = child;
    }
    h->ends[i] = last;
    return first;
}

/* ---- the cluster and its tasks ------------------------------------------ */

static const struct hy_capacity kinds_of_agent[] = {
    {.slots = 8, .gpus = 0, .memory = 64 * GIB},
    {.slots = 8, .gpus = 0, .memory = 64 * GIB},
    {.slots = 16, .gpus = 4, .memory = 128 * GIB},
    {.slots = 32, .gpus = 8, .memory = 512 * GIB},
};

static const struct mix {
    const char *name;
    uint32_t per_mille;
    struct hy_need need;
} mixes[] = {
    {"plain", 600, {1, {{1, 0, 0, false}}}},
    {"4 GiB", 120, {1, {{1, 0, 4 * GIB, false}}}},
    {"24 GiB", 30, {1, {{1, 0, 24 * GIB, false}}}},
    {"1/4 GPU", 80, {1, {{1, 250, 0, false}}}},
    {"1/2 GPU, 8 GiB", 50, {1, {{1, 500, 8 * GIB, false}}}},
    {"1 GPU", 50, {1, {{1, 1000, 0, false}}}},
    {"gang of 4", 30, {1, {{4, 0, 0, false}}}},
    {"gang of 8", 20, {1, {{8, 0, 0, false}}}},
    {"gang of 16", 10, {1, {{16, 0, 0, false}}}},
    {"chief + 7 on GPUs, 2 without", 10, {3, {{1, 1000, 8 * GIB, false}, {7, 1000, 0, false}, {2, 0, 0, false}}}},
};

struct world {
    struct hy_schedule *schedule;
    struct hy_rng rng;
    struct heap heap;
    uint64_t clock, submitted, placed, ended;
    double slot_time;  /* slots used x time, for the utilisation */
    uint32_t *samples; /* ns of each placement, where that is asked for */
    uint64_t sample_count;
};

static void world_init(struct world *w, uint64_t agents)
{
    struct hy_policy policy = {0};

    *w = (struct world){.schedule = must(hy_schedule_new(&policy))};
    hy_rng_seed(&w->rng, 7, 0);
    for (uint64_t a = 0; a < agents; a++)
        check(hy_schedule_agent_add(w->schedule, a, &kinds_of_agent[a % HY_COUNT(kinds_of_agent)]) == 0,
              "agent_add failed");
}

static void world_done(struct world *w)
{
    hy_schedule_free(w->schedule);
    free(w->heap.ends);
    free(w->samples);
}

static void submit(struct world *w)
{
    uint64_t dice = hy_rng_below(&w->rng, 1000);
    size_t i = 0;

    while (dice >= mixes[i].per_mille)
        dice -= mixes[i++].per_mille;
    check(hy_schedule_submit(w->schedule, ++w->submitted, &mixes[i].need) == 0, "submit failed");
}

/* Places all that fits; returns how many. */
static uint64_t place(struct world *w)
{
    int64_t began = w->samples ? wall_ns() : 0;
    struct hy_placement p;
    uint64_t n = 0;

    for (; hy_schedule_next(w->schedule, &p) == 1; n++) {
        if (w->samples)
            w->samples[w->sample_count++] = (uint32_t)(wall_ns() - began);
        heap_push(&w->heap, (struct end){w->clock + 1000 + hy_rng_below(&w->rng, 9000), p.task});
        if (w->samples)
            began = wall_ns();
    }
    w->placed += n;
    return n;
}

static void end_one(struct world *w)
{
    struct end e = heap_pop(&w->heap);
    struct hy_schedule_stats stats;

    hy_schedule_stats(w->schedule, &stats);
    w->slot_time += (double)stats.slots_used * (double)(e.at - w->clock);
    w->clock = e.at;
    check(hy_schedule_done(w->schedule, e.task) == 0, "done failed");
    w->ended++;
}

/* ---- the questions ------------------------------------------------------- */

static void run_all(uint64_t trials, uint64_t agents)
{
    struct hy_schedule_stats stats;
    struct rusage usage;
    double began, submitted, ended, busy = 0;
    uint64_t busy_until = 0;
    struct world w;

    began = now();
    world_init(&w, agents);
    while (w.submitted < trials)
        submit(&w);
    submitted = now();
    place(&w);
    while (w.heap.count) {
        end_one(&w);
        place(&w);
        if (w.placed < trials * 9 / 10) { /* without the tail, where few tasks are left */
            busy = w.slot_time;
            busy_until = w.clock;
        }
    }
    ended = now();
    hy_schedule_stats(w.schedule, &stats);
    check(w.ended == trials && !stats.waiting && !stats.running && !stats.slots_used, "not all is done");
    getrusage(RUSAGE_SELF, &usage);
    printf(" \"simulation\": {\"trials\": %" PRIu64 ", \"agents\": %" PRIu64 ", \"slots\": %" PRIu64
           ", \"seconds\": %.3f, \"submit_seconds\": %.3f, \"ns_per_trial\": %.0f,\n"
           "  \"simulated_s\": %.1f, \"utilisation\": %.4f, \"max_rss_mb\": %.1f},\n",
           trials, agents, stats.slots, ended - began, submitted - began, (ended - began) / (double)trials * 1e9,
           (double)w.clock / 1000, busy_until ? busy / ((double)busy_until * (double)stats.slots) : 0,
           (double)usage.ru_maxrss / 1024);
    world_done(&w);
}

struct cost {
    double task;            /* ns of CPU for a task through submit, next and done */
    uint32_t median, worst; /* ns of a placement: half and 99 of 100 take no more */
};

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* As many tasks come as are placed. */
static void go_on(struct world *w, uint64_t placements)
{
    for (uint64_t goal = w->placed + placements; w->placed < goal;) {
        end_one(w);
        for (uint64_t n = place(w); n > 0; n--)
            submit(w);
    }
}

static struct cost steady(uint64_t queue, uint64_t agents, uint64_t placements)
{
    struct cost cost;
    struct world w;

    world_init(&w, agents);
    do {
        struct hy_schedule_stats stats;

        hy_schedule_stats(w.schedule, &stats);
        for (uint64_t n = stats.waiting; n < queue; n++)
            submit(&w);
    } while (place(&w) > 0);
    go_on(&w, placements / 2); /* until it is in its stride */
    cost.task = now();
    go_on(&w, placements);
    cost.task = (now() - cost.task) / (double)placements * 1e9;
    w.samples = must(hy_reallocarray(NULL, placements * 2, sizeof *w.samples));
    go_on(&w, placements);
    qsort(w.samples, w.sample_count, sizeof *w.samples, by_size);
    cost.median = w.samples[w.sample_count / 2];
    cost.worst = w.samples[w.sample_count / 100 * 99];
    world_done(&w);
    return cost;
}

static void print_steady(const char *before, uint64_t queue, uint64_t agents)
{
    struct cost cost = steady(queue, agents, 400000);

    printf("%s{\"queue\": %" PRIu64 ", \"agents\": %" PRIu64 ", \"median_ns\": %" PRIu32 ", \"p99_ns\": %" PRIu32
           ", \"task_ns\": %.0f}",
           before, queue, agents, cost.median, cost.worst, cost.task);
}

static void by_queue(uint64_t agents)
{
    printf(" \"by_queue\": [");
    for (uint64_t queue = 1000; queue <= 1000000; queue *= 10)
        print_steady(queue > 1000 ? ", " : "", queue, agents);
    printf("],\n");
}

static void by_agents(uint64_t queue)
{
    printf(" \"by_agents\": [");
    for (uint64_t agents = 10; agents <= 100000; agents *= 10)
        print_steady(agents > 10 ? ", " : "", queue, agents);
    printf("]\n");
}

int main(int argc, char **argv)
{
    uint64_t trials = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    uint64_t agents = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000;

    check(trials > 0 && agents > 0, "usage: bench_schedule [TRIALS [AGENTS]]");
    printf("{\n");
    run_all(trials, agents);
    by_queue(agents);
    by_agents(10000);
    printf("}\n");
    return 0;
}
