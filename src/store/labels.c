/* SPDX-License-Identifier: Apache-2.0 */
/* Labels that users give to runs and trials: names, tags and notes. */
#include "store/internal.h"

#include <errno.h>

int hy_store_run_rename(struct hy_store *s, int64_t run, const char *name, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(&q, s, HY_SQL_ONCE, "UPDATE runs SET name = ? WHERE id = ?", err);

    if (rc < 0)
        return rc;
    hy_query_text(&q, name && *name ? name : NULL);
    hy_query_i64(&q, run);
    rc = hy_query_run(&q, err);
    if (rc == 0 && sqlite3_changes(s->db) == 0)
        return hy_err_set(err, -ENOENT, "there is no run %lld; `hopyard ls` lists runs", (long long)run);
    return rc;
}

int hy_store_label_set(struct hy_store *s, int64_t run, const struct hy_label_row *label, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    /* A trial must exist, so that a label never outlives its run. */
    int rc = hy_query_change(&q, s, HY_SQL_ONCE,
                             "INSERT INTO labels(run, trial, tags, note) SELECT ?1, ?2, nullif(?3, ''), nullif(?4, '')"
                             " WHERE CASE ?2"
                             " WHEN 0 THEN EXISTS (SELECT 1 FROM runs WHERE id = ?1)"
                             " ELSE EXISTS (SELECT 1 FROM trials WHERE run = ?1 AND number = ?2) END"
                             " ON CONFLICT DO UPDATE SET tags = iif(?3 IS NULL, tags, excluded.tags),"
                             " note = iif(?4 IS NULL, note, excluded.note)",
                             err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, label->trial);
    hy_query_text(&q, label->tags);
    hy_query_text(&q, label->note);
    rc = hy_query_run(&q, err);
    if (rc == 0 && sqlite3_changes(s->db) == 0)
        return hy_err_set(err, -ENOENT, "run %lld or its trial %lld does not exist", (long long)run,
                          (long long)label->trial);
    return rc;
}

int hy_store_label_each(struct hy_store *s, int64_t run, hy_label_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_LABEL_ALL, "SELECT trial, tags, note FROM labels WHERE run = ? ORDER BY trial",
                           err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    while ((rc = hy_query_step(&q, err)) > 0) {
        struct hy_label_row row = {
            .trial = hy_column_i64(&q, 0), .tags = hy_column_text(&q, 1), .note = hy_column_text(&q, 2)};

        rc = hy_query_read(&q, err);
        if (rc == 0)
            rc = cb(arg, &row);
        if (rc != 0)
            return rc;
    }
    return rc;
}
