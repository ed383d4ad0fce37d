/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes, from /proc. A process may vanish between any two reads; the result
 * is then "not there", never a guess.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/internal.h"
#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"

#define ENVIRONMENT_MAX (4u << 20)

/* Reads a small file of /proc, at most size - 1 bytes, and ends it with a NUL. */
static ssize_t read_small(const char *path, char *text, size_t size)
{
    hy_cleanup_close int fd = HY_SYS(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n = 0;
    size_t len = 0;

    if (fd < 0)
        return -errno;
    while (len < size - 1) {
        n = HY_SYS(read(fd, text + len, size - 1 - len));
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    if (n < 0)
        return -errno;
    text[len] = '\0';
    return (ssize_t)len;
}

int hy_proc_read(pid_t pid, struct hy_proc *ret)
{
    char path[40], text[1024];
    const char *rest;
    unsigned long long start, size;
    int ppid, pgrp, sid;
    long threads;
    ssize_t n;
    char state;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    n = read_small(path, text, sizeof text);
    if (n < 0)
        return (int)n;
    /* The name, in parentheses, may contain parentheses and blanks itself. */
    rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 1, " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu %llu",
                        &state, &ppid, &pgrp, &sid, &threads, &start, &size) != 7)
        return -ESRCH;
    /* A first thread that has ended before the others is shown as a zombie too. */
    *ret = (struct hy_proc){.pid = pid,
                            .ppid = ppid,
                            .pgrp = pgrp,
                            .sid = sid,
                            .threads = threads,
                            .start = start,
                            .exiting = size == 0 && state != 'Z',
                            .dead = state == 'X' || (state == 'Z' && threads <= 1)};
    return 0;
}

bool hy_proc_is_alive(pid_t pid)
{
    struct hy_proc proc;

    return hy_proc_read(pid, &proc) == 0 && !proc.dead;
}

static int add_proc(struct hy_procs *procs, const struct hy_proc *proc)
{
    if (procs->n == procs->cap) { /* hy_array_grow would shrink a list that is refilled */
        size_t cap = procs->cap ? procs->cap * 2 : 256;
        struct hy_proc *list = hy_reallocarray(procs->list, cap, sizeof *list);

        if (!list)
            return -ENOMEM;
        procs->list = list;
        procs->cap = cap;
    }
    procs->list[procs->n++] = *proc;
    return 0;
}

static int by_pid(const void *a, const void *b)
{
    const struct hy_proc *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Calls `each` for the pid of every process; stops at its first error. */
static int each_pid(int (*each)(void *arg, pid_t pid), void *arg)
{
    DIR *d = hy_fault_hit(HY_SEAM_SYS) ? NULL : opendir("/proc");
    struct dirent *e;
    int rc = 0;

    if (!d)
        return -EIO;
    while (rc >= 0 && (e = readdir(d)))
        if (isdigit((unsigned char)e->d_name[0]))
            rc = each(arg, (pid_t)atoi(e->d_name));
    closedir(d);
    return rc < 0 ? rc : 0;
}

static int read_into(void *arg, pid_t pid)
{
    struct hy_proc proc;
    int rc = hy_proc_read(pid, &proc);

    if (rc == -ENOENT || rc == -ESRCH)
        return 0;
    return rc < 0 ? rc : add_proc(arg, &proc);
}

int hy_procs_read(struct hy_procs *procs)
{
    int rc;

    procs->n = 0;
    rc = each_pid(read_into, procs);
    if (rc < 0)
        return rc;
    qsort(procs->list, procs->n, sizeof *procs->list, by_pid);
    return 0;
}

/* The sum of the values of "Name:  123 kB" lines; -1 when all are missing. */
static int64_t sum_kb(const char *text, const char *const *names)
{
    int64_t sum = 0;
    bool any = false;

    for (; *names; names++) {
        const char *line = strstr(text, *names);

        if (line) {
            sum += strtoll(line + strlen(*names), NULL, 10);
            any = true;
        }
    }
    return any ? sum : -1;
}

/* Thread IDs share the PIDs' number space and have files of the same names, though /proc does not list them. */
static bool is_thread(pid_t pid)
{
    static const char *const leader[] = {"\nTgid:", NULL};
    char path[40], text[4096];

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    return read_small(path, text, sizeof text) > 0 && sum_kb(text, leader) != pid;
}

int hy_procs_add(struct hy_procs *procs, pid_t first, pid_t last)
{
    size_t n = procs->n;
    int rc = 0;

    for (pid_t pid = first; rc == 0 && pid <= last; pid++) {
        const struct hy_procs known = {.list = procs->list, .n = n};

        if (!hy_procs_find(&known, pid) && !is_thread(pid))
            rc = read_into(procs, pid);
    }
    if (rc == 0)
        qsort(procs->list, procs->n, sizeof *procs->list, by_pid);
    return rc;
}

void hy_procs_done(struct hy_procs *procs)
{
    free(procs->list);
    *procs = (struct hy_procs){0};
}

struct hy_proc *hy_procs_find(const struct hy_procs *procs, pid_t pid)
{
    const struct hy_proc key = {.pid = pid};

    return procs->n ? bsearch(&key, procs->list, procs->n, sizeof key, by_pid) : NULL;
}

struct children {
    void (*each)(void *arg, pid_t pid);
    void *arg;
    int count;
};

static int pass_own_child(void *arg, pid_t pid)
{
    struct children *c = arg;
    struct hy_proc proc;

    if (hy_proc_read(pid, &proc) < 0 || proc.ppid != getpid())
        return 0;
    c->each(c->arg, pid);
    c->count++;
    return 0;
}

/* "12 13 14 " in pieces. */
static int pass_listed_children(struct children *c, int fd)
{
    char text[4096];
    pid_t pid = 0;
    ssize_t n;

    while ((n = HY_SYS(read(fd, text, sizeof text))) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (isdigit((unsigned char)text[i])) {
                pid = pid * 10 + (text[i] - '0');
            } else if (pid) {
                c->each(c->arg, pid);
                c->count++;
                pid = 0;
            }
        }
    return n < 0 ? -errno : c->count;
}

/* Of one thread. -ENOENT: it has exited, or the kernel has no CONFIG_PROC_CHILDREN. */
static int pass_thread_children(struct children *c, pid_t pid, pid_t thread)
{
    hy_cleanup_close int fd = -1;
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)thread);
    fd = HY_SYS(open(path, O_RDONLY | O_CLOEXEC));
    return fd < 0 ? -errno : pass_listed_children(c, fd);
}

