/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents that a client starts, since only its process can: on the executors of
 * its SparkSession. The driver requests each agent and receives a message when
 * one has ended; whether it is replaced is the driver's decision, as with any
 * engine.
 *
 * When the supplier disconnects, its agents stay as long as they are reachable.
 * Another supplier may connect and start the missing ones.
 */
#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "driver/run.h"

#define AGENTS_MAX 10000u
#define QUIET_MS 15000    /* before a note says that the run waits */
#define MISSING_MAX_MS 60000 /* without a supplier and without an agent */

int hy_supply_start(struct driver *d, const struct hy_agent_order *order, struct hy_err *err)
{
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;
    Hy__AgentOrder start = HY__AGENT_ORDER__INIT;
    int rc;

    start.id = order->id;
    start.name = (char *)"executor"; /* the agent appends a number and its host */
    start.identity = (char *)order->identity;
    start.key.data = (uint8_t *)order->key;
    start.key.len = sizeof order->key;
    start.address = d->spec->address;
    start.port = order->port;
    answer.body_case = HY__CLIENT_ANSWER__BODY_START;
    answer.start = &start;
    rc = d->supply.supplier ? hy_client_send(d->supply.supplier, &answer) : -ENOTCONN;
    return rc < 0 ? hy_err_sys(err, rc, "no Spark session is connected to start an agent") : 0;
}

void hy_supply_stop(struct driver *d, uint64_t id)
{
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;

    answer.body_case = HY__CLIENT_ANSWER__BODY_STOP;
    answer.stop = id;
    if (d->supply.supplier && hy_client_send(d->supply.supplier, &answer) < 0)
        hy_warn("cannot stop an agent agent=%llu", (unsigned long long)id);
}

static void accept_supplier(struct driver *d, struct client *c, const Hy__Supply *offer)
{
    hy_info("supplier has connected what=%s", offer->what);
    if (*offer->note)
        hy_run_note(d, "%s", offer->note);
    if (!d->spec->parallel && offer->parallel) {
        d->spec->parallel = offer->parallel;
        if (!hy_is_training(d))
            hy_schedule_parallel(d->schedule, offer->parallel);
    }
    if (d->supply.missing_since && d->supply.was_lost)
        hy_run_check_recorded(d, hy_changes_run_state(&d->commit.recorded, HY_RUN_RUNNING, NULL));
    d->supply.supplier = c;
    d->supply.missing_since = 0;
}

/* More agents than trials that can run at the same time would be idle. */
static uint32_t limit_to_useful(struct driver *d, uint32_t agents)
{
    int64_t most = hy_is_training(d) && d->spec->ranks_max ? d->spec->ranks_max : hy_run_total(d);

    if (!hy_is_training(d) && d->spec->parallel && (most < 0 || most > d->spec->parallel))
        most = d->spec->parallel;
    return most >= 0 && most < agents ? (uint32_t)most : agents;
}

static void refuse(struct driver *d, struct client *c, const Hy__Supply *offer)
{
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;
    char text[128];

    hy_warn_limited("refused an offer of agents what=%s", offer->what);
    snprintf(text, sizeof text, "run %lld is connected to another session; stop that session first", (long long)d->run);
    answer.body_case = HY__CLIENT_ANSWER__BODY_ERROR;
    answer.error = text;
    if (hy_client_send(c, &answer) < 0)
        hy_warn_limited("cannot answer an offer of agents");
}

void hy_supply_offered(struct driver *d, struct client *c, const Hy__Supply *offer)
{
    if (!*d->spec->engine || (d->supply.supplier && d->supply.supplier != c)) {
        refuse(d, c, offer);
        return;
    }
    if (!d->supply.supplier)
        accept_supplier(d, c, offer);
    d->supply.may_grow = offer->more;
    hy_agents_request(d, limit_to_useful(d, offer->agents < AGENTS_MAX ? offer->agents : AGENTS_MAX));
}

void hy_supply_agent_ended(struct driver *d, const Hy__AgentOver *over)
{
    struct hy_err err = {0};

    if (over->id) {
        enum hy_agent_end end = over->lives ? HY_AGENT_UNREACHED : over->died ? HY_AGENT_DIED : HY_AGENT_ENDED;

        hy_agents_process_ended(d, over->id, end, over->why);
        return;
    }
    hy_err_set(&err, -ENOTCONN, "%s", over->why);
    hy_run_fail(d, &err);
}

/* The session has ended without reporting a reason. */
static void fail_for_session(struct driver *d)
{
    struct hy_err err = {0};

    hy_err_set(&err, -ECHILD,
               "the Spark session could not be started, or has ended (%s); see the run's log, "
               "run-%lld.log in '%s'",
               d->supply.session_end, (long long)d->run, hy_store_dir_path(d->store));
    hy_run_fail(d, &err);
}

