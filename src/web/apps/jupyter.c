/* SPDX-License-Identifier: Apache-2.0 */
/* Jupyter: the form becomes the options of `hopyard notebook`, which checks them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/apps/apps.h"

#define VALUE_MAX 200
#define KEY_MAX 4096

/* Fields of the form; those that are empty are as configured. */
static const char *const fields[] = {"mode",          "engine",           "executors", "parallel", "executor-memory",
                                     "executor-gpus", "parameter-servers"};

struct form {
    char *args[HY_COUNT(fields) + 3]; /* of `hopyard`; ends with NULL */
    size_t count;
    struct hy_buf key; /* the same settings are the same server */
    json_t *details;   /* {"mode": "experiments", …} */
};

static void form_done(struct form *f)
{
    for (size_t i = 0; i < f->count; i++)
        free(f->args[i]);
    hy_buf_done(&f->key);
    json_decref(f->details);
}
#define hy_cleanup_form __attribute__((cleanup(form_done)))

static int add_arg(struct form *f, char *arg)
{
    f->args[f->count] = arg;
    f->count += arg != NULL;
    return arg ? 0 : -ENOMEM;
}

static int add_field(struct form *f, const char *name, const char *value, struct hy_err *err)
{
    int rc;

    if (strlen(value) > VALUE_MAX)
        return hy_err_set(err, -EINVAL, "'%s' has at most %d bytes", name, VALUE_MAX);
    rc = add_arg(f, hy_asprintf("--%s=%s", name, value));
    if (rc == 0)
        rc = hy_buf_printf(&f->key, "%s--%s=%s", f->key.len ? " " : "", name, value);
    if (rc == 0)
        rc = hy_json_set(f->details, name, hy_json_text(value));
    return rc < 0 ? hy_err_oom(err) : 0;
}

static int read_form(struct form *f, const char *query, const char *project, struct hy_err *err)
{
    int rc = add_arg(f, hy_strdup("notebook"));

    if (rc == 0)
        rc = add_arg(f, hy_asprintf("--project=%s", project));
    f->details = json_object();
    if (rc < 0 || !f->details)
        return hy_err_oom(err);
    for (size_t i = 0; i < HY_COUNT(fields) && rc == 0; i++) {
        hy_cleanup_free char *value = hy_http_parameter(query, fields[i]);

        if (value && *value)
            rc = add_field(f, fields[i], value, err);
    }
    return rc;
}

void hy_api_jupyter(struct hy_exchange *x)
{
    hy_cleanup_form struct form f = {0};
    const struct hy_project *project;
    struct hy_app_spec spec = {.kind = "jupyter"}; /* it is not ended while it is unused: its kernels may be busy */
    struct hy_err err = {0};
    struct hy_app *app;
    int rc = hy_api_project(x, &project, &err);

    hy_buf_init(&f.key, KEY_MAX);
    if (rc == 0)
        rc = read_form(&f, x->request.query, project->path, &err);
    if (rc == 0) {
        spec.project = project->path;
        spec.key = hy_buf_cstr(&f.key);
        spec.args = (const char *const *)f.args;
        spec.details = f.details;
        rc = spec.key ? hy_app_start(x->web, &spec, &app, &err) : hy_err_oom(&err);
    }
    if (rc < 0)
        hy_reply_failure(x, &err);
    else
        hy_reply_json(x, hy_app_json(app));
}
