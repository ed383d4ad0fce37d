/* SPDX-License-Identifier: Apache-2.0 */
/* Fault seams of links: a frame that is lost together with its link, a call of libuv that fails. */
#ifndef HY_WIRE_SEAM_H
#define HY_WIRE_SEAM_H

#include "base/fault.h"

#define hy_frame_lost() hy_fault_hit(HY_SEAM_WIRE)

/* libuv's calls answer -Exxx themselves. */
#define HY_UV(call) (hy_fault_hit(HY_SEAM_SYS) ? UV_EIO : (call))

#endif
