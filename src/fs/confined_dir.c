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

#define FOLDER (O_PATH | O_DIRECTORY | O_CLOEXEC)

static int no_memory(struct hy_err *err)
{
    return hy_err_oom(err);
}

int hy_fs_confined_dir_open(struct hy_fs_confined_dir *b, const char *url, bool is_ours, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    int rc;

    *b = (struct hy_fs_confined_dir){.url = url, .top = -1, .folder = -1};
    if (!hy_url_is_local(url))
        return 0;
    rc = hy_fs_local_path(url, &path, err);
    if (rc < 0)
        return rc;
    b->top = HY_SYS(open(path, FOLDER | (is_ours ? O_NOFOLLOW : 0)));
    return b->top < 0 ? hy_err_sys(err, -errno, "cannot write to %s", url) : 0;
}

static void leave(struct hy_fs_confined_dir *b)
{
    hy_close_at(&b->folder);
    b->folder = -1;
    free(hy_take(b->path));
}

void hy_fs_confined_dir_done(struct hy_fs_confined_dir *b)
{
    leave(b);
    hy_close_at(&b->top);
    b->top = -1;
}

/* ---- folders ----------------------------------------------------------------------- */

static int step(const struct hy_fs_confined_dir *b, int from, const char *path, size_t begin, size_t end, struct hy_err *err)
{
    hy_cleanup_free char *name = hy_strndup(path + begin, end - begin);
    int fd = name ? HY_SYS(openat(from, name, FOLDER | O_NOFOLLOW)) : -1;

    if (!name)
        return no_memory(err);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return hy_err_set(err, -ENOTDIR, "%s/%.*s is a link or a file, not a directory; nothing is written through it", b->url, (int)end, path);
    return fd < 0 ? hy_err_sys(err, -errno, "cannot write to %s/%.*s", b->url, (int)end, path) : fd;
}

/* Makes it b->folder. */
static int enter(struct hy_fs_confined_dir *b, const char *path, struct hy_err *err)
{
    hy_cleanup_free char *copy = hy_strdup(path);
    hy_cleanup_close int at = -1;

    if (!copy)
        return no_memory(err);
    leave(b);
    for (size_t begin = 0; path[begin];) {
        const size_t end = begin + strcspn(path + begin, "/");
        int fd = step(b, at < 0 ? b->top : at, path, begin, end, err);

        if (fd < 0)
            return fd;
        hy_close_at(&at);
        at = fd;
        begin = end + (path[end] == '/');
    }
    b->folder = hy_take_fd(at);
    b->path = hy_take(copy);
    return 0;
}

int hy_fs_confined_dir_path(struct hy_fs_confined_dir *b, const char *path, char **ret_url, struct hy_err *err)
{
    int rc = b->top < 0 || (b->path && strcmp(b->path, path) == 0) ? 0 : enter(b, path, err);

    if (rc < 0)
        return rc;
    if (b->top < 0)
        *ret_url = *path ? hy_fs_join(b->url, path) : hy_strdup(b->url);
    else
        *ret_url = hy_asprintf("/proc/self/fd/%d", b->folder < 0 ? b->top : b->folder);
    return *ret_url ? 0 : no_memory(err);
}

int hy_fs_confined_dir_entry(struct hy_fs_confined_dir *b, const char *path, char **ret_url, struct hy_err *err)
{
    const char *slash = strrchr(path, '/');
    hy_cleanup_free char *above = hy_strndup(path, slash ? (size_t)(slash - path) : 0), *folder = NULL;
    int rc = above ? hy_fs_confined_dir_path(b, above, &folder, err) : no_memory(err);

    if (rc < 0)
        return rc;
    *ret_url = hy_fs_join(folder, slash ? slash + 1 : path);
    return *ret_url ? 0 : no_memory(err);
}

/* ---- errors ------------------------------------------------------------------------ */

/* False when the alias is not in it (any more). */
static bool explain_once(const struct hy_fs_confined_dir *b, struct hy_err *err)
{
    const struct hy_err raw = *err;
    char alias[40];
    const int n = snprintf(alias, sizeof alias, "/proc/self/fd/%d", b->folder < 0 ? b->top : b->folder);
    const char *found = strstr(raw.text, alias);

    if (!found || (found[n] >= '0' && found[n] <= '9'))
        return false;
    hy_err_set(err, raw.code, "%.*s%s%s%s%s", (int)(found - raw.text), raw.text, b->url, b->path && *b->path ? "/" : "",
               b->path ? b->path : "", found + n);
    return true;
}

void hy_fs_confined_dir_explain(const struct hy_fs_confined_dir *b, struct hy_err *err)
{
    if (b->top >= 0 && err && explain_once(b, err))
        (void)explain_once(b, err); /* a rename has two names */
}
