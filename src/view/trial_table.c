/* SPDX-License-Identifier: Apache-2.0 */
#include "view/trial_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "view/json_values.h"

#define PARAM_COLUMNS 16
#define READABLE 14 /* a cell of this width is informative enough */

char *hy_format_metric(double value, char *out, size_t size)
{
    snprintf(out, size, "%.6g", value);
    return out;
}

struct state_style {
    const char *state, *symbol;
    enum hy_tint tint;
};

static const struct state_style *style_of(const char *state)
{
    static const struct state_style styles[] = {
        {"done", "✓", HY_GREEN},   {"failed", "✗", HY_RED},      {"stopped", "■", HY_YELLOW},
        {"running", "●", HY_CYAN}, {"interrupted", "!", HY_RED}, {"retry", "↻", HY_YELLOW},
        {"pruned", "✂", HY_DIM},   {"paused", "‖", HY_YELLOW},
    };
    static const struct state_style other = {"", "·", HY_DIM};

    for (size_t i = 0; i < HY_COUNT(styles); i++)
        if (strcmp(state, styles[i].state) == 0)
            return &styles[i];
    return &other;
}

enum hy_tint hy_state_tint(const char *state)
{
    return style_of(state)->tint;
}

void hy_state_text(const struct hy_style *style, const char *state, unsigned spin, char *ret, size_t size)
{
    static const char *const turning[] = {"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"};
    const char *symbol = style_of(state)->symbol;

    if (spin && strcmp(state, "running") == 0)
        symbol = turning[spin % HY_COUNT(turning)];
    snprintf(ret, size, "%s%s%s", style->unicode ? symbol : "", style->unicode ? " " : "", state);
}

/* Appends a parameter's value: a string unquoted, everything else as JSON; numbers `brief` or with all digits. */
static int append_param(struct hy_buf *b, const json_t *value, bool brief)
{
    char room[40];

    switch (json_typeof(value)) {
    case JSON_STRING:
        return hy_buf_append_str(b, json_string_value(value));
    case JSON_REAL:
        return hy_buf_append_str(b, brief ? hy_format_metric(json_real_value(value), room, sizeof room)
                                          : hy_format_double(json_real_value(value), room, sizeof room));
    default:
        return hy_json_append_compact(b, value);
    }
}

char *hy_json_params(const char *json, bool brief)
{
    hy_cleanup_json json_t *params = hy_json_parse(json, 0);
    hy_cleanup_buf struct hy_buf b;
    const char *name, *text;
    json_t *value;

    hy_buf_init(&b, SIZE_MAX / 2);
    json_object_foreach(params, name, value)
    {
        if (hy_buf_printf(&b, "%s%s=", b.len ? " " : "", name) < 0 || append_param(&b, value, brief) < 0)
            return NULL;
    }
    text = hy_buf_cstr(&b);
    return text ? hy_strdup(text) : NULL;
}

void hy_out_params(struct hy_out *out, enum hy_tint tint, const char *before, const char *json, const char *after)
{
    hy_cleanup_free char *text = hy_json_params(json, false);

    if (!text && out->rc == 0)
        out->rc = -ENOMEM;
    if (!text || !*text)
        return;
    hy_out_str(out, before);
    hy_out_tint(out, tint, text);
    hy_out_str(out, after);
}

struct shape {
    const struct hy_trial_table_options *options;
    json_t *names; /* the trials' parameters, one column each; NULL: all in one column */
    bool metric, steps, messages;
    bool are_nodes; /* the rows are nodes of a cluster, which have names */
};

static void find_shape(struct shape *s, const Hy__TrialView *const *trials, size_t count)
{
    struct hy_trial_table_layout *layout = s->options->layout;

    if (layout) {
        s->steps = layout->steps;
        s->messages = layout->messages;
    }
    s->metric = s->options->metric && *s->options->metric;
    s->are_nodes = s->options->ranks && count && strncmp(trials[0]->params, "{\"node\":", 8) == 0;
    for (size_t i = 0; i < count; i++) {
        s->steps |= s->metric && trials[i]->has_value && trials[i]->step > 0;
        s->messages |= trials[i]->message[0] || trials[i]->attempt > 1;
    }
    if (layout) {
        layout->steps = s->steps;
        layout->messages = s->messages;
    }
}

static void add_columns(struct hy_text_table *g, const struct shape *s)
{
    const char *name;
    json_t *value;

    hy_text_table_column(g,
                         s->are_nodes        ? "node"
                         : s->options->ranks ? "rank"
                                             : "#",
                         s->are_nodes ? 0 : HY_TABLE_RIGHT, 0);
    hy_text_table_column(g, "state", 0, 0);
    if (s->names)
        json_object_foreach(s->names, name, value)
            hy_text_table_column(g, name, HY_TABLE_FLEX | (json_is_number(value) ? HY_TABLE_RIGHT : 0), 0);
    else if (!s->options->ranks)
        hy_text_table_column(g, "parameters", HY_TABLE_FLEX, 0);
    if (s->metric)
        hy_text_table_column(g, s->options->metric, HY_TABLE_RIGHT | HY_TABLE_FLEX, 0);
    if (s->steps)
        hy_text_table_column(g, "step", HY_TABLE_RIGHT, 3);
    hy_text_table_column(g, "time", HY_TABLE_RIGHT, 2);
    if (s->options->agents)
        hy_text_table_column(g, "agent", HY_TABLE_FLEX, 4);
    if (s->messages)
        hy_text_table_column(g, "", HY_TABLE_FLEX, 5);
}

