/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between any two URLs.
 *
 * A file is copied as a draft (atomic_file.h), and so is a whole folder where there is
 * none of its name yet. What is to be copied is known before the first byte is
 * written: a folder can be copied into itself, and a loop of links is seen
 * before anything was done.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "fs/confined_dir.h"
#include "fs/fs.h"

#define PIECE (1u << 20)
#define PLAN_MAX (256u << 20)
#define LINKS_MAX 8 /* links to folders on the way to one file: more are a loop */

struct copying {
    const struct hy_fs_copy *how;
    char *room; /* PIECE bytes */
};

static int no_memory(struct hy_err *err)
{
    return hy_err_oom(err);
}

/* ---- one file ---------------------------------------------------------------------- */

static int tell(const struct copying *c, uint64_t more, struct hy_err *err)
{
    int rc = c->how->progress ? c->how->progress(c->how->arg, more) : 0;

    return rc ? hy_err_set(err, rc, "the copy was stopped") : 0;
}

/* All that the source had when it was opened. */
static int pour(const struct copying *c, struct hy_fs_file *in, const char *from, struct hy_fs_file *out,
                struct hy_err *err)
{
    const uint64_t size = hy_fs_size(in);

    for (uint64_t at = 0; at < size;) {
        size_t want = size - at < PIECE ? (size_t)(size - at) : PIECE;
        int64_t got = hy_fs_pread(in, c->room, want, at, err);
        int rc = got < 0 ? (int)got : hy_fs_write(out, c->room, (size_t)got, err);

        if (rc < 0)
            return rc;
        if ((size_t)got < want)
            return hy_err_set(err, -EIO, "%s became shorter while it was copied; copy it again", from);
        at += (uint64_t)got;
        rc = tell(c, (uint64_t)got, err);
        if (rc)
            return rc;
    }
    if (hy_fs_size(out) != size)
        return hy_err_set(err, -EIO, "%llu of %llu bytes of %s arrived; copy it again",
                          (unsigned long long)hy_fs_size(out), (unsigned long long)size, from);
    return 0;
}

static int fill(const struct copying *c, const char *from, struct hy_fs_file *out, struct hy_err *err)
{
    struct hy_fs_file *in = NULL;
    struct hy_err unheard = {0};
    int rc = hy_fs_open(from, HY_FS_READ, &in, err);

    if (rc < 0)
        return rc;
    rc = pour(c, in, from, out, err);
    if (hy_fs_close(in, &unheard) < 0)
        unheard.code = 0; /* every byte of it has been read */
    return rc;
}

/* Who may not read the original may not read the copy, and a program stays one. `usual` is asked for nothing. */
static int give_rights(const char *url, unsigned mode, unsigned usual, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info made = {0};
    unsigned allowed;
    int rc;

    mode &= 0777;
    if (mode == usual)
        return 0;
    rc = hy_fs_stat(url, &made, err);
    if (rc < 0)
        return rc;
    allowed = made.mode | (made.mode & 0444) >> 2; /* as the umask of wherever it is has it */
    if (made.is_dir)
        mode |= 0700; /* something is to be put into it */
    mode = (mode & allowed) | (made.mode & 07000);
    return mode == made.mode ? 0 : hy_fs_chmod(url, mode, err);
}

static int copy_to_draft(const struct copying *c, const char *from, const char *to, unsigned mode,
                         struct hy_err *err)
{
    struct hy_fs_atomic_file draft;
    int rc = hy_fs_atomic_file_open(&draft, to, err);

    if (rc < 0)
        return rc;
    rc = give_rights(draft.url, mode, 0644, err);
    if (rc == 0)
        rc = fill(c, from, draft.file, err);
    if (rc == 0)
        return hy_fs_atomic_file_commit(&draft, c->how->replace, err);
    hy_fs_atomic_file_abort(&draft);
    return rc;
}

/* Inside a folder that is a draft itself. */
static int copy_plainly(const struct copying *c, const char *from, const char *to, unsigned mode,
                        struct hy_err *err)
{
    struct hy_fs_file *out = NULL;
    struct hy_err unheard = {0};
    int rc = hy_fs_open(to, HY_FS_CREATE, &out, err);

