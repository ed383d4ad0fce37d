/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer: the other end of a session. The session lives in its mux; links
 * under it come and go.
 */
#include "wire/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/message.h"

/* ---- what the mux has for the owner ---------------------------------------------------- */

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

/* ---- life and death ---------------------------------------------------------------------- */

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
    p->heard = p->sent = p->pinged = hy_net_now(net);
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
    p->net->graves = true;
    hy_list_remove(&p->dirty);
    hy_list_remove(&p->queued);
    hy_list_remove(&p->sealed);
    if (p->link) {
        hy_link_farewell(p->link);
        if (p->link)
            hy_link_cut(p->link, NULL);
    }
}

void hy_peer_gone(struct hy_peer *p, const char *why)
{
    if (!p->closed) {
        p->closed = true; /* whatever the owner does with it now, it hears no more */
        p->net->events.on_gone(p->net->arg, p, why);
    }
    hy_peer_finish(p);
}

/* It has proven its key, so this is its own doing: on a new connection it would go on in the same way, and as fast as it
 * can. The session ends. */
void hy_peer_violated(struct hy_peer *p, const char *why)
{
    p->violated = true;
    if (p->link)
        hy_link_cut(p->link, why); /* with a line in the log */
    hy_peer_gone(p, why);
}

/* Its link is no more: the dialling end dials again, the other one waits. */
void hy_peer_lost(struct hy_peer *p, struct hy_link *l, const char *why)
{
    bool was_good = l->state == HY_LINK_UP && hy_net_now(p->net) - l->up_at >= HY_REDIAL_MAX_MS;

    p->ack_at = HY_NEVER;
    if (p->finished)
        return;
    if (p->closed && l->clean)
        hy_peer_finish(p); /* the other end has closed too: nobody is there to hear the rest */
    else if (p->dial)
        hy_dial_again(p, was_good, why ? why : "");
}

/* ---- frames, flushing, time --------------------------------------------------------------------- */

static void make_dirty(struct hy_peer *p)
{
    if (hy_list_empty(&p->dirty) && !p->finished)
        hy_list_push(&p->net->dirty, &p->dirty);
}

/* Something may have come up that should be sent. */
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

void hy_peer_frame(struct hy_peer *p, const struct hy_frame *f)
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
        hy_peer_violated(p, why);
        return;
    }
    if (rc < 0) {
        hy_link_cut(l, why);
        return;
    }
    p->heard = hy_net_now(p->net);
    p->suspect = false;
    schedule(p);
    finish_if_done(p);
}

/* The turn has something for it. */
static void queued(struct hy_peer *p)
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

static void give_up(struct hy_peer *p)
{
    char why[200];
    double seconds = (double)p->net->settings.silence_ms / 1000;

    if (p->was_up)
        snprintf(why, sizeof why, "nothing was heard from %s for %g s", p->address, seconds);
    else
        snprintf(why, sizeof why, "no answer from %s for %g s: %s", p->address, seconds, hy_dial_why(p));
    hy_peer_gone(p, why);
}

/* A quiet link is tried; one that stays quiet is replaced by the dialling end. */
static int64_t tick_link(struct hy_peer *p, int64_t now)
{
    const struct hy_net_settings *s = &p->net->settings;
    struct hy_link *l = p->link;
    int64_t quiet_since = earlier(p->sent, p->heard), next;

    if (p->dial && now - p->heard >= s->silence_ms / 2 && now - l->up_at >= s->silence_ms / 2) {
        hy_link_cut(l, "nothing is heard on it");
        return HY_NEVER;
    }
    next = (quiet_since > p->pinged ? quiet_since : p->pinged) + s->ping_ms;
    if (next <= now) {
        p->pinged = now;
        l->ping_due = true;
        next = now + s->ping_ms;
    }
    if (l->ping_due || p->ack_at <= now)
        hy_link_drain(l);
    if (p->ack_at <= now)
        p->ack_at = HY_NEVER; /* the socket is full: it goes when there is room */
    if (p->dial)
        next = earlier(next, (p->heard > l->up_at ? p->heard : l->up_at) + s->silence_ms / 2);
    return earlier(next, p->ack_at);
}

int64_t hy_peer_tick(struct hy_peer *p, int64_t now)
{
    int64_t silent_at, next;

    if (p->net->paused)
        p->heard = now; /* nobody is listening */
    silent_at = p->heard + p->net->settings.silence_ms;
    if (p->linger_at <= now) {
        hy_peer_finish(p);
        return HY_NEVER;
    }
    if (silent_at <= now) {
        /* After a stall of our own there may be something in the socket: the
         * loop reads it before it comes here again. */
        if (p->suspect) {
            give_up(p);
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

/* ---- the front door ---------------------------------------------------------------------------------- */

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
    return hy_net_now(p->net) - p->heard;
}

int hy_peer_is_linked(const struct hy_peer *p)
{
    return p->link && p->link->state == HY_LINK_UP;
}

int hy_peer_has_violated(const struct hy_peer *p)
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
    queued(p);
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
        queued(p);
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
