/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live view as HTML for a notebook: the texts of the live table, then the
 * failures, the notes, and at the end the log directory.
 *
 *   <div> head, bar, counts, best, TensorBoard, trials, failures, notes, end </div>
 *
 * All styles are inline: a style sheet would affect the rest of the page, and a
 * saved notebook must show the last fragment without one.
 */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "view/live_view.h"
#include "view/run_text.h"

#define ROWS 20          /* trials in the table */
#define LONG_COLUMNS 400 /* of a message or a path */

/* The approximate width of a notebook cell. Columns are laid out and cut as in a terminal. */
const struct hy_style hy_html_style = {.width = 100, .terminal = true, .unicode = true, .html = true};

static struct hy_line line_begin(struct hy_out *out, const char *title)
{
    struct hy_line l = {.out = out, .left = LONG_COLUMNS};

    hy_out_str(out, "<div style=\"white-space:pre-wrap;overflow-wrap:anywhere\">");
    hy_line_word(&l, HY_DIM, title);
    return l;
}

static void line_end(struct hy_out *out)
{
    hy_out_str(out, "</div>");
}

static void head(struct hy_out *out, const Hy__Update *u, int64_t later_ms)
{
    struct hy_line l = line_begin(out, "");

    if (u->last)
        hy_run_text_verdict(&l, u);
    else
        hy_run_text_head(&l, u, later_ms);
    line_end(out);
}

/* The share of trials that have ended; 100% only when all have. */
static void bar(struct hy_out *out, const Hy__Update *u)
{
    uint64_t ended = hy_update_ended(u), total = (uint64_t)u->total;
    double percent = total ? 100.0 * (double)ended / (double)total : 100;

    if (u->total < 0 || u->ranks)
        return;
    if (percent > 99.5)
        percent = ended >= total ? 100 : 99.5;
    hy_outf(out,
            "<div role=\"progressbar\" aria-valuemin=\"0\" aria-valuemax=\"100\" aria-valuenow=\"%.1f\" "
            "style=\"max-width:40em;height:7px;margin:4px 0;border:1px solid currentColor;border-radius:5px;"
            "overflow:hidden;opacity:.7\"><div style=\"width:%.1f%%;height:7px;background:currentColor\">"
            "</div></div>",
            percent, percent);
}

static void counts(struct hy_out *out, const Hy__Update *u)
{
    struct hy_line l = line_begin(out, "");

    hy_run_text_counts(&l, u);
    line_end(out);
}

static void best(struct hy_out *out, const Hy__Update *u)
{
    struct hy_line l;

    if (!u->metric[0] || (u->ranks && !u->best))
        return;
    l = line_begin(out, "best  ");
    if (u->best)
        hy_run_text_best(&l, u, !u->last);
    else
        hy_line_word(&l, HY_DIM, "none yet");
    line_end(out);
}

/* Only http and https addresses become links: javascript: and others could run code when clicked. */
static bool is_web(const char *address)
{
    return strncmp(address, "http://", 7) == 0 || strncmp(address, "https://", 8) == 0;
}

static void tensorboard(struct hy_out *out, const Hy__Update *u)
{
    if (!u->tensorboard[0])
        return;
    line_begin(out, "tensorboard  ");
    if (is_web(u->tensorboard)) {
        hy_out_str(out, "<a style=\"color:inherit;text-decoration:underline\" target=\"_blank\" "
                        "rel=\"noopener noreferrer\" href=\"");
        hy_out_value(out, u->tensorboard);
        hy_out_str(out, "\">");
        hy_out_value(out, u->tensorboard);
        hy_out_str(out, "</a>");
    } else {
        hy_out_value(out, u->tensorboard);
    }
    line_end(out);
}

static int trials(struct hy_live_view *b, struct hy_out *out, int64_t later_ms)
{
    const Hy__Update *u = b->now;
    int rc;

    if (u->n_running + b->recent_count == 0)
        return 0;
    hy_out_str(out, "<div style=\"overflow-x:auto;margin:.6em 0\">");
    rc = hy_live_view_trials(b, out, ROWS, later_ms, 0);
    if (u->running_count > ROWS)
        hy_outf(out, "and %llu more are running", (unsigned long long)(u->running_count - ROWS));
    hy_out_str(out, "</div>");
    return rc;
}

/* The last lines of the rank that failed first; <br> keeps the fragment on one line. */
static void last_lines(struct hy_out *out, const char *text)
{
    if (!text || !*text)
        return;
    hy_out_str(out, "<div style=\"white-space:pre-wrap;overflow-wrap:anywhere;opacity:.7;margin-left:2em\">");
    while (*text) {
        size_t n = strcspn(text, "\n");
        hy_cleanup_free char *line = hy_strndup(text, n);

        if (!line)
            out->rc = -ENOMEM;
        hy_out_value(out, line);
        hy_out_str(out, "<br>");
        text += n + (text[n] == '\n');
    }
    line_end(out);
}

static void failures(const struct hy_live_view *b, struct hy_out *out)
{
    for (size_t i = 0; i < b->failure_count; i++) {
        struct hy_line l = line_begin(out, "");

        hy_run_text_failure(&l, b->now, b->failures[i]);
        line_end(out);
    }
    if (b->now->ranks)
        last_lines(out, b->last_lines);
    if (!b->now->ranks && b->failure_count && b->now->failed > b->failure_count) {
        struct hy_line l = line_begin(out, "");

        hy_line_wordf(&l, HY_DIM, "  and %llu more have failed",
                      (unsigned long long)(b->now->failed - b->failure_count));
        line_end(out);
    }
}

static void text_line(struct hy_out *out, const char *title, const char *text)
{
    struct hy_line l = line_begin(out, title);

    hy_line_word(&l, HY_PLAIN, text);
    line_end(out);
}

static void end(struct hy_out *out, const Hy__Update *u)
{
    const char *reason = hy_end_reason(u);
    struct hy_line l;

    if (reason)
        text_line(out, "", reason);
    text_line(out, "logs  ", u->logdir);
    l = line_begin(out, "open  ");
    hy_line_wordf(&l, HY_PLAIN, "hopyard tensorboard %lld", (long long)u->run);
    line_end(out);
}

int hy_live_view_html(struct hy_live_view *b, struct hy_out *out, int64_t now_ms)
{
    const Hy__Update *u = b->now;
    int64_t later = hy_live_view_age(b, now_ms);
    int rc;

    if (!u)
        return out->rc;
    hy_out_str(out, "<div style=\"line-height:1.5\">");
    head(out, u, later);
    bar(out, u);
    if (!u->last)
        counts(out, u);
    best(out, u);
    tensorboard(out, u);
    rc = trials(b, out, later);
    failures(b, out);
    for (size_t i = 0; i < b->note_count; i++)
        text_line(out, "note  ", b->notes[i]);
    if (u->last)
        end(out, u);
    hy_out_str(out, "</div>\n");
    return rc < 0 ? rc : out->rc;
}
