/* SPDX-License-Identifier: Apache-2.0 */
#include "store/internal.h"

int hy_store_metric_add(struct hy_store *s, int64_t run, const struct hy_metric_row *m, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    /* The values of a trial are adjacent, numbered in order of arrival. */
    int rc = hy_query_change(
        &q, s, HY_SQL_METRIC_ADD,
        "INSERT INTO metrics(run, trial, seq, attempt, step, name, value, time, run_seq) VALUES (?1, ?2,"
        " (SELECT coalesce(max(seq), 0) + 1 FROM metrics WHERE run = ?1 AND trial = ?2), ?3, ?4, ?5, ?6, ?7, ?8)",
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
    hy_query_i64(&q, m->run_seq);
    return hy_query_run(&q, err);
}

#define METRIC_SELECT "SELECT trial, attempt, step, name, value, time FROM metrics WHERE run = ?"

static int walk(struct hy_query *q, hy_metric_cb cb, void *arg, struct hy_err *err)
{
    int rc;

    while ((rc = hy_query_step(q, err)) > 0) {
        struct hy_metric_row row = {
            .trial = hy_column_i64(q, 0),
            .attempt = hy_column_i64(q, 1),
            .step = hy_column_i64(q, 2),
            .name = hy_column_text(q, 3),
            .value = hy_column_double(q, 4),
            .time = hy_column_i64(q, 5),
        };

        rc = hy_query_read(q, err);
        if (rc == 0)
            rc = cb(arg, &row);
        if (rc != 0)
            return rc;
    }
    return rc;
}

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
    return walk(&q, cb, arg, err);
}

int hy_store_metric_thinned(struct hy_store *s, int64_t run, int64_t trial, const char *name, int64_t points,
                            hy_metric_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_METRIC_THINNED,
                           "SELECT trial, attempt, step, name, value, time FROM"
                           " (SELECT *, row_number() OVER (ORDER BY seq) - 1 AS place, count(*) OVER () AS count"
                           "  FROM metrics WHERE run = ?1 AND trial = ?2 AND name = ?3)"
                           " WHERE place % ((count + ?4 - 1) / ?4) = 0 OR place = count - 1 ORDER BY seq",
                           err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, trial);
    hy_query_text(&q, name);
    hy_query_i64(&q, points > 0 ? points : 1);
    return walk(&q, cb, arg, err);
}

int hy_store_metric_names(struct hy_store *s, int64_t run, int64_t trial, hy_name_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_METRIC_NAMES,
                           "SELECT name FROM metrics WHERE run = ? AND trial = ? GROUP BY name ORDER BY min(seq)", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, trial);
    while ((rc = hy_query_step(&q, err)) > 0) {
        const char *name = hy_column_text(&q, 0);

        rc = hy_query_read(&q, err);
        if (rc == 0)
            rc = cb(arg, name ? name : "");
        if (rc != 0)
            return rc;
    }
    return rc;
}
