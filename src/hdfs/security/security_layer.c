/* SPDX-License-Identifier: Apache-2.0 */
#include "hdfs/security/security_layer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "hdfs/security/aes.h"
#include "hdfs/security/sasl.h"
#include "hdfs/sock.h"

#define OUT_SIZE (128u << 10) /* one message for a packet of 64 KiB with its header */
#define TOKEN_MAX (32u << 20) /* more than any wrapped packet */

struct hy_hdfs_security_layer {
    struct hy_hdfs_aes *aes_in, *aes_out; /* or NULL, and `sasl` is used */
    struct hy_hdfs_sasl *sasl;
    uint8_t *token; /* received: [at, n) is decrypted and pending */
    size_t token_cap, at, n;
    uint8_t *out; /* OUT_SIZE bytes */
};

static struct hy_hdfs_security_layer *new(void)
{
    struct hy_hdfs_security_layer *s = hy_calloc(1, sizeof(*s));

    if (s && !(s->out = hy_malloc(OUT_SIZE))) {
        free(s);
        s = NULL;
    }
    return s;
}

struct hy_hdfs_security_layer *hy_hdfs_security_layer_sasl_new(struct hy_hdfs_sasl *sasl)
{
    struct hy_hdfs_security_layer *s = new ();

    if (s)
        s->sasl = sasl;
    return s;
}

struct hy_hdfs_security_layer *hy_hdfs_security_layer_aes_new(struct hy_hdfs_aes *in, struct hy_hdfs_aes *out)
{
    struct hy_hdfs_security_layer *s = new ();

    if (s) {
        s->aes_in = in;
        s->aes_out = out;
    }
    return s;
}

void hy_hdfs_security_layer_free(struct hy_hdfs_security_layer *s)
{
    if (!s)
        return;
    hy_hdfs_aes_free(s->aes_in);
    hy_hdfs_aes_free(s->aes_out);
    hy_hdfs_sasl_free(s->sasl);
    free(s->token);
    free(s->out);
    free(s);
}

bool hy_hdfs_security_layer_has_pending(const struct hy_hdfs_security_layer *s)
{
    return s->at < s->n;
}

/* ---- receiving --------------------------------------------------------------------- */

/* Receives into the buffers of the caller and decrypts in place. */
static ssize_t recv_aes(struct hy_hdfs_security_layer *s, struct hy_hdfs_sock *sock, struct iovec *into, int count)
{
    const ssize_t got = hy_hdfs_sock_recvv_raw(sock, into, count);
    size_t left = got > 0 ? (size_t)got : 0;

    for (int i = 0; i < count && left; i++) {
        const size_t part = left < into[i].iov_len ? left : into[i].iov_len;
        int rc = hy_hdfs_aes_apply(s->aes_in, into[i].iov_base, into[i].iov_base, part);

        if (rc < 0)
            return rc;
        left -= part;
    }
    return got;
}

static int recv_raw(struct hy_hdfs_sock *sock, void *into, size_t n)
{
    for (size_t got = 0; got < n;) {
        struct iovec part = {.iov_base = (char *)into + got, .iov_len = n - got};
        ssize_t rc = hy_hdfs_sock_recvv_raw(sock, &part, 1);

        if (rc < 0)
            return (int)rc;
        got += (size_t)rc;
    }
    return 0;
}

/* The next message, which may be empty. */
static int recv_token(struct hy_hdfs_security_layer *s, struct hy_hdfs_sock *sock)
{
    uint32_t length;
    int64_t plain;
    int rc = recv_raw(sock, &length, sizeof(length));

    if (rc < 0)
        return rc;
    length = ntohl(length);
    if (length > TOKEN_MAX)
        return -EPROTO;
    if (length > s->token_cap) {
        uint8_t *larger = hy_reallocarray(s->token, length, 1);

        if (!larger)
            return -ENOMEM;
        s->token = larger;
        s->token_cap = length;
    }
    rc = recv_raw(sock, s->token, length);
    if (rc < 0)
        return rc;
    plain = hy_hdfs_sasl_unwrap(s->sasl, s->token, length);
    if (plain < 0)
        return (int)plain;
    s->at = 0;
    s->n = (size_t)plain;
    return 0;
}

ssize_t hy_hdfs_security_layer_recvv(struct hy_hdfs_security_layer *s, struct hy_hdfs_sock *sock, struct iovec *into,
                                     int count)
{
    size_t given = 0;

    if (s->aes_in)
        return recv_aes(s, sock, into, count);
    while (s->at == s->n) {
        int rc = recv_token(s, sock);

        if (rc < 0)
            return rc;
    }
    for (int i = 0; i < count; i++) {
        const size_t part = into[i].iov_len < s->n - s->at ? into[i].iov_len : s->n - s->at;

        memcpy(into[i].iov_base, s->token + s->at, part);
        s->at += part;
        given += part;
    }
    return (ssize_t)given;
}

/* ---- sending ----------------------------------------------------------------------- */

/* Copies up to `max` bytes to s->out. The data of the caller stays unchanged, since it may be sent again. */
static size_t gather(struct hy_hdfs_security_layer *s, struct iovec **from, int *count, size_t max)
{
    size_t n = 0;

    while (*count && n < max) {
        const size_t part = (*from)->iov_len < max - n ? (*from)->iov_len : max - n;

        if (part)
            memcpy(s->out + n, (*from)->iov_base, part);
        n += part;
        (*from)->iov_base = (char *)(*from)->iov_base + part;
        (*from)->iov_len -= part;
        if ((*from)->iov_len == 0) {
            (*from)++;
            (*count)--;
        }
    }
    return n;
}

static int send_aes(struct hy_hdfs_security_layer *s, struct hy_hdfs_sock *sock, size_t n)
{
    int rc = hy_hdfs_aes_apply(s->aes_out, s->out, s->out, n);

    return rc < 0 ? rc : hy_hdfs_sock_send_raw(sock, &(struct iovec){.iov_base = s->out, .iov_len = n}, 1);
}

static int send_token(struct hy_hdfs_security_layer *s, struct hy_hdfs_sock *sock, size_t n)
{
    hy_cleanup_buf struct hy_buf token;
    uint32_t length = 0;
    int rc;

    hy_buf_init(&token, TOKEN_MAX);
    rc = hy_buf_append(&token, &length, sizeof(length));
    if (rc == 0)
        rc = hy_hdfs_sasl_wrap(s->sasl, s->out, n, &token);
    if (rc < 0)
        return rc;
    length = htonl((uint32_t)(token.len - sizeof(length)));
    memcpy((uint8_t *)hy_buf_bytes(&token), &length, sizeof(length));
    return hy_hdfs_sock_send_raw(sock, &(struct iovec){.iov_base = (void *)hy_buf_bytes(&token), .iov_len = token.len},
                                 1);
}

int hy_hdfs_security_layer_send_all(struct hy_hdfs_security_layer *s, struct hy_hdfs_sock *sock, struct iovec *from,
                                    int count)
{
    const size_t max = s->sasl && hy_hdfs_sasl_wrap_max(s->sasl) < OUT_SIZE ? hy_hdfs_sasl_wrap_max(s->sasl) : OUT_SIZE;

    for (size_t n; (n = gather(s, &from, &count, max));) {
        int rc = s->sasl ? send_token(s, sock, n) : send_aes(s, sock, n);

        if (rc < 0)
            return rc;
    }
    return 0;
}
