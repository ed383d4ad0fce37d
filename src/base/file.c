/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/private.h"

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
    unlink(temporary); /* of an earlier process with our PID */
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
    int rc = make_one(path, mode); /* usually only the last one is missing */

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

/* ---- untrusted paths ---- */

static int enter(int directory, const char *name, bool make)
{
    int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = HY_SYS(openat(directory, name, flags));

    if (fd < 0 && errno == ENOENT && make) {
        if (HY_SYS(mkdirat(directory, name, 0755)) < 0 && errno != EEXIST)
            return -errno;
        fd = HY_SYS(openat(directory, name, flags));
    }
    return fd < 0 ? -errno : fd;
}

/* Whether files that this process makes in the directory get that owner: a file server may map all users to one. */
static bool makes_files_of(int directory, uid_t owner)
{
    hy_cleanup_close int fd = -1;
    struct stat st;
    char name[40];

    snprintf(name, sizeof name, ".hopyard-owner-%d", (int)getpid());
    fd = HY_SYS(openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd < 0)
        return false;
    (void)unlinkat(directory, name, 0); /* best effort: the file is empty */
    return HY_SYS(fstat(fd, &st)) == 0 && st.st_uid == owner;
}

struct entering {
    int directory;     /* the directory that was entered last; owned */
    bool make;      /* missing directories */
    bool check;     /* the owners of the directories */
    uid_t owner;    /* of the first one */
    uid_t stranger; /* the owner of the rejected one */
};

/* It must not belong to another user. */
static int check_owner(struct entering *e, int directory, bool is_first)
{
    struct stat st;

    if (!e->check)
        return 0;
    if (HY_SYS(fstat(directory, &st)) < 0)
        return -errno;
    if (is_first)
        e->owner = st.st_uid;
    if (st.st_uid == geteuid() || (geteuid() == 0 && st.st_uid == e->owner) || makes_files_of(directory, st.st_uid))
        return 0;
    e->stranger = st.st_uid;
    return -EPERM;
}

static int enter_next(struct entering *e, const char *part)
{
    bool valid = *part && strcmp(part, ".") != 0 && strcmp(part, "..") != 0;
    int next = valid ? enter(e->directory, part, e->make) : -EINVAL;
    int rc = next < 0 ? next : check_owner(e, next, false);

    if (next >= 0) {
        close(e->directory);
        e->directory = next;
    }
    return rc;
}

/* Enters the parent of `path`, below the current directory; *ret_name points to the last part. */
static int enter_parent(struct entering *e, const char *path, const char **ret_name)
{
    hy_cleanup_free char *copy = hy_strdup(path);
    char *part = copy, *slash;
    int rc = copy ? 0 : -ENOMEM;

    for (; rc == 0 && (slash = strchr(part, '/')); part = slash + 1) {
        *slash = '\0';
        rc = enter_next(e, part);
    }
    if (rc == 0 && (!*part || strcmp(part, ".") == 0 || strcmp(part, "..") == 0))
        rc = -EINVAL;
    if (rc == 0)
        *ret_name = path + (part - copy);
    return rc;
}

static int enter_first(const char *dir)
{
    int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = HY_SYS(open(dir, flags)), rc;

    if (fd < 0 && errno == ENOENT) {
        rc = hy_mkdirs(dir, 0755);
        if (rc < 0)
            return rc;
        fd = HY_SYS(open(dir, flags));
    }
    return fd < 0 ? -errno : fd;
}

static int own_dir_error(int rc, const struct entering *e, const char *dir, const char *path, struct hy_err *err)
{
    if (e->stranger != (uid_t)-1)
        return hy_err_set(err, rc,
                          "the directory '%s/%s' is not used, since it or its parent belongs to another user "
                          "(user ID %u): remove that one",
                          dir, path, (unsigned)e->stranger);
    if (rc == -ENOTDIR || rc == -ELOOP)
        return hy_err_set(err, rc,
                          "'%s/%s' is not used, since it or its parent is a symbolic link or a file: remove that one",
                          dir, path);
    return hy_err_sys(err, rc, "cannot make the directory '%s/%s'", dir, path);
}

int hy_open_own_dir(const char *dir, const char *path, struct hy_err *err)
{
    struct entering e = {.directory = enter_first(dir), .make = true, .check = true, .stranger = (uid_t)-1};
    const char *name = NULL;
    int rc = e.directory < 0 ? e.directory : check_owner(&e, e.directory, true);

    if (rc == 0)
        rc = enter_parent(&e, path, &name);
    if (rc == 0)
        rc = enter_next(&e, name);
    if (rc == 0)
        return e.directory;
    hy_close_at(&e.directory);
    return own_dir_error(rc, &e, dir, path, err);
}

/* Opens the parent of `path`, below `dir`. */
static int parent_below(int dir, const char *path, bool make, const char **ret_name)
{
    struct entering e = {.directory = HY_SYS(fcntl(dir, F_DUPFD_CLOEXEC, 0)), .make = make};
    int rc = e.directory < 0 ? -errno : enter_parent(&e, path, ret_name);

    if (rc == 0)
        return e.directory;
    hy_close_at(&e.directory);
    return rc;
}

