/* SPDX-License-Identifier: Apache-2.0 */
#include "web/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "web/exchange.h"
#include "web/server.h"
#include "web/site.h"

#define HEAD_TIMEOUT_MS 10000 /* from the first byte of a request to the end of its head */
#define IDLE_TIMEOUT_MS 90000 /* between requests */
#define STALL_TIMEOUT_MS 30000 /* without progress in the middle of a message */
#define READ_CHUNK 65536
#define IN_MAX (HY_HTTP_HEAD_MAX + READ_CHUNK)
#define SOURCE_CHUNK (256u << 10)

enum state {
    IDLE,    /* waits for the first byte of a request */
    HEAD,    /* reads the head of a request */
    BODY,    /* reads its body */
    WORK,    /* a thread of the pool handles it */
    SEND,    /* sends the head of the reply and its body, or a part of it */
    PRODUCE, /* a thread of the pool reads the next part from the source */
    WAIT     /* the source has nothing at the moment */
};

struct connection {
    struct hy_list link;
    struct hy_web *web;
    uv_tcp_t tcp;
    uv_timer_t timer;
    int handles;
    enum state state;
    bool is_reading, is_closing, is_working;
    bool is_last; /* no request follows the reply */
    struct hy_exchange x;
    struct hy_buf in, out;
    uv_work_t work;
    uv_write_t write;
    int produced; /* the result of the source's read */
};

static void next_request(struct connection *c);
static void handle_input(struct connection *c);
static void produce(struct connection *c);

/* ---- the end ------------------------------------------------------------------------------- */

static void free_when_unused(struct connection *c)
{
    if (c->handles || c->is_working)
        return;
    hy_exchange_done(&c->x);
    hy_buf_done(&c->in);
    hy_buf_done(&c->out);
    free(c);
}

static void on_closed(uv_handle_t *h)
{
    struct connection *c = h->data;

    c->handles--;
    free_when_unused(c);
}

static void disconnect(struct connection *c)
{
    if (c->is_closing)
        return;
    c->is_closing = true;
    hy_list_remove(&c->link);
    c->web->connections.count--;
    uv_close((uv_handle_t *)&c->tcp, on_closed);
    uv_close((uv_handle_t *)&c->timer, on_closed);
}

void hy_connections_close(struct hy_connections *all)
{
    while (!hy_list_empty(&all->all))
        disconnect(hy_container(all->all.next, struct connection, link));
}

static void on_timeout(uv_timer_t *t)
{
    struct connection *c = t->data;

    if (c->state == WAIT)
        produce(c);
    else
        disconnect(c);
}

static void set_timeout(struct connection *c, unsigned ms)
{
    uv_timer_start(&c->timer, on_timeout, ms, 0); /* fails only for a timer that is closing */
}

/* ---- the reply ------------------------------------------------------------------------------ */

static int append_head(struct connection *c)
{
    struct hy_exchange *x = &c->x;
    struct hy_buf *b = &c->out;
    bool is_endless = x->source && x->source->size < 0;
    int64_t size = (int64_t)x->reply.len + (x->source && !is_endless ? x->source->size : 0);
    int rc = hy_http_begin(b, x->status);

    c->is_last |= is_endless;
    if (rc == 0 && x->type)
        rc = hy_http_add(b, "Content-Type", "%s", x->type);
    if (rc == 0 && !is_endless && x->status != 204 && x->status != 304)
        rc = hy_http_add(b, "Content-Length", "%lld", (long long)size);
    if (rc == 0 && c->is_last)
        rc = hy_http_add(b, "Connection", "close");
    if (rc == 0)
        rc = hy_site_add_policy(x, b);
    if (rc == 0)
        rc = hy_buf_append(b, hy_buf_bytes(&x->fields), x->fields.len);
    return rc == 0 ? hy_http_end(b) : rc;
}

static void on_sent(uv_write_t *w, int status)
{
    struct connection *c = w->data;

    hy_buf_clear(&c->out);
    hy_buf_clear(&c->x.reply);
    if (c->is_closing)
        return;
    if (status < 0)
        disconnect(c);
    else if (c->x.source)
        produce(c);
    else if (c->is_last)
        disconnect(c);
    else
        next_request(c);
}

