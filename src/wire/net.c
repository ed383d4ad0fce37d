/* SPDX-License-Identifier: Apache-2.0 */
/* The net: listening, the one timer, flushing, and the end of things. */
#include "wire/net.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/seam.h"

#define INPUT_SIZE (64u * 1024)
#define PLAIN_SIZE (16u * 1024)
#define BACKLOG 1024

int64_t hy_net_now(const struct hy_net *net)
{
    return (int64_t)uv_now(net->loop);
}

/* ---- life and death ----------------------------------------------------------- */

static void net_destroy(struct hy_net *net)
{
    hy_tls_context_free(net->tls);
    hy_buf_done(&net->frames);
    hy_buf_done(&net->cipher);
    free(net->input);
    free(net->plain);
    free(net);
}

struct hy_net *hy_net_new(uv_loop_t *loop, const struct hy_net_settings *settings,
                          const struct hy_net_events *events, void *arg)
{
    struct hy_net *net = hy_calloc(1, sizeof *net);

    if (!net)
        return NULL;
    signal(SIGPIPE, SIG_IGN); /* libuv writes to sockets without MSG_NOSIGNAL */
    net->loop = loop;
    net->settings = *settings;
    net->redial_ms = HY_REDIAL_MIN_MS;
    net->events = *events;
    net->arg = arg;
    net->wake_at = net->accept_at = HY_NEVER;
    hy_list_init(&net->peers);
    hy_list_init(&net->links);
    hy_list_init(&net->dirty);
    hy_list_init(&net->greetings);
    hy_buf_init(&net->frames, SIZE_MAX);
    hy_buf_init(&net->cipher, SIZE_MAX);
    net->input = hy_malloc(INPUT_SIZE);
    net->plain = hy_malloc(PLAIN_SIZE);
    net->tls = hy_tls_context_new();
    if (!net->input || !net->plain || !net->tls) {
        net_destroy(net);
        return NULL;
    }
    uv_timer_init(loop, &net->timer); /* cannot fail */
    net->timer.data = net;
    net->handles = 1;
    return net;
}

void hy_net_handle_closed(struct hy_net *net)
{
    if (--net->handles == 0 && net->freed)
        net_destroy(net);
}

static void on_timer_closed(uv_handle_t *h)
{
    hy_net_handle_closed(h->data);
}

static void on_listener_closed(uv_handle_t *h)
{
    hy_net_handle_closed(h->data);
    free(h);
}

static void close_listener(struct hy_net *net)
{
    if (net->listener)
        uv_close((uv_handle_t *)net->listener, on_listener_closed);
    net->listener = NULL;
}

static void reap(struct hy_net *net)
{
    net->graves = false;
    hy_list_each(it, &net->peers)
    {
        struct hy_peer *p = hy_container(it, struct hy_peer, all);

        if (p->finished)
            hy_peer_free(p);
    }
}

void hy_net_enter(struct hy_net *net)
{
    net->depth++;
}

void hy_net_leave(struct hy_net *net)
{
    if (--net->depth == 0 && net->graves)
        reap(net);
}

void hy_net_free(struct hy_net *net)
{
    if (!net)
        return;
    hy_net_enter(net);
    hy_list_each(it, &net->peers) hy_peer_finish(hy_container(it, struct hy_peer, all));
    hy_list_each(it, &net->links) hy_link_cut(hy_container(it, struct hy_link, all), NULL);
    hy_net_leave(net);
    net->freed = true;
    close_listener(net);
    uv_close((uv_handle_t *)&net->timer, on_timer_closed);
}

/* ---- connections that come in, and the timer: set to the earliest thing that is due
 * ----------------------------- */

static int64_t tick_greetings(struct hy_net *net, int64_t now)
{
    while (!hy_list_empty(&net->greetings)) {
        struct hy_link *l = hy_container(net->greetings.next, struct hy_link, greeting);

        if (l->started + HY_GREETING_MS > now)
            return l->started + HY_GREETING_MS;
        hy_link_cut(l, "it has not said hello in time");
    }
    return HY_NEVER;
}

static void welcome(struct hy_net *net, struct hy_link *l)
{
    /* Whoever is honest says hello at once, so the oldest is the least of a loss. */
    if (net->greeting_count >= HY_GREETINGS_MAX)
        hy_link_cut(hy_container(net->greetings.next, struct hy_link, greeting),
                    "too many connections that have not said hello");
    hy_list_push(&net->greetings, &l->greeting);
    net->greeting_count++;
    hy_link_start(l);
    hy_net_wake(net, l->started + HY_GREETING_MS);
}

