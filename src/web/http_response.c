/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a response, as an app behind the proxy sends it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "web/http.h"

static int wrong(const char **ret, const char *why)
{
    *ret = why;
    return -EPROTO;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "HTTP/1.1 200 OK", "HTTP/1.1 200" */
static int parse_status_line(const char *line, struct hy_http_response *r)
{
    if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ')
        return -EPROTO;
    line += 9;
    if (!is_digit(line[0]) || !is_digit(line[1]) || !is_digit(line[2]) || (line[3] && line[3] != ' '))
        return -EPROTO;
    r->status = 100 * (line[0] - '0') + 10 * (line[1] - '0') + line[2] - '0';
    return r->status >= 100 && r->status <= 599 ? 0 : -EPROTO;
}

static const char *find(const struct hy_http_response *r, const char *name)
{
    for (size_t i = 0; i < r->field_count; i++)
        if (strcmp(r->fields[i].name, name) == 0)
            return r->fields[i].value;
    return NULL;
}

/* How long the body is: only one field says it, and only in one way. */
static int find_body(struct hy_http_response *r, enum hy_http_method method, const char **ret_why)
{
    const char *encoding = find(r, "transfer-encoding"), *length = find(r, "content-length");

    if (hy_http_count(r->fields, r->field_count, "transfer-encoding") > 1 ||
        hy_http_count(r->fields, r->field_count, "content-length") > 1 || (encoding && length))
        return wrong(ret_why, "the app's reply has more than one length");
    if (encoding && strcasecmp(encoding, "chunked") != 0)
        return wrong(ret_why, "the app's reply has an unsupported transfer encoding");
    if (length && hy_http_parse_length(length, &r->body_size) < 0)
        return wrong(ret_why, "the app's reply has an invalid length");
    r->has_size = length;
    if (method == HY_HTTP_HEAD || r->status < 200 || r->status == 204 || r->status == 304)
        r->body = HY_HTTP_BODY_NONE;
    else if (encoding)
        r->body = HY_HTTP_BODY_CHUNKED;
    else
        r->body = length ? HY_HTTP_BODY_SIZED : HY_HTTP_BODY_TO_END;
    return 0;
}

static int parse_head(char *text, enum hy_http_method method, struct hy_http_response *r, const char **ret_why)
{
    struct hy_http_refusal refusal = {0};
    char *fields = hy_http_end_line(text);

    if (!fields || parse_status_line(text, r) < 0)
        return wrong(ret_why, "the app's reply is not HTTP/1.1");
    if (hy_http_parse_fields(fields, r->fields, &r->field_count, &refusal) < 0)
        return wrong(ret_why, refusal.why);
    return find_body(r, method, ret_why);
}

ssize_t hy_http_parse_response(const uint8_t *bytes, size_t n, enum hy_http_method method, struct hy_http_response *ret,
                               const char **ret_why)
{
    size_t size = hy_http_head_size(bytes, n);
    char *text;
    int rc;

    if (!size)
        return n < HY_HTTP_HEAD_MAX ? 0 : wrong(ret_why, "the head of the app's reply is too long");
    if (memchr(bytes, '\0', size))
        return wrong(ret_why, "the head of the app's reply contains a NUL");
    text = hy_malloc(size);
    if (!text)
        return -ENOMEM;
    memcpy(text, bytes, size - 2);
    text[size - 2] = '\0';
    *ret = (struct hy_http_response){.text = text};
    rc = parse_head(text, method, ret, ret_why);
    if (rc < 0) {
        hy_http_response_done(ret);
        return rc;
    }
    return (ssize_t)size;
}

void hy_http_response_done(struct hy_http_response *r)
{
    free(r->text);
    *r = (struct hy_http_response){0};
}
