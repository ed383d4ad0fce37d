/* SPDX-License-Identifier: Apache-2.0 */
/* `show` and `best`: a run as it is in the store. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/project.h"
#include "cli/commands.h"
#include "cli/run_spec.h"
#include "cli/show_plot.h"
#include "view/view.h"
#include "wire/wire.h"
#include "client/client.h"
#include "driver/driver.h"

#define TRIALS_SHOWN 50
#define DIM_COLUMNS 200
#define PAGE 500 /* trials per table */

struct showing {
    struct hy_store *store;
    struct hy_run_info info;
    struct hy_out out;
    int64_t skip, limit; /* trials to show; limit 0: all */
    enum hy_trial_order order;
    Hy__TrialView *page[PAGE];
    size_t page_count;
    int64_t shown;
    struct hy_err *err; /* for callbacks */
};

/* ---- the head ------------------------------------------------------------------ */

static void label(struct hy_out *out, const char *name)
{
    hy_out_tint_on(out, HY_DIM);
    hy_outf(out, "  %-9s ", name);
    hy_out_tint_off(out, HY_DIM);
}

/* Takes `value`; NULL prints nothing. */
static void fact_take(struct hy_out *out, const char *name, char *value)
{
    if (value && *value) {
        label(out, name);
        hy_out_value(out, value);
        hy_out_str(out, "\n");
    }
    free(value);
}

static void fact(struct hy_out *out, const char *name, const char *value)
{
    if (value && *value) {
        label(out, name);
        hy_out_value(out, value);
        hy_out_str(out, "\n");
    }
}

static void title(struct showing *s)
{
    const struct hy_run_row *row = &s->info.row;
    const char *state = hy_run_state_text(row, s->info.alive);
    int64_t until = row->ended ? row->ended : hy_clock_wall_ms();
    char text[64];

    hy_out_tint_on(&s->out, HY_BOLD);
    hy_outf(&s->out, "run %lld", (long long)row->id);
    hy_out_str(&s->out, row->name ? " " : "");
    hy_out_value(&s->out, row->name);
    hy_out_tint_off(&s->out, HY_BOLD);
    hy_out_str(&s->out, "  ");
    hy_state_text(&s->out.style, state, 0, text, sizeof text);
    hy_out_tint(&s->out, hy_state_tint(state), text);
    if (strcmp(state, "interrupted") != 0)
        hy_outf(&s->out, "  %s", hy_format_duration(until - row->created, text, sizeof text));
    hy_out_str(&s->out, "\n");
}

/* A dimension as given by the user; a long list is cut, the table has its values. */
static void dim_words(struct hy_out *out, const char *text)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, SIZE_MAX / 2);
    if (out->rc == 0)
        out->rc = hy_append_printable(&b, text, strlen(text));
    if (out->rc == 0)
        hy_out_cut(out, (const char *)hy_buf_bytes(&b), b.len, DIM_COLUMNS);
    hy_out_str(out, "  ");
}

static bool is_cluster(const Hy__RunSpec *spec)
{
    return spec && hy_spec_is_cluster(spec);
}

/* "4 ranks, 2 to 8  on a:2, b:2  ", "1 ps, 2 worker  " */
static void ranks_words(struct hy_out *out, const struct hy_run_row *row, const Hy__RunSpec *spec)
{
    for (size_t i = 0; is_cluster(spec) && i < spec->n_roles; i++)
        hy_outf(out, "%s%u %s", i ? ", " : "", spec->roles[i]->count, spec->roles[i]->name);
    if (!is_cluster(spec))
        hy_outf(out, "%lld rank%s", (long long)row->ranks, row->ranks == 1 ? "" : "s");
    if (spec && spec->ranks_max)
        hy_outf(out, ", elastic from %u to %u", spec->ranks_min, spec->ranks_max);
    for (size_t i = 0; spec && i < spec->n_hosts; i++) {
        hy_out_str(out, i ? ", " : "  on ");
        hy_out_value(out, spec->hosts[i]->host);
        hy_outf(out, ":%u", spec->hosts[i]->slots);
    }
    hy_out_str(out, "  ");
}

/* "random 50  ", "evolve, population 10, generations 10  ", "tpe 100  " */
static void kind_words(struct hy_out *out, const Hy__RunSpec *spec)
{
    struct hy_search_settings settings = hy_run_settings(spec);
    const char *name = hy_search_kind_name(settings.kind);

    hy_out_str(out, name ? name : "unknown");
    if (settings.kind == HY_SEARCH_EVOLVE && !settings.samples)
        hy_outf(out, ", population %u, generations %u", settings.population, settings.generations);
    else if (!hy_run_takes_lists(spec))
        hy_outf(out, " %llu", (unsigned long long)settings.samples);
    hy_outf(out, "%s  ", settings.asynchronous ? ", async" : "");
}

