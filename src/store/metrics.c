/* SPDX-License-Identifier: Apache-2.0 */
#include "store/internal.h"

int hy_store_metric_add(struct hy_store *s, int64_t run, const struct hy_metric_row *m, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    /* The values of a trial are adjacent, numbered in order of arrival. */
    int rc = hy_query_change(
        &q, s, HY_SQL_METRIC_ADD,
        "INSERT INTO metrics(run, trial, seq, attempt, step, name, value, time) VALUES (?1, ?2,"
        " (SELECT coalesce(max(seq), 0) + 1 FROM metrics WHERE run = ?1 AND trial = ?2), ?3, ?4, ?5, ?6, ?7)",
        err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, m->trial);
    hy_query_i64(&q, m->attempt);
    hy_query_i64(&q, m->step);
    hy_query_text(&q, m->name ? m->name : "");
    hy_query_double(&q, true, m->value);
    hy_query_i64(&q, m->time);
    return hy_query_run(&q, err);
}

#define METRIC_SELECT "SELECT trial, attempt, step, name, value, time FROM metrics WHERE run = ?"

int hy_store_metric_each(struct hy_store *s, int64_t run, int64_t trial, hy_metric_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = trial ? hy_query_open(&q, s, HY_SQL_METRIC_ONE, METRIC_SELECT " AND trial = ? ORDER BY seq", err)
                   : hy_query_open(&q, s, HY_SQL_METRIC_ALL, METRIC_SELECT " ORDER BY trial, seq", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    if (trial)
        hy_query_i64(&q, trial);
    while ((rc = hy_query_step(&q, err)) > 0) {
        struct hy_metric_row row = {
            .trial = hy_column_i64(&q, 0),
            .attempt = hy_column_i64(&q, 1),
            .step = hy_column_i64(&q, 2),
            .name = hy_column_text(&q, 3),
            .value = hy_column_double(&q, 4),
            .time = hy_column_i64(&q, 5),
        };

        rc = hy_query_read(&q, err);
        if (rc == 0)
            rc = cb(arg, &row);
        if (rc != 0)
            return rc;
    }
    return rc;
}
