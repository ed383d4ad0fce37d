/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of GPUs and cores for trials. GPUs come first: a trial that holds a core does not wait for anything else, so
 * two runs cannot deadlock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/core_lease.h"
#include "gpu/gpu.h"
#include "agent/trial.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

/* ---- trials ---- */

static void send_held(struct trial *t, const char *why)
{
    Hy__Held held = HY__HELD__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    held.trial = t->number;
    held.attempt = t->attempt;
    held.why = (char *)why;
    m.body_case = HY__CONTROL__BODY_HELD;
    m.held = &held;
    hy_agent_send(t->agent, &m);
}

static void on_held(void *arg, const char *why)
{
    struct trial *t = arg;

    t->is_held = true;
    send_held(t, why);
}

static void resume_trial(struct trial *t)
{
    if (t->is_held)
        send_held(t, "");
    t->is_held = false;
    hy_agent_trial_run(t);
}

static void on_ready(void *arg)
{
    struct trial *t = arg;

    t->has_gpus = true;
    resume_trial(t);
}

static void on_core_ready(void *arg)
{
    struct trial *t = arg;

    t->has_core = true;
    resume_trial(t);
}

static void on_failed(void *arg, const struct hy_err *err)
{
    hy_agent_trial_fail(arg, err);
}

static int lease_core(struct trial *t, struct hy_err *err)
{
    static const struct hy_core_events events = {on_held, on_core_ready};
    int rc;

    if (!t->agent->cores || t->has_core)
        return 0;
    if (t->core)
        return 1;
    rc = hy_core_lease_new(t->agent->cores, &events, t, &t->core);
    t->has_core = rc == 1;
    return rc < 0 ? hy_err_set(err, rc, "out of memory") : !t->has_core;
}

static int lease_gpus(struct trial *t, struct hy_err *err)
{
    static const struct hy_gpu_events events = {on_held, on_ready, on_failed};
    const Hy__Start *s = t->start->start;
    int rc;

    if (!s->gpus_said || !s->gpu_mask || t->has_gpus)
        return 0;
    if (t->lease)
        return 1;
    rc = hy_gpu_lease_new(t->agent->gpus, s->gpu_mask, s->gpu_share, &events, t, &t->lease, err);
    return rc < 0 ? rc : 1;
}

int hy_agent_acquire_leases(struct trial *t, struct hy_err *err)
{
    int rc = lease_gpus(t, err);

    return rc ? rc : lease_core(t, err);
}

void hy_agent_release_leases(struct trial *t, bool failed)
{
    t->ended.gpu_fault = failed && t->lease && hy_gpu_lease_had_fault(t->lease);
    hy_gpu_lease_free(t->lease);
    t->lease = NULL;
    hy_core_lease_free(t->core);
    t->core = NULL;
}

/* ---- the agent ---- */

static void on_found(void *arg)
{
    struct agent *a = arg;

    a->gpus_found = true;
    for (size_t i = 0; i < hy_gpus_count(a->gpus); i++)
        hy_info("GPU uuid=%s name=\"%s\" memory=%llu", hy_gpus_device(a->gpus, i)->uuid,
                hy_gpus_device(a->gpus, i)->name, (unsigned long long)hy_gpus_device(a->gpus, i)->memory);
    if (a->may_join)
        hy_agent_join(a);
}

int hy_agent_gpus_open(struct agent *a)
{
    a->gpus = hy_gpus_new(&a->loop);
    if (!a->gpus)
        return -ENOMEM;
    hy_gpus_find(a->gpus, on_found, a);
    return 0;
}

void hy_agent_cores_open(struct agent *a, const Hy__Welcome *w)
{
    struct hy_err err = {0};
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    struct hy_cores_spec spec = {
        .count = count > 0 ? (uint32_t)count : 1, .per_core = w->per_core, .gang = w->gang, .holder = w->holder};
    hy_cleanup_free char *directory = NULL, *path = NULL;

    if (!w->per_core || a->cores)
        return;
    directory = hy_runtime_dir(&err);
    spec.path = path = directory ? hy_path_join(directory, "cores") : NULL;
    a->cores = path ? hy_cores_new(&a->loop, &spec) : NULL;
    if (!a->cores) /* better too many trials than none */
        hy_warn("cannot lease cores; trials start without error=%s", err.code ? err.text : strerror(errno));
}

void hy_agent_gpus_describe(const struct agent *a, Hy__AgentInfo *info, char *uuids[])
{
    for (size_t i = 0; i < hy_gpus_count(a->gpus); i++)
        uuids[i] = (char *)hy_gpus_device(a->gpus, i)->uuid;
    info->gpus = (uint32_t)hy_gpus_count(a->gpus);
    info->n_gpu_uuids = hy_gpus_count(a->gpus);
    info->gpu_uuids = uuids;
}

static void on_left(void *arg)
{
    struct agent *a = arg;

    a->gpus_closed = true;
}

bool hy_agent_gpus_close(struct agent *a)
{
    if (!a->gpus) /* closed on standby */
        return true;
    if (!a->gpus_closing)
        hy_gpus_close(a->gpus, on_left, a);
    a->gpus_closing = true;
    return a->gpus_closed;
}
