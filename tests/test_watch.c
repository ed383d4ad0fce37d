/* SPDX-License-Identifier: Apache-2.0 */
/* The command line as a person meets it: over a real store, and as the client
 * of a driver (a played one) in a terminal and in a pipe. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/js.h"
#include "cli/manage.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "driver/driver.h"
#include "store/store.h"
#include "wire/wire.h"

#define WORDS(...) ((char *[]){(char *)__VA_ARGS__, NULL})

/* A folder of the test's own, removed with hy_remove_tree. */
static char *make_folder(void)
{
    char *path = strdup("/tmp/hy-cli-XXXXXX");

    assert_non_null(path);
    assert_non_null(mkdtemp(path));
    return path;
}

static void remove_folder(char *path)
{
    assert_int_equal(hy_remove_tree(path), 0);
    free(path);
}

static void write_text(const char *folder, const char *name, const char *text, mode_t mode)
{
    hy_cleanup_free char *path = hy_path_join(folder, name);

    assert_int_equal(hy_file_write(path, text, strlen(text), 0600), 0);
    assert_int_equal(chmod(path, mode), 0);
}

/* ---- the whole program over a store -------------------------------------------------------------- */

struct yard {
    char *project;
    struct hy_store *store;
    int64_t run;
    char *logdir;
};

static void add_trial(struct yard *y, int64_t number, enum hy_trial_state state, double value,
                      const char *message)
{
    hy_cleanup_free char *params = hy_asprintf("{\"x\": %lld}", (long long)number),
                         *dir = hy_asprintf("x=%lld", (long long)number);
    struct hy_trial_row row = {.number = number,
                               .params = params,
                               .dir = dir,
                               .state = HY_TRIAL_RUNNING,
                               .attempts = 1,
                               .started = 1000,
                               .asked_seq = 2 * number};
    hy_cleanup_free char *used = NULL, *folder = NULL;
    struct hy_err err = {0};

    assert_int_equal(hy_store_trial_add(y->store, y->run, &row, &used, &err), 0);
    row.state = state;
    row.has_value = state == HY_TRIAL_DONE;
    row.value = value;
    row.message = message;
    row.ended = 2000;
    row.told_seq = 2 * number + 1;
    if (state != HY_TRIAL_RUNNING)
        assert_int_equal(hy_store_trial_end(y->store, y->run, &row, &err), 0);
    folder = hy_path_join(y->logdir, used);
    assert_int_equal(hy_mkdirs(folder, 0700), 0);
    write_text(folder, "stdout", number % 2 ? "odd\n" : "even\n", 0600);
    write_text(folder, "stderr", "trouble", 0600);
}

/* A project with one run: three trials have ended, one was running when its driver died. */
static struct yard *yard_new(enum hy_run_state state)
{
    struct yard *y = calloc(1, sizeof *y);
    struct hy_err err = {0};
    struct hy_run_row row = {.name = "digits",
                             .app_id = "local-1",
                             .app_run = 1,
                             .metric = "v",
                             .maximize = true,
                             .seed = 7,
                             .command = "[\"./train\", \"{x}\"]",
                             .versions = "{\"hopyard\": \"0.1.0\"}",
                             .spec = "",
                             .state = HY_RUN_RUNNING,
                             .created = 1000,
                             .total = 5};

