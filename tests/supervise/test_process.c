/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real processes, supervised. The program that is started is mostly this one
 * (process_helpers.h, process_bench.h); each test ends by asking whether anything is left.
 */
#include "process_bench.h"

#include <signal.h>

#include "supervise/supervise.h"

/* ---- starting ---- */

HY_TEST_WITH(test_exit_status_and_both_streams_arrive, set_up, tear_down)
{
    struct trial t;

    START(*state, &t, 0, "sh", "-c", "echo out; echo err >&2; exit 3");
    assert_true(t.p->pid > 0);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    assert_int_equal(t.end.code, 3);
    assert_string_equal((char *)t.first[1], "out\n");
    assert_string_equal((char *)t.first[2], "err\n");
    assert_string_equal(t.message, "");
    assert_true(t.end.peak_memory > 0);
}

HY_TEST_WITH(test_death_by_signal_is_reported, set_up, tear_down)
{
    struct trial t;

    START(*state, &t, 0, "sh", "-c", "kill -9 $$");
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_SIGNALED);
    assert_int_equal(t.end.code, SIGKILL);
}

HY_TEST_WITH(test_cpu_time_is_counted, set_up, tear_down)
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

HY_TEST_WITH(test_a_failed_start_has_a_message, set_up, tear_down)
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
    assert_start_fails(*state, ARGV("/nonesuch"), env, folder, -ENOENT,
                       "cannot start '/nonesuch': there is no such file");
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

/* It is so for ordinary users only: root may search it. */
HY_TEST_WITH(test_directories_of_path_without_permission_are_skipped, set_up, tear_down)
{
    char folder[] = "/tmp/hopyard-test-XXXXXX", file[64], path[128];
    char *env[] = {path, NULL};

    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/plain", folder);
    snprintf(path, sizeof path, "PATH=%s:/nowhere", folder);
    write_file(file, "not a program", 0600);
    assert_start_fails(*state, ARGV("plain"), env, "/", -EACCES, "not executable");
    unlink(file);
    assert_int_equal(chmod(folder, 0), 0);
    assert_start_fails(*state, ARGV("nonesuch"), env, "/", -ENOENT,
                       "cannot start 'nonesuch': not found in PATH (/tmp/");
    if (geteuid() != 0)
        assert_start_fails(*state, ARGV(file), env, "/", -EACCES, "its directory is not accessible");
    rmdir(folder);
}

HY_TEST_WITH(test_the_path_of_the_trial_is_searched, set_up, tear_down)
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

HY_TEST_WITH(test_a_trial_inherits_nothing_but_its_three_files, set_up, tear_down)
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

HY_TEST_WITH(test_a_trial_gets_the_users_limit_of_open_files, set_up, tear_down)
{
    struct hy_process_spec spec = {
        .tag = "t", .argv = ARGV(HELPER("inspect")), .env = environ, .cwd = "/", .open_files = 77};
    struct hy_err err = {0};
    struct trial t;

    assert_int_equal(start_spec(*state, &t, &spec, &err), 0);
    run_to_end(&t);
    assert_non_null(strstr((char *)t.first[1], "files 77\n"));
}

HY_TEST_WITH(test_the_kernel_ends_a_trial_before_its_agent, set_up, tear_down)
{
    struct trial t;

    START(*state, &t, 0, "cat", "/proc/self/oom_score_adj");
    run_to_end(&t);
    assert_string_equal((char *)t.first[1], "500\n");
    START(*state, &t, 0, "sh", "-c", "cat /proc/$PPID/oom_score_adj");
    run_to_end(&t);
    assert_true(atoi((char *)t.first[1]) < 500);
}

HY_TEST_WITH(test_the_marks_of_an_outer_trial_are_replaced, set_up, tear_down)
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

HY_TEST_WITH(test_a_flood_is_read_piece_by_piece_with_pauses, set_up, tear_down)
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

