/* SPDX-License-Identifier: Apache-2.0 */
#include "web/files/upload.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/files/served_dir.h"

#define PREFIX ".hopyard-"
#define SUFFIX ".upload"
#define ABANDONED_MS (24 * 3600 * 1000ll)
#define BUSY_MAX 16

struct upload {
    struct hy_served_dir dir;
    char *path; /* of the target */
    char *part; /* of what has arrived */
    uint64_t key;
    uint64_t size, modified;
    bool overwrite;
};

static void upload_done(struct upload *u)
{
    hy_served_dir_done(&u->dir);
    free(u->path);
    free(u->part);
}

#define cleanup_upload __attribute__((cleanup(upload_done)))

bool hy_upload_is_abandoned(const struct hy_fs_info *entry, int64_t now_ms)
{
    const size_t n = strlen(entry->name), suffix = strlen(SUFFIX);

    return !entry->is_dir && !entry->is_link && strncmp(entry->name, PREFIX, strlen(PREFIX)) == 0 && n > suffix &&
           strcmp(entry->name + n - suffix, SUFFIX) == 0 && now_ms - entry->modified_ms > ABANDONED_MS;
}

/* ---- one request at a time for each upload ------------------------------------------------------------ */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t busy[BUSY_MAX];
static size_t busy_count;

/* 0, -EBUSY when another request writes to the same upload, or -EAGAIN when there are too many. */
static int claim(uint64_t key)
{
    int rc = 0;

    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < busy_count && rc == 0; i++)
        rc = busy[i] == key ? -EBUSY : 0;
    if (rc == 0 && busy_count == BUSY_MAX)
        rc = -EAGAIN;
    if (rc == 0)
        busy[busy_count++] = key;
    pthread_mutex_unlock(&mutex);
    return rc;
}

static void release(uint64_t key)
{
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < busy_count; i++)
        if (busy[i] == key)
            busy[i] = busy[--busy_count];
    pthread_mutex_unlock(&mutex);
}

/* ---- the upload of a request -------------------------------------------------------------------------- */

static int required_number(struct hy_exchange *x, const char *name, uint64_t *ret)
{
    *ret = UINT64_MAX;
    if (hy_api_number(x, name, INT64_MAX, ret) < 0)
        return -EINVAL;
    if (*ret != UINT64_MAX)
        return 0;
    hy_reply_error(x, 400, "the parameter '%s' is missing (a number)", name);
    return -EINVAL;
}

static int name_part(struct upload *u)
{
    hy_cleanup_free char *parent = hy_served_dir_parent(u->path), *name = NULL;
    hy_cleanup_free char *identity = hy_asprintf("%s\n%s\n%llu\n%llu", u->dir.root, u->path,
                                                 (unsigned long long)u->size, (unsigned long long)u->modified);

    if (!parent || !identity)
        return -ENOMEM;
    u->key = hy_hash(identity, strlen(identity));
    name = hy_asprintf(PREFIX "%016llx" SUFFIX, (unsigned long long)u->key);
    u->part = name ? hy_served_dir_join(parent, name) : NULL;
    return u->part ? 0 : -ENOMEM;
}

/* Otherwise -Exxx, and the reply is set. */
static int find_upload(struct hy_exchange *x, struct upload *ret)
{
    ret->overwrite = hy_api_flag(x, "overwrite");
    if (hy_served_dir_required(x, "path", &ret->path) < 0 || required_number(x, "size", &ret->size) < 0 ||
        required_number(x, "modified", &ret->modified) < 0 || hy_served_dir_of_project(x, &ret->dir) < 0)
        return -EINVAL;
    if (name_part(ret) == 0)
        return 0;
    hy_reply_error(x, 503, "out of memory");
    return -ENOMEM;
}

