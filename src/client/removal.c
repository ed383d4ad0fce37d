/* SPDX-License-Identifier: Apache-2.0 */
#include "client/removal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define DRIVER_EXIT_MS 30000

bool hy_run_await_exit(struct hy_store *s, int64_t run)
{
    for (int64_t left = DRIVER_EXIT_MS; hy_store_run_alive(s, run) > 0; left -= 20) {
        if (left <= 0)
            return false;
        poll(NULL, 0, 20);
    }
    return true;
}

/* ---- log directories ----------------------------------------------------------------------- */

/* Opens a directory in `above`. A link is followed only if the user owns it: logs may be on another disk. */
static int open_step(int above, const char *name)
{
    hy_cleanup_close int fd = openat(above, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    char target[PATH_MAX];
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return hy_take_fd(fd);
    if (!S_ISLNK(st.st_mode) || st.st_uid != geteuid())
        return -EPERM;
    n = readlinkat(fd, "", target, sizeof target - 1);
    if (n < 0)
        return -errno;
    target[n] = '\0';
    n = openat(above, target, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return n < 0 ? -errno : (int)n;
}

/* Opens PROJECT/Logs/TensorFlow; -EPERM if `path` is another directory. */
static int open_logs(const char *project, const char *path)
{
    hy_cleanup_close int top = open(project, O_PATH | O_DIRECTORY | O_CLOEXEC);
    hy_cleanup_close int logs = top < 0 ? -errno : open_step(top, "Logs");
    hy_cleanup_close int fd = logs < 0 ? logs : open_step(logs, "TensorFlow");
    struct stat opened, named;

    if (fd < 0)
        return fd;
    if (fstat(fd, &opened) < 0 || stat(path, &named) < 0)
        return -errno;
    return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino ? hy_take_fd(fd) : -EPERM;
}

/* Removes and returns the last component. NULL if it does not name an entry. */
static char *cut_last(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash || slash == path || !slash[1] || strcmp(slash + 1, ".") == 0 || strcmp(slash + 1, "..") == 0)
        return NULL;
    *slash = '\0';
    return slash + 1;
}

/* The log directory of a run contains the driver's token. */
static bool has_token(int run)
{
    struct stat st;

    return fstatat(run, ".token", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) && st.st_uid == getuid();
}

static int open_parts(const char *project, struct hy_logdir *d)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

    d->run_name = cut_last(d->path);
    d->app_name = d->run_name ? cut_last(d->path) : NULL;
    if (!d->app_name)
        return -EPERM;
    d->logs = open_logs(project, d->path);
    if (d->logs < 0)
        return d->logs;
    d->app = openat(d->logs, d->app_name, flags);
    d->run = d->app < 0 ? -1 : openat(d->app, d->run_name, flags);
    if (d->run < 0)
        return -errno;
    return has_token(d->run) ? 0 : -EPERM;
}

int hy_logdir_open(const char *project, const char *logdir, struct hy_logdir *ret)
{
    struct hy_logdir d = {.logs = -1, .app = -1, .run = -1, .path = *logdir == '/' ? hy_strdup(logdir) : NULL};
    int rc = d.path ? open_parts(project, &d) : *logdir == '/' ? -ENOMEM : -EPERM;

    *ret = d;
    if (rc < 0)
        hy_logdir_done(ret);
    return rc;
}

void hy_logdir_done(struct hy_logdir *d)
{
    hy_close_at(&d->logs);
    hy_close_at(&d->app);
    hy_close_at(&d->run);
    free(d->path);
    d->path = NULL;
}

int hy_logdir_remove(const struct hy_logdir *d)
{
    int rc = hy_remove_tree_at(d->app, d->run_name, d->run);

    if (unlinkat(d->logs, d->app_name, AT_REMOVEDIR) < 0)
        errno = 0; /* other runs of the application are still in it */
    return rc;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* A failure is only reported in `err`: the run is removed anyway. */
static void remove_logs(const char *project, const char *logdir, struct hy_err *err)
{
    hy_cleanup_logdir struct hy_logdir dir = HY_LOGDIR_NONE;
    int rc;

    if (!logdir || access(logdir, F_OK) < 0)
        return;
    rc = hy_logdir_open(project, logdir, &dir);
    if (rc == 0)
        rc = hy_logdir_remove(&dir);
    if (rc == -EPERM && !dir.path)
        hy_err_set(err, rc, "its log directory '%s' is outside of the project and was not removed", logdir);
    else if (rc < 0)
        hy_err_sys(err, rc, "cannot remove the log directory '%s'", logdir);
}

static void remove_files(struct hy_store *s, int64_t run)
{
    static const char *const files[] = {"log", "key", "hold", "lock"}; /* the lock last */

    for (size_t i = 0; i < HY_COUNT(files); i++) {
        char name[48];

        snprintf(name, sizeof name, "run-%lld.%s", (long long)run, files[i]);
        if (unlinkat(hy_store_dir_fd(s), name, 0) < 0)
            errno = 0; /* not every run has all files */
    }
}

int hy_run_remove(struct hy_store *s, const struct hy_run_info *info, struct hy_err *ret_left, struct hy_err *err)
{
    hy_cleanup_close int lock = -1; /* prevents a concurrent resume */
    int64_t run = info->row.id;
    struct hy_err left = {0};
    int rc;

    if (info->alive && !(info->row.state != HY_RUN_RUNNING && hy_run_await_exit(s, run)))
        return hy_err_set(err, -EBUSY, "run %lld is running; stop it first: hopyard stop %lld", (long long)run,
                          (long long)run);
    rc = lock = hy_store_run_lock(s, run, err);
    if (rc >= 0)
        rc = hy_store_run_remove(s, run, err);
    if (rc == 0)
        rc = hy_store_commit(s, err);
    if (rc < 0)
        return rc;
    *ret_left = (struct hy_err){0};
    remove_logs(hy_store_project(s), info->row.logdir, ret_left);
    if (hy_store_remove_backup(s, run, &left) < 0) {
        if (ret_left->code)
            hy_err_wrap(&left, "%s; also", ret_left->text);
        *ret_left = left;
    }
    remove_files(s, run);
    return 0;
}
