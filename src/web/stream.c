/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenSSL gets encrypted bytes as they arrive and appends its own to `out`: it never sees the socket. All that has
 * arrived is decrypted at once, into one buffer of the reader. So nothing is left when the reader stops, and libuv's
 * own flow control is that of the plain text.
 */
#include "web/stream.h"

#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/mem.h"

#define RECORD_MAX (SSL3_RT_MAX_PLAIN_LENGTH + SSL3_RT_MAX_ENCRYPTED_OVERHEAD + SSL3_RT_HEADER_LENGTH)
#define ENCRYPTED_MAX 32768 /* read at once */
#define PIECE 65536         /* of plain text, encrypted at once */
#define OUT_MAX (PIECE + 2 * RECORD_MAX)
#define QUEUE_MAX 131072    /* bytes that a client does not read, when it requests replies of TLS itself */
#define HELLO_HEAD 9        /* of a record, and of the message in it */
#define HELLO_MAX 16384     /* browsers send less than 4 KB */

/* The plain text of a read, and of a record that was incomplete before it. */
static_assert(ENCRYPTED_MAX + RECORD_MAX <= HY_STREAM_ROOM, "a reader has room for all that arrives at once");

struct hy_stream {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_close_cb closed;

    SSL *ssl; /* NULL: plain; nothing below is used */
    bool is_in_handshake;
    uint8_t hello[HELLO_HEAD]; /* the first bytes of the client ... */
    size_t hello_len;          /* ... as far as they have arrived */
    int end; /* UV_EOF, UV_EPROTO …: nothing is read any more */
    uv_alloc_cb alloc;
    uv_read_cb read; /* NULL: the caller does not read */
    const char *in;  /* encrypted bytes for OpenSSL, during on_encrypted */
    size_t in_len;
    struct hy_buf out; /* encrypted bytes that are to be sent */
    uv_write_t *write; /* of the caller */
    uv_write_cb written;
    uv_buf_t left[HY_STREAM_PARTS]; /* what it has not encrypted yet */
};

/* Encrypted bytes on their way. */
struct encrypted_write {
    uv_write_t write;
    struct hy_stream *s;
    struct hy_buf bytes;
    bool is_of_caller;
};

/* ---- OpenSSL's end ------------------------------------------------------------------------------ */

static int bio_read(BIO *b, char *to, int want)
{
    struct hy_stream *s = BIO_get_data(b);
    size_t n = want < 0 ? 0 : (size_t)want;

    BIO_clear_retry_flags(b);
    if (n > s->in_len)
        n = s->in_len;
    if (n == 0) {
        BIO_set_retry_read(b);
        return -1;
    }
    memcpy(to, s->in, n);
    s->in += n;
    s->in_len -= n;
    return (int)n;
}

static int bio_write(BIO *b, const char *from, int n)
{
    struct hy_stream *s = BIO_get_data(b);

    BIO_clear_retry_flags(b);
    return n < 0 || hy_buf_append(&s->out, from, (size_t)n) < 0 ? -1 : n;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
    (void)b;
    (void)num;
    (void)ptr;
    return cmd == BIO_CTRL_FLUSH; /* nothing is buffered; other commands are not supported */
}

