/* SPDX-License-Identifier: Apache-2.0 */
/* The resources that trials need, and messages about shortages. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "base/text.h"
#include "driver/run.h"

#define SHARED_GPU_FAULTS_MAX 2 /* on a shared GPU; then the trial gets a GPU to itself, since it may be the cause */

struct hy_need hy_run_need(const struct driver *d, const struct trial *t)
{
    uint32_t share = d->spec->gpus_said && !(t && hy_node_is_server(d->spec, t->number)) ? d->spec->gpu_share : 0;

    bool alone = t && !hy_is_training(d) && t->charged[HY_CHARGE_LOSS] >= LOSSES_BEFORE_ALONE;

    if (t && share && t->charged[HY_CHARGE_GPU_FAULT] >= SHARED_GPU_FAULTS_MAX && share < HY_GPU_WHOLE)
        share = HY_GPU_WHOLE;
    return (struct hy_need){.role_count = 1,
                            .roles = {{.count = 1, .memory = d->spec->memory, .gpu_share = share, .alone = alone}}};
}

uint32_t hy_run_local_slots(const struct driver *d)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (hy_is_training(d)) /* further ranks run on machines that join */
        return d->spec->ranks;
    return d->spec->parallel ? d->spec->parallel : (uint32_t)(cores > 0 ? cores : 1);
}

static void count_gpus(const struct driver *d, uint32_t *ret_most, size_t *ret_machines)
{
    struct agent *a;

    *ret_most = 0;
    *ret_machines = 0;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));) {
        *ret_machines += a->in_schedule;
        *ret_most = a->in_schedule && a->gpus > *ret_most ? a->gpus : *ret_most;
    }
}

static int gpu_shortage_error(uint32_t share, uint32_t most, const char *has, struct hy_err *err)
{
    char wants[32];

    if (share < HY_GPU_WHOLE)
        snprintf(wants, sizeof wants, "%g of a GPU", share / (double)HY_GPU_WHOLE);
    else
        snprintf(wants, sizeof wants, "%u GPU%s", share / HY_GPU_WHOLE, share > HY_GPU_WHOLE ? "s" : "");
    return hy_err_set(err, -ENOSPC, "each trial needs %s, but %s; %s", wants, has,
                      most ? "request fewer GPUs per trial" : "do not request GPUs");
}

static int describe_gpu_shortage(const struct driver *d, struct hy_err *err)
{
    uint32_t most;
    size_t machines;
    char has[64];

    count_gpus(d, &most, &machines);
    if (*d->spec->engine)
        snprintf(has, sizeof has, most ? "an executor has %u" : "executors have no GPU", most);
    else if (most)
        snprintf(has, sizeof has, machines > 1 ? "no machine has more than %u" : "this machine has %u", most);
    else
        snprintf(has, sizeof has, "%s", machines > 1 ? "no machine has a GPU" : "this machine has no GPU");
    return gpu_shortage_error(d->spec->gpu_share, most, has, err);
}

int hy_run_check_gpus(const Hy__RunSpec *spec, struct hy_err *err)
{
    char has[64] = "this machine has no GPU";
    size_t count = 0;
    int rc;

    if (!spec->gpus_said || !spec->gpu_share || spec->n_hosts || *spec->listen || *spec->engine)
        return 0;
    rc = hy_gpus_count_here(&count, err);
    if (rc < 0 || spec->gpu_share <= count * HY_GPU_WHOLE)
        return rc;
    if (count)
        snprintf(has, sizeof has, "this machine has %zu", count);
    return gpu_shortage_error(spec->gpu_share, (uint32_t)count, has, err);
}

/* The total of all machines. */
static void count_all(const struct driver *d, uint64_t *ret_slots, uint64_t *ret_gpus)
{
    struct agent *a;

    *ret_slots = *ret_gpus = 0;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->in_schedule) {
            *ret_slots += a->slots;
            *ret_gpus += a->gpus;
        }
}

/* One rank fits, but all of them do not. */
static int describe_rank_shortage(const struct driver *d, struct hy_need need, struct hy_err *err)
{
    uint32_t ranks = need.roles[0].count, share = need.roles[0].gpu_share;
    uint64_t slots, gpus;
    char size[32];

    count_all(d, &slots, &gpus);
    if (hy_is_cluster(d) && slots < d->spec->ranks)
        return hy_err_set(err, -ENOSPC,
                          "a cluster of %u nodes needs %u slots, but there %s %llu; lower the number of "
                          "nodes, or add %s",
                          d->spec->ranks, d->spec->ranks, slots == 1 ? "is" : "are", (unsigned long long)slots,
                          *d->spec->engine ? "executors" : "slots or machines");
    if (slots < ranks)
        return hy_err_set(err, -ENOSPC, "%u ranks need %u slots, but there %s %llu; start %llu, or add %s", ranks,
                          ranks, slots == 1 ? "is" : "are", (unsigned long long)slots, (unsigned long long)slots,
                          *d->spec->engine ? "executors" : "slots or machines, as in -H a:4,b:4");
    need.roles[0].gpu_share = 0;
    if (hy_schedule_possible(d->schedule, &need))
        return hy_err_set(err, -ENOSPC,
                          "%u ranks need %g GPU%s each, but there %s %llu; start fewer ranks or request fewer GPUs",
                          ranks, share / (double)HY_GPU_WHOLE, share == HY_GPU_WHOLE ? "" : "s",
                          gpus == 1 ? "is" : "are", (unsigned long long)gpus);
    return hy_err_set(err, -ENOSPC,
                      "%u ranks with %s each exceed the memory of the machines; start fewer "
                      "ranks or lower the memory limit",
                      ranks, hy_format_size(d->spec->memory, size, sizeof size));
}

static int describe_memory_shortage(const struct driver *d, struct hy_err *err)
{
    char wants[32], has[32];
    uint64_t most = 0;
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        most = a->in_schedule && a->memory > most ? a->memory : most;
    return hy_err_set(err, -ENOSPC, "a trial needs %s of memory, but no %s has more than %s; lower the memory limit%s",
                      hy_format_size(d->spec->memory, wants, sizeof wants), *d->spec->engine ? "executor" : "machine",
                      hy_format_size(most, has, sizeof has),
                      *d->spec->engine ? " or raise spark.executor.memoryOverhead" : "");
}

int hy_run_shortage(const struct driver *d, struct hy_err *err)
{
    struct hy_need need = hy_run_need(d, NULL), all = hy_is_training(d) ? hy_training_need(d) : need;

    if (hy_schedule_possible(d->schedule, &all))
        return 0;
    if (hy_schedule_possible(d->schedule, &need))
        return describe_rank_shortage(d, all, err);
    need.roles[0].gpu_share = 0;
    if (hy_schedule_possible(d->schedule, &need))
        return describe_gpu_shortage(d, err);
    return describe_memory_shortage(d, err);
}

/* Several trials at once on GPUs without leases: TensorFlow allocates all the memory it sees, so the first trial
 * leaves none to the others. */
void hy_run_note_gpus(struct driver *d, const struct agent *a)
{
    if (d->spec->gpus_said || !a->gpus || a->slots < 2 || d->spec->parallel == 1 || d->gpus_noted ||
        hy_search_total(d->search) < 2)
        return;
    d->gpus_noted = true;
    hy_run_note(d, "%u GPU%s %s%s %s not leased: with gpus=1 (--gpus 1) each trial has its own", a->gpus,
                a->gpus == 1 ? "" : "s", a->host_spec ? "on " : "here", a->host_spec ? a->name : "",
                a->gpus == 1 ? "is" : "are");
}
