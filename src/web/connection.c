/* SPDX-License-Identifier: Apache-2.0 */
#include "web/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "web/api/util.h"
#include "web/exchange.h"
#include "web/server.h"
#include "web/site.h"
#include "web/stream.h"

#define HEAD_TIMEOUT_MS 10000 /* from the first byte of a request to the end of its head; for the handshake of TLS */
#define IDLE_TIMEOUT_MS 90000 /* between requests */
#define STALL_TIMEOUT_MS 30000 /* without progress in the middle of a message */
#define BODY_BYTES_MIN (64u << 10) /* progress of a body: a trickle of bytes would hold its memory for years */
#define READ_CHUNK HY_STREAM_ROOM
#define IN_MAX (HY_HTTP_HEAD_MAX + READ_CHUNK)
#define SOURCE_CHUNK (256u << 10)
#define SMALL_BODY (64u << 10)
#define BODIES_MAX (32u << 20) /* bytes of all other bodies together: pieces of uploads */

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
    struct hy_stream *stream; /* NULL: the proxy has it */
    uv_timer_t timer;
    int handles;
    enum state state;
    bool is_reading, is_closing, is_working;
    bool is_last; /* no request follows the reply */
    bool is_for_apps;
    struct hy_exchange x;
    struct hy_buf in, out;
    uv_work_t work;
    uv_write_t write;
    uv_shutdown_t shutdown;
    uint64_t counted_body; /* its part of connections.body_bytes */
    size_t body_goal;      /* the length at which the rest of the body gets more time */
    int produced; /* the result of the source's read */
};

static void next_request(struct connection *c);
static void handle_input(struct connection *c);
static void produce(struct connection *c);

/* ---- the end ------------------------------------------------------------------------------- */

/* False: all bodies together would take too much memory. */
static bool count_body(struct connection *c)
{
    const uint64_t n = c->x.request.body_size;

    if (n <= SMALL_BODY)
        return true;
    if (n > BODIES_MAX - c->web->connections.body_bytes)
        return false;
    c->web->connections.body_bytes += n;
    c->counted_body = n;
    return true;
}

static void uncount_body(struct connection *c)
{
    c->web->connections.body_bytes -= c->counted_body;
    c->counted_body = 0;
}

static void free_when_unused(struct connection *c)
{
    if (c->handles || c->is_working)
        return;
    uncount_body(c);
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
    if (c->stream)
        hy_stream_close(hy_take(c->stream), on_closed);
    uv_close((uv_handle_t *)&c->timer, on_closed);
}

void hy_connections_close(struct hy_connections *all)
{
    while (!hy_list_empty(&all->all))
        disconnect(hy_container(all->all.next, struct connection, link));
}

static bool is_endless(const struct connection *c)
{
    return c->x.source && c->x.source->size < 0 && c->x.has_session;
}

void hy_connections_end_streams(struct hy_web *web)
{
    hy_list_each(it, &web->connections.all) {
        struct connection *c = hy_container(it, struct connection, link);

        if (is_endless(c) && !hy_site_has_session(&c->x.request, web->cookie, &web->sessions))
            disconnect(c);
    }
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
        rc = x->is_for_apps ? hy_apps_add_policy(x, b) : hy_site_add_policy(x, b);
    if (rc == 0)
        rc = hy_buf_append(b, hy_buf_bytes(&x->fields), x->fields.len);
    return rc == 0 ? hy_http_end(b) : rc;
}

static void on_shut(uv_shutdown_t *s, int status)
{
    (void)status;
    disconnect(s->data);
}

