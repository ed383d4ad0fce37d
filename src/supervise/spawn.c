/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a process cheaply: clone() with CLONE_VM | CLONE_VFORK copies no page
 * tables, and suspends this process while the child shares its memory, so that
 * exec's errno is returned in a variable. The price: run_child() must not call
 * anything that locks, allocates or runs a handler.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/internal.h"
#include "base/fault.h"
#include "base/mem.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"
#define CHILD_STACK 32768
#define KERNEL_SIGSET 8
#define OOM_SCORE "500" /* of 1000: the OOM killer prefers a trial to its agent, driver or reaper */

enum step { STEP_NONE, STEP_CGROUP, STEP_CWD, STEP_EXEC };

/* What the child needs, prepared beforehand, and its result. */
struct plan {
    const struct hy_spawn *spawn;
    char **candidates;  /* paths to try in turn; NULL-terminated */
    char **shell_argv;  /* /bin/sh FILE arguments…, for a script without #! */
    pid_t parent;
    enum step failed;
    int error;
};

/* The child runs on a separate stack, which sanitizers do not support. */
#define IN_CHILD __attribute__((no_sanitize("address", "undefined")))

IN_CHILD static __attribute__((noreturn)) void fail_child(struct plan *plan, enum step step, int error)
{
    plan->failed = step;
    plan->error = error;
    _exit(127);
}

/* exec resets handlers but keeps ignored signals; and no handler of ours may run
 * here once the mask is cleared. */
IN_CHILD static void reset_signals(void)
{
    static const char default_action[64]; /* the kernel's struct sigaction, all zero: SIG_DFL */
    static const char no_signals[KERNEL_SIGSET];

    for (int sig = 1; sig <= 64; sig++)
        syscall(SYS_rt_sigaction, sig, default_action, NULL, KERNEL_SIGSET);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, no_signals, NULL, KERNEL_SIGSET);
}

/* Like execvpe, but with the PATH of the given environment; a directory in it that may not be searched is skipped. */
IN_CHILD static int try_candidates(struct plan *plan)
{
    const struct hy_spawn *s = plan->spawn;
    bool in_path = !strchr(s->argv[0], '/');
    int error = ENOENT;

    for (char **path = plan->candidates; *path; path++) {
        execve(*path, s->argv, s->env);
        if (errno == ENOEXEC) {
            plan->shell_argv[1] = *path;
            execve("/bin/sh", plan->shell_argv, s->env);
        }
        if (errno == EACCES)
            error = in_path && access(*path, F_OK) < 0 ? error : EACCES;
        else if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV && errno != ETIMEDOUT)
            return errno;
    }
    return error;
}

