/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a NameNode: a response lies within its frame, and every exception has a message. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "hdfs/cluster.h"
#include "hdfs/rpc/rpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

/* Nested responses. */
static const ProtobufCMessageDescriptor *const types[] = {
    &hdfs__get_listing_response__descriptor,
    &hdfs__get_block_locations_response__descriptor,
    &hdfs__add_block_response__descriptor,
    &hdfs__append_response__descriptor,
    &hdfs__rpc_sasl__descriptor,
};

static void unpack_as_any(const struct hy_hdfs_rpc_response *a)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        ProtobufCMessage *m = protobuf_c_message_unpack(types[i], NULL, a->n, a->body);

        if (m)
            protobuf_c_message_free_unpacked(m, NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *frame = malloc(size ? size : 1);
    struct hy_hdfs_rpc_response a;
    struct hy_err err = {0};

    check(frame != NULL);
    if (size)
        memcpy(frame, data, size);
    if (hy_hdfs_rpc_response_parse(frame, size, &a) < 0)
        return 0;
    if (a.header->status == HDFS__RPC_RESPONSE_HEADER__STATUS__SUCCESS) {
        check(a.body >= frame && a.n <= size && a.body + a.n <= frame + size);
        unpack_as_any(&a);
    } else {
        check(hy_hdfs_exception(a.header->exceptionclassname, a.header->errormsg, &err) < 0);
        check(err.code < 0);
    }
    hy_hdfs_rpc_response_done(&a);
    return 0;
}
