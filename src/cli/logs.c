/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `logs`: what trials have printed, from RUN'S LOGDIR/TRIAL'S DIR/{stdout,stderr}.
 *
 * The files are read by offset, a piece at a time, and opened anew each time:
 * nothing but the offsets is kept of a trial, so a hundred thousand of them
 * need no memory and no open files. Following is looking again five times a
 * second; that works on every file system, and for files that do not exist yet.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/logtext.h"
#include "cli/runs.h"

#define PIECE 65536
#define LOOK_MS 200
#define FRESH 256 /* trials that are asked for at once */

static const char *const streams[] = {"stdout", "stderr"};

struct follower { /* a trial that may print more */
    struct hy_list link;
    int64_t number;
    char *dir;
    off_t offset[2];
    bool ended;
};

struct logs {
    struct hy_store *store;
    struct hy_runinfo info;
    struct hy_out out;
    struct hy_logtext text;
    struct hy_list followers;
    bool wanted[2];
    bool follow;
    int64_t trial; /* 0: all */
    int64_t seen;  /* how many trials the store has told of */
    uint8_t piece[PIECE];
};

static void follower_free(struct follower *f)
{
    hy_list_remove(&f->link);
    free(f->dir);
    free(f);
}

/* ---- files --------------------------------------------------------------------- */

