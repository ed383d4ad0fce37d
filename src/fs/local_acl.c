/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ACLs of local files, always through the descriptor of the open file
 * ("/proc/self/fd/N"): the name of a file may refer to another one, or to a link,
 * from one call to the next.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "fs/acl.h"
#include "fs/posix_acl.h"

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"
#define DEPTH_MAX 256 /* each level has an open descriptor */
#define NO_ACLS                                                                                                        \
    "the file system of %s has no access control lists (ACLs); move the data to one that has, such as ext4 or XFS"

static int failed(struct hy_err *err, int code, const char *doing, const char *path)
{
    if (code == -ENOTSUP)
        return hy_err_set(err, code, NO_ACLS, path);
    if (code == -ENOENT)
        return hy_err_set(err, code, "%s does not exist", path);
    if (code == -ELOOP)
        return hy_err_set(err, code, "%s, or a directory above it, is a symbolic link; use its real path", path);
    return hy_err_sys(err, code, "cannot %s the permissions of %s", doing, path);
}

/* ---- one open file ------------------------------------------------------------------------ */

struct fd_path {
    char text[40];
};

static struct fd_path path_of(int fd)
{
    struct fd_path p;

    snprintf(p.text, sizeof p.text, "/proc/self/fd/%d", fd);
    return p;
}

/* 1: read, 0: the file has no such list, or -Exxx. */
static int read_list(int fd, bool is_default, struct hy_fs_acl *ret)
{
    hy_cleanup_free uint8_t *bytes = hy_malloc(HY_POSIX_ACL_BYTES_MAX);
    ssize_t n;
    int rc;

    if (!bytes)
        return -ENOMEM;
    n = HY_SYS(getxattr(path_of(fd).text, is_default ? DEFAULT : ACCESS, bytes, HY_POSIX_ACL_BYTES_MAX));
    if (n < 0)
        return errno == ENODATA ? 0 : -errno;
    rc = hy_posix_acl_parse(bytes, (size_t)n, is_default, ret);
    return rc < 0 ? rc : 1;
}

static int add_mode(mode_t mode, struct hy_fs_acl *ret)
{
    static const enum hy_fs_acl_kind kinds[] = {HY_FS_ACL_OTHER, HY_FS_ACL_GROUP, HY_FS_ACL_USER};
    int rc = 0;

    for (size_t i = 0; i < HY_COUNT(kinds) && rc == 0; i++, mode >>= 3)
        rc = hy_fs_acl_add(ret, kinds[i], false, NULL, mode & 7);
    return rc;
}

static int get(int fd, const struct stat *st, struct hy_fs_acl *ret)
{
    int rc = read_list(fd, false, ret);

    if (rc >= 0 && !(ret->group = hy_asprintf("%u", (unsigned)st->st_gid)))
        rc = -ENOMEM;
    if (rc == 0)
        rc = add_mode(st->st_mode, ret);
    if (rc >= 0 && S_ISDIR(st->st_mode))
        rc = read_list(fd, true, ret);
    return rc < 0 ? rc : 0;
}

static int write_list(int fd, const struct hy_fs_acl *acl, bool is_default)
{
    hy_cleanup_buf struct hy_buf b;
    int rc;

    hy_buf_init(&b, HY_POSIX_ACL_BYTES_MAX);
    rc = hy_posix_acl_format(acl, is_default, &b);
    if (rc < 0)
        return rc;
    rc = setxattr(path_of(fd).text, is_default ? DEFAULT : ACCESS, hy_buf_bytes(&b), b.len, 0);
    return HY_SYS(rc) < 0 ? -errno : 0;
}

static int remove_default(int fd)
{
    return HY_SYS(removexattr(path_of(fd).text, DEFAULT)) < 0 && errno != ENODATA ? -errno : 0;
}

/* The default list first: files created in the meantime inherit it, or are found by a walk. */
static int set(int fd, bool is_dir, const struct hy_fs_acl *acl)
{
    int rc = 0;

    if (is_dir && hy_fs_acl_has_default(acl))
        rc = write_list(fd, acl, true);
    else if (is_dir && acl->drops_default)
        rc = remove_default(fd);
    return rc < 0 ? rc : write_list(fd, acl, false);
}

/* ---- by path ----------------------------------------------------------------------------- */

