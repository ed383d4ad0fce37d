/* SPDX-License-Identifier: Apache-2.0 */
#include "store/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"

static const char *const run_states[] = {"unknown", "running", "done", "stopped", "failed"};

const char *hy_run_state_name(enum hy_run_state s)
{
    return (unsigned)s <= HY_RUN_FAILED ? run_states[s] : run_states[0];
}

static int no_run(int64_t run, struct hy_err *err)
{
    return hy_err_set(err, -ENOENT, "there is no run %lld; `hopyard ls` lists runs", (long long)run);
}

int hy_run_count_change(struct hy_store *s, int64_t run, int was, int is, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(&q, s, HY_SQL_TALLY,
                             "UPDATE tallies SET running = running + ?2, done = done + ?3,"
                             " failed = failed + ?4, stopped = stopped + ?5, pruned = pruned + ?6,"
                             " paused = paused + ?7 WHERE run = ?1",
                             err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    for (int state = HY_TRIAL_RUNNING; state <= HY_TRIAL_STATE_LAST; state++)
        hy_query_i64(&q, (is == state) - (was == state));
    rc = hy_query_run(&q, err);
    return rc == 0 && sqlite3_changes(s->db) == 0 ? no_run(run, err) : rc;
}

static int add_tally(struct hy_store *s, int64_t run, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(&q, s, HY_SQL_ONCE, "INSERT INTO tallies VALUES (?, 0, 0, 0, 0, 0, 0)", err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    return hy_query_run(&q, err);
}

int hy_store_run_add(struct hy_store *s, const struct hy_run_row *run, int64_t *ret_id, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int64_t id;
    int rc =
        hy_query_change(&q, s, HY_SQL_RUN_ADD,
                        "INSERT INTO runs(name, app_id, app_run, logdir, command, metric, maximize, seed, versions,"
                        " git, state, message, created, ended, total, spec, ranks, kind, engine)"
                        " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                        err);

    if (rc < 0)
        return rc;
    hy_query_text(&q, run->name);
    hy_query_text(&q, run->app_id ? run->app_id : "");
    hy_query_i64(&q, run->app_run);
    hy_query_text(&q, run->logdir);
    hy_query_text(&q, run->command);
    hy_query_text(&q, run->metric);
    hy_query_i64(&q, run->maximize);
    hy_query_i64(&q, run->seed);
    hy_query_text(&q, run->versions);
    hy_query_text(&q, run->git);
    hy_query_i64(&q, run->state ? run->state : HY_RUN_RUNNING);
    hy_query_text(&q, run->message);
    hy_query_i64(&q, run->created ? run->created : hy_clock_wall_ms());
    hy_query_i64(&q, run->ended);
    hy_query_i64(&q, run->total);
    hy_query_blob(&q, run->spec, run->spec_len);
    hy_query_i64(&q, run->ranks);
    hy_query_text(&q, run->kind);
    hy_query_text(&q, run->engine);
    rc = hy_query_run(&q, err);
    if (rc == -EEXIST)
        return hy_err_set(err, -EEXIST, "run %lld of '%s' is in the store already", (long long)run->app_run,
                          run->app_id);
    if (rc < 0)
        return rc;
    id = sqlite3_last_insert_rowid(s->db);
    rc = add_tally(s, id, err);
    if (rc == 0)
        *ret_id = id;
    return rc;
}

int hy_store_run_state(struct hy_store *s, int64_t run, enum hy_run_state state, const char *message,
                       struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_change(&q, s, HY_SQL_RUN_STATE, "UPDATE runs SET state = ?, message = ?, ended = ? WHERE id = ?",
                             err);

    if (rc < 0)
        return rc;
    hy_query_i64(&q, state);
    hy_query_text(&q, message);
    hy_query_i64(&q, state == HY_RUN_RUNNING ? 0 : hy_clock_wall_ms());
    hy_query_i64(&q, run);
    rc = hy_query_run(&q, err);
    return rc == 0 && sqlite3_changes(s->db) == 0 ? no_run(run, err) : rc;
}

int hy_store_run_remove(struct hy_store *s, int64_t run, struct hy_err *err)
{
    static const char *const removals[] = {
        "DELETE FROM labels WHERE run = ?",    "DELETE FROM notes WHERE run = ?",
        "DELETE FROM decisions WHERE run = ?", "DELETE FROM metrics WHERE run = ?",
        "DELETE FROM usage WHERE run = ?",     "DELETE FROM attempts WHERE run = ?",
        "DELETE FROM trials WHERE run = ?",    "DELETE FROM tallies WHERE run = ?",
        "DELETE FROM runs WHERE id = ?", /* last: its change count says whether the
                                            run existed */
    };

    for (size_t i = 0; i < sizeof removals / sizeof *removals; i++) {
        hy_cleanup_query struct hy_query q;
        int rc = hy_query_change(&q, s, HY_SQL_ONCE, removals[i], err);

        if (rc < 0)
            return rc;
        hy_query_i64(&q, run);
        rc = hy_query_run(&q, err);
        if (rc < 0)
            return rc;
    }
    return sqlite3_changes(s->db) ? 0 : no_run(run, err);
}

/* ---- find ---------------------------------------------------------------------- */

static int append_name(struct hy_buf *b, const char *text)
{
    size_t n = strlen(text), shown = n > 40 ? 40 : n;
    int rc = hy_append_printable(b, text, shown);

    return rc == 0 && shown < n ? hy_buf_append_str(b, "…") : rc;
}

/* "no run 'x' here; the newest are 12 (mnist), 11, 10" */
static int not_found(struct hy_store *s, const char *text, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    hy_cleanup_buf struct hy_buf list, wanted;
    int count = 0;
    int rc;

    hy_buf_init(&list, 1024);
    hy_buf_init(&wanted, 1024);
    rc = hy_query_open(&q, s, HY_SQL_ONCE, "SELECT id, name FROM runs ORDER BY id DESC LIMIT 3", err);
    while (rc == 0 && (rc = hy_query_step(&q, err)) > 0) {
        const char *name = hy_column_text(&q, 1);

        rc = hy_buf_printf(&list, "%s%lld%s", count++ ? ", " : "", (long long)hy_column_i64(&q, 0), name ? " (" : "");
        if (rc == 0 && name)
            rc = append_name(&list, name) < 0 || hy_buf_append_str(&list, ")") < 0 ? -ENOMEM : 0;
    }
    if (rc < 0 && rc != -ENOMEM)
        return rc;
    if (rc == 0 && count == 0)
        return hy_err_set(err, -ENOENT, "no runs yet in '%s': start one with `hopyard run`", s->project);
    if (rc < 0 || append_name(&wanted, text) < 0 || !hy_buf_cstr(&wanted) || !hy_buf_cstr(&list))
        return hy_err_oom(err);
    return hy_err_set(err, -ENOENT, "no run '%s' here; the newest %s %s", hy_buf_cstr(&wanted),
                      count == 1 ? "is" : "are", hy_buf_cstr(&list));
}

/* 1 and *ret_id, 0, or -Exxx. `text` and `id` are bound where the statement has a place for them. */
static int look_up(struct hy_store *s, enum hy_sql which, const char *sql, const char *text, int64_t id,
                   int64_t *ret_id, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    int rc = hy_query_open(&q, s, which, sql, err);

    if (rc < 0)
        return rc;
    if (text)
        hy_query_text(&q, text);
    else if (id)
        hy_query_i64(&q, id);
    rc = hy_query_step(&q, err);
    if (rc > 0)
        *ret_id = hy_column_i64(&q, 0);
    return rc;
}

int hy_store_run_find(struct hy_store *s, const char *text, int64_t *ret_id, struct hy_err *err)
{
    uint64_t number;
    int rc = 0;

    if (!text || !*text) {
        text = "";
        rc = look_up(s, HY_SQL_RUN_NEWEST, "SELECT id FROM runs ORDER BY id DESC LIMIT 1", NULL, 0, ret_id, err);
    } else {
        if (hy_parse_u64(text, &number) == 0 && number > 0 && number <= INT64_MAX)
            rc = look_up(s, HY_SQL_RUN_BY_ID, "SELECT id FROM runs WHERE id = ?", NULL, (int64_t)number, ret_id, err);
        if (rc == 0)
            rc = look_up(s, HY_SQL_RUN_BY_NAME, "SELECT id FROM runs WHERE name = ? ORDER BY id DESC LIMIT 1", text, 0,
                         ret_id, err);
    }
    if (rc < 0)
        return rc;
    return rc > 0 ? 0 : not_found(s, text, err);
}

/* ---- walk ---------------------------------------------------------------------- */

#define RUN_SELECT(spec)                                                                                               \
    "SELECT r.id, r.name, r.app_id, r.app_run, r.logdir, r.command, r.metric, r.maximize, r.seed,"                     \
    " r.versions, r.git, r.state, r.message, r.created, r.ended, r.total, " spec ","                                   \
    " y.running, y.done, y.failed, y.stopped, b.number, b.value, r.ranks, r.kind, r.engine, l.tags, l.note,"           \
    " y.pruned, y.paused"                                                                                              \
    " FROM runs r LEFT JOIN labels l ON l.run = r.id AND l.trial = 0 LEFT JOIN tallies y ON y.run = r.id"              \
    " LEFT JOIN trials b ON b.run = r.id AND b.number ="                                                               \
    " (SELECT number FROM trials INDEXED BY trials_score WHERE run = r.id AND score IS NOT NULL"                       \
    "  ORDER BY score, number LIMIT 1)"

static void read_run(struct hy_query *q, struct hy_run_row *r, struct hy_run_counts *c)
{
    *r = (struct hy_run_row){
        .id = hy_column_i64(q, 0),
        .name = hy_column_text(q, 1),
        .app_id = hy_column_text(q, 2),
        .app_run = hy_column_i64(q, 3),
        .logdir = hy_column_text(q, 4),
        .command = hy_column_text(q, 5),
        .metric = hy_column_text(q, 6),
        .maximize = hy_column_i64(q, 7) != 0,
        .seed = hy_column_i64(q, 8),
        .versions = hy_column_text(q, 9),
        .git = hy_column_text(q, 10),
        .state = (enum hy_run_state)hy_column_i64(q, 11),
        .message = hy_column_text(q, 12),
        .created = hy_column_i64(q, 13),
        .ended = hy_column_i64(q, 14),
        .total = hy_column_i64(q, 15),
        .spec = sqlite3_column_blob(q->stmt, 16),
        .spec_len = (size_t)sqlite3_column_bytes(q->stmt, 16),
        .ranks = hy_column_i64(q, 23),
        .kind = hy_column_text(q, 24),
        .engine = hy_column_text(q, 25),
        .tags = hy_column_text(q, 26),
        .note = hy_column_text(q, 27),
    };
    *c = (struct hy_run_counts){
        .running = hy_column_i64(q, 17),
        .done = hy_column_i64(q, 18),
        .failed = hy_column_i64(q, 19),
        .stopped = hy_column_i64(q, 20),
        .pruned = hy_column_i64(q, 28),
        .paused = hy_column_i64(q, 29),
        .best_trial = hy_column_i64(q, 21),
        .best_value = hy_column_double(q, 22),
    };
}

int hy_store_run_each(struct hy_store *s, int64_t id, hy_run_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_query struct hy_query q;
    bool found = false;
    int rc = id ? hy_query_open(&q, s, HY_SQL_RUN_ONE, RUN_SELECT("r.spec") " WHERE r.id = ?", err)
                : hy_query_open(&q, s, HY_SQL_RUN_ALL, RUN_SELECT("NULL") " ORDER BY r.id DESC", err);

    if (rc < 0)
        return rc;
    if (id)
        hy_query_i64(&q, id);
    while ((rc = hy_query_step(&q, err)) > 0) {
        struct hy_run_row row;
        struct hy_run_counts counts;

        found = true;
        read_run(&q, &row, &counts);
        rc = hy_query_read(&q, err);
        if (rc == 0)
            rc = cb(arg, &row, &counts);
        if (rc != 0)
            return rc;
    }
    return rc == 0 && id && !found ? no_run(id, err) : rc;
}
