/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/command.h"
#include "wire/wire.h"

#define SSH_FAILED 255 /* the exit status of ssh when it fails itself */
#define SIGNALED_BY_SHELL 128
#define SAID_MAX 4096
#define SAID_BURST 1000u   /* log lines of agents in a burst, ... */
#define SAID_EVERY_MS 100  /* ... and the interval after that */

#define HELD_MS 1000  /* how long standard error may stay open after the process */
#define STOP_MS 12000 /* between SIGTERM and SIGKILL */

struct hy_engine {
    uv_loop_t *loop;
    struct hy_engine_events events;
    void *arg;
    struct hy_list children;
    size_t running;
    bool freed; /* until the handles of its children are closed */
};

/* One agent's process: its reaper here, or the ssh to it; or an agent that was on standby. */
struct child {
    struct hy_list link;
    struct hy_engine *engine;
    uint64_t id;
    char name[64];
    uv_process_t process;
    int pidfd;      /* of one that was on standby and is not our child; -1: it is our child */
    uv_poll_t gone; /* of the pidfd */
    bool released;  /* it has gone on standby */
    uv_pipe_t in, out, err;
    int open_handles;
    bool remote, over, out_is_open, answered, asked;
    int64_t over_since, asked_since; /* 0: not yet */
    int64_t exit_status;
    int signal;
    uint8_t key[HY_KEY_SIZE];
    struct hy_buf answer;  /* the first line of standard output: whether the host has the program */
    struct hy_buf said;    /* the end of standard error */
    struct hy_err trouble; /* our own error message */
};

/* A write of bytes that it owns. */
struct send {
    uv_write_t req;
    struct hy_program *program; /* a reference to release; NULL: `bytes` is owned */
    char *bytes;
};

static void free_engine_if_last(struct hy_engine *e)
{
    if (e->freed && e->running == 0)
        free(e);
}

/* Its last line; ssh ends lines with a carriage return. */
static const char *last_line(struct child *c)
{
    const char *text, *line;

    while (c->said.len && hy_buf_bytes(&c->said)[c->said.len - 1] <= ' ')
        c->said.len--;
    text = c->said.len ? hy_buf_cstr(&c->said) : NULL;
    line = text ? strrchr(text, '\n') : NULL;
    return line ? line + 1 : text;
}

static const char *why_it_ended(struct child *c, char *text, size_t size)
{
    const char *line = last_line(c);

    if (c->trouble.code)
        snprintf(text, size, "%s", c->trouble.text);
    else if (line && (c->exit_status || c->signal))
        snprintf(text, size, "%s: %s", c->name, line);
    else if (c->pidfd >= 0)
        snprintf(text, size, "%s: it has ended", c->name);
    else if (c->signal)
        snprintf(text, size, "%s: ended by signal %d", c->name, c->signal);
    else
        snprintf(text, size, "%s: exit status %lld", c->name, (long long)c->exit_status);
    return text;
}

/* The host's shell exits with a status above 128 if a signal has ended the agent. A signal that ended ssh itself
 * does not concern the agent. */
enum hy_agent_end hy_agent_end_of(bool remote, int64_t status, int signal)
{
    if (!remote)
        return signal ? HY_AGENT_DIED : HY_AGENT_ENDED;
    if (signal || status == SSH_FAILED)
        return HY_AGENT_UNREACHED;
    return status > SIGNALED_BY_SHELL && status <= SIGNALED_BY_SHELL + SIGRTMAX ? HY_AGENT_DIED : HY_AGENT_ENDED;
}

/* Only the parent gets a process's status. An agent that ends by itself sends Bye before. */
static enum hy_agent_end end_of(const struct child *c)
{
    return c->pidfd >= 0 ? HY_AGENT_DIED : hy_agent_end_of(c->remote, c->exit_status, c->signal);
}

static void child_free(struct child *c)
{
    struct hy_engine *e = c->engine;
    char why[600];

    hy_list_remove(&c->link);
    e->running--;
    if (!e->freed && !c->released)
        e->events.on_exit(e->arg, c->id, end_of(c), why_it_ended(c, why, sizeof why));
    hy_close_at(&c->pidfd);
    hy_buf_done(&c->answer);
    hy_buf_done(&c->said);
    explicit_bzero(c->key, sizeof c->key);
    free(c);
    free_engine_if_last(e);
}

