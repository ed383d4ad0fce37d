/* SPDX-License-Identifier: Apache-2.0 */
/* The projects of the server's user. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "web/api/api.h"
#include "web/api/util.h"

/* The last component of a path or URL. */
static const char *short_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

static int append_project(json_t *array, const struct hy_project *p, bool is_own, struct hy_err *err)
{
    hy_cleanup_free char *url = NULL;
    const char *shown;

    (void)hy_store_url_of_local_dir(p->path, &url, NULL); /* then the path is shown: the store itself has the error */
    shown = url ? url : p->path;
    return hy_json_append(array, json_pack("{s:s,s:o,s:o,s:b}", "id", p->id, "name", hy_json_text(short_name(shown)),
                                           "path", hy_json_text(shown), "is_own", is_own)) < 0
               ? hy_err_oom(err)
               : 0;
}

/* Projects are only added, at the end: links that were read once stay valid. */
const struct hy_project *hy_web_next_project(struct hy_web *web, const struct hy_project *after)
{
    const struct hy_list *next;

    uv_mutex_lock(&web->projects.mutex);
    next = after ? after->link.next : web->projects.all.next;
    if (next == &web->projects.all)
        next = NULL;
    uv_mutex_unlock(&web->projects.mutex);
    return next ? hy_container(next, struct hy_project, link) : NULL;
}

void hy_api_projects(struct hy_exchange *x)
{
    json_t *array = json_array();
    struct hy_err err = {0};
    const struct hy_project *p = NULL;
    int rc = array ? hy_web_projects_update(x->web, &err) : hy_err_oom(&err);
    bool is_own = true;

    while (rc == 0 && (p = hy_web_next_project(x->web, p))) {
        rc = append_project(array, p, is_own, &err);
        is_own = false;
    }
    if (rc < 0) {
        json_decref(array);
        hy_reply_failure(x, &err);
        return;
    }
    hy_reply_json(x, json_pack("{s:o}", "projects", array));
}
