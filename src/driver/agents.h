/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent_*.c files share; the rest of the driver uses run.h. */
#ifndef HY_DRIVER_AGENTS_H
#define HY_DRIVER_AGENTS_H

#include "driver/run.h"

#define AGENT_START_MS 60000 /* for an agent to join after its start, with the copying of the program */

/* ---- agents.c ---- */
/* `identity`: NULL for an agent that is still to be started. NULL when out of memory. */
struct agent *hy_agent_new(struct driver *d, const char *identity, const char *name, uint32_t slots);
void hy_agent_free(struct driver *d, struct agent *a);
/* The agent with that identity, or NULL. */
struct agent *hy_agent_find(struct driver *d, const char *identity);
/* It is disconnected: its trials run elsewhere. Frees it, or restarts it if the run has started it. */
void hy_agent_lost(struct driver *d, struct agent *a, bool died, const char *why);
/* Disconnects an agent that has violated the protocol. */
void hy_agent_drop(struct driver *d, struct agent *a, const char *address);
/* The same if a violation is set, after each message; false: the agent is gone. */
bool hy_agent_drop_if_violated(struct driver *d, struct agent *a);
/* Fails the run, or waits, if the agents that are known cannot run its trials. */
void hy_agents_check_capacity(struct driver *d);

/* ---- agent_process.c ---- */
void hy_agent_process_stop(struct driver *d, struct agent *a);
/* After a backoff, or never if it has failed too often. */
void hy_agent_process_restart_later(struct driver *d, struct agent *a, const char *why);
/* Whether the supplier may be asked for one more agent now. */
bool hy_agent_process_may_request(struct driver *d);
void hy_agent_processes_tick(struct driver *d, int64_t now);

/* ---- agent_messages.c ---- */
extern const struct hy_net_events hy_agent_net_events;
void hy_agent_send_bye(const struct driver *d, struct agent *a);

/* ---- agent_listen.c ---- */
int hy_agents_listen(struct driver *d, struct hy_err *err);
/* For agents that join by themselves (--listen). */
int hy_agents_write_join_key(struct driver *d, struct hy_err *err);

#endif
