/* SPDX-License-Identifier: Apache-2.0 */
#include "web/api/util.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "view/view.h"
#include "web/server.h"

void hy_store_use_done(struct hy_store_use *u)
{
    if (u->store)
        hy_web_store_back(u->web, u->project, u->store);
}

bool hy_api_has_parameter(const struct hy_exchange *x, const char *name)
{
    const size_t n = strlen(name);

    for (const char *at = x->request.query; *at; at += strcspn(at, "&"), at += *at == '&')
        if (strncmp(at, name, n) == 0 && (at[n] == '=' || at[n] == '&' || !at[n]))
            return true;
    return false;
}

int hy_api_project(struct hy_exchange *x, const struct hy_project **ret, struct hy_err *err)
{
    hy_cleanup_free char *id = hy_http_parameter(x->request.query, "project");

    if (!id && hy_api_has_parameter(x, "project")) /* it must not stand for the server's own */
        return hy_err_set(err, -EINVAL, "'project' is not a valid parameter");
    *ret = hy_web_known_project(x->web, id);
    return *ret ? 0 : hy_err_set(err, -ENOENT, "there is no project '%s'; GET /api/v1/projects lists them", id);
}

bool hy_api_project_is_unknown(struct hy_exchange *x)
{
    hy_cleanup_free char *id = hy_http_parameter(x->request.query, "project");

    return id && !hy_web_known_project(x->web, id);
}

int hy_store_use_open(struct hy_store_use *u, struct hy_exchange *x, struct hy_err *err)
{
    int rc = hy_api_project(x, &u->project, err);

    u->web = x->web;
    return rc < 0 ? rc : hy_web_store(u->web, u->project, &u->store, err);
}

void hy_reply_json(struct hy_exchange *x, json_t *value)
{
    x->status = 200;
    x->type = "application/json";
    hy_buf_clear(&x->reply);
    if (!value || hy_json_append_compact(&x->reply, value) < 0)
        hy_reply_error(x, 503, "out of memory");
    json_decref(value);
}

void hy_reply_out(struct hy_exchange *x, const struct hy_out *out, int rc, struct hy_err *err)
{
    if (rc == 0)
        rc = out->rc;
    if (rc == 0) {
        hy_reply_bytes(x, 200, "application/json", "", 0);
        rc = hy_buf_append(&x->reply, hy_buf_bytes(&out->buf), out->buf.len);
    }
    if (rc == -E2BIG || rc == -ENOBUFS)
        hy_reply_error(x, 413, "run '%s' has too many trials or hyperparameters for charts", x->segments[0]);
    else if (rc < 0 && !err->code)
        hy_reply_error(x, 503, "out of memory");
    else if (rc < 0)
        hy_reply_failure(x, err);
}

int hy_json_append(json_t *array, json_t *value)
{
    return value && json_array_append_new(array, value) == 0 ? 0 : -ENOMEM;
}

int hy_api_find_run(struct hy_exchange *x, struct hy_store_use *u, struct hy_run_info *ret)
{
    struct hy_err err = {0};
    int rc = hy_store_use_open(u, x, &err);

    if (rc == 0)
        rc = hy_run_info_find(u->store, x->segments[0], ret, &err);
    if (rc < 0)
        hy_reply_failure(x, &err);
    return rc;
}

bool hy_api_flag(struct hy_exchange *x, const char *name)
{
    hy_cleanup_free char *value = hy_http_parameter(x->request.query, name);

    return value && strcmp(value, "1") == 0;
}

int hy_api_number(struct hy_exchange *x, const char *name, uint64_t max, uint64_t *ret)
{
    hy_cleanup_free char *text = hy_http_parameter(x->request.query, name);

    if (text && (hy_parse_u64(text, ret) < 0 || *ret > max)) {
        hy_reply_error(x, 400, "'%s' must be a number up to %llu, not '%s'", name, (unsigned long long)max, text);
        return -EINVAL;
    }
    return 0;
}
