/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `logs`: what trials have printed, from RUN'S LOGDIR/TRIAL'S DIR/{stdout,stderr}.
 *
 * Only offsets are kept per trial (log_tail.h), so a hundred thousand trials
 * need little memory and no open files. --follow polls five times a second.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/list.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/project.h"
#include "cli/commands.h"
#include "view/view.h"
#include "client/client.h"
#include "driver/driver.h"
#include "wire/wire.h"

#define POLL_MS 200
#define BATCH 256 /* trials per query */

static const char *const streams[] = {"stdout", "stderr"};

struct follower { /* a trial whose output is not complete yet */
    struct hy_list link;
    int64_t number;
    char *dir;
    struct hy_tail tail[2];
    bool ended;
};

struct logs {
    struct hy_store *store;
    struct hy_run_info info;
    struct hy_out out;
    struct hy_log_format text;
    struct hy_list followers;
    bool wanted[2];
    bool follow;
    int64_t trial; /* 0: all */
    int64_t seen;  /* number of trials read from the store */
    uint8_t piece[HY_TAIL_PIECE];
};

static void follower_free(struct follower *f)
{
    hy_list_remove(&f->link);
    free(f->dir);
    free(f);
}

/* ---- files --------------------------------------------------------------------- */

/* Prints the new output in one file. 0 or -Exxx. */
static int print_new(struct logs *l, struct follower *f, int which)
{
    hy_cleanup_free char *path = hy_asprintf("%s/%s/%s", l->info.row.logdir, f->dir, streams[which]);
    size_t done;
    ssize_t n;

    if (!path)
        return -ENOMEM;
    do {
        int rc;

        n = hy_tail_read(&f->tail[which], path, l->piece);
        if (n <= 0)
            return (int)n;
        done = hy_log_format_append(&l->text, &l->out, f->number - (l->info.row.ranks > 0), which == 1, l->piece,
                                    (size_t)n, f->ended && n < HY_TAIL_PIECE, n == HY_TAIL_PIECE);
        f->tail[which].offset += (off_t)done;
        rc = hy_out_flush(&l->out, STDOUT_FILENO);
        if (rc < 0)
            return rc;
    } while (n == HY_TAIL_PIECE && done);
    return 0;
}

static int print_both(struct logs *l, struct follower *f)
{
    int rc = 0;

    for (int i = 0; i < 2 && rc == 0; i++)
        if (l->wanted[i])
            rc = print_new(l, f, i);
    return rc;
}

/* ---- trials -------------------------------------------------------------------- */

static int on_new_trial(void *arg, const struct hy_trial_row *row)
{
    struct logs *l = arg;
    struct follower *f = hy_calloc(1, sizeof *f);

    if (!f)
        return -ENOMEM;
    hy_list_init(&f->link);
    f->number = row->number;
    f->ended = hy_trial_is_over(row->state) || !l->follow;
    f->dir = hy_strdup(row->dir ? row->dir : "");
    if (!f->dir) {
        follower_free(f);
        return -ENOMEM;
    }
    hy_list_push(&l->followers, &f->link);
    l->seen++;
    return 0;
}

/* Adds followers for new trials. Returns their number, or -Exxx. */
static int64_t find_new_trials(struct logs *l, struct hy_err *err)
{
    int64_t before = l->seen;
    int rc;

    if (l->trial && before)
        return 0;
    rc = hy_store_trial_each(l->store, l->info.row.id, l->trial, HY_TRIALS_BY_NUMBER, l->trial ? 0 : l->seen, BATCH,
                             on_new_trial, l, err);
    if (rc == -ENOENT && l->trial)
        rc = 0;
    return rc < 0 ? rc : l->seen - before;
}

static int on_state(void *arg, const struct hy_trial_row *row)
{
    struct follower *f = arg;

    f->ended = hy_trial_is_over(row->state);
    return 0;
}

/* Prints the new output of all followers and removes those that are complete. */
static int print_all(struct logs *l, bool all_over, struct hy_err *err)
{
    hy_list_each(it, &l->followers) {
        struct follower *f = hy_container(it, struct follower, link);
        int rc = 0;

        /* State before output: the output of a trial that has ended is complete. */
        if (!f->ended)
            rc = hy_store_trial_each(l->store, l->info.row.id, f->number, HY_TRIALS_BY_NUMBER, 0, 1, on_state, f, err);
        f->ended |= all_over;
        if (rc >= 0)
            rc = print_both(l, f);
        if (rc < 0)
            return rc;
        if (f->ended)
            follower_free(f);
    }
    return 0;
}

static int on_run(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts)
{
    struct logs *l = arg;

    (void)counts;
    l->info.row.state = row->state;
    return 0;
}

/* ---- the command ----------------------------------------------------------------- */

static int print_until_end(struct logs *l, struct hy_err *err)
{
    for (;;) {
        int64_t added;
        int rc = hy_store_run_each(l->store, l->info.row.id, on_run, l, err);
        bool alive = rc >= 0 && hy_store_run_alive(l->store, l->info.row.id) > 0;
        bool over = !l->follow || !alive || l->info.row.state != HY_RUN_RUNNING;

        added = rc < 0 ? rc : find_new_trials(l, err);
        if (added < 0)
            return (int)added;
        rc = print_all(l, over, err);
        if (rc < 0)
            return rc;
        if (added > 0)
            continue; /* a full batch: there may be more */
        if (over || (l->trial && l->seen && hy_list_empty(&l->followers)))
            return 0;
        poll(NULL, 0, POLL_MS);
    }
}

