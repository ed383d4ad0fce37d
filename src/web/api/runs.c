/* SPDX-License-Identifier: Apache-2.0 */
/* Runs and their trials as JSON. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "client/client.h"
#include "driver/driver.h"
#include "view/view.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/server.h"

#define CHOICES_SHOWN 100
#define HOSTS_MAX_BYTES (1u << 20)

/* ---- GET /runs/RUN ------------------------------------------------------------------------------------- */

static int add_note(void *arg, const struct hy_note_row *note)
{
    return hy_json_append(arg, json_pack("{s:I,s:I,s:o}", "seq", (json_int_t)note->seq, "time", (json_int_t)note->time,
                                         "text", hy_json_text(note->text)));
}

/* {"7": {"tags": ["odd"], "note": "look again"}}: the labels of trials */
static int add_label(void *arg, const struct hy_label_row *row)
{
    char number[32];
    json_t *o;

    if (row->trial == 0) /* the run's own, which is in its row */
        return 0;
    snprintf(number, sizeof number, "%lld", (long long)row->trial);
    o = json_pack("{s:o,s:o}", "tags", hy_json_tags(row->tags), "note", hy_json_text(row->note));
    return o && json_object_set_new(arg, number, o) == 0 ? 0 : -ENOMEM;
}

/* The first choices of a category as strings: a list may come from a file and be long. */
static json_t *json_choices(const struct hy_dim *d)
{
    json_t *texts = json_array();
    int rc = texts ? 0 : -ENOMEM;

    for (size_t i = 0; i < d->choice_count && i < CHOICES_SHOWN && rc == 0; i++)
        rc = hy_json_append(texts, hy_json_text(d->choices[i]));
    if (rc < 0) {
        json_decref(texts);
        return NULL;
    }
    return texts;
}

static json_t *json_number_if(bool is_there, double value)
{
    return is_there ? hy_json_number(value) : json_null();
}

static json_t *json_dim(const struct hy_dim *d)
{
    static const char *const kinds[] = {[HY_DIM_FLOAT] = "float", [HY_DIM_INT] = "int", [HY_DIM_CATEGORY] = "category"};
    bool is_range = d->kind != HY_DIM_CATEGORY, is_open = d->normal && d->log && d->low == 0;

    return json_pack("{s:o,s:s,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:o}", "name", hy_json_text(d->name), "kind",
                     kinds[d->kind], "log", hy_dim_is_log(d), "low", json_number_if(is_range && !is_open, d->low),
                     "high", json_number_if(is_range, d->high), "step", json_number_if(d->step > 0, d->step), "mean",
                     json_number_if(d->normal, d->mean), "deviation", json_number_if(d->normal, d->deviation),
                     "choices", json_choices(d), "choice_count", (json_int_t)d->choice_count, "condition",
                     hy_json_text(d->condition));
}

/* How the run's hyperparameters are chosen; null for a training, and when the spec cannot be read. */
static json_t *json_search(const Hy__RunSpec *spec)
{
    struct hy_search_settings settings;
    struct hy_space space = {0};
    json_t *dims = NULL, *o = NULL;
    int rc;

    if (!spec || spec->ranks)
        return json_null();
    settings = hy_run_settings(spec);
    if (!hy_search_kind_name(settings.kind) || hy_run_space(spec, &space, &(struct hy_err){0}) < 0) {
        hy_space_done(&space);
        return json_null();
    }
    dims = json_array();
    rc = dims ? 0 : -ENOMEM;
    for (size_t i = 0; i < space.count && rc == 0; i++)
        rc = hy_json_append(dims, json_dim(&space.dims[i]));
    if (rc == 0)
        o = json_pack("{s:s,s:i,s:O}", "kind", hy_search_kind_name(settings.kind), "population",
                      (int)hy_search_population(&settings, space.count), "space", dims);
    json_decref(dims);
    hy_space_done(&space);
    return o;
}

/* ["memory", "4G"] is added to a list of options. */
static int add_option(json_t *options, const char *name, const char *value)
{
    return hy_json_append(options, json_pack("[s,o]", name, hy_json_text(value)));
}

/* In the largest unit that represents it exactly. */
static int add_size(json_t *options, const char *name, uint64_t bytes)
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    size_t unit = 0;
    char text[40];

    for (; bytes && bytes % 1024 == 0 && unit + 1 < HY_COUNT(units); unit++)
        bytes /= 1024;
    snprintf(text, sizeof text, "%llu%s", (unsigned long long)bytes, units[unit]);
    return add_option(options, name, text);
}

static int add_hosts(json_t *options, const Hy__RunSpec *spec)
{
    hy_cleanup_buf struct hy_buf b;
    int rc = 0;

    hy_buf_init(&b, HOSTS_MAX_BYTES);
    for (size_t i = 0; i < spec->n_hosts && rc == 0; i++) {
        const Hy__HostSpec *h = spec->hosts[i];

        rc = hy_buf_printf(&b, strchr(h->host, ':') ? "%s[%s]" : "%s%s", i ? "," : "", h->host);
        if (rc == 0 && h->slots)
            rc = hy_buf_printf(&b, ":%u", h->slots);
    }
    return rc < 0 ? rc : add_option(options, "hosts", hy_buf_cstr(&b));
}