/* What has arrived. 1, 0 when nothing has (*ret is 0), or -Exxx. */
static int arrived(struct upload *u, uint64_t *ret, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    hy_cleanup_free char *url = NULL;
    int rc = hy_served_dir_existing(&u->dir, u->part, &url, err);

    if (rc == 0)
        rc = hy_fs_stat(url, &info, err);
    if (rc == 0 && info.is_dir)
        return hy_err_set(err, -EISDIR, "%s/%s is in the way: remove it", u->dir.root, u->part);
    *ret = rc == 0 ? info.size : 0;
    return rc == 0 ? 1 : rc == -ENOENT ? 0 : rc;
}

static int check_target(struct upload *u, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    hy_cleanup_free char *url = NULL, *parent = hy_served_dir_parent(u->path), *above = NULL;
    int rc = hy_served_dir_check_new(u->path, err);

    if (rc == 0)
        rc = parent ? hy_served_dir_existing(&u->dir, parent, &above, err) : hy_err_oom(err);
    if (rc == 0)
        rc = hy_served_dir_entry(&u->dir, u->path, &url, err);
    if (rc == 0)
        rc = hy_fs_stat(url, &info, err);
    if (rc == -ENOENT && url)
        return 0;
    if (rc < 0)
        return rc;
    if (info.is_dir && !info.is_link)
        return hy_err_set(err, -EEXIST, "'%s' is a directory", u->path);
    return u->overwrite ? 0 : hy_err_set(err, -EEXIST, "'%s' already exists", u->path);
}

static int check_space(struct upload *u, uint64_t needed, struct hy_err *err)
{
    struct hy_fs_space space = {0};
    hy_cleanup_free char *parent = hy_served_dir_parent(u->path), *url = NULL;
    char need[32], have[32];
    int rc = parent ? hy_served_dir_existing(&u->dir, parent, &url, err) : hy_err_oom(err);

    if (rc == 0)
        rc = hy_fs_space(url, &space, err);
    if (rc < 0 || needed <= space.free)
        return rc;
    return hy_err_set(err, -ENOSPC, "'%s' needs %s more, and the disk has %s left", u->path,
                      hy_format_size(needed, need, sizeof need), hy_format_size(space.free, have, sizeof have));
}

/* ---- POST /files/uploads -------------------------------------------------------------------------------- */

void hy_api_upload_start(struct hy_exchange *x)
{
    cleanup_upload struct upload u = {0};
    struct hy_err err = {0};
    uint64_t offset = 0;
    int rc;

    if (find_upload(x, &u) < 0)
        return;
    rc = check_target(&u, &err);
    if (rc == 0)
        rc = arrived(&u, &offset, &err);
    if (rc >= 0)
        rc = check_space(&u, u.size > offset ? u.size - offset : 0, &err);
    if (rc < 0)
        hy_served_dir_failure(x, &u.dir, &err);
    else
        hy_reply_json(x, json_pack("{s:I,s:i}", "offset", (json_int_t)offset, "piece", HY_UPLOAD_PIECE_MAX));
}

/* ---- PATCH /files/uploads: a piece ------------------------------------------------------------------------ */

static int open_part(struct upload *u, bool is_new, struct hy_fs_file **ret, struct hy_err *err)
{
    hy_cleanup_free char *url = NULL;
    int rc = is_new ? hy_served_dir_entry(&u->dir, u->part, &url, err)
                    : hy_served_dir_existing(&u->dir, u->part, &url, err);

    return rc == 0 ? hy_fs_open(url, is_new ? HY_FS_CREATE : HY_FS_APPEND, ret, err) : rc;
}

static int write_piece(struct upload *u, const struct hy_buf *bytes, bool is_new, bool is_last, struct hy_err *err)
{
    struct hy_fs_file *file = NULL;
    struct hy_err second = {0};
    int rc = open_part(u, is_new, &file, err), closed;

    if (rc < 0)
        return rc;
    rc = bytes->len ? hy_fs_write(file, hy_buf_bytes(bytes), bytes->len, err) : 0;
    if (rc == 0 && is_last)
        rc = hy_fs_flush(file, true, err);
    closed = hy_fs_close(file, &second);
    if (rc == 0 && closed < 0)
        *err = second;
    return rc == 0 ? closed : rc;
}

