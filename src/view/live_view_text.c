/* SPDX-License-Identifier: Apache-2.0 */
/* The live view in a terminal: the live table and the summary. */
#include <string.h>

#include "view/live_view.h"
#include "view/run_text.h"
#include "driver/driver.h"

#define BAR_MOST 40
#define BAR_LEAST 10
#define COUNT_WIDTH 10 /* "  5 pruned" */

static void bar(struct hy_line *l, uint64_t ended, uint64_t total, int width)
{
    bool unicode = l->out->style.unicode;
    /* Half steps; full only when all trials have ended. */
    double part = total ? (double)ended / (double)total : 1;
    int halves = part >= 1 ? 2 * width : (int)(part * 2 * width);
    int full = halves / 2, half = unicode && halves % 2;

    if (!unicode)
        hy_out_str(l->out, "[");
    hy_out_tint_on(l->out, HY_GREEN);
    hy_out_repeat(l->out, unicode ? "━" : "#", full);
    hy_out_repeat(l->out, "╸", half);
    hy_out_tint_off(l->out, HY_GREEN);
    hy_out_tint_on(l->out, HY_DIM);
    hy_out_repeat(l->out, unicode ? "─" : "-", width - full - half);
    hy_out_tint_off(l->out, HY_DIM);
    hy_out_str(l->out, unicode ? "  " : "]  ");
    l->left -= width + (unicode ? 2 : 4);
}

static void head_line(struct hy_out *out, const Hy__Update *u, int64_t later_ms)
{
    struct hy_line l = hy_line_begin(out);

    hy_run_text_head(&l, u, later_ms);
    if (u->ranks)
        hy_run_text_counts(&l, u);
    hy_out_str(out, "\n");
}

/* "━━━━━━━╸──────  12/100  11 done  1 failed  2 running" */
static void progress_line(struct hy_out *out, const Hy__Update *u)
{
    struct hy_line l = hy_line_begin(out);
    int width = l.left - 50 - (u->pruned ? COUNT_WIDTH : 0) - (u->paused ? COUNT_WIDTH : 0);

    if (u->total >= 0 && width >= BAR_LEAST)
        bar(&l, hy_update_ended(u), (uint64_t)u->total, width < BAR_MOST ? width : BAR_MOST);
    hy_run_text_counts(&l, u);
    hy_out_str(out, "\n");
}

/* Returns the number of lines written, 0 or 1. */
static int best_line(struct hy_out *out, const Hy__Update *u)
{
    struct hy_line l = hy_line_begin(out);

    if (!u->metric[0] || (u->ranks && !u->best)) /* the table shows the values of ranks */
        return 0;
    hy_line_word(&l, HY_DIM, "best  ");
    if (u->best)
        hy_run_text_best(&l, u, true);
    else
        hy_line_word(&l, HY_DIM, "none yet");
    hy_out_str(out, "\n");
    return 1;
}

/* Returns the number of lines written, 0 or 1. */
static int tensorboard_line(struct hy_out *out, const Hy__Update *u)
{
    struct hy_line l = hy_line_begin(out);

    if (!u->tensorboard[0])
        return 0;
    hy_line_word(&l, HY_DIM, "tensorboard  ");
    hy_line_word(&l, HY_PLAIN, u->tensorboard);
    hy_out_str(out, "\n");
    return 1;
}

/* Returns the number of lines written, 0 or 1. */
static int above_line(struct hy_out *out, const char *text)
{
    struct hy_line l = hy_line_begin(out);

    if (!text || !*text)
        return 0;
    hy_line_word(&l, HY_PLAIN, text);
    hy_out_str(out, "\n");
    return 1;
}

int hy_live_view_text(struct hy_live_view *b, struct hy_out *out, int64_t now_ms, unsigned spin, const char *footer)
{
    int64_t later = hy_live_view_age(b, now_ms);
    int used, height = out->style.height ? out->style.height - 1 : 1 << 20, rc = 0;

    if (footer)
        height--;
    if (height >= 2)
        height -= above_line(out, b->above);
    if (b->now && height >= 1) {
        head_line(out, b->now, later);
        if (!b->now->ranks)
            progress_line(out, b->now);
        used = 2 - (b->now->ranks > 0) + best_line(out, b->now);
        if (height > used)
            used += tensorboard_line(out, b->now);
        if (height >= used + 3) {
            hy_out_str(out, "\n");
            rc = hy_live_view_trials(b, out, (size_t)(height - used - 2), later, spin);
        }
    }
    if (footer) {
        struct hy_line l = hy_line_begin(out);

        hy_line_word(&l, HY_YELLOW, footer);
        hy_out_str(out, "\n");
    }
    return rc < 0 ? rc : out->rc;
}