    y->project = make_folder();
    y->logdir = hy_asprintf("%s/Logs/TensorFlow/local-1/1", y->project);
    row.logdir = y->logdir;
    if (hy_store_open(y->project, HY_STORE_WRITE, &y->store, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(hy_store_run_add(y->store, &row, &y->run, &err), 0);
    add_trial(y, 1, HY_TRIAL_DONE, 0.25, NULL);
    add_trial(y, 2, HY_TRIAL_DONE, 0.75, NULL);
    add_trial(y, 3, HY_TRIAL_FAILED, 0, "exit status 3");
    add_trial(y, 4, HY_TRIAL_RUNNING, 0, NULL);
    if (state != HY_RUN_RUNNING)
        assert_int_equal(hy_store_run_state(y->store, y->run, state, NULL, &err), 0);
    assert_int_equal(hy_store_commit(y->store, &err), 0);
    return y;
}

static void yard_free(struct yard *y)
{
    hy_store_close(y->store);
    remove_folder(y->project);
    free(y->logdir);
    free(y);
}

/* Runs the program; what it prints (standard output and error) is to be freed. */
static char *say(struct yard *y, int status, char **words)
{
    char *argv[16] = {(char *)"hopyard", NULL};
    hy_cleanup_free char *path = hy_path_join(y->project, "said");
    hy_cleanup_buf struct hy_buf text;
    int n = 1, fd, out = dup(1), error = dup(2), got;

    while (words[n - 1]) {
        argv[n] = words[n - 1];
        n++;
    }
    argv[n++] = (char *)"--project";
    argv[n++] = y->project;
    fflush(stdout);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && dup2(fd, 1) == 1 && dup2(fd, 2) == 2);
    got = hy_cli_main(n, argv);
    fflush(stdout);
    assert_true(dup2(out, 1) == 1 && dup2(error, 2) == 2);
    close(out);
    close(error);
    close(fd);
    hy_buf_init(&text, 1 << 20);
    assert_int_equal(hy_file_read(path, &text), 0);
    if (status >= 0 && got != status)
        fail_msg("exit status %d, not %d: %s", got, status, hy_buf_cstr(&text));
    return strdup(hy_buf_cstr(&text));
}

static void assert_says(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("'%s' does not say '%s'", text, what);
}

static void test_a_run_without_its_driver_is_interrupted(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    hy_cleanup_free char *ls = say(y, 0, WORDS("ls")), *show = say(y, 0, WORDS("show", (char *)"digits"));
    hy_cleanup_free char *stop = say(y, 0, WORDS("stop")), *attach = say(y, 1, WORDS("attach", (char *)"1"));

    (void)state;
    assert_says(ls, "interrupted");
    assert_says(ls, "3/5 (1 failed)");
    assert_says(ls, "v=0.75");
    assert_says(show, "`hopyard resume 1` goes on");
    assert_says(show, "2 done, 1 failed, 1 interrupted");
    assert_says(show, "./train {x}");
    assert_says(stop, "is not running");
    assert_says(attach, "'hopyard resume 1'");
    assert_says(attach, "run-1.log");
    yard_free(y);
}

static void test_show_lists_the_best_first_and_says_what_it_leaves_out(void **state)
{
    struct yard *y = yard_new(HY_RUN_DONE);
    hy_cleanup_free char *show = say(y, 0, WORDS("show", (char *)"--trials", (char *)"2"));
    hy_cleanup_free char *all = say(y, 0, WORDS("show", (char *)"--trials=all", (char *)"--by-number"));
    hy_cleanup_free char *none = say(y, 2, WORDS("show", (char *)"--trials", (char *)"0"));

    (void)state;
    assert_says(show, "x=2");
    assert_true(strstr(show, "x=2") < strstr(show, "x=1"));
    assert_says(show, "and 2 more: --trials all");
    assert_true(strstr(all, "x=1") < strstr(all, "x=2"));
    assert_says(all, "exit status 3");
    assert_null(strstr(all, "more"));
    assert_says(none, "--trials takes");
    yard_free(y);
}

static void test_json_can_be_read_back(void **state)
{
    struct yard *y = yard_new(HY_RUN_DONE);
    hy_cleanup_free char *ls = say(y, 0, WORDS("ls", (char *)"--json")),
                         *show = say(y, 0, WORDS("show", (char *)"--json"));
    hy_cleanup_free char *best = say(y, 0, WORDS("best", (char *)"--json"));
    hy_cleanup_json json_t *runs = json_loads(ls, 0, NULL), *shown = json_loads(show, 0, NULL),
                           *b = json_loads(best, 0, NULL);

    (void)state;
    assert_int_equal(json_array_size(runs), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(runs, 0), "state")), "done");
    assert_int_equal(json_array_size(json_object_get(shown, "trials")), 4);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(shown, "run"), "seed")), 7);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(b, "params"), "x")), 2);
    assert_true(json_real_value(json_object_get(b, "value")) == 0.75);
    yard_free(y);
}

