/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/command.h"

#define SSH_FAILED 255 /* ssh's exit status when it is not the command's */
#define SAID_MAX 4096

#define HELD_MS 1000  /* how long its standard error may outlive a process */
#define STOP_MS 12000 /* how long it may take to end */

struct hy_engine {
    uv_loop_t *loop;
    struct hy_engine_events events;
    void *arg;
    struct hy_list children;
    size_t running;
    bool freed; /* waits for its children's handles */
};

/* One agent's process: the keeper here, or the ssh that leads to it. */
struct child {
    struct hy_list link;
    struct hy_engine *engine;
    uint64_t id;
    char name[64];
    uv_process_t process;
    uv_pipe_t in, out, err;
    int open_handles;
    bool remote, over, out_is_open, answered, asked;
    int64_t over_since, asked_since; /* 0: not yet */
    int64_t exit_status;
    int signal;
    uint8_t key[HY_KEY_SIZE];
    struct hy_buf answer;  /* the line that comes on standard output: is the program there? */
    struct hy_buf said;    /* the end of what came on standard error */
    struct hy_err trouble; /* what we found wrong ourselves */
};

/* A write of bytes that it owns. */
struct send {
    uv_write_t req;
    struct hy_program *program; /* to give back; NULL: `bytes` is ours */
    char *bytes;
};

static void free_engine_if_last(struct hy_engine *e)
{
    if (e->freed && e->running == 0)
        free(e);
}

/* The last line that it said; ssh ends them with a carriage return. */
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
    else if (c->signal)
        snprintf(text, size, "%s: ended by signal %d", c->name, c->signal);
    else
        snprintf(text, size, "%s: exit status %lld", c->name, (long long)c->exit_status);
    return text;
}

static void child_free(struct child *c)
{
    struct hy_engine *e = c->engine;
    char why[600];

    hy_list_remove(&c->link);
    e->running--;
    if (!e->freed)
        e->events.on_exit(e->arg, c->id, !c->remote || (c->exit_status != SSH_FAILED && !c->signal),
                          why_it_ended(c, why, sizeof why));
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

/* The process is over and its last words are read: nothing more can come. */
static void close_if_over(struct child *c)
{
    if (!c->over || c->out_is_open)
        return;
    close_handle(&c->process);
    close_handle(&c->in);
    close_handle(&c->out);
    close_handle(&c->err);
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

    (void)status; /* a child that does not read has ended: on_exit says why */
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

/* A line that is longer than the buffer is not ours. */
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

/* Keeps the last lines; of a host that talks without end only the end counts. */
static void keep_said(struct child *c, const char *bytes, size_t n)
{
    for (size_t i = 0, end; i < n; i = end + 1) {
        const char *newline = memchr(bytes + i, '\n', n - i);

        end = newline ? (size_t)(newline - bytes) : n;
        if (end > i)
            hy_info("agent says name=%s: %.*s", c->name, (int)(end - i), bytes + i);
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

/* libuv closes nothing by itself: a child that could not be spawned still
 * takes its handles through the loop, and its on_exit tells why. */
static int spawn(struct child *c, char **argv, int hold_fd)
{
    uv_stdio_container_t io[4] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&c->in},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&c->out},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&c->err},
    };
    uv_process_options_t options = {.file = c->remote ? argv[0] : "/proc/self/exe", .args = argv, .stdio = io, .stdio_count = 3,
                                    .exit_cb = on_exit_of_process, .flags = UV_PROCESS_DETACHED};
    int rc;

    if (!c->remote) { /* writes to the driver's log by itself */
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
            uv_process_kill(&c->process, SIGTERM);
        c->over = true; /* nobody asks any more how it really ends */
        c->out_is_open = false;
        close_if_over(c);
    }
    free_engine_if_last(e);
}

int hy_engine_start(struct hy_engine *e, const struct hy_agent_order *order, struct hy_err *err)
{
    hy_cleanup_argv char **argv = order->host ? hy_command_ssh(order, err) : hy_command_local(order, err);
    struct child *c = argv ? hy_calloc(1, sizeof *c) : NULL;
    int rc;

    if (!argv)
        return err ? err->code : -ENOMEM;
    if (!c)
        return hy_err_set(err, -ENOMEM, "out of memory");
    c->engine = e;
    c->id = order->id;
    c->remote = order->host != NULL;
    memcpy(c->key, order->key, sizeof c->key);
    snprintf(c->name, sizeof c->name, "%s%.50s", order->host ? "ssh " : "", order->host ? order->host : order->name);
    hy_buf_init(&c->answer, 64);
    hy_buf_init(&c->said, SAID_MAX);
    hy_list_push(&e->children, &c->link);
    e->running++;
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

void hy_engine_tick(struct hy_engine *e, int64_t now)
{
    hy_list_each(it, &e->children) {
        struct child *c = hy_container(it, struct child, link);

        if (c->over && c->out_is_open) { /* somebody else holds its standard error */
            c->over_since = c->over_since ? c->over_since : now;
            c->out_is_open = now - c->over_since < HELD_MS;
            close_if_over(c);
        } else if (!c->over && c->asked) {
            c->asked_since = c->asked_since ? c->asked_since : now;
            if (now - c->asked_since >= STOP_MS) /* it leads a session of its own */
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
        uv_process_kill(&c->process, SIGTERM);
        kill(-c->process.pid, SIGCONT); /* who is stopped does not hear */
    }
}
