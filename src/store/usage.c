/* SPDX-License-Identifier: Apache-2.0 */
#include "store/internal.h"

int hy_store_usage_set(struct hy_store *s, int64_t run, const struct hy_usage_row *u, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(&q, s, HY_SQL_USAGE_SET,
                             "INSERT INTO usage(run, trial, attempt, points) VALUES (?,?,?,?)"
                             " ON CONFLICT (run, trial, attempt) DO UPDATE SET points = excluded.points",
                             err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, u->trial);
    hy_query_i64(&q, u->attempt);
    hy_query_blob(&q, u->points, u->points_len);
    return hy_query_run(&q, err);
}

#define USAGE_SELECT "SELECT trial, attempt, points FROM usage WHERE run = ?"

int hy_store_usage_each(struct hy_store *s, int64_t run, int64_t trial, hy_usage_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = trial ? hy_query_open(&q, s, HY_SQL_USAGE_ONE, USAGE_SELECT " AND trial = ? ORDER BY attempt", err)
                   : hy_query_open(&q, s, HY_SQL_USAGE_ALL, USAGE_SELECT " ORDER BY trial, attempt", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    if (trial)
        hy_query_i64(&q, trial);
    while ((rc = hy_query_step(&q, err)) > 0) {
        struct hy_usage_row row = {.trial = hy_column_i64(&q, 0), .attempt = hy_column_i64(&q, 1)};

        row.points = hy_column_blob(&q, 2, &row.points_len);
        rc = hy_query_read(&q, err);
        if (rc == 0)
            rc = cb(arg, &row);
        if (rc != 0)
            return rc;
    }
    return rc;
}

int hy_store_attempt_usage_between(struct hy_store *s, int64_t run, int64_t from, int64_t to, hy_attempt_usage_cb cb,
                                   void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_USAGE_BETWEEN,
                           "SELECT a.trial, a.number, a.queued, a.started, a.begun, a.ended, a.cpu_ms, a.peak_memory,"
                           " a.held, u.points FROM (SELECT * FROM attempts WHERE " HY_ATTEMPTS_BETWEEN
                           ") AS a LEFT JOIN usage AS u ON u.run = ?1 AND u.trial = a.trial AND u.attempt = a.number"
                           " ORDER BY a.trial, a.number",
                           err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, from);
    hy_query_i64(&q, to);
    while ((rc = hy_query_step(&q, err)) > 0) {
        struct hy_attempt_row a = {
            .trial = hy_column_i64(&q, 0),
            .number = hy_column_i64(&q, 1),
            .queued = hy_column_i64(&q, 2),
            .started = hy_column_i64(&q, 3),
            .begun = hy_column_i64(&q, 4),
            .ended = hy_column_i64(&q, 5),
            .cpu_ms = hy_column_i64(&q, 6),
            .peak_memory = hy_column_i64(&q, 7),
            .held = hy_column_text(&q, 8),
        };
        struct hy_usage_row u = {.trial = a.trial, .attempt = a.number};

        u.points = hy_column_blob(&q, 9, &u.points_len);
        rc = hy_query_read(&q, err);
        if (rc == 0)
            rc = cb(arg, &a, u.points ? &u : NULL);
        if (rc != 0)
            return rc;
    }
    return rc;
}
