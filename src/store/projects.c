/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The projects of this user: $XDG_STATE_HOME/hopyard/projects has a file for each, whose name is the hash of the
 * project's path and whose content is the path. It is only a hint where projects are: a missing file hides
 * a project from the web page, and has no other effect.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/private.h"
#include "base/text.h"
#include "store/internal.h"

void hy_project_id(const char *path, char ret[HY_PROJECT_ID_SIZE])
{
    snprintf(ret, HY_PROJECT_ID_SIZE, "%016" PRIx64, hy_hash(path, strlen(path)));
}

/* Opens the directory of the list; -ENOENT when it does not exist, unless `make`. */
static int open_list(bool make, char **ret_path, struct hy_err *err)
{
    hy_cleanup_free char *home = hy_store_state_home();
    hy_cleanup_free char *path = home ? hy_path_join(home, "hopyard/projects") : NULL;
    int rc = !path  ? hy_err_oom(err)
             : make ? hy_private_make_dir(path, HY_OWNER_SELF, err)
                    : hy_private_dir(path, HY_OWNER_SELF, err);

    if (rc >= 0)
        *ret_path = hy_take(path);
    return rc;
}

int hy_project_register(const char *path, struct hy_err *err)
{
    hy_cleanup_free char *list = NULL, *file = NULL;
    hy_cleanup_close int dir = open_list(true, &list, err);
    char id[HY_PROJECT_ID_SIZE];
    struct stat st;

    if (dir < 0)
        return dir;
    hy_project_id(path, id);
    if (HY_SYS(fstatat(dir, id, &st, AT_SYMLINK_NOFOLLOW)) == 0)
        return 0;
    file = hy_path_join(list, id);
    return file ? hy_private_write(dir, file, path, strlen(path), err) : hy_err_oom(err);
}

/* Calls back for one file of the list; it is removed when its project does not exist any more. One that cannot be read
 * is skipped. */
static int visit(int dir, const char *list, const char *id, hy_project_cb cb, void *arg)
{
    hy_cleanup_free char *file = hy_path_join(list, id);
    hy_cleanup_buf struct hy_buf text;
    char own[HY_PROJECT_ID_SIZE];
    const char *path;
    struct stat st;

    hy_buf_init(&text, PATH_MAX);
    if (!file)
        return -ENOMEM;
    if (hy_private_read(dir, file, &text, NULL) < 0 || memchr(hy_buf_bytes(&text), '\0', text.len))
        return 0;
    path = hy_buf_cstr(&text);
    if (!path)
        return -ENOMEM;
    hy_project_id(path, own);
    if (strcmp(own, id) != 0 || path[0] != '/')
        return 0;
    if (HY_SYS(stat(path, &st)) == 0)
        return S_ISDIR(st.st_mode) ? cb(arg, id, path) : 0;
    if (errno == ENOENT)
        (void)unlinkat(dir, id, 0); /* tried again the next time */
    return 0;
}

int hy_project_each(hy_project_cb cb, void *arg, struct hy_err *err)
{
    hy_cleanup_free char *list = NULL;
    struct hy_err why = {0};
    hy_cleanup_close int dir = open_list(false, &list, &why);
    struct dirent *entry;
    DIR *all = NULL;
    int fd, rc = 0;

    if (dir == -ENOENT)
        return 0;
    if (dir < 0) {
        if (err)
            *err = why;
        return dir;
    }
    fd = HY_SYS(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0 || !(all = fdopendir(fd))) {
        rc = hy_err_sys(err, -errno, "cannot read the directory '%s'", list);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    while (rc == 0 && (entry = readdir(all)))
        if (strlen(entry->d_name) == HY_PROJECT_ID_SIZE - 1)
            rc = visit(dir, list, entry->d_name, cb, arg);
    closedir(all);
    return rc == -ENOMEM ? hy_err_oom(err) : rc;
}
