/* SPDX-License-Identifier: Apache-2.0 */
/* `gc` and `import`. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "supervise/supervise.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/project.h"
#include "cli/commands.h"
#include "client/client.h"
#include "driver/driver.h"
#include "wire/wire.h"

struct sweep {
    bool dry; /* only print what would be done */
    bool all; /* of all projects */
    char *project; /* real path */
    char socket[40]; /* prefix of the names of its sockets */
    long found;
    long others; /* items of other projects, not touched */
};

static void closedir_at(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}
#define cleanup_dir __attribute__((cleanup(closedir_at)))

/* "removed a stale socket: /run/user/1000/hopyard/a.sock" */
static void report(struct sweep *w, const char *verb, const char *past, const char *what, const char *which, int rc)
{
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &(struct hy_style){0});
    if (rc == 0 && !w->dry)
        hy_outf(&out, "%s %s: ", past, what);
    else
        hy_outf(&out, "%s %s %s: ", rc < 0 ? "cannot" : "would", verb, what);
    hy_out_value(&out, which);
    if (rc < 0)
        hy_outf(&out, ": %s", strerror(-rc));
    hy_out_str(&out, "\n");
    w->found += rc >= 0;
    if (hy_out_flush(&out, STDOUT_FILENO) < 0)
        return;
}

static void removed(struct sweep *w, const char *what, const char *path, int rc)
{
    report(w, "remove", "removed", what, path, rc);
}

/* ---- sockets ----------------------------------------------------------------------- */

static void sweep_entry(struct sweep *w, const char *directory, const char *name)
{
    hy_cleanup_free char *path = hy_path_join(directory, name);

    if (!path || !hy_socket_is_dead(path))
        return;
    if (w->all || strncmp(name, w->socket, strlen(w->socket)) == 0)
        removed(w, "a stale socket", path, w->dry || unlink(path) == 0 ? 0 : -errno);
    else
        w->others++;
}

static int sweep_runtime(struct sweep *w, struct hy_err *err)
{
    hy_cleanup_free char *directory = hy_runtime_dir(err);
    cleanup_dir DIR *dir = directory ? opendir(directory) : NULL;
    struct dirent *entry;

    if (!directory)
        return err->code;
    if (!dir)
        return hy_err_sys(err, -errno, "cannot read the directory '%s'", directory);
    while ((entry = readdir(dir)))
        sweep_entry(w, directory, entry->d_name);
    return 0;
}

/* ---- log directories ----------------------------------------------------------------- */

struct search {
    const char *path;
    struct stat st;
    bool found;
};

static int compare_logdir(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts)
{
    struct search *s = arg;
    struct stat st;

    (void)counts;
    if (row->logdir)
        s->found |= strcmp(row->logdir, s->path) == 0 ||
                    (stat(row->logdir, &st) == 0 && st.st_dev == s->st.st_dev && st.st_ino == s->st.st_ino);
    return 0;
}

/* Only directories named by a number belong to a run; everything else is the user's. */
static int sweep_logdir(struct sweep *w, struct hy_store *s, const char *project, const char *app, const char *name,
                        struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(app, name);
    hy_cleanup_logdir struct hy_logdir dir = HY_LOGDIR_NONE;
    struct search search = {.path = path};
    uint64_t number;
    int rc;

    if (hy_parse_u64(name, &number) < 0 || !path || hy_logdir_open(project, path, &dir) < 0 ||
        fstat(dir.run, &search.st) < 0)
        return 0;
    rc = hy_store_run_each(s, 0, compare_logdir, &search, err);
    if (rc < 0)
        return rc;
    if (!search.found)
        removed(w, "the logs of a run that is not in the store", path, w->dry ? 0 : hy_logdir_remove(&dir));
    return 0;
}

static int sweep_app(struct sweep *w, struct hy_store *s, const char *project, const char *app, struct hy_err *err)
{
    cleanup_dir DIR *dir = opendir(app);
    struct dirent *entry;
    int rc = 0;

    while (rc == 0 && dir && (entry = readdir(dir)))
        rc = sweep_logdir(w, s, project, app, entry->d_name, err);
    return rc;
}

