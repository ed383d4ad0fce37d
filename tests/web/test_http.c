/* SPDX-License-Identifier: Apache-2.0 */
/* The heads of requests: what is understood, what is refused, and every way to cut one in two. */
#include "support.h"

#include <errno.h>

#include "base/mem.h"
#include "web/http.h"

static struct hy_http_request request;
static struct hy_http_refusal refusal;

static ssize_t parse(const char *text)
{
    refusal = (struct hy_http_refusal){0};
    return hy_http_parse((const uint8_t *)text, strlen(text), &request, &refusal);
}

static bool is_value(void *arg, const char *value)
{
    return strcmp(*(const char **)arg, value) == 0;
}

HY_TEST(test_a_request_of_a_browser_is_understood)
{
    static const char text[] =
        "POST /api/v1/runs/caf%C3%A9/stop?now=1&x=%26 HTTP/1.1\r\n"
        "Host: localhost:8888\r\nCoNtEnt-length:  12 \r\n"
        "Cookie: a=1; hopyard=abc; b=2\r\nConnection: keep-alive\r\nEmpty:\r\n\r\n{\"now\":true}";
    const char *cookie = "abc";

    assert_int_equal(parse(text), strlen(text) - 12);
    assert_int_equal(request.method, HY_HTTP_POST);
    assert_string_equal(request.target, "/api/v1/runs/caf%C3%A9/stop?now=1&x=%26");
    assert_string_equal(request.path, "/api/v1/runs/café/stop");
    assert_string_equal(request.query, "now=1&x=%26");
    assert_true(request.keep_alive && !request.upgrade);
    assert_int_equal(request.body_size, 12);
    assert_string_equal(hy_http_field(&request, "content-length"), "12");
    assert_string_equal(hy_http_field(&request, "empty"), "");
    assert_null(hy_http_field(&request, "origin"));
    assert_true(hy_http_any_cookie(&request, "hopyard", is_value, &cookie));
    assert_false(hy_http_any_cookie(&request, "opyard", is_value, &cookie));
    hy_http_request_done(&request);
    for (size_t n = 0; n < strlen(text) - 12; n++) /* a head that is not complete */
        assert_int_equal(hy_http_parse((const uint8_t *)text, n, &request, &refusal), 0);
}

static bool append_value(void *arg, const char *value)
{
    char *seen = arg;

    snprintf(seen + strlen(seen), 100 - strlen(seen), "%s|", value);
    return false;
}

HY_TEST(test_every_cookie_of_a_name_is_tried_until_one_is_accepted)
{
    char text[400], seen[100] = "", most[HY_HTTP_COOKIE_MAX];
    const char *wanted = "3";

    memset(most, 'x', sizeof most);
    snprintf(text, sizeof text,
             "GET / HTTP/1.1\r\nHost: h\r\nCookie: c=1;c=2; cc=9; d=c=8; c=%.*s; c\r\nCookie: c=; c=3; c=4\r\n\r\n",
             (int)sizeof most, most);
    assert_int_equal(parse(text), strlen(text));
    assert_true(hy_http_any_cookie(&request, "c", is_value, &wanted));
    assert_false(hy_http_any_cookie(&request, "c", append_value, seen));
    assert_string_equal(seen, "1|2||3|4|"); /* without the one that is too long */
    hy_http_request_done(&request);
}

