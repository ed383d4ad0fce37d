/* SPDX-License-Identifier: Apache-2.0 */
/* Early stopping: its decisions, and the order of everything that they depend on. */
#include "store/internal.h"

int hy_store_decision_add(struct hy_store *s, int64_t run, const struct hy_decision_row *row, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(&q, s, HY_SQL_DECISION_ADD,
                             "INSERT INTO decisions(run, seq, trial, decision, time) VALUES (?, ?, ?, ?, ?)", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, row->seq);
    hy_query_i64(&q, row->trial);
    hy_query_i64(&q, row->decision);
    hy_query_i64(&q, row->time);
    return hy_query_run(&q, err);
}

static struct hy_stop_event read_event(struct hy_query *q)
{
    struct hy_stop_event e = {
        .seq = hy_column_i64(q, 0), .kind = (enum hy_stop_event_kind)hy_column_i64(q, 1), .trial = hy_column_i64(q, 2)};

    switch (e.kind) {
    case HY_STOP_EVENT_REPORT:
        e.attempt = hy_column_i64(q, 3);
        e.step = hy_column_i64(q, 4);
        e.value = hy_column_double(q, 5);
        break;
    case HY_STOP_EVENT_DECISION:
        e.decision = (int)hy_column_i64(q, 3);
        break;
    case HY_STOP_EVENT_END:
        e.state = (enum hy_trial_state)hy_column_i64(q, 3);
        break;
    case HY_STOP_EVENT_ASK:
        break;
    }
    return e;
}

/* Only what early stopping uses is sorted: reports of other metrics have no place in the order. */
int hy_store_stop_replay(struct hy_store *s, int64_t run, hy_stop_event_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(
        &q, s, HY_SQL_STOP_REPLAY,
        "SELECT asked_seq AS seq, 0, number, 0, 0, 0 FROM trials WHERE run = ?1"
        " UNION ALL SELECT run_seq, 1, trial, attempt, step, value FROM metrics WHERE run = ?1 AND run_seq > 0"
        " UNION ALL SELECT seq, 2, trial, decision, 0, 0 FROM decisions WHERE run = ?1"
        " UNION ALL SELECT ended_seq, 3, number, state, 0, 0 FROM trials WHERE run = ?1 AND ended_seq > 0 ORDER BY seq",
        err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    while ((rc = hy_query_step(&q, err)) > 0) {
        const struct hy_stop_event e = read_event(&q);

        rc = hy_query_read(&q, err);
        if (rc == 0)
            rc = cb(arg, &e);
        if (rc != 0)
            return rc;
    }
    return rc;
}
