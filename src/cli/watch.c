/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of a client: reads the driver's updates, signals and keys;
 * writes frames or lines.
 *
 *   Ctrl-C in a terminal: prompts; again: stops the run; again: detaches
 *   Ctrl-C elsewhere: stops the run; again: detaches
 *   TERM: stops a run that this command has started, except in a notebook
 *   HUP, a closed pipe, TERM and Ctrl-C in a notebook: detaches, unless the run
 *   ends with this command (horovodrun)
 */
#include "cli/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/failures.h"
#include "client/client.h"
#include "cli/screen.h"
#include "cli/signals.h"
#include "cli/rank_output.h"
#include "driver/driver.h"
#include "wire/wire.h"

#define FRAME_MS 125
#define HTML_MS 250 /* a notebook redraws the whole cell for each fragment */
#define CONNECT_TRIES 20
#define CONNECT_MS 100
#define SIGNAL_MS 200 /* wait for a signal that accompanies a closed pipe */

enum mode { WATCHING, PROMPTING, STOPPING };

struct watch {
    const char *what;
    struct hy_store *store;
    struct hy_run_info info;
    int fd; /* to the driver */
    int signals;
    struct hy_buf rest, message;
    struct hy_out out; /* text for `out_fd` */
    int out_fd;        /* standard output, or standard error if standard output has the output of ranks */
    bool live;               /* a live table in a terminal */
    bool quiet;              /* no lines, no summary */
    bool no_reason;          /* the caller prints why a training failed */
    bool html, html_due;     /* for a notebook; a new fragment is due */
    struct hy_run_lines lines; /* for all other formats */
    struct hy_live_view view;
    struct hy_history history;
    Hy__Update *update; /* the newest; NULL: everything it covers has been read and shown */
    bool unread;        /* the last read of the store failed */
    struct hy_rank_output stream; /* of a training: the output of its ranks */
    int64_t stream_read_ms;
    int aside; /* error lines of a child process; -1: none */
    struct hy_buf aside_text;
    struct hy_screen screen; /* when live */
    unsigned spin;
    int64_t drawn_ms;
    enum mode mode;
    bool started;    /* by this command */
    int owner;       /* if the run ends with this command: the fd of hy_driver_launch; otherwise -1 */
    int stop_status; /* STOPPING: the exit status that follows */
    bool muted;      /* STOPPING: the output is closed; print nothing more */
    bool over;
    int status;
};

/* Text or JSON lines, in a pipe or for a program. */
static bool prints_lines(const struct watch *w)
{
    return !w->live && !w->html && !w->quiet;
}

/* ---- output -------------------------------------------------------------------- */

static const char *footer(const struct watch *w)
{
    if (w->mode == PROMPTING)
        return "Stop the run (s), detach and leave it running (d), or continue (c)?";
    if (w->mode == STOPPING)
        return "Stopping the run and its trials. (Press Ctrl-C again to detach.)";
    return NULL;
}

static void draw(struct watch *w)
{
    int64_t now = hy_clock_ms();

    hy_style_of(STDOUT_FILENO, &w->out.style);
    w->view.above = hy_rank_output_current(&w->stream);
    if (hy_live_view_text(&w->view, &w->out, now, w->spin, footer(w)) == 0)
        hy_screen_draw(&w->screen, &w->out);
    hy_buf_clear(&w->out.buf);
    w->out.rc = 0; /* the next frame replaces a failed one */
    w->drawn_ms = now;
}

static void leave(struct watch *w, int status)
{
    w->over = true;
    w->status = status;
}

/* The last update has arrived, and the rest of the history is being read. */
static bool has_ended(const struct watch *w)
{
    return w->update && w->update->last;
}

/* 0 unless this command is stopping the run. */
static int stop_status(const struct watch *w)
{
    return w->mode == STOPPING ? w->stop_status : 0;
}

