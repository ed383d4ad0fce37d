/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection begins with
 *
 *     "hrpc"  version: 9  service class: 0  authentication: 0 none, 0xdf SASL
 *
 * and continues with frames: a length of 4 bytes, big-endian, and as many bytes.
 * Messages in a frame are delimited: a varint and as many bytes.
 *
 *     client    RpcRequestHeader  IpcConnectionContext          (once, call -3)
 *               RpcRequestHeader  RequestHeader  the request
 *     server    RpcResponseHeader  the response                 (exception: only the header)
 *
 * Responses come in any order and have the number of the call. With SASL
 * (rpc_sasl.c) there is an exchange before the context, and for integrity and
 * privacy all frames from the context on are wrapped in others.
 */
#include "hdfs/rpc/rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "hdfs/rpc/rpc_internal.h"
#include "hdfs/security/sasl.h"
#include "hdfs/sock.h"

#define FRAME_MAX (128u << 20) /* ipc.maximum.response.length */
#define SPIN_NS 100000 /* how long to poll for a response before sleeping ... */
#define FAST_NS 250000 /* ... if the last response came within this time */
#define READ_SIZE (64u << 10)
#define CONNECT_MS 20000
#define TIMEOUT_MS 60000
#define CALL_CONTEXT (-3)

/* A thread that waits for its response. */
struct waiter {
    struct hy_list link;
    pthread_cond_t turn; /* its response has arrived, or it is its turn to read */
    int32_t id;
    uint8_t *frame;
    size_t n;
};

struct hy_hdfs_rpc {
    struct hy_hdfs_sock sock;
    struct hy_hdfs_sasl *sasl; /* wraps all frames; or NULL */
    const char *protocol;
    uint8_t client_id[HY_HDFS_RPC_CLIENT_ID_SIZE];
    pthread_mutex_t sending; /* one request at a time */

    pthread_mutex_t lock; /* protects the fields below */
    struct hy_list waiters;
    bool is_reading; /* a thread reads and owns `in` */
    int broken;   /* -Exxx */
    int refs;
    struct hy_buf in;
    bool is_fast; /* the last response came within FAST_NS */
};

/* ---- delimited messages ------------------------------------------------------------------------- */

