/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input files on agents without access to the driver's directory: the scratch
 * directory, and the checkpoint that comes with the start of a retry. upload.c is the
 * other direction. Either way all files are one stream, one after the other, so that
 * its window bounds the bytes in flight however many files there are.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/supervise.h"
#include "agent/trial.h"
#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/private.h"

/* ---- the scratch directory --------------------------------------------------------- */

static char *work_folder(const struct agent *a, struct hy_err *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    hy_cleanup_free char *runtime = NULL;
    char name[40];

    if (a->work) { /* other users may have theirs in the same parent, such as /tmp */
        snprintf(name, sizeof name, ".hopyard-work-%u", (unsigned)geteuid());
        return hy_path_join(a->work, name);
    }
    if (cache && *cache == '/')
        return hy_path_join(cache, "hopyard/work");
    if (home && *home == '/')
        return hy_path_join(home, ".cache/hopyard/work");
    runtime = hy_runtime_dir(err);
    return runtime ? hy_path_join(runtime, "work") : NULL;
}

/* Whether "PID-NAMESPACE-RUN-HOST" belongs to a dead agent of this host. Several hosts
 * may share the parent directory. */
static bool is_left_behind(const char *name, const char *host)
{
    unsigned long long space;
    int pid, used = 0;

    return sscanf(name, "%d-%llu-%*d-%n", &pid, &space, &used) == 2 && used && pid > 0 && space == hy_pid_namespace() &&
           strcmp(name + used, host) == 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

/* Removes directories of agents that were killed. */
static void remove_left_behind(const char *work, const char *host)
{
    DIR *dir = opendir(work);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        hy_cleanup_free char *path = is_left_behind(entry->d_name, host) ? hy_path_join(work, entry->d_name) : NULL;

        if (path && hy_remove_tree(path) < 0)
            hy_warn("cannot remove the directory of a dead agent path=%s", path);
    }
    if (dir)
        closedir(dir);
}

char *hy_agent_files_root(const struct agent *a, const char *host, struct hy_err *err)
{
    long long run = a->welcomed->welcome->run;
    hy_cleanup_free char *work = work_folder(a, err);
    hy_cleanup_free char *path =
        work ? hy_asprintf("%s/%d-%llu-%lld-%s", work, (int)getpid(), hy_pid_namespace(), run, host) : NULL;
    hy_cleanup_close int dir = path ? hy_private_make_dir(work, HY_OWNER_SELF, err) : -1;
    int rc;

    if (err->code)
        return NULL;
    rc = path && dir >= 0 ? hy_mkdirs(path, 0700) : -ENOMEM;
    if (rc < 0) {
        hy_err_sys(err, rc, "cannot make the directory '%s' for the trials", path ? path : "");
        return NULL;
    }
    remove_left_behind(work, host);
    return hy_take(path);
}

/* ---- incoming files ------------------------------------------------------------ */

struct incoming {
    struct trial *trial;
    uint32_t stream;
    size_t next; /* in Start.files */
    int fd;
    uint64_t left;
    struct hy_err err; /* the first error: the trial will not start */
};

static void incoming_free(struct agent *a, struct incoming *in)
{
    hy_map_remove(&a->incoming, in->stream);
    if (a->peer)
        hy_peer_forget(a->peer, in->stream);
    hy_close_at(&in->fd);
    in->trial->incoming = NULL;
    free(in);
}

static void failed(struct incoming *in, int rc)
{
    if (!in->err.code)
        hy_err_sys(&in->err, rc, "cannot write the checkpoint's file '%s'",
                   in->trial->start->start->files[in->next - 1]->path);
    hy_close_at(&in->fd);
    in->fd = -1;
}

static int open_file(const struct trial *t, const Hy__FileSent *f)
{
    hy_cleanup_close int dir = hy_open_own_dir(t->agent->root, t->start->start->dir, NULL);

    if (dir < 0)
        return dir;
    return f->offset ? hy_extend_below(dir, f->path, (off_t)f->offset) : hy_create_below(dir, f->path, f->mode & 0777);
}

/* Advances to the next file that is not empty; false after the last. */
static bool next_file(struct incoming *in)
{
    const Hy__Start *start = in->trial->start->start;

    while (in->left == 0) {
        const Hy__FileSent *f;

        hy_close_at(&in->fd);
        in->fd = -1;
        if (in->next == start->n_files)
            return false;
        f = start->files[in->next++];
        in->left = f->size;
        in->fd = open_file(in->trial, f);
        if (in->fd < 0)
            failed(in, in->fd);
    }
    return true;
}

/* All announced bytes have arrived: runs the trial, or fails it. */
static void complete(struct incoming *in)
{
    struct trial *t = in->trial;
    struct hy_err err = in->err;

    incoming_free(t->agent, in);
    if (err.code)
        hy_agent_trial_fail(t, &err);
    else
        hy_agent_trial_run(t);
}

int hy_agent_files_expect(struct trial *t, struct hy_err *err)
{
    const Hy__Start *start = t->start->start;
    struct incoming *in;

    if (start->n_files == 0)
        return 0;
    in = hy_calloc(1, sizeof *in);
    if (!in || hy_map_put(&t->agent->incoming, start->files[0]->stream, in) < 0) {
        free(in);
        return hy_err_oom(err);
    }
    *in = (struct incoming){.trial = t, .stream = start->files[0]->stream, .fd = -1};
    t->incoming = in;
    if (!next_file(in))
        complete(in);
    return 1;
}

void hy_agent_files_data(struct agent *a, uint32_t stream, const uint8_t *bytes, size_t n)
{
    struct incoming *in = hy_map_get(&a->incoming, stream);

    while (in && n) {
        size_t k = n < in->left ? n : (size_t)in->left;
        int rc = in->fd < 0 ? 0 : hy_write_all(in->fd, bytes, k);

        if (rc < 0)
            failed(in, rc);
        bytes += k;
        n -= k;
        in->left -= k;
        if (!next_file(in)) {
            complete(in);
            return;
        }
    }
}

void hy_agent_files_cancel(struct trial *t)
{
    if (t->incoming)
        incoming_free(t->agent, t->incoming);
}
