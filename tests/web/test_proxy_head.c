/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of heads that the proxy passes on and adds. */
#include "support.h"

#include "web/apps/proxy_head.h"

/* The request as the app gets it; valid until the next call. */
static const char *request(const char *text)
{
    static struct hy_buf out;
    struct hy_http_request r;
    struct hy_http_refusal refusal;

    hy_buf_done(&out);
    hy_buf_init(&out, SIZE_MAX);
    assert_int_equal(hy_http_parse((const uint8_t *)text, strlen(text), &r, &refusal), strlen(text));
    assert_int_equal(hy_proxy_request_head(&r, "http", "secret", &out), 0);
    hy_http_request_done(&r);
    return hy_buf_cstr(&out);
}

static const char *response(const char *text)
{
    static struct hy_buf out;
    struct hy_http_response r;
    const char *why;

    hy_buf_done(&out);
    hy_buf_init(&out, SIZE_MAX);
    assert_int_equal(hy_http_parse_response((const uint8_t *)text, strlen(text), HY_HTTP_GET, &r, &why), strlen(text));
    assert_int_equal(hy_proxy_response_head(&r, "http://page:1", &out), 0);
    hy_http_response_done(&r);
    return hy_buf_cstr(&out);
}

HY_TEST(test_a_request_is_passed_on_without_fields_of_its_connection)
{
    assert_string_equal(
        request("GET /jupyter/1/lab?a=%20b HTTP/1.1\r\nHost: h:2\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n"
                "TE: trailers\r\nProxy-Connection: x\r\nAccept: */*\r\nX_Under: 1\r\n\r\n"),
        "GET /jupyter/1/lab?a=%20b HTTP/1.1\r\nhost: h:2\r\naccept: */*\r\nx-forwarded-host: h:2\r\n"
        "x-forwarded-proto: http\r\nauthorization: token secret\r\nconnection: close\r\n\r\n");
}

HY_TEST(test_an_old_client_gets_an_old_reply)
{
    assert_non_null(strstr(request("GET / HTTP/1.0\r\nHost: h\r\n\r\n"), "GET / HTTP/1.0\r\n"));
}

HY_TEST(test_a_length_is_written_once)
{
    assert_non_null(
        strstr(request("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 007\r\n\r\n"), "\r\ncontent-length: 7\r\n"));
    assert_non_null(strstr(request("PUT / HTTP/1.1\r\nHost: h\r\n\r\n"), "\r\ncontent-length: 0\r\n"));
    assert_null(strstr(request("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), "length"));
}

HY_TEST(test_cookies_of_hopyard_are_not_passed_on)
{
    static const struct {
        const char *cookies, *passed;
    } all[] = {
        {"a=1", "\r\nCookie: a=1\r\n"},
        {"hopyard-1=x", NULL},
        {"hopyard-1=x; a=1; hopyard-apps-2=y", "\r\nCookie: a=1\r\n"},
        {";; a=1;b;\thopyard-1=x", "\r\nCookie: a=1; b\r\n"},
        {"=hopyard-1=x; =b", "\r\nCookie: =b\r\n"},
        {"xhopyard-1=x", "\r\nCookie: xhopyard-1=x\r\n"},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[200];

        snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: h\r\nCookie: %s\r\n\r\n", all[i].cookies);
        if (all[i].passed)
            assert_non_null(strstr(request(text), all[i].passed));
        else
            assert_null(strstr(request(text), "ookie"));
    }
}

HY_TEST(test_only_a_websocket_is_an_upgrade)
{
    static const char end[] = "connection: Upgrade\r\nupgrade: websocket\r\n\r\n";

    assert_non_null(
        strstr(request("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"), end));
    assert_null(strstr(request("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"), "pgrade"));
    assert_null(
        strstr(request("POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), end));
    assert_non_null(strstr(
        response("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n"),
        "sec-websocket-accept: y\r\n"));
}

HY_TEST(test_a_reply_is_for_the_page_alone)
{
    assert_string_equal(
        response("HTTP/1.1 200 Fine\r\nContent-Length: 3\r\nContent-Type: text/html\r\nKeep-Alive: x\r\n"
                 "Access-Control-Allow-Origin: *\r\nX-Frame-Options: DENY\r\nReferrer-Policy: unsafe-url\r\n"
                 "Set-Cookie: hopyard-1=x\r\nSet-Cookie: a=1\r\n\r\n"),
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nset-cookie: a=1\r\n"
        "Content-Security-Policy: frame-ancestors 'self' http://page:1\r\n"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: same-origin\r\n"
        "Cross-Origin-Resource-Policy: same-origin\r\nContent-Length: 3\r\nConnection: close\r\n\r\n");
}

HY_TEST(test_the_policy_of_an_app_is_kept_except_for_frames)
{
    const char *reply = response("HTTP/1.1 200 OK\r\nContent-Security-Policy: frame-ancestors 'self'; report-uri /x\r\n"
                                 "Content-Security-Policy: sandbox allow-scripts\r\n\r\n");

    assert_non_null(strstr(reply, "Content-Security-Policy: ; report-uri /x\r\n"));
    assert_non_null(strstr(reply, "Content-Security-Policy: sandbox allow-scripts\r\n"));
}
