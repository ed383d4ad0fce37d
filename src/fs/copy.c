/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between any two URLs.
 *
 * A file is copied as an atomic file, and a whole directory under a temporary name
 * when the target does not exist. The list of files is complete before the first
 * byte is written: a directory can be copied into itself, and a loop of links is
 * detected before anything has been written.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "fs/fs.h"

#define BUFFER_SIZE (1u << 20)
#define PLAN_MAX (256u << 20)
#define LINKS_MAX 8 /* links to directories on the way to one file; more than that is a loop */

struct copying {
    const struct hy_fs_copy *how;
    char *buffer; /* BUFFER_SIZE bytes */
};

/* ---- one file ---------------------------------------------------------------------- */

static int report_progress(const struct copying *c, uint64_t more, struct hy_err *err)
{
    int rc = c->how->progress ? c->how->progress(c->how->arg, more) : 0;

    return rc ? hy_err_set(err, rc, "the copy was stopped") : 0;
}

/* Copies the length that the source had when it was opened. */
static int copy_bytes(const struct copying *c, struct hy_fs_file *in, const char *from, struct hy_fs_file *out,
                      struct hy_err *err)
{
    const uint64_t size = hy_fs_size(in);

    for (uint64_t at = 0; at < size;) {
        size_t want = size - at < BUFFER_SIZE ? (size_t)(size - at) : BUFFER_SIZE;
        int64_t got = hy_fs_pread(in, c->buffer, want, at, err);
        int rc = got < 0 ? (int)got : hy_fs_write(out, c->buffer, (size_t)got, err);

        if (rc < 0)
            return rc;
        if ((size_t)got < want)
            return hy_err_set(err, -EIO, "%s became shorter while it was copied; copy it again", from);
        at += (uint64_t)got;
        rc = report_progress(c, (uint64_t)got, err);
        if (rc)
            return rc;
    }
    if (hy_fs_size(out) != size)
        return hy_err_set(err, -EIO, "%llu of %llu bytes of %s arrived; copy it again",
                          (unsigned long long)hy_fs_size(out), (unsigned long long)size, from);
    return 0;
}

static int copy_from(const struct copying *c, const char *from, struct hy_fs_file *out, struct hy_err *err)
{
    struct hy_fs_file *in = NULL;
    struct hy_err ignored = {0};
    int rc = hy_fs_open(from, HY_FS_READ, &in, err);

    if (rc < 0)
        return rc;
    rc = copy_bytes(c, in, from, out, err);
    if (hy_fs_close(in, &ignored) < 0)
        ignored.code = 0; /* every byte has been read */
    return rc;
}

/* The copy is not readable by more users than the original, and stays executable. Files of the default mode cost no
 * call. */
static int copy_mode(const char *url, unsigned mode, unsigned default_mode, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info made = {0};
    unsigned allowed;
    int rc;

    mode &= 0777;
    if (mode == default_mode)
        return 0;
    rc = hy_fs_stat(url, &made, err);
    if (rc < 0)
        return rc;
    allowed = made.mode | (made.mode & 0444) >> 2; /* what the umask of the target file system allows */
    if (made.is_dir)
        mode |= 0700; /* entries will be created in it */
    mode = (mode & allowed) | (made.mode & 07000);
    return mode == made.mode ? 0 : hy_fs_chmod(url, mode, err);
}

static int copy_atomically(const struct copying *c, const char *from, const char *to, unsigned mode, struct hy_err *err)
{
    struct hy_fs_atomic_file file;
    int rc = hy_fs_atomic_file_open(&file, to, err);

    if (rc < 0)
        return rc;
    rc = copy_mode(file.url, mode, 0644, err);
    if (rc == 0)
        rc = copy_from(c, from, file.file, err);
    if (rc == 0)
        return hy_fs_atomic_file_commit(&file, c->how->replace, err);
    hy_fs_atomic_file_abort(&file);
    return rc;
}

/* Inside a directory that still has its temporary name. */
static int copy_directly(const struct copying *c, const char *from, const char *to, unsigned mode, struct hy_err *err)
{
    struct hy_fs_file *out = NULL;
    struct hy_err ignored = {0};
    int rc = hy_fs_open(to, HY_FS_CREATE, &out, err);

    if (rc < 0)
        return rc;
    rc = copy_mode(to, mode, 0644, err);
    if (rc == 0)
        rc = copy_from(c, from, out, err);
    if (rc == 0)
        return hy_fs_close(out, err);
    if (hy_fs_close(out, &ignored) < 0)
        ignored.code = 0; /* it is removed with its directory */
    return rc;
}

/* ---- directories ----------------------------------------------------------------------- */

struct entry {
    const char *path; /* relative to the copied directory */
    unsigned mode;
    bool is_dir;
};

/*
 * The files to copy, directories before their contents. Paths are front-coded, so
 * that a million files take about 30 MB:
 *
 *     2 bytes  length of the prefix shared with the previous path
 *     2 bytes  mode and IS_DIR
 *     text     the rest of the path, with a NUL
 */
