/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link: one TCP connection, its TLS, and frames in both directions.
 *
 * Data is encrypted only when the kernel can accept it: control messages that
 * are queued while the socket is full still overtake waiting data.
 * TCP_NOTSENT_LOWAT keeps the kernel's send queue short for the same reason.
 */
#include "wire/net.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "wire/faults.h"

#define KERNEL_QUEUE (128 * 1024)
#define BATCH (64u * 1024)         /* bytes encrypted at a time */
#define WRITING_MAX (1024u * 1024) /* unsent bytes: a link with more is cut */
#define PLAIN_SIZE (16u * 1024)
#define INPUT_SIZE (64u * 1024)
#define IN_MAX (HY_FRAME_HEADER + HY_FRAME_MAX + PLAIN_SIZE)

struct write_request {
    uv_write_t request;
    size_t n;
    uint8_t bytes[];
};

/* ---- creating and cutting ----------------------------------------------------------- */

int hy_link_new(struct hy_net *net, struct hy_peer *dialer, struct hy_link **ret)
{
    struct hy_link *l = hy_calloc(1, sizeof *l);
    int rc;

    if (!l)
        return -ENOMEM;
    l->tls = dialer ? hy_dial_tls(dialer) : NULL;
    rc = l->tls || !dialer ? HY_UV(uv_tcp_init(net->loop, &l->tcp)) : -ENOMEM;
    if (rc < 0) {
        hy_tls_free(l->tls);
        free(l);
        return rc;
    }
    l->tcp.data = l;
    l->net = net;
    l->peer = dialer;
    l->dialed = dialer != NULL;
    l->started = hy_net_now(net);
    hy_buf_init(&l->in, IN_MAX);
    hy_list_init(&l->pending);
    hy_list_init(&l->throttled);
    hy_list_push(&net->links, &l->all);
    net->handles++;
    *ret = l;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct hy_link *l = h->data;
    struct hy_net *net = l->net;

    hy_tls_free(l->tls);
    hy_buf_done(&l->in);
    free(l);
    hy_net_handle_closed(net);
}

static const char *identity_of(const struct hy_link *l)
{
    /* The identity of an accepted link is only a claim until the handshake is complete. */
    return l->dialed || l->state > HY_LINK_TLS ? hy_tls_identity(l->tls) : "";
}

void hy_link_cut(struct hy_link *l, const char *why)
{
    struct hy_net *net = l->net;
    struct hy_peer *p = l->peer;

    if (l->state == HY_LINK_DEAD)
        return;
    if (why && !l->dialed && !(p && p->closed))
        hy_warn_limited("link dropped address=%s identity=%s why=\"%s\"", l->address, identity_of(l), why);
    if (!hy_list_empty(&l->pending)) {
        hy_list_remove(&l->pending);
        net->pending_count--;
        net->handshake_count += l->tls != NULL;
    }
    hy_list_remove(&l->all);
    hy_list_remove(&l->throttled);
    l->peer = NULL;
    if (p && p->link == l) {
        p->link = NULL;
        hy_peer_link_lost(p, l, why);
    }
    l->state = HY_LINK_DEAD;
    uv_close((uv_handle_t *)&l->tcp, on_closed);
}

/* ---- sending -------------------------------------------------------------------------- */

static void on_written(uv_write_t *request, int status)
{
    struct write_request *w = (struct write_request *)request;
    struct hy_link *l = request->data;
    struct hy_net *net = l->net;

    hy_net_enter(net);
    l->writing -= w->n;
    free(w);
    if (status < 0)
        hy_link_cut(l, uv_strerror(status));
    else
        hy_link_drain(l);
    hy_net_leave(net);
}

static int write_later(struct hy_link *l, const uint8_t *bytes, size_t n)
{
    struct write_request *w = l->writing + n > WRITING_MAX ? NULL : hy_malloc(sizeof *w + n);
    uv_buf_t b;
    int rc;

    if (!w)
        return -ENOMEM;
    memcpy(w->bytes, bytes, n);
    w->n = n;
    w->request.data = l;
    b = uv_buf_init((char *)w->bytes, (unsigned)n);
    rc = HY_UV(uv_write(&w->request, (uv_stream_t *)&l->tcp, &b, 1, on_written));
    if (rc < 0) {
        free(w);
        return rc;
    }
    l->writing += n;
    return 0;
}

