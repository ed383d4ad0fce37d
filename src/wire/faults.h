/* SPDX-License-Identifier: Apache-2.0 */
/* Fault injection for links: a frame lost together with its link, a libuv call that fails. */
#ifndef HY_WIRE_FAULTS_H
#define HY_WIRE_FAULTS_H

#include "base/fault.h"

#define hy_fault_frame_lost() hy_fault_hit(HY_SEAM_WIRE)

/* libuv's functions return -Exxx themselves. */
#define HY_UV(call) (hy_fault_hit(HY_SEAM_SYS) ? UV_EIO : (call))

#endif
