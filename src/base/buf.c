/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define FIRST_ROOM 256

void hy_buf_init(struct hy_buf *b, size_t max)
{
    *b = (struct hy_buf){.max = max};
}

void hy_buf_done(struct hy_buf *b)
{
    free(b->room);
    *b = (struct hy_buf){.max = b->max};
}

/* Space for n bytes at the end, regardless of the maximum. */
static uint8_t *make_room(struct hy_buf *b, size_t n)
{
    size_t need, cap;
    uint8_t *room;

    if (b->room && n <= b->cap - b->head - b->len)
        return b->room + b->head + b->len;
    if (__builtin_add_overflow(b->len, n, &need))
        return NULL;
    if (b->room && need <= b->cap - b->cap / 4) { /* a quarter is free: worth moving the bytes */
        memmove(b->room, b->room + b->head, b->len);
        b->head = 0;
        return b->room + b->len;
    }
    cap = b->cap ? b->cap : FIRST_ROOM;
    while (cap < need || (b->head && cap - cap / 4 < need))
        if (__builtin_mul_overflow(cap, (size_t)2, &cap))
            return NULL;
    room = hy_malloc(cap);
    if (!room)
        return NULL;
    if (b->len)
        memcpy(room, b->room + b->head, b->len);
    free(b->room);
    b->room = room;
    b->cap = cap;
    b->head = 0;
    return room + b->len;
}

uint8_t *hy_buf_grow(struct hy_buf *b, size_t n)
{
    return n <= b->max - b->len ? make_room(b, n) : NULL;
}

int hy_buf_append(struct hy_buf *b, const void *bytes, size_t n)
{
    uint8_t *at;

    if (n > b->max - b->len)
        return -ENOBUFS;
    at = make_room(b, n);
    if (!at)
        return -ENOMEM;
    if (n)
        memcpy(at, bytes, n);
    b->len += n;
    return 0;
}

int hy_buf_append_str(struct hy_buf *b, const char *s)
{
    return hy_buf_append(b, s, strlen(s));
}

int hy_buf_vprintf(struct hy_buf *b, const char *fmt, va_list args)
{
    va_list again;
    uint8_t *at;
    int n;

    va_copy(again, args);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0)
        return -EINVAL;
    if ((size_t)n > b->max - b->len)
        return -ENOBUFS;
    at = make_room(b, (size_t)n + 1);
    if (!at)
        return -ENOMEM;
    vsnprintf((char *)at, (size_t)n + 1, fmt, args);
    b->len += (size_t)n;
    return 0;
}

int hy_buf_printf(struct hy_buf *b, const char *fmt, ...)
{
    va_list args;
    int rc;

    va_start(args, fmt);
    rc = hy_buf_vprintf(b, fmt, args);
    va_end(args);
    return rc;
}

void hy_buf_consume(struct hy_buf *b, size_t n)
{
    assert(n <= b->len);
    b->len -= n;
    b->head = b->len ? b->head + n : 0;
}

void hy_buf_cut(struct hy_buf *b, size_t len)
{
    assert(len <= b->len);
    b->len = len;
}

void hy_buf_clear(struct hy_buf *b)
{
    b->len = b->head = 0;
}

void hy_buf_shrink(struct hy_buf *b)
{
    if (b->len == 0 && b->cap > FIRST_ROOM) {
        free(b->room);
        b->room = NULL;
        b->cap = b->head = 0;
    }
}

const char *hy_buf_cstr(struct hy_buf *b)
{
    uint8_t *at = make_room(b, 1);

    if (!at)
        return NULL;
    *at = '\0';
    return (const char *)b->room + b->head;
}
