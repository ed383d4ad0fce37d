/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GSSAPI (RFC 4752), the mechanism for Kerberos tickets. Tokens of the library are
 * exchanged until its context is established; then the server sends its options,
 * wrapped, and the client its choice:
 *
 *     1 byte   1 none, 2 integrity, 4 privacy (or-ed; the choice has one)
 *     3 bytes  the maximum length of a wrapped message, big-endian
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "hdfs/security/gssapi.h"
#include "hdfs/security/sasl_mechanism.h"

#define LIBRARY "libgssapi_krb5.so.2"

static const struct gss_oid kerberos = {9, "\x2a\x86\x48\x86\xf7\x12\x01\x02\x02"};
static const struct gss_oid principal_name = {10, "\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01"};

struct gssapi {
    struct hy_hdfs_sasl base;
    gss_name server;
    gss_context context;
    char *principal;
    bool has_context;     /* it is established */
    pthread_mutex_t lock; /* a context is not thread-safe */
};

/* ---- the library ------------------------------------------------------------------- */

static struct gss gss;
static char missing[300]; /* why it cannot be used; "": usable */

static void load(void)
{
    const struct {
        const char *name;
        void *to;
    } entries[] = {
        {"gss_import_name", &gss.import_name},
        {"gss_release_name", &gss.release_name},
        {"gss_init_sec_context", &gss.init_sec_context},
        {"gss_delete_sec_context", &gss.delete_sec_context},
        {"gss_wrap", &gss.wrap},
        {"gss_unwrap", &gss.unwrap},
        {"gss_wrap_size_limit", &gss.wrap_size_limit},
        {"gss_release_buffer", &gss.release_buffer},
        {"gss_display_status", &gss.display_status},
    };
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL); /* never closed */

    if (!library) {
        strncpy(missing, dlerror(), sizeof(missing) - 1);
        return;
    }
    for (size_t i = 0; i < HY_COUNT(entries); i++) {
        void *found = dlsym(library, entries[i].name);

        if (!found)
            strncpy(missing, entries[i].name, sizeof(missing) - 1);
        memcpy(entries[i].to, &found, sizeof(found));
    }
}

static int need_library(struct hy_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    if (!*missing)
        return 0;
    return hy_err_set(err, -ELIBACC, "Kerberos needs the library " LIBRARY ": install libgssapi-krb5-2 (%s)", missing);
}

/* ---- errors --------------------------------------------------------------- */

static void append_status(char *text, size_t size, uint32_t code, int kind)
{
    struct gss_buffer words = {0};
    uint32_t minor, more = 0;
    const size_t n = strlen(text);

    if (code == 0 || GSS_IS_ERROR(gss.display_status(&minor, code, kind, &kerberos, &more, &words)))
        return;
    snprintf(text + n, size - n, "%s%.*s", n ? ": " : "", (int)words.length, (const char *)words.value);
    gss.release_buffer(&minor, &words);
}

static const char *advice(uint32_t major, uint32_t minor)
{
    if (minor == KRB5_TICKET_EXPIRED || (major & 0xff0000) == GSS_CREDENTIALS_EXPIRED)
        return "the Kerberos ticket has expired: run kinit";
    if ((major & 0xff0000) == GSS_NO_CRED)
        return "no Kerberos ticket: run kinit (or set KRB5CCNAME)";
    if (minor == KRB5_KDC_UNREACHABLE)
        return "no Kerberos server responds: check krb5.conf (or set KRB5_CONFIG)";
    if (minor == KRB5_SERVER_UNKNOWN)
        return "unknown to the Kerberos server: check dfs.namenode.kerberos.principal";
    if (minor == KRB5_CLOCK_SKEW)
        return "the clocks of this machine and of the Kerberos server differ";
    return NULL;
}

