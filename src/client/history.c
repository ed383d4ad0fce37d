/* SPDX-License-Identifier: Apache-2.0 */
#include "client/history.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "client/runs.h"
#include "wire/wire.h"

#define PART 500 /* trials per read: some milliseconds */

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

    if (hy_array_grow(u->notes, u->n_notes) < 0)
        return -ENOMEM;
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

/* Moves the position to the first of the `newest` trials. */
static int skip_to_newest(struct hy_history *h, struct hy_store *s, const Hy__Update *u, int64_t newest,
                          struct hy_err *err)
{
    int64_t after = 0;
    int rc = hy_store_ended_newest(s, u->run, (int64_t)u->ended_seq, newest, &after, err);

    if (rc == 0 && after > h->trials)
        h->trials = after;
    return rc;
}

int hy_history_read(struct hy_history *h, struct hy_store *s, Hy__Update *u, int64_t newest, struct hy_err *err)
{
    int64_t count = newest ? newest : PART;
    int rc = 0;

    if (u->ended_seq || u->notes_until)
        hy_history_drop(u);
    if ((int64_t)u->ended_seq > h->trials) {
        if (newest)
            rc = skip_to_newest(h, s, u, newest, err);
        if (rc == 0)
            rc = read_trials(h, s, u, count, err);
    }
    if (rc == 0 && !newest && u->n_ended == (size_t)count && (int64_t)u->ended_seq > h->trials)
        return 1;
    if (rc == 0)
        rc = read_notes(h, s, u, err);
    if (rc == -ENOMEM && !err->code)
        hy_err_oom(err);
    return rc;
}