/* Sends the encrypted bytes in net->cipher. */
static void send_cipher(struct hy_link *l)
{
    struct hy_buf *c = &l->net->cipher;
    const uint8_t *bytes = hy_buf_bytes(c);
    size_t n = c->len;
    int done = 0;

    if (n == 0 || l->state == HY_LINK_DEAD)
        return;
    if (l->writing == 0) {
        uv_buf_t b = uv_buf_init((char *)bytes, (unsigned)n);

        done = HY_UV(uv_try_write((uv_stream_t *)&l->tcp, &b, 1));
    }
    if (done == UV_EAGAIN)
        done = 0;
    if (done >= 0 && (size_t)done < n) {
        int rc = write_later(l, bytes + done, n - (size_t)done);

        done = rc < 0 ? rc : done;
    }
    hy_buf_clear(c);
    if (done < 0)
        hy_link_cut(l, uv_strerror(done));
    else if (l->peer)
        l->peer->last_sent = hy_net_now(l->net);
}

void hy_link_send(struct hy_link *l)
{
    struct hy_buf *f = &l->net->frames;
    int rc;

    if (l->state == HY_LINK_DEAD || f->len == 0)
        return;
    hy_buf_clear(&l->net->cipher);
    rc = hy_tls_write(l->tls, hy_buf_bytes(f), f->len, &l->net->cipher);
    hy_buf_clear(f);
    if (rc < 0)
        hy_link_cut(l, hy_tls_why(l->tls));
    else
        send_cipher(l);
}

static int append_pings(struct hy_link *l)
{
    struct hy_frame ping = {.type = HY_FRAME_PING}, pong = {.type = HY_FRAME_PONG};
    int rc = 0;

    if (l->pong_due)
        rc = hy_fault_frame_lost() ? -ECONNRESET : hy_frame_append(&l->net->frames, &pong);
    if (l->ping_due && rc == 0)
        rc = hy_fault_frame_lost() ? -ECONNRESET : hy_frame_append(&l->net->frames, &ping);
    l->ping_due = l->pong_due = false;
    return rc;
}

void hy_link_drain(struct hy_link *l)
{
    int more = 1;

    while (more > 0 && l->state == HY_LINK_UP && l->writing == 0) {
        hy_buf_clear(&l->net->frames);
        more = append_pings(l);
        if (more == 0)
            more = hy_mux_output(l->peer->mux, &l->net->frames, BATCH);
        hy_link_send(l);
        if (l->state == HY_LINK_UP)
            l->peer->ack_at = HY_NEVER;
        if (more < 0)
            hy_link_cut(l, more == -ENOMEM ? "out of memory" : "a frame was lost");
    }
}

void hy_link_shutdown(struct hy_link *l)
{
    hy_link_drain(l);
    if (l->state != HY_LINK_UP || l->writing)
        return;
    hy_buf_clear(&l->net->cipher);
    hy_tls_close(l->tls, &l->net->cipher);
    send_cipher(l);
}

/* ---- receiving -------------------------------------------------------------------------- */

static void handle_frame(struct hy_link *l, const struct hy_frame *f)
{
    if (l->state == HY_LINK_HELLO)
        hy_link_hello(l, f);
    else
        hy_peer_receive(l->peer, f);
}

/* Handles the complete frames in `bytes`; returns the bytes consumed, or -Exxx if the link was cut. */
static int64_t handle_frames(struct hy_link *l, const uint8_t *bytes, size_t n)
{
    size_t used = 0;

    while (used < n) {
        const char *why = "";
        struct hy_frame f;
        int64_t k = hy_frame_parse(bytes + used, n - used, HY_FRAME_MAX, &f, &why);

        if (k < 0 && l->state == HY_LINK_UP && !l->dialed)
            hy_peer_protocol_error(l->peer, why);
        else if (k < 0)
            hy_link_cut(l, why);
        if (k == 0)
            break;
        if (k > 0)
            handle_frame(l, &f);
        if (l->state == HY_LINK_DEAD)
            return -ECONNRESET;
        used += (size_t)k;
    }
    return (int64_t)used;
}

