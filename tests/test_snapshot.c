/* SPDX-License-Identifier: Apache-2.0 */
/* The store over versions and machines: older, newer, strange and damaged files; runs that travel. */
#include "store_bench.h"

#include <errno.h>
#include <sqlite3.h>

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
    "INSERT INTO tallies VALUES (1,1,2,1,0);"
    "INSERT INTO trials VALUES (1,1,'{}','a',2,0.5,NULL,1,1,2,1,2),(1,2,'{}','b',2,0.75,NULL,1,1,2,3,4),"
    " (1,3,'{}','c',3,0.9,'x',1,1,2,5,6),(1,4,'{}','d',1,NULL,NULL,1,1,0,7,0);";

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
    check_order(s, 1, HY_TRIALS_BY_VALUE, 0, 0, "2134");
}

static void test_an_older_store_is_migrated_by_a_writer_and_read_as_it_is_by_a_reader(void **state)
{
    char *path = in_project(".hopyard/store.db");
    struct hy_store *s;

    (void)state;
    assert_int_equal(mkdir(in_project(".hopyard"), 0755), 0);
    make_format_1(path);
    s = open_store(HY_STORE_READ);
    check_format_1_contents(s);
    hy_store_close(s);
    assert_int_equal(pragma_of(path, "PRAGMA user_version"), 1);
    s = open_store(HY_STORE_WRITE);
    check_format_1_contents(s);
    OK(end_trial(s, 1, 4, HY_TRIAL_DONE, 2));
    OK(hy_store_commit(s, &err));
    assert_int_equal(counts_of(s, 1).best_trial, 4);
    hy_store_close(s);
    assert_int_equal(pragma_of(path, "PRAGMA user_version"), 5);
}