static void test_an_ended_run_is_told_from_the_store(void **state)
{
    struct yard *y = yard_new(HY_RUN_DONE);
    hy_cleanup_free char *plain = say(y, 1, WORDS("attach")),
                         *json = say(y, 1, WORDS("attach", (char *)"--json"));

    (void)state;
    assert_says(plain, "run 1 digits: 5 trials, seed 7");
    assert_says(plain, "[2/5] done  x=2  v=0.75  1.0s");
    assert_says(plain, "[3/5] failed  x=3  1.0s  exit status 3");
    assert_says(plain, "run 1 done: 2 done, 1 failed");
    assert_says(json, "\"event\": \"end\"");
    yard_free(y);
}

static void test_logs_are_those_of_the_trial_asked_for(void **state)
{
    struct yard *y = yard_new(HY_RUN_DONE);
    hy_cleanup_free char *one = say(y, 0, WORDS("logs", (char *)"1", (char *)"2", (char *)"--stdout"));
    hy_cleanup_free char *all = say(y, 0, WORDS("logs")),
                         *follow = say(y, 0, WORDS("logs", (char *)"-f", (char *)"--stderr"));
    hy_cleanup_free char *none = say(y, 1, WORDS("logs", (char *)"1", (char *)"9"));
    hy_cleanup_free char *bad = say(y, 2, WORDS("logs", (char *)"1", (char *)"x"));

    (void)state;
    assert_string_equal(one, "even\n");
    assert_string_equal(
        all, "1 | odd\n1 ! trouble\n2 | even\n2 ! trouble\n3 | odd\n3 ! trouble\n4 | even\n4 ! trouble\n");
    assert_string_equal(follow, "1 ! trouble\n2 ! trouble\n3 ! trouble\n4 ! trouble\n");
    assert_says(none, "has no trial 9");
    assert_says(bad, "TRIAL is a trial's number");
    yard_free(y);
}

static void test_following_an_interrupted_run_ends_and_says_so(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    hy_cleanup_free char *follow = say(y, 1, WORDS("logs", (char *)"1", (char *)"4", (char *)"-f"));

    (void)state;
    assert_says(follow, "even\ntrouble");
    assert_says(follow, "run 1 is interrupted");
    yard_free(y);
}

static void test_rm_takes_the_run_and_its_logs(void **state)
{
    struct yard *y = yard_new(HY_RUN_DONE);
    hy_cleanup_free char *rm = say(y, 0, WORDS("rm", (char *)"digits")), *ls = say(y, 0, WORDS("ls"));
    hy_cleanup_free char *again = say(y, 1, WORDS("rm", (char *)"1"));
    hy_cleanup_free char *app = hy_path_join(y->project, "Logs/TensorFlow/local-1");

    (void)state;
    assert_says(rm, "run 1 is removed");
    assert_says(ls, "There are no runs here yet");
    assert_says(again, "no run");
    assert_int_equal(access(app, F_OK), -1);
    yard_free(y);
}

static void test_rm_refuses_a_run_that_lives(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    struct hy_err err = {0};
    int lock = hy_store_run_lock(y->store, y->run, &err);
    hy_cleanup_free char *rm = NULL, *resume = NULL;

    (void)state;
    assert_true(lock >= 0);
    rm = say(y, 1, WORDS("rm", (char *)"-f", (char *)"1"));
    resume = say(y, 1, WORDS("resume", (char *)"1"));
    assert_says(rm, "hopyard stop 1");
    assert_says(resume, "hopyard attach 1");
    assert_int_equal(access(y->logdir, F_OK), 0);
    close(lock);
    yard_free(y);
}

