/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real processes, supervised. The program that is started is mostly this one
 * (process_helpers.h, process_bench.h); each test ends by asking whether anything is left.
 */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process.h"
#include "agent/supervise.h"
#include "process_bench.h"

/* ---- starting ---- */

static void test_exit_status_and_both_streams_arrive(void **state)
{
    struct trial t;

    START(*state, &t, 0, "sh", "-c", "echo out; echo err >&2; exit 3");
    assert_true(hy_process_pid(t.p) > 0);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    assert_int_equal(t.end.code, 3);
    assert_string_equal((char *)t.first[1], "out\n");
    assert_string_equal((char *)t.first[2], "err\n");
    assert_string_equal(t.message, "");
    assert_true(t.end.peak_memory > 0);
}

static void test_death_by_signal_is_told(void **state)
{
    struct trial t;

    START(*state, &t, 0, "sh", "-c", "kill -9 $$");
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_SIGNALED);
    assert_int_equal(t.end.code, SIGKILL);
}

static void test_cpu_time_is_counted(void **state)
{
    struct trial t;

    START(*state, &t, 0, HELPER("burn", "200"));
    run_to_end(&t);
    assert_true(t.end.cpu_ms >= 190);
}

static void assert_start_fails(struct bench *b, char **argv, char **env, const char *cwd, int code,
                               const char *sentence)
{
    struct hy_process_spec spec = {.tag = "t", .argv = argv, .env = env, .cwd = cwd};
    struct hy_err err = {0};
    struct trial t;

    assert_int_equal(start_spec(b, &t, &spec, &err), code);
    if (!strstr(err.text, sentence))
        fail_msg("'%s' is not in: %s", sentence, err.text);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    fchmod(fd, mode);
    close(fd);
}

static void test_what_cannot_be_started_gets_a_sentence(void **state)
{
    char folder[] = "/tmp/hopyard-test-XXXXXX", file[64], script[64];
    char path_entry[] = "PATH=/nowhere";
    char *env[] = {path_entry, NULL};

    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/plain", folder);
    snprintf(script, sizeof script, "%s/script", folder);
    write_file(file, "not a program", 0600);
    write_file(script, "#!/no/such/interpreter\n", 0700);
    assert_start_fails(*state, ARGV("nonesuch"), env, "/", -ENOENT,
                       "cannot start 'nonesuch': not found in PATH (/nowhere)");
    assert_start_fails(*state, ARGV("./nonesuch"), env, folder, -ENOENT, "not found in /tmp/");
    assert_start_fails(*state, ARGV("true"), env, "/", -ENOENT, "not found in PATH");
    assert_start_fails(*state, ARGV("./plain"), env, folder, -EACCES, "not executable");
    assert_start_fails(*state, ARGV("./script"), env, folder, -ENOENT, "interpreter");
    assert_start_fails(*state, ARGV("/bin/true"), env, "/no/such/folder", -ENOENT, "'/no/such/folder'");
    assert_start_fails(*state, ARGV(""), env, "/", -EINVAL, "no command");
    unlink(file);
    unlink(script);
    rmdir(folder);
    assert_false(has_children());
}

static void test_the_path_of_the_trial_is_searched(void **state)
{
    char folder[] = "/tmp/hopyard-test-XXXXXX", script[64], path[128];
    char *env[] = {path, NULL};
    struct hy_process_spec spec = {.tag = "t", .argv = ARGV("only-here", "x y"), .env = env, .cwd = "/"};
    struct hy_err err = {0};
    struct trial t;

    assert_non_null(mkdtemp(folder));
    snprintf(script, sizeof script, "%s/only-here", folder);
    snprintf(path, sizeof path, "PATH=/nowhere:%s", folder);
    write_file(script, "echo \"[$1]\"\n", 0700); /* no #!: the shell runs it, as it would from a shell */
    assert_int_equal(start_spec(*state, &t, &spec, &err), 0);
    run_to_end(&t);
    assert_string_equal((char *)t.first[1], "[x y]\n");
    unlink(script);
    rmdir(folder);
}

