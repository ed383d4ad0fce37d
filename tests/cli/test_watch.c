/* SPDX-License-Identifier: Apache-2.0 */
/* The command line as the client of a simulated driver, in a terminal and in a pipe. */
#include "support.h"

#include "project_fixture.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <uv.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "driver/driver.h"
#include "wire/wire.h"

/* ---- the simulated driver -------------------------------------------------------------------------- */

enum play {
    PLAY_RUN,     /* runs until it is stopped */
    PLAY_END,     /* sends two trials and ends */
    PLAY_DIE,     /* sends two trials and dies */
    PLAY_HANG_UP, /* sends two trials and closes the connection; then all three */
    PLAY_REFUSE,  /* sends an error */
    PLAY_DAMAGE,  /* as PLAY_END, but the store loses its trials in between */
    PLAY_OLDER,   /* as PLAY_HANG_UP, by a driver that sends trials and notes itself */
};

struct part {
    enum play play;
    struct project_fixture *project;
    uv_loop_t loop;
    struct hy_local *local;
    int calls;
};

static Hy__TrialView played_trial(int number)
{
    static char params[4][12] = {"", "{\"x\": 1}", "{\"x\": 2}", "{\"x\": 3}"};
    Hy__TrialView t = HY__TRIAL_VIEW__INIT;

    t.number = (uint64_t)number;
    t.params = params[number];
    t.state = (char *)"done";
    t.elapsed_ms = 1000;
    return t;
}

static void add_note(struct part *p, const char *note)
{
    struct hy_err err = {0};

    if (hy_store_note_add(p->project->store, p->project->run, &(struct hy_note_row){.time = 1, .text = note}, &err) <
            0 ||
        hy_store_commit(p->project->store, &err) < 0)
        _exit(1);
}

/* An update after which the first `ended` trials have ended in the store. */
static void tell(struct part *p, struct hy_local_conn *c, int ended, const char *state, const char *note)
{
    Hy__TrialView trials[3] = {played_trial(1), played_trial(2), played_trial(3)}, running = played_trial(3);
    Hy__TrialView *pointers[3] = {&trials[0], &trials[1], &trials[2]}, *running_pointer = &running;
    char *notes[] = {(char *)note};
    bool older = p->play == PLAY_OLDER;
    Hy__Update u = HY__UPDATE__INIT;
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;
    uint8_t bytes[4096];

    running.state = (char *)"running";
    u.run = p->project->run;
    u.name = (char *)"digits";
    u.state = (char *)state;
    u.last = strcmp(state, "running") != 0;
    u.total = 3;
    u.done = (uint64_t)ended;
    u.stopped = strcmp(state, "stopped") == 0;
    u.ended = pointers;
    u.n_ended = older ? (size_t)ended : 0;
    u.ended_seq = older ? 0 : 2 * (uint64_t)ended + 1; /* project_fixture.h */
    u.running = &running_pointer;
    u.n_running = u.last ? 0 : 1;
    u.left_ms = -1;
    u.notes = notes;
    u.n_notes = older && note;
    if (note && !older) {
        add_note(p, note);
        u.notes_until = 1;
    }
    answer.body_case = HY__CLIENT_ANSWER__BODY_UPDATE;
    answer.update = &u;
    assert_true(hy__client_answer__get_packed_size(&answer) <= sizeof bytes);
    hy_local_send(c, bytes, hy__client_answer__pack(&answer, bytes));
}

static void refuse(struct hy_local_conn *c)
{
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;
    uint8_t bytes[100];

    answer.body_case = HY__CLIENT_ANSWER__BODY_ERROR;
    answer.error = (char *)"not for you";
    hy_local_send(c, bytes, hy__client_answer__pack(&answer, bytes));
}

static void end_run(struct part *p, struct hy_local_conn *c, enum hy_run_state state)
{
    struct hy_err err = {0};

    hy_store_run_state(p->project->store, p->project->run, state, NULL, &err);
    hy_store_commit(p->project->store, &err);
    tell(p, c, state == HY_RUN_STOPPED ? 2 : 3, hy_run_state_name(state), NULL);
    hy_local_end(c);
}

