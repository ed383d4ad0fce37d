/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a project or a trial: directories as JSON, and downloads. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/string_list.h"
#include "base/text.h"
#include "share/share.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/files/archive.h"
#include "web/files/served_dir.h"
#include "web/files/upload.h"

#define LIMIT_DEFAULT 500
#define LIMIT_MAX 1000
#define ENTRIES_MAX 1000000u
#define CHUNK (256u << 10)

/* ---- directories -------------------------------------------------------------------------------- */

struct listing {
    struct hy_fs_info *list;
    size_t count;
    struct hy_string_list abandoned; /* names of parts of uploads */
    int64_t now;
};

static void listing_done(struct listing *l)
{
    for (size_t i = 0; i < l->count; i++)
        hy_fs_info_done(&l->list[i]);
    free(l->list);
    hy_string_list_done(&l->abandoned);
}

#define cleanup_listing __attribute__((cleanup(listing_done)))

static int take_entry(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    struct listing *l = arg;

    if (hy_upload_is_abandoned(entry, l->now))
        return hy_string_list_add(&l->abandoned, entry->name) < 0 ? hy_err_oom(err) : 0;
    if (hy_served_dir_hides(entry->name))
        return 0;
    if (l->count == ENTRIES_MAX)
        return hy_err_set(err, -E2BIG, "the directory has more than %u entries, which are too many to show",
                          ENTRIES_MAX);
    if (hy_array_grow(l->list, l->count) < 0)
        return hy_err_oom(err);
    l->list[l->count++] = *entry;
    *entry = (struct hy_fs_info){0};
    return 0;
}

static bool is_directory(const struct hy_fs_info *e)
{
    return e->is_dir && !e->is_link;
}

/* Directories precede files. */
static int by_kind(const struct hy_fs_info *a, const struct hy_fs_info *b)
{
    return is_directory(b) - is_directory(a);
}

static int by_name(const void *a, const void *b)
{
    int order = by_kind(a, b);

    return order ? order : strcmp(((const struct hy_fs_info *)a)->name, ((const struct hy_fs_info *)b)->name);
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = ((const struct hy_fs_info *)a)->size, y = ((const struct hy_fs_info *)b)->size;
    int order = by_kind(a, b);

    return order ? order : x != y ? (x > y) - (x < y) : by_name(a, b);
}

static int by_time(const void *a, const void *b)
{
    const int64_t x = ((const struct hy_fs_info *)a)->modified_ms, y = ((const struct hy_fs_info *)b)->modified_ms;
    int order = by_kind(a, b);

    return order ? order : x != y ? (x > y) - (x < y) : by_name(a, b);
}

static void reverse(struct hy_fs_info *list, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        struct hy_fs_info other = list[i];

        list[i] = list[n - 1 - i];
        list[n - 1 - i] = other;
    }
}

/* "-size": the largest first; directories precede files in any order. */
static int sort_listing(struct hy_exchange *x, struct listing *l)
{
    hy_cleanup_free char *text = hy_http_parameter(x->request.query, "sort");
    const bool is_down = text && *text == '-';
    const char *key = !text ? "name" : text + is_down;
    int (*by)(const void *, const void *) = strcmp(key, "name") == 0       ? by_name
                                            : strcmp(key, "size") == 0     ? by_size
                                            : strcmp(key, "modified") == 0 ? by_time
                                                                           : NULL;
    size_t directories = 0;

    if (!by) {
        hy_reply_error(x, 400, "'sort' is name, size or modified, prefixed with '-' for descending order, not '%.100s'",
                       text);
        return -EINVAL;
    }
    if (l->count)
        qsort(l->list, l->count, sizeof *l->list, by);
    while (directories < l->count && is_directory(&l->list[directories]))
        directories++;
    if (is_down) {
        reverse(l->list, directories);
        reverse(l->list + directories, l->count - directories);
    }
    return 0;
}

/* The name of a share, if this file is the entry of one; otherwise NULL. */
static char *share_name(const struct hy_served_dir *p, const char *directory, const struct hy_fs_info *e)
{
    return strcmp(directory, HY_SERVED_DIR_SHARES) != 0 || e->is_dir || e->is_link || e->is_special
               ? NULL
               : hy_share_entry_name(p->root, e->name);
}

static const char *type_of(const struct hy_fs_info *e, const char *share)
{
    return share ? "share" : e->is_link ? "link" : e->is_dir ? "directory" : e->is_special ? "other" : "file";
}

