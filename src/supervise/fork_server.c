/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of a fork server: Python with all modules imported, which
 * forks trials.
 *
 *     agent                                server                     trial
 *       │ ◄── "ready\n" | "refuse WHY\n" ───── │                          │
 *       │ ─── "fork", fds ───────────────────► │ forks ─────────────────► │
 *       │ ◄── control: "pid N\n" ──────────────────────────────────────── │
 *       │     or "refuse WHY\n", "again WHY\n", "error WHY\n"
 *       │ ─── control: "g" ─────────────────────────────────────────────► │ runs
 *
 * The socket to the server is a SOCK_SEQPACKET pair, one message each. The fds
 * of "fork": payload, stdout, stderr, control, cgroup.procs (or /dev/null), and
 * what the trial keeps. The payload, in a memfd since an environment may be
 * longer than a message: NUL-terminated strings: the working directory, the limit
 * of open files, the number of environment entries, the entries.
 *
 * The trial becomes our child, not the server's: we get its death, status and CPU
 * time as for any other. It waits for "g" so that it cannot die before we have its
 * PID. A server that dies, or a trial that dies before its "pid", closes its
 * control socket, which is signal enough.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "supervise/internal.h"
#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#define PAYLOAD_MAX (16u << 20)
#define ANSWER_MAX 4096
#define FIXED_FDS 5
#define KEPT_FDS_MAX 200
#define TAIL_MAX 600       /* the end of a server's output, for the message when it dies */
#define END_GRACE_MS 1000

struct hy_fork_server {
    struct hy_supervisor *supervisor;
    struct hy_process *process;
    struct hy_fork_server_events events;
    void *arg;
    int socket;
    uv_poll_t poll;
    bool polling; /* the poll handle is not closed yet */
    bool over;    /* on_over was called */
    bool refused;
    char why[512];
    char tail[TAIL_MAX];
    size_t tail_len;
};

/* ---- its life ------------------------------------------------------------- */

static void free_when_closed(struct hy_fork_server *w)
{
    if (w->over && !w->polling)
        free(w);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct hy_fork_server *w = handle->data;

    w->polling = false;
    free_when_closed(w);
}

static void close_socket(struct hy_fork_server *w)
{
    if (w->polling && !uv_is_closing((uv_handle_t *)&w->poll))
        uv_close((uv_handle_t *)&w->poll, on_poll_closed);
    hy_close_at(&w->socket);
}

static void keep_tail(struct hy_fork_server *w, const uint8_t *bytes, size_t n)
{
    if (n >= TAIL_MAX) {
        bytes += n - TAIL_MAX;
        n = TAIL_MAX;
    }
    if (w->tail_len + n > TAIL_MAX) {
        size_t drop = w->tail_len + n - TAIL_MAX;

        memmove(w->tail, w->tail + drop, w->tail_len - drop);
        w->tail_len -= drop;
    }
    memcpy(w->tail + w->tail_len, bytes, n);
    w->tail_len += n;
}

static void on_output(void *arg, struct hy_process *p, int fd, const uint8_t *bytes, size_t n)
{
    (void)p;
    (void)fd;
    keep_tail(arg, bytes, n);
}

/* The last line that is not empty. */
static void last_line(const struct hy_fork_server *w, char *line, size_t size)
{
    size_t end = w->tail_len, begin;

    while (end && (w->tail[end - 1] == '\n' || w->tail[end - 1] == ' '))
        end--;
    for (begin = end; begin && w->tail[begin - 1] != '\n';)
        begin--;
    snprintf(line, size, "%.*s", (int)(end - begin), w->tail + begin);
}

static void describe_end(struct hy_fork_server *w, const struct hy_process_end *end)
{
    char line[256], how[80] = "";

    if (w->refused)
        return;
    last_line(w, line, sizeof line);
    if (end->outcome == HY_PROCESS_SIGNALED)
        snprintf(how, sizeof how, " by signal %d (%s)", end->code, strsignal(end->code));
    snprintf(w->why, sizeof w->why, "the fork server ended%s%s%s", how, *line ? ": " : "", line);
}

static void on_end(void *arg, struct hy_process *p, const struct hy_process_end *end)
{
    struct hy_fork_server *w = arg;

    (void)p;
    w->process = NULL;
    close_socket(w);
    describe_end(w, end);
    w->over = true;
    w->events.on_over(w->arg, w, w->refused, w->why);
    free_when_closed(w);
}

void hy_fork_server_end(struct hy_fork_server *w)
{
    close_socket(w);
    if (w->process)
        hy_process_kill(w->process, END_GRACE_MS);
}

