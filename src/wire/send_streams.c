/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/send_streams.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/frame.h"
#include "wire/faults.h"
#include "wire/mux.h"

#define PIECE (16u * 1024) /* how long one stream may speak before the next has its turn */

static uint64_t end_of(const struct hy_outgoing *s)
{
    return s->acked + s->bytes.len;
}

static void stream_init(struct hy_outgoing *s, uint32_t id)
{
    *s = (struct hy_outgoing){.id = id, .limit = id ? HY_STREAM_WINDOW : UINT64_MAX};
    hy_buf_init(&s->bytes, id ? HY_STREAM_WINDOW : HY_CONTROL_QUEUE);
    hy_list_init(&s->ready);
    hy_list_init(&s->dirty);
    hy_list_init(&s->roomy);
}

static void stream_free(struct hy_outgoings *o, struct hy_outgoing *s)
{
    o->unacked -= s->bytes.len;
    hy_list_remove(&s->ready);
    hy_list_remove(&s->dirty);
    hy_list_remove(&s->roomy);
    hy_buf_done(&s->bytes);
    if (s != &o->control)
        free(s);
}

void hy_outgoings_init(struct hy_outgoings *o)
{
    *o = (struct hy_outgoings){0};
    stream_init(&o->control, HY_STREAM_CONTROL);
    hy_list_init(&o->ready);
    hy_list_init(&o->dirty);
    hy_list_init(&o->roomy);
}

void hy_outgoings_done(struct hy_outgoings *o)
{
    struct hy_outgoing *s;

    for (size_t i = 0; (s = hy_map_next(&o->data, &i));)
        stream_free(o, s);
    stream_free(o, &o->control);
    hy_map_done(&o->data);
    hy_idset_done(&o->sunk);
}

static struct hy_outgoing *find(const struct hy_outgoings *o, uint32_t id)
{
    return id == HY_STREAM_CONTROL ? (struct hy_outgoing *)&o->control : hy_map_get(&o->data, id);
}