static void test_a_trial_inherits_nothing_but_its_three_files(void **state)
{
    int leak = open("/dev/null", O_RDONLY); /* as if we had been started with it */
    char agent[80], mark[HY_MARK_MAX];
    struct trial t;
    sigset_t set, old;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    signal(SIGPIPE, SIG_IGN);
    START(*state, &t, 0, HELPER("inspect"));
    run_to_end(&t);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &old, NULL);
    close(leak);
    hy_mark_format(getpid(), mark);
    snprintf(agent, sizeof agent, "agent %s\n", mark);
    assert_int_equal(t.end.code, 0);
    assert_int_equal(count_text((char *)t.first[1], "fd "), 3);
    assert_non_null(strstr((char *)t.first[1], "SigBlk:\t0000000000000000\n"));
    assert_non_null(strstr((char *)t.first[1], "SigIgn:\t0000000000000000\n"));
    assert_non_null(strstr((char *)t.first[1], "leader 1\nstdin 0\ntag &t\n"));
    assert_non_null(strstr((char *)t.first[1], agent));
}

static void test_a_trial_gets_the_users_limit_of_open_files(void **state)
{
    struct hy_process_spec spec = {.tag = "t", .argv = ARGV(HELPER("inspect")), .env = environ, .cwd = "/",
                                   .open_files = 77};
    struct hy_err err = {0};
    struct trial t;

    assert_int_equal(start_spec(*state, &t, &spec, &err), 0);
    run_to_end(&t);
    assert_non_null(strstr((char *)t.first[1], "files 77\n"));
}

static void test_the_marks_of_an_outer_trial_are_replaced(void **state)
{
    struct trial t;

    setenv("HOPYARD_TAG", "outer", 1);
    setenv("HOPYARD_AGENT", "1:1", 1);
    START(*state, &t, 0, "sh", "-c", "env | grep -c ^HOPYARD_[TA][AG][GE]; echo $HOPYARD_TAG");
    unsetenv("HOPYARD_TAG");
    unsetenv("HOPYARD_AGENT");
    run_to_end(&t);
    assert_string_equal((char *)t.first[1], "2\n&t\n");
}

/* ---- output ---- */

static void on_resume(uv_timer_t *timer)
{
    struct trial *t = timer->data;

    if (t->paused) {
        t->paused = 0;
        hy_process_pause(t->p, 1, 0);
    }
}

static void test_a_flood_is_read_piece_by_piece_with_pauses(void **state)
{
    struct bench *b = *state;
    struct trial t;

    START(b, &t, 0, HELPER("flood", "67108864"));
    t.pause_every = t.next_pause = MB;
    uv_timer_init(&b->loop, &t.resume);
    t.resume.data = &t;
    uv_timer_start(&t.resume, on_resume, 1, 1);
    run_to_end(&t);
    uv_close((uv_handle_t *)&t.resume, NULL);
    uv_run(&b->loop, UV_RUN_NOWAIT);
    assert_int_equal(t.total[1], 64 * MB);
    assert_int_equal(t.end.code, 0);
}

static void test_the_end_waits_for_a_paused_pipe(void **state)
{
    struct bench *b = *state;
    struct trial t, other;

    START(b, &t, 0, "sh", "-c", "echo held back");
    hy_process_pause(t.p, 1, 1);
    t.paused = 1;
    while (is_there((pid_t)hy_process_pid(t.p)))
        uv_run(&b->loop, UV_RUN_NOWAIT);
    START(b, &other, 0, "true"); /* one whole life later it has not ended still */
    run_to_end(&other);
    assert_int_equal(t.ended, 0);
    t.paused = 0;
    hy_process_pause(t.p, 1, 0);
    assert_int_equal(t.total[1], 0); /* never from inside a call */
    run_to_end(&t);
    assert_string_equal((char *)t.first[1], "held back\n");
}

static void test_any_bytes_come_through(void **state)
{
    struct trial t;

    START(*state, &t, 0, "sh", "-c", "printf '\\000\\377\\n\\r\\033'; printf '\\200' >&2");
    run_to_end(&t);
    assert_int_equal(t.total[1], 5);
    assert_memory_equal(t.first[1], "\0\377\n\r\033", 5);
    assert_int_equal(t.total[2], 1);
}

static void test_a_pipe_held_by_a_stranger_does_not_delay_the_end(void **state)
{
    struct bench *b = *state;
    struct trial t;
    char path[64];
    int held;

    START(b, &t, 0, HELPER("stay"));
    run_to_text(&t, "pid ", 1);
    snprintf(path, sizeof path, "/proc/%d/fd/1", (int)hy_process_pid(t.p));
    held = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(held >= 0);
    hy_process_kill(t.p, 0);
    run_to_end(&t);
    close(held);
}

/* ---- descendants ---- */

