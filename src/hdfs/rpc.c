/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection begins with
 *
 *     "hrpc"  version: 9  service class: 0  authentication: 0 none, 0xdf SASL
 *
 * and goes on with frames: a length of 4 bytes, the highest first, and what has
 * this length. Messages in it are delimited: a varint and as many bytes.
 *
 *     to it     RpcRequestHeader  IpcConnectionContext          (once, call -3)
 *               RpcRequestHeader  RequestHeader  the request
 *     from it   RpcResponseHeader  the answer                   (of an exception: the header alone)
 *
 * Answers come in any order; the call's number tells whose one is.
 */
#include "hdfs/rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "hdfs/sock.h"

#define FRAME_MAX (128u << 20) /* ipc.maximum.response.length */
#define READ_SIZE (64u << 10)
#define CONNECT_MS 20000
#define PATIENCE_MS 60000
#define CALL_CONTEXT (-3)

/* A thread that waits for its answer. */
struct waiting {
    struct hy_list link;
    pthread_cond_t turn; /* its answer is there, or it is to read */
    int32_t id;
    uint8_t *frame;
    size_t n;
};

struct hy_rpc {
    struct hy_sock sock;
    const char *protocol;
    uint8_t client_id[HY_RPC_CLIENT_ID];
    pthread_mutex_t sending; /* one request at a time */

    pthread_mutex_t lock; /* for what follows */
    struct hy_list waiting;
    bool is_read; /* a thread is reading: `in` is its own then */
    int broken;   /* -Exxx */
    int refs;
    struct hy_buf in;
};

/* ---- bytes ------------------------------------------------------------------------- */

