/* SPDX-License-Identifier: Apache-2.0 */
/* The commands that read and remove runs: the whole program on a real store. */
#include "support.h"

#include "project_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "client/history.h"
#include "view/json_values.h"
#include "client/client.h"

/* Runs the program; returns its standard output and error, to be freed. */
static char *say(struct project_fixture *y, int status, char **words)
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

HY_TEST(test_a_run_without_its_driver_is_interrupted)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    hy_cleanup_free char *ls = say(y, 0, WORDS("ls")), *show = say(y, 0, WORDS("show", (char *)"digits"));
    hy_cleanup_free char *stop = say(y, 0, WORDS("stop")), *attach = say(y, 1, WORDS("attach", (char *)"1"));

    assert_says(ls, "interrupted");
    assert_says(ls, "2/5 (1 failed)");
    assert_says(ls, "v=0.75");
    assert_says(show, "`hopyard resume 1` continues it");
    assert_says(show, "2 done, 1 failed, 1 interrupted");
    assert_says(show, "./train {x}");
    assert_says(stop, "is not running");
    assert_says(attach, "'hopyard resume 1'");
    assert_says(attach, "run-1.log");
    project_free(y);
}

HY_TEST(test_show_lists_the_best_trials_and_counts_the_rest)
{
    struct project_fixture *y = project_new(HY_RUN_DONE);
    hy_cleanup_free char *show = say(y, 0, WORDS("show", (char *)"--trials", (char *)"2"));
    hy_cleanup_free char *all = say(y, 0, WORDS("show", (char *)"--trials=all", (char *)"--by-number"));
    hy_cleanup_free char *none = say(y, 2, WORDS("show", (char *)"--trials", (char *)"0"));

    assert_says(show, "x=2");
    assert_true(strstr(show, "x=2") < strstr(show, "x=1"));
    assert_says(show, "and 2 more: use --trials all");
    assert_true(strstr(all, "x=1") < strstr(all, "x=2"));
    assert_says(all, "exit status 3");
    assert_null(strstr(all, "more"));
    assert_says(none, "--trials takes");
    project_free(y);
}

HY_TEST(test_json_output_is_valid_json)
{
    struct project_fixture *y = project_new(HY_RUN_DONE);
    hy_cleanup_free char *ls = say(y, 0, WORDS("ls", (char *)"--json")),
                         *show = say(y, 0, WORDS("show", (char *)"--json"));
    hy_cleanup_free char *best = say(y, 0, WORDS("best", (char *)"--json"));
    hy_cleanup_json json_t *runs = json_loads(ls, 0, NULL), *shown = json_loads(show, 0, NULL),
                           *b = json_loads(best, 0, NULL);

    assert_int_equal(json_array_size(runs), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(runs, 0), "state")), "done");
    assert_int_equal(json_array_size(json_object_get(shown, "trials")), 4);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(shown, "run"), "seed")), 7);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(b, "params"), "x")), 2);
    assert_true(json_real_value(json_object_get(b, "value")) == 0.75);
    project_free(y);
}

HY_TEST(test_attach_shows_an_ended_run_from_the_store)
{
    struct project_fixture *y = project_new(HY_RUN_DONE);
    hy_cleanup_free char *plain = say(y, 1, WORDS("attach")), *json = say(y, 1, WORDS("attach", (char *)"--json"));

    assert_says(plain, "run 1 digits: 5 trials, seed 7");
    assert_says(plain, "[2/5] trial 2 done  x=2  v=0.75  1.0s");
    assert_says(plain, "[3/5] trial 3 failed  x=3  1.0s  exit status 3");
    assert_says(plain, "run 1 done: 2 done, 1 failed");
    assert_says(json, "\"event\": \"end\"");
    project_free(y);
}

HY_TEST(test_logs_prints_only_the_given_trial)
{
    struct project_fixture *y = project_new(HY_RUN_DONE);
    hy_cleanup_free char *one = say(y, 0, WORDS("logs", (char *)"1", (char *)"2", (char *)"--stdout"));
    hy_cleanup_free char *all = say(y, 0, WORDS("logs")),
                         *follow = say(y, 0, WORDS("logs", (char *)"-f", (char *)"--stderr"));
    hy_cleanup_free char *none = say(y, 1, WORDS("logs", (char *)"1", (char *)"9"));
    hy_cleanup_free char *bad = say(y, 2, WORDS("logs", (char *)"1", (char *)"x"));

    assert_string_equal(one, "even\n");
    assert_string_equal(all,
                        "1 | odd\n1 ! trouble\n2 | even\n2 ! trouble\n3 | odd\n3 ! trouble\n4 | even\n4 ! trouble\n");
    assert_string_equal(follow, "1 ! trouble\n2 ! trouble\n3 ! trouble\n4 ! trouble\n");
    assert_says(none, "has no trial 9");
    assert_says(bad, "TRIAL must be the number of a trial");
    project_free(y);
}