    if (rc < 0)
        return rc;
    rc = give_rights(to, mode, 0644, err);
    if (rc == 0)
        rc = fill(c, from, out, err);
    if (rc == 0)
        return hy_fs_close(out, err);
    if (hy_fs_close(out, &unheard) < 0)
        unheard.code = 0; /* it goes away with its folder */
    return rc;
}

/* ---- folders ----------------------------------------------------------------------- */

struct entry {
    const char *path; /* below the folder that is copied */
    unsigned mode;
    bool is_dir;
};

/*
 * What is to be copied, folders before what is in them. Of each path only the
 * end is kept that differs from the path before, so that a million files take
 * some 30 MB:
 *
 *     2 bytes  how many bytes the path shares with the one before
 *     2 bytes  mode and IS_DIR
 *     text     the rest of the path, with a NUL
 */
struct plan {
    struct hy_buf steps, path; /* path: the last one that was added or read */
    size_t at;                 /* the next one to be read */
    const char *top;           /* the folder that is copied */
};

#define IS_DIR 0x8000u /* beside the 12 bits of a mode */

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
    return rc < 0 ? no_memory(err) : 0;
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

static int plan_folder(struct plan *p, struct hy_err *err)
{
    const struct hy_fs_walk how = {.visit = plan_add, .arg = p, .links_max = LINKS_MAX};
    const int rc = hy_fs_walk(p->top, &how, err);

    return rc == -ELOOP && err ? hy_err_wrap(err, "cannot copy %s", p->top) : rc;
}

typedef int copy_one(const struct copying *c, const char *from, const char *to, unsigned mode,
                     struct hy_err *err);

static int make_folder(struct hy_fs_confined_dir *into, const struct entry *e, struct hy_err *err)
{
    hy_cleanup_free char *target = NULL, *folder = NULL;
    int rc = hy_fs_confined_dir_entry(into, e->path, &target, err);

    if (rc == 0)
        rc = hy_fs_mkdirs(target, 0777, err);
    if (rc == 0)
        rc = hy_fs_confined_dir_path(into, e->path, &folder, err); /* a link that was there is not taken for it */
    return rc < 0 ? rc : give_rights(folder, e->mode, 0755, err);
}

static int copy_entry(const struct copying *c, const char *from, struct hy_fs_confined_dir *into, const struct entry *e,
                      copy_one *copy, struct hy_err *err)
{
    hy_cleanup_free char *source = hy_fs_join(from, e->path), *target = NULL;
    int rc = source ? 0 : no_memory(err);

    if (e->is_dir)
        rc = rc < 0 ? rc : make_folder(into, e, err);
    else if (rc == 0 && (rc = hy_fs_confined_dir_entry(into, e->path, &target, err)) == 0)
        rc = copy(c, source, target, e->mode, err);
    if (rc < 0)
        hy_fs_confined_dir_explain(into, err);
    return rc;
}

/* `to` is there. Its rights are its own where it was there before; `is_ours`: it was not. */
static int copy_entries(const struct copying *c, const char *from, const char *to, struct plan *plan, bool is_ours,
                        struct hy_err *err)
{
    hy_cleanup_confined_dir struct hy_fs_confined_dir into;
    struct entry e;
    int rc = hy_fs_confined_dir_open(&into, to, is_ours, err), more = 0;

    plan_rewind(plan);
    while (rc == 0 && (more = plan_next(plan, &e)) > 0) {
        rc = tell(c, 0, err);
        if (rc == 0)
            rc = copy_entry(c, from, &into, &e, is_ours ? copy_plainly : copy_to_draft, err);
    }
    return more < 0 ? no_memory(err) : rc;
}

static int copy_to_new(const struct copying *c, const char *from, const char *to, struct plan *plan,
                       unsigned mode, struct hy_err *err)
{
    hy_cleanup_free char *draft = hy_fs_temporary_name(to);
    struct hy_err unheard = {0};
    int rc;

    if (!draft)
        return no_memory(err);
    rc = hy_fs_mkdirs(draft, 0777, err);
    if (rc == 0)
        rc = give_rights(draft, mode, 0755, err);
    if (rc == 0)
        rc = copy_entries(c, from, draft, plan, true, err);
    if (rc == 0)
        rc = hy_fs_rename(draft, to, false, err);
    if (rc && hy_fs_remove(draft, true, &unheard) < 0)
        unheard.code = 0; /* what went wrong before is what is told */
    return rc;
}