/* One for the process: it must outlive each BIO. */
static const BIO_METHOD *bio_method(void)
{
    static BIO_METHOD *method;

    if (!method && (method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stream"))) {
        BIO_meth_set_read(method, bio_read); /* these cannot fail */
        BIO_meth_set_write(method, bio_write);
        BIO_meth_set_ctrl(method, bio_ctrl);
    }
    return method;
}

static int init_tls(struct hy_stream *s, SSL_CTX *tls)
{
    const BIO_METHOD *method = bio_method();
    BIO *b = method ? BIO_new(method) : NULL;

    s->ssl = b ? SSL_new(tls) : NULL;
    if (!s->ssl) {
        BIO_free(b);
        return -ENOMEM;
    }
    BIO_set_data(b, s);
    BIO_set_init(b, 1);
    SSL_set_bio(s->ssl, b, b);
    SSL_set_accept_state(s->ssl);
    s->is_in_handshake = true;
    hy_buf_init(&s->out, OUT_MAX);
    return 0;
}

/* ---- start and end ------------------------------------------------------------------------------- */

struct hy_stream *hy_stream_new_tcp(uv_loop_t *loop, SSL_CTX *tls)
{
    struct hy_stream *s = hy_calloc(1, sizeof *s);

    if (s && tls && init_tls(s, tls) < 0) {
        free(s);
        return NULL;
    }
    if (s)
        uv_tcp_init(loop, &s->uv.tcp); /* cannot fail */
    return s;
}

struct hy_stream *hy_stream_new_pipe(uv_loop_t *loop)
{
    struct hy_stream *s = hy_calloc(1, sizeof *s);

    if (s)
        uv_pipe_init(loop, &s->uv.pipe, 0); /* cannot fail */
    return s;
}

static void on_closed(uv_handle_t *h)
{
    struct hy_stream *s = hy_container(h, struct hy_stream, uv);

    if (s->closed)
        s->closed(h);
    SSL_free(s->ssl);
    hy_buf_done(&s->out);
    free(s);
}

void hy_stream_close(struct hy_stream *s, uv_close_cb closed)
{
    s->closed = closed;
    uv_close(&s->uv.handle, on_closed);
}

void hy_stream_set_data(struct hy_stream *s, void *data)
{
    s->uv.handle.data = data;
}

int hy_stream_open(struct hy_stream *s, int fd)
{
    int rc = uv_tcp_open(&s->uv.tcp, fd);

    if (rc == 0) {
        uv_tcp_nodelay(&s->uv.tcp, 1);
        uv_tcp_keepalive(&s->uv.tcp, 1, 60);
    }
    return rc;
}

void hy_stream_connect(struct hy_stream *s, uv_connect_t *c, const char *path, uv_connect_cb connected)
{
    uv_pipe_connect(c, &s->uv.pipe, path, connected);
}

/* ---- writing --------------------------------------------------------------------------------------- */

static int encrypt_piece(struct hy_stream *s);

static void on_encrypted_written(uv_write_t *w, int status)
{
    struct encrypted_write *e = hy_container(w, struct encrypted_write, write);
    struct hy_stream *s = e->s;
    bool is_of_caller = e->is_of_caller;

    hy_buf_done(&e->bytes);
    free(e);
    if (!is_of_caller) /* a failure is seen by the next read */
        return;
    if (status == 0 && s->left[0].len + s->left[1].len) {
        status = uv_is_closing(&s->uv.handle) ? UV_ECANCELED : encrypt_piece(s);
        if (status == 0)
            return;
    }
    s->written(s->write, status);
}

/* Sends `out`. */
static int flush(struct hy_stream *s, bool is_of_caller)
{
    struct encrypted_write *e;
    uv_buf_t b;
    int rc;

    if (!s->out.len && !is_of_caller)
        return 0;
    if (uv_stream_get_write_queue_size(&s->uv.stream) > QUEUE_MAX)
        return -ENOBUFS;
    e = hy_calloc(1, sizeof *e);
    if (!e)
        return -ENOMEM;
    e->s = s;
    e->is_of_caller = is_of_caller;
    e->bytes = s->out;
    hy_buf_init(&s->out, OUT_MAX);
    b = uv_buf_init((char *)(uintptr_t)hy_buf_bytes(&e->bytes), (unsigned)e->bytes.len);
    rc = uv_write(&e->write, &s->uv.stream, &b, 1, on_encrypted_written);
    if (rc < 0) {
        hy_buf_done(&e->bytes);
        free(e);
    }
    return rc;
}

/* Encrypts and sends the next piece of what the caller writes. */
static int encrypt_piece(struct hy_stream *s)
{
    size_t done = 0;

    ERR_clear_error();
    while (done < PIECE && s->left[0].len + s->left[1].len) {
        uv_buf_t *b = s->left[0].len ? &s->left[0] : &s->left[1];
        size_t n = b->len < PIECE - done ? b->len : PIECE - done;

        if (SSL_write(s->ssl, b->base, (int)n) <= 0)
            return -EPROTO;
        b->base += n;
        b->len -= n;
        done += n;
    }
    return flush(s, true);
}

int hy_stream_write(struct hy_stream *s, uv_write_t *w, const uv_buf_t *parts, unsigned count, uv_write_cb written)
{
    if (!s->ssl)
        return uv_write(w, &s->uv.stream, parts, count, written);
    assert(count <= HY_STREAM_PARTS);
    memset(s->left, 0, sizeof s->left);
    memcpy(s->left, parts, count * sizeof *parts);
    s->write = w;
    s->written = written;
    return encrypt_piece(s);
}

int hy_stream_shutdown(struct hy_stream *s, uv_shutdown_t *r, uv_shutdown_cb shut)
{
    int rc = 0;

    if (s->ssl && !s->is_in_handshake) {
        ERR_clear_error();
        (void)SSL_shutdown(s->ssl); /* fails after an error: then nothing is sent */
        rc = flush(s, false);
    }
    return rc < 0 ? rc : uv_shutdown(r, &s->uv.stream, shut);
}

/* ---- reading ----------------------------------------------------------------------------------------- */

/* Calls `read` once. */
static void report_end(struct hy_stream *s)
{
    const uv_buf_t none = {0};
    uv_read_cb read = hy_take(s->read);

    if (!read || uv_is_closing(&s->uv.handle))
        return;
    uv_read_stop(&s->uv.stream);
    read(&s->uv.stream, s->end, &none);
}

/* The caller will close the connection: the alert is sent before, as far as the socket accepts it. */
static void send_failure_reply(struct hy_stream *s)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
                               "400 Bad Request: this port speaks HTTPS; open the address with https://\n";
    bool is_http = ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST;
    uv_buf_t b = is_http ? uv_buf_init((char *)(uintptr_t)http, sizeof http - 1)
                         : uv_buf_init((char *)(uintptr_t)hy_buf_bytes(&s->out), (unsigned)s->out.len); /* an alert */

    if (b.len)
        (void)uv_try_write(&s->uv.stream, &b, 1);
    hy_buf_clear(&s->out);
}

