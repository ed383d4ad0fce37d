/* SPDX-License-Identifier: Apache-2.0 */
#include "record/record.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "fs/fs.h"

#define PIECE (1u << 20)
#define HEAD 12u                  /* of a record: enough to know one */
#define RECORD_MAX (1ull << 31)   /* TensorFlow reads none that is longer */
#define ANY_WINDOW (MAX_WBITS + 32) /* gzip or zlib, as the bytes say */

struct hy_records {
    char *url;
    struct hy_fs_file *file;
    uint64_t file_at; /* what was read of it */
    struct hy_buf in; /* bytes of records */
    size_t taken;     /* of these: the record that the caller has */
    uint64_t at;      /* where `in` begins, among all of them */

    bool is_known, is_zipped, is_over; /* over: no more comes into `in` */
    z_stream zip;
    bool is_between; /* members of a compressed file */
    uint8_t *packed; /* PIECE bytes of it */
};

int hy_records_open(const char *url, struct hy_records **ret, struct hy_err *err)
{
    struct hy_records *r = hy_calloc(1, sizeof *r);
    int rc;

    if (!r || !(r->url = hy_strdup(url))) {
        free(r);
        return hy_err_oom(err);
    }
    hy_buf_init(&r->in, SIZE_MAX / 2);
    rc = hy_fs_open(url, HY_FS_READ, &r->file, err);
    if (rc < 0) {
        hy_records_close(r);
        return rc;
    }
    *ret = r;
    return 0;
}

void hy_records_close(struct hy_records *r)
{
    struct hy_err unheard;

    if (!r)
        return;
    if (r->file)
        hy_fs_close(r->file, &unheard); /* nothing was written */
    if (r->is_zipped)
        inflateEnd(&r->zip);
    hy_buf_done(&r->in);
    free(r->packed);
    free(r->url);
    free(r);
}

uint64_t hy_records_at(const struct hy_records *r)
{
    return r->at;
}

/* ---- bytes ------------------------------------------------------------------------- */

/* How many came; 0 at the end of the file. */
static int64_t read_some(struct hy_records *r, void *into, size_t n, struct hy_err *err)
{
    const int64_t got = hy_fs_pread(r->file, into, n, r->file_at, err);

    r->file_at += got > 0 ? (uint64_t)got : 0;
    return got;
}

static int read_plain(struct hy_records *r, size_t n, struct hy_err *err)
{
    const uint64_t left = hy_fs_size(r->file) - r->file_at; /* a record may say that it is longer */
    const size_t most = n > PIECE ? n : PIECE, some = left < most ? (size_t)left : most;
    uint8_t *room = hy_buf_reserve(&r->in, some);
    int64_t got;

    if (!room)
        return hy_err_set(err, -ENOMEM, "out of memory for a record of %s", r->url);
    got = read_some(r, room, some, err);
    if (got < 0)
        return (int)got;
    hy_buf_added(&r->in, (size_t)got);
    r->is_over = got == 0;
    return 0;
}

static int damaged(const struct hy_records *r, struct hy_err *err)
{
    return hy_err_set(err, -EBADMSG, "%s is damaged: %s", r->url, r->zip.msg ? r->zip.msg : "its compression breaks off");
}

/* One piece of the compressed file, when the one before is used up. */
static int refill(struct hy_records *r, struct hy_err *err)
{
    int64_t got;

    if (r->zip.avail_in)
        return 0;
    got = read_some(r, r->packed, PIECE, err);
    if (got < 0)
        return (int)got;
    r->zip.next_in = r->packed;
    r->zip.avail_in = (unsigned)got;
    if (got == 0 && !r->is_between)
        return damaged(r, err);
    r->is_over = got == 0;
    return 0;
}

