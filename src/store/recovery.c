/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery of a project whose store is lost: a disk check, a wrong command or a
 * crash has left store.db damaged, empty or missing. Snapshots of finished runs are
 * in DIR/runs; for a shared project one without environment and function is with
 * each run's logs.
 */
#include "store/internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

/* ---- finding what is left --------------------------------------------------------------- */

/* The number in "7.db" (before "", behind ".db") or "run-7.log"; 0 for any other name. */
static int64_t number_in(const char *name, const char *before, const char *behind)
{
    size_t n = strlen(before);
    long long number;
    char *end;

    if (strncmp(name, before, n) != 0 || name[n] < '1' || name[n] > '9')
        return 0;
    errno = 0;
    number = strtoll(name + n, &end, 10);
    return errno || strncmp(end, behind, strlen(behind)) != 0 ? 0 : number;
}

static void count_kept(const char *directory, struct hy_recovery *left)
{
    hy_cleanup_free char *runs = hy_path_join(directory, "runs");
    DIR *dir = runs ? opendir(runs) : NULL;
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        int64_t number = number_in(entry->d_name, "", ".db");

        if (!number || strcmp(strchr(entry->d_name, '.'), ".db") != 0)
            continue;
        left->kept++;
        left->highest = number > left->highest ? number : left->highest;
    }
    if (dir)
        closedir(dir);
}

/* Locks and logs of unfinished runs have a number, too. */
static void find_highest(const char *directory, struct hy_recovery *left)
{
    DIR *dir = opendir(directory);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        int64_t number = number_in(entry->d_name, "run-", ".");

        left->highest = number > left->highest ? number : left->highest;
    }
    if (dir)
        closedir(dir);
}

/* A driver leaves its token in a run's directory. */
static void look_at_logdir(const char *app, const char *name, uid_t owner, struct hy_recovery *left)
{
    hy_cleanup_free char *token = hy_asprintf("%s/%s/.token", app, name);
    hy_cleanup_free char *snapshot = hy_asprintf("%s/%s/run.db", app, name);
    struct stat st;

    left->logs |= token && lstat(token, &st) == 0 && hy_file_is_own(&st, owner);
    if (!snapshot || lstat(snapshot, &st) < 0)
        return;
    left->shared |= hy_file_is_own(&st, owner);
    left->foreign |= !hy_file_is_own(&st, owner);
}

static void look_at_app(const char *logs, const char *name, uid_t owner, struct hy_recovery *left)
{
    hy_cleanup_free char *app = hy_path_join(logs, name);
    DIR *dir = app ? opendir(app) : NULL;
    struct dirent *entry;

    while (dir && !(left->shared && left->foreign) && (entry = readdir(dir)))
        if (number_in(entry->d_name, "", ""))
            look_at_logdir(app, entry->d_name, owner, left);
    if (dir)
        closedir(dir);
}

static void find_logs(const char *project, uid_t owner, struct hy_recovery *left)
{
    hy_cleanup_free char *logs = hy_path_join(project, "Logs/TensorFlow");
    DIR *dir = logs ? opendir(logs) : NULL;
    struct dirent *entry;

    while (dir && !(left->shared && left->foreign) && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            look_at_app(logs, entry->d_name, owner, left);
    if (dir)
        closedir(dir);
}

/* The project of a store by its path: PROJECT/.hopyard/store.db, or the content of the file `project` beside it. */
static char *project_of(const char *directory)
{
    const char *slash = strrchr(directory, '/');
    hy_cleanup_free char *path = NULL;
    hy_cleanup_buf struct hy_buf text;
    const char *line;

    hy_buf_init(&text, 1 << 16);
    if (slash && strcmp(slash, "/.hopyard") == 0)
        return hy_strndup(directory, (size_t)(slash - directory));
    path = hy_path_join(directory, "project");
    if (!path || hy_file_read(path, &text) < 0 || !(line = hy_buf_cstr(&text)))
        return NULL;
    return hy_strndup(line, strcspn(line, "\n"));
}

void hy_recovery_find(const char *directory, const char *project, struct hy_recovery *ret)
{
    struct stat st;

    *ret = (struct hy_recovery){0};
    count_kept(directory, ret);
    find_highest(directory, ret);
    if (project)
        find_logs(project, stat(directory, &st) == 0 ? st.st_uid : geteuid(), ret);
}

/* ---- advice ---------------------------------------------------------------------------- */

void hy_recovery_advice(const struct hy_recovery *left, const char *directory, const char *project, char *ret,
                        size_t size)
{
    if (left->kept)
        snprintf(ret, size, "`hopyard import %s/runs/*.db` restores the %lld finished run%s", directory,
                 (long long)left->kept, left->kept == 1 ? "" : "s");
    else if (left->shared && left->foreign) /* files of other users are not trusted */
        snprintf(ret, size,
                 "`find %s/Logs/TensorFlow -name run.db -user %u ! -perm /022 -exec hopyard import {} +` restores "
                 "the finished runs; files there that others can write are left out",
                 project, (unsigned)geteuid());
    else if (left->shared)
        snprintf(ret, size, "`hopyard import %s/Logs/TensorFlow/*/*/run.db` restores the finished runs", project);
    else if (left->logs)
        snprintf(
            ret, size,
            "no snapshot is left to import, only the logs in '%s/Logs/TensorFlow'; `hopyard run` starts a new store",
            project);
    else
        snprintf(ret, size, "there is no snapshot to import; `hopyard run` starts a new store");
}

int hy_recovery_damaged_error(const char *path, const char *why, struct hy_err *err)
{
    const char *slash = strrchr(path, '/');
    hy_cleanup_free char *directory = hy_strndup(path, slash ? (size_t)(slash - path) : 0);
    hy_cleanup_free char *project = directory ? project_of(directory) : NULL;
    struct hy_recovery left;
    char advice[400] = "";

    if (directory) {
        hy_recovery_find(directory, project, &left);
        hy_recovery_advice(&left, directory, project, advice, sizeof advice);
    }
    return hy_err_set(err, -EBADMSG, "the store '%s' is damaged (%s); move it and its -wal and -shm away, then: %s",
                      path, why, advice);
}
