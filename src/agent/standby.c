/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent on standby: its run has ended, and it waits for the next run of the same client, with its fork server, which
 * has imported everything. It holds no cores, GPUs, logs or locks meanwhile. It ends with the client, on request, when
 * its fork server ends or has grown too large, and after some minutes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/core_lease.h"
#include "supervise/supervise.h"
#include "agent/trial.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "wire/wire.h"

#define IDLE_MS (5 * 60 * 1000)
#define LINGER_MS 2000
#define MEMORY_MAX (2ull << 30) /* of the fork server, resident ... */
#define MEMORY_PART 4           /* ... and at most this fraction of the machine's */

/* Freed when libuv has closed its handles. */
struct hy_agent_standby {
    struct agent *agent;
    char *path;
    int socket, client; /* `client` is a pidfd */
    uv_poll_t message, client_gone;
    uv_timer_t idle;
    unsigned handles;
};

/* ---- whether it may ---- */

/* A limit, which tests can override. */
static uint64_t limit_of(const char *name, uint64_t limit)
{
#ifdef HY_FAULTS
    const char *said = getenv(name);

    if (said && hy_parse_u64(said, &limit) < 0)
        hy_warn("%s is not a number", name);
#else
    (void)name;
#endif
    return limit;
}

static bool is_small(const struct agent *a)
{
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t used = hy_fork_server_resident(a->function.server);

    return used && used <= limit_of("HOPYARD_TEST_STANDBY_BYTES", MEMORY_MAX) && used <= all / MEMORY_PART;
}

static void forget_invitation(struct agent *a)
{
    free(a->client);
    free(a->warm_key);
    a->client = a->warm_key = NULL;
}

void hy_agent_standby_offer(struct agent *a, const Hy__Bye *bye)
{
    const struct function *f = &a->function;

    forget_invitation(a);
    if (!*bye->client || !a->shares_files || a->hold_fd < 0 || !f->ready || f->cold ||
        !hy_fork_server_is_open(f->server) || !is_small(a))
        return;
    a->client = hy_strdup(bye->client);
    a->warm_key = hy_strdup(bye->warm_key);
    if (!a->client || !a->warm_key)
        forget_invitation(a);
}

bool hy_agent_standby_is_next(const struct agent *a)
{
    return a->client && a->peer && a->function.server && a->exit_status == 0 && !a->has_other_reason;
}

/* ---- its run: let go of, and another one ---- */

static void forget_run(struct agent *a)
{
    hy_cores_free(a->cores);
    hy_gpus_free(a->gpus);
    hy_agent_function_forget(a);
    hy_agent_group_done(a);
    hy__control__free_unpacked(a->welcomed, NULL);
    free(a->env);
    free(a->path);
    free(a->root);
    a->cores = NULL;
    a->gpus = NULL;
    a->welcomed = NULL;
    a->env = NULL;
    a->path = a->root = NULL;
    a->env_count = 0;
    a->shares_files = false;
    a->gpus_found = a->may_join = a->gpus_closing = a->gpus_closed = false;
    a->next_stream = 1;
}

/* The log and the lock of its run, here and in the reaper; -1, -1: none. */
static int hold(struct agent *a, int log, int lock)
{
    int null = log < 0 ? HY_SYS(open("/dev/null", O_RDWR | O_CLOEXEC)) : -1;
    int rc = hy_reaper_hold(log, lock);

    if (dup2(log < 0 ? null : log, STDERR_FILENO) < 0 && rc == 0)
        rc = -errno;
    hy_close_at(&null);
    hy_close_at(&log);
    hy_close_at(&a->hold_fd);
    a->hold_fd = lock;
    return rc;
}

static void say_on_standby(struct agent *a)
{
    Hy__Bye bye = HY__BYE__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    bye.why = (char *)"on standby for the next run";
    bye.on_standby = true;
    m.body_case = HY__CONTROL__BODY_BYE;
    m.bye = &bye;
    if (hy_peer_send(a->peer, &m) < 0)
        hy_warn("cannot send Bye");
    hy_net_flush(a->net);
    hy_peer_close(a->peer, LINGER_MS);
    a->peer = NULL;
}

static int join(struct agent *a, const Hy__Handover *h, struct hy_err *err)
{
    free(a->given_name);
    a->given_name = hy_strdup(h->name);
    if (!a->given_name || hy_agent_gpus_open(a) < 0)
        return hy_err_oom(err);
    a->name = a->given_name;
    a->slots = h->slots;
    a->open_files = h->open_files;
    return hy_net_dial(a->net, "127.0.0.1", (uint16_t)h->port, h->identity, h->key.data, &a->peer, err);
}