static void test_what_a_trial_leaves_behind_is_ended(void **state)
{
    struct trial t;

    START(*state, &t, 0, HELPER("daemon"));
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    assert_int_equal(t.end.code, 5);
    assert_int_equal(count_text((char *)t.first[1], "pid "), 1);
    assert_int_equal(still_there(&t), 0);
}

static void test_a_daemon_with_an_empty_environment_is_ended(void **state)
{
    struct trial t;

    START(*state, &t, 0, HELPER("daemon", "bare"));
    run_to_end(&t);
    assert_true(count_text((char *)t.first[1], "pid ") >= 1);
    assert_int_equal(still_there(&t), 0);
}

static void test_a_daemon_ends_with_its_own_trial_only(void **state)
{
    struct bench *b = *state;
    struct trial stays, leaves;

    START(b, &stays, 0, HELPER("children"));
    run_to_text(&stays, "pid ", 4);
    START(b, &leaves, 0, HELPER("daemon"));
    run_to_end(&leaves);
    assert_int_equal(still_there(&leaves), 0);
    assert_int_equal(still_there(&stays), 4);
    hy_process_kill(stays.p, 0);
    run_to_end(&stays);
    assert_int_equal(still_there(&stays), 0);
}

static void count_child(void *arg, pid_t pid)
{
    (void)pid;
    ++*(int *)arg;
}

static void test_orphans_that_end_are_reaped_at_once(void **state)
{
    struct bench *b = *state;
    struct trial t;
    int count;

    START(b, &t, 0, HELPER("mayflies"));
    run_to_text(&t, "ready", 1);
    for (count = 0; count != 1; uv_run(&b->loop, UV_RUN_NOWAIT)) { /* only the main process stays */
        count = 0;
        hy_children_each(count_child, &count);
    }
    hy_process_kill(t.p, 0);
    run_to_end(&t);
}

static void test_other_children_of_this_program_are_left_alone(void **state)
{
    pid_t alive = fork(), dead;
    struct trial t;
    int status;

    if (alive == 0)
        stay();
    dead = fork();
    if (dead == 0)
        _exit(3);
    waitid(P_PID, (id_t)dead, &(siginfo_t){0}, WEXITED | WNOWAIT);
    START(*state, &t, 0, HELPER("daemon", "bare"));
    run_to_end(&t);
    assert_int_equal(still_there(&t), 0);
    assert_int_equal(waitpid(dead, &status, WNOHANG), dead);
    assert_int_equal(WEXITSTATUS(status), 3);
    assert_int_equal(waitpid(alive, &status, WNOHANG), 0);
    kill(alive, SIGKILL);
    waitpid(alive, &status, 0);
}

static void test_last_words_of_a_child_are_heard(void **state)
{
    struct trial t;

    START(*state, &t, 0, HELPER("last-words"));
    run_to_end(&t);
    assert_string_equal((char *)t.first[1], "last words\n");
}

static void test_kill_ends_grandchildren_that_ignore_sigterm(void **state)
{
    struct trial t;

    START(*state, &t, 0, HELPER("children"));
    run_to_text(&t, "pid ", 4);
    hy_process_kill(t.p, 50);
    hy_process_kill(t.p, 20);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_KILLED);
    assert_int_equal(t.end.code, SIGKILL);
    assert_int_equal(still_there(&t), 0);
}

static void test_kill_asks_politely_first(void **state)
{
    struct trial t;

    START(*state, &t, 0, "sh", "-c",
          "trap 'echo bye; exit 4' TERM; echo ready; while :; do sleep 0.01; done");
    run_to_text(&t, "ready", 1);
    hy_process_kill(t.p, 600000);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_KILLED);
    assert_int_equal(t.end.code, 4);
    assert_string_equal((char *)t.first[1], "ready\nbye\n");
}

static void test_a_stopped_trial_hears_sigterm(void **state)
{
    struct trial t;

    START(*state, &t, 0, "sh", "-c", "echo ready; kill -STOP $$");
    run_to_text(&t, "ready", 1);
    hy_process_kill(t.p, 600000);
    run_to_end(&t);
    assert_int_equal(t.end.code, SIGTERM);
}

static void test_a_hydra_is_ended(void **state)
{
    struct trial t;

    START(*state, &t, 0, HELPER("hydra", "4"));
    run_to_text(&t, "pid ", 31);
    hy_process_kill(t.p, 0);
    run_to_end(&t);
    assert_int_equal(still_there(&t), 0);
}

