/* SPDX-License-Identifier: Apache-2.0 */
/* The per-agent state: subreaper, cgroup, SIGCHLD. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "supervise/internal.h"
#include "base/fault.h"
#include "base/mem.h"

static void on_child_signal(uv_signal_t *handle, int signum)
{
    struct hy_supervisor *s = handle->data;
    struct hy_process *p;

    (void)signum;
    s->snapshot_at = -1;
    while ((p = hy_orphans_reap(s)))
        hy_process_main_ended(p);
    hy_list_each(it, &s->processes)
        hy_process_settle(hy_container(it, struct hy_process, link));
}

void hy_supervisor_set_container(struct hy_supervisor *s, pid_t root, uint64_t limit)
{
    s->container_root = root;
    s->container_limit = limit;
}

static void on_supervisor_closed(uv_handle_t *handle)
{
    struct hy_supervisor *s = handle->data;

    if (--s->handles == 0)
        free(s);
}

static void close_supervisor(struct hy_supervisor *s)
{
    uv_handle_t *handles[] = {(uv_handle_t *)&s->child_signal, (uv_handle_t *)&s->watch_timer,
                              (uv_handle_t *)&s->orphan_timer};

    hy_procs_done(&s->snapshot);
    hy_map_done(&s->by_pid);
    hy_cgroup_done(&s->cgroup);
    hy_close_at(&s->null_fd);
    s->handles = 0;
    for (size_t i = 0; i < HY_COUNT(handles); i++)
        if (handles[i]->loop) {
            handles[i]->data = s;
            s->handles++;
            uv_close(handles[i], on_supervisor_closed);
        }
}

static int open_handles(struct hy_supervisor *s)
{
    uv_timer_t *timers[] = {&s->watch_timer, &s->orphan_timer};
    int rc;

    for (size_t i = 0; i < HY_COUNT(timers); i++) {
        uv_timer_init(s->loop, timers[i]);
        timers[i]->data = s;
        uv_unref((uv_handle_t *)timers[i]);
    }
    rc = uv_signal_init(s->loop, &s->child_signal);
    if (rc < 0)
        return rc;
    s->child_signal.data = s;
    uv_unref((uv_handle_t *)&s->child_signal);
    return uv_signal_start(&s->child_signal, on_child_signal, SIGCHLD);
}

static const char *limits_for_tests(void)
{
#ifdef HY_FAULTS
    return getenv("HOPYARD_TEST_LIMITS");
#else
    return NULL;
#endif
}

static int open_null(void)
{
    int fd = HY_SYS(open("/dev/null", O_RDWR | O_CLOEXEC));
    int high;

    if (fd < 0 || fd > 2)
        return fd < 0 ? -errno : fd;
    high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
    return high < 0 ? -errno : high;
}

static unsigned count_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

int hy_supervisor_new(uv_loop_t *loop, const char *name, struct hy_supervisor **ret, struct hy_err *err)
{
    struct hy_supervisor *s = hy_calloc(1, sizeof *s);
    int rc;

    if (!s)
        return hy_err_oom(err);
    s->loop = loop;
    s->self = getpid();
    s->snapshot_at = -1;
    s->cgroup.kind = HY_CGROUP_NONE;
    s->cores = count_cores();
    hy_list_init(&s->processes);
    s->null_fd = open_null();
    rc = s->null_fd < 0 ? s->null_fd : hy_mark_format(s->self, s->mark);
    if (rc == 0 && HY_SYS(prctl(PR_SET_CHILD_SUBREAPER, 1)) < 0)
        rc = -errno;
    if (rc < 0) {
        hy_close_at(&s->null_fd);
        free(s);
        return hy_err_sys(err, rc, "cannot supervise processes");
    }
    rc = open_handles(s);
    if (rc < 0) {
        close_supervisor(s);
        return hy_err_sys(err, rc, "cannot watch for SIGCHLD");
    }
    hy_cgroup_init(&s->cgroup, name, limits_for_tests());
    *ret = s;
    return 0;
}

void hy_supervisor_free(struct hy_supervisor *s)
{
    if (!s)
        return;
    assert(s->count == 0);
    s->snapshot_at = -1;
    hy_orphans_kill(s);
    close_supervisor(s);
}

const char *hy_supervisor_limit_method(const struct hy_supervisor *s)
{
    static const char *const names[] = {"watch", "cgroup v1", "cgroup v2"};

    return names[s->cgroup.kind];
}
