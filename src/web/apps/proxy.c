/* SPDX-License-Identifier: Apache-2.0 */
#include "web/apps/proxy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "web/exchange.h"
#include "web/apps/proxy_head.h"
#include "web/stream.h"

#define PART HY_STREAM_ROOM
#define CONNECT_MS 10000     /* for the app to accept the connection */
#define STALL_MS 30000       /* for the browser to continue a message */
#define APP_MS 300000        /* for the app to read the request, to reply, or to continue its reply */
#define TUNNEL_STALL_MS APP_MS /* for one side of a WebSocket to read what was sent to it */
#define LINGER_MS 2000       /* for the browser to close the connection after the reply */
#define INTERIM_MAX 8        /* replies 1xx before the real one */

enum state {
    CONNECT, /* to the app */
    HEAD,    /* the request is sent; the head of the reply is awaited */
    BODY,    /* the reply is passed on */
    TUNNEL,  /* bytes in both directions */
    LINGER   /* the reply is sent */
};

struct proxy;

/* One direction. While a part is written, nothing is read. */
struct flow {
    struct proxy *p;
    struct hy_stream *from, *to;
    struct hy_buf part;
    uv_write_t write;
    uv_shutdown_t shutdown;
    bool is_reading, is_writing;
    bool has_ended; /* nothing follows */
};

struct proxy {
    struct hy_list link;
    struct hy_proxies *all;
    const void *owner;
    char *page; /* the origin that may show the reply */
    struct hy_stream *browser, *app;
    uv_timer_t timer;
    uv_connect_t connect;
    int handles;
    bool is_closing;
    enum state state;
    enum hy_http_method method;
    bool is_http_1_0, is_websocket;
    int interim;
    uint64_t request_left; /* bytes of the request's body that have not arrived */
    enum hy_http_body body;
    uint64_t reply_left;
    struct hy_buf head; /* of the reply, as it arrives */
    struct flow up, down; /* to the app, to the browser */
};

static void update_reading(struct flow *f);

/* ---- the end ---------------------------------------------------------------------------------- */

static void free_when_closed(struct proxy *p)
{
    if (--p->handles)
        return;
    hy_buf_done(&p->up.part);
    hy_buf_done(&p->down.part);
    hy_buf_done(&p->head);
    free(p->page);
    free(p);
}

static void on_stream_closed(uv_handle_t *h)
{
    free_when_closed(((struct flow *)h->data)->p);
}

static void on_timer_closed(uv_handle_t *h)
{
    free_when_closed(h->data);
}

static void cut(struct proxy *p)
{
    if (p->is_closing)
        return;
    p->is_closing = true;
    hy_list_remove(&p->link);
    p->all->count--;
    if (p->browser)
        hy_stream_close(p->browser, on_stream_closed);
    hy_stream_close(p->app, on_stream_closed);
    uv_close((uv_handle_t *)&p->timer, on_timer_closed);
}

bool hy_proxies_has(const struct hy_proxies *all, const void *owner)
{
    hy_list_each(it, &all->all)
        if (hy_container(it, struct proxy, link)->owner == owner)
            return true;
    return false;
}

void hy_proxies_close(struct hy_proxies *all, const void *owner)
{
    hy_list_each(it, &all->all) {
        struct proxy *p = hy_container(it, struct proxy, link);

        if (!owner || p->owner == owner)
            cut(p);
    }
}

/* ---- writing and reading -------------------------------------------------------------------------- */

static void on_timeout(uv_timer_t *t);

/* Starts the time for what is awaited now. */
static void set_timeout(struct proxy *p)
{
    bool is_writing = p->up.is_writing || p->down.is_writing;
    unsigned ms = APP_MS;

    if (p->state == CONNECT)
        ms = CONNECT_MS;
    else if (p->state == LINGER && !is_writing)
        ms = LINGER_MS;
    else if (p->state == TUNNEL)
        ms = is_writing ? TUNNEL_STALL_MS : 0;
    else if (p->down.is_writing || (p->request_left && !p->up.is_writing))
        ms = STALL_MS; /* the browser neither reads nor sends */
    if (ms)
        uv_timer_start(&p->timer, on_timeout, ms, 0); /* fails only for a timer that is closing */
    else
        uv_timer_stop(&p->timer);
}

