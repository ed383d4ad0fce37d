/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of a turn, recorded in memory until a thread applies them.
 *
 * One allocation holds a change and copies of its strings. A batch that could not be
 * applied is not modified, so that it can be applied again.
 */
#include "store/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum change_kind {
    CHANGE_RUN_STATE,
    CHANGE_TRIAL_ADD,
    CHANGE_TRIAL_END,
    CHANGE_ATTEMPT_ADD,
    CHANGE_ATTEMPT_HELD,
    CHANGE_ATTEMPT_END,
    CHANGE_USAGE_SET,
    CHANGE_METRIC_ADD,
    CHANGE_DECISION_ADD,
    CHANGE_NOTE_ADD,
};

struct hy_change {
    struct hy_change *next;
    enum change_kind kind;
    union {
        struct {
            enum hy_run_state state;
            const char *message;
        } run;
        struct hy_trial_row trial;
        struct hy_attempt_row attempt;
        struct hy_usage_row usage;
        struct hy_metric_row metric;
        struct hy_decision_row decision;
        struct hy_note_row note;
    };
    char texts[]; /* and blobs */
};

void hy_changes_init(struct hy_changes *c)
{
    *c = (struct hy_changes){.end = &c->first};
}

void hy_changes_clear(struct hy_changes *c)
{
    for (struct hy_change *x = c->first, *next; x; x = next) {
        next = x->next;
        free(x);
    }
    hy_changes_init(c);
}

void hy_changes_take(struct hy_changes *to, struct hy_changes *from)
{
    hy_changes_clear(to);
    if (!from->first)
        return;
    *to = *from;
    hy_changes_init(from);
}

/* ---- recording ------------------------------------------------------------------ */

static void append(struct hy_changes *c, struct hy_change *change, size_t size)
{
    *c->end = change;
    c->end = &change->next;
    c->bytes += size;
}

/* Records a copy of `change`. `fields` point to its strings, which are copied too. */
static int record(struct hy_changes *c, struct hy_change *change, const char **fields[], size_t n)
{
    size_t size = sizeof *change;
    struct hy_change *kept;
    char *at;

    for (size_t i = 0; i < n; i++)
        size += *fields[i] ? strlen(*fields[i]) + 1 : 0;
    kept = hy_malloc(size);
    if (!kept)
        return -ENOMEM;
    at = kept->texts;
    for (size_t i = 0; i < n; i++) {
        size_t length = *fields[i] ? strlen(*fields[i]) + 1 : 0;

        if (length == 0)
            continue;
        *fields[i] = memcpy(at, *fields[i], length);
        at += length;
    }
    memcpy(kept, change, sizeof *change);
    append(c, kept, size);
    return 0;
}

int hy_changes_run_state(struct hy_changes *c, enum hy_run_state state, const char *message)
{
    struct hy_change x = {.kind = CHANGE_RUN_STATE, .run = {state, message}};
    const char **texts[] = {&x.run.message};

    return record(c, &x, texts, HY_COUNT(texts));
}

static int record_trial(struct hy_changes *c, enum change_kind kind, const struct hy_trial_row *row)
{
    struct hy_change x = {.kind = kind, .trial = *row};
    const char **texts[] = {&x.trial.params, &x.trial.dir, &x.trial.message};

    return record(c, &x, texts, HY_COUNT(texts));
}

int hy_changes_trial_add(struct hy_changes *c, const struct hy_trial_row *row)
{
    return record_trial(c, CHANGE_TRIAL_ADD, row);
}

int hy_changes_trial_end(struct hy_changes *c, const struct hy_trial_row *row)
{
    struct hy_trial_row end = *row;

    end.params = end.dir = NULL; /* they stay as they are */
    return record_trial(c, CHANGE_TRIAL_END, &end);
}

static int record_attempt(struct hy_changes *c, enum change_kind kind, const struct hy_attempt_row *row)
{
    struct hy_change x = {.kind = kind, .attempt = *row};
    const char **texts[] = {&x.attempt.agent, &x.attempt.host, &x.attempt.message, &x.attempt.detail, &x.attempt.held};

    return record(c, &x, texts, HY_COUNT(texts));
}

