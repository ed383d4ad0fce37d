/* SPDX-License-Identifier: Apache-2.0 */
/* The store over versions and machines: older, newer, strange and damaged files; runs that travel. */
#include "store_bench.h"

#include <errno.h>
#include <sqlite3.h>
#include <sys/syscall.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"

/* ---- formats --------------------------------------------------------------------- */

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s", message);
    sqlite3_close(db);
}

/* What format 1 was, for ever: not taken from the code that is tested. */
static const char format_1[] =
    "PRAGMA application_id = 0x686f7079; PRAGMA user_version = 1; PRAGMA journal_mode = WAL;"
    "CREATE TABLE runs(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, app_id TEXT NOT NULL, app_run "
    "INTEGER NOT NULL,"
    " logdir TEXT, command TEXT, metric TEXT, maximize INTEGER NOT NULL, seed INTEGER NOT NULL, versions "
    "TEXT, git TEXT,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4), message TEXT, created INTEGER NOT NULL,"
    " ended INTEGER NOT NULL, total INTEGER NOT NULL, spec BLOB) STRICT;"
    "CREATE UNIQUE INDEX runs_app ON runs(app_id, app_run);"
    "CREATE TABLE tallies(run INTEGER PRIMARY KEY, running INTEGER NOT NULL, done INTEGER NOT NULL,"
    " failed INTEGER NOT NULL, stopped INTEGER NOT NULL) STRICT;"
    "CREATE TABLE trials(run INTEGER NOT NULL, number INTEGER NOT NULL, params TEXT, dir TEXT,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4), value ANY, message TEXT, attempts INTEGER NOT "
    "NULL,"
    " started INTEGER NOT NULL, ended INTEGER NOT NULL, asked_seq INTEGER NOT NULL, told_seq INTEGER NOT "
    "NULL,"
    " PRIMARY KEY (run, number)) STRICT, WITHOUT ROWID;"
    "CREATE UNIQUE INDEX trials_dir ON trials(run, dir);"
    "CREATE TABLE attempts(run INTEGER NOT NULL, trial INTEGER NOT NULL, number INTEGER NOT NULL, agent "
    "TEXT, host TEXT,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5), exit_code INTEGER NOT NULL, message TEXT,"
    " started INTEGER NOT NULL, ended INTEGER NOT NULL, cpu_ms INTEGER NOT NULL, peak_memory INTEGER NOT "
    "NULL,"
    " PRIMARY KEY (run, trial, number)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE metrics(run INTEGER NOT NULL, trial INTEGER NOT NULL, seq INTEGER NOT NULL, attempt "
    "INTEGER NOT NULL,"
    " step INTEGER NOT NULL, name TEXT NOT NULL, value ANY, time INTEGER NOT NULL,"
    " PRIMARY KEY (run, trial, seq)) STRICT, WITHOUT ROWID;"
    "INSERT INTO runs VALUES (1,'old','app',1,NULL,NULL,'acc',1,7,NULL,NULL,1,NULL,1,0,-1,x'00ff');"
    "INSERT INTO tallies VALUES (1,1,2,1,1);"
    "INSERT INTO trials VALUES (1,1,'{}','a',2,0.5,NULL,1,1,2,1,2),(1,2,'{}','b',2,0.75,NULL,1,1,2,3,4),"
    " (1,3,'{}','c',3,0.9,'x',1,1,2,5,6),(1,4,'{}','d',1,NULL,NULL,1,1,0,7,0),"
    " (1,5,'{}','e',4,NULL,'stopped',1,1,2,8,0);";

static void make_format_1(const char *path)
{
    run_sql(path, format_1);
}

static int64_t pragma_of(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *q;
    int64_t value = -1;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) == SQLITE_OK && sqlite3_step(q) == SQLITE_ROW)
        value = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    sqlite3_close(db);
    return value;
}

static void check_format_1_contents(struct hy_store *s)
{
    struct hy_run_counts c = counts_of(s, 1);

    assert_int_equal(c.running, 1);
    assert_int_equal(c.done, 2);
    assert_int_equal(c.failed, 1);
    assert_int_equal(c.best_trial, 2);
    assert_true(c.best_value == 0.75);
    check_order(s, 1, HY_TRIALS_BY_VALUE, 0, 0, "21345");
    check_ended(s, 1, 0, INT64_MAX, 9, "1235"); /* 5 was stopped: it has no place among the tells */
}

HY_TEST_WITH(test_an_older_store_is_migrated_by_a_writer_and_read_as_it_is_by_a_reader, new_project, no_project)
{
    char *path = in_project(".hopyard/store.db");
    struct hy_store *s;

    assert_int_equal(mkdir(in_project(".hopyard"), 0755), 0);
    make_format_1(path);
    s = open_store(HY_STORE_READ);
    check_format_1_contents(s);
    OK(hy_store_check_files(s, &err));
    run_sql(path, "UPDATE trials SET message = 'other'");
    FAILS(hy_store_check_files(s, &err), -ESTALE, "was deleted or replaced"); /* it has a copy of what was there */
    hy_store_close(s);
    assert_int_equal(pragma_of(path, "PRAGMA user_version"), 1);
    s = open_store(HY_STORE_WRITE);
    check_format_1_contents(s);
    OK(end_trial(s, 1, 4, HY_TRIAL_DONE, 2));
    OK(hy_store_commit(s, &err));
    assert_int_equal(counts_of(s, 1).best_trial, 4);
    hy_store_close(s);
    assert_int_equal(pragma_of(path, "PRAGMA user_version"), 10);
}

