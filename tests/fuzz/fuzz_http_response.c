/* SPDX-License-Identifier: Apache-2.0 */
/* Heads that pass the proxy, in both directions: what is passed on parses again, means the same, and has nothing of
 * hopyard's in it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "web/apps/proxy_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool is_fine)
{
    if (!is_fine)
        abort();
}

static void pass_response(const uint8_t *data, size_t size, enum hy_http_method method)
{
    struct hy_http_response r, again;
    const char *why = NULL;
    struct hy_buf out;
    ssize_t n = hy_http_parse_response(data, size, method, &r, &why);

    check(n <= (ssize_t)size && (n != -EPROTO || why));
    if (n <= 0)
        return;
    hy_buf_init(&out, SIZE_MAX);
    check(hy_proxy_response_head(&r, "http://127.0.0.1:1", &out) == 0);
    check(!memmem(hy_buf_bytes(&out), out.len, "\nset-cookie: hopyard-", 21));
    check(!memmem(hy_buf_bytes(&out), out.len, "\naccess-control-", 16));
    if (r.field_count + 8 <= HY_HTTP_FIELDS_MAX && out.len < HY_HTTP_HEAD_MAX) {
        check(hy_http_parse_response(hy_buf_bytes(&out), out.len, method, &again, &why) == (ssize_t)out.len);
        check(again.status == r.status && again.body == r.body);
        check(again.body_size == r.body_size || r.status == 101);
        hy_http_response_done(&again);
    }
    hy_buf_done(&out);
    hy_http_response_done(&r);
}

static bool accept_any(void *arg, const char *value)
{
    (void)arg;
    (void)value;
    return true;
}

static void pass_request(const uint8_t *data, size_t size)
{
    struct hy_http_request r, again;
    struct hy_http_refusal refusal = {0};
    struct hy_buf out;

    if (hy_http_parse(data, size, &r, &refusal) <= 0)
        return;
    hy_buf_init(&out, SIZE_MAX);
    check(hy_proxy_request_head(&r, "http", "secret", &out) == 0);
    if (r.field_count + 8 <= HY_HTTP_FIELDS_MAX && out.len < HY_HTTP_HEAD_MAX) {
        check(hy_http_parse(hy_buf_bytes(&out), out.len, &again, &refusal) == (ssize_t)out.len);
        check(again.method == r.method && again.body_size == r.body_size && strcmp(again.target, r.target) == 0);
        check(strcmp(hy_http_field(&again, "authorization"), "token secret") == 0);
        check(hy_http_count(again.fields, again.field_count, "authorization") == 1);
        check(!hy_http_any_cookie(&again, "hopyard-1", accept_any, NULL));
        hy_http_request_done(&again);
    }
    hy_buf_done(&out);
    hy_http_request_done(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 'H') /* "HTTP/1.1 …": no method starts like it but HEAD, which is a request, too */
        pass_response(data, size, size & 1 ? HY_HTTP_GET : HY_HTTP_HEAD);
    pass_request(data, size);
    return 0;
}
