/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatches each call to the file system of its URL. */
#include "fs/fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "fs/local.h"

#define SCHEMES_MAX 8

static struct {
    const char *scheme;
    const struct hy_fs_backend *backend;
} added[SCHEMES_MAX];
static size_t added_count;
static int (*is_interrupted)(void);

void hy_fs_add(const char *scheme, const struct hy_fs_backend *backend)
{
    for (size_t i = 0; i < added_count; i++)
        if (strcmp(added[i].scheme, scheme) == 0)
            return;
    if (added_count < SCHEMES_MAX) {
        added[added_count].scheme = scheme;
        added[added_count++].backend = backend;
    }
}

void hy_fs_on_wait(int (*check)(void))
{
    is_interrupted = check;
}

int hy_fs_is_interrupted(void)
{
    return is_interrupted ? is_interrupted() : 0;
}

static const struct hy_fs_backend *backend_of(const char *url, struct hy_err *err)
{
    const size_t n = hy_url_scheme(url);

    if (hy_url_is_local(url))
        return &hy_fs_local;
    for (size_t i = 0; i < added_count; i++)
        if (strlen(added[i].scheme) == n && memcmp(added[i].scheme, url, n) == 0)
            return added[i].backend;
    hy_err_set(err, -EPROTONOSUPPORT, "%s: %.*s:// is not supported; use a local path, file:// or hdfs://", url, (int)n,
               url);
    return NULL;
}

/* Calls the backend of `url`, or fails when its scheme is not supported. */
#define DISPATCH(url, call)                                                                                            \
    do {                                                                                                               \
        const struct hy_fs_backend *backend = backend_of(url, err);                                                    \
        return backend ? backend->call : -EPROTONOSUPPORT;                                                             \
    } while (0)

void hy_fs_info_done(struct hy_fs_info *info)
{
    free(info->name);
    free(info->owner);
    free(info->group);
    *info = (struct hy_fs_info){0};
}

int hy_fs_stat(const char *url, struct hy_fs_info *ret, struct hy_err *err)
{
    DISPATCH(url, stat(url, ret, err));
}

int hy_fs_list(const char *url, hy_fs_visit *visit, void *arg, struct hy_err *err)
{
    DISPATCH(url, list(url, visit, arg, err));
}

int hy_fs_mkdirs(const char *url, unsigned mode, struct hy_err *err)
{
    DISPATCH(url, mkdirs(url, mode, err));
}

int hy_fs_remove(const char *url, bool recursive, struct hy_err *err)
{
    DISPATCH(url, remove(url, recursive, err));
}

int hy_fs_rename(const char *from, const char *to, bool replace, struct hy_err *err)
{
    const struct hy_fs_backend *of_from = backend_of(from, err), *of_to = of_from ? backend_of(to, err) : NULL;

    if (!of_to)
        return -EPROTONOSUPPORT;
    if (of_from != of_to)
        return hy_err_set(err, -EXDEV, "%s and %s are on different file systems; copy instead", from, to);
    return of_from->rename(from, to, replace, err);
}

int hy_fs_chmod(const char *url, unsigned mode, struct hy_err *err)
{
    DISPATCH(url, chmod(url, mode, err));
}

int hy_fs_chown(const char *url, const char *owner, const char *group, struct hy_err *err)
{
    DISPATCH(url, chown(url, owner, group, err));
}

int hy_fs_access(const char *url, int how, struct hy_err *err)
{
    DISPATCH(url, access(url, how, err));
}

int hy_fs_usage(const char *url, struct hy_fs_usage *ret, struct hy_err *err)
{
    DISPATCH(url, usage(url, ret, err));
}

int hy_fs_space(const char *url, struct hy_fs_space *ret, struct hy_err *err)
{
    DISPATCH(url, space(url, ret, err));
}

int hy_fs_acl_get(const char *url, struct hy_fs_acl *ret, struct hy_err *err)
{
    DISPATCH(url, acl_get(url, ret, err));
}

int hy_fs_acl_set(const char *url, const struct hy_fs_acl *acl, struct hy_err *err)
{
    DISPATCH(url, acl_set(url, acl, err));
}

int hy_fs_acl_user_name(const char *url, const char *user, char **ret, struct hy_err *err)
{
    DISPATCH(url, acl_user_name(url, user, ret, err));
}

int hy_fs_acl_groups(const char *url, const char *user, struct hy_string_list *ret, struct hy_err *err)
{
    const struct hy_fs_backend *backend = backend_of(url, err);

    if (!backend)
        return -EPROTONOSUPPORT;
    return backend->acl_groups ? backend->acl_groups(user, ret, err) : 0;
}

int hy_fs_acl_walk(const char *url, hy_fs_acl_visit *visit, void *arg, struct hy_err *err)
{
    DISPATCH(url, acl_walk(url, visit, arg, err));
}

int hy_fs_open(const char *url, enum hy_fs_open_mode mode, struct hy_fs_file **ret, struct hy_err *err)
{
    DISPATCH(url, open(url, mode, ret, err));
}

uint64_t hy_fs_size(const struct hy_fs_file *f)
{
    return f->ops->size(f);
}

int64_t hy_fs_pread(struct hy_fs_file *f, void *into, size_t n, uint64_t offset, struct hy_err *err)
{
    if (!f->ops->pread)
        return hy_err_set(err, -EBADF, "the file is open for writing");
    return f->ops->pread(f, into, n, offset, err);
}

int hy_fs_write(struct hy_fs_file *f, const void *bytes, size_t n, struct hy_err *err)
{
    if (!f->ops->write)
        return hy_err_set(err, -EBADF, "the file is open for reading");
    return f->ops->write(f, bytes, n, err);
}

int hy_fs_flush(struct hy_fs_file *f, bool to_disk, struct hy_err *err)
{
    return f->ops->flush ? f->ops->flush(f, to_disk, err) : 0;
}

int hy_fs_close(struct hy_fs_file *f, struct hy_err *err)
{
    return f ? f->ops->close(f, err) : 0;
}

char *hy_fs_join(const char *url, const char *name)
{
    const size_t root = hy_url_root(url);
    size_t n = strlen(url);

    while (*name == '/')
        name++;
    while (n > root && url[n - 1] == '/')
        n--;
    return hy_asprintf("%.*s%s%s", (int)n, url, n && url[n - 1] == '/' ? "" : "/", name);
}
