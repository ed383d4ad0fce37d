/* SPDX-License-Identifier: Apache-2.0 */
#include "web/apps/proxy_head.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Hop-by-hop fields (RFC 9110, 7.6.1), and lengths, which are rewritten. */
static bool is_of_connection(const char *name, const struct hy_http_field *fields, size_t count)
{
    static const char *const names[] = {"connection",
                                        "keep-alive",
                                        "proxy-authenticate",
                                        "proxy-authorization",
                                        "proxy-connection",
                                        "te",
                                        "trailer",
                                        "transfer-encoding",
                                        "upgrade",
                                        "content-length"};

    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "connection") == 0 && hy_http_has_element(fields[i].value, name))
            return true;
    return is_one_of(name, names, HY_COUNT(names));
}

/* ---- requests ------------------------------------------------------------------------------- */

bool hy_proxy_is_websocket(const struct hy_http_request *r)
{
    const char *protocol = hy_http_field(r, "upgrade");

    return r->upgrade && r->method == HY_HTTP_GET && strcasecmp(protocol, "websocket") == 0;
}

/* Fields that the proxy sets itself, and those that an app could attribute to the proxy. Programs that turn fields into
 * variables (CGI) confuse '_' with '-'. */
static bool is_kept_from_app(const char *name)
{
    static const char *const names[] = {"host", "expect", "authorization", "forwarded", "x-real-ip", "x-scheme"};

    return is_one_of(name, names, HY_COUNT(names)) || strncmp(name, "x-forwarded-", 12) == 0 || strchr(name, '_');
}

/* "hopyard-4677=SECRET", or a cookie without a name that browsers send in the same form. */
static bool is_own_cookie(const char *cookie)
{
    cookie += strspn(cookie, " \t=");
    return strncasecmp(cookie, HY_COOKIE_PREFIX, strlen(HY_COOKIE_PREFIX)) == 0;
}

/* A field "a=1; hopyard-4677=SECRET; b=2" without hopyard's cookies. */
static int add_cookies(struct hy_buf *out, const char *cookies)
{
    const char *before = "Cookie: ";
    int rc = 0;

    for (const char *at = cookies; *at && rc == 0; at += strcspn(at, ";"), at += *at == ';') {
        size_t n;

        at += strspn(at, " \t");
        n = strcspn(at, ";");
        if (n == 0 || is_own_cookie(at))
            continue;
        rc = hy_buf_append_str(out, before);
        if (rc == 0)
            rc = hy_buf_append(out, at, n);
        before = "; ";
    }
    return rc == 0 && *before == ';' ? hy_buf_append_str(out, "\r\n") : rc;
}

static int add_request_fields(struct hy_buf *out, const struct hy_http_request *r)
{
    int rc = 0;

    for (size_t i = 0; i < r->field_count && rc == 0; i++) {
        const struct hy_http_field *f = &r->fields[i];

        if (is_of_connection(f->name, r->fields, r->field_count) || is_kept_from_app(f->name))
            continue;
        rc = strcmp(f->name, "cookie") == 0 ? add_cookies(out, f->value) : hy_http_add(out, f->name, "%s", f->value);
    }
    return rc;
}

int hy_proxy_request_head(const struct hy_http_request *r, const char *scheme, const char *token, struct hy_buf *out)
{
    const char *host = hy_http_field(r, "host");
    bool has_length = hy_http_field(r, "content-length") || (r->method != HY_HTTP_GET && r->method != HY_HTTP_HEAD);
    int rc = hy_buf_printf(out, "%s %s HTTP/1.%d\r\nhost: %s\r\n", hy_http_method_name(r->method), r->target,
                           !r->is_http_1_0, host);

    if (rc == 0)
        rc = add_request_fields(out, r);
    if (rc == 0 && has_length)
        rc = hy_http_add(out, "content-length", "%llu", (unsigned long long)r->body_size);
    if (rc == 0)
        rc = hy_http_add(out, "x-forwarded-host", "%s", host);
    if (rc == 0)
        rc = hy_http_add(out, "x-forwarded-proto", "%s", scheme);
    if (rc == 0)
        rc = hy_http_add(out, "authorization", "token %s", token);
    if (rc == 0)
        rc = hy_buf_append_str(out, hy_proxy_is_websocket(r) ? "connection: Upgrade\r\nupgrade: websocket\r\n"
                                                             : "connection: close\r\n");
    return rc == 0 ? hy_http_end(out) : rc;
}