/* What format 9 was: as above. */
static const char format_9[] =
    "PRAGMA application_id = 0x686f7079; PRAGMA user_version = 9; PRAGMA journal_mode = WAL;"
    "CREATE TABLE runs(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, app_id TEXT NOT NULL, app_run INTEGER NOT NULL,"
    " logdir TEXT, command TEXT, metric TEXT, maximize INTEGER NOT NULL, seed INTEGER NOT NULL, versions TEXT, git "
    "TEXT,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4), message TEXT, created INTEGER NOT NULL,"
    " ended INTEGER NOT NULL, total INTEGER NOT NULL, spec BLOB, ranks INTEGER NOT NULL DEFAULT 0, kind TEXT,"
    " engine TEXT) STRICT;"
    "CREATE UNIQUE INDEX runs_app ON runs(app_id, app_run);"
    "CREATE TABLE tallies(run INTEGER PRIMARY KEY, running INTEGER NOT NULL, done INTEGER NOT NULL,"
    " failed INTEGER NOT NULL, stopped INTEGER NOT NULL) STRICT;"
    "CREATE TABLE trials(run INTEGER NOT NULL, number INTEGER NOT NULL, params TEXT, dir TEXT,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4), value ANY, message TEXT, attempts INTEGER NOT NULL,"
    " started INTEGER NOT NULL, ended INTEGER NOT NULL, asked_seq INTEGER NOT NULL, told_seq INTEGER NOT NULL,"
    " score REAL, ended_seq INTEGER, PRIMARY KEY (run, number)) STRICT, WITHOUT ROWID;"
    "CREATE UNIQUE INDEX trials_dir ON trials(run, dir);"
    "CREATE INDEX trials_score ON trials(run, score, number) WHERE score IS NOT NULL;"
    "CREATE INDEX trials_ended ON trials(run, ended_seq) WHERE ended_seq IS NOT NULL;"
    "CREATE TABLE attempts(run INTEGER NOT NULL, trial INTEGER NOT NULL, number INTEGER NOT NULL, agent TEXT, host "
    "TEXT,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5), exit_code INTEGER NOT NULL, message TEXT,"
    " started INTEGER NOT NULL, ended INTEGER NOT NULL, cpu_ms INTEGER NOT NULL, peak_memory INTEGER NOT NULL,"
    " detail TEXT, charge INTEGER NOT NULL DEFAULT 0, queued INTEGER NOT NULL DEFAULT 0, held TEXT,"
    " begun INTEGER NOT NULL DEFAULT 0, gpus INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (run, trial, number)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE metrics(run INTEGER NOT NULL, trial INTEGER NOT NULL, seq INTEGER NOT NULL, attempt INTEGER NOT NULL,"
    " step INTEGER NOT NULL, name TEXT NOT NULL, value ANY, time INTEGER NOT NULL,"
    " PRIMARY KEY (run, trial, seq)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE notes(run INTEGER NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL, text TEXT NOT NULL,"
    " PRIMARY KEY (run, seq)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE labels(run INTEGER NOT NULL, trial INTEGER NOT NULL, tags TEXT, note TEXT,"
    " PRIMARY KEY (run, trial)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE usage(run INTEGER NOT NULL, trial INTEGER NOT NULL, attempt INTEGER NOT NULL, points BLOB NOT NULL,"
    " PRIMARY KEY (run, trial, attempt)) STRICT;"
    "INSERT INTO runs VALUES (1,'old','app',1,NULL,NULL,'acc',1,7,NULL,NULL,1,NULL,1,0,-1,x'00ff',0,NULL,NULL);"
    "INSERT INTO tallies VALUES (1,1,2,1,1);"
    "INSERT INTO trials VALUES (1,1,'{}','a',2,0.5,NULL,1,1,2,1,2,-0.5,2),(1,2,'{}','b',2,0.75,NULL,1,1,2,3,4,-0.75,4),"
    " (1,3,'{}','c',3,0.9,'x',1,1,2,5,6,NULL,6),(1,4,'{}','d',1,NULL,NULL,1,1,0,7,0,NULL,NULL),"
    " (1,5,'{}','e',4,'NaN','stopped',1,1,2,8,0,NULL,13);"
    "INSERT INTO metrics VALUES (1,1,1,1,-1,'acc',0.5,1);";

