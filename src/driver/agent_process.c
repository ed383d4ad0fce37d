/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of agents: started by an engine or by a supplier
 * (agent_supplier.c), restarted with a backoff when they end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "driver/agents.h"
#include "supervise/supervise.h"

#define RESTARTS_MAX 5       /* in a row, without the agent having joined in between ... */
#define FIRST_RESTARTS_MAX 3 /* ... of a host whose agent never joined: a wrong name, a missing key */
#define RESTART_FIRST_MS 200
#define RESTART_MAX_MS 30000
#define REQUESTED_MAX 32     /* agents that the supplier has been asked for and that have not joined */

/* ---- starting ----------------------------------------------------------------------------------- */

static int request_process(struct driver *d, const struct hy_agent_order *order, struct hy_err *err)
{
    return *d->spec->engine ? hy_supply_start(d, order, err) : hy_engine_start(d->agents.engine, order, err);
}

/* A process that is not a descendant of the driver would survive a kill -9 of the driver. */
static void register_with_reaper(struct driver *d, const struct agent *a)
{
    int pidfd = hy_engine_adopted(d->agents.engine, a->id), rc = pidfd < 0 ? 0 : hy_reaper_adopt(pidfd);

    if (rc < 0)
        hy_warn("cannot register an agent with the reaper agent=%s error=%s", a->name, strerror(-rc));
}

static void start_process(struct driver *d, struct agent *a)
{
    struct hy_agent_order order = {.id = a->id,
                                   .name = a->name,
                                   .host = a->host_spec,
                                   .port = d->agents.port,
                                   .ssh_port = d->spec->ssh_port,
                                   .ssh_identity = d->spec->ssh_identity,
                                   .slots = a->slots,
                                   .open_files = d->process.open_files,
                                   .hold_fd = a->host_spec ? -1 : d->files.hold_fd,
                                   .client = a->restarts ? "" : d->spec->client,
                                   .warm_key = d->spec->warm_key};
    struct hy_err err = {0};
    char identity[64];

    /* A new identity, and so a new key, for each process: a lost agent can never impersonate its successor. */
    snprintf(identity, sizeof identity, "agent-%llu-%d-%lld", (unsigned long long)a->id, a->restarts,
             (long long)hy_clock_wall_ms());
    free(a->identity);
    a->identity = hy_strdup(identity);
    order.identity = a->identity;
    a->restart_at = 0;
    a->process_end[0] = '\0';
    a->process_died = false;
    a->bye_reason[0] = '\0';
    if (!a->identity || hy_key_derive(d->agents.key, a->identity, order.key) < 0 ||
        request_process(d, &order, &err) < 0) {
        if (*d->spec->engine && err.code && err.code != -ENOMEM) { /* the supplier is leaving */
            a->restart_at = hy_clock_ms() + RESTART_FIRST_MS;
            return;
        }
        if (!err.code)
            hy_err_set(&err, -ENOMEM, "agent %s: out of memory", a->name);
        hy_run_fail(d, &err);
        return;
    }
    register_with_reaper(d, a);
    a->process_runs = true;
    a->join_by = *d->spec->engine ? 0 : hy_clock_ms() + AGENT_START_MS; /* a cluster may be busy for hours */
}

void hy_agent_process_stop(struct driver *d, struct agent *a)
{
    if (*d->spec->engine)
        hy_supply_stop(d, a->id);
    else
        hy_engine_stop(d->agents.engine, a->id);
}

/* ---- restarting --------------------------------------------------------------------------------- */

static bool has_agents_left(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->peer || a->process_runs || a->restart_at)
            return true;
    return hy_agents_may_still_join(d);
}

static void abandon(struct driver *d, struct agent *a, const char *why)
{
    struct hy_err err = {0};

    hy_run_note(d, "agent %s is abandoned: %s", a->name, why);
    hy_err_set(&err, -ENOTCONN, "no agent could be started: %s", why);
    if (has_agents_left(d))
        hy_agents_check_capacity(d);
    else
        hy_run_fail(d, &err);
}

/* A host that has joined once may be rebooting: it is retried as long as the run lasts. A host that never joined is
 * abandoned after a few attempts, and so is the local machine. */
void hy_agent_process_restart_later(struct driver *d, struct agent *a, const char *why)
{
    int times = a->restarts + a->drops;
    int64_t wait = RESTART_FIRST_MS << (times > 8 ? 8 : times);
    bool host = a->host_spec || *d->spec->engine;

    if (d->phase != PHASE_RUNNING || a->released)
        return;
    a->restarts++;
    if (!(host && a->has_joined) && a->restarts > (host ? FIRST_RESTARTS_MAX : RESTARTS_MAX)) {
        abandon(d, a, why);
        return;
    }
    a->restart_at = hy_clock_ms() + (wait > RESTART_MAX_MS ? RESTART_MAX_MS : wait);
    if (a->restarts == 1 && !a->has_joined)
        hy_run_note(d, "agent %s could not be started (%s); retrying", a->name, why);
    else if (a->restarts == RESTARTS_MAX)
        hy_run_note(d, "agent %s cannot be reached (%s); retrying every %d s", a->name, why, RESTART_MAX_MS / 1000);
}

