/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reaper: the parent process that outlives an agent or a driver and cleans
 * up after it.
 *
 * It has no loop and needs no memory: it waits for signals and for the one
 * socket between the two. The child sees end-of-file when the reaper is gone;
 * the reaper never writes. The child's messages:
 *
 *     file ID PATH a file to remove, unless it has been replaced by another one: the next driver of the same run
 *                  listens at the same path, perhaps before this reaper has cleaned up. ID: see struct file_id
 *     hold, fds    the agent works for another run: its log and its lock, or none
 *     spare PID    this agent outlives the driver
 *     adopt, fd    a pidfd of an agent that ends with this driver without being its descendant, or none
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/internal.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"

#define FILES_MAX 8
#define MESSAGE_MAX (PATH_MAX + 128)
#define FDS_MAX 2
#define AGENTS_MS 12000 /* longer than an agent gives its trials */

static int reaper_fd = -1; /* the child's end */

/* Descriptors that are sent with a message. */
union fd_room {
    struct cmsghdr head;
    char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

/* An inode's number is used again soon, but not with the same time of change. All 0: the file did not exist yet. */
struct file_id {
    unsigned long long device, inode;
    long long seconds;
    long nanoseconds;
};

struct file {
    struct file_id id;
    char path[PATH_MAX];
};

static struct reaper {
    pid_t child;
    int socket;
    const char *name;
    struct file files[FILES_MAX];
    size_t file_count;
    int held;     /* the lock of an agent's run; -1: none */
    pid_t spared; /* an agent that outlives its driver; 0: none */
    int adopted;  /* a pidfd of one that is not our descendant and ends with its driver; -1: none */
} reaper; /* one per process; too large for the stack */

/* ---- in the reaper ---- */

/* A daemon that serves other agents too is ended by those; an agent on standby stays. The next subreaper above inherits
 * both. */
static bool is_spared(pid_t pid)
{
    char directory[PATH_MAX];

    return pid == reaper.spared || hy_proc_env(pid, HY_DAEMON_MARK, directory, sizeof directory) > 0;
}

static void count_unless_spared(void *arg, pid_t pid)
{
    int *count = arg;

    *count += !is_spared(pid);
}

/* Reaps the dead. Returns whether a process is left that has to be waited for. */
static bool reap_and_check(void)
{
    int count = 0;
    pid_t pid;

    do
        pid = waitpid(-1, NULL, WNOHANG);
    while (pid > 0 || (pid < 0 && errno == EINTR));
    return pid == 0 && (hy_children_each(count_unless_spared, &count) < 0 || count);
}

static void kill_group(void *arg, pid_t pid)
{
    pid_t group = getpgid(pid);

    (void)arg;
    if (is_spared(pid))
        return;
    /* A whole group atomically, so that no fork is missed. */
    if (group > 1 && group != getpgrp())
        kill(-group, SIGKILL);
    kill(pid, SIGKILL);
}

/* When a child dies its children become ours: repeats until there are none. */
static void kill_descendants(void)
{
    for (int ms = 1;; ms = ms < 100 ? ms * 2 : ms) {
        hy_children_each(kill_group, NULL);
        if (!reap_and_check())
            return;
        poll(NULL, 0, ms);
    }
}

static void send_sigterm(void *arg, pid_t pid)
{
    (void)arg;
    if (!is_spared(pid))
        kill(pid, SIGTERM);
}

/* Whether the adopted agent, which is not a descendant, is still there; sends it SIGTERM or SIGKILL. */
static bool signal_adopted(int sig)
{
    struct pollfd gone = {.fd = reaper.adopted, .events = POLLIN};

    if (reaper.adopted < 0 || poll(&gone, 1, 0) > 0)
        return false;
    return !sig || syscall(SYS_pidfd_send_signal, reaper.adopted, sig, NULL, 0) == 0;
}

/* A driver's children are agents, each with a reaper: after SIGTERM they end their
 * trials and clean up. */
static void terminate_agents(void)
{
    hy_children_each(send_sigterm, NULL);
    signal_adopted(SIGTERM);
    for (int left = AGENTS_MS; left > 0 && (reap_and_check() || signal_adopted(0)); left -= 10)
        poll(NULL, 0, 10);
    signal_adopted(SIGKILL);
}

static void replace_fd(int *fd, int by)
{
    hy_close_at(fd);
    *fd = by;
}

/* A run has a log, and a lock that is held until its last trial has ended. */
static void switch_run(struct reaper *k, int log, int lock)
{
    int null = log < 0 ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;

    if (log >= 0 || null >= 0)
        dup2(log >= 0 ? log : null, STDERR_FILENO);
    hy_close_at(&log);
    hy_close_at(&null);
    replace_fd(&k->held, lock);
}

static struct file_id id_of(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return (struct file_id){0};
    return (struct file_id){st.st_dev, st.st_ino, st.st_ctim.tv_sec, st.st_ctim.tv_nsec};
}

static void add_file(struct reaper *k, const char *text)
{
    struct file *f = &k->files[k->file_count];
    int n = 0;

    if (k->file_count == FILES_MAX ||
        sscanf(text, "%llu %llu %lld %ld %n", &f->id.device, &f->id.inode, &f->id.seconds, &f->id.nanoseconds, &n) !=
            4 ||
        strlen(text + n) >= PATH_MAX)
        return;
    strcpy(f->path, text + n);
    k->file_count++;
}

static void remove_file(const struct file *f)
{
    struct file_id now = id_of(f->path);

    if (f->id.inode == 0 || (now.device == f->id.device && now.inode == f->id.inode && now.seconds == f->id.seconds &&
                             now.nanoseconds == f->id.nanoseconds))
        unlink(f->path);
}

static void handle_message(struct reaper *k, const char *text, int fds[FDS_MAX])
{
    if (strncmp(text, "file ", 5) == 0) {
        add_file(k, text + 5);
    } else if (strcmp(text, "hold") == 0) {
        switch_run(k, fds[0], fds[1]);
        fds[0] = fds[1] = -1;
    } else if (strncmp(text, "spare ", 6) == 0) {
        k->spared = (pid_t)atoi(text + 6);
    } else if (strcmp(text, "adopt") == 0) {
        replace_fd(&k->adopted, fds[0]);
        fds[0] = -1;
    }
    for (size_t i = 0; i < FDS_MAX; i++)
        hy_close_at(&fds[i]);
}

/* The sender is our child, which is trusted. */
static void take_fds(struct msghdr *m, int fds[FDS_MAX])
{
    struct cmsghdr *c = CMSG_FIRSTHDR(m);

    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
}

/* Handles the child's messages; false when it has closed its end. */
static bool receive_messages(struct reaper *k)
{
    static char text[MESSAGE_MAX];
    union fd_room control;
    struct iovec io = {.iov_base = text, .iov_len = sizeof text - 1};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n;

    while ((n = recvmsg(k->socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) > 0) {
        int fds[FDS_MAX] = {-1, -1};

        text[n] = '\0';
        take_fds(&m, fds);
        handle_message(k, text, fds);
        m.msg_controllen = sizeof control;
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Exits as the child did, so that our parent sees the same status. */
static __attribute__((noreturn)) void exit_as_child(int status)
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

static __attribute__((noreturn)) void clean_up(struct reaper *k, int status)
{
    receive_messages(k);
    if (!k->name)
        terminate_agents();
    kill_descendants();
    if (k->name)
        hy_cgroup_clear(k->name, k->child);
    for (size_t i = 0; i < k->file_count; i++)
        remove_file(&k->files[i]);
    if (k->name)
        (void)hy_runtime_sweep("feed-", ".sock"); /* of trials that were killed; `hopyard gc` finds what is left */
    exit_as_child(status);
}

/* Signals are unblocked only in ppoll: the child is not reaped then, so its PID cannot be reused. */
static void forward(int sig, siginfo_t *info, void *context)
{
    (void)context;
    /* The terminal sends signals to the whole group: the child has received it already. */
    if (sig != SIGCHLD && !(info->si_code == SI_KERNEL && getpgid(reaper.child) == getpgrp()))
        kill(reaper.child, sig);
}

static __attribute__((noreturn)) void watch_child(struct reaper *k, const sigset_t *open_mask)
{
    bool listening = true;

    prctl(PR_SET_NAME, "hopyard-reaper");
    for (;;) {
        struct pollfd wait = {.fd = listening ? k->socket : -1, .events = POLLIN};
        int status;

        ppoll(&wait, 1, NULL, open_mask);
        if (wait.revents)
            listening = receive_messages(k);
        if (waitpid(k->child, &status, WNOHANG) == k->child)
            clean_up(k, status);
    }
}

/* All signals are blocked; `mask` was ours before. */
static __attribute__((noreturn)) void run_reaper(pid_t child, int socket, const char *name, int hold, sigset_t *mask)
{
    static const int forwarded[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO};

    reaper.child = child;
    reaper.socket = socket;
    reaper.name = name;
    reaper.held = hold;
    reaper.adopted = -1;
    for (size_t i = 0; i < HY_COUNT(forwarded); i++) {
        sigaction(forwarded[i], &action, NULL);
        sigdelset(mask, forwarded[i]);
    }
    watch_child(&reaper, mask);
}

/* ---- in both ---- */

int hy_reaper_fork(const char *name, int hold)
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
        run_reaper(pid, ends[1], name, hold, &mask);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (rc < 0)
        goto fail;
    close(ends[1]);
    if (reaper_fd >= 0)
        close(reaper_fd);
    reaper_fd = ends[0];
    return 0;
fail:
    close(ends[0]);
    close(ends[1]);
    return rc;
}

int hy_reaper_fd(void)
{
    return reaper_fd;
}

static int send_message(const char *text, const int *fds, size_t count)
{
    union fd_room control = {0};
    struct iovec io = {.iov_base = (char *)text, .iov_len = strlen(text)};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};

    if (reaper_fd < 0)
        return 0;
    if (count) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(count * sizeof *fds);
        control.head = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(count * sizeof *fds)};
        memcpy(CMSG_DATA(&control.head), fds, count * sizeof *fds);
    }
    return HY_SYS(sendmsg(reaper_fd, &m, MSG_NOSIGNAL)) < 0 ? -errno : 0;
}

int hy_reaper_file(const char *path)
{
    struct file_id id = id_of(path);
    char text[MESSAGE_MAX];

    if (strlen(path) >= PATH_MAX)
        return -ENAMETOOLONG;
    snprintf(text, sizeof text, "file %llu %llu %lld %ld %s", id.device, id.inode, id.seconds, id.nanoseconds, path);
    return send_message(text, NULL, 0);
}

int hy_reaper_hold(int log, int lock)
{
    return send_message("hold", (const int[]){log, lock}, log < 0 ? 0 : 2);
}

int hy_reaper_spare(pid_t pid)
{
    char text[32];

    snprintf(text, sizeof text, "spare %d", (int)pid);
    return send_message(text, NULL, 0);
}

int hy_reaper_adopt(int pidfd)
{
    return send_message("adopt", &pidfd, pidfd >= 0);
}
