/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes to runs: start, stop, resume, remove; names, tags and notes.
 *
 * Runs are started by `hopyard driver --submit`, as Python does it. A running driver receives a stop request; rows are
 * changed through a short-lived connection for writing, which shares the write lock with the drivers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "web/api/api.h"
#include "web/api/util.h"

#define NAME_MAX_BYTES 200
#define NOTE_MAX_BYTES 65536
#define TAGS_MAX 32
#define TAG_MAX_BYTES 64
#define ARGS_MAX 1000
#define CONNECT_MS 2000

/* ---- the body of a request ----------------------------------------------------------------------- */

/* The object in the body; NULL: the reply is set. */
static json_t *read_object(struct hy_exchange *x)
{
    json_t *o = hy_json_load((const char *)hy_buf_bytes(&x->body), x->body.len, JSON_REJECT_DUPLICATES, NULL);

    if (json_is_object(o))
        return o;
    json_decref(o);
    hy_reply_error(x, 400, "the body of the request is not a JSON object");
    return NULL;
}

/* ---- names, tags and notes ------------------------------------------------------------------------- */

static bool are_tags(const json_t *tags)
{
    json_t *tag;
    size_t i;

    if (!json_is_array(tags) || json_array_size(tags) > TAGS_MAX)
        return false;
    json_array_foreach(tags, i, tag) if (!json_is_string(tag) || json_string_length(tag) == 0 ||
                                         json_string_length(tag) > TAG_MAX_BYTES) return false;
    return true;
}

static bool is_text(const json_t *value, size_t max)
{
    return json_is_null(value) || (json_is_string(value) && json_string_length(value) <= max);
}

/* What the request changes: NULL stays as it is. */
struct changes {
    const json_t *name, *tags, *note;
};

static int read_changes(struct hy_exchange *x, const json_t *o, bool has_name, struct changes *ret)
{
    const char *key;
    json_t *value;

    *ret = (struct changes){0};
    json_object_foreach((json_t *)o, key, value)
    {
        if (has_name && strcmp(key, "name") == 0 && is_text(value, NAME_MAX_BYTES))
            ret->name = value;
        else if (strcmp(key, "tags") == 0 && are_tags(value))
            ret->tags = value;
        else if (strcmp(key, "note") == 0 && is_text(value, NOTE_MAX_BYTES))
            ret->note = value;
        else {
            hy_reply_error(
                x, 400,
                "unknown field or invalid value '%s'; valid:%s tags (at most %d strings of %d bytes) and note "
                "(a string of at most %d bytes)",
                key, has_name ? " name," : "", TAGS_MAX, TAG_MAX_BYTES, NOTE_MAX_BYTES);
            return -EINVAL;
        }
    }
    return 0;
}

static int set_label(struct hy_store *s, int64_t run, int64_t trial, const struct changes *c, struct hy_err *err)
{
    hy_cleanup_free char *tags = c->tags ? hy_json_dump(c->tags, JSON_COMPACT) : NULL;
    const char *note = c->note && json_is_null(c->note) ? "" : json_string_value(c->note);
    struct hy_label_row row = {.trial = trial, .tags = tags, .note = note};

    return c->tags && !tags ? hy_err_oom(err) : hy_store_label_set(s, run, &row, err);
}

static int copy_state(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts)
{
    (void)counts;
    *(enum hy_run_state *)arg = row->state;
    return 0;
}

/* The snapshot beside the store was written when the run ended. While it is running, its driver will write one. */
static void update_backup(struct hy_store *s, int64_t run)
{
    enum hy_run_state state = HY_RUN_RUNNING;
    struct hy_err err = {0};
    int rc = hy_store_run_each(s, run, copy_state, &state, &err);

    if (rc == 0 && state != HY_RUN_RUNNING)
        rc = hy_store_backup_run(s, run, &err);
    if (rc < 0 && rc != -ENOENT) /* removed in the meantime */
        hy_warn("snapshot without the latest label run=%lld why=%s", (long long)run, err.text);
}

