/* SPDX-License-Identifier: Apache-2.0 */
#include "store/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

static const char *const trial_states[] = {"unknown", "running", "done", "failed", "stopped", "pruned", "paused"};

const char *hy_trial_state_name(enum hy_trial_state s)
{
    return (unsigned)s <= HY_TRIAL_STATE_LAST ? trial_states[s] : trial_states[0];
}

static int no_trial(int64_t run, int64_t number, struct hy_err *err)
{
    return hy_err_set(err, -ENOENT, "run %lld has no trial %lld", (long long)run, (long long)number);
}

/* ---- changes ------------------------------------------------------------------- */

static int insert(struct hy_store *s, int64_t run, const struct hy_trial_row *t, const char *dir, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(
        &q, s, HY_SQL_TRIAL_ADD,
        "INSERT INTO trials(run, number, params, dir, state, attempts, started, ended, asked_seq, told_seq)"
        " VALUES (?, ?, ?, ?, 1, ?, ?, 0, ?, 0)",
        err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, t->number);
    hy_query_text(&q, t->params);
    hy_query_text(&q, dir);
    hy_query_i64(&q, t->attempts);
    hy_query_i64(&q, t->started);
    hy_query_i64(&q, t->asked_seq);
    rc = hy_query_run(&q, err);
    /* Which of the two keys exists already is only known until the next call. */
    return rc == -EEXIST && sqlite3_extended_errcode(s->db) == SQLITE_CONSTRAINT_UNIQUE ? -ENOTUNIQ : rc;
}

static int out_of_memory(struct hy_store *s, struct hy_err *err)
{
    struct hy_err why = {0};
    int rc = hy_err_oom(&why);

    hy_store_fail_turn(s, &why);
    if (err)
        *err = why;
    return rc;
}

/* Updates the run's counts; if the run is gone, the row must not stay. */
static int count_new(struct hy_store *s, int64_t run, struct hy_err *err)
{
    struct hy_err why = {0};
    int rc = hy_run_count_change(s, run, 0, HY_TRIAL_RUNNING, &why);

    if (rc == -ENOENT)
        hy_store_fail_turn(s, &why);
    if (rc < 0 && err)
        *err = why;
    return rc;
}

int hy_store_trial_add(struct hy_store *s, int64_t run, const struct hy_trial_row *trial, char **ret_dir,
                       struct hy_err *err)
{
    hy_cleanup_free char *dir = trial->dir ? hy_strdup(trial->dir) : NULL;
    int rc;

    if (trial->dir && !dir)
        return out_of_memory(s, err);
    while ((rc = insert(s, run, trial, dir, err)) == -ENOTUNIQ) {
        char *longer = hy_asprintf("%s~%lld", dir, (long long)trial->number);

        if (!longer)
            return out_of_memory(s, err);
        free(dir);
        dir = longer;
    }
    if (rc == -EEXIST)
        return hy_err_set(err, -EEXIST, "run %lld has a trial %lld already", (long long)run, (long long)trial->number);
    if (rc == 0)
        rc = count_new(s, run, err);
    if (rc == 0 && ret_dir)
        *ret_dir = hy_take(dir);
    return rc;
}

static int state_before(struct hy_store *s, int64_t run, int64_t number, int *ret_state, bool *ret_maximize,
                        struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(
        &q, s, HY_SQL_TRIAL_WAS,
        "SELECT t.state, r.maximize FROM trials t, runs r WHERE t.run = ?1 AND t.number = ?2 AND r.id = ?1", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, number);
    rc = hy_query_step(&q, err);
    if (rc <= 0)
        return rc < 0 ? rc : no_trial(run, number, err);
    *ret_state = (int)hy_column_i64(&q, 0);
    *ret_maximize = hy_column_i64(&q, 1) != 0;
    return 0;
}