/* ---- while it waits ---- */

static void on_closed(uv_handle_t *handle)
{
    struct hy_agent_standby *s = handle->data;

    if (--s->handles)
        return;
    hy_close_at(&s->socket);
    hy_close_at(&s->client);
    free(s->path);
    free(s);
}

static void leave_place(struct hy_agent_standby *s)
{
    uv_handle_t *handles[] = {(uv_handle_t *)&s->message, (uv_handle_t *)&s->client_gone, (uv_handle_t *)&s->idle};

    if (s->path && unlink(s->path) < 0 && errno != ENOENT)
        hy_warn("cannot remove a socket path=%s error=%s", s->path, strerror(errno));
    for (size_t i = 0; i < HY_COUNT(handles); i++)
        if (handles[i]->loop)
            uv_close(handles[i], on_closed);
}

void hy_agent_standby_cancel(struct agent *a)
{
    if (a->standby)
        leave_place(a->standby);
    a->standby = NULL;
}

static void take_order(struct agent *a, const Hy__Handover *h, const int fds[2])
{
    struct hy_err err = {0};
    int rc;

    hy_agent_standby_cancel(a);
    rc = hold(a, fds[0], fds[1]);
    if (rc < 0)
        hy_err_sys(&err, rc, "an agent on standby cannot take over the log and the lock of a run");
    else
        rc = join(a, h, &err);
    if (rc < 0) {
        hy_error("%s", err.text);
        hy_agent_end(a, 1, "cannot join the next run");
    }
}

static void on_message(uv_poll_t *poll, int status, int events)
{
    struct hy_agent_standby *s = poll->data;
    struct agent *a = s->agent;
    Hy__Handover *h = NULL;
    int fds[2], rc = hy_standby_receive(s->socket, &h, fds);

    (void)status;
    (void)events;
    if (rc == 0)
        hy_agent_end(a, 0, "ended on request");
    if (rc != 1)
        return;
    take_order(a, h, fds);
    explicit_bzero(h->key.data, h->key.len);
    hy__handover__free_unpacked(h, NULL);
}

static void on_client_gone(uv_poll_t *poll, int status, int events)
{
    struct hy_agent_standby *s = poll->data;

    (void)status;
    (void)events;
    hy_agent_end(s->agent, 0, "the client has ended");
}

static void on_idle(uv_timer_t *timer)
{
    struct hy_agent_standby *s = timer->data;

    hy_agent_end(s->agent, 0, "no further run in time");
}

static int watch(struct hy_agent_standby *s, uv_poll_t *poll, int fd, uv_poll_cb cb)
{
    int rc = uv_poll_init(&s->agent->loop, poll, fd);

    if (rc < 0) {
        poll->loop = NULL;
        return rc;
    }
    poll->data = s;
    s->handles++;
    return uv_poll_start(poll, UV_READABLE, cb);
}

/* Goes on standby; or -Exxx. The mark detects a reused PID of the client. */
static int stand(struct agent *a)
{
    struct hy_agent_standby *s = hy_calloc(1, sizeof *s);
    int rc;

    if (!s)
        return -ENOMEM;
    a->standby = s;
    s->agent = a;
    uv_timer_init(&a->loop, &s->idle);
    s->idle.data = s;
    s->handles = 1;
    s->client = (int)HY_SYS(syscall(SYS_pidfd_open, atoi(a->client), 0));
    s->socket = s->client < 0 ? -errno : hy_standby_open(a->client, a->warm_key, &s->path);
    if (s->socket < 0)
        return s->socket;
    rc = hy_mark_alive(a->client) == 1 ? hy_reaper_file(s->path) : -ESRCH;
    if (rc == 0)
        rc = watch(s, &s->message, s->socket, on_message);
    if (rc == 0)
        rc = watch(s, &s->client_gone, s->client, on_client_gone);
    return rc < 0 ? rc : uv_timer_start(&s->idle, on_idle, limit_of("HOPYARD_TEST_STANDBY_MS", IDLE_MS), 0);
}

bool hy_agent_standby_enter(struct agent *a)
{
    int rc = stand(a);

    if (rc < 0) {
        hy_warn("cannot go on standby error=%s", strerror(-rc));
        hy_agent_standby_cancel(a);
        forget_invitation(a);
        return false;
    }
    hy_info("on standby client=%s", a->client);
    say_on_standby(a);
    forget_run(a);
    a->ending = a->has_other_reason = false;
    rc = hold(a, -1, -1);
    if (rc < 0)
        hy_agent_end(a, 1, "cannot release its run");
    return true;
}