static void test_only_a_runs_own_folder_is_ever_removed(void **state)
{
    static const char *const bad[] = {"",
                                      "/",
                                      "Logs",
                                      "Logs/TensorFlow",
                                      "Logs/TensorFlow/a",
                                      "Logs/TensorFlow/a/1/trial",
                                      "Logs/TensorFlow/a/../../..",
                                      "Logs/TensorFlow/a/link",
                                      "other/a/1"};
    char *project = make_folder();
    hy_cleanup_free char *good = hy_path_join(project, "Logs/TensorFlow/a/1"),
                         *inner = hy_path_join(good, "trial");
    hy_cleanup_free char *other = hy_path_join(project, "other/a/1"),
                         *link = hy_path_join(project, "Logs/TensorFlow/a/link");

    (void)state;
    assert_int_equal(hy_mkdirs(inner, 0700), 0);
    assert_int_equal(hy_mkdirs(other, 0700), 0);
    assert_int_equal(symlink(other, link), 0);
    assert_int_equal(hy_logdir_is_safe(project, good), 1);
    for (size_t i = 0; i < HY_COUNT(bad); i++) {
        hy_cleanup_free char *path = hy_path_join(project, bad[i]);

        if (hy_logdir_is_safe(project, path) || hy_logdir_is_safe(project, bad[i]))
            fail_msg("'%s' would be removed", bad[i]);
    }
    assert_int_equal(hy_logdir_is_safe(project, NULL), 0);
    assert_int_equal(chdir(project), 0); /* a path that depends on where we are is not trusted */
    assert_int_equal(hy_logdir_is_safe(project, "Logs/TensorFlow/a/1"), 0);
    assert_int_equal(chdir("/"), 0);
    remove_folder(project);
}

static void test_the_program_says_what_it_does_not_know(void **state)
{
    struct yard *y = yard_new(HY_RUN_DONE);
    hy_cleanup_free char *command = say(y, 2, WORDS("shwo")), *run = say(y, 1, WORDS("show", (char *)"77"));
    hy_cleanup_free char *best = say(y, 1, WORDS("best", (char *)"nothing")),
                         *help = say(y, 0, WORDS("ls", (char *)"--help"));

    (void)state;
    assert_says(command, "did you mean 'show'?");
    assert_says(run, "77");
    assert_says(best, "nothing");
    assert_says(help, "Usage");
    yard_free(y);
}

static void test_a_project_without_a_store_has_no_runs(void **state)
{
    struct yard y = {.project = make_folder()};
    hy_cleanup_free char *ls = say(&y, 0, WORDS("ls")), *json = say(&y, 0, WORDS("ls", (char *)"--json"));
    hy_cleanup_free char *show = say(&y, 1, WORDS("show")), *folder = hy_path_join(y.project, ".hopyard");

    (void)state;
    assert_says(ls, "There are no runs here yet");
    assert_string_equal(json, "[]\n");
    assert_true(*show);
    assert_int_equal(access(folder, F_OK), -1); /* looking makes nothing */
    remove_folder(y.project);
}

static int look_scenario(void *arg)
{
    struct yard *y = arg;
    static char *const commands[][3] = {{(char *)"ls"},    {(char *)"ls", (char *)"--json"},
                                        {(char *)"show"},  {(char *)"show", (char *)"--json"},
                                        {(char *)"best"},  {(char *)"logs"},
                                        {(char *)"attach"}};
    int rc = 0;

    for (size_t i = 0; i < HY_COUNT(commands); i++) {
        char *argv[] = {(char *)"hopyard", commands[i][0], (char *)"--project",
                        y->project,        commands[i][1], NULL};
        int status = hy_cli_main(commands[i][1] ? 5 : 4, argv);

        /* `attach` answers 1: a trial of the run has failed. */
        if (status != (strcmp(commands[i][0], "attach") == 0))
            rc = -EIO;
    }
    return rc;
}