static int fail(const struct gssapi *g, uint32_t major, uint32_t minor, struct hy_err *err)
{
    const int code = minor == KRB5_KDC_UNREACHABLE ? -EHOSTUNREACH : -EACCES;
    const char *what = advice(major, minor);
    char words[400] = "";

    if (!what)
        append_status(words, sizeof(words), major, GSS_CODE_GSS);
    append_status(words, sizeof(words), minor, GSS_CODE_MECHANISM);
    return what ? hy_err_set(err, code, "%s (%s)", what, words)
                : hy_err_set(err, code, "Kerberos authentication to %s failed: %s", g->principal, words);
}

/* ---- the exchange ------------------------------------------------------------------ */

/* Appends a buffer of the library and frees it. */
static int append_and_release(struct gss_buffer *made, struct hy_buf *out)
{
    uint32_t minor;
    int rc = hy_buf_append(out, made->value, made->length);

    gss.release_buffer(&minor, made);
    return rc;
}

static int build_context(struct gssapi *g, struct gss_buffer *in, struct hy_buf *response, struct hy_err *err)
{
    const uint32_t flags_requested = GSS_MUTUAL | GSS_REPLAY | GSS_SEQUENCE | GSS_INTEG |
                                     (hy_hdfs_qops_has(&g->base.qops, HY_HDFS_QOP_PRIVACY) ? (uint32_t)GSS_CONF : 0);
    struct gss_buffer out = {0};
    uint32_t minor, flags = 0;
    const uint32_t major = gss.init_sec_context(&minor, NULL, &g->context, g->server, &kerberos, flags_requested, 0,
                                                NULL, in->length ? in : NULL, NULL, &out, &flags, NULL);
    int rc = append_and_release(&out, response);

    if (GSS_IS_ERROR(major))
        return fail(g, major, minor, err);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot store a Kerberos token");
    if (major == GSS_COMPLETE && !(flags & GSS_MUTUAL))
        return hy_err_set(err, -EACCES, "%s did not authenticate itself", g->principal);
    g->has_context = major == GSS_COMPLETE;
    return 1;
}

static int set_wrap_max(struct gssapi *g, uint32_t max, struct hy_err *err)
{
    uint32_t minor, wrap_max = 0;

    if (g->base.qop != HY_HDFS_QOP_AUTH &&
        GSS_IS_ERROR(gss.wrap_size_limit(&minor, g->context, g->base.qop == HY_HDFS_QOP_PRIVACY, 0, max, &wrap_max)))
        wrap_max = 0;
    g->base.wrap_max = wrap_max;
    if (g->base.qop != HY_HDFS_QOP_AUTH && wrap_max == 0)
        return hy_err_set(err, -EPROTO, "%s accepts messages of at most %u bytes only", g->principal, max);
    return 0;
}

static int send_choice(struct gssapi *g, struct hy_buf *response, struct hy_err *err)
{
    const uint32_t max = g->base.qop == HY_HDFS_QOP_AUTH ? 0 : HY_HDFS_SASL_WRAPPED_MAX;
    uint8_t choice[4] = {(uint8_t)g->base.qop, (uint8_t)(max >> 16), (uint8_t)(max >> 8), (uint8_t)max};
    struct gss_buffer in = {.length = sizeof(choice), .value = choice}, out = {0};
    uint32_t minor;
    const uint32_t major = gss.wrap(&minor, g->context, 0, 0, &in, NULL, &out);
    int rc;

    if (GSS_IS_ERROR(major))
        return fail(g, major, minor, err);
    rc = append_and_release(&out, response);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot store a Kerberos token");
    g->base.is_done = true;
    return 1;
}

static int choose(struct gssapi *g, struct gss_buffer *in, struct hy_buf *response, struct hy_err *err)
{
    struct gss_buffer offer = {0};
    uint8_t bytes[4] = {0};
    uint32_t minor;
    const uint32_t major = gss.unwrap(&minor, g->context, in, &offer, NULL, NULL);
    int rc = 0;

    if (GSS_IS_ERROR(major))
        return fail(g, major, minor, err);
    if (offer.length == sizeof(bytes))
        memcpy(bytes, offer.value, sizeof(bytes));
    else
        rc = hy_err_set(err, -EPROTO, "the options of %s have %zu bytes instead of 4", g->principal, offer.length);
    gss.release_buffer(&minor, &offer);
    if (rc == 0)
        rc = hy_hdfs_sasl_negotiate_qop(&g->base, bytes[0], err);
    if (rc == 0)
        rc = set_wrap_max(g, (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3], err);
    return rc < 0 ? rc : send_choice(g, response, err);
}

