/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two muxes and a connection made of two buffers, for test_wire.c: every byte is
 * a function of its stream and offset, so that the receiving end can check it.
 */
#ifndef HY_TESTS_WIRE_MUX_H
#define HY_TESTS_WIRE_MUX_H

#include <errno.h>

#include "base/buf.h"
#include "base/rng.h"
#include "support.h"
#include "wire/frame.h"
#include "wire/recv_streams.h"
#include "wire/mux.h"

#define STREAMS 8

struct end {
    struct hy_mux *mux;
    struct hy_buf wire; /* in flight to the other end */
    uint64_t messages_sent, messages_got;
    uint64_t data_sent[STREAMS + 1], data_got[STREAMS + 1], data_owed[STREAMS + 1];
    uint64_t rooms;
    uint32_t last_stream; /* of the last message or data received */
    int refuse;           /* what on_message returns for the next message */
    int keeps_credit;     /* data is not consumed at once */
    int forgets;          /* forgets each stream when it receives data */
};

static const uint8_t some_bytes[] = "some bytes";

static inline void seal_and_release(struct hy_mux *m)
{
    hy_mux_seal(m);
    hy_mux_release(m);
}

static inline uint8_t data_byte(uint32_t stream, uint64_t offset)
{
    return (uint8_t)(offset * 31 + (offset >> 8) * 7 + stream);
}

static inline size_t message_length(uint64_t number)
{
    return number % 17 == 3 ? 40000 + number % 1000 : number % 50;
}

static inline int end_message(void *arg, const uint8_t *bytes, size_t n)
{
    struct end *e = arg;

    if (e->refuse) {
        int rc = e->refuse;

        e->refuse = 0;
        return rc;
    }
    assert_int_equal(n, message_length(e->messages_got));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(bytes[i], (uint8_t)(e->messages_got + i));
    e->messages_got++;
    e->last_stream = 0;
    return 0;
}

static inline void end_data(void *arg, uint32_t stream, const uint8_t *bytes, size_t n)
{
    struct end *e = arg;

    if (e->forgets) {
        hy_mux_forget(e->mux, stream);
        return;
    }
    assert_in_range(stream, 1, STREAMS);
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != data_byte(stream, e->data_got[stream] + i))
            fail_msg("stream %u: byte %llu is wrong", stream, (unsigned long long)(e->data_got[stream] + i));
    e->data_got[stream] += n;
    e->last_stream = stream;
    if (e->keeps_credit)
        e->data_owed[stream] += n;
    else
        hy_mux_consumed(e->mux, stream, n);
}

static inline void end_room(void *arg, uint32_t stream)
{
    struct end *e = arg;

    (void)stream;
    e->rooms++;
}

static const struct hy_mux_events end_events = {end_message, end_data, end_room};

static inline int end_init(struct end *e)
{
    memset(e, 0, sizeof *e);
    hy_buf_init(&e->wire, SIZE_MAX);
    e->mux = hy_mux_new(&end_events, e);
    return e->mux ? 0 : -ENOMEM;
}

static inline void end_done(struct end *e)
{
    hy_mux_free(e->mux);
    hy_buf_done(&e->wire);
}

static inline int send_message(struct end *e)
{
    size_t n = message_length(e->messages_sent);
    uint8_t *at;
    int rc = hy_mux_message(e->mux, n, &at);

    for (size_t i = 0; rc == 0 && i < n; i++)
        at[i] = (uint8_t)(e->messages_sent + i);
    e->messages_sent += rc == 0;
    return rc;
}

static inline int send_data(struct end *e, uint32_t stream, size_t n)
{
    uint8_t bytes[4096];
    int rc;

    if (n > hy_mux_room(e->mux, stream))
        n = hy_mux_room(e->mux, stream);
    if (n > sizeof bytes)
        n = sizeof bytes;
    for (size_t i = 0; i < n; i++)
        bytes[i] = data_byte(stream, e->data_sent[stream] + i);
    rc = hy_mux_write(e->mux, stream, bytes, n);
    if (rc == 0)
        e->data_sent[stream] += n;
    return rc;
}

/* Delivers the complete frames in the first n bytes in flight to `to`. */
static inline int deliver(struct end *from, struct end *to, size_t n, const char **why)
{
    size_t used = 0;
    int rc = 0;

    if (n > from->wire.len)
        n = from->wire.len;
    while (rc == 0 && used < n) {
        struct hy_frame f;
        int64_t k = hy_frame_parse(hy_buf_bytes(&from->wire) + used, n - used, HY_FRAME_MAX, &f, why);

        assert_true(k >= 0);
        if (k == 0)
            break;
        rc = hy_mux_input(to->mux, &f, why);
        used += (size_t)k;
    }
    hy_buf_consume(&from->wire, used);
    return rc;
}

static inline int hello(struct end *from, struct end *to, const char **why)
{
    size_t n = hy_mux_marks(from->mux, NULL);
    struct hy_mark *marks = calloc(n, sizeof *marks);
    int rc;

    assert_non_null(marks);
    assert_int_equal(hy_mux_marks(from->mux, marks), n);
    rc = to ? hy_mux_resume(to->mux, marks, n, why) : 0;
    free(marks);
    return rc;
}

/* A new connection; all data in flight on the old one is lost. */
static inline int reconnect(struct end *a, struct end *b)
{
    const char *why = "";
    int rc;

    hy_buf_clear(&a->wire);
    hy_buf_clear(&b->wire);
    rc = hello(a, b, &why);
    if (rc == 0)
        rc = hello(b, a, &why);
    if (rc == -EPROTO)
        fail_msg("%s", why);
    return rc;
}

/* Runs until neither end has anything to send. */
static inline int settle(struct end *a, struct end *b)
{
    const char *why = "";
    int rc = 0;

    seal_and_release(a->mux);
    seal_and_release(b->mux);
    while (rc == 0 && (hy_mux_need(a->mux) || hy_mux_need(b->mux) || a->wire.len || b->wire.len)) {
        rc = hy_mux_output(a->mux, &a->wire, 65536);
        if (rc >= 0)
            rc = hy_mux_output(b->mux, &b->wire, 65536);
        if (rc >= 0)
            rc = deliver(a, b, SIZE_MAX, &why);
        if (rc >= 0)
            rc = deliver(b, a, SIZE_MAX, &why);
        if (rc == -EPROTO)
            fail_msg("%s", why);
    }
    return rc;
}

static inline void assert_same(const struct end *from, const struct end *to)
{
    assert_int_equal(from->messages_sent, to->messages_got);
    for (int i = 1; i <= STREAMS; i++)
        assert_int_equal(from->data_sent[i], to->data_got[i]);
}

#endif