/* ---- its messages ----------------------------------------------------------- */

static void on_message(struct hy_fork_server *w, char *word)
{
    word[strcspn(word, "\n")] = '\0';
    if (strcmp(word, "ready") == 0) {
        w->events.on_ready(w->arg, w);
        return;
    }
    w->refused = strncmp(word, "refuse ", 7) == 0;
    snprintf(w->why, sizeof w->why, "%.*s", (int)sizeof w->why - 1,
             w->refused ? word + 7 : "the fork server sent an invalid message");
    hy_fork_server_end(w);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct hy_fork_server *w = poll->data;
    char word[ANSWER_MAX + 1];
    ssize_t n = recv(w->socket, word, ANSWER_MAX, MSG_DONTWAIT);

    (void)status; /* recv reports the error */
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        word[n] = '\0';
        on_message(w, word);
        return;
    }
    hy_fork_server_end(w); /* it is exiting, or has closed the socket */
}

/* Fork copies page tables, of which memory in huge pages has few: a fork of
 * TensorFlow with one operation takes 10 ms less. Trials do not inherit this entry. */
static char huge_pages[] = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";

static bool has_tunables(char *const *env)
{
    for (; *env; env++)
        if (strncmp(*env, huge_pages, strcspn(huge_pages, "=") + 1) == 0)
            return true;
    return false;
}

/* All entries but the last are borrowed. */
static char **server_environment(char *const *env, int socket)
{
    size_t n = 0;
    char **list;

    while (env[n])
        n++;
    list = hy_calloc(n + 3, sizeof *list);
    if (!list)
        return NULL;
    memcpy(list, env, n * sizeof *list);
    if (!has_tunables(env))
        list[n++] = huge_pages;
    list[n] = hy_asprintf("HOPYARD_SERVER=%d", socket);
    return list[n] ? list : (free(list), NULL);
}

static int start_server(struct hy_fork_server *w, const struct hy_process_spec *server, int their_end,
                        struct hy_err *err)
{
    static const struct hy_process_events events = {.on_output = on_output, .on_end = on_end};
    struct hy_process_spec spec = *server;
    char **env = server_environment(server->env, their_end), **last = env;
    int rc;

    if (!env)
        return hy_err_oom(err);
    spec.env = env;
    spec.inherit = &their_end;
    spec.inherit_count = 1;
    rc = hy_process_start(w->supervisor, &spec, &events, w, &w->process, err);
    if (rc == 0)
        w->process->serves = true;
    while (last[1])
        last++;
    free(*last);
    free(env);
    return rc;
}

static int open_poll(struct hy_fork_server *w)
{
    int rc = hy_fault_hit(HY_SEAM_SYS) ? -EIO : uv_poll_init(w->supervisor->loop, &w->poll, w->socket);

    if (rc < 0)
        return rc;
    w->poll.data = w;
    w->polling = true;
    return uv_poll_start(&w->poll, UV_READABLE | UV_DISCONNECT, on_readable);
}

int hy_fork_server_start(struct hy_supervisor *s, const struct hy_process_spec *server,
                         const struct hy_fork_server_events *events, void *arg, struct hy_fork_server **ret,
                         struct hy_err *err)
{
    struct hy_fork_server *w = hy_calloc(1, sizeof *w);
    hy_cleanup_close int their_end = -1;
    int ends[2], rc;

    if (!w)
        return hy_err_oom(err);
    w->supervisor = s;
    w->events = *events;
    w->arg = arg;
    w->socket = -1;
    if (HY_SYS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) < 0) {
        rc = hy_err_sys(err, -errno, "cannot make a socket");
    } else {
        w->socket = ends[0];
        their_end = ends[1];
        rc = open_poll(w);
        rc = rc < 0 ? hy_err_sys(err, rc, "cannot watch a socket") : start_server(w, server, their_end, err);
    }
    if (rc < 0) {
        w->over = true;
        close_socket(w);
        free_when_closed(w);
        return rc;
    }
    *ret = w;
    return 0;
}

bool hy_fork_server_is_open(const struct hy_fork_server *w)
{
    return w->socket >= 0;
}

uint64_t hy_fork_server_resident(const struct hy_fork_server *w)
{
    return w->process ? hy_proc_resident(w->process->pid) : 0;
}

/* ---- a trial ------------------------------------------------------------------ */

static int append_text(struct hy_buf *b, const char *text)
{
    return hy_buf_append(b, text, strlen(text) + 1);
}

