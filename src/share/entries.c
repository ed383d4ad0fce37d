/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of the receiver: files in the directory Shared of its project,
 *
 *     hopyard share 1
 *     /home/alice/churn/Resources/train
 *     1000
 *
 * with the real path and its owner.
 *
 * They are not symbolic links: a program that does not support shares must not follow
 * them unnoticed, and HDFS has no links.
 */
#include "share/entries.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/private.h"
#include "fs/fs.h"
#include "share/names.h"

#define MAGIC "hopyard share " /* and the version */
#define ENTRY_MAX 16384u /* bytes of a file */

void hy_share_entry_done(struct hy_share_entry *e)
{
    free(e->name);
    free(e->target);
    free(e->owner);
    *e = (struct hy_share_entry){0};
}

static void take(struct hy_share_entry *ret, struct hy_share_entry *e)
{
    *ret = *e;
    *e = (struct hy_share_entry){0};
}

/* ---- text ---------------------------------------------------------------------------------- */

/* The next line, without its end; NULL: there is none. Free it. */
static char *next_line(const char **text, const char *end, int *rc)
{
    const char *start = *text, *stop = start < end ? memchr(start, '\n', (size_t)(end - start)) : NULL;
    char *line;

    if (!stop || memchr(start, '\0', (size_t)(stop - start))) {
        *rc = -EINVAL;
        return NULL;
    }
    *text = stop + 1;
    line = hy_strndup(start, (size_t)(stop - start));
    if (!line)
        *rc = -ENOMEM;
    return line;
}

int hy_share_entry_parse(const char *text, size_t n, struct hy_share_entry *ret, struct hy_err *err)
{
    const char *at = text, *end = text + n;
    int rc = 0;
    hy_cleanup_free char *head = next_line(&at, end, &rc);
    hy_cleanup_share_entry struct hy_share_entry e = {0};

    if (head && strncmp(head, MAGIC, sizeof MAGIC - 1) == 0 && strcmp(head, MAGIC "1") != 0)
        return hy_err_set(err, -EINVAL, "it was written by a newer version of hopyard");
    e.target = head && strcmp(head, MAGIC "1") == 0 ? next_line(&at, end, &rc) : NULL;
    e.owner = e.target ? next_line(&at, end, &rc) : NULL;
    if (rc == -ENOMEM)
        return hy_err_oom(err);
    if (!e.owner || !*e.owner || at != end)
        return hy_err_set(err, -EINVAL, "it was not created by `hopyard share accept`");
    rc = hy_share_check_target(e.target, err);
    if (rc == 0)
        take(ret, &e);
    return rc;
}

