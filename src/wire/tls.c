/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What secures a link, and what OpenSSL's defaults would allow:
 *
 * - A client with a key would complete TLS 1.3 with a server that has only a
 *   self-signed certificate. So both ends use SSL_VERIFY_PEER with an empty
 *   trust store, and check SSL_session_reused() after the handshake, which is
 *   true only for a handshake with the pre-shared key.
 * - Only TLS 1.3, one suite (its SHA-256 is the hash of the keys), always with
 *   an ephemeral key exchange (forward secrecy).
 * - No tickets and no cache: every connection proves the key again. No early
 *   data: it could be replayed.
 *
 * A custom BIO reads from the caller's input and writes to its buffer: the only
 * memory per link is OpenSSL's state, whose empty record buffers are released.
 */
#include "wire/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

#define SUITE "TLS_AES_128_GCM_SHA256"
#define RECORD_HEADER 5u /* type, version (two bytes), length (two bytes, big-endian) */
#define RECORD_HANDSHAKE 22
#define RECORD_MAJOR 3

struct hy_tls_context {
    SSL_CTX *client, *server;
    BIO_METHOD *method;
    hy_net_key_fn key_of;
    void *arg;
};

struct hy_tls {
    struct hy_tls_context *context;
    SSL *ssl;
    const uint8_t *in; /* input that is not read yet */
    size_t in_len;
    struct hy_buf *out;       /* the caller's, during a call */
    uint8_t key[HY_KEY_SIZE]; /* client: until the handshake is complete */
    char identity[HY_IDENTITY_MAX + 1];
    const char *why;
    bool refused; /* see hy_tls_refused */
};

/* ---- the BIO ------------------------------------------------------------- */

static int bio_read(BIO *b, char *to, int want)
{
    struct hy_tls *t = BIO_get_data(b);
    size_t n = want < 0 ? 0 : (size_t)want;

    BIO_clear_retry_flags(b);
    if (n > t->in_len)
        n = t->in_len;
    if (n == 0) {
        BIO_set_retry_read(b);
        return -1;
    }
    memcpy(to, t->in, n);
    t->in += n;
    t->in_len -= n;
    return (int)n;
}

static int bio_write(BIO *b, const char *from, int n)
{
    struct hy_tls *t = BIO_get_data(b);

    BIO_clear_retry_flags(b);
    if (n <= 0 || !t->out)
        return n == 0 ? 0 : -1;
    return hy_buf_append(t->out, from, (size_t)n) < 0 ? -1 : n;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
    (void)b;
    (void)num;
    (void)ptr;
    return cmd == BIO_CTRL_FLUSH; /* nothing is buffered; other commands are not supported */
}

static BIO_METHOD *make_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hopyard");

    if (m && BIO_meth_set_read(m, bio_read) && BIO_meth_set_write(m, bio_write) && BIO_meth_set_ctrl(m, bio_ctrl))
        return m;
    BIO_meth_free(m);
    return NULL;
}

/* ---- keys ------------------------------------------------------------------ */

static SSL_SESSION *session_of_key(SSL *ssl, const uint8_t key[HY_KEY_SIZE])
{
    static const uint8_t suite[2] = {0x13, 0x01};
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *s = cipher ? SSL_SESSION_new() : NULL;

    if (s && SSL_SESSION_set1_master_key(s, key, HY_KEY_SIZE) && SSL_SESSION_set_cipher(s, cipher) &&
        SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
        return s;
    SSL_SESSION_free(s);
    return NULL;
}

static int use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len, SSL_SESSION **ret)
{
    struct hy_tls *t = SSL_get_app_data(ssl);

    if (md && !EVP_MD_is_a(md, "SHA256"))
        return 0;
    *ret = session_of_key(ssl, t->key);
    *id = (const unsigned char *)t->identity;
    *id_len = strlen(t->identity);
    return *ret != NULL;
}

