/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a process: everything that can fail is done before it exists, so
 * that a failed start leaves nothing behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "supervise/internal.h"
#include "base/fault.h"
#include "base/mem.h"

/* A pipe whose ends are above 2: they are moved to 0, 1 and 2 in the child. */
static int make_pipe(int ends[2])
{
    if (HY_SYS(pipe2(ends, O_CLOEXEC)) < 0)
        return -errno;
    for (int i = 0; i < 2; i++) {
        int fd = ends[i] > 2 ? ends[i] : fcntl(ends[i], F_DUPFD_CLOEXEC, 3);

        if (fd == ends[i])
            continue;
        hy_close_at(&ends[i]);
        ends[i] = fd;
    }
    if (ends[0] >= 0 && ends[1] >= 0)
        return 0;
    hy_close_at(&ends[0]);
    hy_close_at(&ends[1]);
    return -EMFILE;
}

static bool is_mark(const char *entry)
{
    return strncmp(entry, "HOPYARD_TAG=", 12) == 0 || strncmp(entry, "HOPYARD_AGENT=", 14) == 0;
}

/* The two marks first, so that a reader of /proc/PID/environ finds them fast, and
 * `env`; in one allocation with the text of the marks. */
static char **mark_environment(const struct hy_supervisor *s, const char *tag, char *const *env)
{
    size_t n = 0, used = 0, room = strlen(tag) + HY_MARK_MAX + 32;
    char **list, *text;

    while (env[n])
        n++;
    list = hy_malloc((n + 3) * sizeof *list + room);
    if (!list)
        return NULL;
    text = (char *)(list + n + 3);
    list[used++] = text;
    text += snprintf(text, room, "HOPYARD_TAG=%s", tag) + 1;
    list[used++] = text;
    snprintf(text, HY_MARK_MAX + 16, "HOPYARD_AGENT=%s", s->mark);
    for (size_t i = 0; i < n; i++)
        if (!is_mark(env[i]))
            list[used++] = env[i];
    list[used] = NULL;
    return list;
}

static int make_pipes(struct hy_process *p, int writers[2])
{
    int rc = 0;

    for (int i = 0; i < 2 && rc == 0; i++) {
        struct hy_output_pipe *st = &p->pipes[i];
        int ends[2];

        rc = make_pipe(ends);
        if (rc < 0)
            break;
        st->pipe = ends[0];
        writers[i] = ends[1];
        rc = hy_process_open_poll(p, &st->poll, st->pipe);
    }
    return rc;
}

static int spawn_into(struct hy_process *p, const struct hy_process_spec *spec, const int writers[2],
                      struct hy_err *err)
{
    struct hy_supervisor *s = p->supervisor;
    hy_cleanup_free char **env = mark_environment(s, spec->tag, spec->env);
    hy_cleanup_close int enter = p->cgroup.path ? hy_trial_cgroup_enter_fd(&p->cgroup) : -1;
    struct hy_spawn spawn = {.argv = spec->argv,
                             .env = env,
                             .cwd = spec->cwd,
                             .fds = {s->null_fd, writers[0], writers[1]},
                             .cgroup_fd = enter,
                             .open_files = spec->open_files,
                             .inherit = spec->inherit,
                             .inherit_count = spec->inherit_count,
                             .cores = spec->cores};

    if (!env)
        return hy_err_oom(err);
    if (p->cgroup.path && enter < 0)
        return hy_err_sys(err, enter, "cannot open the cgroup of '%s'", spec->tag);
    if (spec->fork_server)
        return hy_fork_server_fork(spec->fork_server, spec, env, writers, enter, &p->control, err);
    return hy_spawn(&spawn, &p->pid, &p->pidfd, err);
}

/* Everything that can fail before the process exists. */
static int prepare_and_spawn(struct hy_process *p, const struct hy_process_spec *spec, struct hy_err *err)
{
    struct hy_supervisor *s = p->supervisor;
    int writers[2] = {-1, -1};
    int rc = make_pipes(p, writers);

    if (rc < 0)
        hy_err_sys(err, rc, "cannot make a pipe for the output of '%s'", spec->tag);
    if (rc == 0 && spec->memory && s->cgroup.kind != HY_CGROUP_NONE)
        rc = hy_trial_cgroup_make(&s->cgroup, spec->tag, spec->memory, &p->cgroup, err);
    if (rc == 0 && p->cgroup.path) {
        rc = hy_process_open_poll(p, &p->oom_poll, p->cgroup.events);
        if (rc < 0)
            hy_err_sys(err, rc, "cannot watch the cgroup of '%s'", spec->tag);
    }
    /* Memory first: once there is a process, nothing may fail. */
    if (rc == 0 && !spec->fork_server) {
        rc = hy_map_put(&s->by_pid, 0, p);
        if (rc < 0)
            hy_err_oom(err);
    }
    if (rc == 0)
        rc = spawn_into(p, spec, writers, err);
    hy_close_at(&writers[0]);
    hy_close_at(&writers[1]);
    return rc;
}

static struct hy_process *new_process(struct hy_supervisor *s, const struct hy_process_spec *spec,
                                      const struct hy_process_events *events, void *arg)
{
    struct hy_process *p = hy_calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->tag = hy_strdup(spec->tag);
    if (!p->tag) {
        free(p);
        return NULL;
    }
    p->supervisor = s;
    p->events = *events;
    p->arg = arg;
    p->memory = spec->memory;
    p->timeout_ms = spec->timeout_ms;
    p->forked = spec->fork_server;
    p->inherited = spec->fork_server ? hy_fork_server_resident(spec->fork_server) : 0;
    if (spec->cores)
        p->cores = *spec->cores;
    p->pidfd = p->control = -1;
    p->stage = spec->fork_server ? HY_STAGE_STARTING : HY_STAGE_RUNNING;
    p->cgroup.events = -1;
    hy_list_push(&s->processes, (hy_list_init(&p->link), &p->link));
    for (int i = 0; i < 2; i++)
        p->pipes[i] = (struct hy_output_pipe){.process = p, .fd = i + 1, .pipe = -1};
    uv_timer_init(s->loop, &p->timer);
    p->timer.data = p;
    p->handles = 1;
    return p;
}

int hy_process_start(struct hy_supervisor *s, const struct hy_process_spec *spec,
                     const struct hy_process_events *events, void *arg, struct hy_process **ret, struct hy_err *err)
{
    struct hy_process *p;
    int rc;

    if (!spec->fork_server && (!spec->argv[0] || !spec->argv[0][0]))
        return hy_err_set(err, -EINVAL, "there is no command to start");
    p = new_process(s, spec, events, arg);
    if (!p)
        return hy_err_oom(err);
    rc = prepare_and_spawn(p, spec, err);
    if (rc == 0 && spec->fork_server) {
        rc = hy_process_await_fork(p);
        if (rc < 0)
            hy_err_sys(err, rc, "cannot wait for the process of '%s'", spec->tag);
    }
    if (rc < 0) {
        hy_map_remove(&s->by_pid, 0);
        hy_process_release(p);
        return rc;
    }
    if (!spec->fork_server)
        hy_process_begin(p);
    *ret = p;
    return 0;
}
