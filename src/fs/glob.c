/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expands a pattern component by component; only directories whose components are
 * patterns are listed. All matches are collected before the first callback, so
 * that the callback may remove files.
 */
#include "fs/glob_pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/string_list.h"
#include "fs/fs.h"

#define URL_MAX 65536
#define HELD_MAX (512u << 20)  /* bytes of matches and of directories still to be searched */
#define HELD_OVERHEAD 64u      /* of the allocator, for each */

struct found {
    char *url;
    struct hy_fs_info info;
};

struct search {
    struct found *list;
    size_t count;
    size_t held;         /* bytes */
    const char *pattern; /* as given by the caller */
    struct hy_err *err;
    int rc; /* already reported in err */
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

static int count_held(struct search *s, size_t bytes)
{
    s->held += bytes;
    if (s->held <= HELD_MAX)
        return 0;
    return hy_err_set(s->err, -E2BIG, "%s matches too many names; use a narrower pattern", s->pattern);
}

/* Takes the strings of `info`. */
static int add(struct search *s, const char *url, struct hy_fs_info *info)
{
    struct found *f;
    int rc = count_held(s, sizeof *f + strlen(url) + strlen(info->name) + strlen(info->owner) + strlen(info->group) +
                               HELD_OVERHEAD);

    if (rc < 0)
        return rc;
    if (hy_array_grow(s->list, s->count) < 0)
        return hy_err_oom(s->err);
    f = &s->list[s->count];
    f->url = hy_strdup(url);
    if (!f->url)
        return hy_err_oom(s->err);
    f->info = *info;
    *info = (struct hy_fs_info){0};
    s->count++;
    return 0;
}

/* A path that does not exist, or leads through a file, does not match; that is not an error. */
static int ignore_missing(int rc, struct hy_err *err)
{
    if (rc != -ENOENT && rc != -ENOTDIR)
        return rc;
    if (err)
        *err = (struct hy_err){0};
    return 0;
}

static int add_if_exists(struct search *s, const char *url, bool only_directories)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc = hy_fs_stat(url, &info, s->err);

    if (rc < 0)
        return ignore_missing(rc, s->err);
    return only_directories && !info.is_dir ? 0 : add(s, url, &info);
}

static int append_component(struct hy_buf *url, const char *name)
{
    int rc = 0;

    if (url->len && hy_buf_bytes(url)[url->len - 1] != '/')
        rc = hy_buf_append_str(url, "/");
    return rc < 0 ? rc : hy_buf_append_str(url, name);
}

/* ---- a component that is a pattern ------------------------------------------------------ */

struct component {
    struct search *search;
    struct hy_glob *glob;
    const char *directory; /* "": the working directory */
    const char *after;  /* the rest of the pattern */
    struct hy_string_list directories; /* matches, searched after the listing */
};

static size_t directory_size(const char *url)
{
    return sizeof(char *) + strlen(url) + HELD_OVERHEAD;
}

static void component_done(struct component *p)
{
    for (size_t i = 0; i < p->directories.count; i++)
        p->search->held -= directory_size(p->directories.items[i]);
    hy_string_list_done(&p->directories);
    hy_glob_free(p->glob);
}

#define cleanup_component __attribute__((cleanup(component_done)))

static int walk(struct search *s, const char *directory, const char *rest);

static int hold(struct component *p, const char *url)
{
    if (hy_string_list_add(&p->directories, url) < 0)
        return hy_err_oom(p->search->err);
    return count_held(p->search, directory_size(url));
}

static int visit(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    struct component *p = arg;
    const bool is_last = !p->after[strspn(p->after, "/")];
    hy_cleanup_buf struct hy_buf url;

    hy_buf_init(&url, URL_MAX);
    if (!hy_glob_matches(p->glob, entry->name, strlen(entry->name)) || (*p->after && !entry->is_dir))
        return 0;
    if (hy_buf_append_str(&url, p->directory) < 0 || append_component(&url, entry->name) < 0 || !hy_buf_cstr(&url))
        return hy_err_oom(err);
    return is_last ? add(p->search, hy_buf_cstr(&url), entry) : hold(p, hy_buf_cstr(&url));
}

static int bad_pattern(const struct search *s, int rc)
{
    if (rc == -EINVAL)
        return hy_err_set(s->err, rc, "invalid pattern %s: a [ or { is not closed (\\[ is the character itself)",
                          s->pattern);
    if (rc == -E2BIG)
        return hy_err_set(s->err, rc, "%s expands to too many patterns; give fewer alternatives that contain a /",
                          s->pattern);
    return hy_err_sys(s->err, rc, "cannot search for a pattern of %zu characters", strlen(s->pattern));
}

static int list_matches(struct search *s, const char *directory, const char *part, size_t n)
{
    cleanup_component struct component p = {.search = s, .directory = directory, .after = part + n};
    int rc = hy_glob_new(part, n, &p.glob);

    if (rc < 0)
        return bad_pattern(s, rc);
    rc = ignore_missing(hy_fs_list(*directory ? directory : ".", visit, &p, s->err), s->err);
    for (size_t i = 0; i < p.directories.count && rc == 0; i++)
        rc = walk(s, p.directories.items[i], p.after);
    return rc;
}

/* ---- components that are not patterns ----------------------------------------------------------------- */

/* Appends components up to the first pattern; *rest then is that pattern, or the end. */
static int append_plain(struct hy_buf *url, const char **rest)
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
        rc = name ? append_component(url, name) : -ENOMEM;
        if (rc < 0)
            return rc;
        *rest += n;
    }
}

static int walk(struct search *s, const char *directory, const char *rest)
{
    const size_t n = strlen(rest);
    const bool only_directories = n && rest[n - 1] == '/';
    hy_cleanup_buf struct hy_buf url;

    hy_buf_init(&url, URL_MAX);
    if (hy_buf_append_str(&url, directory) < 0 || append_plain(&url, &rest) < 0 || !hy_buf_cstr(&url))
        return hy_err_oom(s->err);
    if (!*rest)
        return add_if_exists(s, hy_buf_cstr(&url), only_directories);
    return list_matches(s, hy_buf_cstr(&url), rest, strcspn(rest, "/"));
}

static int search_one(void *arg, const char *pattern)
{
    struct search *s = arg;
    const size_t root = hy_url_root(pattern);
    hy_cleanup_free char *start = hy_strndup(pattern, root);

    if (!start)
        return s->rc = hy_err_oom(s->err);
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
