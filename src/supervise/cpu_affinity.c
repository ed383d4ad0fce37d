/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU affinity of ranks. Ranks that divide a machine's cores evenly are pinned
 * to one share each: ranks that run in lockstep lose time when the kernel
 * migrates their threads. All cores are assigned, so that several trainings, or
 * trials beside one, still find the machine evenly loaded.
 */
#include <stdio.h>
#include <stdlib.h>

#include "supervise/supervise.h"

struct core {
    long package, core; /* equal for hyperthreads of one core */
    int number;
};

static long read_topology(int number, const char *what)
{
    char path[128];
    long value = 0; /* unknown: one package, and cores in numerical order */
    FILE *f;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", number, what);
    f = fopen(path, "re");
    if (f && fscanf(f, "%ld", &value) != 1)
        value = 0;
    if (f)
        fclose(f);
    return value;
}

static int by_topology(const void *left, const void *right)
{
    const struct core *a = left, *b = right;

    if (a->package != b->package)
        return a->package < b->package ? -1 : 1;
    if (a->core != b->core)
        return a->core < b->core ? -1 : 1;
    return a->number - b->number;
}

/* The cores that this process may use, hyperthreads of a core next to each other. Returns their number. */
static size_t list_cores(struct core cores[CPU_SETSIZE])
{
    cpu_set_t ours;
    size_t n = 0;

    if (sched_getaffinity(0, sizeof ours, &ours) < 0)
        return 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &ours))
            cores[n++] = (struct core){read_topology(i, "physical_package_id"), read_topology(i, "core_id"), i};
    qsort(cores, n, sizeof *cores, by_topology);
    return n;
}

size_t hy_cpu_share_for_rank(uint64_t rank, uint64_t ranks, cpu_set_t *ret)
{
    struct core cores[CPU_SETSIZE];
    size_t n = list_cores(cores), each = ranks ? n / ranks : 0;

    if (!each || n % ranks || rank >= ranks)
        return 0;
    CPU_ZERO(ret);
    for (size_t i = 0; i < each; i++)
        CPU_SET(cores[rank * each + i].number, ret);
    return each;
}
