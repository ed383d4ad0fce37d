/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resolves Shared/OWNER::NAME/rest to the real path.
 *
 * The owner of a data set can replace its directories by links at any time, and a
 * receiver that writes there would write to its own files. So no link is followed,
 * neither to the data set nor in it, and its top must belong to the same user as
 * when it was accepted. HDFS has no links.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "fs/fs.h"
#include "share/entries.h"
#include "share/names.h"

/* ---- the top of a data set --------------------------------------------------------------------- */

/* The first directory on the way that this user cannot pass through; "" when it is not known. */
static void find_blocking(const char *path, char *ret, size_t size)
{
    snprintf(ret, size, "%s", path);
    for (char *slash = ret; (slash = strchr(slash + 1, '/')); *slash = '/') {
        *slash = '\0';
        if (faccessat(AT_FDCWD, ret, X_OK, AT_EACCESS) < 0)
            return;
    }
    *ret = '\0';
}

static int explain_open(const char *path, int rc, struct hy_err *err)
{
    char blocking[HY_SHARE_PATH_MAX + 1];

    if (rc == -ENOENT)
        return hy_err_set(err, rc, "%s does not exist", path);
    if (rc == -ELOOP)
        return hy_err_set(err, rc, "%s, or a directory above it, is now a symbolic link, which is not followed", path);
    find_blocking(path, blocking, sizeof blocking);
    if (rc == -EACCES && *blocking)
        return hy_err_set(err, rc,
                          "you cannot pass through %s; the share was revoked, or its owner has to run: setfacl -m "
                          "u:%u:x %s",
                          blocking, (unsigned)geteuid(), blocking);
    return hy_err_sys(err, rc, "cannot open %s", path);
}

/* A descriptor (O_PATH). */
static int open_top(const char *path, struct stat *ret, struct hy_err *err)
{
    hy_cleanup_close int fd = hy_fs_open_exact(path);

    if (fd < 0)
        return explain_open(path, fd, err);
    if (HY_SYS(fstat(fd, ret)) < 0)
        return hy_err_sys(err, -errno, "cannot examine %s", path);
    if (!S_ISDIR(ret->st_mode))
        return hy_err_set(err, -ENOTDIR, "%s is not a directory", path);
    return hy_take_fd(fd);
}

static int check_owner(const struct hy_share_entry *e, const char *owner, struct hy_err *err)
{
    if (strcmp(e->owner, owner) == 0)
        return 0;
    return hy_err_set(err, -EPERM,
                      "%s belongs to user %s now, and to %s when it was accepted; if that is right, run `hopyard "
                      "share accept` again",
                      e->target, owner, e->owner);
}

static int open_checked(const struct hy_share_entry *e, struct hy_err *err)
{
    struct stat st;
    hy_cleanup_close int fd = open_top(e->target, &st, err);
    char owner[16];
    int rc;

    if (fd < 0)
        return fd;
    snprintf(owner, sizeof owner, "%u", (unsigned)st.st_uid);
    rc = check_owner(e, owner, err);
    return rc < 0 ? rc : hy_take_fd(fd);
}

int hy_share_check(const struct hy_share_entry *e, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    hy_cleanup_close int fd = -1;
    int rc;

    if (hy_url_is_local(e->target)) {
        fd = open_checked(e, err);
        return fd < 0 ? fd : 0;
    }
    rc = hy_fs_stat(e->target, &info, err);
    return rc < 0 ? rc : check_owner(e, info.owner, err);
}

static int find_local(struct hy_share_entry *e, struct hy_err *err)
{
    struct stat st;
    hy_cleanup_close int fd = open_top(e->target, &st, err);

    if (fd < 0)
        return fd;
    if (HY_SYS(faccessat(fd, ".", R_OK | X_OK, AT_EACCESS)) < 0)
        return hy_err_sys(err, -errno, "cannot read %s; it is not shared with you", e->target);
    e->owner = hy_asprintf("%u", (unsigned)st.st_uid);
    return e->owner ? 0 : hy_err_oom(err);
}

int hy_share_find_target(struct hy_share_entry *e, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc;

    if (hy_url_is_local(e->target))
        return find_local(e, err);
    rc = hy_fs_stat(e->target, &info, err);
    if (rc == 0 && !info.is_dir)
        rc = hy_err_set(err, -ENOTDIR, "%s is not a directory", e->target);
    if (rc == 0)
        rc = hy_fs_access(e->target, R_OK | X_OK, err);
    if (rc == 0)
        e->owner = hy_take(info.owner);
    return rc;
}

/* ---- paths -------------------------------------------------------------------------------------- */

/* Finds "Shared/OWNER::NAME" in a path: the length of the part before it, and of the part up to its end. */
static bool find_entry(const char *url, size_t *ret_project, size_t *ret_end, char **ret_name)
{
    static const char shared[] = HY_SHARED "/";

    for (const char *at = url; (at = strstr(at, shared)); at++) {
        const char *name = at + sizeof shared - 1;
        hy_cleanup_free char *copy = NULL;

        if (at != url && at[-1] != '/')
            continue;
        name += strspn(name, "/");
        copy = hy_strndup(name, strcspn(name, "/"));
        if (!copy || hy_share_check_name(copy, NULL) < 0)
            continue;
        *ret_project = (size_t)(at - url);
        *ret_end = (size_t)(name - url) + strlen(copy);
        *ret_name = hy_take(copy);
        return true;
    }
    return false;
}