static ssize_t read_piece(struct logs *l, int fd, off_t offset)
{
    size_t n = 0;

    while (n < PIECE) {
        ssize_t got = HY_SYS(pread(fd, l->piece + n, PIECE - n, offset + (off_t)n));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

/* Prints what is new in one file. 0 or -Exxx. */
static int print_new(struct logs *l, struct follower *f, int which)
{
    hy_cleanup_free char *path = hy_asprintf("%s/%s/%s", l->info.row.logdir, f->dir, streams[which]);
    hy_cleanup_close int fd = -1;
    struct stat st;
    size_t done;
    ssize_t n;

    if (!path)
        return -ENOMEM;
    fd = HY_SYS(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno; /* it has printed nothing yet */
    if (fstat(fd, &st) == 0 && st.st_size < f->offset[which])
        f->offset[which] = 0; /* it was begun anew */
    do {
        int rc;

        n = read_piece(l, fd, f->offset[which]);
        if (n <= 0)
            return (int)n;
        done = hy_logtext_append(&l->text, &l->out, f->number, which == 1, l->piece, (size_t)n,
                                 f->ended && n < PIECE, n == PIECE);
        f->offset[which] += (off_t)done;
        rc = hy_out_flush(&l->out, STDOUT_FILENO);
        if (rc < 0)
            return rc;
    } while (n == PIECE && done);
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

static int on_fresh(void *arg, const struct hy_trial_row *row)
{
    struct logs *l = arg;
    struct follower *f = hy_calloc(1, sizeof *f);

    if (!f)
        return -ENOMEM;
    hy_list_init(&f->link);
    f->number = row->number;
    f->ended = row->state != HY_TRIAL_RUNNING || !l->follow;
    f->dir = hy_strdup(row->dir ? row->dir : "");
    if (!f->dir) {
        follower_free(f);
        return -ENOMEM;
    }
    hy_list_push(&l->followers, &f->link);
    l->seen++;
    return 0;
}

/* Trials that were not there before. Returns how many, or -Exxx. */
static int64_t look_for_fresh(struct logs *l, struct hy_err *err)
{
    int64_t before = l->seen;
    int rc;

    if (l->trial && before)
        return 0;
    rc = hy_store_trial_each(l->store, l->info.row.id, l->trial, HY_TRIALS_BY_NUMBER, l->trial ? 0 : l->seen,
                             FRESH, on_fresh, l, err);
    if (rc == -ENOENT && l->trial)
        rc = 0;
    return rc < 0 ? rc : l->seen - before;
}

static int on_state(void *arg, const struct hy_trial_row *row)
{
    struct follower *f = arg;

    f->ended = row->state != HY_TRIAL_RUNNING;
    return 0;
}

/* Prints what is new of all trials at hand, and lets go of those that are over. */
static int print_all(struct logs *l, bool all_over, struct hy_err *err)
{
    hy_list_each(it, &l->followers)
    {
        struct follower *f = hy_container(it, struct follower, link);
        int rc = 0;

        /* Its state first, its output then: what is there when it has ended is all. */
        if (!f->ended)
            rc = hy_store_trial_each(l->store, l->info.row.id, f->number, HY_TRIALS_BY_NUMBER, 0, 1, on_state,
                                     f, err);
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
        int64_t fresh;
        int rc = hy_store_run_each(l->store, l->info.row.id, on_run, l, err);
        bool alive = rc >= 0 && hy_store_run_alive(l->store, l->info.row.id) > 0;
        bool over = !l->follow || !alive || l->info.row.state != HY_RUN_RUNNING;

        fresh = rc < 0 ? rc : look_for_fresh(l, err);
        if (fresh < 0)
            return (int)fresh;
        rc = print_all(l, over, err);
        if (rc < 0)
            return rc;
        if (fresh > 0)
            continue; /* there may be more */
        if (over || (l->trial && l->seen && hy_list_empty(&l->followers)))
            return 0;
        poll(NULL, 0, LOOK_MS);
    }
}

static int parse_words(struct logs *l, const struct hy_args *args, struct hy_err *err)
{
    const char *trial = hy_args_word(args, 1);
    bool out = hy_args_has(args, "stdout"), error = hy_args_has(args, "stderr");
    uint64_t number = 0;

    if (trial && (hy_parse_u64(trial, &number) < 0 || number == 0 || number > INT64_MAX))
        return hy_err_set(err, -EINVAL, "TRIAL is a trial's number, not '%s'; 'hopyard show' lists them",
                          trial);
    l->trial = (int64_t)number;
    l->follow = hy_args_has(args, "follow");
    l->wanted[0] = out || !error;
    l->wanted[1] = error || !out;
    return 0;
}

static int open_logs(struct logs *l, const struct hy_args *args, struct hy_err *err)
{
    struct hy_style style;
    char number[32];
    int rc = parse_words(l, args, err);

    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&l->out, &style);
    if (rc == 0)
        rc = hy_project_store(args, HY_STORE_READ, &l->store, err);
    if (rc == 0)
        rc = hy_runinfo_find(l->store, hy_args_word(args, 0), &l->info, err);
    if (rc < 0)
        return rc;
    l->text.escape = isatty(STDOUT_FILENO);
    l->text.prefix = !l->trial;
    l->text.digits =
        snprintf(number, sizeof number, "%lld", (long long)(l->info.row.total > 0 ? l->info.row.total : 100));
    return 0;
}

/* What the user may want to know beside the bytes. */
static int verdict(struct logs *l, struct hy_err *err)
{
    long long run = l->info.row.id;

    if (l->trial && !l->seen)
        return hy_err_set(err, -ENOENT, "run %lld has no trial %lld; 'hopyard show %lld' lists those it has",
                          run, (long long)l->trial, run);
    if (l->follow && l->info.row.state == HY_RUN_RUNNING && hy_store_run_alive(l->store, run) == 0)
        return hy_err_set(err, -EPIPE,
                          "run %lld is interrupted: its driver is gone; 'hopyard resume %lld' goes on", run,
                          run);
    return 0;
}

int hy_cmd_logs(const struct hy_args *args)
{
    struct logs *l = hy_calloc(1, sizeof *l);
    struct hy_err err = {0};
    int rc;

    if (!l) {
        hy_err_set(&err, -ENOMEM, "out of memory");
        return hy_cmd_failed(args, &err);
    }
    hy_list_init(&l->followers);
    rc = open_logs(l, args, &err);
    if (rc == 0)
        rc = print_until_end(l, &err);
    if (rc == 0)
        rc = verdict(l, &err);
    hy_list_each(it, &l->followers) follower_free(hy_container(it, struct follower, link));
    hy_out_done(&l->out);
    hy_runinfo_done(&l->info);
    hy_store_close(l->store);
    free(l);
    if (rc < 0 && !err.code)
        hy_err_sys(&err, rc, "cannot read or print the logs");
    return rc < 0 ? hy_cmd_failed(args, &err) : HY_EXIT_OK;
}