static void lose_trials(struct part *p)
{
    hy_cleanup_free char *path = hy_path_join(hy_store_dir_path(p->project->store), "store.db");
    sqlite3 *db;

    if (!path || sqlite3_open(path, &db) != SQLITE_OK ||
        sqlite3_exec(db, "DROP TABLE trials", NULL, NULL, NULL) != SQLITE_OK || sqlite3_close(db) != SQLITE_OK)
        _exit(1);
}

static void on_watch(struct part *p, struct hy_local_conn *c)
{
    bool hangs_up = p->play == PLAY_HANG_UP || p->play == PLAY_OLDER;

    p->calls++;
    if (p->play == PLAY_REFUSE)
        refuse(c);
    else if (hangs_up && p->calls == 2)
        end_run(p, c, HY_RUN_DONE);
    else
        tell(p, c, 2, "running", p->play == PLAY_RUN ? "an agent has joined" : NULL);
    if (hangs_up)
        hy_local_end(c);
    if (p->play == PLAY_DAMAGE)
        lose_trials(p);
    if (p->play == PLAY_END || p->play == PLAY_DAMAGE)
        end_run(p, c, HY_RUN_DONE);
    if (p->play == PLAY_DIE) {
        hy_local_end(c);
        uv_run(&p->loop, UV_RUN_NOWAIT);
        _exit(0);
    }
}

static void on_open(void *arg, struct hy_local_conn *c)
{
    (void)arg;
    (void)c;
}

static void on_message(void *arg, struct hy_local_conn *c, const uint8_t *bytes, size_t n)
{
    struct part *p = arg;
    Hy__ClientRequest *r = hy__client_request__unpack(NULL, n, bytes);

    if (r && r->body_case == HY__CLIENT_REQUEST__BODY_WATCH)
        on_watch(p, c);
    else if (r && r->body_case == HY__CLIENT_REQUEST__BODY_STOP)
        end_run(p, c, HY_RUN_STOPPED);
    if (r)
        hy__client_request__free_unpacked(r, NULL);
}

/* Runs in the child: holds the run's lock and serves clients until it is killed. */
static void play_driver(struct project_fixture *y, enum play play, int ready)
{
    static const struct hy_local_events events = {on_open, on_message, on_open};
    struct part part = {.play = play, .project = y};
    struct hy_err err = {0};
    char *path;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no process remains after a failed test */
    hy_store_close(y->store);         /* SQLite connections must not be used after a fork */
    if (hy_store_open(y->project, HY_STORE_WRITE, &y->store, &err) < 0 || hy_store_run_lock(y->store, y->run, &err) < 0)
        _exit(1);
    path = hy_driver_socket(hy_store_dir_path(y->store), y->run, &err);
    uv_loop_init(&part.loop);
    if (!path || hy_local_listen(&part.loop, path, &events, &part, &part.local, &err) < 0 || write(ready, "x", 1) != 1)
        _exit(1);
    uv_run(&part.loop, UV_RUN_DEFAULT);
    _exit(0);
}

