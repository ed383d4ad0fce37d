/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents that a client starts for us, since only its process can: on the
 * executors of its SparkSession. It is told which, and says when one is over;
 * whether there is to be another is our decision, as with any engine.
 *
 * When it has gone, the agents it has started go on as long as they can be
 * reached. Another may come, and start those that are missing.
 */
#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "driver/run.h"

#define PATIENCE_MS 60000 /* with nobody who starts agents, and none here */

int hy_supply_start(struct driver *d, const struct hy_agent_order *order, struct hy_err *err)
{
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;
    Hy__AgentOrder start = HY__AGENT_ORDER__INIT;
    int rc;

    start.id = order->id;
    start.name = (char *)order->name;
    start.identity = (char *)order->identity;
    start.key.data = (uint8_t *)order->key;
    start.key.len = sizeof order->key;
    start.address = d->spec->address;
    start.port = order->port;
    answer.body_case = HY__CLIENT_ANSWER__BODY_START;
    answer.start = &start;
    rc = d->supplier ? hy_client_send(d->supplier, &answer) : -ENOTCONN;
    return rc < 0 ? hy_err_sys(err, rc, "nobody can be asked to start an agent") : 0;
}

void hy_supply_stop(struct driver *d, uint64_t id)
{
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;

    answer.body_case = HY__CLIENT_ANSWER__BODY_STOP;
    answer.stop = id;
    if (d->supplier && hy_client_send(d->supplier, &answer) < 0)
        hy_warn("an agent cannot be stopped agent=%llu", (unsigned long long)id);
}

void hy_supply_offered(struct driver *d, struct client *c, const char *what)
{
    if (!*d->spec->engine || d->supplier) {
        hy_warn("agents are offered that nobody wants by=%s", what);
        return;
    }
    hy_info("agents are started by %s", what);
    d->supplier = c;
    d->unsupplied_since = 0;
}

void hy_supply_gone(struct driver *d)
{
    struct agent *a;

    hy_info("who started agents is gone");
    for (size_t i = 0; (a = hy_map_next(&d->agents, &i));)
        if (a->process_runs)
            hy_agents_over(d, a->id, false, "the session that it was started by is gone");
}

void hy_supply_tick(struct driver *d, int64_t now)
{
    struct hy_err err = {0};
    struct agent *a;

    if (!*d->spec->engine || d->supplier || d->phase != PHASE_RUNNING)
        return;
    for (size_t i = 0; (a = hy_map_next(&d->agents, &i));)
        if (a->peer)
            return;
    if (!d->unsupplied_since)
        d->unsupplied_since = now;
    if (now - d->unsupplied_since < PATIENCE_MS)
        return;
    hy_err_set(&err, -ENOTCONN, "its Spark session is gone; resume it with another one");
    hy_run_fail(d, &err);
}
