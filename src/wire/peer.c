/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer: the other end of a session. The session is the state of its mux; the
 * links that carry it are replaced as connections break.
 */
#include "wire/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/message.h"

/* ---- events of the mux ------------------------------------------------------------------- */

static int on_message(void *arg, const uint8_t *bytes, size_t n)
{
    struct hy_peer *p = arg;
    struct hy_net *net = p->net;
    ProtobufCMessage *m;
    int rc;

    if (p->closed)
        return 0;
    rc = hy_message_unpack(&hy__control__descriptor, bytes, n, &m);
    if (rc < 0)
        return rc;
    net->events.on_message(net->arg, p, (const Hy__Control *)m);
    protobuf_c_message_free_unpacked(m, NULL);
    return 0;
}

static void on_data(void *arg, uint32_t stream, const uint8_t *bytes, size_t n)
{
    struct hy_peer *p = arg;

    if (!p->closed)
        p->net->events.on_data(p->net->arg, p, stream, bytes, n);
}

static void on_room(void *arg, uint32_t stream)
{
    struct hy_peer *p = arg;

    if (!p->closed)
        p->net->events.on_room(p->net->arg, p, stream);
}

static const struct hy_mux_events mux_events = {on_message, on_data, on_room};

/* ---- creating and ending ------------------------------------------------------------------ */

int hy_peer_new(struct hy_net *net, const char *identity, const char *address, struct hy_peer **ret)
{
    struct hy_peer *p = hy_calloc(1, sizeof *p);

    if (!p)
        return -ENOMEM;
    hy_list_init(&p->all);
    hy_list_init(&p->dirty);
    hy_list_init(&p->queued);
    hy_list_init(&p->sealed);
    p->net = net;
    p->identity = hy_strdup(identity);
    p->address = hy_strdup(address);
    p->mux = hy_mux_new(&mux_events, p);
    p->last_received = p->last_sent = p->last_pinged = hy_net_now(net);
    p->ack_at = p->linger_at = HY_NEVER;
    if (!p->identity || !p->address || !p->mux) {
        hy_peer_free(p);
        return -ENOMEM;
    }
    hy_list_push(&net->peers, &p->all);
    *ret = p;
    return 0;
}

void hy_peer_free(struct hy_peer *p)
{
    hy_list_remove(&p->all);
    hy_list_remove(&p->dirty);
    hy_list_remove(&p->queued);
    hy_list_remove(&p->sealed);
    hy_dial_free(p->dial);
    hy_mux_free(p->mux);
    free(p->identity);
    free(p->address);
    free(p);
}

void hy_peer_finish(struct hy_peer *p)
{
    if (p->finished)
        return;
    p->closed = p->finished = true;
    p->net->has_finished = true;
    hy_list_remove(&p->dirty);
    hy_list_remove(&p->queued);
    hy_list_remove(&p->sealed);
    if (p->link) {
        hy_link_shutdown(p->link);
        if (p->link)
            hy_link_cut(p->link, NULL);
    }
}

void hy_peer_give_up(struct hy_peer *p, const char *why)
{
    if (!p->closed) {
        p->closed = true; /* no event follows on_gone */
        p->net->events.on_gone(p->net->arg, p, why);
    }
    hy_peer_finish(p);
}

/* The peer has proven its key, so the error is its own: it would repeat it on a new connection, as fast as it can.
 * So the session ends. */
void hy_peer_protocol_error(struct hy_peer *p, const char *why)
{
    p->violated = true;
    if (p->link)
        hy_link_cut(p->link, why); /* logs it */
    hy_peer_give_up(p, why);
}

/* The dialing end dials again, the listening end waits. */
void hy_peer_link_lost(struct hy_peer *p, struct hy_link *l, const char *why)
{
    bool was_stable = l->state == HY_LINK_UP && hy_net_now(p->net) - l->up_at >= HY_REDIAL_MAX_MS;

    p->ack_at = HY_NEVER;
    if (p->finished)
        return;
    if (p->closed && l->clean)
        hy_peer_finish(p); /* the peer has closed too: nothing receives the rest */
    else if (p->dial)
        hy_dial_retry(p, was_stable, why ? why : "");
}

/* ---- frames, flushing, time --------------------------------------------------------------------- */

static void make_dirty(struct hy_peer *p)
{
    if (hy_list_empty(&p->dirty) && !p->finished)
        hy_list_push(&p->net->dirty, &p->dirty);
}

/* Sends what the mux needs to send, or starts the timer for a delayed acknowledgement. */
static void schedule(struct hy_peer *p)
{
    int64_t now = hy_net_now(p->net);

    switch (hy_mux_need(p->mux)) {
    case HY_MUX_SEND:
        make_dirty(p);
        break;
    case HY_MUX_ACKS:
        if (p->ack_at == HY_NEVER && p->link) {
            p->ack_at = now + HY_ACK_MS;
            hy_net_wake(p->net, p->ack_at);
        }
        break;
    case HY_MUX_NOTHING:
        break;
    }
}

static void finish_if_done(struct hy_peer *p)
{
    if (p->closed && hy_mux_unacked_all(p->mux) == 0)
        hy_peer_finish(p);
}

void hy_peer_receive(struct hy_peer *p, const struct hy_frame *f)
{
    struct hy_link *l = p->link;
    const char *why = "";
    int rc = 0;

    switch (f->type) {
    case HY_FRAME_PING:
        l->pong_due = true;
        make_dirty(p);
        break;
    case HY_FRAME_PONG:
        break;
    default:
        rc = hy_mux_input(p->mux, f, &why);
    }
    if (rc == -EPROTO && !p->dial) {
        hy_peer_protocol_error(p, why);
        return;
    }
    if (rc < 0) {
        hy_link_cut(l, why);
        return;
    }
    p->last_received = hy_net_now(p->net);
    p->suspect = false;
    schedule(p);
    finish_if_done(p);
}