HY_TEST_WITH(test_a_store_without_pruned_trials_keeps_its_rows_and_accepts_them, new_project, no_project)
{
    static const char columns[] = "SELECT group_concat(name) = 'run,number,params,dir,state,value,message,attempts,"
                                  "started,ended,asked_seq,told_seq,score,ended_seq' FROM pragma_table_info('trials')";
    char *path = in_project(".hopyard/store.db");
    struct hy_run_counts c;
    struct hy_store *s;

    assert_int_equal(mkdir(in_project(".hopyard"), 0755), 0);
    run_sql(path, format_9);
    s = open_store(HY_STORE_WRITE);
    check_format_1_contents(s);
    OK(end_trial(s, 1, 4, HY_TRIAL_PRUNED, 2));
    OK(end_trial(s, 1, 5, HY_TRIAL_PAUSED, 3));
    OK(hy_store_commit(s, &err));
    c = counts_of(s, 1);
    assert_int_equal(c.running + c.stopped, 0);
    assert_int_equal(c.pruned, 1);
    assert_int_equal(c.paused, 1);
    assert_int_equal(c.best_trial, 2); /* only done trials count */
    hy_store_close(s);
    assert_int_equal(pragma_of(path, columns), 1);
    assert_int_equal(pragma_of(path, "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'trials'"
                                     " AND name LIKE 'trials_%'"),
                     4);
    assert_int_equal(pragma_of(path, "SELECT typeof(value) = 'text' FROM metrics"), 0);
}

HY_TEST_WITH(test_an_older_store_with_a_live_driver_is_not_migrated, new_project, no_project)
{
    struct hy_store *s, *writer = NULL;
    int lock;

    assert_int_equal(mkdir(in_project(".hopyard"), 0755), 0);
    make_format_1(in_project(".hopyard/store.db"));
    s = open_store(HY_STORE_READ);
    lock = hy_store_run_lock(s, 1, &err);
    assert_true(lock >= 0);
    FAILS(hy_store_open(project, HY_STORE_WRITE, &writer, &err), -EBUSY, "in use by an older hopyard (run 1)");
    close(lock);
    hy_store_close(s);
    hy_store_close(open_store(HY_STORE_WRITE));
}

static void check_refused(int code, const char *words)
{
    struct hy_store *s = NULL;

    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), code, words);
    FAILS(hy_store_open(project, HY_STORE_WRITE, &s, &err), code, words);
}

HY_TEST_WITH(test_newer_foreign_and_damaged_stores_are_rejected_unchanged, new_project, no_project)
{
    char *path = in_project(".hopyard/store.db");
    char noise[5000];
    int64_t run;

    hy_store_close(store_with_run(true, &run));
    run_sql(path, "PRAGMA user_version = 99");
    check_refused(-EPROTO, "was written by a newer hopyard (format 99; this one supports 10): upgrade hopyard");
    run_sql(path, "PRAGMA user_version = 2; PRAGMA application_id = 5");
    check_refused(-EBADMSG, "is a database of another program");
    hy_remove_tree(in_project(".hopyard"));
    mkdir(in_project(".hopyard"), 0755);
    memset(noise, 'x', sizeof noise);
    put_file(path, noise, sizeof noise);
    check_refused(-EBADMSG, "it is not a hopyard store");
    unlink(path);
    run_sql(path, "CREATE TABLE t(a)");
    check_refused(-EBADMSG, "is a database of another program");
    unlink(path);
    mkdir(path, 0755);
    check_refused(-EPERM, "store.db' is not a regular file");
}

static int any_note(void *arg, const struct hy_note_row *note)
{
    *(int *)arg += note->text != NULL;
    return 0;
}

/* Reads and writes all there is; only that it comes back matters. */
static void use_all(struct hy_store *s)
{
    int64_t seq;
    int n = 0;

    hy_store_run_each(s, 0, count_run, &n, &err);
    hy_store_trial_each(s, 1, 0, HY_TRIALS_BY_NUMBER, 0, 0, count_trial, &n, &err);
    hy_store_trial_each(s, 1, 0, HY_TRIALS_BY_VALUE, 0, 0, count_trial, &n, &err);
    hy_store_replay(s, 1, count_replay, &n, &err);
    hy_store_attempt_each(s, 1, 0, count_attempt, &n, &err);
    hy_store_metric_each(s, 1, 0, count_metric, &n, &err);
    hy_store_ended_each(s, 1, 0, INT64_MAX, INT64_MAX, count_trial, &n, &err);
    hy_store_ended_newest(s, 1, INT64_MAX, 1, &seq, &err);
    hy_store_note_each(s, 1, 0, any_note, &n, &err);
    hy_store_note_newest(s, 1, &seq, &err);
    whole_turn(s, 1, 1000);
    hy_store_run_remove(s, 1, &err);
    hy_store_commit(s, &err);
}

HY_TEST_WITH(test_a_damaged_store_gives_errors_not_crashes, new_project, no_project)
{
    hy_cleanup_buf struct hy_buf whole;
    char *path = in_project(".hopyard/store.db");
    int64_t run, refused = 0;
    struct hy_store *s = store_with_run(true, &run);
    struct hy_rng rng;

    for (int64_t i = 1; i <= 100; i++)
        OK(add_trial(s, run, i));
    OK(hy_store_commit(s, &err));
    hy_store_close(s);
    hy_buf_init(&whole, 1 << 20);
    assert_int_equal(hy_file_read(path, &whole), 0);
    hy_rng_seed(&rng, 2, 0);
    for (int i = 0; i < 120; i++) {
        hy_cleanup_free uint8_t *bytes = malloc(whole.len);
        size_t n = i % 3 ? whole.len : hy_rng_below(&rng, whole.len);

        memcpy(bytes, hy_buf_bytes(&whole), whole.len);
        for (int k = 0; k < 30 && n; k++)
            bytes[(k % 2 ? hy_rng_below(&rng, n) : hy_rng_below(&rng, n > 200 ? 200 : n))] ^=
                (uint8_t)hy_rng_next(&rng);
        unlink(in_project(".hopyard/store.db-wal"));
        unlink(in_project(".hopyard/store.db-shm"));
        put_file(path, bytes, n);
        for (int mode = HY_STORE_READ; mode <= HY_STORE_WRITE; mode++) {
            int rc = hy_store_open(project, (enum hy_store_mode)mode, &s, &err);

            refused += rc < 0;
            if (rc < 0)
                continue;
            use_all(s);
            hy_store_close(s);
        }
    }
    assert_true(refused > 50);
}

