/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks a directory tree without recursion: `levels` holds the entries that are
 * still to be visited. The stack does not grow with the depth, no page
 * of a server's listing is held while its subdirectories are read, and both depth
 * and memory are bounded. Files that precede the first subdirectory of a listing
 * are visited at once, so that a flat directory of any size takes no memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "fs/fs.h"

#define DEPTH_MAX 1000u        /* the limit of HDFS */
#define HELD_MAX (256u << 20)  /* bytes of pending entries */
#define ENTRY_OVERHEAD 64u     /* of the allocator, for the three strings of an entry */

struct level {
    struct hy_fs_info *list;
    size_t count, next;       /* those before `next` are visited */
    size_t held;              /* bytes */
    size_t path_length;       /* of the directory */
    int links;                /* followed to get here */
};

struct walk {
    const struct hy_fs_walk *how;
    const char *top;
    struct level *levels; /* DEPTH_MAX */
    size_t depth;
    size_t held;
    struct hy_buf path; /* below the top */
    int stopped;        /* the result with which a visitor stopped the walk */
};

/* ---- pending entries ------------------------------------------------------------- */

static void drop_level(struct walk *w)
{
    struct level *l = &w->levels[--w->depth];

    for (size_t i = l->next; i < l->count; i++)
        hy_fs_info_done(&l->list[i]);
    free(l->list);
    w->held -= l->held;
}

static void walk_done(struct walk *w)
{
    while (w->depth)
        drop_level(w);
    free(w->levels);
    hy_buf_done(&w->path);
}

#define cleanup_walk __attribute__((cleanup(walk_done)))

static size_t size_of(const struct hy_fs_info *e)
{
    return sizeof(*e) + strlen(e->name) + strlen(e->owner) + strlen(e->group) + ENTRY_OVERHEAD;
}

/* Takes the strings of `entry`. */
static int hold(struct walk *w, struct level *l, struct hy_fs_info *entry, struct hy_err *err)
{
    const size_t size = size_of(entry);

    if (size > HELD_MAX - w->held)
        return hy_err_set(err, -E2BIG,
                          "the directories below %s have too many entries to walk at once; name its"
                          " subdirectories one by one",
                          w->top);
    if (hy_array_grow(l->list, l->count) < 0)
        return hy_err_oom(err);
    l->list[l->count++] = *entry;
    *entry = (struct hy_fs_info){0};
    l->held += size;
    w->held += size;
    return 0;
}

/* ---- one entry --------------------------------------------------------------------- */

/* Leaves the entry's path in w->path. */
static int visit(struct walk *w, const struct level *l, struct hy_fs_info *entry, struct hy_err *err)
{
    int rc;

    hy_buf_cut(&w->path, l->path_length);
    rc = w->path.len ? hy_buf_append_str(&w->path, "/") : 0;
    if (rc == 0)
        rc = hy_buf_append_str(&w->path, entry->name);
    if (rc == -ENOBUFS)
        return hy_err_set(err, -ENAMETOOLONG, "a path is longer than %u bytes below %s", HY_FS_PATH_MAX, w->top);
    if (rc < 0 || !hy_buf_cstr(&w->path))
        return hy_err_oom(err);
    return w->stopped = w->how->visit(w->how->arg, hy_buf_cstr(&w->path), entry, err);
}

static int collect(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    struct walk *w = arg;
    struct level *l = &w->levels[w->depth - 1];

    return l->count || entry->is_dir ? hold(w, l, entry, err) : visit(w, l, entry, err);
}

/* ---- directories ----------------------------------------------------------------------- */

static int list_level(struct walk *w, struct hy_err *err)
{
    hy_cleanup_free char *url = w->path.len ? hy_fs_join(w->top, hy_buf_cstr(&w->path)) : hy_strdup(w->top);

    return url ? hy_fs_list(url, collect, w, err) : hy_err_oom(err);
}

/* Whether how->failed decides: not for the top, a limit, or a server that sends invalid responses (-EPROTO). */
static bool is_failed_directory(const struct walk *w, int rc)
{
    return rc < 0 && !w->stopped && w->how->failed && w->depth > 1 && rc != -EPROTO && rc != -ENAMETOOLONG &&
           rc != -E2BIG && rc != -EINTR;
}

/* Enters the directory in w->path. */
static int enter(struct walk *w, int links, struct hy_err *err)
{
    int rc;

    if (w->depth == DEPTH_MAX)
        return hy_err_set(err, -ENAMETOOLONG,
                          "directories are nested more than %u levels deep below %s; if it is on"
                          " HDFS, its NameNode is faulty or hostile",
                          DEPTH_MAX, w->top);
    if (links > w->how->links_max)
        return hy_err_set(err, -ELOOP, "loop of links at %s in %s", w->path.len ? hy_buf_cstr(&w->path) : ".", w->top);
    w->levels[w->depth++] = (struct level){.path_length = w->path.len, .links = links};
    rc = list_level(w, err);
    if (rc == 0)
        return 0;
    rc = is_failed_directory(w, rc) ? w->how->failed(w->how->arg, err) : rc;
    drop_level(w);
    return rc;
}

/* Visits the next entry of the innermost directory, and enters it when it is a directory. */
static int step(struct walk *w, struct hy_err *err)
{
    struct level *l = &w->levels[w->depth - 1];
    hy_cleanup_fs_info struct hy_fs_info entry = {0};
    int rc, links;

    if (l->next == l->count) {
        drop_level(w);
        return 0;
    }
    entry = l->list[l->next];
    l->list[l->next++] = (struct hy_fs_info){0};
    rc = visit(w, l, &entry, err);
    if (rc || !entry.is_dir || (entry.is_link && w->how->links_max == 0))
        return rc;
    links = l->links + entry.is_link;
    return enter(w, links, err);
}

int hy_fs_walk(const char *url, const struct hy_fs_walk *how, struct hy_err *err)
{
    cleanup_walk struct walk w = {.how = how, .top = url};
    struct hy_err own = {0};
    int rc;

    err = err ? err : &own;
    hy_buf_init(&w.path, HY_FS_PATH_MAX);
    w.levels = hy_reallocarray(NULL, DEPTH_MAX, sizeof(*w.levels));
    rc = w.levels ? enter(&w, 0, err) : hy_err_oom(err);
    while (rc == 0 && w.depth)
        rc = step(&w, err);
    return rc;
}
