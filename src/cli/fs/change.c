/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard fs rm`, `mkdir`, `touch`, `chmod` and `chown`. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/fs/commands.h"
#include "cli/fs/mode.h"
#include "fs/fs.h"

/* Words that name files to create: they are not expanded. */
static int each_name(const struct hy_args *args, hy_files_act *act, void *arg)
{
    const struct hy_urls names = {.list = args->words, .count = args->word_count};

    return hy_files_each(&names, act, arg);
}

/* ---- rm ---------------------------------------------------------------------------- */

struct removal {
    bool recursive, force;
};

/* "rm -r ." would empty the directory and then fail to remove it. */
static bool is_no_name(const char *name)
{
    return strcmp(name, "/") == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int rm(void *arg, const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    const struct removal *r = arg;
    int rc = hy_fs_stat(url, &info, err);

    if (rc == -ENOENT && r->force)
        return 0;
    if (rc < 0)
        return rc;
    if (is_no_name(info.name))
        return hy_err_set(err, -EINVAL, "%s is not removed; use the name of the directory, or remove its content", url);
    if (info.is_dir && !info.is_link && !r->recursive)
        return hy_err_set(err, -EISDIR, "%s is a directory; use rm -r to remove it and its content", url);
    rc = hy_fs_remove(url, r->recursive && !info.is_link, err);
    return rc == -ENOENT && r->force ? 0 : rc;
}

int hy_files_rm(const struct hy_args *args)
{
    struct removal r = {.recursive = hy_args_has(args, "recursive"), .force = hy_args_has(args, "force")};
    hy_cleanup_urls struct hy_urls urls = {0};
    int status = hy_files_expand(args, 0, args->word_count, r.force, &urls);

    return hy_files_each(&urls, rm, &r) == HY_EXIT_OK ? status : HY_EXIT_FAILED;
}

/* ---- mkdir, touch ------------------------------------------------------------------ */

/* HDFS always creates parent directories, so without -p the parent is checked before. */
static int mkdir_one(void *arg, const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc;

    if (hy_args_has(arg, "parents"))
        return hy_fs_mkdirs(url, 0777, err);
    rc = hy_fs_stat(url, &info, err);
    if (rc == 0)
        return hy_err_set(err, -EEXIST, "%s exists already", url);
    if (rc == -ENOENT)
        rc = hy_files_check_parent(url, err);
    return rc < 0 ? rc : hy_fs_mkdirs(url, 0777, err);
}

int hy_files_mkdir(const struct hy_args *args)
{
    return each_name(args, mkdir_one, (void *)args);
}

static int touch(void *arg, const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    struct hy_fs_file *f = NULL;
    int rc = hy_fs_stat(url, &info, err);

    (void)arg;
    if (rc == -ENOENT)
        rc = hy_files_check_parent(url, err);
    if (rc < 0 || info.name)
        return rc;
    rc = hy_fs_open(url, HY_FS_CREATE, &f, err);
    if (rc == -EEXIST) /* created by another process meanwhile */
        return 0;
    return rc < 0 ? rc : hy_fs_close(f, err);
}

int hy_files_touch(const struct hy_args *args)
{
    return each_name(args, touch, NULL);
}

/* ---- chmod, chown ------------------------------------------------------------------ */

/* A change of a file, and of everything below it. */
struct change {
    int (*act)(const struct change *c, const char *url, const struct hy_fs_info *info, struct hy_err *err);
    const char *rights;       /* chmod */
    const char *owner, *group; /* chown */
    bool recursive;
    int status;
};

struct below {
    struct change *change;
    const char *url;
};

/* Prints the error; the walk continues. */
static int change_failed(void *arg, struct hy_err *err)
{
    const struct below *b = arg;

    b->change->status = hy_files_print_error(err);
    *err = (struct hy_err){0};
    return 0;
}

/* Skips links, which lead outside of the tree. A directory that cannot be changed is not entered. */
static int change_entry(void *arg, const char *path, struct hy_fs_info *entry, struct hy_err *err)
{
    const struct below *b = arg;
    hy_cleanup_free char *url = hy_fs_join(b->url, path);

    if (!url)
        return hy_err_oom(err);
    if (entry->is_link || b->change->act(b->change, url, entry, err) == 0)
        return 0;
    entry->is_dir = false;
    return change_failed(arg, err);
}

/* The directory before its content: a permission that is added may be needed to enter it. */
static int change_one(void *arg, const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    struct change *c = arg;
    struct below b = {.change = c, .url = url};
    const struct hy_fs_walk how = {.visit = change_entry, .failed = change_failed, .arg = &b};
    int rc = hy_fs_stat(url, &info, err);

    if (rc == 0)
        rc = c->act(c, url, &info, err);
    return rc < 0 || !c->recursive || !info.is_dir ? rc : hy_fs_walk(url, &how, err);
}

static int run_change(const struct hy_args *args, struct change *c)
{
    int status;

    c->recursive = hy_args_has(args, "recursive");
    status = hy_files_each_word(args, 1, change_one, c);
    return status == HY_EXIT_OK ? c->status : status;
}

static int chmod_one(const struct change *c, const char *url, const struct hy_fs_info *info, struct hy_err *err)
{
    unsigned mode;
    int rc = hy_rights_change(c->rights, info->mode, info->is_dir, &mode);

    return rc < 0 || mode == info->mode ? rc : hy_fs_chmod(url, mode, err);
}

int hy_files_chmod(const struct hy_args *args)
{
    struct change c = {.act = chmod_one, .rights = hy_args_word(args, 0)};
    struct hy_err err = {0};
    unsigned mode;

    if (hy_rights_change(c.rights, 0, false, &mode) == 0)
        return run_change(args, &c);
    hy_err_set(&err, -EINVAL, "invalid permissions '%s'; use for example 750, u+x or go-w,a+rX", c.rights);
    hy_files_print_error(&err);
    return HY_EXIT_USAGE;
}

static int chown_one(const struct change *c, const char *url, const struct hy_fs_info *info, struct hy_err *err)
{
    (void)info;
    return hy_fs_chown(url, c->owner, c->group, err);
}

int hy_files_chown(const struct hy_args *args)
{
    hy_cleanup_free char *owner = hy_strdup(hy_args_word(args, 0));
    char *colon = owner ? strchr(owner, ':') : NULL;
    struct change c = {.act = chown_one};
    struct hy_err err = {0};

    if (!owner) {
        hy_err_oom(&err);
        return hy_files_print_error(&err);
    }
    if (colon)
        *colon++ = '\0';
    c.owner = *owner ? owner : NULL;
    c.group = colon && *colon ? colon : NULL;
    if (c.owner || c.group)
        return run_change(args, &c);
    hy_err_set(&err, -EINVAL, "invalid owner '%s'; use OWNER, OWNER:GROUP or :GROUP", hy_args_word(args, 0));
    hy_files_print_error(&err);
    return HY_EXIT_USAGE;
}
