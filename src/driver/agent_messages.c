/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel to agents: Welcome and Bye, and the dispatch of what agents send. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "driver/agents.h"
#include "supervise/supervise.h"
#include "wire/wire.h"

#define AGENT_NOTES_MAX 100u /* that the run keeps of one agent */
#define JOINED_MAX 10000     /* agents that have joined by themselves, at a time */

/* Anyone with the join key may connect and disconnect as often as they like. */
static struct hy_log_limit connections_log = {.burst = 1000, .every_ms = 1000};

/* ---- goodbyes ----------------------------------------------------------------------------------- */

/* Whether the agent may stay for the next run of the same client. */
static bool may_wait_on_standby(const struct driver *d, const struct agent *a)
{
    return d->phase == PHASE_LEAVING && a->is_managed && !a->host_spec && !*d->spec->engine && *d->spec->client &&
           hy_mark_alive(d->spec->client) > 0;
}

void hy_agent_send_bye(const struct driver *d, struct agent *a)
{
    Hy__Bye bye = HY__BYE__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    if (may_wait_on_standby(d, a)) {
        bye.client = d->spec->client;
        bye.warm_key = d->spec->warm_key;
    }
    m.body_case = HY__CONTROL__BODY_BYE;
    m.bye = &bye;
    if (a->peer && hy_agents_send(a, &m) < 0)
        hy_warn("cannot send a Bye to an agent agent=%s", a->name);
}

/* ---- the run's Python function, sent to each agent once, after the Welcome ---------------------- */

static void announce_function(struct driver *d, struct agent *a, Hy__Welcome *w)
{
    w->function_size = d->spec->function.len;
    if (!w->function_size)
        return;
    a->function_stream = w->function_stream = a->next_stream++;
    w->function_hash = hy_hash(d->spec->function.data, d->spec->function.len);
    w->serve = d->serve;
    w->n_serve = d->spec->n_argv + 1;
}

/* Sends as much as there is room for; on_room continues. The agent sends nothing until it has all of it, which
 * takes long on a slow network: it is not late as long as it makes progress. */
static void send_function(struct driver *d, struct agent *a)
{
    const ProtobufCBinaryData *f = &d->spec->function;
    struct hy_err err = {0};

    while (a->function_sent < f->len) {
        size_t room = hy_peer_room(a->peer, a->function_stream), left = f->len - a->function_sent;
        size_t n = left < room ? left : room;

        if (n == 0)
            return;
        if (hy_peer_write(a->peer, a->function_stream, f->data + a->function_sent, n) < 0) {
            hy_err_set(&err, -ENOMEM, "out of memory while sending the function");
            hy_run_fail(d, &err);
            return;
        }
        a->function_sent += n;
        a->join_by = hy_clock_ms() + AGENT_START_MS;
    }
}

/* ---- connecting --------------------------------------------------------------------------------- */

/* An agent that joins by itself. NULL: it is banned, there are too many, or out of memory. */
static struct agent *add_joining_agent(struct driver *d, struct hy_peer *p)
{
    struct agent *a;
    size_t joined = 0;

    if (hy_address_is_banned(d, hy_peer_address(p)))
        return NULL;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        joined += !a->is_managed;
    return joined < JOINED_MAX ? hy_agent_new(d, hy_peer_identity(p), hy_peer_address(p), 0) : NULL;
}

/* Runs share the cores of this machine by leases. With more slots than cores, several trials share a core. */
static void offer_core_leases(const struct driver *d, Hy__Welcome *w, char *holder)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t slots = hy_run_local_slots(d), all = cores > 0 ? (uint32_t)cores : 1;

    w->per_core = (slots + all - 1) / all;
    w->gang = hy_is_training(d) ? slots : 0;
    w->holder = holder;
}