static void test_an_older_store_whose_driver_lives_is_not_changed_under_it(void **state)
{
    struct hy_store *s, *writer = NULL;
    int lock;

    (void)state;
    assert_int_equal(mkdir(in_project(".hopyard"), 0755), 0);
    make_format_1(in_project(".hopyard/store.db"));
    s = open_store(HY_STORE_READ);
    lock = hy_store_run_lock(s, 1, &err);
    assert_true(lock >= 0);
    FAILS(hy_store_open(project, HY_STORE_WRITE, &writer, &err), -EBUSY,
          "in use by an older hopyard (run 1)");
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

static void test_a_newer_a_strange_and_a_broken_store_are_refused_and_left_alone(void **state)
{
    char *path = in_project(".hopyard/store.db");
    char noise[5000];
    int64_t run;

    (void)state;
    hy_store_close(store_with_run(true, &run));
    run_sql(path, "PRAGMA user_version = 9");
    check_refused(-EPROTO, "was written by a newer hopyard (format 9; this one knows 5): upgrade hopyard");
    run_sql(path, "PRAGMA user_version = 2; PRAGMA application_id = 5");
    check_refused(-EBADMSG, "is a database of another program");
    hy_remove_tree(in_project(".hopyard"));
    mkdir(in_project(".hopyard"), 0755);
    memset(noise, 'x', sizeof noise);
    put_file(path, noise, sizeof noise);
    check_refused(-EBADMSG, "is not a store of hopyard's");
    unlink(path);
    run_sql(path, "CREATE TABLE t(a)");
    check_refused(-EBADMSG, "is a database of another program");
    unlink(path);
    mkdir(path, 0755);
    check_refused(-EIO, "store.db");
}

static int any_note(void *arg, const struct hy_note_row *note)
{
    *(int *)arg += note->text != NULL;
    return 0;
}

/* Reads and writes all there is; only that it comes back matters. */
static void use_all(struct hy_store *s)
{
    int n = 0;

    hy_store_run_each(s, 0, count_run, &n, &err);
    hy_store_trial_each(s, 1, 0, HY_TRIALS_BY_NUMBER, 0, 0, count_trial, &n, &err);
    hy_store_trial_each(s, 1, 0, HY_TRIALS_BY_VALUE, 0, 0, count_trial, &n, &err);
    hy_store_replay(s, 1, count_replay, &n, &err);
    hy_store_attempt_each(s, 1, 0, count_attempt, &n, &err);
    hy_store_metric_each(s, 1, 0, count_metric, &n, &err);
    hy_store_note_each(s, 1, any_note, &n, &err);
    whole_turn(s, 1, 1000);
    hy_store_run_remove(s, 1, &err);
    hy_store_commit(s, &err);
}

static void test_a_damaged_store_gives_sentences_not_crashes(void **state)
{
    hy_cleanup_buf struct hy_buf whole;
    char *path = in_project(".hopyard/store.db");
    int64_t run, refused = 0;
    struct hy_store *s = store_with_run(true, &run);
    struct hy_rng rng;

    (void)state;
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

static void test_notes_come_in_their_order_and_go_with_their_run(void **state)
{
    int64_t run, other;
    struct hy_store *s = store_with_run(true, &run);
    int notes = 0, none = 0;

    (void)state;
    OK(add_run(s, NULL, 2, true, &other));
    OK(hy_store_note_add(s, run, "note 0", &err));
    OK(hy_store_note_add(s, other, "note 0", &err));
    OK(hy_store_note_add(s, run, "note 1", &err));
    OK(hy_store_commit(s, &err));
    OK(hy_store_note_each(s, run, count_note, &notes, &err));
    assert_int_equal(notes, 2);
    OK(hy_store_run_remove(s, run, &err));
    OK(hy_store_note_each(s, run, count_note, &none, &err));
    assert_int_equal(none, 0);
    OK(hy_store_note_each(s, other, count_note, &none, &err));
    assert_int_equal(none, 1);
    hy_store_close(s);
}

static void test_a_run_goes_through_a_snapshot_unchanged_and_only_once(void **state)
{
    struct hy_store *s = open_store(HY_STORE_WRITE), *reader, *other = other_store();
    int64_t run, filler, second, count = -1;
    int attempts = 0, metrics = 0, notes = 0;

    (void)state;
    OK(hy_store_run_add(s, &full_run, &run, &err));
    OK(hy_store_note_add(s, run, "note 0", &err));
    OK(hy_store_note_add(s, run, "note 1", &err));
    for (int64_t i = 1; i <= 20; i++)
        OK(whole_turn(s, run, i));
    OK(add_trial(s, run, 21));
    OK(hy_store_commit(s, &err));
    reader = open_store(HY_STORE_READ);
    OK(hy_store_snapshot(reader, run, in_project("run.db"), &err));
    hy_store_close(reader);
    FAILS(hy_store_snapshot(s, 77, in_project("x.db"), &err), -ENOENT, "no run 77");
    FAILS(hy_store_snapshot(s, run, in_project("no/x.db"), &err), -ENOENT, "cannot write the snapshot");
    OK(add_run(other, NULL, 1, true, &filler));
    OK(hy_store_import(other, in_project("run.db"), &count, &err));
    assert_int_equal(count, 1);
    OK(hy_store_import(other, in_project("run.db"), &count, &err));
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
    OK(hy_store_note_each(other, second, count_note, &notes, &err));
    assert_int_equal(notes, 2);
    assert_int_equal(counts_of(other, filler).running, 0);
    hy_store_close(other);
    hy_store_close(s);
}

static void test_an_older_snapshot_is_imported_and_left_as_it_is(void **state)
{
    struct hy_store *s = open_store(HY_STORE_WRITE);
    int64_t count = 0;

    (void)state;
    make_format_1(in_project("old.db"));
    OK(hy_store_import(s, in_project("old.db"), &count, &err));
    assert_int_equal(count, 1);
    check_format_1_contents(s);
    hy_store_close(s);
    assert_int_equal(pragma_of(in_project("old.db"), "PRAGMA user_version"), 1);
}

static void check_import_refused(struct hy_store *s, const char *path, int code, const char *words)
{
    int64_t count = 42;
    int runs = 0;

    FAILS(hy_store_import(s, path, &count, &err), code, words);
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

static void test_a_hostile_snapshot_is_refused_with_a_sentence_and_changes_nothing(void **state)
{
    int64_t run;
    struct hy_store *s = store_with_run(true, &run), *other = other_store();

    (void)state;
    OK(whole_turn(s, run, 1));
    for (size_t i = 0; i < HY_COUNT(spoilers); i++) {
        OK(hy_store_snapshot(s, run, in_project("bad.db"), &err));
        run_sql(in_project("bad.db"), spoilers[i]);
        check_import_refused(other, in_project("bad.db"), -EBADMSG, "bad.db");
    }
    OK(hy_store_snapshot(s, run, in_project("bad.db"), &err));
    run_sql(in_project("bad.db"), "PRAGMA user_version = 9");
    check_import_refused(other, in_project("bad.db"), -EPROTO, "was written by a newer hopyard");
    put_file(in_project("bad.db"), "", 0);
    check_import_refused(other, in_project("bad.db"), -EBADMSG, "was not written by hopyard");
    put_file(in_project("bad.db"), project, sizeof project);
    check_import_refused(other, in_project("bad.db"), -EBADMSG, "bad.db");
    check_import_refused(other, in_project("none.db"), -ENOENT, "none.db");
    check_import_refused(other, project, -EISDIR, project);
    OK(hy_store_import(other, in_project(".hopyard/store.db"), &run, &err)); /* a whole store will do */
    assert_int_equal(run, 1);
    hy_store_close(other);
    hy_store_close(s);
}

static void test_a_damaged_snapshot_never_crashes_an_import(void **state)
{
    hy_cleanup_buf struct hy_buf whole;
    int64_t run, count, refused = 0;
    struct hy_store *s = store_with_run(true, &run), *other = other_store();
    struct hy_rng rng;

    (void)state;
    for (int64_t i = 1; i <= 30; i++)
        OK(add_trial(s, run, i));
    OK(hy_store_snapshot(s, run, in_project("good.db"), &err));
    hy_buf_init(&whole, 1 << 20);
    assert_int_equal(hy_file_read(in_project("good.db"), &whole), 0);
    hy_rng_seed(&rng, 3, 0);
    for (int i = 0; i < 100; i++) {
        hy_cleanup_free uint8_t *bytes = malloc(whole.len);

        memcpy(bytes, hy_buf_bytes(&whole), whole.len);
        for (int k = 0; k < 40; k++)
            bytes[100 + hy_rng_below(&rng, whole.len - 100)] ^= (uint8_t)(1 + hy_rng_below(&rng, 255));
        put_file(in_project("bad.db"), bytes, i % 4 ? whole.len : hy_rng_below(&rng, whole.len));
        refused += hy_store_import(other, in_project("bad.db"), &count, &err) < 0;
    }
    assert_true(refused > 50);
    hy_store_close(other);
    hy_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROMISE(test_an_older_store_is_migrated_by_a_writer_and_read_as_it_is_by_a_reader),
        PROMISE(test_an_older_store_whose_driver_lives_is_not_changed_under_it),
        PROMISE(test_a_newer_a_strange_and_a_broken_store_are_refused_and_left_alone),
        PROMISE(test_a_damaged_store_gives_sentences_not_crashes),
        PROMISE(test_a_run_goes_through_a_snapshot_unchanged_and_only_once),
        PROMISE(test_notes_come_in_their_order_and_go_with_their_run),
        PROMISE(test_an_older_snapshot_is_imported_and_left_as_it_is),
        PROMISE(test_a_hostile_snapshot_is_refused_with_a_sentence_and_changes_nothing),
        PROMISE(test_a_damaged_snapshot_never_crashes_an_import),
    };

    return cmocka_run_group_tests_name("snapshot", tests, NULL, NULL);
}
