/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of the project's files: new directories, moves and removals. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/files/served_dir.h"

static void reply_done(struct hy_exchange *x, const struct hy_served_dir *p, int rc, struct hy_err *err)
{
    if (rc < 0)
        hy_served_dir_failure(x, p, err);
    else
        hy_reply_bytes(x, 204, NULL, "", 0);
}

/* ---- POST /files/folder ------------------------------------------------------------------------------ */

void hy_api_file_folder(struct hy_exchange *x)
{
    hy_cleanup_served_dir struct hy_served_dir p = {0};
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    hy_cleanup_free char *path = NULL, *url = NULL;
    struct hy_err err = {0};
    int rc;

    if (hy_served_dir_required(x, "path", &path) < 0 || hy_served_dir_of_project(x, &p) < 0)
        return;
    rc = hy_served_dir_entry(&p, path, &url, &err);
    if (rc == 0 && hy_fs_stat(url, &info, &err) == 0)
        rc = hy_err_set(&err, -EEXIST, "'%s' already exists", path);
    if (rc == 0)
        rc = hy_fs_mkdirs(url, 0777, &err);
    reply_done(x, &p, rc, &err);
}

/* ---- protected files -------------------------------------------------------------------------------------- */

/* Checks that a directory contains none of hopyard's own files, such as the snapshot of a run. */
static int check_contents(struct hy_served_dir *p, const char *path, bool *ret_is_dir, struct hy_err *err)
{
    static const struct hy_served_dir_walk how = {0};
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    hy_cleanup_free char *url = NULL;
    int rc = hy_served_dir_entry(p, path, &url, err);

    if (rc == 0)
        rc = hy_fs_stat(url, &info, err);
    if (rc < 0)
        return rc;
    *ret_is_dir = info.is_dir && !info.is_link;
    return *ret_is_dir ? hy_served_dir_walk(p, path, &how, err) : 0;
}

/* ---- POST /files/move ----------------------------------------------------------------------------------------- */

static int move(struct hy_served_dir *p, struct hy_served_dir *other, const char *from, const char *to, bool replace,
                struct hy_err *err)
{
    hy_cleanup_free char *source = NULL, *target = NULL;
    const size_t n = strlen(from);
    bool is_dir = false;
    int rc = hy_served_dir_is_share(from) ? 0 : hy_served_dir_check_new(to, err); /* a share may get another name */

    if (rc == 0)
        rc = check_contents(p, from, &is_dir, err);
    if (rc == 0 && strncmp(from, to, n) == 0 && to[n] == '/')
        rc = hy_err_set(err, -EINVAL, "'%.200s' cannot be moved into itself", from);
    if (rc == 0)
        rc = hy_served_dir_entry(p, from, &source, err);
    if (rc == 0)
        rc = hy_served_dir_entry(other, to, &target, err);
    if (rc == 0)
        rc = hy_fs_rename(source, target, replace, err);
    if (rc == -EEXIST)
        hy_err_set(err, rc, "'%.300s' already exists", to);
    return rc;
}

void hy_api_file_move(struct hy_exchange *x)
{
    hy_cleanup_served_dir struct hy_served_dir p = {0}, other = {0};
    hy_cleanup_free char *from = NULL, *to = NULL;
    struct hy_err err = {0};
    int rc;

    if (hy_served_dir_required(x, "from", &from) < 0 || hy_served_dir_required(x, "to", &to) < 0 ||
        hy_served_dir_of_project(x, &p) < 0 || hy_served_dir_of_project(x, &other) < 0)
        return;
    rc = move(&p, &other, from, to, hy_api_flag(x, "overwrite"), &err);
    if (rc < 0)
        hy_fs_confined_dir_explain(&other.dir, &err);
    reply_done(x, &p, rc, &err);
}

/* ---- POST /files/delete ----------------------------------------------------------------------------------------- */

void hy_api_file_delete(struct hy_exchange *x)
{
    hy_cleanup_served_dir struct hy_served_dir p = {0};
    hy_cleanup_free char *path = NULL, *url = NULL;
    struct hy_err err = {0};
    bool is_dir = false, recursive = hy_api_flag(x, "recursive");
    int rc;

    if (hy_served_dir_required(x, "path", &path) < 0 || hy_served_dir_of_project(x, &p) < 0)
        return;
    rc = check_contents(&p, path, &is_dir, &err);
    if (rc == 0)
        rc = hy_served_dir_entry(&p, path, &url, &err);
    if (rc == 0)
        rc = hy_fs_remove(url, recursive, &err);
    if (rc == -ENOTEMPTY)
        hy_err_set(&err, -EEXIST, "'%.300s' is not empty; 'recursive=1' deletes it with its contents", path);
    reply_done(x, &p, rc, &err);
}