static int gssapi_step(struct hy_hdfs_sasl *s, const uint8_t *challenge, size_t n, struct hy_buf *response,
                       struct hy_err *err)
{
    struct gssapi *g = (struct gssapi *)s;
    struct gss_buffer in = {.length = n, .value = (void *)challenge};

    return g->has_context ? choose(g, &in, response, err) : build_context(g, &in, response, err);
}

/* ---- wrapped messages -------------------------------------------------------------------- */

static int gssapi_wrap(struct hy_hdfs_sasl *s, const void *bytes, size_t n, struct hy_buf *out)
{
    struct gssapi *g = (struct gssapi *)s;
    struct gss_buffer in = {.length = n, .value = (void *)bytes}, made = {0};
    uint32_t major, minor;
    int is_private = 0;

    pthread_mutex_lock(&g->lock);
    major = gss.wrap(&minor, g->context, s->qop == HY_HDFS_QOP_PRIVACY, 0, &in, &is_private, &made);
    pthread_mutex_unlock(&g->lock);
    if (GSS_IS_ERROR(major))
        return -EIO;
    if (s->qop == HY_HDFS_QOP_PRIVACY && !is_private) { /* never send it unencrypted */
        gss.release_buffer(&minor, &made);
        return -EIO;
    }
    return append_and_release(&made, out);
}

static int64_t gssapi_unwrap(struct hy_hdfs_sasl *s, uint8_t *token, size_t n)
{
    struct gssapi *g = (struct gssapi *)s;
    struct gss_buffer in = {.length = n, .value = token}, made = {0};
    uint32_t major, minor;
    int is_private = 0;
    int64_t length = -EBADMSG;

    pthread_mutex_lock(&g->lock);
    major = gss.unwrap(&minor, g->context, &in, &made, &is_private, NULL);
    pthread_mutex_unlock(&g->lock);
    /* Rejects replayed and reordered messages, too: the library reports them as not GSS_COMPLETE, not as errors. */
    if (major == GSS_COMPLETE && made.length <= n && (is_private || s->qop != HY_HDFS_QOP_PRIVACY)) {
        if (made.length)
            memcpy(token, made.value, made.length);
        length = (int64_t)made.length;
    }
    gss.release_buffer(&minor, &made);
    return length;
}

/* ---- new and free -------------------------------------------------------------------------- */

static void gssapi_free(struct hy_hdfs_sasl *s)
{
    struct gssapi *g = (struct gssapi *)s;
    uint32_t minor;

    if (g->context)
        gss.delete_sec_context(&minor, &g->context, NULL);
    if (g->server)
        gss.release_name(&minor, &g->server);
    pthread_mutex_destroy(&g->lock);
    free(g->principal);
    free(g);
}

struct hy_hdfs_sasl *hy_hdfs_sasl_gssapi_new(const char *principal, const struct hy_hdfs_qops *qops, struct hy_err *err)
{
    static const struct hy_hdfs_sasl_ops ops = {gssapi_step, gssapi_wrap, gssapi_unwrap, gssapi_free};
    struct gss_buffer name = {.length = strlen(principal), .value = (void *)principal};
    struct gssapi *g;
    uint32_t major, minor;

    if (need_library(err) < 0)
        return NULL;
    g = hy_calloc(1, sizeof(*g));
    if (!g || !(g->principal = hy_strdup(principal))) {
        free(g);
        hy_err_oom(err);
        return NULL;
    }
    g->base.ops = &ops;
    g->base.qops = *qops;
    pthread_mutex_init(&g->lock, NULL);
    major = gss.import_name(&minor, &name, &principal_name, &g->server);
    if (!GSS_IS_ERROR(major))
        return &g->base;
    fail(g, major, minor, err);
    gssapi_free(&g->base);
    return NULL;
}
