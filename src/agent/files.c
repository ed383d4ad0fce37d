/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of agents that do not see the driver's folder: a checkpoint comes with
 * the start of a retry, and what the trial left goes back before it counts as
 * ended. Either way they are one stream, the bytes of one file behind those of
 * the other: so its window bounds what is under way, however many they are.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/supervise.h"
#include "agent/trial.h"
#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#define CHUNK (64u * 1024)

/* ---- where they are ---------------------------------------------------------------- */

static char *work_folder(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (cache && *cache == '/')
        return hy_path_join(cache, "hopyard/work");
    return hy_path_join(home && *home == '/' ? home : "/tmp", ".cache/hopyard/work");
}

/* Is "PID-SPACE-RUN-HOST" an agent of this host that is no more? The folder may be
 * one that several hosts share. */
static bool is_left_behind(const char *name, const char *host)
{
    unsigned long long space;
    int pid, used = 0;

    return sscanf(name, "%d-%llu-%*d-%n", &pid, &space, &used) == 2 && used && pid > 0 &&
           space == hy_pid_namespace() && strcmp(name + used, host) == 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

/* An agent that was killed could not remove its own. */
static void remove_left_behind(const char *work, const char *host)
{
    DIR *dir = opendir(work);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        hy_cleanup_free char *path = is_left_behind(entry->d_name, host) ? hy_path_join(work, entry->d_name) : NULL;

        if (path && hy_remove_tree(path) < 0)
            hy_warn("cannot remove a folder that an agent left path=%s", path);
    }
    if (dir)
        closedir(dir);
}

char *hy_agent_files_root(int64_t run, const char *host, struct hy_err *err)
{
    hy_cleanup_free char *work = work_folder();
    hy_cleanup_free char *path = work ? hy_asprintf("%s/%d-%llu-%lld-%s", work, (int)getpid(), hy_pid_namespace(), (long long)run, host) : NULL;
    int rc = path ? hy_mkdirs(path, 0700) : -ENOMEM;

    if (rc < 0) {
        hy_err_sys(err, rc, "cannot make the folder '%s' for the trials", path ? path : "");
        return NULL;
    }
    remove_left_behind(work, host);
    return hy_take(path);
}

/* ---- files that come ----------------------------------------------------------- */

struct incoming {
    struct trial *trial;
    uint32_t stream;
    size_t next; /* in Start.files */
    int fd;
    uint64_t left;
    struct hy_err err; /* the first that went wrong: the trial will not start */
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

/* On to the next file that has bytes to come; false when there is none. */
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
        in->fd = hy_create_below(in->trial->dir, f->path, f->mode & 0777);
        if (in->fd < 0)
            failed(in, in->fd);
    }
    return true;
}

/* All that was announced has come: the trial may run, if it is whole. */
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
        return hy_err_set(err, -ENOMEM, "out of memory");
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

void hy_agent_files_forget(struct trial *t)
{
    if (t->incoming)
        incoming_free(t->agent, t->incoming);
}

/* ---- files that go --------------------------------------------------------------- */

struct upload {
    char **paths; /* absolute */
    size_t count, next;
    int fd;       /* of the file under way */
    uint64_t left;
    uint32_t stream;
    uint64_t sent;
};

static struct upload *walking; /* nftw has no argument for its callback */

static int take_path(const char *path, const struct stat *st, int type, struct FTW *where)
{
    char **more;

    (void)where;
    if (type != FTW_F || !S_ISREG(st->st_mode)) /* nor what a symbolic link leads to */
        return 0;
    more = hy_reallocarray(walking->paths, walking->count + 1, sizeof *more);
    if (!more)
        return -ENOMEM;
    walking->paths = more;
    more[walking->count] = hy_strdup(path);
    if (!more[walking->count])
        return -ENOMEM;
    walking->count++;
    return 0;
}

void hy_agent_files_upload_free(struct upload *u)
{
    if (!u)
        return;
    for (size_t i = 0; i < u->count; i++)
        free(u->paths[i]);
    hy_close_at(&u->fd);
    free(u->paths);
    free(u);
}

/* What it printed goes by that name: a file of the trial's own must not. */
static bool is_taken(const struct trial *t, const char *name)
{
    return (strcmp(name, "stdout") == 0 && t->captures[0].stream) || (strcmp(name, "stderr") == 0 && t->captures[1].stream);
}