/* ---- snapshots ------------------------------------------------------------------- */

static int count_note(void *arg, const struct hy_note_row *note)
{
    int *n = arg;
    char text[32];

    snprintf(text, sizeof text, "note %d", (*n)++);
    assert_string_equal(note->text, text);
    assert_true(note->time > 0);
    return 0;
}

HY_TEST_WITH(test_notes_come_in_their_order_and_go_with_their_run, new_project, no_project)
{
    int64_t run, other, newest;
    struct hy_store *s = store_with_run(true, &run);
    int notes = 0, none = 0;

    OK(add_run(s, NULL, 2, true, &other));
    OK(hy_store_note_add(s, run, &(struct hy_note_row){.time = 1, .text = "note 0"}, &err));
    OK(hy_store_note_add(s, other, &(struct hy_note_row){.time = 1, .text = "note 0"}, &err));
    OK(hy_store_note_add(s, run, &(struct hy_note_row){.time = 1, .text = "note 1"}, &err));
    OK(hy_store_commit(s, &err));
    OK(hy_store_note_each(s, run, 0, count_note, &notes, &err));
    assert_int_equal(notes, 2);
    notes = 1;
    OK(hy_store_note_each(s, run, 1, count_note, &notes, &err)); /* those after the first */
    assert_int_equal(notes, 2);
    OK(hy_store_note_newest(s, run, &newest, &err));
    assert_int_equal(newest, 2);
    OK(hy_store_run_remove(s, run, &err));
    OK(hy_store_note_newest(s, run, &newest, &err));
    assert_int_equal(newest, 0);
    OK(hy_store_note_each(s, run, 0, count_note, &none, &err));
    assert_int_equal(none, 0);
    OK(hy_store_note_each(s, other, 0, count_note, &none, &err));
    assert_int_equal(none, 1);
    hy_store_close(s);
}

HY_TEST_WITH(test_a_run_survives_a_snapshot_unchanged_and_is_imported_once, new_project, no_project)
{
    struct hy_store *s = open_store(HY_STORE_WRITE), *reader, *other = other_store();
    int64_t run, filler, second, count = -1;
    int attempts = 0, metrics = 0, notes = 0, ended = 0;

    OK(hy_store_run_add(s, &full_run, &run, &err));
    OK(hy_store_note_add(s, run, &(struct hy_note_row){.time = 1, .text = "note 0"}, &err));
    OK(hy_store_note_add(s, run, &(struct hy_note_row){.time = 1, .text = "note 1"}, &err));
    for (int64_t i = 1; i <= 20; i++)
        OK(whole_turn(s, run, i));
    OK(add_trial(s, run, 21));
    OK(hy_store_commit(s, &err));
    reader = open_store(HY_STORE_READ);
    OK(hy_store_snapshot(reader, run, in_project("run.db"), NULL, 0, &err));
    hy_store_close(reader);
    FAILS(hy_store_snapshot(s, 77, in_project("x.db"), NULL, 0, &err), -ENOENT, "no run 77");
    FAILS(hy_store_snapshot(s, run, in_project("no/x.db"), NULL, 0, &err), -ENOENT, "cannot write the snapshot");
    OK(add_run(other, NULL, 1, true, &filler));
    OK(import_file(other, in_project("run.db"), &count, &err));
    assert_int_equal(count, 1);
    OK(import_file(other, in_project("run.db"), &count, &err));
    assert_int_equal(count, 0);
    OK(hy_store_run_find(other, NULL, &second, &err));
    assert_int_equal(second, 2); /* it has a number of its own there */
    assert_int_equal(counts_of(other, second).done, 20);
    assert_int_equal(counts_of(other, second).running, 1);
    assert_int_equal(counts_of(other, second).best_trial, 1);
    assert_int_equal(count_trials(other, second), 21);
    OK(hy_store_attempt_each(other, second, 0, count_attempt, &attempts, &err));
    OK(hy_store_metric_each(other, second, 0, count_metric, &metrics, &err));
    assert_int_equal(attempts, 20);
    assert_int_equal(metrics, 20);
    OK(hy_store_ended_each(other, second, 2 * 5 + 1, INT64_MAX, 100, count_trial, &ended, &err));
    assert_int_equal(ended, 15);
    OK(hy_store_note_each(other, second, 0, count_note, &notes, &err));
    assert_int_equal(notes, 2);
    assert_int_equal(counts_of(other, filler).running, 0);
    hy_store_close(other);
    hy_store_close(s);
}

