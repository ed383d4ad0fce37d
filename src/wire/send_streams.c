/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/send_streams.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "wire/faults.h"
#include "wire/frame.h"
#include "wire/mux.h"

#define CHUNK (16u * 1024) /* bytes of one stream before the next one is served */

static uint64_t end_of(const struct hy_send_stream *s)
{
    return s->acked + s->bytes.len;
}

static void stream_init(struct hy_send_stream *s, uint32_t id)
{
    *s = (struct hy_send_stream){.id = id, .limit = id ? HY_STREAM_WINDOW : UINT64_MAX};
    hy_buf_init(&s->bytes, id ? HY_STREAM_WINDOW : HY_CONTROL_QUEUE);
    hy_list_init(&s->ready);
    hy_list_init(&s->dirty);
    hy_list_init(&s->writable);
}

static void stream_free(struct hy_send_streams *o, struct hy_send_stream *s)
{
    o->unacked -= s->bytes.len;
    hy_list_remove(&s->ready);
    hy_list_remove(&s->dirty);
    hy_list_remove(&s->writable);
    hy_buf_done(&s->bytes);
    if (s != &o->control)
        free(s);
}

void hy_send_streams_init(struct hy_send_streams *o)
{
    *o = (struct hy_send_streams){0};
    stream_init(&o->control, HY_STREAM_CONTROL);
    hy_list_init(&o->ready);
    hy_list_init(&o->dirty);
    hy_list_init(&o->writable);
}

void hy_send_streams_done(struct hy_send_streams *o)
{
    struct hy_send_stream *s;

    for (size_t i = 0; (s = hy_map_next(&o->data, &i));)
        stream_free(o, s);
    stream_free(o, &o->control);
    hy_map_done(&o->data);
    hy_idset_done(&o->forgotten);
}

static struct hy_send_stream *find(const struct hy_send_streams *o, uint32_t id)
{
    return id == HY_STREAM_CONTROL ? (struct hy_send_stream *)&o->control : hy_map_get(&o->data, id);
}

static struct hy_send_stream *find_or_add(struct hy_send_streams *o, uint32_t id)
{
    struct hy_send_stream *s = find(o, id);

    if (s)
        return s;
    s = hy_malloc(sizeof *s);
    if (!s)
        return NULL;
    stream_init(s, id);
    if (hy_map_put(&o->data, id, s) < 0) {
        free(s);
        return NULL;
    }
    return s;
}

static void mark_queued(struct hy_send_streams *o, struct hy_send_stream *s, size_t n)
{
    hy_buf_added(&s->bytes, n);
    o->unacked += n;
    if (hy_list_empty(&s->dirty))
        hy_list_push(&o->dirty, &s->dirty);
}

int hy_send_streams_message(struct hy_send_streams *o, size_t n, uint8_t **ret_at)
{
    struct hy_send_stream *s = &o->control;
    uint8_t *at;

    if (n > HY_CONTROL_MAX || n + 4 > s->bytes.max - s->bytes.len)
        return -ENOBUFS;
    at = hy_buf_reserve(&s->bytes, n + 4);
    if (!at)
        return -ENOMEM;
    hy_put_le(at, n, 4);
    mark_queued(o, s, n + 4);
    *ret_at = at + 4;
    return 0;
}

static size_t room_of(const struct hy_send_stream *s)
{
    return s->is_forgotten ? HY_STREAM_WINDOW : (size_t)(s->limit - end_of(s));
}

size_t hy_send_streams_room(const struct hy_send_streams *o, uint32_t id)
{
    const struct hy_send_stream *s = find(o, id);

    assert(id != HY_STREAM_CONTROL);
    return s ? room_of(s) : HY_STREAM_WINDOW;
}

