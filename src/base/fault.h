/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault seams: places where tests inject failures.
 *
 * A test build (meson -Dfaults=true) can make the n-th allocation, system call
 * or message fail, by hy_fault_arm() or by the environment variable
 *
 *     HOPYARD_FAULT=alloc:17      the 17th allocation returns NULL
 *     HOPYARD_FAULT=sys:3         the 3rd wrapped system call fails with EIO
 *     HOPYARD_FAULT=wire:5        the 5th frame is lost and its link is cut
 *     HOPYARD_FAULT=agent/sys:3   only in `hopyard agent`
 *
 * In other builds every seam is the constant 0 and the compiler removes it.
 * Seams are counted per process, by one atomic counter each.
 */
#ifndef HY_BASE_FAULT_H
#define HY_BASE_FAULT_H

#include <errno.h>

enum hy_seam { HY_SEAM_ALLOC, HY_SEAM_SYS, HY_SEAM_WIRE, HY_SEAM_COUNT };

#ifdef HY_FAULTS
/* Counts a pass; 1 when it is the armed one. */
int hy_fault_hit(enum hy_seam seam);
/* The n-th pass from now on fails, once; 0 disarms. */
void hy_fault_arm(enum hy_seam seam, long n);
/* Passes since it was last armed. */
long hy_fault_passed(enum hy_seam seam);
#else
#define hy_fault_hit(seam) 0
#endif

/* Wraps a system call that returns -1 and sets errno: HY_SYS(fsync(fd)). */
#define HY_SYS(call) (hy_fault_hit(HY_SEAM_SYS) ? (errno = EIO, -1) : (call))

#endif