int hy_store_trial_end(struct hy_store *s, int64_t run, const struct hy_trial_row *t, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q = {0};
    bool maximize = false, counts = t->state == HY_TRIAL_DONE && t->has_value && !isnan(t->value);
    int was = 0;
    int rc = state_before(s, run, t->number, &was, &maximize, err);

    if (rc == 0)
        rc = hy_query_change(&q, s, HY_SQL_TRIAL_END,
                             "UPDATE trials SET state = ?, value = ?, score = ?, message = ?, ended = ?, told_seq = ?,"
                             " ended_seq = nullif(?, 0)"
                             " WHERE run = ? AND number = ?",
                             err);
    if (rc < 0)
        return rc;
    hy_query_i64(&q, t->state);
    hy_query_double(&q, t->has_value, t->value);
    hy_query_double(&q, counts, maximize ? -t->value : t->value);
    hy_query_text(&q, t->message);
    hy_query_i64(&q, t->ended);
    hy_query_i64(&q, t->told_seq);
    hy_query_i64(&q, t->ended_seq);
    hy_query_i64(&q, run);
    hy_query_i64(&q, t->number);
    rc = hy_query_run(&q, err);
    return rc == 0 && was != (int)t->state ? hy_run_count_change(s, run, was, (int)t->state, err) : rc;
}

/* ---- iteration ----------------------------------------------------------------- */

#define TRIAL_SELECT                                                                                                   \
    "SELECT number, params, dir, state, value, message, attempts, started, ended, asked_seq, told_seq, "               \
    "ended_seq FROM trials"

static void read_trial(struct hy_query *q, struct hy_trial_row *t)
{
    *t = (struct hy_trial_row){
        .number = hy_column_i64(q, 0),
        .params = hy_column_text(q, 1),
        .dir = hy_column_text(q, 2),
        .state = (enum hy_trial_state)hy_column_i64(q, 3),
        .has_value = sqlite3_column_type(q->stmt, 4) != SQLITE_NULL,
        .value = hy_column_double(q, 4),
        .message = hy_column_text(q, 5),
        .attempts = hy_column_i64(q, 6),
        .started = hy_column_i64(q, 7),
        .ended = hy_column_i64(q, 8),
        .asked_seq = hy_column_i64(q, 9),
        .told_seq = hy_column_i64(q, 10),
        .ended_seq = hy_column_i64(q, 11),
    };
    if (!t->dir) /* of an imported run, perhaps by another program */
        t->dir = "";
}

/* Calls back for every remaining row; *count gets their number. */
static int walk(struct hy_query *q, hy_trial_cb cb, void *arg, int64_t *count, struct hy_err *err)
{
    int rc;

    *count = 0;
    while ((rc = hy_query_step(q, err)) > 0) {
        struct hy_trial_row row;

        ++*count;
        read_trial(q, &row);
        rc = hy_query_read(q, err);
        if (rc == 0)
            rc = cb(arg, &row);
        if (rc != 0)
            return rc;
    }
    return rc;
}

static int walk_part(struct hy_store *s, enum hy_sql which, const char *sql, int64_t run, int64_t offset, int64_t limit,
                     hy_trial_cb cb, void *arg, int64_t *count, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, which, sql, err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, limit);
    hy_query_i64(&q, offset);
    return walk(&q, cb, arg, count, err);
}

static int walk_one(struct hy_store *s, int64_t run, int64_t number, hy_trial_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int64_t count;
    int rc = hy_query_open(&q, s, HY_SQL_TRIAL_ONE, TRIAL_SELECT " WHERE run = ? AND number = ?", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, number);
    rc = walk(&q, cb, arg, &count, err);
    return rc == 0 && count == 0 ? no_trial(run, number, err) : rc;
}

static int count_values(struct hy_store *s, int64_t run, int64_t *ret, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_TRIAL_COUNT_VALUES,
                           "SELECT count(*) FROM trials INDEXED BY trials_score WHERE run = ? AND score IS NOT NULL",
                           err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    rc = hy_query_step(&q, err);
    *ret = rc > 0 ? hy_column_i64(&q, 0) : 0;
    return rc < 0 ? rc : 0;
}

/* First those with a value, then the others by number. */
static int walk_by_value(struct hy_store *s, int64_t run, int64_t offset, int64_t limit, hy_trial_cb cb, void *arg,
                         struct hy_err *err)
{
    int64_t shown, values;
    int rc = walk_part(s, HY_SQL_TRIAL_BY_VALUE,
                       TRIAL_SELECT " INDEXED BY trials_score WHERE run = ? AND score IS NOT NULL"
                                    " ORDER BY score, number LIMIT ? OFFSET ?",
                       run, offset, limit, cb, arg, &shown, err);

    if (rc != 0 || shown == limit)
        return rc;
    rc = count_values(s, run, &values, err);
    if (rc < 0)
        return rc;
    return walk_part(s, HY_SQL_TRIAL_NO_VALUE,
                     TRIAL_SELECT " NOT INDEXED WHERE run = ? AND score IS NULL ORDER BY number LIMIT ? OFFSET ?", run,
                     offset > values ? offset - values : 0, limit < 0 ? -1 : limit - shown, cb, arg, &shown, err);
}