/* The options that apply to each trial, as `hopyard run` takes them: with these, one trial can be run again. */
static json_t *json_options(const Hy__RunSpec *spec)
{
    json_t *options = json_array();
    int rc = options ? 0 : -ENOMEM;
    char text[40];

    if (rc == 0 && spec && spec->memory)
        rc = add_size(options, "memory", spec->memory);
    snprintf(text, sizeof text, "%lldms", spec ? (long long)spec->timeout_ms : 0);
    if (rc == 0 && spec && spec->timeout_ms)
        rc = add_option(options, "timeout", text);
    snprintf(text, sizeof text, "%g", spec ? spec->gpu_share / 1000.0 : 0);
    if (rc == 0 && spec && spec->gpus_said)
        rc = add_option(options, "gpus", text);
    if (rc == 0 && spec && spec->n_hosts)
        rc = add_hosts(options, spec);
    if (rc == 0 && spec && *spec->master)
        rc = add_option(options, "engine", spec->master);
    if (rc < 0) {
        json_decref(options);
        return NULL;
    }
    return options;
}

/* As --project takes it. */
static json_t *json_project(const struct hy_project *p)
{
    hy_cleanup_free char *url = NULL;

    (void)hy_store_url_of_local_dir(p->path, &url, NULL); /* of a store that cannot be read: its local path */
    return hy_json_text(url ? url : p->path);
}

void hy_api_run(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    struct hy_err err = {0};
    json_t *o, *notes, *labels;
    int rc;

    if (hy_api_find_run(x, &u, &r) < 0)
        return;
    o = hy_json_run(&r.row, &r.counts, r.alive, r.shown, NULL);
    notes = json_array();
    labels = json_object();
    rc = json_object_set_new(o, "notes", notes) | json_object_set_new(o, "trial_labels", labels) ? -ENOMEM : 0;
    if (rc == 0)
        rc = hy_store_note_each(u.store, r.row.id, 0, add_note, notes, &err);
    if (rc == 0)
        rc = hy_store_label_each(u.store, r.row.id, add_label, labels, &err);
    if (rc == 0)
        rc = hy_json_set(o, "search", json_search(r.spec));
    if (rc == 0)
        rc = hy_json_set(o, "options", json_options(r.spec));
    if (rc == 0)
        rc = hy_json_set(o, "cwd", hy_json_text(r.spec && *r.spec->cwd ? r.spec->cwd : NULL));
    if (rc == 0)
        rc = hy_json_set(o, "project", json_project(u.project));
    if (rc < 0 && !err.code)
        hy_err_oom(&err);
    if (rc == 0) {
        hy_reply_json(x, o);
    } else {
        json_decref(o);
        hy_reply_failure(x, &err);
    }
}

/* ---- GET /events ------------------------------------------------------------------------------------------------ */

#define POLL_MS 250
#define NO_VERSION (-2)
#define PING_POLLS 60 /* polls without a change before a ping keeps the connection alive */

/* Sends the store's version whenever it has changed; the page then reloads what it shows. */
struct events {
    struct hy_reply_source source;
    struct hy_store_use use;
    int64_t version;
    int polls;
    bool has_sent; /* pause before the next poll */
};

static int read_events(struct hy_reply_source *s, struct hy_buf *out)
{
    struct events *e = hy_container(s, struct events, source);
    int64_t version = -1; /* there is no store yet */
    int rc;

    if (e->has_sent) {
        e->has_sent = false;
        return -EAGAIN;
    }
    rc = e->use.store ? hy_store_check_files(e->use.store, NULL) : -ESTALE;

    if (rc < 0) {
        hy_store_close(hy_take(e->use.store));
        rc = hy_web_store(e->use.web, e->use.project, &e->use.store, NULL);
        e->version = rc == 0 ? NO_VERSION : e->version; /* versions of two connections cannot be compared */
    }
    if (rc == 0)
        rc = hy_store_version(e->use.store, &version, NULL);
    if (rc < 0 && rc != -ENOENT && rc != -ENODATA)
        return rc;
    if (version != e->version || ++e->polls >= PING_POLLS) {
        const char *kind = version != e->version ? "change" : "ping";

        e->version = version;
        e->polls = 0;
        e->has_sent = true;
        return hy_buf_printf(out, "event: %s\ndata: %lld\n\n", kind, (long long)version) < 0 ? -ENOMEM : 1;
    }
    return -EAGAIN;
}

static void close_events(struct hy_reply_source *s)
{
    struct events *e = hy_container(s, struct events, source);

    hy_store_use_done(&e->use);
    free(e);
}

void hy_api_events(struct hy_exchange *x)
{
    const struct hy_project *project = NULL;
    struct hy_err err = {0};
    struct events *e;

    if (hy_api_project(x, &project, &err) < 0) {
        hy_reply_failure(x, &err);
        return;
    }
    e = hy_calloc(1, sizeof *e);
    if (!e) {
        hy_reply_error(x, 503, "out of memory");
        return;
    }
    e->source = (struct hy_reply_source){.read = read_events, .close = close_events, .size = -1, .wait_ms = POLL_MS};
    e->use = (struct hy_store_use){.web = x->web, .project = project};
    e->version = NO_VERSION;
    x->source = &e->source;
    hy_reply_bytes(x, 200, "text/event-stream", "", 0);
}