struct plan {
    struct hy_buf steps, path; /* path: the last one added or read */
    size_t at;                 /* the next one to read */
    const char *top;           /* the copied directory */
};

#define IS_DIR 0x8000u /* next to the 12 bits of a mode */

static void plan_init(struct plan *p, const char *top)
{
    *p = (struct plan){.top = top};
    hy_buf_init(&p->steps, PLAN_MAX);
    hy_buf_init(&p->path, HY_FS_PATH_MAX);
}

static void plan_done(struct plan *p)
{
    hy_buf_done(&p->steps);
    hy_buf_done(&p->path);
}

#define cleanup_plan __attribute__((cleanup(plan_done)))

static size_t shared_length(const struct hy_buf *last, const char *path)
{
    const char *bytes = (const char *)hy_buf_bytes(last);
    size_t n = 0;

    while (n < last->len && path[n] && path[n] == bytes[n])
        n++;
    return n;
}

static int plan_add(void *arg, const char *path, struct hy_fs_info *info, struct hy_err *err)
{
    struct plan *p = arg;
    const size_t shared = shared_length(&p->path, path);
    const uint16_t head[] = {(uint16_t)shared, (uint16_t)((info->mode & 07777) | (info->is_dir ? IS_DIR : 0))};
    int rc = hy_buf_append(&p->steps, head, sizeof head);

    if (rc == 0)
        rc = hy_buf_append(&p->steps, path + shared, strlen(path + shared) + 1);
    if (rc == -ENOBUFS)
        return hy_err_set(err, -E2BIG, "%s has too many files to copy at once; copy its subdirectories one by one",
                          p->top);
    if (rc == 0) {
        hy_buf_cut(&p->path, shared);
        rc = hy_buf_append_str(&p->path, path + shared);
    }
    return rc < 0 ? hy_err_oom(err) : 0;
}

static void plan_rewind(struct plan *p)
{
    hy_buf_clear(&p->path);
    p->at = 0;
}

/* 1 and the next entry, valid until the next call; 0 at the end. */
static int plan_next(struct plan *p, struct entry *ret)
{
    const char *text;
    uint16_t head[2];

    if (p->at == p->steps.len)
        return 0;
    memcpy(head, hy_buf_bytes(&p->steps) + p->at, sizeof head);
    text = (const char *)hy_buf_bytes(&p->steps) + p->at + sizeof head;
    hy_buf_cut(&p->path, head[0]);
    if (hy_buf_append_str(&p->path, text) < 0 || !hy_buf_cstr(&p->path))
        return -ENOMEM;
    p->at += sizeof head + strlen(text) + 1;
    *ret = (struct entry){.path = hy_buf_cstr(&p->path), .mode = head[1] & 07777, .is_dir = head[1] & IS_DIR};
    return 1;
}

static int plan_directory(struct plan *p, struct hy_err *err)
{
    const struct hy_fs_walk how = {.visit = plan_add, .arg = p, .links_max = LINKS_MAX};
    const int rc = hy_fs_walk(p->top, &how, err);

    return rc == -ELOOP && err ? hy_err_wrap(err, "cannot copy %s", p->top) : rc;
}

typedef int copy_one(const struct copying *c, const char *from, const char *to, unsigned mode, struct hy_err *err);

static int make_directory(struct hy_fs_confined_dir *into, const struct entry *e, struct hy_err *err)
{
    hy_cleanup_free char *target = NULL, *directory = NULL;
    int rc = hy_fs_confined_dir_entry(into, e->path, &target, err);

    if (rc == 0)
        rc = hy_fs_mkdirs(target, 0777, err);
    if (rc == 0)
        rc = hy_fs_confined_dir_path(into, e->path, &directory, err); /* fails for a link that already existed */
    return rc < 0 ? rc : copy_mode(directory, e->mode, 0755, err);
}

static int copy_entry(const struct copying *c, const char *from, struct hy_fs_confined_dir *into, const struct entry *e,
                      copy_one *copy, struct hy_err *err)
{
    hy_cleanup_free char *source = hy_fs_join(from, e->path), *target = NULL;
    int rc = source ? 0 : hy_err_oom(err);

    if (e->is_dir)
        rc = rc < 0 ? rc : make_directory(into, e, err);
    else if (rc == 0 && (rc = hy_fs_confined_dir_entry(into, e->path, &target, err)) == 0)
        rc = copy(c, source, target, e->mode, err);
    if (rc < 0)
        hy_fs_confined_dir_explain(into, err);
    return rc;
}

/* `to` exists. `is_ours`: this copy has created it. */
static int copy_entries(const struct copying *c, const char *from, const char *to, struct plan *plan, bool is_ours,
                        struct hy_err *err)
{
    hy_cleanup_confined_dir struct hy_fs_confined_dir into;
    struct entry e;
    int rc = hy_fs_confined_dir_open(&into, to, is_ours, err), more = 0;

