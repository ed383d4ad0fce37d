/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DIGEST-MD5 (RFC 2831), the mechanism for tokens: both sides prove that they know a
 * password by a hash over it and two nonces.
 *
 *     server    realm="default",nonce="…",qop="auth,auth-int",charset=utf-8,algorithm=md5-sess
 *     client    username="…",realm="default",nonce="…",nc=00000001,cnonce="…",digest-uri="/default",
 *               maxbuf=16777215,response=32 hexadecimal digits,qop=auth-int
 *     server    rspauth=32 hexadecimal digits, which prove that it knows the password
 *
 * A wrapped message (for privacy the first two parts are encrypted by RC4, whose state continues):
 *
 *     data   10 bytes of HMAC-MD5 over number and data   0 1   number: 4 bytes, from 0
 */
#include "hdfs/security/sasl_digest_md5.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "hdfs/security/md5.h"
#include "hdfs/security/sasl_mechanism.h"

#define MAC_SIZE 10u
#define TAIL_SIZE (MAC_SIZE + 2 + 4)
#define MAXBUF_MIN 64u
#define OWN_NONCE 18u /* bytes; 24 digits of base64 */

/* ---- challenges ---------------------------------------------------------- */

struct pair {
    char name[32], value[HY_HDFS_DIGEST_TEXT_MAX];
};

static size_t skip_blanks(const char *at, size_t n)
{
    size_t i = 0;

    while (i < n && (at[i] == ',' || isspace((unsigned char)at[i])))
        i++;
    return i;
}

/* A quoted value; *at is after the opening quote. */
static int take_quoted(const char **at, size_t *n, char *out)
{
    size_t length = 0;

    for (; *n && **at != '"'; (*at)++, (*n)--) {
        if (**at == '\\' && *n > 1) {
            (*at)++;
            (*n)--;
        }
        if (length + 1 == HY_HDFS_DIGEST_TEXT_MAX || **at == '\0')
            return -EPROTO;
        out[length++] = **at;
    }
    if (*n == 0)
        return -EPROTO;
    out[length] = '\0';
    (*at)++;
    (*n)--;
    return 0;
}

/* Characters up to one of `ends`. */
static int take_word(const char **at, size_t *n, const char *ends, char *out, size_t size)
{
    size_t length = 0;

    while (*n && **at && !strchr(ends, **at)) {
        if (length + 1 == size)
            return -EPROTO;
        out[length++] = **at;
        (*at)++;
        (*n)--;
    }
    out[length] = '\0';
    return length ? 0 : -EPROTO;
}

/* name=value or name="value". 1, 0 at the end, or -EPROTO. */
static int take_pair(const char **at, size_t *n, struct pair *ret)
{
    const size_t blanks = skip_blanks(*at, *n);
    int rc;

    *at += blanks;
    *n -= blanks;
    if (*n == 0)
        return 0;
    rc = take_word(at, n, "=, \t\r\n\"", ret->name, sizeof(ret->name));
    if (rc < 0 || *n < 2 || **at != '=')
        return -EPROTO;
    (*at)++;
    (*n)--;
    if (**at == '"') {
        (*at)++;
        (*n)--;
        rc = take_quoted(at, n, ret->value);
    } else {
        rc = take_word(at, n, ", \t\r\n\"", ret->value, sizeof(ret->value));
    }
    return rc < 0 ? rc : 1;
}

static bool has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);

    while (*(list += strspn(list, ", \t"))) {
        const size_t n = strcspn(list, ", \t");

        if (n == length && strncasecmp(list, word, n) == 0)
            return true;
        list += n;
    }
    return false;
}

static unsigned qops_of(const char *list)
{
    return (has_word(list, "auth") ? (unsigned)HY_HDFS_QOP_AUTH : 0) |
           (has_word(list, "auth-int") ? (unsigned)HY_HDFS_QOP_INTEGRITY : 0) |
           (has_word(list, "auth-conf") ? (unsigned)HY_HDFS_QOP_PRIVACY : 0);
}

static int set_text(char *to, size_t size, const char *value)
{
    if (*to || strlen(value) >= size)
        return -EPROTO; /* a repeated directive */
    strcpy(to, value);
    return 0;
}

