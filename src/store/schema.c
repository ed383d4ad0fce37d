/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables, and their migrations.
 *
 * Step n brings a store of format n to format n + 1; the format is kept in
 * PRAGMA user_version. Steps are only added: stores of every released hopyard must
 * stay readable.
 *
 * (run, number) is the primary key of the tables of trials, so that a run's rows are
 * adjacent and a scan of a run touches nothing else. The counts of a run are in a
 * separate table because they change with every trial, while the run's row (with its
 * spec, which may be long) does not.
 */
#include "store/internal.h"

#include <errno.h>
#include <stdio.h>

#include "base/mem.h"

#define APPLICATION_ID 0x686f7079 /* "hopy" */

static const char *const steps[] = {
    /* 0 -> 1 */
    "PRAGMA application_id = 0x686f7079;"
    "CREATE TABLE runs("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  name TEXT, app_id TEXT NOT NULL, app_run INTEGER NOT NULL, logdir TEXT, command TEXT, metric TEXT,"
    "  maximize INTEGER NOT NULL, seed INTEGER NOT NULL, versions TEXT, git TEXT,"
    "  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4), message TEXT,"
    "  created INTEGER NOT NULL, ended INTEGER NOT NULL, total INTEGER NOT NULL, spec BLOB) STRICT;"
    "CREATE UNIQUE INDEX runs_app ON runs(app_id, app_run);"
    "CREATE TABLE tallies("
    "  run INTEGER PRIMARY KEY,"
    "  running INTEGER NOT NULL, done INTEGER NOT NULL, failed INTEGER NOT NULL, stopped INTEGER NOT NULL) "
    "STRICT;"
    "CREATE TABLE trials("
    "  run INTEGER NOT NULL, number INTEGER NOT NULL, params TEXT, dir TEXT,"
    "  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4), value ANY, message TEXT,"
    "  attempts INTEGER NOT NULL, started INTEGER NOT NULL, ended INTEGER NOT NULL,"
    "  asked_seq INTEGER NOT NULL, told_seq INTEGER NOT NULL,"
    "  PRIMARY KEY (run, number)) STRICT, WITHOUT ROWID;"
    "CREATE UNIQUE INDEX trials_dir ON trials(run, dir);"
    "CREATE TABLE attempts("
    "  run INTEGER NOT NULL, trial INTEGER NOT NULL, number INTEGER NOT NULL, agent TEXT, host TEXT,"
    "  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5), exit_code INTEGER NOT NULL, message TEXT,"
    "  started INTEGER NOT NULL, ended INTEGER NOT NULL, cpu_ms INTEGER NOT NULL, peak_memory INTEGER NOT "
    "NULL,"
    "  PRIMARY KEY (run, trial, number)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE metrics("
    "  run INTEGER NOT NULL, trial INTEGER NOT NULL, seq INTEGER NOT NULL, attempt INTEGER NOT NULL,"
    "  step INTEGER NOT NULL, name TEXT NOT NULL, value ANY, time INTEGER NOT NULL,"
    "  PRIMARY KEY (run, trial, seq)) STRICT, WITHOUT ROWID;",

    /* 1 -> 2: the best trials without a scan. `score` is the value with the sign
     * changed where larger is better; only done trials with a value have one. */
    "ALTER TABLE trials ADD COLUMN score REAL;"
    "UPDATE trials SET score = CASE (SELECT maximize FROM runs WHERE id = run) WHEN 0 THEN value ELSE -value "
    "END"
    "  WHERE state = 2 AND typeof(value) = 'real';"
    "CREATE INDEX trials_score ON trials(run, score, number) WHERE score IS NOT NULL;",

    /* 2 -> 3: the long description of a failure, a traceback. */
    "ALTER TABLE attempts ADD COLUMN detail TEXT;",

    /* 3 -> 4: how many ranks a training has; 0: not a training. */
    "ALTER TABLE runs ADD COLUMN ranks INTEGER NOT NULL DEFAULT 0;",

    /* 4 -> 5: notes for users. */
    "CREATE TABLE notes("
    "  run INTEGER NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL, text TEXT NOT NULL,"
    "  PRIMARY KEY (run, seq)) STRICT, WITHOUT ROWID;",

    /* 5 -> 6: the order in which trials ended, told to the search or not, so that
     * a client reads only those that are new to it. NULL: it has not ended. */
    "ALTER TABLE trials ADD COLUMN ended_seq INTEGER;"
    "UPDATE trials SET ended_seq = told_seq WHERE state > 1 AND told_seq > 0;"
    "UPDATE trials SET ended_seq = newest.seq + number"
    "  FROM (SELECT run, max(max(asked_seq, told_seq)) AS seq FROM trials GROUP BY run) AS newest"
    "  WHERE newest.run = trials.run AND state > 1 AND told_seq = 0;"
    "CREATE INDEX trials_ended ON trials(run, ended_seq) WHERE ended_seq IS NOT NULL;",

    /* 6 -> 7: what an attempt is charged as (enum hy_charge). For earlier runs only failures are known. */
    ("ALTER TABLE attempts ADD COLUMN charge INTEGER NOT NULL DEFAULT 0;"
     "UPDATE attempts SET charge = 1 WHERE state = 3;"),

    /* 7 -> 8: labels of a run (trial 0) or a trial; the search and the engine of a run, which are in its
     * spec, too long to be read for a list. NULL: an older run. */
    ("CREATE TABLE labels("
     "  run INTEGER NOT NULL, trial INTEGER NOT NULL, tags TEXT, note TEXT,"
     "  PRIMARY KEY (run, trial)) STRICT, WITHOUT ROWID;"
     "ALTER TABLE runs ADD COLUMN kind TEXT;"
     "ALTER TABLE runs ADD COLUMN engine TEXT;"),

    /* 8 -> 9: when an attempt was queued, why it was held on its agent and until when, its GPUs; what it used over
     * time. That is one row for each attempt that ran for a second or more, in an ordinary table: its keys are in an
     * index, and the points, about 2 KB, are not between them. */
    ("ALTER TABLE attempts ADD COLUMN queued INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE attempts ADD COLUMN held TEXT;"
     "ALTER TABLE attempts ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE attempts ADD COLUMN gpus INTEGER NOT NULL DEFAULT 0;"
     "CREATE TABLE usage("
     "  run INTEGER NOT NULL, trial INTEGER NOT NULL, attempt INTEGER NOT NULL, points BLOB NOT NULL,"
     "  PRIMARY KEY (run, trial, attempt)) STRICT;"),

    /* 9 -> 10: trials that were stopped early or are paused (states 5 and 6). Only a new table can have another CHECK.
     * For early stopping: the decisions, and the place of a report in the order of asks and ends. 0: not used. */
    ("CREATE TABLE new_trials("
     "  run INTEGER NOT NULL, number INTEGER NOT NULL, params TEXT, dir TEXT,"
     "  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 6), value ANY, message TEXT,"
     "  attempts INTEGER NOT NULL, started INTEGER NOT NULL, ended INTEGER NOT NULL,"
     "  asked_seq INTEGER NOT NULL, told_seq INTEGER NOT NULL, score REAL, ended_seq INTEGER,"
     "  PRIMARY KEY (run, number)) STRICT, WITHOUT ROWID;"
     "INSERT INTO new_trials(run, number, params, dir, state, value, message, attempts, started, ended, asked_seq,"
     "  told_seq, score, ended_seq)"
     "  SELECT run, number, params, dir, state, value, message, attempts, started, ended, asked_seq,"
     "  told_seq, score, ended_seq FROM trials;"
     "DROP TABLE trials;"
     "ALTER TABLE new_trials RENAME TO trials;"
     "CREATE UNIQUE INDEX trials_dir ON trials(run, dir);"
     "CREATE INDEX trials_score ON trials(run, score, number) WHERE score IS NOT NULL;"
     "CREATE INDEX trials_ended ON trials(run, ended_seq) WHERE ended_seq IS NOT NULL;"
     "CREATE INDEX trials_paused ON trials(run, number) WHERE state = 6;"
     "ALTER TABLE tallies ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE tallies ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE metrics ADD COLUMN run_seq INTEGER NOT NULL DEFAULT 0;"
     "CREATE TABLE decisions("
     "  run INTEGER NOT NULL, seq INTEGER NOT NULL, trial INTEGER NOT NULL, decision INTEGER NOT NULL,"
     "  time INTEGER NOT NULL,"
     "  PRIMARY KEY (run, seq)) STRICT, WITHOUT ROWID;"),
};

