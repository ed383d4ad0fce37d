/* SPDX-License-Identifier: Apache-2.0 */
#include "web/http.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/mem.h"
#include "base/text.h"

static const char *const methods[HY_HTTP_METHODS] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"};

const char *hy_http_method_name(enum hy_http_method m)
{
    return methods[m];
}

/* ---- characters and escapes ------------------------------------------------------------------ */

/* A character of a token, as names of methods and fields (RFC 9110, 5.6.2). */
static bool is_token(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* Of a field's value: visible ASCII, space, tab, and bytes above ASCII. */
static bool is_value(char c)
{
    return c == '\t' || (c >= ' ' && c != 0x7f) || (c & 0x80);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

ssize_t hy_http_decode(const char *text, size_t n, bool is_form, char *out)
{
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        char c = text[i];

        if (c == '%') {
            int high = i + 2 < n ? hex_digit(text[i + 1]) : -1;
            int low = i + 2 < n ? hex_digit(text[i + 2]) : -1;

            if (high < 0 || low < 0 || high + low == 0)
                return -EINVAL;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && is_form) {
            c = ' ';
        }
        out[len++] = c;
    }
    out[len] = '\0';
    return (ssize_t)len;
}

char *hy_http_parameter(const char *query, const char *name)
{
    size_t name_len = strlen(name);

    for (const char *at = query; *at; at += strcspn(at, "&"), at += *at == '&') {
        size_t n = strcspn(at, "&");
        char *value;

        if (n <= name_len || strncmp(at, name, name_len) != 0 || at[name_len] != '=')
            continue;
        n -= name_len + 1;
        value = hy_malloc(n + 1);
        if (value && hy_http_decode(at + name_len + 1, n, true, value) < 0)
            free(hy_take(value));
        return value;
    }
    return NULL;
}

/* ---- the head of a request --------------------------------------------------------------------- */

static int refuse(struct hy_http_refusal *ret, int status, const char *why)
{
    *ret = (struct hy_http_refusal){status, why};
    return -EPROTO;
}

/* Ends the line at `line`, and returns where the next one starts; NULL: a CR or LF is not part of a CRLF. */
static char *end_line(char *line)
{
    char *end = line + strcspn(line, "\r\n");

    if (end[0] != '\r' || end[1] != '\n')
        return NULL;
    *end = '\0';
    return end + 2;
}

static int parse_method(const char *name, struct hy_http_request *r, struct hy_http_refusal *refusal)
{
    for (int m = 0; m < HY_HTTP_METHODS; m++)
        if (strcmp(name, methods[m]) == 0) {
            r->method = (enum hy_http_method)m;
            return 0;
        }
    return refuse(refusal, 501, "this server does not know the method of the request");
}

/* Whether a segment of the decoded path is "." or "..": those lead out of a directory, or hide where a path leads. */
static bool has_dots(const char *path)
{
    for (const char *at = path; (at = strstr(at, "/.")); at++) {
        const char *end = at[2] == '.' ? at + 3 : at + 2;

        if (*end == '/' || *end == '\0')
            return true;
    }
    return false;
}

/* `decoded` has room for the path. */
static int parse_target(char *target, char *decoded, struct hy_http_request *r, struct hy_http_refusal *refusal)
{
    size_t n = strcspn(target, "?");

    if (target[0] != '/')
        return refuse(refusal, 400, "the target of the request is not a path");
    for (const char *c = target; *c; c++)
        if (*c <= ' ' || *c == 0x7f || *c == '#')
            return refuse(refusal, 400, "the target of the request has an invalid character");
    if (hy_http_decode(target, n, false, decoded) < 0)
        return refuse(refusal, 400, "the path of the request has an invalid escape");
    if (has_dots(decoded))
        return refuse(refusal, 400, "the path of the request has a segment '.' or '..'");
    r->target = target;
    r->path = decoded;
    r->query = target[n] ? target + n + 1 : target + n;
    return 0;
}

/* "GET /path HTTP/1.1" */
static int parse_request_line(char *line, char *decoded, struct hy_http_request *r, struct hy_http_refusal *refusal)
{
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;

    if (!version || strncmp(version, " HTTP/", 6) != 0)
        return refuse(refusal, 400, "this is not an HTTP request");
    if (strcmp(version, " HTTP/1.1") != 0 && strcmp(version, " HTTP/1.0") != 0)
        return refuse(refusal, 505, "this server speaks HTTP/1.1");
    r->keep_alive = version[8] == '1';
    *target++ = '\0';
    *version = '\0';
    return parse_method(line, r, refusal) < 0 ? -EPROTO : parse_target(target, decoded, r, refusal);
}

/* "Name: value"; the name becomes lower case. */
static int parse_field(char *line, struct hy_http_request *r, struct hy_http_refusal *refusal)
{
    struct hy_http_field *f;
    char *c = line;

    if (r->field_count == HY_HTTP_FIELDS_MAX)
        return refuse(refusal, 431, "the request has too many header fields");
    f = &r->fields[r->field_count++];
    for (f->name = line; is_token(*c); c++)
        if (*c >= 'A' && *c <= 'Z')
            *c |= 0x20;
    if (c == line || *c != ':')
        return refuse(refusal, 400, "a header field has an invalid name");
    *c++ = '\0';
    f->value = c += strspn(c, " \t");
    for (; *c; c++)
        if (!is_value(*c))
            return refuse(refusal, 400, "a header field has an invalid character");
    while (c > f->value && (c[-1] == ' ' || c[-1] == '\t'))
        *--c = '\0';
    return 0;
}

/* Whether a list "keep-alive, Upgrade" has this element. */
static bool has_element(const char *list, const char *element)
{
    size_t n = strlen(element);

    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        at += strspn(at, " \t");
        if (strncasecmp(at, element, n) == 0 && strspn(at + n, " \t") == strcspn(at + n, ","))
            return true;
    }
    return false;
}

