/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns of paths, part by part: what is no pattern is not listed. All matches
 * are known before the first is told, so that it can be removed.
 */
#include "fs/glob_pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "fs/fs.h"

#define URL_MAX 65536
#define HELD_MAX (512u << 20)  /* bytes of matches, and of folders that wait to be searched */
#define HELD_OVERHEAD 64u      /* of the allocator, for each */

struct found {
    char *url;
    struct hy_fs_info info;
};

struct search {
    struct found *list;
    size_t count, room;
    size_t held;         /* bytes */
    const char *pattern; /* as it was given */
    struct hy_err *err;
    int rc; /* what has been told in err */
};

static void search_done(struct search *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->list[i].url);
        hy_fs_info_done(&s->list[i].info);
    }
    free(s->list);
}

#define cleanup_search __attribute__((cleanup(search_done)))

static int no_memory(struct hy_err *err)
{
    return hy_err_oom(err);
}

static int count_held(struct search *s, size_t bytes)
{
    s->held += bytes;
    if (s->held <= HELD_MAX)
        return 0;
    return hy_err_set(s->err, -E2BIG, "%s matches too many names; use a narrower pattern",
                      s->pattern);
}

/* Takes what `info` holds. */
static int add(struct search *s, const char *url, struct hy_fs_info *info)
{
    struct found *f;
    int rc = count_held(s, sizeof *f + strlen(url) + strlen(info->name) + strlen(info->owner) + strlen(info->group) +
                               HELD_OVERHEAD);

    if (rc < 0)
        return rc;
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct found *list = hy_reallocarray(s->list, room, sizeof *list);

        if (!list)
            return no_memory(s->err);
        s->list = list;
        s->room = room;
    }
    f = &s->list[s->count];
    f->url = hy_strdup(url);
    if (!f->url)
        return no_memory(s->err);
    f->info = *info;
    *info = (struct hy_fs_info){0};
    s->count++;
    return 0;
}

/* What is not there, or lies in a file, does not match; that is no error. */
static int forgive(int rc, struct hy_err *err)
{
    if (rc != -ENOENT && rc != -ENOTDIR)
        return rc;
    if (err)
        *err = (struct hy_err){0};
    return 0;
}

static int add_if_there(struct search *s, const char *url, bool only_folders)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc = hy_fs_stat(url, &info, s->err);

    if (rc < 0)
        return forgive(rc, s->err);
    return only_folders && !info.is_dir ? 0 : add(s, url, &info);
}

static int append_part(struct hy_buf *url, const char *name)
{
    int rc = 0;

    if (url->len && hy_buf_bytes(url)[url->len - 1] != '/')
        rc = hy_buf_append_str(url, "/");
    return rc < 0 ? rc : hy_buf_append_str(url, name);
}

/* ---- a part that is a pattern ------------------------------------------------------ */

struct part {
    struct search *search;
    struct hy_glob *glob;
    const char *folder; /* "": where we are */
    const char *after;  /* what follows it in the pattern */
    char **folders;     /* that match, and are searched when the listing is over */
    size_t count, room;
};

static size_t folder_size(const char *url)
{
    return sizeof(char *) + strlen(url) + HELD_OVERHEAD;
}

static void part_done(struct part *p)
{
    for (size_t i = 0; i < p->count; i++) {
        p->search->held -= folder_size(p->folders[i]);
        free(p->folders[i]);
    }
    free(p->folders);
    hy_glob_free(p->glob);
}

#define cleanup_part __attribute__((cleanup(part_done)))

static int walk(struct search *s, const char *folder, const char *rest);

static int hold(struct part *p, const char *url)
{
    if (p->count == p->room) {
        const size_t room = p->room ? 2 * p->room : 16;
        char **folders = hy_reallocarray(p->folders, room, sizeof *folders);

        if (!folders)
            return no_memory(p->search->err);
        p->folders = folders;
        p->room = room;
    }
    p->folders[p->count] = hy_strdup(url);
    if (!p->folders[p->count])
        return no_memory(p->search->err);
    p->count++;
    return count_held(p->search, folder_size(url));
}