static int copy_folder(const struct copying *c, const char *from, const char *to, bool is_there, unsigned mode,
                       struct hy_err *err)
{
    cleanup_plan struct plan plan;
    int rc;

    plan_init(&plan, from);
    rc = plan_folder(&plan, err);
    if (rc)
        return rc;
    return is_there ? copy_entries(c, from, to, &plan, false, err)
                    : copy_to_new(c, from, to, &plan, mode, err);
}

/* ---- where to ---------------------------------------------------------------------- */

/* What is at `url`: 1 and *ret, 0 when nothing is. */
static int look(const char *url, struct hy_fs_info *ret, struct hy_err *err)
{
    int rc = hy_fs_stat(url, ret, err);

    if (rc != -ENOENT)
        return rc < 0 ? rc : 1;
    if (err)
        *err = (struct hy_err){0};
    return 0;
}

/* HDFS would make it, and a typing error with it. */
static int check_parent(const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info parent = {0};
    hy_cleanup_free char *folder = hy_url_parent(url);
    int rc = folder ? hy_fs_stat(folder, &parent, err) : no_memory(err);

    if (rc == -ENOENT)
        return hy_err_set(err, rc, "cannot write %s: its folder is not there", url);
    if (rc == 0 && !parent.is_dir)
        return hy_err_set(err, -ENOTDIR, "cannot write %s: %s is a file, no folder", url, folder);
    return rc;
}

/* May what is in the way be in the way? */
static int check_target(const struct copying *c, const struct hy_fs_info *source, const char *to,
                        const struct hy_fs_info *there, struct hy_err *err)
{
    if (!c->how->replace)
        return hy_err_set(err, -EEXIST, "%s is there already", to);
    if (there->is_dir && !source->is_dir)
        return hy_err_set(err, -EISDIR, "%s is a folder, and a file does not replace it", to);
    if (!there->is_dir && source->is_dir)
        return hy_err_set(err, -ENOTDIR, "%s is a file, and a folder does not replace it", to);
    return 0;
}

static int copy_as(const struct copying *c, const char *from, const struct hy_fs_info *source, const char *to,
                   struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info there = {0};
    int is_there = look(to, &there, err), rc;

    if (is_there < 0)
        return is_there;
    rc = is_there ? check_target(c, source, to, &there, err) : check_parent(to, err);
    if (rc < 0)
        return rc;
    return source->is_dir ? copy_folder(c, from, to, is_there, source->mode, err)
                          : copy_to_draft(c, from, to, source->mode, err);
}

/* `to`, or what it becomes when that is a folder. */
static int find_target(const struct hy_fs_info *source, const char *to, char **ret, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info there = {0};
    int is_there = look(to, &there, err);
    size_t n = strlen(to);

    if (is_there < 0)
        return is_there;
    if (!is_there && !source->is_dir && n && to[n - 1] == '/')
        return hy_err_set(err, -ENOENT, "the folder %s is not there", to);
    *ret = is_there && there.is_dir ? hy_fs_join(to, source->name) : hy_strdup(to);
    return *ret ? 0 : no_memory(err);
}

int hy_fs_copy(const char *from, const char *to, const struct hy_fs_copy *how, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info source = {0};
    hy_cleanup_free char *target = NULL, *room = NULL;
    struct copying c = {.how = how};
    int rc = hy_fs_stat(from, &source, err);

    if (rc < 0)
        return rc;
    if (source.is_dir && !how->recursive)
        return hy_err_set(err, -EISDIR, "%s is a folder, and folders are copied recursively only (-r)", from);
    rc = find_target(&source, to, &target, err);
    if (rc < 0)
        return rc;
    c.room = room = hy_malloc(PIECE);
    return room ? copy_as(&c, from, &source, target, err) : no_memory(err);
}