static pid_t driver_start(struct project_fixture *y, enum play play)
{
    int ready[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    fflush(stdout);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        play_driver(y, play, ready[1]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void driver_end(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- the client process ------------------------------------------------------------------------------ */

struct client {
    pid_t pid;
    int fd; /* the other end of the terminal or pipe */
    struct hy_buf said;
};

/* Runs the program in the child. */
static void be_client(struct project_fixture *y, char **words)
{
    char *argv[12] = {(char *)"hopyard"};
    int n = 1;

    while (words[n - 1]) {
        argv[n] = words[n - 1];
        n++;
    }
    argv[n++] = (char *)"--project";
    argv[n++] = y->project;
    hy_store_close(y->store);
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    hy_signals_close(); /* of earlier tests */
    signal(SIGHUP, SIG_DFL); /* also below nohup */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    exit(hy_cli_main(n, argv)); /* not _exit, so that leaks are detected */
}

static struct client client_start(struct project_fixture *y, bool terminal, char **words)
{
    struct winsize size = {.ws_row = 20, .ws_col = 80};
    struct client c = {.fd = -1};
    int ends[2] = {-1, -1};

    hy_buf_init(&c.said, 1 << 20);
    fflush(stdout);
    if (!terminal)
        assert_int_equal(pipe(ends), 0);
    c.pid = terminal ? forkpty(&c.fd, NULL, NULL, &size) : fork();
    assert_true(c.pid >= 0);
    if (c.pid == 0) {
        if (!terminal && (dup2(ends[1], 1) < 0 || dup2(ends[1], 2) < 0 || close(ends[0]) < 0))
            _exit(99);
        be_client(y, words);
    }
    if (!terminal) {
        close(ends[1]);
        c.fd = ends[0];
    }
    return c;
}

/* Reads more output. 0 at the end. */
static int client_read(struct client *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    char chunk[4096];
    ssize_t n;

    if (poll(&p, 1, 60000) <= 0)
        fail_msg("the client says no more than: %s", hy_buf_cstr(&c->said));
    n = read(c->fd, chunk, sizeof chunk);
    if (n <= 0)
        return 0;
    assert_int_equal(hy_buf_append(&c->said, chunk, (size_t)n), 0);
    return 1;
}

/* Reads until `text` was printed, and drops everything up to its end. */
static void client_awaits(struct client *c, const char *text)
{
    const char *said, *found;

    while (said = hy_buf_cstr(&c->said), !(found = strstr(said, text)))
        if (!client_read(c))
            fail_msg("the client ended without '%s': %s", text, said);
    hy_buf_consume(&c->said, (size_t)(found - said) + strlen(text));
}

static void client_types(struct client *c, const char *keys)
{
    assert_int_equal(write(c->fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

/* Reads to the end; returns the exit status. The rest of the output stays in `said`. */
static int client_ends(struct client *c)
{
    int status;

    while (client_read(c))
        ;
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    close(c->fd);
    if (!WIFEXITED(status))
        fail_msg("the client died of signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void assert_ends(struct client *c, int status)
{
    int got = client_ends(c);

    if (got != status)
        fail_msg("exit status %d, not %d: %s", got, status, hy_buf_cstr(&c->said));
    hy_buf_done(&c->said);
}

#define QUESTION "Stop the run (s), detach and leave it running (d), or continue (c)?"

HY_TEST(test_a_terminal_gets_a_live_table_and_a_summary)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_END);
    struct client c = client_start(y, true, WORDS("attach"));

    client_awaits(&c, "done  run 1 digits  3 of 3 trials");
    client_awaits(&c, "hopyard show 1");
    assert_ends(&c, HY_EXIT_OK);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_ctrl_c_prompts_and_the_terminal_is_restored)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, true, WORDS("attach"));
    struct termios live, after;

    client_awaits(&c, "note: an agent has joined");
    client_awaits(&c, "2/3");
    client_types(&c, "\003");
    client_awaits(&c, QUESTION);
    assert_int_equal(tcgetattr(c.fd, &live), 0);
    assert_false(live.c_lflag & ECHO);
    client_types(&c, "c");
    client_awaits(&c, "2/3");
    client_types(&c, "\003");
    client_awaits(&c, QUESTION);
    client_types(&c, "d");
    client_awaits(&c, "\033[?25h");
    client_awaits(&c, "run 1 continues");
    assert_int_equal(tcgetattr(c.fd, &after), 0);
    assert_true((after.c_lflag & (ECHO | ICANON)) == (ECHO | ICANON));
    assert_ends(&c, HY_EXIT_OK);
    assert_int_equal(kill(driver, 0), 0);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_s_stops_the_run_with_exit_status_130)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, true, WORDS("attach"));

    client_awaits(&c, "2/3");
    client_types(&c, "\003");
    client_awaits(&c, QUESTION);
    client_types(&c, "s");
    client_awaits(&c, "stopped  run 1 digits");
    assert_ends(&c, HY_EXIT_STOPPED);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_a_second_ctrl_c_stops_the_run)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, true, WORDS("attach"));

    client_awaits(&c, "2/3");
    client_types(&c, "\003");
    client_awaits(&c, QUESTION);
    client_types(&c, "\003");
    assert_ends(&c, HY_EXIT_STOPPED);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_a_resized_terminal_gets_a_new_frame)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, true, WORDS("attach"));
    struct winsize small = {.ws_row = 6, .ws_col = 24};

    client_awaits(&c, "0 agents, 0 slots");
    assert_int_equal(ioctl(c.fd, TIOCSWINSZ, &small), 0);
    client_awaits(&c, "…");
    assert_int_equal(kill(c.pid, SIGHUP), 0);
    assert_ends(&c, HY_EXIT_OK);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_a_pipe_gets_each_trial_once)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_HANG_UP);
    struct client c = client_start(y, false, WORDS("attach"));

    client_awaits(
        &c,
        "[1/3] trial 1 done  x=1  1.0s\n[2/3] trial 2 done  x=2  1.0s\n[3/3] trial 3 failed  x=3  1.0s  exit status 3\n"
        "run 1 done: 3 done");
    assert_ends(&c, HY_EXIT_OK);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_updates_of_an_older_driver_with_trials_are_accepted)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_OLDER);
    struct client c = client_start(y, false, WORDS("attach"));

    client_awaits(&c, "[1/3] trial 1 done  x=1  1.0s\n[2/3] trial 2 done  x=2  1.0s\n[3/3] trial 3 done  x=3  "
                      "1.0s\nrun 1 done: 3 done");
    assert_ends(&c, HY_EXIT_OK);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_an_interrupt_in_a_pipe_stops_the_run)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, false, WORDS("attach", (char *)"--json"));

    client_awaits(&c, "\"event\": \"note\"");
    assert_int_equal(kill(c.pid, SIGINT), 0);
    client_awaits(&c, "\"state\": \"stopped\"");
    assert_ends(&c, HY_EXIT_STOPPED);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_sigterm_does_not_stop_an_attached_run)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, false, WORDS("attach"));

    client_awaits(&c, "[2/3]");
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    client_awaits(&c, "watch it with: hopyard attach 1");
    assert_ends(&c, HY_EXIT_OK);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_a_closed_pipe_does_not_stop_the_run)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_END);
    struct client c = {0};
    int ends[2], status;

    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    fflush(stdout);
    c.pid = fork();
    if (c.pid == 0) {
        if (dup2(ends[1], 1) < 0)
            _exit(99);
        be_client(y, WORDS("attach"));
    }
    close(ends[1]);
    assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
    assert_true(WIFEXITED(status)); /* and not by SIGPIPE */
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_the_death_of_a_driver_is_reported)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_DIE);
    struct client c = client_start(y, false, WORDS("attach"));

    client_awaits(&c, "[2/3]");
    client_awaits(&c, "the driver of run 1 died");
    client_awaits(&c, "'hopyard resume 1' continues it");
    client_awaits(&c, "run-1.log");
    assert_ends(&c, HY_EXIT_FAILED);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_an_interrupted_notebook_detaches_silently)
{
    static const int signals[] = {SIGINT, SIGTERM};

    for (size_t i = 0; i < HY_COUNT(signals); i++) {
        struct project_fixture *y = project_new(HY_RUN_RUNNING);
        pid_t driver = driver_start(y, PLAY_RUN);
        struct client c = client_start(y, false, WORDS("attach", (char *)"--html"));

        client_awaits(&c, "● running");
        client_awaits(&c, "2/3");
        client_awaits(&c, "</div>\n");
        hy_buf_clear(&c.said);
        assert_int_equal(kill(c.pid, signals[i]), 0);
        assert_int_equal(client_ends(&c), HY_EXIT_OK);
        assert_null(strstr(hy_buf_cstr(&c.said), "hopyard"));
        assert_null(strstr(hy_buf_cstr(&c.said), "stopped"));
        hy_buf_done(&c.said);
        driver_end(driver);
        project_free(y);
    }
}