static void test_a_trial_past_its_time_is_ended(void **state)
{
    struct hy_process_spec spec = {.tag = "t", .argv = ARGV("sleep", "1000"), .env = environ, .cwd = "/",
                                   .timeout_ms = 90};
    struct hy_err err = {0};
    struct trial t;

    assert_int_equal(start_spec(*state, &t, &spec, &err), 0);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_TIMED_OUT);
    assert_string_equal(t.message, "killed: ran longer than the 0.09s it may take; raise --timeout");
}

static void test_many_at_once(void **state)
{
    struct bench *b = *state;
    static struct trial t[60];
    int left = 60;

    for (int i = 0; i < 60; i++) {
        char code[16];

        snprintf(code, sizeof code, "exit %d", i);
        START(b, &t[i], 0, "sh", "-c", code);
    }
    while (left) {
        uv_run(&b->loop, UV_RUN_ONCE);
        left = 0;
        for (int i = 0; i < 60; i++)
            left += !t[i].ended;
    }
    for (int i = 0; i < 60; i++) {
        assert_int_equal(t[i].ended, 1);
        assert_int_equal(t[i].end.code, i);
    }
}

/* ---- memory: each of these runs with cgroups, where there are some, and with the watch ---- */

static void test_over_the_limit_only_that_trial_is_killed(void **state)
{
    struct bench *b = *state;
    struct trial big, neighbour;

    START(b, &neighbour, 512 * MB, HELPER("stay"));
    run_to_text(&neighbour, "pid ", 1);
    START(b, &big, 128 * MB, HELPER("memory-in-child", "400"));
    run_to_end(&big);
    assert_int_equal(big.end.outcome, HY_PROCESS_OVER_MEMORY);
    assert_memory_equal(big.message, "killed: used ", 13);
    assert_non_null(strstr(big.message, " of the 128.0 MB it may use; raise --memory"));
    assert_true(big.end.peak_memory >= 128 * MB);
    assert_int_equal(still_there(&big), 0);
    assert_false(neighbour.ended);
    assert_int_equal(still_there(&neighbour), 1);
    hy_process_kill(neighbour.p, 0);
    run_to_end(&neighbour);
    assert_int_equal(neighbour.end.outcome, HY_PROCESS_KILLED);
}

static void test_shared_memory_counts(void **state)
{
    struct trial t;

    START(*state, &t, 128 * MB, HELPER("memory-shared", "400"));
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_OVER_MEMORY);
}

static void test_pages_shared_by_a_fork_count_once(void **state)
{
    struct bench *b = *state;
    struct trial t;

    START(b, &t, 400 * MB, HELPER("memory-forked", "200"));
    run_to_text(&t, "ready", 1);
    hy_watch_tick(&b->s->watch_timer); /* five processes with 200 MB each, and one limit of 400 */
    assert_int_equal(t.p->stage, HY_STAGE_RUNNING);
    assert_in_range(t.p->used, 200 * MB, 400 * MB);
    hy_process_kill(t.p, 0);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_KILLED);
}

static void test_a_child_before_exec_does_not_count_twice(void **state)
{
    struct bench *b = *state;
    size_t procs = 0;
    struct trial t;

    START(b, &t, 350 * MB, HELPER("vfork", "200"));
    run_to_text(&t, "ready", 1);
    while (procs < 2) { /* the child is there */
        b->s->census_at = -1;
        assert_int_equal(hy_family_census(b->s), 0);
        procs = 0;
        for (size_t i = 0; i < b->s->census.n; i++)
            procs += b->s->census.list[i].owner == t.p;
    }
    hy_watch_tick(&b->s->watch_timer);
    assert_int_equal(t.p->stage, HY_STAGE_RUNNING);
    assert_in_range(t.p->used, 200 * MB, 350 * MB);
    hy_process_kill(t.p, 0);
    run_to_end(&t);
}

static void test_files_read_and_written_are_not_a_trials_memory(void **state)
{
    char folder[] = "/tmp/hopyard-test-XXXXXX", command[256];
    struct trial t;

    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "cd %s && dd if=/dev/zero of=big bs=1M count=300 2>/dev/null && cat big >/dev/null; rm big",
             folder);
    START(*state, &t, 64 * MB, "sh", "-c", command);
    run_to_end(&t);
    rmdir(folder);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    assert_int_equal(t.end.code, 0);
}

static void test_the_peak_is_reported(void **state)
{
    struct trial t;

    START(*state, &t, 4096 * MB, HELPER("memory", "300"));
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    assert_in_range(t.end.peak_memory, 300 * MB, 600 * MB);
}