static void handle_plaintext(struct hy_link *l, const uint8_t *bytes, size_t n)
{
    int64_t used;

    if (l->in.len == 0) { /* most reads contain complete frames, which need no copy */
        used = handle_frames(l, bytes, n);
        if (used < 0 || (size_t)used == n)
            return;
        if (hy_buf_append(&l->in, bytes + used, n - (size_t)used) < 0)
            hy_link_cut(l, "out of memory");
        return;
    }
    if (hy_buf_append(&l->in, bytes, n) < 0) {
        hy_link_cut(l, "out of memory");
        return;
    }
    used = handle_frames(l, hy_buf_bytes(&l->in), l->in.len);
    if (used < 0)
        return;
    hy_buf_consume(&l->in, (size_t)used);
    hy_buf_shrink(&l->in);
}

/* A session that was never up is not retried: the key or the address is wrong. */
static void give_up_refused(struct hy_link *l)
{
    char why[300];

    snprintf(why, sizeof why,
             "%s does not prove the key (%s); check that the key file is that of the run, and the address its driver's",
             l->peer->address, hy_tls_why(l->tls));
    hy_warn("%s", why);
    hy_peer_give_up(l->peer, why);
}

/* 1 when the handshake is complete, 0 when it needs more input or the link was cut. */
static int do_tls_handshake(struct hy_link *l)
{
    int rc;

    hy_buf_clear(&l->net->cipher);
    rc = hy_tls_handshake(l->tls, &l->net->cipher);
    send_cipher(l); /* alerts too */
    if (l->state == HY_LINK_DEAD)
        return 0;
    if (rc < 0 && l->dialed && !l->peer->was_up && hy_tls_refused(l->tls))
        give_up_refused(l);
    else if (rc < 0)
        hy_link_cut(l, hy_tls_why(l->tls));
    if (rc <= 0)
        return 0;
    l->state = HY_LINK_HELLO;
    if (l->dialed)
        hy_link_hello(l, NULL);
    return l->state != HY_LINK_DEAD;
}