HY_TEST(test_logs_follow_reports_an_interrupted_run)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    hy_cleanup_free char *follow = say(y, 1, WORDS("logs", (char *)"1", (char *)"4", (char *)"-f"));

    assert_says(follow, "even\ntrouble");
    assert_says(follow, "run 1 was interrupted");
    project_free(y);
}

HY_TEST(test_rm_removes_the_run_and_its_logs)
{
    struct project_fixture *y = project_new(HY_RUN_DONE);
    hy_cleanup_free char *rm = say(y, 0, WORDS("rm", (char *)"digits")), *ls = say(y, 0, WORDS("ls"));
    hy_cleanup_free char *again = say(y, 1, WORDS("rm", (char *)"1"));
    hy_cleanup_free char *app = hy_path_join(y->project, "Logs/TensorFlow/local-1");

    assert_says(rm, "run 1 was removed");
    assert_says(ls, "This project has no runs yet");
    assert_says(again, "no run");
    assert_int_equal(access(app, F_OK), -1);
    project_free(y);
}

HY_TEST(test_rm_refuses_a_running_run)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    struct hy_err err = {0};
    int lock = hy_store_run_lock(y->store, y->run, &err);
    hy_cleanup_free char *rm = NULL, *resume = NULL;

    assert_true(lock >= 0);
    rm = say(y, 1, WORDS("rm", (char *)"-f", (char *)"1"));
    resume = say(y, 1, WORDS("resume", (char *)"1"));
    assert_says(rm, "hopyard stop 1");
    assert_says(resume, "hopyard attach 1");
    assert_int_equal(access(y->logdir, F_OK), 0);
    close(lock);
    project_free(y);
}

static int is_removable(const char *project, const char *logdir)
{
    hy_cleanup_logdir struct hy_logdir dir = HY_LOGDIR_NONE;

    return hy_logdir_open(project, logdir, &dir) == 0;
}

HY_TEST(test_rm_does_not_follow_a_path_that_changed_after_the_check)
{
    char *project = make_directory();
    hy_cleanup_free char *good = hy_path_join(project, "Logs/TensorFlow/a/1"), *token = hy_path_join(good, ".token");
    hy_cleanup_free char *app = hy_path_join(project, "Logs/TensorFlow/a"), *away = hy_path_join(project, "away");
    hy_cleanup_free char *other = hy_path_join(project, "other"), *theirs = hy_path_join(other, "1");
    hy_cleanup_free char *precious = hy_path_join(theirs, ".token"), *moved = hy_path_join(away, "1");
    hy_cleanup_logdir struct hy_logdir dir = HY_LOGDIR_NONE;

    assert_int_equal(hy_mkdirs(good, 0700), 0);
    assert_int_equal(hy_mkdirs(theirs, 0700), 0);
    assert_int_equal(hy_file_write(token, "", 0, 0600), 0);
    assert_int_equal(hy_file_write(precious, "", 0, 0600), 0);
    assert_int_equal(hy_logdir_open(project, good, &dir), 0);
    assert_int_equal(rename(app, away), 0); /* replace the directory by a link */
    assert_int_equal(symlink(other, app), 0);
    assert_int_equal(is_removable(project, good), 0);
    assert_int_equal(hy_logdir_remove(&dir), 0);
    assert_int_equal(access(moved, F_OK), -1);
    assert_int_equal(access(precious, F_OK), 0);
    remove_directory(project);
}

HY_TEST(test_rm_removes_only_log_directories_of_runs)
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
    char *project = make_directory();
    hy_cleanup_free char *good = hy_path_join(project, "Logs/TensorFlow/a/1"), *inner = hy_path_join(good, "trial"),
                         *token = hy_path_join(good, ".token");
    hy_cleanup_free char *other = hy_path_join(project, "other/a/1"),
                         *link = hy_path_join(project, "Logs/TensorFlow/a/link");

    assert_int_equal(hy_mkdirs(inner, 0700), 0);
    assert_int_equal(hy_mkdirs(other, 0700), 0);
    assert_int_equal(symlink(other, link), 0);
    assert_int_equal(is_removable(project, good), 0); /* not the directory of a run */
    assert_int_equal(hy_file_write(token, "", 0, 0600), 0);
    assert_int_equal(is_removable(project, good), 1);
    for (size_t i = 0; i < HY_COUNT(bad); i++) {
        hy_cleanup_free char *path = hy_path_join(project, bad[i]);

        if (is_removable(project, path) || is_removable(project, bad[i]))
            fail_msg("'%s' would be removed", bad[i]);
    }
    assert_int_equal(chdir(project), 0); /* relative paths are not trusted */
    assert_int_equal(is_removable(project, "Logs/TensorFlow/a/1"), 0);
    assert_int_equal(chdir("/"), 0);
    remove_directory(project);
}