/* "random 50  lr=log:1e-5..1e-1  layers=1..4  max accuracy  seed 7" */
static void search_fact(struct showing *s)
{
    const Hy__RunSpec *spec = s->info.spec;
    const struct hy_run_row *row = &s->info.row;
    struct hy_out *out = &s->out;

    label(out, is_cluster(spec) ? "cluster" : row->ranks ? "training" : "search");
    if (row->ranks)
        ranks_words(out, row, spec);
    else if (spec && spec->n_dims)
        kind_words(out, spec);
    for (size_t i = 0; spec && !row->ranks && i < spec->n_dims; i++)
        dim_words(out, spec->dims[i]->text);
    for (size_t i = 0; spec && i < spec->n_constraints; i++)
        dim_words(out, spec->constraints[i]);
    if (row->metric) {
        hy_out_str(out, row->maximize ? "max " : "min ");
        hy_out_value(out, row->metric);
        hy_out_str(out, "  ");
    }
    if (spec && spec->stop)
        hy_outf(out, "stop %s  ", hy_stop_rule_name(spec->stop->kind));
    hy_outf(out, "seed %lld\n", (long long)row->seed);
}

/* Two spaces between the limits that are set. */
static void limit(struct hy_out *out, bool *some, const char *name, const char *value)
{
    hy_outf(out, "%s%s %s", *some ? "  " : "", name, value);
    *some = true;
}

static void limits_fact(struct showing *s)
{
    const Hy__RunSpec *spec = s->info.spec;
    uint32_t parallel = spec && !s->info.row.ranks ? spec->parallel : 0; /* redundant for a training */
    bool some = false;
    char text[40];

    if (!spec ||
        !(parallel || spec->memory || spec->timeout_ms || spec->retries || spec->gpus_said || spec->max_transfer))
        return;
    label(&s->out, "limits");
    snprintf(text, sizeof text, "%u", parallel);
    if (parallel)
        limit(&s->out, &some, "parallel", text);
    if (spec->memory)
        limit(&s->out, &some, "memory", hy_format_size(spec->memory, text, sizeof text));
    if (spec->max_transfer == HY_TRANSFER_UNLIMITED)
        limit(&s->out, &some, "max-transfer", "none");
    else if (spec->max_transfer)
        limit(&s->out, &some, "max-transfer", hy_format_size(spec->max_transfer, text, sizeof text));
    if (spec->timeout_ms)
        limit(&s->out, &some, "timeout", hy_format_duration(spec->timeout_ms, text, sizeof text));
    snprintf(text, sizeof text, "%u", spec->retries);
    if (spec->retries)
        limit(&s->out, &some, "retries", text);
    snprintf(text, sizeof text, "%g", spec->gpu_share / 1000.0);
    if (spec->gpus_said)
        limit(&s->out, &some, "gpus", text);
    hy_out_str(&s->out, "\n");
}

static void counts_fact(struct showing *s)
{
    const struct hy_run_counts *c = &s->info.counts;
    struct hy_out *out = &s->out;

    label(out, is_cluster(s->info.spec) ? "nodes" : s->info.row.ranks ? "ranks" : "trials");
    if (s->info.row.total >= 0)
        hy_outf(out, "%lld:", (long long)s->info.row.total);
    hy_outf(out, " %lld done", (long long)c->done);
    if (c->failed)
        hy_outf(out, ", %lld failed", (long long)c->failed);
    if (c->pruned)
        hy_outf(out, ", %lld pruned", (long long)c->pruned);
    if (c->stopped)
        hy_outf(out, ", %lld stopped", (long long)c->stopped);
    if (c->paused)
        hy_outf(out, ", %lld paused", (long long)c->paused);
    if (c->running)
        hy_outf(out, ", %lld %s", (long long)c->running, s->info.alive ? "running" : "interrupted");
    hy_out_str(out, "\n");
}

static int on_note(void *arg, const struct hy_note_row *note)
{
    fact(arg, "note", note->text);
    return 0;
}

