/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/failures.h"

#include <errno.h>

#include "base/mem.h"
#include "cli/rank_output.h"
#include "wire/wire.h"

#define LAST_LINES 15 /* of a traceback, of the rank that failed first */

static int take_failed(void *arg, const struct hy_trial_row *row)
{
    struct hy_live_view *b = arg;
    Hy__TrialView *view;

    if (row->state != HY_TRIAL_FAILED)
        return 0;
    view = hy_trial_view_new(row);
    if (!view)
        return -ENOMEM;
    hy_live_view_take_failure(b, view);
    return b->failure_count == HY_LIVE_VIEW_FAILURES || b->failure_count >= b->now->failed ? 1 : 0;
}

void hy_live_view_failures(struct hy_live_view *b, struct hy_store *s, int64_t run)
{
    struct hy_err err = {0};

    if (!b->now || b->now->failed == 0)
        return;
    /* The store has all failures; the driver's updates contain only the newest. */
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

    *ended = a->ended; /* the last attempt wins */
    return 0;
}

/* All trials of a training end at the same time; only the attempts have the times at which the processes ended. */
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

void hy_live_view_find_first_failure(struct hy_live_view *b, struct hy_store *s, const struct hy_run_info *info)
{
    struct search search = {.store = s, .run = info->row.id};
    struct hy_err err = {0};

    if (hy_store_trial_each(s, info->row.id, 0, HY_TRIALS_BY_NUMBER, 0, 0, take_earliest, &search, &err) < 0)
        err.code = 0; /* use what was found so far */
    if (search.first)
        hy_live_view_take_first_failure(
            b, search.first,
            info->spec ? hy_last_lines(info->row.logdir, info->spec, search.first->number, LAST_LINES) : hy_strdup(""));
}
