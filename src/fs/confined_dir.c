/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/confined_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

    *d = (struct hy_fs_confined_dir){.url = url, .top = -1, .directory = -1};
    if (!hy_url_is_local(url))
        return 0;
    rc = hy_fs_local_path(url, &path, err);
    if (rc < 0)
        return rc;
    d->top = HY_SYS(open(path, OPEN_DIR | (is_ours ? O_NOFOLLOW : 0)));
    return d->top < 0 ? hy_err_sys(err, -errno, "cannot write to %s", url) : 0;
}

static void close_directory(struct hy_fs_confined_dir *d)
{
    hy_close_at(&d->directory);
    d->directory = -1;
    free(hy_take(d->path));
}

void hy_fs_confined_dir_done(struct hy_fs_confined_dir *d)
{
    close_directory(d);
    hy_close_at(&d->top);
    d->top = -1;
}

/* ---- directories ----------------------------------------------------------------------- */

static int step(const struct hy_fs_confined_dir *d, int from, const char *path, size_t begin, size_t end,
                struct hy_err *err)
{
    hy_cleanup_free char *name = hy_strndup(path + begin, end - begin);
    int fd = name ? HY_SYS(openat(from, name, OPEN_DIR | O_NOFOLLOW)) : -1;

    if (!name)
        return hy_err_oom(err);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return hy_err_set(err, -ENOTDIR, "%s/%.*s is a link or a file, not a directory; nothing is written through it",
                          d->url, (int)end, path);
    return fd < 0 ? hy_err_sys(err, -errno, "cannot write to %s/%.*s", d->url, (int)end, path) : fd;
}

/* Opens it as d->directory. */
static int enter(struct hy_fs_confined_dir *d, const char *path, struct hy_err *err)
{
    hy_cleanup_free char *copy = hy_strdup(path);
    hy_cleanup_close int at = -1;

    if (!copy)
        return hy_err_oom(err);
    close_directory(d);
    for (size_t begin = 0; path[begin];) {
        const size_t end = begin + strcspn(path + begin, "/");
        int fd = step(d, at < 0 ? d->top : at, path, begin, end, err);

        if (fd < 0)
            return fd;
        hy_close_at(&at);
        at = fd;
        begin = end + (path[end] == '/');
    }
    d->directory = hy_take_fd(at);
    d->path = hy_take(copy);
    return 0;
}

int hy_fs_confined_dir_path(struct hy_fs_confined_dir *d, const char *path, char **ret_url, struct hy_err *err)
{
    int rc = d->top < 0 || (d->path && strcmp(d->path, path) == 0) ? 0 : enter(d, path, err);

    if (rc < 0)
        return rc;
    if (d->top < 0)
        *ret_url = *path ? hy_fs_join(d->url, path) : hy_strdup(d->url);
    else
        *ret_url = hy_asprintf("/proc/self/fd/%d", d->directory < 0 ? d->top : d->directory);
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

/* ---- errors ------------------------------------------------------------------------ */

/* False when the message does not contain the descriptor path. */
static bool explain_once(const struct hy_fs_confined_dir *d, struct hy_err *err)
{
    const struct hy_err raw = *err;
    char alias[40];
    const int n = snprintf(alias, sizeof alias, "/proc/self/fd/%d", d->directory < 0 ? d->top : d->directory);
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