static void on_shut(uv_shutdown_t *s, int status)
{
    (void)s;
    (void)status; /* a closed side is detected by the next read */
}

/* Shuts down the sending side. */
static void shut(struct flow *f)
{
    if (hy_stream_shutdown(f->to, &f->shutdown, on_shut) < 0)
        cut(f->p);
}

/* The reply is complete: the browser reads it and closes the connection. */
static void finish(struct proxy *p)
{
    p->state = LINGER;
    p->down.has_ended = true;
    p->up.has_ended = true;
    shut(&p->down);
}

static void after_write(struct flow *f)
{
    struct proxy *p = f->p;

    if (f->has_ended && p->state == TUNNEL) {
        shut(f);
        if (p->up.has_ended && p->down.has_ended && !p->up.is_writing && !p->down.is_writing)
            cut(p);
    } else if (f == &p->down && f->has_ended && p->state == BODY) {
        finish(p);
    }
}

static void on_written(uv_write_t *w, int status)
{
    struct flow *f = w->data;

    f->is_writing = false;
    hy_buf_clear(&f->part);
    if (f->p->is_closing)
        return;
    if (status < 0 && f == &f->p->up && f->p->state != TUNNEL) { /* the app has stopped reading, but may have replied */
        f->has_ended = true;
        f->p->request_left = 0;
    } else if (status < 0) {
        cut(f->p);
        return;
    }
    after_write(f);
    update_reading(f);
}

/* Sends the part. */
static void write_part(struct flow *f)
{
    uv_buf_t b = uv_buf_init((char *)(uintptr_t)hy_buf_bytes(&f->part), (unsigned)f->part.len);

    f->write.data = f;
    f->is_writing = true;
    if (hy_stream_write(f->to, &f->write, &b, 1, on_written) < 0) {
        f->is_writing = false;
        cut(f->p);
    }
}

