/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server side of SASL: for DIGEST-MD5 it has the password from the client's constructor, and GSSAPI is a fake
 * library whose tokens select its results.
 *
 *     token of init_sec_context    0 complete, 1 continue, 2 complete but not mutual, others fail: see `failures`
 *     wrapped message              0 private, 1 plain, 2 out of order, others fail; then the bytes
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "hdfs/security/sasl_digest_md5.h"
#include "hdfs/security/gssapi.h"
#include "hdfs/security/md5.h"
#include "hdfs/security/sasl.h"
#include "scripted.h"

#define OUR_NONCE "our-nonce"

struct hy_played {
    enum hy_played_kind kind;
    const struct hy_hdfs_sasl *client;
    char user[2048], password[2048], uri[600];
    char proof[64];
    bool has_keys;
    enum hy_hdfs_qop qop;
    struct hy_hdfs_hmac_md5 hmac;
    struct hy_hdfs_rc4 rc4;
    uint32_t number;
};

static struct hy_played played;

struct hy_hdfs_sasl *__real_hy_hdfs_sasl_digest_new(const struct hy_hdfs_digest_login *login,
                                                    const struct hy_hdfs_qops *qops);
struct hy_hdfs_sasl *__wrap_hy_hdfs_sasl_digest_new(const struct hy_hdfs_digest_login *login,
                                                    const struct hy_hdfs_qops *qops);
struct hy_hdfs_sasl *__real_hy_hdfs_sasl_gssapi_new(const char *principal, const struct hy_hdfs_qops *qops,
                                                    struct hy_err *err);
struct hy_hdfs_sasl *__wrap_hy_hdfs_sasl_gssapi_new(const char *principal, const struct hy_hdfs_qops *qops,
                                                    struct hy_err *err);
int __real_hy_hdfs_sasl_step(struct hy_hdfs_sasl *s, const uint8_t *challenge, size_t n, struct hy_buf *response,
                             struct hy_err *err);
int __wrap_hy_hdfs_sasl_step(struct hy_hdfs_sasl *s, const uint8_t *challenge, size_t n, struct hy_buf *response,
                             struct hy_err *err);
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);

/* ---- DIGEST-MD5 ---- */

static void hash(uint8_t out[HY_HDFS_MD5_SIZE], const void *first, size_t n, const char *rest)
{
    struct hy_hdfs_md5 m;

    hy_hdfs_md5_init(&m);
    hy_hdfs_md5_add(&m, first, n);
    hy_hdfs_md5_add(&m, rest, strlen(rest));
    hy_hdfs_md5_end(&m, out);
}

