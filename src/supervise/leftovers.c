/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leftovers of an agent that was killed together with its reaper: processes
 * marked with an agent that does not exist any more, and cgroups named after it.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/internal.h"

static bool is_ours(pid_t pid)
{
    char path[40];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    return stat(path, &st) == 0 && st.st_uid == geteuid();
}

/* 1 when its agent is gone, unless that is our agent too: then we are a leftover as well. */
static int is_left_over(const struct hy_proc *proc)
{
    const char *own = getenv("HOPYARD_AGENT");
    char mark[HY_MARK_MAX];
    int rc;

    if (proc->dead || proc->pid == getpid() || !is_ours(proc->pid))
        return 0;
    rc = hy_proc_env(proc->pid, "HOPYARD_AGENT", mark, sizeof mark);
    if (rc <= 0 || (own && strcmp(own, mark) == 0))
        return rc < 0 ? rc : 0;
    return hy_mark_alive(mark) == 0;
}

static int report_leftover(pid_t pid, hy_leftover_cb cb, void *arg)
{
    char dir[PATH_MAX] = "";
    int rc = hy_proc_env(pid, "HOPYARD_TRIAL_DIR", dir, sizeof dir);

    if (rc >= 0)
        cb(arg, pid, dir);
    return rc;
}

int hy_supervisor_leftovers(hy_leftover_cb cb, void *arg)
{
    struct hy_procs procs = {0};
    int rc = hy_procs_read(&procs);

    for (size_t i = 0; rc >= 0 && i < procs.n; i++) {
        rc = is_left_over(&procs.list[i]);
        if (rc > 0)
            rc = report_leftover(procs.list[i].pid, cb, arg);
    }
    hy_procs_done(&procs);
    return rc < 0 ? rc : 0;
}