static void on_handle_closed(uv_handle_t *h)
{
    struct child *c = h->data;

    if (--c->open_handles == 0)
        child_free(c);
}

static void close_handle(void *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_handle_closed);
}

/* The process has ended and its output is read. */
static void close_if_over(struct child *c)
{
    if (!c->over || c->out_is_open)
        return;
    if (c->pidfd >= 0) {
        close_handle(&c->gone);
        return;
    }
    close_handle(&c->process);
    close_handle(&c->in);
    close_handle(&c->out);
    close_handle(&c->err);
}

static void send_signal(struct child *c, int sig)
{
    if (c->pidfd < 0)
        uv_process_kill(&c->process, sig);
    else if (syscall(SYS_pidfd_send_signal, c->pidfd, sig, NULL, 0) < 0 && errno != ESRCH)
        hy_warn("cannot signal an agent name=%s error=%s", c->name, strerror(errno));
}

static void on_exit_of_process(uv_process_t *process, int64_t status, int signal)
{
    struct child *c = process->data;

    c->over = true;
    c->exit_status = status;
    c->signal = signal;
    close_if_over(c);
}

static void on_sent(uv_write_t *req, int status)
{
    struct send *s = hy_container(req, struct send, req);

    (void)status; /* a child that does not read has ended: on_exit reports why */
    hy_program_unref(s->program);
    free(s->bytes);
    free(s);
}

static void write_to(struct child *c, char *bytes, size_t n, struct hy_program *program)
{
    struct send *s = hy_calloc(1, sizeof *s);
    uv_buf_t buf = uv_buf_init(bytes, (unsigned)n);

    if (!s) {
        if (!program)
            free(bytes);
        hy_program_unref(program);
        uv_process_kill(&c->process, SIGTERM);
        return;
    }
    s->program = program;
    s->bytes = program ? NULL : bytes;
    if (uv_write(&s->req, (uv_stream_t *)&c->in, &buf, 1, on_sent) < 0)
        on_sent(&s->req, UV_EPIPE);
}

static void send_key(struct child *c)
{
    char *line = hy_malloc(HY_KEY_SIZE * 2 + 2);

    if (!line) {
        uv_process_kill(&c->process, SIGTERM);
        return;
    }
    for (int i = 0; i < HY_KEY_SIZE; i++)
        snprintf(line + 2 * i, 3, "%02x", c->key[i]);
    line[HY_KEY_SIZE * 2] = '\n';
    write_to(c, line, HY_KEY_SIZE * 2 + 1, NULL);
}

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *buf)
{
    static char room[SAID_MAX]; /* one read at a time on one loop */

    (void)h;
    (void)size;
    *buf = uv_buf_init(room, sizeof room);
}

static void on_answer(struct child *c, const char *line)
{
    struct hy_program *program;

    if (c->answered || (strcmp(line, HY_PROGRAM_IS_THERE) != 0 && strcmp(line, HY_PROGRAM_IS_MISSING) != 0))
        return;
    c->answered = true;
    if (strcmp(line, HY_PROGRAM_IS_MISSING) == 0) {
        program = hy_program_open(&c->trouble);
        if (!program) {
            uv_process_kill(&c->process, SIGTERM);
            return;
        }
        hy_info("copying the program host=%s bytes=%zu", c->name, hy_program_size(program));
        write_to(c, (char *)hy_program_bytes(program), hy_program_size(program), program);
    }
    send_key(c);
}

/* A line longer than the buffer is not the expected one. */
static void take_lines(struct child *c, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != '\n') {
            if (hy_buf_append(&c->answer, &bytes[i], 1) < 0)
                hy_buf_clear(&c->answer);
            continue;
        }
        if (hy_buf_cstr(&c->answer))
            on_answer(c, hy_buf_cstr(&c->answer));
        hy_buf_clear(&c->answer);
    }
}

