/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link: one TCP connection, its TLS, and frames in both directions.
 *
 * What is sent is encrypted when the kernel can take it, never before: control
 * that is queued while the socket is full still goes before data that waits.
 * TCP_NOTSENT_LOWAT keeps the kernel's own queue short for the same reason.
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
#define BATCH (64u * 1024)         /* what is encrypted at a time */
#define WRITING_MAX (1024u * 1024) /* a link that owes more than this answers nobody */
#define PLAIN_SIZE (16u * 1024)
#define INPUT_SIZE (64u * 1024)
#define IN_MAX (HY_FRAME_HEADER + HY_FRAME_MAX + PLAIN_SIZE)

struct write_request {
    uv_write_t request;
    size_t n;
    uint8_t bytes[];
};

/* ---- birth and death ---------------------------------------------------------------- */

int hy_link_new(struct hy_net *net, struct hy_peer *dialler, struct hy_link **ret)
{
    struct hy_link *l = hy_calloc(1, sizeof *l);
    int rc;

    if (!l)
        return -ENOMEM;
    l->tls = dialler ? hy_dial_tls(dialler) : NULL;
    rc = l->tls || !dialler ? HY_UV(uv_tcp_init(net->loop, &l->tcp)) : -ENOMEM;
    if (rc < 0) {
        hy_tls_free(l->tls);
        free(l);
        return rc;
    }
    l->tcp.data = l;
    l->net = net;
    l->peer = dialler;
    l->dialled = dialler != NULL;
    l->started = hy_net_now(net);
    hy_buf_init(&l->in, IN_MAX);
    hy_list_init(&l->greeting);
    hy_list_init(&l->resting);
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
    /* Of an accepted link the identity is only a claim until the handshake is over. */
    return l->dialled || l->state > HY_LINK_SHAKING ? hy_tls_identity(l->tls) : "";
}

