/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mux with arbitrary frames from its peer, while its owner continues to use it. The input is a list of steps: one
 * byte selects the step, the next ones are its arguments. No step may crash it or exceed its memory limits.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "faults.h"
#include "wire/frame.h"
#include "wire/recv_streams.h"
#include "wire/mux.h"

#define STREAMS 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct owner {
    struct hy_mux *mux;
    struct hy_buf out;
    size_t owed[STREAMS];
    const uint8_t *in;
    size_t left;
    int broken;
    int has_many; /* many streams were forgotten: once is enough */
};

static uint64_t take(struct owner *o, int n)
{
    uint64_t v = 0;

    for (; n > 0 && o->left; n--, o->in++, o->left--)
        v = v << 8 | *o->in;
    return v;
}

static int on_message(void *arg, const uint8_t *bytes, size_t n)
{
    struct owner *o = arg;
    uint8_t *at;

    if (n && bytes[0] == 'x') /* an unreadable message */
        return -1;
    if (n && bytes[0] == 'e' && hy_mux_message(o->mux, n, &at) == 0)
        memcpy(at, bytes, n);
    return 0;
}

static void on_data(void *arg, uint32_t stream, const uint8_t *bytes, size_t n)
{
    struct owner *o = arg;

    if (stream >= STREAMS || bytes[0] == 'f')
        hy_mux_forget(o->mux, stream);
    else
        o->owed[stream] += n;
}

static void on_room(void *arg, uint32_t stream)
{
    struct owner *o = arg;

    if (hy_mux_room(o->mux, stream) > HY_STREAM_WINDOW)
        abort();
}

static void queue(struct owner *o)
{
    size_t n = (size_t)take(o, 2);
    uint8_t *at;

    if (hy_mux_message(o->mux, n, &at) == 0)
        memset(at, 'm', n);
}

static void write_some(struct owner *o)
{
    static uint8_t bytes[65536];
    uint32_t stream = 1 + (uint32_t)take(o, 1) % STREAMS;
    size_t n = (size_t)take(o, 2), room = hy_mux_room(o->mux, stream);

    hy_mux_write(o->mux, stream, bytes, n < room ? n : room);
}

static void say_frame(struct owner *o)
{
    static const uint8_t types[] = {HY_FRAME_DATA, HY_FRAME_CREDIT, HY_FRAME_DATA, HY_FRAME_PING};
    uint64_t head = take(o, 1);
    struct hy_frame f = {.type = types[head & 3], .stream = (uint32_t)take(o, head & 4 ? 4 : 1)};
    const char *why;

    f.offset = take(o, head & 8 ? 8 : 2);
    f.limit = take(o, head & 16 ? 8 : 2);
    if (f.type == HY_FRAME_DATA) {
        f.offset &= UINT64_MAX / 2;
        f.n = (size_t)take(o, 1);
        f.n = f.n < o->left ? f.n : o->left;
        f.bytes = o->in;
        o->in += f.n;
        o->left -= f.n;
        if (f.n == 0)
            return;
    }
    if (hy_mux_input(o->mux, &f, &why) < 0)
        o->broken = 1;
}

/* More streams, with every other number, than it can remember individually. */
static void forget_many(struct owner *o)
{
    const uint32_t count = (1u << take(o, 1) % 17) + 20;

    for (uint32_t i = 0; i < count && !o->has_many; i++)
        hy_mux_forget(o->mux, 1000 + 2 * i);
    o->has_many = 1;
}

static void send_hello(struct owner *o)
{
    struct hy_mark theirs[8], ours[HY_RECV_STREAMS_MAX + 1];
    size_t n = (size_t)take(o, 1) % 8;
    const char *why;

    if (hy_mux_marks(o->mux, NULL) > HY_RECV_STREAMS_MAX + 1)
        abort();
    hy_mux_marks(o->mux, ours);
    for (size_t i = 0; i < n; i++) {
        theirs[i].stream = (uint32_t)take(o, 1);
        theirs[i].offset = take(o, 2);
        theirs[i].limit = take(o, 2);
    }
    o->broken = hy_mux_resume(o->mux, theirs, n, &why) < 0;
}

static void step(struct owner *o)
{
    uint64_t what = take(o, 1);
    uint32_t stream = (uint32_t)(what >> 4);

    switch (o->broken ? 7 : what & 15) {
    case 0:
        queue(o);
        break;
    case 1:
        write_some(o);
        break;
    case 2:
        hy_mux_seal(o->mux);
        hy_mux_release(o->mux);
        break;
    case 3:
        hy_buf_clear(&o->out);
        if (hy_mux_need(o->mux) == HY_MUX_NOTHING) {
            hy_mux_output(o->mux, &o->out, 20000);
            if (o->out.len)
                abort();
        }
        hy_mux_output(o->mux, &o->out, 20000);
        break;
    case 4:
        hy_mux_consumed(o->mux, stream, o->owed[stream]);
        o->owed[stream] = 0;
        break;
    case 5:
        hy_mux_forget(o->mux, stream);
        o->owed[stream] = 0;
        break;
    case 7:
        send_hello(o);
        break;
    case 8:
        if (stream == 15) /* rarely: it is slow */
            forget_many(o);
        else
            say_frame(o);
        break;
    default:
        say_frame(o);
    }
}

static void run(const uint8_t *data, size_t size)
{
    static const struct hy_mux_events events = {on_message, on_data, on_room};
    struct owner o = {.in = data, .left = size};

    hy_buf_init(&o.out, SIZE_MAX);
    o.mux = hy_mux_new(&events, &o);
    while (o.mux && o.left) {
        step(&o);
        if (hy_mux_unacked_all(o.mux) > HY_CONTROL_QUEUE + (STREAMS + 1) * HY_STREAM_WINDOW)
            abort();
        for (uint32_t s = 1; s <= STREAMS; s++)
            if (hy_mux_unacked(o.mux, s) > HY_STREAM_WINDOW)
                abort();
    }
    hy_mux_free(o.mux);
    hy_buf_done(&o.out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_run_with_faults(data, size, run);
    return 0;
}
