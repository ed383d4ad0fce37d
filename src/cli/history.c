/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/history.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cli/proto.h"
#include "cli/stream.h"

#define PART 500      /* trials in one read: some milliseconds */
#define LAST_LINES 15 /* a traceback's, of the rank that failed first */

/* ---- what is new ----------------------------------------------------------------- */

void hy_history_drop(Hy__Update *u)
{
    for (size_t i = 0; i < u->n_ended; i++)
        hy__trial_view__free_unpacked(u->ended[i], &hy_proto_memory);
    for (size_t i = 0; i < u->n_notes; i++)
        free(u->notes[i]);
    free(hy_take(u->ended));
    free(hy_take(u->notes));
    u->n_ended = u->n_notes = 0;
}

struct reading {
    struct hy_history *history;
    Hy__Update *update;
};

static int add_trial(void *arg, const struct hy_trial_row *row)
{
    struct reading *r = arg;
    Hy__TrialView *view = hy_trial_view_new(row);

    if (!view)
        return -ENOMEM;
    r->update->ended[r->update->n_ended++] = view;
    r->history->trials = row->ended_seq;
    return 0;
}

static int read_trials(struct hy_history *h, struct hy_store *s, Hy__Update *u, int64_t count, struct hy_err *err)
{
    struct reading r = {h, u};

    u->ended = hy_calloc((size_t)count, sizeof *u->ended);
    if (!u->ended)
        return -ENOMEM;
    return hy_store_ended_each(s, u->run, h->trials, (int64_t)u->ended_seq, count, add_trial, &r, err);
}

static int add_note(void *arg, const struct hy_note_row *row)
{
    struct reading *r = arg;
    Hy__Update *u = r->update;
    char **more = hy_reallocarray(u->notes, u->n_notes + 1, sizeof *more);

    if (!more)
        return -ENOMEM;
    u->notes = more;
    u->notes[u->n_notes] = hy_strdup(row->text);
    if (!u->notes[u->n_notes])
        return -ENOMEM;
    u->n_notes++;
    r->history->notes = row->seq;
    return 0;
}

static int read_notes(struct hy_history *h, struct hy_store *s, Hy__Update *u, struct hy_err *err)
{
    struct reading r = {h, u};

    if (h->notes < (int64_t)u->notes_before)
        h->notes = (int64_t)u->notes_before;
    return h->notes < (int64_t)u->notes_until ? hy_store_note_each(s, u->run, h->notes, add_note, &r, err) : 0;
}

/* Where the newest trials begin, for those who want no others. */
static int skip_to_newest(struct hy_history *h, struct hy_store *s, const Hy__Update *u, struct hy_err *err)
{
    int64_t after = 0;
    int rc = hy_store_ended_newest(s, u->run, (int64_t)u->ended_seq, HY_BOARD_RECENT, &after, err);

    if (rc == 0 && after > h->trials)
        h->trials = after;
    return rc;
}

int hy_history_read(struct hy_history *h, struct hy_store *s, Hy__Update *u, bool all, struct hy_err *err)
{
    int64_t count = all ? PART : HY_BOARD_RECENT;
    int rc = 0;

    if (u->ended_seq || u->notes_until)
        hy_history_drop(u);
    if ((int64_t)u->ended_seq > h->trials) {
        if (!all)
            rc = skip_to_newest(h, s, u, err);
        if (rc == 0)
            rc = read_trials(h, s, u, count, err);
    }
    if (rc == 0 && all && u->n_ended == (size_t)count && (int64_t)u->ended_seq > h->trials)
        return 1;
    if (rc == 0)
        rc = read_notes(h, s, u, err);
    if (rc == -ENOMEM && !err->code)
        hy_err_set(err, rc, "out of memory");
    return rc;
}

/* ---- what has failed ------------------------------------------------------------- */

static int take_failed(void *arg, const struct hy_trial_row *row)
{
    struct hy_board *b = arg;
    Hy__TrialView *view;

    if (row->state != HY_TRIAL_FAILED)
        return 0;
    view = hy_trial_view_new(row);
    if (!view)
        return -ENOMEM;
    hy_board_take_failure(b, view);
    return b->failure_count == HY_BOARD_FAILURES || b->failure_count >= b->now->failed ? 1 : 0;
}

void hy_board_failures(struct hy_board *b, struct hy_store *s, int64_t run)
{
    struct hy_err err = {0};

    if (!b->now || b->now->failed == 0)
        return;
    /* The store knows them all, the driver told the newest only. */
    if (hy_store_trial_each(s, run, 0, HY_TRIALS_BY_NUMBER, 0, 0, take_failed, b, &err) < 0)
        return;
}

struct search { /* for the failed rank that ended first */
    struct hy_store *store;
    int64_t run;
    Hy__TrialView *first;
    int64_t ended;
};

static int last_end(void *arg, const struct hy_attempt_row *a)
{
    int64_t *ended = arg;

    *ended = a->ended; /* the last one's remains */
    return 0;
}

/* All ranks end with the training; when a process did its attempt says. */
static int take_earliest(void *arg, const struct hy_trial_row *row)
{
    struct search *s = arg;
    int64_t ended = row->ended;
    struct hy_err err = {0};
    Hy__TrialView *view;

    if (row->state != HY_TRIAL_FAILED)
        return 0;
    if (hy_store_attempt_each(s->store, s->run, row->number, last_end, &ended, &err) < 0)
        ended = row->ended;
    if (s->first && ended >= s->ended)
        return 0;
    view = hy_trial_view_new(row);
    if (!view)
        return -ENOMEM;
    if (s->first)
        hy__trial_view__free_unpacked(s->first, &hy_proto_memory);
    s->first = view;
    s->ended = ended;
    return 0;
}

void hy_board_find_culprit(struct hy_board *b, struct hy_store *s, const struct hy_runinfo *info)
{
    struct search search = {.store = s, .run = info->row.id};
    struct hy_err err = {0};

    if (hy_store_trial_each(s, info->row.id, 0, HY_TRIALS_BY_NUMBER, 0, 0, take_earliest, &search, &err) < 0)
        err.code = 0; /* then what is known so far has to do */
    if (search.first)
        hy_board_take_culprit(b, search.first,
                              info->spec ? hy_last_lines(info->row.logdir, info->spec, search.first->number, LAST_LINES)
                                         : hy_strdup(""));
}