static void assert_place(enum hy_cgroup_kind kind, const char *own, const char *mounts, const char *expected)
{
    struct hy_cgroup_place place;
    char path[2 * PATH_MAX];
    int rc = hy_cgroup_locate(kind, own, mounts, &place);

    if (!expected) {
        assert_int_equal(rc, -ENOENT);
        return;
    }
    assert_int_equal(rc, 0);
    snprintf(path, sizeof path, "%s%s", place.mount, place.own);
    assert_string_equal(path, expected);
}

static void test_our_cgroup_is_found(void **state)
{
    static const char v1[] = "30 20 0:9 / /sys rw shared:7 - sysfs sysfs rw\n"
                             "31 30 0:28 / /cg/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
                             "32 30 0:29 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n"
                             "33 30 0:30 / /cg/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
    static const char inside[] = "32 30 0:29 /docker/ab /cg/memory ro master:3 - cgroup cgroup rw,memory\n";

    (void)state;
    assert_place(HY_CGROUP_V1, "5:cpu,cpuacct:/c\n4:memory:/user/a:b\n0::/x\n", v1, "/cg/memory/user/a:b");
    assert_place(HY_CGROUP_V2, "4:memory:/user\n0::/user.slice/s.scope\n", v1,
                 "/cg/unified/user.slice/s.scope");
    assert_place(HY_CGROUP_V2, "0::/\n", v1, "/cg/unified");
    assert_place(HY_CGROUP_V1, "4:memory:/docker/ab\n", inside, "/cg/memory");
    assert_place(HY_CGROUP_V1, "4:memory:/docker/ab/c\n", inside, "/cg/memory/c");
    assert_place(HY_CGROUP_V1, "4:memory:/docker/abc\n", inside, "/cg/memory");
    assert_place(HY_CGROUP_V2, "0::/../../b\n", v1, "/cg/unified");
    assert_place(HY_CGROUP_V2, "4:memory:/user\n", v1, NULL);
    assert_place(HY_CGROUP_V1, "4:memoryx:/user\n", v1, NULL);
    assert_place(HY_CGROUP_V2, "0::/", inside, NULL);
    assert_place(HY_CGROUP_V1, "garbage\n:\n::\n4:memory:relative\n", v1, NULL);
    assert_place(HY_CGROUP_V1, "4:memory:/", "- - -\n - cgroup\n", NULL);
}

static int count_trial_cgroups(const struct hy_supervisor *s)
{
    DIR *d = opendir(s->cgroup.path);
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)))
        n += e->d_type == DT_DIR && e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void test_cgroups_are_made_and_removed(void **state)
{
    struct bench *b = *state;
    char path[PATH_MAX];
    struct trial t;

    if (b->s->cgroup.kind == HY_CGROUP_NONE)
        skip();
    START(b, &t, 0, "true");
    assert_int_equal(count_trial_cgroups(b->s), 0); /* no limit, no cgroup */
    run_to_end(&t);
    START(b, &t, 64 * MB, "true");
    assert_int_equal(count_trial_cgroups(b->s), 1);
    run_to_end(&t);
    assert_int_equal(count_trial_cgroups(b->s), 0);
    snprintf(path, sizeof path, "%s", b->s->cgroup.path);
    close_bench(b);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(open_bench(b, NULL), 0);
}

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
    assert_int_equal(hy_mark_alive("-4:2"), -EINVAL);
    assert_int_equal(hy_mark_alive(""), -EINVAL);
    assert_int_equal(hy_mark_alive("1:99999999999"), 0);
}

/* ---- faults ---- */

struct scenario {
    uint64_t memory;
    char *const *argv;
    int kill;
};

static int live_and_end(void *arg)
{
    const struct scenario *sc = arg;
    struct hy_process_spec spec = {
        .tag = "faulty", .argv = sc->argv, .env = environ, .cwd = "/", .memory = sc->memory};
    struct hy_err err = {0};
    struct trial t = {0};
    struct bench b;
    int rc = open_bench(&b, &err);

    if (rc < 0)
        return err.text[0] ? rc : 1;
    rc = start_spec(&b, &t, &spec, &err);
    if (rc == 0 && sc->kill) {
        while (!t.total[1] && !t.ended)
            uv_run(&b.loop, UV_RUN_ONCE);
        hy_process_kill(t.p, 0);
    }
    while (rc == 0 && !t.ended)
        uv_run(&b.loop, UV_RUN_ONCE);
    close_bench(&b);
    if (has_children() || still_there(&t) || count_fds() != fds_before)
        return 2;
    return rc < 0 && !err.text[0] ? 3 : rc;
}