/* An agent raises its limit; its trials get the user's. */
IN_CHILD static void lower_file_limit(uint64_t open_files)
{
    struct rlimit limit;

    if (!open_files || getrlimit(RLIMIT_NOFILE, &limit) < 0 || open_files >= limit.rlim_cur)
        return;
    limit.rlim_cur = open_files;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Descendants inherit it. A higher one is kept; an error is ignored. */
IN_CHILD static void raise_oom_score(void)
{
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char text[16] = "";
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (n > 0 && (text[0] == '-' || n < (ssize_t)sizeof OOM_SCORE || (n == sizeof OOM_SCORE && text[0] < OOM_SCORE[0])))
        n = pwrite(fd, OOM_SCORE, sizeof OOM_SCORE - 1, 0);
    if (fd >= 0)
        close(fd);
}

IN_CHILD static int run_child(void *arg)
{
    struct plan *plan = arg;
    const struct hy_spawn *s = plan->spawn;

    /* If this process dies together with its reaper, its children die too. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != plan->parent)
        _exit(127);
    setsid();
    if (s->cgroup_fd >= 0 && write(s->cgroup_fd, "0", 1) < 0)
        fail_child(plan, STEP_CGROUP, errno);
    for (int i = 0; i < 3; i++)
        if (dup2(s->fds[i], i) < 0)
            fail_child(plan, STEP_EXEC, errno);
    /* Our descriptors are close-on-exec; this covers inherited ones. */
    syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
    for (size_t i = 0; i < s->inherit_count; i++)
        fcntl(s->inherit[i], F_SETFD, 0);
    lower_file_limit(s->open_files);
    raise_oom_score();
    if (s->cores)
        sched_setaffinity(0, sizeof *s->cores, s->cores); /* best effort: it only affects speed */
    if (chdir(s->cwd) < 0)
        fail_child(plan, STEP_CWD, errno);
    reset_signals();
    fail_child(plan, STEP_EXEC, try_candidates(plan));
}

static const char *path_of(char *const *env)
{
    for (; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return DEFAULT_PATH;
}

static void free_strings(char ***list)
{
    for (char **s = *list; s && *s; s++)
        free(*s);
    free(*list);
}

/* "name" in each directory of PATH, or the name alone when it has a '/'. */
static char **list_candidates(const char *name, const char *path)
{
    __attribute__((cleanup(free_strings))) char **list = NULL;
    bool in_path = !strchr(name, '/');
    size_t count = 1, n = 0;

    for (const char *p = path; in_path && *p; p++)
        count += *p == ':';
    list = hy_calloc(count + 1, sizeof *list);
    for (; list && n < count; n++) {
        size_t len = strcspn(path, ":");

        list[n] = !in_path ? hy_strdup(name)
                  : len    ? hy_asprintf("%.*s/%s", (int)len, path, name)
                           : hy_asprintf("./%s", name);
        if (!list[n])
            return NULL;
        path += len + (path[len] == ':');
    }
    return hy_take(list);
}

static char **make_shell_argv(char *const *argv)
{
    static char shell[] = "/bin/sh";
    char **list;
    size_t n = 0;

    while (argv[n])
        n++;
    list = hy_calloc(n + 2, sizeof *list);
    if (list) {
        list[0] = shell; /* [1] is set to the script */
        for (size_t i = 1; i < n; i++)
            list[i + 1] = argv[i];
    }
    return list;
}

static bool exists(const char *cwd, const char *name)
{
    hy_cleanup_close int directory = open(cwd, O_PATH | O_DIRECTORY | O_CLOEXEC);

    return directory >= 0 && faccessat(directory, name, F_OK, 0) == 0;
}

static int cannot_exec(const struct hy_spawn *s, int error, struct hy_err *err)
{
    const char *name = s->argv[0];

    if (error == ENOENT && !strchr(name, '/'))
        return hy_err_set(err, -error, "cannot start '%s': not found in PATH (%s)", name, path_of(s->env));
    if (error == ENOENT && exists(s->cwd, name))
        return hy_err_set(err, -error, "cannot start '%s': its interpreter or loader was not found", name);
    if (error == ENOENT && *name == '/')
        return hy_err_set(err, -error, "cannot start '%s': there is no such file", name);
    if (error == ENOENT)
        return hy_err_set(err, -error, "cannot start '%s': not found in %s", name, s->cwd);
    if (error == EACCES)
        return hy_err_set(err, -error,
                          "cannot start '%s': it is not executable (chmod +x), or its directory is not accessible",
                          name);
    if (error == E2BIG)
        return hy_err_set(err, -error, "cannot start '%s': its arguments and environment are too long", name);
    return hy_err_sys(err, -error, "cannot start '%s'", name);
}

static int describe_failure(const struct plan *plan, struct hy_err *err)
{
    if (plan->failed == STEP_CWD)
        return hy_err_sys(err, -plan->error, "cannot start '%s': cannot enter the directory '%s'", plan->spawn->argv[0],
                          plan->spawn->cwd);
    if (plan->failed == STEP_CGROUP)
        return hy_err_sys(err, -plan->error, "cannot start '%s': cannot enter its cgroup", plan->spawn->argv[0]);
    return cannot_exec(plan->spawn, plan->error, err);
}

/* Returns the PID, or -Exxx. No signal may reach the child before it has reset
 * its handlers: they would act on our memory. */
static pid_t clone_child(struct plan *plan, char *stack, int *ret_pidfd)
{
    sigset_t all, old;
    pid_t pid;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid =
        HY_SYS(clone(run_child, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, plan, ret_pidfd));
    if (pid < 0)
        pid = -errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return pid;
}

int hy_spawn(const struct hy_spawn *spawn, pid_t *ret_pid, int *ret_pidfd, struct hy_err *err)
{
    __attribute__((cleanup(free_strings))) char **candidates = list_candidates(spawn->argv[0], path_of(spawn->env));
    hy_cleanup_free char **shell_argv = make_shell_argv(spawn->argv);
    hy_cleanup_free char *stack = hy_malloc(CHILD_STACK);
    struct plan plan = {.spawn = spawn, .candidates = candidates, .shell_argv = shell_argv, .parent = getpid()};
    hy_cleanup_close int pidfd = -1;
    pid_t pid;

    if (!candidates || !shell_argv || !stack)
        return hy_err_oom(err);
    pid = clone_child(&plan, stack, &pidfd);
    if (pid < 0)
        return hy_err_sys(err, pid, "cannot start '%s'", spawn->argv[0]);
    if (plan.failed != STEP_NONE) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        return describe_failure(&plan, err);
    }
    *ret_pid = pid;
    *ret_pidfd = hy_take_fd(pidfd);
    return 0;
}
