/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to this part:
 *
 *     gpu.c      granting leases, waiting, a trial's environment
 *     nvml.c     listing devices
 *     lease.c    locks that hold machine-wide, across users
 *     mps.c      the MPS daemon, which enforces shares
 *     mps_log.c  GPU faults in its server's log
 */
#ifndef HY_GPU_INTERNAL_H
#define HY_GPU_INTERNAL_H

#include <sys/types.h>

#include "gpu/gpu.h"

/* ---- nvml.c ---- */

/* Whether NVIDIA's library is installed. */
bool hy_nvml_is_here(void);
/* Fills `list`. Returns how many (at most `room`), or -Exxx with a sentence. */
int hy_nvml_list(struct hy_gpu_device *list, size_t room, struct hy_err *err);
/*
 * Keeps the devices that CUDA_VISIBLE_DEVICES names, in its order, and returns how
 * many: indices, UUIDs, or unambiguous prefixes of one. As in CUDA, the first entry that
 * does not name a device ends the list. NULL: all.
 */
size_t hy_gpu_visible(const char *visible, struct hy_gpu_device *list, size_t count);

/* ---- lease.c ---- */

#define HY_GPU_QUANTA 100 /* a device is leased in hundredths */

/* Devices, or a part of one. A zeroed lock holds nothing. */
struct hy_gpu_lock {
    int fds[HY_GPU_QUANTA];
    size_t count;
};

/* How many hundredths a share of so many thousandths takes; whole devices: 0. */
unsigned hy_gpu_quanta(uint32_t share);
/* Adds a device or a share of it. 0; -EBUSY: too much of it is held by others; or
 * -Exxx; then the lock is unchanged. */
int hy_gpu_lock_add(struct hy_gpu_lock *lock, const char *uuid, uint32_t share);
void hy_gpu_lock_drop(struct hy_gpu_lock *lock);

/* ---- mps.c ---- */

struct hy_mps; /* opaque: one device's daemon, as this agent sees it */

/* `changed` is called when hy_mps_ready has a new answer. NULL: out of memory. */
struct hy_mps *hy_mps_new(uv_loop_t *loop, const char *uuid, void (*changed)(void *arg), void *arg);
/* Must be idle; the loop must turn once more. NULL is fine. */
void hy_mps_free(struct hy_mps *m);

/* Adds a user: starts it if it does not run. */
void hy_mps_use(struct hy_mps *m);
/* Removes a user: ends it after a while, if no other agent uses it. */
void hy_mps_drop(struct hy_mps *m);
/* 1: clients may connect. 0: not yet. -ENOTSUP: there is no MPS. */
int hy_mps_ready(struct hy_mps *m);
/* It is not used and will not be: ends it now. */
void hy_mps_leave(struct hy_mps *m);
bool hy_mps_is_idle(const struct hy_mps *m);

const char *hy_mps_folder(const struct hy_mps *m);
/* Its identity and the end of its server's log now, for a trial that starts ... */
struct hy_mps_mark {
    pid_t daemon;
    uint64_t offset;
};
struct hy_mps_mark hy_mps_mark(const struct hy_mps *m);
/* ... and whether a fault has hit several clients since then, or the daemon is gone. */
bool hy_mps_had_fault(const struct hy_mps *m, struct hy_mps_mark mark);

/* ---- mps_log.c ---- */

struct hy_mps_faults {
    bool any;
    bool over;            /* the server has recovered from the last one */
    size_t last;          /* where the last one begins */
    unsigned clients_hit; /* most client processes that one fault affected */
};

/* Parses a piece of the server's log. */
void hy_mps_log_scan(const char *text, size_t n, struct hy_mps_faults *ret);

#endif
