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

enum { HY_HTTP_HEAD_MAX = 32768, HY_HTTP_FIELDS_MAX = 100, HY_HTTP_COOKIE_MAX = 128 };

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
    bool is_http_1_0;
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
/* Calls `accepts` with the value of each cookie of that name until one is accepted; false: none is. There can be
 * several: cookies do not depend on ports, so scripts of other servers on this host can set some, for other paths too.
 * Values of HY_HTTP_COOKIE_MAX bytes or more are skipped. */
bool hy_http_any_cookie(const struct hy_http_request *r, const char *name,
                        bool (*accepts)(void *arg, const char *value), void *arg);

/* Whether a list "keep-alive, Upgrade" has this element. */
bool hy_http_has_element(const char *list, const char *element);

/*
 * Decodes the percent escapes of a part of a URL (and '+' as a space, with `is_form`) into `out`, which has room for n
 * + 1 bytes. Returns the length, or -EINVAL for an invalid escape or an escaped NUL.
 */
ssize_t hy_http_decode(const char *text, size_t n, bool is_form, char *out);
/* The decoded value of a parameter "name=value" of a query, or of a form. NULL: missing, invalid, or out of memory. */
char *hy_http_parameter(const char *query, const char *name);

/* The reverse for one part of a path, a value of a query, or a parameter of a field (RFC 5987). NULL: out of memory. */
char *hy_http_encode(const char *text);

/*
 * The part of `size` bytes that a field "range" asks for. Returns 1 and where it starts and ends, 0 when everything is
 * to be sent (several parts, another unit, invalid), or -ERANGE when it starts after the end.
 */
int hy_http_range(const char *field, uint64_t size, uint64_t *ret_start, uint64_t *ret_end);

/* Starts the head of a response with its status and date. 0 or -ENOMEM, as the functions below. */
int hy_http_begin(struct hy_buf *out, int status);
/* The value must not contain line breaks. */
int hy_http_add(struct hy_buf *out, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int hy_http_end(struct hy_buf *out);
const char *hy_http_status_text(int status); /* "Not Found" */

/* ---- responses of apps behind the proxy (http_response.c) ---- */

enum hy_http_body {
    HY_HTTP_BODY_NONE,
    HY_HTTP_BODY_SIZED, /* body_size bytes */
    HY_HTTP_BODY_CHUNKED, /* its last chunk is its end */
    HY_HTTP_BODY_TO_END, /* the end of the connection is its end */
};

struct hy_http_response {
    int status;
    struct hy_http_field fields[HY_HTTP_FIELDS_MAX];
    size_t field_count;
    enum hy_http_body body;
    bool has_size; /* also without a body, as the reply to HEAD */
    uint64_t body_size;
    char *text; /* private: what the strings above point into */
};

/*
 * Parses the head of the response to a request with this method, as strictly as that of a request. Returns its size, 0
 * when more bytes are needed, -EPROTO with what is wrong with it, or -ENOMEM. After a positive result call
 * hy_http_response_done.
 */
ssize_t hy_http_parse_response(const uint8_t *bytes, size_t n, enum hy_http_method method, struct hy_http_response *ret,
                               const char **ret_why);
void hy_http_response_done(struct hy_http_response *r);

/* ---- helpers of the head parsers; they change the text ---- */

/* The size of the head at `bytes`, with the empty line at its end; 0: its end is not there. */
size_t hy_http_head_size(const uint8_t *bytes, size_t n);
/* Parses the value of Content-Length, which is one number. 0 or -EINVAL. */
int hy_http_parse_length(const char *text, uint64_t *ret);
size_t hy_http_count(const struct hy_http_field *fields, size_t count, const char *name);

/* Ends the line at `line`, and returns where the next one starts; NULL: a CR or LF is not part of a CRLF. */
char *hy_http_end_line(char *line);
/* Parses all lines "Name: value", and adds them to `fields`, which has room for HY_HTTP_FIELDS_MAX. 0 or -EPROTO. */
int hy_http_parse_fields(char *lines, struct hy_http_field *fields, size_t *count, struct hy_http_refusal *ret_refusal);

#endif
