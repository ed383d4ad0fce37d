/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "view/live_view.h"
#include "view/run_text.h"
#include "view/run_lines.h"
#include "driver/driver.h"

/* "run 3 digits: 100 trials, 2 slots, seed 7, logs in …" */
void hy_run_lines_text_begin(const struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out)
{
    hy_outf(out, "run %lld", (long long)u->run);
    if (u->name[0]) {
        hy_out_str(out, " ");
        hy_out_value(out, u->name);
    }
    if (u->ranks)
        hy_outf(out, ": %u %s%s", u->ranks, u->nodes ? "node" : "rank", u->ranks == 1 ? "" : "s");
    else if (u->total >= 0)
        hy_outf(out, ": %lld trial%s", (long long)u->total, u->total == 1 ? "" : "s");
    else
        hy_out_str(out, ": unlimited trials");
    hy_outf(out, ", seed %llu, logs in ", (unsigned long long)s->seed);
    hy_out_value(out, u->logdir);
    hy_out_str(out, "\n");
}

/* "[12/100] trial 7 done  lr=0.001 dropout=0.45  accuracy=0.91  3.2s": the twelfth that ended */
static void trial(struct hy_run_lines *s, const Hy__Update *u, const Hy__TrialView *t, struct hy_out *out)
{
    char text[40];

    s->ended++;
    if (u->ranks)
        return; /* ranks end together; the last line reports them */
    hy_outf(out, "[%llu", (unsigned long long)s->ended);
    if (u->total >= 0)
        hy_outf(out, "/%lld", (long long)u->total);
    hy_outf(out, "] trial %llu ", (unsigned long long)t->number);
    hy_out_tint(out, HY_PLAIN, t->state);
    hy_out_params(out, HY_PLAIN, "  ", t->params, "");
    if (t->has_value && u->metric[0]) {
        hy_out_str(out, "  ");
        hy_out_value(out, u->metric);
        hy_outf(out, "=%s", hy_format_double(t->value, text, sizeof text));
    }
    hy_outf(out, "  %s", hy_format_duration(t->elapsed_ms, text, sizeof text));
    if (t->message[0] && strcmp(t->message, t->state) != 0) {
        hy_out_str(out, "  ");
        hy_out_value(out, t->message);
    }
    hy_out_str(out, "\n");
}

static void some(struct hy_out *out, const char *before, uint64_t n, const char *what)
{
    if (n)
        hy_outf(out, "%s%llu %s", before, (unsigned long long)n, what);
}

/* "run 3 done: 98 done, 2 failed in 4m05s; best accuracy=0.93 in trial 7 (lr=0.001)" */
static void end(const Hy__Update *u, struct hy_out *out)
{
    const char *reason = hy_end_reason(u);
    char after[64], text[160];

    hy_outf(out, "run %lld ", (long long)u->run);
    hy_out_value(out, u->state);
    hy_outf(out, ": %llu done", (unsigned long long)u->done);
    some(out, ", ", u->failed, "failed");
    some(out, ", ", u->pruned, "pruned");
    some(out, ", ", u->stopped, "stopped");
    some(out, ", ", u->paused, "paused");
    hy_outf(out, " in %s", hy_format_duration(u->elapsed_ms, text, sizeof text));
    if (u->best && u->metric[0]) {
        hy_out_str(out, "; best ");
        hy_out_value(out, u->metric);
        hy_outf(out, "=%s in %s %llu", hy_format_double(u->best->value, text, sizeof text), hy_trial_noun(u->ranks),
                (unsigned long long)hy_trial_label(u->ranks, u->best->number));
        if (!u->ranks)
            hy_out_params(out, HY_PLAIN, " (", u->best->params, ")");
    }
    hy_out_str(out, "\n");
    if (reason) {
        hy_out_value(out, reason);
        hy_out_str(out, "\n");
    }
    hy_out_str(out, "logs in ");
    hy_out_value(out, u->logdir);
    hy_outf(out, "; 'hopyard tensorboard %lld' shows them\n", (long long)u->run);
    snprintf(after, sizeof after, "' %s\n", hy_resume_effect(u));
    if (strcmp(u->state, "done") != 0)
        hy_out_str(out, hy_resume_clause(u->resume, u->run, "'", after, text, sizeof text));
}

void hy_run_lines_text_note(const char *text, struct hy_out *out)
{
    hy_out_str(out, "note: ");
    hy_out_value(out, text);
    hy_out_str(out, "\n");
}

void hy_run_lines_text_update(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out)
{
    if (hy_run_lines_new_tensorboard(s, u)) {
        hy_out_str(out, "tensorboard ");
        hy_out_value(out, u->tensorboard);
        hy_out_str(out, "\n");
    }
    for (size_t i = hy_run_lines_skip(s, u->n_ended); i < u->n_ended; i++)
        trial(s, u, u->ended[i], out);
    for (size_t i = 0; i < u->n_notes; i++)
        hy_run_lines_text_note(u->notes[i], out);
    if (u->last)
        end(u, out);
}