int hy_children_each(void (*each)(void *arg, pid_t pid), void *arg)
{
    struct children c = {.each = each, .arg = arg};
    int rc = pass_thread_children(&c, getpid(), getpid());

    if (rc != -ENOENT)
        return rc;
    rc = each_pid(pass_own_child, &c); /* a kernel without CONFIG_PROC_CHILDREN */
    return rc < 0 ? rc : c.count;
}

/* ---- the tree below this process ---- */

struct tree {
    struct hy_procs *procs;
    int rc; /* of the first process that could not be added */
};

static void add_to_tree(void *arg, pid_t pid)
{
    struct tree *t = arg;

    if (t->rc == 0)
        t->rc = read_into(t->procs, pid);
}

/* The children of a thread that has exited in the meantime have been reparented. */
static int add_children_of_thread(struct tree *t, pid_t pid, pid_t thread)
{
    struct children c = {.each = add_to_tree, .arg = t};
    int rc = pass_thread_children(&c, pid, thread);

    return rc < 0 && rc != -ENOENT && rc != -ESRCH ? rc : t->rc;
}

/* A child is listed under the thread that forked it. */
static int add_children_of_threads(struct tree *t, pid_t pid)
{
    struct dirent *e;
    char path[40];
    int rc = 0;
    DIR *d;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    d = opendir(path);
    while (d && rc == 0 && (e = readdir(d)))
        if (isdigit((unsigned char)e->d_name[0]))
            rc = add_children_of_thread(t, pid, (pid_t)atoi(e->d_name));
    if (d)
        closedir(d);
    return rc;
}

/* A process that is reparented in the meantime may be listed twice. */
static void sort_uniquely(struct hy_procs *procs)
{
    size_t n = 0;

    qsort(procs->list, procs->n, sizeof *procs->list, by_pid);
    for (size_t i = 0; i < procs->n; i++)
        if (n == 0 || procs->list[n - 1].pid != procs->list[i].pid)
            procs->list[n++] = procs->list[i];
    procs->n = n;
}

int hy_procs_read_tree(struct hy_procs *procs)
{
    struct tree t = {.procs = procs};
    struct children c = {.each = add_to_tree, .arg = &t};
    int rc;

    procs->n = 0;
    rc = pass_thread_children(&c, getpid(), getpid());
    rc = rc < 0 ? rc : t.rc;
    for (size_t i = 0; rc == 0 && i < procs->n; i++) { /* the list grows in this loop */
        pid_t pid = procs->list[i].pid;

        rc = procs->list[i].threads > 1 ? add_children_of_threads(&t, pid) : add_children_of_thread(&t, pid, pid);
    }
    if (rc == 0 && procs->n)
        sort_uniquely(procs);
    return rc;
}

