/* SPDX-License-Identifier: Apache-2.0 */
#include "web/apps/app_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/mem.h"

#define PROGRAM "/proc/self/exe"
#define GRACE_MS 5000   /* from SIGTERM to SIGKILL */
#define LATE_MS 500     /* for output that its children hold open after its end */
#define OUTPUT_MAX 8192 /* bytes kept of its output */
#define READ_CHUNK 4096

struct hy_app_process {
    pid_t pid;
    int pidfd, status;
    uv_poll_t watch; /* the pidfd: readable when it has ended */
    uv_pipe_t output;
    uv_timer_t timer;
    int handles;
    bool has_ended, has_closed; /* the process, its output */
    struct hy_buf tail; /* of its output */
    hy_app_process_end_fn *on_end;
    void *arg;
};

/* ---- the end ---------------------------------------------------------------------------------- */

static void free_process(struct hy_app_process *p)
{
    hy_close_at(&p->pidfd);
    hy_buf_done(&p->tail);
    free(p);
}

static void on_closed(uv_handle_t *h)
{
    struct hy_app_process *p = h->data;

    if (--p->handles == 0)
        free_process(p);
}

static void close_handles(struct hy_app_process *p)
{
    uv_close((uv_handle_t *)&p->watch, on_closed);
    uv_close((uv_handle_t *)&p->output, on_closed);
    uv_close((uv_handle_t *)&p->timer, on_closed);
}

/* The last line that is not empty: hopyard's error, or the exception of a Python traceback. */
static const char *last_line(char *text)
{
    size_t n = strlen(text);
    char *newline, *line;

    while (n && strchr("\n\r ", text[n - 1]))
        text[--n] = '\0';
    newline = strrchr(text, '\n');
    line = newline ? newline + 1 : text;
    if (strncmp(line, "hopyard ", 8) == 0 && strstr(line, ": ")) /* "hopyard tensorboard: " */
        line = strstr(line, ": ") + 2;
    return line;
}

static void report_end(struct hy_app_process *p)
{
    char *text = (char *)(uintptr_t)hy_buf_cstr(&p->tail), how[64];
    const char *line = text ? last_line(text) : "";

    if (!*line && WIFSIGNALED(p->status))
        snprintf(how, sizeof how, "it was killed by signal %d", WTERMSIG(p->status));
    else if (!*line)
        snprintf(how, sizeof how, "it exited with status %d", WEXITSTATUS(p->status));
    p->on_end(p->arg, *line ? line : how);
    close_handles(p);
}

static void on_late(uv_timer_t *t)
{
    report_end(t->data);
}

static void on_ended(uv_poll_t *w, int status, int events)
{
    struct hy_app_process *p = w->data;

    (void)status;
    (void)events;
    while (waitpid(p->pid, &p->status, 0) < 0 && errno == EINTR)
        ;
    kill(-p->pid, SIGKILL); /* what is left of its group; it may be empty */
    uv_poll_stop(&p->watch);
    p->has_ended = true;
    if (p->has_closed)
        report_end(p);
    else
        uv_timer_start(&p->timer, on_late, LATE_MS, 0); /* cannot fail */
}

static void on_grace_over(uv_timer_t *t)
{
    kill(-((struct hy_app_process *)t->data)->pid, SIGKILL);
}

void hy_app_process_stop(struct hy_app_process *p)
{
    if (p->has_ended || uv_is_active((uv_handle_t *)&p->timer))
        return;
    kill(-p->pid, SIGTERM);
    uv_timer_start(&p->timer, on_grace_over, GRACE_MS, 0); /* cannot fail */
}

/* ---- output --------------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *ret)
{
    struct hy_app_process *p = h->data;
    uint8_t *room;

    (void)size;
    if (p->tail.len > OUTPUT_MAX)
        hy_buf_consume(&p->tail, p->tail.len - OUTPUT_MAX);
    room = hy_buf_reserve(&p->tail, READ_CHUNK);
    *ret = uv_buf_init((char *)room, room ? READ_CHUNK : 0);
}

static void on_output(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct hy_app_process *p = s->data;

    (void)b;
    if (n > 0)
        hy_buf_added(&p->tail, (size_t)n);
    if (n >= 0)
        return;
    uv_read_stop(s);
    p->has_closed = true;
    if (p->has_ended)
        report_end(p);
}

/* ---- the beginning ---------------------------------------------------------------------------------- */

/* In the child: signals are blocked until the handlers of this program, which would notify the parent, are removed. */
static void run_child(pid_t parent, int output, char *const *argv, char *const *env)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGCHLD, SIGPIPE, SIGHUP};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigset_t none;

    for (size_t i = 0; i < HY_COUNT(signals); i++)
        signal(signals[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* The kernel kills it when this program dies. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && setsid() >= 0 && dup2(null, 0) >= 0 &&
        dup2(output, 1) >= 0 && dup2(output, 2) >= 0)
        execve(PROGRAM, argv, env);
    _exit(127);
}

static int fork_child(struct hy_app_process *p, int output, char *const *argv, char *const *env)
{
    pid_t parent = getpid();
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    p->pid = HY_SYS(fork());
    if (p->pid == 0)
        run_child(parent, output, argv, env);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (p->pid < 0)
        return -errno;
    p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    return p->pidfd < 0 ? -errno : 0;
}

static int watch(struct hy_app_process *p, uv_loop_t *loop, int output)
{
    int rc = uv_poll_init(loop, &p->watch, p->pidfd);

    if (rc < 0) {
        close(output);
        return rc;
    }
    uv_pipe_init(loop, &p->output, 0); /* neither can fail */
    uv_timer_init(loop, &p->timer);
    p->watch.data = p->output.data = p->timer.data = p;
    p->handles = 3;
    rc = uv_pipe_open(&p->output, output);
    if (rc < 0)
        close(output);
    if (rc == 0)
        rc = uv_read_start((uv_stream_t *)&p->output, on_alloc, on_output);
    if (rc == 0)
        rc = uv_poll_start(&p->watch, UV_READABLE, on_ended);
    return rc;
}

/* Kills a process that could not be watched, without calling on_end. */
static void abandon(struct hy_app_process *p)
{
    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (p->handles)
        close_handles(p);
    else
        free_process(p);
}

int hy_app_process_start(uv_loop_t *loop, char *const *argv, char *const *env, hy_app_process_end_fn *on_end, void *arg,
                         struct hy_app_process **ret, struct hy_err *err)
{
    struct hy_app_process *p = hy_calloc(1, sizeof *p);
    int ends[2], rc;

    if (!p)
        return hy_err_oom(err);
    *p = (struct hy_app_process){.pidfd = -1, .on_end = on_end, .arg = arg};
    hy_buf_init(&p->tail, OUTPUT_MAX + READ_CHUNK + 1);
    if (HY_SYS(pipe2(ends, O_CLOEXEC)) < 0) {
        rc = -errno;
    } else {
        rc = fork_child(p, ends[1], argv, env);
        close(ends[1]);
        if (rc == 0)
            rc = watch(p, loop, ends[0]); /* takes it */
        else
            close(ends[0]);
    }
    if (rc < 0) {
        abandon(p);
        return hy_err_sys(err, rc, "cannot start a process");
    }
    *ret = p;
    return 0;
}
