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

#define BUFFER_SIZE (1u << 20)
#define HEAD 12u                  /* of a record: enough to recognize one */
#define RECORD_MAX (1ull << 31)   /* TensorFlow's limit */
#define ANY_WINDOW (MAX_WBITS + 32) /* detects gzip or zlib */

struct hy_records {
    char *url;
    struct hy_fs_file *file;
    uint64_t file_at; /* bytes read so far */
    struct hy_buf in; /* bytes of records */
    size_t taken;     /* bytes of `in`: the record that the caller has */
    uint64_t at;      /* offset of `in` in all bytes of records */
    size_t record_max;

    bool is_detected, is_compressed, at_end; /* at_end: `in` gets no more bytes */
    z_stream zip;
    bool is_between; /* between members of a compressed file */
    uint8_t *compressed; /* BUFFER_SIZE bytes */
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
    r->record_max = RECORD_MAX;
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
    struct hy_err ignored;

    if (!r)
        return;
    if (r->file)
        hy_fs_close(r->file, &ignored); /* nothing was written */
    if (r->is_compressed)
        inflateEnd(&r->zip);
    hy_buf_done(&r->in);
    free(r->compressed);
    free(r->url);
    free(r);
}

void hy_records_limit(struct hy_records *r, size_t bytes)
{
    r->record_max = bytes < RECORD_MAX ? bytes : RECORD_MAX;
}

uint64_t hy_records_at(const struct hy_records *r)
{
    return r->at;
}

/* ---- reading ------------------------------------------------------------------------- */

/* Returns the number of bytes; 0 at the end of the file. */
static int64_t read_some(struct hy_records *r, void *into, size_t n, struct hy_err *err)
{
    const int64_t got = hy_fs_pread(r->file, into, n, r->file_at, err);

    r->file_at += got > 0 ? (uint64_t)got : 0;
    return got;
}

static int read_plain(struct hy_records *r, size_t n, struct hy_err *err)
{
    const uint64_t left = hy_fs_size(r->file) - r->file_at; /* a damaged length may exceed the file */
    const size_t most = n > BUFFER_SIZE ? n : BUFFER_SIZE, some = left < most ? (size_t)left : most;
    uint8_t *to = hy_buf_reserve(&r->in, some);
    int64_t got;

    if (!to)
        return hy_err_set(err, -ENOMEM, "out of memory for a record of %s", r->url);
    got = read_some(r, to, some, err);
    if (got < 0)
        return (int)got;
    hy_buf_added(&r->in, (size_t)got);
    r->at_end = got == 0;
    return 0;
}

static int damaged(const struct hy_records *r, struct hy_err *err)
{
    return hy_err_set(err, -EBADMSG, "%s is damaged: %s", r->url,
                      r->zip.msg ? r->zip.msg : "its compressed data is truncated");
}

/* Reads more compressed bytes when the buffer is empty. */
static int refill(struct hy_records *r, struct hy_err *err)
{
    int64_t got;

    if (r->zip.avail_in)
        return 0;
    got = read_some(r, r->compressed, BUFFER_SIZE, err);
    if (got < 0)
        return (int)got;
    r->zip.next_in = r->compressed;
    r->zip.avail_in = (unsigned)got;
    if (got == 0 && !r->is_between)
        return damaged(r, err);
    r->at_end = got == 0;
    return 0;
}

/* A file may be a sequence of compressed members. */
static int read_compressed(struct hy_records *r, struct hy_err *err)
{
    uint8_t *to = hy_buf_reserve(&r->in, BUFFER_SIZE);
    int rc = refill(r, err);

    if (rc < 0 || r->at_end)
        return rc;
    if (!to)
        return hy_err_set(err, -ENOMEM, "out of memory for a record of %s", r->url);
    if (r->is_between && inflateReset(&r->zip) != Z_OK)
        return damaged(r, err);
    r->zip.next_out = to;
    r->zip.avail_out = BUFFER_SIZE;
    rc = inflate(&r->zip, Z_NO_FLUSH);
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return rc == Z_MEM_ERROR ? hy_err_oom(err) : damaged(r, err);
    r->is_between = rc == Z_STREAM_END;
    hy_buf_added(&r->in, BUFFER_SIZE - r->zip.avail_out);
    return 0;
}

static int fill(struct hy_records *r, size_t need, struct hy_err *err)
{
    int rc = 0;

    while (rc == 0 && r->in.len < need && !r->at_end)
        rc = r->is_compressed ? read_compressed(r, err) : read_plain(r, need - r->in.len, err);
    return rc;
}

/* ---- detection of the format -------------------------------------------------------------------- */

/* The length of a record is followed by its checksum, which no other format has. */
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

static int begin_compressed(struct hy_records *r, struct hy_err *err)
{
    r->compressed = hy_malloc(r->in.len > BUFFER_SIZE ? r->in.len : BUFFER_SIZE);
    if (!r->compressed || inflateInit2(&r->zip, ANY_WINDOW) != Z_OK)
        return hy_err_oom(err);
    r->is_compressed = true;
    r->at_end = false;
    memcpy(r->compressed, hy_buf_bytes(&r->in), r->in.len);
    r->zip.next_in = r->compressed;
    r->zip.avail_in = (unsigned)r->in.len;
    hy_buf_clear(&r->in);
    return 0;
}

static int detect_format(struct hy_records *r, struct hy_err *err)
{
    int rc = fill(r, HEAD, err);

    if (rc < 0)
        return rc;
    r->is_detected = true;
    if (r->in.len == 0 || begins_with_record(&r->in))
        return 0;
    if (begins_compressed(hy_buf_bytes(&r->in), r->in.len))
        return begin_compressed(r, err);
    return hy_err_set(err, -EBADMSG, "%s is not a TFRecord file: its first bytes are not a length with a checksum",
                      r->url);
}

/* ---- records ----------------------------------------------------------------------- */

int hy_records_next(struct hy_records *r, struct hy_record *ret, struct hy_err *err)
{
    size_t need = HEAD;
    int rc = r->is_detected ? 0 : detect_format(r, err);

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
        n = hy_record_parse(hy_buf_bytes(&r->in), r->in.len, r->record_max, ret, &need, &why);
        if (n > 0) {
            r->taken = (size_t)n;
            return 1;
        }
        if (n < 0)
            return hy_err_set(err, -EBADMSG, "%s is damaged at byte %llu: %s", r->url, (unsigned long long)r->at, why);
        if (r->at_end && r->in.len < need)
            return hy_err_set(err, -EBADMSG, "%s is truncated in the record at byte %llu", r->url,
                              (unsigned long long)r->at);
    }
}
