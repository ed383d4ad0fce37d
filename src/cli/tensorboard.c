/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tensorboard`: runs TensorBoard as a child process, for a run or a directory.
 *
 *   port reserved ─► address printed ─► child started ─► child listens ─► address sent to the driver
 *
 * The command exits with its child, its owner, or a signal, whichever is first;
 * the child exits with the command, even when that is killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/project.h"
#include "cli/commands.h"
#include "client/client.h"
#include "cli/port_reservation.h"
#include "cli/signals.h"
#include "cli/tensorboard_viewer.h"
#include "cli/watch.h"

#define PROBE_MS 100        /* between checks whether the child listens */
#define GRACE_MS 2000       /* from SIGTERM to SIGKILL */
#define CHATTER_MAX 16384   /* bytes kept of the child's output */
#define CHATTER_CHUNK 4096

/* ---- the process ------------------------------------------------------------------- */

struct server {
    const char *what; /* the command's name for error messages */
    struct hy_tensorboard_target target;
    struct hy_tensorboard_viewer viewer;
    struct hy_port port;
    char address[64];
    pid_t child;
    int child_fd, owner_fd, chatter_fd, driver_fd; /* -1: none */
    int signals;
    struct hy_buf chatter; /* the end of the child's output */
    bool listens, over;
    int status;
};

static int open_process(pid_t pid)
{
    int fd = (int)HY_SYS(syscall(SYS_pidfd_open, pid, 0));

    return fd < 0 ? -errno : fd;
}

static int fork_viewer(struct server *s, int chatter, char *const *argv)
{
    pid_t parent = getpid();

    s->child = HY_SYS(fork());
    if (s->child < 0)
        return -errno;
    if (s->child == 0)
        hy_tensorboard_exec(parent, chatter, argv);
    setpgid(s->child, s->child); /* also in the parent: either process may be first */
    s->child_fd = open_process(s->child);
    return s->child_fd < 0 ? s->child_fd : 0;
}

static int start_viewer(struct server *s, struct hy_err *err)
{
    char port[8];
    char *module[] = {s->viewer.program, (char *)"-m", (char *)"tensorboard.main", NULL};
    /* A trial's directory has an event file of hopyard and its own: --reload_multifile follows both. */
    char *options[] = {(char *)"--logdir",
                       s->target.directory,
                       (char *)"--host",
                       (char *)"127.0.0.1",
                       (char *)"--reload_multifile",
                       (char *)"true",
                       (char *)"--port",
                       port,
                       NULL};
    char *argv[HY_COUNT(module) + HY_COUNT(options)];
    size_t n = s->viewer.is_python ? HY_COUNT(module) - 1 : 1;
    int ends[2], rc;

    snprintf(port, sizeof port, "%u", s->port.number);
    memcpy(argv, module, n * sizeof *argv);
    memcpy(argv + n, options, sizeof options);
    if (HY_SYS(pipe2(ends, O_CLOEXEC)) < 0)
        return hy_err_sys(err, -errno, "cannot create a pipe");
    s->chatter_fd = ends[0];
    rc = fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
    if (rc == 0)
        rc = fork_viewer(s, ends[1], argv);
    close(ends[1]);
    return rc < 0 ? hy_err_sys(err, rc, "cannot start TensorBoard") : 0;
}

/* SIGTERM, then SIGKILL after GRACE_MS, to the whole process group. */
static int end_viewer(struct server *s)
{
    struct pollfd p = {.fd = s->child_fd, .events = POLLIN};
    int status = 0;

    if (s->child <= 0)
        return 0;
    kill(-s->child, SIGTERM);
    poll(&p, 1, p.fd < 0 ? 0 : GRACE_MS);
    kill(-s->child, SIGKILL);
    while (waitpid(s->child, &status, 0) < 0 && errno == EINTR)
        ;
    s->child = 0;
    return status;
}

/* ---- exit ------------------------------------------------------------------------------- */

static void leave(struct server *s, int status)
{
    s->over = true;
    s->status = status;
}

static void fail(struct server *s, const struct hy_err *err)
{
    hy_print_error(s->what, err);
    leave(s, HY_EXIT_FAILED);
}

/* 1 when it has read something. */
static int read_chatter(struct server *s)
{
    char chunk[CHATTER_CHUNK];
    ssize_t n = s->chatter_fd < 0 ? 0 : read(s->chatter_fd, chunk, sizeof chunk);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        hy_close_at(&s->chatter_fd);
        s->chatter_fd = -1;
        return 0;
    }
    if (s->chatter.len + (size_t)n > CHATTER_MAX)
        hy_buf_consume(&s->chatter, s->chatter.len + (size_t)n - CHATTER_MAX);
    return hy_buf_append(&s->chatter, chunk, (size_t)n) == 0;
}

/* The last non-empty line: in a Python traceback it is the exception. */
static const char *last_line(char *text)
{
    size_t n = strlen(text);
    char *newline;

    while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
        text[--n] = '\0';
    newline = strrchr(text, '\n');
    return newline ? newline + 1 : text;
}

/* From the child's output, which is modified, and its wait status. */
static void find_reason(const struct server *s, char *chatter, int status, struct hy_err *err)
{
    const char *program = s->viewer.program;
    char how[32];

    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "signal %d", WTERMSIG(status));
    else
        snprintf(how, sizeof how, "exit status %d", WEXITSTATUS(status));
    if (s->listens)
        hy_err_set(err, -ECHILD, "TensorBoard exited unexpectedly (%s): %s", how, last_line(chatter));
    else
        hy_err_set(err, -ECHILD, "TensorBoard could not start (%s, %s): %s", program, how, last_line(chatter));
}

static void on_child_end(struct server *s)
{
    struct hy_err err = {0};
    int status = end_viewer(s);
    char nothing[] = "", *chatter;

    while (read_chatter(s))
        ;
    chatter = (char *)hy_buf_cstr(&s->chatter);
    find_reason(s, chatter ? chatter : nothing, status, &err);
    fail(s, &err);
}

/* ---- events ---------------------------------------------------------------------------- */

/* The driver sends nothing to clients that only announce; this detects that it has closed the connection. */
static void read_driver(struct server *s)
{
    char chunk[CHATTER_CHUNK];
    ssize_t n = recv(s->driver_fd, chunk, sizeof chunk, MSG_DONTWAIT);

    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    hy_close_at(&s->driver_fd);
    s->driver_fd = -1;
}

/* Sends the address to the driver, whose updates show it to all clients. */
static void announce(struct server *s)
{
    struct hy_err err = {0};

    if (!s->target.store || !s->target.info.alive)
        return;
    s->driver_fd = hy_client_connect(s->target.store, s->target.info.row.id, &err);
    if (s->driver_fd >= 0 && hy_client_announce(s->driver_fd, s->address) < 0) {
        hy_close_at(&s->driver_fd);
        s->driver_fd = -1;
    }
}

/* Checks whether the child listens. If another process listens on the port, its address must not be announced. */
static void probe(struct server *s)
{
    struct hy_port_owner listener;
    struct hy_err err = {0};

    if (!hy_port_answers(s->port.number))
        return;
    hy_port_find_owner(s->port.number, &listener);
    if (listener.there && (!listener.pid || getpgid(listener.pid) != s->child)) {
        hy_err_set(&err, -EADDRINUSE, "port %u was taken by %s before TensorBoard could bind it; try again",
                   s->port.number, listener.pid ? listener.name : "another user");
        fail(s, &err);
        return;
    }
    s->listens = true;
    hy_port_release(&s->port);
    announce(s);
    hy_tensorboard_target_done(&s->target); /* the function may be large, and the store must not stay open for days */
}

static void on_signal(struct server *s, int signal)
{
    if (signal == SIGTSTP)
        raise(SIGSTOP);
    else if (signal != SIGCONT && signal != SIGWINCH)
        leave(s, HY_EXIT_OK);
}

static void turn(struct server *s)
{
    struct pollfd fds[] = {
        {.fd = s->child_fd, .events = POLLIN},   {.fd = s->owner_fd, .events = POLLIN},
        {.fd = s->chatter_fd, .events = POLLIN}, {.fd = s->driver_fd, .events = POLLIN},
        {.fd = s->signals, .events = POLLIN},
    };
    int signal;

    poll(fds, HY_COUNT(fds), s->listens ? -1 : PROBE_MS);
    while (!s->over && (signal = hy_signals_next()))
        on_signal(s, signal);
    if (fds[2].revents)
        read_chatter(s);
    if (fds[3].revents)
        read_driver(s);
    if (fds[1].revents)
        leave(s, HY_EXIT_OK);
    if (!s->over && fds[0].revents)
        on_child_end(s);
    if (!s->over && !s->listens)
        probe(s);
}

/* ---- the command ------------------------------------------------------------------------- */

static int parse_port(const struct hy_args *args, uint16_t *ret, struct hy_err *err)
{
    const char *text = hy_args_get(args, "port");
    uint64_t number = 0;

    if (text && (hy_parse_u64(text, &number) < 0 || number < 1 || number > UINT16_MAX))
        return hy_err_option(err, "port", "takes a number from 1 to 65535, not '%s'", text);
    *ret = (uint16_t)number;
    return 0;
}

/* 1 when the owner is running (or none was given), 0 when it has exited already. */
static int find_owner(const struct hy_args *args, int *ret_fd, struct hy_err *err)
{
    const char *text = hy_args_get(args, "owner");
    uint64_t pid;
    int fd;

    if (!text)
        return 1;
    if (hy_parse_u64(text, &pid) < 0 || pid < 1 || pid > INT32_MAX)
        return hy_err_option(err, "owner", "takes a process ID, not '%s'", text);
    fd = open_process((pid_t)pid);
    if (fd == -ESRCH)
        return 0;
    if (fd < 0)
        return hy_err_sys(err, fd, "cannot wait for process %s to exit", text);
    *ret_fd = fd;
    return 1;
}

static int print_address(const struct server *s)
{
    hy_cleanup_out struct hy_out out = {0};
    struct hy_style style;

    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&out, &style);
    hy_outf(&out, "TensorBoard %s\n", s->address);
    if (style.terminal) {
        hy_out_tint_on(&out, HY_DIM);
        hy_out_str(&out, "shows ");
        hy_out_value(&out, s->target.directory);
        hy_out_str(&out, "; ready in a few seconds, Ctrl-C ends it");
        hy_out_tint_off(&out, HY_DIM);
        hy_out_str(&out, "\n");
    }
    return hy_out_flush(&out, STDOUT_FILENO);
}

/* 1 when TensorBoard was started, 0 when the owner has exited already, or -Exxx. */
static int begin(struct server *s, const struct hy_args *args, struct hy_err *err)
{
    uint16_t port = 0;
    int rc = parse_port(args, &port, err);

    if (rc == 0 && args->word_count > 1)
        rc = hy_err_set(err, -EINVAL, "one run or directory at a time; `hopyard ui` shows several runs");
    if (rc == 0)
        rc = find_owner(args, &s->owner_fd, err);
    if (rc <= 0)
        return rc;
    rc = hy_tensorboard_target(args, hy_args_word(args, 0), &s->target, err);
    if (rc == 0)
        rc = hy_tensorboard_viewer(&s->target, false, &s->viewer, err);
    if (rc == 0)
        rc = hy_tensorboard_check(&s->viewer, err);
    if (rc == 0)
        rc = hy_port_reserve(port, &s->port, err);
    if (rc < 0)
        return rc;
    snprintf(s->address, sizeof s->address, "http://127.0.0.1:%u/", s->port.number);
    s->signals = hy_signals_open();
    if (s->signals < 0)
        return hy_err_sys(err, s->signals, "cannot catch signals");
    rc = print_address(s);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot print the address");
    /* TensorFlow reserves GPUs when it is imported; TensorBoard needs none. */
    if (setenv("CUDA_VISIBLE_DEVICES", "", 1) < 0)
        return hy_err_sys(err, -errno, "cannot set an environment variable");
    rc = start_viewer(s, err);
    return rc < 0 ? rc : 1;
}

static void server_done(struct server *s)
{
    end_viewer(s);
    hy_port_release(&s->port);
    hy_close_at(&s->child_fd);
    hy_close_at(&s->owner_fd);
    hy_close_at(&s->chatter_fd);
    hy_close_at(&s->driver_fd);
    hy_buf_done(&s->chatter);
    free(s->viewer.program);
    hy_tensorboard_target_done(&s->target);
}

int hy_cmd_tensorboard(const struct hy_args *args)
{
    struct server s = {
        .what = args->command->name,
        .port = {.fd = -1, .claim = -1},
        .child_fd = -1,
        .owner_fd = -1,
        .chatter_fd = -1,
        .driver_fd = -1,
        .status = HY_EXIT_OK,
    };
    struct hy_err err = {0};
    int rc;

    if (hy_args_has(args, "sock"))
        return hy_tensorboard_app(args);
    hy_buf_init(&s.chatter, CHATTER_MAX + 1);
    rc = begin(&s, args, &err);
    if (rc < 0)
        s.status = hy_cmd_failed(args, &err);
    while (rc == 1 && !s.over)
        turn(&s);
    server_done(&s);
    return s.status;
}