static const struct {
    const char *head;
    bool keep_alive, upgrade;
} connections[] = {
    {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", true, false},
    {"GET / HTTP/1.0\r\nHost: h\r\n\r\n", false, false},
    {"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", false, false},
    {"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Close\r\n\r\n", false, false},
    {"GET / HTTP/1.1\r\nHost: h\r\nConnection: closed\r\n\r\n", true, false},
    {"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n", true, true},
    {"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\r\n", true, false},
    {"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\n\r\n", true, false},
};

HY_TEST(test_the_connection_stays_open_unless_the_request_says_otherwise)
{
    for (size_t i = 0; i < HY_COUNT(connections); i++) {
        assert_int_equal(parse(connections[i].head), strlen(connections[i].head));
        assert_int_equal(request.keep_alive, connections[i].keep_alive);
        assert_int_equal(request.upgrade, connections[i].upgrade);
        hy_http_request_done(&request);
    }
}

static const struct {
    const char *head;
    int status;
} refused[] = {
    {"\r\n\r\n", 400},
    {"hello\r\n\r\n", 400},
    {"GET /\r\n\r\n", 400},
    {"GET / HTTPS\r\n\r\n", 400},
    {"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505},
    {"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"get / HTTP/1.1\r\nHost: h\r\n\r\n", 501},
    {"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", 501},
    {"GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET * HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a\tb HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /%4 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /.. HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a/../b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a/%2e%2E/b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a%2f..%2fb HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a/./b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\n: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n", 400},
    {"GET / HTTP/1.1\nHost: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\x01\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", 411},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
};

HY_TEST(test_what_could_be_understood_in_two_ways_is_refused)
{
    for (size_t i = 0; i < HY_COUNT(refused); i++) {
        ssize_t rc = parse(refused[i].head);

        if (rc != -EPROTO || refusal.status != refused[i].status)
            fail_msg("'%s' gives %zd and status %d", refused[i].head, rc, refusal.status);
        assert_non_null(refusal.why);
    }
    assert_int_equal(hy_http_parse((const uint8_t *)"GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n", 28, &request, &refusal),
                     -EPROTO);
}

HY_TEST(test_a_head_is_bounded)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, SIZE_MAX);
    assert_int_equal(hy_buf_append_str(&b, "GET / HTTP/1.1\r\nHost: h\r\n"), 0);
    for (int i = 0; i < HY_HTTP_FIELDS_MAX; i++)
        assert_int_equal(hy_buf_printf(&b, "X-%d: y\r\n", i), 0);
    assert_int_equal(hy_buf_append_str(&b, "\r\n"), 0);
    assert_int_equal(hy_http_parse(hy_buf_bytes(&b), b.len, &request, &refusal), -EPROTO);
    assert_int_equal(refusal.status, 431);
    hy_buf_clear(&b);
    assert_int_equal(hy_buf_append_str(&b, "GET /"), 0);
    while (b.len < HY_HTTP_HEAD_MAX - 1)
        assert_int_equal(hy_buf_append_str(&b, "a"), 0);
    assert_int_equal(hy_http_parse(hy_buf_bytes(&b), b.len, &request, &refusal), 0);
    assert_int_equal(hy_buf_append_str(&b, "a"), 0);
    assert_int_equal(hy_http_parse(hy_buf_bytes(&b), b.len, &request, &refusal), -EPROTO);
    assert_int_equal(refusal.status, 431);
}

HY_TEST(test_parameters_are_decoded)
{
    static const char query[] = "sort=best&filter=lr+%3E+0.1%25&empty=&bad=%4&sort=second";
    static const struct {
        const char *name, *value;
    } all[] = {{"sort", "best"}, {"filter", "lr > 0.1%"}, {"empty", ""},
               {"bad", NULL},    {"missing", NULL},       {"so", NULL}};

    for (size_t i = 0; i < HY_COUNT(all); i++) {
        hy_cleanup_free char *value = hy_http_parameter(query, all[i].name);

        if (all[i].value)
            assert_string_equal(value, all[i].value);
        else
            assert_null(value);
    }
}

static int parse_one(void *arg)
{
    ssize_t rc;

    (void)arg;
    rc = parse("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    if (rc > 0)
        hy_http_request_done(&request);
    return rc < 0 ? (int)rc : 0;
}

HY_TEST(test_the_parser_survives_every_fault)
{
    hy_each_fault(HY_SEAM_ALLOC, parse_one, NULL);
}

HY_TEST(test_the_head_of_a_response_has_its_status_and_fields)
{
    hy_cleanup_buf struct hy_buf b;
    const char *text;

    hy_buf_init(&b, 1000);
    assert_int_equal(hy_http_begin(&b, 404), 0);
    assert_int_equal(hy_http_add(&b, "Content-Length", "%d", 12), 0);
    assert_int_equal(hy_http_end(&b), 0);
    text = hy_buf_cstr(&b);
    assert_memory_equal(text, "HTTP/1.1 404 Not Found\r\nDate: ", 30);
    assert_non_null(strstr(text, " GMT\r\nContent-Length: 12\r\n\r\n"));
    assert_string_equal(hy_http_status_text(799), "Internal Server Error");
}

static const struct {
    const char *field;
    int result;
    uint64_t start, end;
} ranges[] = {
    {"bytes=0-0", 1, 0, 1},      {"bytes=5-9", 1, 5, 10},
    {"bytes=5-", 1, 5, 100},     {"BYTES=5-500", 1, 5, 100},
    {"bytes=-1", 1, 99, 100},    {"bytes=-500", 1, 0, 100},
    {"bytes=99-99", 1, 99, 100}, {"bytes=100-", -ERANGE, 0, 0},
    {"bytes=-0", -ERANGE, 0, 0}, {"bytes=9-5", 0, 0, 0},
    {"bytes=0-1,3-4", 0, 0, 0},  {"bytes=-", 0, 0, 0},
    {"bytes=", 0, 0, 0},         {"bytes=a-b", 0, 0, 0},
    {"bytes=1-2x", 0, 0, 0},     {"bytes=9999999999999999999-", 0, 0, 0},
    {"lines=0-1", 0, 0, 0},      {"", 0, 0, 0},
};

HY_TEST(test_a_range_is_the_part_that_exists)
{
    for (size_t i = 0; i < HY_COUNT(ranges); i++) {
        uint64_t start = 0, end = 0;

        assert_int_equal(hy_http_range(ranges[i].field, 100, &start, &end), ranges[i].result);
        assert_int_equal(start, ranges[i].start);
        assert_int_equal(end, ranges[i].end);
    }
}

HY_TEST(test_percent_escapes_of_all_bytes_are_reversible)
{
    char text[256], again[256];
    hy_cleanup_free char *encoded = NULL;

    for (int i = 1; i < 256; i++)
        text[i - 1] = (char)i;
    text[255] = '\0';
    encoded = hy_http_encode(text);
    assert_true(strlen(encoded) < 3 * 255);
    again[0] = '\0';
    assert_int_equal(strcspn(encoded, "/?#&+ \"\r\n"), strlen(encoded));
    assert_int_equal(strlen(encoded), 3 * 255 - 2 * 66); /* letters, digits and "-._~" stay */
    free(hy_take(encoded));
    encoded = hy_http_encode("a b/\xff");
    assert_string_equal(encoded, "a%20b%2F%FF");
    assert_int_equal(hy_http_decode(encoded, strlen(encoded), true, again), 5);
    assert_string_equal(again, "a b/\xff");
}
