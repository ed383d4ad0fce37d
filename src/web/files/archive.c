/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar, in blocks of 512 bytes:
 *
 *     offset  size
 *          0   100  path
 *        100     8  mode, octal, as all numbers: digits and a NUL
 *        108    16  user and group ID: 0
 *        124    12  size
 *        136    12  modification time in seconds
 *        148     8  sum of all bytes of the block, with spaces here
 *        156     1  '0' file, '5' directory, 'x' extended header of the next entry
 *        257     8  "ustar" NUL "00"
 *
 * The contents follow, filled up to whole blocks. An extended header contains lines "LENGTH path=…\n". Two blocks of
 * zeros are the end. All sizes are known before the first byte is sent, and so is the length of the archive.
 */
#include "web/files/archive.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/mem.h"
#include "web/files/served_dir.h"

#define BLOCK 512u
#define CHUNK (256u << 10)
#define PLAN_MAX (64u << 20) /* bytes of paths */
#define SIZE_FITS (1ull << 33)

/* ---- the format -------------------------------------------------------------------------------- */

static size_t padding(uint64_t size)
{
    return (size_t)(-size & (BLOCK - 1));
}

static int append_zeros(struct hy_buf *b, size_t n)
{
    static const char zeros[2 * BLOCK];

    return hy_buf_append(b, zeros, n) < 0 ? -ENOMEM : 0;
}

/* The fields of a block have fixed lengths: longer values are truncated. */
static int append_block(struct hy_buf *b, const char *path, char type, uint64_t size, const struct hy_tar_entry *e)
{
    char block[BLOCK + 1] = {0};
    unsigned sum = 0;
    const size_t n = strlen(path);

    memcpy(block, path, n < 100 ? n : 100);
    snprintf(block + 100, 8, "%07o", e->mode & 0777);
    snprintf(block + 108, 8, "%07o", 0u);
    snprintf(block + 116, 8, "%07o", 0u);
    snprintf(block + 124, 12, "%011llo", (unsigned long long)(size < SIZE_FITS ? size : 0));
    snprintf(block + 136, 12, "%011llo",
             e->modified_ms > 0 ? (unsigned long long)e->modified_ms / 1000 % SIZE_FITS : 0);
    memset(block + 148, ' ', 8);
    block[156] = type;
    memcpy(block + 257, "ustar\00000", 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum & 0777777);
    return hy_buf_append(b, block, BLOCK) < 0 ? -ENOMEM : 0;
}

/* "LENGTH key=value\n", where the length counts its own digits. */
static int append_record(struct hy_buf *b, const char *key, const char *value)
{
    const size_t rest = strlen(key) + strlen(value) + 3;
    size_t n = rest + 1;

    while (n != rest + (size_t)snprintf(NULL, 0, "%zu", n))
        n = rest + (size_t)snprintf(NULL, 0, "%zu", n);
    return hy_buf_printf(b, "%zu %s=%s\n", n, key, value) < 0 ? -ENOMEM : 0;
}

static int append_extended(struct hy_buf *b, const struct hy_tar_entry *e, const char *path)
{
    hy_cleanup_buf struct hy_buf records;
    char size[24];
    int rc;

    hy_buf_init(&records, SIZE_MAX);
    snprintf(size, sizeof size, "%llu", (unsigned long long)e->size);
    rc = append_record(&records, "path", path);
    if (rc == 0 && e->size >= SIZE_FITS)
        rc = append_record(&records, "size", size);
    if (rc == 0)
        rc = append_block(b, "extended", 'x', records.len, e);
    if (rc == 0)
        rc = hy_buf_append(b, hy_buf_bytes(&records), records.len) < 0 ? -ENOMEM : 0;
    return rc == 0 ? append_zeros(b, padding(records.len)) : rc;
}

static bool is_plain(const char *path)
{
    for (; *path; path++)
        if ((unsigned char)*path >= 0x80)
            return false;
    return true;
}

int hy_tar_append_header(struct hy_buf *b, const struct hy_tar_entry *e)
{
    hy_cleanup_free char *path = hy_asprintf("%s%s", e->path, e->is_dir ? "/" : "");
    int rc = path ? 0 : -ENOMEM;

    if (rc == 0 && (strlen(path) > 99 || e->size >= SIZE_FITS || !is_plain(path)))
        rc = append_extended(b, e, path);
    return rc == 0 ? append_block(b, path, e->is_dir ? '5' : '0', e->size, e) : rc;
}

/* ---- the contents ------------------------------------------------------------------------------- */

struct archive {
    struct hy_reply_source source;
    struct hy_served_dir dir;
    char *top; /* the directory; paths in the archive start with its last name */
    size_t skipped; /* bytes of `top` that precede that name */
    struct hy_tar_entry *list; /* owns its paths */
    size_t count, next, held;
    uint64_t size;
    struct hy_fs_file *file; /* of the entry before `next`; NULL: none */
    uint64_t at; /* in that file */
};

static void close_file(struct archive *a)
{
    struct hy_err ignored = {0};

    if (a->file && hy_fs_close(hy_take(a->file), &ignored) < 0)
        ignored.code = 0; /* nothing was written */
}

static void archive_free(struct archive *a)
{
    close_file(a);
    for (size_t i = 0; i < a->count; i++)
        free((char *)(uintptr_t)a->list[i].path);
    free(a->list);
    free(a->top);
    hy_served_dir_done(&a->dir);
    free(a);
}

static void close_archive(struct hy_reply_source *s)
{
    archive_free(hy_container(s, struct archive, source));
}