static void stop(struct watch *w, int signal);
static void take_signals(struct watch *w, int timeout_ms);

/* The output cannot be written: `hopyard run … | head`, or a full disk. When a job is canceled, `tee` may exit before
 * this process receives its signal. */
static void on_write_error(struct watch *w, int rc)
{
    long long run = w->info.row.id;
    struct hy_err err = {0};

    take_signals(w, SIGNAL_MS);
    if (w->over)
        return;
    if (has_ended(w)) {
        leave(w, rc == -EPIPE ? hy_exit_status(w->update, stop_status(w)) : HY_EXIT_FAILED);
        if (rc == -EPIPE)
            return;
        hy_err_sys(&err, rc, "run %lld has ended, but its trials cannot be printed", run);
        hy_print_error(w->what, &err);
        return;
    }
    if (w->owner >= 0 && w->mode != STOPPING) {
        hy_err_sys(&err, rc, "stopping run %lld, because its output cannot be printed", run);
        hy_print_error(w->what, &err);
        stop(w, SIGPIPE);
    }
    if (w->mode == STOPPING) {
        w->muted = true; /* wait for the end without output */
        return;
    }
    if (rc == -EPIPE)
        hy_err_set(&err, rc, "the output was closed; run %lld continues, watch it with: hopyard attach %lld", run, run);
    else
        hy_err_sys(&err, rc, "cannot print the output; run %lld continues, watch it with: hopyard attach %lld", run,
                   run);
    hy_print_error(w->what, &err);
    leave(w, rc == -EPIPE ? HY_EXIT_OK : HY_EXIT_FAILED);
}

/* Writes the rendered text. */
static void flush(struct watch *w, int rc)
{
    if (w->muted) {
        hy_buf_clear(&w->out.buf);
        w->out.rc = 0;
        return;
    }
    if (rc == 0)
        rc = hy_out_flush(&w->out, w->out_fd);
    if (rc < 0 && !w->over)
        on_write_error(w, rc);
}

static void note_above(struct watch *w, const char *text)
{
    hy_out_tint(&w->out, HY_YELLOW, "note: ");
    hy_out_value(&w->out, text);
    hy_out_str(&w->out, "\n");
    if (!w->screen.open) {
        flush(w, w->out.rc);
        return;
    }
    hy_screen_above(&w->screen, &w->out);
    hy_buf_clear(&w->out.buf);
    w->out.rc = 0;
}

/* ---- output of ranks ------------------------------------------------------------- */

static void show_rank_output(struct watch *w, bool last)
{
    int rc = w->muted ? 0 : hy_rank_output_show(&w->stream, last);

    w->stream_read_ms = hy_clock_ms();
    if (rc > 0)
        w->drawn_ms = 0; /* redraw the table at once */
    if (rc < 0 && !w->over)
        on_write_error(w, rc);
}

static int stream_open(struct watch *w, const struct hy_watching *how)
{
    bool alone = w->live && !how->all_ranks;
    int rc;

    if (!w->info.row.ranks || !w->info.spec || w->html || w->quiet || w->lines.json)
        return 0;
    rc = hy_rank_output_init(&w->stream, w->info.row.logdir, w->info.spec, !alone);
    if (rc == 0 && how->since_ms)
        rc = hy_rank_output_since(&w->stream, how->since_ms);
    else if (rc == 0 && w->live)
        rc = hy_rank_output_near_end(&w->stream);
    w->stream.above = w->live ? &w->screen : NULL;
    w->stream.text =
        (struct hy_log_format){.escape = w->live, .overwrite = w->live, .prefix = alone ? HY_LOG_LINES : HY_LOG_RANKED};
    if (!w->live) {
        w->out_fd = STDERR_FILENO;
        hy_style_of(STDERR_FILENO, &w->out.style);
    }
    return rc;
}

static void send_html(struct watch *w)
{
    w->html_due = false;
    w->drawn_ms = hy_clock_ms();
    flush(w, hy_live_view_html(&w->view, &w->out, w->drawn_ms));
}