/* An error reply of the proxy, in place of the app's. */
static void refuse(struct proxy *p, int status, const char *why)
{
    struct hy_exchange x;
    struct hy_buf *out = &p->down.part;
    int rc;

    if (p->state > HEAD || p->down.is_writing) { /* the browser sees that bytes are missing */
        cut(p);
        return;
    }
    hy_exchange_init(&x, NULL);
    hy_reply_error(&x, status, "%s", why);
    hy_buf_clear(out);
    rc = hy_http_begin(out, x.status);
    if (rc == 0)
        rc = hy_buf_printf(out,
                           "Content-Type: application/json\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                           "Content-Security-Policy: default-src 'none'; frame-ancestors 'self' %s\r\n"
                           "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                           x.reply.len, p->page);
    if (rc == 0)
        rc = hy_buf_append(out, hy_buf_bytes(&x.reply), p->method == HY_HTTP_HEAD ? 0 : x.reply.len);
    hy_exchange_done(&x);
    p->state = BODY;
    p->request_left = 0;
    p->down.has_ended = true;
    if (rc < 0)
        cut(p);
    else
        write_part(&p->down);
}

static void on_timeout(uv_timer_t *t)
{
    struct proxy *p = t->data;

    if (p->state == CONNECT || (p->state == HEAD && !p->request_left && !p->up.is_writing))
        refuse(p, 504, "the app did not reply in time");
    else
        cut(p);
    if (!p->is_closing)
        set_timeout(p);
}

/* ---- the reply --------------------------------------------------------------------------------------- */

/* Writes as much of `part` as belongs to the reply. */
static void pass_reply(struct proxy *p)
{
    struct flow *f = &p->down;

    if (p->body == HY_HTTP_BODY_SIZED) {
        if (f->part.len > p->reply_left)
            hy_buf_cut(&f->part, (size_t)p->reply_left);
        p->reply_left -= f->part.len;
        f->has_ended = p->reply_left == 0;
    }
    if (f->part.len)
        write_part(f);
    else
        after_write(f);
}

/* The head of the reply, and what has arrived after it. */
static void begin_reply(struct proxy *p, const struct hy_http_response *r, size_t head_size)
{
    struct flow *f = &p->down;
    size_t rest = p->head.len - head_size;
    int rc;

    p->body = r->body;
    p->reply_left = r->body_size;
    p->state = r->status == 101 ? TUNNEL : BODY;
    if (p->body == HY_HTTP_BODY_SIZED && rest > p->reply_left)
        rest = (size_t)p->reply_left;
    if (p->state == BODY && p->body == HY_HTTP_BODY_NONE)
        rest = 0;
    rc = hy_proxy_response_head(r, p->page, &f->part);
    if (rc == 0)
        rc = hy_buf_append(&f->part, hy_buf_bytes(&p->head) + head_size, rest);
    hy_buf_clear(&p->head);
    hy_buf_shrink(&p->head);
    if (p->body == HY_HTTP_BODY_SIZED)
        p->reply_left -= rest;
    f->has_ended = p->state == BODY &&
                   (p->body == HY_HTTP_BODY_NONE || (p->body == HY_HTTP_BODY_SIZED && !p->reply_left));
    if (rc < 0)
        cut(p);
    else
        write_part(f);
}

/* 1: another head follows. */
static int take_head(struct proxy *p)
{
    const char *why = NULL;
    struct hy_http_response r;
    ssize_t n = hy_http_parse_response(hy_buf_bytes(&p->head), p->head.len, p->method, &r, &why);
    bool is_interim;

    if (n == 0)
        return 0;
    if (n < 0) {
        refuse(p, 502, why ? why : "out of memory");
        return 0;
    }
    is_interim = r.status < 200 && r.status != 101;
    if (is_interim && ++p->interim <= INTERIM_MAX)
        hy_buf_consume(&p->head, (size_t)n);
    else if (is_interim || (r.status == 101 && !p->is_websocket) || (p->is_http_1_0 && r.body == HY_HTTP_BODY_CHUNKED))
        refuse(p, 502, "the app sent a reply that does not fit the request");
    else
        begin_reply(p, &r, (size_t)n);
    hy_http_response_done(&r);
    return p->state == HEAD;
}

static void from_app(struct proxy *p)
{
    struct flow *f = &p->down;

    if (p->state == TUNNEL) {
        write_part(f);
        return;
    }
    if (p->state == BODY) {
        pass_reply(p);
        return;
    }
    if (hy_buf_append(&p->head, hy_buf_bytes(&f->part), f->part.len) < 0) {
        cut(p);
        return;
    }
    hy_buf_clear(&f->part);
    while (take_head(p))
        ;
}

static void app_ended(struct proxy *p)
{
    struct flow *f = &p->down;

    if (p->state == CONNECT || p->state == HEAD) {
        refuse(p, 502, "the app closed the connection without a reply");
    } else if (p->state == BODY && p->body == HY_HTTP_BODY_SIZED) {
        cut(p); /* the browser sees that bytes are missing */
    } else if (p->state == BODY || p->state == TUNNEL) {
        f->has_ended = true;
        after_write(f);
    }
}

/* ---- the request ---------------------------------------------------------------------------------------- */

static void from_browser(struct proxy *p)
{
    struct flow *f = &p->up;

    if (p->state == TUNNEL) {
        write_part(f);
        return;
    }
    if (p->is_websocket) { /* a browser sends nothing before the app has accepted */
        cut(p);
        return;
    }
    if (f->part.len > p->request_left) /* nothing follows the request on this connection */
        hy_buf_cut(&f->part, (size_t)p->request_left);
    p->request_left -= f->part.len;
    if (f->has_ended)
        hy_buf_clear(&f->part);
    if (f->part.len)
        write_part(f);
}

static void browser_ended(struct proxy *p)
{
    if (p->state == TUNNEL) {
        p->up.has_ended = true;
        after_write(&p->up);
    } else {
        cut(p); /* it waits for no reply */
    }
}

/* ---- both directions --------------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *ret)
{
    struct flow *f = h->data;
    uint8_t *room = hy_buf_reserve(&f->part, PART);

    (void)size;
    *ret = uv_buf_init((char *)room, room ? PART : 0);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct flow *f = s->data;
    struct proxy *p = f->p;

    (void)b;
    if (n == 0)
        return;
    if (n < 0) {
        hy_stream_read_stop(f->from);
        f->is_reading = false;
        if (n != UV_EOF && p->state >= BODY)
            cut(p);
        else if (f == &p->up)
            browser_ended(p);
        else
            app_ended(p);
    } else {
        hy_buf_added(&f->part, (size_t)n);
        if (f == &p->up)
            from_browser(p);
        else
            from_app(p);
    }
    update_reading(f);
}

/* Continues reading, unless a part is being written. The browser is read even when nothing is expected: it may
 * disconnect. */
static void update_reading(struct flow *f)
{
    struct proxy *p = f->p;
    bool must_read = !f->is_writing && (f == &p->up ? p->state != TUNNEL || !f->has_ended : !f->has_ended);

    if (p->is_closing)
        return;
    set_timeout(p);
    if (must_read == f->is_reading)
        return;
    f->is_reading = must_read;
    if (!must_read)
        hy_stream_read_stop(f->from);
    else if (hy_stream_read_start(f->from, on_alloc, on_read) < 0)
        cut(p);
}

static void on_connected(uv_connect_t *c, int status)
{
    struct proxy *p = c->data;

    if (p->is_closing || p->state != CONNECT)
        return;
    if (status < 0) {
        refuse(p, 502, "the app does not accept connections; it may have ended");
    } else {
        p->state = HEAD;
        write_part(&p->up);
        if (!p->is_closing)
            update_reading(&p->down);
    }
    if (!p->is_closing)
        update_reading(&p->up);
}

/* ---- the beginning ---------------------------------------------------------------------------------------- */

static void init_flow(struct flow *f, struct proxy *p, struct hy_stream *from, struct hy_stream *to)
{
    f->p = p;
    f->from = from;
    f->to = to;
    hy_buf_init(&f->part, HY_HTTP_HEAD_MAX * 2 + 2 * PART);
}

/* The head for the app, and what has arrived of the body. */
static int begin_request(struct proxy *p, const struct hy_proxy_target *t, const struct hy_http_request *r,
                         const struct hy_buf *rest)
{
    size_t n = rest->len < r->body_size ? rest->len : (size_t)r->body_size;
    int rc = hy_proxy_request_head(r, t->scheme, t->token, &p->up.part);

    p->method = r->method;
    p->is_http_1_0 = r->is_http_1_0;
    p->is_websocket = hy_proxy_is_websocket(r);
    p->request_left = r->body_size - n;
    p->page = hy_strdup(t->page);
    if (rc == 0)
        rc = hy_buf_append(&p->up.part, hy_buf_bytes(rest), n);
    return p->page ? rc : -ENOMEM;
}

/* All but the browser's stream, which is taken when nothing can fail any more. */
static void open_handles(struct proxy *p, uv_loop_t *loop, struct hy_stream *app, struct hy_stream *browser)
{
    uv_timer_init(loop, &p->timer); /* cannot fail */
    p->timer.data = p;
    p->app = app;
    p->handles = 2;
    init_flow(&p->up, p, browser, app);
    init_flow(&p->down, p, app, browser);
    hy_stream_set_data(app, &p->down);
    hy_buf_init(&p->head, HY_HTTP_HEAD_MAX + 2 * PART);
}

static void take_browser(struct proxy *p, struct hy_stream *browser)
{
    p->browser = browser;
    p->handles++;
    hy_stream_set_data(browser, &p->up);
}

int hy_proxy_start(uv_loop_t *loop, struct hy_proxies *all, const struct hy_proxy_target *target,
                   const struct hy_http_request *r, const struct hy_buf *rest, struct hy_stream *browser)
{
    struct proxy *p = all->count < HY_PROXIES_MAX ? hy_calloc(1, sizeof *p) : NULL;
    struct hy_stream *app = p ? hy_stream_new_pipe(loop) : NULL;
    int rc;

    if (!app) {
        free(p);
        return all->count < HY_PROXIES_MAX ? -ENOMEM : -EBUSY;
    }
    p->all = all;
    p->owner = target->owner;
    hy_list_push(&all->all, &p->link);
    all->count++;
    open_handles(p, loop, app, browser);
    rc = begin_request(p, target, r, rest);
    if (rc < 0) {
        cut(p);
        return rc;
    }
    take_browser(p, browser);
    p->connect.data = p;
    hy_stream_connect(app, &p->connect, target->socket, on_connected);
    set_timeout(p);
    return 0;
}
