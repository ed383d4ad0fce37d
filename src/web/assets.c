/* SPDX-License-Identifier: Apache-2.0 */
#include "web/assets.h"

#include <string.h>

#include "web/server.h"
#include "web/web.h"

static const struct hy_asset *find(const char *name)
{
    for (const struct hy_asset *a = hy_assets; a->name; a++)
        if (strcmp(a->name, name) == 0)
            return a;
    return NULL;
}

bool hy_web_has_page(void)
{
    return find("index.html");
}

/* All browsers of this century accept gzip. */
static void reply(struct hy_exchange *x, const struct hy_asset *a)
{
    const char *known = hy_http_field(&x->request, "if-none-match");
    bool is_known = known && strstr(known, a->tag);
    int rc = 0;

    hy_reply_bytes(x, is_known ? 304 : 200, a->type, a->bytes, is_known ? 0 : a->size);
    if (a->is_gzip && !is_known)
        rc = hy_http_add(&x->fields, "Content-Encoding", "gzip");
    if (rc == 0)
        rc = hy_http_add(&x->fields, "ETag", "\"%s\"", a->tag);
    if (rc == 0 && x->route->handle == hy_assets_file)
        rc = hy_http_add(&x->fields, "Cache-Control", "no-cache"); /* asks each time, with the tag */
    if (rc < 0)
        x->status = 500;
}

/* The page is served at any depth (runs/7/trials/3): its links are relative to <base>. */
static int append_page(struct hy_exchange *x, const struct hy_asset *a)
{
    static const char mark[] = "<base href=\"/";
    const unsigned char *base = memmem(a->bytes, a->size, mark, sizeof mark - 1);
    size_t n = base ? (size_t)(base - a->bytes) + sizeof mark - 2 : a->size;
    int rc = hy_buf_append(&x->reply, a->bytes, n);

    if (rc == 0 && base)
        rc = hy_buf_append_str(&x->reply, x->web->base); /* its letters need no escape in HTML */
    return rc == 0 && base ? hy_buf_append(&x->reply, a->bytes + n + 1, a->size - n - 1) : rc;
}

void hy_assets_page(struct hy_exchange *x)
{
    const struct hy_asset *a = find("index.html");

    if (a) {
        hy_reply_bytes(x, 200, a->type, "", 0);
        if (append_page(x, a) < 0)
            hy_reply_error(x, 503, "out of memory");
    } else {
        hy_reply_error(x, 501,
                       "this hopyard was built without the page, since its build found no Node.js; /api/v1 works");
    }
}

void hy_assets_file(struct hy_exchange *x)
{
    const struct hy_asset *a = find(x->segments[0]);

    if (a)
        reply(x, a);
    else
        hy_reply_error(x, 404, "there is no '%s'", x->request.path);
}