/* Keeps the last lines only. */
static void keep_said(struct child *c, const char *bytes, size_t n)
{
    static struct hy_log_limit said = {.burst = SAID_BURST, .every_ms = SAID_EVERY_MS};

    for (size_t i = 0, end; i < n; i = end + 1) {
        const char *newline = memchr(bytes + i, '\n', n - i);

        end = newline ? (size_t)(newline - bytes) : n;
        if (end > i)
            hy_log_rate_limited(&said, HY_LOG_INFO, "output of an agent name=%s: %.*s", c->name, (int)(end - i),
                                bytes + i);
    }
    if (c->said.len + n > c->said.max) /* a read is no longer than the buffer */
        hy_buf_consume(&c->said, c->said.len + n - c->said.max);
    if (hy_buf_append(&c->said, bytes, n) < 0)
        hy_buf_clear(&c->said);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct child *c = stream->data;
    bool is_err = (void *)stream == (void *)&c->err;

    if (n < 0) {
        uv_read_stop(stream);
        if (is_err) {
            c->out_is_open = false;
            close_if_over(c);
        }
    } else if (is_err) {
        keep_said(c, buf->base, (size_t)n);
    } else {
        take_lines(c, buf->base, (size_t)n);
    }
}

static int init_pipe(struct child *c, uv_pipe_t *pipe)
{
    int rc = uv_pipe_init(c->engine->loop, pipe, 0);

    pipe->data = c;
    if (rc == 0)
        c->open_handles++;
    return rc;
}

/* libuv closes nothing itself: the handles of a child that could not be spawned are
 * closed on the loop, and its on_exit reports why. */
static int spawn(struct child *c, char **argv, int hold_fd)
{
    uv_stdio_container_t io[4] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&c->in},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&c->out},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&c->err},
    };
    uv_process_options_t options = {.file = c->remote ? argv[0] : "/proc/self/exe",
                                    .args = argv,
                                    .stdio = io,
                                    .stdio_count = 3,
                                    .exit_cb = on_exit_of_process,
                                    .flags = UV_PROCESS_DETACHED};
    int rc;

    if (!c->remote) { /* it writes to the driver's log directly */
        io[1] = (uv_stdio_container_t){.flags = UV_IGNORE};
        io[2] = (uv_stdio_container_t){.flags = UV_INHERIT_FD, .data.fd = 2};
        if (hold_fd >= 0) {
            io[3] = (uv_stdio_container_t){.flags = UV_INHERIT_FD, .data.fd = hold_fd};
            options.stdio_count = 4;
        }
    }
    c->process.data = c;
    rc = uv_spawn(c->engine->loop, &c->process, &options);
    c->open_handles++;
    if (rc < 0)
        return rc;
    if (!c->remote) {
        send_key(c);
        return 0;
    }
    c->out_is_open = true;
    rc = uv_read_start((uv_stream_t *)&c->out, on_alloc, on_read);
    if (rc == 0)
        rc = uv_read_start((uv_stream_t *)&c->err, on_alloc, on_read);
    return rc;
}

struct hy_engine *hy_engine_new(uv_loop_t *loop, const struct hy_engine_events *events, void *arg)
{
    struct hy_engine *e = hy_calloc(1, sizeof *e);

    if (e) {
        e->loop = loop;
        e->events = *events;
        e->arg = arg;
        hy_list_init(&e->children);
    }
    return e;
}

void hy_engine_free(struct hy_engine *e)
{
    if (!e)
        return;
    e->freed = true;
    hy_list_each(it, &e->children) {
        struct child *c = hy_container(it, struct child, link);

        if (!c->over)
            send_signal(c, SIGTERM);
        c->over = true; /* its status is not needed any more */
        c->out_is_open = false;
        close_if_over(c);
    }
    free_engine_if_last(e);
}

static void on_adopted_gone(uv_poll_t *poll, int status, int events)
{
    struct child *c = poll->data;

    (void)status;
    (void)events;
    c->over = true;
    close_if_over(c);
}

static int watch_adopted(struct child *c)
{
    int rc = uv_poll_init(c->engine->loop, &c->gone, c->pidfd);

    c->gone.data = c;
    if (rc == 0)
        c->open_handles++;
    return rc < 0 ? rc : uv_poll_start(&c->gone, UV_READABLE, on_adopted_gone);
}