static struct hy_outgoing *find_or_add(struct hy_outgoings *o, uint32_t id)
{
    struct hy_outgoing *s = find(o, id);

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

static void queued(struct hy_outgoings *o, struct hy_outgoing *s, size_t n)
{
    hy_buf_added(&s->bytes, n);
    o->unacked += n;
    if (hy_list_empty(&s->dirty))
        hy_list_push(&o->dirty, &s->dirty);
}

int hy_outgoings_message(struct hy_outgoings *o, size_t n, uint8_t **ret_at)
{
    struct hy_outgoing *s = &o->control;
    uint8_t *at;

    if (n > HY_CONTROL_MAX || n + 4 > s->bytes.max - s->bytes.len)
        return -ENOBUFS;
    at = hy_buf_reserve(&s->bytes, n + 4);
    if (!at)
        return -ENOMEM;
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(n >> (8 * i));
    queued(o, s, n + 4);
    *ret_at = at + 4;
    return 0;
}

static size_t room_of(const struct hy_outgoing *s)
{
    return s->sunk ? HY_STREAM_WINDOW : (size_t)(s->limit - end_of(s));
}

size_t hy_outgoings_room(const struct hy_outgoings *o, uint32_t id)
{
    const struct hy_outgoing *s = find(o, id);

    assert(id != HY_STREAM_CONTROL);
    return s ? room_of(s) : HY_STREAM_WINDOW;
}

int hy_outgoings_write(struct hy_outgoings *o, uint32_t id, const uint8_t *bytes, size_t n)
{
    struct hy_outgoing *s;
    uint8_t *at;

    if (n > hy_outgoings_room(o, id))
        return -ENOBUFS;
    if (n == 0 || hy_idset_has(&o->sunk, id))
        return 0;
    s = find_or_add(o, id);
    if (!s)
        return -ENOMEM;
    if (s->sunk)
        return 0;
    at = hy_buf_reserve(&s->bytes, n);
    if (!at)
        return -ENOMEM;
    memcpy(at, bytes, n);
    queued(o, s, n);
    return 0;
}

bool hy_outgoings_is_forgotten(const struct hy_outgoings *o, uint32_t id)
{
    const struct hy_outgoing *s = find(o, id);

    return s ? s->sunk : hy_idset_has(&o->sunk, id);
}

size_t hy_outgoings_unacked(const struct hy_outgoings *o, uint32_t id)
{
    const struct hy_outgoing *s = find(o, id);

    return s ? s->bytes.len : 0;
}

void hy_outgoings_forget(struct hy_outgoings *o, uint32_t id)
{
    struct hy_outgoing *s = id == HY_STREAM_CONTROL ? NULL : hy_map_remove(&o->data, id);

    if (s)
        stream_free(o, s);
}

static void make_ready(struct hy_outgoings *o, struct hy_outgoing *s)
{
    if (s->id != HY_STREAM_CONTROL && s->sent < s->released && hy_list_empty(&s->ready))
        hy_list_push(&o->ready, &s->ready);
}

void hy_outgoings_seal(struct hy_outgoings *o)
{
    hy_list_each(l, &o->dirty)
    {
        struct hy_outgoing *s = hy_container(l, struct hy_outgoing, dirty);

        s->sealed = end_of(s);
    }
}

void hy_outgoings_release(struct hy_outgoings *o)
{
    hy_list_each(l, &o->dirty)
    {
        struct hy_outgoing *s = hy_container(l, struct hy_outgoing, dirty);

        s->released = s->sealed;
        if (s->released == end_of(s))
            hy_list_remove(l);
        make_ready(o, s);
    }
}

void hy_outgoings_discard(struct hy_outgoings *o)
{
    hy_list_each(l, &o->dirty)
    {
        struct hy_outgoing *s = hy_container(l, struct hy_outgoing, dirty);
        size_t kept = (size_t)(s->released - s->acked);

        hy_list_remove(l);
        o->unacked -= s->bytes.len - kept;
        hy_buf_cut(&s->bytes, kept);
        s->sealed = s->released;
    }
}

bool hy_outgoings_ready(const struct hy_outgoings *o)
{
    return o->control.sent < o->control.released || !hy_list_empty(&o->ready);
}

int hy_outgoings_emit(struct hy_outgoings *o, struct hy_buf *out)
{
    struct hy_outgoing *s = &o->control;
    struct hy_frame f = {.type = HY_FRAME_DATA};
    int rc;

    if (s->sent == s->released) {
        if (hy_list_empty(&o->ready))
            return 0;
        s = hy_container(o->ready.next, struct hy_outgoing, ready);
    }
    f.stream = s->id;
    f.offset = s->sent;
    f.bytes = hy_buf_bytes(&s->bytes) + (s->sent - s->acked);
    f.n = s->released - s->sent < PIECE ? (size_t)(s->released - s->sent) : PIECE;
    rc = hy_frame_lost() ? -ECONNRESET : hy_frame_append(out, &f);
    if (rc < 0)
        return rc;
    s->sent += f.n;
    if (s->highest < s->sent)
        s->highest = s->sent;
    hy_list_remove(&s->ready); /* to the end of the queue, if there is more */
    make_ready(o, s);
    return 1;
}

/* The other end has forgotten the stream: writing goes on, into nothing. */
static void sink(struct hy_outgoings *o, struct hy_outgoing *s)
{
    o->unacked -= s->bytes.len;
    hy_buf_done(&s->bytes);
    s->sunk = true;
    s->acked = s->sent = s->released = s->sealed = 0;
    hy_list_remove(&s->ready);
    hy_list_remove(&s->dirty);
    if (hy_list_empty(&s->roomy))
        hy_list_push(&o->roomy, &s->roomy);
}

static void advance(struct hy_outgoings *o, struct hy_outgoing *s, uint64_t offset, uint64_t limit)
{
    size_t before = room_of(s), n = (size_t)(offset - s->acked);

    hy_buf_consume(&s->bytes, n);
    o->unacked -= n;
    s->acked = offset;
    if (s->sent < offset)
        s->sent = offset;
    if (s->sent == s->released)
        hy_list_remove(&s->ready);
    if (s->bytes.len == 0 && s->bytes.cap > PIECE)
        hy_buf_shrink(&s->bytes);
    if (s->id == HY_STREAM_CONTROL)
        return;
    /* However generous the other end is, no more than a window is kept here. */
    if (limit > offset + HY_STREAM_WINDOW)
        limit = offset + HY_STREAM_WINDOW;
    if (limit <= s->limit)
        return;
    s->limit = limit;
    if (before < HY_STREAM_WINDOW / 4 && hy_list_empty(&s->roomy))
        hy_list_push(&o->roomy, &s->roomy);
}

int hy_outgoings_credit(struct hy_outgoings *o, uint32_t id, uint64_t offset, uint64_t limit,
                        const char **ret_why)
{
    struct hy_outgoing *s = find(o, id);

    if (!s || s->sunk)
        return 0;
    if (offset == UINT64_MAX && id != HY_STREAM_CONTROL) {
        sink(o, s);
        return 0;
    }
    if (offset > s->highest) {
        *ret_why = "it acknowledges what was not sent";
        return -EPROTO;
    }
    if (offset >= s->acked)
        advance(o, s, offset, limit);
    return 0;
}

void hy_outgoings_resume_begin(struct hy_outgoings *o)
{
    o->round++;
}

int hy_outgoings_resume(struct hy_outgoings *o, uint32_t id, uint64_t offset, uint64_t limit,
                        const char **ret_why)
{
    struct hy_outgoing *s = find(o, id);

    if (!s || s->sunk)
        return 0;
    if (offset < s->acked || offset > s->highest) {
        *ret_why = offset < s->acked ? "it has lost what it had acknowledged" : "it has what was not sent";
        return -EPROTO;
    }
    advance(o, s, offset, limit);
    s->sent = offset;
    s->round = o->round;
    make_ready(o, s);
    return 0;
}

/*
 * A stream that the other end did not name: it has either seen nothing of it,
 * and gets everything, or forgotten it. Once something was acknowledged it can
 * only be the latter.
 */
void hy_outgoings_resume_end(struct hy_outgoings *o)
{
    struct hy_outgoing *s;

    for (size_t i = 0; (s = hy_map_next(&o->data, &i));) {
        if (s->round == o->round || s->sunk)
            continue;
        if (s->acked > 0) {
            sink(o, s);
            continue;
        }
        s->sent = 0;
        make_ready(o, s);
    }
    if (o->control.round != o->round)
        o->control.sent = o->control.acked;
}

int hy_outgoings_take_roomy(struct hy_outgoings *o, uint32_t *ret_id)
{
    struct hy_outgoing *s;

    if (hy_list_empty(&o->roomy))
        return 0;
    s = hy_container(o->roomy.next, struct hy_outgoing, roomy);
    hy_list_remove(&s->roomy);
    *ret_id = s->id;
    /* Its owner may never forget it; then a number is all that stays. */
    if (s->sunk && hy_idset_add(&o->sunk, s->id) == 0) {
        hy_map_remove(&o->data, s->id);
        stream_free(o, s);
    }
    return 1;
}