/* A file may be several compressed ones, one behind the other. */
static int read_zipped(struct hy_records *r, struct hy_err *err)
{
    uint8_t *room = hy_buf_reserve(&r->in, PIECE);
    int rc = refill(r, err);

    if (rc < 0 || r->is_over)
        return rc;
    if (!room)
        return hy_err_set(err, -ENOMEM, "out of memory for a record of %s", r->url);
    if (r->is_between && inflateReset(&r->zip) != Z_OK)
        return damaged(r, err);
    r->zip.next_out = room;
    r->zip.avail_out = PIECE;
    rc = inflate(&r->zip, Z_NO_FLUSH);
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return rc == Z_MEM_ERROR ? hy_err_oom(err) : damaged(r, err);
    r->is_between = rc == Z_STREAM_END;
    hy_buf_added(&r->in, PIECE - r->zip.avail_out);
    return 0;
}

static int fill(struct hy_records *r, size_t need, struct hy_err *err)
{
    int rc = 0;

    while (rc == 0 && r->in.len < need && !r->is_over)
        rc = r->is_zipped ? read_zipped(r, err) : read_plain(r, need - r->in.len, err);
    return rc;
}

/* ---- which kind -------------------------------------------------------------------- */

/* A record's length is followed by its checksum: what has that is none of the others. */
static bool begins_with_record(const struct hy_buf *b)
{
    struct hy_record r;
    const char *why;
    size_t need;

    return b->len >= HEAD && hy_record_parse(hy_buf_bytes(b), HEAD, SIZE_MAX, &r, &need, &why) >= 0;
}

static bool begins_compressed(const uint8_t *bytes, size_t n)
{
    const bool is_gzip = n >= 3 && bytes[0] == 0x1f && bytes[1] == 0x8b && bytes[2] == 8;
    const bool is_zlib = n >= 2 && (bytes[0] & 0x0f) == 8 && (bytes[0] << 8 | bytes[1]) % 31 == 0;

    return is_gzip || is_zlib;
}

static int begin_zipped(struct hy_records *r, struct hy_err *err)
{
    r->packed = hy_malloc(r->in.len > PIECE ? r->in.len : PIECE);
    if (!r->packed || inflateInit2(&r->zip, ANY_WINDOW) != Z_OK)
        return hy_err_oom(err);
    r->is_zipped = true;
    r->is_over = false;
    memcpy(r->packed, hy_buf_bytes(&r->in), r->in.len);
    r->zip.next_in = r->packed;
    r->zip.avail_in = (unsigned)r->in.len;
    hy_buf_clear(&r->in);
    return 0;
}

static int find_kind(struct hy_records *r, struct hy_err *err)
{
    int rc = fill(r, HEAD, err);

    if (rc < 0)
        return rc;
    r->is_known = true;
    if (r->in.len == 0 || begins_with_record(&r->in))
        return 0;
    if (begins_compressed(hy_buf_bytes(&r->in), r->in.len))
        return begin_zipped(r, err);
    return hy_err_set(err, -EBADMSG, "%s holds no TFRecords: its first bytes are no length with a checksum", r->url);
}

/* ---- records ----------------------------------------------------------------------- */

int hy_records_next(struct hy_records *r, struct hy_record *ret, struct hy_err *err)
{
    size_t need = HEAD;
    int rc = r->is_known ? 0 : find_kind(r, err);

    hy_buf_consume(&r->in, r->taken);
    r->at += r->taken;
    r->taken = 0;
    for (;;) {
        const char *why = "";
        int64_t n;

        if (rc == 0)
            rc = fill(r, need, err);
        if (rc < 0 || r->in.len == 0)
            return rc;
        n = hy_record_parse(hy_buf_bytes(&r->in), r->in.len, RECORD_MAX, ret, &need, &why);
        if (n > 0) {
            r->taken = (size_t)n;
            return 1;
        }
        if (n < 0)
            return hy_err_set(err, -EBADMSG, "%s is damaged at byte %llu: %s", r->url, (unsigned long long)r->at, why);
        if (r->is_over && r->in.len < need)
            return hy_err_set(err, -EBADMSG, "%s breaks off in the record at byte %llu", r->url, (unsigned long long)r->at);
    }
}
