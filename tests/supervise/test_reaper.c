/* SPDX-License-Identifier: Apache-2.0 */
/* The reaper and the sweep: nothing outlives the agent or the driver that it belonged to. */
#include "process_bench.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "supervise/supervise.h"
#include "base/file.h"

/* ---- the reaper ---- */

/* What a kept child can tell the test, over everybody's death. */
struct news {
    const char *name; /* of the kept: NULL for a driver */
    int report;       /* written by the child */
    char file[64];
};

static __attribute__((noreturn)) void kept_agent_dies(const struct news *news)
{
    struct bench b;
    struct trial t, limited;
    char line[PATH_MAX];
    int n;

    if (open_bench(&b, NULL) < 0)
        _exit(90);
    hy_reaper_file(news->file);
    START(&b, &t, 0, HELPER("children"));
    run_to_text(&t, "pid ", 4);
    START(&b, &limited, 512 * MB, HELPER("children"));
    run_to_text(&limited, "pid ", 4);
    n = snprintf(line, sizeof line, "%s%s%s\n", t.first[1], limited.first[1], b.s->cgroup.path);
    if (write(news->report, line, (size_t)n) != n)
        _exit(91);
    kill(getpid(), SIGKILL);
    _exit(92);
}

static __attribute__((noreturn)) void kept_child_exits_at_sigterm(const struct news *news)
{
    sigset_t set;
    int sig;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (write(news->report, "ready", 5) != 5)
        _exit(91);
    sigwait(&set, &sig);
    _exit(7);
}

static __attribute__((noreturn)) void kept_child_sees_its_reaper_go(const struct news *news)
{
    struct pollfd wait = {.fd = hy_reaper_fd(), .events = POLLIN};
    char c;

    if (write(news->report, "ready", 5) != 5)
        _exit(91);
    poll(&wait, 1, -1);
    if (read(wait.fd, &c, 1) == 0 && write(news->report, "alone", 5) == 5)
        _exit(0);
    _exit(92);
}

static __attribute__((noreturn)) void kept_driver_dies(const struct news *news)
{
    sigset_t set;
    int sig;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (fork() == 0) { /* an agent */
        if (write(news->report, "ready", 5) != 5)
            _exit(91);
        sigwait(&set, &sig);
        if (write(news->report, "ended", 5) != 5)
            _exit(92);
        _exit(0);
    }
    stay();
}

/* Of two agents one is to outlive the driver. */
static __attribute__((noreturn)) void kept_driver_spares_one(const struct news *news)
{
    pid_t agents[2];

    for (int i = 0; i < 2; i++) {
        agents[i] = fork();
        if (agents[i] == 0)
            stay();
    }
    if (hy_reaper_spare(agents[1]) < 0 || write(news->report, agents, sizeof agents) != sizeof agents)
        _exit(91);
    _exit(0);
}

/* It works with an agent that is nobody's descendant here: the test's own child. */
static __attribute__((noreturn)) void kept_driver_adopts(const struct news *news)
{
    int pidfd = (int)syscall(SYS_pidfd_open, atoi(news->file), 0);

    if (pidfd < 0 || hy_reaper_adopt(pidfd) < 0 || write(news->report, "ready", 5) != 5)
        _exit(91);
    stay();
}