static void test_looking_survives_faults(void **state)
{
    struct yard *y = yard_new(HY_RUN_DONE);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC), out = dup(1), error = dup(2);

    (void)state;
    fflush(stdout);
    dup2(null, 1);
    dup2(null, 2);
    hy_each_fault(HY_SEAM_ALLOC, look_scenario, y);
    hy_each_fault(HY_SEAM_SYS, look_scenario, y);
    fflush(stdout);
    dup2(out, 1);
    dup2(error, 2);
    close(out);
    close(error);
    close(null);
    yard_free(y);
}

/* ---- a played driver ------------------------------------------------------------------------------- */

enum play {
    PLAY_RUN,     /* goes on until it is stopped */
    PLAY_END,     /* tells of two trials and ends well */
    PLAY_DIE,     /* tells of two trials and dies */
    PLAY_HANG_UP, /* tells of two trials, hangs up, and to the next caller of all three */
    PLAY_REFUSE,  /* answers with an error */
};

struct part {
    enum play play;
    struct yard *yard;
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

/* The first `ended` trials have ended. */
static void tell(struct part *p, struct hy_local_conn *c, int ended, const char *state, const char *note)
{
    Hy__TrialView trials[3] = {played_trial(1), played_trial(2), played_trial(3)}, running = played_trial(3);
    Hy__TrialView *pointers[3] = {&trials[0], &trials[1], &trials[2]}, *running_pointer = &running;
    char *notes[] = {(char *)note};
    Hy__Update u = HY__UPDATE__INIT;
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;
    uint8_t bytes[4096];

    running.state = (char *)"running";
    u.run = p->yard->run;
    u.name = (char *)"digits";
    u.state = (char *)state;
    u.last = strcmp(state, "running") != 0;
    u.total = 3;
    u.done = (uint64_t)ended;
    u.stopped = strcmp(state, "stopped") == 0;
    u.ended = pointers;
    u.n_ended = (size_t)ended;
    u.running = &running_pointer;
    u.n_running = u.last ? 0 : 1;
    u.left_ms = -1;
    u.notes = notes;
    u.n_notes = note != NULL;
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

    hy_store_run_state(p->yard->store, p->yard->run, state, NULL, &err);
    hy_store_commit(p->yard->store, &err);
    tell(p, c, state == HY_RUN_STOPPED ? 2 : 3, hy_run_state_name(state), NULL);
    hy_local_end(c);
}

static void on_watch(struct part *p, struct hy_local_conn *c)
{
    p->calls++;
    if (p->play == PLAY_REFUSE)
        refuse(c);
    else if (p->play == PLAY_HANG_UP && p->calls == 2)
        end_run(p, c, HY_RUN_DONE);
    else
        tell(p, c, 2, "running", p->play == PLAY_RUN ? "an agent has joined" : NULL);
    if (p->play == PLAY_HANG_UP)
        hy_local_end(c);
    if (p->play == PLAY_END)
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

/* In the child: holds the run's lock and answers until it is killed. */
static void play_driver(struct yard *y, enum play play, int ready)
{
    static const struct hy_local_events events = {on_open, on_message, on_open};
    struct part part = {.play = play, .yard = y};
    struct hy_err err = {0};
    char *path;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    hy_store_close(y->store);         /* SQLite must not be carried over a fork */
    if (hy_store_open(y->project, HY_STORE_WRITE, &y->store, &err) < 0 ||
        hy_store_run_lock(y->store, y->run, &err) < 0)
        _exit(1);
    path = hy_driver_socket(hy_store_folder(y->store), y->run, &err);
    uv_loop_init(&part.loop);
    if (!path || hy_local_listen(&part.loop, path, &events, &part, &part.local, &err) < 0 ||
        write(ready, "x", 1) != 1)
        _exit(1);
    uv_run(&part.loop, UV_RUN_DEFAULT);
    _exit(0);
}

static pid_t driver_start(struct yard *y, enum play play)
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

/* ---- a client, seen from outside --------------------------------------------------------------------- */

struct client {
    pid_t pid;
    int fd; /* the terminal's other side, or the pipe */
    struct hy_buf said;
};

/* In the child: the program itself. */
static void be_client(struct yard *y, char **words)
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
    hy_signals_close(); /* those of the tests before */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    exit(hy_cli_main(n, argv)); /* not _exit: leaks are looked for */
}

static struct client client_start(struct yard *y, bool terminal, char **words)
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

/* Reads what comes next. 0 at the end. */
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

/* Reads until `text` was said, and forgets what came before its end. */
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

/* Reads to the end; returns the exit status. The rest of what was said stays in `said`. */
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

#define QUESTION "Stop the run (s), detach and leave it running (d), or go on (c)?"

static void test_a_terminal_gets_a_live_table_and_a_summary(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_END);
    struct client c = client_start(y, true, WORDS("attach"));