HY_TEST_WITH(test_an_older_snapshot_is_imported_and_left_as_it_is, new_project, no_project)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);
    int64_t count = 0;

    make_format_1(in_project("old.db"));
    OK(import_file(s, in_project("old.db"), &count, &err));
    assert_int_equal(count, 1);
    check_format_1_contents(s);
    hy_store_close(s);
    assert_int_equal(pragma_of(in_project("old.db"), "PRAGMA user_version"), 1);
}

static void check_import_refused(struct hy_store *s, const char *path, int code, const char *words)
{
    int64_t count = 42;
    int runs = 0;

    FAILS(import_file(s, path, &count, &err), code, words);
    assert_int_equal(count, 42);
    OK(hy_store_run_each(s, 0, count_run, &runs, &err));
    assert_int_equal(runs, 0);
}

/* Each spoils a good snapshot in its way; none may get a row into the store. */
static const char *const spoilers[] = {
    "DROP TABLE metrics",
    "DROP TABLE notes",
    "ALTER TABLE trials RENAME TO t; CREATE VIEW trials AS SELECT * FROM t",
    "CREATE TRIGGER x AFTER INSERT ON runs BEGIN DELETE FROM trials; END",
    "ALTER TABLE runs RENAME TO r; CREATE TABLE runs AS SELECT * FROM r; UPDATE runs SET state = 'abc'",
    "ALTER TABLE runs RENAME TO r; CREATE TABLE runs AS SELECT * FROM r; UPDATE runs SET app_id = NULL",
    "ALTER TABLE trials RENAME TO r; CREATE TABLE trials AS SELECT * FROM r; UPDATE trials SET state = 17",
    "ALTER TABLE trials RENAME TO r; CREATE TABLE trials AS SELECT * FROM r; INSERT INTO trials SELECT * "
    "FROM r",
    "ALTER TABLE metrics RENAME COLUMN value TO other",
    "ALTER TABLE metrics RENAME TO m; CREATE VIRTUAL TABLE metrics USING fts5(run, trial, seq, attempt, "
    "step, name, value, time)",
};

HY_TEST_WITH(test_a_hostile_snapshot_is_rejected_and_changes_nothing, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run), *other = other_store();

    OK(whole_turn(s, run, 1));
    for (size_t i = 0; i < HY_COUNT(spoilers); i++) {
        OK(hy_store_snapshot(s, run, in_project("bad.db"), NULL, 0, &err));
        run_sql(in_project("bad.db"), spoilers[i]);
        check_import_refused(other, in_project("bad.db"), -EBADMSG, "bad.db");
    }
    OK(hy_store_snapshot(s, run, in_project("bad.db"), NULL, 0, &err));
    run_sql(in_project("bad.db"), "PRAGMA user_version = 99");
    check_import_refused(other, in_project("bad.db"), -EPROTO, "was written by a newer hopyard");
    put_file(in_project("bad.db"), "", 0);
    check_import_refused(other, in_project("bad.db"), -EBADMSG, "was not written by hopyard");
    put_file(in_project("bad.db"), project, sizeof project);
    check_import_refused(other, in_project("bad.db"), -EBADMSG, "bad.db");
    check_import_refused(other, in_project("none.db"), -ENOENT, "none.db");
    check_import_refused(other, project, -EISDIR, project);
    OK(import_file(other, in_project(".hopyard/store.db"), &run, &err)); /* a whole store will do */
    assert_int_equal(run, 1);
    hy_store_close(other);
    hy_store_close(s);
}

HY_TEST_WITH(test_a_damaged_snapshot_never_crashes_an_import, new_project, no_project)
{
    hy_cleanup_buf struct hy_buf whole;
    int64_t run, count, refused = 0;
    struct hy_store *s = store_with_run(true, &run), *other = other_store();
    struct hy_rng rng;

    for (int64_t i = 1; i <= 30; i++)
        OK(add_trial(s, run, i));
    OK(hy_store_snapshot(s, run, in_project("good.db"), NULL, 0, &err));
    hy_buf_init(&whole, 1 << 20);
    assert_int_equal(hy_file_read(in_project("good.db"), &whole), 0);
    hy_rng_seed(&rng, 3, 0);
    for (int i = 0; i < 100; i++) {
        hy_cleanup_free uint8_t *bytes = malloc(whole.len);

        memcpy(bytes, hy_buf_bytes(&whole), whole.len);
        for (int k = 0; k < 40; k++)
            bytes[100 + hy_rng_below(&rng, whole.len - 100)] ^= (uint8_t)(1 + hy_rng_below(&rng, 255));
        put_file(in_project("bad.db"), bytes, i % 4 ? whole.len : hy_rng_below(&rng, whole.len));
        refused += import_file(other, in_project("bad.db"), &count, &err) < 0;
    }
    assert_true(refused > 50);
    hy_store_close(other);
    hy_store_close(s);
}

