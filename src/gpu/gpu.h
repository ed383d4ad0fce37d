/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu: leases of a machine's GPUs for trials.
 *
 * A trial holds a lease of whole devices or of a share of one. A lease is a set
 * of sockets (lease.c) that the trial inherits: it excludes every other agent and
 * user of this machine, and lasts as long as any process of the trial has them.
 * A share is enforced by CUDA's MPS (mps.c), where that is available.
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
    bool is_measured;     /* the figures below are known */
    uint64_t memory_used; /* by all processes of the machine */
    uint32_t use;         /* utilization: thousandths of the last sampling period */
};

struct hy_gpus;      /* opaque: one per agent */
struct hy_gpu_lease; /* opaque */

/* NULL: out of memory. It has no devices yet. */
struct hy_gpus *hy_gpus_new(uv_loop_t *loop);
/* All leases must be gone, hy_gpus_close must have called back (if it was ever
 * called), and the loop must turn once more. */
void hy_gpus_free(struct hy_gpus *g);

/*
 * Lists the devices; calls `found` once, also when there are none. Drivers hang
 * and libraries crash, so a process of its own does it (`hopyard agent
 * --list-gpus`), within 10 s. Only devices that this process's
 * CUDA_VISIBLE_DEVICES permits count.
 */
void hy_gpus_find(struct hy_gpus *g, void (*found)(void *arg), void *arg);
/* The same without a loop: blocks, and returns their number. */
int hy_gpus_count_here(size_t *ret, struct hy_err *err);
/* The main function of that process: prints a line for each device. Returns its exit status. */
int hy_gpus_list_main(void);

/* Measures the usage of each device, in such a process too; hy_gpus_device has the figures later. Does nothing while a
 * measurement is in progress. */
void hy_gpus_measure(struct hy_gpus *g);

size_t hy_gpus_count(const struct hy_gpus *g);
const struct hy_gpu_device *hy_gpus_device(const struct hy_gpus *g, size_t i);

struct hy_gpu_events {
    /* It has to wait, for this reason; at most once for each lease. */
    void (*on_held)(void *arg, const char *why);
    /* The lease is held: env and fds may be used. */
    void (*on_ready)(void *arg);
    /* It cannot be granted, now or by waiting. */
    void (*on_failed)(void *arg, const struct hy_err *err);
};

/*
 * Requests as many devices as `mask` has bits, whole or (`share` below 1000) a
 * share of one. The mask is the driver's preference; when those are held by
 * others, any that are free are taken. It waits until they are available.
 * -EINVAL: more than there are; -ENOMEM.
 */
int hy_gpu_lease_new(struct hy_gpus *g, uint64_t mask, uint32_t share, const struct hy_gpu_events *events, void *arg,
                     struct hy_gpu_lease **ret, struct hy_err *err);
/* Releases the lease. NULL is fine. */
void hy_gpu_lease_free(struct hy_gpu_lease *l);

/* The sockets that a trial inherits. */
const int *hy_gpu_lease_fds(const struct hy_gpu_lease *l, size_t *ret_count);
/* Its devices, one bit each; 0: `l` is NULL, or is waiting. */
uint64_t hy_gpu_lease_devices(const struct hy_gpu_lease *l);
/* After its process has failed: whether a GPU fault, possibly of another process, has
 * torn it down. */
bool hy_gpu_lease_had_fault(const struct hy_gpu_lease *l);

/*
 * Changes an environment to that of a trial with this lease (NULL: it sees no
 * GPU): removes variables of the user's that contradict it, and adds up to
 * HY_GPU_ENV_MAX, which belong to the lease. Returns the new count.
 */
#define HY_GPU_ENV_MAX 8
size_t hy_gpu_environment(const struct hy_gpu_lease *lease, char **env, size_t count);

/* Ends MPS daemons that no other agent uses; then calls `left`. All leases must
 * be gone. */
void hy_gpus_close(struct hy_gpus *g, void (*left)(void *arg), void *arg);

/* Ends MPS daemons that killed agents have left behind, or only counts them. Blocks for a while.
 * Returns how many, or -Exxx. */
int hy_gpu_sweep(bool dry);

#endif