/* As the next driver of the same run does. The file may get the same inode, but not within one tick of the clock. */
static __attribute__((noreturn)) void kept_child_sees_its_file_replaced(const struct news *news)
{
    struct stat before, after;

    if (hy_reaper_file(news->file) < 0 || stat(news->file, &before) < 0)
        _exit(91);
    do {
        if (unlink(news->file) < 0 || close(open(news->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) < 0 ||
            stat(news->file, &after) < 0)
            _exit(92);
    } while (after.st_ctim.tv_sec == before.st_ctim.tv_sec && after.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
    _exit(0);
}

static __attribute__((noreturn)) void kept_agent_changes_runs(const struct news *news)
{
    int lock = open(news->file, O_RDWR | O_CLOEXEC), log = open("/dev/null", O_WRONLY | O_CLOEXEC), sig;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (flock(lock, LOCK_EX) < 0 || hy_reaper_hold(log, lock) < 0)
        _exit(91);
    close(lock);
    if (write(news->report, "holds", 5) != 5 || sigwait(&set, &sig) != 0)
        _exit(92);
    if (hy_reaper_hold(-1, -1) < 0 || write(news->report, "let go", 6) != 6)
        _exit(93);
    stay();
}

/* Forks a reaper with `body` as its child; returns the reaper's pid. */
static pid_t fork_kept(struct news *news, __attribute__((noreturn)) void (*body)(const struct news *news),
                       int *ret_report)
{
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        news->report = ends[1];
        if (hy_reaper_fork(news->name, -1) < 0)
            _exit(93);
        alarm(WATCHDOG_S);
        body(news);
    }
    close(ends[1]);
    *ret_report = ends[0];
    return pid;
}

static size_t read_report(int report, char *text, size_t size, size_t at_least)
{
    size_t len = 0;
    ssize_t n = 1;

    while (n > 0 && len < at_least) {
        n = read(report, text + len, size - 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    text[len] = '\0';
    return len;
}

HY_TEST(test_the_reaper_ends_what_a_killed_agent_left)
{
    struct news news = {.name = "test"};
    struct trial pids = {0};
    char text[3000], *cgroup;
    int report, status;
    pid_t reaper;

    snprintf(news.file, sizeof news.file, "/tmp/hopyard-test-%d.sock", (int)getpid());
    write_file(news.file, "", 0600);
    reaper = fork_kept(&news, kept_agent_dies, &report);
    read_report(report, text, sizeof text, sizeof text - 1);
    assert_int_equal(waitpid(reaper, &status, 0), reaper);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(report);
    assert_int_equal(count_text(text, "pid "), 8);
    snprintf((char *)pids.first[1], sizeof pids.first[1], "%s", text);
    assert_int_equal(still_there(&pids), 0);
    assert_int_equal(access(news.file, F_OK), -1);
    cgroup = strrchr(text, '/');
    if (cgroup) { /* the last line is its path */
        cgroup = strstr(text, "\n/") + 1;
        cgroup[strcspn(cgroup, "\n")] = '\0';
        assert_int_equal(access(cgroup, F_OK), -1);
    }
}

static int make_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && strlen(path) < sizeof address.sun_path);
    strcpy(address.sun_path, path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static __attribute__((noreturn)) void kept_child_exits(const struct news *news)
{
    (void)news;
    _exit(0);
}

/* A trial that was killed cannot remove the socket at which it was fed. */
HY_TEST(test_the_reaper_removes_sockets_of_feeds_that_were_killed)
{
    struct news news = {.name = "test"};
    char folder[] = "/tmp/hopyard-reaper-XXXXXX";
    const char *before = getenv("XDG_RUNTIME_DIR");
    int report, status, live;
    char *sockets;
    pid_t reaper;

    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
    sockets = hy_runtime_dir(NULL);
    assert_non_null(sockets);
    close(make_socket(hy_path_in(sockets, "feed-1.sock")));
    close(make_socket(hy_path_in(sockets, "agent-1.sock")));
    live = make_socket(hy_path_in(sockets, "feed-2.sock"));
    assert_int_equal(listen(live, 1), 0);
    reaper = fork_kept(&news, kept_child_exits, &report);
    assert_int_equal(waitpid(reaper, &status, 0), reaper);
    assert_int_equal(status, 0);
    assert_int_equal(access(hy_path_in(sockets, "feed-1.sock"), F_OK), -1);
    assert_int_equal(access(hy_path_in(sockets, "feed-2.sock"), F_OK), 0);
    assert_int_equal(access(hy_path_in(sockets, "agent-1.sock"), F_OK), 0); /* not the reaper's to judge */
    close(report);
    close(live);
    free(sockets);
    assert_int_equal(hy_remove_tree(folder), 0);
    assert_int_equal(before ? setenv("XDG_RUNTIME_DIR", before, 1) : unsetenv("XDG_RUNTIME_DIR"), 0);
}

HY_TEST(test_the_reaper_passes_signals_on_and_exits_as_its_child)
{
    struct news news = {.name = "test"};
    char text[16];
    int report, status;
    pid_t reaper = fork_kept(&news, kept_child_exits_at_sigterm, &report);

    read_report(report, text, sizeof text, 5);
    kill(reaper, SIGTERM);
    assert_int_equal(waitpid(reaper, &status, 0), reaper);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    close(report);
}

static void kill_child_of(pid_t reaper)
{
    struct hy_procs procs = {0};

    assert_int_equal(hy_procs_read(&procs), 0);
    for (size_t i = 0; i < procs.n; i++)
        if (procs.list[i].ppid == reaper)
            kill(procs.list[i].pid, SIGKILL);
    hy_procs_done(&procs);
}

HY_TEST(test_a_killed_drivers_agents_are_asked_to_end)
{
    struct news news = {.name = NULL};
    char text[16];
    int report, status;
    pid_t reaper = fork_kept(&news, kept_driver_dies, &report);

    read_report(report, text, sizeof text, 5);
    kill_child_of(reaper);
    read_report(report, text, sizeof text, 5);
    assert_string_equal(text, "ended");
    assert_int_equal(waitpid(reaper, &status, 0), reaper);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(report);
}

HY_TEST(test_a_child_sees_that_its_reaper_is_gone)
{
    struct news news = {.name = "test"};
    char text[16];
    int report, status;
    pid_t reaper = fork_kept(&news, kept_child_sees_its_reaper_go, &report);

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    read_report(report, text, sizeof text, 5);
    kill(reaper, SIGKILL);
    read_report(report, text, sizeof text, 5);
    assert_string_equal(text, "alone");
    assert_int_equal(waitpid(reaper, &status, 0), reaper);
    assert_true(waitpid(-1, &status, 0) > 0); /* the child, ours now */
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(report);
}

/* ---- sweeping ---- */

/* The mark of a process that is gone. */
static void dead_mark(char mark[HY_MARK_MAX])
{
    pid_t pid = fork();

    if (pid == 0)
        stay();
    assert_int_equal(hy_mark_format(pid, mark), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static pid_t spawn_marked(const char *mark)
{
    char entry[80];
    char *env[] = {entry, NULL};
    pid_t pid;

    snprintf(entry, sizeof entry, "HOPYARD_AGENT=%s", mark);
    assert_int_equal(posix_spawn(&pid, "/bin/sleep", NULL, NULL, ARGV("sleep", "1000"), env), 0);
    return pid;
}

/* Only this one: others may look for leftovers on this machine, too. */
static void end_this(void *arg, pid_t pid, const char *trial_dir)
{
    (void)trial_dir;
    if (pid == *(pid_t *)arg)
        kill(pid, SIGKILL);
}

HY_TEST(test_a_sweep_ends_what_dead_agents_left)
{
    char dead[HY_MARK_MAX], live[HY_MARK_MAX];
    pid_t left, cared_for;
    int status;

    dead_mark(dead);
    assert_int_equal(hy_mark_format(getpid(), live), 0);
    left = spawn_marked(dead);
    cared_for = spawn_marked(live);
    alarm(WATCHDOG_S);
    assert_int_equal(hy_supervisor_leftovers(end_this, &cared_for), 0);
    assert_int_equal(waitpid(left, &status, WNOHANG), 0);
    assert_int_equal(hy_supervisor_leftovers(end_this, &left), 0);
    assert_int_equal(waitpid(left, &status, 0), left);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(waitpid(cared_for, &status, WNOHANG), 0);
    kill(cared_for, SIGKILL);
    waitpid(cared_for, &status, 0);
    alarm(0);
}

static __attribute__((noreturn)) void leave_a_cgroup(int report)
{
    struct hy_cgroup c;

    hy_cgroup_init(&c, "left", NULL);
    if (c.kind != HY_CGROUP_NONE && write(report, c.path, strlen(c.path)) < 0)
        _exit(1);
    _exit(0);
}

HY_TEST(test_a_sweep_removes_cgroups_of_dead_agents)
{
    char path[PATH_MAX] = "";
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0)
        leave_a_cgroup(ends[1]);
    close(ends[1]);
    read_report(ends[0], path, sizeof path, sizeof path - 1);
    waitpid(pid, NULL, 0);
    close(ends[0]);
    if (!path[0])
        hy_skip_cgroups();
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(hy_supervisor_sweep_cgroups(false), 0);
    assert_int_equal(access(path, F_OK), -1);
}

HY_TEST(test_marks_are_read_strictly)
{
    char mark[HY_MARK_MAX];

    assert_int_equal(hy_mark_format(getpid(), mark), 0);
    assert_int_equal(hy_mark_alive(mark), 1);
    assert_int_equal(hy_mark_alive("1"), -EINVAL);
    assert_int_equal(hy_mark_alive("1:2x"), -EINVAL);
    assert_int_equal(hy_mark_alive("1:2"), -EINVAL);
    assert_int_equal(hy_mark_alive("1:2-3x"), -EINVAL);
    assert_int_equal(hy_mark_alive("-4:2-3"), -EINVAL);
    assert_int_equal(hy_mark_alive(""), -EINVAL);
    snprintf(mark, sizeof mark, "1:99999999999-%llu", hy_pid_namespace());
    assert_int_equal(hy_mark_alive(mark), 0);
    assert_int_equal(hy_mark_alive("1:99999999999-1"), 1); /* of another namespace: not known is not dead */
}

HY_TEST(test_a_spared_agent_outlives_its_driver)
{
    struct news news = {0};
    pid_t reaper, agents[2];
    int report, status;

    reaper = fork_kept(&news, kept_driver_spares_one, &report);
    assert_int_equal(read(report, agents, sizeof agents), sizeof agents);
    assert_int_equal(waitpid(reaper, &status, 0), reaper);
    assert_int_equal(kill(agents[0], 0), -1);
    assert_int_equal(kill(agents[1], 0), 0);
    assert_int_equal(kill(agents[1], SIGKILL), 0);
    close(report);
}

HY_TEST(test_an_adopted_agent_ends_with_its_driver)
{
    struct news news = {0};
    pid_t reaper, agent = fork();
    char text[8];
    int report, status;

    if (agent == 0)
        stay();
    snprintf(news.file, sizeof news.file, "%d", (int)agent);
    reaper = fork_kept(&news, kept_driver_adopts, &report);
    read_report(report, text, sizeof text, 5);
    kill_child_of(reaper);
    assert_int_equal(waitpid(agent, &status, 0), agent);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_int_equal(waitpid(reaper, &status, 0), reaper);
    close(report);
}

/* The lock of a run is held until its last trial has ended, whoever dies first. */
HY_TEST(test_the_reaper_holds_what_its_agent_holds)
{
    struct news news = {.name = "test"};
    char text[16];
    int report, status, lock;
    pid_t reaper;

    snprintf(news.file, sizeof news.file, "/tmp/hopyard-test-%d.lock", (int)getpid());
    write_file(news.file, "", 0600);
    lock = open(news.file, O_RDWR | O_CLOEXEC);
    reaper = fork_kept(&news, kept_agent_changes_runs, &report);
    read_report(report, text, sizeof text, 5);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), -1);
    kill(reaper, SIGUSR1);
    read_report(report, text, sizeof text, 6);
    assert_int_equal(flock(lock, LOCK_EX), 0); /* the reaper has heard it, or is about to */
    kill(reaper, SIGTERM);
    assert_int_equal(waitpid(reaper, &status, 0), reaper);
    close(lock);
    close(report);
    unlink(news.file);
}

HY_TEST(test_the_reaper_leaves_a_file_that_has_replaced_its_own)
{
    struct news news = {.file = "/tmp/hy-reaper-XXXXXX"};
    int fd = mkstemp(news.file), report, status;
    pid_t reaper;

    assert_true(fd >= 0);
    close(fd);
    reaper = fork_kept(&news, kept_child_sees_its_file_replaced, &report);
    assert_int_equal(waitpid(reaper, &status, 0), reaper);
    assert_int_equal(status, 0);
    assert_int_equal(access(news.file, F_OK), 0);
    close(report);
    assert_int_equal(unlink(news.file), 0);
}

/* ---- faults ---- */

static int fork_a_reaper(void *arg)
{
    pid_t pid = fork();
    int status;

    (void)arg;
    if (pid == 0) {
        int rc = hy_reaper_fork(NULL, -1);

        if (rc == 0)
            rc = hy_reaper_file("/nonexistent");
        _exit(rc < 0 ? 1 : 0);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 1;
    return WEXITSTATUS(status) ? -EIO : 0;
}

HY_TEST(test_faults_at_the_reapers_birth)
{
    for (long n = 0; n < 12; n++) { /* counted in the child: no early stop */
        hy_fault_arm(HY_SEAM_SYS, n);
        assert_true(fork_a_reaper(NULL) <= 0);
    }
    hy_fault_arm(HY_SEAM_SYS, 0);
    assert_int_equal(fork_a_reaper(NULL), 0);
}

int main(int argc, char **argv)
{
    return run_suite(argc, argv);
}
