/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite opens its files by path, and makes them readable by all users. So its
 * paths begin with the descriptor of the checked directory, each file it opens is
 * checked by its descriptor (base/private.h), and new ones are made with mode 0600:
 * a directory or a file that is swapped in meanwhile is not used. This applies to
 * all that SQLite opens in this program: stores, drafts of snapshots and private
 * copies.
 */
#include "store/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/private.h"

static int open_checked(const char *path, int flags, int mode)
{
    bool made;
    hy_cleanup_close int fd = hy_private_open_at(AT_FDCWD, path, flags, &made);
    struct stat st;

    (void)mode;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    /* SQLite opens directories too, to sync them. */
    if (!S_ISDIR(st.st_mode) && hy_private_check(fd, path, NULL) < 0) {
        errno = EPERM;
        return -1;
    }
    if (made && hy_private_give(fd, path) < 0) {
        errno = EPERM;
        return -1;
    }
    return hy_take_fd(fd);
}

/* SQLite resolves links in a path. /proc/self/fd/N must stay as it is: it leads to the checked directory, while the
 * path of its target may lead elsewhere by now. */
static int stat_through_links(const char *path, struct stat *ret)
{
    return stat(path, ret);
}

int hy_sqlite_check_opens(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    int rc;

    if (!vfs || vfs->iVersion < 3 || vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_checked) != SQLITE_OK)
        return -ENOTSUP;
    rc = vfs->xSetSystemCall(vfs, "lstat", (sqlite3_syscall_ptr)stat_through_links);
    return rc == SQLITE_OK || rc == SQLITE_NOTFOUND ? 0 : -ENOTSUP; /* some builds never resolve links */
}

int hy_sqlite_check_files(struct hy_store *s, struct hy_err *err)
{
    static const char *const names[] = {"store.db", "store.db-wal", "store.db-shm"};

    for (size_t i = 0; i < HY_COUNT(names); i++) {
        struct hy_err why = {0};
        /* O_PATH: closing any other descriptor of the file would drop SQLite's POSIX locks. */
        hy_cleanup_close int fd = hy_store_file(s, names[i], O_PATH, &why);

        if (fd < 0 && fd != -ENOENT) {
            if (err)
                *err = why;
            return fd;
        }
    }
    return 0;
}