    plan_rewind(plan);
    while (rc == 0 && (more = plan_next(plan, &e)) > 0) {
        rc = report_progress(c, 0, err);
        if (rc == 0)
            rc = copy_entry(c, from, &into, &e, is_ours ? copy_directly : copy_atomically, err);
    }
    return more < 0 ? hy_err_oom(err) : rc;
}

static int copy_to_temporary(const struct copying *c, const char *from, const char *to, struct plan *plan,
                             unsigned mode, struct hy_err *err)
{
    hy_cleanup_free char *temporary = hy_fs_temporary_name(to);
    struct hy_err ignored = {0};
    int rc;

    if (!temporary)
        return hy_err_oom(err);
    rc = hy_fs_mkdirs(temporary, 0777, err);
    if (rc == 0)
        rc = copy_mode(temporary, mode, 0755, err);
    if (rc == 0)
        rc = copy_entries(c, from, temporary, plan, true, err);
    if (rc == 0)
        rc = hy_fs_rename(temporary, to, false, err);
    if (rc && hy_fs_remove(temporary, true, &ignored) < 0)
        ignored.code = 0; /* the first error is reported */
    return rc;
}

static int copy_directory(const struct copying *c, const char *from, const char *to, bool exists, unsigned mode,
                          struct hy_err *err)
{
    cleanup_plan struct plan plan;
    int rc;

    plan_init(&plan, from);
    rc = plan_directory(&plan, err);
    if (rc)
        return rc;
    return exists ? copy_entries(c, from, to, &plan, false, err) : copy_to_temporary(c, from, to, &plan, mode, err);
}

/* ---- targets ---------------------------------------------------------------------- */

/* 1 and *ret, or 0 when `url` does not exist. */
static int stat_if_exists(const char *url, struct hy_fs_info *ret, struct hy_err *err)
{
    int rc = hy_fs_stat(url, ret, err);

    if (rc != -ENOENT)
        return rc < 0 ? rc : 1;
    if (err)
        *err = (struct hy_err){0};
    return 0;
}

/* HDFS would create a missing parent, also one that is a typing error. */
static int check_parent(const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info parent = {0};
    hy_cleanup_free char *directory = hy_url_parent(url);
    int rc = directory ? hy_fs_stat(directory, &parent, err) : hy_err_oom(err);

    if (rc == -ENOENT)
        return hy_err_set(err, rc, "cannot write %s: its directory does not exist", url);
    if (rc == 0 && !parent.is_dir)
        return hy_err_set(err, -ENOTDIR, "cannot write %s: %s is a file, not a directory", url, directory);
    return rc;
}

/* Whether an existing target may be replaced. */
static int check_target(const struct copying *c, const struct hy_fs_info *source, const char *to,
                        const struct hy_fs_info *there, struct hy_err *err)
{
    if (!c->how->replace)
        return hy_err_set(err, -EEXIST, "%s already exists", to);
    if (there->is_dir && !source->is_dir)
        return hy_err_set(err, -EISDIR, "%s is a directory; a file cannot replace it", to);
    if (!there->is_dir && source->is_dir)
        return hy_err_set(err, -ENOTDIR, "%s is a file; a directory cannot replace it", to);
    return 0;
}

static int copy_as(const struct copying *c, const char *from, const struct hy_fs_info *source, const char *to,
                   struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info there = {0};
    int exists = stat_if_exists(to, &there, err), rc;

    if (exists < 0)
        return exists;
    rc = exists ? check_target(c, source, to, &there, err) : check_parent(to, err);
    if (rc < 0)
        return rc;
    return source->is_dir ? copy_directory(c, from, to, exists, source->mode, err)
                          : copy_atomically(c, from, to, source->mode, err);
}

/* `to`, or the entry in it when it is a directory. */
static int find_target(const struct hy_fs_info *source, const char *to, char **ret, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info there = {0};
    int exists = stat_if_exists(to, &there, err);
    size_t n = strlen(to);

    if (exists < 0)
        return exists;
    if (!exists && !source->is_dir && n && to[n - 1] == '/')
        return hy_err_set(err, -ENOENT, "the directory %s does not exist", to);
    *ret = exists && there.is_dir ? hy_fs_join(to, source->name) : hy_strdup(to);
    return *ret ? 0 : hy_err_oom(err);
}

int hy_fs_copy(const char *from, const char *to, const struct hy_fs_copy *how, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info source = {0};
    hy_cleanup_free char *target = NULL, *buffer = NULL;
    struct copying c = {.how = how};
    int rc = hy_fs_stat(from, &source, err);

    if (rc < 0)
        return rc;
    if (source.is_dir && !how->recursive)
        return hy_err_set(err, -EISDIR, "%s is a directory; add -r to copy directories", from);
    rc = find_target(&source, to, &target, err);
    if (rc < 0)
        return rc;
    c.buffer = buffer = hy_malloc(BUFFER_SIZE);
    return buffer ? copy_as(&c, from, &source, target, err) : hy_err_oom(err);
}