static void mark_queued(struct hy_peer *p)
{
    if (hy_list_empty(&p->queued) && !p->finished)
        hy_list_push(&p->net->queued, &p->queued);
}

void hy_peer_release(struct hy_peer *p)
{
    hy_list_remove(&p->sealed);
    hy_mux_release(p->mux);
    make_dirty(p);
}

void hy_peer_drain(struct hy_peer *p)
{
    hy_list_remove(&p->dirty);
    if (p->link)
        hy_link_drain(p->link);
    finish_if_done(p);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void give_up_silent(struct hy_peer *p)
{
    char why[200];
    double seconds = (double)p->net->settings.silence_ms / 1000;

    if (p->was_up)
        snprintf(why, sizeof why, "nothing received from %s for %g s", p->address, seconds);
    else
        snprintf(why, sizeof why, "no answer from %s for %g s: %s", p->address, seconds, hy_dial_why(p));
    hy_peer_give_up(p, why);
}

/* Pings an idle link; the dialing end replaces one that stays silent. */
static int64_t tick_link(struct hy_peer *p, int64_t now)
{
    const struct hy_net_settings *s = &p->net->settings;
    struct hy_link *l = p->link;
    int64_t quiet_since = earlier(p->last_sent, p->last_received), next;

    if (p->dial && now - p->last_received >= s->silence_ms / 2 && now - l->up_at >= s->silence_ms / 2) {
        hy_link_cut(l, "nothing received on this connection");
        return HY_NEVER;
    }
    next = (quiet_since > p->last_pinged ? quiet_since : p->last_pinged) + s->ping_ms;
    if (next <= now) {
        p->last_pinged = now;
        l->ping_due = true;
        next = now + s->ping_ms;
    }
    if (l->ping_due || p->ack_at <= now)
        hy_link_drain(l);
    if (p->ack_at <= now)
        p->ack_at = HY_NEVER; /* the socket is full: on_written sends it */
    if (p->dial)
        next = earlier(next, (p->last_received > l->up_at ? p->last_received : l->up_at) + s->silence_ms / 2);
    return earlier(next, p->ack_at);
}

int64_t hy_peer_tick(struct hy_peer *p, int64_t now)
{
    int64_t silent_at, next;

    if (p->net->paused)
        p->last_received = now; /* nothing is read, so silence proves nothing */
    silent_at = p->last_received + p->net->settings.silence_ms;
    if (p->linger_at <= now) {
        hy_peer_finish(p);
        return HY_NEVER;
    }
    if (silent_at <= now) {
        /* If this process was stalled, data may wait in the socket: the loop
         * reads it before the next tick. */
        if (p->suspect) {
            give_up_silent(p);
            return HY_NEVER;
        }
        p->suspect = true;
        return now + 1;
    }
    next = earlier(silent_at, p->linger_at);
    if (p->link && p->link->state == HY_LINK_UP)
        next = earlier(next, tick_link(p, now));
    if (p->dial && !p->finished)
        next = earlier(next, hy_dial_tick(p, now));
    return next;
}

/* ---- public functions ----------------------------------------------------------------------------------- */

const char *hy_peer_identity(const struct hy_peer *p)
{
    return p->identity;
}

const char *hy_peer_address(const struct hy_peer *p)
{
    return p->address;
}

void hy_peer_set_data(struct hy_peer *p, void *data)
{
    p->data = data;
}

void *hy_peer_data(const struct hy_peer *p)
{
    return p->data;
}

int64_t hy_peer_silent_ms(const struct hy_peer *p)
{
    return hy_net_now(p->net) - p->last_received;
}

int hy_peer_is_linked(const struct hy_peer *p)
{
    return p->link && p->link->state == HY_LINK_UP;
}

int hy_peer_violated_protocol(const struct hy_peer *p)
{
    return p->violated;
}

int hy_peer_send(struct hy_peer *p, const Hy__Control *m)
{
    size_t n = hy__control__get_packed_size(m);
    uint8_t *at;
    int rc = hy_mux_message(p->mux, n, &at);

    if (rc < 0)
        return rc;
    hy__control__pack(m, at);
    mark_queued(p);
    return 0;
}

size_t hy_peer_room(const struct hy_peer *p, uint32_t stream)
{
    return hy_mux_room(p->mux, stream);
}

int hy_peer_write(struct hy_peer *p, uint32_t stream, const uint8_t *bytes, size_t n)
{
    int rc = hy_mux_write(p->mux, stream, bytes, n);

    if (rc == 0)
        mark_queued(p);
    return rc;
}

bool hy_peer_is_forgotten(const struct hy_peer *p, uint32_t stream)
{
    return hy_mux_is_forgotten(p->mux, stream);
}

size_t hy_peer_unacked(const struct hy_peer *p, uint32_t stream)
{
    return hy_mux_unacked(p->mux, stream);
}

void hy_peer_consumed(struct hy_peer *p, uint32_t stream, size_t n)
{
    hy_mux_consumed(p->mux, stream, n);
    schedule(p);
}

void hy_peer_forget(struct hy_peer *p, uint32_t stream)
{
    hy_mux_forget(p->mux, stream);
    schedule(p);
}

void hy_peer_close(struct hy_peer *p, int64_t linger_ms)
{
    struct hy_net *net = p->net;

    if (p->finished)
        return;
    hy_net_enter(net);
    p->closed = true;
    p->linger_at = hy_net_now(net) + linger_ms;
    if (linger_ms <= 0)
        hy_peer_finish(p);
    else
        hy_net_wake(net, p->linger_at);
    finish_if_done(p);
    hy_net_leave(net);
}
