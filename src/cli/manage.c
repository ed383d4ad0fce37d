/* SPDX-License-Identifier: Apache-2.0 */
/* `stop`, `resume` and `rm`. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/project.h"
#include "cli/commands.h"
#include "view/view.h"
#include "client/client.h"
#include "cli/signals.h"
#include "cli/spec_internal.h"
#include "cli/start.h"
#include "driver/driver.h"
#include "wire/wire.h"

HY_PRINTF(1, 2) static int print(const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vprintf(fmt, args);
    va_end(args);
    return n < 0 || fflush(stdout) ? -EIO : 0;
}

/* ---- stop ------------------------------------------------------------------------ */

/* Reads until the last update (1) or until the driver has closed the connection. */
static int await_last(int fd)
{
    hy_cleanup_buf struct hy_buf rest, message;
    Hy__ClientAnswer *answer;
    int rc, last = 0;

    hy_buf_init(&rest, 2 * HY_LOCAL_MAX);
    hy_buf_init(&message, HY_LOCAL_MAX);
    while (!last) {
        rc = hy_client_next(fd, &rest, &message, -1, &answer);
        if (rc == -EINTR || rc == -EAGAIN)
            continue;
        if (rc <= 0)
            return rc;
        last = answer->body_case == HY__CLIENT_ANSWER__BODY_UPDATE && answer->update->last;
        hy__client_answer__free_unpacked(answer, &hy_proto_memory);
    }
    return last;
}

static int stop_alive(struct hy_store *s, int64_t run, struct hy_err *err)
{
    hy_cleanup_close int fd = hy_client_connect(s, run, err);
    int rc = fd < 0 ? fd : hy_client_watch(fd, false);

    if (rc == 0)
        rc = hy_client_stop(fd, false);
    if (rc == 0)
        rc = await_last(fd);
    if (rc == 1)
        hy_run_await_exit(s, run);
    if (rc < 0 && !err->code)
        hy_err_sys(err, rc, "cannot send the stop request to the driver of run %lld", (long long)run);
    return rc;
}

/* Prints the state of the stopped run. */
static int print_stopped(struct hy_store *s, int64_t run, bool was_alive, struct hy_err *err)
{
    hy_cleanup_run_info struct hy_run_info info = {0};
    char number[32], text[80];
    Hy__Resume how;
    int rc;

    snprintf(number, sizeof number, "%lld", (long long)run);
    rc = hy_run_info_find(s, number, &info, err);
    if (rc < 0)
        return rc;
    how = hy_run_resume(info.spec);
    if (info.row.state == HY_RUN_RUNNING && !info.alive && was_alive)
        return hy_err_set(err, -EPIPE,
                          "run %lld: its driver died before it had stopped the run; 'hopyard gc' kills what is left%s",
                          (long long)run, hy_resume_clause(how, run, ", '", "' continues it", text, sizeof text));
    if (info.row.state == HY_RUN_RUNNING && !info.alive)
        return print("run %lld is not running: its driver has exited. %s'hopyard rm %lld' removes it.\n",
                     (long long)run, hy_resume_clause(how, run, "'", "' continues it, ", text, sizeof text),
                     (long long)run);
    return print("run %lld is %s: %lld done, %lld failed, %lld stopped\n", (long long)run,
                 hy_run_state_text(&info.row, info.alive), (long long)info.counts.done, (long long)info.counts.failed,
                 (long long)info.counts.stopped);
}

/* Ends only the feed of its nodes. */
static int stop_feed(struct hy_store *s, int64_t run, struct hy_err *err)
{
    hy_cleanup_close int fd = hy_client_connect(s, run, err);
    int rc = fd < 0 ? fd : hy_client_stop(fd, true);

    if (rc < 0 && !err->code)
        hy_err_sys(err, rc, "cannot send the end of the feed to the driver of run %lld", (long long)run);
    return rc < 0 ? rc : print("run %lld: the feed of its nodes has ended\n", (long long)run);
}

static int copy_state(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts)
{
    (void)counts;
    *(enum hy_run_state *)arg = row->state;
    return 0;
}

/* Whether the run ended before its driver could be reached: a driver commits the run's last state, removes its
 * socket, and exits a moment later. */
static bool has_ended(struct hy_store *s, int64_t run)
{
    enum hy_run_state state = HY_RUN_RUNNING;

    if (hy_store_run_each(s, run, copy_state, &state, NULL) < 0)
        return false;
    return state != HY_RUN_RUNNING || hy_store_run_alive(s, run) == 0;
}

int hy_cmd_stop(const struct hy_args *args)
{
    hy_cleanup_store struct hy_store *s = NULL;
    struct hy_err err = {0};
    bool was_alive, feed = hy_args_has(args, "feed");
    int64_t run = 0;
    int rc = hy_project_store(args, HY_STORE_READ, &s, &err);

    if (rc == 0)
        rc = hy_store_run_find(s, hy_args_word(args, 0), &run, &err);
    if (rc < 0)
        return hy_cmd_failed(args, &err);
    was_alive = hy_store_run_alive(s, run) > 0;
    if (was_alive)
        rc = feed ? stop_feed(s, run, &err) : stop_alive(s, run, &err);
    if (rc < 0 && !has_ended(s, run))
        return hy_cmd_failed(args, &err);
    if (feed && was_alive && rc == 0)
        return HY_EXIT_OK;
    if (!feed && rc < 0)
        hy_run_await_exit(s, run);
    rc = print_stopped(s, run, was_alive, &err);
    return rc < 0 ? hy_cmd_failed(args, &err) : HY_EXIT_OK;
}

