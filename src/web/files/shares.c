/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data sets shared with other users, and with the project (src/share). Grants visit every file of a data set: they take
 * a thread of the pool for as long as that takes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "share/share.h"
#include "web/api/api.h"
#include "web/api/util.h"

/* ---- the project of the request --------------------------------------------------------------- */

struct owner {
    struct hy_share_project share;
    struct hy_store *store; /* NULL: the project has none, and shares nothing */
    char *url;
};

static void owner_done(struct owner *o)
{
    hy_store_close(o->store);
    free(o->url);
}

#define cleanup_owner __attribute__((cleanup(owner_done)))

static int find_url(const struct hy_project *project, char **ret, struct hy_err *err)
{
    int rc = hy_store_url_of_local_dir(project->path, ret, err);

    if (rc == 0 && !*ret)
        *ret = hy_strdup(project->path);
    return rc < 0 ? rc : *ret ? 0 : hy_err_oom(err);
}

/* Its own connection to the store: one of the server's would be taken for as long as a grant takes. */
static int open_owner(struct hy_exchange *x, enum hy_store_mode mode, struct owner *o, struct hy_err *err)
{
    const struct hy_project *project = NULL;
    int rc = hy_api_project(x, &project, err);

    if (rc == 0)
        rc = find_url(project, &o->url, err);
    if (rc == 0)
        rc = hy_store_open(project->path, mode, &o->store, err);
    if (rc == -ENOENT && mode == HY_STORE_READ && o->url)
        return 0;
    if (rc == 0)
        o->share = (struct hy_share_project){
            .url = o->url, .path = hy_store_dir_path(o->store), .dir = hy_store_dir_fd(o->store)};
    return rc;
}

/* A parameter that must be there; NULL: the reply is set. */
static char *required(struct hy_exchange *x, const char *name)
{
    char *value = hy_http_parameter(x->request.query, name);

    if (value && *value)
        return value;
    free(value);
    hy_reply_error(x, 400, "the parameter '%s' is missing", name);
    return NULL;
}

/* ---- GET /shares --------------------------------------------------------------------------------- */

static int add_received(void *arg, const struct hy_share_entry *e, const char *why)
{
    return hy_json_append(arg, hy_share_entry_json(e, why));
}

static int add_given(const struct owner *o, json_t *array, struct hy_err *err)
{
    hy_cleanup_shares struct hy_shares list = {0};
    int rc = o->store ? hy_share_list(&o->share, &list, err) : 0;

    for (size_t i = 0; i < list.count && rc == 0; i++)
        if (hy_json_append(array, hy_share_json(o->url, &list.list[i])) < 0)
            rc = hy_err_oom(err);
    return rc;
}

void hy_api_shares(struct hy_exchange *x)
{
    cleanup_owner struct owner o = {0};
    hy_cleanup_json json_t *given = json_array(), *received = json_array();
    struct hy_err err = {0};
    int rc = given && received ? open_owner(x, HY_STORE_READ, &o, &err) : hy_err_oom(&err);

    if (rc == 0)
        rc = add_given(&o, given, &err);
    if (rc == 0)
        rc = hy_share_entries(o.url, add_received, received, &err);
    if (rc < 0 && !err.code)
        hy_err_oom(&err);
    if (rc < 0)
        hy_reply_failure(x, &err);
    else
        hy_reply_json(x, json_pack("{s:O, s:O}", "given", given, "received", received));
}

/* ---- POST and DELETE /shares ------------------------------------------------------------------------- */

/* `missing`: what to do about a data set that is not there; NULL: it is there. */
static void reply_report(struct hy_exchange *x, int rc, const struct hy_share_report *r, const char *missing,
                         const struct hy_err *err)
{
    if (rc < 0)
        hy_reply_failure(x, err);
    else
        hy_reply_json(x, json_pack("{s:I, s:I, s:o, s:o}", "changed", (json_int_t)r->changed, "foreign",
                                   (json_int_t)r->foreign, "blocked", hy_json_text(r->blocked), "missing",
                                   hy_json_text(missing)));
}

void hy_api_share_add(struct hy_exchange *x)
{
    hy_cleanup_free char *path = required(x, "path"), *with = path ? required(x, "with") : NULL;
    hy_cleanup_share_report struct hy_share_report r = {0};
    cleanup_owner struct owner o = {0};
    struct hy_err err = {0};
    int rc;

    if (!with)
        return;
    rc = open_owner(x, HY_STORE_WRITE, &o, &err);
    if (rc == 0)
        rc = hy_share_add(&o.share, path, with, hy_api_flag(x, "write"), &r, &err);
    reply_report(x, rc, &r, NULL, &err);
}

void hy_api_share_remove(struct hy_exchange *x)
{
    hy_cleanup_free char *path = required(x, "path"), *with = path ? required(x, "with") : NULL, *missing = NULL;
    hy_cleanup_share_report struct hy_share_report r = {0};
    cleanup_owner struct owner o = {0};
    struct hy_err err = {0};
    int rc;

    if (!with)
        return;
    rc = open_owner(x, HY_STORE_READ, &o, &err);
    if (rc == 0 && !o.store)
        rc = hy_err_set(&err, -ENOENT, "this project shares nothing");
    if (rc == 0)
        rc = hy_share_remove(&o.share, path, with, &r, &err);
    if (rc == 0 && r.is_missing && !(missing = hy_share_missing_text(&o.share, path, with)))
        rc = hy_err_oom(&err);
    reply_report(x, rc, &r, missing, &err);
}

/* ---- POST and DELETE /shares/received -------------------------------------------------------------------- */

void hy_api_share_accept(struct hy_exchange *x)
{
    hy_cleanup_free char *target = required(x, "target"), *name = target ? required(x, "name") : NULL, *url = NULL;
    hy_cleanup_share_entry struct hy_share_entry e = {0};
    const struct hy_project *project = NULL;
    struct hy_err err = {0};
    int rc;

    if (!name)
        return;
    rc = hy_api_project(x, &project, &err);
    if (rc == 0)
        rc = find_url(project, &url, &err);
    if (rc == 0)
        rc = hy_share_accept(url, name, target, &e, &err);
    if (rc < 0)
        hy_reply_failure(x, &err);
    else
        hy_reply_json(x, hy_share_entry_json(&e, NULL));
}

void hy_api_share_forget(struct hy_exchange *x)
{
    hy_cleanup_free char *name = required(x, "name"), *url = NULL;
    const struct hy_project *project = NULL;
    struct hy_err err = {0};
    int rc;

    if (!name)
        return;
    rc = hy_api_project(x, &project, &err);
    if (rc == 0)
        rc = find_url(project, &url, &err);
    if (rc == 0)
        rc = hy_share_forget(url, name, &err);
    if (rc < 0)
        hy_reply_failure(x, &err);
    else
        hy_reply_bytes(x, 204, NULL, "", 0);
}
