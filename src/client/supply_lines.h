/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of JSON between `hopyard supply` and a program that starts agents (format: cli/supply.c). */
#ifndef HY_CLIENT_SUPPLY_LINES_H
#define HY_CLIENT_SUPPLY_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "hopyard.pb-c.h"

struct hy_supply_line {
    bool is_offer;
    Hy__Supply offer; /* if is_offer; otherwise: */
    uint64_t over;    /* the agent that has ended; 0: no agent can be started */
    const char *why;  /* the reason */
    bool lives;       /* the agent has detached from the program that started it and still runs */
    bool died;        /* a signal killed it while its machine stayed up */
    json_t *line;     /* owns the texts above */
};

/* 0: free the result with hy_supply_line_done; or -EPROTO. */
int hy_supply_parse(const char *text, size_t n, struct hy_supply_line *ret);
void hy_supply_line_done(struct hy_supply_line *w);

/* The line for the driver's order to start or stop an agent, a new reference. NULL when out of memory. */
json_t *hy_supply_order_line(const Hy__ClientAnswer *answer);

#endif