/* The agent is alive until its connection is closed as well: ssh has failed, or its reaper was killed and its Bye
 * follows. If the connection fails together with ssh, the agent and its trials stay alive until the lease expires. */
void hy_agents_process_ended(struct driver *d, uint64_t id, enum hy_agent_end end, const char *why)
{
    struct agent *a = hy_map_get(&d->agents.map, id);
    bool over = end != HY_AGENT_UNREACHED;
    const char *last;

    if (!a)
        return;
    hy_info("agent process has ended agent=%s why=%s", a->name, why);
    a->process_runs = false;
    last = *why ? why : *a->bye_reason ? a->bye_reason : "it was stopped";
    snprintf(a->process_end, sizeof a->process_end, "%s", over ? last : "");
    a->process_died = end == HY_AGENT_DIED;
    if (over && *why && *d->spec->engine && a->has_joined && !a->released && d->phase == PHASE_RUNNING)
        hy_run_note(d, "agent %s: %s", a->name, why); /* the agent itself cannot know why Spark ended it */
    if (!a->peer)
        hy_agent_process_restart_later(d, a, last);
}

/* ---- which processes are started, and when ------------------------------------------------------ */

/* Local agents of an earlier driver of this run hold its lock as long as one of their trials is alive; until then
 * no agent is started on this machine. */
static bool have_earlier_agents_ended(struct driver *d)
{
    return d->files.hold_fd < 0 || flock(d->files.hold_fd, LOCK_EX | LOCK_NB) == 0;
}

/* An ssh that hangs would never end. */
static void stop_late_processes(struct driver *d, int64_t now)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));) {
        if (!a->process_runs || a->in_schedule || !a->join_by || now < a->join_by)
            continue;
        if (d->stalls.count) { /* its Welcome may wait for a commit */
            a->join_by = now + AGENT_START_MS;
            continue;
        }
        hy_run_note(d, "agent %s has not connected within %d s; it is stopped and retried", a->name,
                    AGENT_START_MS / 1000);
        a->join_by = 0;
        hy_agent_process_stop(d, a);
    }
}

/* A limited number at a time: each needs a thread and a job in the supplier. And no more than there is work for,
 * estimated by the slots of the present agents. */
bool hy_agent_process_may_request(struct driver *d)
{
    uint64_t waits = 0, here = 0, slots = 0, ended, left;
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));) {
        here += a->in_schedule;
        slots += a->in_schedule ? a->slots : 0;
        waits += a->process_runs && !a->in_schedule;
    }
    ended = d->trials.done + d->trials.failed + d->trials.stopped + d->trials.pruned;
    left = hy_run_total(d) < 0 ? UINT64_MAX : (uint64_t)hy_run_total(d) - ended;
    if (hy_is_training(d) || !here)
        return waits < REQUESTED_MAX;
    return waits < REQUESTED_MAX && slots + waits * (slots / here) < left;
}

static bool may_start(struct driver *d, const struct agent *a)
{
    if (*d->spec->engine)
        return d->supply.supplier && hy_agent_process_may_request(d);
    return a->host_spec || a->restarts || have_earlier_agents_ended(d);
}

/* There is no more work for them: their executors are free for other applications. */
static void release_idle(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));) {
        if (a->released || !hy_list_empty(&a->trials))
            continue;
        a->released = true;
        a->restart_at = 0;
        if (!a->in_schedule && a->process_runs) /* it has not joined yet */
            hy_agent_process_stop(d, a);
        hy_agents_stop_placing(d, a);
        hy_agent_send_bye(d, a);
    }
}

/* All agents with work are lost, and the work is to be repeated. */
static void request_released_again(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->in_schedule || (!a->released && (a->process_runs || a->restart_at)))
            return;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->released && !a->peer && !a->process_runs) {
            a->released = false;
            a->restart_at = 1;
        }
}

static void release_or_request_executors(struct driver *d)
{
    struct hy_schedule_stats s;

    if (!*d->spec->engine || hy_is_training(d))
        return;
    hy_schedule_stats(d->schedule, &s);
    if (s.waiting || !hy_list_empty(&d->trials.waiting))
        request_released_again(d);
    else if (d->trials.search_over)
        release_idle(d);
}

void hy_agent_processes_tick(struct driver *d, int64_t now)
{
    struct agent *a;

    stop_late_processes(d, now);
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->restart_at && a->restart_at <= now && may_start(d, a))
            start_process(d, a);
    release_or_request_executors(d);
}