/* The identity is only a claim until the handshake is complete. */
static int find_session(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **ret)
{
    struct hy_tls *t = SSL_get_app_data(ssl);
    uint8_t key[HY_KEY_SIZE];

    *ret = NULL;
    if (id_len == 0 || id_len > HY_IDENTITY_MAX || memchr(id, 0, id_len)) {
        t->why = "invalid identity";
        return 0;
    }
    memcpy(t->identity, id, id_len);
    t->identity[id_len] = '\0';
    if (!t->context->key_of || t->context->key_of(t->context->arg, t->identity, key) < 0) {
        t->why = "unknown identity";
        return 0;
    }
    *ret = session_of_key(ssl, key);
    OPENSSL_cleanse(key, sizeof key);
    return *ret != NULL;
}

int64_t hy_tls_hello_size(const uint8_t *bytes, size_t n, const char **ret_why)
{
    size_t size;

    if ((n > 0 && bytes[0] != RECORD_HANDSHAKE) || (n > 1 && bytes[1] != RECORD_MAJOR)) {
        *ret_why = "not TLS";
        return -EPROTO;
    }
    if (n < RECORD_HEADER)
        return 0;
    size = RECORD_HEADER + ((size_t)bytes[3] << 8 | bytes[4]);
    if (size == RECORD_HEADER || size > HY_TLS_HELLO_MAX) {
        *ret_why = "ClientHello too long or empty";
        return -EPROTO;
    }
    return (int64_t)size;
}

/* ---- contexts ----------------------------------------------------------------- */

static SSL_CTX *make_ctx(const SSL_METHOD *method, int verify)
{
    SSL_CTX *c = SSL_CTX_new(method);

    if (!c)
        return NULL;
    SSL_CTX_set_verify(c, verify, NULL);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
    if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) && SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) &&
        SSL_CTX_set_ciphersuites(c, SUITE) && SSL_CTX_set1_groups_list(c, "X25519:P-256") &&
        SSL_CTX_set_num_tickets(c, 0) && SSL_CTX_set_max_early_data(c, 0) && SSL_CTX_set_recv_max_early_data(c, 0))
        return c;
    SSL_CTX_free(c);
    return NULL;
}

struct hy_tls_context *hy_tls_context_new(void)
{
    struct hy_tls_context *c = hy_calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->method = make_method();
    c->client = make_ctx(TLS_client_method(), SSL_VERIFY_PEER);
    c->server = make_ctx(TLS_server_method(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT);
    /* A server that verifies peers refuses sessions unless it has set a session ID context. */
    if (!c->method || !c->client || !c->server ||
        !SSL_CTX_set_session_id_context(c->server, (const unsigned char *)"hopyard", 7)) {
        hy_tls_context_free(c);
        return NULL;
    }
    SSL_CTX_set_psk_use_session_callback(c->client, use_session);
    SSL_CTX_set_psk_find_session_callback(c->server, find_session);
    return c;
}

void hy_tls_context_free(struct hy_tls_context *c)
{
    if (!c)
        return;
    SSL_CTX_free(c->client);
    SSL_CTX_free(c->server);
    BIO_meth_free(c->method);
    free(c);
}

void hy_tls_context_set_keys(struct hy_tls_context *c, hy_net_key_fn key_of, void *arg)
{
    c->key_of = key_of;
    c->arg = arg;
}

/* ---- links ---------------------------------------------------------------------- */

static struct hy_tls *tls_new(struct hy_tls_context *c, SSL_CTX *ctx)
{
    struct hy_tls *t = hy_calloc(1, sizeof *t);
    BIO *b = t ? BIO_new(c->method) : NULL;

