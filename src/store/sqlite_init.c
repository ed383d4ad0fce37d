/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initializes SQLite. In test builds its allocations and I/O pass the fault seams,
 * so that a suite can make its n-th malloc or pwrite fail.
 */
#include "store/internal.h"

#include <errno.h>
#include <pthread.h>
#include <sys/types.h>

#include "base/fault.h"

#ifdef HY_FAULTS
static sqlite3_mem_methods plain;

static void *seam_malloc(int n)
{
    return hy_fault_hit(HY_SEAM_ALLOC) ? NULL : plain.xMalloc(n);
}

static void *seam_realloc(void *old, int n)
{
    return hy_fault_hit(HY_SEAM_ALLOC) ? NULL : plain.xRealloc(old, n);
}

static int (*plain_open)(const char *, int, int);
static int (*plain_ftruncate)(int, off_t);
static ssize_t (*plain_write)(int, const void *, size_t);
static ssize_t (*plain_read)(int, void *, size_t);
static ssize_t (*plain_pread)(int, void *, size_t, off_t);
static ssize_t (*plain_pwrite)(int, const void *, size_t, off_t);

static int seam_open(const char *path, int flags, int mode)
{
    return HY_SYS(plain_open(path, flags, mode));
}

static int seam_ftruncate(int fd, off_t n)
{
    return HY_SYS(plain_ftruncate(fd, n));
}

static ssize_t seam_write(int fd, const void *bytes, size_t n)
{
    return HY_SYS(plain_write(fd, bytes, n));
}

static ssize_t seam_read(int fd, void *bytes, size_t n)
{
    return HY_SYS(plain_read(fd, bytes, n));
}

static ssize_t seam_pread(int fd, void *bytes, size_t n, off_t at)
{
    return HY_SYS(plain_pread(fd, bytes, n, at));
}

static ssize_t seam_pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    return HY_SYS(plain_pwrite(fd, bytes, n, at));
}

static void wrap_call(sqlite3_vfs *vfs, const char *name, sqlite3_syscall_ptr *ret_plain, sqlite3_syscall_ptr seam)
{
    sqlite3_syscall_ptr found = vfs->xGetSystemCall(vfs, name);

    if (!found)
        return; /* this build of SQLite does not use it */
    *ret_plain = found;
    vfs->xSetSystemCall(vfs, name, seam);
}

static void wrap_calls(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    if (!vfs || vfs->iVersion < 3)
        return;
    wrap_call(vfs, "open", (sqlite3_syscall_ptr *)&plain_open, (sqlite3_syscall_ptr)seam_open);
    wrap_call(vfs, "ftruncate", (sqlite3_syscall_ptr *)&plain_ftruncate, (sqlite3_syscall_ptr)seam_ftruncate);
    wrap_call(vfs, "write", (sqlite3_syscall_ptr *)&plain_write, (sqlite3_syscall_ptr)seam_write);
    wrap_call(vfs, "read", (sqlite3_syscall_ptr *)&plain_read, (sqlite3_syscall_ptr)seam_read);
    wrap_call(vfs, "pread", (sqlite3_syscall_ptr *)&plain_pread, (sqlite3_syscall_ptr)seam_pread);
    wrap_call(vfs, "pwrite", (sqlite3_syscall_ptr *)&plain_pwrite, (sqlite3_syscall_ptr)seam_pwrite);
    wrap_call(vfs, "pread64", (sqlite3_syscall_ptr *)&plain_pread, (sqlite3_syscall_ptr)seam_pread);
    wrap_call(vfs, "pwrite64", (sqlite3_syscall_ptr *)&plain_pwrite, (sqlite3_syscall_ptr)seam_pwrite);
}

static void wrap_memory(void)
{
    sqlite3_mem_methods seamed;

    if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &plain) != SQLITE_OK)
        return;
    seamed = plain;
    seamed.xMalloc = seam_malloc;
    seamed.xRealloc = seam_realloc;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &seamed);
    sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0); /* each small allocation passes the seam, too */
}
#endif

static void configure(void)
{
    /* Memory statistics are not used, and take a lock for each allocation. */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
#ifdef HY_FAULTS
    wrap_memory();
#endif
}

static int start(void)
{
    int rc = sqlite3_initialize() == SQLITE_OK ? hy_sqlite_check_opens() : -ENOMEM;

#ifdef HY_FAULTS
    if (rc == 0)
        wrap_calls();
#endif
    return rc;
}

int hy_sqlite_init(struct hy_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool started; /* after -ENOMEM the next call tries again */
    int rc = 0;

    pthread_once(&once, configure);
    pthread_mutex_lock(&mutex);
    if (!started)
        rc = start();
    started |= rc == 0;
    pthread_mutex_unlock(&mutex);
    return rc < 0 ? hy_err_sys(err, rc, "cannot start SQLite") : 0;
}
