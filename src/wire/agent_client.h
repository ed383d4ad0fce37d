/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client end of the agent's socket, in a trial's process: reports, ranks of a training, nodes of a cluster.
 * Blocking, without a loop.
 */
#ifndef HY_WIRE_AGENT_CLIENT_H
#define HY_WIRE_AGENT_CLIENT_H

#include "base/buf.h"
#include "hopyard.pb-c.h"

struct hy_err;

struct hy_agent_client {
    int fd;    /* the caller connects it; closed by _done; -1: not connected */
    char *tag; /* the token of all messages */
    struct hy_buf rest, message; /* private */
};

/* Copies `tag`. Call _done after an error too. */
int hy_agent_client_init(struct hy_agent_client *c, const char *tag, struct hy_err *err);
void hy_agent_client_done(struct hy_agent_client *c);

/* Sends a report; the token is filled in here. 0 or -Exxx. Any thread may send. */
int hy_agent_client_send(const struct hy_agent_client *c, const Hy__TrialReport *report);
/* Sends a report that consists of this word. */
int hy_agent_client_send_word(const struct hy_agent_client *c, Hy__GroupWord *word);
/*
 * 1 and the next answer in *ret, for the caller to free; 0 after timeout_ms (-1: no timeout), -EINTR on a signal,
 * -EPIPE when the agent has closed the connection, -EPROTO with a message for an answer that cannot be parsed.
 */
int hy_agent_client_receive(struct hy_agent_client *c, int timeout_ms, Hy__TrialReportAnswer **ret, struct hy_err *err);

#endif