HY_TEST_WITH(test_pruned_and_paused_trials_survive_a_snapshot, new_project, no_project)
{
    int64_t run, count = 0;
    struct hy_store *s = store_with_run(true, &run), *other = other_store();
    struct hy_run_counts c;

    for (int64_t i = 1; i <= 3; i++)
        OK(add_trial(s, run, i));
    OK(end_trial(s, run, 1, HY_TRIAL_PRUNED, 0.5));
    OK(end_trial(s, run, 2, HY_TRIAL_PAUSED, 0.5));
    OK(end_trial(s, run, 3, HY_TRIAL_DONE, 0.25));
    OK(hy_store_decision_add(s, run, &(struct hy_decision_row){.seq = 9, .trial = 1, .decision = 1}, &err));
    OK(hy_store_commit(s, &err));
    OK(hy_store_snapshot(s, run, in_project("run.db"), NULL, 0, &err));
    OK(import_file(other, in_project("run.db"), &count, &err));
    c = counts_of(other, 1);
    assert_int_equal(c.pruned, 1);
    assert_int_equal(c.paused, 1);
    assert_int_equal(c.done, 1);
    assert_int_equal(c.best_trial, 3);
    hy_store_close(other);
    hy_store_close(s);
    assert_int_equal(pragma_of(in_project("other/.hopyard/store.db"), "SELECT count(*) FROM decisions"), 1);
}

/* ---- a store that is lost -------------------------------------------------------- */

static int64_t add_own_run(struct hy_store *s, int64_t app_run)
{
    struct hy_run_row row = full_run;
    char logdir[200];
    int64_t run;

    snprintf(logdir, sizeof logdir, "%s/Logs/TensorFlow/a/%lld", project, (long long)app_run);
    row.logdir = logdir;
    row.app_run = app_run;
    row.spec = "SECRET=environment";
    row.spec_len = 18;
    OK(hy_store_run_add(s, &row, &run, &err));
    OK(whole_turn(s, run, 1));
    return run;
}

static void lose_store(bool leave_empty)
{
    unlink(in_project(".hopyard/store.db"));
    unlink(in_project(".hopyard/store.db-wal"));
    unlink(in_project(".hopyard/store.db-shm"));
    if (leave_empty)
        put_file(in_project(".hopyard/store.db"), "", 0);
}