int hy_send_streams_write(struct hy_send_streams *o, uint32_t id, const uint8_t *bytes, size_t n)
{
    struct hy_send_stream *s;
    uint8_t *at;

    if (n > hy_send_streams_room(o, id))
        return -ENOBUFS;
    if (n == 0 || hy_idset_has(&o->forgotten, id))
        return 0;
    s = find_or_add(o, id);
    if (!s)
        return -ENOMEM;
    if (s->is_forgotten)
        return 0;
    at = hy_buf_reserve(&s->bytes, n);
    if (!at)
        return -ENOMEM;
    memcpy(at, bytes, n);
    mark_queued(o, s, n);
    return 0;
}

bool hy_send_streams_is_forgotten(const struct hy_send_streams *o, uint32_t id)
{
    const struct hy_send_stream *s = find(o, id);

    return s ? s->is_forgotten : hy_idset_has(&o->forgotten, id);
}

size_t hy_send_streams_unacked(const struct hy_send_streams *o, uint32_t id)
{
    const struct hy_send_stream *s = find(o, id);

    return s ? s->bytes.len : 0;
}

void hy_send_streams_forget(struct hy_send_streams *o, uint32_t id)
{
    struct hy_send_stream *s = id == HY_STREAM_CONTROL ? NULL : hy_map_remove(&o->data, id);

    if (s)
        stream_free(o, s);
}

static void make_ready(struct hy_send_streams *o, struct hy_send_stream *s)
{
    if (s->id != HY_STREAM_CONTROL && s->sent < s->released && hy_list_empty(&s->ready))
        hy_list_push(&o->ready, &s->ready);
}

void hy_send_streams_seal(struct hy_send_streams *o)
{
    hy_list_each(l, &o->dirty) {
        struct hy_send_stream *s = hy_container(l, struct hy_send_stream, dirty);

        s->sealed = end_of(s);
    }
}

void hy_send_streams_release(struct hy_send_streams *o)
{
    hy_list_each(l, &o->dirty) {
        struct hy_send_stream *s = hy_container(l, struct hy_send_stream, dirty);

        s->released = s->sealed;
        if (s->released == end_of(s))
            hy_list_remove(l);
        make_ready(o, s);
    }
}

void hy_send_streams_discard(struct hy_send_streams *o)
{
    hy_list_each(l, &o->dirty) {
        struct hy_send_stream *s = hy_container(l, struct hy_send_stream, dirty);
        size_t kept = (size_t)(s->released - s->acked);

        hy_list_remove(l);
        o->unacked -= s->bytes.len - kept;
        hy_buf_cut(&s->bytes, kept);
        s->sealed = s->released;
    }
}

bool hy_send_streams_ready(const struct hy_send_streams *o)
{
    return o->control.sent < o->control.released || !hy_list_empty(&o->ready);
}

int hy_send_streams_emit(struct hy_send_streams *o, struct hy_buf *out)
{
    struct hy_send_stream *s = &o->control;
    struct hy_frame f = {.type = HY_FRAME_DATA};
    int rc;

    if (s->sent == s->released) {
        if (hy_list_empty(&o->ready))
            return 0;
        s = hy_container(o->ready.next, struct hy_send_stream, ready);
    }
    f.stream = s->id;
    f.offset = s->sent;
    f.bytes = hy_buf_bytes(&s->bytes) + (s->sent - s->acked);
    f.n = s->released - s->sent < CHUNK ? (size_t)(s->released - s->sent) : CHUNK;
    rc = hy_fault_frame_lost() ? -ECONNRESET : hy_frame_append(out, &f);
    if (rc < 0)
        return rc;
    s->sent += f.n;
    if (s->highest < s->sent)
        s->highest = s->sent;
    hy_list_remove(&s->ready); /* make_ready appends it again if there is more */
    make_ready(o, s);
    return 1;
}

