/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Chrome trace (chrome://tracing, Perfetto) of a rank's requests: the rank is a process, each tensor is a thread, and
 * each request is two bars: NEGOTIATE_ALLREDUCE until all ranks have started it, then ALLREDUCE. Each event is written
 * when it happens, followed by the closing bracket, which the next event overwrites: so the file is valid JSON at any
 * time, also when the process is killed.
 */
#ifndef HY_COLLECTIVE_TIMELINE_H
#define HY_COLLECTIVE_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct hy_timeline;

/* Rank 0 writes to `path`, rank 3 to "trace.rank-3.json" for "trace.json". */
int hy_timeline_open(const char *path, unsigned rank, bool mark_cycles, struct hy_timeline **ret, struct hy_err *err);
/* 0, or -Exxx if the file is incomplete. */
int hy_timeline_close(struct hy_timeline *t, struct hy_err *err);

int64_t hy_timeline_now(void); /* microseconds */
/* A request with the times of its start, its execution and its end. */
void hy_timeline_request(struct hy_timeline *t, const char *name, const char *kind, uint64_t bytes, int64_t asked_us,
                         int64_t begun_us, int64_t over_us);
void hy_timeline_cycle(struct hy_timeline *t); /* if cycles are marked */

#endif
