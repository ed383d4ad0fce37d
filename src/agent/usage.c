/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of the resources that trials and the machine use, shown on the page. A trial that ends within its first
 * second is never sampled and costs nothing.
 *
 * A report has all points of an attempt, so the driver keeps no state: the newest report is enough. The interval
 * between reports grows with the attempt's time, so the newest report always covers most of it.
 */
#include <errno.h>
#include <stdlib.h>

#include "agent/trial.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define FIRST_REPORT_MS 2000
#define REPORT_PART 16      /* a report is sent after 1/16 of the attempt's time ... */
#define REPORT_MAX_MS 60000 /* ... and at the latest after this */
#define MACHINE_MS 5000     /* between two measurements of the machine */

struct sampling {
    struct hy_usage usage;
    int64_t next_ms, report_ms; /* times of the next point and the next report, since the attempt's start */
    bool is_new;
};

/* ---- trials ------------------------------------------------------------------------------------ */

/* Trials of this agent that have a device. */
static int64_t count_leases(const struct agent *a, size_t device)
{
    const struct trial *t;
    int64_t n = 0;

    for (size_t i = 0; (t = hy_map_next(&a->trials, &i));)
        n += hy_gpu_lease_devices(t->lease) >> device & 1;
    return n;
}

/* What is measured of a shared device is divided evenly among its trials, so that sums are right. */
static void add_gpus(const struct trial *t, struct hy_usage_point *p)
{
    uint64_t mask = hy_gpu_lease_devices(t->lease);

    for (size_t i = 0; mask && i < hy_gpus_count(t->agent->gpus); i++) {
        const struct hy_gpu_device *g = hy_gpus_device(t->agent->gpus, i);
        int64_t sharers;

        if (!(mask >> i & 1) || !g->is_measured)
            continue;
        sharers = count_leases(t->agent, i);
        p->gpu_memory += (int64_t)(g->memory_used >> 10) / sharers;
        p->gpu_use += g->use / sharers;
    }
}

static void add_point(struct sampling *s, const struct hy_usage_point *p)
{
    hy_usage_add(&s->usage, p);
    s->is_new = true;
    s->next_ms = p->time_ms + s->usage.interval_ms;
}

static void send_report(struct trial *t)
{
    struct sampling *s = t->sampling;
    hy_cleanup_free struct hy_usage_message *message = hy_malloc(sizeof *message);
    Hy__UsageReport report = HY__USAGE_REPORT__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    s->is_new = false;
    if (!message) {
        hy_warn_limited("out of memory for a usage report of a trial");
        return;
    }
    hy_usage_fill(&s->usage, message);
    report.trial = t->number;
    report.attempt = t->attempt;
    report.usage = &message->message;
    report.gpu_mask = hy_gpu_lease_devices(t->lease);
    m.body_case = HY__CONTROL__BODY_USAGE;
    m.usage = &report;
    hy_agent_send(t->agent, &m);
}

static struct sampling *sampling_of(struct trial *t)
{
    if (!t->sampling && (t->sampling = hy_calloc(1, sizeof *t->sampling))) {
        hy_usage_init(&t->sampling->usage);
        t->sampling->report_ms = FIRST_REPORT_MS;
    }
    return t->sampling;
}

static void sample(struct trial *t, int64_t time_ms)
{
    struct hy_usage_point p = {.time_ms = time_ms};
    struct hy_process_usage now;
    struct sampling *s = t->sampling;

    if ((s && time_ms < s->next_ms) || hy_process_usage(t->process, &now) < 0)
        return;
    s = sampling_of(t);
    if (!s) {
        hy_warn_limited("out of memory for usage samples of a trial");
        return;
    }
    p.memory = (int64_t)(now.memory >> 10);
    p.cpu_ms = now.cpu_ms;
    add_gpus(t, &p);
    add_point(s, &p);
}

static void report_when_due(struct trial *t, int64_t time_ms)
{
    struct sampling *s = t->sampling;
    int64_t wait = time_ms / REPORT_PART;

    if (!s || !s->is_new || time_ms < s->report_ms)
        return;
    wait = wait < FIRST_REPORT_MS ? FIRST_REPORT_MS : wait > REPORT_MAX_MS ? REPORT_MAX_MS : wait;
    s->report_ms = time_ms + wait;
    send_report(t);
}

void hy_agent_usage_end(struct trial *t, const struct hy_process_end *end)
{
    struct sampling *s = t->sampling;
    struct hy_usage_point last;

    if (!s || !t->agent->peer || hy_agent_is_broken(t->agent))
        return;
    last = s->usage.points[s->usage.count - 1];
    last.time_ms = hy_clock_ms() - t->begun_ms;
    last.cpu_ms = end->cpu_ms;
    add_point(s, &last);
    send_report(t);
}

/* ---- the machine ------------------------------------------------------------------------------- */

static void fill_gpus(const struct agent *a, Hy__AgentUsage *usage, Hy__AgentUsage__Gpu *rows,
                      Hy__AgentUsage__Gpu **pointers)
{
    usage->gpus = pointers;
    usage->n_gpus = hy_gpus_count(a->gpus);
    for (size_t i = 0; i < usage->n_gpus; i++) {
        const struct hy_gpu_device *g = hy_gpus_device(a->gpus, i);

        hy__agent_usage__gpu__init(&rows[i]);
        rows[i].name = (char *)g->name;
        rows[i].memory_total = g->memory;
        rows[i].memory_used = g->is_measured ? g->memory_used : 0;
        rows[i].use = g->is_measured ? g->use : 0;
        rows[i].is_measured = g->is_measured;
        pointers[i] = &rows[i];
    }
}

static void send_machine(struct agent *a)
{
    Hy__AgentUsage usage = HY__AGENT_USAGE__INIT;
    Hy__AgentUsage__Gpu rows[HY_GPUS_MAX], *pointers[HY_GPUS_MAX];
    Hy__Control m = HY__CONTROL__INIT;

    usage.memory_total = uv_get_total_memory();
    usage.memory_used = usage.memory_total - uv_get_free_memory();
    usage.server = !a->function.server ? HY__AGENT_USAGE__SERVER__NONE
                   : a->function.ready ? HY__AGENT_USAGE__SERVER__READY
                                       : HY__AGENT_USAGE__SERVER__STARTING;
    fill_gpus(a, &usage, rows, pointers);
    m.body_case = HY__CONTROL__BODY_AGENT_USAGE;
    m.agent_usage = &usage;
    hy_agent_send(a, &m);
}

/* Does not measure idle GPUs: each measurement starts a process. */
static void measure_gpus(struct agent *a)
{
    const struct trial *t;

    for (size_t i = 0; (t = hy_map_next(&a->trials, &i));)
        if (hy_gpu_lease_devices(t->lease)) {
            hy_gpus_measure(a->gpus);
            return;
        }
}

void hy_agent_usage_tick(struct agent *a)
{
    int64_t now = hy_clock_ms();
    struct trial *t;

    if (!a->peer || a->ending || !a->may_join || !a->gpus_found)
        return;
    for (size_t i = 0; (t = hy_map_next(&a->trials, &i));)
        if (t->process && t->begun_ms && now - t->begun_ms >= HY_USAGE_INTERVAL_MS) {
            sample(t, now - t->begun_ms);
            report_when_due(t, now - t->begun_ms);
        }
    if (now < a->machine_due_ms)
        return;
    a->machine_due_ms = now + MACHINE_MS;
    send_machine(a);
    measure_gpus(a);
}
