/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: the first byte says which, the others are its bytes. */
#include "base/mem.h"
#include "wire/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const types[] = {
    &hy__control__descriptor,       &hy__hello__descriptor,        &hy__client_request__descriptor,
    &hy__client_answer__descriptor, &hy__trial_report__descriptor, &hy__run_spec__descriptor,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *why;
    struct hy_hello h;
    ProtobufCMessage *m;

    if (size == 0)
        return 0;
    if (hy_message_unpack(types[data[0] % HY_COUNT(types)], data + 1, size - 1, &m) == 0)
        protobuf_c_message_free_unpacked(m, NULL);
    if (hy_hello_parse(data + 1, size - 1, &h, &why) == 0)
        hy_hello_done(&h);
    return 0;
}
