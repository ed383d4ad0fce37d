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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
#include "cli/watch.h"
#include "fs/fs.h"

#define NICENESS 10
#define PROBE_MS 100        /* between checks whether the child listens */
#define GRACE_MS 2000       /* from SIGTERM to SIGKILL */
#define CHATTER_MAX 16384   /* bytes kept of the child's output */
#define CHATTER_CHUNK 4096

/* ---- the directory to show -------------------------------------------------------- */

struct target {
    char *directory;        /* absolute */
    struct hy_store *store; /* NULL: a directory without a run */
    struct hy_run_info info; /* of the run */
};

static void target_done(struct target *t)
{
    free(t->directory);
    hy_run_info_done(&t->info);
    hy_store_close(t->store);
    *t = (struct target){0};
}

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_number(const char *word)
{
    uint64_t number;

    return hy_parse_u64(word, &number) == 0;
}

/* If a run has the same name, prints how to show that run instead. */
static void mention_run(const struct hy_args *args, const char *word)
{
    hy_cleanup_store struct hy_store *s = NULL;
    struct hy_err err = {0};
    int64_t run;

    if (hy_project_store(args, HY_STORE_READ, &s, &err) < 0 || hy_store_run_find(s, word, &run, &err) < 0)
        return;
    hy_err_set(&err, -EEXIST, "showing the directory '%s'; for the run of that name, use: hopyard tensorboard %lld",
               word, (long long)run);
    hy_print_error(args->command->name, &err);
}

static int target_directory(const struct hy_args *args, const char *word, struct target *ret, struct hy_err *err)
{
    ret->directory = realpath(word, NULL);
    if (!ret->directory)
        return hy_err_sys(err, -errno, "cannot find the directory '%s'", word);
    if (!strchr(word, '/'))
        mention_run(args, word);
    return 0;
}

/* TensorBoard reads the URL itself, through hopyard's file system plugin for TensorFlow. */
static int target_url(const char *word, struct target *ret, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc = hy_fs_stat(word, &info, err);

    if (rc < 0)
        return rc;
    if (!info.is_dir)
        return hy_err_set(err, -ENOTDIR, "%s is a file, not a directory of event files", word);
    ret->directory = hy_strdup(word);
    return ret->directory ? 0 : hy_err_oom(err);
}

static int target_run(const struct hy_args *args, const char *word, struct target *ret, struct hy_err *err)
{
    int rc = hy_project_store(args, HY_STORE_READ, &ret->store, err);

    if (rc == 0)
        rc = hy_run_info_find(ret->store, word, &ret->info, err);
    if (rc == -ENOENT && word && is_directory(word))
        return hy_err_set(err, rc, "run %s does not exist; for the directory, use: hopyard tensorboard ./%s", word,
                          word);
    if (rc < 0)
        return rc;
    if (!ret->info.row.logdir || !is_directory(ret->info.row.logdir))
        return hy_err_set(err, -ENOENT, "the log directory of run %lld does not exist any more (it was '%s')",
                          (long long)ret->info.row.id, ret->info.row.logdir ? ret->info.row.logdir : "");
    ret->directory = hy_strdup(ret->info.row.logdir);
    return ret->directory ? 0 : hy_err_oom(err);
}

/* A number is always a run, even if a directory has that name: programs rely on it. */
static int find_target(const struct hy_args *args, struct target *ret, struct hy_err *err)
{
    const char *word = hy_args_word(args, 0);

    if (word && strstr(word, "://"))
        return target_url(word, ret, err);
    if (word && !is_number(word) && is_directory(word))
        return target_directory(args, word, ret, err);
    return target_run(args, word, ret, err);
}

/* ---- the TensorBoard program ------------------------------------------------------ */

struct viewer {
    char *program;
    bool is_python; /* run with -m tensorboard.main */
};

/* Programs named in another user's store are not executed. */
static bool is_ours(const struct hy_store *s)
{
    struct stat st;

    return s && stat(hy_store_dir_path(s), &st) == 0 && st.st_uid == geteuid();
}

/* The interpreter of the run's trials: its TensorBoard can read what they log. */
static const char *python_of(const struct target *t)
{
    const Hy__RunSpec *spec = t->info.spec;

    return spec && spec->function.len && spec->n_argv && is_ours(t->store) ? spec->argv[0] : NULL;
}