static bool is_rank(const char *word)
{
    return word && (strncmp(word, "rank=", 5) == 0 || strncmp(word, "node=", 5) == 0);
}

/* The trial of the cluster's node "worker-0"; 0: not found. */
static int64_t find_node(const struct logs *l, const char *name)
{
    char room[HY_NODE_NAME_MAX];

    for (int64_t i = 1; l->info.spec && hy_spec_is_cluster(l->info.spec) && i <= l->info.row.ranks; i++)
        if (strcmp(hy_node_name(l->info.spec, (uint64_t)i, room), name) == 0)
            return i;
    return 0;
}

/* A trial "7"; a rank "3" or "rank=3", counted from 0; a node "worker-0" or "node=worker-0". */
static int parse_trial(struct logs *l, const char *text, struct hy_err *err)
{
    int64_t ranks = l->info.row.ranks;
    uint64_t number = 0;
    int rc;

    text += ranks && is_rank(text) ? 5 : 0;
    l->trial = find_node(l, text);
    if (l->trial)
        return 0;
    rc = hy_parse_u64(text, &number);
    if (ranks && (rc < 0 || number >= INT64_MAX))
        return hy_err_set(err, -EINVAL, "TRIAL must be a rank from 0 to %lld, not '%s'", (long long)ranks - 1, text);
    if (!ranks && (rc < 0 || number == 0 || number > INT64_MAX))
        return hy_err_set(err, -EINVAL,
                          "TRIAL must be the number of a trial, not '%s'; 'hopyard show' lists the trials", text);
    l->trial = (int64_t)number + (ranks > 0);
    return 0;
}

/* [RUN] [TRIAL]; a single rank=N is a TRIAL. */
static int find_words(struct logs *l, const struct hy_args *args, struct hy_err *err)
{
    const char *run = hy_args_word(args, 0), *trial = hy_args_word(args, 1);
    int rc;

    if (is_rank(run) && !trial) {
        trial = run;
        run = NULL;
    }
    rc = hy_run_info_find(l->store, run, &l->info, err);
    return rc == 0 && trial ? parse_trial(l, trial, err) : rc;
}

static void choose_streams(struct logs *l, const struct hy_args *args)
{
    bool out = hy_args_has(args, "stdout"), error = hy_args_has(args, "stderr");

    l->wanted[0] = out || !error;
    l->wanted[1] = error || !out;
}

static long long last_number(const struct hy_run_row *row)
{
    return (long long)(row->ranks ? row->ranks - 1 : row->total > 0 ? row->total : 100);
}

static int open_logs(struct logs *l, const struct hy_args *args, struct hy_err *err)
{
    struct hy_style style;
    char number[32];
    int rc;

    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&l->out, &style);
    choose_streams(l, args);
    l->follow = hy_args_has(args, "follow");
    rc = hy_project_store(args, HY_STORE_READ, &l->store, err);
    if (rc == 0)
        rc = find_words(l, args, err);
    if (rc < 0)
        return rc;
    l->text.escape = isatty(STDOUT_FILENO);
    l->text.prefix = l->trial ? HY_LOG_BYTES : HY_LOG_NUMBERED;
    l->text.digits = snprintf(number, sizeof number, "%lld", last_number(&l->info.row));
    return 0;
}

/* An error if the trial does not exist or the run was interrupted. */
static int check_result(struct logs *l, struct hy_err *err)
{
    long long run = l->info.row.id;
    char text[80];

    if (l->trial && !l->seen && l->info.row.ranks)
        return hy_err_set(err, -ENOENT, "run %lld has no rank %lld; its ranks are 0 to %lld", run,
                          (long long)l->trial - 1, (long long)l->info.row.ranks - 1);
    if (l->trial && !l->seen)
        return hy_err_set(err, -ENOENT, "run %lld has no trial %lld; 'hopyard show %lld' lists its trials", run,
                          (long long)l->trial, run);
    if (l->follow && l->info.row.state == HY_RUN_RUNNING && hy_store_run_alive(l->store, run) == 0)
        return hy_err_set(
            err, -EPIPE, "run %lld was interrupted: its driver has exited%s", run,
            hy_resume_clause(hy_run_resume(l->info.spec), run, "; '", "' continues it", text, sizeof text));
    return 0;
}

int hy_cmd_logs(const struct hy_args *args)
{
    struct logs *l = hy_calloc(1, sizeof *l);
    struct hy_err err = {0};
    int rc;

    if (!l) {
        hy_err_oom(&err);
        return hy_cmd_failed(args, &err);
    }
    hy_list_init(&l->followers);
    rc = open_logs(l, args, &err);
    if (rc == 0)
        rc = print_until_end(l, &err);
    if (rc == 0)
        rc = check_result(l, &err);
    hy_list_each(it, &l->followers)
        follower_free(hy_container(it, struct follower, link));
    hy_out_done(&l->out);
    hy_run_info_done(&l->info);
    hy_store_close(l->store);
    free(l);
    if (rc < 0 && !err.code)
        hy_err_sys(&err, rc, "cannot read or print the logs");
    return rc < 0 ? hy_cmd_failed(args, &err) : HY_EXIT_OK;
}
