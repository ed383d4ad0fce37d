/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory limits by cgroup, where the machine permits it.
 *
 *     v1   MOUNT/OWN/hopyard-NAME.PID.START/TAG.N
 *     v2   the same below our own cgroup when it may have both processes and
 *          children (the root), otherwise beside it: a cgroup of v2 that has
 *          processes cannot hand controllers to its children.
 *
 * The PID and start time in the name identify the agent after it has died.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/internal.h"
#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"

#define PREFIX "hopyard-"
#define WALK_DEPTH 8
#define CLEAR_ROUNDS 500 /* of 10 ms */
#define REMOVE_TRIES 20  /* of 1 ms */

static int read_file(const char *folder, const char *name, struct hy_buf *b)
{
    hy_cleanup_free char *path = hy_path_join(folder, name);
    int rc;

    hy_buf_clear(b);
    if (!path)
        return -ENOMEM;
    rc = hy_file_read(path, b);
    return rc < 0 ? rc : hy_buf_cstr(b) ? 0 : -ENOMEM;
}

static int write_file(const char *folder, const char *name, const char *text)
{
    hy_cleanup_free char *path = hy_path_join(folder, name);
    hy_cleanup_close int fd = -1;

    if (!path)
        return -ENOMEM;
    fd = HY_SYS(open(path, O_WRONLY | O_CLOEXEC));
    if (fd < 0 || HY_SYS(write(fd, text, strlen(text))) < 0)
        return -errno;
    return 0;
}

/* The number behind `key` at the beginning of a line; the whole file's with key "". */
static uint64_t read_number(const char *folder, const char *name, const char *key)
{
    hy_cleanup_buf struct hy_buf b;
    const char *text;
    size_t n = strlen(key);

    hy_buf_init(&b, 65536);
    if (read_file(folder, name, &b) < 0)
        return 0;
    for (text = hy_buf_cstr(&b); text && *text; text++) {
        if (strncmp(text, key, n) == 0 && (n == 0 || text[n] == ' '))
            return strtoull(text + n, NULL, 10);
        text = strchr(text, '\n');
        if (!text)
            break;
    }
    return 0;
}

static int locate(enum hy_cgroup_kind kind, struct hy_cgroup_place *ret)
{
    hy_cleanup_buf struct hy_buf own;
    hy_cleanup_buf struct hy_buf mounts;

    hy_buf_init(&own, 65536);
    hy_buf_init(&mounts, 4u << 20);
    if (read_file("/proc/self", "cgroup", &own) < 0 || read_file("/proc/self", "mountinfo", &mounts) < 0)
        return -ENOENT;
    return hy_cgroup_locate(kind, hy_buf_cstr(&own), hy_buf_cstr(&mounts), ret);
}

/* ---- the agent's ---- */

static bool is_safe_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
}

/* Replaces characters that are not safe in a file name. */
static void make_file_name(const char *name, char *out, size_t size)
{
    size_t n = 0;

    for (; name[n] && n + 1 < size; n++)
        out[n] = is_safe_char(name[n]) ? name[n] : '_';
    out[n] = '\0';
}

static bool enable_memory_controller(const char *folder)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 4096);
    if (write_file(folder, "cgroup.subtree_control", "+memory") == 0)
        return true;
    return read_file(folder, "cgroup.subtree_control", &b) == 0 && hy_list_contains(hy_buf_cstr(&b), "memory", " \n");
}

/* Whether we may move a process from our cgroup to one below `base`. */
static bool may_move(const char *base)
{
    hy_cleanup_free char *procs = hy_path_join(base, "cgroup.procs");

    return procs && access(procs, W_OK) == 0;
}

static bool make_below(struct hy_cgroup *c, enum hy_cgroup_kind kind, const char *base, const char *name)
{
    char plain[101], mark[HY_MARK_MAX];

    if (hy_mark_format(getpid(), mark) < 0)
        return false;
    *strchr(mark, ':') = '.';
    make_file_name(name, plain, sizeof plain);
    if (kind == HY_CGROUP_V2 && (!may_move(base) || !enable_memory_controller(base)))
        return false;
    if ((size_t)snprintf(c->path, sizeof c->path, "%s/" PREFIX "%s.%s", base, plain, mark) >= sizeof c->path)
        return false;
    if (HY_SYS(mkdir(c->path, 0755)) < 0 && errno != EEXIST)
        return false;
    if (kind == HY_CGROUP_V2 ? enable_memory_controller(c->path)
                             : read_number(c->path, "memory.limit_in_bytes", "") > 0) {
        c->kind = kind;
        return true;
    }
    rmdir(c->path);
    return false;
}