/* After the store was lost and before its runs are imported again, their logs would look orphaned. */
static int check_none_lost(struct hy_store *s, struct hy_err *err)
{
    int64_t lost = 0;
    int rc = hy_store_count_unlisted_backups(s, &lost, err);

    if (rc < 0 || lost == 0)
        return rc;
    return hy_err_set(err, -EBUSY,
                      "no logs were removed: the snapshots of %lld run%s in '%s/runs' are not in the store; import "
                      "them with `hopyard import`, or remove them, and try again",
                      (long long)lost, lost == 1 ? "" : "s", hy_store_dir_path(s));
}

static int sweep_logs(struct sweep *w, const struct hy_args *args, struct hy_err *err)
{
    hy_cleanup_free char *project = hy_project(args, err);
    hy_cleanup_free char *logs = project ? hy_path_join(project, "Logs/TensorFlow") : NULL;
    cleanup_dir DIR *dir = logs ? opendir(logs) : NULL;
    hy_cleanup_store struct hy_store *s = NULL;
    struct dirent *entry;
    int rc;

    if (!project)
        return err->code;
    rc = hy_store_open(project, HY_STORE_READ, &s, err);
    if (rc == 0)
        rc = check_none_lost(s, err);
    while (rc == 0 && dir && (entry = readdir(dir))) {
        hy_cleanup_free char *app = hy_path_join(logs, entry->d_name);

        if (app && entry->d_name[0] != '.')
            rc = sweep_app(w, s, project, app, err);
    }
    return rc;
}

/* ---- processes ---------------------------------------------------------------------- */

/* Also for a path that does not exist any more. */
static bool is_below(const char *path, const char *directory)
{
    hy_cleanup_free char *real = realpath(path, NULL);
    size_t n = strlen(directory);

    path = real ? real : path;
    return strncmp(path, directory, n) == 0 && path[n] == '/';
}

static void on_process(void *arg, pid_t pid, const char *trial_dir)
{
    struct sweep *w = arg;
    char which[64];

    if (!w->all && !is_below(trial_dir, w->project)) {
        w->others++;
        return;
    }
    snprintf(which, sizeof which, "process %ld", (long)pid);
    report(w, "kill", "killed", "a process that an agent has left behind", which,
           w->dry || kill(pid, SIGKILL) == 0 ? 0 : -errno);
}

static int sweep_processes(struct sweep *w, struct hy_err *err)
{
    int rc = hy_supervisor_leftovers(on_process, w);

    if (rc < 0)
        return hy_err_sys(err, rc, "cannot list processes that agents have left behind");
    if (!w->dry)
        hy_supervisor_sweep_cgroups(w->all);
    return 0;
}

static int sweep_daemons(struct sweep *w, struct hy_err *err)
{
    int count = hy_gpu_sweep(w->dry || !w->all);

    if (count < 0)
        return hy_err_sys(err, count, "cannot list MPS daemons that agents have left behind");
    if (!w->all)
        w->others += count;
    else if (count)
        printf("%s %d MPS daemon%s that agents had left behind\n", w->dry ? "would stop" : "stopped", count,
               count == 1 ? "" : "s");
    w->found += w->all ? count : 0;
    return fflush(stdout) ? hy_err_set(err, -EIO, "cannot write to standard output") : 0;
}

/* ---- agents on standby ---------------------------------------------------------------- */

static void on_standby(void *arg, const struct hy_standby *s)
{
    struct sweep *w = arg;
    char which[128];

    snprintf(which, sizeof which, "process %ld, for process %ld", (long)s->agent, (long)s->client);
    if (w->all)
        report(w, "stop", "stopped", "an agent on standby for its client's next run", which,
               w->dry ? 0 : hy_standby_end(s));
    else if (printf("an agent is on standby for its client's next run (%s); it exits within minutes, `hopyard gc "
                    "--all` stops it now\n",
                    which) < 0)
        return; /* summarize reports the write error */
}

static int sweep_standby(struct sweep *w, struct hy_err *err)
{
    int rc = hy_standby_each(on_standby, w);

    return rc < 0 ? hy_err_sys(err, rc, "cannot list agents on standby") : 0;
}

/* ---- the commands ----------------------------------------------------------------------- */

