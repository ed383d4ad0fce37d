/* SPDX-License-Identifier: Apache-2.0 */
/* The state of agents and of the queue: bounded, and computed only when a client requests it. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "driver/run.h"
#include "schedule/schedule.h"

#define AGENTS_MAX 1000
#define BYTES_MAX (512u * 1024) /* with many GPUs a status has fewer agents */

struct rows {
    Hy__AgentStatus list[AGENTS_MAX], *pointers[AGENTS_MAX];
    uint32_t gpu_trials[AGENTS_MAX][HY_AGENT_GPUS_MAX];
    Hy__Status status;
};

void hy_status_agent_usage(struct agent *a, const Hy__Control *m)
{
    Hy__Control *copy = hy_control_copy(m);

    if (!copy) {
        hy_warn_limited("out of memory for the usage of an agent's machine agent=%s", a->name);
        return;
    }
    hy__control__free_unpacked(a->usage, NULL);
    a->usage = copy;
}

static void count_trial(Hy__AgentStatus *s, const struct trial *t)
{
    s->running++;
    s->trials_memory += t->memory;
    for (size_t i = 0; i < s->n_gpu_trials; i++)
        s->gpu_trials[i] += t->gpu_mask >> i & 1;
    if (t->waits_for) {
        s->held++;
        s->held_why = t->waits_for;
    }
}

/* Its strings are borrowed. */
static void fill_agent(Hy__AgentStatus *s, const struct agent *a, uint32_t gpu_trials[HY_AGENT_GPUS_MAX])
{
    hy__agent_status__init(s);
    s->name = a->name ? a->name : s->name;
    s->host = a->host ? a->host : s->host;
    s->slots = a->slots;
    s->gpus = a->gpus;
    s->memory = a->memory == UINT64_MAX ? 0 : a->memory;
    s->usage = a->usage ? a->usage->agent_usage : NULL;
    s->connected = a->in_schedule;
    s->gpu_trials = gpu_trials;
    s->n_gpu_trials = a->gpus;
    hy_list_each(it, &a->trials)
        count_trial(s, hy_container(it, struct trial, on_agent));
}

/* Trials that have not started or wait for a retry: those requested from the search, and those it still has. */
static uint64_t count_queued(const struct driver *d, uint64_t running)
{
    uint64_t open = d->trials.map.count - d->trials.paused;
    uint64_t over = d->trials.done + d->trials.failed + d->trials.stopped + d->trials.pruned + d->trials.paused;
    int64_t total = hy_run_total(d);
    uint64_t left = total > 0 && (uint64_t)total > open + over ? (uint64_t)total - open - over : 0;

    return (open > running ? open - running : 0) + (hy_is_training(d) ? 0 : left);
}

static void fill(struct driver *d, struct rows *rows)
{
    Hy__Status *status = &rows->status;
    struct hy_schedule_stats stats;
    struct agent *a;
    size_t bytes = 0;

    hy__status__init(status);
    hy_schedule_stats(d->schedule, &stats);
    status->slots = stats.slots;
    status->slots_used = stats.slots_used;
    status->running = stats.running;
    status->queued = count_queued(d, stats.running);
    status->agents = rows->pointers;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));) {
        size_t n = status->n_agents;

        if (!a->in_schedule && !a->process_runs)
            continue;
        status->agents_total++;
        if (n == AGENTS_MAX || bytes > BYTES_MAX)
            continue;
        fill_agent(&rows->list[n], a, rows->gpu_trials[n]);
        rows->pointers[n] = &rows->list[n];
        bytes += hy__agent_status__get_packed_size(&rows->list[n]);
        status->n_agents++;
    }
}

uint8_t *hy_status_pack(struct driver *d, size_t *ret_n)
{
    hy_cleanup_free struct rows *rows = hy_calloc(1, sizeof *rows);
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;
    uint8_t *bytes;

    if (!rows)
        return NULL;
    fill(d, rows);
    answer.body_case = HY__CLIENT_ANSWER__BODY_STATUS;
    answer.status = &rows->status;
    bytes = hy_malloc(hy__client_answer__get_packed_size(&answer));
    if (bytes)
        *ret_n = hy__client_answer__pack(&answer, bytes);
    return bytes;
}