int hy_open_below(int dir, const char *path, int flags)
{
    const char *name = NULL;
    hy_cleanup_close int directory = parent_below(dir, path, false, &name);
    int fd = directory < 0 ? -1 : HY_SYS(openat(directory, name, flags | O_NOFOLLOW | O_CLOEXEC));

    if (directory < 0)
        return directory;
    return fd < 0 ? -errno : fd;
}

int hy_create_below(int dir, const char *path, mode_t mode)
{
    const char *name = NULL;
    hy_cleanup_close int directory = parent_below(dir, path, true, &name);
    int fd;

    if (directory < 0)
        return directory;
    if (HY_SYS(unlinkat(directory, name, 0)) < 0 && errno != ENOENT)
        return -errno;
    fd = HY_SYS(openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    return fd < 0 ? -errno : fd;
}

int hy_extend_below(int dir, const char *path, off_t offset)
{
    const char *name = NULL;
    hy_cleanup_close int directory = parent_below(dir, path, false, &name);
    hy_cleanup_close int fd = -1;
    struct stat st;

    if (directory < 0)
        return directory;
    fd = HY_SYS(openat(directory, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if (HY_SYS(ftruncate(fd, offset)) < 0 || HY_SYS(lseek(fd, offset, SEEK_SET)) < 0)
        return -errno;
    return hy_take_fd(fd);
}

/* ---- holes ---- */

#define DATA_AT_ONCE (64u << 20) /* limits the search in a file with very many holes */

/* The start of the first data from `from` on; `to`: none. */
static uint64_t data_after(int fd, uint64_t from, uint64_t to)
{
    off_t at = HY_SYS(lseek(fd, (off_t)from, SEEK_DATA));

    if (at < 0)
        return errno == ENXIO ? to : from;
    return (uint64_t)at > to ? to : (uint64_t)at;
}

/* The end of the data at `from`. A hole right there was made meanwhile, or the file system is inconsistent. */
static uint64_t hole_after(int fd, uint64_t from, uint64_t to)
{
    off_t at = HY_SYS(lseek(fd, (off_t)from, SEEK_HOLE));

    return at < 0 || (uint64_t)at <= from || (uint64_t)at > to ? to : (uint64_t)at;
}

int hy_next_data(int fd, uint64_t from, uint64_t to, uint64_t least_hole, uint64_t *ret_start, uint64_t *ret_end)
{
    uint64_t data = from < to ? data_after(fd, from, to) : to, start, end;

    if (data >= to)
        return 0;
    start = data - from < least_hole ? from : data;
    for (;;) {
        end = hole_after(fd, data, to);
        data = end < to ? data_after(fd, end, to) : to;
        if (data >= to || data - end >= least_hole || end - start >= DATA_AT_ONCE)
            break;
    }
    *ret_start = start;
    *ret_end = end;
    return 1;
}

char *hy_path_join(const char *directory, const char *name)
{
    size_t n = strlen(directory);

    return hy_asprintf("%s%s%s", directory, n && directory[n - 1] == '/' ? "" : "/", name);
}

char *hy_runtime_dir(struct hy_err *err)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    hy_cleanup_free char *path = base && *base == '/' ? hy_path_join(base, "hopyard")
                                                      : hy_asprintf("/tmp/hopyard-%u", (unsigned)getuid());
    hy_cleanup_close int dir = -1;

    if (!path) {
        hy_err_oom(err);
        return NULL;
    }
    dir = hy_private_make_dir(path, HY_OWNER_SELF, err);
    if (dir < 0 && err)
        hy_err_wrap(err, "the directory for sockets (see XDG_RUNTIME_DIR)");
    return dir < 0 ? NULL : hy_take(path);
}

bool hy_socket_is_dead(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    hy_cleanup_close int fd = HY_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    struct stat st;

    if (fd < 0 || strlen(path) >= sizeof address.sun_path || lstat(path, &st) < 0 || st.st_uid != getuid() ||
        !S_ISSOCK(st.st_mode))
        return false;
    strcpy(address.sun_path, path);
    return connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno == ECONNREFUSED;
}

static bool is_named(const char *name, const char *prefix, const char *suffix)
{
    size_t n = strlen(name), first = strlen(prefix), last = strlen(suffix);

    return n >= first + last && memcmp(name, prefix, first) == 0 && memcmp(name + n - last, suffix, last) == 0;
}

int hy_runtime_sweep(const char *prefix, const char *suffix)
{
    hy_cleanup_free char *directory = hy_runtime_dir(NULL);
    DIR *dir = directory ? opendir(directory) : NULL;
    struct dirent *entry;

    if (!dir)
        return directory ? -errno : -ENOENT;
    while ((entry = readdir(dir))) {
        hy_cleanup_free char *path = is_named(entry->d_name, prefix, suffix) ? hy_path_join(directory, entry->d_name)
                                                                             : NULL;

        if (path && hy_socket_is_dead(path))
            (void)unlink(path); /* another process may have removed it */
    }
    closedir(dir);
    return 0;
}
