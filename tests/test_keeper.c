/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper and the sweep: nothing outlives the agent or the driver that it belonged to. */
#include "process_bench.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>

#include "agent/process.h"

/* ---- the keeper ---- */

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
    hy_keeper_file(news->file);
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

static __attribute__((noreturn)) void kept_child_sees_its_keeper_go(const struct news *news)
{
    struct pollfd wait = {.fd = hy_keeper_fd(), .events = POLLIN};
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

/* Forks a keeper with `body` as its child; returns the keeper's pid. */
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
        if (hy_keeper_fork(news->name) < 0)
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

static void test_the_keeper_ends_what_a_killed_agent_left(void **state)
{
    struct news news = {.name = "test"};
    struct trial pids = {0};
    char text[3000], *cgroup;
    int report, status;
    pid_t keeper;

    (void)state;
    snprintf(news.file, sizeof news.file, "/tmp/hopyard-test-%d.sock", (int)getpid());
    write_file(news.file, "", 0600);
    keeper = fork_kept(&news, kept_agent_dies, &report);
    read_report(report, text, sizeof text, sizeof text - 1);
    assert_int_equal(waitpid(keeper, &status, 0), keeper);
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

static void test_the_keeper_passes_signals_on_and_exits_as_its_child(void **state)
{
    struct news news = {.name = "test"};
    char text[16];
    int report, status;
    pid_t keeper = fork_kept(&news, kept_child_exits_at_sigterm, &report);

    (void)state;
    read_report(report, text, sizeof text, 5);
    kill(keeper, SIGTERM);
    assert_int_equal(waitpid(keeper, &status, 0), keeper);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    close(report);
}

static void test_a_killed_drivers_agents_are_asked_to_end(void **state)
{
    struct news news = {.name = NULL};
    char text[16];
    int report, status;
    pid_t keeper = fork_kept(&news, kept_driver_dies, &report);
    struct hy_procs procs = {0};

    (void)state;
    read_report(report, text, sizeof text, 5);
    assert_int_equal(hy_procs_read(&procs), 0);
    for (size_t i = 0; i < procs.n; i++)
        if (procs.list[i].ppid == keeper)
            kill(procs.list[i].pid, SIGKILL);
    hy_procs_done(&procs);
    read_report(report, text, sizeof text, 5);
    assert_string_equal(text, "ended");
    assert_int_equal(waitpid(keeper, &status, 0), keeper);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(report);
}

static void test_a_child_sees_that_its_keeper_is_gone(void **state)
{
    struct news news = {.name = "test"};
    char text[16];
    int report, status;
    pid_t keeper = fork_kept(&news, kept_child_sees_its_keeper_go, &report);

    (void)state;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    read_report(report, text, sizeof text, 5);
    kill(keeper, SIGKILL);
    read_report(report, text, sizeof text, 5);
    assert_string_equal(text, "alone");
    assert_int_equal(waitpid(keeper, &status, 0), keeper);
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

static void test_a_sweep_ends_what_dead_agents_left(void **state)
{
    char dead[HY_MARK_MAX], live[HY_MARK_MAX];
    pid_t left, cared_for;
    int status;

    (void)state;
    dead_mark(dead);
    assert_int_equal(hy_mark_format(getpid(), live), 0);
    left = spawn_marked(dead);
    cared_for = spawn_marked(live);
    alarm(WATCHDOG_S);
    assert_true(hy_supervisor_sweep() >= 0); /* not how many: others may sweep this machine too */
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

static void test_a_sweep_removes_cgroups_of_dead_agents(void **state)
{
    char path[PATH_MAX] = "";
    int ends[2];
    pid_t pid;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0)
        leave_a_cgroup(ends[1]);
    close(ends[1]);
    read_report(ends[0], path, sizeof path, sizeof path - 1);
    waitpid(pid, NULL, 0);
    close(ends[0]);
    if (!path[0])
        skip();
    assert_int_equal(access(path, F_OK), 0);
    assert_true(hy_supervisor_sweep() >= 0);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_marks_are_read_strictly(void **state)
{
    char mark[HY_MARK_MAX];

    (void)state;
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

/* ---- faults ---- */

static int fork_a_keeper(void *arg)
{
    pid_t pid = fork();
    int status;

    (void)arg;
    if (pid == 0) {
        int rc = hy_keeper_fork(NULL);

        if (rc == 0)
            rc = hy_keeper_file("/nonexistent");
        _exit(rc < 0 ? 1 : 0);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 1;
    return WEXITSTATUS(status) ? -EIO : 0;
}

static void test_faults_at_the_keepers_birth(void **state)
{
    (void)state;
    for (long n = 0; n < 12; n++) { /* counted in the child: no early stop */
        hy_fault_arm(HY_SEAM_SYS, n);
        assert_true(fork_a_keeper(NULL) <= 0);
    }
    hy_fault_arm(HY_SEAM_SYS, 0);
    assert_int_equal(fork_a_keeper(NULL), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_keeper_ends_what_a_killed_agent_left),
        cmocka_unit_test(test_the_keeper_passes_signals_on_and_exits_as_its_child),
        cmocka_unit_test(test_a_killed_drivers_agents_are_asked_to_end),
        cmocka_unit_test(test_a_child_sees_that_its_keeper_is_gone),
        cmocka_unit_test(test_a_sweep_ends_what_dead_agents_left),
        cmocka_unit_test(test_a_sweep_removes_cgroups_of_dead_agents),
        cmocka_unit_test(test_marks_are_read_strictly),
        cmocka_unit_test(test_faults_at_the_keepers_birth),
    };

    return run_suite(argc, argv, tests, HY_COUNT(tests));
}
