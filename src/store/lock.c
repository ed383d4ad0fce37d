/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open file description locks: they are released with the last copy of the
 * descriptor, however the process ends, and another descriptor of the same process
 * neither shares nor drops them.
 *
 * store.lock, byte 0  the gate: held by the next writer while it waits
 *             byte 1  the write lock
 *             2 + ID  the run's backup: held while it is written or removed
 * run-ID.lock         held by the run's driver; the file has its PID
 *
 * Why writers queue before SQLite's lock: a waiter there only retries from time to
 * time, and a busy driver takes the lock back before it does. Here the waiter holds
 * the gate, at which the busy driver has to wait.
 */
#include "store/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"

#define GATE 0
#define WRITER 1
#define BACKUPS 2
#define BACKUP_WAIT_MS 60000 /* a backup of a run with many reported values takes a while */

static int set_byte(int fd, short type, off_t byte)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    if (HY_SYS(fcntl(fd, F_OFD_SETLK, &lock)) == 0)
        return 0;
    return errno == EACCES ? -EAGAIN : -errno;
}

static void clear_byte(int fd, off_t byte)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    fcntl(fd, F_OFD_SETLK, &lock);
}

/* There is no lock call with a time limit, so this one polls. */
static int wait_for_byte(int fd, off_t byte, int64_t deadline)
{
    struct timespec pause = {.tv_nsec = 50000};
    int rc;

    while ((rc = set_byte(fd, F_WRLCK, byte)) == -EAGAIN || rc == -EINTR) {
        if (hy_clock_ms() >= deadline)
            return -EBUSY;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 1000000)
            pause.tv_nsec *= 2;
    }
    return rc;
}

int hy_turn_lock(int fd, int wait_ms)
{
    int64_t deadline = hy_clock_ms() + wait_ms;
    int rc = wait_for_byte(fd, GATE, deadline);

    if (rc < 0)
        return rc;
    rc = wait_for_byte(fd, WRITER, deadline);
    clear_byte(fd, GATE);
    return rc;
}

void hy_turn_unlock(int fd)
{
    clear_byte(fd, WRITER);
}

int hy_backup_lock(struct hy_store *s, int64_t run, struct hy_err *err)
{
    hy_cleanup_close int fd = hy_store_file(s, "store.lock", O_RDWR | O_CREAT, err);
    int rc;

    if (fd < 0)
        return fd;
    rc = wait_for_byte(fd, BACKUPS + run, hy_clock_ms() + BACKUP_WAIT_MS);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot lock the snapshot '%s/runs/%lld.db'", s->directory, (long long)run);
    return hy_take_fd(fd);
}

/* ---- one driver per run -------------------------------------------------------- */

static int open_lock(struct hy_store *s, int64_t run, int flags, struct hy_err *err)
{
    char name[40];

    snprintf(name, sizeof name, "run-%lld.lock", (long long)run);
    return hy_store_file(s, name, flags, err);
}

int hy_run_lock_held(struct hy_store *s, int64_t run)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    hy_cleanup_close int fd = open_lock(s, run, O_RDONLY, NULL);

    if (fd < 0)
        return fd != -ENOENT && fd != -ENOTDIR; /* unknown counts as alive */
    if (HY_SYS(fcntl(fd, F_OFD_GETLK, &lock)) < 0)
        return 1;
    return lock.l_type != F_UNLCK;
}

int hy_store_run_alive(struct hy_store *s, int64_t run)
{
    return hy_run_lock_held(s, run);
}

/* The PID in it; 0: none. */
static long process_in(int fd)
{
    char text[32] = {0};
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;

    return pid > 0 ? pid : 0;
}

pid_t hy_store_run_driver(struct hy_store *s, int64_t run)
{
    hy_cleanup_close int fd = -1;

    if (!hy_run_lock_held(s, run))
        return 0;
    fd = open_lock(s, run, O_RDONLY, NULL);
    return fd < 0 ? 0 : (pid_t)process_in(fd);
}

static int refuse(int fd, int64_t run, struct hy_err *err)
{
    long pid = process_in(fd);

    if (pid <= 0)
        return hy_err_set(err, -EBUSY, "run %lld has a driver already; `hopyard attach %lld` shows it", (long long)run,
                          (long long)run);
    return hy_err_set(err, -EBUSY, "run %lld has a driver already (process %ld); `hopyard attach %lld` shows it",
                      (long long)run, pid, (long long)run);
}

int hy_store_run_lock(struct hy_store *s, int64_t run, struct hy_err *err)
{
    hy_cleanup_close int fd = open_lock(s, run, O_RDWR | O_CREAT, err);
    char text[32];
    int n, rc;

    if (fd < 0)
        return fd;
    rc = set_byte(fd, F_WRLCK, 0);
    if (rc == -EAGAIN)
        return refuse(fd, run, err);
    n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (rc == 0 && HY_SYS(ftruncate(fd, 0)) < 0)
        rc = -errno;
    if (rc == 0)
        rc = hy_write_all(fd, text, (size_t)n);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot write the lock '%s/run-%lld.lock'", s->directory, (long long)run);
    return hy_take_fd(fd);
}