/* Of a link only its name is known: what it leads to may be outside. */
static json_t *entry_json(const struct hy_fs_info *e, const char *share)
{
    const char *name = share ? share : e->name;
    hy_cleanup_free char *encoded = hy_http_encode(name);
    json_t *o = encoded ? json_object() : NULL;
    int rc = 0;

    rc |= hy_json_set(o, "name", hy_json_text(name));
    rc |= hy_json_set(o, "encoded", json_string(encoded ? encoded : ""));
    rc |= hy_json_set(o, "type", json_string(type_of(e, share)));
    if (!e->is_link) {
        rc |= hy_json_set(o, "size", json_integer((json_int_t)e->size));
        rc |= hy_json_set(o, "modified", json_integer(e->modified_ms));
        rc |= hy_json_set(o, "owner", hy_json_text(e->owner));
        rc |= hy_json_set(o, "mode", json_integer(e->mode));
    }
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}

static void reply_listing(struct hy_exchange *x, const struct hy_served_dir *p, const char *path,
                          const struct listing *l, uint64_t offset, uint64_t limit)
{
    hy_cleanup_free char *address = hy_served_dir_address(p, path);
    json_t *entries = json_array(), *o = json_object();
    int rc = 0;

    for (size_t i = offset < l->count ? (size_t)offset : l->count; rc == 0 && i < l->count && i - offset < limit; i++) {
        hy_cleanup_free char *share = share_name(p, path, &l->list[i]);

        rc = hy_json_append(entries, entry_json(&l->list[i], share));
    }
    rc |= hy_json_set(o, "path", hy_json_text(path));
    rc |= hy_json_set(o, "address", address ? hy_json_text(address) : NULL);
    rc |= hy_json_set(o, "count", json_integer((json_int_t)l->count));
    rc |= hy_json_set(o, "entries", entries);
    if (rc < 0) {
        json_decref(o);
        o = NULL;
    }
    hy_reply_json(x, o);
}

/* Parts of abandoned uploads. What cannot be removed is tried again the next time. */
static void remove_abandoned(struct hy_served_dir *p, const char *directory, const struct hy_string_list *names)
{
    for (size_t i = 0; i < names->count; i++) {
        hy_cleanup_free char *path = hy_served_dir_join(directory, names->items[i]), *url = NULL;
        struct hy_err err = {0};

        if (path && hy_served_dir_entry(p, path, &url, &err) == 0 && hy_fs_remove(url, false, &err) < 0)
            err.code = 0;
    }
}

static void list_directory(struct hy_exchange *x, struct hy_served_dir *p, bool may_be_missing)
{
    cleanup_listing struct listing l = {.now = hy_clock_wall_ms()};
    hy_cleanup_free char *path = NULL, *url = NULL;
    uint64_t offset = 0, limit = LIMIT_DEFAULT;
    struct hy_err err = {0};
    int rc;

    if (hy_served_dir_parameter(x, "path", &path) < 0 || hy_api_number(x, "offset", INT64_MAX, &offset) < 0 ||
        hy_api_number(x, "limit", LIMIT_MAX, &limit) < 0)
        return;
    rc = hy_served_dir_existing(p, path, &url, &err);
    if (rc == 0)
        rc = hy_fs_list(url, take_entry, &l, &err);
    if (rc < 0 && !(rc == -ENOENT && may_be_missing && !*path)) {
        hy_served_dir_failure(x, p, &err);
        return;
    }
    remove_abandoned(p, path, &l.abandoned);
    if (sort_listing(x, &l) == 0)
        reply_listing(x, p, path, &l, offset, limit);
}

void hy_api_files(struct hy_exchange *x)
{
    hy_cleanup_served_dir struct hy_served_dir p = {0};

    if (hy_served_dir_of_project(x, &p) == 0)
        list_directory(x, &p, false);
}

void hy_api_trial_files(struct hy_exchange *x)
{
    hy_cleanup_served_dir struct hy_served_dir p = {0};

    if (hy_served_dir_of_trial(x, &p) == 0)
        list_directory(x, &p, true); /* a trial that has not started yet, or whose files were removed, has none */
}

/* ---- downloads ---------------------------------------------------------------------------------- */

struct download {
    struct hy_reply_source source;
    struct hy_fs_file *file;
    uint64_t at, end;
};

static int read_download(struct hy_reply_source *s, struct hy_buf *out)
{
    struct download *d = hy_container(s, struct download, source);
    size_t n = d->end - d->at < CHUNK ? (size_t)(d->end - d->at) : CHUNK;
    uint8_t *room = hy_buf_reserve(out, n ? n : 1);
    int64_t got;

    if (!room)
        return -ENOMEM;
    got = n ? hy_fs_pread(d->file, room, n, d->at, NULL) : 0;
    if (got < (int64_t)n) /* it has become shorter, or cannot be read: the length that was announced is wrong */
        return got < 0 ? (int)got : -EIO;
    hy_buf_added(out, n);
    d->at += n;
    return d->at < d->end;
}