static bool make_at(struct hy_cgroup *c, enum hy_cgroup_kind kind, const char *name)
{
    struct hy_cgroup_place place;
    char base[2 * PATH_MAX];
    char *slash;

    if (locate(kind, &place) < 0)
        return false;
    snprintf(base, sizeof base, "%s%s", place.mount, place.own);
    if (make_below(c, kind, base, name))
        return true;
    if (kind == HY_CGROUP_V1 || !place.own[0])
        return false;
    slash = strrchr(base, '/');
    *slash = '\0';
    return make_below(c, kind, base, name);
}

void hy_cgroup_init(struct hy_cgroup *c, const char *name, const char *only)
{
    c->kind = HY_CGROUP_NONE;
    c->count = 0;
    for (enum hy_cgroup_kind kind = HY_CGROUP_V1; kind <= HY_CGROUP_V2; kind++)
        if (c->kind == HY_CGROUP_NONE && (!only || strcmp(only, kind == HY_CGROUP_V1 ? "v1" : "v2") == 0))
            make_at(c, kind, name);
}

/* ---- a trial's ---- */

/* An eventfd that counts OOM events of v1. */
static int watch_oom_v1(const char *folder)
{
    hy_cleanup_free char *path = hy_path_join(folder, "memory.oom_control");
    hy_cleanup_close int control = path ? HY_SYS(open(path, O_RDONLY | O_CLOEXEC)) : -1;
    hy_cleanup_close int event = HY_SYS(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    char line[40];
    int rc;

    if (!path)
        return -ENOMEM;
    if (control < 0 || event < 0)
        return -errno;
    snprintf(line, sizeof line, "%d %d", event, control);
    rc = write_file(folder, "cgroup.event_control", line);
    return rc < 0 ? rc : hy_take_fd(event);
}

static int watch_oom_v2(const char *folder)
{
    hy_cleanup_free char *path = hy_path_join(folder, "memory.events");
    int fd = path ? HY_SYS(open(path, O_RDONLY | O_CLOEXEC)) : -1;

    return !path ? -ENOMEM : fd < 0 ? -errno : fd;
}

static int set_limits(struct hy_trial_cgroup *t, uint64_t memory)
{
    char text[24];
    int rc;

    snprintf(text, sizeof text, "%llu", (unsigned long long)memory);
    if (t->kind == HY_CGROUP_V1) {
        rc = write_file(t->path, "memory.limit_in_bytes", text);
        /* Swap counts too; without swap accounting the file is missing. */
        write_file(t->path, "memory.memsw.limit_in_bytes", text);
        t->events = rc < 0 ? rc : watch_oom_v1(t->path);
    } else {
        rc = write_file(t->path, "memory.max", text);
        write_file(t->path, "memory.swap.max", "0");
        write_file(t->path, "memory.oom.group", "1");
        t->events = rc < 0 ? rc : watch_oom_v2(t->path);
    }
    return t->events < 0 ? t->events : 0;
}

int hy_trial_cgroup_make(struct hy_cgroup *c, const char *tag, uint64_t memory, struct hy_trial_cgroup *ret,
                         struct hy_err *err)
{
    struct hy_trial_cgroup t = {.kind = c->kind, .events = -1};
    char plain[101];
    int rc;

    make_file_name(tag, plain, sizeof plain);
    t.path = hy_asprintf("%s/%s.%llu", c->path, plain, (unsigned long long)++c->count);
    if (!t.path)
        return hy_err_oom(err);
    if (HY_SYS(mkdir(t.path, 0755)) < 0) {
        rc = hy_err_sys(err, -errno, "cannot make the cgroup '%s'", t.path);
        free(t.path);
        return rc;
    }
    rc = set_limits(&t, memory);
    if (rc < 0) {
        hy_err_sys(err, rc, "cannot limit memory in the cgroup '%s'", t.path);
        hy_trial_cgroup_remove(&t);
        return rc;
    }
    *ret = t;
    return 0;
}

int hy_trial_cgroup_enter_fd(const struct hy_trial_cgroup *t)
{
    hy_cleanup_free char *path = hy_path_join(t->path, "cgroup.procs");
    int fd = path ? HY_SYS(open(path, O_WRONLY | O_CLOEXEC)) : -1;

    return !path ? -ENOMEM : fd < 0 ? -errno : fd;
}

bool hy_trial_cgroup_oom(const struct hy_trial_cgroup *t)
{
    char drop[4096];

    if (!t->path)
        return false;
    /* Reading rearms the notification. */
    if (pread(t->events, drop, sizeof drop, 0) < 0 && read(t->events, drop, sizeof drop) < 0)
        errno = 0;
    /* A kill alone may be due to the limit of a parent cgroup; v1 does not
     * report that, but then this one was not full. */
    if (t->kind == HY_CGROUP_V1) {
        uint64_t limit = read_number(t->path, "memory.limit_in_bytes", "");

        return read_number(t->path, "memory.oom_control", "oom_kill") > 0 &&
               hy_trial_cgroup_peak(t) >= limit - limit / 16;
    }
    return read_number(t->path, "memory.events", "oom_kill") > 0 && read_number(t->path, "memory.events", "oom") > 0;
}

uint64_t hy_trial_cgroup_usage(const struct hy_trial_cgroup *t)
{
    const char *anonymous = t->kind == HY_CGROUP_V1 ? "rss" : "anon";

    return read_number(t->path, "memory.stat", anonymous) + read_number(t->path, "memory.stat", "shmem");
}

uint64_t hy_trial_cgroup_peak(const struct hy_trial_cgroup *t)
{
    return read_number(t->path, t->kind == HY_CGROUP_V1 ? "memory.max_usage_in_bytes" : "memory.peak", "");
}

/* ---- ending ---- */

static int signal_folder(const char *folder, enum hy_cgroup_kind kind, int sig)
{
    hy_cleanup_buf struct hy_buf b;
    int count = 0, rc;
    char *at;

    hy_buf_init(&b, 4u << 20);
    rc = read_file(folder, "cgroup.procs", &b);
    if (rc < 0)
        return rc;
    if (kind == HY_CGROUP_V2 && sig == SIGKILL && b.len)
        write_file(folder, "cgroup.kill", "1");
    for (at = (char *)hy_buf_bytes(&b); at && *at;) {
        long pid = strtol(at, &at, 10);

        if (pid > 0 && kill((pid_t)pid, sig) == 0)
            count++;
        at += strspn(at, "\n");
    }
    return count;
}

/* Calls `each` for every directory in `path`, a buffer of PATH_MAX that is
 * extended and restored; does not descend where it returns true. */
static void walk(char *path, int depth, bool (*each)(void *arg, const char *path, const char *name), void *arg)
{
    size_t n = strlen(path);
    DIR *d = depth ? opendir(path) : NULL;
    struct dirent *e;

    while (d && (e = readdir(d))) {
        if (e->d_type != DT_DIR || e->d_name[0] == '.' || n + strlen(e->d_name) + 2 > PATH_MAX)
            continue;
        path[n] = '/';
        strcpy(path + n + 1, e->d_name);
        if (!each(arg, path, e->d_name))
            walk(path, depth - 1, each, arg);
        path[n] = '\0';
    }
    if (d)
        closedir(d);
}

struct ending {
    enum hy_cgroup_kind kind;
    int sig, count;
};

static bool signal_each(void *arg, const char *path, const char *name)
{
    struct ending *e = arg;
    int n = signal_folder(path, e->kind, e->sig);

    (void)name;
    e->count += n > 0 ? n : 0;
    return false;
}

static int signal_tree(const char *folder, enum hy_cgroup_kind kind, int sig)
{
    struct ending e = {.kind = kind, .sig = sig};
    char path[PATH_MAX];

    e.count = signal_folder(folder, kind, sig);
    snprintf(path, sizeof path, "%s", folder);
    walk(path, WALK_DEPTH, signal_each, &e);
    return e.count;
}

static bool remove_each(void *arg, const char *path, const char *name)
{
    char below[PATH_MAX];

    (void)name;
    snprintf(below, sizeof below, "%s", path);
    walk(below, WALK_DEPTH, remove_each, arg);
    rmdir(path);
    return true;
}

/* Removes it with cgroups that a trial may have made in it. The kernel may count
 * a process for a moment after it was reaped. */
static int remove_folder(const char *folder)
{
    char path[PATH_MAX];

    for (int i = 0; i < REMOVE_TRIES; i++) {
        if (rmdir(folder) == 0 || errno == ENOENT)
            return 0;
        snprintf(path, sizeof path, "%s", folder);
        walk(path, WALK_DEPTH, remove_each, NULL);
        if (rmdir(folder) == 0 || errno == ENOENT)
            return 0;
        if (errno != EBUSY)
            break;
        poll(NULL, 0, 1);
    }
    return -errno;
}

int hy_trial_cgroup_signal(const struct hy_trial_cgroup *t, int sig)
{
    return t->path ? signal_tree(t->path, t->kind, sig) : 0;
}

void hy_trial_cgroup_remove(struct hy_trial_cgroup *t)
{
    if (t->events >= 0)
        close(t->events);
    if (t->path)
        remove_folder(t->path); /* otherwise it is removed when the agent ends */
    free(t->path);
    *t = (struct hy_trial_cgroup){.events = -1};
}

void hy_cgroup_done(struct hy_cgroup *c)
{
    if (c->kind != HY_CGROUP_NONE)
        remove_folder(c->path);
    c->kind = HY_CGROUP_NONE;
}

struct clearing {
    enum hy_cgroup_kind kind;
    const char *name; /* as in the file name; NULL: of agents that are gone */
    pid_t pid;
    bool only_empty;
    int killed;
};

/* "hopyard-NAME.PID.START" */
static bool matches(const struct clearing *c, const char *folder)
{
    const char *start = strrchr(folder, '.'), *pid = start;
    char mark[HY_MARK_MAX];
    size_t n;

    if (strncmp(folder, PREFIX, strlen(PREFIX)) != 0 || !start)
        return false;
    while (pid > folder && *--pid != '.')
        ;
    if (*pid != '.')
        return false;
    snprintf(mark, sizeof mark, "%.*s:%s", (int)(start - pid - 1), pid + 1, start + 1);
    if (!c->name)
        return hy_mark_alive(mark) == 0;
    n = strlen(c->name);
    folder += strlen(PREFIX);
    return (size_t)(pid - folder) == n && memcmp(folder, c->name, n) == 0 && atoi(pid + 1) == (int)c->pid;
}

static bool clear_each(void *arg, const char *path, const char *name)
{
    struct clearing *c = arg;
    struct stat st;
    int n;

    if (!matches(c, name))
        return false;
    if (stat(path, &st) < 0 || st.st_uid != geteuid())
        return true;
    for (int round = 0; round < (c->only_empty ? 1 : CLEAR_ROUNDS); round++) {
        n = c->only_empty ? 0 : signal_tree(path, c->kind, SIGKILL);
        c->killed += round == 0 && n > 0 ? n : 0;
        if (remove_folder(path) == 0)
            break;
        poll(NULL, 0, 10);
    }
    return true;
}

static int clear(struct clearing *c)
{
    for (c->kind = HY_CGROUP_V1; c->kind <= HY_CGROUP_V2; c->kind++) {
        struct hy_cgroup_place place;

        if (locate(c->kind, &place) == 0)
            walk(place.mount, WALK_DEPTH, clear_each, c);
    }
    return c->killed;
}

int hy_cgroup_clear(const char *name, pid_t pid)
{
    char plain[101];
    struct clearing c = {.name = plain, .pid = pid};

    make_file_name(name, plain, sizeof plain);
    return clear(&c);
}

int hy_supervisor_sweep_cgroups(bool with_processes)
{
    return clear(&(struct clearing){.only_empty = !with_processes});
}
