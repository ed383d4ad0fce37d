/* SPDX-License-Identifier: Apache-2.0 */
#include "store/internal.h"

int hy_store_note_add(struct hy_store *s, int64_t run, const struct hy_note_row *note, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(&q, s, HY_SQL_NOTE_ADD,
                             "INSERT INTO notes(run, seq, time, text) VALUES (?1,"
                             " (SELECT coalesce(max(seq), 0) + 1 FROM notes WHERE run = ?1), ?2, ?3)",
                             err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, note->time);
    hy_query_text(&q, note->text);
    return hy_query_run(&q, err);
}

int hy_store_note_each(struct hy_store *s, int64_t run, int64_t after, hy_note_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_NOTE_ALL,
                           "SELECT seq, time, text FROM notes WHERE run = ? AND seq > ? ORDER BY seq", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, after);
    while ((rc = hy_query_step(&q, err)) > 0) {
        struct hy_note_row row = {
            .seq = hy_column_i64(&q, 0), .time = hy_column_i64(&q, 1), .text = hy_column_text(&q, 2)};

        rc = hy_query_read(&q, err);
        if (rc == 0)
            rc = cb(arg, &row);
        if (rc != 0)
            return rc;
    }
    return rc;
}

int hy_store_note_newest(struct hy_store *s, int64_t run, int64_t *ret_seq, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_NOTE_NEWEST, "SELECT coalesce(max(seq), 0) FROM notes WHERE run = ?", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    rc = hy_query_step(&q, err);
    if (rc >= 0)
        *ret_seq = rc > 0 ? hy_column_i64(&q, 0) : 0;
    return rc < 0 ? rc : 0;
}
