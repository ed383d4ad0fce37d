/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/recv_streams.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text.h"
#include "wire/faults.h"
#include "wire/frame.h"
#include "wire/mux.h"

/* Control bytes that are acknowledged at once; fewer are acknowledged with other frames, or after a delay. */
#define CONTROL_ACK_BYTES (64u * 1024)

void hy_recv_streams_init(struct hy_recv_streams *in)
{
    *in = (struct hy_recv_streams){.control = {.advertised_limit = UINT64_MAX}};
    hy_list_init(&in->control.credit_due);
    hy_list_init(&in->credit_due);
    hy_buf_init(&in->message, HY_CONTROL_MAX + 4 + HY_FRAME_MAX);
}

void hy_recv_streams_done(struct hy_recv_streams *in)
{
    struct hy_recv_stream *s;

    for (size_t i = 0; (s = hy_map_next(&in->data, &i));)
        free(s);
    hy_map_done(&in->data);
    hy_buf_done(&in->message);
    hy_idset_done(&in->used);
}

/* If a peer leaves too many gaps, the numbers in the oldest gap count as used. */
static int mark_used(struct hy_recv_streams *in, uint32_t id)
{
    int rc = hy_idset_add(&in->used, id);

    if (rc != -ENOSPC)
        return rc;
    hy_idset_close_gap(&in->used);
    return hy_idset_add(&in->used, id);
}

static void queue_credit(struct hy_recv_streams *in, struct hy_recv_stream *s, bool urgent)
{
    if (hy_list_empty(&s->credit_due))
        hy_list_push(&in->credit_due, &s->credit_due);
    in->urgent |= urgent;
}

static struct hy_recv_stream *add(struct hy_recv_streams *in, uint32_t id)
{
    struct hy_recv_stream *s = hy_malloc(sizeof *s);

    if (!s)
        return NULL;
    *s = (struct hy_recv_stream){.id = id, .advertised_limit = HY_STREAM_WINDOW};
    hy_list_init(&s->credit_due);
    if (hy_map_put(&in->data, id, s) < 0) {
        free(s);
        return NULL;
    }
    return s;
}

/* The first frame of a stream, or a late frame of a finished one: then the sender
 * is notified, since it may be waiting for credit. */
static int open_stream(struct hy_recv_streams *in, const struct hy_frame *f, struct hy_recv_stream **ret,
                       const char **ret_why)
{
    bool late = hy_idset_has(&in->used, f->stream);
    struct hy_recv_stream *s;

    if (!late && f->offset > 0) {
        *ret_why = "the first frame of a stream has a nonzero offset";
        return -EPROTO;
    }
    if (in->data.count >= HY_RECV_STREAMS_MAX) {
        *ret_why = "too many open streams";
        return -EPROTO;
    }
    s = add(in, f->stream);
    if (!s)
        return -ENOMEM;
    if (!late && mark_used(in, f->stream) < 0) {
        hy_map_remove(&in->data, f->stream);
        free(s);
        return -ENOMEM;
    }
    if (late) {
        s->forgotten = true;
        queue_credit(in, s, false);
    }
    *ret = s;
    return 0;
}

static int find_or_open(struct hy_recv_streams *in, const struct hy_frame *f, struct hy_recv_stream **ret,
                        const char **ret_why)
{
    *ret = f->stream == HY_STREAM_CONTROL ? &in->control : hy_map_get(&in->data, f->stream);
    return *ret ? 0 : open_stream(in, f, ret, ret_why);
}

int hy_recv_streams_data(struct hy_recv_streams *in, const struct hy_frame *f, const uint8_t **ret_bytes, size_t *ret_n,
                         const char **ret_why)
{
    struct hy_recv_stream *s;
    uint64_t end = f->offset + f->n; /* the frame parser keeps offsets below 2^63 */
    size_t known;
    int rc = find_or_open(in, f, &s, ret_why);

    if (rc < 0)
        return rc;
    if (s->forgotten || end <= s->received)
        return 0;
    if (f->offset > s->received) {
        *ret_why = "missing bytes in a stream";
        return -EPROTO;
    }
    if (end > s->advertised_limit) {
        *ret_why = "more data than the credit allows";
        return -EPROTO;
    }
    known = (size_t)(s->received - f->offset);
    *ret_bytes = f->bytes + known;
    *ret_n = f->n - known;
    if (s == &in->control) {
        rc = hy_buf_append(&in->message, *ret_bytes, *ret_n);
        if (rc < 0)
            return rc;
    }
    s->received = end;
    queue_credit(in, s, s == &in->control && end - s->advertised_received >= CONTROL_ACK_BYTES);
    return 1;
}