int hy_hdfs_delimited_append(struct hy_buf *b, const ProtobufCMessage *m)
{
    const size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *to = hy_buf_reserve(b, n + 5);
    size_t at = 0;

    if (!to || n > INT32_MAX)
        return -ENOMEM;
    for (size_t left = n; at == 0 || left; left >>= 7)
        to[at++] = (uint8_t)((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
    hy_buf_added(b, at + protobuf_c_message_pack(m, to + at));
    return 0;
}

int hy_hdfs_delimited_length(const uint8_t *bytes, size_t n, uint32_t *ret)
{
    uint64_t value = 0;

    for (size_t i = 0; i < 5; i++) {
        if (i == n)
            return 0;
        value |= (uint64_t)(bytes[i] & 0x7f) << 7 * i;
        if (bytes[i] < 0x80) {
            if (value > INT32_MAX)
                return -EPROTO;
            *ret = (uint32_t)value;
            return (int)i + 1;
        }
    }
    return -EPROTO;
}

/* Consumes one delimited message. */
static int take_delimited(const uint8_t **bytes, size_t *n, const uint8_t **ret, size_t *ret_n)
{
    uint32_t length;
    int head = hy_hdfs_delimited_length(*bytes, *n, &length);

    if (head <= 0 || length > *n - (size_t)head)
        return -EPROTO;
    *ret = *bytes + head;
    *ret_n = length;
    *bytes += (size_t)head + length;
    *n -= (size_t)head + length;
    return 0;
}

int hy_hdfs_rpc_response_parse(uint8_t *frame, size_t n, struct hy_hdfs_rpc_response *ret)
{
    const uint8_t *rest = frame, *header;
    struct hy_hdfs_rpc_response a = {.frame = frame};
    size_t header_n;
    int rc = take_delimited(&rest, &n, &header, &header_n);

    if (rc == 0 && !(a.header = hdfs__rpc_response_header__unpack(NULL, header_n, header)))
        rc = -EPROTO;
    if (rc == 0 && a.header->status == HDFS__RPC_RESPONSE_HEADER__STATUS__SUCCESS)
        rc = take_delimited(&rest, &n, &a.body, &a.n);
    if (rc < 0)
        hy_hdfs_rpc_response_done(&a);
    else
        *ret = a;
    return rc;
}

void hy_hdfs_rpc_response_done(struct hy_hdfs_rpc_response *a)
{
    if (a->header)
        hdfs__rpc_response_header__free_unpacked(a->header, NULL);
    free(a->frame);
    *a = (struct hy_hdfs_rpc_response){0};
}

/* ---- sending ----------------------------------------------------------------------- */

int hy_hdfs_rpc_begin_frame(struct hy_buf *b, int32_t id, int32_t retry, const uint8_t *client_id, size_t client_id_n)
{
    Hdfs__RpcRequestHeader h = HDFS__RPC_REQUEST_HEADER__INIT;
    int rc = hy_buf_append(b, "\0\0\0", 4);

    h.has_rpckind = h.has_rpcop = h.has_retrycount = 1;
    h.rpckind = HDFS__RPC_REQUEST_HEADER__KIND__PROTOCOL_BUFFER;
    h.rpcop = HDFS__RPC_REQUEST_HEADER__OPERATION__FINAL_PACKET;
    h.callid = id;
    h.clientid.data = (uint8_t *)client_id;
    h.clientid.len = client_id_n;
    h.retrycount = retry;
    return rc < 0 ? rc : hy_hdfs_delimited_append(b, &h.base);
}

void hy_hdfs_rpc_end_frame(struct hy_buf *b, size_t begin)
{
    const uint32_t length = htonl((uint32_t)(b->len - begin - 4));

    memcpy((uint8_t *)hy_buf_bytes(b) + begin, &length, sizeof(length));
}

static int send_bytes(struct hy_hdfs_rpc *c, const struct hy_buf *b)
{
    return hy_hdfs_sock_send_all(&c->sock, &(struct iovec){.iov_base = (void *)hy_buf_bytes(b), .iov_len = b->len}, 1);
}

static int send_wrapped(struct hy_hdfs_rpc *c, const struct hy_buf *b)
{
    hy_cleanup_buf struct hy_buf wrapped;
    int rc;

    hy_buf_init(&wrapped, 2 * (size_t)FRAME_MAX);
    rc = hy_hdfs_rpc_wrap(c->sasl, hy_buf_bytes(b), b->len, &wrapped);
    return rc < 0 ? rc : send_bytes(c, &wrapped);
}

/* One at a time; wrapped messages must be sent in the order of their sequence numbers. */
static int send_frame(struct hy_hdfs_rpc *c, struct hy_buf *b, size_t begin)
{
    int rc;

    hy_hdfs_rpc_end_frame(b, begin);
    pthread_mutex_lock(&c->sending);
    rc = c->sasl ? send_wrapped(c, b) : send_bytes(c, b);
    pthread_mutex_unlock(&c->sending);
    return rc;
}

static int send_call(struct hy_hdfs_rpc *c, const struct hy_hdfs_rpc_call *call)
{
    Hdfs__RequestHeader h = HDFS__REQUEST_HEADER__INIT;
    hy_cleanup_buf struct hy_buf b;
    int rc;

    hy_buf_init(&b, FRAME_MAX);
    h.methodname = (char *)call->method;
    h.declaringclassprotocolname = (char *)c->protocol;
    h.clientprotocolversion = 1;
    rc = hy_hdfs_rpc_begin_frame(&b, call->id, call->retry, c->client_id, sizeof(c->client_id));
    if (rc == 0)
        rc = hy_hdfs_delimited_append(&b, &h.base);
    if (rc == 0)
        rc = hy_hdfs_delimited_append(&b, call->request);
    return rc < 0 ? rc : send_frame(c, &b, 0);
}

/* A token identifies the user, a ticket only the real user; the effective user of a proxy has to be sent. */
static void set_user(Hdfs__UserInformation *user, const struct hy_hdfs_rpc_peer *peer, enum hy_hdfs_rpc_auth method)
{
    if (method == HY_HDFS_AUTH_SIMPLE || (method == HY_HDFS_AUTH_KERBEROS && peer->real_user))
        user->effectiveuser = (char *)peer->user;
    if (method == HY_HDFS_AUTH_SIMPLE)
        user->realuser = (char *)peer->real_user;
}

/* After `before`, which is the preamble, or empty when that was sent. */
static int send_context(struct hy_hdfs_rpc *c, struct hy_buf *before, const struct hy_hdfs_rpc_peer *peer,
                        enum hy_hdfs_rpc_auth method)
{
    Hdfs__IpcConnectionContext context = HDFS__IPC_CONNECTION_CONTEXT__INIT;
    Hdfs__UserInformation user = HDFS__USER_INFORMATION__INIT;
    const size_t begin = before->len;
    int rc;

    set_user(&user, peer, method);
    context.userinfo = &user;
    context.protocol = (char *)c->protocol;
    rc = hy_hdfs_rpc_begin_frame(before, CALL_CONTEXT, -1, c->client_id, sizeof(c->client_id));
    if (rc == 0)
        rc = hy_hdfs_delimited_append(before, &context.base);
    return rc < 0 ? rc : send_frame(c, before, begin);
}

static int send_preamble(struct hy_hdfs_rpc *c, const struct hy_hdfs_rpc_peer *peer,
                         const struct hy_hdfs_rpc_credentials *login, struct hy_err *err)
{
    const bool has_sasl = login->token || login->has_kerberos;
    const uint8_t preamble[] = {'h', 'r', 'p', 'c', 9, 0, has_sasl ? 0xdf : 0};
    enum hy_hdfs_rpc_auth method = HY_HDFS_AUTH_SIMPLE;
    hy_cleanup_buf struct hy_buf b;
    int rc;

    hy_buf_init(&b, FRAME_MAX);
    rc = hy_buf_append(&b, preamble, sizeof(preamble));
    if (rc == 0 && has_sasl) {
        rc = send_bytes(c, &b);
        hy_buf_clear(&b);
        if (rc == 0 && hy_hdfs_rpc_authenticate(&c->sock, login, peer, &method, &c->sasl, err) < 0)
            return err->code;
    }
    if (rc == 0)
        rc = send_context(c, &b, peer, method);
    return rc < 0 ? hy_err_sys(err, rc, "cannot send to %s:%u", peer->host, peer->port) : 0;
}

/* ---- receiving --------------------------------------------------------------------- */

int hy_hdfs_rpc_receive_frame(struct hy_hdfs_sock *sock, size_t max, uint8_t **ret, size_t *ret_n)
{
    hy_cleanup_free uint8_t *frame = NULL;
    uint32_t length;
    int rc = hy_hdfs_sock_recv_all(sock, &length, sizeof(length));

    if (rc < 0)
        return rc;
    length = ntohl(length);
    if (length > max)
        return -EPROTO;
    frame = hy_malloc(length ? length : 1);
    if (!frame)
        return -ENOMEM;
    rc = hy_hdfs_sock_recv_all(sock, frame, length);
    if (rc < 0)
        return rc;
    *ret = hy_take(frame);
    *ret_n = length;
    return 0;
}

/* A wakeup takes longer than the response of a nearby NameNode: polling doubles the rate of calls. */
static void spin_briefly(const struct hy_hdfs_rpc *c, int64_t start_ns)
{
    while (hy_hdfs_sock_poll(&c->sock, 0) == 0 && hy_clock_ns() - start_ns < SPIN_NS)
        sched_yield();
}

static int receive(struct hy_hdfs_rpc *c)
{
    uint8_t *to;
    ssize_t got;

    if (c->sasl)
        return hy_hdfs_rpc_receive_wrapped(c->sasl, &c->sock, FRAME_MAX, &c->in);
    to = hy_buf_reserve(&c->in, READ_SIZE);
    if (!to)
        return -ENOMEM;
    got = hy_hdfs_sock_recv(&c->sock, to, READ_SIZE);
    if (got < 0)
        return (int)got;
    hy_buf_added(&c->in, (size_t)got);
    return 0;
}

static int read_more(struct hy_hdfs_rpc *c)
{
    const int64_t start = hy_clock_ns();
    int rc;

    if (c->is_fast)
        spin_briefly(c, start);
    rc = receive(c);
    c->is_fast = hy_clock_ns() - start < FAST_NS;
    return rc;
}

/* The next frame, from malloc. Only for the reading thread. */
static int read_frame(struct hy_hdfs_rpc *c, uint8_t **ret, size_t *ret_n)
{
    for (;;) {
        uint32_t length;
        int rc;

        if (c->in.len >= 4) {
            memcpy(&length, hy_buf_bytes(&c->in), 4);
            length = ntohl(length);
            if (length > FRAME_MAX)
                return -EPROTO;
            if (c->in.len - 4 >= length) {
                uint8_t *frame = hy_malloc(length ? length : 1);

                if (!frame)
                    return -ENOMEM;
                memcpy(frame, hy_buf_bytes(&c->in) + 4, length);
                hy_buf_consume(&c->in, 4 + (size_t)length);
                hy_buf_shrink(&c->in);
                *ret = frame;
                *ret_n = length;
                return 0;
            }
        }
        rc = read_more(c);
        if (rc < 0)
            return rc;
    }
}

/* The number of the call that a frame responds to. */
static int call_of(const uint8_t *frame, size_t n, int32_t *ret)
{
    const uint8_t *header;
    size_t header_n;
    Hdfs__RpcResponseHeader *h;

    if (take_delimited(&frame, &n, &header, &header_n) < 0)
        return -EPROTO;
    h = hdfs__rpc_response_header__unpack(NULL, header_n, header);
    if (!h)
        return -EPROTO;
    *ret = (int32_t)h->callid;
    hdfs__rpc_response_header__free_unpacked(h, NULL);
    return 0;
}

/* Hands the frame to its waiter; drops it when the waiter is gone. A NameNode that refuses the connection responds to a
 * negative call number: then any waiter gets it. */
static int deliver(struct hy_hdfs_rpc *c, uint8_t *frame, size_t n)
{
    int32_t id;

    if (call_of(frame, n, &id) < 0) {
        free(frame);
        return -EPROTO;
    }
    hy_list_each(it, &c->waiters) {
        struct waiter *w = hy_container(it, struct waiter, link);

        if (w->id == id || id < 0) {
            hy_list_remove(&w->link);
            w->frame = frame;
            w->n = n;
            pthread_cond_signal(&w->turn);
            return 0;
        }
    }
    free(frame);
    return 0;
}

static void wake_all(struct hy_hdfs_rpc *c)
{
    hy_list_each(it, &c->waiters)
        pthread_cond_signal(&hy_container(it, struct waiter, link)->turn);
}

/* Reads one frame; with the lock held before and after. */
static void read_for_all(struct hy_hdfs_rpc *c)
{
    uint8_t *frame = NULL;
    size_t n = 0;
    int rc;

    c->is_reading = true;
    pthread_mutex_unlock(&c->lock);
    rc = read_frame(c, &frame, &n);
    pthread_mutex_lock(&c->lock);
    c->is_reading = false;
    if (rc == 0)
        rc = deliver(c, frame, n);
    if (rc < 0) {
        c->broken = rc;
        wake_all(c);
    }
}

/* With the lock held. */
static int wait_for(struct hy_hdfs_rpc *c, struct waiter *w)
{
    while (!w->frame && !c->broken) {
        if (c->is_reading)
            pthread_cond_wait(&w->turn, &c->lock);
        else
            read_for_all(c);
    }
    if (!hy_list_empty(&c->waiters)) /* passes the turn to read */
        pthread_cond_signal(&hy_container(c->waiters.next, struct waiter, link)->turn);
    return w->frame ? 0 : c->broken;
}

static int add_waiter(struct hy_hdfs_rpc *c, struct waiter *w)
{
    int rc;

    pthread_mutex_lock(&c->lock);
    rc = c->broken;
    if (rc == 0)
        hy_list_push(&c->waiters, &w->link);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static void fail_all(struct hy_hdfs_rpc *c, int rc)
{
    pthread_mutex_lock(&c->lock);
    if (!c->broken)
        c->broken = rc;
    wake_all(c);
    pthread_mutex_unlock(&c->lock);
}

int hy_hdfs_rpc_invoke(struct hy_hdfs_rpc *c, const struct hy_hdfs_rpc_call *call, struct hy_hdfs_rpc_response *ret)
{
    struct waiter w = {.id = call->id, .turn = PTHREAD_COND_INITIALIZER};
    int rc;

    hy_list_init(&w.link);
    rc = add_waiter(c, &w);
    if (rc < 0)
        return rc;
    rc = send_call(c, call);
    if (rc < 0)
        fail_all(c, rc); /* part of the request may have been sent */
    pthread_mutex_lock(&c->lock);
    rc = wait_for(c, &w);
    hy_list_remove(&w.link);
    pthread_mutex_unlock(&c->lock);
    pthread_cond_destroy(&w.turn);
    return rc < 0 ? rc : hy_hdfs_rpc_response_parse(w.frame, w.n, ret);
}

/* ---- connect and free -------------------------------------------------------------------------- */

struct hy_hdfs_rpc *hy_hdfs_rpc_connect(const struct hy_hdfs_rpc_peer *peer, struct hy_err *err)
{
    struct hy_hdfs_rpc *c = hy_calloc(1, sizeof(*c));
    struct hy_hdfs_rpc_credentials login = {0};
    int rc;

    if (!c) {
        hy_err_set(err, -ENOMEM, "out of memory for a connection to %s:%u", peer->host, peer->port);
        return NULL;
    }
    c->refs = 1;
    c->sock.fd = -1;
    c->protocol = peer->protocol;
    memcpy(c->client_id, peer->client_id, sizeof(c->client_id));
    pthread_mutex_init(&c->sending, NULL);
    pthread_mutex_init(&c->lock, NULL);
    hy_list_init(&c->waiters);
    hy_buf_init(&c->in, 2 * (size_t)FRAME_MAX);
    rc = hy_hdfs_sock_connect(&c->sock, peer->host, peer->port, CONNECT_MS, TIMEOUT_MS, err);
    if (rc == 0)
        rc = hy_hdfs_rpc_credentials_load(&login, &c->sock, peer, err);
    if (rc == 0)
        rc = send_preamble(c, peer, &login, err);
    hy_hdfs_rpc_credentials_done(&login);
    if (rc == 0)
        return c;
    hy_hdfs_rpc_unref(c);
    return NULL;
}

struct hy_hdfs_rpc *hy_hdfs_rpc_ref(struct hy_hdfs_rpc *c)
{
    pthread_mutex_lock(&c->lock);
    c->refs++;
    pthread_mutex_unlock(&c->lock);
    return c;
}

void hy_hdfs_rpc_unref(struct hy_hdfs_rpc *c)
{
    int refs;

    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    refs = --c->refs;
    pthread_mutex_unlock(&c->lock);
    if (refs)
        return;
    hy_hdfs_sock_close(&c->sock);
    hy_hdfs_sasl_free(c->sasl);
    hy_buf_done(&c->in);
    pthread_mutex_destroy(&c->sending);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
