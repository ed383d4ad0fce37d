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

struct hy_presence {
    char **addresses;
    size_t address_count;
    uint16_t port;
};

/*
 * Joins, and waits for the others; `give_up` is asked now and then whether it
 * has been long enough. *ret is freed by hy__trial_report_answer__free_unpacked;
 * its list is ret->group->nodes. Returns the connection, close-on-exec; -ENXIO
 * outside a cluster, or -Exxx, with a sentence.
 */
int hy_node_join(const struct hy_presence *where, bool (*give_up)(void *arg), void *arg, Hy__TrialReportAnswer **ret,
                 struct hy_err *err);
/* By that connection: this node does nothing of its own any more, and serves the others until they are done. */
int hy_node_serves(int fd, struct hy_err *err);

#endif
