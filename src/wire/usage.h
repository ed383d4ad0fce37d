/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: what an attempt used over time, in at most HY_USAGE_POINTS points.
 *
 * An agent adds a point per interval. When all points are taken, pairs of neighbors become one and the interval is
 * doubled. So a series is short however long the attempt runs, and always contains its first point, its
 * last one, and the one with the most memory. Packed, it is a Usage message: some 8 bytes a point.
 */
#ifndef HY_WIRE_USAGE_H
#define HY_WIRE_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "hopyard.pb-c.h"

#define HY_USAGE_POINTS 200u
#define HY_USAGE_INTERVAL_MS 1000 /* at first */
#define HY_USAGE_PACKED_MAX 16384u /* bytes */

struct hy_usage_point {
    int64_t time_ms; /* since the attempt's process was started */
    int64_t memory; /* KiB */
    int64_t cpu_ms; /* so far */
    int64_t gpu_memory, gpu_use; /* KiB; thousandths of a GPU */
};

struct hy_usage {
    struct hy_usage_point points[HY_USAGE_POINTS];
    size_t count;
    int64_t interval_ms; /* between two points that are added */
    bool has_gpus; /* some point has figures of GPUs */
};

void hy_usage_init(struct hy_usage *u);
/* Adds a point; one that is not later than the last replaces it. CPU time never decreases. */
void hy_usage_add(struct hy_usage *u, const struct hy_usage_point *p);

/* Appends the packed message. 0 or -ENOMEM. */
int hy_usage_pack(const struct hy_usage *u, struct hy_buf *out);
/* Both are for untrusted input: 0, -EBADMSG or -ENOMEM. */
int hy_usage_unpack(const void *bytes, size_t n, struct hy_usage *ret);
int hy_usage_read(const Hy__Usage *m, struct hy_usage *ret);

/* A message whose lists are in `room`. */
struct hy_usage_message {
    Hy__Usage message;
    int64_t room[5][HY_USAGE_POINTS];
};
void hy_usage_fill(const struct hy_usage *u, struct hy_usage_message *ret);

#endif
