/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: the first byte selects the type, the others are its bytes. An accepted hello is encoded again, by a mux
 * with its streams, and accepted again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "faults.h"
#include "wire/frame.h"
#include "wire/message.h"
#include "wire/mux.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const types[] = {
    &hy__control__descriptor,       &hy__hello__descriptor,        &hy__client_request__descriptor,
    &hy__client_answer__descriptor, &hy__trial_report__descriptor, &hy__run_spec__descriptor,
};

static int on_message(void *arg, const uint8_t *bytes, size_t n)
{
    (void)arg, (void)bytes, (void)n;
    return 0;
}

static void on_data(void *arg, uint32_t stream, const uint8_t *bytes, size_t n)
{
    (void)arg, (void)stream, (void)bytes, (void)n;
}

static void on_room(void *arg, uint32_t stream)
{
    (void)arg, (void)stream;
}

/* Opens a stream for each of the first marks, so that the hello has marks. */
static void open_streams(struct hy_mux *mux, const struct hy_hello *h)
{
    for (size_t i = 0; i < h->mark_count && i < 8; i++) {
        const struct hy_frame f = {
            .type = HY_FRAME_DATA, .stream = h->marks[i].stream, .bytes = (const uint8_t *)"x", .n = 1};
        const char *why;

        if (hy_mux_input(mux, &f, &why) < 0)
            return;
    }
}

static void encode_again(const struct hy_hello *h)
{
    static const struct hy_mux_events events = {on_message, on_data, on_room};
    struct hy_mux *mux = h->resumed ? hy_mux_new(&events, NULL) : NULL;
    struct hy_hello again;
    struct hy_frame f;
    struct hy_buf out;
    const char *why;

    hy_buf_init(&out, 1 << 20);
    if (mux)
        open_streams(mux, h);
    if (hy_hello_append(&out, h->session, h->resumed, mux) == 0 && !hy_is_short_of_memory) {
        if (hy_frame_parse(hy_buf_bytes(&out), out.len, 1 << 20, &f, &why) <= 0 || f.type != HY_FRAME_HELLO ||
            hy_hello_parse(f.bytes, f.n, &again, &why) < 0 || memcmp(again.session, h->session, HY_SESSION_SIZE) != 0)
            abort();
        hy_hello_done(&again);
    }
    hy_mux_free(mux);
    hy_buf_done(&out);
}

/* It may be NULL: protobuf-c accepts an unknown field of number 0, but not its own encoding of it. */
static void copy_control(const Hy__Control *m)
{
    Hy__Control *copy = hy_control_copy(m);

    if (copy && copy->body_case != m->body_case)
        abort();
    if (copy)
        hy__control__free_unpacked(copy, NULL);
}

static void run(const uint8_t *data, size_t size)
{
    const ProtobufCMessageDescriptor *type = types[data[0] % HY_COUNT(types)];
    const char *why;
    struct hy_hello h;
    ProtobufCMessage *m;

    if (hy_message_unpack(type, data + 1, size - 1, &m) == 0) {
        if (type == &hy__control__descriptor)
            copy_control((const Hy__Control *)m);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    if (hy_hello_parse(data + 1, size - 1, &h, &why) == 0) {
        encode_again(&h);
        hy_hello_done(&h);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size)
        hy_run_with_faults(data, size, run);
    return 0;
}