    (void)state;
    client_awaits(&c, "done  run 1 digits  3 of 3 trials");
    client_awaits(&c, "hopyard show 1");
    assert_ends(&c, HY_EXIT_OK);
    driver_end(driver);
    yard_free(y);
}

static void test_ctrl_c_asks_and_the_terminal_is_as_it_was(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, true, WORDS("attach"));
    struct termios live, after;

    (void)state;
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
    client_awaits(&c, "run 1 goes on");
    assert_int_equal(tcgetattr(c.fd, &after), 0);
    assert_true((after.c_lflag & (ECHO | ICANON)) == (ECHO | ICANON));
    assert_ends(&c, HY_EXIT_OK);
    assert_int_equal(kill(driver, 0), 0);
    driver_end(driver);
    yard_free(y);
}

static void test_s_stops_the_run_and_answers_130(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, true, WORDS("attach"));

    (void)state;
    client_awaits(&c, "2/3");
    client_types(&c, "\003");
    client_awaits(&c, QUESTION);
    client_types(&c, "s");
    client_awaits(&c, "stopped  run 1 digits");
    assert_ends(&c, HY_EXIT_STOPPED);
    driver_end(driver);
    yard_free(y);
}

static void test_a_second_ctrl_c_stops_too(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, true, WORDS("attach"));

    (void)state;
    client_awaits(&c, "2/3");
    client_types(&c, "\003");
    client_awaits(&c, QUESTION);
    client_types(&c, "\003");
    assert_ends(&c, HY_EXIT_STOPPED);
    driver_end(driver);
    yard_free(y);
}

static void test_a_terminal_that_changes_its_size_gets_a_new_frame(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, true, WORDS("attach"));
    struct winsize small = {.ws_row = 6, .ws_col = 24};

    (void)state;
    client_awaits(&c, "0 agents, 0 slots");
    assert_int_equal(ioctl(c.fd, TIOCSWINSZ, &small), 0);
    client_awaits(&c, "…");
    assert_int_equal(kill(c.pid, SIGHUP), 0);
    assert_ends(&c, HY_EXIT_OK);
    driver_end(driver);
    yard_free(y);
}

static void test_a_pipe_is_told_of_each_trial_once(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_HANG_UP);
    struct client c = client_start(y, false, WORDS("attach"));

    (void)state;
    client_awaits(&c,
                  "[1/3] done  x=1  1.0s\n[2/3] done  x=2  1.0s\n[3/3] done  x=3  1.0s\nrun 1 done: 3 done");
    assert_ends(&c, HY_EXIT_OK);
    driver_end(driver);
    yard_free(y);
}

static void test_an_interrupt_in_a_pipe_stops_the_run(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, false, WORDS("attach", (char *)"--json"));

    (void)state;
    client_awaits(&c, "\"event\": \"note\"");
    assert_int_equal(kill(c.pid, SIGINT), 0);
    client_awaits(&c, "\"state\": \"stopped\"");
    assert_ends(&c, HY_EXIT_STOPPED);
    driver_end(driver);
    yard_free(y);
}