/* ---- the summary ------------------------------------------------------------
 * It stays in the scrollback, where the terminal may be wider later: nothing is cut. */

static struct hy_line whole_line(struct hy_out *out, const char *before)
{
    hy_out_tint(out, HY_DIM, before);
    return (struct hy_line){.out = out, .left = HY_LINE_LONG};
}

static void verdict(const struct hy_live_view *b, struct hy_out *out)
{
    const char *reason = hy_end_reason(b->now);
    struct hy_line l = whole_line(out, "");

    hy_run_text_verdict(&l, b->now);
    hy_out_str(out, "\n");
    if (reason) {
        hy_out_str(out, "  ");
        hy_out_tint(out, strcmp(b->now->state, "failed") ? HY_DIM : HY_RED, reason);
        hy_out_str(out, "\n");
    }
}

/* Indents each line. */
static void quoted(struct hy_out *out, const char *text)
{
    while (text && *text) {
        size_t n = strcspn(text, "\n");

        hy_out_str(out, "      ");
        hy_out_tint_on(out, HY_DIM);
        hy_out_bytes(out, text, n);
        hy_out_tint_off(out, HY_DIM);
        hy_out_str(out, "\n");
        text += n + (text[n] == '\n');
    }
}

int hy_live_view_first_failure(const struct hy_live_view *b, const Hy__Update *u, struct hy_out *out)
{
    struct hy_line l;

    if (!u->ranks || !b->failure_count)
        return out->rc;
    l = whole_line(out, "  ");
    hy_run_text_failure(&l, u, b->failures[0]);
    hy_out_str(out, "\n");
    quoted(out, b->last_lines);
    return out->rc;
}

static void failures(const struct hy_live_view *b, struct hy_out *out)
{
    const Hy__Update *u = b->now;

    if (u->ranks) {
        hy_live_view_first_failure(b, u, out);
        return;
    }
    for (size_t i = 0; i < b->failure_count; i++) {
        struct hy_line l = whole_line(out, "  ");

        hy_run_text_failure(&l, u, b->failures[i]);
        hy_out_str(out, "\n");
    }
    if (b->failure_count && u->failed > b->failure_count)
        hy_outf(out, "    and %llu more\n", (unsigned long long)(u->failed - b->failure_count));
}

/* Commands to run next. */
static void more(const struct hy_live_view *b, struct hy_out *out)
{
    const Hy__Update *u = b->now;
    uint64_t trial = b->failure_count ? b->failures[0]->number : u->best ? u->best->number : 1;
    uint64_t called = hy_trial_label(u->ranks, trial);
    char text[80];

    hy_out_tint(out, HY_DIM, "  open  ");
    hy_outf(out, "hopyard tensorboard %lld\n", (long long)u->run);
    hy_out_tint(out, HY_DIM, "  more  ");
    hy_outf(out, "hopyard show %lld, hopyard logs %lld %llu", (long long)u->run, (long long)u->run,
            (unsigned long long)called);
    if (strcmp(u->state, "done") != 0 || u->failed)
        hy_out_str(out, hy_resume_clause(u->resume, u->run, ", ", "", text, sizeof text));
    hy_out_str(out, "\n");
}

int hy_live_view_summary(const struct hy_live_view *b, struct hy_out *out)
{
    const Hy__Update *u = b->now;

    if (!u)
        return out->rc;
    verdict(b, out);
    failures(b, out);
    if (u->metric[0] && u->best) {
        struct hy_line l = whole_line(out, "  best  ");

        hy_run_text_best(&l, u, false);
        hy_out_str(out, "\n");
    }
    hy_out_tint(out, HY_DIM, "  logs  ");
    hy_out_value(out, u->logdir);
    hy_out_str(out, "\n");
    more(b, out);
    return out->rc;
}