static int head(struct showing *s, struct hy_err *err)
{
    const struct hy_run_row *row = &s->info.row;
    char text[80], age[40];

    title(s);
    fact(&s->out, "message", row->message);
    if (row->state == HY_RUN_RUNNING && !s->info.alive) {
        label(&s->out, "");
        hy_outf(&s->out, "its driver has exited%s\n",
                hy_resume_clause(hy_run_resume(s->info.spec), row->id, "; `", "` continues it", text, sizeof text));
    }
    fact_take(&s->out, "command", hy_command_text(row->command));
    fact(&s->out, "directory", s->info.spec ? s->info.spec->cwd : NULL);
    search_fact(s);
    limits_fact(s);
    counts_fact(s);
    label(&s->out, "started");
    hy_outf(&s->out, "%s (%s)\n", hy_format_time(row->created, text, sizeof text),
            hy_format_age(row->created, hy_clock_wall_ms(), age, sizeof age));
    fact(&s->out, "git", row->git);
    fact_take(&s->out, "versions", hy_versions_text(row->versions));
    fact(&s->out, "logs", s->info.shown);
    return hy_store_note_each(s->store, row->id, 0, on_note, &s->out, err);
}

/* ---- the trials ------------------------------------------------------------------ */

static int on_attempt(void *arg, const struct hy_attempt_row *a)
{
    struct hy_out *out = arg;
    char text[40];

    hy_outf(out, "    attempt %lld", (long long)a->number);
    if (a->agent && *a->agent) {
        hy_out_str(out, " on ");
        hy_out_value(out, a->agent);
    }
    hy_outf(out, ": %s", hy_attempt_state_name(a->state));
    if (a->ended > a->started)
        hy_outf(out, " after %s", hy_format_duration(a->ended - a->started, text, sizeof text));
    if (a->peak_memory > 0)
        hy_outf(out, ", %s", hy_format_size((uint64_t)a->peak_memory, text, sizeof text));
    if (a->message && *a->message) {
        hy_out_str(out, ": ");
        hy_out_value(out, a->message);
    }
    hy_out_str(out, "\n");
    return out->rc;
}

/* Lists the attempts of failed trials with retries below the table. */
static int attempts(struct showing *s, struct hy_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < s->page_count && rc >= 0; i++) {
        const Hy__TrialView *t = s->page[i];

        if (strcmp(t->state, "failed") != 0 || t->attempt < 2)
            continue;
        hy_outf(&s->out, "  %s %llu\n", hy_trial_noun((uint32_t)s->info.row.ranks),
                (unsigned long long)hy_trial_label((uint32_t)s->info.row.ranks, t->number));
        rc = hy_store_attempt_each(s->store, s->info.row.id, (int64_t)t->number, on_attempt, &s->out, err);
    }
    return rc;
}

static int flush_page(struct showing *s, struct hy_err *err)
{
    struct hy_trial_table_options options = {.metric = s->info.row.metric,
                                             .best = (uint64_t)s->info.counts.best_trial,
                                             .titles = true,
                                             .ranks = s->info.row.ranks > 0};
    int rc = 0;

    if (s->page_count) {
        hy_out_str(&s->out, "\n");
        rc = hy_trial_table_render(&s->out, (const Hy__TrialView *const *)s->page, s->page_count, &options);
    }
    if (rc >= 0)
        rc = attempts(s, err);
    for (size_t i = 0; i < s->page_count; i++)
        hy__trial_view__free_unpacked(s->page[i], &hy_proto_memory);
    s->shown += (int64_t)s->page_count;
    s->page_count = 0;
    return rc < 0 ? rc : hy_out_flush(&s->out, STDOUT_FILENO);
}

static int on_trial(void *arg, const struct hy_trial_row *row)
{
    struct showing *s = arg;
    int rc = s->page_count == PAGE ? flush_page(s, s->err) : 0;

    if (rc < 0)
        return rc;
    s->page[s->page_count] = hy_trial_view_new(row);
    if (!s->page[s->page_count])
        return -ENOMEM;
    s->page_count++;
    return 0;
}

/* Page by page, so that memory does not grow with the number of trials; but in one query, so that the list is
 * consistent while the run continues. */
static int table(struct showing *s, struct hy_err *err)
{
    int rc;

    s->err = err;
    rc = hy_store_trial_each(s->store, s->info.row.id, 0, s->order, s->skip, s->limit, on_trial, s, err);
    return rc < 0 ? rc : flush_page(s, err);
}

static int64_t trial_count(const struct hy_run_counts *c)
{
    return c->running + c->done + c->failed + c->stopped + c->pruned + c->paused;
}

static int show_plot(struct showing *s, struct hy_err *err)
{
    int rc = head(s, err);

    if (rc == 0)
        rc = hy_show_plot(s->store, &s->info, &s->out, err);
    return rc < 0 ? rc : hy_out_flush(&s->out, STDOUT_FILENO);
}