static void test_a_terminate_leaves_the_run_alone(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_RUN);
    struct client c = client_start(y, false, WORDS("attach"));

    (void)state;
    client_awaits(&c, "[2/3]");
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    client_awaits(&c, "come back with: hopyard attach 1");
    assert_ends(&c, HY_EXIT_OK);
    driver_end(driver);
    yard_free(y);
}

static void test_a_reader_who_leaves_does_not_end_the_run(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_END);
    struct client c = {0};
    int ends[2], status;

    (void)state;
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
    yard_free(y);
}

static void test_a_driver_that_dies_is_missed(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_DIE);
    struct client c = client_start(y, false, WORDS("attach"));

    (void)state;
    client_awaits(&c, "[2/3]");
    client_awaits(&c, "its driver has died");
    client_awaits(&c, "'hopyard resume 1' goes on");
    client_awaits(&c, "run-1.log");
    assert_ends(&c, HY_EXIT_FAILED);
    driver_end(driver);
    yard_free(y);
}

static void test_a_driver_that_refuses_is_quoted(void **state)
{
    struct yard *y = yard_new(HY_RUN_RUNNING);
    pid_t driver = driver_start(y, PLAY_REFUSE);
    struct client c = client_start(y, false, WORDS("attach"));

    (void)state;
    client_awaits(&c, "hopyard attach: not for you");
    assert_ends(&c, HY_EXIT_FAILED);
    driver_end(driver);
    yard_free(y);
}

/* ---- its own sockets --------------------------------------------------------------------------------- */

static char *runtime;

static int make_runtime(void **state)
{
    (void)state;
    runtime = make_folder();
    return setenv("XDG_RUNTIME_DIR", runtime, 1);
}

static int remove_runtime(void **state)
{
    (void)state;
    remove_folder(runtime);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_without_its_driver_is_interrupted),
        cmocka_unit_test(test_show_lists_the_best_first_and_says_what_it_leaves_out),
        cmocka_unit_test(test_json_can_be_read_back),
        cmocka_unit_test(test_an_ended_run_is_told_from_the_store),
        cmocka_unit_test(test_logs_are_those_of_the_trial_asked_for),
        cmocka_unit_test(test_following_an_interrupted_run_ends_and_says_so),
        cmocka_unit_test(test_rm_takes_the_run_and_its_logs),
        cmocka_unit_test(test_rm_refuses_a_run_that_lives),
        cmocka_unit_test(test_only_a_runs_own_folder_is_ever_removed),
        cmocka_unit_test(test_the_program_says_what_it_does_not_know),
        cmocka_unit_test(test_a_project_without_a_store_has_no_runs),
        cmocka_unit_test(test_looking_survives_faults),
        cmocka_unit_test(test_a_terminal_gets_a_live_table_and_a_summary),
        cmocka_unit_test(test_ctrl_c_asks_and_the_terminal_is_as_it_was),
        cmocka_unit_test(test_s_stops_the_run_and_answers_130),
        cmocka_unit_test(test_a_second_ctrl_c_stops_too),
        cmocka_unit_test(test_a_terminal_that_changes_its_size_gets_a_new_frame),
        cmocka_unit_test(test_a_pipe_is_told_of_each_trial_once),
        cmocka_unit_test(test_an_interrupt_in_a_pipe_stops_the_run),
        cmocka_unit_test(test_a_terminate_leaves_the_run_alone),
        cmocka_unit_test(test_a_reader_who_leaves_does_not_end_the_run),
        cmocka_unit_test(test_a_driver_that_dies_is_missed),
        cmocka_unit_test(test_a_driver_that_refuses_is_quoted),
    };

    setenv("TERM", "dumb", 1);
    unsetenv("HOPYARD_PROJECT");
    hy_style_init();
    hy_json_init();
    return cmocka_run_group_tests(tests, make_runtime, remove_runtime);
}