/* Uses an agent on standby instead of a new one. False: there is none, or it failed. */
static bool adopt(struct child *c, const struct hy_agent_order *order)
{
    Hy__Handover h = HY__HANDOVER__INIT;

    if (order->host || !order->client || !*order->client || order->hold_fd < 0)
        return false;
    h.identity = (char *)order->identity;
    h.key = (ProtobufCBinaryData){HY_KEY_SIZE, (uint8_t *)order->key};
    h.port = order->port;
    h.slots = order->slots;
    h.open_files = order->open_files;
    h.name = (char *)order->name;
    c->pidfd = hy_standby_take(order->client, order->warm_key, &h, (const int[]){STDERR_FILENO, order->hold_fd});
    if (c->pidfd < 0) {
        if (c->pidfd != -ENOENT)
            hy_info("cannot use an agent on standby error=%s", strerror(-c->pidfd));
        c->pidfd = -1;
        return false;
    }
    hy_info("using an agent on standby");
    if (watch_adopted(c) < 0) { /* out of memory for a handle */
        send_signal(c, SIGTERM);
        hy_err_set(&c->trouble, -EIO, "cannot watch an agent on standby");
    }
    return true;
}

static struct child *child_new(struct hy_engine *e, const struct hy_agent_order *order)
{
    struct child *c = hy_calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->engine = e;
    c->id = order->id;
    c->pidfd = -1;
    c->remote = order->host != NULL;
    memcpy(c->key, order->key, sizeof c->key);
    snprintf(c->name, sizeof c->name, "%s%.50s", order->host ? "ssh " : "", order->host ? order->host : order->name);
    hy_buf_init(&c->answer, 64);
    hy_buf_init(&c->said, SAID_MAX);
    hy_list_push(&e->children, &c->link);
    e->running++;
    return c;
}

int hy_engine_start(struct hy_engine *e, const struct hy_agent_order *order, struct hy_err *err)
{
    hy_cleanup_argv char **argv = order->host ? hy_command_ssh(order, err) : hy_command_local(order, err);
    struct child *c = argv ? child_new(e, order) : NULL;
    int rc;

    if (!argv)
        return err ? err->code : -ENOMEM;
    if (!c)
        return hy_err_oom(err);
    if (adopt(c, order))
        return 0;
    rc = init_pipe(c, &c->in);
    if (rc == 0)
        rc = init_pipe(c, &c->out);
    if (rc == 0)
        rc = init_pipe(c, &c->err);
    if (rc == 0)
        rc = spawn(c, argv, order->hold_fd);
    if (rc < 0) {
        hy_err_set(&c->trouble, rc, "cannot start '%s': %s", argv[0], uv_strerror(rc));
        c->out_is_open = false;
        if (!uv_is_active((uv_handle_t *)&c->process)) {
            c->over = true;
            close_if_over(c);
        } else {
            uv_process_kill(&c->process, SIGTERM);
        }
    }
    return 0;
}

static struct child *child_of(struct hy_engine *e, uint64_t id)
{
    hy_list_each(it, &e->children) {
        struct child *c = hy_container(it, struct child, link);

        if (c->id == id && !c->over)
            return c;
    }
    return NULL;
}

int hy_engine_adopted(struct hy_engine *e, uint64_t id)
{
    const struct child *c = child_of(e, id);

    return c ? c->pidfd : -1;
}

pid_t hy_engine_release(struct hy_engine *e, uint64_t id)
{
    struct child *c = child_of(e, id);
    pid_t pid = c && c->pidfd < 0 ? c->process.pid : 0;

    if (!c)
        return 0;
    c->released = c->over = true;
    c->out_is_open = false;
    close_if_over(c);
    return pid;
}

void hy_engine_tick(struct hy_engine *e, int64_t now)
{
    hy_list_each(it, &e->children) {
        struct child *c = hy_container(it, struct child, link);

        if (c->over && c->out_is_open) { /* another process holds its standard error */
            c->over_since = c->over_since ? c->over_since : now;
            c->out_is_open = now - c->over_since < HELD_MS;
            close_if_over(c);
        } else if (!c->over && c->asked) {
            c->asked_since = c->asked_since ? c->asked_since : now;
            if (now - c->asked_since < STOP_MS)
                continue;
            if (c->pidfd >= 0) /* its reaper kills the rest */
                send_signal(c, SIGKILL);
            else /* it is a session leader */
                kill(-c->process.pid, SIGKILL);
        }
    }
}

void hy_engine_stop(struct hy_engine *e, uint64_t id)
{
    hy_list_each(it, &e->children) {
        struct child *c = hy_container(it, struct child, link);

        if (c->id != id || c->over)
            continue;
        c->asked = true;
        send_signal(c, SIGTERM);
        if (c->pidfd < 0)
            kill(-c->process.pid, SIGCONT); /* a stopped process does not handle SIGTERM */
        else
            send_signal(c, SIGCONT);
    }
}
