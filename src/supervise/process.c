/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life cycle of a supervised process.
 *
 *     STARTING ──► RUNNING ──► LINGERING ──► ENDING ──► KILLING ──► GONE ──► on_end
 *
 * each of which may be left out.
 *
 * STARTING  a fork server was asked to fork it.
 * RUNNING   until the main process ends, or hy_process_kill is called.
 * LINGERING the main process has ended by itself and descendants are left:
 *           a `tee` may still write its last lines.
 * ENDING    SIGTERM was sent to all of them.
 * KILLING   SIGKILL in rounds: what was forked between listing and killing is
 *           found by the next round.
 * GONE      no process is left; what the pipes still hold is delivered, unless
 *           they are paused.
 *
 * Callbacks are only made from the loop, never from inside a call of ours:
 * a caller of hy_process_kill or hy_process_pause in on_output may still use the
 * bytes.
 */
#include "supervise/supervise.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/internal.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

#define FORK_MS 60000        /* for a fork server to fork it, even on a machine that is short of memory */
#define TIMEOUT_GRACE_MS 5000
#define LINGER_MS 200
#define LEFTOVER_GRACE_MS 1000
#define ROUND_MAX_MS 500
#define DRAIN_MAX (4u << 20) /* more than a pipe can hold: whatever still writes does not belong to the trial */

static void drain(struct hy_process *p);
static void on_timer(uv_timer_t *timer);

/* ---- libuv's handles: a process is freed when the last one is closed ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct hy_process *p = handle->data;

    if (--p->handles == 0 && p->ended) {
        free(p->tag);
        free(p);
    }
}

int hy_process_open_poll(struct hy_process *p, uv_poll_t *poll, int fd)
{
    int rc = hy_fault_hit(HY_SEAM_SYS) ? -EIO : uv_poll_init(p->supervisor->loop, poll, fd);

    if (rc == 0) {
        poll->data = p;
        p->handles++;
    }
    return rc;
}

static void close_handle(uv_handle_t *handle)
{
    if (handle->loop && !uv_is_closing(handle))
        uv_close(handle, on_handle_closed);
}

/* ---- output ---- */

static void close_output(struct hy_output_pipe *st)
{
    close_handle((uv_handle_t *)&st->poll);
    hy_close_at(&st->pipe);
}

/* Reads once. Returns the number of bytes, or 0 when there is nothing to read now or at all. */
static size_t read_output(struct hy_output_pipe *st)
{
    struct hy_process *p = st->process;
    struct hy_supervisor *s = p->supervisor;
    ssize_t n;

    do
        n = read(st->pipe, s->bytes, sizeof s->bytes);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        p->events.on_output(p->arg, p, st->fd, s->bytes, (size_t)n);
        return (size_t)n;
    }
    if (n == 0 || errno != EAGAIN || p->stage == HY_STAGE_GONE)
        close_output(st);
    return 0;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct hy_process *p = poll->data;
    struct hy_output_pipe *st = hy_container(poll, struct hy_output_pipe, poll);

    (void)status; /* read() reports the error */
    (void)events;
    if (st->pipe >= 0 && !st->paused)
        read_output(st);
    if (p->stage == HY_STAGE_GONE)
        drain(p);
}

static void poll_output(struct hy_output_pipe *st)
{
    if (st->pipe < 0)
        return;
    if (st->paused)
        uv_poll_stop(&st->poll);
    else
        uv_poll_start(&st->poll, UV_READABLE, on_readable);
}

/* ---- the end ---- */

/* "1h", "1h30m", "1.5s": as short as people write it. */
static void format_limit(int64_t ms, char *out, size_t size)
{
    static const struct {
        int64_t ms;
        char unit;
    } units[] = {{86400000, 'd'}, {3600000, 'h'}, {60000, 'm'}};
    size_t n = 0;

    for (size_t i = 0; i < HY_COUNT(units); i++) {
        if (ms >= units[i].ms)
            n += (size_t)snprintf(out + n, size - n, "%lld%c", (long long)(ms / units[i].ms), units[i].unit);
        ms %= units[i].ms;
    }
    if (ms || n == 0)
        snprintf(out + n, size - n, "%gs", (double)ms / 1000);
}

static void describe_timeout(struct hy_process *p)
{
    char limit[64];

    format_limit(p->timeout_ms, limit, sizeof limit);
    snprintf(p->message, sizeof p->message, "killed: ran longer than the %s it may take; raise the time limit", limit);
}

