/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "view/json_values.h"
#include "view/run_lines.h"

static json_t *event(const char *name, int64_t run, int *rc)
{
    json_t *o = json_object();

    *rc = hy_json_set(o, "event", json_string(name));
    *rc |= hy_json_set(o, "run", json_integer(run));
    return o;
}

/* Appends the event, or sets out->rc when building it failed. */
static void line(struct hy_out *out, json_t *o, int rc)
{
    if (rc < 0) {
        json_decref(o);
        o = NULL;
    }
    hy_json_line_take(out, o);
}

void hy_run_lines_json_begin(const struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out)
{
    int rc;
    json_t *o = event("run", u->run, &rc);

    rc |= hy_json_set(o, "name", u->name[0] ? hy_json_text(u->name) : json_null());
    rc |= hy_json_set(o, "state", hy_json_text(u->state));
    rc |= hy_json_set(o, "total", u->total >= 0 ? json_integer(u->total) : json_null());
    rc |= hy_json_set(o, "ranks", u->ranks ? json_integer(u->ranks) : json_null());
    rc |= hy_json_set(o, "metric", u->metric[0] ? hy_json_text(u->metric) : json_null());
    rc |= hy_json_set(o, "maximize", json_boolean(u->maximize));
    rc |= hy_json_set(o, "seed", json_integer((json_int_t)s->seed));
    rc |= hy_json_set(o, "logdir", hy_json_text(u->logdir));
    line(out, o, rc);
}

static void trial(const Hy__Update *u, const Hy__TrialView *t, struct hy_out *out)
{
    int rc;
    json_t *o = event("trial", u->run, &rc), *body = hy_json_trial(t, u->metric);

    rc |= body && json_object_update(o, body) == 0 ? 0 : -ENOMEM;
    json_decref(body);
    line(out, o, rc);
}

void hy_run_lines_json_note(int64_t run, const char *text, struct hy_out *out)
{
    int rc;
    json_t *o = event("note", run, &rc);

    rc |= hy_json_set(o, "message", hy_json_text(text));
    line(out, o, rc);
}

static void tensorboard(const Hy__Update *u, struct hy_out *out)
{
    int rc;
    json_t *o = event("tensorboard", u->run, &rc);

    rc |= hy_json_set(o, "address", hy_json_text(u->tensorboard));
    line(out, o, rc);
}

static void end(const Hy__Update *u, struct hy_out *out)
{
    int rc;
    json_t *o = event("end", u->run, &rc);

    rc |= hy_json_set(o, "state", hy_json_text(u->state));
    rc |= hy_json_set(o, "done", json_integer((json_int_t)u->done));
    rc |= hy_json_set(o, "failed", json_integer((json_int_t)u->failed));
    rc |= hy_json_set(o, "stopped", json_integer((json_int_t)u->stopped));
    rc |= hy_json_set(o, "pruned", json_integer((json_int_t)u->pruned));
    rc |= hy_json_set(o, "paused", json_integer((json_int_t)u->paused));
    rc |= hy_json_set(o, "elapsed_ms", json_integer(u->elapsed_ms));
    rc |= hy_json_set(o, "best", u->best ? hy_json_trial(u->best, u->metric) : json_null());
    rc |= hy_json_set(o, "message", u->message[0] ? hy_json_text(u->message) : json_null());
    line(out, o, rc);
}

void hy_run_lines_json_update(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out)
{
    if (hy_run_lines_new_tensorboard(s, u))
        tensorboard(u, out);
    for (size_t i = hy_run_lines_skip(s, u->n_ended); i < u->n_ended; i++) {
        trial(u, u->ended[i], out);
        s->ended++;
    }
    for (size_t i = 0; i < u->n_notes; i++)
        hy_run_lines_json_note(u->run, u->notes[i], out);
    if (u->last)
        end(u, out);
}

size_t hy_run_lines_skip(struct hy_run_lines *s, size_t count)
{
    size_t skipped = s->skip < count ? (size_t)s->skip : count;

    s->skip -= skipped;
    return skipped;
}

bool hy_run_lines_new_tensorboard(struct hy_run_lines *s, const Hy__Update *u)
{
    if (!u->tensorboard[0] || strncmp(u->tensorboard, s->tensorboard, sizeof s->tensorboard - 1) == 0)
        return false;
    snprintf(s->tensorboard, sizeof s->tensorboard, "%s", u->tensorboard);
    return true;
}

int hy_run_lines_begin(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out)
{
    if (!s->begun && s->json)
        hy_run_lines_json_begin(s, u, out);
    else if (!s->begun)
        hy_run_lines_text_begin(s, u, out);
    s->begun = true;
    return out->rc;
}

int hy_run_lines_update(struct hy_run_lines *s, const Hy__Update *u, struct hy_out *out)
{
    hy_run_lines_begin(s, u, out);
    if (s->json)
        hy_run_lines_json_update(s, u, out);
    else
        hy_run_lines_text_update(s, u, out);
    return out->rc;
}

int hy_run_lines_note(const struct hy_run_lines *s, int64_t run, const char *text, struct hy_out *out)
{
    if (s->json)
        hy_run_lines_json_note(run, text, out);
    else
        hy_run_lines_text_note(text, out);
    return out->rc;
}

int hy_run_lines_detached(const struct hy_run_lines *s, int64_t run, const char *tensorboard, struct hy_out *out)
{
    int rc;

    if (s->json) {
        json_t *o = event("detached", run, &rc);

        if (*tensorboard)
            rc |= hy_json_set(o, "tensorboard", hy_json_text(tensorboard));
        line(out, o, rc);
    } else {
        if (*tensorboard)
            hy_outf(out, "tensorboard %s\n", tensorboard);
        hy_outf(out, "run %lld continues; watch it with: hopyard attach %lld; stop it with: hopyard stop %lld\n",
                (long long)run, (long long)run, (long long)run);
    }
    return out->rc;
}