    if (b) {
        t->context = c;
        t->ssl = SSL_new(ctx);
        BIO_set_data(b, t);
        BIO_set_init(b, 1);
    }
    if (!t || !b || !t->ssl) {
        BIO_free(b);
        hy_tls_free(t);
        return NULL;
    }
    SSL_set_app_data(t->ssl, t);
    SSL_set_bio(t->ssl, b, b);
    return t;
}

struct hy_tls *hy_tls_new_client(struct hy_tls_context *c, const char *identity, const uint8_t key[HY_KEY_SIZE])
{
    struct hy_tls *t = tls_new(c, c->client);

    if (!t)
        return NULL;
    memcpy(t->key, key, HY_KEY_SIZE);
    strncpy(t->identity, identity, HY_IDENTITY_MAX);
    SSL_set_connect_state(t->ssl);
    return t;
}

struct hy_tls *hy_tls_new_server(struct hy_tls_context *c)
{
    struct hy_tls *t = tls_new(c, c->server);

    if (t)
        SSL_set_accept_state(t->ssl);
    return t;
}

void hy_tls_free(struct hy_tls *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    OPENSSL_cleanse(t->key, sizeof t->key);
    free(t);
}

void hy_tls_feed(struct hy_tls *t, const uint8_t *bytes, size_t n)
{
    t->in = bytes;
    t->in_len = n;
}

/* An alert of the peer, or its certificate; but not an internal error of the peer. */
static bool is_refusal(unsigned long error)
{
    int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;

    return reason == SSL_R_CERTIFICATE_VERIFY_FAILED ||
           (reason > SSL_AD_REASON_OFFSET && reason != SSL_AD_REASON_OFFSET + SSL_AD_INTERNAL_ERROR);
}

/* Converts OpenSSL's result, and keeps its reason for the log. */
static int result_of(struct hy_tls *t, int rc)
{
    const char *reason;

    switch (SSL_get_error(t->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return -EPIPE;
    default:
        reason = ERR_reason_error_string(ERR_peek_last_error());
        if (!t->why)
            t->why = reason ? reason : "broken TLS";
        t->refused = is_refusal(ERR_peek_last_error());
        ERR_clear_error();
        return -EPROTO;
    }
}

int hy_tls_handshake(struct hy_tls *t, struct hy_buf *out)
{
    int rc;

    t->out = out;
    ERR_clear_error();
    rc = SSL_do_handshake(t->ssl);
    if (rc <= 0) {
        rc = result_of(t, rc);
        t->out = NULL;
        return rc == -EPIPE ? -EPROTO : rc;
    }
    t->out = NULL;
    OPENSSL_cleanse(t->key, sizeof t->key);
    if (SSL_session_reused(t->ssl) && t->identity[0])
        return 1;
    t->why = "the peer has not proven the key";
    t->refused = true;
    return -EPROTO;
}

int hy_tls_read(struct hy_tls *t, uint8_t *bytes, size_t n, struct hy_buf *out)
{
    int rc;

    t->out = out;
    ERR_clear_error();
    rc = SSL_read(t->ssl, bytes, (int)n);
    if (rc <= 0)
        rc = result_of(t, rc);
    t->out = NULL;
    return rc;
}

int hy_tls_write(struct hy_tls *t, const uint8_t *bytes, size_t n, struct hy_buf *out)
{
    int rc;

    t->out = out;
    ERR_clear_error();
    rc = n ? SSL_write(t->ssl, bytes, (int)n) : 1;
    rc = rc > 0 ? 0 : result_of(t, rc);
    t->out = NULL;
    return rc < 0 ? -EPROTO : 0;
}

void hy_tls_close(struct hy_tls *t, struct hy_buf *out)
{
    t->out = out;
    ERR_clear_error();
    (void)SSL_shutdown(t->ssl);
    ERR_clear_error();
    t->out = NULL;
}

const char *hy_tls_identity(const struct hy_tls *t)
{
    return t->identity;
}

bool hy_tls_refused(const struct hy_tls *t)
{
    return t->refused;
}

const char *hy_tls_why(const struct hy_tls *t)
{
    return t->why ? t->why : "broken TLS";
}