static void describe_over_memory(struct hy_process *p)
{
    char used[32], limit[32];

    if (p->cgroup.path) {
        uint64_t peak = hy_trial_cgroup_peak(&p->cgroup);

        p->used = peak > p->memory ? peak : p->memory;
    }
    snprintf(p->message, sizeof p->message, "killed: used %s of the %s it may use; raise the memory limit",
             hy_format_size(p->used, used, sizeof used), hy_format_size(p->memory, limit, sizeof limit));
}

static void set_outcome(struct hy_process *p, enum hy_process_outcome outcome)
{
    if (p->has_outcome)
        return;
    p->has_outcome = true;
    p->end.outcome = outcome;
    if (outcome == HY_PROCESS_TIMED_OUT)
        describe_timeout(p);
    else if (outcome == HY_PROCESS_OVER_MEMORY)
        describe_over_memory(p);
}

/* The cgroup's peak includes page cache, and the watch only samples: the real
 * peak lies between. */
static void find_peak(struct hy_process *p)
{
    p->end.peak_memory = p->used > p->end.peak_memory ? p->used : p->end.peak_memory;
    if (p->cgroup.path && p->end.outcome != HY_PROCESS_OVER_MEMORY &&
        p->end.outcome != HY_PROCESS_OVER_CONTAINER_MEMORY) {
        uint64_t peak = hy_trial_cgroup_peak(&p->cgroup);

        if (peak && peak < p->end.peak_memory)
            p->end.peak_memory = peak;
    }
}

static void close_control(struct hy_process *p)
{
    close_handle((uv_handle_t *)&p->control_poll);
    hy_close_at(&p->control);
}

void hy_process_release(struct hy_process *p)
{
    p->ended = true;
    hy_list_remove(&p->link);
    for (int i = 0; i < 2; i++)
        close_output(&p->pipes[i]);
    close_control(p);
    close_handle((uv_handle_t *)&p->exit_poll);
    close_handle((uv_handle_t *)&p->oom_poll);
    hy_close_at(&p->pidfd);
    hy_trial_cgroup_remove(&p->cgroup);
    close_handle((uv_handle_t *)&p->timer); /* always open: the last handle to close frees */
}

static void finish(struct hy_process *p)
{
    struct hy_supervisor *s = p->supervisor;

    find_peak(p);
    p->end.message = p->message;
    if (--s->count == 0)
        uv_unref((uv_handle_t *)&s->child_signal);
    hy_process_release(p);
    p->events.on_end(p->arg, p, &p->end);
}

/* No writers are left: reads the rest, then finishes. */
static void drain(struct hy_process *p)
{
    for (int i = 0; i < 2; i++) {
        struct hy_output_pipe *st = &p->pipes[i];
        size_t sum = 0;

        while (st->pipe >= 0 && !st->paused && sum < DRAIN_MAX)
            sum += read_output(st);
        if (sum >= DRAIN_MAX)
            close_output(st);
    }
    if (p->pipes[0].pipe < 0 && p->pipes[1].pipe < 0 && !p->ended)
        finish(p);
}

static void begin_ending(struct hy_process *p, int64_t grace_ms)
{
    int64_t kill_at = (int64_t)uv_now(p->supervisor->loop) + (grace_ms > 0 ? grace_ms : 0);

    if (p->stage < HY_STAGE_ENDING) {
        p->stage = HY_STAGE_ENDING;
        p->kill_at = kill_at;
        if (grace_ms > 0)
            hy_descendants_signal(p, SIGTERM);
    } else if (p->stage == HY_STAGE_ENDING && kill_at < p->kill_at) {
        p->kill_at = kill_at;
    } else {
        return;
    }
    uv_timer_start(&p->timer, on_timer, (uint64_t)(p->kill_at - (int64_t)uv_now(p->supervisor->loop)), 0);
}

static void kill_round(struct hy_process *p)
{
    unsigned ms = p->rounds < 8 ? 2u << p->rounds : ROUND_MAX_MS;

    p->stage = HY_STAGE_KILLING;
    p->rounds++;
    p->supervisor->snapshot_at = -1;
    hy_descendants_signal(p, SIGKILL);
    uv_timer_start(&p->timer, on_timer, ms, 0);
}

