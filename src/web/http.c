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

static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("-._~", c));
}

char *hy_http_encode(const char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    const size_t n = strlen(text);
    char *encoded = n < SIZE_MAX / 3 ? hy_malloc(3 * n + 1) : NULL, *to = encoded;

    for (size_t i = 0; encoded && i < n; i++) {
        if (is_unreserved(text[i])) {
            *to++ = text[i];
        } else {
            *to++ = '%';
            *to++ = digits[(unsigned char)text[i] >> 4];
            *to++ = digits[text[i] & 15];
        }
    }
    if (encoded)
        *to = '\0';
    return encoded;
}

/* Reads digits; -1: there are none, or too many. */
static int read_number(const char **at, uint64_t *ret)
{
    const size_t n = strspn(*at, "0123456789");

    if (n == 0 || n > 18)
        return -1;
    *ret = strtoull(*at, NULL, 10);
    *at += n;
    return 0;
}

int hy_http_range(const char *field, uint64_t size, uint64_t *ret_start, uint64_t *ret_end)
{
    uint64_t first = 0, last = UINT64_MAX - 1;
    bool has_first;

    if (strncasecmp(field, "bytes=", 6) != 0)
        return 0;
    field += 6;
    has_first = read_number(&field, &first) == 0;
    if (*field++ != '-' || ((!has_first || *field) && read_number(&field, &last) < 0) || *field ||
        (has_first && last < first))
        return 0;
    if (!has_first) { /* the last bytes */
        first = last < size ? size - last : 0;
        last = last ? UINT64_MAX - 1 : 0;
    }
    if (first >= size || (!has_first && last == 0))
        return -ERANGE;
    *ret_start = first;
    *ret_end = last < size ? last + 1 : size;
    return 1;
}

/* ---- the head of a request --------------------------------------------------------------------- */

static int refuse(struct hy_http_refusal *ret, int status, const char *why)
{
    *ret = (struct hy_http_refusal){status, why};
    return -EPROTO;
}

char *hy_http_end_line(char *line)
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
    r->is_http_1_0 = version[8] == '0';
    *target++ = '\0';
    *version = '\0';
    return parse_method(line, r, refusal) < 0 ? -EPROTO : parse_target(target, decoded, r, refusal);
}

/* "Name: value"; the name becomes lower case. */
static int parse_field(char *line, struct hy_http_field *f, struct hy_http_refusal *refusal)
{
    char *c = line;

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

int hy_http_parse_fields(char *lines, struct hy_http_field *fields, size_t *count, struct hy_http_refusal *refusal)
{
    char *line = lines, *next;

    for (; *line; line = next) {
        next = hy_http_end_line(line);
        if (!next)
            return refuse(refusal, 400, "a line does not end with CRLF");
        if (*count == HY_HTTP_FIELDS_MAX)
            return refuse(refusal, 431, "the head has too many fields");
        if (parse_field(line, &fields[(*count)++], refusal) < 0)
            return -EPROTO;
    }
    return 0;
}

bool hy_http_has_element(const char *list, const char *element)
{
    size_t n = strlen(element);

    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        at += strspn(at, " \t");
        if (strncasecmp(at, element, n) == 0 && strspn(at + n, " \t") == strcspn(at + n, ","))
            return true;
    }
    return false;
}

size_t hy_http_count(const struct hy_http_field *fields, size_t count, const char *name)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++)
        found += strcmp(fields[i].name, name) == 0;
    return found;
}

static size_t count_fields(const struct hy_http_request *r, const char *name)
{
    return hy_http_count(r->fields, r->field_count, name);
}

int hy_http_parse_length(const char *text, uint64_t *ret)
{
    return *text && strspn(text, "0123456789") == strlen(text) ? hy_parse_u64(text, ret) : -EINVAL;
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
    if (count_fields(r, "content-length") > 1 || (length && hy_http_parse_length(length, &r->body_size) < 0))
        return refuse(refusal, 400, "the length of the body is not one number");
    if (connection && hy_http_has_element(connection, "close"))
        r->keep_alive = false;
    r->upgrade = connection && hy_http_has_element(connection, "upgrade") && hy_http_field(r, "upgrade");
    return 0;
}

/* `text` is the head, up to the CRLF of its last line; behind it is room for the decoded path. */
static int parse_head(char *text, char *decoded, struct hy_http_request *r, struct hy_http_refusal *refusal)
{
    char *fields = hy_http_end_line(text);
    int rc = fields ? parse_request_line(text, decoded, r, refusal)
                    : refuse(refusal, 400, "a line does not end with CRLF");

    if (rc == 0)
        rc = hy_http_parse_fields(fields, r->fields, &r->field_count, refusal);
    return rc < 0 ? rc : check_fields(r, refusal);
}

size_t hy_http_head_size(const uint8_t *bytes, size_t n)
{
    size_t searched = n < HY_HTTP_HEAD_MAX ? n : HY_HTTP_HEAD_MAX;
    const uint8_t *end = searched ? memmem(bytes, searched, "\r\n\r\n", 4) : NULL;

    return end ? (size_t)(end - bytes) + 4 : 0;
}

ssize_t hy_http_parse(const uint8_t *bytes, size_t n, struct hy_http_request *ret, struct hy_http_refusal *ret_refusal)
{
    size_t size = hy_http_head_size(bytes, n);
    char *text;
    int rc;

    if (!size)
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
/* In one list "a=1; b=2". */
static bool any_in_list(const char *cookies, const char *name, bool (*accepts)(void *arg, const char *value), void *arg)
{
    const size_t name_len = strlen(name);

    for (const char *at = cookies; *at; at += strcspn(at, ";"), at += *at == ';') {
        char value[HY_HTTP_COOKIE_MAX];
        size_t n;

        at += strspn(at, " ");
        if (strncmp(at, name, name_len) != 0 || at[name_len] != '=')
            continue;
        at += name_len + 1;
        n = strcspn(at, ";");
        if (n >= sizeof value)
            continue;
        memcpy(value, at, n);
        value[n] = '\0';
        if (accepts(arg, value))
            return true;
    }
    return false;
}

bool hy_http_any_cookie(const struct hy_http_request *r, const char *name,
                        bool (*accepts)(void *arg, const char *value), void *arg)
{
    for (size_t i = 0; i < r->field_count; i++)
        if (strcmp(r->fields[i].name, "cookie") == 0 && any_in_list(r->fields[i].value, name, accepts, arg))
            return true;
    return false;
}

/* ---- the head of a response ------------------------------------------------------------------------ */

const char *hy_http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } all[] = {
        {101, "Switching Protocols"},
        {200, "OK"},
        {201, "Created"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
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
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
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