/* ---- responses -------------------------------------------------------------------------------- */

/* What would open the app to other origins, what reaches beyond it (cookies and caches of the whole host, workers
 * outside of its path), and what the proxy sets itself. */
static bool is_kept_from_browser(const char *name)
{
    static const char *const names[] = {"x-frame-options",
                                        "cross-origin-resource-policy",
                                        "clear-site-data",
                                        "service-worker-allowed",
                                        "strict-transport-security",
                                        "alt-svc",
                                        "content-security-policy-report-only",
                                        "x-content-type-options",
                                        "referrer-policy"};

    return is_one_of(name, names, HY_COUNT(names)) || strncmp(name, "access-control-", 15) == 0;
}

/* Appends the directives of a policy but those about frames; a ',' separates policies, a ';' directives. */
static int add_policy(struct hy_buf *out, const char *policy)
{
    static const char frames[] = "frame-ancestors";
    int rc = hy_buf_append_str(out, "Content-Security-Policy: ");

    for (const char *at = policy; *at && rc == 0;) {
        size_t n = strcspn(at, ";,"), blank = strspn(at, " \t");

        if (strncasecmp(at + blank, frames, sizeof frames - 1) != 0)
            rc = hy_buf_append(out, at, n);
        at += n;
        if (rc == 0 && *at)
            rc = hy_buf_append(out, at++, 1);
    }
    return rc == 0 ? hy_buf_append_str(out, "\r\n") : rc;
}

static int add_response_fields(struct hy_buf *out, const struct hy_http_response *r)
{
    int rc = 0;

    for (size_t i = 0; i < r->field_count && rc == 0; i++) {
        const struct hy_http_field *f = &r->fields[i];

        if (is_of_connection(f->name, r->fields, r->field_count) || is_kept_from_browser(f->name) ||
            (strcmp(f->name, "set-cookie") == 0 && is_own_cookie(f->value)))
            continue;
        rc = strcmp(f->name, "content-security-policy") == 0 ? add_policy(out, f->value)
                                                             : hy_http_add(out, f->name, "%s", f->value);
    }
    return rc;
}

static int add_framing(struct hy_buf *out, const struct hy_http_response *r)
{
    int rc = 0;

    if (r->status == 101)
        return hy_buf_append_str(out, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    if (r->has_size)
        rc = hy_http_add(out, "Content-Length", "%llu", (unsigned long long)r->body_size);
    else if (r->body == HY_HTTP_BODY_CHUNKED)
        rc = hy_http_add(out, "Transfer-Encoding", "chunked");
    return rc == 0 ? hy_http_add(out, "Connection", "close") : rc;
}

int hy_proxy_response_head(const struct hy_http_response *r, const char *page, struct hy_buf *out)
{
    int rc = hy_buf_printf(out, "HTTP/1.1 %d %s\r\n", r->status, hy_http_status_text(r->status));

    if (rc == 0)
        rc = add_response_fields(out, r);
    if (rc == 0)
        rc = hy_http_add(out, "Content-Security-Policy", "frame-ancestors 'self' %s", page);
    if (rc == 0)
        rc = hy_http_add(out, "X-Content-Type-Options", "nosniff");
    if (rc == 0)
        rc = hy_http_add(out, "Referrer-Policy", "same-origin");
    if (rc == 0)
        rc = hy_http_add(out, "Cross-Origin-Resource-Policy", "same-origin");
    if (rc == 0)
        rc = add_framing(out, r);
    return rc == 0 ? hy_http_end(out) : rc;
}