void hy_process_over_memory(struct hy_process *p, uint64_t used)
{
    if (p->stage == HY_STAGE_GONE || p->stage == HY_STAGE_KILLING)
        return;
    p->used = used > p->used ? used : p->used;
    if (p->end.container.used)
        p->end.container.used_by_it = p->used;
    set_outcome(p, p->end.container.used ? HY_PROCESS_OVER_CONTAINER_MEMORY : HY_PROCESS_OVER_MEMORY);
    hy_descendants_signal_known(p, SIGKILL); /* it would grow while its other processes are searched */
    kill_round(p);
}

void hy_process_settle(struct hy_process *p)
{
    if (p->main_alive || p->stage == HY_STAGE_STARTING || p->stage == HY_STAGE_GONE)
        return;
    if (hy_trial_cgroup_oom(&p->cgroup))
        set_outcome(p, HY_PROCESS_OVER_MEMORY);
    if (hy_descendants_left(p)) {
        if (p->stage == HY_STAGE_RUNNING) {
            p->stage = HY_STAGE_LINGERING;
            uv_timer_start(&p->timer, on_timer, LINGER_MS, 0);
        }
        return;
    }
    p->stage = HY_STAGE_GONE;
    uv_timer_stop(&p->timer);
    drain(p);
}

/* There is no process, or one that exits since it never gets the go-ahead. */
static void fail_start(struct hy_process *p, int code)
{
    if (!p->has_outcome)
        p->end.outcome = HY_PROCESS_NOT_STARTED;
    p->end.code = code;
    p->end.message = p->message;
    hy_process_release(p);
    p->events.on_end(p->arg, p, &p->end);
}

static void on_timer(uv_timer_t *timer)
{
    struct hy_process *p = timer->data;

    switch (p->stage) {
    case HY_STAGE_STARTING:
        if (!p->has_outcome)
            snprintf(p->message, sizeof p->message, "the fork server does not answer");
        fail_start(p, p->has_outcome ? -ECANCELED : -ETIMEDOUT);
        break;
    case HY_STAGE_RUNNING:
        set_outcome(p, HY_PROCESS_TIMED_OUT);
        begin_ending(p, TIMEOUT_GRACE_MS);
        break;
    case HY_STAGE_LINGERING:
        begin_ending(p, LEFTOVER_GRACE_MS);
        break;
    case HY_STAGE_ENDING:
    case HY_STAGE_KILLING:
        kill_round(p);
        hy_process_settle(p);
        break;
    case HY_STAGE_GONE:
        drain(p);
        break;
    }
}

static void report_death(struct hy_process *p)
{
    if (!p->events.on_death)
        return;
    if (hy_trial_cgroup_oom(&p->cgroup))
        set_outcome(p, HY_PROCESS_OVER_MEMORY);
    p->end.message = p->message;
    p->events.on_death(p->arg, p, &p->end);
}