int hy_fs_open_exact(const char *path)
{
    hy_cleanup_free char *copy = hy_strdup(path);
    hy_cleanup_close int at = HY_SYS(open(*path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    char *rest = NULL;

    if (!copy || at < 0)
        return copy ? -errno : -ENOMEM;
    for (char *name = strtok_r(copy, "/", &rest); name; name = strtok_r(NULL, "/", &rest)) {
        int fd = HY_SYS(openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
        struct stat st;

        if (fd < 0)
            return -errno;
        close(at);
        at = fd;
        if (HY_SYS(fstat(at, &st)) < 0)
            return -errno;
        if (S_ISLNK(st.st_mode))
            return -ELOOP;
    }
    return hy_take_fd(at);
}

static int open_url(const char *url, struct stat *ret, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    hy_cleanup_close int fd = -1;
    int rc = hy_fs_local_path(url, &path, err);

    if (rc < 0)
        return rc;
    fd = hy_fs_open_exact(path);
    if (fd < 0)
        return failed(err, fd, "read", url);
    if (HY_SYS(fstat(fd, ret)) < 0)
        return failed(err, -errno, "read", url);
    if (!S_ISREG(ret->st_mode) && !S_ISDIR(ret->st_mode))
        return hy_err_set(err, -EINVAL, "%s is neither a file nor a directory", url);
    return hy_take_fd(fd);
}

int hy_fs_local_acl_get(const char *url, struct hy_fs_acl *ret, struct hy_err *err)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};
    struct stat st;
    hy_cleanup_close int fd = open_url(url, &st, err);
    int rc;

    if (fd < 0)
        return fd;
    rc = get(fd, &st, &acl);
    if (rc < 0)
        return failed(err, rc, "read", url);
    *ret = acl;
    acl = (struct hy_fs_acl){0};
    return 0;
}

int hy_fs_local_acl_set(const char *url, const struct hy_fs_acl *acl, struct hy_err *err)
{
    struct stat st;
    hy_cleanup_close int fd = open_url(url, &st, err);
    int rc;

    if (fd < 0)
        return fd;
    rc = set(fd, S_ISDIR(st.st_mode), acl);
    return rc < 0 ? failed(err, rc, "change", url) : 0;
}

/* ---- trees ---------------------------------------------------------------------------------- */

struct tree {
    const char *url;
    uid_t owner; /* of the top */
    hy_fs_acl_visit *visit;
    void *arg;
    struct hy_buf path; /* relative to the top */
};

static int tree_failed(struct tree *t, int rc, const char *doing, struct hy_err *err)
{
    hy_cleanup_free char *path = t->path.len ? hy_fs_join(t->url, hy_buf_cstr(&t->path)) : hy_strdup(t->url);

    return path ? failed(err, rc, doing, path) : hy_err_oom(err);
}

static int visit_open(struct tree *t, int fd, const struct stat *st, struct hy_err *err)
{
    struct hy_fs_acl_node node = {.path = t->path.len ? hy_buf_cstr(&t->path) : "",
                                  .is_dir = S_ISDIR(st->st_mode),
                                  .is_executable = (st->st_mode & 0100) != 0,
                                  .is_foreign = st->st_uid != t->owner};
    int rc = node.path ? get(fd, st, &node.acl) : -ENOMEM;

    if (rc < 0)
        tree_failed(t, rc, "read", err);
    else if ((rc = t->visit(t->arg, &node, err)) > 0 && (rc = set(fd, node.is_dir, &node.acl)) < 0)
        tree_failed(t, rc, "change", err);
    hy_fs_acl_done(&node.acl);
    return rc;
}

static int visit_directory(struct tree *t, int fd, bool is_foreign, int depth, struct hy_err *err);

/* One name of an open directory. */
static int visit_name(struct tree *t, int directory, const char *name, int depth, struct hy_err *err)
{
    hy_cleanup_close int fd = HY_SYS(openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
    const size_t length = t->path.len;
    struct stat st;
    int rc;

    if (fd < 0 && errno == ENOENT) /* removed since it was listed */
        return 0;
    if (hy_buf_printf(&t->path, "%s%s", length ? "/" : "", name) < 0)
        return hy_err_set(err, -ENAMETOOLONG, "a path is longer than %u bytes below %s", HY_FS_PATH_MAX, t->url);
    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0)
        return tree_failed(t, -errno, "read", err);
    rc = S_ISDIR(st.st_mode) || S_ISREG(st.st_mode) ? visit_open(t, fd, &st, err) : 0;
    if (rc == 0 && S_ISDIR(st.st_mode))
        rc = visit_directory(t, fd, st.st_uid != t->owner, depth + 1, err);
    hy_buf_cut(&t->path, length);
    return rc;
}

static int visit_directory(struct tree *t, int fd, bool is_foreign, int depth, struct hy_err *err)
{
    hy_cleanup_close int readable = HY_SYS(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *e;
    int rc = 0;
    DIR *d;

    if (depth > DEPTH_MAX)
        return hy_err_set(err, -ENAMETOOLONG, "directories are nested more than %d levels deep below %s", DEPTH_MAX,
                          t->url);
    if (readable < 0 && errno == EACCES && is_foreign) /* another user's directory: its contents are skipped, too */
        return 0;
    d = readable < 0 ? NULL : fdopendir(readable);
    if (!d)
        return tree_failed(t, -errno, "read", err);
    hy_take_fd(readable); /* of the stream */
    while (rc == 0 && (errno = 0, e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = visit_name(t, dirfd(d), e->d_name, depth, err);
    if (rc == 0 && errno)
        rc = tree_failed(t, -errno, "read", err);
    closedir(d);
    return rc;
}

int hy_fs_local_acl_walk(const char *url, hy_fs_acl_visit *visit, void *arg, struct hy_err *err)
{
    struct stat st;
    hy_cleanup_close int fd = open_url(url, &st, err);
    struct tree t = {.url = url, .visit = visit, .arg = arg};
    int rc;

    if (fd < 0)
        return fd;
    t.owner = st.st_uid;
    hy_buf_init(&t.path, HY_FS_PATH_MAX);
    rc = visit_open(&t, fd, &st, err);
    if (rc == 0 && S_ISDIR(st.st_mode))
        rc = visit_directory(&t, fd, false, 1, err);
    hy_buf_done(&t.path);
    return rc;
}