/* Sends `out`, and `reply` behind it. */
static void send_part(struct connection *c)
{
    uv_buf_t parts[2] = {
        uv_buf_init((char *)(uintptr_t)hy_buf_bytes(&c->out), (unsigned)c->out.len),
        uv_buf_init((char *)(uintptr_t)hy_buf_bytes(&c->x.reply), (unsigned)c->x.reply.len),
    };
    bool has_head = c->out.len > 0;

    c->state = SEND;
    c->write.data = c;
    if (uv_write(&c->write, (uv_stream_t *)&c->tcp, parts + !has_head, has_head && c->x.reply.len ? 2 : 1, on_sent) < 0)
        disconnect(c);
    else
        set_timeout(c, STALL_TIMEOUT_MS);
}

static void send_reply(struct connection *c)
{
    struct hy_exchange *x = &c->x;

    if (x->status == 0)
        hy_reply_error(x, 500, "the request was not answered");
    c->is_last |= !x->request.keep_alive;
    if (append_head(c) < 0) {
        disconnect(c);
        return;
    }
    if (x->request.method == HY_HTTP_HEAD) {
        hy_buf_clear(&x->reply);
        if (x->source)
            x->source->close(hy_take(x->source));
    }
    send_part(c);
}

static void produce_in_pool(uv_work_t *w)
{
    struct connection *c = w->data;

    c->produced = c->x.source->read(c->x.source, &c->x.reply);
}

static void on_produced(uv_work_t *w, int status)
{
    struct connection *c = w->data;

    c->is_working = false;
    if (c->is_closing) {
        free_when_unused(c);
        return;
    }
    if (c->produced == 0)
        c->x.source->close(hy_take(c->x.source));
    if (status < 0 || (c->produced < 0 && c->produced != -EAGAIN)) {
        disconnect(c);
    } else if (c->x.reply.len) {
        send_part(c);
    } else if (c->produced == -EAGAIN) {
        c->state = WAIT;
        set_timeout(c, c->x.source->wait_ms);
    } else if (c->produced == 0) {
        on_sent(&c->write, 0);
    } else {
        produce(c);
    }
}

static void produce(struct connection *c)
{
    c->state = PRODUCE;
    c->work.data = c;
    c->write.data = c;
    uv_timer_stop(&c->timer);
    c->is_working = uv_queue_work(c->web->loop, &c->work, produce_in_pool, on_produced) == 0;
    if (!c->is_working)
        disconnect(c);
}

/* ---- handling ---------------------------------------------------------------------------------- */

static void work_in_pool(uv_work_t *w)
{
    struct connection *c = w->data;

    c->x.route->handle(&c->x);
}

static void on_worked(uv_work_t *w, int status)
{
    struct connection *c = w->data;

    (void)status; /* it was not canceled: nobody does */
    c->is_working = false;
    if (c->is_closing)
        free_when_unused(c);
    else
        send_reply(c);
}

static void handle_request(struct connection *c)
{
    c->state = WORK;
    uv_timer_stop(&c->timer);
    if (c->x.route->is_quick) {
        c->x.route->handle(&c->x);
        send_reply(c);
        return;
    }
    c->work.data = c;
    c->is_working = uv_queue_work(c->web->loop, &c->work, work_in_pool, on_worked) == 0;
    if (!c->is_working)
        disconnect(c);
}

/* ---- the request ---------------------------------------------------------------------------------- */

static void refuse(struct connection *c, int status, const char *why)
{
    c->is_last = true; /* where the next request starts is not known */
    hy_reply_error(&c->x, status, "%s", why);
    send_reply(c);
}

/* Moves what has arrived of the body. */
static void take_body(struct connection *c)
{
    struct hy_exchange *x = &c->x;
    size_t missing = (size_t)x->request.body_size - x->body.len;
    size_t n = c->in.len < missing ? c->in.len : missing;

    if (hy_buf_append(&x->body, hy_buf_bytes(&c->in), n) < 0) {
        refuse(c, 503, "out of memory");
        return;
    }
    hy_buf_consume(&c->in, n);
    if (n == missing)
        handle_request(c);
    else
        set_timeout(c, STALL_TIMEOUT_MS);
}