HY_TEST_WITH(test_the_end_waits_for_a_paused_pipe, set_up, tear_down)
{
    struct bench *b = *state;
    struct trial t, other;

    START(b, &t, 0, "sh", "-c", "echo held back");
    hy_process_pause(t.p, 1, 1);
    t.paused = 1;
    while (is_there(t.p->pid))
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

HY_TEST_WITH(test_any_bytes_come_through, set_up, tear_down)
{
    struct trial t;

    START(*state, &t, 0, "sh", "-c", "printf '\\000\\377\\n\\r\\033'; printf '\\200' >&2");
    run_to_end(&t);
    assert_int_equal(t.total[1], 5);
    assert_memory_equal(t.first[1], "\0\377\n\r\033", 5);
    assert_int_equal(t.total[2], 1);
}

HY_TEST_WITH(test_a_pipe_held_by_another_process_does_not_delay_the_end, set_up, tear_down)
{
    struct bench *b = *state;
    struct trial t;
    char path[64];
    int held;

    START(b, &t, 0, HELPER("stay"));
    run_to_text(&t, "pid ", 1);
    snprintf(path, sizeof path, "/proc/%d/fd/1", (int)t.p->pid);
    held = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(held >= 0);
    hy_process_kill(t.p, 0);
    run_to_end(&t);
    close(held);
}

/* ---- descendants ---- */

HY_TEST_WITH(test_what_a_trial_leaves_behind_is_ended, set_up, tear_down)
{
    struct trial t;

    START(*state, &t, 0, HELPER("daemon"));
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    assert_int_equal(t.end.code, 5);
    assert_int_equal(count_text((char *)t.first[1], "pid "), 1);
    assert_int_equal(still_there(&t), 0);
}

HY_TEST_WITH(test_a_daemon_with_an_empty_environment_is_ended, set_up, tear_down)
{
    struct trial t;

    START(*state, &t, 0, HELPER("daemon", "bare"));
    run_to_end(&t);
    assert_true(count_text((char *)t.first[1], "pid ") >= 1);
    assert_int_equal(still_there(&t), 0);
}

HY_TEST_WITH(test_a_daemon_ends_with_its_own_trial_only, set_up, tear_down)
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

HY_TEST_WITH(test_orphans_that_end_are_reaped_at_once, set_up, tear_down)
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

HY_TEST_WITH(test_other_children_of_this_program_are_left_alone, set_up, tear_down)
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

HY_TEST_WITH(test_the_last_output_of_a_child_is_delivered, set_up, tear_down)
{
    struct trial t;

    START(*state, &t, 0, HELPER("last-words"));
    run_to_end(&t);
    assert_string_equal((char *)t.first[1], "last words\n");
}

HY_TEST_WITH(test_kill_ends_grandchildren_that_ignore_sigterm, set_up, tear_down)
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

HY_TEST_WITH(test_kill_asks_politely_first, set_up, tear_down)
{
    struct trial t;

    START(*state, &t, 0, "sh", "-c", "trap 'echo bye; exit 4' TERM; echo ready; while :; do sleep 0.01; done");
    run_to_text(&t, "ready", 1);
    hy_process_kill(t.p, 600000);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_KILLED);
    assert_int_equal(t.end.code, 4);
    assert_string_equal((char *)t.first[1], "ready\nbye\n");
}

HY_TEST_WITH(test_a_stopped_trial_handles_sigterm, set_up, tear_down)
{
    struct trial t;

    START(*state, &t, 0, "sh", "-c", "echo ready; kill -STOP $$");
    run_to_text(&t, "ready", 1);
    hy_process_kill(t.p, 600000);
    run_to_end(&t);
    assert_int_equal(t.end.code, SIGTERM);
}

HY_TEST_WITH(test_a_hydra_is_ended, set_up, tear_down)
{
    struct trial t;

    START(*state, &t, 0, HELPER("hydra", "4"));
    run_to_text(&t, "pid ", 31);
    hy_process_kill(t.p, 0);
    run_to_end(&t);
    assert_int_equal(still_there(&t), 0);
}

HY_TEST_WITH(test_a_trial_past_its_time_is_ended, set_up, tear_down)
{
    struct hy_process_spec spec = {
        .tag = "t", .argv = ARGV("sleep", "1000"), .env = environ, .cwd = "/", .timeout_ms = 90};
    struct hy_err err = {0};
    struct trial t;

    assert_int_equal(start_spec(*state, &t, &spec, &err), 0);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_TIMED_OUT);
    assert_string_equal(t.message, "killed: ran longer than the 0.09s it may take; raise the time limit");
}

HY_TEST_WITH(test_many_at_once, set_up, tear_down)
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

/* ---- faults ---- */

struct scenario {
    uint64_t memory;
    char *const *argv;
    int kill;
};

static int live_and_end(void *arg)
{
    const struct scenario *sc = arg;
    struct hy_process_spec spec = {.tag = "faulty", .argv = sc->argv, .env = environ, .cwd = "/", .memory = sc->memory};
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

HY_TEST(test_faults_in_a_short_life)
{
    struct scenario sc = {.argv = ARGV("true")};

    each_fault(&sc);
}

HY_TEST(test_faults_in_a_life_with_a_limit)
{
    struct scenario sc = {.argv = ARGV("true"), .memory = 64 * MB};

    each_fault(&sc);
}

HY_TEST(test_faults_while_a_family_is_killed)
{
    struct scenario sc = {.argv = ARGV(self_path, "helper", "children"), .kill = 1};

    each_fault(&sc);
}

int main(int argc, char **argv)
{
    return run_suite(argc, argv);
}
