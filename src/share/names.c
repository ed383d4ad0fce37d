/* SPDX-License-Identifier: Apache-2.0 */
#include "share/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "fs/fs.h"
#include "share/share.h"

#define SEPARATOR "::"
#define ENCODED "%3A%3A" /* the separator on HDFS */

/* Case-insensitive, as some file systems are. */
bool hy_share_is_private(const char *name)
{
    return strcasecmp(name, ".hopyard") == 0 || strncasecmp(name, "run.db", 6) == 0 ||
           strncasecmp(name, "store.db", 8) == 0;
}

bool hy_share_is_hidden(const char *name)
{
    return hy_share_is_private(name) || strncasecmp(name, ".hopyard", 8) == 0;
}

/* UTF-8 without control characters. */
static bool is_plain(const char *text)
{
    const size_t n = strlen(text);

    for (size_t i = 0, step; i < n; i += step) {
        step = hy_utf8_len(text + i, n - i);
        if (step == 0 || (unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    }
    return n > 0 && n <= HY_SHARE_PATH_MAX;
}

/* The names of a path, one after the other. */
static int check_names(const char *path, struct hy_err *err)
{
    hy_cleanup_free char *copy = hy_strdup(path);

    if (!copy)
        return hy_err_oom(err);
    for (char *name = copy, *next; name; name = next) {
        next = strchr(name, '/');
        if (next)
            *next++ = '\0';
        if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            return hy_err_set(err, -EINVAL, "'%s' must be a path without '.', '..' and '//'", path);
        if (hy_share_is_hidden(name))
            return hy_err_set(err, -EPERM, "'%s' contains hopyard's own data ('%s') and cannot be shared", path, name);
    }
    return 0;
}

int hy_share_check_path(const char *path, struct hy_err *err)
{
    if (!*path)
        return hy_err_set(err, -EPERM,
                          "a project cannot be shared as a whole: it contains '.hopyard', which only its owner may "
                          "read; share a directory in it");
    if (!is_plain(path))
        return hy_err_set(err, -EINVAL, "a path to share must be UTF-8, without control characters");
    if (hy_share_is_below(path, "Logs") || hy_share_is_below(path, HY_SHARED))
        return hy_err_set(err, -EPERM,
                          "'%s' cannot be shared: hopyard writes its own data there; copy what is needed to "
                          "another directory",
                          path);
    return check_names(path, err);
}

int hy_share_check_target(const char *target, struct hy_err *err)
{
    const size_t root = hy_url_root(target);

    if (!is_plain(target) || root == 0 || target[root - 1] != '/' || strncmp(target, "file:", 5) == 0)
        return hy_err_set(err, -EINVAL, "the target of a share must be an absolute path, or a URL such as hdfs://…/…");
    return check_names(target + root, err);
}

int hy_share_check_name(const char *name, struct hy_err *err)
{
    const char *mark = strstr(name, SEPARATOR);

    if (is_plain(name) && strlen(name) < 240 && !strchr(name, '/') && mark && mark != name && mark[2] &&
        !strstr(mark + 2, SEPARATOR) && name[0] != '.')
        return 0;
    return hy_err_set(err, -EINVAL, "'%s' is not the name of a share; use PROJECT::DATASET", name);
}

bool hy_share_is_below(const char *path, const char *directory)
{
    const size_t n = strlen(directory);

    return n == 0 || (strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == '\0'));
}

static char *last_name(const char *url)
{
    size_t n, at = hy_url_name(url, &n);

    return hy_strndup(url + at, n);
}

char *hy_share_name(const char *project, const char *path)
{
    hy_cleanup_free char *owner = last_name(project), *name = last_name(path);

    return owner && name ? hy_asprintf("%s" SEPARATOR "%s", *owner ? owner : "project", name) : NULL;
}

/* Appends an argument, quoted for a shell. */
static int append_argument(struct hy_buf *b, const char *text)
{
    int rc;

    if (*text && !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+,=")])
        return hy_buf_append_str(b, text);
    rc = hy_buf_append_str(b, "'");
    for (; *text && rc == 0; text++)
        rc = *text == '\'' ? hy_buf_append_str(b, "'\\''") : hy_buf_append(b, text, 1);
    return rc == 0 ? hy_buf_append_str(b, "'") : rc;
}

char *hy_share_accept_line(const char *project, const char *path)
{
    hy_cleanup_free char *target = hy_fs_join(project, path), *name = hy_share_name(project, path);
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 8 * HY_SHARE_PATH_MAX);
    if (!target || !name || hy_buf_append_str(&b, "hopyard share accept --as ") < 0 || append_argument(&b, name) < 0 ||
        hy_buf_append_str(&b, " ") < 0 || append_argument(&b, target) < 0 || !hy_buf_cstr(&b))
        return NULL;
    return hy_strdup(hy_buf_cstr(&b));
}

char *hy_share_missing_text(const struct hy_share_project *p, const char *path, const char *user)
{
    return hy_url_is_local(p->url)
               ? hy_asprintf("'%s' is not there. If it was moved, its files still have the permissions of %s: "
                             "setfacl -R -x u:%s -x d:u:%s DIRECTORY",
                             path, user, user, user)
               : hy_asprintf("'%s' is not there. If it was moved, its files still have the permissions of %s: "
                             "hdfs dfs -setfacl -R -x user:%s,default:user:%s DIRECTORY",
                             path, user, user, user);
}

/* Replaces the only `from`. */
static char *replace(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);

    return at ? hy_asprintf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) : NULL;
}

char *hy_share_file_name(const char *url, const char *name)
{
    return hy_url_is_local(url) ? hy_strdup(name) : replace(name, SEPARATOR, ENCODED);
}

char *hy_share_entry_name(const char *url, const char *file_name)
{
    char *name = hy_url_is_local(url) ? hy_strdup(file_name) : replace(file_name, ENCODED, SEPARATOR);

    if (name && hy_share_check_name(name, NULL) < 0)
        free(hy_take(name));
    return name;
}
