/* SPDX-License-Identifier: Apache-2.0 */
#include "store/internal.h"

#include <errno.h>

static const char *const attempt_states[] = {"unknown", "running", "done", "failed", "lost", "stopped"};

const char *hy_attempt_state_name(enum hy_attempt_state s)
{
    return (unsigned)s <= HY_ATTEMPT_STOPPED ? attempt_states[s] : attempt_states[0];
}

/* A trial's row has the count of its attempts, so that listing trials needs no second table. */
static int count_attempt(struct hy_store *s, int64_t run, const struct hy_attempt_row *a, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(&q, s, HY_SQL_ATTEMPT_COUNT,
                             "UPDATE trials SET attempts = max(attempts, ?) WHERE run = ? AND number = ?", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, a->number);
    hy_query_i64(&q, run);
    hy_query_i64(&q, a->trial);
    rc = hy_query_run(&q, err);
    if (rc == 0 && sqlite3_changes(s->db) == 0)
        return hy_err_set(err, -ENOENT, "run %lld has no trial %lld", (long long)run, (long long)a->trial);
    return rc;
}

int hy_store_attempt_add(struct hy_store *s, int64_t run, const struct hy_attempt_row *a, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q = {0};
    int rc = count_attempt(s, run, a, err);

    if (rc == 0)
        rc = hy_query_change(&q, s, HY_SQL_ATTEMPT_ADD,
                             "INSERT INTO attempts(run, trial, number, agent, host, state, exit_code, message, started,"
                             " ended, cpu_ms, peak_memory, queued, gpus) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                             err);
    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, a->trial);
    hy_query_i64(&q, a->number);
    hy_query_text(&q, a->agent);
    hy_query_text(&q, a->host);
    hy_query_i64(&q, a->state ? a->state : HY_ATTEMPT_RUNNING);
    hy_query_i64(&q, a->exit_code);
    hy_query_text(&q, a->message);
    hy_query_i64(&q, a->started);
    hy_query_i64(&q, a->ended);
    hy_query_i64(&q, a->cpu_ms);
    hy_query_i64(&q, a->peak_memory);
    hy_query_i64(&q, a->queued);
    hy_query_i64(&q, (int64_t)a->gpus);
    rc = hy_query_run(&q, err);
    if (rc == -EEXIST)
        return hy_err_set(err, -EEXIST, "trial %lld of run %lld has an attempt %lld already", (long long)a->trial,
                          (long long)run, (long long)a->number);
    return rc;
}

int hy_store_attempt_end(struct hy_store *s, int64_t run, const struct hy_attempt_row *a, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc =
        hy_query_change(&q, s, HY_SQL_ATTEMPT_END,
                        "UPDATE attempts SET state = ?, exit_code = ?, message = ?, ended = ?, cpu_ms = ?,"
                        " peak_memory = ?, detail = ?, charge = ?, gpus = ? WHERE run = ? AND trial = ? AND number = ?",
                        err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, a->state);
    hy_query_i64(&q, a->exit_code);
    hy_query_text(&q, a->message);
    hy_query_i64(&q, a->ended);
    hy_query_i64(&q, a->cpu_ms);
    hy_query_i64(&q, a->peak_memory);
    hy_query_text(&q, a->detail);
    hy_query_i64(&q, a->charge);
    hy_query_i64(&q, (int64_t)a->gpus);
    hy_query_i64(&q, run);
    hy_query_i64(&q, a->trial);
    hy_query_i64(&q, a->number);
    rc = hy_query_run(&q, err);
    if (rc == 0 && sqlite3_changes(s->db) == 0)
        return hy_err_set(err, -ENOENT, "trial %lld of run %lld has no attempt %lld", (long long)a->trial,
                          (long long)run, (long long)a->number);
    return rc;
}