static int visit(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    struct part *p = arg;
    const bool is_last = !p->after[strspn(p->after, "/")];
    hy_cleanup_buf struct hy_buf url;

    hy_buf_init(&url, URL_MAX);
    if (!hy_glob_matches(p->glob, entry->name, strlen(entry->name)) || (*p->after && !entry->is_dir))
        return 0;
    if (hy_buf_append_str(&url, p->folder) < 0 || append_part(&url, entry->name) < 0 || !hy_buf_cstr(&url))
        return no_memory(err);
    return is_last ? add(p->search, hy_buf_cstr(&url), entry) : hold(p, hy_buf_cstr(&url));
}

static int bad_pattern(const struct search *s, int rc)
{
    if (rc == -EINVAL)
        return hy_err_set(s->err, rc, "%s is no pattern: a [ or { in it is not closed (\\[ is the character itself)",
                          s->pattern);
    if (rc == -E2BIG)
        return hy_err_set(s->err, rc, "%s stands for too many patterns; give fewer alternatives with a / in them",
                          s->pattern);
    return hy_err_sys(s->err, rc, "cannot look for a pattern of %zu characters", strlen(s->pattern));
}

static int list_matches(struct search *s, const char *folder, const char *part, size_t n)
{
    cleanup_part struct part p = {.search = s, .folder = folder, .after = part + n};
    int rc = hy_glob_new(part, n, &p.glob);

    if (rc < 0)
        return bad_pattern(s, rc);
    rc = forgive(hy_fs_list(*folder ? folder : ".", visit, &p, s->err), s->err);
    for (size_t i = 0; i < p.count && rc == 0; i++)
        rc = walk(s, p.folders[i], p.after);
    return rc;
}

/* ---- the way to it ----------------------------------------------------------------- */

/* Goes over the parts that are none; *rest is then the first that is one, or the end. */
static int follow(struct hy_buf *url, const char **rest)
{
    for (;;) {
        hy_cleanup_free char *name = NULL;
        size_t n;
        int rc;

        *rest += strspn(*rest, "/");
        n = strcspn(*rest, "/");
        if (n == 0 || hy_glob_is_pattern(*rest, n))
            return 0;
        name = hy_glob_unescape(*rest, n);
        rc = name ? append_part(url, name) : -ENOMEM;
        if (rc < 0)
            return rc;
        *rest += n;
    }
}

static int walk(struct search *s, const char *folder, const char *rest)
{
    const size_t n = strlen(rest);
    const bool only_folders = n && rest[n - 1] == '/';
    hy_cleanup_buf struct hy_buf url;

    hy_buf_init(&url, URL_MAX);
    if (hy_buf_append_str(&url, folder) < 0 || follow(&url, &rest) < 0 || !hy_buf_cstr(&url))
        return no_memory(s->err);
    if (!*rest)
        return add_if_there(s, hy_buf_cstr(&url), only_folders);
    return list_matches(s, hy_buf_cstr(&url), rest, strcspn(rest, "/"));
}

static int search_one(void *arg, const char *pattern)
{
    struct search *s = arg;
    const size_t root = hy_url_root(pattern);
    hy_cleanup_free char *start = hy_strndup(pattern, root);

    if (!start)
        return s->rc = no_memory(s->err);
    return s->rc = *pattern ? walk(s, start, pattern + root) : 0;
}

static int by_url(const void *a, const void *b)
{
    return strcmp(((const struct found *)a)->url, ((const struct found *)b)->url);
}

int hy_fs_glob(const char *pattern, hy_fs_match *match, void *arg, struct hy_err *err)
{
    struct hy_err own = {0};
    cleanup_search struct search s = {.pattern = pattern, .err = err ? err : &own};
    int rc = hy_glob_expand(pattern, search_one, &s);

    if (rc < 0)
        return s.rc < 0 ? rc : bad_pattern(&s, rc);
    if (s.count)
        qsort(s.list, s.count, sizeof *s.list, by_url);
    for (size_t i = 0; i < s.count && rc == 0; i++)
        if (i == 0 || strcmp(s.list[i].url, s.list[i - 1].url) != 0)
            rc = match(arg, s.list[i].url, &s.list[i].info, err);
    return rc;
}
