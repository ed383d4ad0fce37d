/* SPDX-License-Identifier: Apache-2.0 */
/* A project with one run in its store, for test_look.c and test_watch.c. */
#ifndef HY_TESTS_CLI_PROJECT_FIXTURE_H
#define HY_TESTS_CLI_PROJECT_FIXTURE_H

#include "view/view_fixture.h"

#include "base/file.h"
#include "base/mem.h"
#include "store/store.h"

struct project_fixture {
    char *project;
    struct hy_store *store;
    int64_t run;
    char *logdir;
};

static inline void add_trial(struct project_fixture *y, int64_t number, enum hy_trial_state state, double value,
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
    hy_cleanup_free char *used = NULL, *directory = NULL;
    struct hy_err err = {0};

    assert_int_equal(hy_store_trial_add(y->store, y->run, &row, &used, &err), 0);
    row.state = state;
    row.has_value = state == HY_TRIAL_DONE;
    row.value = value;
    row.message = message;
    row.ended = 2000;
    row.told_seq = row.ended_seq = 2 * number + 1;
    if (state != HY_TRIAL_RUNNING)
        assert_int_equal(hy_store_trial_end(y->store, y->run, &row, &err), 0);
    directory = hy_path_join(y->logdir, used);
    assert_int_equal(hy_mkdirs(directory, 0700), 0);
    write_text(directory, "stdout", number % 2 ? "odd\n" : "even\n", 0600);
    write_text(directory, "stderr", "trouble", 0600);
}

/* A project with one run: three trials have ended, one was running when its driver died. */
static inline struct project_fixture *project_new(enum hy_run_state state)
{
    struct project_fixture *y = calloc(1, sizeof *y);
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

    y->project = make_directory();
    y->logdir = hy_asprintf("%s/Logs/TensorFlow/local-1/1", y->project);
    row.logdir = y->logdir;
    if (hy_store_open(y->project, HY_STORE_WRITE, &y->store, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(hy_store_run_add(y->store, &row, &y->run, &err), 0);
    add_trial(y, 1, HY_TRIAL_DONE, 0.25, NULL);
    add_trial(y, 2, HY_TRIAL_DONE, 0.75, NULL);
    add_trial(y, 3, HY_TRIAL_FAILED, 0, "exit status 3");
    add_trial(y, 4, HY_TRIAL_RUNNING, 0, NULL);
    write_text(y->logdir, ".token", "", 0600);
    if (state != HY_RUN_RUNNING)
        assert_int_equal(hy_store_run_state(y->store, y->run, state, NULL, &err), 0);
    assert_int_equal(hy_store_commit(y->store, &err), 0);
    return y;
}

static inline void project_free(struct project_fixture *y)
{
    hy_store_close(y->store);
    remove_directory(y->project);
    free(y->logdir);
    free(y);
}

/* A private runtime directory, so that sockets of other runs on this machine do not interfere. */
static char *runtime;

static inline int make_runtime(void **state)
{
    (void)state;
    runtime = make_directory();
    return setenv("XDG_RUNTIME_DIR", runtime, 1);
}

static inline int remove_runtime(void **state)
{
    (void)state;
    remove_directory(runtime);
    return 0;
}

#endif