/* libuv listens no further until it is rid of the connection it has. */
static void accept_one(struct hy_net *net)
{
    struct hy_link *l;
    int rc = hy_link_new(net, NULL, &l);

    net->accept_at = HY_NEVER;
    if (rc == 0) {
        rc = HY_UV(uv_accept((uv_stream_t *)net->listener, (uv_stream_t *)&l->tcp));
        if (rc == 0)
            welcome(net, l);
        else
            hy_link_cut(l, NULL);
    }
    if (rc < 0 && rc != UV_EAGAIN) {
        net->accept_at = hy_net_now(net) + net->redial_ms;
        hy_net_wake(net, net->accept_at);
    }
}

/* Many handshakes at a time leave a heap full of holes: two thirds of what 500
 * of them took. */
static void give_memory_back(struct hy_net *net)
{
    if (net->greeted < 32 || net->greeting_count > 0)
        return;
    net->greeted = 0;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

static void on_timer(uv_timer_t *timer)
{
    struct hy_net *net = timer->data;
    int64_t now = hy_net_now(net), next;

    hy_net_enter(net);
    net->wake_at = HY_NEVER;
    next = tick_greetings(net, now);
    if (net->accept_at <= now && net->listener)
        accept_one(net);
    if (net->accept_at < next)
        next = net->accept_at;
    hy_list_each(it, &net->peers)
    {
        struct hy_peer *p = hy_container(it, struct hy_peer, all);
        int64_t at = p->finished ? HY_NEVER : hy_peer_tick(p, now);

        if (at < next)
            next = at;
    }
    hy_net_wake(net, next);
    give_memory_back(net);
    hy_net_leave(net);
}

void hy_net_wake(struct hy_net *net, int64_t at)
{
    int64_t now = hy_net_now(net);

    if (at >= net->wake_at)
        return;
    net->wake_at = at;
    uv_timer_start(&net->timer, on_timer, at > now ? (uint64_t)(at - now) : 0, 0);
}

/* ---- listening ---------------------------------------------------------------------- */

static void on_connection(uv_stream_t *server, int status)
{
    struct hy_net *net = server->data;

    hy_net_enter(net);
    if (status == 0)
        accept_one(net);
    hy_net_leave(net);
}

static int parse_address(const char *address, uint16_t port, struct sockaddr_storage *ret)
{
    if (!*address)
        address = "0.0.0.0";
    if (uv_ip4_addr(address, port, (struct sockaddr_in *)ret) == 0)
        return 0;
    return uv_ip6_addr(address, port, (struct sockaddr_in6 *)ret);
}

static int open_listener(struct hy_net *net)
{
    uv_tcp_t *t = hy_malloc(sizeof *t);
    int rc = t ? HY_UV(uv_tcp_init(net->loop, t)) : -ENOMEM;

    if (rc < 0) {
        free(t);
        return rc;
    }
    t->data = net;
    net->handles++;
    net->listener = t;
    return 0;
}

static int listen_on(struct hy_net *net, const struct sockaddr_storage *where, uint16_t *ret_port)
{
    struct sockaddr_storage bound;
    int size = sizeof bound, rc;

    rc = open_listener(net);
    if (rc == 0)
        rc = HY_UV(uv_tcp_bind(net->listener, (const struct sockaddr *)where, 0));
    if (rc == 0)
        rc = HY_UV(uv_listen((uv_stream_t *)net->listener, BACKLOG, on_connection));
    if (rc == 0)
        rc = HY_UV(uv_tcp_getsockname(net->listener, (struct sockaddr *)&bound, &size));
    if (rc < 0) {
        close_listener(net);
        return rc;
    }
    *ret_port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                  : ((struct sockaddr_in *)&bound)->sin_port);
    return 0;
}

int hy_net_listen(struct hy_net *net, const char *address, uint16_t port, hy_net_key_fn key_of, void *arg,
                  uint16_t *ret_port, struct hy_err *err)
{
    struct sockaddr_storage where;
    int rc;

    if (net->listener)
        return hy_err_set(err, -EALREADY, "already listening");
    if (parse_address(address, port, &where) < 0)
        return hy_err_set(err, -EINVAL,
                          "'%s' is not an address to listen on; give one like 192.0.2.1 or 0.0.0.0", address);
    hy_tls_context_set_keys(net->tls, key_of, arg);
    rc = listen_on(net, &where, ret_port);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot listen on %s port %u", *address ? address : "0.0.0.0", port);
    return 0;
}

/* ---- flushing ------------------------------------------------------------------------- */

void hy_net_flush(struct hy_net *net)
{
    if (hy_list_empty(&net->dirty))
        return;
    hy_net_enter(net);
    while (!hy_list_empty(&net->dirty)) {
        struct hy_peer *p = hy_container(net->dirty.next, struct hy_peer, dirty);

        hy_list_remove(&p->dirty);
        hy_peer_flush(p);
    }
    hy_net_leave(net);
}

size_t hy_net_lingering(const struct hy_net *net)
{
    size_t n = 0;

    hy_list_each(it, (struct hy_list *)&net->peers)
    {
        const struct hy_peer *p = hy_container(it, struct hy_peer, all);

        n += p->closed && !p->finished;
    }
    return n;
}