/* Prints the rank that failed first, before the last line. */
static void print_first_failure(struct watch *w, const Hy__Update *u)
{
    if (!u->ranks || !u->failed || w->lines.json || w->no_reason)
        return;
    hy_live_view_find_first_failure(&w->view, w->store, &w->info);
    flush(w, hy_live_view_first_failure(&w->view, u, &w->out));
}

/* ---- updates and history -------------------------------------------------------------- */

static void drop_update(struct watch *w)
{
    if (w->update)
        hy__update__free_unpacked(hy_take(w->update), &hy_proto_memory);
}

/* The next update retries; the end of the run does not wait for it. */
static void report_unread(struct watch *w, const struct hy_err *why)
{
    struct hy_err err = {0};

    if (w->unread)
        return;
    w->unread = true;
    hy_err_set(&err, why->code, "cannot read the trials of run %lld: %s", (long long)w->info.row.id, why->text);
    if (w->screen.open)
        note_above(w, err.text);
    else
        hy_print_error(w->what, &err);
}

/* Shows the part of the history that was read, without the end. */
static void show_part(struct watch *w, Hy__Update *u)
{
    const bool last = u->last;

    for (size_t i = 0; w->live && i < u->n_notes; i++)
        note_above(w, u->notes[i]);
    w->html_due = w->html;
    if (!prints_lines(w))
        return;
    if (u->ended_seq)
        w->lines.skip = 0; /* the position is exact */
    u->last = false;
    flush(w, hy_run_lines_update(&w->lines, u, &w->out));
    u->last = last;
    hy_history_drop(u);
}

/* The run has ended, and all of its history was shown. */
static void show_end(struct watch *w, Hy__Update *u)
{
    show_rank_output(w, true);
    if (prints_lines(w))
        print_first_failure(w, u);
    leave(w, w->unread ? HY_EXIT_FAILED : hy_exit_status(u, stop_status(w)));
    if (prints_lines(w))
        flush(w, hy_run_lines_update(&w->lines, u, &w->out));
}

/* Reads the next part of what the update covers and shows it. */
static void catch_up(struct watch *w)
{
    Hy__Update *u = w->update;
    struct hy_err err = {0};
    int rc = hy_history_read(&w->history, w->store, u, prints_lines(w) ? 0 : HY_LIVE_VIEW_RECENT, &err);

    if (rc < 0)
        report_unread(w, &err);
    else
        w->unread = false;
    show_part(w, u);
    if (rc > 0 || w->over)
        return;
    w->update = NULL;
    if (u->last)
        show_end(w, u);
    hy_live_view_take(&w->view, u, hy_clock_ms());
}

static void hang_up(struct watch *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

/* Keeps only the newest update: it replaces earlier ones, except for the trials and notes in those of an older
 * driver. */
static void take_update(struct watch *w, Hy__Update *u)
{
    if (w->update && (w->update->n_ended || w->update->n_notes))
        catch_up(w);
    drop_update(w);
    w->update = u;
    if (u->last)
        hang_up(w);
}

/* ---- errors of the child process ------------------------------------------------- */

/* A note that is not stored with the run. */
static void show_notice(struct watch *w, const char *text)
{
    if (w->live)
        note_above(w, text);
    else if (prints_lines(w))
        flush(w, hy_run_lines_note(&w->lines, w->info.row.id, text, &w->out));
    else if ((text = hy_strdup(text)))
        hy_live_view_take_note(&w->view, (char *)text);
    w->html_due = w->html;
}

/* Without the prefix "hopyard tensorboard: ". */
static void on_aside_line(struct watch *w, const char *line)
{
    static const char prefix[] = "hopyard ";
    const char *colon = strstr(line, ": ");

    show_notice(w, strncmp(line, prefix, sizeof prefix - 1) == 0 && colon ? colon + 2 : line);
}

static void read_aside(struct watch *w)
{
    char chunk[512];
    ssize_t n = read(w->aside, chunk, sizeof chunk);
    char *line, *newline;

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0 || hy_buf_append(&w->aside_text, chunk, (size_t)n) < 0) {
        hy_close_at(&w->aside);
        w->aside = -1;
        return;
    }
    while ((line = (char *)hy_buf_cstr(&w->aside_text)) && (newline = strchr(line, '\n'))) {
        *newline = '\0';
        on_aside_line(w, line);
        hy_buf_consume(&w->aside_text, (size_t)(newline + 1 - line));
    }
}