static int take(struct hy_hdfs_digest_challenge *c, const struct pair *p)
{
    uint64_t number;

    if (strcasecmp(p->name, "nonce") == 0)
        return set_text(c->nonce, sizeof(c->nonce), p->value);
    if (strcasecmp(p->name, "rspauth") == 0)
        return set_text(c->rspauth, sizeof(c->rspauth), p->value);
    if (strcasecmp(p->name, "realm") == 0 && !*c->realm)
        return set_text(c->realm, sizeof(c->realm), p->value);
    if (strcasecmp(p->name, "qop") == 0) {
        c->qops = qops_of(p->value);
    } else if (strcasecmp(p->name, "cipher") == 0) {
        c->has_rc4 = has_word(p->value, "rc4");
    } else if (strcasecmp(p->name, "algorithm") == 0) {
        c->is_md5_sess = strcasecmp(p->value, "md5-sess") == 0;
    } else if (strcasecmp(p->name, "maxbuf") == 0) {
        if (hy_parse_u64(p->value, &number) < 0 || number > HY_HDFS_SASL_WRAPPED_MAX)
            return -EPROTO;
        c->max = (uint32_t)number;
    }
    return 0; /* ignores other directives */
}

int hy_hdfs_digest_parse(const uint8_t *bytes, size_t n, struct hy_hdfs_digest_challenge *ret)
{
    struct hy_hdfs_digest_challenge c = {.qops = HY_HDFS_QOP_AUTH, .max = 65536};
    const char *at = n ? (const char *)bytes : ""; /* an empty challenge may be NULL */
    struct pair p;
    int rc;

    while ((rc = take_pair(&at, &n, &p)) > 0) {
        rc = take(&c, &p);
        if (rc < 0)
            return rc;
    }
    if (rc == 0)
        *ret = c;
    return rc;
}

/* ---- hashes ------------------------------------------------------------------------ */

struct direction {
    uint8_t key[HY_HDFS_MD5_SIZE]; /* for signing */
    struct hy_hdfs_hmac_md5 hmac;  /* initialized with it */
    struct hy_hdfs_rc4 rc4;
    uint32_t number; /* of the next message */
};

struct digest {
    struct hy_hdfs_sasl base;
    char *user, *password, *uri, *nonce;
    bool has_responded;
    char expected[33]; /* rspauth */
    struct direction out, in;
};

static void hash_text(struct hy_hdfs_md5 *m, const char *text)
{
    hy_hdfs_md5_add(m, text, strlen(text));
}