/* "0.20 0.18 0.12 1/80 11206": the last word. */
int64_t hy_newest_pid(void)
{
    char text[128];
    const char *last;

    if (read_small("/proc/loadavg", text, sizeof text) <= 0)
        return -1;
    last = strrchr(text, ' ');
    return last && isdigit((unsigned char)last[1]) ? strtoll(last + 1, NULL, 10) : -1;
}

int hy_proc_env(pid_t pid, const char *name, char *value, size_t size)
{
    hy_cleanup_buf struct hy_buf b;
    const char *at, *end;
    size_t n = strlen(name);
    char path[40];

    hy_buf_init(&b, ENVIRONMENT_MAX);
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    if (hy_file_read(path, &b) == -ENOMEM)
        return -ENOMEM;
    at = (const char *)hy_buf_bytes(&b);
    end = at + b.len;
    while (at && at < end) {
        size_t len = strnlen(at, (size_t)(end - at));

        if (len > n && at[n] == '=' && memcmp(at, name, n) == 0 && len - n - 1 < size) {
            memcpy(value, at + n + 1, len - n - 1);
            value[len - n - 1] = '\0';
            return 1;
        }
        at += len + 1;
    }
    return 0;
}

/* A sum of values of /proc/PID/status. */
static uint64_t read_status(pid_t pid, const char *const *names)
{
    char path[40], text[4096];
    int64_t kb = -1;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (read_small(path, text, sizeof text) > 0)
        kb = sum_kb(text, names);
    return kb > 0 ? (uint64_t)kb * 1024 : 0;
}

uint64_t hy_proc_memory(pid_t pid, bool exact)
{
    static const char *const resident[] = {"\nRssAnon:", "\nRssShmem:", "\nVmSwap:", NULL};
    static const char *const share[] = {"\nPss_Anon:", "\nPss_Shmem:", "\nSwapPss:", NULL};
    char path[40], text[4096];
    int64_t kb = -1;

    if (exact) {
        snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
        if (read_small(path, text, sizeof text) > 0 && strstr(text, share[0]))
            kb = sum_kb(text, share);
    }
    if (kb < 0)
        return read_status(pid, resident);
    return (uint64_t)kb * 1024;
}

uint64_t hy_proc_anonymous(pid_t pid)
{
    static const char *const anonymous[] = {"\nRssAnon:", NULL};

    return read_status(pid, anonymous);
}

uint64_t hy_proc_private(pid_t pid)
{
    static const char *const own[] = {"\nPrivate_Dirty:", "\nPrivate_Hugetlb:", "\nSwapPss:", NULL};
    char path[40], text[4096];
    int64_t kb = -1;

    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    if (read_small(path, text, sizeof text) > 0)
        kb = sum_kb(text, own);
    return kb < 0 ? hy_proc_memory(pid, true) : (uint64_t)kb * 1024;
}

uint64_t hy_proc_resident(pid_t pid)
{
    static const char *const resident[] = {"\nVmRSS:", NULL};

    return read_status(pid, resident);
}

int64_t hy_proc_cpu_ms(pid_t pid)
{
    char path[40], text[1024];
    long long user, system, waited_user, waited_system;
    long ticks = sysconf(_SC_CLK_TCK);
    const char *rest;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    rest = read_small(path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld %lld %lld", &user, &system,
                        &waited_user, &waited_system) != 4)
        return 0;
    return (user + system + waited_user + waited_system) * 1000 / (ticks > 0 ? ticks : 100);
}

unsigned long long hy_pid_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? (unsigned long long)st.st_ino : 0;
}

int hy_mark_format(pid_t pid, char mark[HY_MARK_MAX])
{
    struct hy_proc proc;
    int rc = hy_proc_read(pid, &proc);

    if (rc == 0)
        snprintf(mark, HY_MARK_MAX, "%d:%llu-%llu", (int)pid, (unsigned long long)proc.start, hy_pid_namespace());
    return rc;
}

int hy_mark_alive(const char *mark)
{
    unsigned long long start, space;
    struct hy_proc proc;
    int pid, used = 0, rc;

    if (sscanf(mark, "%d:%llu-%llu%n", &pid, &start, &space, &used) != 3 || mark[used] || pid <= 0)
        return -EINVAL;
    if (space != hy_pid_namespace())
        return 1; /* of another PID namespace: its PIDs mean nothing here */
    rc = hy_proc_read(pid, &proc);
    if (rc == -ENOENT || rc == -ESRCH)
        return 0;
    /* Unknown counts as alive. */
    return rc < 0 || (proc.start == start && !proc.dead);
}
