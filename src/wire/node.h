/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node of a cluster, in its process: it reports its address and receives the list of all nodes when all have joined.
 * The connection to the agent stays open for later notifications.
 */
#ifndef HY_WIRE_NODE_H
#define HY_WIRE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hopyard.pb-c.h"

struct hy_err;
struct hy_node_link; /* opaque */

struct hy_node_address {
    char **addresses;
    size_t address_count;
    uint16_t port;
};

/*
 * Joins the cluster and waits for the other nodes; `give_up` is called about ten times a second, and when it returns
 * true the result is -EINTR. -ENXIO outside a cluster. Errors have a message.
 */
int hy_node_join(const struct hy_node_address *address, bool (*give_up)(void *arg), void *arg,
                 struct hy_node_link **ret, struct hy_err *err);
void hy_node_leave(struct hy_node_link *n); /* NULL is fine */

/* All nodes; valid as long as the link. */
const Hy__Nodes *hy_node_list(const struct hy_node_link *n);
/* To be polled for POLLIN; then hy_node_receive. */
int hy_node_socket(const struct hy_node_link *n);
/* Takes the notifications that have arrived, without waiting. 0, or -EPIPE when the agent is gone. */
int hy_node_receive(struct hy_node_link *n);
/* Whether the feeding of rows has ended, as of the last hy_node_receive. */
bool hy_node_feed_ended(const struct hy_node_link *n);
/* Reports that this node only serves the others from now on, until they are done. */
int hy_node_report_serving(struct hy_node_link *n, struct hy_err *err);
/* Reports that this node is done, and waits until the others are. 0, -EINTR by `give_up`, -Exxx. */
int hy_node_finish(struct hy_node_link *n, bool (*give_up)(void *arg), void *arg, struct hy_err *err);

#endif