/* ---- signals and keys ----------------------------------------------------------- */

/* Stops the run because of a signal, which determines the exit status. */
static void stop(struct watch *w, int signal)
{
    /* If the request cannot be sent, the next read fails, and connect_once sends it again. */
    w->mode = STOPPING;
    w->stop_status = HY_EXIT_SIGNAL + signal;
    if (w->fd >= 0 && hy_client_stop(w->fd, false) < 0)
        shutdown(w->fd, SHUT_RDWR);
}

static void detach(struct watch *w)
{
    if (has_ended(w)) {
        leave(w, hy_exit_status(w->update, stop_status(w)));
        return;
    }
    hy_screen_close(&w->screen);
    if (w->owner >= 0 && w->mode != STOPPING && hy_driver_disown(w->owner) < 0)
        errno = 0; /* a driver that has exited cannot stop the run */
    if (!w->html && hy_print_detached(w->info.row.id, w->lines.json, "") < 0)
        errno = 0; /* the terminal was closed */
    leave(w, stop_status(w));
}

static void on_interrupt(struct watch *w)
{
    if (w->mode == STOPPING || w->html || has_ended(w)) {
        detach(w);
    } else if (w->mode == WATCHING && w->live && w->screen.changed) {
        tcflush(w->screen.keys, TCIFLUSH); /* keys pressed before the prompt do not answer it */
        w->mode = PROMPTING;
    } else {
        stop(w, SIGINT);
    }
}

/* From a job scheduler, `timeout` or a closed terminal. `timeout` also signals the group, so it may arrive twice. */
static void on_terminate(struct watch *w, int signal)
{
    bool stops = w->owner >= 0 || (w->started && !w->html && signal == SIGTERM);

    if (!stops || has_ended(w))
        detach(w);
    else if (w->mode != STOPPING)
        stop(w, signal);
}

static void on_key(struct watch *w)
{
    int key = hy_screen_key(&w->screen);

    if (key == 's' || key == 'S')
        stop(w, SIGINT);
    else if (key == 'd' || key == 'D')
        detach(w);
    else if (key == 'c' || key == 'C' || key == '\n' || key == '\033')
        w->mode = WATCHING;
}

/* Restores the terminal while this process is suspended. */
static void suspend(struct watch *w)
{
    hy_screen_close(&w->screen);
    raise(SIGSTOP);
    if (w->live)
        hy_screen_open(&w->screen, STDOUT_FILENO);
}

static void on_signal(struct watch *w, int signal)
{
    switch (signal) {
    case SIGINT:
        on_interrupt(w);
        break;
    case SIGTERM:
    case SIGHUP:
        on_terminate(w, signal);
        break;
    case SIGTSTP:
        suspend(w);
        break;
    case SIGCONT: /* perhaps from the background, without access to the terminal */
        if (w->live && !w->screen.changed) {
            hy_screen_close(&w->screen);
            hy_screen_open(&w->screen, STDOUT_FILENO);
        }
        break;
    case SIGQUIT:
        hy_screen_close(&w->screen);
        hy_signals_close();
        raise(SIGQUIT);
        break;
    default: /* SIGWINCH: the next frame reads the new size */
        w->drawn_ms = 0;
    }
}