static int find_viewer(const struct target *t, struct viewer *ret, struct hy_err *err)
{
    const char *path = getenv("PATH"), *own = python_of(t), *chosen = getenv("HOPYARD_PYTHON");
    hy_cleanup_free char *here = getcwd(NULL, 0);
    struct hy_err ignored = {0};

    if (!here)
        return hy_err_sys(err, -errno, "cannot determine the current directory");
    ret->is_python = true;
    if (own && hy_find_program(own, t->info.spec->cwd, path, &ret->program, &ignored) == 0)
        return 0;
    if (chosen && *chosen) {
        int rc = hy_find_program(chosen, here, path, &ret->program, err);

        return rc < 0 ? hy_err_wrap(err, "$HOPYARD_PYTHON") : 0;
    }
    if (hy_find_program("tensorboard", here, path, &ret->program, &ignored) == 0) {
        ret->is_python = false;
        return 0;
    }
    if (hy_find_program("python3", here, path, &ret->program, &ignored) == 0)
        return 0;
    return hy_err_set(err, -ENOENT,
                      "neither tensorboard nor python3 is in PATH; install TensorBoard (pip install tensorboard), or "
                      "set $HOPYARD_PYTHON to a Python that has it");
}

static int not_installed(const struct viewer *v, struct hy_err *err)
{
    return hy_err_set(err, -ENOENT,
                      "TensorBoard is not installed for %s; install it with: %s -m pip install tensorboard", v->program,
                      v->program);
}

/* ---- the process ------------------------------------------------------------------- */

struct server {
    const char *what; /* the command's name for error messages */
    struct target target;
    struct viewer viewer;
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

/* Runs in the child: executes TensorBoard, or prints an error. */
static void exec_viewer(pid_t parent, int chatter, char *const *argv)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    /* The kernel kills the child when the parent dies. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(127);
    setpgid(0, 0); /* Ctrl-C must reach only the parent; the group is killed with the child */
    errno = 0;
    if (nice(NICENESS) == -1 && errno)
        dprintf(chatter, "cannot lower the priority: %s\n", strerror(errno));
    /* 'python -m' would import modules from the user's current directory. */
    if (chdir("/") == 0 && dup2(null, 0) >= 0 && dup2(chatter, 1) >= 0 && dup2(chatter, 2) >= 0)
        execv(argv[0], argv);
    dprintf(chatter, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static int fork_viewer(struct server *s, int chatter, char *const *argv)
{
    pid_t parent = getpid();

    s->child = HY_SYS(fork());
    if (s->child < 0)
        return -errno;
    if (s->child == 0)
        exec_viewer(parent, chatter, argv);
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

/* Checks for the module first, so that no address is printed in vain. */
static int check_installed(const struct viewer *v, struct hy_err *err)
{
    static const char check[] = "import importlib.util, sys; "
                                "sys.exit(importlib.util.find_spec('tensorboard') is None and 3)";
    char *argv[] = {v->program, (char *)"-c", (char *)check, NULL};
    hy_cleanup_close int null = HY_SYS(open("/dev/null", O_RDWR | O_CLOEXEC));
    pid_t parent = getpid(), child;
    int status = 0;

    if (!v->is_python)
        return 0;
    child = null < 0 ? -1 : HY_SYS(fork());
    if (child == 0)
        exec_viewer(parent, null, argv);
    if (child < 0)
        return hy_err_sys(err, -errno, "cannot start %s", v->program);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    /* Other errors appear when TensorBoard starts. */
    return WIFEXITED(status) && WEXITSTATUS(status) == 3 ? not_installed(v, err) : 0;
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
    target_done(&s->target); /* the function may be large, and the store must not stay open for days */
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

    if (rc == 0)
        rc = find_owner(args, &s->owner_fd, err);
    if (rc <= 0)
        return rc;
    rc = find_target(args, &s->target, err);
    if (rc == 0)
        rc = find_viewer(&s->target, &s->viewer, err);
    if (rc == 0)
        rc = check_installed(&s->viewer, err);
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
    target_done(&s->target);
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

    hy_buf_init(&s.chatter, CHATTER_MAX + 1);
    rc = begin(&s, args, &err);
    if (rc < 0)
        s.status = hy_cmd_failed(args, &err);
    while (rc == 1 && !s.over)
        turn(&s);
    server_done(&s);
    return s.status;
}