/* Appends `rest`, without empty names and ".". */
static int append_rest(struct hy_buf *b, const char *rest, struct hy_err *err)
{
    int rc = 0;

    for (size_t n; rc == 0 && *(rest += strspn(rest, "/")); rest += n) {
        n = strcspn(rest, "/");
        if (n == 2 && memcmp(rest, "..", 2) == 0)
            return hy_err_set(err, -EINVAL, "'..' cannot be used in a path of a share");
        if (n != 1 || *rest != '.')
            rc = hy_buf_printf(b, "/%.*s", (int)n, rest);
    }
    return rc < 0 || !hy_buf_cstr(b) ? hy_err_set(err, -ENAMETOOLONG, "the path is too long") : 0;
}

/* No name of `rest` below the top is a link or hidden. A missing one ends the check: it may be created. */
static int check_rest(int top, const char *rest, struct hy_err *err)
{
    hy_cleanup_free char *copy = hy_strdup(rest);
    hy_cleanup_close int at = HY_SYS(fcntl(top, F_DUPFD_CLOEXEC, 0));
    char *state = NULL;

    if (!copy || at < 0)
        return copy ? hy_err_sys(err, -errno, "cannot open the share") : hy_err_oom(err);
    for (char *name = strtok_r(copy, "/", &state); name; name = strtok_r(NULL, "/", &state)) {
        int fd = HY_SYS(openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
        struct stat st;

        if (fd < 0) /* the operation itself will fail */
            return 0;
        close(at);
        at = fd;
        if (HY_SYS(fstat(at, &st)) < 0)
            return hy_err_sys(err, -errno, "cannot examine '%s'", rest);
        if (S_ISLNK(st.st_mode))
            return hy_err_set(err, -ELOOP, "'%s' in '%s' is a symbolic link; links of shares are not followed", name,
                              rest + 1);
    }
    return 0;
}

static int check_hidden(const char *rest, struct hy_err *err)
{
    hy_cleanup_free char *copy = hy_strdup(rest);
    char *state = NULL;

    if (!copy)
        return hy_err_oom(err);
    for (char *name = strtok_r(copy, "/", &state); name; name = strtok_r(NULL, "/", &state))
        if (hy_share_is_hidden(name))
            return hy_err_set(err, -EPERM, "'%s' is hopyard's own data, which is never shared", name);
    return 0;
}

static int resolve(const struct hy_share_entry *e, const char *rest, char **ret, struct hy_err *err)
{
    hy_cleanup_close int top = -1;
    hy_cleanup_buf struct hy_buf b;
    const size_t length = strlen(e->target);
    int rc;

    hy_buf_init(&b, HY_FS_PATH_MAX);
    rc = hy_buf_append_str(&b, e->target);
    rc = rc < 0 ? hy_err_oom(err) : append_rest(&b, rest, err);
    if (rc == 0)
        rc = check_hidden(hy_buf_cstr(&b) + length, err);
    if (rc == 0 && hy_url_is_local(e->target)) {
        top = open_checked(e, err);
        rc = top < 0 ? top : check_rest(top, hy_buf_cstr(&b) + length, err);
    }
    if (rc < 0)
        return rc;
    *ret = hy_strdup(hy_buf_cstr(&b));
    return !*ret ? hy_err_oom(err) : b.len == length ? 2 : 1;
}

int hy_share_resolve(const char *url, char **ret, struct hy_err *err)
{
    hy_cleanup_share_entry struct hy_share_entry e = {0};
    hy_cleanup_free char *name = NULL, *project = NULL;
    struct hy_err why = {0};
    size_t before, end;
    int rc;

    if (!find_entry(url, &before, &end, &name))
        return 0;
    project = before ? hy_strndup(url, before) : hy_strdup(".");
    rc = project ? hy_share_entry_read(project, name, &e, &why) : hy_err_oom(&why);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return 0;
    if (rc == 0)
        rc = resolve(&e, url + end, ret, &why);
    if (rc < 0 && why.code == 0)
        hy_err_oom(&why);
    if (rc < 0 && err)
        *err = why;
    return rc;
}

int hy_share_open(const char *url, const char *name, char **ret_target, int *ret_dir, struct hy_err *err)
{
    hy_cleanup_share_entry struct hy_share_entry e = {0};
    int dir = -1, rc = hy_share_check_name(name, err);

    if (rc == 0)
        rc = hy_share_entry_read(url, name, &e, err);
    if (rc < 0)
        return rc;
    if (hy_url_is_local(e.target)) {
        dir = open_checked(&e, err);
        if (dir == -ENOENT || dir == -ENOTDIR) /* the entry exists */
            err->code = dir = -ESTALE;
        if (dir < 0)
            return dir;
    }
    *ret_dir = dir;
    *ret_target = hy_take(e.target);
    return 0;
}
