/* SPDX-License-Identifier: Apache-2.0 */
/* What `hopyard supply` and a program that starts agents say to each other, a line of JSON each (supply.c has both). */
#ifndef HY_CLIENT_SUPPLY_LINES_H
#define HY_CLIENT_SUPPLY_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "hopyard.pb-c.h"

struct hy_supply_line {
    bool is_offer;
    Hy__Supply offer; /* if it is one ... */
    uint64_t over;    /* ... else this agent is over, 0: none can be started, ... */
    const char *why;  /* ... and why */
    bool lives;       /* or it has left, and lives without who started it */
    bool died;        /* by a signal, while its machine lived */
    json_t *line;     /* whose texts these are */
};

/* 0, and hy_supply_line_done when it is not needed any more; or -EPROTO. */
int hy_supply_parse(const char *text, size_t n, struct hy_supply_line *ret);
void hy_supply_line_done(struct hy_supply_line *w);

/* The line that passes an order of the driver on, to start or to stop an agent; the caller's. NULL when out of memory. */
json_t *hy_supply_order_line(const Hy__ClientAnswer *answer);

#endif
