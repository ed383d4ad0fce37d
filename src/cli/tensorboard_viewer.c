/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tensorboard_viewer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/project.h"
#include "fs/fs.h"

#define NICENESS 10

/* ---- the directory to show -------------------------------------------------------------- */

void hy_tensorboard_target_done(struct hy_tensorboard_target *t)
{
    free(t->directory);
    hy_run_info_done(&t->info);
    hy_store_close(t->store);
    *t = (struct hy_tensorboard_target){0};
}

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_number(const char *word)
{
    uint64_t number;

    return hy_parse_u64(word, &number) == 0;
}

/* If a run has the same name, prints how to show that run instead. */
static void mention_run(const struct hy_args *args, const char *word)
{
    hy_cleanup_store struct hy_store *s = NULL;
    struct hy_err err = {0};
    int64_t run;

    if (hy_project_store(args, HY_STORE_READ, &s, &err) < 0 || hy_store_run_find(s, word, &run, &err) < 0)
        return;
    hy_err_set(&err, -EEXIST, "showing the directory '%s'; for the run of that name, use: hopyard tensorboard %lld",
               word, (long long)run);
    hy_print_error(args->command->name, &err);
}

static int target_directory(const struct hy_args *args, const char *word, struct hy_tensorboard_target *ret,
                            struct hy_err *err)
{
    ret->directory = realpath(word, NULL);
    if (!ret->directory)
        return hy_err_sys(err, -errno, "cannot find the directory '%s'", word);
    if (!strchr(word, '/'))
        mention_run(args, word);
    return 0;
}

/* TensorBoard reads the URL itself, through hopyard's file system plugin for TensorFlow. */
static int target_url(const char *word, struct hy_tensorboard_target *ret, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc = hy_fs_stat(word, &info, err);

    if (rc < 0)
        return rc;
    if (!info.is_dir)
        return hy_err_set(err, -ENOTDIR, "%s is a file, not a directory of event files", word);
    ret->directory = hy_strdup(word);
    return ret->directory ? 0 : hy_err_oom(err);
}

/* The logs of a project on HDFS are there and in a local directory, which needs no plugin to be read, but lacks what
 * agents on other machines have copied to HDFS themselves, and may have been removed. */
static int target_logs(struct hy_tensorboard_target *ret, struct hy_err *err)
{
    const struct hy_run_info *r = &ret->info;
    bool has_local = r->row.logdir && is_directory(r->row.logdir);
    bool is_elsewhere = r->row.engine && strcmp(r->row.engine, "local") != 0;

    if (r->shown && strstr(r->shown, "://") && (is_elsewhere || !has_local)) {
        struct hy_err ignored = {0};
        int rc = target_url(r->shown, ret, has_local ? &ignored : err);

        if (rc == 0 || !has_local)
            return rc;
    }
    if (!has_local)
        return hy_err_set(err, -ENOENT, "the log directory of run %lld does not exist any more (it was '%s')",
                          (long long)r->row.id, r->row.logdir ? r->row.logdir : "");
    ret->directory = hy_strdup(r->row.logdir);
    return ret->directory ? 0 : hy_err_oom(err);
}

static int target_run(const struct hy_args *args, const char *word, struct hy_tensorboard_target *ret,
                      struct hy_err *err)
{
    int rc = hy_project_store(args, HY_STORE_READ, &ret->store, err);

    if (rc == 0)
        rc = hy_run_info_find(ret->store, word, &ret->info, err);
    if (rc == -ENOENT && word && is_directory(word))
        return hy_err_set(err, rc, "run %s does not exist; for the directory, use: hopyard tensorboard ./%s", word,
                          word);
    return rc < 0 ? rc : target_logs(ret, err);
}

/* A number is always a run, even if a directory has that name: programs rely on it. */
int hy_tensorboard_target(const struct hy_args *args, const char *word, struct hy_tensorboard_target *ret,
                          struct hy_err *err)
{
    if (word && strstr(word, "://"))
        return target_url(word, ret, err);
    if (word && !is_number(word) && is_directory(word))
        return target_directory(args, word, ret, err);
    return target_run(args, word, ret, err);
}

/* ---- the TensorBoard program ------------------------------------------------------ */

/* Programs named in another user's store are not executed. */
static bool is_ours(const struct hy_store *s)
{
    struct stat st;

    return s && stat(hy_store_dir_path(s), &st) == 0 && st.st_uid == geteuid();
}