static void each_fault(struct scenario *sc)
{
    alarm(WATCHDOG_S);
    fds_before = count_fds();
    hy_each_fault(HY_SEAM_ALLOC, live_and_end, sc);
    hy_each_fault(HY_SEAM_SYS, live_and_end, sc);
    alarm(0);
}

static void test_faults_in_a_short_life(void **state)
{
    struct scenario sc = {.argv = ARGV("true")};

    (void)state;
    each_fault(&sc);
}

static void test_faults_in_a_life_with_a_limit(void **state)
{
    struct scenario sc = {.argv = ARGV("true"), .memory = 64 * MB};

    (void)state;
    each_fault(&sc);
}

static void test_faults_while_a_family_is_killed(void **state)
{
    struct scenario sc = {.argv = ARGV(self_path, "helper", "children"), .kill = 1};

    (void)state;
    each_fault(&sc);
}

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

#define LIVE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
#define BOTH(f) LIVE(f), {#f "_by_watch", f, set_up_watch, tear_down, NULL}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        LIVE(test_exit_status_and_both_streams_arrive),
        LIVE(test_death_by_signal_is_told),
        LIVE(test_cpu_time_is_counted),
        LIVE(test_what_cannot_be_started_gets_a_sentence),
        LIVE(test_the_path_of_the_trial_is_searched),
        LIVE(test_a_trial_inherits_nothing_but_its_three_files),
        LIVE(test_a_trial_gets_the_users_limit_of_open_files),
        LIVE(test_the_marks_of_an_outer_trial_are_replaced),
        LIVE(test_a_flood_is_read_piece_by_piece_with_pauses),
        LIVE(test_the_end_waits_for_a_paused_pipe),
        LIVE(test_any_bytes_come_through),
        LIVE(test_a_pipe_held_by_a_stranger_does_not_delay_the_end),
        LIVE(test_what_a_trial_leaves_behind_is_ended),
        LIVE(test_a_daemon_with_an_empty_environment_is_ended),
        LIVE(test_a_daemon_ends_with_its_own_trial_only),
        LIVE(test_orphans_that_end_are_reaped_at_once),
        LIVE(test_other_children_of_this_program_are_left_alone),
        LIVE(test_last_words_of_a_child_are_heard),
        LIVE(test_kill_ends_grandchildren_that_ignore_sigterm),
        LIVE(test_kill_asks_politely_first),
        LIVE(test_a_stopped_trial_hears_sigterm),
        LIVE(test_a_hydra_is_ended),
        LIVE(test_a_trial_past_its_time_is_ended),
        LIVE(test_many_at_once),
        BOTH(test_over_the_limit_only_that_trial_is_killed),
        BOTH(test_shared_memory_counts),
        {"test_pages_shared_by_a_fork_count_once", test_pages_shared_by_a_fork_count_once, set_up_watch,
         tear_down, NULL},
        {"test_a_child_before_exec_does_not_count_twice", test_a_child_before_exec_does_not_count_twice,
         set_up_watch, tear_down, NULL},
        cmocka_unit_test(test_our_cgroup_is_found),
        BOTH(test_files_read_and_written_are_not_a_trials_memory),
        BOTH(test_the_peak_is_reported),
        LIVE(test_cgroups_are_made_and_removed),
        cmocka_unit_test(test_the_keeper_ends_what_a_killed_agent_left),
        cmocka_unit_test(test_the_keeper_passes_signals_on_and_exits_as_its_child),
        cmocka_unit_test(test_a_killed_drivers_agents_are_asked_to_end),
        cmocka_unit_test(test_a_child_sees_that_its_keeper_is_gone),
        cmocka_unit_test(test_a_sweep_ends_what_dead_agents_left),
        cmocka_unit_test(test_a_sweep_removes_cgroups_of_dead_agents),
        cmocka_unit_test(test_marks_are_read_strictly),
        cmocka_unit_test(test_faults_in_a_short_life),
        cmocka_unit_test(test_faults_in_a_life_with_a_limit),
        cmocka_unit_test(test_faults_while_a_family_is_killed),
        cmocka_unit_test(test_faults_at_the_keepers_birth),
    };

    if (readlink("/proc/self/exe", self_path, sizeof self_path - 1) < 0)
        return 2;
    if (argc > 2 && strcmp(argv[1], "helper") == 0)
        return run_helper(argv + 2);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