static void on_up(void *arg, struct hy_peer *p)
{
    struct driver *d = arg;
    struct agent *a = hy_agent_find(d, hy_peer_identity(p));
    Hy__Welcome w = HY__WELCOME__INIT;
    Hy__Control m = HY__CONTROL__INIT;
    char host[256] = "", holder[256];

    if (!a)
        a = add_joining_agent(d, p);
    if (!a) {
        hy_peer_close(p, 0);
        return;
    }
    a->peer = p;
    a->next_stream = HY_AGENT_STREAMS_END;
    a->function_sent = 0;
    a->has_info = false;
    hy_peer_set_data(p, a);
    if (d->phase >= PHASE_ENDING) { /* it joins too late */
        hy_agent_send_bye(d, a);
        return;
    }
    gethostname(host, sizeof host - 1);
    snprintf(holder, sizeof holder, "run %lld in '%.180s'", (long long)d->run, d->spec->project);
    if (a->is_managed && !a->host_spec && !*d->spec->engine && !d->spec->oversubscribe)
        offer_core_leases(d, &w, holder);
    w.run = d->run;
    w.logdir = d->logdir;
    w.token_file = d->files.token_file;
    w.token.data = d->files.token;
    w.token.len = sizeof d->files.token;
    w.env = d->spec->env;
    w.n_env = d->spec->n_env;
    w.cwd = d->spec->cwd;
    w.host = host;
    w.url = (char *)(d->mirror ? hy_mirror_logdir(d) : "");
    w.metric = d->spec->metric;
    w.max_transfer = hy_limits_transfer(d->spec->max_transfer);
    m.body_case = HY__CONTROL__BODY_WELCOME;
    m.welcome = &w;
    announce_function(d, a, &w);
    if (hy_agents_send(a, &m) < 0) {
        a->peer = NULL;
        hy_peer_close(p, 0);
        return;
    }
    send_function(d, a);
}

static void on_agent_info(struct driver *d, struct agent *a, const Hy__AgentInfo *info)
{
    struct hy_capacity has = {.slots = info->slots < HY_SLOTS_LIMIT ? info->slots : HY_SLOTS_LIMIT,
                              .gpus = info->gpus < HY_AGENT_GPUS_MAX ? info->gpus : HY_AGENT_GPUS_MAX,
                              .memory = info->memory ? info->memory : UINT64_MAX};

    if (a->has_info)
        return;
    a->has_info = true;
    if (a->discovered_slots)
        has.slots = a->discovered_slots; /* they may have changed since it was started */
    if (strcmp(info->version, HY_VERSION) != 0)
        hy_run_note(d, "agent %s runs hopyard %s, but the driver is %s; install the same version", a->name,
                    info->version, HY_VERSION);
    if ((!a->is_managed || *d->spec->engine) && *info->name) {
        char *name = hy_strdup(info->name);

        free(a->name ? a->name : NULL);
        a->name = name ? name : hy_strdup("agent");
    }
    free(a->host);
    a->host = hy_strdup(info->host);
    a->slots = has.slots;
    a->gpus = has.gpus;
    a->memory = has.memory;
    a->shares_files = info->shares_files;
    if (hy_schedule_agent_add(d->schedule, a->id, &has) < 0) {
        hy_warn_limited("cannot use an agent agent=%s slots=%u", a->name, info->slots);
        hy_agent_send_bye(d, a); /* another agent may be usable */
        return;
    }
    a->in_schedule = true;
    if (a->cooldown_until)
        hy_schedule_agent_open(d->schedule, a->id, 0);
    a->join_by = 0;
    a->is_backlogged = false;
    a->has_joined = true;
    a->restarts = 0;
    d->supply.last_agent_ms = hy_clock_ms();
    d->supply.is_checked = false;
    d->changed = true;
    hy_log_rate_limited(&connections_log, HY_LOG_INFO,
                        "agent has joined agent=%s host=%s pid=%lld slots=%u shares_files=%d", a->name, info->host,
                        (long long)info->pid, info->slots, info->shares_files);
    if (!a->is_managed)
        hy_run_note(d, "agent %s has joined with %u slots", a->name, a->slots);
    hy_run_note_gpus(d, a);
    hy_agents_check_capacity(d);
}

/* ---- leaving ------------------------------------------------------------------------------------ */

/* The agent outlives the driver. */
static void leave_on_standby(struct driver *d, struct agent *a)
{
    pid_t pid = hy_engine_release(d->agents.engine, a->id);
    int rc = pid ? hy_reaper_spare(pid) : hy_reaper_adopt(-1);

    if (rc < 0)
        hy_warn("an agent on standby will end with its driver agent=%s error=%s", a->name, strerror(-rc));
    a->process_runs = false;
}

