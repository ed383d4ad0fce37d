/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Chrome trace (chrome://tracing, Perfetto) of what a rank did: the process
 * is the rank, each tensor a thread of it, and each request two bars on it: NEGOTIATE_ALLREDUCE,
 * until all ranks have asked for it, and ALLREDUCE. Each event is written when it
 * happens, with the closing bracket behind it, which the next one overwrites: so
 * the file is valid JSON at any time, also when the process is killed.
 */
#ifndef HY_COLLECTIVE_TIMELINE_H
#define HY_COLLECTIVE_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct hy_timeline;

/* Rank 0 writes to `path`, rank 3 to "trace.rank-3.json" for "trace.json". */
int hy_timeline_open(const char *path, unsigned rank, bool mark_cycles, struct hy_timeline **ret, struct hy_err *err);
/* 0, or why the file is not complete. */
int hy_timeline_close(struct hy_timeline *t, struct hy_err *err);

int64_t hy_timeline_now(void); /* microseconds */
/* A request: asked for, begun and over at these times. */
void hy_timeline_request(struct hy_timeline *t, const char *name, const char *kind, uint64_t bytes, int64_t asked_us,
                         int64_t begun_us, int64_t over_us);
void hy_timeline_cycle(struct hy_timeline *t); /* if cycles are marked */

#endif