static int apply_changes(const char *project, int64_t run, int64_t trial, const struct changes *c, struct hy_err *err)
{
    hy_cleanup_store struct hy_store *s = NULL;
    int rc = hy_store_open(project, HY_STORE_WRITE, &s, err);

    if (rc == 0 && c->name)
        rc = hy_store_run_rename(s, run, json_string_value(c->name), err);
    if (rc == 0 && (c->tags || c->note))
        rc = set_label(s, run, trial, c, err);
    if (rc == 0)
        rc = hy_store_commit(s, err);
    if (rc == 0)
        update_backup(s, run);
    return rc;
}

static void change(struct hy_exchange *x, bool is_trial)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    hy_cleanup_json json_t *o = read_object(x);
    struct hy_err err = {0};
    struct changes c;
    uint64_t trial = 0;

    if (!o || read_changes(x, o, !is_trial, &c) < 0 || hy_api_find_run(x, &u, &r) < 0)
        return;
    if (is_trial && (hy_parse_u64(x->segments[1], &trial) < 0 || trial == 0 || trial > INT64_MAX)) {
        hy_reply_error(x, 404, "'%s' is not the number of a trial", x->segments[1]);
        return;
    }
    if (apply_changes(u.project->path, r.row.id, (int64_t)trial, &c, &err) < 0)
        hy_reply_failure(x, &err);
    else
        hy_reply_bytes(x, 204, NULL, "", 0);
}

void hy_api_run_change(struct hy_exchange *x)
{
    change(x, false);
}

void hy_api_trial_change(struct hy_exchange *x)
{
    change(x, true);
}

/* ---- stop and remove ------------------------------------------------------------------------------------- */

void hy_api_stop(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    hy_cleanup_close int fd = -1;
    struct hy_err err = {0};
    int rc;

    if (hy_api_find_run(x, &u, &r) < 0)
        return;
    fd = rc = hy_client_connect_within(u.store, r.row.id, CONNECT_MS, &err);
    if (rc >= 0 && (rc = hy_client_stop(fd, false)) < 0)
        hy_err_sys(&err, rc, "cannot stop run %lld", (long long)r.row.id);
    if (rc < 0)
        hy_reply_error(x, 409, "%s", err.text);
    else
        hy_reply_bytes(x, 204, NULL, "", 0);
}

void hy_api_run_remove(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    hy_cleanup_store struct hy_store *s = NULL;
    struct hy_err err = {0}, left = {0};
    int rc;

    if (hy_api_find_run(x, &u, &r) < 0)
        return;
    if (r.alive && r.row.state == HY_RUN_RUNNING) { /* removal would wait for its driver */
        hy_reply_error(x, 409, "run %lld is running; stop it first", (long long)r.row.id);
        return;
    }
    rc = hy_store_open(u.project->path, HY_STORE_WRITE, &s, &err);
    if (rc == 0)
        rc = hy_run_remove(s, &r, &left, &err);
    if (rc < 0)
        hy_reply_failure(x, &err);
    else if (left.code)
        hy_reply_error(x, 500, "run %lld was removed, but %s", (long long)r.row.id, left.text);
    else
        hy_reply_bytes(x, 204, NULL, "", 0);
}

/* ---- start and resume -------------------------------------------------------------------------------------- */

/* The program rejects a run with an error message and the name of the invalid option. */
static void reply_submitted(struct hy_exchange *x, const Hy__Submitted *answer)
{
    hy_cleanup_free char *text = NULL;
    bool has_option;

    if (answer->run) {
        hy_reply_json(x, json_pack("{s:I}", "run", (json_int_t)answer->run));
        x->status = x->status == 200 ? 201 : x->status;
        return;
    }
    has_option = *answer->option != '\0';
    text = has_option ? hy_asprintf("--%s %s", answer->option, answer->text) : hy_strdup(answer->text);
    hy_reply_json(x, text ? json_pack("{s:o,s:o}", "error", hy_json_text(text), "option",
                                      has_option ? hy_json_text(answer->option) : json_null())
                          : NULL);
    x->status = x->status == 200 ? 400 : x->status;
}