static void hex_of(const uint8_t bytes[HY_HDFS_MD5_SIZE], char out[33])
{
    for (size_t i = 0; i < HY_HDFS_MD5_SIZE; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static void set_keys(struct hy_played *p, const uint8_t secret[HY_HDFS_MD5_SIZE])
{
    uint8_t key[HY_HDFS_MD5_SIZE];

    hash(key, secret, HY_HDFS_MD5_SIZE, "Digest session key to server-to-client signing key magic constant");
    hy_hdfs_hmac_md5_init(&p->hmac, key, sizeof(key));
    hash(key, secret, HY_HDFS_MD5_SIZE, "Digest H(A1) to server-to-client sealing key magic constant");
    hy_hdfs_rc4_init(&p->rc4, key, sizeof(key));
    p->number = 0;
}

/* RFC 2831, the counterpart of sasl_digest_md5.c. */
static void prove(struct hy_played *p, const struct hy_hdfs_digest_challenge *c)
{
    static const char *const words[] = {
        [HY_HDFS_QOP_AUTH] = "auth", [HY_HDFS_QOP_INTEGRITY] = "auth-int", [HY_HDFS_QOP_PRIVACY] = "auth-conf"};
    char text[6000], secret_hex[33], uri_hex[33];
    uint8_t sum[HY_HDFS_MD5_SIZE], secret[HY_HDFS_MD5_SIZE];

    snprintf(text, sizeof(text), "%s:%s:%s", p->user, c->realm, p->password);
    hash(sum, text, strlen(text), "");
    snprintf(text, sizeof(text), ":%s:%s", c->nonce, OUR_NONCE);
    hash(secret, sum, sizeof(sum), text);
    hex_of(secret, secret_hex);
    snprintf(text, sizeof(text), ":%s%s", p->uri,
             p->qop == HY_HDFS_QOP_AUTH ? "" : ":00000000000000000000000000000000");
    hash(sum, text, strlen(text), "");
    hex_of(sum, uri_hex);
    snprintf(text, sizeof(text), "%s:%s:00000001:%s:%s:%s", secret_hex, c->nonce, OUR_NONCE, words[p->qop], uri_hex);
    hash(sum, text, strlen(text), "");
    hex_of(sum, secret_hex);
    snprintf(p->proof, sizeof(p->proof), "rspauth=%s", secret_hex);
    set_keys(p, secret);
    p->has_keys = true;
}

struct hy_hdfs_sasl *__wrap_hy_hdfs_sasl_digest_new(const struct hy_hdfs_digest_login *login,
                                                    const struct hy_hdfs_qops *qops)
{
    struct hy_hdfs_digest_login known = *login;
    struct hy_hdfs_sasl *s;

    known.nonce = OUR_NONCE;
    s = __real_hy_hdfs_sasl_digest_new(&known, qops);
    played = (struct hy_played){.kind = HY_PLAYED_DIGEST, .client = s};
    snprintf(played.user, sizeof(played.user), "%s", login->user);
    snprintf(played.password, sizeof(played.password), "%s", login->password);
    snprintf(played.uri, sizeof(played.uri), "%s/%s", login->protocol, login->server);
    return s;
}

struct hy_hdfs_sasl *__wrap_hy_hdfs_sasl_gssapi_new(const char *principal, const struct hy_hdfs_qops *qops,
                                                    struct hy_err *err)
{
    struct hy_hdfs_sasl *s = __real_hy_hdfs_sasl_gssapi_new(principal, qops, err);

    played = (struct hy_played){.kind = HY_PLAYED_GSSAPI, .client = s};
    return s;
}

int __wrap_hy_hdfs_sasl_step(struct hy_hdfs_sasl *s, const uint8_t *challenge, size_t n, struct hy_buf *response,
                             struct hy_err *err)
{
    const int rc = __real_hy_hdfs_sasl_step(s, challenge, n, response, err);
    struct hy_hdfs_digest_challenge c;

    if (s != played.client)
        return rc;
    played.qop = hy_hdfs_sasl_qop(s);
    if (rc == 1 && played.kind == HY_PLAYED_DIGEST && !played.has_keys && hy_hdfs_digest_parse(challenge, n, &c) == 0)
        prove(&played, &c);
    return rc;
}

/* ---- negotiated protection ---- */

struct hy_played *hy_played_take(void)
{
    struct hy_played *p = played.kind ? malloc(sizeof(*p)) : NULL;

    if (p)
        *p = played;
    return p;
}

void hy_played_forget(void)
{
    played = (struct hy_played){0};
}

enum hy_played_kind hy_played_kind(const struct hy_played *p)
{
    return p ? p->kind : HY_PLAYED_NONE;
}

const char *hy_played_proof(const struct hy_played *p)
{
    return p ? p->proof : "";
}

bool hy_played_wraps(const struct hy_played *p)
{
    return p && p->qop > HY_HDFS_QOP_AUTH && (p->kind == HY_PLAYED_GSSAPI || p->has_keys);
}

static void append(struct hy_buf *b, const void *bytes, size_t n)
{
    if (hy_buf_append(b, bytes, n) < 0)
        abort();
}

static void wrap_digest(struct hy_played *p, const uint8_t *bytes, size_t n, struct hy_buf *out)
{
    const uint8_t tail[6] = {
        0, 1, (uint8_t)(p->number >> 24), (uint8_t)(p->number >> 16), (uint8_t)(p->number >> 8), (uint8_t)p->number};
    struct hy_hdfs_hmac_md5 h = p->hmac;
    const size_t begin = out->len;
    uint8_t mac[HY_HDFS_MD5_SIZE];

    hy_hdfs_hmac_md5_add(&h, tail + 2, 4);
    hy_hdfs_hmac_md5_add(&h, bytes, n);
    hy_hdfs_hmac_md5_end(&h, mac);
    append(out, bytes, n);
    append(out, mac, 10);
    if (p->qop == HY_HDFS_QOP_PRIVACY)
        hy_hdfs_rc4_apply(&p->rc4, (uint8_t *)hy_buf_bytes(out) + begin, n + 10);
    append(out, tail, sizeof(tail));
    p->number++;
}

void hy_played_wrap(struct hy_played *p, const void *bytes, size_t n, struct hy_buf *out)
{
    if (p->kind == HY_PLAYED_DIGEST) {
        wrap_digest(p, bytes, n, out);
        return;
    }
    append(out, "", 1);
    append(out, bytes, n);
}

/* ---- GSSAPI ---- */

static const struct {
    uint32_t major, minor;
} failures[] = {
    {13u << 16, KRB5_TICKET_EXPIRED},
    {GSS_NO_CRED, 0},
    {13u << 16, KRB5_KDC_UNREACHABLE},
    {13u << 16, KRB5_SERVER_UNKNOWN},
    {13u << 16, KRB5_CLOCK_SKEW},
    {GSS_CREDENTIALS_EXPIRED, 1},
    {13u << 16, 99},
};

static uint32_t fail(uint32_t *minor, uint8_t how)
{
    const size_t i = how % (sizeof(failures) / sizeof(failures[0]));

    *minor = failures[i].minor;
    return failures[i].major;
}

static void make(struct gss_buffer *out, const void *bytes, size_t n)
{
    out->value = malloc(n ? n : 1);
    if (!out->value)
        abort();
    memcpy(out->value, bytes, n);
    out->length = n;
}

static uint32_t import_name(uint32_t *minor, struct gss_buffer *name, const struct gss_oid *type, gss_name *ret)
{
    (void)type;
    if (memchr(name->value, '!', name->length))
        return fail(minor, 6);
    *ret = (gss_name)name;
    return GSS_COMPLETE;
}

static uint32_t release_name(uint32_t *minor, gss_name *name)
{
    *minor = 0;
    *name = NULL;
    return GSS_COMPLETE;
}

static uint32_t init_sec_context(uint32_t *minor, void *credential, gss_context *context, gss_name target,
                                 const struct gss_oid *mechanism, uint32_t flags, uint32_t time, void *bindings,
                                 struct gss_buffer *in, struct gss_oid **ret_mechanism, struct gss_buffer *out,
                                 uint32_t *ret_flags, uint32_t *ret_time)
{
    const uint8_t how = in && in->length ? *(const uint8_t *)in->value : 1;

    (void)credential, (void)target, (void)mechanism, (void)flags, (void)time, (void)bindings, (void)ret_mechanism,
        (void)ret_time;
    *minor = 0;
    *context = (gss_context)&played;
    if (how > 2)
        return fail(minor, how);
    make(out, "token", 5);
    *ret_flags = how == 2 ? 0 : GSS_MUTUAL;
    return how == 1 ? GSS_CONTINUE : GSS_COMPLETE;
}

static uint32_t delete_sec_context(uint32_t *minor, gss_context *context, struct gss_buffer *out)
{
    (void)out;
    *minor = 0;
    *context = NULL;
    return GSS_COMPLETE;
}

static uint32_t wrap(uint32_t *minor, gss_context context, int is_private, uint32_t quality, struct gss_buffer *in,
                     int *ret_is_private, struct gss_buffer *out)
{
    (void)context, (void)quality;
    *minor = 0;
    make(out, in->value, in->length);
    if (ret_is_private)
        *ret_is_private = is_private;
    return GSS_COMPLETE;
}

static uint32_t unwrap(uint32_t *minor, gss_context context, struct gss_buffer *in, struct gss_buffer *out,
                       int *ret_is_private, uint32_t *ret_quality)
{
    const uint8_t *bytes = in->value;

    (void)context, (void)ret_quality;
    *minor = 0;
    if (in->length == 0 || *bytes > 2)
        return fail(minor, in->length ? *bytes : 0);
    make(out, bytes + 1, in->length - 1);
    if (ret_is_private)
        *ret_is_private = *bytes == 0;
    return *bytes == 2 ? 8u : GSS_COMPLETE; /* out of order */
}

static uint32_t wrap_size_limit(uint32_t *minor, gss_context context, int is_private, uint32_t quality, uint32_t max,
                                uint32_t *ret)
{
    (void)context, (void)is_private, (void)quality;
    if (max == 1)
        return fail(minor, 6);
    *ret = max > 32 ? max - 32 : 0;
    return GSS_COMPLETE;
}

static uint32_t release_buffer(uint32_t *minor, struct gss_buffer *b)
{
    *minor = 0;
    free(b->value);
    *b = (struct gss_buffer){0};
    return GSS_COMPLETE;
}

static uint32_t display_status(uint32_t *minor, uint32_t code, int kind, const struct gss_oid *mechanism,
                               uint32_t *context, struct gss_buffer *ret)
{
    (void)kind, (void)mechanism, (void)context;
    if (code == 99)
        return fail(minor, 0);
    make(ret, "status", 6);
    return GSS_COMPLETE;
}

static char library; /* only its address is used */

void *__wrap_dlopen(const char *name, int flags)
{
    return name && strstr(name, "gssapi") ? &library : __real_dlopen(name, flags);
}

void *__wrap_dlsym(void *handle, const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } all[] = {
        {"gss_import_name", (void *)import_name},
        {"gss_release_name", (void *)release_name},
        {"gss_init_sec_context", (void *)init_sec_context},
        {"gss_delete_sec_context", (void *)delete_sec_context},
        {"gss_wrap", (void *)wrap},
        {"gss_unwrap", (void *)unwrap},
        {"gss_wrap_size_limit", (void *)wrap_size_limit},
        {"gss_release_buffer", (void *)release_buffer},
        {"gss_display_status", (void *)display_status},
    };

    if (handle != &library)
        return __real_dlsym(handle, name);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].function;
    return NULL;
}
