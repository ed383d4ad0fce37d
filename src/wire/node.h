/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node of a cluster, seen from its own process: it says where it is, and gets
 * the list of all when all are there. The connection to its agent stays: by it
 * the node hears of what concerns all of them.
 */
#ifndef HY_WIRE_NODE_H
#define HY_WIRE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hopyard.pb-c.h"

struct hy_err;
struct hy_node_link; /* opaque */

struct hy_presence {
    char **addresses;
    size_t address_count;
    uint16_t port;
};

/*
 * Joins, and waits for the others; `give_up` is asked now and then whether it
 * has been long enough. -ENXIO outside a cluster, or -Exxx, with a sentence.
 */
int hy_node_join(const struct hy_presence *where, bool (*give_up)(void *arg), void *arg, struct hy_node_link **ret,
                 struct hy_err *err);
void hy_node_leave(struct hy_node_link *n); /* NULL is fine */

/* All of them; as long as the link is there. */
const Hy__Nodes *hy_node_list(const struct hy_node_link *n);
/* To be polled for POLLIN; then hy_node_hear. */
int hy_node_socket(const struct hy_node_link *n);
/* Takes what has come, without waiting. 0, or -EPIPE when the agent is gone. */
int hy_node_hear(struct hy_node_link *n);
/* Whether no more rows are fed, as far as was heard. */
bool hy_node_is_fed(const struct hy_node_link *n);
/* Says that this node does nothing of its own any more, and serves the others until they are done. */
int hy_node_serves(struct hy_node_link *n, struct hy_err *err);
/* Says that this node is done, and waits until the others are. 0, -EINTR when given up, -Exxx. */
int hy_node_stay(struct hy_node_link *n, bool (*give_up)(void *arg), void *arg, struct hy_err *err);

#endif
