/* SPDX-License-Identifier: Apache-2.0 */
#include "web/files/served_dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/string_list.h"
#include "client/client.h"
#include "share/share.h"
#include "web/api/util.h"

#define PATH_MAX_BYTES 4096
#define NAME_MAX_BYTES 255
#define WALK_MAX (64u << 20) /* bytes of queued directory names */

/* ---- paths ----------------------------------------------------------------------------------- */

bool hy_served_dir_hides(const char *name)
{
    return hy_share_is_hidden(name);
}

static int check_name(const char *name, const char *path, struct hy_err *err)
{
    const size_t n = strlen(name);

    if (n == 0 || n > NAME_MAX_BYTES || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return hy_err_set(err, -EINVAL,
                          "'%.300s' is not a path below the project: a component is empty, too long, '.' or '..'",
                          path);
    if (hy_served_dir_hides(name))
        return hy_err_set(err, -EACCES, "'%.300s' belongs to hopyard itself and cannot be used here", path);
    return 0;
}

int hy_served_dir_check(const char *path, struct hy_err *err)
{
    hy_cleanup_free char *copy = NULL;
    char *rest, *name;
    int rc = 0;

    if (!*path)
        return 0;
    if (strlen(path) > PATH_MAX_BYTES)
        return hy_err_set(err, -EINVAL, "the path is longer than %d bytes", PATH_MAX_BYTES);
    rest = copy = hy_strdup(path);
    if (!copy)
        return hy_err_oom(err);
    while (rc == 0 && (name = strsep(&rest, "/")))
        rc = check_name(name, path, err);
    return rc;
}

int hy_served_dir_parameter(struct hy_exchange *x, const char *name, char **ret)
{
    struct hy_err err = {0};
    hy_cleanup_free char *path = hy_http_parameter(x->request.query, name);
    int rc;

    if (!path && hy_api_has_parameter(x, name)) { /* it must not select the root */
        hy_reply_error(x, 400, "'%s' is not a valid parameter", name);
        return -EINVAL;
    }
    if (!path)
        path = hy_strdup("");
    rc = path ? hy_served_dir_check(path, &err) : hy_err_oom(&err);
    if (rc < 0)
        hy_reply_failure(x, &err);
    else
        *ret = hy_take(path);
    return rc;
}

int hy_served_dir_required(struct hy_exchange *x, const char *name, char **ret)
{
    int rc = hy_served_dir_parameter(x, name, ret);

    if (rc < 0 || **ret)
        return rc;
    free(hy_take(*ret));
    hy_reply_error(x, 400, "the parameter '%s' is missing (the path of a file or directory)", name);
    return -EINVAL;
}

const char *hy_served_dir_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

char *hy_served_dir_parent(const char *path)
{
    const char *slash = strrchr(path, '/');

    return hy_strndup(path, slash ? (size_t)(slash - path) : 0);
}

char *hy_served_dir_join(const char *directory, const char *name)
{
    return *directory && *name ? hy_asprintf("%s/%s", directory, name) : hy_strdup(*directory ? directory : name);
}

const char *hy_served_dir_image_type(const char *path)
{
    static const struct {
        const char *ending, *type;
    } all[] = {{".png", "image/png"},
               {".jpg", "image/jpeg"},
               {".jpeg", "image/jpeg"},
               {".gif", "image/gif"},
               {".webp", "image/webp"}};
    const char *dot = strrchr(hy_served_dir_name(path), '.');

    for (size_t i = 0; dot && i < HY_COUNT(all); i++)
        if (strcasecmp(dot, all[i].ending) == 0)
            return all[i].type;
    return NULL;
}

/* ---- places ------------------------------------------------------------------------------------ */

static void close_share(struct hy_served_dir *p)
{
    if (p->share.root)
        hy_fs_confined_dir_done(&p->share.dir);
    free(hy_take(p->share.root));
    free(hy_take(p->share.name));
}

void hy_served_dir_done(struct hy_served_dir *p)
{
    close_share(p);
    if (p->root)
        hy_fs_confined_dir_done(&p->dir);
    free(p->root);
    free(p->inside);
}

/* Takes both strings. */
static int open_dir(struct hy_exchange *x, char *root, char *inside, struct hy_served_dir *ret)
{
    struct hy_err err = {0};
    int rc = root && inside ? hy_fs_confined_dir_open(&ret->dir, root, false, &err) : hy_err_oom(&err);

    if (rc == 0) {
        ret->root = root;
        ret->inside = inside;
        return 0;
    }
    hy_reply_failure(x, &err);
    free(root);
    free(inside);
    return rc;
}

int hy_served_dir_of_project(struct hy_exchange *x, struct hy_served_dir *ret)
{
    const struct hy_project *project = NULL;
    struct hy_err err = {0};
    char *url = NULL;
    int rc = hy_api_project(x, &project, &err);

    if (rc == 0)
        rc = hy_store_url_of_local_dir(project->path, &url, &err);
    if (rc < 0) {
        hy_reply_failure(x, &err);
        return rc;
    }
    return open_dir(x, url ? url : hy_strdup(project->path), hy_strdup(""), ret);
}

/* The paths of an imported run are untrusted. */
static int check_trial(const struct hy_run_info *r, const struct hy_found_trial *f, struct hy_err *err)
{
    if (!r->row.logdir || !f->dir || !*f->dir)
        return hy_err_set(err, -ENOENT, "trial %lld has no directory", (long long)f->number);
    return hy_served_dir_check(f->dir, err);
}

int hy_served_dir_of_trial(struct hy_exchange *x, struct hy_served_dir *ret)
{
    hy_cleanup_store_use struct hy_store_use u = {.web = x->web};
    hy_cleanup_run_info struct hy_run_info r = {0};
    struct hy_found_trial f;
    struct hy_err err = {0};
    int rc = hy_api_find_run(x, &u, &r);

    if (rc == 0)
        rc = hy_api_find_trial(x, u.store, &r, &f);
    if (rc < 0)
        return rc;
    rc = check_trial(&r, &f, &err);
    if (rc < 0)
        hy_reply_failure(x, &err);
    else
        rc = open_dir(x, hy_strdup(r.row.logdir), hy_strdup(f.dir), ret);
    hy_found_trial_done(&f);
    return rc;
}

/* ---- shares --------------------------------------------------------------------------------------- */

/* "OWNER::NAME" of a path that starts with Shared/OWNER::NAME, and the rest of the path; NULL: it does not, or out of
 * memory. */
static char *share_name(const char *path, const char **ret_rest)
{
    const char *name = path + sizeof HY_SERVED_DIR_SHARES;
    size_t n;

    if (strncmp(path, HY_SERVED_DIR_SHARES "/", sizeof HY_SERVED_DIR_SHARES) != 0)
        return NULL;
    n = strcspn(name, "/");
    *ret_rest = name + n + (name[n] == '/');
    return memmem(name, n, "::", 2) ? hy_strndup(name, n) : NULL;
}

bool hy_served_dir_is_share(const char *path)
{
    const char *name = path + sizeof HY_SERVED_DIR_SHARES;

    return strncmp(path, HY_SERVED_DIR_SHARES "/", sizeof HY_SERVED_DIR_SHARES) == 0 && !strchr(name, '/') &&
           (strstr(name, "::") || strcasestr(name, "%3A%3A"));
}

int hy_served_dir_check_new(const char *path, struct hy_err *err)
{
    if (!hy_served_dir_is_share(path) && strcmp(path, HY_SERVED_DIR_SHARES) != 0)
        return 0;
    return hy_err_set(err, -EPERM,
                      "'%.300s' cannot be made here: data sets in '" HY_SERVED_DIR_SHARES
                      "' are those that were accepted "
                      "(hopyard share accept)",
                      path);
}

static int open_share(struct hy_served_dir *p, const char *name, struct hy_err *err)
{
    hy_cleanup_free char *copy = hy_strdup(name), *target = NULL;
    int dir = -1, rc = copy ? hy_share_open(p->root, name, &target, &dir, err) : hy_err_oom(err);

    if (rc < 0)
        return rc;
    close_share(p);
    p->share.name = hy_take(copy);
    p->share.root = hy_take(target);
    hy_fs_confined_dir_take(&p->share.dir, p->share.root, dir);
    return 0;
}

/* The file of a share in the project. */
static char *entry_path(const struct hy_served_dir *p, const char *name)
{
    hy_cleanup_free char *file = hy_share_file_name(p->root, name);

    return file ? hy_served_dir_join(HY_SERVED_DIR_SHARES, file) : NULL;
}

/* Finds the directory that contains a path: the root itself, or a share. `ret_rest` is the path in it; the caller frees
 * it. */
static int find(struct hy_served_dir *p, const char *path, bool is_entry, struct hy_fs_confined_dir **ret_dir,
                char **ret_rest, struct hy_err *err)
{
    const char *rest = NULL;
    hy_cleanup_free char *name = *p->inside ? NULL : share_name(path, &rest);
    struct hy_err why = {0};
    int rc = -ENOENT;

    if (name && (*rest || !is_entry)) /* the file of a share is an entry of the project itself */
        rc = p->share.name && strcmp(p->share.name, name) == 0 ? 0 : open_share(p, name, &why);
    if (rc < 0 && rc != -ENOENT && rc != -ENOTDIR) {
        *err = why;
        return rc;
    }
    *ret_dir = rc == 0 ? &p->share.dir : &p->dir;
    *ret_rest = rc == 0                      ? hy_strdup(rest)
                : name && !*rest && is_entry ? entry_path(p, name)
                                             : hy_served_dir_join(p->inside, path);
    return *ret_rest ? 0 : hy_err_oom(err);
}

/* ---- URLs ------------------------------------------------------------------------------------------ */

int hy_served_dir_existing(struct hy_served_dir *p, const char *path, char **ret_url, struct hy_err *err)
{
    hy_cleanup_free char *rest = NULL;
    struct hy_fs_confined_dir *dir;
    int rc = find(p, path, false, &dir, &rest, err);

    return rc < 0 ? rc : hy_fs_confined_dir_existing(dir, rest, ret_url, err);
}

int hy_served_dir_entry(struct hy_served_dir *p, const char *path, char **ret_url, struct hy_err *err)
{
    hy_cleanup_free char *rest = NULL;
    struct hy_fs_confined_dir *dir;
    int rc = find(p, path, true, &dir, &rest, err);

    return rc < 0 ? rc : hy_fs_confined_dir_entry(dir, rest, ret_url, err);
}

void hy_served_dir_failure(struct hy_exchange *x, const struct hy_served_dir *p, struct hy_err *err)
{
    hy_fs_confined_dir_explain(&p->dir, err);
    if (p->share.root)
        hy_fs_confined_dir_explain(&p->share.dir, err);
    hy_reply_failure(x, err);
}

static bool is_in_share(const struct hy_served_dir *p, const char *name)
{
    return name && p->share.name && strcmp(name, p->share.name) == 0;
}

char *hy_served_dir_address(const struct hy_served_dir *p, const char *path)
{
    const char *rest = NULL;
    hy_cleanup_free char *name = share_name(path, &rest);
    const bool is_share = is_in_share(p, name);
    hy_cleanup_free char *full = is_share ? hy_strdup(rest) : hy_served_dir_join(p->inside, path);
    const char *root = is_share ? p->share.root : p->root;

    return !full ? NULL : *full ? hy_fs_join(root, full) : hy_strdup(root);
}

/* ---- trees ------------------------------------------------------------------------------------- */

struct walk {
    const struct hy_served_dir_walk *how;
    const char *directory; /* the one that is listed */
    struct hy_string_list pending;
    size_t held;
};

static int visit(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    struct walk *w = arg;
    hy_cleanup_free char *path = NULL;
    int rc;

    if (hy_served_dir_hides(entry->name))
        return w->how->skip_hidden
                   ? 0
                   : hy_err_set(err, -EACCES, "'%.200s' contains '%.200s', which belongs to hopyard itself",
                                w->directory, entry->name);
    path = hy_served_dir_join(w->directory, entry->name);
    rc = path ? 0 : hy_err_oom(err);
    if (rc == 0 && w->how->visit)
        rc = w->how->visit(w->how->arg, path, entry, err);
    if (rc != 0 || !entry->is_dir || entry->is_link)
        return rc;
    w->held += strlen(path) + 1;
    if (w->held > WALK_MAX || strlen(path) > PATH_MAX_BYTES)
        return hy_err_set(err, -E2BIG, "'%.200s' has too many directories, or they are nested too deep", w->directory);
    return hy_string_list_take(&w->pending, hy_take(path)) < 0 ? hy_err_oom(err) : 0;
}

int hy_served_dir_walk(struct hy_served_dir *p, const char *path, const struct hy_served_dir_walk *how,
                       struct hy_err *err)
{
    struct walk w = {.how = how};
    int rc = hy_string_list_add(&w.pending, path) < 0 ? hy_err_oom(err) : 0;

    for (size_t i = 0; rc == 0 && i < w.pending.count; i++) {
        hy_cleanup_free char *url = NULL;

        w.directory = w.pending.items[i];
        rc = hy_served_dir_existing(p, w.directory, &url, err);
        if (rc == 0)
            rc = hy_fs_list(url, visit, &w, err);
    }
    hy_string_list_done(&w.pending);
    return rc;
}