int hy_store_attempt_held(struct hy_store *s, int64_t run, const struct hy_attempt_row *a, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(&q, s, HY_SQL_ATTEMPT_HELD,
                             "UPDATE attempts SET held = ?, begun = ? WHERE run = ? AND trial = ? AND number = ?", err);

    if (rc < 0)
        return rc;
    hy_query_text(&q, a->held);
    hy_query_i64(&q, a->begun);
    hy_query_i64(&q, run);
    hy_query_i64(&q, a->trial);
    hy_query_i64(&q, a->number);
    return hy_query_run(&q, err);
}

int hy_store_attempts_clear_charges(struct hy_store *s, int64_t run, int64_t trial, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(&q, s, HY_SQL_ATTEMPTS_CLEAR_CHARGES,
                             "UPDATE attempts SET charge = 0 WHERE run = ? AND trial = ?", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, trial);
    return hy_query_run(&q, err);
}

/* A newer version may have written an unknown value. */
static enum hy_charge charge_of(int64_t number)
{
    return number > 0 && number < HY_CHARGES ? (enum hy_charge)number : HY_CHARGE_NONE;
}

#define ATTEMPT_COLUMNS                                                                                                \
    "SELECT trial, number, agent, host, state, exit_code, message, started, ended, cpu_ms, peak_memory,"               \
    " detail, charge, queued, held, begun, gpus"
#define ATTEMPT_SELECT ATTEMPT_COLUMNS " FROM attempts WHERE run = ?"

static int each_attempt(struct hy_query *q, hy_attempt_cb cb, void *arg, struct hy_err *err)
{
    int rc;

    while ((rc = hy_query_step(q, err)) > 0) {
        struct hy_attempt_row row = {
            .trial = hy_column_i64(q, 0),
            .number = hy_column_i64(q, 1),
            .agent = hy_column_text(q, 2),
            .host = hy_column_text(q, 3),
            .state = (enum hy_attempt_state)hy_column_i64(q, 4),
            .exit_code = hy_column_i64(q, 5),
            .message = hy_column_text(q, 6),
            .started = hy_column_i64(q, 7),
            .ended = hy_column_i64(q, 8),
            .cpu_ms = hy_column_i64(q, 9),
            .peak_memory = hy_column_i64(q, 10),
            .detail = hy_column_text(q, 11),
            .charge = charge_of(hy_column_i64(q, 12)),
            .queued = hy_column_i64(q, 13),
            .held = hy_column_text(q, 14),
            .begun = hy_column_i64(q, 15),
            .gpus = (uint64_t)hy_column_i64(q, 16),
        };

        rc = hy_query_read(q, err);
        if (rc == 0)
            rc = cb(arg, &row);
        if (rc != 0)
            return rc;
    }
    return rc;
}

int hy_store_attempt_each(struct hy_store *s, int64_t run, int64_t trial, hy_attempt_cb cb, void *arg,
                          struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = trial ? hy_query_open(&q, s, HY_SQL_ATTEMPT_ONE, ATTEMPT_SELECT " AND trial = ? ORDER BY number", err)
                   : hy_query_open(&q, s, HY_SQL_ATTEMPT_ALL, ATTEMPT_SELECT " ORDER BY trial, number", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    if (trial)
        hy_query_i64(&q, trial);
    return each_attempt(&q, cb, arg, err);
}

int hy_store_attempt_between(struct hy_store *s, int64_t run, int64_t from, int64_t to, int64_t limit, hy_attempt_cb cb,
                             void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(
        &q, s, HY_SQL_ATTEMPT_BETWEEN,
        "WITH longest AS (SELECT trial AS t, number AS n FROM attempts WHERE " HY_ATTEMPTS_BETWEEN
        "   ORDER BY (CASE ended WHEN 0 THEN ?3 ELSE ended END) - started DESC LIMIT ?4) " ATTEMPT_COLUMNS
        " FROM longest CROSS JOIN attempts ON run = ?1 AND trial = t AND number = n ORDER BY trial, number",
        err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, from);
    hy_query_i64(&q, to);
    hy_query_i64(&q, limit);
    return each_attempt(&q, cb, arg, err);
}
