/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 as bytes: parses the head of a request, and writes the head of a response.
 *
 * Strict where servers and proxies could understand a request differently: lines end with CRLF, a request has one
 * length at most, and no transfer encoding. A browser sends nothing else.
 */
#ifndef HY_WEB_HTTP_H
#define HY_WEB_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

enum { HY_HTTP_HEAD_MAX = 32768, HY_HTTP_FIELDS_MAX = 100 };

enum hy_http_method {
    HY_HTTP_GET,
    HY_HTTP_HEAD,
    HY_HTTP_POST,
    HY_HTTP_PUT,
    HY_HTTP_PATCH,
    HY_HTTP_DELETE,
    HY_HTTP_METHODS
};

const char *hy_http_method_name(enum hy_http_method m);

struct hy_http_field {
    const char *name; /* in lower case */
    const char *value;
};

struct hy_http_request {
    enum hy_http_method method;
    const char *target; /* as it was sent: "/api/v1/runs?sort=%2Bbest" */
    const char *path;   /* decoded, up to the query; starts with '/', and has no segment "." or ".." */
    const char *query;  /* not decoded; "": none */
    struct hy_http_field fields[HY_HTTP_FIELDS_MAX];
    size_t field_count;
    uint64_t body_size; /* bytes that follow the head */
    bool keep_alive;
    bool upgrade; /* to the protocol in the field "upgrade" */
    char *text; /* private: what the strings above point into */
};

/* Why a request is refused: a status, and a sentence for the response. */
struct hy_http_refusal {
    int status;
    const char *why;
};

/*
 * Parses the head of a request. Returns its size, 0 when more bytes are needed, -EPROTO when the request is refused, or
 * -ENOMEM. After a positive result call hy_http_request_done.
 */
ssize_t hy_http_parse(const uint8_t *bytes, size_t n, struct hy_http_request *ret, struct hy_http_refusal *ret_refusal);
void hy_http_request_done(struct hy_http_request *r);

/* The value of a field; NULL: it is missing. `name` is in lower case. */
const char *hy_http_field(const struct hy_http_request *r, const char *name);
/* Copies the value of a cookie. False: it is missing, or does not fit. */
bool hy_http_cookie(const struct hy_http_request *r, const char *name, char *ret, size_t size);

/*
 * Decodes the percent escapes of a part of a URL (and '+' as a space, with `is_form`) into `out`, which has room for n
 * + 1 bytes. Returns the length, or -EINVAL for an invalid escape or an escaped NUL.
 */
ssize_t hy_http_decode(const char *text, size_t n, bool is_form, char *out);
/* The decoded value of a parameter "name=value" of a query, or of a form. NULL: missing, invalid, or out of memory. */
char *hy_http_parameter(const char *query, const char *name);

/* Starts the head of a response with its status and date. 0 or -ENOMEM, as the functions below. */
int hy_http_begin(struct hy_buf *out, int status);
/* The value must not contain line breaks. */
int hy_http_add(struct hy_buf *out, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int hy_http_end(struct hy_buf *out);
const char *hy_http_status_text(int status); /* "Not Found" */

#endif
