/* SPDX-License-Identifier: Apache-2.0 */
/* `gc` and `import`. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/gpu.h"
#include "agent/process.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/manage.h"
#include "cli/runs.h"

struct sweep {
    bool dry;
    long removed;
};

static void closedir_at(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}
#define cleanup_dir __attribute__((cleanup(closedir_at)))

static void done(struct sweep *w, const char *what, const char *path, int rc)
{
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &(struct hy_style){0});
    hy_outf(&out, "%s %s: ", rc < 0 ? "cannot remove" : w->dry ? "would remove" : "removed", what);
    hy_out_value(&out, path);
    if (rc < 0)
        hy_outf(&out, ": %s", strerror(-rc));
    hy_out_str(&out, "\n");
    w->removed += rc >= 0;
    if (hy_out_flush(&out, STDOUT_FILENO) < 0)
        return;
}

/* ---- sockets ----------------------------------------------------------------------- */

static bool nobody_listens(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    hy_cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || strlen(path) >= sizeof address.sun_path)
        return false;
    strcpy(address.sun_path, path);
    return connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno == ECONNREFUSED;
}

static void sweep_entry(struct sweep *w, const char *folder, const char *name)
{
    hy_cleanup_free char *path = hy_path_join(folder, name);
    struct stat st;

    if (!path || lstat(path, &st) < 0 || st.st_uid != getuid() || !S_ISSOCK(st.st_mode) ||
        !nobody_listens(path))
        return;
    done(w, "a socket nobody listens on", path, w->dry || unlink(path) == 0 ? 0 : -errno);
}

static int sweep_runtime(struct sweep *w, struct hy_err *err)
{
    hy_cleanup_free char *folder = hy_runtime_dir(err);
    cleanup_dir DIR *dir = folder ? opendir(folder) : NULL;
    struct dirent *entry;

    if (!folder)
        return err->code;
    if (!dir)
        return hy_err_sys(err, -errno, "cannot read the folder '%s'", folder);
    while ((entry = readdir(dir)))
        sweep_entry(w, folder, entry->d_name);
    return 0;
}

/* ---- log folders --------------------------------------------------------------------- */

struct search {
    const char *logdir;
    bool found;
};

static int compare_logdir(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts)
{
    struct search *s = arg;
    hy_cleanup_free char *real = row->logdir ? realpath(row->logdir, NULL) : NULL;

    (void)counts;
    s->found |= real && strcmp(real, s->logdir) == 0;
    return 0;
}

/* Only folders named by a number hold a run; whatever else is there is the user's. */
static int sweep_logdir(struct sweep *w, struct hy_store *s, const char *project, const char *app,
                        const char *name, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(app, name);
    hy_cleanup_free char *real = path ? realpath(path, NULL) : NULL;
    struct search search = {.logdir = real};
    uint64_t number;
    int rc;

    if (hy_parse_u64(name, &number) < 0 || !real || !hy_logdir_is_safe(project, path))
        return 0;
    rc = hy_store_run_each(s, 0, compare_logdir, &search, err);
    if (rc < 0)
        return rc;
    if (!search.found)
        done(w, "the logs of a run that is not in the store", path, w->dry ? 0 : hy_remove_tree(real));
    return 0;
}

static int sweep_app(struct sweep *w, struct hy_store *s, const char *project, const char *app,
                     struct hy_err *err)
{
    cleanup_dir DIR *dir = opendir(app);
    struct dirent *entry;
    int rc = 0;

    while (rc == 0 && dir && (entry = readdir(dir)))
        rc = sweep_logdir(w, s, project, app, entry->d_name, err);
    if (rc == 0 && !w->dry && rmdir(app) < 0)
        errno = 0; /* something is in it: fine */
    return rc;
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
    while (rc == 0 && dir && (entry = readdir(dir))) {
        hy_cleanup_free char *app = hy_path_join(logs, entry->d_name);

        if (app && entry->d_name[0] != '.')
            rc = sweep_app(w, s, project, app, err);
    }
    return rc;
}

/* ---- the commands ----------------------------------------------------------------------- */

static int sweep_processes(struct sweep *w, struct hy_err *err)
{
    int count = hy_supervisor_sweep();

    if (count < 0)
        return hy_err_sys(err, count, "cannot look for processes that agents have left behind");
    if (count)
        printf("ended %d process%s that agents had left behind\n", count, count == 1 ? "" : "es");
    w->removed += count;
    return 0;
}

static int sweep_daemons(struct sweep *w, struct hy_err *err)
{
    int count = hy_gpu_sweep();

    if (count < 0)
        return hy_err_sys(err, count, "cannot look for MPS daemons that agents have left behind");
    if (count)
        printf("ended %d MPS daemon%s that agents had left behind\n", count, count == 1 ? "" : "s");
    w->removed += count;
    return 0;
}

int hy_cmd_gc(const struct hy_args *args)
{
    struct sweep w = {.dry = hy_args_has(args, "dry-run")};
    struct hy_err err = {0};
    int rc = w.dry ? 0 : sweep_processes(&w, &err);

    if (rc == 0 && !w.dry)
        rc = sweep_daemons(&w, &err);
    fflush(stdout);
    if (rc == 0)
        rc = sweep_runtime(&w, &err);
    if (rc == 0 && hy_args_has(args, "logs"))
        rc = sweep_logs(&w, args, &err);
    if (rc < 0)
        return hy_cmd_failed(args, &err);
    if (!w.removed)
        puts("nothing to clean up");
    return fflush(stdout) ? HY_EXIT_FAILED : HY_EXIT_OK;
}

int hy_cmd_import(const struct hy_args *args)
{
    hy_cleanup_store struct hy_store *s = NULL;
    struct hy_err err = {0};
    int64_t count = 0;
    int rc = hy_project_store(args, HY_STORE_WRITE, &s, &err);

    if (rc == 0)
        rc = hy_store_import(s, hy_args_word(args, 0), &count, &err);
    if (rc == 0)
        rc = hy_store_commit(s, &err);
    if (rc < 0)
        return hy_cmd_failed(args, &err);
    printf("%lld run%s added%s\n", (long long)count, count == 1 ? "" : "s",
           count ? "" : ": they are here already");
    return fflush(stdout) ? HY_EXIT_FAILED : HY_EXIT_OK;
}
