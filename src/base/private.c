/* SPDX-License-Identifier: Apache-2.0 */
#include "base/private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#define OTHERS_WRITE (S_IWGRP | S_IWOTH)
#define OTHERS (S_IRWXG | S_IRWXO)
#define TRIES 10

static void log_note(const char *text)
{
    hy_warn("%s", text);
}

static void (*send_note)(const char *text) = log_note;

void hy_private_notes_to(void (*send)(const char *text))
{
    send_note = send;
}

/* ---- the rules --------------------------------------------------------------------- */

static int refuse_link(const char *path, struct hy_err *err)
{
    return hy_err_set(err, -EPERM,
                      "'%s' is a symbolic link and is not followed: remove it, or replace it by its target", path);
}

static int check_owner(const struct stat *st, const char *path, enum hy_owner owner, struct hy_err *err)
{
    if (st->st_uid == geteuid() || (owner == HY_OWNER_ANY_FOR_ROOT && geteuid() == 0))
        return 0;
    return hy_err_set(err, -EPERM,
                      "'%s' belongs to another user (user ID %u) and is not used, since that user could run "
                      "commands as you: remove it, or use another directory",
                      path, (unsigned)st->st_uid);
}

static int check_mode(const struct stat *st, const char *path, struct hy_err *err)
{
    if (!(st->st_mode & OTHERS_WRITE))
        return 0;
    return hy_err_set(err, -EPERM,
                      "other users can write to '%s' (mode %04o) and may have changed its contents: check "
                      "them, then run: chmod go-w '%s'",
                      path, (unsigned)st->st_mode & 07777, path);
}

static int check(const struct stat *st, const char *path, enum hy_owner owner, struct hy_err *err)
{
    int rc;

    if (S_ISLNK(st->st_mode))
        return refuse_link(path, err);
    rc = check_owner(st, path, owner, err);
    return rc < 0 ? rc : check_mode(st, path, err);
}

/* 1 when others could read it until now. Uses /proc, since the descriptor may be O_PATH. */
static int narrow(int fd, const struct stat *st, const char *path, struct hy_err *err)
{
    char self[40];

    if (!(st->st_mode & OTHERS))
        return 0;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (HY_SYS(chmod(self, st->st_mode & 07700)) == 0)
        return 1;
    if (errno == EROFS) /* read-only: its contents cannot change */
        return 0;
    return hy_err_sys(err, -errno, "other users can read '%s', and its mode cannot be changed", path);
}

/* ---- directories ------------------------------------------------------------------- */