static int show_text(struct showing *s, struct hy_err *err)
{
    int rc = head(s, err);

    if (rc == 0)
        rc = table(s, err);
    if (rc == 0 && trial_count(&s->info.counts) - s->skip > s->shown)
        hy_outf(&s->out, "and %lld more: use --trials all to list them\n",
                (long long)(trial_count(&s->info.counts) - s->skip - s->shown));
    return rc < 0 ? rc : hy_out_flush(&s->out, STDOUT_FILENO);
}

/* ---- JSON -------------------------------------------------------------------------------- */

struct last_values {
    json_t *values;
    int64_t attempt;
};

/* Only the values of the last attempt count. */
static int on_metric(void *arg, const struct hy_metric_row *m)
{
    hy_cleanup_json json_t *name = hy_json_text(m->name);
    struct last_values *last = arg;

    if (m->attempt != last->attempt && json_object_clear(last->values) < 0)
        return -ENOMEM;
    last->attempt = m->attempt;
    return hy_json_set(last->values, json_string_value(name), hy_json_number(m->value));
}

static int on_detail(void *arg, const struct hy_attempt_row *a)
{
    return hy_json_set(arg, "detail", hy_json_text(a->detail)); /* the last attempt wins */
}

/* Adds what a row of trials does not have: the last value of each metric, and the detailed reason of a failure. */
static int add_rest(struct showing *s, const struct hy_trial_row *row, json_t *trial)
{
    int64_t run = s->info.row.id;
    struct last_values last = {.values = json_object()};
    int rc = hy_json_set(trial, "metrics", last.values);

    if (rc == 0)
        rc = hy_store_metric_each(s->store, run, row->number, on_metric, &last, s->err);
    if (rc == 0 && row->state == HY_TRIAL_FAILED)
        rc = hy_store_attempt_each(s->store, run, row->number, on_detail, trial, s->err);
    return rc;
}

static int on_json_trial(void *arg, const struct hy_trial_row *row)
{
    struct showing *s = arg;
    hy_cleanup_json json_t *trial = NULL;
    Hy__TrialView view;
    int rc;

    hy_trial_view(row, &view);
    trial = hy_json_trial(&view, s->info.row.metric);
    rc = add_rest(s, row, trial);
    if (rc < 0)
        return rc;
    hy_out_str(&s->out, s->shown++ ? ",\n  " : "\n  ");
    hy_json_take(&s->out, hy_take(trial));
    return s->out.rc < 0 || s->out.buf.len < 65536 ? s->out.rc : hy_out_flush(&s->out, STDOUT_FILENO);
}

static int on_json_note(void *arg, const struct hy_note_row *note)
{
    struct showing *s = arg;

    hy_out_str(&s->out, s->shown++ ? ", " : "");
    hy_json_take(&s->out, hy_json_text(note->text));
    return s->out.rc;
}

static int show_json(struct showing *s, struct hy_err *err)
{
    hy_cleanup_free char *socket = NULL;
    json_t *run;
    int rc;

    s->err = err;
    if (s->info.alive && !(socket = hy_driver_socket(hy_store_dir_path(s->store), s->info.row.id, err)))
        return err->code;
    run = hy_json_run(&s->info.row, &s->info.counts, s->info.alive, s->info.shown, socket);
    if (hy_json_set(run, "log", hy_json_log_names(s->info.spec)) < 0)
        json_decref(hy_take(run));
    hy_out_str(&s->out, "{\"run\": ");
    hy_json_take(&s->out, run);
    hy_out_str(&s->out, ",\n \"trials\": [");
    rc = hy_store_trial_each(s->store, s->info.row.id, 0, s->order, s->skip, s->limit, on_json_trial, s, err);
    hy_out_str(&s->out, "],\n \"notes\": [");
    s->shown = 0;
    if (rc >= 0)
        rc = hy_store_note_each(s->store, s->info.row.id, 0, on_json_note, s, err);
    hy_out_str(&s->out, "]}\n");
    return rc < 0 ? rc : hy_out_flush(&s->out, STDOUT_FILENO);
}

/* ---- the commands ------------------------------------------------------------------ */

