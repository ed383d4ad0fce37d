/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/mux.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "wire/frame.h"
#include "wire/recv_streams.h"
#include "wire/send_streams.h"

struct hy_mux {
    const struct hy_mux_events *events;
    void *arg;
    struct hy_send_streams out;
    struct hy_recv_streams in;
};

struct hy_mux *hy_mux_new(const struct hy_mux_events *events, void *arg)
{
    struct hy_mux *m = hy_malloc(sizeof *m);

    if (!m)
        return NULL;
    m->events = events;
    m->arg = arg;
    hy_send_streams_init(&m->out);
    hy_recv_streams_init(&m->in);
    return m;
}

void hy_mux_free(struct hy_mux *m)
{
    if (!m)
        return;
    hy_send_streams_done(&m->out);
    hy_recv_streams_done(&m->in);
    free(m);
}

int hy_mux_message(struct hy_mux *m, size_t n, uint8_t **ret_at)
{
    return hy_send_streams_message(&m->out, n, ret_at);
}

size_t hy_mux_room(const struct hy_mux *m, uint32_t stream)
{
    return hy_send_streams_room(&m->out, stream);
}

int hy_mux_write(struct hy_mux *m, uint32_t stream, const uint8_t *bytes, size_t n)
{
    return hy_send_streams_write(&m->out, stream, bytes, n);
}

bool hy_mux_is_forgotten(const struct hy_mux *m, uint32_t stream)
{
    return hy_send_streams_is_forgotten(&m->out, stream);
}

size_t hy_mux_unacked(const struct hy_mux *m, uint32_t stream)
{
    return hy_send_streams_unacked(&m->out, stream);
}

size_t hy_mux_unacked_all(const struct hy_mux *m)
{
    return m->out.unacked;
}

size_t hy_mux_streams(const struct hy_mux *m)
{
    return m->out.data.count + m->in.data.count;
}

void hy_mux_consumed(struct hy_mux *m, uint32_t stream, size_t n)
{
    hy_recv_streams_consumed(&m->in, stream, n);
}

void hy_mux_forget(struct hy_mux *m, uint32_t stream)
{
    hy_send_streams_forget(&m->out, stream);
    hy_recv_streams_forget(&m->in, stream);
}

void hy_mux_seal(struct hy_mux *m)
{
    hy_send_streams_seal(&m->out);
}

void hy_mux_release(struct hy_mux *m)
{
    hy_send_streams_release(&m->out);
}

void hy_mux_discard(struct hy_mux *m)
{
    hy_send_streams_discard(&m->out);
}

enum hy_mux_need hy_mux_need(const struct hy_mux *m)
{
    if (m->in.urgent || hy_send_streams_ready(&m->out))
        return HY_MUX_SEND;
    return hy_list_empty(&m->in.credit_due) ? HY_MUX_NOTHING : HY_MUX_ACKS;
}

int hy_mux_output(struct hy_mux *m, struct hy_buf *out, size_t budget)
{
    int rc = hy_recv_streams_emit(&m->in, out);

    if (rc < 0)
        return rc;
    do {
        rc = hy_send_streams_emit(&m->out, out);
    } while (rc > 0 && out->len < budget);
    return rc;
}

static int deliver_messages(struct hy_mux *m, const char **ret_why)
{
    const uint8_t *bytes;
    size_t n;
    int rc;

    while ((rc = hy_recv_streams_message(&m->in, &bytes, &n, ret_why)) > 0) {
        rc = m->events->on_message(m->arg, bytes, n);
        if (rc < 0) {
            *ret_why = rc == -ENOMEM ? "out of memory" : "malformed control message";
            return rc;
        }
        hy_recv_streams_drop_message(&m->in, n);
    }
    return rc;
}

static void notify_room(struct hy_mux *m)
{
    uint32_t id;

    while (hy_send_streams_take_writable(&m->out, &id))
        m->events->on_room(m->arg, id);
}

static int input_data(struct hy_mux *m, const struct hy_frame *f, const char **ret_why)
{
    const uint8_t *bytes;
    size_t n;
    int rc = hy_recv_streams_data(&m->in, f, &bytes, &n, ret_why);

    if (rc == -ENOMEM || rc == -ENOBUFS)
        *ret_why = "out of memory";
    if (rc <= 0)
        return rc;
    if (f->stream == HY_STREAM_CONTROL)
        return deliver_messages(m, ret_why);
    m->events->on_data(m->arg, f->stream, bytes, n);
    return 0;
}

int hy_mux_input(struct hy_mux *m, const struct hy_frame *f, const char **ret_why)
{
    int rc;

    switch (f->type) {
    case HY_FRAME_DATA:
        return input_data(m, f, ret_why);
    case HY_FRAME_CREDIT:
        rc = hy_send_streams_credit(&m->out, f->stream, f->offset, f->limit, ret_why);
        notify_room(m);
        return rc;
    default:
        *ret_why = "unexpected frame type on a session";
        return -EPROTO;
    }
}

size_t hy_mux_marks(struct hy_mux *m, struct hy_mark *marks)
{
    return hy_recv_streams_marks(&m->in, marks);
}

int hy_mux_resume(struct hy_mux *m, const struct hy_mark *marks, size_t n, const char **ret_why)
{
    int rc = 0;

    hy_send_streams_resume_begin(&m->out);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = hy_send_streams_resume(&m->out, marks[i].stream, marks[i].offset, marks[i].limit, ret_why);
    if (rc < 0)
        return rc;
    hy_send_streams_resume_end(&m->out);
    notify_room(m);
    return deliver_messages(m, ret_why); /* those kept when memory ran out */
}
