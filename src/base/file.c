/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"

int hy_read_all(int fd, struct hy_buf *b)
{
    for (;;) {
        char chunk[4096];
        ssize_t n = HY_SYS(read(fd, chunk, sizeof chunk));
        int rc;

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        rc = hy_buf_append(b, chunk, (size_t)n);
        if (rc < 0)
            return rc;
    }
}

int hy_file_read(const char *path, struct hy_buf *b)
{
    hy_cleanup_close int fd = HY_SYS(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));

    return fd < 0 ? -errno : hy_read_all(fd, b);
}

int hy_write_all(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;

    while (n) {
        ssize_t done = HY_SYS(write(fd, p, n));

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -errno;
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

int hy_file_write(const char *path, const void *bytes, size_t n, mode_t mode)
{
    hy_cleanup_free char *temporary = hy_asprintf("%s.%d.tmp", path, (int)getpid());
    hy_cleanup_close int fd = -1;
    int rc;

    if (!temporary)
        return -ENOMEM;
    unlink(temporary); /* left behind by a process with our number */
    fd = HY_SYS(open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
    if (fd < 0)
        return -errno;
    rc = hy_write_all(fd, bytes, n);
    if (rc == 0 && HY_SYS(fsync(fd)) < 0)
        rc = -errno;
    if (rc == 0 && HY_SYS(rename(temporary, path)) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(temporary);
    return rc;
}

static int make_one(const char *path, mode_t mode)
{
    struct stat st;

    if (HY_SYS(mkdir(path, mode)) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    if (stat(path, &st) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int hy_mkdirs(const char *path, mode_t mode)
{
    hy_cleanup_free char *copy = NULL;
    int rc = make_one(path, mode); /* mostly only the last one is missing */

    if (rc != -ENOENT || !*path)
        return rc;
    copy = hy_strdup(path);
    if (!copy)
        return -ENOMEM;
    for (char *p = copy + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        rc = make_one(copy, mode);
        if (rc < 0)
            return rc;
        *p = '/';
    }
    return make_one(path, mode);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)where;
    if (HY_SYS(type == FTW_DP ? rmdir(path) : unlink(path)) < 0 && errno != ENOENT)
        return -errno;
    return 0;
}

int hy_remove_tree(const char *path)
{
    struct stat st;
    int rc;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    rc = nftw(path, remove_entry, 32, FTW_DEPTH | FTW_PHYS);
    return rc == -1 ? -errno : rc;
}

/* ---- paths that others have named ---- */

static int enter(int folder, const char *name)
{
    int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = HY_SYS(openat(folder, name, flags));

    if (fd < 0 && errno == ENOENT) {
        if (HY_SYS(mkdirat(folder, name, 0777)) < 0 && errno != EEXIST)
            return -errno;
        fd = HY_SYS(openat(folder, name, flags));
    }
    return fd < 0 ? -errno : fd;
}

/* The folder that `path` lies in, made if it is missing, as an fd; *ret_name points to its last part. */
static int enter_parent(const char *dir, const char *path, const char **ret_name)
{
    hy_cleanup_free char *copy = hy_strdup(path);
    int folder = copy ? HY_SYS(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)) : -1;
    char *part = copy;

    if (folder < 0)
        return copy ? -errno : -ENOMEM;
    for (;;) {
        char *slash = strchrnul(part, '/');
        bool last = !*slash;
        int next;

        *slash = '\0';
        if (!*part || strcmp(part, ".") == 0 || strcmp(part, "..") == 0) {
            close(folder);
            return -EINVAL;
        }
        if (last) {
            *ret_name = path + (part - copy);
            return folder;
        }
        next = enter(folder, part);
        close(folder);
        if (next < 0)
            return next;
        folder = next;
        part = slash + 1;
    }
}

int hy_create_below(const char *dir, const char *path, mode_t mode)
{
    const char *name = NULL;
    hy_cleanup_close int folder = enter_parent(dir, path, &name);
    int fd;

    if (folder < 0)
        return folder;
    if (HY_SYS(unlinkat(folder, name, 0)) < 0 && errno != ENOENT)
        return -errno;
    fd = HY_SYS(openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    return fd < 0 ? -errno : fd;
}

int hy_extend_below(const char *dir, const char *path, mode_t mode, off_t offset)
{
    const char *name = NULL;
    hy_cleanup_close int folder = enter_parent(dir, path, &name);
    hy_cleanup_close int fd = -1;
    struct stat st;

    if (folder < 0)
        return folder;
    fd = HY_SYS(openat(folder, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode));
    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if (HY_SYS(ftruncate(fd, offset)) < 0 || HY_SYS(lseek(fd, offset, SEEK_SET)) < 0)
        return -errno;
    return hy_take_fd(fd);
}

char *hy_path_join(const char *folder, const char *name)
{
    size_t n = strlen(folder);

    return hy_asprintf("%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
}

char *hy_runtime_dir(struct hy_err *err)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    hy_cleanup_free char *path = base && *base == '/' ? hy_path_join(base, "hopyard")
                                                      : hy_asprintf("/tmp/hopyard-%u", (unsigned)getuid());
    struct stat st;
    int rc;

    if (!path) {
        hy_err_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    rc = hy_mkdirs(path, 0700);
    if (rc < 0) {
        hy_err_sys(err, rc, "cannot make the folder '%s' for sockets", path);
        return NULL;
    }
    if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != getuid() || (st.st_mode & 077)) {
        hy_err_set(
            err, -EPERM,
            "'%s' must be a folder of yours that nobody else can enter; remove it or set XDG_RUNTIME_DIR",
            path);
        return NULL;
    }
    return hy_take(path);
}
