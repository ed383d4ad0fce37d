/* SPDX-License-Identifier: Apache-2.0 */
#include "view/live_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/wire.h"

static void trial_free(Hy__TrialView *t)
{
    if (t)
        hy__trial_view__free_unpacked(t, &hy_proto_memory);
}

void hy_live_view_done(struct hy_live_view *b)
{
    for (size_t i = 0; i < b->recent_count; i++)
        trial_free(b->recent[i]);
    for (size_t i = 0; i < b->failure_count; i++)
        trial_free(b->failures[i]);
    for (size_t i = 0; i < b->note_count; i++)
        free(b->notes[i]);
    free(b->last_lines);
    if (b->now)
        hy__update__free_unpacked(b->now, &hy_proto_memory);
    *b = (struct hy_live_view){0};
}

/* A deep copy: protobuf-c has none, so the message is packed and unpacked. */
static Hy__TrialView *trial_copy(const Hy__TrialView *t)
{
    struct hy_buf bytes;
    Hy__TrialView *copy = NULL;
    size_t n = hy__trial_view__get_packed_size(t);
    uint8_t *room;

    hy_buf_init(&bytes, n + 1);
    room = hy_buf_reserve(&bytes, n + 1);
    if (room)
        copy = hy__trial_view__unpack(&hy_proto_memory, hy__trial_view__pack(t, room), room);
    hy_buf_done(&bytes);
    return copy;
}

void hy_live_view_take_failure(struct hy_live_view *b, Hy__TrialView *trial)
{
    for (size_t i = 0; i < b->failure_count; i++)
        if (b->failures[i]->number == trial->number) {
            trial_free(b->failures[i]);
            b->failures[i] = trial;
            return;
        }
    if (b->failure_count == HY_LIVE_VIEW_FAILURES)
        trial_free(trial);
    else
        b->failures[b->failure_count++] = trial;
}

void hy_live_view_take_first_failure(struct hy_live_view *b, Hy__TrialView *trial, char *last_lines)
{
    for (size_t i = 0; i < b->failure_count; i++)
        trial_free(b->failures[i]);
    b->failures[0] = trial;
    b->failure_count = 1;
    free(b->last_lines);
    b->last_lines = last_lines;
}

/* Inserts at the front and replaces an earlier entry of the same trial. */
void hy_live_view_take_ended(struct hy_live_view *b, Hy__TrialView *trial)
{
    size_t at = 0;

    while (at < b->recent_count && b->recent[at]->number != trial->number)
        at++;
    if (at == HY_LIVE_VIEW_RECENT)
        at--;
    if (at < b->recent_count)
        trial_free(b->recent[at]);
    else
        b->recent_count++;
    memmove(b->recent + 1, b->recent, at * sizeof b->recent[0]);
    b->recent[0] = trial;
}

void hy_live_view_take_note(struct hy_live_view *b, char *text)
{
    for (size_t i = 0; i < b->note_count; i++)
        if (strcmp(b->notes[i], text) == 0) { /* the driver repeats its notes after a reconnect */
            free(text);
            return;
        }
    if (b->note_count == HY_LIVE_VIEW_NOTES) {
        free(b->notes[0]);
        memmove(b->notes, b->notes + 1, --b->note_count * sizeof b->notes[0]);
    }
    b->notes[b->note_count++] = text;
}

int hy_live_view_take(struct hy_live_view *b, Hy__Update *update, int64_t now_ms)
{
    int rc = 0;

    for (size_t i = 0; i < update->n_ended; i++) {
        Hy__TrialView *t = update->ended[i];

        if (strcmp(t->state, "failed") == 0 && b->failure_count < HY_LIVE_VIEW_FAILURES) {
            Hy__TrialView *copy = trial_copy(t);

            if (copy)
                hy_live_view_take_failure(b, copy);
            else
                rc = -ENOMEM;
        }
        hy_live_view_take_ended(b, t);
    }
    for (size_t i = 0; i < update->n_notes; i++)
        hy_live_view_take_note(b, update->notes[i]);
    update->n_ended = update->n_notes = 0; /* moved to the view; the arrays are freed with the update */
    if (b->now)
        hy__update__free_unpacked(b->now, &hy_proto_memory);
    b->now = update;
    b->at_ms = now_ms;
    return rc;
}

uint64_t hy_update_ended(const Hy__Update *u)
{
    return u->done + u->failed + u->stopped + u->pruned;
}
