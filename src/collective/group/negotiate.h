/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The negotiator of rank 0: decides which request runs next.
 *
 * Every rank sends the requests that it has started, in its own order. When all members of a process set have sent the
 * same request, the negotiator sends them an order to run it. All members receive all orders in the same sequence, and
 * execute them in that sequence. A request that is repeated unchanged gets an id, which replaces its description.
 *
 * It also detects deadlocks. A rank *waits* when one of its threads has been blocked for a while without progress. A
 * request that only waiting ranks could complete, each of which waits for a deadlocked request itself, is refused; the
 * message names the ranks and requests. A rank that is only late (computing, reading data, stopped) causes a warning.
 *
 * Pure: no clock, no I/O, no threads. Messages are parsed by protobuf before, and validated here.
 */
#ifndef HY_COLLECTIVE_NEGOTIATE_H
#define HY_COLLECTIVE_NEGOTIATE_H

#include "base/err.h"
#include "collective.pb-c.h"
#include "collective/collective.h"

#define HY_NEGOTIATOR_IDS_MAX 4096
#define HY_NEGOTIATOR_SEEN_MAX 16384    /* names seen once; beyond this all are forgotten */
#define HY_NEGOTIATOR_PENDING_MAX 65536 /* pending requests of all ranks */
#define HY_NEGOTIATOR_DEADLOCK_MS 500   /* a deadlock must persist for this time */
#define HY_NEGOTIATOR_WARN_MS 5000      /* of a stall; the interval doubles with each warning */

struct hy_negotiator;

struct hy_negotiator_events {
    /* Sends the message to these ranks; it is valid during the call only. */
    void (*send)(void *arg, const unsigned *ranks, unsigned count, const Hy__ToRank *message);
    /* A warning for the user: which rank stalls which request. */
    void (*warn)(void *arg, const char *text);
    /* A request has stalled for stall_limits.fail_ms: the group fails. */
    void (*fail)(void *arg, const char *text);
};

/* For a request that some members have not started. */
struct hy_stall_limits {
    int64_t warn_ms; /* first warning; the interval doubles; 0: never */
    int64_t fail_ms; /* failure of the group; 0: never */
};

/* NULL when out of memory. */
struct hy_negotiator *hy_negotiator_new(unsigned size, const struct hy_negotiator_events *events, void *arg);
void hy_negotiator_free(struct hy_negotiator *c);
/* Replaces the default (HY_NEGOTIATOR_WARN_MS, no failure). Call it before the first request. */
void hy_negotiator_set_stall_limits(struct hy_negotiator *c, const struct hy_stall_limits *limits);

/* Handles a message of a rank. 0; -EPROTO: an invalid message; -ENOMEM. After an error only _free may be called. */
int hy_negotiator_receive(struct hy_negotiator *c, unsigned rank, const Hy__FromRank *message, int64_t now_ms,
                          struct hy_err *err);
/* Checks for deadlocks and stalls. Returns when to call it again at the latest, or -1: nothing is pending. */
int64_t hy_negotiator_tick(struct hy_negotiator *c, int64_t now_ms);

#endif
