/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents of a run: which exist, which suffice, and what happens when one is
 * lost. Their processes are in agent_process.c, their messages in
 * agent_messages.c, the socket in agent_listen.c.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "driver/agents.h"
#include "wire/wire.h"

/* ---- the table of agents ------------------------------------------------------------------------ */

struct agent *hy_agent_new(struct driver *d, const char *identity, const char *name, uint32_t slots)
{
    struct agent *a = hy_calloc(1, sizeof *a);

    if (!a)
        return NULL;
    a->id = ++d->agents.last_id;
    a->slots = slots;
    a->next_stream = HY_AGENT_STREAMS_END;
    a->identity = identity ? hy_strdup(identity) : hy_asprintf("agent-%llu", (unsigned long long)a->id);
    a->name = hy_strdup(name);
    hy_list_init(&a->trials);
    if (!a->identity || !a->name || hy_map_put(&d->agents.map, a->id, a) < 0) {
        free(a->identity);
        free(a->name);
        free(a);
        return NULL;
    }
    return a;
}

void hy_agent_free(struct driver *d, struct agent *a)
{
    hy_list_each(it, &a->trials) /* a run may end before its trials: a trial outlives its agent */
        hy_list_remove(it);
    hy_map_remove(&d->agents.map, a->id);
    hy_map_done(&a->outputs);
    hy_map_done(&a->sending);
    free(a->identity);
    free(a->name);
    free(a->host_spec);
    free(a->host);
    hy__control__free_unpacked(a->usage, NULL);
    free(a);
}

struct agent *hy_agent_find(struct driver *d, const char *identity)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (strcmp(a->identity, identity) == 0)
            return a;
    return NULL;
}

int hy_agents_send(struct agent *a, const Hy__Control *m)
{
    return a->peer ? hy_peer_send(a->peer, m) : -EPIPE;
}

/* ---- capacity ----------------------------------------------------------------------------------- */

bool hy_agents_may_still_join(const struct driver *d)
{
    return *d->spec->listen || *d->spec->discovery;
}

/* Without any agent in the schedule the capacity is unknown: after a new supplier has connected, agents of the
 * previous one are gone, and new ones are not requested yet or have not joined. */
static bool is_capacity_known(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->in_schedule)
            return true;
    return false;
}

/* Agents that are not requested because there is no work for them do not count. */
static bool have_all_joined(struct driver *d)
{
    bool asks = !*d->spec->engine || hy_agent_process_may_request(d);
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (!a->in_schedule && (a->process_runs || (a->restart_at && asks)))
            return false;
    return is_capacity_known(d);
}

void hy_agents_check_capacity(struct driver *d)
{
    struct hy_err err = {0};

    if (d->supply.may_grow || !have_all_joined(d))
        return;
    if (hy_run_shortage(d, &err) < 0 && hy_agents_may_still_join(d))
        hy_training_wait_for_machines(d, &err);
    else if (err.code)
        hy_run_fail(d, &err);
    else if (!hy_agents_may_still_join(d))
        hy_training_shrink_to_fit(d);
}

/* More executors of the same size cannot help a trial that fits on none of the present ones. Ranks can wait for
 * more, or be fewer if the training is elastic. */
void hy_agents_check_supply_suffices(struct driver *d)
{
    struct hy_need one = hy_run_need(d, NULL);
    struct hy_err err = {0};

    if (!is_capacity_known(d))
        return;
    d->supply.is_checked = true;
    if (hy_run_shortage(d, &err) == 0)
        hy_training_shrink_to_fit(d);
    else if (hy_schedule_possible(d->schedule, &one))
        hy_run_note(d, "waiting for more executors: %s", err.text);
    else
        hy_run_fail(d, &err);
}

/* ---- losing agents ------------------------------------------------------------------------------ */

void hy_agents_stop_placing(struct driver *d, struct agent *a)
{
    if (a->in_schedule)
        hy_schedule_agent_remove(d->schedule, a->id);
    a->in_schedule = false;
}

/* Its trials run elsewhere, and its messages are ignored. */
void hy_agent_lost(struct driver *d, struct agent *a, bool died, const char *why)
{
    hy_agents_stop_placing(d, a);
    a->peer = NULL;
    a->violation[0] = '\0';
    hy_list_each(it, &a->trials)
        hy_trials_lost(d, hy_container(it, struct trial, on_agent), died, why);
    hy_outputs_agent_lost(a);
    hy_checkpoints_agent_lost(a);
    d->changed = true;
    if (!a->is_managed)
        hy_agent_free(d, a);
    else if (!a->process_runs)
        hy_agent_process_restart_later(d, a, why);
}