HY_TEST_WITH(test_a_lost_store_is_reported_and_its_backups_restore_all_runs, new_project, no_project)
{
    struct hy_store *s = open_store(HY_STORE_WRITE), *none = NULL;
    int64_t run, count = 0, lost = 0;
    struct stat st;

    assert_null(hy_store_lost_notice(s));
    for (int64_t i = 1; i <= 3; i++)
        OK(hy_store_backup_run(s, add_own_run(s, i), &err));
    OK(hy_store_count_unlisted_backups(s, &lost, &err));
    assert_int_equal(lost, 0);
    hy_store_close(s);
    assert_int_equal(stat(in_project(".hopyard/runs"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(in_project(".hopyard/runs/3.db"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    for (int i = 0; i < 2; i++) {
        lose_store(i);
        FAILS(hy_store_open(project, HY_STORE_READ, &none, &err), -ENODATA,
              "is empty or missing, though there were runs");
        assert_non_null(strstr(err.text, "/.hopyard/runs/*.db` restores the 3 finished runs"));
    }
    s = open_store(HY_STORE_WRITE);
    assert_non_null(strstr(hy_store_lost_notice(s), "/runs/*.db` restores the 3 finished runs"));
    assert_int_equal(add_own_run(s, 4), 4); /* no number is given twice */
    OK(hy_store_count_unlisted_backups(s, &lost, &err));
    assert_int_equal(lost, 3);
    OK(import_file(s, in_project(".hopyard/runs/3.db"), &count, &err));
    OK(import_file(s, in_project(".hopyard/runs/1.db"), &count, &err));
    assert_int_equal(count, 1);
    for (run = 1; run <= 4; run++)
        if (run != 2)
            assert_int_equal(counts_of(s, run).done, 1);
    OK(hy_store_remove_backup(s, 2, &err));
    OK(hy_store_remove_backup(s, 2, &err)); /* it is gone already */
    OK(hy_store_count_unlisted_backups(s, &lost, &err));
    assert_int_equal(lost, 0);
    hy_store_close(s);
}

HY_TEST_WITH(test_advice_for_a_lost_store_names_existing_files_only, new_project, no_project)
{
    struct hy_store *s = NULL;
    int64_t run;

    assert_int_equal(hy_mkdirs(in_project("Logs/TensorFlow/a/1"), 0755), 0);
    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -ENOENT, "no runs yet"); /* not of hopyard's */
    put_file(in_project("Logs/TensorFlow/a/1/.token"), "x", 1);
    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -ENODATA,
          "no snapshot is left to import, only the logs in '");
    put_file(in_project("Logs/TensorFlow/a/1/run.db"), "x", 1);
    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -ENODATA, "/Logs/TensorFlow/*/*/run.db` restores");
    hy_remove_tree(in_project("Logs"));
    hy_store_close(store_with_run(true, &run));
    lose_store(false);
    put_file(in_project(".hopyard/store.db"), "SQLite format 3, or so it says", 30);
    check_refused(-EBADMSG,
                  "is damaged (it is not a hopyard store); move it and its -wal and -shm away, then: there is no "
                  "snapshot to import");
    assert_int_equal(hy_mkdirs(in_project(".hopyard/runs"), 0700), 0);
    put_file(in_project(".hopyard/runs/7.db"), "x", 1);
    check_refused(-EBADMSG, "then: `hopyard import ");
    assert_non_null(strstr(err.text, "/.hopyard/runs/*.db` restores the 1 finished run"));
}

/* The folder was looked at before, by names: what SQLite then opens is looked at once more. */
HY_TEST_WITH(test_sqlite_itself_opens_no_file_that_may_be_somebody_elses, new_project, no_project)
{
    int64_t run;
    sqlite3 *db = NULL;

    hy_store_close(store_with_run(true, &run));
    assert_int_equal(sqlite3_open(in_project(".hopyard/store.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "SELECT * FROM runs", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(link(in_project(".hopyard/store.db"), in_project("second")), 0);
    assert_int_equal(sqlite3_open(in_project(".hopyard/store.db"), &db), SQLITE_CANTOPEN);
    sqlite3_close(db);
    assert_int_equal(unlink(in_project("second")), 0);
    assert_int_equal(chmod(in_project(".hopyard/store.db"), 0606), 0);
    assert_int_equal(sqlite3_open(in_project(".hopyard/store.db"), &db), SQLITE_CANTOPEN);
    sqlite3_close(db);
}

/* ---- somebody else, who moves names about while they are used --------------------------- */

/* When the library asks for this name, the first of `swapped` goes to the third, and the second takes its place. */
static const char *swap_at;
static char swapped[3][100];

static void swap_when_due(const char *name)
{
    if (!swap_at || strcmp(name, swap_at) != 0)
        return;
    swap_at = NULL;
    if (rename(swapped[0], swapped[2]) < 0 || rename(swapped[1], swapped[0]) < 0)
        abort();
}

int fstatat(int dir, const char *name, struct stat *ret, int flags)
{
    int rc = (int)syscall(SYS_newfstatat, dir, name, ret, flags);

    swap_when_due(name);
    return rc;
}

int mkdirat(int dir, const char *name, mode_t mode)
{
    int rc = (int)syscall(SYS_mkdirat, dir, name, mode);

    swap_when_due(name);
    return rc;
}

static void swap_later(const char *at, const char *name, const char *other)
{
    snprintf(swapped[0], sizeof swapped[0], "%s", in_project(name));
    snprintf(swapped[1], sizeof swapped[1], "%s", in_project(other));
    snprintf(swapped[2], sizeof swapped[2], "%s", in_project("away"));
    swap_at = at;
}

HY_TEST_WITH(test_a_directory_that_is_swapped_in_does_not_become_the_store, new_project, no_project)
{
    struct hy_store *s = other_store();
    int64_t run;

    hy_store_close(s);
    hy_store_close(store_with_run(true, &run));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(symlink(in_project("other/.hopyard"), in_project("link")), 0);
        swap_later("store.db", ".hopyard", "link");
        s = NULL;
        if (i == 0) {
            OK(hy_store_open(project, HY_STORE_READ, &s, &err));
            assert_int_equal(counts_of(s, run).running, 0); /* the run is there: it is the one that was checked */
        } else {
            FAILS(hy_store_open(project, HY_STORE_WRITE, &s, &err), -ENOENT, "cannot examine '");
        }
        hy_store_close(s);
        assert_null(swap_at);
        assert_int_equal(unlink(in_project(".hopyard")), 0);
        assert_int_equal(rename(in_project("away"), in_project(".hopyard")), 0);
    }
    s = open_store(HY_STORE_WRITE);
    assert_int_equal(symlink(in_project("other/.hopyard"), in_project("link")), 0);
    OK(hy_store_check_files(s, &err));
    swap_later("", ".hopyard", "link");
    swap_when_due("");
    FAILS(hy_store_check_files(s, &err), -ESTALE, "was deleted or replaced while it was in use");
    hy_store_close(s);
}

HY_TEST_WITH(test_a_file_that_is_swapped_in_is_not_narrowed, new_project, no_project)
{
    struct hy_store *s = NULL;
    struct stat st;
    int64_t run;

    hy_store_close(store_with_run(true, &run));
    put_file(in_project(".hopyard/x"), "", 0); /* 0644 */
    put_file(in_project("theirs"), "", 0);
    assert_int_equal(chmod(in_project("theirs"), 0666), 0);
    swap_later("x", ".hopyard/x", "theirs");
    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -EPERM, "other users can write to '");
    assert_int_equal(stat(in_project(".hopyard/x"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0666);
}

HY_TEST_WITH(test_root_gives_away_only_what_it_has_made, new_project, no_project)
{
    struct hy_store *s;
    struct stat st;
    int64_t run;

    hy_need_root("to give files away");
    s = store_with_run(true, &run);
    assert_int_equal(chown(in_project(".hopyard"), 65534, 65534), 0);
    put_file(in_project(".hopyard/roots"), "", 0);
    for (int i = 0; i < 2; i++) {
        int fd = hy_store_file(s, i ? "new" : "roots", O_RDWR | O_CREAT, &err);

        assert_true(fd >= 0 && fstat(fd, &st) == 0);
        assert_int_equal(st.st_uid, i ? 65534 : 0);
        close(fd);
    }
    assert_int_equal(mkdir(in_project("target"), 0755), 0);
    assert_int_equal(symlink(in_project("target"), in_project("link")), 0);
    swap_later("runs", ".hopyard/runs", "link");
    assert_true(hy_store_backup_run(s, run, &err) < 0);
    assert_null(swap_at);
    assert_int_equal(stat(in_project("target"), &st), 0);
    assert_int_equal(st.st_uid, 0);
    assert_int_equal(unlink(in_project(".hopyard/runs")), 0);
    OK(hy_store_backup_run(s, run, &err));
    assert_int_equal(stat(in_project(".hopyard/runs"), &st), 0);
    assert_int_equal(st.st_uid, 65534);
    hy_store_close(s);
}

HY_TEST_WITH(test_a_snapshot_is_not_written_into_what_lies_in_its_way, new_project, no_project)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run);
    char draft[60];
    struct stat st;
    int fd;

    snprintf(draft, sizeof draft, "run.db.%d.tmp", (int)getpid());
    assert_int_equal(mkfifo(in_project(draft), 0666), 0);
    alarm(60); /* where the FIFO is opened, that waits for a reader for ever */
    OK(hy_store_snapshot(s, run, in_project("run.db"), NULL, 0, &err));
    alarm(0);
    fd = open(in_project(draft), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    OK(hy_store_snapshot(s, run, in_project("run.db"), NULL, 0, &err));
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(stat(in_project("run.db"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    close(fd);
    hy_store_close(s);
}

static int take_spec(void *arg, const struct hy_run_row *run, const struct hy_run_counts *counts)
{
    (void)counts;
    snprintf(arg, 20, "%.*s", (int)run->spec_len, (const char *)run->spec);
    return 0;
}

/* Imports a snapshot that `change` was done to, as the run of this number. */
static void import_changed(int64_t run, void (*change)(void))
{
    struct hy_store *s = open_store(HY_STORE_WRITE), *other = other_store();
    struct hy_imported got = {0};
    char spec[20] = "";

    OK(hy_store_snapshot(s, add_own_run(s, run), in_project("run.db"), NULL, 0, &err));
    if (change)
        change();
    OK(hy_store_import(other, in_project("run.db"), share_none, &got, &err));
    assert_int_equal(got.count, 1);
    assert_int_equal(got.is_shared, change != NULL);
    OK(hy_store_run_each(other, run, take_spec, spec, &err));
    assert_int_equal(strcmp(spec, "shared") == 0, change != NULL);
    hy_store_close(s);
    hy_store_close(other);
}

static void let_the_group_write(void)
{
    assert_int_equal(chmod(in_project("run.db"), 0620), 0);
}

static void add_a_journal_of_others(void)
{
    put_file(in_project("run.db-wal"), "", 0);
    assert_int_equal(chmod(in_project("run.db-wal"), 0666), 0);
}

static void give_away(void)
{
    assert_int_equal(chown(in_project("run.db"), 65533, 65533), 0);
}

HY_TEST_WITH(test_what_others_could_write_is_imported_without_what_would_be_run, new_project, no_project)
{
    import_changed(1, NULL);
    import_changed(2, let_the_group_write);
    import_changed(3, add_a_journal_of_others);
}

HY_TEST_WITH(test_snapshots_of_other_users_are_imported_without_executable_parts, new_project, no_project)
{
    hy_need_root("to give files away");
    import_changed(1, NULL);
    import_changed(2, give_away);
}

HY_TEST_WITH(test_advice_names_our_own_snapshots_only, new_project, no_project)
{
    struct hy_store *s = NULL;

    assert_int_equal(hy_mkdirs(in_project("Logs/TensorFlow/a/1"), 0755), 0);
    assert_int_equal(hy_mkdirs(in_project("Logs/TensorFlow/a/2"), 0755), 0);
    put_file(in_project("Logs/TensorFlow/a/1/run.db"), "x", 1);
    assert_int_equal(chmod(in_project("Logs/TensorFlow/a/1/run.db"), 0666), 0);
    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -ENOENT, "no runs yet");
    put_file(in_project("Logs/TensorFlow/a/2/run.db"), "x", 1);
    FAILS(hy_store_open(project, HY_STORE_READ, &s, &err), -ENODATA,
          " ! -perm /022 -exec hopyard import {} +` restores");
}

static bool file_holds(const char *path, const char *words)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1 << 20);
    assert_int_equal(hy_file_read(path, &b), 0);
    return memmem(hy_buf_bytes(&b), b.len, words, strlen(words)) != NULL;
}

HY_TEST_WITH(test_a_snapshot_for_others_has_nothing_of_what_was_left_out, new_project, no_project)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);
    int64_t run = add_own_run(s, 1);

    OK(hy_store_snapshot(s, run, in_project("whole.db"), NULL, 0, &err));
    OK(hy_store_snapshot(s, run, in_project("shared.db"), "short", 5, &err));
    assert_true(file_holds(in_project("whole.db"), "SECRET=environment"));
    assert_false(file_holds(in_project("shared.db"), "SECRET=environment"));
    assert_true(file_holds(in_project("shared.db"), "short"));
    hy_store_close(s);
}
