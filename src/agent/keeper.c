/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: the parent that outlives an agent or a driver and tidies up.
 *
 * It has no loop and needs no memory: it waits for signals and for the one
 * socket between the two. The child writes the names of files to remove into
 * it, and sees its end when the keeper is gone; the keeper never writes.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/supervise.h"
#include "base/fault.h"
#include "base/mem.h"

#define FILES_MAX 8
#define AGENTS_MS 12000 /* longer than an agent gives its trials */

static int keeper_fd = -1; /* the child's end */

static struct keeper {
    pid_t child;
    int socket;
    const char *name;
    char files[FILES_MAX][PATH_MAX];
    size_t file_count;
} keeper; /* there is one; too big for the stack */

/* ---- in the keeper ---- */

/* A daemon that serves others as well is theirs to end; it goes to whoever keeps us. */
static bool is_spared(pid_t pid)
{
    char folder[PATH_MAX];

    return hy_proc_env(pid, HY_DAEMON_MARK, folder, sizeof folder) > 0;
}

static void count_ours(void *arg, pid_t pid)
{
    int *count = arg;

    *count += !is_spared(pid);
}

/* Reaps whoever is dead. Is anybody left whom we have to wait for? */
static bool somebody_is_left(void)
{
    int count = 0;
    pid_t pid;

    do
        pid = waitpid(-1, NULL, WNOHANG);
    while (pid > 0 || (pid < 0 && errno == EINTR));
    return pid == 0 && (hy_children_each(count_ours, &count) < 0 || count);
}

static void kill_group(void *arg, pid_t pid)
{
    pid_t group = getpgid(pid);

    (void)arg;
    if (is_spared(pid))
        return;
    /* A whole group at one stroke, so that nobody forks away meanwhile. */
    if (group > 1 && group != getpgrp())
        kill(-group, SIGKILL);
    kill(pid, SIGKILL);
}

/* When a child of ours dies its children become ours: until there are none. */
static void end_descendants(void)
{
    for (int ms = 1;; ms = ms < 100 ? ms * 2 : ms) {
        hy_children_each(kill_group, NULL);
        if (!somebody_is_left())
            return;
        poll(NULL, 0, ms);
    }
}

static void ask_to_end(void *arg, pid_t pid)
{
    (void)arg;
    if (!is_spared(pid))
        kill(pid, SIGTERM);
}

/* A driver's children are agents with keepers of their own: they end their
 * trials and tidy up after themselves, if they are asked and given the time. */
static void let_agents_end(void)
{
    hy_children_each(ask_to_end, NULL);
    for (int left = AGENTS_MS; left > 0 && somebody_is_left(); left -= 10)
        poll(NULL, 0, 10);
}

/* Takes in what the child had to say; false when it has closed its end. */
static bool hear(struct keeper *k)
{
    char path[PATH_MAX];
    ssize_t n;

    while ((n = recv(k->socket, path, sizeof path - 1, MSG_DONTWAIT)) > 0) {
        path[n] = '\0';
        if (k->file_count < FILES_MAX)
            memcpy(k->files[k->file_count++], path, (size_t)n + 1);
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Dies as the child died, so that whoever started us sees the same. */
static __attribute__((noreturn)) void exit_like(int status)
{
    if (WIFSIGNALED(status)) {
        int sig = WTERMSIG(status);
        sigset_t none;

        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* one core is enough */
        signal(sig, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        kill(getpid(), sig);
        _exit(128 + sig);
    }
    _exit(WEXITSTATUS(status));
}

static __attribute__((noreturn)) void tidy_up(struct keeper *k, int status)
{
    hear(k);
    if (!k->name)
        let_agents_end();
    end_descendants();
    if (k->name)
        hy_cgroup_clear(k->name, k->child);
    for (size_t i = 0; i < k->file_count; i++)
        unlink(k->files[i]);
    exit_like(status);
}

/* Signals are let in only by ppoll: the child is not reaped then, its pid is its own. */
static void forward(int sig, siginfo_t *info, void *context)
{
    (void)context;
    /* What the terminal sends it sends to the whole group, the child has it already. */
    if (sig != SIGCHLD && !(info->si_code == SI_KERNEL && getpgid(keeper.child) == getpgrp()))
        kill(keeper.child, sig);
}

static __attribute__((noreturn)) void keep(struct keeper *k, const sigset_t *open_mask)
{
    bool listening = true;

    prctl(PR_SET_NAME, "hopyard-keeper");
    for (;;) {
        struct pollfd wait = {.fd = listening ? k->socket : -1, .events = POLLIN};
        int status;

        ppoll(&wait, 1, NULL, open_mask);
        if (wait.revents)
            listening = hear(k);
        if (waitpid(k->child, &status, WNOHANG) == k->child)
            tidy_up(k, status);
    }
}

/* All signals are blocked; `mask` was ours before. */
static __attribute__((noreturn)) void run_keeper(pid_t child, int socket, const char *name, sigset_t *mask)
{
    static const int heard[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO};

    keeper.child = child;
    keeper.socket = socket;
    keeper.name = name;
    for (size_t i = 0; i < HY_COUNT(heard); i++) {
        sigaction(heard[i], &action, NULL);
        sigdelset(mask, heard[i]);
    }
    keep(&keeper, mask);
}

/* ---- in both ---- */

int hy_keeper_fork(const char *name)
{
    sigset_t mask, all;
    int ends[2], rc;
    pid_t pid;

    if (HY_SYS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) < 0)
        return -errno;
    if (HY_SYS(prctl(PR_SET_CHILD_SUBREAPER, 1)) < 0) {
        rc = -errno;
        goto fail;
    }
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &mask);
    pid = HY_SYS(fork());
    rc = pid < 0 ? -errno : 0;
    if (pid > 0) {
        close(ends[0]);
        run_keeper(pid, ends[1], name, &mask);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (rc < 0)
        goto fail;
    close(ends[1]);
    if (keeper_fd >= 0)
        close(keeper_fd);
    keeper_fd = ends[0];
    return 0;
fail:
    close(ends[0]);
    close(ends[1]);
    return rc;
}

int hy_keeper_fd(void)
{
    return keeper_fd;
}

int hy_keeper_file(const char *path)
{
    if (keeper_fd < 0)
        return 0;
    if (strlen(path) >= PATH_MAX)
        return -ENAMETOOLONG;
    if (HY_SYS(send(keeper_fd, path, strlen(path), MSG_NOSIGNAL)) < 0)
        return -errno;
    return 0;
}