/* On this machine a trial or the user has sent the signal. Elsewhere it may be a time limit of the batch system, a
 * preemption or a shutdown. */
bool hy_agents_bye_is_charged(const struct driver *d, const struct agent *a)
{
    return a->is_managed && !a->host_spec && !*d->spec->engine && !a->released;
}

static void lose_if_ended(struct driver *d, struct agent *a)
{
    if (!*a->process_end || !a->peer || hy_peer_is_linked(a->peer))
        return;
    hy_peer_close(a->peer, 0);
    if (d->phase == PHASE_RUNNING)
        hy_run_note(d, "agent %s is lost (%s); its trials run again", a->name, a->process_end);
    hy_agent_lost(d, a, a->process_died, a->process_end);
}

/* ---- agents that violate the protocol ----------------------------------------------------------- */

void hy_agent_set_violation(struct agent *a, const char *fmt, ...)
{
    va_list args;

    if (*a->violation)
        return;
    va_start(args, fmt);
    vsnprintf(a->violation, sizeof a->violation, fmt, args);
    va_end(args);
}

/* A managed agent is restarted, with a growing backoff. One that has joined by itself may do so again after its ban. */
void hy_agent_drop(struct driver *d, struct agent *a, const char *address)
{
    char why[sizeof a->violation + 64];

    snprintf(why, sizeof why, "it violated the protocol: %s", a->violation);
    if (a->is_managed)
        hy_run_note(d, "agent %s at %s is disconnected (%s); its trials run on other agents", a->name, address, why);
    else
        hy_run_note(d,
                    "agent %s at %s is disconnected (%s); its trials run on other agents, and no agent may join "
                    "from there for %d s",
                    a->name, address, why, hy_address_ban(d, address));
    a->drops++;
    if (a->peer)
        hy_peer_close(a->peer, 0);
    if (a->process_runs)
        hy_agent_process_stop(d, a);
    hy_agent_lost(d, a, false, why);
}

bool hy_agent_drop_if_violated(struct driver *d, struct agent *a)
{
    if (!*a->violation)
        return true;
    if (a->peer) {
        hy_agent_drop(d, a, hy_peer_address(a->peer));
        return false;
    }
    a->violation[0] = '\0'; /* it is lost already */
    return true;
}

/* Violations that were found outside of the agent's own messages. */
static void drop_violators(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (!hy_agent_drop_if_violated(d, a))
            i = 0; /* the removal has changed the map */
}

/* ---- adding and removing ------------------------------------------------------------------------ */

static void on_process_exit(void *arg, uint64_t id, enum hy_agent_end end, const char *why)
{
    hy_agents_process_ended(arg, id, end, why);
}

static int add_agent(struct driver *d, const char *name, const char *host, uint32_t slots)
{
    struct agent *a = hy_agent_new(d, NULL, name, slots);

    if (!a)
        return -ENOMEM;
    a->is_managed = true;
    a->host_spec = host ? hy_strdup(host) : NULL;
    a->restart_at = 1; /* started by the first tick */
    return host && !a->host_spec ? -ENOMEM : 0;
}

int hy_agents_open(struct driver *d, struct hy_err *err)
{
    static const struct hy_net_settings settings = {.silence_ms = HY_AGENT_SILENCE_MS, .ping_ms = HY_PING_MS};
    static const struct hy_engine_events engine_events = {on_process_exit};
    int rc = 0;

    d->agents.net = hy_net_new(&d->loop, &settings, &hy_agent_net_events, d);
    d->agents.engine = hy_engine_new(&d->loop, &engine_events, d);
    if (!d->agents.net || !d->agents.engine)
        return hy_err_oom(err);
    if (hy_key_random(d->agents.key) < 0)
        return hy_err_set(err, -EIO, "cannot read random numbers from the kernel");
    rc = hy_agents_listen(d, err);
    if (rc == 0)
        rc = hy_agents_write_join_key(d, err);
    if (rc == 0)
        rc = hy_supply_open(d, err);
    if (rc == 0)
        rc = hy_discovery_open(d, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < d->spec->n_hosts && rc == 0; i++)
        rc = add_agent(d, d->spec->hosts[i]->host, d->spec->hosts[i]->host, d->spec->hosts[i]->slots);
    if (rc == 0 && d->spec->n_hosts == 0 && !*d->spec->engine && !*d->spec->discovery)
        rc = add_agent(d, "local", NULL, hy_run_local_slots(d));
    return rc < 0 ? hy_err_oom(err) : 0;
}