static struct hy_tar_entry in_archive(const struct archive *a, const struct hy_tar_entry *e)
{
    struct hy_tar_entry named = *e;

    named.path += a->skipped;
    return named;
}

static int header_size(const struct archive *a, const struct hy_tar_entry *e, size_t *ret)
{
    const struct hy_tar_entry named = in_archive(a, e);
    struct hy_buf header;
    int rc;

    hy_buf_init(&header, SIZE_MAX);
    rc = hy_tar_append_header(&header, &named);
    *ret = header.len;
    hy_buf_done(&header);
    return rc;
}

static int plan_entry(void *arg, const char *path, const struct hy_fs_info *info, struct hy_err *err)
{
    struct archive *a = arg;
    struct hy_tar_entry e = {
        .size = info->size, .modified_ms = info->modified_ms, .mode = info->mode, .is_dir = info->is_dir};
    size_t header;

    if (info->is_link || info->is_special || hy_served_dir_is_share(path)) /* the data set of another project */
        return 0;
    a->held += strlen(path) + sizeof e;
    if (a->held > PLAN_MAX || e.size > INT64_MAX / 4 - a->size)
        return hy_err_set(err, -E2BIG,
                          "the directory is too large for one archive; download its subdirectories one by one");
    e.path = hy_strdup(path);
    if (!e.path || hy_array_grow(a->list, a->count) < 0) {
        free((char *)(uintptr_t)e.path);
        return hy_err_oom(err);
    }
    a->list[a->count++] = e;
    if (header_size(a, &e, &header) < 0)
        return hy_err_oom(err);
    a->size += header + e.size + padding(e.size);
    return 0;
}

static int open_entry(struct archive *a, const struct hy_tar_entry *e)
{
    hy_cleanup_free char *url = NULL;
    int rc = hy_served_dir_existing(&a->dir, e->path, &url, NULL);

    a->at = 0;
    return rc == 0 ? hy_fs_open(url, HY_FS_READ, &a->file, NULL) : rc;
}

static int begin_entry(struct archive *a, struct hy_buf *out)
{
    const struct hy_tar_entry *e = &a->list[a->next++];
    struct hy_tar_entry named = in_archive(a, e);
    int rc = hy_tar_append_header(out, &named);

    return rc < 0 || e->is_dir || e->size == 0 ? rc : open_entry(a, e);
}

static int append_contents(struct archive *a, struct hy_buf *out)
{
    const struct hy_tar_entry *e = &a->list[a->next - 1];
    const size_t n = e->size - a->at < CHUNK ? (size_t)(e->size - a->at) : CHUNK;
    uint8_t *room = hy_buf_reserve(out, n);
    int64_t got = room ? hy_fs_pread(a->file, room, n, a->at, NULL) : -ENOMEM;

    if (got < (int64_t)n) /* the file has become shorter */
        return got < 0 ? (int)got : -EIO;
    hy_buf_added(out, n);
    a->at += n;
    if (a->at < e->size)
        return 0;
    close_file(a);
    return append_zeros(out, padding(e->size));
}

static int read_archive(struct hy_reply_source *s, struct hy_buf *out)
{
    struct archive *a = hy_container(s, struct archive, source);
    int rc = 0;

    while (rc == 0 && out->len < CHUNK && (a->file || a->next < a->count))
        rc = a->file ? append_contents(a, out) : begin_entry(a, out);
    if (rc < 0)
        return rc;
    if (a->file || a->next < a->count)
        return 1;
    return append_zeros(out, 2 * BLOCK);
}

/* ---- the reply -------------------------------------------------------------------------------------- */

/* A version alone ("1" of "Models/mnist/1") is not a useful name: "mnist-1". */
static char *archive_name(const char *path, const char *root)
{
    const char *name = hy_served_dir_name(*path ? path : root);
    hy_cleanup_free char *parent = hy_served_dir_parent(path);

    if (parent && *parent && *name && strspn(name, "0123456789") == strlen(name))
        return hy_asprintf("%s-%s.tar", hy_served_dir_name(parent), name);
    return hy_asprintf("%s.tar", name);
}

static int add_fields(struct hy_exchange *x, const struct hy_served_dir *p, const char *path)
{
    hy_cleanup_free char *name = archive_name(path, p->root), *encoded = name ? hy_http_encode(name) : NULL;

    return encoded ? hy_http_add(&x->fields, "Content-Disposition", "attachment; filename*=UTF-8''%s", encoded)
                   : -ENOMEM;
}

void hy_archive_reply(struct hy_exchange *x, struct hy_served_dir *p, const char *path)
{
    struct archive *a = hy_calloc(1, sizeof *a);
    const struct hy_served_dir_walk how = {.visit = plan_entry, .arg = a, .skip_hidden = true};
    struct hy_err err = {0};
    int rc;

    if (!a || !(a->top = hy_strdup(path)) || add_fields(x, p, path) < 0) {
        hy_reply_error(x, 503, "out of memory");
        if (a)
            archive_free(a);
        return;
    }
    a->skipped = (size_t)(hy_served_dir_name(a->top) - a->top);
    rc = hy_served_dir_walk(p, path, &how, &err);
    if (rc < 0) {
        hy_served_dir_failure(x, p, &err);
        archive_free(a);
        return;
    }
    a->dir = *p; /* taken over */
    *p = (struct hy_served_dir){0};
    a->source =
        (struct hy_reply_source){.read = read_archive, .close = close_archive, .size = (int64_t)(a->size + 2 * BLOCK)};
    x->source = &a->source;
    hy_reply_bytes(x, 200, "application/x-tar", "", 0);
}
