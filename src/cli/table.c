/* SPDX-License-Identifier: Apache-2.0 */
/* The pictures of a board: the live table and the summary. */
#include "cli/board.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "cli/trials.h"

#define BAR_MOST 40
#define BAR_LEAST 10

/* One line that is cut at the terminal's width. */
struct line {
    struct hy_out *out;
    int left; /* columns that may still be used */
};

static struct line line_begin(struct hy_out *out)
{
    return (struct line){.out = out, .left = out->style.width ? out->style.width : 1 << 20};
}

static void word(struct line *l, enum hy_tint tint, const char *text)
{
    struct hy_buf b;

    if (l->out->rc < 0 || !*text)
        return;
    hy_buf_init(&b, SIZE_MAX / 2);
    l->out->rc = hy_append_printable(&b, text, strlen(text));
    if (l->out->rc == 0 && l->left > 0) {
        hy_out_tint_on(l->out, tint);
        l->left -= hy_out_cut(l->out, (const char *)hy_buf_bytes(&b), b.len, l->left);
        hy_out_tint_off(l->out, tint);
    }
    hy_buf_done(&b);
}

HY_PRINTF(3, 4) static void wordf(struct line *l, enum hy_tint tint, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    word(l, tint, text);
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* "run 3 digits  ● running  42s, about 4m05s left  1 agent, 2 slots" */
static void head_line(struct hy_out *out, const Hy__Update *u, int64_t later_ms)
{
    struct line l = line_begin(out);
    char text[64];

    wordf(&l, HY_BOLD, "run %lld", (long long)u->run);
    wordf(&l, HY_BOLD, u->name[0] ? " %s" : "%s", u->name);
    word(&l, HY_PLAIN, "  ");
    hy_state_text(&out->style, u->state, 0, text, sizeof text);
    word(&l, hy_state_tint(u->state), text);
    wordf(&l, HY_PLAIN, "  %s", hy_format_duration(u->elapsed_ms + later_ms, text, sizeof text));
    if (u->left_ms >= 0) {
        int64_t left = u->left_ms > later_ms ? u->left_ms - later_ms : 0;

        wordf(&l, HY_PLAIN, ", about %s left", hy_format_duration(left, text, sizeof text));
    }
    wordf(&l, HY_DIM, "  %u agent%s, %u slot%s", u->agents, plural(u->agents), u->slots, plural(u->slots));
    hy_out_str(out, "\n");
}

static void bar(struct line *l, uint64_t ended, uint64_t total, int width)
{
    bool unicode = l->out->style.unicode;
    /* Half steps, and never full before the last trial has ended. */
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

static void count(struct line *l, enum hy_tint tint, uint64_t n, const char *what)
{
    if (n)
        wordf(l, tint, "  %llu %s", (unsigned long long)n, what);
}

/* "━━━━━━━╸──────  12/100  11 done  1 failed  2 running" */
static void progress_line(struct hy_out *out, const Hy__Update *u)
{
    struct line l = line_begin(out);
    uint64_t ended = hy_update_ended(u);
    int width = l.left - 50;

    if (u->total >= 0) {
        if (width >= BAR_LEAST)
            bar(&l, ended, (uint64_t)u->total, width < BAR_MOST ? width : BAR_MOST);
        wordf(&l, HY_BOLD, "%llu/%lld", (unsigned long long)ended, (long long)u->total);
    } else {
        wordf(&l, HY_BOLD, "%llu ended", (unsigned long long)ended);
    }
    count(&l, HY_GREEN, u->done, "done");
    count(&l, HY_RED, u->failed, "failed");
    count(&l, HY_YELLOW, u->stopped, "stopped");
    count(&l, HY_CYAN, u->running_count, "running");
    hy_out_str(out, "\n");
}

static void best_words(struct line *l, const Hy__Update *u, bool brief)
{
    hy_cleanup_free char *params = hy_json_params(u->best->params, brief);
    char text[40];

    wordf(l, HY_GREEN, "%s=%s", u->metric, hy_format_metric(u->best->value, text, sizeof text));
    wordf(l, HY_DIM, "  trial %llu  ", (unsigned long long)u->best->number);
    word(l, HY_PLAIN, params ? params : "");
}

/* 1 when it wrote a line. */
static int best_line(struct hy_out *out, const Hy__Update *u)
{
    struct line l = line_begin(out);

    if (!u->metric[0])
        return 0;
    word(&l, HY_DIM, "best  ");
    if (u->best)
        best_words(&l, u, true);
    else
        word(&l, HY_DIM, "none yet");
    hy_out_str(out, "\n");
    return 1;
}

static int trial_lines(struct hy_board *b, struct hy_out *out, int room, int64_t later_ms, unsigned spin)
{
    const Hy__TrialView *rows[HY_BOARD_RECENT + 100];
    const Hy__Update *u = b->now;
    struct hy_trials_look look = {
        .memory = &b->memory,
        .metric = u->metric,
        .best = u->best ? u->best->number : 0,
        .spin = spin,
        .later_ms = later_ms,
        .agents = u->agents > 1,
        .titles = true,
    };
    size_t n = 0, most = room < 0 ? 0 : (size_t)room;

    if (most > HY_COUNT(rows))
        most = HY_COUNT(rows);
    for (int waiting = 0; waiting < 2; waiting++)
        for (size_t i = 0; i < u->n_running && n < most; i++)
            if ((strcmp(u->running[i]->state, "running") != 0) == waiting)
                rows[n++] = u->running[i];
    for (size_t i = 0; i < b->recent_count && n < most; i++)
        rows[n++] = b->recent[i];
    return n ? hy_trials_render(out, rows, n, &look) : 0;
}

int hy_board_table(struct hy_board *b, struct hy_out *out, int64_t now_ms, unsigned spin, const char *footer)
{
    int64_t later = b->now && b->now->state[0] && !b->now->last ? now_ms - b->at_ms : 0;
    int used, height = out->style.height ? out->style.height - 1 : 1 << 20, rc = 0;

    if (footer)
        height--;
    if (b->now && height >= 1) {
        head_line(out, b->now, later);
        progress_line(out, b->now);
        used = 2 + best_line(out, b->now);
        if (height >= used + 3) {
            hy_out_str(out, "\n");
            rc = trial_lines(b, out, height - used - 2, later, spin);
        }
    }
    if (footer) {
        struct line l = line_begin(out);

        word(&l, HY_YELLOW, footer);
        hy_out_str(out, "\n");
    }
    return rc < 0 ? rc : out->rc;
}

/* ---- the summary ------------------------------------------------------------ */

static void verdict(const struct hy_board *b, struct hy_out *out)
{
    const Hy__Update *u = b->now;
    struct line l = line_begin(out);
    char text[64];

    hy_state_text(&out->style, u->state, 0, text, sizeof text);
    l.left = 1 << 20; /* the summary is read later, in a wider terminal perhaps: nothing is cut */
    word(&l, u->failed ? HY_RED : hy_state_tint(u->state), text);
    wordf(&l, HY_BOLD, "  run %lld", (long long)u->run);
    wordf(&l, HY_BOLD, u->name[0] ? " %s" : "%s", u->name);
    word(&l, HY_PLAIN, "  ");
    wordf(&l, HY_PLAIN, "%llu", (unsigned long long)hy_update_ended(u));
    if (u->total >= 0)
        wordf(&l, HY_PLAIN, " of %lld", (long long)u->total);
    wordf(&l, HY_PLAIN, " trial%s", plural(u->total >= 0 ? (uint64_t)u->total : hy_update_ended(u)));
    wordf(&l, HY_PLAIN, " in %s:", hy_format_duration(u->elapsed_ms, text, sizeof text));
    count(&l, HY_GREEN, u->done, "done");
    count(&l, HY_RED, u->failed, "failed");
    count(&l, HY_YELLOW, u->stopped, "stopped");
    hy_out_str(out, "\n");
    if (u->message[0] && strcmp(u->message, u->state) != 0) {
        hy_out_str(out, "  ");
        hy_out_tint(out, strcmp(u->state, "failed") ? HY_DIM : HY_RED, u->message);
        hy_out_str(out, "\n");
    }
}

static void failures(const struct hy_board *b, struct hy_out *out)
{
    const Hy__Update *u = b->now;

    for (size_t i = 0; i < b->failure_count; i++) {
        const Hy__TrialView *t = b->failures[i];

        hy_out_tint(out, HY_RED, out->style.unicode ? "  ✗ " : "  ! ");
        hy_outf(out, "trial %llu", (unsigned long long)t->number);
        hy_out_params(out, HY_DIM, "  ", t->params, "");
        hy_out_str(out, "  ");
        hy_out_value(out, t->message[0] ? t->message : "failed");
        hy_out_str(out, "\n");
    }
    if (b->failure_count && u->failed > b->failure_count)
        hy_outf(out, "    and %llu more\n", (unsigned long long)(u->failed - b->failure_count));
}

int hy_board_summary(const struct hy_board *b, struct hy_out *out)
{
    const Hy__Update *u = b->now;
    uint64_t trial;

    if (!u)
        return out->rc;
    verdict(b, out);
    failures(b, out);
    if (u->metric[0] && u->best) {
        struct line l = {.out = out, .left = 1 << 20};

        hy_out_tint(out, HY_DIM, "  best  ");
        best_words(&l, u, false);
        hy_out_str(out, "\n");
    }
    hy_out_tint(out, HY_DIM, "  logs  ");
    hy_out_value(out, u->logdir);
    hy_out_str(out, "\n");
    hy_out_tint(out, HY_DIM, "  more  ");
    trial = b->failure_count ? b->failures[0]->number : u->best ? u->best->number : 1;
    hy_outf(out, "hopyard show %lld, hopyard logs %lld %llu", (long long)u->run, (long long)u->run,
            (unsigned long long)trial);
    if (strcmp(u->state, "done") != 0 || u->failed)
        hy_outf(out, ", hopyard resume %lld", (long long)u->run);
    hy_out_str(out, "\n");
    return out->rc;
}