HY_TEST(test_the_last_html_fragment_shows_the_end)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_END);
    struct client c = client_start(y, false, WORDS("attach", (char *)"--html"));
    const char *said;

    assert_int_equal(client_ends(&c), HY_EXIT_OK);
    said = hy_buf_cstr(&c.said);
    while (strchr(said, '\n')[1])
        said = strchr(said, '\n') + 1;
    assert_non_null(strstr(said, "3 of 3 trials"));
    assert_non_null(strstr(said, "hopyard tensorboard 1"));
    hy_buf_done(&c.said);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_a_notebook_shows_the_death_of_a_driver)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_DIE);
    struct client c = client_start(y, false, WORDS("attach", (char *)"--html"));

    client_awaits(&c, "the driver of run 1 died");
    client_awaits(&c, "interrupted");
    assert_ends(&c, HY_EXIT_FAILED);
    driver_end(driver);
    project_free(y);
}

HY_TEST(test_an_unreadable_store_is_reported_and_the_end_is_shown)
{
    for (int terminal = 0; terminal < 2; terminal++) {
        struct project_fixture *y = project_new(HY_RUN_RUNNING);
        pid_t driver = driver_start(y, PLAY_DAMAGE);
        struct client c = client_start(y, terminal, WORDS("attach"));

        client_awaits(&c, "cannot read the trials of run 1: the store");
        client_awaits(&c, "is damaged");
        client_awaits(&c, terminal ? "done  run 1 digits  3 of 3 trials" : "run 1 done: 3 done");
        assert_ends(&c, HY_EXIT_FAILED);
        driver_end(driver);
        project_free(y);
    }
}