static void add_params(struct hy_text_table *g, const struct shape *s, const Hy__TrialView *t)
{
    hy_cleanup_json json_t *params = s->names ? hy_json_parse(t->params, 0) : NULL;
    const char *name;
    json_t *unused;

    if (s->options->ranks)
        return; /* the first column shows the rank */
    if (!s->names) {
        hy_cleanup_free char *text = hy_json_params(t->params, false);

        hy_text_table_cell(g, HY_PLAIN, text ? text : "?");
        return;
    }
    json_object_foreach(s->names, name, unused)
    {
        const json_t *value = json_object_get(params, name);
        hy_cleanup_buf struct hy_buf b;
        const char *text;

        hy_buf_init(&b, SIZE_MAX / 2);
        text = !value || append_param(&b, value, true) == 0 ? hy_buf_cstr(&b) : NULL;
        hy_text_table_cell(g, HY_PLAIN, text ? text : "?");
    }
}

static void add_node(struct hy_text_table *g, const Hy__TrialView *t)
{
    hy_cleanup_json json_t *params = hy_json_parse(t->params, 0);
    const char *name = json_string_value(json_object_get(params, "node"));

    hy_text_table_cell(g, HY_DIM, name ? name : "?");
}

static const char *step_text(const Hy__TrialView *t, char *room, size_t size)
{
    snprintf(room, size, "%lld", (long long)t->step);
    return t->has_value && t->step >= 0 ? room : "";
}

static void add_row(struct hy_text_table *g, const struct shape *s, const struct hy_style *style,
                    const Hy__TrialView *t)
{
    bool running = strcmp(t->state, "running") == 0;
    unsigned spin = s->options->spin;
    char text[64], again[32] = "";

    if (s->are_nodes)
        add_node(g, t);
    else
        hy_text_table_cellf(g, HY_DIM, "%llu", (unsigned long long)t->number - s->options->ranks);
    hy_state_text(style, t->state, spin ? spin + (unsigned)t->number * 3 : 0, text, sizeof text);
    hy_text_table_cell(g, hy_state_tint(t->state), text);
    add_params(g, s, t);
    if (s->metric)
        hy_text_table_cell(g, t->number == s->options->best ? HY_BEST : HY_PLAIN,
                           t->has_value ? hy_format_metric(t->value, text, sizeof text) : "");
    if (s->steps)
        hy_text_table_cell(g, HY_DIM, step_text(t, text, sizeof text));
    hy_format_duration(t->elapsed_ms + (running ? s->options->later_ms : 0), text, sizeof text);
    hy_text_table_cell(g, HY_PLAIN, strcmp(t->state, "waiting") && strcmp(t->state, "retry") ? text : "");
    if (s->options->agents)
        hy_text_table_cell(g, HY_DIM, t->agent);
    if (t->attempt > 1 && !t->message[0])
        snprintf(again, sizeof again, "attempt %u", t->attempt);
    if (s->messages)
        hy_text_table_cell(g, strcmp(t->state, "failed") ? HY_DIM : HY_RED, t->message[0] ? t->message : again);
}

static struct hy_text_table *fill(struct shape *s, const struct hy_style *style, const Hy__TrialView *const *trials,
                                  size_t count)
{
    struct hy_text_table *g = hy_text_table_new();

    if (!g)
        return NULL;
    add_columns(g, s);
    for (size_t i = 0; i < count; i++)
        add_row(g, s, style, trials[i]);
    return g;
}

/* The parameters of all trials, since inactive ones are missing in some; NULL if there are none, or too many for a
 * column each. */
static json_t *param_names(const Hy__TrialView *const *trials, size_t count)
{
    json_t *names = json_object();
    bool fits = names != NULL;

    for (size_t i = 0; i < count && fits; i++) {
        hy_cleanup_json json_t *params = hy_json_parse(trials[i]->params, 0);

        fits = (!params || json_object_update_missing(names, params) == 0) && json_object_size(names) <= PARAM_COLUMNS;
    }
    if (fits && json_object_size(names) > 0)
        return names;
    json_decref(names);
    return NULL;
}

int hy_trial_table_render(struct hy_out *out, const Hy__TrialView *const *trials, size_t count,
                          const struct hy_trial_table_options *options)
{
    /* In a pipe each value keeps its name, so that grep finds "lr=0.1". */
    hy_cleanup_json json_t *names = out->style.terminal && !options->ranks ? param_names(trials, count) : NULL;
    hy_cleanup_text_table struct hy_text_table *g = NULL;
    struct shape s = {.options = options, .names = names};

    find_shape(&s, trials, count);
    g = fill(&s, &out->style, trials, count);
    /* One column per parameter is most readable, but needs more width. */
    if (g && s.names && out->style.width && hy_text_table_width(g, READABLE) > out->style.width) {
        hy_text_table_free(g);
        s.names = NULL;
        g = fill(&s, &out->style, trials, count);
    }
    if (!g)
        return -ENOMEM;
    if (options->layout)
        hy_text_table_remember(g, &options->layout->columns);
    return hy_text_table_render(g, out, options->titles);
}
