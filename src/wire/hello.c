/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Hello exchange, which attaches a link to its session:
 *
 *     dialing end                           listening end
 *     TLS is up:   Hello{session, marks} ──►
 *                                           known session: the new link replaces
 *                                           the old one; otherwise a new peer (on_up)
 *                  ◄── Hello{resumed, marks}
 *     on_up, or resend what was not received
 *
 * The dialing end sets `resumed` if it has been up before. A listener that does
 * not have the session then answers without `resumed`, and does not create it.
 */
#include "wire/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/message.h"
#include "wire/faults.h"

static void send_hello(struct hy_link *l, const uint8_t session[HY_SESSION_SIZE], bool resumed, struct hy_mux *mux)
{
    int rc;

    hy_buf_clear(&l->net->frames);
    rc = hy_fault_frame_lost() ? -ECONNRESET : hy_hello_append(&l->net->frames, session, resumed, mux);
    if (rc < 0)
        hy_link_cut(l, rc == -ENOMEM ? "out of memory" : "a frame was lost");
    else
        hy_link_send(l);
}

static void link_up(struct hy_link *l)
{
    l->state = HY_LINK_UP;
    if (l->net->paused)
        hy_link_pause(l, true);
    l->up_at = hy_net_now(l->net);
    l->net->handshake_count++;
}

/* Both ends have sent their Hello: resends what the peer has not received. */
static int resume_session(struct hy_peer *p, const struct hy_hello *h, const char **ret_why)
{
    struct hy_net *net = p->net;
    int rc;

    if (!p->was_up) {
        p->was_up = true;
        p->last_received = hy_net_now(net);
        if (!p->closed)
            net->events.on_up(net->arg, p);
    }
    rc = hy_mux_resume(p->mux, h->marks, h->mark_count, ret_why);
    if (rc < 0)
        return rc;
    p->last_received = p->last_pinged = hy_net_now(net);
    p->suspect = false;
    hy_net_wake(net, p->last_received + net->settings.ping_ms);
    if (p->link)
        hy_link_drain(p->link);
    return 0;
}

static void hello_as_dialer(struct hy_link *l, const struct hy_hello *h)
{
    struct hy_peer *p = l->peer;
    const char *why = "";

    if (memcmp(h->session, p->session, HY_SESSION_SIZE) != 0) {
        hy_link_cut(l, "the Hello names another session");
    } else if (!h->resumed && p->was_up) {
        hy_peer_give_up(p, "the driver no longer has a session for this agent");
    } else {
        link_up(l);
        if (resume_session(p, h, &why) < 0)
            hy_link_cut(l, why);
    }
}

/* `same`: the peer with this session; otherwise a peer with this identity and another session. */
static struct hy_peer *find_peer(struct hy_net *net, const char *identity, const uint8_t session[HY_SESSION_SIZE],
                                 bool same)
{
    hy_list_each(it, &net->peers) {
        struct hy_peer *p = hy_container(it, struct hy_peer, all);

        if (p->dial || p->finished || strcmp(p->identity, identity) != 0)
            continue;
        if ((memcmp(p->session, session, HY_SESSION_SIZE) == 0) == same && (same || !p->closed))
            return p;
    }
    return NULL;
}

/* 1 for a known session, 0 for a new one, or -Exxx. */
static int find_or_add(struct hy_link *l, const struct hy_hello *h, struct hy_peer **ret, const char **ret_why)
{
    const char *identity = hy_tls_identity(l->tls);
    struct hy_peer *p = find_peer(l->net, identity, h->session, true);
    int rc;

    if (p) {
        *ret = p;
        return 1;
    }
    if (find_peer(l->net, identity, h->session, false)) {
        *ret_why = "another agent with this name is connected";
        return -EADDRINUSE;
    }
    if (h->resumed) {
        send_hello(l, h->session, false, NULL);
        *ret_why = "unknown session";
        return -ENOENT;
    }
    rc = hy_peer_new(l->net, identity, l->address, &p);
    if (rc < 0) {
        *ret_why = "out of memory";
        return rc;
    }
    memcpy(p->session, h->session, HY_SESSION_SIZE);
    *ret = p;
    return 0;
}

static void move_address(struct hy_peer *p, const struct hy_link *l)
{
    char *address = hy_strdup(l->address);

    if (!address)
        return; /* only used in the log */
    free(p->address);
    p->address = address;
}

static void hello_as_listener(struct hy_link *l, const struct hy_hello *h)
{
    const char *why = "";
    struct hy_peer *p;
    int known = find_or_add(l, h, &p, &why), rc;

    if (known < 0) {
        hy_link_cut(l, why);
        return;
    }
    if (p->link)
        hy_link_cut(p->link, "replaced by a newer connection");
    if (p->finished)
        return;
    hy_list_remove(&l->pending);
    l->net->pending_count--;
    l->peer = p;
    p->link = l;
    if (known)
        move_address(p, l);
    send_hello(l, p->session, known, p->mux);
    if (l->state == HY_LINK_DEAD) {
        if (!known)
            hy_peer_finish(p); /* on_up was not called */
        return;
    }
    link_up(l);
    rc = resume_session(p, h, &why);
    if (rc == -EPROTO)
        hy_peer_protocol_error(p, why);
    else if (rc < 0)
        hy_link_cut(l, why);
}

void hy_link_hello(struct hy_link *l, const struct hy_frame *f)
{
    const char *why = "";
    struct hy_hello h;

    if (!f) { /* the dialing end sends the first Hello */
        send_hello(l, l->peer->session, l->peer->was_up, l->peer->mux);
        return;
    }
    if (f->type != HY_FRAME_HELLO) {
        hy_link_cut(l, "the first frame is not a Hello");
        return;
    }
    if (hy_hello_parse(f->bytes, f->n, &h, &why) < 0) {
        hy_link_cut(l, why);
        return;
    }
    if (h.protocol != HY_PROTOCOL)
        hy_link_cut(l, "incompatible protocol version; use the same version of hopyard on both ends");
    else if (l->dialed)
        hello_as_dialer(l, &h);
    else
        hello_as_listener(l, &h);
    hy_hello_done(&h);
}
