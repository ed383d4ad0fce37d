/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may run now: rank 0's part in a group.
 *
 * Every rank says what it has started, in its own order. The council compares,
 * and when all members of a process set have asked for the same thing, tells
 * them to do it; since all hear of everything in one order, all do it in that
 * order. What ranks have agreed on once has a number from then on.
 *
 * It also knows when something will never run. A rank *waits* when a thread of
 * it has been blocked for a while and nothing new comes; a request that only
 * ranks could complete which themselves wait, for requests as hopeless as this
 * one, is refused, and the sentence says who waits for what. A rank that only
 * takes its time (it computes, reads data, is stopped) is warned about.
 *
 * Pure: no clock, no I/O, no threads; bytes of ranks are checked by protobuf
 * before they come here and for sense here.
 */
#ifndef HY_COLLECTIVE_NEGOTIATE_H
#define HY_COLLECTIVE_NEGOTIATE_H

#include "base/err.h"
#include "collective.pb-c.h"
#include "collective/collective.h"

#define HY_NEGOTIATOR_IDS_MAX 4096
#define HY_NEGOTIATOR_SEEN_MAX 16384    /* names that are remembered for a second time; then all are forgotten */
#define HY_NEGOTIATOR_PENDING_MAX 65536 /* that are not over, of all ranks together */
#define HY_NEGOTIATOR_DEADLOCK_MS 500   /* so long it must have been, before it is refused */
#define HY_NEGOTIATOR_WARN_MS 5000      /* then again after twice the time */

struct hy_negotiator;

struct hy_negotiator_events {
    /* Tell these ranks. The message is valid during the call. */
    void (*send)(void *arg, const unsigned *ranks, unsigned count, const Hy__ToRank *message);
    /* For people: who keeps whom waiting. */
    void (*warn)(void *arg, const char *text);
    /* A rank has kept the others waiting for stall_limits.fail_ms: the group is at its end. */
    void (*fail)(void *arg, const char *text);
};

/* A rank that keeps the others waiting. */
struct hy_stall_limits {
    int64_t warn_ms; /* it is named after this time, then after twice the time; 0: never */
    int64_t fail_ms; /* the group fails after this time; 0: never */
};

/* NULL when out of memory. */
struct hy_negotiator *hy_negotiator_new(unsigned size, const struct hy_negotiator_events *events, void *arg);
void hy_negotiator_free(struct hy_negotiator *c);
/* Instead of HY_NEGOTIATOR_WARN_MS and no failure. Before the first request. */
void hy_negotiator_set_stall_limits(struct hy_negotiator *c, const struct hy_stall_limits *limits);

/* 0; -EPROTO: no rank of ours says such a thing; -ENOMEM. After an error the council is of no use. */
int hy_negotiator_receive(struct hy_negotiator *c, unsigned rank, const Hy__FromRank *message, int64_t now_ms,
                    struct hy_err *err);
/* Time has passed. Returns when to call again at the latest, or -1: nothing is open. */
int64_t hy_negotiator_tick(struct hy_negotiator *c, int64_t now_ms);

#endif