static int write_payload(const struct hy_process_spec *spec, char *const *env)
{
    hy_cleanup_close int fd = HY_SYS(memfd_create("hopyard-trial", MFD_CLOEXEC));
    hy_cleanup_buf struct hy_buf b;
    char number[32];
    size_t n = 0;
    int rc;

    hy_buf_init(&b, PAYLOAD_MAX);
    if (fd < 0)
        return -errno;
    while (env[n])
        n++;
    snprintf(number, sizeof number, "%llu", (unsigned long long)spec->open_files);
    rc = append_text(&b, spec->cwd);
    rc = rc < 0 ? rc : append_text(&b, number);
    snprintf(number, sizeof number, "%zu", n);
    rc = rc < 0 ? rc : append_text(&b, number);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = append_text(&b, env[i]);
    rc = rc < 0 ? rc : hy_write_all(fd, hy_buf_bytes(&b), b.len);
    return rc < 0 ? rc : hy_take_fd(fd);
}

static int send_fork(int socket, const int *fds, size_t count)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE((FIXED_FDS + KEPT_FDS_MAX) * sizeof(int))];
    } control = {0};
    char word[] = "fork";
    struct iovec io = {.iov_base = word, .iov_len = 4};
    struct msghdr m = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    return HY_SYS(sendmsg(socket, &m, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 ? -errno : 0;
}

/* It is gone, or its socket is full. */
static int fork_request_error(struct hy_fork_server *w, int rc, struct hy_err *err)
{
    if (rc == -EAGAIN || rc == -ETOOMANYREFS || rc == -ENOBUFS)
        return hy_err_set(err, -ENOMEM, "the fork server does not keep up");
    if (rc != -EPIPE && rc != -ECONNRESET)
        return hy_err_sys(err, rc, "the fork server cannot be reached");
    hy_fork_server_end(w);
    return hy_err_set(err, -EAGAIN, "the fork server has ended");
}

int hy_fork_server_fork(struct hy_fork_server *w, const struct hy_process_spec *spec, char *const *env,
                        const int outputs[2], int cgroup_fd, int *ret_control, struct hy_err *err)
{
    hy_cleanup_close int payload = -1, ours = -1, theirs = -1;
    int ends[2], rc, fds[FIXED_FDS + KEPT_FDS_MAX];

    if (spec->inherit_count > KEPT_FDS_MAX)
        return hy_err_set(err, -E2BIG, "a trial cannot inherit %zu open files", spec->inherit_count);
    payload = write_payload(spec, env);
    if (payload < 0)
        return hy_err_sys(err, payload, "cannot write the payload of '%s'", spec->tag);
    if (HY_SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) < 0)
        return hy_err_sys(err, -errno, "cannot make a socket for '%s'", spec->tag);
    ours = ends[0];
    theirs = ends[1];
    memcpy(fds, (int[]){payload, outputs[0], outputs[1], theirs, cgroup_fd >= 0 ? cgroup_fd : w->supervisor->null_fd},
           FIXED_FDS * sizeof *fds);
    if (spec->inherit_count)
        memcpy(fds + FIXED_FDS, spec->inherit, spec->inherit_count * sizeof *fds);
    rc = w->socket < 0 ? -EPIPE : send_fork(w->socket, fds, FIXED_FDS + spec->inherit_count);
    if (rc < 0)
        return fork_request_error(w, rc, err);
    *ret_control = hy_take_fd(ours);
    return 0;
}

static int error_answer(const char *text, struct hy_err *err)
{
    if (strncmp(text, "refuse ", 7) == 0)
        return hy_err_set(err, -ENOTSUP, "%s", text + 7);
    if (strncmp(text, "again ", 6) == 0)
        return hy_err_set(err, -ENOMEM, "%s", text + 6);
    if (strncmp(text, "error ", 6) == 0)
        return hy_err_set(err, -EIO, "%s", text + 6);
    return hy_err_set(err, -EPROTO, "the fork server sent an invalid message");
}

int hy_fork_server_answer(int control, pid_t *ret_pid, struct hy_err *err)
{
    char text[ANSWER_MAX + 1];
    ssize_t n = recv(control, text, ANSWER_MAX, MSG_DONTWAIT);
    int pid;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -EINPROGRESS;
    if (n <= 0)
        return hy_err_set(err, -EAGAIN, "it died before it started");
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (sscanf(text, "pid %d", &pid) != 1)
        return error_answer(text, err);
    if (pid <= 1)
        return hy_err_set(err, -EPROTO, "the fork server sent an invalid message");
    *ret_pid = pid;
    return 1;
}