static const char *resume_hint(const struct driver *d, char *buf, size_t n)
{
    if (d->spec->fed)
        snprintf(buf, n, ", and rows cannot be fed to its nodes again; start it anew");
    else
        hy_resume_clause(hy_run_resume(d->spec), d->run, "; ", " gives it another one", buf, n);
    return buf;
}

void hy_supply_lost(struct driver *d)
{
    char text[100];
    struct agent *a;

    hy_info("supplier has disconnected");
    d->supply.was_lost = true;
    if (d->phase == PHASE_RUNNING && *d->supply.session_end) {
        fail_for_session(d);
        return;
    }
    if (d->phase == PHASE_RUNNING && !*d->spec->master)
        hy_run_note(d, "its Spark session is gone%s", resume_hint(d, text, sizeof text));
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->process_runs)
            hy_agents_process_ended(d, a->id, HY_AGENT_UNREACHED, "the Spark session that started it is gone");
}

/* ---- a session that the driver starts -------------------------------------------------------- */

/* As long as it is connected it reports errors itself. */
static void on_session_exit(uv_process_t *h, int64_t status, int signal)
{
    struct driver *d = h->data;

    snprintf(d->supply.session_end, sizeof d->supply.session_end, "%s %lld", signal ? "signal" : "exit status",
             signal ? (long long)signal : (long long)status);
    hy_info("session has ended %s", d->supply.session_end);
    if (!d->supply.supplier && d->phase == PHASE_RUNNING)
        fail_for_session(d);
}

/* The session ends when its connection to the driver does. */
int hy_supply_open(struct driver *d, struct hy_err *err)
{
    char run[32], agents[32], memory[32], gpus[32];
    char *argv[] = {d->spec->python,
                    (char *)"-P",
                    (char *)"-m",
                    (char *)"hopyard._spark",
                    run,
                    d->spec->project,
                    d->spec->master,
                    d->spec->address,
                    agents,
                    memory,
                    gpus,
                    NULL};
    uv_stdio_container_t io[] = {
        {.flags = UV_IGNORE}, {.flags = UV_INHERIT_FD, .data.fd = 2}, {.flags = UV_INHERIT_FD, .data.fd = 2}};
    uv_process_options_t options = {.file = d->spec->python,
                                    .args = argv,
                                    .stdio = io,
                                    .stdio_count = 3,
                                    .cwd = d->spec->cwd,
                                    .exit_cb = on_session_exit,
                                    .flags = UV_PROCESS_DETACHED};
    int rc;

    if (!*d->spec->master)
        return 0;
    snprintf(run, sizeof run, "%lld", (long long)d->run);
    snprintf(agents, sizeof agents, "%u", d->spec->agents);
    snprintf(memory, sizeof memory, "%u", d->spec->executor_memory);
    snprintf(gpus, sizeof gpus, "%u", d->spec->executor_gpus);
    d->supply.session.data = d;
    rc = uv_spawn(&d->loop, &d->supply.session, &options);
    return rc < 0 ? hy_err_set(err, rc, "cannot start '%s' for a Spark session: %s", d->spec->python, uv_strerror(rc))
                  : 0;
}

static bool has_connected_agent(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->peer)
            return true;
    return false;
}

/* A busy cluster is hard to tell from one that does nothing. */
static void note_waiting(struct driver *d, int64_t now)
{
    struct agent *a;

    if (d->supply.wait_noted || now - d->process.begun_ms < QUIET_MS)
        return;
    d->supply.wait_noted = true;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->has_joined)
            return;
    hy_run_note(d, "waiting for executors: Spark has not started any yet");
}

/* No supplier and no agent. Another session may connect within 60 s; `hopyard show` displays that the run waits. */
static void handle_missing_supply(struct driver *d, int64_t now)
{
    char help[100], text[160];
    struct hy_err err = {0};

    snprintf(text, sizeof text, "its Spark session is gone%s", resume_hint(d, help, sizeof help));
    if (d->supply.was_lost && !d->supply.missing_since)
        hy_run_check_recorded(d, hy_changes_run_state(&d->commit.recorded, HY_RUN_RUNNING, text));
    if (!d->supply.missing_since)
        d->supply.missing_since = now;
    if (now - d->supply.missing_since < MISSING_MAX_MS && !(d->supply.was_lost && d->spec->fed))
        return;
    hy_err_set(&err, -ENOTCONN, "%s", text);
    hy_run_fail(d, &err);
}

void hy_supply_tick(struct driver *d, int64_t now)
{
    if (!*d->spec->engine || d->phase != PHASE_RUNNING)
        return;
    if (has_connected_agent(d)) {
        if (!d->supply.is_checked && !d->supply.may_grow && d->supply.last_agent_ms &&
            now - d->supply.last_agent_ms > QUIET_MS)
            hy_agents_check_supply_suffices(d);
        return;
    }
    note_waiting(d, now);
    if (d->supply.supplier || uv_is_active((uv_handle_t *)&d->supply.session))
        return; /* starting a session takes long, and on_session_exit handles its end */
    handle_missing_supply(d, now);
}