static void to_hex(const uint8_t bytes[HY_HDFS_MD5_SIZE], char out[33])
{
    for (size_t i = 0; i < HY_HDFS_MD5_SIZE; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* H(A1) of the RFC: the secret of this exchange. */
static void hash_secret(const struct digest *d, const struct hy_hdfs_digest_challenge *c, uint8_t out[HY_HDFS_MD5_SIZE])
{
    struct hy_hdfs_md5 m;

    hy_hdfs_md5_init(&m);
    hash_text(&m, d->user);
    hash_text(&m, ":");
    hash_text(&m, c->realm);
    hash_text(&m, ":");
    hash_text(&m, d->password);
    hy_hdfs_md5_end(&m, out);
    hy_hdfs_md5_init(&m);
    hy_hdfs_md5_add(&m, out, HY_HDFS_MD5_SIZE);
    hash_text(&m, ":");
    hash_text(&m, c->nonce);
    hash_text(&m, ":");
    hash_text(&m, d->nonce);
    hy_hdfs_md5_end(&m, out);
}

static const char *word_of(enum hy_hdfs_qop q)
{
    return q == HY_HDFS_QOP_AUTH ? "auth" : q == HY_HDFS_QOP_INTEGRITY ? "auth-int" : "auth-conf";
}

/* The proof of one side; `method` is "AUTHENTICATE" for the client and "" for the server. */
static void prove(const struct digest *d, const struct hy_hdfs_digest_challenge *c,
                  const uint8_t secret[HY_HDFS_MD5_SIZE], const char *method, char out[33])
{
    uint8_t hash[HY_HDFS_MD5_SIZE];
    char hex[33];
    struct hy_hdfs_md5 m;

    hy_hdfs_md5_init(&m);
    hash_text(&m, method);
    hash_text(&m, ":");
    hash_text(&m, d->uri);
    if (d->base.qop != HY_HDFS_QOP_AUTH)
        hash_text(&m, ":00000000000000000000000000000000");
    hy_hdfs_md5_end(&m, hash);

    hy_hdfs_md5_init(&m);
    to_hex(secret, hex);
    hash_text(&m, hex);
    hash_text(&m, ":");
    hash_text(&m, c->nonce);
    hash_text(&m, ":00000001:");
    hash_text(&m, d->nonce);
    hash_text(&m, ":");
    hash_text(&m, word_of(d->base.qop));
    hash_text(&m, ":");
    to_hex(hash, hex);
    hash_text(&m, hex);
    hy_hdfs_md5_end(&m, hash);
    to_hex(hash, out);
}

static void derive(const uint8_t secret[HY_HDFS_MD5_SIZE], const char *purpose, uint8_t out[HY_HDFS_MD5_SIZE])
{
    struct hy_hdfs_md5 m;

    hy_hdfs_md5_init(&m);
    hy_hdfs_md5_add(&m, secret, HY_HDFS_MD5_SIZE);
    hash_text(&m, purpose);
    hy_hdfs_md5_end(&m, out);
}

static void set_direction(struct direction *d, const uint8_t secret[HY_HDFS_MD5_SIZE], const char *signing,
                          const char *sealing)
{
    uint8_t key[HY_HDFS_MD5_SIZE];

    derive(secret, signing, d->key);
    hy_hdfs_hmac_md5_init(&d->hmac, d->key, sizeof(d->key));
    derive(secret, sealing, key);
    hy_hdfs_rc4_init(&d->rc4, key, sizeof(key));
}

static void set_keys(struct digest *d, const uint8_t secret[HY_HDFS_MD5_SIZE])
{
    set_direction(&d->out, secret, "Digest session key to client-to-server signing key magic constant",
                  "Digest H(A1) to client-to-server sealing key magic constant");
    set_direction(&d->in, secret, "Digest session key to server-to-client signing key magic constant",
                  "Digest H(A1) to server-to-client sealing key magic constant");
}

/* ---- the exchange ------------------------------------------------------------------ */

static int append_quoted(struct hy_buf *b, const char *name, const char *value)
{
    int rc = hy_buf_printf(b, "%s=\"", name);

    for (; rc == 0 && *value; value++) {
        if (*value == '"' || *value == '\\')
            rc = hy_buf_append(b, "\\", 1);
        if (rc == 0)
            rc = hy_buf_append(b, value, 1);
    }
    return rc < 0 ? rc : hy_buf_append(b, "\",", 2);
}

static int append_response(const struct digest *d, const struct hy_hdfs_digest_challenge *c, const char *proof,
                           struct hy_buf *b)
{
    int rc = hy_buf_append_str(b, "charset=utf-8,");

    if (rc == 0)
        rc = append_quoted(b, "username", d->user);
    if (rc == 0 && *c->realm)
        rc = append_quoted(b, "realm", c->realm);
    if (rc == 0)
        rc = append_quoted(b, "nonce", c->nonce);
    if (rc == 0)
        rc = append_quoted(b, "cnonce", d->nonce);
    if (rc == 0)
        rc = append_quoted(b, "digest-uri", d->uri);
    if (rc == 0 && d->base.qop != HY_HDFS_QOP_AUTH)
        rc = hy_buf_printf(b, "maxbuf=%u,", HY_HDFS_SASL_WRAPPED_MAX);
    if (rc == 0 && d->base.qop == HY_HDFS_QOP_PRIVACY)
        rc = hy_buf_append_str(b, "cipher=\"rc4\",");
    return rc < 0 ? rc : hy_buf_printf(b, "nc=00000001,qop=%s,response=%s", word_of(d->base.qop), proof);
}

static int respond(struct digest *d, const struct hy_hdfs_digest_challenge *c, struct hy_buf *response,
                   struct hy_err *err)
{
    uint8_t secret[HY_HDFS_MD5_SIZE];
    char proof[33];
    int rc;

    if (!*c->nonce || !c->is_md5_sess)
        return hy_err_set(err, -EPROTO, "the server's challenge (DIGEST-MD5) has %s",
                          *c->nonce ? "an algorithm that is not md5-sess" : "no nonce");
    rc = hy_hdfs_sasl_negotiate_qop(&d->base, c->qops, err);
    if (rc < 0)
        return rc;
    if (d->base.qop == HY_HDFS_QOP_PRIVACY && !c->has_rc4)
        return hy_err_set(err, -ENOTSUP,
                          "the server's ciphers for privacy (DIGEST-MD5) do not include rc4, the one"
                          " that hopyard supports");
    if (d->base.qop != HY_HDFS_QOP_AUTH && c->max < MAXBUF_MIN)
        return hy_err_set(err, -EPROTO, "the server accepts messages of at most %u bytes only", c->max);
    d->base.wrap_max = c->max - (c->max > TAIL_SIZE ? TAIL_SIZE : c->max);
    hash_secret(d, c, secret);
    prove(d, c, secret, "AUTHENTICATE", proof);
    prove(d, c, secret, "", d->expected);
    set_keys(d, secret);
    d->has_responded = true;
    rc = append_response(d, c, proof, response);
    return rc < 0 ? hy_err_sys(err, rc, "the response to the server's challenge") : 1;
}

/* In constant time. */
static bool is_same(const void *a, const void *b, size_t n)
{
    const uint8_t *x = a, *y = b;
    uint8_t difference = 0;

    for (size_t i = 0; i < n; i++)
        difference |= x[i] ^ y[i];
    return difference == 0;
}

static int digest_step(struct hy_hdfs_sasl *s, const uint8_t *challenge, size_t n, struct hy_buf *response,
                       struct hy_err *err)
{
    struct digest *d = (struct digest *)s;
    struct hy_hdfs_digest_challenge c;

    if (hy_hdfs_digest_parse(challenge, n, &c) < 0)
        return hy_err_set(err, -EPROTO, "invalid challenge (DIGEST-MD5) from the server");
    if (!d->has_responded)
        return respond(d, &c, response, err);
    if (!is_same(c.rspauth, d->expected, sizeof(c.rspauth)))
        return hy_err_set(err, -EACCES,
                          "the server did not prove that it knows the token's password; it may be an"
                          " impostor");
    s->is_done = true;
    return 0;
}

/* ---- wrapped messages -------------------------------------------------------------------- */

static void sign(const struct direction *d, const uint8_t number[4], const void *bytes, size_t n,
                 uint8_t out[HY_HDFS_MD5_SIZE])
{
    struct hy_hdfs_hmac_md5 h = d->hmac;

    hy_hdfs_hmac_md5_add(&h, number, 4);
    hy_hdfs_hmac_md5_add(&h, bytes, n);
    hy_hdfs_hmac_md5_end(&h, out);
}

static int digest_wrap(struct hy_hdfs_sasl *s, const void *bytes, size_t n, struct hy_buf *out)
{
    struct direction *d = &((struct digest *)s)->out;
    uint8_t *to = hy_buf_reserve(out, n + TAIL_SIZE), number[4], mac[HY_HDFS_MD5_SIZE];

    if (!to)
        return -ENOMEM;
    hy_put_be(number, d->number++, 4);
    sign(d, number, bytes, n, mac);
    if (n)
        memcpy(to, bytes, n);
    memcpy(to + n, mac, MAC_SIZE);
    if (s->qop == HY_HDFS_QOP_PRIVACY)
        hy_hdfs_rc4_apply(&d->rc4, to, n + MAC_SIZE);
    memcpy(to + n + MAC_SIZE, "\0\1", 2);
    memcpy(to + n + MAC_SIZE + 2, number, 4);
    hy_buf_added(out, n + TAIL_SIZE);
    return 0;
}

static int64_t digest_unwrap(struct hy_hdfs_sasl *s, uint8_t *token, size_t n)
{
    struct direction *d = &((struct digest *)s)->in;
    uint8_t tail[6] = {0, 1}, mac[HY_HDFS_MD5_SIZE];

    if (n < TAIL_SIZE)
        return -EBADMSG;
    n -= TAIL_SIZE;
    hy_put_be(tail + 2, d->number++, 4);
    if (memcmp(token + n + MAC_SIZE, tail, sizeof(tail)) != 0)
        return -EBADMSG;
    if (s->qop == HY_HDFS_QOP_PRIVACY)
        hy_hdfs_rc4_apply(&d->rc4, token, n + MAC_SIZE);
    sign(d, tail + 2, token, n, mac);
    return is_same(mac, token + n, MAC_SIZE) ? (int64_t)n : -EBADMSG;
}

/* ---- new and free -------------------------------------------------------------------------- */

static void destroy(struct digest *d)
{
    if (d->password)
        explicit_bzero(d->password, strlen(d->password));
    free(d->user);
    free(d->password);
    free(d->uri);
    free(d->nonce);
    explicit_bzero(d, sizeof(*d));
    free(d);
}

static void digest_free(struct hy_hdfs_sasl *s)
{
    destroy((struct digest *)s);
}

static char *new_nonce(void)
{
    uint8_t bytes[OWN_NONCE];

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return NULL;
    return hy_hdfs_base64(bytes, sizeof(bytes));
}

struct hy_hdfs_sasl *hy_hdfs_sasl_digest_new(const struct hy_hdfs_digest_login *login, const struct hy_hdfs_qops *qops)
{
    static const struct hy_hdfs_sasl_ops ops = {digest_step, digest_wrap, digest_unwrap, digest_free};
    struct digest *d = hy_calloc(1, sizeof(*d));

    if (!d)
        return NULL;
    d->base.ops = &ops;
    d->base.qops = *qops;
    d->user = hy_strdup(login->user);
    d->password = hy_strdup(login->password);
    d->uri = hy_asprintf("%s/%s", login->protocol, login->server);
    d->nonce = login->nonce ? hy_strdup(login->nonce) : new_nonce();
    if (d->user && d->password && d->uri && d->nonce)
        return &d->base;
    destroy(d);
    return NULL;
}
