/* SPDX-License-Identifier: Apache-2.0 */
/* A program that was built without the page says so, and serves the rest. */
#include "support.h"

#include "web/assets.h"
#include "web/web.h"

const struct hy_asset hy_assets[] = {{0}}; /* in place of those that the build has made */

HY_TEST(test_a_program_without_the_page_says_why)
{
    struct hy_exchange x;

    assert_false(hy_web_has_page());
    hy_exchange_init(&x, NULL);
    hy_assets_page(&x);
    assert_int_equal(x.status, 501);
    assert_string_equal(hy_buf_cstr(&x.reply),
                        "{\"error\":\"this hopyard was built without the page, since its build found "
                        "no Node.js; /api/v1 works\"}");
    hy_exchange_done(&x);
}
