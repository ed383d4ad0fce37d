/* SPDX-License-Identifier: Apache-2.0 */
/* protobuf-c's memory, through the fault seam like all other. */
#ifndef HY_WIRE_PROTO_MEMORY_H
#define HY_WIRE_PROTO_MEMORY_H

#include "hopyard.pb-c.h"

extern ProtobufCAllocator hy_proto_memory;

#endif
