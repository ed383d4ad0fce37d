/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of replies from apps: unambiguous, or refused. */
#include "support.h"

#include "web/http.h"

static ssize_t parse(const char *text, enum hy_http_method method, struct hy_http_response *ret, const char **ret_why)
{
    *ret_why = NULL;
    return hy_http_parse_response((const uint8_t *)text, strlen(text), method, ret, ret_why);
}

static void assert_body(const char *text, enum hy_http_method method, enum hy_http_body body, uint64_t size)
{
    struct hy_http_response r;
    const char *why;

    assert_int_equal(parse(text, method, &r, &why), strlen(text));
    assert_int_equal(r.body, body);
    assert_int_equal(r.body_size, size);
    hy_http_response_done(&r);
}

HY_TEST(test_the_head_says_how_long_the_body_is)
{
    assert_body("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", HY_HTTP_GET, HY_HTTP_BODY_SIZED, 7);
    assert_body("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", HY_HTTP_GET, HY_HTTP_BODY_SIZED, 0);
    assert_body("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", HY_HTTP_GET, HY_HTTP_BODY_CHUNKED, 0);
    assert_body("HTTP/1.0 404 Not there\r\n\r\n", HY_HTTP_GET, HY_HTTP_BODY_TO_END, 0);
    assert_body("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", HY_HTTP_HEAD, HY_HTTP_BODY_NONE, 7);
    assert_body("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", HY_HTTP_GET, HY_HTTP_BODY_NONE, 7);
    assert_body("HTTP/1.1 204 No Content\r\n\r\n", HY_HTTP_GET, HY_HTTP_BODY_NONE, 0);
    assert_body("HTTP/1.1 101 Switching Protocols\r\n\r\n", HY_HTTP_GET, HY_HTTP_BODY_NONE, 0);
}

HY_TEST(test_a_head_that_is_not_complete_needs_more_bytes)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nX: y\r\n\r\n";
    struct hy_http_response r;
    const char *why;

    for (size_t n = 0; n < sizeof text - 1; n++)
        assert_int_equal(hy_http_parse_response((const uint8_t *)text, n, HY_HTTP_GET, &r, &why), 0);
}

HY_TEST(test_heads_that_could_be_read_differently_are_refused)
{
    static const char *const all[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        "HTTP/1.1 200 OK\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\nY: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 600 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200OK\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "\r\n\r\n",
    };
    struct hy_http_response r;
    const char *why;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(parse(all[i], HY_HTTP_GET, &r, &why), -EPROTO);
        assert_non_null(why);
    }
}

HY_TEST(test_a_head_is_bounded_and_has_no_nul)
{
    static char text[HY_HTTP_HEAD_MAX + 10];
    struct hy_http_response r;
    const char *why = NULL;

    memset(text, 'a', sizeof text);
    assert_int_equal(hy_http_parse_response((const uint8_t *)text, sizeof text, HY_HTTP_GET, &r, &why), -EPROTO);
    assert_string_equal(why, "the head of the app's reply is too long");
    assert_int_equal(hy_http_parse_response((const uint8_t *)"HTTP/1.1 200 O\0K\r\n\r\n", 20, HY_HTTP_GET, &r, &why),
                     -EPROTO);
    assert_string_equal(why, "the head of the app's reply contains a NUL");
}
