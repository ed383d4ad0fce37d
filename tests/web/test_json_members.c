/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a JSON object as pieces of its text. */
#include "support.h"

#include <errno.h>

#include "base/buf.h"
#include "web/api/json_members.h"

static int add(void *arg, struct hy_json_piece name, struct hy_json_piece value)
{
    return hy_buf_printf(arg, "%.*s=%.*s;", (int)name.len, name.text, (int)value.len, value.text);
}

static void check(const char *text, const char *want)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 10000);
    assert_int_equal(hy_json_members(text, add, &b), want ? 0 : -EINVAL);
    assert_string_equal(hy_buf_cstr(&b), want ? want : "");
}

HY_TEST(test_members_are_pieces_of_the_text)
{
    check("{}", "");
    check(" { } ", "");
    check("{\"lr\":0.1}", "\"lr\"=0.1;");
    check("{\"a\" : -1.5e+10 , \"b\":null,\"c\": true ,\"d\":false}",
          "\"a\"=-1.5e+10;\"b\"=null;\"c\"=true;\"d\"=false;");
    check("{\"n\":[1, [\"}\"], {\"x\":{}}],\"s\":\"a\\\"b\\u00e9\\\\\"}",
          "\"n\"=[1, [\"}\"], {\"x\":{}}];\"s\"=\"a\\\"b\\u00e9\\\\\";");
    check("{\"\xc3\xa9\":\"\xf0\x9f\x8c\xb1\"}", "\"\xc3\xa9\"=\"\xf0\x9f\x8c\xb1\";");
    check("{\"a\":0,\"a\":0.0}", "\"a\"=0;\"a\"=0.0;");
}

HY_TEST(test_invalid_objects_are_refused_before_the_first_callback)
{
    static const char *const wrong[] = {
        "",
        "[]",
        "1",
        "{",
        "}",
        "{}x",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":+1}",
        "{\"a\":1e}",
        "{\"a\":-}",
        "{\"a\":nul}",
        "{\"a\":NaN}",
        "{\"a\":\"}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u00g0\"}",
        "{\"a\":[1}",
        "{\"a\":[1,]}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":\"\xff\"}",
        "{\"ok\":1,\"a\":tru}",
        "{\"a\":\"\\",
    };
    char deep[300] = "{\"a\":";

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check(wrong[i], NULL);
    check(NULL, NULL);
    memset(deep + 5, '[', 100);
    memset(deep + 105, ']', 100);
    strcpy(deep + 205, "}");
    check(deep, NULL);
}

static int stop(void *arg, struct hy_json_piece name, struct hy_json_piece value)
{
    (void)name;
    (void)value;
    return ++*(int *)arg == 2 ? -ENOMEM : 0;
}

HY_TEST(test_a_callback_can_end_the_iteration)
{
    int calls = 0;

    assert_int_equal(hy_json_members("{\"a\":1,\"b\":2,\"c\":3}", stop, &calls), -ENOMEM);
    assert_int_equal(calls, 2);
}