/* OpenSSL allocates a message as soon as its length has arrived: up to 128 KB for a few bytes. */
static bool hello_is_too_long(struct hy_stream *s)
{
    size_t n = HELLO_HEAD - s->hello_len < s->in_len ? HELLO_HEAD - s->hello_len : s->in_len;

    memcpy(s->hello + s->hello_len, s->in, n);
    s->hello_len += n;
    return s->hello_len == HELLO_HEAD && s->hello[0] == SSL3_RT_HANDSHAKE &&
           ((uint32_t)s->hello[6] << 16 | (uint32_t)s->hello[7] << 8 | s->hello[8]) > HELLO_MAX;
}

static void continue_handshake(struct hy_stream *s)
{
    const uv_buf_t none = {0};
    int rc;

    ERR_clear_error();
    if (hello_is_too_long(s)) {
        s->end = UV_EPROTO;
        return;
    }
    rc = SSL_do_handshake(s->ssl);
    if (rc <= 0 && SSL_get_error(s->ssl, rc) != SSL_ERROR_WANT_READ) {
        s->end = UV_EPROTO;
        send_failure_reply(s);
        return;
    }
    if (flush(s, false) < 0)
        s->end = UV_ENOBUFS;
    s->is_in_handshake = rc <= 0;
    if (!s->is_in_handshake && !s->end)
        s->read(&s->uv.stream, 0, &none);
}

/* Decrypts all that has arrived; returns the number of bytes. */
static size_t decrypt(struct hy_stream *s, const uv_buf_t *to)
{
    size_t n = 0;

    while (!s->end && n < to->len) {
        int rc, error;

        ERR_clear_error();
        rc = SSL_read(s->ssl, to->base + n, (int)(to->len - n));
        error = rc > 0 ? SSL_ERROR_NONE : SSL_get_error(s->ssl, rc);
        if (error == SSL_ERROR_WANT_READ)
            break;
        if (error == SSL_ERROR_NONE)
            n += (size_t)rc;
        else
            s->end = error == SSL_ERROR_ZERO_RETURN ? UV_EOF : UV_EPROTO;
    }
    if (flush(s, false) < 0) /* an alert, a new key */
        s->end = UV_ENOBUFS;
    return n;
}

static void on_encrypted(uv_stream_t *stream, ssize_t n, const uv_buf_t *b)
{
    struct hy_stream *s = hy_container(stream, struct hy_stream, uv);
    uv_buf_t room = {0};

    if (n < 0)
        s->end = (int)n;
    s->in = b->base;
    s->in_len = n > 0 ? (size_t)n : 0;
    if (s->in_len && s->is_in_handshake)
        continue_handshake(s);
    if (s->in_len && !s->is_in_handshake && !s->end && s->read) {
        s->alloc(&s->uv.handle, HY_STREAM_ROOM, &room);
        if (room.len < HY_STREAM_ROOM)
            s->end = UV_ENOBUFS;
        else if ((n = (ssize_t)decrypt(s, &room)) > 0)
            s->read(stream, n, &room);
    }
    s->in_len = 0;
    if (s->end)
        report_end(s);
}

/* libuv fills the buffer and passes it to on_encrypted at once: all streams share one. */
static void alloc_encrypted(uv_handle_t *h, size_t size, uv_buf_t *ret)
{
    static char encrypted[ENCRYPTED_MAX];

    (void)h;
    (void)size;
    *ret = uv_buf_init(encrypted, sizeof encrypted);
}

int hy_stream_read_start(struct hy_stream *s, uv_alloc_cb alloc, uv_read_cb read)
{
    if (!s->ssl)
        return uv_read_start(&s->uv.stream, alloc, read);
    s->alloc = alloc;
    s->read = read;
    if (!s->end)
        return uv_read_start(&s->uv.stream, alloc_encrypted, on_encrypted);
    report_end(s);
    return 0;
}

void hy_stream_read_stop(struct hy_stream *s)
{
    s->read = NULL;
    uv_read_stop(&s->uv.stream);
}
