/* SPDX-License-Identifier: Apache-2.0 */
/* Trials that another process forks for us, and servers that do it badly (fork_server.h). */
#include "process_bench.h"

#include <signal.h>

#include "supervise/internal.h"
#include "fork_server.h"

struct server {
    struct bench *bench;
    struct hy_fork_server *w;
    int ready, over, refused;
    char why[600];
};

static void on_ready(void *arg, struct hy_fork_server *w)
{
    struct server *s = arg;

    assert_ptr_equal(w, s->w);
    s->ready++;
}

static void on_over(void *arg, struct hy_fork_server *w, int refused, const char *why)
{
    struct server *s = arg;

    (void)w;
    s->over++;
    s->refused = refused;
    snprintf(s->why, sizeof s->why, "%s", why);
}

static const struct hy_fork_server_events server_events = {on_ready, on_over};

static int start_mode(struct bench *b, struct server *s, const char *mode, struct hy_err *err)
{
    char tag[HY_FORK_SERVER_TAG + 1];
    struct hy_process_spec spec = {.tag = tag, .argv = ARGV(self_path, "server", mode), .env = environ, .cwd = "/"};

    memset(tag, '_', HY_FORK_SERVER_TAG);
    tag[HY_FORK_SERVER_TAG] = '\0';
    *s = (struct server){.bench = b};
    return hy_fork_server_start(b->s, &spec, &server_events, s, &s->w, err);
}

static void start_server(struct bench *b, struct server *s, const char *mode)
{
    struct hy_err err = {0};

    if (start_mode(b, s, mode, &err) < 0)
        fail_msg("%s", err.text);
    while (!s->ready && !s->over)
        uv_run(&b->loop, UV_RUN_ONCE);
}

static void end_server(struct server *s)
{
    if (!s->over)
        hy_fork_server_end(s->w);
    while (!s->over)
        uv_run(&s->bench->loop, UV_RUN_ONCE);
    assert_int_equal(s->over, 1);
}

static int fork_trial_of(struct server *s, struct trial *t, char **env, uint64_t memory, struct hy_err *err)
{
    struct hy_process_spec spec = {.tag = "7.1.1", .env = env, .cwd = "/tmp", .memory = memory, .fork_server = s->w};

    return start_spec(s->bench, t, &spec, err);
}

#define FORK(s, t, ...)                                                                                                \
    do {                                                                                                               \
        struct hy_err err_ = {0};                                                                                      \
        if (fork_trial_of((s), (t), ARGV(__VA_ARGS__), 0, &err_) < 0)                                                  \
            fail_msg("%s", err_.text);                                                                                 \
    } while (0)

/* ---- one that works ---- */

HY_TEST_WITH(test_a_forked_trial_is_a_trial_like_any_other, set_up, tear_down)
{
    struct server s;
    struct trial t;

    start_server(*state, &s, "works");
    assert_int_equal(s.ready, 1);
    FORK(&s, &t, "TRIAL_SAYS=hello", "TRIAL_STATUS=3");
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    assert_int_equal(t.end.code, 3);
    assert_string_equal((char *)t.first[1], "/tmp hello kept=0\n");
    assert_string_equal((char *)t.first[2], "tag=7.1.1\n");
    end_server(&s);
}

HY_TEST_WITH(test_files_to_keep_are_kept, set_up, tear_down)
{
    int fds[] = {dup(1), dup(1), dup(1)};
    struct hy_process_spec spec = {
        .tag = "7.1.1", .env = ARGV("TRIAL_SAYS=x"), .cwd = "/tmp", .inherit = fds, .inherit_count = 3};
    struct hy_err err = {0};
    struct server s;
    struct trial t;

    start_server(*state, &s, "works");
    spec.fork_server = s.w;
    assert_int_equal(start_spec(*state, &t, &spec, &err), 0);
    run_to_end(&t);
    assert_string_equal((char *)t.first[1], "/tmp x kept=3\n");
    end_server(&s);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

HY_TEST_WITH(test_many_are_forked_at_once, set_up, tear_down)
{
    struct trial *trials = calloc(100, sizeof *trials);
    struct server s;

    start_server(*state, &s, "works");
    for (int i = 0; i < 100; i++)
        FORK(&s, &trials[i], "TRIAL_SAYS=x", "TRIAL_STATUS=5");
    for (int i = 0; i < 100; i++) {
        run_to_end(&trials[i]);
        assert_int_equal(trials[i].end.code, 5);
    }
    end_server(&s);
    free(trials);
}

HY_TEST_WITH(test_the_servers_death_does_not_touch_what_it_has_forked, set_up, tear_down)
{
    struct server s;
    struct trial t;

    start_server(*state, &s, "works");
    FORK(&s, &t, "TRIAL_SAYS=x", "TRIAL_STAYS=1");
    run_to_text(&t, "kept", 1);
    end_server(&s);
    assert_false(t.ended);
    assert_true(is_there(t.p->pid));
    hy_process_kill(t.p, 1000);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_KILLED);
}

static void run_within(struct server *s, struct trial *t, char **env, uint64_t memory)
{
    struct hy_err err = {0};

    if (fork_trial_of(s, t, env, memory, &err) < 0)
        fail_msg("%s", err.text);
    run_to_end(t);
}

/* The server's 100 MB do not count, the trial's own do. */
BOTH(test_a_forked_trials_memory_excludes_shared_pages)
{
    struct server s;
    struct trial t;

    start_server(*state, &s, "works");
    run_within(&s, &t, ARGV("TRIAL_SAYS=x", "TRIAL_STATUS=2"), 64 << 20);
    assert_int_equal(t.end.outcome, HY_PROCESS_EXITED);
    assert_int_equal(t.end.code, 2);
    assert_true(t.end.peak_memory < 64 << 20);
    run_within(&s, &t, ARGV("TRIAL_SAYS=x", "TRIAL_TAKES=80"), 64 << 20);
    assert_int_equal(t.end.outcome, HY_PROCESS_OVER_MEMORY);
    end_server(&s);
}