/* The agent ends by its own decision; all its messages have arrived. */
static void on_bye(struct driver *d, struct agent *a, const Hy__Bye *bye)
{
    hy_log_rate_limited(&connections_log, HY_LOG_INFO, "agent leaves agent=%s why=%s", a->name, bye->why);
    snprintf(a->bye_reason, sizeof a->bye_reason, "%s", bye->why);
    if (d->phase == PHASE_RUNNING && !a->released)
        hy_run_note(d, "agent %s has left (%s); its trials run on other agents", a->name, bye->why);
    hy_peer_close(a->peer, 0);
    if (bye->on_standby && a->process_runs && may_wait_on_standby(d, a))
        leave_on_standby(d, a);
    /* otherwise Spark may restart it on another executor */
    if (*d->spec->engine && d->phase == PHASE_RUNNING && a->process_runs && !a->released)
        hy_agent_process_stop(d, a);
    hy_agent_lost(d, a, hy_agents_bye_is_charged(d, a), bye->why);
}

static void on_lost(void *arg, struct hy_peer *p, const char *why)
{
    struct driver *d = arg;
    struct agent *a = hy_peer_data(p);

    if (!a)
        return;
    if (hy_peer_violated_protocol(p)) {
        hy_agent_set_violation(a, "%s", why);
        a->peer = NULL;
        hy_agent_drop(d, a, hy_peer_address(p));
        return;
    }
    hy_run_note(d, "agent %s is lost (%s); its trials run on other agents", a->name, why);
    if (a->process_runs) /* it is alive but unreachable: another one is started when it has ended */
        hy_agent_process_stop(d, a);
    hy_agent_lost(d, a, false, why); /* its machine may be gone */
}

/* ---- messages ----------------------------------------------------------------------------------- */

/* The number of notes of a run is limited; a faulty agent must not use them up. */
static void on_note(struct driver *d, struct agent *a, const Hy__Note *note)
{
    if (a->notes++ < AGENT_NOTES_MAX)
        hy_run_note(d, "agent %s: %s", a->name, note->text);
    else
        hy_info_limited("agent %s: %s", a->name, note->text);
}

static void on_message(void *arg, struct hy_peer *p, const Hy__Control *m)
{
    struct driver *d = arg;
    struct agent *a = hy_peer_data(p);
    char excess[160];

    if (!a)
        return;
    if (hy_limits_exceeded(m, excess, sizeof excess))
        hy_agent_set_violation(a, "%s", excess);
    if (!hy_agent_drop_if_violated(d, a))
        return;
    if (m->body_case == HY__CONTROL__BODY_BYE) {
        on_bye(d, a, m->bye);
        return;
    }
    switch (m->body_case) {
    case HY__CONTROL__BODY_AGENT_INFO:
        on_agent_info(d, a, m->agent_info);
        break;
    case HY__CONTROL__BODY_REPORT:
        hy_trials_report(d, a, m->report);
        break;
    case HY__CONTROL__BODY_OUTPUT:
        hy_outputs_open(d, a, m->output);
        break;
    case HY__CONTROL__BODY_ENDED:
        hy_trials_ended(d, a, m);
        break;
    case HY__CONTROL__BODY_HELD:
        hy_trials_held(d, a, m->held);
        break;
    case HY__CONTROL__BODY_USAGE:
        hy_trials_usage(d, a, m->usage);
        break;
    case HY__CONTROL__BODY_AGENT_USAGE:
        hy_status_agent_usage(a, m);
        break;
    case HY__CONTROL__BODY_GROUP:
        hy_ranks_on_message(d, a, m);
        break;
    case HY__CONTROL__BODY_NOTE:
        on_note(d, a, m->note);
        break;
    default:
        break; /* from a newer version of the agent */
    }
    hy_agent_drop_if_violated(d, a);
}

static void on_data(void *arg, struct hy_peer *p, uint32_t stream, const uint8_t *bytes, size_t n)
{
    struct agent *a = hy_peer_data(p);

    if (!a)
        return;
    hy_outputs_data(arg, a, stream, bytes, n);
    hy_agent_drop_if_violated(arg, a);
}

static void on_room(void *arg, struct hy_peer *p, uint32_t stream)
{
    struct agent *a = hy_peer_data(p);

    if (a && a->function_stream == stream)
        send_function(arg, a);
    else if (a)
        hy_checkpoint_continue(a, stream);
}

const struct hy_net_events hy_agent_net_events = {on_up, on_message, on_data, on_room, on_lost};
