/* SPDX-License-Identifier: Apache-2.0 */
/* The net: listening, the timer, flushing, and freeing. */
#include "wire/net.h"

#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "wire/faults.h"

#define INPUT_SIZE (64u * 1024)
#define PLAIN_SIZE (16u * 1024)

int64_t hy_net_now(const struct hy_net *net)
{
    return (int64_t)uv_now(net->loop);
}

/* ---- creating and freeing ------------------------------------------------------ */

static void net_destroy(struct hy_net *net)
{
    hy_tls_context_free(net->tls);
    hy_buf_done(&net->frames);
    hy_buf_done(&net->cipher);
    free(net->input);
    free(net->plain);
    free(net);
}

struct hy_net *hy_net_new(uv_loop_t *loop, const struct hy_net_settings *settings, const struct hy_net_events *events,
                          void *arg)
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
    net->wake_at = HY_NEVER;
    hy_list_init(&net->peers);
    hy_list_init(&net->queued);
    hy_list_init(&net->sealed);
    hy_list_init(&net->links);
    hy_list_init(&net->dirty);
    hy_list_init(&net->pending_links);
    hy_list_init(&net->throttled);
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
    uv_idle_init(loop, &net->resume);
    net->timer.data = net->resume.data = net;
    net->handles = 2;
    return net;
}

void hy_net_handle_closed(struct hy_net *net)
{
    if (--net->handles == 0 && net->freed)
        net_destroy(net);
}

static void on_handle_closed(uv_handle_t *h)
{
    hy_net_handle_closed(h->data);
}

static void on_listener_closed(void *arg)
{
    hy_net_handle_closed(arg);
}

static void close_listener(struct hy_net *net)
{
    if (net->is_listening)
        hy_listener_close(&net->listener, on_listener_closed);
    net->is_listening = false;
}