void hy_agents_request(struct driver *d, uint32_t count)
{
    int rc = 0;

    while (d->phase == PHASE_RUNNING && d->agents.map.count < count && rc == 0)
        rc = add_agent(d, "executor", NULL, 0);
    if (rc < 0)
        hy_run_out_of_memory(d);
    else if (d->phase == PHASE_RUNNING && count)
        hy_agents_check_capacity(d);
}

int hy_agents_add_host(struct driver *d, const char *name, const char *host, uint32_t slots)
{
    int rc = add_agent(d, name, host, slots);
    struct agent *a = rc < 0 ? NULL : hy_map_get(&d->agents.map, d->agents.last_id);

    if (a)
        a->discovered_slots = slots;
    return rc;
}

void hy_agents_resize(struct driver *d, struct agent *a, uint32_t slots)
{
    a->discovered_slots = a->slots = slots;
    if (a->in_schedule)
        hy_schedule_agent_resize(d->schedule, a->id, slots);
    d->changed = true;
}

void hy_agents_remove_host(struct driver *d, struct agent *a)
{
    a->released = true;
    a->restart_at = 0;
    hy_agents_stop_placing(d, a);
    if (a->peer)
        hy_agent_send_bye(d, a);
    else if (a->process_runs)
        hy_agent_process_stop(d, a);
    else
        hy_agent_free(d, a);
}

/* ---- the tick ----------------------------------------------------------------------------------- */

void hy_agents_start_cooldown(struct driver *d, struct agent *a)
{
    int64_t seconds = (int64_t)d->spec->cooldown_first_s << (a->cooldowns < 20 ? a->cooldowns : 20);

    if (!d->spec->cooldown_first_s)
        return;
    if (seconds > d->spec->cooldown_last_s)
        seconds = d->spec->cooldown_last_s;
    a->cooldowns++;
    a->cooldown_until = hy_clock_ms() + seconds * 1000;
    if (a->in_schedule)
        hy_schedule_agent_open(d->schedule, a->id, 0);
    hy_run_note(d, "no rank is started on %s for %lld s, because a rank has failed there", a->name, (long long)seconds);
}

/* The agent has had time to read what was sent, or its cooldown is over. */
static void reopen(struct driver *d, struct agent *a, int64_t now)
{
    bool cooldown_is_over = a->cooldown_until && now >= a->cooldown_until;

    if (cooldown_is_over)
        a->cooldown_until = 0;
    if ((a->is_backlogged || cooldown_is_over) && !a->cooldown_until && a->in_schedule)
        hy_schedule_agent_open(d->schedule, a->id, 1);
    a->is_backlogged = false;
}

void hy_agents_tick(struct driver *d, int64_t now)
{
    struct agent *a;

    hy_engine_tick(d->agents.engine, now);
    drop_violators(d);
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        lose_if_ended(d, a);
    if (d->phase != PHASE_RUNNING)
        return;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        reopen(d, a, now);
    hy_agent_processes_tick(d, now);
    hy_supply_tick(d, now);
    hy_discovery_tick(d, now);
}

/* ---- the end of the run ------------------------------------------------------------------------- */

void hy_agents_send_bye(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));) {
        if (a->peer)
            hy_agent_send_bye(d, a);
        else if (a->process_runs) /* it has not joined yet */
            hy_agent_process_stop(d, a);
    }
}

bool hy_agents_have_left(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->peer || a->process_runs)
            return false;
    return true;
}

void hy_agents_free(struct driver *d)
{
    struct agent *a;
    size_t i = 0;

    while ((i = 0, a = hy_map_next(&d->agents.map, &i))) {
        hy_outputs_agent_lost(a);
        hy_checkpoints_agent_lost(a);
        if (a->peer)
            hy_peer_close(a->peer, 0);
        hy_agent_free(d, a);
    }
    hy_map_done(&d->agents.map);
}