static int dir_at(int above, const char *name, const char *path, enum hy_owner owner, struct hy_err *err)
{
    /* Without O_DIRECTORY a link is opened as such, and can be distinguished from a file. */
    hy_cleanup_close int fd = HY_SYS(openat(above, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
    char note[700];
    struct stat st;
    int rc;

    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0)
        return hy_err_sys(err, -errno, "cannot use the directory '%s'", path);
    if (!S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
        return hy_err_set(err, -ENOTDIR, "'%s' is not a directory; remove it", path);
    rc = check(&st, path, owner, err);
    if (rc == 0)
        rc = narrow(fd, &st, path, err);
    if (rc < 0)
        return rc;
    if (rc > 0) {
        snprintf(note, sizeof note, "other users could read '%s' (mode %04o); now only its owner can (mode %04o)", path,
                 (unsigned)st.st_mode & 07777, (unsigned)st.st_mode & 07700);
        send_note(note);
    }
    return hy_take_fd(fd);
}

int hy_private_dir(const char *path, enum hy_owner owner, struct hy_err *err)
{
    return dir_at(AT_FDCWD, path, path, owner, err);
}

int hy_private_make_dir(const char *path, enum hy_owner owner, struct hy_err *err)
{
    int rc = hy_mkdirs(path, 0700);

    /* What exists already, including a dangling link, is left to the check. */
    if (rc < 0 && rc != -ENOTDIR && rc != -ENOENT)
        return hy_err_sys(err, rc, "cannot make the directory '%s'", path);
    return hy_private_dir(path, owner, err);
}

/* ---- files ---------------------------------------------------------------------------- */

static int scan_entry(int dir, const char *directory, const char *name, struct hy_err *err)
{
    hy_cleanup_close int fd = -1;
    hy_cleanup_free char *path = NULL;
    struct stat st;
    int rc;

    if (HY_SYS(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW)) < 0)
        return errno == ENOENT ? 0 : hy_err_sys(err, -errno, "cannot examine '%s' in '%s'", name, directory);
    if (!S_ISLNK(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & OTHERS))
        return 0; /* the usual case */
    path = hy_path_join(directory, name);
    if (!path)
        return hy_err_oom(err);
    fd = HY_SYS(openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0) /* of the opened file: the name may refer to another one by now */
        return errno == ENOENT ? 0 : hy_err_sys(err, -errno, "cannot examine '%s'", path);
    rc = check(&st, path, HY_OWNER_ANY_FOR_ROOT, err);
    if (rc == 0)
        rc = narrow(fd, &st, path, err);
    return rc < 0 ? rc : 0;
}

int hy_private_scan(int dir, const char *path, struct hy_err *err)
{
    hy_cleanup_close int fd = HY_SYS(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int rc = 0;

    if (!entries)
        return hy_err_sys(err, -errno, "cannot read the directory '%s'", path);
    fd = -1; /* closedir closes it */
    while (rc == 0 && (entry = readdir(entries)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = scan_entry(dir, path, entry->d_name, err);
    closedir(entries);
    return rc;
}

int hy_private_check(int fd, const char *path, struct hy_err *err)
{
    struct stat st;
    int rc;

    if (HY_SYS(fstat(fd, &st)) < 0)
        return hy_err_sys(err, -errno, "cannot examine '%s'", path);
    rc = check(&st, path, HY_OWNER_ANY_FOR_ROOT, err);
    if (rc < 0)
        return rc;
    if (!S_ISREG(st.st_mode))
        return hy_err_set(err, -EPERM, "'%s' is not a regular file; remove it", path);
    if (st.st_nlink > 1)
        return hy_err_set(err, -EPERM,
                          "'%s' is one of %llu hard links to the same file and is not used: remove it, or "
                          "replace it by a copy",
                          path, (unsigned long long)st.st_nlink);
    rc = narrow(fd, &st, path, err);
    return rc < 0 ? rc : 0;
}

/* What root makes in a user's directory must stay accessible to that user. */
static int give_to_owner(int fd, int dir)
{
    struct stat st;

    if (geteuid() != 0)
        return 0;
    if (HY_SYS(fstat(dir, &st)) < 0 || (st.st_uid != 0 && HY_SYS(fchown(fd, st.st_uid, st.st_gid)) < 0))
        return -errno;
    return 0;
}

int hy_private_give(int fd, const char *path)
{
    const char *slash = strrchr(path, '/');
    hy_cleanup_free char *above = geteuid() == 0 && slash ? hy_strndup(path, (size_t)(slash - path)) : NULL;
    hy_cleanup_close int dir = above ? HY_SYS(open(above, O_PATH | O_DIRECTORY | O_CLOEXEC)) : -1;

    if (geteuid() != 0 || !slash)
        return 0;
    return dir < 0 ? (above ? -errno : -ENOMEM) : give_to_owner(fd, dir);
}

/* Opens what mkdirat has made, and not a replacement by another user. */
static int give_dir(int above, const char *name)
{
    hy_cleanup_close int fd = HY_SYS(openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat st;

    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0)
        return -errno;
    return st.st_uid == geteuid() ? give_to_owner(fd, above) : -EPERM;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

int hy_private_make_dir_at(int above, const char *path, struct hy_err *err)
{
    const char *name = last_part(path);
    int rc = HY_SYS(mkdirat(above, name, 0700)) < 0 ? -errno : 0;

    if (rc < 0 && rc != -EEXIST)
        return hy_err_sys(err, rc, "cannot make the directory '%s'", path);
    rc = rc == 0 && geteuid() == 0 ? give_dir(above, name) : 0;
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot give '%s' to the owner of its directory", path);
    return dir_at(above, name, path, HY_OWNER_ANY_FOR_ROOT, err);
}

int hy_private_open_at(int dir, const char *name, int flags, bool *ret_made)
{
    int fd = -1;

    /* O_NONBLOCK: a FIFO must not block the open before it is refused. */
    flags |= O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    *ret_made = false;
    if (!(flags & O_CREAT))
        return HY_SYS(openat(dir, name, flags));
    for (int i = 0; i < TRIES && fd < 0; i++) { /* other processes may make and remove it meanwhile */
        fd = HY_SYS(openat(dir, name, flags | O_EXCL, 0600));
        *ret_made = fd >= 0;
        if (fd >= 0 || errno != EEXIST || (flags & O_EXCL))
            return fd;
        fd = HY_SYS(openat(dir, name, flags & ~O_CREAT));
        if (fd < 0 && errno != ENOENT)
            return fd;
    }
    return fd;
}

int hy_private_open(int dir, const char *path, int flags, struct hy_err *err)
{
    bool made;
    hy_cleanup_close int fd = hy_private_open_at(dir, last_part(path), flags, &made);
    int rc;

    if (fd < 0 && errno == ELOOP)
        return refuse_link(path, err);
    if (fd < 0)
        return hy_err_sys(err, -errno, "cannot open '%s'", path);
    rc = hy_private_check(fd, path, err);
    if (rc == 0 && made) {
        rc = give_to_owner(fd, dir);
        if (rc < 0)
            hy_err_sys(err, rc, "cannot give '%s' to the owner of its directory", path);
    }
    return rc < 0 ? rc : hy_take_fd(fd);
}

int hy_private_write(int dir, const char *path, const void *bytes, size_t n, struct hy_err *err)
{
    hy_cleanup_free char *temporary = hy_asprintf("%s.%d.tmp", path, (int)getpid());
    hy_cleanup_close int fd = -1;
    int rc;

    if (!temporary)
        return hy_err_oom(err);
    unlinkat(dir, last_part(temporary), 0); /* of an earlier process with our PID */
    fd = hy_private_open(dir, temporary, O_WRONLY | O_CREAT | O_EXCL, err);
    if (fd < 0)
        return fd;
    rc = hy_write_all(fd, bytes, n);
    if (rc == 0 && HY_SYS(fsync(fd)) < 0)
        rc = -errno;
    if (rc == 0 && HY_SYS(renameat(dir, last_part(temporary), dir, last_part(path))) < 0)
        rc = -errno;
    if (rc == 0)
        return 0;
    unlinkat(dir, last_part(temporary), 0);
    return hy_err_sys(err, rc, "cannot write '%s'", path);
}

int hy_private_read(int dir, const char *path, struct hy_buf *b, struct hy_err *err)
{
    hy_cleanup_close int fd = hy_private_open(dir, path, O_RDONLY, err);
    int rc = fd < 0 ? fd : hy_read_all(fd, b);

    return fd >= 0 && rc < 0 ? hy_err_sys(err, rc, "cannot read '%s'", path) : rc;
}