int hy_delimited_append(struct hy_buf *b, const ProtobufCMessage *m)
{
    const size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *room = hy_buf_reserve(b, n + 5);
    size_t at = 0;

    if (!room || n > INT32_MAX)
        return -ENOMEM;
    for (size_t left = n; at == 0 || left; left >>= 7)
        room[at++] = (uint8_t)((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
    hy_buf_added(b, at + protobuf_c_message_pack(m, room + at));
    return 0;
}

int hy_delimited_length(const uint8_t *bytes, size_t n, uint32_t *ret)
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

/* Steps over one delimited message. */
static int take_delimited(const uint8_t **bytes, size_t *n, const uint8_t **ret, size_t *ret_n)
{
    uint32_t length;
    int head = hy_delimited_length(*bytes, *n, &length);

    if (head <= 0 || length > *n - (size_t)head)
        return -EPROTO;
    *ret = *bytes + head;
    *ret_n = length;
    *bytes += (size_t)head + length;
    *n -= (size_t)head + length;
    return 0;
}

int hy_rpc_answer_parse(uint8_t *frame, size_t n, struct hy_rpc_answer *ret)
{
    const uint8_t *rest = frame, *header;
    struct hy_rpc_answer a = {.frame = frame};
    size_t header_n;
    int rc = take_delimited(&rest, &n, &header, &header_n);

    if (rc == 0 && !(a.header = hdfs__rpc_response_header__unpack(NULL, header_n, header)))
        rc = -EPROTO;
    if (rc == 0 && a.header->status == HDFS__RPC_RESPONSE_HEADER__STATUS__SUCCESS)
        rc = take_delimited(&rest, &n, &a.body, &a.n);
    if (rc < 0)
        hy_rpc_answer_done(&a);
    else
        *ret = a;
    return rc;
}

void hy_rpc_answer_done(struct hy_rpc_answer *a)
{
    if (a->header)
        hdfs__rpc_response_header__free_unpacked(a->header, NULL);
    free(a->frame);
    *a = (struct hy_rpc_answer){0};
}

/* ---- sending ----------------------------------------------------------------------- */

/* The header of a frame whose length is not known yet. */
static int begin_frame(const struct hy_rpc *c, struct hy_buf *b, int32_t id, int32_t retry)
{
    Hdfs__RpcRequestHeader h = HDFS__RPC_REQUEST_HEADER__INIT;
    int rc = hy_buf_append(b, "\0\0\0", 4);

    h.has_rpckind = h.has_rpcop = h.has_retrycount = 1;
    h.rpckind = HDFS__RPC_REQUEST_HEADER__KIND__PROTOCOL_BUFFER;
    h.rpcop = HDFS__RPC_REQUEST_HEADER__OPERATION__FINAL_PACKET;
    h.callid = id;
    h.clientid.data = (uint8_t *)c->client_id;
    h.clientid.len = sizeof(c->client_id);
    h.retrycount = retry;
    return rc < 0 ? rc : hy_delimited_append(b, &h.base);
}

static int send_frame(struct hy_rpc *c, struct hy_buf *b, size_t prefix)
{
    const uint32_t length = htonl((uint32_t)(b->len - prefix - 4));
    int rc;

    memcpy((uint8_t *)hy_buf_bytes(b) + prefix, &length, sizeof(length));
    pthread_mutex_lock(&c->sending);
    rc = hy_sock_send_all(&c->sock, &(struct iovec){.iov_base = (void *)hy_buf_bytes(b), .iov_len = b->len}, 1);
    pthread_mutex_unlock(&c->sending);
    return rc;
}

static int send_call(struct hy_rpc *c, const struct hy_rpc_call *call)
{
    Hdfs__RequestHeader h = HDFS__REQUEST_HEADER__INIT;
    hy_cleanup_buf struct hy_buf b;
    int rc;

    hy_buf_init(&b, FRAME_MAX);
    h.methodname = (char *)call->method;
    h.declaringclassprotocolname = (char *)c->protocol;
    h.clientprotocolversion = 1;
    rc = begin_frame(c, &b, call->id, call->retry);
    if (rc == 0)
        rc = hy_delimited_append(&b, &h.base);
    if (rc == 0)
        rc = hy_delimited_append(&b, call->request);
    return rc < 0 ? rc : send_frame(c, &b, 0);
}

static int send_hello(struct hy_rpc *c, const struct hy_rpc_peer *peer)
{
    static const uint8_t preamble[] = {'h', 'r', 'p', 'c', 9, 0, 0};
    Hdfs__IpcConnectionContext context = HDFS__IPC_CONNECTION_CONTEXT__INIT;
    Hdfs__UserInformation who = HDFS__USER_INFORMATION__INIT;
    hy_cleanup_buf struct hy_buf b;
    int rc;

    hy_buf_init(&b, FRAME_MAX);
    who.effectiveuser = (char *)peer->user;
    who.realuser = (char *)peer->real_user;
    context.userinfo = &who;
    context.protocol = (char *)c->protocol;
    rc = hy_buf_append(&b, preamble, sizeof(preamble));
    if (rc == 0)
        rc = begin_frame(c, &b, CALL_CONTEXT, -1);
    if (rc == 0)
        rc = hy_delimited_append(&b, &context.base);
    return rc < 0 ? rc : send_frame(c, &b, sizeof(preamble));
}

/* ---- receiving --------------------------------------------------------------------- */

/* The next frame, malloc'ed. Only for the thread that reads. */
static int read_frame(struct hy_rpc *c, uint8_t **ret, size_t *ret_n)
{
    for (;;) {
        uint32_t length;
        uint8_t *room;
        ssize_t got;

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
        room = hy_buf_reserve(&c->in, READ_SIZE);
        if (!room)
            return -ENOMEM;
        got = hy_sock_recv(&c->sock, room, READ_SIZE);
        if (got < 0)
            return (int)got;
        hy_buf_added(&c->in, (size_t)got);
    }
}

/* The number of the call that a frame answers. */
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

/* Gives the frame to who waits for it; one whose thread has left is dropped. A NameNode that
 * refuses the connection answers a call that nobody made: everyone is told. */
static int deliver(struct hy_rpc *c, uint8_t *frame, size_t n)
{
    int32_t id;

    if (call_of(frame, n, &id) < 0) {
        free(frame);
        return -EPROTO;
    }
    hy_list_each(it, &c->waiting) {
        struct waiting *w = hy_container(it, struct waiting, link);

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

static void wake_all(struct hy_rpc *c)
{
    hy_list_each(it, &c->waiting)
        pthread_cond_signal(&hy_container(it, struct waiting, link)->turn);
}

/* Reads one frame for all; with the lock held before and after. */
static void read_for_all(struct hy_rpc *c)
{
    uint8_t *frame = NULL;
    size_t n = 0;
    int rc;

    c->is_read = true;
    pthread_mutex_unlock(&c->lock);
    rc = read_frame(c, &frame, &n);
    pthread_mutex_lock(&c->lock);
    c->is_read = false;
    if (rc == 0)
        rc = deliver(c, frame, n);
    if (rc < 0) {
        c->broken = rc;
        wake_all(c);
    }
}

/* With the lock held. */
static int wait_for(struct hy_rpc *c, struct waiting *w)
{
    while (!w->frame && !c->broken) {
        if (c->is_read)
            pthread_cond_wait(&w->turn, &c->lock);
        else
            read_for_all(c);
    }
    if (!hy_list_empty(&c->waiting)) /* who reads on? */
        pthread_cond_signal(&hy_container(c->waiting.next, struct waiting, link)->turn);
    return w->frame ? 0 : c->broken;
}

static int start(struct hy_rpc *c, struct waiting *w)
{
    int rc;

    pthread_mutex_lock(&c->lock);
    rc = c->broken;
    if (rc == 0)
        hy_list_push(&c->waiting, &w->link);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static void give_up(struct hy_rpc *c, int rc)
{
    pthread_mutex_lock(&c->lock);
    if (!c->broken)
        c->broken = rc;
    wake_all(c);
    pthread_mutex_unlock(&c->lock);
}

int hy_rpc_do(struct hy_rpc *c, const struct hy_rpc_call *call, struct hy_rpc_answer *ret)
{
    struct waiting w = {.id = call->id, .turn = PTHREAD_COND_INITIALIZER};
    int rc;

    hy_list_init(&w.link);
    rc = start(c, &w);
    if (rc < 0)
        return rc;
    rc = send_call(c, call);
    if (rc < 0)
        give_up(c, rc); /* part of it may be on its way */
    pthread_mutex_lock(&c->lock);
    rc = wait_for(c, &w);
    hy_list_remove(&w.link);
    pthread_mutex_unlock(&c->lock);
    pthread_cond_destroy(&w.turn);
    return rc < 0 ? rc : hy_rpc_answer_parse(w.frame, w.n, ret);
}

/* ---- life -------------------------------------------------------------------------- */

struct hy_rpc *hy_rpc_connect(const struct hy_rpc_peer *peer, struct hy_err *err)
{
    struct hy_rpc *c = hy_calloc(1, sizeof(*c));
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
    hy_list_init(&c->waiting);
    hy_buf_init(&c->in, FRAME_MAX + 4 + READ_SIZE);
    rc = hy_sock_connect(&c->sock, peer->host, peer->port, CONNECT_MS, PATIENCE_MS, err);
    if (rc == 0 && (rc = send_hello(c, peer)) < 0)
        hy_err_sys(err, rc, "cannot greet %s:%u", peer->host, peer->port);
    if (rc == 0)
        return c;
    hy_rpc_unref(c);
    return NULL;
}

struct hy_rpc *hy_rpc_ref(struct hy_rpc *c)
{
    pthread_mutex_lock(&c->lock);
    c->refs++;
    pthread_mutex_unlock(&c->lock);
    return c;
}

void hy_rpc_unref(struct hy_rpc *c)
{
    int refs;

    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    refs = --c->refs;
    pthread_mutex_unlock(&c->lock);
    if (refs)
        return;
    hy_sock_close(&c->sock);
    hy_buf_done(&c->in);
    pthread_mutex_destroy(&c->sending);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
