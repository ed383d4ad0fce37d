/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "fs/fs.h"

#define OPEN_DIR (O_PATH | O_DIRECTORY | O_CLOEXEC)

int hy_fs_confined_dir_open(struct hy_fs_confined_dir *d, const char *url, bool is_ours, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    int rc;

    *d = (struct hy_fs_confined_dir){.url = url, .top = -1, .last = -1};
    if (!hy_url_is_local(url))
        return 0;
    rc = hy_fs_local_path(url, &path, err);
    if (rc < 0)
        return rc;
    d->top = HY_SYS(open(path, OPEN_DIR | (is_ours ? O_NOFOLLOW : 0)));
    return d->top < 0 ? hy_err_sys(err, -errno, "cannot open %s", url) : 0;
}

void hy_fs_confined_dir_take(struct hy_fs_confined_dir *d, const char *url, int top)
{
    *d = (struct hy_fs_confined_dir){.url = url, .top = top, .last = -1};
}

static void close_last(struct hy_fs_confined_dir *d)
{
    hy_close_at(&d->last);
    d->last = -1;
    free(hy_take(d->path));
}

void hy_fs_confined_dir_done(struct hy_fs_confined_dir *d)
{
    close_last(d);
    hy_close_at(&d->top);
    d->top = -1;
}

/* ---- directories ----------------------------------------------------------------------- */

/* The length of the shortest prefix of `path` that is not a directory. */
static size_t offending_length(const struct hy_fs_confined_dir *d, const char *path)
{
    hy_cleanup_free char *part = hy_strdup(path);

    for (size_t n = strcspn(path, "/"); part && path[n]; n += 1 + strcspn(path + n + 1, "/")) {
        hy_cleanup_close int fd = (part[n] = '\0', hy_open_below(d->top, part, OPEN_DIR));

        if (fd < 0)
            return n;
        part[n] = '/';
    }
    return strlen(path);
}

static int cannot_open(const struct hy_fs_confined_dir *d, const char *path, int code, struct hy_err *err)
{
    if (code == -ENOTDIR || code == -ELOOP)
        return hy_err_set(err, -ENOTDIR, "%s/%.*s is a link or a file, not a directory; it is not followed", d->url,
                          (int)offending_length(d, path), path);
    if (code == -EINVAL)
        return hy_err_set(err, code, "'%s' is not a path below %s", path, d->url);
    return code == -ENOENT ? hy_err_set(err, code, "%s/%s does not exist", d->url, path)
                           : hy_err_sys(err, code, "cannot open %s/%s", d->url, path);
}

/* Opens it as d->last; "" is the top. */
static int enter(struct hy_fs_confined_dir *d, const char *path, int flags, struct hy_err *err)
{
    hy_cleanup_free char *copy = hy_strdup(path);
    int fd;

    if (!copy)
        return hy_err_oom(err);
    close_last(d);
    fd = *path ? hy_open_below(d->top, path, flags) : -1;
    if (*path && fd < 0)
        return cannot_open(d, path, fd, err);
    d->last = fd;
    d->path = hy_take(copy);
    return 0;
}

static char *descriptor_path(const struct hy_fs_confined_dir *d)
{
    return hy_asprintf("/proc/self/fd/%d", d->last < 0 ? d->top : d->last);
}

static bool is_readable_kind(int fd)
{
    struct stat st;

    return HY_SYS(fstat(fd, &st)) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
}

int hy_fs_confined_dir_path(struct hy_fs_confined_dir *d, const char *path, char **ret_url, struct hy_err *err)
{
    int rc = d->top < 0 || (d->path && strcmp(d->path, path) == 0) ? 0 : enter(d, path, OPEN_DIR, err);

    if (rc < 0)
        return rc;
    if (d->top < 0)
        *ret_url = *path ? hy_fs_join(d->url, path) : hy_strdup(d->url);
    else
        *ret_url = descriptor_path(d);
    return *ret_url ? 0 : hy_err_oom(err);
}

int hy_fs_confined_dir_entry(struct hy_fs_confined_dir *d, const char *path, char **ret_url, struct hy_err *err)
{
    const char *slash = strrchr(path, '/');
    hy_cleanup_free char *above = hy_strndup(path, slash ? (size_t)(slash - path) : 0), *directory = NULL;
    int rc = above ? hy_fs_confined_dir_path(d, above, &directory, err) : hy_err_oom(err);

    if (rc < 0)
        return rc;
    *ret_url = hy_fs_join(directory, slash ? slash + 1 : path);
    return *ret_url ? 0 : hy_err_oom(err);
}

int hy_fs_confined_dir_existing(struct hy_fs_confined_dir *d, const char *path, char **ret_url, struct hy_err *err)
{
    int rc = d->top < 0 || !*path ? hy_fs_confined_dir_path(d, path, ret_url, err) : enter(d, path, O_PATH, err);

    if (rc < 0 || d->top < 0 || !*path)
        return rc;
    if (!is_readable_kind(d->last))
        return hy_err_set(err, -EPERM, "%s/%s is neither a file nor a directory", d->url, path);
    *ret_url = descriptor_path(d);
    return *ret_url ? 0 : hy_err_oom(err);
}

/* ---- errors ------------------------------------------------------------------------ */

/* False when the message does not contain the descriptor path. */
static bool explain_once(const struct hy_fs_confined_dir *d, struct hy_err *err)
{
    const struct hy_err raw = *err;
    char alias[40];
    const int n = snprintf(alias, sizeof alias, "/proc/self/fd/%d", d->last < 0 ? d->top : d->last);
    const char *found = strstr(raw.text, alias);

    if (!found || (found[n] >= '0' && found[n] <= '9'))
        return false;
    hy_err_set(err, raw.code, "%.*s%s%s%s%s", (int)(found - raw.text), raw.text, d->url, d->path && *d->path ? "/" : "",
               d->path ? d->path : "", found + n);
    return true;
}

void hy_fs_confined_dir_explain(const struct hy_fs_confined_dir *d, struct hy_err *err)
{
    if (d->top >= 0 && err && explain_once(d, err))
        (void)explain_once(d, err); /* the message of a rename has two paths */
}