static void close_download(struct hy_reply_source *s)
{
    struct download *d = hy_container(s, struct download, source);
    struct hy_err ignored = {0};

    if (hy_fs_close(d->file, &ignored) < 0)
        ignored.code = 0; /* nothing was written */
    free(d);
}

static int add_fields(struct hy_exchange *x, const char *path, const char *tag)
{
    hy_cleanup_free char *name = hy_http_encode(hy_served_dir_name(path));
    const char *kind = hy_served_dir_image_type(path) ? "inline" : "attachment";
    int rc = name ? hy_http_add(&x->fields, "Content-Disposition", "%s; filename*=UTF-8''%s", kind, name) : -ENOMEM;

    if (rc == 0) /* in addition to the policy of all replies */
        rc = hy_http_add(&x->fields, "Content-Security-Policy", "sandbox");
    if (rc == 0)
        rc = hy_http_add(&x->fields, "Accept-Ranges", "bytes");
    return rc == 0 ? hy_http_add(&x->fields, "ETag", "%s", tag) : rc;
}

/* The part of the file that the request asks for; otherwise -Exxx, and the reply is set. */
static int select_range(struct hy_exchange *x, const char *tag, uint64_t size, uint64_t *ret_start, uint64_t *ret_end)
{
    const char *range = hy_http_field(&x->request, "range"), *condition = hy_http_field(&x->request, "if-range");
    int rc = range && (!condition || strcmp(condition, tag) == 0) ? hy_http_range(range, size, ret_start, ret_end) : 0;

    x->status = 200;
    if (rc == -ERANGE) {
        hy_reply_error(x, 416, "the file has %llu bytes", (unsigned long long)size);
        rc = hy_http_add(&x->fields, "Content-Range", "bytes */%llu", (unsigned long long)size);
        return rc < 0 ? rc : -ERANGE;
    }
    if (rc == 0) {
        *ret_start = 0;
        *ret_end = size;
        return 0;
    }
    x->status = 206;
    return hy_http_add(&x->fields, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long)*ret_start,
                       (unsigned long long)*ret_end - 1, (unsigned long long)size);
}

/* Takes the file. */
static void reply_file(struct hy_exchange *x, const char *path, const struct hy_fs_info *info, struct hy_fs_file *file)
{
    struct download *d = hy_calloc(1, sizeof *d);
    const uint64_t size = hy_fs_size(file);
    struct hy_err ignored = {0};
    char tag[64];

    snprintf(tag, sizeof tag, "\"%llx-%llx\"", (unsigned long long)info->modified_ms, (unsigned long long)size);
    if (!d || select_range(x, tag, size, &d->at, &d->end) < 0 || add_fields(x, path, tag) < 0) {
        if (x->status < 400)
            hy_reply_error(x, 503, "out of memory");
        if (hy_fs_close(file, &ignored) < 0)
            ignored.code = 0;
        free(d);
        return;
    }
    d->file = file;
    d->source =
        (struct hy_reply_source){.read = read_download, .close = close_download, .size = (int64_t)(d->end - d->at)};
    x->source = &d->source; /* from here on the exchange closes it */
    hy_reply_bytes(x, x->status,
                   hy_served_dir_image_type(path) ? hy_served_dir_image_type(path) : "application/octet-stream", "", 0);
}

static void send_file(struct hy_exchange *x, struct hy_served_dir *p)
{
    hy_cleanup_free char *path = NULL, *url = NULL;
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    struct hy_fs_file *file = NULL;
    struct hy_err err = {0};
    int rc;

    if (hy_served_dir_parameter(x, "path", &path) < 0)
        return;
    rc = hy_served_dir_existing(p, path, &url, &err);
    if (rc == 0)
        rc = hy_fs_stat(url, &info, &err);
    if (rc == 0 && info.is_dir) {
        hy_archive_reply(x, p, path);
        return;
    }
    if (rc == 0)
        rc = hy_fs_open(url, HY_FS_READ, &file, &err);
    if (rc < 0)
        hy_served_dir_failure(x, p, &err);
    else
        reply_file(x, path, &info, file);
}

void hy_api_file_content(struct hy_exchange *x)
{
    hy_cleanup_served_dir struct hy_served_dir p = {0};

    if (hy_served_dir_of_project(x, &p) == 0)
        send_file(x, &p);
}

void hy_api_trial_file_content(struct hy_exchange *x)
{
    hy_cleanup_served_dir struct hy_served_dir p = {0};

    if (hy_served_dir_of_trial(x, &p) == 0)
        send_file(x, &p);
}
