/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP port on 127.0.0.1 that is held for a server somebody else will start.
 *
 * The address can be told before the server is there: while a socket is bound
 * and does not listen, the kernel gives its port to nobody who asks for any
 * port, and a server that binds it with SO_REUSEADDR (as Python's do) may.
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

/* Takes port `wanted`, or any when it is 0. -EADDRINUSE with a sentence that
 * names who has it, where that can be seen; other -Exxx with one. */
int hy_port_reserve(uint16_t wanted, struct hy_port *ret, struct hy_err *err);
/* From now on it is its server's alone. Harmless when it is done already. */
void hy_port_release(struct hy_port *p);

/* Does somebody accept connections there? Waits 50 ms at most. */
bool hy_port_answers(uint16_t port);

struct hy_port_owner {
    bool there;
    pid_t pid; /* 0: it is somebody else's, whom we may not look at */
    char name[32];
};
/* Who listens on 127.0.0.1:port. */
void hy_port_find_owner(uint16_t port, struct hy_port_owner *ret);

#endif
