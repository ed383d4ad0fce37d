/* SPDX-License-Identifier: Apache-2.0 */
#include "view/run_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "view/trial_table.h"

struct hy_line hy_line_begin(struct hy_out *out)
{
    return (struct hy_line){.out = out, .left = out->style.width ? out->style.width : HY_LINE_LONG};
}

void hy_line_word(struct hy_line *l, enum hy_tint tint, const char *text)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, SIZE_MAX / 2);
    if (l->out->rc < 0 || !*text)
        return;
    l->out->rc = hy_append_printable(&b, text, strlen(text));
    if (l->out->rc == 0 && l->left > 0) {
        hy_out_tint_on(l->out, tint);
        l->left -= hy_out_cut(l->out, (const char *)hy_buf_bytes(&b), b.len, l->left);
        hy_out_tint_off(l->out, tint);
    }
}

void hy_line_wordf(struct hy_line *l, enum hy_tint tint, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    hy_line_word(l, tint, text);
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

const char *hy_trial_noun(uint32_t ranks)
{
    return ranks ? "rank" : "trial";
}

uint64_t hy_trial_label(uint32_t ranks, uint64_t number)
{
    return number - (ranks > 0);
}

static void write_name(struct hy_line *l, const Hy__Update *u)
{
    hy_line_wordf(l, HY_BOLD, "run %lld", (long long)u->run);
    hy_line_wordf(l, HY_BOLD, u->name[0] ? " %s" : "%s", u->name);
    hy_line_word(l, HY_PLAIN, "  ");
}

void hy_run_text_head(struct hy_line *l, const Hy__Update *u, int64_t later_ms)
{
    char text[64];

    write_name(l, u);
    hy_state_text(&l->out->style, u->state, 0, text, sizeof text);
    hy_line_word(l, hy_state_tint(u->state), text);
    hy_line_wordf(l, HY_PLAIN, "  %s", hy_format_duration(u->elapsed_ms + later_ms, text, sizeof text));
    if (u->ranks) {
        hy_line_wordf(l, HY_DIM, "  %u %s%s", u->ranks, u->nodes ? "node" : "rank", plural(u->ranks));
        if (u->agents > 1)
            hy_line_wordf(l, HY_DIM, " on %u machines", u->agents);
        return;
    }
    if (u->left_ms >= 0) {
        int64_t left = u->left_ms > later_ms ? u->left_ms - later_ms : 0;

        hy_line_wordf(l, HY_PLAIN, ", about %s left", hy_format_duration(left, text, sizeof text));
    }
    hy_line_wordf(l, HY_DIM, "  %u agent%s, %u slot%s", u->agents, plural(u->agents), u->slots, plural(u->slots));
}

static void count(struct hy_line *l, enum hy_tint tint, uint64_t n, const char *what)
{
    if (n)
        hy_line_wordf(l, tint, "  %llu %s", (unsigned long long)n, what);
}

static void write_ended(struct hy_line *l, const Hy__Update *u)
{
    count(l, HY_GREEN, u->done, "done");
    count(l, HY_RED, u->failed, "failed");
    count(l, HY_DIM, u->pruned, "pruned");
    count(l, HY_YELLOW, u->stopped, "stopped");
    count(l, HY_YELLOW, u->paused, "paused");
}

void hy_run_text_counts(struct hy_line *l, const Hy__Update *u)
{
    unsigned long long ended = (unsigned long long)hy_update_ended(u);

    if (u->total >= 0 && !u->ranks) /* the head has the number of ranks */
        hy_line_wordf(l, HY_BOLD, "%llu/%lld", ended, (long long)u->total);
    else if (!u->ranks)
        hy_line_wordf(l, HY_BOLD, "%llu ended", ended);
    write_ended(l, u);
    count(l, HY_CYAN, u->running_count, "running");
}

/* "99 of 100 trials"; stopped trials are not counted in the 99. */
static void write_total(struct hy_line *l, const Hy__Update *u)
{
    uint64_t ended = u->done + u->failed + u->pruned;

    if (u->ranks) {
        hy_line_wordf(l, HY_PLAIN, "%u %s%s", u->ranks, u->nodes ? "node" : "rank", plural(u->ranks));
        return;
    }
    hy_line_wordf(l, HY_PLAIN, "%llu", (unsigned long long)ended);
    if (u->total >= 0)
        hy_line_wordf(l, HY_PLAIN, " of %lld", (long long)u->total);
    hy_line_wordf(l, HY_PLAIN, " trial%s", plural(u->total >= 0 ? (uint64_t)u->total : ended));
}

void hy_run_text_verdict(struct hy_line *l, const Hy__Update *u)
{
    char text[64];

    hy_state_text(&l->out->style, u->state, 0, text, sizeof text);
    hy_line_word(l, u->failed ? HY_RED : hy_state_tint(u->state), text);
    hy_line_word(l, HY_PLAIN, "  ");
    write_name(l, u);
    write_total(l, u);
    hy_line_wordf(l, HY_PLAIN, " in %s:", hy_format_duration(u->elapsed_ms, text, sizeof text));
    write_ended(l, u);
}

void hy_run_text_best(struct hy_line *l, const Hy__Update *u, bool brief)
{
    hy_cleanup_free char *params = hy_json_params(u->best->params, brief);
    char text[40];

    hy_line_wordf(l, HY_BEST, "%s=%s", u->metric, hy_format_metric(u->best->value, text, sizeof text));
    hy_line_wordf(l, HY_DIM, "  %s %llu", hy_trial_noun(u->ranks),
                  (unsigned long long)hy_trial_label(u->ranks, u->best->number));
    if (params && !u->ranks) {
        hy_line_word(l, HY_PLAIN, "  ");
        hy_line_word(l, HY_PLAIN, params);
    }
}

/* The driver's message names the rank that failed first. */
static void write_first_failure(struct hy_line *l, const Hy__Update *u, const Hy__TrialView *t)
{
    if (u->message[0]) {
        hy_line_word(l, HY_PLAIN, u->message);
        return;
    }
    hy_line_wordf(l, HY_PLAIN, "rank %llu failed: ", (unsigned long long)hy_trial_label(u->ranks, t->number));
    hy_line_word(l, HY_PLAIN, t->message[0] ? t->message : "no reason reported");
}

void hy_run_text_failure(struct hy_line *l, const Hy__Update *u, const Hy__TrialView *t)
{
    hy_cleanup_free char *params = hy_json_params(t->params, false);

    hy_line_word(l, HY_RED, l->out->style.unicode ? "✗ " : "! ");
    if (u->ranks) {
        write_first_failure(l, u, t);
        return;
    }
    hy_line_wordf(l, HY_PLAIN, "trial %llu  ", (unsigned long long)t->number);
    if (params && *params) {
        hy_line_word(l, HY_DIM, params);
        hy_line_word(l, HY_PLAIN, "  ");
    }
    hy_line_word(l, HY_PLAIN, t->message[0] ? t->message : "failed");
}

const char *hy_end_reason(const Hy__Update *u)
{
    if (u->ranks && u->failed) /* shown with the rank that failed first */
        return NULL;
    return u->message[0] && strcmp(u->message, u->state) != 0 ? u->message : NULL;
}

const char *hy_resume_effect(const Hy__Update *u)
{
    bool all_tried = !u->ranks && u->failed && u->done + u->failed + u->pruned == (uint64_t)u->total;

    return all_tried ? "retries the failed trials" : "continues the run";
}

int64_t hy_live_view_age(const struct hy_live_view *b, int64_t now_ms)
{
    return b->now && b->now->state[0] && !b->now->last ? now_ms - b->at_ms : 0;
}

static int by_number(const void *a, const void *b)
{
    const Hy__TrialView *const *x = a, *const *y = b;

    return ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

/* All ranks, ordered by number: they run at the same time and are few. */
static size_t choose_ranks(const struct hy_live_view *b, const Hy__TrialView **rows, size_t room)
{
    const Hy__Update *u = b->now;
    size_t n = 0;

    for (size_t i = 0; i < u->n_running && n < room; i++)
        rows[n++] = u->running[i];
    for (size_t i = 0; i < b->recent_count && n < room; i++) {
        size_t same = 0;

        while (same < u->n_running && u->running[same]->number != b->recent[i]->number)
            same++;
        if (same == u->n_running) /* not restarted */
            rows[n++] = b->recent[i];
    }
    qsort(rows, n, sizeof *rows, by_number);
    return n;
}

static size_t choose(const struct hy_live_view *b, const Hy__TrialView **rows, size_t most)
{
    const Hy__Update *u = b->now;
    size_t n = 0;

    for (int waiting = 0; waiting < 2; waiting++)
        for (size_t i = 0; i < u->n_running && n < most; i++)
            if ((strcmp(u->running[i]->state, "running") != 0) == waiting)
                rows[n++] = u->running[i];
    for (size_t i = 0; i < b->recent_count && n < most; i++)
        rows[n++] = b->recent[i];
    return n;
}

int hy_live_view_trials(struct hy_live_view *b, struct hy_out *out, size_t most, int64_t later_ms, unsigned spin)
{
    const Hy__TrialView *rows[HY_LIVE_VIEW_RECENT + 100];
    const Hy__Update *u = b->now;
    struct hy_trial_table_options options = {
        .layout = &b->layout,
        .metric = u->metric,
        .best = u->best ? u->best->number : 0,
        .spin = spin,
        .later_ms = later_ms,
        .agents = u->agents > 1,
        .titles = true,
        .ranks = u->ranks > 0,
    };
    size_t n;

    most = most < HY_COUNT(rows) ? most : HY_COUNT(rows);
    n = u->ranks ? choose_ranks(b, rows, HY_COUNT(rows)) : choose(b, rows, most);
    n = n < most ? n : most;
    return n ? hy_trial_table_render(out, rows, n, &options) : 0;
}
