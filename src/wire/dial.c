/* SPDX-License-Identifier: Apache-2.0 */
/* Dialing: looks an address up, connects to it, and retries with backoff. */
#include "wire/net.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "wire/faults.h"

struct lookup {
    uv_getaddrinfo_t request;
    struct hy_net *net;
    struct hy_peer *peer; /* NULL: the peer is gone, ignore the result */
};

struct hy_dial {
    char *host;
    uint16_t port;
    uint8_t key[HY_KEY_SIZE];
    struct lookup *lookup; /* in flight; NULL: none */
    unsigned tries;        /* selects the address, if a name has several */
    int64_t retry_at;
    int64_t backoff_ms; /* the last one; 0: none yet */
    bool warned;        /* one warning per outage */
    char why[120];      /* the last error */
};

void hy_dial_free(struct hy_dial *d)
{
    if (!d)
        return;
    if (d->lookup) {
        d->lookup->peer = NULL;
        uv_cancel((uv_req_t *)&d->lookup->request);
    }
    OPENSSL_cleanse(d->key, sizeof d->key);
    free(d->host);
    free(d);
}

struct hy_tls *hy_dial_tls(const struct hy_peer *p)
{
    return hy_tls_new_client(p->net->tls, p->identity, p->dial->key);
}

const char *hy_dial_why(const struct hy_peer *p)
{
    return p->dial && p->dial->why[0] ? p->dial->why : "no response";
}

void hy_dial_retry(struct hy_peer *p, bool was_stable, const char *why)
{
    struct hy_dial *d = p->dial;

    if (was_stable) {
        d->backoff_ms = 0;
        d->warned = false;
    }
    snprintf(d->why, sizeof d->why, "%s", why);
    hy_log(d->warned ? HY_LOG_DEBUG : HY_LOG_WARN, "link lost, reconnecting address=%s why=\"%s\"", p->address, why);
    d->warned = true;
    d->backoff_ms = d->backoff_ms ? d->backoff_ms * 2 : p->net->redial_ms;
    if (d->backoff_ms > HY_REDIAL_MAX_MS)
        d->backoff_ms = HY_REDIAL_MAX_MS;
    d->retry_at = hy_net_now(p->net) + d->backoff_ms;
    hy_net_wake(p->net, d->retry_at);
}

/* ---- connecting ------------------------------------------------------------------------- */

static void on_connected(uv_connect_t *request, int status)
{
    struct hy_link *l = request->data;
    struct hy_net *net = l->net;

    hy_net_enter(net);
    if (status < 0)
        hy_link_cut(l, uv_strerror(status));
    else if (l->state == HY_LINK_CONNECTING)
        hy_link_start(l);
    hy_net_leave(net);
}

static void connect_to(struct hy_peer *p, const struct sockaddr *where)
{
    struct hy_link *l;
    int rc = hy_link_new(p->net, p, &l);

    if (rc < 0) {
        hy_dial_retry(p, false, uv_strerror(rc));
        return;
    }
    p->link = l;
    l->connect.data = l;
    rc = HY_UV(uv_tcp_connect(&l->connect, &l->tcp, where, on_connected));
    if (rc < 0)
        hy_link_cut(l, uv_strerror(rc));
    else
        hy_net_wake(p->net, l->started + HY_HELLO_TIMEOUT_MS);
}

/* ---- looking up --------------------------------------------------------------------------- */

static const struct sockaddr *pick(const struct addrinfo *found, unsigned n)
{
    unsigned count = 0;

    for (const struct addrinfo *a = found; a; a = a->ai_next)
        count++;
    for (n %= count; n; n--)
        found = found->ai_next;
    return found->ai_addr;
}

static void on_lookup(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct lookup *u = (struct lookup *)request;
    struct hy_net *net = u->net;
    struct hy_peer *p = u->peer;

    if (p) {
        hy_net_enter(net);
        p->dial->lookup = NULL;
        if (status < 0 || !found)
            hy_dial_retry(p, false, uv_strerror(status < 0 ? status : UV_EAI_NONAME));
        else
            connect_to(p, pick(found, p->dial->tries++));
        hy_net_leave(net);
    }
    uv_freeaddrinfo(found);
    free(u);
    hy_net_handle_closed(net);
}

static void look_up(struct hy_peer *p)
{
    struct lookup *u = hy_malloc(sizeof *u);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char service[8];
    int rc;

    snprintf(service, sizeof service, "%u", p->dial->port);
    rc = u ? HY_UV(uv_getaddrinfo(p->net->loop, &u->request, on_lookup, p->dial->host, service, &hints)) : UV_ENOMEM;
    if (rc < 0) {
        free(u);
        hy_dial_retry(p, false, uv_strerror(rc));
        return;
    }
    u->net = p->net;
    u->peer = p;
    p->dial->lookup = u;
    p->net->handles++;
}

static void dial_now(struct hy_peer *p)
{
    struct hy_dial *d = p->dial;
    struct sockaddr_storage where = {0};

    d->retry_at = HY_NEVER;
    if (uv_ip4_addr(d->host, d->port, (struct sockaddr_in *)&where) == 0 ||
        uv_ip6_addr(d->host, d->port, (struct sockaddr_in6 *)&where) == 0)
        connect_to(p, (const struct sockaddr *)&where);
    else
        look_up(p);
}

int64_t hy_dial_tick(struct hy_peer *p, int64_t now)
{
    struct hy_link *l = p->link;

    if (l && l->state < HY_LINK_UP && l->started + HY_HELLO_TIMEOUT_MS <= now) {
        hy_link_cut(l, "no answer in time");
        return HY_NEVER; /* hy_dial_retry has set the timer */
    }
    if (l)
        return l->state < HY_LINK_UP ? l->started + HY_HELLO_TIMEOUT_MS : HY_NEVER;
    if (p->dial->retry_at <= now)
        dial_now(p);
    return p->dial->retry_at;
}

/* ---- public functions --------------------------------------------------------------------------- */

static struct hy_dial *dial_new(const char *host, uint16_t port, const uint8_t key[HY_KEY_SIZE])
{
    struct hy_dial *d = hy_calloc(1, sizeof *d);

    if (!d)
        return NULL;
    d->host = hy_strdup(host);
    if (!d->host) {
        free(d);
        return NULL;
    }
    d->port = port;
    memcpy(d->key, key, HY_KEY_SIZE);
    return d;
}

int hy_net_dial(struct hy_net *net, const char *host, uint16_t port, const char *identity,
                const uint8_t key[HY_KEY_SIZE], struct hy_peer **ret, struct hy_err *err)
{
    hy_cleanup_free char *address = NULL;
    struct hy_peer *p;

    if (!*host || strlen(host) > 255 || port == 0)
        return hy_err_set(err, -EINVAL, "'%.255s' port %u is not an address to connect to", host, port);
    if (!*identity || strlen(identity) > HY_IDENTITY_MAX)
        return hy_err_set(err, -EINVAL, "an agent's name has 1 to %d bytes", HY_IDENTITY_MAX);
    address = hy_asprintf(strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    if (!address || hy_peer_new(net, identity, address, &p) < 0)
        return hy_err_oom(err);
    p->dial = dial_new(host, port, key);
    if (!p->dial || RAND_bytes(p->session, HY_SESSION_SIZE) != 1) {
        int rc = p->dial ? -EIO : -ENOMEM;

        hy_peer_free(p);
        return hy_err_sys(err, rc, "cannot start a session with %s", address);
    }
    hy_net_enter(net);
    dial_now(p);
    hy_net_wake(net, p->last_received + net->settings.silence_ms);
    hy_net_leave(net);
    *ret = p;
    return 0;
}