/* The interpreter of the run's trials: its TensorBoard can read what they log. */
static const char *python_of(const struct hy_tensorboard_target *t)
{
    const Hy__RunSpec *spec = t->info.spec;

    return spec && spec->function.len && spec->n_argv && is_ours(t->store) ? spec->argv[0] : NULL;
}

/* pip installs the script "tensorboard" next to the Python that runs it. */
static int adjacent_python(struct hy_tensorboard_viewer *v)
{
    char *slash = strrchr(v->program, '/');
    char *python = hy_asprintf("%.*s/python3", slash ? (int)(slash - v->program) : 0, v->program);

    if (!python || access(python, X_OK) < 0) {
        free(python);
        return -ENOENT;
    }
    free(v->program);
    v->program = python;
    return 0;
}

int hy_tensorboard_viewer(const struct hy_tensorboard_target *t, bool needs_python, struct hy_tensorboard_viewer *ret,
                          struct hy_err *err)
{
    const char *path = getenv("PATH"), *own = python_of(t), *chosen = getenv("HOPYARD_PYTHON");
    hy_cleanup_free char *here = getcwd(NULL, 0);
    struct hy_err ignored = {0};

    if (!here)
        return hy_err_sys(err, -errno, "cannot determine the current directory");
    ret->is_python = true;
    if (own && hy_find_program(own, t->info.spec->cwd, path, &ret->program, &ignored) == 0)
        return 0;
    if (chosen && *chosen) {
        int rc = hy_find_program(chosen, here, path, &ret->program, err);

        return rc < 0 ? hy_err_wrap(err, "$HOPYARD_PYTHON") : 0;
    }
    if (hy_find_program("tensorboard", here, path, &ret->program, &ignored) == 0) {
        ret->is_python = needs_python && adjacent_python(ret) == 0;
        if (ret->is_python || !needs_python)
            return 0;
        free(hy_take(ret->program));
    }
    if (hy_find_program("python3", here, path, &ret->program, &ignored) == 0)
        return 0;
    return hy_err_set(err, -ENOENT,
                      "neither tensorboard nor python3 is in PATH; install TensorBoard (pip install tensorboard), or "
                      "set $HOPYARD_PYTHON to a Python that has it");
}

static int not_installed(const struct hy_tensorboard_viewer *v, struct hy_err *err)
{
    return hy_err_set(err, -ENOENT,
                      "TensorBoard is not installed for %s; install it with: %s -m pip install tensorboard", v->program,
                      v->program);
}

void hy_tensorboard_lower_priority(int output_fd)
{
    errno = 0;
    if (nice(NICENESS) == -1 && errno)
        dprintf(output_fd, "cannot lower the priority: %s\n", strerror(errno));
}

void hy_tensorboard_exec(pid_t parent, int output_fd, char *const *argv)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    /* The kernel kills the child when the parent dies. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(127);
    setpgid(0, 0); /* Ctrl-C must reach only the parent; the group is killed with the child */
    hy_tensorboard_lower_priority(output_fd);
    /* 'python -m' would import modules from the user's current directory. */
    if (chdir("/") == 0 && dup2(null, 0) >= 0 && dup2(output_fd, 1) >= 0 && dup2(output_fd, 2) >= 0)
        execv(argv[0], argv);
    dprintf(output_fd, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

int hy_tensorboard_check(const struct hy_tensorboard_viewer *v, struct hy_err *err)
{
    static const char check[] = "import importlib.util, sys; "
                                "sys.exit(importlib.util.find_spec('tensorboard') is None and 3)";
    char *argv[] = {v->program, (char *)"-c", (char *)check, NULL};
    hy_cleanup_close int null = HY_SYS(open("/dev/null", O_RDWR | O_CLOEXEC));
    pid_t parent = getpid(), child;
    int status = 0;

    if (!v->is_python)
        return 0;
    child = null < 0 ? -1 : HY_SYS(fork());
    if (child == 0)
        hy_tensorboard_exec(parent, null, argv);
    if (child < 0)
        return hy_err_sys(err, -errno, "cannot start %s", v->program);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    /* Other errors appear when TensorBoard starts. */
    return WIFEXITED(status) && WEXITSTATUS(status) == 3 ? not_installed(v, err) : 0;
}