/* ---- starts that come to nothing ---- */

static void assert_not_started(struct bench *b, const char *mode, int code, const char *sentence)
{
    struct server s;
    struct trial t;

    start_server(b, &s, mode);
    FORK(&s, &t, "TRIAL_SAYS=x");
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_NOT_STARTED);
    assert_int_equal(t.end.code, code);
    if (!strstr(t.message, sentence))
        fail_msg("'%s' is not in: %s", sentence, t.message);
    end_server(&s);
}

HY_TEST_WITH(test_a_failed_fork_reports_why, set_up, tear_down)
{
    assert_not_started(*state, "refuses trials", -ENOTSUP, "there are threads");
    assert_not_started(*state, "cannot fork", -ENOMEM, "cannot fork: out of memory");
    assert_not_started(*state, "has no folder", -EIO, "cannot enter the folder");
    assert_not_started(*state, "babbles to trials", -EPROTO, "sent an invalid message");
    assert_not_started(*state, "is alien", -EAGAIN, "is not our child");
    assert_not_started(*state, "closes", -EAGAIN, "it died before it started");
    assert_not_started(*state, "dies at work", -EAGAIN, "it died before it started");
}

HY_TEST_WITH(test_a_trial_may_be_killed_before_it_has_begun, set_up, tear_down)
{
    struct server s;
    struct trial t;

    start_server(*state, &s, "is slow");
    FORK(&s, &t, "TRIAL_SAYS=x");
    hy_process_kill(t.p, 1000);
    assert_false(t.ended);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_KILLED);
    end_server(&s);
}

/* Dead children whom nobody knows are reaped; this one we were about to know. */
HY_TEST_WITH(test_a_trial_may_die_before_its_pid_is_known, set_up, tear_down)
{
    struct bench *b = *state;
    siginfo_t dead;
    struct server s;
    struct trial t;

    start_server(b, &s, "works");
    FORK(&s, &t, "TRIAL_SAYS=x", "TRIAL_DIES=1");
    assert_int_equal(waitid(P_ALL, 0, &dead, WEXITED | WNOWAIT), 0);
    b->s->snapshot_at = -1;
    assert_int_equal(hy_descendants_find(b->s), 0);
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_NOT_STARTED);
    assert_int_equal(t.end.code, -EAGAIN);
    end_server(&s);
}

HY_TEST_WITH(test_a_server_that_hangs_is_not_waited_for_without_end, set_up, tear_down)
{
    struct server s;
    struct trial t;

    start_server(*state, &s, "is slow");
    FORK(&s, &t, "TRIAL_SAYS=x");
    assert_true(uv_is_active((uv_handle_t *)&t.p->timer));
    uv_timer_start(&t.p->timer, t.p->timer.timer_cb, 0, 0); /* that time is over */
    run_to_end(&t);
    assert_int_equal(t.end.outcome, HY_PROCESS_NOT_STARTED);
    assert_int_equal(t.end.code, -ETIMEDOUT);
    assert_string_equal(t.message, "the fork server does not answer");
    end_server(&s);
}

HY_TEST_WITH(test_a_server_that_is_gone_cannot_be_asked, set_up, tear_down)
{
    struct hy_err err = {0};
    struct server s;
    struct trial t;

    start_server(*state, &s, "works");
    hy_fork_server_end(s.w);
    assert_int_equal(fork_trial_of(&s, &t, ARGV("TRIAL_SAYS=x"), 0, &err), -EAGAIN);
    end_server(&s);
}

/* ---- servers that never begin ---- */

static void assert_over(struct bench *b, const char *mode, int refused, const char *sentence)
{
    struct server s;

    start_server(b, &s, mode);
    end_server(&s);
    assert_int_equal(s.ready, 0);
    assert_int_equal(s.refused, refused);
    if (!strstr(s.why, sentence))
        fail_msg("'%s' is not in: %s", sentence, s.why);
}

HY_TEST_WITH(test_a_server_that_fails_reports_why, set_up, tear_down)
{
    assert_over(*state, "refuses", 1, "it has run an operation");
    assert_over(*state, "dies", 0, "ImportError: no luck");
    assert_over(*state, "babbles", 0, "");
}

/* ---- faults ---- */

static int live_and_end(void *arg)
{
    struct hy_err err = {0};
    struct bench b;
    struct server s;
    struct trial t = {0};
    int rc;

    (void)arg;
    if (open_bench(&b, &err) < 0)
        return -1;
    rc = start_mode(&b, &s, "works", &err);
    if (rc == 0) {
        while (!s.ready && !s.over)
            uv_run(&b.loop, UV_RUN_ONCE);
        rc = fork_trial_of(&s, &t, ARGV("TRIAL_SAYS=x", "TRIAL_STATUS=3"), 0, &err);
        if (rc == 0)
            run_to_end(&t);
        rc = rc == 0 && t.end.outcome == HY_PROCESS_EXITED && t.end.code == 3 ? 0 : -1;
        end_server(&s);
    }
    close_bench(&b);
    return rc;
}

HY_TEST(test_faults_of_a_fork)
{
    alarm(WATCHDOG_S);
    hy_each_fault(HY_SEAM_ALLOC, live_and_end, NULL);
    hy_each_fault(HY_SEAM_SYS, live_and_end, NULL);
    assert_false(has_children());
    alarm(0);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "server") == 0)
        return run_server(argv[2]);
    return run_suite(argc, argv);
}
