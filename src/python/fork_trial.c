/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     server ── vfork ──► helper ── fork ──► trial
 *
 * The agent must be the parent of a trial, and as a subreaper it inherits the
 * children of processes that exit. So the helper only forks and exits.
 *
 * The helper is created by vfork, so that it shares the server's memory. Copying and
 * discarding the page tables of a process that has loaded TensorFlow takes 14 ms of
 * CPU; this way it happens once instead of twice. POSIX does not allow a vfork child
 * to fork, but Linux does: the calling thread is suspended until the helper has
 * exited, fork runs its handlers as usual, and the trial has a copy of everything,
 * including this stack. One thing is lost: see register_rseq().
 */
#include "fork_server.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif

#include "base/fault.h"
#include "base/mem.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define RSEQ_SIZE 32u /* the minimum of the kernel */

/* ---- the fork ------------------------------------------------------------------- */

/* The exit status of the helper is an errno. */
static int reap(pid_t helper, struct hy_err *err)
{
    int status = 0;

    while (waitpid(helper, &status, 0) < 0) {
        if (errno == ECHILD) /* an imported module ignores SIGCHLD; the trial reports its own start */
            return 1;
        if (errno != EINTR)
            return hy_err_sys(err, -errno, "cannot wait for the helper that forks a trial");
    }
    if (WIFSIGNALED(status))
        return hy_err_set(err, -EAGAIN, "the helper that forks a trial was killed by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status) ? hy_err_sys(err, -WEXITSTATUS(status), "cannot fork a trial") : 1;
}

int hy_py_fork_trial(int *ret_helper, struct hy_err *err)
{
    pid_t helper = HY_SYS(vfork());

    if (helper == 0) {
        int self = (int)HY_SYS(syscall(SYS_pidfd_open, getpid(), 0));
        pid_t trial = self < 0 ? -1 : HY_SYS(fork());

        if (trial != 0)
            _exit(trial < 0 ? errno : 0);
        *ret_helper = self;
        return 0;
    }
    return helper < 0 ? hy_err_sys(err, -errno, "cannot fork a trial") : reap(helper, err);
}

/*
 * The kernel drops the registration of restartable sequences in a process that
 * shares its memory, as the helper did, so a trial does not inherit it. Without
 * it sched_getcpu() would always return the same CPU, and allocators with per-CPU
 * caches rely on it.
 */
static void register_rseq(void)
{
#if defined RSEQ_SIG && defined SYS_rseq && __has_builtin(__builtin_thread_pointer)
    const ptrdiff_t *offset = dlsym(RTLD_DEFAULT, "__rseq_offset");
    const unsigned int *size = dlsym(RTLD_DEFAULT, "__rseq_size");

    if (!offset || !size || !*size) /* glibc before 2.35, or disabled by a tunable */
        return;
    syscall(SYS_rseq, (char *)__builtin_thread_pointer() + *offset, *size > RSEQ_SIZE ? *size : RSEQ_SIZE, 0, RSEQ_SIG);
#endif
}

/* ---- setup of the trial ------------------------------------------------------------ */

/* The pidfd is readable once the helper has exited and its child has been reparented to the agent. */
static int wait_for_adoption(pid_t agent, int helper, struct hy_err *err)
{
    struct pollfd p = {.fd = helper, .events = POLLIN};

    while (HY_SYS(poll(&p, 1, -1)) < 0)
        if (errno != EINTR)
            return hy_err_sys(err, -errno, "cannot wait for the helper that forks a trial");
    if (HY_SYS(prctl(PR_SET_PDEATHSIG, SIGKILL)) < 0)
        return hy_err_sys(err, -errno, "cannot set the signal for the death of the agent");
    if (getppid() != agent)
        _exit(0); /* the agent has died */
    return 0;
}

static int enter_cgroup(int fd, struct hy_err *err)
{
    return HY_SYS(write(fd, "0", 1)) < 0 ? hy_err_sys(err, -errno, "cannot enter the trial's cgroup") : 0;
}

static int set_streams(const struct hy_fork_request *r, struct hy_err *err)
{
    for (int fd = 1; fd <= 2; fd++)
        if (HY_SYS(dup2(r->fds[fd == 1 ? HY_FD_STDOUT : HY_FD_STDERR], fd)) < 0)
            return hy_err_sys(err, -errno, "cannot redirect the trial's output");
    return 0;
}

/* An agent raises its own limit; its trials get the user's. */
static int lower_file_limit(uint64_t open_files, struct hy_err *err)
{
    struct rlimit limit;
    int rc = open_files ? HY_SYS(getrlimit(RLIMIT_NOFILE, &limit)) : 0;

    if (rc == 0 && open_files && open_files < limit.rlim_cur) {
        limit.rlim_cur = open_files;
        rc = HY_SYS(setrlimit(RLIMIT_NOFILE, &limit));
    }
    return rc < 0 ? hy_err_sys(err, -errno, "cannot set the trial's limit of open files") : 0;
}

/* For readers of /proc/PID/environ. getenv() returns the tag from the environment
 * of the request. */
static int write_tag(const struct hy_py_fork_server *s, const char *tag, struct hy_err *err)
{
    size_t n = strlen(tag);

    if (n > s->tag_room)
        return hy_err_set(err, -ENAMETOOLONG, "the tag '%s' is longer than %zu bytes", tag, s->tag_room);
    memset(s->tag, '\0', s->tag_room);
    memcpy(s->tag, tag, n);
    return 0;
}

/* Descriptors for the trial itself are inherited by its children, as in a trial that is not forked. */
static int keep_fds(struct hy_fork_request *r, struct hy_err *err)
{
    for (size_t i = 0; i < r->fd_count; i++) {
        if (i == HY_FD_CONTROL)
            continue;
        if (i < HY_FD_KEPT)
            hy_close_at(&r->fds[i]);
        else if (HY_SYS(fcntl(r->fds[i], F_SETFD, 0)) < 0)
            return hy_err_sys(err, -errno, "cannot keep a file open for the trial");
        r->fds[i] = -1;
    }
    return 0;
}

int hy_py_become_trial(const struct hy_py_fork_server *s, struct hy_fork_request *r, int helper, struct hy_err *err)
{
    int rc;

    register_rseq();
    close(s->socket);
    rc = wait_for_adoption(s->agent, helper, err);
    close(helper);
    if (rc == 0 && HY_SYS(setsid()) < 0)
        rc = hy_err_sys(err, -errno, "cannot create a session for the trial");
    rc = rc < 0 ? rc : enter_cgroup(r->fds[HY_FD_CGROUP], err);
    rc = rc < 0 ? rc : set_streams(r, err);
    rc = rc < 0 ? rc : keep_fds(r, err);
    rc = rc < 0 ? rc : lower_file_limit(r->open_files, err);
    if (rc == 0 && HY_SYS(chdir(r->cwd)) < 0)
        rc = hy_err_sys(err, -errno, "cannot enter the trial's directory '%s'", r->cwd);
    rc = rc < 0 ? rc : write_tag(s, r->tag, err);
    prctl(PR_SET_NAME, "hopyard-trial"); /* cannot fail */
    return rc;
}