int hy_changes_attempt_add(struct hy_changes *c, const struct hy_attempt_row *row)
{
    return record_attempt(c, CHANGE_ATTEMPT_ADD, row);
}

int hy_changes_attempt_held(struct hy_changes *c, const struct hy_attempt_row *row)
{
    return record_attempt(c, CHANGE_ATTEMPT_HELD, row);
}

int hy_changes_attempt_end(struct hy_changes *c, const struct hy_attempt_row *row)
{
    return record_attempt(c, CHANGE_ATTEMPT_END, row);
}

int hy_changes_usage_set(struct hy_changes *c, const struct hy_usage_row *row)
{
    size_t size = sizeof(struct hy_change) + row->points_len;
    struct hy_change *x = hy_malloc(size);

    if (!x)
        return -ENOMEM;
    *x = (struct hy_change){.kind = CHANGE_USAGE_SET, .usage = *row};
    if (row->points_len)
        memcpy(x->texts, row->points, row->points_len);
    x->usage.points = x->texts;
    append(c, x, size);
    return 0;
}

int hy_changes_metric_add(struct hy_changes *c, const struct hy_metric_row *row)
{
    struct hy_change x = {.kind = CHANGE_METRIC_ADD, .metric = *row};
    const char **texts[] = {&x.metric.name};

    return record(c, &x, texts, HY_COUNT(texts));
}

int hy_changes_decision_add(struct hy_changes *c, const struct hy_decision_row *row)
{
    struct hy_change x = {.kind = CHANGE_DECISION_ADD, .decision = *row};

    return record(c, &x, NULL, 0);
}

int hy_changes_note_add(struct hy_changes *c, const struct hy_note_row *row)
{
    struct hy_change x = {.kind = CHANGE_NOTE_ADD, .note = *row};
    const char **texts[] = {&x.note.text};

    return record(c, &x, texts, HY_COUNT(texts));
}

/* ---- applying ------------------------------------------------------------------- */

/* The driver chose the directory name: if the store would change it, the two disagree about the run. */
static int add_trial(struct hy_store *s, int64_t run, const struct hy_trial_row *row, struct hy_err *err)
{
    hy_cleanup_free char *dir = NULL;
    int rc = hy_store_trial_add(s, run, row, &dir, err);

    if (rc == 0 && strcmp(dir, row->dir) != 0)
        rc = hy_err_set(err, -EEXIST, "run %lld has two trials with the directory '%s'", (long long)run, row->dir);
    return rc;
}

static int apply(struct hy_store *s, int64_t run, const struct hy_change *x, struct hy_err *err)
{
    switch (x->kind) {
    case CHANGE_RUN_STATE:
        return hy_store_run_state(s, run, x->run.state, x->run.message, err);
    case CHANGE_TRIAL_ADD:
        return add_trial(s, run, &x->trial, err);
    case CHANGE_TRIAL_END:
        return hy_store_trial_end(s, run, &x->trial, err);
    case CHANGE_ATTEMPT_ADD:
        return hy_store_attempt_add(s, run, &x->attempt, err);
    case CHANGE_ATTEMPT_END:
        return hy_store_attempt_end(s, run, &x->attempt, err);
    case CHANGE_ATTEMPT_HELD:
        return hy_store_attempt_held(s, run, &x->attempt, err);
    case CHANGE_USAGE_SET:
        return hy_store_usage_set(s, run, &x->usage, err);
    case CHANGE_METRIC_ADD:
        return hy_store_metric_add(s, run, &x->metric, err);
    case CHANGE_DECISION_ADD:
        return hy_store_decision_add(s, run, &x->decision, err);
    case CHANGE_NOTE_ADD:
        return hy_store_note_add(s, run, &x->note, err);
    }
    return -EINVAL;
}

int hy_store_apply(struct hy_store *s, int64_t run, const struct hy_changes *c, struct hy_err *err)
{
    struct hy_err why = {0};
    int rc = 0;

    for (const struct hy_change *x = c->first; x && rc == 0; x = x->next)
        rc = apply(s, run, x, &why);
    if (rc < 0 && s->failure.code == 0) /* all or nothing */
        hy_store_fail_turn(s, &why);
    rc = hy_store_commit(s, err);
    return rc == 0 ? hy_store_check_files(s, err) : rc;
}