int hy_schema_latest(void)
{
    return (int)HY_COUNT(steps);
}

int hy_schema_version(sqlite3 *db, const char *path, int *ret, struct hy_err *err)
{
    int64_t version = 0, application = 0, tables = 0;
    int rc = hy_sqlite_scalar(db, "PRAGMA user_version", &version, path, err);

    if (rc == 0)
        rc = hy_sqlite_scalar(db, "PRAGMA application_id", &application, path, err);
    if (rc == 0)
        rc = hy_sqlite_scalar(db, "SELECT count(*) FROM sqlite_schema", &tables, path, err);
    if (rc < 0)
        return rc;
    if ((tables || version || application) && application != APPLICATION_ID)
        return hy_err_set(err, -EBADMSG,
                          "'%s' is a database of another program, not a hopyard store; move it away and try again",
                          path);
    if (version > hy_schema_latest())
        return hy_err_set(
            err, -EPROTO,
            "the store '%s' was written by a newer hopyard (format %lld; this one supports %d): upgrade hopyard", path,
            (long long)version, hy_schema_latest());
    if (version < 0 || (version == 0 && tables))
        return hy_sqlite_error(db, SQLITE_CORRUPT, path, err);
    *ret = (int)version;
    return 0;
}

static int apply(sqlite3 *db, int from, const char *path, struct hy_err *err)
{
    char stamp[64];
    int rc = 0;

    for (int i = from; i < hy_schema_latest() && rc == 0; i++)
        rc = hy_sqlite_exec(db, steps[i], path, err);
    snprintf(stamp, sizeof stamp, "PRAGMA user_version = %d", hy_schema_latest());
    return rc < 0 ? rc : hy_sqlite_exec(db, stamp, path, err);
}

int hy_schema_migrate(sqlite3 *db, const char *path, struct hy_err *err)
{
    int version = 0;
    int rc = hy_schema_version(db, path, &version, err);

    if (rc < 0 || version == hy_schema_latest())
        return rc;
    rc = hy_sqlite_exec(db, "BEGIN IMMEDIATE", path, err);
    if (rc < 0)
        return rc;
    rc = hy_schema_version(db, path, &version, err); /* it may have changed while we waited for the lock */
    if (rc == 0)
        rc = apply(db, version, path, err);
    if (rc == 0)
        rc = hy_sqlite_exec(db, "COMMIT", path, err);
    if (rc < 0 && !sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}