static void free_finished_peers(struct hy_net *net)
{
    net->has_finished = false;
    hy_list_each(it, &net->peers) {
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
    if (--net->depth == 0 && net->has_finished)
        free_finished_peers(net);
}

void hy_net_free(struct hy_net *net)
{
    if (!net)
        return;
    hy_net_enter(net);
    hy_list_each(it, &net->peers)
        hy_peer_finish(hy_container(it, struct hy_peer, all));
    hy_list_each(it, &net->links)
        hy_link_cut(hy_container(it, struct hy_link, all), NULL);
    hy_net_leave(net);
    net->freed = true;
    close_listener(net);
    uv_close((uv_handle_t *)&net->timer, on_handle_closed);
    uv_close((uv_handle_t *)&net->resume, on_handle_closed);
}

/* ---- accepted connections, and the timer: it expires at the earliest deadline --- */

static int64_t expire_pending_links(struct hy_net *net, int64_t now)
{
    while (!hy_list_empty(&net->pending_links)) {
        struct hy_link *l = hy_container(net->pending_links.next, struct hy_link, pending);

        if (l->started + HY_HELLO_TIMEOUT_MS > now)
            return l->started + HY_HELLO_TIMEOUT_MS;
        hy_link_cut(l, "timeout waiting for the Hello");
    }
    return HY_NEVER;
}

/*
 * The oldest link without a ClientHello, which a valid client sends at once. A link that TLS has accepted (a wrong key
 * is refused immediately) is evicted only when all pending links are of that kind.
 */
static struct hy_link *link_to_evict(struct hy_net *net)
{
    hy_list_each(it, &net->pending_links) {
        struct hy_link *l = hy_container(it, struct hy_link, pending);

        if (!l->tls)
            return l;
    }
    return hy_container(net->pending_links.next, struct hy_link, pending);
}

static void add_pending_link(struct hy_net *net, struct hy_link *l)
{
    if (net->pending_count >= HY_PENDING_LINKS_MAX)
        hy_link_cut(link_to_evict(net), "too many connections that have not sent a Hello");
    hy_list_push(&net->pending_links, &l->pending);
    net->pending_count++;
    hy_link_start(l);
    hy_net_wake(net, l->started + HY_HELLO_TIMEOUT_MS);
}

static int on_accept(void *arg, int fd)
{
    struct hy_net *net = arg;
    struct hy_link *l;
    int rc = hy_link_new(net, NULL, &l);

    if (rc < 0)
        return rc;
    hy_net_enter(net);
    rc = HY_UV(uv_tcp_open(&l->tcp, fd));
    if (rc == 0)
        add_pending_link(net, l);
    else
        hy_link_cut(l, NULL);
    hy_net_leave(net);
    return rc;
}

/* Many simultaneous handshakes fragment the heap: after 500, two thirds of their memory stayed allocated. */
static void trim_heap(struct hy_net *net)
{
    if (net->handshake_count < 32 || net->pending_count > 0)
        return;
    net->handshake_count = 0;
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
    next = expire_pending_links(net, now);
    hy_list_each(it, &net->peers) {
        struct hy_peer *p = hy_container(it, struct hy_peer, all);
        int64_t at = p->finished ? HY_NEVER : hy_peer_tick(p, now);

        if (at < next)
            next = at;
    }
    hy_net_wake(net, next);
    trim_heap(net);
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

static int listen_on(struct hy_net *net, int fd)
{
    int rc;

    net->listener.pause_ms = (unsigned)net->redial_ms;
    rc = hy_listener_open(&net->listener, net->loop, fd, on_accept, net);
    if (rc < 0)
        return rc;
    net->is_listening = true;
    net->handles++;
    return 0;
}

int hy_net_listen(struct hy_net *net, const char *address, uint16_t port, hy_net_key_fn key_of, void *arg,
                  uint16_t *ret_port, struct hy_err *err)
{
    hy_cleanup_close int fd = -1;
    int rc;

    if (net->is_listening)
        return hy_err_set(err, -EALREADY, "already listening");
    fd = hy_tcp_listen(address, port, ret_port, err);
    if (fd < 0)
        return fd;
    hy_tls_context_set_keys(net->tls, key_of, arg);
    rc = listen_on(net, fd);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot listen on %s port %u", address, port);
    hy_take_fd(fd);
    return 0;
}

/* ---- flushing ------------------------------------------------------------------------- */

void hy_net_seal(struct hy_net *net)
{
    while (!hy_list_empty(&net->queued)) {
        struct hy_peer *p = hy_container(net->queued.next, struct hy_peer, queued);

        hy_list_remove(&p->queued);
        hy_mux_seal(p->mux);
        if (hy_list_empty(&p->sealed))
            hy_list_push(&net->sealed, &p->sealed);
    }
}

void hy_net_release(struct hy_net *net)
{
    while (!hy_list_empty(&net->sealed))
        hy_peer_release(hy_container(net->sealed.next, struct hy_peer, sealed));
}

void hy_net_drain(struct hy_net *net)
{
    if (hy_list_empty(&net->dirty))
        return;
    hy_net_enter(net);
    while (!hy_list_empty(&net->dirty))
        hy_peer_drain(hy_container(net->dirty.next, struct hy_peer, dirty));
    hy_net_leave(net);
}

void hy_net_flush(struct hy_net *net)
{
    hy_net_seal(net);
    hy_net_release(net);
    hy_net_drain(net);
}

void hy_net_discard(struct hy_net *net)
{
    hy_list_each(it, &net->peers)
        hy_mux_discard(hy_container(it, struct hy_peer, all)->mux);
    while (!hy_list_empty(&net->queued))
        hy_list_remove(net->queued.next);
    while (!hy_list_empty(&net->sealed))
        hy_list_remove(net->sealed.next);
}

void hy_net_pause(struct hy_net *net, bool on)
{
    if (net->paused == on)
        return;
    net->paused = on;
    hy_net_enter(net);
    hy_list_each(it, &net->links)
        hy_link_pause(hy_container(it, struct hy_link, all), on);
    hy_list_each(it, &net->peers)
        hy_container(it, struct hy_peer, all)->last_received = hy_net_now(net);
    hy_net_leave(net);
}

size_t hy_net_lingering(const struct hy_net *net)
{
    size_t n = 0;

    hy_list_each(it, (struct hy_list *)&net->peers) {
        const struct hy_peer *p = hy_container(it, struct hy_peer, all);

        n += p->closed && !p->finished;
    }
    return n;
}
