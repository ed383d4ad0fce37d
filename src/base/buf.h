/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growable byte buffer with a fixed maximum. Bytes are appended at the end and
 * consumed at the front; consuming is cheap (the rest moves only when the space is
 * needed).
 */
#ifndef HY_BASE_BUF_H
#define HY_BASE_BUF_H

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct hy_buf {
    size_t len;    /* read-only: the number of bytes */
    size_t max;    /* read-only: the limit of len */
    uint8_t *room; /* private */
    size_t head;   /* private: where the bytes begin */
    size_t cap;    /* private */
};

void hy_buf_init(struct hy_buf *b, size_t max);
void hy_buf_done(struct hy_buf *b);

/* The first byte; not NUL-terminated. Valid until the next change. */
static inline const uint8_t *hy_buf_bytes(const struct hy_buf *b)
{
    return b->room ? b->room + b->head : NULL;
}

/* 0, -ENOBUFS when the maximum would be exceeded, or -ENOMEM; then unchanged. */
int hy_buf_append(struct hy_buf *b, const void *bytes, size_t n);
int hy_buf_append_str(struct hy_buf *b, const char *s);
int hy_buf_printf(struct hy_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int hy_buf_vprintf(struct hy_buf *b, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));

uint8_t *hy_buf_grow(struct hy_buf *b, size_t n); /* private */

/* Reserves n bytes at the end and returns a pointer to them; NULL when the maximum
 * would be exceeded or out of memory. hy_buf_added then appends those that were written. */
static inline uint8_t *hy_buf_reserve(struct hy_buf *b, size_t n)
{
    return b->room && n <= b->cap - b->head - b->len && n <= b->max - b->len ? b->room + b->head + b->len
                                                                             : hy_buf_grow(b, n);
}

static inline void hy_buf_added(struct hy_buf *b, size_t n)
{
    assert(n <= b->cap - b->head - b->len && n <= b->max - b->len);
    b->len += n;
}

void hy_buf_consume(struct hy_buf *b, size_t n); /* n <= len */
void hy_buf_cut(struct hy_buf *b, size_t len);   /* truncates; len <= b->len */
void hy_buf_clear(struct hy_buf *b);
/* Frees the memory of an empty buffer that has grown. */
void hy_buf_shrink(struct hy_buf *b);

/* The bytes as a NUL-terminated string, or NULL when out of memory. */
const char *hy_buf_cstr(struct hy_buf *b);

#define hy_cleanup_buf __attribute__((cleanup(hy_buf_done)))

#endif
