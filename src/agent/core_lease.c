/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core_lease.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"

#define TRY_MS 25   /* between two attempts to lock */
#define TELL_MS 300 /* a shorter wait is not reported */
#define CORES_MAX 4096u
#define RECORD 256   /* bytes of the file with the name of a core's holder */
#define QUEUE 0      /* the byte that is the queue; core i is byte i + 1 */
#define NAMES_MAX 3  /* holders that a message names */

struct hy_cores {
    uv_timer_t timer; /* runs while a lease waits */
    uint32_t count, per_core, gang;
    char holder[RECORD];
    int fd;
    bool is_first;     /* we hold the queue lock */
    struct hy_list waiting;
    uint32_t gang_users;
    uint32_t users[];  /* leases on each core; 0: we do not hold it */
};

struct hy_core_lease {
    struct hy_cores *cores;
    struct hy_list link; /* in cores.waiting */
    struct hy_core_events events;
    void *arg;
    int64_t since_ms;
    uint32_t core;
    bool is_here, is_told;
};

/* ---- locks ---- */

static struct flock byte_range(uint32_t byte, short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

/* If locking fails for another reason than a conflict, the trial starts without a lease. */
static bool lock(const struct hy_cores *c, uint32_t byte)
{
    struct flock range = byte_range(byte, F_WRLCK);

    if (HY_SYS(fcntl(c->fd, F_OFD_SETLK, &range)) == 0)
        return true;
    if (errno == EAGAIN || errno == EACCES)
        return false;
    hy_warn_limited("cannot lock a core; the trial starts without a lease error=%s", strerror(errno));
    return true;
}

static void unlock(const struct hy_cores *c, uint32_t byte)
{
    struct flock range = byte_range(byte, F_UNLCK);

    if (fcntl(c->fd, F_OFD_SETLK, &range) < 0)
        hy_warn_limited("cannot unlock a core error=%s", strerror(errno));
}

static void leave_queue(struct hy_cores *c)
{
    if (c->is_first)
        unlock(c, QUEUE);
    c->is_first = false;
}

/* ---- who holds them ---- */

static void sign(const struct hy_cores *c, uint32_t core)
{
    if (pwrite(c->fd, c->holder, RECORD, (off_t)core * RECORD) != RECORD)
        hy_debug("cannot write the holder of a core error=%s", strerror(errno));
}

static void read_holder(const struct hy_cores *c, uint32_t core, char name[RECORD])
{
    ssize_t n = pread(c->fd, name, RECORD - 1, (off_t)core * RECORD);

    name[n > 0 ? n : 0] = '\0';
    if (!*name)
        snprintf(name, RECORD, "another run");
}

static bool is_others(const struct hy_cores *c, uint32_t core)
{
    struct flock range = byte_range(core + 1, F_WRLCK);

    return fcntl(c->fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

/* "2 of this machine's 2 cores are in use, by run 3 in '/home/me/digits'; …" */
static void explain(const struct hy_cores *c, char *text, size_t size)
{
    char names[NAMES_MAX][RECORD], all[NAMES_MAX * RECORD + 32] = "";
    uint32_t used = 0;
    size_t n = 0;

    for (uint32_t i = 0; i < c->count; i++) {
        char name[RECORD];
        size_t same = 0;

        used += c->users[i] > 0;
        if (c->users[i] || !is_others(c, i))
            continue;
        used++;
        read_holder(c, i, name);
        while (same < n && strcmp(names[same], name) != 0)
            same++;
        if (same == n && n < NAMES_MAX)
            memcpy(names[n++], name, RECORD);
    }
    for (size_t i = 0, at = 0; i < n; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i == 0 ? "" : i + 1 == n ? " and " : ", ", names[i]);
    snprintf(text, size, "%u of this machine's %u core%s are in use, by %s; with 'oversubscribe' a run does not wait",
             used, c->count, c->count == 1 ? "" : "s", n ? all : "runs that waited before it");
}

/* ---- taking and leaving ---- */

/* All of `n`, or none. */
static bool take(struct hy_cores *c, uint32_t n, uint32_t *ret_last)
{
    uint32_t taken[CORES_MAX], got = 0;

    for (uint32_t i = 0; i < c->count && got < n; i++)
        if (!c->users[i] && lock(c, i + 1))
            taken[got++] = i;
    for (uint32_t i = 0; i < got; i++) {
        if (got < n) {
            unlock(c, taken[i] + 1);
            continue;
        }
        c->users[taken[i]] = 1;
        sign(c, taken[i]);
        *ret_last = taken[i];
    }
    return got == n;
}

static bool share_one(struct hy_cores *c, uint32_t *ret)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (c->users[i] && c->users[i] < c->per_core) {
            c->users[i]++;
            *ret = i;
            return true;
        }
    return false;
}

static bool try_it(struct hy_cores *c, struct hy_core_lease *l)
{
    uint32_t n = !c->gang ? 1 : c->gang < c->count ? c->gang : c->count;

    l->is_here = c->gang ? c->gang_users > 0 : share_one(c, &l->core);
    if (!l->is_here && (c->is_first || lock(c, QUEUE))) {
        c->is_first = true;
        l->is_here = take(c, n, &l->core);
    }
    if (l->is_here) {
        c->gang_users += c->gang > 0;
        leave_queue(c);
    }
    return l->is_here;
}

static void put_back(struct hy_cores *c, uint32_t core)
{
    if (--c->users[core] == 0)
        unlock(c, core + 1);
}

static void give_back(struct hy_core_lease *l)
{
    struct hy_cores *c = l->cores;

    if (!c->gang)
        put_back(c, l->core);
    else if (--c->gang_users == 0)
        for (uint32_t i = 0; i < c->count; i++)
            if (c->users[i])
                put_back(c, i);
}

/* ---- waiting ---- */

static void tell(struct hy_core_lease *l)
{
    char why[NAMES_MAX * RECORD + 200];

    if (l->is_told || hy_clock_ms() - l->since_ms < TELL_MS)
        return;
    l->is_told = true;
    explain(l->cores, why, sizeof why);
    l->events.on_held(l->arg, why);
}

/* First come, first served. Callbacks may free leases and request others. */
static void on_timer(uv_timer_t *timer)
{
    struct hy_cores *c = timer->data;

    while (!hy_list_empty(&c->waiting)) {
        struct hy_core_lease *l = hy_container(c->waiting.next, struct hy_core_lease, link);

        if (!try_it(c, l)) {
            tell(l);
            return;
        }
        hy_list_remove(&l->link);
        l->events.on_ready(l->arg);
    }
    leave_queue(c);
    uv_timer_stop(timer);
}

int hy_core_lease_new(struct hy_cores *c, const struct hy_core_events *events, void *arg, struct hy_core_lease **ret)
{
    struct hy_core_lease *l = hy_calloc(1, sizeof *l);

    if (!l)
        return -ENOMEM;
    *l = (struct hy_core_lease){.cores = c, .events = *events, .arg = arg, .since_ms = hy_clock_ms()};
    hy_list_init(&l->link);
    *ret = l;
    if (hy_list_empty(&c->waiting) && try_it(c, l))
        return 1;
    hy_list_push(&c->waiting, &l->link);
    uv_timer_start(&c->timer, on_timer, TRY_MS, TRY_MS);
    return 0;
}

void hy_core_lease_free(struct hy_core_lease *l)
{
    if (!l)
        return;
    hy_list_remove(&l->link);
    if (l->is_here)
        give_back(l);
    if (hy_list_empty(&l->cores->waiting))
        leave_queue(l->cores);
    else if (l->is_here)
        uv_timer_start(&l->cores->timer, on_timer, 0, TRY_MS); /* for the next lease that waits */
    free(l);
}

/* ---- an agent's ---- */

static int open_file(const char *path)
{
    hy_cleanup_close int fd = HY_SYS(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) ? hy_take_fd(fd) : -EINVAL;
}

struct hy_cores *hy_cores_new(uv_loop_t *loop, const struct hy_cores_spec *spec)
{
    uint32_t count = spec->count < CORES_MAX ? spec->count : CORES_MAX;
    struct hy_cores *c = hy_calloc(1, sizeof *c + count * sizeof *c->users);

    if (!c)
        return NULL;
    c->fd = open_file(spec->path);
    if (c->fd < 0) {
        errno = -c->fd;
        free(c);
        return NULL;
    }
    c->count = count;
    c->per_core = spec->per_core;
    c->gang = spec->gang;
    snprintf(c->holder, sizeof c->holder, "%s", spec->holder);
    hy_list_init(&c->waiting);
    uv_timer_init(loop, &c->timer);
    uv_unref((uv_handle_t *)&c->timer);
    c->timer.data = c;
    return c;
}

static void on_closed(uv_handle_t *timer)
{
    struct hy_cores *c = timer->data;

    hy_close_at(&c->fd);
    free(c);
}

void hy_cores_free(struct hy_cores *c)
{
    if (c)
        uv_close((uv_handle_t *)&c->timer, on_closed);
}
