/* SPDX-License-Identifier: Apache-2.0 */
#include "web/exchange.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define REPLY_MAX (64u << 20)
#define FIELDS_MAX 16384

void hy_exchange_init(struct hy_exchange *x, struct hy_web *web)
{
    *x = (struct hy_exchange){.web = web};
    hy_buf_init(&x->body, SIZE_MAX); /* bounded by the route */
    hy_buf_init(&x->fields, FIELDS_MAX);
    hy_buf_init(&x->reply, REPLY_MAX);
}

void hy_exchange_done(struct hy_exchange *x)
{
    hy_http_request_done(&x->request);
    for (size_t i = 0; i < HY_COUNT(x->segments); i++)
        free(x->segments[i]);
    if (x->source)
        x->source->close(x->source);
    hy_buf_done(&x->body);
    hy_buf_done(&x->fields);
    hy_buf_done(&x->reply);
}

void hy_reply_bytes(struct hy_exchange *x, int status, const char *type, const void *bytes, size_t n)
{
    x->status = status;
    x->type = type;
    hy_buf_clear(&x->reply);
    if (hy_buf_append(&x->reply, bytes, n) < 0) {
        x->status = 500;
        x->type = NULL;
    }
}

void hy_reply_error(struct hy_exchange *x, int status, const char *fmt, ...)
{
    hy_cleanup_buf struct hy_buf text;
    const char *sentence = NULL;
    char *dumped = NULL;
    json_t *object;
    va_list args;

    hy_buf_init(&text, 4096);
    va_start(args, fmt);
    if (hy_buf_vprintf(&text, fmt, args) == 0)
        sentence = hy_buf_cstr(&text);
    va_end(args);
    object = json_pack("{s:o}", "error",
                       hy_json_text(sentence ? sentence : "out of memory")); /* names may be any bytes */
    if (object)
        dumped = hy_json_dump(object, JSON_COMPACT);
    json_decref(object);
    hy_reply_bytes(x, status, "application/json", dumped ? dumped : "{}", dumped ? strlen(dumped) : 2);
    free(dumped);
}

void hy_reply_failure(struct hy_exchange *x, const struct hy_err *err)
{
    static const struct {
        int code, status;
    } all[] = {
        {-ENOENT, 404},       {-ENODATA, 404}, {-EACCES, 403}, {-EPERM, 403},  {-EINVAL, 400},    {-EEXIST, 409},
        {-EBUSY, 503},        {-EAGAIN, 503},  {-ENOSPC, 507}, {-EDQUOT, 507}, {-ENOTDIR, 404},   {-EISDIR, 400},
        {-ENAMETOOLONG, 400}, {-E2BIG, 413},   {-EROFS, 403},  {-EXDEV, 400},  {-ENOTEMPTY, 409}, {-ELOOP, 403},
    };
    int status = 500;

    for (size_t i = 0; i < HY_COUNT(all); i++)
        if (all[i].code == err->code)
            status = all[i].status;
    hy_reply_error(x, status, "%s", err->text[0] ? err->text : strerror(-err->code));
}

void hy_reply_redirect(struct hy_exchange *x, const char *location)
{
    hy_reply_bytes(x, 303, NULL, "", 0);
    if (hy_http_add(&x->fields, "Location", "%s", location) < 0)
        x->status = 500;
}
