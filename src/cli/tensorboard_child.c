/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"
#include "client/client.h"

struct streams {
    int out, err;
};

/* In a new session, so that Ctrl-C does not reach it. */
static int spawn(char *const *argv, const struct streams *to)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    pid_t pid;
    int rc = posix_spawn_file_actions_init(&files);

    if (rc)
        return -rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc == 0) {
        rc = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
        rc = rc ? rc : posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
        rc = rc ? rc : posix_spawn_file_actions_adddup2(&files, to->out, 1);
        rc = rc ? rc : posix_spawn_file_actions_adddup2(&files, to->err, 2);
        rc = rc ? rc : posix_spawn(&pid, "/proc/self/exe", &files, &attributes, argv, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return -rc;
}

static int spawn_for(const char *project, int64_t run, pid_t owner, const struct streams *to)
{
    char number[32], pid[32];
    char *argv[] = {(char *)"hopyard",   (char *)"tensorboard", number, (char *)"--owner", pid,
                    (char *)"--project", (char *)project,       NULL};

    snprintf(number, sizeof number, "%lld", (long long)run);
    snprintf(pid, sizeof pid, "%ld", (long)owner);
    return spawn(argv, to);
}

static int attached(const char *project, int64_t run, struct hy_tensorboard_child *ret)
{
    hy_cleanup_close int null = HY_SYS(open("/dev/null", O_WRONLY | O_CLOEXEC));
    int ends[2], rc;

    if (null < 0 || HY_SYS(pipe2(ends, O_CLOEXEC)) < 0)
        return -errno;
    rc = spawn_for(project, run, getpid(), &(struct streams){.out = null, .err = ends[1]});
    close(ends[1]);
    ret->complaints = ends[0];
    return rc;
}

/* Parses the first line of its output, which it prints at once; "" if it has failed. Takes the fd. */
static void read_address(int fd, char *ret, size_t size)
{
    static const char before[] = "TensorBoard ";
    char line[128] = "";
    FILE *f = fdopen(fd, "r");

    if (!f) {
        close(fd);
        return;
    }
    if (fgets(line, sizeof line, f) && strncmp(line, before, sizeof before - 1) == 0)
        snprintf(ret, size, "%.*s", (int)strcspn(line + sizeof before - 1, "\n"), line + sizeof before - 1);
    fclose(f);
}

static int detached(const char *project, int64_t run, struct hy_tensorboard_child *ret, struct hy_err *err)
{
    hy_cleanup_store struct hy_store *s = NULL;
    hy_cleanup_free char *path = NULL;
    hy_cleanup_close int log = -1;
    int ends[2], rc = hy_store_open(project, HY_STORE_READ, &s, err);
    pid_t owner = rc < 0 ? 0 : hy_store_run_driver(s, run);

    if (rc < 0 || owner == 0) /* a short run may have ended already */
        return rc;
    path = hy_driver_log(s, run);
    if (!path)
        return -ENOMEM;
    log = hy_store_file(s, strrchr(path, '/') + 1, O_WRONLY | O_APPEND, err);
    if (log < 0)
        return log;
    if (HY_SYS(pipe2(ends, O_CLOEXEC)) < 0)
        return -errno;
    rc = spawn_for(project, run, owner, &(struct streams){.out = ends[1], .err = log});
    close(ends[1]);
    read_address(ends[0], ret->address, sizeof ret->address);
    if (rc == 0 && !ret->address[0])
        return hy_err_set(err, -ECHILD, "cannot start TensorBoard; see %s", path);
    return rc;
}

int hy_tensorboard_child_start(const char *project, int64_t run, bool detach, struct hy_tensorboard_child *ret,
                               struct hy_err *err)
{
    int rc;

    *ret = (struct hy_tensorboard_child){.complaints = -1};
    rc = detach ? detached(project, run, ret, err) : attached(project, run, ret);
    if (rc < 0 && !err->code)
        hy_err_sys(err, rc, "cannot start TensorBoard");
    return rc;
}