/* ---- resume ------------------------------------------------------------------------ */

/* A run on the executors of a SparkSession needs a new session, whose address the Python package passes. */
static int session(const struct hy_args *args, const struct hy_run_info *info, const char **ret_address,
                   struct hy_err *err)
{
    bool needed = info->spec && *info->spec->engine && !*info->spec->master;
    long long run = info->row.id;

    *ret_address = args->submitted && *(*args->submitted)->address ? (*args->submitted)->address : NULL;
    if (info->spec && info->spec->fed)
        return hy_err_set(err, -EINVAL,
                          "run %lld cannot be resumed: the rows that were fed to its nodes are not stored; start a new "
                          "run",
                          run);
    if (needed && !*ret_address)
        return hy_err_set(err, -EINVAL,
                          "run %lld used the executors of a SparkSession; resume it from Python with a new session: "
                          "experiment.resume(%lld, spark=spark)",
                          run, run);
    if (!needed && *ret_address)
        return hy_err_set(err, -EINVAL, "run %lld did not use a SparkSession; resume it without one", run);
    return 0;
}

int hy_resume_start(const struct hy_args *args, const char *project, struct hy_started *ret, struct hy_err *err)
{
    const char *address = NULL;
    hy_cleanup_launched struct hy_launched launched = {.owner = -1};
    hy_cleanup_store struct hy_store *s = NULL;
    hy_cleanup_run_info struct hy_run_info info = {0};
    int rc = hy_store_open(project, HY_STORE_READ, &s, err);

    *ret = (struct hy_started){.owner = -1, .since_ms = hy_clock_wall_ms()};
    if (rc == 0)
        rc = hy_run_info_find(s, hy_args_word(args, 0), &info, err);
    if (rc < 0)
        return rc;
    ret->run = info.row.id;
    if (info.alive && !(info.row.state != HY_RUN_RUNNING && hy_run_await_exit(s, ret->run)))
        return hy_err_set(err, -EBUSY, "run %lld is running; watch it with: hopyard attach %lld", (long long)ret->run,
                          (long long)ret->run);
    rc = session(args, &info, &address, err);
    if (rc < 0)
        return rc;
    hy_signals_open();
    rc = hy_driver_resume(project, ret->run, address, &launched, err);
    ret->socket = hy_take(launched.socket);
    return rc;
}

int hy_cmd_resume(const struct hy_args *args)
{
    struct hy_err err = {0};
    hy_cleanup_free char *project = hy_project(args, &err);
    hy_cleanup_started struct hy_started started = {0};
    enum hy_output form;

    if (!project || hy_output_format(args, &form, &err) < 0 || hy_resume_start(args, project, &started, &err) < 0)
        return hy_cmd_failed(args, &err);
    return hy_run_follow(args, project, &started, form);
}

/* ---- rm ----------------------------------------------------------------------------- */

static int prompt(const struct hy_run_info *info)
{
    long long trials = (long long)(info->counts.done + info->counts.failed + info->counts.stopped +
                                   info->counts.pruned + info->counts.paused + info->counts.running);
    char answer[16] = "";

    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return 1; /* no terminal to prompt on */
    if (print("Remove run %lld with its %lld %ss and logs? [y/N] ", (long long)info->row.id, trials,
              hy_trial_noun((uint32_t)info->row.ranks)) < 0)
        return -EIO;
    if (!fgets(answer, sizeof answer, stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
        return 0;
    return 1;
}

static int rm_one(struct hy_store *s, const char *text, bool force, struct hy_err *err)
{
    hy_cleanup_run_info struct hy_run_info info = {0};
    struct hy_err left = {0};
    int rc = hy_run_info_find(s, text, &info, err);

    if (rc < 0)
        return rc;
    rc = force ? 1 : prompt(&info);
    if (rc <= 0)
        return rc;
    rc = hy_run_remove(s, &info, &left, err);
    if (rc < 0)
        return rc;
    if (left.code)
        hy_print_error("rm", &left);
    return print("run %lld was removed\n", (long long)info.row.id);
}

int hy_cmd_rm(const struct hy_args *args)
{
    struct hy_err err = {0};
    hy_cleanup_free char *project = hy_project(args, &err);
    hy_cleanup_store struct hy_store *s = NULL;
    int status = HY_EXIT_OK;

    /* Open for reading first: a missing store must not be created. */
    if (!project || hy_store_open(project, HY_STORE_READ, &s, &err) < 0)
        return hy_cmd_failed(args, &err);
    hy_store_close(hy_take(s));
    if (hy_store_open(project, HY_STORE_WRITE, &s, &err) < 0)
        return hy_cmd_failed(args, &err);
    for (size_t i = 0; i < args->word_count; i++) {
        err = (struct hy_err){0};
        if (rm_one(s, args->words[i], hy_args_has(args, "force"), &err) < 0)
            status = hy_cmd_failed(args, &err);
    }
    return status;
}