/* Disconnects a client that has received the whole reply. */
static void finish(struct connection *c)
{
    c->shutdown.data = c;
    if (hy_stream_shutdown(c->stream, &c->shutdown, on_shut) < 0)
        disconnect(c);
    else
        set_timeout(c, STALL_TIMEOUT_MS);
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
        finish(c);
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
    if (hy_stream_write(c->stream, &c->write, parts + !has_head, has_head && c->x.reply.len ? 2 : 1, on_sent) < 0)
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

/* Reads the list of projects for a request that names an unknown one; its file systems may be slow. */
static bool finds_project(struct hy_exchange *x)
{
    struct hy_err err = {0};

    if (!hy_api_project_is_unknown(x) || hy_web_projects_update(x->web, &err) == 0)
        return true;
    hy_reply_failure(x, &err);
    return false;
}

static void work_in_pool(uv_work_t *w)
{
    struct connection *c = w->data;

    if (finds_project(&c->x) && !c->x.route->is_quick)
        c->x.route->handle(&c->x);
}

static void on_worked(uv_work_t *w, int status)
{
    struct connection *c = w->data;

    (void)status; /* it was not canceled: nobody does */
    c->is_working = false;
    if (c->is_closing) {
        free_when_unused(c);
        return;
    }
    if (c->x.route->is_quick && !c->x.status)
        c->x.route->handle(&c->x);
    send_reply(c);
}

static void handle_request(struct connection *c)
{
    c->state = WORK;
    uv_timer_stop(&c->timer);
    hy_buf_shrink(&c->in); /* a client that is idle or follows a log sends nothing for long */
    if (c->x.route->is_quick && (c->x.route->is_public || !hy_api_project_is_unknown(&c->x))) {
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

static unsigned body_timeout_ms(void)
{
#ifdef HY_FAULTS
    const char *text = getenv("HOPYARD_TEST_BODY_MS");
    uint64_t ms;

    if (text && hy_parse_u64(text, &ms) == 0)
        return (unsigned)ms;
#endif
    return STALL_TIMEOUT_MS;
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
    if (n == missing) {
        handle_request(c);
    } else if (x->body.len >= c->body_goal) {
        c->body_goal = x->body.len + BODY_BYTES_MIN;
        set_timeout(c, body_timeout_ms());
    }
}

/* The proxy continues with the stream, and what has arrived of the request. */
static void pass_on(struct connection *c)
{
    hy_stream_read_stop(c->stream);
    c->is_reading = false;
    if (hy_apps_pass(&c->x, &c->in, c->stream) < 0) {
        refuse(c, 503, "too many requests to apps are under way; try again");
        return;
    }
    c->stream = NULL;
    c->handles--;
    disconnect(c);
}

static void begin_body(struct connection *c)
{
    struct hy_exchange *x = &c->x;

    x->is_for_apps = c->is_for_apps;
    if (c->is_for_apps)
        hy_apps_route(x);
    else
        hy_site_route(x);
    if (x->app) {
        pass_on(c);
    } else if (!x->route) {
        c->is_last |= x->request.body_size > 0;
        send_reply(c);
    } else if (x->request.body_size > x->route->body_max) {
        refuse(c, 413, "the body of the request is too long");
    } else if (!count_body(c)) {
        refuse(c, 503, "too many uploads at the same time; try again");
    } else if (c->counted_body && !hy_buf_reserve(&x->body, (size_t)c->counted_body)) { /* at once: growing copies it */
        refuse(c, 503, "out of memory");
    } else {
        c->state = BODY;
        c->body_goal = 0;
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
    uncount_body(c);
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
    if (n == 0 && c->state == IDLE) /* the handshake of TLS is complete */
        set_timeout(c, IDLE_TIMEOUT_MS);
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
        hy_stream_read_stop(c->stream);
    else if (hy_stream_read_start(c->stream, on_alloc, on_read) < 0)
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

int hy_connection_new(struct hy_web *web, int fd, bool is_for_apps)
{
    struct connection *c;

    if (web->connections.count >= HY_CONNECTIONS_MAX && !evict(&web->connections)) {
        close(fd);
        return 0;
    }
    c = hy_calloc(1, sizeof *c);
    if (!c || !(c->stream = hy_stream_new_tcp(web->loop, web->tls))) {
        free(c);
        return -ENOMEM;
    }
    c->web = web;
    c->is_for_apps = is_for_apps;
    hy_exchange_init(&c->x, web);
    hy_buf_init(&c->in, IN_MAX);
    hy_buf_init(&c->out, SIZE_MAX);
    uv_timer_init(web->loop, &c->timer); /* cannot fail */
    c->timer.data = c;
    hy_stream_set_data(c->stream, c);
    c->handles = 2;
    hy_list_push(&web->connections.all, &c->link);
    web->connections.count++;
    if (hy_stream_open(c->stream, fd) < 0) {
        close(fd);
        disconnect(c);
        return 0;
    }
    set_timeout(c, web->tls ? HEAD_TIMEOUT_MS : IDLE_TIMEOUT_MS);
    handle_input(c);
    return 0;
}