static void submit(struct hy_exchange *x, const struct hy_project *p, Hy__Submission *message)
{
    Hy__Submitted *answer = NULL;
    struct hy_err err = {0};

    if (hy_submit("/proc/self/exe", p->path, message, &answer, &err) < 0) {
        hy_reply_failure(x, &err);
        return;
    }
    reply_submitted(x, answer);
    hy__submitted__free_unpacked(answer, NULL);
}

/* A submission under construction; its strings are borrowed from the request's JSON. */
struct draft {
    Hy__Submission message;
    Hy__RunSpec spec;
    Hy__Submission__Option options[ARGS_MAX], *pointers[ARGS_MAX];
    char *argv[ARGS_MAX];
};

static void add_option(struct draft *d, const char *name, const char *value)
{
    Hy__Submission__Option *o = &d->options[d->message.n_options];

    hy__submission__option__init(o);
    o->name = (char *)(uintptr_t)name;
    o->value = (char *)(uintptr_t)value;
    d->pointers[d->message.n_options++] = o;
}

static struct draft *draft_new(const struct hy_project *p)
{
    struct draft *d = hy_calloc(1, sizeof *d);

    if (!d)
        return NULL;
    hy__submission__init(&d->message);
    hy__run_spec__init(&d->spec);
    d->message.spec = &d->spec;
    d->message.options = d->pointers;
    d->spec.argv = d->argv;
    add_option(d, "project", p->path);
    return d;
}

/* "command": ["python", "train.py", "{lr}"] */
static bool take_command(struct draft *d, const json_t *command)
{
    json_t *word;
    size_t i;

    if (!json_is_array(command) || json_array_size(command) == 0 || json_array_size(command) > ARGS_MAX)
        return false;
    json_array_foreach((json_t *)command, i, word)
    {
        if (!json_is_string(word))
            return false;
        d->argv[d->spec.n_argv++] = (char *)(uintptr_t)json_string_value(word);
    }
    return true;
}

/* "options": [["grid", "lr=0.1,0.01"], ["parallel", "2"]], as on the command line */
static bool take_options(struct draft *d, const json_t *options)
{
    json_t *pair;
    size_t i;

    if (!json_is_array(options) || json_array_size(options) > ARGS_MAX - 1)
        return false;
    json_array_foreach((json_t *)options, i, pair)
    {
        const char *name = json_string_value(json_array_get(pair, 0)),
                   *value = json_string_value(json_array_get(pair, 1));

        if (!name || !value || strcmp(name, "project") == 0)
            return false;
        add_option(d, name, value);
    }
    return true;
}

void hy_api_start(struct hy_exchange *x)
{
    hy_cleanup_json json_t *o = read_object(x);
    const struct hy_project *p = NULL;
    hy_cleanup_free struct draft *d = NULL;
    struct hy_err err = {0};

    if (!o)
        return;
    if (hy_api_project(x, &p, &err) < 0) {
        hy_reply_failure(x, &err);
        return;
    }
    d = draft_new(p);
    if (!d) {
        hy_reply_error(x, 503, "out of memory");
    } else if (!take_command(d, json_object_get(o, "command")) || !take_options(d, json_object_get(o, "options"))) {
        hy_reply_error(x, 400, "'command' must be a list of strings, and 'options' a list of pairs [name, value]");
    } else {
        d->message.command = (char *)"run";
        submit(x, p, &d->message);
    }
}

void hy_api_resume(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    hy_cleanup_free struct draft *d = NULL;
    char number[32];

    if (hy_api_find_run(x, &u, &r) < 0)
        return;
    d = draft_new(u.project);
    if (!d) {
        hy_reply_error(x, 503, "out of memory");
        return;
    }
    snprintf(number, sizeof number, "%lld", (long long)r.row.id);
    d->message.command = (char *)"resume";
    d->message.run = number;
    submit(x, u.project, &d->message);
}