static void take_signals(struct watch *w, int timeout_ms)
{
    struct pollfd signals = {.fd = w->signals, .events = POLLIN};
    int signal;

    if (timeout_ms)
        poll(&signals, 1, timeout_ms);
    while (!w->over && (signal = hy_signals_next()))
        on_signal(w, signal);
}

/* ---- connecting ------------------------------------------------------------------- */

static void take_end(struct watch *w, struct hy_err *err)
{
    Hy__Update *u = NULL;

    if (hy_run_info_update(w->store, &w->info, &u, err) < 0) {
        hy_print_error(w->what, err);
        leave(w, HY_EXIT_FAILED);
        return;
    }
    if (w->quiet)
        u->notes_until = 0;
    take_update(w, u);
}

static void report_lost_driver(struct watch *w)
{
    hy_cleanup_free char *log = hy_driver_log(w->store, w->info.row.id);
    long long run = w->info.row.id;
    struct hy_err err = {0};
    char text[80];

    hy_screen_close(&w->screen);
    hy_err_set(&err, -EPIPE, "the driver of run %lld died; completed trials are safe%s (see %s)", run,
               hy_resume_clause(hy_run_resume(w->info.spec), run, ", and '", "' continues it", text, sizeof text),
               log ? log : "its log");
    hy_print_error(w->what, &err);
    if (w->html)
        take_end(w, &err); /* as recorded in the store */
    else
        leave(w, HY_EXIT_FAILED);
}

/* Reads the run again. 1 when it is still running, 0 when it has ended, or -Exxx. */
static int reload(struct watch *w, struct hy_err *err)
{
    char number[32];
    int rc;

    snprintf(number, sizeof number, "%lld", (long long)w->info.row.id);
    hy_run_info_done(&w->info);
    rc = hy_run_info_find(w->store, number, &w->info, err);
    return rc < 0 ? rc : w->info.row.state == HY_RUN_RUNNING;
}

static int connect_once(struct watch *w, struct hy_err *err)
{
    int rc;

    w->fd = hy_client_connect(w->store, w->info.row.id, err);
    if (w->fd < 0)
        return w->fd;
    hy_buf_clear(&w->rest);
    w->lines.skip = w->lines.ended; /* an older driver sends all trials again */
    rc = hy_client_watch(w->fd, prints_lines(w));
    if (rc == 0 && w->mode == STOPPING)
        rc = hy_client_stop(w->fd, false);
    return rc;
}

static void on_answer(struct watch *w, Hy__ClientAnswer *answer)
{
    struct hy_err err = {0};

    if (answer->body_case == HY__CLIENT_ANSWER__BODY_UPDATE) {
        take_update(w, hy_take(answer->update));
        answer->body_case = HY__CLIENT_ANSWER__BODY__NOT_SET;
    } else if (answer->body_case == HY__CLIENT_ANSWER__BODY_NOTICE) {
        show_notice(w, answer->notice);
    } else if (answer->body_case == HY__CLIENT_ANSWER__BODY_ERROR) {
        hy_err_set(&err, -EPROTO, "%s", answer->error);
        hy_screen_close(&w->screen);
        hy_print_error(w->what, &err);
        leave(w, HY_EXIT_FAILED);
    }
    hy__client_answer__free_unpacked(answer, &hy_proto_memory);
}

/* A driver with too many clients sends an error and closes the connection, perhaps before it reads the request. */
static bool was_refused(struct watch *w)
{
    Hy__ClientAnswer *answer;

    if (w->fd >= 0 && hy_client_next(w->fd, &w->rest, &w->message, 0, &answer) == 1)
        on_answer(w, answer);
    return w->over;
}

/*
 * Connects to the driver, or handles the reason why that is impossible: the run
 * has ended (a short one may end before the first connection), or its driver has
 * died. Reconnects if a running driver has closed the connection (after this
 * process was suspended for long). The store has the end of a run before its files
 * are on HDFS; a driver that still exists reports the end when they are.
 */