/* Another server of the project may have written to the same part. */
static int check_part(const char *url, const struct upload *u, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc = hy_fs_stat(url, &info, err);

    if (rc < 0 || info.size == u->size)
        return rc;
    if (hy_fs_remove(url, false, err) < 0)
        return err->code;
    return hy_err_set(err, -EIO,
                      "'%s' has received %llu bytes instead of %llu, perhaps by two servers at once; send it again",
                      u->path, (unsigned long long)info.size, (unsigned long long)u->size);
}

/* The target is beside the part, in the same open directory. */
static int finish(struct upload *u, struct hy_err *err)
{
    hy_cleanup_free char *from = NULL, *directory = NULL, *to = NULL;
    int rc = hy_served_dir_entry(&u->dir, u->part, &from, err);

    if (rc == 0)
        rc = check_part(from, u, err);
    if (rc < 0)
        return rc;
    directory = hy_url_parent(from);
    to = directory ? hy_fs_join(directory, hy_served_dir_name(u->path)) : NULL;
    rc = to ? hy_fs_rename(from, to, u->overwrite, err) : hy_err_oom(err);
    if (rc == -EEXIST)
        hy_err_set(err, rc, "'%s' already exists", u->path);
    return rc;
}

/* The client's offset is not the end of the part: it must continue there. */
static void reply_other_offset(struct hy_exchange *x, uint64_t offset)
{
    hy_reply_json(
        x, json_pack("{s:s,s:I}", "error", "the upload must continue at another offset", "offset", (json_int_t)offset));
    x->status = 409;
}

/* Whether the piece fits, and may become the target: checked early, since a rejection at the end wastes the transfer.
 */
static int check_piece(struct upload *u, uint64_t offset, size_t n, struct hy_err *err)
{
    if (offset > u->size || n > u->size - offset)
        return hy_err_set(err, -EINVAL, "the piece exceeds the announced size of %llu bytes",
                          (unsigned long long)u->size);
    return check_target(u, err);
}

static void add_piece(struct hy_exchange *x, struct upload *u, uint64_t offset)
{
    const bool is_last = offset + x->body.len == u->size;
    struct hy_err err = {0};
    uint64_t have = 0;
    int found = arrived(u, &have, &err), rc = found;

    if (found >= 0 && have != offset) {
        reply_other_offset(x, have);
        return;
    }
    if (found >= 0)
        rc = check_piece(u, offset, x->body.len, &err);
    if (rc == 0)
        rc = write_piece(u, &x->body, found == 0, is_last, &err);
    if (rc == 0 && is_last)
        rc = finish(u, &err);
    if (rc < 0)
        hy_served_dir_failure(x, &u->dir, &err);
    else
        hy_reply_json(x, json_pack("{s:I,s:b}", "offset", (json_int_t)(offset + x->body.len), "complete", is_last));
}

void hy_api_upload_piece(struct hy_exchange *x)
{
    cleanup_upload struct upload u = {0};
    uint64_t offset;
    int rc;

    if (find_upload(x, &u) < 0 || required_number(x, "offset", &offset) < 0)
        return;
    rc = claim(u.key);
    if (rc == -EBUSY) {
        hy_reply_error(x, 409, "another request is uploading the same file to '%.300s'", u.path);
    } else if (rc < 0) {
        hy_reply_error(x, 503, "too many uploads at the same time; try again");
    } else {
        add_piece(x, &u, offset);
        release(u.key);
    }
}

/* ---- DELETE /files/uploads ----------------------------------------------------------------------------------- */

void hy_api_upload_cancel(struct hy_exchange *x)
{
    cleanup_upload struct upload u = {0};
    hy_cleanup_free char *url = NULL;
    struct hy_err err = {0};
    int rc;

    if (find_upload(x, &u) < 0)
        return;
    rc = hy_served_dir_entry(&u.dir, u.part, &url, &err);
    if (rc == 0)
        rc = hy_fs_remove(url, false, &err);
    if (rc < 0 && rc != -ENOENT)
        hy_served_dir_failure(x, &u.dir, &err);
    else
        hy_reply_bytes(x, 204, NULL, "", 0);
}
