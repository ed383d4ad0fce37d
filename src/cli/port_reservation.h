/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserves a TCP port on 127.0.0.1 for a server that another process will start.
 *
 * The address can be printed before the server listens: while a socket is bound
 * but does not listen, the kernel does not assign its port to binds of port 0,
 * and a server can still bind it with SO_REUSEADDR (as Python's servers do).
 */
#ifndef HY_CLI_PORT_RESERVATION_H
#define HY_CLI_PORT_RESERVATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct hy_port {
    uint16_t number; /* read-only */
    int fd, claim;   /* private */
};

/* Reserves port `wanted`, or any if 0. -EADDRINUSE with a message that names the process that uses it, if visible;
 * other -Exxx with a message. */
int hy_port_reserve(uint16_t wanted, struct hy_port *ret, struct hy_err *err);
/* Releases the reservation; the server keeps the port. May be called again. */
void hy_port_release(struct hy_port *p);

/* True if a server accepts connections. Waits 50 ms at most. */
bool hy_port_answers(uint16_t port);

struct hy_port_owner {
    bool there;
    pid_t pid; /* 0: a process of another user */
    char name[32];
};
/* Finds the process that listens on 127.0.0.1:port. */
void hy_port_find_owner(uint16_t port, struct hy_port_owner *ret);

#endif