static void begin_body(struct connection *c)
{
    struct hy_exchange *x = &c->x;

    hy_site_route(x);
    if (!x->route) {
        c->is_last |= x->request.body_size > 0;
        send_reply(c);
    } else if (x->request.body_size > x->route->body_max) {
        refuse(c, 413, "the body of the request is too long");
    } else {
        c->state = BODY;
        take_body(c);
    }
}

static void take_head(struct connection *c)
{
    struct hy_http_refusal refusal = {0};
    ssize_t n = hy_http_parse(hy_buf_bytes(&c->in), c->in.len, &c->x.request, &refusal);

    if (n == -ENOMEM) {
        refuse(c, 503, "out of memory");
    } else if (n < 0) {
        refuse(c, refusal.status, refusal.why);
    } else if (n > 0) {
        hy_buf_consume(&c->in, (size_t)n);
        begin_body(c);
    } else if (c->state == IDLE && c->in.len) {
        c->state = HEAD;
        set_timeout(c, HEAD_TIMEOUT_MS);
    }
}

static void next_request(struct connection *c)
{
    struct hy_web *web = c->web;

    hy_exchange_done(&c->x);
    hy_exchange_init(&c->x, web);
    hy_buf_shrink(&c->out);
    c->state = IDLE;
    set_timeout(c, IDLE_TIMEOUT_MS);
    hy_list_remove(&c->link);
    hy_list_push(&web->connections.all, &c->link);
    handle_input(c);
}

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *ret)
{
    struct connection *c = h->data;
    uint8_t *room = hy_buf_reserve(&c->in, READ_CHUNK);

    (void)size;
    *ret = uv_buf_init((char *)room, room ? READ_CHUNK : 0);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct connection *c = s->data;

    (void)b;
    if (n < 0) { /* the client has left: nobody waits for a reply */
        disconnect(c);
        return;
    }
    hy_buf_added(&c->in, (size_t)n);
    handle_input(c);
}

/* Reads only as much ahead as fits: a client that sends the next requests early waits until this one is answered. */
static void handle_input(struct connection *c)
{
    bool has_room;

    if (c->state == IDLE || c->state == HEAD)
        take_head(c);
    else if (c->state == BODY)
        take_body(c);
    if (c->is_closing)
        return;
    has_room = c->in.len + READ_CHUNK <= IN_MAX;
    if (has_room == c->is_reading)
        return;
    c->is_reading = has_room;
    if (!has_room)
        uv_read_stop((uv_stream_t *)&c->tcp);
    else if (uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) < 0)
        disconnect(c);
}

/* ---- the beginning ------------------------------------------------------------------------------------ */

/* Disconnects the connection that has been without a request for longest. */
static bool evict(struct hy_connections *all)
{
    hy_list_each(it, &all->all) {
        struct connection *c = hy_container(it, struct connection, link);

        if (c->state == IDLE || c->state == HEAD) {
            disconnect(c);
            return true;
        }
    }
    return false;
}

int hy_connection_new(struct hy_web *web, int fd)
{
    struct connection *c = NULL;

    if (web->connections.count >= HY_CONNECTIONS_MAX && !evict(&web->connections)) {
        close(fd);
        return 0;
    }
    c = hy_calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->web = web;
    hy_exchange_init(&c->x, web);
    hy_buf_init(&c->in, IN_MAX);
    hy_buf_init(&c->out, SIZE_MAX);
    uv_tcp_init(web->loop, &c->tcp); /* neither can fail */
    uv_timer_init(web->loop, &c->timer);
    c->tcp.data = c->timer.data = c;
    c->handles = 2;
    hy_list_push(&web->connections.all, &c->link);
    web->connections.count++;
    if (uv_tcp_open(&c->tcp, fd) < 0) {
        close(fd);
        disconnect(c);
        return 0;
    }
    uv_tcp_nodelay(&c->tcp, 1);
    set_timeout(c, IDLE_TIMEOUT_MS);
    handle_input(c);
    return 0;
}