void hy_process_main_ended(struct hy_process *p)
{
    struct hy_supervisor *s = p->supervisor;
    struct rusage usage = {0};
    int status = 0;

    while (wait4(p->pid, &status, 0, &usage) < 0 && errno == EINTR)
        ;
    hy_map_remove(&s->by_pid, (uint64_t)p->pid);
    p->main_alive = false;
    close_handle((uv_handle_t *)&p->exit_poll);
    hy_close_at(&p->pidfd);
    s->snapshot_at = -1;
    p->end.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    if (!p->has_outcome)
        p->end.outcome = WIFSIGNALED(status) ? HY_PROCESS_SIGNALED : HY_PROCESS_EXITED;
    p->end.cpu_ms = (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
                    (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
    p->end.peak_memory = (uint64_t)usage.ru_maxrss * 1024;
    p->end.peak_memory -= p->inherited < p->end.peak_memory ? p->inherited : p->end.peak_memory;
    report_death(p);
    hy_process_settle(p);
}

static void on_exit_event(uv_poll_t *poll, int status, int events)
{
    struct hy_process *p = poll->data;

    (void)status;
    (void)events;
    if (p->main_alive)
        hy_process_main_ended(p);
}

static void on_oom_event(uv_poll_t *poll, int status, int events)
{
    struct hy_process *p = poll->data;

    (void)events;
    if (status < 0)
        uv_poll_stop(poll); /* the process's end will show it */
    if (hy_trial_cgroup_oom(&p->cgroup))
        hy_process_over_memory(p, 0);
    else
        hy_watch_suspect_oom(p);
}

void hy_process_begin(struct hy_process *p)
{
    struct hy_supervisor *s = p->supervisor;

    p->stage = HY_STAGE_RUNNING;
    p->main_alive = true;
    if (s->count++ == 0)
        uv_ref((uv_handle_t *)&s->child_signal); /* keeps the loop alive while a process runs */
    s->snapshot_at = -1;
    /* Uses the slot that was allocated under key 0, so it cannot fail. */
    hy_map_remove(&s->by_pid, 0);
    if (hy_map_put(&s->by_pid, (uint64_t)p->pid, p) < 0)
        abort();
    /* Without a pidfd, SIGCHLD is the notification. */
    if (p->pidfd >= 0 && hy_process_open_poll(p, &p->exit_poll, p->pidfd) == 0)
        uv_poll_start(&p->exit_poll, UV_READABLE, on_exit_event);
    if (p->cgroup.path)
        uv_poll_start(&p->oom_poll, p->cgroup.kind == HY_CGROUP_V1 ? UV_READABLE : UV_PRIORITIZED, on_oom_event);
    poll_output(&p->pipes[0]);
    poll_output(&p->pipes[1]);
    uv_timer_stop(&p->timer);
    if (p->timeout_ms > 0)
        uv_timer_start(&p->timer, on_timer, (uint64_t)p->timeout_ms, 0);
    if (p->memory || s->container_limit)
        hy_watch_start(s);
}

/* ---- the beginning of one that is forked for us ---- */

static bool is_our_child(const struct hy_supervisor *s, pid_t pid)
{
    siginfo_t info;

    return !hy_map_get(&s->by_pid, (uint64_t)pid) && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* It waits for the go-ahead, and we reap it: its PID cannot be reused before that. */
static int adopt_child(struct hy_process *p, pid_t pid, struct hy_err *err)
{
    int rc;

    if (!is_our_child(p->supervisor, pid)) /* it may have died, and was reaped as any orphan is */
        return hy_err_set(err, -EAGAIN, "process %d, which was forked for it, is gone or is not our child", (int)pid);
    rc = hy_map_put(&p->supervisor->by_pid, 0, p); /* see hy_process_begin */
    if (rc < 0)
        return hy_err_oom(err);
    p->pid = pid;
    p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (CPU_COUNT(&p->cores) && sched_setaffinity(pid, sizeof p->cores, &p->cores) < 0)
        hy_debug("a trial is not bound to its cores tag=%s", p->tag);
    if (send(p->control, "g", 1, MSG_NOSIGNAL) < 0)
        hy_debug("a trial has died before it began tag=%s", p->tag); /* its exit is reported later */
    return 0;
}

static void on_control(uv_poll_t *poll, int status, int events)
{
    struct hy_process *p = poll->data;
    struct hy_err err = {0};
    pid_t pid = 0;
    int rc = hy_fork_server_answer(p->control, &pid, &err);

    (void)status;
    (void)events;
    if (rc == -EINPROGRESS)
        return;
    if (rc > 0)
        rc = adopt_child(p, pid, &err);
    close_control(p);
    if (rc == 0) {
        hy_process_begin(p);
        return;
    }
    snprintf(p->message, sizeof p->message, "%.*s", (int)sizeof p->message - 1, err.text);
    fail_start(p, rc);
}

int hy_process_await_fork(struct hy_process *p)
{
    int rc = hy_process_open_poll(p, &p->control_poll, p->control);

    if (rc == 0)
        rc = uv_poll_start(&p->control_poll, UV_READABLE | UV_DISCONNECT, on_control);
    return rc < 0 ? rc : uv_timer_start(&p->timer, on_timer, FORK_MS, 0);
}

/* ---- requests ---- */

void hy_process_kill(struct hy_process *p, int64_t grace_ms)
{
    if (p->main_alive || p->stage == HY_STAGE_STARTING)
        set_outcome(p, HY_PROCESS_KILLED);
    if (p->stage == HY_STAGE_STARTING) { /* the child exits when it sees the closed socket */
        close_control(p);
        uv_timer_start(&p->timer, on_timer, 0, 0);
        return;
    }
    begin_ending(p, grace_ms);
}

void hy_process_pause(struct hy_process *p, int fd, int paused)
{
    struct hy_output_pipe *st = &p->pipes[fd == 2];

    assert(fd == 1 || fd == 2);
    if (st->paused == !!paused)
        return;
    st->paused = paused;
    if (p->stage == HY_STAGE_GONE && !paused)
        uv_timer_start(&p->timer, on_timer, 0, 0);
    else
        poll_output(st);
}