int hy_store_trial_each(struct hy_store *s, int64_t run, int64_t number, enum hy_trial_order order, int64_t offset,
                        int64_t limit, hy_trial_cb cb, void *arg, struct hy_err *err)
{
    int64_t count;

    if (number)
        return walk_one(s, run, number, cb, arg, err);
    if (limit <= 0)
        limit = -1;
    if (offset < 0)
        offset = 0;
    if (order == HY_TRIALS_BY_VALUE)
        return walk_by_value(s, run, offset, limit, cb, arg, err);
    return walk_part(s, HY_SQL_TRIAL_BY_NUMBER, TRIAL_SELECT " WHERE run = ? ORDER BY number LIMIT ? OFFSET ?", run,
                     offset, limit, cb, arg, &count, err);
}

/* ---- ended trials ---------------------------------------------------------------- */

/* The running trials are searched for from the newest on, until all are found; paused ones have an index. */
int hy_store_changed_each(struct hy_store *s, int64_t run, int64_t after, hy_trial_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int64_t count;
    int rc = hy_query_open(
        &q, s, HY_SQL_TRIAL_CHANGED,
        "SELECT * FROM (" TRIAL_SELECT " INDEXED BY trials_ended WHERE run = ?1 AND ended_seq > ?2 ORDER BY ended_seq)"
        " UNION ALL SELECT * FROM (" TRIAL_SELECT " NOT INDEXED WHERE run = ?1 AND state = 1 ORDER BY number DESC"
        " LIMIT (SELECT running FROM tallies WHERE run = ?1))"
        " UNION ALL SELECT * FROM (" TRIAL_SELECT " INDEXED BY trials_paused WHERE run = ?1 AND state = 6)",
        err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, after);
    return walk(&q, cb, arg, &count, err);
}

/* INDEXED BY: without the index the statement fails instead of scanning the run. */
int hy_store_ended_each(struct hy_store *s, int64_t run, int64_t after, int64_t until, int64_t limit, hy_trial_cb cb,
                        void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int64_t count;
    int rc = hy_query_open(&q, s, HY_SQL_TRIAL_ENDED,
                           TRIAL_SELECT " INDEXED BY trials_ended WHERE run = ? AND ended_seq > ? AND ended_seq <= ?"
                                        " ORDER BY ended_seq LIMIT ?",
                           err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, after);
    hy_query_i64(&q, until);
    hy_query_i64(&q, limit);
    return walk(&q, cb, arg, &count, err);
}

int hy_store_ended_newest(struct hy_store *s, int64_t run, int64_t until, int64_t count, int64_t *ret_after,
                          struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, HY_SQL_TRIAL_ENDED_NEWEST,
                           "SELECT ended_seq FROM trials INDEXED BY trials_ended WHERE run = ? AND ended_seq <= ?"
                           " ORDER BY ended_seq DESC LIMIT 1 OFFSET ?",
                           err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, until);
    hy_query_i64(&q, count);
    rc = hy_query_step(&q, err);
    if (rc >= 0)
        *ret_after = rc > 0 ? hy_column_i64(&q, 0) : 0;
    return rc < 0 ? rc : 0;
}

/* ---- replay -------------------------------------------------------------------- */

struct replay {
    hy_replay_cb cb;
    void *arg;
    int told;
};

static int replay_one(void *arg, const struct hy_trial_row *trial)
{
    struct replay *r = arg;

    return r->cb(r->arg, trial, r->told);
}

/* Only the order is sorted, not the rows: those of 100,000 trials need not fit in memory. */
int hy_store_replay(struct hy_store *s, int64_t run, hy_replay_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    struct replay r = {.cb = cb, .arg = arg};
    int rc = hy_query_open(&q, s, HY_SQL_REPLAY,
                           "SELECT asked_seq AS seq, 0, number FROM trials WHERE run = ?1 UNION ALL"
                           " SELECT told_seq, 1, number FROM trials WHERE run = ?1 AND told_seq > 0 ORDER BY seq",
                           err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    while ((rc = hy_query_step(&q, err)) > 0) {
        r.told = (int)hy_column_i64(&q, 1);
        rc = walk_one(s, run, hy_column_i64(&q, 2), replay_one, &r, err);
        if (rc != 0)
            return rc;
    }
    return rc;
}