static char *format(const struct hy_share_entry *e)
{
    return hy_asprintf(MAGIC "1\n%s\n%s\n", e->target, e->owner);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The file must be of this user, or of root: in a directory of others it could refer to any path. Root reads all. */
static int read_local(const char *url, struct hy_buf *b, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    hy_cleanup_close int fd = hy_fs_local_path(url, &path, err) < 0
                                  ? -1
                                  : HY_SYS(open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    struct stat st;
    int rc;

    if (!path)
        return err ? err->code : -ENOMEM;
    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0)
        return hy_err_sys(err, -errno, "cannot read '%s'", path);
    if (!S_ISREG(st.st_mode))
        return hy_err_set(err, -ENOTDIR, "'%s' is not a file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0 && geteuid() != 0)
        return hy_err_set(err, -EPERM, "'%s' belongs to another user, and is not followed; use the real path", path);
    rc = hy_read_all(fd, b);
    return rc < 0 ? hy_err_sys(err, rc, "cannot read '%s'", path) : 0;
}

static int read_remote(const char *url, struct hy_buf *b, struct hy_err *err)
{
    struct hy_fs_file *f = NULL;
    uint8_t *room = hy_buf_reserve(b, ENTRY_MAX);
    int64_t n;
    int rc = room ? hy_fs_open(url, HY_FS_READ, &f, err) : hy_err_oom(err);

    if (rc < 0)
        return rc;
    n = hy_fs_pread(f, room, ENTRY_MAX, 0, err);
    rc = hy_fs_close(f, n < 0 ? NULL : err);
    if (n < 0 || rc < 0)
        return n < 0 ? (int)n : rc;
    hy_buf_added(b, (size_t)n);
    return 0;
}

int hy_share_entry_read(const char *project, const char *name, struct hy_share_entry *ret, struct hy_err *err)
{
    hy_cleanup_free char *file = hy_share_file_name(project, name), *directory = hy_fs_join(project, HY_SHARED);
    hy_cleanup_free char *url = file && directory ? hy_fs_join(directory, file) : NULL;
    hy_cleanup_share_entry struct hy_share_entry e = {0};
    const bool is_local = hy_url_is_local(project);
    hy_cleanup_buf struct hy_buf b;
    int rc;

    hy_buf_init(&b, ENTRY_MAX);
    rc = !url ? hy_err_oom(err) : is_local ? read_local(url, &b, err) : read_remote(url, &b, err);
    if (rc < 0)
        return rc;
    rc = hy_share_entry_parse((const char *)hy_buf_bytes(&b), b.len, &e, err);
    if (rc == 0 && !is_local && hy_url_is_local(e.target))
        rc = hy_err_set(err, -EINVAL, "a share of a project on HDFS cannot be a local directory");
    if (rc < 0)
        return hy_err_wrap(err, "the share '%s' cannot be used", name);
    if (!(e.name = hy_strdup(name)))
        return hy_err_oom(err);
    take(ret, &e);
    return 0;
}

static int write_local(const char *project, const char *file, const char *text, struct hy_err *err)
{
    hy_cleanup_close int dir = hy_open_own_dir(project, HY_SHARED, err);

    return dir < 0 ? dir : hy_private_write(dir, file, text, strlen(text), err);
}

static int write_remote(const char *project, const char *file, const char *text, struct hy_err *err)
{
    hy_cleanup_free char *directory = hy_fs_join(project, HY_SHARED);
    hy_cleanup_free char *url = directory ? hy_fs_join(directory, file) : NULL;
    struct hy_fs_atomic_file f = {0};
    int rc = url ? hy_fs_mkdirs(directory, 0755, err) : hy_err_oom(err);

    if (rc == 0)
        rc = hy_fs_atomic_file_open(&f, url, err);
    if (rc < 0)
        return rc;
    rc = hy_fs_write(f.file, text, strlen(text), err);
    if (rc < 0) {
        hy_fs_atomic_file_abort(&f);
        return rc;
    }
    return hy_fs_atomic_file_commit(&f, true, err);
}

static int write_entry(const char *project, const struct hy_share_entry *e, struct hy_err *err)
{
    hy_cleanup_free char *file = hy_share_file_name(project, e->name), *text = format(e);

    if (!file || !text)
        return hy_err_oom(err);
    return hy_url_is_local(project) ? write_local(project, file, text, err) : write_remote(project, file, text, err);
}

/* ---- calls ------------------------------------------------------------------------------------- */

/* -EEXIST: the name is used for another target. */
static int check_free(const char *project, const struct hy_share_entry *e, struct hy_err *err)
{
    hy_cleanup_share_entry struct hy_share_entry known = {0};
    struct hy_err why = {0};
    int rc = hy_share_entry_read(project, e->name, &known, &why);

    if (rc == -ENOENT || (rc == 0 && strcmp(known.target, e->target) == 0))
        return 0;
    if (rc == 0)
        return hy_err_set(err, -EEXIST, "the project already has a share '%s', of %s; choose another name (--as)",
                          e->name, known.target);
    if (err)
        *err = why;
    return rc;
}

int hy_share_accept(const char *url, const char *name, const char *target, struct hy_share_entry *ret,
                    struct hy_err *err)
{
    hy_cleanup_share_entry struct hy_share_entry e = {.name = hy_strdup(name), .target = hy_strdup(target)};
    int rc = e.name && e.target ? hy_share_check_name(name, err) : hy_err_oom(err);

    for (size_t n = rc == 0 ? strlen(e.target) : 0; n > 1 && e.target[n - 1] == '/'; n--)
        e.target[n - 1] = '\0';
    if (rc == 0)
        rc = hy_share_check_target(e.target, err);
    if (rc == 0 && !hy_url_is_local(url) && hy_url_is_local(e.target))
        rc = hy_err_set(err, -EINVAL, "a project on HDFS cannot use the local directory %s", e.target);
    if (rc == 0 && hy_share_is_below(e.target, url))
        rc = hy_err_set(err, -EINVAL, "%s is in this project", e.target);
    if (rc == 0)
        rc = hy_share_find_target(&e, err);
    if (rc == 0)
        rc = check_free(url, &e, err);
    if (rc == 0)
        rc = write_entry(url, &e, err);
    if (rc < 0)
        return rc;
    take(ret, &e);
    return 0;
}

int hy_share_forget(const char *url, const char *name, struct hy_err *err)
{
    hy_cleanup_free char *file = NULL, *directory = NULL, *path = NULL;
    int rc = hy_share_check_name(name, err);

    if (rc < 0)
        return rc;
    file = hy_share_file_name(url, name);
    directory = hy_fs_join(url, HY_SHARED);
    path = file && directory ? hy_fs_join(directory, file) : NULL;
    rc = path ? hy_fs_remove(path, false, err) : hy_err_oom(err);
    return rc == -ENOENT ? hy_err_set(err, rc, "the project has no share '%s'", name) : rc;
}

struct visitor {
    const char *url;
    hy_share_entry_visit *visit;
    void *arg;
    int result;
};

static int visit_file(void *arg, struct hy_fs_info *info, struct hy_err *err)
{
    struct visitor *v = arg;
    hy_cleanup_free char *name = hy_share_entry_name(v->url, info->name);
    hy_cleanup_share_entry struct hy_share_entry e = {0};
    struct hy_err why = {0};

    (void)err;
    if (!name || info->is_dir)
        return 0;
    if (hy_share_entry_read(v->url, name, &e, &why) == 0)
        (void)hy_share_check(&e, &why); /* the reason is passed on */
    else
        e.name = hy_take(name);
    return v->result = v->visit(v->arg, &e, why.code < 0 ? why.text : NULL);
}

int hy_share_entries(const char *url, hy_share_entry_visit *visit, void *arg, struct hy_err *err)
{
    hy_cleanup_free char *directory = hy_fs_join(url, HY_SHARED);
    struct visitor v = {.url = url, .visit = visit, .arg = arg};
    struct hy_err why = {0};
    int rc = directory ? hy_fs_list(directory, visit_file, &v, &why) : hy_err_oom(&why);

    if (v.result || rc == -ENOENT)
        return v.result;
    if (rc < 0 && err)
        *err = why;
    return rc;
}