/* Errors are ignored: without these options the link is only slower. */
static void tune_socket(struct hy_link *l)
{
    int fd, limit = KERNEL_QUEUE;

    uv_tcp_nodelay(&l->tcp, 1);
    if (uv_fileno((uv_handle_t *)&l->tcp, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, sizeof limit);
}

static void handle_ciphertext(struct hy_link *l, const uint8_t *bytes, size_t n)
{
    hy_tls_feed(l->tls, bytes, n);
    if (l->state == HY_LINK_TLS && !do_tls_handshake(l))
        return;
    while (l->state != HY_LINK_DEAD) {
        int got;

        hy_buf_clear(&l->net->cipher);
        got = hy_tls_read(l->tls, l->net->plain, PLAIN_SIZE, &l->net->cipher);
        send_cipher(l);
        if (got == 0 || l->state == HY_LINK_DEAD)
            return;
        if (got > 0) {
            handle_plaintext(l, l->net->plain, (size_t)got);
            continue;
        }
        l->clean = got == -EPIPE;
        hy_link_cut(l, l->clean ? "closed by the peer" : hy_tls_why(l->tls));
    }
}

/*
 * For an unauthenticated client only a small ClientHello is buffered; TLS starts when it is complete. TLS then refuses
 * it at once, unless the client has the key or replays the ClientHello of one that has.
 */
static void receive_client_hello(struct hy_link *l, const uint8_t *bytes, size_t n)
{
    hy_cleanup_buf struct hy_buf hello;
    const char *why = "";
    int64_t size;

    hy_buf_init(&hello, HY_TLS_HELLO_MAX);
    if (n > HY_TLS_HELLO_MAX - l->in.len || hy_buf_append(&l->in, bytes, n) < 0) {
        hy_link_cut(l, "more than a ClientHello before the key is proven");
        return;
    }
    size = hy_tls_hello_size(hy_buf_bytes(&l->in), l->in.len, &why);
    if (size < 0)
        hy_link_cut(l, why);
    if (size <= 0 || l->in.len < (size_t)size)
        return;
    l->tls = hy_tls_new_server(l->net->tls);
    if (!l->tls) {
        hy_link_cut(l, "out of memory");
        return;
    }
    tune_socket(l);
    hello = l->in;
    hy_buf_init(&l->in, IN_MAX);
    handle_ciphertext(l, hy_buf_bytes(&hello), hello.len);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *b)
{
    struct hy_link *l = h->data;

    (void)suggested;
    *b = uv_buf_init((char *)l->net->input, INPUT_SIZE);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b);

static void on_resume(uv_idle_t *idle)
{
    hy_links_resume(idle->data);
}

/* libuv reads a full socket up to 32 times before the next one. Handling a message can cost far more than reading it,
 * so each link gets one buffer per turn of the loop. */
static void throttle(struct hy_link *l)
{
    if (l->state == HY_LINK_DEAD || uv_idle_start(&l->net->resume, on_resume) < 0)
        return;
    uv_read_stop((uv_stream_t *)&l->tcp);
    hy_list_push(&l->net->throttled, &l->throttled);
}

void hy_links_resume(struct hy_net *net)
{
    hy_net_enter(net);
    uv_idle_stop(&net->resume);
    hy_list_each(it, &net->throttled) {
        struct hy_link *l = hy_container(it, struct hy_link, throttled);
        bool waits = net->paused && l->state == HY_LINK_UP;
        int rc = waits ? 0 : HY_UV(uv_read_start((uv_stream_t *)&l->tcp, on_alloc, on_read));

        hy_list_remove(&l->throttled);
        if (rc < 0)
            hy_link_cut(l, uv_strerror(rc));
    }
    hy_net_leave(net);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct hy_link *l = s->data;
    struct hy_net *net = l->net;

    hy_net_enter(net);
    if (n < 0)
        hy_link_cut(l, n == UV_EOF ? "connection lost" : uv_strerror((int)n));
    else if (n > 0 && !l->tls)
        receive_client_hello(l, (const uint8_t *)b->base, (size_t)n);
    else if (n > 0)
        handle_ciphertext(l, (const uint8_t *)b->base, (size_t)n);
    if (n == INPUT_SIZE)
        throttle(l);
    hy_net_leave(net);
}

void hy_link_pause(struct hy_link *l, bool on)
{
    int rc = 0;

    if (l->state != HY_LINK_UP || !hy_list_empty(&l->throttled))
        return; /* hello.c pauses it when it is up, hy_links_resume when it is no longer throttled */
    if (on)
        uv_read_stop((uv_stream_t *)&l->tcp);
    else
        rc = HY_UV(uv_read_start((uv_stream_t *)&l->tcp, on_alloc, on_read));
    if (rc < 0)
        hy_link_cut(l, uv_strerror(rc));
}

/* ---- starting ------------------------------------------------------------------------------ */

static void set_address(struct hy_link *l)
{
    struct sockaddr_storage a;
    int size = sizeof a, port;
    char ip[INET6_ADDRSTRLEN] = "?";

    if (uv_tcp_getpeername(&l->tcp, (struct sockaddr *)&a, &size) < 0)
        return;
    uv_ip_name((struct sockaddr *)&a, ip, sizeof ip);
    port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
    snprintf(l->address, sizeof l->address, a.ss_family == AF_INET6 ? "[%s]:%d" : "%s:%d", ip, port);
}

void hy_link_start(struct hy_link *l)
{
    int rc;

    set_address(l);
    if (l->dialed)
        tune_socket(l);
    l->state = HY_LINK_TLS;
    rc = HY_UV(uv_read_start((uv_stream_t *)&l->tcp, on_alloc, on_read));
    if (rc < 0)
        hy_link_cut(l, uv_strerror(rc));
    else if (l->dialed)
        do_tls_handshake(l);
}
