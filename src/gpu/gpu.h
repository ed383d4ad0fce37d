/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs, as an agent lends them to its trials.
 *
 * A trial holds a lease of whole devices or of a share of one. A lease is a set
 * of sockets (lease.c) which the trial inherits: it is good against every other
 * agent and user of this machine, and lasts as long as any process of the trial
 * has them. A share is enforced by CUDA's MPS (mps.c), where that is to be had.
 *
 * Callbacks are made from the loop only, never from inside a call.
 */
#ifndef HY_GPU_H
#define HY_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"

#define HY_GPUS_MAX 64       /* a lease names devices by one bit each */
#define HY_GPU_UUID_MAX 96   /* as NVML has it */
#define HY_GPU_SHARES 1000u  /* a whole one, in thousandths */

struct hy_gpu_device {
    char uuid[HY_GPU_UUID_MAX];
    char name[96];
    uint64_t memory; /* bytes */
};

struct hy_gpus;      /* opaque: one per agent */
struct hy_gpu_lease; /* opaque */

/* NULL: out of memory. It has no devices yet. */
struct hy_gpus *hy_gpus_new(uv_loop_t *loop);
/* All leases must be gone, hy_gpus_leave must have called back (if it was ever
 * called), and the loop must turn once more. */
void hy_gpus_free(struct hy_gpus *g);

/*
 * Looks for devices; calls `found` once, also when there are none. Drivers hang
 * and libraries crash, so it is a process of its own that looks (`hopyard agent
 * --list-gpus`), and it has 10 s. Only what CUDA_VISIBLE_DEVICES of this
 * process lets through counts.
 */
void hy_gpus_find(struct hy_gpus *g, void (*found)(void *arg), void *arg);
/* The same where there is no loop yet: waits for it, and counts them. */
int hy_gpus_count_here(size_t *ret, struct hy_err *err);
/* What that process does: a line for each device. Returns its exit status. */
int hy_gpus_list_main(void);

size_t hy_gpus_count(const struct hy_gpus *g);
const struct hy_gpu_device *hy_gpus_device(const struct hy_gpus *g, size_t i);

struct hy_gpu_events {
    /* It has to wait, for this reason; at most once for each lease. */
    void (*on_held)(void *arg, const char *why);
    /* It is there: env and fds may be used. */
    void (*on_ready)(void *arg);
    /* It cannot be had: not now, and not by waiting. */
    void (*on_failed)(void *arg, const struct hy_err *err);
};

/*
 * Asks for as many devices as `mask` has bits, whole or (`share` below 1000) a
 * share of one. The mask is what the driver would like; when others hold those,
 * any that are free will do. It waits until they are to be had.
 * -EINVAL: more than there are; -ENOMEM.
 */
int hy_gpu_lease_new(struct hy_gpus *g, uint64_t mask, uint32_t share, const struct hy_gpu_events *events,
                     void *arg, struct hy_gpu_lease **ret, struct hy_err *err);
/* Lets go. NULL is fine. */
void hy_gpu_lease_free(struct hy_gpu_lease *l);

/* The sockets that a trial inherits. */
const int *hy_gpu_lease_fds(const struct hy_gpu_lease *l, size_t *ret_count);
/* The process that had it has failed: was it torn down by a fault that may
 * have been a neighbour's? */
bool hy_gpu_lease_fell(const struct hy_gpu_lease *l);

/*
 * Makes an environment that of a trial with this lease (NULL: it sees no GPU):
 * takes out the user's words that would say otherwise, and adds up to
 * HY_GPU_WORDS, which belong to the lease. Returns the new count.
 */
#define HY_GPU_WORDS 8
size_t hy_gpu_environment(const struct hy_gpu_lease *lease, char **env, size_t count);

/* Ends what was started for shares, as far as nobody else uses it; then calls
 * `left`. All leases must be gone. */
void hy_gpus_leave(struct hy_gpus *g, void (*left)(void *arg), void *arg);

/* Ends MPS daemons that killed agents have left behind, or only counts them. Blocks for a while.
 * How many, or -Exxx. */
int hy_gpu_sweep(bool dry);

#endif