static size_t count_fields(const struct hy_http_request *r, const char *name)
{
    size_t count = 0;

    for (size_t i = 0; i < r->field_count; i++)
        count += strcmp(r->fields[i].name, name) == 0;
    return count;
}

/* What the fields say about the connection and the body. */
static int check_fields(struct hy_http_request *r, struct hy_http_refusal *refusal)
{
    const char *connection = hy_http_field(r, "connection");
    const char *length = hy_http_field(r, "content-length");

    if (count_fields(r, "host") != 1)
        return refuse(refusal, 400, "the request does not have one Host field");
    if (hy_http_field(r, "transfer-encoding"))
        return refuse(refusal, 411,
                      "send the length of the body (Content-Length): this server accepts no other encoding");
    if (count_fields(r, "content-length") > 1 ||
        (length &&
         (!*length || strspn(length, "0123456789") != strlen(length) || hy_parse_u64(length, &r->body_size) < 0)))
        return refuse(refusal, 400, "the length of the body is not one number");
    if (connection && has_element(connection, "close"))
        r->keep_alive = false;
    r->upgrade = connection && has_element(connection, "upgrade") && hy_http_field(r, "upgrade");
    return 0;
}

/* `text` is the head, up to the CRLF of its last line; behind it is room for the decoded path. */
static int parse_head(char *text, char *decoded, struct hy_http_request *r, struct hy_http_refusal *refusal)
{
    char *line = text, *next = end_line(line);
    int rc = next ? parse_request_line(line, decoded, r, refusal)
                  : refuse(refusal, 400, "a line does not end with CRLF");

    while (rc == 0 && *(line = next)) {
        next = end_line(line);
        rc = next ? parse_field(line, r, refusal) : refuse(refusal, 400, "a line does not end with CRLF");
    }
    return rc < 0 ? rc : check_fields(r, refusal);
}

ssize_t hy_http_parse(const uint8_t *bytes, size_t n, struct hy_http_request *ret, struct hy_http_refusal *ret_refusal)
{
    size_t searched = n < HY_HTTP_HEAD_MAX ? n : HY_HTTP_HEAD_MAX;
    const uint8_t *end = searched ? memmem(bytes, searched, "\r\n\r\n", 4) : NULL;
    size_t size = end ? (size_t)(end - bytes) + 4 : 0;
    char *text;
    int rc;

    if (!end)
        return n < HY_HTTP_HEAD_MAX ? 0 : refuse(ret_refusal, 431, "the head of the request is too long");
    if (memchr(bytes, '\0', size))
        return refuse(ret_refusal, 400, "the head of the request has a NUL");
    text = hy_malloc(2 * size);
    if (!text)
        return -ENOMEM;
    memcpy(text, bytes, size - 2);
    text[size - 2] = '\0';
    *ret = (struct hy_http_request){.text = text};
    rc = parse_head(text, text + size - 1, ret, ret_refusal);
    if (rc < 0) {
        hy_http_request_done(ret);
        return rc;
    }
    return (ssize_t)size;
}

void hy_http_request_done(struct hy_http_request *r)
{
    free(r->text);
    *r = (struct hy_http_request){0};
}

const char *hy_http_field(const struct hy_http_request *r, const char *name)
{
    for (size_t i = 0; i < r->field_count; i++)
        if (strcmp(r->fields[i].name, name) == 0)
            return r->fields[i].value;
    return NULL;
}

/* The value of "name=value" in a Cookie field "a=1; name=value"; NULL. */
static const char *find_cookie(const char *cookies, const char *name, size_t *ret_n)
{
    size_t name_len = strlen(name);

    for (const char *at = cookies; *at; at += strcspn(at, ";"), at += *at == ';') {
        at += strspn(at, " ");
        if (strncmp(at, name, name_len) == 0 && at[name_len] == '=') {
            *ret_n = strcspn(at + name_len + 1, ";");
            return at + name_len + 1;
        }
    }
    return NULL;
}

bool hy_http_cookie(const struct hy_http_request *r, const char *name, char *ret, size_t size)
{
    for (size_t i = 0; i < r->field_count; i++) {
        size_t n = 0;
        const char *value = strcmp(r->fields[i].name, "cookie") == 0 ? find_cookie(r->fields[i].value, name, &n) : NULL;

        if (!value)
            continue;
        if (n >= size)
            return false;
        memcpy(ret, value, n);
        ret[n] = '\0';
        return true;
    }
    return false;
}

/* ---- the head of a response ------------------------------------------------------------------------ */

const char *hy_http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } all[] = {
        {200, "OK"},
        {201, "Created"},
        {204, "No Content"},
        {206, "Partial Content"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {416, "Range Not Satisfiable"},
        {421, "Misdirected Request"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].status == status)
            return all[i].text;
    return "Internal Server Error";
}

int hy_http_begin(struct hy_buf *out, int status)
{
    char date[40];
    time_t now = time(NULL);
    struct tm tm;

    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    return hy_buf_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, hy_http_status_text(status), date);
}

int hy_http_add(struct hy_buf *out, const char *name, const char *fmt, ...)
{
    va_list args;
    int rc = hy_buf_printf(out, "%s: ", name);

    va_start(args, fmt);
    if (rc == 0)
        rc = hy_buf_vprintf(out, fmt, args);
    va_end(args);
    return rc == 0 ? hy_buf_append_str(out, "\r\n") : rc;
}

int hy_http_end(struct hy_buf *out)
{
    return hy_buf_append_str(out, "\r\n");
}