static int open_showing(struct showing *s, const struct hy_args *args, struct hy_err *err)
{
    const char *trials = hy_args_get(args, "trials"), *skipped = hy_args_get(args, "skip");
    struct hy_style style;
    uint64_t limit = TRIALS_SHOWN, skip = 0;
    int rc;

    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&s->out, &style);
    if (trials && strcmp(trials, "all") == 0)
        limit = 0;
    else if (trials && (hy_parse_u64(trials, &limit) < 0 || limit == 0 || limit > INT64_MAX))
        return hy_err_option(err, "trials", "takes a number greater than 0, or all, not '%s'", trials);
    if (skipped && (hy_parse_u64(skipped, &skip) < 0 || skip > INT64_MAX))
        return hy_err_option(err, "skip", "takes a number, not '%s'", skipped);
    s->limit = (int64_t)limit;
    s->skip = (int64_t)skip;
    rc = hy_project_store(args, HY_STORE_READ, &s->store, err);
    if (rc == 0)
        rc = hy_run_info_find(s->store, hy_args_word(args, 0), &s->info, err);
    if (rc == 0)
        s->order = s->info.row.metric && !s->info.row.ranks && !hy_args_has(args, "by-number") ? HY_TRIALS_BY_VALUE
                                                                                               : HY_TRIALS_BY_NUMBER;
    return rc;
}

static int close_showing(struct showing *s, const struct hy_args *args, int rc, struct hy_err *err)
{
    for (size_t i = 0; i < s->page_count; i++)
        hy__trial_view__free_unpacked(s->page[i], &hy_proto_memory);
    hy_out_done(&s->out);
    hy_run_info_done(&s->info);
    hy_store_close(s->store);
    if (rc < 0 && !err->code)
        hy_err_sys(err, rc, "cannot write to standard output");
    return rc < 0 ? hy_cmd_failed(args, err) : HY_EXIT_OK;
}

int hy_cmd_show(const struct hy_args *args)
{
    struct showing s = {0};
    struct hy_err err = {0};
    int rc = open_showing(&s, args, &err);

    if (rc == 0 && hy_args_has(args, "json") && hy_args_has(args, "plot"))
        rc = hy_err_option(&err, "plot", "cannot be combined with --json");
    if (rc == 0)
        rc = hy_args_has(args, "json")   ? show_json(&s, &err)
             : hy_args_has(args, "plot") ? show_plot(&s, &err)
                                         : show_text(&s, &err);
    return close_showing(&s, args, rc, &err);
}

static int on_best(void *arg, const struct hy_trial_row *row)
{
    struct showing *s = arg;
    char text[40];

    hy_out_tint_on(&s->out, HY_GREEN);
    hy_out_value(&s->out, s->info.row.metric);
    hy_outf(&s->out, "=%s", hy_format_double(row->value, text, sizeof text));
    hy_out_tint_off(&s->out, HY_GREEN);
    hy_outf(&s->out, "  %s %llu of run %lld\n", hy_trial_noun((uint32_t)s->info.row.ranks),
            (unsigned long long)hy_trial_label((uint32_t)s->info.row.ranks, (uint64_t)row->number),
            (long long)s->info.row.id);
    if (!s->info.row.ranks)
        fact_take(&s->out, "params", hy_json_params(row->params, false));
    fact_take(&s->out, "logs", hy_asprintf("%s/%s", s->info.shown, row->dir));
    if (s->info.row.state == HY_RUN_RUNNING)
        hy_outf(&s->out, "  so far: the run is %s\n", s->info.alive ? "still running" : "interrupted");
    return s->out.rc;
}

static int on_best_json(void *arg, const struct hy_trial_row *row)
{
    struct showing *s = arg;
    Hy__TrialView view;
    json_t *o;

    hy_trial_view(row, &view);
    o = hy_json_trial(&view, s->info.row.metric);
    if (hy_json_set(o, "metric", hy_json_text(s->info.row.metric)) < 0 ||
        hy_json_set(o, "run", json_integer(s->info.row.id)) < 0) {
        json_decref(o);
        return -ENOMEM;
    }
    hy_json_line_take(&s->out, o);
    return s->out.rc;
}

static int best(struct showing *s, const struct hy_args *args, struct hy_err *err)
{
    long long run = s->info.row.id;
    int rc;

    if (!s->info.row.metric)
        return hy_err_set(err, -EINVAL, "run %lld has no metric; start runs with --max NAME or --min NAME", run);
    if (!s->info.counts.best_trial)
        return hy_err_set(err, -ENODATA, "no trial of run %lld has a value yet", run);
    rc = hy_store_trial_each(s->store, run, s->info.counts.best_trial, HY_TRIALS_BY_NUMBER, 0, 1,
                             hy_args_has(args, "json") ? on_best_json : on_best, s, err);
    return rc < 0 ? rc : hy_out_flush(&s->out, STDOUT_FILENO);
}

int hy_cmd_best(const struct hy_args *args)
{
    struct showing s = {0};
    struct hy_err err = {0};
    int rc = open_showing(&s, args, &err);

    if (rc == 0)
        rc = best(&s, args, &err);
    return close_showing(&s, args, rc, &err);
}
