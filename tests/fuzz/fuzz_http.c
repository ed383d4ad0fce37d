/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of requests: whatever is accepted has one meaning, and its strings end where they should. */
#include <stdlib.h>
#include <string.h>

#include "web/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool count_bytes(void *arg, const char *value)
{
    *(size_t *)arg += strlen(value);
    return false;
}

static void check(const struct hy_http_request *r)
{
    size_t n = 0;

    if (r->path[0] != '/' || strstr(r->path, "/../") || strpbrk(r->target, " \r\n"))
        abort();
    for (size_t i = 0; i < r->field_count; i++)
        if (strpbrk(r->fields[i].value, "\r\n") || strpbrk(r->fields[i].name, " :\r\n"))
            abort();
    if (hy_http_any_cookie(r, "hopyard", count_bytes, &n) || n > HY_HTTP_HEAD_MAX)
        abort();
    free(hy_http_parameter(r->query, "sort"));
}

/* What a client has sent may be part of a reply: it ends no line. */
static void reply(int status, const char *text)
{
    struct hy_buf out;

    hy_buf_init(&out, SIZE_MAX);
    if (hy_http_begin(&out, status) < 0 || hy_http_add(&out, "X", "%s", text) < 0 || hy_http_end(&out) < 0 ||
        memcmp(hy_buf_bytes(&out) + out.len - 4, "\r\n\r\n", 4) != 0 ||
        memmem(hy_buf_bytes(&out), out.len - 4, "\r\n\r\n", 4))
        abort();
    hy_buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_http_refusal refusal = {0};
    struct hy_http_request r;
    ssize_t n = hy_http_parse(data, size, &r, &refusal);

    if (n < 0 && !refusal.why)
        abort();
    if (n > (ssize_t)size)
        abort();
    if (n > 0) {
        check(&r);
        reply(200, r.target);
        hy_http_request_done(&r);
    } else if (n < 0) {
        reply(refusal.status, refusal.why);
    }
    return 0;
}