int hy_recv_streams_message(const struct hy_recv_streams *in, const uint8_t **ret_bytes, size_t *ret_n,
                            const char **ret_why)
{
    const uint8_t *b = hy_buf_bytes(&in->message);
    size_t n;

    if (in->message.len < 4)
        return 0;
    n = (size_t)hy_get_le(b, 4);
    if (n > HY_CONTROL_MAX) {
        *ret_why = "control message too long";
        return -EPROTO;
    }
    if (in->message.len - 4 < n)
        return 0;
    *ret_bytes = b + 4;
    *ret_n = n;
    return 1;
}

void hy_recv_streams_drop_message(struct hy_recv_streams *in, size_t n)
{
    hy_buf_consume(&in->message, n + 4);
    if (in->message.len == 0 && in->message.cap > 4096)
        hy_buf_shrink(&in->message);
}

void hy_recv_streams_consumed(struct hy_recv_streams *in, uint32_t id, size_t n)
{
    struct hy_recv_stream *s = id == HY_STREAM_CONTROL ? NULL : hy_map_get(&in->data, id);

    if (!s || s->forgotten)
        return;
    s->consumed += n < s->received - s->consumed ? n : s->received - s->consumed;
    queue_credit(in, s, s->consumed + HY_STREAM_WINDOW - s->advertised_limit >= HY_STREAM_WINDOW / 4);
}

void hy_recv_streams_forget(struct hy_recv_streams *in, uint32_t id)
{
    struct hy_recv_stream *s = id == HY_STREAM_CONTROL ? NULL : hy_map_get(&in->data, id);

    if (id == HY_STREAM_CONTROL)
        return;
    if (!s) {
        /* No frame has arrived yet. When out of memory, a late frame opens the stream,
         * and the owner forgets it again. */
        (void)mark_used(in, id);
        return;
    }
    s->forgotten = true;
    queue_credit(in, s, false);
}

/* ---- credit ------------------------------------------------------------------- */

static uint64_t limit_of(const struct hy_recv_stream *s)
{
    return s->id == HY_STREAM_CONTROL ? UINT64_MAX : s->consumed + HY_STREAM_WINDOW;
}

static void credit_sent(struct hy_recv_streams *in, struct hy_recv_stream *s)
{
    hy_list_remove(&s->credit_due);
    if (s->forgotten) {
        hy_map_remove(&in->data, s->id);
        free(s);
        return;
    }
    s->advertised_received = s->received;
    s->advertised_limit = limit_of(s);
}

int hy_recv_streams_emit(struct hy_recv_streams *in, struct hy_buf *out)
{
    hy_list_each(l, &in->credit_due) {
        struct hy_recv_stream *s = hy_container(l, struct hy_recv_stream, credit_due);
        struct hy_frame f = {.type = HY_FRAME_CREDIT, .stream = s->id, .offset = s->received};
        int rc;

        f.limit = limit_of(s);
        if (s->forgotten)
            f.offset = f.limit = UINT64_MAX;
        rc = hy_fault_frame_lost() ? -ECONNRESET : hy_frame_append(out, &f);
        if (rc < 0)
            return rc;
        credit_sent(in, s);
    }
    in->urgent = false;
    return 0;
}

size_t hy_recv_streams_marks(struct hy_recv_streams *in, struct hy_mark *marks)
{
    struct hy_recv_stream *s = &in->control;
    size_t n = 0;

    for (size_t i = 0; s; s = hy_map_next(&in->data, &i)) {
        if (s->forgotten)
            continue;
        if (marks) {
            marks[n] = (struct hy_mark){s->id, s->received, limit_of(s)};
            credit_sent(in, s);
        }
        n++;
    }
    return n;
}
