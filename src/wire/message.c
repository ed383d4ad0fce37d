/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "wire/frame.h"
#include "wire/recv_streams.h"
#include "wire/mux.h"

#define HELLO_MAX (256u * 1024)
#define MARKS_MAX (HY_RECV_STREAMS_MAX + 1)

/*
 * Two bytes on the wire can require a whole structure in memory, so the memory
 * of a message is bounded by its length. Valid ones need less than four times
 * their length: an environment of very short strings, metrics with short names.
 */
struct budget {
    size_t left;
    bool no_memory;
};

static void *budget_alloc(void *arg, size_t size)
{
    struct budget *b = arg;
    void *p;

    if (size > b->left)
        return NULL;
    p = hy_malloc(size);
    if (p)
        b->left -= size;
    else
        b->no_memory = true;
    return p;
}

static void budget_free(void *arg, void *p)
{
    (void)arg;
    free(p);
}

int hy_message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t n, ProtobufCMessage **ret)
{
    struct budget b = {.left = 8 * n + 4096};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &b};
    ProtobufCMessage *m = protobuf_c_message_unpack(type, &allocator, n, bytes);

    if (!m)
        return b.no_memory ? -ENOMEM : -EPROTO;
    *ret = m;
    return 0;
}

static int bad(const char **ret_why, const char *why)
{
    *ret_why = why;
    return -EPROTO;
}

static int hello_take(const Hy__Hello *m, struct hy_hello *ret, const char **ret_why)
{
    struct hy_hello h = {.protocol = m->protocol, .resumed = m->resumed, .mark_count = m->n_received};

    if (m->session.len != HY_SESSION_SIZE)
        return bad(ret_why, "Hello without a session");
    if (m->n_received > MARKS_MAX)
        return bad(ret_why, "Hello with too many streams");
    h.marks = hy_calloc(h.mark_count, sizeof *h.marks);
    if (!h.marks) {
        *ret_why = "out of memory";
        return -ENOMEM;
    }
    memcpy(h.session, m->session.data, HY_SESSION_SIZE);
    for (size_t i = 0; i < h.mark_count; i++)
        h.marks[i] = (struct hy_mark){m->received[i]->stream, m->received[i]->offset, m->received[i]->limit};
    *ret = h;
    return 0;
}

int hy_hello_parse(const uint8_t *bytes, size_t n, struct hy_hello *ret, const char **ret_why)
{
    ProtobufCMessage *m;
    int rc;

    if (n > HELLO_MAX)
        return bad(ret_why, "Hello too long");
    rc = hy_message_unpack(&hy__hello__descriptor, bytes, n, &m);
    if (rc < 0) {
        *ret_why = rc == -ENOMEM ? "out of memory" : "malformed Hello";
        return rc;
    }
    rc = hello_take((const Hy__Hello *)m, ret, ret_why);
    protobuf_c_message_free_unpacked(m, NULL);
    return rc;
}

void hy_hello_done(struct hy_hello *h)
{
    free(h->marks);
    h->marks = NULL;
}

static int pack(struct hy_buf *out, const Hy__Hello *m)
{
    size_t n = hy__hello__get_packed_size(m);
    hy_cleanup_free uint8_t *bytes = hy_malloc(n);
    struct hy_frame f = {.type = HY_FRAME_HELLO, .bytes = bytes, .n = n};

    if (!bytes)
        return -ENOMEM;
    hy__hello__pack(m, bytes);
    return hy_frame_append(out, &f);
}

int hy_hello_append(struct hy_buf *out, const uint8_t session[HY_SESSION_SIZE], bool resumed, struct hy_mux *mux)
{
    size_t n = mux ? hy_mux_marks(mux, NULL) : 0;
    hy_cleanup_free struct hy_mark *marks = hy_calloc(n, sizeof *marks);
    hy_cleanup_free Hy__StreamMark *bodies = hy_calloc(n, sizeof *bodies);
    hy_cleanup_free Hy__StreamMark **pointers = hy_calloc(n, sizeof *pointers);
    Hy__Hello m = HY__HELLO__INIT;

    if (!marks || !bodies || !pointers)
        return -ENOMEM;
    if (mux)
        hy_mux_marks(mux, marks);
    for (size_t i = 0; i < n; i++) {
        hy__stream_mark__init(&bodies[i]);
        bodies[i].stream = marks[i].stream;
        bodies[i].offset = marks[i].offset;
        bodies[i].limit = marks[i].limit;
        pointers[i] = &bodies[i];
    }
    m.protocol = HY_PROTOCOL;
    m.session = (ProtobufCBinaryData){HY_SESSION_SIZE, (uint8_t *)session};
    m.resumed = resumed;
    m.n_received = n;
    m.received = pointers;
    return pack(out, &m);
}

Hy__Control *hy_control_copy(const Hy__Control *m)
{
    hy_cleanup_free uint8_t *bytes = hy_malloc(hy__control__get_packed_size(m));

    return bytes ? hy__control__unpack(NULL, hy__control__pack(m, bytes), bytes) : NULL;
}
