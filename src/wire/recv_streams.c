/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/recv_streams.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "wire/frame.h"
#include "wire/mux.h"
#include "wire/faults.h"

/* How many control bytes may come in before the sender hears of it on its own;
 * otherwise the news travel with something else, or a little later. */
#define CONTROL_QUIET (64u * 1024)

void hy_incomings_init(struct hy_incomings *in)
{
    *in = (struct hy_incomings){.control = {.told_limit = UINT64_MAX}};
    hy_list_init(&in->control.unsaid);
    hy_list_init(&in->unsaid);
    hy_buf_init(&in->message, HY_CONTROL_MAX + 4 + HY_FRAME_MAX);
}

void hy_incomings_done(struct hy_incomings *in)
{
    struct hy_incoming *s;

    for (size_t i = 0; (s = hy_map_next(&in->data, &i));)
        free(s);
    hy_map_done(&in->data);
    hy_buf_done(&in->message);
    hy_idset_done(&in->used);
}

/* A peer that leaves holes everywhere loses the oldest of them: what is in them
 * counts as used. */
static int mark_used(struct hy_incomings *in, uint32_t id)
{
    int rc = hy_idset_add(&in->used, id);

    if (rc != -ENOSPC)
        return rc;
    hy_idset_close_gap(&in->used);
    return hy_idset_add(&in->used, id);
}

static void say(struct hy_incomings *in, struct hy_incoming *s, bool urgent)
{
    if (hy_list_empty(&s->unsaid))
        hy_list_push(&in->unsaid, &s->unsaid);
    in->urgent |= urgent;
}

static struct hy_incoming *add(struct hy_incomings *in, uint32_t id)
{
    struct hy_incoming *s = hy_malloc(sizeof *s);

    if (!s)
        return NULL;
    *s = (struct hy_incoming){.id = id, .told_limit = HY_STREAM_WINDOW};
    hy_list_init(&s->unsaid);
    if (hy_map_put(&in->data, id, s) < 0) {
        free(s);
        return NULL;
    }
    return s;
}

/* A stream's first frame, or a late one of a stream that is over: then the
 * sender is told so, since it may still be waiting for credit. */
static int open_stream(struct hy_incomings *in, const struct hy_frame *f, struct hy_incoming **ret,
                       const char **ret_why)
{
    bool late = hy_idset_has(&in->used, f->stream);
    struct hy_incoming *s;

    if (!late && f->offset > 0) {
        *ret_why = "a stream that begins in the middle";
        return -EPROTO;
    }
    if (in->data.count >= HY_INCOMING_MAX) {
        *ret_why = "too many streams at a time";
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
        say(in, s, false);
    }
    *ret = s;
    return 0;
}

static int find_or_open(struct hy_incomings *in, const struct hy_frame *f, struct hy_incoming **ret,
                        const char **ret_why)
{
    *ret = f->stream == HY_STREAM_CONTROL ? &in->control : hy_map_get(&in->data, f->stream);
    return *ret ? 0 : open_stream(in, f, ret, ret_why);
}

int hy_incomings_data(struct hy_incomings *in, const struct hy_frame *f, const uint8_t **ret_bytes,
                      size_t *ret_n, const char **ret_why)
{
    struct hy_incoming *s;
    uint64_t end = f->offset + f->n; /* the frame parser keeps offsets below 2^63 */
    size_t known;
    int rc = find_or_open(in, f, &s, ret_why);

    if (rc < 0)
        return rc;
    if (s->forgotten || end <= s->received)
        return 0;
    if (f->offset > s->received) {
        *ret_why = "bytes are missing";
        return -EPROTO;
    }
    if (end > s->told_limit) {
        *ret_why = "more than it may send";
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
    say(in, s, s == &in->control && end - s->told_received >= CONTROL_QUIET);
    return 1;
}

int hy_incomings_message(const struct hy_incomings *in, const uint8_t **ret_bytes, size_t *ret_n,
                         const char **ret_why)
{
    const uint8_t *b = hy_buf_bytes(&in->message);
    size_t n;

    if (in->message.len < 4)
        return 0;
    n = (size_t)b[0] | (size_t)b[1] << 8 | (size_t)b[2] << 16 | (size_t)b[3] << 24;
    if (n > HY_CONTROL_MAX) {
        *ret_why = "a message that is too long";
        return -EPROTO;
    }
    if (in->message.len - 4 < n)
        return 0;
    *ret_bytes = b + 4;
    *ret_n = n;
    return 1;
}

void hy_incomings_drop_message(struct hy_incomings *in, size_t n)
{
    hy_buf_consume(&in->message, n + 4);
    if (in->message.len == 0 && in->message.cap > 4096)
        hy_buf_shrink(&in->message);
}

void hy_incomings_consumed(struct hy_incomings *in, uint32_t id, size_t n)
{
    struct hy_incoming *s = id == HY_STREAM_CONTROL ? NULL : hy_map_get(&in->data, id);

    if (!s || s->forgotten)
        return;
    s->consumed += n < s->received - s->consumed ? n : s->received - s->consumed;
    say(in, s, s->consumed + HY_STREAM_WINDOW - s->told_limit >= HY_STREAM_WINDOW / 4);
}

void hy_incomings_forget(struct hy_incomings *in, uint32_t id)
{
    struct hy_incoming *s = id == HY_STREAM_CONTROL ? NULL : hy_map_get(&in->data, id);

    if (id == HY_STREAM_CONTROL)
        return;
    if (!s) {
        /* Nothing has come of it yet. Without memory a late frame would open it,
         * and the owner, who does not know it, would forget it again. */
        (void)mark_used(in, id);
        return;
    }
    s->forgotten = true;
    say(in, s, false);
}

/* ---- what the sender is told -------------------------------------------------- */

static uint64_t limit_of(const struct hy_incoming *s)
{
    return s->id == HY_STREAM_CONTROL ? UINT64_MAX : s->consumed + HY_STREAM_WINDOW;
}

static void told(struct hy_incomings *in, struct hy_incoming *s)
{
    hy_list_remove(&s->unsaid);
    if (s->forgotten) {
        hy_map_remove(&in->data, s->id);
        free(s);
        return;
    }
    s->told_received = s->received;
    s->told_limit = limit_of(s);
}

int hy_incomings_emit(struct hy_incomings *in, struct hy_buf *out)
{
    hy_list_each(l, &in->unsaid)
    {
        struct hy_incoming *s = hy_container(l, struct hy_incoming, unsaid);
        struct hy_frame f = {.type = HY_FRAME_CREDIT, .stream = s->id, .offset = s->received};
        int rc;

        f.limit = limit_of(s);
        if (s->forgotten)
            f.offset = f.limit = UINT64_MAX;
        rc = hy_frame_lost() ? -ECONNRESET : hy_frame_append(out, &f);
        if (rc < 0)
            return rc;
        told(in, s);
    }
    in->urgent = false;
    return 0;
}

size_t hy_incomings_marks(struct hy_incomings *in, struct hy_mark *marks)
{
    struct hy_incoming *s = &in->control;
    size_t n = 0;

    for (size_t i = 0; s; s = hy_map_next(&in->data, &i)) {
        if (s->forgotten)
            continue;
        if (marks) {
            marks[n] = (struct hy_mark){s->id, s->received, limit_of(s)};
            told(in, s);
        }
        n++;
    }
    return n;
}