/* Without log files, which would take longer. */
static void end_trial(struct project_fixture *y, int64_t number, int64_t ended_seq)
{
    hy_cleanup_free char *params = hy_asprintf("{\"x\": %lld}", (long long)number);
    struct hy_trial_row row = {.number = number, .params = params, .state = HY_TRIAL_DONE, .ended_seq = ended_seq};
    struct hy_err err = {0};

    assert_int_equal(hy_store_trial_add(y->store, y->run, &row, NULL, &err), 0);
    assert_int_equal(hy_store_trial_end(y->store, y->run, &row, &err), 0);
}

/* A run with more trials than one batch. */
HY_TEST(test_a_long_history_is_printed_in_the_order_of_ending)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    struct hy_err err = {0};
    struct client c;
    char line[64];

    for (int64_t i = 5; i <= 1300; i++)
        end_trial(y, i, 4000 - i);
    assert_int_equal(hy_store_run_state(y->store, y->run, HY_RUN_DONE, NULL, &err), 0);
    assert_int_equal(hy_store_commit(y->store, &err), 0);
    c = client_start(y, false, WORDS("attach"));
    client_awaits(&c, "[1/5] trial 1 done  x=1 ");
    client_awaits(&c, "[3/5] trial 3 failed  x=3 ");
    for (int i = 4; i <= 1299; i++) {
        snprintf(line, sizeof line, "\n[%d/5] trial %d done  x=%d ", i, 1304 - i, 1304 - i);
        client_awaits(&c, line);
    }
    client_awaits(&c, "run 1 done: 1298 done, 1 failed");
    assert_ends(&c, HY_EXIT_FAILED);
    project_free(y);
}

HY_TEST(test_an_error_of_the_driver_is_printed)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_REFUSE);
    struct client c = client_start(y, false, WORDS("attach"));

    client_awaits(&c, "hopyard attach: not for you");
    assert_ends(&c, HY_EXIT_FAILED);
    driver_end(driver);
    project_free(y);
}

int main(int argc, char **argv)
{
    begin_plain();
    return hy_run_tests(argc > 1 ? argv[1] : NULL, make_runtime, remove_runtime);
}
