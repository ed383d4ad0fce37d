/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/proto_memory.h"

#include <stdlib.h>

#include "base/mem.h"

static void *proto_alloc(void *arg, size_t size)
{
    (void)arg;
    return hy_malloc(size);
}

static void proto_free(void *arg, void *pointer)
{
    (void)arg;
    free(pointer);
}

ProtobufCAllocator hy_proto_memory = {.alloc = proto_alloc, .free = proto_free};
