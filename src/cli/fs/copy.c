/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hopyard fs put`, `get`, `cp` and `mv`.
 *
 * A signal first cancels the copy, which removes its temporary file, and then
 * terminates the program with the same signal. It is checked between two chunks
 * of a file, and while waiting for a server (hy_fs_on_wait), there only once, so
 * that the temporary file can still be removed. A second signal cancels the
 * removal.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/fs/commands.h"
#include "view/view.h"
#include "cli/signals.h"
#include "fs/fs.h"

#define PIECE (1u << 20)
#define QUIET_MS 1000 /* no progress is shown for shorter copies */
#define DRAW_MS 200

/* ---- signals and progress ---------------------------------------------------------- */

static struct {
    int signal; /* the terminating signal; 0: none yet */
    struct hy_style style;
    const char *name; /* what is copied */
    uint64_t bytes;
    int64_t started, drawn;
    bool is_drawn;
} now;

static void wipe(void)
{
    static const char line[] = "\r\033[K";

    if (now.is_drawn && write(STDERR_FILENO, line, sizeof line - 1) < 0)
        now.style.terminal = false; /* the terminal was closed */
    now.is_drawn = false;
}

static bool is_to_end(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

/* 1 when a terminating signal has arrived. */
static int take_signals(void)
{
    int signal, ends = 0;

    while ((signal = hy_signals_next())) {
        if (signal == SIGTSTP) {
            wipe();
            raise(SIGSTOP);
        }
        if (is_to_end(signal)) {
            now.signal = signal;
            ends = 1;
        }
    }
    return ends;
}

static void draw(int64_t ms)
{
    hy_cleanup_out struct hy_out out = {0};
    hy_cleanup_buf struct hy_buf line;
    char size[40], rate[40];

    hy_buf_init(&line, 65536);
    hy_out_init(&out, &now.style);
    hy_format_size(now.bytes, size, sizeof size);
    hy_format_size(now.bytes * 1000 / (uint64_t)(ms - now.started), rate, sizeof rate);
    if (hy_append_printable(&line, now.name, strlen(now.name)) < 0 ||
        hy_buf_printf(&line, "  %s  %s/s", size, rate) < 0)
        return;
    hy_out_str(&out, "\r");
    hy_out_cut(&out, (const char *)hy_buf_bytes(&line), line.len, now.style.width - 1);
    hy_out_str(&out, "\033[K");
    now.is_drawn = hy_out_flush(&out, STDERR_FILENO) == 0;
    now.drawn = ms;
}

static int progress(void *arg, uint64_t more)
{
    int64_t ms = hy_clock_ms();

    (void)arg;
    take_signals();
    if (now.signal)
        return -EINTR;
    now.bytes += more;
    if (now.style.terminal && ms - now.started >= QUIET_MS && ms - now.drawn >= DRAW_MS &&
        tcgetpgrp(STDERR_FILENO) == getpgrp())
        draw(ms);
    return 0;
}

static void progress_begin(const char *name)
{
    now.name = name;
    now.bytes = 0;
    now.started = hy_clock_ms();
}

/* ---- common parts ------------------------------------------------------------------- */

struct job {
    const char *target;
    bool replace, recursive;
    bool into; /* the target is a directory */
};

/* 1 when a signal canceled the copy: no error is printed. */
static int copy_result(int rc, struct hy_err *err)
{
    const struct hy_err before = *err;

    wipe();
    if (now.signal)
        return 1;
    return rc == -EEXIST ? hy_err_set(err, rc, "%s; use -f to replace it", before.text) : rc;
}

/* 1: the target is a directory; 0: a file or missing. */
static int look_at_target(const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc = hy_fs_stat(url, &info, err);

    if (rc < 0 && rc != -ENOENT)
        return rc;
    *err = (struct hy_err){0};
    return rc == 0 && info.is_dir;
}

static int check_job(struct job *j, size_t sources, struct hy_err *err)
{
    int rc = look_at_target(j->target, err);

    j->into = rc > 0;
    if (rc < 0)
        return rc;
    if (sources > 1 && !j->into)
        return hy_err_set(err, -ENOTDIR, "%s is not a directory; %zu files cannot be copied into it", j->target,
                          sources);
    return 0;
}

/* Catches signals during a copy. */
static int begin(struct hy_err *err)
{
    int rc = hy_signals_open();

    hy_style_of(STDERR_FILENO, &now.style);
    hy_fs_on_wait(take_signals);
    return rc < 0 ? hy_err_sys(err, rc, "cannot catch signals") : 0;
}

static int end(int status)
{
    hy_fs_on_wait(NULL);
    hy_signals_close();
    if (!now.signal)
        return status;
    raise(now.signal); /* so that a shell sees the signal and ends its loop */
    return HY_EXIT_STOPPED;
}

static int run_job(const struct hy_args *args, struct job *j, hy_files_act *act)
{
    hy_cleanup_urls struct hy_urls sources = {0};
    const size_t last = args->word_count - 1;
    struct hy_err err = {0};
    int status;

    j->target = args->words[last];
    j->replace = hy_args_has(args, "force");
    status = hy_files_expand(args, 0, last, false, &sources);
    if (sources.count == 0)
        return status;
    if (check_job(j, sources.count, &err) < 0 || begin(&err) < 0)
        return hy_files_print_error(&err);
    return end(hy_files_each(&sources, act, j) == HY_EXIT_OK ? status : HY_EXIT_FAILED);
}

/* ---- cp, put, get ------------------------------------------------------------------ */

static int copy(void *arg, const char *url, struct hy_err *err)
{
    const struct job *j = arg;
    const struct hy_fs_copy how = {.replace = j->replace, .recursive = j->recursive, .progress = progress};

    progress_begin(url);
    return copy_result(hy_fs_copy(url, j->target, &how, err), err);
}

int hy_files_cp(const struct hy_args *args)
{
    struct job j = {.recursive = hy_args_has(args, "recursive")};

    return run_job(args, &j, copy);
}

/* Copies standard input up to EOF or a signal. */
static int pour_input(struct hy_fs_file *to, char *room, struct hy_err *err)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = hy_signals_open(), .events = POLLIN}};

    for (;;) {
        ssize_t got = 0;
        int rc = HY_SYS(poll(fds, 2, -1));

        if ((rc < 0 && errno == EINTR) || (rc > 0 && !fds[0].revents)) {
            take_signals();
            if (now.signal)
                return -EINTR;
            continue;
        }
        if (rc > 0)
            got = HY_SYS(read(STDIN_FILENO, room, PIECE));
        if (rc < 0 || got < 0)
            return hy_err_sys(err, -errno, "cannot read standard input");
        if (got == 0)
            return 0;
        rc = hy_fs_write(to, room, (size_t)got, err);
        if (rc == 0)
            rc = progress(NULL, (uint64_t)got);
        if (rc < 0)
            return rc;
    }
}

static int put_input(const struct job *j, struct hy_err *err)
{
    hy_cleanup_free char *room = hy_malloc(PIECE);
    struct hy_fs_atomic_file draft;
    int rc = room ? hy_fs_atomic_file_open(&draft, j->target, err) : hy_err_oom(err);

    if (rc < 0)
        return rc;
    progress_begin("standard input");
    rc = pour_input(draft.file, room, err);
    if (rc == 0)
        return hy_fs_atomic_file_commit(&draft, j->replace, err);
    hy_fs_atomic_file_abort(&draft);
    return rc;
}

/* Reports an unusable target before anything is read. */
static int check_input(const struct job *j, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc = hy_fs_stat(j->target, &info, err);

    if (rc == -ENOENT)
        return hy_files_check_parent(j->target, err);
    if (rc == 0 && info.is_dir)
        return hy_err_set(err, -EISDIR, "%s is a directory; give the name of the file for standard input", j->target);
    if (rc == 0 && !j->replace)
        return hy_err_set(err, -EEXIST, "%s exists already", j->target);
    return rc;
}

static int run_input(const struct hy_args *args)
{
    const struct job j = {.target = args->words[1], .replace = hy_args_has(args, "force")};
    struct hy_err err = {0};
    int rc = check_input(&j, &err);

    if (rc == 0)
        rc = begin(&err);
    if (rc == 0)
        rc = put_input(&j, &err);
    return end(copy_result(rc, &err) < 0 ? hy_files_print_error(&err) : HY_EXIT_OK);
}

int hy_files_put(const struct hy_args *args)
{
    struct job j = {.recursive = true};

    return args->word_count == 2 && strcmp(args->words[0], "-") == 0 ? run_input(args) : run_job(args, &j, copy);
}

int hy_files_get(const struct hy_args *args)
{
    hy_cleanup_urls struct hy_urls sources = {0};
    const size_t last = args->word_count - 1;
    struct job j = {.recursive = true};
    int status;

    if (strcmp(args->words[last], "-") != 0)
        return run_job(args, &j, copy);
    status = hy_files_expand(args, 0, last, false, &sources);
    return hy_files_print(&sources) == HY_EXIT_OK ? status : HY_EXIT_FAILED;
}

/* ---- mv ---------------------------------------------------------------------------- */

/* The real path of a local file; NULL when unknown. */
static char *real_path(const char *url)
{
    hy_cleanup_free char *path = NULL;

    return hy_fs_local_path(url, &path, NULL) < 0 ? NULL : realpath(path, NULL);
}

/* Whether `to` is inside of `from`: removing the source would remove the copy. */
static bool is_inside(const char *from, const char *to)
{
    hy_cleanup_free char *parent = hy_url_parent(to), *outer = real_path(from);
    hy_cleanup_free char *inner = parent ? real_path(parent) : NULL;
    const size_t n = outer ? strlen(outer) : 0;

    return !outer || !inner || (strncmp(outer, inner, n) == 0 && (!inner[n] || inner[n] == '/'));
}

/* Two remote URLs may name the same file, so that removing the source would remove the copy: copies and removes only
 * if one of them is local. */
static bool may_copy(const char *from, const char *to)
{
    const bool from_here = hy_url_is_local(from), to_here = hy_url_is_local(to);

    return from_here && to_here ? !is_inside(from, to) : from_here || to_here;
}

static int copy_and_remove(const struct job *j, const char *from, const char *to, struct hy_err *err)
{
    const struct hy_fs_copy how = {.replace = j->replace, .recursive = true, .progress = progress};
    int rc = look_at_target(to, err);

    if (rc > 0)
        return hy_err_set(err, -ENOTEMPTY, "%s exists already; a directory is not replaced between file systems", to);
    progress_begin(from);
    rc = rc < 0 ? rc : hy_fs_copy(from, to, &how, err);
    return rc < 0 ? rc : hy_fs_remove(from, true, err);
}

static int move(void *arg, const char *url, struct hy_err *err)
{
    const struct job *j = arg;
    size_t length, begin_of_name = hy_url_name(url, &length);
    hy_cleanup_free char *name = hy_strndup(url + begin_of_name, length);
    hy_cleanup_free char *to = !name ? NULL : j->into ? hy_fs_join(j->target, name) : hy_strdup(j->target);
    int rc = to ? hy_fs_rename(url, to, j->replace, err) : hy_err_oom(err);

    if (rc == -EXDEV && may_copy(url, to)) {
        *err = (struct hy_err){0};
        rc = copy_and_remove(j, url, to, err);
    }
    return copy_result(rc, err);
}

int hy_files_mv(const struct hy_args *args)
{
    struct job j = {0};

    return run_job(args, &j, move);
}