static int sweep_all(struct sweep *w, const struct hy_args *args, struct hy_err *err)
{
    int rc = sweep_processes(w, err);

    if (rc == 0)
        rc = sweep_daemons(w, err);
    if (rc == 0)
        rc = sweep_standby(w, err);
    if (rc == 0)
        rc = sweep_runtime(w, err);
    if (rc == 0 && hy_args_has(args, "logs"))
        rc = sweep_logs(w, args, err);
    return rc;
}

static int find_project(struct sweep *w, const struct hy_args *args, struct hy_err *err)
{
    hy_cleanup_free char *project = hy_project(args, err);
    hy_cleanup_free char *store = project ? hy_path_join(project, ".hopyard") : NULL;
    hy_cleanup_free char *socket = NULL;

    if (!project)
        return err->code;
    w->project = realpath(project, NULL);
    if (!store || !w->project)
        return hy_err_sys(err, store ? -errno : -ENOMEM, "cannot find the directory '%s'", project);
    if (access(store, F_OK) == 0) { /* otherwise the project has no sockets */
        socket = hy_driver_socket(store, 0, err);
        if (!socket)
            return err->code;
        snprintf(w->socket, sizeof w->socket, "%.*s", (int)strcspn(strrchr(socket, '/') + 1, "-") + 1,
                 strrchr(socket, '/') + 1);
    } else {
        snprintf(w->socket, sizeof w->socket, "/"); /* matches no name */
    }
    return 0;
}

/* In a terminal, lists what would be done and prompts. */
static int confirm(struct sweep *w, const struct hy_args *args, struct hy_err *err)
{
    struct sweep preview = *w;
    char answer[16] = "";
    int rc;

    if (w->dry || hy_args_has(args, "force") || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return 1;
    preview.dry = true;
    rc = sweep_all(&preview, args, err);
    if (rc < 0 || !preview.found)
        return rc < 0 ? rc : 1;
    if (printf("Continue? [y/N] ") < 0 || fflush(stdout))
        return hy_err_set(err, -EIO, "cannot write to standard output");
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int summarize(const struct sweep *w)
{
    if (!w->found && puts("nothing to clean up") < 0)
        return HY_EXIT_FAILED;
    if (w->others && printf("%ld item%s of other projects not touched: `hopyard gc --all` cleans up after them, too\n",
                            w->others, w->others == 1 ? "" : "s") < 0)
        return HY_EXIT_FAILED;
    return fflush(stdout) ? HY_EXIT_FAILED : HY_EXIT_OK;
}

int hy_cmd_gc(const struct hy_args *args)
{
    struct sweep w = {.dry = hy_args_has(args, "dry-run"), .all = hy_args_has(args, "all")};
    struct hy_err err = {0};
    int status = HY_EXIT_OK, rc = find_project(&w, args, &err);

    if (rc == 0)
        rc = confirm(&w, args, &err);
    if (rc == 1) {
        rc = sweep_all(&w, args, &err);
        status = rc < 0 ? HY_EXIT_FAILED : summarize(&w);
    }
    free(w.project);
    return rc < 0 ? hy_cmd_failed(args, &err) : status;
}

static int import_file(struct hy_store *s, const char *path, int64_t *total, struct hy_err *err)
{
    struct hy_imported got = {0};
    int rc = hy_store_import(s, path, hy_run_share, &got, err);

    if (rc < 0)
        return rc;
    *total += got.count;
    if (got.is_shared && printf("'%s' belongs to another user or is writable by others: its runs can be shown, but not "
                                "resumed\n",
                                path) < 0)
        return hy_err_set(err, -EIO, "cannot write to standard output");
    return 0;
}

int hy_cmd_import(const struct hy_args *args)
{
    hy_cleanup_store struct hy_store *s = NULL;
    struct hy_err err = {0};
    int64_t total = 0;
    int status = HY_EXIT_OK;

    if (hy_project_store(args, HY_STORE_WRITE, &s, &err) < 0)
        return hy_cmd_failed(args, &err);
    for (size_t i = 0; i < args->word_count; i++) {
        if (import_file(s, args->words[i], &total, &err) < 0)
            status = hy_cmd_failed(args, &err);
    }
    if (status == HY_EXIT_OK || total)
        printf("%lld run%s added%s\n", (long long)total, total == 1 ? "" : "s",
               total ? "" : ": all are in the store already");
    return fflush(stdout) ? HY_EXIT_FAILED : status;
}