/* The peer has forgotten the stream: discards its data, now and later. */
static void mark_forgotten(struct hy_send_streams *o, struct hy_send_stream *s)
{
    o->unacked -= s->bytes.len;
    hy_buf_done(&s->bytes);
    s->is_forgotten = true;
    s->acked = s->sent = s->released = s->sealed = 0;
    hy_list_remove(&s->ready);
    hy_list_remove(&s->dirty);
    if (hy_list_empty(&s->writable))
        hy_list_push(&o->writable, &s->writable);
}

static void advance(struct hy_send_streams *o, struct hy_send_stream *s, uint64_t offset, uint64_t limit)
{
    size_t before = room_of(s), n = (size_t)(offset - s->acked);

    hy_buf_consume(&s->bytes, n);
    o->unacked -= n;
    s->acked = offset;
    if (s->sent < offset)
        s->sent = offset;
    if (s->sent == s->released)
        hy_list_remove(&s->ready);
    if (s->bytes.len == 0 && s->bytes.cap > CHUNK)
        hy_buf_shrink(&s->bytes);
    if (s->id == HY_STREAM_CONTROL)
        return;
    /* Whatever the peer allows, at most one window is buffered. */
    if (limit > offset + HY_STREAM_WINDOW)
        limit = offset + HY_STREAM_WINDOW;
    if (limit <= s->limit)
        return;
    s->limit = limit;
    if (before < HY_STREAM_WINDOW / 4 && hy_list_empty(&s->writable))
        hy_list_push(&o->writable, &s->writable);
}

int hy_send_streams_credit(struct hy_send_streams *o, uint32_t id, uint64_t offset, uint64_t limit,
                           const char **ret_why)
{
    struct hy_send_stream *s = find(o, id);

    if (!s || s->is_forgotten)
        return 0;
    if (offset == UINT64_MAX && id != HY_STREAM_CONTROL) {
        mark_forgotten(o, s);
        return 0;
    }
    if (offset > s->highest) {
        *ret_why = "acknowledgement of bytes that were not sent";
        return -EPROTO;
    }
    if (offset >= s->acked)
        advance(o, s, offset, limit);
    return 0;
}

void hy_send_streams_resume_begin(struct hy_send_streams *o)
{
    o->round++;
}

int hy_send_streams_resume(struct hy_send_streams *o, uint32_t id, uint64_t offset, uint64_t limit,
                           const char **ret_why)
{
    struct hy_send_stream *s = find(o, id);

    if (!s || s->is_forgotten)
        return 0;
    if (offset < s->acked || offset > s->highest) {
        *ret_why = offset < s->acked ? "mark below an earlier acknowledgement" : "mark beyond the bytes that were sent";
        return -EPROTO;
    }
    advance(o, s, offset, limit);
    s->sent = offset;
    s->round = o->round;
    make_ready(o, s);
    return 0;
}

/*
 * The peer has either received nothing of a stream that it did not list, and
 * everything is sent again, or forgotten it. If something was acknowledged, it
 * has forgotten it.
 */
void hy_send_streams_resume_end(struct hy_send_streams *o)
{
    struct hy_send_stream *s;

    for (size_t i = 0; (s = hy_map_next(&o->data, &i));) {
        if (s->round == o->round || s->is_forgotten)
            continue;
        if (s->acked > 0) {
            mark_forgotten(o, s);
            continue;
        }
        s->sent = 0;
        make_ready(o, s);
    }
    if (o->control.round != o->round)
        o->control.sent = o->control.acked;
}

int hy_send_streams_take_writable(struct hy_send_streams *o, uint32_t *ret_id)
{
    struct hy_send_stream *s;

    if (hy_list_empty(&o->writable))
        return 0;
    s = hy_container(o->writable.next, struct hy_send_stream, writable);
    hy_list_remove(&s->writable);
    *ret_id = s->id;
    /* The owner may never forget it; then only its number is kept. */
    if (s->is_forgotten && hy_idset_add(&o->forgotten, s->id) == 0) {
        hy_map_remove(&o->data, s->id);
        stream_free(o, s);
    }
    return 1;
}