void hy_link_cut(struct hy_link *l, const char *why)
{
    struct hy_net *net = l->net;
    struct hy_peer *p = l->peer;

    if (l->state == HY_LINK_DEAD)
        return;
    if (why && !l->dialled && !(p && p->closed))
        hy_warn_limited("link dropped address=%s identity=%s why=\"%s\"", l->address, identity_of(l), why);
    if (!hy_list_empty(&l->greeting)) {
        hy_list_remove(&l->greeting);
        net->greeting_count--;
        net->greeted += l->tls != NULL;
    }
    hy_list_remove(&l->all);
    hy_list_remove(&l->resting);
    l->peer = NULL;
    if (p && p->link == l) {
        p->link = NULL;
        hy_peer_lost(p, l, why);
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
        l->peer->sent = hy_net_now(l->net);
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

static int append_small(struct hy_link *l)
{
    struct hy_frame ping = {.type = HY_FRAME_PING}, pong = {.type = HY_FRAME_PONG};
    int rc = 0;

    if (l->pong_due)
        rc = hy_frame_lost() ? -ECONNRESET : hy_frame_append(&l->net->frames, &pong);
    if (l->ping_due && rc == 0)
        rc = hy_frame_lost() ? -ECONNRESET : hy_frame_append(&l->net->frames, &ping);
    l->ping_due = l->pong_due = false;
    return rc;
}

void hy_link_drain(struct hy_link *l)
{
    int more = 1;

    while (more > 0 && l->state == HY_LINK_UP && l->writing == 0) {
        hy_buf_clear(&l->net->frames);
        more = append_small(l);
        if (more == 0)
            more = hy_mux_output(l->peer->mux, &l->net->frames, BATCH);
        hy_link_send(l);
        if (l->state == HY_LINK_UP)
            l->peer->ack_at = HY_NEVER;
        if (more < 0)
            hy_link_cut(l, more == -ENOMEM ? "out of memory" : "a frame was lost");
    }
}

void hy_link_farewell(struct hy_link *l)
{
    hy_link_drain(l);
    if (l->state != HY_LINK_UP || l->writing)
        return;
    hy_buf_clear(&l->net->cipher);
    hy_tls_close(l->tls, &l->net->cipher);
    send_cipher(l);
}

/* ---- receiving -------------------------------------------------------------------------- */

static void take_frame(struct hy_link *l, const struct hy_frame *f)
{
    if (l->state == HY_LINK_GREETING)
        hy_link_greet(l, f);
    else
        hy_peer_frame(l->peer, f);
}

/* Takes whole frames from `bytes`; returns how many bytes that were, or -Exxx when the link is no more. */
static int64_t take_frames(struct hy_link *l, const uint8_t *bytes, size_t n)
{
    size_t used = 0;

    while (used < n) {
        const char *why = "";
        struct hy_frame f;
        int64_t k = hy_frame_parse(bytes + used, n - used, HY_FRAME_MAX, &f, &why);

        if (k < 0 && l->state == HY_LINK_UP && !l->dialled)
            hy_peer_violated(l->peer, why);
        else if (k < 0)
            hy_link_cut(l, why);
        if (k == 0)
            break;
        if (k > 0)
            take_frame(l, &f);
        if (l->state == HY_LINK_DEAD)
            return -ECONNRESET;
        used += (size_t)k;
    }
    return (int64_t)used;
}

static void take_plain(struct hy_link *l, const uint8_t *bytes, size_t n)
{
    int64_t used;

    if (l->in.len == 0) { /* mostly frames come whole: no need to copy them */
        used = take_frames(l, bytes, n);
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
    used = take_frames(l, hy_buf_bytes(&l->in), l->in.len);
    if (used < 0)
        return;
    hy_buf_consume(&l->in, (size_t)used);
    hy_buf_shrink(&l->in);
}

/* Before it was ever up this is no mishap: the key or the address is wrong, and stays so. */
static void refused(struct hy_link *l)
{
    char why[300];

    snprintf(why, sizeof why, "no answer from %s proves the key (%s); is the key file of this run, and the address its driver's?",
             l->peer->address, hy_tls_why(l->tls));
    hy_warn("%s", why);
    hy_peer_gone(l->peer, why);
}

/* 1 when the link may be read, 0 when it needs more or is no more. */
static int shake(struct hy_link *l)
{
    int rc;

    hy_buf_clear(&l->net->cipher);
    rc = hy_tls_handshake(l->tls, &l->net->cipher);
    send_cipher(l); /* a refusal too */
    if (l->state == HY_LINK_DEAD)
        return 0;
    if (rc < 0 && l->dialled && !l->peer->was_up && hy_tls_refused(l->tls))
        refused(l);
    else if (rc < 0)
        hy_link_cut(l, hy_tls_why(l->tls));
    if (rc <= 0)
        return 0;
    l->state = HY_LINK_GREETING;
    if (l->dialled)
        hy_link_greet(l, NULL);
    return l->state != HY_LINK_DEAD;
}

/* Slower without these, but not wrong: no reason to refuse. */
static void tune_socket(struct hy_link *l)
{
    int fd, limit = KERNEL_QUEUE;

    uv_tcp_nodelay(&l->tcp, 1);
    if (uv_fileno((uv_handle_t *)&l->tcp, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, sizeof limit);
}

static void take_cipher(struct hy_link *l, const uint8_t *bytes, size_t n)
{
    hy_tls_feed(l->tls, bytes, n);
    if (l->state == HY_LINK_SHAKING && !shake(l))
        return;
    while (l->state != HY_LINK_DEAD) {
        int got;

        hy_buf_clear(&l->net->cipher);
        got = hy_tls_read(l->tls, l->net->plain, PLAIN_SIZE, &l->net->cipher);
        send_cipher(l);
        if (got == 0 || l->state == HY_LINK_DEAD)
            return;
        if (got > 0) {
            take_plain(l, l->net->plain, (size_t)got);
            continue;
        }
        l->clean = got == -EPIPE;
        hy_link_cut(l, l->clean ? "closed by the other end" : hy_tls_why(l->tls));
    }
}

/*
 * Of a stranger nothing is kept but the beginning of a small ClientHello; TLS begins when that is whole. TLS then
 * refuses it at once, unless whoever sent it has the key, or has recorded one who has.
 */
static void take_hello(struct hy_link *l, const uint8_t *bytes, size_t n)
{
    hy_cleanup_buf struct hy_buf hello;
    const char *why = "";
    int64_t size;

    hy_buf_init(&hello, HY_TLS_HELLO_MAX);
    if (n > HY_TLS_HELLO_MAX - l->in.len || hy_buf_append(&l->in, bytes, n) < 0) {
        hy_link_cut(l, "more than a TLS hello before the key is proven");
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
    take_cipher(l, hy_buf_bytes(&hello), hello.len);
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

/* libuv would read a socket that is full 32 times before it looks at the next one. Messages can cost far more than their
 * bytes, so one buffer is all that an end may have of a turn. */
static void rest(struct hy_link *l)
{
    if (l->state == HY_LINK_DEAD || uv_idle_start(&l->net->resume, on_resume) < 0)
        return;
    uv_read_stop((uv_stream_t *)&l->tcp);
    hy_list_push(&l->net->resting, &l->resting);
}

void hy_links_resume(struct hy_net *net)
{
    hy_net_enter(net);
    uv_idle_stop(&net->resume);
    hy_list_each(it, &net->resting)
    {
        struct hy_link *l = hy_container(it, struct hy_link, resting);
        bool waits = net->paused && l->state == HY_LINK_UP;
        int rc = waits ? 0 : HY_UV(uv_read_start((uv_stream_t *)&l->tcp, on_alloc, on_read));

        hy_list_remove(&l->resting);
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
        take_hello(l, (const uint8_t *)b->base, (size_t)n);
    else if (n > 0)
        take_cipher(l, (const uint8_t *)b->base, (size_t)n);
    if (n == INPUT_SIZE)
        rest(l);
    hy_net_leave(net);
}

void hy_link_pause(struct hy_link *l, bool on)
{
    int rc = 0;

    if (l->state != HY_LINK_UP || !hy_list_empty(&l->resting))
        return; /* hello.c pauses it when it is up, hy_links_resume when it has rested */
    if (on)
        uv_read_stop((uv_stream_t *)&l->tcp);
    else
        rc = HY_UV(uv_read_start((uv_stream_t *)&l->tcp, on_alloc, on_read));
    if (rc < 0)
        hy_link_cut(l, uv_strerror(rc));
}

/* ---- the beginning ------------------------------------------------------------------------ */

static void name_address(struct hy_link *l)
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

    name_address(l);
    if (l->dialled)
        tune_socket(l);
    l->state = HY_LINK_SHAKING;
    rc = HY_UV(uv_read_start((uv_stream_t *)&l->tcp, on_alloc, on_read));
    if (rc < 0)
        hy_link_cut(l, uv_strerror(rc));
    else if (l->dialled)
        shake(l);
}