static void connect_driver(struct watch *w)
{
    for (int i = 0; i < CONNECT_TRIES && !w->over; i++) {
        long long run = w->info.row.id;
        struct hy_err err = {0};
        int rc;

        hang_up(w);
        rc = reload(w, &err);
        if (rc < 0) {
            hy_err_wrap(&err, "run %lld", run);
            hy_screen_close(&w->screen);
            hy_print_error(w->what, &err);
            leave(w, HY_EXIT_FAILED);
        } else if (rc == 0) {
            if (!w->info.alive || connect_once(w, &err) < 0)
                take_end(w, &err);
            return;
        } else if (connect_once(w, &err) == 0 || was_refused(w)) {
            return;
        } else if (!w->info.alive) {
            break;
        }
        if (!w->over)
            poll(NULL, 0, CONNECT_MS);
    }
    if (!w->over)
        report_lost_driver(w);
}

/* ---- the loop --------------------------------------------------------------------- */

static void read_answers(struct watch *w)
{
    Hy__ClientAnswer *answer;
    int rc;

    while (!w->over && w->fd >= 0 && (rc = hy_client_next(w->fd, &w->rest, &w->message, 0, &answer)) != -EAGAIN) {
        if (rc == -EINTR)
            continue;
        if (rc <= 0) {
            if (w->update)
                catch_up(w); /* before reconnecting */
            connect_driver(w);
            return;
        }
        on_answer(w, answer);
    }
}

static int frame_timeout(const struct watch *w)
{
    int every = w->html ? HTML_MS : FRAME_MS;
    int64_t due = w->drawn_ms + every - hy_clock_ms();

    return !w->live && !w->html_due ? -1 : due < 0 ? 0 : due > every ? every : (int)due;
}

/* Until the next frame or the next read of the ranks' output, whichever is first. */
static int wait_ms(const struct watch *w)
{
    int frame = frame_timeout(w);

    if (w->update)
        return 0;
    return w->stream.ranks && (frame < 0 || frame > HY_RANK_OUTPUT_MS) ? HY_RANK_OUTPUT_MS : frame;
}

static void run_once(struct watch *w)
{
    struct pollfd fds[] = {
        {.fd = w->fd, .events = POLLIN},
        {.fd = w->signals, .events = POLLIN},
        {.fd = w->mode == PROMPTING ? w->screen.keys : -1, .events = POLLIN},
        {.fd = w->aside, .events = POLLIN},
    };

    poll(fds, HY_COUNT(fds), wait_ms(w));
    take_signals(w, 0);
    if (!w->over && w->mode == PROMPTING && fds[2].revents)
        on_key(w);
    if (!w->over && fds[0].revents)
        read_answers(w);
    if (!w->over && w->update)
        catch_up(w);
    if (!w->over && fds[3].revents)
        read_aside(w);
    if (!w->over && w->stream.ranks && hy_clock_ms() - w->stream_read_ms >= HY_RANK_OUTPUT_MS)
        show_rank_output(w, false);
    if (!w->over && w->live && frame_timeout(w) == 0) {
        w->spin++;
        draw(w);
    }
    if (!w->over && w->html && frame_timeout(w) == 0)
        send_html(w);
}

/* Prints the summary, or the last fragment. */
static void finish(struct watch *w)
{
    hy_screen_close(&w->screen);
    if (prints_lines(w) || !w->view.now || !w->view.now->last || (w->quiet && w->status == HY_EXIT_OK))
        return;
    if (w->info.row.ranks && !w->no_reason)
        hy_live_view_find_first_failure(&w->view, w->store, &w->info);
    else if (!w->info.row.ranks)
        hy_live_view_failures(&w->view, w->store, w->info.row.id);
    if (!w->html) {
        hy_style_of(w->out_fd, &w->out.style);
        hy_live_view_summary(&w->view, &w->out);
    } else {
        hy_live_view_html(&w->view, &w->out, hy_clock_ms());
    }
    if (hy_out_flush(&w->out, w->out_fd) < 0)
        errno = 0; /* the exit status has the result, too */
}