HY_TEST(test_unknown_commands_and_runs_are_reported)
{
    struct project_fixture *y = project_new(HY_RUN_DONE);
    hy_cleanup_free char *command = say(y, 2, WORDS("shwo")), *run = say(y, 1, WORDS("show", (char *)"77"));
    hy_cleanup_free char *best = say(y, 1, WORDS("best", (char *)"nothing")),
                         *help = say(y, 0, WORDS("ls", (char *)"--help")), *opposite = say(y, 2, WORDS("export")),
                         *other = say(y, 2, WORDS("rename"));

    assert_says(command, "did you mean 'show'?");
    assert_says(opposite, "unknown command 'export'; 'hopyard help' lists the commands"); /* not import */
    assert_says(other, "'hopyard help' lists the commands");                                   /* not resume */
    assert_says(run, "77");
    assert_says(best, "nothing");
    assert_says(help, "Usage");
    project_free(y);
}

HY_TEST(test_a_project_without_a_store_has_no_runs)
{
    struct project_fixture y = {.project = make_directory()};
    hy_cleanup_free char *ls = say(&y, 0, WORDS("ls")), *json = say(&y, 0, WORDS("ls", (char *)"--json"));
    hy_cleanup_free char *show = say(&y, 1, WORDS("show")), *directory = hy_path_join(y.project, ".hopyard");

    assert_says(ls, "This project has no runs yet");
    assert_string_equal(json, "[]\n");
    assert_true(*show);
    assert_int_equal(access(directory, F_OK), -1); /* reading commands create nothing */
    remove_directory(y.project);
}

/* Reads in batches like a client; 1 when something is missing. */
static int read_history(void *arg)
{
    struct project_fixture *y = arg;
    struct hy_history history = {0};
    Hy__Update *u = malloc(sizeof *u);
    struct hy_err err = {0};
    int rc;

    assert_non_null(u);
    hy__update__init(u);
    u->run = y->run;
    u->ended_seq = u->notes_until = INT64_MAX;
    rc = hy_history_read(&history, y->store, u, 0, &err);
    if (rc == 0 && (u->n_ended != 3 || u->n_notes != 1 || u->ended[2]->number != 3))
        rc = 1;
    if (rc < 0)
        assert_string_not_equal(err.text, "");
    hy__update__free_unpacked(u, &hy_proto_memory);
    return rc;
}

HY_TEST(test_an_unreadable_history_is_an_error_with_a_message)
{
    struct project_fixture *y = project_new(HY_RUN_RUNNING);
    struct hy_err err = {0};

    assert_int_equal(
        hy_store_note_add(y->store, y->run, &(struct hy_note_row){.time = 1, .text = "an agent has joined"}, &err), 0);
    assert_int_equal(hy_store_commit(y->store, &err), 0);
    hy_each_fault(HY_SEAM_ALLOC, read_history, y);
    hy_each_fault(HY_SEAM_SYS, read_history, y);
    project_free(y);
}

static int look_scenario(void *arg)
{
    struct project_fixture *y = arg;
    static char *const commands[][3] = {{(char *)"ls"},    {(char *)"ls", (char *)"--json"},
                                        {(char *)"show"},  {(char *)"show", (char *)"--json"},
                                        {(char *)"best"},  {(char *)"logs"},
                                        {(char *)"attach"}};
    int rc = 0;

    for (size_t i = 0; i < HY_COUNT(commands); i++) {
        char *argv[] = {(char *)"hopyard", commands[i][0], (char *)"--project", y->project, commands[i][1], NULL};
        int status = hy_cli_main(commands[i][1] ? 5 : 4, argv);

        /* The exit status of `attach` is 1, because a trial of the run has failed. */
        if (status != (strcmp(commands[i][0], "attach") == 0))
            rc = -EIO;
    }
    return rc;
}

HY_TEST(test_reading_commands_survive_faults)
{
    struct project_fixture *y = project_new(HY_RUN_DONE);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC), out = dup(1), error = dup(2);

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
    project_free(y);
}

int main(int argc, char **argv)
{
    begin_plain();
    return hy_run_tests(argc > 1 ? argv[1] : NULL, make_runtime, remove_runtime);
}
