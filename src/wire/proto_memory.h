/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator for protobuf-c that is subject to fault injection, like hy_malloc. */
#ifndef HY_WIRE_PROTO_MEMORY_H
#define HY_WIRE_PROTO_MEMORY_H

#include "hopyard.pb-c.h"

extern ProtobufCAllocator hy_proto_memory;

#endif
