/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of a project, for the form that starts a run: scripts and notebooks, by their paths. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/string_list.h"
#include "web/api/api.h"
#include "web/api/util.h"

#define DEPTH_MAX 4
#define SCRIPTS_MAX 500
#define ENTRIES_MAX 20000 /* that are examined: a project may contain data sets of millions of files */

struct walk {
    struct hy_string_list found;
    size_t entries;
};

static bool is_script(const char *name)
{
    static const char *const ends[] = {".py", ".ipynb", ".sh"};
    size_t n = strlen(name);

    for (size_t i = 0; i < HY_COUNT(ends); i++)
        if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* Hidden directories, logs, shares and third-party code. */
static bool is_skipped(const char *name)
{
    static const char *const names[] = {"Logs", "Shared", "node_modules", "__pycache__", "venv", "site-packages"};

    for (size_t i = 0; i < HY_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return name[0] == '.';
}

static int scan_directory(struct walk *w, int above, const char *name, const char *path, int depth);

/* Some file systems list names without types. */
static mode_t type_of(int dir, const struct dirent *e)
{
    struct stat st;

    if (e->d_type != DT_UNKNOWN)
        return DTTOIF(e->d_type);
    return HY_SYS(fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW)) == 0 ? st.st_mode & S_IFMT : 0;
}

static int scan_entry(struct walk *w, int dir, const struct dirent *e, const char *path, int depth)
{
    hy_cleanup_free char *below = *path ? hy_asprintf("%s/%s", path, e->d_name) : hy_strdup(e->d_name);
    const mode_t type = type_of(dir, e);

    if (!below)
        return -ENOMEM;
    if (type == S_IFDIR)
        return depth < DEPTH_MAX && !is_skipped(e->d_name) ? scan_directory(w, dir, e->d_name, below, depth + 1) : 0;
    if (type != S_IFREG || !is_script(e->d_name) || w->found.count >= SCRIPTS_MAX)
        return 0;
    return hy_string_list_take(&w->found, hy_take(below));
}

/* A directory that cannot be read has no scripts. */
static int scan_directory(struct walk *w, int above, const char *name, const char *path, int depth)
{
    hy_cleanup_close int fd = HY_SYS(openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    DIR *all = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *e;
    int rc = 0;

    if (!all)
        return 0;
    hy_take_fd(fd);
    while (rc == 0 && w->entries++ < ENTRIES_MAX && (e = readdir(all)))
        rc = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ? 0
                                                                         : scan_entry(w, dirfd(all), e, path, depth);
    closedir(all);
    return rc;
}

void hy_api_scripts(struct hy_exchange *x)
{
    const struct hy_project *p = NULL;
    json_t *array = json_array();
    struct hy_err err = {0};
    struct walk w = {0};
    int rc = hy_api_project(x, &p, &err);

    if (rc == 0)
        rc = scan_directory(&w, AT_FDCWD, p->path, "", 1);
    hy_string_list_sort(&w.found);
    for (size_t i = 0; i < w.found.count && rc == 0; i++)
        rc = hy_json_append(array, hy_json_text(w.found.items[i]));
    if (rc < 0) {
        json_decref(array);
        if (!err.code)
            hy_err_oom(&err);
        hy_reply_failure(x, &err);
    } else {
        hy_reply_json(x, json_pack("{s:o}", "scripts", array));
    }
    hy_string_list_done(&w.found);
}