static void watch_done(struct watch *w)
{
    hy_screen_close(&w->screen);
    hang_up(w);
    drop_update(w);
    hy_buf_done(&w->rest);
    hy_buf_done(&w->message);
    hy_close_at(&w->aside);
    hy_close_at(&w->owner);
    hy_buf_done(&w->aside_text);
    hy_out_done(&w->out);
    hy_rank_output_done(&w->stream);
    hy_live_view_done(&w->view);
    hy_run_info_done(&w->info);
    hy_store_close(w->store);
}

static int watch_open(struct watch *w, const char *project, int64_t run, const struct hy_watching *how,
                      struct hy_err *err)
{
    char number[32];
    int rc;

    snprintf(number, sizeof number, "%lld", (long long)run);
    w->signals = hy_signals_open();
    if (w->signals < 0)
        return hy_err_sys(err, w->signals, "cannot catch signals");
    rc = hy_store_open(project, HY_STORE_READ, &w->store, err);
    if (rc == 0)
        rc = hy_run_info_find(w->store, number, &w->info, err);
    if (rc < 0)
        return rc;
    w->lines.seed = (uint64_t)w->info.row.seed;
    return stream_open(w, how) < 0 ? hy_err_oom(err) : 0;
}

int hy_watch(const char *project, int64_t run, const struct hy_watching *how)
{
    struct watch w = {.what = how->what,
                      .fd = -1,
                      .aside = how->aside,
                      .screen.keys = -1,
                      .out_fd = STDOUT_FILENO,
                      .started = how->started,
                      .owner = how->owner};
    struct hy_style style;
    struct hy_err err = {0};
    int rc;

    hy_style_of(STDOUT_FILENO, &style);
    w.quiet = how->form == HY_OUTPUT_QUIET;
    w.no_reason = how->no_reason;
    w.live = style.terminal && (how->form == HY_OUTPUT_TEXT || w.quiet);
    if (w.quiet && !w.live)
        w.out_fd = STDERR_FILENO; /* the caller uses standard output for its result */
    w.html = how->form == HY_OUTPUT_HTML;
    w.lines.json = how->form == HY_OUTPUT_JSON;
    hy_out_init(&w.out, w.html ? &hy_html_style : &style);
    hy_buf_init(&w.aside_text, 4096);
    hy_buf_init(&w.rest, 2 * HY_LOCAL_MAX);
    hy_buf_init(&w.message, HY_LOCAL_MAX);
    rc = watch_open(&w, project, run, how, &err);
    if (rc < 0) {
        hy_err_wrap(&err, "run %lld", (long long)run);
        hy_print_error(how->what, &err);
        leave(&w, HY_EXIT_FAILED);
    } else {
        connect_driver(&w);
    }
    if (!w.over && w.live && w.fd >= 0)
        hy_screen_open(&w.screen, STDOUT_FILENO);
    while (!w.over)
        run_once(&w);
    finish(&w);
    watch_done(&w);
    return w.status;
}

int hy_exit_status(const Hy__Update *last, int stopped)
{
    if (stopped && strcmp(last->state, "stopped") == 0)
        return stopped;
    return strcmp(last->state, "done") == 0 && (last->failed == 0 || last->ranks) ? HY_EXIT_OK : HY_EXIT_FAILED;
}

int hy_print_detached(int64_t run, bool json, const char *tensorboard)
{
    hy_cleanup_out struct hy_out out = {0};
    struct hy_run_lines lines = {.json = json};
    struct hy_style style;

    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&out, &style);
    hy_run_lines_detached(&lines, run, tensorboard, &out);
    return hy_out_flush(&out, STDOUT_FILENO);
}