static void announce(struct trial *t, const char *name, const struct stat *st)
{
    Hy__Output output = HY__OUTPUT__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    output.trial = t->number;
    output.attempt = t->attempt;
    output.stream = t->upload->stream;
    output.path = (char *)name;
    output.mode = st->st_mode & (S_IFMT | 0777);
    output.size = (uint64_t)st->st_size;
    m.body_case = HY__CONTROL__BODY_OUTPUT;
    m.output = &output;
    hy_agent_send(t->agent, &m);
}

/* A file that the trial has hidden from us is its own affair. But a checkpoint
 * with a hole in it is worse than none, and on a disk that cannot be read
 * nothing should run: then the attempt counts as lost. */
static void cannot_send(struct trial *t, const char *name, int error)
{
    hy_warn("cannot send a file back trial=%llu path=%s error=%s", (unsigned long long)t->number, name, strerror(error));
    if (strncmp(name, "checkpoint/", 11) == 0 || (error != EACCES && error != ENOENT && error != ENODATA))
        hy_agent_end(t->agent, 1, "a trial's file cannot be read");
}

static void open_next(struct trial *t)
{
    struct upload *u = t->upload;
    const char *path = u->paths[u->next++], *name = path + strlen(t->dir) + 1;
    struct stat st;

    if (is_taken(t, name)) {
        hy_warn("a file is not sent back: what the trial printed has its name path=%s", path);
        return;
    }
    u->fd = HY_SYS(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (u->fd < 0 || HY_SYS(fstat(u->fd, &st)) < 0) {
        cannot_send(t, name, errno);
        hy_close_at(&u->fd);
        u->fd = -1;
        return;
    }
    if (!u->stream)
        u->stream = t->agent->next_stream++;
    u->left = (uint64_t)st.st_size;
    announce(t, name, &st);
}

/* Sends as much as there is room for; 1 when the file is over, 0 when full. */
static int send_some(struct trial *t)
{
    static uint8_t chunk[CHUNK]; /* one loop, used within this call only */
    struct upload *u = t->upload;

    while (u->left) {
        size_t want = u->left < CHUNK ? (size_t)u->left : CHUNK;
        ssize_t n;

        if (hy_peer_room(t->agent->peer, u->stream) < CHUNK)
            return 0;
        n = HY_SYS(read(u->fd, chunk, want));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) { /* it has shrunk: zeros keep the others in their place */
            cannot_send(t, u->paths[u->next - 1] + strlen(t->dir) + 1, n < 0 ? errno : ENODATA);
            memset(chunk, 0, want);
            n = (ssize_t)want;
        }
        if (hy_peer_write(t->agent->peer, u->stream, chunk, (size_t)n) < 0)
            hy_agent_end(t->agent, 1, "out of memory");
        if (hy_agent_is_broken(t->agent))
            return 0;
        u->left -= (uint64_t)n;
        u->sent += (uint64_t)n;
    }
    return 1;
}

static void upload_more(struct trial *t)
{
    struct upload *u = t->upload;

    while (!hy_agent_is_broken(t->agent) && (u->fd >= 0 || u->next < u->count)) {
        if (u->fd < 0)
            open_next(t);
        if (u->fd < 0)
            continue;
        if (send_some(t) == 0) {
            if (!hy_agent_is_broken(t->agent))
                return; /* hy_agent_files_room goes on */
            break;
        }
        hy_close_at(&u->fd);
        u->fd = -1;
    }
    t->ended.sent_files = 1;
    if (u->stream && hy_agent_trial_add_output(t, u->stream, u->sent) < 0)
        hy_agent_end(t->agent, 1, "out of memory");
    hy_agent_trial_finish(t);
}

void hy_agent_files_upload(struct trial *t)
{
    t->upload = hy_calloc(1, sizeof *t->upload);
    if (!t->upload) {
        hy_agent_end(t->agent, 1, "out of memory");
        hy_agent_trial_free(t);
        return;
    }
    t->upload->fd = -1;
    walking = t->upload;
    if (nftw(t->dir, take_path, 32, FTW_PHYS) != 0)
        hy_agent_end(t->agent, 1, "a trial's files cannot be listed");
    walking = NULL;
    upload_more(t);
}

bool hy_agent_files_room(struct trial *t, uint32_t stream)
{
    if (!t->upload || t->upload->stream != stream || t->upload->fd < 0)
        return false;
    upload_more(t);
    return true;
}
